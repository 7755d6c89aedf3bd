//! Bodies of control flow: subgraphs as separate graphs.
//!
//! A body sees the names around it, but a graph cannot use nodes of another graph. A value used from outside
//! becomes an input of the body and an operand of the op ([`Importer::materialize`] does so if a slot's node belongs to
//! another graph).

use super::slot::{Importer, Mentioned, NODES_OF_BODY, Slot, SlotId};
use crate::proto::GraphProto;
use rlx_ir::{Error, ErrorKind, Graph, Node, NodeId, OriginId, Shape};
use std::collections::HashMap;

/// How deep bodies may nest.
const MOST_BODIES: usize = 8;

/// A body that is being imported.
pub(crate) struct OpenBody {
    /// The graph around it.
    around: Graph,
    /// The nodes that are in it for slots from outside.
    pub(super) here: HashMap<SlotId, NodeId>,
    /// What it uses from outside, in the order of its inputs.
    captures: Vec<SlotId>,
}

/// An imported body, and the values passed after its own inputs.
pub(crate) struct ImportedBody {
    pub graph: Graph,
    pub captures: Vec<SlotId>,
}

impl Importer<'_> {
    /// Imports a subgraph as a body: first come its own inputs, by their shapes. `outputs` chooses its outputs, from
    /// those inputs and the subgraph's outputs.
    pub fn body(
        &mut self,
        proto: &GraphProto,
        inputs: &[(String, Shape)],
        outputs: impl FnOnce(&[NodeId], Vec<NodeId>) -> Vec<NodeId>,
    ) -> Result<ImportedBody, Error> {
        self.in_body(proto.name(), |importer| {
            importer.enter(true);
            let made = importer.body_outputs(proto, inputs);
            importer.leave();
            let (own, found) = made?;
            Ok(outputs(&own, found))
        })
    }

    /// A body that `build` makes of its inputs, which have these shapes. It uses nothing from outside.
    pub fn made_body(
        &mut self,
        name: &str,
        shapes: &[Shape],
        build: impl FnOnce(&mut Self, &[NodeId]) -> Result<Vec<NodeId>, Error>,
    ) -> Result<Graph, Error> {
        let body = self.in_body(name, |importer| {
            let input =
                |(i, shape): (usize, &Shape)| importer.graph.input(format!("input {i}"), shape.clone());
            let own: Vec<NodeId> = shapes.iter().enumerate().map(input).collect();
            build(importer, &own)
        })?;
        match body.captures.is_empty() {
            true => Ok(body.graph),
            false => {
                Err(Error::new(ErrorKind::Internal, "a body that is made here used a value from outside"))
            }
        }
    }

    /// A body with the outputs that `build` gives, while the graph being imported is the body's. What `build` uses from outside becomes
    /// inputs behind those that it adds first.
    pub fn in_body(
        &mut self,
        name: &str,
        build: impl FnOnce(&mut Self) -> Result<Vec<NodeId>, Error>,
    ) -> Result<ImportedBody, Error> {
        if self.bodies.len() >= MOST_BODIES {
            return Err(Error::new(ErrorKind::Malformed, "bodies of control flow nest too deep"));
        }
        self.visit_many(NODES_OF_BODY)?;
        let mut graph = Graph::new(name);
        graph.take_symbol_ranges(&self.graph);
        // A separate table of origins: with a copy of the outer one, memory would be quadratic in the number of bodies.
        let outer = self.origin;
        let described = self.graph.origins().describe(outer);
        self.origin = described.map_or(OriginId::NONE, |text| graph.origins_mut().source(text));
        let around = std::mem::replace(&mut self.graph, graph);
        self.bodies.push(OpenBody { around, here: HashMap::new(), captures: Vec::new() });
        self.mentioned.get_mut().truncate(self.bodies.len());
        let made = build(self);
        let Some(open) = self.bodies.pop() else {
            return Err(Error::new(ErrorKind::Internal, "a body was closed twice"));
        };
        let mut graph = std::mem::replace(&mut self.graph, open.around);
        self.origin = outer;
        graph.set_outputs(made?);
        graph.forget_unmentioned_ranges();
        Ok(ImportedBody { graph, captures: open.captures })
    }

    fn body_outputs(
        &mut self,
        proto: &GraphProto,
        inputs: &[(String, Shape)],
    ) -> Result<(Vec<NodeId>, Vec<NodeId>), Error> {
        let mut own = Vec::with_capacity(inputs.len());
        for (name, shape) in inputs {
            let node = self.graph.input(name.clone(), shape.clone());
            let slot = self.node_slot(node);
            self.define(name, slot)?;
            own.push(node);
        }
        let slots = self.branch_body(proto)?;
        let found = slots.into_iter().map(|slot| self.materialize(slot)).collect::<Result<_, _>>()?;
        Ok((own, found))
    }

    /// A node of the graph being imported, or of one around it.
    pub(super) fn node_of(&self, id: NodeId) -> Option<&Node> {
        self.graphs().find_map(|graph| graph.try_node(id).ok())
    }

    /// What an input of a body stands for that carries a slot from outside.
    pub(super) fn captured(&self, input: NodeId) -> Option<&Slot> {
        let carries =
            |body: &OpenBody| body.here.iter().find(|&(_, &node)| node == input).map(|(&slot, _)| slot);
        self.bodies.iter().rev().find_map(carries).map(|slot| self.slot(slot))
    }

    /// The graph being imported and those around it, innermost first.
    fn graphs(&self) -> impl Iterator<Item = &Graph> {
        std::iter::once(&self.graph).chain(self.bodies.iter().rev().map(|body| &body.around))
    }

    /// Whether the graph being imported, or one around it (a body may yet capture what is there), mentions a symbol.
    pub fn mentions(&self, symbol: u32) -> bool {
        let mut mentioned = self.mentioned.borrow_mut();
        mentioned.resize_with(self.bodies.len() + 1, Mentioned::default);
        let outermost_first = self.bodies.iter().map(|body| &body.around).chain([&self.graph]);
        let found = mentioned.iter_mut().zip(outermost_first).map(|(known, graph)| {
            // Each node is looked at once, however often this is asked.
            let new = graph.nodes().iter().skip(known.nodes);
            known.symbols.extend(new.flat_map(|node| node.symbols()));
            known.nodes = graph.len();
            known.symbols.contains(&symbol)
        });
        found.fold(false, |any, found| any | found)
    }

    /// The input of the body being imported that carries a slot from outside.
    pub(super) fn capture(&mut self, id: SlotId) -> NodeId {
        let shape = self.slot(id).shape.clone();
        let count = self.bodies.last().map_or(0, |body| body.captures.len());
        let node = self.graph.input(format!("captured {count}"), shape);
        if let Some(body) = self.bodies.last_mut() {
            body.captures.push(id);
            body.here.insert(id, node);
        }
        node
    }
}
