//! Matmuls of the group level: a [`Case`] for sm_90a, whose operands tensor copies can take.
#![allow(dead_code)]

use super::{Case, up};
use rlx_ir::DType;
use rlx_ir::testing::Gen;
use rlx_tile::group::{GROUP_WARPS, Group, ROW, WARP_ROWS};
use rlx_tile::ir::Stmt;
use rlx_tile::schedule::{Matmul, Operand, Tiling, group_tilings, matmul, tilings};
use rlx_tile::{Arch, Program};

/// A case without bodies before operands.
pub fn of(
    g: &mut Gen,
    arch: Arch,
    what: Matmul,
    tiling: Tiling,
    sizes: (i32, i32, i32),
    batch: Vec<i32>,
) -> Case {
    let mut case = Case::of(g, arch, tiling, what, sizes, batch);
    (case.what.left_map, case.what.right_map) = (None, None);
    case.prologues = [super::Map::None; 2];
    case
}

/// The tiling of the smallest tile.
pub fn smallest() -> Tiling {
    group_tilings().into_iter().min_by_key(|t| t.tile.0 * t.tile.1).expect("there are tilings")
}

/// A plain matmul by a small tiling: two tiles and an edge in each direction, five steps through three stages.
pub fn small(dtype: DType) -> Case {
    let mut what = Matmul::new(dtype);
    what.result.vector = 1;
    let tiling = Tiling { stages: 3, bands: 2, ..smallest() };
    let mut case = of(&mut Gen::new(7), Arch::Sm90a, what, tiling, (70, 72, 272), Vec::new());
    case.clear_bodies();
    case
}

/// A random matmul on a random tiling.
pub fn random(g: &mut Gen) -> Case {
    let mut all = group_tilings();
    all.sort_by_key(|t| t.tile.0 * t.tile.1);
    // Small ones more often: a large one takes the interpreter long.
    let last = all.len() as i64 - 1;
    let mut tiling = all[(g.int(0..=last) * g.int(0..=last) / last) as usize];
    tiling.bands = g.int(1..=3) as u32;
    tiling.stages = g.int(2..=i64::from(tiling.stages)) as u32;
    let compute = g.pick(&[DType::F16, DType::BF16]);
    let mut what = Matmul::new(compute);
    what.right.transposed = g.chance(0.5);
    // A right operand along its depth may have columns that are no multiple of 64.
    if what.right.transposed && g.chance(0.3) {
        tiling.tile.1 -= 16 * g.int(1..=3) as u32;
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
    of(g, Arch::Sm90a, what, tiling, (m, n, k), batch)
}

/// By a tiling of several tiles in a workgroup, of which there are up to three in each direction, and up to eight matrices.
pub fn random_turns(g: &mut Gen) -> Case {
    let teams = g.int(1..=2) as u32;
    let warps = GROUP_WARPS * teams * if g.chance(0.2) { 2 } else { 1 };
    let rows = warps / teams * WARP_ROWS * if g.chance(0.2) { 2 } else { 1 };
    let mut tile = (rows, ROW * if g.chance(0.2) { 2 } else { 1 }, ROW);
    let mut what = Matmul::new(g.pick(&[DType::F16, DType::BF16]));
    what.right.transposed = g.chance(0.5);
    if what.right.transposed {
        tile.1 -= 16 * g.int(0..=3) as u32;
    }
    let (stages, bands) = (g.int(2..=4) as u32, g.int(1..=3) as u32);
    let tiling = Tiling { tile, warps: (warps, 1), stages, bands, groups: true, teams };
    let vector = g.pick(&[1, 2, 4]);
    what.result = Operand { dtype: g.pick(&[what.compute, DType::F32]), transposed: false, vector };
    what.batch = g.int(0..=3) as usize;
    let size = |g: &mut Gen, most: u32| g.int(1..=i64::from(most)) as i32;
    let tiles = if what.batch > 1 { 1 } else { 3 };
    let m = size(g, tiles * tile.0);
    let of_columns = if what.right.transposed { vector as i32 } else { 8 };
    let n = up(size(g, tiles * tile.1), of_columns.max(vector as i32));
    let k = up(size(g, 5 * tile.2), 8);
    let batch = (0..what.batch).map(|_| g.int(1..=2) as i32).collect();
    of(g, Arch::Sm90a, what, tiling, (m, n, k), batch)
}

/// The same by a program of sm_80.
pub fn of_warps(case: &Case) -> Program {
    let tiling = tilings(Arch::Sm80)[6];
    matmul(Arch::Sm80, &case.what, &tiling).unwrap_or_else(|e| panic!("{e}\n{}", case.describe()))
}

/// The same sizes, operands and memory, without bodies' names for them to be made of again.
pub fn copy(case: &Case) -> Case {
    Case {
        arch: case.arch,
        tiling: case.tiling,
        what: case.what.clone(),
        sizes: case.sizes.clone(),
        prologues: case.prologues,
        epilogue: case.epilogue,
        values: case.values.clone(),
    }
}

/// A plain matmul by small tiles of several turns: two rows and three columns of tiles with edges, five steps through three stages.
pub fn small_turns(dtype: DType, teams: u32) -> Case {
    let mut what = Matmul::new(dtype);
    what.result.vector = 1;
    let warps = (GROUP_WARPS * teams, 1);
    let tiling = Tiling { stages: 3, bands: 2, warps, teams, ..smallest() };
    let mut case = of(&mut Gen::new(7), Arch::Sm90a, what, tiling, (70, 136, 272), Vec::new());
    case.clear_bodies();
    case
}

/// The statements in the first loop of a list.
pub fn steps(stmts: &mut [Stmt]) -> &mut Vec<Stmt> {
    let found = stmts.iter_mut().find_map(|s| if let Stmt::For { body, .. } = s { Some(body) } else { None });
    found.expect("a loop")
}

/// Takes statements of the group level out of a list, so that it is damaged.
pub fn without(stmts: &mut Vec<Stmt>, which: impl Fn(&Group) -> bool) {
    let before = stmts.len();
    stmts.retain(|s| !matches!(s, Stmt::Group(g) if which(g)));
    assert!(stmts.len() < before, "something is taken out");
}
