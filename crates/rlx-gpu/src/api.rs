//! What a device implements to run generated kernels.

use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::task::{Context, Poll};

use rlx_driver::Device;
use rlx_ir::{Error, ErrorKind, Result};
use rlx_kernel::{Kernel, KernelHash, KernelTarget};
use rlx_tile::Program;
use rlx_tile::tensor_map::{BoundMap, MapDecl};

use crate::blas::MatMul;
use crate::dispatch::{Bound, Dispatch};
use crate::health::out_of_memory;
use crate::open::{Registry, Shared};
use crate::signal::{block_on, turn};
use crate::tiles::MatrixUnits;
use crate::which::Which;

/// An opened device as the runtime uses it: what differs between drivers.
///
/// Work is done in the order in which it is given: a write is seen by what is submitted later, a read sees what was submitted before.
pub trait GpuApi: Send + Sync + Sized + 'static {
    /// What a device is opened by besides its name and limits: which of several it is, where its driver lies.
    type Options: Clone + Debug + Default + Eq + Hash + Send + Sync + 'static;
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

    /// Whether a thread can wait for the device. Where none can (in a page), runs are awaited, or the page gives up its turn meanwhile
    /// ([`set_turn`](crate::set_turn)).
    const WAITS: bool = true;

    // ---- The device.

    /// The devices of this type that the process has opened.
    fn registry() -> &'static Registry<Self>;

    /// Opens the device. Where [`GpuApi::WAITS`], a thread waits for it, so the future must get on without a waker.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnavailable`] saying what is missing and how to get it, [`ErrorKind::Device`] when it does not open.
    fn new(which: &Which<Self::Options>) -> impl Future<Output = Result<Self>>;

    /// What executables on the device share.
    fn shared(&self) -> &Shared<Self>;

    /// Whether an executable gives its kernels to be stored, and takes kernels that were.
    fn stores(&self) -> Stores {
        Stores::Nothing
    }

    /// What compiled code depends on: adapter, driver, compiler.
    fn machine(&self) -> String;

    /// The device as the compiler sees it; without an opened one, what every such device has.
    fn target(which: &Which<Self::Options>, opened: Option<&Self>) -> KernelTarget;

    /// Its limits on memory and uniforms.
    fn limits(&self) -> Limits;

    /// The vendor's library for matmuls, by its name, where there is one for this device; it is loaded when it is first asked for, which is
    /// under [`Numerics::Fast`](rlx_opt::Numerics::Fast) alone. See [`crate::blas`]. The error says why it cannot be used: the device's own
    /// kernels do all matmuls then.
    fn blas(&self) -> Option<Result<&'static str>> {
        None
    }

    /// Its matrix units, where [`GpuApi::compile`] takes [`Source::Tiles`] for them: matmuls then run on them. See [`crate::tiles`].
    fn matrix_units(&self) -> Option<MatrixUnits> {
        None
    }

    /// Nanoseconds of a tick of the clock by which the device can time steps ([`Submission::times`]), where it has one.
    fn tick(&self) -> Option<f64> {
        None
    }

    /// Whether it computes anything: a back end that does nothing is not tried for what it computes.
    fn computes(&self) -> bool {
        true
    }

    /// Gives the device back to its driver, where it is not enough that nobody uses it any more. It counts as lost already.
    fn close(&self) {}

    /// Waits until everything that was submitted is done.
    ///
    /// # Errors
    /// [`ErrorKind::Device`].
    fn wait(&self) -> Result<()>;

    // ---- Memory: sizes and places are multiples of four bytes.

    /// Memory of `bytes` bytes, within [`Limits`], for what `what` says.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`], or a fault of the device.
    fn allocate(&self, bytes: usize, usage: Usage, what: &str) -> Result<Self::Memory>;

    /// `bytes` bytes at `offset`.
    fn range(memory: &Self::Memory, offset: usize, bytes: usize) -> Self::Range;

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// A fault of the device.
    fn write(&self, to: &Self::Memory, offset: usize, bytes: &[u8]) -> Result<()>;

    /// Copies from the device to the host.
    ///
    /// # Errors
    /// A fault of the device.
    fn read(&self, back: Back<'_, Self>) -> Result<()>;

    /// Copies the first `bytes` bytes of `from` on the device, for what `what` says.
    ///
    /// # Errors
    /// A fault of the device.
    fn copy(&self, to: &Self::Memory, from: &Self::Memory, bytes: usize, what: &str) -> Result<()>;

    /// Memory of at least `bytes` bytes for what comes back to the host.
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

    /// Whether a dispatch is given its uniforms with its command ([`Bindings::values`]), and not in memory.
    fn by_value(dispatch: &Dispatch<Arc<Self::Code>>) -> bool {
        let _ = dispatch;
        false
    }

    /// What the device keeps of these bindings for all runs on them.
    ///
    /// # Errors
    /// A buffer without memory, or a fault of the device.
    fn link(&self, bindings: &Bindings<'_, Self>) -> Result<Self::Link>;

    /// Uniforms and numbers of workgroups changed: forgets what depends on them.
    fn renumber(link: &mut Self::Link) {
        let _ = link;
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
    fn open(which: &Which<Self::Options>) -> Result<Arc<Self>> {
        Self::registry().open(which, || {
            if !Self::WAITS && turn().is_none() {
                let message = "the device is not open, and opening it takes turns of the page's event loop";
                return Err(Error::new(ErrorKind::DeviceUnavailable, message)
                    .with_device(which.device.name())
                    .with_hint("await `open` of its backend first"));
            }
            block_on(Self::new(which))
        })
    }

    /// Its name in reports.
    fn name(&self) -> &'static str {
        self.shared().health.device().name()
    }

    /// An error of this device.
    fn error(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, message).with_device(self.name())
    }

    /// The error for memory that cannot be had; `what` says for what.
    fn out_of_memory(&self, what: &str) -> Error {
        out_of_memory(self.shared().health.device(), what)
    }

    /// Whether the device is still there.
    ///
    /// # Errors
    /// As [`Health::check`](crate::Health::check).
    fn alive(&self) -> Result<()> {
        self.shared().health.check()
    }

    /// Waits in a page, until `done`: gives up its turn ([`set_turn`](crate::set_turn)), and hears meanwhile what earlier calls report.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] in a page that cannot give it up, what a call reported, a device that is lost.
    fn in_turns(&self, done: &dyn Fn() -> bool) -> Result<()> {
        self.alive()?;
        let Some(turn) = turn() else {
            let message = "a page cannot wait for the device without giving up its turn";
            return Err(self
                .error(ErrorKind::Unsupported, message)
                .with_hint("await the run instead, or say how the page gives up its turn (`set_turn`)"));
        };
        self.shared().take_turns(turn, done);
        self.alive()
    }

    /// What the driver found wrong with a call that did `what`, where it tells that by a future. In a page nobody can wait for it: it is then the error
    /// of the run that is awaited next.
    ///
    /// # Errors
    /// What was found, as `say` says it; a device that is lost.
    fn reported<E: Send + 'static>(
        &self,
        what: &dyn Fn() -> String,
        found: impl Future<Output = Option<E>> + Send + 'static,
        say: fn(Device, &str, E) -> Error,
    ) -> Result<()> {
        let health = &self.shared().health;
        let device = health.device();
        if Self::WAITS {
            let found = block_on(found);
            health.check()?;
            return found.map_or(Ok(()), |error| Err(say(device, &what(), error)));
        }
        let what = what();
        health.later(async move { found.await.map(|error| say(device, &what, error)) });
        Ok(())
    }
}

/// Memory that the device copies to and the host reads: what comes back of one run, say.
pub trait HostMemory<G: GpuApi>: Send {
    /// How many bytes it has.
    fn size(&self) -> usize;

    /// The host has read what it wants: the device may write again.
    fn release(&mut self) {}

    /// Waits until what was last copied to it is there.
    ///
    /// # Errors
    /// A fault of the device.
    fn wait(&self, gpu: &G) -> Result<()>;

    /// Whether [`HostMemory::wait`] has nothing to wait for. Where it has, the task of `context` is woken later.
    fn poll(&self, gpu: &Arc<G>, context: &mut Context<'_>) -> Poll<()> {
        let _ = (gpu, context);
        Poll::Ready(())
    }

    /// Copies bytes that were waited for: as many as `out` has (a multiple of four) from `at` on (a multiple of eight).
    ///
    /// # Errors
    /// A fault of the device.
    fn copy(&self, gpu: &G, at: usize, out: &mut [u8]) -> Result<()>;

    /// All of its bytes, where the host has them in reach for as long as nothing else is copied there.
    fn in_reach(&self) -> Option<&[u8]> {
        None
    }
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
    /// What the device notes of its clock: see [`Times`].
    Times,
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

/// What is compiled to code that a dispatch runs. Both are bound in the same way: to the uniforms, then to buffers.
#[derive(Debug, Clone)]
pub enum Source {
    /// A kernel: what one invocation does.
    Kernel(Arc<Kernel>),
    /// A tile program: what a workgroup does, with matrix instructions.
    Tiles(Arc<Program>),
}

impl Source {
    /// A name for people.
    pub fn name(&self) -> &str {
        match self {
            Source::Kernel(kernel) => &kernel.name,
            Source::Tiles(program) => &program.name,
        }
    }
}

/// A kernel to be compiled.
#[derive(Debug)]
pub struct Job<'k> {
    /// What it is known by.
    pub hash: KernelHash,
    /// The kernel, or tile program. Only a device with [`GpuApi::matrix_units`] is given the latter.
    pub source: &'k Source,
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
    /// Where the uniforms of each dispatch are, but of those that are given them by value.
    pub(crate) uniforms: &'s [Option<G::Range>],
    pub(crate) places: &'s [Option<G::Range>],
}

impl<'s, G: GpuApi> Bindings<'s, G> {
    /// The uniforms of dispatch number `at` as [`render::uniform_bytes`](rlx_kernel::render::uniform_bytes) gives them, where it is given them by value.
    pub fn values(&self, at: usize) -> Option<&'s [u8]> {
        if self.uniforms[at].is_some() {
            return None;
        }
        let (from, bytes) = self.bound.places[at];
        Some(&self.bound.bytes[from as usize..][..bytes as usize])
    }

    /// What dispatch number `at` is bound to, in order: its uniforms, where they are in memory, its buffers, and where it can fail the fault record.
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
        ranges.extend(self.uniforms[at].as_ref().map(&of));
        for &buffer in &dispatch.buffers {
            ranges.push(of(placed(gpu, self.places, buffer)?));
        }
        ranges.extend(dispatch.can_fail.then_some(of(self.faults)));
        Ok(ranges)
    }
}

/// A tensor map with the memory of its buffer.
pub type PlacedMap<'s, G> = (BoundMap, &'s <G as GpuApi>::Range);

impl<'s, G: GpuApi> Bindings<'s, G> {
    /// The tensor maps that dispatch number `at` is given, in order.
    ///
    /// # Errors
    /// A buffer without memory, or numbers that break what the program's views promise.
    pub fn maps(
        &self,
        gpu: &G,
        at: usize,
        dispatch: &Dispatch<Arc<G::Code>>,
    ) -> Result<Vec<PlacedMap<'s, G>>> {
        let Some(program) = &dispatch.mapped else { return Ok(Vec::new()) };
        let (from, bytes) = self.bound.places[at];
        let (words, _) = self.bound.bytes[from as usize..][..bytes as usize].as_chunks();
        let uniforms: Vec<i32> = words.iter().map(|&word| i32::from_le_bytes(word)).collect();
        let place = |map: &MapDecl| {
            let map = map.bound(program, &uniforms).map_err(|e| e.with_device(gpu.name()))?;
            let buffer = placed(gpu, self.places, dispatch.buffers[map.buffer])?;
            Ok((map, buffer))
        };
        program.maps().iter().map(place).collect()
    }
}

/// A matmul of a BLAS with its memory.
pub struct BoundMatMul<'s, G: GpuApi> {
    /// Its numbers.
    pub of: &'s MatMul,
    /// Where its matrices are.
    pub matrices: [&'s G::Range; 4],
    /// Where its bias is.
    pub bias: Option<&'s G::Range>,
}

impl<'s, G: GpuApi> Bindings<'s, G> {
    /// The matmul of step number `step` that a BLAS may do in place of its dispatches.
    ///
    /// # Errors
    /// A buffer without memory.
    pub fn matmul(&self, gpu: &G, step: usize) -> Result<Option<BoundMatMul<'s, G>>> {
        let Some(of) = &self.bound.matmuls[step] else { return Ok(None) };
        let [a, b, added, result] = of.matrices.map(|matrix| placed(gpu, self.places, matrix.buffer));
        let bias = of.bias.map(|(buffer, _)| placed(gpu, self.places, buffer)).transpose()?;
        Ok(Some(BoundMatMul { of, matrices: [a?, b?, added?, result?], bias }))
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
    /// The times of the steps, where they are asked for and there is a clock ([`GpuApi::tick`]).
    pub times: Option<Times<'s, G>>,
}

/// Where the device notes what its clock says before and behind each step.
pub struct Times<'s, G: GpuApi> {
    /// Two numbers of 64 bits for each step, in [`Usage::Times`].
    pub notes: &'s G::Memory,
    /// Which steps do anything: notes of the others are not read.
    pub busy: &'s [bool],
}

/// What comes back to the host: outputs and the fault record of a run, say.
pub struct Back<'s, G: GpuApi> {
    /// Where it comes back. [`HostMemory::wait`] then waits for these copies.
    pub to: &'s mut G::Host,
    /// What is copied, in the order of places; at least one.
    pub arrivals: &'s [Arrival<G>],
}

impl<G: GpuApi> Back<'_, G> {
    /// How many bytes of [`Back::to`] are used.
    pub fn size(&self) -> usize {
        self.arrivals.last().map_or(0, |last| last.at + last.bytes)
    }
}

/// A part of device memory that comes back.
pub struct Arrival<G: GpuApi> {
    /// Where it is on the device.
    pub from: G::Range,
    /// How many bytes of `from` are left out at its start: a multiple of four.
    pub skip: usize,
    /// Its bytes: a multiple of four, at least four.
    pub bytes: usize,
    /// Where they go: a multiple of eight.
    pub at: usize,
}

/// What a device does with code of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stores {
    /// It gives none, and takes none.
    Nothing,
    /// It takes anyone's: every access is looked at on the device ([`Job::guarded`]), unless a seal shows that this user's RLX left it.
    Guarded,
    /// It takes what this user's RLX left ([`rlx_backend::seal`]), and runs it as its own: nothing on the device would keep a stranger's within its buffers.
    Sealed,
}
