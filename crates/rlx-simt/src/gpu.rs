//! An opened device: what it is, and every driver fault as a typed error.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};

use rlx_backend::libraries;
use rlx_backend::pipelines::Kept;
use rlx_driver::Device;
use rlx_gpu::{GpuApi, Shared, locked};
use rlx_ir::{Error, ErrorKind, Result};

use crate::compile;
use crate::driver::{Attribute, Context};
use crate::load::Libraries;
use crate::memory::Staging;
use crate::table::{Fault, Vendor};

/// Which GPU, and where the vendor's libraries are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Options {
    /// The folders in which driver and compiler are looked for first: those that [`libraries::LIBRARY_PATH`] names, if nothing else is
    /// said.
    pub folders: Vec<PathBuf>,
    /// The GPU's number as the driver counts, from 0.
    pub ordinal: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { folders: libraries::folders(), ordinal: 0 }
    }
}

pub(crate) type Which = rlx_gpu::Which<Options>;

/// A device has one context in a process, whatever limits it is used under: it is lost to all of them at once.
static CONTEXTS: LazyLock<Mutex<Contexts>> = LazyLock::new(Mutex::default);

type Contexts = HashMap<(Device, Options), Arc<Context>>;

/// An opened device.
pub struct Gpu {
    pub(crate) context: Arc<Context>,
    /// Its name, the driver's version and the compiler's: what compiled kernels depend on.
    pub(crate) machine: String,
    /// `sm_90`, `gfx9`.
    pub(crate) architecture: String,
    pub(crate) max_workgroup: u32,
    pub(crate) shared_bytes: usize,
    /// Code objects of earlier processes.
    pub(crate) kept: Option<Kept>,
    pub(crate) staging: Mutex<Staging>,
    pub(crate) shared: Shared<Gpu>,
}

/// Whether the driver gives the context up with this error: nothing of it works any more. Both vendors have the same numbers.
fn is_fatal(code: i32) -> bool {
    // Deinitialised; uncorrectable memory or link, a fault contained to this process; the address, launch, assertion, stack,
    // instruction and memory faults of kernels; timeout; context destroyed; unknown.
    matches!(code, 4 | 46 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 999)
}

const OUT_OF_MEMORY: i32 = 2;

impl Gpu {
    fn libraries(device: Device, options: &Options) -> Result<(Arc<Libraries>, usize)> {
        let vendor = match device {
            Device::Cuda => Vendor::Cuda,
            Device::Rocm => Vendor::Hip,
            _ => {
                let message = format!("{device} is served by neither CUDA nor HIP");
                return Err(Error::new(ErrorKind::DeviceUnavailable, message).with_device(device.name()));
            }
        };
        let libraries = Libraries::load(device, vendor, &options.folders)?;
        let count = Context::count(&libraries).map_err(|fault| {
            Error::new(ErrorKind::DeviceUnavailable, format!("the driver finds no GPU: {fault}"))
                .with_device(device.name())
                .with_hint(
                    "check that the GPU is visible to this process (its device files, its driver's own tool)",
                )
        })?;
        Ok((libraries, count))
    }

    /// The device's context: the one that is open, or a new one, where there is none or it was lost.
    fn context(which: &Which, libraries: &Arc<Libraries>) -> std::result::Result<Arc<Context>, Fault> {
        let mut contexts = locked(&CONTEXTS);
        let of = (which.device, which.options.clone());
        let before = contexts.get(&of);
        if let Some(context) = before.filter(|context| context.health.lost().is_none()) {
            return Ok(Arc::clone(context));
        }
        let context = Context::open(libraries, of.0, of.1.ordinal, before.is_some())?;
        contexts.insert(of, Arc::clone(&context));
        Ok(context)
    }

    /// Opens the device.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnavailable`] saying what is missing, [`ErrorKind::Device`] when it does not open.
    pub(crate) fn opened_by(which: &Which) -> Result<Gpu> {
        let (device, ordinal) = (which.device, which.options.ordinal);
        let error = |kind, message: String| Error::new(kind, message).with_device(device.name());
        let (libraries, count) = Self::libraries(device, &which.options)?;
        let vendor = libraries.vendor;
        if ordinal >= count {
            let message = format!("there is no GPU {ordinal}, the driver has {count}");
            return Err(error(ErrorKind::DeviceUnavailable, message));
        }
        let failed = |fault: Fault| error(ErrorKind::Device, format!("the GPU does not open: {fault}"));
        let context = Self::context(which, &libraries).map_err(failed)?;
        let ask = |of| context.attribute(of).map_err(failed);
        let (major, minor) = (ask(Attribute::Major)?, ask(Attribute::Minor)?);
        let architecture = match vendor {
            Vendor::Cuda => format!("sm_{major}{minor}"),
            Vendor::Hip => format!("gfx{major}"),
        };
        let (max_workgroup, shared) = (ask(Attribute::MaxWorkgroup)?, ask(Attribute::SharedBytes)?);
        let (name, driver) = (context.name().map_err(failed)?, context.driver_version().map_err(failed)?);
        let compiler = compile::version(&libraries).map_err(failed)?;
        let machine =
            format!("{name} ({architecture}, driver {driver}, compiler {}.{})", compiler.0, compiler.1);
        tracing::debug!(%device, ordinal, %machine, "opened");
        Ok(Gpu {
            architecture,
            max_workgroup,
            shared_bytes: shared as usize,
            kept: Kept::of(device.feature(), &[&machine]),
            staging: Mutex::default(),
            shared: Shared::new(Arc::clone(&context.health), which.limits),
            machine,
            context,
        })
    }

    /// What the driver reported, as an error; `what` says what was being done.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] or [`ErrorKind::Device`].
    pub(crate) fn checked<T>(&self, what: impl Display, outcome: std::result::Result<T, Fault>) -> Result<T> {
        outcome.map_err(|fault| {
            if fault.code == OUT_OF_MEMORY {
                return self.out_of_memory(&format!("{what}: {fault}"));
            }
            if is_fatal(fault.code) {
                self.shared.health.lose(fault.to_string());
                return self
                    .error(ErrorKind::Device, format!("{what}: the device was lost: {fault}"))
                    .with_hint("compile again: the device is then opened again");
            }
            self.error(ErrorKind::Device, format!("{what}: {fault}"))
        })
    }
}

/// How many GPUs the driver finds of `device`: [`Device::Cuda`] or [`Device::Rocm`].
///
/// # Errors
/// [`ErrorKind::DeviceUnavailable`] saying what is missing.
pub fn gpu_count(device: Device, options: &Options) -> Result<usize> {
    Ok(Gpu::libraries(device, options)?.1)
}
