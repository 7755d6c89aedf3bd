//! Which tilings suit a result, and which types an architecture multiplies.

use rlx_ir::{DType, Extent};

use super::matmul::{Tiling, computed_tilings, large_tilings, tilings};
use crate::atom::{Arch, Atom};

/// The tiling that a matmul of these rows and columns takes where nothing was tuned.
pub fn suited_tiling(arch: Arch, size: (Extent, Extent)) -> Option<Tiling> {
    tilings_for(arch, size).first().copied()
}

/// Whether steps of [`step()`](super::step()) multiply elements of this type on the architecture.
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

/// The largest tiling that suits the result, or the smallest where none does, before those behind it and then the others. Sizes that are open count as
/// large. Not measured. Last are those that are for tuning alone.
pub(super) fn tilings_for(arch: Arch, size: (Extent, Extent)) -> Vec<Tiling> {
    let mut all = suited_first(tilings(arch), size);
    all.extend(large_tilings(arch).into_iter().filter(|tiling| suits(tiling, size)));
    all
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
