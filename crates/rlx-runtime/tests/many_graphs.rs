//! A process that compiles, runs and drops graphs all the time needs no more memory for the ten-thousandth than for the
//! thousandth.
//!
//! The graphs are random, of fixed and of open dimensions, and no two have a name, a symbol or a weight in common. Two numbers
//! are taken: the bytes that are allocated between two graphs, which any table that grows shows at once, and the resident memory
//! of the process, which also shows what the allocator cannot use again. The test is one function, because both count the
//! whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use rlx_ir::op::BinaryOp;
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{random_graph, random_symbolic_graph};
use rlx_ir::{ConstData, DType, Dim, Graph, Shape, sym};
use rlx_opt::{CompileOptions, Tune};
use rlx_runtime::{Device, Session, TensorView, Weight, WeightStore};

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting has no part in it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        NOW.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps `GlobalAlloc::alloc`'s rules, which are the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above; `ptr` came from the system's allocator.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// How many graphs there are in all, and after how many memory must not grow any more.
const GRAPHS: u64 = 10_000;
const FIRST: u64 = 1_000;
/// Memory is looked at after so many graphs.
const EVERY: u64 = 500;

/// What may come on top, for all graphs together: room in tables that grows now and then.
const MOST_ALLOCATED: usize = 64 << 10;
const MOST_RESIDENT: usize = 1 << 20;

/// The resident memory of the process, where the system tells.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok()).unwrap_or(0) << 10
}

/// A layer over rows whose number has a name of its own; its weight is packed before the first run.
fn layer(seed: u64) -> (Graph, Bindings) {
    let (rows, width) = (Dim::Dynamic(sym::named(&format!("rows of {seed}"))), 1 + (seed % 40) as usize);
    let shape = |n: usize| Shape::from_dims(&[rows, Dim::Static(n)], DType::F32);
    let mut g = Graph::new(format!("layer {seed}"));
    let x = g.input(format!("x{seed}"), shape(8));
    let w = g.param(format!("w{seed}"), Shape::new(&[8, width], DType::F32));
    let y = g.matmul(x, w, shape(width));
    let y = g.binary(BinaryOp::Add, y, y, shape(width));
    g.set_outputs(vec![y]);
    let dims =
        rlx_ir::DimBinding::from_pairs(&[(sym::named(&format!("rows of {seed}")), 1 + seed as usize % 7)]);
    let bindings = rlx_ir::testing::random_bindings(&g, &dims, seed);
    (g, bindings)
}

/// Compiles a graph, runs it once or at several sizes, and drops it. Says how many runs succeeded.
fn compile_and_run(session: &Session, graph: Graph, samples: &[Bindings], shared: bool) -> usize {
    let options = CompileOptions::default().tune(Tune::Off).with_shared_arena(shared);
    let Ok(mut compiled) = session.try_compile_with(graph, &options) else { return 0 };
    let mut ran = 0;
    for sample in samples {
        let mut weights = WeightStore::new();
        for info in compiled.params() {
            let value = sample.param(&info.name).expect("random values are complete");
            let weight = Weight::owned(value.dtype, &value.dims, value.encode()).expect("a weight");
            weights.insert(info.name.clone(), weight);
        }
        compiled.try_set_weights(&weights).expect("the graph's own weights");
        let of = |name: &str| sample.input(name).expect("random values are complete").to_const();
        let inputs: Vec<(String, ConstData)> =
            compiled.inputs().iter().map(|info| (info.name.clone(), of(&info.name))).collect();
        let views: Vec<TensorView<'_>> =
            inputs.iter().map(|(name, data)| (name.as_str(), data).into()).collect();
        // An index may be out of range: what counts here is what is left afterwards.
        ran += usize::from(compiled.try_run_tensors(&views).is_ok());
    }
    ran
}

/// The graph of this number, and values for it.
fn graph(seed: u64) -> (Graph, Vec<Bindings>) {
    let size = 1 + seed as usize % 6;
    match seed % 3 {
        0 => random_symbolic_graph(seed, size),
        1 => {
            let (graph, bindings) = random_graph(seed, size);
            (graph, vec![bindings])
        }
        _ => {
            let (graph, bindings) = layer(seed);
            (graph, vec![bindings])
        }
    }
}

#[test]
fn memory_is_flat_over_ten_thousand_graphs() {
    let session = Session::new(Device::Cpu);
    let (mut allocated, mut most_resident) = (Vec::new(), 0);
    let (mut first_resident, mut ran) = (0, 0);
    for seed in 0..GRAPHS {
        rlx_ir::dim::scoped(|| {
            let (graph, samples) = graph(seed);
            ran += usize::from(compile_and_run(&session, graph, &samples, seed % 5 == 0) == samples.len());
        });
        if (seed + 1) % EVERY != 0 {
            continue;
        }
        // What has no owner stays for a while; how much of it there is, is no matter here.
        rlx_ir::dim::release_unused();
        let (now, pages) = (NOW.load(Ordering::Relaxed), resident());
        println!("after {}: {} kB allocated, {} kB resident", seed + 1, now >> 10, pages >> 10);
        if seed < FIRST {
            first_resident = pages;
            allocated = vec![now];
        } else {
            allocated.push(now);
            most_resident = most_resident.max(pages);
        }
    }
    assert!(ran as u64 > GRAPHS * 9 / 10, "{ran} of {GRAPHS} graphs ran");
    let grown = allocated.iter().max().expect("it was counted") - allocated[0];
    assert!(
        grown <= MOST_ALLOCATED,
        "{grown} bytes more are allocated after {GRAPHS} graphs than after {FIRST}"
    );
    let grown = most_resident.saturating_sub(first_resident);
    assert!(
        grown <= MOST_RESIDENT,
        "{grown} bytes more are resident after {GRAPHS} graphs than after {FIRST}"
    );
}
