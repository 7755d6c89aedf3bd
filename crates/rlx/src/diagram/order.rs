//! An order of boxes in which equal blocks follow one another.
//!
//! In depth-first order from the outputs, the boxes of a block are adjacent, and in the same order in every block. A box that all
//! blocks share (a mask, a rotary table) would become part of the first block, which would then differ from the others, so it comes
//! first: a box is *shared* if two boxes with the same computation read it and one of them depends on the other.

use std::collections::HashMap;

use rlx_ir::sort::sort_by_key;

use super::BoxKind;
use super::boxes::{Flat, Source};

/// The same boxes in that order.
pub(super) fn in_blocks(flat: Flat) -> Flat {
    let depth = depths(&flat.inputs);
    let all = 0..flat.boxes.len();
    let is = |b: usize, kind| flat.boxes[b].kind == kind;
    let mut roots: Vec<usize> = all.clone().filter(|&b| is(b, BoxKind::Input)).collect();
    roots.extend(all.clone().filter(|&b| shared(&flat, b)));
    // From the shallowest output on, so that nodes leading to a block's own output are in the block.
    let outputs = all.clone().filter(|&b| is(b, BoxKind::Output));
    let mut ends: Vec<usize> = outputs.map(|b| flat.inputs[b][0].from).collect();
    sort_by_key(&mut ends, |&b| depth[b]);
    roots.extend(ends);
    // Outputs themselves come last, with what nothing needs.
    roots.extend(all);
    let order = depth_first(&flat, &roots);
    permuted(flat, &order)
}

fn depths(inputs: &[Vec<Source>]) -> Vec<usize> {
    let mut depth = vec![0; inputs.len()];
    for (b, sources) in inputs.iter().enumerate() {
        depth[b] = sources.iter().map(|s| depth[s.from] + 1).max().unwrap_or(0);
    }
    depth
}

fn shared(flat: &Flat, at: usize) -> bool {
    if matches!(flat.boxes[at].kind, BoxKind::Input | BoxKind::Output) {
        return false;
    }
    let reads = |b: &usize| flat.inputs[*b].iter().any(|s| s.from == at);
    let readers: Vec<usize> = (at + 1..flat.boxes.len()).filter(reads).collect();
    let mut first: HashMap<&str, usize> = HashMap::new();
    for &reader in &readers {
        let same = first.entry(&flat.keys[reader]).or_insert(reader);
        if *same != reader && comes_of(flat, reader, *same, at) {
            return true;
        }
    }
    false
}

/// Whether `late` depends on `early` (boxes before `floor` cannot).
fn comes_of(flat: &Flat, late: usize, early: usize, floor: usize) -> bool {
    let mut seen = vec![false; late - floor + 1];
    let mut open = vec![late];
    while let Some(b) = open.pop() {
        for source in &flat.inputs[b] {
            if source.from == early {
                return true;
            }
            if source.from > early && !std::mem::replace(&mut seen[source.from - floor], true) {
                open.push(source.from);
            }
        }
    }
    false
}

/// Each box after what it reads, from each root in turn.
fn depth_first(flat: &Flat, roots: &[usize]) -> Vec<usize> {
    let mut order = Vec::with_capacity(flat.boxes.len());
    let mut entered = vec![false; flat.boxes.len()];
    for &root in roots {
        let mut open = vec![(root, 0)];
        while let Some((b, next)) = open.pop() {
            if next == 0 && std::mem::replace(&mut entered[b], true) {
                continue;
            }
            match flat.inputs[b].get(next) {
                Some(source) => open.extend([(b, next + 1), (source.from, 0)]),
                None => order.push(b),
            }
        }
    }
    order
}

fn permuted(flat: Flat, order: &[usize]) -> Flat {
    let mut place = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, &from)| place[from] = to);
    let mut boxes: Vec<_> = flat.boxes.into_iter().map(Some).collect();
    let inputs = flat.inputs;
    let mut keys = flat.keys;
    let moved = |s: &Source| Source { from: place[s.from], result: s.result };
    Flat {
        boxes: order.iter().filter_map(|&b| boxes[b].take()).collect(),
        inputs: order.iter().map(|&b| inputs[b].iter().map(moved).collect()).collect(),
        keys: order.iter().map(|&b| std::mem::take(&mut keys[b])).collect(),
        parameter_bytes: flat.parameter_bytes,
    }
}
