//! Random attention whose keys and values a gather picks from tables: pages of caches.

use super::{AttentionShape, Gen, random_attention};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::graph::{Graph, NodeId};
use crate::ops::Op;
use crate::oracle::Bindings;
use crate::shape::Shape;

/// How many times a list may be longer than its table.
const MOST_REPEATS: usize = 2;

/// A random attention as [`random_attention`] makes it, but for its keys and values: rows of pages that are anywhere in a table, some of them several
/// times, some counted from the end. `page` rows are a page, of which the keys are some. Values may have no table.
///
/// # Panics
/// Where the op's cases are not valid, which its own tests find first.
#[allow(clippy::expect_used, reason = "a graph that is not valid is a mistake here")]
pub fn random_paged_attention(
    g: &mut Gen,
    dtype: DType,
    shape: &AttentionShape,
    page: usize,
) -> (Graph, Bindings) {
    let pages = shape.keys.div_ceil(page).max(1);
    let shape = AttentionShape { keys: pages * page, ..*shape };
    let case = random_attention(g, dtype, &shape);
    let (mut graph, mut bindings) = (Graph::new("pages"), Bindings::default());
    let in_table = g.size(pages.div_ceil(MOST_REPEATS)..=pages + 2);
    let indices = g.indices(&[shape.batch, pages], in_table);
    let list = graph.input("pages", indices.shape());
    bindings.set_input("pages", indices);
    let both = g.chance(0.8);
    let mut ids = Vec::new();
    for (i, value) in case.inputs.into_iter().enumerate() {
        let name = format!("x{i}");
        let gathered = i == 1 || i == 2 && both;
        if !gathered {
            ids.push(graph.input(name.clone(), value.shape()));
            bindings.set_input(name, value);
            continue;
        }
        // Rows of a page have the heads beside each other; with heads as a dimension, rows of a head may also be together.
        let own = value.dims.clone();
        let size = own[own.len() - 1];
        let heads_first = own.len() == 4 && g.chance(0.5);
        let row: &[usize] = if own.len() == 4 { &[shape.kv_heads, size] } else { &[size] };
        let dims = match heads_first {
            true => vec![in_table, shape.kv_heads, page, size],
            false => [&[in_table, page], row].concat(),
        };
        let table = graph.input(name.clone(), Shape::new(&dims, dtype));
        bindings.set_input(name, g.value(dtype, &dims, -1.0..1.0));
        ids.push(picked(&mut graph, [table, list], &own, heads_first).expect("valid"));
    }
    let y = graph.try_add(case.op, &ids).expect("valid");
    graph.set_outputs(vec![y]);
    (graph, bindings)
}

/// The rows of the pages, as an attention wants them: `to` is `[items, heads, rows, size]` or `[items, rows, heads·size]`.
fn picked(
    graph: &mut Graph,
    [table, list]: [NodeId; 2],
    to: &[usize],
    heads_first: bool,
) -> crate::Result<NodeId> {
    let picked = graph.try_add(Op::Gather { axis: 0 }, &[table, list])?;
    let reshape = |graph: &mut Graph, x, to: &[usize]| {
        let to = to.iter().map(|&d| Dim::Static(d)).collect();
        graph.try_add(Op::Reshape { to }, &[x])
    };
    let &[items, heads, rows, size] = to else { return reshape(graph, picked, to) };
    if heads_first {
        let picked = graph.try_add(Op::Transpose { perm: vec![0, 2, 1, 3, 4] }, &[picked])?;
        return reshape(graph, picked, to);
    }
    let picked = reshape(graph, picked, &[items, rows, heads, size])?;
    graph.try_add(Op::Transpose { perm: vec![0, 2, 1, 3] }, &[picked])
}
