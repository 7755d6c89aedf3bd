//! The functions by the vendors' names. Both vendors have the same signatures: each is written once.
//!
//! Pointers are the caller's: they are null or what the function's documentation asks for, as for the vendors' own libraries.
#![allow(missing_docs, clippy::missing_safety_doc, clippy::too_many_arguments)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use crate::arguments::Arguments;
use crate::calls::{self, Vendor, counted, current, driver};
use crate::loaded::{Code, Does, MAGIC, TARGET, code_of, generation, image};
use crate::models::{CUDA_MODELS, DECLARED_BYTES, DEVICES, HIP_MODELS, Model};
use crate::world::{Context, HostBytes, Outcome, Rejected, Thing, Work, World, code, reject};
use crate::{calls::initialise, cuda_c, tensor_maps};

pub type Handle = *mut c_void;

/// Writes a result to where the caller wants it.
pub fn give<T>(to: *mut T, value: T) -> Outcome<()> {
    if to.is_null() {
        return reject(code::INVALID_VALUE, "a null pointer for a result");
    }
    // SAFETY: not null, and the caller's.
    unsafe { to.write(value) };
    Ok(())
}

pub fn id(handle: Handle) -> u64 {
    handle.addr() as u64
}

pub fn handle(id: u64) -> Handle {
    std::ptr::without_provenance_mut(id as usize)
}

/// A call on the present context.
fn here(vendor: Vendor, call: impl FnOnce(&mut Context) -> Outcome<()>) -> c_int {
    driver(vendor, |world| {
        let current = current(vendor, world)?;
        call(world.context(current)?)
    })
}

/// A call that makes something of the present context.
fn make(vendor: Vendor, to: *mut Handle, add: impl FnOnce(&mut Context, u64) -> Outcome<()>) -> c_int {
    driver(vendor, |world| {
        let current = current(vendor, world)?;
        let new = world.handle();
        add(world.context(current)?, new)?;
        give(to, handle(new))
    })
}

fn launch(
    vendor: Vendor,
    context: &mut Context,
    function: Handle,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    (dynamic, stream): (c_uint, Handle),
    [pointers, extra]: [*mut *mut c_void; 2],
) -> Outcome<()> {
    let Thing::Function(_, code, most) = context.thing(id(function))? else {
        return reject(code::INVALID_HANDLE, "the handle is of something else than a function");
    };
    let (wants, most) = (code.dynamic_bytes(), if vendor == Vendor::Cuda { most } else { u64::MAX });
    if u64::from(dynamic) != wants || wants > most {
        let why = format!("{dynamic} bytes of workgroup memory, the kernel has {wants}, {most} are allowed");
        return reject(code::INVALID_VALUE, why);
    }
    if block != [code.workgroup(), 1, 1] {
        return reject(
            code::OUT_OF_RESOURCES,
            format!("blocks of {block:?}, the kernel is for {}", code.workgroup()),
        );
    }
    if grid[0] == 0 || grid[1] == 0 || grid[2] != 1 {
        return reject(code::INVALID_VALUE, format!("a grid of {grid:?}"));
    }
    let arguments = Arguments::of(vendor, &code, [pointers, extra])?;
    let groups = i64::from(grid[0]) * i64::from(grid[1]);
    context.give(id(stream), Work::Launch { code, groups, arguments })
}

const NAME: &[u8] = b"RLX's interpreter\0";

fn model(vendor: Vendor, device: usize) -> Model {
    match vendor {
        Vendor::Cuda => CUDA_MODELS[device],
        Vendor::Hip => HIP_MODELS[device],
    }
}

fn attribute(vendor: Vendor, number: c_int, device: usize) -> Outcome<c_int> {
    let Model { numbers: (major, minor), dynamic_bytes, compute_units, .. } = model(vendor, device);
    let known = match vendor {
        Vendor::Cuda => {
            let bytes = [(8, 48 << 10), (97, dynamic_bytes)];
            let others = [(1, 1024), (10, 32), (75, major), (76, minor), (16, compute_units)];
            [&bytes[..], &others].concat()
        }
        Vendor::Hip => {
            // Waves of GFX9 have 64 lanes.
            let wave = if major == 9 { 64 } else { 32 };
            let numbers = [(23, major), (61, minor), (63, compute_units)];
            [&[(56, 1024), (74, dynamic_bytes), (87, wave)][..], &numbers].concat()
        }
    };
    let found = known.iter().find(|(known, _)| *known == number);
    found
        .map(|(_, value)| *value)
        .ok_or_else(|| Rejected { code: code::INVALID_VALUE, why: format!("attribute {number}") })
}

fn device_of(world: &World, device: c_int) -> Outcome<usize> {
    let _ = world;
    match usize::try_from(device) {
        Ok(device) if device < DEVICES => Ok(device),
        _ => reject(code::INVALID_DEVICE, format!("there is no device {device}")),
    }
}

/// Both vendors' functions of the same meaning: the body is a call in which `$vendor` is the one whose function was called.
macro_rules! exports {
    ($( [$($which:ident $name:ident),*] $arguments:tt |$vendor:ident| $body:expr; )*) => {
        $( $crate::exports::exports!(@each [$($which $name),*] $arguments |$vendor| $body); )*
    };
    (@each [$($which:ident $name:ident),*] $arguments:tt |$vendor:ident| $body:expr) => {
        $( $crate::exports::exports!(@one $which $name $arguments |$vendor| $body); )*
    };
    (@one $which:ident $name:ident ($($arg:ident: $ty:ty),*) |$vendor:ident| $body:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            let $vendor = Vendor::$which;
            $body
        }
    };
}

pub(crate) use exports;

exports! {
    [Cuda cuInit, Hip hipInit] (_flags: c_uint) |vendor| initialise(vendor);
    [Cuda cuDriverGetVersion, Hip hipDriverGetVersion] (version: *mut c_int) |_vendor| counted(|| give(version, 1));
    [Cuda cuDeviceGetCount, Hip hipGetDeviceCount] (to: *mut c_int) |vendor| driver(vendor, |_| give(to, DEVICES as c_int));
    [Cuda cuDeviceGet, Hip hipDeviceGet] (to: *mut c_int, ordinal: c_int) |vendor|
        driver(vendor, |world| give(to, device_of(world, ordinal)? as c_int));
    [Cuda cuDeviceGetName, Hip hipDeviceGetName] (to: *mut c_char, len: c_int, device: c_int) |vendor| driver(vendor, |world| {
        device_of(world, device)?;
        let fits = NAME.len().min(usize::try_from(len).unwrap_or(0));
        // SAFETY: the caller has room for `len` bytes.
        unsafe { to.cast::<u8>().copy_from_nonoverlapping(NAME.as_ptr(), fits) };
        Ok(())
    });
    [Cuda cuDeviceGetAttribute, Hip hipDeviceGetAttribute] (to: *mut c_int, number: c_int, device: c_int) |vendor|
        driver(vendor, |world| { let device = device_of(world, device)?; give(to, attribute(vendor, number, device)?) });
    [Cuda cuMemAlloc_v2, Hip hipMalloc] (to: *mut u64, bytes: usize) |vendor| driver(vendor, |world| {
        let current = current(vendor, world)?;
        give(to, world.allocate(current, bytes)?)
    });
    [Cuda cuMemFree_v2, Hip hipFree] (at: u64) |vendor| here(vendor, |context| context.free(at));
    [Cuda cuMemHostAlloc, Hip hipHostMalloc] (to: *mut *mut c_void, bytes: usize, _flags: c_uint) |vendor|
        here(vendor, |context| give(to, std::ptr::with_exposed_provenance_mut(context.pin(bytes)? as usize)));
    [Cuda cuMemFreeHost, Hip hipHostFree] (at: *mut c_void) |vendor| here(vendor, |context| context.unpin(id(at)));
    [Cuda cuMemcpyHtoDAsync_v2, Hip hipMemcpyHtoDAsync] (to: u64, from: *const c_void, bytes: usize, stream: Handle) |vendor|
        here(vendor, |context| {
            // SAFETY: the caller's bytes.
            let read = || unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) }.to_vec();
            let from: HostBytes = context.host_bytes(from.addr() as u64, bytes, read);
            context.give(id(stream), Work::ToDevice { to, from })
        });
    [Cuda cuMemcpyDtoHAsync_v2, Hip hipMemcpyDtoHAsync] (to: *mut c_void, from: u64, bytes: usize, stream: Handle) |vendor|
        here(vendor, |context| context.give(id(stream), Work::ToHost { to: id(to), from, bytes }));
    [Cuda cuMemcpyDtoDAsync_v2, Hip hipMemcpyDtoDAsync] (to: u64, from: u64, bytes: usize, stream: Handle) |vendor|
        here(vendor, |context| context.give(id(stream), Work::OnDevice { to, from, bytes }));
    [Cuda cuMemsetD8Async, Hip hipMemsetD8Async] (to: u64, value: u8, bytes: usize, stream: Handle) |vendor|
        here(vendor, |context| context.give(id(stream), Work::Fill { to, bytes, value }));
    [Cuda cuStreamCreate, Hip hipStreamCreateWithFlags] (to: *mut Handle, _flags: c_uint) |vendor|
        make(vendor, to, |context, new| { context.add_stream(new); Ok(()) });
    [Cuda cuStreamDestroy_v2, Hip hipStreamDestroy] (stream: Handle) |vendor| here(vendor, |context| context.drop_stream(id(stream)));
    [Cuda cuStreamSynchronize, Hip hipStreamSynchronize] (stream: Handle) |vendor| here(vendor, |context| context.wait(id(stream), None));
    [Cuda cuCtxSynchronize, Hip hipDeviceSynchronize] () |vendor| here(vendor, |context| context.wait_all());
    [Cuda cuEventCreate, Hip hipEventCreateWithFlags] (to: *mut Handle, flags: c_uint) |vendor|
        make(vendor, to, |context, new| { context.add(new, Thing::Event { is_timed: flags & 2 == 0, passed: None }); Ok(()) });
    [Cuda cuEventDestroy_v2, Hip hipEventDestroy] (event: Handle) |vendor|
        here(vendor, |context| context.remove(id(event), |thing| matches!(thing, Thing::Event { .. })));
    [Cuda cuTensorMapEncodeTiled] (
        to: *mut c_void, dtype: c_int, rank: c_uint, address: *mut c_void, sizes: *const u64, strides: *const u64,
        boxes: *const u32, steps: *const u32, interleave: c_int, swizzle: c_int, promotion: c_int, fill: c_int
    ) |vendor| here(vendor, |_| {
        let modes = [interleave, swizzle, promotion, fill];
        tensor_maps::encode(to, (dtype, rank), address, (sizes, strides), (boxes, steps), modes)
    });
    [Cuda cuTensorMapEncodeIm2col] (
        to: *mut c_void, dtype: c_int, rank: c_uint, address: *mut c_void, sizes: *const u64, strides: *const u64,
        lower: *const c_int, upper: *const c_int, channels: c_uint, places: c_uint, steps: *const u32, interleave: c_int,
        swizzle: c_int, promotion: c_int, fill: c_int
    ) |vendor| here(vendor, |_| {
        let modes = [interleave, swizzle, promotion, fill];
        let (lists, what) = ((lower, upper), (channels, places, steps));
        tensor_maps::encode_windows(to, (dtype, rank), address, (sizes, strides), lists, what, modes)
    });
    [Cuda cuEventElapsedTime, Hip hipEventElapsedTime] (to: *mut f32, from: Handle, until: Handle) |vendor|
        here(vendor, |context| give(to, context.elapsed(id(from), id(until))?));
    [Cuda cuEventRecord, Hip hipEventRecord] (event: Handle, stream: Handle) |vendor| here(vendor, |context| {
        context.thing(id(event))?;
        context.give(id(stream), Work::Event(id(event)))
    });
    [Cuda cuEventSynchronize, Hip hipEventSynchronize] (event: Handle) |vendor| here(vendor, |context| context.wait_event(id(event)));
    [Cuda cuModuleLoadData, Hip hipModuleLoadData] (to: *mut Handle, from: *const c_void) |vendor| {
        let device = calls::device_in_use(vendor);
        make(vendor, to, |context, new| {
            let (name, code) = image(from, device)?;
            context.add(new, Thing::Module(name, Arc::new(code)));
            Ok(())
        })
    };
    [Cuda cuModuleUnload, Hip hipModuleUnload] (module: Handle) |vendor|
        here(vendor, |context| context.remove(id(module), |thing| matches!(thing, Thing::Module(..))));
    [Cuda cuModuleGetFunction, Hip hipModuleGetFunction] (to: *mut Handle, module: Handle, name: *const c_char) |vendor| {
        make(vendor, to, |context, new| {
            // SAFETY: a terminated string.
            let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
            match context.thing(id(module))? {
                Thing::Module(known, code) if known == name => {
                    context.add(new, Thing::Function(id(module), code, DECLARED_BYTES));
                    Ok(())
                }
                Thing::Module(..) => reject(code::NOT_FOUND, format!("the module has no function {name:?}")),
                _ => reject(code::INVALID_HANDLE, "the handle is of something else than a module"),
            }
        })
    };
    [Cuda cuLaunchKernel, Hip hipModuleLaunchKernel] (
        function: Handle, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, dynamic: c_uint,
        stream: Handle, arguments: *mut *mut c_void, extra: *mut *mut c_void
    ) |vendor| here(vendor, |context| launch(vendor, context, function, [gx, gy, gz], [bx, by, bz], (dynamic, stream), [arguments, extra]));
    [Cuda cuStreamBeginCapture_v2, Hip hipStreamBeginCapture] (stream: Handle, _mode: c_int) |vendor|
        here(vendor, |context| context.begin_recording(id(stream)));
    [Cuda cuStreamEndCapture, Hip hipStreamEndCapture] (stream: Handle, to: *mut Handle) |vendor|
        make(vendor, to, |context, new| { let work = context.end_recording(id(stream))?; context.add(new, Thing::Graph(work)); Ok(()) });
    [Cuda cuGraphInstantiateWithFlags, Hip hipGraphInstantiateWithFlags] (to: *mut Handle, graph: Handle, _flags: u64) |vendor|
        make(vendor, to, |context, new| match context.thing(id(graph))? {
            Thing::Graph(work) => { context.add(new, Thing::Executable(work)); Ok(()) }
            _ => reject(code::INVALID_HANDLE, "the handle is of something else than a graph"),
        });
    [Cuda cuGraphLaunch, Hip hipGraphLaunch] (executable: Handle, stream: Handle) |vendor| here(vendor, |context| match context.thing(id(executable))? {
        Thing::Executable(work) => work.into_iter().try_for_each(|work| context.give(id(stream), work)),
        _ => reject(code::INVALID_HANDLE, "the handle is of something else than an executable graph"),
    });
    [Cuda cuGraphDestroy, Hip hipGraphDestroy] (graph: Handle) |vendor|
        here(vendor, |context| context.remove(id(graph), |thing| matches!(thing, Thing::Graph(_))));
    [Cuda cuGraphExecDestroy, Hip hipGraphExecDestroy] (executable: Handle) |vendor|
        here(vendor, |context| context.remove(id(executable), |thing| matches!(thing, Thing::Executable(_))));
    [Cuda cuDevicePrimaryCtxRetain] (to: *mut Handle, device: c_int) |vendor|
        driver(vendor, |world| { let device = device_of(world, device)?; give(to, handle(world.primary(device)?)) });
    [Cuda cuDevicePrimaryCtxRelease_v2] (device: c_int) |vendor| driver(vendor, |world| device_of(world, device).map(drop));
    [Cuda cuDevicePrimaryCtxReset_v2] (device: c_int) |vendor|
        driver(vendor, |world| { let device = device_of(world, device)?; world.reset(device) });
    [Cuda cuCtxSetCurrent] (context: Handle) |vendor|
        driver(vendor, |world| { world.context(id(context))?; calls::enter(id(context)); Ok(()) });
}

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`
const MOST_DYNAMIC: c_int = 8;

/// CUDA's own: what launches of a function may give.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncSetAttribute(function: Handle, number: c_int, value: c_int) -> c_int {
    driver(Vendor::Cuda, |world| {
        let current = current(Vendor::Cuda, world)?;
        let most = world.device_of(current).map_or(0, |device| CUDA_MODELS[device].dynamic_bytes);
        if number != MOST_DYNAMIC || !(0..=most).contains(&value) {
            return reject(code::INVALID_VALUE, format!("attribute {number} as {value}"));
        }
        world.context(current)?.allow(id(function), value.unsigned_abs().into())
    })
}

/// HIP's own: devices instead of contexts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipSetDevice(device: c_int) -> c_int {
    driver(Vendor::Hip, |world| {
        let device = device_of(world, device)?;
        calls::enter_device(device);
        // Only what the thread calls is chosen: a device that is lost can be chosen, to be reset.
        world.primary(device).map(drop)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDeviceReset() -> c_int {
    driver(Vendor::Hip, |world| world.reset(calls::device()))
}

/// The text of an error: why the last call of this thread was rejected. Never counted, as it is called after errors.
fn text(to: *mut *const c_char) -> c_int {
    give(to, calls::why()).map_or_else(|r| r.code, |()| 0)
}

const NAMES: [(c_int, &CStr); 10] = [
    (code::INVALID_VALUE, c"INVALID_VALUE"),
    (code::OUT_OF_MEMORY, c"OUT_OF_MEMORY"),
    (code::NOT_INITIALIZED, c"NOT_INITIALIZED"),
    (code::INVALID_DEVICE, c"INVALID_DEVICE"),
    (code::INVALID_IMAGE, c"INVALID_IMAGE"),
    (code::INVALID_CONTEXT, c"INVALID_CONTEXT"),
    (code::INVALID_HANDLE, c"INVALID_HANDLE"),
    (code::ILLEGAL_STATE, c"ILLEGAL_STATE"),
    (code::NOT_FOUND, c"NOT_FOUND"),
    (code::ILLEGAL_ADDRESS, c"ILLEGAL_ADDRESS"),
];

fn name(of: c_int, to: *mut *const c_char) -> c_int {
    let known = NAMES.iter().find(|(code, _)| *code == of).map_or(c"UNKNOWN", |(_, name)| name);
    give(to, known.as_ptr()).map_or_else(|r| r.code, |()| 0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(of: c_int, to: *mut *const c_char) -> c_int {
    name(of, to)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(_: c_int, to: *mut *const c_char) -> c_int {
    text(to)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDrvGetErrorName(of: c_int, to: *mut *const c_char) -> c_int {
    name(of, to)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipDrvGetErrorString(_: c_int, to: *mut *const c_char) -> c_int {
    text(to)
}

/// A program of the compilers.
struct Program {
    source: String,
    log: Vec<u8>,
    code: Vec<u8>,
}

/// The compilers' numbers for errors.
const COMPILER_INVALID: i32 = 3;
const INVALID_OPTION: i32 = 5;
const COMPILATION: i32 = 6;

fn program<'p>(of: Handle) -> Outcome<&'p mut Program> {
    if of.is_null() {
        return reject(COMPILER_INVALID, "no program");
    }
    // SAFETY: what `nvrtcCreateProgram` gave, until it is destroyed; a program is used by one thread at a time.
    Ok(unsafe { &mut *of.cast::<Program>() })
}

fn compile(vendor: Vendor, of: Handle, options: &[String]) -> Outcome<()> {
    let program = program(of)?;
    for option in options {
        let known = match vendor {
            Vendor::Cuda => {
                option == "--fmad=false"
                    || option
                        .strip_prefix("--gpu-architecture=")
                        .is_some_and(|name| generation(name).is_some())
            }
            Vendor::Hip => option == "-O3" || option == "-ffp-contract=off",
        };
        if !known {
            return reject(INVALID_OPTION, format!("option {option:?}"));
        }
    }
    let compiled = preprocessed(vendor, &program.source).and_then(|source| match source {
        Some(source) => code_of(&source).and_then(|(_, code)| runs_on(vendor, &code, options)),
        // There is nothing in it.
        None => Ok(()),
    });
    match compiled {
        Ok(()) => {
            program.code = MAGIC.to_vec();
            let target = options.iter().find_map(|o| o.strip_prefix("--gpu-architecture="));
            let target = target.map_or(String::new(), |target| format!("{TARGET}{target}\n"));
            program.code.extend(((target.len() + program.source.len()) as u64).to_le_bytes());
            program.code.extend(target.bytes().chain(program.source.bytes()));
            Ok(())
        }
        Err(why) => {
            program.log = why.clone().into_bytes();
            program.log.push(0);
            reject(COMPILATION, why)
        }
    }
}

/// A source behind the directives that it begins with, of which `#if defined`, `#error` and `#endif` are known; `None` where nothing is left.
/// HIP's compiler defines the name of the architecture of the thread's device.
fn preprocessed(vendor: Vendor, source: &str) -> cuda_c::Compiled<Option<String>> {
    let units = model(vendor, calls::device()).units;
    let defined = units.filter(|_| vendor == Vendor::Hip).map(|arch| format!("__{}__", arch.name()));
    let (mut holds, mut rest) = (true, source);
    while let Some((line, behind)) = rest.split_once('\n').filter(|(line, _)| line.starts_with('#')) {
        if let Some(name) = line.strip_prefix("#if defined(").and_then(|l| l.strip_suffix(')')) {
            holds = defined.as_deref() == Some(name);
        } else if let Some(text) = line.strip_prefix("#error ") {
            if holds {
                return Err(format!("error: {text}"));
            }
        } else if line == "#endif" {
            holds = true;
        } else {
            return Err(format!("{line:?}"));
        }
        rest = behind;
    }
    Ok((!rest.trim().is_empty()).then(|| rest.to_owned()))
}

/// Whether the architecture that code is compiled for has the instructions of a tile program.
fn runs_on(vendor: Vendor, code: &Code, options: &[String]) -> cuda_c::Compiled<()> {
    let Does::Tiles(program) = &code.does else { return Ok(()) };
    let wants = program.arch.name();
    let has = match vendor {
        Vendor::Cuda => {
            let target = options.iter().find_map(|o| generation(o.strip_prefix("--gpu-architecture=")?));
            let runs = |(least, own): (u32, bool), (target, has)| {
                if own { (target, has) == (least, own) } else { least <= target }
            };
            generation(wants).zip(target).is_some_and(|(wants, target)| runs(wants, target))
        }
        Vendor::Hip => model(vendor, calls::device()).units == Some(program.arch),
    };
    if has { Ok(()) } else { Err(format!("instructions of {wants}, which the target does not have")) }
}

/// Copies bytes to where the caller has room for them.
fn fill(to: *mut c_char, bytes: &[u8]) -> Outcome<()> {
    // SAFETY: the caller asked for the size before.
    unsafe { to.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(())
}

exports! {
    [Cuda nvrtcVersion, Hip hiprtcVersion] (major: *mut c_int, minor: *mut c_int) |_vendor| counted(|| { give(major, 13)?; give(minor, 0) });
    [Cuda nvrtcCreateProgram, Hip hiprtcCreateProgram] (
        to: *mut Handle, source: *const c_char, _name: *const c_char, _count: c_int, _headers: *const *const c_char,
        _names: *const *const c_char
    ) |_vendor| counted(|| {
        // SAFETY: a terminated string.
        let source = unsafe { CStr::from_ptr(source) }.to_string_lossy().into_owned();
        give(to, Box::into_raw(Box::new(Program { source, log: Vec::new(), code: Vec::new() })).cast())
    });
    [Cuda nvrtcCompileProgram, Hip hiprtcCompileProgram] (of: Handle, count: c_int, options: *const *const c_char) |vendor| counted(|| {
        let option = |i: usize| {
            // SAFETY: as many terminated strings as the caller says.
            unsafe { CStr::from_ptr(*options.add(i)) }.to_string_lossy().into_owned()
        };
        let options: Vec<String> = (0..usize::try_from(count).unwrap_or(0)).map(option).collect();
        compile(vendor, of, &options)
    });
    [Cuda nvrtcGetProgramLogSize, Hip hiprtcGetProgramLogSize] (of: Handle, to: *mut usize) |_vendor| counted(|| give(to, program(of)?.log.len()));
    [Cuda nvrtcGetProgramLog, Hip hiprtcGetProgramLog] (of: Handle, to: *mut c_char) |_vendor| counted(|| fill(to, &program(of)?.log));
    [Cuda nvrtcGetCUBINSize, Hip hiprtcGetCodeSize] (of: Handle, to: *mut usize) |_vendor| counted(|| give(to, program(of)?.code.len()));
    [Cuda nvrtcGetCUBIN, Hip hiprtcGetCode] (of: Handle, to: *mut c_char) |_vendor| counted(|| fill(to, &program(of)?.code));
    [Cuda nvrtcDestroyProgram, Hip hiprtcDestroyProgram] (of: *mut Handle) |_vendor| counted(|| {
        // SAFETY: the caller's pointer to what `nvrtcCreateProgram` gave.
        let program = unsafe { of.replace(std::ptr::null_mut()) };
        if program.is_null() {
            return reject(COMPILER_INVALID, "no program");
        }
        // SAFETY: made by `Box::into_raw`, and nobody has it any more.
        drop(unsafe { Box::from_raw(program.cast::<Program>()) });
        Ok(())
    });
}

/// The call number `after` from now on, on this thread, gives `code`; 0 takes that back.
#[unsafe(no_mangle)]
pub extern "C" fn rlx_fake_fail(after: u64, code: c_int) {
    calls::fail(after, code);
}

/// How many calls this thread made.
#[unsafe(no_mangle)]
pub extern "C" fn rlx_fake_calls() -> u64 {
    calls::count()
}

/// How many tile programs this thread launched.
#[unsafe(no_mangle)]
pub extern "C" fn rlx_fake_tile_runs() -> u64 {
    calls::tile_count()
}

/// The rows of a tile of the last one.
#[unsafe(no_mangle)]
pub extern "C" fn rlx_fake_tile_rows() -> u64 {
    calls::tile_rows()
}

/// From now on a device computes wrongly: tile programs whose names begin so, or, where this is `shared`, kernels with workgroup memory; none where `names` is null.
///
/// # Safety
/// `names` is null or a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rlx_fake_spoil(is_hip: c_int, device: c_int, names: *const c_char) -> c_int {
    let vendor = if is_hip == 0 { Vendor::Cuda } else { Vendor::Hip };
    // SAFETY: as the caller promises.
    let names = (!names.is_null()).then(|| unsafe { CStr::from_ptr(names) }.to_string_lossy().into_owned());
    driver(vendor, |world| {
        let context = world.primary(device as usize)?;
        world.context(context)?.spoil(names);
        Ok(())
    })
}
