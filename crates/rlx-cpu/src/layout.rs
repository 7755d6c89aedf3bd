//! Concrete views: where the elements of an operand lie once all extents are numbers.

use rlx_ir::lir::{Buffer, Operand, views_apart};
use rlx_ir::op::PackFormat;
use rlx_ir::{DType, Error, ErrorKind, Result};

use rlx_backend::extents::{ExtentTable, Values, ViewCheck};

/// The most dimensions an operand may have.
pub(crate) const MAX_RANK: usize = 16;

/// Dimensions and strides (in elements; may be zero or negative), outermost first.
#[derive(Debug, Clone, Copy, Eq)]
pub(crate) struct Layout {
    rank: usize,
    dims: [usize; MAX_RANK],
    strides: [isize; MAX_RANK],
}

impl PartialEq for Layout {
    /// What is beyond the rank does not count.
    fn eq(&self, other: &Self) -> bool {
        self.dims() == other.dims() && self.strides() == other.strides()
    }
}

impl Layout {
    /// No dimensions: one element.
    pub(crate) const SCALAR: Layout = Layout { rank: 0, dims: [1; MAX_RANK], strides: [0; MAX_RANK] };

    /// These dimensions and strides; at most [`MAX_RANK`] of each.
    pub(crate) fn new(dims: &[usize], strides: &[isize]) -> Layout {
        let mut layout = Layout::SCALAR;
        dims.iter().zip(strides).for_each(|(&d, &s)| layout.push(d, s));
        layout
    }

    /// Row-major without gaps.
    pub(crate) fn dense(dims: &[usize]) -> Layout {
        let mut layout = Layout::new(dims, &[1; MAX_RANK]);
        for i in (1..layout.rank).rev() {
            layout.strides[i - 1] = layout.strides[i] * layout.dims[i] as isize;
        }
        layout
    }

    /// Adds an innermost dimension.
    pub(crate) fn push(&mut self, dim: usize, stride: isize) {
        self.dims[self.rank] = dim;
        self.strides[self.rank] = stride;
        self.rank += 1;
    }

    /// How many dimensions there are.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// The dimensions.
    pub(crate) fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// The strides.
    pub(crate) fn strides(&self) -> &[isize] {
        &self.strides[..self.rank]
    }

    /// How many elements there are.
    pub(crate) fn elements(&self) -> usize {
        self.dims().iter().product()
    }

    /// The dimensions `from..to` alone.
    pub(crate) fn range(&self, from: usize, to: usize) -> Layout {
        Layout::new(&self.dims[from..to], &self.strides[from..to])
    }

    /// Whether the elements are row-major without gaps.
    pub(crate) fn is_dense(&self) -> bool {
        let mut want = 1;
        for i in (0..self.rank).rev() {
            if self.dims[i] != 1 && self.strides[i] != want {
                return false;
            }
            want *= self.dims[i] as isize;
        }
        true
    }

    /// All dimensions as one, when one stride serves.
    pub(crate) fn flat(&self) -> Option<(usize, isize)> {
        let (mut n, mut stride) = (1usize, 1isize);
        let mut any = false;
        for i in (0..self.rank).rev().filter(|&i| self.dims[i] != 1) {
            if !any {
                (n, stride, any) = (self.dims[i], self.strides[i], true);
            } else if self.strides[i] == stride * n as isize {
                n *= self.dims[i];
            } else {
                return None;
            }
        }
        Some((n, stride))
    }

    /// The same elements broadcast to `dims` (aligned at the right); `None` when they do not fit.
    pub(crate) fn broadcast_to(&self, dims: &[usize]) -> Option<Layout> {
        let skip = dims.len().checked_sub(self.rank)?;
        let mut layout = Layout::new(dims, &[0; MAX_RANK]);
        for i in 0..self.rank {
            if self.dims[i] == dims[skip + i] {
                layout.strides[skip + i] = self.strides[i];
            } else if self.dims[i] != 1 {
                return None;
            }
        }
        Some(layout)
    }

    /// Where row `row` of all dimensions but the innermost begins.
    #[inline]
    pub(crate) fn outer_at(&self, row: usize) -> isize {
        self.at_within(self.rank.saturating_sub(1), row)
    }

    /// Where element `index` of the row-major order lies.
    #[inline]
    pub(crate) fn at(&self, index: usize) -> isize {
        self.at_within(self.rank, index)
    }

    /// Where element `index` of the row-major order of the first `rank` dimensions lies: a division for each of them but the first.
    #[inline]
    fn at_within(&self, rank: usize, mut index: usize) -> isize {
        let mut offset = 0;
        for i in (1..rank).rev() {
            let dim = self.dims[i];
            offset += (index % dim) as isize * self.strides[i];
            index /= dim;
        }
        if rank > 0 { offset + index as isize * self.strides[0] } else { 0 }
    }
}

/// Walks the elements of layouts with the same dimensions side by side, in row-major order: what [`Layout::at`] finds by
/// division, step by step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walk<const N: usize> {
    layouts: [Layout; N],
    index: [usize; MAX_RANK],
    at: [isize; N],
}

impl<const N: usize> Walk<N> {
    /// Begins at element `start`.
    pub(crate) fn new(layouts: [Layout; N], mut start: usize) -> Walk<N> {
        let at = layouts.map(|l| if l.elements() == 0 { 0 } else { l.at(start) });
        let mut index = [0; MAX_RANK];
        for (i, &dim) in layouts[0].dims().iter().enumerate().rev() {
            index[i] = start % dim.max(1);
            start /= dim.max(1);
        }
        Walk { layouts, index, at }
    }

    /// Where the element lies in each of the layouts.
    #[inline(always)]
    pub(crate) fn at(&self) -> [isize; N] {
        self.at
    }

    /// Goes to the next element; from the last one to the first.
    #[inline(always)]
    pub(crate) fn step(&mut self) {
        for i in (0..self.layouts[0].rank).rev() {
            self.index[i] += 1;
            let whole = self.index[i] == self.layouts[0].dims[i];
            for (at, layout) in self.at.iter_mut().zip(&self.layouts) {
                *at += layout.strides[i];
                if whole {
                    *at -= layout.strides[i] * layout.dims[i] as isize;
                }
            }
            if !whole {
                return;
            }
            self.index[i] = 0;
        }
    }
}

/// Puts the dimensions of all of `layouts` in the order in which the first steps through memory, the largest steps outermost. All must have the same
/// dimensions.
pub(crate) fn order_by_first(layouts: &mut [Layout]) {
    let Some(first) = layouts.first().copied() else { return };
    let step = |&d: &usize| std::cmp::Reverse(first.strides[d].unsigned_abs());
    let mut order: [usize; MAX_RANK] = std::array::from_fn(|d| d);
    order[..first.rank].sort_by_key(step);
    for l in layouts {
        let Layout { dims, strides, rank } = *l;
        (l.dims, l.strides) = (order.map(|d| dims[d]), order.map(|d| strides[d]));
        l.rank = rank;
    }
}

/// Joins neighbouring dimensions that all of `layouts` step through alike, and drops those of 1. All must
/// have the same dimensions.
pub(crate) fn collapse(layouts: &mut [Layout]) {
    let Some(first) = layouts.first().copied() else { return };
    let mut kept = 0;
    for i in 0..first.rank {
        if first.dims[i] == 1 {
            continue;
        }
        let joins =
            kept > 0 && layouts.iter().all(|l| l.strides[kept - 1] == l.strides[i] * first.dims[i] as isize);
        for l in layouts.iter_mut() {
            if joins {
                l.dims[kept - 1] *= first.dims[i];
                l.strides[kept - 1] = l.strides[i];
            } else {
                l.dims[kept] = first.dims[i];
                l.strides[kept] = l.strides[i];
            }
        }
        kept += usize::from(!joins);
    }
    layouts.iter_mut().for_each(|l| l.rank = kept);
}

/// An operand of a step before its extents are known.
#[derive(Debug, Clone)]
pub(crate) struct SymOperand {
    /// The buffer's number.
    pub(crate) buffer: u32,
    /// The element type.
    pub(crate) dtype: DType,
    /// The packed format that the buffer is in, whose layout only the kernels know.
    pub(crate) format: Option<PackFormat>,
    view: ViewCheck,
}

impl SymOperand {
    /// The operand with its expressions entered in `table`.
    pub(crate) fn new(operand: &Operand, buffer: &Buffer, table: &mut ExtentTable) -> Result<SymOperand> {
        let rank = operand.view.dims.len();
        if rank > MAX_RANK {
            let message = format!("an operand of {rank} dimensions; there are at most {MAX_RANK}");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        // Packed elements are moved in whole bytes, and the casts between the two are dense.
        let dense = operand.view.is_dense() && operand.view.offset == rlx_ir::Extent::Const(0);
        if operand.dtype.is_packed() && !dense {
            let message = format!("a view of packed elements: {} of {}", operand.dtype, operand.buffer.0);
            return Err(Error::new(ErrorKind::Internal, message));
        }
        Ok(SymOperand {
            buffer: operand.buffer.0,
            dtype: operand.dtype,
            format: buffer.format,
            view: ViewCheck::new(operand, buffer, table),
        })
    }

    /// The operand for these values, or the error of a view that leaves its buffer.
    pub(crate) fn bind(&self, values: &Values<'_>) -> Result<Bound> {
        // An empty view touches nothing, wherever it is.
        let offset = self.view.place(values)?.unwrap_or(0);
        let mut layout = Layout::SCALAR;
        // Sizes that were placed fit.
        self.view.axes(values).for_each(|(dim, stride)| layout.push(dim as usize, stride as isize));
        Ok(Bound {
            at: At { buffer: self.buffer, offset: offset * self.dtype.size_bytes() },
            dtype: self.dtype,
            layout,
        })
    }
}

/// A place: a buffer and a byte offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) buffer: u32,
    pub(crate) offset: usize,
}

impl At {
    /// A place that is never read.
    pub(crate) const NOWHERE: At = At { buffer: 0, offset: 0 };
}

/// An operand whose extents are numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    /// The element of index 0.
    pub(crate) at: At,
    /// The element type.
    pub(crate) dtype: DType,
    /// Dimensions and strides.
    pub(crate) layout: Layout,
}

impl Bound {
    /// The dimensions.
    pub(crate) fn dims(&self) -> &[usize] {
        self.layout.dims()
    }

    /// Whether it shares no element with another operand in the same buffer, as far as that can be seen.
    pub(crate) fn is_apart_from(&self, other: &Bound) -> bool {
        let view = |of: &'_ Bound| (of.at.offset / of.dtype.size_bytes()) as i64;
        let axes = |layout: &'_ Layout| {
            let (dims, strides, rank) = (layout.dims, layout.strides, layout.rank);
            (0..rank).map(move |i| (dims[i] as i64, strides[i] as i64))
        };
        let empty = |of: &Bound| of.dims().contains(&0);
        empty(self)
            || empty(other)
            || views_apart((view(self), axes(&self.layout)), (view(other), axes(&other.layout)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_are_ordered_as_the_first_operand_lies() {
        let planes = Layout::new(&[2, 5, 7, 3], &[105, 7, 1, 35]);
        let pixels = Layout::dense(&[2, 5, 7, 3]);
        let mut both = [planes, pixels];
        order_by_first(&mut both);
        assert_eq!(both[0], Layout::dense(&[2, 3, 5, 7]));
        assert_eq!(both[1], Layout::new(&[2, 3, 5, 7], &[105, 1, 21, 3]));
        let mut same = [pixels, planes];
        order_by_first(&mut same);
        assert_eq!(same, [pixels, planes]);
    }

    #[test]
    fn dimensions_join_where_all_operands_step_alike() {
        let dense = Layout::dense(&[2, 3, 4]);
        let bias = Layout::dense(&[4]).broadcast_to(&[2, 3, 4]).unwrap();
        let mut pair = [dense, bias];
        collapse(&mut pair);
        assert_eq!((pair[0].dims(), pair[0].strides()), (&[6, 4][..], &[4, 1][..]));
        assert_eq!(pair[1].strides(), [0, 1]);
        let mut one = [Layout::dense(&[2, 1, 3])];
        collapse(&mut one);
        assert_eq!(one[0], Layout::dense(&[6]));
        assert!(Layout::dense(&[3]).broadcast_to(&[2, 4]).is_none());
    }

    #[test]
    fn a_walk_passes_what_division_finds() {
        let pair = [Layout::new(&[2, 3, 4], &[50, -7, 2]), Layout::new(&[2, 3, 4], &[0, 9, 100])];
        for start in 0..24 {
            let mut walk = Walk::new(pair, start);
            for i in start..30 {
                assert_eq!(walk.at(), pair.map(|l| l.at(i % 24)), "{i} from {start}");
                walk.step();
            }
        }
        let mut scalar = Walk::new([Layout::SCALAR], 0);
        scalar.step();
        assert_eq!(scalar.at(), [0]);
        assert_eq!(Walk::new([Layout::dense(&[0, 3])], 0).at(), [0]);
    }

    #[test]
    fn flat_views_have_one_stride() {
        assert_eq!(Layout::dense(&[2, 3]).flat(), Some((6, 1)));
        assert_eq!(Layout::new(&[2, 3], &[8, 1]).flat(), None);
        assert_eq!(Layout::new(&[2, 3], &[12, 4]).flat(), Some((6, 4)));
        assert_eq!(Layout::new(&[3, 2], &[1, 3]).at(3), 4);
    }
}
