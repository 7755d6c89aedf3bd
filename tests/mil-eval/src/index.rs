//! Gathers and scatters. Indices are from 0 on; what is beyond is reported.

use crate::call::Call;
use crate::tensor::{offsets, strides};
use crate::{Data, Res, Tensor, Ty};

const NUMBERS: [Ty; 3] = [Ty::F32, Ty::F16, Ty::I32];

/// Computes an operation of this family.
pub fn compute(op: &str, call: &Call) -> Res<Option<Vec<Tensor>>> {
    let result = match op {
        "gather" => gather(call)?,
        "gather_along_axis" => gather_along_axis(call)?,
        "gather_nd" => gather_nd(call)?,
        "scatter" => scatter(call)?,
        "scatter_along_axis" => scatter_along_axis(call)?,
        "scatter_nd" => scatter_nd(call)?,
        _ => return Ok(None),
    };
    Ok(Some(vec![result]))
}

fn place(index: i32, size: usize) -> Res<usize> {
    let found = usize::try_from(index).ok().filter(|&i| i < size);
    found.ok_or_else(|| format!("index {index} is out of range for {size}"))
}

fn gather(call: &Call) -> Res<Tensor> {
    let (x, indices) = (call.of("x", &NUMBERS)?, call.of("indices", &[Ty::I32])?);
    let axis = call.axis("axis", x.dims.len())?;
    call.flag("validate_indices")?;
    if call.int("batch_dims")? != 0 {
        return Err("batch dimensions".to_string());
    }
    let inner: usize = x.dims[axis + 1..].iter().product();
    let outer: usize = x.dims[..axis].iter().product();
    let size = x.dims[axis];
    let chosen = indices.as_ints()?.iter().map(|&i| place(i, size)).collect::<Res<Vec<_>>>()?;
    let dims = [&x.dims[..axis], &indices.dims, &x.dims[axis + 1..]].concat();
    let chosen = &chosen;
    let at = (0..outer)
        .flat_map(|o| chosen.iter().flat_map(move |&i| (0..inner).map(move |j| (o * size + i) * inner + j)));
    Ok(x.pick(&dims, at))
}

/// Where the elements are that indices along an axis mean.
fn along(dims: &[usize], indices: &Tensor, axis: usize) -> Res<Vec<usize>> {
    let same = (0..dims.len()).all(|i| i == axis || indices.dims.get(i) == Some(&dims[i]));
    if indices.dims.len() != dims.len() || !same {
        return Err(format!("indices {:?} into {dims:?}", indices.dims));
    }
    let mut steps = strides(dims);
    let step = std::mem::take(&mut steps[axis]);
    let bases = offsets(&indices.dims, &steps);
    let values = indices.as_ints()?.iter();
    bases.into_iter().zip(values).map(|(base, &i)| Ok(base + place(i, dims[axis])? * step)).collect()
}

fn gather_along_axis(call: &Call) -> Res<Tensor> {
    let (x, indices) = (call.of("x", &NUMBERS)?, call.of("indices", &[Ty::I32])?);
    let axis = call.axis("axis", x.dims.len())?;
    call.flag("validate_indices")?;
    let at = along(&x.dims, &indices, axis)?;
    Ok(x.pick(&indices.dims, at.into_iter()))
}

/// Where the slices begin that rows of indices mean, behind `batch` dimensions; and the slices' dimensions.
fn rows(dims: &[usize], indices: &Tensor, batch: usize) -> Res<(Vec<usize>, Vec<usize>)> {
    let (&depth, before) = indices.dims.split_last().ok_or("indices without rows")?;
    if batch + depth > dims.len() || before.len() < batch || before[..batch] != dims[..batch] {
        return Err(format!("rows {:?} into {dims:?}", indices.dims));
    }
    let steps = strides(dims);
    let per_batch: usize = before[batch..].iter().product();
    let mut starts = Vec::new();
    for (number, row) in indices.as_ints()?.chunks(depth.max(1)).enumerate() {
        let in_batch: usize = dims[batch..].iter().product();
        let mut start = number / per_batch.max(1) * in_batch;
        for (i, &index) in row.iter().enumerate() {
            start += place(index, dims[batch + i])? * steps[batch + i];
        }
        starts.push(start);
    }
    Ok((starts, dims[batch + depth..].to_vec()))
}

fn gather_nd(call: &Call) -> Res<Tensor> {
    let (x, indices) = (call.of("x", &NUMBERS)?, call.of("indices", &[Ty::I32])?);
    let batch = usize::try_from(call.int("batch_dims")?).map_err(|e| e.to_string())?;
    call.flag("validate_indices")?;
    let (starts, slice) = rows(&x.dims, &indices, batch)?;
    let size: usize = slice.iter().product();
    let dims = [&indices.dims[..indices.dims.len() - 1], &slice].concat();
    Ok(x.pick(&dims, starts.iter().flat_map(|&s| s..s + size)))
}

/// `data` with the updates joined to these places in order.
fn updated(data: &Tensor, places: &[usize], updates: &Tensor, mode: &str) -> Res<Tensor> {
    if data.ty != updates.ty || places.len() != updates.len() {
        return Err(format!("updates {:?} {:?}", updates.ty, updates.dims));
    }
    let mut out = data.clone();
    match (&mut out.data, &updates.data) {
        (Data::Floats(to), Data::Floats(from)) => {
            for (&at, &v) in places.iter().zip(from) {
                let old = to[at];
                to[at] = match mode {
                    "update" => v,
                    "add" => old + v,
                    "mul" => old * v,
                    _ if old.is_nan() || v.is_nan() => f32::NAN,
                    "max" => old.max(v),
                    _ => old.min(v),
                };
            }
        }
        (Data::Ints(to), Data::Ints(from)) => {
            for (&at, &v) in places.iter().zip(from) {
                let old = to[at];
                to[at] = match mode {
                    "update" => v,
                    "add" => old.wrapping_add(v),
                    "mul" => old.wrapping_mul(v),
                    "max" => old.max(v),
                    _ => old.min(v),
                };
            }
        }
        _ => return Err("no numbers".to_string()),
    }
    Ok(match out.data {
        Data::Floats(values) => Tensor::of_floats(data.ty, &data.dims, values),
        _ => out,
    })
}

const MODES: [&str; 5] = ["update", "add", "mul", "max", "min"];

fn scatter(call: &Call) -> Res<Tensor> {
    let (data, indices) = (call.of("data", &NUMBERS)?, call.of("indices", &[Ty::I32])?);
    let (updates, mode) = (call.of("updates", &NUMBERS)?, call.mode("mode", &MODES)?);
    let axis = call.axis("axis", data.dims.len())?;
    call.flag("validate_indices")?;
    let mut dims = data.dims.clone();
    dims[axis] = indices.len();
    if indices.dims.len() != 1 || updates.dims != dims {
        return Err(format!("updates {:?} for {dims:?}", updates.dims));
    }
    let chosen = indices.as_ints()?.iter().map(|&i| place(i, data.dims[axis])).collect::<Res<Vec<_>>>()?;
    let (steps, mut at) = (strides(&data.dims), vec![0]);
    for (i, &size) in dims.iter().enumerate() {
        let line: Vec<usize> = if i == axis { chosen.clone() } else { (0..size).collect() };
        at = at
            .iter()
            .flat_map(|&base| line.iter().map(move |&j| (base, j)))
            .map(|(b, j)| b + j * steps[i])
            .collect();
    }
    updated(&data, &at, &updates, &mode)
}

fn scatter_along_axis(call: &Call) -> Res<Tensor> {
    let (data, indices) = (call.of("data", &NUMBERS)?, call.of("indices", &[Ty::I32])?);
    let (updates, mode) = (call.of("updates", &NUMBERS)?, call.mode("mode", &MODES)?);
    let axis = call.axis("axis", data.dims.len())?;
    call.flag("validate_indices")?;
    if updates.dims != indices.dims {
        return Err(format!("updates {:?} for {:?}", updates.dims, indices.dims));
    }
    updated(&data, &along(&data.dims, &indices, axis)?, &updates, &mode)
}

fn scatter_nd(call: &Call) -> Res<Tensor> {
    let (data, indices) = (call.of("data", &NUMBERS)?, call.of("indices", &[Ty::I32])?);
    let (updates, mode) = (call.of("updates", &NUMBERS)?, call.mode("mode", &MODES)?);
    call.flag("validate_indices")?;
    let (starts, slice) = rows(&data.dims, &indices, 0)?;
    let dims = [&indices.dims[..indices.dims.len() - 1], &slice].concat();
    if updates.dims != dims {
        return Err(format!("updates {:?} for {dims:?}", updates.dims));
    }
    let size: usize = slice.iter().product();
    let places: Vec<usize> = starts.iter().flat_map(|&s| s..s + size).collect();
    updated(&data, &places, &updates, &mode)
}
