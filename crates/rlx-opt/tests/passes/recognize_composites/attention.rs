//! Attention and rotary embedding.

use super::{expect, expect_none};
use crate::common::count;
use rlx_ir::op::{MaskKind, Unseen};
use rlx_ir::{Op, OpKind};

/// `q`, `k` and `v` of two heads of four, split and transposed.
const HEADS: &str = "xq: [batch, seq, 8] f32
        xk: [batch, seq, 8] f32
        xv: [batch, seq, 8] f32
        rq = Reshape(xq) {to=[batch, seq, 2, 4]}
        q = Transpose(rq) {perm=[0, 2, 1, 3]}
        rk = Reshape(xk) {to=[batch, seq, 2, 4]}
        k = Transpose(rk) {perm=[0, 2, 1, 3]}
        rv = Reshape(xv) {to=[batch, seq, 2, 4]}
        v = Transpose(rv) {perm=[0, 2, 1, 3]}
        ";

const BACK: &str = "t = Transpose(y) {perm=[0, 2, 1, 3]}
        z = Reshape(t) {to=[batch, seq, 8]}
        return z";

fn attention(mask: MaskKind, scale: Option<f32>) -> Op {
    Op::Attention { num_heads: 2, head_dim: 4, mask, window: None, scale, unseen: Unseen::Nan }
}

#[test]
fn attention_with_the_scale_on_the_scores_and_an_additive_mask() {
    // torch.onnx, opset 14: BERT
    let after = expect(
        &format!(
            "{HEADS}
            mask: [batch, 1, 1, seq] f32
            kt = Transpose(rk) {{perm=[0, 2, 3, 1]}}
            a = MatMul(q, kt)
            b = Binary.Mul(a, 0.5)
            c = Binary.Add(b, mask)
            p = Softmax(c) {{axis=-1}}
            y = MatMul(p, v)
            {BACK}"
        ),
        &attention(MaskKind::Custom, None),
    );
    let moved = count(&after, OpKind::Transpose) + count(&after, OpKind::Reshape);
    assert_eq!(moved, 0, "rows in, rows out: {after}");
}

#[test]
fn attention_with_roots_of_the_scale_and_a_guard_against_nan() {
    // torch.onnx (dynamo), scaled_dot_product_attention
    expect(
        &format!(
            "{HEADS}
            see: [batch, 1, seq, seq] bool
            km = Reshape(k) {{to=[2*batch, seq, 4]}}
            ks = Transpose(km) {{perm=[0, 2, 1]}}
            kt = Reshape(ks) {{to=[batch, 2, 4, seq]}}
            q2 = Binary.Mul(q, 0.70710677)
            k2 = Binary.Mul(kt, 0.70710677)
            m = Where(see, 0, -inf)
            a = MatMul(q2, k2)
            c = Binary.Add(a, m)
            p = Softmax(c) {{axis=-1}}
            n = Predicate.IsNan(p)
            w = Where(n, 0, p)
            y = MatMul(w, v)
            {BACK}"
        ),
        &Op::Attention {
            num_heads: 2,
            head_dim: 4,
            mask: MaskKind::Custom,
            window: None,
            scale: None,
            unseen: Unseen::Guard,
        },
    );
}

#[test]
fn attention_with_the_scale_on_the_queries_and_a_choosing_mask() {
    let after = expect(
        &format!(
            "{HEADS}
            hide: [seq, seq] bool
            q2 = Binary.Div(q, 3)
            kt = Transpose(k) {{perm=[0, 1, 3, 2]}}
            a = MatMul(q2, kt)
            c = Where(hide, -1e30, a)
            p = Softmax(c) {{axis=3}}
            y = MatMul(p, v)
            {BACK}"
        ),
        &attention(MaskKind::Custom, Some((1.0f64 / 3.0) as f32)),
    );
    assert_eq!(count(&after, OpKind::Where), 1, "the mask is finite, so it is added: {after}");
}

#[test]
fn attention_of_grouped_heads() {
    // Llama: keys and values of one head, repeated for two.
    let after = expect(
        "xq: [batch, seq, 8] f32
        xk: [batch, seq, 4] f32
        xv: [batch, seq, 4] f32
        rq = Reshape(xq) {to=[batch, seq, 2, 4]}
        q = Transpose(rq) {perm=[0, 2, 1, 3]}
        rk = Reshape(xk) {to=[batch, seq, 1, 4]}
        k1 = Transpose(rk) {perm=[0, 2, 1, 3]}
        k2 = Reshape(k1) {to=[batch, 1, 1, seq, 4]}
        k3 = Expand(k2) {to=[batch, 1, 2, seq, 4]}
        k = Reshape(k3) {to=[batch, 2, seq, 4]}
        rv = Reshape(xv) {to=[batch, seq, 1, 4]}
        v1 = Transpose(rv) {perm=[0, 2, 1, 3]}
        v2 = Reshape(v1) {to=[batch, 1, 1, seq, 4]}
        v3 = Expand(v2) {to=[batch, 1, 2, seq, 4]}
        v = Reshape(v3) {to=[batch, 2, seq, 4]}
        kt = Transpose(k) {perm=[0, 1, 3, 2]}
        a = MatMul(q, kt)
        b = Binary.Mul(a, 0.5)
        p = Softmax(b) {axis=-1}
        y = MatMul(p, v)
        t = Transpose(y) {perm=[0, 2, 1, 3]}
        z = Reshape(t) {to=[batch, seq, 8]}
        return z",
        &attention(MaskKind::None, None),
    );
    assert_eq!(count(&after, OpKind::Expand), 0, "{after}");
}

#[test]
fn attention_of_one_item_with_the_sequence_first() {
    // torch.nn.MultiheadAttention, batch_first, batch 1: its transposes are reshapes.
    let after = expect(
        "q: [seq, 1, 8] f32
        k: [seq, 1, 8] f32
        v: [seq, 1, 8] f32
        qh = Reshape(q) {to=[seq, 1, 2, 4]}
        kh = Reshape(k) {to=[seq, 1, 2, 4]}
        vh = Reshape(v) {to=[seq, 1, 2, 4]}
        qt = Transpose(qh) {perm=[1, 2, 0, 3]}
        kt = Transpose(kh) {perm=[1, 2, 3, 0]}
        vt = Transpose(vh) {perm=[1, 2, 0, 3]}
        a = MatMul(qt, kt)
        b = Binary.Mul(a, 0.5)
        p = Softmax(b) {axis=-1}
        y = MatMul(p, vt)
        t = Transpose(y) {perm=[2, 0, 1, 3]}
        z = Reshape(t) {to=[seq, 8]}
        return z",
        &attention(MaskKind::None, None),
    );
    assert_eq!(count(&after, OpKind::Transpose), 0, "{after}");
}

#[test]
fn attention_of_windows() {
    // Swin: a mask for each window of an image, and a bias for each head.
    let graph = |mask: &str| {
        format!(
            "all: [batch, 8, seq, 4] f32
            v: [4*batch, 2, seq, 4] f32
            bias: [1, 2, seq, seq] f32
            mask: {mask} f32
            q = Reshape(all) {{to=[4*batch, 2, seq, 4]}}
            qs = Binary.Mul(q, 0.5)
            kt = Transpose(v) {{perm=[0, 1, 3, 2]}}
            s = MatMul(qs, kt)
            a = Binary.Add(s, bias)
            w = Reshape(a) {{to=[batch, 4, 2, seq, seq]}}
            m = Binary.Add(w, mask)
            i = Reshape(m) {{to=[4*batch, 2, seq, seq]}}
            p = Softmax(i) {{axis=-1}}
            y = MatMul(p, v)
            return y"
        )
    };
    expect(&graph("[1, 4, 1, seq, seq]"), &attention(MaskKind::Custom, None));
    expect(&graph("[4, 2, seq, seq]"), &attention(MaskKind::Custom, None));
    expect(&graph("[seq]"), &attention(MaskKind::Custom, None));
}

#[test]
fn attention_of_the_windows_of_several_images() {
    // torch.onnx, MaxViT: images and windows are dimensions of their own
    let of = |mask: &str| {
        format!(
            "xq: [batch, 3, seq, 8] f32
            xk: [batch, 3, seq, 8] f32
            xv: [batch, 3, seq, 8] f32
            bias: {mask} f32
            rq = Reshape(xq) {{to=[batch, 3, seq, 2, 4]}}
            q = Transpose(rq) {{perm=[0, 1, 3, 2, 4]}}
            rk = Reshape(xk) {{to=[batch, 3, seq, 2, 4]}}
            k = Transpose(rk) {{perm=[0, 1, 3, 2, 4]}}
            rv = Reshape(xv) {{to=[batch, 3, seq, 2, 4]}}
            v = Transpose(rv) {{perm=[0, 1, 3, 2, 4]}}
            k2 = Binary.Mul(k, 0.5)
            kt = Transpose(k2) {{perm=[0, 1, 2, 4, 3]}}
            a = MatMul(q, kt)
            c = Binary.Add(a, bias)
            p = Softmax(c) {{axis=-1}}
            y = MatMul(p, v)
            t = Transpose(y) {{perm=[0, 1, 3, 2, 4]}}
            z = Reshape(t) {{to=[batch, 3, seq, 8]}}
            return z"
        )
    };
    for mask in ["[2, seq, seq]", "[1, 2, seq, seq]", "[1, 1, 2, seq, seq]"] {
        let after = expect(&of(mask), &attention(MaskKind::Custom, None));
        assert_eq!(count(&after, OpKind::Transpose), 0, "rows in, rows out: {after}");
    }
    // One for each window would have to be repeated.
    expect_none(&of("[3, 2, seq, seq]"), OpKind::Attention);
}

#[test]
fn attention_of_many_groups_of_heads() {
    let after = expect(
        "q: [batch, 4, seq, 4] f32
        k1: [batch, 2, seq, 4] f32
        v1: [batch, 2, seq, 4] f32
        k2 = Reshape(k1) {to=[batch, 2, 1, seq, 4]}
        k3 = Expand(k2) {to=[batch, 2, 2, seq, 4]}
        k = Reshape(k3) {to=[batch, 4, seq, 4]}
        v2 = Reshape(v1) {to=[batch, 2, 1, seq, 4]}
        v3 = Expand(v2) {to=[batch, 2, 2, seq, 4]}
        v = Reshape(v3) {to=[batch, 4, seq, 4]}
        km = Reshape(k) {to=[4*batch, seq, 4]}
        ks = Transpose(km) {perm=[0, 2, 1]}
        kt = Reshape(ks) {to=[batch, 4, 4, seq]}
        a = MatMul(q, kt)
        b = Binary.Mul(a, 0.5)
        p = Softmax(b) {axis=-1}
        y = MatMul(p, v)
        return y",
        &Op::Attention {
            num_heads: 4,
            head_dim: 4,
            mask: MaskKind::None,
            window: None,
            scale: None,
            unseen: Unseen::Nan,
        },
    );
    assert_eq!(count(&after, OpKind::Expand), 0, "{after}");
}

#[test]
fn weights_that_are_needed_themselves_are_no_attention() {
    expect_none(
        &format!(
            "{HEADS}
            kt = Transpose(k) {{perm=[0, 1, 3, 2]}}
            a = MatMul(q, kt)
            b = Binary.Mul(a, 0.5)
            p = Softmax(b) {{axis=-1}}
            y = MatMul(p, v)
            return y, p"
        ),
        OpKind::Attention,
    );
    // Softmax over the queries.
    expect_none(
        &format!(
            "{HEADS}
            kt = Transpose(k) {{perm=[0, 1, 3, 2]}}
            a = MatMul(q, kt)
            p = Softmax(a) {{axis=2}}
            y = MatMul(p, v)
            return y"
        ),
        OpKind::Attention,
    );
}

/// Tables of positions: `cos` and `sin` of `[batch, seq, 4]`, both halves equal.
const TABLES: &str = "angle: [batch, seq, 2] f32
        both = Concat(angle, angle) {axis=2}
        cos = Activation.Cos(both)
        sin = Activation.Sin(both)
        ";

const ROPE: Op = Op::Rope { head_dim: 4, n_rot: 4, interleaved: false };

#[test]
fn rotary_embedding() {
    // Llama by PyTorch: heads first.
    let after = expect(
        &format!(
            "{TABLES}
            q: [batch, seq, 8] f32
            r = Reshape(q) {{to=[batch, seq, 2, 4]}}
            x = Transpose(r) {{perm=[0, 2, 1, 3]}}
            c = Reshape(cos) {{to=[batch, 1, seq, 4]}}
            s = Reshape(sin) {{to=[batch, 1, seq, 4]}}
            a = Binary.Mul(x, c)
            lower = Slice(x) {{starts=[0, 0, 0, 0], steps=[1, 1, 1, 1], to=[batch, 2, seq, 2]}}
            upper = Slice(x) {{starts=[0, 0, 0, 2], steps=[1, 1, 1, 1], to=[batch, 2, seq, 2]}}
            n = Activation.Neg(upper)
            t = Concat(n, lower) {{axis=3}}
            b = Binary.Mul(t, s)
            y = Binary.Add(a, b)
            return y"
        ),
        &ROPE,
    );
    assert_eq!(count(&after, OpKind::Concat), 0, "{after}");
    // Positions first, operands the other way round.
    expect(
        &format!(
            "{TABLES}
            x: [batch, seq, 2, 4] f32
            c = Reshape(cos) {{to=[batch, seq, 1, 4]}}
            s = Reshape(sin) {{to=[batch, seq, 1, 4]}}
            lower = Slice(x) {{starts=[0, 0, 0, 0], steps=[1, 1, 1, 1], to=[batch, seq, 2, 2]}}
            upper = Slice(x) {{starts=[0, 0, 0, 2], steps=[1, 1, 1, 1], to=[batch, seq, 2, 2]}}
            n = Activation.Neg(upper)
            t = Concat(n, lower) {{axis=3}}
            b = Binary.Mul(s, t)
            a = Binary.Mul(c, x)
            y = Binary.Add(b, a)
            return y"
        ),
        &ROPE,
    );
    // One table for all items, scaled.
    expect(
        "angle: [seq, 2] f32
        both = Concat(angle, angle) {axis=1}
        cos = Activation.Cos(both)
        sin = Activation.Sin(both)
        c = Binary.Mul(cos, 0.5)
        s = Binary.Mul(sin, 0.5)
        x: [batch, 2, seq, 4] f32
        a = Binary.Mul(x, c)
        lower = Slice(x) {starts=[0, 0, 0, 0], steps=[1, 1, 1, 1], to=[batch, 2, seq, 2]}
        upper = Slice(x) {starts=[0, 0, 0, 2], steps=[1, 1, 1, 1], to=[batch, 2, seq, 2]}
        n = Activation.Neg(upper)
        t = Concat(n, lower) {axis=3}
        b = Binary.Mul(t, s)
        y = Binary.Add(a, b)
        return y",
        &ROPE,
    );
    // Tables whose halves differ turn other pairs by other angles.
    expect_none(
        "cos: [seq, 4] f32
        sin: [seq, 4] f32
        x: [batch, 2, seq, 4] f32
        a = Binary.Mul(x, cos)
        lower = Slice(x) {starts=[0, 0, 0, 0], steps=[1, 1, 1, 1], to=[batch, 2, seq, 2]}
        upper = Slice(x) {starts=[0, 0, 0, 2], steps=[1, 1, 1, 1], to=[batch, 2, seq, 2]}
        n = Activation.Neg(upper)
        t = Concat(n, lower) {axis=3}
        b = Binary.Mul(t, sin)
        y = Binary.Add(a, b)
        return y",
        OpKind::Rope,
    );
}
