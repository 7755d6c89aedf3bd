//! The group level: matmuls by tensor copies and `wgmma` on the interpreter, and what verifier and interpreter find.

mod common;

use common::Case;
use common::groups::{self, steps, without};
use rlx_ir::testing::Gen;
use rlx_ir::{DType, ErrorKind};
use rlx_tile::group::{Barrier, Group, GroupTileDecl};
use rlx_tile::ir::{Counter, Heads, Index, Program, Size, Stmt, View};
use rlx_tile::schedule::{
    Matmul, Operand, Sizes, Strides, Tiling, group_tilings, matmul, matmul_groups, tilings, turn_tilings,
};
use rlx_tile::verify::{Rule, verify};
use rlx_tile::{Arch, interp};

/// With `RLX_TEST_ALL` five times as many.
const CASES: u64 = 120;

/// Right against sums in f64, and the bits of sm_80, whose instruction has the same depth.
#[test]
fn random_matmuls_are_right_and_as_on_sm_80() {
    let all = std::env::var_os("RLX_TEST_ALL").is_some();
    for seed in 0..if all { 5 * CASES } else { CASES } {
        let case = groups::random(&mut Gen::new(seed));
        let program = case.program();
        let (pools, counters) =
            case.interpret(&program).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", case.describe()));
        assert_eq!((counters.conflicts, counters.ways), (0, 1), "seed {seed}: bank conflicts");
        case.check(&pools.0[2]);
        let (rows, _) = case.interpret(&groups::of_warps(&case)).unwrap();
        assert!(rows.0[2] == pools.0[2], "seed {seed}: other bits than sm_80\n{}", case.describe());
    }
}

fn small() -> Case {
    groups::small(DType::F16)
}

fn roles(p: &mut Program) -> (&mut Vec<Stmt>, &mut Vec<Stmt>) {
    match &mut p.body[0] {
        Stmt::Roles { producer, consumers, .. } => (producer, consumers),
        other => panic!("{other:?}"),
    }
}

fn change(stmts: &mut [Stmt], f: impl Fn(&mut Group)) {
    stmts.iter_mut().for_each(|s| {
        if let Stmt::Group(g) = s {
            f(g);
        }
    });
}

/// The rule that a changed program breaks.
fn broken(change: impl FnOnce(&mut Program)) -> Rule {
    let mut p = small().program();
    change(&mut p);
    verify(&p).expect_err("the verifier finds it").rule
}

#[test]
fn the_verifier_knows_stages_bytes_and_arrivals() {
    let transfer = |rule: Rule| matches!(rule, Rule::Transfer(_));
    assert!(transfer(broken(|p| without(steps(roles(p).0), |g| matches!(g, Group::Copy { .. })))));
    assert!(transfer(broken(|p| without(steps(roles(p).0), |g| matches!(g, Group::Expect(..))))));
    assert!(transfer(broken(|p| p.group.barriers[1].arrivals = 1)));
    assert!(transfer(broken(|p| change(steps(roles(p).0), |g| {
        if let Group::Expect(_, _, bytes) = g {
            *bytes -= 16;
        }
    }))));
    assert!(transfer(broken(|p| roles(p).0.push(Stmt::Group(Group::Fence)))));
    assert!(transfer(broken(|p| roles(p).0.push(Stmt::Barrier))));
    assert!(matches!(broken(|p| p.body.push(Stmt::Barrier)), Rule::Declaration(_)));
    assert!(matches!(broken(|p| p.group.tiles[0].stages = 2), Rule::Pipeline(_)));
    assert!(matches!(broken(|p| p.group.barriers[0].stages = 2), Rule::Pipeline(_)));
    let (operand, declaration) =
        (|rule: Rule| matches!(rule, Rule::Operand(_)), |rule: Rule| matches!(rule, Rule::Declaration(_)));
    assert!(operand(broken(|p| p.group.tiles[1].rows = 24)));
    assert!(operand(broken(|p| p.group.tiles[1].blocks = 2)));
    assert!(operand(broken(|p| p.group.tiles[0].rows = 128)));
    assert!(declaration(broken(|p| p.group.tiles[0].rows = 12)));
    assert!(declaration(broken(|p| p.group.tiles[0].blocks = 0)));
    assert!(operand(broken(|p| p.group.maps[0].rows = 128)));
    assert!(declaration(broken(|p| p.group.maps[0].rows = 260)));
    assert!(declaration(broken(|p| p.group.maps[0].cols = 32)));
    assert!(declaration(broken(|p| p.group.maps[0].view = View(2))));
    assert!(matches!(broken(|p| p.group.maps[0].view = View(9)), Rule::Unknown(_)));
    assert!(declaration(broken(|p| p.views[0].vector = 4)));
    assert!(declaration(broken(|p| p.buffers[0].dtype = DType::BF16)));
    assert!(declaration(broken(|p| p.views[1].heads = Some(Heads { count: 3, stride: Size::Const(8) }))));
    assert!(matches!(broken(|p| p.views[0].base = Size::Uniform(99)), Rule::Unknown(_)));
    assert!(matches!(broken(|p| p.arch = Arch::Sm80), Rule::Declaration(_)));
    assert!(matches!(broken(|p| p.warps = (3, 1)), Rule::Declaration(_)));
    assert!(matches!(broken(|p| p.fragments[0].cols = 32), Rule::Operand(_)));
    let large = |p: &mut Program| {
        p.group.tiles.push(GroupTileDecl { blocks: 4, rows: 256, stages: 8 });
    };
    assert!(matches!(broken(large), Rule::SharedMemory(..)));
    let column = |g: &mut Group| {
        if let Group::Copy { col, .. } = g {
            col.constant = 4;
        }
    };
    assert!(matches!(broken(|p| change(steps(roles(p).0), column)), Rule::Position(_)));
    let block = |g: &mut Group| {
        if let Group::Copy { block, .. } = g {
            *block += 1;
        }
    };
    assert!(operand(broken(|p| change(steps(roles(p).0), block))));
    let order = |g: &mut Group| {
        if let Group::Mma { depth_rows, .. } = g {
            *depth_rows = false;
        }
    };
    // A depth of 64 by 64 columns may be either.
    let mut p = small().program();
    change(steps(roles(&mut p).1), order);
    verify(&p).unwrap();
    let late = |g: &mut Group| {
        if let Group::Arrive(_, _, behind) = g {
            *behind = 3;
        }
    };
    assert!(matches!(broken(|p| change(steps(roles(p).1), late)), Rule::Pipeline(_)));
    let unknown = |g: &mut Group| {
        if let Group::Arrive(b, c, _) = g {
            (*b, *c) = (Barrier(7), Counter(1));
        }
    };
    assert!(matches!(broken(|p| change(steps(roles(p).1), unknown)), Rule::Unknown(_)));
    let below = |g: &mut Group| {
        if let Group::Mma { row, .. } = g {
            *row = 8;
        }
    };
    assert_eq!(broken(|p| change(steps(roles(p).1), below)), Rule::Outside(72, 64));
}

/// What the interpreter says of a program that was changed.
fn found(change: impl FnOnce(&mut Program)) -> String {
    let case = small();
    let mut p = case.program();
    case.interpret(&p).expect("right before the change");
    change(&mut p);
    case.interpret(&p).expect_err("the interpreter finds it").to_string()
}

#[test]
fn missing_waits_and_fences_are_found() {
    let full = found(|p| without(steps(roles(p).1), |g| matches!(g, Group::WaitFull(..))));
    assert!(full.contains("before it is written") || full.contains("under way"), "{full}");
    let empty = found(|p| without(steps(roles(p).0), |g| matches!(g, Group::WaitEmpty(..))));
    assert!(empty.contains("fewer arrivals"), "{empty}");
    let mma = found(|p| without(steps(roles(p).1), |g| matches!(g, Group::WaitMma(_))));
    assert!(mma.contains("may still read"), "{mma}");
    let late = found(|p| {
        change(steps(roles(p).1), |g| {
            if let Group::WaitMma(n) = g {
                *n = 2;
            }
        });
    });
    assert!(late.contains("may still read"), "{late}");
    let behind = found(|p| {
        change(steps(roles(p).1), |g| {
            if let Group::Arrive(_, _, behind) = g {
                *behind = 0;
            }
        });
    });
    assert!(behind.contains("may still read"), "{behind}");
    let last = found(|p| without(roles(p).1, |g| matches!(g, Group::WaitMma(_))));
    assert!(last.contains("under way"), "{last}");
    let commit = found(|p| without(steps(roles(p).1), |g| matches!(g, Group::Commit)));
    assert!(commit.contains("may still read") || commit.contains("under way"), "{commit}");
    let fence = found(|p| without(steps(roles(p).1), |g| matches!(g, Group::Fence)));
    assert!(fence.contains("no fence"), "{fence}");
    let zero = found(|p| roles(p).1.retain(|s| !matches!(s, Stmt::Zero(_))));
    assert!(zero.contains("not set"), "{zero}");
}

#[test]
fn roles_that_wait_for_each_other_are_found() {
    let never = found(|p| {
        change(steps(roles(p).1), |g| {
            if let Group::WaitFull(_, _) = g {
                *g = Group::WaitFull(Barrier(1), Counter(1));
            }
        });
    });
    assert!(never.contains("deadlock"), "{never}");
    let early = found(|p| {
        let consumers = steps(roles(p).1);
        let arrive = consumers.pop().unwrap();
        consumers.insert(1, arrive);
    });
    assert!(early.contains("may still read"), "{early}");
}

#[test]
fn promises_of_alignment_are_kept() {
    let case = small();
    let p = case.program();
    let (pools, bindings) = case.memory();
    let run = |change: &dyn Fn(&mut Vec<i32>)| {
        let mut uniforms = case.uniforms();
        change(&mut uniforms);
        let mut pools = rlx_kernel::interp::Pools(pools.0.clone());
        interp::run(&p, &uniforms, &mut pools, &bindings).map(|_| ()).map_err(|e| e.to_string())
    };
    run(&|_| {}).unwrap();
    // Where the left operand begins, and its rows; sizes beyond the buffer.
    assert!(run(&|u| u[3] += 1).unwrap_err().contains("begins at element"));
    assert!(run(&|u| u[4] += 4).unwrap_err().contains("elements apart"));
    assert!(run(&|u| u[4] = 0).unwrap_err().contains("0 elements apart"));
    assert!(run(&|u| u[4] = -u[4]).unwrap_err().contains("elements apart"));
    assert!(run(&|u| u[2] += 64).unwrap_err().contains("of a buffer"));
}

/// What a launch makes of a map: dimensions from the inside out, and legal strides where they do not matter.
#[test]
fn maps_are_bound_to_uniforms() {
    let what = Matmul { batch: 3, ..Matmul::new(DType::BF16) };
    let p = matmul_groups(&what, &groups::smallest()).unwrap();
    let strides = |base, row, batch: [i32; 3]| Strides { base, row, col: 1, batch: batch.to_vec() };
    let sizes = |m, k, batch: [i32; 3], left| Sizes {
        m,
        n: 48,
        k,
        batch: batch.to_vec(),
        left,
        right: strides(0, 48, [0, 0, 48 * 24]),
        result: strides(0, 48, [0; 3]),
        ..Sizes::default()
    };
    let left = |sizes: &Sizes| p.maps()[0].bound(&p, &what.uniform_values(sizes));
    // A matrix repeats along the second dimension of the batch.
    let bound = left(&sizes(70, 24, [2, 3, 5], strides(16, 32, [32_000, 0, 3200]))).unwrap();
    assert_eq!((bound.buffer, bound.base, bound.dtype), (0, 16, DType::BF16));
    assert_eq!(bound.sizes, [24, 70, 5, 1, 2]);
    assert_eq!(bound.strides, [64, 6400, 32_000, 64_000]);
    assert_eq!(bound.box_sizes, [64, 64, 1, 1, 1]);
    let right =
        p.maps()[1].bound(&p, &what.uniform_values(&sizes(70, 24, [2, 3, 5], strides(0, 32, [0; 3]))));
    assert_eq!(right.unwrap().sizes, [48, 24, 5, 1, 1]);
    // Of one index, and of none.
    let bound = left(&sizes(1, 0, [1, 0, 1], strides(0, 3, [5, 7, -8]))).unwrap();
    assert_eq!((bound.sizes, bound.strides), (vec![1; 5], vec![16; 4]));
    for wrong in [
        sizes(70, 24, [2, 3, 5], strides(4, 32, [0; 3])),
        sizes(70, 24, [2, 3, 5], strides(-8, 32, [0; 3])),
        sizes(70, 24, [2, 3, 5], strides(0, 0, [0; 3])),
        sizes(70, 24, [2, 3, 5], strides(0, 36, [0; 3])),
        sizes(70, 24, [2, 3, 5], strides(0, 32, [0, -8, 0])),
    ] {
        assert_eq!(left(&wrong).unwrap_err().kind(), ErrorKind::Internal);
    }
    assert!(p.maps()[0].bound(&p, &[1, 2]).is_err());
}

#[test]
fn what_tensor_copies_cannot_take_is_unsupported() {
    let tiling = groups::smallest();
    let no = |what: Matmul| matmul_groups(&what, &tiling).unwrap_err();
    let plain = || Matmul::new(DType::BF16);
    let wide = Operand { dtype: DType::F32, ..plain().left };
    let odd = Operand { vector: 4, ..plain().right };
    let transposed = Operand { transposed: true, ..plain().left };
    for what in [
        Matmul { left: wide, ..plain() },
        Matmul { right: odd, ..plain() },
        Matmul { left: transposed, ..plain() },
        Matmul { batch: 4, ..plain() },
        Matmul { parts: true, batch: 1, ..plain() },
        Matmul { compute: DType::F32, ..plain() },
    ] {
        assert_eq!(no(what).kind(), ErrorKind::Unsupported);
    }
    let by = |tile, transposed| {
        let right = Operand { transposed, ..plain().right };
        matmul_groups(&Matmul { right, ..plain() }, &Tiling { tile, ..tiling }).is_ok()
    };
    for tile in [(32, 64, 64), (64, 24, 64), (64, 512, 64), (64, 64, 32), (64, 64, 128), (256, 256, 64)] {
        assert!(!by(tile, false) && !by(tile, true), "{tile:?}");
    }
    // Three fragments of 64 rows fit, and of operands along their depth any 16 columns.
    assert!(by((192, 64, 64), false) && by((64, 80, 64), true) && !by((64, 80, 64), false));
    assert!(matmul_groups(&plain(), &Tiling { stages: 1, ..tiling }).is_err());
    // The tiling says which level it is.
    assert_eq!(matmul(Arch::Sm90a, &plain(), &tiling).unwrap().arch, Arch::Sm90a);
    assert!(matmul(Arch::Sm80, &plain(), &tiling).is_err());
    let all = group_tilings().into_iter().chain(turn_tilings()).chain(tilings(Arch::Sm80));
    let names = all.map(|t| t.name());
    assert_eq!(names.collect::<std::collections::BTreeSet<_>>().len(), 19);
}

/// So many bytes under way hide the latency of an H100's memory: its bandwidth times about a microsecond, divided by its multiprocessors.
#[test]
fn enough_bytes_are_in_flight() {
    for tiling in group_tilings() {
        let p = matmul_groups(&Matmul::new(DType::BF16), &tiling).unwrap();
        assert!(p.bytes_in_flight() >= 29 << 10, "{}: {}", p.name, p.bytes_in_flight());
    }
}

/// A program with damage in a random place is rejected, or runs to a result or an error.
#[test]
fn damaged_programs_do_not_panic() {
    let (case, mut rejected, mut ran) = (small(), 0, 0);
    for seed in 0..600 {
        let g = &mut Gen::new(seed);
        let mut p = case.program();
        damage(g, &mut p);
        match verify(&p) {
            Err(_) => rejected += 1,
            Ok(()) => {
                ran += 1;
                let _ = case.interpret(&p);
                rlx_tile::render::source(&p, "k").unwrap();
                let _ = p.hash();
            }
        }
    }
    assert!(rejected > 100 && ran > 100, "{rejected} rejected, {ran} ran");
}

fn damage(g: &mut Gen, p: &mut Program) {
    let number = |g: &mut Gen| g.pick(&[0u32, 1, 2, 4, 8, 16, 24, 64, 256, 1024, 1 << 20, u32::MAX]);
    match g.int(0..=8) {
        0 => p.group.tiles[g.size(0..=1)].rows = number(g),
        1 => p.group.tiles[g.size(0..=1)].blocks = number(g),
        2 => p.group.barriers[g.size(0..=1)].arrivals = number(g),
        3 => {
            let stages = number(g);
            p.group.tiles.iter_mut().for_each(|t| t.stages = stages);
            p.group.barriers.iter_mut().for_each(|b| b.stages = stages);
        }
        4 => {
            let (map, rows) = (&mut p.group.maps[g.size(0..=1)], [64, number(g)]);
            (map.rows, map.view) = (g.pick(&rows), View(g.int(0..=3) as u32));
        }
        5 => p.warps = (number(g), number(g)),
        _ => {
            let (producer, consumers) = roles(p);
            let list = steps(if g.chance(0.4) { producer } else { consumers });
            let (at, other) = (g.size(0..=list.len() - 1), g.size(0..=list.len() - 1));
            match g.int(0..=3) {
                0 => drop(list.remove(at)),
                1 => list.push(list[at].clone()),
                2 => list.swap(at, other),
                _ => damage_group(g, &mut list[at]),
            }
        }
    }
}

fn damage_group(g: &mut Gen, s: &mut Stmt) {
    let (barrier, counter) = (Barrier(g.int(0..=2) as u32), Counter(g.int(0..=2) as u32));
    match s {
        Stmt::Group(Group::Copy { row, .. }) => *row = Index::new(g.int(0..=4) as u32),
        Stmt::Group(Group::Mma { row, .. }) => *row = 8 * g.int(0..=9) as u32,
        Stmt::Group(Group::WaitMma(n)) => *n = g.int(0..=9) as u32,
        Stmt::Group(Group::WaitFull(b, c) | Group::WaitEmpty(b, c) | Group::Arrive(b, c, _)) => {
            (*b, *c) = (barrier, counter);
        }
        _ => {}
    }
}
