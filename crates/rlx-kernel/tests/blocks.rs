//! Matmuls by weights in blocks of 4 and 8 bits: they stay as they are, and the bits are those of dequantising first.

mod common;

use common::{agree, compiled, native, shorts, try_module, words};
use rlx_ir::lir::BufferKind;
use rlx_ir::oracle::{Bindings, evaluate_op};
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Graph, Op, OpKind, Value, text};

/// Columns, depth and block size.
const SIZES: [[usize; 3]; 4] = [[3, 40, 32], [50, 64, 16], [70, 100, 128], [33, 96, 32]];

/// `relu(x·Wᵀ + b)` as importers write it, of `rows` rows, by weights of `dtype`; and with weights of floats.
fn graphs(rows: usize, [n, k, size]: [usize; 3], dtype: DType, zeros: bool) -> [(Graph, Bindings); 2] {
    let (blocks, mut g) = (k.div_ceil(size), Gen::new((rows + n) as u64));
    let (count, width) = (n * blocks, blocks * size);
    let zero = if zeros { ", %3" } else { "" };
    let behind = format!(
        r#"  %5 = Reshape(%4) {{to=[{n}, {width}]}} : [{n}, {width}] f32
             %6 = Slice(%5) {{starts=[0, 0], steps=[1, 1], to=[{n}, {k}]}} : [{n}, {k}] f32
             %7 = Transpose(%6) {{perm=[1, 0]}} : [{k}, {n}] f32
             %8 = MatMul(%0, %7) : [{rows}, {n}] f32
             %9 = Param {{name="b"}} : [{n}] f32
             %10 = Binary.Add(%8, %9) : [{rows}, {n}] f32
             %11 = Activation.Relu(%10) : [{rows}, {n}] f32
             return %11
           }}"#
    );
    let before = format!(
        r#"graph "blocks" {{
             %0 = Input {{name="x"}} : [{rows}, {k}] f32
             %1 = Param {{name="w"}} : [{count}, {size}] {dtype}
             %2 = Param {{name="scale"}} : [{count}] f32
             %3 = Param {{name="zero"}} : [{count}] {dtype}
             %4 = Dequantize(%1, %2{zero}) {{axis=0, to=f32}} : [{count}, {size}] f32
           "#
    );
    let floats = before.replace(
        &format!("%4 = Dequantize(%1, %2{zero}) {{axis=0, to=f32}}"),
        r#"%4 = Param {name="floats"}"#,
    );
    let scales = (0..count).map(|_| 0.01 + 0.001 * g.size(0..=20) as f64).collect();
    let mut operands = vec![
        ("w", g.value(dtype, &[count, size], -128.0..255.0)),
        ("scale", Value::float(DType::F32, &[count], scales).rounded()),
        ("zero", g.value(dtype, &[count], 0.0..15.0)),
    ];
    let given: Vec<&Value> = operands[..if zeros { 3 } else { 2 }].iter().map(|(_, value)| value).collect();
    let op = Op::Dequantize { axis: Some(0), to: DType::F32 };
    let dequantised = evaluate_op(&op, &given, &[]).unwrap().swap_remove(0);
    operands.push(("floats", dequantised));
    operands.push(("b", g.value(DType::F32, &[n], -1.0..1.0)));
    let mut bindings = Bindings::default();
    bindings.set_input("x", g.value(DType::F32, &[rows, k], -1.0..1.0));
    operands.into_iter().for_each(|(name, value)| _ = bindings.set_param(name, value));
    [before, floats].map(|text| {
        let text = text + &behind;
        (text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")), bindings.clone())
    })
}

#[test]
fn blocks_give_the_bits_of_dequantised_weights() {
    for (i, size) in SIZES.into_iter().enumerate() {
        for dtype in [DType::U4, DType::I4, DType::U8, DType::I8] {
            for rows in [1, 37] {
                let [(graph, bindings), (floats, _)] = graphs(rows, size, dtype, i % 2 == 0);
                for target in [native(), words(), shorts()] {
                    agree(&graph, &bindings, &target);
                    let run = |graph| compiled(graph, &target).run(&bindings).unwrap();
                    assert_eq!(run(&graph), run(&floats), "{}: {dtype} {size:?} {rows}", target.name);
                }
            }
        }
    }
}

#[test]
fn weights_stay_as_small_as_they_are() {
    let (rows, [n, k, size]) = (2, [64, 512, 32]);
    let [(graph, _), _] = graphs(rows, [n, k, size], DType::U4, true);
    let module = try_module(&graph, &words()).unwrap();
    let [step] = module.steps.as_slice() else { panic!("{module}") };
    let Op::Region { body } = &module.graph.node(step.node).op else { panic!("{module}") };
    assert_eq!(body.graph.name, "MatMulBlocks+Add+Relu");
    // Of what the init program makes, nothing has an element for each weight.
    let elements = |b: &rlx_ir::lir::Buffer| b.elements.as_const().unwrap();
    let made = module.buffers.iter().filter(|b| !matches!(b.kind, BufferKind::Param(_)));
    assert!(made.map(elements).max().unwrap() < (n * k) as i64, "{module}");
    let kinds = module.init.iter().map(|s| module.graph.node(s.node).op.kind());
    assert!(!kinds.into_iter().any(|kind| kind == OpKind::Dequantize), "{module}");
}
