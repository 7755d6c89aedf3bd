//! Convolutions of random shapes on the interpreter, against sums in f64, and what the verifier and the interpreter find in programs of windows.

mod common;

use common::convs::ConvCase;
use rlx_ir::DType;
use rlx_ir::testing::Gen;
use rlx_tile::ir::{Heads, Program, Size};
use rlx_tile::schedule::{Tiling, tilings};
use rlx_tile::verify::{Rule, verify};
use rlx_tile::window::{Axis, Slide, Window};
use rlx_tile::{Arch, Scalar};

/// Random convolutions of each architecture, and as many in parts; with `RLX_TEST_ALL` five times as many.
const CASES: u64 = 100;

fn random_convolutions(arch: Arch) {
    let cases = if std::env::var_os("RLX_TEST_ALL").is_some() { 5 * CASES } else { CASES };
    for seed in 0..2 * cases {
        let case = ConvCase::random(&mut Gen::new(8000 + seed), arch);
        // As many are divided.
        let case = if seed < cases { case } else { case.in_parts() };
        let program = case.program();
        let (pools, counters) = case
            .interpret(&program)
            .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}\n{program}", case.describe()));
        assert_eq!(counters.conflicts, 0, "seed {seed}: bank conflicts\n{}", case.describe());
        case.check(&pools.0[2]);
    }
}

#[test]
fn random_convolutions_of_sm_75_are_right() {
    random_convolutions(Arch::Sm75);
}

#[test]
fn random_convolutions_of_sm_80_are_right() {
    random_convolutions(Arch::Sm80);
}

#[test]
fn random_convolutions_of_gfx90a_are_right() {
    random_convolutions(Arch::Gfx90a);
}

#[test]
fn random_convolutions_of_gfx1100_are_right() {
    random_convolutions(Arch::Gfx1100);
}

#[test]
fn random_convolutions_of_gfx1200_are_right() {
    random_convolutions(Arch::Gfx1200);
}

#[test]
fn random_convolutions_of_apple7_are_right() {
    random_convolutions(Arch::Apple7);
}

/// 3×3 with a border and a stride, in two groups of 16 channels.
fn small(arch: Arch) -> ConvCase {
    let slide = Slide { taps: 3, stride: 2, dilation: 1, before: 1 };
    let tiling = Tiling { stages: 3, ..*tilings(arch).last().unwrap() };
    let sizes = ([2, 2, 16, 24], vec![9, 7], vec![1; 2]);
    ConvCase::of(&mut Gen::new(3), (arch, DType::F16, tiling), vec![slide; 2], sizes, (8, DType::F16, true))
}

#[test]
fn tilings_give_the_same_bits() {
    for arch in Arch::ALL {
        let mut case = small(arch);
        let mut results = Vec::new();
        for tiling in tilings(arch) {
            case.tiling = tiling;
            results.push(case.interpret(&case.program()).unwrap().0.0.swap_remove(2));
        }
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{}", arch.name());
    }
}

/// A part may begin within a tap and end there, and all of the depth is in one.
#[test]
fn parts_of_a_window_are_its_columns_behind_those_before() {
    for arch in Arch::ALL {
        let whole = small(arch);
        let (depth, step) = (whole.sizes.k, whole.tiling.tile.2 as i32);
        assert!(step % 16 == 0 && depth == 144, "a tap has 16 channels");
        let case = whole.in_parts();
        let program = case.program();
        assert!(program.name.ends_with(".parts"), "{}", program.name);
        case.check(&case.interpret(&program).unwrap().0.0.swap_remove(2));
        // Without the parts before, or with another size of parts than the weights have, it is something else.
        for change in
            [|case: &mut ConvCase| case.sizes.part += 8, |case: &mut ConvCase| case.sizes.right.batch[0] += 8]
        {
            let mut wrong = small(arch).in_parts();
            change(&mut wrong);
            let result = wrong.interpret(&program).map(|(pools, _)| pools.0[2].clone());
            let right = case.interpret(&program).unwrap().0.0.swap_remove(2);
            assert!(result.ok() != Some(right), "{}", arch.name());
        }
        // What is read at once is within a part.
        let mut odd = small(arch).in_parts();
        odd.sizes.part -= 1;
        odd.sizes.right.batch[0] = 0;
        let why = odd.interpret(&program).expect_err("the interpreter finds it").to_string();
        assert!(why.contains("not aligned to 8"), "{why}");
    }
}

/// The rule that a changed program breaks.
fn broken(change: impl FnOnce(&mut Program)) -> Rule {
    let mut p = small(Arch::Sm80).program();
    change(&mut p);
    verify(&p).expect_err("the verifier finds it").rule
}

#[test]
fn the_verifier_names_the_rule() {
    let window = |p: &mut Program| p.views[0].window.clone().expect("a window");
    let changed = |change: &dyn Fn(&mut Window)| {
        broken(|p| {
            let mut window = window(p);
            change(&mut window);
            p.views[0].window = Some(window);
        })
    };
    assert!(matches!(changed(&|w| w.axes.clear()), Rule::Declaration(_)));
    assert!(matches!(changed(&|w| w.axes.extend(w.axes.clone())), Rule::Declaration(_)));
    assert!(matches!(changed(&|w| w.axes[0].slide.taps = 0), Rule::Declaration(_)));
    assert!(matches!(changed(&|w| w.axes[1].slide.stride = 0), Rule::Declaration(_)));
    assert!(matches!(changed(&|w| w.axes[1].slide.before = 1 << 17), Rule::Declaration(_)));
    // Each is few enough, but not all together.
    let many = |w: &mut Window| w.axes.iter_mut().for_each(|axis| axis.slide.taps = 1 << 16);
    assert!(matches!(changed(&many), Rule::Declaration(_)));
    assert!(matches!(changed(&|w| w.channels = Size::Uniform(999)), Rule::Unknown(_)));
    assert!(matches!(changed(&|w| w.channels = Size::Const(0)), Rule::Declaration(_)));
    assert!(matches!(changed(&|w| w.axes[0].step = Size::Uniform(999)), Rule::Unknown(_)));
    let part = Size::Part { whole: 2, each: 0 };
    assert!(matches!(changed(&|w| w.axes[0].places = part), Rule::Declaration(_)));
    let heads = Some(Heads { count: 2, stride: Size::Const(1) });
    assert!(matches!(broken(|p| p.views[0].heads = heads), Rule::Declaration(_)));
    assert!(matches!(broken(|p| p.views[2].window = Some(window(p))), Rule::Access(_)));
    // What is beside an image would become something else than 0.
    let mapped = broken(|p| {
        let map = Scalar::new("identity", &p.buffers, &p.uniforms, |_, x, _| x);
        let rlx_tile::ir::Stmt::Pipelined { copies, .. } = &mut p.body[1] else { panic!() };
        copies[0].map = Some(map);
    });
    assert!(matches!(mapped, Rule::Transfer(_)));
    assert!(matches!(broken(|p| p.buffers[0].dtype = DType::BF16), Rule::Transfer(_)));
}

#[test]
fn what_does_not_fit_the_window_is_found() {
    let found = |change: fn(&mut ConvCase)| {
        let mut case = small(Arch::Sm80);
        let program = case.program();
        change(&mut case);
        case.interpret(&program).expect_err("the interpreter finds it").to_string()
    };
    assert!(found(|case| case.sizes.window[0] = 12).contains("12 channels of g0 are not aligned to 8"));
    assert!(found(|case| case.sizes.window[1] = 0).contains("divides by 0"));
    assert!(found(|case| case.sizes.window[3] += 1).contains("not aligned"));
    assert!(found(|case| case.values[0].truncate(64)).contains("of a buffer of 64"));
    // A larger image than there is.
    assert!(found(|case| case.sizes.window[2] += 40).contains("of a buffer of"));
}

/// Each number of a window is one that the result depends on.
#[test]
fn a_window_that_slides_otherwise_gives_something_else() {
    let case = small(Arch::Sm80);
    let right = case.interpret(&case.program()).unwrap().0.0.swap_remove(2);
    let change = |change: &dyn Fn(&mut Axis)| {
        let mut p = case.program();
        let window = p.views[0].window.as_mut().expect("a window");
        change(&mut window.axes[0]);
        case.interpret(&p).map(|(pools, _)| pools.0[2] == right)
    };
    assert_eq!(change(&|_| ()).ok(), Some(true));
    for wrong in [
        change(&|axis| axis.slide.taps = 2),
        change(&|axis| axis.slide.stride = 1),
        change(&|axis| axis.slide.dilation = 2),
        change(&|axis| axis.slide.before = 0),
    ] {
        assert_ne!(wrong.ok(), Some(true));
    }
}
