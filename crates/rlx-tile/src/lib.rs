//! Programs over tiles, for devices with matrix units.
//!
//! `rlx-kernel` says what one invocation does. A matrix instruction is done by a whole warp: its operands are fragments that lie in the
//! registers of 32 lanes in an order that the vendor documents. So this is a level of its own. A [`Program`] says what a *workgroup* does with
//! tiles: it copies them from global memory into workgroup memory (swizzled, in stages, asynchronously where the device can), loads fragments
//! from there, multiplies them, computes on rows of the sums, and stores them. What happens to one element on the way in (*prologue*) and on the way out (*epilogue*) is
//! a scalar body in the kernel language ([`Scalar`]).
//!
//! ```text
//! Matmul ──schedule──▶ Program ──expand──▶ Program ──render──▶ CUDA C (mma.sync, ldmatrix, cp.async), HIP C (MFMA, WMMA)
//!                        │                    │                Metal's language (simdgroup_matrix)
//!                      verify            interpreter             or WGSL (cooperative matrices)
//! ```
//!
//! - [`atom`]: matrix instructions and how their operands lie in lanes, as a table.
//! - [`beside`]: what a prologue reads besides the elements that are copied.
//! - [`layout`]: where the elements of a tile are in workgroup memory.
//! - [`window`]: views of what a convolution's window slides over.
//! - [`schedule`]: families of programs (matmul, convolution and attention), and steps of LIR as such, whole or in parts of long sums.
//! - [`group`]: what sm_90a has above warps: tensor copies, barriers in memory, `wgmma`.
//! - [`group::tensor`]: sums in the tensor memory of sm_100a, by `tcgen05`.
//! - [`tensor_map`]: what its copies are told of the views that they copy from.
//! - [`expand`](mod@expand): software pipelining: a loop whose copies run ahead becomes statements in order.
//! - [`stored`]: programs as bytes, and back.
//! - [`interp`]: runs programs on the CPU lane by lane, finds races and missing waits, counts bank conflicts and sectors.
//! - [`render`]: CUDA C, HIP C, the Metal Shading Language and WGSL.
//!
//! CUDA and ROCm run matmuls, convolutions and attention of f16 and bf16 by these programs (`rlx_gpu::tiles`), Vulkan matmuls and convolutions of f16, Metal's language no device yet. They are
//! compiled by the compilers of NVIDIA and AMD (Metal's for the CPU alone) and interpreted. Of hardware, they have run on NVIDIA's sm_90
//! (`docs/performance/gpu.md`).
//!
//! ```
//! use rlx_ir::DType;
//! use rlx_tile::{Arch, schedule::{Matmul, Tiling, matmul}};
//! let tiling = Tiling { tile: (128, 128, 32), warps: (2, 2), stages: 3, bands: 8, groups: false, teams: 0 };
//! let program = matmul(Arch::Sm80, &Matmul::new(DType::BF16), &tiling)?;
//! assert!(rlx_tile::render::source(&program, "k")?.contains("mma.sync.aligned.m16n8k16"));
//! # Ok::<(), rlx_ir::Error>(())
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod atom;
pub mod beside;
pub mod expand;
mod forms;
pub mod group;
pub mod interp;
pub mod ir;
pub mod layout;
pub mod lookup;
mod names;
pub mod render;
mod scalar;
pub mod schedule;
pub mod stored;
pub mod tensor_map;
mod text;
pub mod verify;
mod walk;
pub mod window;

pub use atom::Arch;
pub use ir::Program;
pub use scalar::Scalar;
