//! Convolution and pooling as they are defined: any element type, layout, number of spatial dimensions and
//! groups, any strides of the operands. What the fast kernels do not take comes here.
//!
//! A task is one row of the result: all windows along the last spatial dimension, whose running results are
//! kept at once, so that the innermost loop walks along a row of the input. Each result is one chain: over
//! channels, then taps, in order.

use rlx_ir::op::{DataFormat, PoolKind};
use rlx_ir::{DType, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::scalar::{Number, is_float, is_number, number, wrapping};
use super::window::{Attributes, SPATIAL, WindowAxis};
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::gemm::Element;
use crate::layout::{At, Bound};

/// Running results that are kept at once.
pub(crate) const WIDTH: usize = 64;

/// Whether there is a sum of products of this type.
pub(crate) fn multiplies(dtype: DType) -> bool {
    is_number(dtype) && dtype != DType::Bool
}

/// Numbers are multiplied and compared, floats averaged.
pub(crate) fn claim(node: &Node, _: &Graph) -> Claim {
    let dtype = node.shape.dtype();
    let known = match node.op {
        Op::Pool { kind: PoolKind::Average, .. } => is_float(dtype),
        Op::Pool { kind: PoolKind::Max, .. } | Op::Conv { .. } => multiplies(dtype),
        _ => false,
    };
    if known { Claim::Native } else { Claim::No(format!("there is no {} of {dtype}", node.op.kind())) }
}

/// How many taps a kernel has; one of a pooling may be larger than any memory.
fn taps(kernel: &[usize]) -> usize {
    kernel.iter().fold(1, |n, &k| n.saturating_mul(k))
}

/// The plain kernel of a convolution or pooling.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let dtype = cx.step.outputs[0].dtype;
    match &cx.node().op {
        Op::Conv { strides, pads, dilations, groups, format } => {
            let attributes = attributes(strides, pads, dilations);
            Ok(Box::new(Conv { attributes, groups: *groups, format: *format, dtype, plan: None }))
        }
        op => match Pool::of(op, dtype) {
            Some(pool) => Ok(Box::new(pool)),
            None => Err(no_kernel(op, "it has no window")),
        },
    }
}

fn attributes(strides: &[usize], pads: &[usize], dilations: &[usize]) -> Attributes {
    Attributes { strides: strides.to_vec(), pads: pads.to_vec(), dilations: dilations.to_vec() }
}

/// What a window slides over and what it makes.
#[derive(Debug, Clone, Copy)]
struct Frame {
    x: At,
    out: At,
    batches: usize,
    /// Channels of the result.
    channels: usize,
    /// Distances from batch to batch and from channel to channel.
    x_steps: [isize; 2],
    out_steps: [isize; 2],
    slides: [WindowAxis; SPATIAL],
    worth: bool,
}

/// One row of the result.
struct Row {
    batch: usize,
    channel: usize,
    /// Windows along the dimensions before the last.
    window: [usize; SPATIAL - 1],
    /// Where it begins in the result.
    out: isize,
}

impl Frame {
    fn new(
        x: &Bound,
        out: &Bound,
        attributes: &Attributes,
        kernel: &[usize],
        format: DataFormat,
    ) -> Result<Frame> {
        let slides = attributes.slides(&x.layout, &out.layout, format.first_spatial_axis(), kernel)?;
        let channel = format.channel_axis(x.layout.rank());
        if x.dims()[0] != out.dims()[0] {
            return Err(mismatch(format!("windows over {:?} make {:?}", x.dims(), out.dims())));
        }
        Ok(Frame {
            x: x.at,
            out: out.at,
            batches: x.dims()[0],
            channels: out.dims()[channel],
            x_steps: [x.layout.strides()[0], x.layout.strides()[channel]],
            out_steps: [out.layout.strides()[0], out.layout.strides()[channel]],
            slides,
            worth: false,
        })
    }

    /// The time, for this many operations a result.
    fn needs(&mut self, operations: usize) -> Needs {
        let nanos = (self.rows() * self.slides[2].windows) as f64 * operations as f64 * 0.7;
        self.worth = nanos > WORTH_NANOS;
        Needs::time(nanos)
    }

    fn rows(&self) -> usize {
        self.batches * self.channels * self.slides[0].windows * self.slides[1].windows
    }

    fn row(&self, row: usize) -> Row {
        let [z, y, _] = self.slides;
        let (plane, window) = (row / (z.windows * y.windows), [row / y.windows % z.windows, row % y.windows]);
        let (batch, channel) = (plane / self.channels, plane % self.channels);
        let out = batch as isize * self.out_steps[0]
            + channel as isize * self.out_steps[1]
            + window[0] as isize * z.window_step
            + window[1] as isize * y.window_step;
        Row { batch, channel, window, out }
    }

    /// Calls `f(offset in x, tap numbers)` for all taps of a row's windows along all but the last dimension.
    #[inline(always)]
    fn outer_taps(&self, window: [usize; SPATIAL - 1], mut f: impl FnMut(isize, [usize; SPATIAL - 1])) {
        let [z, y, _] = &self.slides;
        for tz in z.taps_inside(window[0]) {
            let plane = z.position(window[0], tz) * z.step;
            for ty in y.taps_inside(window[1]) {
                f(plane + y.position(window[1], ty) * y.step, [tz, ty]);
            }
        }
    }

    /// Calls `f(window − first, offset in x)` for the windows `first..first + n` of a row whose tap `tap` lies
    /// inside.
    #[inline(always)]
    fn along(&self, tap: usize, first: usize, n: usize, mut f: impl FnMut(usize, isize)) {
        let s = &self.slides[2];
        let range = s.windows_at(tap, 0..s.size);
        let (from, to) = (range.start.max(first), range.end.min(first + n));
        if from >= to {
            return;
        }
        let (start, step) = (s.position(from, tap) * s.step, s.stride as isize * s.step);
        // Neighbours get a loop of their own, which vectors can run.
        if step == 1 {
            (0..to - from).for_each(|i| f(from - first + i, start + i as isize));
        } else {
            (0..to - from).for_each(|i| f(from - first + i, start + i as isize * step));
        }
    }
}

#[derive(Debug, Clone)]
struct Conv {
    attributes: Attributes,
    groups: usize,
    format: DataFormat,
    dtype: DType,
    plan: Option<ConvPlan>,
}

/// A bound convolution.
#[derive(Debug, Clone, Copy)]
struct ConvPlan {
    frame: Frame,
    w: At,
    /// Distances from result channel to result channel, input channel to input channel, tap to tap.
    w_steps: [isize; 2],
    tap_steps: [isize; SPATIAL],
    /// Place and distance.
    bias: Option<(At, isize)>,
    /// Channels of a group.
    inputs: usize,
    outputs: usize,
}

impl StepKernel for Conv {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, w, out) = (&cx.inputs[0], &cx.inputs[1], &cx.outputs[0]);
        let shape_mismatch =
            || mismatch(format!("{:?} convolved with {:?} makes {:?}", x.dims(), w.dims(), out.dims()));
        if w.layout.rank() < 3 || w.layout.rank() != x.layout.rank() {
            return Err(shape_mismatch());
        }
        let kernel = &w.dims()[2..];
        let mut frame = Frame::new(x, out, &self.attributes, kernel, self.format)?;
        let (outputs, inputs) = (w.dims()[0], w.dims()[1]);
        let channels = x.dims()[self.format.channel_axis(x.layout.rank())];
        let fits = self.groups > 0 && outputs % self.groups == 0 && channels == inputs * self.groups;
        let bias = cx.inputs.get(2);
        if !fits || outputs != frame.channels || bias.is_some_and(|b| b.dims() != [outputs]) {
            return Err(shape_mismatch());
        }
        let mut tap_steps = [0; SPATIAL];
        tap_steps[SPATIAL - kernel.len()..].copy_from_slice(&w.layout.strides()[2..]);
        let needs = frame.needs(inputs.saturating_mul(taps(kernel)));
        self.plan = Some(ConvPlan {
            frame,
            w: w.at,
            w_steps: [w.layout.strides()[0], w.layout.strides()[1]],
            tap_steps,
            bias: bias.map(|b| (b.at, b.layout.strides()[0])),
            inputs,
            outputs: outputs / self.groups,
        });
        Ok(needs)
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Err(unbound()) };
        // SAFETY: the caller's promise; the type is that of all operands.
        unsafe { wrapping!(self.dtype, T => plan.convolve::<T>(cx)) };
        Ok(())
    }
}

impl ConvPlan {
    unsafe fn convolve<T: Element>(&self, cx: &mut RunCx<'_, '_>) {
        let (p, f) = (*self, self.frame);
        let (x, w, out) = (cx.shared::<T>(f.x), cx.shared::<T>(p.w), cx.shared::<T>(f.out));
        let bias = p.bias.map(|(at, step)| (cx.shared::<T>(at), step));
        cx.parallel(f.worth, f.rows(), &|range, _| {
            for row in range {
                let row = f.row(row);
                let group = row.channel / p.outputs;
                let x = x.get().wrapping_offset(row.batch as isize * f.x_steps[0]);
                let x = x.wrapping_offset((group * p.inputs) as isize * f.x_steps[1]);
                let w = w.get().wrapping_offset(row.channel as isize * p.w_steps[0]);
                // SAFETY: the caller's promise; there is a bias for each channel.
                let start = bias.map_or(T::ZERO, |(b, step)| unsafe {
                    T::start(*b.get().wrapping_offset(row.channel as isize * step))
                });
                // SAFETY: the caller's promise; rows are disjoint.
                unsafe { p.row(x, w, out.get().wrapping_offset(row.out), start, row.window) };
            }
        });
    }

    unsafe fn row<T: Element>(
        &self,
        x: *const T,
        w: *const T,
        out: *mut T,
        start: T::Sum,
        window: [usize; SPATIAL - 1],
    ) {
        let f = &self.frame;
        let last = &f.slides[2];
        for first in (0..last.windows).step_by(WIDTH) {
            let n = WIDTH.min(last.windows - first);
            let mut sums = [start; WIDTH];
            for channel in 0..self.inputs as isize {
                let x = x.wrapping_offset(channel * f.x_steps[1]);
                let w = w.wrapping_offset(channel * self.w_steps[1]);
                f.outer_taps(window, |offset, [tz, ty]| {
                    let x = x.wrapping_offset(offset);
                    let w =
                        w.wrapping_offset(tz as isize * self.tap_steps[0] + ty as isize * self.tap_steps[1]);
                    for tx in 0..last.taps {
                        // SAFETY: the caller's promise; taps are inside the kernel, windows' taps inside `x`.
                        unsafe {
                            let weight = *w.wrapping_offset(tx as isize * self.tap_steps[2]);
                            f.along(tx, first, n, |i, at| {
                                sums[i] = T::mul_add(sums[i], *x.wrapping_offset(at), weight);
                            });
                        }
                    }
                });
            }
            for (i, &sum) in sums[..n].iter().enumerate() {
                // SAFETY: the caller's promise; there are so many windows.
                unsafe { *out.wrapping_offset((first + i) as isize * last.window_step) = T::finish(sum) };
            }
        }
    }
}

/// A pooling.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    attributes: Attributes,
    kernel: Vec<usize>,
    kind: PoolKind,
    count_include_pad: bool,
    format: DataFormat,
    dtype: DType,
    plan: Option<Frame>,
}

impl Pool {
    /// The kernel of `op`, if that is a pooling.
    pub(super) fn of(op: &Op, dtype: DType) -> Option<Pool> {
        let Op::Pool { kind, kernel, strides, pads, dilations, count_include_pad, format, .. } = op else {
            return None;
        };
        Some(Pool {
            attributes: attributes(strides, pads, dilations),
            kernel: kernel.clone(),
            kind: *kind,
            count_include_pad: *count_include_pad,
            format: *format,
            dtype,
            plan: None,
        })
    }
}

impl StepKernel for Pool {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, out) = (&cx.inputs[0], &cx.outputs[0]);
        let mut frame = Frame::new(x, out, &self.attributes, &self.kernel, self.format)?;
        if x.dims()[self.format.channel_axis(x.layout.rank())] != frame.channels {
            return Err(mismatch(format!("windows over {:?} make {:?}", x.dims(), out.dims())));
        }
        let needs = frame.needs(taps(&self.kernel));
        self.plan = Some(frame);
        Ok(needs)
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(frame) = &self.plan else { return Err(unbound()) };
        // SAFETY: the caller's promise; the type is that of both operands.
        unsafe {
            match self.kind {
                PoolKind::Max => number!(self.dtype, T => greatest::<T>(cx, frame)),
                // The mean, the other claimed kind.
                _ => {
                    let padded = self.count_include_pad;
                    match self.dtype {
                        DType::F64 => average::<f64>(cx, frame, padded, |sum, n| sum / n as f64),
                        DType::F16 => average::<half::f16>(cx, frame, padded, |sum, n| sum / n as f32),
                        DType::BF16 => average::<half::bf16>(cx, frame, padded, |sum, n| sum / n as f32),
                        _ => average::<f32>(cx, frame, padded, |sum, n| sum / n as f64),
                    }
                }
            }
        }
        Ok(())
    }
}

/// The largest element of each window.
unsafe fn greatest<T: Number>(cx: &mut RunCx<'_, '_>, f: &Frame) {
    // SAFETY: the caller's promise.
    unsafe { pool::<T>(cx, f, T::LOWEST, T::max, |x, _| x) }
}

/// The mean of each window.
unsafe fn average<T: Number>(
    cx: &mut RunCx<'_, '_>,
    f: &Frame,
    padded: bool,
    divide: impl Fn(T::Wide, usize) -> T::Wide + Sync,
) {
    let slides = f.slides;
    let count = move |slide: usize, window: usize| {
        let s = &slides[slide];
        if padded { s.taps_padded(window) } else { s.taps_inside(window).len() }
    };
    // SAFETY: the caller's promise.
    unsafe {
        pool::<T>(cx, f, T::ZERO, T::add, |sum, [z, y, x]| {
            divide(sum, (count(0, z) * count(1, y) * count(2, x)).max(1))
        });
    }
}

/// Joins the elements of each window to `first`, then finishes the result of the window.
unsafe fn pool<T: Number>(
    cx: &mut RunCx<'_, '_>,
    f: &Frame,
    first: T::Wide,
    join: impl Fn(T::Wide, T::Wide) -> T::Wide + Sync,
    finish: impl Fn(T::Wide, [usize; SPATIAL]) -> T::Wide + Sync,
) {
    let f = *f;
    let (x, out) = (cx.shared::<T>(f.x), cx.shared::<T>(f.out));
    let last = f.slides[2];
    cx.parallel(f.worth, f.rows(), &|range, _| {
        for row in range {
            let row = f.row(row);
            let x = x
                .get()
                .wrapping_offset(row.batch as isize * f.x_steps[0] + row.channel as isize * f.x_steps[1]);
            let out = out.get().wrapping_offset(row.out);
            for start in (0..last.windows).step_by(WIDTH) {
                let n = WIDTH.min(last.windows - start);
                let mut results = [first; WIDTH];
                f.outer_taps(row.window, |offset, _| {
                    let x = x.wrapping_offset(offset);
                    for tap in 0..last.taps {
                        f.along(tap, start, n, |i, at| {
                            // SAFETY: the caller's promise; the tap is inside.
                            results[i] = join(results[i], unsafe { *x.wrapping_offset(at) }.widen());
                        });
                    }
                });
                for (i, &result) in results[..n].iter().enumerate() {
                    let window = start + i;
                    let result = finish(result, [row.window[0], row.window[1], window]);
                    // SAFETY: the caller's promise; rows are disjoint.
                    unsafe { *out.wrapping_offset(window as isize * last.window_step) = T::narrow(result) };
                }
            }
        }
    });
}
