//! Repeated blocks: found in the order of [`super::order`], drawn once.
//!
//! A block of `p` boxes repeats `r` times if each following box computes the same as the box `p` before it, on the
//! same operands, on results of the previous repetition ("carried"), or on separate inputs of the same shape. The blocks
//! that save the most boxes are taken first; the boxes before, after and inside them are searched again.

use std::collections::HashMap;

use super::BoxKind;
use super::boxes::{Flat, Source};

/// A block: `times` repetitions of the boxes from `start` on, `period` each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Repeat {
    pub(super) start: usize,
    pub(super) period: usize,
    pub(super) times: usize,
}

impl Repeat {
    fn end(&self) -> usize {
        self.start + self.period * self.times
    }

    fn saved(&self) -> usize {
        self.period * (self.times - 1)
    }
}

/// Longer blocks are not looked for, nor any in a graph of more boxes: the search would take too long for what it shows.
const LONGEST: usize = 256;
const MOST_BOXES: usize = 6000;

/// The blocks of a graph, outer ones before those inside them.
pub(super) fn find(flat: &Flat) -> Vec<Repeat> {
    let mut numbers: HashMap<&str, u32> = HashMap::new();
    let mut keys = Vec::with_capacity(flat.keys.len());
    for key in &flat.keys {
        let next = numbers.len() as u32;
        keys.push(*numbers.entry(key).or_insert(next));
    }
    let mut last_use = vec![0; keys.len()];
    let mut outputs = vec![0; keys.len()];
    for (b, sources) in flat.inputs.iter().enumerate() {
        for source in sources {
            match flat.boxes[b].kind {
                BoxKind::Output => outputs[source.from] += 1,
                _ => last_use[source.from] = last_use[source.from].max(b),
            }
        }
    }
    let search = Search { flat, keys, last_use, outputs };
    let mut found = Vec::new();
    if flat.boxes.len() <= MOST_BOXES {
        search.within(0, flat.boxes.len(), &mut found);
    }
    found
}

struct Search<'a> {
    flat: &'a Flat,
    keys: Vec<u32>,
    /// The last box that reads it, outputs apart.
    last_use: Vec<usize>,
    /// How many outputs it is.
    outputs: Vec<usize>,
}

impl Search<'_> {
    fn within(&self, from: usize, to: usize, found: &mut Vec<Repeat>) {
        let mut open = vec![(from, to)];
        while let Some((from, to)) = open.pop() {
            let Some(best) = self.best(from, to) else { continue };
            found.push(best);
            open.extend([(from, best.start), (best.end(), to), (best.start, best.start + best.period)]);
        }
    }

    /// The block that saves most among the boxes `from..to`; of those the smallest, of those the first.
    fn best(&self, from: usize, to: usize) -> Option<Repeat> {
        let mut best: Option<Repeat> = None;
        for period in 1..=((to - from) / 2).min(LONGEST) {
            let mut start = from;
            while start + 2 * period <= to {
                let times = self.times(start, period, to);
                let repeat = Repeat { start, period, times };
                // Two boxes less are worth a frame.
                if times >= 2 && repeat.saved() > best.map_or(1, |b| b.saved()) {
                    best = Some(repeat);
                }
                start += 1;
            }
        }
        best
    }

    /// How often the block repeats; 1 where it does not.
    fn times(&self, start: usize, period: usize, to: usize) -> usize {
        let mut carried: HashMap<Source, Source> = HashMap::new();
        let mut times = 1;
        while start + (times + 1) * period <= to {
            let begin = start + times * period;
            let same = (begin..begin + period).all(|b| self.same(b, period, start, &mut carried));
            if !same {
                break;
            }
            times += 1;
        }
        // Parallel boxes are not a repetition.
        let goes_on = carried.iter().any(|(a, b)| a != b && b.from >= start);
        if !goes_on {
            return 1;
        }
        while times > 1 && !self.closed(start, period, times) {
            times -= 1;
        }
        times
    }

    /// Whether box `b` does what the box `period` before it does.
    fn same(&self, b: usize, period: usize, start: usize, carried: &mut HashMap<Source, Source>) -> bool {
        let before = b - period;
        let kind = self.flat.boxes[b].kind;
        if self.keys[b] != self.keys[before] || matches!(kind, BoxKind::Input | BoxKind::Output) {
            return false;
        }
        let (these, those) = (&self.flat.inputs[b], &self.flat.inputs[before]);
        these.len() == those.len()
            && these.iter().zip(those).all(|(this, that)| {
                let inside = that.from >= start;
                if this.result != that.result || inside && this.from != that.from + period {
                    return false;
                }
                if inside {
                    return true;
                }
                let is_input = |s: &Source| self.flat.boxes[s.from].kind == BoxKind::Input;
                let own_input = is_input(this) && is_input(that) && self.keys_alike(this.from, that.from);
                let first = start..start + period;
                if this != that && !own_input && !first.contains(&this.from) {
                    return false;
                }
                // A separate input for each repetition.
                own_input && this != that || *carried.entry(*that).or_insert(*this) == *this
            })
    }

    /// Inputs of the same shape.
    fn keys_alike(&self, a: usize, b: usize) -> bool {
        self.flat.boxes[a].results == self.flat.boxes[b].results
    }

    /// Whether nothing behind the block reads anything but the last repetition, and all are outputs alike.
    fn closed(&self, start: usize, period: usize, times: usize) -> bool {
        let last = start + (times - 1) * period;
        (start..last).all(|b| {
            let at_most = last + period;
            let alike = b + period >= last || self.outputs[b] == self.outputs[b + period];
            self.last_use[b] < at_most
                && alike
                && self.outputs[b] <= self.outputs[last + (b - start) % period]
        })
    }
}

/// The box that represents each: itself, or the corresponding one in the first repetition of the blocks around it.
pub(super) fn stand_ins(boxes: usize, repeats: &[Repeat]) -> Vec<usize> {
    let mut stand_in: Vec<usize> = (0..boxes).collect();
    // Outer blocks come first, so a representing box may be folded again.
    for repeat in repeats {
        for place in &mut stand_in {
            if (repeat.start..repeat.end()).contains(place) {
                *place = repeat.start + (*place - repeat.start) % repeat.period;
            }
        }
    }
    stand_in
}
