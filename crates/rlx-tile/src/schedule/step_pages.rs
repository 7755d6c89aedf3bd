//! What an attention of a step reads: operands of the step, or keys and values in pages of tables, which a gather of the step's region picks.
//!
//! What a gather would have made has the pages of the list one behind the other, so a row's number there says its page. An attention reads it through a view whose items begin with a
//! page, and whose rows are within one: then the program looks up the page of each row ([`crate::lookup`]), and the gather makes nothing.

use rlx_ir::lir::Operand;
use rlx_ir::ops::nn::attention::AttentionDims;
use rlx_ir::{Extent, Node};
use rlx_kernel::UniformArg;
use rlx_kernel::schedule::{Arg, Gathered, Scheduled, StepDesc, Unscheduled, reject};

use super::attention_pages::Pages;

/// Keys or values.
#[derive(Debug)]
pub(super) enum Source {
    /// An operand of the step.
    Operand(Arg),
    /// In an operand that is a table.
    Table(Table),
}

/// Rows in a table.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) table: Arg,
    pub(super) list: Arg,
    pages: Pages,
    /// Elements of a page, and how many pages there are.
    pub(super) slice: i64,
    pub(super) slices: Extent,
    /// Elements from row to row of a page, from column to column, from head to head.
    pub(super) row: Extent,
    pub(super) col: Extent,
    pub(super) head: Extent,
    /// Numbers of the list from item to item.
    item: Extent,
}

/// Which operands of its step an attention reads.
#[derive(Debug)]
pub(super) struct Reads {
    pub(super) queries: Arg,
    pub(super) keys: Source,
    pub(super) values: Source,
    pub(super) mask: Option<Arg>,
}

/// An operand of a step.
pub(super) fn shape_of(step: &StepDesc, arg: Arg) -> &Operand {
    match arg {
        Arg::Input(i) => &step.inputs[i],
        Arg::Output(i) => &step.outputs[i],
    }
}

impl Source {
    /// How it is in pages, if it is.
    pub(super) fn pages(&self) -> Option<Pages> {
        match self {
            Source::Operand(_) => None,
            Source::Table(table) => Some(table.pages),
        }
    }
}

impl Reads {
    /// What an attention of a step reads, which computes nothing but what its keys and values are picked by.
    pub(super) fn of(step: &StepDesc, node: &Node, dims: &AttentionDims) -> Scheduled<Reads> {
        if step.graph.outputs != [node.id] {
            return reject("something is computed behind an attention");
        }
        let input = |i: usize| {
            let id = node.inputs[i];
            let at = step.graph.inputs().position(|n| n.id == id);
            at.map(Arg::Input)
                .ok_or_else(|| Unscheduled("queries or a mask that a region computes".to_owned()))
        };
        let source = |i: usize, size: usize| match Gathered::of(step, node.inputs[i])? {
            None => input(i).map(Source::Operand),
            Some(gathered) => Table::of(step, &gathered, dims, size as i64).map(Source::Table),
        };
        let mask = (node.inputs.len() > 3).then(|| input(3)).transpose()?;
        let (keys, values) = (source(1, dims.head_dim)?, source(2, dims.value_dim)?);
        Ok(Reads { queries: input(0)?, keys, values, mask })
    }

    /// The tables, keys first.
    pub(super) fn tables(&self) -> impl Iterator<Item = &Table> {
        [&self.keys, &self.values].into_iter().filter_map(|source| match source {
            Source::Operand(_) => None,
            Source::Table(table) => Some(table),
        })
    }
}

impl Table {
    /// Rows of `size` elements each, as an attention of these dimensions reads them.
    fn of(step: &StepDesc, of: &Gathered, dims: &AttentionDims, size: i64) -> Scheduled<Table> {
        let (item, row, col, head) = match *of.view.strides {
            [item, row, col] => (item, row, col, col * size),
            [item, head, row, col] => (item, row, col, head),
            _ => return reject("keys that have not three or four dimensions"),
        };
        let (Some(along), Some(across), Some(apart)) = (row.as_const(), col.as_const(), head.as_const())
        else {
            return reject("rows of an open size in pages");
        };
        let slice = of.slice;
        let items = item.floor_div(slice);
        if of.view.offset != Extent::Const(0)
            || items * slice != item
            || [along, across, apart].iter().any(|&n| n < 0)
        {
            return reject("items that do not begin with a page");
        }
        // From the first element of a row to the last one of that row of any head.
        let within = apart * (dims.kv_heads as i64 - 1) + across * (size - 1);
        let one = dims.keys.extent().as_const().is_some_and(|rows| (rows - 1) * along + within < slice);
        let rows = match (one, along) {
            (true, _) => None,
            (_, 1..) if slice % along == 0 && within < along => Some(slice / along),
            _ => return reject("rows that are divided among pages"),
        };
        let rows = rows.map(u32::try_from).transpose();
        let rows = rows.map_err(|_| Unscheduled("pages are too large".to_owned()))?;
        let pages = Pages { rows, list: shape_of(step, of.list).dtype };
        let (table, list, slices) = (of.table, of.list, of.slices);
        Ok(Table { table, list, pages, slice, slices, row, col, head, item: items })
    }

    /// The values of the uniforms of its list, whose view's first row has the number `first`; with parts, these are all of the same list.
    pub(super) fn uniforms(
        &self,
        list: &Operand,
        (first, part): (Extent, Option<Extent>),
    ) -> Vec<UniformArg> {
        let base = UniformArg::Base { operand: self.list, offset: list.view.offset };
        let zero = Extent::Const(0);
        let numbers =
            [first, self.slices].into_iter().chain(part).chain([self.item, zero, Extent::Const(self.slice)]);
        std::iter::once(base).chain(numbers.map(UniformArg::Extent)).collect()
    }
}
