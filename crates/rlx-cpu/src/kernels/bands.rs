//! Bands: neighbouring steps over images computed some lines at a time, so that what one hands to the next stays in the
//! cache (layer fusion; Alwani et al., "Fused-layer CNN accelerators", 2016).
//!
//! A 1 × 1 convolution to many channels, a depthwise one, and a 1 × 1 convolution to few write and read values that are far larger
//! than the second-level cache if each does the whole image. In bands, each [`Part`] computes the lines that the next one's windows
//! need and were not computed yet, into a ring buffer of the thread's that holds just those. The last part writes the
//! result. The elements are the same chains of multiply-adds in any case, so the bits are too.
//!
//! ```text
//! band 0: expand lines 0..5 → depthwise lines 0..4 → project lines 0..4
//! band 1: expand lines 5..9 → depthwise lines 4..8 → project lines 4..8
//! ```
//!
//! A thread computes a contiguous range of the result's lines. The lines that windows need beyond it, its neighbour
//! computes too.

mod part;

use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rlx_ir::clock::Instant;

use super::{RunCx, Shared};
use crate::isa::Isa;
use crate::layout::At;
use part::Lines;
pub(crate) use part::{Part, PartOf, Typed};

/// The most steps of a band.
pub(crate) const MOST_PARTS: usize = 4;

/// Values of fewer bytes than this stay in the second-level cache from step to step.
const LARGE: usize = 512 << 10;

/// What the lines of a band should take together: with the weights, less than a small second-level cache. Where one line needs more, it takes as
/// much as [`LARGE`].
const BUDGET: usize = 256 << 10;

/// Packed weights of more bytes than this are not read again for each band.
const MOST_WEIGHTS: usize = 128 << 10;

/// The lines of a band are at most such a part of what they stand for.
const LEAST_SAVED: usize = 4;

/// A thread's share has at least so many lines, and so many times those that its neighbour computes too.
const SHARE: usize = 8;

/// How a bound step computes lines of its result from lines of its first input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineForm {
    /// Images, and lines of an image before and after.
    pub(crate) images: usize,
    pub(crate) lines: [usize; 2],
    /// Bytes of a line, before and after, without gaps.
    pub(crate) bytes: [usize; 2],
    /// Whether lines of the input may be in a ring buffer. Otherwise the step is the first of its bands.
    pub(crate) takes_lines: bool,
    /// Whether the result's lines lie one behind the other.
    pub(crate) is_dense: bool,
    /// The windows along the lines.
    pub(crate) window: LineWindow,
    /// Bytes of packed weights.
    pub(crate) weights: usize,
    /// Where the first input and the result are.
    pub(crate) x: At,
    pub(crate) y: At,
}

/// Windows along the lines of an image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineWindow {
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) dilation: usize,
    /// Lines of padding above.
    pub(crate) before: usize,
}

impl LineWindow {
    /// The lines of an image of so many that these lines of the result need.
    pub(crate) fn reads(&self, lines: &Range<usize>, of: usize) -> Range<usize> {
        let LineWindow { kernel, stride, dilation, before } = *self;
        let first = (lines.start * stride).saturating_sub(before);
        let last = lines.end.saturating_sub(1) * stride + kernel.saturating_sub(1) * dilation + 1;
        let last = last.saturating_sub(before).min(of);
        first.min(last)..last
    }

    /// How many lines of an image of so many these lines of the result need at most.
    pub(crate) fn span(&self, lines: usize, of: usize) -> usize {
        let LineWindow { kernel, stride, dilation, .. } = *self;
        (lines.saturating_sub(1) * stride + kernel.saturating_sub(1) * dilation + 1).min(of)
    }
}

/// The dimension of images that bands are some indices of: lines (0), or of images of one line their pixels (1), which count as lines then.
pub(crate) fn axis(size: [usize; 2], out: [usize; 2]) -> usize {
    usize::from(size[0] == 1 && out[0] == 1)
}

impl LineForm {
    /// The lines of the input that these lines of the result need.
    fn reads(&self, lines: &Range<usize>) -> Range<usize> {
        self.window.reads(lines, self.lines[0])
    }

    /// How many lines of the input so many lines of the result need at most.
    fn span(&self, lines: usize) -> usize {
        self.window.span(lines, self.lines[0])
    }

    /// Bytes of the result without gaps.
    fn bytes_after(&self) -> usize {
        self.images * self.lines[1] * self.bytes[1]
    }

    /// Whether `next` reads what this step writes, line by line, and that is more than the cache keeps.
    fn joins(&self, next: &LineForm) -> bool {
        self.y == next.x
            && self.is_dense
            && next.takes_lines
            && (self.images, self.lines[1], self.bytes[1]) == (next.images, next.lines[0], next.bytes[0])
            && self.bytes_after() >= LARGE
    }
}

/// Steps that are computed in bands.
#[derive(Debug, Clone)]
pub(crate) struct Bands {
    forms: Vec<LineForm>,
    /// Lines of the result in a band.
    band: usize,
    /// For each part but the last: where its ring begins in a thread's scratch, and its lines.
    rings: Vec<(usize, usize)>,
    /// Bytes of a thread's scratch.
    pub(crate) scratch: usize,
}

impl Bands {
    /// The bands of the first of these steps, as many as are worth it; `None` if not even two are.
    pub(crate) fn of(forms: &[LineForm]) -> Option<Bands> {
        let joined = 1 + forms.windows(2).take_while(|pair| pair[0].joins(&pair[1])).count();
        (2..=joined.min(MOST_PARTS)).rev().find_map(|steps| Bands::of_all(&forms[..steps]))
    }

    fn of_all(forms: &[LineForm]) -> Option<Bands> {
        let (first, last) = (forms.first()?, forms.last()?);
        let weights: usize = forms.iter().map(|form| form.weights).sum();
        // The result may have to wait where the first step's would be.
        let fits = last.bytes_after() <= first.bytes_after();
        if weights > MOST_WEIGHTS || last.bytes_after() == 0 || !fits {
            return None;
        }
        // Where few lines are the whole image, nothing is saved.
        let saves = first.bytes_after() / LEAST_SAVED;
        let room = saves.min(BUDGET.saturating_sub(weights));
        // As many lines as there is room for; lines may be pixels, so there may be many.
        let (mut band, mut most) = (1, last.lines[1]);
        while band < most {
            let middle = most - (most - band) / 2;
            if Bands::rings(forms, middle).1 <= room { band = middle } else { most = middle - 1 }
        }
        let (rings, scratch) = Bands::rings(forms, band);
        (scratch <= saves.min(LARGE)).then(|| Bands { forms: forms.to_vec(), band, rings, scratch })
    }

    /// The rings that bands of so many lines need, and their bytes together.
    fn rings(forms: &[LineForm], band: usize) -> (Vec<(usize, usize)>, usize) {
        let (mut rings, mut lines, mut at) = (vec![(0, 0); forms.len() - 1], band, 0);
        for (ring, form) in rings.iter_mut().zip(&forms[1..]).rev() {
            lines = form.span(lines);
            *ring = (at, lines);
            at += (lines * form.bytes[0]).next_multiple_of(64);
        }
        (rings, at)
    }

    /// How many steps.
    pub(crate) fn len(&self) -> usize {
        self.forms.len()
    }

    /// Where the first step's result would be, and how many bytes: there the last one's waits while its own place is still read.
    pub(crate) fn spare(&self) -> (At, usize) {
        (self.forms[0].y, self.forms[0].bytes_after())
    }

    /// Whether the shares of so many threads are large beside the lines that they compute twice.
    pub(crate) fn suits(&self, threads: usize) -> bool {
        let enough = |form: &LineForm, least: usize| form.images * form.lines[1] >= SHARE * least * threads;
        let (mut twice, last) = (0, &self.forms[self.forms.len() - 1]);
        threads == 1
            || enough(last, 1)
                && self.forms.windows(2).rev().all(|pair| {
                    twice = pair[1].span(1 + twice).saturating_sub(pair[1].window.stride);
                    enough(&pair[0], twice)
                })
    }

    /// Computes the steps whose parts these are; gives how long each took on the calling thread if `timed`. `apart`: whether the result
    /// waits in [`Bands::spare`] until all else is done.
    ///
    /// # Safety
    /// As the run of each step. What the parts but the last write, nothing else reads. Where the result is written at first must not
    /// overlap what any of the parts reads but what the parts write.
    pub(crate) unsafe fn run(
        &self,
        cx: &mut RunCx<'_, '_>,
        parts: &[Option<Part>],
        apart: bool,
        timed: bool,
    ) -> [Duration; MOST_PARTS] {
        let (isa, last) = (cx.isa, self.forms.len() - 1);
        let form = &self.forms[last];
        let spare = cx.shared::<u8>(self.forms[0].y);
        let result = if apart { Lines::Apart(spare) } else { Lines::Own };
        let times = Mutex::new([Duration::ZERO; MOST_PARTS]);
        cx.parallel(true, form.images * form.lines[1], &|range, scratch| {
            // The caller has the first range.
            let mut own = (timed && range.start == 0).then_some([Duration::ZERO; MOST_PARTS]);
            let mut share = Share { bands: self, isa, parts, scratch, result, times: own.as_mut() };
            // SAFETY: the caller's promise; ranges are disjoint, and rings a thread's own.
            unsafe { share.run(range) };
            if let Some(own) = own {
                *times.lock().unwrap_or_else(PoisonError::into_inner) = own;
            }
        });
        if let (true, Some(part)) = (apart, &parts[last]) {
            // SAFETY: the caller's promise: the result is in the spare place, and nothing is read any more.
            unsafe { part.put(form, spare.get()) };
        }
        times.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread's share of the result.
struct Share<'a> {
    bands: &'a Bands,
    isa: Isa,
    parts: &'a [Option<Part>],
    scratch: *mut u8,
    result: Lines,
    times: Option<&'a mut [Duration; MOST_PARTS]>,
}

impl Share<'_> {
    /// Computes these lines of all images.
    unsafe fn run(&mut self, lines: Range<usize>) {
        let (forms, last) = (&self.bands.forms, self.bands.forms.len() - 1);
        let height = forms[last].lines[1];
        let mut next = lines.start;
        while next < lines.end {
            let (image, first) = (next / height, next % height);
            let end = height.min(first + lines.end - next);
            // Up to which line each part is computed.
            let mut done = [0; MOST_PARTS];
            for start in (first..end).step_by(self.bands.band) {
                let mut wanted = [const { 0..0 }; MOST_PARTS];
                wanted[last] = start..end.min(start + self.bands.band);
                for part in (0..last).rev() {
                    wanted[part] = forms[part + 1].reads(&wanted[part + 1]);
                }
                for (part, wanted) in wanted.into_iter().enumerate().take(last + 1) {
                    let lines = wanted.start.max(done[part])..wanted.end;
                    done[part] = done[part].max(wanted.end);
                    // SAFETY: the caller's promise; the parts before have computed what this one reads.
                    unsafe { self.part(part, image, lines) };
                }
            }
            next += end - first;
        }
    }

    /// Computes lines of a part, in pieces that are one behind the other where they are read and written.
    unsafe fn part(&mut self, part: usize, image: usize, mut lines: Range<usize>) {
        let Some(of) = &self.parts[part] else { return };
        let start = self.times.is_some().then(Instant::now);
        let ring = |part: usize| {
            let (at, lines) = self.bands.rings[part];
            Lines::Ring(Shared::new(self.scratch.wrapping_add(at)), lines)
        };
        let input = if part == 0 { Lines::Own } else { ring(part - 1) };
        let output = if part < self.bands.rings.len() { ring(part) } else { self.result };
        while !lines.is_empty() {
            let mut end = output.until(lines.start, lines.end);
            if of.reads_rows() {
                end = input.until(lines.start, end);
            }
            let form = &self.bands.forms[part];
            // SAFETY: the caller's promise.
            unsafe { of.run(self.isa, form, image, lines.start..end, [input, output]) };
            lines.start = end;
        }
        if let (Some(times), Some(start)) = (&mut self.times, start) {
            times[part] += start.elapsed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line for each.
    const ONE: LineWindow = LineWindow { kernel: 1, stride: 1, dilation: 1, before: 0 };

    /// The forms of a bottleneck over an image of `size`, whose windows are 3 × 3 with this step.
    fn bottleneck(size: [usize; 2], wide: usize, few: usize, stride: usize) -> [LineForm; 3] {
        let at = |buffer| At { buffer, offset: 0 };
        let after = size.map(|n| n.div_ceil(stride));
        let form = |number, lines, bytes, window, weights| LineForm {
            images: 1,
            lines,
            bytes,
            takes_lines: true,
            is_dense: true,
            window,
            weights,
            x: at(number),
            y: at(number + 1),
        };
        let window = LineWindow { kernel: 3, stride, dilation: 1, before: 1 };
        let line = |width: usize, channels: usize| width * channels * 4;
        [
            form(0, [size[0]; 2], [line(size[1], few), line(size[1], wide)], ONE, wide * few * 4),
            form(1, [size[0], after[0]], [line(size[1], wide), line(after[1], wide)], window, 36 * wide),
            form(2, [after[0]; 2], [line(after[1], wide), line(after[1], few)], ONE, wide * few * 4),
        ]
    }

    #[test]
    fn bands_are_for_large_values_light_weights_and_many_lines() {
        let bands = |size, wide, few| Bands::of(&bottleneck(size, wide, few, 1));
        let found = bands([112, 112], 64, 16).expect("a large image");
        assert_eq!(found.len(), 3);
        assert!(found.scratch <= BUDGET && found.band > 1);
        // Values that stay in the cache, weights that do not, and a single line.
        assert!(bands([14, 14], 96, 16).is_none());
        assert!(bands([56, 56], 1024, 256).is_none());
        assert!(bands([1, 12544], 96, 16).is_none());
    }

    #[test]
    fn a_step_that_makes_little_of_much_ends_the_bands() {
        let forms = bottleneck([112, 112], 32, 16, 4);
        let found = Bands::of(&forms).expect("two steps");
        assert_eq!(found.len(), 2, "what the windows hand on is small");
    }

    #[test]
    fn threads_with_small_shares_take_whole_steps() {
        let bands = Bands::of(&bottleneck([56, 56], 144, 24, 1)).expect("a large image");
        let suited: Vec<usize> = [1, 2, 3, 4, 8].into_iter().filter(|&n| bands.suits(n)).collect();
        assert_eq!(suited, [1, 2, 3]);
    }

    #[test]
    fn rings_hold_what_the_windows_of_a_band_need() {
        let forms = bottleneck([112, 112], 96, 16, 2);
        let (rings, bytes) = Bands::rings(&forms, 4);
        assert_eq!(rings.iter().map(|ring| ring.1).collect::<Vec<_>>(), [9, 4]);
        assert_eq!(bytes, 9 * 112 * 96 * 4 + 4 * 56 * 96 * 4);
        assert_eq!(forms[1].reads(&(0..4)), 0..8);
        assert_eq!(forms[1].reads(&(52..56)), 103..112);
    }
}
