//! `DeformConv`: a convolution whose taps are moved by data, and weighted by data if there is a mask.
//!
//! The moved taps are sampled into columns, which a matmul multiplies by the weights, as im2col does for an ordinary
//! convolution (Dai et al. 2017, Zhu et al. 2019).

use super::super::conv_pool::{Window, groups};
use super::{Cx, Nodes, count, position_type, sample};
use rlx_ir::op::{BinaryOp as B, Outside, SampleMode};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op, Shape};

/// Operands: `x` `[N, C, …]`, weights `[O, C/group, k…]`, offsets `[N, offset groups·taps·D, o…]`, and optionally a bias `[O]` and a
/// mask `[N, offset groups·taps, o…]`.
pub(super) fn deform_conv(cx: Cx) -> Nodes {
    let (shape, weights, offsets) = (cx.shape(0)?, cx.shape(1)?, cx.shape(2)?);
    let window = Window::read(cx, Some(weights.dims().get(2..).unwrap_or_default()))?;
    let (groups, offset_groups) = (groups(cx)?, cx.attrs.int("offset_group", 1)?);
    let offset_groups = usize::try_from(offset_groups).unwrap_or(0);
    let (channels, outputs) = (shape.dim(1).as_static(), weights.dim(0).as_static());
    let (Some(channels), Some(outputs)) = (channels, outputs) else {
        return Err(cx.open_dimension(format!("the channels of {shape} and {weights}")));
    };
    let divides = |n: usize, by: usize| by > 0 && n.is_multiple_of(by);
    let fits = divides(channels, groups) && divides(outputs, groups) && divides(channels, offset_groups);
    if !fits || offsets.rank() != shape.rank() {
        return Err(
            cx.malformed(format!("offsets {offsets} in {offset_groups} groups for {shape} in {groups}"))
        );
    }
    let it =
        Deform { shape, window, groups, offset_groups, channels, outputs, to: offsets.dims()[2..].to_vec() };
    let columns = it.columns(cx, &offsets)?;
    Ok(vec![it.product(cx, columns)?])
}

struct Deform {
    /// Of the image.
    shape: Shape,
    window: Window,
    groups: usize,
    offset_groups: usize,
    channels: usize,
    outputs: usize,
    /// The spatial dimensions of the result.
    to: Vec<Dim>,
}

impl Deform {
    fn taps(&self) -> usize {
        self.window.kernel.iter().product()
    }

    /// `[N·offset groups]`
    fn batch(&self) -> Dim {
        Dim::from(self.shape.dim(0).extent() * self.offset_groups as i64)
    }

    fn with_taps(&self, front: &[Dim]) -> Vec<Dim> {
        front.iter().copied().chain([Dim::Static(self.taps())]).chain(self.to.iter().copied()).collect()
    }

    /// The sampled values: `[N·offset groups, C/offset groups, taps, o…]`.
    fn columns(&self, cx: Cx, offsets: &Shape) -> Result<NodeId, Error> {
        let rank = self.window.kernel.len();
        let dtype = position_type(offsets.dtype());
        let given = cx.x(2)?;
        let given = cx.cast(given, dtype)?;
        let mut apart = vec![self.batch(), Dim::Static(self.taps()), Dim::Static(rank)];
        apart.extend(&self.to);
        let given = cx.reshape(given, apart)?;
        let mut positions = Vec::with_capacity(rank);
        for axis in 0..rank {
            let moved = cx.slice_axis(given, 2, Extent::Const(axis as i64), Extent::Const(1))?;
            let moved = cx.reshape(moved, self.with_taps(&[self.batch()]))?;
            let from = self.undeformed(cx, axis, dtype)?;
            positions.push(cx.binary(B::Add, moved, from)?);
        }
        let x = cx.x(0)?;
        let mut split = vec![self.batch(), Dim::Static(self.channels / self.offset_groups)];
        split.extend(&self.shape.dims()[2..]);
        let x = cx.reshape(x, split)?;
        let columns = sample(cx, (SampleMode::Linear, Outside::Zeros), x, &positions)?;
        let Some(mask) = cx.x_opt(4)? else { return Ok(columns) };
        let mask = cx.reshape(mask, self.with_taps(&[self.batch(), Dim::Static(1)]))?;
        cx.binary(B::Mul, columns, mask)
    }

    /// Where the taps of an ordinary convolution are along one dimension: `[1, taps, 1… o …1]`.
    fn undeformed(&self, cx: Cx, axis: usize, dtype: DType) -> Result<NodeId, Error> {
        let (w, rank) = (&self.window, self.window.kernel.len());
        let inner: usize = w.kernel[axis + 1..].iter().product();
        let tap = |i: usize| (i / inner % w.kernel[axis] * w.dilations[axis]) as f64 - w.pads[axis] as f64;
        let mut dims = vec![1; rank + 2];
        dims[1] = self.taps();
        cx.importer.spend(self.taps())?;
        let taps = cx.float_constant(dtype, &dims, (0..self.taps()).map(tap).collect())?;
        let start = count(cx, self.to[axis], axis + 2, rank + 2, dtype)?;
        let start = cx.with_scalar(B::Mul, start, w.strides[axis] as f64)?;
        cx.binary(B::Add, start, taps)
    }

    /// The product with the weights, group by group, and the bias.
    fn product(&self, cx: Cx, columns: NodeId) -> Result<NodeId, Error> {
        let batch = self.shape.dim(0);
        let places = self.to.iter().fold(Extent::Const(1), |n, d| n * d.extent());
        let (group, depth) =
            (Dim::Static(self.groups), Dim::Static(self.channels / self.groups * self.taps()));
        let columns = cx.reshape(columns, vec![batch, group, depth, Dim::from(places)])?;
        let weights = cx.x(1)?;
        let weights = cx.reshape(weights, vec![group, Dim::Static(self.outputs / self.groups), depth])?;
        let y = cx.add(Op::MatMul, &[weights, columns])?;
        let mut to = vec![batch, Dim::Static(self.outputs)];
        to.extend(&self.to);
        let y = cx.reshape(y, to)?;
        let Some(bias) = cx.x_opt(3)? else { return Ok(y) };
        let mut along = vec![Dim::Static(1); self.to.len() + 2];
        along[1] = Dim::Static(self.outputs);
        let bias = cx.reshape(bias, along)?;
        cx.binary(B::Add, y, bias)
    }
}
