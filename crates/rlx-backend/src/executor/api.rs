//! What a device implements for the [`Executor`](super::Executor): memory, steps bound to numbers, and runs of them.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use rlx_ir::clock::Instant;
use rlx_ir::lir::MemoryPlan;
use rlx_ir::progress::Stage;
use rlx_ir::{Error, ErrorKind, LirModule, NodeId, Progress, Result, Weight};
use rlx_opt::PoolSpec;

use super::program::{Program, Step};
use crate::extents::Values;
use crate::moe::MixtureOfExperts;
use crate::prepared::Prepared;
use crate::{CodePart, StepProfile};

/// A device as an executor uses it: everything that differs between devices, and nothing else.
///
/// The value is what a compiled program keeps of the device: its handle, limits, constants. What one executable needs besides
/// (scratch, buffers for transfers) is a [`Queue`](DeviceApi::Queue).
pub trait DeviceApi: Send + Sync + Sized + 'static {
    /// A step as it was prepared for the device, for all dimensions: chosen kernels, code objects.
    type Kernel: Send + Sync;
    /// Memory of the device. Shared memory is only read.
    type Memory: Send + Sync;
    /// Where a buffer of the module is; the default is nowhere.
    type Place: Clone + Default + Send;
    /// Steps bound to numbers: what a run goes through.
    type Sequence: Send;
    /// What one executable has of the device.
    type Queue: Send;

    /// How many runs may be under way at one time. Where it is 1, a run is over when [`DeviceApi::submit`] returns.
    const IN_FLIGHT: usize = 1;
    /// How many init steps go to the device at once. Memory that only init steps use is freed after each such batch.
    const INIT_BATCH: usize = 1;
    /// Whether a weight is loaded when it is set, not when the first run needs it.
    const LOADS_AT_ONCE: bool = false;
    /// Whether outputs can be left on the device until somebody asks for them: see [`DeviceApi::fetch`].
    const LEAVES_OUTPUTS: bool = false;

    /// The name that reports use: `cpu`, `vulkan`, ….
    fn name(&self) -> &str;

    /// Whether the device can time its steps: see [`Run::times`].
    fn times_steps(&self) -> bool {
        false
    }

    /// Whether the device is still there.
    ///
    /// # Errors
    /// Why it is not.
    fn alive(&self) -> Result<()> {
        Ok(())
    }

    /// The limits that memory is planned within.
    fn pools(&self) -> PoolSpec;

    // ---- Memory.

    /// Memory of at least `bytes` bytes for `what`, which errors name.
    ///
    /// # Errors
    /// [`rlx_ir::ErrorKind::OutOfMemory`].
    fn allocate(&self, bytes: usize, what: &str) -> Result<Self::Memory>;

    /// How many bytes to allocate for something that has `bytes` now and may grow from run to run.
    fn with_room(&self, bytes: usize) -> usize {
        bytes.checked_next_power_of_two().unwrap_or(bytes)
    }

    /// How many bytes it holds.
    fn size(memory: &Self::Memory) -> usize;

    /// All of it, as steps use it.
    fn place(memory: &Self::Memory) -> Self::Place;

    /// Its bytes, where the host sees them.
    fn host(memory: &Self::Memory) -> Option<&[u8]>;

    /// Copies `bytes` to its start, before anything that is submitted later.
    ///
    /// # Errors
    /// A fault of the device.
    fn upload(&self, to: &mut Self::Memory, bytes: &[u8]) -> Result<()>;

    /// Memory with each of these bytes, for `what`: one after the other, unless the device has a faster way.
    ///
    /// # Errors
    /// As [`allocate`](DeviceApi::allocate) and [`upload`](DeviceApi::upload).
    fn upload_all(&self, all: &[&[u8]], what: &str) -> Result<Vec<Self::Memory>> {
        all.iter().map(|bytes| self.uploaded(bytes, what)).collect()
    }

    /// Memory with these bytes.
    ///
    /// # Errors
    /// As [`upload_all`](DeviceApi::upload_all).
    fn uploaded(&self, bytes: &[u8], what: &str) -> Result<Self::Memory> {
        let mut memory = self.allocate(bytes.len(), what)?;
        self.upload(&mut memory, bytes)?;
        Ok(memory)
    }

    /// The first `bytes` bytes of `from`, behind everything that was submitted.
    ///
    /// # Errors
    /// A fault of the device.
    fn download<'m>(&self, from: &'m Self::Memory, bytes: usize) -> Result<Cow<'m, [u8]>>;

    /// Other memory with the same first `bytes` bytes, behind everything that was submitted.
    ///
    /// # Errors
    /// A fault of the device, or memory that cannot be had.
    fn duplicate(&self, from: &Self::Memory, bytes: usize, what: &str) -> Result<Self::Memory>;

    /// A weight where kernels can read it: in place, or the one copy that the device has of it.
    ///
    /// # Errors
    /// Bytes that cannot be read, or memory that cannot be had.
    fn load(&self, weight: &Arc<Weight>, name: &str) -> Result<Arc<Self::Memory>>;

    /// Where kernels can read the caller's `bytes` (of elements of `size` bytes) themselves during a run.
    fn borrow(&self, bytes: &[u8], size: usize) -> Option<Self::Place> {
        let _ = (bytes, size);
        None
    }

    /// Where a constant of the module is.
    fn constant(&self, buffer: usize) -> Option<Self::Place>;

    /// What init programs left, for all executables of the device.
    fn prepared(&self) -> &Prepared<Self::Memory>;

    /// The bytes of result `output` of an init step, where they are in a format that only the device knows.
    ///
    /// # Errors
    /// Sizes that make no sense.
    fn packed_bytes(
        &self,
        kernel: &Self::Kernel,
        output: usize,
        values: &Values<'_>,
    ) -> Result<Option<usize>> {
        let _ = (kernel, output, values);
        Ok(None)
    }

    // ---- Steps.

    /// What an executable of the module needs of the device. `like` is that of the executable it is a clone of.
    ///
    /// # Errors
    /// Memory that cannot be had.
    fn queue(&self, program: &Program<Self>, like: Option<&Self::Queue>) -> Result<Self::Queue>;

    /// Room for these steps, none of them bound; or a copy of `like`, the same steps as they are bound there.
    ///
    /// # Errors
    /// Memory that cannot be had.
    fn sequence<'s>(
        &self,
        queue: &Self::Queue,
        steps: impl Iterator<Item = &'s Step<Self::Kernel>> + Clone,
        like: Option<&Self::Sequence>,
    ) -> Result<Self::Sequence>;

    /// Puts the present numbers into step `at` of a sequence. Allocates nothing when it was bound before.
    ///
    /// # Errors
    /// Views that leave their buffers, and other numbers that a step cannot have.
    fn bind(
        &self,
        sequence: &mut Self::Sequence,
        at: usize,
        step: &Step<Self::Kernel>,
        values: &Values<'_>,
    ) -> Result<()>;

    /// Everything that had to be was bound: what the device works out for a sequence as a whole.
    ///
    /// # Errors
    /// A fault of the device, or memory that cannot be had.
    fn seal(&self, queue: &mut Self::Queue, sequence: &mut Self::Sequence) -> Result<()> {
        let _ = (queue, sequence);
        Ok(())
    }

    /// Memory was replaced: lets go of what the sequence keeps of places.
    fn forget_places(sequence: &mut Self::Sequence) {
        let _ = sequence;
    }

    /// Gets the memory that a plan needs, and says in `places` where its buffers are.
    ///
    /// # Errors
    /// [`rlx_ir::ErrorKind::OutOfMemory`].
    fn use_plan(
        &self,
        queue: &mut Self::Queue,
        lir: &LirModule,
        plan: &MemoryPlan,
        places: &mut [Self::Place],
    ) -> Result<()>;

    // ---- Runs.

    /// Before the parts of a run (or of the init program): memory that is there during runs alone. [`DeviceApi::end`] follows
    /// in any case.
    ///
    /// # Errors
    /// Memory that cannot be had.
    fn begin(&self, queue: &mut Self::Queue) -> Result<()> {
        let _ = queue;
        Ok(())
    }

    /// After a run, or what was to be one.
    fn end(&self, queue: &mut Self::Queue) {
        let _ = queue;
    }

    /// Runs a part of a sequence, or starts to. What a step finds out goes to [`Run::found`]; a part ends behind a step that counts.
    ///
    /// # Errors
    /// What a step reports, with its node ([`Program::locate`]); [`rlx_ir::ErrorKind::Cancelled`]; a fault of the device.
    fn submit(&self, queue: &mut Self::Queue, run: Run<'_, Self>) -> Result<()>;

    /// Waits for the oldest run that is under way: its outputs are then what [`DeviceApi::output`] gives.
    ///
    /// # Errors
    /// What a step of it reports, or a fault of the device.
    fn complete(&self, program: &Program<Self>, queue: &Self::Queue) -> Result<()> {
        let _ = (program, queue);
        Ok(())
    }

    /// Whether [`DeviceApi::complete`] has nothing to wait for. Where it has, the waker of `context` is called once that is over.
    fn poll_complete(&self, queue: &Self::Queue, context: &mut Context<'_>) -> Poll<()> {
        let _ = (queue, context);
        Poll::Ready(())
    }

    /// A run failed or was stopped: puts back what it replaced in memory that it updates in place. Gives whether that memory is
    /// whole again.
    fn roll_back(&self, queue: &mut Self::Queue) -> bool;

    /// Output `index` of the last run that is complete, where it is not in memory of its own: `bytes` bytes at `offset` of pool 0.
    ///
    /// # Errors
    /// A fault of the device.
    fn output<'q>(
        &self,
        queue: &'q Self::Queue,
        index: usize,
        offset: usize,
        bytes: usize,
    ) -> Result<&'q [u8]>;

    /// The first `bytes` bytes of a place, behind everything that was submitted: an output that the run did not bring to the host
    /// ([`Output::stays`]). Asked for only where the device [leaves outputs](DeviceApi::LEAVES_OUTPUTS).
    ///
    /// # Errors
    /// A fault of the device.
    fn fetch(&self, place: &Self::Place, bytes: usize) -> Result<Vec<u8>> {
        let _ = (place, bytes);
        Err(Error::new(ErrorKind::Internal, "the device leaves no outputs behind").with_device(self.name()))
    }

    /// The memory that outputs are in: see [`crate::ExecutableGraph::arena`].
    fn arena<'q>(&self, queue: &'q Self::Queue) -> Option<&'q [u8]>;

    /// Waits until the device has nothing left to do.
    ///
    /// # Errors
    /// A fault of the device.
    fn wait(&self) -> Result<()> {
        Ok(())
    }

    // ---- What only some devices have.

    /// Weights changed: what the executable made of them besides the init program is old.
    fn forget_weights(&self, queue: &mut Self::Queue) {
        let _ = queue;
    }

    /// Bytes that the executable made of weights besides the init program.
    fn weight_bytes(&self, queue: &Self::Queue) -> usize {
        let _ = queue;
        0
    }

    /// See [`crate::ExecutableGraph::code`].
    ///
    /// # Errors
    /// A fault of the device.
    fn code(&self) -> Result<Vec<CodePart>> {
        Ok(Vec::new())
    }

    /// See [`crate::ExecutableGraph::moe`].
    fn moe(queue: &mut Self::Queue) -> Option<&mut dyn MixtureOfExperts> {
        let _ = queue;
        None
    }
}

/// An output as a run is to leave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// Its buffer.
    pub buffer: usize,
    /// Its bytes, or the room for them where a run finds the number out.
    pub bytes: usize,
    /// Whether the run leaves it where it is, because it is in memory of its own (a handle's, an input's), or because the caller did
    /// not ask for it. [`DeviceApi::download`] or [`DeviceApi::fetch`] gets it when it is asked for.
    pub stays: bool,
}

/// A part of a run.
pub struct Run<'r, D: DeviceApi> {
    /// What it belongs to.
    pub program: &'r Program<D>,
    /// The bound steps.
    pub sequence: &'r mut D::Sequence,
    /// Which of them.
    pub steps: Range<usize>,
    /// Where each buffer of the module is; one place more is the device's own.
    pub places: &'r mut [D::Place],
    /// What is to come to the host; none for the init program.
    pub outputs: &'r [Output],
    /// The stage that the steps are reported as, where they are.
    pub stage: Option<Stage>,
    /// Who watches.
    pub progress: &'r Progress,
    /// What the symbols are that the part's last step binds, in the order of [`rlx_ir::lir::Step::data_symbols`].
    pub found: &'r mut Vec<usize>,
    /// What a panic is blamed on: the node that is at work.
    pub busy_with: &'r mut Option<NodeId>,
    /// The times of the steps, by step, and when the run began; there only where [`DeviceApi::times_steps`].
    pub times: Option<(&'r mut [StepProfile], Instant)>,
}
