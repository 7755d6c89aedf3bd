//! Convolution of channels-last images (rows, volumes) of bytes with zero points, by [`ByteGemm`].
//!
//! Windows are read where they are, or in a copy with its border where finding their taps takes longer than copying; what is in the padding are
//! pixels of the zero point. The geometry is that of the float convolution, whose code it uses.

use rlx_ir::op::{DataFormat, PackFormat};
use rlx_ir::{DType, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::border::Border;
use super::{Conv, Route, Shape, Tail, depthwise_integer, has_whole_panels, is_depthwise_of};
use crate::formats;
use crate::gemm::{self, AnyRows, ByteGemm, ConvRows, Even, Strided};
use crate::kernels::integer::{PER_NANO, Zeros};
use crate::kernels::pack::pack_conv_bytes;
use crate::kernels::region::Anchored;
use crate::kernels::{
    BindCx, CompileCx, Needs, RunCx, Shared, StepKernel, Upcoming, WORTH_NANOS, mismatch, unbound,
};

/// Channels last; with one channel a group, one filter for it, too.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let Op::ConvInteger { groups, format, .. } = node.op else {
        return Claim::No("it is no ConvInteger".into());
    };
    let x = graph.shape(node.inputs[0]);
    if format != DataFormat::ChannelsLast || x.rank() > 5 {
        return Claim::No(format!(
            "bytes are convolved with channels last in up to three dimensions, not {x}"
        ));
    }
    if is_depthwise_of(groups, x) && !depthwise_integer::is_depthwise(node, graph) {
        return Claim::No(
            "bytes are convolved with one filter for each channel, of no more than 121 taps".into(),
        );
    }
    Claim::Native
}

/// Whether it is computed as a matmul, not as the sums of each channel.
pub(crate) fn is_product(node: &Node, graph: &Graph) -> bool {
    claim(node, graph).is_native() && !depthwise_integer::is_depthwise(node, graph)
}

/// The format a convolution wants its weights in.
pub(crate) fn pack_format(node: &Node, input: usize, graph: &Graph) -> Option<PackFormat> {
    if input == 1 && depthwise_integer::is_depthwise(node, graph) {
        return Some(formats::GROUPED_WEIGHTS);
    }
    let Op::ConvInteger { groups, .. } = node.op else { return None };
    let fits = input == 1 && has_whole_panels(groups, &node.shape);
    (fits && claim(node, graph).is_native()).then_some(formats::CONV_WEIGHTS)
}

/// The kernel of a convolution of its own.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    if depthwise_integer::is_depthwise(cx.node(), &cx.module.graph) {
        return depthwise_integer::boxed(&cx.node().op, vec![0, 1, 2, 3], Tail::NONE);
    }
    boxed(&cx.node().op, vec![0, 1, 2, 3], Tail::NONE)
}

/// The kernel of a convolution with the region behind it.
pub(crate) fn anchored(anchor: &Node, body: &Graph, region: Anchored) -> Result<Box<dyn StepKernel>> {
    let (op, inputs) = (&anchor.op, region.inputs.clone());
    if depthwise_integer::is_depthwise(anchor, body) {
        return depthwise_integer::boxed(op, inputs, Tail::of(region));
    }
    boxed(op, inputs, Tail::of(region))
}

fn boxed(op: &Op, inputs: Vec<usize>, tail: Tail) -> Result<Box<dyn StepKernel>> {
    // The float kernel takes image and weights; zero points are read here.
    let conv = Conv::of(op, DType::I32, inputs.iter().copied().take(2).collect(), tail)?;
    Ok(Box::new(ConvInteger { conv, inputs, bound: None }))
}

/// A bound convolution.
#[derive(Clone)]
struct ConvInteger {
    conv: Conv,
    inputs: Vec<usize>,
    bound: Option<(Shape, Zeros)>,
}

/// Nanoseconds that it takes to find the pieces of a tile's rows for one tap, beside multiplications that wait for them.
const TAP_NANOS: f64 = 15.0;

/// Bytes of an image that are copied in a nanosecond, roughly.
const COPIED_PER_NANO: f64 = 12.0;

/// Whether to copy images with their border, in which all taps of a line are one, and to multiply takes less by more than that takes.
fn is_copied(conv: &Conv, s: &Shape) -> bool {
    let whole = s.strides[3] == s.channels && s.channels.is_multiple_of(4);
    if s.route != Route::Windows || conv.groups != 1 || conv.window.dilation[2] != 1 || !whole {
        return false;
    }
    let product = |of: &[usize]| of.iter().map(|&n| n as f64).product::<f64>();
    let copied = product(&[s.batch, s.size[0], s.channels]) * product(&conv.bordered(s, Border::All));
    let tiles = product(&[s.batch]) * product(&s.out) / 8.0 * gemm::panels(s.filters) as f64;
    let saved = product(&s.kernel) - product(&s.kernel[..2]);
    tiles * saved * TAP_NANOS > copied / COPIED_PER_NANO
}

/// Bytes of a group's packed weights.
fn group_bytes(s: &Shape) -> Option<usize> {
    gemm::byte_words(s.kernel.iter().product(), s.channels, s.filters)?.checked_mul(4)
}

impl StepKernel for ConvInteger {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (result, mut needs) = self.conv.tail.bind_bytes(cx, &|_| true)?;
        let mut s = self.conv.shape(cx, &result)?;
        if is_copied(&self.conv, &s) {
            s.route = Route::Bordered;
        }
        let large = || mismatch("a convolution that is too large");
        // Scratch: the result before the region, then what a tap in the padding reads and the copy with its border, then the
        // packed weights.
        let tap = match s.route {
            Route::Bordered => s.kernel[2] * pixel_bytes(&s),
            _ => s.channels,
        };
        let mut images = tap.next_multiple_of(64);
        if s.route == Route::Bordered {
            let [h, w] = self.conv.bordered(&s, Border::All);
            let pixels = s.batch.checked_mul(s.size[0] * h * w).and_then(|n| n.checked_mul(pixel_bytes(&s)));
            images = pixels.and_then(|n| n.checked_add(images)).ok_or_else(large)?.next_multiple_of(64);
        }
        s.parts = [self.conv.tail.scratch_bytes(), images, 0, 0];
        if !s.packed {
            let all = group_bytes(&s).and_then(|n| n.checked_mul(self.conv.groups));
            s.parts[2] = all.ok_or_else(large)?;
        }
        needs.shared_scratch = s.parts.iter().sum();
        let depth = s.kernel.iter().product::<usize>() * s.channels;
        let columns = s.filters * self.conv.groups;
        let nanos = (s.batch * s.out.iter().product::<usize>()) as f64 * (depth * columns) as f64 / PER_NANO;
        s.worth = nanos > WORTH_NANOS;
        needs.nanos += nanos;
        self.bound = Some((s, Zeros::of(cx, &self.inputs, columns)?));
        Ok(needs)
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some((s, zeros)) = &self.bound else { return Err(unbound()) };
        // SAFETY: the caller's promise, and scratch was asked for when the step was bound.
        unsafe {
            let zero = zeros.left(cx);
            self.borders(cx, s, zero, zeros.signed[0]);
            let weights = self.weights(cx, s, zeros);
            let bytes = group_bytes(s).unwrap_or(0);
            for group in 0..self.conv.groups {
                let b = weights.cast::<u8>().wrapping_add(group * bytes).cast();
                let g = self.product(cx, s, zeros, (group, zero), b);
                let isa = cx.isa;
                cx.parallel(s.worth, g.tasks(isa), &|range, _| g.run(isa, range));
            }
            self.conv.tail.finish(cx);
        }
        Ok(())
    }

    fn weights(&self) -> Upcoming {
        let (s, _) = self.bound.as_ref().filter(|(s, _)| s.packed)?;
        let depth = gemm::byte_rows(s.kernel.iter().product(), s.channels)?;
        Some((s.w, depth, gemm::panels(s.filters)))
    }

    fn set_next(&mut self, next: Upcoming) {
        self.conv.next = next;
    }
}

/// Bytes of a pixel of the copy with its border: whole words.
fn pixel_bytes(s: &Shape) -> usize {
    s.channels.next_multiple_of(4)
}

impl ConvInteger {
    /// Bytes of what a tap in the padding reads.
    fn tap_bytes(s: &Shape) -> usize {
        if s.route == Route::Bordered { s.kernel[2] * pixel_bytes(s) } else { s.channels }
    }

    /// Writes what a tap in the padding reads, and the copy with its border if that is the route: both of zero points, and behind
    /// the channels of a pixel what is 0 when it is multiplied.
    unsafe fn borders(&self, cx: &mut RunCx<'_, '_>, s: &Shape, zero: u8, signed: bool) {
        if s.channels == 0 {
            return;
        }
        let rest = if signed { 0x80 } else { 0 };
        let tap = cx.shared_scratch.wrapping_add(s.parts[0]);
        let bytes = Self::tap_bytes(s);
        // SAFETY: scratch was asked for when the step was bound.
        unsafe {
            std::ptr::write_bytes(tap, zero, bytes);
            if s.route == Route::Bordered {
                for pixel in (0..bytes).step_by(pixel_bytes(s)) {
                    let padding = pixel_bytes(s) - s.channels;
                    std::ptr::write_bytes(tap.wrapping_add(pixel + s.channels), rest, padding);
                }
                let place = s.parts[0] + bytes.next_multiple_of(64);
                self.conv.copy_with_border::<u8>(cx, s, place, pixel_bytes(s), Border::All, [zero, rest]);
            }
        }
    }

    /// Where the packed weights are; packs them now if no one has.
    unsafe fn weights(&self, cx: &mut RunCx<'_, '_>, s: &Shape, zeros: &Zeros) -> *const f32 {
        if s.packed {
            return cx.ptr(s.w);
        }
        let to = Shared::new(cx.shared_scratch.wrapping_add(s.parts[0] + s.parts[1]));
        let from = cx.shared::<u8>(s.w);
        let (panels, bytes, signed) = (gemm::panels(s.filters), group_bytes(s).unwrap_or(0), zeros.signed[1]);
        cx.parallel(s.worth, self.conv.groups * panels, &|range, _| {
            for unit in range {
                let (group, panel) = (unit / panels, unit % panels);
                let filters = group * s.filters..(group + 1) * s.filters;
                let to = to.get().wrapping_add(group * bytes).cast();
                // SAFETY: the view is within its buffer; panels are disjoint.
                unsafe { pack_conv_bytes(from.get(), signed, &s.weights, filters, to, panel..panel + 1) }
            }
        });
        to.get().cast_const().cast()
    }

    /// The matmul of one group; `zero` is the image's zero point.
    unsafe fn product(
        &self,
        cx: &RunCx<'_, '_>,
        s: &Shape,
        zeros: &Zeros,
        (group, zero): (usize, u8),
        b: *const f32,
    ) -> ByteGemm {
        let input = cx.ptr::<u8>(s.x).wrapping_add(group * s.channels).cast_const();
        let w = &self.conv.window;
        let windows = ConvRows {
            input,
            zeros: cx.shared_scratch.wrapping_add(s.parts[0]).cast_const(),
            size: s.size,
            strides: [s.strides[1], s.strides[2], s.strides[3]],
            volume_stride: s.strides[0],
            out: s.out,
            kernel: s.kernel,
            stride: w.stride,
            dilation: w.dilation,
            pad: w.before,
            first: 0,
        };
        // SAFETY: the caller's promise.
        let epilogue = unsafe { self.conv.tail.byte_epilogue(cx) };
        let size = if epilogue.is_some_and(|e| e.quantiser.is_some()) { 1 } else { 4 };
        let (mut k, mut even) = (s.channels, None);
        let rows = match s.route {
            Route::Matmul(row_stride) => AnyRows::Matrix(Strided { ptr: input, row_stride }),
            Route::Windows => AnyRows::Windows(windows),
            Route::Im2col | Route::Direct => unreachable!("they are ways of f32"),
            Route::Bordered => {
                let ([h, w], c) = (self.conv.bordered(s, Border::All), pixel_bytes(s));
                k = s.kernel[2] * c;
                // All of a window of an image is within the copy.
                even = (s.kernel[0] == 1 && windows.pad[0] == 0).then_some(Even {
                    tap_step: w.wrapping_mul(c) * windows.dilation[1],
                    line: s.out[2],
                    row_step: windows.stride[2] * c,
                });
                AnyRows::Windows(ConvRows {
                    input: windows.zeros.wrapping_add(k.next_multiple_of(64)),
                    size: [s.size[0], h, w],
                    strides: [h * w * c, w * c, c],
                    volume_stride: s.size[0] * h * w * c,
                    kernel: [s.kernel[0], s.kernel[1], 1],
                    pad: [windows.pad[0], 0, 0],
                    ..windows
                })
            }
        };
        ByteGemm {
            m: s.batch * s.out.iter().product::<usize>(),
            n: s.filters,
            k,
            terms: s.channels * s.kernel.iter().product::<usize>(),
            rows,
            even,
            signed: zeros.signed[0],
            b,
            a_zero: zeros.number(zero),
            b_zero: zeros.right(cx, group * s.filters),
            c: cx.ptr::<u8>(s.y).wrapping_add(group * s.filters * size).cast(),
            c_stride: s.c_stride,
            epilogue: epilogue.map(|e| e.from(group * s.filters)),
            ahead: cx.ahead(self.conv.next),
        }
    }
}
