//! Map: one invocation computes one element of the result (or of several results of the same dimensions).
//!
//! A body of elementwise ops alone runs over a *collapsed* space: neighbouring dimensions that every operand
//! runs through without a gap become one, so that most kernels are of rank 1 and one kernel serves tensors of
//! any rank. A body with movement runs over the dimensions of its result.

use rlx_ir::{Dim, Extent};

use super::cx::{Arg, Cx};
use super::{Launch, Scheduled, StepDesc};
use crate::ir::Value;

/// Invocations of a workgroup.
const WORKGROUP: u32 = 64;

/// Makes the kernel of a body without an anchor.
///
/// # Errors
/// An op or element type that has no element-by-element form.
pub fn schedule(step: &StepDesc) -> Scheduled<Vec<Launch>> {
    let mut cx = Cx::new(&format!("map.{}", step.name), WORKGROUP, step);
    let space = cx.result_space()?;
    cx.flat = cx.body_is_elementwise();
    let dims = if cx.flat { collapse(&mut cx, &space) } else { cx.sizes("dim", &space) };
    let n = dims.iter().fold(cx.b.int(1), |n, &d| cx.b.mul(n, d));
    let i = cx.b.global_id();
    let inside = cx.b.lt(i, n);
    cx.if_then(inside, |cx| {
        let index = cx.unflatten(i, &dims);
        cx.store_results(&index)
    })?;
    let elements = space.iter().fold(Extent::Const(1), |n, &d| n * d);
    Ok(vec![cx.finish(elements.ceil_div(i64::from(WORKGROUP)))])
}

/// Merges what can be merged of the space and of every operand's strides, and reaches the operands by them.
fn collapse(cx: &mut Cx<'_>, space: &[Extent]) -> Vec<Value> {
    let args: Vec<Arg> = (0..cx.step.inputs.len())
        .map(Arg::Input)
        .chain((0..cx.step.outputs.len()).map(Arg::Output))
        .collect();
    let strides: Vec<Vec<Extent>> = args.iter().map(|&arg| broadcast_strides(cx, arg, space.len())).collect();
    let (mut dims, mut merged): (Vec<Extent>, Vec<Vec<Extent>>) = (Vec::new(), vec![Vec::new(); args.len()]);
    for (axis, &d) in space.iter().enumerate() {
        if d == Extent::Const(1) {
            continue;
        }
        let joins = !dims.is_empty()
            && (0..args.len()).all(|k| merged[k].last().is_some_and(|&outer| outer == strides[k][axis] * d));
        for (k, own) in merged.iter_mut().enumerate() {
            if joins {
                own.pop();
            }
            own.push(strides[k][axis]);
        }
        if let (true, Some(last)) = (joins, dims.last_mut()) {
            *last = *last * d;
        } else {
            dims.push(d);
        }
    }
    for (&arg, strides) in args.iter().zip(&merged) {
        cx.place_by(arg, strides);
    }
    cx.sizes("dim", &dims)
}

/// The strides of an operand over the result's dimensions: 0 where it is repeated.
fn broadcast_strides(cx: &Cx<'_>, arg: Arg, rank: usize) -> Vec<Extent> {
    let view = &cx.operand(arg).view;
    let skip = rank - view.dims.len();
    (0..rank)
        .map(|i| match i.checked_sub(skip) {
            Some(j) if Dim::from(view.dims[j]) != Dim::Static(1) => view.strides[j],
            _ => Extent::Const(0),
        })
        .collect()
}
