//! Attention of the group level: random shapes, masks and layouts on the interpreter, against the oracle of the operation and the programs of sm_80.

mod common;

use common::attention::AttentionCase;
use rlx_ir::ops::MaskKind;
use rlx_ir::testing::{AttentionShape, Gen};
use rlx_ir::{DType, text};
use rlx_kernel::schedule::StepDesc;
use rlx_tile::group::{Group, Staggered};
use rlx_tile::ir::{Fragment, Size, Stmt};
use rlx_tile::schedule::{attention_group_tilings, attention_tilings, step, step_tilings};
use rlx_tile::verify::{Rule, verify};
use rlx_tile::{Arch, Program};

/// With `RLX_TEST_ALL` four times as many.
const CASES: u64 = 150;

#[test]
fn random_attentions_are_right_and_as_on_sm_80() {
    let all = std::env::var_os("RLX_TEST_ALL").is_some();
    for seed in 0..if all { 4 * CASES } else { CASES } {
        let case = AttentionCase::random_of_groups(&mut Gen::new(seed));
        let program = case.program();
        let (pools, counters) = case
            .interpret(&program)
            .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}\n{program}", case.describe()));
        assert_eq!(
            (counters.conflicts, counters.ways),
            (0, 1),
            "seed {seed}: bank conflicts\n{}",
            case.describe()
        );
        case.check(&pools.0[3]);
        let (of_warps, _) = case.interpret(&case.of_warps()).unwrap();
        assert!(of_warps.0[3] == pools.0[3], "seed {seed}: other bits than sm_80\n{}", case.describe());
    }
}

/// All tilings of both levels.
#[test]
fn all_tilings_give_the_same_bits() {
    for (seed, head_dim, mask) in
        [(0, 64, MaskKind::Causal), (1, 128, MaskKind::None), (2, 256, MaskKind::Custom)]
    {
        let (queries, keys, value_dim) = (200, 150, head_dim);
        let shape = AttentionShape { batch: 1, kv_heads: 1, groups: 1, queries, keys, head_dim, value_dim };
        let mut all = attention_group_tilings(head_dim as u32);
        all.extend(attention_tilings(Arch::Sm80, head_dim as u32));
        let results: Vec<Vec<u8>> = (all.iter())
            .map(|&tiling| {
                let arch = if tiling.groups { Arch::Sm90a } else { Arch::Sm80 };
                let mut g = Gen::new(seed);
                let case =
                    AttentionCase::of(&mut g, arch, (DType::BF16, tiling), shape, mask).in_chunks(&mut g);
                let result = case.interpret(&case.program()).unwrap().0.0.swap_remove(3);
                case.check(&result);
                result
            })
            .collect();
        assert!(all.len() >= 3 && results.windows(2).all(|two| two[0] == two[1]), "heads of {head_dim}");
    }
}

/// How many tilings of the group level a step has, and whether the first of its tilings is one.
fn of_groups(q: &str, k: &str, heads: usize, size: usize, rest: &str) -> (usize, bool) {
    let text = format!(
        "graph \"a\" {{ %0 = Input {{name=\"q\"}} : {q} %1 = Input {{name=\"k\"}} : {k} %2 = Input {{name=\"v\"}} : {k} \
         %3 = Attention(%0, %1, %2) {{num_heads={heads}, head_dim={size}, {rest}, scale=none, unseen=Zero}} : {q} return %3 }}"
    );
    let graph = text::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let desc = StepDesc::of_node(&graph.nodes()[3], &graph).unwrap();
    let all = step_tilings(Arch::Sm90a, &desc, None).unwrap();
    for tiling in &all {
        let launch = step(Arch::Sm90a, &desc, Some(tiling)).unwrap();
        let arch = if tiling.groups { Arch::Sm90a } else { Arch::Sm80 };
        assert_eq!((launch.program.arch, launch.tiling), (arch, *tiling));
    }
    (all.iter().filter(|t| t.groups).count(), all[0].groups)
}

/// Which program does a step where nothing was tuned is a matter of its heads, its mask and its rows.
#[test]
fn what_the_group_level_does_not_do_is_a_program_of_sm_80() {
    const ALL: &str = "mask=None, window=none";
    const CAUSAL: &str = "mask=Causal, window=none";
    for (q, k, heads, size, rest, want) in [
        ("[1, 2, 128, 64] f16", "[1, 2, 70, 64] f16", 2, 64, ALL, (3, true)),
        ("[2, 65, 128] bf16", "[2, 70, 128] bf16", 2, 64, CAUSAL, (3, true)),
        ("[1, 1, 128, 128] f16", "[1, 1, 70, 128] f16", 1, 128, CAUSAL, (2, true)),
        ("[1, 2, seq, 64] f16", "[1, 2, seq, 64] f16", 2, 64, CAUSAL, (3, true)),
        // A tile of sm_80 has no more rows than these.
        ("[1, 2, 64, 64] f16", "[1, 2, 70, 64] f16", 2, 64, ALL, (3, false)),
        ("[1, 2, 1, 64] f16", "[1, 2, 70, 64] f16", 2, 64, ALL, (3, false)),
        ("[1, 2, 128, 80] f16", "[1, 2, 70, 80] f16", 2, 80, ALL, (0, false)),
        ("[1, 2, 128, 64] f16", "[1, 2, 128, 64] f16", 2, 64, "mask=Causal, window=40", (0, false)),
    ] {
        assert_eq!(of_groups(q, k, heads, size, rest), want, "{q} {k} {rest}");
    }
}

/// Heads of 128 on a tile of 64 rows, four blocks of keys through two stages.
fn small() -> AttentionCase {
    let (batch, kv_heads, groups) = (1, 1, 2);
    let (head_dim, value_dim) = (128, 64);
    let shape = AttentionShape { batch, kv_heads, groups, queries: 35, keys: 200, head_dim, value_dim };
    let tiling = *attention_group_tilings(128).last().unwrap();
    let mut g = Gen::new(5);
    AttentionCase::of(&mut g, Arch::Sm90a, (DType::F16, tiling), shape, MaskKind::None).in_chunks(&mut g)
}

fn roles(p: &mut Program) -> (&mut Vec<Stmt>, &mut Vec<Stmt>) {
    match &mut p.body[0] {
        Stmt::Roles { producer, consumers, .. } => (producer, consumers),
        other => panic!("{other:?}"),
    }
}

/// The loop of the consumers.
fn staggered(p: &mut Program) -> &mut Staggered {
    let found = roles(p).1.iter_mut().find_map(|s| if let Stmt::Staggered(s) = s { Some(s) } else { None });
    found.expect("a loop")
}

/// The loop of the producer over the keys.
fn copies(p: &mut Program) -> &mut Vec<Stmt> {
    match roles(p).0.last_mut() {
        Some(Stmt::For { body, .. }) => body,
        other => panic!("{other:?}"),
    }
}

/// Takes out the statement of this number of those that match.
fn without(stmts: &mut Vec<Stmt>, which: usize, such: impl Fn(&Stmt) -> bool) {
    let found = stmts.iter().enumerate().filter(|(_, s)| such(s)).map(|(at, _)| at).nth(which);
    stmts.remove(found.expect("there is one"));
}

fn is(such: impl Fn(&Group) -> bool) -> impl Fn(&Stmt) -> bool {
    move |s| matches!(s, Stmt::Group(g) if such(g))
}

fn broken(change: impl FnOnce(&mut Program)) -> Rule {
    let mut p = small().program();
    verify(&p).unwrap();
    change(&mut p);
    verify(&p).expect_err("the verifier finds it").rule
}

#[test]
fn the_verifier_knows_halves_operands_and_boxes() {
    let transfer = |rule: Rule| matches!(rule, Rule::Transfer(_));
    let (operand, unknown) =
        (|rule: Rule| matches!(rule, Rule::Operand(_)), |rule: Rule| matches!(rule, Rule::Unknown(_)));
    let arrives = || is(|g| matches!(g, Group::Arrive(..)));
    assert!(transfer(broken(|p| without(&mut staggered(p).body, 0, arrives()))));
    assert!(transfer(broken(|p| without(&mut staggered(p).first, 0, arrives()))));
    assert!(transfer(broken(|p| without(&mut staggered(p).last, 0, arrives()))));
    assert!(transfer(broken(|p| without(copies(p), 1, is(|g| matches!(g, Group::Copy { .. }))))));
    assert!(transfer(broken(|p| {
        copies(p).iter_mut().for_each(|s| {
            if let Stmt::Group(Group::Expect(_, _, bytes)) = s {
                *bytes -= 16;
            }
        });
    })));
    assert!(transfer(broken(|p| copies(p).push(Stmt::Exp2(Fragment(0))))));
    // Such a loop is one of a role.
    let mut p = small().program();
    p.body = vec![Stmt::Staggered(Box::new(staggered(&mut p).clone()))];
    p.group = Default::default();
    assert!(transfer(verify(&p).unwrap_err().rule));
    // Values are behind scores: their counter is not that of the first half.
    assert!(unknown(broken(|p| {
        let values = staggered(p).last.clone();
        staggered(p).first.extend(values);
    })));
    assert!(matches!(
        broken(|p| staggered(p).extent = Size::Const(64)),
        Rule::Position(_) | Rule::Transfer(_)
    ));
    assert!(operand(broken(|p| p.fragments[1].cols = 32)));
    assert!(operand(broken(|p| p.fragments[5].cols = 128)));
    let not_left = |p: &mut Program| {
        staggered(p).last.iter_mut().for_each(|s| {
            if let Stmt::Group(Group::MmaLeft { left, .. }) = s {
                *left = Fragment(0);
            }
        });
    };
    assert!(operand(broken(not_left)));
    // A box has all heads of a query.
    assert!(matches!(broken(|p| p.group.maps[0].rows = 65), Rule::Declaration(_)));
    assert!(matches!(broken(|p| p.views[0].heads.as_mut().unwrap().count = 3), Rule::Declaration(_)));
    assert!(matches!(broken(|p| p.grid.batch.push(Size::Const(1))), Rule::Declaration(_)));
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
    let fence = || is(|g| matches!(g, Group::Fence));
    let wait = |n| is(move |g| *g == Group::WaitMma(n));
    let full = || is(|g| matches!(g, Group::WaitFull(..)));
    for (name, says) in [
        (found(|p| without(&mut staggered(p).first, 0, fence())), "no fence"),
        (found(|p| without(&mut staggered(p).body, 0, fence())), "no fence"),
        (found(|p| without(&mut staggered(p).last, 0, fence())), "no fence"),
        (found(|p| without(&mut staggered(p).first, 0, wait(0))), "under way"),
        (found(|p| without(&mut staggered(p).body, 0, wait(1))), "under way"),
        (found(|p| without(&mut staggered(p).body, 0, wait(0))), "under way"),
        (found(|p| without(&mut staggered(p).last, 0, wait(0))), "under way"),
        (found(|p| without(&mut staggered(p).body, 0, full())), "under way"),
        (found(|p| without(&mut staggered(p).last, 0, full())), "under way"),
        (found(|p| without(copies(p), 0, is(|g| matches!(g, Group::WaitEmpty(..))))), "fewer arrivals"),
    ] {
        assert!(name.contains(says), "{says}: {name}");
    }
    // Weights become the operand of a multiplication that still reads those before.
    let early = found(|p| {
        let body = &mut staggered(p).body;
        let convert = body.pop().unwrap();
        let at = body.iter().position(wait(0)).unwrap();
        body.insert(at, convert);
    });
    assert!(early.contains("f1 is used while"), "{early}");
    // Values are given back before they are multiplied.
    let back = found(|p| {
        let body = &mut staggered(p).body;
        let at = body.iter().rposition(is(|g| matches!(g, Group::Arrive(..)))).unwrap();
        body.swap(at, at - 1);
    });
    assert!(back.contains("may still read"), "{back}");
    let queries = found(|p| roles(p).1.retain(|s| !matches!(s, Stmt::For { .. })));
    assert!(queries.contains("is multiplied"), "{queries}");
}

/// A program without one of its statements is rejected, or runs to a result or an error.
#[test]
fn damaged_programs_do_not_panic() {
    let (case, mut rejected, mut wrong) = (small(), 0, 0);
    for seed in 0..300 {
        let (g, mut p) = (&mut Gen::new(seed), case.program());
        match g.int(0..=5) {
            0 => {
                let tile = g.size(0..=4);
                p.group.tiles[tile].rows = g.pick(&[0, 8, 32, 64, 128]);
            }
            1 => p.group.barriers[g.size(0..=4)].stages = g.pick(&[0, 1, 2, 3]),
            2 => p.fragments[g.size(0..=5)].cols = g.pick(&[1, 16, 32, 64, 128]),
            3 => p.group.maps[g.size(0..=2)].rows = g.pick(&[8, 32, 64, 128]),
            4 => {
                let at = g.size(0..=copies(&mut p).len() - 1);
                copies(&mut p).remove(at);
            }
            _ => {
                let list = g.int(0..=2);
                let Staggered { first, body, last, .. } = staggered(&mut p);
                let list = [first, body, last].into_iter().nth(list as usize).unwrap();
                list.remove(g.size(0..=list.len() - 1));
            }
        }
        match verify(&p) {
            Err(_) => rejected += 1,
            Ok(()) => {
                wrong += usize::from(case.interpret(&p).is_err());
                rlx_tile::render::source(&p, "k").unwrap();
                let _ = p.hash();
            }
        }
    }
    assert!(rejected > 60 && wrong > 20, "{rejected} rejected, {wrong} wrong");
}
