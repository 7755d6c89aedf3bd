//! Kernels as data, for devices whose code is generated.
//!
//! A step of LIR becomes one or more [`ir::Kernel`]s by a schedule ([`mod@schedule`]); what the device's language
//! lacks (64-bit integers, bytes, half precision, library functions) is expanded by [`mod@emulate`]; a renderer
//! ([`mod@render`]) writes the result in the device's language. Kernels can be printed, hashed, verified
//! ([`mod@verify`]) and run on the CPU ([`interp`]), so every lowering is tested without the device.
//!
//! ```text
//! Step ──schedule──▶ Kernel ──emulate──▶ Kernel ──render──▶ WGSL, CUDA C
//!                      │                   │
//!                      └── interpreter ────┘
//! ```
//!
//! What a module's steps became can be kept in a file ([`stored`]). What the devices that run kernels share behind that is
//! `rlx-gpu`'s.
//!
//! A backend takes three things from here: [`KernelTarget`] as its `rlx_opt::Target`, [`compile_step`] for each step
//! (by one of its [`step_variants`]), and a renderer. See `docs/architecture/kernels.md`.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod build;
pub mod emulate;
pub mod eval;
pub mod interp;
pub mod ir;
pub mod render;
mod rewrite;
pub mod schedule;
mod simplify;
mod specialise;
pub mod stored;
mod target;
pub mod text;
mod unroll;
pub mod verify;

pub use ir::{Kernel, WideAccess};
pub use schedule::{Arg, FewRows, Launch, UniformArg};
pub use stored::Launches;
pub use target::{
    DeviceLimits, DeviceVariant, KernelTarget, TypeSupport, compile_step, few_rows, few_rows_of, grid,
    step_variants,
};
pub use text::KernelHash;
