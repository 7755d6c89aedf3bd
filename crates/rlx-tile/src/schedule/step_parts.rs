//! A step of LIR as two dispatches: a tile program for parts of its sums, and a kernel that joins them.
//!
//! ```text
//! x [1, 4096] · w [4096, 4096]   program: 7 parts of [1, ≤ 640] · [≤ 640, 4096] ──▶ scratch [7, 1, 4096] f32
//!                                kernel:  scratch[0] + scratch[1] + … ──▶ rounded, and what is behind the matmul
//! ```
//!
//! Scratch is memory that nothing else uses meanwhile. A part's sums are in the order of the depth, and the parts are added in theirs, so bits do not depend on
//! which workgroup is done first; but they are another chain of sums than that of [`step()`](super::step()), and depend on the number of parts. It is
//! for devices that may choose their chain.

use std::sync::Arc;

use rlx_ir::Extent;
use rlx_kernel::schedule::{Arg, MatMulParts, Scheduled, StepDesc, Unscheduled, schedule, variants};
use rlx_kernel::{Kernel, UniformArg};

use super::matmul::{Tiling, matmul};
use super::parts::{Division, FEW_ROWS, Parts};
use super::step::{parts, tilings_of};
use super::step_attention;
use super::step_operands::{Matrix, Operands, add_prologues};
use crate::atom::Arch;
use crate::ir::Program;

/// What a dispatch of a divided step is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// An operand of the step.
    Operand(Arg),
    /// The scratch memory, from its first element on.
    Scratch,
}

/// A dispatch of a divided step; see [`rlx_kernel::Launch`].
#[derive(Debug, Clone)]
pub struct PartLaunch<P> {
    /// The program or kernel.
    pub code: Arc<P>,
    /// What each of its buffers is.
    pub bindings: Vec<Bound>,
    /// The value of each of its uniforms.
    pub uniforms: Vec<UniformArg>,
    /// How many workgroups.
    pub groups: Extent,
}

/// The dispatches of a divided step.
#[derive(Debug, Clone)]
pub struct PartsLaunch {
    /// What sums over a part.
    pub parts: PartLaunch<Program>,
    /// What joins the parts.
    pub join: PartLaunch<Kernel>,
    /// How many parts there are. With one, the undivided step does the same with less.
    pub count: Extent,
    /// Elements of the scratch memory, each an f32.
    pub scratch: Extent,
    /// Rows of the result.
    pub rows: Extent,
    /// With more rows than this, the undivided step does it.
    pub few: u32,
    /// How the program divides what is no sum.
    pub tiling: Tiling,
}

/// The dispatches of a step whose result has few rows, or may have few, and whose sums are long, or may be: divided as `division` says. None for other
/// steps, and where there would be one part.
///
/// # Errors
/// Why there are none for a step that would be divided.
pub fn step_in_parts(
    arch: Arch,
    step: &StepDesc,
    tiling: Option<&Tiling>,
    division: &Division,
) -> Scheduled<Option<PartsLaunch>> {
    match step_attention::parts(step) {
        Some(attention) => attention?.in_parts(arch, tiling, division),
        None => matmul_in_parts(arch, &parts(arch, step)?, tiling, division),
    }
}

/// Whether something of these sizes is worth dividing, as far as they are known.
pub(super) fn is_divided((rows, few): (Extent, u32), count: Extent) -> bool {
    rows.as_const().is_none_or(|rows| rows <= i64::from(few)) && count != Extent::Const(1)
}

fn matmul_in_parts(
    arch: Arch,
    parts: &MatMulParts<'_>,
    tiling: Option<&Tiling>,
    division: &Division,
) -> Scheduled<Option<PartsLaunch>> {
    if parts.is_of_blocks() {
        // Blocks would begin within parts, and few rows have kernels.
        return Ok(None);
    }
    let few = Extent::Const(i64::from(FEW_ROWS));
    let rows = parts.m.min(few);
    let all = parts.batch.iter().fold(Extent::Const(1), |n, &d| n * d);
    // Tiles of the smallest tiling, so that no tiling is divided otherwise.
    let divided = Parts::of(parts.k, parts.n.ceil_div(TILE_COLS) * all, division.units, division.least_depth);
    if !is_divided((parts.m, FEW_ROWS), divided.count) {
        return Ok(None);
    }
    let refused = |why: String| Unscheduled(why);
    let tiling = tiling.copied().or_else(|| tilings_of(arch, parts, (rows, parts.n)).first().copied());
    let tiling = tiling.ok_or_else(|| refused("no tilings".to_owned()))?;
    let operands = Operands::of(parts, Matrix::of_scratch(parts))?;
    let mut what = operands.matmul(parts);
    (what.parts, what.batch) = (true, 1 + parts.batch.len());

    let sizes = [parts.m, parts.n, parts.k, divided.count].into_iter().chain(parts.batch.iter().copied());
    let mut uniforms: Vec<UniformArg> = sizes.map(UniformArg::Extent).collect();
    uniforms.extend(operands.uniforms(Some((divided.each, parts.m * parts.n * all))));
    uniforms.push(UniformArg::Extent(divided.each));
    let bindings = operands.bindings();
    // A body reads no buffer, so it does not matter what stands for the scratch memory.
    let bound: Vec<Arg> = bindings.iter().map(|arg| arg.unwrap_or(Arg::Output(0))).collect();
    add_prologues(parts, &mut what, &bound, &uniforms)?;
    let program = matmul(arch, &what, &tiling).map_err(|e| refused(e.to_string()))?;
    let (tm, tn, _) = tiling.tile;
    let tiles = parts.m.ceil_div(i64::from(tm)) * parts.n.ceil_div(i64::from(tn));
    let most = rows * TILE_COLS * divided.most;
    Ok(Some(PartsLaunch {
        parts: PartLaunch {
            code: Arc::new(program),
            bindings: bindings.into_iter().map(|arg| arg.map_or(Bound::Scratch, Bound::Operand)).collect(),
            uniforms,
            groups: tiles * all * divided.count,
        },
        join: join(parts, divided.count)?,
        count: divided.count,
        scratch: (divided.count * all * rows * parts.n).min(most),
        rows: parts.m,
        few: FEW_ROWS,
        tiling,
    }))
}

/// Columns of the smallest tiling.
const TILE_COLS: i64 = 64;

/// The kernel that adds up the parts of a matmul.
fn join(parts: &MatMulParts<'_>, count: Extent) -> Scheduled<PartLaunch<Kernel>> {
    let joined = parts.joined(count)?;
    let variant = variants(&joined.step)?.first().copied();
    let variant = variant.ok_or_else(|| Unscheduled("no variants".to_owned()))?;
    let mut launches = schedule(&joined.step, variant)?;
    let (Some(launch), true) = (launches.pop(), launches.is_empty()) else {
        return Err(Unscheduled("several kernels that join parts".to_owned()));
    };
    // The sums are the first input, the others are some of the step's.
    let bound = |arg: Arg| match arg {
        Arg::Input(i) => match i.checked_sub(1).and_then(|i| joined.inputs.get(i)) {
            Some(&original) => Bound::Operand(Arg::Input(original)),
            None => Bound::Scratch,
        },
        output @ Arg::Output(_) => Bound::Operand(output),
    };
    let uniform = |uniform: &UniformArg| match *uniform {
        UniformArg::Base { operand, offset } => match bound(operand) {
            Bound::Operand(operand) => UniformArg::Base { operand, offset },
            Bound::Scratch => UniformArg::Extent(offset),
        },
        extent @ UniformArg::Extent(_) => extent,
    };
    let bindings = launch.bindings.iter().map(|&arg| bound(arg)).collect();
    let uniforms = launch.uniforms.iter().map(uniform).collect();
    Ok(PartLaunch { code: launch.kernel, bindings, uniforms, groups: launch.groups })
}
