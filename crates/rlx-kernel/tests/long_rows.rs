//! Rows of one to several workgroups' blocks, of every op that goes along rows, against the oracle: lengths on both sides of those at which another
//! schedule takes over, and of those that come in parts.

mod common;

use common::{apple, disagreement, native, shorts, try_compiled, words};
use rlx_ir::op::ReduceOp;
use rlx_ir::ops::parts::PART;
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Dim, ErrorKind, Graph, Op, Shape, Value, sym};
use rlx_kernel::KernelTarget;

/// Random cases of each family.
const CASES: u64 = 500;
/// How many of these a device may reject: f64 where there is none.
const REJECTED: u64 = CASES / 10;
/// Elements of a case's operand, unless a row alone has more.
const MOST: usize = 3000;

/// Where a schedule, or its last round, changes.
const EDGES: [usize; 5] = [32, 64, 512, 1024, PART];

/// A row's length.
fn length(g: &mut Gen) -> usize {
    match g.size(0..=39) {
        0..=25 => g.size(1..=400),
        26..=36 => g.pick(&EDGES) + g.size(0..=2) - 1,
        37..=38 => g.size(PART + 1..=2 * PART),
        _ => 4 * PART + g.size(0..=PART / 4),
    }
}

/// Dimensions with a row, and its axis.
fn dims(g: &mut Gen, length: usize) -> (Vec<usize>, usize) {
    let mut dims = g.dims(0..=2, 1..=40);
    while dims.iter().product::<usize>() * length > MOST.max(length * 2) {
        dims.iter_mut().for_each(|d| *d = d.div_ceil(2));
    }
    let axis = g.size(0..=dims.len());
    dims.insert(axis, length);
    (dims, axis)
}

fn target(seed: u64, dtype: DType) -> KernelTarget {
    match seed % 4 {
        _ if dtype == DType::F64 => native(),
        0 => native(),
        1 => words(),
        2 => shorts(),
        _ => apple(),
    }
}

/// Whether the device computes it; what it computes is the oracle's.
fn agrees(seed: u64, op: Op, inputs: Vec<Value>) -> bool {
    let target = target(seed, inputs[0].dtype);
    let (mut graph, mut bindings) = (Graph::new("long"), Bindings::default());
    let mut ids = Vec::new();
    for (i, x) in inputs.into_iter().enumerate() {
        ids.push(graph.input(format!("x{i}"), Shape::new(&x.dims, x.dtype)));
        bindings.set_input(format!("x{i}"), x);
    }
    let y = graph.try_add(op, &ids).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let results = graph.node(y).results().len();
    let outputs = (0..results).map(|i| graph.result(y, i).unwrap()).collect();
    graph.set_outputs(outputs);
    match try_compiled(&graph, &target) {
        Ok(executable) => {
            if let Some(what) = disagreement(&graph, &bindings, &executable) {
                panic!("{} seed {seed}: {what}\n{graph}", target.name);
            }
            true
        }
        Err(e) if e.kind() == ErrorKind::Unsupported => false,
        Err(e) => panic!("{} seed {seed}: {e}\n{graph}", target.name),
    }
}

/// Random cases that `make` makes.
fn check(make: fn(&mut Gen) -> (Op, Vec<Value>)) {
    let run = |seed: u64| {
        let (op, inputs) = make(&mut Gen::new(seed));
        agrees(seed, op, inputs)
    };
    let rejected = (0..CASES).filter(|&seed| !run(seed)).count() as u64;
    assert!(rejected <= REJECTED, "{rejected} of {CASES} were rejected");
}

const NUMBERS: [DType; 9] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F64,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::I16,
    DType::U32,
];
const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// A reduction and its operand, whose sums and products the types hold and floats do not cancel.
fn reducible(g: &mut Gen, ops: &[ReduceOp], dims: &[usize]) -> (ReduceOp, Value) {
    let op = g.pick(ops);
    let ordered = matches!(op, ReduceOp::Max | ReduceOp::Min);
    let dtype = if ordered && g.chance(0.1) { DType::Bool } else { g.pick(&NUMBERS) };
    let range = match op {
        _ if !dtype.is_float() || ordered => -3.0..3.0,
        ReduceOp::Prod => 0.99..1.01,
        _ => 0.5..1.5,
    };
    (op, g.value(dtype, dims, range))
}

#[test]
fn reductions_of_rows_and_columns_agree() {
    check(|g| {
        let n = length(g);
        let (dims, axis) = dims(g, n);
        let all = [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min, ReduceOp::Prod];
        let (op, x) = reducible(g, &all, &dims);
        let axes = (0..dims.len()).filter(|&i| i == axis || g.chance(0.2)).collect();
        (Op::Reduce { op, axes, keep_dim: g.chance(0.5) }, vec![x])
    });
}

#[test]
fn running_reductions_agree() {
    check(|g| {
        let n = length(g);
        let (dims, axis) = dims(g, n);
        let all = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min];
        let (op, x) = reducible(g, &all, &dims);
        (Op::Cumulative { op, axis, exclusive: g.chance(0.5), reverse: g.chance(0.5) }, vec![x])
    });
}

/// An operand with ties.
fn tied(g: &mut Gen, dims: &[usize]) -> Value {
    let dtype = g.pick(&NUMBERS);
    tied_of(g, dtype, dims)
}

fn tied_of(g: &mut Gen, dtype: DType, dims: &[usize]) -> Value {
    let mut x = g.value(dtype, dims, -3.0..3.0);
    if let rlx_ir::tensor::Elements::Float(v) = &mut x.elements {
        v.iter_mut().for_each(|v| *v = (*v * 8.0).round() / 8.0);
        if g.chance(0.2) {
            let at = g.size(0..=v.len() - 1);
            v[at] = f64::NAN;
        }
    }
    x
}

#[test]
fn places_of_extremes_agree() {
    check(|g| {
        let n = length(g);
        let (dims, axis) = dims(g, n);
        let x = tied(g, &dims);
        (Op::ArgReduce { op: g.variant(), axis, keep_dim: g.chance(0.5), last: g.chance(0.5) }, vec![x])
    });
}

/// How many elements are wanted of a row: few of many rows, or more of few rows, which are sorted. Then the dimensions, and the axis.
fn wanted(g: &mut Gen, n: usize) -> (usize, Vec<usize>, usize) {
    if g.chance(0.4) {
        let (dims, axis) = dims(g, n);
        return (g.size(0..=n.min(9)), dims, axis);
    }
    let mut dims = if n > 400 { Vec::new() } else { g.dims(0..=1, 1..=3) };
    let axis = g.size(0..=dims.len());
    dims.insert(axis, n);
    (g.size(0..=n.min(1100)), dims, axis)
}

#[test]
fn first_elements_agree() {
    check(|g| {
        let n = if g.chance(0.01) { 2 * PART + g.size(0..=PART) } else { length(g).min(PART + 1) };
        let (k, dims, axis) = wanted(g, n);
        let x = tied(g, &dims);
        (Op::TopK { k: Dim::Static(k), axis, largest: g.chance(0.5), sorted: true }, vec![x])
    });
}

/// The numbers that are wanted of a row whose length only the run says, on devices with and without 64-bit integers.
#[test]
fn first_elements_of_rows_of_any_length_agree() {
    let open = |name: &str| Dim::Dynamic(sym::named(name));
    for seed in 0..40 {
        let g = &mut Gen::new(seed);
        let most = if g.chance(0.1) { 2500 } else { 300 };
        let n = g.size(1..=most);
        let (k, count) = match g.size(0..=2) {
            0 => (Dim::Static(n.min(9)), n.min(9)),
            1 => (Dim::Static(n.min(70)), n.min(70)),
            _ => (open("n"), n),
        };
        let x = tied(g, &[2, n]);
        let mut graph = Graph::new("open");
        let id = graph.input("x", Shape::from_dims(&[Dim::Static(2), open("n")], x.dtype));
        let y = graph.try_add(Op::TopK { k, axis: 1, largest: g.chance(0.5), sorted: true }, &[id]).unwrap();
        let outputs = (0..2).map(|i| graph.result(y, i).unwrap()).collect();
        graph.set_outputs(outputs);
        let target = target(seed, x.dtype);
        let mut bindings = Bindings::default();
        bindings.set_input("x", x);
        let executable = try_compiled(&graph, &target).unwrap();
        let differs = disagreement(&graph, &bindings, &executable);
        assert_eq!(differs, None, "{} seed {seed}: {count} of {n}\n{graph}", target.name);
    }
}

#[test]
fn more_elements_than_a_workgroup_sorts_agree() {
    for (seed, (k, n, dtype)) in
        [(1500, 2000, DType::F32), (2049, 2049, DType::I64), (2100, 8200, DType::F16)].into_iter().enumerate()
    {
        let x = tied_of(&mut Gen::new(seed as u64), dtype, &[n]);
        let op = Op::TopK { k: Dim::Static(k), axis: 0, largest: true, sorted: true };
        assert!(agrees(seed as u64, op, vec![x]), "{k} of {n}");
    }
}

#[test]
fn softmax_and_norms_agree() {
    check(|g| {
        let n = if g.chance(0.004) { 16 * PART + 1 } else { length(g).max(2) };
        let (dims, at) = dims(g, n);
        let dtype = g.pick(&FLOATS);
        let mut inputs = vec![g.value(dtype, &dims, -4.0..4.0)];
        let (axis, parameters, eps) = (at as i32, &dims[at..], 1e-3);
        let op = match g.size(0..=3) {
            0 => Op::Softmax { axis },
            1 => Op::LogSoftmax { axis },
            2 => Op::RmsNorm { axis, eps },
            _ => Op::LayerNorm { axis, eps },
        };
        let count = match op {
            Op::LayerNorm { .. } => 2,
            Op::RmsNorm { .. } => 1,
            _ => 0,
        };
        inputs.extend((0..count).map(|_| g.value(dtype, parameters, 0.5..1.5)));
        (op, inputs)
    });
}
