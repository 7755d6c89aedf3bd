//! Convolution and pooling, channels first.

use crate::call::Call;
use crate::tensor::{offsets, strides};
use crate::{Res, Tensor};

/// Computes an operation of this family.
pub fn compute(op: &str, call: &Call) -> Res<Option<Vec<Tensor>>> {
    Ok(Some(vec![match op {
        "conv" => conv(call)?,
        "conv_transpose" => conv_transpose(call)?,
        "max_pool" | "avg_pool" => pool(op, call)?,
        _ => return Ok(None),
    }]))
}

/// The numbers of one spatial dimension.
#[derive(Debug, Clone, Copy)]
struct Axis {
    size: usize,
    taps: usize,
    stride: usize,
    before: usize,
    after: usize,
    dilation: usize,
}

impl Axis {
    /// Positions of the window.
    fn positions(self) -> Res<usize> {
        let padded = self.size + self.before + self.after;
        let reach = (self.taps - 1) * self.dilation + 1;
        Ok(padded.checked_sub(reach).ok_or("a window larger than what it slides over")? / self.stride + 1)
    }

    /// The element under a tap, if it is no padding.
    fn under(self, position: usize, tap: usize) -> Option<usize> {
        (position * self.stride + tap * self.dilation).checked_sub(self.before).filter(|&i| i < self.size)
    }
}

fn axes(call: &Call, sizes: &[usize], taps: &[usize], dilated: bool) -> Res<Vec<Axis>> {
    let count = sizes.len();
    if !(1..=3).contains(&count) || taps.len() != count {
        return Err(format!("windows {taps:?} over {sizes:?}"));
    }
    call.mode("pad_type", &["custom"])?;
    let (stride, pad) = (call.ints("strides", Some(count))?, call.ints("pad", Some(2 * count))?);
    let dilation = if dilated { call.ints("dilations", Some(count))? } else { vec![1; count] };
    if stride.contains(&0) || dilation.contains(&0) || taps.contains(&0) {
        return Err("a window of nothing".to_string());
    }
    let axis = |i: usize| Axis {
        size: sizes[i],
        taps: taps[i],
        stride: stride[i],
        before: pad[2 * i],
        after: pad[2 * i + 1],
        dilation: dilation[i],
    };
    Ok((0..count).map(axis).collect())
}

/// All positions as indices.
fn indices(dims: &[usize]) -> Vec<Vec<usize>> {
    let steps = strides(dims);
    (0..dims.iter().product())
        .map(|at: usize| dims.iter().zip(&steps).map(|(d, s)| at / s % d).collect())
        .collect()
}

/// Where the elements under a window are, from the start of an image, with the number of the tap.
fn window(axes: &[Axis], steps: &[usize], position: &[usize], taps: &[Vec<usize>]) -> Vec<(usize, usize)> {
    let under = |(number, tap): (usize, &Vec<usize>)| {
        let mut at = 0;
        for (i, axis) in axes.iter().enumerate() {
            at += axis.under(position[i], tap[i])? * steps[i];
        }
        Some((number, at))
    };
    taps.iter().enumerate().filter_map(under).collect()
}

fn bias(call: &Call, channels: usize) -> Res<Vec<f64>> {
    let Some(bias) = call.maybe("bias")? else { return Ok(vec![0.0; channels]) };
    if bias.dims != [channels] {
        return Err(format!("a bias of {:?}", bias.dims));
    }
    Ok(bias.as_floats()?.iter().map(|&v| f64::from(v)).collect())
}

fn conv(call: &Call) -> Res<Tensor> {
    let (x, w) = (call.float("x")?, call.float("weight")?);
    let groups = usize::try_from(call.int("groups")?).map_err(|e| e.to_string())?;
    let ([n, inputs, sizes @ ..], [outputs, per_group, taps @ ..]) = (&x.dims[..], &w.dims[..]) else {
        return Err("too few dimensions".to_string());
    };
    if groups == 0 || outputs % groups != 0 || inputs / groups != *per_group || inputs % groups != 0 {
        return Err(format!("{inputs} to {outputs} channels in {groups} groups of {per_group}"));
    }
    let axes = axes(call, sizes, taps, true)?;
    let space = axes.iter().map(|a| a.positions()).collect::<Res<Vec<_>>>()?;
    let bias = bias(call, *outputs)?;
    let (xs, ws) = (x.as_floats()?, w.as_floats()?);
    let (image, kernel): (usize, usize) = (sizes.iter().product(), taps.iter().product());
    let (steps, all_taps, positions) = (strides(sizes), indices(taps), indices(&space));
    let windows: Vec<Vec<(usize, usize)>> =
        positions.iter().map(|p| window(&axes, &steps, p, &all_taps)).collect();
    let per_output = outputs / groups;
    let mut out = Vec::with_capacity(n * outputs * positions.len());
    let mut plane = vec![0f64; positions.len()];
    for batch in 0..*n {
        for o in 0..*outputs {
            plane.fill(bias[o]);
            for c in 0..*per_group {
                let from = &xs[(batch * inputs + o / per_output * per_group + c) * image..][..image];
                let weights = &ws[(o * per_group + c) * kernel..][..kernel];
                for (sum, window) in plane.iter_mut().zip(&windows) {
                    let terms = window.iter().map(|&(tap, at)| f64::from(from[at]) * f64::from(weights[tap]));
                    *sum += terms.sum::<f64>();
                }
            }
            out.extend(plane.iter().map(|&v| v as f32));
        }
    }
    Ok(Tensor::of_floats(x.ty, &[&[*n, *outputs], &space[..]].concat(), out))
}

fn conv_transpose(call: &Call) -> Res<Tensor> {
    let (x, w) = (call.float("x")?, call.constant("weight")?);
    let groups = usize::try_from(call.int("groups")?).map_err(|e| e.to_string())?;
    let ([n, inputs, sizes @ ..], [w_inputs, per_group, taps @ ..]) = (&x.dims[..], &w.dims[..]) else {
        return Err("too few dimensions".to_string());
    };
    if groups == 0 || inputs != w_inputs || inputs % groups != 0 || x.ty != w.ty {
        return Err(format!("{inputs} channels by {:?} in {groups} groups", w.dims));
    }
    let axes = axes(call, sizes, taps, true)?;
    let size = |a: &Axis| {
        let whole = (a.size - 1) * a.stride + (a.taps - 1) * a.dilation + 1;
        whole.checked_sub(a.before + a.after).filter(|&n| n > 0).ok_or("all is cut off".to_string())
    };
    let space = axes.iter().map(size).collect::<Res<Vec<_>>>()?;
    let outputs = per_group * groups;
    let bias = bias(call, outputs)?;
    let (xs, ws) = (x.as_floats()?, w.as_floats()?);
    let (image, kernel): (usize, usize) = (sizes.iter().product(), taps.iter().product());
    let (out_steps, positions, all_taps) = (strides(&space), indices(sizes), indices(taps));
    let plane: usize = space.iter().product();
    let mut out = vec![0f64; n * outputs * plane];
    for (at, sum) in out.iter_mut().enumerate() {
        *sum = bias[at / plane % outputs];
    }
    for batch in 0..*n {
        for c in 0..*inputs {
            let group = c / (inputs / groups);
            for (i, position) in positions.iter().enumerate() {
                let value = f64::from(xs[(batch * inputs + c) * image + i]);
                for (t, tap) in all_taps.iter().enumerate() {
                    let place = |d: usize| {
                        let axis = axes[d];
                        let at = position[d] * axis.stride + tap[d] * axis.dilation;
                        at.checked_sub(axis.before).filter(|&at| at < space[d]).map(|at| at * out_steps[d])
                    };
                    let Some(at) = (0..axes.len()).map(place).sum::<Option<usize>>() else { continue };
                    for o in 0..*per_group {
                        let weight = f64::from(ws[(c * per_group + o) * kernel + t]);
                        out[(batch * outputs + group * per_group + o) * plane + at] += value * weight;
                    }
                }
            }
        }
    }
    let dims = [&[*n, outputs], &space[..]].concat();
    Ok(Tensor::of_floats(x.ty, &dims, out.into_iter().map(|v| v as f32).collect()))
}

fn pool(op: &str, call: &Call) -> Res<Tensor> {
    let x = call.float("x")?;
    let [n, channels, sizes @ ..] = &x.dims[..] else { return Err("too few dimensions".to_string()) };
    let taps = call.ints("kernel_sizes", Some(sizes.len()))?;
    let axes = axes(call, sizes, &taps, false)?;
    if call.flag("ceil_mode")? {
        return Err("ceil mode".to_string());
    }
    let exclude = op == "avg_pool" && call.flag("exclude_padding_from_average")?;
    let space = axes.iter().map(|a| a.positions()).collect::<Res<Vec<_>>>()?;
    let (steps, all_taps) = (strides(sizes), indices(&taps));
    let windows: Vec<_> = indices(&space).iter().map(|p| window(&axes, &steps, p, &all_taps)).collect();
    let image: usize = sizes.iter().product();
    let values = x.as_floats()?;
    let mut out = Vec::with_capacity(n * channels * windows.len());
    for base in offsets(&[n * channels], &[image]) {
        for window in &windows {
            let under = window.iter().map(|&(_, at)| f64::from(values[base + at]));
            out.push(if op == "max_pool" {
                under.fold(
                    f64::NEG_INFINITY,
                    |a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) },
                )
            } else {
                under.sum::<f64>() / if exclude { window.len() } else { all_taps.len() } as f64
            } as f32);
        }
    }
    Ok(Tensor::of_floats(x.ty, &[&[*n, *channels], &space[..]].concat(), out))
}
