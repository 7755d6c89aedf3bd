//! A step of LIR that is an attention, as a tile program.
//!
//! Queries, keys, values and mask are read through the step's own views: heads beside each other or above each other, transposes and repeated masks are
//! strides. A device that claims [`Op::Attention`] must have a program for every step of it, so whether there is one depends on element types,
//! sizes of heads and the architecture alone ([`step_tilings`](super::step_tilings) of the node with dense operands).

use std::sync::Arc;

use rlx_ir::lir::Operand;
use rlx_ir::ops::nn::attention::AttentionDims;
use rlx_ir::ops::{MaskKind, Op};
use rlx_ir::{DType, Dim, Extent, Node};
use rlx_kernel::schedule::{Arg, LIST_WORKGROUP, Scheduled, StepDesc, Unscheduled, list_check};
use rlx_kernel::{Kernel, UniformArg};

use super::attention::{Attention, BATCH, Mask};
use super::attention_groups::{attention_group_tilings, refused};
use super::attention_program::attention;
use super::attention_tilings::{AttentionTiling, attention_tilings};
use super::launch::{Bound, PartLaunch, StepLaunch};
use super::step_pages::{Reads, Source, shape_of};
use super::tilings::Tiling;
use crate::atom::{Arch, Atom};
use crate::group::GROUP_ROWS;

/// An attention of a step.
pub(super) struct Parts<'s> {
    pub(super) step: &'s StepDesc,
    pub(super) dims: AttentionDims,
    pub(super) what: Attention,
    pub(super) reads: Reads,
}

/// What all programs of a step have in common that do all of it, and what they are bound to.
pub(super) struct Undivided<'s> {
    parts: Parts<'s>,
    /// With what each operand is accessed by at once.
    what: Attention,
    batch: [Extent; BATCH],
    bindings: Vec<Arg>,
    uniforms: Vec<UniformArg>,
    checks: Vec<PartLaunch<Kernel>>,
}

impl Undivided<'_> {
    pub(super) fn tilings(&self, arch: Arch) -> Scheduled<Vec<Tiling>> {
        self.parts.tilings(arch)
    }

    /// The dispatch of the step, divided as `tiling` says.
    pub(super) fn launch(&self, arch: Arch, tiling: &Tiling) -> Scheduled<StepLaunch> {
        let (rows, own) = (self.parts.rows(), AttentionTiling::from_result(tiling));
        let arch = if own.groups { arch } else { arch.of_warps() };
        let program = attention(arch, &self.what, &own).map_err(|e| Unscheduled(e.to_string()))?;
        Ok(StepLaunch {
            program: Arc::new(program),
            bindings: self.bindings.iter().copied().map(Bound::Operand).collect(),
            uniforms: self.uniforms.clone(),
            groups: self.batch.iter().fold(rows.ceil_div(i64::from(own.queries)), |n, &d| n * d),
            tiling: *tiling,
            // Every item and head has workgroups of its own, so rows alone decide which tiling is for a run.
            size: (rows, Extent::Const(i64::MAX)),
            checks: self.checks.clone(),
            lists: None,
        })
    }
}

impl AttentionTiling {
    /// The same in the terms of matmuls, for a result of so many columns: its rows are queries, what is summed over are keys.
    fn of_result(self, cols: u32) -> Tiling {
        let tile = (self.queries, cols.next_multiple_of(16), self.keys);
        Tiling { tile, warps: self.warps, stages: self.stages, bands: 1, groups: self.groups, teams: 0 }
    }

    pub(super) fn from_result(tiling: &Tiling) -> AttentionTiling {
        let (queries, _, keys) = tiling.tile;
        AttentionTiling { queries, keys, warps: tiling.warps, stages: tiling.stages, groups: tiling.groups }
    }
}

/// The attention that a step is, of operands as they are or, of keys and values, in pages of tables; none where it is something else.
pub(super) fn parts(step: &StepDesc) -> Option<Scheduled<Parts<'_>>> {
    let mut all = step.graph.nodes().iter().filter(|n| matches!(n.op, Op::Attention { .. }));
    match (all.next(), all.next()) {
        (Some(node), None) => Some(Parts::of(step, node)),
        _ => None,
    }
}

impl<'s> Parts<'s> {
    fn of(step: &'s StepDesc, node: &Node) -> Scheduled<Self> {
        let Op::Attention { num_heads, head_dim, mask, window, scale, unseen } = node.op else {
            return Err(Unscheduled("no attention".to_owned()));
        };
        let shape = |i: usize| step.graph.shape(node.inputs[i]);
        let dims = AttentionDims::of(num_heads, head_dim, shape(0), shape(1), shape(2));
        let dims = dims.map_err(|e| Unscheduled(e.to_string()))?;
        let fits =
            |size: usize| u32::try_from(size).map_err(|_| Unscheduled("sizes are too large".to_owned()));
        let reads = Reads::of(step, node, &dims)?;
        let given = reads.mask.map(|arg| shape_of(step, arg).dtype);
        let mask = match (mask, given) {
            (MaskKind::None, None) => Mask::None,
            (MaskKind::Causal, None) => window.map_or(Ok(Mask::Causal), |n| fits(n).map(Mask::Window))?,
            (MaskKind::Custom, Some(dtype)) => Mask::Given(dtype),
            _ => return Err(Unscheduled(format!("a mask of kind {mask:?}"))),
        };
        let dtype = node.shape.dtype();
        let what = Attention {
            dtype,
            head_dim: fits(dims.head_dim)?,
            value_dim: fits(dims.value_dim)?,
            groups: fits(dims.heads / dims.kv_heads)?,
            vectors: [1; 4],
            scale: scale.unwrap_or((1.0 / (head_dim as f64).sqrt()) as f32),
            mask,
            unseen,
            pages: [&reads.keys, &reads.values].map(|source| source.pages()),
            parts: false,
        };
        Ok(Parts { step, dims, what, reads })
    }

    /// The rows of the result: the queries of all heads that share keys.
    pub(super) fn rows(&self) -> Extent {
        self.dims.queries.extent() * i64::from(self.what.groups)
    }

    /// Its tilings, the largest that suits the number of rows first. All give the same bits.
    pub(super) fn tilings(&self, arch: Arch) -> Scheduled<Vec<Tiling>> {
        let (what, cols) = (&self.what, self.what.value_dim);
        if Atom::of(arch, what.dtype).is_none() || !matches!(what.dtype, DType::F16 | DType::BF16) {
            return Err(Unscheduled(format!("{} has no matrix instruction of {}", arch.name(), what.dtype)));
        }
        let head = what.head_dim.max(cols);
        let mut all = attention_tilings(arch.of_warps(), head);
        if arch == Arch::Sm90a && self.refused_by_groups()?.is_none() {
            all = beside_groups(attention_group_tilings(head), all);
        }
        let mut all: Vec<Tiling> = all.into_iter().map(|tiling| tiling.of_result(cols)).collect();
        let rows = self.rows().as_const().unwrap_or(i64::MAX);
        let suited = all.iter().position(|tiling| tiling.suits(rows, i64::MAX));
        let first = suited.unwrap_or(all.len().saturating_sub(1));
        all.rotate_left(first);
        // What cannot be made with dense operands cannot be made with others either.
        let made = |tiling: &&Tiling| attention(arch.of_warps(), what, &AttentionTiling::from_result(tiling));
        match all.iter().find(|tiling| !tiling.groups).as_ref().map(made) {
            None => Err(Unscheduled(format!("{} has no tiling for such heads", arch.name()))),
            Some(Err(e)) => Err(Unscheduled(e.to_string())),
            Some(Ok(_)) => Ok(all),
        }
    }

    /// Why the group level does not do the step, if it does not: what [`refused`] says, or rows that no map has.
    fn refused_by_groups(&self) -> Scheduled<Option<&'static str>> {
        let (mut vectors, mut follow) = ([1; 4], true);
        for (i, vector) in vectors.iter_mut().enumerate().take(3) {
            let Place { rows, vector: own, .. } = self.place_of(i)?;
            *vector = own;
            let at_least = |e: &Extent, n: i64| e.as_const().is_none_or(|e| e >= n);
            follow &= at_least(&rows.row, 1) && rows.batch.iter().all(|stride| at_least(stride, 0));
            follow &= i > 0 || self.what.groups == 1 || at_least(&rows.batch[BATCH], 1);
        }
        let why = refused(&Attention { vectors, ..self.what.clone() });
        Ok(why.or((!follow).then_some("rows that do not follow each other")))
    }

    /// What does all of the step.
    pub(super) fn undivided(self) -> Scheduled<Undivided<'s>> {
        let (rows, dims) = (self.rows(), &self.dims);
        let (queries, keys) = (dims.queries.extent(), dims.keys.extent());
        let batch = [dims.batch.extent(), Extent::Const(dims.kv_heads as i64)];
        let all = [rows, keys, keys - queries].into_iter().chain(batch);
        let mut uniforms: Vec<UniformArg> = all.map(UniformArg::Extent).collect();
        let (mut bindings, mut what) = (Vec::new(), self.what.clone());
        for i in 0..4 {
            let Place { arg, rows, offset, vector } = self.place_of(i)?;
            what.vectors[i] = vector;
            let base = UniformArg::Base { operand: arg, offset };
            uniforms.extend(std::iter::once(base).chain(rows.strides(None)));
            bindings.push(arg);
        }
        if let Some(arg) = self.reads.mask {
            bindings.push(arg);
            let mask = self.operand(arg);
            uniforms.extend(self.mask_rows(mask).uniforms(arg, mask, None));
        }
        for table in self.reads.tables() {
            bindings.push(table.list);
            uniforms.extend(table.uniforms(self.operand(table.list), (Extent::Const(0), None)));
        }
        let checks = self.checks();
        Ok(Undivided { parts: self, what, batch, bindings, uniforms, checks })
    }

    /// What is queries, keys, values or the result, where its rows are, and the first of its elements; what it is accessed by at once is noted.
    pub(super) fn rows_of(&mut self, i: usize) -> Scheduled<(Arg, Rows, Extent)> {
        let Place { arg, rows, offset, vector } = self.place_of(i)?;
        self.what.vectors[i] = vector;
        Ok((arg, rows, offset))
    }

    fn place_of(&self, i: usize) -> Scheduled<Place> {
        let dims = &self.dims;
        let size = [dims.head_dim, dims.head_dim, dims.value_dim, dims.value_dim][i] as i64;
        let source = match i {
            1 => &self.reads.keys,
            2 => &self.reads.values,
            _ => &Source::Operand(if i == 0 { self.reads.queries } else { Arg::Output(0) }),
        };
        let (arg, rows, offset, vector) = match source {
            Source::Operand(arg) => {
                let (of, own_heads) = (self.operand(*arg), matches!(i, 0 | 3));
                let rows = Rows::of(of, size, if own_heads { i64::from(self.what.groups) } else { 0 })?;
                let vector = rows.vector(of.view.offset, size);
                (*arg, rows, of.view.offset, vector)
            }
            Source::Table(table) => {
                let rows = Rows {
                    row: table.row,
                    col: table.col,
                    batch: [Extent::Const(0), table.head, Extent::Const(0)],
                };
                let offset = self.operand(table.table).view.offset;
                // Pages are as far apart as rows are, or a multiple of that.
                let vector = rows.vector(offset, size).min(rows.vector(Extent::Const(table.slice), size));
                (table.table, rows, offset, vector)
            }
        };
        Ok(Place { arg, rows, offset, vector })
    }

    /// What reports numbers of the lists that are out of range: once where keys and values have one list, and tables of as many pages.
    fn checks(&self) -> Vec<PartLaunch<Kernel>> {
        let mut all: Vec<PartLaunch<Kernel>> = Vec::new();
        for table in self.reads.tables() {
            let list = self.operand(table.list);
            let count = list.view.elements();
            let base = UniformArg::Base { operand: table.list, offset: list.view.offset };
            let uniforms = vec![UniformArg::Extent(count), UniformArg::Extent(table.slices), base];
            let bindings = vec![Bound::Operand(table.list)];
            if all.iter().any(|other| other.bindings == bindings && other.uniforms == uniforms) {
                continue;
            }
            let groups = count.ceil_div(i64::from(LIST_WORKGROUP));
            all.push(PartLaunch { code: Arc::new(list_check(list.dtype)), bindings, uniforms, groups });
        }
        all
    }

    pub(super) fn operand(&self, arg: Arg) -> &'s Operand {
        match arg {
            Arg::Input(i) => &self.step.inputs[i],
            Arg::Output(i) => &self.step.outputs[i],
        }
    }

    /// The mask, which is repeated where it has one element for all.
    pub(super) fn mask_rows(&self, mask: &Operand) -> Rows {
        let (view, scores) = (&mask.view, self.dims.scores());
        let skip = scores.len() - view.dims.len();
        let stride = |at: usize| match at.checked_sub(skip) {
            Some(own) => {
                view.strides[own] * Dim::from(view.dims[own]).extent().broadcast_factor(scores[at].extent())
            }
            None => Extent::Const(0),
        };
        let head = stride(1);
        Rows { row: stride(2), col: stride(3), batch: [stride(0), head * i64::from(self.what.groups), head] }
    }
}

/// Tilings of both levels, for many rows first: the group level has those that fill a tile of its own, and further tilings of it are for tuning.
fn beside_groups(groups: Vec<AttentionTiling>, warps: Vec<AttentionTiling>) -> Vec<AttentionTiling> {
    let (few, many): (Vec<_>, Vec<_>) = warps.into_iter().partition(|tiling| tiling.queries <= GROUP_ROWS);
    let mut groups = groups.into_iter();
    groups.next().into_iter().chain(few).chain(groups).chain(many).collect()
}

/// Where queries, keys, values or the result are.
struct Place {
    arg: Arg,
    rows: Rows,
    /// The first element.
    offset: Extent,
    /// How many neighbours may be accessed at once.
    vector: u32,
}

/// Where the rows of an operand are.
pub(super) struct Rows {
    pub(super) row: Extent,
    pub(super) col: Extent,
    /// The last one from head to head of those that share keys.
    pub(super) batch: [Extent; BATCH + 1],
}

impl Rows {
    /// Those of queries, keys, values or the result; `groups` of their heads share one of keys, or with 0, all of those that share it have one.
    pub(super) fn of(of: &Operand, size: i64, groups: i64) -> Scheduled<Rows> {
        let strides = &of.view.strides;
        let (item, row, col, head) = match **strides {
            [item, row, col] => (item, row, col, col * size),
            [item, head, row, col] => (item, row, col, head),
            _ => return Err(Unscheduled("an operand that has not three or four dimensions".to_owned())),
        };
        let shared = match groups {
            0 => [head, Extent::Const(0)],
            n => [head * n, head],
        };
        Ok(Rows { row, col, batch: [item, shared[0], shared[1]] })
    }

    /// How many neighbouring elements may be accessed at once.
    pub(super) fn vector(&self, offset: Extent, size: i64) -> u32 {
        let together = |v: i64| {
            let whole = |e: Extent| e.ceil_div(v) * v == e;
            let strides = [offset, self.row, Extent::Const(size)];
            strides.iter().chain(&self.batch).all(|&e| whole(e))
        };
        let neighbours = self.col == Extent::Const(1);
        [8, 4, 2].into_iter().find(|&v| neighbours && together(v)).map_or(1, |v| v as u32)
    }

    /// The values of its uniforms; `along` is the stride from part to part, where there are parts.
    pub(super) fn uniforms(
        &self,
        arg: Arg,
        of: &Operand,
        along: Option<Extent>,
    ) -> impl Iterator<Item = UniformArg> {
        let base = UniformArg::Base { operand: arg, offset: of.view.offset };
        std::iter::once(base).chain(self.strides(along))
    }

    /// Those behind the base.
    pub(super) fn strides(&self, along: Option<Extent>) -> impl Iterator<Item = UniformArg> {
        let strides = [self.row, self.col].into_iter().chain(along).chain(self.batch);
        strides.map(UniformArg::Extent)
    }
}
