//! Bodies that move elements, of known and open sizes, on a processor whose invocations compute several neighbours: the oracle's elements, and the bits of
//! invocations that compute one.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::{processor, try_module};
use rlx_ir::op::{BinaryOp, PadMode};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Dim, Graph, NodeId, Op, Shape, sym};
use rlx_kernel::interp::Executable;
use rlx_kernel::step_variants;

/// Sizes that open dimensions have in turn: rows that are empty, shorter than what an invocation has, as long, and longer.
const SIZES: [[usize; 2]; 6] = [[1, 1], [3, 7], [2, 8], [5, 9], [0, 4], [2, 33]];

/// A tensor [2, a, 4·b] of which both sizes are open, or one is.
fn input(g: &mut Graph, name: &str, dtype: DType, kind: usize) -> NodeId {
    let open = |name: &str| Dim::Dynamic(sym::named(name));
    let rows = if kind == 1 { Dim::Static(3) } else { open("a") };
    let columns = if kind == 2 { Dim::Static(12) } else { Dim::from(open("b").extent() * 4) };
    g.input(name, Shape::from_dims(&[Dim::Static(2), rows, columns], dtype))
}

/// Joined, moved, repeated and combined; `values` of each of [`SIZES`].
fn case(gen_: &mut Gen) -> (Graph, Vec<Bindings>) {
    let mut g = Graph::new("moved");
    let dtype = gen_.pick(&[DType::F32, DType::F32, DType::I64, DType::F16, DType::I8]);
    let kind = gen_.size(0..=2);
    let names = ["x", "y", "z"];
    let inputs = names.map(|name| input(&mut g, name, dtype, kind));
    // Says what b is.
    g.input("b", Shape::from_dims(&[Dim::Dynamic(sym::named("b"))], DType::F32));
    let mut v = inputs[0];
    for other in &inputs[1..] {
        let alike = g.shape(v) == g.shape(*other);
        v = match gen_.size(0..=4) {
            0 if alike => g.try_add(Op::Concat { axis: gen_.size(0..=2) }, &[v, *other]).unwrap(),
            1 => g.try_add(Op::Transpose { perm: vec![2, 0, 1] }, &[v]).unwrap(),
            2 => {
                let rank = g.shape(v).rank();
                let mut perm: Vec<usize> = (0..rank).collect();
                perm.swap(0, rank - 1);
                g.try_add(Op::Transpose { perm }, &[v]).unwrap()
            }
            3 => {
                let before = vec![0.into(), 1.into(), (gen_.size(0..=4) as i64).into()];
                let after = vec![0.into(), 0.into(), (gen_.size(0..=4) as i64).into()];
                g.try_add(Op::Pad { before, after, mode: PadMode::Constant }, &[v]).unwrap()
            }
            _ if alike => g.try_add(Op::Binary(BinaryOp::Add), &[v, *other]).unwrap(),
            _ => v,
        };
    }
    g.set_outputs(vec![v]);
    let values = SIZES.map(|[a, b]| {
        let mut values = Bindings::default();
        let dims = [2, if kind == 1 { 3 } else { a }, if kind == 2 { 12 } else { 4 * b }];
        values.set_input("b", gen_.value(DType::F32, &[b], 0.0..1.0));
        for name in names {
            values.set_input(name, gen_.value(dtype, &dims, -9.0..9.0));
        }
        values
    });
    (g, values.into())
}

#[test]
fn what_moves_elements_moves_several_in_turn() {
    let (mut gen_, mut seen, target) = (Gen::new(41), BTreeMap::new(), processor());
    for _ in 0..300 {
        let (graph, cases) = case(&mut gen_);
        let module = try_module(&graph, &target).unwrap_or_else(|e| panic!("{e}\n{graph}"));
        for step in &module.steps {
            let first = step_variants(step, &module, &target).unwrap().remove(0);
            *seen.entry(first).or_insert(0) += 1;
        }
        let own = Executable::new(Arc::clone(&module), &target).unwrap();
        let single = |names: &[String]| names.iter().position(|name| name == "map64x1").unwrap_or_default();
        let single = Executable::choosing(Arc::clone(&module), &target, single).unwrap();
        for values in &cases {
            let wanted = oracle::evaluate(&graph, values).unwrap();
            let run = |by: &Executable| by.run(values).unwrap_or_else(|e| panic!("{e}\n{graph}"));
            let (own, single) = (run(&own), run(&single));
            assert!(own[0].encode() == single[0].encode(), "other bits\n{graph}");
            assert!(own[0].encode() == wanted[0].encode(), "not the oracle's\n{graph}");
        }
    }
    for name in ["map64s8", "map64x1x4", "map64x1"] {
        assert!(seen.get(name).is_some_and(|&n| n >= 5), "{seen:?}");
    }
}
