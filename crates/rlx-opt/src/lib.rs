//! The compiler of RLX: from a graph to steps over planned memory.
//!
//! [`pipeline::CompilePipeline`] is one readable function over a flat list of named passes; each pass is one
//! file in [`passes`] and turns a graph into a graph through the [`rewrite::Rewriter`]. What a device can do
//! it learns from a [`target::Target`] alone. The last stages ([`lower`], [`plan`]) turn the fused graph into
//! [`rlx_ir::LirModule`].
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod caches;
pub mod dispatch;
pub(crate) mod exact;
pub mod facts;
pub mod lower;
pub mod matcher;
pub mod options;
pub mod passes;
pub mod pipeline;
pub mod plan;
pub mod precision;
pub mod report;
pub mod rewrite;
pub mod target;
pub mod verify_lir;

pub use dispatch::{
    KernelDispatchConfig, analyze_dispatch, format_dispatch_report, format_legalize_error,
    prepare_graph_for_backend_with_report,
};
pub use options::{
    CompileOptions, FusionOptions, KernelDispatchPolicy, Numerics, Precision, PrecisionPolicy, Tune,
};
pub use pipeline::{CompilePipeline, CompileResult, CompiledModule, PassRecord};
pub use precision::{KeptLong, KindPrecision, PrecisionReport};
pub use report::{DispatchPath, KernelDispatchReport, KindDispatchSummary};
pub use target::{Claim, Gain, PoolSpec, Target};
pub use verify_lir::verify_lir;
