//! Matmuls of sm_100a: a [`Case`] whose operands tensor copies can take, multiplied into tensor memory.
#![allow(dead_code)]

use super::{Case, groups, up};
use rlx_ir::DType;
use rlx_ir::testing::Gen;
use rlx_tile::Arch;
use rlx_tile::group::GROUP_WARPS;
use rlx_tile::schedule::{Matmul, Operand, Tiling, tensor_tilings};

/// The tiling of the smallest tile.
pub fn smallest() -> Tiling {
    tensor_tilings().into_iter().min_by_key(|t| t.tile.0 * t.tile.1).expect("there are tilings")
}

/// A plain matmul by a small tiling: two tiles and an edge in each direction, five steps through three stages.
pub fn small(dtype: DType) -> Case {
    let mut what = Matmul::new(dtype);
    what.result.vector = 1;
    let tiling = Tiling { stages: 3, bands: 2, ..smallest() };
    let mut case = groups::of(&mut Gen::new(7), Arch::Sm100a, what, tiling, (150, 72, 272), Vec::new());
    case.clear_bodies();
    case
}

/// A random matmul on a random tiling, some of which have other numbers of warp groups and of columns than those that steps take.
pub fn random(g: &mut Gen) -> Case {
    let mut all = tensor_tilings();
    all.sort_by_key(|t| t.tile.0 * t.tile.1);
    // Small ones more often: a large one takes the interpreter long.
    let last = all.len() as i64 - 1;
    let mut tiling = all[(g.int(0..=last) * g.int(0..=last) / last) as usize];
    tiling.bands = g.int(1..=3) as u32;
    tiling.stages = g.int(2..=i64::from(tiling.stages)) as u32;
    let compute = g.pick(&[DType::F16, DType::BF16]);
    let mut what = Matmul::new(compute);
    what.right.transposed = g.chance(0.5);
    if g.chance(0.3) {
        tiling.warps.0 = GROUP_WARPS;
    }
    // A right operand along its depth may have columns that are no multiple of 64.
    if what.right.transposed && g.chance(0.3) {
        let of = 16 * tiling.warps.0 / GROUP_WARPS;
        tiling.tile.1 -= of * g.int(1..=i64::from(48 / of)) as u32;
    }
    let vector = g.pick(&[1, 2, 4]);
    what.result = Operand { dtype: g.pick(&[compute, DType::F32]), transposed: false, vector };
    what.batch = g.int(0..=3) as usize;
    let size = |g: &mut Gen, most: u32| g.int(1..=i64::from(most)) as i32;
    let (tm, tn, tk) = tiling.tile;
    let m = size(g, tm + 9);
    let of_columns = if what.right.transposed { vector as i32 } else { 8 };
    let n = up(size(g, tn + 9), of_columns.max(vector as i32));
    let k = up(size(g, 5 * tk), 8);
    let batch = (0..what.batch).map(|_| g.int(1..=2) as i32).collect();
    groups::of(g, Arch::Sm100a, what, tiling, (m, n, k), batch)
}
