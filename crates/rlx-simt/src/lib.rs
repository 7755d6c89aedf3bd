//! RLX on NVIDIA's and AMD's GPUs: one runtime over CUDA's driver or HIP.
//!
//! Kernels come from [`rlx_kernel`] as CUDA C or HIP C, matmuls on matrix units from [`rlx_tile`]; this crate has them compiled, and brings them to a GPU. The vendors' libraries
//! are loaded at run time: a program that was built with this crate starts anywhere, and says what is missing where they are not.
//!
//! | module | what it is |
//! |---|---|
//! | `table` | the functions of both vendors, a row each |
//! | `blas` | matmuls by cuBLASLt or hipBLASLt, where numerics allow them |
//! | `load` | where the libraries are, and how to get them |
//! | `driver` | the driver's things as values: context and stream, memory, events, graphs |
//! | `compile` | C to code objects by NVRTC or hiprtc; which matrix units they have instructions for |
//! | `gpu` | an opened GPU: what it is, faults as typed errors |
//! | `kernels` | kernels and tile programs to code objects, kept on disk |
//! | `memory` | copies to the GPU through pinned memory |
//! | `runs` | the commands of a run and their graph, what comes back |
//! | `device` | all of it as [`rlx_gpu`] uses it, which does the rest |
//!
//! [`SimtBackend`] is the door. Work of a GPU goes through one stream: uploads, runs and copies happen in the order in which they were
//! given, and the host waits only for what it wants to see. The second run on the same memory is recorded as a graph, which later runs
//! give to the driver as a whole.
//!
//! **Run on an H200 and an H100**, on no other GPU yet. Tests run on a library with the vendors' functions that checks every call and interprets the
//! kernels (`tests/fake-driver`); the same tests run on a GPU where there is one.
#![deny(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

// Calls into the vendors' library for matmuls.
#[allow(unsafe_code)]
mod blas;
// Calls into the vendors' compiler.
#[allow(unsafe_code)]
mod compile;
mod device;
// Calls into the vendors' driver.
#[allow(unsafe_code)]
mod driver;
mod gpu;
mod kernels;
// Loads libraries.
#[allow(unsafe_code)]
mod load;
mod memory;
mod numbers;
mod runs;
// Signatures of what is in the libraries.
#[allow(unsafe_code)]
mod table;
// Calls into the vendor's driver.
#[allow(unsafe_code)]
mod tensor_map;

pub use gpu::{Gpu, Options, gpu_count};
pub use numbers::{NUMBERS, Number};
pub use rlx_gpu::Lowered;
pub use table::{BLAS, COMPILER, DRIVER, Row, TENSORS, Vendor};

/// A GPU of NVIDIA's ([`Device::Cuda`]) or AMD's ([`Device::Rocm`]) by the vendor's own driver and compiler, which are loaded at run
/// time: first from the folders that [`Options::folders`] names. Without [`Options::ordinal`] it is the first GPU.
///
/// Which GPUs a process sees, the vendors' variables say (`CUDA_VISIBLE_DEVICES`, `HIP_VISIBLE_DEVICES`).
///
/// ```
/// use rlx_backend::Backend;
/// use rlx_driver::Device;
/// let backend = rlx_simt::SimtBackend::new(Device::Cuda);
/// match backend.probe() {
///     Ok(()) => println!("{}", backend.machine()?),
///     Err(missing) => println!("{missing}"),
/// }
/// # Ok::<(), rlx_ir::Error>(())
/// ```
///
/// [`Device::Cuda`]: rlx_driver::Device::Cuda
/// [`Device::Rocm`]: rlx_driver::Device::Rocm
pub type SimtBackend = rlx_gpu::GpuBackend<Gpu>;
