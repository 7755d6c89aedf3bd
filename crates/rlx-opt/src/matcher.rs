//! Matching trees of ops against declared patterns.
//!
//! A [`Pattern`] says what a node must be; [`Pattern::find`] tries all ways in which commutative ops and products
//! can be read, and gives what the names in the pattern stand for. Patterns are built by the short functions
//! below; the same name twice must be the same node.
//!
//! ```
//! use rlx_ir::{op::Activation, text};
//! use rlx_opt::matcher::{act, any, mul};
//! let g = text::parse(r#"graph "silu" {
//!   %0 = Input {name="x"} : [2] f32
//!   %1 = Activation.Sigmoid(%0) : [2] f32
//!   %2 = Binary.Mul(%1, %0) : [2] f32
//!   return %2
//! }"#).unwrap();
//! let silu = mul(any("x"), act(Activation::Sigmoid, any("x")));
//! let found = silu.find(&g, g.outputs[0]).unwrap();
//! assert_eq!(found.node("x"), g.nodes()[0].id);
//! ```

use rlx_ir::op::{Activation, BinaryOp, ReduceOp};
use rlx_ir::{Graph, NodeId, Op};

use crate::facts;

/// How close a constant must be to the number a pattern names: exporters write 1/√2 with few digits.
const CLOSE: f64 = 1e-4;

/// What a node must be.
#[derive(Debug, Clone)]
pub enum Pattern {
    /// Any node, named.
    Any(&'static str),
    /// A constant of this one value, about.
    Value(f64),
    /// A constant of one value, named.
    Number(&'static str),
    /// A node that the pattern describes, named.
    Named(&'static str, Box<Pattern>),
    /// An op that the function accepts, with these inputs; in any order if `commutes`.
    Op {
        /// Whether the op is the one meant.
        accepts: Accepts,
        /// What its inputs must be.
        inputs: Vec<Pattern>,
        /// Whether two inputs may be exchanged.
        commutes: bool,
    },
    /// One of these.
    Either(Vec<Pattern>),
    /// A product of these factors in any order and grouping, and of constants that multiply to `scale`;
    /// dividing by a constant counts as a factor too.
    Product {
        /// The factors that are no constants.
        factors: Vec<Pattern>,
        /// What the constants must multiply to.
        scale: f64,
    },
}

/// Which op a pattern means.
#[derive(Debug, Clone, Copy)]
pub enum Accepts {
    /// This function of one element.
    Activation(Activation),
    /// This function of two elements.
    Binary(BinaryOp),
    /// This reduction, its dimensions kept.
    Reduce(ReduceOp),
    /// Whatever the function says.
    If(fn(&Op) -> bool),
}

impl Accepts {
    fn accepts(self, op: &Op) -> bool {
        match self {
            Accepts::Activation(f) => *op == Op::Activation(f),
            Accepts::Binary(f) => *op == Op::Binary(f),
            Accepts::Reduce(f) => matches!(op, Op::Reduce { op, keep_dim: true, .. } if *op == f),
            Accepts::If(f) => f(op),
        }
    }
}

/// Any node, named.
pub fn any(name: &'static str) -> Pattern {
    Pattern::Any(name)
}

/// A constant of about this value.
pub fn value(value: f64) -> Pattern {
    Pattern::Value(value)
}

/// A constant of one value, named.
pub fn number(name: &'static str) -> Pattern {
    Pattern::Number(name)
}

/// Gives the node a name.
pub fn named(name: &'static str, pattern: Pattern) -> Pattern {
    Pattern::Named(name, Box::new(pattern))
}

/// One of these.
pub fn either(patterns: impl Into<Vec<Pattern>>) -> Pattern {
    Pattern::Either(patterns.into())
}

/// An activation.
pub fn act(f: Activation, x: Pattern) -> Pattern {
    Pattern::Op { accepts: Accepts::Activation(f), inputs: vec![x], commutes: false }
}

/// A function of two elements, in this order.
pub fn binary(f: BinaryOp, a: Pattern, b: Pattern) -> Pattern {
    Pattern::Op { accepts: Accepts::Binary(f), inputs: vec![a, b], commutes: false }
}

/// A sum, in any order.
pub fn add(a: Pattern, b: Pattern) -> Pattern {
    Pattern::Op { accepts: Accepts::Binary(BinaryOp::Add), inputs: vec![a, b], commutes: true }
}

/// A product of two, in any order.
pub fn mul(a: Pattern, b: Pattern) -> Pattern {
    Pattern::Op { accepts: Accepts::Binary(BinaryOp::Mul), inputs: vec![a, b], commutes: true }
}

/// A product of any number of factors, with constants that multiply to `scale`.
pub fn product(factors: impl Into<Vec<Pattern>>, scale: f64) -> Pattern {
    Pattern::Product { factors: factors.into(), scale }
}

/// A reduction that keeps its dimensions.
pub fn reduce(f: ReduceOp, x: Pattern) -> Pattern {
    Pattern::Op { accepts: Accepts::Reduce(f), inputs: vec![x], commutes: false }
}

/// An op that the function accepts.
pub fn op(accepts: fn(&Op) -> bool, inputs: impl Into<Vec<Pattern>>) -> Pattern {
    Pattern::Op { accepts: Accepts::If(accepts), inputs: inputs.into(), commutes: false }
}

/// What the names of a pattern stand for.
#[derive(Debug, Clone, Default)]
pub struct Match {
    nodes: Vec<(&'static str, NodeId)>,
    numbers: Vec<(&'static str, f64)>,
    /// The nodes that the pattern described, the root included.
    inner: Vec<NodeId>,
}

impl Match {
    /// The node of this name.
    ///
    /// # Panics
    /// When the pattern has no such name: a fault of the pass.
    pub fn node(&self, name: &str) -> NodeId {
        match self.nodes.iter().find(|(n, _)| *n == name) {
            Some(&(_, id)) => id,
            None => panic!("the pattern names no {name}"),
        }
    }

    /// The number of this name.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.numbers.iter().find(|(n, _)| *n == name).map(|&(_, v)| v)
    }

    /// Whether nothing but the root is used outside of the match, so that the rest goes when the root does.
    pub fn is_closed(&self, root: NodeId, users: &facts::Users, outputs: &[bool]) -> bool {
        let inside = |id: &NodeId| self.inner.contains(id);
        let closed = |id: &NodeId| !outputs[id.index()] && users[id.index()].iter().all(inside);
        self.inner.iter().filter(|&&id| id != root).all(closed)
    }

    fn bind(&mut self, name: &'static str, id: NodeId) -> bool {
        match self.nodes.iter().find(|(n, _)| *n == name) {
            Some(&(_, bound)) => bound == id,
            None => {
                self.nodes.push((name, id));
                true
            }
        }
    }
}

/// What is still to be shown.
#[derive(Clone)]
enum Goal<'p> {
    Is(&'p Pattern, NodeId),
    /// The pending nodes multiply to `scale` times the factors.
    Product(Vec<NodeId>, Vec<&'p Pattern>, f64),
}

impl Pattern {
    /// The first way in which `root` is what the pattern says.
    pub fn find(&self, graph: &Graph, root: NodeId) -> Option<Match> {
        if !self.may_be(graph, root) {
            return None;
        }
        solve(graph, vec![Goal::Is(self, root)], Match::default())
    }

    /// Whether the ops alone allow it, whatever names stand for and constants are: `false` for nearly every node, and it allocates
    /// nothing.
    fn may_be(&self, graph: &Graph, id: NodeId) -> bool {
        match self {
            Pattern::Any(_) => true,
            Pattern::Value(_) | Pattern::Number(_) => facts::constant(graph, id).is_some(),
            Pattern::Named(_, inner) => inner.may_be(graph, id),
            Pattern::Either(patterns) => patterns.iter().any(|p| p.may_be(graph, id)),
            Pattern::Op { accepts, inputs, commutes } => {
                let node = graph.node(id);
                if !accepts.accepts(&node.op) || node.inputs.len() != inputs.len() {
                    return false;
                }
                let mut pairs = inputs.iter().zip(&node.inputs);
                pairs.all(|(p, &id)| p.may_be(graph, id))
                    || (*commutes
                        && inputs.iter().zip(node.inputs.iter().rev()).all(|(p, &id)| p.may_be(graph, id)))
            }
            // Several factors are a product, a quotient or the negative of one.
            Pattern::Product { factors, .. } => {
                let of_parts = Op::Binary(BinaryOp::Mul) == graph.node(id).op
                    || Op::Binary(BinaryOp::Div) == graph.node(id).op
                    || Op::Activation(Activation::Neg) == graph.node(id).op;
                (of_parts || factors.len() < 2)
                    && factors.iter().all(|factor| factor.may_be_among(graph, id, factors.len() - 1, 8))
            }
        }
    }
}

impl Pattern {
    /// Whether the ops alone allow it to be a factor of the product `id`, beside at most `more` others that are no constants.
    /// A product of more than `depth` products is taken to have it.
    fn may_be_among(&self, graph: &Graph, id: NodeId, more: usize, depth: usize) -> bool {
        if depth == 0 || self.may_be(graph, id) {
            return true;
        }
        let node = graph.node(id);
        let of = |id: NodeId, more: usize| self.may_be_among(graph, id, more, depth - 1);
        match (&node.op, node.inputs.as_slice()) {
            (Op::Binary(BinaryOp::Mul), &[a, b]) => {
                let is_constant = |id: NodeId| facts::constant(graph, id).is_some();
                match more.checked_sub(usize::from(!is_constant(a) && !is_constant(b))) {
                    Some(more) => of(a, more) || of(b, more),
                    None => false,
                }
            }
            (Op::Binary(BinaryOp::Div), &[a, _]) | (Op::Activation(Activation::Neg), &[a]) => of(a, more),
            _ => false,
        }
    }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= CLOSE * b.abs()
}

/// Takes the last goal and tries every way to reach it; `found` is what holds so far.
fn solve<'p>(graph: &Graph, mut goals: Vec<Goal<'p>>, mut found: Match) -> Option<Match> {
    let Some(goal) = goals.pop() else { return Some(found) };
    let (pattern, id) = match goal {
        Goal::Is(pattern, id) => (pattern, id),
        Goal::Product(pending, factors, scale) => {
            return solve_product(graph, goals, found, (pending, factors, scale));
        }
    };
    match pattern {
        Pattern::Any(name) => found.bind(name, id).then(|| solve(graph, goals, found))?,
        Pattern::Value(value) => {
            facts::uniform(graph, id).filter(|&v| close(v, *value)).and_then(|_| solve(graph, goals, found))
        }
        Pattern::Number(name) => {
            found.numbers.push((name, facts::uniform(graph, id)?));
            solve(graph, goals, found)
        }
        Pattern::Named(name, inner) => {
            goals.push(Goal::Is(inner, id));
            found.bind(name, id).then(|| solve(graph, goals, found))?
        }
        Pattern::Either(patterns) => patterns.iter().find_map(|p| {
            let mut goals = goals.clone();
            goals.push(Goal::Is(p, id));
            solve(graph, goals, found.clone())
        }),
        Pattern::Op { accepts, inputs, commutes } => {
            let node = graph.node(id);
            if !accepts.accepts(&node.op) || node.inputs.len() != inputs.len() {
                return None;
            }
            found.inner.push(id);
            let with = |order: &[NodeId]| {
                let mut goals = goals.clone();
                // The first input is looked at first.
                goals.extend(inputs.iter().zip(order).rev().map(|(p, &id)| Goal::Is(p, id)));
                solve(graph, goals, found.clone())
            };
            with(&node.inputs).or_else(|| commutes.then(|| with(&[node.inputs[1], node.inputs[0]]))?)
        }
        Pattern::Product { factors, scale } => {
            goals.push(Goal::Product(vec![id], factors.iter().collect(), *scale));
            solve(graph, goals, found)
        }
    }
}

fn solve_product<'p>(
    graph: &Graph,
    mut goals: Vec<Goal<'p>>,
    found: Match,
    (mut pending, factors, scale): (Vec<NodeId>, Vec<&'p Pattern>, f64),
) -> Option<Match> {
    let Some(id) = pending.pop() else {
        let done = factors.is_empty() && close(1.0, scale);
        return done.then(|| solve(graph, goals, found))?;
    };
    if let Some(c) = facts::uniform(graph, id) {
        goals.push(Goal::Product(pending, factors, scale / c));
        return solve(graph, goals, found);
    }
    let more = pending.iter().filter(|&&id| facts::constant(graph, id).is_none()).count();
    if factors.len() <= more {
        return None;
    }
    // As one of the factors …
    for i in 0..factors.len() {
        let mut rest = factors.clone();
        let factor = rest.remove(i);
        let mut goals = goals.clone();
        goals.push(Goal::Product(pending.clone(), rest, scale));
        goals.push(Goal::Is(factor, id));
        if let Some(all) = solve(graph, goals, found.clone()) {
            return Some(all);
        }
    }
    // … or as a product itself.
    let node = graph.node(id);
    let mut found = found;
    found.inner.push(id);
    let scale = match node.op {
        Op::Binary(BinaryOp::Mul) => {
            pending.extend_from_slice(&node.inputs);
            scale
        }
        Op::Binary(BinaryOp::Div) => {
            pending.push(node.inputs[0]);
            scale * facts::uniform(graph, node.inputs[1])?
        }
        Op::Activation(Activation::Neg) => {
            pending.push(node.inputs[0]);
            -scale
        }
        _ => return None,
    };
    goals.push(Goal::Product(pending, factors, scale));
    solve(graph, goals, found)
}
