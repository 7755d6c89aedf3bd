//! `GridSample` made of gathers and elementwise ops.

use super::{CUBIC, FAR};
use crate::dim::{Dim, Extent};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, GraphExt, NodeId};
use crate::ops::index::count_from;
use crate::ops::{Activation as A, BinaryOp as B, CmpOp, Op, Outside, Predicate, SampleMode};

/// One neighbour along one dimension.
#[derive(Clone, Copy)]
struct Tap {
    /// Which element, within the image.
    place: NodeId,
    /// Its weight, 0 where it is outside and that is zeros; the nearest element has none.
    weight: Option<NodeId>,
    /// Of the nearest element, whether it is within the image, where that matters.
    inside: Option<NodeId>,
}

/// What builds the nodes.
pub(super) struct Sampler<'a> {
    pub(super) mode: SampleMode,
    pub(super) outside: Outside,
    pub(super) graph: &'a mut Graph,
}

impl Sampler<'_> {
    /// The values of `x` `[N, C, …]` at positions, one tensor `[N, P…]` for each spatial dimension: `[N, C, P…]`.
    pub(super) fn sample(&mut self, inputs: &[NodeId]) -> Result<NodeId> {
        let (x, positions) = (inputs[0], &inputs[1..]);
        let shape = self.graph.try_shape(x)?.clone();
        let spatial = shape.dims()[2..].to_vec();
        let mut taps = Vec::with_capacity(spatial.len());
        for (&position, &size) in positions.iter().zip(&spatial) {
            taps.push(self.taps(position, size)?);
        }
        let pixels = self.pixels(x)?;
        let mut sum = None;
        for i in 0..taps.iter().map(Vec::len).product() {
            let mut rest = i;
            let mut chosen = Vec::with_capacity(taps.len());
            for taps in taps.iter().rev() {
                chosen.insert(0, taps[rest % taps.len()]);
                rest /= taps.len();
            }
            let part = self.term(pixels, &chosen, &spatial)?;
            sum = Some(match sum {
                Some(sum) => self.graph.try_add_(sum, part)?,
                None => part,
            });
        }
        let none = || Error::new(ErrorKind::Internal, "an interpolation without neighbours");
        let y = sum.ok_or_else(none)?;
        // [N, P…, C]
        let rank = self.graph.try_shape(y)?.rank();
        let perm: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
        let y = self.graph.try_transpose(y, &perm)?;
        self.graph.try_cast(y, shape.dtype())
    }

    /// `[N, elements, C]`
    fn pixels(&mut self, x: NodeId) -> Result<NodeId> {
        let shape = self.graph.try_shape(x)?.clone();
        let rank = shape.rank();
        let perm: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
        let last = self.graph.try_transpose(x, &perm)?;
        let elements = shape.dims()[2..].iter().fold(Extent::Const(1), |n, d| n * d.extent());
        self.graph.try_reshape_to(last, &[shape.dim(0), Dim::from(elements), shape.dim(1)])
    }

    fn taps(&mut self, position: NodeId, size: Dim) -> Result<Vec<Tap>> {
        let mut position = self.limited(position)?;
        if self.mode == SampleMode::Nearest {
            position = self.graph.try_act(A::Round, position)?;
        }
        let position = self.moved_inside(position, size)?;
        if self.mode == SampleMode::Nearest {
            let (place, inside) = self.place(position, size)?;
            return Ok(vec![Tap { place, weight: None, inside }]);
        }
        let below = self.graph.try_act(A::Floor, position)?;
        let part = self.graph.try_sub(position, below)?;
        let (offsets, weights) = match self.mode {
            SampleMode::Cubic => ([-1.0, 0.0, 1.0, 2.0].as_slice(), self.cubic_weights(part)?),
            _ => ([0.0, 1.0].as_slice(), vec![self.rest(part)?, part]),
        };
        let mut taps = Vec::with_capacity(offsets.len());
        for (&offset, mut weight) in offsets.iter().zip(weights) {
            let at = if offset == 0.0 { below } else { self.with_scalar(B::Add, below, offset)? };
            let (place, inside) = self.place(at, size)?;
            if let Some(inside) = inside {
                let zero = self.number_like(weight, 0.0)?;
                weight = self.graph.try_where(inside, weight, zero)?;
            }
            taps.push(Tap { place, weight: Some(weight), inside: None });
        }
        Ok(taps)
    }

    /// A position as a number that is not too far away.
    fn limited(&mut self, position: NodeId) -> Result<NodeId> {
        let far = self.number_like(position, -FAR)?;
        let none = self.graph.try_emit(Op::Predicate(Predicate::IsNan), &[position])?;
        let position = self.graph.try_where(none, far, position)?;
        let position = self.graph.try_maximum(position, far)?;
        self.with_scalar(B::Min, position, FAR)
    }

    /// A position that is outside, brought inside.
    fn moved_inside(&mut self, position: NodeId, size: Dim) -> Result<NodeId> {
        match self.outside {
            Outside::Zeros => Ok(position),
            // The position stays, and only its neighbours are moved.
            Outside::Border if self.mode == SampleMode::Cubic => Ok(position),
            Outside::Border => self.clamp(position, size),
            Outside::ReflectCentres | Outside::ReflectEdges => self.reflect(position, size),
        }
    }

    /// The element at the whole number `at`, and whether it is in the image if that matters.
    fn place(&mut self, at: NodeId, size: Dim) -> Result<(NodeId, Option<NodeId>)> {
        let (mut inside, mut place) = (None, at);
        match self.outside {
            Outside::Zeros => {
                let dtype = self.graph.try_shape(at)?.dtype();
                let (zero, size) = (self.number_like(at, 0.0)?, self.size_of(size, dtype)?);
                let low = self.graph.try_compare(CmpOp::Ge, at, zero)?;
                let high = self.graph.try_compare(CmpOp::Lt, at, size)?;
                inside = Some(self.graph.try_bin(B::And, low, high)?);
            }
            Outside::Border => {}
            Outside::ReflectCentres | Outside::ReflectEdges => place = self.reflect(at, size)?,
        }
        let place = self.graph.try_cast(place, DType::I64)?;
        Ok((self.clamp(place, size)?, inside))
    }

    /// At least 0, and at most the last element.
    fn clamp(&mut self, at: NodeId, size: Dim) -> Result<NodeId> {
        let dtype = self.graph.try_shape(at)?.dtype();
        let size = self.size_of(size, dtype)?;
        let last = self.with_scalar(B::Sub, size, 1.0)?;
        let y = self.graph.try_minimum(at, last)?;
        self.with_scalar(B::Max, y, 0.0)
    }

    /// `1 − x`
    fn rest(&mut self, x: NodeId) -> Result<NodeId> {
        let one = self.number_like(x, 1.0)?;
        self.graph.try_sub(one, x)
    }

    /// A position mirrored at the borders until it is between them.
    fn reflect(&mut self, at: NodeId, size: Dim) -> Result<NodeId> {
        let at_centres = self.outside == Outside::ReflectCentres;
        let dtype = self.graph.try_shape(at)?.dtype();
        let size = self.size_of(size, dtype)?;
        let low = if at_centres { 0.0 } else { -0.5 };
        let span = if at_centres { self.with_scalar(B::Sub, size, 1.0)? } else { size };
        // A single element has no width.
        let span = self.with_scalar(B::Max, span, 0.5)?;
        let distance = self.with_scalar(B::Sub, at, low)?;
        let distance = self.graph.try_abs(distance)?;
        let times = self.graph.try_div(distance, span)?;
        let times = self.graph.try_act(A::Floor, times)?;
        let whole = self.graph.try_mul(times, span)?;
        let within = self.graph.try_sub(distance, whole)?;
        let back = self.graph.try_sub(span, within)?;
        let odd = self.with_scalar(B::Rem, times, 2.0)?;
        let zero = self.number_like(odd, 0.0)?;
        let even = self.graph.try_compare(CmpOp::Eq, odd, zero)?;
        let y = self.graph.try_where(even, within, back)?;
        self.with_scalar(B::Add, y, low)
    }

    /// Keys' cubic convolution: weights of the elements at −1, 0, 1 and 2 for a position `t` between 0 and 1.
    fn cubic_weights(&mut self, t: NodeId) -> Result<Vec<NodeId>> {
        let u = self.rest(t)?;
        Ok(vec![self.far_weight(t)?, self.near_weight(t)?, self.near_weight(u)?, self.far_weight(u)?])
    }

    /// For a distance `t`: `((a + 2)·t − (a + 3))·t·t + 1`.
    fn near_weight(&mut self, t: NodeId) -> Result<NodeId> {
        let y = self.with_scalar(B::Mul, t, CUBIC + 2.0)?;
        let y = self.with_scalar(B::Sub, y, CUBIC + 3.0)?;
        let y = self.graph.try_mul(y, t)?;
        let y = self.graph.try_mul(y, t)?;
        self.with_scalar(B::Add, y, 1.0)
    }

    /// For a distance `d = 1 + t`: `((a·d − 5a)·d + 8a)·d − 4a`.
    fn far_weight(&mut self, t: NodeId) -> Result<NodeId> {
        let d = self.with_scalar(B::Add, t, 1.0)?;
        let y = self.with_scalar(B::Mul, d, CUBIC)?;
        let y = self.with_scalar(B::Sub, y, 5.0 * CUBIC)?;
        let y = self.graph.try_mul(y, d)?;
        let y = self.with_scalar(B::Add, y, 8.0 * CUBIC)?;
        let y = self.graph.try_mul(y, d)?;
        self.with_scalar(B::Sub, y, 4.0 * CUBIC)
    }

    /// The pixels that one combination of taps names, times their weights; what adds nothing is 0.
    fn term(&mut self, pixels: NodeId, taps: &[Tap], spatial: &[Dim]) -> Result<NodeId> {
        let (mut place, mut weight, mut inside) = (taps[0].place, taps[0].weight, taps[0].inside);
        for (tap, &size) in taps.iter().zip(spatial).skip(1) {
            let size = self.size_of(size, DType::I64)?;
            let row = self.graph.try_mul(place, size)?;
            place = self.graph.try_add_(row, tap.place)?;
            weight = self.joined(B::Mul, weight, tap.weight)?;
            inside = self.joined(B::And, inside, tap.inside)?;
        }
        let place = self.with_channel(place)?;
        let y = self.graph.try_emit(Op::GatherNd { batch_dims: 1 }, &[pixels, place])?;
        if let Some(inside) = inside {
            let (inside, zero) = (self.with_channel(inside)?, self.number_like(y, 0.0)?);
            return self.graph.try_where(inside, y, zero);
        }
        let Some(weight) = weight else { return Ok(y) };
        let weight = self.with_channel(weight)?;
        let y = self.graph.try_cast(y, self.graph.try_shape(weight)?.dtype())?;
        let zero = self.number_like(weight, 0.0)?;
        let counts = self.graph.try_compare(CmpOp::Ne, weight, zero)?;
        let y = self.graph.try_where(counts, y, zero)?;
        self.graph.try_mul(y, weight)
    }

    fn joined(&mut self, f: B, a: Option<NodeId>, b: Option<NodeId>) -> Result<Option<NodeId>> {
        match (a, b) {
            (Some(a), Some(b)) => self.graph.try_bin(f, a, b).map(Some),
            (a, b) => Ok(a.or(b)),
        }
    }

    /// With a last dimension of 1.
    fn with_channel(&mut self, x: NodeId) -> Result<NodeId> {
        let dims = self.graph.try_shape(x)?.dims();
        let to: Vec<Dim> = dims.iter().copied().chain([Dim::Static(1)]).collect();
        self.graph.try_reshape_to(x, &to)
    }

    /// A number of the type of `x`.
    fn number_like(&mut self, x: NodeId, value: f64) -> Result<NodeId> {
        let dtype = self.graph.try_shape(x)?.dtype();
        self.graph.try_scalar(value, dtype)
    }

    fn with_scalar(&mut self, f: B, x: NodeId, value: f64) -> Result<NodeId> {
        let value = self.number_like(x, value)?;
        self.graph.try_bin(f, x, value)
    }

    /// A dimension as a number of type `dtype`, of one element.
    fn size_of(&mut self, dim: Dim, dtype: DType) -> Result<NodeId> {
        match dim.as_static() {
            Some(size) => self.graph.try_scalar(size as f64, dtype),
            None => {
                let size = count_from(self.graph, dim.extent(), Dim::Static(1))?;
                self.graph.try_cast(size, dtype)
            }
        }
    }
}
