//! Reductions, running sums, extremes.

use crate::call::Call;
use crate::tensor::{offsets, strides};
use crate::{Data, Res, Tensor, Ty};

const NUMBERS: [Ty; 3] = [Ty::F32, Ty::F16, Ty::I32];

/// Computes an operation of this family.
pub fn compute(op: &str, call: &Call) -> Res<Option<Vec<Tensor>>> {
    Ok(Some(match op {
        "reduce_sum" | "reduce_mean" | "reduce_max" | "reduce_min" | "reduce_prod" => vec![reduce(op, call)?],
        "cumsum" => vec![cumsum(call)?],
        "reduce_argmax" | "reduce_argmin" => vec![extreme(op, call)?],
        "topk" => top_k(call)?,
        _ => return Ok(None),
    }))
}

/// For each result, where its elements are.
fn groups(dims: &[usize], axes: &[usize]) -> (Vec<usize>, Vec<Vec<usize>>) {
    let steps = strides(dims);
    let part = |inside: bool| -> Vec<usize> {
        dims.iter().enumerate().map(|(i, &d)| if axes.contains(&i) == inside { d } else { 1 }).collect()
    };
    let (kept, reduced) = (part(false), part(true));
    let within = offsets(&reduced, &steps);
    let all = offsets(&kept, &steps);
    (kept, all.into_iter().map(|base| within.iter().map(|o| base + o).collect()).collect())
}

fn reduce(op: &str, call: &Call) -> Res<Tensor> {
    let x = call.of("x", &NUMBERS)?;
    let axes = call.ints("axes", None)?;
    if !call.flag("keep_dims")? || axes.iter().any(|&a| a >= x.dims.len()) {
        return Err(format!("axes {axes:?} that go, or are not there"));
    }
    let (kept, groups) = groups(&x.dims, &axes);
    match &x.data {
        Data::Ints(v) => {
            let one = |group: &Vec<usize>| -> Res<i32> {
                let values = group.iter().map(|&i| v[i]);
                Ok(match op {
                    "reduce_sum" => values.fold(0, i32::wrapping_add),
                    "reduce_prod" => values.fold(1, i32::wrapping_mul),
                    "reduce_max" => values.max().ok_or("nothing")?,
                    "reduce_min" => values.min().ok_or("nothing")?,
                    _ => return Err("its mean of integers is not documented".to_string()),
                })
            };
            Ok(Tensor::ints(&kept, groups.iter().map(one).collect::<Res<Vec<_>>>()?))
        }
        _ => {
            let v = x.as_floats()?;
            let pick = |a: f64, b: f64, larger: bool| match (a.is_nan() || b.is_nan(), larger) {
                (true, _) => f64::NAN,
                (_, true) => a.max(b),
                _ => a.min(b),
            };
            let one = |group: &Vec<usize>| {
                let values = group.iter().map(|&i| f64::from(v[i]));
                (match op {
                    "reduce_sum" => values.sum::<f64>(),
                    "reduce_mean" => values.sum::<f64>() / group.len() as f64,
                    "reduce_prod" => values.product::<f64>(),
                    "reduce_max" => values.fold(f64::NEG_INFINITY, |a, b| pick(a, b, true)),
                    _ => values.fold(f64::INFINITY, |a, b| pick(a, b, false)),
                }) as f32
            };
            Ok(Tensor::of_floats(x.ty, &kept, groups.iter().map(one).collect()))
        }
    }
}

fn cumsum(call: &Call) -> Res<Tensor> {
    let x = call.of("x", &NUMBERS)?;
    let axis = call.axis("axis", x.dims.len())?;
    let (exclusive, reverse) = (call.flag("exclusive")?, call.flag("reverse")?);
    let (_, groups) = groups(&x.dims, &[axis]);
    let mut out = (*x).clone();
    for mut line in groups {
        if reverse {
            line.reverse();
        }
        let (mut float, mut int) = (0f64, 0i32);
        for i in line {
            match &mut out.data {
                Data::Floats(v) => {
                    let before = float;
                    float += f64::from(v[i]);
                    v[i] = if exclusive { before } else { float } as f32;
                }
                Data::Ints(v) => {
                    let before = int;
                    int = int.wrapping_add(v[i]);
                    v[i] = if exclusive { before } else { int };
                }
                _ => return Err("no numbers".to_string()),
            }
        }
    }
    Ok(match out.data {
        Data::Floats(values) => Tensor::of_floats(x.ty, &x.dims, values),
        _ => out,
    })
}

/// The elements as numbers that are ordered as the elements, NaN above all.
fn keys(x: &Tensor) -> Res<Vec<f64>> {
    Ok(match &x.data {
        Data::Floats(v) => v.iter().map(|&v| f64::from(v)).collect(),
        _ => x.as_ints()?.iter().map(|&v| f64::from(v)).collect(),
    })
}

fn extreme(op: &str, call: &Call) -> Res<Tensor> {
    let x = call.of("x", &NUMBERS)?;
    let axis = call.axis("axis", x.dims.len())?;
    if !call.flag("keep_dims")? {
        return Err("an axis that goes".to_string());
    }
    let (kept, groups) = groups(&x.dims, &[axis]);
    let keys = keys(&x)?;
    // The first of the most extreme; NaN is, as NumPy has it.
    let better = |a: f64, b: f64| match (a.is_nan(), b.is_nan()) {
        (_, true) => false,
        (true, _) => true,
        _ if op == "reduce_argmax" => a > b,
        _ => a < b,
    };
    let one = |line: &Vec<usize>| {
        (1..line.len()).fold(0, |best, i| if better(keys[line[i]], keys[line[best]]) { i } else { best })
            as i32
    };
    Ok(Tensor::ints(&kept, groups.iter().map(one).collect()))
}

fn top_k(call: &Call) -> Res<Vec<Tensor>> {
    let x = call.of("x", &NUMBERS)?;
    let axis = call.axis("axis", x.dims.len())?;
    let k = usize::try_from(call.int("k")?).map_err(|e| e.to_string())?;
    let (ascending, _) = (call.flag("ascending")?, call.flag("sort")?);
    if !call.flag("return_indices")? || k > x.dims[axis] {
        return Err(format!("{k} of {}", x.dims[axis]));
    }
    let (keys, step) = (keys(&x)?, strides(&x.dims)[axis]);
    let mut dims = x.dims.clone();
    dims[axis] = k;
    let (kept, groups) = groups(&x.dims, &[axis]);
    let (mut at, mut places) = (vec![0; dims.iter().product()], vec![0; dims.iter().product()]);
    let bases = offsets(&kept, &strides(&dims));
    let out_step = strides(&dims)[axis];
    for (line, base) in groups.iter().zip(bases) {
        let mut order: Vec<usize> = (0..line.len()).collect();
        order.sort_by(|&i, &j| {
            let (a, b) = (keys[line[i]], keys[line[j]]);
            let natural = a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()));
            if ascending { natural } else { natural.reverse() }
        });
        for (i, &from) in order.iter().take(k).enumerate() {
            at[base + i * out_step] = line[0] + from * step;
            places[base + i * out_step] = from as i32;
        }
    }
    Ok(vec![x.pick(&dims, at.into_iter()), Tensor::ints(&dims, places)])
}
