//! RLX on Apple silicon through [MLX](https://github.com/ml-explore/mlx).
//!
//! A graph becomes a program of MLX's operations, which MLX compiles and runs as a whole. MLX is a C++ library, so between it and this
//! crate is a shim of ours with a small C interface (`shim/rlx_mlx.h`). The shim is built apart (`cargo xtask mlx`) and loaded at run
//! time: a program that was built with this crate needs no C++, starts anywhere, and says what is missing where the shim is not.
//!
//! | module | what it is |
//! |---|---|
//! | `load` | the shim's functions, where it is, and how to get it |
//! | `shim` | arrays and programs as values |
//! | `program` | the words of a program, and its builder |
//! | `emit` | graphs as programs, a file for each family of ops |
//! | `claims` | what MLX computes, by op, element type and attribute |
//! | `device` | MLX as a device of whole graphs ([`rlx_backend::whole_graph`]) |
//!
//! [`MlxBackend`] is the door. Arrays are in memory that host and device share, so outputs are read where they are; constants and weights are
//! read where they are, too, as far as MLX takes memory that is not its own.
//!
//! **Not yet run on Apple hardware.** Tests run on MLX's build for Linux, which computes on the CPU.
#![deny(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod backend;
mod claims;
mod device;
mod emit;
// Loads the shim, and reads its texts.
#[allow(unsafe_code)]
mod load;
mod program;
// Calls into the shim.
#[allow(unsafe_code)]
mod shim;

pub use backend::MlxBackend;
pub use load::SHIM;
