//! Map: one invocation computes one element of the result (or of several results of the same dimensions).
//!
//! A body of elementwise ops alone runs over a space with fewer dimensions (`collapsed.rs`). A body with movement runs over the dimensions of its result.
//!
//! Such a kernel is as fast as memory is read and written, and as indices are divided by dimensions, so an invocation may have several elements
//! ([`Each`]). Where they are neighbours, their place is found once (`neighbours.rs`).

use std::fmt;

use rlx_ir::Extent;

use super::collapsed::Collapsed;
use super::cx::Cx;
use super::{Launch, Scheduled, StepDesc, neighbours};
use crate::ir::{Inst, Value};

/// How elements are spread over invocations. It changes no bit: every element is computed alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Spread {
    /// Invocations of a workgroup.
    pub workgroup: u32,
    /// Elements of an invocation.
    pub each: Each,
}

/// Which elements an invocation has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Each {
    /// So many that are a workgroup apart, so that neighbours load neighbours.
    Apart(i32),
    /// So many neighbours, one of [`WIDTHS`](crate::ir::WIDTHS), that are accessed together.
    Together(usize),
    /// Up to so many neighbours, one after the other.
    InTurn(i32),
}

/// The spreads there are of single elements; the first is taken unmeasured.
const SPREADS: [Spread; 4] = [
    Spread { workgroup: 64, each: Each::Apart(1) },
    Spread { workgroup: 256, each: Each::Apart(1) },
    Spread { workgroup: 64, each: Each::Apart(4) },
    Spread { workgroup: 256, each: Each::Apart(4) },
];

/// Bytes that a GPU accesses together for an invocation.
const WIDE_BYTES: usize = 16;

/// Invocations of a workgroup that access neighbours together.
const WIDE_WORKGROUP: u32 = 256;

/// How many elements there must be for the spread to matter, and may be: the last workgroup's numbers, which may be
/// beyond the last element, are to be counted too.
const WORTH_SPREADING: std::ops::RangeInclusive<i64> = 1 << 14..=1 << 30;

/// The spreads worth trying for a step; those of open size have one of single elements.
pub(super) fn spreads(step: &StepDesc, is_processor: bool) -> Vec<Spread> {
    let elements = step.outputs.first().and_then(|o| o.view.elements().as_const());
    let worth = elements.map(|n| WORTH_SPREADING.contains(&n));
    let count = if worth == Some(true) { SPREADS.len() } else { 1 };
    let collapsed = Collapsed::of(step);
    let neighbours = if is_processor {
        let each = neighbours::of_processors(step, collapsed.as_ref());
        each.into_iter().map(|each| Spread { workgroup: SPREADS[0].workgroup, each }).collect()
    } else {
        let width = match &collapsed {
            Some(space) => space.together(step, WIDE_BYTES),
            None => neighbours::of_moved(step, WIDE_BYTES),
        };
        let wide = width.filter(|_| worth != Some(false));
        Vec::from_iter(wide.map(|width| Spread { workgroup: WIDE_WORKGROUP, each: Each::Together(width) }))
    };
    SPREADS[..count].iter().copied().chain(neighbours).collect()
}

impl Default for Spread {
    /// The one taken unmeasured.
    fn default() -> Self {
        SPREADS[0]
    }
}

impl fmt::Display for Spread {
    /// `map64x1`: invocations of a workgroup, and what each does; `map256x1x8`, `map64s8`: eight neighbours of each, accessed together, or in series.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "map{}", self.workgroup)?;
        match self.each {
            Each::Apart(count) => write!(f, "x{count}"),
            Each::Together(width) => write!(f, "x1x{width}"),
            Each::InTurn(most) => write!(f, "s{most}"),
        }
    }
}

/// Makes the kernel of a body without an anchor.
///
/// # Errors
/// An op or element type that has no element-by-element form.
pub fn schedule(step: &StepDesc, spread: Spread) -> Scheduled<Vec<Launch>> {
    let mut cx = Cx::new(&format!("map.{}", step.name), spread.workgroup, step);
    let space = cx.result_space()?;
    let collapsed = Collapsed::of(step);
    cx.flat = collapsed.is_some();
    let dims = collapsed.as_ref().map_or(&space[..], |collapsed| &collapsed.dims);
    if let Some(collapsed) = &collapsed {
        collapsed.place(&mut cx);
    }
    let elements = match spread.each {
        Each::Apart(each) => apart(&mut cx, dims, each)?,
        Each::Together(width) => neighbours::together(&mut cx, dims, width)?,
        Each::InTurn(most) => neighbours::in_turn(&mut cx, dims, most)?,
    };
    Ok(vec![cx.finish(elements.ceil_div(i64::from(spread.workgroup)))])
}

/// Each invocation has so many elements that are a workgroup apart. Gives how many invocations there are.
fn apart(cx: &mut Cx<'_>, dims: &[Extent], each: i32) -> Scheduled<Extent> {
    let sizes = cx.sizes("dim", dims);
    let n = cx.product(&sizes);
    let element = |cx: &mut Cx<'_>, i: Value| {
        let inside = cx.b.lt(i, n);
        cx.if_then(inside, |cx| {
            let index = cx.unflatten(i, &sizes);
            cx.store_results(&index)
        })
    };
    if each == 1 {
        let i = cx.b.global_id();
        element(cx, i)?;
    } else {
        let workgroup = cx.b.kernel().workgroup as i32;
        let (group, lane) = (cx.b.inst(Inst::GroupId), cx.b.inst(Inst::LocalId));
        let (size, all) = (cx.b.int(workgroup), cx.b.int(each));
        let before = cx.b.mul(group, all);
        cx.for_each(all, |cx, k| {
            let block = cx.b.add(before, k);
            let start = cx.b.mul(block, size);
            let i = cx.b.add(start, lane);
            element(cx, i)
        })?;
    }
    let elements = dims.iter().fold(Extent::Const(1), |n, &d| n * d);
    Ok(elements.ceil_div(i64::from(each)))
}
