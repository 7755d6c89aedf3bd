//! Numbers that the body of a copy is given beside each element: what a prologue of several operands reads.
//!
//! A copy reads the elements of one view. What becomes of an element on the way may depend on others: an activation is multiplied by another tensor at the
//! same place, a row by its norm, the weights of a block by its scale. Each of those is a view of its own, with the strides of its own operand, and says how
//! many neighbouring elements of a row share a number ([`Span`]). The numbers are read when the elements are, into registers, so they are under way while
//! the tile before is multiplied, and the body loads nothing:
//!
//! ```text
//! copy t1[c0] = g1[64*group.col, 32*c0] with g3 by 32, g4 by 32 map {
//!   let v0 = get m0      the weight
//!   let v1 = get m4      the scale of its block of 32, from g3
//!   let v2 = get m5      the zero point, from g4
//! ```

use serde::{Deserialize, Serialize};

use crate::layout::CHUNK;
use crate::names::View;

/// How many neighbouring elements of a row share a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Span {
    /// None: each has its own.
    One,
    /// So many, a multiple of 8.
    Columns(u32),
    /// All of the row.
    Row,
}

impl Span {
    /// The column of the numbers' view for a column of the elements'.
    pub fn col(self, col: i64) -> i64 {
        match self {
            Span::One => col,
            Span::Columns(n) => col / i64::from(n),
            Span::Row => 0,
        }
    }

    /// Whether it is declared as it may be.
    pub(crate) fn is_whole(self) -> bool {
        match self {
            Span::One | Span::Row => true,
            Span::Columns(n) => n > 0 && n.is_multiple_of(CHUNK),
        }
    }
}

/// Numbers beside the elements of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beside {
    /// Where they are. Its rows and columns are those of the view that is copied from.
    pub view: View,
    /// Which of them an element has.
    pub span: Span,
}
