//! Slicing, concatenating, padding, gathering and scattering.

use super::movement::{axes_of, to_dim};
use super::{Entry, moves, nodes};
use crate::import::NodeCx;
use rlx_ir::op::{BinaryOp, CmpOp, PadMode, ScatterOp};
use rlx_ir::ops::movement::resolve_slice;
use rlx_ir::{DType, Dim, Error, Extent, NodeId, Op, SymRange};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(super) const OPS: &[Entry] = &[
    nodes("CenterCropPad", center_crop_pad),
    moves("Concat", concat),
    moves("Gather", gather),
    moves("GatherElements", gather_elements),
    moves("GatherND", gather_nd),
    nodes("Pad", pad),
    nodes("ReverseSequence", reverse_sequence),
    nodes("Scatter", scatter_elements),
    nodes("ScatterElements", scatter_elements),
    nodes("ScatterND", scatter_nd),
    moves("Slice", slice),
    moves("Split", split),
    nodes("TensorScatter", tensor_scatter),
    moves("Tile", tile),
];

fn concat(cx: Cx) -> Nodes {
    let axis = match cx.attrs.int_opt("axis")? {
        None if cx.opset < 4 => Some(1),
        axis => axis,
    };
    let axis = cx.shape(0)?.axis(cx.attrs.required("axis", axis)?)?;
    let all = cx.all()?;
    Ok(vec![if all.len() == 1 { all[0] } else { cx.add(Op::Concat { axis }, &all)? }])
}

fn gather(cx: Cx) -> Nodes {
    let axis = cx.axis("axis", 0, 0)?;
    let (table, indices) = (cx.x(0)?, cx.x(1)?);
    Ok(vec![cx.add(Op::Gather { axis }, &[table, indices])?])
}

fn gather_elements(cx: Cx) -> Nodes {
    let axis = cx.axis("axis", 0, 0)?;
    let (x, indices) = (cx.x(0)?, cx.x(1)?);
    Ok(vec![cx.add(Op::GatherElements { axis }, &[x, indices])?])
}

pub(super) fn gather_nd(cx: Cx) -> Nodes {
    let batch_dims =
        usize::try_from(cx.attrs.int("batch_dims", 0)?).map_err(|_| cx.malformed("batch_dims < 0"))?;
    let (x, indices) = (cx.x(0)?, cx.x(1)?);
    Ok(vec![cx.add(Op::GatherNd { batch_dims }, &[x, indices])?])
}

fn reduction(cx: &NodeCx<'_, '_>) -> Result<ScatterOp, Error> {
    Ok(match cx.attrs.text("reduction", "none")? {
        "none" => ScatterOp::Set,
        "add" => ScatterOp::Add,
        "mul" => ScatterOp::Mul,
        "max" => ScatterOp::Max,
        "min" => ScatterOp::Min,
        other => return Err(cx.malformed(format!("reduction = \"{other}\""))),
    })
}

fn scatter_elements(cx: Cx) -> Nodes {
    let op = Op::ScatterElements { axis: cx.axis("axis", 0, 0)?, reduction: reduction(cx)? };
    let operands = [cx.x(0)?, cx.x(1)?, cx.x(2)?];
    Ok(vec![cx.add(op, &operands)?])
}

fn scatter_nd(cx: Cx) -> Nodes {
    let op = Op::ScatterNd { reduction: reduction(cx)? };
    let operands = [cx.x(0)?, cx.x(1)?, cx.x(2)?];
    Ok(vec![cx.add(op, &operands)?])
}

/// A range of one axis replaced, each batch element's beginning where the operand says; a circular cache goes on at its start.
fn tensor_scatter(cx: Cx) -> Nodes {
    let axis = cx.axis("axis", -2, 0)?;
    let (shape, update_shape) = (cx.shape(0)?, cx.shape(1)?);
    let circular = match cx.attrs.text("mode", "linear")? {
        "linear" => false,
        "circular" => true,
        other => return Err(cx.malformed(format!("mode = \"{other}\""))),
    };
    if axis == 0 || update_shape.rank() != shape.rank() {
        return Err(cx.malformed(format!("an update {update_shape} of {shape} along axis {axis}")));
    }
    let (cache, update) = (cx.x(0)?, cx.x(1)?);
    let start = match cx.x_opt(2)? {
        Some(start) => start,
        None => cx.scalar(DType::I64, 0.0),
    };
    if !circular {
        return Ok(vec![cx.add(Op::UpdateSlice { axis }, &[cache, update, start])?]);
    }
    let start = cx.cast(start, DType::I64)?;
    let mut along = vec![Dim::Static(1); shape.rank()];
    if cx.has(2) {
        along[0] = shape.dim(0);
    }
    let start = cx.reshape(start, along)?;
    let mut to = vec![Dim::Static(1); shape.rank()];
    to[axis] = update_shape.dim(axis);
    let step = cx.add(Op::Iota { to, axis, dtype: DType::I64 }, &[])?;
    let place = cx.binary(BinaryOp::Add, start, step)?;
    let size = cx.extent(shape.dim(axis).extent())?;
    let place = cx.binary(BinaryOp::Mod, place, size)?;
    let place = cx.expand(place, update_shape.dims().to_vec())?;
    let op = Op::ScatterElements { axis, reduction: ScatterOp::Set };
    Ok(vec![cx.add(op, &[cache, place, update])?])
}

fn tile(cx: Cx) -> Nodes {
    let repeats = cx.found_extents(1)?.into_iter().map(|e| to_dim(cx, e)).collect::<Result<_, _>>()?;
    let x = cx.x(0)?;
    Ok(vec![cx.add(Op::Tile { repeats }, &[x])?])
}

/// Equal parts unless sizes are given; with `num_outputs` the last may be smaller.
fn split(cx: Cx) -> Nodes {
    let axis = cx.axis("axis", 0, 0)?;
    let whole = cx.shape(0)?.dim(axis).extent();
    let count = cx.proto.output.len();
    let sizes: Vec<Extent> = if cx.has(1) {
        cx.extents(1)?
    } else if let Some(sizes) = cx.attrs.ints("split")? {
        sizes.iter().map(|&s| Extent::Const(s)).collect()
    } else {
        let part = whole.ceil_div(count as i64);
        let last = whole - part * (count as i64 - 1);
        (0..count).map(|i| if i + 1 == count { last } else { part }).collect()
    };
    let total = sizes.iter().fold(Extent::Const(0), |n, &s| n + s);
    let uneven = (total - whole).as_const().is_some_and(|d| d != 0);
    let negative = sizes.iter().any(|s| s.as_const().is_some_and(|c| c < 0));
    if uneven || negative || sizes.len() != count {
        return Err(cx.malformed(format!("{count} parts of sizes that do not make {whole}")));
    }
    let x = cx.x(0)?;
    let mut start = Extent::Const(0);
    let mut parts = Vec::with_capacity(count);
    for size in sizes {
        parts.push(cx.slice_axis(x, axis, start, size)?);
        start = start + size;
    }
    Ok(parts)
}

/// Starts and ends clamp as in Python. Operands from opset 10 on, attributes before.
fn slice(cx: Cx) -> Nodes {
    let computed =
        |cx: &NodeCx<'_, '_>, i: usize| cx.has(i) && cx.extents(i).is_err() && !cx.decided_by_a_caller(i);
    if computed(cx, 1) || computed(cx, 2) {
        return super::slice_by_data::slice(cx);
    }
    let shape = cx.shape(0)?;
    let list = |i: usize, name: &str| -> Result<Option<Vec<Extent>>, Error> {
        match cx.has(i) {
            true => cx.extents(i).map(Some),
            false => Ok(cx.attrs.ints(name)?.map(|v| v.iter().map(|&n| Extent::Const(n)).collect())),
        }
    };
    let (starts, ends) = (list(1, "starts")?, list(2, "ends")?);
    let (starts, ends) = (cx.attrs.required("starts", starts)?, cx.attrs.required("ends", ends)?);
    let axes = cx.numbers_or_attr(3, "axes")?.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let axes = axes_of(cx, &axes, shape.rank())?;
    let given = if cx.has(4) { cx.numbers(4)? } else { vec![1; starts.len()] };
    if axes.len() != starts.len() || ends.len() != starts.len() || given.len() != starts.len() {
        return Err(cx.malformed("starts, ends, axes and steps differ in length"));
    }
    let mut from = vec![Extent::Const(0); shape.rank()];
    let mut steps = vec![1; shape.rank()];
    let mut to = shape.dims().to_vec();
    for (i, &axis) in axes.iter().enumerate() {
        narrow_symbol(cx, ends[i], shape.dim(axis));
        raise_symbol(cx, ends[i], shape.dim(axis));
        let graph = &cx.importer.graph;
        (from[axis], to[axis]) =
            resolve_slice(shape.dim(axis), starts[i], ends[i], given[i], &|s| graph.symbol_range(s))?;
        steps[axis] = given[i];
    }
    let x = cx.x(0)?;
    if to == shape.dims() && steps.iter().all(|&s| s == 1) {
        return Ok(vec![x]);
    }
    Ok(vec![cx.add(Op::Slice { starts: from, steps, to }, &[x])?])
}

/// Slicing a table of fixed length up to a symbol (position embeddings, causal masks): the symbol cannot be larger in
/// a run that means something, and stating it keeps a clamp out of every shape that follows. A run beyond is rejected.
fn narrow_symbol(cx: Cx, end: Extent, dim: Dim) {
    if let (Some(symbol), Some(most)) = (end.as_sym(), dim.as_static()) {
        let range = cx.importer.graph.symbol_range(symbol);
        let most = i64::try_from(most).unwrap_or(i64::MAX).max(range.min);
        cx.importer.graph.set_symbol_range(symbol, SymRange::new(range.min, range.max.min(most)));
    }
}

/// Slicing what a window left of a symbol (`[:-1]` of the length after a convolution) up to some elements before its end: in
/// a run that means something there are as many, so the symbol is at least what makes it so; a run below is rejected.
fn raise_symbol(cx: Cx, end: Extent, dim: Dim) {
    let (Dim::Expr(_), Some(short)) = (dim, end.as_const().and_then(i64::checked_neg)) else { return };
    let symbols = dim.extent().symbols();
    let (Some(&symbol), 1, 1..=MAX_CUT) = (symbols.first(), symbols.len(), short) else { return };
    let range = cx.importer.graph.symbol_range(symbol);
    let enough = |min: i64| dim.extent().range(&|_| SymRange::new(min, range.max)).min >= short;
    let (mut low, mut high) = (range.min, range.min.saturating_add(MAX_MINIMUM).min(range.max));
    if !enough(high) {
        return;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        (low, high) = if enough(middle) { (low, middle) } else { (middle + 1, high) };
    }
    cx.importer.graph.set_symbol_range(symbol, SymRange::new(low, range.max));
}

/// Cuts and smallest values beyond these are not looked for.
const MAX_CUT: i64 = 1 << 20;
const MAX_MINIMUM: i64 = 1 << 32;

/// A length that is 0 where the expression is less.
pub(super) fn at_least_zero(e: Extent) -> Extent {
    if e.range(&|_| SymRange::DIM).min >= 0 { e } else { e.max(0) }
}

pub(super) fn pad(cx: Cx) -> Nodes {
    let shape = cx.shape(0)?;
    let rank = shape.rank();
    let pads = match cx.has(1) {
        true => cx.extents(1)?,
        false => {
            let pads = cx.attrs.ints(if cx.opset < 2 { "paddings" } else { "pads" })?;
            cx.attrs.required("pads", pads)?.iter().map(|&p| Extent::Const(p)).collect()
        }
    };
    let axes = match cx.has(3) {
        true => axes_of(cx, &cx.numbers(3)?, rank)?,
        false => (0..rank).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Err(cx.malformed(format!("{} pads for {} dimensions", pads.len(), axes.len())));
    }
    let (mut before, mut after) = (vec![Extent::Const(0); rank], vec![Extent::Const(0); rank]);
    for (i, &axis) in axes.iter().enumerate() {
        (before[axis], after[axis]) = (pads[i], pads[axes.len() + i]);
    }
    let mode = match cx.attrs.text("mode", "constant")? {
        "constant" => PadMode::Constant,
        "edge" => PadMode::Edge,
        "reflect" => PadMode::Reflect,
        "wrap" => PadMode::Wrap,
        other => return Err(cx.malformed(format!("mode = \"{other}\""))),
    };
    let mut operands = vec![cx.x(0)?];
    if mode == PadMode::Constant {
        let value = match (cx.x_opt(2)?, cx.attrs.float_opt("value")?) {
            (Some(value), _) => Some(cx.reshape(value, vec![])?),
            (None, Some(value)) => Some(cx.scalar(shape.dtype(), f64::from(value))),
            (None, None) => None,
        };
        operands.extend(value);
    }
    Ok(vec![cx.pad(&operands, before, after, mode)?])
}

/// Crops or pads each axis to its target, half on either side; of an odd rest the end gets more.
fn center_crop_pad(cx: Cx) -> Nodes {
    let (shape, target) = (cx.shape(0)?, cx.numbers(1)?);
    let axes = match cx.attrs.ints("axes")? {
        Some(axes) => axes_of(cx, axes, shape.rank())?,
        None => (0..shape.rank()).collect(),
    };
    if axes.len() != target.len() {
        return Err(cx.malformed(format!("{} sizes for {} axes", target.len(), axes.len())));
    }
    let zero = || vec![Extent::Const(0); shape.rank()];
    let (mut before, mut after) = (zero(), zero());
    for (&axis, &target) in axes.iter().zip(&target) {
        let Some(size) = shape.dim(axis).as_static() else {
            return Err(cx.open_dimension(format!("cropping a dimension of {}", shape.dim(axis))));
        };
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        // Padding puts the smaller half first, cropping starts at the smaller half too.
        let missing = target.saturating_sub(size);
        let first = missing / 2;
        (before[axis], after[axis]) = (Extent::Const(first), Extent::Const(missing - first));
    }
    let x = cx.x(0)?;
    Ok(vec![cx.pad(&[x], before, after, PadMode::Constant)?])
}

/// Each sequence's first `length` steps in reverse order: steps are gathered from `length − 1 − t`.
fn reverse_sequence(cx: Cx) -> Nodes {
    let shape = cx.shape(0)?;
    let (batch, time) = (cx.axis("batch_axis", 1, 0)?, cx.axis("time_axis", 0, 0)?);
    if batch + time != 1 {
        return Err(cx.malformed("batch_axis and time_axis are not 0 and 1"));
    }
    let (x, lengths) = (cx.x(0)?, cx.x(1)?);
    let counted = |cx: &mut NodeCx<'_, '_>, axis: usize| {
        let mut to = vec![Dim::Static(1); 2];
        to[axis] = shape.dim(axis);
        cx.add(Op::Iota { to, axis, dtype: DType::I64 }, &[])
    };
    let (step, sequence) = (counted(cx, time)?, counted(cx, batch)?);
    let lengths = cx.cast(lengths, DType::I64)?;
    let mut along = vec![Dim::Static(1); 2];
    along[batch] = shape.dim(batch);
    let lengths = cx.reshape(lengths, along)?;
    let last = cx.with_scalar(BinaryOp::Sub, lengths, 1.0)?;
    let mirrored = cx.binary(BinaryOp::Sub, last, step)?;
    let inside = cx.compare(CmpOp::Lt, step, lengths)?;
    let from = cx.select(inside, mirrored, step)?;
    // Slices are moved whole: a step of a sequence is one row of both dimensions taken together.
    let sizes = [shape.dim(0).extent(), shape.dim(1).extent()];
    let size = cx.extent(sizes[1])?;
    let places = if time == 0 {
        // Of a sequence that is said to be too long, this is behind the last row.
        let row = cx.binary(BinaryOp::Mul, from, size)?;
        cx.binary(BinaryOp::Add, row, sequence)?
    } else {
        let row = cx.binary(BinaryOp::Mul, sequence, size)?;
        let place = cx.binary(BinaryOp::Add, row, from)?;
        let (fits, behind) = (cx.compare(CmpOp::Lt, from, size)?, cx.extent(sizes[0] * sizes[1])?);
        cx.select(fits, place, behind)?
    };
    let rest = &shape.dims()[2..];
    let rows = Dim::from(sizes[0] * sizes[1]);
    let flat = cx.reshape(x, [rows].iter().chain(rest).copied().collect())?;
    let y = cx.add(Op::Gather { axis: 0 }, &[flat, places])?;
    Ok(vec![cx.reshape(y, shape.dims().to_vec())?])
}

impl NodeCx<'_, '_> {
    /// `length` elements from `start` on along one axis.
    pub fn slice_axis(
        &mut self,
        x: NodeId,
        axis: usize,
        start: Extent,
        length: Extent,
    ) -> Result<NodeId, Error> {
        let shape = self.shape_of(x);
        let mut starts = vec![Extent::Const(0); shape.rank()];
        let mut to = shape.dims().to_vec();
        (starts[axis], to[axis]) = (start, Dim::from(length));
        if to == shape.dims() {
            return Ok(x);
        }
        let steps = vec![1; shape.rank()];
        self.add(Op::Slice { starts, steps, to }, &[x])
    }

    /// Pads `operands[0]` (with value `operands[1]`, if any); negative pads crop.
    pub fn pad(
        &mut self,
        operands: &[NodeId],
        mut before: Vec<Extent>,
        mut after: Vec<Extent>,
        mode: PadMode,
    ) -> Result<NodeId, Error> {
        let mut operands = operands.to_vec();
        let shape = self.shape_of(operands[0]);
        for axis in 0..shape.rank() {
            let crop = |e: &mut Extent| match e.as_const() {
                Some(c) if c < 0 => {
                    *e = Extent::Const(0);
                    c.saturating_neg()
                }
                _ => 0,
            };
            let (first, last) = (crop(&mut before[axis]), crop(&mut after[axis]));
            if first > 0 || last > 0 {
                let length = at_least_zero(shape.dim(axis).extent() - first.saturating_add(last));
                operands[0] = self.slice_axis(operands[0], axis, Extent::Const(first), length)?;
            }
        }
        if before.iter().chain(&after).all(|&p| p == Extent::Const(0)) {
            return Ok(operands[0]);
        }
        self.add(Op::Pad { before, after, mode }, &operands)
    }
}
