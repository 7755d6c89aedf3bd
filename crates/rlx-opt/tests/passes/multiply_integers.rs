//! Matmuls of dequantised operands: exact integers where that is claimed, allowed and certain not to overflow.

use crate::common::{Anything, apply, apply_with, assert_same_results, count, short, strict};
use rlx_ir::{DimBinding, Graph, OpKind, sym};
use rlx_opt::CompileOptions;
use rlx_opt::passes::{choose_layout, multiply_integers, simplify};
use rlx_opt::pipeline::PassContext;

const CONV: &str = "strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], groups=1, format=ChannelsFirst";

fn dims() -> DimBinding {
    DimBinding::from_pairs(&[(sym::BATCH, 2)])
}

/// A layer as exporters write it: weights `[out, in]` with a scale for each row, transposed, and a bias.
fn linear() -> Graph {
    short(
        "x: [batch, 4] u8
        sx: param [1] f32
        zx: [] u8
        w: param [3, 4] i8
        sw: param [3] f32
        zw: param [3] i8
        bias: param [3] f32
        a = Dequantize(x, sx, zx) {axis=none, to=f32}
        b = Dequantize(w, sw, zw) {axis=0, to=f32}
        t = Transpose(b) {perm=[1, 0]}
        p = MatMul(a, t)
        y = Binary.Add(p, bias)
        return y",
    )
}

#[test]
fn a_layer_multiplies_in_integers() {
    let before = linear();
    let after = apply(multiply_integers::run, &before);
    assert_eq!(count(&after, OpKind::MatMulInteger), 1, "{after}");
    assert_eq!(count(&after, OpKind::MatMul) + count(&after, OpKind::Dequantize), 0, "{after}");
    assert_same_results(&before, &after, &dims());
}

#[test]
fn a_convolution_with_a_bias_and_channels_last() {
    let before = short(&format!(
        "x: [batch, 2, 4, 5] i8
        sx: param [] f32
        w: param [6, 2, 3, 3] i8
        sw: param [6] f32
        bias: param [6] f32
        a = Dequantize(x, sx) {{axis=none, to=f32}}
        b = Dequantize(w, sw) {{axis=0, to=f32}}
        c = Conv(a, b, bias) {{{CONV}}}
        y = Activation.Relu(c)
        return y"
    ));
    let after = apply(multiply_integers::run, &apply(choose_layout::run, &apply(simplify::run, &before)));
    assert_eq!(count(&after, OpKind::ConvInteger), 1, "{after}");
    assert_eq!(count(&after, OpKind::Dequantize), 0, "{after}");
    assert_same_results(&before, &after, &dims());
}

/// The largest elements of windows of bytes, quantised as they were; `product`: behind a product of bytes.
fn largest(scale: &str, pads: &str, product: bool) -> Graph {
    let conv = if product { format!("Conv(a, b) {{{CONV}}}") } else { "Activation.Relu(b)".to_owned() };
    short(&format!(
        "x: [batch, 2, 6, 5] u8
        w: param [6, 2, 3, 3] i8
        a = Dequantize(x, {scale}) {{axis=none, to=f32}}
        b = Dequantize(w, 0.25) {{axis=none, to=f32}}
        c = {conv}
        p = Pool(a) {{kind=Max, kernel=[3, 3], strides=[2, 2], pads={pads}, dilations=[1, 1], ceil_mode=false, count_include_pad=false, format=ChannelsFirst}}
        y = Quantize(p, {scale}) {{axis=none, to=u8}}
        return c, y"
    ))
}

#[test]
fn the_largest_of_bytes_stays_a_byte() {
    let before = largest("0.37", "[1, 1, 1, 1]", true);
    let after = apply(multiply_integers::run, &before);
    assert_eq!(count(&after, OpKind::Dequantize) + count(&after, OpKind::Quantize), 0, "{after}");
    assert_eq!(count(&after, OpKind::Pool), 1, "{after}");
    assert_same_results(&before, &after, &dims());
    // A scale below 0 turns the order around, and a window of padding has no largest byte.
    for (scale, pads) in [("-0.37", "[1, 1, 1, 1]"), ("0.37", "[3, 1, 3, 1]")] {
        let after = apply(multiply_integers::run, &largest(scale, pads, true));
        assert_eq!(count(&after, OpKind::Quantize), 1, "{after}");
    }
    // Where nothing multiplies bytes, images are floats.
    let after = apply(multiply_integers::run, &largest("0.37", "[1, 1, 1, 1]", false));
    assert_eq!(count(&after, OpKind::Quantize), 1, "{after}");
}

#[test]
fn what_changes_bits_is_left_alone_under_strict() {
    let after = apply_with(multiply_integers::run, &linear(), &strict());
    assert_eq!(count(&after, OpKind::MatMulInteger), 0, "{after}");
}

#[test]
fn scales_along_the_depth_and_sums_beyond_i32_stay_floats() {
    for (depth, axis) in [(4, "0"), (40_000, "none")] {
        let scale = if axis == "0" { depth.to_string() } else { String::new() };
        let before = short(&format!(
            "x: [2, {depth}] u8
            s: param [] f32
            w: param [{depth}, 3] i8
            sw: param [{scale}] f32
            a = Dequantize(x, s) {{axis=none, to=f32}}
            b = Dequantize(w, sw) {{axis={axis}, to=f32}}
            y = MatMul(a, b)
            return y"
        ));
        let options = CompileOptions::default();
        let context = PassContext {
            target: &Anything { channels_last: true, ..Anything::default() },
            options: &options,
            is_body: false,
        };
        let after = multiply_integers::run(&before, &context).unwrap();
        assert_eq!(count(&after, OpKind::MatMulInteger), 0, "{after}");
    }
}
