//! Upper and lower triangles of matrices: of each row one part is copied and the other is zeros.

use rlx_backend::extents::Ex;
use rlx_ir::{Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::scalar::is_number;
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::layout::At;

/// Matrices that are in memory. What computes its elements one by one, or repeats them, makes the choice with them if that is decomposed.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let producer = &graph.node(node.inputs[0]).op;
    if !is_number(node.shape.dtype()) {
        Claim::No(format!("there is no kernel for triangles of {}", node.shape.dtype()))
    } else if producer.is_elementwise() || matches!(producer, Op::Expand { .. } | Op::Trilu { .. }) {
        Claim::No(format!("its elements are computed by a {}", producer.kind()))
    } else {
        Claim::Native
    }
}

/// The kernel.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    match cx.node().op {
        Op::Trilu { upper, k } => Ok(Box::new(Triangle { upper, k: cx.extent(k), plan: None })),
        ref op => Err(no_kernel(op, "it is no triangle")),
    }
}

#[derive(Debug, Clone, Copy)]
struct Triangle {
    upper: bool,
    k: Ex,
    plan: Option<Plan>,
}

/// A bound triangle of dense matrices.
#[derive(Debug, Clone, Copy)]
struct Plan {
    x: At,
    out: At,
    /// Of all matrices, and of one.
    all_rows: usize,
    rows: usize,
    columns: usize,
    /// The first diagonal that is copied (upper), or the last one.
    k: i64,
    word: usize,
    worth: bool,
}

impl StepKernel for Triangle {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, out) = (&cx.inputs[0], &cx.outputs[0]);
        let &[ref outer @ .., rows, columns] = x.dims() else {
            return Err(mismatch(format!("the matrices of {:?}", x.dims())));
        };
        if x.dims() != out.dims() || !x.layout.is_dense() || !out.layout.is_dense() {
            return Err(mismatch(format!("a triangle {:?} of {:?}", out.dims(), x.dims())));
        }
        let (word, all_rows) = (x.dtype.size_bytes(), outer.iter().product::<usize>() * rows);
        let nanos = all_rows as f64 * (4.0 + (columns * word) as f64 * 0.05);
        self.plan = Some(Plan {
            x: x.at,
            out: out.at,
            all_rows,
            rows,
            columns,
            k: cx.values.get(self.k),
            word,
            worth: nanos > WORTH_NANOS,
        });
        Ok(Needs::time(nanos))
    }

    // SAFETY: the promise is that of [`StepKernel::run`].
    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let (Some(p), upper) = (self.plan, self.upper) else { return Err(unbound()) };
        let (x, out) = (cx.shared::<u8>(p.x), cx.shared::<u8>(p.out));
        cx.parallel(p.worth, p.all_rows, &|range, _| {
            for row in range {
                let kept = kept(upper, (row % p.rows) as i64, p.k, p.columns);
                let [first, start, end, last] =
                    [0, kept.start, kept.end, p.columns].map(|column| (row * p.columns + column) * p.word);
                // SAFETY: the caller's promise; rows are disjoint. The result may be the operand.
                unsafe {
                    let to = out.get();
                    std::ptr::write_bytes(to.wrapping_add(first), 0, start - first);
                    std::ptr::copy(x.get().wrapping_add(start), to.wrapping_add(start), end - start);
                    std::ptr::write_bytes(to.wrapping_add(end), 0, last - end);
                }
            }
        });
        Ok(())
    }
}

/// The columns of a row that are copied.
fn kept(upper: bool, row: i64, k: i64, columns: usize) -> std::ops::Range<usize> {
    let up_to = |column: i64| usize::try_from(column).unwrap_or(0).min(columns);
    let diagonal = row.saturating_add(k);
    if upper { up_to(diagonal)..columns } else { 0..up_to(diagonal.saturating_add(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagonals_beyond_the_matrix_keep_all_or_nothing() {
        assert_eq!(kept(true, 1, 1, 5), 2..5);
        assert_eq!(kept(false, 1, 1, 5), 0..3);
        assert_eq!(kept(true, 1, -9, 5), 0..5);
        assert_eq!(kept(false, 1, -9, 5), 0..0);
        assert_eq!(kept(true, 1, i64::MAX, 5), 5..5);
        assert_eq!(kept(false, 1, i64::MAX, 5), 0..5);
        assert_eq!(kept(false, 0, -1, 5), 0..0);
    }
}
