//! Matmuls of 8-bit integers with zero points ([`ByteGemm`]), alone or with the region they anchor.
//!
//! Weights known before the run are packed once by the init program; any other right-hand side is packed during the
//! step. Rows may be quantised by the step itself, a strip at a time ([`Producer`]). The result is i32 and exact, so a region behind it computes what the nodes apart would.

use rlx_ir::op::PackFormat;
use rlx_ir::{DType, Graph, Node, Result};
use rlx_opt::Claim;

use super::epilogue::Tail;
use super::matmul::Shape;
use super::producer::Producer;
use super::region::Anchored;
use super::{BindCx, CompileCx, Needs, RunCx, Shared, StepKernel, Upcoming, WORTH_NANOS, mismatch, unbound};
use crate::formats;
use crate::gemm::{self, AnyRows, ByteGemm, Next, Strided, ZeroPoints};
use crate::layout::{At, Bound};

/// Multiply-adds in a nanosecond, roughly.
pub(super) const PER_NANO: f64 = 100.0;

/// Whether elements of this type are multiplied here.
pub(crate) fn is_byte(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::U8)
}

/// All forms of the op are built.
pub(crate) fn claim(_: &Node, _: &Graph) -> Claim {
    Claim::Native
}

/// The format a matmul wants its input in when that is known before the run.
pub(crate) fn pack_format(node: &Node, input: usize, graph: &Graph) -> Option<PackFormat> {
    let fits = input == 1 && graph.shape(*node.inputs.get(1)?).rank() == 2;
    fits.then_some(formats::MATMUL_RHS)
}

/// The kernel of a matmul of its own.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let inputs = (0..cx.step.inputs.len()).collect();
    Ok(Box::new(MatMulInteger { inputs, producer: None, tail: Tail::NONE, bound: None, next: None }))
}

/// The kernel of a matmul with the region behind it.
pub(crate) fn anchored(mut region: Anchored) -> Box<dyn StepKernel> {
    let producer = region.producer.take();
    Box::new(MatMulInteger {
        inputs: region.inputs.clone(),
        producer,
        tail: Tail::of(region),
        bound: None,
        next: None,
    })
}

/// The zero points of both operands, and which of the operands are signed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Zeros {
    at: [At; 2],
    /// From one column's zero point to the next.
    step: usize,
    pub(super) signed: [bool; 2],
}

impl Zeros {
    /// Those of the operands `inputs` (left, right, left zero, right zero) of a step with `columns` columns.
    pub(super) fn of(cx: &BindCx<'_>, inputs: &[usize], columns: usize) -> Result<Zeros> {
        let &[a, b, za, zb] = inputs else { return Err(mismatch("a product of bytes takes four operands")) };
        let operand = |i: usize| -> &Bound { &cx.inputs[i] };
        let (left, right) = (operand(za).layout.elements(), operand(zb).layout.elements());
        let step = usize::from(operand(zb).layout.rank() == 1);
        if left != 1 || right != if step == 1 { columns } else { 1 } {
            return Err(mismatch(format!("{left} and {right} zero points for {columns} columns")));
        }
        let signed = [a, b].map(|i| operand(i).dtype == DType::I8);
        Ok(Zeros { at: [operand(za).at, operand(zb).at], step, signed })
    }

    /// The left operand's.
    pub(super) unsafe fn left(&self, cx: &RunCx<'_, '_>) -> u8 {
        // SAFETY: the caller's promise: the operand is there.
        unsafe { *cx.ptr::<u8>(self.at[0]) }
    }

    /// A byte of the left operand's type as a number.
    pub(super) fn number(&self, byte: u8) -> i32 {
        if self.signed[0] { i32::from(byte as i8) } else { i32::from(byte) }
    }

    /// The right operand's, from `first` on.
    pub(super) fn right(&self, cx: &RunCx<'_, '_>, first: usize) -> ZeroPoints {
        let ptr = cx.ptr::<u8>(self.at[1]).wrapping_add(first * self.step).cast_const();
        ZeroPoints { ptr, step: self.step, signed: self.signed[1] }
    }
}

/// A bound matmul.
#[derive(Debug, Clone)]
struct MatMulInteger {
    /// Which of the step's inputs the operands are.
    inputs: Vec<usize>,
    /// What makes the rows first.
    producer: Option<Producer>,
    tail: Tail,
    bound: Option<(Shape, Zeros)>,
    next: Upcoming,
}

impl StepKernel for MatMulInteger {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (a, b) = (&cx.inputs[self.inputs[0]], &cx.inputs[self.inputs[1]]);
        let packed = cx.is_packed(self.inputs[1], formats::MATMUL_RHS)?;
        // What an epilogue reads for each element has the rows of one matmul; what it reads for each column is the same for all.
        let single = b.layout.rank() == 2;
        let (mut product, mut needs) = self.tail.bind_bytes(cx, &|spec| single || !spec.reads_rows())?;
        let mut s = Shape::of(a, b, &product, packed)?;
        if s.batches() != 1 {
            (product, needs) = self.tail.bind_bytes(cx, &|spec| !spec.reads_rows())?;
            s = Shape::of(a, b, &product, packed)?;
        }
        if s.k > 1 && s.a_strides[1] != 1 {
            return Err(mismatch("the rows of a product's left operand are not contiguous"));
        }
        let nanos = s.m as f64 * s.n as f64 * s.k as f64 * s.batches() as f64 / PER_NANO;
        s.worth = nanos > WORTH_NANOS;
        needs.nanos += nanos;
        if !packed {
            let words = gemm::byte_words(1, s.k, s.n).and_then(|n| n.checked_mul(4));
            s.pack_bytes = words.ok_or_else(|| mismatch(format!("{}×{} is too large to pack", s.k, s.n)))?;
            needs.shared_scratch += s.pack_bytes;
        }
        let mut zeros = Zeros::of(cx, &self.inputs, s.n)?;
        if let Some(producer) = &mut self.producer {
            producer.bind(cx, &s, &mut needs)?;
            zeros.signed[0] = producer.makes_signed_bytes();
        }
        self.bound = Some((s, zeros));
        Ok(needs)
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some((s, zeros)) = &self.bound else { return Err(unbound()) };
        let isa = cx.isa;
        // SAFETY: the caller's promise, for every matmul; scratch was asked for when the step was bound.
        unsafe {
            let a_zero = zeros.number(zeros.left(cx));
            let epilogue = self.tail.byte_epilogue(cx);
            let size = if epilogue.is_some_and(|e| e.quantiser.is_some()) { 1 } else { 4 };
            for batch in 0..s.batches() {
                let [c_at, a_at, _] = s.batch_at(batch);
                let b = if s.packed { cx.ptr(s.b) } else { self.pack(cx, s, zeros, batch) };
                // What a producer reads are floats.
                let a_at = if self.producer.is_some() { a_at * 4 } else { a_at };
                let ptr = cx.ptr::<u8>(s.a).wrapping_offset(a_at).cast_const();
                let g = ByteGemm {
                    m: s.m,
                    n: s.n,
                    k: s.k,
                    terms: s.k,
                    rows: AnyRows::Matrix(Strided { ptr, row_stride: s.a_strides[0] }),
                    even: None,
                    signed: zeros.signed[0],
                    b,
                    a_zero,
                    b_zero: zeros.right(cx, 0),
                    c: cx.ptr::<u8>(s.c).wrapping_offset(c_at * size as isize).cast(),
                    c_stride: s.c_stride,
                    epilogue,
                    ahead: cx.ahead(self.next),
                };
                let multiply = |cx: &mut RunCx<'_, '_>, g: ByteGemm| {
                    cx.parallel(s.worth, g.tasks(isa), &|range, _| g.run(isa, range));
                };
                match &self.producer {
                    Some(producer) => {
                        producer.for_strips(cx, ptr.cast_mut(), [s.m, s.k], |cx, rows, strip| {
                            let last = rows.end == g.m;
                            let mut part = g.of_rows(rows, strip, size);
                            if let (false, Some((_, depth, panels))) = (last, self.weights()) {
                                part.ahead = part.ahead.then(Next { b, depth, panels });
                            }
                            multiply(cx, part);
                        })
                    }
                    None => multiply(cx, g),
                }
            }
            self.tail.finish(cx);
        }
        Ok(())
    }

    fn weights(&self) -> Upcoming {
        let (s, _) = self.bound.as_ref().filter(|(s, _)| s.packed)?;
        Some((s.b, gemm::byte_rows(1, s.k)?, gemm::panels(s.n)))
    }

    fn set_next(&mut self, next: Upcoming) {
        self.next = next;
    }
}

impl MatMulInteger {
    /// All threads pack one right-hand side into scratch.
    unsafe fn pack(&self, cx: &mut RunCx<'_, '_>, s: &Shape, zeros: &Zeros, batch: usize) -> *const f32 {
        // The matmul itself may be in front.
        let to = Shared::new(cx.shared_scratch.wrapping_add(self.tail.scratch_bytes()).cast::<f32>());
        let from = Shared::new(cx.ptr::<u8>(s.b).wrapping_offset(s.batch[2].at(batch)));
        cx.parallel(s.worth, gemm::panels(s.n), &|range, _| {
            // SAFETY: shared scratch holds the packed right-hand side; each panel is written once.
            unsafe { gemm::pack_bytes(from.get(), zeros.signed[1], s.b_strides, s.k, s.n, to.get(), range) }
        });
        to.get()
    }
}
