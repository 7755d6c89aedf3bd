//! Shape rules over symbols: what is not proved for all values is evaluated for the values of a run, and both agree with
//! the verifier of the graph in which the numbers stand.

use rlx_ir::graph::{open_rules, rule_holds};
use rlx_ir::testing::mismatched_case;
use rlx_ir::{DType, Dim, Error, Graph, Op, OpKind, Shape, oracle, sym, verify, verify_exact, verify_ok};

/// What a run would check: the open rules, for the sizes of the inputs.
fn rules_hold(graph: &Graph, dims: &rlx_ir::DimBinding) -> Result<(), Error> {
    let rules = open_rules(&[graph]);
    let value = |s: u32| dims.get(s).map(|n| n as i64);
    rules.outputs.iter().try_for_each(|&id| rule_holds(&rules, rules.node(id), &value))
}

/// Every rule that is left out holds: `PROPTEST_CASES` gives the number of cases of each op.
#[test]
fn rules_are_open_or_hold_for_every_value() {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(200u64);
    let (mut kept, mut broken) = (0, 0);
    for &kind in OpKind::ALL {
        for seed in 0..cases {
            let (graph, bindings) = mismatched_case(kind, seed);
            let Ok(dims) = oracle::bind_dims(&graph, &bindings) else { continue };
            // What a node counts is known when it ran; the oracle and the devices check that.
            if !verify(&graph).is_empty() || !graph.data_symbols().is_empty() {
                continue;
            }
            let (ours, fixed) = (rules_hold(&graph, &dims), verify_ok(&graph.bind(&dims)));
            assert_eq!(
                ours.is_ok(),
                fixed.is_ok(),
                "{kind} {seed} at {dims:?}: {ours:?}, {fixed:?}\n{graph}"
            );
            let asked = oracle::evaluate(&graph, &bindings);
            if ours.is_err() {
                assert!(asked.is_err(), "{kind} {seed} at {dims:?}: the oracle accepts it\n{graph}");
                broken += 1;
            } else {
                kept += 1;
            }
        }
    }
    assert!(kept > 2500 && broken > 1000, "{kept} graphs kept their rules, {broken} did not");
}

#[test]
fn a_shape_that_no_value_makes_right_is_an_error_of_the_verifier() {
    let b = Dim::Dynamic(sym::BATCH);
    let mut g = Graph::new("g");
    let x = g.input("x", Shape::from_dims(&[b], DType::F32));
    let more = Shape::from_dims(&[Dim::from(b.extent() + 1)], DType::F32);
    let y = g.activation(rlx_ir::op::Activation::Relu, x, more);
    g.set_outputs(vec![y]);
    let faults = verify(&g);
    assert!(
        faults[0].to_string().contains("[1 + batch] f32, but the op's rule gives [batch] f32"),
        "{faults:?}"
    );
}

#[test]
fn a_transformer_block_has_no_open_rules() {
    use rlx_ir::GraphExt;
    let (b, s) = (Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ));
    let mut g = Graph::new("block");
    let x = g.input("x", Shape::from_dims(&[b, s, Dim::Static(8)], DType::F32));
    let w = g.param("w", Shape::new(&[8, 8], DType::F32));
    let gamma = g.param("gamma", Shape::new(&[8], DType::F32));
    let n = g.layer_norm_(x, gamma, gamma, -1, 1e-5);
    let q = g.mm(n, w);
    let heads = |g: &mut Graph, x| {
        let x = g.try_reshape_to(x, &[b, s, Dim::Static(2), Dim::Static(4)]).unwrap();
        g.try_add(Op::Transpose { perm: vec![0, 2, 1, 3] }, &[x]).unwrap()
    };
    let (q, k) = (heads(&mut g, q), heads(&mut g, n));
    let a = g.attention_(q, k, k, None, 2, 4, rlx_ir::op::MaskKind::Causal);
    let a = g.try_add(Op::Transpose { perm: vec![0, 2, 1, 3] }, &[a]).unwrap();
    let a = g.try_reshape_to(a, &[b, s, Dim::Static(8)]).unwrap();
    let y = g.add(x, a);
    let last = g.try_narrow(y, 2, 0, 4).unwrap();
    let y = g.sm(last, -1);
    g.set_outputs(vec![y]);
    verify_ok(&g).unwrap();
    let open = open_rules(&[&g]);
    assert!(open.outputs.is_empty(), "{open}");
}

#[test]
fn what_declares_just_what_its_rule_gives_is_exact() {
    let declared = |y: Dim| {
        let mut g = Graph::new("g");
        let x = g.input("x", Shape::from_dims(&[Dim::Dynamic(sym::BATCH)], DType::F32));
        let y = g.activation(rlx_ir::op::Activation::Relu, x, Shape::from_dims(&[y], DType::F32));
        g.set_outputs(vec![y]);
        g
    };
    assert_eq!(verify_exact(&declared(Dim::Dynamic(sym::BATCH))), Ok(true));
    assert_eq!(verify_exact(&declared(Dim::Dynamic(sym::SEQ))), Ok(false), "right where batch = seq");
    assert!(verify_exact(&declared(Dim::from(Dim::Dynamic(sym::BATCH).extent() + 1))).is_err());
}
