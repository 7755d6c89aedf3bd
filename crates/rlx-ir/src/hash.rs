//! The stable hash of a graph: the same for equal graphs in every process, on every machine.

use crate::graph::Graph;
use crate::text::TextWriter;

/// 32 bytes that name a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GraphHash(pub [u8; 32]);

impl std::fmt::Display for GraphHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// The hash of the graph's text form without node names: names of nodes and origins do not count,
/// everything that decides the result does (constants by their content).
pub fn graph_hash(graph: &Graph) -> GraphHash {
    let mut w = TextWriter::for_hash();
    w.graph(graph);
    GraphHash(*blake3::hash(w.finish().as_bytes()).as_bytes())
}
