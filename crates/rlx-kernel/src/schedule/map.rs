//! Map: one invocation computes one element of the result (or of several results of the same dimensions).
//!
//! A body of elementwise ops alone runs over a *collapsed* space: neighbouring dimensions that every operand
//! runs through without a gap become one, so that most kernels are of rank 1 and one kernel serves tensors of
//! any rank. A body with movement runs over the dimensions of its result.
//!
//! Such a kernel is as fast as memory is read and written, so an invocation of a collapsed space may have several neighbours: their place is found once,
//! and each operand is read, and each result written, by one access ([`Spread::width`]).

use std::fmt;

use rlx_ir::{Extent, Node, Op};

use super::cx::{Arg, Cx};
use super::{Launch, Scheduled, StepDesc};
use crate::ir::{Inst, Value, WIDTHS, WideAccess};

/// How elements are spread over invocations. It changes no bit: every element is computed alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Spread {
    /// Invocations of a workgroup.
    pub workgroup: u32,
    /// Elements of an invocation; they are a workgroup apart, so that neighbours load neighbours.
    pub each: i32,
    /// Neighbours that are accessed together, each of them such an element: 1, or one of [`WIDTHS`].
    pub width: usize,
}

/// The spreads there are of single elements; the first is taken unmeasured.
const SPREADS: [Spread; 4] = [
    Spread { workgroup: 64, each: 1, width: 1 },
    Spread { workgroup: 256, each: 1, width: 1 },
    Spread { workgroup: 64, each: 4, width: 1 },
    Spread { workgroup: 256, each: 4, width: 1 },
];

/// Invocations of a workgroup that access neighbours together.
const WIDE_WORKGROUP: u32 = 256;

/// How many elements there must be for the spread to matter, and may be: the last workgroup's numbers, which may be
/// beyond the last element, are to be counted too.
const WORTH_SPREADING: std::ops::RangeInclusive<i64> = 1 << 14..=1 << 30;

/// The spreads worth trying for a step; those of open size have one of single elements.
pub(super) fn spreads(step: &StepDesc) -> Vec<Spread> {
    let elements = step.outputs.first().and_then(|o| o.view.elements().as_const());
    let worth = elements.map(|n| WORTH_SPREADING.contains(&n));
    let count = if worth == Some(true) { SPREADS.len() } else { 1 };
    let wide = Collapsed::of(step).filter(|_| worth != Some(false)).map(|space| space.width(step));
    let wide = wide.filter(|&width| width > 1);
    let wide = wide.map(|width| Spread { workgroup: WIDE_WORKGROUP, each: 1, width });
    SPREADS[..count].iter().copied().chain(wide).collect()
}

impl Default for Spread {
    /// The one taken unmeasured.
    fn default() -> Self {
        SPREADS[0]
    }
}

impl fmt::Display for Spread {
    /// `map64x1`: invocations of a workgroup, and what each does; `map256x1x8`: eight neighbours of each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "map{}x{}", self.workgroup, self.each)?;
        if self.width > 1 { write!(f, "x{}", self.width) } else { Ok(()) }
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
    if let Some(collapsed) = collapsed.as_ref().filter(|_| spread.width > 1) {
        return wide(cx, collapsed, spread).map(|launch| vec![launch]);
    }
    let dims = match &collapsed {
        Some(collapsed) => collapsed.place(&mut cx),
        None => cx.sizes("dim", &space),
    };
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

/// Each invocation has neighbours along the last dimension of a collapsed space, of which all or none are there.
fn wide(mut cx: Cx<'_>, space: &Collapsed, spread: Spread) -> Scheduled<Launch> {
    let width = spread.width;
    space.place(&mut cx);
    // Whole accesses are counted: their number along the last dimension is that of its elements, divided.
    let mut counts = space.dims.clone();
    if let Some(last) = counts.last_mut() {
        *last = last.floor_div(width as i64);
    }
    let sizes = cx.sizes("wide", &counts);
    let n = cx.product(&sizes);
    let i = cx.b.global_id();
    let inside = cx.b.lt(i, n);
    cx.if_then(inside, |cx| {
        let mut first = cx.unflatten(i, &sizes);
        if let Some(last) = first.last_mut() {
            let times = cx.b.int(width as i32);
            *last = cx.b.mul(*last, times);
        }
        let places: Vec<Vec<Value>> = (0..width).map(|k| neighbour(cx, &first, k)).collect();
        read_together(cx, space, &places);
        store_together(cx, space, &places)
    })?;
    let accesses = counts.iter().fold(Extent::Const(1), |n, &d| n * d);
    Ok(cx.finish(accesses.ceil_div(i64::from(spread.workgroup))))
}

/// The index of the element that is `away` behind another one.
fn neighbour(cx: &mut Cx<'_>, first: &[Value], away: usize) -> Vec<Value> {
    let mut index = first.to_vec();
    if let Some(last) = index.last_mut() {
        let away = cx.b.int(away as i32);
        *last = cx.b.add(*last, away);
    }
    index
}

/// Reads every input at these places, which are neighbours: by one access, once where all of them are one element, or one by one.
fn read_together(cx: &mut Cx<'_>, space: &Collapsed, places: &[Vec<Value>]) {
    let inputs: Vec<_> = cx.graph().inputs().map(|node| node.id).collect();
    for (number, id) in inputs.into_iter().enumerate() {
        let arg = Arg::Input(number);
        let values = match space.along(cx.step, arg, places.len()) {
            Along::Together => {
                let place = cx.place(arg);
                let at = cx.address(&place, &places[0]);
                cx.b.load_wide(place.buffer, at, places.len())
            }
            Along::Same => vec![cx.load(arg, &places[0]); places.len()],
            Along::Apart => places.iter().map(|index| cx.load(arg, index)).collect(),
        };
        for (index, value) in places.iter().zip(values) {
            cx.bind(id, index, value);
        }
    }
}

/// Computes every result at these places, and writes them as [`read_together`] reads.
fn store_together(cx: &mut Cx<'_>, space: &Collapsed, places: &[Vec<Value>]) -> Scheduled<()> {
    let outputs = cx.graph().outputs.clone();
    let of = |cx: &mut Cx<'_>, id| places.iter().map(|index| cx.element(id, index)).collect();
    let values: Vec<Vec<Value>> = outputs.iter().map(|&id| of(cx, id)).collect::<Scheduled<_>>()?;
    for (k, values) in values.into_iter().enumerate() {
        let arg = Arg::Output(k);
        if space.along(cx.step, arg, places.len()) == Along::Together {
            let place = cx.place(arg);
            let at = cx.address(&place, &places[0]);
            cx.b.store_wide(place.buffer, at, values);
        } else {
            places.iter().zip(values).for_each(|(index, value)| cx.store(arg, index, value));
        }
    }
    Ok(())
}

/// The space of a body of elementwise ops alone: what can be merged of its dimensions and of every operand's strides is merged.
struct Collapsed {
    dims: Vec<Extent>,
    /// Of every operand, inputs first.
    strides: Vec<(Arg, Vec<Extent>)>,
}

/// What an operand has along the last dimension of a collapsed space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Along {
    /// Neighbours that are accessed together.
    Together,
    /// One element.
    Same,
    Apart,
}

impl Collapsed {
    /// The space of a step; none where its body moves elements, or its results have other dimensions.
    fn of(step: &StepDesc) -> Option<Collapsed> {
        let is_element = |n: &Node| n.op.is_elementwise() || matches!(n.op, Op::Input { .. });
        let space = &step.outputs.first()?.view.dims;
        if !step.graph.nodes().iter().all(is_element) || step.outputs.iter().any(|o| o.view.dims != *space) {
            return None;
        }
        let inputs = (0..step.inputs.len()).map(Arg::Input);
        let args: Vec<Arg> = inputs.chain((0..step.outputs.len()).map(Arg::Output)).collect();
        let strides: Vec<Vec<Extent>> = args.iter().map(|&arg| broadcast_strides(step, arg, space)).collect();
        let (mut dims, mut merged): (Vec<Extent>, Vec<Vec<Extent>>) =
            (Vec::new(), vec![Vec::new(); args.len()]);
        for (axis, &d) in space.iter().enumerate() {
            if d == Extent::Const(1) {
                continue;
            }
            let joins = !dims.is_empty()
                && (0..args.len())
                    .all(|k| merged[k].last().is_some_and(|&outer| outer == strides[k][axis] * d));
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
        Some(Collapsed { dims, strides: args.into_iter().zip(merged).collect() })
    }

    /// Reaches the operands through the space, and gives its sizes.
    fn place(&self, cx: &mut Cx<'_>) -> Vec<Value> {
        for (arg, strides) in &self.strides {
            cx.place_by(*arg, strides);
        }
        cx.sizes("dim", &self.dims)
    }

    /// How many neighbours along the last dimension an invocation may have, so that results are written together, and so are inputs read of which it has more
    /// than one element, if a language can: as many as are 16 bytes of the shortest elements. 1 where it may have no neighbours.
    fn width(&self, step: &StepDesc) -> usize {
        let Some(&last) = self.dims.last() else { return 1 };
        let fits = |&width: &usize| {
            let of = |(arg, strides): &(Arg, Vec<Extent>)| match self.along(step, *arg, width) {
                Along::Together => true,
                Along::Same => matches!(arg, Arg::Input(_)),
                Along::Apart => {
                    let odd = !WideAccess::is_known(step.stored(step.operand(*arg).dtype));
                    odd && matches!(arg, Arg::Input(_)) && strides.last() == Some(&Extent::Const(1))
                }
            };
            is_whole(last, width) && self.strides.iter().all(of)
        };
        let halves = self.strides.iter().any(|(arg, _)| step.operand(*arg).dtype.bits() == 16);
        let most = if halves { WIDTHS.len() } else { 1 };
        WIDTHS[..most].iter().rev().copied().find(fits).unwrap_or(1)
    }

    /// What so many neighbours along the last dimension are of an operand.
    fn along(&self, step: &StepDesc, arg: Arg, width: usize) -> Along {
        let found = self.strides.iter().find(|(of, _)| *of == arg);
        let Some((&last, others)) = found.and_then(|(_, strides)| strides.split_last()) else {
            return Along::Same;
        };
        let operand = step.operand(arg);
        let begins = std::iter::once(&operand.view.offset).chain(others).all(|&at| is_whole(at, width));
        match last {
            Extent::Const(0) => Along::Same,
            Extent::Const(1) if begins && WideAccess::is_known(step.stored(operand.dtype)) => Along::Together,
            _ => Along::Apart,
        }
    }
}

/// Whether a number is a multiple of another one, whatever is open of it.
fn is_whole(number: Extent, of: usize) -> bool {
    number.modulo(of as i64) == Extent::Const(0)
}

/// The strides of an operand over the result's dimensions: 0 where it is repeated.
fn broadcast_strides(step: &StepDesc, arg: Arg, space: &[Extent]) -> Vec<Extent> {
    let view = &step.operand(arg).view;
    let skip = space.len() - view.dims.len();
    let stride = |(i, &to): (usize, &Extent)| match i.checked_sub(skip) {
        Some(j) => view.strides[j] * view.dims[j].broadcast_factor(to),
        None => Extent::Const(0),
    };
    space.iter().enumerate().map(stride).collect()
}
