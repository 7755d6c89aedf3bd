//! Dimensions that steps find out: a run is split behind each step that counts, the symbol gets its value, and the later
//! steps that mention it are bound again, in place.
//!
//! Memory is planned for what a symbol is at most, so nothing moves. Steps that mention no such symbol are bound once for
//! the run's dimensions, as ever.

use rlx_ir::{Error, ErrorKind, Extent, LirModule, Result, bound_of};

use super::Program;
use super::exec::CpuExecutable;
use super::extents::ExtentTable;
use crate::kernels::Needs;

/// What follows from one step that counts.
#[derive(Debug)]
pub(crate) struct Stage {
    /// The step.
    pub(crate) step: usize,
    /// The symbol that it binds.
    symbol: u32,
    /// What that is at most, over the symbols that a run is given.
    bound: Extent,
    /// The places of the table that mention it.
    slots: Vec<u32>,
    /// The later steps whose last unknown it is.
    later: Vec<usize>,
}

/// The stages of a module, in the order of their steps.
pub(crate) fn of(lir: &LirModule, table: &ExtentTable) -> Result<Vec<Stage>> {
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

impl Program {
    /// Whether a step is bound within a run, not before it.
    pub(super) fn waits(&self, step: usize) -> bool {
        self.stages.iter().any(|s| s.later.contains(&step))
    }

    /// Evaluates the table for a run's dimensions, the symbols that steps bind at their bounds. `found` becomes the
    /// values of those.
    pub(super) fn evaluate(&self, dims: &[i64], found: &mut Vec<i64>, values: &mut Vec<i64>) -> Result<()> {
        if self.stages.is_empty() {
            return self.table.eval(&self.lir.symbols, dims, values);
        }
        found.clear();
        let given = |s: u32| Some(dims[self.lir.symbols.binary_search(&s).ok()?]);
        for stage in &self.stages {
            let most = stage.bound.eval(&given).ok_or_else(|| {
                Error::new(ErrorKind::Dimension, format!("the bound {} has no value", stage.bound))
            })?;
            found.push(most);
        }
        let all = |s: u32| match self.stages.iter().position(|stage| stage.symbol == s) {
            Some(i) => Some(found[i]),
            None => given(s),
        };
        self.table.eval_by(&all, values)
    }

    /// Whether the shape rules hold for a run's dimensions, the symbols that steps bind at their bounds.
    pub(super) fn hold_rules(&self, dims: &[i64], found: &[i64]) -> Result<()> {
        let value = |s: u32| match self.stages.iter().position(|stage| stage.symbol == s) {
            Some(i) => found.get(i).copied(),
            None => self.lir.symbols.binary_search(&s).ok().and_then(|i| dims.get(i).copied()),
        };
        self.rules.hold(None, &value).map_err(|e| e.with_device("cpu"))
    }
}

impl CpuExecutable {
    /// A dimension of an output, as the last run had it.
    pub(crate) fn output_dim(&self, output: usize, axis: usize) -> Result<usize> {
        let (program, dims) = (&self.program, self.dims.as_deref().unwrap_or_default());
        let value = |s: u32| match program.stages.iter().position(|stage| stage.symbol == s) {
            Some(i) => self.found.get(i).copied(),
            None => program.lir.symbols.binary_search(&s).ok().and_then(|i| dims.get(i).copied()),
        };
        let graph = &program.lir.graph;
        let dim = graph.outputs.get(output).and_then(|&id| graph.shape(id).dims().get(axis));
        let size = dim.and_then(|d| d.extent().eval(&value)).and_then(|n| usize::try_from(n).ok());
        size.ok_or_else(|| Error::new(ErrorKind::Internal, "a dimension of an output has no value"))
    }

    /// Puts in what stage `at` found, and binds what waited for it. `changed`: whether an earlier stage found something
    /// else than in the last run.
    pub(super) fn found(
        &mut self,
        program: &Program,
        at: usize,
        found: usize,
        changed: bool,
    ) -> Result<bool> {
        let (stage, dims) = (&program.stages[at], self.dims.as_deref().unwrap_or_default());
        let found = i64::try_from(found).unwrap_or(i64::MAX);
        if !changed && self.staged[at] == Some(found) {
            return Ok(false);
        }
        self.staged[at] = None;
        self.found[at] = found;
        let (symbols, all) = (&program.lir.symbols, &self.found);
        let value = |s: u32| match program.stages.iter().position(|stage| stage.symbol == s) {
            Some(i) => Some(all[i]),
            None => symbols.binary_search(&s).ok().map(|i| dims[i]),
        };
        program.table.eval_again(&stage.slots, &value, &mut self.values)?;
        program.rules.hold(Some(stage.symbol), &value).map_err(|e| e.with_device("cpu"))?;
        let mut total = Needs::default();
        for &step in &stage.later {
            self.bind_step(program, step, &mut total)?;
        }
        self.make_room(&total)?;
        self.staged[at] = Some(found);
        Ok(true)
    }
}
