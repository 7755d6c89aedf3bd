//! Matrix multiplication.

use crate::call::Call;
use crate::tensor::{broadcast, broadcast_offsets};
use crate::{Res, Tensor, Ty};

/// Computes an operation of this family.
pub fn compute(op: &str, call: &Call) -> Res<Option<Vec<Tensor>>> {
    if op != "matmul" {
        return Ok(None);
    }
    let types = [Ty::F32, Ty::F16, Ty::I32];
    let (x, y) = (call.of("x", &types)?, call.of("y", &types)?);
    if call.flag("transpose_x")? || call.flag("transpose_y")? {
        return Err("the evaluator multiplies what is not transposed".to_string());
    }
    if x.ty != y.ty || x.dims.len() < 2 || y.dims.len() < 2 {
        return Err(format!("{:?} {:?} by {:?} {:?}", x.ty, x.dims, y.ty, y.dims));
    }
    let ((xb, xm), (yb, ym)) = (x.dims.split_at(x.dims.len() - 2), y.dims.split_at(y.dims.len() - 2));
    let (m, k, n) = (xm[0], xm[1], ym[1]);
    if ym[0] != k {
        return Err(format!("{:?} by {:?}", x.dims, y.dims));
    }
    let batch = broadcast(xb, yb)?;
    let dims = [&batch[..], &[m, n]].concat();
    let (at_x, at_y) = (broadcast_offsets(xb, &batch), broadcast_offsets(yb, &batch));
    if x.ty == Ty::I32 {
        let (a, b) = (x.as_ints()?, y.as_ints()?);
        let mut out = Vec::with_capacity(dims.iter().product());
        for (i, j) in at_x.into_iter().zip(at_y) {
            for at in 0..m * n {
                let (row, column) = (at / n, at % n);
                let term = |s: usize| a[i * m * k + row * k + s].wrapping_mul(b[j * k * n + s * n + column]);
                out.push((0..k).fold(0i32, |sum, s| sum.wrapping_add(term(s))));
            }
        }
        return Ok(Some(vec![Tensor::ints(&dims, out)]));
    }
    let (a, b) = (x.as_floats()?, y.as_floats()?);
    let mut out = vec![0f32; dims.iter().product()];
    let mut line = vec![0f64; n];
    for (at, (i, j)) in at_x.into_iter().zip(at_y).enumerate() {
        for row in 0..m {
            line.fill(0.0);
            for s in 0..k {
                let factor = f64::from(a[i * m * k + row * k + s]);
                let right = &b[j * k * n + s * n..][..n];
                line.iter_mut().zip(right).for_each(|(sum, &v)| *sum += factor * f64::from(v));
            }
            let result = &mut out[(at * m + row) * n..][..n];
            result.iter_mut().zip(&line).for_each(|(r, &sum)| *r = sum as f32);
        }
    }
    Ok(Some(vec![Tensor::of_floats(x.ty, &dims, out)]))
}
