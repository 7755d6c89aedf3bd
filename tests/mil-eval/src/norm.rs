//! Softmax and layer norm.

use crate::call::Call;
use crate::tensor::{offsets, strides};
use crate::{Res, Tensor};

/// Computes an operation of this family.
pub fn compute(op: &str, call: &Call) -> Res<Option<Vec<Tensor>>> {
    match op {
        "softmax" => softmax(call).map(|t| Some(vec![t])),
        "layer_norm" => layer_norm(call).map(|t| Some(vec![t])),
        _ => Ok(None),
    }
}

fn softmax(call: &Call) -> Res<Tensor> {
    let x = call.float("x")?;
    let axis = call.axis("axis", x.dims.len())?;
    let (values, mut out) = (x.as_floats()?, vec![0f32; x.len()]);
    let step = strides(&x.dims)[axis];
    let mut others = x.dims.clone();
    others[axis] = 1;
    for base in offsets(&others, &strides(&x.dims)) {
        let line: Vec<usize> = (0..x.dims[axis]).map(|i| base + i * step).collect();
        let largest = line.iter().fold(f64::NEG_INFINITY, |m, &i| m.max(f64::from(values[i])));
        let powers: Vec<f64> = line.iter().map(|&i| (f64::from(values[i]) - largest).exp()).collect();
        let sum: f64 = powers.iter().sum();
        line.iter().zip(powers).for_each(|(&i, power)| out[i] = (power / sum) as f32);
    }
    Ok(Tensor::of_floats(x.ty, &x.dims, out))
}

fn layer_norm(call: &Call) -> Res<Tensor> {
    let x = call.float("x")?;
    let axes = call.ints("axes", None)?;
    let eps = f64::from(call.number("epsilon")?);
    let rank = x.dims.len();
    let first = rank.checked_sub(axes.len()).ok_or("too many axes")?;
    if axes != (first..rank).collect::<Vec<_>>() {
        return Err(format!("the axes {axes:?} are not the last"));
    }
    let row_dims = &x.dims[first..];
    let row: usize = row_dims.iter().product();
    let affine = |name: &str| -> Res<Option<Vec<f32>>> {
        let Some(t) = call.maybe_constant(name)? else { return Ok(None) };
        if t.dims != row_dims {
            return Err(format!("{name} has {:?}", t.dims));
        }
        Ok(Some(t.as_floats()?.to_vec()))
    };
    let (gamma, beta) = (affine("gamma")?, affine("beta")?);
    let mut out = Vec::with_capacity(x.len());
    for line in x.as_floats()?.chunks_exact(row) {
        let mean = line.iter().map(|&v| f64::from(v)).sum::<f64>() / row as f64;
        let variance = line.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / row as f64;
        for (i, &v) in line.iter().enumerate() {
            let unit = (f64::from(v) - mean) / (variance + eps).sqrt();
            let scaled = unit * gamma.as_ref().map_or(1.0, |g| f64::from(g[i]));
            out.push((scaled + beta.as_ref().map_or(0.0, |b| f64::from(b[i]))) as f32);
        }
    }
    Ok(Tensor::of_floats(x.ty, &x.dims, out))
}
