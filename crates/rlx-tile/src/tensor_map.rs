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
//! Where neighbouring rows are those of several matrices ([`crate::ir::Heads`]), these are a dimension before the rows, and a box has all of them.
//!
//! What is beyond a size arrives as 0. A dimension of the batch along which the view repeats (a stride of 0) has a size of 1, and its index there is 0.
//!
//! A view of windows ([`crate::window`]) has a map of the image instead (`cuTensorMapEncodeIm2col`): its dimensions are channels, those along which the
//! window slides, the last of them first, and images. A copy is given the first place, a tap, and the first of its channels; the copy engine finds the places behind the
//! first one, in the order of the view's rows, and fills with 0 what is beside the image. What it walks is a *bounding box*, whose corners are relative to those of the image:
//!
//! ```text
//! images [2, 9, 9, 64], a window of 3×3 with stride 2 and a border of 1    sizes [64, 9, 9, 2], corners -1 and -1, steps 2, places 5×5
//! row 7 = place (1, 2) of image 0, tap (0, 2)                              copied from [0, 3, 1, 0], with offsets 2 and 0
//! ```

use rlx_ir::{DType, Error, ErrorKind, Result};

use crate::group::ROW;
pub use crate::group::{Map, MapDecl};
use crate::ir::{Program, Size, View, ViewDecl};
use crate::layout::CHUNK_BYTES;
use crate::window::{Slide, Window};

/// Dimensions that a map may have: two of the view, and the batch's.
pub const MOST_DIMS: usize = 5;

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
    /// The sizes of a box, in elements; of windows channels and places.
    pub box_sizes: Vec<u32>,
    /// How windows slide, where it is a map of an image: along its dimensions between channels and images.
    pub window: Vec<BoundAxis>,
}

/// How a window slides along a dimension of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundAxis {
    /// Where the bounding box begins, relative to the image's first element.
    pub lower: i32,
    /// Where it ends, relative to the image's last element.
    pub upper: i32,
    /// Elements from place to place.
    pub step: u32,
}

impl BoundAxis {
    /// The axis of a window over an image of `size` elements with so many places.
    pub fn new(slide: &Slide, size: i64, places: i64) -> Self {
        let lower = -i64::from(slide.before);
        let upper = (places.max(1) - 1) * i64::from(slide.stride) + 1 + lower - size.max(1);
        let corner = |n: i64| n.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        BoundAxis { lower: corner(lower), upper: corner(upper), step: slide.stride }
    }

    /// Whether the numbers of a window are among those that maps have, which slides along so many dimensions: the documentation of `cuTensorMapEncodeIm2col`, and of
    /// the copy's offsets in the PTX ISA.
    pub fn is_mapped(&self, slide: &Slide, axes: usize) -> bool {
        let (corners, offsets) = match axes {
            1 => (-32_768..=32_767, 65_535),
            2 => (-128..=127, 255),
            _ => (-16..=15, 31),
        };
        corners.contains(&self.lower)
            && corners.contains(&self.upper)
            && (1..=8).contains(&self.step)
            && u64::from(slide.taps.saturating_sub(1)) * u64::from(slide.dilation) <= offsets
    }
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
        if let Some(window) = &view.window {
            return self.bound_window(view, window, decl.dtype, uniforms).map_err(wrong);
        }
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
        // Neighbouring rows that are those of several matrices are dimensions of their own.
        let (heads, rows) = match view.heads {
            None => (None, rows),
            Some(heads) => {
                let count = i64::from(heads.count.max(1));
                (Some((count, number(heads.stride)?)), (rows.0 / count, rows.1))
            }
        };
        let batch = program.grid.batch.iter().zip(&view.batch).rev();
        let batch = batch.map(|(&size, &stride)| {
            let stride = number(stride)?;
            Ok::<_, Error>((if stride == 0 { 1 } else { number(size)? }, stride))
        });
        for dim in heads.into_iter().chain([rows]).map(Ok).chain(batch) {
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
        let mut box_sizes = vec![self.cols];
        match view.heads {
            None => box_sizes.push(self.rows),
            Some(heads) => box_sizes.extend([heads.count, self.rows / heads.count.max(1)]),
        }
        box_sizes.resize(sizes.len(), 1);
        Ok(BoundMap { buffer, base, dtype: decl.dtype, sizes, strides, box_sizes, window: Vec::new() })
    }

    /// The map of the images of windows.
    fn bound_window(
        &self,
        view: &ViewDecl,
        window: &Window,
        dtype: DType,
        uniforms: &[i32],
    ) -> std::result::Result<BoundMap, String> {
        let number = |size: Size| match size {
            Size::Const(n) => Ok(i64::from(n)),
            Size::Uniform(i) => {
                uniforms.get(i as usize).map(|&n| i64::from(n)).ok_or_else(|| format!("u{i} has no value"))
            }
            Size::Part { .. } => Err("a size that is divided".to_owned()),
        };
        let bytes = dtype.bits() as i64 / 8;
        let aligned = |elements: i64| elements * bytes % i64::from(CHUNK_BYTES) == 0;
        let (base, channels) = (number(view.base)?, number(window.channels)?);
        if base < 0 || !aligned(base) || channels < 1 || channels % i64::from(ROW) != 0 {
            return Err(format!("images that begin at element {base}, of {channels} channels"));
        }
        let (mut sizes, mut steps, mut axes, mut places) = (vec![channels as u64], Vec::new(), Vec::new(), 1);
        for axis in window.axes.iter().rev() {
            let (size, of_axis) = (number(axis.size)?, number(axis.places)?);
            let bound = BoundAxis::new(&axis.slide, size, of_axis);
            if !bound.is_mapped(&axis.slide, window.axes.len()) {
                return Err(format!("windows that no map has: {bound:?}"));
            }
            sizes.push(size.max(1) as u64);
            steps.push(number(axis.step)?);
            axes.push(bound);
            places *= of_axis.max(1);
        }
        let images = (number(view.rows)?.max(1) + places - 1) / places;
        sizes.push(images as u64);
        steps.push(number(view.row_stride)?);
        // Of a dimension that has one index the stride does not matter, but must be one.
        let (mut strides, mut any) = (Vec::new(), channels as u64 * bytes as u64);
        for (&size, step) in sizes[1..].iter().zip(steps) {
            if size > 1 && (step <= 0 || !aligned(step)) {
                return Err(format!("{size} indices that are {step} elements apart"));
            }
            let stride = if size > 1 { step as u64 * bytes as u64 } else { any };
            strides.push(stride);
            any = stride.saturating_mul(size);
        }
        let (buffer, box_sizes) = (view.buffer.index(), vec![self.cols, self.rows]);
        Ok(BoundMap { buffer, base, dtype, sizes, strides, box_sizes, window: axes })
    }
}
