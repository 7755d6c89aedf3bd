//! A module whose init program and run are one step each, as a device runs it that compiles whole graphs.
//!
//! What depends on parameters alone, and on no symbol, is the init step: folded batch norms, casts, merged weights. It is computed
//! once, kept, and shared like that of any other device. Movement at its end stays in the run, where it costs a graph compiler
//! nothing, so that an expanded bias is not kept in full.

use std::collections::HashMap;
use std::sync::Arc;

use rlx_ir::lir::{Buffer, BufferId, BufferKind, IoSlot, Operand, Step, StepKind, View};
use rlx_ir::op::Body;
use rlx_ir::{DataSymbols, Error, ErrorKind, Graph, LirModule, Node, NodeId, Op, Result, Shape, bound_of};
use rlx_opt::PoolSpec;
use rlx_opt::facts::fixed_nodes;
use rlx_opt::lower::live_ranges;
use rlx_opt::passes::legalize::needs_no_kernel;
use rlx_opt::plan::plan_memory;

/// The module with one step for what is computed once, if there is any that `once` names, and one for the run.
///
/// # Errors
/// [`ErrorKind::Internal`] for a graph that is not the module's; memory that cannot be planned.
pub(super) fn module(lir: &LirModule, spec: PoolSpec, once: impl Fn(&Node) -> bool) -> Result<LirModule> {
    let graph = &lir.graph;
    let early = early_nodes(graph, once);
    let data = graph.data_symbols();
    let mut parts = Parts { lir, data: &data, buffers: Vec::new(), leaves: HashMap::new() };
    let inputs = parts.slots(&lir.inputs, BufferKind::Input);
    let params = parts.slots(&lir.params, BufferKind::Param);
    let kept = kept_nodes(graph, &early);
    let mut init = Vec::new();
    if !kept.is_empty() {
        init.push(parts.step(&kept, &|id| early[id.index()], BufferKind::Prepared)?);
        let prepared = kept.iter().zip(&init[0].outputs);
        parts.leaves = prepared.map(|(&id, operand)| (id, operand.clone())).collect();
    }
    let mut run = parts.step(&graph.outputs, &|_| true, BufferKind::Arena)?;
    let mut outputs = Vec::with_capacity(lir.outputs.len());
    for (at, (slot, operand)) in lir.outputs.iter().zip(&mut run.outputs).enumerate() {
        if let Some(input) = lir.donated(at) {
            // The buffer it would have had stays unused.
            operand.buffer = inputs[input].operand.buffer;
        }
        outputs.push(IoSlot { operand: operand.clone(), ..slot.clone() });
    }
    let steps = vec![run];
    let live_ranges = live_ranges(&parts.buffers, &steps, &outputs);
    let mut module = LirModule {
        name: lir.name.clone(),
        graph: graph.clone(),
        rules: lir.rules.clone(),
        symbols: lir.symbols.clone(),
        buffers: parts.buffers,
        init,
        steps,
        live_ranges,
        inputs,
        params,
        outputs,
        plan: None,
    };
    let bounds = lir.plan.as_ref().map(|plan| &plan.bounds);
    module.plan = bounds.map(|bounds| plan_memory(&module, bounds, spec)).transpose()?;
    Ok(module.hold_extents())
}

/// Which nodes are computed once: they depend on a parameter, on no input, and on no symbol; and of what they end in, no movement.
fn early_nodes(graph: &Graph, once: impl Fn(&Node) -> bool) -> Vec<bool> {
    let mut early = fixed_nodes(graph);
    let mut of_param = vec![false; graph.len()];
    for node in graph.nodes() {
        let at = node.id.index();
        of_param[at] =
            matches!(node.op, Op::Param { .. }) || node.inputs.iter().any(|id| of_param[id.index()]);
        let leaf = node.inputs.is_empty();
        let known = node.symbols().is_empty()
            && node.inputs.iter().all(|id| early[id.index()] || graph.node(*id).inputs.is_empty());
        early[at] &= of_param[at] && !leaf && known && once(node);
    }
    let mut used_early = vec![false; graph.len()];
    for node in graph.nodes().iter().rev() {
        let at = node.id.index();
        early[at] &= used_early[at] || !needs_no_kernel(&node.op) || matches!(node.op, Op::Concat { .. });
        if early[at] {
            node.inputs.iter().for_each(|id| used_early[id.index()] = true);
        }
    }
    early
}

/// Those of them that the run reads.
fn kept_nodes(graph: &Graph, early: &[bool]) -> Vec<NodeId> {
    let mut read = vec![false; graph.len()];
    let late = graph.nodes().iter().filter(|node| !early[node.id.index()]);
    late.flat_map(|node| &node.inputs).chain(&graph.outputs).for_each(|id| read[id.index()] = true);
    graph.nodes().iter().map(|node| node.id).filter(|id| read[id.index()] && early[id.index()]).collect()
}

/// What the steps are made of.
struct Parts<'m> {
    lir: &'m LirModule,
    /// What nodes of its graph count.
    data: &'m DataSymbols,
    buffers: Vec<Buffer>,
    /// Nodes that a body takes instead of computing them: what the init step gave.
    leaves: HashMap<NodeId, Operand>,
}

impl Parts<'_> {
    fn buffer(&mut self, kind: BufferKind, shape: &Shape) -> Operand {
        let view = View::dense(shape.dims());
        let buffer = BufferId(self.buffers.len() as u32);
        // A value has room for as many elements as it can be.
        let elements = view.elements().upper(&bound_of(self.data));
        self.buffers.push(Buffer { kind, dtype: shape.dtype(), elements, format: None });
        Operand { buffer, view: Arc::new(view), dtype: shape.dtype() }
    }

    fn slots(&mut self, slots: &[IoSlot], kind: fn(usize) -> BufferKind) -> Vec<IoSlot> {
        let slot = |(at, slot): (usize, &IoSlot)| {
            let operand = self.buffer(kind(at), &slot.shape);
            IoSlot { operand, ..slot.clone() }
        };
        slots.iter().enumerate().map(slot).collect()
    }

    /// The step that computes `outputs` from what is given, of the nodes that `part` has.
    fn step(&mut self, outputs: &[NodeId], part: &dyn Fn(NodeId) -> bool, kind: BufferKind) -> Result<Step> {
        let graph = &self.lir.graph;
        let needed = self.needed(outputs);
        let mut body = Graph::new(graph.name.clone());
        body.origins_mut().clone_from(graph.origins());
        body.take_symbol_ranges(graph);
        let (mut map, mut inputs): (HashMap<NodeId, NodeId>, Vec<Operand>) = Default::default();
        for node in graph.nodes().iter().filter(|node| needed[node.id.index()]) {
            let leaf = self.leaf(node);
            debug_assert!(leaf.is_some() || node.inputs.is_empty() || part(node.id));
            let mut copy = match &leaf {
                Some((name, _)) => {
                    Node::new(Op::Input { name: name.clone() }, Vec::new(), vec![node.shape.clone()])
                }
                None => {
                    let of = node.inputs.iter().map(|id| map.get(id).copied()).collect::<Option<_>>();
                    let of = of.ok_or_else(|| Error::new(ErrorKind::Internal, "a node before its inputs"))?;
                    Node::new(node.op.clone(), of, node.results().to_vec())
                }
            };
            copy = copy.with_name(node.name.clone()).with_origin(node.origin);
            inputs.extend(leaf.map(|(_, operand)| operand));
            map.insert(node.id, body.push_node(copy));
        }
        let found = outputs.iter().map(|id| map.get(id).copied()).collect::<Option<Vec<_>>>();
        body.set_outputs(found.ok_or_else(|| Error::new(ErrorKind::Internal, "an output of no node"))?);
        if kind == BufferKind::Arena {
            self.donate(&mut body)?;
        }
        let shapes: Vec<Shape> = outputs.iter().map(|&id| graph.shape(id).clone()).collect();
        let results = shapes.iter().map(|shape| self.buffer(kind.clone(), shape)).collect();
        let node = outputs.last().copied().or_else(|| graph.nodes().last().map(|node| node.id));
        let node = node.ok_or_else(|| Error::new(ErrorKind::Internal, "a module without nodes"))?;
        let body = Arc::new(Body { graph: body });
        Ok(Step { kind: StepKind::Op(Op::Region { body }), inputs, outputs: results, node })
    }

    /// The nodes that `outputs` are computed from, up to what is given, and those that count what these mention. All inputs and
    /// parameters that they reach, no others.
    fn needed(&self, outputs: &[NodeId]) -> Vec<bool> {
        let graph = &self.lir.graph;
        let mut needed = vec![false; graph.len()];
        let mut open = outputs.to_vec();
        while let Some(id) = open.pop() {
            if !std::mem::replace(&mut needed[id.index()], true) && !self.leaves.contains_key(&id) {
                let node = graph.node(id);
                open.extend(&node.inputs);
                if !self.data.is_empty() {
                    let by = |symbol| self.data.iter().find(|data| data.symbol == symbol);
                    node.each_symbol(&mut |symbol| open.extend(by(symbol).map(|data| data.node)));
                }
            }
        }
        needed
    }

    /// Where a node is that the body takes, with the name of its input there.
    fn leaf(&self, node: &Node) -> Option<(String, Operand)> {
        let slot = |slots: &[IoSlot], name: &String| slots.iter().position(|slot| slot.name == *name);
        let at = match &node.op {
            Op::Input { name } => (slot(&self.lir.inputs, name)?, name.clone()),
            Op::Param { name } => {
                (self.lir.inputs.len() + slot(&self.lir.params, name)?, format!("parameter {name}"))
            }
            _ => {
                let operand = self.leaves.get(&node.id)?;
                return Some((format!("prepared {}", operand.buffer.index()), operand.clone()));
            }
        };
        // Inputs and parameters have the first buffers.
        let buffer = &self.buffers[at.0];
        let view = Arc::new(View::dense(node.shape.dims()));
        let operand = Operand { buffer: BufferId(at.0 as u32), view, dtype: buffer.dtype };
        Some((at.1, operand))
    }

    /// The donations that the module makes.
    fn donate(&self, body: &mut Graph) -> Result<()> {
        for output in 0..self.lir.outputs.len() {
            let name = self.lir.donated(output).map(|input| self.lir.inputs[input].name.clone());
            let taken = |name: &String| {
                body.inputs().any(|node| matches!(&node.op, Op::Input { name: input } if input == name))
            };
            if let Some(name) = name.filter(taken) {
                body.donate(&name, output)?;
            }
        }
        Ok(())
    }
}
