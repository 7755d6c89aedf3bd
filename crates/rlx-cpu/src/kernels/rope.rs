//! Rotary embedding: pairs of every head's elements turned by the angles of its position.
//!
//! A row is one head at one position; its elements are neighbours, rows lie anywhere. Pairs of f32, f16 or bf16 that are half
//! a head apart run over the SIMD layer, everything else by plain loops.

use half::{bf16, f16};
use rlx_ir::{DType, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::matmul::is_packed;
use super::scalar::{Number, float, is_float};
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::gemm::Packed;
use crate::isa::Kernel;
use crate::layout::{At, Bound};
use crate::simd::{LANES, Simd};

/// Rows that a task takes.
const ROWS: usize = 8;

/// Floats can be turned.
pub(crate) fn claim(node: &Node, _: &Graph) -> Claim {
    let dtype = node.shape.dtype();
    if is_float(dtype) { Claim::Native } else { Claim::No(format!("there is no rotation of {dtype}")) }
}

/// The kernel of a rotary embedding.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let dtype = cx.step.inputs[0].dtype;
    match cx.node().op {
        Op::Rope { head_dim, n_rot, interleaved } => {
            Ok(Box::new(Rope { head_dim, n_rot, interleaved, dtype, plan: None }))
        }
        ref op => Err(no_kernel(op, "it is no Rope")),
    }
}

#[derive(Debug, Clone, Copy)]
struct Rope {
    head_dim: usize,
    n_rot: usize,
    interleaved: bool,
    dtype: DType,
    plan: Option<Plan>,
}

/// A tensor as rows: the distances from batch to batch, head to head and position to position.
#[derive(Debug, Clone, Copy)]
struct Rows {
    at: At,
    batch: isize,
    head: isize,
    seq: isize,
}

impl Rows {
    /// The rows of `[B, S, H·D]` or `[B, H, S, D]`, whose last dimension must be contiguous.
    fn heads(b: &Bound, head_dim: usize) -> Result<Rows> {
        let (dims, strides) = (b.dims(), b.layout.strides());
        let contiguous = |i: usize| strides[i] == 1 || dims[i] <= 1;
        match dims.len() {
            3 if contiguous(2) => {
                Ok(Rows { at: b.at, batch: strides[0], head: head_dim as isize, seq: strides[1] })
            }
            4 if contiguous(3) => Ok(Rows { at: b.at, batch: strides[0], head: strides[1], seq: strides[2] }),
            _ => Err(mismatch(format!("heads of {head_dim} elements in {dims:?} with strides {strides:?}"))),
        }
    }

    /// The rows of a table `[S, n]` or `[B, S, n]`.
    fn table(b: &Bound, batches: usize, seq: usize, half: usize) -> Result<Rows> {
        let strides = b.layout.strides();
        match *b.dims() {
            [s, n] if [s, n] == [seq, half] => Ok(Rows { at: b.at, batch: 0, head: 0, seq: strides[0] }),
            [b0, s, n] if [b0, s, n] == [batches, seq, half] => {
                Ok(Rows { at: b.at, batch: strides[0], head: 0, seq: strides[1] })
            }
            ref dims => {
                Err(mismatch(format!("a table {dims:?} of angles for {seq} positions of {half} pairs")))
            }
        }
    }

    #[inline(always)]
    fn row(&self, [b, h, s]: [usize; 3]) -> isize {
        b as isize * self.batch + h as isize * self.head + s as isize * self.seq
    }
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    /// Batches, heads and positions.
    counts: [usize; 3],
    x: Rows,
    cos: Rows,
    sin: Rows,
    out: Rows,
    worth: bool,
}

impl StepKernel for Rope {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, out) = (&cx.inputs[0], &cx.outputs[0]);
        let counts = match *x.dims() {
            [b, s, all] if self.head_dim > 0 && all % self.head_dim == 0 => [b, all / self.head_dim, s],
            [b, h, s, d] if d == self.head_dim => [b, h, s],
            ref dims => return Err(mismatch(format!("heads of {} elements in {dims:?}", self.head_dim))),
        };
        if x.dims() != out.dims() || self.n_rot > self.head_dim || !self.n_rot.is_multiple_of(2) {
            return Err(mismatch(format!("{} turned elements in heads of {}", self.n_rot, self.head_dim)));
        }
        let table = |b: &Bound| Rows::table(b, counts[0], counts[2], self.n_rot / 2);
        let nanos = x.layout.elements() as f64 * if is_packed(self.dtype) { 0.2 } else { 3.0 };
        self.plan = Some(Plan {
            counts,
            x: Rows::heads(x, self.head_dim)?,
            cos: table(&cx.inputs[1])?,
            sin: table(&cx.inputs[2])?,
            out: Rows::heads(out, self.head_dim)?,
            worth: nanos > WORTH_NANOS,
        });
        Ok(Needs::time(nanos))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Err(unbound()) };
        // SAFETY: the caller's promise; the type is that of all operands.
        unsafe { float!(self.dtype, T => self.turn::<T>(cx, plan)) };
        Ok(())
    }
}

impl Rope {
    unsafe fn turn<T: Number>(&self, cx: &mut RunCx<'_, '_>, plan: &Plan) {
        let (p, kernel, isa) = (*plan, *self, cx.isa);
        let [x, cos, sin, out] = [p.x, p.cos, p.sin, p.out].map(|rows| cx.shared::<T>(rows.at));
        let rows: usize = p.counts.iter().product();
        cx.parallel(p.worth, rows.div_ceil(ROWS), &|range, _| {
            for row in range.start * ROWS..(range.end * ROWS).min(rows) {
                let [_, heads, seq] = p.counts;
                let index = [row / (heads * seq), row / seq % heads, row % seq];
                let one = Row {
                    x: x.get().wrapping_offset(p.x.row(index)).cast_const(),
                    cos: cos.get().wrapping_offset(p.cos.row(index)).cast_const(),
                    sin: sin.get().wrapping_offset(p.sin.row(index)).cast_const(),
                    out: out.get().wrapping_offset(p.out.row(index)),
                    half: kernel.n_rot / 2,
                };
                // SAFETY: the caller's promise; rows of the result are disjoint.
                unsafe {
                    match kernel.dtype {
                        DType::F32 if !kernel.interleaved => isa.run(one.cast::<f32>()),
                        DType::F16 if !kernel.interleaved => isa.run(one.cast::<f16>()),
                        DType::BF16 if !kernel.interleaved => isa.run(one.cast::<bf16>()),
                        _ => one.turn(kernel.interleaved),
                    }
                    let rest = kernel.head_dim - kernel.n_rot;
                    let (from, to) = (one.x.add(kernel.n_rot), one.out.add(kernel.n_rot));
                    std::ptr::copy_nonoverlapping(from, to, rest);
                }
            }
        });
    }
}

/// One head at one position.
#[derive(Clone, Copy)]
struct Row<T> {
    x: *const T,
    cos: *const T,
    sin: *const T,
    out: *mut T,
    half: usize,
}

impl<T: Number> Row<T> {
    /// The same row as of `U`, which it must be.
    fn cast<U>(self) -> Row<U> {
        let Row { x, cos, sin, out, half } = self;
        Row { x: x.cast(), cos: cos.cast(), sin: sin.cast(), out: out.cast(), half }
    }

    /// Turns the row's pairs.
    #[inline(always)]
    unsafe fn turn(self, interleaved: bool) {
        for j in 0..self.half {
            let (p, q) = if interleaved { (2 * j, 2 * j + 1) } else { (j, j + self.half) };
            // SAFETY: the caller's promise.
            unsafe {
                let (a, b) = ((*self.x.add(p)).widen(), (*self.x.add(q)).widen());
                let (c, s) = ((*self.cos.add(j)).widen(), (*self.sin.add(j)).widen());
                *self.out.add(p) = T::narrow(T::sub(T::mul(a, c), T::mul(b, s)));
                *self.out.add(q) = T::narrow(T::add(T::mul(b, c), T::mul(a, s)));
            }
        }
    }
}

impl<T: Packed> Kernel for Row<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut j = 0;
        while j < self.half {
            let n = (self.half - j).min(LANES);
            // SAFETY: anyone who made the row promised its memory; j + n ≤ half.
            unsafe {
                let (a, b) = (T::load(s, self.x.add(j), n), T::load(s, self.x.add(self.half + j), n));
                let (c, t) = (T::load(s, self.cos.add(j), n), T::load(s, self.sin.add(j), n));
                T::store(s, self.out.add(j), n, s.neg_mul_add(b, t, s.mul(a, c)));
                T::store(s, self.out.add(self.half + j), n, s.mul_add(b, c, s.mul(a, t)));
            }
            j += n;
        }
    }
}
