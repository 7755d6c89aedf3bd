//! An opened device: its queue, limits and pipelines, and every driver fault as a typed error.
//!
//! A process opens each device once for each set of limits ([`Gpu::open`]); executables share it. A device that
//! is lost stays lost: its executables report that, and the next one compiled opens it again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};

use rlx_backend::budget::{Budget, Reserved};
use rlx_backend::prepared::Prepared;
use rlx_backend::uploads::Uploads;
use rlx_driver::Device;
use rlx_ir::{Error, ErrorKind, Result, Weight};

use crate::driver_cache::DriverCache;
use crate::late::Late;
use crate::memory::DeviceBuffer;
use crate::pipeline::{Pipeline, PipelineKey};
use crate::{WAITS, adapter, block_on};

/// Limits below the device's own: for sharing a device, and for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Lowered {
    /// The most bytes a kernel is bound to at once.
    pub max_binding_bytes: Option<u64>,
    /// The most storage buffers of a kernel.
    pub max_storage_buffers: Option<u32>,
    /// The most invocations of a workgroup.
    pub max_workgroup: Option<u32>,
    /// The most bytes of device memory that this process's executables take together.
    pub max_memory_bytes: Option<u64>,
}

/// Bytes that went between host and device since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Transfers {
    /// Parameters, inputs, sizes, handles when they are set.
    pub to_device: u64,
    /// Outputs, handles when they are read, and a few bytes of each run that say whether it failed.
    pub to_host: u64,
}

/// What is used where the adapter has it: what the driver compiled, a clock, elements of 16 bits in buffers.
const WANTED: wgpu::Features =
    wgpu::Features::PIPELINE_CACHE.union(wgpu::Features::TIMESTAMP_QUERY).union(wgpu::Features::SHADER_I16);

/// What devices by name and limits are opened as.
type Opened = HashMap<(Device, Lowered), Arc<Gpu>>;

static OPENED: LazyLock<Mutex<Opened>> = LazyLock::new(Mutex::default);

/// An opened device.
pub(crate) struct Gpu {
    pub(crate) name: Device,
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) info: wgpu::AdapterInfo,
    pub(crate) limits: wgpu::Limits,
    /// Why the device was lost, once it was; shared with the driver's callback.
    lost: Arc<OnceLock<String>>,
    /// Errors that no scope caught.
    stray: Arc<Mutex<Option<Error>>>,
    /// What calls will report, where it comes later.
    late: Mutex<Late>,
    pub(crate) pipelines: Mutex<HashMap<PipelineKey, Arc<Pipeline>>>,
    /// Where the driver gives what it compiled.
    pub(crate) driver_cache: Option<DriverCache>,
    uploads: Uploads<DeviceBuffer>,
    /// What init programs made, for all executables of the device.
    pub(crate) prepared: Prepared<DeviceBuffer>,
    budget: Budget,
    /// [`Transfers`] to the device, and to the host.
    pub(crate) moved: [AtomicU64; 2],
    pub(crate) probed: OnceLock<Result<()>>,
}

/// A mutex's contents, also after a panic elsewhere: every use leaves them whole.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gpu {
    /// The device under these limits, opened at first use.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnavailable`] when there is no adapter, [`ErrorKind::Device`] when it does not open.
    pub(crate) fn open(device: Device, lowered: Lowered) -> Result<Arc<Gpu>> {
        let mut opened = locked(&OPENED);
        if let Some(gpu) = opened.get(&(device, lowered)).filter(|gpu| gpu.lost.get().is_none()) {
            return Ok(Arc::clone(gpu));
        }
        if !WAITS {
            let message = "the device is not open, and opening it takes turns of the page's event loop";
            return Err(Error::new(ErrorKind::DeviceUnavailable, message)
                .with_device(device.name())
                .with_hint("await WgpuBackend::open first"));
        }
        let gpu = Arc::new(block_on(Gpu::new(device, lowered))?);
        opened.insert((device, lowered), Arc::clone(&gpu));
        Ok(gpu)
    }

    /// As [`Gpu::open`], awaited.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub(crate) async fn open_awaited(device: Device, lowered: Lowered) -> Result<Arc<Gpu>> {
        if let Some(gpu) = Gpu::opened(device, lowered) {
            return Ok(gpu);
        }
        let gpu = Arc::new(Gpu::new(device, lowered).await?);
        locked(&OPENED).insert((device, lowered), Arc::clone(&gpu));
        Ok(gpu)
    }

    /// The device under these limits, if this process has opened it and not lost it.
    pub(crate) fn opened(device: Device, lowered: Lowered) -> Option<Arc<Gpu>> {
        locked(&OPENED).get(&(device, lowered)).filter(|gpu| gpu.lost.get().is_none()).cloned()
    }

    async fn new(name: Device, lowered: Lowered) -> Result<Gpu> {
        let adapter = adapter::choose(name).await?;
        let mut limits = adapter.limits();
        if let Some(most) = lowered.max_binding_bytes {
            limits.max_storage_buffer_binding_size = limits.max_storage_buffer_binding_size.min(most);
        }
        if let Some(most) = lowered.max_storage_buffers {
            limits.max_storage_buffers_per_shader_stage =
                limits.max_storage_buffers_per_shader_stage.min(most);
        }
        if let Some(most) = lowered.max_workgroup {
            for limit in
                [&mut limits.max_compute_invocations_per_workgroup, &mut limits.max_compute_workgroup_size_x]
            {
                *limit = most.min(*limit);
            }
        }
        let description = wgpu::DeviceDescriptor {
            label: Some("rlx"),
            required_limits: limits.clone(),
            required_features: adapter.features() & WANTED,
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            ..Default::default()
        };
        let info = adapter.get_info();
        let (device, queue) = adapter.request_device(&description).await.map_err(|e| {
            Error::new(ErrorKind::Device, format!("{} does not open: {e}", info.name))
                .with_device(name.name())
                .with_source(e)
        })?;
        let lost = Arc::new(OnceLock::new());
        let why = Arc::clone(&lost);
        device.set_device_lost_callback(move |reason, message| {
            let _ = why.set(format!("{reason:?}: {message}"));
        });
        let stray = Arc::new(Mutex::new(None));
        let keep = Arc::clone(&stray);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            let stray = Error::new(ErrorKind::Device, error.to_string()).with_device(name.name());
            locked(&keep).get_or_insert(stray);
        }));
        tracing::debug!(device = %name, adapter = %info.name, driver = %info.driver_info, "opened");
        let driver_cache = DriverCache::open(&device, &info);
        Ok(Gpu {
            name,
            device,
            queue,
            info,
            limits,
            lost,
            stray,
            late: Mutex::default(),
            pipelines: Mutex::default(),
            driver_cache,
            uploads: Uploads::default(),
            prepared: Prepared::new(),
            budget: Budget::new(lowered.max_memory_bytes),
            moved: Default::default(),
            probed: OnceLock::new(),
        })
    }

    /// An error of this device.
    pub(crate) fn error(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, message).with_device(self.name.name())
    }

    /// Whether the device is still there.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] with the driver's reason when it is not, or when an error reached no call.
    pub(crate) fn alive(&self) -> Result<()> {
        if let Some(reason) = self.lost.get() {
            return Err(self
                .error(ErrorKind::Device, format!("the device was lost ({reason})"))
                .with_hint("compile again: the device is then opened again"));
        }
        match locked(&self.stray).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Calls `f`; what the driver or wgpu reports meanwhile on this thread is the error. A page reports it later: then it is
    /// the error of the run that is awaited next.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] or [`ErrorKind::Device`], saying what was being done.
    pub(crate) fn checked<T>(&self, what: &dyn Fn() -> String, f: impl FnOnce() -> T) -> Result<T> {
        self.alive()?;
        let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let validation = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let internal = self.device.push_error_scope(wgpu::ErrorFilter::Internal);
        let value = f();
        let found = (internal.pop(), validation.pop(), memory.pop());
        if !WAITS {
            locked(&self.late).push(what(), found);
            return Ok(value);
        }
        let found = [block_on(found.0), block_on(found.1), block_on(found.2)];
        self.alive()?;
        match found.into_iter().flatten().next() {
            None => Ok(value),
            Some(error) => Err(self.reported(&what(), error)),
        }
    }

    /// What wgpu reports of a call.
    fn reported(&self, what: &str, error: wgpu::Error) -> Error {
        match error {
            wgpu::Error::OutOfMemory { .. } => self.out_of_memory(what).with_source(error),
            _ => self.error(ErrorKind::Device, format!("{what}: {error}")).with_source(error),
        }
    }

    /// Whether every call has reported what it has to; the first error is then what [`Gpu::alive`] gives.
    pub(crate) fn poll_late(&self, context: &mut Context<'_>) -> Poll<()> {
        let (errors, polled) = locked(&self.late).poll(context);
        if !errors.is_empty() {
            // One of them may be among those that were wrong.
            locked(&self.pipelines).clear();
        }
        for (what, error) in errors {
            locked(&self.stray).get_or_insert(self.reported(&what, error));
        }
        polled
    }

    fn out_of_memory(&self, what: &str) -> Error {
        self.error(ErrorKind::OutOfMemory, format!("{what}: the device has no memory left"))
            .with_hint("use smaller dimensions or batch, or drop executables that are not needed")
    }

    /// Counts `bytes` as used until the guard is dropped.
    pub(crate) fn reserve(&self, bytes: u64, what: &str) -> Result<Reserved> {
        self.budget.reserve(bytes).ok_or_else(|| self.out_of_memory(what))
    }

    /// Bytes in use.
    pub(crate) fn memory_in_use(&self) -> u64 {
        self.budget.used()
    }

    /// What went between host and device so far.
    pub(crate) fn transfers(&self) -> Transfers {
        let [to_device, to_host] = &self.moved;
        Transfers { to_device: to_device.load(Ordering::Relaxed), to_host: to_host.load(Ordering::Relaxed) }
    }

    /// Waits until everything submitted is done.
    ///
    /// # Errors
    /// [`ErrorKind::Device`].
    pub(crate) fn wait(&self) -> Result<()> {
        self.poll(wgpu::PollType::wait_indefinitely())
    }

    /// Waits until a submission is done, and those before it.
    ///
    /// # Errors
    /// [`ErrorKind::Device`].
    pub(crate) fn wait_for(&self, submission: wgpu::SubmissionIndex) -> Result<()> {
        self.poll(wgpu::PollType::Wait { submission_index: Some(submission), timeout: None })
    }

    fn poll(&self, what: wgpu::PollType) -> Result<()> {
        self.alive()?;
        if !WAITS {
            let message = "a page cannot wait for the device without giving up its turn";
            return Err(self.error(ErrorKind::Unsupported, message).with_hint("await the run instead"));
        }
        let polled = self.device.poll(what);
        self.alive()?;
        polled
            .map(|_| ())
            .map_err(|e| self.error(ErrorKind::Device, format!("waiting for the device: {e}")).with_source(e))
    }

    /// The device's copy of a weight: one for all executables that use it.
    ///
    /// # Errors
    /// Memory that cannot be had, or bytes that cannot be read.
    pub(crate) fn upload(&self, weight: &Arc<Weight>, name: &str) -> Result<Arc<DeviceBuffer>> {
        self.uploads.get(weight, |bytes| {
            let copy = DeviceBuffer::storage(self, bytes.len() as u64, &format!("parameter {name:?}"))?;
            copy.write(self, bytes)?;
            Ok(copy)
        })
    }

    /// Closes the device: whatever uses it reports that it was lost.
    pub(crate) fn destroy(&self) {
        self.device.destroy();
        // The callback runs when the device is polled; an error of this poll is the loss itself.
        let _ = self.device.poll(wgpu::PollType::Poll);
        let _ = self.lost.set("Destroyed: closed by this process".to_string());
    }
}
