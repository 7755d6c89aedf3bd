//! Programs with damage in random places: the verifier rejects them or they run to a result or an error, and nothing panics.

mod common;

use common::Case;
use common::attention::{ARCHS as ATTENTION, AttentionCase};
use common::convs::ConvCase;
use common::prologue::PrologueCase;
use rlx_ir::DType;
use rlx_ir::testing::Gen;
use rlx_kernel::interp::{Binding, Pools};
use rlx_kernel::ir::Buffer;
use rlx_tile::beside::{Beside, Span};
use rlx_tile::expand::expand;
use rlx_tile::ir::{
    Below, Coord, Copy, Counter, Fragment, Heads, Index, Program, Role, Size, Stage, Stmt, Tile, View,
};
use rlx_tile::layout::Swizzle;
use rlx_tile::render::source;
use rlx_tile::verify::verify;
use rlx_tile::window::{Axis, Slide, Window};
use rlx_tile::{Arch, interp};

const PROGRAMS: u64 = 2000;

/// A number near where limits are.
fn number(g: &mut Gen) -> u32 {
    let near = g.pick(&[0u32, 1, 2, 7, 8, 16, 32, 64, 255, 256, 1024, 1 << 16, 1 << 20, 1 << 31, u32::MAX]);
    near.wrapping_add(g.int(-1..=1) as u32)
}

fn size(g: &mut Gen) -> Size {
    let mut uniform = || g.int(0..=30) as u32;
    let [whole, each] = [uniform(), uniform()];
    match g.int(0..=4) {
        0..=1 => Size::Const(number(g)),
        2..=3 => Size::Uniform(whole),
        _ => Size::Part { whole, each },
    }
}

fn damage_index(g: &mut Gen, index: &mut Index) {
    match g.int(0..=2) {
        0 => index.constant = number(g),
        1 => {
            let c = Counter(g.int(0..=3) as u32);
            let coord = g.pick(&[
                Coord::GroupRow,
                Coord::GroupCol,
                Coord::WarpRow,
                Coord::WarpCol,
                Coord::Counter(c),
                Coord::First(c),
            ]);
            index.terms.push((coord, number(g)));
        }
        _ => index.terms.iter_mut().for_each(|t| t.1 = t.1.wrapping_add(8)),
    }
}

fn damage_stage(g: &mut Gen, stage: &mut Stage) {
    stage.counter = if g.chance(0.5) { None } else { Some(Counter(g.int(0..=3) as u32)) };
    stage.ahead = number(g);
}

fn damage_copy(g: &mut Gen, c: &mut Copy) {
    match g.int(0..=if c.with.is_empty() { 5 } else { 9 }) {
        5 => c.with.push(damaged_beside(g)),
        6 => drop(c.with.pop()),
        7..=9 => {
            let at = g.size(0..=c.with.len() - 1);
            let (old, new) = (c.with[at], damaged_beside(g));
            c.with[at] = if g.chance(0.5) {
                Beside { span: new.span, ..old }
            } else {
                Beside { view: new.view, ..old }
            };
        }
        0 => c.from = View(g.int(0..=4) as u32),
        1 => c.to = Tile(g.int(0..=3) as u32),
        2 => damage_stage(g, &mut c.stage),
        3 => damage_index(g, &mut c.row),
        _ => damage_index(g, &mut c.col),
    }
}

fn damaged_beside(g: &mut Gen) -> Beside {
    let columns = number(g);
    Beside { view: View(g.int(0..=6) as u32), span: g.pick(&[Span::One, Span::Columns(columns), Span::Row]) }
}

fn damage_block(g: &mut Gen, stmts: &mut Vec<Stmt>) {
    if stmts.is_empty() {
        return;
    }
    let at = g.size(0..=stmts.len() - 1);
    match g.int(0..=6) {
        0 => drop(stmts.remove(at)),
        1 => stmts.push(stmts[at].clone()),
        2 => stmts.insert(at, if g.chance(0.5) { Stmt::Barrier } else { Stmt::Wait(number(g)) }),
        _ => damage_stmt(g, &mut stmts[at]),
    }
}

fn damaged_bound(g: &mut Gen) -> Option<Below> {
    let window = g.chance(0.5).then(|| number(g));
    Some(Below { rows: number(g), heads: number(g), offset: size(g), window })
}

fn damaged_window(g: &mut Gen, window: Option<Window>) -> Option<Window> {
    let slide = Slide { taps: number(g), stride: number(g), dilation: number(g), before: number(g) };
    let axis = Axis { slide, places: size(g), size: size(g), step: size(g) };
    let mut window = window.unwrap_or(Window { channels: size(g), axes: vec![axis] });
    let at = g.size(0..=window.axes.len().saturating_sub(1));
    match if window.axes.is_empty() { 1 } else { g.int(0..=6) } {
        0 => window.channels = size(g),
        1 => window.axes.push(axis),
        2 => drop(window.axes.pop()),
        3 => window.axes[at].places = size(g),
        4 => window.axes[at].size = size(g),
        5 => window.axes[at].step = size(g),
        _ => window.axes[at].slide = slide,
    }
    Some(window)
}

fn damage_stmt(g: &mut Gen, s: &mut Stmt) {
    let fragment = Fragment(g.int(0..=8) as u32);
    match s {
        Stmt::Zero(f) | Stmt::Fill(f, _) | Stmt::Exp2(f) => *f = fragment,
        Stmt::Each { of, with, row, col, .. } => match g.int(0..=4) {
            0 => *of = fragment,
            1 => with.push(fragment),
            2 => drop(with.pop()),
            3 => damage_index(g, row),
            _ => damage_index(g, col),
        },
        Stmt::Reduce { to, from, .. } => *(if g.chance(0.5) { to } else { from }) = fragment,
        Stmt::Convert { to, from, col } => match g.int(0..=2) {
            0 => *to = fragment,
            1 => *from = fragment,
            _ => damage_index(g, col),
        },
        Stmt::Copy(c) | Stmt::CopyAsync(c) | Stmt::Fetch(_, c) | Stmt::Put(_, c) => damage_copy(g, c),
        Stmt::Commit | Stmt::Barrier => {}
        Stmt::Wait(n) => *n = number(g),
        Stmt::Load { to, from, stage, row, col, depth_rows, of_sums } => match g.int(0..=6) {
            0 => *to = fragment,
            1 => *from = Tile(g.int(0..=3) as u32),
            2 => damage_stage(g, stage),
            3 => damage_index(g, row),
            4 => damage_index(g, col),
            5 => *of_sums = !*of_sums,
            _ => *depth_rows = !*depth_rows,
        },
        Stmt::Mma { sum, left, right } => match g.int(0..=2) {
            0 => *sum = fragment,
            1 => *left = fragment,
            _ => *right = fragment,
        },
        Stmt::Prefetch { from, row, col, rows, cols } => match g.int(0..=4) {
            0 => *from = View(g.int(0..=5) as u32),
            1 => *rows = number(g),
            2 => *cols = number(g),
            3 => damage_index(g, row),
            _ => damage_index(g, col),
        },
        Stmt::Store { to, from, row, col, with, .. } => match g.int(0..=4) {
            0 => *to = View(g.int(0..=4) as u32),
            1 => *from = fragment,
            2 => damage_index(g, row),
            3 => damage_index(g, col),
            _ => match with.first_mut() {
                Some(beside) if g.chance(0.7) => beside.view = View(g.int(0..=5) as u32),
                _ => with.push(Beside { view: View(g.int(0..=5) as u32), span: Span::One }),
            },
        },
        Stmt::For { counter, extent, below, step, body } => match g.int(0..=6) {
            3 => *below = damaged_bound(g),
            0 => *counter = Counter(g.int(0..=3) as u32),
            1 => *extent = size(g),
            2 => *step = number(g),
            _ => damage_block(g, body),
        },
        // `groups.rs` damages these.
        Stmt::Roles { .. } | Stmt::Staggered(_) | Stmt::Tiles { .. } | Stmt::Group(_) => {}
        Stmt::Pipelined { counter, extent, below, step, stages, copies, body } => match g.int(0..=8) {
            8 => *below = damaged_bound(g),
            0 => *counter = Counter(g.int(0..=3) as u32),
            1 => *extent = size(g),
            2 => *step = number(g),
            3 => *stages = number(g),
            4 | 5 => {
                let at = g.size(0..=copies.len() - 1);
                damage_copy(g, &mut copies[at]);
            }
            _ => damage_block(g, body),
        },
    }
}

fn damage(g: &mut Gen, p: &mut Program) {
    let pick = |g: &mut Gen, n: usize| g.size(0..=n - 1);
    match g.int(0..=13) {
        0 => p.warps = (number(g), number(g)),
        1 => p.dtype = g.pick(&[DType::F16, DType::BF16, DType::F32, DType::I4]),
        2 => p.arch = g.pick(&Arch::ALL),
        3 => (p.grid.tile.0, p.grid.bands) = (number(g), number(g)),
        4 => p.grid.batch.push(size(g)),
        5 => {
            let i = pick(g, p.views.len());
            let v = &mut p.views[i];
            match g.int(0..=7) {
                7 => v.window = damaged_window(g, v.window.take()),
                6 => v.heads = Some(Heads { count: number(g), stride: size(g) }),
                0 => v.buffer = Buffer(number(g)),
                1 => v.vector = number(g),
                2 => v.rows = size(g),
                3 => v.row_stride = size(g),
                4 => v.col_stride = size(g),
                _ => v.base = size(g),
            }
        }
        6 | 7 => {
            let i = pick(g, p.tiles.len());
            let t = &mut p.tiles[i];
            match g.int(0..=5) {
                0 => t.rows = number(g),
                5 => t.matrices = !t.matrices,
                1 => t.cols = number(g),
                2 => t.stages = number(g),
                3 => t.swizzle = Swizzle { bits: number(g), shift: number(g) },
                _ => t.dtype = DType::BF16,
            }
        }
        8 => {
            let i = pick(g, p.fragments.len());
            let f = &mut p.fragments[i];
            (f.rows, f.cols) = (number(g), if g.chance(0.5) { number(g) } else { f.cols });
            f.role = g.pick(&[Role::Left, Role::Right, Role::Sum, Role::Rows, f.role, f.role]);
        }
        9 => {
            let i = pick(g, p.buffers.len());
            p.buffers[i].dtype =
                g.pick(&[DType::F32, DType::F16, DType::BF16, DType::I64, DType::Bool, DType::U4, DType::I8]);
        }
        _ => damage_block(g, &mut p.body),
    }
}

/// A random program: a matmul, now and then of computed operands, an attention, or a convolution.
fn any(g: &mut Gen, arch: Arch) -> ((Program, Vec<i32>), (Pools, Vec<Binding>)) {
    if ATTENTION.contains(&arch) && g.chance(0.4) {
        let case = AttentionCase::random(g, arch);
        return ((case.program(), case.uniforms()), case.memory());
    }
    if g.chance(0.3) {
        let case = PrologueCase::random(g, arch);
        return ((case.program(), case.uniforms()), case.memory());
    }
    if g.chance(0.3) {
        let case = ConvCase::random(g, arch);
        return ((case.program(), case.uniforms()), case.memory());
    }
    let case = Case::random(g, arch);
    ((case.program(), case.uniforms()), case.memory())
}

#[test]
fn damaged_programs_are_rejected_or_run() {
    let (mut accepted, mut rejected) = (0, 0);
    for seed in 0..PROGRAMS {
        let mut g = Gen::new(seed);
        let arch = g.pick(&Arch::ALL);
        let ((mut p, uniforms), (mut pools, bindings)) = any(&mut g, arch);
        if g.chance(0.5) {
            p = expand(&p);
        }
        for _ in 0..g.int(1..=3) {
            damage(&mut g, &mut p);
        }
        // Printing needs no valid program.
        assert!(!p.to_string().is_empty() && p.hash() == p.hash());
        if let Err(violation) = verify(&p) {
            assert!(!violation.to_string().is_empty());
            assert!(source(&p, "k").is_err());
            rejected += 1;
            continue;
        }
        accepted += 1;
        source(&p, "k").unwrap_or_else(|e| panic!("seed {seed}: {e}\n{p}"));
        // A damaged grid may have very many workgroups: what one of them does is the same.
        if interp::workgroups(&p, &uniforms) < 64 {
            let _ = interp::run(&p, &uniforms, &mut pools, &bindings);
        }
    }
    assert!(accepted > PROGRAMS / 10 && rejected > PROGRAMS / 10, "{accepted} accepted, {rejected} rejected");
}
