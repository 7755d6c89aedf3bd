//! The driver's things as values that free themselves: a context with its stream, memory, events, modules, graphs.
//!
//! All work of a context goes through one stream, so it is done in the order in which it was given; a host that wants to see the end
//! of it waits for an event or for the stream. What is here is safe by ownership: memory is freed after the work that was given
//! before, handles live as long as what refers to them, and nothing of a context that was lost is used again.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rlx_driver::Device;
use rlx_gpu::Health;

use crate::load::Libraries;
use crate::table::{DevicePtr, Driver, Fault, Handle, Vendor};
use crate::tensor_map::TensorMap;

/// What a call gives.
pub(crate) type Outcome<T> = Result<T, Fault>;

/// Streams that do not wait for the driver's own; events with times, and without.
const NON_BLOCKING: u32 = 1;
const TIMING: u32 = 0;
const NO_TIMING: u32 = 2;
/// What a function is told of dynamic workgroup memory: the most bytes.
const MOST_DYNAMIC: c_int = 8;
/// While one thread records a graph, others go on.
const THREAD_LOCAL: c_int = 1;

/// What is asked of a device.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Attribute {
    MaxWorkgroup,
    SharedBytes,
    /// With what launches may give.
    DynamicBytes,
    Major,
    Minor,
    /// Multiprocessors, or compute units.
    ComputeUnits,
    /// Threads of a warp.
    WarpSize,
}

impl Attribute {
    /// `CUdevice_attribute`, `hipDeviceAttribute_t`.
    fn number(self, vendor: Vendor) -> c_int {
        let [cuda, hip] = match self {
            Attribute::MaxWorkgroup => [1, 56],
            Attribute::SharedBytes => [8, 74],
            // HIP has one number for both.
            Attribute::DynamicBytes => [97, 74],
            Attribute::Major => [75, 23],
            Attribute::Minor => [76, 61],
            Attribute::ComputeUnits => [16, 63],
            Attribute::WarpSize => [10, 87],
        };
        if vendor == Vendor::Cuda { cuda } else { hip }
    }
}

/// A device's context and its stream.
pub(crate) struct Context {
    pub(crate) libraries: Arc<Libraries>,
    device: c_int,
    /// CUDA's context; null for HIP, whose devices have one of their own.
    raw: Handle,
    stream: Handle,
    /// How much work was given, and how much of it is known to be done.
    given: AtomicU64,
    done: AtomicU64,
    /// Whether it is still there: else nothing of it is used or freed any more.
    pub(crate) health: Arc<Health>,
}

// SAFETY: contexts, streams, memory, events, modules and graphs of both drivers may be used from any thread, also at once; each call
// makes the context current in its thread first.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// How many devices there are.
    pub(crate) fn count(libraries: &Libraries) -> Outcome<usize> {
        let (driver, mut count) = (&libraries.driver, 0);
        // SAFETY: flags must be 0; `count` is written.
        unsafe { driver.init(0).and_then(|()| driver.device_count(&mut count)) }
            .map_err(|f| driver.explained(f))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Opens device number `ordinal`, which is below [`Context::count`]; `again`: after it was lost, so that the driver drops what
    /// is left of it.
    pub(crate) fn open(
        libraries: &Arc<Libraries>,
        name: Device,
        ordinal: usize,
        again: bool,
    ) -> Outcome<Arc<Context>> {
        let driver = &libraries.driver;
        let (mut device, mut raw, mut stream) = (0, null_mut(), null_mut());
        let opened = (|| {
            // SAFETY: all pointers are to variables of the types that are written; the device is one that the driver gave.
            unsafe {
                driver.device_get(&mut device, ordinal as c_int)?;
                match libraries.vendor {
                    Vendor::Cuda => {
                        if again {
                            driver.context_reset(device)?;
                        }
                        driver.context_retain(&mut raw, device)?;
                        driver.context_enter(raw)?;
                    }
                    Vendor::Hip => {
                        driver.device_enter(device)?;
                        if again {
                            driver.device_reset()?;
                        }
                    }
                }
                driver.stream_create(&mut stream, NON_BLOCKING)
            }
        })();
        opened.map_err(|f| driver.explained(f))?;
        let [given, done] = [AtomicU64::new(0), AtomicU64::new(0)];
        let (libraries, health) = (Arc::clone(libraries), Health::new(name));
        Ok(Arc::new(Context { libraries, device, raw, stream, given, done, health }))
    }

    fn driver(&self) -> &Driver {
        &self.libraries.driver
    }

    /// Calls `f` with the context current in this thread.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&Driver) -> Outcome<T>) -> Outcome<T> {
        let driver = self.driver();
        // SAFETY: the context is retained, the device is the driver's.
        let entered = unsafe {
            match self.libraries.vendor {
                Vendor::Cuda => driver.context_enter(self.raw),
                Vendor::Hip => driver.device_enter(self.device),
            }
        };
        entered.and_then(|()| f(driver)).map_err(|fault| driver.explained(fault))
    }

    /// As [`Context::with`], for calls that give the stream work.
    fn give<T>(&self, f: impl FnOnce(&Driver) -> Outcome<T>) -> Outcome<T> {
        self.given.fetch_add(1, Ordering::AcqRel);
        self.with(f)
    }

    /// Waits until everything that was given is done.
    pub(crate) fn wait(&self) -> Outcome<()> {
        let given = self.given.load(Ordering::Acquire);
        // SAFETY: the stream is this context's.
        self.with(|driver| unsafe { driver.stream_wait(self.stream) })?;
        self.done.fetch_max(given, Ordering::AcqRel);
        Ok(())
    }

    /// Frees something, after the work that may use it; nothing is left to free of a context that is lost.
    pub(crate) fn free(&self, free: impl FnOnce(&Driver) -> Outcome<()>) {
        let idle = self.done.load(Ordering::Acquire) >= self.given.load(Ordering::Acquire);
        let freed = if self.health.lost().is_some() {
            Ok(())
        } else {
            let waited = if idle { Ok(()) } else { self.wait() };
            waited.and_then(|()| self.with(free))
        };
        if let Err(fault) = freed {
            // The next call that can report it does.
            tracing::warn!(%fault, "freeing");
        }
    }

    pub(crate) fn name(&self) -> Outcome<String> {
        let mut name = [0; 256];
        // SAFETY: as many bytes as are said are there, the last stays 0.
        self.with(|driver| unsafe { driver.device_name(name.as_mut_ptr(), 255, self.device) })?;
        // SAFETY: terminated, see above.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    }

    pub(crate) fn driver_version(&self) -> Outcome<i32> {
        let mut version = 0;
        // SAFETY: `version` is written.
        self.with(|driver| unsafe { driver.driver_version(&mut version) })?;
        Ok(version)
    }

    pub(crate) fn attribute(&self, of: Attribute) -> Outcome<u32> {
        let (mut value, number) = (0, of.number(self.libraries.vendor));
        // SAFETY: `value` is written.
        self.with(|driver| unsafe { driver.device_attribute(&mut value, number, self.device) })?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// Device memory.
    pub(crate) fn allocate(self: &Arc<Self>, bytes: usize) -> Outcome<DeviceMemory> {
        let mut at = 0;
        // SAFETY: `at` is written.
        self.with(|driver| unsafe { driver.allocate(&mut at, bytes) })?;
        Ok(DeviceMemory { context: Arc::clone(self), at, bytes })
    }

    /// Host memory that the device copies from and to by itself.
    pub(crate) fn pinned(self: &Arc<Self>, bytes: usize) -> Outcome<Pinned> {
        let mut at = null_mut();
        // SAFETY: `at` is written; no flags.
        self.with(|driver| unsafe { driver.host_allocate(&mut at, bytes, 0) })?;
        // SAFETY: fresh memory of this size. Bytes that were never written must not be read.
        unsafe { at.cast::<u8>().write_bytes(0, bytes) };
        Ok(Pinned { context: Arc::clone(self), at: at.cast(), bytes })
    }

    pub(crate) fn event(self: &Arc<Self>) -> Outcome<Event> {
        self.event_of(NO_TIMING)
    }

    /// An event that knows when the stream was past it.
    pub(crate) fn timed_event(self: &Arc<Self>) -> Outcome<Event> {
        self.event_of(TIMING)
    }

    fn event_of(self: &Arc<Self>, flags: u32) -> Outcome<Event> {
        let mut raw = null_mut();
        // SAFETY: `raw` is written.
        self.with(|driver| unsafe { driver.event_create(&mut raw, flags) })?;
        Ok(Event { context: Arc::clone(self), raw })
    }

    /// Marks the end of what was given so far.
    pub(crate) fn record(&self, event: &Event) -> Outcome<()> {
        // SAFETY: both are this context's.
        self.give(|driver| unsafe { driver.event_record(event.raw, self.stream) })
    }

    /// Copies the first `bytes` bytes of `from` to an address, behind what was given before. `from` stays as it is until then: the
    /// caller waits for it.
    pub(crate) fn to_device(&self, to: Part, from: &Pinned, bytes: usize) -> Outcome<()> {
        let bytes = bytes.min(from.bytes).min(to.bytes);
        // SAFETY: both ranges are inside of memory that is freed only after the stream's work.
        self.give(|driver| unsafe { driver.to_device(to.at, from.at.cast(), bytes, self.stream) })
    }

    /// Copies bytes to `to` from `at` on, behind what was given before.
    pub(crate) fn to_host(&self, to: &Pinned, at: usize, from: Part) -> Outcome<()> {
        assert!(at <= to.bytes && from.bytes <= to.bytes - at, "a copy beyond the end of pinned memory");
        // SAFETY: as for `to_device`; the range is checked above, and no one reads it before having waited.
        self.give(|driver| unsafe { driver.to_host(to.at.add(at).cast(), from.at, from.bytes, self.stream) })
    }

    /// Copies bytes on the device, behind what was given before.
    pub(crate) fn on_device(&self, to: Part, from: Part) -> Outcome<()> {
        let bytes = to.bytes.min(from.bytes);
        // SAFETY: as for `to_device`.
        self.give(|driver| unsafe { driver.on_device(to.at, from.at, bytes, self.stream) })
    }

    /// Loads a code object and finds the function `entry` in it, whose launches give `dynamic` bytes of workgroup memory.
    pub(crate) fn load(self: &Arc<Self>, image: &[u8], entry: &str, dynamic: u32) -> Outcome<Code> {
        let (mut module, mut function) = (null_mut(), null_mut());
        // SAFETY: the image is a whole code object that the vendor's compiler gave; `module` is written.
        self.with(|driver| unsafe { driver.module_load(&mut module, image.as_ptr().cast()) })?;
        let mut code = Code { context: Arc::clone(self), module, function };
        let name = CString::new(entry).unwrap_or_default();
        // SAFETY: a terminated name; `function` is written and lives as long as the module.
        self.with(|driver| unsafe { driver.module_function(&mut function, module, name.as_ptr()) })?;
        code.function = function;
        if dynamic > 0 && self.libraries.vendor == Vendor::Cuda {
            let most = c_int::try_from(dynamic).unwrap_or(c_int::MAX);
            // SAFETY: the function of this module.
            self.with(|driver| unsafe { driver.function_set(function, MOST_DYNAMIC, most) })?;
        }
        Ok(code)
    }

    /// Gives the stream commands.
    pub(crate) fn commands(&self, commands: &[Command<'_>]) -> Outcome<()> {
        let vendor = self.libraries.vendor;
        self.give(|driver| {
            // SAFETY: the stream and what the commands refer to are this context's.
            commands.iter().try_for_each(|command| unsafe { command.issue(driver, vendor, self.stream) })
        })
    }

    /// Commands as a graph that is given as a whole. They are recorded on a stream of their own, so that others can go on.
    pub(crate) fn capture(self: &Arc<Self>, commands: &[Command<'_>]) -> Outcome<Graph> {
        let (mut stream, mut graph, mut raw) = (null_mut(), null_mut(), null_mut());
        self.with(|driver| {
            // SAFETY: `stream`, `graph` and `raw` are written; recording begins and ends on this thread and stream; the graph and the
            // stream are not needed behind the executable graph.
            unsafe {
                driver.stream_create(&mut stream, NON_BLOCKING)?;
                let recorded = driver.capture_begin(stream, THREAD_LOCAL).and_then(|()| {
                    let issued =
                        commands.iter().try_for_each(|c| c.issue(driver, self.libraries.vendor, stream));
                    let ended = driver.capture_end(stream, &mut graph);
                    issued.and(ended)
                });
                let made = recorded.and_then(|()| driver.graph_instantiate(&mut raw, graph, 0));
                let freed = if graph.is_null() { Ok(()) } else { driver.graph_destroy(graph) };
                let closed = driver.stream_destroy(stream);
                let done = made.and(freed).and(closed);
                if done.is_err() && !raw.is_null() {
                    let _ = driver.graph_exec_destroy(raw);
                }
                done
            }
        })?;
        Ok(Graph { context: Arc::clone(self), raw })
    }

    /// Gives the stream a graph.
    pub(crate) fn replay(&self, graph: &Graph) -> Outcome<()> {
        // SAFETY: both are this context's; what the graph refers to is kept by who keeps the graph.
        self.give(|driver| unsafe { driver.graph_launch(graph.raw, self.stream) })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the stream and the context are this value's, and nothing refers to them any more.
        self.free(|driver| unsafe {
            driver.stream_destroy(self.stream)?;
            match self.libraries.vendor {
                Vendor::Cuda => driver.context_release(self.device),
                Vendor::Hip => Ok(()),
            }
        });
    }
}

/// What a launch gives a kernel, one behind the other as it takes them: the bytes of its uniforms, if they are given by value, and addresses.
pub(crate) fn arguments(values: Option<&[u8]>, addresses: Vec<DevicePtr>) -> Vec<u64> {
    let Some(values) = values else { return addresses };
    // They are filled up to 16 bytes, so the addresses are where the compiler expects them.
    let (words, _) = values.as_chunks();
    words.iter().map(|&word| u64::from_ne_bytes(word)).chain(addresses).collect()
}

/// Something to be done on the device.
pub(crate) enum Command<'c> {
    /// Zeros.
    Clear(Part),
    /// A kernel over a grid of workgroups, with bytes of dynamic workgroup memory. It is given its arguments, and behind the first of them tensor maps by
    /// value.
    Launch {
        code: &'c Code,
        grid: (u32, u32),
        workgroup: u32,
        dynamic: u32,
        arguments: Vec<u64>,
        maps: Vec<TensorMap>,
    },
    /// What a library does: a matmul, say.
    Call(&'c dyn LibraryCall),
    /// Marks the end of what was given before.
    Record(&'c Event),
}

/// A call of a library that gives a stream work.
pub(crate) trait LibraryCall {
    /// Makes it.
    ///
    /// # Safety
    /// The stream is of the context that the call's memory is of.
    unsafe fn issue(&self, stream: Handle) -> Outcome<()>;
}

impl Command<'_> {
    /// # Safety
    /// The stream is of the context that the command's memory and code are of.
    unsafe fn issue(&self, driver: &Driver, vendor: Vendor, stream: Handle) -> Outcome<()> {
        match self {
            // SAFETY: memory of the context.
            Command::Clear(part) => unsafe { driver.fill(part.at, 0, part.bytes, stream) },
            // SAFETY: memory of the context.
            Command::Call(call) => unsafe { call.issue(stream) },
            // SAFETY: an event of the context.
            Command::Record(event) => unsafe { driver.event_record(event.raw, stream) },
            Command::Launch { code, grid, workgroup, dynamic, arguments, maps } => {
                let mut bytes = size_of_val(arguments.as_slice());
                // The arguments as one buffer with its size, so that the driver can compare that with what the kernel takes.
                let end = if vendor == Vendor::Cuda { 0 } else { 3 };
                let key = |n: usize| std::ptr::without_provenance_mut::<c_void>(n);
                let buffer = arguments.as_ptr().cast_mut().cast::<c_void>();
                let mut extra = [key(1), buffer, key(2), (&raw mut bytes).cast::<c_void>(), key(end)];
                // Where maps are among them, the compiler chose where they are in that buffer, and each has a pointer of its own. The first is then the address
                // of the uniforms: only kernels have these by value, and no maps.
                let mut pointers: Vec<*mut c_void> = Vec::new();
                if !maps.is_empty() {
                    let addresses = arguments.iter().map(|at| std::ptr::from_ref(at).cast_mut().cast());
                    pointers.extend(addresses);
                    let maps = maps.iter().map(|map| std::ptr::from_ref(map).cast_mut().cast());
                    pointers.splice(1..1, maps);
                }
                let [pointers, extra] = match maps.is_empty() {
                    true => [null_mut(), extra.as_mut_ptr()],
                    false => [pointers.as_mut_ptr(), null_mut()],
                };
                let (function, (x, y), dynamic) = (code.function, *grid, *dynamic);
                // SAFETY: either list says where the arguments are, and is read during the call; the kernel takes that many of them,
                // and stays within the ranges that addresses begin: they hold the operands of its step.
                unsafe {
                    driver.launch(function, x, y, 1, *workgroup, 1, 1, dynamic, stream, pointers, extra)
                }
            }
        }
    }
}

/// A range of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub(crate) at: DevicePtr,
    pub(crate) bytes: usize,
}

/// Device memory.
pub struct DeviceMemory {
    context: Arc<Context>,
    at: DevicePtr,
    bytes: usize,
}

impl DeviceMemory {
    /// `bytes` bytes at `offset`.
    ///
    /// # Panics
    /// Beyond its end.
    pub(crate) fn part(&self, offset: usize, bytes: usize) -> Part {
        assert!(
            offset <= self.bytes && bytes <= self.bytes - offset,
            "a part beyond the end of device memory"
        );
        Part { at: self.at + offset as u64, bytes }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: this value's memory; the work that uses it is done.
        self.context.free(|driver| unsafe { driver.free(self.at) });
    }
}

/// Pinned host memory.
pub(crate) struct Pinned {
    context: Arc<Context>,
    at: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory.
unsafe impl Send for Pinned {}
// SAFETY: plain memory; who reads it has waited for what writes it.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Its bytes. What the device was to copy here must have been waited for.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: memory of this size that was written at least once, and no work that was given writes it now.
        unsafe { std::slice::from_raw_parts(self.at, self.bytes) }
    }

    /// Its bytes, to be written. What the device was to copy from here must have been waited for.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and no one else has it.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.bytes) }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: this value's memory; the work that uses it is done.
        self.context.free(|driver| unsafe { driver.host_free(self.at.cast()) });
    }
}

/// A place in the stream.
pub(crate) struct Event {
    context: Arc<Context>,
    raw: Handle,
}

// SAFETY: see `Context`.
unsafe impl Send for Event {}
// SAFETY: see `Context`.
unsafe impl Sync for Event {}

impl Event {
    /// Waits until the stream is past it; an event that was never recorded is past at once.
    pub(crate) fn wait(&self) -> Outcome<()> {
        // SAFETY: this value's event.
        self.context.with(|driver| unsafe { driver.event_wait(self.raw) })
    }

    /// Milliseconds from an earlier event to this one. Both are of [`Context::timed_event`], and were recorded and waited for.
    pub(crate) fn since(&self, earlier: &Event) -> Outcome<f32> {
        let mut millis = 0.0;
        // SAFETY: `millis` is written; both are events of this context.
        self.context.with(|driver| unsafe { driver.event_elapsed(&mut millis, earlier.raw, self.raw) })?;
        Ok(millis)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: this value's event.
        self.context.free(|driver| unsafe { driver.event_destroy(self.raw) });
    }
}

/// A kernel that is loaded.
pub struct Code {
    context: Arc<Context>,
    module: Handle,
    function: Handle,
}

// SAFETY: see `Context`.
unsafe impl Send for Code {}
// SAFETY: see `Context`.
unsafe impl Sync for Code {}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: this value's module; the work that uses it is done.
        self.context.free(|driver| unsafe { driver.module_unload(self.module) });
    }
}

/// Commands that are given as one.
pub(crate) struct Graph {
    context: Arc<Context>,
    raw: Handle,
}

// SAFETY: see `Context`.
unsafe impl Send for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: this value's graph; it is not under way any more.
        self.context.free(|driver| unsafe { driver.graph_exec_destroy(self.raw) });
    }
}
