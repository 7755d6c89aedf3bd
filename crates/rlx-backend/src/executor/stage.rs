//! Where a module's steps find dimensions out: see [`super::data_dependent`].

use std::collections::HashMap;

use rlx_ir::{Error, ErrorKind, Extent, LirModule, Result, bound_of};

use crate::extents::ExtentTable;

/// What follows from one step that counts.
#[derive(Debug)]
pub(super) struct Stage {
    /// The step.
    pub(super) step: usize,
    /// The symbols that it binds, in the order in which it finds them. It is one, unless the step is a whole graph.
    pub(super) symbols: Vec<DataSymbol>,
    /// The places of the table that mention one of them.
    pub(super) slots: Vec<u32>,
    /// The later steps whose last unknown one of them is.
    pub(super) later: Vec<usize>,
}

/// A symbol that a step binds.
#[derive(Debug)]
pub(super) struct DataSymbol {
    pub(super) symbol: u32,
    /// Its number among all that steps bind.
    pub(super) at: usize,
    /// What it is at most, over the symbols that a run is given.
    pub(super) bound: Extent,
}

/// The stages of a module, in the order of their steps.
#[derive(Debug, Default)]
pub(super) struct Stages {
    pub(super) list: Vec<Stage>,
    /// The number of a symbol among those that steps bind.
    pub(super) by_symbol: HashMap<u32, usize>,
}

impl Stages {
    /// Where the steps of a module find dimensions out.
    pub(super) fn new(lir: &LirModule, table: &ExtentTable) -> Result<Stages> {
        let by_symbol = lir.data_symbols().into_iter().zip(0..).collect();
        let mut stages = Stages { by_symbol, list: Vec::new() };
        if stages.by_symbol.is_empty() {
            return Ok(stages);
        }
        let data = lir.graph.data_symbols();
        let (mut slots, mut stage_of) = (table.mentioning(), HashMap::new());
        for (step, counting) in lir.steps.iter().enumerate() {
            let mut stage = Stage { step, symbols: Vec::new(), slots: Vec::new(), later: Vec::new() };
            for symbol in counting.data_symbols() {
                let bound = bound_of(&data)(symbol).zip(stages.by_symbol.get(&symbol).copied());
                let (bound, at) = bound.ok_or_else(|| {
                    Error::new(ErrorKind::Internal, "a step counts what no node of the graph does")
                })?;
                stage.symbols.push(DataSymbol { symbol, at, bound });
                stage.slots.extend(slots.remove(&symbol).unwrap_or_default());
                stage_of.insert(symbol, stages.list.len());
            }
            if !stage.symbols.is_empty() {
                stage.slots.sort_unstable();
                stage.slots.dedup();
                stages.list.push(stage);
            }
        }
        for (at, step) in lir.steps.iter().enumerate() {
            // What a step binds itself it does not wait for.
            let own = stages.list.iter().position(|stage| stage.step == at);
            let mut last = None;
            step.each_symbol(&mut |symbol| {
                let of = stage_of.get(&symbol).copied();
                if of != own {
                    last = last.max(of);
                }
            });
            if let Some(last) = last {
                stages.list[last].later.push(at);
            }
        }
        Ok(stages)
    }

    /// Gives symbols the numbers that they have in `shown`, another form of the module.
    pub(super) fn number_as(&mut self, shown: &LirModule) {
        self.by_symbol = shown.data_symbols().into_iter().zip(0..).collect();
        for symbol in self.list.iter_mut().flat_map(|stage| &mut stage.symbols) {
            let next = self.by_symbol.len();
            symbol.at = *self.by_symbol.entry(symbol.symbol).or_insert(next);
        }
    }

    /// Which of so many steps are bound within a run, not before it.
    pub(super) fn waits(&self, steps: usize) -> Vec<bool> {
        let mut waits = vec![false; steps];
        self.list.iter().flat_map(|stage| &stage.later).for_each(|&step| waits[step] = true);
        waits
    }
}
