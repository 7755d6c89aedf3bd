//! Symbols that a graph binds itself: the dimensions that its counting ops find out.

use std::ops::Deref;

use super::{Graph, Node, NodeId, ShapeRefs};
use crate::dim::{Dim, Extent};
use crate::error::{Error, ErrorKind, Result};
use crate::maps::HashMap;
use crate::ops::Op;

/// A symbol whose value a node finds out when it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataSymbol {
    /// The symbol.
    pub symbol: u32,
    /// The node that binds it.
    pub node: NodeId,
    /// What it is at most: an expression over symbols that a run is given.
    pub bound: Extent,
}

/// The symbols that nodes of a graph bind, in the order of the nodes.
#[derive(Debug, Clone, Default)]
pub struct DataSymbols {
    list: Vec<DataSymbol>,
    bounds: HashMap<u32, Extent>,
}

impl DataSymbols {
    fn push(&mut self, symbol: DataSymbol) {
        self.bounds.entry(symbol.symbol).or_insert(symbol.bound);
        self.list.push(symbol);
    }
}

impl Deref for DataSymbols {
    type Target = [DataSymbol];

    fn deref(&self) -> &[DataSymbol] {
        &self.list
    }
}

/// What a symbol of `data` is at most, for [`Extent::upper`].
pub fn bound_of(data: &DataSymbols) -> impl Fn(u32) -> Option<Extent> + '_ {
    |symbol| data.bounds.get(&symbol).copied()
}

impl Op {
    /// The symbol that the op binds when it runs, if it is one that counts.
    pub fn data_symbol(&self) -> Option<u32> {
        match self.def().counted(self) {
            Some(Dim::Dynamic(symbol)) => Some(symbol),
            _ => None,
        }
    }
}

impl Graph {
    /// The symbols that nodes of the graph bind, in the order of the nodes. The graph owns their bounds.
    pub fn data_symbols(&self) -> DataSymbols {
        let mut data = DataSymbols::default();
        for node in self.nodes() {
            let Some(symbol) = node.op.data_symbol() else { continue };
            let inputs: Option<ShapeRefs<'_>> =
                node.inputs.iter().map(|id| self.nodes().get(id.index()).map(|n| &n.shape)).collect();
            let Some(inputs) = inputs else { continue };
            // The verifier reports wrong operands; here nothing must panic.
            if !node.op.def().arity(&node.op).accepts(inputs.len())
                || node.op.def().infer(&node.op, &inputs, &[]).is_err()
            {
                continue;
            }
            let bound = node.op.def().bound(&node.op, &inputs).upper(&bound_of(&data));
            self.held().extent(bound);
            data.push(DataSymbol { symbol, node: node.id, bound });
        }
        data
    }
}

/// Calls `found` with each symbol that a node's attributes and results mention, but for the one it binds; perhaps more than once.
pub(crate) fn mentioned(node: &Node, found: &mut dyn FnMut(u32)) {
    let own = node.op.data_symbol();
    node.each_symbol(&mut |s| {
        if Some(s) != own {
            found(s);
        }
    });
}

/// The rules of symbols that nodes bind: each is bound once, by a node before those that mention it, and no input
/// or parameter has it.
pub(crate) fn check(graph: &Graph) -> Result<()> {
    let wrong =
        |node: &Node, why: String| Err(graph.locate(node.id, Error::new(ErrorKind::InvalidGraph, why)));
    let mut bound: HashMap<u32, NodeId> = HashMap::default();
    for node in graph.nodes() {
        if let Some(symbol) = node.op.data_symbol()
            && bound.insert(symbol, node.id).is_some()
        {
            let name = crate::dim::sym::name(symbol);
            return wrong(node, format!("{name} is bound by another node already"));
        }
    }
    if bound.is_empty() {
        return Ok(());
    }
    for node in graph.nodes() {
        let outside = matches!(node.op, Op::Input { .. } | Op::Param { .. });
        let early = |&(_, by): &(u32, NodeId)| outside || by >= node.id;
        let mut fault = None;
        mentioned(node, &mut |symbol| {
            let by = bound.get(&symbol).map(|&by| (symbol, by));
            fault = fault.or(by.filter(early));
        });
        if let Some((symbol, by)) = fault {
            let name = crate::dim::sym::name(symbol);
            return wrong(node, format!("mentions {name} before {by} binds it"));
        }
    }
    Ok(())
}
