//! Matmul on sm_90a: a producer warp copies boxes of the operands ahead, warp groups multiply them. The left operand may be windows of images: a convolution, of whose
//! images the copy engine finds the places.
//!
//! Each result is the same chain of sums as on sm_80, in groups of a depth of 16.

use std::fmt::Display;

use rlx_ir::{Error, ErrorKind, Result};

use super::matmul::{K, M, Matmul, N};
use super::tilings::Tiling;
use crate::atom::{Arch, Atom};
use crate::group::{
    Barrier, BarrierDecl, Decls, GROUP_ROWS, GROUP_WARPS, Group, GroupTile, GroupTileDecl, ROW, Registers,
    WARP_ROWS,
};
use crate::ir::{Coord, Counter, Fragment, FragmentDecl, Grid, Index, Program, Role, Size, Stmt, View};
use crate::layout::CHUNK;
use crate::tensor_map::{MOST_DIMS, Map, MapDecl};

/// Tilings of the group level, for large results first; `warps` are those of the consumers. The last two are not among those that suit sizes by their order: of what was measured on an
/// H100, nothing was fastest with 64 × 128, which is for tuning alone; 128 × 192 is for results that are then fewer rounds of tiles
/// ([`step_tilings`](super::step_tilings)).
pub fn group_tilings() -> Vec<Tiling> {
    let of = |(rows, cols), groups: u32, stages| Tiling {
        tile: (rows, cols, ROW),
        warps: (groups * GROUP_WARPS, 1),
        stages,
        bands: 8,
        groups: true,
        teams: 0,
    };
    vec![
        of((128, 256), 2, 4),
        of((128, 128), 2, 4),
        of((128, 64), 2, 4),
        of((64, 64), 1, 6),
        of((64, 128), 1, 5),
        of((128, 192), 2, 5),
    ]
}

/// Tilings by which a workgroup has several tiles: the producer copies the first steps of the next one while the last is stored, and of two teams one
/// multiplies meanwhile. They are for tuning; none was measured on hardware.
///
/// Consumers take registers from the producer: of 168 that each lane could have, a few epilogues of 128 sums would spill some.
pub fn turn_tilings() -> Vec<Tiling> {
    let of = |tile: (u32, u32), stages, teams| Tiling {
        tile: (tile.0, tile.1, ROW),
        warps: (2 * GROUP_WARPS, 1),
        stages,
        bands: 8,
        groups: true,
        teams,
    };
    vec![
        of((128, 128), 6, 2),
        of((64, 256), 5, 2),
        of((64, 128), 8, 2),
        of((128, 256), 4, 1),
        of((128, 192), 5, 1),
        of((128, 128), 6, 1),
    ]
}

/// Why a matmul has no program of the group level, if it has none.
pub(super) fn refused(what: &Matmul) -> Option<&'static str> {
    let mapped = |o: &super::matmul::Operand| o.dtype == what.compute && o.vector == CHUNK;
    if what.parts {
        return Some("a depth that is divided among workgroups");
    }
    if what.left_map.is_some() || what.right_map.is_some() {
        return Some("operands that are computed");
    }
    if !what.window.is_empty() && what.batch > 0 {
        return Some("windows in groups");
    }
    if !(mapped(&what.left) && mapped(&what.right)) {
        return Some("operands of another type, or whose rows are no multiples of 16 bytes apart");
    }
    if what.left.transposed {
        return Some("a left operand that is stored as depth × rows");
    }
    (what.batch + 2 > MOST_DIMS).then_some("a batch of more dimensions than maps have")
}

/// Why there is no program.
pub(super) fn unsupported(arch: Arch, tiling: &Tiling, why: impl Display) -> Error {
    Error::new(ErrorKind::Unsupported, format!("matmul {} on {}: {why}", tiling.name(), arch.name()))
}

/// Whether a matmul has programs of the group level.
///
/// # Errors
/// [`ErrorKind::Unsupported`] where tensor copies cannot take the operands as they are, or no instruction multiplies the type.
pub(super) fn supported(arch: Arch, what: &Matmul, tiling: &Tiling) -> Result<()> {
    if Atom::of(arch, what.compute).is_none() {
        let why = format!("no matrix instruction multiplies {}", what.compute);
        return Err(unsupported(arch, tiling, why).with_hint("f16 and bf16 are multiplied"));
    }
    match refused(what) {
        Some(why) => Err(unsupported(arch, tiling, why).with_hint("programs of sm_80 take such operands")),
        None => Ok(()),
    }
}

/// The program of a matmul for sm_90a.
///
/// # Errors
/// [`ErrorKind::Unsupported`] where tensor copies cannot take the operands as they are, or the tiling does not fit.
pub fn matmul_groups(what: &Matmul, tiling: &Tiling) -> Result<Program> {
    let unsupported = |why: String| unsupported(Arch::Sm90a, tiling, why);
    supported(Arch::Sm90a, what, tiling)?;
    let ((tm, tn, tk), (rows, cols)) = (tiling.tile, tiling.warps);
    if tiling.teams > 2 || !rows.is_multiple_of(GROUP_WARPS * tiling.teams.max(1)) {
        return Err(unsupported("one or two teams of as many warp groups take turns".to_owned()));
    }
    let whole = |size: u32, of: u32, most: u32| size > 0 && size.is_multiple_of(of) && size <= most;
    let groups = whole(rows, GROUP_WARPS, 28) && cols == 1;
    let of_cols = if what.right.transposed { WARP_ROWS } else { ROW };
    if !(groups && whole(tm, team_warps(tiling) * WARP_ROWS, 256) && whole(tn, of_cols, 256) && tk == ROW) {
        return Err(unsupported(format!(
            "warp groups multiply {GROUP_ROWS} rows by {of_cols} to 256 columns, over a depth of {ROW}"
        )));
    }
    if !(2..=8).contains(&tiling.stages) {
        return Err(unsupported("a stage is copied while the one before is multiplied".to_owned()));
    }
    let program = program(what, tiling);
    crate::verify::verify(&program).map_err(|v| unsupported(v.to_string()))?;
    Ok(program)
}

pub(super) const FULL: Barrier = Barrier(0);
pub(super) const EMPTY: Barrier = Barrier(1);
pub(super) const LEFT: GroupTile = GroupTile(0);
pub(super) const RIGHT: GroupTile = GroupTile(1);
const STEP: Counter = Counter(0);
/// The loop over the same steps of who multiplies.
pub(super) const TAKEN: Counter = Counter(1);
/// Turns of both roles at the tiles of a workgroup, and what teams wait for.
const COPIED: Counter = Counter(2);
const TURN: Counter = Counter(3);
const NEXT: Barrier = Barrier(2);

/// Warps that multiply a tile.
fn team_warps(tiling: &Tiling) -> u32 {
    tiling.warps.0 / tiling.teams.max(1)
}

fn program(what: &Matmul, tiling: &Tiling) -> Program {
    let (tm, tn, _) = tiling.tile;
    let stages = tiling.stages;
    let fragment = FragmentDecl { role: Role::Sum, rows: WARP_ROWS, cols: tn };
    let warps = team_warps(tiling);
    let mut barriers = vec![BarrierDecl { stages, arrivals: 1 }, BarrierDecl { stages, arrivals: warps }];
    barriers.extend((tiling.teams > 1).then_some(BarrierDecl { stages: tiling.teams, arrivals: warps }));
    let mut program = declared(Arch::Sm90a, what, tiling);
    program.fragments = vec![fragment; (tm / (warps * WARP_ROWS)) as usize];
    program.group.barriers = barriers;
    program.group.registers =
        (tiling.teams > 0 && tiling.warps.0 == 2 * GROUP_WARPS).then_some(Registers::OF_TWO);
    program.body = vec![roles(what, tiling)];
    program
}

/// A program without statements: its operands, and how they are copied.
pub(super) fn declared(arch: Arch, what: &Matmul, tiling: &Tiling) -> Program {
    let (tm, tn, _) = tiling.tile;
    let (left, right) = tiles(what, tiling);
    let map = |view: u32, tile: &GroupTileDecl| MapDecl { view: View(view), rows: tile.rows, cols: ROW };
    let (k, n) = if what.right.transposed { (N, K) } else { (K, N) };
    Program {
        name: format!("{}.{}.{}", what.kind(), what.compute, tiling.name()),
        arch,
        dtype: what.compute,
        warps: tiling.warps,
        buffers: what.all_buffers(),
        uniforms: what.all_uniforms(),
        grid: Grid {
            rows: Size::Uniform(M),
            cols: Size::Uniform(N),
            tile: (tm, tn),
            batch: what.batch_sizes(3),
            table: None,
            bands: tiling.bands,
        },
        views: vec![
            what.view(0, &what.left, (M, K)),
            what.view(1, &what.right, (k, n)),
            what.view(2, &what.result, (M, N)),
        ]
        .into_iter()
        .chain(what.given_views())
        .collect(),
        tiles: Vec::new(),
        fragments: Vec::new(),
        group: Decls {
            maps: vec![map(0, &left), map(1, &right)],
            tiles: vec![left, right],
            ..Decls::default()
        },
        body: Vec::new(),
    }
}

/// What both roles do, for one tile or for several.
fn roles(what: &Matmul, tiling: &Tiling) -> Stmt {
    let (producer, consumers) = (producer(what, tiling), consumers(what, tiling));
    if tiling.teams == 0 {
        return Stmt::Roles { producer, multiplier: Vec::new(), consumers };
    }
    let (teams, tiles) = (tiling.teams, |turn, teams, body| vec![Stmt::Tiles { turn, teams, body }]);
    Stmt::Roles {
        producer: tiles(COPIED, 1, producer),
        multiplier: Vec::new(),
        consumers: tiles(TURN, teams, consumers),
    }
}

/// The tiles of both operands: blocks of 64 columns where the right one is stored as depth × columns.
fn tiles(what: &Matmul, tiling: &Tiling) -> (GroupTileDecl, GroupTileDecl) {
    let ((tm, tn, _), stages) = (tiling.tile, tiling.stages);
    let right = match what.right.transposed {
        true => GroupTileDecl { blocks: 1, rows: tn, stages },
        false => GroupTileDecl { blocks: tn / ROW, rows: ROW, stages },
    };
    (GroupTileDecl { blocks: 1, rows: tm, stages }, right)
}

pub(super) fn producer(what: &Matmul, tiling: &Tiling) -> Vec<Stmt> {
    let (tm, tn, tk) = tiling.tile;
    let (left, right) = tiles(what, tiling);
    let along = || Index::default().plus(Coord::Counter(STEP), tk);
    let copy = |from: u32, (row, col): (Index, Index), to: GroupTile, block: u32| Group::Copy {
        from: Map(from),
        row,
        col,
        to,
        block,
        barrier: FULL,
        counter: STEP,
    };
    let bytes = left.stage_bytes() + right.stage_bytes();
    let rows = Index::default().plus(Coord::GroupRow, tm);
    let mut body = vec![
        Group::WaitEmpty(EMPTY, STEP),
        Group::Expect(FULL, STEP, bytes),
        copy(0, (rows, along()), LEFT, 0),
    ];
    body.extend((0..right.blocks).map(|block| {
        let cols = Index::new(block * ROW).plus(Coord::GroupCol, tn);
        let at = if what.right.transposed { (cols, along()) } else { (along(), cols) };
        copy(1, at, RIGHT, block)
    }));
    let body = body.into_iter().map(Stmt::Group).collect();
    vec![Stmt::For { counter: STEP, extent: Size::Uniform(K), below: None, step: tk, body }]
}

fn consumers(what: &Matmul, tiling: &Tiling) -> Vec<Stmt> {
    let (tm, tn, tk) = tiling.tile;
    // A fragment has 16 rows of each warp: the next one is below those of all warps.
    let below = team_warps(tiling) * WARP_ROWS;
    let sums = || (0..tm / below).map(|i| (Fragment(i), i * below));
    let mut body = vec![Group::WaitFull(FULL, TAKEN), Group::Fence];
    let depth_rows = !what.right.transposed;
    body.extend(sums().map(|(sum, row)| Group::Mma {
        sum,
        left: LEFT,
        row,
        right: RIGHT,
        depth_rows,
        counter: TAKEN,
    }));
    // A step is multiplied while the next one's bytes are awaited: only then the one before is known to be done.
    body.extend([Group::Commit, Group::WaitMma(1), Group::Arrive(EMPTY, TAKEN, 1)]);
    let place = |row: u32| {
        let row = Index::new(row).plus(Coord::GroupRow, tm).plus(Coord::WarpRow, WARP_ROWS);
        (row, Index::default().plus(Coord::GroupCol, tn))
    };
    let prefetched = sums().flat_map(|(_, row)| what.prefetches(Arch::Sm90a, place(row), (WARP_ROWS, tn)));
    let mut out: Vec<Stmt> = prefetched.chain(sums().map(|(sum, _)| Stmt::Zero(sum))).collect();
    // One team multiplies at a time, so its stages are those that are copied next; the other one's last multiplications are done beside its first.
    let teams = tiling.teams > 1;
    out.extend(teams.then_some(Stmt::Group(Group::WaitTurn(NEXT, TURN))));
    out.push(Stmt::For {
        counter: TAKEN,
        extent: Size::Uniform(K),
        below: None,
        step: tk,
        body: body.into_iter().map(Stmt::Group).collect(),
    });
    out.extend(teams.then_some(Stmt::Group(Group::Arrive(NEXT, TURN, 0))));
    out.push(Stmt::Group(Group::WaitMma(0)));
    out.extend((tiling.teams > 0).then_some(Stmt::Group(Group::ArriveLast(EMPTY, TAKEN))));
    out.extend(sums().map(|(from, row)| {
        let (row, col) = place(row);
        what.store(from, row, col)
    }));
    out
}
