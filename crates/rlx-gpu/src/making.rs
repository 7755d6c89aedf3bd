//! What the steps of a module become: kernels, tile programs, and what runs choose between. Layers repeat each other, so of equal steps it is made once.
//!
//! What is made of a step follows from a [`Request`], the device and the options; whoever makes it is given nothing else. So steps of equal requests share it:
//!
//! ```text
//! step ──StepDesc::of──▶ what schedules see ──EqualSteps──▶ its number ─┐
//! tuning ──▶ the choice of a variant ───────────────────────────────────┴▶ Request ──▶ made, or as the first step of this request
//! ```

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use rlx_backend::tuning::Tuning;
use rlx_ir::lir::{LirModule, Step};
use rlx_ir::{Error, Result};
use rlx_kernel::schedule::StepDesc;
use rlx_kernel::stored::{Asked, By};
use rlx_kernel::{KernelTarget, Launch, Launches, few_rows_of};
use rlx_tile::schedule::{Division, WavesLaunch};

use crate::few_rows;
use crate::own::Own;
use crate::tiles::TileLaunches;
use crate::variants::{self, Choice, Means, Offer, Variant};
use crate::waves::Waves;

/// The kernels and tile programs of a module.
///
/// # Errors
/// A step that nothing does.
pub(crate) fn scheduled(
    lir: &LirModule,
    target: &KernelTarget,
    tuning: &Tuning,
    own: &Own,
) -> Result<(Launches, TileLaunches)> {
    let (tiles, made, offers) = Default::default();
    let mut making = Making { lir, target, tuning, own, tiles, made, offers };
    let launches = Launches::of_some(lir, target, &mut |asked| making.step(asked))?;
    Ok((launches, making.tiles))
}

/// What is asked for of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Request {
    /// Of what schedules see.
    number: usize,
    init: bool,
    /// Whether there may be kernels for few rows.
    may_divide: bool,
    /// What was tuned.
    choice: Choice,
}

/// A module under way.
struct Making<'m> {
    lir: &'m LirModule,
    target: &'m KernelTarget,
    tuning: &'m Tuning,
    own: &'m Own,
    tiles: TileLaunches,
    made: HashMap<Request, Made>,
    /// The variants of steps of the run, by number.
    offers: HashMap<usize, Vec<Offer>>,
}

/// How a step is done.
#[derive(Clone)]
enum Made {
    /// By this launch alone.
    Launch(Launch),
    /// As the step in this place among the init steps, or those of the run, is; whether by tile programs alone.
    Tiles { at: usize, taken: bool },
}

impl Making<'_> {
    fn step(&mut self, Asked { step, init, seen }: Asked<'_>) -> Result<By> {
        let Some((number, desc)) = seen else {
            self.tiles.leave(init);
            return Ok(By::Variant(0));
        };
        let may_divide = !init && self.own.fast.may_divide(step, self.lir);
        let choice = if init { Choice::default() } else { self.choice(step, number)? };
        let request = Request { number, init, may_divide, choice };
        let made = match self.made.get(&request).cloned() {
            Some(made) => self.again(init, made),
            None => {
                let located = |e: Error| self.lir.graph.locate(step.node, e);
                let made =
                    self.make(request, desc).map_err(|e| located(e).with_device(self.target.name.clone()))?;
                self.made.insert(request, made.clone());
                made
            }
        };
        match made {
            Made::Launch(launch) => Ok(By::Launch(launch)),
            Made::Tiles { taken: true, .. } => Ok(By::Others),
            Made::Tiles { .. } => Ok(By::Variant(match choice.variant {
                Variant::Kernels(at) => at,
                _ => 0,
            })),
        }
    }

    /// The next step is done as an earlier one is.
    fn again(&mut self, init: bool, made: Made) -> Made {
        match made {
            Made::Launch(_) => self.tiles.leave(init),
            Made::Tiles { at, .. } => self.tiles.repeat(init, at),
        }
        made
    }

    /// Makes what does the next step.
    ///
    /// # Errors
    /// A kernel that breaks a rule.
    fn make(&mut self, Request { init, may_divide, choice, .. }: Request, desc: &StepDesc) -> Result<Made> {
        let few = if may_divide && !choice.alone { few_rows_of(desc, self.target)? } else { Vec::new() };
        let few = match few_rows::sole(few) {
            Ok(launch) => {
                self.tiles.leave(init);
                return Ok(Made::Launch(launch));
            }
            Err(few) => few,
        };
        let division = self.own.fast.division.filter(|_| !init);
        let (tuned, division) = match choice.variant {
            Variant::Parts { units } => (None, division.map(|division| Division { units, ..division })),
            Variant::Tiling(at) | Variant::Waves { tiling: at } => {
                (Some(at), division.filter(|_| !choice.alone))
            }
            Variant::Kernels(_) | Variant::Unmeasured => (None, division),
        };
        let (at, means) = (self.tiles.count(init), (self.own.matrix_units, self.target));
        let taken = match self.waves(choice.variant, desc).filter(|_| !init) {
            Some(waves) => {
                self.tiles.take_waves(waves);
                true
            }
            None => self.tiles.take(desc, init, means, tuned, (division.as_ref(), few)),
        };
        if choice.alone {
            self.tiles.without_library(init);
        }
        Ok(Made::Tiles { at, taken })
    }

    /// The step in waves, where that was tuned.
    fn waves(&self, variant: Variant, desc: &StepDesc) -> Option<WavesLaunch> {
        let Variant::Waves { tiling } = variant else { return None };
        let (units, division) = self.own.matrix_units.zip(self.own.fast.division)?;
        Waves { units, target: self.target, division }.of(desc, tiling)
    }

    /// What was tuned for a step of the run.
    ///
    /// # Errors
    /// A step without kernels.
    fn choice(&mut self, step: &Step, number: usize) -> Result<Choice> {
        if self.tuning.is_empty() {
            return Ok(Choice::default());
        }
        let offers = match self.offers.entry(number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => {
                let means = Means { target: self.target, own: self.own };
                vacant.insert(means.offers(step, self.lir)?)
            }
        };
        let key = variants::key(step, self.lir, offers).filter(|key| self.tuning.knows(key));
        Ok(key.map_or_else(Choice::default, |key| offers[self.tuning.variant(&key)].choice()))
    }
}

#[cfg(test)]
mod tests;
