//! Kernels that exchange values within subgroups give the bits of those that go through workgroup memory, whatever the subgroups' size.

mod common;

use common::{compiled, native, with_subgroups, words};
use rlx_ir::op::{Activation, ArgOp, ReduceOp};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Graph, Op, Shape, Value};
use rlx_kernel::KernelTarget;
use rlx_kernel::ir::SUBGROUPS;

/// How many random cases there are.
fn cases() -> u64 {
    if std::env::var_os("RLX_TEST_ALL").is_some() { 1200 } else { 120 }
}

/// Whether two results have the same bits; NaN are equal whatever theirs are.
fn same(x: &Value, y: &Value) -> bool {
    if x.encode() == y.encode() {
        return true;
    }
    let (p, q) = (x.to_f64(), y.to_f64());
    let equal = |(p, q): (&f64, &f64)| p.to_bits() == q.to_bits() || p.is_nan() && q.is_nan();
    x.dtype.is_float() && p.len() == q.len() && p.iter().zip(&q).all(equal)
}

/// A reduction, an arg-reduction, a softmax or a norm of rows of a random size.
struct Random {
    graph: Graph,
    values: Bindings,
}

impl Random {
    fn new(seed: u64) -> Random {
        let mut random = Gen::new(seed);
        let mut of = |most: i64| random.int(0..=most) as usize;
        let kind = of(4);
        let floats = [DType::F32, DType::F16, DType::BF16];
        let others = [DType::I32, DType::I64, DType::U8, DType::F64];
        let dtype = if kind >= 2 || of(1) == 0 { floats[of(2)] } else { others[of(3)] };
        let length = [33 + of(60), 1 + of(31), 100 + of(700), 1024][of(3)];
        let dims = match of(3) {
            0 => vec![length],
            1 => vec![1 + of(2), 1 + of(4), length],
            _ => vec![1 + of(5), length],
        };
        let last = dims.len() - 1;
        let reductions = [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min, ReduceOp::Prod];
        let keep_dim = of(1) == 0;
        let op = match kind {
            0 => Op::Reduce { op: reductions[of(4)], axes: vec![last], keep_dim },
            1 => {
                let op = if of(1) == 0 { ArgOp::Max } else { ArgOp::Min };
                Op::ArgReduce { op, axis: last, keep_dim, last: of(1) == 0 }
            }
            2 => Op::Softmax { axis: -1 },
            3 => Op::LogSoftmax { axis: -1 },
            _ => [Op::LayerNorm { axis: -1, eps: 1e-5 }, Op::RmsNorm { axis: -1, eps: 1e-5 }][of(1)].clone(),
        };
        let epilogue = dtype.is_float() && kind != 1 && of(2) == 0;
        let mut graph = Graph::new("rows");
        let mut inputs = vec![graph.input("x", Shape::new(&dims, dtype))];
        if matches!(op, Op::LayerNorm { .. } | Op::RmsNorm { .. }) {
            inputs.push(graph.input("scale", Shape::new(&[length], dtype)));
        }
        if matches!(op, Op::LayerNorm { .. }) {
            inputs.push(graph.input("bias", Shape::new(&[length], dtype)));
        }
        let mut y = graph.try_add(op, &inputs).unwrap();
        if epilogue {
            y = graph.try_add(Op::Activation(Activation::Tanh), &[y]).unwrap();
        }
        graph.set_outputs(vec![y]);
        let special = of(3) == 0;
        let mut values = Bindings::default();
        let mut x = random.value(dtype, &dims, -4.0..4.0);
        if special && dtype == DType::F32 {
            x = specials(&mut random, &dims);
        }
        values.set_input("x", x);
        for name in ["scale", "bias"] {
            values.set_input(name, random.value(dtype, &[length], -2.0..2.0));
        }
        Random { graph, values }
    }
}

/// Few numbers, among which are both zeros; at times infinities and NaN.
fn specials(random: &mut Gen, dims: &[usize]) -> Value {
    let of = [0.0f32, -0.0, -1.0, 1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let most = [1, 3, 2, 6][random.int(0..=3) as usize];
    let elements = (0..dims.iter().product()).map(|_| of[random.int(0..=most) as usize]);
    Value::decode(DType::F32, dims, &elements.flat_map(f32::to_le_bytes).collect::<Vec<u8>>())
}

#[test]
fn rows_have_the_same_bits_whatever_the_subgroups() {
    let mut exchanging = 0;
    for seed in 0..cases() {
        let Random { graph, values } = Random::new(seed);
        // Without 64-bit integers, an exchange of one is two.
        let device: fn() -> KernelTarget =
            if seed % 2 == 0 || graph.to_string().contains("f64") { native } else { words };
        let run = |subgroup| {
            let executable = compiled(&graph, &with_subgroups(subgroup, device()));
            let result = executable.run(&values).unwrap_or_else(|e| panic!("{subgroup:?}: {e}\n{graph}"));
            let all: Vec<Option<u32>> = executable.launches().map(|l| l.kernel.subgroup).collect();
            (result, all)
        };
        let (want, without) = run(None);
        assert!(without.iter().all(Option::is_none));
        for lanes in SUBGROUPS {
            let (got, with) = run(Some(lanes));
            assert!(
                want.iter().zip(&got).all(|(x, y)| same(x, y)),
                "subgroups of {lanes}, seed {seed}:\n{graph}"
            );
            exchanging += usize::from(with.contains(&Some(lanes)));
        }
    }
    assert!(exchanging as u64 > cases(), "{exchanging} kernels exchange");
}
