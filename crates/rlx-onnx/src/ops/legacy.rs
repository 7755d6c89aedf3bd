//! What operator sets 1 to 6 have otherwise than all later ones, where it is not the business of one op.
//!
//! Before opset 7 operands were broadcast by an attribute: `broadcast` = 1, and `axis`, the dimension of the first operand where those of
//! the second begin.

use crate::import::NodeCx;
use rlx_ir::{Dim, Error, ErrorKind};

/// From this operator set on operands are broadcast by NumPy's rule.
pub(crate) const NUMPY_BROADCASTS: i64 = 7;

/// Ops whose older forms are others, with the first operator set that is built.
const OTHERS: &[(&str, i64)] = &[("Tile", 6), ("Upsample", 7), ("GRU", 3)];

/// Puts dimensions of 1 behind the second operand's, so that NumPy's rule does what the node asks for.
pub(crate) fn align(cx: &mut NodeCx<'_, '_>) -> Result<(), Error> {
    let op = cx.proto.op_type();
    if let Some((_, since)) = OTHERS.iter().find(|&&(name, since)| name == op && cx.opset < since) {
        return Err(cx
            .unsupported(format!("{op} before opset {since}"))
            .with_hint("convert the model to opset 7 or newer"));
    }
    let axis = match op {
        // A slope for each channel.
        "PRelu" => Some(1).filter(|_| cx.rank(1).is_ok_and(|rank| rank == 1)),
        _ if cx.attrs.int_opt("broadcast")?.unwrap_or(0) == 0 => None,
        _ => cx.attrs.int_opt("axis")?,
    };
    let (Some(axis), true) = (axis, cx.has(1)) else { return Ok(()) };
    let (whole, part) = (cx.shape(0)?, cx.shape(1)?);
    if part.elements() == rlx_ir::Extent::Const(1) {
        return Ok(());
    }
    let axis = whole.axis(axis)?;
    let behind = whole.rank().checked_sub(axis + part.rank());
    let behind = behind
        .ok_or_else(|| Error::new(ErrorKind::Malformed, format!("{part} at axis {axis} of {whole}")))?;
    let dims = part.dims().iter().copied().chain(std::iter::repeat_n(Dim::Static(1), behind)).collect();
    let x = cx.x(1)?;
    let x = cx.reshape(x, dims)?;
    cx.inputs[1] = Some(cx.importer.node_slot(x));
    Ok(())
}
