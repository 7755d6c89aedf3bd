//! The smallest and the largest elements in one step, as dynamic quantisation asks for them: against the oracle on every instruction set, with the same
//! bits on one thread and on two.

mod common;

use common::{backends, check, compile, f32s, run, values};
use rlx_ir::op::{BinaryOp, ReduceOp};
use rlx_ir::oracle::Bindings;
use rlx_ir::{DType, DimBinding, Graph, NodeId, Op, OpKind, Value};
use rlx_opt::CompileOptions;

/// The distance between the extremes of `x` along `axes`, and both of them.
fn graph(dims: &[usize], axes: &[usize], keep_dim: bool) -> Graph {
    let mut graph = Graph::new("range");
    let x = graph.input("x", f32s(dims));
    let reduce = |graph: &mut Graph, op| -> NodeId {
        graph.try_add(Op::Reduce { op, axes: axes.to_vec(), keep_dim }, &[x]).unwrap()
    };
    let high = reduce(&mut graph, ReduceOp::Max);
    // Stands between the two, and uses the first.
    let twice = graph.try_add(Op::Binary(BinaryOp::Add), &[high, high]).unwrap();
    let low = reduce(&mut graph, ReduceOp::Min);
    let range = graph.try_add(Op::Binary(BinaryOp::Sub), &[twice, low]).unwrap();
    graph.set_outputs(vec![range, low, high]);
    graph
}

fn given(x: Value) -> Bindings {
    let mut bindings = Bindings::default();
    bindings.set_input("x", x);
    bindings
}

#[test]
fn all_shapes_agree_with_the_oracle() {
    let cases: [(&[usize], &[usize]); 10] = [
        (&[1], &[0]),
        (&[5, 7], &[0, 1]),
        (&[5, 70], &[1]),
        (&[70, 33], &[0]),
        (&[3, 20, 9], &[0, 2]),
        (&[2, 4, 5, 6], &[2, 3]),
        (&[300, 40], &[1]),
        (&[3, 140_001], &[1]),
        (&[200_003], &[0]),
        (&[0, 4], &[1]),
    ];
    for (seed, (dims, axes)) in cases.into_iter().enumerate() {
        let graph = graph(dims, axes, seed % 2 == 0);
        let bindings = given(values(seed as u64, dims));
        check(&graph, &bindings, &DimBinding::new());
        let mut results = Vec::new();
        for (name, backend) in backends() {
            let mut exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
            let graph = &exec.lir().graph;
            assert!(graph.nodes().iter().all(|n| n.op.kind() != OpKind::Reduce), "{name}: {}", exec.lir());
            results.push(run(&mut *exec, &bindings, &DimBinding::new()).unwrap());
        }
        // Nothing is rounded, so all are the same.
        assert!(results.windows(2).all(|w| w[0] == w[1]), "{dims:?}");
    }
}

#[test]
fn one_nan_makes_both_nan_and_infinities_stay() {
    let (n, inf) = (140_001, f32::INFINITY);
    let graph = graph(&[2, n], &[1], false);
    for at in [0, 1, 15, 16, 64, 77_777, n - 1] {
        for odd in [f32::NAN, inf, -inf] {
            let mut x = vec![0.5; 2 * n];
            (x[at], x[n]) = (f64::from(odd), -2.0);
            let bindings = given(Value::float(DType::F32, &[2, n], x));
            let (low, high) = match odd {
                x if x.is_nan() => (x, x),
                x => (x.min(0.5), x.max(0.5)),
            };
            for (name, backend) in backends() {
                let mut exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
                let got = run(&mut *exec, &bindings, &DimBinding::new()).unwrap();
                let [lows, highs] = [1, 2].map(|i| {
                    let (floats, _) = got[i].as_chunks::<4>();
                    floats.iter().map(|&x| f32::from_le_bytes(x).to_string()).collect::<Vec<_>>()
                });
                assert_eq!(lows, [low, -2.0].map(|x| x.to_string()), "{name}, {odd} at {at}");
                assert_eq!(highs, [high, 0.5].map(|x| x.to_string()), "{name}, {odd} at {at}");
            }
        }
    }
}
