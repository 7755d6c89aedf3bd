//! Signals: `DFT`, `STFT`, `MelWeightMatrix`.

mod fourier;

use self::fourier::Complex;
use super::{Entry, nodes};
use crate::import::NodeCx;
use crate::tensor;
use rlx_ir::op::{BinaryOp as B, PadMode};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op, Value};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(super) const OPS: &[Entry] =
    &[nodes("DFT", dft), nodes("MelWeightMatrix", mel_weight_matrix), nodes("STFT", stft)];

/// The transform along one axis of a signal `[…, 1 or 2]`, whose last dimension has the real and imaginary parts. The axis is an
/// attribute in opset 17, an operand from 20 on.
fn dft(cx: Cx) -> Nodes {
    let shape = cx.shape(0)?;
    let axis = match cx.opset < 20 {
        true => cx.attrs.int("axis", 1)?,
        false if cx.has(2) => cx.number(2)?,
        false => -2,
    };
    let axis = shape.axis(axis)?;
    if axis + 1 == shape.rank() {
        return Err(cx.malformed(format!("axis {axis} of {shape} holds the parts of complex numbers")));
    }
    let (inverse, onesided) = (cx.attrs.flag("inverse", false)?, cx.attrs.flag("onesided", false)?);
    let given = shape.dim(axis).extent();
    let length = match cx.has(1) {
        true => match cx.extents(1)?[..] {
            [length] => length,
            _ => return Err(cx.malformed("dft_length must be one number")),
        },
        false if inverse && onesided => (given - 1) * 2,
        false => given,
    };
    let bins = if inverse && onesided { length.floor_div(2) + 1 } else { length };
    let x = cx.x(0)?;
    let x = fitted(cx, x, axis, bins)?;
    let signal = Complex::of(cx, x)?.with_last(cx, axis)?;
    let found = if inverse && onesided {
        let whole = signal.mirrored(cx, length)?;
        Complex { im: None, ..whole.inverse(cx, length)? }
    } else if inverse {
        signal.inverse(cx, length)?
    } else {
        signal.forward(cx, length)?
    };
    let found = if onesided && !inverse { found.first(cx, length.floor_div(2) + 1)? } else { found };
    Ok(vec![found.with_last_at(cx, axis)?.joined(cx, !(inverse && onesided))?])
}

/// The signal cut or filled with zeros along an axis.
fn fitted(cx: Cx, x: NodeId, axis: usize, length: Extent) -> Result<NodeId, Error> {
    let shape = cx.shape_of(x);
    let missing = length - shape.dim(axis).extent();
    if missing == Extent::Const(0) {
        return Ok(x);
    }
    if missing.as_const().is_none() {
        return Err(cx.open_dimension(format!("a transform of length {length} of {}", shape.dim(axis))));
    }
    let zero = vec![Extent::Const(0); shape.rank()];
    let mut after = zero.clone();
    after[axis] = missing;
    cx.pad(&[x], zero, after, PadMode::Constant)
}

/// Transforms of frames of the signal `[N, samples, 1 or 2]`, which start `frame_step` samples apart: `[N, frames, bins, 2]`.
/// A real signal may lack its last dimension; PyTorch's exporter writes it so.
fn stft(cx: Cx) -> Nodes {
    let mut shape = cx.shape(0)?;
    if shape.rank() == 2 {
        let dims = [shape.dims(), &[Dim::Static(1)]].concat();
        shape = shape.with_dims(dims);
    }
    if shape.rank() != 3 {
        return Err(cx.malformed(format!("a signal {shape}, not [batch, samples, 1 or 2]")));
    }
    let (step, samples) = (cx.number(1)?, shape.dim(1).extent());
    let length = if cx.has(3) {
        cx.number(3)?
    } else if cx.has(2) {
        let window = cx.shape(2)?;
        let length = window.dims().first().and_then(|d| d.as_static());
        i64::try_from(length.ok_or_else(|| cx.open_dimension(format!("a window {window}")))?).unwrap_or(0)
    } else {
        return Err(cx.malformed("neither a window nor a frame length"));
    };
    if step < 1 || length < 1 {
        return Err(cx.malformed(format!("frames of {length} samples every {step}")));
    }
    let frames = super::movement::to_dim(cx, (samples - length).floor_div(step) + 1)?;
    let x = cx.x(0)?;
    let x = cx.reshape(x, shape.dims().to_vec())?;
    let x = frames_of(cx, x, frames, step, length)?;
    let x = match cx.x_opt(2)? {
        None => x,
        Some(window) => {
            let window = cx.cast(window, shape.dtype())?;
            let along = [Dim::Static(1), Dim::from(Extent::Const(length)), Dim::Static(1)].to_vec();
            let window = cx.reshape(window, along)?;
            cx.binary(B::Mul, x, window)?
        }
    };
    let found = Complex::of(cx, x)?.with_last(cx, 2)?.forward(cx, Extent::Const(length))?;
    let onesided = cx.attrs.flag("onesided", true)?;
    let found = if onesided { found.first(cx, Extent::Const(length / 2 + 1))? } else { found };
    Ok(vec![found.joined(cx, true)?])
}

/// `[N, frames, length, parts]`
fn frames_of(cx: Cx, x: NodeId, frames: Dim, step: i64, length: i64) -> Result<NodeId, Error> {
    let one = Dim::Static(1);
    let start = cx.add(Op::Iota { to: vec![frames, one], axis: 0, dtype: DType::I64 }, &[])?;
    let start = cx.with_scalar(B::Mul, start, step as f64)?;
    let within = vec![one, Dim::from(Extent::Const(length))];
    let within = cx.add(Op::Iota { to: within, axis: 1, dtype: DType::I64 }, &[])?;
    let places = cx.binary(B::Add, start, within)?;
    cx.add(Op::Gather { axis: 1 }, &[x, places])
}

/// Triangular filters that are evenly spaced on the mel scale: `[bins of the spectrum, mel bins]`.
fn mel_weight_matrix(cx: Cx) -> Nodes {
    let dtype = tensor::dtype(i32::try_from(cx.attrs.int("output_datatype", 1)?).unwrap_or(0))?;
    let (bands, length, rate) = (cx.number(0)?, cx.number(1)?, cx.number(2)?);
    let edge = |cx: &NodeCx<'_, '_>, i: usize| match cx.floats(i)?[..] {
        [hertz] if (0.0..1e12).contains(&hertz) => Ok(hertz),
        _ => Err(cx.malformed(format!("operand {i} is no frequency"))),
    };
    let (low, high) = (edge(cx, 3)?, edge(cx, 4)?);
    let sizes = (usize::try_from(bands).ok(), usize::try_from(length / 2 + 1).ok());
    let (Some(bands), Some(bins), 1..) = (sizes.0, sizes.1, rate) else {
        return Err(cx.malformed(format!("{bands} mel bins of {length} samples at {rate} Hz")));
    };
    if bands > 1 << 20 || length >= 1 << 41 {
        return Err(cx.unsupported(format!("{bands} mel bins of {length} samples")));
    }
    let mut weights = cx.importer.zeros(bins, bands)?;
    let mel = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
    let step = (mel(high) - mel(low)) / (bands + 2) as f64;
    let edge = |i: usize| {
        let hertz = 700.0 * (10f64.powf((mel(low) + step * i as f64) / 2595.0) - 1.0);
        ((length + 1) as f64 * hertz / rate as f64).floor().max(0.0) as usize
    };
    for band in 0..bands {
        let [left, centre, right] = [edge(band), edge(band + 1), edge(band + 2)];
        let mut put = |bin: usize, weight: f64| {
            if let Some(place) = weights.get_mut(bin.saturating_mul(bands).saturating_add(band)) {
                *place = weight;
            }
        };
        if left == centre {
            put(centre, 1.0);
        }
        for bin in (left..=centre.min(bins)).filter(|_| left < centre) {
            put(bin, (bin - left) as f64 / (centre - left) as f64);
        }
        for bin in centre..right.min(bins) {
            put(bin, (right - bin) as f64 / (right - centre) as f64);
        }
    }
    let value = match dtype.is_float() {
        true => Value::float(dtype, &[bins, bands], weights),
        false => Value::int(dtype, &[bins, bands], weights.into_iter().map(|w| w as i128).collect()),
    };
    Ok(vec![cx.constant(value)])
}
