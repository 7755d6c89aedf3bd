//! What must hold of values at the borders: attributes that are no numbers, loops without an end, sizes beyond any memory.

use rlx_ir::op::{BinaryOp, Body, GateFunction, RecurrentCell};
use rlx_ir::oracle::{Allowance, Bindings, evaluate_with_progress};
use rlx_ir::{Cancel, DType, Dim, ErrorKind, Graph, Op, Progress, Shape, Value};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn every_op_is_equal_to_its_copy() {
    let norm = |eps: f32| Op::RmsNorm { axis: -1, eps };
    let gates = |alpha: f32| Op::Recurrent {
        cell: RecurrentCell::Rnn,
        functions: vec![GateFunction::LeakyRelu { alpha }],
        clip: Some(alpha),
        coupled: false,
        reverse: false,
        peepholes: false,
        lengths: false,
    };
    for op in [norm(f32::NAN), norm(0.0), gates(f32::NAN), gates(f32::INFINITY)] {
        assert_eq!(op, op.clone());
    }
    assert_eq!(norm(f32::NAN), norm(-f32::NAN));
    assert_ne!(norm(0.0), norm(-0.0));
    assert_ne!(norm(0.0), norm(f32::NAN));
    assert_ne!(gates(0.5), gates(0.25));
    assert_ne!(norm(1.0), Op::RmsNorm { axis: 0, eps: 1.0 });
    assert_ne!(norm(1.0), Op::LayerNorm { axis: -1, eps: 1.0 });
    assert_ne!(Op::Binary(BinaryOp::Add), Op::Binary(BinaryOp::Sub));
}

/// A loop whose body is `inner`'s sum with itself, for ever.
fn endless(inner: Option<Arc<Body>>) -> Graph {
    let shape = Shape::new(&[2], DType::F32);
    let mut body = Graph::new("body");
    let iteration = body.input("iteration", Shape::scalar(DType::I64));
    let goes_on = body.input("goes on", Shape::scalar(DType::Bool));
    let x = body.input("x", shape.clone());
    let next = match &inner {
        Some(inner) => {
            let limit = body.constant(Value::int(DType::I64, &[], vec![i64::MAX.into()]).to_const());
            let op = looped(inner);
            body.try_add(op, &[limit, goes_on, x]).expect("the loop fits")
        }
        None => body.binary(BinaryOp::Add, x, x, shape.clone()),
    };
    let _ = iteration;
    body.set_outputs(vec![goes_on, next]);
    body
}

fn looped(body: &Arc<Body>) -> Op {
    Op::Loop { body: Arc::clone(body), trips: Dim::Static(0), count: None, carried: 1, scanned: 0 }
}

#[test]
fn loops_on_the_oracle_stop_at_the_deadline() {
    let inner = Arc::new(Body { graph: endless(None) });
    let nested = Arc::new(Body { graph: endless(Some(Arc::clone(&inner))) });
    for body in [inner, nested] {
        let mut graph = Graph::new("endless");
        let limit = graph.constant(Value::int(DType::I64, &[], vec![i64::MAX.into()]).to_const());
        let goes_on = graph.constant(Value::bools(&[], [true]).to_const());
        let x = graph.input("x", Shape::new(&[2], DType::F32));
        let y = graph.try_add(looped(&body), &[limit, goes_on, x]).expect("the loop fits");
        graph.set_outputs(vec![y]);
        let mut bindings = Bindings::default();
        bindings.set_input("x", Value::float(DType::F32, &[2], vec![1.0, 2.0]));
        let progress = Progress::from(&Cancel::new().with_deadline(Duration::from_millis(50)));
        let started = Instant::now();
        let e = evaluate_with_progress(&graph, &bindings, &progress).expect_err("it never ends");
        assert_eq!(e.kind(), ErrorKind::Cancelled, "{e}");
        assert!(started.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn no_tensor_is_larger_than_any_memory() {
    for dims in [&[usize::MAX][..], &[1 << 40, 1 << 40], &[1 << 40, 0, 1 << 40]] {
        let e = Shape::new(dims, DType::F32).check_size().expect_err("it has no room");
        assert_eq!(e.kind(), ErrorKind::OutOfMemory);
        let mut graph = Graph::new("large");
        let x = graph.input("x", Shape::new(&[1], DType::F32));
        let to = dims.iter().map(|&d| Dim::Static(d)).collect();
        let e = graph.try_add(Op::Expand { to }, &[x]).expect_err("it has no room");
        assert_eq!(e.kind(), ErrorKind::OutOfMemory, "{e}");
    }
    Shape::new(&[1 << 40, 0], DType::F32).check_size().expect("an empty tensor");
}

#[test]
fn an_allowance_ends() {
    let (square, op) = (Shape::new(&[256, 256], DType::F32), Op::MatMul);
    let shapes = [&square, &square];
    // 2·256³ operations are more than one op may take.
    assert!(!Allowance::for_bytes(0).admits(&op, &shapes, std::slice::from_ref(&square)));
    let add = Op::Binary(BinaryOp::Add);
    let mut allowance = Allowance::for_bytes(0);
    let admitted =
        (0..1000).take_while(|_| allowance.admits(&add, &shapes, std::slice::from_ref(&square))).count();
    assert_eq!(admitted, (1 << 20) / (256 * 256));
    assert!(!allowance.take(1) && allowance.take(0));
    assert!(Allowance::for_bytes(1 << 30).take(1 << 31));
}
