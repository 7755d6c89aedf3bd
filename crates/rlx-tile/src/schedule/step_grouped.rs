//! A step around a grouped matmul: a kernel that makes lists of the rows of each group, and a program that looks up rows in them ([`super::grouped`]).
//!
//! How many rows a group has is not known before a run. So there are as many tiles as any choice could need, and workgroups of those that a run does not need end
//! at once. The tiling is for a group's share of the rows.

use std::sync::Arc;

use rlx_ir::{DType, Extent, Op};
use rlx_kernel::UniformArg;
use rlx_kernel::schedule::{
    Arg, LIST_WORKGROUP, MatMulRead, Scheduled, StepDesc, Unscheduled, list_check, reject,
};

use super::grouped_lists::{Lists, MOST_GROUPS, grouped_lists};
use super::launch::{Bound, Listed, PartLaunch, StepLaunch};
use super::matmul::{Matmul, matmul};
use super::step_operands::{Matrix, Operands};
use super::step_pages::shape_of;
use super::suited::{filling_first, multiplies, tilings_for};
use super::tilings::Tiling;
use crate::atom::{Arch, Atom, Loading};

/// Rows that each choose a matrix.
pub(super) struct StepGrouped {
    dtype: DType,
    what: Matmul,
    operands: Operands,
    /// Which operand chooses, and the type of choices; where its numbers begin.
    chosen: (Arg, DType, Extent),
    /// Rows of the result, and of the left operand.
    rows: Extent,
    left_rows: Extent,
    /// Depth and columns.
    k: Extent,
    n: Extent,
    groups: u32,
    /// Sizes of the choices and strides of left rows along them, where they are not one row each.
    dims: Vec<[Extent; 2]>,
}

/// The grouped matmul of a step; none where it is something else.
///
/// # Errors
/// What no program can do.
pub(super) fn parts(arch: Arch, step: &StepDesc) -> Option<Scheduled<StepGrouped>> {
    let node = step.graph.nodes().iter().find(|node| matches!(node.op, Op::GroupedMatMul))?;
    let input = |i: usize| step.graph.inputs().position(|n| n.id == node.inputs[i]).map(Arg::Input);
    Some(match (input(0), input(1), input(2)) {
        (Some(x), Some(w), Some(chosen)) if step.graph.outputs == [node.id] => {
            StepGrouped::of(arch, step, [x, w, chosen])
        }
        _ => reject("something is computed around rows in groups"),
    })
}

/// The product of sizes.
fn product(dims: &[Extent]) -> Extent {
    dims.iter().fold(Extent::Const(1), |n, &d| n * d)
}

impl StepGrouped {
    fn of(arch: Arch, step: &StepDesc, [x, w, chosen]: [Arg; 3]) -> Scheduled<StepGrouped> {
        let [left, right, list] = [x, w, chosen].map(|arg| shape_of(step, arg));
        let result = shape_of(step, Arg::Output(0));
        let dtype = left.dtype;
        if !multiplies(arch, dtype) {
            return reject(format!("{} has no matrix instruction of {dtype}", arch.name()));
        }
        if !(left.view.is_dense() && list.view.is_dense() && result.view.is_dense()) {
            return reject("rows in groups, or their choices, that are not dense");
        }
        let &[groups, k, n] = &right.view.dims[..] else { return reject("no matrices of groups") };
        let &[of_group, down, across] = &right.view.strides[..] else {
            return reject("no matrices of groups");
        };
        let groups = groups.as_const().and_then(|n| u32::try_from(n).ok());
        let Some(groups) = groups.filter(|n| (1..=MOST_GROUPS).contains(n)) else {
            return reject(format!("other groups than 1 to {MOST_GROUPS}"));
        };
        let Some((_, lead)) = left.view.dims.split_last() else { return reject("no rows") };
        let (zero, one) = (Extent::Const(0), Extent::Const(1));
        let read = |arg, of: &rlx_ir::lir::Operand, batch, strides| MatMulRead {
            arg,
            dtype: of.dtype,
            offset: of.view.offset,
            batch: vec![batch],
            strides,
            block: None,
        };
        let (rows, left_rows) = (list.view.elements(), product(lead));
        let operands = Operands::as_they_are(
            [
                Matrix::of(&read(x, left, zero, [k, one]), (left_rows, k))?,
                Matrix::of(&read(w, right, of_group, [down, across]), (k, n))?,
                Matrix::of(&read(Arg::Output(0), result, zero, [n, one]), (rows, n))?,
            ],
            false,
        );
        let mut what = operands.matmul(dtype, 1);
        what.grouped = true;
        let dims = if lead == &list.view.dims[..] { Vec::new() } else { repeated(lead, &list.view.dims) };
        let chosen = (chosen, list.dtype, list.view.offset);
        Ok(StepGrouped { dtype, what, operands, chosen, rows, left_rows, k, n, groups, dims })
    }

    /// Rows of a group, as many as a tile is chosen by, and columns.
    fn size(&self) -> (Extent, Extent) {
        (self.rows.ceil_div(i64::from(self.groups)), self.n)
    }

    /// Groups that may have rows.
    fn used(&self) -> Extent {
        self.rows.min(i64::from(self.groups))
    }

    /// How many tiles of so many rows there are at most: each group may have one that is not full.
    fn tiles(&self, tile: u32) -> Extent {
        (self.rows + self.used() * i64::from(tile - 1)).floor_div(i64::from(tile))
    }

    /// The tilings, the one that suits a group's share of the rows first.
    pub(super) fn tilings(&self, arch: Arch) -> Vec<Tiling> {
        let mut all = filling_first(tilings_for(arch, self.size()), self.size(), self.used());
        // NVIDIA's assembler keeps numbers of lists in registers, and so has too few for elements that are copied one by one.
        if self.what.left.vector == 1 || self.what.right.vector == 1 {
            all.iter_mut().for_each(|tiling| *tiling = tiling.with_twice_the_lanes());
        }
        all
    }

    /// Scratch memory for the lists of any tiling.
    fn scratch(&self, arch: Arch) -> Extent {
        let lists = if self.dims.is_empty() { 1i64 } else { 2 };
        let all = self.tilings(arch).into_iter().map(|of| of.tile.0);
        let (least, most) = all.fold((u32::MAX, 1), |(least, most), n| (least.min(n), most.max(n)));
        self.tiles(least) + (self.rows + self.used() * i64::from(most - 1)) * lists
    }

    /// The dispatches that do all of the step, divided as `tiling` says.
    ///
    /// # Errors
    /// What no program can do.
    pub(super) fn launch(&self, arch: Arch, tiling: &Tiling) -> Scheduled<StepLaunch> {
        let whole = |atom: &Atom| atom.loading == Loading::Matrix;
        if Atom::of(arch, self.dtype).is_some_and(whole) {
            return reject("lanes that do not know which sums they have store no rows that are looked up");
        }
        let program = matmul(arch, &self.what, tiling).map_err(|e| Unscheduled(e.to_string()))?;
        let (tile, columns, _) = tiling.tile;
        let tiles = self.tiles(tile);
        let bindings = self.operands.bindings().into_iter().flatten().map(Bound::Operand);
        Ok(StepLaunch {
            program: Arc::new(program),
            bindings: bindings.chain([Bound::Scratch]).collect(),
            uniforms: self.uniforms(tile, tiles),
            groups: self.n.ceil_div(i64::from(columns)) * tiles,
            tiling: *tiling,
            size: self.size(),
            checks: vec![self.check()],
            lists: Some(Listed { launch: self.lists(tile, tiles), scratch: self.scratch(arch) }),
        })
    }

    fn uniforms(&self, tile: u32, tiles: Extent) -> Vec<UniformArg> {
        let rows = Extent::Const(i64::from(tile));
        let result = tiles;
        let left = if self.dims.is_empty() { result } else { result + tiles * rows };
        let groups = Extent::Const(i64::from(self.groups));
        let sizes = [rows, self.n, self.k, tiles].map(UniformArg::Extent);
        let lists = [left, result, self.left_rows, groups, self.rows].map(UniformArg::Extent);
        sizes.into_iter().chain(self.operands.uniforms(None)).chain(lists).collect()
    }

    /// What makes the lists for tiles of so many rows.
    fn lists(&self, tile: u32, tiles: Extent) -> PartLaunch<rlx_kernel::Kernel> {
        let (arg, chosen, offset) = self.chosen;
        let what = Lists { chosen, groups: self.groups, tile, dims: self.dims.len() };
        let base = UniformArg::Base { operand: arg, offset };
        let dims = self.dims.iter().flatten().copied().map(UniformArg::Extent);
        let sizes = [UniformArg::Extent(self.rows), base, UniformArg::Extent(tiles)];
        PartLaunch {
            code: Arc::new(grouped_lists(&what)),
            bindings: vec![Bound::Operand(arg), Bound::Scratch],
            uniforms: sizes.into_iter().chain(dims).collect(),
            groups: Extent::Const(1),
        }
    }

    /// What reports choices that are out of range. Where there is nothing to multiply, no choice is looked at.
    fn check(&self) -> PartLaunch<rlx_kernel::Kernel> {
        let (arg, dtype, offset) = self.chosen;
        let count = self.rows * self.k.min(1i64);
        let groups = Extent::Const(i64::from(self.groups));
        let base = UniformArg::Base { operand: arg, offset };
        PartLaunch {
            code: Arc::new(list_check(dtype)),
            bindings: vec![Bound::Operand(arg)],
            uniforms: vec![UniformArg::Extent(count), UniformArg::Extent(groups), base],
            groups: count.ceil_div(i64::from(LIST_WORKGROUP)),
        }
    }
}

/// Sizes of the choices, and strides of left rows along them: 0 where these are repeated. Left rows may have fewer dimensions.
fn repeated(lead: &[Extent], chosen: &[Extent]) -> Vec<[Extent; 2]> {
    let (mut dims, mut stride) = (Vec::new(), Extent::Const(1));
    for (i, &size) in chosen.iter().rev().enumerate() {
        let own = lead.len().checked_sub(i + 1).map_or(Extent::Const(1), |at| lead[at]);
        let is_own = own != Extent::Const(1) || size == Extent::Const(1);
        dims.push([size, if is_own { stride } else { Extent::Const(0) }]);
        stride = stride * own;
    }
    dims.reverse();
    dims
}
