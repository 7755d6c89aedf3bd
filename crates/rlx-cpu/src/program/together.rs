//! Whether steps that are bound to be computed in [bands](crate::kernels::bands) are so in this run: for as many threads as it has, and
//! where their operands are.
//!
//! The memory plan knows steps that run one after the other. A result may therefore lie where an earlier step's input was, which bands
//! still read. It waits in the place of the first step's result then, which is apart from all that the steps read, and which bands do not use.

use std::ops::Range;
use std::time::Duration;

use super::ranges::Touched;
use crate::kernels::bands::{Bands, MOST_PARTS, Part};
use crate::kernels::{RunCx, StepKernel};

/// Steps that are computed in bands now.
pub(super) struct Together<'a> {
    bands: &'a Bands,
    first: &'a dyn StepKernel,
    parts: [Option<Part>; MOST_PARTS],
    /// Whether the result waits elsewhere, because its place is still read.
    apart: bool,
}

impl<'a> Together<'a> {
    /// These bands of steps, each with its kernel and what it touches, if that can be by as many threads and at these places.
    pub(super) fn of(
        bands: &'a Bands,
        steps: impl Iterator<Item = (&'a dyn StepKernel, &'a [Touched])> + Clone,
        cx: &RunCx<'_, '_>,
    ) -> Option<Together<'a>> {
        if !bands.suits(cx.pool.threads()) {
            return None;
        }
        let (first, _) = steps.clone().next()?;
        let mut parts = [const { None }; MOST_PARTS];
        let mut touched: [&[Touched]; MOST_PARTS] = [&[]; MOST_PARTS];
        for ((part, touched), (kernel, all)) in parts.iter_mut().zip(&mut touched).zip(steps) {
            (*part, *touched) = (Some(kernel.part(cx)?), all);
        }
        let touched = &touched[..bands.len()];
        let (last, before) = touched.split_last()?;
        let result = last.last()?.addresses(cx.bases);
        // What a step before writes it hands to the next one alone, and in bands not through its place.
        let handed =
            |buffer: usize| before.iter().any(|step| step.last().is_some_and(|out| out.buffer == buffer));
        let mut read = touched.iter().filter_map(|step| step.split_last()).flat_map(|(_, inputs)| inputs);
        let apart = read.any(|input| !handed(input.buffer) && overlap(&input.addresses(cx.bases), &result));
        let (spare, bytes) = bands.spare();
        let start = cx.ptr::<u8>(spare).addr();
        let fits = !apart || !overlap(&(start..start + bytes), &result);
        fits.then_some(Together { bands, first, parts, apart })
    }

    /// How many steps.
    pub(super) fn len(&self) -> usize {
        self.bands.len()
    }

    /// Computes them; gives the share of the time that each took, if `timed`.
    ///
    /// # Safety
    /// As [`StepKernel::run`] of each.
    pub(super) unsafe fn run(&self, cx: &mut RunCx<'_, '_>, timed: bool) -> [f64; MOST_PARTS] {
        // SAFETY: the caller's promise. The first step's result is live while the steps' inputs are, so the plan has them apart.
        let times = unsafe {
            self.first.prepare(cx);
            self.bands.run(cx, &self.parts, self.apart, timed)
        };
        let all: f64 = times.iter().map(Duration::as_secs_f64).sum();
        times.map(|time| time.as_secs_f64() / all.max(f64::MIN_POSITIVE))
    }
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}
