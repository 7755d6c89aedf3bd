//! Convolution with few channels in a group, of any number of filters each. The first convolution of a net for pictures is one, too: a single
//! group of three channels.
//!
//! A result is the sum over the window's lines, then the channels of its group, then the positions of the line. In that order a line's inputs
//! are brought to their lanes once and multiplied by the weights of all positions that they are in. Lane `l` wants channel `j` of *its* group,
//! and with `g` channels and `f` filters in a group, lane `l` of the vector from filter `ch` on is of group `(ch + l) / f`:
//!
//! * one number in all lanes, where a vector is within a group;
//! * a permutation of sixteen neighbouring channels, where the groups of a vector have no more;
//! * numbers that are fetched one by one, elsewhere.
//!
//! Where products of two bf16 are one instruction, lanes get two channels at a time ([`sources`]).
//!
//! Weights are `[filters / 16, kernel_h, g, kernel_w, 16]`, with zeros behind the last filter: those of a vector lie one behind the other. Those of
//! bf16 are `[filters / 16, kernel_h, g / 2, kernel_w, 16, 2]`: a filter's weights of two channels lie side by side, beside the last of an odd number
//! a zero. With one channel in a group weights are `[kernel_h, kernel_w, filters]`, as those of a depthwise convolution.
//! Some lines are computed for one vector of filters after the other, so the weights of one vector stay in the first-level cache.

mod sources;

use std::marker::PhantomData;
use std::ops::Range;

use sources::{Fetched, Inputs, Permuted, PermutedPairs, Source, Splat, SplatPairs};

use super::{WindowPass, Windows, spacing, tile_width};
use crate::gemm::{PANEL, Packed};
use crate::isa::Kernel;
use crate::math::{Light, Unary};
use crate::simd::{LANES, Simd};

/// The largest group that is computed here; larger ones fill the tiles of a matmul.
const LARGEST: usize = 64;

/// Bytes of the lines that are computed for all channels before the next: the weights of all channels are read again for each such block.
const BLOCK: usize = 512 << 10;

/// The most channels of an image that are computed here as one group; from 5 on, a matmul of the windows is as fast.
pub(crate) const FEW: usize = 4;

/// Whether several groups of `g` channels and `f` filters are computed here; 1 and 1 are a depthwise convolution. What is not is a matmul for
/// each group, whose tiles have whole vectors of filters: those that fill panels are so too, unless they have few channels.
pub(crate) fn takes(g: usize, f: usize) -> bool {
    let vectors = f.is_multiple_of(LANES);
    match g {
        0 => false,
        1 => f > 0,
        LANES..=LARGEST if f.is_multiple_of(PANEL) => false,
        2..=LARGEST if vectors || span(g, f) <= LANES => f > 0,
        // To fetch numbers one by one takes as long as some ten multiplications.
        2..=LARGEST => f > 0 && f <= FETCHED,
        _ => false,
    }
}

/// Filters of a group, at most, whose inputs are fetched one by one.
const FETCHED: usize = 2;

/// The most channels from the first input of a vector's first group to the first of its last one.
fn span(g: usize, f: usize) -> usize {
    // Vectors begin with every sixteenth filter, the last of a group among them if none divides both.
    let step = 1 << f.trailing_zeros().min(LANES.trailing_zeros());
    (f.saturating_sub(step) + LANES - 1) / f.max(1) * g + 1
}

/// Whether a convolution of an image of so many channels is computed here, by windows of so many pixels in a line. Windows of 7 are as fast as
/// matmuls. (Of one channel, weights would not differ from those of a depthwise convolution.)
pub(crate) fn takes_image(channels: usize, kernel: usize, stride: usize, dilation: usize) -> bool {
    (2..=FEW).contains(&channels) && kernel == 3 && stride <= 2 && dilation == 1
}

/// Computes output lines of all images.
///
/// # Safety
/// As [`WindowPass::run`].
#[inline(always)]
pub(super) unsafe fn lines<S: Simd, T: Packed>(
    s: S,
    pass: &WindowPass<T>,
    tasks: Range<usize>,
    light: Option<Light>,
    function: Option<Unary>,
) {
    let w = &pass.windows;
    let line = (w.size[1] * w.stride[0] * pass.inputs + w.out[1] * w.channels).max(1) * size_of::<T>();
    let each = (BLOCK / line).max(1);
    // Two vectors that share their inputs, or one.
    let step = if shares::<S, T>(pass) { 2 * LANES } else { LANES };
    let mut first = tasks.start;
    while first < tasks.end {
        let block = first..(first + each).min(tasks.end);
        for ch in (0..w.channels).step_by(step) {
            for task in block.clone() {
                // SAFETY: the caller's promise.
                unsafe {
                    if ch + LANES <= w.channels {
                        line_of::<S, T, true>(s, pass, task, ch, light);
                    } else {
                        line_of::<S, T, false>(s, pass, task, ch, light);
                    }
                }
            }
        }
        for task in block.clone() {
            // SAFETY: the line was just written.
            unsafe { pass.finish(s, task, function) };
        }
        first = block.end;
    }
}

/// Filters of a group.
#[inline(always)]
fn filters<T>(pass: &WindowPass<T>) -> usize {
    pass.windows.channels / (pass.inputs / pass.group).max(1)
}

/// Whether vectors are within a group.
#[inline(always)]
fn is_within<T>(pass: &WindowPass<T>) -> bool {
    pass.group == pass.inputs || filters(pass).is_multiple_of(LANES)
}

/// Whether two vectors that are beside each other are of the same group, and there are registers for both.
#[inline(always)]
fn shares<S: Simd, T>(pass: &WindowPass<T>) -> bool {
    S::GEMM_ROWS > 6 && is_within(pass) && filters(pass).is_multiple_of(2 * LANES)
}

/// Whether two channels of lanes are multiplied at a time, where a group has several.
#[inline(always)]
const fn pairs<S: Simd, T: Packed>() -> bool {
    S::BF16_DOT && T::DOT == 2
}

/// Computes one vector of an output line, or two. What is not `WHOLE` is the rest of the filters.
///
/// # Safety
/// As [`WindowPass::run`], for the line.
#[inline(always)]
unsafe fn line_of<S: Simd, T: Packed, const WHOLE: bool>(
    s: S,
    pass: &WindowPass<T>,
    task: usize,
    ch: usize,
    light: Option<Light>,
) {
    let w = &pass.windows;
    // A number where it is known: there is nothing to ask for each vector then.
    let lanes = if WHOLE { LANES } else { w.channels - ch };
    let first = ch / filters(pass) * pass.group;
    let spacing = spacing(w).unwrap_or(1);
    let inputs = Inputs { channels: pass.inputs, group: pass.group, lanes, first, offsets: [0; LANES] };
    let mut v = Vectors { pass, task, ch, inputs, light, spacing };
    // SAFETY: the caller's promise.
    unsafe {
        if is_within(pass) {
            return match pairs::<S, T>() && pass.group > 1 {
                true if shares::<S, T>(pass) => s.enter(InForms::<T, SplatPairs, 2, WHOLE>::of(&v)),
                true => s.enter(InForms::<T, SplatPairs, 1, WHOLE>::of(&v)),
                false if shares::<S, T>(pass) => s.enter(InForms::<T, Splat, 2, WHOLE>::of(&v)),
                false => s.enter(InForms::<T, Splat, 1, WHOLE>::of(&v)),
            };
        }
        v.inputs.find_offsets(filters(pass), ch);
        if !v.inputs.is_permutation::<S>() {
            s.enter(InForms::<T, Fetched, 1, WHOLE>::of(&v));
        } else if WHOLE && v.inputs.loaded(pass.group - 1).0 + LANES <= pass.inputs {
            narrow::<S, T, true, WHOLE>(s, &v);
        } else {
            narrow::<S, T, false, WHOLE>(s, &v);
        }
    }
}

/// One vector of channels of an output line, or two, and what they are computed of.
#[derive(Clone, Copy)]
struct Vectors<'a, T> {
    pass: &'a WindowPass<T>,
    task: usize,
    ch: usize,
    inputs: Inputs,
    light: Option<Light>,
    /// From one position of a tile to the next.
    spacing: usize,
}

/// Computes a line in tiles of equal width. The last one may begin before the end of the one before it; what both compute is the same. Where
/// windows have gaps, every second position (or third, …) makes a line of its own, whose windows have none.
macro_rules! in_tiles {
    ($s:expr, $v:expr, $source:ty, $vectors:ident, $kernel:literal, $stride:literal; $($n:literal)*) => {{
        let (width, spacing) = ($v.pass.windows.out[1], $v.spacing);
        match tile_width(width / spacing, [$($n),*]) {
            $(Some($n) => for first in 0..spacing {
                let positions = (width - first).div_ceil(spacing);
                for at in 0..positions.div_ceil($n) {
                    let x = first + (at * $n).min(positions - $n) * spacing;
                    // SAFETY: the caller's promise.
                    unsafe { tile::<S, T, $source, $n, $vectors, $kernel, $stride>($s, $v, x) };
                }
            },)*
            // SAFETY: the caller's promise.
            _ => unsafe { in_any_form::<S, T, $source, $vectors>($s, $v) },
        }
    }};
}

/// Computes a line of one vector of several groups, whose inputs are neighbours: of those that `FILL` a vector, vectors of channels of a pixel.
///
/// # Safety
/// As [`WindowPass::run`], for the line.
#[inline(always)]
unsafe fn narrow<S: Simd, T: Packed, const FILL: bool, const WHOLE: bool>(s: S, v: &Vectors<'_, T>) {
    // SAFETY: the caller's promise.
    unsafe {
        if pairs::<S, T>() && v.pass.group.is_multiple_of(2) {
            s.enter(InForms::<T, PermutedPairs<FILL>, 1, WHOLE>::of(v));
        } else {
            s.enter(InForms::<T, Permuted<FILL>, 1, WHOLE>::of(v));
        }
    }
}

/// A line of V vectors, by inputs of this source: a function of its own, since all of them in one take a compiler long.
struct InForms<'a, T, F, const V: usize, const WHOLE: bool> {
    of: &'a Vectors<'a, T>,
    source: PhantomData<F>,
}

impl<'a, T, F, const V: usize, const WHOLE: bool> InForms<'a, T, F, V, WHOLE> {
    /// # Safety
    /// As [`WindowPass::run`], for the line: it is computed when this is run.
    unsafe fn of(of: &'a Vectors<'a, T>) -> Self {
        InForms { of, source: PhantomData }
    }
}

impl<T: Packed, F: Source, const V: usize, const WHOLE: bool> Kernel for InForms<'_, T, F, V, WHOLE> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let inputs = self.of.inputs;
        let inputs = Inputs { lanes: if WHOLE { LANES } else { inputs.lanes }, ..inputs };
        let v = &Vectors { inputs, ..*self.of };
        let wide = const { S::GEMM_ROWS > 6 && F::LONG };
        match dense(&v.pass.windows).filter(|_| F::TILES > 0) {
            Some((3, 1)) if wide => in_tiles!(s, v, F, V, 3, 1; 8 7 4),
            Some((3, 2)) if wide => in_tiles!(s, v, F, V, 3, 2; 7 4),
            Some((3, 1)) => in_tiles!(s, v, F, V, 3, 1; 4),
            Some((3, 2)) if F::TILES > 1 => in_tiles!(s, v, F, V, 3, 2; 4),
            // SAFETY: `of` was promised what this needs.
            _ => unsafe { in_any_form::<S, T, F, V>(s, v) },
        }
    }
}

/// The pixels in a line of windows, and their step, where there are tiles of positions whose windows have no gaps.
fn dense(w: &Windows) -> Option<(usize, usize)> {
    spacing(w).map(|_| (w.kernel[1], w.stride[1]))
}

/// Zeros that stand for the inputs of a vector where those are in the padding: a group's, or of neighbouring groups a vector more than one's.
static ZEROS: [u32; LARGEST + LANES] = [0; LARGEST + LANES];

/// The most pixels that a tile reads of a line: of 8 windows of 3 that are 2 apart.
const MOST_PIXELS: usize = 17;

/// Computes N output positions of V vectors, whose inputs are the same where V is 2, by windows without gaps in a line (of every pixel, or of those
/// that are `spacing` apart). Each pixel is brought to the lanes once for all positions that it is in.
///
/// # Safety
/// As [`WindowPass::run`], for the positions.
#[inline(always)]
unsafe fn tile<S, T, F, const N: usize, const V: usize, const KERNEL: usize, const STRIDE: usize>(
    s: S,
    v: &Vectors<'_, T>,
    x: usize,
) where
    S: Simd,
    T: Packed,
    F: Source,
{
    let Vectors { pass, task, .. } = *v;
    let (w, g, count) = (&pass.windows, pass.group, (N - 1) * STRIDE + KERNEL);
    let zeros = ZEROS.as_ptr().cast::<T>().wrapping_sub(v.inputs.first);
    let left = (x * STRIDE) as isize - w.pad[1] as isize;
    let (whole_line, apart) = (w.size[1] * pass.inputs, v.spacing * pass.inputs);
    let (rows, mut line) = pass.rows(task);
    // SAFETY: the caller's promise; all pixels are within the image or are the zeros, and the channels below c.
    unsafe {
        let mut acc = v.start::<S, N, V>(s);
        for ky in rows {
            let mut pixels = [zeros; MOST_PIXELS];
            let line_at = pass.input.wrapping_add(line * whole_line);
            let mut at = line_at.wrapping_offset(left * pass.inputs as isize);
            for (i, pixel) in pixels.iter_mut().enumerate().take(count) {
                // Negative positions become huge.
                if ((left + (i * v.spacing) as isize) as usize) < w.size[1] {
                    *pixel = at;
                }
                at = at.wrapping_add(apart);
            }
            let weights = v.weights(ky);
            let whole = g - if F::ENDS { g % F::CHANNELS } else { 0 };
            for j in (0..whole).step_by(F::CHANNELS) {
                acc = add::<S, T, F, N, V, KERNEL, STRIDE>(s, v, j, &pixels, weights, acc);
            }
            if F::ENDS && whole < g {
                acc = add::<S, T, F::Last, N, V, KERNEL, STRIDE>(s, v, whole, &pixels, weights, acc);
            }
            line = pass.below(line);
        }
        v.write(s, x, v.spacing, acc);
    }
}

/// Adds to the sums of a tile what the channels from `j` on give, as many as the source takes at a time, in a row of the kernel.
///
/// # Safety
/// The pixels' channels must be readable, and the weights of the row.
#[inline(always)]
unsafe fn add<S, T, F, const N: usize, const V: usize, const KERNEL: usize, const STRIDE: usize>(
    s: S,
    v: &Vectors<'_, T>,
    j: usize,
    pixels: &[*const T; MOST_PIXELS],
    weights: *const T,
    mut acc: [[S::F; N]; V],
) -> [[S::F; N]; V]
where
    S: Simd,
    T: Packed,
    F: Source,
{
    let (apart, step) = (v.apart(), v.step());
    // SAFETY: the caller's promise.
    unsafe {
        let source = F::of(s, &v.inputs, j);
        let weights = weights.add(j / T::DOT * KERNEL * step);
        let mut inputs = [s.zero(); MOST_PIXELS];
        if F::KEPT {
            for i in 0..(N - 1) * STRIDE + KERNEL {
                inputs[i] = F::load(&source, s, pixels[i]);
            }
        }
        for kx in 0..KERNEL {
            if !F::KEPT {
                for i in 0..N {
                    inputs[i * STRIDE + kx] = F::load(&source, s, pixels[i * STRIDE + kx]);
                }
            }
            for vector in 0..V {
                let weight = v.weight::<S, F>(s, weights.add(kx * step + vector * apart), j);
                for i in 0..N {
                    acc[vector][i] = F::multiply(s, inputs[i * STRIDE + kx], weight, acc[vector][i]);
                }
            }
        }
    }
    acc
}

/// Computes a line by any windows, four positions at a time where they are all within the image.
///
/// # Safety
/// As [`WindowPass::run`], for the line.
#[inline(always)]
unsafe fn in_any_form<S: Simd, T: Packed, F: Source, const V: usize>(s: S, v: &Vectors<'_, T>) {
    let w = &v.pass.windows;
    let whole = w.whole(1);
    let mut x = 0;
    while x < w.out[1] {
        // SAFETY: the caller's promise.
        x += unsafe {
            if whole.contains(&x) && whole.end - x >= 4 {
                tile_of_any::<S, T, F, 4, V>(s, v, x, 0..w.kernel[1])
            } else {
                tile_of_any::<S, T, F, 1, V>(s, v, x, w.inside(1, x))
            }
        };
    }
}

/// Computes N neighbouring output positions of V vectors from these positions of the kernel's lines, which are within the image. Gives N.
///
/// # Safety
/// As [`in_any_form`]; the columns must be within the image for all N positions.
#[inline(always)]
unsafe fn tile_of_any<S: Simd, T: Packed, F: Source, const N: usize, const V: usize>(
    s: S,
    v: &Vectors<'_, T>,
    x: usize,
    columns: Range<usize>,
) -> usize {
    let Vectors { pass, task, .. } = *v;
    let (w, g) = (&pass.windows, pass.group);
    let (rows, mut line) = pass.rows(task);
    // SAFETY: the caller's promise; all pixels are within the image and the channels below c.
    unsafe {
        let mut acc = v.start::<S, N, V>(s);
        for ky in rows {
            // The pixel under the kernel's first position; what is outside of the image is not read.
            let at = (line * w.size[1] + x * w.stride[1]).wrapping_sub(w.pad[1]);
            let first = pass.input.wrapping_add(at.wrapping_mul(pass.inputs));
            let of = (v.weights(ky), columns.clone());
            let whole = g - if F::ENDS { g % F::CHANNELS } else { 0 };
            for j in (0..whole).step_by(F::CHANNELS) {
                acc = add_columns::<S, T, F, N, V>(s, v, j, first, &of, acc);
            }
            if F::ENDS && whole < g {
                acc = add_columns::<S, T, F::Last, N, V>(s, v, whole, first, &of, acc);
            }
            line = pass.below(line);
        }
        v.write(s, x, 1, acc);
    }
    N
}

/// As [`add`], of these columns of the row; `first` is the pixel under its first column.
///
/// # Safety
/// As [`add`].
#[inline(always)]
unsafe fn add_columns<S: Simd, T: Packed, F: Source, const N: usize, const V: usize>(
    s: S,
    v: &Vectors<'_, T>,
    j: usize,
    first: *const T,
    (weights, columns): &(*const T, Range<usize>),
    mut acc: [[S::F; N]; V],
) -> [[S::F; N]; V] {
    let w = &v.pass.windows;
    // SAFETY: the caller's promise.
    unsafe {
        let source = F::of(s, &v.inputs, j);
        for kx in columns.clone() {
            let pixel = first.wrapping_add(kx * w.dilation[1] * v.pass.inputs);
            let weights = weights.add((j / T::DOT * w.kernel[1] + kx) * v.step());
            let mut inputs = [s.zero(); N];
            for (i, input) in inputs.iter_mut().enumerate() {
                *input = F::load(&source, s, pixel.wrapping_add(i * w.stride[1] * v.pass.inputs));
            }
            for vector in 0..V {
                let weight = v.weight::<S, F>(s, weights.add(vector * v.apart()), j);
                for i in 0..N {
                    acc[vector][i] = F::multiply(s, inputs[i], weight, acc[vector][i]);
                }
            }
        }
    }
    acc
}

impl<T: Packed> Vectors<'_, T> {
    /// Weights from one vector of filters to the next.
    #[inline(always)]
    fn apart(&self) -> usize {
        if self.pass.group == 1 { LANES } else { self.pass.windows.kernel[0] * self.row() }
    }

    /// Weights from one position of the kernel's line to the next.
    #[inline(always)]
    fn step(&self) -> usize {
        if self.pass.group == 1 { self.pass.windows.channels } else { T::DOT * LANES }
    }

    /// Weights of a row of the kernel.
    #[inline(always)]
    fn row(&self) -> usize {
        self.pass.group.div_ceil(T::DOT) * self.pass.windows.kernel[1] * self.step()
    }

    /// Those of a row of the kernel, of the first vector.
    #[inline(always)]
    fn weights(&self, ky: usize) -> *const T {
        self.pass.weights.wrapping_add(self.ch / LANES * self.apart() + ky * self.row())
    }

    /// The weights at `p` as the source's inputs are multiplied with: those of channel `j`, or of the pair that begins with it.
    ///
    /// # Safety
    /// The vector at `p` must be readable.
    #[inline(always)]
    unsafe fn weight<S: Simd, F: Source>(&self, s: S, p: *const T, j: usize) -> S::F {
        // SAFETY: the caller's promise; what is packed in pairs is in whole vectors.
        unsafe {
            if const { T::DOT == 1 } || self.pass.group == 1 {
                return T::load(s, p, self.inputs.lanes);
            }
            let pairs = s.load(p.cast());
            if const { F::CHANNELS == 2 } {
                pairs
            } else if j.is_multiple_of(2) {
                s.widen_bf16(s.bits(pairs))
            } else {
                s.from_bits(s.and_i(s.bits(pairs), s.splat_i(!0xffff)))
            }
        }
    }

    /// What sums start from.
    ///
    /// # Safety
    /// The bias must be readable.
    #[inline(always)]
    unsafe fn start<S: Simd, const N: usize, const V: usize>(&self, s: S) -> [[S::F; N]; V] {
        let mut acc = [[s.zero(); N]; V];
        if let Some(bias) = self.pass.bias {
            for (v, acc) in acc.iter_mut().enumerate() {
                // SAFETY: the caller's promise.
                *acc = [unsafe { T::load(s, bias.add(self.ch + v * LANES), self.inputs.lanes) }; N];
            }
        }
        acc
    }

    /// Writes the sums of the positions from `x` on, so far apart.
    ///
    /// # Safety
    /// The output must be writable there.
    #[inline(always)]
    unsafe fn write<S: Simd, const N: usize, const V: usize>(
        &self,
        s: S,
        x: usize,
        spacing: usize,
        mut acc: [[S::F; N]; V],
    ) {
        let w = &self.pass.windows;
        // SAFETY: the caller's promise.
        unsafe {
            let out = self.pass.output.add((self.task * w.out[1] + x) * w.channels + self.ch);
            if let Some(function) = self.light {
                function.apply::<S, T>(s, acc.as_flattened_mut());
            }
            for (v, acc) in acc.into_iter().enumerate() {
                for (i, x) in acc.into_iter().enumerate() {
                    T::store_sum(s, out.add(i * spacing * w.channels + v * LANES), self.inputs.lanes, x);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_computed_here_where_vectors_are_not_mostly_empty() {
        // Depthwise, with several filters of a channel, and equal powers of two; sizes of a matmul's tiles.
        let here =
            [[1, 1], [1, 9], [2, 2], [4, 4], [8, 8], [16, 16], [64, 64], [2, 17], [13, 22], [7, 1], [5, 32]];
        for [g, f] in here {
            assert!(takes(g, f), "{g} to {f}");
        }
        for [g, f] in [[0, 1], [1, 0], [56, 7], [65, 16], [128, 128], [20, 9], [16, 48], [48, 48]] {
            assert!(!takes(g, f), "{g} to {f}");
        }
        // Every place where a vector may begin.
        for (g, f) in (1..20).flat_map(|g| (1..70).map(move |f| (g, f))) {
            let spans = (0..f * LANES).step_by(LANES).map(|ch| ((ch + LANES - 1) / f - ch / f) * g + 1);
            assert_eq!(spans.max(), Some(span(g, f)), "{g} to {f}");
        }
    }
}
