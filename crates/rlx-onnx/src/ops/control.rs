//! Constants, pass-through ops, and control flow.

mod branches;
mod loops;

use super::{Emit, Entry, nodes};
use crate::import::{NodeCx, SlotId};
use crate::proto::TensorProto;
use rlx_ir::{DType, Error, NodeId, Value};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;

pub(super) const OPS: &[Entry] = &[
    Entry::op("Constant", Emit::Slots(constant)),
    Entry::op("Identity", Emit::Slots(identity)),
    nodes("Dropout", dropout),
    Entry::op("If", Emit::Slots(branches::if_)),
    Entry::op("Loop", Emit::Slots(loops::loop_)),
    Entry { domain: "", op: "Scan", since: 9, until: i64::MAX, emit: Emit::Slots(loops::scan) },
];

/// One of several attributes holds the value.
fn constant(cx: Cx) -> Result<Vec<SlotId>, Error> {
    if let Some(proto) = cx.attrs.tensor("value")? {
        // Its name is the output's, so that a large one has a name worth reading.
        let name = cx.proto.output.first().cloned().unwrap_or_default();
        let tensor = TensorProto { name: Some(name), ..proto.clone() };
        let raw = cx.importer.file.tensor(&tensor)?;
        return Ok(vec![cx.importer.tensor_slot(raw, false)]);
    }
    let value = if let Some(v) = cx.attrs.int_opt("value_int")? {
        Value::int(DType::I64, &[], vec![i128::from(v)])
    } else if let Some(v) = cx.attrs.ints("value_ints")? {
        Value::int(DType::I64, &[v.len()], v.iter().map(|&v| i128::from(v)).collect())
    } else if let Some(v) = cx.attrs.float_opt("value_float")? {
        Value::float(DType::F32, &[], vec![f64::from(v)])
    } else if let Some(v) = cx.attrs.floats("value_floats")? {
        Value::float(DType::F32, &[v.len()], v.iter().map(|&v| f64::from(v)).collect())
    } else {
        return Err(cx.unsupported("a constant of strings or a sparse constant"));
    };
    Ok(vec![cx.importer.constant_slot(value.to_const())])
}

fn identity(cx: Cx) -> Result<Vec<SlotId>, Error> {
    Ok(vec![cx.slot(0)?])
}

/// Inference passes through; the mask output is all true. In training mode it is random.
fn dropout(cx: Cx) -> Result<Vec<NodeId>, Error> {
    let training = cx.has(2) && cx.number(2)? != 0;
    let ratio = if cx.has(1) { cx.floats(1)?.first().copied().unwrap_or(0.5) } else { 0.5 };
    if training && ratio != 0.0 {
        return Err(cx.unsupported("dropout in training mode, which is random"));
    }
    let x = cx.x(0)?;
    let mut outputs = vec![x];
    if cx.wants(1) {
        let truth = cx.constant(Value::bools(&[], [true]));
        let dims = cx.shape_of(x).dims().to_vec();
        outputs.push(cx.expand(truth, dims)?);
    }
    Ok(outputs)
}
