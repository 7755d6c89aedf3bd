//! Packing of weights into the formats that kernels read: init steps, run once per set of parameters.

use std::ops::Range;

use rlx_ir::op::PackFormat;
use rlx_ir::{DType, Error, ErrorKind, Graph, Node, NodeId, Op, Result, Shape};
use rlx_opt::Claim;

use super::conv::winograd;
use super::integer::is_byte;
use super::matmul::{self, is_packed};
use super::{
    BindCx, CompileCx, Needs, RunCx, StepKernel, grouped, matmul_blocks, mismatch, no_kernel, packed_type,
    recurrent, region,
};
use crate::formats;
use crate::gemm::{self, PANEL, Packed};
use crate::layout::{At, Bound, Layout};

/// Whether a format can be made of a node's input.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let (Op::Pack { format }, Some(&input)) = (&node.op, node.inputs.first()) else {
        return Claim::No("it is no Pack".into());
    };
    let shape = graph.shape(input);
    if !is_fixed(graph, input) {
        return Claim::No("only parameters and constants are packed".into());
    }
    match *format {
        formats::MATMUL_RHS if multiplies(shape.dtype()) && shape.rank() == 2 => Claim::Native,
        formats::CONV_WEIGHTS if multiplies(shape.dtype()) && matches!(shape.rank(), 3..=5) => Claim::Native,
        formats::GROUPED_WEIGHTS if multiplies(shape.dtype()) && matches!(shape.rank(), 3 | 4) => {
            Claim::Native
        }
        format if formats::is_blocks(format) && packs_blocks(shape) => Claim::Native,
        format if formats::winograd_tile(format).is_some_and(|tile| winograd::packs(tile, shape)) => {
            Claim::Native
        }
        _ => Claim::No(format!("{format:?} cannot be made of {shape}")),
    }
}

/// Whether a tensor is weights in blocks.
fn packs_blocks(shape: &Shape) -> bool {
    shape.static_dims().is_some_and(|dims| matmul_blocks::packed_bytes(shape.dtype(), &dims).is_some())
}

/// Whether there are matmuls of packed matrices of this type.
fn multiplies(dtype: DType) -> bool {
    is_packed(dtype) || is_byte(dtype)
}

/// Whether a value depends on parameters and constants alone.
fn is_fixed(graph: &Graph, id: NodeId) -> bool {
    let mut seen = vec![false; graph.len()];
    let mut open = vec![id];
    while let Some(id) = open.pop() {
        let node = graph.node(id);
        if matches!(node.op, Op::Input { .. }) {
            return false;
        }
        if !std::mem::replace(&mut seen[id.index()], true) {
            open.extend(&node.inputs);
        }
    }
    true
}

/// Whether a step of `op` knows what to do with a packed input `input`; in which format, its kernel asks ([`BindCx::is_packed`]).
pub(crate) fn reads_packed(op: &Op, input: usize) -> bool {
    match op {
        Op::Recurrent { .. } => recurrent::reads_packed(op, input),
        Op::MatMul | Op::MatMulInteger | Op::MatMulBlocks | Op::DynamicMatMulBlocks => input == 1,
        Op::Conv { .. } | Op::ConvInteger { .. } => input == 1,
        Op::Region { body } => {
            let mut readers = region::readers(&body.graph, input).peekable();
            readers.peek().is_some() && readers.all(|(reader, own)| reads_packed(&reader.op, own))
        }
        _ => false,
    }
}

/// The kernel of a packing step.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let node = cx.node();
    match &node.op {
        Op::Pack { format } => {
            Ok(Box::new(Pack { format: *format, dtype: node.shape.dtype(), input: None, to: At::NOWHERE }))
        }
        op => Err(no_kernel(op, "it is no Pack")),
    }
}

/// Bytes of a tensor of these dimensions in a packed format.
pub(crate) fn packed_bytes(format: PackFormat, dtype: DType, dims: &[usize]) -> Result<usize> {
    let product = |dims: &[usize]| dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let words = |n: Option<usize>| n.and_then(|n| n.checked_mul(4));
    let bytes = match (format, dims) {
        (format, dims) if formats::is_blocks(format) => matmul_blocks::packed_bytes(dtype, dims),
        (formats::MATMUL_RHS, &[k, n]) if is_byte(dtype) => words(gemm::byte_words(1, k, n)),
        (formats::CONV_WEIGHTS, &[o, channels, ref window @ ..]) if is_byte(dtype) => {
            words(product(window).and_then(|taps| gemm::byte_words(taps, channels, o)))
        }
        (formats::MATMUL_RHS, &[k, n]) => matmul::packed_bytes(dtype, k, n),
        (formats::CONV_WEIGHTS, &[o, channels, ref window @ ..]) => {
            let tap = matmul::packed_bytes(dtype, channels, o);
            product(window).zip(tap).and_then(|(taps, tap)| tap.checked_mul(taps))
        }
        (format, dims) if formats::winograd_tile(format).is_some() => winograd::packed_bytes(format, dims),
        (formats::GROUPED_WEIGHTS, dims) => grouped::packed_bytes(dtype, dims),
        _ => return Err(mismatch(format!("{format:?} of {dims:?}"))),
    };
    bytes.ok_or_else(|| {
        Error::new(ErrorKind::OutOfMemory, format!("packed weights of {dims:?} are too large"))
    })
}

/// A bound packing step.
#[derive(Debug, Clone)]
struct Pack {
    format: PackFormat,
    dtype: DType,
    input: Option<Bound>,
    to: At,
}

impl StepKernel for Pack {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        packed_bytes(self.format, self.dtype, cx.inputs[0].dims())?;
        (self.input, self.to) = (Some(cx.inputs[0]), cx.outputs[0].at);
        Ok(Needs::time(cx.inputs[0].layout.elements() as f64))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(input) = &self.input else { return Err(mismatch("a step that was not bound")) };
        if formats::is_blocks(self.format) {
            return self.pack_blocks(cx, input);
        }
        if is_byte(self.dtype) {
            return self.pack_bytes(cx, input);
        }
        packed_type!(
            self.dtype,
            T => match formats::winograd_tile(self.format) {
                Some(tile) => winograd::pack::<T>(cx, tile, input, self.to),
                None => self.pack::<T>(cx, input),
            },
            _ => Err(mismatch(format!("nothing packs {}", self.dtype)))
        )
    }
}

impl Pack {
    fn pack_blocks(&self, cx: &mut RunCx<'_, '_>, input: &Bound) -> Result<()> {
        let (from, to) = (cx.shared::<u8>(input.at), cx.shared::<u8>(self.to));
        let (&[n, blocks, size], Some(element)) = (input.dims(), matmul_blocks::element(self.dtype)) else {
            return Err(mismatch(format!("nothing packs blocks of {:?}", input.dims())));
        };
        if !input.layout.is_dense() {
            return Err(mismatch("weights in blocks are packed from dense ones"));
        }
        cx.parallel(true, gemm::panels(n), &|range, _| {
            // SAFETY: the weights are dense, the packed buffer was sized for them, and every panel is written once.
            unsafe { gemm::pack_blocks(from.get(), element, blocks * size, n, to.get(), range) }
        });
        Ok(())
    }

    fn pack_bytes(&self, cx: &mut RunCx<'_, '_>, input: &Bound) -> Result<()> {
        let (from, to) = (cx.shared::<u8>(input.at), cx.shared::<f32>(self.to));
        let (layout, signed) = (input.layout, self.dtype == DType::I8);
        let (dims, strides) = (layout.dims(), layout.strides());
        match self.format {
            formats::MATMUL_RHS => {
                let (k, n, strides) = (dims[0], dims[1], [strides[0], strides[1]]);
                cx.parallel(true, gemm::panels(n), &|range, _| {
                    // SAFETY: the view is within its buffer, the packed buffer was sized for (k, n), and
                    // every panel is written once.
                    unsafe {
                        gemm::pack_bytes(from.get().cast_const(), signed, strides, k, n, to.get(), range)
                    }
                });
            }
            formats::CONV_WEIGHTS => {
                cx.parallel(true, gemm::panels(dims[0]), &|range, _| {
                    // SAFETY: as above.
                    unsafe {
                        pack_conv_bytes(from.get(), signed, &layout, 0..layout.dims()[0], to.get(), range)
                    }
                });
            }
            // SAFETY: as above.
            formats::GROUPED_WEIGHTS => unsafe {
                grouped::pack_weights(from.get().cast_const(), &layout, 1, to.get().cast::<u8>());
            },
            other => return Err(mismatch(format!("nothing packs bytes as {other:?}"))),
        }
        Ok(())
    }

    fn pack<T: Packed>(&self, cx: &mut RunCx<'_, '_>, input: &Bound) -> Result<()> {
        let (from, to) = (cx.shared::<T>(input.at), cx.shared::<f32>(self.to));
        let (dims, strides) = (input.layout.dims(), input.layout.strides());
        match self.format {
            formats::MATMUL_RHS => {
                let (k, n, rows, columns) = (dims[0], dims[1], strides[0], strides[1]);
                cx.parallel(true, gemm::panels(n), &|range, _| {
                    // SAFETY: the view is within its buffer, the packed buffer was sized for (k, n), and
                    // every panel is written once.
                    unsafe { gemm::pack(from.get().cast_const(), rows, columns, k, n, to.get(), range) }
                });
            }
            formats::CONV_WEIGHTS => {
                let layout = input.layout;
                cx.parallel(true, gemm::panels(dims[0]), &|range, _| {
                    // SAFETY: as above.
                    unsafe {
                        pack_conv(from.get().cast_const(), &layout, 0..layout.dims()[0], to.get(), range)
                    }
                });
            }
            formats::GROUPED_WEIGHTS => {
                // SAFETY: as above.
                unsafe {
                    grouped::pack_weights(
                        from.get().cast_const(),
                        &input.layout,
                        T::DOT,
                        to.get().cast::<T>(),
                    );
                }
            }
            other => return Err(mismatch(format!("nothing packs {other:?}"))),
        }
        Ok(())
    }
}

/// Packs panels of the weights `[O, I, k…]` of the output channels `filters`, as the matrix `[k…·I, O]`; each tap
/// begins a new row of words.
///
/// # Safety
/// Every element of the view must be readable, and `to` writable for the packed matrix; only the parts of the
/// given panels are written.
pub(crate) unsafe fn pack_conv<T: Packed>(
    from: *const T,
    weights: &Layout,
    filters: Range<usize>,
    to: *mut f32,
    panels: Range<usize>,
) {
    let (dims, strides) = (weights.dims(), weights.strides());
    let taps = weights.range(2, weights.rank());
    let (channels, count) = (dims[1], taps.elements());
    let depth = gemm::groups::<T>(channels);
    for panel in panels {
        let first = filters.start + panel * PANEL;
        let width = PANEL.min(filters.end - first);
        let panel = to.wrapping_add(panel * PANEL * depth * count);
        for tap in 0..count {
            let source = from.wrapping_offset(taps.at(tap) + first as isize * strides[0]);
            let place = panel.wrapping_add(tap * depth * PANEL);
            // SAFETY: the caller's promise.
            unsafe { gemm::pack_panel(source, strides[1], strides[0], channels, width, place) }
        }
    }
}

/// As [`pack_conv`], of bytes: all taps of a panel, then its columns' sums.
///
/// # Safety
/// As [`pack_conv`].
pub(crate) unsafe fn pack_conv_bytes(
    from: *const u8,
    signed: bool,
    weights: &Layout,
    filters: Range<usize>,
    to: *mut f32,
    panels: Range<usize>,
) {
    let (dims, strides) = (weights.dims(), weights.strides());
    let taps = weights.range(2, weights.rank());
    let per_panel = gemm::byte_words(taps.elements(), dims[1], PANEL).unwrap_or(0);
    for panel in panels {
        let first = filters.start + panel * PANEL;
        let ptr = from.wrapping_offset(first as isize * strides[0]);
        let (depth, width) = (dims[1], PANEL.min(filters.end - first));
        let columns = gemm::Columns { ptr, strides: [strides[1], strides[0]], signed, depth, width };
        let place = to.wrapping_add(panel * per_panel);
        // SAFETY: the caller's promise.
        unsafe { gemm::pack_byte_panel(&columns, taps.elements(), |tap| taps.at(tap), place) }
    }
}
