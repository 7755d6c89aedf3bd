//! Caches of compiled graphs: by key, by size range, by sizes.
//!
//! - [`CompileCache`]: one graph for each key, whatever the graphs are.
//! - [`BucketedCompileCache`]: one graph for each range of sizes, run on inputs padded to the end of the range.
//! - [`DynamicDimCompileCache`]: one graph with dynamic dimensions, and a variant for each choice of sizes.
//!
//! For HIR modules, binding manifests and model components, see [`crate::ModelCompilePipeline`].

mod bucketed;
mod dynamic;
mod keyed;
mod rows;

pub use bucketed::{BucketedCompileCache, PaddedRun};
pub use dynamic::DynamicDimCompileCache;
pub use keyed::CompileCache;
pub use rows::{pad_rows, slice_rows, try_pad_rows, try_slice_rows};
