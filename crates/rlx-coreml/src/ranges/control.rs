//! The ranges of what control flow computes: of a choice what either branch may give, of a loop what holds for every iteration.
//!
//! What a loop carries is found as an invariant: ranges that hold at first, and that an iteration that begins within them ends within.
//! A guess is made and verified; what is not verified after a few guesses may be any value, and a body that cannot compute with that
//! is not claimed. A value that grows by a bounded step (`x + e`, a counter) is guessed by how often the loop runs.

use rlx_ir::op::{BinaryOp, Body};
use rlx_ir::{DType, Graph, NodeId, Op};

use super::{Range, Ranges};

/// How many guesses are made.
const GUESSES: usize = 4;

/// How often a loop runs at most.
#[derive(Debug, Clone, Copy)]
pub struct Trips(i128);

impl Trips {
    /// As often as the limit says; iterations are counted in 32 bits.
    pub fn new(limit: Range) -> Trips {
        Trips(limit.high.clamp(0, Range::HELD.high))
    }

    /// What the inputs of the body may be at the beginning of an iteration: of the values carried at first, and of what is scanned and
    /// captured.
    pub fn entries(self, body: &Graph, carried: &[Range], others: &[Range]) -> Vec<Range> {
        let mut budget = super::NODES * GUESSES;
        self.entries_within(body, carried, others, &mut budget)
    }

    fn entries_within(
        self,
        body: &Graph,
        carried: &[Range],
        others: &[Range],
        budget: &mut usize,
    ) -> Vec<Range> {
        let number = Range { low: 0, high: (self.0 - 1).max(0) };
        let all = |state: &[Range]| [&[number, Range::of(DType::Bool)], state, others].concat();
        let tops: Vec<Range> = body.inputs().skip(2).map(|node| Range::held(node.shape.dtype())).collect();
        let top = |i: usize| tops.get(i).copied().unwrap_or(Range::HELD);
        let (mut state, mut guess) = (carried.to_vec(), 0);
        loop {
            let given = all(&state);
            let mut known = Ranges::of_body(body, &given);
            known.budget = *budget;
            let next: Vec<Range> =
                (0..state.len()).map(|i| self.begun(body, &mut known, i, carried[i], top(i))).collect();
            *budget = known.budget;
            let open: Vec<usize> = (0..state.len()).filter(|&i| !next[i].is_within(state[i])).collect();
            if open.is_empty() {
                return given;
            }
            for i in open {
                state[i] = if guess < GUESSES { state[i].joined(next[i]) } else { top(i) };
            }
            guess += 1;
        }
    }

    /// What the value number `i` may be when an iteration begins, if all are within what `known` says now.
    fn begun(self, body: &Graph, known: &mut Ranges<'_>, i: usize, first: Range, top: Range) -> Range {
        let (Some(input), Some(&output)) = (body.inputs().nth(2 + i), body.outputs.get(1 + i)) else {
            return top;
        };
        match step(body, input.id, output, known) {
            // All iterations but the last are behind what an iteration begins with.
            Some(by) => {
                let begun = first.moved(by, (self.0 - 1).max(0));
                if begun.is_within(top) { begun } else { top }
            }
            None => first.joined(known.of(output)),
        }
    }
}

/// By how much an iteration moves a value that is only moved.
fn step(body: &Graph, input: NodeId, output: NodeId, known: &mut Ranges<'_>) -> Option<Range> {
    if output == input {
        return Some(Range { low: 0, high: 0 });
    }
    let node = body.node(output);
    match (&node.op, node.inputs.as_slice()) {
        (Op::Binary(BinaryOp::Add), &[a, b]) if a == input && b != input => Some(known.of(b)),
        (Op::Binary(BinaryOp::Add), &[a, b]) if b == input && a != input => Some(known.of(a)),
        (Op::Binary(BinaryOp::Sub), &[a, b]) if a == input && b != input => {
            let by = known.of(b);
            Some(Range { low: -by.high, high: -by.low })
        }
        _ => None,
    }
}

impl Range {
    /// After up to `times` moves, each by one of `by`.
    fn moved(self, by: Range, times: i128) -> Range {
        Range {
            low: self.low.saturating_add(by.low.min(0).saturating_mul(times)),
            high: self.high.saturating_add(by.high.max(0).saturating_mul(times)),
        }
    }

    fn is_within(self, of: Range) -> bool {
        of.low <= self.low && self.high <= of.high
    }
}

impl Ranges<'_> {
    /// A result of `If`.
    pub(super) fn choice(&mut self, inputs: &[NodeId], branches: [&Body; 2], index: usize) -> Range {
        let taken = branches[0].graph.inputs().count();
        let given: Vec<Range> = inputs[1..].iter().map(|&id| self.of(id)).collect();
        let Some((first, second)) = given.split_at_checked(taken) else { return Range::HELD };
        let a = self.output(&branches[0].graph, first, index);
        a.joined(self.output(&branches[1].graph, second, index))
    }

    /// A result of `Loop`.
    pub(super) fn repeated(
        &mut self,
        inputs: &[NodeId],
        body: &Graph,
        carried: usize,
        index: usize,
    ) -> Range {
        let trips = Trips::new(self.of(inputs[0]));
        let given: Vec<Range> = inputs[2..].iter().map(|&id| self.of(id)).collect();
        let Some((state, others)) = given.split_at_checked(carried) else { return Range::HELD };
        let entries = trips.entries_within(body, state, others, &mut self.budget);
        let after = self.output(body, &entries, 1 + index);
        // Where it never runs, the values are what they were; a stack has no row then, or zeros behind the last one.
        state.get(index).map_or(after.joined(Range { low: 0, high: 0 }), |first| after.joined(*first))
    }

    /// An output of a body that is given these; the nodes that are looked at count as this graph's.
    fn output(&mut self, body: &Graph, given: &[Range], index: usize) -> Range {
        let Some(&output) = body.outputs.get(index) else { return Range::HELD };
        let mut known = Ranges::of_body(body, given);
        known.budget = self.budget;
        let range = known.of(output);
        self.budget = known.budget;
        range
    }
}
