//! Attention as one kernel that keeps no scores in memory: it agrees with the oracle, whatever is masked, in every variant with the same bits, and its workgroup
//! memory has no conflicts of banks.

mod common;

use std::sync::Arc;

use common::{native, processor, shorts, try_module, words};
use rlx_ir::op::{MaskKind, Unseen};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{AttentionShape, Case, Gen, difference, random_attention, tolerance};
use rlx_ir::{DType, Dim, DimBinding, Graph, LirModule, Op, OpKind, Shape, Value, sym};
use rlx_kernel::interp::{Executable, Sample};
use rlx_kernel::{DeviceLimits, KernelTarget, step_variants};

/// Random attentions; with `RLX_TEST_ALL` six times as many.
const CASES: u64 = 100;

fn is_whole(module: &LirModule) -> bool {
    module.graph.nodes().iter().any(|n| n.op.kind() == OpKind::Attention)
}

/// The attention by each of its variants: the first agrees with the oracle, the others give its bits.
fn check(graph: &Graph, bindings: &Bindings, target: &KernelTarget) -> Result<(), String> {
    let module = try_module(graph, target).map_err(|e| e.to_string())?;
    if !is_whole(&module) {
        return Err("it is decomposed".into());
    }
    let want = &oracle::evaluate(graph, bindings).map_err(|e| e.to_string())?[0];
    let step = module.steps.iter().find(|s| module.graph.node(s.node).op.kind() == OpKind::Attention);
    let names = step_variants(step.unwrap(), &module, target).unwrap();
    let mut first: Option<Value> = None;
    for (i, name) in names.iter().enumerate() {
        let choose = |all: &[String]| if all.len() == names.len() { i } else { 0 };
        let executable = Executable::choosing(Arc::clone(&module), target, choose).unwrap();
        let got = executable.run(bindings).map_err(|e| format!("{name}: {e}"))?.remove(0);
        let first = first.get_or_insert_with(|| got.clone());
        if got.encode() != first.encode() {
            return Err(format!("{name} gives other bits than {}", names[0]));
        }
        if let Some(what) = difference(want, &got, tolerance(want.dtype)) {
            return Err(format!("{name}: {what}"));
        }
        let counted = executable.count(&DimBinding::new(), Sample(2)).unwrap();
        let conflicts: u64 = counted.iter().map(|one| one.counters.conflicts).sum();
        if conflicts > 0 {
            return Err(format!("{name} has {conflicts} conflicts of banks"));
        }
    }
    Ok(())
}

fn random(seed: u64) -> Case {
    let mut g = Gen::new(seed);
    let head = |g: &mut Gen| match g.int(0..=9) {
        0 => g.pick(&[64, 72, 80, 128, 160]),
        1..=4 => 8 * g.size(1..=4),
        _ => g.size(1..=20),
    };
    let head_dim = head(&mut g);
    let value_dim = if g.chance(0.6) { head_dim } else { head(&mut g) };
    let queries = if g.chance(0.3) { g.size(16..=70) } else { g.size(16..=36) };
    let keys = if g.chance(0.4) { g.size(1..=110) } else { g.size(1..=40) };
    let (batch, kv_heads, groups) = (g.size(1..=2), 1, g.size(1..=2));
    let dtype = g.pick(&[DType::F32, DType::F32, DType::F16, DType::BF16]);
    let shape = AttentionShape { batch, kv_heads, groups, queries, keys, head_dim, value_dim };
    random_attention(&mut g, dtype, &shape)
}

#[test]
fn random_attentions_agree_with_the_oracle() {
    let all = std::env::var_os("RLX_TEST_ALL").is_some();
    let targets = [native(), words(), shorts()];
    let mut wrong = Vec::new();
    let cases = if all { 6 * CASES } else { CASES };
    for seed in 0..cases {
        let target = &targets[seed as usize % 3];
        let case = random(seed);
        let (graph, bindings) = case.graph();
        if let Err(why) = check(&graph, &bindings, target) {
            wrong.push(format!("{} seed {seed}, {:?}: {why}", target.name, case.op));
        }
    }
    assert!(wrong.is_empty(), "{} of {cases} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

fn attention(heads: usize, size: usize, mask: MaskKind) -> Op {
    let (window, scale, unseen) = (None, None, Unseen::Zero);
    Op::Attention { num_heads: heads, head_dim: size, mask, window, scale, unseen }
}

fn graph(dtype: DType, dims: [&[Dim]; 3], op: Op) -> Graph {
    let mut g = Graph::new("attention");
    let ids: Vec<_> =
        dims.iter().zip(["q", "k", "v"]).map(|(d, x)| g.input(x, Shape::from_dims(d, dtype))).collect();
    let y = g.try_add(op, &ids).unwrap();
    g.set_outputs(vec![y]);
    g
}

/// Queries and keys of one open number are whole, and serve every number; those of a decoder may be few and are not.
#[test]
fn open_lengths_that_are_the_same_have_a_kernel() {
    let open = |name: &str| Dim::Dynamic(sym::named(name));
    let dims = |seq: Dim| [open("batch"), seq, Dim::Static(24)];
    let (q, k) = (dims(open("seq")), dims(open("past")));
    let op = attention(2, 12, MaskKind::Causal);
    let of_cache = graph(DType::F32, [&q, &k, &k], op.clone());
    assert!(!is_whole(&try_module(&of_cache, &words()).unwrap()));
    let whole = graph(DType::F32, [&q, &q, &q], op.clone());
    let module = try_module(&whole, &words()).unwrap();
    assert!(is_whole(&module));
    let executable = Executable::new(module, &words()).unwrap();
    let mut g = Gen::new(3);
    for (batch, seq) in [(1, 1), (2, 7), (1, 33), (2, 64)] {
        // Such a module may be bound to these numbers, and is verified again: what was claimed of open ones is claimed of all.
        let bound = [batch, seq, 24].map(Dim::Static);
        let bound = graph(DType::F32, [&bound, &bound, &bound], op.clone());
        assert!(is_whole(&try_module(&bound, &words()).unwrap()), "{batch} × {seq}");
        let mut values = Bindings::default();
        for name in ["q", "k", "v"] {
            values.set_input(name, g.value(DType::F32, &[batch, seq, 24], -1.0..1.0));
        }
        let (want, got) = (oracle::evaluate(&whole, &values).unwrap(), executable.run(&values).unwrap());
        assert_eq!(difference(&want[0], &got[0], tolerance(DType::F32)), None, "{batch} × {seq}");
    }
}

/// A row's bits do not depend on how many rows there are beside it.
#[test]
fn rows_have_the_same_bits_alone() {
    let dims = |n: usize| [1, n, 32].map(Dim::Static);
    let mut g = Gen::new(5);
    let (q, k) = (g.value(DType::F32, &[1, 60, 32], -1.0..1.0), g.value(DType::F32, &[1, 50, 32], -1.0..1.0));
    let run = |rows: std::ops::Range<usize>| {
        let of =
            graph(DType::F32, [&dims(rows.len()), &dims(50), &dims(50)], attention(2, 16, MaskKind::None));
        let own = Value::float(
            DType::F32,
            &[1, rows.len(), 32],
            q.to_f64()[rows.start * 32..rows.end * 32].to_vec(),
        );
        let mut values = Bindings::default();
        [("q", own), ("k", k.clone()), ("v", k.clone())].into_iter().for_each(|(name, v)| {
            values.set_input(name, v);
        });
        Executable::new(try_module(&of, &native()).unwrap(), &native()).unwrap().run(&values).unwrap()[0]
            .to_f64()
    };
    assert_eq!(run(0..60)[37 * 32..60 * 32], run(37..60)[..]);
}

/// What is large, small, of few queries or for a processor is decomposed.
#[test]
fn what_has_no_kernel_is_decomposed() {
    let small = DeviceLimits { max_shared_bytes: 16 << 10, ..KernelTarget::full("small").limits };
    let small = KernelTarget { limits: small, ..KernelTarget::full("small") };
    let whole = |target: &KernelTarget, queries: usize, size: usize, dtype: DType| {
        let dims = [queries, 40, 40].map(|n| [1, n, 2 * size].map(Dim::Static));
        let of = graph(dtype, [&dims[0], &dims[1], &dims[2]], attention(2, size, MaskKind::None));
        is_whole(&try_module(&of, target).unwrap())
    };
    assert!(whole(&native(), 16, 256, DType::F32) && !whole(&native(), 16, 264, DType::F32));
    assert!(!whole(&native(), 15, 64, DType::F32) && !whole(&native(), 16, 64, DType::F64));
    assert!(whole(&small, 40, 64, DType::F16) && !whole(&small, 40, 128, DType::F16));
    assert!(!whole(&processor(), 40, 64, DType::F32));
}
