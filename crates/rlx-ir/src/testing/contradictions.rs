//! Graphs whose declared dimensions need not agree, and numbers for them that often do not.
//!
//! One op of [`super::mismatched`], or several in a row. Of several, a valid graph is made first. Then dimensions of its
//! inputs, parameters, constants and results are replaced by symbols: some by one symbol for each number, so that equal
//! numbers stay equal, some by a symbol of their own, which nothing relates to what the op's rule makes. An input of its
//! own binds the symbols of a result. At last some of the numbers are exchanged. What is right for such a graph, the
//! oracle says: a result, or an error.

use super::mismatch::Symbols;
use super::{Gen, mismatched, random_bindings, symbolic_graph};
use crate::dim::{Dim, DimBinding, sym};
use crate::dtype::DType;
use crate::graph::{Graph, Node, NodeId};
use crate::ops::{Op, OpKind};
use crate::oracle::{self, Bindings};
use crate::shape::Shape;
use crate::tensor::Value;

/// No tensor of such a graph has more elements.
const MAX_ELEMENTS: usize = 1 << 13;

/// A graph that verifies and whose dimensions may contradict each other, with values for its inputs and parameters;
/// `None` where the choices of `g` lead to none.
pub fn contradicting_graph(g: &mut Gen) -> Option<(Graph, Bindings)> {
    if g.chance(0.75) {
        let made = one_op(g);
        return crate::verify_ok(&made.0).ok().map(|()| made);
    }
    let (base, given) = several_ops(g);
    let dims = oracle::bind_dims(&base, &given).ok()?;
    let mut made =
        Redeclared { g, dims, graph: Graph::new("contradiction"), numbers: Symbols::new(), sources: vec![] };
    let mut ids = Vec::with_capacity(base.len());
    for node in base.nodes() {
        let id = made.node(node, &ids, &given)?;
        ids.push(id);
    }
    made.graph.set_outputs(base.outputs.iter().map(|id| ids[id.index()]).collect());
    crate::verify_ok(&made.graph).ok()?;
    made.with_numbers()
}

/// One op: see [`mismatched`].
fn one_op(g: &mut Gen) -> (Graph, Bindings) {
    let outside = [OpKind::Input, OpKind::Param, OpKind::Constant, OpKind::Result, OpKind::Custom];
    let kinds: Vec<OpKind> = OpKind::ALL.iter().copied().filter(|kind| !outside.contains(kind)).collect();
    let kind = g.pick(&kinds);
    let case = kind.def().generate(kind, g);
    mismatched(g, &case)
}

/// Several ops in a row.
fn several_ops(g: &mut Gen) -> (Graph, Bindings) {
    let size = g.size(1..=12);
    let graph = symbolic_graph(g, size);
    let dims = DimBinding::batch_seq(g.size(1..=3), g.size(1..=5));
    let bindings = random_bindings(&graph, &dims, g.bits());
    (graph, bindings)
}

struct Redeclared<'g> {
    g: &'g mut Gen,
    /// The symbols of the valid graph.
    dims: DimBinding,
    graph: Graph,
    /// The symbols' numbers in the valid graph.
    numbers: Symbols,
    /// Inputs and parameters, with their values in the valid graph.
    sources: Vec<(NodeId, Value)>,
}

impl Redeclared<'_> {
    fn node(&mut self, node: &Node, ids: &[NodeId], given: &Bindings) -> Option<NodeId> {
        let place = self.graph.len();
        let value = match &node.op {
            Op::Input { name } => Some((node.op.clone(), given.input(name)?.clone())),
            Op::Param { name } => Some((node.op.clone(), given.param(name)?.clone())),
            Op::Constant { data } if self.g.chance(0.4) => {
                Some((Op::Input { name: format!("constant{place}") }, data.value()))
            }
            _ => None,
        };
        if let Some((op, value)) = value {
            let declared: Vec<Dim> = value
                .dims
                .iter()
                .enumerate()
                .map(|(axis, &n)| {
                    let old = node.shape.dims()[axis];
                    self.dim(old, n, &format!("i{place}d{axis}"))
                })
                .collect();
            // Parameters have no open dimensions.
            let op = match op {
                Op::Param { name } if !declared.iter().all(|d| d.is_static()) => Op::Input { name },
                op => op,
            };
            let id = self.graph.add_node(op, vec![], Shape::from_dims(&declared, value.dtype));
            self.sources.push((id, value));
            return Some(id);
        }
        let inputs: Vec<NodeId> = node.inputs.iter().map(|id| ids[id.index()]).collect();
        let mut results = self.graph.infer(&node.op, &inputs, node.results()).ok()?;
        if !matches!(node.op, Op::Constant { .. } | Op::Result { .. }) {
            let counted = node.op.data_symbol();
            for (i, (result, old)) in results.iter_mut().zip(node.results()).enumerate() {
                *result = self.result(result, old, counted, &format!("r{place}.{i}"));
            }
        }
        Some(self.graph.push_node(Node::new(node.op.clone(), inputs, results)))
    }

    /// The dimension to declare in place of `old`, which is `n`; `own` is the name of a symbol of its own.
    fn dim(&mut self, old: Dim, n: usize, own: &str) -> Dim {
        let symbol = match self.g.size(0..=7) {
            0 | 1 => sym::named(own),
            2 => sym::named(&format!("n{n}")),
            _ => {
                for symbol in old.extent().symbols() {
                    if let Some(n) = self.dims.get(symbol) {
                        self.numbers.insert(sym::name(symbol), n);
                    }
                }
                return old;
            }
        };
        self.numbers.insert(sym::name(symbol), n);
        Dim::Dynamic(symbol)
    }

    /// The shape to declare for a result that the rule says is `inferred`, and that was `old`.
    fn result(&mut self, inferred: &Shape, old: &Shape, counted: Option<u32>, own: &str) -> Shape {
        let old = old.bind(&self.dims);
        let mut unbound = Vec::new();
        let mut declared = Vec::new();
        for (axis, (&rule, n)) in inferred.dims().iter().zip(old.dims()).enumerate() {
            let found = matches!(rule, Dim::Dynamic(s) if Some(s) == counted);
            let dim = match n.as_static() {
                // A number where the rule gives a symbol contradicts it only for some numbers.
                Some(n) if !found && self.g.chance(0.1) => Dim::Static(n),
                Some(n) if !found => self.dim(rule, n, &format!("{own}.{axis}")),
                _ => rule,
            };
            unbound.extend((dim != rule && !dim.is_static()).then_some(dim));
            declared.push(dim);
        }
        if !unbound.is_empty() {
            // An input that nothing reads binds the symbols.
            let shape = Shape::from_dims(&unbound, DType::U8);
            let dims: Vec<usize> = unbound.iter().filter_map(|&d| self.number_of(d)).collect();
            let id = self.graph.input(format!("z{}", self.graph.len()), shape);
            self.sources.push((id, Value::int(DType::U8, &dims, vec![0; dims.iter().product()])));
        }
        Shape::from_dims(&declared, inferred.dtype())
    }

    fn number_of(&self, dim: Dim) -> Option<usize> {
        match dim {
            Dim::Dynamic(symbol) => self.numbers.get(&sym::name(symbol)).copied(),
            other => other.as_static(),
        }
    }

    /// Exchanges numbers, and makes values that have them.
    fn with_numbers(self) -> Option<(Graph, Bindings)> {
        let known: Vec<usize> = self.numbers.values().copied().collect();
        let mut dims = DimBinding::new();
        for (name, &n) in &self.numbers {
            let other = match self.g.size(0..=15) {
                0 => 0,
                1 => 1,
                2 => n + 1,
                3 => n.saturating_sub(1),
                4 => self.g.pick(&[2, 3, 7, 17, 33, 65]),
                5 => self.g.pick(&known),
                _ => n,
            };
            dims.set(sym::named(name), other);
        }
        let mut bindings = Bindings::default();
        for (id, value) in &self.sources {
            let shape = self.graph.shape(*id).bind(&dims);
            let fixed = shape.static_dims()?;
            let value = if fixed == value.dims { value.clone() } else { resized(self.g, value, &fixed)? };
            match &self.graph.node(*id).op {
                Op::Param { name } => bindings.set_param(name.clone(), value),
                Op::Input { name } => bindings.set_input(name.clone(), value),
                _ => return None,
            };
        }
        let small = |shape: &Shape| shape.bind(&dims).num_elements().is_none_or(|n| n <= MAX_ELEMENTS);
        let all_small = self.graph.nodes().iter().all(|node| node.results().iter().all(small));
        all_small.then_some((self.graph, bindings))
    }
}

/// Values of the range of `value`, of other dimensions.
fn resized(g: &mut Gen, value: &Value, dims: &[usize]) -> Option<Value> {
    let elements = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    elements.filter(|&n| n <= MAX_ELEMENTS)?;
    let (low, high) = value
        .to_f64()
        .iter()
        .filter(|x| x.is_finite())
        .fold((f64::MAX, f64::MIN), |(low, high), &x| (low.min(x), high.max(x)));
    let range = if low <= high { low.max(-64.0)..high.min(64.0) } else { -1.0..1.0 };
    Some(g.value(value.dtype, dims, if range.start <= range.end { range } else { -1.0..1.0 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_graphs_verify_some_are_accepted_and_some_rejected() {
        let (mut accepted, mut rejected) = (0, 0);
        for seed in 0..600 {
            let Some((graph, bindings)) = contradicting_graph(&mut Gen::new(seed)) else { continue };
            match oracle::evaluate(&graph, &bindings) {
                Ok(_) => accepted += 1,
                Err(_) => rejected += 1,
            }
        }
        assert!(accepted > 100 && rejected > 100, "{accepted} accepted, {rejected} rejected");
    }

    #[test]
    fn a_script_of_bytes_decides_the_graph() {
        let made =
            |bytes: &[u8]| contradicting_graph(&mut Gen::from_bytes(bytes)).map(|(g, _)| g.to_string());
        let different: std::collections::BTreeSet<_> = (0..=255u8).filter_map(|b| made(&[0, b, 7])).collect();
        assert_eq!(made(&[0, 9, 7]), made(&[0, 9, 7]));
        assert!(different.len() > 20, "{} graphs", different.len());
    }
}
