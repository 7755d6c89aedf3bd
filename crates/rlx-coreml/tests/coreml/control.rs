//! Choices and loops against the oracle; what a package cannot have is not claimed, with the reason.

use std::sync::Arc;

use rlx_coreml::target;
use rlx_ir::op::{Activation, BinaryOp, Body, CmpOp, ReduceOp};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{difference, tolerance};
use rlx_ir::{DType, Dim, DimBinding, Graph, GraphExt, NodeId, Op, Shape, Value};
use rlx_opt::{Claim, Target};

use crate::common::{compiled, evaluated, keep, package, reread};

fn floats(dims: &[usize]) -> Shape {
    Shape::new(dims, DType::F32)
}

fn body(graph: Graph) -> Arc<Body> {
    Arc::new(Body { graph })
}

fn bindings(inputs: &[(&str, Value)]) -> Bindings {
    let mut bindings = Bindings::default();
    for (name, value) in inputs {
        bindings.set_input(*name, value.clone());
    }
    bindings
}

fn line(values: &[f64]) -> Value {
    Value::float(DType::F32, &[values.len()], values.to_vec())
}

fn number(value: i128) -> Value {
    Value::int(DType::I64, &[], vec![value])
}

fn truth(value: bool) -> Value {
    Value::bools(&[], [value])
}

/// Runs a graph as a package; what is wrong with it, and what each operation occurs.
fn check(graph: &Graph, given: &Bindings) -> std::collections::BTreeMap<String, usize> {
    let got = evaluated(graph, given).unwrap_or_else(|e| panic!("{e}\n{graph}"));
    let got = got.unwrap_or_else(|e| panic!("{e}\n{graph}"));
    let want = oracle::evaluate(graph, given).unwrap_or_else(|e| panic!("{e}\n{graph}"));
    assert_eq!(got.len(), want.len());
    for (want, got) in want.iter().zip(&got) {
        let wrong = difference(want, got, tolerance(want.dtype));
        assert!(wrong.is_none(), "{}\n{graph}", wrong.unwrap_or_default());
    }
    let compiled = compiled(graph, &DimBinding::new()).expect("a graph");
    let package = package(&compiled, given).expect("a package");
    keep(&package, &graph.name);
    // Every block, taken or not.
    reread(&package).check().unwrap_or_else(|e| panic!("{e}\n{graph}"));
    package.operations()
}

/// Why a graph's last output is not claimed.
fn reason(graph: &Graph) -> String {
    let node = graph.node(*graph.outputs.last().expect("an output"));
    match target().claim(node, graph) {
        Claim::No(why) => why,
        other => panic!("{other:?}\n{graph}"),
    }
}

/// `flag ? tanh(x) · w : x − w`, with the sum as a second result.
fn choice() -> Graph {
    let branch = |product: bool| {
        let mut g = Graph::new(if product { "then" } else { "otherwise" });
        let (x, w) = (g.input("x", floats(&[2, 2])), g.input("w", floats(&[2, 2])));
        let y = if product {
            let turned = g.tanh(x);
            g.mm(turned, w)
        } else {
            g.sub(x, w)
        };
        let sum = g.reduce(y, ReduceOp::Sum, vec![0, 1], false, Shape::scalar(DType::F32));
        g.set_outputs(vec![y, sum]);
        body(g)
    };
    let mut g = Graph::new("choice");
    let (flag, x) = (g.input("flag", Shape::scalar(DType::Bool)), g.input("x", floats(&[2, 2])));
    let w = g.param("w", floats(&[2, 2]));
    let op = Op::If { then: branch(true), otherwise: branch(false), count: None, chosen: false };
    let y = g.emit(op, &[flag, x, w, x, w]);
    let sum = g.emit(Op::Result { index: 1 }, &[y]);
    g.set_outputs(vec![y, sum]);
    g
}

#[test]
fn a_choice_gives_what_the_branch_of_its_condition_gives() {
    let graph = choice();
    for flag in [true, false] {
        let x = Value::float(DType::F32, &[2, 2], vec![1.0, -0.5, 0.25, 2.0]);
        let mut given = bindings(&[("flag", truth(flag)), ("x", x)]);
        given.set_param("w", Value::float(DType::F32, &[2, 2], vec![0.5, 1.0, -1.0, 3.0]));
        let operations = check(&graph, &given);
        assert_eq!(operations.get("cond"), Some(&1));
    }
}

/// What a loop is made of, for one value carried and the rest as the case has it.
struct Step {
    graph: Graph,
    iteration: NodeId,
    condition: NodeId,
    state: NodeId,
}

fn step(state: Shape) -> Step {
    let mut graph = Graph::new("step");
    let iteration = graph.input("iteration", Shape::scalar(DType::I64));
    let condition = graph.input("condition", Shape::scalar(DType::Bool));
    let state = graph.input("state", state);
    Step { graph, iteration, condition, state }
}

fn repeat(graph: Graph, trips: usize, scanned: usize) -> Op {
    Op::Loop { body: body(graph), trips: Dim::Static(trips), count: None, carried: 1, scanned }
}

/// `x ← x + step(iteration) · w` a number of times that is an input, as long as the sum stays below 10.
fn growing() -> Graph {
    let mut s = step(floats(&[3]));
    let w = s.graph.input("w", floats(&[3]));
    let number = s.graph.emit(Op::Cast { to: DType::F32 }, &[s.iteration]);
    let scaled = s.graph.mul(w, number);
    let next = s.graph.add(s.state, scaled);
    let sum = s.graph.reduce(next, ReduceOp::Sum, vec![0], false, Shape::scalar(DType::F32));
    let most = s.graph.scalar(10.0, DType::F32);
    let below = s.graph.emit(Op::Compare(CmpOp::Lt), &[sum, most]);
    s.graph.set_outputs(vec![below, next]);
    let mut g = Graph::new("growing");
    let limit = g.input("limit", Shape::scalar(DType::I64));
    let flag = g.input("flag", Shape::scalar(DType::Bool));
    let (x, w) = (g.input("x", floats(&[3])), g.param("w", floats(&[3])));
    let y = g.emit(repeat(s.graph, 100, 0), &[limit, flag, x, w]);
    g.set_outputs(vec![y]);
    g
}

#[test]
fn a_loop_runs_as_long_as_its_condition_holds_and_its_limit_allows() {
    let graph = growing();
    for (limit, flag) in [(0, true), (-3, true), (1, true), (2, true), (90, true), (90, false)] {
        let x = line(&[0.5, -1.0, 0.25]);
        let mut given = bindings(&[("limit", number(limit)), ("flag", truth(flag)), ("x", x)]);
        given.set_param("w", line(&[1.0, 0.5, 0.75]));
        let operations = check(&graph, &given);
        assert_eq!(operations.get("while_loop"), Some(&1));
    }
}

/// A loop over rows of `x` that stacks what it carries (`h ← tanh(h + row)`), whether its sum is positive, and the iteration's number.
fn scanning(state: &[usize]) -> Graph {
    let mut s = step(floats(state));
    let row = s.graph.input("row", floats(state));
    let sum = s.graph.add(s.state, row);
    let next = s.graph.tanh(sum);
    let axes = (0..state.len()).collect();
    let total = s.graph.reduce(next, ReduceOp::Sum, axes, false, Shape::scalar(DType::F32));
    let zero = s.graph.scalar(0.0, DType::F32);
    let positive = s.graph.emit(Op::Compare(CmpOp::Gt), &[total, zero]);
    let (condition, iteration) = (s.condition, s.iteration);
    s.graph.set_outputs(vec![condition, next, next, positive, iteration]);
    let mut g = Graph::new("scanning");
    let limit = g.constant(number(4).to_const());
    let flag = g.constant(truth(true).to_const());
    let (h, x) = (g.input("h", floats(state)), g.input("x", floats(&[&[4], state].concat())));
    let last = g.emit(repeat(s.graph, 4, 1), &[limit, flag, h, x]);
    let mut outputs = vec![last];
    for index in 1..4 {
        outputs.push(g.emit(Op::Result { index }, &[last]));
    }
    g.set_outputs(outputs);
    g
}

#[test]
fn a_loop_scans_rows_and_stacks_floats_bools_and_integers() {
    for state in [&[3][..], &[], &[2, 1, 2, 1, 2]] {
        let size: usize = state.iter().product();
        let values = |n: usize, by: f64| (0..n).map(|i| (i as f64 * by).sin()).collect::<Vec<f64>>();
        let h = Value::float(DType::F32, state, values(size, 1.3));
        let x = Value::float(DType::F32, &[&[4], state].concat(), values(4 * size, 2.1));
        let operations = check(&scanning(state), &bindings(&[("h", h), ("x", x)]));
        assert_eq!(operations.get("scatter"), Some(&3));
    }
}

/// A loop whose body chooses by the iteration's number, with a loop inside one branch; and what it is given.
pub fn nested() -> (Graph, Bindings) {
    let mut inner = step(floats(&[2]));
    let w = inner.graph.input("w", floats(&[2]));
    let next = inner.graph.add(inner.state, w);
    inner.graph.set_outputs(vec![inner.condition, next]);
    let mut then = Graph::new("then");
    let (x, w) = (then.input("x", floats(&[2])), then.input("w", floats(&[2])));
    let (twice, on) = (then.constant(number(2).to_const()), then.constant(truth(true).to_const()));
    let y = then.emit(repeat(inner.graph, 2, 0), &[twice, on, x, w]);
    then.set_outputs(vec![y]);
    let mut otherwise = Graph::new("otherwise");
    let x = otherwise.input("x", floats(&[2]));
    let y = otherwise.activation(Activation::Neg, x, floats(&[2]));
    otherwise.set_outputs(vec![y]);
    let mut s = step(floats(&[2]));
    let w = s.graph.input("w", floats(&[2]));
    let one = s.graph.constant(number(1).to_const());
    let is_one = s.graph.emit(Op::Compare(CmpOp::Eq), &[s.iteration, one]);
    let op = Op::If { then: body(then), otherwise: body(otherwise), count: None, chosen: false };
    let next = s.graph.emit(op, &[is_one, s.state, w, s.state]);
    s.graph.set_outputs(vec![s.condition, next]);
    let mut g = Graph::new("nested");
    let (limit, on) = (g.constant(number(3).to_const()), g.constant(truth(true).to_const()));
    let (x, w) = (g.input("x", floats(&[2])), g.param("w", floats(&[2])));
    let y = g.emit(repeat(s.graph, 3, 0), &[limit, on, x, w]);
    g.set_outputs(vec![y]);
    let mut given = bindings(&[("x", line(&[1.0, -2.0]))]);
    given.set_param("w", line(&[0.5, 0.25]));
    (g, given)
}

#[test]
fn a_choice_and_a_loop_inside_of_a_loop_use_values_of_all_blocks_around_them() {
    let (graph, given) = nested();
    let operations = check(&graph, &given);
    assert_eq!((operations.get("while_loop"), operations.get("cond")), (Some(&2), Some(&1)));
}

/// A loop that carries an integer, which an iteration turns into what `next` says of it and of the iteration's number.
fn counting(limit: i128, next: impl Fn(&mut Graph, NodeId, NodeId) -> NodeId) -> Graph {
    let mut s = step(Shape::scalar(DType::I64));
    let after = next(&mut s.graph, s.state, s.iteration);
    let hundred = s.graph.constant(number(100).to_const());
    let below = s.graph.emit(Op::Compare(CmpOp::Lt), &[after, hundred]);
    s.graph.set_outputs(vec![below, after]);
    let mut g = Graph::new("counting");
    let (limit, on) = (g.constant(number(limit).to_const()), g.constant(truth(true).to_const()));
    let x = g.input("x", Shape::scalar(DType::I64));
    let zero = g.constant(number(0).to_const());
    let x = g.mul(x, zero);
    let y = g.emit(repeat(s.graph, 5, 0), &[limit, on, x]);
    g.set_outputs(vec![y]);
    g
}

fn plus(g: &mut Graph, x: NodeId, value: i128) -> NodeId {
    let value = g.constant(number(value).to_const());
    g.add(x, value)
}

#[test]
fn integers_that_a_loop_carries_fit_as_often_as_it_runs() {
    let given = bindings(&[("x", number(7))]);
    // Without a limit, a step of 1 stays within 32 bits, as the number of iterations does.
    for limit in [1000, i128::from(i64::MAX)] {
        check(&counting(limit, |g, x, _| plus(g, x, 1)), &given);
    }
    check(&counting(1000, |g, x, _| plus(g, x, 2_000_000)), &given);
    check(&counting(1000, |g, x, iteration| g.add(x, iteration)), &given);
    // What an iteration forgets of the one before stays in a range without a limit, too.
    let reset = |g: &mut Graph, x: NodeId, _: NodeId| {
        let most = g.constant(number(100).to_const());
        let bounded = g.binary(BinaryOp::Min, x, most, Shape::scalar(DType::I64));
        let none = g.constant(number(-5).to_const());
        let bounded = g.binary(BinaryOp::Max, bounded, none, Shape::scalar(DType::I64));
        plus(g, bounded, 3)
    };
    check(&counting(i64::MAX.into(), reset), &given);
}

#[test]
fn integers_that_may_leave_32_bits_in_a_loop_are_not_claimed() {
    let double = |g: &mut Graph, x: NodeId, _: NodeId| g.add(x, x);
    let far = |g: &mut Graph, x: NodeId, _: NodeId| plus(g, x, 3_000_000);
    let unlimited = |g: &mut Graph, x: NodeId, _: NodeId| plus(g, x, 2);
    let product = |g: &mut Graph, x: NodeId, _: NodeId| {
        let next = plus(g, x, 1);
        g.mul(next, next)
    };
    let graphs = [
        counting(1000, double_from_one(double)),
        counting(1000, far),
        counting(i64::MAX.into(), unlimited),
        counting(1000, product),
    ];
    for graph in graphs {
        let why = reason(&graph);
        assert!(why.contains("its body") && why.contains("may not fit"), "{why}\n{graph}");
    }
}

/// The step behind adding 1, so that 0 does not stay 0.
fn double_from_one(
    double: impl Fn(&mut Graph, NodeId, NodeId) -> NodeId,
) -> impl Fn(&mut Graph, NodeId, NodeId) -> NodeId {
    move |g, x, iteration| {
        let more = plus(g, x, 1);
        double(g, more, iteration)
    }
}

#[test]
fn what_a_package_cannot_have_in_a_body_is_named() {
    let branch = |size: usize| {
        let mut g = Graph::new("branch");
        let x = g.input("x", floats(&[2]));
        let parts: Vec<NodeId> = vec![x; size];
        let y = g.emit(Op::Concat { axis: 0 }, &parts);
        g.set_outputs(vec![y]);
        body(g)
    };
    let mut g = Graph::new("differing");
    let (flag, x) = (g.input("flag", Shape::scalar(DType::Bool)), g.input("x", floats(&[2])));
    let count = Some(Dim::Dynamic(rlx_ir::dim::sym::named("chosen")));
    let op = Op::If { then: branch(2), otherwise: branch(3), count, chosen: true };
    let y = g.emit(op, &[flag, x, x]);
    g.set_outputs(vec![y]);
    assert!(reason(&g).contains("known in the run only"), "{}", reason(&g));

    let mut s = step(floats(&[2]));
    let wide = s.graph.emit(Op::Cast { to: DType::F64 }, &[s.state]);
    let next = s.graph.emit(Op::Cast { to: DType::F32 }, &[wide]);
    s.graph.set_outputs(vec![s.condition, next]);
    let mut g = Graph::new("wide");
    let (limit, on) = (g.constant(number(3).to_const()), g.constant(truth(true).to_const()));
    let x = g.input("x", floats(&[2]));
    let y = g.emit(repeat(s.graph, 3, 0), &[limit, on, x]);
    g.set_outputs(vec![y]);
    let why = reason(&g);
    assert!(why.contains("its body") && why.contains("f64"), "{why}");
}
