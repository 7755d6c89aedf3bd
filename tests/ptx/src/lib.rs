//! An emulator of PTX, as NVRTC writes it, for tests without a GPU.
//!
//! RLX's interpreters run its own languages. What the vendor's compiler makes of their text is seen here: registers, branches, addresses, and
//! the instructions of a warp, `ldmatrix`, `mma.sync` and `cp.async`, whose layouts are written out from the formulas of the PTX ISA; and
//! of sm_90a those of warp groups: `wgmma`, bulk and tensor copies, and the barriers in memory that count them; of sm_100a tensor memory and `tcgen05`. Threads
//! run one after the other until each waits: for its warp, for its workgroup, for a barrier in memory. Found on the way: accesses out of range or not aligned, races in
//! workgroup memory, asynchronous copies that nobody waited for, lanes that are not together where the instruction wants a whole warp, barriers
//! that not all threads reach or that nothing ends, fences that are missing.
//!
//! - [`Module::parse`]: text to instructions; what is not known is an error that names the line.
//! - [`run`](fn@run): workgroups, one after the other.
//!
//! A matrix instruction adds its products in order in f64 and rounds once; hardware keeps fewer digits, and NVIDIA does not say how many.
//!
//! ```
//! use rlx_ptx::{Launch, Memory, Module, run};
//! let module = Module::parse(
//!     ".visible .entry twice(.param .u64 p) {
//!        .reg .b32 %r<3>; .reg .b64 %rd<2>;
//!        ld.param.u64 %rd1, [p];
//!        ld.global.u32 %r1, [%rd1];
//!        shl.b32 %r2, %r1, 1;
//!        st.global.u32 [%rd1], %r2;
//!        ret;
//!      }",
//! )?;
//! let mut memory = Memory::default();
//! let p = memory.allocate(21u32.to_le_bytes().to_vec());
//! run(&module, &Launch { grid: [1, 1, 1], threads: 1, parameters: vec![p], shared: 0 }, &mut memory)?;
//! assert_eq!(memory.buffer(0), 42u32.to_le_bytes());
//! # Ok::<(), String>(())
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod asynchronous;
mod clocks;
mod groups;
mod memory;
mod parse;
mod run;
mod shared;
mod tensor;
mod tensor_memory;
mod tensor_ops;
mod values;
mod warp;

pub use memory::Memory;
pub use parse::Module;
pub use run::{Launch, run};
pub use tensor::TensorMap;

/// What went wrong, for people: the line of the text, and the thread.
pub type Result<T = ()> = std::result::Result<T, String>;
