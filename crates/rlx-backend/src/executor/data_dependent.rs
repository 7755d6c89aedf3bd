//! Dimensions that steps find out: a run is split behind each step that counts, the symbol gets its value, and the later
//! steps that mention it are bound again, in place.
//!
//! Memory is planned for what a symbol is at most, so nothing moves. Steps that mention no such symbol are bound once for
//! the run's dimensions, as ever.

use rlx_ir::{Error, ErrorKind, Result};

use super::api::DeviceApi;
use super::binding::Binding;
use super::program::Program;
use crate::extents::Values;

impl<D: DeviceApi> Program<D> {
    /// Evaluates the table for a run's dimensions, the symbols that steps bind at their bounds. `found` becomes the
    /// values of those.
    pub(super) fn evaluate(&self, dims: &[i64], found: &mut Vec<i64>, values: &mut Vec<i64>) -> Result<()> {
        if self.stages.list.is_empty() {
            return self.table.eval(&self.lir.symbols, dims, values);
        }
        found.clear();
        found.resize(self.stages.by_symbol.len(), 0);
        let given = |s: u32| Some(dims[self.lir.symbols.binary_search(&s).ok()?]);
        for symbol in self.stages.list.iter().flat_map(|stage| &stage.symbols) {
            found[symbol.at] = symbol.bound.eval(&given).ok_or_else(|| {
                Error::new(ErrorKind::Dimension, format!("the bound {} has no value", symbol.bound))
            })?;
        }
        self.table.eval_by(&|s| self.value(dims, found, s), values)
    }

    /// Whether the shape rules hold for a run's dimensions, the symbols that steps bind at their bounds.
    pub(super) fn hold_rules(&self, dims: &[i64], found: &[i64]) -> Result<()> {
        self.rules.hold(None, &|s| self.value(dims, found, s)).map_err(|e| e.with_device(self.device.name()))
    }

    /// The value of a symbol.
    pub(super) fn value(&self, dims: &[i64], found: &[i64], symbol: u32) -> Option<i64> {
        match self.stages.by_symbol.get(&symbol).copied() {
            Some(i) => found.get(i).copied(),
            None => self.lir.symbols.binary_search(&symbol).ok().and_then(|i| dims.get(i).copied()),
        }
    }

    /// Puts in what stage `at` found, and binds what waited for it. `changed`: whether an earlier stage found something
    /// else than in the last run.
    pub(super) fn found(
        &self,
        queue: &mut D::Queue,
        binding: &mut Binding<D>,
        at: usize,
        found: &[usize],
        changed: bool,
    ) -> Result<bool> {
        let stage = &self.stages.list[at];
        if found.len() != stage.symbols.len() {
            let message = format!("a step found {} sizes of {}", found.len(), stage.symbols.len());
            return Err(Error::new(ErrorKind::Internal, message));
        }
        let mut same = !changed && binding.staged[at];
        binding.staged[at] = false;
        for (symbol, &found) in stage.symbols.iter().zip(found) {
            let found = i64::try_from(found).unwrap_or(i64::MAX);
            same &= std::mem::replace(&mut binding.found[symbol.at], found) == found;
        }
        if !same {
            self.bind_found(queue, binding, at)?;
        }
        binding.staged[at] = true;
        Ok(!same)
    }

    /// Binds what waited for stage `at` to what was found.
    fn bind_found(&self, queue: &mut D::Queue, binding: &mut Binding<D>, at: usize) -> Result<()> {
        let stage = &self.stages.list[at];
        let value = |s: u32| self.value(&binding.dims, &binding.found, s);
        self.table.eval_again(&stage.slots, &value, &mut binding.values)?;
        for symbol in &stage.symbols {
            let held = self.rules.hold(Some(symbol.symbol), &value);
            held.map_err(|e| e.with_device(self.device.name()))?;
        }
        let values = Values(&binding.values);
        for &step in &stage.later {
            let of = &self.steps[step];
            let bound = self.device.bind(&mut binding.sequence, step, of, &values);
            bound.map_err(|e| self.locate(of.node, e))?;
        }
        self.device.seal(queue, &mut binding.sequence)
    }
}
