//! Depthwise convolution of NHWC images of bytes with zero points, exact in i32.
//!
//! Bytes are widened to f32, where products of differences of bytes and sums of up to [`MOST_TAPS`] of them are exact: so it is
//! the loop of [`window`](crate::window), and no rounding depends on the instruction set. A window that is within the image as a
//! whole begins with what the zero point takes from all of it; elsewhere it is subtracted from each pixel.
//!
//! Where the processor multiplies four bytes at once, and weights are around 0, it does that (`words`): the sums are the same.

mod quads;
mod words;

use std::ops::Range;

use crate::gemm::{ByteEpilogue, Column, ZeroPoints};
use crate::isa::{Isa, Kernel};
use crate::math::FixedLinear;
use crate::simd::{LANES, Simd};
use crate::window::Windows;

/// Kernel positions up to which sums stay below 2²⁴, together with what the zero point takes.
pub const MOST_TAPS: usize = 121;

/// One depthwise convolution; see the [module](self).
#[derive(Debug, Clone, Copy)]
pub struct BytePass {
    /// The geometry.
    pub windows: Windows,
    /// What [`prepare`] makes of the weights …
    pub weights: *const f32,
    /// … and says of them.
    pub form: WeightForm,
    /// The images.
    pub input: *const u8,
    /// Whether they are of i8.
    pub signed: bool,
    /// Their zero point.
    pub zero: i32,
    /// The result, `[images, out_h, out_w, channels]`: i32, or what the epilogue makes (f32, bytes) at the same address.
    pub output: *mut i32,
    /// What becomes of the sums; only bounds as an activation, and no operand.
    pub epilogue: Option<ByteEpilogue>,
}

// SAFETY: plain addresses; `run`, which uses them, is unsafe and says what must hold across threads.
unsafe impl Send for BytePass {}
// SAFETY: as above.
unsafe impl Sync for BytePass {}

impl BytePass {
    /// Computes a range of the tasks.
    ///
    /// # Safety
    /// Images, weights and the epilogue's operands must be readable and the output writable for their extents; the output must
    /// overlap nothing else. No two threads may run the same task at once.
    pub unsafe fn run(&self, isa: Isa, tasks: Range<usize>) {
        match self.form {
            WeightForm::Floats => isa.run(Lines { pass: self, tasks }),
            WeightForm::Words => isa.run_vnni(words::Lines { pass: self, tasks }),
        }
    }
}

/// How weights lie for a [`BytePass`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightForm {
    /// The weights less their zero points as f32, `[kernel_h · kernel_w, channels]`, then what a whole window begins with, `[channels]`.
    Floats,
    /// Words of four.
    Words,
}

/// Weights `[kernel_h · kernel_w, channels]` of bytes with their zero points, and the zero point of the images (signed or not), as
/// [`BytePass`] takes them.
///
/// # Safety
/// The weights and zero points must be readable, and `out` writable for `(kernel_h · kernel_w + 1) · channels` numbers.
pub unsafe fn prepare(
    isa: Isa,
    weights: *const u8,
    zeros: ZeroPoints,
    windows: &Windows,
    (zero, signed): (i32, bool),
    out: *mut f32,
) -> WeightForm {
    if isa.has_vnni() && words::fits(windows) {
        let zero = zero + if signed { 128 } else { 0 };
        if isa.run_vnni(words::Prepare { weights, zeros, windows, zero, out }) {
            return WeightForm::Words;
        }
    }
    let taps = windows.kernel[0] * windows.kernel[1];
    isa.run(Prepare { weights, zeros, taps, channels: windows.channels, zero, out });
    WeightForm::Floats
}

struct Prepare {
    weights: *const u8,
    zeros: ZeroPoints,
    taps: usize,
    channels: usize,
    zero: i32,
    out: *mut f32,
}

impl Kernel for Prepare {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let c = self.channels;
        for ch in (0..c).step_by(LANES) {
            let lanes = (c - ch).min(LANES);
            // SAFETY: `prepare` was promised the memory; ch + lanes ≤ channels.
            unsafe {
                let zero = self.zeros.load(s, ch, lanes);
                let mut sum = s.splat_i(0);
                for tap in 0..self.taps {
                    let from = self.weights.wrapping_add(tap * c + ch);
                    // Zero points of unsigned bytes are given as if all were 128 less.
                    let weight = if self.zeros.signed {
                        s.load_bytes::<true>(from, lanes)
                    } else {
                        s.sub_i(s.load_bytes::<false>(from, lanes), s.splat_i(128))
                    };
                    let weight = s.sub_i(weight, zero);
                    sum = s.add_i(sum, weight);
                    s.store_upto(self.out.wrapping_add(tap * c + ch), lanes, s.from_int(weight));
                }
                let start = s.from_int(s.mul_i(sum, s.splat_i(-self.zero)));
                s.store_upto(self.out.wrapping_add(self.taps * c + ch), lanes, start);
            }
        }
    }
}

/// Output positions computed together, sharing each load of a weight.
const WIDTH: usize = 4;

struct Lines<'a> {
    pass: &'a BytePass,
    tasks: Range<usize>,
}

impl Kernel for Lines<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (pass, w) = (self.pass, &self.pass.windows);
        for task in self.tasks {
            let (image, y) = (task / w.out[0], task % w.out[0]);
            let rows = w.inside(0, y);
            let mut x = 0;
            while x < w.out[1] {
                let columns = w.inside(1, x);
                let whole = rows == (0..w.kernel[0]) && columns == (0..w.kernel[1]);
                let together = whole && x + WIDTH <= w.out[1] && w.inside(1, x + WIDTH - 1) == columns;
                let at = Place { image, y, x, rows: rows.clone(), columns };
                // SAFETY: `BytePass::run`'s promises.
                unsafe {
                    match (together, pass.signed) {
                        (true, true) => positions::<S, true, true, WIDTH>(s, pass, &at),
                        (true, false) => positions::<S, false, true, WIDTH>(s, pass, &at),
                        (false, true) => positions::<S, true, false, 1>(s, pass, &at),
                        (false, false) => positions::<S, false, false, 1>(s, pass, &at),
                    }
                }
                x += if together { WIDTH } else { 1 };
            }
        }
    }
}

/// An output position, and the kernel positions of its window that are within the image.
struct Place {
    image: usize,
    y: usize,
    x: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

/// Computes N neighbouring output positions, all channels; `WHOLE`: of windows that are within the image.
#[inline(always)]
unsafe fn positions<S: Simd, const SIGNED: bool, const WHOLE: bool, const N: usize>(
    s: S,
    pass: &BytePass,
    at: &Place,
) {
    let w = &pass.windows;
    let (c, taps) = (w.channels, w.kernel[0] * w.kernel[1]);
    let zero = s.splat(pass.zero as f32);
    let out = ((at.image * w.out[0] + at.y) * w.out[1] + at.x) * c;
    for ch in (0..c).step_by(LANES) {
        let lanes = (c - ch).min(LANES);
        // SAFETY: the caller's promise; all pixels are within the image and ch + lanes ≤ c.
        unsafe {
            let start =
                if WHOLE { s.load_upto(pass.weights.wrapping_add(taps * c + ch), lanes) } else { s.zero() };
            let mut acc = [start; N];
            for ky in at.rows.clone() {
                let line = (at.image * w.size[0] + w.coordinate(0, at.y, ky)) * w.size[1];
                for kx in at.columns.clone() {
                    let p = pass.input.wrapping_add((line + w.coordinate(1, at.x, kx)) * c + ch);
                    let place = pass.weights.wrapping_add((ky * w.kernel[1] + kx) * c + ch);
                    let weight = s.load_upto(place, lanes);
                    for i in 0..N {
                        let x = s.load_bytes::<SIGNED>(p.wrapping_add(i * w.stride[1] * c), lanes);
                        let x = s.from_int(x);
                        acc[i] = s.mul_add(if WHOLE { x } else { s.sub(x, zero) }, weight, acc[i]);
                    }
                }
            }
            let finish = Finish::of(s, pass, ch, lanes, false);
            for (i, &sum) in acc.iter().enumerate() {
                let sum = s.from_int(finish.with_offset(s, s.to_int(sum)));
                finish.store(s, pass, sum, out + ch + i * c);
            }
        }
    }
}

/// What becomes of the sums of sixteen channels.
struct Finish<S: Simd> {
    ch: usize,
    lanes: usize,
    column: Option<Column<S>>,
    fixed: Option<FixedLinear>,
}

impl<S: Simd> Finish<S> {
    /// Of the `lanes` channels from `ch` on; `often`: for so many positions that it pays to prepare for them.
    ///
    /// # Safety
    /// As [`BytePass::run`].
    #[inline(always)]
    unsafe fn of(s: S, pass: &BytePass, ch: usize, lanes: usize, often: bool) -> Finish<S> {
        let Some(e) = &pass.epilogue else { return Finish { ch, lanes, column: None, fixed: None } };
        // SAFETY: the caller's promise.
        let column = unsafe { Column::load(s, e, ch, lanes) };
        let fixed = if often { column.fixed(s, e) } else { None };
        Finish { ch, lanes, column: Some(column), fixed }
    }

    /// Sums with what the epilogue adds to them exactly.
    #[inline(always)]
    fn with_offset(&self, s: S, sum: S::I) -> S::I {
        match &self.column {
            Some(Column { offset: Some(offset), .. }) => s.add_i(sum, *offset),
            _ => sum,
        }
    }

    /// Writes sums with their offset, or what the epilogue makes of them, to element `to` of the result.
    ///
    /// # Safety
    /// As [`BytePass::run`].
    #[inline(always)]
    unsafe fn store(&self, s: S, pass: &BytePass, sum: S::F, to: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let (Some(e), Some(column)) = (&pass.epilogue, &self.column) else {
                let to = pass.output.wrapping_add(to).cast();
                return s.store_upto(to, self.lanes, s.from_bits(s.to_int(sum)));
            };
            match &self.fixed {
                Some(fixed) => {
                    let number = fixed.vector(s, sum);
                    if !fixed.doubts(s, [number, number]) {
                        let to = pass.output.cast::<u8>().wrapping_add(to);
                        s.store_bytes(to, self.lanes, fixed.bytes(s, number));
                    } else {
                        self.doubted(s, pass, sum, to);
                    }
                }
                None => by_floats(s, (pass, e), column, sum, (to, self.lanes)),
            }
        }
    }

    /// [`store`](Finish::store) for two positions.
    ///
    /// # Safety
    /// As [`BytePass::run`].
    #[inline(always)]
    unsafe fn store_pair(&self, s: S, pass: &BytePass, [a, b]: [S::F; 2], to: [usize; 2]) {
        // SAFETY: the caller's promise.
        unsafe {
            match &self.fixed {
                Some(fixed) if self.lanes == LANES => {
                    let numbers = [fixed.vector(s, a), fixed.vector(s, b)];
                    if !fixed.doubts(s, numbers) {
                        let out = pass.output.cast::<u8>();
                        let to = [out.wrapping_add(to[0]), out.wrapping_add(to[1])];
                        fixed.store(s, to, numbers);
                    } else {
                        self.doubted(s, pass, a, to[0]);
                        self.doubted(s, pass, b, to[1]);
                    }
                }
                _ => {
                    self.store(s, pass, a, to[0]);
                    self.store(s, pass, b, to[1]);
                }
            }
        }
    }

    /// [`store`](Finish::store) where fixed point does not decide: a call, since there are few.
    #[inline(always)]
    fn doubted(&self, s: S, pass: &BytePass, sum: S::F, to: usize) {
        s.enter(Doubted { pass, sum: s.to_array(sum), ch: self.ch, lanes: self.lanes, to });
    }
}

/// Sums whose bytes fixed point does not decide.
struct Doubted<'a> {
    pass: &'a BytePass,
    sum: [f32; LANES],
    ch: usize,
    lanes: usize,
    to: usize,
}

impl Kernel for Doubted<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Some(e) = &self.pass.epilogue else { return };
        // SAFETY: `Finish`, which alone makes it, was promised the operands of these channels and this place of the result.
        unsafe {
            let column = Column::load(s, e, self.ch, self.lanes);
            by_floats(s, (self.pass, e), &column, s.from_array(&self.sum), (self.to, self.lanes));
        }
    }
}

/// Writes what an epilogue makes of sums with their offset by every step that it stands for.
///
/// # Safety
/// As [`BytePass::run`].
#[inline(always)]
unsafe fn by_floats<S: Simd>(
    s: S,
    (pass, e): (&BytePass, &ByteEpilogue),
    column: &Column<S>,
    sum: S::F,
    (to, lanes): (usize, usize),
) {
    let x = column.activated(s, column.scaled(s, sum));
    // SAFETY: the caller's promise.
    unsafe {
        match &e.quantiser {
            Some(q) => s.store_bytes(pass.output.cast::<u8>().wrapping_add(to), lanes, q.vector(s, x)),
            None => s.store_upto(pass.output.cast::<f32>().wrapping_add(to), lanes, x),
        }
    }
}

#[cfg(test)]
mod tests;
