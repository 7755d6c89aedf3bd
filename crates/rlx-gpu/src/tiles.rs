//! Matmuls on matrix units: steps whose schedule is a tile program instead of kernels.
//!
//! Where a device's language has matrix instructions ([`GpuApi::matrix_units`](crate::GpuApi::matrix_units)), every matmul of a type that they multiply is
//! a program of [`rlx_tile`], whatever its sizes are: [`TileLaunches::take`] decides by the step alone. So which instruction computes a result, and in
//! which order it sums, follows from the type and the architecture; tunings and limits choose among tilings, which all give the same bits. Steps of
//! which `rlx_tile` makes nothing (integers, vectors, several results) keep their kernels.
//!
//! ```text
//! [64, 512] f16 · [512, 512] f16, + bias, relu   ──take(sm_80)──▶   matmul.f16.64x64x32.2x2.s4, its epilogue in the same program
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use rlx_backend::tuning::{Tuning, TuningKey};
use rlx_ir::lir::{LirModule, Step};
use rlx_kernel::schedule::StepDesc;
use rlx_kernel::{DeviceLimits, KernelHash, KernelTarget};
use rlx_tile::schedule::{StepLaunch, Tiling, step, step_tilings};
use rlx_tile::{Arch, Program};

/// A step's tile program, by its place among those of the module.
pub type StepTiles = Option<(usize, StepLaunch)>;

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
    /// Whether the next init step, or step of the run, is done by a tile program; `arch` is that of the device's matrix units.
    pub fn take(
        &mut self,
        of: &Step,
        init: bool,
        lir: &LirModule,
        (arch, target): (Option<Arch>, &KernelTarget),
        tuning: &Tuning,
    ) -> bool {
        let launch = arch.and_then(|arch| launch(of, lir, arch, &target.limits, tuning));
        let tiles = launch.map(|launch| self.distinct(launch));
        let taken = tiles.is_some();
        if init {
            self.init.push(tiles)
        } else {
            self.run.push(tiles)
        }
        taken
    }

    /// The program of a step, where it has one.
    pub fn of(&self, init: bool, index: usize) -> Option<&(usize, StepLaunch)> {
        let steps = if init { &self.init } else { &self.run };
        steps.get(index)?.as_ref()
    }

    /// The steps that have programs: whether of the init program, which, and by which program.
    pub fn steps(&self) -> impl Iterator<Item = (bool, usize, usize)> {
        let numbered = |init: bool, steps: &'_ [StepTiles]| -> Vec<(bool, usize, usize)> {
            let of = |(at, tiles): (usize, &StepTiles)| Some((init, at, tiles.as_ref()?.0));
            steps.iter().enumerate().filter_map(of).collect()
        };
        numbered(true, &self.init).into_iter().chain(numbered(false, &self.run))
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
fn fits(program: &Program, limits: &DeviceLimits) -> bool {
    let shared = usize::try_from(program.shared_bytes()).unwrap_or(usize::MAX);
    program.buffers.len() <= limits.max_bindings
        && program.workgroup() <= limits.max_workgroup
        && shared <= limits.max_shared_bytes
}

/// The dispatches of a step by each tiling that the device runs, the one to take unmeasured first; none where it has kernels.
fn launches(
    of: &Step,
    lir: &LirModule,
    arch: Arch,
    limits: &DeviceLimits,
) -> impl Iterator<Item = (Tiling, StepLaunch)> {
    let desc = StepDesc::of(of, lir).ok();
    let tilings = desc.as_ref().and_then(|desc| step_tilings(arch, desc).ok()).unwrap_or_default();
    let limits = *limits;
    tilings.into_iter().filter_map(move |tiling| {
        let launch = step(arch, desc.as_ref()?, Some(&tiling)).ok()?;
        fits(&launch.program, &limits).then_some((tiling, launch))
    })
}

fn name_of(arch: Arch, tiling: &Tiling) -> String {
    format!("tiles.{}.{}", arch.name(), tiling.name())
}

/// The name of the program that does a step where nothing was tuned; none where it has kernels.
pub fn name(of: &Step, lir: &LirModule, arch: Arch, limits: &DeviceLimits) -> Option<String> {
    launches(of, lir, arch, limits).next().map(|(tiling, _)| name_of(arch, &tiling))
}

fn launch(
    of: &Step,
    lir: &LirModule,
    arch: Arch,
    limits: &DeviceLimits,
    tuning: &Tuning,
) -> Option<StepLaunch> {
    let variant = if tuning.is_empty() {
        0
    } else {
        tuning_key(of, lir, arch, limits)?.map_or(0, |key| tuning.variant(&key))
    };
    launches(of, lir, arch, limits).nth(variant).map(|(_, launch)| launch)
}

/// The tilings of a step as variants; `None` where it has kernels, `Some(None)` where there is one tiling.
pub fn tuning_key(
    of: &Step,
    lir: &LirModule,
    arch: Arch,
    limits: &DeviceLimits,
) -> Option<Option<TuningKey>> {
    let names: Vec<String> =
        launches(of, lir, arch, limits).map(|(tiling, _)| name_of(arch, &tiling)).collect();
    (!names.is_empty()).then(|| TuningKey::of(lir, of, "", names))
}
