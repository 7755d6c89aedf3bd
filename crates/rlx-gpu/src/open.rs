//! The devices that the process has opened, and what executables on a device share.
//!
//! A process opens each device once for each set of limits ([`Registry::open`]). A device that is lost stays lost: its executables
//! report that, and the next one compiled opens it again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::task::{Context, Poll};

use rlx_backend::budget::{Budget, Reserved};
use rlx_backend::pipelines::in_parallel;
use rlx_backend::prepared::Prepared;
use rlx_backend::uploads::Uploads;
use rlx_ir::clock::Instant;
use rlx_ir::{Error, ErrorKind, Result, Weight};
use rlx_kernel::KernelHash;

use crate::api::{GpuApi, Job, Source, Usage};
use crate::classes::Tried;
use crate::health::Health;
use crate::memory::Buffer;
use crate::signal::locked;
use crate::which::{Lowered, Which};

/// Devices by what they were opened by.
type Opened<G> = HashMap<Which<<G as GpuApi>::Options>, Arc<G>>;

/// Devices of one type that the process has opened.
pub struct Registry<G: GpuApi>(LazyLock<Mutex<Opened<G>>>);

impl<G: GpuApi> Registry<G> {
    /// None opened yet.
    pub const fn new() -> Self {
        Registry(LazyLock::new(Mutex::default))
    }

    /// The device, which `open` opens where it is not open, or lost.
    ///
    /// # Errors
    /// What `open` reports.
    pub fn open(&self, which: &Which<G::Options>, open: impl FnOnce() -> Result<G>) -> Result<Arc<G>> {
        let mut opened = locked(&self.0);
        if let Some(gpu) = opened.get(which).filter(|gpu| gpu.shared().health.lost().is_none()) {
            return Ok(Arc::clone(gpu));
        }
        let gpu = Arc::new(open()?);
        opened.insert(which.clone(), Arc::clone(&gpu));
        Ok(gpu)
    }

    /// The device, if this process has opened it and not lost it.
    pub fn opened(&self, which: &Which<G::Options>) -> Option<Arc<G>> {
        locked(&self.0).get(which).filter(|gpu| gpu.shared().health.lost().is_none()).cloned()
    }

    /// A device that was opened elsewhere.
    pub fn insert(&self, which: &Which<G::Options>, gpu: G) -> Arc<G> {
        let gpu = Arc::new(gpu);
        locked(&self.0).insert(which.clone(), Arc::clone(&gpu));
        gpu
    }
}

impl<G: GpuApi> Default for Registry<G> {
    fn default() -> Self {
        Self::new()
    }
}

/// Bytes that went between host and device since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Transfers {
    /// Parameters, inputs, sizes, handles when they are set.
    pub to_device: u64,
    /// Outputs, handles when they are read, and a few bytes of each run that say whether it failed.
    pub to_host: u64,
}

/// What a kernel on the device is known by: the kernel, and whether it is guarded.
type KernelKey = (KernelHash, bool);

/// A kernel that cannot be compiled, by its place, and why.
pub type Rejected = (usize, Error);

/// What all executables on an opened device share.
pub struct Shared<G: GpuApi> {
    /// Whether it is still there.
    pub health: Arc<Health>,
    /// Limits that it is used under.
    pub(crate) limits: Lowered,
    kernels: Mutex<HashMap<KernelKey, Arc<G::Code>>>,
    uploads: Uploads<Buffer<G>>,
    /// What init programs made.
    pub(crate) prepared: Prepared<Buffer<G>>,
    budget: Budget,
    /// [`Transfers`] to the device, and to the host.
    moved: [AtomicU64; 2],
    /// What the probe found.
    pub(crate) probed: OnceLock<Result<()>>,
    /// What the device was tried for.
    pub(crate) tried: Mutex<Tried>,
}

impl<G: GpuApi> Shared<G> {
    /// Nothing yet, on a device that is used under these limits.
    pub fn new(health: Arc<Health>, limits: Lowered) -> Self {
        Shared {
            health,
            limits,
            kernels: Mutex::default(),
            uploads: Uploads::default(),
            prepared: Prepared::new(),
            budget: Budget::new(limits.max_memory_bytes),
            moved: Default::default(),
            probed: OnceLock::new(),
            tried: Mutex::default(),
        }
    }

    /// Counts `bytes` as used until the guard is dropped; `None` above the memory limit.
    pub(crate) fn reserve(&self, bytes: u64) -> Option<Reserved> {
        self.budget.reserve(bytes)
    }

    /// The most bytes of device memory that may be used, where that is limited.
    pub fn most_memory(&self) -> Option<u64> {
        self.limits.max_memory_bytes
    }

    /// Bytes of device memory in use.
    pub fn memory_in_use(&self) -> u64 {
        self.budget.used()
    }

    pub(crate) fn count_to_device(&self, bytes: usize) {
        self.moved[0].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes that the host read of device memory.
    pub(crate) fn count_to_host(&self, bytes: usize) {
        self.moved[1].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// What went between host and device so far.
    pub fn transfers(&self) -> Transfers {
        let [to_device, to_host] = [0, 1].map(|way| self.moved[way].load(Ordering::Relaxed));
        Transfers { to_device, to_host }
    }

    /// How many kernels are on the device.
    pub fn kernel_count(&self) -> usize {
        locked(&self.kernels).len()
    }

    /// Whether every call has reported what it has to, where calls report later.
    pub(crate) fn poll_calls(&self, context: &mut Context<'_>) -> Poll<()> {
        let (wrong, polled) = self.health.poll(context);
        self.heard(wrong);
        polled
    }

    /// Gives up turns until `done`, and until every call has reported, or the device is lost.
    pub(crate) fn take_turns(&self, turn: fn(), done: &dyn Fn() -> bool) {
        self.heard(self.health.take_turns(turn, done));
    }

    /// Whether a call has just reported that it was wrong.
    fn heard(&self, wrong: bool) {
        if wrong {
            // A kernel may be among what was wrong.
            locked(&self.kernels).clear();
        }
    }

    /// The device's copy of a weight: one for all executables that use it.
    pub(crate) fn upload(&self, gpu: &G, weight: &Arc<Weight>, name: &str) -> Result<Arc<Buffer<G>>> {
        self.uploads.get(weight, |weight| {
            let bytes = weight.bytes()?;
            let copy = Buffer::new(gpu, bytes.len(), Usage::Storage, &format!("parameter {name:?}"))?;
            copy.write(gpu, 0, &bytes)?;
            Ok(copy)
        })
    }

    /// The code of distinct kernels, in their order; what is not there yet is compiled, several at a time, and then loaded.
    ///
    /// # Errors
    /// The first kernel that the compiler or the driver rejects.
    pub fn kernels(
        &self,
        gpu: &G,
        kernels: &[(KernelHash, Source)],
        guarded: bool,
    ) -> std::result::Result<Vec<Arc<G::Code>>, Rejected> {
        let mut found: Vec<Option<Arc<G::Code>>> = {
            let known = locked(&self.kernels);
            kernels.iter().map(|(hash, _)| known.get(&(*hash, guarded)).cloned()).collect()
        };
        let missing: Vec<usize> = (0..kernels.len()).filter(|&at| found[at].is_none()).collect();
        let jobs: Vec<Job<'_>> = { missing.iter().map(|&at| &kernels[at]) }
            .map(|(hash, source)| Job { hash: *hash, source, guarded })
            .collect();
        let threads = gpu.compile_threads().min(jobs.len());
        let started = Instant::now();
        let images = in_parallel(threads, jobs.len(), |i| gpu.compile(&jobs[i]));
        if !jobs.is_empty() {
            let took = started.elapsed();
            tracing::debug!(device = %self.health.device(), count = jobs.len(), ?took, "compiled kernels");
        }
        for ((&at, job), image) in missing.iter().zip(&jobs).zip(images) {
            let code = image.and_then(|image| gpu.load(job, image)).map_err(|e| (at, e))?;
            let mut known = locked(&self.kernels);
            found[at] = Some(Arc::clone(known.entry((job.hash, guarded)).or_insert(Arc::new(code))));
        }
        let lost = |at| (at, gpu.error(ErrorKind::Internal, "a kernel that no one compiled"));
        found.into_iter().enumerate().map(|(at, code)| code.ok_or_else(|| lost(at))).collect()
    }
}
