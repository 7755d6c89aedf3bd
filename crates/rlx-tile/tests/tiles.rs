//! Several tiles in a workgroup: results are those of programs of one tile, whatever the grid, and damage is found.

mod common;

use common::Case;
use common::groups::{self, steps, without};
use rlx_ir::DType;
use rlx_ir::testing::Gen;
use rlx_tile::group::{Barrier, Group};
use rlx_tile::interp::workgroups;
use rlx_tile::ir::{Counter, Program, Size, Stmt};
use rlx_tile::schedule::{Matmul, Tiling, matmul_groups, turn_tilings};
use rlx_tile::verify::{Rule, verify};

/// With `RLX_TEST_ALL` four times as many.
const CASES: u64 = 130;

#[test]
fn random_matmuls_have_the_bits_of_one_tile_for_each_workgroup() {
    let (mut turns, mut several) = (0, 0);
    let all = std::env::var_os("RLX_TEST_ALL").is_some();
    let cases = if all { 4 * CASES } else { CASES };
    for seed in 0..cases {
        let g = &mut Gen::new(9000 + seed);
        let case = groups::random_turns(g);
        let (program, uniforms) = (case.program(), case.uniforms());
        let plain = Case { tiling: Tiling { teams: 0, ..case.tiling }, ..groups::copy(&case) };
        let tiles = workgroups(&program, &uniforms);
        let grid = g.int(1..=tiles.min(3) as i64) as u64;
        let (pools, counters) = case
            .interpret_in(&program, grid)
            .unwrap_or_else(|e| panic!("seed {seed}, {grid}: {e}\n{}", case.describe()));
        assert_eq!((counters.conflicts, counters.ways, counters.groups), (0, 1, grid), "seed {seed}");
        let other = if plain.tiling.warps.0 * 16 <= plain.tiling.tile.0 {
            plain.program()
        } else {
            groups::of_warps(&case)
        };
        let want = plain.interpret(&other).unwrap().0;
        assert!(want.0[2] == pools.0[2], "seed {seed}: other bits in {grid}\n{}", case.describe());
        case.check(&pools.0[2]);
        turns += tiles.div_ceil(grid);
        several += u64::from(tiles.div_ceil(grid) > 2);
    }
    assert!(turns > 2 * cases && several > cases / 5, "{turns} turns, {several} of more than two");
}

/// Two rows and three columns of tiles with edges, five steps through three stages.
fn small(teams: u32) -> Case {
    groups::small_turns(DType::F16, teams)
}

#[test]
fn workgroups_of_any_number_do_all_tiles() {
    for teams in [1, 2] {
        let case = small(teams);
        let program = case.program();
        let want = case.interpret(&groups::of_warps(&case)).unwrap().0;
        for grid in 1..=7 {
            let (pools, counters) = case.interpret_in(&program, grid).unwrap();
            assert!(pools.0[2] == want.0[2], "{grid}");
            assert_eq!(counters.groups, grid.min(6));
        }
        assert!(case.interpret_in(&program, 0).is_err());
        // Where each has one tile, there is one for each.
        let plain = Case { tiling: groups::smallest(), ..groups::copy(&case) };
        let e = plain.interpret_in(&plain.program(), 2).unwrap_err().to_string();
        assert!(e.contains("2 workgroups for 6 tiles"), "{e}");
    }
}

/// The lists of both roles for a tile.
fn lists(p: &mut Program) -> [&mut Vec<Stmt>; 2] {
    let Stmt::Roles { producer, consumers, .. } = &mut p.body[0] else { panic!("roles") };
    [producer, consumers].map(|list| match &mut list[..] {
        [Stmt::Tiles { body, .. }] => body,
        other => panic!("{other:?}"),
    })
}

fn consumers(p: &mut Program) -> &mut Vec<Stmt> {
    let [_, consumers] = lists(p);
    consumers
}

fn change(stmts: &mut [Stmt], f: impl Fn(&mut Group)) {
    let groups = stmts.iter_mut().filter_map(|s| if let Stmt::Group(g) = s { Some(g) } else { None });
    groups.for_each(f);
}

fn is_turn(g: &Group) -> bool {
    matches!(g, Group::Arrive(Barrier(2), ..))
}

/// The rule that a changed program breaks.
fn broken(teams: u32, change: &dyn Fn(&mut Program)) -> Rule {
    let mut p = small(teams).program();
    verify(&p).unwrap();
    change(&mut p);
    verify(&p).expect_err("the verifier finds it").rule
}

/// It is one of pipelines, and says so.
fn pipeline(teams: u32, change: &dyn Fn(&mut Program), said: &str) {
    match broken(teams, change) {
        Rule::Pipeline(rule) => assert!(rule.contains(said), "{rule}"),
        other => panic!("{other}, not {said}"),
    }
}

#[test]
fn the_verifier_knows_stages_that_go_on() {
    for teams in [1, 2] {
        pipeline(
            teams,
            &|p| without(consumers(p), |g| matches!(g, Group::ArriveLast(..))),
            "is not given back",
        );
        let twice =
            |p: &mut Program| consumers(p).push(Stmt::Group(Group::ArriveLast(Barrier(1), Counter(1))));
        pipeline(teams, &twice, "given back twice");
        let late = |g: &mut Group| {
            if let Group::Arrive(_, _, behind) = g {
                *behind = 2;
            }
        };
        pipeline(teams, &|p| change(steps(consumers(p)), late), "too late");
        let once = |g: &mut Group| {
            if let Group::Arrive(_, _, behind) = g {
                *behind = 0;
            }
        };
        pipeline(teams, &|p| change(steps(consumers(p)), once), "by no loop");
        let other = |p: &mut Program| {
            if let Some(Stmt::For { extent, .. }) = lists(p)[0].first_mut() {
                *extent = Size::Uniform(0);
            }
        };
        pipeline(teams, &other, "other lengths");
        let outside = |p: &mut Program| {
            let [producer, _] = lists(p);
            let inner = steps(producer).remove(0);
            producer.insert(0, inner);
        };
        pipeline(teams, &outside, "belong to no step");
        let one_role = |p: &mut Program| {
            let inner = std::mem::take(lists(p)[0]);
            let Stmt::Roles { producer, .. } = &mut p.body[0] else { panic!("roles") };
            *producer = inner;
        };
        pipeline(teams, &one_role, "one role has several tiles");
        for count in [0, 3, u32::MAX] {
            let teams_of = |p: &mut Program| {
                let Stmt::Roles { consumers, .. } = &mut p.body[0] else { panic!("roles") };
                let Stmt::Tiles { teams, .. } = &mut consumers[0] else { panic!("tiles") };
                *teams = count;
            };
            broken(teams, &teams_of);
        }
    }
}

#[test]
fn the_verifier_knows_turns() {
    pipeline(2, &|p| without(consumers(p), is_turn), "waits for its turn once");
    pipeline(2, &|p| without(consumers(p), |g| matches!(g, Group::WaitTurn(..))), "waits for its turn once");
    let first = |p: &mut Program| {
        let list = consumers(p);
        let at = list.iter().position(|s| matches!(s, Stmt::Group(g) if is_turn(g))).unwrap();
        let end = list.remove(at);
        list.insert(0, end);
    };
    pipeline(2, &first, "waits for its turn once");
    let last = |p: &mut Program| {
        let list = consumers(p);
        let at = list.iter().position(|s| matches!(s, Stmt::Group(Group::WaitTurn(..)))).unwrap();
        let wait = list.remove(at);
        let at = list.iter().position(|s| matches!(s, Stmt::Group(g) if is_turn(g))).unwrap();
        list.insert(at, wait);
    };
    pipeline(2, &last, "a turn begins before the first step");
    pipeline(2, &|p| p.group.barriers[2].stages = 3, "a turn begins");
    let in_loop = |p: &mut Program| {
        let list = consumers(p);
        let at = list.iter().position(|s| matches!(s, Stmt::Group(Group::WaitTurn(..)))).unwrap();
        let wait = list.remove(at);
        steps(list).insert(0, wait);
    };
    pipeline(2, &in_loop, "a turn in a loop");
    // Barriers of steps count as many warps as a team has.
    assert!(matches!(broken(2, &|p| p.group.barriers[1].arrivals = 8), Rule::Transfer(_)));
    let stray = |p: &mut Program| {
        let [producer, _] = lists(p);
        producer.push(Stmt::Group(Group::ArriveLast(Barrier(1), Counter(0))));
    };
    assert!(matches!(broken(1, &stray), Rule::Transfer(_)));
    // Programs of one tile have no turns.
    let mut plain = groups::small(DType::F16).program();
    let Stmt::Roles { consumers, .. } = &mut plain.body[0] else { panic!("roles") };
    consumers.push(Stmt::Group(Group::ArriveLast(Barrier(1), Counter(1))));
    assert!(verify(&plain).is_err());
}

/// What the interpreter says of a program that was changed, whose tiles one workgroup does.
fn found(teams: u32, change: impl FnOnce(&mut Program)) -> String {
    let case = small(teams);
    let mut p = case.program();
    case.interpret_in(&p, 1).expect("right before the change");
    change(&mut p);
    case.interpret_in(&p, 1).expect_err("the interpreter finds it").to_string()
}

#[test]
fn missing_waits_are_found_from_tile_to_tile() {
    for teams in [1, 2] {
        // A stage is given back before the tile's last multiplications are done.
        let early = found(teams, |p| {
            let list = consumers(p);
            let at = list.iter().position(|s| matches!(s, Stmt::Group(Group::WaitMma(0)))).unwrap();
            list.swap(at, at + 1);
        });
        assert!(early.contains("may still read"), "{early}");
        let last = found(teams, |p| without(consumers(p), |g| matches!(g, Group::WaitMma(0))));
        assert!(last.contains("under way") || last.contains("may still read"), "{last}");
        let zero = found(teams, |p| consumers(p).retain(|s| !matches!(s, Stmt::Zero(_))));
        assert!(zero.contains("not set"), "{zero}");
        let full = found(teams, |p| without(steps(consumers(p)), |g| matches!(g, Group::WaitFull(..))));
        assert!(full.contains("before it is written") || full.contains("under way"), "{full}");
        let empty = found(teams, |p| without(steps(lists(p)[0]), |g| matches!(g, Group::WaitEmpty(..))));
        assert!(empty.contains("fewer arrivals"), "{empty}");
        let fence = found(teams, |p| without(steps(consumers(p)), |g| matches!(g, Group::Fence)));
        assert!(fence.contains("no fence"), "{fence}");
    }
}

#[test]
fn every_tiling_fits_and_has_enough_bytes_in_flight() {
    let mut names = std::collections::BTreeSet::new();
    for tiling in turn_tilings() {
        for transposed in [false, true] {
            let mut what = Matmul::new(DType::BF16);
            what.right.transposed = transposed;
            let p = matmul_groups(&what, &tiling).unwrap();
            assert!(p.bytes_in_flight() >= 29 << 10 && p.has_several_tiles(), "{}", p.name);
            assert_eq!(p.teams(), tiling.teams);
        }
        names.insert(tiling.name());
    }
    assert_eq!(names.len(), turn_tilings().len());
    let odd = Tiling { warps: (4, 1), ..turn_tilings()[0] };
    assert!(matmul_groups(&Matmul::new(DType::BF16), &odd).is_err());
    let three = Tiling { warps: (12, 1), teams: 3, ..turn_tilings()[0] };
    assert!(matmul_groups(&Matmul::new(DType::BF16), &three).is_err());
}

/// A program with damage in a random place is rejected, or runs to a result or an error.
#[test]
fn damaged_programs_do_not_panic() {
    let (mut rejected, mut ran) = (0, 0);
    for seed in 0..400 {
        let g = &mut Gen::new(seed);
        let case = small(g.int(1..=2) as u32);
        let mut p = case.program();
        let list = lists(&mut p).into_iter().nth(g.size(0..=1)).unwrap();
        let list = if g.chance(0.5) { steps(list) } else { list };
        let at = g.size(0..=list.len() - 1);
        match g.int(0..=3) {
            0 => drop(list.remove(at)),
            1 => {
                let other = g.size(0..=list.len() - 1);
                list.swap(at, other);
            }
            2 => list.insert(at, list[g.size(0..=list.len() - 1)].clone()),
            _ => change(&mut list[at..=at], |g| match g {
                Group::Arrive(_, _, behind) => *behind ^= 1,
                Group::WaitMma(n) => *n ^= 1,
                Group::WaitFull(_, c) | Group::WaitTurn(_, c) | Group::ArriveLast(_, c) => c.0 ^= 2,
                _ => {}
            }),
        }
        match verify(&p) {
            Err(_) => rejected += 1,
            Ok(()) => {
                ran += 1;
                let _ = case.interpret_in(&p, 2);
                rlx_tile::render::source(&p, "k").unwrap();
                let _ = p.hash();
            }
        }
    }
    assert!(rejected > 60 && ran > 60, "{rejected} rejected, {ran} ran");
}
