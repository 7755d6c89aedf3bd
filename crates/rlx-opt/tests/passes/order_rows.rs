//! Transposes of rows: moved where that spares some, left where it does not.

use crate::common::{apply, assert_same_results, check, check_unchanged, count, short};
use rlx_ir::op::{Activation, BinaryOp};
use rlx_ir::oracle;
use rlx_ir::testing::{Gen, Tolerance, difference, for_random_graphs};
use rlx_ir::{DType, DimBinding, Graph, NodeId, Op, OpKind, Result, Shape, verify_ok};
use rlx_opt::passes::{order_rows, simplify};
use rlx_opt::rewrite::without_dead_nodes;

#[test]
fn a_matmul_between_two_transposes_needs_neither() {
    check(
        order_rows::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [batch, seq, 4] f32
          %1 = Param {name="w"} : [4, 3] f32
          %2 = Transpose(%0) {perm=[1, 0, 2]} : [seq, batch, 4] f32
          %3 = MatMul(%2, %1) : [seq, batch, 3] f32
          %4 = Transpose(%3) {perm=[1, 0, 2]} : [batch, seq, 3] f32
          return %4
        }"#,
        r#"graph "g" {
          %0 = Input {name="x"} : [batch, seq, 4] f32
          %1 = Param {name="w"} : [4, 3] f32
          %2 = MatMul(%0, %1) : [batch, seq, 3] f32
          return %2
        }"#,
    );
}

#[test]
fn heads_are_merged_without_exchanging_batch_and_sequence() {
    // The projection behind attention, as torch writes it for what has its batch first: rows are one dimension.
    check(
        order_rows::run,
        r#"graph "g" {
          %0 = Input {name="heads"} : [batch, 2, seq, 4] f32
          %1 = Input {name="x"} : [batch, seq, 3] f32
          %2 = Param {name="w"} : [8, 3] f32
          %3 = Param {name="b"} : [3] f32
          %4 = Transpose(%0) {perm=[2, 0, 1, 3]} : [seq, batch, 2, 4] f32
          %5 = Reshape(%4) {to=[batch*seq, 8]} : [batch*seq, 8] f32
          %6 = MatMul(%5, %2) : [batch*seq, 3] f32
          %7 = Binary.Add(%6, %3) : [batch*seq, 3] f32
          %8 = Reshape(%7) {to=[seq, batch, 3]} : [seq, batch, 3] f32
          %9 = Transpose(%8) {perm=[1, 0, 2]} : [batch, seq, 3] f32
          %10 = Binary.Add(%9, %1) : [batch, seq, 3] f32
          return %10
        }"#,
        r#"graph "g" {
          %0 = Input {name="heads"} : [batch, 2, seq, 4] f32
          %1 = Input {name="x"} : [batch, seq, 3] f32
          %2 = Param {name="w"} : [8, 3] f32
          %3 = Param {name="b"} : [3] f32
          %4 = Transpose(%0) {perm=[0, 2, 1, 3]} : [batch, seq, 2, 4] f32
          %5 = Reshape(%4) {to=[batch, seq, 8]} : [batch, seq, 8] f32
          %6 = MatMul(%5, %2) : [batch, seq, 3] f32
          %7 = Binary.Add(%6, %3) : [batch, seq, 3] f32
          %8 = Binary.Add(%7, %1) : [batch, seq, 3] f32
          return %8
        }"#,
    );
}

#[test]
fn query_key_and_value_are_read_through_the_transposes_that_they_have_anyway() {
    let before = short(
        "x: [2, 5, 8] f32
        w: param [8, 24] f32
        b: param [24] f32
        t = Transpose(x) {perm=[1, 0, 2]}
        m = MatMul(t, w)
        a = Binary.Add(m, b)
        one = Reshape(a) {to=[1, 5, 2, 3, 8]}
        first = Transpose(one) {perm=[3, 1, 2, 0, 4]}
        qkv = Reshape(first) {to=[3, 5, 2, 8]}
        q = Slice(qkv) {starts=[0, 0, 0, 0], steps=[1, 1, 1, 1], to=[1, 5, 2, 8]}
        k = Slice(qkv) {starts=[1, 0, 0, 0], steps=[1, 1, 1, 1], to=[1, 5, 2, 8]}
        v = Slice(qkv) {starts=[2, 0, 0, 0], steps=[1, 1, 1, 1], to=[1, 5, 2, 8]}
        qh = Reshape(q) {to=[5, 2, 2, 4]}
        kh = Reshape(k) {to=[5, 2, 2, 4]}
        vh = Reshape(v) {to=[5, 2, 2, 4]}
        qt = Transpose(qh) {perm=[1, 2, 0, 3]}
        kt = Transpose(kh) {perm=[1, 2, 3, 0]}
        vt = Transpose(vh) {perm=[1, 2, 0, 3]}
        scores = MatMul(qt, kt)
        p = Softmax(scores) {axis=3}
        y = MatMul(p, vt)
        return y",
    );
    let after = apply(order_rows::run, &before);
    assert_same_results(&before, &after, &DimBinding::default());
    let product = after.nodes().iter().find(|n| n.op == Op::MatMul).unwrap();
    assert!(matches!(after.node(product.inputs[0]).op, Op::Input { .. }), "{after}");
    // Of each of the three, to where its heads are wanted.
    assert_eq!(count(&after, OpKind::Transpose), 3, "{after}");
}

#[test]
fn norms_and_whole_feed_forward_layers_are_between_two_transposes() {
    let before = short(
        "x: [2, 5, 4] f32
        gamma: param [4] f32
        beta: param [4] f32
        w: param [4, 6] f32
        v: param [6, 4] f32
        t = Transpose(x) {perm=[1, 0, 2]}
        n = LayerNorm(t, gamma, beta) {axis=2, eps=0.001}
        a = MatMul(n, w)
        s = Activation.Sigmoid(a)
        g = Binary.Mul(a, s)
        c = MatMul(g, v)
        p = Softmax(c) {axis=-1}
        y = Transpose(p) {perm=[1, 0, 2]}
        return y",
    );
    let after = apply(order_rows::run, &before);
    assert_same_results(&before, &after, &DimBinding::default());
    assert_eq!(count(&after, OpKind::Transpose), 0, "{after}");
}

#[test]
fn transposes_stay_where_moving_them_spares_nothing() {
    // Nothing turns the rows back.
    check_unchanged(
        order_rows::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 5, 4] f32
          %1 = Param {name="w"} : [4, 3] f32
          %2 = Transpose(%0) {perm=[1, 0, 2]} : [5, 2, 4] f32
          %3 = MatMul(%2, %1) : [5, 2, 3] f32
          return %3
        }"#,
    );
    // Windows of an image: one copy in front of the product, or one for each of what is cut out of it.
    check_unchanged(
        order_rows::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 3, 2, 3, 4] f32
          %1 = Param {name="w"} : [4, 12] f32
          %2 = Transpose(%0) {perm=[0, 2, 1, 3, 4]} : [2, 2, 3, 3, 4] f32
          %3 = Reshape(%2) {to=[4, 9, 4]} : [4, 9, 4] f32
          %4 = MatMul(%3, %1) : [4, 9, 12] f32
          %5 = Slice(%4) {starts=[0, 0, 0], steps=[1, 1, 1], to=[4, 9, 4]} : [4, 9, 4] f32
          %6 = Slice(%4) {starts=[0, 0, 4], steps=[1, 1, 1], to=[4, 9, 4]} : [4, 9, 4] f32
          %7 = Slice(%4) {starts=[0, 0, 8], steps=[1, 1, 1], to=[4, 9, 4]} : [4, 9, 4] f32
          %8 = Transpose(%6) {perm=[0, 2, 1]} : [4, 4, 9] f32
          %9 = MatMul(%5, %8) : [4, 9, 9] f32
          %10 = MatMul(%9, %7) : [4, 9, 4] f32
          return %10
        }"#,
    );
    // Columns that are rows behind the transpose, and a product of two batches.
    check_unchanged(
        order_rows::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 5, 4] f32
          %1 = Param {name="w"} : [5, 3] f32
          %2 = Input {name="y"} : [5, 4, 2] f32
          %3 = Transpose(%0) {perm=[0, 2, 1]} : [2, 4, 5] f32
          %4 = MatMul(%3, %1) : [2, 4, 3] f32
          %5 = Transpose(%0) {perm=[1, 0, 2]} : [5, 2, 4] f32
          %6 = MatMul(%5, %2) : [5, 2, 2] f32
          %7 = Transpose(%6) {perm=[1, 0, 2]} : [2, 5, 2] f32
          return %4, %7
        }"#,
    );
}

/// A chain of ops on rows, transposes of them, merges and splits, with branches and residuals.
fn random_chain(seed: u64, size: usize) -> Result<Graph> {
    let (mut g, mut graph) = (Gen::new(seed), Graph::new("rows"));
    let rows: Vec<usize> = (0..g.size(2..=3)).map(|_| g.size(1..=3)).collect();
    let shape = [&rows[..], &[4]].concat();
    let mut at = graph.input("x", Shape::new(&shape, DType::F32));
    let mut outputs = Vec::new();
    for step in 0..size {
        at = random_step(&mut g, &mut graph, at, step)?;
        if g.chance(0.15) {
            outputs.push(at);
        }
    }
    outputs.push(at);
    graph.set_outputs(outputs);
    Ok(graph)
}

fn random_step(g: &mut Gen, graph: &mut Graph, at: NodeId, step: usize) -> Result<NodeId> {
    let shape = graph.shape(at).clone();
    let (Some(dims), rank) = (shape.static_dims(), shape.rank()) else { return Ok(at) };
    let (rows, width) = (&dims[..rank - 1], dims[rank - 1]);
    let param = |graph: &mut Graph, name: &str, dims: &[usize]| {
        graph.param(format!("{name}{step}"), Shape::new(dims, DType::F32))
    };
    let reshape = |graph: &mut Graph, dims: Vec<usize>| {
        graph.try_add(Op::Reshape { to: Shape::new(&dims, DType::F32).dims().to_vec() }, &[at])
    };
    match g.size(0..=9) {
        0..=2 => {
            let mut perm: Vec<usize> = (0..rank).collect();
            (0..rank - 1).for_each(|i| perm.swap(i, g.size(0..=rank - 2)));
            graph.try_add(Op::Transpose { perm }, &[at])
        }
        3 => {
            let w = param(graph, "w", &[width, g.pick(&[2, 4, 6])]);
            graph.try_add(Op::MatMul, &[at, w])
        }
        4 => {
            let (gamma, beta) = (param(graph, "gamma", &[width]), param(graph, "beta", &[width]));
            let axis = if g.chance(0.5) { -1 } else { rank as i32 - 1 };
            graph.try_add(Op::LayerNorm { axis, eps: 1e-3 }, &[at, gamma, beta])
        }
        5 => graph.try_add(Op::Softmax { axis: -1 }, &[at]),
        6 => {
            // A residual, a bias, or the value itself behind a function.
            let other = match g.size(0..=2) {
                0 => graph.input(format!("r{step}"), shape.clone()),
                1 => param(graph, "b", &[width]),
                _ => graph.try_add(Op::Activation(Activation::Sigmoid), &[at])?,
            };
            graph.try_add(Op::Binary(BinaryOp::Mul), &[at, other])
        }
        7 if rank > 2 => {
            let merged = [&[rows[0] * rows[1]], &dims[2..]].concat();
            reshape(graph, merged)
        }
        8 if width % 2 == 0 && rank < 5 => {
            // Heads, where the sequence was.
            let split = reshape(graph, [rows, &[2, width / 2]].concat())?;
            let mut perm: Vec<usize> = (0..=rank).collect();
            perm.swap(rank - 1, g.size(0..=rank - 1));
            graph.try_add(Op::Transpose { perm }, &[split])
        }
        9 if rank > 3 => reshape(graph, [&dims[..rank - 2], &[dims[rank - 2] * width]].concat()),
        _ => {
            let mut to = dims.to_vec();
            to[rank - 1] = g.size(1..=width);
            let starts = vec![rlx_ir::Extent::Const(0); rank];
            let to = Shape::new(&to, DType::F32).dims().to_vec();
            graph.try_add(Op::Slice { starts, steps: vec![1; rank], to }, &[at])
        }
    }
}

#[test]
fn random_chains_give_the_same_bits() {
    let moved = std::cell::Cell::new(0);
    for_random_graphs(21, 400, 2..=16, |seed, size| {
        let before = random_chain(seed, size).map_err(|e| e.to_string())?;
        verify_ok(&before).map_err(|e| format!("the generator made an invalid graph: {e}\n{before}"))?;
        let simple = without_dead_nodes(apply(simplify::run, &before));
        let after = apply(order_rows::run, &simple);
        moved.set(moved.get() + u32::from(after.to_string() != simple.to_string()));
        let given = crate::common::bindings(&before, &DimBinding::default(), seed);
        let want = oracle::evaluate(&simple, &given).map_err(|e| e.to_string())?;
        let got = oracle::evaluate(&after, &given).map_err(|e| e.to_string())?;
        let strict = Tolerance { rtol: 0.0, atol: 0.0 };
        match want.iter().zip(&got).find_map(|(w, g)| difference(w, g, strict)) {
            Some(fault) => Err(format!("{fault}\nbefore: {simple}\nafter: {after}")),
            None => Ok(()),
        }
    });
    assert!(moved.get() > 40, "of 400 graphs only {} were changed", moved.get());
}
