//! Movement: other dimensions, another order, parts, borders, repetitions.

use crate::call::Call;
use crate::tensor::{offsets, strides};
use crate::{Data, Res, Tensor, Ty};

/// Computes an operation of this family.
pub fn compute(op: &str, call: &Call) -> Res<Option<Vec<Tensor>>> {
    let result = match op {
        "reshape" => {
            let x = call.any("x")?;
            let dims = call.ints("shape", None)?;
            if dims.iter().product::<usize>() != x.len() {
                return Err(format!("{:?} as {dims:?}", x.dims));
            }
            Tensor { dims, ..(*x).clone() }
        }
        "squeeze" => {
            let x = call.of("x", &[Ty::F32, Ty::F16, Ty::I32, Ty::Bool])?;
            let axes = call.ints("axes", None)?;
            if let Some(axis) = axes.iter().find(|&&axis| x.dims.get(axis) != Some(&1)) {
                return Err(format!("dimension {axis} of {:?} is not one of 1", x.dims));
            }
            let kept = x.dims.iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
            Tensor { dims: kept.map(|(_, &size)| size).collect(), ..(*x).clone() }
        }
        "transpose" => {
            let x = call.any("x")?;
            let perm = call.ints("perm", Some(x.dims.len()))?;
            let mut sorted = perm.clone();
            sorted.sort_unstable();
            if sorted != (0..x.dims.len()).collect::<Vec<_>>() {
                return Err(format!("{perm:?} is no permutation"));
            }
            let steps = strides(&x.dims);
            let dims: Vec<usize> = perm.iter().map(|&p| x.dims[p]).collect();
            let steps: Vec<usize> = perm.iter().map(|&p| steps[p]).collect();
            x.pick(&dims, offsets(&dims, &steps).into_iter())
        }
        "tile" => {
            let x = call.of("x", &[Ty::F32, Ty::F16, Ty::I32, Ty::Bool])?;
            let reps = call.ints("reps", Some(x.dims.len()))?;
            let dims: Vec<usize> = x.dims.iter().zip(&reps).map(|(d, r)| d * r).collect();
            let steps = strides(&x.dims);
            let mut at = vec![0];
            for axis in 0..dims.len() {
                let next = |&base: &usize| {
                    let (size, step) = (x.dims[axis], steps[axis]);
                    (0..dims[axis]).map(move |i| base + i % size * step).collect::<Vec<_>>()
                };
                at = at.iter().flat_map(next).collect();
            }
            x.pick(&dims, at.into_iter())
        }
        "slice_by_index" => slice(call)?,
        "reverse" => {
            let x = call.any("x")?;
            let axes = call.ints("axes", None)?;
            if axes.iter().any(|&a| a >= x.dims.len()) {
                return Err(format!("axes {axes:?}"));
            }
            let steps = strides(&x.dims);
            let mut at = vec![0];
            for (axis, &size) in x.dims.iter().enumerate() {
                let (step, back) = (steps[axis], axes.contains(&axis));
                let next = |&base: &usize| {
                    (0..size)
                        .map(move |i| base + if back { size - 1 - i } else { i } * step)
                        .collect::<Vec<_>>()
                };
                at = at.iter().flat_map(next).collect();
            }
            x.pick(&x.dims, at.into_iter())
        }
        "concat" => concat(call)?,
        "pad" => pad(call)?,
        "range_1d" => {
            let one = |name: &str| -> Res<i32> {
                call.of(name, &[Ty::I32])?
                    .as_ints()?
                    .first()
                    .copied()
                    .ok_or_else(|| format!("{name:?} is empty"))
            };
            let (start, end, step) = (one("start")?, one("end")?, one("step")?);
            if step <= 0 {
                return Err(format!("steps of {step}"));
            }
            let values: Vec<i32> = (start..end).step_by(step as usize).collect();
            Tensor::ints(&[values.len()], values)
        }
        _ => return Ok(None),
    };
    Ok(Some(vec![result]))
}

fn slice(call: &Call) -> Res<Tensor> {
    let x = call.any("x")?;
    let rank = Some(x.dims.len());
    let (begin, end, stride) =
        (call.ints("begin", rank)?, call.ints("end", rank)?, call.ints("stride", rank)?);
    let (steps, mut at, mut dims) = (strides(&x.dims), vec![0], Vec::new());
    for axis in 0..x.dims.len() {
        let (from, to, by) = (begin[axis], end[axis], stride[axis]);
        if from >= to || to > x.dims[axis] || by == 0 {
            return Err(format!("{from}..{to} by {by} of {}", x.dims[axis]));
        }
        let taken: Vec<usize> = (from..to).step_by(by).map(|i| i * steps[axis]).collect();
        dims.push(taken.len());
        at = at.iter().flat_map(|&base| taken.iter().map(move |o| base + o)).collect();
    }
    Ok(x.pick(&dims, at.into_iter()))
}

fn concat(call: &Call) -> Res<Tensor> {
    let values = call.many("values")?;
    let first = values.first().ok_or("nothing")?;
    let axis = call.axis("axis", first.dims.len())?;
    if call.flag("interleave")? {
        return Err("interleaved".to_string());
    }
    let others = |t: &Tensor| {
        let mut dims = t.dims.clone();
        if let Some(size) = dims.get_mut(axis) {
            *size = 0;
        }
        dims
    };
    if values.iter().any(|t| t.ty != first.ty || others(t) != others(first)) {
        return Err("values of two types or shapes".to_string());
    }
    let mut dims = first.dims.clone();
    dims[axis] = values.iter().map(|t| t.dims[axis]).sum();
    let after: usize = dims[axis + 1..].iter().product();
    let before: usize = dims[..axis].iter().product();
    fn joined<T: Clone>(parts: &[(&[T], usize)], before: usize) -> Vec<T> {
        let rows = (0..before).flat_map(|i| parts.iter().map(move |(v, n)| v[i * n..(i + 1) * n].to_vec()));
        rows.flatten().collect()
    }
    let size = |t: &Tensor| t.dims[axis] * after;
    let data = match &first.data {
        Data::Floats(_) => {
            let parts = values.iter().map(|t| Ok((t.as_floats()?, size(t)))).collect::<Res<Vec<_>>>()?;
            Data::Floats(joined(&parts, before))
        }
        Data::Ints(_) => {
            let parts = values.iter().map(|t| Ok((t.as_ints()?, size(t)))).collect::<Res<Vec<_>>>()?;
            Data::Ints(joined(&parts, before))
        }
        _ => {
            let parts = values.iter().map(|t| Ok((t.as_bools()?, size(t)))).collect::<Res<Vec<_>>>()?;
            Data::Bools(joined(&parts, before))
        }
    };
    Ok(Tensor { ty: first.ty, dims, data })
}

fn pad(call: &Call) -> Res<Tensor> {
    let x = call.float("x")?;
    let rank = x.dims.len();
    let border = call.ints("pad", Some(2 * rank))?;
    let value = call.number("constant_val")?;
    call.mode("mode", &["constant"])?;
    let dims: Vec<usize> = (0..rank).map(|i| x.dims[i] + border[2 * i] + border[2 * i + 1]).collect();
    let steps = strides(&dims);
    let start: usize = (0..rank).map(|i| border[2 * i] * steps[i]).sum();
    let mut out = vec![value; dims.iter().product()];
    let values = x.as_floats()?;
    offsets(&x.dims, &steps).into_iter().zip(values).for_each(|(at, &v)| out[start + at] = v);
    Ok(Tensor::of_floats(x.ty, &dims, out))
}
