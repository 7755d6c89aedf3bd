//! Convolution with few channels in a group: a vector of sixteen results has whole groups, or is within one. The first convolution of a
//! net for pictures is one, too: a single group of three channels.
//!
//! A result is the sum over the window's lines, then the channels of its group, then the positions of the line. In that order a line's inputs
//! are brought to their lanes once and multiplied by the weights of all positions that they are in. Lane `l` wants channel `j` of *its* group:
//! a permutation of sixteen channels where groups are smaller than a vector (lane `l` gets lane `l / g · g + j`), one number in all lanes
//! elsewhere.
//!
//! Weights are `[channels / 16, kernel_h, g, kernel_w, 16]`, with zeros behind the last channel: those of a vector lie one behind the other.
//! Some lines are computed for one vector of channels after the other, so the weights of one vector stay in the first-level cache.

use std::ops::Range;

use super::{WindowPass, Windows, tile_width};
use crate::gemm::Packed;
use crate::math::{Light, Unary};
use crate::simd::{LANES, Simd};

/// The largest group that is computed here; larger ones fill the tiles of a matmul.
const LARGEST: usize = 64;

/// Bytes of the lines that are computed for all channels before the next: the weights of all channels are read again for each such block.
const BLOCK: usize = 512 << 10;

/// The most channels of an image that are computed here as one group; from 5 on, a matmul of the windows is as fast.
pub(crate) const FEW: usize = 4;

/// Whether several groups of `g` channels, in and out, are computed here; 1 is a depthwise convolution.
pub(crate) fn takes(g: usize) -> bool {
    g >= 1 && (LANES.is_multiple_of(g) || g.is_multiple_of(LANES) && g <= LARGEST)
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

/// Whether vectors are within a group.
#[inline(always)]
fn is_within<T>(pass: &WindowPass<T>) -> bool {
    pass.group >= LANES || pass.group == pass.inputs
}

/// Whether two vectors that are beside each other are of the same group, and there are registers for both.
#[inline(always)]
fn shares<S: Simd, T>(pass: &WindowPass<T>) -> bool {
    let group = pass.windows.channels / (pass.inputs / pass.group).max(1);
    S::GEMM_ROWS > 6 && is_within(pass) && group.is_multiple_of(2 * LANES)
}

/// Computes one vector of an output line, or two. What is not `WHOLE` is the rest of the channels.
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
    let v = Vectors { pass, task, ch, lanes, light };
    // SAFETY: the caller's promise.
    unsafe {
        if !is_within(pass) {
            narrow::<S, T, WHOLE>(s, &v);
        } else if shares::<S, T>(pass) {
            within::<S, T, 2>(s, &v);
        } else {
            within::<S, T, 1>(s, &v);
        }
    }
}

/// One vector of channels of an output line, or two, and what they are computed of.
struct Vectors<'a, T> {
    pass: &'a WindowPass<T>,
    task: usize,
    ch: usize,
    lanes: usize,
    light: Option<Light>,
}

/// Computes a line in tiles of equal width. The last one may begin before the end of the one before it; what both compute is the same.
macro_rules! in_tiles {
    ($s:expr, $v:expr, $source:ty, $vectors:ident, $kernel:literal, $stride:literal; $($n:literal)*) => {{
        let width = $v.pass.windows.out[1];
        match tile_width(width, [$($n),*]) {
            $(Some($n) => for at in 0..width.div_ceil($n) {
                let x = (at * $n).min(width - $n);
                // SAFETY: the caller's promise.
                unsafe { tile::<S, T, $source, $n, $vectors, $kernel, $stride>($s, $v, x) };
            },)*
            // SAFETY: the caller's promise.
            _ => unsafe { in_any_form::<S, T, $source, $vectors>($s, $v) },
        }
    }};
}

/// Computes a line of one vector whose groups are smaller than it.
#[inline(always)]
unsafe fn narrow<S: Simd, T: Packed, const WHOLE: bool>(s: S, v: &Vectors<'_, T>) {
    const V: usize = 1;
    let wide = S::GEMM_ROWS > 6;
    match dense(&v.pass.windows) {
        Some((3, 1)) if WHOLE && wide => in_tiles!(s, v, Permuted<S::I>, V, 3, 1; 8 7 4),
        Some((3, 2)) if WHOLE && wide => in_tiles!(s, v, Permuted<S::I>, V, 3, 2; 7 4),
        Some((3, 1)) => in_tiles!(s, v, Permuted<S::I>, V, 3, 1; 4),
        // SAFETY: the caller's promise.
        _ => unsafe { in_any_form::<S, T, Permuted<S::I>, 1>(s, v) },
    }
}

/// Computes a line of V vectors within a group.
#[inline(always)]
unsafe fn within<S: Simd, T: Packed, const V: usize>(s: S, v: &Vectors<'_, T>) {
    let wide = S::GEMM_ROWS > 6;
    match dense(&v.pass.windows) {
        Some((3, 1)) if wide => in_tiles!(s, v, Splat, V, 3, 1; 8 7 4),
        Some((3, 2)) if wide => in_tiles!(s, v, Splat, V, 3, 2; 7 4),
        Some((3, 1)) => in_tiles!(s, v, Splat, V, 3, 1; 4),
        Some((3, 2)) => in_tiles!(s, v, Splat, V, 3, 2; 4),
        // SAFETY: the caller's promise.
        _ => unsafe { in_any_form::<S, T, Splat, V>(s, v) },
    }
}

/// The pixels in a line of windows without gaps, and their step.
fn dense(w: &Windows) -> Option<(usize, usize)> {
    (w.dilation[1] == 1).then_some((w.kernel[1], w.stride[1]))
}

/// Zeros that stand for a pixel's group where that is in the padding.
static ZEROS: [u32; LARGEST] = [0; LARGEST];

/// The most pixels that a tile reads of a line: of 8 windows of 3 that are 2 apart.
const MOST_PIXELS: usize = 17;

/// Computes N neighbouring output positions of V vectors, whose inputs are the same where V is 2, by windows without gaps in a line. Each pixel is brought to the lanes once for all positions that it is in.
#[inline(always)]
unsafe fn tile<S, T, F, const N: usize, const V: usize, const KERNEL: usize, const STRIDE: usize>(
    s: S,
    v: &Vectors<'_, T>,
    x: usize,
) where
    S: Simd,
    T: Packed,
    F: Source<S>,
{
    let Vectors { pass, task, lanes, .. } = *v;
    let (w, g, count) = (&pass.windows, pass.group, (N - 1) * STRIDE + KERNEL);
    let (c, apart) = (pass.inputs, v.apart());
    let first = v.first_input();
    let zeros = ZEROS.as_ptr().cast::<T>().wrapping_sub(first);
    let left = (x * STRIDE) as isize - w.pad[1] as isize;
    let (rows, mut line) = pass.rows(task);
    // SAFETY: the caller's promise; all pixels are within the image or are the zeros, and the channels below c.
    unsafe {
        let mut acc = v.start::<S, N, V>(s);
        for ky in rows {
            let mut pixels = [zeros; MOST_PIXELS];
            for (i, pixel) in pixels.iter_mut().enumerate().take(count) {
                // Negative positions become huge.
                let at = (left + i as isize) as usize;
                if at < w.size[1] {
                    *pixel = pass.input.wrapping_add((line * w.size[1] + at) * c);
                }
            }
            let weights = v.weights(ky);
            for j in 0..g {
                let source = F::new(s, g, j, first, lanes);
                let weights = weights.add(j * KERNEL * LANES);
                let mut inputs = [s.zero(); MOST_PIXELS];
                if F::KEPT {
                    for i in 0..count {
                        inputs[i] = source.load(s, pixels[i]);
                    }
                }
                for kx in 0..KERNEL {
                    if !F::KEPT {
                        for i in 0..N {
                            inputs[i * STRIDE + kx] = source.load(s, pixels[i * STRIDE + kx]);
                        }
                    }
                    for v in 0..V {
                        let weight = T::load(s, weights.add(kx * LANES + v * apart), LANES);
                        for i in 0..N {
                            acc[v][i] = s.mul_add(inputs[i * STRIDE + kx], weight, acc[v][i]);
                        }
                    }
                }
            }
            line = pass.below(line);
        }
        v.write(s, x, acc);
    }
}

/// Computes a line by any windows, four positions at a time where they are all within the image.
#[inline(always)]
unsafe fn in_any_form<S: Simd, T: Packed, F: Source<S>, const V: usize>(s: S, v: &Vectors<'_, T>) {
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
#[inline(always)]
unsafe fn tile_of_any<S: Simd, T: Packed, F: Source<S>, const N: usize, const V: usize>(
    s: S,
    v: &Vectors<'_, T>,
    x: usize,
    columns: Range<usize>,
) -> usize {
    let Vectors { pass, task, lanes, .. } = *v;
    let (w, g) = (&pass.windows, pass.group);
    let (c, apart) = (pass.inputs, v.apart());
    let (rows, mut line) = pass.rows(task);
    // SAFETY: the caller's promise; all pixels are within the image and the channels below c.
    unsafe {
        let mut acc = v.start::<S, N, V>(s);
        for ky in rows {
            for j in 0..g {
                let source = F::new(s, g, j, v.first_input(), lanes);
                for kx in columns.clone() {
                    let at = line * w.size[1] + x * w.stride[1] + kx * w.dilation[1] - w.pad[1];
                    let pixel = pass.input.wrapping_add(at * c);
                    let weights = v.weights(ky).add((j * w.kernel[1] + kx) * LANES);
                    let mut inputs = [s.zero(); N];
                    for (i, input) in inputs.iter_mut().enumerate() {
                        *input = source.load(s, pixel.wrapping_add(i * w.stride[1] * c));
                    }
                    for v in 0..V {
                        let weight = T::load(s, weights.add(v * apart), LANES);
                        for i in 0..N {
                            acc[v][i] = s.mul_add(inputs[i], weight, acc[v][i]);
                        }
                    }
                }
            }
            line = pass.below(line);
        }
        v.write(s, x, acc);
    }
    N
}

impl<T: Packed> Vectors<'_, T> {
    /// The first channel of the input that is read.
    #[inline(always)]
    fn first_input(&self) -> usize {
        let pass = self.pass;
        if !is_within(pass) {
            return self.ch;
        }
        let filters = pass.windows.channels / (pass.inputs / pass.group).max(1);
        self.ch / filters * pass.group
    }

    /// Weights of a vector of channels.
    #[inline(always)]
    fn apart(&self) -> usize {
        self.pass.windows.kernel[0] * self.pass.group * self.pass.windows.kernel[1] * LANES
    }

    /// Those of a row of the kernel, of the first vector.
    #[inline(always)]
    fn weights(&self, ky: usize) -> *const T {
        let row = self.pass.group * self.pass.windows.kernel[1] * LANES;
        self.pass.weights.wrapping_add(self.ch / LANES * self.apart() + ky * row)
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
                *acc = [unsafe { T::load(s, bias.add(self.ch + v * LANES), self.lanes) }; N];
            }
        }
        acc
    }

    /// Writes the sums of the positions from `x` on.
    ///
    /// # Safety
    /// The output must be writable there.
    #[inline(always)]
    unsafe fn write<S: Simd, const N: usize, const V: usize>(&self, s: S, x: usize, mut acc: [[S::F; N]; V]) {
        let w = &self.pass.windows;
        // SAFETY: the caller's promise.
        unsafe {
            let out = self.pass.output.add((self.task * w.out[1] + x) * w.channels + self.ch);
            if let Some(function) = self.light {
                function.apply::<S, T>(s, acc.as_flattened_mut());
            }
            for (v, acc) in acc.into_iter().enumerate() {
                for (i, x) in acc.into_iter().enumerate() {
                    T::store_sum(s, out.add(i * w.channels + v * LANES), self.lanes, x);
                }
            }
        }
    }
}

/// How lanes get their inputs: channel `j` of the group of each.
trait Source<S: Simd>: Copy {
    /// Whether inputs are kept for all positions of the kernel that they are in, since to bring them to their lanes costs more than to load them.
    const KEPT: bool;

    /// Of groups of `g`, for `lanes` channels; `first` is the first of the input.
    fn new(s: S, g: usize, j: usize, first: usize, lanes: usize) -> Self;

    /// The inputs at a pixel.
    ///
    /// # Safety
    /// The pixel's channels must be readable.
    unsafe fn load<T: Packed>(&self, s: S, pixel: *const T) -> S::F;
}

/// Groups within a vector: which of the channels each lane gets.
#[derive(Clone, Copy)]
struct Permuted<I> {
    ch: usize,
    lanes: usize,
    from: I,
}

impl<S: Simd> Source<S> for Permuted<S::I> {
    const KEPT: bool = true;

    #[inline(always)]
    fn new(s: S, g: usize, j: usize, ch: usize, lanes: usize) -> Self {
        let first = s.and_i(s.iota(), s.splat_i(!(g as i32 - 1)));
        Permuted { ch, lanes, from: s.add_i(first, s.splat_i(j as i32)) }
    }
    #[inline(always)]
    unsafe fn load<T: Packed>(&self, s: S, pixel: *const T) -> S::F {
        // SAFETY: the caller's promise.
        s.permute(unsafe { T::load(s, pixel.wrapping_add(self.ch), self.lanes) }, self.from)
    }
}

/// Vectors within a group: the channel that all lanes get.
#[derive(Clone, Copy)]
struct Splat(usize);

impl<S: Simd> Source<S> for Splat {
    const KEPT: bool = false;

    #[inline(always)]
    fn new(_: S, _: usize, j: usize, first: usize, _: usize) -> Self {
        Splat(first + j)
    }
    #[inline(always)]
    unsafe fn load<T: Packed>(&self, s: S, pixel: *const T) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { T::splat(s, pixel.wrapping_add(self.0)) }
    }
}
