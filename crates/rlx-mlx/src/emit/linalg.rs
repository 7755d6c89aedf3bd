//! Products of matrices.

use rlx_ir::{DType, Result};

use crate::program::{Builder, Code, Val};

/// The most terms whose sum f32 has exactly, of products of differences of bytes: 258 · 255² < 2²⁴.
pub(super) const EXACT_TERMS: usize = 258;

/// The dimensions of a product, by NumPy's rules.
fn product_dims(a: &[usize], c: &[usize]) -> Vec<usize> {
    let mut dims = Vec::new();
    let (la, lc) = (a.len().saturating_sub(2), c.len().saturating_sub(2));
    let rank = la.max(lc);
    for i in 0..rank {
        let at = |dims: &[usize], lead: usize| (i + lead).checked_sub(rank).map_or(1, |i| dims[i]);
        let (x, y) = (at(a, la), at(c, lc));
        dims.push(if x == 1 { y } else { x });
    }
    if a.len() > 1 {
        dims.push(a[a.len() - 2]);
    }
    if c.len() > 1 {
        dims.push(c[c.len() - 1]);
    }
    dims
}

pub(super) fn matmul(b: &mut Builder<'_>, x: Val, y: Val) -> Result<Val> {
    let dtype = b.dtype(x);
    let dims = product_dims(b.dims(x), b.dims(y));
    if dtype.is_float() {
        if b.dims(x).contains(&0) || b.dims(y).contains(&0) {
            let zero = b.scalar(dtype, 0.0);
            return Ok(b.full(zero, &dims));
        }
        return Ok(b.op(Code::MatMul, &[x, y], &[], dtype, &dims));
    }
    // MLX multiplies floats alone: all products, and their sums.
    let rows = |b: &mut Builder<'_>, x: Val, vector: [usize; 2], axis: usize| {
        let mut dims = b.dims(x).to_vec();
        if dims.len() == 1 {
            dims = if vector[0] == 1 { vec![1, dims[0]] } else { vec![dims[0], 1] };
        }
        dims.insert(dims.len() - axis, 1);
        b.reshape(x, &dims)
    };
    let left = rows(b, x, [1, 0], 0);
    let right = rows(b, y, [0, 1], 2);
    let products = b.binary(Code::Multiply, left, right);
    let depth = b.dims(products).len() - 2;
    let sum = super::reduce::reduce(b, rlx_ir::op::ReduceOp::Sum, products, &[depth], false)?;
    Ok(b.reshape(sum, &dims))
}

/// `a − zero`, as f32.
pub(super) fn centred(b: &mut Builder<'_>, x: Val, zero: Val) -> Val {
    let (x, zero) = (b.astype(x, DType::F32), b.astype(zero, DType::F32));
    b.binary(Code::Subtract, x, zero)
}

/// The exact product of bytes less their zero points: by f32, as many terms at a time as it has exactly.
pub(super) fn matmul_integer(b: &mut Builder<'_>, x: &[Val]) -> Result<Val> {
    let (left, right) = (centred(b, x[0], x[2]), centred(b, x[1], x[3]));
    let (rows, columns) = (b.dims(left).len() - 1, b.dims(right).len().saturating_sub(2));
    let depth = b.dims(left)[rows];
    let dims = product_dims(b.dims(left), b.dims(right));
    let mut sum = b.int(DType::I32, 0);
    sum = b.full(sum, &dims);
    for from in (0..depth).step_by(EXACT_TERMS) {
        let to = depth.min(from + EXACT_TERMS);
        let (part, other) = (b.narrow(left, rows, from, to), b.narrow(right, columns, from, to));
        let part = matmul(b, part, other)?;
        let part = b.astype(part, DType::I32);
        sum = b.binary(Code::Add, sum, part);
    }
    Ok(sum)
}
