//! Convolution of channels-last images (rows, volumes) of bytes with zero points, by [`ByteGemm`].
//!
//! Windows are read where they lie; what lies in the padding are pixels of the zero point. The geometry is that of the
//! float convolution, whose code it uses.

use rlx_ir::op::{DataFormat, PackFormat};
use rlx_ir::{DType, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::{Conv, Route, Shape, Tail, is_depthwise_of};
use crate::gemm::{self, AnyRows, ByteGemm, ConvRows, Strided};
use crate::kernels::integer::{PER_NANO, Zeros};
use crate::kernels::pack::pack_conv_bytes;
use crate::kernels::region::Anchored;
use crate::kernels::{BindCx, CompileCx, Needs, RunCx, Shared, StepKernel, WORTH_NANOS, mismatch, unbound};

/// Channels last; not one channel a group, whose products would be of one column.
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
    if is_depthwise_of(groups, x) {
        return Claim::No("there is no depthwise convolution of bytes".into());
    }
    Claim::Native
}

/// The format a convolution wants its weights in.
pub(crate) fn pack_format(node: &Node, input: usize, graph: &Graph) -> Option<PackFormat> {
    let single = matches!(node.op, Op::ConvInteger { groups: 1, .. });
    (input == 1 && single && claim(node, graph).is_native()).then_some(PackFormat::ConvWeights)
}

/// The kernel of a convolution of its own.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    boxed(&cx.node().op, vec![0, 1, 2, 3], Tail::NONE)
}

/// The kernel of a convolution with the region behind it.
pub(crate) fn anchored(op: &Op, region: Anchored) -> Result<Box<dyn StepKernel>> {
    boxed(op, region.inputs.clone(), Tail::of(region))
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

/// Bytes of a group's packed weights.
fn group_bytes(s: &Shape) -> Option<usize> {
    gemm::byte_words(s.kernel.iter().product(), s.channels, s.filters)?.checked_mul(4)
}

impl StepKernel for ConvInteger {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (result, mut needs) = self.conv.tail.bind(cx, DType::I32, &|_| false)?;
        let mut s = self.conv.shape(cx, &result)?;
        if s.route == Route::Bordered {
            s.route = Route::Windows;
        }
        let large = || mismatch("a convolution that is too large");
        // Scratch: the result before the region, a pixel of zero points, the packed weights.
        s.parts = [self.conv.tail.scratch_bytes(), s.channels.next_multiple_of(64), 0];
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
            let pixel = cx.shared_scratch.wrapping_add(s.parts[0]);
            let zero = zeros.left(cx);
            std::ptr::write_bytes(pixel, zero, s.channels);
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
}

impl ConvInteger {
    /// Where the packed weights are; packs them now if nobody has.
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
                // SAFETY: the view lies within its buffer; panels are disjoint.
                unsafe { pack_conv_bytes(from.get(), signed, &s.weights, filters, to, panel..panel + 1) }
            }
        });
        to.get().cast_const().cast()
    }

    /// The product of one group; `zero` is the image's zero point.
    fn product(
        &self,
        cx: &RunCx<'_, '_>,
        s: &Shape,
        zeros: &Zeros,
        (group, zero): (usize, u8),
        b: *const f32,
    ) -> ByteGemm {
        let input = cx.ptr::<u8>(s.x).wrapping_add(group * s.channels).cast_const();
        let w = &self.conv.window;
        let rows = match s.route {
            Route::Product(row_stride) => AnyRows::Matrix(Strided { ptr: input, row_stride }),
            _ => AnyRows::Windows(ConvRows {
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
            }),
        };
        ByteGemm {
            m: s.batch * s.out.iter().product::<usize>(),
            n: s.filters,
            k: s.channels,
            rows,
            signed: zeros.signed[0],
            b,
            a_zero: zeros.number(zero),
            b_zero: zeros.right(cx, group * s.filters),
            c: cx.ptr::<i32>(s.y).wrapping_add(group * s.filters),
            c_stride: s.c_stride,
        }
    }
}
