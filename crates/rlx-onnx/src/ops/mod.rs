//! The supported ONNX ops: one table, filled by family.
//!
//! An entry says which domain and op it imports, for which versions of the operator set, and how. Adding an op is one
//! line in its family's table and a function that reads operands and attributes from a [`NodeCx`] and adds nodes.

mod attention;
mod control;
mod conv_pool;
pub(crate) mod custom;
mod data;
mod einsum;
mod image;
mod index;
pub(crate) mod legacy;
mod linear;
mod logic;
mod loss;
mod math;
mod microsoft;
mod ml;
mod movement;
mod norm;
mod quant;
mod random;
mod recurrent;
mod reduce;
mod regions;
mod resize;
mod sampling;
mod sequence;
mod shape;
mod signal;
mod slice_by_data;
mod state;
mod strings;
mod tf_idf;
mod training;
mod unpool;

pub(crate) use data::fresh;

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::import::{NodeCx, SlotId};
use rlx_ir::op::{Activation, BinaryOp, CmpOp};
use rlx_ir::{Error, NodeId};

/// How an op is imported.
#[derive(Clone, Copy)]
pub(crate) enum Emit {
    /// A function of each element.
    Activation(Activation),
    /// A function of two elements, broadcast.
    Binary(BinaryOp),
    /// A comparison of two elements, broadcast.
    Compare(CmpOp),
    /// Builds one node for each output.
    Nodes(fn(&mut NodeCx<'_, '_>) -> Result<Vec<NodeId>, Error>),
    /// Returns a slot for each output, which need not be a node.
    Slots(fn(&mut NodeCx<'_, '_>) -> Result<Vec<SlotId>, Error>),
}

/// One line of the table.
pub(crate) struct Entry {
    domain: &'static str,
    op: &'static str,
    since: i64,
    until: i64,
    pub emit: Emit,
    /// Whether its importer takes strings, sequences and maps; else operands are tensors of numbers.
    pub takes_any: bool,
    /// Whether it only moves elements, so that strings are moved as their codes.
    pub moves: bool,
}

impl Entry {
    /// An op of the default domain, in all versions of the operator set that are built.
    const fn op(op: &'static str, emit: Emit) -> Entry {
        Entry { domain: "", op, since: 1, until: i64::MAX, emit, takes_any: false, moves: false }
    }
}

/// An op of the domain for classical machine learning, whose importer builds nodes.
const fn ml(op: &'static str, emit: fn(&mut NodeCx<'_, '_>) -> Result<Vec<NodeId>, Error>) -> Entry {
    Entry { domain: "ai.onnx.ml", ..nodes(op, emit) }
}

/// An op whose importer takes operands of any kind.
const fn any(op: &'static str, emit: fn(&mut NodeCx<'_, '_>) -> Result<Vec<SlotId>, Error>) -> Entry {
    Entry { takes_any: true, ..Entry::op(op, Emit::Slots(emit)) }
}

/// As [`any`], of the domain for classical machine learning.
const fn any_ml(op: &'static str, emit: fn(&mut NodeCx<'_, '_>) -> Result<Vec<SlotId>, Error>) -> Entry {
    Entry { domain: "ai.onnx.ml", ..any(op, emit) }
}

/// An op that only moves elements, numbers or strings.
const fn moves(op: &'static str, emit: fn(&mut NodeCx<'_, '_>) -> Result<Vec<NodeId>, Error>) -> Entry {
    Entry { moves: true, ..nodes(op, emit) }
}

/// An op of ONNX Runtime's own domain, whose importer builds nodes.
const fn microsoft(op: &'static str, emit: fn(&mut NodeCx<'_, '_>) -> Result<Vec<NodeId>, Error>) -> Entry {
    Entry { domain: "com.microsoft", ..nodes(op, emit) }
}

/// An op whose importer builds nodes.
const fn nodes(op: &'static str, emit: fn(&mut NodeCx<'_, '_>) -> Result<Vec<NodeId>, Error>) -> Entry {
    Entry::op(op, Emit::Nodes(emit))
}

/// Every family's table.
static FAMILIES: &[&[Entry]] = &[
    math::OPS,
    logic::OPS,
    movement::OPS,
    index::OPS,
    data::OPS,
    shape::OPS,
    reduce::OPS,
    linear::OPS,
    einsum::OPS,
    conv_pool::OPS,
    unpool::OPS,
    regions::OPS,
    sampling::OPS,
    image::OPS,
    resize::OPS,
    norm::OPS,
    attention::OPS,
    state::OPS,
    quant::OPS,
    recurrent::OPS,
    loss::OPS,
    control::OPS,
    microsoft::attention::OPS,
    microsoft::blocks::OPS,
    signal::OPS,
    random::OPS,
    training::OPS,
    sequence::OPS,
    strings::OPS,
    microsoft::fused::OPS,
    microsoft::generation::OPS,
    microsoft::mixture::OPS,
    microsoft::norm::OPS,
    microsoft::quantized::OPS,
    microsoft::recurrent::OPS,
    microsoft::regions::OPS,
    microsoft::tensors::OPS,
    microsoft::tokens::OPS,
    ml::features::OPS,
    ml::linear::OPS,
    ml::maps::OPS,
    ml::svm::OPS,
    ml::trees::OPS,
];

/// The entries by the names of their ops, in the order of the families.
static BY_NAME: LazyLock<HashMap<&'static str, Vec<&'static Entry>>> = LazyLock::new(|| {
    let mut by_name: HashMap<&str, Vec<&Entry>> = HashMap::new();
    let all = FAMILIES.iter().flat_map(|family| family.iter());
    all.for_each(|entry| by_name.entry(entry.op).or_default().push(entry));
    by_name
});

/// The entry for an op in a version of its operator set.
pub(crate) fn find(domain: &str, op: &str, opset: i64) -> Option<&'static Entry> {
    let mut entries = BY_NAME.get(op)?.iter().copied();
    entries.find(|e| e.domain == domain && (e.since..=e.until).contains(&opset))
}

/// The ops that are built, as (domain, op); the default domain is `""`. `Shape` and `Size` are among them although they
/// never reach the table: their results are always known while importing.
pub fn built() -> impl Iterator<Item = (&'static str, &'static str)> {
    let table = FAMILIES.iter().flat_map(|family| family.iter()).map(|e| (e.domain, e.op));
    table.chain([("", "Shape"), ("", "Size")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_an_op_do_not_overlap() {
        let all: Vec<&Entry> = FAMILIES.iter().flat_map(|f| f.iter()).collect();
        for (i, a) in all.iter().enumerate() {
            for b in &all[..i] {
                let overlap =
                    a.domain == b.domain && a.op == b.op && a.since <= b.until && b.since <= a.until;
                assert!(!overlap, "{} is twice in the table", a.op);
            }
        }
    }
}
