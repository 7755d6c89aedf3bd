//! A counting allocator: `run_slots` allocates nothing, `run_into` neither, and `run` only what it returns.
//!
//! The test is one function, because the counter sees every thread of the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use rlx_ir::op::{Activation, BinaryOp};
use rlx_ir::{DType, Dim, Graph, Op, Shape, sym};
use rlx_runtime::{Cancel, CompiledGraph, Device, Progress, RunRequest, Session, TensorView};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting has no part in it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps `GlobalAlloc::alloc`'s rules, which are the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above; `ptr` came from the system's allocator.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// How many allocations `work` makes.
/// The counter sees the test harness's own thread as well, which may allocate at one moment; what `work` allocates, it
/// allocates each time.
fn allocations(mut work: impl FnMut()) -> usize {
    let mut once = || {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        work();
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    (0..3).map(|_| once()).min().unwrap_or(0)
}

/// Two layers over `batch` rows, and the rows' largest element as integers.
fn network(batch: Dim) -> CompiledGraph {
    let shape = |n: usize| Shape::from_dims(&[batch, Dim::Static(n)], DType::F32);
    let mut g = Graph::new("mlp");
    let x = g.input("x", shape(64));
    let w = g.param("w", Shape::new(&[64, 32], DType::F32));
    let b = g.param("b", Shape::new(&[32], DType::F32));
    let y = g.matmul(x, w, shape(32));
    let y = g.binary(BinaryOp::Add, y, b, shape(32));
    let y = g.activation(Activation::Gelu, y, shape(32));
    g.set_outputs(vec![y]);
    let mut compiled = Session::new(Device::Cpu).compile(g);
    compiled.set_param("w", &vec![0.01; 64 * 32]);
    compiled.set_param("b", &[0.5; 32]);
    compiled
}

/// Inputs and outputs that need converting at the f32 boundary.
fn integers() -> CompiledGraph {
    let shape = Shape::new(&[8], DType::I64);
    let mut g = Graph::new("ids");
    let x = g.input("x", shape.clone());
    let y = g.binary(BinaryOp::Add, x, x, shape);
    g.set_outputs(vec![y]);
    Session::new(Device::Cpu).compile(g)
}

/// A decoder's layer whose keys and values are put behind those of past runs, rewritten to caches of `capacity` rows.
fn decoder(capacity: usize) -> CompiledGraph {
    let (past, seq) = (Dim::Dynamic(sym::PAST_SEQ), Dim::Static(1));
    let rows = |length: Dim| Shape::from_dims(&[Dim::Static(1), length, Dim::Static(32)], DType::F32);
    let all = Dim::from(past.extent() + 1);
    let mut g = Graph::new("decoder");
    let x = g.input("x", rows(seq));
    let mut keys_and_values = Vec::new();
    for name in ["keys", "values"] {
        let (before, w) = (g.input(name, rows(past)), g.param(name, Shape::new(&[32, 32], DType::F32)));
        let new = g.matmul(x, w, rows(seq));
        keys_and_values.push(g.concat(vec![before, new], 1, rows(all)));
    }
    let [k, v] = keys_and_values[..] else { panic!("two caches") };
    let mask = rlx_ir::op::MaskKind::None;
    let op = Op::Attention {
        num_heads: 2,
        head_dim: 16,
        mask,
        window: None,
        scale: None,
        unseen: rlx_ir::op::Unseen::Zero,
    };
    let y = g.add_node(op, vec![x, k, v], rows(seq));
    g.set_outputs(vec![y, k, v]);
    let bounded = rlx_runtime::caches::with_capacity(&g, capacity).unwrap();
    assert_eq!(bounded.caches.len(), 2);
    let mut compiled = Session::new(Device::Cpu).compile(bounded.graph);
    for name in ["keys", "values"] {
        compiled.set_param(name, &[0.01; 32 * 32]);
        assert!(compiled.bind_handle(name, &vec![0.0; capacity * 32]));
    }
    compiled
}

/// One token of [`decoder`], the `past`-th.
fn token(compiled: &mut CompiledGraph, past: i64) {
    let (x, past) = ([0.5f32; 32].map(f32::to_le_bytes), past.to_le_bytes());
    let views = [
        TensorView { name: "x", dtype: DType::F32, dims: &[1, 1, 32], bytes: x.as_flattened() },
        TensorView { name: "past_length", dtype: DType::I64, dims: &[], bytes: &past },
    ];
    compiled.try_run_views(&views).unwrap();
    assert!(compiled.output_views().next().unwrap().as_f32().unwrap()[0].is_finite());
}

#[test]
fn runs_allocate_only_what_they_return() {
    let x = vec![0.25f32; 5 * 64];
    for (mut c, rows) in [(network(Dim::Static(5)), 5), (network(Dim::Dynamic(sym::BATCH)), 5)] {
        let mut out = vec![0.0; rows * 32];
        for _ in 0..3 {
            c.run_slots(&[&x]);
            c.run(&[("x", &x)]);
        }
        assert_eq!(allocations(|| _ = c.run_slots(&[&x])), 0);
        let cancel = Cancel::new().with_deadline(std::time::Duration::from_secs(3600));
        let watched = Progress::from(&cancel).reporting(|event| assert!(event.done < event.total));
        assert_eq!(allocations(|| _ = c.try_run_slots_with_progress(&[&x], &watched).unwrap()), 0);
        assert_eq!(allocations(|| c.run_into(&[("x", &x)], &mut [&mut out])), 0);
        assert_eq!(allocations(|| c.commit_no_wait(&[("x", &x)])), 0);
        let inputs: &[(&str, &[f32])] = &[("x", &x)];
        assert_eq!(allocations(|| _ = c.execute(RunRequest::from(inputs).outputs(&[0])).unwrap()), 0);
        let request = RunRequest::new().input("x", &x).output(0).progress(&watched);
        c.execute(&request).unwrap();
        assert_eq!(allocations(|| _ = c.execute(&request).unwrap().get(0).unwrap()), 0);
        // The list of outputs and the one output.
        assert_eq!(allocations(|| _ = c.run(&[("x", &x)])), 2);
        assert!(out.iter().all(|v| v.is_finite()));
    }
    let mut open = network(Dim::Dynamic(sym::BATCH));
    open.run_slots(&[&x]);
    // Fewer rows than before need no more memory.
    for rows in [1, 4, 2, 5, 3] {
        assert_eq!(allocations(|| _ = open.run_slots(&[&x[..rows * 64]])), 0, "{rows} rows");
    }
    let mut c = integers();
    let ids = [1.0f32; 8];
    c.run_slots(&[&ids]);
    assert_eq!(allocations(|| _ = c.run_slots(&[&ids])), 0);
    let mut kept = network(Dim::Static(5));
    kept.bind_handle("x", &x);
    kept.run_slots(&[]);
    assert_eq!(allocations(|| _ = kept.run_slots(&[])), 0);
    let mut fed = integers();
    fed.bind_handle("x", &ids);
    fed.set_gpu_handle_feed("x", 0);
    fed.run_slots(&[]);
    fed.run_slots(&[]);
    assert_eq!(allocations(|| _ = fed.run_slots(&[])), 0);
    // A decoder whose caches are updated in place: each token has another length, and nothing is bound again or allocated.
    let mut decoder = decoder(64);
    (0..3).for_each(|past| token(&mut decoder, past));
    let before = decoder.binding_stats();
    let mut past = 3;
    let mut next = || {
        token(&mut decoder, past);
        past += 1;
    };
    assert_eq!((0..16).map(|_| allocations(&mut next)).max(), Some(0));
    assert_eq!(decoder.binding_stats(), before);
}
