//! Sessions and compiled graphs: compile a graph for a device, set its parameters, run it.
//!
//! A [`Session`] is a device and a precision; [`Session::compile`] returns a [`CompiledGraph`], which holds its
//! parameters and can be run any number of times. The [`registry`] has the devices whose Cargo feature is
//! on and those added by [`register_backend`]; [`device_ext`] says what each can do.
//!
//! ```
//! use rlx_ir::{DType, Graph, Shape, op::BinaryOp};
//! use rlx_runtime::{Device, Session};
//! let mut graph = Graph::new("add");
//! let shape = Shape::new(&[2], DType::F32);
//! let (x, w) = (graph.input("x", shape.clone()), graph.param("w", shape.clone()));
//! let y = graph.binary(BinaryOp::Add, x, w, shape);
//! graph.set_outputs(vec![y]);
//!
//! let mut compiled = Session::new(Device::Cpu).compile(graph);
//! compiled.set_param("w", &[1.0, 2.0]);
//! assert_eq!(compiled.run(&[("x", &[3.0, 4.0])]), [[4.0, 6.0]]);
//! ```
//!
//! Every call that can panic has a twin with `try_` in front that returns a typed error instead.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod aot;
mod cache;
pub mod compiled;
pub mod device_bench;
mod env;
mod error;
pub mod graph_devices;
pub mod model_pipeline;
pub mod session;
pub mod stages;
pub mod typed;

pub use rlx_select::device_ext;
pub use rlx_select::{Crossing, SplitPart, SplitPlan};

/// Predicting the time of a graph on each device, and choosing the fastest device.
pub mod cost {
    pub use rlx_select::cost::*;
    pub use rlx_select::device_policy::{
        fastest_device_for, fastest_device_for_with_policy, try_fastest_device_for,
        try_fastest_device_for_with_policy,
    };

    /// The calibration of the device of `session` with its threads: stored earlier, or measured now.
    ///
    /// # Errors
    /// As [`calibrate`].
    pub fn calibration_of(session: &crate::Session) -> rlx_ir::Result<Calibration> {
        rlx_select::cost::calibration_of(session.on())
    }
}

/// Which devices a program may use, which it prefers, and why a device is not used.
pub mod device_policy {
    pub use rlx_select::device_policy::{
        DeviceCandidate, DeviceFallbackError, DevicePickStrategy, DevicePolicy, device_chain_from_env,
        device_report, devices_for_with_policy, resolve_device, resolve_device_chain,
        try_device_chain_from_env, try_resolve_device, try_resolve_device_chain,
    };
}

/// Which devices have a backend in this process.
pub mod registry {
    pub use rlx_select::registry::{
        backend_for, backend_of, device_ids, register_backend, register_device, registered_devices,
    };
}

/// Choosing between variants of a step by measurement.
pub mod tuning {
    pub use rlx_backend::tuning::BitClass;
    pub use rlx_select::tuning::{Found, TunedStep};

    /// The file where measurements on the device of `session` are stored.
    ///
    /// # Errors
    /// There is no cache folder, or the device does not say what it is.
    pub fn file(session: &crate::Session) -> rlx_ir::Result<std::path::PathBuf> {
        rlx_select::tuning::file(session.on())
    }
}

/// What a device implements.
pub mod backend {
    pub use rlx_backend::cost::works;
    pub use rlx_backend::moe::MixtureOfExperts;
    pub use rlx_backend::pipelines;
    pub use rlx_backend::tuning::{Tuning, TuningKey};
    pub use rlx_backend::{
        Backend, BindingStats, CodePart, CompileCache, ExecutableGraph, InputSource, MemoryInfo, RunOptions,
        StepProfile, StepProfiler,
    };
}

/// Custom ops: their rules and their CPU kernels. `examples/custom_op` is a complete example.
pub mod custom {
    #[cfg(feature = "cpu")]
    pub use rlx_cpu::custom::{CpuCall, CpuKernel, register_cpu_kernel};
    pub use rlx_ir::custom::{CustomOp, custom_op, register_custom_op};
    pub use rlx_ir::op::{Arity, CustomAttr, CustomAttrs};
}

/// Decoders whose caches have a fixed capacity, so that a run neither binds nor allocates nor moves what past runs left.
pub mod caches {
    pub use rlx_opt::caches::{Bounded, Cache, find, with_capacity};
}

/// The precision of a session, and the policies that decide which ops stay f32.
pub mod precision {
    pub use rlx_opt::{Precision, PrecisionPolicy};
}

pub use aot::{AotCache, AotCacheError, Artefact, ArtefactSizes, ArtefactTarget, CacheEntry, NewArtefact};
pub use backend::{Backend, BindingStats, ExecutableGraph, InputSource, MemoryInfo, StepProfile};
pub use cache::{
    BucketedCompileCache, CompileCache, DynamicDimCompileCache, PaddedRun, pad_rows, slice_rows,
    try_pad_rows, try_slice_rows,
};
pub use compiled::{
    CompiledGraph, MoeResidencyStats, OutputRef, RunInput, RunOutputs, RunRequest, TensorInfo, TensorView,
};
pub use cost::*;
pub use custom::{CustomOp, register_custom_op};
pub use device_bench::*;
pub use device_ext::*;
pub use device_policy::*;
pub use env::{Variable, cpu_instruction_sets, variables};
pub use error::CompileError;
pub use graph_devices::{Choice, ChoiceReason, GraphDevices, graph_param_names};
pub use model_pipeline::ModelCompilePipeline;
pub use precision::{Precision, PrecisionPolicy};
pub use registry::{
    backend_for, backend_of, device_ids, register_backend, register_device, registered_devices,
};
pub use rlx_driver::{Device, DeviceId, OwnNameError, ParseDeviceError};
pub use rlx_ir::{
    BindingManifest, Cancel, CompilationMode, ConstData, DType, Dim, DimBinding, Error, ErrorKind, Graph,
    GraphExt, GraphModule, GraphStage, HirModule, HirMut, HirNodeId, IoBindingEntry, LirModule, LowerError,
    MirModule, ModelComponent, ModelPhase, ModelVariant, Node, NodeId, Op, OpKind, Progress, Shape, SymRange,
    TracedTensor, Tracer, Value, VerifyError, Weight, WeightStore, nearest, op, progress, sym, trace,
    try_trace, verify,
};
/// ```
/// use rlx_runtime::{Device, rlx_model};
///
/// #[rlx_model]
/// fn mlp<Batch, const HIDDEN: usize = 8>(
///     x: Tensor<f32, Batch, 4>,
///     w1: Param<f32, 4, HIDDEN>,
///     b1: Param<f32, HIDDEN>,
///     w2: Param<f32, HIDDEN, 2>,
/// ) -> Tensor<f32, Batch, 2> {
///     let hidden = (x.matmul(w1) + b1).relu();
///     hidden.matmul(w2)
/// }
///
/// let mut mlp = Mlp::new(Device::Cpu);
/// mlp.set_w1(&[[0.5; 8]; 4]);
/// mlp.set_b1(&[-1.0; 8]);
/// mlp.set_w2(&[[1.0, -1.0]; 8]);
/// let outputs = mlp.run(MlpInputs { x: &[[1.0; 4], [0.0; 4], [2.0; 4]] });
/// assert_eq!(outputs.output, [[8.0, -8.0], [0.0, 0.0], [24.0, -24.0]]);
/// ```
///
#[doc(inline)]
pub use rlx_macros::rlx_model;
pub use rlx_opt::{
    Claim, CompileOptions, CompilePipeline, CompileResult, DispatchPath, FusionOptions, KernelDispatchPolicy,
    KernelDispatchReport, KindDispatchSummary, Numerics, PassRecord, Tune,
};
pub use session::Session;
pub use tuning::TunedStep;
