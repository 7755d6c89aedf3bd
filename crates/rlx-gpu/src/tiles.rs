//! Matmuls, convolutions and attention on matrix units: steps whose schedule is a tile program instead of kernels.
//!
//! Where a device's language has matrix instructions ([`GpuApi::matrix_units`](crate::GpuApi::matrix_units)), every matmul and convolution of a type that they multiply is
//! a program of [`rlx_tile`], whatever its sizes are: [`TileLaunches::take`] decides by the step alone. So which instruction computes a result, and in
//! which order it sums, follows from the type and the architecture; tunings and limits choose among tilings, which all give the same bits. Steps of
//! which `rlx_tile` makes nothing (integers, vectors, several results, convolutions of groups of few channels) keep their kernels. Convolutions of these types
//! run with their channels last, on weights that are packed so.
//!
//! Attention is claimed as a whole where there is a program for its types and sizes of heads ([`takes_whole`]); elsewhere it has a kernel, or the compiler decomposes it, and its
//! parts have kernels.
//!
//! So are rows that each choose a matrix (the experts of a mixture): before their program a kernel makes lists, which the program looks rows up in, through scratch memory
//! ([`StepLists`]).
//!
//! Where rows or columns are open, a step has a few programs, and the numbers of a run choose: prefill wants large tiles, a decoder's one row small ones.
//! Matmuls by weights in blocks are programs, too, which unpack the weights as they copy them.
//!
//! Under [`Numerics::Fast`](rlx_opt::Numerics::Fast), long sums of small results are divided among workgroups, so that a decoder's one row, or an image net's last
//! convolutions, fill a GPU: a program for parts and a kernel that joins them, through scratch memory of the plan's ([`TileLaunches::scratch`]). Their sums are
//! other chains, so under `Strict` nothing is divided.
//!
//! There, matmuls of few rows are done by kernels that divide their sums within a workgroup ([`few_rows`](crate::few_rows)), of any type, before all else.
//!
//! ```text
//! [64, 512] f16 · [512, 512] f16, + bias, relu   ──take(sm_80)──▶   matmul.f16.64x64x32.2x2.s4, its epilogue in the same program
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use rlx_backend::scratch::Scratch;
use rlx_ir::lir::{BufferKind, LirModule, Operand, Step, StepKind};
use rlx_ir::{DType, Extent, Graph, Node, Op};
use rlx_kernel::schedule::StepDesc;
use rlx_kernel::{DeviceLimits, FewRows, Kernel, KernelHash, KernelTarget};
use rlx_tile::schedule::{
    Division, Listed, PartLaunch, PartsLaunch, StepLaunch, StepPrograms, Tiling, WavesLaunch, convolves,
    multiplies, step_in_parts,
};
use rlx_tile::{Arch, Program};

use crate::classes::{Class, Classes, Family};

/// What runs tile programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatrixUnits {
    /// The architecture that programs are made for.
    pub arch: Arch,
    /// The most bytes of workgroup memory that a launch may give: [`Dispatch::dynamic_bytes`](crate::dispatch::Dispatch::dynamic_bytes).
    pub dynamic_bytes: usize,
    /// How many compute units the device has (multiprocessors, compute units), where it says so.
    pub compute_units: Option<u32>,
    /// The classes of kernels that the device computes wrongly, as far as it was tried: see [`crate::classes`].
    pub aside: Classes,
}

impl MatrixUnits {
    /// The units for programs of a family: without the group level where that is put aside; none where programs by warps are, of which those of the group level are
    /// never without.
    pub(crate) fn for_family(self, family: Family, dtype: DType) -> Option<MatrixUnits> {
        let is_aside = |groups| self.aside.has(Class::Tiles { family, dtype, groups });
        let arch = if is_aside(true) { self.arch.of_warps() } else { self.arch };
        (!is_aside(false)).then_some(MatrixUnits { arch, ..self })
    }

    /// The units for the programs of a step; none where these are put aside.
    pub(crate) fn for_step(self, step: &StepDesc) -> Option<MatrixUnits> {
        match Family::of(&step.graph) {
            Some((family, dtype)) if !self.aside.is_empty() => self.for_family(family, dtype),
            _ => Some(self),
        }
    }

    /// The same of a step whose sums are divided: none where those in parts are put aside, or there are none of its family.
    pub(crate) fn for_parts_of(self, step: &StepDesc) -> Option<MatrixUnits> {
        let right = |(family, dtype): (Family, DType)| {
            family.in_parts().is_some_and(|family| self.for_family(family, dtype).is_some())
        };
        self.for_step(step).filter(|_| Family::of(&step.graph).is_none_or(right))
    }

    /// Whether they multiply what a node does, by programs that are not put aside.
    pub(crate) fn multiplies(self, node: &Node) -> bool {
        let right = |(family, dtype)| self.for_family(family, dtype).is_some();
        multiplies(self.arch, node.shape.dtype()) && Family::of_node(node).is_none_or(right)
    }
}

/// A step's tile programs, by their places among those of the module: none where it has kernels.
#[derive(Debug, Clone, Default)]
pub struct StepTiles {
    /// Each does all of the step; the largest tile first.
    pub whole: Vec<(usize, StepLaunch)>,
    /// What makes the lists that these look rows up in, where they do.
    pub lists: Option<StepLists>,
    /// What does it where its result is small and its sums are long; the first that is for a run's rows.
    pub parts: Vec<StepParts>,
    /// Kernels that do all of it before all else where the rows of a run are few, by their places among [`TileLaunches::joins`]; the first that is for these rows.
    /// They may stand beside the step's other kernels.
    pub few: Vec<(usize, FewRows)>,
    /// What reports numbers of lists that are out of range, in every run, by their places among [`TileLaunches::joins`].
    pub checks: Vec<(usize, PartLaunch<Kernel>)>,
    /// Whether it was tuned to be done by the device's own code, where the vendor's library would do it.
    pub without_library: bool,
    /// Whether the one of `whole` does some of the rows, and the one of `parts` the others ([`WavesLaunch`]).
    pub in_waves: bool,
}

impl StepTiles {
    /// Whether the step has its usual kernels alone.
    pub fn is_empty(&self) -> bool {
        !self.has_programs() && self.few.is_empty()
    }

    /// Whether every run is done without the step's usual kernels.
    fn has_programs(&self) -> bool {
        !self.whole.is_empty() || !self.parts.is_empty()
    }

    /// The scratch memory that it needs.
    fn needed(&self) -> Option<(DType, Extent)> {
        let parts = self.parts.first().map(|parts| of_parts(&parts.launch));
        parts.or_else(|| self.lists.as_ref().map(|lists| (DType::I32, lists.elements)))
    }

    fn programs(&self) -> impl Iterator<Item = usize> {
        self.whole.iter().map(|of| of.0).chain(self.parts.iter().map(|of| of.program))
    }
}

/// What makes lists for the programs of a step.
#[derive(Debug, Clone)]
pub struct StepLists {
    /// For each of [`StepTiles::whole`] what is dispatched before it, with its place among [`TileLaunches::joins`].
    pub kernels: Vec<(usize, PartLaunch<Kernel>)>,
    /// Elements of their scratch memory, each an i32.
    pub elements: Extent,
    /// The number of that among the module's scratch memory.
    pub scratch: usize,
}

/// A step that is divided, with the places of its program and its kernel among those of the module.
#[derive(Debug, Clone)]
pub struct StepParts {
    /// Among [`TileLaunches::programs`].
    pub program: usize,
    /// Among [`TileLaunches::joins`].
    pub join: usize,
    /// The dispatches.
    pub launch: PartsLaunch,
    /// The number of its scratch memory among that of the module.
    pub scratch: usize,
}

/// The tile programs of a module's steps.
#[derive(Debug, Clone, Default)]
pub struct TileLaunches {
    /// The distinct programs, in order of first use.
    pub programs: Vec<(KernelHash, Arc<Program>)>,
    /// The distinct kernels that join parts, make or check lists or are for few rows, likewise.
    pub joins: Vec<(KernelHash, Arc<Kernel>)>,
    /// What steps of the run need that are divided, or of which a kernel makes lists.
    pub scratch: Vec<Scratch>,
    places: HashMap<KernelHash, usize>,
    pub(crate) init: Vec<StepTiles>,
    pub(crate) run: Vec<StepTiles>,
}

impl TileLaunches {
    /// Whether the next init step, or step of the run, is done by tile programs; `units` are the device's matrix units, `tuned` is the number of the tiling that
    /// was tuned, `division` is how the device divides the step, where it may, and `few` is what does the step where its rows are few.
    pub fn take(
        &mut self,
        desc: &StepDesc,
        init: bool,
        (units, target): (Option<MatrixUnits>, &KernelTarget),
        tuned: Option<usize>,
        (division, few): (Option<&Division>, Vec<FewRows>),
    ) -> bool {
        let launches = units.map(|units| chosen(desc, units, &target.limits, tuned)).unwrap_or_default();
        // Nothing has scratch memory in the init program.
        let launches =
            if init { launches.into_iter().filter(|of| of.lists.is_none()).collect() } else { launches };
        let tuned = tuned.and_then(|_| launches.first()).map(|launch| launch.tiling);
        let divided = units.zip(division.filter(|_| !launches.is_empty()));
        let divided = divided.map_or_else(Vec::new, |(units, division)| {
            in_parts(desc, tuned.as_ref(), (units, target), division)
        });
        let always = divided.iter().any(is_always_taken);
        let checks = launches.first().map_or_else(Vec::new, |launch| launch.checks.clone());
        let checks = checks.into_iter().map(|check| self.made(check)).collect();
        let parts = self.parts(divided);
        let lists = self.lists(&launches);
        let whole = launches.into_iter().filter(|_| !always).map(|launch| self.distinct(launch)).collect();
        let few = few.into_iter().map(|of| self.few(of)).collect();
        let tiles = StepTiles { whole, lists, parts, few, checks, ..StepTiles::default() };
        let taken = tiles.has_programs();
        self.add(init, tiles);
        taken
    }

    /// The next step of the run is done in waves.
    pub(crate) fn take_waves(&mut self, WavesLaunch { whole, rest, .. }: WavesLaunch) {
        let parts = self.parts(vec![rest]);
        let whole = vec![self.distinct(whole)];
        self.add(false, StepTiles { whole, parts, in_waves: true, ..StepTiles::default() });
    }

    /// The vendor's library does not do the last step that was taken.
    pub(crate) fn without_library(&mut self, init: bool) {
        if let Some(tiles) = if init { &mut self.init } else { &mut self.run }.last_mut() {
            tiles.without_library = true;
        }
    }

    /// The next init step, or step of the run, is done as an earlier one of the same list is.
    pub(crate) fn repeat(&mut self, init: bool, earlier: usize) {
        let mut tiles = if init { &self.init } else { &self.run }[earlier].clone();
        let scratch = self.scratch_of(tiles.needed());
        tiles.parts.iter_mut().for_each(|parts| parts.scratch = scratch);
        tiles.lists.iter_mut().for_each(|lists| lists.scratch = scratch);
        self.add(init, tiles);
    }

    /// How many init steps, or steps of the run, there are so far.
    pub(crate) fn count(&self, init: bool) -> usize {
        if init { self.init.len() } else { self.run.len() }
    }

    /// The next init step, or step of the run, is done by its kernels alone.
    pub fn leave(&mut self, init: bool) {
        self.add(init, StepTiles::default());
    }

    fn add(&mut self, init: bool, tiles: StepTiles) {
        if init { self.init.push(tiles) } else { self.run.push(tiles) }
    }

    /// Whether every step has its usual kernels alone.
    pub fn is_plain(&self) -> bool {
        let is_plain = |step: &StepTiles| step.is_empty() && step.checks.is_empty() && !step.without_library;
        self.init.iter().chain(&self.run).all(is_plain)
    }

    /// The programs of a step.
    pub fn of(&self, init: bool, index: usize) -> Option<&StepTiles> {
        if init { self.init.get(index) } else { self.run.get(index) }
    }

    /// The first step that a program is for: whether of the init program, and which.
    pub fn step_of(&self, program: usize) -> Option<(bool, usize)> {
        let has = |steps: &[StepTiles]| steps.iter().position(|tiles| tiles.programs().any(|t| t == program));
        has(&self.init).map(|at| (true, at)).or_else(|| Some((false, has(&self.run)?)))
    }

    /// The first step whose parts this kernel joins, whose lists it makes or checks, or whose few rows it computes: whether of the init program, and which.
    pub fn step_of_join(&self, join: usize) -> Option<(bool, usize)> {
        let has = |tiles: &StepTiles| {
            tiles.parts.iter().any(|parts| parts.join == join)
                || tiles.lists.iter().flat_map(|of| &of.kernels).chain(&tiles.checks).any(|of| of.0 == join)
                || tiles.few.iter().any(|of| of.0 == join)
        };
        let init = self.init.iter().position(has).map(|at| (true, at));
        init.or_else(|| Some((false, self.run.iter().position(has)?)))
    }

    fn program(&mut self, program: &Arc<Program>) -> usize {
        let (hash, next) = (program.hash(), self.programs.len());
        let at = *self.places.entry(hash).or_insert(next);
        if at == next {
            self.programs.push((hash, Arc::clone(program)));
        }
        at
    }

    fn distinct(&mut self, launch: StepLaunch) -> (usize, StepLaunch) {
        let at = self.program(&launch.program);
        (at, StepLaunch { program: Arc::clone(&self.programs[at].1), ..launch })
    }

    /// The number of the scratch memory of the next step of the run, where it needs some: as much for all that may do it, and one is run.
    pub(crate) fn scratch_of(&mut self, needed: Option<(DType, Extent)>) -> usize {
        let (scratch, step) = (self.scratch.len(), self.run.len());
        self.scratch.extend(needed.map(|(dtype, elements)| Scratch { step, dtype, elements }));
        scratch
    }

    /// What makes the lists of the next step of the run, which is done by one of these.
    fn lists(&mut self, launches: &[StepLaunch]) -> Option<StepLists> {
        let listed: Vec<&Listed> = launches.iter().filter_map(|of| of.lists.as_ref()).collect();
        let elements = listed.first()?.scratch;
        let kernels = listed.iter().map(|of| self.made(of.launch.clone())).collect();
        Some(StepLists { kernels, elements, scratch: self.scratch_of(Some((DType::I32, elements))) })
    }

    /// The next step of the run is divided, by one of these.
    fn parts(&mut self, launches: Vec<PartsLaunch>) -> Vec<StepParts> {
        let scratch = self.scratch_of(launches.first().map(of_parts));
        launches.into_iter().map(|launch| self.part(launch, scratch)).collect()
    }

    fn kernel(&mut self, kernel: &mut Arc<Kernel>) -> usize {
        let (hash, next) = (kernel.hash(), self.joins.len());
        let at = self.joins.iter().position(|join| join.0 == hash).unwrap_or(next);
        if at == next {
            self.joins.push((hash, Arc::clone(kernel)));
        }
        *kernel = Arc::clone(&self.joins[at].1);
        at
    }

    fn made(&mut self, mut of: PartLaunch<Kernel>) -> (usize, PartLaunch<Kernel>) {
        (self.kernel(&mut of.code), of)
    }

    fn few(&mut self, mut of: FewRows) -> (usize, FewRows) {
        (self.kernel(&mut of.launch.kernel), of)
    }

    fn part(&mut self, mut launch: PartsLaunch, scratch: usize) -> StepParts {
        let program = self.program(&launch.parts.code);
        launch.parts.code = Arc::clone(&self.programs[program].1);
        let join = self.kernel(&mut launch.join.code);
        StepParts { program, join, launch, scratch }
    }
}

/// The scratch memory of a step that is divided.
pub(crate) fn of_parts(launch: &PartsLaunch) -> (DType, Extent) {
    (DType::F32, launch.scratch)
}

/// Whether a device of these limits runs a program.
pub(crate) fn fits(program: &Program, units: MatrixUnits, limits: &DeviceLimits) -> bool {
    let shared = usize::try_from(program.shared_bytes()).unwrap_or(usize::MAX);
    let most = if program.dynamic_bytes() > 0 { units.dynamic_bytes } else { limits.max_shared_bytes };
    program.buffers.len() <= limits.max_bindings
        && program.workgroup() <= limits.max_workgroup
        && shared <= most
}

/// The same of a kernel that makes lists.
fn kernel_fits(kernel: &Kernel, limits: &DeviceLimits) -> bool {
    kernel.workgroup <= limits.max_workgroup && kernel.shared_bytes() <= limits.max_shared_bytes
}

/// Whether every step of such a node is done by a tile program.
pub fn takes(node: &Node, graph: &Graph, units: MatrixUnits, limits: &DeviceLimits) -> bool {
    let desc = StepDesc::of_node(node, graph).ok();
    desc.is_some_and(|desc| launches(&desc, units, limits).next().is_some())
}

/// Whether a convolution is done by a tile program, unless its operands are elsewhere than a graph says.
pub fn takes_conv(node: &Node, graph: &Graph, units: MatrixUnits) -> bool {
    let convolves = |desc: &StepDesc| units.for_step(desc).is_some_and(|of| convolves(of.arch, desc));
    StepDesc::of_node(node, graph).is_ok_and(|desc| convolves(&desc))
}

/// The same of a node which has no kernels: an attention, or one of keys and values that a gather picks, or rows in groups.
pub fn takes_whole(node: &Node, graph: &Graph, units: MatrixUnits, limits: &DeviceLimits) -> bool {
    (is_attention(&node.op) || node.op == Op::GroupedMatMul) && takes(node, graph, units, limits)
}

/// Whether an op is an attention, or a region around one.
pub fn is_attention(op: &Op) -> bool {
    match op {
        Op::Attention { .. } => true,
        Op::Region { body } => body.graph.nodes().iter().any(|n| matches!(n.op, Op::Attention { .. })),
        _ => false,
    }
}

/// The dispatches of a step by each tiling that the device runs, the one to take unmeasured first; none where it has kernels.
pub(crate) fn launches(
    desc: &StepDesc,
    units: MatrixUnits,
    limits: &DeviceLimits,
) -> impl Iterator<Item = StepLaunch> {
    let runs = Runs::of(desc, units, limits);
    runs.into_iter()
        .flat_map(|(runs, tilings)| tilings.into_iter().filter_map(move |tiling| runs.launch(&tiling)))
}

/// The programs of a step, as far as the device runs them.
struct Runs<'s> {
    programs: StepPrograms<'s>,
    units: MatrixUnits,
    limits: DeviceLimits,
}

impl<'s> Runs<'s> {
    /// Those of a step, and its tilings; none where it has kernels.
    fn of(desc: &'s StepDesc, units: MatrixUnits, limits: &DeviceLimits) -> Option<(Self, Vec<Tiling>)> {
        let units = units.for_step(desc)?;
        let programs = StepPrograms::of(units.arch, desc).ok()?;
        let tilings = programs.tilings(units.compute_units).ok()?;
        Some((Runs { programs, units, limits: *limits }, tilings))
    }

    /// The dispatch by a tiling.
    fn launch(&self, tiling: &Tiling) -> Option<StepLaunch> {
        Some(self.offer(tiling)?.0)
    }

    /// The same with its time relative to others of the step, where sizes are known.
    fn offer(&self, tiling: &Tiling) -> Option<(StepLaunch, Option<u64>)> {
        let launch = self.programs.launch(tiling).ok()?;
        let predicted = launch.predicted(self.units.compute_units);
        let launch = launch.on_units(self.units.compute_units);
        let lists = launch.lists.as_ref().map(|of| &of.launch.code);
        let runs = fits(&launch.program, self.units, &self.limits)
            && lists.is_none_or(|kernel| kernel_fits(kernel, &self.limits));
        runs.then_some((launch, predicted))
    }
}

/// A step in parts, by the tiling that was tuned, where there is one; nothing where that is not worth it, or the device does not run both dispatches.
fn in_parts(
    desc: &StepDesc,
    tuned: Option<&Tiling>,
    (units, target): (MatrixUnits, &KernelTarget),
    division: &Division,
) -> Vec<PartsLaunch> {
    // Where a step must not read and write one pool, a plan does not know of the steps within a step.
    if target.pool.exclusive_usage {
        return Vec::new();
    }
    let Some(units) = units.for_parts_of(desc) else { return Vec::new() };
    let all = step_in_parts(units.arch, desc, tuned, division);
    let runs = |mut launch: PartsLaunch| {
        launch.join.code = Arc::new(target.adapted(&launch.join.code).ok()?);
        fits(&launch.parts.code, units, &target.limits).then_some(launch)
    };
    all.unwrap_or_default().into_iter().filter_map(runs).collect()
}

/// Whether every run divides the step.
fn is_always_taken(launch: &PartsLaunch) -> bool {
    launch.rows.as_const().is_some() && launch.count.as_const().is_some()
}

/// Whether a run of so many rows is divided by what is for at most `most` of them, if it would be into so many parts.
pub fn takes_parts(rows: i64, most: Option<u32>, count: i64) -> bool {
    most.is_none_or(|most| rows <= i64::from(most)) && count > 1
}

fn name_of(arch: Arch, tiling: &Tiling) -> String {
    format!("tiles.{}.{}", arch.name(), tiling.name())
}

/// The name of the program that does a step where nothing was tuned, and whether it is divided, and into how many parts; none where it has kernels.
pub fn name(
    of: &Step,
    lir: &LirModule,
    units: MatrixUnits,
    target: &KernelTarget,
    division: Option<&Division>,
) -> Option<String> {
    let desc = StepDesc::of(of, lir).ok()?;
    let launches = chosen(&desc, units, &target.limits, None);
    let first = launches.first()?;
    let name = name_of(first.program.arch, &first.tiling);
    let prepared = |o: &Operand| lir.buffers[o.buffer.index()].kind == BufferKind::Prepared;
    let of_init = of.outputs.iter().any(prepared);
    let parts = division
        .filter(|_| !of_init)
        .map_or_else(Vec::new, |division| in_parts(&desc, None, (units, target), division));
    Some(match parts.first() {
        Some(parts) if is_always_taken(parts) => {
            format!("{}.parts{}", name_of(parts.parts.code.arch, &parts.tiling), parts.count)
        }
        Some(_) => format!("{name}, small results in parts"),
        None => name,
    })
}

/// The dispatches of a step of which one is to be chosen for the numbers of a run: the one of this number, which a tuning names, else what suits its sizes.
fn chosen(
    desc: &StepDesc,
    units: MatrixUnits,
    limits: &DeviceLimits,
    tuned: Option<usize>,
) -> Vec<StepLaunch> {
    match tuned {
        Some(tuned) => launches(desc, units, limits).nth(tuned).into_iter().collect(),
        None => Runs::of(desc, units, limits).map_or_else(Vec::new, |(runs, all)| alternatives(&runs, &all)),
    }
}

/// The first launch and, where its sizes are open, the next one of at most half of its rows and the one of the fewest.
fn alternatives(runs: &Runs<'_>, all: &[Tiling]) -> Vec<StepLaunch> {
    let mut rest = all.iter();
    let Some(first) = rest.by_ref().find_map(|tiling| runs.launch(tiling)) else { return Vec::new() };
    let (rows, cols) = (first.size.0.as_const(), first.size.1.as_const());
    if rows.is_some() && cols.is_some() {
        return vec![first];
    }
    // What suits neither the known size nor the largest one is never chosen.
    let [rows, cols] = [rows, cols].map(|size| size.unwrap_or(i64::MAX));
    // Workgroups of several tiles are for tuning.
    let mut rest = rest.filter(|tiling| tiling.teams == 0 && tiling.suits(rows, cols));
    let halves = |tiling: &Tiling, of: &StepLaunch| 2 * tiling.tile.0 <= of.tiling.tile.0;
    let next = rest.by_ref().filter(|tiling| halves(tiling, &first)).find_map(|tiling| runs.launch(tiling));
    let Some(next) = next else { return vec![first] };
    let mut fewest: Vec<&Tiling> = rest.filter(|tiling| halves(tiling, &next)).collect();
    fewest.sort_by_key(|tiling| tiling.tile.0);
    let fewest = fewest.into_iter().find_map(|tiling| runs.launch(tiling));
    [first, next].into_iter().chain(fewest).collect()
}

/// Which of a step's tilings a run of these numbers takes: the first that suits the result, else the last.
pub fn choose(tilings: &[Tiling], rows: i64, cols: i64) -> usize {
    tilings.iter().position(|tiling| tiling.suits(rows, cols)).unwrap_or(tilings.len().saturating_sub(1))
}

/// The tilings of a step by name, with their predicted times, the one to take unmeasured first; `None` where it has kernels.
pub(crate) fn offered(
    of: &Step,
    desc: &StepDesc,
    units: MatrixUnits,
    limits: &DeviceLimits,
) -> Option<Vec<(String, Option<u64>)>> {
    let (runs, tilings) = Runs::of(desc, units, limits)?;
    // The prediction is of sums of products.
    let attends = matches!(&of.kind, StepKind::Op(op) if is_attention(op));
    let offer = |(launch, predicted): (StepLaunch, Option<u64>)| {
        (name_of(launch.program.arch, &launch.tiling), predicted.filter(|_| !attends))
    };
    Some(tilings.iter().filter_map(|tiling| runs.offer(tiling)).map(offer).collect())
}

/// A step in parts.
pub(crate) struct InParts {
    /// The name of its program for the fewest rows.
    pub name: String,
    /// How many parts, where sizes say so.
    pub count: Option<i64>,
}

/// A step as `division` divides it; `None` where it does not, or the device does not run it so.
pub(crate) fn divided(
    desc: &StepDesc,
    (units, target): (MatrixUnits, &KernelTarget),
    division: &Division,
) -> Option<InParts> {
    let all = in_parts(desc, None, (units, target), division);
    let first = all.first()?;
    let count = first.count.as_const().filter(|_| is_always_taken(first));
    let name = name_of(first.parts.code.arch, &first.tiling);
    let name = count.map_or_else(|| format!("{name}.parts"), |count| format!("{name}.parts{count}"));
    Some(InParts { name, count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_takes_the_largest_tile_that_its_result_fills() {
        let of =
            |m, n| Tiling { tile: (m, n, 32), warps: (1, 1), stages: 2, bands: 8, groups: false, teams: 0 };
        let tilings = [of(128, 128), of(64, 64), of(16, 64)];
        let sizes =
            [(1, 500), (16, 64), (17, 64), (49, 64), (64, 64), (112, 200), (113, 113), (4096, 1), (0, 0)];
        let found = sizes.map(|(rows, cols)| choose(&tilings, rows, cols));
        assert_eq!(found, [2, 2, 2, 1, 1, 1, 0, 2, 2]);
    }

    #[test]
    fn without_the_group_level_units_are_those_of_warps_and_without_these_there_are_none() {
        let (family, dtype) = (Family::MatMul, DType::F16);
        let mut units = MatrixUnits {
            arch: Arch::Sm90a,
            dynamic_bytes: 0,
            compute_units: None,
            aside: Classes::default(),
        };
        assert_eq!(units.for_family(family, dtype), Some(units));
        units.aside.insert(Class::Tiles { family, dtype, groups: true });
        assert_eq!(units.for_family(family, dtype).map(|of| of.arch), Some(Arch::Sm80));
        assert_eq!(units.for_family(Family::Conv, dtype), Some(units));
        assert_eq!(units.for_family(family, DType::BF16), Some(units));
        units.aside.insert(Class::Tiles { family, dtype, groups: false });
        assert_eq!(units.for_family(family, dtype), None);
    }
}
