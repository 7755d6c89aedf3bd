//! WGSL with cooperative matrices: what naga and the validator of SPIR-V say of it, and what programs compute on the interpreter.

mod common;

use std::io::Write;
use std::process::{Command, Stdio};

use common::{Case, Map};
use naga::back::spv;
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use rlx_ir::testing::Gen;
use rlx_tile::Arch;
use rlx_tile::render::source;

/// Random matmuls on the interpreter.
const CASES: u64 = 500;
/// Of these, whose text is validated; with `RLX_TEST_ALL` all of them.
const TEXTS: u64 = 60;

/// What the device of a program has.
fn capabilities() -> Capabilities {
    Capabilities::COOPERATIVE_MATRIX | Capabilities::SHADER_FLOAT16 | Capabilities::SUBGROUP
}

/// A text as naga has it.
fn parsed(text: &str) -> Result<(naga::Module, ModuleInfo), String> {
    let module = naga::front::wgsl::parse_str(text).map_err(|e| e.emit_to_string(text))?;
    let mut validator = Validator::new(ValidationFlags::all(), capabilities());
    let info = validator.validate(&module).map_err(|e| e.emit_to_string(text))?;
    Ok((module, info))
}

fn words(text: &str) -> Result<Vec<u32>, String> {
    let (module, info) = parsed(text)?;
    let options = spv::Options { lang_version: (1, 3), ..Default::default() };
    spv::write_vec(&module, &info, &options, None).map_err(|e| e.to_string())
}

/// What Khronos' validator (`SPIRV_VAL`, else `spirv-val`) says of SPIR-V; `None` where there is none, or one from before cooperative matrices.
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

fn case(seed: u64) -> Case {
    let mut g = Gen::new(seed);
    let case = Case::random(&mut g, Arch::Coop16);
    match seed % 16 {
        15 => case.in_parts(),
        7 => case.with_epilogue(&mut g, Map::BiasGelu),
        _ => case,
    }
}

#[test]
fn random_matmuls_are_right() {
    for seed in 0..CASES {
        let case = case(seed);
        let program = case.program();
        let (pools, _) = case
            .interpret(&program)
            .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}\n{program}", case.describe()));
        if !case.what.parts {
            case.check(&pools.0[2]);
        }
    }
}

#[test]
fn texts_are_valid() {
    let all = std::env::var_os("RLX_TEST_ALL").is_some();
    let mut missing = false;
    for seed in 0..if all { CASES } else { TEXTS } {
        let case = case(seed);
        let text = source(&case.program(), "main").unwrap();
        let words = words(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}\n{text}", case.describe()));
        match validated(&words) {
            Some(said) => said.unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}")),
            None => missing = true,
        }
    }
    if missing {
        println!("spirv-val of 2023.5 or later is missing (SPIRV_VAL): the SPIR-V was not validated");
    }
}
