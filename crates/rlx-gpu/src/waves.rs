//! Matmuls in waves: whole tiles for as many rows as fill the device, parts of sums for the others ([`step_in_waves`]).

use std::sync::Arc;

use rlx_kernel::KernelTarget;
use rlx_kernel::schedule::StepDesc;
use rlx_tile::Program;
use rlx_tile::schedule::{Division, Tiling, WavesLaunch, step_in_waves};

use crate::tiles::{MatrixUnits, fits, launches};

/// How a device does steps in waves.
#[derive(Clone, Copy)]
pub(crate) struct Waves<'t> {
    pub units: MatrixUnits,
    pub target: &'t KernelTarget,
    pub division: Division,
}

impl Waves<'_> {
    /// The step by the tiling of this number; nothing where that is not worth it, or the device does not run all three dispatches.
    pub fn of(&self, desc: &StepDesc, tiling: usize) -> Option<WavesLaunch> {
        let launch = launches(desc, self.units, &self.target.limits).nth(tiling)?;
        self.by(desc, &launch.tiling)
    }

    /// The step by each tiling by which it is done so, with the tiling's number.
    pub fn all(&self, desc: &StepDesc) -> impl Iterator<Item = (usize, WavesLaunch)> {
        let launches = launches(desc, self.units, &self.target.limits);
        launches.enumerate().filter_map(|(i, launch)| Some((i, self.by(desc, &launch.tiling)?)))
    }

    fn by(&self, desc: &StepDesc, tiling: &Tiling) -> Option<WavesLaunch> {
        if self.target.pool.exclusive_usage {
            return None;
        }
        let limits = &self.target.limits;
        let units = self.units.for_parts_of(desc)?;
        let mut waves = step_in_waves(units.arch, desc, tiling, &self.division).ok()??;
        waves.rest.join.code = Arc::new(self.target.adapted(&waves.rest.join.code).ok()?);
        let runs = |program: &Program| fits(program, units, limits);
        (runs(&waves.whole.program) && runs(&waves.rest.parts.code)).then_some(waves)
    }
}
