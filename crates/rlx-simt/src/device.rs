//! The device as the executor uses it: see [`DeviceApi`].

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use rlx_backend::DeviceApi;
use rlx_backend::executor::{Run, Step, use_pools};
use rlx_backend::extents::Values;
use rlx_backend::prepared::Prepared;
use rlx_ir::lir::MemoryPlan;
use rlx_ir::{ErrorKind, LirModule, Result, Weight};
use rlx_kernel::dispatch::FAULT_BYTES;
use rlx_opt::PoolSpec;

use crate::driver::Part;
use crate::flights::{Flights, IN_FLIGHT};
use crate::memory::Buffer;
use crate::program::{Kernel, Program, Simt};
use crate::sequence::{Place, Sequence};

/// What an executable has of the device.
pub(crate) struct Queue {
    pools: Vec<Buffer>,
    faults: Buffer,
    flights: Flights,
    /// Whether the present run was given to the device.
    submitted: Cell<bool>,
}

impl DeviceApi for Simt {
    type Kernel = Arc<Kernel>;
    type Memory = Buffer;
    type Place = Place;
    type Sequence = Sequence;
    type Queue = Queue;

    const IN_FLIGHT: usize = IN_FLIGHT;
    const INIT_BATCH: usize = usize::MAX;
    const LOADS_AT_ONCE: bool = true;
    const LEAVES_OUTPUTS: bool = true;

    fn name(&self) -> &str {
        self.gpu.which.device.name()
    }

    fn alive(&self) -> Result<()> {
        self.gpu.alive()
    }

    fn pools(&self) -> PoolSpec {
        self.target.pool
    }

    fn allocate(&self, bytes: usize, what: &str) -> Result<Buffer> {
        Buffer::new(&self.gpu, bytes, what)
    }

    fn size(memory: &Buffer) -> usize {
        memory.len()
    }

    fn place(memory: &Buffer) -> Place {
        Some(memory.whole())
    }

    fn host(_: &Buffer) -> Option<&[u8]> {
        None
    }

    fn upload(&self, to: &mut Buffer, bytes: &[u8]) -> Result<()> {
        to.write(&self.gpu, 0, bytes)
    }

    fn download<'m>(&self, from: &'m Buffer, bytes: usize) -> Result<Cow<'m, [u8]>> {
        from.read(&self.gpu, bytes).map(Cow::Owned)
    }

    fn duplicate(&self, from: &Buffer, bytes: usize, what: &str) -> Result<Buffer> {
        from.duplicate(&self.gpu, bytes, what)
    }

    fn load(&self, weight: &Arc<Weight>, name: &str) -> Result<Arc<Buffer>> {
        self.gpu.upload(weight, name)
    }

    fn constant(&self, buffer: usize) -> Option<Place> {
        let (pool, offset, bytes) = self.constants[buffer]?;
        Some(Some(self.constant_pools[pool].part(offset as usize, bytes as usize)))
    }

    fn prepared(&self) -> &Prepared<Buffer> {
        &self.gpu.prepared
    }

    fn queue(&self, _: &Program, _: Option<&Queue>) -> Result<Queue> {
        let faults = Buffer::new(&self.gpu, FAULT_BYTES, "the fault record")?;
        Ok(Queue { pools: Vec::new(), faults, flights: Flights::default(), submitted: Cell::new(false) })
    }

    fn sequence<'s>(
        &self,
        _: &Queue,
        steps: impl Iterator<Item = &'s Step<Arc<Kernel>>> + Clone,
        like: Option<&Sequence>,
    ) -> Result<Sequence> {
        Sequence::new(&self.gpu, self.target.limits.max_groups, steps, like)
    }

    fn bind(
        &self,
        sequence: &mut Sequence,
        at: usize,
        _: &Step<Arc<Kernel>>,
        values: &Values<'_>,
    ) -> Result<()> {
        sequence.bound.bind(at, values)
    }

    fn seal(&self, _: &mut Queue, sequence: &mut Sequence) -> Result<()> {
        sequence.upload(&self.gpu)
    }

    fn forget_places(sequence: &mut Sequence) {
        sequence.unlink();
    }

    fn use_plan(
        &self,
        queue: &mut Queue,
        lir: &LirModule,
        plan: &MemoryPlan,
        places: &mut [Place],
    ) -> Result<()> {
        let allocate = |i, bytes| Buffer::new(&self.gpu, bytes, &format!("the arena (pool {i})"));
        let part = |pool: &Buffer, offset, bytes| Some(pool.part(offset, bytes));
        use_pools::<Self>(&mut queue.pools, lir, plan, places, allocate, part)
    }

    fn begin(&self, queue: &mut Queue) -> Result<()> {
        queue.submitted.set(false);
        Ok(())
    }

    fn submit(&self, queue: &mut Queue, run: Run<'_, Simt>) -> Result<Option<usize>> {
        if let Some(stage) = run.stage {
            run.progress.step(stage, 0, 1, || "")?;
            queue.submitted.set(true);
        } else if run.sequence.bound.can_fail.is_empty() {
            // Init steps that cannot fail need not be waited for.
            let (name, faults) = (&run.program.lir.name, queue.faults.whole());
            return run.sequence.submit(&self.gpu, name, run.places, faults).map(|()| None);
        }
        let Queue { faults, flights, .. } = queue;
        let (gpu, faults) = (&self.gpu, faults.whole());
        let flight = flights.prepare(gpu, run.outputs)?;
        run.sequence.submit(gpu, &run.program.lir.name, run.places, faults)?;
        flights.submitted(gpu, flight, run.outputs, run.places, faults, &run.sequence.bound.can_fail)?;
        Ok(None)
    }

    fn complete(&self, program: &Program, queue: &Queue) -> Result<()> {
        match queue.flights.complete(&self.gpu)? {
            None => Ok(()),
            Some((Some(node), error)) => Err(program.locate(node, error)),
            Some((None, error)) => Err(error.with_device(self.name())),
        }
    }

    fn roll_back(&self, queue: &mut Queue) -> bool {
        // A fault is known when the whole run is done.
        !queue.submitted.get()
    }

    fn output<'q>(&self, queue: &'q Queue, index: usize, _: usize, _: usize) -> Result<&'q [u8]> {
        queue.flights.output(&self.gpu, index)
    }

    fn fetch(&self, place: &Place, bytes: usize) -> Result<Vec<u8>> {
        let missing = || self.gpu.error(ErrorKind::Internal, "an output without memory");
        Part { bytes, ..place.ok_or_else(missing)? }.read(&self.gpu)
    }

    fn arena<'q>(&self, queue: &'q Queue) -> Option<&'q [u8]> {
        queue.flights.arena()
    }

    fn wait(&self) -> Result<()> {
        self.gpu.wait()
    }
}
