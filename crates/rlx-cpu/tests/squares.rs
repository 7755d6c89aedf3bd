//! Squares that are summed as they are computed: against the oracle on every instruction set, and to the bit of the two steps.

mod common;

use common::{backends, check, compile, run, unfused};
use rlx_ir::op::{BinaryOp, ReduceOp};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, DimBinding, Graph, Op, OpKind, Shape, Value};
use rlx_opt::CompileOptions;

/// The reduction along `axes` of the squares of `x`, whose dimensions are swapped first if `swapped`.
fn graph(dims: &[usize], dtype: DType, op: ReduceOp, axes: &[usize], swapped: bool) -> Graph {
    let mut graph = Graph::new("squares");
    let mut x = graph.input("x", Shape::new(dims, dtype));
    if swapped {
        let perm = (0..dims.len()).rev().collect();
        x = graph.try_add(Op::Transpose { perm }, &[x]).unwrap();
    }
    let squares = graph.try_add(Op::Binary(BinaryOp::Mul), &[x, x]).unwrap();
    let reduce = Op::Reduce { op, axes: axes.to_vec(), keep_dim: true };
    let y = graph.try_add(reduce, &[squares]).unwrap();
    graph.set_outputs(vec![y]);
    graph
}

/// Both ways, which must give the same; the first must have no step that multiplies.
fn check_both(graph: &Graph, bindings: &Bindings) {
    check(graph, bindings, &DimBinding::new());
    for (name, backend) in backends() {
        let [mut fused, mut apart] =
            [CompileOptions::default(), unfused()].map(|options| compile(graph, &backend, &options).unwrap());
        let alone = |kind| fused.lir().graph.nodes().iter().any(|n| n.op.kind() == kind);
        assert!(!alone(OpKind::Reduce) && !alone(OpKind::Binary), "{name}: {}", fused.lir());
        let fused = run(&mut *fused, bindings, &DimBinding::new()).unwrap();
        let apart = run(&mut *apart, bindings, &DimBinding::new()).unwrap();
        assert_eq!(fused, apart, "{name}: {graph}");
    }
}

#[test]
fn every_order_of_elements_has_the_bits_of_two_steps() {
    // Rows, long rows, columns, columns far apart, both, and dimensions that are no neighbours.
    let cases: [(&[usize], &[usize]); 9] = [
        (&[1], &[0]),
        (&[5, 7], &[0, 1]),
        (&[70, 32], &[1]),
        (&[3, 140_001], &[1]),
        (&[70, 33], &[0]),
        (&[300, 2051], &[0]),
        (&[3, 20, 9], &[0, 2]),
        (&[2, 3, 4, 5], &[1, 3]),
        (&[0, 4], &[1]),
    ];
    for (seed, (dims, axes)) in cases.into_iter().enumerate() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let op = [ReduceOp::Sum, ReduceOp::Mean][seed % 2];
            let swapped = dims.len() > 2 || seed % 3 == 0;
            let place = |&axis: &usize| if swapped { dims.len() - 1 - axis } else { axis };
            let mut axes: Vec<usize> = axes.iter().map(place).collect();
            axes.sort_unstable();
            let graph = graph(dims, dtype, op, &axes, swapped);
            let mut bindings = Bindings::default();
            bindings.set_input("x", Gen::new(seed as u64).value(dtype, dims, -1.0..1.0));
            check_both(&graph, &bindings);
        }
    }
}

#[test]
fn squares_that_something_else_reads_stay_in_memory() {
    let mut graph = graph(&[4, 64], DType::F32, ReduceOp::Sum, &[1], false);
    let squares = graph.nodes().iter().find(|n| n.op.kind() == OpKind::Binary).map(|n| n.id);
    let outputs = graph.outputs.iter().copied().chain(squares).collect();
    graph.set_outputs(outputs);
    let (_, backend) = backends().remove(0);
    let exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
    assert!(exec.lir().graph.nodes().iter().any(|n| n.op.kind() == OpKind::Reduce), "{}", exec.lir());
}

#[test]
fn odd_values_are_squared_like_others() {
    for (odd, want) in [(f64::NAN, f32::NAN), (f64::INFINITY, f32::INFINITY), (3e38, f32::INFINITY)] {
        let graph = graph(&[2, 50], DType::F32, ReduceOp::Sum, &[1], false);
        let mut x = vec![0.5; 100];
        x[37] = odd;
        let mut bindings = Bindings::default();
        bindings.set_input("x", Value::float(DType::F32, &[2, 50], x));
        for (name, backend) in backends() {
            let mut exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
            let bytes = run(&mut *exec, &bindings, &DimBinding::new()).unwrap().remove(0);
            let (rows, _) = bytes.as_chunks::<4>();
            let [got, other] = [rows[0], rows[1]].map(f32::from_le_bytes);
            assert!(got == want || got.is_nan() && want.is_nan(), "{name}: {got} of {odd}");
            assert_eq!(other, 12.5, "{name}");
        }
    }
}
