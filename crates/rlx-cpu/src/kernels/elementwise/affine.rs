//! A factor and a summand for each column, `x·scale + shift`, and bounds: what a batch norm and the ReLU behind it are where channels are last.
//!
//! A tile program looks at what to do next for each four vectors, and at where operands begin for each row, which takes longer than the arithmetic of a
//! row of a few hundred elements. Here both are known. Bits are those of the [`Chain`](super::chain::Chain).

use std::ops::Range;

use rlx_ir::DType;
use rlx_math::clip;

use super::chain::{load_each, store_each};
use super::instr::Code;
use super::{Bases, Elementwise};
use crate::gemm::Packed;
use crate::isa::{Isa, Kernel};
use crate::kernels::{RunCx, packed_type};
use crate::layout::At;
use crate::simd::{LANES, Simd};

/// Vectors that are computed together.
const TOGETHER: usize = 4;
const TWO: usize = 2;

/// Elements that are worth a unit of work.
const UNIT: usize = 4096;

/// What is done to each element: it is of `dtype`, and what is computed is f32.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AffineOf {
    pub(super) dtype: DType,
    pub(super) bounds: Option<(f32, f32)>,
}

/// The same, and where operands are: rows of `columns`, of which the next one is `strides` behind, of x and of the result.
#[derive(Debug, Clone, Copy)]
pub(super) struct Affine {
    of: AffineOf,
    x: At,
    scale: At,
    shift: At,
    out: At,
    strides: [isize; 2],
    rows: usize,
    columns: usize,
}

impl Affine {
    /// The step as one, if it is: its operands have been bound, and their dimensions collapsed.
    pub(super) fn of(step: &Elementwise) -> Option<Affine> {
        let (&[out], [instr]) = (&step.outputs[..], &step.program.instrs[..]) else { return None };
        let Code::Chain(chain) = instr.code else { return None };
        let of = chain.as_affine()?;
        let made = step.program.outputs.iter().all(|made| made.value == instr.out);
        let args = &instr.args[..3];
        let operand = |i: usize| {
            let at = usize::from(args[i]);
            Some((step.inputs.get(at)?.at, step.layouts.get(step.outputs.len() + at)?.strides()))
        };
        let [(x, x_strides), (scale, by_scale), (shift, by_shift)] = [operand(0)?, operand(1)?, operand(2)?];
        let layout = step.layouts.first()?;
        let (&[rows, columns], &[out_stride, 1], &[x_stride, 1]) =
            (layout.dims(), layout.strides(), x_strides)
        else {
            return None;
        };
        let by_column = by_scale == [0, 1] && by_shift == [0, 1];
        let rewrites = out.at.buffer == scale.buffer || out.at.buffer == shift.buffer;
        let fits = made && by_column && !rewrites && out.early && step.program.tables.is_empty();
        fits.then_some(Affine {
            of,
            x,
            scale,
            shift,
            out: out.at,
            strides: [x_stride, out_stride],
            rows,
            columns,
        })
    }

    /// Computes all rows.
    ///
    /// # Safety
    /// As [`StepKernel::run`](crate::kernels::StepKernel::run).
    pub(super) unsafe fn run(&self, cx: &mut RunCx<'_, '_>, worth: bool) {
        let (bases, isa) = (Bases(cx.bases), cx.isa);
        let rows = UNIT.div_ceil(self.columns.max(1));
        cx.parallel(worth, self.rows.div_ceil(rows), &|units, _| {
            let range = units.start * rows..(units.end * rows).min(self.rows);
            // SAFETY: the caller's promise; each unit has rows of its own.
            unsafe { self.run_rows(isa, bases, range) }
        });
    }

    /// # Safety
    /// As [`Affine::run`]; there must be such rows.
    unsafe fn run_rows(&self, isa: Isa, bases: Bases<'_>, rows: Range<usize>) {
        let [scale, shift] = [self.scale, self.shift].map(|at| bases.at(at).cast::<f32>().cast_const());
        let [x_stride, out_stride] = self.strides;
        packed_type!(self.of.dtype, T => {
            let run = Rows::<T> {
                x: bases.at(self.x).cast::<T>().wrapping_offset(rows.start as isize * x_stride),
                out: bases.at(self.out).cast::<T>().wrapping_offset(rows.start as isize * out_stride),
                strides: self.strides,
                scale,
                shift,
                rows: rows.len(),
                columns: self.columns,
                bounds: self.of.bounds,
            };
            T::run(isa, run)
        }, _ => {});
    }
}

/// Rows of one thread.
struct Rows<T> {
    x: *const T,
    out: *mut T,
    strides: [isize; 2],
    scale: *const f32,
    shift: *const f32,
    rows: usize,
    columns: usize,
    bounds: Option<(f32, f32)>,
}

impl<T: Packed> Kernel for Rows<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: `run_rows` was promised the memory.
        unsafe {
            match self.bounds {
                Some(bounds) => self.all::<S, true>(s, bounds),
                None => self.all::<S, false>(s, (0.0, 0.0)),
            }
        }
    }
}

impl<T: Packed> Rows<T> {
    /// # Safety
    /// The memory must be as promised to [`Affine::run`].
    #[inline(always)]
    unsafe fn all<S: Simd, const BOUNDED: bool>(&self, s: S, bounds: (f32, f32)) {
        let [x_stride, out_stride] = self.strides;
        let n = self.columns;
        for row in 0..self.rows as isize {
            let (x, out) =
                (self.x.wrapping_offset(row * x_stride), self.out.wrapping_offset(row * out_stride));
            let mut i = 0;
            // SAFETY: the caller's promise; all vectors are within the row.
            unsafe {
                while i + TOGETHER * LANES <= n {
                    self.vectors::<S, TOGETHER, BOUNDED>(s, (x, out), i, LANES, bounds);
                    i += TOGETHER * LANES;
                }
                if i + TWO * LANES <= n {
                    self.vectors::<S, TWO, BOUNDED>(s, (x, out), i, LANES, bounds);
                    i += TWO * LANES;
                }
                while i < n {
                    self.vectors::<S, 1, BOUNDED>(s, (x, out), i, LANES.min(n - i), bounds);
                    i += LANES;
                }
            }
        }
    }

    /// `V` vectors of `n` elements each, from column `i` on; of whole vectors unless it is one.
    ///
    /// # Safety
    /// They must be within the row.
    #[inline(always)]
    unsafe fn vectors<S: Simd, const V: usize, const BOUNDED: bool>(
        &self,
        s: S,
        (x, out): (*const T, *mut T),
        i: usize,
        n: usize,
        (lo, hi): (f32, f32),
    ) {
        let [mut y, mut scale, mut shift] = [[s.zero(); V]; 3];
        // SAFETY: the caller's promise.
        unsafe {
            load_each(s, x, 1, i, n, &mut y);
            load_each(s, self.scale, 1, i, n, &mut scale);
            load_each(s, self.shift, 1, i, n, &mut shift);
            // (Loops: a closure would be a function without the instruction set.)
            for k in 0..V {
                y[k] = s.add(s.mul(y[k], scale[k]), shift[k]);
                if BOUNDED {
                    y[k] = clip(s, y[k], lo, hi);
                }
            }
            store_each(s, out.add(i), n, y);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use half::bf16;
    use rlx_ir::op::{Activation, BinaryOp};
    use rlx_ir::{Graph, Op, Shape};

    use super::*;
    use crate::kernels::elementwise::chain::Chain;
    use crate::kernels::elementwise::halves::Conversion;
    use crate::kernels::elementwise::instr::{Results, Source};
    use crate::kernels::elementwise::program::of_body;
    use crate::kernels::elementwise::vectors::Binary;
    use crate::layout::{Bound, Layout};
    use crate::math::Unary;

    /// max(x·scale + shift, 0) for each channel, of bf16, as a step on images whose channels are last.
    fn norm(channels: usize, between: DType) -> Elementwise {
        let dims = [1, channels, 3, 5];
        let image = Layout::new(&dims, &[0, 1, 5 * channels as isize, channels as isize]);
        let mut g = Graph::new("norm");
        let x = g.input("x", Shape::new(&dims, DType::BF16));
        let of_channels = |g: &mut Graph, name| g.input(name, Shape::new(&[channels, 1, 1], between));
        let (scale, shift) = (of_channels(&mut g, "scale"), of_channels(&mut g, "shift"));
        let y = g.try_add(Op::Cast { to: between }, &[x]).unwrap();
        let y = g.try_add(Op::Binary(BinaryOp::Mul), &[y, scale]).unwrap();
        let y = g.try_add(Op::Binary(BinaryOp::Add), &[y, shift]).unwrap();
        let y = g.try_add(Op::Activation(Activation::Relu), &[y]).unwrap();
        let y = g.try_add(Op::Cast { to: DType::BF16 }, &[y]).unwrap();
        g.set_outputs(vec![y]);
        let mut step = Elementwise::new(Arc::new(of_body(&g, None).unwrap()));
        let bound = |buffer, dtype, layout| Bound { at: At { buffer, offset: 0 }, dtype, layout };
        let factors = Layout::dense(&[channels, 1, 1]);
        let inputs = [bound(0, DType::BF16, image), bound(1, between, factors), bound(2, between, factors)];
        step.bind_with(&inputs, &[bound(3, DType::BF16, image)], None).unwrap();
        step
    }

    #[test]
    fn a_batch_norm_of_channels_that_are_last_is_a_factor_and_a_summand() {
        let affine = norm(64, DType::F32).affine.unwrap();
        assert_eq!((affine.rows, affine.columns, affine.strides), (15, 64, [64, 64]));
        assert_eq!(affine.of, AffineOf { dtype: DType::BF16, bounds: Some((0.0, f32::INFINITY)) });
        // Rounded after each op: that is not computed here.
        assert!(norm(64, DType::BF16).affine.is_none());
    }

    /// Rows of every length, apart in memory, with the bits of the chain.
    #[test]
    fn bits_are_those_of_the_chain() {
        const MOST: usize = 131;
        let values = |n: usize, scale: f32| (0..n).map(move |i| (i as f32 * scale).sin());
        let x: Vec<bf16> = values(3 * MOST, 0.7).map(bf16::from_f32).collect();
        let [scale, shift]: [Vec<f32>; 2] = [1.3, 2.9].map(|by| values(MOST, by).collect());
        let chain = |bounded| {
            let codes = [
                Code::Half(Conversion::Widen, DType::BF16),
                Code::Binary(Binary::Mul, DType::F32),
                Code::Binary(Binary::Add, DType::F32),
                Code::Unary(Unary::Relu, DType::F32),
                Code::Half(Conversion::Narrow, DType::BF16),
            ];
            let codes = codes.into_iter().enumerate().filter(|(i, _)| bounded || *i != 3);
            let chain = codes.map(|(_, code)| Chain::of(code).unwrap());
            chain.reduce(|all, link| all.then(link, 0).unwrap()).unwrap()
        };
        let source = |ptr: *const u8| Source { ptr, step: 1 };
        for (isa, bounded) in Isa::available().into_iter().flat_map(|isa| [(isa, true), (isa, false)]) {
            let bounds = chain(bounded).as_affine().unwrap().bounds;
            for columns in 1..=MOST {
                let (mut got, mut wanted) = (vec![bf16::ONE; 3 * MOST], vec![bf16::ONE; 3 * MOST]);
                let strides = [MOST as isize; 2];
                let (x, scale, shift) = (x.as_ptr(), scale.as_ptr(), shift.as_ptr());
                let out = got.as_mut_ptr();
                bf16::run(isa, Rows { x, out, strides, scale, shift, rows: 3, columns, bounds });
                for row in 0..3 {
                    let x = source(x.wrapping_add(row * MOST).cast());
                    let sources = [x, source(scale.cast()), source(shift.cast()), x, x];
                    let out = wanted[row * MOST..].as_mut_ptr().cast();
                    // SAFETY: operands and the result have `columns` elements.
                    unsafe { chain(bounded).run(isa, &sources, Results::cached(out, columns)) };
                }
                assert_eq!(got, wanted, "{columns} columns on {isa}");
            }
        }
    }
}
