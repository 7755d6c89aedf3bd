//! Sequences and optionals: lists of values that are known while importing, and leave no nodes.

use super::{Entry, any};
use crate::import::{NodeCx, SlotId};
use rlx_ir::{ConstData, Dim, Error, Extent, Op, Value};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Slots = Result<Vec<SlotId>, Error>;

pub(super) const OPS: &[Entry] = &[
    any("ConcatFromSequence", concat_from_sequence),
    any("Optional", optional),
    any("OptionalGetElement", get_element),
    any("OptionalHasElement", has_element),
    any("SequenceAt", at),
    any("SequenceConstruct", construct),
    any("SequenceEmpty", construct),
    any("SequenceErase", erase),
    any("SequenceInsert", insert),
    any("SequenceLength", length),
    any("SequenceMap", map),
    any("SplitToSequence", split_to_sequence),
];

fn sequence(cx: Cx, elements: Vec<SlotId>) -> Slots {
    cx.importer.visit_many(elements.len())?;
    Ok(vec![cx.importer.sequence_slot(elements)])
}

fn construct(cx: Cx) -> Slots {
    let elements = (0..cx.operands()).map(|i| cx.slot(i)).collect::<Result<_, _>>()?;
    sequence(cx, elements)
}

/// Operand `i` as a position among `count` elements, counted from either end.
fn position(cx: &NodeCx<'_, '_>, i: usize, count: usize) -> Result<usize, Error> {
    let given = cx.number(i)?;
    let from_end = if given < 0 { given.checked_add(count as i64) } else { Some(given) };
    let place = from_end.and_then(|p| usize::try_from(p).ok()).filter(|&p| p < count);
    place.ok_or_else(|| cx.malformed(format!("position {given} in a sequence of {count} elements")))
}

fn at(cx: Cx) -> Slots {
    let elements = cx.sequence(0)?;
    Ok(vec![elements[position(cx, 1, elements.len())?]])
}

fn insert(cx: Cx) -> Slots {
    let mut elements = cx.sequence(0)?.to_vec();
    let at = if cx.has(2) { position(cx, 2, elements.len() + 1)? } else { elements.len() };
    // Counted from the end, −1 is in front of the last element.
    let at = if cx.has(2) && cx.number(2)? < 0 { at.saturating_sub(1) } else { at };
    elements.insert(at, cx.slot(1)?);
    sequence(cx, elements)
}

fn erase(cx: Cx) -> Slots {
    let mut elements = cx.sequence(0)?.to_vec();
    let last = elements
        .len()
        .checked_sub(1)
        .ok_or_else(|| cx.malformed("an empty sequence has nothing to erase"))?;
    let at = if cx.has(1) { position(cx, 1, elements.len())? } else { last };
    elements.remove(at);
    sequence(cx, elements)
}

fn length(cx: Cx) -> Slots {
    let count = cx.sequence(0)?.len() as i64;
    Ok(vec![cx.importer.constant_slot(ConstData::from_i64(&[], &[count])?)])
}

fn concat_from_sequence(cx: Cx) -> Slots {
    let elements = cx.sequence(0)?;
    let &first =
        elements.first().ok_or_else(|| cx.unsupported("joining an empty sequence, which has no shape"))?;
    let stack = cx.attrs.flag("new_axis", false)?;
    let axis = cx.attrs.int("axis", 0)?;
    let rank = cx.importer.slot(first).shape.rank() + usize::from(stack);
    let axis = rlx_ir::shape::normalize_axis(axis, rank)?;
    let mut parts = Vec::with_capacity(elements.len());
    for &slot in &elements[..] {
        let part = cx.importer.materialize(slot)?;
        parts.push(if stack { cx.unsqueeze(part, &[axis])? } else { part });
    }
    let whole = if let [one] = parts[..] { one } else { cx.add(Op::Concat { axis }, &parts)? };
    Ok(vec![cx.importer.node_slot(whole)])
}

/// Parts of given sizes, of one size, or single elements.
fn split_to_sequence(cx: Cx) -> Slots {
    let axis = cx.axis("axis", 0, 0)?;
    let shape = cx.shape(0)?;
    let size = shape.dim(axis).as_static();
    let open = |cx: &NodeCx<'_, '_>| {
        size.ok_or_else(|| cx.open_dimension(format!("splitting {shape} along an axis without a size")))
    };
    let sizes: Vec<usize> = if !cx.has(1) {
        let size = open(cx)?;
        // They are counted before there are any.
        cx.importer.visit_many(size)?;
        vec![1; size]
    } else if cx.rank(1)? == 0 {
        let size = open(cx)?;
        let part = usize::try_from(cx.number(1)?).ok().filter(|&n| n > 0);
        let part = part.ok_or_else(|| cx.malformed("parts of no elements"))?;
        cx.importer.visit_many(size.div_ceil(part))?;
        (0..size.div_ceil(part)).map(|i| part.min(size - i * part)).collect()
    } else {
        let parts = cx.numbers(1)?.into_iter().map(|n| usize::try_from(n).ok()).collect::<Option<Vec<_>>>();
        parts.ok_or_else(|| cx.malformed("parts of less than no elements"))?
    };
    let whole = sizes.iter().try_fold(0usize, |n, &part| n.checked_add(part));
    let whole = whole.filter(|&n| size.is_none_or(|size| n == size));
    let whole = whole
        .ok_or_else(|| cx.malformed(format!("the parts of {shape} are not as many elements together")))?;
    let keep = cx.has(1) || cx.attrs.flag("keepdims", true)?;
    // Where the axis has no size, a run is held to that of the parts.
    let mut dims = shape.dims().to_vec();
    dims[axis] = Dim::Static(whole);
    let x = cx.x(0)?;
    let x = cx.reshape(x, dims)?;
    let (mut start, mut elements) = (0usize, Vec::with_capacity(sizes.len()));
    for part in sizes {
        let mut y = cx.slice_axis(x, axis, Extent::Const(start as i64), Extent::Const(part as i64))?;
        if !keep {
            let dims: Vec<Dim> = cx.shape_of(y).dims().to_vec();
            let kept = (0..dims.len()).filter(|&i| i != axis).map(|i| dims[i]).collect();
            y = cx.reshape(y, kept)?;
        }
        start += part;
        elements.push(cx.importer.node_slot(y));
    }
    sequence(cx, elements)
}

/// The body once for each element: of sequences their elements, of anything else itself.
fn map(cx: Cx) -> Slots {
    let body = cx.attrs.graph("body")?;
    let count = cx.sequence(0)?.len();
    let mut outputs: Vec<Vec<SlotId>> = vec![Vec::with_capacity(count); body.output.len()];
    for i in 0..count {
        let mut given = Vec::with_capacity(cx.operands());
        for operand in 0..cx.operands() {
            given.push(match cx.sequence(operand) {
                Ok(elements) if elements.len() == count => elements[i],
                Ok(other) => {
                    return Err(cx.malformed(format!("sequences of {count} and of {} elements", other.len())));
                }
                Err(_) => cx.slot(operand)?,
            });
        }
        let found = cx.importer.inlined(body, &given)?;
        outputs.iter_mut().zip(found).for_each(|(all, slot)| all.push(slot));
    }
    outputs.into_iter().map(|elements| Ok(cx.importer.sequence_slot(elements))).collect()
}

/// The operand, or nothing.
fn optional(cx: Cx) -> Slots {
    Ok(vec![if cx.has(0) { cx.slot(0)? } else { cx.importer.absent_slot() }])
}

fn get_element(cx: Cx) -> Slots {
    if cx.has(0) {
        Ok(vec![cx.slot(0)?])
    } else {
        Err(cx.malformed("the element of an optional that has none"))
    }
}

fn has_element(cx: Cx) -> Slots {
    let has = cx.has(0);
    Ok(vec![cx.importer.constant_slot(Value::bools(&[], [has]).to_const())])
}
