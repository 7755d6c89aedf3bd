//! Pooling of channels-last images of f32, f16 or bf16, and the largest of bytes, over one or two spatial dimensions: channels
//! run in vectors, bytes in vectors of bytes. Where the image or the result is planes, [`pool_planes`](super::pool_planes) has another way. All
//! other forms go to [`conv_pool_generic`](super::conv_pool_generic).

use std::ops::Range;

use rlx_ir::op::{DataFormat, PoolKind};
use rlx_ir::{DType, Graph, Node, Op, Result, Shape};
use rlx_opt::Claim;

use super::conv::planes::turn;
use super::integer::is_byte;
use super::matmul::is_packed;
use super::{
    BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, conv_pool_generic, mismatch, no_kernel,
    packed_type,
    pool_planes::{self, Way},
};
use crate::gemm::Packed;
use crate::isa::{Isa, Kernel};
use crate::layout::{At, Bound};
use crate::simd::{LANES, Simd};

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
        largest: *kind == PoolKind::Max,
        count_pad: *count_include_pad,
        kernel: pair(kernel, 1),
        stride: pair(strides, 1),
        dilation: pair(dilations, 1),
        before: pair(before, 0),
        after: pair(after, 0),
        shape: None,
        way: None,
        generic: conv_pool_generic::Pool::of(op, node.shape.dtype()),
        by_definition: false,
    }))
}

/// A bound pooling.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    dtype: DType,
    pub(super) largest: bool,
    pub(super) count_pad: bool,
    pub(super) kernel: [usize; 2],
    pub(super) stride: [usize; 2],
    pub(super) dilation: [usize; 2],
    pub(super) before: [usize; 2],
    after: [usize; 2],
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
        let taps = self.kernel[0] as f64 * self.kernel[1] as f64;
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
        self.way = Way::new(self, &shape, ends).filter(|way| packed || matches!(way, Way::Before(_)));
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
            packed_type!(self.dtype, T => unsafe { pool_planes::run::<T>(cx, self, &s, way) }, _ => {});
            return Ok(());
        }
        packed_type!(
            self.dtype,
            T => self.each_line(cx, s, &|isa, line: Line<'_, T>| isa.run(line)),
            _ => match self.dtype {
                DType::I8 => self.each_line(cx, s, &|isa, line| isa.run(Largest { line, least: i8::MIN })),
                DType::U8 => self.each_line(cx, s, &|isa, line| isa.run(Largest { line, least: u8::MIN })),
                other => return Err(mismatch(format!("pooling of {other}"))),
            }
        );
        Ok(())
    }
}

impl Pool {
    fn each_line<T: Copy>(
        &self,
        cx: &mut RunCx<'_, '_>,
        s: Numbers,
        run: &(dyn Fn(Isa, Line<'_, T>) + Sync),
    ) {
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
                let Some([of_image, plane]) = planes else {
                    let y = y.get().wrapping_add((line * width + first) * c);
                    run(isa, Line { pool: self, s: &s, row, columns, x, y });
                    continue;
                };
                let (turned, count) = (scratch.cast::<T>(), columns.len());
                run(isa, Line { pool: self, s: &s, row, columns, x, y: turned });
                let to = y.get().wrapping_add(image * of_image + row * width + first);
                // SAFETY: the scratch has a line, and the planes have its place.
                unsafe { turn(isa, (turned.cast_const(), c), (to, plane), c, count) };
            }
        });
    }
}

/// Some neighbouring pixels of a line of the result.
#[derive(Clone)]
struct Line<'a, T> {
    pool: &'a Pool,
    s: &'a Numbers,
    row: usize,
    columns: Range<usize>,
    /// The image.
    x: *const T,
    /// The first of the pixels.
    y: *mut T,
}

/// The taps of a window that are within `0..n`, and how many are within the padded input.
pub(super) fn taps(pool: &Pool, axis: usize, out: usize, n: usize) -> (Range<usize>, usize) {
    let (step, dilation, before) = (pool.stride[axis], pool.dilation[axis], pool.before[axis]);
    let start = out * step;
    // A division takes as long as a vector of windows does.
    let taps = |n: usize| if dilation == 1 { n } else { n.div_ceil(dilation) };
    let below = taps(before.saturating_sub(start));
    let inside = |limit: usize| taps(limit.saturating_sub(start)).min(pool.kernel[axis]);
    let end = inside(n + before);
    (below.min(end)..end, inside(n + before + pool.after[axis]))
}

impl<T: Packed> Kernel for Line<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (pool, s) = (self.pool, self.s);
        let c = s.channels;
        let (rows, rows_padded) = taps(pool, 0, self.row, s.size[0]);
        for ox in self.columns.clone() {
            let (columns, columns_padded) = taps(pool, 1, ox, s.size[1]);
            let count =
                if pool.count_pad { rows_padded * columns_padded } else { rows.len() * columns.len() };
            let window = (&rows, &columns, simd.splat(count.max(1) as f32));
            let mut i = 0;
            // SAFETY: the taps are pixels of the image, the line of the result has this one, and what is pooled is within its channels.
            unsafe {
                // Two vectors of bf16 take little longer than one. (Of other types the code is not worth its room.)
                while const { size_of::<T>() == 2 } && i + 2 * LANES <= c {
                    self.channels::<S, 2>(simd, &window, ox, i, LANES);
                    i += 2 * LANES;
                }
                while i < c {
                    self.channels::<S, 1>(simd, &window, ox, i, LANES.min(c - i));
                    i += LANES;
                }
            }
        }
    }
}

impl<T: Packed> Line<'_, T> {
    /// `V` vectors, one or two, of `n` channels each, from the `i`-th on, of pixel `ox` of the result; two are of whole vectors. A window is its taps and
    /// what the sum of an average is divided by.
    ///
    /// # Safety
    /// The taps must be pixels of the image, `ox` one of the result's line, and the vectors within their channels.
    #[inline(always)]
    unsafe fn channels<S: Simd, const V: usize>(
        &self,
        s: S,
        &(rows, columns, divisor): &(&Range<usize>, &Range<usize>, S::F),
        ox: usize,
        i: usize,
        n: usize,
    ) {
        let (pool, c, width) = (self.pool, self.s.channels, self.s.size[1]);
        let mut acc = [s.splat(if pool.largest { f32::NEG_INFINITY } else { 0.0 }); V];
        for kx in columns.clone() {
            let x = ox * pool.stride[1] + kx * pool.dilation[1] - pool.before[1];
            let mut line = acc;
            for ky in rows.clone() {
                let y = self.row * pool.stride[0] + ky * pool.dilation[0] - pool.before[0];
                // SAFETY: the caller's promise.
                let tap = unsafe { load::<S, T, V>(s, self.x.add((y * width + x) * c + i), n) };
                for v in 0..V {
                    line[v] = match (pool.largest, ky == rows.start) {
                        (true, _) => s.max(tap[v], line[v]),
                        // The order of planes, whose lines are joined before their columns.
                        (false, true) => tap[v],
                        (false, false) => s.add(line[v], tap[v]),
                    };
                }
            }
            for v in 0..V {
                acc[v] = if pool.largest || rows.is_empty() { line[v] } else { s.add(acc[v], line[v]) };
            }
        }
        let to = self.y.wrapping_add((ox - self.columns.start) * c + i);
        if !pool.largest {
            for acc in &mut acc {
                *acc = s.div(*acc, divisor);
            }
        }
        // SAFETY: the caller's promise.
        unsafe {
            match acc[..] {
                [a, b] => T::store_two(s, to, [a, b]),
                _ => T::store(s, to, n, acc[0]),
            }
        }
    }
}

/// `V` vectors, one or two, of `n` elements each; two are of whole vectors, in the order of [`Packed::load_two`].
///
/// # Safety
/// They must be readable.
#[inline(always)]
unsafe fn load<S: Simd, T: Packed, const V: usize>(s: S, from: *const T, n: usize) -> [S::F; V] {
    let mut x = [s.zero(); V];
    // SAFETY: the caller's promise.
    unsafe {
        match &mut x[..] {
            [a, b] => [*a, *b] = T::load_two(s, from),
            x => x[0] = T::load(s, from, n),
        }
    }
    x
}

/// One line of the largest bytes.
struct Largest<'a, T> {
    line: Line<'a, T>,
    least: T,
}

impl<T: Copy + Ord> Kernel for Largest<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Line { pool, s, row, columns: ref pixels, .. } = self.line;
        let c = s.channels;
        let rows = taps(pool, 0, row, s.size[0]).0;
        for ox in pixels.clone() {
            let columns = taps(pool, 1, ox, s.size[1]).0;
            let mut i = 0;
            while i < c {
                // SAFETY: the taps are pixels of the image, the line of the result has this one, and i + n ≤ c.
                i += unsafe {
                    match c - i {
                        64.. => self.channels::<64>((&rows, &columns), ox, i),
                        16.. => self.channels::<16>((&rows, &columns), ox, i),
                        _ => self.channels::<1>((&rows, &columns), ox, i),
                    }
                };
            }
        }
    }
}

impl<T: Copy + Ord> Largest<'_, T> {
    /// `N` channels from the `i`-th on of pixel `ox` of the result; how many that are.
    ///
    /// # Safety
    /// The taps must be pixels of the image, `ox` one of the result's line, and `i + N` no more than their channels.
    #[inline(always)]
    unsafe fn channels<const N: usize>(
        &self,
        (rows, columns): (&Range<usize>, &Range<usize>),
        ox: usize,
        i: usize,
    ) -> usize {
        let Line { pool, s, row, columns: ref pixels, x, y } = self.line;
        let mut largest = [self.least; N];
        for ky in rows.clone() {
            let line = row * pool.stride[0] + ky * pool.dilation[0] - pool.before[0];
            for kx in columns.clone() {
                let pixel = ox * pool.stride[1] + kx * pool.dilation[1] - pool.before[1];
                let from = x.wrapping_add((line * s.size[1] + pixel) * s.channels + i).cast::<[T; N]>();
                // SAFETY: the caller's promise; an array is aligned as its elements are.
                let tap = unsafe { from.read() };
                for n in 0..N {
                    largest[n] = largest[n].max(tap[n]);
                }
            }
        }
        // SAFETY: the caller's promise.
        unsafe { y.wrapping_add((ox - pixels.start) * s.channels + i).cast::<[T; N]>().write(largest) };
        N
    }
}
