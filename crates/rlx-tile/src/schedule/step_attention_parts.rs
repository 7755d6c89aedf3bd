//! A step of LIR that is an attention of few queries, divided along its keys.

use std::sync::Arc;

use rlx_ir::Extent;
use rlx_kernel::schedule::{Arg, Scheduled, Unscheduled};
use rlx_kernel::{Kernel, UniformArg};

use super::attention::Mask;
use super::attention_join::{JOIN_WORKGROUP, attention_join};
use super::attention_program::attention;
use super::attention_tilings::AttentionTiling;
use super::launch::{Bound, PartLaunch, PartsLaunch};
use super::parts::{Division, FEW_QUERIES, FEW_ROWS, MULTIPLE, Parts as Divided};
use super::step_attention::{Parts, Rows};
use super::step_pages::Source;
use super::tilings::Tiling;
use crate::atom::Arch;

/// The sizes of a divided attention.
#[derive(Clone, Copy)]
struct Sizes {
    divided: Divided,
    items: Extent,
    heads: Extent,
    rows: Extent,
    /// Elements of a value.
    values: i64,
    /// Keys that no query sees, in front of the others.
    hidden: Extent,
    /// Those others.
    keys: Extent,
}

impl Sizes {
    /// Rows of the result, of all items and heads: each has a row of sums in every part, and a state.
    fn lines(&self) -> Extent {
        self.items * self.heads * self.rows
    }

    /// Where the states are: behind the sums.
    fn state(&self) -> Extent {
        self.divided.count * self.lines() * self.values
    }

    /// Where rows of so many elements are that are one behind the other: base, row, column, part, batch, heads that share keys.
    fn dense(&self, base: Extent, size: i64) -> [UniformArg; 7] {
        let (row, item) = (Extent::Const(size), self.heads * self.rows * size);
        let (part, head) = (self.lines() * size, self.rows * size);
        [base, row, Extent::Const(1), part, item, head, Extent::Const(0)].map(UniformArg::Extent)
    }
}

impl Parts<'_> {
    /// The dispatches of the step divided as `division` says; none where it has many queries, or few keys.
    pub(super) fn in_parts(
        mut self,
        arch: Arch,
        tiling: Option<&Tiling>,
        division: &Division,
    ) -> Scheduled<Option<PartsLaunch>> {
        let (rows, hidden) = (self.rows(), self.hidden());
        let (keys, items) = (self.dims.keys.extent() - hidden, self.dims.batch.extent());
        // A window may be too short to be divided, however many keys there are.
        if self
            .window()
            .is_some_and(|window| window + i64::from(FEW_QUERIES) + MULTIPLE < 2 * division.least_keys)
        {
            return Ok(None);
        }
        let heads = Extent::Const(self.dims.kv_heads as i64);
        let groups = rows.min(i64::from(FEW_QUERIES)).ceil_div(i64::from(FEW_ROWS)) * items * heads;
        let divided = Divided::of(keys, groups, division.units, division.least_keys);
        let many = rows.as_const().is_some_and(|rows| rows > i64::from(FEW_QUERIES));
        if many || divided.count == Extent::Const(1) {
            return Ok(None);
        }
        let tiling = match tiling {
            Some(tiling) => *tiling,
            None => {
                // The first suits the rows; where they are open, the last is for the fewest.
                let all = self.tilings(arch)?;
                let suited = if rows.as_const().is_some() { all.first() } else { all.last() };
                *suited.ok_or_else(|| Unscheduled("no tilings".to_owned()))?
            }
        };
        let values = i64::from(self.what.value_dim);
        let sizes = Sizes { divided, items, heads, rows, values, hidden, keys };
        self.what.parts = true;
        let uniforms = self.uniforms(&sizes)?;
        let own = AttentionTiling::from_result(&tiling);
        let program = attention(arch, &self.what, &own).map_err(|e| Unscheduled(e.to_string()))?;
        let mut bindings = vec![Bound::Operand(self.reads.queries)];
        for source in [&self.reads.keys, &self.reads.values] {
            bindings.push(Bound::Operand(match source {
                Source::Operand(arg) => *arg,
                Source::Table(table) => table.table,
            }));
        }
        bindings.push(Bound::Scratch);
        bindings.extend(self.reads.mask.map(Bound::Operand));
        bindings.extend(self.reads.tables().map(|table| Bound::Operand(table.list)));
        // No more rows than those of the tiles that were counted.
        let lines = (divided.count * sizes.lines()).min(divided.most * i64::from(FEW_ROWS));
        Ok(Some(PartsLaunch {
            parts: PartLaunch {
                code: Arc::new(program),
                bindings,
                uniforms,
                groups: rows.ceil_div(i64::from(own.queries)) * items * heads * divided.count,
            },
            join: self.join(&sizes)?,
            count: divided.count,
            scratch: lines * (values + 2),
            rows,
            most_rows: Some(FEW_QUERIES),
            tiling,
        }))
    }

    /// How many keys a query sees at most, where that is less than its place says.
    fn window(&self) -> Option<i64> {
        match self.what.mask {
            Mask::Window(window) => Some(i64::from(window)),
            _ => None,
        }
    }

    /// How many keys are in front of all windows: they are no part of what is divided. Whole blocks of them, so that the others are where they were.
    fn hidden(&self) -> Extent {
        let Some(window) = self.window() else { return Extent::Const(0) };
        let seen = self.dims.queries.extent() + (window - 1);
        (self.dims.keys.extent() - seen).max(0).floor_div(MULTIPLE) * MULTIPLE
    }

    /// The uniforms of the program; what operands are accessed by at once is noted.
    fn uniforms(&mut self, sizes: &Sizes) -> Scheduled<Vec<UniformArg>> {
        let (queries, each) = (self.dims.queries.extent(), sizes.divided.each);
        let all =
            [sizes.rows, sizes.keys, sizes.keys - queries, sizes.divided.count, sizes.items, sizes.heads];
        let mut uniforms: Vec<UniformArg> = all.into_iter().chain([each]).map(UniformArg::Extent).collect();
        let zero = Extent::Const(0);
        for i in 0..3 {
            let (arg, rows, offset) = self.rows_of(i)?;
            let paged = i > 0 && self.what.pages[i - 1].is_some();
            // Of rows that are looked up, numbers say which.
            let (along, from) = match i {
                0 => (zero, zero),
                _ if paged => (zero, zero),
                _ => (rows.row * each, rows.row * sizes.hidden),
            };
            let base = UniformArg::Base { operand: arg, offset: offset + from };
            uniforms.extend(std::iter::once(base).chain(rows.strides(Some(along))));
        }
        let values = sizes.values;
        self.what.vectors[3] = [4, 2].into_iter().find(|v| values % i64::from(*v) == 0).unwrap_or(1);
        uniforms.extend(sizes.dense(Extent::Const(0), values));
        if let Some(arg) = self.reads.mask {
            // Its columns are numbered among all keys.
            let mask = self.operand(arg);
            uniforms.extend(self.mask_rows(mask).uniforms(arg, mask, Some(zero)));
        }
        for table in self.reads.tables() {
            uniforms.extend(table.uniforms(self.operand(table.list), (sizes.hidden, Some(zero))));
        }
        uniforms.extend(sizes.dense(sizes.state(), 2));
        Ok(uniforms)
    }

    /// What joins the parts.
    fn join(&self, sizes: &Sizes) -> Scheduled<PartLaunch<Kernel>> {
        let kernel = attention_join(&self.what).map_err(|e| Unscheduled(e.to_string()))?;
        let arg = Arg::Output(0);
        let of = self.operand(arg);
        let at = Rows::of(of, sizes.values, i64::from(self.what.groups))?;
        let (values, count) = (Extent::Const(sizes.values), sizes.divided.count);
        let all = [count, sizes.items, sizes.heads, sizes.rows, values, sizes.keys, sizes.state()];
        let mut uniforms: Vec<UniformArg> = all.into_iter().map(UniformArg::Extent).collect();
        uniforms.push(UniformArg::Base { operand: arg, offset: of.view.offset });
        let strides = [at.batch[0], at.batch[1], at.row, at.batch[2], at.col];
        uniforms.extend(strides.map(UniformArg::Extent));
        let groups = (sizes.lines() * sizes.values).ceil_div(i64::from(JOIN_WORKGROUP));
        let bindings = vec![Bound::Scratch, Bound::Operand(arg)];
        Ok(PartLaunch { code: Arc::new(kernel), bindings, uniforms, groups })
    }
}
