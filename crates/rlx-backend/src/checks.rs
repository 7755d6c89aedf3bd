//! Relations between symbolic dimensions, checked whenever they get values.
//!
//! Views and kernels rely on what a graph declares: a reshape of `[a, b]` to `[c]` holds only where `c = a·b`. What is
//! not proved for all values is in [`LirModule::rules`]; a module that did not come from the compiler may lack some, so
//! those of its scheduled graph are collected again.

use std::collections::HashMap;

use rlx_ir::graph::{SymbolValues, open_rules, rule_holds};
use rlx_ir::{Error, ErrorKind, Graph, LirModule, NodeId, Result, sym};

/// The shape rules that a run of a module checks for its dimensions.
#[derive(Debug)]
pub struct ShapeRules {
    rules: Graph,
    /// By the symbol that must be found before they can be evaluated: the last of those a rule mentions that steps bind,
    /// `None` where it mentions none.
    by_symbol: HashMap<Option<u32>, Vec<NodeId>>,
}

impl ShapeRules {
    /// The rules of a verified module.
    pub fn new(lir: &LirModule) -> ShapeRules {
        let rules = open_rules(&[&lir.rules, &lir.graph]);
        let found: HashMap<u32, usize> = lir.data_symbols().into_iter().zip(0..).collect();
        let waits_for = |id: NodeId| {
            let node = rules.node(id);
            // What a node counts itself has its upper bound until then, which its kernel relies on.
            let own = node.op.data_symbol();
            let mut last = None;
            rules.symbols_of_rule(node, &mut |s| {
                if Some(s) != own {
                    last = last.max(found.get(&s).map(|&at| (at, s)));
                }
            });
            last.map(|(_, symbol)| symbol)
        };
        let mut by_symbol: HashMap<Option<u32>, Vec<NodeId>> = HashMap::new();
        rules.outputs.iter().for_each(|&id| by_symbol.entry(waits_for(id)).or_default().push(id));
        ShapeRules { rules, by_symbol }
    }

    /// Whether the rules hold that can be evaluated once `found` is known; `None` is before a run's first step.
    ///
    /// # Errors
    /// [`ErrorKind::Dimension`] naming the node, the shapes and the rule.
    pub fn hold(&self, found: Option<u32>, value: SymbolValues<'_>) -> Result<()> {
        let mut now = self.by_symbol.get(&found).into_iter().flatten();
        now.try_for_each(|&id| rule_holds(&self.rules, self.rules.node(id), value))
    }
}

/// Whether `dims` are values of the module's symbols, each within its range.
///
/// # Errors
/// [`ErrorKind::Dimension`] naming the symbol.
pub fn symbols(lir: &LirModule, dims: &[i64]) -> Result<()> {
    if dims.len() != lir.symbols.len() {
        let message = format!("{} dimensions given for {} symbols", dims.len(), lir.symbols.len());
        return Err(Error::new(ErrorKind::Dimension, message));
    }
    for (&symbol, &value) in lir.symbols.iter().zip(dims) {
        let range = lir.graph.symbol_range(symbol);
        if value < range.min.max(0) || value > range.max {
            let message = format!("{} = {value} is outside {}..={}", sym::name(symbol), range.min, range.max);
            return Err(Error::new(ErrorKind::Dimension, message));
        }
    }
    Ok(())
}
