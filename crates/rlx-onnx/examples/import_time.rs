//! How long importing and compiling for the CPU take (time of the processor), and how much memory:
//! `cargo run --release -p rlx-onnx --example import_time [NODES [FAMILY] | FILE.onnx [parts]]`.
//!
//! Without a file each family of large models is measured, or the one that is named. Each is written to a file first, which a
//! process of its own reads, so that making it does not count. With `parts` it says how long each pass of the compiler took, and
//! how much was allocated at most and in the end by each part of the work.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use prost::Message;
use rlx_ir::progress::{Event, Progress, Stage};
use rlx_onnx::testing::{FAMILIES, Family};
use rlx_onnx::{ImportOptions, OnnxFile, import_with_progress};
use rlx_runtime::{CompileOptions, CompiledGraph, Device, Session};

/// Counts the bytes that are allocated, once [`COUNTS`] is set: counting takes time.
struct Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn add(size: usize) {
    if COUNTS.load(Ordering::Relaxed) {
        let now = NOW.fetch_add(size, Ordering::Relaxed) + size;
        MOST.fetch_max(now, Ordering::Relaxed);
    }
}

fn remove(size: usize) {
    if COUNTS.load(Ordering::Relaxed) {
        NOW.fetch_sub(size, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator unchanged; counting has no part in it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller keeps `GlobalAlloc::alloc`'s rules, which are the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        remove(layout.size());
        // SAFETY: as above; `ptr` came from the system's allocator.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size);
        remove(layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const MB: f64 = 1048576.0;

/// The most resident memory that the process has had, in MB.
fn peak() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

/// Says what was allocated since it last said so.
fn say(part: &str) {
    let (now, most) = (NOW.load(Ordering::Relaxed), MOST.swap(0, Ordering::Relaxed));
    MOST.fetch_max(now, Ordering::Relaxed);
    println!("{part:>36} {:>7.1} MB, at most {:>7.1} MB until then", now as f64 / MB, most as f64 / MB);
}

/// How long this thread has been computing, where the system tells: other programs do not count.
fn busy() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let on_cpu = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = on_cpu.and_then(|s| s.split_whitespace().next().and_then(|n| n.parse().ok()));
    nanos.map_or_else(|| START.elapsed(), Duration::from_nanos)
}

/// The time that importing and compiling take, and what comes of it.
fn work(path: &Path, progress: &Progress) -> ([Duration; 2], Result<(usize, CompiledGraph), rlx_ir::Error>) {
    let start = busy();
    let file = OnnxFile::open(path);
    let imported = file.and_then(|file| import_with_progress(&file, &ImportOptions::default(), progress));
    let import = busy() - start;
    let start = busy();
    let compiled = imported.and_then(|imported| {
        let nodes = imported.graph.len();
        let session = Session::new(Device::Cpu);
        Ok((nodes, session.try_compile_with_progress(imported.graph, &CompileOptions::default(), progress)?))
    });
    ([import, busy() - start], compiled)
}

/// Measures a file, called `name`.
fn measure(name: &str, path: &Path, parts: bool) {
    COUNTS.store(parts, Ordering::Relaxed);
    let size = std::fs::metadata(path).map_or(0.0, |m| m.len() as f64);
    let before = peak();
    let heard = |event: Event<'_>| {
        if event.stage != Stage::Import {
            say(&event.to_string());
        }
    };
    let progress = if parts { Progress::none().reporting(heard) } else { Progress::none() };
    let ([import, compile], made) = work(path, &progress);
    let (used, beyond) = (peak() - before, peak() - before - 10.0 * size / MB);
    let what = match &made {
        Ok((nodes, _)) => format!("{nodes} nodes"),
        Err(e) => e.to_string().chars().take(150).collect(),
    };
    println!(
        "{name:<26} {:>7.0} kB  import {:>7.3} s  compile {:>7.3} s  {used:>5.0} MB ({beyond:>5.0} beyond 10x)  {what}",
        size / 1024.0,
        import.as_secs_f64(),
        compile.as_secs_f64(),
    );
    if let (true, Ok((_, compiled))) = (parts, &made) {
        say("the executable");
        for pass in compiled.passes() {
            println!("{:>36} {:>7.1} ms  {} nodes", pass.name, pass.time.as_secs_f64() * 1e3, pass.nodes.1);
        }
    }
}

/// Measures a model of a family in a process of its own.
fn measure_family((name, make): &Family, count: usize) -> std::io::Result<()> {
    let path = std::env::temp_dir().join(format!("{name}-{count}-{}.onnx", std::process::id()));
    std::fs::write(&path, make(count).encode_to_vec())?;
    let status = Command::new(std::env::current_exe()?).arg(&path).arg(name).status();
    std::fs::remove_file(&path)?;
    if status?.success() { Ok(()) } else { Err(std::io::Error::other("the process failed")) }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let count = args.first().map_or(Ok(10_000), |n| n.parse::<usize>());
    let Ok(count) = count else {
        let parts = args[1..].contains(&"parts");
        measure(args.get(1).filter(|_| !parts).unwrap_or(&args[0]), Path::new(args[0]), parts);
        return ExitCode::SUCCESS;
    };
    let wanted = |family: &&Family| args.get(1).is_none_or(|name| family.0 == *name);
    for family in FAMILIES.iter().filter(wanted) {
        if let Err(e) = measure_family(family, count) {
            eprintln!("{}: {e}", family.0);
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
