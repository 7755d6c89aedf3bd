//! Convolution of channels-last images or volumes of f32, f16 or bf16 as a matmul: the rows are the windows, read where they
//! lie ([`ConvRows`]), the columns the output channels.
//!
//! * A kernel of one pixel is a plain matmul.
//! * With few input channels a window's line (kernel width × channels) is contiguous once the image has its
//!   border, so the image is copied into scratch with zeros at its sides, and a line is one tap.
//! * Groups are matmuls of their own, where they are not small ([`grouped`]).
//! * Windows with a step of 1 are computed by Winograd's algorithm where bits may change and it is faster ([`winograd`]).
//! * Where the image or the result is planes (NCHW), some pixels at a time are transposed while they are in the cache ([`planes`]); where both
//!   are, nothing is: the image's columns are copied instead ([`im2col`]), or vectors run along its lines ([`direct`]).
//!
//! Weights known before the run are packed by the init program, others during the step.

mod border;
mod depthwise_integer;
mod direct;
mod im2col;
pub(crate) mod integer;
pub(super) mod planes;
mod run;
pub(crate) mod winograd;

use std::sync::Arc;

use rlx_ir::op::{DataFormat, PackFormat};
use rlx_ir::{DType, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::bands::{self, LineForm, LineWindow, Part, PartOf, Typed};
use super::epilogue::Tail;
use super::grouped::{self, is_grouped};
use super::matmul::is_packed;
use super::region::Anchored;
use super::{
    BindCx, CompileCx, Needs, RunCx, StepKernel, Upcoming, WORTH_NANOS, conv_pool_generic, mismatch,
    no_kernel, packed_type, wrong_format,
};
use crate::alloc::Buffer;
use crate::formats;
use crate::gemm::{self, Ahead, Gemm, PANEL, Strided, TileSizes, WinogradTile};
use crate::layout::{At, Bound, Layout};
use crate::memory::allocate;
use crate::window::direct::Direct;
use border::Border;
use planes::{Ends, Planes};

/// With at most this many input channels, images are copied with their border.
const FEW_CHANNELS: usize = 8;

/// Multiply-adds of f32 in a nanosecond, roughly.
const F32_PER_NANO: f64 = 40.0;

/// Bytes of images that are read or written in a nanosecond, roughly.
const BYTES_PER_NANO: f64 = 20.0;

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
    /// Whether a kernel of these frames, lines and pixels is one that Winograd's algorithm computes.
    fn is_for(&self, tile: WinogradTile, [frames, high, wide]: [usize; 3]) -> bool {
        let [_, step @ ..] = self.stride;
        let [_, dilation @ ..] = self.dilation;
        frames > 0 && tile.computes([high, wide], step, dilation)
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
    /// From planes to planes, by a matmul of the filters.
    Im2col,
    /// From planes to planes, by vectors along the lines of the result.
    Direct,
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
    /// What is planes, and transposed block by block.
    ends: Ends,
    /// What is planes, and transposed as a whole.
    whole: Ends,
    route: Route,
    /// Winograd's algorithm instead, which the weights are packed for.
    winograd: Option<WinogradTile>,
    packed: bool,
    worth: bool,
    /// Bytes of shared scratch: the anchor's result, the bordered images, the packed weights, the rows of images that are planes.
    parts: [usize; 4],
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
    direct: Option<Arc<Direct>>,
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
            direct: None,
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
        let planes = Planes::of(x);
        let rows = Bound { layout: Layout::dense(x.dims()), ..*x };
        let x = if planes.is_some() { &rows } else { x };
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
        let ends = Ends { x: planes, y: Planes::of(result) };
        let c_stride = match ends.y {
            Some(_) => o as isize,
            None => rows.flat().ok_or_else(shape_mismatch)?.1,
        };
        let bias = self.inputs.get(2).map(|&i| &cx.inputs[i]);
        if bias.is_some_and(|b| b.dims() != [o] || !b.layout.is_dense()) {
            return Err(shape_mismatch());
        }
        let winograd = self.winograd(cx, kernel)?;
        let packed = winograd.is_some() || cx.is_packed(self.inputs[1], formats::CONV_WEIGHTS)?;
        let c_stride = if rows.elements() == 1 { o as isize } else { c_stride };
        let mut shape = Shape {
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
            ends,
            whole: Ends::NONE,
            route: if winograd.is_some() { Route::Windows } else { self.route(x, kernel, c / g) },
            winograd,
            packed,
            worth: false,
            parts: [0; 4],
        };
        if self.dtype == DType::F32 && winograd.is_none() && self.tail.is_simple() {
            shape.take_direct(&self.window);
            if g == 1 {
                let others = match shape.route {
                    Route::Direct => shape.direct_cost(&self.window),
                    _ => shape.matmul_cost(&self.window),
                };
                shape.take_im2col(&self.window, others);
            }
        }
        Ok(shape)
    }

    /// Winograd's algorithm, where the weights are packed for it.
    fn winograd(&self, cx: &BindCx<'_>, kernel: [usize; 3]) -> Result<Option<WinogradTile>> {
        let Some(format) = cx.formats[self.inputs[1]] else { return Ok(None) };
        let Some(tile) = formats::winograd_tile(format) else { return Ok(None) };
        let fits = is_packed(self.dtype) && self.groups == 1 && self.window.is_for(tile, kernel);
        if fits { Ok(Some(tile)) } else { Err(wrong_format(format)) }
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
        let writes = flat.is_some() || Planes::of(&cx.outputs[0]).is_some();
        let (result, mut needs) = self.tail.bind(cx, self.dtype, &|_| writes)?;
        let mut s = self.shape(cx, &result)?;
        let large = || mismatch("a convolution that is too large");
        s.parts[0] = self.tail.scratch_bytes();
        let all = |planes: Planes| (planes.elements() * self.dtype.size_bytes()).next_multiple_of(64);
        self.direct = self.bind_direct(&s).map(Arc::new);
        s.take_whole(self.groups);
        if let Some(planes) = s.whole.y {
            s.y = At { buffer: cx.scratch, offset: 0 };
            s.parts[0] = all(planes);
        }
        if s.route == Route::Im2col {
            let elements = self.im2col_border(&s).ok_or_else(large)?;
            s.parts[1] = (elements * size_of::<f32>()).next_multiple_of(64);
        }
        if s.route == Route::Bordered {
            let [h, w] = self.bordered(&s, Border::Sides);
            let pixel = self.bordered_pixel(&s) * self.dtype.size_bytes();
            let elements = s.batch.checked_mul(s.size[0] * h * w).and_then(|n| n.checked_mul(pixel));
            s.parts[1] = elements.ok_or_else(large)?.next_multiple_of(64);
        }
        if !s.packed && s.route != Route::Direct {
            let all = self.group_bytes(&s).and_then(|n| n.checked_mul(self.groups));
            s.parts[2] = all.ok_or_else(large)?;
        }
        if let Some(planes) = s.whole.x {
            s.x = At { buffer: cx.scratch, offset: s.parts[..3].iter().sum() };
            s.parts[3] = all(planes);
        }
        let block = match s.route {
            Route::Im2col => self.im2col_scratch(&s),
            Route::Direct => self.direct.as_ref().map_or(0, |direct| direct.scratch_bytes()),
            _ => packed_type!(self.dtype, T => s.ends.scratch_bytes::<T>(), _ => 0),
        };
        needs.thread_scratch = needs.thread_scratch.max(block);
        needs.shared_scratch = s.parts.iter().sum();
        let rows = s.batch * s.out.iter().product::<usize>();
        let depth = s.kernel.iter().product::<usize>() * s.channels;
        let mut nanos = rows as f64 * (depth * s.filters * self.groups) as f64 / F32_PER_NANO;
        if let Some(tile) = s.winograd {
            let own = self.winograd_needs(&s, tile)?;
            nanos = own.nanos;
            needs.thread_scratch = needs.thread_scratch.max(own.thread_scratch);
        }
        let pixels = s.batch * s.size.iter().product::<usize>();
        let elements = (pixels * s.channels + rows * s.filters) * self.groups;
        nanos += (elements * self.dtype.size_bytes()) as f64 / BYTES_PER_NANO;
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
            match s.route {
                Route::Im2col => self.run_im2col(cx, s),
                Route::Direct => self.run_direct(cx, s),
                _ => packed_type!(
                    self.dtype,
                    T => match s.winograd {
                        Some(tile) => self.run_winograd::<T>(cx, s, tile, zeros.as_ptr().cast()),
                        None => self.run_as::<T>(cx, s, zeros.as_ptr().cast()),
                    },
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
            Route::Matmul(row) => Some(row),
            Route::Windows | Route::Bordered => None,
            Route::Im2col | Route::Direct => return None,
        };
        // A result that is planes is transposed behind the step, and one of lines that are read in a ring before, which a band has no place for.
        let of_rows = s.ends.is_none() && s.whole.y.is_none() && (row.is_none() || s.whole.x.is_none());
        let alone = s.packed && s.winograd.is_none() && self.groups == 1 && s.out[0] == 1 && s.size[0] == 1;
        if !alone || !of_rows || !self.tail.is_epilogue() {
            return None;
        }
        let (size, w) = (self.dtype.size_bytes(), &self.window);
        let ([_, before @ ..], [_, after @ ..]) = (s.size, s.out);
        let axis = bands::axis(before, after);
        let d = 1 + axis;
        Some(LineForm {
            images: s.batch,
            lines: [before[axis], after[axis]],
            bytes: [before[1 - axis] * s.channels * size, after[1 - axis] * s.filters * size],
            takes_lines: row == Some(s.channels as isize),
            is_dense: s.c_stride == s.filters,
            window: LineWindow {
                kernel: s.kernel[d],
                stride: w.stride[d],
                dilation: w.dilation[d],
                before: w.before[d],
            },
            weights: self.group_bytes(s)?,
            x: s.x,
            y: s.y,
        })
    }

    unsafe fn prepare(&self, cx: &mut RunCx<'_, '_>) {
        if let Some(s) = &self.shape {
            // SAFETY: the caller's promise; scratch was asked for when the step was bound.
            packed_type!(self.dtype, T => unsafe { self.copy_image::<T>(cx, s) }, _ => {});
        }
    }

    fn part(&self, cx: &RunCx<'_, '_>) -> Option<Part> {
        let (s, zeros) = (self.shape.as_ref()?, self.zeros.as_ref()?);
        let [_, after @ ..] = s.out;
        // Rows of the matmul in a line.
        let width = after[1 - bands::axis([s.size[1], s.size[2]], after)];
        packed_type!(
            self.dtype,
            T => Some(T::part(match s.route {
                Route::Matmul(row_stride) => {
                    let rows = Strided { ptr: cx.ptr::<T>(s.x).cast_const(), row_stride };
                    let gemm = self.gemm(cx, s, 0, cx.ptr(s.w), rows);
                    PartOf::Product(Gemm { ahead: Ahead::Nothing, ..gemm }, width)
                }
                Route::Windows | Route::Bordered => {
                    let gemm = self.of_windows(cx, s, 0, cx.ptr(s.w), zeros.as_ptr().cast::<T>());
                    PartOf::Convolution(Gemm { ahead: Ahead::Nothing, ..gemm }, width)
                }
                Route::Im2col | Route::Direct => return None,
            })),
            _ => None
        )
    }

    fn weights(&self) -> Upcoming {
        let s = self.shape.as_ref().filter(|s| s.packed)?;
        let depth = packed_type!(self.dtype, T => gemm::groups::<T>(s.channels), _ => s.channels);
        let taps = match s.winograd {
            Some(tile) => {
                s.kernel[0]
                    * tile.pieces([s.kernel[1], s.kernel[2]]).iter().product::<usize>()
                    * tile.points()
            }
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
