//! A matmul whose tiles do not come out even: as many rows as fill a GPU a number of times by whole tiles, and the others by parts of their sums.
//!
//! A GPU of 132 units does 200 tiles of one size in two rounds ("waves"), the second of which has work for half of it. The idea is that of *stream-K* (Osama et al. 2023,
//! "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix Multiplication on the GPU"; this is its variant with whole tiles first): what is left is divided along
//! the depth, so that all units have some of it.
//!
//! ```text
//! [1280, 4096] · [4096, 2560] on 132 units, tiles of 128 × 128      10 × 20 tiles
//!     rows    0 to  768:  6 × 20 tiles, one each for 120 of the units
//!     rows  768 to 1280:  in parts (as in `step_parts`)
//! ```
//!
//! The sums of the rows in parts are other chains than those of whole tiles, so it is for tuning under numerics that allow it.

use rlx_kernel::schedule::{Scheduled, StepDesc};

use super::launch::{PartsLaunch, StepLaunch};
use super::parts::Division;
use super::step::StepPrograms;
use super::step_parts::step_in_parts;
use super::step_sums::StepSums;
use super::tilings::Tiling;
use crate::atom::Arch;

/// With more rounds, the last one is a small part of the time.
const MOST_WAVES: i64 = 6;

/// The dispatches of a step in waves, in their order.
#[derive(Debug, Clone)]
pub struct WavesLaunch {
    /// What does whole tiles: the first rows.
    pub whole: StepLaunch,
    /// What does the others.
    pub rest: PartsLaunch,
    /// The first of these.
    pub from: i64,
}

impl WavesLaunch {
    /// How many parts the sums of the last rows have.
    pub fn parts(&self) -> i64 {
        self.rest.count.as_const().unwrap_or(1)
    }
}

/// The dispatches of a step of known sizes by a tiling on a device of so many units; none where its tiles come out even, are few or many, or the rest is not divided.
///
/// # Errors
/// Why no program does the step.
pub fn step_in_waves(
    arch: Arch,
    step: &StepDesc,
    tiling: &Tiling,
    division: &Division,
) -> Scheduled<Option<WavesLaunch>> {
    let Some(from) = first_of_rest(&StepSums::of(arch.of_warps(), step)?, tiling, division.units) else {
        return Ok(None);
    };
    let rows = step.outputs.first().and_then(|of| of.view.dims.iter().rev().nth(1)?.as_const());
    let slices = rows.and_then(|rows| Some((step.of_rows(0..from)?, step.of_rows(from..rows)?)));
    let Some((first, others)) = slices else { return Ok(None) };
    let whole = StepPrograms::of(arch, &first)?.launch(tiling)?;
    let mut rest = step_in_parts(arch, &others, None, division)?;
    let divided = |of: &PartsLaunch| of.count.as_const().is_some_and(|count| count > 1);
    let (Some(rest), true) = (rest.pop().filter(divided), rest.is_empty()) else { return Ok(None) };
    Ok(Some(WavesLaunch { whole, rest, from }))
}

/// The first row that whole waves do not do; none where there is none, or no wave.
fn first_of_rest(sums: &StepSums<'_>, tiling: &Tiling, units: u32) -> Option<i64> {
    let (rows, cols) = (i64::from(tiling.tile.0), i64::from(tiling.tile.1));
    let [m, n, matrices] = [sums.m, sums.n, sums.matrices()].map(|of| of.as_const());
    let (down, across) = ((m? + rows - 1) / rows, (n? + cols - 1) / cols);
    let (tiles, units) = (down * across, i64::from(units.max(1)));
    let waves = tiles / units;
    let is_worth_it = matrices == Some(1) && tiling.teams == 0 && tiles % units != 0;
    let done = (waves * units).checked_div(across)?;
    (is_worth_it && (1..=MOST_WAVES).contains(&waves) && done > 0).then_some(done * rows)
}
