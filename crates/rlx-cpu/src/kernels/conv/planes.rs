//! Images whose channels are planes (NCHW), where nothing else wants them otherwise: what a net is given, and what it gives.
//!
//! Rows of a matmul are pixels with their channels beside each other. Some pixels at a time are transposed from the planes into a thread's scratch,
//! or from there into the planes, while they are in the second-level cache: the image is read once, the result written once, and neither is ever in
//! memory in the other order. Small images, and what does not run as one matmul of pixels (an image under larger windows, Winograd's algorithm, kernels
//! for few channels), are transposed as a whole.

use std::ops::Range;

use super::{Conv, Route, Shape};
use crate::gemm::{Gemm, Packed, Rows, Strided};
use crate::isa::Isa;
use crate::kernels::elementwise::sized;
use crate::kernels::transpose::{Band, ONE_GROUP, transpose};
use crate::kernels::{RunCx, Shared};
use crate::layout::{At, Bound};

/// Bytes of the rows that are transposed at a time, before and behind a matmul together.
const BLOCK: usize = 256 << 10;

/// Rows of a block are a multiple of this, if there are as many: whole tiles of every height, and whole squares of a transposition.
const STEP: usize = 144;

/// The fewest rows of a block.
const LEAST: usize = 16;

/// Fewer blocks than this are a small image: it stays in the cache as a whole, and would have too few blocks for threads.
const FEWEST: usize = 8;

/// Where the planes of images are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Planes {
    pub(crate) at: At,
    pub(super) images: usize,
    /// Pixels of an image.
    pub(super) pixels: usize,
    pub(super) channels: usize,
    /// Elements from one image to the next, and from one plane to the next.
    pub(super) image: usize,
    pub(super) plane: usize,
}

impl Planes {
    /// Those of images `[n, …, channels]`; `None` where channels are beside each other.
    pub(crate) fn of(images: &Bound) -> Option<Planes> {
        let (layout, rank) = (&images.layout, images.layout.rank());
        let (&channels, &plane) = (layout.dims().last()?, layout.strides().last()?);
        if rank < 3 || plane == 1 || channels == 1 {
            return None;
        }
        let (pixels, step) = layout.range(1, rank - 1).flat()?;
        let image = usize::try_from(layout.strides()[0]).ok()?;
        let plane = usize::try_from(plane).ok()?;
        let planes = Planes { at: images.at, images: layout.dims()[0], pixels, channels, image, plane };
        (step == 1 || pixels == 1).then_some(planes)
    }

    /// Elements from one image to the next, and from one plane to the next.
    pub(crate) fn steps(&self) -> [usize; 2] {
        [self.image, self.plane]
    }

    /// Elements of all images.
    pub(crate) fn elements(&self) -> usize {
        self.images * self.pixels * self.channels
    }

    /// Writes these pixels of an image, of which `from` has a row of channels for each.
    ///
    /// # Safety
    /// Rows must be readable, and the planes at `to` writable there.
    pub(crate) unsafe fn put<T: Packed>(
        &self,
        isa: Isa,
        to: *mut T,
        image: usize,
        pixels: Range<usize>,
        from: *const T,
    ) {
        let to = to.wrapping_add(image * self.image + pixels.start);
        let (height, width) = (self.channels, pixels.len());
        // SAFETY: the caller's promise.
        unsafe { turn(isa, (from, self.channels), (to, self.plane), height, width) }
    }

    /// Writes a row of channels at `to` for each of these pixels.
    ///
    /// # Safety
    /// The planes at `from` must be readable there, and rows writable.
    pub(crate) unsafe fn take<T: Packed>(
        &self,
        isa: Isa,
        from: *const T,
        image: usize,
        pixels: Range<usize>,
        to: *mut T,
    ) {
        let from = from.wrapping_add(image * self.image + pixels.start);
        let (height, width) = (pixels.len(), self.channels);
        // SAFETY: the caller's promise.
        unsafe { turn(isa, (from, self.plane), (to, self.channels), height, width) }
    }

    /// Writes all images, of which `from` has a row of channels for each pixel.
    ///
    /// # Safety
    /// Rows must be readable and the planes writable.
    pub(crate) unsafe fn put_all<T: Packed>(&self, cx: &mut RunCx<'_, '_>, worth: bool, from: *const T) {
        let (isa, to, from) = (cx.isa, cx.shared::<T>(self.at), Shared::new(from.cast_mut()));
        Blocks::of(self, self.channels).each(cx, worth, &|_, image, block| {
            let from = from.get().wrapping_add((image * self.pixels + block.start) * self.channels);
            // SAFETY: the caller's promise; blocks are disjoint.
            unsafe { self.put(isa, to.get(), image, block, from) }
        });
    }

    /// Writes a row of channels at `to` for each pixel of all images.
    ///
    /// # Safety
    /// The planes must be readable and rows writable.
    pub(super) unsafe fn take_all<T: Packed>(&self, cx: &mut RunCx<'_, '_>, worth: bool, to: *mut T) {
        let (isa, to, from) = (cx.isa, Shared::new(to), cx.shared::<T>(self.at));
        Blocks::of(self, self.channels).each(cx, worth, &|_, image, block| {
            let to = to.get().wrapping_add((image * self.pixels + block.start) * self.channels);
            // SAFETY: the caller's promise; blocks are disjoint.
            unsafe { self.take(isa, from.get(), image, block, to) }
        });
    }
}

/// Transposes: the result has `height` rows of `width` elements; strides are those of its columns in the source, and of its rows.
///
/// # Safety
/// As [`transpose`].
pub(crate) unsafe fn turn<T: Copy>(
    isa: Isa,
    (from, column): (*const T, usize),
    (to, row): (*mut T, usize),
    height: usize,
    width: usize,
) {
    let (from_column, group, to_row) = (column as isize, ONE_GROUP, row as isize);
    // SAFETY: the caller's promise; an element has the bytes of what moves it.
    unsafe {
        sized!(size_of::<T>(), U => {
            let (from, to) = (from.cast::<U>(), to.cast::<U>());
            transpose(isa, Band { from, from_column, group, to, to_row, height, width });
        });
    }
}

/// How the pixels of images are divided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocks {
    pub(super) images: usize,
    pub(super) pixels: usize,
    /// Pixels of a block.
    pub(super) rows: usize,
}

impl Blocks {
    /// Of these images, where so many elements are held for each pixel.
    fn of(planes: &Planes, elements: usize) -> Blocks {
        let fitting = BLOCK / (elements * size_of::<f32>()).max(1);
        let rows = if fitting < STEP { fitting / LEAST * LEAST } else { fitting / STEP * STEP };
        Blocks { images: planes.images, pixels: planes.pixels, rows: rows.max(LEAST) }
    }

    /// Whole lines of `width` pixels of the result, where so many elements are held for each of them: at least [`FEWEST`] blocks, if there are
    /// as many lines.
    pub(crate) fn of_lines(images: usize, [lines, width]: [usize; 2], elements: usize) -> Blocks {
        let fitting = BLOCK / (elements * size_of::<f32>()).max(1);
        let share = (images * lines).div_ceil(FEWEST).min(lines);
        Blocks { images, pixels: lines * width, rows: fitting.clamp(1, share.max(1)) * width }
    }

    /// Lines of so many pixels in a block.
    pub(crate) fn lines(&self, width: usize) -> usize {
        self.rows / width.max(1)
    }

    /// How many blocks an image has.
    pub(super) fn of_image(&self) -> usize {
        self.pixels.div_ceil(self.rows.max(1))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.images * self.of_image()
    }

    /// The image of a block, and the pixels.
    pub(crate) fn place(&self, block: usize) -> (usize, Range<usize>) {
        let (image, first) = (block / self.of_image(), block % self.of_image() * self.rows);
        (image, first..self.pixels.min(first + self.rows))
    }

    /// Runs `f` for all blocks: a thread's scratch, the image, and the pixels.
    pub(super) fn each(
        &self,
        cx: &mut RunCx<'_, '_>,
        worth: bool,
        f: &(impl Fn(*mut u8, usize, Range<usize>) + Sync),
    ) {
        cx.parallel(worth, self.len(), &|range, scratch| {
            for (image, pixels) in range.map(|block| self.place(block)) {
                f(scratch, image, pixels);
            }
        });
    }
}

/// What of a matmul is planes: the image, the result, or both.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) x: Option<Planes>,
    pub(super) y: Option<Planes>,
}

impl Ends {
    pub(super) const NONE: Ends = Ends { x: None, y: None };

    pub(super) fn is_none(&self) -> bool {
        self.x.is_none() && self.y.is_none()
    }

    /// The blocks, and the elements of a thread's scratch for rows before and behind the matmul; `None` if nothing is planes.
    fn blocks(&self) -> Option<(Blocks, [usize; 2])> {
        let channels = [self.x, self.y].map(|planes| planes.map_or(0, |planes| planes.channels));
        let blocks = Blocks::of(&self.x.or(self.y)?, channels[0] + channels[1]);
        Some((blocks, channels.map(|channels| (channels * blocks.rows).next_multiple_of(64))))
    }

    /// Whether images are large enough to be computed block by block.
    pub(super) fn are_large(&self) -> bool {
        self.blocks().is_some_and(|(blocks, _)| blocks.len() >= FEWEST)
    }

    /// Bytes of a thread's scratch.
    pub(super) fn scratch_bytes<T>(&self) -> usize {
        self.blocks().map_or(0, |(_, [before, behind])| (before + behind) * size_of::<T>())
    }
}

impl Shape {
    /// Sees what of the planes is transposed as a whole.
    pub(super) fn take_whole(&mut self, groups: usize) {
        if matches!(self.route, Route::Im2col | Route::Direct) {
            return;
        }
        if !matches!(self.route, Route::Matmul(_)) {
            self.whole.x = self.ends.x.take();
        }
        if self.winograd.is_some() {
            self.whole.y = self.ends.y.take();
        }
        if groups > 1 || !self.ends.are_large() {
            let Ends { x, y } = std::mem::replace(&mut self.ends, Ends::NONE);
            self.whole = Ends { x: self.whole.x.or(x), y: self.whole.y.or(y) };
        }
    }
}

impl Conv {
    /// Computes a matmul from planes, into planes, or both; rows of the matmul are those of the image where that is no planes.
    ///
    /// # Safety
    /// As [`Gemm::run`], but for what is planes: that must be there, and threads have the scratch that was asked for.
    pub(super) unsafe fn by_blocks<R: Rows<Element: Packed>>(
        &self,
        cx: &mut RunCx<'_, '_>,
        s: &Shape,
        gemm: &Gemm<R>,
    ) {
        let Some((blocks, [before, _])) = s.ends.blocks() else { return };
        let place =
            |planes: Option<Planes>| planes.map(|planes| (planes, cx.shared::<R::Element>(planes.at)));
        let (isa, x, y) = (cx.isa, place(s.ends.x), place(s.ends.y));
        blocks.each(cx, s.worth, &|scratch, image, block| {
            let first = image * blocks.pixels + block.start;
            let rows = scratch.cast::<R::Element>();
            let results = rows.wrapping_add(before);
            // SAFETY: the caller's promise; blocks are disjoint, and the scratch is the thread's own.
            unsafe {
                let mut part = gemm.block(first..first + block.len(), gemm.rows.skip(first).any());
                if let Some((planes, from)) = &x {
                    planes.take(isa, from.get(), image, block.clone(), rows);
                    part.rows =
                        Strided { ptr: rows.cast_const(), row_stride: planes.channels as isize }.any();
                }
                if let Some((planes, _)) = &y {
                    (part.c, part.c_stride) = (results, planes.channels);
                }
                part.run(isa, 0..part.tasks(isa));
                if let Some((planes, to)) = &y {
                    planes.put(isa, to.get(), image, block, results);
                }
            }
        });
    }
}
