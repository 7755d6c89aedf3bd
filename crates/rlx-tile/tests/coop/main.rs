//! WGSL with cooperative matrices: what naga and the validator of SPIR-V say of it, and what programs compute on the interpreter.

#[path = "../common/mod.rs"]
mod common;
mod device;

use std::io::Write;
use std::process::{Command, Stdio};

use common::compiled::Compiled;
use common::convs::ConvCase;
use common::prologue::PrologueCase;
use common::{Case, Map};
use rlx_ir::testing::{Gen, random_bindings, random_conv, random_matmul};
use rlx_ir::{DType, DimBinding, Value, oracle};
use rlx_kernel::interp::Counters;
use rlx_kernel::ir::{Access, BufferDecl};
use rlx_opt::CompileOptions;
use rlx_tile::ir::Stmt;
use rlx_tile::layout::Swizzle;
use rlx_tile::render::source;
use rlx_tile::schedule::{Matmul, computed_tilings, matmul, tilings};
use rlx_tile::verify::{Rule, verify};
use rlx_tile::{Arch, Program};
use wgpu::naga::back::spv;
use wgpu::naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};

/// Random convolutions, and as many matmuls of computed operands; with `RLX_TEST_ALL` four times as many.
const OTHERS: u64 = 150;
/// Random steps of matmuls, and as many of convolutions.
const STEPS: u64 = 80;
/// Random matmuls on the interpreter.
const CASES: u64 = 500;
/// Programs of each kind whose text is validated; with `RLX_TEST_ALL` ten times as many.
const TEXTS: u64 = 25;

/// What the device of a program has.
fn capabilities() -> Capabilities {
    Capabilities::COOPERATIVE_MATRIX | Capabilities::SHADER_FLOAT16 | Capabilities::SUBGROUP
}

/// A text as naga has it.
fn parsed(text: &str) -> Result<(wgpu::naga::Module, ModuleInfo), String> {
    let module = wgpu::naga::front::wgsl::parse_str(text).map_err(|e| e.emit_to_string(text))?;
    let mut validator = Validator::new(ValidationFlags::all(), capabilities());
    let info = validator.validate(&module).map_err(|e| e.emit_to_string(text))?;
    Ok((module, info))
}

fn words(text: &str) -> Result<Vec<u32>, String> {
    let (module, info) = parsed(text)?;
    let options = spv::Options { lang_version: (1, 3), ..Default::default() };
    spv::write_vec(&module, &info, &options, None).map(without_strides).map_err(|e| e.to_string())
}

/// SPIR-V without the strides that naga states of arrays in workgroup memory, in every text that has some: drivers take them, the validator does not.
fn without_strides(words: Vec<u32>) -> Vec<u32> {
    const HEAD: usize = 5;
    const DECORATE: u32 = 71;
    const POINTER: u32 = 32;
    const ARRAY_STRIDE: u32 = 6;
    const WORKGROUP: u32 = 4;
    let mut instructions = Vec::new();
    let mut rest = &words[HEAD..];
    while let Some(&first) = rest.first() {
        let (one, behind) = rest.split_at((first >> 16) as usize);
        instructions.push(one);
        rest = behind;
    }
    let op = |of: &[u32]| of[0] & 0xffff;
    let shared = instructions.iter().filter(|of| op(of) == POINTER && of[2] == WORKGROUP);
    let shared: Vec<u32> = shared.map(|of| of[3]).collect();
    let stride = |of: &[u32]| op(of) == DECORATE && of[2] == ARRAY_STRIDE && shared.contains(&of[1]);
    let kept = instructions.iter().filter(|of| !stride(of));
    words[..HEAD].iter().chain(kept.copied().flatten()).copied().collect()
}

/// What Khronos' validator (`SPIRV_VAL`, else `spirv-val`) says of SPIR-V; `None` where there is none, or one from before cooperative matrices (2023.5).
fn validated(words: &[u32]) -> Option<Result<(), String>> {
    let validator = std::env::var_os("SPIRV_VAL").unwrap_or_else(|| "spirv-val".into());
    let mut child = Command::new(validator)
        .args(["--target-env", "vulkan1.3", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    child.stdin.take().expect("it is piped").write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    if said.contains("Invalid capability operand: 6022") {
        return None;
    }
    Some(if output.status.success() { Ok(()) } else { Err(said) })
}

/// A random matmul, some in parts, and some with a function behind it.
fn matmul_case(seed: u64) -> Case {
    let mut g = Gen::new(seed);
    let case = Case::random(&mut g, Arch::Coop16);
    match seed % 16 {
        15 => case.in_parts(),
        7 => case.with_epilogue(&mut g, Map::BiasGelu),
        _ => case,
    }
}

fn conv_case(seed: u64) -> ConvCase {
    let case = ConvCase::random(&mut Gen::new(8000 + seed), Arch::Coop16);
    if seed % 4 == 3 { case.in_parts() } else { case }
}

/// A random matmul whose operands are computed from floats as they are copied.
fn prologue_case(seed: u64) -> PrologueCase {
    let all =
        (0..).map(|salt| PrologueCase::random(&mut Gen::new(12_000 + 1000 * seed + salt), Arch::Coop16));
    let packed = |case: &PrologueCase| case.case.what.all_buffers().iter().any(|b| b.dtype.is_int());
    all.into_iter().find(|case| !packed(case)).expect("half of them are of floats")
}

/// The pad of rows puts those that are accessed together into different banks.
fn without_conflicts(counters: Counters, of: &str) {
    assert_eq!((counters.conflicts, counters.ways), (0, 1), "bank conflicts\n{of}");
}

#[test]
fn random_matmuls_are_right() {
    for seed in 0..CASES {
        let case = matmul_case(seed);
        let program = case.program();
        let (pools, counters) = case
            .interpret(&program)
            .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}\n{program}", case.describe()));
        without_conflicts(counters, &case.describe());
        if !case.what.parts {
            case.check(&pools.0[2]);
        }
    }
}

#[test]
fn random_convolutions_and_computed_operands_are_right() {
    let all = std::env::var_os("RLX_TEST_ALL").is_some();
    for seed in 0..if all { 4 * OTHERS } else { OTHERS } {
        let case = conv_case(seed);
        let program = case.program();
        let (pools, counters) = case.interpret(&program).unwrap_or_else(|e| panic!("{seed}: {e}\n{program}"));
        without_conflicts(counters, &case.describe());
        case.check(&pools.0[2]);
        let case = prologue_case(seed);
        let program = case.program();
        let (pools, counters) = case.interpret(&program).unwrap_or_else(|e| panic!("{seed}: {e}\n{program}"));
        without_conflicts(counters, &case.describe());
        case.case.check(&pools.0[2]);
    }
}

/// A program of each kind for a seed, with what it is of.
fn programs(seed: u64) -> [(String, Program); 3] {
    let (matmul, conv, prologue) = (matmul_case(seed), conv_case(seed), prologue_case(seed));
    [
        (matmul.describe(), matmul.program()),
        (conv.describe(), conv.program()),
        (prologue.describe(), prologue.program()),
    ]
}

#[test]
fn texts_are_valid() {
    let all = std::env::var_os("RLX_TEST_ALL").is_some();
    let mut missing = false;
    for seed in 0..if all { 10 * TEXTS } else { TEXTS } {
        for (of, program) in programs(seed) {
            let text = source(&program, "main").unwrap();
            let words = words(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{of}\n{text}"));
            match validated(&words) {
                Some(said) => said.unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}")),
                None => missing = true,
            }
        }
    }
    if missing {
        let reason = "there is no spirv-val of 2023.5 or later";
        assert!(std::env::var_os("SPIRV_VAL").is_none(), "SPIRV_VAL names another program: {reason}");
        println!("@skip 1 SPIR-V of cooperative matrices: {reason}; SPIRV_VAL names one");
    }
}

#[test]
fn steps_agree_with_the_oracle() {
    for seed in 0..STEPS {
        // As `conv_steps.rs` draws them.
        let mut of_conv = Gen::new(7000 + seed);
        let dtype = of_conv.pick(&[DType::F16]);
        let graphs = [random_matmul(&mut Gen::new(seed), dtype), random_conv(&mut of_conv, dtype)];
        for graph in graphs {
            let values = random_bindings(&graph, &DimBinding::new(), seed);
            oracle::bind_dims(&graph, &values).unwrap();
            let compiled = Compiled::of(graph, values, CompileOptions::default());
            let (results, tiled, refused) = compiled.run_by_tiles(Arch::Coop16, None);
            compiled.check(&results, Arch::Coop16);
            assert_eq!(tiled, 1, "seed {seed}: {refused:?}\n{}", compiled.graph);
        }
    }
}

#[test]
fn all_tilings_give_the_same_bits() {
    for seed in 0..4 {
        let compiled = Compiled::new(random_matmul(&mut Gen::new(seed), DType::F16), seed, -1.0..1.0);
        let (want, ..) = compiled.run_by_tiles(Arch::Coop16, None);
        for tiling in tilings(Arch::Coop16) {
            let (got, tiled, refused) = compiled.run_by_tiles(Arch::Coop16, Some(&tiling));
            assert_eq!(tiled, 1, "{}: {refused:?}", tiling.name());
            let bits = |values: &[Value]| values.iter().map(Value::encode).collect::<Vec<_>>();
            assert_eq!(bits(&got), bits(&want), "{}", tiling.name());
        }
    }
}

/// A device of the least that Vulkan promises beside 48 KiB runs every tiling.
#[test]
fn tilings_fit_a_device() {
    for tiling in tilings(Arch::Coop16).iter().chain(&computed_tilings(Arch::Coop16)) {
        for transposed in [false, true] {
            let mut what = Matmul::new(DType::F16);
            (what.left.transposed, what.right.transposed) = (transposed, transposed);
            let program = matmul(Arch::Coop16, &what, tiling).unwrap();
            assert!(program.shared_bytes() <= 48 << 10 && program.workgroup() <= 256, "{}", tiling.name());
        }
    }
}

#[test]
fn what_the_language_lacks_is_refused_with_the_reason() {
    let tiling = &tilings(Arch::Coop16)[2];
    let refused = |change: &dyn Fn(&mut Matmul)| {
        let mut what = Matmul::new(DType::F16);
        change(&mut what);
        matmul(Arch::Coop16, &what, tiling).unwrap_err().to_string()
    };
    assert!(refused(&|what| what.left.dtype = DType::BF16).contains("no buffer of bf16"));
    assert!(refused(&|what| what.right.dtype = DType::U4).contains("no buffer of u4"));
    assert!(refused(&|what| what.compute = DType::BF16).contains("no matrix instruction multiplies bf16"));
    let bytes = |what: &mut Matmul| {
        what.buffers.push(BufferDecl { name: "mask".into(), dtype: DType::U8, access: Access::Read });
    };
    assert!(refused(&bytes).contains("no buffer of u8"));
}

/// Rows of which matrices are loaded have a pad and no swizzle, and nothing is loaded as from matrices of 8 × 8.
#[test]
fn tiles_are_stored_as_they_are_loaded() {
    let broken = |change: fn(&mut Program)| {
        let mut p = matmul(Arch::Coop16, &Matmul::new(DType::F16), &tilings(Arch::Coop16)[2]).unwrap();
        change(&mut p);
        verify(&p).map_err(|v| v.rule)
    };
    assert_eq!(broken(|_| ()), Ok(()));
    assert!(matches!(broken(|p| p.tiles[0].pad = 0), Err(Rule::Declaration(_))));
    assert!(matches!(broken(|p| p.tiles[1].matrices = true), Err(Rule::Declaration(_))));
    assert!(matches!(broken(|p| p.tiles[0].swizzle = Swizzle::of(32)), Err(Rule::Declaration(_))));
    assert!(matches!(broken(|p| p.fragments[0].rows -= 8), Err(Rule::Declaration(_))));
    // What the interpreter finds: a warp that multiplies what it never loaded.
    let case = matmul_case(0);
    let mut program = case.program();
    let Some(Stmt::Pipelined { body, .. }) = program.body.get_mut(1) else { panic!("no loop") };
    let Some(Stmt::For { body, .. }) = body.first_mut() else { panic!("no steps") };
    body.remove(0);
    assert!(case.interpret(&program).unwrap_err().to_string().contains("was not set"));
}

/// Texts that are wrong in one place, which the parser finds.
#[test]
fn damaged_texts_are_found() {
    let text = source(&matmul_case(0).program(), "main").unwrap();
    parsed(&text).unwrap();
    for (from, to) in [
        ("coop_mat16x16<f16, A>", "coop_mat16x16<f16, B>"),
        ("coop_mat16x16<f32, C>();", "coop_mat16x16<f16, C>();"),
        ("array<vec4<f16>, ", "array<vec4<f32>, "),
        ("enable wgpu_cooperative_matrix;", ""),
    ] {
        assert!(text.contains(from), "{from}");
        assert!(parsed(&text.replacen(from, to, 1)).is_err(), "{from} as {to}");
    }
}
