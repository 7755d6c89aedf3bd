//! A run allocates nothing with dimensions that it has a binding for; nor with smaller ones than before, once it has all the
//! bindings that it keeps.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use common::{compile, run};
use rlx_backend::executor::BINDINGS;
use rlx_cpu::CpuBackend;
use rlx_cpu::pool::{Pool, Wake};
use rlx_ir::op::{Activation, BinaryOp, ReduceOp};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Dim, DimBinding, Graph, Op, Shape, sym};
use rlx_opt::CompileOptions;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A bit of everything: packed and unpacked matmuls, a region, a softmax, a norm, copies, reductions.
fn graph() -> Graph {
    let mut g = Graph::new("all");
    let add = |g: &mut Graph, op: Op, inputs: &[_]| g.try_add(op, inputs).expect("a valid op");
    let dims = [Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ), Dim::Static(64)];
    let x = g.input("x", Shape::from_dims(&dims, DType::F32));
    let w = g.param("w", Shape::new(&[64, 64], DType::F32));
    let gamma = g.param("gamma", Shape::new(&[64], DType::F32));
    let q = add(&mut g, Op::MatMul, &[x, w]);
    let q = add(&mut g, Op::Activation(Activation::Gelu), &[q]);
    let t = add(&mut g, Op::Transpose { perm: vec![0, 2, 1] }, &[x]);
    let s = add(&mut g, Op::MatMul, &[q, t]);
    let s = add(&mut g, Op::Softmax { axis: -1 }, &[s]);
    let y = add(&mut g, Op::MatMul, &[s, x]);
    let y = add(&mut g, Op::Binary(BinaryOp::Add), &[y, x]);
    let y = add(&mut g, Op::LayerNorm { axis: -1, eps: 1e-5 }, &[y, gamma]);
    let z = add(&mut g, Op::Reduce { op: ReduceOp::Sum, axes: vec![1], keep_dim: true }, &[y]);
    let y = add(&mut g, Op::Binary(BinaryOp::Mul), &[y, z]);
    g.set_outputs(vec![y]);
    g
}

/// The backend on this many threads, all of which have started: a thread allocates a copy of its name when it does, and
/// on a busy machine that may be as late as in a run that is counted.
fn backend(threads: usize) -> CpuBackend {
    let pool = Pool::new(threads).expect("a pool");
    assert_eq!(pool.threads(), threads, "the system starts them");
    let all = Barrier::new(threads);
    pool.enter(Wake::Yes).parallel_for(threads, &|_| {
        all.wait();
    });
    CpuBackend::new().with_pool(Arc::new(pool))
}

/// Whether any of a few runs allocates, and which.
fn allocations(threads: usize) -> Result<(), String> {
    let backend = backend(threads);
    let mut exec = compile(&graph(), &backend, &CompileOptions::default()).expect("it compiles");
    let mut b = Bindings::default();
    b.set_input("x", Gen::new(1).value(DType::F32, &[4, 30, 64], -1.0..1.0));
    b.set_param("w", Gen::new(2).value(DType::F32, &[64, 64], -0.2..0.2));
    b.set_param("gamma", Gen::new(3).value(DType::F32, &[64], 0.5..1.0));
    run(&mut *exec, &b, &DimBinding::batch_seq(4, 30)).expect("it runs");
    let input = vec![0u8; 4 * 30 * 64 * 4];
    let of = |dims: &[i64; 2]| vec![vec![0u8; dims[0] as usize * dims[1] as usize * 64 * 4]];
    for seq in 1..=BINDINGS as i64 {
        exec.run(&&of(&[4, seq])[..], &[4, seq]).expect("it runs");
    }
    exec.run(&&[input][..], &[4, 30]).expect("it runs");
    // Sizes that are kept, and such that it never ran with, which take the memory of the oldest.
    for dims in [[4, 30], [2, 7], [4, 30], [4, 30], [3, 29], [1, 1], [2, 7], [4, 28]] {
        let inputs = of(&dims);
        let source = &inputs[..];
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        exec.run(&source, &dims).expect("it ran before");
        let count = ALLOCATIONS.load(Ordering::Relaxed) - before;
        if count != 0 {
            return Err(format!("{count} allocations in a run with {dims:?} on {threads} threads"));
        }
    }
    Ok(())
}

/// The sum of the places of what is not zero, by a step that counts and steps that wait for it.
fn counting_graph() -> Graph {
    let mut g = Graph::new("counts");
    let add = |g: &mut Graph, op: Op, inputs: &[_]| g.try_add(op, inputs).expect("a valid op");
    let x = g.input("x", Shape::new(&[40], DType::F32));
    let places = add(&mut g, Op::NonZero { count: Dim::Dynamic(sym::named("found")) }, &[x]);
    let places = add(&mut g, Op::Cast { to: DType::F32 }, &[places]);
    let y = add(&mut g, Op::Binary(BinaryOp::Mul), &[places, places]);
    let sum = add(&mut g, Op::Reduce { op: ReduceOp::Sum, axes: vec![0, 1], keep_dim: false }, &[y]);
    g.set_outputs(vec![y, sum]);
    g
}

/// As [`allocations`], with numbers that each run finds out again.
fn allocations_of_counting(threads: usize) -> Result<(), String> {
    let backend = backend(threads);
    let mut exec = compile(&counting_graph(), &backend, &CompileOptions::default()).expect("it compiles");
    let of = |found: usize| -> Vec<u8> {
        (0..40).flat_map(|i| if i < found { 1f32 } else { 0.0 }.to_le_bytes()).collect()
    };
    let inputs = [40, 7, 0, 39, 7, 40].map(|found| [of(found)]);
    exec.run(&&inputs[0][..], &[]).expect("it runs");
    for (input, found) in inputs.iter().zip([40, 7, 0, 39, 7, 40]) {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        exec.run(&&input[..], &[]).expect("it ran before");
        let count = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert_eq!(exec.output(0).expect("it ran").len(), found * 4, "one place for each that was found");
        if count != 0 {
            return Err(format!("{count} allocations in a run that finds {found} on {threads} threads"));
        }
    }
    Ok(())
}

#[test]
fn runs_allocate_nothing() {
    for of in [allocations, allocations_of_counting] {
        for threads in [1, 2] {
            // The counter sees the test harness's own thread as well, which may allocate at one moment; what a run
            // allocates, it allocates each time.
            let tries: Vec<_> = (0..3).map(|_| of(threads)).collect();
            assert!(tries.iter().any(Result::is_ok), "{tries:?}");
        }
    }
}
