//! What loads packages and runs them: Core ML itself on Apple systems, and whatever a program brings ([`crate::CoreMlBackend::with_runtime`]),
//! such as an evaluator for tests.

use std::fmt::Debug;

use rlx_ir::Result;

use crate::program::{Feature, Package};

/// Loads packages.
pub trait PackageRuntime: Debug + Send + Sync {
    /// What loaded models depend on, in words: the system, its version, the processors.
    fn machine(&self) -> String;

    /// Loads a package.
    ///
    /// # Errors
    /// What the runtime says of the package.
    fn load(&self, package: &Package) -> Result<Box<dyn LoadedPackage>>;
}

/// A package in memory, ready to run.
pub trait LoadedPackage: Send + Sync {
    /// Runs it: row-major bytes of the inputs, as `inputs` declares them; those of the outputs.
    ///
    /// # Errors
    /// What the runtime reports, an index out of range among it.
    fn predict(&self, inputs: &[Feature], given: &[Vec<u8>], outputs: &[Feature]) -> Result<Vec<Vec<u8>>>;
}
