//! An opened device: what it is, and every driver fault as a typed error.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};

use rlx_backend::libraries;
use rlx_backend::pipelines::Kept;
use rlx_driver::Device;
use rlx_gpu::{Buffer, Classes, GpuApi, MatrixUnits, Shared, Usage, locked};
use rlx_ir::{Error, ErrorKind, Result};

use crate::blas::{Handles, WORKSPACE};
use crate::compile;
use crate::driver::{Attribute, Context};
use crate::load::{BlasLibrary, Libraries};
use crate::memory::Staging;
use crate::table::{Class, Fault, Vendor};

/// Which GPU, and where the vendor's libraries are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Options {
    /// The folders in which driver and compiler are looked for first: those that [`libraries::LIBRARY_PATH`] names, if nothing else is
    /// said.
    pub folders: Vec<PathBuf>,
    /// The GPU's number as the driver counts, from 0.
    pub ordinal: usize,
    /// Whether the vendor's library for matmuls (cuBLASLt, hipBLASLt) is used, where it is installed and the numerics of a compilation are
    /// `Fast`. Under `Strict` it is never loaded.
    pub blas: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { folders: libraries::folders(), ordinal: 0, blas: true }
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
    /// `sm_90`, `gfx9.4`.
    pub(crate) architecture: String,
    /// Its matrix units.
    pub(crate) matrix_units: Option<MatrixUnits>,
    pub(crate) max_workgroup: u32,
    /// Threads of a warp, where the driver says it.
    pub(crate) warp: Option<u32>,
    pub(crate) shared_bytes: usize,
    /// Code objects of earlier processes.
    pub(crate) kept: Option<Kept>,
    pub(crate) staging: Mutex<Staging>,
    /// What [`Options::blas`] says.
    uses_blas: bool,
    /// The library for matmuls and its workspace, from the first one on.
    blas: Mutex<Option<(Arc<Handles>, Buffer<Gpu>)>>,
    pub(crate) shared: Shared<Gpu>,
}

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
        let of = (which.device, Options { blas: true, ..which.options.clone() });
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
        let dynamic_bytes = ask(Attribute::DynamicBytes)? as usize;
        let compiler = compile::version(&libraries).map_err(failed)?;
        let arch = compile::matrix_units(&context, (major, minor), compiler).map_err(failed)?;
        let architecture = match (vendor, arch) {
            (Vendor::Cuda, Some(arch)) if arch.has_groups() => arch.name().to_owned(),
            (Vendor::Cuda, _) => format!("sm_{major}{minor}"),
            (Vendor::Hip, _) => format!("gfx{major}.{minor}"),
        };
        // How many there are only decides how work is divided.
        let compute_units = context.attribute(Attribute::ComputeUnits).ok();
        let matrix_units =
            arch.map(|arch| MatrixUnits { arch, dynamic_bytes, compute_units, aside: Classes::default() });
        let warp = context.attribute(Attribute::WarpSize).ok();
        let (max_workgroup, shared) = (ask(Attribute::MaxWorkgroup)?, ask(Attribute::SharedBytes)?);
        let (name, driver) = (context.name().map_err(failed)?, context.driver_version().map_err(failed)?);
        let units = arch.map_or(String::new(), |arch| format!(", matrix units of {}", arch.name()));
        let machine = format!(
            "{name} ({architecture}{units}, driver {driver}, compiler {}.{})",
            compiler.0, compiler.1
        );
        tracing::debug!(%device, ordinal, %machine, "opened");
        Ok(Gpu {
            architecture,
            matrix_units,
            max_workgroup,
            warp,
            shared_bytes: shared as usize,
            kept: Kept::of(device.feature(), &[&machine]),
            staging: Mutex::default(),
            uses_blas: which.options.blas,
            blas: Mutex::default(),
            shared: Shared::new(Arc::clone(&context.health), which.limits),
            machine,
            context,
        })
    }

    /// The library for matmuls, where it may be used: loaded, or why it is not there.
    pub(crate) fn blas_library(&self) -> Option<Result<&Arc<BlasLibrary>>> {
        self.uses_blas.then(|| self.context.libraries.blas())
    }

    /// The library with a handle and a workspace of this device's. Under a limit on memory the workspace is an eighth of that at most: what
    /// there is of it may decide which algorithm is found, so it follows from the options alone.
    ///
    /// # Errors
    /// What the library reports, or no memory for the workspace.
    pub(crate) fn blas_handles(&self, library: &Arc<BlasLibrary>) -> Result<Arc<Handles>> {
        let mut opened = locked(&self.blas);
        if let Some((handles, _)) = &*opened {
            return Ok(Arc::clone(handles));
        }
        let most =
            self.shared.most_memory().map_or(usize::MAX, |most| usize::try_from(most / 8).unwrap_or(0));
        let name = library.name();
        let workspace =
            Buffer::new(self, WORKSPACE.min(most), Usage::Storage, &format!("the workspace of {name}"))?;
        let handles = Handles::open(&self.context, library, workspace.whole());
        let handles = Arc::new(self.checked(format_args!("opening {name}"), handles)?);
        *opened = Some((Arc::clone(&handles), workspace));
        Ok(handles)
    }

    /// What the driver reported, as an error; `what` says what was being done.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] or [`ErrorKind::Device`].
    pub(crate) fn checked<T>(&self, what: impl Display, outcome: std::result::Result<T, Fault>) -> Result<T> {
        outcome.map_err(|fault| match fault.class {
            Class::OutOfMemory => self.out_of_memory(&format!("{what}: {fault}")),
            Class::Fatal => {
                self.shared.health.lose(fault.to_string());
                self.error(ErrorKind::Device, format!("{what}: the device was lost: {fault}"))
                    .with_hint("compile again: the device is then opened again")
            }
            Class::Plain => self.error(ErrorKind::Device, format!("{what}: {fault}")),
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
