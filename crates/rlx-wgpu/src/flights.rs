//! Runs under way, and what comes back of each: its outputs and its fault record, in a buffer that the host maps.
//!
//! A run's last commands copy both there. The fault record is read when the run is waited for, the outputs when somebody asks
//! for them. Several runs have a buffer each, so that the device goes on while the host reads.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use rlx_backend::executor::Output;
use rlx_gpu::dispatch::{FAULT_BYTES, fault};
use rlx_ir::{Error, ErrorKind, NodeId, Result};

use crate::gpu::Gpu;
use crate::memory::{DeviceBuffer, Mapping, Range};
use crate::sequence::{Place, output_range};

/// How many runs may be under way.
pub(crate) const IN_FLIGHT: usize = 3;
/// Alignment of outputs in host memory.
const HOST_ALIGN: usize = 64;

/// What comes back of one run.
#[derive(Default)]
struct Flight {
    memory: Option<DeviceBuffer>,
    /// Where each output is, and how long; `None` for those that stay on the device.
    places: Vec<Option<(usize, usize)>>,
    /// Where the fault record is: behind the outputs.
    fault_at: usize,
    can_fail: Arc<Vec<(u32, NodeId)>>,
    mapping: RefCell<Option<Mapping>>,
    /// The outputs in host memory, once somebody asked for them.
    host: OnceCell<Vec<u64>>,
    /// Memory to copy them to.
    spare: Cell<Vec<u64>>,
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

/// What the end of a submission copies: from where, and to which byte of the buffer that comes back.
pub(crate) struct Copies {
    pub(crate) list: Vec<(Range, u64)>,
    pub(crate) to: wgpu::Buffer,
    pub(crate) fault_at: u64,
    flight: usize,
}

impl Flights {
    /// Lays out what the next run brings back.
    ///
    /// # Errors
    /// An output without memory, or memory that cannot be had.
    pub(crate) fn prepare(&mut self, gpu: &Gpu, outputs: &[Output], places: &[Place]) -> Result<Copies> {
        let under_way = self.under_way.borrow();
        let free = (0..IN_FLIGHT).find(|at| !under_way.contains(at));
        drop(under_way);
        let free = free.ok_or_else(|| gpu.error(ErrorKind::Internal, "too many runs are under way"))?;
        let flight = &mut self.all[free];
        flight.mapping.take();
        if let Some(host) = flight.host.take() {
            flight.spare.set(host);
        }
        flight.places.clear();
        let (mut end, mut list) = (0usize, Vec::with_capacity(outputs.len()));
        for output in outputs {
            flight.places.push((!output.stays).then_some((end, output.bytes)));
            if !output.stays {
                if output.bytes > 0 {
                    list.push((output_range(gpu, output, places)?, end as u64));
                }
                end = end.saturating_add(output.bytes).next_multiple_of(HOST_ALIGN);
            }
        }
        flight.fault_at = end;
        let total = end.saturating_add(FAULT_BYTES) as u64;
        if flight.memory.as_ref().is_none_or(|memory| memory.len() < total) {
            flight.memory = None;
            flight.memory = Some(DeviceBuffer::readback(gpu, total.next_power_of_two())?);
        }
        let missing = || gpu.error(ErrorKind::Internal, "a run without a buffer to come back in");
        let to = flight.memory.as_ref().ok_or_else(missing)?.raw.clone();
        Ok(Copies { list, to, fault_at: end as u64, flight: free })
    }

    /// The run that these copies are of was submitted.
    ///
    /// # Errors
    /// What the driver reports.
    pub(crate) fn submitted(
        &mut self,
        gpu: &Gpu,
        copies: &Copies,
        index: wgpu::SubmissionIndex,
        can_fail: &Arc<Vec<(u32, NodeId)>>,
    ) -> Result<()> {
        let flight = &mut self.all[copies.flight];
        let bytes = flight.fault_at + FAULT_BYTES;
        let memory = flight.memory.as_ref();
        let missing = || gpu.error(ErrorKind::Internal, "a run without a buffer to come back in");
        let mapping = memory.ok_or_else(missing)?.map(gpu, bytes, index)?;
        flight.mapping = RefCell::new(Some(mapping));
        flight.can_fail = Arc::clone(can_fail);
        self.under_way.get_mut().push_back(copies.flight);
        Ok(())
    }

    /// Waits for the oldest run, which is then the current one. Gives the fault it reports: the node, where it is known.
    ///
    /// # Errors
    /// A fault of the device.
    pub(crate) fn complete(&self, gpu: &Gpu) -> Result<Option<(Option<NodeId>, Error)>> {
        let Some(oldest) = self.under_way.borrow_mut().pop_front() else { return Ok(None) };
        self.current.set(oldest);
        let flight = &self.all[oldest];
        let mapping = flight.mapping.borrow();
        let missing = || gpu.error(ErrorKind::Internal, "a run that was not mapped");
        let mapping = mapping.as_ref().ok_or_else(missing)?;
        mapping.wait(gpu)?;
        let mut record = [0; FAULT_BYTES];
        mapping.copy(gpu, flight.fault_at, &mut record)?;
        Ok(fault(&record, &flight.can_fail))
    }

    /// Whether no run is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.borrow().is_empty()
    }

    /// Whether [`Flights::complete`] has nothing to wait for.
    pub(crate) fn poll(&self, gpu: &Arc<Gpu>, context: &mut Context<'_>) -> Poll<()> {
        let under_way = self.under_way.borrow();
        let Some(&oldest) = under_way.front() else { return Poll::Ready(()) };
        match self.all[oldest].mapping.borrow().as_ref() {
            Some(mapping) => mapping.poll(gpu, context),
            None => Poll::Ready(()),
        }
    }

    fn host(&self, gpu: &Gpu) -> Result<&[u8]> {
        let flight = &self.all[self.current.get()];
        if let Some(known) = flight.host.get() {
            return Ok(bytemuck::cast_slice(known));
        }
        let mut words = flight.spare.take();
        words.resize(flight.fault_at.div_ceil(8), 0);
        if let Some(mapping) = flight.mapping.borrow().as_ref().filter(|_| flight.fault_at > 0) {
            mapping.copy(gpu, 0, &mut bytemuck::cast_slice_mut(&mut words)[..flight.fault_at])?;
        }
        Ok(bytemuck::cast_slice(flight.host.get_or_init(|| words)))
    }

    /// Output `index` of the current run.
    ///
    /// # Errors
    /// A fault of the device.
    pub(crate) fn output(&self, gpu: &Gpu, index: usize) -> Result<&[u8]> {
        let place = self.all[self.current.get()].places.get(index).copied().flatten();
        let missing = || gpu.error(ErrorKind::Internal, format!("output {index} did not come back"));
        let (at, bytes) = place.ok_or_else(missing)?;
        self.host(gpu)?.get(at..at + bytes).ok_or_else(missing)
    }

    /// All outputs of the current run.
    pub(crate) fn arena(&self, gpu: &Gpu) -> Option<&[u8]> {
        self.host(gpu).ok()
    }
}
