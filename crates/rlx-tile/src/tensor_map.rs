//! Tensor maps: what a tensor copy (`cp.async.bulk.tensor`) is told of the view that it copies boxes of.
//!
//! A map has the view's base, sizes and strides and the size of a box, in 128 bytes that only the driver can make (`cuTensorMapEncodeTiled`; their
//! bits are not documented). A launch makes them from its uniforms ([`MapDecl::bound`]) and gives the kernel each by value, behind the uniforms and before
//! the buffers. Dimensions are, from the inside out, the view's columns, its rows, and those of the grid's batch, the last of them first.
//!
//! ```text
//! g0 b0 [u0, u2] strides [u5, 1] batch [u7]    sizes   [u2, u0, n0's]
//! a0 g0 box [128, 64]                          strides [2·u5, 2·u7] bytes, box [64, 128, 1]
//! ```
//!
//! What is beyond a size arrives as 0. A dimension of the batch along which the view repeats (a stride of 0) has a size of 1, and its index there is 0.

use rlx_ir::{DType, Error, ErrorKind, Result};

use crate::ir::{Program, Size, View, ViewDecl};
use crate::layout::CHUNK_BYTES;

/// A tensor map, by its number in a program's maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Map(pub u32);

/// Dimensions that a map may have: two of the view, and the batch's.
pub const MOST_DIMS: usize = 5;

/// Boxes of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapDecl {
    /// The view: of 16-bit elements, 8 of which are accessed at once.
    pub view: View,
    /// Rows of a box, at most 256.
    pub rows: u32,
    /// Columns of a box: 64, the 128 bytes that are swizzled.
    pub cols: u32,
}

/// A map with its numbers: what `cuTensorMapEncodeTiled` is told, with a swizzle of 128 bytes and zeros beyond the sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundMap {
    /// The number of the buffer.
    pub buffer: usize,
    /// Where the view begins in it, in elements: a multiple of 16 bytes.
    pub base: i64,
    /// The type of its elements.
    pub dtype: DType,
    /// Sizes in elements, from the inside out, each at least 1.
    pub sizes: Vec<u64>,
    /// Bytes from index to index of all dimensions but the innermost: multiples of 16, at least 16.
    pub strides: Vec<u64>,
    /// The sizes of a box, in elements.
    pub box_sizes: Vec<u32>,
}

impl Program {
    /// Its tensor maps, in the order of the kernel's parameters.
    pub fn maps(&self) -> &[MapDecl] {
        &self.group.maps
    }
}

impl MapDecl {
    /// The map for a dispatch with these uniforms.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] where uniforms break what the view promises, or rows are not apart as a map can say.
    pub fn bound(&self, program: &Program, uniforms: &[i32]) -> Result<BoundMap> {
        let wrong = |what: String| {
            let View(view) = self.view;
            Error::new(ErrorKind::Internal, format!("a map of g{view} of {:?}: {what}", program.name))
        };
        let view: &ViewDecl = program
            .views
            .get(self.view.0 as usize)
            .ok_or_else(|| wrong("the view is not declared".to_owned()))?;
        let buffer = view.buffer.index();
        let decl = program.buffers.get(buffer).ok_or_else(|| wrong("no such buffer".to_owned()))?;
        let number = |size: Size| match size {
            Size::Const(n) => Ok(i64::from(n)),
            Size::Uniform(i) => uniforms
                .get(i as usize)
                .map(|&n| i64::from(n))
                .ok_or_else(|| wrong(format!("u{i} has no value"))),
            Size::Part { .. } => Err(wrong("a size that is divided".to_owned())),
        };
        let bytes = decl.dtype.bits() as i64 / 8;
        let aligned = |elements: i64| elements * bytes % i64::from(CHUNK_BYTES) == 0;
        let (base, cols) = (number(view.base)?, number(view.cols)?.max(1));
        if base < 0 || !aligned(base) {
            return Err(wrong(format!("it begins at element {base}")));
        }
        // Of a dimension that has one index the stride does not matter, but must be one: that behind all of what is inside of it.
        let mut any = (cols as u64 * bytes as u64).next_multiple_of(u64::from(CHUNK_BYTES));
        let (mut sizes, mut strides) = (vec![cols as u64], Vec::new());
        let rows = (number(view.rows)?, number(view.row_stride)?);
        let batch = program.grid.batch.iter().zip(&view.batch).rev();
        let batch = batch.map(|(&size, &stride)| {
            let stride = number(stride)?;
            Ok::<_, Error>((if stride == 0 { 1 } else { number(size)? }, stride))
        });
        for dim in std::iter::once(Ok(rows)).chain(batch) {
            let (size, stride) = dim?;
            let several = size > 1;
            if several && (stride <= 0 || !aligned(stride)) {
                return Err(wrong(format!("{size} indices that are {stride} elements apart")));
            }
            sizes.push(size.max(1) as u64);
            let stride = if several { stride as u64 * bytes as u64 } else { any };
            strides.push(stride);
            any = stride.saturating_mul(size.max(1) as u64);
        }
        let mut box_sizes = vec![self.cols, self.rows];
        box_sizes.resize(sizes.len(), 1);
        Ok(BoundMap { buffer, base, dtype: decl.dtype, sizes, strides, box_sizes })
    }
}
