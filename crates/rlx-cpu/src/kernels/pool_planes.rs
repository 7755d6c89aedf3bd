//! Pooling where the image or the result is planes (NCHW).
//!
//! From planes to planes vectors run along the lines of the result, and nothing is transposed. The lines of a plane that a task reads are
//! copied to scratch as f32, with what changes no result at both ends; with a step of two, even columns first and odd ones behind
//! them, so what sixteen neighbouring windows read is sixteen neighbours whatever the step is. Where only one end is planes, a line of the
//! result is turned while it is in scratch.
//!
//! The largest of a window is that of its lines' largest in whichever order (of zeros of both signs, either one), so they are joined first, and one line is copied for each of the
//! result. Sums are joined in the order of [`pool`](super::pool), so the bits are those of channels-last images.

use super::conv::planes::turn;
use super::mismatch;
use super::pool::{Lanes, Numbers, Pool, taps};
use super::{RunCx, Shared};
use crate::isa::Kernel;
use crate::layout::Bound;
use crate::simd::{LANES, Simd};
use crate::window::deal_columns;
use rlx_ir::Result;

/// Bytes of the lines that a task copies: they stay in the first-level cache.
const BLOCK: usize = 24 << 10;

/// The most bytes of the lines under one line of the result.
const MOST: usize = 1 << 20;

/// Elements from one image to the next, and from one plane to the next.
pub(super) type Steps = [usize; 2];

/// Where the planes of images `[n, …, channels]` are; `None` where channels are beside each other. An only channel is both: a plane if that
/// is `preferred`.
pub(super) fn planes_of(images: &Bound, preferred: bool) -> Result<Option<Steps>> {
    let (layout, rank) = (&images.layout, images.layout.rank());
    let channels = images.dims().last().copied().unwrap_or(0);
    if layout.is_dense() && !(preferred && channels == 1) {
        return Ok(None);
    }
    let none = || mismatch(format!("pooling over {:?}", images.dims()));
    let (pixels, step) = layout.range(1, rank - 1).flat().ok_or_else(none)?;
    let [image, plane] = [0, rank - 1].map(|i| usize::try_from(layout.strides()[i]));
    let plane = if channels == 1 { Ok(0) } else { plane };
    match (image, plane) {
        (Ok(image), Ok(plane)) if step == 1 || pixels <= 1 => Ok(Some([image, plane])),
        _ => Err(none()),
    }
}

/// What a task has of a plane.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    /// Lines of the result.
    lines: usize,
    /// The most lines that these read.
    reads: usize,
    /// Columns of a line of scratch that are a multiple of the step apart: those lie beside each other.
    columns: usize,
    /// Elements of a line of scratch.
    line: usize,
    /// Elements of scratch before those lines: how many columns of a window count, and a line as f32.
    before: usize,
}

impl Block {
    /// Of at most `lines` lines; `None` where windows are too large for it.
    pub(super) fn new(pool: &Pool, s: &Numbers, lines: usize) -> Option<Block> {
        let reach = |axis: usize| pool.kernel[axis].checked_sub(1)?.checked_mul(pool.dilation[axis]);
        let whole = s.out[1].checked_next_multiple_of(LANES)?;
        let columns = whole.checked_add(reach(1)? / pool.stride[1])?;
        let line = columns.checked_mul(pool.stride[1])?;
        let reads = reach(0)?.checked_add(1)?;
        let bytes = line.checked_mul(size_of::<f32>())?;
        if bytes.checked_mul(reads)? > MOST {
            return None;
        }
        let fitting = (BLOCK / bytes.max(1)).saturating_sub(reads) / pool.stride[0] + 1;
        let lines = fitting.min(lines).min(s.out[0]).max(1);
        let reads = (lines - 1) * pool.stride[0] + reads;
        let before = whole.checked_add(s.size[1].checked_next_multiple_of(LANES)?)?;
        Some(Block { lines, reads, columns, line, before })
    }

    /// Elements of scratch.
    fn elements(&self) -> usize {
        self.before + self.reads * self.line
    }
}

/// How the ends of a pooling are reached, one of which is planes at least.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way {
    /// From planes to planes.
    Along(Block, [Steps; 2]),
    /// From planes to channels beside each other, a line at a time.
    Behind(Block, Steps),
    /// From channels beside each other to planes, a line at a time.
    Before(Steps),
}

impl Way {
    /// The way between these ends; `None` where there is none, or windows are too large.
    pub(super) fn new(pool: &Pool, s: &Numbers, ends: [Option<Steps>; 2]) -> Option<Way> {
        match ends {
            [Some(x), Some(y)] => Some(Way::Along(Block::new(pool, s, usize::MAX)?, [x, y])),
            [Some(x), None] => Some(Way::Behind(Block::new(pool, s, 1)?, x)),
            [None, Some(y)] => Some(Way::Before(y)),
            [None, None] => None,
        }
    }

    /// Where the planes of the result are if each line of it is turned behind the kernel for channels beside each other.
    pub(super) fn behind_lines(&self) -> Option<Steps> {
        match self {
            Way::Before(y) => Some(*y),
            _ => None,
        }
    }

    /// Bytes of a thread's scratch.
    pub(super) fn scratch_bytes(&self, s: &Numbers, size: usize) -> usize {
        let turned = s.out[1] * s.channels * size;
        match self {
            Way::Along(block, _) => block.elements() * size_of::<f32>(),
            Way::Behind(block, _) => block.elements() * size_of::<f32>() + turned,
            Way::Before(_) => turned,
        }
    }
}

/// Computes the pooling.
///
/// # Safety
/// As [`StepKernel::run`](super::StepKernel::run); operands must be of `T` and where the way has them, and the scratch as large as it wants.
pub(super) unsafe fn run<T: Lanes>(cx: &mut RunCx<'_, '_>, pool: &Pool, s: &Numbers, way: &Way) {
    let (x, y, isa) = (cx.shared::<T>(s.x), cx.shared::<T>(s.y), cx.isa);
    let ([lines, width], c) = (s.out, s.channels);
    match *way {
        Way::Along(block, [from, to]) => {
            let of = Of { pool, s, block, x, from };
            let blocks = lines.div_ceil(block.lines);
            cx.parallel(s.worth, s.batch * c * blocks, &|range, scratch| {
                let scratch = scratch.cast::<f32>();
                // SAFETY: the caller's promise; blocks of lines are disjoint.
                unsafe { of.count_columns(scratch) };
                for task in range {
                    let (plane, first) = (task / blocks, task % blocks * block.lines);
                    let (image, channel) = (plane / c, plane % c);
                    let to = y.get().wrapping_add(image * to[0] + channel * to[1] + first * width);
                    let count = block.lines.min(lines - first);
                    isa.run(Lines { of: &of, image, channel, first, count, to, scratch });
                }
            });
        }
        Way::Behind(block, from) => {
            let of = Of { pool, s, block, x, from };
            cx.parallel(s.worth, s.batch * lines, &|range, scratch| {
                let scratch = scratch.cast::<f32>();
                let turned = scratch.wrapping_add(block.elements()).cast::<T>();
                // SAFETY: the caller's promise; lines are disjoint.
                unsafe {
                    of.count_columns(scratch);
                    for line in range {
                        let (image, first) = (line / lines, line % lines);
                        for channel in 0..c {
                            let to = turned.wrapping_add(channel * width);
                            isa.run(Lines { of: &of, image, channel, first, count: 1, to, scratch });
                        }
                        let to = y.get().wrapping_add(line * width * c);
                        turn(isa, (turned.cast_const(), width), (to, c), width, c);
                    }
                }
            });
        }
        // Computed line by line, as channels beside each other are.
        Way::Before(_) => {}
    }
}

/// What tasks have in common.
struct Of<'a, T> {
    pool: &'a Pool,
    s: &'a Numbers,
    block: Block,
    x: Shared<T>,
    from: Steps,
}

impl<T> Of<'_, T> {
    /// Writes how many columns count of each window of a line, for means.
    ///
    /// # Safety
    /// The scratch must be the thread's.
    unsafe fn count_columns(&self, scratch: *mut f32) {
        if self.pool.largest {
            return;
        }
        for x in 0..self.s.out[1].next_multiple_of(LANES) {
            let (inside, padded) = taps(self.pool, 1, x, self.s.size[1]);
            let count = if self.pool.count_pad { padded } else { inside.len() };
            // SAFETY: the caller's promise: a block has room for as many in front.
            unsafe { scratch.add(x).write(count as f32) };
        }
    }
}

/// Some lines of a plane of the result.
struct Lines<'a, T> {
    of: &'a Of<'a, T>,
    image: usize,
    channel: usize,
    first: usize,
    count: usize,
    to: *mut T,
    scratch: *mut f32,
}

impl<T: Lanes> Kernel for Lines<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        // SAFETY: `run`'s promises: the plane is the image's, the scratch has the block, and the lines are those of the result.
        unsafe {
            if self.of.pool.largest {
                self.largest(simd);
            } else {
                self.means(simd);
            }
        }
    }
}

impl<T: Lanes> Lines<'_, T> {
    /// Where the image's plane begins.
    #[inline(always)]
    fn plane(&self) -> *const T {
        let Of { x, from, .. } = self.of;
        x.get().wrapping_add(self.image * from[0] + self.channel * from[1]).cast_const()
    }

    /// The largest of each window.
    ///
    /// # Safety
    /// As [`run`], for these lines and with the thread's scratch.
    #[inline(always)]
    unsafe fn largest<S: Simd>(&self, simd: S) {
        let Of { pool, s, block, .. } = self.of;
        let (plane, width) = (self.plane(), s.size[1]);
        let (joined, line) = (self.joined(), self.scratch.wrapping_add(block.before));
        for i in 0..self.count {
            let row = self.first + i;
            let rows = taps(pool, 0, row, s.size[0]).0;
            let (first, step) = (
                (row * pool.stride[0] + rows.start * pool.dilation[0]).wrapping_sub(pool.before[0]),
                pool.dilation[0],
            );
            for x in (0..width).step_by(LANES) {
                let n = LANES.min(width - x);
                let mut acc = simd.splat(T::LOWEST);
                // SAFETY: the caller's promise; the taps are lines of the image, and scratch has room for one in front.
                unsafe {
                    for k in 0..rows.len() {
                        let from = plane.wrapping_add((first.wrapping_add(k * step)) * width + x);
                        acc = simd.max(T::load(simd, from, n), acc);
                    }
                    simd.store(joined.wrapping_add(x), acc);
                }
            }
            // SAFETY: the caller's promise; what was joined is a line.
            unsafe {
                self.deal(simd, joined.cast_const(), line);
                for x in (0..s.out[1]).step_by(LANES) {
                    let acc = self.join(simd, line.wrapping_add(x).cast_const(), simd.splat(T::LOWEST));
                    T::store(simd, self.to.wrapping_add(i * s.out[1] + x), LANES.min(s.out[1] - x), acc);
                }
            }
        }
    }

    /// The mean of each window.
    ///
    /// # Safety
    /// As [`Lines::largest`]; how many columns count must be in the scratch.
    #[inline(always)]
    unsafe fn means<S: Simd>(&self, simd: S) {
        let Of { pool, s, block, .. } = self.of;
        // SAFETY: the caller's promise; what whole vectors read of a line is in the scratch.
        unsafe {
            self.copy(simd);
            for i in 0..self.count {
                let (rows, padded) = taps(pool, 0, self.first + i, s.size[0]);
                let counted = simd.splat(if pool.count_pad { padded } else { rows.len() } as f32);
                let lines = self.scratch.wrapping_add(block.before + i * pool.stride[0] * block.line);
                for x in (0..s.out[1]).step_by(LANES) {
                    let mut acc = simd.zero();
                    for ky in rows.clone() {
                        let line = lines.wrapping_add(ky * pool.dilation[0] * block.line + x);
                        acc = self.join(simd, line.cast_const(), acc);
                    }
                    let columns = simd.load(self.scratch.wrapping_add(x).cast_const());
                    acc = simd.div(acc, simd.max(simd.mul(counted, columns), simd.splat(1.0)));
                    T::store(simd, self.to.wrapping_add(i * s.out[1] + x), LANES.min(s.out[1] - x), acc);
                }
            }
        }
    }

    /// Where the scratch has a line as f32 in front of those that are copied.
    #[inline(always)]
    fn joined(&self) -> *mut f32 {
        self.scratch.wrapping_add(self.of.s.out[1].next_multiple_of(LANES))
    }

    /// Joins a line of the windows of sixteen neighbours to what there is of them.
    ///
    /// # Safety
    /// The line must have been copied.
    #[inline(always)]
    unsafe fn join<S: Simd>(&self, simd: S, line: *const f32, mut acc: S::F) -> S::F {
        let Of { pool, block, .. } = self.of;
        let (step, dilation) = (pool.stride[1], pool.dilation[1]);
        for k in 0..pool.kernel[1] {
            let column = k * dilation;
            // Divisors that are known are no divisions.
            let at = match step {
                1 => column,
                2 => column % 2 * block.columns + column / 2,
                _ => column % step * block.columns + column / step,
            };
            // SAFETY: the caller's promise: all that whole vectors read is there.
            let v = unsafe { simd.load(line.wrapping_add(at)) };
            acc = if pool.largest { simd.max(v, acc) } else { simd.add(acc, v) };
        }
        acc
    }

    /// Copies what is read, with a border.
    ///
    /// # Safety
    /// The plane must be readable, and the scratch have a block.
    #[inline(always)]
    unsafe fn copy<S: Simd>(&self, simd: S) {
        let Of { pool, s, block, .. } = self.of;
        let plane = self.plane();
        let reach = pool.kernel[0].saturating_sub(1) * pool.dilation[0] + 1;
        for read in 0..(self.count - 1) * pool.stride[0] + reach {
            // Lines above the image become huge; no window has them.
            let y = (self.first * pool.stride[0] + read).wrapping_sub(pool.before[0]);
            if y < s.size[0] {
                let to = self.scratch.wrapping_add(block.before + read * block.line);
                // SAFETY: the caller's promise.
                unsafe { self.copy_line(simd, plane.wrapping_add(y * s.size[1]), to) };
            }
        }
    }

    /// # Safety
    /// As [`Lines::copy`], for one line.
    #[inline(always)]
    unsafe fn copy_line<S: Simd>(&self, simd: S, from: *const T, to: *mut f32) {
        let width = self.of.s.size[1];
        // An element of four bytes is an f32, and read where it is.
        let mut wide = from.cast::<f32>();
        if const { size_of::<T>() != size_of::<f32>() } {
            let line = self.joined();
            for i in (0..width).step_by(LANES) {
                let n = LANES.min(width - i);
                // SAFETY: the caller's promise; a block has room for the line in front.
                unsafe { simd.store(line.wrapping_add(i), T::load(simd, from.wrapping_add(i), n)) };
            }
            wide = line.cast_const();
        }
        // SAFETY: the caller's promise.
        unsafe { self.deal(simd, wide, to) };
    }

    /// Deals out the columns of a line of the image to where windows read them, with the border of the line.
    ///
    /// # Safety
    /// The line must be readable, and a line of scratch.
    #[inline(always)]
    unsafe fn deal<S: Simd>(&self, simd: S, line: *const f32, to: *mut f32) {
        let Of { pool, s, block, .. } = self.of;
        let border = if pool.largest { T::LOWEST } else { 0.0 };
        for rest in 0..pool.stride[1] {
            // SAFETY: the caller's promise: a line of scratch, and columns of the image.
            unsafe {
                let to = std::slice::from_raw_parts_mut(to.add(rest * block.columns), block.columns);
                deal_columns(simd, line, s.size[1], (pool.stride[1], pool.before[1]), rest, border, to);
            }
        }
    }
}
