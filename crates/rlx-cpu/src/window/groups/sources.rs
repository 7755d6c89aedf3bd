//! How lanes get the inputs of convolutions with few channels in a group, and how those are multiplied.
//!
//! A vector's lanes are filters, and each wants channel `j` of its own group: for the filters of one group that is one number for all, for several
//! groups that are neighbours a permutation. Pairs are two bf16 in a lane, of channels `j` and `j + 1`, for the instruction that
//! adds the products of both ([`Simd::dot_bf16`]).

use crate::gemm::Packed;
use crate::simd::{LANES, Simd};

/// Where the inputs of a vector's lanes are, or of two that have the same.
#[derive(Clone, Copy)]
pub(super) struct Inputs {
    /// Channels of a pixel, and of a group of them.
    pub(super) channels: usize,
    pub(super) group: usize,
    /// How many filters a vector has.
    pub(super) lanes: usize,
    /// The first input of the first filter's group.
    pub(super) first: usize,
    /// How far behind it the first input of each lane's group is, where those are several groups.
    pub(super) offsets: [i32; LANES],
}

impl Inputs {
    /// Finds the offsets of the lanes from filter `ch` on, of `f` in a group.
    #[inline(always)]
    pub(super) fn find_offsets(&mut self, f: usize, ch: usize) {
        let (g, mut left, mut offset) = (self.group, f - ch % f, 0);
        for lane in 0..LANES {
            if left == 0 {
                (left, offset) = (f, offset + g);
            }
            left -= 1;
            self.offsets[lane] = offset as i32;
        }
    }

    /// The offset of the last filter's group.
    #[inline(always)]
    fn last_offset(&self) -> usize {
        self.offsets[self.lanes - 1] as usize
    }

    /// Whether one permutation brings all lanes their inputs: of sixteen neighbours, or of eight where the instruction set has no other.
    #[inline(always)]
    pub(super) fn is_permutation<S: Simd>(&self) -> bool {
        let mut fits = self.last_offset() < LANES;
        if const { !S::PERMUTES_ALL } {
            fits &= self.loaded(self.group - 1).0 == self.first;
            for lane in 0..self.lanes {
                let (first, last) =
                    (self.offsets[lane] as usize, self.offsets[lane] as usize + self.group - 1);
                fits &= (first ^ lane) & 8 == 0 && (last ^ lane) & 8 == 0;
            }
        }
        fits
    }

    /// Where the sixteen channels begin that channel `j` of each group is among, and how far behind a group's first one it is there. As few
    /// different places as can be: loads from one that is no multiple of a vector take longer.
    #[inline(always)]
    pub(super) fn loaded(&self, j: usize) -> (usize, usize) {
        let all = self.last_offset() + self.group <= LANES;
        if all { (self.first, j) } else { (self.first + j, 0) }
    }
}

/// How lanes get their inputs: channel `j` of the group of each, or a pair of channels.
pub(super) trait Source {
    /// Channels that are multiplied at a time.
    const CHANNELS: usize = 1;
    /// Whether the number of channels need not be a multiple of those …
    const ENDS: bool = false;
    /// … and how the last one is brought then.
    type Last: Source;

    /// Whether inputs are kept for all positions of the kernel that they are in, since to bring them to their lanes costs more than to load them.
    const KEPT: bool;

    /// How there are tiles of windows of three pixels: none; with a step of one; with a step of two, too …
    const TILES: usize;
    /// … and whether they are long where there are registers for that.
    const LONG: bool;

    /// Where the inputs of a channel are.
    type At<S: Simd>: Copy;

    /// Where those of channel `j` are for these vectors.
    fn of<S: Simd>(s: S, v: &Inputs, j: usize) -> Self::At<S>;

    /// The inputs at a pixel.
    ///
    /// # Safety
    /// The pixel's channels must be readable.
    unsafe fn load<S: Simd, T: Packed>(at: &Self::At<S>, s: S, pixel: *const T) -> S::F;

    /// `acc` and the products of inputs and weights.
    #[inline(always)]
    fn multiply<S: Simd>(s: S, input: S::F, weight: S::F, acc: S::F) -> S::F {
        s.mul_add(input, weight, acc)
    }
}

/// Several groups, of neighbouring channels: which of sixteen each lane gets. Those are all of the pixel's where they `FILL` a vector.
pub(super) struct Permuted<const FILL: bool>;

/// Which of sixteen neighbours, or of as many as there are, the lanes get.
#[derive(Clone, Copy)]
pub(super) struct Neighbours<I> {
    first: usize,
    count: usize,
    from: I,
}

impl<const FILL: bool> Source for Permuted<FILL> {
    const KEPT: bool = true;
    const TILES: usize = 1;
    const LONG: bool = FILL;
    type Last = Self;
    type At<S: Simd> = Neighbours<S::I>;

    #[inline(always)]
    fn of<S: Simd>(s: S, v: &Inputs, j: usize) -> Neighbours<S::I> {
        let (first, behind) = v.loaded(j);
        let count = if FILL { LANES } else { LANES.min(v.channels - first) };
        Neighbours { first, count, from: s.add_i(offsets(s, v), s.splat_i(behind as i32)) }
    }
    #[inline(always)]
    unsafe fn load<S: Simd, T: Packed>(at: &Neighbours<S::I>, s: S, pixel: *const T) -> S::F {
        let count = if FILL { LANES } else { at.count };
        // SAFETY: the caller's promise.
        s.permute(unsafe { T::load(s, pixel.wrapping_add(at.first), count) }, at.from)
    }
}

/// As [`Permuted`], pairs of an even number of channels in a group.
pub(super) struct PermutedPairs<const FILL: bool>;

impl<const FILL: bool> Source for PermutedPairs<FILL> {
    const CHANNELS: usize = 2;
    const KEPT: bool = true;
    const TILES: usize = 1;
    const LONG: bool = FILL;
    type Last = Self;
    type At<S: Simd> = Neighbours<S::I>;

    #[inline(always)]
    fn of<S: Simd>(s: S, v: &Inputs, j: usize) -> Neighbours<S::I> {
        let (first, behind) = v.loaded(j);
        let from = s.add_i(s.shr_i::<1>(offsets(s, v)), s.splat_i(behind as i32 / 2));
        Neighbours { first, count: LANES.min(v.channels - first) / 2, from }
    }
    #[inline(always)]
    unsafe fn load<S: Simd, T: Packed>(at: &Neighbours<S::I>, s: S, pixel: *const T) -> S::F {
        let pairs = pixel.wrapping_add(at.first).cast();
        // SAFETY: the caller's promise: so many pairs of the pixel's channels.
        let pairs = unsafe { if FILL { s.load_half(pairs) } else { s.load_upto(pairs, at.count) } };
        s.permute(pairs, at.from)
    }
    #[inline(always)]
    fn multiply<S: Simd>(s: S, input: S::F, weight: S::F, acc: S::F) -> S::F {
        s.dot_bf16(acc, s.bits(input), s.bits(weight))
    }
}

#[inline(always)]
fn offsets<S: Simd>(s: S, v: &Inputs) -> S::I {
    // SAFETY: there are as many offsets as lanes.
    s.bits(unsafe { s.load(v.offsets.as_ptr().cast()) })
}

/// Several groups of more channels than a vector has: where each lane's channel is.
pub(super) struct Fetched;

/// Where the channels of so many lanes are.
#[derive(Clone, Copy)]
pub(super) struct Scattered {
    first: usize,
    lanes: usize,
    offsets: [i32; LANES],
}

impl Source for Fetched {
    const KEPT: bool = true;
    const TILES: usize = 0;
    const LONG: bool = false;
    type Last = Self;
    type At<S: Simd> = Scattered;

    #[inline(always)]
    fn of<S: Simd>(_: S, v: &Inputs, j: usize) -> Scattered {
        Scattered { first: v.first + j, lanes: v.lanes, offsets: v.offsets }
    }
    #[inline(always)]
    unsafe fn load<S: Simd, T: Packed>(at: &Scattered, s: S, pixel: *const T) -> S::F {
        let mut inputs = [0.0; LANES];
        let first = pixel.wrapping_add(at.first);
        for lane in 0..at.lanes {
            // SAFETY: the caller's promise.
            inputs[lane] = unsafe { (*first.wrapping_add(at.offsets[lane] as usize)).widen() };
        }
        // SAFETY: a vector of the array.
        unsafe { s.load(inputs.as_ptr()) }
    }
}

/// Vectors within a group: the channel that all lanes get.
pub(super) struct Splat;

impl Source for Splat {
    const KEPT: bool = false;
    const TILES: usize = 2;
    const LONG: bool = true;
    type Last = Self;
    type At<S: Simd> = usize;

    #[inline(always)]
    fn of<S: Simd>(_: S, v: &Inputs, j: usize) -> usize {
        v.first + j
    }
    #[inline(always)]
    unsafe fn load<S: Simd, T: Packed>(at: &usize, s: S, pixel: *const T) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { T::splat(s, pixel.wrapping_add(*at)) }
    }
}

/// As [`Splat`], the pair that all lanes get.
pub(super) struct SplatPairs;

impl Source for SplatPairs {
    const CHANNELS: usize = 2;
    const ENDS: bool = true;
    const KEPT: bool = false;
    const TILES: usize = 2;
    const LONG: bool = true;
    type Last = Splat;
    type At<S: Simd> = usize;

    #[inline(always)]
    fn of<S: Simd>(_: S, v: &Inputs, j: usize) -> usize {
        v.first + j
    }
    #[inline(always)]
    unsafe fn load<S: Simd, T: Packed>(at: &usize, s: S, pixel: *const T) -> S::F {
        // SAFETY: the caller's promise: two channels of the pixel.
        let pair = unsafe { pixel.wrapping_add(*at).cast::<f32>().read_unaligned() };
        s.splat(pair)
    }
    #[inline(always)]
    fn multiply<S: Simd>(s: S, input: S::F, weight: S::F, acc: S::F) -> S::F {
        // In this order, what is read for one vector is spread as it is read.
        s.dot_bf16(acc, s.bits(weight), s.bits(input))
    }
}
