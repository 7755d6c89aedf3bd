//! Where a stored graph's nodes came from: the names that messages, profiles and `inspect` show.
//!
//! The text form leaves them out, because they are no part of what a graph computes.

use std::collections::HashMap;

use rlx_ir::origin::Origins;
use rlx_ir::{Graph, NodeId, OriginId, Result};
use serde::{Deserialize, Serialize};

use crate::layout::malformed;

/// The origins of a graph's nodes and of those in its bodies: each name and each set of names once.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OriginsRecord {
    names: Vec<String>,
    /// Positions in `names`.
    sets: Vec<Vec<u32>>,
    /// For each node, the position of its set plus one; 0 when nothing is known. After a graph's nodes come those of its bodies, in
    /// the order of the nodes: a list and no tree, so that a file cannot nest it deeper than the graph is.
    nodes: Vec<u32>,
}

/// What a record has so far, by what is in it.
#[derive(Default)]
struct Writer<'g> {
    record: OriginsRecord,
    names: HashMap<&'g str, u32>,
    sets: HashMap<Vec<u32>, u32>,
}

impl<'g> Writer<'g> {
    fn graph(&mut self, graph: &'g Graph) {
        // Ids of origins are each graph's own.
        let mut known: HashMap<OriginId, u32> = HashMap::from([(OriginId::NONE, 0)]);
        for node in graph.nodes() {
            let set = match known.get(&node.origin) {
                Some(&set) => set,
                None => self.set(graph.origins().names(node.origin)),
            };
            known.insert(node.origin, set);
            self.record.nodes.push(set);
        }
        for body in graph.nodes().iter().flat_map(|node| node.op.bodies()) {
            self.graph(&body.graph);
        }
    }

    fn set(&mut self, names: Vec<&'g str>) -> u32 {
        let set: Vec<u32> = names.into_iter().map(|name| self.name(name)).collect();
        let next = self.sets.len() as u32 + 1;
        let at = *self.sets.entry(set.clone()).or_insert(next);
        if at == next {
            self.record.sets.push(set);
        }
        at
    }

    fn name(&mut self, name: &'g str) -> u32 {
        let next = self.names.len() as u32;
        let at = *self.names.entry(name).or_insert(next);
        if at == next {
            self.record.names.push(name.to_owned());
        }
        at
    }
}

impl OriginsRecord {
    /// Those of `graph`.
    pub(crate) fn of(graph: &Graph) -> Self {
        let mut writer = Writer::default();
        writer.graph(graph);
        writer.record
    }

    /// Gives the nodes of `graph` and of its bodies these origins.
    ///
    /// # Errors
    /// [`rlx_ir::ErrorKind::Malformed`] for a record that is not of a graph of this size.
    pub(crate) fn restore(self, graph: &mut Graph) -> Result<()> {
        // Each body puts sets together again, so a set that is longer than any graph's could cost much.
        if self.sets.iter().any(|set| set.len() > Origins::MAX_NAMES) {
            return Err(malformed("a set of origins with too many names"));
        }
        let mut nodes = self.nodes.iter();
        self.restore_graph(graph, &mut nodes)?;
        match nodes.len() {
            0 => Ok(()),
            more => Err(malformed(format!("origins of {more} nodes that there are not"))),
        }
    }

    fn restore_graph(&self, graph: &mut Graph, nodes: &mut std::slice::Iter<'_, u32>) -> Result<()> {
        let mut known: HashMap<u32, OriginId> = HashMap::from([(0, OriginId::NONE)]);
        let ids: Vec<NodeId> = graph.nodes().iter().map(|node| node.id).collect();
        for &id in &ids {
            let missing = || malformed(format!("no origin of node {}", id.index()));
            let &set = nodes.next().ok_or_else(missing)?;
            let origin = match known.get(&set) {
                Some(&origin) => origin,
                None => self.origin(graph, set)?,
            };
            known.insert(set, origin);
            graph.set_origin(id, origin);
        }
        for id in ids {
            if !graph.node(id).op.bodies().is_empty() {
                graph.state_body_origins(id, |body| self.restore_graph(body, nodes))?;
            }
        }
        Ok(())
    }

    fn origin(&self, graph: &mut Graph, set: u32) -> Result<OriginId> {
        let none = || malformed(format!("no set of origins {set}"));
        let names = self.sets.get((set as usize).checked_sub(1).ok_or_else(none)?).ok_or_else(none)?;
        let mut parts = Vec::with_capacity(names.len());
        for &at in names {
            let name = self.names.get(at as usize);
            let name = name.ok_or_else(|| malformed("a set of origins without a name"))?;
            parts.push(graph.origins_mut().source(name.clone()));
        }
        Ok(graph.origins_mut().merge(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_ir::op::Body;
    use rlx_ir::{DType, GraphExt, Op, Shape};
    use std::sync::Arc;

    fn relu_twice() -> Graph {
        let mut graph = Graph::new("g");
        let x = graph.input("x", Shape::new(&[2], DType::F32));
        let y = graph.relu(x);
        let z = graph.relu(y);
        graph.set_outputs(vec![z]);
        graph
    }

    #[test]
    fn names_come_back() {
        let mut graph = relu_twice();
        let (a, b) = (graph.origins_mut().source("/a"), graph.origins_mut().source("/b"));
        let both = graph.origins_mut().merge([b, a]);
        let ids: Vec<NodeId> = graph.nodes().iter().map(|n| n.id).collect();
        graph.set_origin(ids[1], a);
        graph.set_origin(ids[2], both);
        let mut back = relu_twice();
        OriginsRecord::of(&graph).restore(&mut back).unwrap();
        let labels = |g: &Graph| g.nodes().iter().map(|n| g.label(n.id)).collect::<Vec<_>>();
        assert_eq!(labels(&back), labels(&graph));
        assert_eq!(labels(&back)[1..], ["/a", "/b (+ a)"]);
    }

    #[test]
    fn names_in_bodies_come_back() {
        let named = |name: &str| {
            let mut graph = relu_twice();
            let origin = graph.origins_mut().source(name);
            let ids: Vec<NodeId> = graph.nodes().iter().map(|n| n.id).collect();
            graph.set_origin(ids[2], origin);
            graph
        };
        let inner = |names: [&str; 2], outer: &str| {
            let [then, otherwise] = names.map(|name| Arc::new(Body { graph: named(name) }));
            let mut graph = Graph::new("outer");
            let condition = graph.input("c", Shape::new(&[], DType::Bool));
            let x = graph.input("x", Shape::new(&[2], DType::F32));
            let op = Op::If { then, otherwise, count: None, chosen: false };
            let y = graph.add_node(op, vec![condition, x, x], Shape::new(&[2], DType::F32));
            let origin = graph.origins_mut().source(outer);
            graph.set_origin(y, origin);
            graph.set_outputs(vec![y]);
            graph
        };
        let graph = inner(["/then/Relu", "/shared"], "/shared");
        let record = OriginsRecord::of(&graph);
        assert_eq!(record.names, ["/shared", "/then/Relu"], "each name once");
        let mut back = inner(["other", "other"], "other");
        record.restore(&mut back).unwrap();
        assert_eq!(OriginsRecord::of(&back), OriginsRecord::of(&graph));
        let node = back.nodes().last().unwrap();
        let labels: Vec<String> =
            node.op.bodies().iter().map(|b| b.graph.label(b.graph.outputs[0])).collect();
        assert_eq!(labels, ["/then/Relu", "/shared"]);
        let mut short = OriginsRecord::of(&graph);
        short.nodes.pop();
        assert_eq!(short.restore(&mut back).unwrap_err().kind(), rlx_ir::ErrorKind::Malformed);
    }

    #[test]
    fn forged_records_are_errors() {
        let record = |names: &[&str], sets: &[&[u32]], nodes: &[u32]| OriginsRecord {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            sets: sets.iter().map(|set| set.to_vec()).collect(),
            nodes: nodes.to_vec(),
        };
        for forged in [
            record(&["a"], &[&[0]], &[0, 1]),
            record(&["a"], &[&[1]], &[0, 1, 1]),
            record(&["a"], &[&[0]], &[0, 1, 2]),
            record(&["a"], &[&[0]], &[0, 1, 1, 1]),
            record(&["a"], &[&[0; 257]], &[0, 1, 1]),
        ] {
            let error = forged.restore(&mut relu_twice()).unwrap_err();
            assert_eq!(error.kind(), rlx_ir::ErrorKind::Malformed);
        }
    }
}
