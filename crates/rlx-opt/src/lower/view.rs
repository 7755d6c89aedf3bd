//! Movement ops as changes of a view.

use std::sync::Arc;

use rlx_ir::lir::View;
use rlx_ir::{Extent, Graph, Node, NodeId, Op, Shape};

/// Whether the op only moves elements, so that a view (or a copy) can stand for it.
pub(crate) fn is_movement(op: &Op) -> bool {
    matches!(
        op,
        Op::Reshape { .. }
            | Op::Transpose { .. }
            | Op::Expand { .. }
            | Op::Slice { .. }
            | Op::Concat { .. }
            | Op::Result { .. }
    )
}

/// The dimensions of a value, as its node declares them: every operand that shows it has these.
fn extents_of(shape: &Shape) -> Arc<[Extent]> {
    shape.dims().iter().map(|d| d.extent()).collect()
}

/// The view a movement op makes of its input; `None` when the op is none that a view can express.
pub(crate) fn moved(op: &Op, inputs: &[View], result: &Shape) -> Option<View> {
    let source = inputs.first()?;
    match op {
        Op::Transpose { perm } => Some(View {
            offset: source.offset,
            dims: extents_of(result),
            strides: perm.iter().map(|&p| source.strides[p]).collect(),
        }),
        Op::Expand { .. } => Some(expanded(source, result)),
        Op::Slice { starts, steps, .. } => {
            let along = |i: usize| source.strides[i];
            Some(View {
                offset: (0..starts.len()).fold(source.offset, |at, i| at + starts[i] * along(i)),
                dims: extents_of(result),
                strides: (0..steps.len()).map(|i| along(i) * steps[i]).collect(),
            })
        }
        _ => None,
    }
}

/// The view that a movement op with one operand makes of it, a reshape among them; `None` when the op is none that a view can express.
pub(crate) fn through(movement: &Node, of: &View) -> Option<View> {
    match &movement.op {
        Op::Reshape { .. } => reshaped(of, &extents_of(&movement.shape)),
        op => moved(op, std::slice::from_ref(of), &movement.shape),
    }
}

/// The view through which `to` reads the dense result of `from`; `None` unless reshapes and transposes alone are between them.
pub fn shown(graph: &Graph, from: NodeId, to: NodeId) -> Option<View> {
    if from == to {
        return Some(View::dense(graph.shape(from).dims()));
    }
    let node = graph.node(to);
    let moves = matches!(node.op, Op::Reshape { .. } | Op::Transpose { .. });
    let before = node.inputs.first().filter(|_| moves)?;
    through(node, &shown(graph, from, *before)?)
}

/// Broadcasting: dimensions of 1 repeat with stride 0. Of a dimension that is another expression than the result's, the
/// values decide: it is 1 or equal.
fn expanded(source: &View, result: &Shape) -> View {
    let dims = extents_of(result);
    let skip = dims.len() - source.dims.len();
    let stride = |i: usize| match i.checked_sub(skip) {
        None => Extent::Const(0),
        Some(j) => source.strides[j] * source.dims[j].broadcast_factor(dims[i]),
    };
    View { offset: source.offset, strides: (0..dims.len()).map(stride).collect(), dims }
}

/// The view with dimensions `to` over the same elements in the same order, when strides can express it.
///
/// Both sides are cut into groups of dimensions with equal products; within a group the source's dimensions
/// must be contiguous with each other.
pub(crate) fn reshaped(source: &View, to: &[Extent]) -> Option<View> {
    let one = Extent::Const(1);
    if source.is_dense() {
        return Some(View { offset: source.offset, ..View::dense_extents(to.into()) });
    }
    // Dimensions of 1 have no stride that matters.
    let from: Vec<(Extent, Extent)> =
        source.dims.iter().copied().zip(source.strides.iter().copied()).filter(|&(d, _)| d != one).collect();
    let mut strides = vec![Extent::Const(0); to.len()];
    let (mut i, mut j) = (0, 0);
    while i < from.len() {
        let (mut a, first) = (from[i].0, i);
        i += 1;
        let start = j;
        while j < to.len() && to[j] == one {
            j += 1;
        }
        let mut b = *to.get(j)?;
        j += 1;
        while a != b {
            // Grow the side that divides the other; with symbols, try both.
            if i < from.len() && divides(a, b) {
                a = a * from[i].0;
                i += 1;
            } else if j < to.len() && divides(b, a) {
                b = b * to[j];
                j += 1;
            } else {
                return None;
            }
        }
        let contiguous = (first + 1..i).all(|k| from[k - 1].1 == from[k].1 * from[k].0);
        if !contiguous {
            return None;
        }
        let mut stride = from[i - 1].1;
        for k in (start..j).rev() {
            strides[k] = stride;
            stride = stride * to[k];
        }
    }
    if to[j..].iter().any(|&d| d != one) {
        return None;
    }
    Some(View { offset: source.offset, dims: to.into(), strides: strides.into() })
}

fn divides(a: Extent, b: Extent) -> bool {
    b.modulo(a) == Extent::Const(0) && a != b
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_ir::sym;

    fn view(dims: &[i64], strides: &[i64]) -> View {
        let e = |v: &[i64]| v.iter().map(|&x| Extent::Const(x)).collect();
        View { offset: Extent::Const(0), dims: e(dims), strides: e(strides) }
    }

    fn extents(v: &[i64]) -> Vec<Extent> {
        v.iter().map(|&x| Extent::Const(x)).collect()
    }

    #[test]
    fn splitting_a_strided_dimension_keeps_a_view() {
        // [2, 12] with rows 24 apart, as [2, 3, 4].
        let r = reshaped(&view(&[2, 12], &[24, 1]), &extents(&[2, 3, 4])).unwrap();
        assert_eq!(r.strides[..], extents(&[24, 4, 1]));
        // A transposed matrix cannot be flattened.
        assert!(reshaped(&view(&[3, 2], &[1, 3]), &extents(&[6])).is_none());
        // But its dimensions of 1 come and go.
        let r = reshaped(&view(&[3, 1, 2], &[1, 7, 3]), &extents(&[3, 2, 1])).unwrap();
        assert_eq!(r.strides[..2], extents(&[1, 3]));
    }

    #[test]
    fn symbols_split_and_merge_too() {
        let s = Extent::sym(sym::SEQ);
        // Heads of a transposed attention: [heads, seq, 4] with strides of [seq, heads, 4], split to 2×2.
        let source = View {
            offset: Extent::Const(0),
            dims: [Extent::Const(8), s, Extent::Const(4)].into(),
            strides: extents(&[4, 32, 1]).into(),
        };
        let r = reshaped(&source, &[Extent::Const(2), Extent::Const(4), s, Extent::Const(4)]).unwrap();
        assert_eq!(r.strides[..], extents(&[16, 4, 32, 1]));
        assert!(reshaped(&source, &[Extent::Const(8) * s, Extent::Const(4)]).is_none());
    }
}
