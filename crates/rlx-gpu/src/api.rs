//! What a device implements to run generated kernels.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::task::{Context, Poll};

use rlx_backend::StepProfile;
use rlx_ir::{Error, ErrorKind, Result};
use rlx_kernel::{Kernel, KernelHash, KernelTarget};

use crate::dispatch::{Bound, Dispatch};
use crate::open::{Registry, Shared};

/// An opened device as the runtime uses it: what differs between drivers.
///
/// Work is done in the order in which it is given: a write is seen by what is submitted later, a read sees what was submitted before.
pub trait GpuApi: Send + Sync + Sized + 'static {
    /// What a device is opened by: its name and the limits it is used under.
    type Which: Clone + Debug + Eq + Hash + Send + Sync + 'static;
    /// Device memory, which frees itself once the work that uses it is done.
    type Memory: Send + Sync;
    /// A part of device memory, as kernels are bound to it.
    type Range: Clone + PartialEq + Send + Sync;
    /// Memory in which a run comes back to the host.
    type Host: HostMemory<Self>;
    /// A kernel on its way to the device: see [`GpuApi::compile`].
    type Image: Send;
    /// A kernel that the device can run.
    type Code: Send + Sync;
    /// What the device keeps of a sequence on one set of memory: bind groups, a captured graph.
    type Link: Send;

    /// Whether a thread can wait for the device. Where none can (in a page), runs are awaited.
    const WAITS: bool = true;
    /// Whether an executable gives its kernels to be stored, and takes kernels that were.
    const STORES_KERNELS: bool = false;

    // ---- The device.

    /// The devices of this type that the process has opened.
    fn registry() -> &'static Registry<Self>;

    /// Opens the device.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnavailable`] saying what is missing and how to get it, [`ErrorKind::Device`] when it does not open.
    fn new(which: &Self::Which) -> Result<Self>;

    /// What executables on the device share.
    fn shared(&self) -> &Shared<Self>;

    /// What compiled code depends on: adapter, driver, compiler.
    fn machine(&self) -> String;

    /// The device as the compiler sees it; without an opened one, what every such device has.
    fn target(which: &Self::Which, opened: Option<&Self>) -> KernelTarget;

    /// Its limits on memory and uniforms.
    fn limits(&self) -> Limits;

    /// Why the driver gave the device up, if it did.
    fn lost(&self) -> Option<&str>;

    /// An error that reached no call, if there is one; it is reported once.
    fn stray(&self) -> Option<Error> {
        None
    }

    /// Waits until everything that was submitted is done.
    ///
    /// # Errors
    /// [`ErrorKind::Device`].
    fn wait(&self) -> Result<()>;

    /// Whether every call has reported what it has to, where calls report later.
    fn poll_calls(&self, context: &mut Context<'_>) -> Poll<()> {
        let _ = context;
        Poll::Ready(())
    }

    // ---- Memory.

    /// Memory of `bytes` bytes, a multiple of four within [`Limits`], for what `what` says.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`], or a fault of the device.
    fn allocate(&self, bytes: usize, usage: Usage, what: &str) -> Result<Self::Memory>;

    /// `bytes` bytes at `offset`.
    fn range(memory: &Self::Memory, offset: usize, bytes: usize) -> Self::Range;

    /// Copies `bytes` to `offset`, a multiple of four.
    ///
    /// # Errors
    /// A fault of the device.
    fn write(&self, to: &Self::Memory, offset: usize, bytes: &[u8]) -> Result<()>;

    /// The first `bytes` bytes of a range.
    ///
    /// # Errors
    /// Memory that cannot be had, or a fault of the device.
    fn read(&self, from: &Self::Range, bytes: usize) -> Result<Vec<u8>>;

    /// Copies the first `bytes` bytes of `from` on the device, for what `what` says.
    ///
    /// # Errors
    /// A fault of the device.
    fn copy(&self, to: &Self::Memory, from: &Self::Memory, bytes: usize, what: &str) -> Result<()>;

    /// Memory of at least `bytes` bytes for what comes back of a run.
    ///
    /// # Errors
    /// Memory that cannot be had.
    fn host(&self, bytes: usize) -> Result<Self::Host>;

    // ---- Kernels.

    /// On how many threads kernels are compiled.
    fn compile_threads(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    /// Renders and compiles a kernel, on any thread.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] for a kernel that the compiler rejects.
    fn compile(&self, job: &Job<'_>) -> Result<Self::Image>;

    /// Brings a compiled kernel to the device; one after the other, in the order of the kernels.
    ///
    /// # Errors
    /// A fault of the device.
    fn load(&self, job: &Job<'_>, image: Self::Image) -> Result<Self::Code>;

    // ---- Runs.

    /// What the device keeps of these bindings for all runs on them.
    ///
    /// # Errors
    /// A buffer without memory, or a fault of the device.
    fn link(&self, bindings: &Bindings<'_, Self>) -> Result<Self::Link>;

    /// The numbers of workgroups changed: forgets what depends on them.
    fn renumber(link: &mut Self::Link) {
        let _ = link;
    }

    /// Whether the device can time its steps: see [`Submission::times`].
    fn times_steps(&self) -> bool {
        false
    }

    /// Submits the dispatches of bindings whose link this is: the fault record is cleared first, and what comes back is copied behind
    /// them.
    ///
    /// # Errors
    /// A buffer without memory, or a fault of the device.
    fn submit(&self, link: &mut Self::Link, work: Submission<'_, Self>) -> Result<()>;

    // ---- What follows from the above.

    /// The device, opened at first use.
    ///
    /// # Errors
    /// As [`GpuApi::new`].
    fn open(which: &Self::Which) -> Result<Arc<Self>> {
        Self::registry().open(which, || Self::new(which))
    }

    /// Its name in reports.
    fn name(&self) -> &'static str {
        self.shared().device.name()
    }

    /// An error of this device.
    fn error(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, message).with_device(self.name())
    }

    /// The error for memory that cannot be had; `what` says for what.
    fn out_of_memory(&self, what: &str) -> Error {
        self.error(ErrorKind::OutOfMemory, format!("{what}: the device has no memory left"))
            .with_hint("use smaller dimensions or batch, or drop executables that are not needed")
    }

    /// Whether the device is still there.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] with the driver's reason when it is not, or an error that reached no call.
    fn alive(&self) -> Result<()> {
        if let Some(reason) = self.lost() {
            let message = format!("the device was lost ({reason})");
            return Err(self
                .error(ErrorKind::Device, message)
                .with_hint("compile again: the device is then opened again"));
        }
        self.stray().map_or(Ok(()), Err)
    }
}

/// Memory that the device copies to and the host reads: what comes back of one run.
pub trait HostMemory<G: GpuApi>: Send {
    /// How many bytes it has.
    fn size(&self) -> usize;

    /// The host has read what it wants: the device may write again.
    fn release(&mut self) {}

    /// Waits until what was submitted for it is there.
    ///
    /// # Errors
    /// A fault of the device.
    fn wait(&self, gpu: &G) -> Result<()>;

    /// Whether [`HostMemory::wait`] has nothing to wait for. Where it has, the task of `context` is woken later.
    fn poll(&self, gpu: &Arc<G>, context: &mut Context<'_>) -> Poll<()> {
        let _ = (gpu, context);
        Poll::Ready(())
    }

    /// Copies bytes that were waited for: as many as `out` has, from `at` on.
    ///
    /// # Errors
    /// A fault of the device.
    fn copy(&self, gpu: &G, at: usize, out: &mut [u8]) -> Result<()>;

    /// The first `bytes` bytes, which were waited for.
    ///
    /// # Errors
    /// A fault of the device.
    fn bytes(&self, gpu: &G, bytes: usize) -> Result<&[u8]>;
}

/// What device memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// Kernels are bound to all of it.
    Storage,
    /// Kernels are bound to parts of it.
    Pool,
    /// The uniforms of dispatches.
    Uniforms,
}

/// A device's limits on memory and uniforms, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most that a kernel is bound to at once.
    pub most_bound: usize,
    /// The most that a buffer has.
    pub most_buffer: usize,
    /// Alignment of the uniforms of a dispatch.
    pub uniform_align: u64,
    /// The most uniforms of a dispatch.
    pub most_uniforms: u64,
}

/// A kernel to be compiled.
#[derive(Debug)]
pub struct Job<'k> {
    /// What it is known by.
    pub hash: KernelHash,
    /// The kernel.
    pub kernel: &'k Kernel,
    /// Whether it comes from a file, which may be anyone's: then it must be kept from what its rules leave open. Kernels of schedules stay within
    /// their buffers and write workgroup memory before they read it; the interpreter checks that. One from a file may do neither, and an own
    /// kernel in a file may be given numbers that no schedule gives it.
    pub guarded: bool,
}

/// What the dispatches of a sequence are bound to.
pub struct Bindings<'s, G: GpuApi> {
    /// The dispatches, with their workgroups.
    pub bound: &'s Bound<Arc<G::Code>>,
    /// The fault record.
    pub faults: &'s G::Range,
    pub(crate) uniforms: &'s [G::Range],
    pub(crate) places: &'s [Option<G::Range>],
}

impl<'s, G: GpuApi> Bindings<'s, G> {
    /// What dispatch number `at` is bound to, in order: its uniforms, its buffers, and where it can fail the fault record.
    ///
    /// # Errors
    /// A buffer without memory.
    pub fn ranges<T>(
        &self,
        gpu: &G,
        at: usize,
        dispatch: &Dispatch<Arc<G::Code>>,
        of: impl Fn(&'s G::Range) -> T,
    ) -> Result<Vec<T>> {
        let mut ranges = Vec::with_capacity(dispatch.buffers.len() + 2);
        ranges.push(of(&self.uniforms[at]));
        for &buffer in &dispatch.buffers {
            ranges.push(of(placed(gpu, self.places, buffer)?));
        }
        ranges.extend(dispatch.can_fail.then_some(of(self.faults)));
        Ok(ranges)
    }
}

/// Where a buffer is.
///
/// # Errors
/// A buffer that nobody gave memory.
pub(crate) fn placed<'p, G: GpuApi>(
    gpu: &G,
    places: &'p [Option<G::Range>],
    buffer: usize,
) -> Result<&'p G::Range> {
    let missing = || gpu.error(ErrorKind::Internal, format!("buffer {buffer} has no memory"));
    places[buffer].as_ref().ok_or_else(missing)
}

/// A run, or init steps, to be submitted.
pub struct Submission<'s, G: GpuApi> {
    /// The module.
    pub name: &'s str,
    /// The dispatches and what they are bound to.
    pub bindings: Bindings<'s, G>,
    /// What comes back, where anything does.
    pub back: Option<Back<'s, G>>,
    /// The times of the steps, where they are asked for: then the call waits for the run.
    pub times: Option<&'s mut [StepProfile]>,
}

/// What comes back of a run: outputs, and behind them the fault record.
pub struct Back<'s, G: GpuApi> {
    /// Where it comes back. [`HostMemory::wait`] then waits for this submission.
    pub to: &'s mut G::Host,
    /// The outputs.
    pub outputs: &'s [Arrival<G>],
    /// Where the fault record goes.
    pub fault_at: usize,
}

/// An output that comes back.
pub struct Arrival<G: GpuApi> {
    /// Where it is on the device.
    pub from: G::Range,
    /// Its bytes, at least one.
    pub bytes: usize,
    /// Where they go.
    pub at: usize,
}
