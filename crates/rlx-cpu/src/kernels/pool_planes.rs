//! Pooling where the image or the result is planes (NCHW).
//!
//! From planes to planes vectors run along the lines of the result, and nothing is transposed. First the lines of the image under each line of the
//! result are joined to one, in scratch and as f32, with a border of what changes no result; then the columns of its windows are. A task joins the lines of
//! several results before it turns to the columns: a vector of columns is read from two that were written, for which a processor waits until both are in
//! its cache. Where only one end is planes, a line of the result is turned while it is in scratch.
//!
//! Sums are joined in the order of [`pool`](super::pool), so the bits are those of channels-last images.

use super::conv::planes::turn;
use super::mismatch;
use super::pool::Numbers;
use super::pool_lines::{Windows, taps};
use super::{RunCx, Shared};
use crate::gemm::Packed;
use crate::isa::Kernel;
use crate::layout::Bound;
use crate::simd::{LANES, Simd};
use rlx_ir::Result;

/// Bytes of the lines that a task joins: more than a processor has stores under way, and less than its first-level cache.
const BLOCK: usize = 8 << 10;

/// Vectors that are joined together, so that how is asked once for all of them.
const TOGETHER: usize = 4;

/// How many bytes ahead of what is joined the image is prefetched: lines that are read in turns are not a sequence that processors foresee.
const AHEAD: usize = 4 << 10;

/// The most bytes of a line.
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
    /// Elements of a line of scratch, and where it has the first column of the image.
    line: usize,
    start: usize,
    /// Elements of scratch before those lines: how many columns of each window count.
    before: usize,
}

impl Block {
    /// Of at most `lines` lines; `None` where windows are too wide for it.
    pub(super) fn new(pool: &Windows, s: &Numbers, lines: usize) -> Option<Block> {
        let before = s.out[1].checked_next_multiple_of(LANES)?;
        let start = pool.before[1].checked_next_multiple_of(LANES)?;
        let reach = pool.kernel[1].checked_sub(1)?.checked_mul(pool.dilation[1])?;
        let windows = before.checked_mul(pool.stride[1])?.checked_add(reach)?;
        let line = start.checked_add(windows.max(s.size[1]))?.checked_next_multiple_of(LANES)?;
        let bytes = line.checked_mul(size_of::<f32>()).filter(|&bytes| bytes <= MOST)?;
        let lines = (BLOCK / bytes.max(1)).min(lines).min(s.out[0]).max(1);
        Some(Block { lines, line, start, before })
    }

    /// Elements of scratch.
    fn elements(&self) -> usize {
        self.before + self.lines * self.line
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
    pub(super) fn new(pool: &Windows, s: &Numbers, ends: [Option<Steps>; 2]) -> Option<Way> {
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
pub(super) unsafe fn run<T: Packed>(cx: &mut RunCx<'_, '_>, pool: &Windows, s: &Numbers, way: &Way) {
    let (x, y, isa) = (cx.shared::<T>(s.x), cx.shared::<T>(s.y), cx.isa);
    let ([lines, width], c) = (s.out, s.channels);
    match *way {
        Way::Along(block, [from, to]) => {
            let of = Of { pool, s, block, x, from };
            let blocks = lines.div_ceil(block.lines);
            cx.parallel(s.worth, s.batch * c * blocks, &|range, scratch| {
                let scratch = scratch.cast::<f32>();
                // SAFETY: the caller's promise; blocks of lines are disjoint.
                unsafe { of.prepare(scratch) };
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
                    of.prepare(scratch);
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
    pool: &'a Windows,
    s: &'a Numbers,
    block: Block,
    x: Shared<T>,
    from: Steps,
}

impl<T: Packed> Of<'_, T> {
    /// What changes no result.
    fn border(&self) -> f32 {
        if self.pool.largest { f32::NEG_INFINITY } else { 0.0 }
    }

    /// Writes the borders of all lines, and for means how many columns count of each window.
    ///
    /// # Safety
    /// The scratch must be the thread's.
    unsafe fn prepare(&self, scratch: *mut f32) {
        let Block { lines, line, start, before } = self.block;
        let end = start + self.s.size[1];
        for i in 0..lines {
            // SAFETY: the caller's promise: scratch has so many lines, and the image's columns are within each.
            unsafe {
                let line_at = scratch.add(before + i * line);
                (0..start).chain(end..line).for_each(|x| line_at.add(x).write(self.border()));
            }
        }
        for x in 0..if self.pool.largest { 0 } else { before } {
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

impl<T: Packed> Kernel for Lines<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let places = std::array::from_fn(|i| (i * self.of.pool.stride[1]) as u32);
        // SAFETY: `run`'s promises: the plane is the image's, the scratch is prepared, and the lines are those of the result.
        unsafe {
            for i in 0..self.count {
                self.join_lines(simd, i);
            }
            for i in 0..self.count {
                self.join_columns(simd, i, &places);
            }
        }
    }
}

impl<T: Packed> Lines<'_, T> {
    #[inline(always)]
    fn join<S: Simd>(&self, simd: S, x: S::F, acc: S::F) -> S::F {
        if self.of.pool.largest { simd.max(x, acc) } else { simd.add(acc, x) }
    }

    /// Where scratch has the `i`-th line.
    #[inline(always)]
    fn line(&self, i: usize) -> *mut f32 {
        self.scratch.wrapping_add(self.of.block.before + i * self.of.block.line)
    }

    /// Joins the lines of the image under the `i`-th line of the result.
    ///
    /// # Safety
    /// As [`run`], for these lines and with the thread's scratch.
    #[inline(always)]
    unsafe fn join_lines<S: Simd>(&self, simd: S, i: usize) {
        let Of { pool, s, block, x, from } = self.of;
        let plane = x.get().wrapping_add(self.image * from[0] + self.channel * from[1]).cast_const();
        let (row, width, to) = (self.first + i, s.size[1], self.line(i).wrapping_add(block.start));
        let rows = taps(pool, 0, row, s.size[0]).0;
        let first = (row * pool.stride[0] + rows.start * pool.dilation[0]).wrapping_sub(pool.before[0]);
        let from = plane.wrapping_add(first.wrapping_mul(width));
        let mut x = 0;
        // SAFETY: the caller's promise; the taps are lines of the image, whose columns are within a line of scratch.
        unsafe {
            while width - x >= TOGETHER * LANES {
                self.lines::<S, TOGETHER>(
                    simd,
                    from.wrapping_add(x),
                    rows.len(),
                    (to.wrapping_add(x), LANES),
                );
                x += TOGETHER * LANES;
            }
            while x < width {
                let n = LANES.min(width - x);
                self.lines::<S, 1>(simd, from.wrapping_add(x), rows.len(), (to.wrapping_add(x), n));
                x += LANES;
            }
        }
    }

    /// Joins `V` vectors of `n` columns of so many lines.
    ///
    /// # Safety
    /// They must be readable and writable.
    #[inline(always)]
    unsafe fn lines<S: Simd, const V: usize>(
        &self,
        simd: S,
        from: *const T,
        lines: usize,
        (to, n): (*mut f32, usize),
    ) {
        let Of { pool, s, .. } = self.of;
        let mut acc = [simd.splat(self.of.border()); V];
        for k in 0..lines {
            let from = from.wrapping_add(k * pool.dilation[0] * s.size[1]);
            // What the lines of the result before this one have read is there.
            let new = k + pool.stride[0] >= lines;
            for (v, acc) in acc.iter_mut().enumerate() {
                let from = from.wrapping_add(v * LANES);
                if new {
                    simd.prefetch_l1(from.wrapping_byte_add(AHEAD).cast());
                }
                // SAFETY: the caller's promise.
                *acc = self.join(simd, unsafe { T::load(simd, from, n) }, *acc);
            }
        }
        for (v, acc) in acc.into_iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { simd.store_upto(to.wrapping_add(v * LANES), n, acc) };
        }
    }

    /// Joins the columns of the windows of the `i`-th line.
    ///
    /// # Safety
    /// As [`Lines::join_lines`], which must have joined its lines; `places` are the first columns of sixteen windows.
    #[inline(always)]
    unsafe fn join_columns<S: Simd>(&self, simd: S, i: usize, places: &[u32; LANES]) {
        let Of { pool, s, block, .. } = self.of;
        let line = self.line(i).wrapping_add(block.start - pool.before[1]).cast_const();
        let to = self.to.wrapping_add(i * s.out[1]);
        let (rows, padded) = taps(pool, 0, self.first + i, s.size[0]);
        let counted = if pool.count_pad { padded } else { rows.len() } as f32;
        let mut x = 0;
        // SAFETY: the caller's promise; what whole vectors of windows read of a line is in the scratch.
        unsafe {
            while s.out[1] - x >= TOGETHER * LANES {
                self.results::<S, TOGETHER>(simd, (line, x), counted, places, (to, LANES));
                x += TOGETHER * LANES;
            }
            while x < s.out[1] {
                self.results::<S, 1>(simd, (line, x), counted, places, (to, LANES.min(s.out[1] - x)));
                x += LANES;
            }
        }
    }

    /// `V` vectors of `n` results from window `x` of a line on, where `counted` lines count.
    ///
    /// # Safety
    /// As [`Lines::join_columns`].
    #[inline(always)]
    unsafe fn results<S: Simd, const V: usize>(
        &self,
        simd: S,
        (line, x): (*const f32, usize),
        counted: f32,
        places: &[u32; LANES],
        (to, n): (*mut T, usize),
    ) {
        let pool = self.of.pool;
        let mut acc = [simd.splat(self.of.border()); V];
        // SAFETY: the caller's promise.
        unsafe {
            self.windows(simd, line.wrapping_add(x * pool.stride[1]), places, &mut acc);
            for (v, mut acc) in acc.into_iter().enumerate() {
                let x = x + v * LANES;
                if !pool.largest {
                    let columns = simd.load(self.scratch.wrapping_add(x).cast_const());
                    let count = simd.mul(simd.splat(counted), columns);
                    acc = simd.div(acc, simd.max_raw(count, simd.splat(1.0)));
                }
                T::store(simd, to.wrapping_add(x), n, acc);
            }
        }
    }

    /// Joins the columns of windows, sixteen to a vector, the first of which begins at `line`.
    ///
    /// # Safety
    /// The line must be readable for them, and sixteen elements beyond the first column of the last one.
    #[inline(always)]
    unsafe fn windows<S: Simd, const V: usize>(
        &self,
        simd: S,
        line: *const f32,
        places: &[u32; LANES],
        acc: &mut [S::F; V],
    ) {
        let pool = self.of.pool;
        let (taps, step, dilation) = (pool.kernel[1], pool.stride[1], pool.dilation[1]);
        // SAFETY: the caller's promise.
        unsafe {
            if step == 2 && dilation == 1 {
                for k in (0..taps).step_by(2) {
                    for (v, acc) in acc.iter_mut().enumerate() {
                        let at = line.wrapping_add(k + v * 2 * LANES);
                        let (even, odd) = simd.unzip(simd.load(at), simd.load(at.wrapping_add(LANES)));
                        *acc = self.join(simd, even, *acc);
                        if k + 1 < taps {
                            *acc = self.join(simd, odd, *acc);
                        }
                    }
                }
                return;
            }
            for k in 0..taps {
                for (v, acc) in acc.iter_mut().enumerate() {
                    let at = line.wrapping_add(k * dilation + v * step * LANES);
                    let x = if step == 1 { simd.load(at) } else { simd.pick(at, places.as_ptr()) };
                    *acc = self.join(simd, x, *acc);
                }
            }
        }
    }
}
