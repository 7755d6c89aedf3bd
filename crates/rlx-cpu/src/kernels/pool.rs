//! Pooling of channels-last images of f32, f16 or bf16, and the largest of bytes, over one or two spatial dimensions, some
//! [lines](super::pool_lines) at a time. Where the image or the result is planes, [`pool_planes`](super::pool_planes) has another way. All
//! other forms go to [`conv_pool_generic`](super::conv_pool_generic).

use std::ops::Range;

use rlx_ir::op::{DataFormat, PoolKind};
use rlx_ir::{DType, Graph, Node, Op, Result, Shape};
use rlx_opt::Claim;

use super::bands::{self, LineForm, LineWindow, Part, PartOf, Typed};
use super::conv::planes::turn;
use super::integer::is_byte;
use super::matmul::is_packed;
use super::pool_lines::{Largest, PoolPass, Windows};
use super::{
    BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, conv_pool_generic, mismatch, no_kernel,
    packed_type,
    pool_planes::{self, Way},
};
use crate::isa::Isa;
use crate::layout::{At, Bound};

/// Whether a pooling takes the route of this module.
pub(crate) fn is_fast(op: &Op, x: &Shape) -> bool {
    let Op::Pool { format: DataFormat::ChannelsLast, kind, .. } = op else { return false };
    let bytes = is_byte(x.dtype()) && *kind == PoolKind::Max;
    (bytes || is_packed(x.dtype())) && x.rank() <= 4
}

/// Whether there is a kernel for this form.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let x = graph.shape(node.inputs[0]);
    if is_fast(&node.op, x) {
        return Claim::Native;
    }
    conv_pool_generic::claim(node, graph)
}

/// The kernel of a pooling.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let node = cx.node();
    if !is_fast(&node.op, cx.module.graph.shape(node.inputs[0])) {
        return conv_pool_generic::compile(cx);
    }
    let op = &node.op;
    let Op::Pool { kind, kernel, strides, pads, dilations, count_include_pad, .. } = op else {
        return Err(no_kernel(op, "it is no pooling"));
    };
    let pair = |v: &[usize], fill: usize| match *v {
        [a, b] => [a, b],
        [b] => [fill, b],
        _ => [fill, fill],
    };
    let (before, after) = pads.split_at(pads.len() / 2);
    Ok(Box::new(Pool {
        dtype: node.shape.dtype(),
        windows: Windows {
            largest: *kind == PoolKind::Max,
            count_pad: *count_include_pad,
            kernel: pair(kernel, 1),
            stride: pair(strides, 1),
            dilation: pair(dilations, 1),
            before: pair(before, 0),
            after: pair(after, 0),
        },
        shape: None,
        way: None,
        generic: conv_pool_generic::Pool::of(op, node.shape.dtype()),
        by_definition: false,
    }))
}

/// A bound pooling.
#[derive(Debug, Clone)]
struct Pool {
    dtype: DType,
    windows: Windows,
    shape: Option<Numbers>,
    /// How it is computed where an end is planes.
    way: Option<Way>,
    /// What computes planes that there is no way for: those of bytes, and those under very large windows; and whether it does.
    generic: Option<conv_pool_generic::Pool>,
    by_definition: bool,
}

/// Images as `[n, h, w, c]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) x: At,
    pub(super) y: At,
    pub(super) batch: usize,
    pub(super) size: [usize; 2],
    pub(super) out: [usize; 2],
    pub(super) channels: usize,
    pub(super) worth: bool,
}

/// Dimensions of an image.
fn image(b: &Bound) -> Result<[usize; 4]> {
    match *b.dims() {
        [n, h, w, c] => Ok([n, h, w, c]),
        [n, w, c] => Ok([n, 1, w, c]),
        _ => Err(mismatch(format!("pooling over {:?}", b.dims()))),
    }
}

impl StepKernel for Pool {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let ([batch, h, w, channels], [n, oh, ow, c]) = (image(&cx.inputs[0])?, image(&cx.outputs[0])?);
        if n != batch || c != channels {
            return Err(mismatch(format!(
                "pooling of {:?} to {:?}",
                cx.inputs[0].dims(),
                cx.outputs[0].dims()
            )));
        }
        let taps = self.windows.kernel[0] as f64 * self.windows.kernel[1] as f64;
        let nanos = (batch * oh * ow * channels) as f64 * taps * 0.05;
        let shape = Numbers {
            x: cx.inputs[0].at,
            y: cx.outputs[0].at,
            batch,
            size: [h, w],
            out: [oh, ow],
            channels,
            worth: nanos > WORTH_NANOS,
        };
        self.shape = Some(shape);
        let packed = is_packed(self.dtype);
        let of = |b: &Bound| pool_planes::planes_of(b, packed);
        let ends = [of(&cx.inputs[0])?, of(&cx.outputs[0])?];
        self.way =
            Way::new(&self.windows, &shape, ends).filter(|way| packed || matches!(way, Way::Before(_)));
        self.by_definition = ends != [None; 2] && self.way.is_none();
        if let (Some(generic), true) = (&mut self.generic, self.by_definition) {
            return generic.bind(cx);
        }
        let scratch = self.way.map_or(0, |way| way.scratch_bytes(&shape, self.dtype.size_bytes()));
        Ok(Needs { thread_scratch: scratch, ..Needs::time(nanos) })
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(s) = self.shape else { return Err(mismatch("a step that was not bound")) };
        if let (Some(generic), true) = (&self.generic, self.by_definition) {
            // SAFETY: the caller's promise.
            return unsafe { generic.run(cx) };
        }
        if let Some(way @ (Way::Along(..) | Way::Behind(..))) = &self.way {
            // SAFETY: the caller's promise; the scratch was asked for when the step was bound.
            packed_type!(self.dtype, T => unsafe { pool_planes::run::<T>(cx, &self.windows, &s, way) }, _ => {});
            return Ok(());
        }
        packed_type!(
            self.dtype,
            T => self.each_line(cx, s, &|isa, pass: PoolPass<T>, [lines, columns]| {
                // SAFETY: the caller's promise.
                unsafe { pass.run(isa, lines, columns) }
            }),
            _ => match self.dtype {
                DType::I8 => self.each_line(cx, s, &|isa, pass, [lines, columns]| {
                    isa.run(Largest { pass, lines, columns, least: i8::MIN });
                }),
                DType::U8 => self.each_line(cx, s, &|isa, pass, [lines, columns]| {
                    isa.run(Largest { pass, lines, columns, least: u8::MIN });
                }),
                other => return Err(mismatch(format!("pooling of {other}"))),
            }
        );
        Ok(())
    }

    fn lines(&self) -> Option<LineForm> {
        let of_rows = self.way.is_none() && !self.by_definition && is_packed(self.dtype);
        let s = self.shape.as_ref().filter(|_| of_rows)?;
        let (axis, w) = (bands::axis(s.size, s.out), &self.windows);
        let pixel = s.channels * self.dtype.size_bytes();
        Some(LineForm {
            images: s.batch,
            lines: [s.size[axis], s.out[axis]],
            bytes: [s.size[1 - axis] * pixel, s.out[1 - axis] * pixel],
            takes_lines: true,
            is_dense: true,
            window: LineWindow {
                kernel: w.kernel[axis],
                stride: w.stride[axis],
                dilation: w.dilation[axis],
                before: w.before[axis],
            },
            weights: 0,
            x: s.x,
            y: s.y,
        })
    }

    fn part(&self, cx: &RunCx<'_, '_>) -> Option<Part> {
        let s = self.shape.as_ref()?;
        packed_type!(
            self.dtype,
            T => {
                let pass = PoolPass::<T>::new(&self.windows, s, (cx.ptr::<T>(s.x).cast_const(), cx.ptr(s.y)));
                let axis = bands::axis(s.size, s.out);
                let pass = if axis == 1 { pass.turned() } else { pass };
                Some(T::part(PartOf::Pool(pass, s.out[1 - axis])))
            },
            _ => None
        )
    }
}

/// Computes pixels of a line of the result: the lines of its image, and the columns.
type RunLine<'a, T> = &'a (dyn Fn(Isa, PoolPass<T>, [Range<usize>; 2]) + Sync);

impl Pool {
    fn each_line<T: Copy>(&self, cx: &mut RunCx<'_, '_>, s: Numbers, run: RunLine<'_, T>) {
        let (x, y, isa) = (cx.shared::<T>(s.x), cx.shared::<T>(s.y), cx.isa);
        let ([lines, width], c) = (s.out, s.channels);
        let planes = self.way.and_then(|way| way.behind_lines());
        // What has one spatial dimension is a single line.
        let most = cx.share(s.worth, s.batch * lines, width, width, 1).max(1);
        let pieces = width.div_ceil(most);
        cx.parallel(s.worth, s.batch * lines * pieces, &|range, scratch| {
            for unit in range {
                // The image is dense (checked when bound), and so is the result, or it is planes; its pieces are disjoint.
                let (line, first) = (unit / pieces, unit % pieces * most);
                let (image, row, columns) = (line / lines, line % lines, first..width.min(first + most));
                let x = x.get().wrapping_add(image * s.size[0] * s.size[1] * c).cast_const();
                let run = |y| {
                    run(isa, PoolPass::new(&self.windows, &s, (x, y)), [row..row + 1, columns.clone()]);
                };
                let Some([of_image, plane]) = planes else {
                    run(y.get().wrapping_add((line * width + first) * c));
                    continue;
                };
                let (turned, count) = (scratch.cast::<T>(), columns.len());
                run(turned);
                let to = y.get().wrapping_add(image * of_image + row * width + first);
                // SAFETY: the scratch has a line, and the planes have its place.
                unsafe { turn(isa, (turned.cast_const(), c), (to, plane), c, count) };
            }
        });
    }
}
