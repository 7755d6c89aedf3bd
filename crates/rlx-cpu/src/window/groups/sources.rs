//! How lanes get the inputs of convolutions with few channels in a group, and how those are multiplied.
//!
//! A vector's lanes are filters, and each wants channel `j` of its own group: for the filters of one group that is one number for all, for several
//! groups that are neighbours a permutation. Pairs are two bf16 in a lane, of channels `j` and `j + 1`, for the instruction that
//! adds the products of both ([`Simd::dot_bf16`]).

use super::Vectors;
use crate::gemm::Packed;
use crate::simd::{LANES, Simd};

/// How lanes get their inputs: channel `j` of the group of each, or a pair of channels.
pub(super) trait Source<S: Simd>: Copy {
    /// Channels that are multiplied at a time.
    const CHANNELS: usize = 1;
    /// Whether the number of channels need not be a multiple of those: the last one is brought by another source then.
    const ENDS: bool = false;
    type Last: Source<S>;

    /// Whether inputs are kept for all positions of the kernel that they are in, since to bring them to their lanes costs more than to load them.
    const KEPT: bool;

    /// For these vectors.
    fn new<T: Packed>(s: S, v: &Vectors<'_, T>, j: usize) -> Self;

    /// The inputs at a pixel.
    ///
    /// # Safety
    /// The pixel's channels must be readable.
    unsafe fn load<T: Packed>(&self, s: S, pixel: *const T) -> S::F;

    /// `acc` and the products of inputs and weights.
    #[inline(always)]
    fn multiply(s: S, input: S::F, weight: S::F, acc: S::F) -> S::F {
        s.mul_add(input, weight, acc)
    }
}

/// Several groups, of neighbouring channels: which of sixteen each lane gets. Those are all of the pixel's where they are `WHOLE`.
#[derive(Clone, Copy)]
pub(super) struct Permuted<I, const WHOLE: bool> {
    first: usize,
    channels: usize,
    from: I,
}

impl<S: Simd, const WHOLE: bool> Source<S> for Permuted<S::I, WHOLE> {
    const KEPT: bool = true;
    type Last = Self;

    #[inline(always)]
    fn new<T: Packed>(s: S, v: &Vectors<'_, T>, j: usize) -> Self {
        let (first, behind) = v.loaded(j);
        let channels = if WHOLE { LANES } else { LANES.min(v.pass.inputs - first) };
        // SAFETY: there are as many offsets as lanes.
        let offsets = s.bits(unsafe { s.load(v.offsets.as_ptr().cast()) });
        Permuted { first, channels, from: s.add_i(offsets, s.splat_i(behind as i32)) }
    }
    #[inline(always)]
    unsafe fn load<T: Packed>(&self, s: S, pixel: *const T) -> S::F {
        // SAFETY: the caller's promise.
        s.permute(unsafe { T::load(s, pixel.wrapping_add(self.first), self.channels) }, self.from)
    }
}

/// As [`Permuted`], pairs of an even number of channels in a group.
#[derive(Clone, Copy)]
pub(super) struct PermutedPairs<I, const WHOLE: bool> {
    first: usize,
    pairs: usize,
    from: I,
}

impl<S: Simd, const WHOLE: bool> Source<S> for PermutedPairs<S::I, WHOLE> {
    const CHANNELS: usize = 2;
    const KEPT: bool = true;
    type Last = Self;

    #[inline(always)]
    fn new<T: Packed>(s: S, v: &Vectors<'_, T>, j: usize) -> Self {
        let (first, behind) = v.loaded(j);
        let pairs = if WHOLE { LANES / 2 } else { LANES.min(v.pass.inputs - first) / 2 };
        // SAFETY: there are as many offsets as lanes.
        let offsets = s.bits(unsafe { s.load(v.offsets.as_ptr().cast()) });
        let from = s.add_i(s.shr_i::<1>(offsets), s.splat_i(behind as i32 / 2));
        PermutedPairs { first, pairs, from }
    }
    #[inline(always)]
    unsafe fn load<T: Packed>(&self, s: S, pixel: *const T) -> S::F {
        let pairs = pixel.wrapping_add(self.first).cast();
        // SAFETY: the caller's promise: so many pairs of the pixel's channels.
        let pairs = unsafe { if WHOLE { s.load_half(pairs) } else { s.load_upto(pairs, self.pairs) } };
        s.permute(pairs, self.from)
    }
    #[inline(always)]
    fn multiply(s: S, input: S::F, weight: S::F, acc: S::F) -> S::F {
        s.dot_bf16(acc, s.bits(input), s.bits(weight))
    }
}

/// Several groups of more channels than a vector has: where each lane's channel is.
#[derive(Clone, Copy)]
pub(super) struct Fetched {
    first: usize,
    lanes: usize,
    offsets: [i32; LANES],
}

impl<S: Simd> Source<S> for Fetched {
    const KEPT: bool = true;
    type Last = Self;

    #[inline(always)]
    fn new<T: Packed>(_: S, v: &Vectors<'_, T>, j: usize) -> Self {
        Fetched { first: v.first + j, lanes: v.lanes, offsets: v.offsets }
    }
    #[inline(always)]
    unsafe fn load<T: Packed>(&self, s: S, pixel: *const T) -> S::F {
        let mut inputs = [0.0; LANES];
        let first = pixel.wrapping_add(self.first);
        for lane in 0..self.lanes {
            // SAFETY: the caller's promise.
            inputs[lane] = unsafe { (*first.wrapping_add(self.offsets[lane] as usize)).widen() };
        }
        // SAFETY: a vector of the array.
        unsafe { s.load(inputs.as_ptr()) }
    }
}

/// Vectors within a group: the channel that all lanes get.
#[derive(Clone, Copy)]
pub(super) struct Splat(usize);

impl<S: Simd> Source<S> for Splat {
    const KEPT: bool = false;
    type Last = Self;

    #[inline(always)]
    fn new<T: Packed>(_: S, v: &Vectors<'_, T>, j: usize) -> Self {
        Splat(v.first + j)
    }
    #[inline(always)]
    unsafe fn load<T: Packed>(&self, s: S, pixel: *const T) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { T::splat(s, pixel.wrapping_add(self.0)) }
    }
}

/// As [`Splat`], the pair that all lanes get.
#[derive(Clone, Copy)]
pub(super) struct SplatPairs(usize);

impl<S: Simd> Source<S> for SplatPairs {
    const CHANNELS: usize = 2;
    const ENDS: bool = true;
    const KEPT: bool = false;
    type Last = Splat;

    #[inline(always)]
    fn new<T: Packed>(_: S, v: &Vectors<'_, T>, j: usize) -> Self {
        SplatPairs(v.first + j)
    }
    #[inline(always)]
    unsafe fn load<T: Packed>(&self, s: S, pixel: *const T) -> S::F {
        // SAFETY: the caller's promise: two channels of the pixel.
        let pair = unsafe { pixel.wrapping_add(self.0).cast::<f32>().read_unaligned() };
        s.splat(pair)
    }
    #[inline(always)]
    fn multiply(s: S, input: S::F, weight: S::F, acc: S::F) -> S::F {
        // In this order, what is read for one vector is spread as it is read.
        s.dot_bf16(acc, s.bits(weight), s.bits(input))
    }
}
