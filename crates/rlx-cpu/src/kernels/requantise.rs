//! A region behind exact sums of bytes, as one [`ByteEpilogue`] where it is of that form.
//!
//! ```text
//! ConvInteger [+ Add(i32)] + Cast + Mul [+ Add] [+ an operand] [+ an activation] [+ Quantize [+ a residual]]
//! ```
//!
//! With a residual, other bytes are added to those as floats: `Quantize(Dequantize(bytes) + Dequantize(others))`.

use rlx_ir::op::BinaryOp;
use rlx_ir::{DType, Graph, Node, NodeId, Op};

use super::elementwise::quantised::{byte_range, number};
use super::region::{Chain, EpilogueSpec};
use super::{BindCx, RunCx};
use crate::gemm::{Bias, ByteEpilogue, Combine, Epilogue, PerColumn, Residual};
use crate::layout::{At, Layout};
use crate::math::{Dequantiser, Quantiser, bounds};

/// A number for each column, or one for all.
#[derive(Debug, Clone, Copy)]
enum Operand {
    /// An input of the region.
    Input(usize),
    /// One number inside the region.
    Constant(f32),
}

/// The region by its inputs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByteSpec {
    /// Which input is added to the sums.
    offset: Option<usize>,
    scale: Operand,
    pub(crate) floats: EpilogueSpec,
    /// How bytes come out.
    bytes: Option<ByteScale>,
    /// What is added to them.
    pub(crate) residual: Option<ResidualSpec>,
}

/// What bytes stand for: multiples of one scale from a zero point on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByteScale {
    scale: Operand,
    zero: Operand,
    dtype: DType,
}

/// The residual by the region's inputs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResidualSpec {
    own: ByteScale,
    other: ByteScale,
    /// The input with the other bytes.
    index: usize,
    result: ByteScale,
}

impl ByteSpec {
    /// Whether it has an operand with an element for each of the result's.
    pub(crate) fn reads_rows(&self) -> bool {
        self.residual.is_some() || self.floats.combine.is_some()
    }
}

/// The region's nodes as such an epilogue.
pub(crate) fn of_region(body: &Graph, anchor: &Node) -> Option<ByteSpec> {
    let &[result] = body.outputs.as_slice() else { return None };
    let chain = Chain { body, dims: anchor.shape.dims(), dtype: DType::F32, biased: false };
    let (residual, result) = match ResidualSpec::of(&chain, anchor, result) {
        Some((residual, bytes)) => (Some(residual), bytes),
        None => (None, result),
    };
    let last = body.node(result);
    let quantised = matches!(last.op, Op::Quantize { .. });
    let end = if quantised { last.inputs[0] } else { result };
    let user = |at: NodeId| chain.only_user(at);
    let (mut at, mut offset) = (user(anchor.id)?, None);
    if let Some(other) = operand(at, BinaryOp::Add, anchor.id) {
        let Operand::Input(index) = column_operand(body, anchor, other, DType::I32)? else { return None };
        offset = Some(index);
        at = user(at.id)?;
    }
    let Op::Cast { to: DType::F32 } = at.op else { return None };
    let scaled = user(at.id)?;
    let scale = column_operand(body, anchor, operand(scaled, BinaryOp::Mul, at.id)?, DType::F32)?;
    let mut floats = EpilogueSpec::NONE;
    at = scaled;
    while at.id != end {
        let user = user(at.id)?;
        chain.extend(&mut floats, user, at.id)?;
        at = user;
    }
    let bytes = if quantised { Some(ByteScale::of(body, last, last.shape.dtype())?) } else { None };
    let late = floats.combine.is_some_and(|(_, _, after)| after);
    let function = floats.activation.is_some_and(|a| bounds(a).is_none());
    let fits = floats.alpha == 1.0 && (bytes.is_none() || !(late || function));
    fits.then_some(ByteSpec { offset, scale, floats, bytes, residual })
}

impl ResidualSpec {
    /// The residual that ends with `result`, and the bytes before it.
    fn of(chain: &Chain<'_>, anchor: &Node, result: NodeId) -> Option<(ResidualSpec, NodeId)> {
        let body = chain.body;
        let quantised = |id: &NodeId| matches!(body.node(*id).op, Op::Quantize { axis: None, .. });
        let last = Some(body.node(result)).filter(|n| quantised(&n.id))?;
        let sum = body.node(*last.inputs.first()?);
        let (Op::Binary(BinaryOp::Add), &[a, b]) = (&sum.op, sum.inputs.as_slice()) else { return None };
        let source = |id: NodeId| match body.node(id).op {
            Op::Dequantize { axis: None, .. } => body.node(id).inputs.first().copied(),
            _ => None,
        };
        let (own, other) = if quantised(&source(a)?) { (a, b) } else { (b, a) };
        let (bytes, others) = (source(own).filter(quantised)?, source(other)?);
        let row = [(bytes, own), (own, sum.id), (other, sum.id), (sum.id, result)];
        let alone = |&(at, user): &(NodeId, NodeId)| chain.only_user(at).is_some_and(|n| n.id == user);
        let index = body.inputs().position(|n| n.id == others)?;
        let fits = body.node(others).shape.dims() == anchor.shape.dims()
            && [own, other].iter().all(|&id| body.node(id).shape.dtype() == DType::F32);
        if !fits || !row.iter().all(alone) {
            return None;
        }
        let scale =
            |node: NodeId, of: NodeId| ByteScale::of(body, body.node(node), body.node(of).shape.dtype());
        let spec = ResidualSpec {
            own: scale(own, bytes)?,
            other: scale(other, others)?,
            index,
            result: scale(result, result)?,
        };
        Some((spec, bytes))
    }
}

impl ByteScale {
    /// That of the quantisation `node` of a region to bytes of `dtype`, or from them, if it has one scale.
    pub(crate) fn of(body: &Graph, node: &Node, dtype: DType) -> Option<ByteScale> {
        byte_range(dtype)?;
        let scale = column_operand(body, node, *node.inputs.get(1)?, DType::F32)?;
        let zero = match node.inputs.get(2) {
            None => Operand::Constant(0.0),
            Some(&zero) => column_operand(body, node, zero, dtype)?,
        };
        Some(ByteScale { scale, zero, dtype })
    }

    /// Whether the bytes are i8.
    pub(crate) fn signed(&self) -> bool {
        self.dtype == DType::I8
    }

    /// Where its numbers are; `None` if there is more than one of each.
    pub(crate) fn bind(&self, cx: &BindCx<'_>) -> Option<ByteScaleAt> {
        let place = |operand| Place::of(operand, cx, 1);
        Some(ByteScaleAt { scale: place(self.scale)?, zero: place(self.zero)?, dtype: self.dtype })
    }
}

/// A bound [`ByteScale`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByteScaleAt {
    scale: Place,
    zero: Place,
    dtype: DType,
}

impl ByteScaleAt {
    /// How floats become bytes in a run.
    ///
    /// # Safety
    /// Where they were bound, one f32 must be readable as the scale and one byte as the zero point.
    pub(crate) unsafe fn quantiser(&self, cx: &RunCx<'_, '_>) -> Quantiser {
        // SAFETY: the caller promises that scale and zero point are readable where they were bound.
        let (scale, zero) = unsafe { self.numbers(cx) };
        let (low, high) = byte_range(self.dtype).unwrap_or((0.0, 0.0));
        Quantiser::new(scale, zero, low, high)
    }

    /// How bytes become floats in a run.
    ///
    /// # Safety
    /// Where they were bound, one f32 must be readable as the scale and one byte as the zero point.
    unsafe fn dequantiser(&self, cx: &RunCx<'_, '_>) -> Dequantiser {
        // SAFETY: the caller promises that scale and zero point are readable where they were bound.
        let (scale, zero) = unsafe { self.numbers(cx) };
        Dequantiser { scale, zero: zero as i32, signed: self.dtype == DType::I8 }
    }

    /// Scale and zero point.
    ///
    /// # Safety
    /// Where they were bound, one f32 must be readable as the scale and one byte as the zero point.
    unsafe fn numbers(&self, cx: &RunCx<'_, '_>) -> (f32, f32) {
        // SAFETY: the caller promises a readable f32 and a readable byte; a constant is a field of `self`.
        unsafe {
            let zero = match self.zero {
                Place::At(at, _) => number(*cx.ptr::<u8>(at), self.dtype) as f32,
                Place::Constant(x) => x,
            };
            (*self.scale.numbers::<f32>(cx).ptr, zero)
        }
    }
}

/// The operand beside `at` of a function of two.
fn operand(node: &Node, f: BinaryOp, at: NodeId) -> Option<NodeId> {
    match (&node.op, node.inputs.as_slice()) {
        (Op::Binary(op), &[a, b]) if *op == f && a != b => Some(if a == at { b } else { a }),
        _ => None,
    }
}

fn is_one(node: &Node) -> bool {
    node.shape.num_elements() == Some(1)
}

/// A node as one number, or as one for each column of the anchor.
fn column_operand(body: &Graph, anchor: &Node, id: NodeId, dtype: DType) -> Option<Operand> {
    let node = body.node(id);
    if node.shape.dtype() != dtype || node.shape.rank() > anchor.shape.rank() {
        return None;
    }
    if let Op::Constant { data } = &node.op {
        let &[value] = data.value().to_f64().as_slice() else { return None };
        return Some(Operand::Constant(value as f32));
    }
    let index = body.inputs().position(|n| n.id == id)?;
    let one = rlx_ir::Dim::Static(1);
    let columns = match node.shape.dims().split_last() {
        Some((last, lead)) => Some(last) == anchor.shape.dims().last() && lead.iter().all(|&d| d == one),
        None => false,
    };
    (columns || is_one(node)).then_some(Operand::Input(index))
}

/// Where numbers lie: one for each column, or one for all.
#[derive(Debug, Clone, Copy)]
enum Place {
    At(At, usize),
    Constant(f32),
}

impl Place {
    fn of(operand: Operand, cx: &BindCx<'_>, columns: usize) -> Option<Place> {
        let index = match operand {
            Operand::Constant(x) => return Some(Place::Constant(x)),
            Operand::Input(index) => index,
        };
        let (at, layout) = (cx.inputs[index].at, cx.inputs[index].layout);
        if layout.elements() == 1 {
            return Some(Place::At(at, 0));
        }
        let dense = layout.strides().last() == Some(&1) && layout.dims().last() == Some(&columns);
        (dense && layout.elements() == columns).then_some(Place::At(at, 1))
    }

    fn numbers<T>(&self, cx: &RunCx<'_, '_>) -> PerColumn<T> {
        match self {
            Place::At(at, step) => PerColumn { ptr: cx.ptr::<T>(*at).cast_const(), step: *step },
            // Constants of other types are not asked for.
            Place::Constant(x) => PerColumn { ptr: std::ptr::from_ref(x).cast(), step: 0 },
        }
    }
}

/// A bound epilogue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    spec: ByteSpec,
    offset: Option<Place>,
    scale: Place,
    bias: Option<Place>,
    combine: Option<(At, usize)>,
    bytes: Option<ByteScaleAt>,
    residual: Option<ResidualAt>,
}

/// A bound residual.
#[derive(Debug, Clone, Copy)]
struct ResidualAt {
    own: ByteScaleAt,
    other: ByteScaleAt,
    result: ByteScaleAt,
    /// The other bytes, and how far their rows are apart.
    rows: (At, usize),
}

impl Places {
    /// Binds the operands; `None` when their layout is not what the kernel reads, or the result's rows are not one matrix.
    pub(crate) fn of(spec: &ByteSpec, cx: &BindCx<'_>) -> Option<Places> {
        let out: Layout = cx.outputs[0].layout;
        let columns = *out.dims().last()?;
        out.range(0, out.rank() - 1).flat().filter(|_| out.strides().last() == Some(&1) || columns == 1)?;
        let place = |operand| Place::of(operand, cx, columns);
        let bias = match spec.floats.bias {
            None => None,
            Some(i) => Some(place(Operand::Input(i))?),
        };
        if matches!(bias, Some(Place::At(_, 0))) && columns != 1 {
            return None;
        }
        // An operand of the result's dimensions, in rows of columns one behind the other.
        let rows = |i: usize| {
            let l = cx.inputs[i].layout;
            if l.dims() != out.dims() || (*l.strides().last()? != 1 && columns != 1) {
                return None;
            }
            let (_, stride) = l.range(0, l.rank() - 1).flat()?;
            Some((cx.inputs[i].at, usize::try_from(stride).ok()?))
        };
        let combine = match spec.floats.combine {
            None => None,
            Some((i, _, _)) => Some(rows(i)?),
        };
        let offset = match spec.offset {
            None => None,
            Some(i) => Some(place(Operand::Input(i))?),
        };
        let bytes = match spec.bytes {
            None => None,
            Some(bytes) => Some(bytes.bind(cx)?),
        };
        let residual = match &spec.residual {
            None => None,
            Some(r) => Some(ResidualAt {
                own: r.own.bind(cx)?,
                other: r.other.bind(cx)?,
                result: r.result.bind(cx)?,
                rows: rows(r.index)?,
            }),
        };
        Some(Places { spec: *spec, offset, scale: place(spec.scale)?, bias, combine, bytes, residual })
    }

    /// The epilogue of a run.
    ///
    /// # Safety
    /// The operands must be there.
    pub(crate) unsafe fn epilogue(&self, cx: &RunCx<'_, '_>) -> ByteEpilogue {
        let spec = &self.spec.floats;
        let mut floats = Epilogue {
            alpha: 1.0,
            bias: self.bias.map_or(Bias::None, |b| Bias::PerColumn(b.numbers::<f32>(cx).ptr)),
            combine: self.combine.zip(spec.combine).map(|((at, row_stride), (_, op, after))| Combine {
                ptr: cx.ptr::<f32>(at).cast_const(),
                row_stride,
                op,
                after,
            }),
            activation: spec.activation,
        };
        // SAFETY: the caller promises the operands that were bound, of which scale and zero point are two.
        let mut quantiser = self.bytes.as_ref().map(|bytes| unsafe { bytes.quantiser(cx) });
        let bounds = floats.activation.and_then(bounds);
        if let Some(clipped) = quantiser.zip(bounds).and_then(|(q, (lo, hi))| q.clipped(lo, hi)) {
            (quantiser, floats.activation) = (Some(clipped), None);
        }
        let residual = self.residual.as_ref().map(|r| {
            let (at, row_stride) = r.rows;
            let (own, other, quantiser) =
                // SAFETY: the caller promises the operands that were bound, of which scales and zero points are some.
                unsafe { (r.own.dequantiser(cx), r.other.dequantiser(cx), r.result.quantiser(cx)) };
            Residual { own, other, ptr: cx.ptr::<u8>(at).cast_const(), row_stride, quantiser }
        });
        let offset = self.offset.as_ref().map(|o| o.numbers::<i32>(cx));
        ByteEpilogue { offset, scale: self.scale.numbers(cx), floats, quantiser, residual }
    }
}
