//! Booleans, comparisons, `Where`, and casts.

use super::{Emit, Entry, any, moves, nodes};
use crate::import::NodeCx;
use crate::proto::tensor_proto::DataType;
use crate::tensor;
use rlx_ir::op::{Activation, BinaryOp, CmpOp, Predicate};
use rlx_ir::{DType, Error, NodeId, Op, Value};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(super) const OPS: &[Entry] = &[
    Entry::op("And", Emit::Binary(BinaryOp::And)),
    Entry::op("Or", Emit::Binary(BinaryOp::Or)),
    Entry::op("Xor", Emit::Binary(BinaryOp::Xor)),
    Entry::op("Not", Emit::Activation(Activation::Not)),
    any("Equal", super::strings::equal),
    Entry::op("Less", Emit::Compare(CmpOp::Lt)),
    Entry::op("LessOrEqual", Emit::Compare(CmpOp::Le)),
    Entry::op("Greater", Emit::Compare(CmpOp::Gt)),
    Entry::op("GreaterOrEqual", Emit::Compare(CmpOp::Ge)),
    moves("Where", select),
    nodes("IsNaN", is_nan),
    nodes("IsInf", is_inf),
    nodes("BitCast", bit_cast),
    any("Cast", super::strings::cast),
    nodes("CastLike", cast_like),
];

fn select(cx: Cx) -> Nodes {
    let (c, a, b) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    Ok(vec![cx.select(c, a, b)?])
}

fn is_nan(cx: Cx) -> Nodes {
    let x = cx.x(0)?;
    Ok(vec![cx.add(Op::Predicate(Predicate::IsNan), &[x])?])
}

fn is_inf(cx: Cx) -> Nodes {
    let x = cx.x(0)?;
    let predicate = match (cx.attrs.flag("detect_positive", true)?, cx.attrs.flag("detect_negative", true)?) {
        (true, true) => Predicate::IsInf,
        (true, false) => Predicate::IsPosInf,
        (false, true) => Predicate::IsNegInf,
        (false, false) => {
            let no = cx.constant(Value::bools(&[], [false]));
            return Ok(vec![cx.expand(no, cx.shape_of(x).dims().to_vec())?]);
        }
    };
    Ok(vec![cx.add(Op::Predicate(predicate), &[x])?])
}

/// The type that a cast names: by ONNX's code, in words before opset 6.
pub(super) fn cast_to(cx: &NodeCx<'_, '_>) -> Result<i32, Error> {
    if cx.opset < 6 {
        let name = cx.attrs.text("to", "")?;
        let to = DataType::from_str_name(name).ok_or_else(|| cx.malformed(format!("to = \"{name}\"")))?;
        return Ok(to as i32);
    }
    let code = cx.attrs.int_opt("to")?;
    let code = cx.attrs.required("to", code)?;
    Ok(i32::try_from(code).unwrap_or(0))
}

/// A cast between numbers.
pub(super) fn cast(cx: Cx, to: i32) -> Nodes {
    let to = tensor::dtype(to)?;
    convert(cx, to)
}

fn bit_cast(cx: Cx) -> Nodes {
    let code = cx.attrs.int_opt("to")?;
    let code = cx.attrs.required("to", code)?;
    let to = tensor::dtype(i32::try_from(code).unwrap_or(0))?;
    let x = cx.x(0)?;
    Ok(vec![if cx.dtype(0)? == to { x } else { cx.add(Op::BitCast { to }, &[x])? }])
}

fn cast_like(cx: Cx) -> Nodes {
    let to = cx.dtype(1)?;
    convert(cx, to)
}

/// Small floats saturate unless `saturate` is 0; floats wrap around into packed integers, as the test cases have it.
fn convert(cx: Cx, to: DType) -> Nodes {
    let mut x = cx.x(0)?;
    let from = cx.shape_of(x).dtype();
    if from == to {
        return Ok(vec![x]);
    }
    if to.is_int() && to.bits() < 8 && from.is_float() {
        x = cx.cast(x, DType::I32)?;
    }
    if to == DType::F8E8M0 {
        return Ok(vec![power_of_two(cx, x)?]);
    }
    if let Some(max) = max_of_small_float(to)
        && cx.attrs.flag("saturate", true)?
    {
        if from.bits() < 16 || !from.is_float() {
            x = cx.cast(x, DType::F32)?;
        }
        x = cx.with_scalar(BinaryOp::Min, x, max)?;
        x = cx.with_scalar(BinaryOp::Max, x, -max)?;
    }
    Ok(vec![cx.add(Op::Cast { to }, &[x])?])
}

/// The magnitude as a power of two, which `round_mode` chooses: the next one up, down, or the nearest.
fn power_of_two(cx: Cx, x: NodeId) -> Result<NodeId, Error> {
    const LARGEST: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;
    let x = cx.cast(x, DType::F32)?;
    let mut x = cx.activation(Activation::Abs, x)?;
    let saturate = cx.attrs.flag("saturate", true)?;
    if saturate {
        // Infinity is NaN all the same.
        let infinite = cx.add(Op::Predicate(Predicate::IsInf), &[x])?;
        let largest = cx.with_scalar(BinaryOp::Min, x, LARGEST)?;
        x = cx.select(infinite, x, largest)?;
    }
    let nearest = cx.cast(x, DType::F8E8M0)?;
    let (test, by) = match cx.attrs.text("round_mode", "up")? {
        "nearest" => return Ok(nearest),
        "up" => (CmpOp::Lt, 2.0),
        "down" => (CmpOp::Gt, 0.5),
        other => return Err(cx.bad_attr("round_mode", other)),
    };
    let back = cx.cast(nearest, DType::F32)?;
    let next = cx.with_scalar(BinaryOp::Mul, back, by)?;
    let wrong = cx.compare(test, back, x)?;
    let y = cx.select(wrong, next, back)?;
    cx.cast(y, DType::F8E8M0)
}

/// The largest finite number of a float type of 8 bits or fewer.
pub(super) fn max_of_small_float(dtype: DType) -> Option<f64> {
    match dtype {
        DType::F8E4M3FN => Some(448.0),
        DType::F8E4M3FNUZ => Some(240.0),
        DType::F8E5M2 | DType::F8E5M2FNUZ => Some(57344.0),
        DType::F4E2M1 => Some(6.0),
        _ => None,
    }
}
