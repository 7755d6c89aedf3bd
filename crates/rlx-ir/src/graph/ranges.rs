//! What is known of the values of a graph's symbols.
//!
//! A body knows as much of them as the graph around it, and a pass makes a graph of thousands of bodies: they share one
//! table until one of them learns more.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::dim::{DimBinding, Held, SymRange};
use crate::graph::Graph;

/// The ranges, by symbol. Owns the symbols' names.
#[derive(Debug, Clone, Default)]
pub(super) struct SymbolRanges {
    ranges: Arc<BTreeMap<u32, SymRange>>,
    /// May own more than `ranges` mentions: what copies of it do.
    held: Held,
}

impl PartialEq for SymbolRanges {
    fn eq(&self, other: &Self) -> bool {
        self.ranges == other.ranges
    }
}

impl SymbolRanges {
    fn of(ranges: BTreeMap<u32, SymRange>) -> SymbolRanges {
        let held = Held::default();
        ranges.keys().for_each(|&symbol| held.symbol(symbol));
        SymbolRanges { ranges: Arc::new(ranges), held }
    }

    /// Without the symbols that `binding` gives values.
    pub(super) fn unbound(&self, binding: &DimBinding) -> SymbolRanges {
        let left = self.ranges.iter().filter(|&(&symbol, _)| binding.get(symbol).is_none());
        SymbolRanges::of(left.map(|(&symbol, &range)| (symbol, range)).collect())
    }
}

impl Graph {
    /// What is known of the symbols' values.
    pub fn symbol_ranges(&self) -> &BTreeMap<u32, SymRange> {
        &self.symbol_ranges.ranges
    }

    /// What is known of one symbol's value.
    pub fn symbol_range(&self, symbol: u32) -> SymRange {
        self.symbol_ranges().get(&symbol).copied().unwrap_or(SymRange::DIM)
    }

    /// States what is known of a symbol's value.
    pub fn set_symbol_range(&mut self, symbol: u32, range: SymRange) {
        self.symbol_ranges.held.symbol(symbol);
        Arc::make_mut(&mut self.symbol_ranges.ranges).insert(symbol, range);
    }

    /// Forgets what is known of symbols that no node mentions: of a model's thousands of symbols, a body mentions few.
    pub fn forget_unmentioned_ranges(&mut self) {
        if self.symbol_ranges().is_empty() {
            return;
        }
        let mut mentioned = BTreeMap::new();
        for node in self.nodes() {
            node.each_symbol(&mut |symbol| {
                if let Some(&range) = self.symbol_ranges().get(&symbol) {
                    mentioned.insert(symbol, range);
                }
            });
        }
        self.symbol_ranges = SymbolRanges::of(mentioned);
    }

    /// States of all symbols what `other` knows, in place of what was known of them.
    ///
    /// ```
    /// use rlx_ir::{Graph, SymRange, sym};
    /// let mut around = Graph::new("model");
    /// around.set_symbol_range(sym::SEQ, SymRange::new(1, 512));
    /// let mut body = Graph::new("body");
    /// body.take_symbol_ranges(&around);
    /// assert_eq!(body.symbol_range(sym::SEQ), SymRange::new(1, 512));
    /// ```
    pub fn take_symbol_ranges(&mut self, other: &Graph) {
        self.symbol_ranges.clone_from(&other.symbol_ranges);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dim::{Dim, sym};
    use crate::{DType, Shape};

    #[test]
    fn a_body_keeps_the_ranges_of_what_it_mentions_and_leaves_those_around_it_alone() {
        let (known, narrow) = (SymRange::new(1, 512), SymRange::new(1, 8));
        let mut around = Graph::new("model");
        [sym::BATCH, sym::SEQ, sym::ROWS].into_iter().for_each(|s| around.set_symbol_range(s, known));
        let mut body = Graph::new("body");
        body.take_symbol_ranges(&around);
        body.input(
            "x",
            Shape::from_dims(
                &[Dim::Dynamic(sym::SEQ), Dim::from(Dim::Dynamic(sym::ROWS).extent() + 1)],
                DType::F32,
            ),
        );
        body.forget_unmentioned_ranges();
        body.set_symbol_range(sym::SEQ, narrow);
        let left: Vec<_> = body.symbol_ranges().iter().map(|(&s, &range)| (s, range)).collect();
        assert_eq!(left, [(sym::SEQ, narrow), (sym::ROWS, known)]);
        assert!([sym::BATCH, sym::SEQ, sym::ROWS].iter().all(|&s| around.symbol_range(s) == known));
        let bound = around.bind(&DimBinding::from_pairs(&[(sym::SEQ, 3)]));
        assert!(!bound.symbol_ranges().contains_key(&sym::SEQ) && bound.symbol_range(sym::ROWS) == known);
    }
}
