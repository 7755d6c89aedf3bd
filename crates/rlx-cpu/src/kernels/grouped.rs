//! Convolution of channels-last images of f32, f16 or bf16 with few channels in a group: depthwise, where every channel has a
//! kernel of its own (or several), with groups of up to 64 channels, and of images of two to four channels. Results run in vectors of channels.

use std::ops::Range;
use std::sync::Arc;

use rlx_ir::op::{DataFormat, PackFormat};
use rlx_ir::{DType, Graph, Node, Op, Result};

use super::bands::{LineForm, LineWindow, Part, PartOf, Typed};
use super::conv::planes::{Blocks, Planes};
use super::epilogue::Tail;
use super::matmul::is_packed;
use super::region::{Anchored, EpilogueSpec};
use super::{BindCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, packed_type};
use crate::formats;
use crate::gemm::{Bias, Packed};
use crate::isa::Isa;
use crate::layout::{At, Bound, Layout};
use crate::simd::LANES;
use crate::window::direct::{Direct, Operands, Order, WeightSteps, suits_lines};
use crate::window::groups::{takes, takes_image};
use crate::window::{WindowPass, Windows};

/// Whether a convolution takes the route of this module: several groups of few channels, or one.
pub(crate) fn is_grouped(node: &Node, graph: &Graph) -> bool {
    let Op::Conv { groups, format: DataFormat::ChannelsLast, strides, dilations, .. } = &node.op else {
        return false;
    };
    let (x, w) = (graph.shape(node.inputs[0]), graph.shape(node.inputs[1]));
    let last = |s: &rlx_ir::Shape| s.dims().last().and_then(|d| d.as_static());
    let (Some(channels), Some(filters)) = (last(x), last(&node.shape)) else { return false };
    let fits = match (groups, last(w), &strides[..], &dilations[..]) {
        (1, Some(kernel), &[.., stride], &[.., dilation]) => {
            x.rank() == 4 && takes_image(channels, kernel, stride, dilation)
        }
        (1, ..) => false,
        _ => {
            let whole = channels.is_multiple_of(*groups) && filters.is_multiple_of(*groups);
            whole && takes(channels / groups, filters / groups)
        }
    };
    fits && is_packed(x.dtype()) && x.rank() <= 4
}

/// The format the weights are wanted in.
pub(crate) fn pack_format(node: &Node, input: usize, graph: &Graph) -> Option<PackFormat> {
    (input == 1 && is_grouped(node, graph)).then_some(formats::GROUPED_WEIGHTS)
}

/// A bound convolution.
#[derive(Debug, Clone)]
pub(crate) struct Grouped {
    dtype: DType,
    inputs: Vec<usize>,
    stride: [usize; 2],
    dilation: [usize; 2],
    before: [usize; 2],
    tail: Tail,
    bound: Option<Numbers>,
    /// How it is computed from planes to planes.
    direct: Option<Arc<Direct>>,
}

#[derive(Debug, Clone, Copy)]
struct Numbers {
    x: At,
    y: At,
    w: At,
    bias: Option<At>,
    weights: Layout,
    packed: bool,
    windows: Windows,
    /// Channels of an input pixel, and of a group of them.
    inputs: usize,
    group: usize,
    /// What of the image and of the result is planes, which some lines at a time are transposed of.
    planes: [Option<Planes>; 2],
    /// Bytes of packed weights.
    weight_bytes: usize,
    /// Where scratch for the weights begins.
    scratch: usize,
    worth: bool,
}

/// Two numbers from one or two: the vertical one is `fill` when there is none.
pub(super) fn pair(v: &[usize], fill: usize) -> [usize; 2] {
    match *v {
        [a, b] => [a, b],
        [b] => [fill, b],
        _ => [fill, fill],
    }
}

/// The kernel, with the region behind it if there is one.
pub(crate) fn boxed(
    op: &Op,
    dtype: DType,
    inputs: Vec<usize>,
    region: Option<Anchored>,
) -> Result<Box<dyn StepKernel>> {
    let Op::Conv { strides, pads, dilations, .. } = op else {
        return Err(no_kernel(op, "it is no convolution"));
    };
    Ok(Box::new(Grouped {
        dtype,
        inputs,
        stride: pair(strides, 1),
        dilation: pair(dilations, 1),
        before: pair(&pads[..pads.len() / 2], 0),
        tail: region.map_or(Tail::NONE, Tail::of),
        bound: None,
        direct: None,
    }))
}

/// Images, height, width, channels of a dense image.
pub(super) fn image(b: &Bound) -> Result<[usize; 4]> {
    match (b.dims(), b.layout.is_dense()) {
        (&[n, h, w, c], true) => Ok([n, h, w, c]),
        (&[n, w, c], true) => Ok([n, 1, w, c]),
        _ => Err(mismatch(format!("a convolution over {:?}", b.dims()))),
    }
}

/// Whether groups of `group` of the `inputs` channels, with equal shares of the filters, are computed here.
fn fits(inputs: usize, group: usize, filters: usize) -> bool {
    let groups = inputs / group;
    groups > 0
        && inputs.is_multiple_of(group)
        && filters.is_multiple_of(groups)
        && takes(group, filters / groups)
}

impl StepKernel for Grouped {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (dtype, long) = (self.dtype, self.dtype == DType::F32);
        // A bias behind the convolution is added to the rounded sum.
        let simple = |e: &EpilogueSpec| e.alpha == 1.0 && e.combine.is_none() && (long || e.bias.is_none());
        let (result, mut needs) = self.tail.bind(cx, dtype, &simple)?;
        let scratch = self.tail.scratch_bytes();
        let (x, w) = (&cx.inputs[self.inputs[0]], &cx.inputs[self.inputs[1]]);
        let planes = [x, &result].map(Planes::of);
        // What is planes is dense as soon as it is transposed.
        let rows = |b: &Bound| image(&Bound { layout: Layout::dense(b.dims()), ..*b });
        let size = |b: &Bound, planes: Option<Planes>| if planes.is_some() { rows(b) } else { image(b) };
        let [images, h, width, inputs] = size(x, planes[0])?;
        let [n, oh, ow, channels] = size(&result, planes[1])?;
        let (group, kernel) = (w.dims()[1], pair(&w.dims()[2..], 1));
        let bias = self.inputs.get(2).map(|&i| &cx.inputs[i]);
        if n != images
            || w.dims()[0] != channels
            || group == 0
            || group != inputs && !fits(inputs, group, channels)
            || bias.is_some_and(|b| b.dims() != [channels] || !b.layout.is_dense())
        {
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
        let packed = cx.is_packed(self.inputs[1], formats::GROUPED_WEIGHTS)?;
        let weight_bytes =
            packed_bytes(dtype, w.dims()).ok_or_else(|| mismatch("a convolution that is too large"))?;
        needs.shared_scratch = scratch + if packed { 0 } else { weight_bytes };
        let is_full = match group == 1 && channels == inputs {
            true => suits_lines(&windows),
            false => 2 * ow >= ow.next_multiple_of(LANES),
        };
        self.direct = match planes {
            [Some(x), Some(y)] if long && is_full => {
                Direct::new(windows, [inputs, group], [x.steps(), y.steps()], steps(&windows, group), ORDER)
                    .map(Arc::new)
            }
            _ => None,
        };
        let lines = Transposed::of(&windows, inputs, planes);
        let own = match (&self.direct, lines) {
            (Some(direct), _) => direct.scratch_bytes(),
            (None, Some(lines)) => lines.elements().iter().sum::<usize>() * dtype.size_bytes(),
            (None, None) => 0,
        };
        needs.thread_scratch = needs.thread_scratch.max(own);
        let nanos = (images * oh * ow * channels * kernel[0] * kernel[1] * group) as f64 * 0.06;
        needs.nanos += nanos;
        let worth = nanos > WORTH_NANOS;
        let bias = bias.map(|b| b.at);
        self.bound = Some(Numbers {
            x: x.at,
            y: result.at,
            w: w.at,
            bias,
            weights: w.layout,
            packed,
            windows,
            inputs,
            group,
            planes,
            weight_bytes,
            scratch,
            worth,
        });
        Ok(needs)
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(s) = &self.bound else { return Err(mismatch("a step that was not bound")) };
        // SAFETY: the caller's promise.
        unsafe {
            packed_type!(
                self.dtype,
                T => self.run_as::<T>(cx, s),
                _ => return Err(mismatch(format!("a convolution of {}", self.dtype)))
            );
            self.tail.finish(cx);
        }
        Ok(())
    }

    fn lines(&self) -> Option<LineForm> {
        let s =
            self.bound.as_ref().filter(|s| s.packed && s.planes == [None; 2] && self.tail.is_epilogue())?;
        let w = &s.windows;
        let size = self.dtype.size_bytes();
        Some(LineForm {
            images: w.images,
            lines: [w.size[0], w.out[0]],
            bytes: [w.size[1] * s.inputs * size, w.out[1] * w.channels * size],
            takes_lines: true,
            is_dense: true,
            window: line_window(w),
            weights: s.weight_bytes,
            x: s.x,
            y: s.y,
        })
    }

    fn part(&self, cx: &RunCx<'_, '_>) -> Option<Part> {
        let s = self.bound.as_ref()?;
        packed_type!(
            self.dtype,
            T => Some(T::part(PartOf::Windows(self.pass::<T>(cx, s, cx.ptr(s.w))))),
            _ => None
        )
    }
}

impl Grouped {
    /// The whole convolution with packed weights.
    fn pass<T: Packed>(&self, cx: &RunCx<'_, '_>, s: &Numbers, weights: *const T) -> WindowPass<T> {
        let epilogue = self.tail.epilogue::<T>(cx);
        let bias = match (s.bias, epilogue.bias) {
            (Some(at), _) => Some(cx.ptr::<T>(at).cast_const()),
            (None, Bias::PerColumn(p)) => Some(p),
            (None, _) => None,
        };
        WindowPass {
            windows: s.windows,
            inputs: s.inputs,
            group: s.group,
            weights,
            bias,
            activation: epilogue.activation,
            input: cx.ptr(s.x),
            wrap: usize::MAX,
            output: cx.ptr(s.y),
        }
    }

    /// # Safety
    /// As [`StepKernel::run`]; the operands must be of `T`.
    unsafe fn run_as<T: Packed>(&self, cx: &mut RunCx<'_, '_>, s: &Numbers) {
        // SAFETY: the caller's promise; scratch was asked for when the step was bound.
        unsafe {
            let weights = if s.packed {
                cx.ptr::<T>(s.w)
            } else {
                let to = cx.shared_scratch.wrapping_add(s.scratch).cast::<T>();
                pack_weights(cx.ptr::<T>(s.w), &s.weights, T::DOT, to);
                to
            };
            let (isa, pass) = (cx.isa, self.pass::<T>(cx, s, weights));
            if let Some(direct) = &self.direct {
                let of = Operands {
                    x: pass.input.cast(),
                    y: pass.output.cast(),
                    weights: pass.weights.cast(),
                    bias: pass.bias.map(|bias| bias.cast()),
                    bias_first: true,
                    activation: pass.activation,
                };
                let run = |range, scratch: *mut u8| direct.run(isa, &of, range, scratch.cast());
                return cx.parallel(s.worth, direct.tasks(), &run);
            }
            match Transposed::of(&s.windows, s.inputs, s.planes) {
                None => cx.parallel(s.worth, s.windows.tasks(), &|range, _| pass.run(isa, range)),
                Some(lines) => lines.run(cx, s.worth, &pass),
            }
        }
    }
}

/// The order of sums in `window`.
const ORDER: Order = Order::ChannelsInLines;

/// Where packed weights are.
fn steps(w: &Windows, group: usize) -> WeightSteps {
    let width = w.kernel[1] as isize;
    if group == 1 {
        let right = w.channels as isize;
        let (panel, of_panel) = (usize::MAX, 0);
        return WeightSteps { panel, of_panel, filter: 1, down: width * right, right, channel: 0 };
    }
    let right = LANES as isize;
    let (channel, down) = (width * right, group as isize * width * right);
    WeightSteps { panel: LANES, of_panel: w.kernel[0] as isize * down, filter: 1, down, right, channel }
}

/// The windows along the lines.
fn line_window(w: &Windows) -> LineWindow {
    LineWindow { kernel: w.kernel[0], stride: w.stride[0], dilation: w.dilation[0], before: w.pad[0] }
}

/// A convolution from planes, into planes, or both: some lines of the result at a time.
#[derive(Debug, Clone, Copy)]
struct Transposed {
    windows: Windows,
    /// Channels of an input pixel.
    inputs: usize,
    x: Option<Planes>,
    y: Option<Planes>,
    blocks: Blocks,
}

impl Transposed {
    /// `None` where nothing is planes.
    fn of(w: &Windows, inputs: usize, [x, y]: [Option<Planes>; 2]) -> Option<Transposed> {
        if x.is_none() && y.is_none() {
            return None;
        }
        let (before, behind) =
            (x.map_or(0, |_| w.size[1] * w.stride[0] * inputs), y.map_or(0, |_| w.out[1] * w.channels));
        let blocks = Blocks::of_lines(w.images, w.out, before + behind);
        Some(Transposed { windows: *w, inputs, x, y, blocks })
    }

    /// Lines of the image that a thread has at a time, in a ring buffer.
    fn ring(&self) -> usize {
        let w = &self.windows;
        line_window(w).span(self.blocks.lines(w.out[1]), w.size[0]).max(1)
    }

    /// Elements of a thread's scratch: for lines of the image, and of the result.
    fn elements(&self) -> [usize; 2] {
        let w = &self.windows;
        let before = self.x.map_or(0, |_| self.ring() * w.size[1] * self.inputs);
        let behind = self.y.map_or(0, |_| self.blocks.lines(w.out[1]) * w.out[1] * w.channels);
        [before.next_multiple_of(2 * LANES), behind]
    }

    /// Computes the convolution.
    ///
    /// # Safety
    /// As [`WindowPass::run`], but for what is planes; threads must have scratch for so many elements.
    unsafe fn run<T: Packed>(&self, cx: &mut RunCx<'_, '_>, worth: bool, pass: &WindowPass<T>) {
        let w = &self.windows;
        let place = |planes: Option<Planes>| planes.map(|planes| (planes, cx.shared::<T>(planes.at)));
        let (isa, x, y) = (cx.isa, place(self.x), place(self.y));
        cx.parallel(worth, self.blocks.len(), &|range, scratch| {
            let ring = scratch.cast::<T>();
            let behind = ring.wrapping_add(self.elements()[0]);
            let mut part = *pass;
            if x.is_some() {
                (part.input, part.wrap) = (ring.cast_const(), self.ring());
            }
            // The lines before it are in the ring.
            let mut next = 0;
            for (image, block) in range.map(|block| self.blocks.place(block)) {
                let lines = block.start / w.out[1]..block.end / w.out[1];
                let tasks = image * w.out[0] + lines.start..image * w.out[0] + lines.end;
                // SAFETY: the caller's promise; blocks are disjoint, and the scratch is the thread's own.
                unsafe {
                    if let Some((planes, from)) = &x {
                        let first = image * w.size[0];
                        let reads = line_window(w).reads(&lines, w.size[0]);
                        let new = reads.start.max(next.max(first) - first)..reads.end;
                        next = first + new.end.max(new.start);
                        self.fill(isa, planes, from.get(), image, new, ring);
                    }
                    if y.is_some() {
                        part.output = behind.wrapping_sub(tasks.start * w.out[1] * w.channels);
                    }
                    part.run(isa, tasks);
                    if let Some((planes, to)) = &y {
                        planes.put(isa, to.get(), image, block, behind);
                    }
                }
            }
        });
    }

    /// Transposes these lines of an image into the ring.
    ///
    /// # Safety
    /// The planes at `from` must be readable, and the ring be of so many lines.
    unsafe fn fill<T: Packed>(
        &self,
        isa: Isa,
        planes: &Planes,
        from: *mut T,
        image: usize,
        lines: Range<usize>,
        ring: *mut T,
    ) {
        let (height, width) = (self.windows.size[0], self.windows.size[1]);
        let mut line = lines.start;
        while line < lines.end {
            let at = (image * height + line) % self.ring();
            let end = lines.end.min(line + self.ring() - at);
            let to = ring.wrapping_add(at * width * self.inputs);
            // SAFETY: the caller's promise.
            unsafe { planes.take(isa, from, image, line * width..end * width, to) };
            line = end;
        }
    }
}

/// Bytes of packed weights.
pub(crate) fn packed_bytes(dtype: DType, dims: &[usize]) -> Option<usize> {
    let &[channels, group, ref window @ ..] = dims else { return None };
    let dot = packed_type!(dtype, T => T::DOT, _ => 1);
    let (channels, group) = match group {
        ..=1 => (channels, group),
        _ => (channels.checked_next_multiple_of(LANES)?, group.checked_next_multiple_of(dot)?),
    };
    let elements = window.iter().try_fold(channels.checked_mul(group)?, |n, &d| n.checked_mul(d))?;
    elements.checked_mul(dtype.size_bytes())
}

/// Turns weights `[C, g, h, w]` or `[C, g, w]` into [packed ones](formats::GROUPED_WEIGHTS), where those of `dot` channels of a group of several
/// lie side by side.
///
/// # Safety
/// Every element of the view must be readable, and `to` writable for [`packed_bytes`].
pub(crate) unsafe fn pack_weights<T: Copy + Default>(
    from: *const T,
    weights: &Layout,
    dot: usize,
    mut to: *mut T,
) {
    let (dims, strides) = (weights.dims(), weights.strides());
    let (channels, group, kernel, steps) = (dims[0], dims[1], pair(&dims[2..], 1), &strides[2..]);
    let (down, right) = (if steps.len() == 2 { steps[0] } else { 0 }, steps.last().copied().unwrap_or(0));
    let at = |index: usize, step: isize| index as isize * step;
    let (vector, dot) = if group > 1 { (LANES, dot) } else { (channels.max(1), 1) };
    for first in (0..channels).step_by(vector) {
        for (ky, j) in (0..kernel[0]).flat_map(|ky| (0..group).step_by(dot).map(move |j| (ky, j))) {
            for kx in 0..kernel[1] {
                let source = from.wrapping_offset(at(ky, down) + at(kx, right));
                for (c, k) in (first..first + vector).flat_map(|c| (0..dot).map(move |k| (c, k))) {
                    let from = source.wrapping_offset(at(j + k, strides[1]) + at(c, strides[0]));
                    let is_there = c < channels && j + k < group;
                    // SAFETY: the caller's promise.
                    unsafe {
                        *to = if is_there { *from } else { T::default() };
                        to = to.add(1);
                    }
                }
            }
        }
    }
}
