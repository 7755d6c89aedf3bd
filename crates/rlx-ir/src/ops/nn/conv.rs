//! Convolution and its transpose, over one to three spatial dimensions.
//!
//! [`Op::Conv`] (ONNX `Conv`): for output channel `o` in group `g`, output position `p` and taps `t` of the
//! kernel, with the input taken as 0 outside,
//!
//! `y[n, o, p] = bias[o] + Σ_{i < I/groups} Σ_t x[n, g·I/groups + i, p·stride + t·dilation − pad] · w[o, i, t]`
//!
//! [`Op::ConvTranspose`] (ONNX `ConvTranspose`) is the gradient of a convolution by its input: every input
//! element spreads over the window it would have been read from,
//!
//! `y[n, o, p·stride + t·dilation − pad] += x[n, i, p] · w[i, o', t]`, what falls outside is dropped.

use smallvec::smallvec;

use super::window::{WindowAxis, at_least_one, inside, place, results_have_elements, slides};
use crate::dim::{Dim, Extent};
use crate::dtype::DTypeClass;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::def::{Arity, OpDef, Ranges, dtype_error};
use crate::ops::{DataFormat, Op, OpKind, attrs};
use crate::oracle::for_each_index;
use crate::progress::{Progress, Stage};
use crate::shape::{Shape, Shapes};
use crate::tensor::{Elements, Value};

#[cfg(feature = "testing")]
use super::window::RandomWindow;
#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

fn reject<T>(kind: OpKind, message: String) -> Result<T> {
    Err(Error::new(ErrorKind::Shape, format!("{kind}: {message}")))
}

/// Element types, ranks and bias: what both ops ask of their inputs. `out_channels` is the bias's length.
fn check_operands(kind: OpKind, inputs: &[&Shape], out_channels: Extent) -> Result<()> {
    for s in inputs {
        if matches!(s.dtype().class(), DTypeClass::Bool | DTypeClass::Complex) {
            return Err(dtype_error(kind, s, "numbers"));
        }
        if s.dtype() != inputs[0].dtype() {
            let message = format!("{kind} of {} with {s}: element types differ", inputs[0]);
            return Err(Error::new(ErrorKind::DType, message).with_hint("insert a Cast"));
        }
    }
    let Some(bias) = inputs.get(2) else { return Ok(()) };
    let fits = bias.rank() == 1 && !differ(bias.dim(0).extent(), out_channels);
    if fits { Ok(()) } else { reject(kind, format!("a bias {bias} for {out_channels} channels")) }
}

/// Whether two extents are known and unequal.
fn differ(a: Extent, b: Extent) -> bool {
    matches!((a, b), (Extent::Const(a), Extent::Const(b)) if a != b)
}

fn check_ranks(kind: OpKind, x: &Shape, w: &Shape) -> Result<usize> {
    if x.rank() < 3 || x.rank() != w.rank() {
        return reject(
            kind,
            format!("an input {x} with weights {w}: both need two dimensions and the spatial ones"),
        );
    }
    if w.dims()[2..].contains(&Dim::Static(0)) {
        return reject(kind, format!("weights {w} have a kernel without elements"));
    }
    Ok(x.rank() - 2)
}

fn check_groups(kind: OpKind, groups: usize, channels: Dim, what: &str) -> Result<()> {
    let divides = groups > 0 && channels.as_static().is_none_or(|c| c % groups == 0);
    if divides { Ok(()) } else { reject(kind, format!("{groups} groups do not divide {channels} {what}")) }
}

/// One product of the sum: where in `x` and where in `w`.
type Term = (usize, usize);

/// The result's channels that are made from the same elements of `x`.
struct Channels {
    /// Which axis they are of.
    axis: usize,
    /// How many there are in each group.
    count: usize,
    /// How far the weights of one lie from those of the next.
    stride: usize,
}

/// `bias + Σ x·w` over the terms of each result element, exactly in integers or in `f64`. `terms` gives those of the first
/// channel of a group. It can be stopped between groups: large kernels on large images take the oracle long.
fn sum_of_products(
    inputs: &[&Value],
    dims: &[usize],
    channels: &Channels,
    terms: impl Fn(&[usize]) -> Vec<Term>,
    progress: &Progress,
) -> Result<Value> {
    let (x, w, bias, dtype) = (inputs[0], inputs[1], inputs.get(2), inputs[0].dtype);
    if let (Elements::Int(x), Elements::Int(w)) = (&x.elements, &w.elements) {
        let bias = bias.map(|b| b.ints()).transpose()?;
        let sum = |channel: usize, terms: &[Term], shift: usize| {
            let start = bias.map_or(0, |b| b[channel]);
            terms.iter().fold(start, |sum: i128, &(i, j)| sum.wrapping_add(x[i].wrapping_mul(w[j + shift])))
        };
        let out = by_group(dims, channels, &terms, sum, progress)?;
        return Ok(Value::int(dtype, dims, out));
    }
    let (x, w, bias) = (x.floats()?, w.floats()?, bias.map(|b| b.floats()).transpose()?);
    let sum = |channel: usize, terms: &[Term], shift: usize| {
        let start = bias.map_or(0.0, |b| b[channel]);
        terms.iter().fold(start, |sum: f64, &(i, j)| sum + x[i] * w[j + shift])
    };
    let out = by_group(dims, channels, &terms, sum, progress)?;
    Ok(Value::float(dtype, dims, out))
}

/// Each result element by its channel, its group's terms, and how much further its weights lie than the terms say. The
/// terms are found once for all channels of a group: that takes longer than a product.
fn by_group<T: Copy + Default>(
    dims: &[usize],
    channels: &Channels,
    terms: &impl Fn(&[usize]) -> Vec<Term>,
    sum: impl Fn(usize, &[Term], usize) -> T,
    progress: &Progress,
) -> Result<Vec<T>> {
    let mut out = vec![T::default(); dims.iter().product()];
    let mut goes_on = Ok(());
    let mut groups = dims.to_vec();
    groups[channels.axis] /= channels.count;
    for_each_index(&groups, |group| {
        if goes_on.is_ok() {
            goes_on = progress.check(Stage::Verify);
        }
        if goes_on.is_err() {
            return;
        }
        let mut index = group.to_vec();
        index[channels.axis] *= channels.count;
        let terms = terms(&index);
        for o in 0..channels.count {
            out[place(&index, dims)] = sum(index[channels.axis], &terms, o * channels.stride);
            index[channels.axis] += 1;
        }
    });
    goes_on.map(|()| out)
}

/// [`Op::Conv`].
pub struct ConvDef;

impl OpDef for ConvDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Between(2, 3)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => Conv { strides, pads, dilations, groups, format });
        let (kind, x, w) = (OpKind::Conv, inputs[0], inputs[1]);
        let spatial = check_ranks(kind, x, w)?;
        let slides = slides(kind, spatial, strides, pads, dilations)?;
        let channels = x.dim(format.channel_axis(x.rank()));
        check_groups(kind, *groups, channels, "input channels")?;
        check_groups(kind, *groups, w.dim(0), "output channels")?;
        if differ(channels.extent(), w.dim(1).extent() * *groups as i64) {
            return reject(kind, format!("{channels} channels of {x} with weights {w} in {groups} groups"));
        }
        check_operands(kind, inputs, w.dim(0).extent())?;
        let mut out = Vec::with_capacity(spatial);
        for (i, slide) in slides.iter().enumerate() {
            let (n, k) = (x.dim(format.first_spatial_axis() + i).extent(), w.dim(2 + i).extent());
            let windows = slide.windows(n, k);
            let shape_mismatch = || {
                format!("a kernel reaching over {} does not fit into {x} with pads {pads:?}", slide.reach(k))
            };
            out.push(Dim::from(at_least_one(kind, windows, shape_mismatch)?));
        }
        Ok(smallvec![x.with_dims(format.arrange(x.dim(0), w.dim(0), &out))])
    }

    fn holds_for_all(&self, op: &Op, inputs: &[&Shape], range: Ranges<'_>) -> bool {
        let Op::Conv { groups, format, .. } = op else { return false };
        let (x, w) = (inputs[0], inputs[1]);
        let channels = x.dim(format.channel_axis(x.rank()));
        channels.is_static()
            && w.is_static()
            && w.dim(1).extent() * *groups as i64 == channels.extent()
            && inputs[2..].iter().all(|bias| bias.dims() == [w.dim(0)])
            && results_have_elements(self, op, inputs, range)
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        self.reference_with_progress(op, inputs, results, &Progress::none())
    }

    fn reference_with_progress(
        &self,
        op: &Op,
        inputs: &[&Value],
        results: &[Shape],
        progress: &Progress,
    ) -> Result<Vec<Value>> {
        attrs!(op => Conv { strides, pads, dilations, groups, format });
        let (x, w) = (inputs[0], inputs[1]);
        let dims = results[0].static_dims().unwrap_or_default();
        let slides = slides(OpKind::Conv, x.dims.len() - 2, strides, pads, dilations)?;
        let axis = format.channel_axis(dims.len());
        let count = (w.dims[0] / groups).max(1);
        let channels = Channels { axis, count, stride: w.dims[1..].iter().product() };
        let terms = |index: &[usize]| conv_terms(index, x, w, &slides, *format, index[axis] / count);
        Ok(vec![sum_of_products(inputs, &dims, &channels, terms, progress)?])
    }

    fn flops(&self, _: &Op, inputs: &[&Shape], results: &[Shape]) -> f64 {
        let per_output: f64 =
            inputs[1].dims()[1..].iter().map(|d| d.as_static().unwrap_or(0) as f64).product();
        2.0 * per_output * results[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let spatial = g.pick(&[1, 2, 2, 2, 3]);
        let window = RandomWindow::new(g, spatial);
        let groups = g.pick(&[1, 1, 2, 3]);
        // One input channel in each of many groups is the depthwise case.
        let (per_group, out_per_group) = (g.size(1..=3), g.size(1..=3));
        let format: DataFormat = g.variant();
        let dtype = g.dtype_where(|d| !matches!(d.class(), DTypeClass::Bool | DTypeClass::Complex));
        let x = format.arrange(g.size(1..=2), groups * per_group, &window.input);
        let mut w = vec![groups * out_per_group, per_group];
        w.extend(&window.kernel);
        let mut inputs = vec![g.value(dtype, &x, -1.0..1.0), g.value(dtype, &w, -1.0..1.0)];
        if g.chance(0.5) {
            inputs.push(g.value(dtype, &w[..1], -1.0..1.0));
        }
        let RandomWindow { strides, pads, dilations, .. } = window;
        Case::new(Op::Conv { strides, pads, dilations, groups, format }, inputs)
    }
}

/// The products that make the result at `index`; padding contributes none.
fn conv_terms(
    index: &[usize],
    x: &Value,
    w: &Value,
    slides: &[WindowAxis],
    format: DataFormat,
    group: usize,
) -> Vec<Term> {
    let (rank, first) = (index.len(), format.first_spatial_axis());
    let (n, o) = (index[0], index[format.channel_axis(rank)]);
    let mut terms = Vec::new();
    for_each_index(&w.dims[1..], |tap| {
        let positions: Option<Vec<usize>> = (0..slides.len())
            .map(|d| inside(slides[d].position(index[first + d], tap[1 + d]), x.dims[first + d]))
            .collect();
        if let Some(positions) = positions {
            let from = format.arrange(n, group * w.dims[1] + tap[0], &positions);
            let mut weight = vec![o];
            weight.extend_from_slice(tap);
            terms.push((place(&from, &x.dims), place(&weight, &w.dims)));
        }
    });
    terms
}

/// [`Op::ConvTranspose`].
pub struct ConvTransposeDef;

impl OpDef for ConvTransposeDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Between(2, 3)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => ConvTranspose { strides, pads, dilations, output_padding, groups });
        let (kind, x, w) = (OpKind::ConvTranspose, inputs[0], inputs[1]);
        let spatial = check_ranks(kind, x, w)?;
        let slides = slides(kind, spatial, strides, pads, dilations)?;
        if output_padding.len() != spatial || output_padding.iter().any(|&p| p > i32::MAX as usize) {
            return reject(
                kind,
                format!("output_padding {output_padding:?} for {spatial} spatial dimensions"),
            );
        }
        check_groups(kind, *groups, x.dim(1), "input channels")?;
        if differ(x.dim(1).extent(), w.dim(0).extent()) {
            return reject(kind, format!("{} channels of {x} with weights {w}", x.dim(1)));
        }
        let out_channels = w.dim(1).extent() * *groups as i64;
        check_operands(kind, inputs, out_channels)?;
        let mut out = vec![x.dim(0), Dim::from(out_channels)];
        for (i, slide) in slides.iter().enumerate() {
            let reach = slide.reach(w.dim(2 + i).extent());
            let n = (x.dim(2 + i).extent() - 1) * slide.stride + reach + output_padding[i] as i64;
            let shape_mismatch =
                || format!("pads {pads:?} leave nothing of the result of {x} with weights {w}");
            out.push(Dim::from(at_least_one(kind, n - slide.before - slide.after, shape_mismatch)?));
        }
        Ok(smallvec![x.with_dims(out)])
    }

    fn holds_for_all(&self, op: &Op, inputs: &[&Shape], range: Ranges<'_>) -> bool {
        let Op::ConvTranspose { groups, .. } = op else { return false };
        let (x, w) = (inputs[0], inputs[1]);
        let bias = [Dim::from(w.dim(1).extent() * *groups as i64)];
        w.is_static()
            && x.dim(1) == w.dim(0)
            && inputs[2..].iter().all(|b| b.dims() == bias)
            && results_have_elements(self, op, inputs, range)
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        self.reference_with_progress(op, inputs, results, &Progress::none())
    }

    fn reference_with_progress(
        &self,
        op: &Op,
        inputs: &[&Value],
        results: &[Shape],
        progress: &Progress,
    ) -> Result<Vec<Value>> {
        attrs!(op => ConvTranspose { strides, pads, dilations, groups });
        let (x, w) = (inputs[0], inputs[1]);
        let dims = results[0].static_dims().unwrap_or_default();
        let slides = slides(OpKind::ConvTranspose, x.dims.len() - 2, strides, pads, dilations)?;
        let per_group = x.dims[1] / groups;
        let stride = w.dims[2..].iter().product();
        let channels = Channels { axis: 1, count: w.dims[1].max(1), stride };
        let terms = |index: &[usize]| transpose_terms(index, x, w, &slides, per_group);
        Ok(vec![sum_of_products(inputs, &dims, &channels, terms, progress)?])
    }

    /// Each result looks at every tap of the kernel for those that fall on it.
    fn work(&self, op: &Op, inputs: &[&Shape], results: &[Shape]) -> f64 {
        let taps: f64 = inputs[1].dims()[2..].iter().map(|d| d.as_static().unwrap_or(0) as f64).product();
        let looked_at = taps * results[0].num_elements().map_or(f64::INFINITY, |n| n as f64);
        looked_at + self.flops(op, inputs, results)
    }

    fn flops(&self, _: &Op, inputs: &[&Shape], _: &[Shape]) -> f64 {
        let per_input: f64 =
            inputs[1].dims()[1..].iter().map(|d| d.as_static().unwrap_or(0) as f64).product();
        2.0 * per_input * inputs[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let spatial = g.pick(&[1, 2, 2, 3]);
        let RandomWindow { strides, mut pads, dilations, kernel, input } = RandomWindow::new(g, spatial);
        // At least one element of the result must be left.
        for i in 0..spatial {
            let n = (input[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1;
            if pads[i] + pads[spatial + i] >= n {
                (pads[i], pads[spatial + i]) = (0, 0);
            }
        }
        let output_padding = strides.iter().map(|&s| g.size(0..=s - 1)).collect();
        let groups = g.pick(&[1, 1, 2]);
        let (channels, out_per_group) = (groups * g.size(1..=2), g.size(1..=2));
        let dtype = g.dtype_where(|d| !matches!(d.class(), DTypeClass::Bool | DTypeClass::Complex));
        let x = DataFormat::ChannelsFirst.arrange(g.size(1..=2), channels, &input);
        let mut w = vec![channels, out_per_group];
        w.extend(&kernel);
        let mut inputs = vec![g.value(dtype, &x, -1.0..1.0), g.value(dtype, &w, -1.0..1.0)];
        if g.chance(0.5) {
            inputs.push(g.value(dtype, &[groups * out_per_group], -1.0..1.0));
        }
        Case::new(Op::ConvTranspose { strides, pads, dilations, output_padding, groups }, inputs)
    }
}

/// The products that fall on `index`: input `p` and tap `t` with `p·stride + t·dilation − pad = index`.
fn transpose_terms(
    index: &[usize],
    x: &Value,
    w: &Value,
    slides: &[WindowAxis],
    per_group: usize,
) -> Vec<Term> {
    let (group, o) = (index[1] / w.dims[1], index[1] % w.dims[1]);
    let mut terms = Vec::new();
    for_each_index(&w.dims[2..], |tap| {
        let positions: Option<Vec<usize>> = (0..slides.len())
            .map(|d| {
                let scaled = index[2 + d] as i64 + slides[d].before - tap[d] as i64 * slides[d].dilation;
                let hit = scaled % slides[d].stride == 0;
                if hit { inside(scaled / slides[d].stride, x.dims[2 + d]) } else { None }
            })
            .collect();
        let Some(positions) = positions else { return };
        for i in group * per_group..(group + 1) * per_group {
            let from = DataFormat::ChannelsFirst.arrange(index[0], i, &positions);
            let mut weight = vec![i, o];
            weight.extend_from_slice(tap);
            terms.push((place(&from, &x.dims), place(&weight, &w.dims)));
        }
    });
    terms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dim::sym;
    use crate::{DType, oracle::evaluate_op};

    fn conv(strides: usize, pads: [usize; 2], dilation: usize, groups: usize) -> Op {
        let (strides, pads, dilations) = (vec![strides], pads.to_vec(), vec![dilation]);
        Op::Conv { strides, pads, dilations, groups, format: DataFormat::ChannelsFirst }
    }

    fn floats(dims: &[usize], v: &[f64]) -> Value {
        Value::float(DType::F32, dims, v.to_vec())
    }

    #[test]
    fn a_small_convolution_by_hand() {
        let (x, w) = (floats(&[1, 1, 4], &[1.0, 2.0, 3.0, 4.0]), floats(&[1, 1, 2], &[1.0, 10.0]));
        let y = evaluate_op(&conv(1, [1, 0], 1, 1), &[&x, &w], &[]).unwrap();
        assert_eq!(y[0].to_f64(), [10.0, 21.0, 32.0, 43.0]);
        let y = evaluate_op(&conv(2, [0, 0], 2, 1), &[&x, &w], &[]).unwrap();
        assert_eq!(y[0].to_f64(), [31.0]);
    }

    #[test]
    fn transposing_spreads_what_convolving_gathers() {
        let (x, w) = (floats(&[1, 1, 2], &[1.0, 2.0]), floats(&[1, 1, 3], &[1.0, 10.0, 100.0]));
        let op = Op::ConvTranspose {
            strides: vec![2],
            pads: vec![0, 0],
            dilations: vec![1],
            output_padding: vec![1],
            groups: 1,
        };
        let y = evaluate_op(&op, &[&x, &w], &[]).unwrap();
        assert_eq!(y[0].to_f64(), [1.0, 10.0, 102.0, 20.0, 200.0, 0.0]);
    }

    #[test]
    fn groups_spread_their_own_channels_and_every_channel_has_its_bias() {
        // What ONNX Runtime 1.31 gives (and for 322 random cases with up to three groups); the reference
        // evaluator of the onnx package 1.20 fails for several channels in a group and adds no bias to groups.
        let x = floats(&[1, 4, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let w = floats(&[4, 1, 2], &[1.0, 10.0, 2.0, 20.0, 3.0, 30.0, 4.0, 40.0]);
        let bias = floats(&[2], &[100.0, -100.0]);
        let op = Op::ConvTranspose {
            strides: vec![1],
            pads: vec![0, 0],
            dilations: vec![1],
            output_padding: vec![0],
            groups: 2,
        };
        let y = evaluate_op(&op, &[&x, &w, &bias], &[]).unwrap();
        assert_eq!(y[0].to_f64(), [107.0, 180.0, 200.0, -57.0, 380.0, 400.0]);
    }

    #[test]
    fn symbolic_sizes_stay_symbolic() {
        let (b, s) = (Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ));
        let x = Shape::from_dims(&[b, Dim::Static(3), s], DType::F32);
        let w = Shape::new(&[8, 3, 3], DType::F32);
        let y = ConvDef.infer(&conv(1, [1, 1], 1, 1), &[&x, &w], &[]).unwrap();
        assert_eq!(y[0], Shape::from_dims(&[b, Dim::Static(8), s], DType::F32));
    }

    #[test]
    fn mismatches_are_errors_that_name_the_shapes() {
        let x = Shape::new(&[1, 4, 5], DType::F32);
        let fails = |w: &[usize], op: &Op| {
            ConvDef.infer(op, &[&x, &Shape::new(w, DType::F32)], &[]).unwrap_err().to_string()
        };
        assert!(fails(&[2, 3, 1], &conv(1, [0, 0], 1, 1)).contains("[2, 3, 1] f32"));
        assert!(fails(&[2, 4, 6], &conv(1, [0, 0], 1, 1)).contains("does not fit"));
        assert!(fails(&[3, 2, 1], &conv(1, [0, 0], 1, 2)).contains("do not divide 3"));
    }
}
