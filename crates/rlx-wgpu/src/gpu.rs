//! An opened device: its queue and limits, and every driver fault as a typed error.

use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};

use rlx_driver::Device;
use rlx_gpu::{GpuApi, Shared, locked};
use rlx_ir::{Error, ErrorKind, Result};

use crate::driver_cache::DriverCache;
use crate::late::Late;
use crate::{WAITS, adapter, block_on};

/// What a device is opened by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Which {
    pub(crate) device: Device,
    pub(crate) lowered: Lowered,
}

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

/// What is used where the adapter has it: what the driver compiled, a clock, elements of 16 bits in buffers.
const WANTED: wgpu::Features =
    wgpu::Features::PIPELINE_CACHE.union(wgpu::Features::TIMESTAMP_QUERY).union(wgpu::Features::SHADER_I16);

/// An opened device.
pub(crate) struct Gpu {
    pub(crate) shared: Shared<Gpu>,
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) info: wgpu::AdapterInfo,
    pub(crate) limits: wgpu::Limits,
    /// Why the device was lost, once it was; shared with the driver's callback.
    pub(crate) lost: Arc<OnceLock<String>>,
    /// Errors that no scope caught.
    pub(crate) stray: Arc<Mutex<Option<Error>>>,
    /// What calls will report, where it comes later.
    late: Mutex<Late>,
    /// Where the driver gives what it compiled.
    pub(crate) driver_cache: Option<DriverCache>,
}

impl Gpu {
    /// Opens the device.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnavailable`] when there is no adapter, [`ErrorKind::Device`] when it does not open.
    pub(crate) async fn opened_by(which: Which) -> Result<Gpu> {
        let Which { device: name, lowered } = which;
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
            shared: Shared::new(name, lowered.max_memory_bytes),
            device,
            queue,
            info,
            limits,
            lost,
            stray,
            late: Mutex::default(),
            driver_cache,
        })
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
            self.shared.forget_kernels();
        }
        for (what, error) in errors {
            locked(&self.stray).get_or_insert(self.reported(&what, error));
        }
        polled
    }

    /// Waits until a submission is done, and those before it.
    ///
    /// # Errors
    /// [`ErrorKind::Device`].
    pub(crate) fn wait_for(&self, submission: wgpu::SubmissionIndex) -> Result<()> {
        self.poll(wgpu::PollType::Wait { submission_index: Some(submission), timeout: None })
    }

    /// Waits for what is to be waited for.
    ///
    /// # Errors
    /// [`ErrorKind::Device`].
    pub(crate) fn poll(&self, what: wgpu::PollType) -> Result<()> {
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

    /// Closes the device: whatever uses it reports that it was lost.
    pub(crate) fn destroy(&self) {
        self.device.destroy();
        // The callback runs when the device is polled; an error of this poll is the loss itself.
        let _ = self.device.poll(wgpu::PollType::Poll);
        let _ = self.lost.set("Destroyed: closed by this process".to_string());
    }
}
