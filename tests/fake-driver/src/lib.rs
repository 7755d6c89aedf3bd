//! A library with the functions of CUDA's driver, NVRTC, cuBLASLt, HIP, hiprtc and hipBLASLt that RLX calls, for tests on machines without a GPU.
//!
//! Its compilers read the C of a kernel back to RLX's kernel language (`cuda_c`) and that of a tile program to the tile language (`tiles`), its drivers run that on the interpreters, which
//! checks every access (`world`). They are stricter than real drivers: work is done only when somebody waits for it, and a call is
//! rejected that a real driver may let pass until it is too late: a range beyond its allocation, memory that was freed or is another
//! context's, arguments of another size, memory freed or used from another stream while work on it is pending.
//!
//! Tests load the library by the vendors' names for it, and steer it by the functions whose names begin with `rlx_fake_`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod blas;
mod calls;
mod cuda_c;
mod exports;
mod loaded;
mod models;
mod tensor_maps;
mod tiles;
mod world;
