//! The text of programs runs: CUDA C and HIP C, compiled by the machine's C++ compiler with the instructions of a warp written in C++ (`warp.h`), makes of the
//! same memory what the interpreter makes of it, to the bit. Everything else of the text is unchanged, but that workgroup memory whose size a launch gives has it here. Metal's language is compiled as it is, on a standard
//! library of ours, but for one word: where workgroup memory is declared.
//!
//! Without a C++ compiler (`CXX`, else `c++`) the tests are skipped by name; where `CI=true` that is a failure.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../rlx-kernel/tests/kernel_text/compiler.rs"]
mod compiler;
mod models;

use common::attention::AttentionCase;
use common::attention_parts::Divided;
use common::compiled::ARCHS;
use common::convs::ConvCase;
use common::grouped::GroupedCase;
use common::prologue::PrologueCase;
use common::{Case, Map};
use rlx_ir::DType;
use rlx_ir::testing::Gen;
use rlx_kernel::Kernel;
use rlx_kernel::interp::{Binding, Pools, Recorded};
use rlx_kernel::ir::Stmt;
use rlx_opt::Precision;
use rlx_tile::atom::Vendor;
use rlx_tile::render::{instructions, source};
use rlx_tile::schedule::multiplied;
use rlx_tile::{Arch, Program, interp};

/// Programs of one C++ file.
const TOGETHER: usize = 60;
/// Random matmuls of each architecture; with `RLX_TEST_ALL` five times as many.
const CASES: u64 = 12;

/// The program's text, with the instructions of a warp from `warp.h`.
fn text(program: &Program, entry: &str) -> String {
    let text = source(program, entry).unwrap();
    if program.arch.vendor() == Vendor::Apple {
        // The language has one word for memory that is declared and for pointers into it; C++ has none for the latter.
        return format!(
            "#undef threadgroup\n#define threadgroup\n{}",
            text.replace("\n  threadgroup ", "\n  static ")
        );
    }
    let (atom, instructions) = (program.atom().unwrap(), instructions(program));
    assert!(text.contains(&instructions));
    let number = if atom.short() == "f16" { "from_half" } else { "from_brain" };
    // Which instruction of AMD's, and elements of a lane: of an operand, of the sums.
    let instruction = match program.arch {
        Arch::Sm75 | Arch::Sm80 | Arch::Sm90a | Arch::Sm100a => "RLX_MMA",
        Arch::Gfx90a => "RLX_MFMA",
        Arch::Gfx1100 => "RLX_WMMA11",
        Arch::Gfx1200 => "RLX_WMMA12",
        Arch::Apple7 => unreachable!("returned above"),
        Arch::Coop16 => unreachable!("its text is no C"),
    };
    let defines = format!(
        "#define __align__(n) __attribute__((aligned(n)))
#define RLX_NUMBER {number}
#define RLX_DEPTH {}
#define RLX_LANES {}
#define RLX_EXCHANGED {}
#define {instruction}
",
        atom.k,
        program.arch.lanes(),
        u8::from(atom.exchanged)
    );
    let given = format!("__shared__ __align__(128) u16 dynamic[{}];", program.dynamic_bytes() / 2);
    text.replace(&instructions, &format!("{defines}{}", include_str!("warp.h")))
        .replace("extern __shared__ __align__(128) u16 dynamic[];", &given)
}

/// What the interpreter makes of a case, in the form that programs of kernels are given; only the size of a workgroup is looked at in the kernel.
fn record(case: &Case, program: &Program) -> Recorded {
    let after = case.interpret(program).unwrap().0;
    recorded(program, case.describe(), case.uniforms(), case.memory(), after)
}

fn recorded(
    program: &Program,
    name: String,
    uniforms: Vec<i32>,
    (before, bindings): (Pools, Vec<Binding>),
    after: Pools,
) -> Recorded {
    let kernel = Kernel {
        name,
        buffers: program.buffers.clone(),
        uniforms: program.uniforms.clone(),
        shared: Vec::new(),
        vars: Vec::new(),
        values: Vec::new(),
        workgroup: program.workgroup(),
        subgroup: None,
        body: vec![Stmt::Barrier],
    };
    Recorded {
        kernel: kernel.into(),
        groups: (0..interp::workgroups(program, &uniforms)).map(|g| g as i64).collect(),
        uniforms,
        before: before.0,
        bindings: bindings.iter().map(|b| b.pool).collect(),
        after: after.0,
        fault: None,
    }
}

fn texts_run(arch: Arch) {
    let all = std::env::var_os("RLX_TEST_ALL").is_some();
    let cases = (0..if all { 5 * CASES } else { CASES }).map(|seed| {
        let mut g = Gen::new(1000 + seed);
        let case = Case::random(&mut g, arch);
        let case = if seed % 4 == 3 { case.with_epilogue(&mut g, Map::BiasGelu) } else { case };
        let program = case.program();
        (record(&case, &program), program)
    });
    let in_parts = (0..CASES / 3).map(|seed| {
        let case = Case::random(&mut Gen::new(1500 + seed), arch).in_parts();
        let program = case.program();
        (record(&case, &program), program)
    });
    let computed = (0..if all { 5 * CASES } else { CASES }).map(|seed| {
        let case = PrologueCase::random(&mut Gen::new(12_000 + seed), arch);
        let program = case.program();
        let after = case.interpret(&program).unwrap().0;
        (recorded(&program, case.describe(), case.uniforms(), case.memory(), after), program)
    });
    run(arch, cases.chain(in_parts).chain(computed));
}

/// The same of rows in groups, whose lists the kernel has made.
fn groups_run(arch: Arch) {
    let all = std::env::var_os("RLX_TEST_ALL").is_some();
    let cases = (0..if all { 5 * CASES } else { CASES / 3 }).map(|seed| {
        let mut g = Gen::new(32_000 + seed);
        let case = GroupedCase::random(&mut g, arch);
        let tiling = g.pick(&case.tilings());
        let launch = case.launch(Some(&tiling));
        let after = case.interpret(&launch).unwrap().0;
        let memory = case.memory(&launch).unwrap();
        let program = (*launch.program).clone();
        (recorded(&program, case.describe(), case.uniforms(&launch), memory, after), program)
    });
    run(arch, cases);
}

/// The same of convolutions.
fn convolutions_run(arch: Arch) {
    let all = std::env::var_os("RLX_TEST_ALL").is_some();
    let cases = (0..if all { 5 * CASES } else { CASES }).map(|seed| {
        let case = ConvCase::random(&mut Gen::new(1700 + seed), arch);
        let case = if seed % 4 == 3 { case.in_parts() } else { case };
        let program = case.program();
        let after = case.interpret(&program).unwrap().0;
        (recorded(&program, case.describe(), case.uniforms(), case.memory(), after), program)
    });
    run(arch, cases);
}

/// The same of attentions, of which there are fewer: their texts take the compiler longer.
fn attentions_run(arch: Arch) {
    let all = std::env::var_os("RLX_TEST_ALL").is_some();
    let cases = (0..if all { CASES } else { CASES / 3 }).map(|seed| {
        let case = AttentionCase::random(&mut Gen::new(6000 + seed), arch);
        let program = case.program();
        let after = case.interpret(&program).unwrap().0;
        (recorded(&program, case.describe(), case.uniforms(), case.memory(), after), program)
    });
    let in_parts = (0..2).map(|seed| {
        let case = AttentionCase::random(&mut Gen::new(6500 + seed), arch);
        let divided = Divided::new(&case, case.tiling.keys as i32);
        let program = divided.program();
        let after = divided.sums(&program).unwrap().0;
        (recorded(&program, case.describe(), divided.uniforms(), divided.memory(), after), program)
    });
    let windowed = (0..2).map(|seed| {
        let case =
            AttentionCase::windowed(&mut Gen::new(6700 + seed), arch, |g| (g.size(1..=40), g.size(40..=90)));
        let program = case.program();
        let after = case.interpret(&program).unwrap().0;
        (recorded(&program, case.describe(), case.uniforms(), case.memory(), after), program)
    });
    let windows_in_parts = (0..2).map(|seed| {
        let case =
            AttentionCase::windowed(&mut Gen::new(6800 + seed), arch, |g| (g.size(1..=8), g.size(40..=90)));
        let divided = Divided::new(&case, case.tiling.keys as i32);
        let program = divided.program();
        let after = divided.sums(&program).unwrap().0;
        (recorded(&program, case.describe(), divided.uniforms(), divided.memory(), after), program)
    });
    let in_pages = (0..4).map(|seed| {
        let mut g = Gen::new(6900 + seed);
        let case = AttentionCase::of_lengths(&mut g, arch, |g| (g.size(1..=8), g.size(20..=90)));
        let case = case.in_pages(&mut g);
        if seed % 2 == 0 {
            let program = case.program();
            let after = case.interpret(&program).unwrap().0;
            return (recorded(&program, case.describe(), case.uniforms(), case.memory(), after), program);
        }
        let divided = Divided::new(&case, case.tiling.keys as i32);
        let program = divided.program();
        let after = divided.sums(&program).unwrap().0;
        (recorded(&program, case.describe(), divided.uniforms(), divided.memory(), after), program)
    });
    run(arch, cases.chain(in_parts).chain(windowed).chain(windows_in_parts).chain(in_pages));
}

/// The same of every program of the test models that are not of full size, in each type that the architecture multiplies steps of: suite `kernel-text`.
fn models_run(arch: Arch) {
    if !rlx_testdata::models::everything() {
        println!(
            "@skip 1 the text of models' programs: `cargo xtask test --suite kernel-text`, or RLX_TEST_ALL=1, runs it"
        );
        return;
    }
    for &dtype in multiplied(arch) {
        let precision = if dtype == DType::F16 { Precision::F16 } else { Precision::BF16 };
        let mut records = models::records(arch, precision);
        println!("{} programs of the models in {dtype} for {}", records.len(), arch.name());
        assert!(records.len() > 20, "only {} programs", records.len());
        while !records.is_empty() {
            let rest = records.split_off(TOGETHER.min(records.len()));
            run(arch, records.into_iter());
            records = rest;
        }
    }
}

fn run(arch: Arch, cases: impl Iterator<Item = (Recorded, Program)>) {
    let Some(compiler) = compiler::found() else { return };
    let (records, programs): (Vec<Recorded>, Vec<Program>) = cases.unzip();
    let texts: Vec<String> = programs.iter().enumerate().map(|(i, p)| text(p, &format!("k{i}"))).collect();
    let dialect = match arch.vendor() {
        Vendor::Nvidia => "-DRLX_CUDA",
        Vendor::Amd => "-DRLX_HIP",
        Vendor::Apple => "-DRLX_METAL",
        Vendor::Khronos => unreachable!("its text is no C"),
    };
    let made = compiler::Program::new(&compiler, &texts, dialect).run(&records);
    assert_eq!(made.len(), records.len());
    for (record, made) in records.iter().zip(made) {
        assert_eq!(made.fault, [0; 4], "{}", record.kernel.name);
        assert!(made.together, "a barrier that not all lanes reach: {}", record.kernel.name);
        for (i, (want, got)) in record.after.iter().zip(&made.memory).enumerate() {
            let differs = want.iter().zip(got).position(|(a, b)| a != b);
            assert_eq!(differs, None, "buffer {i} differs from this byte on: {}", record.kernel.name);
        }
    }
}

#[test]
fn text_of_attention_for_sm_75_runs_as_interpreted() {
    attentions_run(Arch::Sm75);
}

#[test]
fn text_of_attention_for_sm_80_runs_as_interpreted() {
    attentions_run(Arch::Sm80);
}

#[test]
fn text_of_attention_for_gfx90a_runs_as_interpreted() {
    attentions_run(Arch::Gfx90a);
}

#[test]
fn text_of_attention_for_gfx1100_runs_as_interpreted() {
    attentions_run(Arch::Gfx1100);
}

#[test]
fn text_of_attention_for_gfx1200_runs_as_interpreted() {
    attentions_run(Arch::Gfx1200);
}

#[test]
fn text_of_rows_in_groups_runs_as_interpreted() {
    ARCHS.into_iter().for_each(groups_run);
}

#[test]
fn text_of_convolutions_for_sm_75_runs_as_interpreted() {
    convolutions_run(Arch::Sm75);
}

#[test]
fn text_of_convolutions_for_sm_80_runs_as_interpreted() {
    convolutions_run(Arch::Sm80);
}

#[test]
fn text_of_convolutions_for_gfx90a_runs_as_interpreted() {
    convolutions_run(Arch::Gfx90a);
}

#[test]
fn text_of_convolutions_for_gfx1100_runs_as_interpreted() {
    convolutions_run(Arch::Gfx1100);
}

#[test]
fn text_of_convolutions_for_gfx1200_runs_as_interpreted() {
    convolutions_run(Arch::Gfx1200);
}

#[test]
fn text_of_convolutions_for_apple7_runs_as_interpreted() {
    convolutions_run(Arch::Apple7);
}

#[test]
fn text_for_sm_75_runs_as_interpreted() {
    texts_run(Arch::Sm75);
}

#[test]
fn text_for_sm_80_runs_as_interpreted() {
    texts_run(Arch::Sm80);
}

#[test]
fn text_for_gfx90a_runs_as_interpreted() {
    texts_run(Arch::Gfx90a);
}

#[test]
fn text_for_gfx1100_runs_as_interpreted() {
    texts_run(Arch::Gfx1100);
}

#[test]
fn text_for_gfx1200_runs_as_interpreted() {
    texts_run(Arch::Gfx1200);
}

#[test]
fn text_for_apple7_runs_as_interpreted() {
    texts_run(Arch::Apple7);
}

#[test]
fn text_of_models_for_sm_75_runs_as_interpreted() {
    models_run(Arch::Sm75);
}

#[test]
fn text_of_models_for_sm_80_runs_as_interpreted() {
    models_run(Arch::Sm80);
}

#[test]
fn text_of_models_for_gfx90a_runs_as_interpreted() {
    models_run(Arch::Gfx90a);
}

#[test]
fn text_of_models_for_gfx1100_runs_as_interpreted() {
    models_run(Arch::Gfx1100);
}

#[test]
fn text_of_models_for_gfx1200_runs_as_interpreted() {
    models_run(Arch::Gfx1200);
}

#[test]
fn text_of_models_for_apple7_runs_as_interpreted() {
    models_run(Arch::Apple7);
}
