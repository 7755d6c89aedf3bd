//! Where maxima were, and the ways back: `MaxPool`'s indices, `MaxUnpool`, `Col2Im`.

use super::conv_pool::{Window, sizes};
use super::movement::to_dim;
use super::{Entry, nodes};
use crate::import::NodeCx;
use rlx_ir::op::{BinaryOp as B, CmpOp, PadMode, ScatterOp};
use rlx_ir::{DType, DTypeClass, Dim, Error, Extent, NodeId, Op, Shape, Value};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(super) const OPS: &[Entry] = &[nodes("Col2Im", col2im), nodes("MaxUnpool", max_unpool)];

/// Windows of more elements than this have no indices: each element of the window is a few nodes.
const MOST_TAPS: usize = 1024;

/// The product of dimensions.
fn product(dims: &[Dim]) -> Extent {
    dims.iter().fold(Extent::Const(1), |n, d| n * d.extent())
}

/// How far apart neighbours along each spatial dimension are when the image is numbered in rows, or in columns (the first
/// dimension fastest).
fn numbering(spatial: &[Dim], columns: bool) -> Vec<Extent> {
    let step = |i: usize| if columns { product(&spatial[..i]) } else { product(&spatial[i + 1..]) };
    (0..spatial.len()).map(step).collect()
}

/// The indices of the maxima that `MaxPool` found in `x`: positions in the whole tensor, made flat. Of equal elements the
/// first counts. `pooled` is the shape of the maxima.
///
/// All windows are compared at once, one element of the window after the other: each is a strided slice of the padded image.
pub(super) fn indices_of_maxima(cx: Cx, x: NodeId, w: &Window, pooled: &Shape) -> Result<NodeId, Error> {
    let columns = cx.attrs.flag("storage_order", false)?;
    let shape = cx.shape_of(x);
    let (spatial, to) = (&shape.dims()[2..], &pooled.dims()[2..]);
    let taps: usize = w.kernel.iter().try_fold(1usize, |n, &k| n.checked_mul(k)).unwrap_or(usize::MAX);
    if !(1..=MOST_TAPS).contains(&taps) {
        return Err(cx.unsupported(format!("the indices of maxima in windows of {:?}", w.kernel)));
    }
    cx.importer.visit_many(3 * taps)?;
    let steps = numbering(spatial, columns);
    let padded = padded(cx, x, w, to)?;
    let mut best: Option<(NodeId, NodeId)> = None;
    for tap in 0..taps {
        let along = places(&w.kernel, tap);
        let offset =
            (0..along.len()).fold(Extent::Const(0), |n, i| n + steps[i] * (along[i] * w.dilations[i]) as i64);
        let (value, offset) = (strided(cx, padded, w, &along, to)?, cx.extent(offset)?);
        best = Some(match best {
            None => (value, offset),
            Some((most, at)) => {
                let more = cx.compare(CmpOp::Gt, value, most)?;
                (cx.select(more, value, most)?, cx.select(more, offset, at)?)
            }
        });
    }
    let Some((_, at)) = best else { return Err(cx.malformed("a window without elements")) };
    let first = first_places(cx, &shape, w, pooled, &steps)?;
    let at = cx.binary(B::Add, first, at)?;
    cx.expand(at, pooled.dims().to_vec())
}

/// The place of tap `i` along each dimension.
fn places(kernel: &[usize], mut i: usize) -> Vec<usize> {
    let mut along = vec![0; kernel.len()];
    for (place, &size) in along.iter_mut().zip(kernel).rev() {
        (*place, i) = (i % size, i / size);
    }
    along
}

/// The image with so much of the least value around it that no window leaves it.
fn padded(cx: Cx, x: NodeId, w: &Window, to: &[Dim]) -> Result<NodeId, Error> {
    let (shape, rank) = (cx.shape_of(x), w.kernel.len());
    let dtype = shape.dtype();
    let zero = || vec![Extent::Const(0); rank + 2];
    let (mut before, mut after) = (zero(), zero());
    for i in 0..rank {
        let reached = (to[i].extent() - 1) * w.strides[i] as i64 + w.reach(i) as i64;
        before[i + 2] = Extent::Const(w.pads[i] as i64);
        let missing = reached - shape.dim(i + 2).extent() - w.pads[i] as i64;
        after[i + 2] = missing.as_const().map_or_else(|| missing.max(0), |n| Extent::Const(n.max(0)));
    }
    let least = match dtype.class() {
        DTypeClass::Float => cx.scalar(dtype, f64::NEG_INFINITY),
        _ => {
            let least = dtype.int_range().map_or(0, |(least, _)| least);
            cx.constant(Value::int(dtype, &[], vec![least]))
        }
    };
    cx.pad(&[x, least], before, after, PadMode::Constant)
}

/// What every window has at one of its places.
fn strided(cx: Cx, padded: NodeId, w: &Window, along: &[usize], to: &[Dim]) -> Result<NodeId, Error> {
    let shape = cx.shape_of(padded);
    let (mut starts, mut steps) = (vec![Extent::Const(0); 2], vec![1; 2]);
    for (i, &place) in along.iter().enumerate() {
        starts.push(Extent::Const((place * w.dilations[i]) as i64));
        steps.push(w.strides[i].max(1) as i64);
    }
    let to = shape.dims()[..2].iter().chain(to).copied().collect();
    cx.add(Op::Slice { starts, steps, to }, &[padded])
}

/// Where each window's first element is (it may be in the padding): image, channel, and place.
fn first_places(
    cx: Cx,
    shape: &Shape,
    w: &Window,
    pooled: &Shape,
    steps: &[Extent],
) -> Result<NodeId, Error> {
    let rank = pooled.rank();
    let image = product(&shape.dims()[2..]);
    let mut sum = None;
    for axis in 0..rank {
        let step = match axis {
            0 => image * shape.dim(1).extent(),
            1 => image,
            _ => steps[axis - 2] * w.strides[axis - 2] as i64,
        };
        let mut to = vec![Dim::Static(1); rank];
        to[axis] = pooled.dim(axis);
        let count = cx.add(Op::Iota { to, axis, dtype: DType::I64 }, &[])?;
        let step = cx.extent(step)?;
        let part = cx.binary(B::Mul, count, step)?;
        sum = Some(match sum {
            Some(sum) => cx.binary(B::Add, sum, part)?,
            None => part,
        });
    }
    let sum = sum.ok_or_else(|| cx.malformed("a tensor without dimensions"))?;
    let before = steps.iter().zip(&w.pads).fold(Extent::Const(0), |n, (&s, &p)| n + s * p as i64);
    let before = cx.extent(before)?;
    cx.binary(B::Sub, sum, before)
}

/// Zeros, with the elements of `x` at the places that `MaxPool` gave. The places count in the tensor without padding; one that
/// is larger (`output_shape`) has zeros behind it.
fn max_unpool(cx: Cx) -> Nodes {
    let (w, shape) = (Window::read(cx, None)?, cx.shape(0)?);
    let spatial = w.kernel.len();
    let mut own = shape.dims()[..2].to_vec();
    for i in 0..spatial {
        let cut = (w.pads[i] + w.pads[spatial + i]) as i64;
        own.push(to_dim(
            cx,
            (shape.dim(i + 2).extent() - 1) * w.strides[i] as i64 - cut + w.kernel[i] as i64,
        )?);
    }
    let flat = vec![Dim::from(product(shape.dims()))];
    let (x, places) = (cx.x(0)?, cx.x(1)?);
    let (x, places) = (cx.reshape(x, flat.clone())?, cx.reshape(places, flat)?);
    let zero = cx.scalar(shape.dtype(), 0.0);
    let zeros = cx.expand(zero, vec![Dim::from(product(&own))])?;
    let y = cx.add(Op::ScatterElements { axis: 0, reduction: ScatterOp::Set }, &[zeros, places, x])?;
    let y = cx.reshape(y, own.clone())?;
    if !cx.has(2) {
        return Ok(vec![y]);
    }
    let wanted = cx.extents(2)?;
    if wanted.len() != own.len() {
        return Err(cx.malformed(format!("an output_shape of {} dimensions for {shape}", wanted.len())));
    }
    let after = wanted.iter().zip(&own).map(|(&to, from)| to - from.extent()).collect();
    Ok(vec![cx.pad(&[y], vec![Extent::Const(0); own.len()], after, PadMode::Constant)?])
}

/// The sum of overlapping blocks: column `l` of `x` `[N, C·taps, L]` holds a block of each channel, which is added to the image
/// at the block's place. Each row of a scatter is one element of the block, of all images and channels.
fn col2im(cx: Cx) -> Nodes {
    let (shape, image, block) = (cx.shape(0)?, cx.extents(1)?, cx.numbers(2)?);
    let rank = image.len();
    let block: Vec<usize> = block.iter().map(|&k| usize::try_from(k).unwrap_or(0)).collect();
    let taps = block.iter().try_fold(1usize, |n, &k| n.checked_mul(k)).unwrap_or(0);
    let channels = shape.dims().get(1).and_then(|d| d.as_static());
    if shape.rank() != 3
        || block.len() != rank
        || rank == 0
        || channels.is_none_or(|c| taps == 0 || c % taps != 0)
    {
        return Err(cx.malformed(format!("blocks of {block:?} in {shape}")));
    }
    let w = Window {
        strides: sizes(cx, "strides", rank, 1)?,
        pads: sizes(cx, "pads", 2 * rank, 0)?,
        dilations: sizes(cx, "dilations", rank, 1)?,
        kernel: block,
    };
    let padded: Vec<Extent> = (0..rank).map(|i| image[i] + (w.pads[i] + w.pads[rank + i]) as i64).collect();
    let mut blocks = Vec::with_capacity(rank);
    for (i, &size) in padded.iter().enumerate() {
        blocks.push(to_dim(cx, (size - w.reach(i) as i64).floor_div(w.strides[i].max(1) as i64) + 1)?);
    }
    let columns = Dim::Static(channels.unwrap_or(0) / taps);
    let y = added_up(cx, &w, &padded, &blocks, columns)?;
    // What was padding goes away again.
    let mut y = y;
    for (i, &size) in image.iter().enumerate() {
        y = cx.slice_axis(y, i + 2, Extent::Const(w.pads[i] as i64), size)?;
    }
    Ok(vec![y])
}

/// The image with its padding: `[N, C, …]`.
fn added_up(cx: Cx, w: &Window, padded: &[Extent], blocks: &[Dim], channels: Dim) -> Result<NodeId, Error> {
    let (x, shape, rank) = (cx.x(0)?, cx.shape(0)?, padded.len());
    let (batch, taps) = (shape.dim(0), Dim::Static(w.kernel.iter().product()));
    let count = Dim::from(product(blocks));
    let wide = Dim::from(batch.extent() * channels.extent());
    let rows = Dim::from(taps.extent() * count.extent());
    let x = cx.reshape(x, vec![batch, channels, taps, count])?;
    let x = cx.transpose(x, &[2, 3, 0, 1])?;
    let updates = cx.reshape(x, vec![rows, wide])?;
    // Element (tap, block) is at Σ (tap·dilation + block·stride)·step.
    let whole: Vec<Dim> = padded.iter().map(|&e| Dim::from(e)).collect();
    let steps = numbering(&whole, false);
    let to: Vec<Dim> = w.kernel.iter().map(|&k| Dim::Static(k)).chain(blocks.iter().copied()).collect();
    let mut place = None;
    for axis in 0..2 * rank {
        let factor = if axis < rank { w.dilations[axis] } else { w.strides[axis - rank] };
        let mut along = vec![Dim::Static(1); 2 * rank];
        along[axis] = to[axis];
        let number = cx.add(Op::Iota { to: along, axis, dtype: DType::I64 }, &[])?;
        let step = cx.extent(steps[axis % rank] * factor as i64)?;
        let part = cx.binary(B::Mul, number, step)?;
        place = Some(match place {
            Some(place) => cx.binary(B::Add, place, part)?,
            None => part,
        });
    }
    let place = place.ok_or_else(|| cx.malformed("an image without dimensions"))?;
    let place = cx.reshape(place, vec![rows, Dim::Static(1)])?;
    let zero = cx.scalar(shape.dtype(), 0.0);
    let zeros = cx.expand(zero, vec![Dim::from(product(&whole)), wide])?;
    let y = cx.add(Op::ScatterNd { reduction: ScatterOp::Add }, &[zeros, place, updates])?;
    let y = cx.transpose(y, &[1, 0])?;
    cx.reshape(y, [batch, channels].into_iter().chain(whole).collect())
}
