//! Map: one invocation computes one element of the result (or of several results of the same dimensions).
//!
//! A body of elementwise ops alone runs over a *collapsed* space: neighbouring dimensions that every operand
//! runs through without a gap become one, so that most kernels are of rank 1 and one kernel serves tensors of
//! any rank. A body with movement runs over the dimensions of its result.

use std::fmt;

use rlx_ir::Extent;

use super::cx::{Arg, Cx};
use super::{Launch, Scheduled, StepDesc};
use crate::ir::{Inst, Value};

/// How elements are spread over invocations. It changes no bit: every element is computed alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Spread {
    /// Invocations of a workgroup.
    pub workgroup: u32,
    /// Elements of an invocation; they are a workgroup apart, so that neighbours load neighbours.
    pub each: i32,
}

/// The spreads there are; the first is taken unmeasured.
const SPREADS: [Spread; 4] = [
    Spread { workgroup: 64, each: 1 },
    Spread { workgroup: 256, each: 1 },
    Spread { workgroup: 64, each: 4 },
    Spread { workgroup: 256, each: 4 },
];

/// How many elements there must be for the spread to matter, and may be: the last workgroup's numbers, which may be
/// beyond the last element, are to be counted too.
const WORTH_SPREADING: std::ops::RangeInclusive<i64> = 1 << 14..=1 << 30;

/// The spreads worth trying for a step; those of open size have one.
pub(super) fn spreads(step: &StepDesc) -> Vec<Spread> {
    let elements = step.outputs.first().and_then(|o| o.view.elements().as_const());
    let count = if elements.is_some_and(|n| WORTH_SPREADING.contains(&n)) { SPREADS.len() } else { 1 };
    SPREADS[..count].to_vec()
}

impl Default for Spread {
    /// The one taken unmeasured.
    fn default() -> Self {
        SPREADS[0]
    }
}

impl fmt::Display for Spread {
    /// `map64x1`: invocations of a workgroup, and what each does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "map{}x{}", self.workgroup, self.each)
    }
}

/// Makes the kernel of a body without an anchor.
///
/// # Errors
/// An op or element type that has no element-by-element form.
pub fn schedule(step: &StepDesc, spread: Spread) -> Scheduled<Vec<Launch>> {
    let mut cx = Cx::new(&format!("map.{}", step.name), spread.workgroup, step);
    let space = cx.result_space()?;
    cx.flat = cx.body_is_elementwise();
    let dims = if cx.flat { collapse(&mut cx, &space) } else { cx.sizes("dim", &space) };
    let n = cx.product(&dims);
    let element = |cx: &mut Cx<'_>, i: Value| {
        let inside = cx.b.lt(i, n);
        cx.if_then(inside, |cx| {
            let index = cx.unflatten(i, &dims);
            cx.store_results(&index)
        })
    };
    let workgroup = spread.workgroup as i32;
    if spread.each == 1 {
        let i = cx.b.global_id();
        element(&mut cx, i)?;
    } else {
        let (group, lane) = (cx.b.inst(Inst::GroupId), cx.b.inst(Inst::LocalId));
        let (size, all) = (cx.b.int(workgroup), cx.b.int(spread.each));
        let before = cx.b.mul(group, all);
        cx.for_each(all, |cx, k| {
            let block = cx.b.add(before, k);
            let start = cx.b.mul(block, size);
            let i = cx.b.add(start, lane);
            element(cx, i)
        })?;
    }
    let elements = space.iter().fold(Extent::Const(1), |n, &d| n * d);
    Ok(vec![cx.finish(elements.ceil_div(i64::from(workgroup * spread.each)))])
}

/// Merges what can be merged of the space and of every operand's strides, and reaches the operands by them.
fn collapse(cx: &mut Cx<'_>, space: &[Extent]) -> Vec<Value> {
    let args: Vec<Arg> = (0..cx.step.inputs.len())
        .map(Arg::Input)
        .chain((0..cx.step.outputs.len()).map(Arg::Output))
        .collect();
    let strides: Vec<Vec<Extent>> = args.iter().map(|&arg| broadcast_strides(cx, arg, space)).collect();
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
fn broadcast_strides(cx: &Cx<'_>, arg: Arg, space: &[Extent]) -> Vec<Extent> {
    let view = &cx.operand(arg).view;
    let skip = space.len() - view.dims.len();
    let stride = |(i, &to): (usize, &Extent)| match i.checked_sub(skip) {
        Some(j) => view.strides[j] * view.dims[j].broadcast_factor(to),
        None => Extent::Const(0),
    };
    space.iter().enumerate().map(stride).collect()
}
