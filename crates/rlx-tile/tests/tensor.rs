//! Tensor memory: matmuls by tensor copies and `tcgen05` on the interpreter, and what verifier and interpreter find.

mod common;

use common::Case;
use common::groups::{self, steps, without};
use common::tensors;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, ErrorKind};
use rlx_tile::Arch;
use rlx_tile::group::tensor::{Accumulator, AccumulatorDecl, Tensor};
use rlx_tile::group::{Barrier, Group, GroupTileDecl, Registers};
use rlx_tile::ir::{Coord, Counter, Index, Program, Size, Stmt};
use rlx_tile::schedule::{Matmul, Operand, Tiling, matmul, matmul_tensors, tensor_tilings};
use rlx_tile::verify::{Rule, verify};

const CASES: u64 = 500;

/// Right against sums in f64, and the bits of sm_80, whose instruction has the same depth.
#[test]
fn random_matmuls_are_right_and_as_on_sm_80() {
    for seed in 0..CASES {
        let case = tensors::random(&mut Gen::new(seed));
        let program = case.program();
        let (pools, counters) =
            case.interpret(&program).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", case.describe()));
        assert_eq!((counters.conflicts, counters.ways), (0, 1), "seed {seed}: bank conflicts");
        case.check(&pools.0[2]);
        // One in five: of these programs, it takes the interpreter the longest.
        if seed % 5 == 0 {
            let (rows, _) = case.interpret(&groups::of_warps(&case)).unwrap();
            assert!(rows.0[2] == pools.0[2], "seed {seed}: other bits than sm_80\n{}", case.describe());
        }
    }
}

fn small() -> Case {
    tensors::small(DType::F16)
}

/// The lists of producer, multiplier and consumers.
fn roles(p: &mut Program) -> [&mut Vec<Stmt>; 3] {
    match &mut p.body[0] {
        Stmt::Roles { producer, multiplier, consumers } => [producer, multiplier, consumers],
        other => panic!("{other:?}"),
    }
}

/// Changes the statements on tensor memory of a list, and of the loops in it.
fn change(stmts: &mut [Stmt], f: &impl Fn(&mut Tensor)) {
    stmts.iter_mut().for_each(|s| match s {
        Stmt::Group(Group::Tensor(tensor)) => f(tensor),
        Stmt::For { body, .. } => change(body, f),
        _ => {}
    });
}

fn change_all(p: &mut Program, f: impl Fn(&mut Tensor)) {
    roles(p).into_iter().for_each(|list| change(list, &f));
}

/// The rule that a changed program breaks.
fn broken(change: impl FnOnce(&mut Program)) -> Rule {
    let mut p = small().program();
    change(&mut p);
    verify(&p).expect_err("the verifier finds it").rule
}

#[test]
fn the_verifier_knows_columns_shapes_and_arrivals() {
    let operand = |rule: Rule| matches!(rule, Rule::Operand(_));
    let declaration = |rule: Rule| matches!(rule, Rule::Declaration(_));
    let transfer = |rule: Rule| matches!(rule, Rule::Transfer(_));
    // Columns of tensor memory, and of an accumulator.
    for cols in [0, 8, 24, 272, u32::MAX] {
        assert!(declaration(broken(|p| p.group.accumulators[0].cols = cols)), "{cols}");
    }
    assert!(declaration(broken(|p| p.group.accumulators = vec![AccumulatorDecl { cols: 176 }; 3])));
    assert!(declaration(broken(|p| p.group.accumulators.clear())));
    assert!(operand(broken(|p| p.group.accumulators[0].cols = 128)));
    assert!(operand(broken(|p| p.group.tiles[1].blocks = 2)));
    assert!(operand(broken(|p| p.group.maps[0].rows = 64)));
    let rows = |wanted: u32| {
        move |tensor: &mut Tensor| {
            if let Tensor::Mma { row, .. } | Tensor::Load { row, .. } = tensor {
                *row = wanted;
            }
        }
    };
    assert_eq!(broken(|p| change(roles(p)[1], &rows(8))), Rule::Outside(136, 128));
    assert!(operand(broken(|p| change(roles(p)[1], &rows(4)))));
    assert_eq!(broken(|p| change(roles(p)[2], &rows(32))), Rule::Outside(48, 32));
    assert!(operand(broken(|p| change(roles(p)[2], &rows(8)))));
    let first = |col: u32| {
        move |tensor: &mut Tensor| {
            if let Tensor::Load { col: index, .. } = tensor {
                index.constant = col;
            }
        }
    };
    assert_eq!(broken(|p| change_all(p, first(16))), Rule::Outside(80, 64));
    assert!(matches!(broken(|p| change_all(p, first(8))), Rule::Position(_)));
    let by_tile = |tensor: &mut Tensor| {
        if let Tensor::Load { col, .. } = tensor {
            *col = Index::default().plus(Coord::GroupCol, 32);
        }
    };
    assert!(matches!(broken(|p| change_all(p, by_tile)), Rule::Position(_)));
    let unknown = |tensor: &mut Tensor| {
        if let Tensor::Mma { sum, .. } = tensor {
            *sum = Accumulator(1);
        }
    };
    assert!(matches!(broken(|p| change_all(p, unknown)), Rule::Unknown(_)));
    let open = |tensor: &mut Tensor| {
        if let Tensor::Load { depth, .. } = tensor {
            *depth = Size::Uniform(99);
        }
    };
    assert!(matches!(broken(|p| change_all(p, open)), Rule::Unknown(_)));
    let other = |tensor: &mut Tensor| {
        if let Tensor::Commit(b, c) = tensor {
            (*b, *c) = (Barrier(7), Counter(1));
        }
    };
    assert!(matches!(broken(|p| change_all(p, other)), Rule::Unknown(_)));
    assert!(matches!(broken(|p| p.fragments[0].cols = 64), Rule::Outside(96, 64)));
    assert!(transfer(broken(|p| p.group.barriers[1].arrivals = 8)));
    assert!(matches!(broken(|p| p.group.barriers[0].stages = 2), Rule::Pipeline(_)));
    assert!(matches!(broken(|p| p.group.tiles[0].stages = 2), Rule::Pipeline(_)));
    // What consumers and producers of sm_90a do, and roles that do what others do.
    for g in [Group::Fence, Group::Commit, Group::WaitMma(0), Group::Tensor(Tensor::Fence)] {
        assert!(transfer(broken(|p| roles(p)[0].push(Stmt::Group(g)))));
    }
    assert!(transfer(broken(|p| roles(p)[1].push(Stmt::Group(Group::WaitMma(0))))));
    assert!(transfer(broken(|p| roles(p)[2].push(Stmt::Group(Group::WaitMma(0))))));
    assert!(transfer(broken(|p| {
        let [_, multiplier, consumers] = roles(p);
        multiplier.push(consumers.pop().unwrap());
    })));
    assert!(transfer(broken(|p| roles(p)[1].clear())));
    for warps in [(8, 1), (4, 0), (4, 8), (2, 2)] {
        assert!(matches!(broken(|p| p.warps = warps), Rule::Declaration(_) | Rule::Warps(_)), "{warps:?}");
    }
    assert!(declaration(broken(|p| p.group.registers = Some(Registers::OF_TWO))));
    assert!(declaration(broken(|p| p.arch = Arch::Sm90a)));
    let large = |p: &mut Program| p.group.tiles.push(GroupTileDecl { blocks: 4, rows: 256, stages: 8 });
    assert!(matches!(broken(large), Rule::SharedMemory(..)));
    assert!(matches!(
        broken(|p| {
            let [producer, _, consumers] = roles(p);
            for (list, turn) in [(producer, 7), (consumers, 8)] {
                let body = std::mem::take(list);
                *list = vec![Stmt::Tiles { turn: Counter(turn), teams: 1, body }];
            }
        }),
        Rule::Pipeline(_)
    ));
}

/// What the interpreter says of a program that was changed.
fn found(change: impl FnOnce(&mut Program)) -> String {
    let case = small();
    let mut p = case.program();
    case.interpret(&p).expect("right before the change");
    change(&mut p);
    case.interpret(&p).expect_err("the interpreter finds it").to_string()
}

/// Each statement of each role is taken out.
#[test]
fn missing_statements_are_found() {
    let is = |g: &Group, name: &str| g.to_string().starts_with(name);
    let missing = |role: usize, in_loop: usize, name: &str| {
        found(|p| {
            let list = &mut roles(p)[role];
            let bodies = list
                .iter_mut()
                .filter_map(|s| if let Stmt::For { body, .. } = s { Some(body) } else { None });
            let body = bodies.into_iter().nth(in_loop).expect("a loop");
            without(body, |g| is(g, name));
        })
    };
    for (role, in_loop, name, what) in [
        (0, 0, "wait.empty", "fewer arrivals"),
        (1, 0, "wait.full", "under way"),
        (1, 0, "fence.tensor", "no fence.tensor behind a wait"),
        (1, 0, "mma.tensor", "before anything is multiplied"),
        (1, 0, "commit.tensor", "a deadlock"),
        (1, 1, "commit.tensor", "a deadlock"),
        (2, 0, "wait.full", "d0 is loaded"),
        (2, 0, "fence.tensor", "no fence.tensor behind a wait"),
    ] {
        let e = missing(role, in_loop, name);
        assert!(e.contains(what), "{role} {name}: {e}");
    }
    // Without its load a fragment is stored that nothing set; an earlier one would be stored twice.
    let load =
        found(|p| roles(p)[2].retain(|s| !matches!(s, Stmt::Group(Group::Tensor(Tensor::Load { .. })))));
    assert!(load.contains("before it is set"), "{load}");
}

/// Arrivals that do not say what was waited for.
#[test]
fn commits_that_come_too_early_are_found() {
    // A stage is given back before it is multiplied.
    let stage = found(|p| {
        let body = steps(roles(p)[1]);
        let commit = body.pop().unwrap();
        body.insert(2, commit);
    });
    assert!(stage.contains("may still read"), "{stage}");
    // All steps are said to be complete before the first.
    let all = found(|p| roles(p)[1].swap(0, 1));
    assert!(all.contains("not known that its multiplications are done"), "{all}");
    // Consumers wait for the first step alone.
    let first = found(|p| {
        let list = &mut roles(p)[2];
        let Some(Stmt::For { body, .. }) = list.first_mut() else { panic!("a loop") };
        body[0] = Stmt::Group(Group::WaitFull(Barrier(0), Counter(3)));
    });
    assert!(first.contains("not known"), "{first}");
    // Never.
    let never = found(|p| {
        let Some(Stmt::For { body, .. }) = roles(p)[1].last_mut() else { panic!("a loop") };
        body[0] = Stmt::Group(Group::Tensor(Tensor::Commit(Barrier(2), Counter(2))));
        let Some(Stmt::For { extent, .. }) = roles(p)[1].last_mut() else { panic!("a loop") };
        *extent = Size::Const(0);
    });
    assert!(never.contains("deadlock"), "{never}");
}

/// Tensor memory is freed when the roles are done, whatever is still multiplied.
#[test]
fn multiplications_that_nobody_waited_for_are_found() {
    let e = found(|p| {
        roles(p)[2].clear();
    });
    assert!(e.contains("freed"), "{e}");
}

/// Without a step there is nothing in tensor memory, and results are 0.
#[test]
fn a_depth_of_0_gives_0() {
    let mut case = small();
    case.sizes.k = 0;
    let (pools, _) = case.interpret(&case.program()).unwrap();
    case.check(&pools.0[2]);
    // What is loaded all the same is found.
    let mut p = case.program();
    change_all(&mut p, |tensor| {
        if let Tensor::Load { depth, .. } = tensor {
            *depth = Size::Const(1);
        }
    });
    let e = case.interpret(&p).unwrap_err().to_string();
    assert!(e.contains("before anything is multiplied"), "{e}");
}

#[test]
fn what_tensor_copies_cannot_take_is_unsupported() {
    let tiling = tensors::smallest();
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
        assert_eq!(matmul_tensors(&what, &tiling).unwrap_err().kind(), ErrorKind::Unsupported);
    }
    let by = |tile, warps, transposed| {
        let right = Operand { transposed, ..plain().right };
        matmul_tensors(&Matmul { right, ..plain() }, &Tiling { tile, warps: (warps, 1), ..tiling }).is_ok()
    };
    for tile in [(64, 64, 64), (128, 24, 64), (128, 512, 64), (128, 64, 32), (192, 64, 64), (384, 64, 64)] {
        assert!(!by(tile, 4, false) && !by(tile, 4, true), "{tile:?}");
    }
    assert!(by((256, 64, 64), 4, false) && by((128, 80, 64), 4, true) && !by((128, 80, 64), 8, true));
    assert!(!by((128, 64, 64), 6, false) && !by((128, 64, 64), 0, false));
    assert!(matmul_tensors(&plain(), &Tiling { stages: 1, ..tiling }).is_err());
    assert!(matmul_tensors(&plain(), &Tiling { teams: 1, ..tiling }).is_err());
    // The tiling says which level it is.
    assert_eq!(matmul(Arch::Sm100a, &plain(), &tiling).unwrap().arch, Arch::Sm100a);
}

/// So many bytes under way hide the latency of memory; a B200 has about twice an H100's bandwidth for each multiprocessor.
#[test]
fn enough_bytes_are_in_flight() {
    for tiling in tensor_tilings() {
        let p = matmul_tensors(&Matmul::new(DType::BF16), &tiling).unwrap();
        assert!(p.bytes_in_flight() >= 58 << 10, "{}: {}", p.name, p.bytes_in_flight());
        assert!(p.tensor_columns() >= 64 && p.tensor_columns() <= 512, "{}", p.tensor_columns());
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
    match g.int(0..=7) {
        0 => p.group.tiles[g.size(0..=1)].rows = number(g),
        1 => p.group.accumulators[0].cols = number(g),
        2 => p.group.barriers[g.size(0..=2)].arrivals = number(g),
        3 => p.warps = (number(g), number(g)),
        _ => {
            let role = g.size(0..=2);
            let list = &mut roles(p)[role];
            let list: &mut Vec<Stmt> = if role == 2 && g.chance(0.5) { list } else { steps(list) };
            let (at, other) = (g.size(0..=list.len() - 1), g.size(0..=list.len() - 1));
            match g.int(0..=3) {
                0 => drop(list.remove(at)),
                1 => list.push(list[at].clone()),
                2 => list.swap(at, other),
                _ => {
                    let (n, barrier) = (number(g), Barrier(g.int(0..=3) as u32));
                    let counter = Counter(g.int(0..=4) as u32);
                    change(std::slice::from_mut(&mut list[at]), &|tensor| match tensor {
                        Tensor::Mma { row, .. } => *row = n,
                        Tensor::Load { row, col, .. } => (*row, col.constant) = (n % 32, n),
                        Tensor::Commit(b, c) => (*b, *c) = (barrier, counter),
                        Tensor::Fence => {}
                    });
                }
            }
        }
    }
}
