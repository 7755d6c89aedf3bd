//! Matmul on sm_90a: a producer warp copies packed operands ahead, warp groups multiply them.
//!
//! Each result is the same chain of sums as on sm_80, in groups of a depth of 16.

use rlx_ir::{Error, ErrorKind, Result};
use rlx_kernel::ir::Buffer;

use super::matmul::{K, M, Matmul, N, Operand, Tiling};
use crate::atom::{Arch, Atom};
use crate::group::{
    Barrier, BarrierDecl, DEPTH, Decls, GROUP_ROWS, GROUP_WARPS, Group, Packing, PanelTile, PanelTileDecl,
    Panels, PanelsDecl, WARP_ROWS,
};
use crate::ir::{Coord, Counter, Fragment, FragmentDecl, Grid, Index, Program, Role, Size, Stmt, View};

/// Tilings of the group level, for large results first; `warps` are those of the consumers.
pub fn group_tilings() -> Vec<Tiling> {
    let of = |tile, groups: u32, stages| Tiling { tile, warps: (groups * GROUP_WARPS, 1), stages, bands: 8 };
    vec![
        of((128, 256, 64), 2, 4),
        of((128, 128, 64), 2, 4),
        of((128, 128, 64), 1, 4),
        of((64, 128, 64), 1, 4),
        of((64, 64, 64), 1, 4),
        of((64, 16, 64), 1, 4),
    ]
}

/// How the left and the right operand of a matmul with this tiling are stored.
pub fn packings(tiling: &Tiling) -> [Packing; 2] {
    let (tm, tn, step) = tiling.tile;
    [Packing { rows: tm, step }, Packing { rows: tn, step }]
}

/// The program of a matmul for sm_90a. The operands are packed ([`packings`]); of their uniforms only base and batch strides count, in elements as
/// packed, and `k` is the depth as packed.
///
/// # Errors
/// [`ErrorKind::Unsupported`] where operands are not of the type that is multiplied, have bodies, or the tiling does not fit.
pub fn matmul_groups(what: &Matmul, tiling: &Tiling) -> Result<Program> {
    let unsupported = |why: String| {
        Error::new(ErrorKind::Unsupported, format!("matmul {} on sm_90a: {why}", tiling.name()))
    };
    if Atom::of(Arch::Sm90a, what.compute).is_none() {
        return Err(unsupported(format!("no matrix instruction multiplies {}", what.compute))
            .with_hint("f16 and bf16 are multiplied"));
    }
    if what.parts {
        return Err(unsupported("a depth that is divided among workgroups".to_owned()));
    }
    let packed = |o: &Operand| o.dtype == what.compute && !o.transposed;
    if !(packed(&what.left)
        && packed(&what.right)
        && what.left_map.is_none()
        && what.right_map.is_none()
        && what.window.is_empty())
    {
        return Err(unsupported("operands that bulk copies cannot take as they are".to_owned())
            .with_hint("convert, transpose and map operands where they are packed"));
    }
    let ((tm, tn, tk), (rows, cols)) = (tiling.tile, tiling.warps);
    let whole = |size: u32, of: u32, most: u32| size > 0 && size.is_multiple_of(of) && size <= most;
    let groups = whole(rows, GROUP_WARPS, 28) && cols == 1;
    if !(groups && whole(tm, rows * WARP_ROWS, 256) && whole(tn, WARP_ROWS, 256) && whole(tk, DEPTH, 1024)) {
        return Err(unsupported(format!(
            "warp groups multiply {GROUP_ROWS} rows by 16 to 256 columns, over a depth of {DEPTH}"
        )));
    }
    let program = program(what, tiling);
    crate::verify::verify(&program).map_err(|v| unsupported(v.to_string()))?;
    Ok(program)
}

const FULL: Barrier = Barrier(0);
const EMPTY: Barrier = Barrier(1);
const LEFT: PanelTile = PanelTile(0);
const RIGHT: PanelTile = PanelTile(1);
const STEP: Counter = Counter(0);
/// The loop of the consumers over the same steps.
const TAKEN: Counter = Counter(1);

fn program(what: &Matmul, tiling: &Tiling) -> Program {
    let (tm, tn, depth) = tiling.tile;
    let stages = tiling.stages;
    // Uniforms of an operand: base, two strides, those of the batch.
    let panels = |number: u32, rows: u32| {
        let first = 3 + what.batch + number as usize * (3 + what.batch);
        PanelsDecl {
            buffer: Buffer(number),
            base: Size::Uniform(first as u32),
            rows,
            depth: Size::Uniform(K),
            batch: what.batch_sizes(first + 3),
        }
    };
    let fragment = FragmentDecl { role: Role::Sum, rows: WARP_ROWS, cols: tn };
    Program {
        name: format!("matmul.{}.{}", what.compute, tiling.name()),
        arch: Arch::Sm90a,
        dtype: what.compute,
        warps: tiling.warps,
        buffers: what.all_buffers(),
        uniforms: what.all_uniforms(),
        grid: Grid {
            rows: Size::Uniform(M),
            cols: Size::Uniform(N),
            tile: (tm, tn),
            batch: what.batch_sizes(3),
            bands: tiling.bands,
        },
        views: vec![what.view(2, &what.result, (M, N))],
        tiles: Vec::new(),
        fragments: vec![fragment; (tm / (tiling.warps.0 * WARP_ROWS)) as usize],
        group: Decls {
            maps: Vec::new(),
            panels: vec![panels(0, tm), panels(1, tn)],
            tiles: vec![PanelTileDecl { rows: tm, depth, stages }, PanelTileDecl { rows: tn, depth, stages }],
            barriers: vec![
                BarrierDecl { stages, arrivals: 1 },
                BarrierDecl { stages, arrivals: tiling.warps.0 },
            ],
        },
        body: vec![Stmt::Roles { producer: producer(tiling), consumers: consumers(what, tiling) }],
    }
}

fn producer(tiling: &Tiling) -> Vec<Stmt> {
    let (tm, tn, tk) = tiling.tile;
    let copy = |from: u32, coord: Coord, to: PanelTile| Group::Copy {
        from: Panels(from),
        panel: Index::default().plus(coord, 1),
        to,
        barrier: FULL,
        counter: STEP,
    };
    let body = vec![
        Group::WaitEmpty(EMPTY, STEP),
        Group::Expect(FULL, STEP, (tm + tn) * tk * 2),
        copy(0, Coord::GroupRow, LEFT),
        copy(1, Coord::GroupCol, RIGHT),
    ];
    let body = body.into_iter().map(Stmt::Group).collect();
    vec![Stmt::For { counter: STEP, extent: Size::Uniform(K), below: None, step: tk, body }]
}

fn consumers(what: &Matmul, tiling: &Tiling) -> Vec<Stmt> {
    let (tm, tn, tk) = tiling.tile;
    // A fragment has 16 rows of each warp: the next one is below those of all warps.
    let below = tiling.warps.0 * WARP_ROWS;
    let sums = || (0..tm / below).map(|i| (Fragment(i), i * below));
    let mut body = vec![Group::WaitFull(FULL, TAKEN), Group::Fence];
    body.extend(sums().map(|(sum, row)| Group::Mma { sum, left: LEFT, row, right: RIGHT, counter: TAKEN }));
    body.extend([Group::Commit, Group::WaitMma(0), Group::Arrive(EMPTY, TAKEN)]);
    let mut out: Vec<Stmt> = sums().map(|(sum, _)| Stmt::Zero(sum)).collect();
    out.push(Stmt::For {
        counter: TAKEN,
        extent: Size::Uniform(K),
        below: None,
        step: tk,
        body: body.into_iter().map(Stmt::Group).collect(),
    });
    out.extend(sums().map(|(from, row)| {
        let row = Index::new(row).plus(Coord::GroupRow, tm).plus(Coord::WarpRow, WARP_ROWS);
        let col = Index::default().plus(Coord::GroupCol, tn);
        Stmt::Store { to: View(0), from, row, col, map: what.epilogue.clone() }
    }));
    out
}
