//! Keys of cache entries: a hash of all that an entry's code depends on.

use rlx_ir::decompose::decompose_all;
use rlx_ir::{Graph, Op, OpKind, graph_hash};
use rlx_opt::CompileOptions;

use super::layout::{ArtefactTarget, Digest, FORMAT};

/// What a key is the hash of, part by part.
pub(super) struct Key(blake3::Hasher);

impl Key {
    /// A key of an entry of this `kind`, compiled for `target`.
    pub(super) fn new(kind: &str, target: &ArtefactTarget) -> Self {
        // Every field is named, so that a new one cannot be forgotten.
        let ArtefactTarget { device, machine, version, precision, options } = target;
        [kind, device, machine, version, precision, options]
            .into_iter()
            .fold(Key(blake3::Hasher::new()).part(&FORMAT.to_le_bytes()), |key, part| {
                key.part(part.as_bytes())
            })
    }

    /// The key with another part; parts cannot run into each other.
    pub(super) fn part(mut self, bytes: &[u8]) -> Self {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    /// The key with a graph: what it computes, the shapes of its weights, and the names of its outputs, which the
    /// graph's hash leaves out.
    pub(super) fn graph(self, graph: &Graph) -> Self {
        let key = self.part(graph.name.as_bytes()).part(&graph_hash(graph).0).outside(graph);
        graph.outputs.iter().fold(key, |key, &id| {
            let name = graph.nodes().get(id.index()).and_then(|n| n.name.as_deref());
            key.part(name.unwrap_or_default().as_bytes())
        })
    }

    /// The key with what ops from outside are made of: their code is not this version's.
    fn outside(self, graph: &Graph) -> Self {
        let key =
            graph.nodes().iter().flat_map(|n| n.op.bodies()).fold(self, |k, body| k.outside(&body.graph));
        if !graph.nodes().iter().any(|n| matches!(n.op, Op::Custom { .. })) {
            return key;
        }
        // A decomposition that fails is the compiler's to report.
        match decompose_all(graph, |kind| kind == OpKind::Custom) {
            Ok(Some(simpler)) => key.part(&graph_hash(&simpler).0),
            Ok(None) | Err(_) => key,
        }
    }

    pub(super) fn digest(&self) -> Digest {
        *self.0.finalize().as_bytes()
    }
}

/// The target's options with this binding.
pub(super) fn bound(options: &CompileOptions, binding: &rlx_ir::DimBinding) -> CompileOptions {
    CompileOptions { dim_binding: binding.clone(), ..options.clone() }
}
