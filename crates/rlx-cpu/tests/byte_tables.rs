//! Chains of ops from one byte to another, which are looked up in tables where there are enough elements: the bits of the ops.

mod common;

use common::{backends, check, compile, f32s, run};
use rlx_ir::op::{Activation, BinaryOp};
use rlx_ir::oracle::Bindings;
use rlx_ir::{DType, DimBinding, Graph, GraphExt, NodeId, Op, Shape, Value};
use rlx_opt::CompileOptions;

const COLUMNS: usize = 300;

/// So many rows of bytes, each with a bias for its column, quantised; then a chain of `ops` with a quantisation and its opposite behind each of them.
fn graph(rows: usize, dtype: DType, ops: &[Activation]) -> (Graph, Bindings) {
    let (mut g, mut b) = (Graph::new("chain"), Bindings::default());
    let x = g.input("x", Shape::new(&[rows, COLUMNS], dtype));
    let bias = g.param("bias", f32s(&[COLUMNS]));
    let [scale, small] = [("scale", 0.25), ("small", 0.0625)].map(|(name, value)| {
        b.set_param(name, Value::float(DType::F32, &[], vec![value]));
        g.param(name, f32s(&[]))
    });
    let zero = g.param("zero", Shape::new(&[], dtype));
    b.set_param("zero", Value::int(dtype, &[], vec![3]));
    let all: Vec<i128> = if dtype == DType::I8 { (-128..128).collect() } else { (0..256).collect() };
    let bytes = (0..rows * COLUMNS).map(|i| all[(i * 7 + i / COLUMNS) % 256]).collect();
    b.set_input("x", Value::int(dtype, &[rows, COLUMNS], bytes));
    b.set_param(
        "bias",
        Value::float(DType::F32, &[COLUMNS], (0..COLUMNS).map(|i| (i % 40) as f64 - 20.0).collect()),
    );

    let floats = |g: &mut Graph, q: NodeId, by| {
        g.try_add(Op::Dequantize { axis: None, to: DType::F32 }, &[q, by, zero]).unwrap()
    };
    let quantised = |g: &mut Graph, x: NodeId, by| {
        g.try_add(Op::Quantize { axis: None, to: dtype }, &[x, by, zero]).unwrap()
    };
    let y = floats(&mut g, x, scale);
    let y = g.try_add(Op::Binary(BinaryOp::Add), &[y, bias]).unwrap();
    let mut q = quantised(&mut g, y, scale);
    for op in ops {
        let y = floats(&mut g, q, scale);
        let f = g.try_add(Op::Activation(*op), &[y]).unwrap();
        let two = g.try_scalar(2.0, DType::F32).unwrap();
        let f = g.try_add(Op::Binary(BinaryOp::Mul), &[f, two]).unwrap();
        // Two ways from the same byte to the same result.
        let f = g.try_add(Op::Binary(BinaryOp::Add), &[f, y]).unwrap();
        q = quantised(&mut g, f, small);
    }
    g.set_outputs(vec![q]);
    (g, b)
}

#[test]
fn tables_give_the_bits_of_the_ops() {
    for dtype in [DType::U8, DType::I8] {
        let [(large, all), (small, some)] = [201, 13]
            .map(|rows| graph(rows, dtype, &[Activation::Erf, Activation::Tanh, Activation::Sigmoid]));
        for (name, backend) in backends() {
            let dims = DimBinding::default();
            let mut exec = compile(&large, &backend, &CompileOptions::default()).unwrap();
            let got = run(&mut *exec, &all, &dims).unwrap().swap_remove(0);
            let mut exec = compile(&small, &backend, &CompileOptions::default()).unwrap();
            let x = all.input("x").unwrap().encode();
            for (part, want) in x.chunks(13 * COLUMNS).zip(got.chunks(13 * COLUMNS)) {
                let mut some = some.clone();
                let mut bytes = part.to_vec();
                bytes.resize(13 * COLUMNS, 0);
                some.set_input("x", Value::decode(dtype, &[13, COLUMNS], &bytes));
                let few = run(&mut *exec, &some, &dims).unwrap().swap_remove(0);
                assert_eq!(few[..part.len()], *want, "{dtype} on {name}");
            }
        }
    }
}

#[test]
fn chains_of_exact_ops_match_the_oracle() {
    for dtype in [DType::U8, DType::I8] {
        let (g, b) = graph(60, dtype, &[Activation::Relu, Activation::Abs]);
        check(&g, &b, &DimBinding::default());
    }
}
