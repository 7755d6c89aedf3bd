//! Interpolation along one axis of a block of slices.
//!
//! Slices are joined in vectors. Where a slice is one element, what is picked for sixteen neighbours of the result is mostly within a *window* of a few more
//! elements of the table, as where an image is enlarged: the vectors of a window are permuted. Otherwise elements are picked into scratch first.

use crate::kernels::gather::pick_each;
use crate::simd::{LANES, Simd};
use crate::window::copy_every;

/// How many bytes ahead of two slices the table is prefetched: what is read in turns is not a sequence that processors foresee.
const AHEAD: usize = 4 << 10;

/// Elements of a window, which [`look_up`](rlx_math::Lanes::look_up) permutes.
const WINDOW: usize = 2 * LANES;

/// Which slices are joined, and by how much of their difference.
pub(super) struct Along<'a> {
    places: [&'a [u32]; 2],
    steps: &'a [f32],
    /// Elements of a slice.
    len: usize,
    /// See [`distance`].
    every: [Option<usize>; 2],
    /// Whether results are between the elements of pairs, one after the other: an image is halved.
    pairs: bool,
    /// See [`find_windows`]; empty where there are none.
    windows: &'a [u32],
}

impl<'a> Along<'a> {
    /// Of blocks of `size` slices of `len` elements, to which all places belong; `windows` has room for where a window of each [`LANES`] results begins.
    pub(super) fn new(
        places: [&'a [u32]; 2],
        steps: &'a [f32],
        (size, len): (usize, usize),
        windows: &'a mut [u32],
    ) -> Along<'a> {
        let every = if len == 1 { places.map(distance) } else { [None; 2] };
        let pairs = every == [Some(2); 2] && places[1][0] == places[0][0] + 1;
        let windows = if len == 1 && !pairs && find_windows(places, size, windows) { &*windows } else { &[] };
        Along { places, steps, len, every, pairs, windows }
    }

    /// Elements of a block of the result.
    pub(super) fn elements(&self) -> usize {
        self.steps.len() * self.len
    }

    /// Slice number `i` of the result, of the block of the table at `x`; what is behind is fetched meanwhile, if it `FETCHES`.
    ///
    /// # Safety
    /// The block must be readable, and the result writable.
    #[inline(always)]
    pub(super) unsafe fn slice<S: Simd, const FETCHES: bool>(
        &self,
        s: S,
        x: *const f32,
        i: usize,
        out: *mut f32,
    ) {
        let [first, second] = self.places;
        let (a, b) =
            (x.wrapping_add(first[i] as usize * self.len), x.wrapping_add(second[i] as usize * self.len));
        let (step, whole) = (s.splat(self.steps[i]), self.len - self.len % LANES);
        // SAFETY: the caller's promise; places are within the block.
        unsafe {
            for at in (0..whole).step_by(LANES) {
                let (a, b) = (a.add(at), b.add(at));
                if FETCHES {
                    s.prefetch_l1(a.wrapping_byte_add(AHEAD));
                    s.prefetch_l1(b.wrapping_byte_add(AHEAD));
                }
                s.store(out.add(at), between(s, s.load(a), s.load(b), step));
            }
            if whole < self.len {
                let (a, b, n) = (a.add(whole), b.add(whole), self.len - whole);
                s.store_upto(out.add(whole), n, between(s, s.load_upto(a, n), s.load_upto(b, n), step));
            }
        }
    }

    /// All slices of a block of the result, of that of the table at `x`, which is in the cache.
    ///
    /// # Safety
    /// The block must be readable, that of the result writable, and the scratch have room for two of it where slices are single elements.
    #[inline(always)]
    pub(super) unsafe fn line<S: Simd>(&self, s: S, x: *const f32, out: *mut f32, scratch: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe {
            if self.len > 1 {
                for i in 0..self.steps.len() {
                    self.slice::<S, false>(s, x, i, out.wrapping_add(i * self.len));
                }
            } else if self.pairs {
                self.of_pairs(s, x, out);
            } else if self.windows.is_empty() || !self.of_windows(s, x, out) {
                self.of_picks(s, x, out, scratch);
            }
        }
    }

    /// A line of results between the elements of pairs.
    ///
    /// # Safety
    /// As [`Along::line`].
    #[inline(always)]
    unsafe fn of_pairs<S: Simd>(&self, s: S, x: *const f32, out: *mut f32) {
        let (count, x) = (self.steps.len(), x.wrapping_add(self.places[0][0] as usize));
        for at in (0..count).step_by(LANES) {
            let (n, from) = (LANES.min(count - at), x.wrapping_add(2 * at));
            let (low, high) = (LANES.min(2 * n), (2 * n).saturating_sub(LANES));
            // SAFETY: the caller's promise; pairs are within the table.
            unsafe {
                let pairs = (s.load_upto(from, low), s.load_upto(from.wrapping_add(LANES), high));
                let (a, b) = s.unzip(pairs.0, pairs.1);
                let step = s.load_upto(self.steps.as_ptr().add(at), n);
                s.store_upto(out.add(at), n, between(s, a, b, step));
            }
        }
    }

    /// A line of results between what is looked up in windows; false if the instruction set does not permute two vectors.
    ///
    /// # Safety
    /// As [`Along::line`], where there are windows.
    #[inline(always)]
    unsafe fn of_windows<S: Simd>(&self, s: S, x: *const f32, out: *mut f32) -> bool {
        let count = self.steps.len();
        let whole = count - count % LANES;
        // SAFETY: the caller's promise; there are `n` more places and steps, and room for as many results.
        unsafe {
            for (at, &start) in (0..whole).step_by(LANES).zip(self.windows) {
                let Some(y) = self.of_window(s, x, start, at, LANES) else { return false };
                s.store(out.add(at), y);
            }
            if let (true, Some(&start)) = (whole < count, self.windows.last()) {
                let Some(y) = self.of_window(s, x, start, whole, count - whole) else { return false };
                s.store_upto(out.add(whole), count - whole, y);
            }
        }
        true
    }

    /// `n` results from number `at` on, whose window begins at `start`.
    ///
    /// # Safety
    /// As [`Along::of_windows`].
    #[inline(always)]
    unsafe fn of_window<S: Simd>(
        &self,
        s: S,
        x: *const f32,
        start: u32,
        at: usize,
        n: usize,
    ) -> Option<S::F> {
        let [first, second] = self.places;
        // SAFETY: the caller's promise; windows are within the line.
        unsafe {
            let window = &*x.add(start as usize).cast::<[f32; WINDOW]>();
            let start = s.splat_i(start as i32);
            let (first, second) = (first.as_ptr().add(at).cast(), second.as_ptr().add(at).cast());
            let first = s.sub_i(s.bits(s.load_upto(first, n)), start);
            let second = s.sub_i(s.bits(s.load_upto(second, n)), start);
            let step = s.load_upto(self.steps.as_ptr().add(at), n);
            Some(between(s, s.look_up(window, first)?, s.look_up(window, second)?, step))
        }
    }

    /// A line of results between what is picked into scratch.
    ///
    /// # Safety
    /// As [`Along::line`].
    #[inline(always)]
    unsafe fn of_picks<S: Simd>(&self, s: S, x: *const f32, out: *mut f32, scratch: *mut f32) {
        let count = self.steps.len();
        let (a, b) = (scratch, scratch.wrapping_add(count));
        // SAFETY: the caller's promise.
        unsafe {
            for ((list, every), to) in self.places.iter().zip(self.every).zip([a, b]) {
                match every {
                    Some(step) => copy_every(s, x.wrapping_add(list[0] as usize), step, to, count),
                    None => pick_each::<f32>(x.cast(), size_of::<f32>() as isize, list, to.cast()),
                }
            }
            for at in (0..count).step_by(LANES) {
                let n = LANES.min(count - at);
                let step = s.load_upto(self.steps.as_ptr().add(at), n);
                let (a, b) = (s.load_upto(a.add(at), n), s.load_upto(b.add(at), n));
                s.store_upto(out.add(at), n, between(s, a, b, step));
            }
        }
    }
}

/// The distance between neighbours of the list where that is the same everywhere: by halving an image, every other pixel is picked.
fn distance(list: &[u32]) -> Option<usize> {
    let &[first, second, ..] = list else { return None };
    let step = second.checked_sub(first).filter(|&step| step > 0)?;
    list.windows(2).all(|pair| pair[1].checked_sub(pair[0]) == Some(step)).then_some(step as usize)
}

/// Finds where the window of each [`LANES`] neighbours of a line of `size` begins; false unless all have one.
fn find_windows([first, second]: [&[u32]; 2], size: usize, starts: &mut [u32]) -> bool {
    let Some(last) = size.checked_sub(WINDOW) else { return false };
    let neighbours = first.chunks(LANES).zip(second.chunks(LANES));
    neighbours.zip(starts).all(|((first, second), start)| {
        let places = || first.iter().chain(second).copied();
        let (lowest, highest) = (places().min().unwrap_or(0), places().max().unwrap_or(0));
        *start = lowest.min(last as u32);
        highest - *start < WINDOW as u32
    })
}

/// `a + (b − a)·step`, rounded three times.
#[inline(always)]
fn between<S: Simd>(s: S, a: S::F, b: S::F, step: S::F) -> S::F {
    s.add(a, s.mul(s.sub(b, a), step))
}
