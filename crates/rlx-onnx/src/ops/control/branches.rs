//! `If`: one branch imported in place if the condition is known, otherwise both as bodies.

use super::Cx;
use crate::import::{ImportedBody, SlotId, needed_tensor};
use crate::ops::data::fresh;
use rlx_ir::op::Body;
use rlx_ir::ops::control::shapes_joined;
use rlx_ir::{Error, ErrorKind, NodeId, Op};
use std::sync::Arc;

type Slots = Result<Vec<SlotId>, Error>;

/// A condition that is known takes its branch; any other chooses when the graph runs. Where branches differ in shape, the
/// op binds a symbol for it; where they differ in rank or type, the condition must be known.
pub(super) fn if_(cx: Cx) -> Slots {
    let unknown = match cx.number(0) {
        Ok(condition) => {
            let branch = cx.attrs.graph(if condition != 0 { "then_branch" } else { "else_branch" })?;
            return cx.importer.branch(branch);
        }
        Err(e) => e,
    };
    known_instead(at_run_time(cx), unknown)
}

/// What cannot be built for a run may be built for a value that the caller can give or find out.
pub(super) fn known_instead(built: Slots, unknown: Error) -> Slots {
    let can_be_known = unknown.kind() == ErrorKind::NeedsInputValue || needed_tensor(&unknown).is_some();
    match built {
        Err(e) if e.kind() == ErrorKind::Unsupported && can_be_known => Err(unknown),
        built => built,
    }
}

/// The nodes of what a body captures.
pub(super) fn captured(cx: Cx, body: &ImportedBody, inputs: &mut Vec<NodeId>) -> Result<(), Error> {
    for &slot in &body.captures {
        inputs.push(cx.importer.materialize(slot)?);
    }
    Ok(())
}

/// Adds an op with bodies: never computed while importing.
pub(super) fn add(cx: Cx, op: Op, inputs: &[NodeId], results: usize) -> Slots {
    let node = cx.importer.push(op, inputs).map_err(|e| match e.kind() {
        ErrorKind::Shape => cx.unsupported(e.message().to_owned()),
        _ => e,
    })?;
    let mut slots = Vec::with_capacity(results);
    for i in 0..results {
        let result = cx.importer.graph.result(node, i)?;
        slots.push(cx.importer.node_slot(result));
    }
    Ok(slots)
}

fn at_run_time(cx: Cx) -> Slots {
    let mut inputs = vec![cx.x(0)?];
    let mut bodies = Vec::with_capacity(2);
    for name in ["then_branch", "else_branch"] {
        let proto = cx.attrs.graph(name)?;
        let body = cx.importer.body(proto, &[], |_, found| found)?;
        captured(cx, &body, &mut inputs)?;
        bodies.push(Arc::new(Body { graph: body.graph }));
    }
    let [then, otherwise] = &bodies[..] else { return Err(cx.malformed("a choice has two branches")) };
    let results = then.graph.outputs.len();
    let joined = shapes_joined(then, otherwise).map_err(|e| cx.unsupported(e.message().to_owned()))?;
    let count = joined.map(|_| fresh(cx));
    let op = Op::If {
        then: Arc::clone(then),
        otherwise: Arc::clone(otherwise),
        count,
        chosen: joined.unwrap_or(false),
    };
    add(cx, op, &inputs, results)
}
