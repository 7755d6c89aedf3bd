//! Views whose rows are looked up.

use rlx_ir::DType;
use rlx_kernel::ir::Access;

use super::{Checked, Rule, Verifier, fault, must};
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

    /// A page that is not there is 0 where the element is multiplied, so nothing may become of it on the way.
    pub(super) fn copy_of_lookup(&self, at: &str, c: &Copy) -> Checked {
        let as_they_are = c.map.is_none() && self.p.view_dtype(c.from) == self.p.tile(c.to).dtype;
        let beside = c.with.iter().any(|beside| self.p.view(beside.view).lookup.is_some());
        must(!beside && (self.p.view(c.from).lookup.is_none() || as_they_are), at, || {
            Rule::Transfer("rows that are looked up are copied as they are".to_string())
        })
    }
}
