//! A step of LIR as a tile program: a matmul with what stands behind it in its region, a convolution ([`step_conv`]), or an attention ([`step_attention`]).
//!
//! Operands are read through the step's own views: whether one is transposed, repeated along the batch, and how many of its elements may be
//! accessed at once follows from its strides. The epilogue is made from the body by the code that makes whole kernels of it
//! ([`MatMulParts`]), so both round at the same places; only the sums are other chains.

use std::sync::Arc;

use rlx_ir::{DType, Extent};
use rlx_kernel::schedule::{Arg, MatMulParts, Scheduled, StepDesc, Unscheduled};
use rlx_kernel::{TypeSupport, UniformArg};

use super::matmul::{Matmul, Operand, Tiling, large_tilings, matmul, tilings};
use super::{step_attention, step_conv};
use crate::atom::{Arch, Atom};
use crate::ir::Program;
use crate::scalar::Scalar;

/// One dispatch of a tile program; see [`rlx_kernel::Launch`].
#[derive(Debug, Clone)]
pub struct StepLaunch {
    /// The program.
    pub program: Arc<Program>,
    /// The operand of each of the program's buffers. Each is bound from where a multiple of 16 bytes is.
    pub bindings: Vec<Arg>,
    /// The value of each of its uniforms.
    pub uniforms: Vec<UniformArg>,
    /// How many workgroups.
    pub groups: Extent,
    /// How the program divides the result.
    pub tiling: Tiling,
    /// Rows and columns of the result.
    pub size: (Extent, Extent),
}

/// The dispatch of a step around a matmul or a convolution of f16 or bf16, or of an attention of these, divided as `tiling` says, or else as suits its sizes.
///
/// # Errors
/// Why there is none.
pub fn step(arch: Arch, step: &StepDesc, tiling: Option<&Tiling>) -> Scheduled<StepLaunch> {
    let refused = |why: String| Unscheduled(why);
    if let Some(attention) = step_attention::parts(step) {
        let attention = attention?;
        let suited = attention.tilings(arch)?.first().copied();
        let tiling = tiling.copied().or(suited).ok_or_else(|| refused("no tilings".to_owned()))?;
        return attention.launch(arch, &tiling);
    }
    if let Some(conv) = step_conv::parts(arch, step) {
        let conv = conv?;
        let tiling = tiling.copied().or_else(|| conv.tilings(arch).first().copied());
        return conv.launch(arch, &tiling.ok_or_else(|| refused("no tilings".to_owned()))?);
    }
    let parts = parts(arch, step)?;
    let suited = tilings_for(arch, (parts.m, parts.n)).first().copied();
    let tiling = tiling.copied().or(suited).ok_or_else(|| refused("no tilings".to_owned()))?;
    let [left, right] = parts.operands;
    let matrices = [
        Matrix::of(&parts, left, (parts.m, parts.k)),
        Matrix::of(&parts, right, (parts.k, parts.n)),
        Matrix::of(&parts, Arg::Output(0), (parts.m, parts.n)),
    ];
    let mut what = Matmul::new(parts.dtype);
    what.batch = parts.batch.len();
    [what.left, what.right, what.result] = [0, 1, 2].map(|i| matrices[i].operand);

    let mut bindings = vec![left, right, Arg::Output(0)];
    let mut uniforms = uniforms(&parts, &matrices);
    let buffers: Vec<_> = what.all_buffers().into_iter().zip(bindings.iter().copied()).collect();
    let named: Vec<_> = what.all_uniforms().into_iter().zip(uniforms.iter().copied()).collect();
    if let Some(epilogue) = parts.epilogue(&buffers, &named)? {
        what.buffers = epilogue.kernel.buffers[buffers.len()..].to_vec();
        what.uniforms = epilogue.kernel.uniforms[named.len()..].to_vec();
        // Functions that no language has become those that all have.
        let body = Scalar::from_kernel(epilogue.kernel).and_then(|body| body.emulated(TypeSupport::ALL));
        what.epilogue = Some(body.map_err(|e| refused(e.to_string()))?);
        (bindings, uniforms) = (epilogue.bindings, epilogue.uniforms);
    }
    let program = matmul(arch, &what, &tiling).map_err(|e| refused(e.to_string()))?;
    let (tm, tn, _) = tiling.tile;
    let tiles = parts.m.ceil_div(i64::from(tm)) * parts.n.ceil_div(i64::from(tn));
    let groups = parts.batch.iter().fold(tiles, |n, &d| n * d);
    let size = (parts.m, parts.n);
    Ok(StepLaunch { program: Arc::new(program), bindings, uniforms, groups, tiling, size })
}

/// The tilings of a step, the one that suits its sizes first. All give the same bits.
///
/// # Errors
/// Why it has none.
pub fn step_tilings(arch: Arch, step: &StepDesc) -> Scheduled<Vec<Tiling>> {
    match step_attention::parts(step) {
        Some(attention) => attention?.tilings(arch),
        None if let Some(conv) = step_conv::parts(arch, step) => Ok(conv?.tilings(arch)),
        None => {
            let parts = parts(arch, step)?;
            Ok(tilings_for(arch, (parts.m, parts.n)))
        }
    }
}

/// Whether steps of [`step()`] multiply elements of this type on the architecture.
pub fn multiplies(arch: Arch, dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16) && Atom::of(arch, dtype).is_some()
}

/// The types of which steps are multiplied on the architecture.
pub fn multiplied(arch: Arch) -> &'static [DType] {
    match (multiplies(arch, DType::F16), multiplies(arch, DType::BF16)) {
        (true, true) => &[DType::F16, DType::BF16],
        (true, false) => &[DType::F16],
        (false, true) => &[DType::BF16],
        (false, false) => &[],
    }
}

pub(super) fn parts(arch: Arch, step: &StepDesc) -> Scheduled<MatMulParts<'_>> {
    let parts = MatMulParts::of(step)?;
    match multiplies(arch, parts.dtype) {
        true => Ok(parts),
        false => Err(Unscheduled(format!("{} has no matrix instruction of {}", arch.name(), parts.dtype))),
    }
}

/// The largest tiling that suits the result, or the smallest where none does, before those behind it and then the others. Sizes that are open count as
/// large. Not measured. Last are those that are for tuning alone.
pub(super) fn tilings_for(arch: Arch, (rows, cols): (Extent, Extent)) -> Vec<Tiling> {
    let [rows, cols] = [rows, cols].map(|size| size.as_const().unwrap_or(i64::MAX));
    let mut all = tilings(arch);
    let suited = all.iter().position(|tiling| tiling.suits(rows, cols));
    let first = suited.unwrap_or(all.len().saturating_sub(1));
    all.rotate_left(first);
    all.extend(large_tilings(arch).into_iter().filter(|tiling| tiling.suits(rows, cols)));
    all
}

/// The values of the uniforms of [`Matmul::all_uniforms`] before those of bodies.
fn uniforms(parts: &MatMulParts<'_>, matrices: &[Matrix; 3]) -> Vec<UniformArg> {
    let mut all: Vec<UniformArg> =
        [parts.m, parts.n, parts.k].iter().chain(&parts.batch).map(|&e| UniformArg::Extent(e)).collect();
    all.extend(matrices.iter().flat_map(|matrix| matrix.uniforms(None)));
    all
}

/// An operand and where it is stored.
pub(super) struct Matrix {
    /// None for scratch memory.
    arg: Option<Arg>,
    pub(super) operand: Operand,
    offset: Extent,
    /// From stored row to row, and from stored column to column.
    pub(super) row: Extent,
    pub(super) col: Extent,
    batch: Vec<Extent>,
}

impl Matrix {
    pub(super) fn of(parts: &MatMulParts<'_>, arg: Arg, (rows, cols): (Extent, Extent)) -> Matrix {
        let of = parts.operand(arg);
        let (offset, batch) = (of.view.offset, parts.batch_strides(arg));
        let rank = of.view.strides.len();
        let (down, across) = (of.view.strides[rank - 2], of.view.strides[rank - 1]);
        let one = Extent::Const(1);
        let transposed = across != one && down == one && matches!(arg, Arg::Input(_));
        let (row, col, length) = if transposed { (across, down, rows) } else { (down, across, cols) };
        let multiples = [offset, row, length].into_iter().chain(batch.iter().copied());
        let vector = if col == one { vector(of.dtype, multiples) } else { 1 };
        let operand = Operand { dtype: of.dtype, transposed, vector };
        Matrix { arg: Some(arg), operand, offset, row, col, batch }
    }

    /// The sums of one part of the depth, one item of the batch behind the other.
    pub(super) fn of_scratch(parts: &MatMulParts<'_>) -> Matrix {
        let vector = vector(DType::F32, [parts.n].into_iter());
        let operand = Operand { dtype: DType::F32, transposed: false, vector };
        let (mut batch, mut inside) = (Vec::new(), parts.m * parts.n);
        for &size in parts.batch.iter().rev() {
            batch.push(inside);
            inside = inside * size;
        }
        batch.reverse();
        Matrix { arg: None, operand, offset: Extent::Const(0), row: parts.n, col: Extent::Const(1), batch }
    }

    /// The values of its uniforms; `along` is the stride of what comes before the batch, if there is such a dimension.
    pub(super) fn uniforms(&self, along: Option<Extent>) -> impl Iterator<Item = UniformArg> {
        let base = match self.arg {
            Some(operand) => UniformArg::Base { operand, offset: self.offset },
            None => UniformArg::Extent(self.offset),
        };
        let strides = [self.row, self.col].into_iter().chain(along).chain(self.batch.iter().copied());
        std::iter::once(base).chain(strides.map(UniformArg::Extent))
    }
}

/// How many neighbours may be accessed at once, where all of these are multiples of the number.
pub(super) fn vector(dtype: DType, multiples: impl Iterator<Item = Extent> + Clone) -> u32 {
    let together = |v: u32| {
        let whole = |e: Extent| e.ceil_div(i64::from(v)) * i64::from(v) == e;
        v as usize * dtype.size_bytes() <= 16 && multiples.clone().all(whole)
    };
    [8, 4, 2].into_iter().find(|&v| together(v)).unwrap_or(1)
}
