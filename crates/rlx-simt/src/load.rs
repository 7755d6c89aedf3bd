//! Where the vendors' libraries are, and what to say where they are not.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use libloading::Library;
use rlx_driver::Device;
use rlx_ir::{Error, ErrorKind, Result};

use crate::table::{Blas, Compiler, Driver, Tensors, Vendor};

/// A library: what it is called, and how to get it.
struct Wanted {
    /// For people.
    name: &'static str,
    /// File names, the newest version first.
    files: &'static [&'static str],
    /// How the names of files begin that the library loads by their names alone, so that the loader does not find them beside it.
    beside: Option<&'static str>,
    hint: &'static str,
}

impl Wanted {
    /// The error for a library without function `name`.
    fn lacks(&self, device: Device, name: &str) -> Error {
        let message = format!("{} is too old: it has no {name}", self.name);
        Error::new(ErrorKind::DeviceUnavailable, message).with_device(device.name()).with_hint(self.hint)
    }
}

const CUDA_DRIVER: Wanted = Wanted {
    name: "NVIDIA's driver",
    files: if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "libcuda.so"] },
    beside: None,
    hint: "install NVIDIA's driver (Debian: nvidia-driver; containers: --gpus all)",
};

const NVRTC: Wanted = Wanted {
    name: "NVRTC",
    files: if cfg!(windows) {
        &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"]
    } else {
        &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"]
    },
    beside: if cfg!(windows) { None } else { Some("libnvrtc-builtins.so.") },
    hint: "install the CUDA toolkit, or NVRTC alone (pip install nvidia-cuda-nvrtc), and name its folder in RLX_LIBRARY_PATH",
};

const HIP_DRIVER: Wanted = Wanted {
    name: "AMD's HIP runtime",
    files: if cfg!(windows) {
        &["amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"]
    } else {
        &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"]
    },
    beside: None,
    hint: "install ROCm (Debian: libamdhip64-5), or name the folder of its libraries in RLX_LIBRARY_PATH",
};

const HIPRTC: Wanted = Wanted {
    name: "hiprtc",
    files: if cfg!(windows) {
        &["hiprtc0700.dll", "hiprtc0604.dll", "hiprtc.dll"]
    } else {
        &["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so"]
    },
    beside: None,
    hint: "install ROCm's runtime compiler (Debian: libhiprtc-builtins5), or name its folder in RLX_LIBRARY_PATH",
};

const CUBLASLT: Wanted = Wanted {
    name: "cuBLASLt",
    files: if cfg!(windows) {
        &["cublasLt64_13.dll", "cublasLt64_12.dll"]
    } else {
        &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"]
    },
    beside: None,
    hint: "install the CUDA toolkit, or cuBLAS alone (pip install nvidia-cublas), and name its folder in RLX_LIBRARY_PATH",
};

const HIPBLASLT: Wanted = Wanted {
    name: "hipBLASLt",
    files: if cfg!(windows) {
        &["libhipblaslt.dll", "hipblaslt.dll"]
    } else {
        &["libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"]
    },
    beside: None,
    hint: "install hipBLASLt (a package of ROCm 6 and later), or name its folder in RLX_LIBRARY_PATH",
};

/// A vendor's library for matmuls.
pub(crate) struct BlasLibrary {
    pub(crate) vendor: Vendor,
    pub(crate) functions: Blas,
}

impl BlasLibrary {
    /// What it is called.
    pub(crate) fn name(&self) -> &'static str {
        Self::wanted(self.vendor).name
    }

    fn wanted(vendor: Vendor) -> Wanted {
        match vendor {
            Vendor::Cuda => CUBLASLT,
            Vendor::Hip => HIPBLASLT,
        }
    }

    fn load(device: Device, vendor: Vendor, folders: &[PathBuf]) -> Result<Arc<BlasLibrary>> {
        let wanted = Self::wanted(vendor);
        let file = open(device, vendor, &wanted, folders)?;
        let functions = Blas::load(file, vendor).map_err(|name| wanted.lacks(device, name))?;
        Ok(Arc::new(BlasLibrary { vendor, functions }))
    }
}

/// A vendor's driver and compiler.
pub(crate) struct Libraries {
    pub(crate) vendor: Vendor,
    pub(crate) driver: Driver,
    pub(crate) compiler: Compiler,
    /// Where the vendor's driver has them.
    pub(crate) tensors: Option<Tensors>,
    device: Device,
    folders: Vec<PathBuf>,
    blas: OnceLock<Result<Arc<BlasLibrary>>>,
}

/// The libraries that were loaded, by vendor and folders.
type Loaded = Vec<(Vendor, Vec<PathBuf>, Arc<Libraries>)>;

static LOADED: LazyLock<Mutex<Loaded>> = LazyLock::new(Mutex::default);

/// Where a vendor's libraries are installed, apart from the loader's own folders.
fn usual(vendor: Vendor) -> &'static [&'static str] {
    match vendor {
        _ if cfg!(windows) => &[],
        Vendor::Cuda => &["/usr/local/cuda/lib64", "/usr/lib/wsl/lib"],
        Vendor::Hip => &["/opt/rocm/lib"],
    }
}

impl Libraries {
    /// The libraries that serve `device`, loaded at first use.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnavailable`] naming what is missing and how to get it.
    pub(crate) fn load(device: Device, vendor: Vendor, folders: &[PathBuf]) -> Result<Arc<Libraries>> {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((.., known)) = loaded.iter().find(|(v, f, _)| *v == vendor && f == folders) {
            return Ok(Arc::clone(known));
        }
        let [driver, compiler] = match vendor {
            Vendor::Cuda => [CUDA_DRIVER, NVRTC],
            Vendor::Hip => [HIP_DRIVER, HIPRTC],
        };
        let [driver_file, compiler_file] =
            [open(device, vendor, &driver, folders)?, open(device, vendor, &compiler, folders)?];
        let libraries = Arc::new(Libraries {
            vendor,
            driver: Driver::load(driver_file, vendor).map_err(|name| driver.lacks(device, name))?,
            tensors: match vendor {
                Vendor::Cuda => Tensors::load(driver_file, vendor).ok(),
                Vendor::Hip => None,
            },
            compiler: Compiler::load(compiler_file, vendor).map_err(|name| compiler.lacks(device, name))?,
            device,
            folders: folders.to_vec(),
            blas: OnceLock::new(),
        });
        loaded.push((vendor, folders.to_vec(), Arc::clone(&libraries)));
        Ok(libraries)
    }

    /// The library for matmuls, loaded at first use.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnavailable`] naming what is missing and how to get it.
    pub(crate) fn blas(&self) -> Result<&Arc<BlasLibrary>> {
        let load = || BlasLibrary::load(self.device, self.vendor, &self.folders);
        let loaded = self.blas.get_or_init(|| {
            load().inspect_err(|missing| {
                tracing::warn!(device = %self.device, %missing, "matmuls run on the device's own kernels");
            })
        });
        loaded.as_ref().map_err(Error::clone)
    }
}

/// Loads a vendor's library, for the process: also where another one turns out to be missing. What a library brings along may not be loaded twice (LLVM, which HIP's
/// driver needs, ends the process then), and code of theirs may run when the process ends.
fn open(device: Device, vendor: Vendor, wanted: &Wanted, folders: &[PathBuf]) -> Result<&'static Library> {
    let within = |folder: &Path| wanted.files.iter().map(|file| folder.join(file)).collect::<Vec<_>>();
    let named = folders.iter().flat_map(|folder| within(folder));
    let usual = usual(vendor).iter().flat_map(|folder| within(Path::new(folder)));
    // By its name alone, a file is looked for where the system's loader looks.
    let known = wanted.files.iter().map(PathBuf::from);
    for path in named.filter(|path| path.exists()).chain(known).chain(usual.filter(|path| path.exists())) {
        load_beside(&path, wanted.beside);
        // SAFETY: these are the vendors' libraries by their own names, in folders that the system or the user chose; they run
        // no code at loading but their own set-up, which is safe at any time.
        match unsafe { Library::new(&path) } {
            Ok(library) => return Ok(Box::leak(Box::new(library))),
            Err(e) => tracing::debug!(path = %path.display(), error = %e, "not loaded"),
        }
    }
    let message = format!("{} ({}) is missing", wanted.name, wanted.files[0]);
    Err(Error::new(ErrorKind::DeviceUnavailable, message).with_device(device.name()).with_hint(wanted.hint))
}

/// Loads the files beside a library whose names begin so, and leaves them loaded: the system's loader then has them when the library asks for them. Where there
/// are none, they are where the loader looks, or the library says that they are missing.
fn load_beside(library: &Path, prefix: Option<&str>) {
    let Some((prefix, folder)) = prefix.zip(library.parent()) else { return };
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for path in files.filter(|f| f.file_name().to_string_lossy().starts_with(prefix)).map(|f| f.path()) {
        // SAFETY: as the library itself, of whose package it is part.
        match unsafe { Library::new(&path) } {
            Ok(file) => std::mem::forget(file),
            Err(e) => tracing::debug!(path = %path.display(), error = %e, "not loaded"),
        }
    }
}
