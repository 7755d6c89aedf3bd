//! Reductions over any axes: rows and columns of f32 and 16-bit floats by the vector kernels, other rows in loops that are compiled for each
//! instruction set, other columns side by side, the rest one by one.

use half::{bf16, f16};
use rlx_ir::op::ReduceOp;
use rlx_ir::{DType, Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::matmul::is_packed;
use super::{
    BindCx, CompileCx, Needs, RunCx, Shared, StepKernel, WORTH_NANOS, mismatch, no_kernel, packed_type,
};
use crate::gemm::Packed;
use crate::isa::Kernel;
use crate::layout::{At, Bound, Layout, collapse};
use crate::rows::{self, Columns, Reduction, Rows};
use crate::simd::{LANES, Simd};

/// Columns that are reduced side by side.
const BLOCK: usize = 128;

/// Partial results of a row that take turns, so that they are computed in vectors.
const CHAINS: usize = 16;

/// Elements of a piece of a row, where a row is [`FEWEST`] of them or more and there are too few rows for all threads.
pub(super) const PIECE: usize = 32 << 10;

/// Pieces of a row at least, and of more rows none is cut.
const FEWEST: usize = 4;
const MANY_ROWS: usize = 16;

/// Whether there is a reduction of this element type.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let dtype = graph.shape(node.inputs[0]).dtype();
    let known =
        dtype.is_int() || matches!(dtype, DType::F32 | DType::F64 | DType::F16 | DType::BF16 | DType::Bool);
    if known { Claim::Native } else { Claim::No(format!("there is no reduction of {dtype}")) }
}

/// The kernel of a reduction.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let Op::Reduce { op, axes, keep_dim } = cx.node().op.clone() else {
        return Err(no_kernel(&cx.node().op, "it is no reduction"));
    };
    Ok(Box::new(Reduce::new(op, axes, keep_dim, cx.step.outputs[0].dtype)))
}

/// A bound reduction.
#[derive(Debug, Clone)]
pub(super) struct Reduce {
    op: ReduceOp,
    /// Whether it is the squares of the elements that are reduced.
    squares: bool,
    axes: Vec<usize>,
    keep_dim: bool,
    dtype: DType,
    pub(super) from: At,
    pub(super) to: At,
    /// The dimensions that stay, in the result and in the input.
    pub(super) kept: [Layout; 2],
    /// The dimensions that go.
    pub(super) reduced: Layout,
    pub(super) worth: bool,
}

impl Reduce {
    pub(super) fn new(op: ReduceOp, axes: Vec<usize>, keep_dim: bool, dtype: DType) -> Reduce {
        Reduce {
            op,
            squares: false,
            axes,
            keep_dim,
            dtype,
            from: At::NOWHERE,
            to: At::NOWHERE,
            kept: [Layout::SCALAR; 2],
            reduced: Layout::SCALAR,
            worth: false,
        }
    }

    /// As it is, but of the squares of the elements.
    pub(super) fn of_squares(self) -> Reduce {
        Reduce { squares: true, ..self }
    }

    /// Binds the operand and the result.
    pub(super) fn bind_to(&mut self, x: &Bound, y: &Bound) -> Result<Needs> {
        let (mut kept_x, mut kept_y, mut reduced) = (Layout::SCALAR, Layout::SCALAR, Layout::SCALAR);
        let mut at = 0;
        for i in 0..x.layout.rank() {
            let (dim, stride) = (x.layout.dims()[i], x.layout.strides()[i]);
            if self.axes.contains(&i) {
                reduced.push(dim, stride);
                at += usize::from(self.keep_dim);
                continue;
            }
            if y.dims().get(at) != Some(&dim) {
                return Err(mismatch(format!("a reduction of {:?} to {:?}", x.dims(), y.dims())));
            }
            kept_x.push(dim, stride);
            kept_y.push(dim, y.layout.strides()[at]);
            at += 1;
        }
        (self.from, self.to) = (x.at, y.at);
        self.kept = [kept_y, kept_x];
        collapse(&mut self.kept);
        let mut one = [reduced];
        collapse(&mut one);
        self.reduced = one[0];
        let fast = self.as_rows().or(self.as_columns()).is_some();
        let nanos = x.layout.elements() as f64 * if fast { 0.06 } else { 0.7 };
        self.worth = nanos > WORTH_NANOS;
        let pieces = self.pieces().or(self.stretches());
        let partial = pieces.map_or(0, |pieces| self.kept[0].elements() * pieces);
        Ok(Needs { shared_scratch: partial * size_of::<f32>(), ..Needs::time(nanos) })
    }
}

impl StepKernel for Reduce {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        self.bind_to(&cx.inputs[0], &cx.outputs[0])
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        // SAFETY: the caller's promise; the types are those of the operands.
        unsafe {
            if let (Some(how), Some(pieces)) = (self.as_rows(), self.pieces()) {
                self.rows_in_pieces(cx, how, pieces);
                return Ok(());
            }
            if let Some(how) = self.as_rows() {
                packed_type!(self.dtype, T => self.rows::<T>(cx, how), _ => {});
                return Ok(());
            }
            if let (Some(how), Some(stretches)) = (self.as_columns(), self.stretches())
                && cx.threads(self.worth) > 1
            {
                packed_type!(self.dtype, T => self.columns_in_stretches::<T>(cx, how, stretches), _ => {});
                return Ok(());
            }
            if let Some(how) = self.as_columns() {
                packed_type!(self.dtype, T => self.columns::<T>(cx, how), _ => {});
                return Ok(());
            }
            match self.dtype {
                DType::F32 => self.generic::<f32>(cx),
                DType::F64 => self.generic::<f64>(cx),
                DType::F16 => self.generic::<f16>(cx),
                DType::BF16 => self.generic::<bf16>(cx),
                DType::I8 => self.generic::<i8>(cx),
                DType::I16 => self.generic::<i16>(cx),
                DType::I32 => self.generic::<i32>(cx),
                DType::I64 => self.generic::<i64>(cx),
                DType::U16 => self.generic::<u16>(cx),
                DType::U32 => self.generic::<u32>(cx),
                DType::U64 => self.generic::<u64>(cx),
                DType::Bool => self.generic::<Truth>(cx),
                _ => self.generic::<u8>(cx),
            }
        }
        Ok(())
    }
}

impl Reduce {
    /// The reduction that vector kernels do.
    fn in_vectors(&self) -> Option<Reduction> {
        let how = match (self.op, self.squares) {
            (ReduceOp::Sum, false) => Reduction::Sum,
            (ReduceOp::Mean, false) => Reduction::Mean,
            (ReduceOp::Max, false) => Reduction::Max,
            (ReduceOp::Min, false) => Reduction::Min,
            (ReduceOp::Sum, true) => Reduction::SumOfSquares,
            (ReduceOp::Mean, true) => Reduction::MeanOfSquares,
            _ => return None,
        };
        is_packed(self.dtype).then_some(how)
    }

    /// The vector kernel for contiguous rows.
    pub(super) fn as_rows(&self) -> Option<Reduction> {
        let contiguous = self.reduced.rank() == 1 && self.reduced.strides()[0] == 1;
        self.in_vectors().filter(|_| contiguous)
    }

    /// The vector kernel for columns: neighbours stay, and what goes is one dimension (as of a channels-last image).
    fn as_columns(&self) -> Option<Reduction> {
        let neighbours = |l: &Layout| l.rank() > 0 && l.strides()[l.rank() - 1] == 1;
        self.in_vectors().filter(|_| self.reduced.rank() == 1 && self.kept.iter().all(neighbours))
    }

    /// # Safety
    /// As [`StepKernel::run`]; the operands must be of `T`.
    unsafe fn columns<T: Packed>(&self, cx: &mut RunCx<'_, '_>, how: Reduction) {
        let [y, x] = self.kept;
        let (from, to, isa) = (cx.shared::<T>(self.from), cx.shared::<T>(self.to), cx.isa);
        let all = self.all_columns(from.get().cast_const());
        let width = all.columns;
        let rows = y.elements().checked_div(width).unwrap_or(0);
        let most = cx.share(self.worth, rows, width, all.together(), LANES);
        let blocks = width.div_ceil(most);
        cx.parallel(self.worth, rows * blocks, &|range, _| {
            for unit in range {
                let (row, start) = (unit / blocks, unit % blocks * most);
                let x = from.get().wrapping_offset(x.outer_at(row)).wrapping_add(start).cast_const();
                let out = to.get().wrapping_offset(y.outer_at(row)).wrapping_add(start);
                let columns = Columns { x, columns: most.min(width - start), ..all };
                // SAFETY: the views are within their buffers; each result is written once.
                unsafe { rows::reduce_columns(isa, how, columns, out) };
            }
        });
    }

    /// The columns of one image, or of several whose pixels are lines.
    fn all_columns<T>(&self, x: *const T) -> Columns<T> {
        let y = &self.kept[0];
        let columns = y.dims().last().copied().unwrap_or(0);
        Columns { x, step: self.reduced.strides()[0], lines: self.reduced.elements(), columns }
    }

    /// How many stretches of lines the columns have, where threads divide lines: a thread has the same ones that it has in the step before,
    /// which wrote them.
    fn stretches(&self) -> Option<usize> {
        self.as_columns()?;
        let all = self.all_columns(std::ptr::null::<f32>());
        let rows = self.kept[0].elements().checked_div(all.columns).unwrap_or(0);
        (self.worth && rows < MANY_ROWS && all.stretches() > 1).then_some(all.stretches())
    }

    /// As [`Reduce::columns`], with the same bits: the stretches of all columns, and then what those gave.
    ///
    /// # Safety
    /// As [`StepKernel::run`]; the operands must be of `T`, and the shared scratch have room for a number of each stretch and column.
    unsafe fn columns_in_stretches<T: Packed>(
        &self,
        cx: &mut RunCx<'_, '_>,
        how: Reduction,
        stretches: usize,
    ) {
        let ([y, x], isa) = (self.kept, cx.isa);
        let (from, to) = (cx.shared::<T>(self.from), cx.shared::<T>(self.to));
        let all = self.all_columns(from.get().cast_const());
        let (width, lines) = (all.columns, all.lines);
        let rows = y.elements().checked_div(width).unwrap_or(0);
        let partial = Shared::new(cx.shared_scratch.cast::<f32>());
        cx.parallel(self.worth, rows * stretches, &|range, _| {
            for unit in range {
                let (row, stretch) = (unit / stretches, unit % stretches);
                let x = from.get().wrapping_offset(x.outer_at(row)).cast_const();
                let out = partial.get().wrapping_add(unit * width);
                // SAFETY: the views are within their buffers; each number of the scratch is written once.
                unsafe { rows::reduce_stretch(isa, how, Columns { x, ..all }, stretch, out) };
            }
        });
        for row in 0..rows {
            let x = partial.get().wrapping_add(row * stretches * width).cast_const();
            let partial = Columns { x, step: width as isize, lines: stretches, columns: width };
            let out = to.get().wrapping_offset(y.outer_at(row));
            // SAFETY: all stretches were written, and the results are the row's own.
            unsafe { rows::join_stretches(isa, how, partial, lines, out) };
        }
    }

    /// # Safety
    /// As [`StepKernel::run`]; the operands must be of `T`.
    unsafe fn rows<T: Packed>(&self, cx: &mut RunCx<'_, '_>, how: Reduction) {
        let columns = self.reduced.elements();
        let (from, to, isa) = (cx.shared::<T>(self.from), cx.shared::<T>(self.to), cx.isa);
        // Rows that are equally far apart are one call.
        let [y, x] = self.kept;
        let together = y.dims().last().copied().unwrap_or(1);
        let [out_step, step] = [y, x].map(|l| l.strides().last().copied().unwrap_or(0));
        cx.parallel(self.worth, y.elements(), &|range, _| {
            let mut row = range.start;
            while row < range.end {
                let rows = (together - row % together).min(range.end - row);
                let x = from.get().wrapping_offset(x.at(row)).cast_const();
                let out = to.get().wrapping_offset(y.at(row));
                // SAFETY: the views are within their buffers; each result is written once.
                unsafe { rows::reduce_rows(isa, how, Rows { x, step, rows, columns }, out, out_step) };
                row += rows;
            }
        });
    }

    /// How many pieces each row is cut into, where rows of f32 are long and few.
    pub(super) fn pieces(&self) -> Option<usize> {
        let (rows, pieces) = (self.kept[0].elements(), self.reduced.elements().div_ceil(PIECE));
        (self.dtype == DType::F32 && self.as_rows().is_some() && rows < MANY_ROWS && pieces >= FEWEST)
            .then_some(pieces)
    }

    /// As [`Reduce::rows`]: pieces of all rows, and then what those gave.
    ///
    /// # Safety
    /// As [`StepKernel::run`]; the operands must be of f32, and the shared scratch have room for a number of each piece.
    unsafe fn rows_in_pieces(&self, cx: &mut RunCx<'_, '_>, how: Reduction, pieces: usize) {
        let ([y, x], columns, isa) = (self.kept, self.reduced.elements(), cx.isa);
        let (from, to) = (cx.shared::<f32>(self.from), cx.shared::<f32>(self.to));
        let partial = Shared::new(cx.shared_scratch.cast::<f32>());
        cx.parallel(self.worth, y.elements() * pieces, &|range, _| {
            for piece in range {
                let (row, start) = (piece / pieces, piece % pieces * PIECE);
                let x = from.get().wrapping_offset(x.at(row)).wrapping_add(start).cast_const();
                let one = Rows { x, step: 0, rows: 1, columns: PIECE.min(columns - start) };
                // SAFETY: the views are within their buffers; each number of the scratch is written once.
                unsafe { rows::reduce_rows(isa, how.of_parts(), one, partial.get().wrapping_add(piece), 1) };
            }
        });
        for row in 0..y.elements() {
            let (partial, out) =
                (partial.get().wrapping_add(row * pieces), to.get().wrapping_offset(y.at(row)));
            let all = Rows { x: partial.cast_const(), step: 0, rows: 1, columns: pieces };
            // SAFETY: all pieces were written, and the result is the row's own.
            unsafe {
                rows::reduce_rows(isa, how.of_partial().of_parts(), all, out, 1);
                if how.is_mean() {
                    *out /= columns as f32;
                }
            }
        }
    }

    /// Row by row where rows are contiguous; else blocks of neighbouring results, so that the input is read along its lines.
    ///
    /// # Safety
    /// As [`StepKernel::run`]; the operands must be of `T`.
    unsafe fn generic<T: Element>(&self, cx: &mut RunCx<'_, '_>) {
        let [y, x] = self.kept;
        let is_line = self.reduced.rank() == 1 && self.reduced.strides()[0] == 1;
        if const { T::IN_VECTORS } && is_line && !self.squares {
            let (from, to, isa) = (cx.shared::<T>(self.from), cx.shared::<T>(self.to), cx.isa);
            let (op, count) = (self.op, self.reduced.elements());
            return cx.parallel(self.worth, y.elements(), &|range, _| {
                for row in range {
                    // SAFETY: the views are within their buffers; each result is written once.
                    unsafe {
                        let row_at = from.get().wrapping_offset(x.at(row)).cast_const();
                        let line = std::slice::from_raw_parts(row_at, count);
                        to.get().wrapping_offset(y.at(row)).write(isa.run(Line { op, line }));
                    }
                }
            });
        }
        let rank = y.rank();
        let width = if rank == 0 { 1 } else { y.dims()[rank - 1] };
        let (y_step, x_step) =
            if rank == 0 { (0, 0) } else { (y.strides()[rank - 1], x.strides()[rank - 1]) };
        let rows = y.elements().checked_div(width).unwrap_or(0);
        let blocks = width.div_ceil(BLOCK);
        let count = self.reduced.elements();
        let (from, to) = (cx.shared::<T>(self.from), cx.shared::<T>(self.to));
        cx.parallel(self.worth, rows * blocks, &|range, _| {
            for unit in range {
                let (row, start) = (unit / blocks, unit % blocks * BLOCK);
                let n = BLOCK.min(width - start);
                let mut sums = [T::identity(self.op); BLOCK];
                let at = x.outer_at(row) + start as isize * x_step;
                // SAFETY: the views are within their buffers; each result is written once.
                unsafe {
                    let line = from.get().wrapping_offset(at);
                    for i in 0..count {
                        let p = line.wrapping_offset(self.reduced.at(i));
                        for (j, sum) in sums[..n].iter_mut().enumerate() {
                            let x = *p.wrapping_offset(j as isize * x_step);
                            *sum = T::join(self.op, *sum, if self.squares { x.square() } else { x });
                        }
                    }
                    let out = to.get().wrapping_offset(y.outer_at(row) + start as isize * y_step);
                    for (j, &sum) in sums[..n].iter().enumerate() {
                        *out.wrapping_offset(j as isize * y_step) = T::finish(self.op, sum, count);
                    }
                }
            }
        });
    }
}

/// A row of elements that becomes one.
struct Line<'a, T> {
    op: ReduceOp,
    line: &'a [T],
}

impl<T: Element> Kernel for Line<'_, T> {
    type Output = T;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> T {
        let Line { op, line } = self;
        // An op that is known is a loop of its own.
        let sum = match op {
            ReduceOp::Prod => join_line(ReduceOp::Prod, line),
            ReduceOp::Max => join_line(ReduceOp::Max, line),
            ReduceOp::Min => join_line(ReduceOp::Min, line),
            _ => join_line(ReduceOp::Sum, line),
        };
        T::finish(op, sum, line.len())
    }
}

#[inline(always)]
fn join_line<T: Element>(op: ReduceOp, line: &[T]) -> T::Sum {
    let mut sums = [T::identity(op); CHAINS];
    let (chunks, rest) = line.as_chunks::<CHAINS>();
    for chunk in chunks {
        for (sum, &x) in sums.iter_mut().zip(chunk) {
            *sum = T::join(op, *sum, x);
        }
    }
    for (sum, &x) in sums.iter_mut().zip(rest) {
        *sum = T::join(op, *sum, x);
    }
    let mut half = CHAINS / 2;
    while half > 0 {
        for i in 0..half {
            sums[i] = T::merge(op, sums[i], sums[i + half]);
        }
        half /= 2;
    }
    sums[0]
}

/// An element type that is reduced in loops.
trait Element: Copy + Send + Sync + 'static {
    /// Whether compilers have vectors for its loops.
    const IN_VECTORS: bool;
    /// What partial results are kept in: wide enough not to lose anything on the way.
    type Sum: Copy;
    /// What no elements give.
    fn identity(op: ReduceOp) -> Self::Sum;
    fn join(op: ReduceOp, sum: Self::Sum, x: Self) -> Self::Sum;
    /// The product with itself, as an element.
    fn square(self) -> Self;
    /// Two partial results as one.
    fn merge(op: ReduceOp, a: Self::Sum, b: Self::Sum) -> Self::Sum;
    fn finish(op: ReduceOp, sum: Self::Sum, count: usize) -> Self;
}

macro_rules! floats {
    ($($t:ty: $in_vectors:expr, $widen:expr, $narrow:expr;)*) => {$(
        impl Element for $t {
            const IN_VECTORS: bool = $in_vectors;
            type Sum = f64;
            fn identity(op: ReduceOp) -> f64 {
                match op {
                    ReduceOp::Prod => 1.0,
                    ReduceOp::Max => f64::NEG_INFINITY,
                    ReduceOp::Min => f64::INFINITY,
                    _ => 0.0,
                }
            }
            #[inline(always)]
            fn join(op: ReduceOp, sum: f64, x: $t) -> f64 {
                Self::merge(op, sum, $widen(x))
            }
            #[inline(always)]
            fn square(self) -> $t {
                self * self
            }
            #[inline(always)]
            fn merge(op: ReduceOp, sum: f64, x: f64) -> f64 {
                match op {
                    ReduceOp::Prod => sum * x,
                    ReduceOp::Max => if x > sum || x.is_nan() { x } else { sum },
                    ReduceOp::Min => if x < sum || x.is_nan() { x } else { sum },
                    _ => sum + x,
                }
            }
            fn finish(op: ReduceOp, sum: f64, count: usize) -> $t {
                $narrow(if op == ReduceOp::Mean { sum / count as f64 } else { sum })
            }
        }
    )*};
}
floats! {
    f32: true, f64::from, |x: f64| x as f32;
    f64: true, f64::from, f64::from;
    f16: false, f16::to_f64, f16::from_f64;
    bf16: false, bf16::to_f64, bf16::from_f64;
}

macro_rules! integers {
    ($($t:ty: $sum:ty;)*) => {$(
        impl Element for $t {
            // Not of sums in 128 bits.
            const IN_VECTORS: bool = size_of::<$sum>() <= size_of::<u64>();
            type Sum = $sum;
            fn identity(op: ReduceOp) -> $sum {
                match op {
                    ReduceOp::Prod => 1,
                    ReduceOp::Max => <$t>::MIN as $sum,
                    ReduceOp::Min => <$t>::MAX as $sum,
                    _ => 0,
                }
            }
            #[inline(always)]
            fn join(op: ReduceOp, sum: $sum, x: $t) -> $sum {
                Self::merge(op, sum, x as $sum)
            }
            #[inline(always)]
            fn square(self) -> $t {
                self.wrapping_mul(self)
            }
            #[inline(always)]
            fn merge(op: ReduceOp, sum: $sum, x: $sum) -> $sum {
                match op {
                    ReduceOp::Prod => sum.wrapping_mul(x),
                    ReduceOp::Max => sum.max(x),
                    ReduceOp::Min => sum.min(x),
                    _ => sum.wrapping_add(x),
                }
            }
            fn finish(op: ReduceOp, sum: $sum, count: usize) -> $t {
                (if op == ReduceOp::Mean { sum / count.max(1) as $sum } else { sum }) as $t
            }
        }
    )*};
}
integers! {
    i8: i64; i16: i64; i32: i64; i64: i128;
    u8: i64; u16: i64; u32: i64; u64: i128;
}

/// A bool as it is stored: any non-zero byte is true.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Truth(u8);

impl Element for Truth {
    const IN_VECTORS: bool = false;
    type Sum = bool;
    fn identity(op: ReduceOp) -> bool {
        op == ReduceOp::Min
    }
    #[inline(always)]
    fn join(op: ReduceOp, sum: bool, x: Truth) -> bool {
        Self::merge(op, sum, x.0 != 0)
    }
    #[inline(always)]
    fn square(self) -> Truth {
        self
    }
    #[inline(always)]
    fn merge(op: ReduceOp, a: bool, b: bool) -> bool {
        if op == ReduceOp::Min { a && b } else { a || b }
    }
    fn finish(_: ReduceOp, sum: bool, _: usize) -> Truth {
        Truth(u8::from(sum))
    }
}
