//! Views whose rows are looked up.

use rlx_ir::DType;
use rlx_kernel::ir::Access;

use super::{Checked, Rule, Verifier, fault, must};
use crate::atom::Loading;
use crate::ir::{Copy, ViewDecl};

impl Verifier<'_> {
    pub(super) fn declared_lookup(&self, at: &str, v: &ViewDecl) -> Checked {
        let Some(lookup) = &v.lookup else { return Ok(()) };
        lookup.sizes().try_for_each(|size| self.size(at, size))?;
        let Some(list) = self.p.buffers.get(lookup.list.index()) else {
            return fault(at, Rule::Unknown(format!("b{}", lookup.list.0)));
        };
        let numbers = matches!(list.dtype, DType::I32 | DType::I64) && list.access == Access::Read;
        must(numbers, at, || {
            Rule::Declaration("rows are looked up in integers of 32 or 64 bits that are read".to_string())
        })?;
        must(v.heads.is_none() && v.window.is_none(), at, || {
            Rule::Declaration("rows that are looked up are those of one matrix".to_string())
        })?;
        must(lookup.page.is_none_or(|rows| (1..=i32::MAX as u32).contains(&rows)), at, || {
            Rule::Declaration("pages of no rows, or of too many".to_string())
        })?;
        must(lookup.batch.len() == self.p.grid.batch.len(), at, || {
            Rule::Declaration("a list has a stride for each dimension of the grid's batch".to_string())
        })
    }

    /// What workgroups end without is the same page for all that a workgroup reads, and none of these has several tiles or roles.
    pub(super) fn declared_table(&self) -> Checked {
        let Some(view) = self.p.grid.table else { return Ok(()) };
        self.known_view("grid", view)?;
        let lookup = self.p.view(view).lookup.as_ref();
        let once = lookup.is_some_and(|of| of.page.is_none()) && self.p.producers() == 0;
        must(once, "grid", || {
            Rule::Declaration(
                "workgroups end without a table that all rows of a view are in one page of".to_string(),
            )
        })
    }

    /// A page that is not there is 0 where the element is multiplied, so nothing may become of it on the way.
    pub(super) fn copy_of_lookup(&self, at: &str, c: &Copy) -> Checked {
        let as_they_are = c.map.is_none() && self.p.view_dtype(c.from) == self.p.tile(c.to).dtype;
        let beside = c.with.iter().any(|beside| self.p.view(beside.view).lookup.is_some());
        must(!beside && (self.p.view(c.from).lookup.is_none() || as_they_are), at, || {
            Rule::Transfer("rows that are looked up are copied as they are".to_string())
        })
    }

    /// Rows that are not there are not stored, and which row of the view's buffer one is, no body is told.
    pub(super) fn store_of_lookup(&self, at: &str, view: &ViewDecl, as_they_are: bool) -> Checked {
        if view.lookup.is_none() {
            return Ok(());
        }
        must(as_they_are, at, || {
            Rule::Access("sums of rows that are looked up are stored as they are".to_string())
        })?;
        let known = self.p.atom().is_some_and(|atom| atom.loading != Loading::Matrix);
        must(known, at, || {
            Rule::Access("rows that are looked up are stored by lanes that know their sums".to_string())
        })
    }
}
