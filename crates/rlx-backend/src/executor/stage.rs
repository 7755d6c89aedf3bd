//! Where a module's steps find dimensions out: see [`super::data_dependent`].

use rlx_ir::{Error, ErrorKind, Extent, LirModule, Result, bound_of};

use crate::extents::ExtentTable;

/// What follows from one step that counts.
#[derive(Debug)]
pub(super) struct Stage {
    /// The step.
    pub(super) step: usize,
    /// The symbol that it binds.
    pub(super) symbol: u32,
    /// What that is at most, over the symbols that a run is given.
    pub(super) bound: Extent,
    /// The places of the table that mention it.
    pub(super) slots: Vec<u32>,
    /// The later steps whose last unknown it is.
    pub(super) later: Vec<usize>,
}

/// The stages of a module, in the order of their steps.
pub(super) fn stages(lir: &LirModule, table: &ExtentTable) -> Result<Vec<Stage>> {
    let data = lir.graph.data_symbols();
    let mut stages = Vec::new();
    for (step, symbol) in lir.steps.iter().enumerate().filter_map(|(i, s)| Some((i, s.data_symbol()?))) {
        let bound = bound_of(&data)(symbol)
            .ok_or_else(|| Error::new(ErrorKind::Internal, "a step counts what no node of the graph does"))?;
        let slots = table.mentioning(symbol);
        stages.push(Stage { step, symbol, bound, slots, later: Vec::new() });
    }
    if stages.is_empty() {
        return Ok(stages);
    }
    for (at, step) in lir.steps.iter().enumerate() {
        let symbols = step.symbols();
        // What a step binds itself it does not wait for.
        let last = stages.iter_mut().rev().find(|s| s.step != at && symbols.contains(&s.symbol));
        if let Some(stage) = last {
            stage.later.push(at);
        }
    }
    Ok(stages)
}
