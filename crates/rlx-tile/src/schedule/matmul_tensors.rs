//! Matmul on sm_100a: a producer copies boxes of the operands ahead as [on sm_90a](super::matmul_groups()), one lane multiplies them into tensor memory, and warp groups load and store
//! the sums once all of them are complete. The left operand may be windows of images there, too.
//!
//! Each result is the same chain of sums as on sm_80, in groups of a depth of 16.

use rlx_ir::Result;

use super::matmul::{K, Matmul};
use super::matmul_groups::{EMPTY, FULL, LEFT, RIGHT, TAKEN, declared, producer, supported, unsupported};
use super::tilings::Tiling;
use crate::atom::Arch;
use crate::group::tensor::{Accumulator, AccumulatorDecl, LANES, MOST_COLUMNS, Tensor, WARP_LANES};
use crate::group::{Barrier, BarrierDecl, GROUP_WARPS, Group, ROW, WARP_ROWS};
use crate::ir::{Coord, Counter, Fragment, FragmentDecl, Index, Program, Role, Size, Stmt};

/// Tilings of sm_100a, for large results first; `warps` are those of the consumers. The last one is not among those that suit sizes: it has the fewest bytes to copy for each
/// multiplication, and is for tuning. None was measured on hardware.
pub fn tensor_tilings() -> Vec<Tiling> {
    let of = |tile: (u32, u32), stages| Tiling {
        tile: (tile.0, tile.1, ROW),
        warps: (2 * GROUP_WARPS, 1),
        stages,
        bands: 8,
        groups: true,
        teams: 0,
    };
    vec![of((128, 256), 4), of((128, 128), 6), of((128, 64), 4), of((256, 256), 3)]
}

/// The program of a matmul for sm_100a.
///
/// # Errors
/// [`rlx_ir::ErrorKind::Unsupported`] where tensor copies cannot take the operands as they are, or the tiling does not fit.
pub fn matmul_tensors(what: &Matmul, tiling: &Tiling) -> Result<Program> {
    let unsupported = |why: String| unsupported(Arch::Sm100a, tiling, why);
    supported(Arch::Sm100a, what, tiling)?;
    let ((tm, tn, tk), (warps, cols)) = (tiling.tile, tiling.warps);
    if tiling.teams > 0 || cols != 1 || warps == 0 || !warps.is_multiple_of(GROUP_WARPS) {
        return Err(unsupported("one team of whole warp groups stores".to_owned()));
    }
    let whole = |size: u32, of: u32, most: u32| size > 0 && size.is_multiple_of(of) && size <= most;
    let of_cols = if what.right.transposed { WARP_ROWS } else { ROW };
    let divided = tn.is_multiple_of(warps / GROUP_WARPS * WARP_ROWS);
    let all = u64::from(tm / LANES) * u64::from(tn) <= u64::from(MOST_COLUMNS);
    if !(whole(tm, LANES, 256) && whole(tn, of_cols, 256) && divided && all && tk == ROW) {
        return Err(unsupported(format!(
            "a lane multiplies {LANES} rows by {of_cols} to 256 columns, of which each warp group stores multiples of {WARP_ROWS}, over a depth of {ROW}"
        )));
    }
    if !(2..=8).contains(&tiling.stages) {
        return Err(unsupported("a stage is copied while the one before is multiplied".to_owned()));
    }
    let program = program(what, tiling);
    crate::verify::verify(&program).map_err(|v| unsupported(v.to_string()))?;
    Ok(program)
}

/// What consumers wait for: that all steps are multiplied.
const COMPLETE: Barrier = Barrier(2);
/// That is said once, and waited for once: loops of one iteration.
const SAID: Counter = Counter(2);
const HEARD: Counter = Counter(3);
/// The sums that a warp stores.
const SUMS: Fragment = Fragment(0);

/// Accumulators, each with the first of its rows.
fn accumulators(tiling: &Tiling) -> impl Iterator<Item = (Accumulator, u32)> + use<> {
    (0..tiling.tile.0 / LANES).map(|i| (Accumulator(i), i * LANES))
}

/// The columns that a warp group stores.
fn group_columns(tiling: &Tiling) -> u32 {
    tiling.tile.1 / (tiling.warps.0 / GROUP_WARPS)
}

fn program(what: &Matmul, tiling: &Tiling) -> Program {
    let ((tm, tn, _), stages) = (tiling.tile, tiling.stages);
    let mut program = declared(Arch::Sm100a, what, tiling);
    // Warp groups are beside each other.
    program.warps = (GROUP_WARPS, tiling.warps.0 / GROUP_WARPS);
    program.fragments = vec![FragmentDecl { role: Role::Sum, rows: WARP_ROWS, cols: group_columns(tiling) }];
    let barrier = |stages| BarrierDecl { stages, arrivals: 1 };
    program.group.barriers = vec![barrier(stages), barrier(stages), barrier(1)];
    program.group.accumulators = vec![AccumulatorDecl { cols: tn }; (tm / LANES) as usize];
    program.body = vec![Stmt::Roles {
        producer: producer(what, tiling),
        multiplier: multiplier(what, tiling),
        consumers: consumers(what, tiling),
    }];
    program
}

fn once(counter: Counter, body: Vec<Group>) -> Stmt {
    let body = body.into_iter().map(Stmt::Group).collect();
    Stmt::For { counter, extent: Size::Const(1), below: None, step: 1, body }
}

fn multiplier(what: &Matmul, tiling: &Tiling) -> Vec<Stmt> {
    let mut body = vec![Group::WaitFull(FULL, TAKEN), Group::Tensor(Tensor::Fence)];
    body.extend(accumulators(tiling).map(|(sum, row)| {
        let depth_rows = !what.right.transposed;
        Group::Tensor(Tensor::Mma { sum, left: LEFT, row, right: RIGHT, depth_rows, counter: TAKEN })
    }));
    body.push(Group::Tensor(Tensor::Commit(EMPTY, TAKEN)));
    let body = body.into_iter().map(Stmt::Group).collect();
    vec![
        Stmt::For { counter: TAKEN, extent: Size::Uniform(K), below: None, step: tiling.tile.2, body },
        once(SAID, vec![Group::Tensor(Tensor::Commit(COMPLETE, SAID))]),
    ]
}

fn consumers(what: &Matmul, tiling: &Tiling) -> Vec<Stmt> {
    let ((tm, tn, _), cols) = (tiling.tile, group_columns(tiling));
    let of_group = || Index::default().plus(Coord::WarpCol, cols);
    let place = |row: u32| {
        let row = Index::new(row).plus(Coord::GroupRow, tm).plus(Coord::WarpRow, WARP_LANES);
        (row, of_group().plus(Coord::GroupCol, tn))
    };
    // A warp has lanes of both halves, one after the other.
    let halves = || (0..WARP_LANES).step_by(WARP_ROWS as usize);
    let all = || accumulators(tiling).flat_map(|(from, first)| halves().map(move |row| (from, first, row)));
    let prefetched = all()
        .flat_map(|(_, first, row)| what.prefetches(Arch::Sm100a, place(first + row), (WARP_ROWS, cols)));
    let mut out: Vec<Stmt> = prefetched.collect();
    out.push(once(HEARD, vec![Group::WaitFull(COMPLETE, HEARD), Group::Tensor(Tensor::Fence)]));
    for (from, first, row) in all() {
        let depth = Size::Uniform(K);
        out.push(Stmt::Group(Group::Tensor(Tensor::Load { to: SUMS, from, row, col: of_group(), depth })));
        let (row, col) = place(first + row);
        out.push(what.store(SUMS, row, col));
    }
    out
}
