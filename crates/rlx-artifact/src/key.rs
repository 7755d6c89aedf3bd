//! Keys of cache entries: a hash of everything that an entry's code depends on.

use rlx_ir::decompose::{can_decompose, decompose_nodes};
use rlx_ir::{Graph, Node, Op, graph_hash};
use rlx_opt::Target;

use crate::layout::{ArtefactTarget, Digest, FORMAT};

/// Decompositions whose bodies have custom ops that decompose: more levels than this do not end.
const MAX_DEPTH: usize = 16;

/// The key of an entry, part by part: a hash of everything that its code depends on.
#[derive(Debug, Clone)]
pub struct Key(blake3::Hasher);

impl Key {
    /// A key of an entry of this `kind`, compiled for `target`.
    pub fn new(kind: &str, target: &ArtefactTarget) -> Self {
        // Every field is named, so that a new one cannot be forgotten.
        let ArtefactTarget { device, machine, version, precision, options } = target;
        [kind, device, machine, version, precision, options]
            .into_iter()
            .fold(Key(blake3::Hasher::new()).part(&FORMAT.to_le_bytes()), |key, part| {
                key.part(part.as_bytes())
            })
    }

    /// The key with another part; parts cannot run into each other.
    pub fn part(mut self, bytes: &[u8]) -> Self {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    /// The key with a graph: what it computes, the shapes of its weights, and the names of its outputs and of what its
    /// nodes come from, which the graph's hash leaves out.
    pub fn graph(self, graph: &Graph, target: &dyn Target) -> Self {
        let key = self.part(graph.name.as_bytes()).part(&graph_hash(graph).0).custom(graph, target, 0);
        let key = key.origins(graph);
        graph.outputs.iter().fold(key, |key, &id| {
            let name = graph.nodes().get(id.index()).and_then(|n| n.name.as_deref());
            key.part(name.unwrap_or_default().as_bytes())
        })
    }

    /// The key with the names of what the nodes of the graph and of its bodies come from.
    fn origins(self, graph: &Graph) -> Self {
        graph.nodes().iter().fold(self, |key, node| {
            let names = graph.origins().names(node.origin).into_iter();
            let key = names.fold(key, |key, name| key.part(name.as_bytes()));
            node.op.bodies().into_iter().fold(key, |key, body| key.origins(&body.graph))
        })
    }

    /// The key with what custom ops of the graph and of its bodies become: whether the device has a kernel for each,
    /// and what they decompose into. Both are this process's, not this version's.
    fn custom(self, graph: &Graph, target: &dyn Target, depth: usize) -> Self {
        let is_custom = |node: &Node| matches!(node.op, Op::Custom { .. });
        let mut key = self;
        for node in graph.nodes() {
            if is_custom(node) {
                key = key.part(format!("{:?}", target.claim(node, graph)).as_bytes());
            }
            for body in node.op.bodies() {
                key = key.custom(&body.graph, target, depth);
            }
        }
        // A decomposition that fails or does not end is the compiler's to report. Those of the others count nevertheless.
        let simpler = decompose_nodes(graph, |node, graph| is_custom(node) && can_decompose(graph, node));
        match simpler {
            // Bodies of decompositions may have custom ops, too.
            Ok(Some(simpler)) if depth < MAX_DEPTH => {
                key.part(&graph_hash(&simpler).0).custom(&simpler, target, depth + 1)
            }
            Ok(_) | Err(_) => key,
        }
    }

    /// The hash of all parts so far.
    pub fn digest(&self) -> Digest {
        *self.0.finalize().as_bytes()
    }
}
