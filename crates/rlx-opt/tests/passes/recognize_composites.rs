//! Composites: each as three exporters write it, and one that only looks like it.

mod attention;

use crate::common::{apply, assert_same_results, count, short};
use rlx_ir::op::Activation;
use rlx_ir::{DimBinding, Graph, Op, OpKind, sym};
use rlx_opt::passes::{recognize_composites, simplify};

/// The graph as the pipeline has it after the pass and the clean-up that follows.
fn recognized(text: &str) -> Graph {
    let before = short(text);
    let simple = apply(simplify::run, &before);
    let after = apply(simplify::run, &apply(recognize_composites::run, &simple));
    let dims = DimBinding::from_pairs(&[(sym::BATCH, 2), (sym::SEQ, 3)]);
    assert_same_results(&before, &after, &dims);
    after
}

#[track_caller]
fn expect(text: &str, wanted: &Op) -> Graph {
    let after = recognized(text);
    let found = after.nodes().iter().any(|n| n.op == *wanted);
    assert!(found, "no {wanted:?} in {after}");
    after
}

#[track_caller]
fn expect_none(text: &str, kind: OpKind) {
    let after = recognized(text);
    assert_eq!(count(&after, kind), 0, "{after}");
}

const GELU: Op = Op::Activation(Activation::Gelu);
const GELU_APPROX: Op = Op::Activation(Activation::GeluApprox);
const SILU: Op = Op::Activation(Activation::Silu);

#[test]
fn gelu() {
    // torch.onnx (TorchScript)
    expect(
        "x: [batch, 4] f32
        a = Binary.Div(x, 1.4142135)
        b = Activation.Erf(a)
        c = Binary.Add(b, 1)
        d = Binary.Mul(x, c)
        y = Binary.Mul(d, 0.5)
        return y",
        &GELU,
    );
    // torch.onnx (dynamo)
    expect(
        "x: [batch, 4] f32
        a = Binary.Div(x, 1.4142135)
        b = Activation.Erf(a)
        c = Binary.Add(b, 1)
        d = Binary.Mul(0.5, c)
        y = Binary.Mul(x, d)
        return y",
        &GELU,
    );
    // tf2onnx
    expect(
        "x: [batch, 4] f32
        h = Binary.Mul(0.5, x)
        a = Binary.Mul(x, 0.70710677)
        b = Activation.Erf(a)
        c = Binary.Add(1, b)
        y = Binary.Mul(h, c)
        return y",
        &GELU,
    );
    // 1 − erf is another function.
    let near = recognized(
        "x: [batch, 4] f32
        a = Binary.Div(x, 1.4142135)
        b = Activation.Erf(a)
        c = Binary.Sub(1, b)
        d = Binary.Mul(x, c)
        y = Binary.Mul(d, 0.5)
        return y",
    );
    assert!(!near.nodes().iter().any(|n| n.op == GELU), "{near}");
}

#[test]
fn gelu_by_tanh() {
    for cube in ["p = Binary.Pow(x, 3)", "q = Binary.Mul(x, x)\np = Binary.Mul(q, x)"] {
        expect(
            &format!(
                "x: [batch, 4] f32
                {cube}
                a = Binary.Mul(p, 0.044715)
                b = Binary.Add(x, a)
                c = Binary.Mul(b, 0.7978845608)
                d = Activation.Tanh(c)
                e = Binary.Add(d, 1)
                h = Binary.Mul(x, 0.5)
                y = Binary.Mul(h, e)
                return y"
            ),
            &GELU_APPROX,
        );
    }
    // JAX takes x out of the bracket.
    expect(
        "x: [batch, 4] f32
        q = Binary.Mul(x, x)
        a = Binary.Mul(0.044715, q)
        b = Binary.Add(1, a)
        k = Binary.Mul(0.7978845608, x)
        c = Binary.Mul(k, b)
        d = Activation.Tanh(c)
        e = Binary.Add(1, d)
        f = Binary.Mul(0.5, e)
        y = Binary.Mul(x, f)
        return y",
        &GELU_APPROX,
    );
    let near = recognized(
        "x: [batch, 4] f32
        q = Binary.Mul(x, x)
        p = Binary.Mul(q, x)
        a = Binary.Mul(p, 0.05)
        b = Binary.Add(x, a)
        c = Binary.Mul(b, 0.7978845608)
        d = Activation.Tanh(c)
        e = Binary.Add(d, 1)
        h = Binary.Mul(x, 0.5)
        y = Binary.Mul(h, e)
        return y",
    );
    assert!(!near.nodes().iter().any(|n| n.op == GELU_APPROX), "{near}");
}

#[test]
fn silu() {
    expect("x: [batch, 4] f32\ns = Activation.Sigmoid(x)\ny = Binary.Mul(x, s)\nreturn y", &SILU);
    expect("x: [batch, 4] f32\ns = Activation.Sigmoid(x)\ny = Binary.Mul(s, x)\nreturn y", &SILU);
    expect(
        "x: [batch, 4] f32
        n = Activation.Neg(x)
        e = Activation.Exp(n)
        d = Binary.Add(1, e)
        y = Binary.Div(x, d)
        return y",
        &SILU,
    );
    // The sigmoid is needed by itself.
    let near = recognized(
        "x: [batch, 4] f32
        s = Activation.Sigmoid(x)
        y = Binary.Mul(x, s)
        return y, s",
    );
    assert!(!near.nodes().iter().any(|n| n.op == SILU), "{near}");
}

#[test]
fn softmax() {
    let wanted = Op::Softmax { axis: -1 };
    expect(
        "x: [batch, 4] f32
        m = Reduce(x) {op=Max, axes=[1], keep_dim=true}
        d = Binary.Sub(x, m)
        e = Activation.Exp(d)
        s = Reduce(e) {op=Sum, axes=[1], keep_dim=true}
        y = Binary.Div(e, s)
        return y",
        &wanted,
    );
    expect(
        "x: [batch, 4] f32
        m = Reduce(x) {op=Max, axes=[1], keep_dim=true}
        d = Binary.Sub(x, m)
        e = Activation.Exp(d)
        s = Reduce(e) {op=Sum, axes=[1], keep_dim=true}
        r = Activation.Recip(s)
        y = Binary.Mul(r, e)
        return y",
        &wanted,
    );
    // Reductions that drop their dimension, which comes back.
    expect(
        "x: [batch, 4] f32
        m = Reduce(x) {op=Max, axes=[1], keep_dim=false}
        n = Reshape(m) {to=[batch, 1]}
        d = Binary.Sub(x, n)
        e = Activation.Exp(d)
        s = Reduce(e) {op=Sum, axes=[1], keep_dim=false}
        t = Reshape(s) {to=[batch, 1]}
        y = Binary.Div(e, t)
        return y",
        &wanted,
    );
    // The largest of one axis, the sum of the other.
    expect_none(
        "x: [batch, 4] f32
        m = Reduce(x) {op=Max, axes=[0], keep_dim=true}
        d = Binary.Sub(x, m)
        e = Activation.Exp(d)
        s = Reduce(e) {op=Sum, axes=[1], keep_dim=true}
        y = Binary.Div(e, s)
        return y",
        OpKind::Softmax,
    );
}

#[test]
fn layer_norm() {
    let wanted = Op::LayerNorm { axis: -1, eps: 1e-5 };
    // torch.onnx, opset 14
    expect(
        "x: [batch, seq, 4] f32
        g: param [4] f32
        b: param [4] f32
        m = Reduce(x) {op=Mean, axes=[2], keep_dim=true}
        d = Binary.Sub(x, m)
        p = Binary.Pow(d, 2)
        v = Reduce(p) {op=Mean, axes=[2], keep_dim=true}
        w = Binary.Add(v, 0.00001)
        r = Activation.Sqrt(w)
        n = Binary.Div(d, r)
        s = Binary.Mul(n, g)
        y = Binary.Add(s, b)
        return y",
        &wanted,
    );
    // By the reciprocal root, operands the other way round.
    expect(
        "x: [batch, seq, 4] f32
        g: param [4] f32
        b: param [4] f32
        m = Reduce(x) {op=Mean, axes=[2], keep_dim=true}
        d = Binary.Sub(x, m)
        p = Binary.Mul(d, d)
        v = Reduce(p) {op=Mean, axes=[2], keep_dim=true}
        w = Binary.Add(0.00001, v)
        r = Activation.Sqrt(w)
        i = Activation.Recip(r)
        n = Binary.Mul(i, d)
        s = Binary.Mul(g, n)
        y = Binary.Add(b, s)
        return y",
        &wanted,
    );
    // Without gamma and beta, the power being a root.
    expect(
        "x: [batch, seq, 4] f32
        m = Reduce(x) {op=Mean, axes=[2], keep_dim=true}
        d = Binary.Sub(x, m)
        p = Binary.Mul(d, d)
        v = Reduce(p) {op=Mean, axes=[2], keep_dim=true}
        w = Binary.Add(v, 0.00001)
        r = Binary.Pow(w, -0.5)
        y = Binary.Mul(d, r)
        return y",
        &wanted,
    );
    // The variance of another dimension.
    expect_none(
        "x: [batch, 4, 4] f32
        m = Reduce(x) {op=Mean, axes=[2], keep_dim=true}
        d = Binary.Sub(x, m)
        p = Binary.Mul(d, d)
        v = Reduce(p) {op=Mean, axes=[1], keep_dim=true}
        w = Binary.Add(v, 0.00001)
        r = Activation.Sqrt(w)
        y = Binary.Div(d, r)
        return y",
        OpKind::LayerNorm,
    );
}

#[test]
fn rms_norm() {
    let wanted = Op::RmsNorm { axis: -1, eps: 1e-6 };
    // Llama by PyTorch
    expect(
        "x: [batch, seq, 4] f32
        g: param [4] f32
        p = Binary.Pow(x, 2)
        v = Reduce(p) {op=Mean, axes=[2], keep_dim=true}
        w = Binary.Add(v, 0.000001)
        r = Activation.Sqrt(w)
        i = Activation.Recip(r)
        n = Binary.Mul(x, i)
        y = Binary.Mul(g, n)
        return y",
        &wanted,
    );
    expect(
        "x: [batch, seq, 4] f32
        g: param [4] f32
        p = Binary.Mul(x, x)
        v = Reduce(p) {op=Mean, axes=[2], keep_dim=true}
        w = Binary.Add(v, 0.000001)
        r = Activation.Rsqrt(w)
        n = Binary.Mul(r, x)
        y = Binary.Mul(n, g)
        return y",
        &wanted,
    );
    expect(
        "x: [batch, seq, 4] f32
        p = Binary.Mul(x, x)
        v = Reduce(p) {op=Mean, axes=[2], keep_dim=true}
        w = Binary.Add(0.000001, v)
        r = Activation.Sqrt(w)
        y = Binary.Div(x, r)
        return y",
        &wanted,
    );
    // The sum of squares is no mean.
    expect_none(
        "x: [batch, seq, 4] f32
        p = Binary.Mul(x, x)
        v = Reduce(p) {op=Sum, axes=[2], keep_dim=true}
        w = Binary.Add(v, 0.000001)
        r = Activation.Sqrt(w)
        y = Binary.Div(x, r)
        return y",
        OpKind::RmsNorm,
    );
}

#[test]
fn operands_that_make_the_shape_larger_are_no_part_of_a_composite() {
    // A mask of four items over the scores of one.
    expect_none(
        "q: [1, 2, 3, 4] f32
        kt: [1, 2, 4, 3] f32
        v: [1, 2, 3, 4] f32
        mask: [4, 1, 1, 3] f32
        a = MatMul(q, kt)
        c = Binary.Add(a, mask)
        p = Softmax(c) {axis=-1}
        y = MatMul(p, v)
        return y",
        OpKind::Attention,
    );
    // A factor of more dimensions than what is normalised: the norm is found without it.
    let after = recognized(
        "x: [3, 4] f32
        g: param [1, 1, 4] f32
        p = Binary.Mul(x, x)
        v = Reduce(p) {op=Mean, axes=[1], keep_dim=true}
        w = Binary.Add(v, 0.000001)
        r = Activation.Sqrt(w)
        n = Binary.Div(x, r)
        y = Binary.Mul(n, g)
        return y",
    );
    let norm = after.nodes().iter().find(|n| n.op.kind() == OpKind::RmsNorm).unwrap();
    assert_eq!(norm.shape.rank(), 2, "{after}");
}
