//! The rules for the whole contract: names are where it says, types derive what it says, and what a call cannot do is
//! an error with the text that its panicking form panics with.
#![allow(unused_imports)] // The lists of names are themselves the test.

use std::error::Error as StdError;
use std::fmt::{Debug, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What `rlx_ir` exports at its root.
mod ir_root {
    pub use rlx_ir::{
        BindingManifest, CompilationMode, DType, Dim, DimBinding, Graph, GraphExt, GraphModule, GraphStage,
        HirModule, HirMut, HirNodeId, IoBindingEntry, LirModule, MirModule, ModelComponent, ModelPhase,
        ModelVariant, Node, NodeId, Op, OpKind, Shape, VerifyError, hir, op, sym, verify,
    };
}

/// What `rlx_opt` exports at its root.
mod opt_root {
    pub use rlx_opt::{
        CompilePipeline, CompileResult, DispatchPath, KernelDispatchReport, PrecisionPolicy,
        analyze_dispatch, format_dispatch_report, format_legalize_error,
        prepare_graph_for_backend_with_report,
    };
}

/// The public modules of `rlx_runtime`, each with something of its own.
mod modules {
    pub use rlx_runtime::backend::{Backend, ExecutableGraph};
    pub use rlx_runtime::compiled::CompiledGraph;
    pub use rlx_runtime::cost::{BackendCostModel, estimate_graph_cost};
    pub use rlx_runtime::device_bench::{DeviceBenchResult, benchmark_devices, warm_all};
    pub use rlx_runtime::device_ext::{available_devices, is_available};
    pub use rlx_runtime::device_policy::{DeviceCandidate, DeviceFallbackError, DevicePolicy};
    pub use rlx_runtime::graph_devices::{GraphDevices, graph_param_names};
    pub use rlx_runtime::model_pipeline::ModelCompilePipeline;
    pub use rlx_runtime::precision::{Precision, PrecisionPolicy};
    pub use rlx_runtime::registry::{backend_for, register_backend, registered_devices};
    pub use rlx_runtime::session::Session;
    pub use rlx_runtime::stages::pipeline_for;
}

use rlx_runtime::*;

fn equal_and_shown<T: Debug + Clone + PartialEq>() {}
fn cloned<T: Clone>() {}
fn moved_and_cloned<T: Send + Clone>() {}
fn options<T: Clone + Default + Debug>() {}
fn error<T: Debug + Display + StdError>() {}

#[test]
fn types_derive_what_the_contract_says() {
    equal_and_shown::<Device>();
    equal_and_shown::<Precision>();
    equal_and_shown::<DType>();
    equal_and_shown::<Shape>();
    equal_and_shown::<DevicePickStrategy>();
    equal_and_shown::<DevicePolicy>();
    cloned::<Graph>();
    options::<CompileOptions>();
    moved_and_cloned::<CompiledGraph>();
    error::<Error>();
    error::<LowerError>();
    error::<CompileError>();
    error::<AotCacheError>();
    error::<DeviceFallbackError>();
    error::<ParseDeviceError>();
}

/// The name of a graph whose matmul cannot be: [2, 3] by [5, 4].
fn shape_mismatch() -> Graph {
    let mut g = Graph::new("shape_mismatch");
    let a = g.input("a", Shape::new(&[2, 3], DType::F32));
    let b = g.input("b", Shape::new(&[5, 4], DType::F32));
    let y = g.matmul(a, b, Shape::new(&[2, 4], DType::F32));
    g.set_outputs(vec![y]);
    g
}

#[test]
fn a_panicking_form_panics_with_the_text_of_its_twins_error() {
    let session = Session::new(Device::Cpu);
    let want = session.try_compile(shape_mismatch()).expect_err("3 is not 5").to_string();
    assert!(want.contains("[2, 3] f32") && want.contains("[5, 4] f32"), "{want}");
    let panic = catch_unwind(AssertUnwindSafe(|| session.compile(shape_mismatch()))).expect_err("it panics");
    let text = panic.downcast_ref::<String>().map(String::as_str).unwrap_or_default();
    assert!(text.contains(&want), "{text:?} says less than {want:?}");
}

#[test]
fn builders_keep_their_fault_for_verify() {
    let g = shape_mismatch();
    assert!(!verify(&g).is_empty());
    assert!(rlx_ir::Graph::new("fine").nodes().is_empty());
}

#[test]
fn names_and_folders_are_taken_in_any_form() {
    let owned = String::from("x");
    let mut g = Graph::new(owned.clone());
    g.input(owned, Shape::scalar(DType::F32));
    g.param("w", Shape::scalar(DType::F32));
    HirModule::new(String::from("m"));
    let root = std::env::temp_dir();
    AotCache::new(root.clone());
    AotCache::new(root.to_string_lossy().into_owned());
    assert_eq!(g.len(), 2);
}

#[test]
fn short_types_of_importers_have_names_and_sizes() {
    use rlx_ir::DType as D;
    for (dtype, bits) in [
        (D::F8E4M3FN, 8),
        (D::F8E4M3FNUZ, 8),
        (D::F8E5M2, 8),
        (D::F8E5M2FNUZ, 8),
        (D::F4E2M1, 4),
        (D::I4, 4),
        (D::U4, 4),
    ] {
        assert_eq!(dtype.bits(), bits, "{dtype}");
    }
}
