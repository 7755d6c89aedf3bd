//! A region behind exact sums of bytes, as one [`ByteEpilogue`] where it is of that form.
//!
//! ```text
//! ConvInteger [+ Add(i32)] + Cast + Mul [+ Add] [+ an operand] [+ an activation] [+ Quantize]
//! ```

use rlx_ir::op::BinaryOp;
use rlx_ir::{DType, Graph, Node, NodeId, Op};

use super::elementwise::quantised::{byte_range, number};
use super::region::{Chain, EpilogueSpec};
use super::{BindCx, RunCx};
use crate::gemm::{Bias, ByteEpilogue, Combine, Epilogue, PerColumn, bounds};
use crate::math::Quantiser;
use crate::program::layout::{At, Layout};

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
    bytes: Option<ToBytes>,
}

/// A quantisation of f32 to bytes by one scale.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToBytes {
    scale: Operand,
    zero: Operand,
    to: DType,
}

/// The region's nodes as such an epilogue.
pub(crate) fn of_region(body: &Graph, anchor: &Node) -> Option<ByteSpec> {
    let &[result] = body.outputs.as_slice() else { return None };
    let last = body.node(result);
    let quantised = matches!(last.op, Op::Quantize { .. });
    let end = if quantised { last.inputs[0] } else { result };
    let chain = Chain { body, dims: anchor.shape.dims(), dtype: DType::F32, biased: false };
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
    let bytes = if quantised { Some(ToBytes::of(body, last)?) } else { None };
    let late = floats.combine.is_some_and(|(_, _, after)| after);
    let function = floats.activation.is_some_and(|a| bounds(a).is_none());
    let fits = floats.alpha == 1.0 && (bytes.is_none() || !(late || function));
    fits.then_some(ByteSpec { offset, scale, floats, bytes })
}

impl ToBytes {
    /// The quantisation `node` of a region, if it is of that form.
    pub(crate) fn of(body: &Graph, node: &Node) -> Option<ToBytes> {
        let to = node.shape.dtype();
        byte_range(to)?;
        let scale = column_operand(body, node, node.inputs[1], DType::F32)?;
        let zero = match node.inputs.get(2) {
            None => Operand::Constant(0.0),
            Some(&zero) => column_operand(body, node, zero, to)?,
        };
        Some(ToBytes { scale, zero, to })
    }

    /// Whether the bytes are i8.
    pub(crate) fn signed(&self) -> bool {
        self.to == DType::I8
    }

    /// Where its numbers are; `None` if there is more than one of each.
    pub(crate) fn bind(&self, cx: &BindCx<'_>) -> Option<BytesAt> {
        let place = |operand| Place::of(operand, cx, 1);
        Some(BytesAt { scale: place(self.scale)?, zero: place(self.zero)?, to: self.to })
    }
}

/// A bound quantisation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BytesAt {
    scale: Place,
    zero: Place,
    to: DType,
}

impl BytesAt {
    /// That of a run.
    ///
    /// # Safety
    /// Scale and zero point must be there.
    pub(crate) unsafe fn quantiser(&self, cx: &RunCx<'_, '_>) -> Quantiser {
        // SAFETY: the caller's promise.
        let (scale, zero) = unsafe {
            let zero = match self.zero {
                Place::At(at, _) => number(*cx.ptr::<u8>(at), self.to) as f32,
                Place::Constant(x) => x,
            };
            (*self.scale.numbers::<f32>(cx).ptr, zero)
        };
        let (low, high) = byte_range(self.to).unwrap_or((0.0, 0.0));
        Quantiser::new(scale, zero, low, high)
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
    bytes: Option<BytesAt>,
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
        let combine = match spec.floats.combine {
            None => None,
            Some((i, _, _)) => {
                let l = cx.inputs[i].layout;
                if l.dims() != out.dims() || (*l.strides().last()? != 1 && columns != 1) {
                    return None;
                }
                let (_, stride) = l.range(0, l.rank() - 1).flat()?;
                Some((cx.inputs[i].at, usize::try_from(stride).ok()?))
            }
        };
        let offset = match spec.offset {
            None => None,
            Some(i) => Some(place(Operand::Input(i))?),
        };
        let bytes = match spec.bytes {
            None => None,
            Some(bytes) => Some(bytes.bind(cx)?),
        };
        Some(Places { spec: *spec, offset, scale: place(spec.scale)?, bias, combine, bytes })
    }

    /// The epilogue of a run.
    ///
    /// # Safety
    /// The operands must be there.
    pub(crate) unsafe fn epilogue(&self, cx: &RunCx<'_, '_>) -> ByteEpilogue {
        let spec = &self.spec.floats;
        let floats = Epilogue {
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
        // SAFETY: the caller's promise.
        let quantiser = self.bytes.as_ref().map(|bytes| unsafe { bytes.quantiser(cx) });
        let offset = self.offset.as_ref().map(|o| o.numbers::<i32>(cx));
        ByteEpilogue { offset, scale: self.scale.numbers(cx), floats, quantiser }
    }
}
