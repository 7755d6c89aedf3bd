//! Matmuls and attention on matrix units: steps whose schedule is a tile program instead of kernels.
//!
//! Where a device's language has matrix instructions ([`GpuApi::matrix_units`](crate::GpuApi::matrix_units)), every matmul of a type that they multiply is
//! a program of [`rlx_tile`], whatever its sizes are: [`TileLaunches::take`] decides by the step alone. So which instruction computes a result, and in
//! which order it sums, follows from the type and the architecture; tunings and limits choose among tilings, which all give the same bits. Steps of
//! which `rlx_tile` makes nothing (integers, vectors, several results) keep their kernels.
//!
//! Attention is claimed as a whole where there is a program for its types and sizes of heads ([`takes_whole`]); elsewhere the compiler decomposes it, and its
//! parts have kernels.
//!
//! Where rows or columns are open, a step has a few programs, and the numbers of a run choose: prefill wants large tiles, a decoder's one row small ones.
//!
//! ```text
//! [64, 512] f16 · [512, 512] f16, + bias, relu   ──take(sm_80)──▶   matmul.f16.64x64x32.2x2.s4, its epilogue in the same program
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use rlx_backend::tuning::{Tuning, TuningKey};
use rlx_ir::lir::{LirModule, Step};
use rlx_ir::{Graph, Node, Op};
use rlx_kernel::schedule::StepDesc;
use rlx_kernel::{DeviceLimits, KernelHash, KernelTarget};
use rlx_tile::schedule::{StepLaunch, Tiling, step, step_tilings};
use rlx_tile::{Arch, Program};

/// What runs tile programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatrixUnits {
    /// The architecture that programs are made for.
    pub arch: Arch,
    /// The most bytes of workgroup memory that a launch may give: [`Dispatch::dynamic_bytes`](crate::dispatch::Dispatch::dynamic_bytes).
    pub dynamic_bytes: usize,
}

/// The most programs of a step whose sizes are open.
const MOST: usize = 3;

/// A step's tile programs, by their places among those of the module: none where it has kernels, else the largest tile first.
pub type StepTiles = Vec<(usize, StepLaunch)>;

/// The tile programs of a module's steps.
#[derive(Debug, Default)]
pub struct TileLaunches {
    /// The distinct programs, in order of first use.
    pub programs: Vec<(KernelHash, Arc<Program>)>,
    places: HashMap<KernelHash, usize>,
    init: Vec<StepTiles>,
    run: Vec<StepTiles>,
}

impl TileLaunches {
    /// Whether the next init step, or step of the run, is done by a tile program; `units` are the device's matrix units.
    pub fn take(
        &mut self,
        of: &Step,
        init: bool,
        lir: &LirModule,
        (units, target): (Option<MatrixUnits>, &KernelTarget),
        tuning: &Tuning,
    ) -> bool {
        let launches = units.map(|units| chosen(of, lir, units, &target.limits, tuning)).unwrap_or_default();
        let tiles: StepTiles = launches.into_iter().map(|launch| self.distinct(launch)).collect();
        let taken = !tiles.is_empty();
        if init {
            self.init.push(tiles)
        } else {
            self.run.push(tiles)
        }
        taken
    }

    /// The programs of a step.
    pub fn of(&self, init: bool, index: usize) -> &[(usize, StepLaunch)] {
        let steps = if init { &self.init } else { &self.run };
        steps.get(index).map_or(&[], Vec::as_slice)
    }

    /// The first step that a program is for: whether of the init program, and which.
    pub fn step_of(&self, program: usize) -> Option<(bool, usize)> {
        let has = |steps: &[StepTiles]| steps.iter().position(|tiles| tiles.iter().any(|t| t.0 == program));
        has(&self.init).map(|at| (true, at)).or_else(|| Some((false, has(&self.run)?)))
    }

    fn distinct(&mut self, launch: StepLaunch) -> (usize, StepLaunch) {
        let (hash, next) = (launch.program.hash(), self.programs.len());
        let at = *self.places.entry(hash).or_insert(next);
        if at == next {
            self.programs.push((hash, Arc::clone(&launch.program)));
        }
        (at, StepLaunch { program: Arc::clone(&self.programs[at].1), ..launch })
    }
}

/// Whether a device of these limits runs a program.
fn fits(program: &Program, units: MatrixUnits, limits: &DeviceLimits) -> bool {
    let shared = usize::try_from(program.shared_bytes()).unwrap_or(usize::MAX);
    let most = if program.dynamic_bytes() > 0 { units.dynamic_bytes } else { limits.max_shared_bytes };
    program.buffers.len() <= limits.max_bindings
        && program.workgroup() <= limits.max_workgroup
        && shared <= most
}

/// Whether every step of such a node, which has no kernels, is done by a tile program.
pub fn takes_whole(node: &Node, graph: &Graph, units: MatrixUnits, limits: &DeviceLimits) -> bool {
    let desc = StepDesc::of_node(node, graph).ok().filter(|_| matches!(node.op, Op::Attention { .. }));
    desc.is_some_and(|desc| of_desc(desc, units, limits).next().is_some())
}

/// The dispatches of a step by each tiling that the device runs, the one to take unmeasured first; none where it has kernels.
fn launches(
    of: &Step,
    lir: &LirModule,
    units: MatrixUnits,
    limits: &DeviceLimits,
) -> impl Iterator<Item = (Tiling, StepLaunch)> {
    StepDesc::of(of, lir).ok().into_iter().flat_map(move |desc| of_desc(desc, units, limits))
}

/// The same of a step as schedules see it.
fn of_desc(
    desc: StepDesc,
    units: MatrixUnits,
    limits: &DeviceLimits,
) -> impl Iterator<Item = (Tiling, StepLaunch)> {
    let (tilings, limits) = (step_tilings(units.arch, &desc).unwrap_or_default(), *limits);
    tilings.into_iter().filter_map(move |tiling| {
        let launch = step(units.arch, &desc, Some(&tiling)).ok()?;
        fits(&launch.program, units, &limits).then_some((tiling, launch))
    })
}

fn name_of(arch: Arch, tiling: &Tiling) -> String {
    format!("tiles.{}.{}", arch.name(), tiling.name())
}

/// The name of the program that does a step where nothing was tuned; none where it has kernels.
pub fn name(of: &Step, lir: &LirModule, units: MatrixUnits, limits: &DeviceLimits) -> Option<String> {
    launches(of, lir, units, limits).next().map(|(tiling, _)| name_of(units.arch, &tiling))
}

/// The dispatches of a step of which one is to be chosen for the numbers of a run: the one that a tuning names, else what suits its sizes.
fn chosen(
    of: &Step,
    lir: &LirModule,
    units: MatrixUnits,
    limits: &DeviceLimits,
    tuning: &Tuning,
) -> Vec<StepLaunch> {
    let mut all = launches(of, lir, units, limits).map(|(_, launch)| launch);
    let key = if tuning.is_empty() { None } else { tuning_key(of, lir, units, limits).flatten() };
    match key.filter(|key| tuning.knows(key)) {
        Some(key) => all.nth(tuning.variant(&key)).into_iter().collect(),
        None => alternatives(all.next(), all),
    }
}

/// The first launch and, where its sizes are open, the next one of at most half of its rows and the one of the fewest.
fn alternatives(first: Option<StepLaunch>, rest: impl Iterator<Item = StepLaunch>) -> Vec<StepLaunch> {
    let Some(first) = first else { return Vec::new() };
    let (rows, cols) = (first.size.0.as_const(), first.size.1.as_const());
    if rows.is_some() && cols.is_some() {
        return vec![first];
    }
    // What suits neither the known size nor the largest one is never chosen.
    let [rows, cols] = [rows, cols].map(|size| size.unwrap_or(i64::MAX));
    let mut kept = vec![first];
    for launch in rest.filter(|launch| launch.tiling.suits(rows, cols)) {
        let (tm, last) = (launch.tiling.tile.0, kept[kept.len() - 1].tiling.tile.0);
        if kept.len() < MOST && 2 * tm <= last {
            kept.push(launch);
        } else if kept.len() == MOST && tm < last {
            kept[MOST - 1] = launch;
        }
    }
    kept
}

/// Which of a step's tilings a run of these numbers takes: the first that suits the result, else the last.
pub fn choose(tilings: &[Tiling], rows: i64, cols: i64) -> usize {
    tilings.iter().position(|tiling| tiling.suits(rows, cols)).unwrap_or(tilings.len().saturating_sub(1))
}

/// The tilings of a step as variants; `None` where it has kernels, `Some(None)` where there is one tiling.
pub fn tuning_key(
    of: &Step,
    lir: &LirModule,
    units: MatrixUnits,
    limits: &DeviceLimits,
) -> Option<Option<TuningKey>> {
    let names: Vec<String> =
        launches(of, lir, units, limits).map(|(tiling, _)| name_of(units.arch, &tiling)).collect();
    (!names.is_empty()).then(|| TuningKey::of(lir, of, "", names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_takes_the_largest_tile_that_its_result_fills() {
        let of = |m, n| Tiling { tile: (m, n, 32), warps: (1, 1), stages: 2, bands: 8 };
        let tilings = [of(128, 128), of(64, 64), of(16, 64)];
        let sizes =
            [(1, 500), (16, 64), (17, 64), (49, 64), (64, 64), (112, 200), (113, 113), (4096, 1), (0, 0)];
        let found = sizes.map(|(rows, cols)| choose(&tilings, rows, cols));
        assert_eq!(found, [2, 2, 2, 1, 1, 1, 0, 2, 2]);
    }
}
