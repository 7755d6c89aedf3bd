//! Programs as text. `RLX_BLESS=1 cargo test -p rlx-tile --test render` writes the golden files again.

#[path = "common/programs.rs"]
mod programs;

use std::path::PathBuf;

use rlx_ir::DType;
use rlx_ir::ops::Unseen;
use rlx_kernel::Kernel;
use rlx_tile::Arch;
use rlx_tile::atom::Vendor;
use rlx_tile::expand::expand;
use rlx_tile::render::source;
use rlx_tile::schedule::{Attention, attention_join};

/// Where `RLX_CUDA_OUT` says, every program for NVIDIA's devices is left as a file for NVRTC; a tile program's name begins with the least architecture.
#[test]
fn every_kernel_renders_as_cuda_with_matrix_instructions() {
    render_all(Vendor::Nvidia, "RLX_CUDA_OUT", "cu");
}

/// The same for AMD's devices and clang, by `RLX_HIP_OUT`.
#[test]
fn every_kernel_renders_as_hip_with_matrix_instructions() {
    render_all(Vendor::Amd, "RLX_HIP_OUT", "hip");
}

/// The same for Apple's devices and the compiler of Xcode, by `RLX_METAL_OUT`; nothing runs it here.
#[test]
fn every_kernel_renders_as_metal_with_simdgroup_matrices() {
    render_all(Vendor::Apple, "RLX_METAL_OUT", "metal");
}

fn render_all(vendor: Vendor, variable: &str, extension: &str) {
    let out = std::env::var_os(variable).map(PathBuf::from);
    let attentions = programs::attentions().into_iter().map(|(name, _, program)| (name, program));
    let all = programs::programs().into_iter().chain(attentions);
    for (name, program) in all.filter(|(_, p)| p.arch.vendor() == vendor) {
        let text = source(&program, "kernel").unwrap_or_else(|e| panic!("{name}: {e}"));
        let groups = program.producers() > 0;
        let instruction = match (groups, program.arch) {
            (true, Arch::Sm100a) => "tcgen05.mma.cta_group::1.kind::f16".to_owned(),
            (true, _) => "wgmma.mma_async.sync.aligned.m64n".to_owned(),
            (false, _) => program.atom().unwrap().instruction(),
        };
        assert_eq!(text.contains("cp.async.bulk.tensor"), groups, "{name}");
        assert!(text.contains(&instruction), "{name} has no {instruction}");
        let one_by_one = name.ends_with("nn.odd") || name.ends_with("nt.odd");
        let asynchronous = program.arch.copies_async() && !groups && !one_by_one;
        assert_eq!(text.contains("cp.async.cg"), asynchronous, "{name}");
        if let Some(out) = &out {
            std::fs::write(out.join(format!("tile.{name}.{extension}")), text).unwrap();
        }
    }
    for (name, kernel) in joins() {
        let text = match vendor {
            Vendor::Nvidia => rlx_kernel::render::cuda(&kernel, "kernel"),
            Vendor::Amd => rlx_kernel::render::hip(&kernel, "kernel"),
            // Its tile programs have no attention.
            Vendor::Apple | Vendor::Khronos => return,
        };
        let text = text.unwrap_or_else(|e| panic!("{name}: {e}"));
        if let Some(out) = &out {
            std::fs::write(out.join(format!("{name}.{extension}")), text).unwrap();
        }
    }
}

/// The kernels that join parts of attentions.
fn joins() -> Vec<(String, Kernel)> {
    let mut all = Vec::new();
    for dtype in [DType::F16, DType::BF16] {
        for (unseen, groups) in [(Unseen::Zero, 1), (Unseen::Guard, 4), (Unseen::Nan, 1)] {
            let what = Attention { unseen, groups, parts: true, ..Attention::new(dtype, 64) };
            let kernel = attention_join(&what).unwrap();
            rlx_kernel::verify::verify(&kernel).unwrap();
            all.push((format!("join.{dtype}.{unseen:?}.{groups}"), kernel));
        }
    }
    all
}

fn compare(file: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    if std::env::var_os("RLX_BLESS").is_some() {
        std::fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        return;
    }
    let want = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(want == text, "{file} is out of date; RLX_BLESS=1 writes it again:\n{text}");
}

/// The text form, before and after software pipelining, and CUDA C, HIP C, Metal's language or WGSL.
#[test]
fn golden_files_hold() {
    let attentions = programs::attentions().into_iter().map(|(name, _, program)| (name, program));
    let all: Vec<_> = programs::programs().into_iter().chain(attentions).collect();
    for (file, extension, wanted) in [
        ("sm_75_f16", "cu", "sm_75.f16.64x64x32.2x2.s2.nn"),
        ("sm_80_bf16_gelu", "cu", "sm_80.bf16.128x128x32.2x2.s3.nn.bias_gelu"),
        ("sm_90a_bf16", "cu", "sm_90a.bf16.64x64x64.g1.s6.nn"),
        ("sm_100a_f16", "cu", "sm_100a.f16.128x64x64.g2.s4.nn"),
        ("gfx90a_bf16", "hip", "gfx90a.bf16.64x64x32.2x2.s2.nn"),
        ("gfx1100_attention", "hip", "gfx1100.f16.attention.64.q64.k32.w4.s1.all"),
        ("sm_80_attention", "cu", "sm_80.bf16.attention.128.q128.k64.w8.s2.causal"),
        ("sm_80_parts", "cu", "sm_80.f16.16x64x64.1x2.s4.nn.parts"),
        ("sm_80_blocks", "cu", "sm_80.f16.64x64x32.2x2.s4.nt.u4_blocks"),
        ("gfx1100_gated", "hip", "gfx1100.bf16.64x64x32.2x2.s2.nn.gated"),
        ("apple7_f32", "metal", "apple7.f32.64x64x16.2x2.s2.nn.f16_batch"),
        ("sm_80_conv_parts", "cu", "sm_80.f16.16x64x64.1x2.s4.conv3x3.nt.parts"),
        ("sm_80_conv", "cu", "sm_80.f16.64x64x32.2x2.s4.conv3x3.nt.groups"),
        ("apple7_f16", "metal", "apple7.f16.64x64x16.2x2.s2.nt"),
        ("coop16_f16", "wgsl", "coop16.f16.64x64x32.2x2.s2.nt"),
    ] {
        let (_, program) = all.iter().find(|(name, _)| name == wanted).expect("a program of this name");
        compare(&format!("{file}.tile"), &program.to_string());
        compare(&format!("{file}.expanded.tile"), &expand(program).to_string());
        compare(&format!("{file}.{extension}"), &source(program, "k").unwrap());
    }
}
