//! The types that the values of a graph were rounded to.

use rlx_ir::{DType, Graph, Node, Op};

use crate::compare::shorter;

/// For each node the shortest float type that its value has been rounded to, by the op itself or by one that it is made
/// of. Two right implementations may differ by some units of that type, whatever the type of the node is. What is given
/// (inputs, weights, constants, moved or converted as they may be) has not been rounded by anybody and counts as f64.
pub(super) fn rounded_to(graph: &Graph) -> Vec<DType> {
    let (mut types, mut given) = (Vec::with_capacity(graph.len()), Vec::with_capacity(graph.len()));
    for node in graph.nodes() {
        given.push(only_moves(node) && node.inputs.iter().all(|id| given[id.index()]));
        let own = if given[node.id.index()] { DType::F64 } else { own_type(node) };
        types.push(node.inputs.iter().fold(own, |t, id| shorter(types[id.index()], t)));
    }
    types
}

fn only_moves(node: &Node) -> bool {
    rlx_opt::passes::legalize::needs_no_kernel(&node.op) || matches!(node.op, Op::Cast { .. })
}

/// The shortest float type that the op rounds to: that of its result, or one within its bodies.
fn own_type(node: &Node) -> DType {
    let of_result = Some(node.shape.dtype()).filter(|d| d.is_float()).unwrap_or(DType::F64);
    let inside = node.op.bodies().into_iter().flat_map(|body| rounded_to(&body.graph));
    inside.fold(of_result, |a, b| shorter(b, a))
}

#[cfg(test)]
mod tests {
    use rlx_ir::op::Activation;
    use rlx_ir::{GraphExt, Shape};

    use super::*;

    #[test]
    fn values_computed_from_16_bit_values_count_as_16_bit() {
        let mut g = Graph::new("g");
        let x = g.input("x", Shape::new(&[2], DType::BF16));
        let wide = g.try_cast(x, DType::F32).unwrap();
        let exact = g.try_act(Activation::Exp, wide).unwrap();
        let short = g.try_act(Activation::Exp, x).unwrap();
        let again = g.try_cast(short, DType::F32).unwrap();
        let sum = g.try_add_(again, exact).unwrap();
        g.set_outputs(vec![sum]);
        use DType::{BF16, F32, F64};
        assert_eq!(rounded_to(&g), [F64, F64, F32, BF16, BF16, BF16]);
    }
}
