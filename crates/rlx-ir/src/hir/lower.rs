//! Lowering: each block becomes ops of the graph language.

use super::{Block, HirModule, HirNode};
use crate::dim::SymRange;
use crate::error::{Error, ErrorKind, Result};
use crate::graph::{Graph, GraphExt, Node, NodeId, fault};
use crate::ops::{Op, Unseen};
use crate::verify::{check_declared, verify_ok};

/// The graph of `module`, verified.
pub(super) fn lower(module: &HirModule) -> Result<Graph> {
    let mut graph = Graph::new(module.name.clone());
    let mut lowered: Vec<NodeId> = Vec::with_capacity(module.len());
    for node in module.nodes() {
        let first = graph.len();
        let id = lower_node(module, node, &lowered, &mut graph).map_err(|e| e.with_node(node.describe()))?;
        let origin = graph.origins_mut().source(format!("hir {}", node.describe()));
        for i in first..graph.len() {
            let id = graph.nodes()[i].id;
            graph.set_origin(id, origin);
        }
        lowered.push(id);
    }
    let outputs = module.outputs.iter().map(|&id| {
        module.try_node(id).map_err(|e| e.with_node("the outputs"))?;
        Ok(lowered[id.index()])
    });
    let outputs = outputs.collect::<Result<_>>()?;
    graph.set_outputs(outputs);
    module.donations.iter().try_for_each(|(input, output)| graph.donate(input, *output))?;
    verify_ok(&graph)?;
    Ok(graph)
}

fn lower_node(module: &HirModule, node: &HirNode, lowered: &[NodeId], g: &mut Graph) -> Result<NodeId> {
    let mut inputs = Vec::with_capacity(node.inputs.len());
    for &id in &node.inputs {
        module.try_node(id)?;
        let known = lowered.get(id.index()).copied();
        inputs.push(known.ok_or_else(|| {
            Error::new(ErrorKind::InvalidGraph, format!("uses {id}, which is not computed before it"))
        })?);
    }
    let id = match &node.block {
        Block::Mir(op) => return lower_op(node, op, inputs, g),
        block => expand(block, &inputs, g)?,
    };
    check_declared(&node.results[0], g.try_shape(id)?, &|_| SymRange::DIM)?;
    Ok(id)
}

/// One op: as it is, but with all its results inferred.
fn lower_op(node: &HirNode, op: &Op, inputs: Vec<NodeId>, g: &mut Graph) -> Result<NodeId> {
    if let Some(error) = fault::error(op) {
        return Err(error);
    }
    let results = g.infer(op, &inputs, &node.results)?;
    for (declared, inferred) in node.results.iter().zip(&results) {
        check_declared(declared, inferred, &|_| SymRange::DIM)?;
    }
    Ok(g.push_node(Node::new(op.clone(), inputs, results)))
}

/// The ops of a block.
fn expand(block: &Block, inputs: &[NodeId], g: &mut Graph) -> Result<NodeId> {
    match (block, inputs) {
        (Block::Linear { activation }, &[x, w, ref bias @ ..]) => {
            let mut y = g.try_mm(x, w)?;
            for &bias in bias {
                y = g.try_add_(y, bias)?;
            }
            match activation {
                Some(f) => g.try_act(*f, y),
                None => Ok(y),
            }
        }
        (Block::Attention { num_heads, head_dim, mask }, inputs) => {
            let (num_heads, head_dim, mask) = (*num_heads, *head_dim, *mask);
            let op =
                Op::Attention { num_heads, head_dim, mask, window: None, scale: None, unseen: Unseen::Zero };
            g.try_emit(op, inputs)
        }
        (Block::SwigluFfn, &[x, up, gate, down]) => {
            let gate = g.try_mm(x, gate)?;
            let gate = g.try_silu(gate)?;
            let up = g.try_mm(x, up)?;
            let hidden = g.try_mul(gate, up)?;
            g.try_mm(hidden, down)
        }
        (Block::RmsNorm { eps }, &[x, gamma, ref beta @ ..]) => norm(g, x, gamma, beta, *eps),
        (Block::ResidualRmsNorm { eps }, &[x, residual, gamma, ref beta @ ..]) => {
            let sum = g.try_add_(x, residual)?;
            norm(g, sum, gamma, beta, *eps)
        }
        (Block::Rope { head_dim, n_rot }, &[x, cos, sin]) => g.try_rope(x, cos, sin, *head_dim, *n_rot),
        (Block::DequantMatMul { axis }, &[x, w, ref params @ ..]) => {
            let to = g.try_shape(x)?.dtype();
            let quantized: Vec<NodeId> = [w].iter().chain(params).copied().collect();
            let w = g.try_emit(Op::Dequantize { axis: *axis, to }, &quantized)?;
            g.try_mm(x, w)
        }
        (block, inputs) => {
            let message = format!("the block {} cannot have {} inputs", block.name(), inputs.len());
            Err(Error::new(ErrorKind::Internal, message))
        }
    }
}

fn norm(g: &mut Graph, x: NodeId, gamma: NodeId, beta: &[NodeId], eps: f32) -> Result<NodeId> {
    let mut y = g.try_rms_norm(x, gamma, eps)?;
    for &beta in beta {
        y = g.try_add_(y, beta)?;
    }
    Ok(y)
}
