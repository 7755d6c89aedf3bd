//! Which tilings suit a result, and which types an architecture multiplies.

use rlx_ir::{DType, Extent};

use super::matmul_groups::{group_tilings, turn_tilings};
use super::matmul_tensors::tensor_tilings;
use super::tilings::{Tiling, computed_tilings, large_tilings, tilings};
use crate::atom::{Arch, Atom};
use crate::group::GROUP_ROWS;
use crate::group::tensor::LANES;

/// The tiling that a program of warps takes for a matmul of these rows and columns where nothing was tuned, as it is where operands are computed.
pub fn suited_tiling(arch: Arch, size: (Extent, Extent)) -> Option<Tiling> {
    tilings_for(arch.of_warps(), size).first().copied()
}

/// Whether steps of [`step()`](super::step()) multiply elements of this type on the architecture.
pub fn multiplies(arch: Arch, dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16) && Atom::of(arch, dtype).is_some()
}

/// The instruction that steps of this type are multiplied by, for people; of the group level that of warp groups, or into tensor memory.
pub fn instruction(arch: Arch, dtype: DType) -> Option<String> {
    let atom = Atom::of(arch, dtype).filter(|_| multiplies(arch, dtype))?;
    Some(match arch {
        Arch::Sm90a => format!("wgmma.mma_async.sync.aligned.m64nNk16.f32.{0}.{0}", atom.short()),
        // Which of both types it is, its descriptor says.
        Arch::Sm100a => "tcgen05.mma.cta_group::1.kind::f16".to_owned(),
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

/// The same with the largest tiling first of which there are enough tiles to keep a GPU busy, if there is one that is not small: of 1568 × 512 results over a depth of 4608 (one of the
/// last convolutions of an image net), 52 tiles of 128 × 128 take an H200 107 µs.
pub(super) fn filling_first(
    mut all: Vec<Tiling>,
    (rows, cols): (Extent, Extent),
    matrices: Extent,
) -> Vec<Tiling> {
    let [m, n, count] = [rows, cols, matrices].map(|size| size.as_const().unwrap_or(i64::MAX));
    let is_small = |tiling: &Tiling| tiling.tile.0 * tiling.tile.1 < SMALL;
    let fills = |tiling: &Tiling| !is_small(tiling) && tiling.suits(m, n) && tiling.fills(m, n, count);
    if let Some(at) = all.iter().position(fills) {
        all[..=at].rotate_right(1);
    }
    all
}

/// Results of a tile that is small: each of its operands is used so few times that smaller ones are for small results alone.
const SMALL: u32 = 64 * 64;

/// Rows and columns of the smallest tile of the group level.
pub(super) fn smallest_of_groups(arch: Arch) -> (u32, u32) {
    (if arch == Arch::Sm100a { LANES } else { GROUP_ROWS }, GROUP_ROWS)
}

/// The tilings of the group level and those of sm_80 that are for few rows, the one that suits the result first; then all others of sm_80. Where the depth is so short that there
/// is nothing to copy ahead, and results are many, those of sm_80 are first: more of their workgroups are under way at once.
pub(super) fn group_tilings_for(arch: Arch, size: (Extent, Extent), depth: Extent) -> Vec<Tiling> {
    let few = |tiling: &Tiling| tiling.tile.0 < smallest_of_groups(arch).0;
    let of_groups = if arch == Arch::Sm100a { tensor_tilings() } else { group_tilings() };
    let of_warps = tilings_for(arch.of_warps(), size);
    let (few, others): (Vec<Tiling>, Vec<Tiling>) = of_warps.into_iter().partition(few);
    let [rows, cols] = [size.0, size.1].map(|size| size.as_const().unwrap_or(0));
    let many = others.first().is_some_and(|tiling| tiling.fills(rows / 2, cols, 1));
    if many && depth.as_const().is_some_and(|depth| depth <= SHALLOW) {
        let all = filling_first([others, few].concat(), size, Extent::Const(1));
        return all.into_iter().chain(of_groups).collect();
    }
    let groups = suited_first(of_groups.into_iter().chain(few).collect(), size);
    groups.into_iter().chain(others).collect()
}

/// How many tiles a tiling makes of results of a known size.
fn tiles(tiling: &Tiling, (rows, cols): (Extent, Extent), matrices: Extent) -> Option<i64> {
    let [rows, cols, matrices] = [rows.as_const()?, cols.as_const()?, matrices.as_const()?];
    let along = |size: i64, tile: u32| size / i64::from(tile) + i64::from(size % i64::from(tile) > 0);
    Some(along(rows, tiling.tile.0).saturating_mul(along(cols, tiling.tile.1)).saturating_mul(matrices))
}

/// The same tilings of a result whose tiles are rounds of as many as the device has compute units, with 128 × 192 first where its rounds take less than those of the first one: 6304 × 768
/// are 150 tiles of 128 × 256, of whose second round an H200 has nearly none to do, and 200 of 128 × 192. Where both take as long, it is the larger tile. Not measured.
pub(super) fn in_smaller_rounds(
    mut all: Vec<Tiling>,
    size: (Extent, Extent),
    matrices: Extent,
    units: u32,
) -> Vec<Tiling> {
    let (units, area) = (i64::from(units.max(1)), |of: &Tiling| i64::from(of.tile.0) * i64::from(of.tile.1));
    // What is multiplied in a row, and the larger tile before.
    let time = |of: &Tiling| {
        let rounds = (tiles(of, size, matrices)?.saturating_add(units - 1)) / units;
        Some((rounds.saturating_mul(area(of)), -area(of)))
    };
    let between = |of: &Tiling| of.groups && of.tile.0 == 128 && of.tile.1 == 192 && suits(of, size);
    let at = all.iter().position(between);
    if let (Some(at), Some(first)) = (at, all.first().filter(|of| of.groups && of.tile.0 == 128)) {
        let less = time(&all[at]).zip(time(first)).is_some_and(|(between, first)| between < first);
        if less {
            all[..=at].rotate_right(1);
        }
    }
    all
}

/// The same tilings, and those by which workgroups have several tiles, where there are more of these than compute units.
pub(super) fn with_turns(
    mut all: Vec<Tiling>,
    size: (Extent, Extent),
    matrices: Extent,
    units: u32,
) -> Vec<Tiling> {
    let several = |of: &Tiling| tiles(of, size, matrices).is_none_or(|tiles| tiles > i64::from(units));
    all.extend(turn_tilings().into_iter().filter(|of| suits(of, size) && several(of)));
    all
}

/// A depth of so much is one or two steps of the group level.
const SHALLOW: i64 = 128;

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
