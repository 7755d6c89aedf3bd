//! Matmuls by weights quantised in blocks ([`BlockGemm`]), alone or with the region they anchor.
//!
//! Weights known before the run are packed once, still quantised; others are packed during the step. Where bits may change, a few rows are
//! multiplied in fixed point ([`FixedRows`]): the format of the weights says so. Rows that the op quantises are multiplied as bytes where the processor
//! has instructions for it, and as what they are dequantised to elsewhere.

use rlx_ir::op::PackFormat;
use rlx_ir::{DType, Graph, Node, Op, OpKind, Result};
use rlx_opt::Claim;

use super::epilogue::Tail;
use super::region::Anchored;
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, unbound};
use crate::formats;
use crate::gemm::{self, BlockElement, BlockGemm, FixedRows, QuantizedRows, Strided, Width};
use crate::isa::Isa;
use crate::layout::At;

/// The ops that are computed here.
pub(crate) const KINDS: [OpKind; 2] = [OpKind::MatMulBlocks, OpKind::DynamicMatMulBlocks];

/// Multiply-adds in a nanosecond, roughly, and weights that become floats.
const PER_NANO: [f64; 2] = [40.0, 8.0];
/// Weights by a row in fixed point in a nanosecond, of 24 bits and of 8.
const FIXED_PER_NANO: [f64; 2] = [30.0, 90.0];
/// Elements of rows that several threads make whole numbers of, at least.
const WORTH_SPREADING: usize = 1 << 14;

/// How weights of this type are stored, if they are multiplied here.
pub(crate) fn element(dtype: DType) -> Option<BlockElement> {
    let (bits, signed) = match dtype {
        DType::U4 => (4, false),
        DType::I4 => (4, true),
        DType::U8 => (8, false),
        DType::I8 => (8, true),
        _ => return None,
    };
    Some(BlockElement { bits, signed })
}

/// Floats of 32 bits by whole bytes of weights.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let shape = |i: usize| graph.shape(node.inputs[i]);
    if let Some(other) =
        (0..node.inputs.len()).filter(|&i| i != 1).map(|i| shape(i).dtype()).find(|&d| d != DType::F32)
    {
        return Claim::No(format!("there is no matmul of {other} by quantised blocks"));
    }
    let Some(element) = element(shape(1).dtype()) else {
        return Claim::No(format!("there is no matmul by blocks of {}", shape(1).dtype()));
    };
    let even = shape(1).dims().last().and_then(|d| d.as_static()).is_some_and(|n| element.bytes(n).is_some());
    if !even {
        return Claim::No("two weights share a byte, and blocks begin within one".into());
    }
    Claim::Native
}

/// The format of the weights, when they are known before the run.
pub(crate) fn pack_format(node: &Node, input: usize, graph: &Graph) -> Option<PackFormat> {
    (input == 1 && claim(node, graph).is_native()).then_some(formats::BLOCK_WEIGHTS)
}

/// As [`pack_format`], where bits may change.
pub(crate) fn fast_pack_format(isa: Isa, node: &Node, input: usize, graph: &Graph) -> Option<PackFormat> {
    let format = pack_format(node, input, graph)?;
    let size = graph.shape(node.inputs[input]).dims().last().and_then(|d| d.as_static());
    let fixes = size.is_some_and(|size| gemm::fixes_blocks(isa, size));
    Some(if fixes { formats::FIXED_POINT_BLOCKS } else { format })
}

/// Bytes of packed weights `[n, blocks, size]`.
pub(crate) fn packed_bytes(dtype: DType, dims: &[usize]) -> Option<usize> {
    let &[n, blocks, size] = dims else { return None };
    gemm::block_bytes(element(dtype)?, blocks.checked_mul(size)?, n)
}

/// The kernel of a matmul of its own.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let inputs = (0..cx.step.inputs.len()).collect();
    let quantizes = cx.node().op == Op::DynamicMatMulBlocks;
    Ok(Box::new(MatMulBlocks { isa: cx.isa, quantizes, inputs, tail: Tail::NONE, bound: None }))
}

/// The kernel of a matmul with the region behind it.
pub(crate) fn anchored(isa: Isa, anchor: &Op, region: Anchored) -> Box<dyn StepKernel> {
    let quantizes = *anchor == Op::DynamicMatMulBlocks;
    Box::new(MatMulBlocks {
        isa,
        quantizes,
        inputs: region.inputs.clone(),
        tail: Tail::of(region),
        bound: None,
    })
}

#[derive(Debug, Clone)]
struct MatMulBlocks {
    isa: Isa,
    /// Whether rows are quantised to 8 bits.
    quantizes: bool,
    /// Which of the step's inputs the operands are.
    inputs: Vec<usize>,
    tail: Tail,
    bound: Option<Bindings>,
}

/// A bound matmul.
#[derive(Debug, Clone, Copy)]
struct Bindings {
    m: usize,
    n: usize,
    k: usize,
    blocks: usize,
    size: usize,
    element: BlockElement,
    /// Rows, weights, scales, result.
    a: At,
    w: At,
    scale: At,
    zero: Option<At>,
    c: At,
    packed: bool,
    rows: As,
    worth: bool,
}

/// What rows are multiplied as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum As {
    Floats,
    /// Floats that are quantised to 8 bits and back.
    Quantized,
    Fixed(Width),
}

impl StepKernel for MatMulBlocks {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (product, mut needs) = self.tail.bind(cx, DType::F32, &|_| true)?;
        let operand = |i: usize| &cx.inputs[self.inputs[i]];
        let (a, w, scale) = (operand(0), operand(1), operand(2));
        let zero = (self.inputs.len() > 3).then(|| operand(3));
        let shape_mismatch = || mismatch(format!("cannot multiply {:?} by blocks {:?}", a.dims(), w.dims()));
        let (&[n, blocks, size], Some(&k), Some(element)) = (w.dims(), a.dims().last(), element(w.dtype))
        else {
            return Err(shape_mismatch());
        };
        let depth = blocks.checked_mul(size).filter(|&d| k <= d && element.bytes(d).is_some());
        let dense = [a, scale, &product].into_iter().chain(zero).all(|b| b.layout.is_dense());
        let params = [Some(scale), zero].into_iter().flatten().all(|p| p.dims() == [blocks, n]);
        let m = a.layout.range(0, a.layout.rank() - 1).elements();
        let (packed, fixed) = match cx.formats[self.inputs[1]] {
            Some(formats::FIXED_POINT_BLOCKS) => (true, FixedRows::takes(m)),
            _ => (cx.is_packed(self.inputs[1], formats::BLOCK_WEIGHTS)?, false),
        };
        let rows = match (self.quantizes, fixed) {
            (true, _) if gemm::fixes_blocks(self.isa, size) => As::Fixed(Width::Byte),
            (true, _) => As::Quantized,
            (false, true) => As::Fixed(Width::Digits),
            (false, false) => As::Floats,
        };
        let fits = dense && params && product.layout.elements() == m * n && (packed || w.layout.is_dense());
        let (Some(depth), true) = (depth, fits) else { return Err(shape_mismatch()) };
        let work = [m as f64 * n as f64 * k as f64, n as f64 * k as f64];
        let nanos = match rows {
            As::Fixed(Width::Digits) => work[0] / FIXED_PER_NANO[0],
            As::Fixed(Width::Byte) => work[0] / FIXED_PER_NANO[1],
            _ => work[0] / PER_NANO[0] + work[1] / PER_NANO[1],
        };
        needs.nanos += nanos;
        if !packed {
            needs.shared_scratch += gemm::block_bytes(element, depth, n).ok_or_else(shape_mismatch)?;
        }
        let of_rows = match rows {
            As::Fixed(width) => FixedRows::bytes(width, m, blocks, size),
            As::Quantized => m.checked_mul(k).and_then(|n| n.checked_mul(size_of::<f32>())),
            As::Floats => Some(0),
        };
        needs.shared_scratch += of_rows.ok_or_else(shape_mismatch)?;
        self.bound = Some(Bindings {
            m,
            n,
            k,
            blocks,
            size,
            element,
            a: a.at,
            w: w.at,
            scale: scale.at,
            zero: zero.map(|z| z.at),
            c: product.at,
            packed,
            rows,
            worth: nanos > WORTH_NANOS,
        });
        Ok(needs)
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(s) = &self.bound else { return Err(unbound()) };
        let isa = cx.isa;
        // The matmul's own result may be in front.
        let scratch = cx.shared_scratch.wrapping_add(self.tail.scratch_bytes());
        let weights = if s.packed { cx.ptr::<u8>(s.w) } else { pack(cx, s, scratch) };
        let g = BlockGemm {
            m: s.m,
            n: s.n,
            k: s.k,
            rows: Strided { ptr: cx.ptr(s.a), row_stride: s.k as isize },
            weights,
            element: s.element,
            depth: s.blocks * s.size,
            size: s.size,
            scale: cx.ptr(s.scale),
            zero: s.zero.map(|at| cx.ptr::<f32>(at).cast_const()),
            c: cx.ptr(s.c),
            c_stride: s.n,
            epilogue: self.tail.epilogue(cx),
        };
        // Rows lie behind weights that are packed in this step; those are whole words of 4 bytes.
        let packed_here = if s.packed { 0 } else { gemm::block_bytes(s.element, g.depth, s.n).unwrap_or(0) };
        let rows = scratch.wrapping_add(packed_here);
        let spread = s.worth && s.m * s.k > WORTH_SPREADING;
        // SAFETY: the caller's promise; all operands and the scratch were sized when they were bound.
        unsafe {
            match s.rows {
                As::Fixed(width) => {
                    let g = FixedRows { of: g, width, scratch: rows };
                    cx.parallel(spread, s.m, &|range, _| g.fix(isa, range));
                    cx.parallel(s.worth, g.tasks(), &|range, _| g.run(isa, range));
                }
                As::Quantized => {
                    let to = rows.cast::<f32>();
                    let made = QuantizedRows { rows: g.rows, k: s.k, size: s.size, to };
                    cx.parallel(spread, s.m, &|range, _| made.run(isa, range));
                    let g = BlockGemm { rows: Strided { ptr: to, row_stride: s.k as isize }, ..g };
                    cx.parallel(s.worth, g.tasks(isa), &|range, _| g.run(isa, range));
                }
                As::Floats => cx.parallel(s.worth, g.tasks(isa), &|range, _| g.run(isa, range)),
            }
            self.tail.finish(cx);
        }
        Ok(())
    }
}

/// Packs weights that were not known before the run.
fn pack(cx: &mut RunCx<'_, '_>, s: &Bindings, to: *mut u8) -> *mut u8 {
    let to = super::Shared::new(to);
    let from = cx.shared::<u8>(s.w);
    let (element, depth, n) = (s.element, s.blocks * s.size, s.n);
    cx.parallel(s.worth, gemm::panels(n), &|range, _| {
        // SAFETY: the weights are dense, scratch was asked for, and each panel is written once.
        unsafe { gemm::pack_blocks(from.get(), element, depth, n, to.get(), range) }
    });
    to.get()
}
