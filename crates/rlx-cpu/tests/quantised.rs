//! Nets of bytes: integers between quantisations, with what follows them in one step.

mod common;

use common::{backends, check, compile, f32s, values};
use rlx_ir::op::{Activation, BinaryOp, DataFormat, PoolKind};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, DimBinding, Graph, GraphExt, NodeId, Op, OpKind, Shape, Value};
use rlx_opt::CompileOptions;

/// What is between a quantised matmul and the next one.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Between {
    Nothing,
    Relu,
    Clip,
    Residual,
    Gelu,
    /// Bytes that are added to other bytes.
    Bytes,
}

/// The bytes `q`, by scale and zero point, and `r` (by the last scale and without a zero point) added as floats.
fn residual(g: &mut Graph, [q, r]: [NodeId; 2], [scale, zero, other]: [NodeId; 3]) -> NodeId {
    let floats = Op::Dequantize { axis: None, to: DType::F32 };
    let own = g.try_add(floats.clone(), &[q, scale, zero]).unwrap();
    let other = g.try_add(floats, &[r, other]).unwrap();
    g.try_add(Op::Binary(BinaryOp::Add), &[other, own]).unwrap()
}

/// How many steps have a product of integers with `quantisations` of their own, to bytes or from them.
fn steps_with(graph: &Graph, quantisations: usize) -> usize {
    let (_, backend) = backends().pop().unwrap();
    let exec = compile(graph, &backend, &CompileOptions::default()).unwrap();
    let lir = exec.lir();
    let kinds =
        |kinds: &[OpKind], g: &Graph| g.nodes().iter().filter(|n| kinds.contains(&n.op.kind())).count();
    let bodies = lir.steps.iter().filter_map(|step| match &lir.graph.node(step.node).op {
        Op::Region { body } => Some(&body.graph),
        _ => None,
    });
    let products = [OpKind::ConvInteger, OpKind::MatMulInteger];
    bodies
        .filter(|g| {
            kinds(&products, g) == 1 && kinds(&[OpKind::Quantize, OpKind::Dequantize], g) == quantisations
        })
        .count()
}

/// `x` of bytes, dequantised, convolved with dequantised weights (a scale for each filter), then quantised again if so. Scales
/// are powers of two: no float is rounded, so that integers and floats give the same bytes.
fn quantised_conv(
    [x, w]: [&[usize]; 2],
    [from, weights, to]: [DType; 3],
    (stride, pad, groups): (usize, usize, usize),
    between: Between,
    bytes: bool,
) -> (Graph, Bindings) {
    let (mut g, mut b, spatial) = (Graph::new("quantised"), Bindings::default(), x.len() - 2);
    // A residual is of the layout in which the net around it computes.
    let last = between == Between::Bytes;
    let format = if last { DataFormat::ChannelsLast } else { DataFormat::ChannelsFirst };
    let x = &if last { [&x[..1], &x[2..], &x[1..2]].concat() } else { x.to_vec() };
    let xi = g.input("x", Shape::new(x, from));
    let scalars = [("sx", 0.25), ("sy", 4.0), ("sr", 2.0)];
    let [sx, sy, sr] = scalars.map(|(name, value)| {
        b.set_param(name, Value::float(DType::F32, &[], vec![value]));
        g.param(name, f32s(&[]))
    });
    let zeros = [("zx", from, 7), ("zy", to, 3), ("zr", to, 5)];
    let [zx, zy, zr] = zeros.map(|(name, dtype, value)| {
        b.set_param(name, Value::int(dtype, &[], vec![value]));
        g.param(name, Shape::new(&[], dtype))
    });
    let (wi, sw, zw) = (
        g.param("w", Shape::new(w, weights)),
        g.param("sw", f32s(&w[..1])),
        g.param("zw", Shape::new(&w[..1], weights)),
    );
    let bias = g.param("bias", f32s(&w[..1]));
    let dequantize = |axis| Op::Dequantize { axis, to: DType::F32 };
    let a = g.try_add(dequantize(None), &[xi, sx, zx]).unwrap();
    let k = g.try_add(dequantize(Some(0)), &[wi, sw, zw]).unwrap();
    let op = Op::Conv {
        strides: vec![stride; spatial],
        pads: vec![pad; 2 * spatial],
        dilations: vec![1; spatial],
        groups,
        format,
    };
    let mut y = g.try_add(op, &[a, k, bias]).unwrap();
    let dims = g.shape(y).static_dims().unwrap();
    let act = |g: &mut Graph, f, y| g.try_add(Op::Activation(f), &[y]).unwrap();
    match between {
        Between::Nothing => {}
        Between::Relu => y = act(&mut g, Activation::Relu, y),
        Between::Gelu => y = act(&mut g, Activation::Gelu, y),
        Between::Clip => {
            for (f, bound) in [(BinaryOp::Max, 0.0), (BinaryOp::Min, 300.0)] {
                let bound = g.try_scalar(bound, DType::F32).unwrap();
                y = g.try_add(Op::Binary(f), &[y, bound]).unwrap();
            }
        }
        Between::Residual => {
            let r = g.input("r", Shape::new(&dims, to));
            b.set_input("r", Gen::new(11).value(to, &dims, 0.0..100.0));
            let r = g.try_add(dequantize(None), &[r, sr, zr]).unwrap();
            y = g.try_add(Op::Binary(BinaryOp::Add), &[y, r]).unwrap();
        }
        Between::Bytes => {
            // Finer than the last: some are saturated, some are not.
            let q = g.try_add(Op::Quantize { axis: None, to }, &[y, sr, zr]).unwrap();
            let other = if to == DType::U8 { DType::I8 } else { DType::U8 };
            let r = g.input("r", Shape::new(&dims, other));
            b.set_input("r", Gen::new(11).value(other, &dims, 0.0..100.0));
            y = residual(&mut g, [q, r], [sr, zr, sx]);
        }
    }
    if bytes {
        y = g.try_add(Op::Quantize { axis: None, to }, &[y, sy, zy]).unwrap();
    }
    g.set_outputs(vec![y]);
    let mut gen_ = Gen::new(7);
    let range = |dtype| if dtype == DType::U8 { 0.0..255.0 } else { -128.0..127.0 };
    b.set_input("x", gen_.value(from, x, range(from)));
    b.set_param("w", gen_.value(weights, w, range(weights)));
    b.set_param("zw", gen_.value(weights, &w[..1], 0.0..3.0));
    b.set_param(
        "sw",
        Value::float(DType::F32, &w[..1], (0..w[0]).map(|i| [0.5, 0.0625, 0.125][i % 3]).collect()),
    );
    b.set_param("bias", Value::float(DType::F32, &w[..1], (0..w[0]).map(|i| i as f64 - 9.5).collect()));
    (g, b)
}

#[test]
fn quantised_convolutions_of_every_form_match_the_oracle() {
    use DType::{I8, U8};
    let types = [[U8, I8, U8], [I8, I8, I8], [U8, U8, I8], [I8, U8, U8]];
    // Dense (a copy with a border, and where it lies), of few channels, of one pixel, of groups, depthwise (and with a tail of channels), of a
    // row, of frames.
    type Case<'a> = (&'a [usize], &'a [usize], (usize, usize, usize));
    let shapes: [Case<'_>; 10] = [
        (&[1, 12, 5, 6], &[50, 12, 3, 3], (1, 1, 1)),
        (&[1, 11, 6, 5], &[64, 11, 3, 3], (1, 1, 1)),
        (&[2, 3, 9, 8], &[17, 3, 5, 3], (2, 1, 1)),
        (&[1, 33, 4, 7], &[20, 33, 1, 1], (1, 0, 1)),
        (&[1, 8, 6, 5], &[6, 4, 3, 3], (1, 1, 2)),
        (&[1, 10, 6, 5], &[96, 5, 3, 3], (1, 1, 2)),
        (&[1, 21, 7, 9], &[21, 1, 3, 3], (1, 1, 21)),
        (&[2, 16, 8, 11], &[16, 1, 5, 3], (2, 2, 16)),
        (&[2, 5, 14], &[7, 5, 4], (3, 1, 1)),
        (&[1, 12, 3, 5, 4], &[20, 12, 3, 2, 3], (1, 1, 1)),
    ];
    let mut form = 0;
    for (x, w, attributes) in shapes {
        for between in
            [Between::Nothing, Between::Relu, Between::Clip, Between::Residual, Between::Gelu, Between::Bytes]
        {
            let bytes = between != Between::Gelu;
            let (g, b) = quantised_conv([x, w], types[form % 4], attributes, between, bytes);
            check(&g, &b, &DimBinding::new());
            // A depthwise kernel leaves the residual to a step of its own.
            if between == Between::Bytes && attributes.2 != x[1] {
                assert_eq!(steps_with(&g, 4), 1, "{g}");
            }
            form += 1;
        }
    }
}

#[test]
fn quantised_products_of_every_form_match_the_oracle() {
    for (m, k, n, function) in [(1, 7, 5, false), (9, 64, 50, true), (33, 30, 96, false)] {
        let (mut g, mut b) = (Graph::new("product"), Bindings::default());
        let x = g.input("x", f32s(&[1, m, k]));
        let scale = g.input("scale", f32s(&[]));
        let zero = g.param("zero", Shape::new(&[], DType::U8));
        let w = g.param("w", Shape::new(&[k, n], DType::I8));
        let wz = g.param("wz", Shape::new(&[], DType::I8));
        let sw = g.param("sw", f32s(&[n]));
        let bias = g.param("bias", f32s(&[n]));
        // As dynamic quantisation writes it: the scale is known while it runs.
        let q = g.try_add(Op::Quantize { axis: None, to: DType::U8 }, &[x, scale, zero]).unwrap();
        let y = g.try_add(Op::MatMulInteger, &[q, w, zero, wz]).unwrap();
        let y = g.try_add(Op::Cast { to: DType::F32 }, &[y]).unwrap();
        let both = g.try_add(Op::Binary(BinaryOp::Mul), &[scale, sw]).unwrap();
        let y = g.try_add(Op::Binary(BinaryOp::Mul), &[y, both]).unwrap();
        let mut y = g.try_add(Op::Binary(BinaryOp::Add), &[y, bias]).unwrap();
        if function {
            y = g.try_add(Op::Activation(Activation::Gelu), &[y]).unwrap();
        }
        let r = g.input("r", f32s(&[1, m, n]));
        let y = g.try_add(Op::Binary(BinaryOp::Add), &[r, y]).unwrap();
        g.set_outputs(vec![y]);
        b.set_input("x", values(1, &[1, m, k]));
        b.set_input("r", values(2, &[1, m, n]));
        b.set_input("scale", Value::float(DType::F32, &[], vec![1.0 / 128.0]));
        b.set_param("zero", Value::int(DType::U8, &[], vec![128]));
        b.set_param("wz", Value::int(DType::I8, &[], vec![0]));
        b.set_param("w", Gen::new(3).value(DType::I8, &[k, n], -128.0..127.0));
        b.set_param("sw", values(4, &[n]));
        b.set_param("bias", values(5, &[n]));
        check(&g, &b, &DimBinding::new());
    }
}

#[test]
fn products_of_bytes_with_a_residual_match_the_oracle() {
    for (m, k, n) in [(1, 7, 5), (9, 64, 50), (33, 30, 96)] {
        let (mut g, mut b) = (Graph::new("residual"), Bindings::default());
        let x = g.input("x", Shape::new(&[m, k], DType::U8));
        let r = g.input("r", Shape::new(&[m, n], DType::U8));
        let w = g.param("w", Shape::new(&[k, n], DType::I8));
        let zero = g.param("zero", Shape::new(&[], DType::U8));
        let zero_w = g.param("zero_w", Shape::new(&[], DType::I8));
        let [fine, coarse] = [("fine", 0.125), ("coarse", 4.0)].map(|(name, scale)| {
            b.set_param(name, Value::float(DType::F32, &[], vec![scale]));
            g.param(name, f32s(&[]))
        });
        let y = g.try_add(Op::MatMulInteger, &[x, w, zero, zero_w]).unwrap();
        let y = g.try_add(Op::Cast { to: DType::F32 }, &[y]).unwrap();
        let y = g.try_add(Op::Binary(BinaryOp::Mul), &[y, fine]).unwrap();
        let quantize = Op::Quantize { axis: None, to: DType::U8 };
        let q = g.try_add(quantize.clone(), &[y, coarse, zero]).unwrap();
        let y = residual(&mut g, [q, r], [coarse, zero, fine]);
        let y = g.try_add(quantize, &[y, coarse, zero]).unwrap();
        g.set_outputs(vec![y]);
        b.set_input("x", Gen::new(1).value(DType::U8, &[m, k], 0.0..255.0));
        b.set_input("r", Gen::new(2).value(DType::U8, &[m, n], 0.0..255.0));
        b.set_param("w", Gen::new(3).value(DType::I8, &[k, n], -128.0..127.0));
        b.set_param("zero", Value::int(DType::U8, &[], vec![128]));
        b.set_param("zero_w", Value::int(DType::I8, &[], vec![2]));
        check(&g, &b, &DimBinding::new());
        assert_eq!(steps_with(&g, 4), 1, "{g}");
        // Bytes, floats or sums that someone else wants, too, are written.
        for wanted in [q, g.node(y).inputs[0], g.node(g.node(y).inputs[0]).inputs[0]] {
            let mut kept = g.clone();
            kept.set_outputs(vec![y, wanted]);
            check(&kept, &b, &DimBinding::new());
            assert_eq!(steps_with(&kept, 4), 0, "{kept}");
        }
    }
}

#[test]
fn the_greatest_bytes_of_windows_match_the_oracle() {
    for (dtype, x) in [(DType::U8, &[2usize, 21, 9, 8][..]), (DType::I8, &[1, 16, 13])] {
        let (mut g, mut b, spatial) = (Graph::new("pool"), Bindings::default(), x.len() - 2);
        let xi = g.input("x", Shape::new(x, dtype));
        let op = Op::Pool {
            kind: PoolKind::Max,
            kernel: vec![3; spatial],
            strides: vec![2; spatial],
            pads: vec![1; 2 * spatial],
            dilations: vec![1; spatial],
            ceil_mode: false,
            count_include_pad: false,
            format: DataFormat::ChannelsFirst,
        };
        let y = g.try_add(op, &[xi]).unwrap();
        g.set_outputs(vec![y]);
        b.set_input("x", Gen::new(9).value(dtype, x, -128.0..128.0));
        check(&g, &b, &DimBinding::new());
    }
}
