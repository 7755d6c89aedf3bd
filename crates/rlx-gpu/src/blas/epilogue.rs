//! What a library for matmuls computes behind a product as it stores it, as a chain of ops of the graph: its *epilogue*.
//!
//! ```text
//! gelu(x·w + residual + bias)     MatMul → Add(bias), Add(residual) → GeluApprox
//! ```
//!
//! Each of these is there at most once, or not at all, and the two sums in either order; nothing follows the GELU. So `gelu(x·w + bias) + residual` ends behind
//! the GELU, and the residual is a step of its own. GELU is the form with a hyperbolic tangent, which is what the libraries compute; the exact one ([`Activation::Gelu`]) is none
//! of theirs. They have a ReLU, too, but their vendors do not say what it makes of NaN, so it stays a step, like any other function: `Fast` changes how results are rounded and no more. A bias is a vector along the columns,
//! a residual has the dimensions of the result. The library adds in f32 and rounds once, where the ops round one by one, which
//! [`Numerics::Fast`](rlx_opt::Numerics::Fast) allows: a result of 16 bits is nearer to the exact one. A cast of it to f32 is a step of its own, because values of that type would be those of
//! sums that were never rounded.
//!
//! The chain is matched by its ops alone, here for the fusion pass ([`Epilogue::of`]) and for steps ([`Epilogue::of_body`]).

use rlx_ir::op::{Activation, BinaryOp};
use rlx_ir::{Dim, Graph, Node, NodeId, Op, Shape};

/// `x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³)))`, the one function that may be applied last.
const GELU: Op = Op::Activation(Activation::GeluApprox);

/// The ops behind a matmul that a library computes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Epilogue {
    /// What the last op makes: the result.
    pub(crate) last: NodeId,
    pub(crate) bias: Option<NodeId>,
    pub(crate) residual: Option<NodeId>,
    pub(crate) gelu: bool,
}

impl Epilogue {
    /// Whether a library might compute `op` behind a product; whether it does depends on the other ops.
    pub(crate) fn may_have(op: &Op) -> bool {
        *op == Op::Binary(BinaryOp::Add) || *op == GELU
    }

    /// The epilogue of `nodes`, a matmul and what is behind it; `None` where a library does not compute that.
    pub(crate) fn of<'g>(nodes: impl IntoIterator<Item = &'g Node>, graph: &Graph) -> Option<Epilogue> {
        let mut nodes = nodes.into_iter();
        let matmul = nodes.next().filter(|matmul| matmul.op == Op::MatMul)?;
        let bare = Epilogue { last: matmul.id, bias: None, residual: None, gelu: false };
        nodes.try_fold(bare, |before, op| before.then(op, graph))
    }

    /// The matmul and the epilogue of a region, whose operands are all inputs of its body.
    pub(crate) fn of_body(body: &Graph) -> Option<(&Node, Epilogue)> {
        let is_input = |id: &NodeId| matches!(body.node(*id).op, Op::Input { .. });
        let nodes = || body.nodes().iter().filter(|node| !is_input(&node.id));
        let matmul = nodes().next()?;
        let epilogue = Epilogue::of(nodes(), body)?;
        let mut operands = matmul.inputs.iter().chain(&epilogue.bias).chain(&epilogue.residual);
        (operands.all(is_input) && body.outputs == [epilogue.last]).then_some((matmul, epilogue))
    }

    /// The epilogue with one op more.
    fn then(self, op: &Node, graph: &Graph) -> Option<Epilogue> {
        if self.gelu {
            return None;
        }
        let next = Epilogue { last: op.id, ..self };
        let result = graph.shape(self.last);
        match (&op.op, &op.inputs[..]) {
            (Op::Binary(BinaryOp::Add), &[a, b]) if (a == self.last) != (b == self.last) => {
                let added = if a == self.last { b } else { a };
                let shape = graph.shape(added);
                if is_bias(shape, result) && self.bias.is_none() {
                    Some(Epilogue { bias: Some(added), ..next })
                } else {
                    let is_residual = shape.dims() == result.dims() && self.residual.is_none();
                    is_residual.then_some(Epilogue { residual: Some(added), ..next })
                }
            }
            (of, [x]) if *of == GELU && *x == self.last => Some(Epilogue { gelu: true, ..next }),
            _ => None,
        }
    }
}

/// Whether an operand is one vector along the columns of a result.
fn is_bias(operand: &Shape, result: &Shape) -> bool {
    let Some((columns, others)) = operand.dims().split_last() else { return false };
    others.iter().all(|d| *d == Dim::Static(1)) && result.dims().last() == Some(columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_ir::text;

    /// The epilogue of all ops behind the four inputs: operands of 64 columns by 32 rows, bias, residual.
    fn found(dtype: &str, ops: &str) -> Option<(bool, bool, bool)> {
        let source = format!(
            "graph \"g\" {{ %0 = Input {{name=\"x\"}} : [seq, 48] {dtype} %1 = Input {{name=\"w\"}} : [48, 64] {dtype} \
             %2 = Input {{name=\"b\"}} : [64] {dtype} %3 = Input {{name=\"r\"}} : [seq, 64] {dtype} \
             %4 = MatMul(%0, %1) : [seq, 64] {dtype} {ops} }}"
        );
        let graph = text::parse(&source).unwrap_or_else(|e| panic!("{e}\n{source}"));
        let (_, of) = Epilogue::of_body(&graph)?;
        Some((of.bias.is_some(), of.residual.is_some(), of.gelu))
    }

    fn add(to: usize, other: usize) -> String {
        format!("%{} = Binary.Add(%{to}, %{other}) : [seq, 64] f32", to + 1)
    }

    fn then(to: usize, function: &str) -> String {
        format!("%{} = Activation.{function}(%{to}) : [seq, 64] f32", to + 1)
    }

    #[test]
    fn what_is_added_and_gelu_behind_it() {
        let chain = |ops: &[String]| {
            let last = 4 + ops.len();
            found("f32", &format!("{} return %{last}", ops.join(" ")))
        };
        assert_eq!(chain(&[]), Some((false, false, false)));
        assert_eq!(chain(&[add(4, 2)]), Some((true, false, false)));
        assert_eq!(chain(&[add(4, 2), add(5, 3)]), Some((true, true, false)));
        assert_eq!(chain(&[add(4, 3), add(5, 2)]), Some((true, true, false)));
        assert_eq!(chain(&[add(4, 3), add(5, 2), then(6, "GeluApprox")]), Some((true, true, true)));
        assert_eq!(chain(&[add(4, 2), then(5, "GeluApprox")]), Some((true, false, true)));
        assert_eq!(chain(&[then(4, "GeluApprox")]), Some((false, false, true)));
        // The exact GELU, other functions, two of a kind, and what comes behind a GELU.
        for ops in [
            &[add(4, 2), then(5, "Gelu")][..],
            &[then(4, "Silu")],
            &[then(4, "Relu")],
            &[add(4, 2), add(5, 3), then(6, "Relu")],
            &[add(4, 2), add(5, 2)],
            &[add(4, 3), add(5, 3)],
            &[add(4, 2), then(5, "GeluApprox"), add(6, 3)],
            &[then(4, "GeluApprox"), then(5, "GeluApprox")],
        ] {
            assert_eq!(chain(ops), None, "{ops:?}");
        }
    }

    #[test]
    fn nothing_but_the_last_value_is_stored() {
        let two = format!("{} {} return %5, %6", add(4, 2), then(5, "GeluApprox"));
        assert_eq!(found("f32", &two), None);
        let middle = format!("{} {} return %5", add(4, 2), then(5, "GeluApprox"));
        assert_eq!(found("f32", &middle), None);
        let twice = "%5 = Binary.Add(%4, %4) : [seq, 64] f32 return %5";
        assert_eq!(found("f32", twice), None);
    }

    #[test]
    fn a_bias_runs_along_the_columns() {
        let of = |dims: &str| {
            let source = format!(
                "graph \"g\" {{ %0 = Input {{name=\"x\"}} : [64, 48] f32 %1 = Input {{name=\"w\"}} : [48, 64] f32 \
                 %2 = Input {{name=\"b\"}} : {dims} f32 %3 = MatMul(%0, %1) : [64, 64] f32 \
                 %4 = Binary.Add(%2, %3) : [64, 64] f32 return %4 }}"
            );
            let graph = text::parse(&source).unwrap_or_else(|e| panic!("{e}\n{source}"));
            Epilogue::of_body(&graph).map(|(_, of)| of.bias.is_some())
        };
        assert_eq!(
            ["[64]", "[1, 64]", "[64, 1]", "[1]", "[64, 64]"].map(of),
            [Some(true), Some(true), None, None, Some(false)]
        );
    }

    #[test]
    fn results_have_the_type_of_the_product() {
        let function = then(4, "GeluApprox").replace("f32", "bf16");
        assert!(found("bf16", &format!("{function} return %5")).is_some());
        assert_eq!(found("bf16", "%5 = Cast(%4) {to=f32} : [seq, 64] f32 return %5"), None);
        assert_eq!(found("f32", "%5 = Cast(%4) {to=bf16} : [seq, 64] bf16 return %5"), None);
    }
}
