//! Faults of building, kept in the graph.
//!
//! The short forms of [`crate::GraphExt`] never fail: when a shape cannot be inferred, the node they give
//! back is a *fault node*, a custom op named [`NAME`] that holds the message. Whatever is built on a fault
//! is that same fault, so that [`crate::verify`] reports it once, as what went wrong first.

use std::collections::BTreeMap;

use crate::dtype::DType;
use crate::error::{Error, ErrorKind};
use crate::ops::{CustomAttr, CustomAttrs, Op};
use crate::shape::Shape;

/// The name of the custom op that stands for a fault.
pub const NAME: &str = "rlx.fault";

/// The node that keeps `error`: its op and its shape (which means nothing).
pub(crate) fn node(error: &Error) -> (Op, Shape) {
    let text = |s: &str| CustomAttr::Text(s.to_string());
    let mut attrs = BTreeMap::from([
        ("kind".to_string(), text(error.kind().name())),
        ("message".to_string(), text(error.message())),
    ]);
    let parts = [("at", error.node()), ("origin", error.origin()), ("hint", error.hint())];
    for (key, value) in parts {
        attrs.extend(value.map(|v| (key.to_string(), text(v))));
    }
    let op = Op::Custom { name: NAME.to_string(), num_inputs: 0, attrs: CustomAttrs(attrs) };
    (op, Shape::scalar(DType::F32))
}

/// The error that `op` keeps, if it is a fault.
pub(crate) fn error(op: &Op) -> Option<Error> {
    let Op::Custom { name, attrs, .. } = op else { return None };
    if name != NAME {
        return None;
    }
    let text = |key: &str| match attrs.0.get(key) {
        Some(CustomAttr::Text(s)) => Some(s.as_str()),
        _ => None,
    };
    let kind = text("kind").and_then(ErrorKind::from_name).unwrap_or(ErrorKind::InvalidGraph);
    let mut error = Error::new(kind, text("message").unwrap_or("a fault without a message"));
    if let Some(at) = text("at") {
        error = error.with_node(at);
    }
    if let Some(origin) = text("origin") {
        error = error.with_origin(origin);
    }
    Some(match text("hint") {
        Some(hint) => error.with_hint(hint),
        None => error,
    })
}
