//! RLX on the processor: kernels chosen at run time for the instruction set found, and a thread pool.
//!
//! The bottom layer knows nothing of graphs, only pointers, extents and strides:
//!
//! | module | what it is |
//! |---|---|
//! | [`isa`] | which instruction set: [`Isa`](isa::Isa), found once, passed explicitly, forced by `RLX_CPU_ISA` |
//! | [`simd`] | sixteen logical f32 lanes on every instruction set; kernels are written once over it |
//! | [`math`] | vector functions (exp, log, erf, tanh, …) and [`math::Unary`], their list |
//! | [`gemm`] | packed matmul with fused epilogue; the same kernel as convolution |
//! | [`rows`] | reductions, softmax and normalisation along the last axis |
//! | [`window`] | convolution with few channels in a group, depthwise above all |
//! | [`pool`] | fork and join over fixed ranges; idle costs nothing |
//! | [`custom`] | kernels of ops from outside |
//! | [`alloc`] | aligned memory in huge pages, for weights and the arena |
//!
//! On top of it stands the backend: [`CpuTarget`] tells the compiler what there are kernels for, and
//! [`CpuBackend`] makes executables of compiled modules. `kernels` has one module for each family of ops with
//! its claim beside its kernel, over operands as they are once dimensions are known (`layout`, `memory`); `program` binds
//! steps to dimensions and runs them. Kernels know nothing of `program`: it gives those that run bodies a program of each (`kernels::BodyProgram`).
//!
//! Kernels that are split over threads say how many tasks they have (a function of shape only) and run
//! any range of them, so results do not depend on the number of threads.
#![deny(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]
// Micro-kernels walk several arrays of registers in lockstep, by index and with constant bounds.
#![allow(clippy::needless_range_loop)]

#[allow(unsafe_code)]
pub mod alloc;
#[allow(unsafe_code)]
pub mod backend;
#[allow(unsafe_code)]
pub mod blas;
pub mod custom;
mod formats;
mod gain;
#[allow(unsafe_code)]
pub mod gemm;
#[allow(unsafe_code)]
pub mod isa;
#[allow(unsafe_code)]
mod journal;
#[allow(unsafe_code)]
mod kernels;
mod layout;
#[allow(unsafe_code)]
pub mod math;
#[allow(unsafe_code)]
mod memory;
#[allow(unsafe_code)]
pub mod pool;
#[allow(unsafe_code)]
mod program;
#[allow(unsafe_code)]
pub mod rows;
#[allow(unsafe_code)]
pub mod simd;
#[allow(unsafe_code)]
mod stores;
pub mod target;
#[allow(unsafe_code)]
pub mod window;
#[allow(unsafe_code)]
pub mod window_bytes;

pub use backend::CpuBackend;
pub use target::CpuTarget;

#[cfg(test)]
mod testing;
