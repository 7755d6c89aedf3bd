//! The verifier: every structural rule of a graph, checked in one walk.
//!
//! Rules: each input is an earlier node of this graph; the op accepts the number of inputs; the declared
//! shapes are what the op's rule infers; no fault was kept while building; input and parameter names are unique; outputs exist; a symbol that
//! a node binds is bound once, before it is mentioned.

use std::collections::HashMap;
use std::fmt;

use crate::dim::{Dim, scoped};
use crate::error::Error;
use crate::graph::{Graph, Node, NodeId, data, fault, rule_may_hold};
use crate::ops::Op;
use crate::ops::def::Ranges;
use crate::shape::Shape;

/// A rule that a graph breaks.
#[derive(Debug, Clone, PartialEq)]
pub struct VerifyError {
    /// The node at fault, if it is one node's.
    pub node: Option<NodeId>,
    /// What is wrong.
    pub error: Error,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for VerifyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Everything that is wrong with `graph`; empty when nothing is.
pub fn verify(graph: &Graph) -> Vec<VerifyError> {
    scoped(|| faults_of(graph, &mut true))
}

/// The first fault of `graph` as an error; `true` where each node declares just what its op's rule gives.
///
/// # Errors
/// The first of [`verify`]'s faults.
pub fn verify_exact(graph: &Graph) -> Result<bool, Error> {
    let mut exact = true;
    match scoped(|| faults_of(graph, &mut exact)).into_iter().next() {
        Some(fault) => Err(fault.error),
        None => Ok(exact),
    }
}

/// The faults; `exact` becomes `false` where a node declares what its op's rule does not give as it is.
fn faults_of(graph: &Graph, exact: &mut bool) -> Vec<VerifyError> {
    let mut faults = Vec::new();
    let mut names: HashMap<(bool, &str), NodeId> = HashMap::new();
    for node in graph.nodes() {
        if let Some(error) = fault::error(&node.op) {
            faults.push(VerifyError { node: Some(node.id), error });
            continue;
        }
        let checked = check_inputs(graph, node)
            .and_then(|()| check_name(node, &mut names))
            .and_then(|()| check_shapes(graph, node));
        match checked {
            Ok(as_declared) => *exact &= as_declared,
            Err(e) => faults.push(VerifyError { node: Some(node.id), error: place(graph, node, e) }),
        }
        for body in node.op.bodies() {
            if !body.graph.donations().is_empty() {
                let error = invalid("a body donates an input, whose memory is not its own".into());
                faults.push(VerifyError { node: Some(node.id), error: place(graph, node, error) });
            }
            faults.extend(
                verify(&body.graph)
                    .into_iter()
                    .map(|fault| VerifyError { node: Some(node.id), error: place(graph, node, fault.error) }),
            );
        }
    }
    if let Err(error) = data::check(graph) {
        faults.push(VerifyError { node: None, error });
    }
    for &id in &graph.outputs {
        if let Err(error) = graph.check_id(id) {
            faults.push(VerifyError { node: None, error: error.with_node("the outputs") });
        }
    }
    if let (true, Err(error)) = (faults.is_empty(), graph.check_donations()) {
        faults.push(VerifyError { node: None, error });
    }
    faults
}

/// The first fault of `graph` as an error.
///
/// # Errors
/// The first of [`verify`]'s faults.
pub fn verify_ok(graph: &Graph) -> Result<(), Error> {
    verify_exact(graph).map(|_| ())
}

fn place(graph: &Graph, node: &Node, error: Error) -> Error {
    graph.locate(node.id, error)
}

fn invalid(message: String) -> Error {
    Error::new(crate::ErrorKind::InvalidGraph, message)
}

fn check_inputs(graph: &Graph, node: &Node) -> Result<(), Error> {
    for &id in &node.inputs {
        graph.check_id(id)?;
        if id >= node.id {
            return Err(invalid(format!("uses {id}, which is not computed before it")));
        }
    }
    Ok(())
}

fn check_name<'g>(node: &'g Node, names: &mut HashMap<(bool, &'g str), NodeId>) -> Result<(), Error> {
    let (is_param, name) = match &node.op {
        Op::Input { name } => (false, name),
        Op::Param { name } => (true, name),
        _ => return Ok(()),
    };
    match names.insert((is_param, name), node.id) {
        Some(other) => Err(invalid(format!("the name {name:?} is already that of {other}"))
            .with_hint("give every input and every parameter its own name")),
        None => Ok(()),
    }
}

fn check_shapes(graph: &Graph, node: &Node) -> Result<bool, Error> {
    // What is built on a fault has no shape to check; the fault itself is reported.
    if node.inputs.iter().any(|&id| fault::error(&graph.node(id).op).is_some()) {
        return Ok(true);
    }
    rule_may_hold(graph, node)
}

/// Whether the shape a node declares may stand for the one its rule infers: equal, except that dimensions which are
/// expressions may be others that are equal at run time, which the run checks. Those that differ for all values of the
/// symbols are an error.
pub(crate) fn check_declared(declared: &Shape, inferred: &Shape, range: Ranges<'_>) -> Result<(), Error> {
    let may_be_equal = |(d, i): (&Dim, &Dim)| {
        let difference = || d.extent().distance(i.extent(), range);
        d == i || Some(difference()).is_some_and(|r| r.min <= 0 && r.max >= 0)
    };
    let compatible = declared.dtype() == inferred.dtype()
        && declared.rank() == inferred.rank()
        && declared.dims().iter().zip(inferred.dims()).all(may_be_equal);
    if compatible {
        return Ok(());
    }
    let message = format!("declared as {declared}, but the op's rule gives {inferred}");
    Err(Error::new(crate::ErrorKind::Shape, message)
        .with_hint("let the builder infer the shape, or correct the declared one"))
}
