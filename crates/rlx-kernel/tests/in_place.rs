//! Results that are written over operands: operand and result are one buffer of the kernel.

mod common;

use std::sync::Arc;

use common::{agree, native, shorts, try_module, words};
use rlx_ir::op::{Activation, BinaryOp, Body};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Graph, NodeId, Op, Shape};
use rlx_kernel::ir::Access;
use rlx_kernel::{Arg, KernelTarget, compile_step};
use rlx_opt::Target;

/// A graph whose input `i` has these dimensions, and values for it.
fn inputs(dtype: DType, dims: &[&[usize]], gen_: &mut Gen) -> (Graph, Vec<NodeId>, Bindings) {
    let (mut graph, mut bindings) = (Graph::new("g"), Bindings::default());
    let mut ids = Vec::new();
    for (i, dims) in dims.iter().enumerate() {
        ids.push(graph.input(format!("x{i}"), Shape::new(dims, dtype)));
        bindings.set_input(format!("x{i}"), gen_.value(dtype, dims, -1.0..1.0));
    }
    (graph, ids, bindings)
}

/// How many steps of the graph are written over an operand; every kernel of such a step has one buffer for both.
fn in_place(graph: &Graph, target: &KernelTarget) -> usize {
    let module = try_module(graph, target).unwrap();
    let mut found = 0;
    for step in &module.steps {
        for (input, output) in step.in_place() {
            found += 1;
            for launch in compile_step(step, &module, target, 0).unwrap() {
                assert!(!launch.bindings.contains(&Arg::Input(input)), "{module}");
                let at = launch.bindings.iter().position(|&arg| arg == Arg::Output(output)).unwrap();
                assert_ne!(launch.kernel.buffers[at].access, Access::Read);
            }
        }
    }
    found
}

/// `x·w + x` twice, so that the second sum is written over the first, which is read by its own matmul before.
fn residuals(dtype: DType) -> (Graph, Bindings) {
    let (mut graph, ids, bindings) = inputs(dtype, &[&[5, 33], &[33, 33]], &mut Gen::new(3));
    let shape = Shape::new(&[5, 33], dtype);
    let mut x = graph.activation(Activation::Neg, ids[0], shape.clone());
    for _ in 0..2 {
        let y = graph.matmul(x, ids[1], shape.clone());
        let y = graph.try_add(Op::Softmax { axis: -1 }, &[y]).unwrap();
        x = graph.binary(BinaryOp::Add, y, x, shape.clone());
    }
    graph.set_outputs(vec![x]);
    (graph, bindings)
}

#[test]
fn a_residual_stream_stays_where_it_is() {
    for dtype in [DType::F32, DType::F16] {
        let (graph, bindings) = residuals(dtype);
        for target in [native(), words(), shorts()] {
            assert_eq!(in_place(&graph, &target), 2, "{}", target.name);
            agree(&graph, &bindings, &target);
        }
    }
}

#[test]
fn every_element_type_is_written_over() {
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::I8, DType::U16] {
        // Steps of their own: what is between them is no elementwise op.
        let (mut graph, ids, bindings) = inputs(dtype, &[&[70, 3], &[3, 70]], &mut Gen::new(5));
        let (wide, tall) = (Shape::new(&[3, 70], dtype), Shape::new(&[70, 3], dtype));
        let square = Shape::new(&[70, 70], dtype);
        let a = graph.matmul(ids[0], ids[1], square.clone());
        let b = graph.matmul(a, ids[0], tall.clone());
        let c = graph.matmul(ids[1], b, Shape::new(&[3, 3], dtype));
        let d = graph.matmul(c, ids[1], wide);
        let e = graph.matmul(ids[0], d, square.clone());
        let sum = graph.binary(BinaryOp::Add, e, a, square);
        graph.set_outputs(vec![sum]);
        for target in [native(), words(), shorts()] {
            assert_eq!(in_place(&graph, &target), 1, "{dtype} on {}", target.name);
            agree(&graph, &bindings, &target);
        }
    }
}

/// Whether the results of `body` may be written over its input number `input`.
fn may(body: &Graph, input: usize) -> bool {
    let shapes: Vec<Shape> = body.outputs.iter().map(|&id| body.shape(id).clone()).collect();
    let mut graph = Graph::new("g");
    let ids: Vec<NodeId> =
        body.inputs().enumerate().map(|(i, n)| graph.input(format!("x{i}"), n.shape.clone())).collect();
    let region = Op::Region { body: Arc::new(Body { graph: body.clone() }) };
    let node = graph.push_node(rlx_ir::Node::new(region, ids, shapes));
    native().writes_in_place(graph.node(node), input, &graph)
}

#[test]
fn only_what_is_read_at_the_place_of_the_result_is_written_over() {
    let shape = Shape::new(&[4, 4], DType::F32);
    let body = |dims: &[&[usize]], make: &dyn Fn(&mut Graph, &[NodeId]) -> NodeId| {
        let (mut graph, ids, _) = inputs(DType::F32, dims, &mut Gen::new(1));
        let y = make(&mut graph, &ids);
        graph.set_outputs(vec![y]);
        graph
    };
    let square: &[usize] = &[4, 4];
    let sum = |g: &mut Graph, a, b| g.binary(BinaryOp::Add, a, b, shape.clone());
    let elementwise = body(&[square, square], &|g, x| {
        let y = g.activation(Activation::Exp, x[0], shape.clone());
        sum(g, y, x[1])
    });
    assert!(may(&elementwise, 0) && may(&elementwise, 1));
    let bias = body(&[square, &[4]], &|g, x| sum(g, x[0], x[1]));
    assert!(may(&bias, 0) && !may(&bias, 1), "a bias is read by every row");
    let residual = body(&[square, square, square], &|g, x| {
        let y = g.matmul(x[0], x[1], shape.clone());
        sum(g, y, x[2])
    });
    assert!(!may(&residual, 0) && !may(&residual, 1) && may(&residual, 2));
    let both = body(&[square], &|g, x| {
        let y = g.try_add(Op::Softmax { axis: -1 }, &[x[0]]).unwrap();
        sum(g, y, x[0])
    });
    assert!(!may(&both, 0), "the anchor reads it, too");
    let turned = body(&[square, square], &|g, x| {
        let y = g.try_add(Op::Transpose { perm: vec![1, 0] }, &[x[0]]).unwrap();
        sum(g, y, x[1])
    });
    assert!(!may(&turned, 0) && may(&turned, 1), "what moves is read elsewhere");
}
