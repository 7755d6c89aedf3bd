//! The vendors' functions that this crate calls: one table for the driver, one for the compiler, one for the library for matmuls, each row
//! with the name that CUDA and HIP have for a function, and its signature. Loading, calling with a check of the status, and the list that tests hold
//! against the vendors' headers are all made of the rows.
//!
//! A vendor that has no such function has `-` in its place; calling it there is an error like any other.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;

use libloading::Library;

/// Whose functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Vendor {
    /// NVIDIA: CUDA's driver API, NVRTC.
    Cuda,
    /// AMD: HIP, hiprtc.
    Hip,
}

/// What every function returns; 0 is success.
pub(crate) type Status = c_int;
/// An address in a device's memory.
pub(crate) type DevicePtr = u64;
/// Something of the driver's: a context, stream, event, module, function or graph.
pub(crate) type Handle = *mut c_void;

/// A function that reported an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) function: &'static str,
    pub(crate) code: Status,
    /// What the vendor says of the code; filled in where it can be asked.
    pub(crate) meaning: String,
    /// What follows from it; told with the meaning.
    pub(crate) class: Class,
}

/// What follows from a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Class {
    /// The call did nothing.
    #[default]
    Plain,
    /// There was no memory for it.
    OutOfMemory,
    /// The driver gives the context up: nothing of it works any more.
    Fatal,
}

impl Class {
    /// Of a code of the driver's. Both vendors have the same numbers.
    fn of_driver(code: Status) -> Class {
        match code {
            2 => Class::OutOfMemory,
            // Deinitialised; uncorrectable memory or link, a fault contained to this process; the address, launch, assertion, stack,
            // instruction and memory faults of kernels; timeout; context destroyed; unknown.
            4 | 46 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 999 => Class::Fatal,
            _ => Class::Plain,
        }
    }
}

impl Fault {
    fn of(function: &'static str, code: Status) -> Fault {
        Fault { function, code, meaning: String::new(), class: Class::Plain }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} reported {}", self.function, self.code)?;
        if !self.meaning.is_empty() {
            write!(f, " ({})", self.meaning)?;
        }
        Ok(())
    }
}

/// A row of a table as tests see it.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// CUDA's name, or `-`.
    pub cuda: &'static str,
    /// HIP's name, or `-`.
    pub hip: &'static str,
    /// The types of the arguments.
    pub arguments: &'static [&'static str],
}

impl Row {
    /// The vendor's name for the function, where it has it.
    pub fn name(&self, vendor: Vendor) -> Option<&'static str> {
        let name = match vendor {
            Vendor::Cuda => self.cuda,
            Vendor::Hip => self.hip,
        };
        (name != "-").then_some(name)
    }
}

macro_rules! functions {
    (
        $(#[$doc:meta])* $table:ident, $rows:ident;
        $( $name:ident = $cuda:literal, $hip:literal ($($arg:ident: $ty:ty),*); )*
    ) => {
        $(#[$doc])*
        pub(crate) struct $table {
            vendor: Vendor,
            $( $name: Option<unsafe extern "C" fn($($ty),*) -> Status>, )*
        }

        /// The rows.
        pub const $rows: &[Row] =
            &[$( Row { cuda: $cuda, hip: $hip, arguments: &[$(stringify!($ty)),*] } ),*];

        impl $table {
            /// Finds every function of the vendor in a library.
            ///
            /// # Errors
            /// The name of one that is missing.
            pub(crate) fn load(library: &Library, vendor: Vendor) -> Result<Self, &'static str> {
                Ok($table { vendor, $( $name: find(library, vendor, $cuda, $hip)?, )* })
            }

            $(
                /// Calls the function of this name and checks its status.
                ///
                /// # Safety
                /// What the vendor's documentation asks of the arguments.
                #[allow(clippy::too_many_arguments, reason = "they are the vendor's")]
                pub(crate) unsafe fn $name(&self, $($arg: $ty),*) -> Result<(), Fault> {
                    let function = if self.vendor == Vendor::Cuda { $cuda } else { $hip };
                    let absent = || Fault { meaning: "the vendor has no such function".into(), ..Fault::of(function, -1) };
                    let call = self.$name.ok_or_else(absent)?;
                    // SAFETY: the signature is the vendor's (tests compare the rows with the headers), and the caller answers
                    // for the arguments.
                    match unsafe { call($($arg),*) } {
                        0 => Ok(()),
                        code => Err(Fault::of(function, code)),
                    }
                }
            )*
        }
    };
}

/// A function by the vendor's name for it; `None` where the vendor has none.
fn find<F: Copy>(
    library: &Library,
    vendor: Vendor,
    cuda: &'static str,
    hip: &'static str,
) -> Result<Option<F>, &'static str> {
    let name = if vendor == Vendor::Cuda { cuda } else { hip };
    if name == "-" {
        return Ok(None);
    }
    // SAFETY: the rows of the tables give each name its signature.
    let symbol = unsafe { library.get::<F>(name.as_bytes()) };
    symbol.map(|symbol| Some(*symbol)).map_err(|_| name)
}

functions! {
    /// The driver: CUDA's driver API, or HIP.
    Driver, DRIVER;
    init = "cuInit", "hipInit" (flags: c_uint);
    driver_version = "cuDriverGetVersion", "hipDriverGetVersion" (version: *mut c_int);
    device_count = "cuDeviceGetCount", "hipGetDeviceCount" (count: *mut c_int);
    device_get = "cuDeviceGet", "hipDeviceGet" (device: *mut c_int, ordinal: c_int);
    device_name = "cuDeviceGetName", "hipDeviceGetName" (name: *mut c_char, len: c_int, device: c_int);
    device_attribute = "cuDeviceGetAttribute", "hipDeviceGetAttribute" (value: *mut c_int, attribute: c_int, device: c_int);
    context_retain = "cuDevicePrimaryCtxRetain", "-" (context: *mut Handle, device: c_int);
    context_release = "cuDevicePrimaryCtxRelease_v2", "-" (device: c_int);
    context_reset = "cuDevicePrimaryCtxReset_v2", "-" (device: c_int);
    context_enter = "cuCtxSetCurrent", "-" (context: Handle);
    device_enter = "-", "hipSetDevice" (device: c_int);
    device_reset = "-", "hipDeviceReset" ();
    allocate = "cuMemAlloc_v2", "hipMalloc" (memory: *mut DevicePtr, bytes: usize);
    free = "cuMemFree_v2", "hipFree" (memory: DevicePtr);
    host_allocate = "cuMemHostAlloc", "hipHostMalloc" (memory: *mut *mut c_void, bytes: usize, flags: c_uint);
    host_free = "cuMemFreeHost", "hipHostFree" (memory: *mut c_void);
    to_device = "cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync" (to: DevicePtr, from: *const c_void, bytes: usize, stream: Handle);
    to_host = "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync" (to: *mut c_void, from: DevicePtr, bytes: usize, stream: Handle);
    on_device = "cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync" (to: DevicePtr, from: DevicePtr, bytes: usize, stream: Handle);
    fill = "cuMemsetD8Async", "hipMemsetD8Async" (to: DevicePtr, value: u8, bytes: usize, stream: Handle);
    stream_create = "cuStreamCreate", "hipStreamCreateWithFlags" (stream: *mut Handle, flags: c_uint);
    stream_destroy = "cuStreamDestroy_v2", "hipStreamDestroy" (stream: Handle);
    stream_wait = "cuStreamSynchronize", "hipStreamSynchronize" (stream: Handle);
    event_create = "cuEventCreate", "hipEventCreateWithFlags" (event: *mut Handle, flags: c_uint);
    event_destroy = "cuEventDestroy_v2", "hipEventDestroy" (event: Handle);
    event_record = "cuEventRecord", "hipEventRecord" (event: Handle, stream: Handle);
    event_wait = "cuEventSynchronize", "hipEventSynchronize" (event: Handle);
    event_elapsed = "cuEventElapsedTime", "hipEventElapsedTime" (millis: *mut f32, from: Handle, to: Handle);
    module_load = "cuModuleLoadData", "hipModuleLoadData" (module: *mut Handle, image: *const c_void);
    module_unload = "cuModuleUnload", "hipModuleUnload" (module: Handle);
    module_function = "cuModuleGetFunction", "hipModuleGetFunction" (function: *mut Handle, module: Handle, name: *const c_char);
    function_set = "cuFuncSetAttribute", "-" (function: Handle, attribute: c_int, value: c_int);
    launch = "cuLaunchKernel", "hipModuleLaunchKernel" (
        function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared_bytes: c_uint, stream: Handle, arguments: *mut *mut c_void, extra: *mut *mut c_void);
    capture_begin = "cuStreamBeginCapture_v2", "hipStreamBeginCapture" (stream: Handle, mode: c_int);
    capture_end = "cuStreamEndCapture", "hipStreamEndCapture" (stream: Handle, graph: *mut Handle);
    graph_instantiate = "cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags" (executable: *mut Handle, graph: Handle, flags: u64);
    graph_launch = "cuGraphLaunch", "hipGraphLaunch" (executable: Handle, stream: Handle);
    graph_destroy = "cuGraphDestroy", "hipGraphDestroy" (graph: Handle);
    graph_exec_destroy = "cuGraphExecDestroy", "hipGraphExecDestroy" (executable: Handle);
    error_name = "cuGetErrorName", "hipDrvGetErrorName" (code: Status, name: *mut *const c_char);
    error_text = "cuGetErrorString", "hipDrvGetErrorString" (code: Status, text: *mut *const c_char);
}

functions! {
    /// What drivers have had since CUDA 12: tensor maps. Where it is missing, nothing is copied by them.
    Tensors, TENSORS;
    encode = "cuTensorMapEncodeTiled", "-" (
        map: *mut c_void, dtype: c_int, rank: c_uint, address: *mut c_void, sizes: *const u64, strides: *const u64,
        box_sizes: *const u32, steps: *const u32, interleave: c_int, swizzle: c_int, promotion: c_int, fill: c_int);
    encode_windows = "cuTensorMapEncodeIm2col", "-" (
        map: *mut c_void, dtype: c_int, rank: c_uint, address: *mut c_void, sizes: *const u64, strides: *const u64,
        lower: *const c_int, upper: *const c_int, channels: c_uint, places: c_uint, steps: *const u32, interleave: c_int,
        swizzle: c_int, promotion: c_int, fill: c_int);
}

functions! {
    /// The compiler: NVRTC, or hiprtc.
    Compiler, COMPILER;
    version = "nvrtcVersion", "hiprtcVersion" (major: *mut c_int, minor: *mut c_int);
    create = "nvrtcCreateProgram", "hiprtcCreateProgram" (
        program: *mut Handle, source: *const c_char, name: *const c_char, headers: c_int, sources: *const *const c_char,
        names: *const *const c_char);
    compile = "nvrtcCompileProgram", "hiprtcCompileProgram" (program: Handle, count: c_int, options: *const *const c_char);
    log_size = "nvrtcGetProgramLogSize", "hiprtcGetProgramLogSize" (program: Handle, bytes: *mut usize);
    log = "nvrtcGetProgramLog", "hiprtcGetProgramLog" (program: Handle, text: *mut c_char);
    code_size = "nvrtcGetCUBINSize", "hiprtcGetCodeSize" (program: Handle, bytes: *mut usize);
    code = "nvrtcGetCUBIN", "hiprtcGetCode" (program: Handle, code: *mut c_char);
    destroy = "nvrtcDestroyProgram", "hiprtcDestroyProgram" (program: *mut Handle);
}

functions! {
    /// The library for matmuls: cuBLASLt, or hipBLASLt. It has numbers of its own for errors.
    Blas, BLAS;
    create = "cublasLtCreate", "hipblasLtCreate" (handle: *mut Handle);
    destroy = "cublasLtDestroy", "hipblasLtDestroy" (handle: Handle);
    matmul_create = "cublasLtMatmulDescCreate", "hipblasLtMatmulDescCreate" (matmul: *mut Handle, compute: c_int, scale: c_int);
    matmul_set = "cublasLtMatmulDescSetAttribute", "hipblasLtMatmulDescSetAttribute" (
        matmul: Handle, attribute: c_int, value: *const c_void, bytes: usize);
    matmul_destroy = "cublasLtMatmulDescDestroy", "hipblasLtMatmulDescDestroy" (matmul: Handle);
    layout_create = "cublasLtMatrixLayoutCreate", "hipblasLtMatrixLayoutCreate" (
        layout: *mut Handle, element: c_int, rows: u64, columns: u64, leading: i64);
    layout_set = "cublasLtMatrixLayoutSetAttribute", "hipblasLtMatrixLayoutSetAttribute" (
        layout: Handle, attribute: c_int, value: *const c_void, bytes: usize);
    layout_destroy = "cublasLtMatrixLayoutDestroy", "hipblasLtMatrixLayoutDestroy" (layout: Handle);
    preference_create = "cublasLtMatmulPreferenceCreate", "hipblasLtMatmulPreferenceCreate" (preference: *mut Handle);
    preference_set = "cublasLtMatmulPreferenceSetAttribute", "hipblasLtMatmulPreferenceSetAttribute" (
        preference: Handle, attribute: c_int, value: *const c_void, bytes: usize);
    preference_destroy = "cublasLtMatmulPreferenceDestroy", "hipblasLtMatmulPreferenceDestroy" (preference: Handle);
    heuristic = "cublasLtMatmulAlgoGetHeuristic", "hipblasLtMatmulAlgoGetHeuristic" (
        handle: Handle, matmul: Handle, a: Handle, b: Handle, c: Handle, d: Handle, preference: Handle, most: c_int,
        found: *mut c_void, count: *mut c_int);
    matmul = "cublasLtMatmul", "hipblasLtMatmul" (
        handle: Handle, matmul: Handle, alpha: *const c_void, a: DevicePtr, a_layout: Handle, b: DevicePtr, b_layout: Handle,
        beta: *const c_void, c: DevicePtr, c_layout: Handle, d: DevicePtr, d_layout: Handle, algorithm: *const c_void,
        workspace: DevicePtr, bytes: usize, stream: Handle);
}

impl Driver {
    /// The same fault with the vendor's name and text for its code, and what follows from it. One that was explained stays as it is.
    pub(crate) fn explained(&self, fault: Fault) -> Fault {
        if !fault.meaning.is_empty() {
            return fault;
        }
        let fault = Fault { class: Class::of_driver(fault.code), ..fault };
        let read = |text: *const c_char| {
            // SAFETY: the drivers give a static, terminated string, or null.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        let (mut name, mut text) = (std::ptr::null(), std::ptr::null());
        // SAFETY: both pointers are written, or left null.
        let _ = unsafe { self.error_name(fault.code, &mut name).and(self.error_text(fault.code, &mut text)) };
        let parts: Vec<String> =
            [read(name), read(text)].into_iter().flatten().filter(|t| !t.is_empty()).collect();
        if parts.is_empty() { fault } else { Fault { meaning: parts.join(": "), ..fault } }
    }
}
