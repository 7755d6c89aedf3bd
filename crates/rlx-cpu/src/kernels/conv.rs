//! Convolution of channels-last images or volumes of f32, f16 or bf16 as a matmul: the rows are the windows, read where they
//! lie ([`ConvRows`]), the columns the output channels.
//!
//! * A kernel of one pixel is a plain matmul.
//! * With few input channels a window's line (kernel width × channels) is contiguous once the image has its
//!   border, so the image is copied into scratch with zeros around it, and a line is one tap.
//! * Groups are matmuls of their own, where they are not small ([`grouped`]).
//! * Windows of 3 × 3 are computed by Winograd's algorithm where bits may change and it is faster ([`winograd`]).
//!
//! Weights known before the run are packed by the init program, others during the step.

mod border;
mod depthwise_integer;
pub(crate) mod integer;
pub(crate) mod winograd;

use std::sync::Arc;

use rlx_ir::op::{DataFormat, PackFormat};
use rlx_ir::{DType, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::bands::{LineForm, LineWindow, Part, PartOf, Typed};
use super::epilogue::Tail;
use super::grouped::{self, is_grouped};
use super::matmul::{is_packed, packed_bytes, run_gemm};
use super::pack::pack_conv;
use super::region::Anchored;
use super::{
    BindCx, CompileCx, Needs, RunCx, Shared, StepKernel, Upcoming, WORTH_NANOS, conv_pool_generic, mismatch,
    no_kernel, packed_type, wrong_format,
};
use crate::alloc::Buffer;
use crate::formats;
use crate::gemm::{
    self, Ahead, Bias, ConvRows, Epilogue, Gemm, PANEL, Packed, Rows, Strided, TileSizes, WinogradTile,
};
use crate::layout::{At, Bound, Layout};
use crate::memory::allocate;

/// With at most this many input channels, images are copied with their border.
const FEW_CHANNELS: usize = 8;

/// Multiply-adds of f32 in a nanosecond, roughly.
const F32_PER_NANO: f64 = 40.0;

/// Whether a convolution takes the route of this module.
pub(crate) fn is_fast(op: &Op, x: &rlx_ir::Shape) -> bool {
    let Op::Conv { groups, format, .. } = op else { return false };
    *format == DataFormat::ChannelsLast
        && is_packed(x.dtype())
        && x.rank() <= 5
        && !is_depthwise_of(*groups, x)
}

/// Whether a channels-last image has one channel in each of several groups.
fn is_depthwise_of(groups: usize, x: &rlx_ir::Shape) -> bool {
    groups > 1 && x.dims().last().and_then(|d| d.as_static()) == Some(groups)
}

/// Whether a convolution has a kernel of f32 vectors, which may anchor a region.
pub(crate) fn anchors(node: &Node, graph: &Graph) -> bool {
    is_fast(&node.op, graph.shape(node.inputs[0])) || is_grouped(node, graph)
}

/// Whether there is a kernel for this form.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    if anchors(node, graph) { Claim::Native } else { conv_pool_generic::claim(node, graph) }
}

/// The format a convolution wants its weights in.
pub(crate) fn pack_format(node: &Node, input: usize, graph: &Graph) -> Option<PackFormat> {
    if let Some(format) = grouped::pack_format(node, input, graph) {
        return Some(format);
    }
    let Op::Conv { groups, .. } = node.op else { return None };
    let fits = input == 1 && has_whole_panels(groups, &node.shape);
    (fits && is_fast(&node.op, graph.shape(*node.inputs.first()?))).then_some(formats::CONV_WEIGHTS)
}

/// Whether the filters of each group fill packed panels, so that those of all groups are packed as if they were one.
fn has_whole_panels(groups: usize, result: &rlx_ir::Shape) -> bool {
    let filters = || result.dims().last().and_then(|d| d.as_static());
    groups == 1 || groups.checked_mul(PANEL).zip(filters()).is_some_and(|(all, n)| n.is_multiple_of(all))
}

/// The kernel of a convolution of its own.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let node = cx.node();
    if is_grouped(node, &cx.module.graph) {
        let inputs = (0..node.inputs.len()).collect();
        return grouped::boxed(&node.op, node.shape.dtype(), inputs, None);
    }
    if !is_fast(&node.op, cx.module.graph.shape(node.inputs[0])) {
        return conv_pool_generic::compile(cx);
    }
    let inputs = (0..node.inputs.len()).collect();
    Conv::boxed(&node.op, node.shape.dtype(), inputs, Tail::NONE)
}

/// The kernel of a convolution with the region behind it.
pub(crate) fn anchored(anchor: &Node, body: &Graph, region: Anchored) -> Result<Box<dyn StepKernel>> {
    let (op, inputs) = (&anchor.op, region.inputs.clone());
    if is_grouped(anchor, body) {
        return grouped::boxed(op, anchor.shape.dtype(), inputs, Some(region));
    }
    Conv::boxed(op, anchor.shape.dtype(), inputs, Tail::of(region))
}

/// Numbers of the window along frames, lines and pixels; an image has one frame, a row of pixels one line.
#[derive(Debug, Clone, Copy)]
struct Window {
    stride: [usize; 3],
    dilation: [usize; 3],
    /// In front, above and at the left.
    before: [usize; 3],
    after: [usize; 3],
}

impl Window {
    /// Whether a kernel of these frames, lines and pixels is 3 × 3 within a frame, and goes over all of its positions.
    fn is_dense_3x3(&self, kernel: [usize; 3]) -> bool {
        let dense = |of: &[usize; 3]| of[1..] == [1; 2];
        kernel[0] > 0 && kernel[1..] == [3; 2] && dense(&self.stride) && dense(&self.dilation)
    }
}

/// Numbers for frames, lines, pixels; `fill` for those that there are not.
fn triple(v: &[usize], fill: usize) -> [usize; 3] {
    let mut all = [fill; 3];
    let given = v.len().min(3);
    all[3 - given..].copy_from_slice(&v[v.len() - given..]);
    all
}

/// How the rows of the matmul are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    /// A kernel of one pixel: rows of a matrix, this far apart.
    Matmul(isize),
    /// Windows of the image.
    Windows,
    /// Windows of a copy with its border.
    Bordered,
}

/// The numbers of a bound convolution.
#[derive(Debug, Clone, Copy)]
struct Shape {
    x: At,
    w: At,
    bias: Option<At>,
    y: At,
    batch: usize,
    size: [usize; 3],
    out: [usize; 3],
    kernel: [usize; 3],
    /// Input and output channels of a group.
    channels: usize,
    filters: usize,
    /// Elements to the next volume, frame, line, pixel.
    strides: [usize; 4],
    weights: Layout,
    c_stride: usize,
    route: Route,
    /// Winograd's algorithm instead, which the weights are packed for.
    winograd: Option<WinogradTile>,
    packed: bool,
    worth: bool,
    /// Bytes of shared scratch: the anchor's result, the bordered images, the packed weights.
    parts: [usize; 3],
}

/// A bound convolution.
#[derive(Clone)]
struct Conv {
    dtype: DType,
    inputs: Vec<usize>,
    groups: usize,
    window: Window,
    tail: Tail,
    zeros: Option<Arc<Buffer>>,
    shape: Option<Shape>,
    tile_sizes: TileSizes,
    next: Upcoming,
}

impl Conv {
    fn boxed(op: &Op, dtype: DType, inputs: Vec<usize>, tail: Tail) -> Result<Box<dyn StepKernel>> {
        Ok(Box::new(Conv::of(op, dtype, inputs, tail)?))
    }

    fn of(op: &Op, dtype: DType, inputs: Vec<usize>, tail: Tail) -> Result<Conv> {
        let (Op::Conv { strides, pads, dilations, groups, .. }
        | Op::ConvInteger { strides, pads, dilations, groups, .. }) = op
        else {
            return Err(no_kernel(op, "it is no convolution"));
        };
        let (before, after) = pads.split_at(pads.len() / 2);
        let window = Window {
            stride: triple(strides, 1),
            dilation: triple(dilations, 1),
            before: triple(before, 0),
            after: triple(after, 0),
        };
        let groups = *groups;
        Ok(Conv {
            dtype,
            inputs,
            groups,
            window,
            tail,
            zeros: None,
            shape: None,
            tile_sizes: TileSizes::DEFAULT,
            next: None,
        })
    }

    /// Dimensions and strides of the volume as `[n, d, h, w, c]`.
    fn volume(x: &Bound) -> Result<([usize; 5], [usize; 4])> {
        let shape_mismatch = || mismatch(format!("a convolution over {:?}", x.dims()));
        let (d, s) = (x.layout.dims(), x.layout.strides());
        let (dims, strides) = match (d, s) {
            (&[n, d, h, w, c], &[sn, sd, sh, sw, _]) => ([n, d, h, w, c], [sn, sd, sh, sw]),
            (&[n, h, w, c], &[sn, sh, sw, _]) => ([n, 1, h, w, c], [sn, 0, sh, sw]),
            (&[n, w, c], &[sn, sw, _]) => ([n, 1, 1, w, c], [sn, 0, 0, sw]),
            _ => return Err(shape_mismatch()),
        };
        let mut unsigned = [0; 4];
        for (u, s) in unsigned.iter_mut().zip(strides) {
            *u = usize::try_from(s).map_err(|_| shape_mismatch())?;
        }
        Ok((dims, unsigned))
    }

    fn shape(&self, cx: &BindCx<'_>, result: &Bound) -> Result<Shape> {
        let (x, w) = (&cx.inputs[self.inputs[0]], &cx.inputs[self.inputs[1]]);
        let ([batch, frames, h, width, c], strides) = Self::volume(x)?;
        let ([_, od, oh, ow, o], _) = Self::volume(result)?;
        let (size, out) = ([frames, h, width], [od, oh, ow]);
        let wd = w.layout.dims();
        let (kernel, g) = (triple(&wd[2..], 1), self.groups);
        let shape_mismatch = || mismatch(format!("a convolution of {:?} with weights {wd:?}", x.dims()));
        if wd[0] != o || wd[1] * g != c || o % g != 0 || result.dims()[0] != batch {
            return Err(shape_mismatch());
        }
        for (i, (size, out)) in size.into_iter().zip(out).enumerate() {
            let reach = kernel[i].saturating_sub(1) * self.window.dilation[i] + 1;
            let padded = size + self.window.before[i] + self.window.after[i];
            if kernel[i] == 0 || padded < reach || (padded - reach) / self.window.stride[i] + 1 != out {
                return Err(shape_mismatch());
            }
        }
        let rows = result.layout.range(0, result.layout.rank() - 1);
        let (_, c_stride) = rows.flat().ok_or_else(shape_mismatch)?;
        let bias = self.inputs.get(2).map(|&i| &cx.inputs[i]);
        if bias.is_some_and(|b| b.dims() != [o] || !b.layout.is_dense()) {
            return Err(shape_mismatch());
        }
        let winograd = self.winograd(cx, kernel)?;
        let packed = winograd.is_some() || cx.is_packed(self.inputs[1], formats::CONV_WEIGHTS)?;
        let c_stride = if rows.elements() == 1 { o as isize } else { c_stride };
        Ok(Shape {
            x: x.at,
            w: w.at,
            bias: bias.map(|b| b.at),
            y: result.at,
            batch,
            size,
            out,
            kernel,
            channels: c / g,
            filters: o / g,
            strides,
            weights: w.layout,
            c_stride: usize::try_from(c_stride).map_err(|_| shape_mismatch())?,
            route: if winograd.is_some() { Route::Windows } else { self.route(x, kernel, c / g) },
            winograd,
            packed,
            worth: false,
            parts: [0; 3],
        })
    }

    /// Winograd's algorithm, where the weights are packed for it.
    fn winograd(&self, cx: &BindCx<'_>, kernel: [usize; 3]) -> Result<Option<WinogradTile>> {
        let Some(format) = cx.formats[self.inputs[1]] else { return Ok(None) };
        let tile = formats::winograd_tile(format);
        let fits = self.dtype == DType::F32 && self.groups == 1 && self.window.is_dense_3x3(kernel);
        if tile.is_some() && !fits { Err(wrong_format(format)) } else { Ok(tile) }
    }

    fn route(&self, x: &Bound, kernel: [usize; 3], channels: usize) -> Route {
        let w = &self.window;
        let zero = [0; 3];
        let pointwise = kernel == [1; 3] && w.stride == [1; 3] && w.before == zero && w.after == zero;
        if let (true, Some((_, stride))) = (pointwise, x.layout.range(0, x.layout.rank() - 1).flat()) {
            return Route::Matmul(stride);
        }
        let few = channels <= FEW_CHANNELS && self.groups == 1 && kernel[2] > 1;
        if few && w.dilation[2] == 1 { Route::Bordered } else { Route::Windows }
    }
}

impl StepKernel for Conv {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let flat = cx.outputs[0].layout.range(0, cx.outputs[0].layout.rank().saturating_sub(1)).flat();
        let (result, mut needs) = self.tail.bind(cx, self.dtype, &|_| flat.is_some())?;
        let mut s = self.shape(cx, &result)?;
        let taps: usize = s.kernel.iter().product();
        let depth = taps * s.channels;
        let large = || mismatch("a convolution that is too large");
        s.parts[0] = self.tail.scratch_bytes();
        if s.route == Route::Bordered {
            let [h, w] = self.bordered(&s);
            let pixel = self.bordered_pixel(&s) * self.dtype.size_bytes();
            let elements = s.batch.checked_mul(s.size[0] * h * w).and_then(|n| n.checked_mul(pixel));
            s.parts[1] = elements.ok_or_else(large)?.next_multiple_of(64);
        }
        if !s.packed {
            let all = self.group_bytes(&s).and_then(|n| n.checked_mul(self.groups));
            s.parts[2] = all.ok_or_else(large)?;
        }
        needs.shared_scratch = s.parts.iter().sum();
        let rows = s.batch * s.out.iter().product::<usize>();
        let mut nanos = rows as f64 * (depth * s.filters * self.groups) as f64 / F32_PER_NANO;
        if let Some(tile) = s.winograd {
            let own = self.winograd_needs(&s, tile)?;
            nanos = own.nanos;
            needs.thread_scratch = needs.thread_scratch.max(own.thread_scratch);
        }
        s.worth = nanos > WORTH_NANOS;
        needs.nanos += nanos;
        // What a tap reads that is outside.
        let tap = match s.route {
            Route::Bordered => s.kernel[2] * self.bordered_pixel(&s),
            _ => s.channels,
        };
        let zeros = tap * self.dtype.size_bytes();
        if self.zeros.as_ref().is_none_or(|z| z.len() < zeros) {
            self.zeros = Some(Arc::new(allocate(zeros, "the padding of a convolution")?));
        }
        self.shape = Some(s);
        Ok(needs)
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let (Some(s), Some(zeros)) = (&self.shape, &self.zeros) else {
            return Err(mismatch("a step that was not bound"));
        };
        // SAFETY: the caller's promise, and scratch was asked for when the step was bound.
        unsafe {
            match s.winograd {
                Some(tile) => self.run_winograd(cx, s, tile, zeros.as_ptr().cast()),
                None => packed_type!(
                    self.dtype,
                    T => self.run_as::<T>(cx, s, zeros.as_ptr().cast()),
                    _ => return Err(mismatch(format!("a convolution of {}", self.dtype)))
                ),
            }
            self.tail.finish(cx);
        }
        Ok(())
    }

    fn lines(&self) -> Option<LineForm> {
        let s = self.shape.as_ref()?;
        let row = match s.route {
            Route::Matmul(row) => row,
            Route::Windows | Route::Bordered => return None,
        };
        let alone = s.packed && s.winograd.is_none() && self.groups == 1 && s.out[0] == 1;
        if !alone || !self.tail.is_epilogue() {
            return None;
        }
        let size = self.dtype.size_bytes();
        Some(LineForm {
            images: s.batch,
            lines: [s.out[1]; 2],
            bytes: [s.channels, s.filters].map(|channels| s.out[2] * channels * size),
            dense: [row == s.channels as isize, s.c_stride == s.filters],
            window: LineWindow::ONE,
            weights: self.group_bytes(s)?,
            x: s.x,
            y: s.y,
        })
    }

    fn part(&self, cx: &RunCx<'_, '_>) -> Option<Part> {
        let s = self.shape.as_ref()?;
        let Route::Matmul(row_stride) = s.route else { return None };
        packed_type!(
            self.dtype,
            T => {
                let rows = Strided { ptr: cx.ptr::<T>(s.x).cast_const(), row_stride };
                let gemm = Gemm { ahead: Ahead::Nothing, ..self.gemm(cx, s, 0, cx.ptr(s.w), rows) };
                Some(T::part(PartOf::Product(gemm, s.out[2])))
            },
            _ => None
        )
    }

    fn weights(&self) -> Upcoming {
        let s = self.shape.as_ref().filter(|s| s.packed)?;
        let depth = packed_type!(self.dtype, T => gemm::groups::<T>(s.channels), _ => s.channels);
        let taps = match s.winograd {
            Some(tile) => s.kernel[0] * tile.points(),
            None => s.kernel.iter().product(),
        };
        Some((s.w, taps * depth, gemm::panels(s.filters)))
    }

    fn set_next(&mut self, next: Upcoming) {
        self.next = next;
    }

    fn set_tile_sizes(&mut self, tile_sizes: TileSizes) {
        self.tile_sizes = tile_sizes;
    }
}

impl Conv {
    /// Elements of a pixel of the copy with its border: whole groups of the type.
    fn bordered_pixel(&self, s: &Shape) -> usize {
        packed_type!(self.dtype, T => s.channels.next_multiple_of(T::GROUP), _ => s.channels)
    }

    /// Bytes of the packed weights of one group.
    fn group_bytes(&self, s: &Shape) -> Option<usize> {
        let tap = packed_bytes(self.dtype, s.channels, s.filters)?;
        tap.checked_mul(s.kernel.iter().product())
    }

    /// # Safety
    /// As [`StepKernel::run`]; the operands must be of `T`, and `zeros` as many as there are channels.
    unsafe fn run_as<T: Packed>(&self, cx: &mut RunCx<'_, '_>, s: &Shape, zeros: *const T) {
        // SAFETY: the caller's promise.
        unsafe {
            let weights = self.weights_at::<T>(cx, s);
            if s.route == Route::Bordered {
                let zeros = [T::zero(); 2];
                self.copy_with_border::<T>(cx, s, s.parts[0], self.bordered_pixel(s), zeros);
            }
            let words = self.group_bytes(s).unwrap_or(0) / 4;
            for group in 0..self.groups {
                let b = weights.get().wrapping_add(group * words);
                self.product::<T>(cx, s, group, b, zeros);
            }
        }
    }

    /// Where the packed weights are; packs them now if no one has.
    unsafe fn weights_at<T: Packed>(&self, cx: &mut RunCx<'_, '_>, s: &Shape) -> Shared<f32> {
        if s.packed {
            return cx.shared(s.w);
        }
        let to = Shared::new(cx.shared_scratch.wrapping_add(s.parts[0] + s.parts[1]).cast::<f32>());
        let from = cx.shared::<T>(s.w);
        let (groups, panels) = (self.groups, gemm::panels(s.filters));
        let per_group = self.group_bytes(s).unwrap_or(0) / 4;
        cx.parallel(s.worth, groups * panels, &|range, _| {
            for unit in range {
                let (group, panel) = (unit / panels, unit % panels);
                let to = to.get().wrapping_add(group * per_group);
                let rows = group * s.filters..(group + 1) * s.filters;
                // SAFETY: the view is within its buffer; panels are disjoint.
                unsafe { pack_conv(from.get().cast_const(), &s.weights, rows, to, panel..panel + 1) }
            }
        });
        to
    }

    fn epilogue<T>(&self, cx: &RunCx<'_, '_>, s: &Shape, group: usize) -> Epilogue<T> {
        let mut epilogue = self.tail.epilogue::<T>(cx);
        if let Some(at) = s.bias {
            epilogue.bias = Bias::OfSum(cx.ptr(at));
        }
        if let Bias::PerColumn(p) | Bias::OfSum(p) = &mut epilogue.bias {
            *p = p.wrapping_add(group * s.filters);
        }
        if let Some(combine) = &mut epilogue.combine {
            combine.ptr = combine.ptr.wrapping_add(group * s.filters);
        }
        epilogue
    }

    /// The windows of a group's input channels.
    fn windows<T>(&self, s: &Shape, input: *const T, zeros: *const T) -> ConvRows<T> {
        ConvRows {
            input,
            zeros,
            size: s.size,
            strides: [s.strides[1], s.strides[2], s.strides[3]],
            volume_stride: s.strides[0],
            out: s.out,
            kernel: s.kernel,
            stride: self.window.stride,
            dilation: self.window.dilation,
            pad: self.window.before,
        }
    }

    /// The matmul of a group's filters with these rows.
    fn gemm<R: Rows<Element: Packed>>(
        &self,
        cx: &RunCx<'_, '_>,
        s: &Shape,
        group: usize,
        b: *const f32,
        rows: R,
    ) -> Gemm<R> {
        Gemm {
            m: s.batch * s.out.iter().product::<usize>(),
            n: s.filters,
            k: s.channels,
            rows,
            b,
            c: cx.ptr::<R::Element>(s.y).wrapping_add(group * s.filters),
            c_stride: s.c_stride,
            epilogue: self.epilogue(cx, s, group),
            tile_sizes: self.tile_sizes,
            ahead: cx.ahead(self.next),
            wide: None,
        }
    }

    unsafe fn product<T: Packed>(
        &self,
        cx: &mut RunCx<'_, '_>,
        s: &Shape,
        group: usize,
        b: *const f32,
        zeros: *const T,
    ) {
        let isa = cx.isa;
        let input = cx.ptr::<T>(s.x).wrapping_add(group * s.channels).cast_const();
        let windows = self.windows(s, input, zeros);
        // SAFETY: the caller's promise: windows are within the image or read the zeros.
        unsafe {
            match s.route {
                Route::Windows => run_gemm(cx, isa, s.worth, &self.gemm(cx, s, group, b, windows)),
                Route::Matmul(row_stride) => {
                    let rows = Strided { ptr: input, row_stride };
                    run_gemm(cx, isa, s.worth, &self.gemm(cx, s, group, b, rows));
                }
                Route::Bordered => {
                    let [h, w] = self.bordered(s);
                    let c = self.bordered_pixel(s);
                    let rows = ConvRows {
                        input: cx.shared_scratch.wrapping_add(s.parts[0]).cast(),
                        size: [s.size[0], h, w],
                        strides: [h * w * c, w * c, c],
                        volume_stride: s.size[0] * h * w * c,
                        kernel: [s.kernel[0], s.kernel[1], 1],
                        pad: [windows.pad[0], 0, 0],
                        ..windows
                    };
                    let plain = self.gemm(cx, s, group, b, rows);
                    run_gemm(cx, isa, s.worth, &Gemm { k: s.kernel[2] * c, ..plain });
                }
            }
        }
    }
}
