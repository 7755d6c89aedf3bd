//! Precision: which ops run short, and where the casts are.

use crate::common::{Anything, apply_with, bindings, check_with, count, short};
use rlx_ir::op::{Activation, BinaryOp};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::plain_lstm;
use rlx_ir::{ConstData, DType, DimBinding, Op, OpKind, Shape, Value};
use rlx_opt::passes::apply_precision;
use rlx_opt::pipeline::PassContext;
use rlx_opt::{CompileOptions, Numerics, Precision, PrecisionPolicy, precision};

const TEXT: &str = "x: [2, 4] f32
    w: param [4, 4] f32
    a = MatMul(x, w)
    t = Transpose(a) {perm=[1, 0]}
    b = Activation.Relu(t)
    c = Activation.Exp(b)
    d = MatMul(c, a)
    return d";

fn with(policy: PrecisionPolicy) -> CompileOptions {
    CompileOptions { policy: Some(policy), ..CompileOptions::default() }
}

#[test]
fn f32_changes_nothing() {
    let before = short(TEXT);
    for options in [CompileOptions::default(), with(PrecisionPolicy::AlwaysF32)] {
        assert_eq!(apply_with(apply_precision::run, &before, &options).to_string(), before.to_string());
    }
}

#[test]
fn products_get_casts_around_them() {
    check_with(
        apply_precision::run,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 4] f32
          %1 = Param {name="w"} : [4, 3] f32
          %2 = MatMul(%0, %1) : [2, 3] f32
          %3 = Activation.Abs(%2) : [2, 3] f32
          return %3
        }"#,
        r#"graph "g" {
          %0 = Input {name="x"} : [2, 4] f32
          %1 = Param {name="w"} : [4, 3] f32
          %2 = Cast(%0) {to=f64} : [2, 4] f64
          %3 = Cast(%1) {to=f64} : [4, 3] f64
          %4 = MatMul(%2, %3) : [2, 3] f64
          %5 = Cast(%4) {to=f32} : [2, 3] f32
          %6 = Activation.Abs(%5) : [2, 3] f32
          return %6
        }"#
        .replace("f64", "f16")
        .as_str(),
        // Multiples of 1/8 within ±1 multiply and add up exactly in f16.
        &with(PrecisionPolicy::AutoMixedConservative),
    );
}

#[test]
fn delicate_ops_stay_long_and_neighbours_stay_short() {
    let before = short(TEXT);
    let after = apply_with(apply_precision::run, &before, &with(PrecisionPolicy::AutoMixed));
    let dtype = |kind| after.nodes().iter().find(|n| n.op.kind() == kind).unwrap().shape.dtype();
    assert_eq!(dtype(OpKind::MatMul), DType::F16);
    assert_eq!(dtype(OpKind::Transpose), DType::F16, "{after}");
    assert!(after.to_string().contains("Activation.Exp(") && after.to_string().contains(": [4, 2] f32"));
    // x, w, the exponential there and back, the output.
    assert_eq!(count(&after, OpKind::Cast), 5, "{after}");
    let bf16 = CompileOptions { precision: Precision::BF16, ..CompileOptions::default() };
    let all = apply_with(apply_precision::run, &before, &bf16);
    assert_eq!(count(&all, OpKind::Cast), 3, "{all}");
}

#[test]
fn the_mixed_policies_leave_what_the_device_gains_nothing_by() {
    let text = "x: [2, 4] f32
        w: param [4, 4] f32
        v: param [6, 2] f32
        a = Activation.Abs(x)
        b = MatMul(a, w)
        c = Activation.Relu(b)
        d = MatMul(v, c)
        e = Activation.Neg(d)
        return c, e";
    let before = short(text);
    let dtypes = |options: &CompileOptions, rows: usize| {
        let target = Anything { gaining_rows: Some(rows), ..Anything::default() };
        let context = PassContext { target: &target, options, is_body: false };
        let after = apply_precision::run(&before, &context).unwrap();
        let computed =
            after.nodes().iter().filter(|n| !matches!(n.op, Op::Cast { .. }) && !n.inputs.is_empty());
        let report = precision::analyze(&after, options, Some(&target));
        let kept: Vec<_> = report.kept.iter().map(|k| (k.kind, k.node_count, k.reason.clone())).collect();
        (computed.map(|n| n.shape.dtype()).collect::<Vec<_>>(), kept)
    };
    let (f, h) = (DType::F32, DType::F16);
    let mixed = with(PrecisionPolicy::AutoMixed);
    let kept = |nodes| vec![(OpKind::MatMul, nodes, "so many rows".to_owned())];
    // Nothing is short, so nothing follows; then what is behind the short product, up to the next one; then all but what is in front.
    assert_eq!(dtypes(&mixed, 1), (vec![f, f, f, f, f], kept(2)));
    assert_eq!(dtypes(&mixed, 2), (vec![f, h, h, f, f], kept(1)));
    assert_eq!(dtypes(&mixed, 6), (vec![f, h, h, h, h], vec![]));
    // What is named is done.
    assert_eq!(dtypes(&with(PrecisionPolicy::AlwaysF16), 1), (vec![h; 5], vec![]));
}

#[test]
fn all_results_of_an_op_run_short_together() {
    let mut before = rlx_ir::Graph::new("greatest");
    let x = before.input("x", Shape::new(&[2, 4], DType::F32));
    let a = before.try_add(Op::Activation(Activation::Abs), &[x]).unwrap();
    let values =
        before.try_add(Op::TopK { k: 2.into(), axis: 1, largest: true, sorted: true }, &[a]).unwrap();
    let places = before.result(values, 1).unwrap();
    let index = before.try_add(Op::Cast { to: DType::F32 }, &[places]).unwrap();
    let b = before.try_add(Op::Activation(Activation::Neg), &[values]).unwrap();
    before.set_outputs(vec![b, places, index]);
    let after = apply_with(apply_precision::run, &before, &with(PrecisionPolicy::AlwaysF16));
    assert_eq!(shortened(&after), [OpKind::Activation, OpKind::TopK, OpKind::Activation], "{after}");
    // In front of the first, behind the last, and the model's own.
    assert_eq!(count(&after, OpKind::Cast), 3, "{after}");
    let dtypes: Vec<DType> = after.outputs.iter().map(|&id| after.shape(id).dtype()).collect();
    assert_eq!(dtypes, [DType::F32, before.shape(places).dtype(), DType::F32]);
    let x = [0.5, -2.0, 1.0, 0.25, 3.0, 0.0, -1.0, 4.0];
    assert_eq!(of_x(&after, &[2, 4], &x), of_x(&before, &[2, 4], &x));
}

#[test]
fn results_of_a_recurrent_layer_stay_short_up_to_the_output() {
    let mut before = rlx_ir::Graph::new("lstm");
    let given = |before: &mut rlx_ir::Graph, name: &str, dims: &[usize]| {
        before.input(name, Shape::new(dims, DType::F32))
    };
    let x = given(&mut before, "x", &[3, 2, 16]);
    let w = given(&mut before, "w", &[4, 16]);
    let state = [given(&mut before, "h", &[2, 4]), given(&mut before, "c", &[2, 4])];
    let y = before.try_add(plain_lstm(), &[x, w, state[0], state[1]]).unwrap();
    let c = before.result(y, 2).unwrap();
    let sum = before.try_add(Op::Binary(BinaryOp::Add), &[y, c]).unwrap();
    before.set_outputs(vec![sum]);
    let after =
        apply_with(apply_precision::run, &before, &CompileOptions::default().precision(Precision::BF16));
    let kinds =
        [(OpKind::Recurrent, DType::BF16), (OpKind::Result, DType::BF16), (OpKind::Binary, DType::BF16)];
    let found = after.nodes().iter().filter(|n| !n.inputs.is_empty() && n.op.kind() != OpKind::Cast);
    assert_eq!(found.map(|n| (n.op.kind(), n.shape.dtype())).collect::<Vec<_>>(), kinds, "{after}");
    assert_eq!(count(&after, OpKind::Cast), 5, "{after}");
}

#[test]
fn constants_beyond_the_range_do_not_become_infinite() {
    // A mask as exporters write it: 0 where something may be seen, the smallest f32 elsewhere.
    let mut before = rlx_ir::Graph::new("mask");
    let shape = Shape::new(&[3], DType::F32);
    let x = before.input("x", shape.clone());
    let least = before.constant(ConstData::from_f32(&[], &[f32::MIN]).unwrap());
    let y = before.binary(BinaryOp::Mul, x, least, shape);
    before.set_outputs(vec![y]);
    for (precision, most) in [(Precision::F16, 65504.0), (Precision::BF16, 3.389_531_389_251_535_5e38)] {
        let options = CompileOptions::default().precision(precision);
        let after = apply_with(apply_precision::run, &before, &options);
        let mut given = Bindings::default();
        given.set_input("x", Value::float(DType::F32, &[3], vec![0.0, 1.0, 0.5]));
        let found = oracle::evaluate(&after, &given).unwrap()[0].to_f64();
        assert_eq!(found, [0.0, -most, -most / 2.0], "{precision}: {after}");
    }
}

/// The op of each f16 node after the pass.
fn shortened(graph: &rlx_ir::Graph) -> Vec<OpKind> {
    let short = graph.nodes().iter().filter(|n| n.shape.dtype() == DType::F16 && n.op.kind() != OpKind::Cast);
    short.map(|n| n.op.kind()).collect()
}

/// The oracle's first output of `graph`, its only input being `x`.
fn of_x(graph: &rlx_ir::Graph, dims: &[usize], x: &[f64]) -> Vec<f64> {
    let mut given = Bindings::default();
    given.set_input("x", Value::float(DType::F32, dims, x.to_vec()));
    oracle::evaluate(graph, &given).unwrap()[0].to_f64()
}

#[test]
fn scales_and_zero_points_stay_long() {
    // DynamicQuantizeLinear of values whose scale is subnormal in f16.
    let before = short(
        "x: [2, 4] f32
        high = Reduce(x) {op=Max, axes=[0, 1], keep_dim=false}
        top = Binary.Max(high, 0)
        low = Reduce(x) {op=Min, axes=[0, 1], keep_dim=false}
        end = Binary.Min(low, 0)
        range = Binary.Sub(top, end)
        scale = Binary.Div(range, 255)
        part = Binary.Div(end, scale)
        neg = Activation.Neg(part)
        near = Activation.Round(neg)
        point = Cast(near) {to=u8}
        y = Quantize(x, scale, point) {axis=none, to=u8}
        return y",
    );
    let x: Vec<f64> = (0..8).map(|i| f64::from((i as f32 - 3.0) * 1e-6)).collect();
    for precision in [Precision::F16, Precision::BF16] {
        let after =
            apply_with(apply_precision::run, &before, &CompileOptions::default().precision(precision));
        assert_eq!(shortened(&after), [], "{after}");
        assert_eq!(of_x(&after, &[2, 4], &x), of_x(&before, &[2, 4], &x), "{after}");
    }
    let after = apply_with(apply_precision::run, &before, &with(PrecisionPolicy::AutoMixed));
    assert_eq!(of_x(&after, &[2, 4], &x), of_x(&before, &[2, 4], &x), "{after}");
}

#[test]
fn sums_of_integers_stay_long_until_an_op_of_another_kind() {
    let before = short(
        "x: [2, 4] f32
        big = Cast(x) {to=i32}
        long = Cast(big) {to=f32}
        a = Binary.Mul(long, 0.001)
        b = Binary.Mul(a, 0.000001)
        c = Activation.Relu(b)
        t = Transpose(c) {perm=[1, 0]}
        y = MatMul(c, t)
        return y",
    );
    let x: Vec<f64> = (0..8).map(|i| f64::from(i) * 1e7).collect();
    let after =
        apply_with(apply_precision::run, &before, &CompileOptions::default().precision(Precision::F16));
    assert_eq!(shortened(&after), [OpKind::Transpose, OpKind::MatMul], "{after}");
    for (got, want) in of_x(&after, &[2, 4], &x).iter().zip(of_x(&before, &[2, 4], &x)) {
        assert!((got - want).abs() <= 2e-3 * want.abs(), "{got}, not {want}: {after}");
    }
}

#[test]
fn constants_that_the_type_has_no_number_for_stay_long() {
    // Layer norm written out, of a row without variance.
    let before = |eps: &str| {
        short(&format!(
            "x: [1, 4] f32
            m = Reduce(x) {{op=Mean, axes=[1], keep_dim=true}}
            d = Binary.Sub(x, m)
            q = Binary.Mul(d, d)
            v = Reduce(q) {{op=Mean, axes=[1], keep_dim=true}}
            s = Binary.Add(v, {eps})
            r = Activation.Sqrt(s)
            y = Binary.Div(d, r)
            return y"
        ))
    };
    let f16 = CompileOptions::default().precision(Precision::F16);
    for eps in ["0.00000001", "0.000000000001", "0.00001"] {
        let after = apply_with(apply_precision::run, &before(eps), &f16);
        assert_eq!(of_x(&after, &[1, 4], &[2.0; 4]), [0.0; 4], "{after}");
        assert!(!shortened(&after).contains(&OpKind::Activation), "{after}");
    }
    // Rows whose variance the type has no number for, and whose squares are 0 in it.
    let x = [1e-4, -1e-4, 3e-4, -3e-4];
    let after = apply_with(apply_precision::run, &before("0.000000000001"), &f16);
    for (got, want) in of_x(&after, &[1, 4], &x).iter().zip(of_x(&before("0.000000000001"), &[1, 4], &x)) {
        assert!((got - want).abs() <= 2e-3, "{got}, not {want}: {after}");
    }
    assert_eq!(shortened(&after).iter().filter(|&&kind| kind == OpKind::Reduce).count(), 1, "{after}");
    // Rows divided by their norm, as attention of cosines has them: one small, one of zeros.
    let unit = short(
        "x: [2, 4] f32
        q = Binary.Mul(x, x)
        v = Reduce(q) {op=Sum, axes=[1], keep_dim=true}
        r = Activation.Sqrt(v)
        n = Binary.Max(r, 0.000000000001)
        y = Binary.Div(x, n)
        return y",
    );
    let x = [1e-4, -1e-4, 3e-4, -3e-4, 0.0, 0.0, 0.0, 0.0];
    let after = apply_with(apply_precision::run, &unit, &f16);
    for (got, want) in of_x(&after, &[2, 4], &x).iter().zip(of_x(&unit, &[2, 4], &x)) {
        assert!((got - want).abs() <= 2e-3, "{got}, not {want}: {after}");
    }
    // A factor beyond the range is no mask.
    let before = short(
        "x: [2] f32
        y = Binary.Div(x, 1000000)
        return y",
    );
    let after = apply_with(apply_precision::run, &before, &f16);
    assert_eq!(of_x(&after, &[2], &[3e6, 1e6]), [3.0, 1.0], "{after}");
}

#[test]
fn angles_stay_long_and_what_is_made_of_their_sines_does_not() {
    // Positions times frequencies, written as a product of a column and a row, and element by element.
    for angle in ["MatMul(x, f)", "Binary.Mul(x, f)"] {
        let before = short(&format!(
            "x: [4, 1] f32
            f: param [1, 2] f32
            a = {angle}
            t = Transpose(a) {{perm=[1, 0]}}
            c = Activation.Cos(t)
            y = Binary.Mul(c, 0.5)
            z = MatMul(y, x)
            return c, z"
        ));
        let positions = [3.0, 257.0, 511.0, 4095.0];
        let given = |graph: &rlx_ir::Graph| {
            let mut given = Bindings::default();
            given.set_input("x", Value::float(DType::F32, &[4, 1], positions.to_vec()));
            given.set_param("f", Value::float(DType::F32, &[1, 2], vec![1.0, 0.25]));
            oracle::evaluate(graph, &given).unwrap()[0].to_f64()
        };
        for precision in [Precision::F16, Precision::BF16] {
            let after =
                apply_with(apply_precision::run, &before, &CompileOptions::default().precision(precision));
            for (got, want) in given(&after).iter().zip(given(&before)) {
                assert!((got - want).abs() <= 4e-3, "{got}, not {want}: {after}");
            }
            let long = |kind: OpKind| {
                after.nodes().iter().any(|n| n.op.kind() == kind && n.shape.dtype() == DType::F32)
            };
            assert!(long(OpKind::Activation), "{after}");
            let last = after.nodes().iter().rfind(|n| n.op.kind() == OpKind::MatMul).unwrap();
            assert!(last.shape.dtype() != DType::F32, "{after}");
        }
    }
}

#[test]
fn what_is_cut_out_of_a_short_value_stays_short() {
    // Query, key and value as one product: reshapes and transposes in front of the slices, and a concatenation behind them.
    let moved = "r = Reshape(a) {to=[5, 2, 3, 4]}
        t = Transpose(r) {perm=[2, 1, 0, 3]}
        q = Slice(t) {starts=[0, 0, 0, 0], steps=[1, 1, 1, 1], to=[1, 2, 5, 4]}
        k = Slice(t) {starts=[1, 0, 0, 0], steps=[1, 1, 1, 1], to=[1, 2, 5, 4]}
        v = Slice(t) {starts=[2, 0, 0, 0], steps=[1, 1, 1, 1], to=[1, 2, 5, 4]}
        both = Concat(k, v) {axis=2}
        turned = Transpose(both) {perm=[0, 1, 3, 2]}";
    let inputs = "x: [5, 2, 4] f32
        w: param [4, 12] f32";
    let before = short(&format!("{inputs}\n a = MatMul(x, w)\n {moved}\n y = MatMul(q, turned)\n return y"));
    for precision in [Precision::F16, Precision::BF16] {
        let options = CompileOptions::default().precision(precision);
        let after = apply_with(apply_precision::run, &before, &options);
        // The input, the parameter and the result.
        assert_eq!(count(&after, OpKind::Cast), 3, "{after}");
        // Not a bit differs from what is made long, moved and made short again.
        let there_and_back = format!(
            "{inputs}
            xs = Cast(x) {{to={precision}}}
            ws = Cast(w) {{to={precision}}}
            product = MatMul(xs, ws)
            a = Cast(product) {{to=f32}}
            {moved}
            qs = Cast(q) {{to={precision}}}
            ts = Cast(turned) {{to={precision}}}
            last = MatMul(qs, ts)
            y = Cast(last) {{to=f32}}
            return y"
        );
        let there_and_back = short(&there_and_back);
        for seed in 0..3 {
            let given = bindings(&before, &DimBinding::default(), seed);
            let want = oracle::evaluate(&there_and_back, &given).unwrap();
            assert_eq!(oracle::evaluate(&after, &given).unwrap(), want, "{after}");
        }
    }
}

#[test]
fn what_is_computed_once_is_rounded_once() {
    // Weights with a batch norm's factor: f32 up to the product that reads them.
    let before = short(
        "x: [2, 4] f32
        w: param [4, 3] f32
        variance: param [3] f32
        root = Activation.Rsqrt(variance)
        weights = Binary.Mul(w, root)
        y = MatMul(x, weights)
        return y",
    );
    for precision in [Precision::F16, Precision::BF16] {
        let options = CompileOptions::default().precision(precision);
        let after = apply_with(apply_precision::run, &before, &options);
        for node in after.nodes() {
            let once = matches!(node.op.kind(), OpKind::Binary | OpKind::Activation);
            assert!(!once || node.shape.dtype() == DType::F32, "{after}");
        }
        let product = after.nodes().iter().find(|n| n.op.kind() == OpKind::MatMul).unwrap();
        assert_eq!(product.shape.dtype(), precision.dtype(), "{after}");
        // The input, the weights and the result.
        assert_eq!(count(&after, OpKind::Cast), 3, "{after}");
    }
}

/// A batch norm that no convolution absorbs, behind an op that runs short.
const NORM: &str = "x: [2, 3, 4] f32
    gamma: param [3] f32
    beta: param [3] f32
    mean: param [3] f32
    variance: param [3] f32
    e = Activation.Abs(x)
    n = BatchNorm(e, gamma, beta, mean, variance) {eps=0.001}
    y = Activation.Relu(n)
    return y";

#[test]
fn a_batch_norm_is_computed_long_and_rounded_once() {
    let before = short(NORM);
    for options in [
        CompileOptions::default().precision(Precision::BF16),
        CompileOptions::default().precision(Precision::F16),
        with(PrecisionPolicy::AutoMixedBf16),
    ] {
        // It is left to the policy, which makes a factor and a summand of it.
        let folded = apply_with(rlx_opt::passes::fold_batch_norm::run, &before, &options);
        assert_eq!(count(&folded, OpKind::BatchNorm), 1, "{folded}");
        let after = apply_with(apply_precision::run, &folded, &options);
        assert_eq!(count(&after, OpKind::BatchNorm), 0, "{after}");
        // The ReLU moves in front of the cast.
        let after = apply_with(rlx_opt::passes::simplify::run, &after, &options);
        for node in after.nodes() {
            let long =
                matches!(node.op, Op::Binary(_) | Op::Activation(Activation::Relu | Activation::Rsqrt));
            assert!(!long || node.shape.dtype() == DType::F32, "{after}");
        }
        // Of the input; of what the norm reads, to f32; of what the ReLU behind it gives; of the output.
        assert_eq!(count(&after, OpKind::Cast), 4, "{after}");
    }
    // As it is given it is a norm like others, which the mixed policies leave in f32.
    let options = CompileOptions { numerics: Numerics::Strict, ..with(PrecisionPolicy::AutoMixedBf16) };
    let after = apply_with(apply_precision::run, &before, &options);
    let norm = after.nodes().iter().find(|n| n.op.kind() == OpKind::BatchNorm).unwrap();
    assert_eq!(norm.shape.dtype(), DType::F32, "{after}");
    // What is asked to stay f32 does, as two ops.
    let options = with(PrecisionPolicy::AutoMixedConservative);
    let folded = apply_with(rlx_opt::passes::fold_batch_norm::run, &before, &options);
    let after = apply_with(apply_precision::run, &folded, &options);
    assert_eq!((count(&after, OpKind::BatchNorm), count(&after, OpKind::Cast)), (0, 0), "{after}");
}

#[test]
fn a_norm_of_bf16_is_within_one_rounding_of_the_exact_one() {
    let before = short(NORM);
    let options = CompileOptions::default().precision(Precision::BF16);
    let folded = apply_with(rlx_opt::passes::fold_batch_norm::run, &before, &options);
    let after = apply_with(apply_precision::run, &folded, &options);
    let x: Vec<f64> = (0..24).map(|i| f64::from(i) / 16.0 - 0.6875).collect();
    // None of these is a bf16.
    let statistics = [
        ("gamma", [0.333, 1.777, -0.91]),
        ("beta", [0.123, -0.456, 0.789]),
        ("mean", [0.201, 0.302, 0.403]),
        ("variance", [0.51, 1.23, 0.77]),
    ];
    let mut all = Bindings::default();
    all.set_input("x", Value::float(DType::F32, &[2, 3, 4], x));
    for (name, values) in statistics {
        all.set_param(name, Value::float(DType::F32, &[3], values.to_vec()));
    }
    let [exact, rounded] = [&before, &after].map(|graph| oracle::evaluate(graph, &all).unwrap()[0].to_f64());
    for (exact, rounded) in exact.iter().zip(&rounded) {
        assert!((exact - rounded).abs() <= exact.abs() * 2f64.powi(-8) + 1e-6, "{exact} {rounded}");
    }
}
