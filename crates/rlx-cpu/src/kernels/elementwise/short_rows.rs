//! An op of two operands over rows of a few vectors that do not follow each other in memory, or of which each has one value: vectors over their norms,
//! heads of rows of query, key and value.
//!
//! A tile program has tiles across such rows, for which operands are copied together. That takes longer than the op, which is done here where
//! operands are. The result of each element is the op's, so bits are the same.

use std::ops::Range;

use rlx_ir::DType;

use super::instr::Code;
use super::vectors::{Binary, with_instruction};
use super::{Bases, Elementwise};
use crate::gemm::Packed;
use crate::isa::{Isa, Kernel};
use crate::kernels::{RunCx, packed_type};
use crate::layout::{Layout, Walk};
use crate::simd::{LANES, Simd};

/// Elements that are worth a unit of work.
const UNIT: usize = 4096;

/// The op, and which of the step's inputs its operands are.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShortRows {
    op: Binary,
    dtype: DType,
    args: [usize; 2],
}

impl ShortRows {
    /// The step as one, if it is: its operands have been bound, and their dimensions collapsed.
    pub(super) fn of(step: &Elementwise) -> Option<ShortRows> {
        let (&[out], [instr]) = (&step.outputs[..], &step.program.instrs[..]) else { return None };
        let Code::Binary(op, dtype) = instr.code else { return None };
        let args = [0, 1].map(|i| usize::from(instr.args[i]));
        let made = step.program.outputs.iter().all(|made| made.value == instr.out);
        let steps = |l: &Layout| l.strides().last().copied();
        // One value of a row must outlive a result that is written over it.
        let fits = |&arg: &usize| {
            let (Some(walk), Some(layout)) = (step.inputs.get(arg), step.layouts.get(1 + arg)) else {
                return false;
            };
            steps(layout) == Some(1) || steps(layout) == Some(0) && walk.at.buffer != out.at.buffer
        };
        let short = !step.by_row && step.rows > 1 && step.inner >= LANES;
        let all = short && made && out.early && op != Binary::Pow && step.program.tables.is_empty();
        let moves = step.layouts.iter().any(|l| !l.is_dense() && l.strides().iter().any(|&s| s != 0));
        let written = step.layouts.first().and_then(steps) == Some(1);
        (all && moves && written && args.iter().all(fits)).then_some(ShortRows { op, dtype, args })
    }

    /// Computes all rows of the step.
    ///
    /// # Safety
    /// As [`StepKernel::run`](crate::kernels::StepKernel::run).
    pub(super) unsafe fn run(&self, step: &Elementwise, cx: &mut RunCx<'_, '_>) {
        let (bases, isa) = (Bases(cx.bases), cx.isa);
        let rows = UNIT.div_ceil(step.inner);
        cx.parallel(step.worth, step.rows.div_ceil(rows), &|units, _| {
            let range = units.start * rows..(units.end * rows).min(step.rows);
            // SAFETY: the caller's promise; each unit has rows of its own.
            unsafe { self.run_rows(step, isa, bases, range) }
        });
    }

    /// # Safety
    /// As [`ShortRows::run`]; there must be such rows.
    unsafe fn run_rows(&self, step: &Elementwise, isa: Isa, bases: Bases<'_>, rows: Range<usize>) {
        let layouts = [0, 1 + self.args[0], 1 + self.args[1]].map(|i| step.layouts[i]);
        let outer = layouts.map(|l| l.range(0, l.rank() - 1));
        let is_one = [1, 2].map(|i| layouts[i].strides().last() == Some(&0));
        let from = self.args.map(|arg| bases.at(step.inputs[arg].at).cast_const());
        packed_type!(self.dtype, T => {
            let run = Pairs::<T> {
                op: self.op,
                from: from.map(|p| p.cast()),
                is_one,
                out: bases.at(step.outputs[0].at).cast(),
                places: Walk::new(outer, rows.start),
                rows: rows.len(),
                columns: step.inner,
            };
            T::run(isa, run)
        }, _ => {});
    }
}

/// Rows of one thread.
struct Pairs<T> {
    op: Binary,
    from: [*const T; 2],
    /// Whether an operand has one value for a row.
    is_one: [bool; 2],
    out: *mut T,
    /// Where rows of the result and of the operands begin.
    places: Walk<3>,
    rows: usize,
    columns: usize,
}

impl<T: Packed> Kernel for Pairs<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Pairs { op, from: [a, b], is_one: [a_one, b_one], out, mut places, rows, columns: n } = self;
        // (Loops: a closure would be a function without the instruction set.)
        macro_rules! each {
            (|$x:ident, $y:ident| $e:expr) => {
                for _ in 0..rows {
                    let [to, x_at, y_at] = places.at();
                    let (out, a, b) =
                        (out.wrapping_offset(to), a.wrapping_offset(x_at), b.wrapping_offset(y_at));
                    // SAFETY: `run_rows` was promised the rows.
                    unsafe {
                        let (one_x, one_y) = (T::splat(s, a), T::splat(s, b));
                        let mut i = 0;
                        while i + 2 * LANES <= n {
                            let mut x = if a_one { [one_x; 2] } else { T::load_two(s, a.add(i)) };
                            let y = if b_one { [one_y; 2] } else { T::load_two(s, b.add(i)) };
                            for k in 0..2 {
                                let ($x, $y) = (x[k], y[k]);
                                x[k] = $e;
                            }
                            T::store_two(s, out.add(i), x);
                            i += 2 * LANES;
                        }
                        while i < n {
                            let n = (n - i).min(LANES);
                            let $x = if a_one { one_x } else { T::load(s, a.add(i), n) };
                            let $y = if b_one { one_y } else { T::load(s, b.add(i), n) };
                            T::store(s, out.add(i), n, $e);
                            i += n;
                        }
                    }
                    places.step();
                }
            };
        }
        with_instruction!(s, op, each);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use half::{bf16, f16};
    use rlx_ir::op::BinaryOp;
    use rlx_ir::{Graph, Op, Shape};

    use super::*;
    use crate::kernels::elementwise::instr::{Results, Source};
    use crate::kernels::elementwise::program::of_body;
    use crate::kernels::elementwise::vectors::binary;
    use crate::layout::{At, Bound};

    /// Heads of a row behind each other: `[batch, rows, heads, columns]` in memory.
    fn heads([batch, heads, rows, columns]: [usize; 4]) -> Layout {
        let row = heads * columns;
        Layout::new(&[batch, heads, rows, columns], &[rows * row, columns, row, 1].map(|s| s as isize))
    }

    /// A quotient of operands as they lie, dense in the result.
    fn quotient(dtype: DType, dims: [usize; 4], layouts: [Layout; 2]) -> Elementwise {
        let mut g = Graph::new("heads");
        let inputs = layouts.map(|layout| g.input("x", Shape::new(layout.dims(), dtype)));
        let y = g.try_add(Op::Binary(BinaryOp::Div), &inputs).unwrap();
        g.set_outputs(vec![y]);
        let mut step = Elementwise::new(Arc::new(of_body(&g, None).unwrap()));
        let bound = |buffer, layout| Bound { at: At { buffer, offset: 0 }, dtype, layout };
        let inputs = [bound(0, layouts[0]), bound(1, layouts[1])];
        step.bind_with(&inputs, &[bound(2, Layout::dense(&dims))], None).unwrap();
        step
    }

    #[test]
    fn heads_and_their_norms_are_rows_of_their_own() {
        let dims = [2, 3, 5, 32];
        let norms = Layout::dense(&[2, 3, 5, 1]);
        let is = |dims, layouts| quotient(DType::F32, dims, layouts).short_rows.is_some();
        assert!(is(dims, [heads(dims), norms]));
        assert!(is(dims, [Layout::dense(&dims), norms]));
        // What follows itself in memory has long tiles, and so have long rows; very short ones are copied together.
        assert!(!is(dims, [Layout::dense(&dims); 2]));
        let (long, short) = ([2, 3, 5, 640], [2, 3, 5, 8]);
        assert!(!is(long, [heads(long), norms]) && !is(short, [heads(short), norms]));
    }

    /// Some of the rows, of every length, with the bits of the op on the row alone.
    fn check<T: Packed + PartialEq + std::fmt::Debug>(dtype: DType, number: fn(f32) -> T) {
        for columns in LANES..64 {
            let dims = [2, 3, 5, columns];
            let count = dims.iter().product::<usize>();
            let x: Vec<T> = (0..count).map(|i| number((i as f32 * 0.7).sin())).collect();
            let y: Vec<T> = (0..30).map(|i| number((i as f32 * 1.3).cos() + 1.5)).collect();
            let x_layout = heads(dims);
            for isa in Isa::available() {
                let (mut got, mut wanted) = (vec![T::zero(); count], vec![T::zero(); count]);
                let outer = [Layout::dense(&dims), x_layout, Layout::new(&dims, &[15, 5, 1, 0])];
                let outer = outer.map(|l| l.range(0, 3));
                let of_rows = |first: usize, rows: usize, out: *mut T| Pairs {
                    op: Binary::Div,
                    from: [x.as_ptr(), y.as_ptr()],
                    is_one: [false, true],
                    out,
                    places: Walk::new(outer, first),
                    rows,
                    columns,
                };
                T::run(isa, of_rows(0, 13, got.as_mut_ptr()));
                T::run(isa, of_rows(13, 17, got.as_mut_ptr()));
                for row in 0..30 {
                    let from = x_layout.outer_at(row) as usize;
                    let source = |p: *const T, step| Source { ptr: p.cast(), step };
                    let (a, b) = (source(x[from..].as_ptr(), 1), source(y[row..].as_ptr(), 0));
                    let out = wanted[row * columns..].as_mut_ptr().cast();
                    // SAFETY: operands and the result have `columns` elements.
                    unsafe { binary(isa, Binary::Div, dtype, [a, b], Results::cached(out, columns)) };
                }
                assert_eq!(got, wanted, "{columns} columns of {dtype} on {isa}");
            }
        }
    }

    #[test]
    fn bits_are_those_of_the_op() {
        check(DType::F32, |x| x);
        check(DType::F16, f16::from_f32);
        check(DType::BF16, bf16::from_f32);
    }
}
