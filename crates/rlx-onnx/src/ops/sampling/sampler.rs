//! Interpolation at positions that are data.
//!
//! Along each dimension a position has a few *taps*: neighbouring elements with weights (one for nearest, two for linear, four
//! for cubic interpolation). The result is the sum over all combinations of taps. What lies outside is decided twice, as in
//! PyTorch and ONNX: once for the position, once for each tap.

use super::{Cx, size_of};
use rlx_ir::op::{Activation as A, BinaryOp as B, CmpOp};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op};

/// How values between elements are computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Mode {
    Nearest,
    Linear,
    Cubic,
}

/// What is outside.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Outside {
    /// Zeros.
    Zeros,
    /// The nearest element.
    Border,
    /// The image mirrored: at the outermost elements' centres, or at their outer edges.
    Reflection { at_centres: bool },
}

/// Keys' coefficient, as in PyTorch.
const CUBIC: f64 = -0.75;

/// One neighbour along one dimension.
#[derive(Clone, Copy)]
struct Tap {
    /// Which element, within the image.
    place: NodeId,
    /// Its weight; of nearest neighbours there is none.
    weight: Option<NodeId>,
    /// Whether it is within the image, where that matters.
    inside: Option<NodeId>,
}

pub(super) struct Sampler {
    pub mode: Mode,
    pub outside: Outside,
}

impl Sampler {
    /// The values of `x` `[N, C, …]` at `positions`, one tensor `[N, P…]` for each spatial dimension, in pixels: `[N, C, P…]`.
    pub fn sample(&self, cx: Cx, x: NodeId, positions: &[NodeId]) -> Result<NodeId, Error> {
        let shape = cx.shape_of(x);
        let spatial = shape.dims()[2..].to_vec();
        if positions.is_empty() || spatial.len() != positions.len() {
            return Err(cx.malformed(format!("positions of {} coordinates in {shape}", positions.len())));
        }
        let mut taps = Vec::with_capacity(spatial.len());
        for (&position, &size) in positions.iter().zip(&spatial) {
            taps.push(self.taps(cx, position, size)?);
        }
        let pixels = self.pixels(cx, x)?;
        let combinations: usize = taps.iter().map(Vec::len).product();
        let mut sum = None;
        for i in 0..combinations {
            let mut rest = i;
            let mut chosen = Vec::with_capacity(taps.len());
            for taps in taps.iter().rev() {
                chosen.insert(0, taps[rest % taps.len()]);
                rest /= taps.len();
            }
            let part = term(cx, pixels, &chosen, &spatial, shape.dtype())?;
            sum = Some(match sum {
                Some(sum) => cx.binary(B::Add, sum, part)?,
                None => part,
            });
        }
        let y = sum.ok_or_else(|| cx.malformed("an interpolation without neighbours"))?;
        // [N, P…, C]
        let rank = cx.shape_of(y).rank();
        let perm: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
        let y = cx.transpose(y, &perm)?;
        cx.cast(y, shape.dtype())
    }

    /// `[N, elements, C]`
    fn pixels(&self, cx: Cx, x: NodeId) -> Result<NodeId, Error> {
        let shape = cx.shape_of(x);
        let rank = shape.rank();
        let perm: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
        let last = cx.transpose(x, &perm)?;
        let elements = shape.dims()[2..].iter().fold(Extent::Const(1), |n, d| n * d.extent());
        cx.reshape(last, vec![shape.dim(0), Dim::from(elements), shape.dim(1)])
    }

    fn taps(&self, cx: Cx, position: NodeId, size: Dim) -> Result<Vec<Tap>, Error> {
        let position = match self.mode {
            Mode::Nearest => cx.activation(A::Round, position)?,
            _ => position,
        };
        let position = self.moved_inside(cx, position, size)?;
        if self.mode == Mode::Nearest {
            return Ok(vec![self.tap(cx, position, size, None)?]);
        }
        let below = cx.activation(A::Floor, position)?;
        let part = cx.binary(B::Sub, position, below)?;
        let (offsets, weights) = match self.mode {
            Mode::Cubic => ([-1.0, 0.0, 1.0, 2.0].as_slice(), cubic_weights(cx, part)?),
            _ => ([0.0, 1.0].as_slice(), vec![rest(cx, part)?, part]),
        };
        let mut taps = Vec::with_capacity(offsets.len());
        for (&offset, weight) in offsets.iter().zip(weights) {
            let at = if offset == 0.0 { below } else { cx.with_scalar(B::Add, below, offset)? };
            taps.push(self.tap(cx, at, size, Some(weight))?);
        }
        Ok(taps)
    }

    /// A position that is outside, brought inside.
    fn moved_inside(&self, cx: Cx, position: NodeId, size: Dim) -> Result<NodeId, Error> {
        match self.outside {
            Outside::Zeros => Ok(position),
            // The position stays, and only its neighbours are moved, as in PyTorch.
            Outside::Border if self.mode == Mode::Cubic => Ok(position),
            Outside::Border => clamp(cx, position, size),
            Outside::Reflection { at_centres } => reflect(cx, position, size, at_centres),
        }
    }

    /// The element at the whole number `at`.
    fn tap(&self, cx: Cx, at: NodeId, size: Dim, weight: Option<NodeId>) -> Result<Tap, Error> {
        let mut inside = None;
        let mut place = at;
        match self.outside {
            Outside::Zeros => {
                let dtype = cx.shape_of(at).dtype();
                let (zero, size) = (cx.scalar(dtype, 0.0), size_of(cx, size, dtype)?);
                let (low, high) = (cx.compare(CmpOp::Ge, at, zero)?, cx.compare(CmpOp::Lt, at, size)?);
                inside = Some(cx.binary(B::And, low, high)?);
            }
            Outside::Border => {}
            Outside::Reflection { at_centres } => place = reflect(cx, at, size, at_centres)?,
        }
        let place = cx.cast(place, DType::I64)?;
        Ok(Tap { place: clamp(cx, place, size)?, weight, inside })
    }
}

/// At least 0, and at most the last element.
fn clamp(cx: Cx, at: NodeId, size: Dim) -> Result<NodeId, Error> {
    let dtype = cx.shape_of(at).dtype();
    let size = size_of(cx, size, dtype)?;
    let last = cx.with_scalar(B::Sub, size, 1.0)?;
    let y = cx.binary(B::Min, at, last)?;
    cx.with_scalar(B::Max, y, 0.0)
}

/// `1 − x`
fn rest(cx: Cx, x: NodeId) -> Result<NodeId, Error> {
    let one = cx.scalar(cx.shape_of(x).dtype(), 1.0);
    cx.binary(B::Sub, one, x)
}

/// A position mirrored at the borders until it is between them.
fn reflect(cx: Cx, at: NodeId, size: Dim, at_centres: bool) -> Result<NodeId, Error> {
    let dtype = cx.shape_of(at).dtype();
    let size = size_of(cx, size, dtype)?;
    let low = if at_centres { 0.0 } else { -0.5 };
    let span = if at_centres { cx.with_scalar(B::Sub, size, 1.0)? } else { size };
    // A single element has no width.
    let span = cx.with_scalar(B::Max, span, 0.5)?;
    let distance = cx.with_scalar(B::Sub, at, low)?;
    let distance = cx.activation(A::Abs, distance)?;
    let times = cx.binary(B::Div, distance, span)?;
    let times = cx.activation(A::Floor, times)?;
    let whole = cx.binary(B::Mul, times, span)?;
    let within = cx.binary(B::Sub, distance, whole)?;
    let back = cx.binary(B::Sub, span, within)?;
    let odd = cx.with_scalar(B::Rem, times, 2.0)?;
    let zero = cx.scalar(dtype, 0.0);
    let even = cx.compare(CmpOp::Eq, odd, zero)?;
    let y = cx.select(even, within, back)?;
    cx.with_scalar(B::Add, y, low)
}

/// Keys' cubic convolution: weights of the elements at −1, 0, 1 and 2 for a position `t` between 0 and 1.
fn cubic_weights(cx: Cx, t: NodeId) -> Result<Vec<NodeId>, Error> {
    let near = |cx: Cx, t: NodeId| {
        let y = cx.with_scalar(B::Mul, t, CUBIC + 2.0)?;
        let y = cx.with_scalar(B::Sub, y, CUBIC + 3.0)?;
        let y = cx.binary(B::Mul, y, t)?;
        let y = cx.binary(B::Mul, y, t)?;
        cx.with_scalar(B::Add, y, 1.0)
    };
    // For a distance 1 + t: ((a·d − 5a)·d + 8a)·d − 4a.
    let far = |cx: Cx, t: NodeId| {
        let d = cx.with_scalar(B::Add, t, 1.0)?;
        let y = cx.with_scalar(B::Mul, d, CUBIC)?;
        let y = cx.with_scalar(B::Sub, y, 5.0 * CUBIC)?;
        let y = cx.binary(B::Mul, y, d)?;
        let y = cx.with_scalar(B::Add, y, 8.0 * CUBIC)?;
        let y = cx.binary(B::Mul, y, d)?;
        cx.with_scalar(B::Sub, y, 4.0 * CUBIC)
    };
    let u = rest(cx, t)?;
    Ok(vec![far(cx, t)?, near(cx, t)?, near(cx, u)?, far(cx, u)?])
}

/// The pixels that one combination of taps names, times their weights; what is outside is 0.
fn term(cx: Cx, pixels: NodeId, taps: &[Tap], spatial: &[Dim], dtype: DType) -> Result<NodeId, Error> {
    let (mut place, mut weight, mut inside) = (None, None, None);
    for (tap, &size) in taps.iter().zip(spatial) {
        place = Some(match place {
            Some(before) => {
                let size = size_of(cx, size, DType::I64)?;
                let row = cx.binary(B::Mul, before, size)?;
                cx.binary(B::Add, row, tap.place)?
            }
            None => tap.place,
        });
        weight = joined(cx, B::Mul, weight, tap.weight)?;
        inside = joined(cx, B::And, inside, tap.inside)?;
    }
    let place = place.ok_or_else(|| cx.malformed("no coordinates"))?;
    let behind = cx.shape_of(place).rank();
    let place = cx.unsqueeze(place, &[behind])?;
    let mut y = cx.add(Op::GatherNd { batch_dims: 1 }, &[pixels, place])?;
    if let Some(inside) = inside {
        let inside = cx.unsqueeze(inside, &[behind])?;
        let zero = cx.scalar(dtype, 0.0);
        y = cx.select(inside, y, zero)?;
    }
    if let Some(weight) = weight {
        let weight = cx.unsqueeze(weight, &[behind])?;
        y = cx.cast(y, cx.shape_of(weight).dtype())?;
        y = cx.binary(B::Mul, y, weight)?;
    }
    Ok(y)
}

fn joined(cx: Cx, f: B, a: Option<NodeId>, b: Option<NodeId>) -> Result<Option<NodeId>, Error> {
    match (a, b) {
        (Some(a), Some(b)) => cx.binary(f, a, b).map(Some),
        (a, b) => Ok(a.or(b)),
    }
}
