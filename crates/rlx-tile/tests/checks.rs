//! What the verifier and the interpreter find: programs with one thing wrong.

mod common;

use common::{Case, Map};
use rlx_ir::testing::Gen;
use rlx_ir::{DType, ErrorKind};
use rlx_kernel::ir::{Access, Buffer};
use rlx_tile::expand::expand;
use rlx_tile::ir::{Counter, Index, Size, Stage, Stmt, View};
use rlx_tile::layout::Swizzle;
use rlx_tile::schedule::{Matmul, Tiling, matmul};
use rlx_tile::verify::{Rule, verify};
use rlx_tile::{Arch, Program, Scalar};

const SMALL: Tiling =
    Tiling { tile: (32, 32, 32), warps: (2, 1), stages: 3, bands: 2, groups: false, teams: 0 };

/// A matmul over three steps of its depth.
fn case(arch: Arch) -> Case {
    let mut g = Gen::new(5);
    let mut case = Case::of(&mut g, arch, SMALL, Matmul::new(DType::F16), (40, 48, 96), Vec::new());
    (case.what.left_map, case.what.right_map, case.what.epilogue) = (None, None, None);
    (case.prologues, case.epilogue) = ([Map::None; 2], Map::None);
    case
}

fn program(arch: Arch) -> Program {
    matmul(arch, &Matmul::new(DType::F16), &SMALL).unwrap()
}

/// The rule that a changed program breaks.
fn broken(change: impl FnOnce(&mut Program)) -> Rule {
    let mut p = program(Arch::Sm80);
    change(&mut p);
    verify(&p).expect_err("the verifier finds it").rule
}

fn pipelined(p: &mut Program) -> (&mut Vec<rlx_tile::ir::Copy>, &mut Vec<Stmt>) {
    match &mut p.body[1] {
        Stmt::Pipelined { copies, body, .. } => (copies, body),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_verifier_names_the_rule() {
    assert!(matches!(broken(|p| p.dtype = DType::F32), Rule::NoInstruction));
    assert!(matches!(broken(|p| p.warps = (0, 4)), Rule::Warps(0)));
    assert!(matches!(broken(|p| p.warps = (u32::MAX, 4)), Rule::Warps(_)));
    assert!(matches!(broken(|p| p.tiles[0].stages = 8), Rule::Pipeline(_)));
    assert!(matches!(broken(|p| p.tiles[0].rows = 1024), Rule::SharedMemory(..)));
    assert!(matches!(broken(|p| p.fragments[0].rows = 64), Rule::Operand(_)));
    assert!(matches!(
        broken(|p| (p.fragments[0].rows, p.fragments[0].cols) = (256, 256)),
        Rule::Registers(..)
    ));
    assert!(matches!(broken(|p| p.fragments[1].rows = 8), Rule::Declaration(_)));
    assert!(matches!(broken(|p| p.tiles[0].cols = 24), Rule::Declaration(_)));
    assert!(matches!(broken(|p| p.tiles[0].swizzle = Swizzle { bits: 3, shift: 0 }), Rule::Declaration(_)));
    assert!(matches!(broken(|p| p.tiles[0].dtype = DType::BF16), Rule::Declaration(_)));
    assert!(matches!(broken(|p| p.views[0].vector = 16), Rule::Declaration(_)));
    assert!(matches!(broken(|p| p.views[0].col_stride = Size::Uniform(0)), Rule::Declaration(_)));
    assert!(matches!(broken(|p| p.views[0].rows = Size::Uniform(999)), Rule::Unknown(_)));
    assert!(matches!(broken(|p| p.views[0].batch.push(Size::Const(1))), Rule::Declaration(_)));
    assert!(matches!(broken(|p| p.buffers[2].access = Access::Read), Rule::Access(_)));
    assert!(matches!(broken(|p| p.buffers[0].dtype = DType::I32), Rule::Declaration(_)));
    assert!(matches!(broken(|p| pipelined(p).0[0].col = Index::new(3)), Rule::Position(_)));
    assert!(matches!(broken(|p| pipelined(p).0[1].to = pipelined(p).0[0].to), Rule::Pipeline(_)));
    assert!(matches!(broken(|p| pipelined(p).0[0].stage = Stage::ONLY), Rule::Pipeline(_)));
    assert!(matches!(broken(|p| pipelined(p).1.push(Stmt::Barrier)), Rule::Pipeline(_)));
    assert!(matches!(
        broken(|p| p.body.insert(0, Stmt::Put(0, pipelined(&mut program(Arch::Sm80)).0[0].clone()))),
        Rule::Transfer(_)
    ));
    // A size is divided where there are parts, and only where a view or a loop ends.
    let part = Size::Part { whole: 2, each: 0 };
    assert!(matches!(broken(|p| p.views[0].cols = part), Rule::Declaration(_)));
    let in_parts = |change: &dyn Fn(&mut Program)| {
        let what = Matmul { parts: true, batch: 1, ..Matmul::new(DType::F16) };
        let mut p = matmul(Arch::Sm80, &what, &SMALL).unwrap();
        change(&mut p);
        verify(&p).expect_err("the verifier finds it").rule
    };
    assert!(matches!(in_parts(&|p| p.views[0].base = part), Rule::Declaration(_)));
    assert!(matches!(in_parts(&|p| p.views[2].batch[0] = part), Rule::Declaration(_)));
    assert!(matches!(in_parts(&|p| p.grid.rows = part), Rule::Declaration(_)));
    assert!(matches!(in_parts(&|p| p.grid.batch.clear()), Rule::Declaration(_)));
    let unknown = Size::Part { whole: 2, each: 999 };
    assert!(matches!(in_parts(&|p| p.views[0].cols = unknown), Rule::Unknown(_)));
    let foreign = Scalar::new("foreign", &[], &[], |_, x, _| x);
    assert!(matches!(broken(|p| pipelined(p).0[0].map = Some(foreign)), Rule::Body(_)));
}

/// No body is told which row of a buffer one is that is looked up, and nobody stores one who does not know which sums they have.
#[test]
fn rows_that_are_looked_up_are_stored_as_they_are() {
    let what = Matmul { grouped: true, batch: 1, ..Matmul::new(DType::F16) };
    let mut p = matmul(Arch::Sm80, &what, &SMALL).unwrap();
    let same = what.scalar("same", |_, x, _| x);
    let stored =
        p.body.iter_mut().find_map(|s| if let Stmt::Store { map, .. } = s { Some(map) } else { None });
    *stored.unwrap() = Some(same.clone());
    assert!(matches!(verify(&p).unwrap_err().rule, Rule::Access(_)));
    let broken = |change: &dyn Fn(&mut Program)| {
        let mut p = matmul(Arch::Sm80, &what, &SMALL).unwrap();
        change(&mut p);
        verify(&p).unwrap_err().rule
    };
    // Workgroups end without a page that all rows are in, not without a row.
    assert!(matches!(broken(&|p| p.grid.table = Some(View(0))), Rule::Declaration(_)));
    assert!(matches!(broken(&|p| p.grid.table = Some(View(9))), Rule::Unknown(_)));
    let unknown = matmul(Arch::Apple7, &what, &SMALL).unwrap_err();
    assert!(unknown.to_string().contains("lanes that know their sums"), "{unknown}");
    for what in [Matmul { epilogue: Some(same), ..what.clone() }, Matmul { batch: 2, ..what }] {
        let refused = matmul(Arch::Sm80, &what, &SMALL).unwrap_err();
        assert!(refused.to_string().contains("rows in groups are multiplied as they are"), "{refused}");
    }
}

/// Tiles are in matrices exactly where the architecture loads those, and what sums are stored through counts as workgroup memory.
#[test]
fn tiles_are_stored_as_the_architecture_loads_them() {
    assert!(matches!(broken(|p| p.tiles[0].matrices = true), Rule::Declaration(_)));
    let apple = |change: fn(&mut Program)| {
        let mut p = program(Arch::Apple7);
        change(&mut p);
        verify(&p).map_err(|v| v.rule)
    };
    assert_eq!(apple(|_| ()), Ok(()));
    assert!(matches!(apple(|p| p.tiles[0].matrices = false), Err(Rule::Declaration(_))));
    assert!(matches!(apple(|p| p.tiles[0].swizzle = Swizzle::of(32)), Err(Rule::Declaration(_))));
    assert!(matches!(apple(|p| p.tiles[0].rows += 4), Err(Rule::Declaration(_))));
    let p = program(Arch::Apple7);
    // Two warps, each with a matrix of 8 × 8 sums.
    assert_eq!((p.exchange_bytes(), program(Arch::Sm80).exchange_bytes()), (512, 0));
    assert_eq!(p.shared_bytes(), 512 + p.tiles.iter().map(|t| t.bytes()).sum::<u64>());
    // Four stages fill the 32 KiB of Metal's workgroups, and leave no room for sums.
    let full = Tiling { tile: (64, 64, 32), warps: (2, 2), stages: 4, bands: 1, groups: false, teams: 0 };
    let error = matmul(Arch::Apple7, &Matmul::new(DType::F16), &full).unwrap_err();
    assert!(error.message().contains("33792 bytes of workgroup memory"), "{error}");
}

/// A body that calls a function is computed by arithmetic, for interpreter and text alike: Metal's own functions are not accurate enough.
#[test]
fn metal_calls_no_function_in_a_body() {
    let mut what = Matmul::new(DType::F16);
    let tanh = rlx_kernel::ir::MathFn::named("Tanh").expect("tanh is a function");
    what.epilogue = Some(what.scalar("tanh", |b, x, _| b.math(tanh, x)));
    let text = |arch| rlx_tile::render::source(&matmul(arch, &what, &SMALL).unwrap(), "k").unwrap();
    assert!(text(Arch::Sm80).contains("tanhf(") && !text(Arch::Apple7).contains("tanh("));
    // A program whose body was not emulated is rejected.
    let mut p = matmul(Arch::Apple7, &what, &SMALL).unwrap();
    let Some(Stmt::Store { map, .. }) = p.body.last_mut() else { panic!("no store") };
    *map = what.epilogue.clone();
    let error = rlx_tile::render::source(&p, "k").unwrap_err();
    assert!(error.message().contains("has no function"), "{error}");
}

#[test]
fn loads_stay_in_their_tile() {
    let outside = broken(|p| {
        let Stmt::For { body, .. } = &mut pipelined(p).1[0] else { panic!() };
        let Stmt::Load { row, .. } = &mut body[0] else { panic!() };
        row.constant += 8;
    });
    assert_eq!(outside, Rule::Outside(40, 32));
    let group = broken(|p| {
        let Stmt::For { counter, body, .. } = &mut pipelined(p).1[0] else { panic!() };
        assert_eq!(*counter, Counter(1));
        let Stmt::Load { row, .. } = &mut body[0] else { panic!() };
        *row = row.clone().plus(rlx_tile::ir::Coord::GroupRow, 8);
    });
    assert!(matches!(group, Rule::Position(_)));
}

#[test]
fn an_error_says_what_and_where() {
    let mut p = program(Arch::Sm80);
    p.tiles[1].rows = 2000;
    let error: rlx_ir::Error = verify(&p).unwrap_err().into();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(error.message().contains("t1: a tile has 1 to 1024 rows"), "{error}");
}

#[test]
fn what_an_architecture_lacks_is_unsupported() {
    let no = |arch, what: &Matmul, tiling: &Tiling| matmul(arch, what, tiling).unwrap_err();
    let error = no(Arch::Sm75, &Matmul::new(DType::BF16), &SMALL);
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("bf16"), "{error}");
    let large = Tiling { tile: (256, 256, 64), warps: (4, 4), stages: 4, bands: 1, groups: false, teams: 0 };
    assert!(no(Arch::Sm80, &Matmul::new(DType::F16), &large).message().contains("workgroup memory"));
    let odd = Tiling { tile: (40, 32, 32), ..SMALL };
    assert!(no(Arch::Sm80, &Matmul::new(DType::F16), &odd).message().contains("blocks of 16"));
}

/// The statements of the loop over the depth.
fn depth(p: &mut Program) -> &mut Vec<Stmt> {
    p.body
        .iter_mut()
        .find_map(|s| match s {
            Stmt::For { body, .. } => Some(body),
            _ => None,
        })
        .expect("a loop")
}

/// What the interpreter says of an expanded program that was changed.
fn found(arch: Arch, change: impl FnOnce(&mut Program)) -> String {
    let case = case(arch);
    let mut p = expand(&case.program());
    case.interpret(&p).expect("right before the change");
    change(&mut p);
    case.interpret(&p).expect_err("the interpreter finds it").to_string()
}

#[test]
fn races_and_missing_waits_are_found() {
    let barrier = |p: &mut Program| depth(p).retain(|s| !matches!(s, Stmt::Barrier));
    assert!(found(Arch::Sm80, barrier).contains("a race"));
    let wait = |p: &mut Program| depth(p).retain(|s| !matches!(s, Stmt::Wait(_)));
    assert!(found(Arch::Sm80, wait).contains("under way"));
    let late = |p: &mut Program| {
        depth(p).iter_mut().for_each(|s| {
            if let Stmt::Wait(n) = s {
                *n += 1;
            }
        });
    };
    assert!(found(Arch::Sm80, late).contains("under way"));
    // Without asynchronous copies there are a barrier before the loop and one at the end of an iteration.
    assert!(found(Arch::Sm75, barrier).contains("a race"));
    for arch in [Arch::Sm75, Arch::Gfx90a, Arch::Gfx1100, Arch::Gfx1200] {
        assert!(found(arch, |p| p.body.retain(|s| !matches!(s, Stmt::Barrier))).contains("a race"));
    }
}

#[test]
fn what_is_not_set_is_found() {
    assert!(found(Arch::Sm80, |p| p.body.retain(|s| !matches!(s, Stmt::Zero(_)))).contains("not set"));
    let copies = |p: &mut Program| p.body.retain(|s| !matches!(s, Stmt::CopyAsync(_)));
    assert!(found(Arch::Sm80, copies).contains("before it is written"));
    let twice = |p: &mut Program| p.body.push(p.body.last().unwrap().clone());
    assert!(found(Arch::Sm80, twice).contains("stored twice"));
}

#[test]
fn a_broken_promise_of_alignment_is_found() {
    let mut case = case(Arch::Sm80);
    let program = case.program();
    case.sizes.left.row += 1;
    assert!(case.interpret(&program).unwrap_err().to_string().contains("not aligned"));
}

#[test]
fn accesses_outside_of_a_buffer_are_found() {
    let mut case = case(Arch::Sm80);
    let program = case.program();
    case.values[1].truncate(64);
    assert!(case.interpret(&program).unwrap_err().to_string().contains("of a buffer of 64"));
}

/// Without their swizzle, tiles have bank conflicts, and the counters find them.
#[test]
fn tiles_without_swizzle_have_bank_conflicts() {
    let case = case(Arch::Sm80);
    let mut p = case.program();
    p.tiles.iter_mut().for_each(|t| t.swizzle = Swizzle::NONE);
    let (pools, counters) = case.interpret(&p).unwrap();
    case.check(&pools.0[2]);
    assert_eq!(counters.ways, 4, "rows of 64 bytes: every second row begins at the same bank");
    let (_, swizzled) = case.interpret(&case.program()).unwrap();
    assert_eq!((swizzled.conflicts, swizzled.ways), (0, 1));
}

/// So do tiles of which lanes load single elements, with the swizzle of tiles that are loaded by chunks.
#[test]
fn tiles_loaded_by_elements_need_another_swizzle() {
    for arch in [Arch::Gfx90a, Arch::Gfx1200] {
        let case = case(arch);
        let mut p = case.program();
        p.tiles[1].swizzle = Swizzle::of(p.tiles[1].cols);
        let (_, counters) = case.interpret(&p).unwrap();
        assert_eq!(counters.ways, 2, "rows that are 8 apart have the same order");
        let (_, swizzled) = case.interpret(&case.program()).unwrap();
        assert_eq!((swizzled.conflicts, swizzled.ways), (0, 1));
    }
}

/// Tilings of an architecture give the same bits.
#[test]
fn tilings_give_the_same_bits() {
    for arch in Arch::ALL {
        let mut case = case(arch);
        let mut results = Vec::new();
        for tiling in rlx_tile::schedule::tilings(arch) {
            case.tiling = tiling;
            results.push(case.interpret(&case.program()).unwrap().0.0.swap_remove(2));
        }
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{}", arch.name());
    }
}

#[test]
fn names_are_no_part_of_the_hash() {
    let (mut a, b) = (program(Arch::Sm80), program(Arch::Sm80));
    a.name = "another".into();
    a.buffers[0].name = "x".into();
    assert_eq!(a.hash(), b.hash());
    a.grid.bands += 1;
    assert_ne!(a.hash(), b.hash());
}

/// A body that adds the first element of the result's buffer.
fn plus_first(p: &Program) -> Scalar {
    Scalar::new("plus_first", &p.buffers, &p.uniforms, |b, x, _| {
        let at = b.int(0);
        let first = b.load(Buffer(2), at);
        b.add(x, first)
    })
}

#[test]
fn a_body_reads_nothing_that_another_one_may_write() {
    let everywhere = |p: &mut Program| {
        let body = plus_first(p);
        let Some(Stmt::Store { map, .. }) = p.body.last_mut() else { panic!("no store") };
        *map = Some(body);
    };
    assert!(found(Arch::Sm80, everywhere).contains("which another one may write"));
    let prologue = broken(|p| {
        let body = plus_first(p);
        pipelined(p).0[0].map = Some(body);
    });
    assert!(matches!(prologue, Rule::Access(what) if what.contains("reads what the program writes")));
    // Such text may not promise that nobody else has the memory.
    let mut p = program(Arch::Sm80);
    assert!(rlx_tile::render::source(&p, "k").unwrap().contains("__restrict__ b2"));
    everywhere(&mut p);
    let text = rlx_tile::render::source(&p, "k").unwrap();
    assert!(text.contains("* b2") && text.contains("* const g2"), "{text}");
}
