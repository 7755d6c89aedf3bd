//! Caches of compiled graphs: by key, by size class, by sizes.
//!
//! - [`CompileCache`]: one graph for each key, whatever the graphs are.
//! - [`BucketedCompileCache`]: one graph for each range of sizes, run on inputs filled up to the range's end.
//! - [`DynamicDimCompileCache`]: one graph with open dimensions, and a variant for each choice of them.
//!
//! Blocks instead of graphs, manifests and components are [`crate::ModelCompilePipeline`]'s.

mod bucketed;
mod dynamic;
mod keyed;
mod rows;

pub use bucketed::{BucketedCompileCache, PaddedRun};
pub use dynamic::DynamicDimCompileCache;
pub use keyed::CompileCache;
pub use rows::{pad_rows, slice_rows, try_pad_rows, try_slice_rows};
