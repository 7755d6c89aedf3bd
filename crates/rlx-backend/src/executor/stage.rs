//! Where a module's steps find dimensions out: see [`super::data_dependent`].

use std::collections::HashMap;

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
#[derive(Debug, Default)]
pub(super) struct Stages {
    pub(super) list: Vec<Stage>,
    /// The number of the stage that binds a symbol.
    pub(super) by_symbol: HashMap<u32, usize>,
}

impl Stages {
    /// Where the steps of a module find dimensions out.
    pub(super) fn new(lir: &LirModule, table: &ExtentTable) -> Result<Stages> {
        let mut stages = Stages::default();
        let counting = lir.steps.iter().enumerate().filter_map(|(i, s)| Some((i, s.data_symbol()?)));
        let (data, mut slots) = (lir.graph.data_symbols(), rlx_ir::maps::HashMap::default());
        for (step, symbol) in counting {
            if stages.list.is_empty() {
                slots = table.mentioning();
            }
            let bound = bound_of(&data)(symbol).ok_or_else(|| {
                Error::new(ErrorKind::Internal, "a step counts what no node of the graph does")
            })?;
            let slots = slots.remove(&symbol).unwrap_or_default();
            stages.by_symbol.insert(symbol, stages.list.len());
            stages.list.push(Stage { step, symbol, bound, slots, later: Vec::new() });
        }
        if stages.list.is_empty() {
            return Ok(stages);
        }
        for (at, step) in lir.steps.iter().enumerate() {
            // What a step binds itself it does not wait for.
            let own = step.data_symbol();
            let mut last = None;
            step.each_symbol(&mut |symbol| {
                if Some(symbol) != own {
                    last = last.max(stages.by_symbol.get(&symbol).copied());
                }
            });
            if let Some(last) = last {
                stages.list[last].later.push(at);
            }
        }
        Ok(stages)
    }

    /// Which of so many steps are bound within a run, not before it.
    pub(super) fn waits(&self, steps: usize) -> Vec<bool> {
        let mut waits = vec![false; steps];
        self.list.iter().flat_map(|stage| &stage.later).for_each(|&step| waits[step] = true);
        waits
    }
}
