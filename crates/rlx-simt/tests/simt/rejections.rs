//! What the fake driver rejects, for both vendors: so that a test that passes on it says something.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use rlx_ir::DType;
use rlx_tile::Arch;
use rlx_tile::schedule::{Matmul, large_tilings, matmul};

use crate::common::{Fake, second_gpu};

pub type Handle = *mut c_void;

/// The functions that are called here, by CUDA's or HIP's names.
pub struct Driver {
    pub hip: bool,
}

/// Calls a function of the fake driver by the vendor's name for it.
macro_rules! call {
    ($driver:expr, $cuda:literal, $hip:literal, ($($ty:ty),*) $($arg:expr),*) => {{
        let name: &[u8] = if $driver.hip { $hip } else { $cuda };
        // SAFETY: the fake driver has the vendors' signatures.
        let function = unsafe { Fake::get().0.get::<unsafe extern "C" fn($($ty),*) -> c_int>(name) }.expect("a function");
        // SAFETY: pointers are to variables of this test.
        unsafe { function($($arg),*) }
    }};
}

pub(crate) use call;

const INVALID_VALUE: c_int = 1;
const INVALID_IMAGE: c_int = 200;
const INVALID_CONTEXT: c_int = 201;
const INVALID_HANDLE: c_int = 400;
const ILLEGAL_STATE: c_int = 401;
const NOT_FOUND: c_int = 500;
const ILLEGAL_ADDRESS: c_int = 700;
const OUT_OF_RESOURCES: c_int = 701;

/// The fake GPU that only calls without the runtime use: what the runtime opened would not outlive a reset.
pub const LAST: c_int = 6;

/// The first parameter of kernels whose uniforms are in memory, and of those that have four of them by value, with what declares its type.
const IN_MEMORY: (&str, &str) = ("", "int* __restrict__");
const BY_VALUE: (&str, &str) = (
    "struct Uniforms { int of[4]; __device__ __forceinline__ int operator[](int i) const { return of[i]; } };\n",
    "Uniforms",
);

/// A kernel that doubles `u[0]` elements.
fn twice((declared, parameter): (&str, &str)) -> String {
    format!(
        "{declared}extern \"C\" __global__ void __launch_bounds__(64) twice(const {parameter} u,
    const float* __restrict__ b0 /* x */,
    float* __restrict__ b1 /* y */) {{
  const int v0 = u[0];
  const int v1 = (int)threadIdx.x;
  const bool v2 = (v1 < v0);
  if (v2) {{
    const float v3 = b0[v1];
    const float v4 = (v3 + v3);
    b1[v1] = v4;
  }}
}}
"
    )
}

impl Driver {
    pub fn both() -> [Driver; 2] {
        let drivers = [Driver { hip: false }, Driver { hip: true }];
        for driver in &drivers {
            assert_eq!(call!(driver, b"cuInit", b"hipInit", (c_uint) 0), 0);
        }
        drivers
    }

    /// Makes a device current in this thread.
    pub fn enter(&self, device: c_int) {
        if self.hip {
            assert_eq!(call!(self, b"-", b"hipSetDevice", (c_int) device), 0);
            return;
        }
        let mut context = null_mut();
        assert_eq!(
            call!(self, b"cuDevicePrimaryCtxRetain", b"-", (*mut Handle, c_int) &mut context, device),
            0
        );
        assert_eq!(call!(self, b"cuCtxSetCurrent", b"-", (Handle) context), 0);
    }

    /// Drops what is left of a device, so that it works again.
    pub fn reset(&self, device: c_int) {
        let done = if self.hip {
            call!(self, b"-", b"hipDeviceReset", ())
        } else {
            call!(self, b"cuDevicePrimaryCtxReset_v2", b"-", (c_int) device)
        };
        assert_eq!(done, 0);
        self.enter(device);
    }

    pub fn allocate(&self, bytes: usize) -> u64 {
        let mut at = 0;
        assert_eq!(call!(self, b"cuMemAlloc_v2", b"hipMalloc", (*mut u64, usize) &mut at, bytes), 0);
        at
    }

    pub fn free(&self, at: u64) -> c_int {
        call!(self, b"cuMemFree_v2", b"hipFree", (u64) at)
    }

    pub fn pin(&self, bytes: usize) -> Handle {
        let mut at = null_mut();
        let done =
            call!(self, b"cuMemHostAlloc", b"hipHostMalloc", (*mut Handle, usize, c_uint) &mut at, bytes, 0);
        assert_eq!(done, 0);
        at
    }

    fn unpin(&self, at: Handle) -> c_int {
        call!(self, b"cuMemFreeHost", b"hipHostFree", (Handle) at)
    }

    pub fn stream(&self) -> Handle {
        let mut stream = null_mut();
        let done =
            call!(self, b"cuStreamCreate", b"hipStreamCreateWithFlags", (*mut Handle, c_uint) &mut stream, 1);
        assert_eq!(done, 0);
        stream
    }

    pub fn wait(&self, stream: Handle) -> c_int {
        call!(self, b"cuStreamSynchronize", b"hipStreamSynchronize", (Handle) stream)
    }

    pub fn to_device(&self, to: u64, from: *const c_void, bytes: usize, stream: Handle) -> c_int {
        call!(self, b"cuMemcpyHtoDAsync_v2", b"hipMemcpyHtoDAsync", (u64, *const c_void, usize, Handle) to, from, bytes, stream)
    }

    pub fn to_host(&self, to: Handle, from: u64, bytes: usize, stream: Handle) -> c_int {
        call!(self, b"cuMemcpyDtoHAsync_v2", b"hipMemcpyDtoHAsync", (Handle, u64, usize, Handle) to, from, bytes, stream)
    }

    fn fill(&self, to: u64, bytes: usize, stream: Handle) -> c_int {
        call!(self, b"cuMemsetD8Async", b"hipMemsetD8Async", (u64, u8, usize, Handle) to, 7, bytes, stream)
    }

    /// The code object of a source.
    fn compile(&self, source: &str) -> Result<Vec<u8>, String> {
        let source = CString::new(source).unwrap();
        let (mut program, mut bytes) = (null_mut(), 0usize);
        type Names = *const *const c_char;
        let done = call!(self, b"nvrtcCreateProgram", b"hiprtcCreateProgram",
            (*mut Handle, *const c_char, *const c_char, c_int, Names, Names)
            &mut program, source.as_ptr(), c"k".as_ptr(), 0, std::ptr::null(), std::ptr::null());
        assert_eq!(done, 0);
        let compiled = call!(self, b"nvrtcCompileProgram", b"hiprtcCompileProgram", (Handle, c_int, Names) program, 0, std::ptr::null());
        let text = |size: &[&'static [u8]; 2], get: &[&'static [u8]; 2], bytes: &mut usize| {
            let at = usize::from(self.hip);
            // SAFETY: the signatures of the compilers' functions; the buffer is as large as they ask for.
            unsafe {
                let library = &Fake::get().0;
                let size =
                    library.get::<unsafe extern "C" fn(Handle, *mut usize) -> c_int>(size[at]).unwrap();
                assert_eq!(size(program, bytes), 0);
                let mut out = vec![0u8; *bytes];
                let get = library.get::<unsafe extern "C" fn(Handle, *mut c_char) -> c_int>(get[at]).unwrap();
                assert_eq!(get(program, out.as_mut_ptr().cast()), 0);
                out
            }
        };
        let result = if compiled == 0 {
            Ok(text(
                &[b"nvrtcGetCUBINSize", b"hiprtcGetCodeSize"],
                &[b"nvrtcGetCUBIN", b"hiprtcGetCode"],
                &mut bytes,
            ))
        } else {
            let log = text(
                &[b"nvrtcGetProgramLogSize", b"hiprtcGetProgramLogSize"],
                &[b"nvrtcGetProgramLog", b"hiprtcGetProgramLog"],
                &mut bytes,
            );
            Err(String::from_utf8_lossy(&log).into_owned())
        };
        assert_eq!(
            call!(self, b"nvrtcDestroyProgram", b"hiprtcDestroyProgram", (*mut Handle) &mut program),
            0
        );
        result
    }

    fn load(&self, image: &[u8]) -> (c_int, Handle) {
        let mut module = null_mut();
        let image = image.as_ptr().cast::<c_void>();
        let done = call!(self, b"cuModuleLoadData", b"hipModuleLoadData", (*mut Handle, *const c_void) &mut module, image);
        (done, module)
    }

    fn function(&self, module: Handle, name: &CStr) -> (c_int, Handle) {
        let mut function = null_mut();
        let done = call!(self, b"cuModuleGetFunction", b"hipModuleGetFunction",
            (*mut Handle, Handle, *const c_char) &mut function, module, name.as_ptr());
        (done, function)
    }

    fn twice(&self) -> Handle {
        self.twice_of(IN_MEMORY)
    }

    fn twice_of(&self, uniforms: (&str, &str)) -> Handle {
        let (done, module) = self.load(&self.compile(&twice(uniforms)).unwrap());
        assert_eq!(done, 0);
        let (done, function) = self.function(module, c"twice");
        assert_eq!(done, 0);
        function
    }

    fn launch(&self, function: Handle, threads: c_uint, arguments: &[u64], stream: Handle) -> c_int {
        self.launch_with(function, (threads, 0), arguments, stream)
    }

    /// Launches with bytes of workgroup memory.
    fn launch_with(
        &self,
        function: Handle,
        (threads, dynamic): (c_uint, c_uint),
        arguments: &[u64],
        stream: Handle,
    ) -> c_int {
        let mut bytes = size_of_val(arguments);
        let key = |n: usize| std::ptr::without_provenance_mut::<c_void>(n);
        let buffer = arguments.as_ptr().cast_mut().cast::<c_void>();
        let end = if self.hip { 3 } else { 0 };
        let mut extra = [key(1), buffer, key(2), (&raw mut bytes).cast(), key(end)];
        type N = c_uint;
        call!(self, b"cuLaunchKernel", b"hipModuleLaunchKernel",
            (Handle, N, N, N, N, N, N, N, Handle, *mut Handle, *mut Handle)
            function, 1, 1, 1, threads, 1, 1, dynamic, stream, null_mut(), extra.as_mut_ptr())
    }
}

/// The bytes of pinned memory.
fn bytes(at: Handle, len: usize) -> Vec<u8> {
    // SAFETY: the test's own memory of at least that size.
    unsafe { std::slice::from_raw_parts(at.cast::<u8>(), len) }.to_vec()
}

#[test]
fn a_kernel_runs_and_what_is_read_before_waiting_is_not_there() {
    for d in Driver::both() {
        d.enter(0);
        let (stream, x, y, u, host) = (d.stream(), d.allocate(8), d.allocate(8), d.allocate(16), d.pin(8));
        let (z, second) = (d.allocate(8), d.pin(8));
        let values: Vec<u8> = [1.5f32, -4.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(d.to_device(x, values.as_ptr().cast(), 8, stream), 0);
        let uniforms = [2i32, 0, 0, 0];
        assert_eq!(d.to_device(u, uniforms.as_ptr().cast(), 16, stream), 0);
        assert_eq!(d.launch(d.twice(), 64, &[u, x, y], stream), 0);
        assert_eq!(d.launch(d.twice_of(BY_VALUE), 64, &[2, 0, x, z], stream), 0);
        assert_eq!(d.to_host(host, y, 8, stream), 0);
        assert_eq!(d.to_host(second, z, 8, stream), 0);
        assert_eq!(bytes(host, 8), [0xA5; 8], "the copy is not done before someone waits for it");
        assert_eq!(d.wait(stream), 0);
        let want: Vec<u8> = [3.0f32, -8.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!([bytes(host, 8), bytes(second, 8)], [want.clone(), want]);
    }
}

#[test]
fn arguments_of_another_size_and_blocks_of_another_shape() {
    for d in Driver::both() {
        d.enter(0);
        let (stream, x, function) = (d.stream(), d.allocate(256), d.twice());
        assert_eq!(d.launch(function, 64, &[x, x], stream), INVALID_VALUE, "an argument too few");
        assert_eq!(d.launch(function, 64, &[x, x, x, x], stream), INVALID_VALUE, "an argument too many");
        assert_eq!(d.launch(function, 32, &[x, x, x], stream), OUT_OF_RESOURCES);
        let by_value = d.twice_of(BY_VALUE);
        assert_eq!(d.launch(by_value, 64, &[x, x, x], stream), INVALID_VALUE, "an address for uniforms");
        assert_eq!(d.launch(by_value, 64, &[1, 0, 0, x, x], stream), INVALID_VALUE, "uniforms too many");
        assert_eq!(d.launch(by_value, 64, &[1, 0, x, x], stream), 0);
        assert_eq!(d.wait(stream), 0);
    }
}

/// The code object of a tile program whose tiles are larger than what a kernel may declare; how many threads and bytes of workgroup memory it has.
fn large_program() -> (Vec<u8>, (c_uint, c_uint)) {
    let tiling = large_tilings(Arch::Sm80)[0];
    let program = matmul(Arch::Sm80, &Matmul::new(DType::F16), &tiling).unwrap();
    let source = rlx_tile::render::source(&program, "k").unwrap();
    let size = (source.len() as u64).to_le_bytes();
    let image = [b"RLXFAKE1", &size[..], source.as_bytes()].concat();
    (image, (program.workgroup(), program.dynamic_bytes() as c_uint))
}

#[test]
fn workgroup_memory_that_was_not_allowed_or_not_given() {
    let [d, _] = Driver::both();
    d.enter(0);
    let (image, shape) = large_program();
    assert!(shape.1 > 48 << 10);
    let (stream, x, (done, module)) = (d.stream(), d.allocate(256), d.load(&image));
    let (found, function) = d.function(module, c"k");
    assert_eq!((done, found), (0, 0));
    let allow = |number: c_int, bytes: c_uint| call!(d, b"cuFuncSetAttribute", b"-", (Handle, c_int, c_int) function, number, bytes as c_int);
    let launch = |bytes| d.launch_with(function, (shape.0, bytes), &[x, x, x, x], stream);
    assert_eq!(launch(shape.1), INVALID_VALUE, "nothing above 48 KiB is allowed yet");
    assert_eq!(allow(8, shape.1 - 1), 0);
    assert_eq!(launch(shape.1), INVALID_VALUE, "less is allowed");
    assert_eq!(allow(8, 228 << 10), INVALID_VALUE, "more than the device has");
    assert_eq!(allow(9, shape.1), INVALID_VALUE, "another attribute");
    assert_eq!(allow(8, shape.1), 0);
    assert_eq!([0, shape.1 - 1, shape.1 + 1].map(launch), [INVALID_VALUE; 3], "another size is given");
    assert_eq!(launch(shape.1), 0);
    // Its uniforms are negative, so there is nothing to do.
    assert_eq!(d.wait(stream), 0);
}

#[test]
fn pointers_that_were_freed() {
    for d in Driver::both() {
        d.enter(0);
        let (stream, x, host) = (d.stream(), d.allocate(256), d.pin(16));
        assert_eq!(d.free(x), 0);
        assert_eq!(d.free(x), INVALID_VALUE, "freed twice");
        assert_eq!(d.fill(x, 16, stream), INVALID_VALUE);
        assert_eq!(d.launch(d.twice(), 64, &[x, x, x], stream), INVALID_VALUE);
        assert_eq!(d.unpin(host), 0);
        assert_eq!(d.unpin(host), INVALID_VALUE, "freed twice");
        let y = d.allocate(16);
        assert_eq!(d.to_host(host, y, 16, stream), INVALID_VALUE);
    }
}

#[test]
fn copies_out_of_range() {
    for d in Driver::both() {
        d.enter(0);
        let (stream, x, host) = (d.stream(), d.allocate(100), d.pin(64));
        assert_eq!(d.fill(x + 50, 51, stream), INVALID_VALUE);
        assert_eq!(d.fill(x + 50, 50, stream), 0);
        assert_eq!(d.to_device(x + 90, [0u8; 11].as_ptr().cast(), 11, stream), INVALID_VALUE);
        assert_eq!(d.to_host(host, x, 65, stream), INVALID_VALUE, "beyond the end of pinned memory");
        assert_eq!(d.to_host(host, x + 37, 64, stream), INVALID_VALUE);
        assert_eq!(d.wait(stream), 0);
    }
}

#[test]
fn a_kernel_that_leaves_its_buffer_takes_the_context_with_it() {
    let _alone = second_gpu();
    for d in Driver::both() {
        // A device of its own: others go on with the first.
        d.enter(LAST);
        let (stream, u, x) = (d.stream(), d.allocate(16), d.allocate(8));
        assert_eq!(d.to_device(u, [9i32, 0, 0, 0].as_ptr().cast(), 16, stream), 0);
        assert_eq!(d.fill(x, 8, stream), 0);
        assert_eq!(d.launch(d.twice(), 64, &[u, x, x], stream), 0);
        assert_eq!(d.wait(stream), ILLEGAL_ADDRESS, "nine elements of two");
        let mut at = 0u64;
        let broken = call!(d, b"cuMemAlloc_v2", b"hipMalloc", (*mut u64, usize) &mut at, 8);
        assert_eq!(broken, ILLEGAL_ADDRESS, "nothing of the context works");
        d.reset(LAST);
        d.allocate(8);
    }
}

#[test]
fn unknown_symbols_and_images_and_sources() {
    for d in Driver::both() {
        d.enter(0);
        let image = d.compile(&twice(IN_MEMORY)).unwrap();
        let (_, module) = d.load(&image);
        assert_eq!(d.function(module, c"thrice").0, NOT_FOUND);
        assert_eq!(d.load(&[0; 64]).0, INVALID_IMAGE);
        let wrong = "extern \"C\" __global__ void __launch_bounds__(64) k(const int* __restrict__ u) {
  const int v0 = u[0];
  const float v1 = sinn(v0);
}
";
        let log = d.compile(wrong).unwrap_err();
        assert!(log.contains("line 3") && log.contains("sinn"), "{log}");
        // The type of uniforms: not declared, not used, not as it is written, with too little room.
        for (text, why) in [
            (twice(("", "Uniforms")), "not declared"),
            (twice((BY_VALUE.0, IN_MEMORY.1)), "not used"),
            (twice(BY_VALUE).replace("of[i]", "of[0]"), "declares no uniforms"),
            (twice(BY_VALUE).replace("u[0]", "u[4]"), "room for 4 uniforms"),
        ] {
            let log = d.compile(&text).unwrap_err();
            assert!(log.contains(why), "{log}");
        }
    }
}

#[test]
fn use_on_another_context() {
    let _alone = second_gpu();
    for d in Driver::both() {
        d.enter(0);
        let (stream, x, function) = (d.stream(), d.allocate(64), d.twice());
        d.enter(LAST);
        let here = d.stream();
        assert_eq!(d.free(x), INVALID_VALUE);
        assert_eq!(d.fill(x, 8, here), INVALID_VALUE);
        assert_eq!(d.wait(stream), INVALID_HANDLE);
        let y = d.allocate(64);
        assert_eq!(d.launch(function, 64, &[y, y, y], here), INVALID_HANDLE);
        d.enter(0);
        assert_eq!(d.free(x), 0);
    }
    // A thread that entered no context has none.
    std::thread::spawn(|| {
        let d = Driver { hip: false };
        let mut at = 0u64;
        assert_eq!(call!(d, b"cuMemAlloc_v2", b"-", (*mut u64, usize) &mut at, 8), INVALID_CONTEXT);
    })
    .join()
    .unwrap();
}

#[test]
fn missing_synchronisation() {
    let _alone = second_gpu();
    for d in Driver::both() {
        d.enter(0);
        let (one, two, x, host) = (d.stream(), d.stream(), d.allocate(64), d.pin(64));
        assert_eq!(d.fill(x, 64, one), 0);
        assert_eq!(d.to_host(host, x, 64, two), ILLEGAL_STATE, "another stream's work is pending");
        assert_eq!(d.free(x), ILLEGAL_STATE, "freed under pending work");
        assert_eq!(d.wait(one), 0);
        assert_eq!(d.to_host(host, x, 64, two), 0);
        assert_eq!(d.unpin(host), ILLEGAL_STATE);
        assert_eq!(d.wait(two), 0);
        // On a device of its own, as it is lost then.
        d.enter(LAST);
        let (stream, y, host) = (d.stream(), d.allocate(64), d.pin(64));
        assert_eq!(d.to_device(y, host, 64, stream), 0);
        // SAFETY: the test's own pinned memory.
        unsafe { host.cast::<u8>().write(1) };
        assert_eq!(d.wait(stream), ILLEGAL_STATE, "pinned memory changed under a copy");
        d.reset(LAST);
    }
}
