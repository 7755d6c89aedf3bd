//! Ops of contributed domains that the program registered: `com.example.Scale` is the custom op of that name.

use crate::import::{NodeCx, op_label};
use rlx_ir::{Error, NodeId, Op};

/// The node as a custom op; all its operands must be there.
pub(crate) fn import(cx: &mut NodeCx<'_, '_>) -> Result<Vec<NodeId>, Error> {
    let (inputs, attrs) = (cx.all()?, cx.attrs.custom()?);
    let op = Op::Custom { name: op_label(cx.proto), num_inputs: inputs.len(), attrs };
    let count = cx.proto.output.len();
    cx.add_many(op, &inputs, count)
}
