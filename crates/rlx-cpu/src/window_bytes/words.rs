//! Depthwise convolution of bytes by the instruction that multiplies four bytes at once, for [`window_bytes`](super).
//!
//! A lane is a channel, and the four bytes in its word are those of four lines of the image in one column, multiplied by
//! four weights of that column of the kernel. So the words of a column serve every position whose window has it: those that a
//! stretch of a line needs are made once ([`Simd::load_words`]), into the first-level cache. Lines and columns outside the image are of
//! the zero point, whose products are taken from every sum at its start: no window is special.
//!
//! Of up to three lines of the kernel, which moves by one, a word has one line more: so it serves a second line of the result, whose weights are those
//! of the first a byte further up.
//!
//! Whole blocks of 64 channels are computed together ([`quads`]), others sixteen at a time.
//!
//! Sums are exact, so they are those of the other way. Weights have to be signed bytes around 0; what is signed in the image is moved
//! up by 128.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::{BytePass, Finish, quads};
use crate::gemm::ZeroPoints;
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};
use crate::window::Windows;

/// Lines of the image in a word.
pub(super) const GROUP: usize = 4;

/// Words of columns that are made at once, for all lines of the kernel: 16 KB.
pub(super) const COLUMNS: usize = 256;

/// Lines of the result for which the numbers of sixteen channels are loaded once.
const LINES: usize = 8;

/// Output positions computed together, sharing each load of a weight.
pub(super) const WIDTH: usize = 4;

/// Whether the words of a line of the result serve the next one, too.
fn serve_two(w: &Windows) -> bool {
    w.kernel[0] < GROUP && w.stride[0] == 1 && w.dilation[0] == 1
}

/// Words for each channel and column of the kernel.
pub(super) fn groups(w: &Windows) -> usize {
    w.kernel[0].div_ceil(GROUP)
}

/// Columns of the image from the first of a window to its last.
pub(super) fn reach(w: &Windows) -> usize {
    (w.kernel[1] - 1) * w.dilation[1] + 1
}

/// Output positions of a line whose columns are made at once; 0 if one is too wide.
fn stretch(w: &Windows) -> usize {
    match (COLUMNS / groups(w)).checked_sub(reach(w)) {
        Some(more) => more / w.stride[1] + 1,
        None => 0,
    }
}

/// Whether windows are computed this way, if the weights allow it.
pub(super) fn fits(w: &Windows) -> bool {
    w.kernel.iter().all(|&n| n > 0) && stretch(w) > 0
}

/// Weights as words, `[kernel_w, groups, channels]`, then what sums begin with, `[channels]`; whether the weights are around 0.
pub(super) struct Prepare<'a> {
    pub(super) weights: *const u8,
    pub(super) zeros: ZeroPoints,
    pub(super) windows: &'a Windows,
    /// The zero point of the image, as a number from 0 to 255.
    pub(super) zero: i32,
    pub(super) out: *mut f32,
}

impl Kernel for Prepare<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> bool {
        let (w, c) = (self.windows, self.windows.channels);
        let words = w.kernel[1] * groups(w);
        // The bits of a byte of each line in a word; those that are unsigned are moved down by 128.
        let flip = s.splat_i(if self.zeros.signed { 0 } else { 0x80 });
        for ch in (0..c).step_by(LANES) {
            let lanes = (c - ch).min(LANES);
            // SAFETY: `prepare` was promised the memory; ch + lanes ≤ channels.
            unsafe {
                let zero = self.zeros.load(s, ch, lanes);
                if s.mask_bits(s.eq_i(zero, s.splat_i(0))) != u16::MAX {
                    return false;
                }
                let mut sum = s.splat_i(0);
                for at in 0..words {
                    let (column, group) = (at / groups(w), at % groups(w));
                    let mut word = s.splat_i(0);
                    // From the last line on: each makes room for the one before it.
                    for line in (group * GROUP..(group + 1) * GROUP).rev() {
                        word = s.shl_i::<8>(word);
                        if line < w.kernel[0] {
                            let tap = line * w.kernel[1] + column;
                            let byte = s.load_bytes::<false>(self.weights.wrapping_add(tap * c + ch), lanes);
                            word = s.or_i(word, s.xor_i(byte, flip));
                        }
                    }
                    sum = s.dot_bytes(sum, s.splat_i(0x0101_0101), word);
                    s.store_upto(self.out.wrapping_add(at * c + ch), lanes, s.from_bits(word));
                }
                let start = s.from_bits(s.mul_i(sum, s.splat_i(-self.zero)));
                s.store_upto(self.out.wrapping_add(words * c + ch), lanes, start);
            }
        }
        true
    }
}

/// Lines of the result.
pub(super) struct Lines<'a> {
    pub(super) pass: &'a BytePass,
    pub(super) tasks: Range<usize>,
}

impl Kernel for Lines<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (pass, w) = (self.pass, &self.pass.windows);
        let (c, groups, in_blocks) = (w.channels, groups(w), quads::fits(w));
        let mut words = Words(MaybeUninit::uninit());
        let work = Work {
            pass,
            groups,
            columns: COLUMNS / groups,
            stretch: stretch(w),
            words: words.0.as_mut_ptr().cast::<f32>(),
        };
        let (mut first, end) = (self.tasks.start, self.tasks.end);
        while first < end {
            let count = LINES.min(end - first);
            let (rows, steps) = stripes(w, first..first + count);
            let (rows, mut ch) = (&rows[..steps], 0);
            while ch < c {
                let block = in_blocks && ch + quads::CHANNELS <= c;
                if block && s.enter(quads::Lines { work: &work, rows, ch }) {
                    ch += quads::CHANNELS;
                    continue;
                }
                let lanes = (c - ch).min(LANES);
                // SAFETY: `BytePass::run`'s promises; ch + lanes ≤ c.
                unsafe {
                    let finish = Finish::of(s, pass, ch, lanes, true);
                    for row in rows {
                        // Whole vectors without masks.
                        match (lanes, row.lines) {
                            (LANES, 1) => line::<S, 1>(s, &work, row, (ch, LANES), &finish),
                            (LANES, _) => line::<S, 2>(s, &work, row, (ch, LANES), &finish),
                            (_, 1) => line::<S, 1>(s, &work, row, (ch, lanes), &finish),
                            _ => line::<S, 2>(s, &work, row, (ch, lanes), &finish),
                        }
                    }
                }
                ch += lanes;
            }
            first += count;
        }
    }
}

/// The words of columns.
#[repr(align(64))]
struct Words(MaybeUninit<[f32; COLUMNS * LANES]>);

/// What all lines have in common.
pub(super) struct Work<'a> {
    pub(super) pass: &'a BytePass,
    groups: usize,
    /// Columns of each group there is room for.
    columns: usize,
    /// Positions whose columns are made at once.
    stretch: usize,
    pub(super) words: *mut f32,
}

/// A line of the result, or two that share their words.
pub(super) struct Row {
    pub(super) task: usize,
    pub(super) lines: usize,
    /// The lines of the kernel, as of both lines, that are within the image.
    inside: Range<usize>,
    /// The first line of the image, and how far the window's first is behind it: negative where that is above.
    image: usize,
    y: isize,
}

impl Row {
    fn of(w: &Windows, task: usize, lines: usize) -> Row {
        let (image, y) = (task / w.out[0], task % w.out[0]);
        let first = (y * w.stride[0]) as isize - w.pad[0] as isize;
        let both = Windows { kernel: [w.kernel[0] + (lines - 1) * w.stride[0], w.kernel[1]], ..*w };
        Row { task, lines, inside: both.inside(0, y), image: image * w.size[0], y: first }
    }
}

/// Up to [`LINES`] tasks, those whose words serve two together, and how many that makes.
fn stripes(w: &Windows, tasks: Range<usize>) -> ([Row; LINES], usize) {
    let mut next = tasks.start;
    let mut steps = 0;
    let rows = std::array::from_fn(|_| {
        let task = next.min(tasks.end - 1);
        let same_image = task % w.out[0] + 1 < w.out[0];
        let lines = if serve_two(w) && same_image && task + 1 < tasks.end { 2 } else { 1 };
        steps += usize::from(next < tasks.end);
        next += lines;
        Row::of(w, task, lines)
    });
    (rows, steps)
}

/// Computes some channels of L lines.
///
/// # Safety
/// As [`BytePass::run`].
#[inline(always)]
unsafe fn line<S: Simd, const L: usize>(
    s: S,
    work: &Work<'_>,
    row: &Row,
    (ch, lanes): (usize, usize),
    finish: &Finish<S>,
) {
    let w = &work.pass.windows;
    let mut x = 0;
    while x < w.out[1] {
        let count = work.stretch.min(w.out[1] - x);
        // SAFETY: the caller's promise.
        unsafe {
            for group in 0..work.groups {
                make_words(s, work, row, group, (ch, lanes), (x, count));
            }
            let out = (row.task * w.out[1] + x) * w.channels + ch;
            let mut at = 0;
            while at + WIDTH <= count {
                positions::<S, WIDTH, L>(s, work, at, (ch, lanes), finish, out + at * w.channels);
                at += WIDTH;
            }
            if at < count && count >= WIDTH {
                // The last ones with some of those before once more: so few alone would wait for each other.
                at = count - WIDTH;
                positions::<S, WIDTH, L>(s, work, at, (ch, lanes), finish, out + at * w.channels);
                at = count;
            }
            while at < count {
                positions::<S, 1, L>(s, work, at, (ch, lanes), finish, out + at * w.channels);
                at += 1;
            }
        }
        x += count;
    }
}

/// How many columns of `count` positions from `x` on are left of the image, inside of it, and right of it; where the inner ones of the lines of
/// the kernel from `first` on begin with their channels from `ch` on, and how far pixels are apart: lines that are not within the image are
/// `outside` all along.
#[inline(always)]
pub(super) fn line_columns(
    pass: &BytePass,
    row: &Row,
    (first, ch): (usize, usize),
    (x, count): (usize, usize),
    outside: *const u8,
) -> (usize, usize, usize, [*const u8; GROUP], [usize; GROUP]) {
    let w = &pass.windows;
    // Columns are counted from the left border's first: first those of the border, then the image's, then the other border's.
    let begin = x * w.stride[1];
    let end = begin + (count - 1) * w.stride[1] + reach(w);
    let left = begin.clamp(w.pad[1], w.pad[1] + w.size[1]).clamp(begin, end);
    let right = end.clamp(w.pad[1], w.pad[1] + w.size[1]).clamp(begin, end);
    let (mut from, mut steps) = ([outside; GROUP], [0; GROUP]);
    for i in 0..GROUP {
        let tap = first + i;
        if row.inside.contains(&tap) {
            let y = row.image.wrapping_add_signed(row.y + (tap * w.dilation[0]) as isize);
            let pixel = (y * w.size[1]).wrapping_add(left.wrapping_sub(w.pad[1]));
            from[i] = pass.input.wrapping_add(pixel.wrapping_mul(w.channels).wrapping_add(ch));
            steps[i] = w.channels;
        }
    }
    (left - begin, right - left, end - right, from, steps)
}

/// Makes the words of a group of lines for `count` positions from `x` on.
///
/// # Safety
/// As [`BytePass::run`].
#[inline(always)]
unsafe fn make_words<S: Simd>(
    s: S,
    work: &Work<'_>,
    row: &Row,
    group: usize,
    (ch, lanes): (usize, usize),
    (x, count): (usize, usize),
) {
    let pass = work.pass;
    let flips = s.splat_i(if pass.signed { 0x8080_8080u32 as i32 } else { 0 });
    let zeros = s.xor_i(s.splat_i(i32::from_ne_bytes([pass.zero as u8; GROUP])), flips);
    let outside = [pass.zero as u8; LANES];
    let (left, inside, right, mut from, steps) =
        line_columns(pass, row, (group * GROUP, ch), (x, count), outside.as_ptr());
    let mut to = work.words.wrapping_add(group * work.columns * LANES);
    // SAFETY: there is room for the columns of a stretch; those inside are within the image as the lines are, or what is read is
    // `outside`.
    unsafe {
        for _ in 0..left {
            s.store(to, s.from_bits(zeros));
            to = to.wrapping_add(LANES);
        }
        for _ in 0..inside {
            s.store(to, s.from_bits(s.xor_i(s.load_words(from, lanes), flips)));
            to = to.wrapping_add(LANES);
            for i in 0..GROUP {
                from[i] = from[i].wrapping_add(steps[i]);
            }
        }
        for _ in 0..right {
            s.store(to, s.from_bits(zeros));
            to = to.wrapping_add(LANES);
        }
    }
}

/// Computes N neighbouring positions of L lines, the `at`-th and later of those whose words are there; the first one's element of the result is `out`.
///
/// # Safety
/// As [`BytePass::run`].
#[inline(always)]
unsafe fn positions<S: Simd, const N: usize, const L: usize>(
    s: S,
    work: &Work<'_>,
    at: usize,
    (ch, lanes): (usize, usize),
    finish: &Finish<S>,
    out: usize,
) {
    let (pass, w) = (work.pass, &work.pass.windows);
    let (c, step) = (w.channels, w.stride[1] * LANES);
    // SAFETY: the caller's promise: weights, words and the result are there.
    unsafe {
        let mut weights = pass.weights.wrapping_add(ch);
        let start = weights.wrapping_add(w.kernel[1] * work.groups * c);
        let start = finish.with_offset(s, s.bits(s.load_upto(start, lanes)));
        let mut acc = [[start; N]; L];
        let mut column = work.words.wrapping_add(at * step);
        for _ in 0..w.kernel[1] {
            let mut word = column;
            for _ in 0..work.groups {
                let weight = s.bits(s.load_upto(weights, lanes));
                // Of the second line, a byte further up.
                let second = s.shl_i::<8>(weight);
                for i in 0..N {
                    let word = s.bits(s.load(word.wrapping_add(i * step)));
                    acc[0][i] = s.dot_bytes(acc[0][i], word, weight);
                    if const { L == 2 } {
                        acc[L - 1][i] = s.dot_bytes(acc[L - 1][i], word, second);
                    }
                }
                weights = weights.wrapping_add(c);
                word = word.wrapping_add(work.columns * LANES);
            }
            column = column.wrapping_add(w.dilation[1] * LANES);
        }
        store_line(s, pass, finish, acc[0], (out, c));
        if const { L == 2 } {
            store_line(s, pass, finish, acc[L - 1], (out + w.out[1] * c, c));
        }
    }
}

/// Writes neighbouring positions, the first of which is element `out` of the result, with `c` elements from one to the next.
///
/// # Safety
/// As [`BytePass::run`].
#[inline(always)]
unsafe fn store_line<S: Simd, const N: usize>(
    s: S,
    pass: &BytePass,
    finish: &Finish<S>,
    acc: [S::I; N],
    (out, c): (usize, usize),
) {
    // A copy: what is looked up by a number that is not known lies in memory, and the sums have to be in registers.
    let mut sums = [s.zero(); N];
    for i in 0..N {
        sums[i] = s.from_int(acc[i]);
    }
    // SAFETY: the caller's promise.
    unsafe {
        if N.is_multiple_of(2) {
            for i in (0..N).step_by(2) {
                finish.store_pair(s, pass, [sums[i], sums[i + 1]], [out + i * c, out + (i + 1) * c]);
            }
        } else {
            for (i, &sum) in sums.iter().enumerate() {
                finish.store(s, pass, sum, out + i * c);
            }
        }
    }
}
