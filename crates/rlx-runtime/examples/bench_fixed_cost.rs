//! The fixed cost of a run: a network so small (64-128-64, one row) that calling it is a good part of its time, through
//! `run_slots`, and the same network with an open batch whose size changes from run to run.
//!
//! ```sh
//! cargo run --release -p rlx-runtime --example bench_fixed_cost
//! ```

use std::hint::black_box;
use std::time::Instant;

use rlx_runtime::op::{Activation, BinaryOp};
use rlx_runtime::{CompiledGraph, DType, Device, Dim, Graph, Session, Shape, sym};

fn network(batch: Dim) -> CompiledGraph {
    let shape = |n: usize| Shape::from_dims(&[batch, Dim::Static(n)], DType::F32);
    let mut g = Graph::new("mlp");
    let mut x = g.input("x", shape(64));
    for (layer, (from, to)) in [(64, 128), (128, 64)].into_iter().enumerate() {
        let w = g.param(format!("w{layer}"), Shape::new(&[from, to], DType::F32));
        let b = g.param(format!("b{layer}"), Shape::new(&[to], DType::F32));
        x = g.matmul(x, w, shape(to));
        x = g.binary(BinaryOp::Add, x, b, shape(to));
        x = g.activation(Activation::Relu, x, shape(to));
    }
    g.set_outputs(vec![x]);
    let mut compiled = Session::new(Device::Cpu).compile(g);
    for (name, len) in [("w0", 64 * 128), ("b0", 128), ("w1", 128 * 64), ("b1", 64)] {
        compiled.set_param(name, &vec![0.01; len]);
    }
    compiled
}

/// Nanoseconds per call: the median and the smallest of a hundred groups of calls.
fn time(mut call: impl FnMut()) -> (f64, f64) {
    const CALLS: u32 = 2000;
    let mut groups = Vec::new();
    for _ in 0..100 {
        let start = Instant::now();
        (0..CALLS).for_each(|_| call());
        groups.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS));
    }
    groups.sort_by(f64::total_cmp);
    (groups[groups.len() / 2], groups[0])
}

fn main() {
    let x = [0.25f32; 8 * 64];
    let mut fixed = network(Dim::Static(1));
    let (median, min) = time(|| _ = black_box(fixed.run_slots(&[&x[..64]])));
    println!("MLP 64-128-64, one row: median {median:.0} ns, min {min:.0} ns");
    let mut open = network(Dim::Dynamic(sym::BATCH));
    let mut rows = 0;
    let (median, min) = time(|| {
        rows = rows % 8 + 1;
        _ = black_box(open.run_slots(&[&x[..rows * 64]]));
    });
    println!("the same, one to eight rows in turn: median {median:.0} ns, min {min:.0} ns");
}
