//! The shim's functions, and where the shim is.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use libloading::Library;
use rlx_driver::Device;
use rlx_ir::{Error, ErrorKind, Result};

use crate::program::Codes;

/// What the shim is called on this system.
pub const SHIM: &str = if cfg!(target_os = "macos") {
    "librlx_mlx.dylib"
} else if cfg!(windows) {
    "rlx_mlx.dll"
} else {
    "librlx_mlx.so"
};

/// The interface that this crate speaks; `RLX_MLX_ABI` of the shim's header.
pub(crate) const ABI: u32 = 1;

const HINT: &str = "pip install mlx (on Linux mlx[cpu]), build the shim with cargo xtask mlx, and name its folder in RLX_LIBRARY_PATH";

/// The text of an error, as the shim writes it.
#[repr(C)]
pub(crate) struct RawError {
    text: [c_char; 1024],
}

/// What was loaded, as the shim says.
#[repr(C)]
struct RawInfo {
    version: [c_char; 64],
    gpu: u32,
    built_for: u32,
    memory: u64,
}

/// An array of the shim's.
#[repr(C)]
pub(crate) struct RawArray {
    _opaque: [u8; 0],
}

/// A program of the shim's.
#[repr(C)]
pub(crate) struct RawProgram {
    _opaque: [u8; 0],
}

type ArrayNew = unsafe extern "C" fn(
    u32,
    *const i64,
    usize,
    *const c_void,
    usize,
    u32,
    *mut *mut RawArray,
    *mut RawError,
) -> u32;
type ArrayData = unsafe extern "C" fn(*const RawArray, *mut *const c_void, *mut usize, *mut RawError) -> u32;
type ProgramNew = unsafe extern "C" fn(*const i64, usize, *mut *mut RawProgram, *mut RawError) -> u32;
type ProgramRun = unsafe extern "C" fn(
    *mut RawProgram,
    *const *mut RawArray,
    *const u8,
    usize,
    *mut *mut RawArray,
    usize,
    *mut RawError,
) -> u32;

/// The shim, loaded: its functions, by the header `shim/rlx_mlx.h`.
pub(crate) struct Shim {
    pub(crate) array_new: ArrayNew,
    pub(crate) array_free: unsafe extern "C" fn(*mut RawArray),
    pub(crate) array_data: ArrayData,
    pub(crate) program_new: ProgramNew,
    pub(crate) program_free: unsafe extern "C" fn(*mut RawProgram),
    pub(crate) program_run: ProgramRun,
    pub(crate) memory: unsafe extern "C" fn() -> usize,
    pub(crate) codes: Codes,
    /// MLX's version.
    pub(crate) version: String,
    /// Whether it computes on a GPU.
    pub(crate) gpu: bool,
    /// The machine's memory in bytes: more than that, nothing may take.
    pub(crate) memory_bytes: u64,
    /// Keeps the functions where they are.
    _file: Library,
}

/// The shims that were loaded, by the folders that were named; they stay for the process, since threads of MLX's run on.
type Loaded = Vec<(Vec<PathBuf>, Arc<Shim>)>;

static LOADED: LazyLock<Mutex<Loaded>> = LazyLock::new(Mutex::default);

fn unavailable(message: String) -> Error {
    Error::new(ErrorKind::DeviceUnavailable, message).with_device(Device::Mlx.name()).with_hint(HINT)
}

/// What the shim reports as an error of the device.
pub(crate) fn failed(status: u32, error: &RawError) -> Error {
    // SAFETY: the shim ends its text with 0 within its size; where it wrote nothing, it is all 0.
    let text = unsafe { CStr::from_ptr(error.text.as_ptr()) }.to_string_lossy();
    let kind = match status {
        1 => ErrorKind::Internal,
        2 => ErrorKind::OutOfMemory,
        _ => ErrorKind::Device,
    };
    Error::new(kind, format!("MLX: {}", text.trim())).with_device(Device::Mlx.name())
}

impl RawError {
    pub(crate) fn none() -> Self {
        RawError { text: [0; 1024] }
    }
}

impl Shim {
    /// The shim, loaded at first use.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceUnavailable`] naming what is missing, or what does not fit, and how to get it.
    pub(crate) fn load(folders: &[PathBuf]) -> Result<Arc<Shim>> {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = loaded.iter().find(|(of, _)| of == folders) {
            return Ok(Arc::clone(known));
        }
        let shim = Arc::new(Shim::of(open(folders)?)?);
        loaded.push((folders.to_vec(), Arc::clone(&shim)));
        Ok(shim)
    }

    fn of(file: Library) -> Result<Shim> {
        // SAFETY: the header declares it so, in every version of the interface.
        let abi = unsafe { function::<unsafe extern "C" fn() -> u32>(&file, "rlx_mlx_abi") }?;
        // SAFETY: it takes nothing, and gives a number.
        let abi = unsafe { abi() };
        if abi != ABI {
            return Err(unavailable(format!("{SHIM} has interface {abi}, and this RLX needs {ABI}")));
        }
        type Operation = unsafe extern "C" fn(*const c_char) -> i64;
        type Open = unsafe extern "C" fn(*mut RawInfo, *mut RawError) -> u32;
        // SAFETY: with this interface, the header declares these types.
        let (operation, opens) = unsafe {
            (function::<Operation>(&file, "rlx_mlx_operation")?, function::<Open>(&file, "rlx_mlx_open")?)
        };
        let number = |name: &str| {
            // SAFETY: the name ends in 0 and outlives the call.
            CString::new(name).map_or(-1, |name| unsafe { operation(name.as_ptr()) })
        };
        let codes =
            Codes::of(number).map_err(|name| unavailable(format!("{SHIM} has no operation \"{name}\"")))?;
        let (mut info, mut error) =
            (RawInfo { version: [0; 64], gpu: 0, built_for: 0, memory: 0 }, RawError::none());
        // SAFETY: both are of the header's types, and outlive the call.
        let status = unsafe { opens(&mut info, &mut error) };
        if status != 0 {
            let cause = failed(status, &error);
            return Err(unavailable(cause.message().to_owned()));
        }
        // SAFETY: the shim ends its text with 0 within its size.
        let version = unsafe { CStr::from_ptr(info.version.as_ptr()) }.to_string_lossy().into_owned();
        // SAFETY: with this interface, the header declares these types.
        unsafe {
            Ok(Shim {
                array_new: function(&file, "rlx_mlx_array_new")?,
                array_free: function(&file, "rlx_mlx_array_free")?,
                array_data: function(&file, "rlx_mlx_array_data")?,
                program_new: function(&file, "rlx_mlx_program_new")?,
                program_free: function(&file, "rlx_mlx_program_free")?,
                program_run: function(&file, "rlx_mlx_program_run")?,
                memory: function(&file, "rlx_mlx_memory")?,
                codes,
                version,
                gpu: info.gpu != 0,
                memory_bytes: if info.memory == 0 { u64::MAX } else { info.memory },
                _file: file,
            })
        }
    }
}

/// A function of the shim's.
///
/// # Safety
/// The header declares the function of this name with type `F`.
unsafe fn function<F: Copy>(file: &Library, name: &str) -> Result<F> {
    // SAFETY: the caller's promise; the library is kept as long as the function.
    let found = unsafe { file.get::<F>(name.as_bytes()) };
    found.map(|f| *f).map_err(|_| unavailable(format!("{SHIM} has no function {name}")))
}

fn open(folders: &[PathBuf]) -> Result<Library> {
    let beside = std::env::current_exe().ok().and_then(|program| program.parent().map(Path::to_owned));
    let named = folders.iter().cloned().chain(beside).map(|folder| folder.join(SHIM));
    let mut broken = None;
    // By its name alone, a file is looked for where the system's loader looks.
    for path in named.filter(|path| path.exists()).chain([PathBuf::from(SHIM)]) {
        // SAFETY: the shim by its own name, in folders that the system or the user chose; at loading, it and MLX run their own
        // set-up alone, which is safe at any time.
        match unsafe { Library::new(&path) } {
            Ok(library) => return Ok(library),
            Err(e) if path.is_absolute() => broken = Some(format!("{}: {e}", path.display())),
            Err(e) => tracing::debug!(path = %path.display(), error = %e, "not loaded"),
        }
    }
    Err(unavailable(match broken {
        Some(why) => why.replace('\n', " "),
        None => format!("the shim over MLX ({SHIM}) is missing"),
    }))
}
