//! Contractions that are matmuls, as exporters write attention by Einsum: other rules and passes look for [`Op::MatMul`].

use rlx_ir::{NodeId, Op, Result};

use super::{Rule, Simplifier};

pub(super) const RULES: &[Rule] =
    &[Rule { name: "contraction-of-matrices", fast: false, apply: of_matrices }];

/// A sum over one dimension of matrices, with all that is in front of them in batches.
///
/// `bhid,bhjd->bhij → x · yᵀ`
fn of_matrices(s: &mut Simplifier<'_>, op: &Op, inputs: &[NodeId]) -> Result<Option<NodeId>> {
    let Op::DotGeneral { lhs_contract, rhs_contract, lhs_batch, rhs_batch } = op else { return Ok(None) };
    let (&[x_sum], &[y_sum]) = (lhs_contract.as_slice(), rhs_contract.as_slice()) else { return Ok(None) };
    let batch = lhs_batch.len();
    let in_front = |axes: &[usize]| axes.iter().copied().eq(0..batch);
    let (x_dims, y_dims) = (s.dims(inputs[0]), s.dims(inputs[1]));
    // The dimensions of batches agree, but MatMul is to see it.
    let matrices = in_front(lhs_batch)
        && in_front(rhs_batch)
        && [x_dims.len(), y_dims.len()] == [batch + 2; 2]
        && x_dims[..batch] == y_dims[..batch];
    if !matrices {
        return Ok(None);
    }
    let x = if x_sum == batch { transposed(s, inputs[0])? } else { inputs[0] };
    let y = if y_sum == batch { inputs[1] } else { transposed(s, inputs[1])? };
    s.build(Op::MatMul, &[x, y]).map(Some)
}

/// Each matrix the other way.
fn transposed(s: &mut Simplifier<'_>, x: NodeId) -> Result<NodeId> {
    let rank = s.dims(x).len();
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(rank - 1, rank - 2);
    s.transpose(x, perm)
}
