//! Constants, pass-through ops, and control flow.

mod branches;
mod loops;

use super::{Emit, Entry, any, nodes};
use crate::import::{NodeCx, SlotId};
use crate::proto::TensorProto;
use crate::structure::{StringTensor, is_strings, strings_of};
use rlx_ir::{DType, Error, NodeId, Value};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;

pub(super) const OPS: &[Entry] = &[
    any("Constant", constant),
    any("Identity", identity),
    nodes("Dropout", dropout),
    any("If", branches::if_),
    any("Loop", loops::loop_),
    Entry { since: 8, until: 8, ..Entry::op("Scan", Emit::Slots(loops::scan_of_batches)) },
    Entry { since: 9, ..Entry::op("Scan", Emit::Slots(loops::scan)) },
];

/// One of several attributes holds the value.
fn constant(cx: Cx) -> Result<Vec<SlotId>, Error> {
    if let Some(proto) = cx.attrs.tensor("value")? {
        if is_strings(proto) {
            return Ok(vec![cx.importer.known_strings_slot(&strings_of(proto)?)?]);
        }
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
    } else if cx.attrs.has("value_string") {
        let elements = vec![cx.attrs.text("value_string", "")?.to_owned()];
        return Ok(vec![cx.importer.known_strings_slot(&StringTensor { dims: vec![], elements })?]);
    } else if let Some(list) = cx.attrs.texts("value_strings")? {
        let elements: Vec<String> = list.into_iter().map(str::to_owned).collect();
        let strings = StringTensor { dims: vec![elements.len()], elements };
        return Ok(vec![cx.importer.known_strings_slot(&strings)?]);
    } else {
        return Err(cx.unsupported("a sparse constant"));
    };
    Ok(vec![cx.importer.constant_slot(value.to_const())])
}

fn identity(cx: Cx) -> Result<Vec<SlotId>, Error> {
    cx.given
        .first()
        .copied()
        .flatten()
        .map(|slot| vec![slot])
        .ok_or_else(|| cx.malformed("operand 0 is missing"))
}

/// Inference passes through, and the mask is all true. In training mode, which may be chosen at run time, the mask is random.
fn dropout(cx: Cx) -> Result<Vec<NodeId>, Error> {
    let training = if cx.has(2) { cx.number(2).map(|n| n != 0) } else { Ok(false) };
    let none = |cx: &NodeCx<'_, '_>| cx.has(1) && cx.floats(1).is_ok_and(|ratio| ratio.first() == Some(&0.0));
    if training.as_ref().is_ok_and(|&t| !t) || none(cx) {
        let x = cx.x(0)?;
        let mut outputs = vec![x];
        if cx.wants(1) {
            let truth = cx.constant(Value::bools(&[], [true]));
            let dims = cx.shape_of(x).dims().to_vec();
            outputs.push(cx.expand(truth, dims)?);
        }
        return Ok(outputs);
    }
    let mut ratio = match cx.x_opt(1)? {
        Some(ratio) => ratio,
        None => cx.scalar(DType::F32, 0.5),
    };
    if training.is_err() {
        // Nothing is dropped in a run that is no training.
        let (training, zero) = (cx.x(2)?, cx.scalar(cx.shape_of(ratio).dtype(), 0.0));
        ratio = cx.select(training, ratio, zero)?;
    }
    super::random::dropout(cx, ratio)
}
