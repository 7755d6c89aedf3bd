//! Resizing by interpolation.
//!
//! Interpolation is separable: along each axis an output element is a weighted sum of a few input elements, with
//! weights that depend on sizes only. If the sizes are numbers, the weights are computed here: an axis where each output
//! takes one input becomes a gather, one where it takes two becomes two gathers and a linear interpolation, any other
//! a matmul with the matrix of weights. If sizes are dynamic, [`open`] computes the positions by ops of the graph.

mod open;

use super::movement::axes_of;
use super::{Entry, nodes};
use crate::import::NodeCx;
use rlx_ir::op::BinaryOp as B;
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op, Value};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

/// Along an axis there are at most this many outputs, and as many inputs, whose weights are computed while importing.
const MAX_POSITIONS: usize = 1 << 18;

pub(super) const OPS: &[Entry] = &[nodes("Resize", resize), nodes("Upsample", upsample)];

/// How positions and weights are computed.
struct Method {
    kind: Kind,
    coordinates: Coordinates,
    nearest: Nearest,
    cubic: f64,
    exclude_outside: bool,
    antialias: bool,
    extrapolation: f64,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Nearest,
    Linear,
    Cubic,
}

#[derive(Clone, Copy, PartialEq)]
enum Coordinates {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
    CropAndResize,
}

#[derive(Clone, Copy, PartialEq)]
enum Nearest {
    PreferFloor,
    PreferCeil,
    Floor,
    Ceil,
}

/// What the operands say of one axis.
struct Wanted {
    axis: usize,
    from: Extent,
    to: Extent,
    /// How much larger it becomes, where that is known as a number.
    scale: Option<f64>,
    /// How many elements of the input there are for how many of the output, in whole numbers.
    ratio: Option<(Extent, Extent)>,
    /// Part of the input to take, in units of its length.
    roi: (f64, f64),
}

/// One axis to resize, of known size.
struct Axis {
    axis: usize,
    from: usize,
    to: usize,
    scale: f64,
    roi: (f64, f64),
}

/// What one output element is made of; `None` where it is outside and is extrapolated.
type Taps = Option<Vec<(usize, f64)>>;

impl Method {
    fn read(cx: &NodeCx<'_, '_>) -> Result<Method, Error> {
        let kind = match cx.attrs.text("mode", "nearest")? {
            "nearest" => Kind::Nearest,
            "linear" | "bilinear" => Kind::Linear,
            "cubic" => Kind::Cubic,
            other => return Err(cx.malformed(format!("mode = \"{other}\""))),
        };
        // Up to opset 10 there is one rule, without attributes.
        let modern = cx.opset >= 11;
        let coordinates = match cx.attrs.text("coordinate_transformation_mode", "half_pixel")? {
            _ if !modern => Coordinates::Asymmetric,
            "half_pixel" => Coordinates::HalfPixel,
            "half_pixel_symmetric" => Coordinates::HalfPixelSymmetric,
            "pytorch_half_pixel" => Coordinates::PytorchHalfPixel,
            "align_corners" => Coordinates::AlignCorners,
            "asymmetric" => Coordinates::Asymmetric,
            "tf_crop_and_resize" => Coordinates::CropAndResize,
            other => return Err(cx.bad_attr("coordinate_transformation_mode", other)),
        };
        let nearest = match cx.attrs.text("nearest_mode", "round_prefer_floor")? {
            _ if !modern => Nearest::Floor,
            "round_prefer_floor" => Nearest::PreferFloor,
            "round_prefer_ceil" => Nearest::PreferCeil,
            "floor" => Nearest::Floor,
            "ceil" => Nearest::Ceil,
            other => return Err(cx.malformed(format!("nearest_mode = \"{other}\""))),
        };
        Ok(Method {
            kind,
            coordinates,
            nearest,
            cubic: f64::from(cx.attrs.float("cubic_coeff_a", -0.75)?),
            exclude_outside: cx.attrs.flag("exclude_outside", false)?,
            antialias: cx.attrs.flag("antialias", false)?,
            extrapolation: f64::from(cx.attrs.float("extrapolation_value", 0.0)?),
        })
    }

    /// The position of output `i` among the inputs; `None` outside of the cropped part.
    fn position(&self, i: usize, axis: &Axis) -> Option<f64> {
        let (x, from) = (i as f64, axis.from as f64);
        let width = axis.scale * from;
        Some(match self.coordinates {
            Coordinates::AlignCorners if width == 1.0 => 0.0,
            Coordinates::AlignCorners => x * (from - 1.0) / (width - 1.0),
            Coordinates::Asymmetric => x / axis.scale,
            Coordinates::PytorchHalfPixel if width == 1.0 => -0.5,
            Coordinates::HalfPixel | Coordinates::PytorchHalfPixel => (x + 0.5) / axis.scale - 0.5,
            Coordinates::HalfPixelSymmetric => {
                let offset = from / 2.0 * (1.0 - axis.to as f64 / width);
                offset + (x + 0.5) / axis.scale - 0.5
            }
            Coordinates::CropAndResize => {
                let (start, end) = axis.roi;
                let step = if width == 1.0 { 0.5 } else { x / (width - 1.0) };
                let at = start * (from - 1.0) + step * (end - start) * (from - 1.0);
                return (0.0..=from - 1.0).contains(&at).then_some(at);
            }
        })
    }

    /// How many inputs an output is at most made of.
    fn neighbours(&self, scale: f64) -> usize {
        let reach = match self.kind {
            Kind::Nearest => return 2,
            Kind::Linear => 1.0,
            Kind::Cubic => 2.0,
        };
        2 * (reach / if self.antialias { scale.min(1.0) } else { 1.0 }).ceil() as usize
    }

    /// Weights of the neighbours of a position whose distance from its left neighbour is `ratio`, in `(0, 1]`.
    fn weights(&self, ratio: f64, scale: f64) -> Vec<f64> {
        let scale = if self.antialias { scale.min(1.0) } else { 1.0 };
        let reach = match self.kind {
            Kind::Nearest => return self.nearest_weights(ratio),
            Kind::Linear => 1.0,
            Kind::Cubic => 2.0,
        };
        let first = (-reach / scale).floor() as i64 + 1;
        let curve = |x: f64| match self.kind {
            Kind::Cubic => cubic(x.abs(), self.cubic),
            _ => (1.0 - x.abs()).clamp(0.0, 1.0),
        };
        let weights: Vec<f64> = (first..2 - first).map(|i| curve(scale * (i as f64 - ratio))).collect();
        let total: f64 = if self.antialias { weights.iter().sum() } else { 1.0 };
        weights.into_iter().map(|w| w / total).collect()
    }

    fn nearest_weights(&self, ratio: f64) -> Vec<f64> {
        let left = ratio != 1.0
            && match self.nearest {
                Nearest::PreferFloor => ratio <= 0.5,
                Nearest::PreferCeil => ratio < 0.5,
                Nearest::Floor => true,
                Nearest::Ceil => false,
            };
        if left { vec![1.0, 0.0] } else { vec![0.0, 1.0] }
    }

    /// The inputs that output `i` is made of.
    fn taps(&self, i: usize, axis: &Axis) -> Taps {
        let at = self.position(i, axis)?;
        let ratio = if at.fract() == 0.0 { 1.0 } else { at - at.floor() };
        let mut weights = self.weights(ratio, axis.scale);
        let count = weights.len() as i64;
        // The nearest `count` positions, in a row that is extended by half as many at either end.
        let (pad, last) = ((count + 1) / 2, axis.from as i64 - 1);
        let first = (at.ceil() as i64 - count / 2).clamp(-pad, last + pad - count + 1);
        let places: Vec<i64> = (first..first + count).collect();
        if self.exclude_outside {
            let outside = |place: &i64| !(0..=last).contains(place);
            places.iter().zip(&mut weights).filter(|(p, _)| outside(p)).for_each(|(_, w)| *w = 0.0);
            let total: f64 = weights.iter().sum();
            weights.iter_mut().for_each(|w| *w /= total);
        }
        let taps = places.iter().zip(weights).filter(|(_, w)| *w != 0.0);
        Some(taps.map(|(&place, w)| (place.clamp(0, last) as usize, w)).collect())
    }
}

/// Keys' cubic convolution.
fn cubic(x: f64, a: f64) -> f64 {
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    } else {
        0.0
    }
}

fn upsample(cx: Cx) -> Nodes {
    let scales = match cx.has(1) {
        true => cx.floats(1)?,
        false => cx.attrs.floats("scales")?.unwrap_or_default().iter().map(|&s| f64::from(s)).collect(),
    };
    let method =
        Method { coordinates: Coordinates::Asymmetric, nearest: Nearest::Floor, ..Method::read(cx)? };
    let rank = cx.rank(0)?;
    let axes = by_scales(cx, &(0..rank).collect::<Vec<_>>(), &scales)?;
    run(cx, &method, &axes)
}

/// Operands are (x, scales) in opset 10, (x, roi, scales, sizes) from then on.
fn resize(cx: Cx) -> Nodes {
    let method = Method::read(cx)?;
    let rank = cx.rank(0)?;
    let axes = match cx.attrs.ints("axes")? {
        Some(axes) => axes_of(cx, axes, rank)?,
        None => (0..rank).collect(),
    };
    let scales_at = if cx.opset < 11 { 1 } else { 2 };
    let scales = if cx.has(scales_at) { cx.floats(scales_at)? } else { vec![] };
    let mut resized = match scales.is_empty() {
        false => by_scales(cx, &axes, &scales)?,
        true => by_sizes(cx, &axes)?,
    };
    if method.coordinates == Coordinates::CropAndResize {
        let roi = cx.floats(1)?;
        if roi.len() != 2 * axes.len() {
            return Err(cx.malformed(format!("{} numbers of roi for {} axes", roi.len(), axes.len())));
        }
        for (i, axis) in resized.iter_mut().enumerate() {
            axis.roi = (roi[i], roi[axes.len() + i]);
        }
    }
    run(cx, &method, &resized)
}

fn size_of(cx: &NodeCx<'_, '_>, axis: usize) -> Result<usize, Error> {
    let dim = cx.shape(0)?.dim(axis);
    dim.as_static().ok_or_else(|| cx.open_dimension(format!("resizing a dimension of {dim}")))
}

fn by_scales(cx: &NodeCx<'_, '_>, axes: &[usize], scales: &[f64]) -> Result<Vec<Wanted>, Error> {
    if scales.len() != axes.len() || scales.iter().any(|&s| !(s > 0.0 && s < 1e9)) {
        return Err(cx.malformed(format!("scales {scales:?} for {} axes", axes.len())));
    }
    let mut resized = Vec::new();
    for (&axis, &scale) in axes.iter().zip(scales) {
        let from = cx.shape(0)?.dim(axis).extent();
        let (up, down) = (scale.round(), (1.0 / scale).round());
        let (to, ratio) = if let Some(size) = from.as_const() {
            (Extent::Const((scale * size as f64) as i64), None)
        } else if scale == up {
            (from * up as i64, Some((Extent::Const(1), Extent::Const(up as i64))))
        } else if scale == 1.0 / down {
            (from.floor_div(down as i64), Some((Extent::Const(down as i64), Extent::Const(1))))
        } else {
            return Err(cx.open_dimension(format!("resizing a dimension of {from} by {scale}")));
        };
        resized.push(Wanted { axis, from, to, scale: Some(scale), ratio, roi: (0.0, 1.0) });
    }
    Ok(resized)
}

/// Sizes are exact, unless the aspect ratio is to be kept: then the smallest or largest scale holds for all axes.
fn by_sizes(cx: Cx, axes: &[usize]) -> Result<Vec<Wanted>, Error> {
    let sizes = cx.found_extents(3)?;
    if sizes.len() != axes.len() {
        return Err(cx.malformed(format!("{} sizes for {} axes", sizes.len(), axes.len())));
    }
    let mut resized = Vec::new();
    for (&axis, &to) in axes.iter().zip(&sizes) {
        let from = cx.shape(0)?.dim(axis).extent();
        let scale = match (from.as_const(), to.as_const()) {
            _ if from == to => Some(1.0),
            (Some(from), Some(to)) => Some(to as f64 / from.max(1) as f64),
            _ => None,
        };
        resized.push(Wanted { axis, from, to, scale, ratio: Some((from, to)), roi: (0.0, 1.0) });
    }
    let policy = cx.attrs.text("keep_aspect_ratio_policy", "stretch")?;
    if policy == "stretch" {
        return Ok(resized);
    }
    let mut common: Option<f64> = None;
    for axis in &resized {
        let open = || cx.open_dimension(format!("resizing a dimension of {} to {}", axis.from, axis.to));
        let scale = axis.scale.ok_or_else(open)?;
        common = Some(match (policy, common) {
            ("not_larger", Some(c)) => c.min(scale),
            ("not_smaller", Some(c)) => c.max(scale),
            ("not_larger" | "not_smaller", None) => scale,
            _ => return Err(cx.malformed(format!("keep_aspect_ratio_policy = \"{policy}\""))),
        });
    }
    let common = common.unwrap_or(1.0);
    for axis in &mut resized {
        let from = size_of(cx, axis.axis)?;
        axis.to = Extent::Const((common * from as f64 + 0.5) as i64);
        axis.scale = Some(common);
    }
    Ok(resized)
}

fn run(cx: Cx, method: &Method, axes: &[Wanted]) -> Nodes {
    let mut x = cx.x(0)?;
    let cropped = method.coordinates == Coordinates::CropAndResize;
    for axis in cheapest_first(axes) {
        if axis.scale == Some(1.0) && !cropped {
            continue;
        }
        let size = |e: Extent| e.as_const().and_then(|n| usize::try_from(n).ok());
        x = match (size(axis.from), size(axis.to), axis.scale) {
            (Some(from), Some(to), Some(scale)) => {
                if [from, to].iter().any(|n| !(1..=MAX_POSITIONS).contains(n)) {
                    return Err(cx.unsupported(format!("resizing {from} elements to {to}")));
                }
                let axis = Axis { axis: axis.axis, from, to, scale, roi: axis.roi };
                cx.importer.spend(to.saturating_mul(method.neighbours(scale)))?;
                let taps: Vec<Taps> = (0..to).map(|i| method.taps(i, &axis)).collect();
                apply(cx, x, method, &axis, &taps)?
            }
            _ => open::resize(cx, x, method, axis)?,
        };
    }
    Ok(vec![x])
}

/// The axes in the order that moves least: what makes the tensor smaller comes first, from the outermost axis, whose rows are long;
/// then what makes it larger, from the innermost axis, so that only what follows works on whole rows of a larger tensor.
fn cheapest_first(axes: &[Wanted]) -> Vec<&Wanted> {
    let mut axes: Vec<&Wanted> = axes.iter().collect();
    axes.sort_by_key(|axis| axis.axis);
    let (smaller, larger): (Vec<_>, Vec<_>) =
        axes.into_iter().partition(|axis| axis.scale.is_some_and(|scale| scale < 1.0));
    smaller.into_iter().chain(larger.into_iter().rev()).collect()
}

/// Applies the weights of one axis.
fn apply(cx: Cx, x: NodeId, method: &Method, axis: &Axis, taps: &[Taps]) -> Result<NodeId, Error> {
    let single = |t: &Taps| match t.as_deref() {
        Some([(place, w)]) if *w == 1.0 => Some(*place),
        _ => None,
    };
    if let Some(places) = taps.iter().map(single).collect::<Option<Vec<_>>>() {
        let index = index_node(cx, &places);
        return cx.add(Op::Gather { axis: axis.axis }, &[x, index]);
    }
    let shape = cx.shape_of(x);
    if !shape.dtype().is_float() {
        return Err(cx.unsupported(format!("interpolating {shape}")));
    }
    let two = |t: &Taps| match t.as_deref() {
        Some([(place, _)]) => Some((*place, *place, 0.0)),
        Some([(first, _), (second, w)]) => Some((*first, *second, *w)),
        _ => None,
    };
    if let (Kind::Linear, Some(pairs)) = (method.kind, taps.iter().map(two).collect::<Option<Vec<_>>>()) {
        let first = index_node(cx, &pairs.iter().map(|p| p.0).collect::<Vec<_>>());
        let second = index_node(cx, &pairs.iter().map(|p| p.1).collect::<Vec<_>>());
        let steps = pairs.iter().map(|p| p.2).collect();
        let step = cx.float_constant(shape.dtype(), &[axis.to], steps)?;
        return between(cx, x, axis.axis, [first, second], step);
    }
    by_matrix(cx, x, axis, taps, method.extrapolation)
}

fn index_node(cx: Cx, places: &[usize]) -> NodeId {
    cx.constant(Value::int(DType::I64, &[places.len()], places.iter().map(|&p| p as i128).collect()))
}

/// Interpolates along `axis` between the elements at the first and at the second positions, by `step` (0 … 1).
fn between(cx: Cx, x: NodeId, axis: usize, places: [NodeId; 2], step: NodeId) -> Result<NodeId, Error> {
    let mut dims = vec![Dim::Static(1); cx.shape_of(x).rank()];
    dims[axis] = cx.shape_of(step).dim(0);
    let step = cx.reshape(step, dims)?;
    let first = cx.add(Op::Gather { axis }, &[x, places[0]])?;
    let second = cx.add(Op::Gather { axis }, &[x, places[1]])?;
    let difference = cx.binary(B::Sub, second, first)?;
    let part = cx.binary(B::Mul, difference, step)?;
    cx.binary(B::Add, first, part)
}

fn by_matrix(cx: Cx, x: NodeId, axis: &Axis, taps: &[Taps], extrapolation: f64) -> Result<NodeId, Error> {
    let shape = cx.shape_of(x);
    cx.importer.spend(axis.from.saturating_mul(axis.to))?;
    let mut matrix = vec![0.0; axis.from * axis.to];
    for (column, taps) in taps.iter().enumerate() {
        for (row, w) in taps.iter().flatten() {
            matrix[row * axis.to + column] += w;
        }
    }
    let matrix = cx.float_constant(shape.dtype(), &[axis.from, axis.to], matrix)?;
    let last = shape.rank() - 1;
    let mut perm: Vec<usize> = (0..shape.rank()).collect();
    perm.swap(axis.axis, last);
    let turned = cx.transpose(x, &perm)?;
    let product = cx.add(Op::MatMul, &[turned, matrix])?;
    let y = cx.transpose(product, &perm)?;
    if taps.iter().all(Option::is_some) || extrapolation == 0.0 {
        return Ok(y);
    }
    // A position outside along any axis has the extrapolation value; its row of weights is 0 so far.
    let outside = taps.iter().map(Option::is_none);
    let outside = cx.constant(Value::bools(&[axis.to], outside));
    let mut to = vec![Dim::Static(1); shape.rank()];
    to[axis.axis] = Dim::Static(axis.to);
    let outside = cx.reshape(outside, to)?;
    let value = cx.scalar(shape.dtype(), extrapolation);
    cx.select(outside, value, y)
}
