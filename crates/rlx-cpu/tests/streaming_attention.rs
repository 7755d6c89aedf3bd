//! Attention of more keys than are computed at a time: every kind of mask, with keys that are hidden piece by piece, against the oracle, with
//! the same bits for any number of threads.

mod common;

use common::{against_oracle, backends, compile, oracle, run};
use rlx_ir::op::{MaskKind, Unseen};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{Gen, random_bindings};
use rlx_ir::{DType, DimBinding, Graph, Op, Shape, Value};
use rlx_opt::CompileOptions;

/// Heads of queries.
const HEADS: usize = 2;

struct Case {
    dtype: DType,
    queries: usize,
    keys: usize,
    /// Heads of keys, elements of a key and of a value.
    kv_heads: usize,
    sizes: [usize; 2],
    kind: MaskKind,
    window: Option<usize>,
    /// The mask's type, where there is one.
    mask: Option<DType>,
    unseen: Unseen,
    scale: Option<f32>,
}

impl Case {
    fn random(g: &mut Gen, at: usize) -> Case {
        let dtype = [DType::F32, DType::BF16, DType::F16][at % 3];
        let (kind, mask) = [
            (MaskKind::None, None),
            (MaskKind::Causal, None),
            (MaskKind::Custom, Some(DType::Bool)),
            (MaskKind::Custom, Some(dtype)),
            (MaskKind::Causal, None),
        ][at / 3 % 5];
        let window = (at / 3 % 5 == 4).then(|| [1, 3, 100, 290, 700][g.size(0..=4)]);
        Case {
            dtype,
            // Few of them are multiplied where keys are.
            queries: [1, 3, 5, 40, 129, 150, 300][g.size(0..=6)],
            keys: [7, 144, 289, 300, 577, 601][g.size(0..=5)],
            window,
            kv_heads: g.size(1..=2),
            sizes: [g.size(1..=70), [16, 33, 64, 50][g.size(0..=3)]],
            kind,
            mask,
            unseen: [Unseen::Zero, Unseen::Nan, Unseen::Guard][g.size(0..=2)],
            scale: [None, None, Some(0.3), Some(-0.2), Some(0.0)][g.size(0..=4)],
        }
    }

    fn graph(&self, g: &mut Gen) -> (Graph, Bindings) {
        let mut graph = Graph::new("attention");
        let [d, dv] = self.sizes;
        let shapes = [
            ("q", [2, HEADS, self.queries, d]),
            ("k", [2, self.kv_heads, self.keys, d]),
            ("v", [2, self.kv_heads, self.keys, dv]),
        ];
        let mut inputs: Vec<_> =
            shapes.iter().map(|(name, dims)| graph.input(*name, Shape::new(dims, self.dtype))).collect();
        let dims = [2, 1, self.queries, self.keys];
        if let Some(dtype) = self.mask {
            inputs.push(graph.input("mask", Shape::new(&dims, dtype)));
        }
        let op = Op::Attention {
            num_heads: HEADS,
            head_dim: d,
            mask: self.kind,
            window: self.window,
            scale: self.scale,
            unseen: self.unseen,
        };
        let y = graph.try_add(op, &inputs).unwrap();
        graph.set_outputs(vec![y]);
        let mut bindings = random_bindings(&graph, &DimBinding::new(), 11);
        if let Some(dtype) = self.mask {
            bindings.set_input("mask", self.mask_value(g, dtype, &dims));
        }
        (graph, bindings)
    }

    /// Of each row one key, no key, the keys of a stretch or all but such are hidden.
    fn mask_value(&self, g: &mut Gen, dtype: DType, dims: &[usize]) -> Value {
        let mut hidden = Vec::new();
        for row in 0..dims[0] * self.queries {
            let (from, to) = (g.size(0..=self.keys - 1), g.size(0..=self.keys - 1));
            let stretch = from.min(to)..from.max(to) + 1;
            hidden.extend((0..self.keys).map(|key| match row % 4 {
                0 => stretch.contains(&key),
                1 => !stretch.contains(&key),
                2 => key != from,
                _ => row % 8 == 3,
            }));
        }
        match dtype {
            DType::Bool => Value::int(dtype, dims, hidden.iter().map(|&h| i128::from(!h)).collect()),
            _ => {
                let bias = |&h: &bool| if h { f64::NEG_INFINITY } else { 0.25 };
                Value::float(dtype, dims, hidden.iter().map(bias).collect())
            }
        }
    }
}

#[test]
fn many_keys_agree_with_the_oracle_and_have_one_answer_for_all_threads() {
    let g = &mut Gen::new(61);
    for at in 0..75 {
        let case = Case::random(g, at);
        let (graph, bindings) = case.graph(g);
        let want = oracle(&graph, &bindings);
        let mut answers = Vec::new();
        for (name, backend) in backends() {
            let mut exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
            let got = run(&mut *exec, &bindings, &DimBinding::new()).unwrap();
            if let Some(difference) = against_oracle(&want, &got) {
                panic!("{at} on {name}: {difference}\n{graph}");
            }
            answers.push(got);
        }
        let [.., one, two] = &answers[..] else { panic!("two backends at least") };
        assert!(one == two, "one thread and two\n{graph}");
    }
}
