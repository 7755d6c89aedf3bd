//! Operands that a gather picks from a table, as what a program reads in the table itself: which rows are in which page.
//!
//! ```text
//! Gather([40, 16, 8, 64], [2, 5]) ──Reshape──▶ [2, 80, 8, 64] ──Transpose──▶ [2, 8, 80, 64]
//!     table, list; 16·8·64 elements of a page; the operand's strides in [2·5, 16, 8, 64]: 40960, 64, 512, 1
//! ```
//!
//! What is picked is in the order of the list, so an element's number there says its page in the list and its place in it.

use rlx_ir::lir::View;
use rlx_ir::{DType, Extent, NodeId, Op};

use super::index::place_in;
use super::{Arg, Scheduled, StepDesc, reject};
use crate::build::Builder;
use crate::ir::{Access, Kernel};

/// An operand of a step that a gather along the first axis picks, where table and list are operands of the step as they are.
#[derive(Debug, Clone)]
pub struct Gathered {
    /// The table.
    pub table: Arg,
    /// The list.
    pub list: Arg,
    /// How what is picked would be read, if it were made.
    pub view: View,
    /// Elements of what one number of the list picks.
    pub slice: i64,
    /// How many the table has.
    pub slices: Extent,
}

impl Gathered {
    /// How a node of the step's body is gathered; none where it is an operand of the step.
    ///
    /// # Errors
    /// What is between the operands and the node, where that is something else.
    pub fn of(step: &StepDesc, id: NodeId) -> Scheduled<Option<Gathered>> {
        let graph = &step.graph;
        let input = |id: NodeId| graph.inputs().position(|n| n.id == id);
        if input(id).is_some() {
            return Ok(None);
        }
        let mut gather = graph.node(id);
        while matches!(gather.op, Op::Reshape { .. } | Op::Transpose { .. }) {
            gather = graph.node(gather.inputs[0]);
        }
        let (Op::Gather { axis: 0 }, &[table, list]) = (&gather.op, &gather.inputs[..]) else {
            return reject(format!("{} before what reads its operands in tables", gather.op.kind()));
        };
        let (Some(of_table), Some(of_list)) = (input(table), input(list)) else {
            return reject("a table or a list that the region computes");
        };
        let dense = |i: usize| step.inputs[i].view.is_dense();
        if !(dense(of_table) && dense(of_list)) {
            return reject("a table or a list that is not dense");
        }
        let dtype = graph.shape(list).dtype();
        if !matches!(dtype, DType::I32 | DType::I64) {
            return reject(format!("a list of {dtype}"));
        }
        let Some(view) = rlx_opt::lower::shown(graph, gather.id, id) else {
            return reject("rows that no view shows");
        };
        let dims = graph.shape(table).dims();
        let inner = dims[1..].iter().map(|d| d.extent()).fold(Extent::Const(1), |n, d| n * d);
        let Some(slice) = inner.as_const().filter(|&n| n > 0) else { return reject("pages of an open size") };
        let (table, list) = (Arg::Input(of_table), Arg::Input(of_list));
        Ok(Some(Gathered { table, list, view, slice, slices: dims[0].extent() }))
    }
}

/// Invocations of a workgroup of [`list_check`].
pub const LIST_WORKGROUP: u32 = 64;

/// A kernel that reports what numbers of a list are out of a table's range, as a gather does, and makes nothing: what else reads the table need not. Its uniforms are how
/// many numbers there are, how many the table has, and where the list begins.
pub fn list_check(dtype: DType) -> Kernel {
    let mut b = Builder::new(format!("check.{dtype}"), LIST_WORKGROUP);
    let list = b.buffer("list", dtype, Access::Read);
    let [count, slices, base] = ["numbers", "slices", "base"].map(|name| b.uniform(name, 0, i32::MAX));
    let i = b.global_id();
    let inside = b.lt(i, count);
    b.if_then(inside, |b| {
        let at = b.add(base, i);
        let number = b.load(list, at);
        place_in(b, number, (slices, None), 0);
    });
    b.finish()
}
