//! Runs under way, and what comes back of each: its outputs and its fault record, in memory that the host reads.
//!
//! A run's last commands copy both there. The fault record is read when the run is waited for, the outputs when somebody asks
//! for them. Several runs have memory each, so that the device goes on while the host reads.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use rlx_backend::executor::Output;
use rlx_ir::{Error, ErrorKind, NodeId, Result};

use crate::api::{Arrival, Back, GpuApi, HostMemory, placed};
use crate::dispatch::{FAULT_BYTES, fault};
use crate::host_copy::HostCopy;
use crate::memory::whole_words;

/// How many runs may be under way.
pub(crate) const IN_FLIGHT: usize = 3;
/// Alignment of outputs in host memory.
const HOST_ALIGN: usize = 64;

/// What a fault record says: the node, where it is known, and what is wrong with it.
pub(crate) type Fault = (Option<NodeId>, Error);

/// The dispatches that can fail, with their nodes.
type CanFail = Arc<Vec<(u32, NodeId)>>;

/// What comes back of one run.
struct Flight<G: GpuApi> {
    memory: Option<G::Host>,
    /// The outputs, once somebody asked for them, where the host does not have that memory in reach.
    copy: HostCopy,
    /// Where each output is, and how long; `None` for those that stay on the device.
    places: Vec<Option<(usize, usize)>>,
    /// What is copied; empty again once that was submitted, so that no memory is kept.
    arrivals: Vec<Arrival<G>>,
    /// Where the fault record is: behind the outputs.
    fault_at: usize,
    can_fail: CanFail,
}

impl<G: GpuApi> Default for Flight<G> {
    fn default() -> Self {
        let (places, arrivals, can_fail) = (Vec::new(), Vec::new(), Arc::default());
        Flight { memory: None, copy: HostCopy::default(), places, arrivals, fault_at: 0, can_fail }
    }
}

impl<G: GpuApi> Flight<G> {
    fn memory(&self, gpu: &G) -> Result<&G::Host> {
        let missing = || gpu.error(ErrorKind::Internal, "a run without memory to come back in");
        self.memory.as_ref().ok_or_else(missing)
    }

    /// The outputs.
    fn host(&self, gpu: &G) -> Result<&[u8]> {
        let memory = self.memory(gpu)?;
        match memory.in_reach() {
            Some(all) => Ok(&all[..self.fault_at]),
            None => self.copy.get(self.fault_at, |out| {
                gpu.shared().count_to_host(out.len());
                memory.copy(gpu, 0, out)
            }),
        }
    }
}

/// The runs of an executable.
pub(crate) struct Flights<G: GpuApi> {
    all: [Flight<G>; IN_FLIGHT],
    /// Those under way, the oldest first.
    under_way: RefCell<VecDeque<usize>>,
    /// The last one that is complete.
    current: Cell<usize>,
}

impl<G: GpuApi> Default for Flights<G> {
    fn default() -> Self {
        Flights { all: Default::default(), under_way: RefCell::default(), current: Cell::new(0) }
    }
}

impl<G: GpuApi> Flights<G> {
    /// Lays out what the next run brings back. Gives its number.
    ///
    /// # Errors
    /// An output without memory, or memory that cannot be had.
    pub(crate) fn prepare(
        &mut self,
        gpu: &G,
        outputs: &[Output],
        places: &[Option<G::Range>],
        faults: &G::Range,
    ) -> Result<usize> {
        let under_way = self.under_way.get_mut();
        let free = (0..IN_FLIGHT).find(|at| !under_way.contains(at));
        let free = free.ok_or_else(|| gpu.error(ErrorKind::Internal, "too many runs are under way"))?;
        let flight = &mut self.all[free];
        if let Some(memory) = &mut flight.memory {
            memory.release();
        }
        flight.copy.forget();
        flight.places.clear();
        flight.arrivals.clear();
        let mut end = 0usize;
        for output in outputs {
            flight.places.push((!output.stays).then_some((end, output.bytes)));
            if !output.stays {
                if output.bytes > 0 {
                    let from = placed(gpu, places, output.buffer)?.clone();
                    let bytes = whole_words(output.bytes);
                    flight.arrivals.push(Arrival { from, skip: 0, bytes, at: end });
                }
                end = end.saturating_add(output.bytes).next_multiple_of(HOST_ALIGN);
            }
        }
        flight.fault_at = end;
        flight.arrivals.push(fault_record(faults, end));
        let total = end.saturating_add(FAULT_BYTES);
        if flight.memory.as_ref().is_none_or(|memory| memory.size() < total) {
            flight.memory = None;
            flight.memory = Some(gpu.host(total.checked_next_power_of_two().unwrap_or(total))?);
        }
        Ok(free)
    }

    /// What the run that was laid out as number `at` copies.
    ///
    /// # Errors
    /// A run that was not laid out.
    pub(crate) fn back(&mut self, gpu: &G, at: usize) -> Result<Back<'_, G>> {
        let Flight { memory, arrivals, .. } = &mut self.all[at];
        let missing = || gpu.error(ErrorKind::Internal, "a run without memory to come back in");
        Ok(Back { to: memory.as_mut().ok_or_else(missing)?, arrivals })
    }

    /// The run that was laid out as number `at` was submitted.
    pub(crate) fn submitted(&mut self, at: usize, can_fail: &CanFail) {
        let flight = &mut self.all[at];
        flight.arrivals.clear();
        flight.can_fail = Arc::clone(can_fail);
        self.under_way.get_mut().push_back(at);
    }

    /// Waits for the oldest run, which is then the current one. Gives the fault it reports.
    ///
    /// # Errors
    /// A fault of the device.
    pub(crate) fn complete(&self, gpu: &G) -> Result<Option<Fault>> {
        let Some(oldest) = self.under_way.borrow_mut().pop_front() else { return Ok(None) };
        self.current.set(oldest);
        let flight = &self.all[oldest];
        let memory = flight.memory(gpu)?;
        if memory.in_reach().is_some() {
            gpu.shared().count_to_host(flight.fault_at);
        }
        read_fault(gpu, memory, flight.fault_at, &flight.can_fail)
    }

    /// Whether no run is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.borrow().is_empty()
    }

    /// Whether [`Flights::complete`] has nothing to wait for.
    pub(crate) fn poll(&self, gpu: &Arc<G>, context: &mut Context<'_>) -> Poll<()> {
        let under_way = self.under_way.borrow();
        let oldest = under_way.front().and_then(|&at| self.all[at].memory.as_ref());
        oldest.map_or(Poll::Ready(()), |memory| memory.poll(gpu, context))
    }

    /// Output `index` of the current run.
    ///
    /// # Errors
    /// An output that did not come back, or a fault of the device.
    pub(crate) fn output(&self, gpu: &G, index: usize) -> Result<&[u8]> {
        let flight = &self.all[self.current.get()];
        let missing = || gpu.error(ErrorKind::Internal, format!("output {index} did not come back"));
        let (at, bytes) = flight.places.get(index).copied().flatten().ok_or_else(missing)?;
        flight.host(gpu)?.get(at..at + bytes).ok_or_else(missing)
    }

    /// All outputs of the current run.
    pub(crate) fn arena(&self, gpu: &G) -> Option<&[u8]> {
        self.all[self.current.get()].host(gpu).ok()
    }
}

/// The fault record of init steps, on its way to the host.
pub(crate) struct InitReport<G: GpuApi> {
    memory: G::Host,
    arrivals: [Arrival<G>; 1],
    can_fail: CanFail,
}

impl<G: GpuApi> InitReport<G> {
    /// Memory for the report of steps that can fail.
    ///
    /// # Errors
    /// Memory that cannot be had.
    pub(crate) fn new(gpu: &G, faults: &G::Range, can_fail: &CanFail) -> Result<Self> {
        let (memory, arrivals) = (gpu.host(FAULT_BYTES)?, [fault_record(faults, 0)]);
        Ok(InitReport { memory, arrivals, can_fail: Arc::clone(can_fail) })
    }

    /// What the steps copy.
    pub(crate) fn back(&mut self) -> Back<'_, G> {
        Back { to: &mut self.memory, arrivals: &self.arrivals }
    }

    /// Waits for the steps. Gives the fault that they report.
    ///
    /// # Errors
    /// A fault of the device.
    pub(crate) fn read(&self, gpu: &G) -> Result<Option<Fault>> {
        read_fault(gpu, &self.memory, 0, &self.can_fail)
    }

    /// Whether [`InitReport::read`] has nothing to wait for.
    pub(crate) fn poll(&self, gpu: &Arc<G>, context: &mut Context<'_>) -> Poll<()> {
        self.memory.poll(gpu, context)
    }
}

/// The fault record on its way to `at`.
fn fault_record<G: GpuApi>(faults: &G::Range, at: usize) -> Arrival<G> {
    Arrival { from: faults.clone(), skip: 0, bytes: FAULT_BYTES, at }
}

fn read_fault<G: GpuApi>(gpu: &G, from: &G::Host, at: usize, can_fail: &CanFail) -> Result<Option<Fault>> {
    from.wait(gpu)?;
    let mut record = [0; FAULT_BYTES];
    from.copy(gpu, at, &mut record)?;
    gpu.shared().count_to_host(FAULT_BYTES);
    Ok(fault(&record, can_fail))
}
