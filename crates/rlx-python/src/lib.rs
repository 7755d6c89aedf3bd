//! The extension module behind the Python package `rlx`.
//!
//! The package (in `python/rlx/`) is what users import; this module, `rlx._native`, has what needs Rust: `model` runs
//! models, `graph` records graphs, `tools` answers questions about devices. `array` and `dlpack` turn Python's
//! arrays into tensors and back without copying where the memory allows; all `unsafe` code is there.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[allow(unsafe_code)]
mod array;
#[allow(unsafe_code)]
mod dlpack;
mod errors;
mod graph;
mod image;
mod inspect;
mod model;
mod options;
mod spec;
mod tools;
mod values;
mod verification;
mod watch;

use pyo3::prelude::*;

/// What the package `rlx` is made of; import `rlx` instead.
#[pymodule]
#[pyo3(name = "_native")]
mod native {
    #[pymodule_export]
    use super::graph::{Graph, Tensor};
    #[pymodule_export]
    use super::model::Model;
    #[pymodule_export]
    use super::spec::TensorSpec;
    #[pymodule_export]
    use super::tools::{devices, method_table, version};
    #[pymodule_export]
    use super::watch::Cancel;
}
