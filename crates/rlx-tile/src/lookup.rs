//! Views whose rows are looked up: keys and values in pages of a table, of which no copy is made.
//!
//! A server keeps the caches of its sequences in pages of one table, anywhere in it, and each sequence has a list of its pages. Rows of such a view are those of
//! the pages in a list, one page behind the other:
//!
//! ```text
//! table [40, 16, 64], list [7, 2, 39], pages of 16 rows     row 21 = row 5 of page list[1]  →  table[2, 5]
//! ```
//!
//! A number below 0 counts pages from the end, and a page that the table does not have reads as 0: that there is none is reported by a kernel of its own, which
//! looks at the lists and nothing else ([`rlx_kernel::schedule::list_check`]), so a program has no faults. Of all rows in one page, which may be any number, no row is divided by
//! anything.
//!
//! The sums of a result may be stored to rows that are looked up: what is not there is not stored ([rows in groups](crate::schedule::Lists)).
//!
//! Where rows are divided among workgroups ([`Size::Part`]), a part's are numbered behind those of the parts before it: it may begin within a page, and the table
//! is the same for all parts.

use rlx_kernel::ir::Buffer;
use serde::{Deserialize, Serialize};

use crate::names::Size;

/// Where the rows of a view are looked up: see [the module](self). The view's row stride is that within a page, its base that of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookup {
    /// The buffer of the list, of integers of 32 or 64 bits.
    pub list: Buffer,
    /// Where it begins, in numbers.
    pub base: Size,
    /// Numbers from batch to batch, for each dimension of the grid's batch.
    pub batch: Vec<Size>,
    /// The view's first row is that with this number.
    pub first: Size,
    /// Rows of a page; without it all rows are in one.
    pub page: Option<u32>,
    /// Pages of the table.
    pub pages: Size,
    /// Elements from page to page.
    pub stride: Size,
}

impl Lookup {
    /// All its sizes.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = Size> + '_ {
        [self.base, self.first, self.pages, self.stride].into_iter().chain(self.batch.iter().copied())
    }
}
