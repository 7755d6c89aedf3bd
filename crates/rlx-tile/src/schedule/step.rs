//! A step of LIR as a tile program: a matmul with what stands behind it in its region, a convolution ([`step_conv`]), or an attention ([`step_attention`]).
//!
//! Operands are read through the step's own views: whether one is transposed, repeated along the batch, and how many of its elements may be
//! accessed at once follows from its strides. The epilogue is made from the body by the code that makes whole kernels of it
//! ([`MatMulParts`]), so both round at the same places; only the sums are other chains.

use std::sync::Arc;

use rlx_ir::{DType, Extent, Op};
use rlx_kernel::UniformArg;
use rlx_kernel::schedule::{Arg, MatMulOperand, MatMulParts, Scheduled, StepDesc, Unscheduled};

use super::matmul::{Tiling, computed_tilings, large_tilings, matmul, tilings};
use super::step_operands::{Matrix, Operands, add_prologues};
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
    let suited = tilings_of(arch, &parts, (parts.m, parts.n)).first().copied();
    let tiling = tiling.copied().or(suited).ok_or_else(|| refused("no tilings".to_owned()))?;
    let operands = Operands::of(&parts, Matrix::of(&parts.result()?, (parts.m, parts.n))?)?;
    let mut what = operands.matmul(&parts);

    let mut bindings: Vec<Arg> = operands.bindings().into_iter().flatten().collect();
    let mut uniforms = sizes(&parts);
    uniforms.extend(operands.uniforms(None));
    let buffers: Vec<_> = what.all_buffers().into_iter().zip(bindings.iter().copied()).collect();
    let named: Vec<_> = what.all_uniforms().into_iter().zip(uniforms.iter().copied()).collect();
    if let Some(epilogue) = parts.epilogue(&buffers, &named)? {
        what.buffers = epilogue.kernel.buffers[buffers.len()..].to_vec();
        what.uniforms = epilogue.kernel.uniforms[named.len()..].to_vec();
        what.epilogue = Some(Scalar::of_kernel(epilogue.kernel, 0)?);
        (bindings, uniforms) = (epilogue.bindings, epilogue.uniforms);
    }
    add_prologues(&parts, &mut what, &bindings, &uniforms)?;
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
            Ok(tilings_of(arch, &parts, (parts.m, parts.n)))
        }
    }
}

/// The tiling that a matmul of these rows and columns takes where nothing was tuned.
pub fn suited_tiling(arch: Arch, size: (Extent, Extent)) -> Option<Tiling> {
    tilings_for(arch, size).first().copied()
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

/// Whether a step is a matmul by weights in blocks.
pub fn multiplies_blocks(step: &StepDesc) -> bool {
    step.graph.nodes().iter().any(|node| node.op == Op::MatMulBlocks)
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
pub(super) fn tilings_for(arch: Arch, size: (Extent, Extent)) -> Vec<Tiling> {
    let mut all = suited_first(tilings(arch), size);
    all.extend(large_tilings(arch).into_iter().filter(|tiling| suits(tiling, size)));
    all
}

/// The same for a step with these operands.
pub(super) fn tilings_of(arch: Arch, parts: &MatMulParts<'_>, size: (Extent, Extent)) -> Vec<Tiling> {
    match parts.operands().iter().any(MatMulOperand::is_computed) {
        true => suited_first(computed_tilings(arch), size),
        false => tilings_for(arch, size),
    }
}

fn suits(tiling: &Tiling, (rows, cols): (Extent, Extent)) -> bool {
    let [rows, cols] = [rows, cols].map(|size| size.as_const().unwrap_or(i64::MAX));
    tiling.suits(rows, cols)
}

fn suited_first(mut all: Vec<Tiling>, size: (Extent, Extent)) -> Vec<Tiling> {
    let first = all.iter().position(|tiling| suits(tiling, size)).unwrap_or(all.len().saturating_sub(1));
    all.rotate_left(first);
    all
}

/// The values of the uniforms of [`Matmul::all_uniforms`](super::Matmul::all_uniforms) before those of operands.
fn sizes(parts: &MatMulParts<'_>) -> Vec<UniformArg> {
    [parts.m, parts.n, parts.k].iter().chain(&parts.batch).map(|&e| UniformArg::Extent(e)).collect()
}
