//! Window: convolutions, and what they have in common with pooling (`pool.rs`).
//!
//! A convolution is a matmul after an index map: for each image and group, the weights
//! `[channels out, channels in × taps]` times the input's elements `[channels in × taps, positions]` that each
//! tap falls on, 0 outside. The map is computed as the strips are loaded; no copy of the input is made.
//! The transposed convolution is done by one invocation for each result element.

use rlx_ir::op::DataFormat;
use rlx_ir::{Extent, Node, NodeId, Op};

use super::cx::Cx;
use super::gemm::{Gemm, GemmVariant, Operands};
use super::{Launch, Scheduled, StepDesc, elementwise, reject};
use crate::ir::{Const, Ty, Value};

/// How a window moves, as values.
pub(super) struct Slides {
    strides: Vec<Value>,
    dilations: Vec<Value>,
    before: Vec<Value>,
}

impl Slides {
    /// Small numbers are part of the kernel.
    pub(super) fn new(cx: &mut Cx<'_>, strides: &[usize], dilations: &[usize], pads: &[usize]) -> Self {
        let mut sizes = |name: &str, list: &[usize]| -> Vec<Value> {
            list.iter().map(|&v| cx.window_size(name, Extent::Const(v as i64))).collect()
        };
        let spatial = strides.len();
        Slides {
            strides: sizes("stride", strides),
            dilations: sizes("dilation", dilations),
            before: sizes("pad", &pads[..spatial.min(pads.len())]),
        }
    }

    /// Where `tap` of window `out` is along spatial dimension `i`.
    pub(super) fn position(&self, cx: &mut Cx<'_>, i: usize, out: Value, tap: Value) -> Value {
        let (p, q) = (cx.b.mul(out, self.strides[i]), cx.b.mul(tap, self.dilations[i]));
        let sum = cx.b.add(p, q);
        cx.b.sub(sum, self.before[i])
    }
}

/// `[n, c, spatial…]` or `[n, spatial…, c]`.
pub(super) fn arrange(format: DataFormat, n: Value, c: Value, spatial: &[Value]) -> Vec<Value> {
    let mut index = vec![n];
    if format == DataFormat::ChannelsFirst {
        index.push(c);
    }
    index.extend_from_slice(spatial);
    if format == DataFormat::ChannelsLast {
        index.push(c);
    }
    index
}

pub(super) fn spatial_dims(step: &StepDesc, node: NodeId, format: DataFormat) -> Vec<Extent> {
    let dims = step.graph.shape(node).dims();
    let first = format.first_spatial_axis();
    dims[first..first + dims.len() - 2].iter().map(|d| d.extent()).collect()
}

impl Cx<'_> {
    /// Whether every position is within its dimension.
    pub(super) fn within(&mut self, positions: &[Value], dims: &[Value]) -> Value {
        let mut all = self.b.constant(Const::bool(true));
        let zero = self.b.int(0);
        for (&p, &d) in positions.iter().zip(dims) {
            let (low, high) = (self.b.ge(p, zero), self.b.lt(p, d));
            let both = self.b.and(low, high);
            all = self.b.and(all, both);
        }
        all
    }

    /// Adds the bias, and stores the results of the body.
    fn finish_channel(
        &mut self,
        anchor: &Node,
        index: &[Value],
        channel: Value,
        sum: Value,
    ) -> Scheduled<()> {
        let mut v = sum;
        if let Some(&bias) = anchor.inputs.get(2) {
            let bias = self.element(bias, &[channel])?;
            v = self.b.add(v, bias);
        }
        let v = elementwise::narrowed(&mut self.b, v, anchor.shape.dtype());
        self.bind(anchor.id, index, v);
        self.store_results(index)
    }
}

/// The matmul that a body around [`Op::Conv`] or [`Op::ConvTranspose`] computes.
///
/// # Errors
/// An element type without arithmetic.
pub(super) fn gemm(step: &StepDesc, anchor: &Node) -> Scheduled<Gemm> {
    let (w, dtype) = (anchor.inputs[1], anchor.shape.dtype());
    if !elementwise::computes(dtype) {
        return reject(format!("a convolution of {dtype}"));
    }
    let weights: Vec<Extent> = step.graph.shape(w).dims().iter().map(|d| d.extent()).collect();
    let (groups, format, m, k) = match &anchor.op {
        Op::Conv { groups, format, .. } => {
            (*groups, *format, weights[0].floor_div(*groups as i64), weights[1..].to_vec())
        }
        Op::ConvTranspose { groups, .. } => {
            let in_per_group = weights[0].floor_div(*groups as i64);
            (*groups, DataFormat::ChannelsFirst, weights[1], [&[in_per_group], &weights[2..]].concat())
        }
        op => return reject(format!("{} is no convolution", op.kind())),
    };
    Ok(Gemm {
        batch: vec![anchor.shape.dim(0).extent(), Extent::Const(groups as i64)],
        m: vec![m],
        k,
        n: spatial_dims(step, anchor.id, format),
        dtype,
        rows_are_inner: format == DataFormat::ChannelsLast,
        neighbours: None,
    })
}

/// Makes the kernel of a body around [`Op::Conv`], in this variant.
///
/// # Errors
/// An element type without arithmetic, or an epilogue of other dimensions.
pub fn conv(step: &StepDesc, anchor: &Node, variant: GemmVariant) -> Scheduled<Vec<Launch>> {
    let Op::Conv { strides, pads, dilations, format, .. } = &anchor.op else {
        return reject("not a Conv");
    };
    let (x, w, dtype, format) = (anchor.inputs[0], anchor.inputs[1], anchor.shape.dtype(), *format);
    let gemm = gemm(step, anchor)?;
    let mut cx = Cx::new(&format!("conv.{}", step.name), variant.workgroup(), step);
    cx.result_space()?;
    let slides = Slides::new(&mut cx, strides, dilations, pads);
    let size = cx.sizes("size", &spatial_dims(step, x, format));
    let (per_group, channels) = (cx.size("out_per_group", gemm.m[0]), cx.size("in_per_group", gemm.k[0]));
    let mut load_w = |cx: &mut Cx<'_>, batch: &[Value], m: &[Value], k: &[Value]| {
        let first = cx.b.mul(batch[1], per_group);
        let mut index = vec![cx.b.add(first, m[0])];
        index.extend_from_slice(k);
        cx.element(w, &index)
    };
    let mut load_x = |cx: &mut Cx<'_>, batch: &[Value], k: &[Value], n: &[Value]| {
        let first = cx.b.mul(batch[1], channels);
        let channel = cx.b.add(first, k[0]);
        let at: Vec<Value> = (0..n.len()).map(|i| slides.position(cx, i, n[i], k[1 + i])).collect();
        let inside = cx.within(&at, &size);
        let zero = cx.b.constant(Const { ty: Ty::of(dtype), bits: 0 });
        let index = arrange(format, batch[0], channel, &at);
        cx.value_if(inside, zero, |cx| cx.element(x, &index))
    };
    let mut finish = |cx: &mut Cx<'_>, batch: &[Value], m: &[Value], n: &[Value], sum: Value| {
        let first = cx.b.mul(batch[1], per_group);
        let channel = cx.b.add(first, m[0]);
        let index = arrange(format, batch[0], channel, n);
        cx.finish_channel(anchor, &index, channel, sum)
    };
    let operands = Operands { a: &mut load_w, b: &mut load_x, share: None, wide: None, finish: &mut finish };
    gemm.launch(cx, variant, operands).map(|launch| vec![launch])
}

/// Makes the kernel of a body around [`Op::ConvTranspose`], in this variant.
///
/// # Errors
/// An element type without arithmetic, or an epilogue of other dimensions.
pub fn conv_transpose(step: &StepDesc, anchor: &Node, variant: GemmVariant) -> Scheduled<Vec<Launch>> {
    let Op::ConvTranspose { strides, pads, dilations, .. } = &anchor.op else {
        return reject("not a ConvTranspose");
    };
    let (x, w, dtype) = (anchor.inputs[0], anchor.inputs[1], anchor.shape.dtype());
    let (gemm, format) = (gemm(step, anchor)?, DataFormat::ChannelsFirst);
    let mut cx = Cx::new(&format!("conv_transpose.{}", step.name), variant.workgroup(), step);
    cx.result_space()?;
    let slides = Slides::new(&mut cx, strides, dilations, pads);
    let size = cx.sizes("size", &spatial_dims(step, x, format));
    let (per_group, channels) = (cx.size("out_per_group", gemm.m[0]), cx.size("in_per_group", gemm.k[0]));
    let mut load_w = |cx: &mut Cx<'_>, batch: &[Value], m: &[Value], k: &[Value]| {
        let first = cx.b.mul(batch[1], channels);
        let mut index = vec![cx.b.add(first, k[0]), m[0]];
        index.extend_from_slice(&k[1..]);
        cx.element(w, &index)
    };
    let mut load_x = |cx: &mut Cx<'_>, batch: &[Value], k: &[Value], n: &[Value]| {
        // Position p of the input reaches n when p·stride + tap·dilation − pad = n.
        let mut at = Vec::with_capacity(n.len());
        let mut whole = cx.b.constant(Const::bool(true));
        let zero = cx.b.int(0);
        for i in 0..n.len() {
            let reach = cx.b.mul(k[1 + i], slides.dilations[i]);
            let sum = cx.b.add(n[i], slides.before[i]);
            let distance = cx.b.sub(sum, reach);
            let (p, rest) = (cx.b.div(distance, slides.strides[i]), cx.b.rem(distance, slides.strides[i]));
            let (exact, ahead) = (cx.b.eq(rest, zero), cx.b.ge(distance, zero));
            let fits = cx.b.and(exact, ahead);
            whole = cx.b.and(whole, fits);
            at.push(p);
        }
        let inside = cx.within(&at, &size);
        let inside = cx.b.and(inside, whole);
        let first = cx.b.mul(batch[1], channels);
        let channel = cx.b.add(first, k[0]);
        let index = arrange(format, batch[0], channel, &at);
        let zero = cx.b.constant(Const { ty: Ty::of(dtype), bits: 0 });
        cx.value_if(inside, zero, |cx| cx.element(x, &index))
    };
    let mut finish = |cx: &mut Cx<'_>, batch: &[Value], m: &[Value], n: &[Value], sum: Value| {
        let first = cx.b.mul(batch[1], per_group);
        let channel = cx.b.add(first, m[0]);
        let index = arrange(format, batch[0], channel, n);
        cx.finish_channel(anchor, &index, channel, sum)
    };
    let operands = Operands { a: &mut load_w, b: &mut load_x, share: None, wide: None, finish: &mut finish };
    gemm.launch(cx, variant, operands).map(|launch| vec![launch])
}
