//! Which inputs a model's outputs update: a cache that it is given and gives back with some rows replaced.
//!
//! Files say so by their ops alone. `TensorScatter`, and the attentions of `com.microsoft` whose past and present are one buffer,
//! come to be an [`Op::UpdateSlice`] of an input. Scatters do other things as well, so theirs count only where the names say that
//! it is a cache: `past.…` to `present.…`. Such an input is donated to the output ([`rlx_ir::Graph::donate`]): a handle is updated where it is
//! then, and what a caller gives as bytes stays what it was.

use rlx_ir::{Graph, NodeId, Op};

/// Declares the donations of a graph whose outputs have these names.
pub(super) fn declare(graph: &mut Graph, names: &[String]) {
    let outputs = graph.outputs.clone();
    for (number, (&output, name)) in outputs.iter().zip(names).enumerate() {
        let Some(input) = updated(graph, output, name) else { continue };
        // An input that goes to two outputs is donated to the first; shapes that differ are no donation.
        if graph.donated_to(&input).is_none() {
            let _not_one_buffer = graph.donate(&input, number);
        }
    }
}

/// The input that an output is, some of its elements replaced.
fn updated(graph: &Graph, output: NodeId, name: &str) -> Option<String> {
    let (mut at, mut scattered) = (graph.node(output), false);
    while let Some(updated) = at.op.def().updates() {
        scattered |= !matches!(at.op, Op::UpdateSlice { .. });
        at = graph.node(*at.inputs.get(updated)?);
    }
    let Op::Input { name: input } = &at.op else { return None };
    let cache = input.starts_with("past") && name.starts_with("present");
    (at.id != output && (cache || !scattered)).then(|| input.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_ir::op::ScatterOp;
    use rlx_ir::{DType, Shape};

    /// A buffer of 8 rows of which one is replaced, by a slice or by a scatter.
    fn graph(input: &str, scatter: bool) -> Graph {
        let mut g = Graph::new("g");
        let x = g.input(input, Shape::new(&[8, 2], DType::F32));
        let row = g.input("row", Shape::new(&[1, 2], DType::F32));
        let at = g.input("at", Shape::new(if scatter { &[1, 1] } else { &[] }, DType::I64));
        let y = if scatter {
            g.try_add(Op::ScatterNd { reduction: ScatterOp::Set }, &[x, at, row])
        } else {
            g.try_add(Op::UpdateSlice { axis: 0 }, &[x, row, at])
        };
        g.set_outputs(vec![y.unwrap(), x]);
        g
    }

    #[test]
    fn updates_are_donated_and_scatters_by_their_names() {
        for (input, output, scatter, donated) in [
            ("cache", "next", false, true),
            ("past.0.key", "present.0.key", true, true),
            ("cache", "present.0.key", true, false),
            ("past.0.key", "next", true, false),
        ] {
            let mut g = graph(input, scatter);
            declare(&mut g, &[output.into(), "same".into()]);
            assert_eq!(g.donated_to(input), donated.then_some(0), "{input} to {output}");
        }
    }

    #[test]
    fn an_output_that_is_the_input_is_no_update() {
        let mut g = graph("cache", false);
        let x = g.outputs[1];
        g.set_outputs(vec![x]);
        declare(&mut g, &["present".into()]);
        assert!(g.donations().is_empty());
    }
}
