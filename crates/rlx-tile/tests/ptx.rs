//! What NVRTC makes of programs runs on an emulator of PTX (`rlx-ptx`), and makes of the same memory what the interpreter makes of it, to the bit: what a
//! program's text says and what the vendor's compiler understands are held together without a GPU.
//!
//! The PTX of some small programs is committed (`golden/*.ptx`; `RLX_BLESS=1` with `RLX_NVRTC` writes it again) and runs with every test command. Random
//! programs are compiled where `RLX_NVRTC` names the folder of NVRTC's package, as suite `nvrtc` does.

mod common;
#[path = "common/ptx.rs"]
mod emulated;

use std::path::PathBuf;

use common::Case;
use common::attention::AttentionCase;
use common::attention_parts::Divided;
use common::convs::ConvCase;
use common::grouped::GroupedCase;
use common::groups;
use common::prologue::PrologueCase;
use emulated::{committed, compare, compare_in, compiled, fault};
use rlx_ir::DType;
use rlx_ir::ops::MaskKind;
use rlx_ir::testing::{AttentionShape, Gen};
use rlx_tile::render::source;
use rlx_tile::schedule::{AttentionTiling, Matmul, Tiling, attention_group_tilings, tilings};
use rlx_tile::window::Slide;
use rlx_tile::{Arch, Program};

/// Random matmuls of each architecture.
const CASES: u64 = 40;

/// Runs PTX and compares all buffers with what the interpreter makes.
fn check(case: &Case, program: &Program, ptx: &str) {
    let after = case.interpret(program).unwrap().0;
    compare(program, ptx, &case.uniforms(), (case.memory().0, after), &case.describe());
}

/// The same of a convolution.
fn check_conv(case: &ConvCase, program: &Program, ptx: &str) {
    let after = case.interpret(program).unwrap().0;
    compare(program, ptx, &case.uniforms(), (case.memory().0, after), &case.describe());
}

/// The same of an attention in parts: what it leaves in scratch memory.
fn check_parts(case: &Divided<'_>, program: &Program, ptx: &str) {
    let after = case.sums(program).unwrap().0;
    compare(program, ptx, &case.uniforms(), (case.memory().0, after), &case.describe());
}

/// The same of an attention.
fn check_attention(case: &AttentionCase, program: &Program, ptx: &str) {
    let after = case.interpret(program).unwrap().0;
    compare(program, ptx, &case.uniforms(), (case.memory().0, after), &case.describe());
}

fn random_programs_run(arch: Arch) {
    let cases: Vec<(Case, Program)> = (0..CASES)
        .map(|seed| {
            let case = Case::random(&mut Gen::new(2000 + seed), arch);
            let case = if seed % 4 == 3 { case.in_parts() } else { case };
            let program = case.program();
            (case, program)
        })
        .collect();
    let texts: Vec<String> = cases.iter().map(|(_, p)| source(p, "kernel").unwrap()).collect();
    let Some(made) = compiled(arch, &texts) else { return };
    for ((case, program), ptx) in cases.iter().zip(made) {
        check(case, program, &ptx);
    }
}

fn random_convolutions_run(arch: Arch) {
    let cases: Vec<(ConvCase, Program)> = (0..CASES)
        .map(|seed| {
            let case = ConvCase::random(&mut Gen::new(2500 + seed), arch);
            let case = if seed % 4 == 3 { case.in_parts() } else { case };
            let program = case.program();
            (case, program)
        })
        .collect();
    let texts: Vec<String> = cases.iter().map(|(_, p)| source(p, "kernel").unwrap()).collect();
    let Some(made) = compiled(arch, &texts) else { return };
    for ((case, program), ptx) in cases.iter().zip(made) {
        check_conv(case, program, &ptx);
    }
}

/// Rows in groups, whose lists the kernel has made.
fn random_groups_run(arch: Arch) {
    let cases: Vec<_> = (0..CASES / 2)
        .map(|seed| {
            let mut g = Gen::new(2900 + seed);
            let case = GroupedCase::random(&mut g, arch);
            let tiling = g.pick(&case.tilings());
            let launch = case.launch(Some(&tiling));
            (case, launch)
        })
        .collect();
    let texts: Vec<String> = cases.iter().map(|(_, of)| source(&of.program, "kernel").unwrap()).collect();
    let Some(made) = compiled(arch, &texts) else { return };
    for ((case, launch), ptx) in cases.iter().zip(made) {
        let (mut before, mut after) = (case.memory(launch).unwrap().0, case.interpret(launch).unwrap().0);
        // The program does not see the choices, which are behind its buffers.
        [&mut before, &mut after]
            .into_iter()
            .for_each(|pools| pools.0.truncate(launch.program.buffers.len()));
        compare(&launch.program, &ptx, &case.uniforms(launch), (before, after), &case.describe());
    }
}

#[test]
fn nvrtc_of_rows_in_groups_means_what_is_interpreted() {
    random_groups_run(Arch::Sm75);
    random_groups_run(Arch::Sm80);
}

#[test]
fn nvrtc_of_convolutions_for_sm_75_means_what_is_interpreted() {
    random_convolutions_run(Arch::Sm75);
}

#[test]
fn nvrtc_of_convolutions_for_sm_80_means_what_is_interpreted() {
    random_convolutions_run(Arch::Sm80);
}

#[test]
fn nvrtc_of_convolutions_for_sm_90a_means_what_is_interpreted() {
    let cases: Vec<(ConvCase, Program)> = (0..CASES / 2)
        .map(|seed| {
            let case = ConvCase::random_of_groups(&mut Gen::new(2700 + seed));
            let program = case.program();
            (case, program)
        })
        .collect();
    let texts: Vec<String> = cases.iter().map(|(_, p)| source(p, "kernel").unwrap()).collect();
    let Some(made) = compiled(Arch::Sm90a, &texts) else { return };
    for ((case, program), ptx) in cases.iter().zip(made) {
        check_conv(case, program, &ptx);
    }
}

/// A window of 3×3 with a border and a stride over two images, whose places the copy engine finds.
#[test]
fn committed_ptx_of_a_convolution_by_groups_means_what_is_interpreted() {
    let slide = Slide { taps: 3, stride: 2, dilation: 1, before: 1 };
    let tiling = Tiling { stages: 3, ..groups::smallest() };
    let sizes = ([2, 1, 64, 24], vec![17, 15], vec![1; 2]);
    let of = (Arch::Sm90a, DType::BF16, tiling);
    let case = ConvCase::of(&mut Gen::new(3), of, vec![slide; 2], sizes, (8, DType::BF16, false));
    let program = case.program();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/conv_sm_90a_bf16.ptx");
    let ptx = committed(Arch::Sm90a, &program, &path);
    check_conv(&case, &program, &ptx);
    assert!(ptx.contains(".im2col."));
}

/// A window of 3×3 with a border and a stride, in two groups, by the smallest tiling.
#[test]
fn committed_ptx_of_a_convolution_means_what_is_interpreted() {
    let slide = Slide { taps: 3, stride: 2, dilation: 1, before: 1 };
    let tiling = *tilings(Arch::Sm80).last().unwrap();
    let sizes = ([2, 2, 16, 24], vec![9, 7], vec![1; 2]);
    let of = (Arch::Sm80, DType::F16, tiling);
    let case = ConvCase::of(&mut Gen::new(3), of, vec![slide; 2], sizes, (8, DType::F16, true));
    let program = case.program();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/conv_sm_80_f16.ptx");
    let ptx = committed(Arch::Sm80, &program, &path);
    check_conv(&case, &program, &ptx);
    // With signs, what is before an image is within it.
    let signed = ptx.replace("setp.lt.u32", "setp.lt.s32");
    let caught = std::panic::catch_unwind(|| check_conv(&case, &program, &signed));
    assert!(signed != ptx && caught.is_err(), "nothing is different with signs");
}

fn random_attentions_run(arch: Arch) {
    let cases: Vec<(AttentionCase, Program)> = (0..CASES)
        .map(|seed| {
            let g = &mut Gen::new(5000 + seed);
            let case = match seed % 4 {
                3 => AttentionCase::windowed(g, arch, |g| (g.size(1..=40), g.size(20..=90))),
                _ => AttentionCase::random(g, arch),
            };
            let case = if seed % 5 == 0 { case.in_pages(g) } else { case };
            let program = case.program();
            (case, program)
        })
        .collect();
    let texts: Vec<String> = cases.iter().map(|(_, p)| source(p, "kernel").unwrap()).collect();
    let Some(made) = compiled(arch, &texts) else { return };
    for ((case, program), ptx) in cases.iter().zip(made) {
        check_attention(case, program, &ptx);
    }
}

fn random_divided_attentions_run(arch: Arch) {
    let lengths = |g: &mut Gen| (g.size(1..=3), g.size(1..=150));
    let of = |seed| {
        let g = &mut Gen::new(5500 + seed);
        match seed % 4 {
            3 => AttentionCase::of_lengths(g, arch, lengths).in_pages(g),
            2 => AttentionCase::windowed(g, arch, lengths),
            _ => AttentionCase::of_lengths(g, arch, lengths),
        }
    };
    let cases: Vec<AttentionCase> = (0..CASES / 4).map(of).collect();
    let divided: Vec<(Divided<'_>, Program)> = (cases.iter())
        .map(|case| {
            let divided = Divided::new(case, case.tiling.keys as i32);
            let program = divided.program();
            (divided, program)
        })
        .collect();
    let texts: Vec<String> = divided.iter().map(|(_, p)| source(p, "kernel").unwrap()).collect();
    let Some(made) = compiled(arch, &texts) else { return };
    for ((case, program), ptx) in divided.iter().zip(made) {
        check_parts(case, program, &ptx);
    }
}

#[test]
fn nvrtc_of_divided_attention_for_sm_75_means_what_is_interpreted() {
    random_divided_attentions_run(Arch::Sm75);
}

#[test]
fn nvrtc_of_divided_attention_for_sm_80_means_what_is_interpreted() {
    random_divided_attentions_run(Arch::Sm80);
}

#[test]
fn nvrtc_of_attention_for_sm_75_means_what_is_interpreted() {
    random_attentions_run(Arch::Sm75);
}

#[test]
fn nvrtc_of_attention_for_sm_80_means_what_is_interpreted() {
    random_attentions_run(Arch::Sm80);
}

#[test]
fn nvrtc_of_attention_for_sm_90a_means_what_is_interpreted() {
    let cases: Vec<(AttentionCase, Program)> = (0..CASES)
        .map(|seed| {
            let case = AttentionCase::random_of_groups(&mut Gen::new(5800 + seed));
            let program = case.program();
            (case, program)
        })
        .collect();
    let texts: Vec<String> = cases.iter().map(|(_, p)| source(p, "kernel").unwrap()).collect();
    let Some(made) = compiled(Arch::Sm90a, &texts) else { return };
    for ((case, program), ptx) in cases.iter().zip(made) {
        check_attention(case, program, &ptx);
    }
}

/// A causal attention of two blocks of queries, of which the second has keys at its edge.
fn small_attention() -> (AttentionCase, Program, PathBuf) {
    let shape = AttentionShape {
        batch: 1,
        kv_heads: 1,
        groups: 2,
        queries: 20,
        keys: 40,
        head_dim: 16,
        value_dim: 16,
    };
    let tiling = AttentionTiling { queries: 16, keys: 16, warps: (1, 1), stages: 2, groups: false };
    let mut g = Gen::new(7);
    let mut case = AttentionCase::of(&mut g, Arch::Sm80, (DType::BF16, tiling), shape, MaskKind::Causal);
    case.what.vectors = [8, 8, 8, 2];
    let program = case.program();
    (case, program, PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/attention_sm_80_bf16.ptx"))
}

#[test]
fn committed_ptx_of_attention_means_what_is_interpreted() {
    let (case, program, path) = small_attention();
    let ptx = committed(Arch::Sm80, &program, &path);
    check_attention(&case, &program, &ptx);
    // Without them it is something else.
    for name in ["shfl.sync", "ex2.approx", "max.f32"] {
        let changed: Vec<&str> = ptx.lines().filter(|line| !line.contains(name)).collect();
        assert!(changed.len() < ptx.lines().count(), "{name} is there");
        let changed = changed.join("\n");
        let caught = std::panic::catch_unwind(|| check_attention(&case, &program, &changed));
        assert!(caught.is_err(), "nothing is different without {name}");
    }
}

/// A causal attention of warp groups: two blocks of queries, of two heads that share keys, and keys at an edge.
fn small_attention_groups() -> (AttentionCase, Program, PathBuf) {
    let shape = AttentionShape {
        batch: 1,
        kv_heads: 1,
        groups: 2,
        queries: 40,
        keys: 150,
        head_dim: 64,
        value_dim: 64,
    };
    let tiling = *attention_group_tilings(64).last().unwrap();
    let mut g = Gen::new(7);
    let case = AttentionCase::of(&mut g, Arch::Sm90a, (DType::BF16, tiling), shape, MaskKind::Causal);
    let case = case.in_chunks(&mut g);
    let program = case.program();
    (case, program, PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/attention_sm_90a_bf16.ptx"))
}

#[test]
fn committed_ptx_of_attention_by_groups_means_what_is_interpreted() {
    let (case, program, path) = small_attention_groups();
    let ptx = committed(Arch::Sm90a, &program, &path);
    check_attention(&case, &program, &ptx);
}

#[test]
fn what_is_missing_in_ptx_of_attention_by_groups_is_found() {
    let (case, program, path) = small_attention_groups();
    let ptx = std::fs::read_to_string(path).unwrap();
    let fault = |name: &str, which: usize| {
        fault(&ptx, (name, Some(which), ""), |changed| check_attention(&case, &program, changed))
    };
    // Of the first half of an iteration, of two halves, and of the last one.
    for (name, which, found) in [
        ("wgmma.fence", 0, "no wgmma.fence"),
        ("wgmma.fence", 1, "no wgmma.fence"),
        ("wgmma.fence", 2, "left operand that was set with no wgmma.fence"),
        ("wgmma.wait_group.sync.aligned \t0", 0, "a sum is used while"),
        ("wgmma.wait_group.sync.aligned \t1", 0, "a sum is used while"),
        ("wgmma.wait_group.sync.aligned \t0", 1, "under way"),
        ("mbarrier.arrive.shared", 0, "a deadlock"),
        ("cp.async.bulk", 2, "a deadlock"),
    ] {
        let name = name.replace("\t", "");
        let e = fault(&name, which);
        assert!(e.contains(found), "{name} {which}: {e}");
    }
}

fn random_prologues_run(arch: Arch) {
    let cases: Vec<(PrologueCase, Program)> = (0..CASES / 2)
        .map(|seed| {
            let case = PrologueCase::random(&mut Gen::new(13_000 + seed), arch);
            let program = case.program();
            (case, program)
        })
        .collect();
    let texts: Vec<String> = cases.iter().map(|(_, p)| source(p, "kernel").unwrap()).collect();
    let Some(made) = compiled(arch, &texts) else { return };
    for ((case, program), ptx) in cases.iter().zip(made) {
        let after = case.interpret(program).unwrap_or_else(|e| panic!("{e}\n{}", case.describe())).0;
        compare(program, &ptx, &case.uniforms(), (case.memory().0, after), &case.describe());
    }
}

#[test]
fn nvrtc_of_computed_operands_for_sm_75_means_what_is_interpreted() {
    random_prologues_run(Arch::Sm75);
}

#[test]
fn nvrtc_of_computed_operands_for_sm_80_means_what_is_interpreted() {
    random_prologues_run(Arch::Sm80);
}

#[test]
fn nvrtc_for_sm_75_means_what_is_interpreted() {
    random_programs_run(Arch::Sm75);
}

#[test]
fn nvrtc_for_sm_80_means_what_is_interpreted() {
    random_programs_run(Arch::Sm80);
}

#[test]
fn nvrtc_for_sm_90a_means_what_is_interpreted() {
    let cases: Vec<(Case, Program)> = (0..CASES)
        .map(|seed| {
            let case = groups::random(&mut Gen::new(3000 + seed));
            let program = case.program();
            (case, program)
        })
        .collect();
    let texts: Vec<String> = cases.iter().map(|(_, p)| source(p, "kernel").unwrap()).collect();
    let Some(made) = compiled(Arch::Sm90a, &texts) else { return };
    for ((case, program), ptx) in cases.iter().zip(made) {
        check(case, program, &ptx);
    }
}

/// A plain matmul by the smallest tiling: two tiles and an edge in each direction, three steps of the depth.
fn small(arch: Arch, dtype: DType) -> Case {
    let tiling = *tilings(arch).last().unwrap();
    let mut g = Gen::new(5);
    let mut case = Case::of(&mut g, arch, tiling, Matmul::new(dtype), (40, 48, 40), Vec::new());
    case.clear_bodies();
    case
}

fn committed_runs(arch: Arch, dtype: DType) {
    let (case, name) = (small(arch, dtype), format!("small_{}_{dtype}.ptx", arch.name()));
    let program = case.program();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(&name);
    let ptx = committed(arch, &program, &path);
    check(&case, &program, &ptx);
}

#[test]
fn committed_ptx_for_sm_75_means_what_is_interpreted() {
    committed_runs(Arch::Sm75, DType::F16);
}

#[test]
fn committed_ptx_for_sm_80_means_what_is_interpreted() {
    committed_runs(Arch::Sm80, DType::BF16);
}

fn small_groups() -> (Case, Program, PathBuf) {
    let case = groups::small(DType::BF16);
    let program = case.program();
    (case, program, PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/small_sm_90a_bf16.ptx"))
}

#[test]
fn committed_ptx_for_sm_90a_means_what_is_interpreted() {
    let (case, program, path) = small_groups();
    let ptx = committed(Arch::Sm90a, &program, &path);
    check(&case, &program, &ptx);
}

/// The same of bulk copies, barriers in memory and multiplications of warp groups.
#[test]
fn what_is_missing_in_ptx_for_sm_90a_is_found() {
    let (case, program, path) = small_groups();
    let ptx = std::fs::read_to_string(path).unwrap();
    for (name, which, instead, found) in [
        ("bar.sync", None, "", "a race: thread 0 makes the barrier"),
        ("fence.mbarrier_init", None, "", "without a fence behind mbarrier.init"),
        ("cp.async.bulk", None, "", "a deadlock"),
        ("cp.async.bulk", Some(1), "", "a deadlock"),
        ("mbarrier.arrive.expect_tx", None, "", "a deadlock"),
        ("mbarrier.arrive.shared", None, "", "a deadlock"),
        // The producer does not wait until a stage is no longer read; consumers not until it is filled.
        ("mbarrier.try_wait", Some(0), "mov.pred p, 1;", "more arrivals"),
        ("mbarrier.try_wait", Some(1), "mov.pred p, 1;", "under way"),
        ("wgmma.fence", None, "", "no wgmma.fence"),
        ("wgmma.commit_group", None, "", "may still read"),
        ("wgmma.wait_group", None, "", "may still read"),
        ("wgmma.mma_async", None, "", "differs"),
    ] {
        let e = fault(&ptx, (name, which, instead), |changed| check(&case, &program, changed));
        assert!(e.contains(found), "{name} {which:?}: {e}");
    }
}

/// The same of workgroups of several tiles.
fn check_in(case: &Case, (program, grid): (&Program, u64), ptx: &str) {
    let after = case.interpret_in(program, grid).unwrap().0;
    let memory = (case.memory().0, after);
    compare_in(program, ptx, (grid, &case.uniforms()), memory, &case.describe());
}

#[test]
fn nvrtc_of_several_tiles_for_sm_90a_means_what_is_interpreted() {
    let cases: Vec<(Case, Program, u64)> = (0..CASES)
        .map(|seed| {
            let g = &mut Gen::new(3500 + seed);
            let case = groups::random_turns(g);
            let program = case.program();
            (case, program, g.int(1..=2) as u64)
        })
        .collect();
    let texts: Vec<String> = cases.iter().map(|(_, p, _)| source(p, "kernel").unwrap()).collect();
    let Some(made) = compiled(Arch::Sm90a, &texts) else { return };
    for ((case, program, grid), ptx) in cases.iter().zip(made) {
        check_in(case, (program, *grid), &ptx);
    }
}

/// Two teams of a workgroup, whose consumers have registers of the producer's.
fn small_turns() -> (Case, Program, PathBuf) {
    let case = groups::small_turns(DType::BF16, 2);
    let program = case.program();
    (case, program, PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/turns_sm_90a_bf16.ptx"))
}

#[test]
fn committed_ptx_of_several_tiles_means_what_is_interpreted() {
    let (case, program, path) = small_turns();
    let ptx = committed(Arch::Sm90a, &program, &path);
    (1..=3).for_each(|grid| check_in(&case, (&program, grid), &ptx));
    assert!(ptx.contains("setmaxnreg.dec") && ptx.contains("setmaxnreg.inc"));
}

/// What orders teams, and stages from tile to tile.
#[test]
fn what_is_missing_in_ptx_of_several_tiles_is_found() {
    let (case, program, path) = small_turns();
    let ptx = std::fs::read_to_string(path).unwrap();
    let fault = |name: &str, which: usize, instead: &str| {
        fault(&ptx, (name, Some(which), instead), |changed| check_in(&case, (&program, 1), changed))
    };
    for (name, which, instead, found) in [
        // The producer does not wait until a stage is no longer read, a team not for its turn, nor until a stage is filled.
        ("mbarrier.try_wait", 0, "mov.pred p, 1;", "more arrivals"),
        ("mbarrier.try_wait", 1, "mov.pred p, 1;", "warp of thread 128"),
        ("mbarrier.try_wait", 2, "mov.pred p, 1;", "under way"),
        // A step is given back, a turn ends, the last step is given back.
        ("mbarrier.arrive.shared", 0, "", "a deadlock"),
        ("mbarrier.arrive.shared", 1, "", "a deadlock"),
        ("mbarrier.arrive.shared", 2, "", "a deadlock"),
        ("wgmma.wait_group", 0, "", "may still read"),
        ("wgmma.wait_group", 1, "", "a sum is used while"),
        ("wgmma.fence", 0, "", "no wgmma.fence"),
    ] {
        let e = fault(name, which, instead);
        assert!(e.contains(found), "{name} {which}: {e}");
    }
}

/// The emulator finds what is taken out of the vendor's own text.
#[test]
fn what_is_missing_in_ptx_is_found() {
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/small_sm_80_bf16.ptx");
    let ptx = std::fs::read_to_string(golden).unwrap();
    let case = small(Arch::Sm80, DType::BF16);
    let program = case.program();
    let fault = |change: &str| {
        let changed: Vec<&str> = ptx.lines().filter(|line| !line.contains(change)).collect();
        let changed = changed.join("\n");
        let caught = std::panic::catch_unwind(|| check(&case, &program, &changed));
        let panic = caught.expect_err("the emulator finds it");
        panic.downcast_ref::<String>().cloned().unwrap_or_default()
    };
    let barrier = fault("bar.sync");
    assert!(barrier.contains("a race") || barrier.contains("before it is written"), "{barrier}");
    assert!(fault("cp.async.wait_group").contains("under way"));
    assert!(fault("cp.async.cg").contains("before it is written"));
    assert!(fault("mma.sync").contains("differs"));
}
