//! A module on a device, as the executor uses it: see [`DeviceApi`].

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use rlx_backend::executor::{Program as BackendProgram, Run, Step, use_pools};
use rlx_backend::extents::Values;
use rlx_backend::prepared::Prepared;
use rlx_backend::{CodePart, DeviceApi};
use rlx_ir::lir::MemoryPlan;
use rlx_ir::{Error, ErrorKind, LirModule, Result, Weight};
use rlx_kernel::{KernelTarget, Launches};
use rlx_opt::PoolSpec;

use crate::api::{GpuApi, Source, Usage};
use crate::blas::StepMatMul;
use crate::dispatch::{self, Codes, ConstantLayout, ConstantPlace, Dispatches, FAULT_BYTES};
use crate::flights::{Fault, Flights, IN_FLIGHT, InitReport};
use crate::memory::{self, Buffer};
use crate::sequence::Sequence;
use crate::stored::Stored;
use crate::tiles::TileLaunches;
use crate::timing::Timer;

/// A step's dispatches.
pub(crate) type Kernel<G> = Dispatches<Arc<<G as GpuApi>::Code>>;

/// A module with code for every step.
pub(crate) type Program<G> = BackendProgram<KernelDevice<G>>;

/// The device, with what it keeps of a module.
pub(crate) struct KernelDevice<G: GpuApi> {
    gpu: Arc<G>,
    target: KernelTarget,
    /// What the dispatches were made of.
    stored: Stored,
    constant_pools: Vec<Buffer<G>>,
    constants: Vec<Option<ConstantPlace>>,
    /// What the init program reported after it was left to itself: see `KernelDevice::check_init`.
    init_fault: OnceLock<Error>,
}

/// How a module's steps are computed.
pub(crate) struct Schedules {
    /// Kernels, of the steps that tile programs do not do.
    pub launches: Launches,
    /// Tile programs.
    pub tiles: TileLaunches,
    /// Whether the launches come from a file.
    pub guarded: bool,
    /// Whether the vendor's library may do matmuls.
    pub blas: bool,
}

impl Schedules {
    /// The code of everything.
    fn compile<G: GpuApi>(&self, gpu: &G, lir: &LirModule) -> Result<Codes<Arc<G::Code>>> {
        let Schedules { launches, tiles, guarded, .. } = self;
        let kernels = launches.kernels.iter().map(|(hash, k)| (*hash, Source::Kernel(Arc::clone(k))));
        let programs = tiles.programs.iter().map(|(hash, p)| (*hash, Source::Tiles(Arc::clone(p))));
        let joins = tiles.joins.iter().map(|(hash, k)| (*hash, Source::Kernel(Arc::clone(k))));
        let sources: Vec<_> = kernels.chain(programs).chain(joins).collect();
        let codes = gpu.shared().kernels(gpu, &sources, *guarded);
        let mut kernels =
            codes.map_err(|(at, e)| dispatch::rejected((launches, tiles), lir, at, e, gpu.name()))?;
        let joins = kernels.split_off(launches.kernels.len() + tiles.programs.len());
        let first_scratch = lir.buffers.len() - tiles.scratch.len();
        let tiles = kernels.split_off(launches.kernels.len());
        Ok(Codes { kernels, tiles, joins, first_scratch })
    }
}

/// Compiles everything and copies the constants to the device: `module` is what was compiled, `lir` what is run, with scratch memory behind its buffers.
///
/// # Errors
/// A kernel that the driver rejects, memory that cannot be had.
pub(crate) fn program<G: GpuApi>(
    gpu: Arc<G>,
    target: KernelTarget,
    (module, lir): (Arc<LirModule>, Arc<LirModule>),
    schedules: Schedules,
) -> Result<Program<G>> {
    let codes = schedules.compile(&*gpu, &lir)?;
    let Schedules { launches, tiles, blas, .. } = schedules;
    let constants = ConstantLayout::new(&lir, &target).map_err(|e| e.with_device(gpu.name()))?;
    let pools =
        { constants.pools.iter() }.map(|&bytes| Buffer::new(&*gpu, bytes as usize, Usage::Pool, "constants"));
    let constant_pools = pools.collect::<Result<Vec<_>>>()?;
    for ((pool, offset, _), bytes) in constants.bytes(&lir) {
        constant_pools[pool].write(&gpu, offset as usize, bytes)?;
    }
    let (machine, launches, tiles) = (gpu.machine(), Arc::new(launches), Arc::new(tiles));
    let stored = Stored { module, launches: Arc::clone(&launches), tiles: Arc::clone(&tiles) };
    let (constants, init_fault) = (constants.places, OnceLock::new());
    let device = KernelDevice { gpu, target, stored, constant_pools, constants, init_fault };
    // What a fault of a dispatch is reported as: its place among those of the init program, or of the run.
    let mut numbers = [0, 0];
    Program::new(lir, device, &machine, |_, lir, at, step, table| {
        let launches = if at.init { &launches.init[at.index] } else { &launches.run[at.index] };
        let number = &mut numbers[usize::from(at.init)];
        let tiles = tiles.of(at.init, at.index);
        let mut dispatches = dispatch::prepare(step, lir, (launches, tiles), &codes, number, table);
        let by_library = blas && tiles.is_none_or(|tiles| !tiles.without_library);
        dispatches.matmul = if by_library { StepMatMul::of(step, &lir.graph, table) } else { None };
        Ok(Arc::new(dispatches))
    })
}

/// What an executable has of the device.
pub(crate) struct Queue<G: GpuApi> {
    pools: Vec<Buffer<G>>,
    /// The fault record.
    faults: G::Range,
    _faults: Buffer<G>,
    flights: Flights<G>,
    /// Whether the present run was submitted.
    submitted: Cell<bool>,
    /// What init steps report, where no one could wait for it.
    init_reports: RefCell<Vec<InitReport<G>>>,
}

impl<G: GpuApi> KernelDevice<G> {
    /// What is wrong where a fault was reported.
    fn report(&self, program: &Program<G>, fault: Option<Fault>) -> Result<()> {
        match fault {
            None => Ok(()),
            Some((Some(node), error)) => Err(program.locate(node, error)),
            Some((None, error)) => Err(error.with_device(self.gpu.name())),
        }
    }

    /// Runs init steps; waits for those that can fail, or in a page leaves what they report to the run behind them.
    fn submit_init(&self, queue: &mut Queue<G>, run: Run<'_, Self>) -> Result<()> {
        let (gpu, name, faults) = (&*self.gpu, &run.program.lir.name, &queue.faults);
        let can_fail = Arc::clone(&run.sequence.bound.can_fail);
        if can_fail.is_empty() {
            return run.sequence.submit(gpu, name, run.places, faults, None, None);
        }
        let mut report = InitReport::new(gpu, faults, &can_fail)?;
        run.sequence.submit(gpu, name, run.places, faults, Some(report.back()), None)?;
        if !G::WAITS {
            queue.init_reports.get_mut().push(report);
            return Ok(());
        }
        self.report(run.program, report.read(gpu)?)
    }

    /// What init steps reported meanwhile. What they made is no one's any more then, and the program cannot run.
    fn check_init(&self, program: &Program<G>, queue: &Queue<G>) -> Result<()> {
        for report in queue.init_reports.take() {
            if let Err(error) = self.report(program, report.read(&self.gpu)?) {
                self.gpu.shared().prepared.clear();
                return Err(self.init_fault.get_or_init(|| error).clone());
            }
        }
        Ok(())
    }
}

impl<G: GpuApi> DeviceApi for KernelDevice<G> {
    type Kernel = Arc<Kernel<G>>;
    type Memory = Buffer<G>;
    type Place = Option<G::Range>;
    type Sequence = Sequence<G>;
    type Queue = Queue<G>;

    const IN_FLIGHT: usize = IN_FLIGHT;
    const INIT_BATCH: usize = usize::MAX;
    const LOADS_AT_ONCE: bool = true;
    const LEAVES_OUTPUTS: bool = true;

    fn name(&self) -> &str {
        self.gpu.name()
    }

    fn alive(&self) -> Result<()> {
        self.gpu.alive()?;
        self.init_fault.get().map_or(Ok(()), |fault| Err(fault.clone()))
    }

    fn times_steps(&self) -> bool {
        self.gpu.tick().is_some()
    }

    fn pools(&self) -> PoolSpec {
        self.target.pool
    }

    fn allocate(&self, bytes: usize, what: &str) -> Result<Buffer<G>> {
        Buffer::new(&self.gpu, bytes, Usage::Storage, what)
    }

    fn with_room(&self, bytes: usize) -> usize {
        bytes.checked_next_power_of_two().unwrap_or(bytes).min(memory::most_bound(&*self.gpu)).max(bytes)
    }

    fn size(memory: &Buffer<G>) -> usize {
        memory.size()
    }

    fn place(memory: &Buffer<G>) -> Option<G::Range> {
        Some(memory.whole())
    }

    fn host(_: &Buffer<G>) -> Option<&[u8]> {
        None
    }

    fn upload(&self, to: &mut Buffer<G>, bytes: &[u8]) -> Result<()> {
        to.write(&self.gpu, 0, bytes)
    }

    fn download<'m>(&self, from: &'m Buffer<G>, bytes: usize) -> Result<Cow<'m, [u8]>> {
        from.read(&self.gpu, bytes).map(Cow::Owned)
    }

    fn duplicate(&self, from: &Buffer<G>, bytes: usize, what: &str) -> Result<Buffer<G>> {
        from.duplicate(&self.gpu, bytes, what)
    }

    fn load(&self, weight: &Arc<Weight>, name: &str) -> Result<Arc<Buffer<G>>> {
        self.gpu.shared().upload(&self.gpu, weight, name)
    }

    fn constant(&self, buffer: usize) -> Option<Option<G::Range>> {
        let (pool, offset, bytes) = self.constants[buffer]?;
        Some(Some(self.constant_pools[pool].part(offset as usize, bytes as usize)))
    }

    fn prepared(&self) -> &Prepared<Buffer<G>> {
        &self.gpu.shared().prepared
    }

    fn queue(&self, _: &Program<G>, _: Option<&Queue<G>>) -> Result<Queue<G>> {
        let faults = Buffer::new(&*self.gpu, FAULT_BYTES, Usage::Storage, "the fault record")?;
        Ok(Queue {
            pools: Vec::new(),
            faults: faults.whole(),
            _faults: faults,
            flights: Flights::default(),
            submitted: Cell::new(false),
            init_reports: RefCell::default(),
        })
    }

    fn sequence<'s>(
        &self,
        _: &Queue<G>,
        steps: impl Iterator<Item = &'s Step<Arc<Kernel<G>>>> + Clone,
        like: Option<&Sequence<G>>,
    ) -> Result<Sequence<G>> {
        Sequence::new(&self.gpu, &self.target, steps, like)
    }

    fn bind(
        &self,
        sequence: &mut Sequence<G>,
        at: usize,
        _: &Step<Arc<Kernel<G>>>,
        values: &Values<'_>,
    ) -> Result<()> {
        sequence.bound.bind(at, values)
    }

    fn seal(&self, _: &mut Queue<G>, sequence: &mut Sequence<G>) -> Result<()> {
        sequence.upload(&self.gpu)
    }

    fn forget_places(sequence: &mut Sequence<G>) {
        sequence.unlink();
    }

    fn use_plan(
        &self,
        queue: &mut Queue<G>,
        lir: &LirModule,
        plan: &MemoryPlan,
        places: &mut [Option<G::Range>],
    ) -> Result<()> {
        let allocate =
            |i, bytes| Buffer::new(&*self.gpu, bytes, Usage::Pool, &format!("the arena (pool {i})"));
        let part = |pool: &Buffer<G>, offset, bytes| Some(pool.part(offset, bytes));
        use_pools::<Self>(&mut queue.pools, lir, plan, places, allocate, part)
    }

    fn begin(&self, queue: &mut Queue<G>) -> Result<()> {
        queue.submitted.set(false);
        Ok(())
    }

    fn submit(&self, queue: &mut Queue<G>, run: Run<'_, Self>) -> Result<()> {
        let Some(stage) = run.stage else { return self.submit_init(queue, run) };
        run.progress.step(stage, 0, 1, || "")?;
        let Queue { faults, flights, submitted, .. } = queue;
        let (gpu, name) = (&*self.gpu, &run.program.lir.name);
        let flight = flights.prepare(gpu, run.outputs, run.places, faults)?;
        let timer = if run.times.is_some() { Timer::new(gpu, run.sequence.bound.busy())? } else { None };
        submitted.set(true);
        let (back, times) = (flights.back(gpu, flight)?, timer.as_ref().map(Timer::times));
        run.sequence.submit(gpu, name, run.places, faults, Some(back), times)?;
        if let Some((timer, (times, _))) = timer.zip(run.times) {
            timer.add_to(gpu, times)?;
        }
        flights.submitted(flight, &run.sequence.bound.can_fail);
        Ok(())
    }

    fn complete(&self, program: &Program<G>, queue: &Queue<G>) -> Result<()> {
        if queue.flights.is_idle() {
            return Ok(());
        }
        let init = self.check_init(program, queue);
        let run = queue.flights.complete(&self.gpu);
        init?;
        self.report(program, run?)
    }

    fn poll_complete(&self, queue: &Queue<G>, context: &mut Context<'_>) -> Poll<()> {
        let init = queue.init_reports.borrow().iter().all(|r| r.poll(&self.gpu, context).is_ready());
        let run = queue.flights.poll(&self.gpu, context).is_ready();
        let calls = self.gpu.shared().poll_calls(context).is_ready();
        if init && run && calls { Poll::Ready(()) } else { Poll::Pending }
    }

    fn roll_back(&self, queue: &mut Queue<G>) -> bool {
        // A fault is known when the whole submission is done.
        !queue.submitted.get()
    }

    fn output<'q>(&self, queue: &'q Queue<G>, index: usize, _: usize, _: usize) -> Result<&'q [u8]> {
        queue.flights.output(&self.gpu, index)
    }

    fn fetch(&self, place: &Option<G::Range>, bytes: usize) -> Result<Vec<u8>> {
        let missing = || self.gpu.error(ErrorKind::Internal, "an output without memory");
        memory::read(&*self.gpu, place.as_ref().ok_or_else(missing)?, bytes)
    }

    fn arena<'q>(&self, queue: &'q Queue<G>) -> Option<&'q [u8]> {
        queue.flights.arena(&self.gpu)
    }

    fn wait(&self) -> Result<()> {
        self.gpu.wait()
    }

    fn code(&self) -> Result<Vec<CodePart>> {
        self.stored.parts(&*self.gpu)
    }
}
