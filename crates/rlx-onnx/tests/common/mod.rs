//! What every file must do, however it was damaged: import, compile and run, or be rejected by a typed error; no panic,
//! no internal error, within bounded time and memory.
#![allow(dead_code, reason = "each test file uses its own part")]

use rlx_ir::{ConstData, DType, Dim, Error, ErrorKind, Graph, Op, Shape};
use rlx_onnx::{ImportOptions, Imported, OnnxFile, import, needed_input};
use rlx_runtime::{Cancel, Device, Progress, Session, TensorView};
use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What importing and compiling may take; several times as long where every pass is verified.
const MOST_TIME: Duration = Duration::from_secs(if cfg!(debug_assertions) { 12 } else { 2 });
/// What importing and compiling may take beyond ten times the file's size.
const MOST_BYTES: usize = 64 << 20;
/// Graphs with more elements in all are not run.
const MOST_ELEMENTS: usize = 1_000_000;
/// When a run is told to stop, and how late it may do so.
const DEADLINE: Duration = Duration::from_millis(500);
const LATE: Duration = Duration::from_secs(2);
/// What takes longer is a hang: the process ends, naming the case.
const HANG: Duration = Duration::from_secs(40);

/// Counts what is allocated, for the bound on memory.
pub struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static TOTAL: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator as it is; counting has no effect on it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        TOTAL.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    // What grows is not there twice: the system moves large blocks without copying them.
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        let now = NOW.fetch_add(size, Ordering::Relaxed) + size;
        PEAK.fetch_max(now, Ordering::Relaxed);
        TOTAL.fetch_add(size, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `f` gives, and how many bytes of memory it had taken at most.
pub fn measured<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let made = f();
    (made, PEAK.load(Ordering::Relaxed).saturating_sub(before))
}

/// The result of `f`, and the total number of bytes it allocated, freed or not: a measure of work that does
/// not depend on the machine.
pub fn allocated<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = TOTAL.load(Ordering::Relaxed);
    let made = f();
    (made, TOTAL.load(Ordering::Relaxed) - before)
}

/// What importing and compiling a file of so many bytes may take.
pub fn most_bytes(file: usize) -> usize {
    MOST_BYTES + 10 * file
}

/// How far a file came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// It was rejected by an error of this kind.
    Rejected(ErrorKind),
    /// The device does not support this.
    Imported,
    /// It is too large to run here, or its run ended in an error.
    Compiled,
    Ran,
}

/// The last panic: where and why.
static PANIC: Mutex<String> = Mutex::new(String::new());
/// What is being tried, since when.
static TRIED: Mutex<Option<(Instant, String)>> = Mutex::new(None);

/// Keeps panics quiet and ends the process when a case hangs. Called once, before the first case.
pub fn watch() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if TRIED.lock().is_ok_and(|tried| tried.is_none()) {
            return usual(info);
        }
        let place = info.location().map(|l| format!("{}:{}", l.file(), l.line())).unwrap_or_default();
        let text = info.payload_as_str().unwrap_or_default();
        if let Ok(mut last) = PANIC.lock() {
            *last = format!("{place}: {text}");
        }
        if std::env::var_os("RLX_HOSTILE_BACKTRACE").is_some() {
            eprintln!("{info}\n{}", std::backtrace::Backtrace::force_capture());
        }
    }));
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_millis(200));
            let tried = TRIED.lock().ok().and_then(|t| t.clone());
            if let Some((since, what)) = tried.filter(|(since, _)| since.elapsed() > HANG) {
                println!("{what} hangs: {:?}", since.elapsed());
                std::process::abort();
            }
        }
    });
}

/// Time this thread was computing; other processes do not count.
fn busy() -> Duration {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    let on_cpu = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = on_cpu.and_then(|s| s.split_whitespace().next().and_then(|n| n.parse().ok()));
    nanos.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

/// Imports, compiles and, where it is small, runs the file on the CPU. An `Err` is a broken promise.
pub fn attempt(name: &str, bytes: &[u8]) -> Result<Reached, String> {
    if let Ok(mut tried) = TRIED.lock() {
        *tried = Some((Instant::now(), name.to_owned()));
    }
    let result = catch_unwind(AssertUnwindSafe(|| stages(bytes)));
    if let Ok(mut tried) = TRIED.lock() {
        *tried = None;
    }
    result.unwrap_or_else(|_| {
        let why = PANIC.lock().map(|p| p.clone()).unwrap_or_default();
        Err(format!("panicked at {why}"))
    })
}

/// Whether an error is the file's fault: one that says what is wrong, and is no bug of ours.
fn typed(stage: &str, e: &Error) -> Result<(), String> {
    let text = e.to_string();
    let panicked = text.contains("panicked");
    if panicked || e.kind() == ErrorKind::Internal || e.message().is_empty() {
        let why = if panicked { PANIC.lock().map(|p| p.clone()).unwrap_or_default() } else { String::new() };
        return Err(format!("{stage}: {:?}: {} {why}", e.kind(), text.chars().take(400).collect::<String>()));
    }
    Ok(())
}

fn stages(bytes: &[u8]) -> Result<Reached, String> {
    let started = busy();
    let (reached, used) = measured(|| compiled(bytes));
    let took = busy() - started;
    if took > MOST_TIME {
        return Err(format!("import and compile took {took:?}"));
    }
    if used > most_bytes(bytes.len()) {
        return Err(format!("import and compile took {used} bytes of memory"));
    }
    let (imported, mut compiled) = match reached? {
        Ok(both) => both,
        Err(reached) => return Ok(reached),
    };
    if !affordable(&imported.graph) {
        return Ok(Reached::Compiled);
    }
    if let Err(e) = compiled.try_set_weights(&imported.weights) {
        return typed("weights", &e).map(|()| Reached::Compiled);
    }
    let given: Vec<(String, ConstData)> = imported.graph.inputs().filter_map(value).collect();
    let views: Vec<TensorView<'_>> = given
        .iter()
        .map(|(name, x)| TensorView { name, dtype: x.dtype(), dims: x.dims(), bytes: x.bytes() })
        .collect();
    let progress = Progress::from(&Cancel::new().with_deadline(DEADLINE));
    let started = busy();
    let ran = compiled.try_run_tensors_with_progress(&views, &progress);
    let took = busy() - started;
    if took > DEADLINE + LATE {
        return Err(format!("a run with a deadline took {took:?}"));
    }
    match ran {
        Ok(_) => Ok(Reached::Ran),
        Err(e) => typed("run", &e).map(|()| Reached::Compiled),
    }
}

type Compiled = (Imported, rlx_runtime::CompiledGraph);

fn compiled(bytes: &[u8]) -> Result<Result<Compiled, Reached>, String> {
    let imported = match OnnxFile::from_bytes(bytes.to_vec()).and_then(|file| import_with_values(&file)) {
        Ok(imported) => imported,
        Err(e) => return typed("import", &e).map(|()| Err(Reached::Rejected(e.kind()))),
    };
    if let Some(fault) = rlx_ir::verify(&imported.graph).first() {
        return Err(format!("import: a graph that is not valid: {fault}"));
    }
    match Session::new(Device::Cpu).try_compile(imported.graph.clone()) {
        Ok(compiled) => Ok(Ok((imported, compiled))),
        Err(e) => typed("compile", &e.into()).map(|()| Err(Reached::Imported)),
    }
}

/// Imports, passing the value of each input that is needed.
fn import_with_values(file: &OnnxFile) -> Result<Imported, Error> {
    let mut options = ImportOptions::default();
    loop {
        let error = match import(file, &options) {
            Ok(imported) => return Ok(imported),
            Err(error) => error,
        };
        let Some(name) = needed_input(&error).filter(|name| !options.input_values.contains_key(*name)) else {
            return Err(error);
        };
        let Some(value) = asked_for(file, name) else { return Err(error) };
        options.input_values.insert(name.to_owned(), value);
    }
}

/// Ones of the declared type and shape.
fn asked_for(file: &OnnxFile, name: &str) -> Option<ConstData> {
    use rlx_onnx::proto::{tensor_shape_proto::dimension::Value as Size, type_proto::Value as Type};
    let declared = file.graph().input.iter().find(|i| i.name() == name)?;
    let Type::TensorType(tensor) = declared.r#type.as_ref()?.value.as_ref()? else { return None };
    let size = |d: &rlx_onnx::proto::tensor_shape_proto::Dimension| match d.value {
        Some(Size::DimValue(n)) => usize::try_from(n).unwrap_or(2),
        _ => 2,
    };
    let dims: Vec<usize> =
        tensor.shape.as_ref().map(|s| s.dim.iter().map(size).collect()).unwrap_or_default();
    ones(&dims, rlx_onnx::dtype(tensor.elem_type()).ok()?)
}

fn ones(dims: &[usize], dtype: DType) -> Option<ConstData> {
    let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).filter(|&n| n <= MOST_ELEMENTS)?;
    let value = if dtype == DType::C64 {
        rlx_ir::Value::float(dtype, dims, vec![1.0; 2 * count])
    } else if dtype.is_float() {
        rlx_ir::Value::float(dtype, dims, vec![1.0; count])
    } else {
        rlx_ir::Value::int(dtype, dims, vec![1; count])
    };
    Some(value.to_const())
}

/// An input's name and ones for it; open dimensions are 2.
fn value(node: &rlx_ir::Node) -> Option<(String, ConstData)> {
    let Op::Input { name } = &node.op else { return None };
    let dims: Vec<usize> = sizes(&node.shape);
    Some((name.clone(), ones(&dims, node.shape.dtype())?))
}

fn sizes(shape: &Shape) -> Vec<usize> {
    let size = |d: &Dim| {
        d.as_static()
            .or_else(|| d.extent().range(&|_| rlx_ir::SymRange { min: 2, max: 2 }).max.try_into().ok())
    };
    shape.dims().iter().map(|d| size(d).unwrap_or(usize::MAX)).collect()
}

/// Whether all results together are small when open dimensions are 2.
fn affordable(graph: &Graph) -> bool {
    let mut total = 0usize;
    for node in graph.nodes() {
        for shape in node.results() {
            let count = sizes(shape).iter().try_fold(1usize, |n, &d| n.checked_mul(d));
            total = total.saturating_add(count.unwrap_or(usize::MAX));
        }
        if !node.op.bodies().iter().all(|b| affordable(&b.graph)) {
            return false;
        }
    }
    total <= MOST_ELEMENTS
}
