//! An opened device: what it is, its kernels and weights, and every driver fault as a typed error.
//!
//! A process opens each device once ([`Gpu::open`]); executables share it. A device that the driver gave up stays lost: its executables
//! report that, and the next one compiled opens it again.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

use rlx_backend::budget::{Budget, Reserved};
use rlx_backend::pipelines::{Kept, in_parallel};
use rlx_backend::prepared::Prepared;
use rlx_backend::uploads::Uploads;
use rlx_driver::Device;
use rlx_ir::hash::hash_of;
use rlx_ir::{Error, ErrorKind, Result, Weight};
use rlx_kernel::{Kernel, KernelHash, render};

use crate::compile::{self, Rejected};
use crate::driver::{Attribute, Code, Context};
use crate::load::Libraries;
use crate::memory::{Buffer, Staging};
use crate::table::{Fault, Vendor};

/// Which device: by whose driver, where its libraries are looked for first, and its number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Which {
    pub(crate) device: Device,
    pub(crate) folders: Vec<PathBuf>,
    pub(crate) ordinal: usize,
    /// The most bytes of device memory that this process's executables take together.
    pub(crate) max_memory_bytes: Option<u64>,
}

static OPENED: LazyLock<Mutex<HashMap<Which, Arc<Gpu>>>> = LazyLock::new(Mutex::default);

/// A device has one context in a process, whatever limits it is used under: it is lost to all of them at once.
static CONTEXTS: LazyLock<Mutex<HashMap<Which, Arc<Context>>>> = LazyLock::new(Mutex::default);

/// An opened device.
pub(crate) struct Gpu {
    pub(crate) which: Which,
    pub(crate) context: Arc<Context>,
    /// Its name, the driver's version and the compiler's: what compiled kernels depend on.
    pub(crate) machine: String,
    /// `sm_90`, `gfx9`.
    architecture: String,
    pub(crate) max_workgroup: u32,
    pub(crate) shared_bytes: usize,
    kernels: Mutex<HashMap<KernelHash, Arc<Code>>>,
    /// Code objects of earlier processes.
    kept: Option<Kept>,
    uploads: Uploads<Buffer>,
    /// What init programs made, for all executables of the device.
    pub(crate) prepared: Prepared<Buffer>,
    pub(crate) staging: Mutex<Staging>,
    budget: Budget,
    pub(crate) probed: OnceLock<Result<()>>,
}

/// A mutex's contents, also after a panic elsewhere: every use leaves them whole.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the driver gives the context up with this error: nothing of it works any more. Both vendors have the same numbers.
fn is_fatal(code: i32) -> bool {
    // Deinitialised; uncorrectable memory or link, a fault contained to this process; the address, launch, assertion, stack,
    // instruction and memory faults of kernels; timeout; context destroyed; unknown.
    matches!(code, 4 | 46 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 999)
}

const OUT_OF_MEMORY: i32 = 2;

impl Gpu {
    /// The device, opened at first use.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnavailable`] saying what is missing, [`ErrorKind::Device`] when it does not open.
    pub(crate) fn open(which: &Which) -> Result<Arc<Gpu>> {
        let mut opened = locked(&OPENED);
        if let Some(gpu) = opened.get(which).filter(|gpu| gpu.context.lost().is_none()) {
            return Ok(Arc::clone(gpu));
        }
        let gpu = Arc::new(Gpu::new(which)?);
        opened.insert(which.clone(), Arc::clone(&gpu));
        Ok(gpu)
    }

    /// The device, if this process has opened it and not lost it.
    pub(crate) fn opened(which: &Which) -> Option<Arc<Gpu>> {
        locked(&OPENED).get(which).filter(|gpu| gpu.context.lost().is_none()).cloned()
    }

    fn libraries(which: &Which) -> Result<(Arc<Libraries>, usize)> {
        let device = which.device;
        let vendor = match device {
            Device::Cuda => Vendor::Cuda,
            Device::Rocm => Vendor::Hip,
            _ => {
                let message = format!("{device} is served by neither CUDA nor HIP");
                return Err(Error::new(ErrorKind::DeviceUnavailable, message).with_device(device.name()));
            }
        };
        let libraries = Libraries::load(device, vendor, &which.folders)?;
        let count = Context::count(&libraries).map_err(|fault| {
            Error::new(ErrorKind::DeviceUnavailable, format!("the driver finds no GPU: {fault}"))
                .with_device(device.name())
                .with_hint(
                    "check that the GPU is visible to this process (its device files, its driver's own tool)",
                )
        })?;
        Ok((libraries, count))
    }

    /// How many GPUs the driver finds.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnavailable`] saying what is missing.
    pub(crate) fn count(which: &Which) -> Result<usize> {
        Ok(Self::libraries(which)?.1)
    }

    /// The device's context: the one that is open, or a new one, where there is none or it was lost.
    fn context(which: &Which, libraries: &Arc<Libraries>) -> std::result::Result<Arc<Context>, Fault> {
        let mut contexts = locked(&CONTEXTS);
        let of = Which { max_memory_bytes: None, ..which.clone() };
        let before = contexts.get(&of);
        if let Some(context) = before.filter(|context| context.lost().is_none()) {
            return Ok(Arc::clone(context));
        }
        let context = Context::open(libraries, which.ordinal, before.is_some())?;
        contexts.insert(of, Arc::clone(&context));
        Ok(context)
    }

    fn new(which: &Which) -> Result<Gpu> {
        let device = which.device;
        let error = |kind, message: String| Error::new(kind, message).with_device(device.name());
        let (libraries, count) = Self::libraries(which)?;
        let vendor = libraries.vendor;
        if which.ordinal >= count {
            let message = format!("there is no GPU {}, the driver has {count}", which.ordinal);
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
        tracing::debug!(%device, ordinal = which.ordinal, %machine, "opened");
        Ok(Gpu {
            which: which.clone(),
            architecture,
            max_workgroup,
            shared_bytes: shared as usize,
            kernels: Mutex::default(),
            kept: Kept::of(device.feature(), &[&machine]),
            uploads: Uploads::default(),
            prepared: Prepared::new(),
            staging: Mutex::default(),
            budget: Budget::new(which.max_memory_bytes),
            probed: OnceLock::new(),
            machine,
            context,
        })
    }

    /// An error of this device.
    pub(crate) fn error(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, message).with_device(self.which.device.name())
    }

    /// Whether the device is still there.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] with the driver's reason.
    pub(crate) fn alive(&self) -> Result<()> {
        match self.context.lost() {
            None => Ok(()),
            Some(reason) => Err(self
                .error(ErrorKind::Device, format!("the device was lost ({reason})"))
                .with_hint("compile again: the device is then opened again")),
        }
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
                self.context.lose(fault.to_string());
                return self
                    .error(ErrorKind::Device, format!("{what}: the device was lost: {fault}"))
                    .with_hint("compile again: the device is then opened again");
            }
            self.error(ErrorKind::Device, format!("{what}: {fault}"))
        })
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

    /// Waits until everything that was given is done.
    ///
    /// # Errors
    /// [`ErrorKind::Device`].
    pub(crate) fn wait(&self) -> Result<()> {
        self.alive()?;
        self.checked("waiting for the device", self.context.wait())
    }

    /// The device's copy of a weight: one for all executables that use it.
    ///
    /// # Errors
    /// Memory that cannot be had, or bytes that cannot be read.
    pub(crate) fn upload(&self, weight: &Arc<Weight>, name: &str) -> Result<Arc<Buffer>> {
        self.uploads.get(weight, |bytes| {
            let copy = Buffer::new(self, bytes.len(), &format!("parameter {name:?}"))?;
            copy.write(self, 0, bytes)?;
            Ok(copy)
        })
    }

    /// The code objects of distinct kernels, in their order; what is not there yet is compiled.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] for a kernel that the compiler rejects, and which one.
    pub(crate) fn kernels(
        &self,
        kernels: &[(KernelHash, Arc<Kernel>)],
    ) -> std::result::Result<Vec<Arc<Code>>, (usize, Error)> {
        let known: Vec<Option<Arc<Code>>> = {
            let known = locked(&self.kernels);
            kernels.iter().map(|(hash, _)| known.get(hash).cloned()).collect()
        };
        let missing: Vec<usize> = (0..kernels.len()).filter(|&at| known[at].is_none()).collect();
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(missing.len());
        let started = std::time::Instant::now();
        let images = in_parallel(threads, missing.len(), |i| self.image(&kernels[missing[i]].1));
        if !missing.is_empty() {
            let (device, count) = (self.which.device, missing.len());
            tracing::debug!(%device, count, took = ?started.elapsed(), "compiled kernels");
        }
        let mut codes = known;
        for (&at, image) in missing.iter().zip(images) {
            let (hash, kernel) = &kernels[at];
            let code = image.and_then(|image| self.load(kernel, image)).map_err(|e| (at, e))?;
            codes[at] = Some(Arc::clone(locked(&self.kernels).entry(*hash).or_insert(Arc::new(code))));
        }
        let lost = |at| (at, self.error(ErrorKind::Internal, "a kernel without a code object"));
        codes.into_iter().enumerate().map(|(at, code)| code.ok_or_else(|| lost(at))).collect()
    }

    /// How many kernels were loaded.
    pub(crate) fn kernel_count(&self) -> usize {
        locked(&self.kernels).len()
    }

    /// The code object of a kernel: what is kept of it, or what the compiler makes.
    fn image(&self, kernel: &Kernel) -> Result<Image> {
        let libraries = &self.context.libraries;
        let source = match libraries.vendor {
            Vendor::Cuda => render::cuda(kernel, ENTRY)?,
            Vendor::Hip => render::hip(kernel, ENTRY)?,
        };
        let options = compile::options(libraries.vendor, &self.architecture);
        // By all that the compiler is given; what it is itself, the folder says.
        let name =
            hash_of([source.as_str()].into_iter().chain(options.iter().map(String::as_str))).to_string();
        let kept = self.kept.as_ref().and_then(|kept| kept.load(&name));
        let is_kept = kept.is_some();
        let mut image = Image { name, source, options, is_kept, bytes: kept.unwrap_or_default() };
        if !is_kept {
            image.bytes = self.compile(kernel, &image)?;
        }
        Ok(image)
    }

    fn compile(&self, kernel: &Kernel, image: &Image) -> Result<Vec<u8>> {
        let compiled = compile::compile(&self.context.libraries, &image.options, &image.source);
        compiled.map_err(|e| self.rejected(kernel, e))
    }

    /// Loads a code object, and keeps it where that is new. One that was kept and that the driver does not take any more is
    /// made again.
    fn load(&self, kernel: &Kernel, image: Image) -> Result<Code> {
        if image.is_kept {
            match self.context.load(&image.bytes, ENTRY) {
                Ok(code) => return Ok(code),
                Err(fault) => tracing::warn!(kernel = kernel.name, %fault, "a cached kernel is not used"),
            }
        }
        let again = if image.is_kept { Some(self.compile(kernel, &image)?) } else { None };
        let bytes = again.unwrap_or(image.bytes);
        let code =
            self.checked(format_args!("kernel {:?}", kernel.name), self.context.load(&bytes, ENTRY))?;
        if let Some(kept) = &self.kept {
            kept.keep(&image.name, &bytes);
        }
        Ok(code)
    }

    fn rejected(&self, kernel: &Kernel, Rejected { fault, log }: Rejected) -> Error {
        let message = format!("kernel {:?} does not compile for {}: {fault}", kernel.name, self.architecture);
        let message = if log.is_empty() { message } else { format!("{message}: {log}") };
        // `NVRTC_ERROR_OUT_OF_MEMORY`, and `INVALID_OPTION`: it does not know the architecture.
        match fault.code {
            1 => self.out_of_memory(&message),
            5 => self
                .error(ErrorKind::Device, message)
                .with_hint("install a newer NVRTC: this one may not know the GPU"),
            _ => self.error(ErrorKind::Device, message),
        }
    }
}

/// A kernel on its way to the device.
struct Image {
    /// What it is kept by.
    name: String,
    source: String,
    options: Vec<String>,
    bytes: Vec<u8>,
    is_kept: bool,
}

/// What every kernel's function is called.
const ENTRY: &str = "rlx_kernel";
