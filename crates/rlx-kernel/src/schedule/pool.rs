//! Pooling: an invocation goes over the window of its place, and combines what is inside of the image.
//!
//! With channels last, places of the result that are neighbours have the same window, so an invocation of a GPU may have several of them, which are read and written together: the
//! window is walked once for all of them, and each combines the same elements in the same order.
//!
//! ```text
//! x [32, 112, 112, 64] of bf16, windows of 3 × 3    ──▶    8 channels of a place, 9 reads of 16 bytes
//! ```

use rlx_ir::op::{DataFormat, PoolKind, ReduceOp};
use rlx_ir::{Extent, Node, NodeId, Op};

use super::conv_pool::{Slides, arrange, spatial_dims};
use super::cx::Cx;
use super::map::{Each, Spread};
use super::neighbours::is_together;
use super::reduce::Combine;
use super::run::Run;
use super::{Launch, Scheduled, StepDesc, reject};
use crate::ir::{Const, Ty, Value, Var, WIDTHS};

/// Invocations of a workgroup of single elements, and of one that accesses neighbours together.
const WORKGROUPS: [u32; 2] = [64, 256];
/// Bytes that a GPU accesses together for an invocation.
const WIDE_BYTES: usize = 16;

/// How elements may be spread over invocations; single elements first.
pub(super) fn spreads(step: &StepDesc, anchor: &Node, is_processor: bool) -> Vec<Spread> {
    let single = Spread { workgroup: WORKGROUPS[0], each: Each::Apart(1) };
    let wide = if is_processor { None } else { width(step, anchor) };
    let wide = wide.map(|width| Spread { workgroup: WORKGROUPS[1], each: Each::Together(width) });
    std::iter::once(single).chain(wide).collect()
}

/// How many channels an invocation may have, if channels are last and image and results are accessed so many at once.
fn width(step: &StepDesc, anchor: &Node) -> Option<usize> {
    let Op::Pool { format: DataFormat::ChannelsLast, .. } = anchor.op else { return None };
    let image = step.inputs.get(number_of(step, anchor.inputs[0])?)?;
    let bits = step.outputs.iter().chain([image]).map(|o| o.dtype.bits()).max()?;
    let fits = |&width: &usize| {
        width * bits <= 8 * WIDE_BYTES
            && std::iter::once(image).chain(&step.outputs).all(|o| is_together(step, o, width))
    };
    WIDTHS.iter().rev().copied().find(fits)
}

/// Which input of the step a node is, if it is one.
fn number_of(step: &StepDesc, id: NodeId) -> Option<usize> {
    step.graph.inputs().position(|input| input.id == id)
}

/// Makes the kernel of a body around [`Op::Pool`], spread so.
///
/// # Errors
/// An element type without arithmetic, or an epilogue of other dimensions.
pub fn schedule(step: &StepDesc, anchor: &Node, spread: Spread) -> Scheduled<Vec<Launch>> {
    let width = if let Each::Together(width) = spread.each { width } else { 1 };
    let mut cx = Cx::new(&format!("pool.{}", step.name), spread.workgroup, step);
    let space = cx.result_space()?;
    let mut counts = space.to_vec();
    if let Some(last) = counts.last_mut() {
        *last = last.ceil_div(width as i64);
    }
    let dims = cx.sizes("dim", &counts);
    let window = Window::new(&mut cx, anchor)?;
    let n = dims.iter().fold(cx.b.int(1), |n, &d| cx.b.mul(n, d));
    let i = cx.b.global_id();
    let inside = cx.b.lt(i, n);
    cx.if_then(inside, |cx| {
        let mut first = cx.unflatten(i, &dims);
        if width > 1
            && let Some(last) = first.last_mut()
        {
            let times = cx.b.int(width as i32);
            *last = cx.b.mul(*last, times);
        }
        let run = Run::along_last(first, width);
        window.pool(cx, anchor, &run)?;
        cx.store_run(&run)
    })?;
    let elements = counts.iter().fold(Extent::Const(1), |n, &d| n * d);
    Ok(vec![cx.finish(elements.ceil_div(i64::from(spread.workgroup)))])
}

/// How windows slide over the image.
struct Window {
    combine: Combine,
    format: DataFormat,
    count_include_pad: bool,
    slides: Slides,
    size: Vec<Value>,
    taps: Vec<Value>,
    /// Where the border behind the image ends.
    padded: Vec<Value>,
}

impl Window {
    fn new(cx: &mut Cx<'_>, anchor: &Node) -> Scheduled<Window> {
        let Op::Pool { kind, kernel, strides, pads, dilations, count_include_pad, format, .. } = &anchor.op
        else {
            return reject("not a Pool");
        };
        let (spatial, constant) = (kernel.len(), |&n: &usize| Extent::Const(n as i64));
        let op = match kind {
            PoolKind::Max => ReduceOp::Max,
            PoolKind::Average => ReduceOp::Mean,
            other => return reject(format!("{other} pooling")),
        };
        let combine = Combine::new(op, anchor.shape.dtype())?;
        let slides = Slides::new(cx, strides, dilations, pads);
        let size = cx.sizes("size", &spatial_dims(cx.step, anchor.inputs[0], *format));
        let taps = cx.sizes("kernel", &kernel.iter().map(constant).collect::<Vec<_>>());
        let after = cx.sizes("pad_after", &pads[spatial..].iter().map(constant).collect::<Vec<_>>());
        let padded = size.iter().zip(after).map(|(&size, after)| cx.b.add(size, after)).collect();
        let (format, count_include_pad) = (*format, *count_include_pad);
        Ok(Window { combine, format, count_include_pad, slides, size, taps, padded })
    }

    /// Combines the windows of a run, which is along the channels.
    fn pool(&self, cx: &mut Cx<'_>, anchor: &Node, run: &Run) -> Scheduled<()> {
        let (index, places) = (&run.first, cx.places_of(run));
        let (channel_axis, first) = (self.format.channel_axis(index.len()), self.format.first_spatial_axis());
        let (identity, zero) = (self.combine.identity(&mut cx.b), cx.b.int(0));
        let totals: Vec<Var> = places.iter().map(|_| cx.b.var(identity)).collect();
        let count = cx.b.var(zero);
        cx.for_space(&self.taps, &mut |cx, tap| {
            let at: Vec<Value> =
                (0..tap.len()).map(|k| self.slides.position(cx, k, index[first + k], tap[k])).collect();
            let inside = cx.within(&at, &self.size);
            let counts = if self.count_include_pad { self.before_end(cx, &at) } else { inside };
            let (now, more) = (cx.b.get(count), cx.b.convert(Ty::I32, counts));
            let next = cx.b.add(now, more);
            cx.b.set(count, next);
            cx.if_then(inside, |cx| {
                let from = arrange(self.format, index[0], index[channel_axis], &at);
                let from = Run { first: from, axis: channel_axis, width: run.width };
                let elements = cx.elements(anchor.inputs[0], &from)?;
                for (&total, v) in totals.iter().zip(elements) {
                    self.combine.accumulate(&mut cx.b, total, v);
                }
                Ok(())
            })
        })?;
        let (count, one) = (cx.b.get(count), cx.b.int(1));
        let count = cx.b.max(count, one);
        for (index, total) in places.iter().zip(totals) {
            let total = cx.b.get(total);
            let v = self.combine.finish(&mut cx.b, total, count);
            cx.bind(anchor.id, index, v);
        }
        Ok(())
    }

    /// Whether a position is in front of the end of the border.
    fn before_end(&self, cx: &mut Cx<'_>, at: &[Value]) -> Value {
        let mut all = cx.b.constant(Const::bool(true));
        for (&p, &end) in at.iter().zip(&self.padded) {
            let before_end = cx.b.lt(p, end);
            all = cx.b.and(all, before_end);
        }
        all
    }
}
