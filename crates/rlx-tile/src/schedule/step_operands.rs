//! The operands of a step around a matmul or a convolution: which tiles are copied of them, through which views, and by which bodies.

use rlx_ir::{DType, Extent};
use rlx_kernel::UniformArg;
use rlx_kernel::schedule::{Arg, MatMulParts, MatMulRead, Scheduled, Unscheduled};

use super::matmul::{Given, Matmul, Operand};
use crate::beside::Span;
use crate::layout::CHUNK;
use crate::scalar::Scalar;
use crate::verify::is_unpacked;

/// What is multiplied, the result, and what bodies are given beside elements of the operands.
pub(super) struct Operands {
    /// Of left, right and result; then of what the left body is given, the right one, and the epilogue.
    matrices: Vec<Matrix>,
    /// How many of them the left body is given.
    of_left: usize,
    /// How many of them the epilogue is given.
    of_result: usize,
    /// The last of these is what the result is stored over.
    over: bool,
    /// Rows of the left operand are windows, whose columns are numbered through all parts.
    of_windows: bool,
}

/// An operand and where it is stored.
pub(super) struct Matrix {
    /// None for scratch memory.
    arg: Option<Arg>,
    pub(super) operand: Operand,
    span: Span,
    offset: Extent,
    /// From stored row to row, and from stored column to column.
    row: Extent,
    col: Extent,
    batch: Vec<Extent>,
}

impl Operands {
    /// Those of a step, with this result.
    ///
    /// # Errors
    /// An input that no view of a program has.
    pub(super) fn of(parts: &MatMulParts<'_>, result: Matrix) -> Scheduled<Operands> {
        let (mut matrices, mut given, mut of_left) = (Vec::new(), Vec::new(), 0);
        for (operand, sizes) in parts.operands().iter().zip([(parts.m, parts.k), (parts.k, parts.n)]) {
            of_left = given.len();
            let first = Matrix::of(&operand.reads[0], sizes)?;
            for read in &operand.reads[1..] {
                given.push(Matrix::beside(read, sizes, first.operand.transposed)?);
            }
            matrices.push(first);
        }
        matrices.push(result);
        matrices.extend(given);
        Ok(Operands { matrices, of_left, of_result: 0, over: false, of_windows: false })
    }

    /// What is multiplied as it is, and the result: a convolution's image and weights, where a window may slide over the image, or rows in groups.
    pub(super) fn as_they_are(matrices: [Matrix; 3], of_windows: bool) -> Operands {
        Operands { matrices: matrices.into(), of_left: 0, of_result: 0, over: false, of_windows }
    }

    /// The same with what the epilogue is given beside sums of these rows and columns; the last of it may be what the result is stored `over`.
    ///
    /// # Errors
    /// An input that no view of a program has.
    pub(super) fn beside(
        mut self,
        reads: &[MatMulRead],
        sizes: (Extent, Extent),
        over: bool,
    ) -> Scheduled<Operands> {
        for (i, read) in (1..).zip(reads) {
            let mut matrix = Matrix::beside(read, sizes, false)?;
            if over && i == reads.len() {
                matrix.arg = self.matrices[2].arg;
            }
            self.matrices.push(matrix);
        }
        (self.of_result, self.over) = (reads.len(), over);
        Ok(self)
    }

    /// The same with another result.
    pub(super) fn with_result(mut self, result: Matrix) -> Operands {
        self.matrices[2] = result;
        self
    }

    /// The matmul of these, without bodies, of so many dimensions of the batch.
    pub(super) fn matmul(&self, compute: DType, batch: usize) -> Matmul {
        let mut what = Matmul { batch, ..Matmul::new(compute) };
        [what.left, what.right, what.result] = [0, 1, 2].map(|i| self.matrices[i].operand);
        let given = |m: &Matrix| Given { dtype: m.operand.dtype, vector: m.operand.vector, span: m.span };
        let (operands, result) = self.matrices[3..].split_at(self.matrices.len() - 3 - self.of_result);
        let (left, right) = operands.split_at(self.of_left);
        [what.left_with, what.right_with, what.result_with] =
            [left, right, result].map(|of| of.iter().map(given).collect());
        what.over = self.over;
        what
    }

    /// Whether the rows of what is multiplied follow each other, and so do its matrices, or are all the same: of others there are no maps.
    pub(super) fn have_rows_apart(&self) -> bool {
        let at_least = |e: &Extent, n: i64| e.as_const().is_none_or(|e| e >= n);
        let follow = |m: &Matrix| at_least(&m.row, 1) && m.batch.iter().all(|stride| at_least(stride, 0));
        self.matrices[..2].iter().all(follow)
    }

    /// What the program's buffers are bound to; none for scratch memory.
    pub(super) fn bindings(&self) -> Vec<Option<Arg>> {
        let own = self.matrices.len() - usize::from(self.over);
        self.matrices[..own].iter().map(|matrix| matrix.arg).collect()
    }

    /// The values of the uniforms of all matrices. With the size of a part of the depth, and elements of the result from part to part, they have strides
    /// from part to part before those of the batch.
    pub(super) fn uniforms(&self, part: Option<(Extent, Extent)>) -> Vec<UniformArg> {
        let of_left = |i: usize| i == 0 || (3..3 + self.of_left).contains(&i);
        let along = |i: usize, matrix: &Matrix| {
            part.map(|(each, of_result)| match (i, matrix.span) {
                (0, _) if self.of_windows => Extent::Const(0),
                (2, _) => of_result,
                // Parts are whole blocks, unless one block has all of the depth.
                (_, Span::Columns(block)) => matrix.col * each.floor_div(i64::from(block)),
                // The depth runs along the columns of the left operand, and the rows of the right one.
                _ if matrix.operand.transposed == of_left(i) => matrix.row * each,
                _ => matrix.col * each,
            })
        };
        let all = self.matrices.iter().enumerate();
        all.flat_map(|(i, matrix)| matrix.uniforms(along(i, matrix))).collect()
    }
}

/// Puts the bodies of a step's operands into its matmul, whose buffers are bound to these and whose uniforms have these values.
///
/// # Errors
/// A body that cannot be written.
pub(super) fn add_prologues(
    parts: &MatMulParts<'_>,
    what: &mut Matmul,
    bindings: &[Arg],
    uniforms: &[UniformArg],
) -> Scheduled<()> {
    let buffers: Vec<_> = what.all_buffers().into_iter().zip(bindings.iter().copied()).collect();
    let uniforms: Vec<_> = what.all_uniforms().into_iter().zip(uniforms.iter().copied()).collect();
    let [left, right] = parts.operands() else { return Err(Unscheduled("no two operands".to_owned())) };
    let body = |operand| match parts.prologue(operand, &buffers, &uniforms)? {
        None => Ok(None),
        Some(kernel) => Scalar::of_kernel(kernel, operand.reads.len() - 1).map(Some),
    };
    (what.left_map, what.right_map) = (body(left)?, body(right)?);
    Ok(())
}

impl Matrix {
    /// An operand, or the result.
    pub(super) fn of(read: &MatMulRead, (rows, cols): (Extent, Extent)) -> Scheduled<Matrix> {
        let [down, across] = read.strides;
        let one = Extent::Const(1);
        let transposed = across != one && down == one && matches!(read.arg, Arg::Input(_));
        let matrix = Matrix::stored(read, (rows, cols), transposed);
        let integer = read.dtype.is_int();
        match (integer, is_unpacked(read.dtype) && matrix.operand.vector == CHUNK) {
            (true, false) => Err(Unscheduled(format!("{} that are not {CHUNK} at once", read.dtype))),
            _ => Ok(matrix),
        }
    }

    fn stored(read: &MatMulRead, (rows, cols): (Extent, Extent), transposed: bool) -> Matrix {
        let [down, across] = read.strides;
        let (row, col, length) = if transposed { (across, down, rows) } else { (down, across, cols) };
        let multiples = [read.offset, row, length].into_iter().chain(read.batch.iter().copied());
        let vector = if col == Extent::Const(1) { vector(read.dtype, multiples) } else { 1 };
        let operand = Operand { dtype: read.dtype, transposed, vector };
        let (arg, offset, batch) = (Some(read.arg), read.offset, read.batch.clone());
        Matrix { arg, operand, span: Span::One, offset, row, col, batch }
    }

    /// What is read beside an operand.
    fn beside(read: &MatMulRead, sizes: (Extent, Extent), transposed: bool) -> Scheduled<Matrix> {
        if !matches!(read.dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(Unscheduled(format!("{} beside an operand", read.dtype)));
        }
        let mut matrix = Matrix::stored(read, sizes, transposed);
        matrix.span = match read.block.map(u32::try_from) {
            // The depth runs along the columns.
            Some(Ok(n)) if transposed && n.is_multiple_of(CHUNK) => Span::Columns(n),
            Some(_) => return Err(Unscheduled(format!("blocks of other sizes than multiples of {CHUNK}"))),
            None if matrix.col == Extent::Const(0) => Span::Row,
            None => Span::One,
        };
        if matrix.span != Span::One {
            matrix.operand.vector = 1;
        }
        Ok(matrix)
    }

    /// An operand that is somewhere of the step: elements from row to row and from column to column, and from batch to batch.
    pub(super) fn at(
        arg: Arg,
        operand: Operand,
        offset: Extent,
        (row, col): (Extent, Extent),
        batch: Vec<Extent>,
    ) -> Matrix {
        Matrix { arg: Some(arg), operand, span: Span::One, offset, row, col, batch }
    }

    /// The sums of one part of the depth, of `n` columns: elements from row to row, and from batch to batch.
    pub(super) fn of_scratch(n: Extent, row: Extent, batch: Vec<Extent>) -> Matrix {
        // All other strides are multiples of the number of columns.
        let operand =
            Operand { dtype: DType::F32, transposed: false, vector: vector(DType::F32, [n].into_iter()) };
        let (offset, col) = (Extent::Const(0), Extent::Const(1));
        Matrix { arg: None, operand, span: Span::One, offset, row, col, batch }
    }

    /// The values of its uniforms; `along` is the stride of what comes before the batch, if there is such a dimension.
    fn uniforms(&self, along: Option<Extent>) -> impl Iterator<Item = UniformArg> {
        let base = match self.arg {
            Some(operand) => UniformArg::Base { operand, offset: self.offset },
            None => UniformArg::Extent(self.offset),
        };
        let strides = [self.row, self.col].into_iter().chain(along).chain(self.batch.iter().copied());
        std::iter::once(base).chain(strides.map(UniformArg::Extent))
    }
}

/// How many neighbours may be accessed at once, where all of these are multiples of the number.
pub(super) fn vector(dtype: DType, multiples: impl Iterator<Item = Extent> + Clone) -> u32 {
    let together = |v: u32| {
        let whole = |e: Extent| e.ceil_div(i64::from(v)) * i64::from(v) == e;
        v as usize * dtype.bits() <= 128 && multiples.clone().all(whole)
    };
    [8, 4, 2].into_iter().find(|&v| together(v)).unwrap_or(1)
}
