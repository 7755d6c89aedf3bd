//! Which tilings suit a result, and which types an architecture multiplies.

use rlx_ir::{DType, Extent};

use super::matmul::{Tiling, computed_tilings, large_tilings, tilings};
use super::matmul_groups::group_tilings;
use crate::atom::{Arch, Atom};
use crate::group::GROUP_ROWS;

/// The tiling that a program of warps takes for a matmul of these rows and columns where nothing was tuned, as it is where operands are computed.
pub fn suited_tiling(arch: Arch, size: (Extent, Extent)) -> Option<Tiling> {
    tilings_for(arch.of_warps(), size).first().copied()
}

/// Whether steps of [`step()`](super::step()) multiply elements of this type on the architecture.
pub fn multiplies(arch: Arch, dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16) && Atom::of(arch, dtype).is_some()
}

/// The instruction that steps of this type are multiplied by, for people; of the group level that of warp groups.
pub fn instruction(arch: Arch, dtype: DType) -> Option<String> {
    let atom = Atom::of(arch, dtype).filter(|_| multiplies(arch, dtype))?;
    Some(match arch {
        Arch::Sm90a => format!("wgmma.mma_async.sync.aligned.m64nNk16.f32.{0}.{0}", atom.short()),
        _ => atom.instruction(),
    })
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

/// The largest tiling that suits the result, or the smallest where none does, before those behind it and then the others. Sizes that are open count as
/// large. Not measured. Last are those that are for tuning alone.
pub(super) fn tilings_for(arch: Arch, size: (Extent, Extent)) -> Vec<Tiling> {
    let mut all = suited_first(tilings(arch), size);
    all.extend(large_tilings(arch).into_iter().filter(|tiling| suits(tiling, size)));
    all
}

/// The tilings of the group level, then those of sm_80 that are for few rows, the one that suits the result first.
pub(super) fn group_tilings_for(size: (Extent, Extent)) -> Vec<Tiling> {
    let few = |tiling: &Tiling| tiling.tile.0 < GROUP_ROWS;
    let of_warps = tilings(Arch::Sm90a.of_warps()).into_iter().filter(few);
    suited_first(group_tilings().into_iter().chain(of_warps).collect(), size)
}

/// The same where operands are computed as they are copied.
pub(super) fn computed_tilings_for(arch: Arch, size: (Extent, Extent)) -> Vec<Tiling> {
    suited_first(computed_tilings(arch), size)
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
