//! Transposed convolution: each input element spreads over the window that would have read it.
//!
//! f32 is computed in vectors ([`conv_transpose_rows`](super::conv_transpose_rows)); what follows is for all other types and for
//! kernels that are very large. A task is one row of the result, kept in pieces: all input rows whose windows reach it are added up, over
//! channels and then taps, in order. So a result element is one chain, and tasks write apart.

use std::ops::Range;

use rlx_ir::{DType, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::conv_pool_generic::{WIDTH, multiplies};
use super::conv_transpose_rows::{self, Rows};
use super::scalar::wrapping;
use super::window::{Attributes, SPATIAL, WindowAxis};
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::gemm::Element;
use crate::layout::At;

/// Numbers are multiplied.
pub(crate) fn claim(node: &Node, _: &Graph) -> Claim {
    let dtype = node.shape.dtype();
    if multiplies(dtype) { Claim::Native } else { Claim::No(format!("there is no product of {dtype}")) }
}

/// The kernel of a transposed convolution.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let dtype = cx.step.outputs[0].dtype;
    match &cx.node().op {
        Op::ConvTranspose { strides, pads, dilations, groups, .. } => {
            let attributes =
                Attributes { strides: strides.clone(), pads: pads.clone(), dilations: dilations.clone() };
            Ok(Box::new(ConvTranspose { attributes, groups: *groups, dtype, plan: None }))
        }
        op => Err(no_kernel(op, "it is no transposed convolution")),
    }
}

#[derive(Debug, Clone)]
struct ConvTranspose {
    attributes: Attributes,
    groups: usize,
    dtype: DType,
    plan: Option<Plan>,
}

/// A bound transposed convolution: the windows slide over the result, and there is one for each input element.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) x: At,
    pub(super) w: At,
    pub(super) out: At,
    /// Place and distance.
    pub(super) bias: Option<(At, isize)>,
    pub(super) batches: usize,
    pub(super) channels: usize,
    /// Channels of a group.
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// Distances from batch to batch and from channel to channel.
    pub(super) x_steps: [isize; 2],
    pub(super) out_steps: [isize; 2],
    /// From input channel to input channel, and from result channel to result channel.
    pub(super) w_steps: [isize; 2],
    pub(super) tap_steps: [isize; SPATIAL],
    pub(super) slides: [WindowAxis; SPATIAL],
    pub(super) worth: bool,
    /// Where f32 is computed in vectors.
    rows: Option<Rows>,
}

impl StepKernel for ConvTranspose {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, w, out) = (&cx.inputs[0], &cx.inputs[1], &cx.outputs[0]);
        let shape_mismatch =
            || mismatch(format!("{:?} spread by {:?} makes {:?}", x.dims(), w.dims(), out.dims()));
        if w.layout.rank() < 3 || w.layout.rank() != x.layout.rank() {
            return Err(shape_mismatch());
        }
        let kernel = &w.dims()[2..];
        let slides = self.attributes.slides(&out.layout, &x.layout, 2, kernel)?;
        let (channels, bias) = (out.dims()[1], cx.inputs.get(2));
        let fits = self.groups > 0
            && x.dims()[0] == out.dims()[0]
            && x.dims()[1] == w.dims()[0]
            && x.dims()[1] % self.groups == 0
            && channels == w.dims()[1] * self.groups
            && bias.is_none_or(|b| b.dims() == [channels]);
        if !fits {
            return Err(shape_mismatch());
        }
        let mut tap_steps = [0; SPATIAL];
        tap_steps[SPATIAL - kernel.len()..].copy_from_slice(&w.layout.strides()[2..]);
        let taps: usize = kernel.iter().product();
        let inputs = x.dims()[1] / self.groups;
        let rows = (self.dtype == DType::F32).then(|| Rows::new(&slides, inputs, w.dims()[1])).flatten();
        let nanos_of_product = if rows.is_some() { 0.03 } else { 0.7 };
        let products = (x.layout.elements() * w.dims()[1] * taps) as f64;
        let nanos = products * nanos_of_product + out.layout.elements() as f64;
        self.plan = Some(Plan {
            x: x.at,
            w: w.at,
            out: out.at,
            bias: bias.map(|b| (b.at, b.layout.strides()[0])),
            batches: x.dims()[0],
            channels,
            inputs,
            outputs: w.dims()[1],
            x_steps: [x.layout.strides()[0], x.layout.strides()[1]],
            out_steps: [out.layout.strides()[0], out.layout.strides()[1]],
            w_steps: [w.layout.strides()[0], w.layout.strides()[1]],
            tap_steps,
            slides,
            worth: nanos > WORTH_NANOS,
            rows: rows.map(|(rows, _)| rows),
        });
        Ok(Needs { thread_scratch: rows.map_or(0, |(_, bytes)| bytes), ..Needs::time(nanos) })
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Err(unbound()) };
        // SAFETY: the caller's promise; the type is that of all operands.
        unsafe {
            match plan.rows {
                Some(rows) => conv_transpose_rows::run(cx, plan, rows),
                None => wrapping!(self.dtype, T => plan.spread::<T>(cx)),
            }
        };
        Ok(())
    }
}

/// The operands of one row of the result.
struct Row<T> {
    /// The batch's first channel of the group.
    x: *const T,
    /// The weights of that channel for this channel of the result.
    w: *const T,
    out: *mut T,
    /// The row's place along the dimensions before the last.
    place: [usize; SPATIAL - 1],
}

impl Plan {
    unsafe fn spread<T: Element>(&self, cx: &mut RunCx<'_, '_>) {
        let p = *self;
        let (x, w, out) = (cx.shared::<T>(p.x), cx.shared::<T>(p.w), cx.shared::<T>(p.out));
        let bias = p.bias.map(|(at, step)| (cx.shared::<T>(at), step));
        let [z, y, last] = p.slides;
        cx.parallel(p.worth, p.batches * p.channels * z.size * y.size, &|range, _| {
            for row in range {
                let (plane, place) = (row / (z.size * y.size), [row / y.size % z.size, row % y.size]);
                let (batch, channel) = ((plane / p.channels) as isize, plane % p.channels);
                let (group, own) = (channel / p.outputs, (channel % p.outputs) as isize);
                let first = (group * p.inputs) as isize;
                let out_at = batch * p.out_steps[0]
                    + channel as isize * p.out_steps[1]
                    + place[0] as isize * z.step
                    + place[1] as isize * y.step;
                let row = Row {
                    x: x.get().wrapping_offset(batch * p.x_steps[0] + first * p.x_steps[1]).cast_const(),
                    w: w.get().wrapping_offset(first * p.w_steps[0] + own * p.w_steps[1]).cast_const(),
                    out: out.get().wrapping_offset(out_at),
                    place,
                };
                // SAFETY: the caller's promise; there is a bias for each channel, and rows are disjoint.
                unsafe {
                    let start = bias.map_or(T::ZERO, |(b, step)| {
                        T::start(*b.get().wrapping_offset(channel as isize * step))
                    });
                    for from in (0..last.size).step_by(WIDTH) {
                        p.piece(&row, start, from..(from + WIDTH).min(last.size));
                    }
                }
            }
        });
    }

    /// The elements `piece` of a row.
    unsafe fn piece<T: Element>(&self, row: &Row<T>, start: T::Sum, piece: Range<usize>) {
        let [z, y, last] = &self.slides;
        let mut sums = [start; WIDTH];
        for channel in 0..self.inputs as isize {
            let (x, w) = (
                row.x.wrapping_offset(channel * self.x_steps[1]),
                row.w.wrapping_offset(channel * self.w_steps[0]),
            );
            for tz in 0..z.taps {
                let Some(from_z) = z.window_at(tz, row.place[0]) else { continue };
                for ty in 0..y.taps {
                    let Some(from_y) = y.window_at(ty, row.place[1]) else { continue };
                    let x =
                        x.wrapping_offset(from_z as isize * z.window_step + from_y as isize * y.window_step);
                    let w =
                        w.wrapping_offset(tz as isize * self.tap_steps[0] + ty as isize * self.tap_steps[1]);
                    for tx in 0..last.taps {
                        for from in last.windows_at(tx, piece.clone()) {
                            let at = last.position(from, tx) as usize - piece.start;
                            // SAFETY: the caller's promise; `from` is inside `x`, the tap inside the kernel.
                            unsafe {
                                let (x, w) = (
                                    *x.wrapping_offset(from as isize * last.window_step),
                                    *w.wrapping_offset(tx as isize * self.tap_steps[2]),
                                );
                                sums[at] = T::mul_add(sums[at], x, w);
                            }
                        }
                    }
                }
            }
        }
        for (at, &sum) in piece.zip(&sums) {
            // SAFETY: the caller's promise.
            unsafe { *row.out.wrapping_offset(at as isize * last.step) = T::finish(sum) };
        }
    }
}
