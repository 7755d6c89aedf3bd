//! What attention does between its two multiplications, on rows of scores in registers: the same statements on every level, so that bits are the same, too.

use rlx_ir::ops::Unseen;

use super::attention::Attention;
use crate::ir::{Fragment, Index, Reduction, Stmt, View};
use crate::scalar::Scalar;

/// The fragments of the rows that a warp has, and where they are; see [`super::attention`](mod@super::attention) for the formulas.
pub(super) struct Softmax<'a> {
    pub(super) what: &'a Attention,
    /// The scores of a block of keys, which become their weights.
    pub(super) scores: Fragment,
    /// The greatest score of each row.
    pub(super) greatest: Fragment,
    /// The sum of the weights of each row, in the end what its values are multiplied by.
    pub(super) total: Fragment,
    /// What so far was relative to the greatest score is multiplied by.
    pub(super) again: Fragment,
    /// The first of the warp's rows.
    pub(super) row: Index,
    /// The first key of the block.
    pub(super) key: Index,
}

impl Softmax<'_> {
    fn each(&self, of: Fragment, with: &[Fragment], map: Scalar) -> Stmt {
        Stmt::Each { of, with: with.to_vec(), row: self.row.clone(), col: Index::default(), map }
    }

    fn times(&self) -> Scalar {
        self.what.scalar("times", 1, |b, x, rows, _| b.mul(x, rows[0]))
    }

    /// Before the first block.
    pub(super) fn begin(&self) -> [Stmt; 3] {
        let fill = |(of, x)| Stmt::Fill(of, x);
        [(self.greatest, f32::MIN), (self.total, 0.0), (self.again, 0.0)].map(fill)
    }

    /// From the products of queries and keys to weights.
    pub(super) fn weights(&self) -> Vec<Stmt> {
        let &Softmax { what, scores, greatest, total, again, .. } = self;
        let less = || what.scalar("less", 1, |b, x, rows, _| b.sub(x, rows[0]));
        let (row, col, map) = (self.row.clone(), self.key.clone(), what.masked());
        vec![
            Stmt::Each { of: scores, with: Vec::new(), row, col, map },
            self.each(again, &[greatest], what.scalar("copy", 1, |_, _, rows, _| rows[0])),
            Stmt::Reduce { to: greatest, from: scores, op: Reduction::Max },
            self.each(again, &[greatest], less()),
            Stmt::Exp2(again),
            self.each(scores, &[greatest], less()),
            Stmt::Exp2(scores),
            self.each(total, &[again], self.times()),
            Stmt::Reduce { to: total, from: scores, op: Reduction::Sum },
        ]
    }

    /// A part of the result so far, relative to the new greatest scores.
    pub(super) fn again(&self, part: Fragment) -> Stmt {
        self.each(part, &[self.again], self.times())
    }

    /// What is stored behind all keys: fragments of the result, with their first columns.
    pub(super) fn store_result(&self, parts: impl Iterator<Item = (Fragment, Index)>) -> Vec<Stmt> {
        let what = self.what;
        let mut body = vec![self.each(self.total, &[], what.inverse())];
        for (part, col) in parts {
            let map = match what.unseen {
                Unseen::Guard => "guarded",
                _ => "times",
            };
            let map = what.scalar(map, 1, |b, x, rows, _| what.normalised(b, x, rows[0]));
            body.push(self.each(part, &[self.total], map));
            let (row, with) = (self.row.clone(), Vec::new());
            body.push(Stmt::Store { to: View(3), from: part, row, col, with, map: None });
        }
        body
    }
}
