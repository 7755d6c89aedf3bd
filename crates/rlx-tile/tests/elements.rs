//! Statements on single elements of sums and on rows: what the verifier and the interpreter find, and which architectures have them.

mod common;

use common::attention::{ARCHS, AttentionCase};
use rlx_ir::DType;
use rlx_ir::ops::MaskKind;
use rlx_ir::testing::{AttentionShape, Gen};
use rlx_tile::atom::Atom;
use rlx_tile::ir::{Below, Counter, Fragment, Index, Role, Size, Stmt};
use rlx_tile::schedule::{Attention, attention, attention_tilings};
use rlx_tile::verify::{Rule, verify};
use rlx_tile::{Arch, Program, Scalar};

const SHAPE: AttentionShape =
    AttentionShape { batch: 1, kv_heads: 1, groups: 2, queries: 20, keys: 70, head_dim: 16, value_dim: 24 };

fn case(kind: MaskKind) -> AttentionCase {
    let tiling = *attention_tilings(Arch::Sm80, 24).last().unwrap();
    AttentionCase::of(&mut Gen::new(11), Arch::Sm80, (DType::F16, tiling), SHAPE, kind)
}

/// The statements of the loop over the keys.
fn step(p: &mut Program) -> &mut Vec<Stmt> {
    let found = p.body.iter_mut().find_map(|s| match s {
        Stmt::Pipelined { body, .. } => Some(body),
        _ => None,
    });
    found.expect("a loop over the keys")
}

/// The rule that a changed program breaks.
fn broken(change: impl FnOnce(&mut Program)) -> Rule {
    let mut p = case(MaskKind::Causal).program();
    change(&mut p);
    verify(&p).expect_err("the verifier finds it").rule
}

fn reduction(p: &mut Program) -> (&mut Fragment, &mut Fragment) {
    let found = step(p).iter_mut().find_map(|s| match s {
        Stmt::Reduce { to, from, .. } => Some((to, from)),
        _ => None,
    });
    found.expect("a reduction")
}

fn conversion(p: &mut Program) -> (&mut Fragment, &mut Fragment, &mut Index) {
    let Some(Stmt::For { body, .. }) = step(p).last_mut() else { panic!("no loop over the weights") };
    let Stmt::Convert { to, from, col } = &mut body[0] else { panic!("no conversion") };
    (to, from, col)
}

#[test]
fn the_verifier_names_the_rule() {
    const SUMS: Fragment = Fragment(0);
    const ROWS: Fragment = Fragment(4);
    assert!(matches!(broken(|p| p.body.push(Stmt::Fill(SUMS, 0.0))), Rule::Operand(_)));
    assert!(matches!(broken(|p| p.body.push(Stmt::Exp2(Fragment(1)))), Rule::Operand(_)));
    assert!(matches!(broken(|p| p.body.push(Stmt::Exp2(Fragment(99)))), Rule::Unknown(_)));
    assert!(matches!(broken(|p| *reduction(p).0 = SUMS), Rule::Operand(_)));
    assert!(matches!(broken(|p| *reduction(p).1 = ROWS), Rule::Operand(_)));
    assert!(matches!(broken(|p| *conversion(p).0 = SUMS), Rule::Operand(_)));
    assert!(matches!(broken(|p| *conversion(p).2 = Index::new(8)), Rule::Position(_)));
    let beyond = broken(|p| *conversion(p).2 = Index::new(1 << 10));
    assert!(matches!(beyond, Rule::Outside(1040, 64)), "{beyond:?}");
    // Rows have one column and as many rows as what they belong to.
    assert!(matches!(broken(|p| p.fragments[4].cols = 16), Rule::Declaration(_)));
    assert!(matches!(broken(|p| p.fragments[4].rows = 32), Rule::Operand(_)));
    // A body is given as many numbers of a row as it asks for, and none where there are no rows.
    let of = |p: &mut Program, with: Vec<Fragment>, rows| Stmt::Each {
        of: SUMS,
        with,
        row: Index::default(),
        col: Index::default(),
        map: Scalar::with_rows("body", &p.buffers, &p.uniforms, rows, |_, x, _, _| x),
    };
    let mut p = case(MaskKind::Causal).program();
    let each = of(&mut p, vec![ROWS], 1);
    p.body.push(each);
    assert_eq!(verify(&p), Ok(()));
    let few = broken(|p| {
        let each = of(p, vec![ROWS], 2);
        p.body.push(each);
    });
    assert!(matches!(few, Rule::Body(what) if what.contains("given 1 numbers of a row, not 2")));
    let stored = broken(|p| {
        let body = Scalar::with_rows("body", &p.buffers, &p.uniforms, 1, |_, x, _, _| x);
        let Some(Stmt::Store { map, .. }) = p.body.last_mut() else { panic!("no store") };
        *map = Some(body);
    });
    assert!(matches!(stored, Rule::Body(what) if what.contains("given 0 numbers beside an element, not 1")));
    // A loop of known size has no bound.
    let bounded = broken(|p| {
        p.body.push(Stmt::For {
            counter: Counter(7),
            extent: Size::Const(4),
            below: Some(Below { rows: 1, heads: 1, offset: Size::Const(0), window: None }),
            step: 1,
            body: Vec::new(),
        });
    });
    assert!(matches!(bounded, Rule::Position(_)));
}

/// The load of values.
fn load_of_values(p: &mut Program) -> (&mut bool, &mut bool) {
    let Some(Stmt::For { body, .. }) = step(p).last_mut() else { panic!("no loop over the weights") };
    let Stmt::Load { depth_rows, of_sums, .. } = &mut body[1] else { panic!("no load") };
    (depth_rows, of_sums)
}

/// Where sums have an order of the depth of their own, values are loaded in it; in another one they are multiplied by the weights of other keys.
#[test]
fn values_are_loaded_in_the_order_of_sums() {
    for arch in ARCHS {
        let tiling = *attention_tilings(arch, 24).last().unwrap();
        let case = AttentionCase::of(&mut Gen::new(12), arch, (DType::F16, tiling), SHAPE, MaskKind::None);
        let right = |p: &Program| case.wrong(&case.interpret(p).unwrap().0.0[3]).is_none();
        let mut p = case.program();
        let own = matches!(arch, Arch::Gfx90a | Arch::Gfx1100);
        assert_eq!((*load_of_values(&mut p).1, right(&p)), (own, true), "{}", arch.name());
        *load_of_values(&mut p).1 = !own;
        let broken = verify(&p).map_err(|v| v.rule);
        if own {
            assert!(broken.is_ok() && !right(&p), "{}", arch.name());
            // Chunks are in the order of the depth.
            *load_of_values(&mut p).0 = false;
            *load_of_values(&mut p).1 = true;
            assert!(matches!(verify(&p).unwrap_err().rule, Rule::Operand(_)));
        } else {
            assert!(matches!(broken, Err(Rule::Operand(_))), "{}", arch.name());
        }
    }
}

/// What is used before it is set is found by the interpreter.
#[test]
fn rows_are_set_before_they_are_used() {
    let case = case(MaskKind::None);
    for what in 0..3 {
        let mut p = case.program();
        let fills = p.body.iter().enumerate().filter(|(_, s)| matches!(s, Stmt::Fill(..)));
        let at = fills.map(|(i, _)| i).nth(what).unwrap();
        p.body.remove(at);
        let error = case.interpret(&p).unwrap_err();
        assert!(error.message().contains("is used before it is set"), "{error}");
    }
}

/// A step without one of its statements gives something else: the test against the oracle sees each of them.
#[test]
fn every_statement_of_a_step_counts() {
    let case = case(MaskKind::None);
    let statements = step(&mut case.program()).len();
    for at in 0..statements {
        let mut p = case.program();
        step(&mut p).remove(at);
        let seen = match case.interpret(&p) {
            Ok((pools, _)) => case.wrong(&pools.0[3]).is_some(),
            Err(_) => true,
        };
        assert!(seen, "the result is right without statement {at} of {statements}");
    }
}

/// Blocks of keys behind all queries of a block are not visited.
#[test]
fn causal_blocks_are_skipped() {
    let mut shape = SHAPE;
    (shape.queries, shape.keys) = (256, 256);
    let tiling = attention_tilings(Arch::Sm80, 24)[1];
    let steps = |kind| {
        let case = AttentionCase::of(&mut Gen::new(3), Arch::Sm80, (DType::F16, tiling), shape, kind);
        case.interpret(&case.program()).unwrap().1
    };
    let (all, causal) = (steps(MaskKind::None), steps(MaskKind::Causal));
    // Four blocks of queries by four blocks of keys, 16 and 10 of them.
    assert!(causal.shared * 10 < all.shared * 7, "{causal:?} of {all:?}");
}

/// A few queries of heads that share keys are rows of one tile, whatever the mask: keys are read once for all of them.
#[test]
fn heads_that_share_keys_share_a_tile() {
    for (arch, kind) in ARCHS.into_iter().flat_map(|a| [MaskKind::Causal, MaskKind::Custom].map(|k| (a, k))) {
        let of = |kv_heads, groups| {
            let shape = AttentionShape { kv_heads, groups, queries: 2, ..SHAPE };
            let tiling = *attention_tilings(arch, 24).last().unwrap();
            assert_eq!(tiling.queries, 16, "{}", arch.name());
            let mut case = AttentionCase::of(&mut Gen::new(21), arch, (DType::F16, tiling), shape, kind);
            case.what.vectors = [1; 4];
            let (pools, counters) = case.interpret(&case.program()).unwrap();
            case.check(&pools.0[3]);
            counters
        };
        let (apart, together) = (of(8, 1), of(1, 8));
        assert_eq!((apart.groups, together.groups), (8, 1), "{}", arch.name());
        assert!(together.sectors * 2 < apart.sectors && together.shared * 4 < apart.shared, "{together:?}");
    }
}

/// Tilings of an architecture give the same bits.
#[test]
fn tilings_give_the_same_bits() {
    for arch in ARCHS {
        for (head, kind) in
            [(24, MaskKind::None), (24, MaskKind::Causal), (80, MaskKind::Custom), (144, MaskKind::Causal)]
        {
            let shape = AttentionShape { queries: 70, head_dim: head, value_dim: head, ..SHAPE };
            let all = attention_tilings(arch, head as u32);
            let results = all.iter().map(|&tiling| {
                let case = AttentionCase::of(&mut Gen::new(9), arch, (DType::F16, tiling), shape, kind);
                case.interpret(&case.program()).unwrap().0.0.swap_remove(3)
            });
            let results: Vec<Vec<u8>> = results.collect();
            assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{} {head} {kind:?}", arch.name());
        }
    }
}

/// On which architectures lanes make a left operand of sums, and of which.
#[test]
fn left_operands_of_sums() {
    let places = |arch| {
        let held = Atom::of_rows(arch, DType::F16).and_then(Atom::left_of_sums)?;
        Some(held.iter().map(|held| (held.beside, held.element, held.half)).collect::<Vec<_>>())
    };
    for arch in Arch::ALL {
        assert_eq!(places(arch).is_some(), ARCHS.contains(&arch), "{}", arch.name());
    }
    // PTX ISA: registers of A are (row, column), (row + 8, column), (row, column + 8), (row + 8, column + 8). Two sums of an MFMA instruction beside each
    // other are the operands of two.
    let beside = |n: u32| (0..8).map(|i| (i / n, i % n, None)).collect::<Vec<_>>();
    assert_eq!([Arch::Sm80, Arch::Gfx90a, Arch::Gfx1200].map(places), [4, 4, 8].map(|n| Some(beside(n))));
    // On gfx11 each half of the warp has every second column of its rows.
    let halves = (0..16).map(|i| (0, i % 8, Some(i / 8))).collect::<Vec<_>>();
    assert_eq!(places(Arch::Gfx1100), Some(halves));
    let what = Attention::new(DType::F16, 64);
    assert_eq!(attention_tilings(Arch::Apple7, 64), []);
    let error = attention(Arch::Apple7, &what, &attention_tilings(Arch::Sm80, 64)[0]).unwrap_err();
    assert!(error.message().contains("as it makes them"), "{error}");
    // Apple's programs have no rows, whose layout nobody knows.
    let mut p = case(MaskKind::None).program();
    p.fragments[0].role = Role::Rows;
    p.fragments[0].cols = 1;
    p.arch = Arch::Apple7;
    assert!(verify(&p).is_err());
}

/// A head, a tiling or a type that does not fit is an error that says so.
#[test]
fn what_does_not_fit_is_said() {
    let error = |arch, what: &Attention| {
        let tiling = attention_tilings(arch, 64)[0];
        attention(arch, what, &tiling).unwrap_err().message().to_owned()
    };
    assert!(error(Arch::Sm80, &Attention::new(DType::F16, 300)).contains("1 to 256 elements"));
    assert!(error(Arch::Sm75, &Attention::new(DType::BF16, 64)).contains("no matrix instruction"));
    // 256 values by 32 rows a warp.
    assert!(error(Arch::Sm80, &Attention::new(DType::F16, 256)).contains("limit is"));
    let mut tiling = attention_tilings(Arch::Sm80, 64)[0];
    tiling.keys = 24;
    let odd = attention(Arch::Sm80, &Attention::new(DType::F16, 64), &tiling).unwrap_err();
    assert!(odd.message().contains("blocks of 16"), "{odd}");
}
