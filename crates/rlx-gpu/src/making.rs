//! What the steps of a module become: kernels, tile programs, and what runs choose between. Layers repeat each other, so of equal steps it is made once.
//!
//! What is made of a step follows from a [`Request`], the device and the options; whoever makes it is given nothing else. So steps of equal requests share it:
//!
//! ```text
//! step ──StepDesc::of──▶ what schedules see ──EqualSteps──▶ its number ─┐
//! tuning ──▶ the number of a tiling ────────────────────────────────────┴▶ Request ──▶ made, or as the first step of this request
//! ```

use std::collections::HashMap;

use rlx_backend::tuning::{Tuning, TuningKey};
use rlx_ir::lir::{LirModule, Step};
use rlx_ir::{Error, Result};
use rlx_kernel::schedule::StepDesc;
use rlx_kernel::stored::{Asked, By};
use rlx_kernel::{KernelTarget, Launch, Launches, few_rows_of};

use crate::backend::Own;
use crate::tiles::{self, TileLaunches};
use crate::{dispatch, few_rows};

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
    let (tiles, made, names) = Default::default();
    let mut making = Making { lir, target, tuning, own, tiles, made, names };
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
    /// The tiling that was tuned.
    tuned: Option<usize>,
}

/// A module under way.
struct Making<'m> {
    lir: &'m LirModule,
    target: &'m KernelTarget,
    tuning: &'m Tuning,
    own: &'m Own,
    tiles: TileLaunches,
    made: HashMap<Request, Made>,
    /// The names of tilings of steps, by number.
    names: HashMap<usize, Vec<String>>,
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
        let request = Request { number, init, may_divide, tuned: self.tuned(step, (number, desc)) };
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
            Made::Tiles { .. } if init => Ok(By::Variant(0)),
            Made::Tiles { .. } => {
                dispatch::variant(step, self.lir, self.target, self.tuning).map(By::Variant)
            }
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
    fn make(&mut self, Request { init, may_divide, tuned, .. }: Request, desc: &StepDesc) -> Result<Made> {
        let few = if may_divide { few_rows_of(desc, self.target)? } else { Vec::new() };
        let few = match few_rows::sole(few) {
            Ok(launch) => {
                self.tiles.leave(init);
                return Ok(Made::Launch(launch));
            }
            Err(few) => few,
        };
        let (at, division) = (self.tiles.count(init), self.own.fast.division.as_ref().filter(|_| !init));
        let means = (self.own.matrix_units, self.target);
        let taken = self.tiles.take(desc, init, means, tuned, (division, few));
        Ok(Made::Tiles { at, taken })
    }

    /// The number of the tiling that was tuned for a step.
    fn tuned(&mut self, step: &Step, (number, desc): (usize, &StepDesc)) -> Option<usize> {
        let units = self.own.matrix_units.filter(|_| !self.tuning.is_empty())?;
        let names = self.names.entry(number);
        let names = names.or_insert_with(|| tiles::names(desc, units, &self.target.limits));
        let key = TuningKey::of(self.lir, step, "", names.clone())?;
        self.tuning.knows(&key).then(|| self.tuning.variant(&key))
    }
}

#[cfg(test)]
mod tests;
