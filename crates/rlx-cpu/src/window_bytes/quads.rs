//! Depthwise convolution of bytes in blocks of 64 channels, for [`words`](super::words).
//!
//! The bytes of 64 channels are a register for each line of the image, so eight instructions make four vectors of words, where each alone takes
//! five; and the bytes of four vectors of sums are packed at once. Both work within the quarters of registers, so lanes are in the
//! [order of quarters](Simd::quarters) in between. What belongs to the channels is brought into that order once for each block.

use std::mem::MaybeUninit;

use super::words::{COLUMNS, GROUP, Row, WIDTH, Work, groups, line_columns, reach};
use super::{BytePass, Finish, by_floats};
use crate::gemm::Column;
use crate::isa::Kernel;
use crate::math::FixedLinear;
use crate::simd::{LANES, Simd};
use crate::window::Windows;

/// Vectors of a block.
const QUAD: usize = 4;

/// Channels of a block.
pub(super) const CHANNELS: usize = QUAD * LANES;

/// Columns of the kernel, at most: their words are kept for a block.
const MOST_COLUMNS: usize = 4;

/// Lines of the result that are computed together, at most.
const MOST_LINES: usize = 2;

/// Output positions of a line whose columns are made at once; 0 if one is too wide.
fn stretch(w: &Windows) -> usize {
    match (COLUMNS / QUAD).checked_sub(reach(w)) {
        Some(more) => more / w.stride[1] + 1,
        None => 0,
    }
}

/// Whether blocks of channels are computed this way.
pub(super) fn fits(w: &Windows) -> bool {
    groups(w) == 1 && w.kernel[1] <= MOST_COLUMNS && stretch(w) > 0
}

/// What a block's channels have.
struct Block<S: Simd> {
    /// The first.
    ch: usize,
    /// The words of the kernel's columns, for the first line of the result and for the second.
    weights: [[[S::F; QUAD]; MOST_COLUMNS]; MOST_LINES],
    starts: [S::I; QUAD],
    fixed: [FixedLinear; QUAD],
}

impl<S: Simd> Block<S> {
    /// `None` where bytes are not made in fixed point.
    ///
    /// # Safety
    /// As [`BytePass::run`], for the channels from `ch` on.
    #[inline(always)]
    unsafe fn of(s: S, pass: &BytePass, ch: usize) -> Option<Block<S>> {
        let (c, columns) = (pass.windows.channels, pass.windows.kernel[1]);
        // SAFETY: the caller's promise; there are words for each column of the kernel, then starts.
        unsafe {
            let finish = [
                Finish::of(s, pass, ch, LANES, true),
                Finish::of(s, pass, ch + LANES, LANES, true),
                Finish::of(s, pass, ch + 2 * LANES, LANES, true),
                Finish::of(s, pass, ch + 3 * LANES, LANES, true),
            ];
            let [Some(a), Some(b), Some(c_), Some(d)] =
                [&finish[0].fixed, &finish[1].fixed, &finish[2].fixed, &finish[3].fixed]
            else {
                return None;
            };
            let fixed = FixedLinear::quarters(s, [a, b, c_, d]);
            let mut weights = [[[s.zero(); QUAD]; MOST_COLUMNS]; MOST_LINES];
            let mut from = pass.weights.wrapping_add(ch);
            for column in 0..columns {
                let words = s.quarters(load_quad(s, from));
                for v in 0..QUAD {
                    weights[0][column][v] = words[v];
                    // Of the second line, a byte further up.
                    weights[1][column][v] = s.from_bits(s.shl_i::<8>(s.bits(words[v])));
                }
                from = from.wrapping_add(c);
            }
            let mut sums = load_quad(s, from);
            for v in 0..QUAD {
                sums[v] = s.from_bits(finish[v].with_offset(s, s.bits(sums[v])));
            }
            let sums = s.quarters(sums);
            let mut starts = [s.splat_i(0); QUAD];
            for v in 0..QUAD {
                starts[v] = s.bits(sums[v]);
            }
            Some(Block { ch, weights, starts, fixed })
        }
    }
}

/// Four vectors, one behind the other.
///
/// # Safety
/// There must be 64 numbers.
#[inline(always)]
unsafe fn load_quad<S: Simd>(s: S, from: *const f32) -> [S::F; QUAD] {
    // SAFETY: the caller's promise.
    unsafe {
        [
            s.load(from),
            s.load(from.wrapping_add(LANES)),
            s.load(from.wrapping_add(2 * LANES)),
            s.load(from.wrapping_add(3 * LANES)),
        ]
    }
}

/// The sums of some positions.
#[repr(align(64))]
struct Sums(MaybeUninit<[f32; MOST_LINES * WIDTH * CHANNELS]>);

/// The lines of a stripe in the channels from `ch` on; whether they were computed.
///
/// Their promise is that of [`BytePass::run`].
pub(super) struct Lines<'a> {
    pub(super) work: &'a Work<'a>,
    pub(super) rows: &'a [Row],
    pub(super) ch: usize,
}

impl Kernel for Lines<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> bool {
        let mut sums = Sums(MaybeUninit::uninit());
        let sums = sums.0.as_mut_ptr().cast::<f32>();
        // SAFETY: `BytePass::run`'s promises.
        unsafe {
            let Some(block) = Block::of(s, self.work.pass, self.ch) else { return false };
            for row in self.rows {
                match (row.lines, self.work.pass.signed) {
                    (1, false) => line::<S, 1, false>(s, self.work, row, &block, sums),
                    (1, true) => line::<S, 1, true>(s, self.work, row, &block, sums),
                    (_, false) => line::<S, 2, false>(s, self.work, row, &block, sums),
                    (_, true) => line::<S, 2, true>(s, self.work, row, &block, sums),
                }
            }
        }
        true
    }
}

/// Computes the channels of L lines.
///
/// # Safety
/// As [`BytePass::run`]; there is room for the sums of [`WIDTH`] positions.
#[inline(always)]
unsafe fn line<S: Simd, const L: usize, const SIGNED: bool>(
    s: S,
    work: &Work<'_>,
    row: &Row,
    block: &Block<S>,
    sums: *mut f32,
) {
    let w = &work.pass.windows;
    let stretch = stretch(w);
    let mut x = 0;
    while x < w.out[1] {
        let count = stretch.min(w.out[1] - x);
        // SAFETY: the caller's promise.
        unsafe {
            make_words::<S, SIGNED>(s, work, row, block.ch, (x, count));
            let out = (row.task * w.out[1] + x) * w.channels + block.ch;
            let mut at = 0;
            while at + WIDTH <= count {
                positions::<S, WIDTH, L>(s, work, block, at, out + at * w.channels, sums);
                at += WIDTH;
            }
            if at < count && count >= WIDTH {
                // The last ones with some of those before once more: so few alone would wait for each other.
                at = count - WIDTH;
                positions::<S, WIDTH, L>(s, work, block, at, out + at * w.channels, sums);
                at = count;
            }
            while at < count {
                positions::<S, 1, L>(s, work, block, at, out + at * w.channels, sums);
                at += 1;
            }
        }
        x += count;
    }
}

/// Makes the words of `count` positions from `x` on.
///
/// # Safety
/// As [`BytePass::run`].
#[inline(always)]
unsafe fn make_words<S: Simd, const SIGNED: bool>(
    s: S,
    work: &Work<'_>,
    row: &Row,
    ch: usize,
    (x, count): (usize, usize),
) {
    let pass = work.pass;
    let outside = [pass.zero as u8; CHANNELS];
    let (left, inside, right, mut from, steps) =
        line_columns(pass, row, (0, ch), (x, count), outside.as_ptr());
    let flips = s.splat_i(0x8080_8080_u32 as i32);
    let zero = i32::from_ne_bytes([pass.zero as u8; GROUP]);
    let zeros = s.from_bits(if SIGNED { s.xor_i(s.splat_i(zero), flips) } else { s.splat_i(zero) });
    let mut to = work.words;
    // SAFETY: there is room for the columns of a stretch; those inside are within the image as the lines are, or what is read is `outside`.
    unsafe {
        for _ in 0..left * QUAD {
            s.store(to, zeros);
            to = to.wrapping_add(LANES);
        }
        for _ in 0..inside {
            let words = s.load_quad(from);
            for v in 0..QUAD {
                let word = if SIGNED { s.xor_i(words[v], flips) } else { words[v] };
                s.store(to.wrapping_add(v * LANES), s.from_bits(word));
            }
            to = to.wrapping_add(CHANNELS);
            for i in 0..GROUP {
                from[i] = from[i].wrapping_add(steps[i]);
            }
        }
        for _ in 0..right * QUAD {
            s.store(to, zeros);
            to = to.wrapping_add(LANES);
        }
    }
}

/// Computes N neighbouring positions of L lines, the `at`-th and later of those whose words are there; the first one's element of the result is `out`.
///
/// # Safety
/// As [`line`].
#[inline(always)]
unsafe fn positions<S: Simd, const N: usize, const L: usize>(
    s: S,
    work: &Work<'_>,
    block: &Block<S>,
    at: usize,
    out: usize,
    sums: *mut f32,
) {
    let (pass, w) = (work.pass, &work.pass.windows);
    let step = w.stride[1] * CHANNELS;
    // SAFETY: the caller's promise: words, room for the sums, and the result are there.
    unsafe {
        for v in 0..QUAD {
            let mut acc = [[block.starts[v]; N]; L];
            let mut column = work.words.wrapping_add(at * step + v * LANES);
            for kx in 0..w.kernel[1].min(MOST_COLUMNS) {
                let first = s.bits(block.weights[0][kx][v]);
                let second = s.bits(block.weights[1][kx][v]);
                for i in 0..N {
                    let word = s.bits(s.load(column.wrapping_add(i * step)));
                    acc[0][i] = s.dot_bytes(acc[0][i], word, first);
                    if const { L == 2 } {
                        acc[L - 1][i] = s.dot_bytes(acc[L - 1][i], word, second);
                    }
                }
                column = column.wrapping_add(w.dilation[1] * CHANNELS);
            }
            for l in 0..L {
                for i in 0..N {
                    let to = sums.wrapping_add((l * N + i) * CHANNELS + v * LANES);
                    s.store(to, s.from_bits(acc[l][i]));
                }
            }
        }
        for l in 0..L {
            for i in 0..N {
                let from = sums.wrapping_add((l * N + i) * CHANNELS);
                finish(s, pass, block, from, out + (l * w.out[1] + i) * w.channels);
            }
        }
    }
}

/// Writes the bytes of a position's sums to element `to` of the result.
///
/// # Safety
/// As [`line`].
#[inline(always)]
unsafe fn finish<S: Simd>(s: S, pass: &BytePass, block: &Block<S>, sums: *const f32, to: usize) {
    let mut numbers = [s.splat_i(0); QUAD];
    // SAFETY: the caller's promise.
    unsafe {
        for v in 0..QUAD {
            let sum = s.from_int(s.bits(s.load(sums.wrapping_add(v * LANES))));
            numbers[v] = block.fixed[v].vector(s, sum);
        }
        block.fixed[0].store_quad(s, pass.output.cast::<u8>().wrapping_add(to), numbers);
    }
    let [a, b, c, d] = numbers;
    if block.fixed[0].doubts(s, [a, b]) | block.fixed[0].doubts(s, [c, d]) {
        let mut lanes = [[0.0; LANES]; QUAD];
        for v in 0..QUAD {
            lanes[v] = s.to_array(s.from_bits(numbers[v]));
        }
        s.enter(Doubted { pass, numbers: &lanes, by: &block.fixed[0], sums, ch: block.ch, to });
    }
}

/// What fixed point does not decide is written again: a call, since there is little.
struct Doubted<'a> {
    pass: &'a BytePass,
    /// The bits of the fixed-point numbers of a position.
    numbers: &'a [[f32; LANES]; QUAD],
    by: &'a FixedLinear,
    /// The sums that they are of.
    sums: *const f32,
    ch: usize,
    to: usize,
}

impl Kernel for Doubted<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Some(e) = &self.pass.epilogue else { return };
        // SAFETY: `finish`, which alone makes it, was promised the sums, the operands of these channels and this place of the result.
        unsafe {
            let sums = s.quarters(load_quad(s, self.sums));
            for (q, &sum) in sums.iter().enumerate() {
                let mut in_doubt = false;
                for vector in self.numbers {
                    for number in &vector[q * LANES / QUAD..(q + 1) * LANES / QUAD] {
                        in_doubt |= self.by.is_in_doubt(number.to_bits() as i32);
                    }
                }
                if in_doubt {
                    let column = Column::load(s, e, self.ch + q * LANES, LANES);
                    let to = (self.to + q * LANES, LANES);
                    by_floats(s, (self.pass, e), &column, s.from_int(s.bits(sum)), to);
                }
            }
        }
    }
}
