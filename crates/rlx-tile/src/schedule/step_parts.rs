//! A step of LIR as two dispatches: a tile program for parts of its sums, and a kernel that joins them.
//!
//! ```text
//! x [1, 4096] · w [4096, 4096]   program: 7 parts of [1, ≤ 640] · [≤ 640, 4096] ──▶ scratch [7, 1, 4096] f32
//!                                kernel:  scratch[0] + scratch[1] + … ──▶ rounded, and what is behind the matmul
//! ```
//!
//! Scratch is memory that nothing else uses meanwhile. A part's sums are in the order of the depth, and the parts are added in theirs, so bits do not depend on
//! which workgroup is done first; but they are another chain of sums than that of [`step()`](super::step()), and depend on the number of parts. It is
//! for devices that may choose their chain.
//!
//! A convolution is divided as a matmul is: along taps and channels, its parts beginning anywhere in them. Weights in blocks are divided into whole blocks.

use std::sync::Arc;

use rlx_ir::Extent;
use rlx_kernel::schedule::{Arg, Scheduled, StepDesc, Unscheduled, schedule, variants};
use rlx_kernel::{Kernel, UniformArg};

use super::launch::{Bound, PartLaunch, PartsLaunch};
use super::matmul::matmul;
use super::parts::{Division, FEW_ROWS, Parts};
use super::step_attention;
use super::step_sums::{Divided, StepSums};
use super::tilings::Tiling;
use crate::atom::Arch;

/// Columns of the smallest tiling, whose rows are [`FEW_ROWS`].
const TILE_COLS: i64 = 64;

/// Rows of the largest tiling that parts have unmeasured, and columns: with larger ones there would be fewer workgroups than were counted.
const LARGEST: i64 = 64;

/// The dispatches of a step whose result is small, or may be small, and whose sums are long, or may be: divided as `division` says. Where rows are open, there may
/// be several, for few rows first; the first whose [`PartsLaunch::most_rows`] are no fewer than a run's is its. All of them have as many parts. None for
/// other steps, and where there would be one part.
///
/// # Errors
/// Why there are none for a step that would be divided.
pub fn step_in_parts(
    arch: Arch,
    step: &StepDesc,
    tiling: Option<&Tiling>,
    division: &Division,
) -> Scheduled<Vec<PartsLaunch>> {
    // Parts are programs of warps.
    let (device, arch, tiling) = (arch, arch.of_warps(), tiling.filter(|tiling| !tiling.groups));
    if let Some(attention) = step_attention::parts(step) {
        return Ok(attention?.in_parts(arch, tiling, division)?.into_iter().collect());
    }
    let sums = StepSums::of(arch, step)?;
    if device.has_groups() && sums.is_filled_by_groups(device) {
        return Ok(Vec::new());
    }
    // Tiles of the smallest tiling, so that no tiling is divided otherwise.
    let tiles = sums.m.ceil_div(i64::from(FEW_ROWS)) * sums.n.ceil_div(TILE_COLS) * sums.matrices();
    let parts =
        Parts::in_multiples(sums.k, tiles, (division.units, division.least_depth), sums.multiple_of_parts());
    if parts.count == Extent::Const(1) {
        return Ok(Vec::new());
    }
    let tilings = match tiling {
        Some(&tiling) => vec![(tiling, None)],
        None => suited(arch, &sums)?,
    };
    tilings.into_iter().map(|tiling| sums.in_parts(arch, tiling, &parts)).collect()
}

/// The tilings that suit parts of a result, each with the most rows that it is for: known rows have one, others one for few and one for more.
fn suited(arch: Arch, sums: &StepSums<'_>) -> Scheduled<Vec<(Tiling, Option<u32>)>> {
    let of = |rows: Extent| {
        let size = (rows, sums.n.min(LARGEST));
        let first = sums.tilings(arch, size).first().copied();
        first.ok_or_else(|| Unscheduled("no tilings".to_owned()))
    };
    let most = of(match sums.m.as_const() {
        Some(rows) => Extent::Const(rows.min(LARGEST)),
        None => Extent::Const(LARGEST),
    })?;
    let few = of(Extent::Const(i64::from(FEW_ROWS)))?;
    let open = sums.m.as_const().is_none() && few != most;
    Ok(open.then_some((few, Some(FEW_ROWS))).into_iter().chain([(most, None)]).collect())
}

impl StepSums<'_> {
    fn in_parts(
        &self,
        arch: Arch,
        (tiling, most_rows): (Tiling, Option<u32>),
        parts: &Parts,
    ) -> Scheduled<PartsLaunch> {
        let operands = self.operands_of_parts()?;
        let divided = Divided { count: parts.count, each: parts.each };
        let (mut what, uniforms) = self.matmul(&operands, Some(divided));
        let bindings = operands.bindings();
        // A body reads no buffer, so it does not matter what stands for the scratch memory.
        let bound: Vec<Arg> = bindings.iter().map(|arg| arg.unwrap_or(Arg::Output(0))).collect();
        self.add_prologues(&mut what, &bound, &uniforms)?;
        let program = matmul(arch, &what, &tiling).map_err(|e| Unscheduled(e.to_string()))?;
        // No more results than those of the tiles that were counted.
        let most = parts.most * i64::from(FEW_ROWS) * TILE_COLS;
        Ok(PartsLaunch {
            parts: PartLaunch {
                code: Arc::new(program),
                bindings: bindings
                    .into_iter()
                    .map(|arg| arg.map_or(Bound::Scratch, Bound::Operand))
                    .collect(),
                uniforms,
                groups: self.groups(&tiling) * parts.count,
            },
            join: self.join(parts.count)?,
            count: parts.count,
            scratch: (parts.count * self.results()).min(most),
            rows: self.m,
            most_rows,
            tiling,
        })
    }

    /// The kernel that adds up the parts.
    fn join(&self, count: Extent) -> Scheduled<PartLaunch<Kernel>> {
        let joined = self.joined(count)?;
        let variant = variants(&joined.step, false)?.first().copied();
        let variant = variant.ok_or_else(|| Unscheduled("no variants".to_owned()))?;
        // Parts are far apart in memory, so they are joined by columns: no subgroup has them.
        let mut launches = schedule(&joined.step, variant, None)?;
        let (Some(launch), true) = (launches.pop(), launches.is_empty()) else {
            return Err(Unscheduled("several kernels that join parts".to_owned()));
        };
        // The sums are the first input, the others are some of the step's.
        let bound = |arg: Arg| match arg {
            Arg::Input(i) => match i.checked_sub(1).and_then(|i| joined.inputs.get(i)) {
                Some(&original) => Bound::Operand(Arg::Input(original)),
                None => Bound::Scratch,
            },
            output @ Arg::Output(_) => Bound::Operand(output),
        };
        let uniform = |uniform: &UniformArg| match *uniform {
            UniformArg::Base { operand, offset } => match bound(operand) {
                Bound::Operand(operand) => UniformArg::Base { operand, offset },
                Bound::Scratch => UniformArg::Extent(offset),
            },
            extent @ UniformArg::Extent(_) => extent,
        };
        let bindings = launch.bindings.iter().map(|&arg| bound(arg)).collect();
        let uniforms = launch.uniforms.iter().map(uniform).collect();
        Ok(PartLaunch { code: launch.kernel, bindings, uniforms, groups: launch.groups })
    }
}
