//! Rows times the matrices of their groups: the experts of a mixture, of which each row has chosen one.
//!
//! A workgroup multiplies a tile of rows of one group, which are anywhere among all rows. So the program is a matmul whose batch is the tiles of all groups, and
//! whose views look up rows ([`crate::lookup`]) in lists that a kernel has made before ([`super::grouped_lists`]):
//!
//! ```text
//! list        of                                                 a workgroup of tile t
//! groups      the group of each tile                             multiplies by matrix groups[t]
//! left        the row that a row of a tile is copied from        copies row left[t · rows + i] as its row i
//! result      the row that it is stored as                       stores row i as result[t · rows + i]
//! ```
//!
//! A row or a matrix that is not there ([`ABSENT`]) reads as 0 and is not stored: so are the rows behind the last one of a group, and the tiles behind all groups.
//! A result is one chain of sums whatever tile it is in, so its bits depend on its row and its matrix alone.

use rlx_ir::DType;
use rlx_kernel::ir::Buffer;

use crate::ir::Size;
use crate::lookup::Lookup;

/// The type of a list's numbers.
pub(super) const LIST: DType = DType::I32;

/// The number of no row and of no group: a list's numbers below 0 count from the end.
pub(super) const ABSENT: i32 = i32::MAX;

/// The names of the uniforms that lists have: where those of left rows and of the result's begin in memory that begins with the groups, and how many rows the
/// left operand has, how many matrices there are, and how many rows the result has.
pub(super) const UNIFORMS: [&str; 5] = ["lists.left", "lists.result", "left.rows", "groups", "result.rows"];

/// How the rows of a buffer are looked up: left rows (0), matrices (1), or those of the result (2). The uniforms of lists begin with number `first`; `strides` are those
/// of an operand, and `rows` are the rows of a tile.
pub(super) fn lookup(number: u32, (first, strides): (u32, u32), rows: Size) -> Option<Lookup> {
    let list = |i: u32| Size::Uniform(first + i);
    let stride = |i: u32| Size::Uniform(strides + number * strides + i);
    let of = |base, each, page, pages, stride| Lookup {
        list: Buffer(3),
        base,
        batch: vec![each],
        first: Size::Const(0),
        page,
        pages,
        stride,
    };
    match number {
        0 => Some(of(list(0), rows, Some(1), list(2), stride(1))),
        1 => Some(of(Size::Const(0), Size::Const(1), None, list(3), stride(3))),
        2 => Some(of(list(1), rows, Some(1), list(4), stride(1))),
        _ => None,
    }
}
