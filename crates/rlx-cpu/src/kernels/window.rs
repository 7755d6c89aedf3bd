//! A window sliding over one spatial dimension, for the plain kernels of convolution and pooling.
//!
//! Tap `t` of window `o` is at `o·stride + t·dilation − before` of the dimension it slides over. All ranges
//! of taps and windows are found by arithmetic, so loops within them check nothing.

use std::ops::Range;

use super::mismatch;
use crate::layout::Layout;
use rlx_ir::Result;

/// The most spatial dimensions; fewer get dimensions of 1 in front.
pub(crate) const SPATIAL: usize = 3;

/// Windows along one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowAxis {
    /// Elements that the window slides over, and how far apart they are.
    pub(crate) size: usize,
    pub(crate) step: isize,
    /// Windows, and how far apart what belongs to them is.
    pub(crate) windows: usize,
    pub(crate) window_step: isize,
    pub(crate) taps: usize,
    pub(crate) stride: usize,
    pub(crate) dilation: usize,
    pub(crate) before: usize,
    pub(crate) after: usize,
}

impl WindowAxis {
    const ONE: WindowAxis = WindowAxis {
        size: 1,
        step: 0,
        windows: 1,
        window_step: 0,
        taps: 1,
        stride: 1,
        dilation: 1,
        before: 0,
        after: 0,
    };

    /// Where tap `tap` of window `window` lies; may be outside.
    #[inline(always)]
    pub(crate) fn position(&self, window: usize, tap: usize) -> isize {
        (window * self.stride + tap * self.dilation) as isize - self.before as isize
    }

    /// The taps of a window that are before `end` elements, without those before the first one.
    #[inline(always)]
    fn taps_before(&self, window: usize, end: usize) -> Range<usize> {
        let first = self.position(window, 0);
        let from = if first < 0 { first.unsigned_abs().div_ceil(self.dilation) } else { 0 };
        let left = (end as isize - first).max(0) as usize;
        from..left.div_ceil(self.dilation).clamp(from, self.taps.max(from))
    }

    /// The taps of a window that are inside.
    #[inline(always)]
    pub(crate) fn taps_inside(&self, window: usize) -> Range<usize> {
        let r = self.taps_before(window, self.size);
        r.start.min(self.taps)..r.end.min(self.taps)
    }

    /// How many taps of a window are inside or in the padding.
    pub(crate) fn taps_padded(&self, window: usize) -> usize {
        let left = (self.size + self.after) as isize - self.position(window, 0);
        (left.max(0) as usize).div_ceil(self.dilation).min(self.taps)
    }

    /// The windows whose tap `tap` is in `place`.
    #[inline(always)]
    pub(crate) fn windows_at(&self, tap: usize, place: Range<usize>) -> Range<usize> {
        let first = self.position(0, tap);
        let reach =
            |end: usize| ((end as isize - first).max(0) as usize).div_ceil(self.stride).min(self.windows);
        let (from, to) = (reach(place.start), reach(place.end));
        from..to.max(from)
    }

    /// The window whose tap `tap` is at `place`.
    #[inline(always)]
    pub(crate) fn window_at(&self, tap: usize, place: usize) -> Option<usize> {
        let range = self.windows_at(tap, place..place + 1);
        (!range.is_empty()).then_some(range.start)
    }
}

/// An op's attributes: those of spatial dimension `i`.
#[derive(Debug, Clone)]
pub(crate) struct Attributes {
    pub(crate) strides: Vec<usize>,
    pub(crate) pads: Vec<usize>,
    pub(crate) dilations: Vec<usize>,
}

impl Attributes {
    /// The windows over `over`'s spatial dimensions, which begin at `first`, that make those of `windows`.
    pub(crate) fn slides(
        &self,
        over: &Layout,
        windows: &Layout,
        first: usize,
        kernel: &[usize],
    ) -> Result<[WindowAxis; SPATIAL]> {
        let n = kernel.len();
        let known = [self.strides.len(), self.dilations.len()] == [n; 2] && self.pads.len() == 2 * n;
        if !known || n > SPATIAL || over.rank() != n + 2 || windows.rank() != n + 2 {
            return Err(mismatch(format!("a kernel {kernel:?} over {:?}", over.dims())));
        }
        let mut slides = [WindowAxis::ONE; SPATIAL];
        for (i, slide) in slides[SPATIAL - n..].iter_mut().enumerate() {
            *slide = WindowAxis {
                size: over.dims()[first + i],
                step: over.strides()[first + i],
                windows: windows.dims()[first + i],
                window_step: windows.strides()[first + i],
                taps: kernel[i],
                stride: self.strides[i],
                dilation: self.dilations[i],
                before: self.pads[i],
                after: self.pads[n + i],
            };
        }
        Ok(slides)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_what_trying_all_finds() {
        for stride in 1..4 {
            for dilation in 1..4 {
                for before in 0..4 {
                    for size in 0..6 {
                        let s = WindowAxis {
                            size,
                            windows: 5,
                            taps: 3,
                            stride,
                            dilation,
                            before,
                            after: 1,
                            ..WindowAxis::ONE
                        };
                        check(&s);
                    }
                }
            }
        }
    }

    fn check(s: &WindowAxis) {
        let inside = |place: isize, end: usize| place >= 0 && place < end as isize;
        for o in 0..5 {
            let want: Vec<usize> = (0..3).filter(|&t| inside(s.position(o, t), s.size)).collect();
            assert_eq!(s.taps_inside(o).collect::<Vec<_>>(), want, "{s:?} {o}");
            let padded = (0..3).filter(|&t| s.position(o, t) < (s.size + 1) as isize).count();
            assert_eq!(s.taps_padded(o), padded, "{s:?} {o}");
        }
        for t in 0..3 {
            for from in 0..s.size {
                let want: Vec<usize> = (0..5)
                    .filter(|&o| (from as isize..s.size as isize).contains(&s.position(o, t)))
                    .collect();
                assert_eq!(s.windows_at(t, from..s.size).collect::<Vec<_>>(), want, "{s:?} {t} {from}");
                let want = (0..5).find(|&o| s.position(o, t) == from as isize);
                assert_eq!(s.window_at(t, from), want, "{s:?} {t} {from}");
            }
        }
    }
}
