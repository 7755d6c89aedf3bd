//! Where rows are that are looked up.

use super::Group;
use super::shared::Step;
use crate::ir::View;

impl Group<'_> {
    /// Whether the workgroup has anything to do.
    pub(super) fn has_table(&self) -> Step<bool> {
        self.p.grid.table.map_or(Ok(true), |view| Ok(self.in_page(view, 0)?.is_some()))
    }

    /// Elements to the page that a view's row is in, and the row's number in it; without a lookup, none and the row itself. None where the table has no such page.
    pub(super) fn in_page(&self, view: View, row: i64) -> Step<Option<(i128, i64)>> {
        let v = self.p.view(view);
        let Some(lookup) = &v.lookup else { return Ok(Some((0, row))) };
        let row = row + self.value(lookup.first) + self.before_part(v.rows);
        let (number, row) = match lookup.page {
            None => (0, row),
            Some(rows) => (row / i64::from(rows), row % i64::from(rows)),
        };
        let strides = lookup.batch.iter().zip(&self.batch.1).map(|(&stride, &i)| self.value(stride) * i);
        let at = self.value(lookup.base) + strides.sum::<i64>() + number;
        let list = lookup.list.index();
        let dtype = self.p.buffers[list].dtype;
        let bits = self.pools.load(&self.bindings[list], self.checked(list, at)?, dtype);
        let page = if dtype.bits() == 64 { bits as i64 } else { i64::from(bits as i32) };
        let pages = self.value(lookup.pages);
        let page = if page < 0 { page.saturating_add(pages) } else { page };
        let stride = i128::from(self.value(lookup.stride));
        Ok((0..pages).contains(&page).then(|| (i128::from(page) * stride, row)))
    }
}
