//! The device as the executor uses it: see [`DeviceApi`].

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::task::{Context, Poll};

use rlx_backend::executor::{Run, Step, use_pools};
use rlx_backend::extents::Values;
use rlx_backend::prepared::Prepared;
use rlx_backend::{CodePart, DeviceApi};
use rlx_gpu::dispatch::{FAULT_BYTES, fault};
use rlx_ir::lir::MemoryPlan;
use rlx_ir::{ErrorKind, LirModule, NodeId, Result, Weight};
use rlx_opt::PoolSpec;

use crate::WAITS;
use crate::backend::KERNELS;
use crate::flights::{Flights, IN_FLIGHT};
use crate::gpu::Gpu;
use crate::memory::{DeviceBuffer, Mapping, whole_words};
use crate::program::{Kernel, Program, Wgpu};
use crate::sequence::{Place, Sequence};

/// What an executable has of the device.
pub(crate) struct Queue {
    pools: Vec<DeviceBuffer>,
    faults: DeviceBuffer,
    flights: Flights,
    /// Whether the present run was submitted.
    submitted: Cell<bool>,
    /// What init steps report, where no one could wait for it.
    init_reports: RefCell<Vec<InitReport>>,
}

/// The fault record of init steps, on its way to the host.
struct InitReport {
    _record: DeviceBuffer,
    mapping: Mapping,
    can_fail: Arc<Vec<(u32, NodeId)>>,
}

impl InitReport {
    /// The fault that init steps report.
    fn read(&self, gpu: &Gpu) -> Result<Option<(Option<NodeId>, rlx_ir::Error)>> {
        let mut bytes = [0; FAULT_BYTES];
        self.mapping.wait(gpu)?;
        self.mapping.copy(gpu, 0, &mut bytes)?;
        Ok(fault(&bytes, &self.can_fail))
    }
}

impl Wgpu {
    /// What is wrong where a fault was reported.
    fn report(
        &self,
        program: &Program,
        fault: Option<(Option<rlx_ir::NodeId>, rlx_ir::Error)>,
    ) -> Result<()> {
        match fault {
            None => Ok(()),
            Some((Some(node), error)) => Err(program.locate(node, error)),
            Some((None, error)) => Err(error.with_device(self.gpu.name.name())),
        }
    }

    /// Runs init steps; waits for those that can fail, or in a page leaves what they report to the run behind them.
    fn submit_init(&self, queue: &mut Queue, run: Run<'_, Wgpu>) -> Result<()> {
        let (gpu, name) = (&self.gpu, &run.program.lir.name);
        let can_fail = Arc::clone(&run.sequence.bound.can_fail);
        if can_fail.is_empty() {
            return run.sequence.submit(gpu, name, run.places, &queue.faults, None, |_| {}).map(drop);
        }
        let record = DeviceBuffer::readback(gpu, FAULT_BYTES as u64)?;
        let index = run.sequence.submit(gpu, name, run.places, &queue.faults, None, |encoder| {
            encoder.copy_buffer_to_buffer(&queue.faults.raw, 0, &record.raw, 0, FAULT_BYTES as u64);
        })?;
        let mapping = record.map(gpu, FAULT_BYTES, index)?;
        let report = InitReport { _record: record, mapping, can_fail };
        if !WAITS {
            queue.init_reports.get_mut().push(report);
            return Ok(());
        }
        self.report(run.program, report.read(gpu)?)
    }

    /// What init steps reported meanwhile. What they made is no one's any more then, and the program cannot run.
    fn check_init(&self, program: &Program, queue: &Queue) -> Result<()> {
        for report in queue.init_reports.take() {
            if let Err(error) = self.report(program, report.read(&self.gpu)?) {
                self.gpu.prepared.clear();
                return Err(self.init_fault.get_or_init(|| error).clone());
            }
        }
        Ok(())
    }
}

impl DeviceApi for Wgpu {
    type Kernel = Arc<Kernel>;
    type Memory = DeviceBuffer;
    type Place = Place;
    type Sequence = Sequence;
    type Queue = Queue;

    const IN_FLIGHT: usize = IN_FLIGHT;
    const INIT_BATCH: usize = usize::MAX;
    const LOADS_AT_ONCE: bool = true;
    const LEAVES_OUTPUTS: bool = true;

    fn name(&self) -> &str {
        self.gpu.name.name()
    }

    fn alive(&self) -> Result<()> {
        self.gpu.alive()?;
        self.init_fault.get().map_or(Ok(()), |fault| Err(fault.clone()))
    }

    fn times_steps(&self) -> bool {
        self.gpu.has_clock()
    }

    fn pools(&self) -> PoolSpec {
        self.target.pool
    }

    fn allocate(&self, bytes: usize, what: &str) -> Result<DeviceBuffer> {
        DeviceBuffer::storage(&self.gpu, bytes as u64, what)
    }

    fn with_room(&self, bytes: usize) -> usize {
        let most = usize::try_from(self.gpu.limits.max_storage_buffer_binding_size).unwrap_or(usize::MAX);
        bytes.checked_next_power_of_two().unwrap_or(bytes).min(most).max(bytes)
    }

    fn size(memory: &DeviceBuffer) -> usize {
        memory.len() as usize
    }

    fn place(memory: &DeviceBuffer) -> Place {
        Some(memory.whole())
    }

    fn host(_: &DeviceBuffer) -> Option<&[u8]> {
        None
    }

    fn upload(&self, to: &mut DeviceBuffer, bytes: &[u8]) -> Result<()> {
        to.write(&self.gpu, bytes)
    }

    fn download<'m>(&self, from: &'m DeviceBuffer, bytes: usize) -> Result<Cow<'m, [u8]>> {
        from.download(&self.gpu, bytes).map(Cow::Owned)
    }

    fn duplicate(&self, from: &DeviceBuffer, bytes: usize, what: &str) -> Result<DeviceBuffer> {
        let (gpu, own) = (&self.gpu, DeviceBuffer::storage(&self.gpu, bytes as u64, what)?);
        gpu.checked(&|| format!("copying {what}"), || {
            let mut encoder = gpu.device.create_command_encoder(&Default::default());
            encoder.copy_buffer_to_buffer(&from.raw, 0, &own.raw, 0, own.len());
            gpu.queue.submit([encoder.finish()]);
        })?;
        Ok(own)
    }

    fn load(&self, weight: &Arc<Weight>, name: &str) -> Result<Arc<DeviceBuffer>> {
        self.gpu.upload(weight, name)
    }

    fn constant(&self, buffer: usize) -> Option<Place> {
        let (pool, offset, bytes) = self.constants[buffer]?;
        Some(Some(self.constant_pools[pool].part(offset, bytes)))
    }

    fn prepared(&self) -> &Prepared<DeviceBuffer> {
        &self.gpu.prepared
    }

    fn queue(&self, _: &Program, _: Option<&Queue>) -> Result<Queue> {
        let faults = DeviceBuffer::storage(&self.gpu, FAULT_BYTES as u64, "the fault record")?;
        Ok(Queue {
            pools: Vec::new(),
            faults,
            flights: Flights::default(),
            submitted: Cell::new(false),
            init_reports: RefCell::default(),
        })
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
        let allocate = |i, bytes| DeviceBuffer::pool(&self.gpu, bytes as u64, &format!("pool {i}"));
        let part =
            |pool: &DeviceBuffer, offset, bytes| Some(pool.part(offset as u64, whole_words(bytes as u64)));
        use_pools::<Self>(&mut queue.pools, lir, plan, places, allocate, part)
    }

    fn begin(&self, queue: &mut Queue) -> Result<()> {
        queue.submitted.set(false);
        Ok(())
    }

    fn submit(&self, queue: &mut Queue, run: Run<'_, Wgpu>) -> Result<Option<usize>> {
        let Some(stage) = run.stage else { return self.submit_init(queue, run).map(|()| None) };
        run.progress.step(stage, 0, 1, || "")?;
        let gpu = &self.gpu;
        let copies = queue.flights.prepare(gpu, run.outputs, run.places)?;
        queue.submitted.set(true);
        let (faults, times) = (&queue.faults, run.times.map(|(times, _)| times));
        let index =
            run.sequence.submit(gpu, &run.program.lir.name, run.places, faults, times, |encoder| {
                for (from, at) in &copies.list {
                    encoder.copy_buffer_to_buffer(&from.buffer, from.offset, &copies.to, *at, from.bytes);
                }
                encoder.copy_buffer_to_buffer(
                    &faults.raw,
                    0,
                    &copies.to,
                    copies.fault_at,
                    FAULT_BYTES as u64,
                );
            })?;
        queue.flights.submitted(gpu, &copies, index, &run.sequence.bound.can_fail)?;
        Ok(None)
    }

    fn complete(&self, program: &Program, queue: &Queue) -> Result<()> {
        if queue.flights.is_idle() {
            return Ok(());
        }
        let init = self.check_init(program, queue);
        let run = queue.flights.complete(&self.gpu);
        init?;
        self.report(program, run?)
    }

    fn poll_complete(&self, queue: &Queue, context: &mut Context<'_>) -> Poll<()> {
        let init = queue.init_reports.borrow().iter().all(|r| r.mapping.poll(&self.gpu, context).is_ready());
        let run = queue.flights.poll(&self.gpu, context).is_ready();
        let calls = self.gpu.poll_late(context).is_ready();
        if init && run && calls { Poll::Ready(()) } else { Poll::Pending }
    }

    fn roll_back(&self, queue: &mut Queue) -> bool {
        // A fault is known when the whole submission is done.
        !queue.submitted.get()
    }

    fn output<'q>(&self, queue: &'q Queue, index: usize, _: usize, _: usize) -> Result<&'q [u8]> {
        queue.flights.output(&self.gpu, index)
    }

    fn fetch(&self, place: &Place, bytes: usize) -> Result<Vec<u8>> {
        let missing = || self.gpu.error(ErrorKind::Internal, "an output without memory");
        place.as_ref().ok_or_else(missing)?.download(&self.gpu, bytes)
    }

    fn arena<'q>(&self, queue: &'q Queue) -> Option<&'q [u8]> {
        queue.flights.arena(&self.gpu)
    }

    fn wait(&self) -> Result<()> {
        self.gpu.wait()
    }

    fn code(&self) -> Result<Vec<CodePart>> {
        Ok(vec![CodePart { name: KERNELS.to_owned(), bytes: self.launches.to_bytes()? }])
    }
}
