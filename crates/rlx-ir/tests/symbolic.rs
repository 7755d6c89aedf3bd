//! Decompositions of composites whose shapes are symbols: they verify as they are, and compute the same for
//! every binding.

use rlx_ir::op::MaskKind;
use rlx_ir::oracle::{Bindings, evaluate};
use rlx_ir::testing::{Gen, assert_close, tolerance};
use rlx_ir::{
    DType, Dim, DimBinding, Graph, GraphExt, NodeId, Op, OpKind, Shape, Value, decompose, sym, verify,
};

const BATCH: Dim = Dim::Dynamic(sym::BATCH);
const SEQ: Dim = Dim::Dynamic(sym::SEQ);
const PAST: Dim = Dim::Dynamic(sym::PAST_SEQ);

fn fixed(n: usize) -> Dim {
    Dim::Static(n)
}

/// Builds with `build` from inputs of these dimensions, decomposes, and compares at several bindings.
fn check(inputs: &[&[Dim]], build: impl FnOnce(&mut Graph, &[NodeId]) -> NodeId) {
    let mut g = Graph::new("symbolic");
    let ids: Vec<NodeId> = inputs
        .iter()
        .enumerate()
        .map(|(i, dims)| g.input(format!("x{i}"), Shape::from_dims(dims, DType::F32)))
        .collect();
    let y = build(&mut g, &ids);
    g.set_outputs(vec![y]);
    assert_eq!(verify(&g), [], "{g}");
    let basic = decompose::decompose_all(&g, |_| true).unwrap().expect("a composite");
    assert_eq!(verify(&basic), [], "{basic}");
    for (seed, (batch, seq, past)) in [(1, 1, 1), (2, 5, 3), (1, 4, 9), (3, 1, 6)].into_iter().enumerate() {
        let mut gen_ = Gen::new(seed as u64);
        let mut dims = DimBinding::batch_seq(batch, seq);
        dims.set(sym::PAST_SEQ, past);
        let mut values = Bindings::default();
        for node in g.inputs() {
            let (Op::Input { name }, shape) = (&node.op, node.shape.bind(&dims)) else { unreachable!() };
            values.set_input(name, gen_.value(DType::F32, &shape.static_dims().unwrap(), -2.0..2.0));
        }
        let want = evaluate(&g, &values).unwrap();
        let got = evaluate(&basic, &values).unwrap_or_else(|e| panic!("{e}\n{basic}"));
        assert_close(&want[0], &got[0], tolerance(DType::F32), &format!("{dims:?}\n{basic}"));
    }
}

#[test]
fn attention_over_symbolic_lengths() {
    for mask in [MaskKind::None, MaskKind::Causal] {
        // Grouped heads, packed layout.
        check(&[&[BATCH, SEQ, fixed(12)], &[BATCH, PAST, fixed(6)]], |g, x| {
            g.attention_(x[0], x[1], x[1], None, 4, 3, mask)
        });
        // Heads first.
        let (q, k) = ([BATCH, fixed(2), SEQ, fixed(3)], [BATCH, fixed(2), PAST, fixed(3)]);
        check(&[&q, &k], |g, x| g.attention_(x[0], x[1], x[1], None, 2, 3, mask));
    }
    let (q, mask) = ([BATCH, SEQ, fixed(6)], [BATCH, fixed(1), SEQ, SEQ]);
    check(&[&q, &mask], |g, x| g.attention_(x[0], x[0], x[0], Some(x[1]), 2, 3, MaskKind::Custom));
}

#[test]
fn a_causal_mask_over_past_and_new_tokens() {
    // What a key-value cache makes: the keys are the past ones and the new ones.
    check(&[&[BATCH, SEQ, fixed(4)], &[BATCH, PAST, fixed(4)]], |g, x| {
        let keys = g.concat_(&[x[1], x[0]], 1);
        g.attention_(x[0], keys, keys, None, 2, 2, MaskKind::Causal)
    });
}

#[test]
fn rope_over_symbolic_lengths() {
    let table = [SEQ, fixed(2)];
    check(&[&[BATCH, SEQ, fixed(10)], &table], |g, x| g.rope(x[0], x[1], x[1], 5, 4));
    let table = [BATCH, SEQ, fixed(2)];
    check(&[&[BATCH, fixed(2), SEQ, fixed(4)], &table], |g, x| g.rope(x[0], x[1], x[1], 4, 4));
}

#[test]
fn norms_over_symbolic_dimensions() {
    check(&[&[BATCH, SEQ, fixed(4)], &[fixed(4)]], |g, x| g.layer_norm_(x[0], x[1], x[1], -1, 1e-3));
    check(&[&[BATCH, SEQ, fixed(4)], &[fixed(4)]], |g, x| g.rms_norm(x[0], x[1], 1e-3));
    check(&[&[BATCH, SEQ, fixed(4)]], |g, x| g.sm(x[0], 1));
    check(&[&[BATCH, fixed(4), SEQ, PAST], &[fixed(4)]], |g, x| {
        g.emit(Op::GroupNorm { groups: 2, eps: 1e-1 }, &[x[0], x[1], x[1]])
    });
}

#[test]
fn windows_over_symbolic_sizes_agree_with_fixed_ones() {
    let mut g = Graph::new("conv");
    let x = g.input("x", Shape::from_dims(&[BATCH, fixed(3), SEQ, PAST], DType::F32));
    let w = g.param("w", Shape::new(&[4, 3, 3, 2], DType::F32));
    let y = g.conv2d(x, w, [3, 2], [2, 3], [1, 1], [1, 1], 1);
    g.set_outputs(vec![y]);
    assert_eq!(verify(&g), []);
    for (h, width) in [(8, 8), (9, 7), (224, 64)] {
        let mut dims = DimBinding::batch_seq(2, h);
        dims.set(sym::PAST_SEQ, width);
        let bound = g.bind(&dims);
        assert_eq!(verify(&bound), [], "the shape at {dims:?} is what the rule gives for it");
        assert_eq!(bound.shape(y).dims()[2], fixed((h - 1) / 2 + 1));
    }
    assert!(g.nodes().iter().any(|n| n.op.kind() == OpKind::Conv));
}

#[test]
fn a_result_declared_in_terms_of_what_its_node_counts_is_checked_once_it_is_counted() {
    let of = |declared: &str, values: Vec<i128>| {
        let text = format!(
            r#"graph "counted" {{
              %0 = Input {{name="x"}} : [1, 7] i8
              %1 = NonZero(%0) {{count=found}} : [2, {declared}] i64
              return %1
            }}"#
        );
        let graph = rlx_ir::text::parse(&text).unwrap();
        rlx_ir::verify_ok(&graph).unwrap();
        let mut bindings = Bindings::default();
        bindings.set_input("x", Value::int(DType::I8, &[1, 7], values));
        evaluate(&graph, &bindings)
    };
    let message = of("-found", vec![1; 7]).unwrap_err().to_string();
    assert!(message.contains("it gives [2, 7] i64 where its declared shape is [2, 0] i64"), "{message}");
    assert_eq!(of("-found", vec![0; 7]).unwrap()[0].dims, [2, 0]);
    assert_eq!(of("2*found - 3", vec![0, 3, 0, 3, 0, 3, 0]).unwrap()[0].dims, [2, 3]);
}
