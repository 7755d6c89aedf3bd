//! Convolutions: batch norms folded, channels last, transposes only at the ends.

use crate::common::{apply, assert_same_results, count, short};
use rlx_ir::{DimBinding, Graph, Op, OpKind, sym};
use rlx_opt::CompileOptions;
use rlx_opt::passes::{choose_layout, fold_batch_norm, simplify};

fn dims() -> DimBinding {
    DimBinding::from_pairs(&[(sym::BATCH, 2)])
}

const CONV: &str = "strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], groups=1, format=ChannelsFirst";

/// A residual block of ResNet with its norms, pooled and classified.
fn block() -> Graph {
    short(&format!(
        "x: [batch, 4, 6, 5] f32
        w1: param [4, 4, 3, 3] f32
        w2: param [4, 4, 3, 3] f32
        b2: param [4] f32
        gamma: param [4] f32
        beta: param [4] f32
        mean: param [4] f32
        root: param [4] f32
        var = Binary.Mul(root, root)
        fc: param [4, 3] f32
        c0 = Conv(x, w1) {{{CONV}}}
        r0 = Activation.Relu(c0)
        p0 = Pool(r0) {{kind=Max, kernel=[2, 2], strides=[1, 1], pads=[0, 0, 1, 1], dilations=[1, 1], ceil_mode=false, count_include_pad=false, format=ChannelsFirst}}
        c1 = Conv(p0, w1) {{{CONV}}}
        n1 = BatchNorm(c1, gamma, beta, mean, var) {{eps=0.01}}
        r1 = Activation.Relu(n1)
        c2 = Conv(r1, w2, b2) {{{CONV}}}
        n2 = BatchNorm(c2, gamma, beta, mean, var) {{eps=0.01}}
        s = Binary.Add(n2, p0)
        r2 = Activation.Relu(s)
        g = Reduce(r2) {{op=Mean, axes=[2, 3], keep_dim=true}}
        f = Reshape(g) {{to=[batch, 4]}}
        y = MatMul(f, fc)
        return y"
    ))
}

#[test]
fn batch_norms_become_weights() {
    let before = block();
    let after = apply(fold_batch_norm::run, &before);
    assert_eq!(count(&after, OpKind::BatchNorm), 0, "{after}");
    let biased = after.nodes().iter().filter(|n| matches!(n.op, Op::Conv { .. }) && n.inputs.len() == 3);
    assert_eq!(biased.count(), 2, "{after}");
    let fixed = rlx_opt::facts::fixed_nodes(&after);
    let sums = after.nodes().iter().filter(|n| matches!(n.op, Op::Binary(_)) && !fixed[n.id.index()]);
    assert_eq!(sums.count(), 1, "only the residual is computed in a run: {after}");
    assert_same_results(&before, &after, &dims());
}

#[test]
fn a_batch_norm_alone_becomes_a_factor_and_a_summand() {
    let before = short(
        "x: [batch, 4, 3] f32
        gamma: param [4] f32
        beta: param [4] f32
        mean: param [4] f32
        root: param [4] f32
        var = Binary.Mul(root, root)
        y = BatchNorm(x, gamma, beta, mean, var) {eps=0.01}
        return y",
    );
    let after = apply(fold_batch_norm::run, &before);
    assert_eq!(count(&after, OpKind::BatchNorm), 0, "{after}");
    assert_same_results(&before, &after, &dims());
}

#[test]
fn statistics_that_are_given_at_run_time_are_not_folded() {
    let text = "x: [batch, 4, 3] f32
        gamma: [4] f32
        beta: param [4] f32
        y = BatchNorm(x, gamma, beta, beta, beta) {eps=5.0}
        return y";
    let after = apply(fold_batch_norm::run, &short(text));
    assert_eq!(count(&after, OpKind::BatchNorm), 1, "{after}");
}

#[test]
fn a_factor_of_columns_goes_into_the_weights() {
    let before = short(
        "x: [batch, 4] f32
        w: param [4, 3] f32
        b: param [3] f32
        a = MatMul(x, w)
        c = Binary.Add(a, b)
        y = Binary.Mul(c, 0.125)
        return y",
    );
    let after = apply(fold_batch_norm::run, &before);
    let last = after.node(after.outputs[0]);
    assert_eq!(last.op, Op::Binary(rlx_ir::op::BinaryOp::Add), "{after}");
    assert_same_results(&before, &after, &dims());
}

#[test]
fn a_network_has_one_transpose_at_its_start_and_none_behind_the_pooling() {
    let before = block();
    let after = apply(choose_layout::run, &apply(simplify::run, &apply(fold_batch_norm::run, &before)));
    let fixed = rlx_opt::facts::fixed_nodes(&after);
    let moved = after.nodes().iter().filter(|n| n.op.kind() == OpKind::Transpose && !fixed[n.id.index()]);
    assert_eq!(moved.count(), 1, "{after}");
    assert!(!after.to_string().contains("ChannelsFirst"), "{after}");
    assert_same_results(&before, &after, &dims());
}

#[test]
fn channels_stay_first_where_the_device_wants_them_so() {
    let before = block();
    let target = crate::common::Anything { channels_last: false, ..crate::common::Anything::default() };
    let context = rlx_opt::pipeline::PassContext {
        target: &target,
        options: &CompileOptions::default(),
        is_body: false,
    };
    assert_eq!(choose_layout::run(&before, &context).unwrap(), before);
}

/// A transposed convolution in the short form, and how it runs: as a convolution, with results dealt out.
fn check_transposed(text: &str, kernel: &[usize]) {
    let before = short(text);
    let after = apply(choose_layout::run, &before);
    assert_eq!(count(&after, OpKind::ConvTranspose), 0, "{after}");
    let conv = after.nodes().iter().find(|n| matches!(n.op, Op::Conv { .. })).unwrap();
    let weights: Vec<usize> =
        after.shape(conv.inputs[1]).dims()[2..].iter().map(|d| d.as_static().unwrap()).collect();
    assert_eq!(weights, kernel, "{after}");
    let sizes =
        DimBinding::from_pairs(&[(sym::BATCH, 2), (sym::named("height"), 3), (sym::named("width"), 4)]);
    assert_same_results(&before, &after, &sizes);
}

#[test]
fn a_transposed_convolution_is_a_convolution_dealt_out() {
    // As large as its stride: one matmul.
    check_transposed(
        "x: [batch, 3, height, width] f32
        w: param [3, 5, 2, 2] f32
        b: param [5] f32
        y = ConvTranspose(x, w, b) {strides=[2, 2], pads=[0, 0, 0, 0], dilations=[1, 1], output_padding=[0, 0], groups=1}
        r = Activation.Relu(y)
        return r",
        &[1, 1],
    );
    // As generators use it: windows overlap, pads cut.
    check_transposed(
        "x: [batch, 3, height, width] f32
        w: param [3, 2, 4, 3] f32
        y = ConvTranspose(x, w) {strides=[2, 1], pads=[1, 1, 1, 0], dilations=[1, 1], output_padding=[1, 0], groups=1}
        return y",
        &[2, 3],
    );
    // Output padding beyond what the kernel reaches.
    check_transposed(
        "x: [batch, 3, width] f32
        w: param [3, 2, 3] f32
        b: param [2] f32
        y = ConvTranspose(x, w, b) {strides=[3], pads=[0, 0], dilations=[1], output_padding=[2], groups=1}
        return y",
        &[2],
    );
    check_transposed(
        "x: [batch, 2, 2, height, width] f32
        w: param [2, 2, 3, 2, 3] f32
        y = ConvTranspose(x, w) {strides=[2, 2, 2], pads=[1, 0, 1, 1, 0, 1], dilations=[1, 1, 1], output_padding=[1, 0, 1], groups=1}
        return y",
        &[2, 1, 2],
    );
}

#[test]
fn a_transposed_convolution_with_groups_or_gaps_or_open_weights_stays() {
    for text in [
        "x: [batch, 4, height] f32
        w: param [4, 2, 3] f32
        y = ConvTranspose(x, w) {strides=[2], pads=[0, 0], dilations=[1], output_padding=[0], groups=2}
        return y",
        "x: [batch, 4, height] f32
        w: param [4, 2, 3] f32
        y = ConvTranspose(x, w) {strides=[2], pads=[0, 0], dilations=[2], output_padding=[0], groups=1}
        return y",
        "x: [batch, 4, height] f32
        w: [4, 2, 3] f32
        y = ConvTranspose(x, w) {strides=[2], pads=[0, 0], dilations=[1], output_padding=[0], groups=1}
        return y",
    ] {
        let after = apply(choose_layout::run, &short(text));
        assert_eq!(count(&after, OpKind::ConvTranspose), 1, "{after}");
    }
}

#[test]
fn sounds_and_volumes_have_their_channels_last_too() {
    for (dims, window) in [
        ("2, 7", "strides=[2], pads=[1, 1], dilations=[1]"),
        ("2, 3, 4, 5", "strides=[1, 2, 1], pads=[1, 1, 0, 1, 1, 0], dilations=[1, 1, 2]"),
    ] {
        let kernel = "3, ".repeat(dims.split(',').count() - 1);
        let text = format!(
            "x: [batch, {dims}] f32
            w: param [4, 2, {}] f32
            c = Conv(x, w) {{{window}, groups=1, format=ChannelsFirst}}
            r = Activation.Relu(c)
            return r",
            kernel.trim_end_matches(", ")
        );
        let before = short(&text);
        let after = apply(choose_layout::run, &before);
        assert!(!after.to_string().contains("ChannelsFirst"), "{after}");
        assert_same_results(&before, &after, &self::dims());
    }
}

#[test]
fn an_interpolation_between_convolutions_moves_no_channels() {
    let before = short(&format!(
        "x: [batch, 4, 3, 5] f32
        w: param [4, 4, 3, 3] f32
        places: [6] i64
        a = Conv(x, w) {{{CONV}}}
        g = Gather(a, places) {{axis=2}}
        c = Conv(g, w) {{{CONV}}}
        return c"
    ));
    let after = apply(choose_layout::run, &before);
    let fixed = rlx_opt::facts::fixed_nodes(&after);
    let moved = after.nodes().iter().filter(|n| n.op.kind() == OpKind::Transpose && !fixed[n.id.index()]);
    assert_eq!(moved.count(), 2, "one at each end: {after}");
    assert_same_results(&before, &after, &dims());
}

/// Units of a ShuffleNet: half of the channels goes through a convolution, and then all are shuffled.
#[test]
fn shuffled_channels_stay_last() {
    let before = short(&format!(
        "x: [batch, 3, 6, 5] f32
        w0: param [6, 3, 3, 3] f32
        w1: param [3, 3, 3, 3] f32
        w2: param [3, 3, 3, 3] f32
        w3: param [2, 6, 3, 3] f32
        x0 = Conv(x, w0) {{{CONV}}}
        a0 = Slice(x0) {{starts=[0, 0, 0, 0], steps=[1, 1, 1, 1], to=[batch, 3, 6, 5]}}
        b0 = Slice(x0) {{starts=[0, 3, 0, 0], steps=[1, 1, 1, 1], to=[batch, 3, 6, 5]}}
        c0 = Conv(b0, w1) {{{CONV}}}
        j0 = Concat(a0, c0) {{axis=1}}
        s0 = Reshape(j0) {{to=[batch, 2, 3, 6, 5]}}
        t0 = Transpose(s0) {{perm=[0, 2, 1, 3, 4]}}
        x1 = Reshape(t0) {{to=[batch, 6, 6, 5]}}
        a1 = Slice(x1) {{starts=[0, 0, 0, 0], steps=[1, 1, 1, 1], to=[batch, 3, 6, 5]}}
        b1 = Slice(x1) {{starts=[0, 3, 0, 0], steps=[1, 1, 1, 1], to=[batch, 3, 6, 5]}}
        c1 = Conv(b1, w2) {{{CONV}}}
        j1 = Concat(a1, c1) {{axis=1}}
        s1 = Reshape(j1) {{to=[batch, 2, 3, 6, 5]}}
        t1 = Transpose(s1) {{perm=[0, 2, 1, 3, 4]}}
        x2 = Reshape(t1) {{to=[batch, 6, 6, 5]}}
        y = Conv(x2, w3) {{{CONV}}}
        return y"
    ));
    let after = apply(choose_layout::run, &before);
    let moves = |n: &&rlx_ir::Node| matches!(&n.op, Op::Transpose { perm } if perm[..3] != [0, 1, 2]);
    let moved: Vec<_> = after.nodes().iter().filter(moves).collect();
    assert_eq!(moved.len(), 2, "one in front of the first convolution and one behind the last: {after}");
    assert_same_results(&before, &after, &dims());
}
