//! Where the vectors of a task are, in scratch and in the result.
//!
//! A line that ends within a vector wastes the lanes behind its end. Where lines are short, vectors run on into the next line instead, over the columns
//! between the two (of the border) that are no positions:
//!
//! ```text
//! line 0  aaaaaaaa bbbbbbbb cc..          aaaaaaaa bbbbbbbb cc~~dddd
//! line 1  dddddddd eeeeeeee ff..    →     eeeeeeee ffffff~~ …
//! ```

use super::{Part, reach};
use crate::simd::LANES;
use crate::window::Windows;

/// Whether vectors of so many lines run on from line to line: lines follow each other in scratch as in the image, and the vectors are fewer by more than what
/// storing their two ends takes.
pub(super) fn runs_on(w: &Windows, lines: usize) -> bool {
    let width = w.out[1];
    let in_one_run = (lines.saturating_sub(1) * (width + reach(w)) + width).div_ceil(LANES);
    w.stride == [1, 1] && width >= LANES && in_one_run + in_one_run / 32 < lines * width.div_ceil(LANES)
}

/// Where the results of a vector go in the task's lines of a plane: the first `lanes` of them to `at`. If it runs on into the next line, those behind
/// the end of its own are in their places if the whole vector is stored at `beyond`, over results of its own line and the vector's before it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Place {
    pub(super) at: usize,
    pub(super) lanes: usize,
    pub(super) beyond: Option<usize>,
}

/// The vectors of a task from the last to the first, so that what one stores beyond its line's end is written over where it is wrong. (There are no
/// divisions: a tile may be as short as a few.)
pub(super) struct Places {
    pub(super) vectors: usize,
    runs_on: bool,
    lines: usize,
    width: usize,
    /// Elements of scratch from line to line of the result, and of the result.
    steps: [usize; 2],
    line: usize,
    column: usize,
}

impl Places {
    #[inline(always)]
    pub(super) fn new(part: &Part<'_>) -> Places {
        let (d, width, lines) = (part.direct, part.columns.len(), part.lines.len());
        let w = &d.windows;
        let steps = [w.stride[0] * w.stride[1] * d.columns, w.out[1]];
        let (vectors, line, column) = if d.runs_on {
            let last = ((lines - 1) * steps[0] + width - 1) / LANES;
            (last + 1, last * LANES / steps[0], last * LANES % steps[0])
        } else {
            let of_line = width.div_ceil(LANES);
            (lines * of_line, lines - 1, (of_line - 1) * LANES)
        };
        Places { vectors, runs_on: d.runs_on, lines, width, steps, line, column }
    }

    /// What the first kernel position reads, in scratch.
    #[inline(always)]
    pub(super) fn from(&self) -> usize {
        self.line * self.steps[0] + self.column
    }

    #[inline(always)]
    pub(super) fn place(&self) -> Place {
        let lanes = LANES.min(self.width.saturating_sub(self.column));
        let at = self.line * self.steps[1] + self.column;
        let left = self.steps[0] - self.column;
        let goes_on = self.runs_on && left < LANES && self.line + 1 < self.lines;
        Place { at, lanes, beyond: goes_on.then(|| (self.line + 1) * self.steps[1] - left) }
    }

    /// Goes to the vector in front; from the first there is none to go to.
    #[inline(always)]
    pub(super) fn next(&mut self) {
        if self.column >= LANES {
            self.column -= LANES;
        } else if self.line > 0 {
            self.line -= 1;
            self.column = match self.runs_on {
                true => self.column + self.steps[0] - LANES,
                false => (self.width - 1) / LANES * LANES,
            };
        }
    }
}
