//! Runs under way, and what comes back of each: its outputs and its fault record, in pinned memory that the device copies them to.
//!
//! An event behind the copies says when they are there. Several runs have memory each, so that the device goes on while the host reads.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use rlx_backend::executor::Output;
use rlx_ir::{Error, ErrorKind, NodeId, Result};
use rlx_kernel::dispatch::{FAULT_BYTES, fault};

use crate::driver::{Event, Part, Pinned};
use crate::gpu::Gpu;
use crate::memory::without_memory;
use crate::sequence::Place;

/// How many runs may be under way.
pub(crate) const IN_FLIGHT: usize = 3;
/// Alignment of outputs in host memory.
const HOST_ALIGN: usize = 64;

/// What comes back of one run.
#[derive(Default)]
struct Flight {
    memory: Option<Pinned>,
    done: Option<Event>,
    /// Where each output is, and how long; `None` for those that stay on the device.
    places: Vec<Option<(usize, usize)>>,
    /// Where the fault record is: behind the outputs.
    fault_at: usize,
    can_fail: Arc<Vec<(u32, NodeId)>>,
}

/// The runs of an executable.
#[derive(Default)]
pub(crate) struct Flights {
    all: [Flight; IN_FLIGHT],
    /// Those under way, the oldest first.
    under_way: RefCell<VecDeque<usize>>,
    /// The last one that is complete.
    current: Cell<usize>,
}

impl Flights {
    /// Lays out what the next run brings back, before it is given to the device. Gives its number.
    ///
    /// # Errors
    /// Memory that cannot be had.
    pub(crate) fn prepare(&mut self, gpu: &Gpu, outputs: &[Output]) -> Result<usize> {
        let under_way = self.under_way.get_mut();
        let free = (0..IN_FLIGHT).find(|at| !under_way.contains(at));
        let free = free.ok_or_else(|| gpu.error(ErrorKind::Internal, "too many runs are under way"))?;
        let flight = &mut self.all[free];
        flight.places.clear();
        let mut end = 0usize;
        for output in outputs {
            flight.places.push((!output.stays).then_some((end, output.bytes)));
            if !output.stays {
                end = end.saturating_add(output.bytes).next_multiple_of(HOST_ALIGN);
            }
        }
        flight.fault_at = end;
        let total = end.saturating_add(FAULT_BYTES);
        if flight.memory.as_ref().is_none_or(|memory| memory.len() < total) {
            flight.memory = None;
            let memory = gpu.context.pinned(total.checked_next_power_of_two().unwrap_or(total));
            flight.memory = Some(gpu.checked(format_args!("{total} bytes for outputs"), memory)?);
        }
        if flight.done.is_none() {
            flight.done = Some(gpu.checked("an event", gpu.context.event())?);
        }
        Ok(free)
    }

    /// Has what flight number `at` brings back copied, behind the run that was given.
    ///
    /// # Errors
    /// An output without memory, or what the driver reports.
    pub(crate) fn submitted(
        &mut self,
        gpu: &Gpu,
        at: usize,
        outputs: &[Output],
        places: &[Place],
        faults: Part,
        can_fail: &Arc<Vec<(u32, NodeId)>>,
    ) -> Result<()> {
        let flight = &mut self.all[at];
        let missing = || gpu.error(ErrorKind::Internal, "a run without memory to come back in");
        let memory = flight.memory.as_ref().ok_or_else(missing)?;
        let done = flight.done.as_ref().ok_or_else(missing)?;
        for (output, place) in outputs.iter().zip(&flight.places) {
            let Some((to, bytes)) = place.filter(|&(_, bytes)| bytes > 0) else { continue };
            let from = places[output.buffer].ok_or_else(|| without_memory(gpu, output.buffer))?;
            let copied = gpu.context.to_host(memory, to, Part { bytes, ..from });
            gpu.checked("copying the outputs", copied)?;
        }
        let copied = gpu.context.to_host(memory, flight.fault_at, Part { bytes: FAULT_BYTES, ..faults });
        gpu.checked("copying the outputs", copied)?;
        gpu.checked("copying the outputs", gpu.context.record(done))?;
        flight.can_fail = Arc::clone(can_fail);
        self.under_way.get_mut().push_back(at);
        Ok(())
    }

    /// Waits for the oldest run, which is then the current one. Gives the fault it reports: the node, where it is known.
    ///
    /// # Errors
    /// A fault of the device.
    pub(crate) fn complete(&self, gpu: &Gpu) -> Result<Option<(Option<NodeId>, Error)>> {
        let Some(oldest) = self.under_way.borrow_mut().pop_front() else { return Ok(None) };
        gpu.alive()?;
        self.current.set(oldest);
        let flight = &self.all[oldest];
        let missing = || gpu.error(ErrorKind::Internal, "a run without memory to come back in");
        gpu.checked("waiting for a run", flight.done.as_ref().ok_or_else(missing)?.wait())?;
        let bytes = flight.memory.as_ref().ok_or_else(missing)?.bytes();
        Ok(fault(&bytes[flight.fault_at..][..FAULT_BYTES], &flight.can_fail))
    }

    /// Output `index` of the current run.
    ///
    /// # Errors
    /// An output that did not come back.
    pub(crate) fn output(&self, gpu: &Gpu, index: usize) -> Result<&[u8]> {
        let flight = &self.all[self.current.get()];
        let place = flight.places.get(index).copied().flatten().zip(flight.memory.as_ref());
        let missing = || gpu.error(ErrorKind::Internal, format!("output {index} did not come back"));
        let ((at, bytes), memory) = place.ok_or_else(missing)?;
        memory.bytes().get(at..at + bytes).ok_or_else(missing)
    }

    /// All outputs of the current run.
    pub(crate) fn arena(&self) -> Option<&[u8]> {
        let flight = &self.all[self.current.get()];
        flight.memory.as_ref().map(|memory| &memory.bytes()[..flight.fault_at])
    }
}
