//! Attention to keys and values in pages of tables: their lists are buffers behind all others, and their views look up rows ([`crate::lookup`]).

use rlx_ir::DType;
use rlx_kernel::ir::Buffer;

use super::attention::{Attention, Mask};
use crate::ir::Size;
use crate::lookup::Lookup;

/// How keys or values are in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pages {
    /// Rows of a page; without it all rows of an item are in one.
    pub rows: Option<u32>,
    /// The type of the list's numbers: i32 or i64.
    pub list: DType,
}

/// Where a list of pages is, and how it is read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct List {
    /// Its first number.
    pub base: i32,
    /// The number of the view's first row.
    pub first: i32,
    /// Pages of the table.
    pub pages: i32,
    /// Numbers from batch to batch, as [`Strides::batch`](super::Strides::batch).
    pub batch: Vec<i32>,
    /// Elements of a page.
    pub page: i32,
}

impl Attention {
    /// The lists that there are: of keys or of values, and its buffer.
    pub(super) fn lists(&self) -> impl Iterator<Item = (usize, Pages, u32)> + '_ {
        let first = 4 + u32::from(matches!(self.mask, Mask::Given(_)));
        let all = self.pages.iter().enumerate().filter_map(|(i, pages)| Some((i, (*pages)?)));
        all.zip(first..).map(|((i, pages), buffer)| (i, pages, buffer))
    }

    /// What a name says of pages.
    pub(super) fn pages_name(&self) -> String {
        self.lists()
            .map(|(i, Pages { rows, list }, _)| {
                format!(".{}{}x{list}", ["keys", "values"][i], rows.unwrap_or(0))
            })
            .collect()
    }

    /// How the rows of a buffer are looked up, if they are.
    pub(super) fn lookup(&self, number: u32) -> Option<Lookup> {
        let (_, pages, list) = self.lists().find(|(i, ..)| *i as u32 + 1 == number)?;
        let (first, dims) = (self.first_uniform(list), self.dims());
        Some(Lookup {
            list: Buffer(list),
            base: Size::Uniform(first),
            batch: (first + 3..).take(dims as usize).map(Size::Uniform).collect(),
            first: Size::Uniform(first + 1),
            page: pages.rows,
            pages: Size::Uniform(first + 2),
            stride: Size::Uniform(first + 3 + dims),
        })
    }
}
