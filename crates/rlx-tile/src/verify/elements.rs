//! Statements on single elements of sums, and on rows of them.

use super::{Checked, Rule, Verifier, fault, must};
use crate::atom::Loading;
use crate::ir::{Below, Fragment, Index, Role, Size};
use crate::scalar::Scalar;

impl Verifier<'_> {
    /// Such statements depend on which elements a lane has.
    fn laid_out(&self, at: &str) -> Checked {
        let known = self.p.atom().is_some_and(|atom| atom.loading != Loading::Matrix);
        must(known, at, || {
            Rule::Operand("the language does not say which elements of sums a lane has".to_owned())
        })
    }

    fn sums_or_rows(&self, at: &str, f: Fragment) -> Checked {
        self.laid_out(at)?;
        match self.p.fragments.get(f.0 as usize).map(|d| d.role) {
            Some(Role::Sum | Role::Rows) => Ok(()),
            Some(role) => fault(at, Rule::Operand(format!("f{} is {role:?}, not sums or rows", f.0))),
            None => fault(at, Rule::Unknown(format!("f{}", f.0))),
        }
    }

    pub(super) fn fill(&self, f: Fragment) -> Checked {
        let here = format!("fill f{}", f.0);
        self.laid_out(&here)?;
        self.role(&here, f, Role::Rows)
    }

    pub(super) fn exp2(&self, f: Fragment) -> Checked {
        self.sums_or_rows(&format!("exp2 f{}", f.0), f)
    }

    pub(super) fn each(
        &self,
        of: Fragment,
        with: &[Fragment],
        at: (&Index, &Index),
        map: &Scalar,
    ) -> Checked {
        let here = format!("each f{}", of.0);
        self.sums_or_rows(&here, of)?;
        let rows = self.p.fragment(of).rows;
        for &w in with {
            self.role(&here, w, Role::Rows)?;
            must(self.p.fragment(w).rows == rows, &here, || {
                Rule::Operand(format!("f{} has other rows than f{}", w.0, of.0))
            })?;
        }
        must(map.rows() == with.len(), &here, || {
            Rule::Body(format!("the body is given {} numbers of a row, not {}", with.len(), map.rows()))
        })?;
        self.position(&here, at.0, true, 1)?;
        self.position(&here, at.1, true, 1)?;
        self.body(&here, Some(map), None)
    }

    pub(super) fn reduce(&self, to: Fragment, from: Fragment) -> Checked {
        let here = format!("reduce f{}", to.0);
        self.laid_out(&here)?;
        self.role(&here, to, Role::Rows)?;
        self.role(&here, from, Role::Sum)?;
        must(self.p.fragment(to).rows == self.p.fragment(from).rows, &here, || {
            Rule::Operand(format!("f{} has other rows than f{}", to.0, from.0))
        })
    }

    pub(super) fn convert(&self, to: Fragment, from: Fragment, col: &Index) -> Checked {
        let here = format!("convert f{}", to.0);
        self.role(&here, to, Role::Left)?;
        self.role(&here, from, Role::Sum)?;
        let stays = self.p.atom().is_some_and(|atom| atom.left_of_sums().is_some());
        must(stays, &here, || {
            Rule::Operand("lanes have other elements of sums than of a left operand".to_owned())
        })?;
        let (l, s) = (self.p.fragment(to), self.p.fragment(from));
        must(l.rows == s.rows, &here, || {
            Rule::Operand(format!("f{} has other rows than f{}", to.0, from.0))
        })?;
        let depth = self.p.atom().map_or(1, |atom| atom.depth);
        self.position(&here, col, false, depth)?;
        let end = self.end(&here, col, l.cols)?;
        must(end <= u64::from(s.cols), &here, || Rule::Outside(end, s.cols))
    }

    /// A load in the order of sums.
    pub(super) fn in_order_of_sums(&self, to: Fragment, depth_rows: bool, of_sums: bool) -> Checked {
        let here = format!("load f{}", to.0);
        let another = self.p.atom().is_some_and(|atom| atom.chained.is_some());
        must(!of_sums || another && depth_rows, &here, || {
            Rule::Operand("sums have no order of their own, or it is not that of chunks".to_owned())
        })?;
        if of_sums { self.role(&here, to, Role::Right) } else { Ok(()) }
    }

    /// What a loop is bounded by; such a loop is not unrolled.
    pub(super) fn below(&self, at: &str, extent: Size, below: Option<Below>) -> Checked {
        let Some(below) = below else { return Ok(()) };
        self.size(at, below.offset)?;
        let sized = below.rows <= 1024 && (1..=1024).contains(&below.heads);
        must(!matches!(extent, Size::Const(_)) && sized, at, || {
            Rule::Position(
                "a bound on a loop of known size, or one of more than 1024 rows or heads".to_owned(),
            )
        })?;
        must(below.window.is_none_or(|n| (1..=i32::MAX as u32).contains(&n)), at, || {
            Rule::Position("a window that is empty or too large".to_owned())
        })
    }
}
