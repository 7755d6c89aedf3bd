//! Convolutions and pooling. MLX has the channels last and the kernel's behind its taps; windows of a pool are a view of the padded
//! input, over which a reduction goes.

use rlx_ir::op::{DataFormat, PoolKind, ReduceOp};
use rlx_ir::{DType, Op, Result};

use super::elementwise::wide;
use super::linalg::{EXACT_TERMS, centred};
use super::reduce;
use crate::program::{Builder, Code, Val, unsupported, word};

/// The permutation that puts axis 1 behind all others.
fn channels_last(rank: usize) -> Vec<usize> {
    let mut perm = vec![0];
    perm.extend(2..rank);
    perm.push(1);
    perm
}

/// The permutation that puts the last axis behind the first.
fn channels_first(rank: usize) -> Vec<usize> {
    let mut perm = vec![0, rank - 1];
    perm.extend(1..rank - 1);
    perm
}

/// How a window moves, as MLX takes it.
struct Slide<'a> {
    strides: &'a [usize],
    before: Vec<usize>,
    after: Vec<usize>,
    dilations: &'a [usize],
    /// The distance of neighbours of the input.
    spread: Vec<usize>,
    flip: bool,
}

/// The convolution of an input and weights with their channels last; its spatial dimensions are `spatial`.
fn convolve(b: &mut Builder<'_>, x: Val, w: Val, groups: usize, slide: &Slide<'_>, spatial: &[usize]) -> Val {
    let count = spatial.len();
    if count == 3 && groups > 1 {
        return by_group(b, x, w, groups, slide, spatial);
    }
    let mut attrs = vec![word(count), word(groups)];
    for list in [slide.strides, &slide.before, &slide.after, slide.dilations, &slide.spread] {
        attrs.extend(list.iter().map(|&n| word(n)));
    }
    attrs.push(i64::from(slide.flip));
    let mut dims = vec![b.dims(x)[0]];
    dims.extend(spatial);
    dims.push(b.dims(w)[0]);
    let dtype = b.dtype(x);
    if [&dims[..], b.dims(x), b.dims(w)].iter().any(|dims| dims.contains(&0)) {
        let zero = b.scalar(dtype, 0.0);
        return b.full(zero, &dims);
    }
    b.op(Code::Conv, &[x, w], &attrs, dtype, &dims)
}

/// MLX's convolutions over three dimensions have no groups.
fn by_group(b: &mut Builder<'_>, x: Val, w: Val, groups: usize, slide: &Slide<'_>, spatial: &[usize]) -> Val {
    let last = spatial.len() + 1;
    let (channels, outputs) = (b.dims(x)[last] / groups, b.dims(w)[0] / groups);
    let mut parts = Vec::with_capacity(groups);
    for g in 0..groups {
        let part = b.narrow(x, last, g * channels, (g + 1) * channels);
        let weights = b.narrow(w, 0, g * outputs, (g + 1) * outputs);
        parts.push(convolve(b, part, weights, 1, slide, spatial));
    }
    b.concatenate(&parts, last)
}

/// The input with its channels last, and how many there are.
fn last(b: &mut Builder<'_>, x: Val, format: DataFormat) -> Val {
    if format == DataFormat::ChannelsLast {
        return x;
    }
    let perm = channels_last(b.dims(x).len());
    b.transpose(x, &perm)
}

/// A result with its channels last as it is wanted, and a bias on it.
fn finish(b: &mut Builder<'_>, y: Val, bias: Option<&Val>, format: DataFormat) -> Val {
    let y = match bias {
        Some(&bias) => b.binary(Code::Add, y, bias),
        None => y,
    };
    if format == DataFormat::ChannelsLast {
        return y;
    }
    let perm = channels_first(b.dims(y).len());
    b.transpose(y, &perm)
}

/// How many windows there are along each dimension.
fn windows(input: &[usize], kernel: &[usize], slide: &Slide<'_>) -> Vec<usize> {
    let count = |i: usize| {
        let reach = (kernel[i] - 1) * slide.dilations[i] + 1;
        let size = input[i] + slide.before[i] + slide.after[i];
        size.saturating_sub(reach) / slide.strides[i] + usize::from(size >= reach)
    };
    (0..kernel.len()).map(count).collect()
}

pub(super) fn conv(b: &mut Builder<'_>, op: &Op, x: &[Val]) -> Result<Val> {
    let Op::Conv { strides, pads, dilations, groups, format } = op else {
        return unsupported("no convolution");
    };
    let (before, after) = pads.split_at(strides.len());
    let slide = Slide {
        strides,
        before: before.to_vec(),
        after: after.to_vec(),
        dilations,
        spread: vec![1; strides.len()],
        flip: false,
    };
    let y = plain(b, x[0], x[1], *groups, &slide, *format);
    Ok(finish(b, y, x.get(2), *format))
}

/// A convolution whose result has its channels last.
fn plain(b: &mut Builder<'_>, x: Val, w: Val, groups: usize, slide: &Slide<'_>, format: DataFormat) -> Val {
    let input = last(b, x, format);
    let perm = channels_last(b.dims(w).len());
    let weights = b.transpose(w, &perm);
    let rank = b.dims(input).len();
    let spatial = windows(&b.dims(input)[1..rank - 1], &b.dims(weights)[1..rank - 1], slide);
    convolve(b, input, weights, groups, slide, &spatial)
}

/// Whether [`conv_integer`] is exact: so many terms of bytes at most in each group.
pub(crate) fn integer_terms_fit(channels: usize, taps: usize, groups: usize) -> bool {
    channels.saturating_mul(taps) <= EXACT_TERMS || (groups == 1 && taps <= EXACT_TERMS)
}

pub(super) fn conv_integer(b: &mut Builder<'_>, op: &Op, x: &[Val]) -> Result<Val> {
    let Op::ConvInteger { strides, pads, dilations, groups, format } = op else {
        return unsupported("no convolution");
    };
    let input = centred(b, x[0], x[2]);
    let mut dims = vec![1; b.dims(x[1]).len()];
    if let [channels] = *b.dims(x[3]) {
        dims[0] = channels;
    }
    let zero = b.reshape(x[3], &dims);
    let weights = centred(b, x[1], zero);
    let (before, after) = pads.split_at(strides.len());
    let (before, after, spread) = (before.to_vec(), after.to_vec(), vec![1; strides.len()]);
    let slide = Slide { strides, before, after, dilations, spread, flip: false };
    let input = last(b, input, *format);
    let (channels, taps) = (b.dims(weights)[1], b.dims(weights)[2..].iter().product::<usize>().max(1));
    let each = if *groups == 1 { (EXACT_TERMS / taps).max(1) } else { channels };
    let axis = b.dims(input).len() - 1;
    let mut sum = None;
    for from in (0..channels).step_by(each) {
        let to = channels.min(from + each);
        let (part, kernel) = if *groups == 1 {
            (b.narrow(input, axis, from, to), b.narrow(weights, 1, from, to))
        } else {
            (input, weights)
        };
        let part = plain(b, part, kernel, *groups, &slide, DataFormat::ChannelsLast);
        let part = b.astype(part, DType::I32);
        sum = Some(sum.map_or(part, |sum| b.binary(Code::Add, sum, part)));
    }
    match sum {
        Some(sum) => Ok(finish(b, sum, None, *format)),
        None => unsupported("a convolution without channels"),
    }
}

/// The convolution of the input with its elements spread apart, with the kernel turned; what the pads cut off is cut off afterwards where
/// they are larger than the kernel's reach.
pub(super) fn conv_transpose(b: &mut Builder<'_>, op: &Op, x: &[Val], dims: &[usize]) -> Result<Val> {
    let Op::ConvTranspose { strides, pads, dilations, output_padding, groups } = op else {
        return unsupported("no convolution");
    };
    let spatial = strides.len();
    let kernel: Vec<usize> = b.dims(x[1])[2..].to_vec();
    let reach = |i: usize| (kernel[i] - 1) * dilations[i];
    let before: Vec<usize> = (0..spatial).map(|i| reach(i).saturating_sub(pads[i])).collect();
    let cut: Vec<usize> = (0..spatial).map(|i| pads[i].saturating_sub(reach(i))).collect();
    let after: Vec<usize> =
        (0..spatial).map(|i| (reach(i) + output_padding[i]).saturating_sub(pads[spatial + i])).collect();
    // [I, O/g, k…] → [g, I/g, O/g, k…] → [g, O/g, k…, I/g] → [O, k…, I/g]
    let (inputs, per_group) = (b.dims(x[1])[0], b.dims(x[1])[1]);
    let mut apart = vec![*groups, inputs / groups, per_group];
    apart.extend(&kernel);
    let w = b.reshape(x[1], &apart);
    let mut perm = vec![0, 2];
    perm.extend(3..3 + spatial);
    perm.push(1);
    let w = b.transpose(w, &perm);
    let mut joined = vec![groups * per_group];
    joined.extend(&kernel);
    joined.push(inputs / groups);
    let w = b.reshape(w, &joined);
    let input = last(b, x[0], DataFormat::ChannelsFirst);
    let ones = vec![1; spatial];
    let sizes: Vec<usize> = (0..spatial)
        .map(|i| b.dims(input)[1 + i].saturating_sub(1) * strides[i] + 1 + before[i] + after[i] - reach(i))
        .collect();
    let slide = Slide { strides: &ones, before, after, dilations, spread: strides.clone(), flip: true };
    let mut y = convolve(b, input, w, *groups, &slide, &sizes);
    for (i, &from) in cut.iter().enumerate() {
        y = b.narrow(y, 1 + i, from, from + dims[2 + i]);
    }
    Ok(finish(b, y, x.get(2), DataFormat::ChannelsFirst))
}

/// One axis of a pool: how the window moves, over what, and how many there are.
struct Axis {
    size: usize,
    kernel: usize,
    stride: usize,
    dilation: usize,
    before: usize,
    after: usize,
    windows: usize,
}

impl Axis {
    /// What is added behind so that the last window fits.
    fn behind(&self) -> usize {
        let end = (self.windows - 1) * self.stride + (self.kernel - 1) * self.dilation + 1;
        end.saturating_sub(self.size + self.before)
    }

    /// How many taps of window `out` count in a mean.
    fn count(&self, out: usize, with_pads: bool) -> usize {
        let (low, high) = if with_pads {
            (0, self.before + self.size + self.after)
        } else {
            (self.before, self.before + self.size)
        };
        (0..self.kernel)
            .filter(|tap| (low..high).contains(&(out * self.stride + tap * self.dilation)))
            .count()
    }
}

pub(super) fn pool(b: &mut Builder<'_>, op: &Op, x: Val, dims: &[usize]) -> Result<Val> {
    let Op::Pool { kind, kernel, strides, pads, dilations, count_include_pad, format, .. } = op else {
        return unsupported("no pooling");
    };
    let (dtype, rank, spatial) = (b.dtype(x), b.dims(x).len(), kernel.len());
    let first = format.first_spatial_axis();
    let axes: Vec<Axis> = (0..spatial)
        .map(|i| Axis {
            size: b.dims(x)[first + i],
            kernel: kernel[i],
            stride: strides[i],
            dilation: dilations[i],
            before: pads[i],
            after: pads[spatial + i],
            windows: dims[first + i],
        })
        .collect();
    if dims.contains(&0) {
        return Ok(b.empty(dtype, dims));
    }
    let within = if *kind == PoolKind::Average { wide(dtype) } else { dtype };
    let x = b.astype(x, within);
    let border = match (kind, within.int_range()) {
        (PoolKind::Average, _) => b.scalar(within, 0.0),
        (PoolKind::Max, Some((least, _))) => b.int(within, least),
        _ => b.scalar(within, f64::NEG_INFINITY),
    };
    let (mut before, mut after) = (vec![0; rank], vec![0; rank]);
    for (i, axis) in axes.iter().enumerate() {
        (before[first + i], after[first + i]) = (axis.before, axis.behind());
    }
    let padded = b.pad(x, border, &before, &after);
    let mut steps = vec![1; rank];
    for i in (0..rank - 1).rev() {
        steps[i] = steps[i + 1] * b.dims(padded)[i + 1];
    }
    let mut sizes = dims.to_vec();
    sizes.extend(kernel);
    let mut moves = steps.clone();
    for (i, axis) in axes.iter().enumerate() {
        moves[first + i] = steps[first + i] * axis.stride;
        moves.push(steps[first + i] * axis.dilation);
    }
    let windows = b.windows(padded, &sizes, &moves);
    let taps: Vec<usize> = (rank..rank + spatial).collect();
    if *kind == PoolKind::Max {
        return Ok(reduce::extreme(b, ReduceOp::Max, windows, &taps, false));
    }
    let sum = b.reduce(Code::Sum, windows, &taps, false);
    let counts = counts(b, &axes, first, rank, *count_include_pad, within);
    let mean = b.binary(Code::Divide, sum, counts);
    Ok(b.astype(mean, dtype))
}

/// What each window's sum is divided by, at least 1.
fn counts(
    b: &mut Builder<'_>,
    axes: &[Axis],
    first: usize,
    rank: usize,
    with_pads: bool,
    dtype: DType,
) -> Val {
    let mut all = b.scalar(dtype, 1.0);
    for (i, axis) in axes.iter().enumerate() {
        let row: Vec<f64> = (0..axis.windows).map(|out| axis.count(out, with_pads) as f64).collect();
        let mut dims = vec![1; rank];
        dims[first + i] = axis.windows;
        let row = rlx_ir::Value::float(dtype, &dims, row).encode();
        let row = b.constant(dtype, &dims, &row);
        all = b.binary(Code::Multiply, all, row);
    }
    let one = b.scalar(dtype, 1.0);
    b.binary(Code::Maximum, all, one)
}
