//! What is moved towards the caches while something is multiplied.
//!
//! The next panel's words go into the second-level cache, at a pace that spreads them over the tiles of this one ([`Prefetch`]). A panel's next rows of
//! words go into the first-level cache ([`fetch_row`]), and so do the places of results that are far away ([`fetch_result`]).

use super::panels::{PANEL, vector_at};
use crate::simd::{LANES, Simd};

/// Steps of depth that a row of the panel is moved into the first-level cache ahead of its use. A panel is read from the
/// second-level cache for each tile of rows, and what the processor fetches by itself comes late where two multiply-adds
/// are made in a cycle (5 to 15 % of a product on Cascade Lake: docs/performance/models.md).
pub(super) const AHEAD: usize = 8;

/// Memory to bring near while something is multiplied, a few lines at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prefetch {
    ptr: *const f32,
    end: *const f32,
    /// Lines per group of steps of depth.
    per_group: usize,
    /// Bytes per step.
    per_step: usize,
}

/// Steps of depth between two calls of [`Prefetch::step`].
pub(super) const GROUP: usize = 8;

/// Elements of a cache line.
const LINE: usize = 16;

impl Prefetch {
    pub(super) const NONE: Prefetch = Prefetch::new(std::ptr::null(), 0);

    pub(super) const fn new(ptr: *const f32, len: usize) -> Prefetch {
        Prefetch { ptr, end: ptr.wrapping_add(len), per_group: 0, per_step: 0 }
    }

    /// Spreads what is to be fetched over `steps` steps of depth: every line, at an even pace.
    pub(super) fn spread(&mut self, steps: usize) {
        let bytes = self.end as usize - self.ptr as usize;
        if bytes == 0 {
            return;
        }
        self.per_group = bytes.div_ceil(LINE * 4).div_ceil((steps / GROUP).max(1));
        self.per_step = bytes.div_ceil(steps.max(1));
    }

    /// The same at each step of depth; `mapped` is memory to ask for where there is nothing to fetch.
    #[inline(always)]
    pub(super) fn pace(&self, mapped: *const f32) -> Evenly {
        match self.ptr < self.end {
            true => Evenly { ptr: self.ptr, each: self.per_step },
            false => Evenly { ptr: mapped, each: 0 },
        }
    }

    /// Whether [`pace`](Prefetch::pace) reaches every line.
    #[inline(always)]
    pub(super) fn is_slow(&self) -> bool {
        self.per_step <= LINE * 4
    }

    /// Stops what has fetched all: to be called every few steps.
    #[inline(always)]
    pub(super) fn check(&mut self, evenly: &mut Evenly, mapped: *const f32) {
        if (self.ptr < self.end) & (evenly.ptr >= self.end) {
            self.ptr = self.end;
            *evenly = self.pace(mapped);
        }
    }

    /// Goes on where `evenly` is.
    #[inline(always)]
    pub(super) fn resume(&mut self, evenly: Evenly) {
        if self.ptr < self.end {
            self.ptr = evenly.ptr;
        }
    }

    /// Fetches the lines of a [`GROUP`] of steps.
    #[inline(always)]
    pub(super) fn step<S: Simd>(&mut self, s: S) {
        if self.ptr < self.end {
            for _ in 0..self.per_group {
                s.prefetch_l2(self.ptr);
                self.ptr = self.ptr.wrapping_add(LINE);
            }
        }
    }
}

/// Memory that is brought near at each step of depth: the same two instructions whatever there is to fetch.
///
/// What is asked for has to be mapped memory, since to look for other memory would take its time. So where there is nothing to fetch it is a line that is
/// used anyway, and what is behind the end is not asked for long ([`Prefetch::check`]).
#[derive(Debug, Clone, Copy)]
pub(super) struct Evenly {
    ptr: *const f32,
    /// Bytes for each step.
    each: usize,
}

impl Evenly {
    /// Fetches what is due at a step.
    #[inline(always)]
    pub(super) fn step<S: Simd>(&mut self, s: S) {
        s.prefetch_l2(self.ptr);
        self.ptr = self.ptr.wrapping_byte_add(self.each);
    }
}

/// Results of more bytes are not in the second-level cache when they are written, whatever the processor: lines that are there are not worth asking for.
pub(super) const FAR: usize = 2 << 20;

/// Starts moving R rows of V vectors of a result into the first-level cache, before they are computed: what is written to lines that are far away
/// waits for one after the other.
#[inline(always)]
pub(super) fn fetch_result<S: Simd, O, const R: usize, const V: usize>(s: S, c: *mut O, stride: usize) {
    for r in 0..R {
        for at in (0..V * LANES).step_by(64 / size_of::<O>()) {
            s.prefetch_l1(c.wrapping_add(r * stride + at).cast());
        }
    }
}

/// Tiles of fewer rows wait for memory, not for the second-level cache.
pub(super) const FETCH_FROM: usize = 3;

/// Starts moving V vectors of a row of a panel into the first-level cache.
#[inline(always)]
pub(super) fn fetch_row<S: Simd, const V: usize>(s: S, row: *const f32) {
    for v in 0..V {
        s.prefetch_l1(row.wrapping_add(v * LANES));
    }
}

/// Starts moving V vectors of the row of words that is used [`AHEAD`] steps after `words` into the first-level cache; those that the panel has not are of the next,
/// `far` behind.
#[inline(always)]
pub(super) fn fetch_words<S: Simd, const V: usize>(s: S, words: *const f32, far: usize) {
    for v in 0..V {
        s.prefetch_l1(words.wrapping_add(AHEAD * PANEL + vector_at(v, far)));
    }
}
