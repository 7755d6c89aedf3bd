//! Images read at positions between their elements: [`Op::GridSample`], as spatial transformers (Jaderberg et al. 2015), optical flow and deformable
//! convolutions do.
//!
//! ```text
//! %3 = GridSample(%0, %1, %2) {mode=Linear, outside=Zeros} : [1, 64, 20, 30] f32    # images [1, 64, H, W], y and x [1, 20, 30]
//! ```
//!
//! Along each dimension a position has a few neighbours with weights: one for nearest, two for linear, four for cubic interpolation (Keys 1981, with
//! PyTorch's coefficient −0.75). The result is the sum over all combinations of them. What lies outside is decided twice, as in PyTorch and ONNX: once for
//! the position, once for each neighbour. A neighbour of weight 0, and one outside where that is zeros, adds nothing, even if it is an infinity. A position
//! that is no number, or further away than [`FAR`], is outside: before the first element, or behind the last.
//!
//! Positions are in elements, one tensor for each dimension, so that there is one op for all ways to give them: coordinates from −1 to 1 (ONNX's and
//! PyTorch's `GridSample`) and offsets in elements (`DeformConv`).

mod parts;

use smallvec::smallvec;

use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, NodeId};
use crate::ops::def::{Arity, OpDef, Ranges, dtype_error};
use crate::ops::elementwise::{Takes, static_dims};
use crate::ops::{Op, OpKind, Outside, SampleMode, attrs};
use crate::shape::{Shape, Shapes, agreed_dim};
use crate::tensor::{Elements, Value};

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// Positions are between `-FAR` and `FAR`: larger than any image, and so small that the integers next to them are exact in f64.
pub const FAR: f64 = (1u64 << 40) as f64;

/// The coefficient of Keys' cubic convolution.
pub const CUBIC: f64 = -0.75;

/// [`Op::GridSample`].
pub struct GridSampleDef;

/// Elements with their weights; without those that add nothing.
type Weighted = Vec<(usize, f64)>;

/// The neighbours of a position along a dimension of `size`.
fn neighbours(mode: SampleMode, outside: Outside, position: f64, size: usize) -> Weighted {
    let position = if position.is_nan() { -FAR } else { position.clamp(-FAR, FAR) };
    let position = match mode {
        SampleMode::Nearest => position.round_ties_even(),
        SampleMode::Linear | SampleMode::Cubic => position,
    };
    let position = match (outside, mode) {
        // As in PyTorch, where only the neighbours of a cubic interpolation are moved to the border.
        (Outside::Zeros, _) | (Outside::Border, SampleMode::Cubic) => position,
        _ => moved_inside(outside, position, size),
    };
    let (below, t) = (position.floor(), position - position.floor());
    let at_distance = |offset: f64| match mode {
        SampleMode::Nearest => 1.0,
        SampleMode::Linear => 1.0 - (t - offset).abs(),
        SampleMode::Cubic => keys((t - offset).abs()),
    };
    let offsets: &[f64] = match mode {
        SampleMode::Nearest => &[0.0],
        SampleMode::Linear => &[0.0, 1.0],
        SampleMode::Cubic => &[-1.0, 0.0, 1.0, 2.0],
    };
    let all = offsets.iter().map(|&offset| (below + offset, at_distance(offset)));
    let all = all.map(|(at, weight)| (moved_inside(outside, at, size), weight));
    let counts = |&(at, weight): &(f64, f64)| weight != 0.0 && at >= 0.0 && at < size as f64;
    all.filter(counts).map(|(at, weight)| (at as usize, weight)).collect()
}

/// Where a position outside reads; where that is nowhere, the position itself.
fn moved_inside(outside: Outside, at: f64, size: usize) -> f64 {
    let last = size as f64 - 1.0;
    let (low, period) = match outside {
        Outside::Zeros => return at,
        Outside::Border => return at.clamp(0.0, last.max(0.0)),
        Outside::ReflectCentres => (0.0, 2.0 * last),
        Outside::ReflectEdges => (-0.5, 2.0 * size as f64),
    };
    if period <= 0.0 {
        return 0.0;
    }
    let distance = (at - low).rem_euclid(period);
    low + distance.min(period - distance)
}

/// The weight of an element at this distance, by Keys' cubic convolution.
fn keys(distance: f64) -> f64 {
    let (a, d) = (CUBIC, distance);
    match d {
        _ if d <= 1.0 => (a + 2.0) * d.powi(3) - (a + 3.0) * d.powi(2) + 1.0,
        _ if d < 2.0 => a * (d.powi(3) - 5.0 * d.powi(2) + 8.0 * d - 4.0),
        _ => 0.0,
    }
}

/// For each point of each image, the elements of a plane that it is made of.
fn points(op: &Op, inputs: &[&Value]) -> Result<Vec<Weighted>> {
    attrs!(op => GridSample { mode, outside });
    let (sizes, positions) = (&inputs[0].dims[2..], &inputs[1..]);
    let positions: Vec<&[f64]> = positions.iter().map(|p| p.floats()).collect::<Result<_>>()?;
    let count = positions.first().map_or(0, |p| p.len());
    let point = |i: usize| {
        let start = vec![(0, 1.0)];
        sizes.iter().zip(&positions).fold(start, |before, (&size, along)| {
            let own = neighbours(*mode, *outside, along[i], size);
            let pairs = before.iter().flat_map(|a| own.iter().map(move |b| (a, b)));
            pairs.map(|((row, a), (column, b))| (row * size + column, a * b)).collect()
        })
    };
    Ok((0..count).map(point).collect())
}

impl OpDef for GridSampleDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::AtLeast(2)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => GridSample { mode });
        let (x, first) = (inputs[0], inputs[1]);
        match mode {
            SampleMode::Nearest => Takes::NumbersAndBools.check(OpKind::GridSample, x)?,
            _ => Takes::Floats.check(OpKind::GridSample, x)?,
        }
        if !matches!(first.dtype(), DType::F32 | DType::F64) {
            return Err(dtype_error(OpKind::GridSample, first, "positions of f32 or f64"));
        }
        let mut dims = first.dims().to_vec();
        let mut fits = x.rank() == inputs.len() + 1 && !dims.is_empty();
        for positions in &inputs[1..] {
            fits &= positions.dtype() == first.dtype() && positions.rank() == dims.len();
            for (slot, &dim) in dims.iter_mut().zip(positions.dims()) {
                let agreed = agreed_dim(*slot, dim);
                fits &= agreed.is_some();
                *slot = agreed.unwrap_or(dim);
            }
        }
        let images = fits.then(|| agreed_dim(x.dim(0), dims[0])).flatten();
        let Some(images) = images else {
            let all: Vec<String> = inputs[1..].iter().map(ToString::to_string).collect();
            let message = format!(
                "GridSample of {x} at {}: positions are [N, P…], one tensor for each spatial dimension",
                all.join(", ")
            );
            return Err(Error::new(ErrorKind::Shape, message));
        };
        dims[0] = images;
        dims.insert(1, x.dim(1));
        Ok(smallvec![x.with_dims(dims)])
    }

    fn holds_for_all(&self, _: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        inputs[1..].iter().all(|p| p.dims() == inputs[1].dims()) && inputs[0].dim(0) == inputs[1].dim(0)
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        let (x, dims) = (inputs[0], static_dims(&results[0])?);
        if dims.contains(&0) {
            return Ok(vec![x.pick(&dims, &[])]);
        }
        if x.dims.contains(&0) {
            let message = format!("GridSample of {}, which has no elements to read", x.shape());
            return Err(Error::new(ErrorKind::Value, message));
        }
        let (channels, size) = (x.dims[1], x.dims[2..].iter().product::<usize>());
        let points = points(op, inputs)?;
        let of_image = dims[2..].iter().product::<usize>();
        let planes = (0..dims[0] * channels).map(|plane| (plane * size, plane / channels * of_image));
        let cells =
            planes.flat_map(|(plane, first)| points[first..][..of_image].iter().map(move |p| (plane, p)));
        Ok(vec![match &x.elements {
            Elements::Float(v) => {
                let sum = |(plane, p): (usize, &Weighted)| p.iter().map(|&(i, w)| w * v[plane + i]).sum();
                Value::float(x.dtype, &dims, cells.map(sum).collect())
            }
            Elements::Int(v) => {
                let one = |(plane, p): (usize, &Weighted)| p.first().map_or(0, |&(i, _)| v[plane + i]);
                Value::int(x.dtype, &dims, cells.map(one).collect())
            }
        }])
    }

    /// Gathers of whole pixels, all channels at once, and elementwise ops, which devices fuse.
    fn decompose(&self, op: &Op, inputs: &[NodeId], graph: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        let &Op::GridSample { mode, outside } = op else { return None };
        Some(parts::Sampler { mode, outside, graph }.sample(inputs).map(|y| vec![y]))
    }

    fn flops(&self, op: &Op, inputs: &[&Shape], results: &[Shape]) -> f64 {
        let neighbours: usize = match op {
            Op::GridSample { mode: SampleMode::Nearest, .. } => 1,
            Op::GridSample { mode: SampleMode::Linear, .. } => 2,
            _ => 4,
        };
        let taps = (neighbours as f64).powi(inputs.len() as i32 - 1);
        2.0 * taps * results[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let mode: SampleMode = g.variant();
        let spatial = g.size(1..=3);
        let sizes: Vec<usize> = (0..spatial).map(|_| g.size(1..=7)).collect();
        let images = g.size(0..=2);
        let (x_dims, mut at) = ([vec![images, g.size(0..=3)], sizes.clone()].concat(), vec![images]);
        at.extend(g.dims(0..=3, 0..=5));
        let dtype = match mode {
            SampleMode::Nearest => g.dtype_where(|d| Takes::NumbersAndBools.accepts(d)),
            _ => g.dtype_where(|d| d.is_float() && d.bits() >= 16),
        };
        let position_type = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let mut inputs = vec![g.value(dtype, &x_dims, -2.0..2.0)];
        let outside: Outside = g.variant();
        for &size in &sizes {
            inputs.push(random_positions(g, outside, position_type, &at, size));
        }
        Case::new(Op::GridSample { mode, outside }, inputs)
    }
}

/// Positions in an image of `size` and around it, none of them half-way between two elements, where a bit decides which is nearer. Some are at elements;
/// and some far away or no numbers, unless they are reflected, where a bit decides what they read.
#[cfg(feature = "testing")]
fn random_positions(g: &mut Gen, outside: Outside, dtype: DType, dims: &[usize], size: usize) -> Value {
    let mut special = vec![0.0, size as f64 - 1.0];
    if matches!(outside, Outside::Zeros | Outside::Border) {
        special.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e30, -1e30]);
    }
    let reach = 8 * size as i64;
    let mut one = || match g.chance(0.1) {
        true => g.pick(&special),
        false => g.int(-reach..=2 * reach) as f64 / 8.0 + 0.0625,
    };
    let values = (0..dims.iter().product()).map(|_| one()).collect();
    Value::float(dtype, dims, values).rounded()
}

#[cfg(test)]
mod tests;
