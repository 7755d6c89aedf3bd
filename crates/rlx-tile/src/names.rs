//! What the parts of a program call each other by: numbers of views, tiles, fragments and loops, and sizes.

use serde::{Deserialize, Serialize};

/// A matrix in a buffer, by its number in a program's `views`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct View(pub u32);

/// A tile in workgroup memory, by its number in its `tiles`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tile(pub u32);

/// Registers of a warp, by their number in its `fragments`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fragment(pub u32);

/// The number of a loop's iteration, by its number in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Counter(pub u32);

/// A number that is known when a program is made, or one that each dispatch is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Size {
    /// Known.
    Const(u32),
    /// The uniform of this number.
    Uniform(u32),
    /// What a workgroup has of the uniform `whole`, which is divided into parts of as many as the uniform `each` says: the index along the first
    /// dimension of the grid's batch is the number of the part. The last part may be smaller, and those behind it are empty. Columns of windows are numbered
    /// through all parts.
    Part {
        /// The uniform that is divided.
        whole: u32,
        /// The uniform that says how much a part is.
        each: u32,
    },
}

impl Size {
    /// The uniforms that it depends on.
    pub(crate) fn uniforms(self) -> impl Iterator<Item = u32> {
        let [first, second] = match self {
            Size::Const(_) => [None, None],
            Size::Uniform(i) => [Some(i), None],
            Size::Part { whole, each } => [Some(whole), Some(each)],
        };
        first.into_iter().chain(second)
    }
}
