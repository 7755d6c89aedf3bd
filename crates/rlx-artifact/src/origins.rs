//! Where a stored graph's nodes came from: the names that messages, profiles and `inspect` show.
//!
//! The text form leaves them out, because they are no part of what a graph computes.

use std::collections::HashMap;

use rlx_ir::{Graph, NodeId, OriginId, Result};
use serde::{Deserialize, Serialize};

use crate::layout::malformed;

/// The origins of a graph's nodes: each name and each set of names once.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OriginsRecord {
    names: Vec<String>,
    /// Positions in `names`.
    sets: Vec<Vec<u32>>,
    /// For each node, the position of its set plus one; 0 when nothing is known.
    nodes: Vec<u32>,
}

impl OriginsRecord {
    /// Those of `graph`.
    pub(crate) fn of(graph: &Graph) -> Self {
        let mut record = OriginsRecord::default();
        let (mut sets, mut places) = (HashMap::new(), HashMap::new());
        for node in graph.nodes() {
            let next = sets.len() as u32 + 1;
            let set = match node.origin {
                OriginId::NONE => 0,
                origin => *sets.entry(origin).or_insert(next),
            };
            if set == next {
                let names = graph.origins().names(node.origin).into_iter();
                record
                    .sets
                    .push(names.map(|name| record_name(&mut record.names, &mut places, name)).collect());
            }
            record.nodes.push(set);
        }
        record
    }

    /// Gives the nodes of `graph` these origins.
    ///
    /// # Errors
    /// [`rlx_ir::ErrorKind::Malformed`] for a record that is not of a graph of this size.
    pub(crate) fn restore(self, graph: &mut Graph) -> Result<()> {
        if self.nodes.len() != graph.len() {
            return Err(malformed(format!("origins of {} nodes for {}", self.nodes.len(), graph.len())));
        }
        let sources: Vec<OriginId> =
            self.names.into_iter().map(|name| graph.origins_mut().source(name)).collect();
        let mut sets = vec![OriginId::NONE];
        for set in self.sets {
            let source = |&at: &u32| sources.get(at as usize).copied();
            let parts: Option<Vec<OriginId>> = set.iter().map(source).collect();
            let parts = parts.ok_or_else(|| malformed("a set of origins without a name"))?;
            sets.push(graph.origins_mut().merge(parts));
        }
        let ids: Vec<NodeId> = graph.nodes().iter().map(|node| node.id).collect();
        for (id, set) in ids.into_iter().zip(self.nodes) {
            let origin =
                sets.get(set as usize).ok_or_else(|| malformed(format!("no set of origins {set}")))?;
            graph.set_origin(id, *origin);
        }
        Ok(())
    }
}

fn record_name<'g>(names: &mut Vec<String>, places: &mut HashMap<&'g str, u32>, name: &'g str) -> u32 {
    let next = names.len() as u32;
    let at = *places.entry(name).or_insert(next);
    if at == next {
        names.push(name.to_owned());
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_ir::{DType, GraphExt, Shape};

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
        ] {
            let error = forged.restore(&mut relu_twice()).unwrap_err();
            assert_eq!(error.kind(), rlx_ir::ErrorKind::Malformed);
        }
    }
}
