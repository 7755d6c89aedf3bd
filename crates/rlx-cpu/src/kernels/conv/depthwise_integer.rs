//! Depthwise convolution of channels-last images of bytes with zero points, by [`BytePass`].

use rlx_ir::op::DataFormat;
use rlx_ir::{Graph, Node, Op, Result, Shape};

use super::Tail;
use crate::formats;
use crate::kernels::grouped::{image, pack_weights, pair};
use crate::kernels::integer::Zeros;
use crate::kernels::{BindCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::layout::{At, Layout};
use crate::math::bounds;
use crate::window::Windows;
use crate::window_bytes::{self, BytePass, MOST_TAPS};

/// Whether a convolution takes the route of this module: as many groups as channels, and as filters.
pub(super) fn is_depthwise(node: &Node, graph: &Graph) -> bool {
    let Op::ConvInteger { groups, format: DataFormat::ChannelsLast, .. } = node.op else { return false };
    let (x, w) = (graph.shape(node.inputs[0]), graph.shape(node.inputs[1]));
    let channels = |s: &Shape| s.dims().last().and_then(|d| d.as_static()) == Some(groups);
    let taps = w.dims()[2..].iter().try_fold(1usize, |n, d| n.checked_mul(d.as_static()?));
    groups > 1
        && channels(x)
        && channels(&node.shape)
        && x.rank() <= 4
        && taps.is_some_and(|n| n <= MOST_TAPS)
}

/// The kernel, with what follows it.
pub(super) fn boxed(op: &Op, inputs: Vec<usize>, tail: Tail) -> Result<Box<dyn StepKernel>> {
    let Op::ConvInteger { strides, pads, dilations, .. } = op else {
        return Err(no_kernel(op, "it is no convolution of integers"));
    };
    Ok(Box::new(Depthwise {
        inputs,
        tail,
        stride: pair(strides, 1),
        dilation: pair(dilations, 1),
        before: pair(&pads[..pads.len() / 2], 0),
        bound: None,
    }))
}

/// A bound depthwise convolution of bytes.
#[derive(Debug, Clone)]
struct Depthwise {
    inputs: Vec<usize>,
    tail: Tail,
    stride: [usize; 2],
    dilation: [usize; 2],
    before: [usize; 2],
    bound: Option<Numbers>,
}

#[derive(Debug, Clone, Copy)]
struct Numbers {
    x: At,
    y: At,
    w: At,
    weights: Layout,
    packed: bool,
    windows: Windows,
    zeros: Zeros,
    taps: usize,
    /// Where scratch for the weights begins: as numbers, then as bytes in their order.
    scratch: usize,
    worth: bool,
}

impl Numbers {
    fn prepared_bytes(&self) -> usize {
        (self.taps + 1) * self.windows.channels * 4
    }
}

impl StepKernel for Depthwise {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (result, mut needs) = self.tail.bind_bytes(cx, &|spec| {
            let simple = spec.floats.activation.is_none_or(|a| bounds(a).is_some());
            spec.floats.combine.is_none() && spec.residual.is_none() && simple
        })?;
        let (x, w) = (&cx.inputs[self.inputs[0]], &cx.inputs[self.inputs[1]]);
        let ([images, h, width, channels], [n, oh, ow, c]) = (image(x)?, image(&result)?);
        let kernel = pair(&w.dims()[2..], 1);
        let taps = kernel[0] * kernel[1];
        if n != images || c != channels || w.dims()[..2] != [c, 1] || taps > MOST_TAPS {
            return Err(mismatch(format!("a convolution of {:?} with weights {:?}", x.dims(), w.dims())));
        }
        let windows = Windows {
            images,
            size: [h, width],
            channels,
            out: [oh, ow],
            kernel,
            stride: self.stride,
            dilation: self.dilation,
            pad: self.before,
        };
        let nanos = (images * oh * ow * c * taps) as f64 * 0.04;
        let numbers = Numbers {
            x: x.at,
            y: result.at,
            w: w.at,
            weights: w.layout,
            packed: cx.is_packed(self.inputs[1], formats::GROUPED_WEIGHTS)?,
            windows,
            zeros: Zeros::of(cx, &self.inputs, channels)?,
            taps,
            scratch: self.tail.scratch_bytes(),
            worth: nanos > WORTH_NANOS,
        };
        let bytes = if numbers.packed { 0 } else { taps * channels };
        needs.shared_scratch = numbers.scratch + numbers.prepared_bytes() + bytes;
        needs.nanos += nanos;
        self.bound = Some(numbers);
        Ok(needs)
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(s) = &self.bound else { return Err(unbound()) };
        let isa = cx.isa;
        // SAFETY: the caller's promise; scratch was asked for when the step was bound.
        unsafe {
            let zero = s.zeros.number(s.zeros.left(cx));
            let prepared = cx.shared_scratch.wrapping_add(s.scratch).cast::<f32>();
            let weights = if s.packed {
                cx.ptr::<u8>(s.w)
            } else {
                let to = cx.shared_scratch.wrapping_add(s.scratch + s.prepared_bytes());
                pack_weights(cx.ptr::<u8>(s.w), &s.weights, 1, to);
                to
            };
            let image = (zero, s.zeros.signed[0]);
            let form = window_bytes::prepare(isa, weights, s.zeros.right(cx, 0), &s.windows, image, prepared);
            let pass = BytePass {
                windows: s.windows,
                weights: prepared,
                form,
                input: cx.ptr(s.x),
                signed: s.zeros.signed[0],
                zero,
                output: cx.ptr(s.y),
                epilogue: self.tail.byte_epilogue(cx),
            };
            cx.parallel(s.worth, s.windows.tasks(), &|range, _| pass.run(isa, range));
            self.tail.finish(cx);
        }
        Ok(())
    }
}
