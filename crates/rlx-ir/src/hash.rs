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

/// The hash of these parts, each apart from the next.
///
/// ```
/// use rlx_ir::hash::hash_of;
/// assert_eq!(hash_of(["a", "bc"]), hash_of(["a", "bc"]));
/// assert_ne!(hash_of(["a", "bc"]), hash_of(["ab", "c"]));
/// ```
pub fn hash_of<T: AsRef<[u8]>>(parts: impl IntoIterator<Item = T>) -> GraphHash {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        let bytes = part.as_ref();
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    }
    GraphHash(*hasher.finalize().as_bytes())
}

/// The hash of the graph's text form without node names: names of nodes and origins do not count,
/// everything that decides the result does (constants by their content).
pub fn graph_hash(graph: &Graph) -> GraphHash {
    let mut w = TextWriter::for_hash();
    w.graph(graph);
    GraphHash(*blake3::hash(w.finish().as_bytes()).as_bytes())
}
