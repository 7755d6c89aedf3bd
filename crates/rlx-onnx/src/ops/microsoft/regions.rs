//! Regions of pictures, and words as the characters in them.

use crate::import::NodeCx;
use crate::ops::{Entry, microsoft};
use rlx_ir::op::{Activation as A, BinaryOp as B, CmpOp, ReduceOp};
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(in crate::ops) const OPS: &[Entry] =
    &[microsoft("CropAndResize", crop_and_resize), microsoft("WordConvEmbedding", word_conv_embedding)];

fn count(cx: Cx, length: Dim, dtype: DType) -> Result<NodeId, Error> {
    cx.add(Op::Iota { to: vec![length], axis: 0, dtype }, &[])
}

/// Where the samples of one axis are: their coordinates in the picture, `[regions, samples]`, and which are inside.
struct Samples {
    places: NodeId,
    inside: NodeId,
    last: NodeId,
}

/// `X` `[N, C, H, W]`, regions `[R, 4]` (`y1, x1, y2, x2` from 0 to 1), the picture of each, and the size they get.
fn crop_and_resize(cx: Cx) -> Nodes {
    let (x, shape, regions) = (cx.x(0)?, cx.shape(0)?, cx.shape(1)?);
    let (&[_, channels, height, width], &[found, Dim::Static(4)]) = (shape.dims(), regions.dims()) else {
        return Err(cx.malformed(format!("regions {regions} of {shape}")));
    };
    let size = cx.numbers(3)?;
    let sizes = size.iter().map(|&n| usize::try_from(n).ok().filter(|&n| n > 0 && n <= 1 << 16));
    let sizes = sizes.collect::<Option<Vec<_>>>();
    let Some(&[rows, columns]) = sizes.as_deref().and_then(|s| <&[usize; 2]>::try_from(s).ok()) else {
        return Err(cx.malformed(format!("crop_size = {size:?}")));
    };
    let nearest = match cx.attrs.text("mode", "bilinear")? {
        "bilinear" => false,
        "nearest" => true,
        other => return Err(cx.bad_attr("mode", other)),
    };
    let y = samples(cx, 0, height, rows)?;
    let x_places = samples(cx, 1, width, columns)?;
    let picture = cx.transpose(x, &[0, 2, 3, 1])?;
    let grid = Grid { picture, found, rows: Dim::Static(rows), columns: Dim::Static(columns) };
    let taken = if nearest {
        let (y, x) = (rounded(cx, y.places)?, rounded(cx, x_places.places)?);
        grid.take(cx, y, x)?
    } else {
        grid.between(cx, &y, &x_places)?
    };
    let (y_inside, x_inside) = (cx.unsqueeze(y.inside, &[2, 3])?, cx.unsqueeze(x_places.inside, &[1, 3])?);
    let inside = cx.binary(B::And, y_inside, x_inside)?;
    let outside = cx.scalar(shape.dtype(), f64::from(cx.attrs.float("extrapolation_value", 0.0)?));
    let taken = cx.select(inside, taken, outside)?;
    let to = vec![found, Dim::Static(rows), Dim::Static(columns), channels];
    let taken = cx.expand(taken, to)?;
    Ok(vec![cx.transpose(taken, &[0, 3, 1, 2])?])
}

/// From the first to the last edge of each region; a single sample is between them.
fn samples(cx: Cx, edge: i64, size: Dim, count_of: usize) -> Result<Samples, Error> {
    let regions = cx.x(1)?;
    let dtype = cx.shape_of(regions).dtype();
    let first = cx.slice_axis(regions, 1, Extent::Const(edge), Extent::Const(1))?;
    let end = cx.slice_axis(regions, 1, Extent::Const(edge + 2), Extent::Const(1))?;
    let last = cx.extent(size.extent() - 1)?;
    let last = cx.cast(last, dtype)?;
    let (first, end) = (cx.binary(B::Mul, first, last)?, cx.binary(B::Mul, end, last)?);
    let places = if count_of == 1 {
        let sum = cx.binary(B::Add, first, end)?;
        cx.with_scalar(B::Mul, sum, 0.5)?
    } else {
        let step = cx.binary(B::Sub, end, first)?;
        let step = cx.with_scalar(B::Div, step, (count_of - 1) as f64)?;
        let sample = count(cx, Dim::Static(count_of), dtype)?;
        let way = cx.binary(B::Mul, step, sample)?;
        let places = cx.binary(B::Add, first, way)?;
        let final_one = cx.scalar(dtype, (count_of - 1) as f64);
        let is_last = cx.compare(CmpOp::Eq, sample, final_one)?;
        cx.select(is_last, end, places)?
    };
    let zero = cx.scalar(dtype, 0.0);
    let from = cx.compare(CmpOp::Ge, places, zero)?;
    let to = cx.compare(CmpOp::Le, places, last)?;
    let inside = cx.binary(B::And, from, to)?;
    // What is outside is not taken, but has to be somewhere.
    let places = cx.select(inside, places, zero)?;
    Ok(Samples { places, inside, last })
}

/// To the nearest integer, halves away from 0.
fn rounded(cx: Cx, x: NodeId) -> Result<NodeId, Error> {
    let x = cx.with_scalar(B::Add, x, 0.5)?;
    cx.activation(A::Floor, x)
}

/// A picture with its channels last, and how many samples are taken from it.
struct Grid {
    picture: NodeId,
    found: Dim,
    rows: Dim,
    columns: Dim,
}

impl Grid {
    /// The elements at rows `[regions, rows]` and columns `[regions, columns]`.
    fn take(&self, cx: Cx, rows: NodeId, columns: NodeId) -> Result<NodeId, Error> {
        let to = vec![self.found, self.rows, self.columns, Dim::Static(1)];
        let pictures = cx.x(2)?;
        let mut index = [
            cx.unsqueeze(pictures, &[1, 2, 3])?,
            cx.unsqueeze(rows, &[2, 3])?,
            cx.unsqueeze(columns, &[1, 3])?,
        ];
        for x in &mut index {
            *x = cx.cast(*x, DType::I64)?;
            *x = cx.expand(*x, to.clone())?;
        }
        let index = cx.add(Op::Concat { axis: 3 }, &index)?;
        cx.add(Op::GatherNd { batch_dims: 0 }, &[self.picture, index])
    }

    /// Between the four elements around each place.
    fn between(&self, cx: Cx, y: &Samples, x: &Samples) -> Result<NodeId, Error> {
        let (top, left) = (cx.activation(A::Floor, y.places)?, cx.activation(A::Floor, x.places)?);
        let (bottom, right) = (cx.activation(A::Ceil, y.places)?, cx.activation(A::Ceil, x.places)?);
        let (bottom, right) = (cx.binary(B::Min, bottom, y.last)?, cx.binary(B::Min, right, x.last)?);
        let (down, along) = (cx.binary(B::Sub, y.places, top)?, cx.binary(B::Sub, x.places, left)?);
        let (down, along) = (cx.unsqueeze(down, &[2, 3])?, cx.unsqueeze(along, &[1, 3])?);
        let upper = (self.take(cx, top, left)?, self.take(cx, top, right)?);
        let lower = (self.take(cx, bottom, left)?, self.take(cx, bottom, right)?);
        let upper = mixed(cx, upper, along)?;
        let lower = mixed(cx, lower, along)?;
        mixed(cx, (upper, lower), down)
    }
}

/// `a + (b − a)·share`
fn mixed(cx: Cx, (a, b): (NodeId, NodeId), share: NodeId) -> Result<NodeId, Error> {
    let difference = cx.binary(B::Sub, b, a)?;
    let share = cx.cast(share, cx.shape_of(a).dtype())?;
    let part = cx.binary(B::Mul, difference, share)?;
    cx.binary(B::Add, a, part)
}

/// Characters `[words, characters]` (0 is none), filters `[filters, 1, window, size]`, their bias, and the characters'
/// vectors: the largest of each filter's results over the windows of a word.
fn word_conv_embedding(cx: Cx) -> Nodes {
    let (shape, filters) = (cx.shape(0)?, cx.shape(1)?);
    let (&[_, characters], &[count_of, _, window, size]) = (shape.dims(), filters.dims()) else {
        return Err(cx.malformed(format!("words {shape} with filters {filters}")));
    };
    let (ids, table, weights, bias) = (cx.x(0)?, cx.x(3)?, cx.x(1)?, cx.x(2)?);
    let windows = characters.extent() - window.extent() + 1;
    if windows.as_const().is_some_and(|n| n < 1) {
        return Err(cx.malformed(format!("windows of {window} characters in words of {characters}")));
    }
    let zero = cx.scalar(cx.shape_of(ids).dtype(), 0.0);
    let there = cx.compare(CmpOp::Gt, ids, zero)?;
    let there = cx.cast(there, DType::I64)?;
    let length = cx.reduce(there, ReduceOp::Sum, &[1], true)?;
    let vectors = cx.add(Op::Gather { axis: 0 }, &[table, ids])?;
    // One row of a picture for each character: the windows are a convolution down the word.
    let vectors = cx.unsqueeze(vectors, &[1])?;
    let weights = cx.reshape(weights, vec![count_of, Dim::Static(1), window, size])?;
    let op = Op::Conv {
        strides: vec![1, 1],
        pads: vec![0; 4],
        dilations: vec![1, 1],
        groups: 1,
        format: rlx_ir::op::DataFormat::ChannelsFirst,
    };
    let y = cx.add(op, &[vectors, weights, bias])?;
    let y = cx.activation(A::Tanh, y)?;
    let [words, found, rows, _] = cx.shape_of(y).dims()[..] else { return Err(cx.malformed("no windows")) };
    let y = cx.reshape(y, vec![words, found, rows])?;
    // A word that is shorter than the window has one.
    let place = count(cx, rows, DType::I64)?;
    let reach = cx.extent(window.extent())?;
    let whole = cx.binary(B::Max, length, reach)?;
    let whole = cx.binary(B::Sub, whole, reach)?;
    let inside = cx.compare(CmpOp::Le, place, whole)?;
    let inside = cx.unsqueeze(inside, &[1])?;
    let low = cx.scalar(cx.shape_of(y).dtype(), -1e12);
    let y = cx.select(inside, y, low)?;
    Ok(vec![cx.reduce(y, ReduceOp::Max, &[2], false)?])
}
