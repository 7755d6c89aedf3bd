//! Matmuls by a BLAS of the device's vendor.
//!
//! Under [`Numerics::Fast`](rlx_opt::Numerics::Fast), a device whose vendor has a library for matmuls ([`crate::GpuApi::blas`]) gives it those that it
//! [`takes`]. Into these, nothing is fused but what the library computes as it stores a product: a bias, a residual and a GELU (`epilogue`).
//!
//! The device's own kernel is compiled for such a step in any case. Whether the library does it is decided where numbers are bound, by
//! these alone (`StepMatMul::bind`), and by whether the library has an algorithm for them: so the same shapes on the same device give
//! the same bits.

use std::fmt;

use rlx_backend::extents::{Ex, ExtentTable, Values};
use rlx_ir::lir::{Operand, Step, StepKind};
use rlx_ir::ops::linalg::MatMulDims;
use rlx_ir::{DType, Dim, Graph, Node, NodeId, Op};

use epilogue::Epilogue;

pub(crate) mod epilogue;

/// The fewest rows and columns, and the least depth, with which a matmul goes to the library; smaller ones take less time to compute than
/// the pass over memory that fusing into them spares. Dimensions that are open count as large. Not measured yet.
const LEAST_SIDE: i64 = 16;
const LEAST_DEPTH: i64 = 32;
/// The most calls that a matmul may take, where its batch has no single stride.
const MOST_CALLS: i64 = 32;

/// Whether a BLAS multiplies elements of this type. Sums are f32.
pub(crate) fn multiplies(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// Whether the library is to do this matmul, wherever its operands turn out to lie.
pub fn takes(matmul: &Node, graph: &Graph) -> bool {
    let (Op::MatMul, &[lhs, rhs]) = (&matmul.op, &matmul.inputs[..]) else { return false };
    let (a, b) = (graph.shape(lhs), graph.shape(rhs));
    let dtype = matmul.shape.dtype();
    let Ok(dims) = MatMulDims::of(a, b) else { return false };
    let is_large = |d: Dim, least: i64| d.extent().as_const().is_none_or(|n| n >= least);
    // A batch with one right matrix is more rows: `[64, 1, k] · [k, n]` has 64 of them.
    let more: &[Dim] = if b.rank() == 2 { &dims.batch } else { &[] };
    let rows = more.iter().fold(dims.m.extent(), |rows, d| rows * d.extent());
    multiplies(dtype)
        && [a, b].iter().all(|s| s.dtype() == dtype)
        && !(dims.a_is_vector || dims.b_is_vector)
        && is_large(Dim::from(rows), LEAST_SIDE)
        && is_large(dims.n, LEAST_SIDE)
        && is_large(dims.k, LEAST_DEPTH)
}

/// An operand as the library is given it: a matrix whose rows or columns are contiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matrix {
    /// The module's buffer.
    pub buffer: usize,
    /// Its first element there.
    pub offset: i64,
    /// Elements from one row to the next; where it is transposed, from one column to the next.
    pub leading: i64,
    /// Whether its columns are contiguous, instead of its rows.
    pub transposed: bool,
    /// Elements from one matrix of the batch to the next.
    pub next: i64,
}

/// A matmul of a BLAS as numbers: `gelu(A·B + added + bias)`, of `m`×`k` by `k`×`n`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatMul {
    /// The type of all elements; sums are f32.
    pub dtype: DType,
    /// Rows.
    pub m: i64,
    /// What is summed over.
    pub k: i64,
    /// Columns.
    pub n: i64,
    /// The operands; what is added, and the result, which are not transposed. Where nothing is added, it is the result again.
    pub matrices: [Matrix; 4],
    /// How many matrices a call multiplies.
    pub batch: i64,
    /// The calls: what each adds to the offsets.
    pub calls: Vec<[i64; 4]>,
    /// Whether a matrix is added.
    pub adds: bool,
    /// A vector along the columns that is added to each row: the module's buffer, and its first element there.
    pub bias: Option<(usize, i64)>,
    /// Whether a GELU, by a hyperbolic tangent, is applied to the sums.
    pub gelu: bool,
}

impl MatMul {
    /// Rows and columns of the operands, of what is added and of the result.
    pub fn extents(&self) -> [[i64; 2]; 4] {
        extents(self.m, self.k, self.n)
    }

    /// Whether the library computes anything besides the product.
    pub fn has_epilogue(&self) -> bool {
        self.adds || self.bias.is_some() || self.gelu
    }
}

fn extents(m: i64, k: i64, n: i64) -> [[i64; 2]; 4] {
    [[m, k], [k, n], [m, n], [m, n]]
}

/// A step that the library does, by the numbers of its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    operands: [usize; 2],
    bias: Option<usize>,
    residual: Option<usize>,
    gelu: bool,
}

impl Taken {
    /// A matmul that the library [`takes`], alone or in a region with an [`Epilogue`].
    pub(crate) fn of(step: &Step, graph: &Graph) -> Option<Taken> {
        let node = graph.node(step.node);
        match &step.kind {
            StepKind::Op(Op::MatMul) if takes(node, graph) => {
                Some(Taken { operands: [0, 1], bias: None, residual: None, gelu: false })
            }
            StepKind::Op(Op::Region { body }) => Self::of_body(&body.graph),
            _ => None,
        }
    }

    fn of_body(body: &Graph) -> Option<Taken> {
        let (matmul, Epilogue { bias, residual, gelu, .. }) = Epilogue::of_body(body)?;
        let number = |id: NodeId| body.inputs().position(|input| input.id == id);
        let &[a, b] = &matmul.inputs[..] else { return None };
        let operands = [number(a)?, number(b)?];
        let taken =
            Taken { operands, bias: bias.and_then(number), residual: residual.and_then(number), gelu };
        takes(matmul, body).then_some(taken)
    }
}

impl fmt::Display for Taken {
    /// What is computed besides the product: `+bias+residual+gelu_approx`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.bias.is_some(), "+bias"),
            (self.residual.is_some(), "+residual"),
            (self.gelu, "+gelu_approx"),
        ];
        { parts }.iter().filter(|(is_there, _)| *is_there).try_for_each(|(_, part)| f.write_str(part))
    }
}

/// An operand of a step, as expressions: its rows, its columns, and each dimension of the batch, with extent and stride.
#[derive(Debug)]
struct StepMatrix {
    buffer: usize,
    offset: Ex,
    rows: (Ex, Ex),
    columns: (Ex, Ex),
    batch: Vec<(Ex, Ex)>,
}

impl StepMatrix {
    fn of(operand: &Operand, table: &mut ExtentTable) -> Option<StepMatrix> {
        let view = &operand.view;
        let mut axes: Vec<(Ex, Ex)> =
            view.dims.iter().zip(view.strides.iter()).map(|(&d, &s)| (table.add(d), table.add(s))).collect();
        let (columns, rows) = (axes.pop()?, axes.pop()?);
        Some(StepMatrix {
            buffer: operand.buffer.index(),
            offset: table.add(view.offset),
            rows,
            columns,
            batch: axes,
        })
    }

    /// The stride along dimension `at` of `count` of a batch of `rank` dimensions; 0 where it is repeated along that.
    fn stride(&self, at: usize, rank: usize, count: i64, values: &Values<'_>) -> Option<i64> {
        let Some(own) = (at + self.batch.len()).checked_sub(rank) else { return Some(0) };
        let (extent, stride) = self.batch[own];
        match values.get(extent) {
            extent if extent == count => Some(values.get(stride)),
            1 => Some(0),
            _ => None,
        }
    }
}

/// A vector that a step adds along its columns, as expressions.
#[derive(Debug)]
struct StepVector {
    buffer: usize,
    offset: Ex,
    stride: Ex,
}

impl StepVector {
    fn of(operand: &Operand, table: &mut ExtentTable) -> Option<StepVector> {
        let stride = table.add(*operand.view.strides.last()?);
        Some(StepVector { buffer: operand.buffer.index(), offset: table.add(operand.view.offset), stride })
    }
}

/// The matmul of a step that a BLAS may do.
#[derive(Debug)]
pub(crate) struct StepMatMul {
    dtype: DType,
    /// The operands, what is added (the result, where nothing is) and the result.
    matrices: [StepMatrix; 4],
    adds: bool,
    bias: Option<StepVector>,
    gelu: bool,
}

/// A dimension of a batch: how many, and the strides of the matrices.
#[derive(Debug, Clone, Copy)]
struct Axis {
    count: i64,
    strides: [i64; 4],
}

impl StepMatMul {
    /// The step's matmul, where a BLAS does it ([`Taken`]).
    pub(crate) fn of(step: &Step, graph: &Graph, table: &mut ExtentTable) -> Option<StepMatMul> {
        let Taken { operands: [a, b], bias, residual, gelu } = Taken::of(step, graph)?;
        let (a, b, [result]) = (step.inputs.get(a)?, step.inputs.get(b)?, &step.outputs[..]) else {
            return None;
        };
        let added = residual.map_or(Some(result), |at| step.inputs.get(at))?;
        let bias = match bias {
            Some(at) => Some(StepVector::of(step.inputs.get(at)?, table)?),
            None => None,
        };
        let mut matrix = |operand: &Operand| StepMatrix::of(operand, table);
        let matrices = [matrix(a)?, matrix(b)?, matrix(added)?, matrix(result)?];
        Some(StepMatMul { dtype: result.dtype, matrices, adds: residual.is_some(), bias, gelu })
    }

    /// The matmul for these numbers; `None` where the device's own kernel is to do it: there is nothing to sum, an operand has neither
    /// contiguous rows nor contiguous columns, a bias is not contiguous, or the batch takes too many calls.
    pub(crate) fn bind(&self, values: &Values<'_>) -> Option<MatMul> {
        let [a, b, added, result] = &self.matrices;
        let pair = |(extent, stride): (Ex, Ex)| (values.get(extent), values.get(stride));
        let ((m, _), (k, _), (n, _)) = (pair(a.rows), pair(a.columns), pair(b.columns));
        let mut strides = [a, b, added, result].map(|of| [pair(of.rows).1, pair(of.columns).1]);
        let mut m = m;
        let mut axes = self.axes(values)?;
        fold_into_rows(&mut axes, &mut m, &mut strides);
        if m < 1 || k < 1 || n < 1 {
            return None;
        }
        let (batch, calls) = split(axes)?;
        let extents = extents(m, k, n);
        let mut matrices = Vec::with_capacity(4);
        for (i, of) in self.matrices.iter().enumerate() {
            let (leading, transposed) = layout(extents[i], strides[i])?;
            let offset = values.get(of.offset);
            matrices.push(Matrix { buffer: of.buffer, offset, leading, transposed, next: batch.strides[i] });
        }
        let matrices: [Matrix; 4] = matrices.try_into().ok()?;
        let stored = |of: &Matrix| !of.transposed && (batch.count == 1 || of.next != 0);
        let bias = self.bias.as_ref().map(|of| (of.buffer, values.get(of.offset), values.get(of.stride)));
        let is_contiguous = bias.is_none_or(|(_, _, stride)| stride == 1 || n == 1);
        (matrices[2..].iter().all(stored) && is_contiguous).then_some(MatMul {
            dtype: self.dtype,
            m,
            k,
            n,
            matrices,
            batch: batch.count,
            calls,
            adds: self.adds,
            bias: bias.map(|(buffer, offset, _)| (buffer, offset)),
            gelu: self.gelu,
        })
    }

    /// The batch, outermost dimension first, without dimensions of one.
    fn axes(&self, values: &Values<'_>) -> Option<Vec<Axis>> {
        let [.., result] = &self.matrices;
        let batch = &result.batch;
        let mut axes = Vec::with_capacity(batch.len());
        for (at, &(extent, _)) in batch.iter().enumerate() {
            let count = values.get(extent);
            if count != 1 {
                let strides = self.matrices.each_ref().map(|of| of.stride(at, batch.len(), count, values));
                let [a, b, added, result] = strides;
                axes.push(Axis { count, strides: [a?, b?, added?, result?] });
            }
        }
        Some(axes)
    }
}

/// Whether the library reads a matrix of these extents and strides: by which leading dimension, and whether transposed.
fn layout([rows, columns]: [i64; 2], strides: [i64; 2]) -> Option<(i64, bool)> {
    // Along one element, a stride says nothing.
    let [row, column] = strides;
    let by_rows = (column == 1 || columns == 1) && (row >= columns || rows == 1);
    let by_columns = (row == 1 || rows == 1) && (column >= rows || columns == 1);
    if by_rows { Some((row.max(columns), false)) } else { by_columns.then_some((column.max(rows), true)) }
}

/// Batches that share the right matrix and continue the rows of the left one are more rows.
fn fold_into_rows(axes: &mut Vec<Axis>, m: &mut i64, strides: &mut [[i64; 2]; 4]) {
    while let Some(&Axis { count, strides: next }) = axes.last() {
        let continues = *m == 1 || [0, 2, 3].iter().all(|&i| next[i] == *m * strides[i][0]);
        if next[1] != 0 || next[0] == 0 || !continues {
            break;
        }
        if *m == 1 {
            [0, 2, 3].iter().for_each(|&i| strides[i][0] = next[i]);
        }
        *m *= count;
        axes.pop();
    }
}

/// The batch of a call, and the calls: dimensions that continue each other are one, the largest is the call's.
fn split(axes: Vec<Axis>) -> Option<(Axis, Vec<[i64; 4]>)> {
    let mut merged: Vec<Axis> = Vec::with_capacity(axes.len());
    for inner in axes {
        match merged.last_mut() {
            Some(outer) if outer.strides == inner.strides.map(|s| s * inner.count) => {
                *outer = Axis { count: outer.count * inner.count, strides: inner.strides };
            }
            _ => merged.push(inner),
        }
    }
    let largest = (0..merged.len()).max_by_key(|&at| merged[at].count);
    let batch = largest.map_or(Axis { count: 1, strides: [0; 4] }, |at| merged.remove(at));
    let calls = merged.iter().try_fold(1i64, |n, axis| n.checked_mul(axis.count))?;
    if calls > MOST_CALLS {
        return None;
    }
    let mut starts = vec![[0; 4]];
    for Axis { count, strides } in merged {
        let each =
            |start: [i64; 4]| (0..count).map(move |i| [0, 1, 2, 3].map(|at| start[at] + i * strides[at]));
        starts = starts.into_iter().flat_map(each).collect();
    }
    Some((batch, starts))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dimension of a batch to whose results nothing is added.
    fn axis(count: i64, [a, b, result]: [i64; 3]) -> Axis {
        Axis { count, strides: [a, b, result, result] }
    }

    #[test]
    fn a_matrix_is_read_along_its_contiguous_side() {
        assert_eq!(layout([3, 4], [4, 1]), Some((4, false)));
        assert_eq!(layout([3, 4], [9, 1]), Some((9, false)));
        assert_eq!(layout([3, 4], [1, 3]), Some((3, true)));
        assert_eq!(layout([1, 4], [77, 1]), Some((77, false)));
        assert_eq!(layout([3, 1], [1, 77]), Some((1, false)));
        assert_eq!(layout([1, 4], [1, 5]), Some((5, true)));
        // Every second column, rows that overlap, a row that is repeated.
        assert_eq!([[8, 2], [2, 1], [0, 1]].map(|s| layout([3, 4], s)), [None; 3]);
    }

    #[test]
    fn batches_with_one_right_matrix_are_rows() {
        let (mut m, mut strides) = (5, [[8, 1], [16, 1], [16, 1], [16, 1]]);
        let mut axes = vec![axis(2, [120, 0, 240]), axis(3, [40, 0, 80])];
        fold_into_rows(&mut axes, &mut m, &mut strides);
        assert_eq!((m, axes.len()), (30, 0));
        // One row of each.
        let (mut m, mut axes) = (1, vec![axis(4, [100, 0, 200])]);
        fold_into_rows(&mut axes, &mut m, &mut strides);
        assert_eq!((m, axes.len(), strides[0][0], strides[3][0]), (4, 0, 100, 200));
        // Rows apart, a right matrix of its own, one left matrix for all.
        for strides_of in [[41, 0, 80], [40, 1, 80], [0, 0, 80]] {
            let (mut m, mut axes) = (5, vec![axis(3, strides_of)]);
            fold_into_rows(&mut axes, &mut m, &mut [[8, 1], [16, 1], [16, 1], [16, 1]]);
            assert_eq!((m, axes.len()), (5, 1), "{strides_of:?}");
        }
        // What is added has its rows elsewhere.
        let (mut m, mut axes) = (5, vec![Axis { count: 3, strides: [40, 0, 81, 80] }]);
        fold_into_rows(&mut axes, &mut m, &mut [[8, 1], [16, 1], [16, 1], [16, 1]]);
        assert_eq!((m, axes.len()), (5, 1));
    }

    #[test]
    fn a_batch_is_one_dimension_and_some_calls() {
        let (batch, calls) = split(vec![axis(2, [24, 30, 36]), axis(3, [8, 10, 12])]).unwrap();
        assert_eq!((batch.count, batch.strides, calls), (6, [8, 10, 12, 12], vec![[0; 4]]));
        // Heads inside of the rows of each item: no single stride.
        let (batch, calls) = split(vec![axis(2, [100, 100, 300]), axis(12, [8, 8, 25])]).unwrap();
        assert_eq!((batch.count, calls), (12, vec![[0; 4], [100, 100, 300, 300]]));
        assert!(split(vec![axis(33, [100, 0, 3]), axis(40, [1, 0, 5])]).is_none());
        assert_eq!(split(vec![]).unwrap().0.count, 1);
    }
}
