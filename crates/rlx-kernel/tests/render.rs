//! The renderers: every kernel the schedules make is valid WGSL, and a few are compared with golden files in the
//! languages. `RLX_BLESS=1 cargo test -p rlx-kernel --test render` writes the files again.

mod common;

use std::cell::Cell;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use common::{apple, index_graphs, native, shorts, try_compiled, try_module, words};
use naga::valid::{Capabilities, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};
use rlx_ir::op::{Activation, BinaryOp, CmpOp, DataFormat, MaskKind, ReduceOp, Unseen};
use rlx_ir::testing::{AttentionShape, Case, Gen, random_attention, random_graph, random_paged_attention};
use rlx_ir::{DType, Dim, ErrorKind, Graph, Op, OpKind, Shape};
use rlx_kernel::build::Builder;
use rlx_kernel::interp::Executable;
use rlx_kernel::ir::Access;
use rlx_kernel::render::{Parameters, WgslOptions, cuda, hip, msl, wgsl};
use rlx_kernel::{Kernel, KernelTarget, compile_step, step_variants};

/// Why the WGSL of a kernel is not valid.
fn invalid(kernel: &Kernel) -> Option<String> {
    let source = wgsl(kernel, WgslOptions::default()).unwrap_or_else(|e| panic!("{e}\n{kernel}"));
    let module = match naga::front::wgsl::parse_str(&source) {
        Ok(module) => module,
        Err(e) => return Some(format!("{}\n{source}", e.emit_to_string(&source))),
    };
    let shorts = kernel.buffers.iter().any(|b| b.dtype == DType::U16);
    let mut capabilities = if shorts { Capabilities::SHADER_INT16 } else { Capabilities::empty() };
    capabilities.set(Capabilities::SUBGROUP, kernel.subgroup.is_some());
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    validator.subgroup_stages(ShaderStages::COMPUTE).subgroup_operations(SubgroupOperationSet::all());
    let checked = validator.validate(&module);
    checked.err().map(|e| format!("{}\n{source}", e.emit_to_string(&source)))
}

/// Calls `f` on every kernel that `target` makes of random cases and graphs, in every variant, once each.
fn for_every_kernel(target: &KernelTarget, seeds: u64, mut f: impl FnMut(&Kernel)) -> usize {
    let mut seen = HashSet::new();
    let mut visit = |graph: &Graph| {
        let module = match try_module(graph, target) {
            Ok(module) => module,
            Err(e) if e.kind() == ErrorKind::Unsupported => return,
            Err(e) => panic!("{e}\n{graph}"),
        };
        let (mut variant, most) = (0, Cell::new(1));
        while variant < most.get() {
            let choose = |variants: &[String]| {
                most.set(most.get().max(variants.len()));
                variant.min(variants.len() - 1)
            };
            let executable = match Executable::choosing(Arc::clone(&module), target, choose) {
                Ok(executable) => executable,
                Err(e) if e.kind() == ErrorKind::Unsupported => return,
                Err(e) => panic!("{e}\n{graph}"),
            };
            executable.launches().filter(|l| seen.insert(l.kernel.hash())).for_each(|l| f(&l.kernel));
            variant += 1;
        }
    };
    for &kind in OpKind::ALL {
        (0..seeds).for_each(|seed| visit(&Case::random(kind, seed).graph().0));
    }
    (0..2 * seeds).for_each(|seed| visit(&random_graph(seed, 12).0));
    // Of operands that are looked up in pages.
    for seed in 0..seeds.min(6) {
        let mut g = Gen::new(seed);
        let (groups, queries) = (g.size(1..=2), g.pick(&[1, 3, 17]));
        let shape =
            AttentionShape { batch: 2, kv_heads: 2, groups, queries, keys: 12, head_dim: 5, value_dim: 4 };
        visit(&random_paged_attention(&mut g, [DType::F32, DType::F16][seed as usize % 2], &shape, 4).0);
    }
    // Attention in heads of the usual sizes, and of the largest.
    for (seed, (size, dtype)) in (0..).zip([
        (32, DType::F32),
        (64, DType::F32),
        (128, DType::F32),
        (256, DType::F32),
        (64, DType::F16),
    ]) {
        let shape = AttentionShape {
            batch: 1,
            kv_heads: 1,
            groups: 2,
            queries: 40,
            keys: 50,
            head_dim: size,
            value_dim: size,
        };
        (0..3).for_each(|i| visit(&random_attention(&mut Gen::new(seed + 9 * i), dtype, &shape).graph().0));
    }
    visit(&open_product());
    visit(&large_sum());
    index_graphs().iter().for_each(&mut visit);
    seen.len()
}

/// Enough elements to be spread in every variant.
fn large_sum() -> Graph {
    let (mut g, shape) = (Graph::new("large"), Shape::new(&[300, 200], DType::F16));
    let (x, y) = (g.input("x", shape.clone()), g.input("y", shape.clone()));
    let z = g.binary(BinaryOp::Add, x, y, shape);
    g.set_outputs(vec![z]);
    g
}

/// A product of sizes known only at the run, which has every variant.
fn open_product() -> Graph {
    let [m, k, n] = ["m", "k", "n"].map(|name| Dim::Dynamic(rlx_ir::sym::named(name)));
    let mut g = Graph::new("open");
    let (x, y) = (Shape::from_dims(&[m, k], DType::F32), Shape::from_dims(&[k, n], DType::F32));
    let (x, y) = (g.input("x", x), g.input("y", y));
    let z = g.try_add(Op::MatMul, &[x, y]).unwrap();
    g.set_outputs(vec![z]);
    g
}

#[test]
fn every_kernel_is_valid_wgsl() {
    for (target, seeds, least) in [(words(), 20, 300), (shorts(), 6, 150)] {
        let count = for_every_kernel(&target, seeds, |kernel| {
            if let Some(why) = invalid(kernel) {
                panic!("{why}\n{kernel}");
            }
        });
        assert!(count > least, "only {count} kernels of {}", target.name);
    }
}

/// Where `RLX_CUDA_OUT` says, every kernel is left as a file for NVRTC.
#[test]
fn every_kernel_renders_as_cuda() {
    every_kernel_renders(&native(), cuda, "RLX_CUDA_OUT", "cu");
}

/// Where `RLX_HIP_OUT` says, every kernel is left as a file for clang.
#[test]
fn every_kernel_renders_as_hip() {
    every_kernel_renders(&native(), hip, "RLX_HIP_OUT", "hip");
}

/// Where `RLX_MSL_OUT` says, every kernel is left as a file for Metal's compiler.
#[test]
fn every_kernel_renders_as_msl() {
    every_kernel_renders(&apple(), msl, "RLX_MSL_OUT", "metal");
}

fn every_kernel_renders(
    target: &KernelTarget,
    render: fn(&Kernel, &str) -> rlx_ir::Result<String>,
    variable: &str,
    extension: &str,
) {
    let folder = std::env::var_os(variable).map(PathBuf::from);
    let count = for_every_kernel(target, 8, |kernel| {
        let code = render(kernel, "kernel").unwrap_or_else(|e| panic!("{e}\n{kernel}"));
        if let Some(folder) = &folder {
            let file = folder.join(format!("{}.{extension}", kernel.hash()));
            std::fs::write(&file, &code).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        }
    });
    assert!(count > 150, "only {count} kernels");
}

/// A few steps, by name.
fn examples() -> Vec<(&'static str, Graph)> {
    let f32s = |dims: &[usize]| Shape::new(dims, DType::F32);
    let mut all = Vec::new();
    let mut add = |name, op: Op, shapes: &[Shape], relu: bool| {
        let mut g = Graph::new(name);
        let ids: Vec<_> =
            shapes.iter().enumerate().map(|(i, s)| g.input(format!("x{i}"), s.clone())).collect();
        let mut y = g.try_add(op, &ids).unwrap_or_else(|e| panic!("{name}: {e}"));
        if relu {
            y = g.try_add(Op::Activation(Activation::Relu), &[y]).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        g.set_outputs(vec![y]);
        all.push((name, g));
    };
    add("add_relu", Op::Binary(BinaryOp::Add), &[f32s(&[8, 16]), f32s(&[16])], true);
    let halves = Shape::new(&[40], DType::F16);
    add("half_mul", Op::Binary(BinaryOp::Mul), &[halves.clone(), halves], false);
    let ints = Shape::new(&[40], DType::I64);
    add("int64_less", Op::Compare(CmpOp::Lt), &[ints.clone(), ints], false);
    add("matmul_relu", Op::MatMul, &[f32s(&[40, 50]), f32s(&[50, 60])], true);
    let rows = Op::Reduce { op: ReduceOp::Sum, axes: vec![1], keep_dim: false };
    add("row_sum", rows, &[f32s(&[4, 100])], false);
    add("softmax", Op::Softmax { axis: -1 }, &[f32s(&[4, 100])], false);
    let index = Shape::new(&[5], DType::I64);
    add("gather", Op::Gather { axis: 0 }, &[f32s(&[10, 6]), index], false);
    let conv = Op::Conv {
        strides: vec![1, 1],
        pads: vec![1; 4],
        dilations: vec![1, 1],
        groups: 1,
        format: DataFormat::ChannelsFirst,
    };
    add("conv", conv, &[f32s(&[1, 8, 10, 10]), f32s(&[16, 8, 3, 3]), f32s(&[16])], true);
    add("gelu", Op::Activation(Activation::Gelu), &[f32s(&[9])], false);
    let attention = Op::Attention {
        num_heads: 2,
        head_dim: 16,
        mask: MaskKind::Causal,
        window: None,
        scale: None,
        unseen: Unseen::Zero,
    };
    add("attention", attention, &[f32s(&[1, 40, 32]), f32s(&[1, 50, 32]), f32s(&[1, 50, 32])], false);
    all
}

fn kernels(graph: &Graph, target: &KernelTarget) -> Vec<Arc<Kernel>> {
    let executable = try_compiled(graph, target).unwrap_or_else(|e| panic!("{e}"));
    executable.launches().map(|l| l.kernel.clone()).collect()
}

/// The kernels with constant sizes of what is taken unmeasured.
fn kernels_with_sizes(graph: &Graph, target: &KernelTarget) -> Vec<Arc<Kernel>> {
    let module = try_module(graph, target).unwrap_or_else(|e| panic!("{e}"));
    let step = &module.steps[0];
    let names = step_variants(step, &module, target).unwrap_or_else(|e| panic!("{e}"));
    let Some(at) = names.iter().position(|name| *name == format!("{}.sizes", names[0])) else {
        return Vec::new();
    };
    let launches = compile_step(step, &module, target, at).unwrap_or_else(|e| panic!("{e}"));
    launches.into_iter().map(|launch| launch.kernel).collect()
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

#[test]
fn golden_files_hold() {
    for (name, graph) in examples() {
        let text = |target: &KernelTarget, render: &dyn Fn(&Kernel) -> String| {
            kernels(&graph, target).iter().map(|k| render(k)).collect::<Vec<_>>().join("\n")
        };
        let shader = text(&words(), &|k| wgsl(k, WgslOptions::default()).unwrap_or_else(|e| panic!("{e}")));
        compare(&format!("{name}.wgsl"), &shader);
        let code = text(&native(), &|k| cuda(k, name).unwrap_or_else(|e| panic!("{e}")));
        compare(&format!("{name}.cu"), &code);
        let code = text(&apple(), &|k| msl(k, name).unwrap_or_else(|e| panic!("{e}")));
        compare(&format!("{name}.metal"), &code);
        let printed: String = kernels(&graph, &native()).iter().map(|k| k.to_string()).collect();
        compare(&format!("{name}.kernel"), &printed);
        // The same kernels with constant sizes, where there are such.
        let with_sizes: String = kernels_with_sizes(&graph, &native())
            .iter()
            .map(|k| cuda(k, name).unwrap_or_else(|e| panic!("{e}")))
            .collect();
        if !with_sizes.is_empty() {
            compare(&format!("{name}.sizes.cu"), &with_sizes);
        }
    }
}

#[test]
fn a_renderer_rejects_what_its_language_lacks() {
    let (_, graph) = examples().remove(2);
    let kernel = kernels(&graph, &native()).remove(0);
    let e = wgsl(&kernel, WgslOptions::default()).unwrap_err();
    assert!(e.to_string().contains("emulate"), "{e}");
    // Metal's library has the function, and does not round it as accurately as it has to be.
    let (_, gelu) = examples().remove(8);
    let e = msl(&kernels(&gelu, &native()).remove(0), "gelu").unwrap_err();
    assert!(e.to_string().contains("function erf"), "{e}");
    let mut doubles = Graph::new("doubles");
    let x = doubles.input("x", Shape::new(&[4], DType::F64));
    let y = doubles.try_add(Op::Activation(Activation::Neg), &[x]).unwrap();
    doubles.set_outputs(vec![y]);
    let e = msl(&kernels(&doubles, &native()).remove(0), "doubles").unwrap_err();
    assert!(e.to_string().contains("f64"), "{e}");
    let e = try_compiled(&doubles, &apple()).err().unwrap();
    assert_eq!(e.kind(), ErrorKind::Unsupported);
}

/// wgpu's layouts give the buffers of a group the indices in which they stand.
/// All parameters of a kernel together are at most 4,096 bytes.
#[test]
fn uniforms_are_given_by_value_unless_there_are_too_many() {
    let kernel = |uniforms: usize| {
        let mut b = Builder::new("last", 64);
        let y = b.buffer("y", DType::I32, Access::Write);
        let last = (0..uniforms).map(|i| b.uniform(format!("u{i}"), 0, 9)).last().unwrap();
        let at = b.int(0);
        b.store(y, at, last);
        b.finish()
    };
    // With the step's number 1,020 words, and the address of a buffer.
    for (uniforms, by_value) in [(1, true), (1019, true), (1020, false)] {
        let kernel = kernel(uniforms);
        assert_eq!(Parameters::of(&kernel).by_value(), by_value, "{uniforms}");
        for text in [cuda(&kernel, "k").unwrap(), hip(&kernel, "k").unwrap()] {
            let words = (uniforms + 1).next_multiple_of(4);
            assert_eq!(text.contains(&format!("struct Uniforms {{ int of[{words}];")), by_value);
            assert_eq!(text.contains("k(const Uniforms u,"), by_value);
            assert_eq!(text.contains("k(const int* __restrict__ u,"), !by_value);
            assert!(text.contains(&format!("u[{}]", uniforms - 1)));
        }
    }
    let of = |uniforms, pointers| Parameters { uniforms, pointers }.by_value();
    // 2,048 and 2,048 bytes.
    assert!(of(511, 256) && !of(511, 257) && !of(515, 256));
}

#[test]
fn arguments_in_msl_have_the_indices_of_the_bindings() {
    for (name, graph) in examples() {
        for kernel in kernels(&graph, &apple()) {
            let code = msl(&kernel, name).unwrap();
            let head = code.split("kernel void").nth(1).unwrap().split(" {\n").next().unwrap();
            let bound = kernel.buffers.len() + 1 + usize::from(kernel.can_fail());
            for (i, argument) in head.split(",\n").take(bound).enumerate() {
                assert!(argument.contains(&format!("[[buffer({i})]]")), "{name}: {argument}");
            }
            assert_eq!(head.matches("[[buffer(").count(), bound, "{head}");
            let own = match kernel.subgroup {
                None => vec!["thread_index_in_threadgroup"],
                Some(_) => vec!["simdgroup_index_in_threadgroup", "thread_index_in_simdgroup"],
            };
            let places = [&own[..], &["threadgroup_position_in_grid", "threadgroups_per_grid"]].concat();
            let arguments: Vec<&str> = head.split(",\n").skip(bound).collect();
            assert_eq!(arguments.len(), places.len(), "{head}");
            assert!(arguments.iter().zip(places).all(|(a, place)| a.contains(place)), "{head}");
        }
    }
}

/// Metal's compiler is told to compute as written before it sees a float.
#[test]
fn arithmetic_in_msl_is_told_to_be_exact() {
    let (_, graph) = examples().remove(0);
    let code = msl(&kernels(&graph, &apple()).remove(0), "add_relu").unwrap();
    let before = code.split("float").next().unwrap();
    assert!(
        before.contains("#pragma METAL fp math_mode(safe)")
            && before.contains("#pragma METAL fp contract(off)")
    );
}

#[test]
fn every_index_can_be_bounded() {
    for (name, graph) in examples() {
        for kernel in kernels(&graph, &words()) {
            let checked = WgslOptions { checked: true, ..Default::default() };
            let shader = wgsl(&kernel, checked).unwrap();
            naga::front::wgsl::parse_str(&shader).unwrap_or_else(|e| panic!("{name}: {e}"));
            // Behind its declarations nothing is indexed without a bound, but for uniforms and faults.
            let body = shader.split("fn main").nth(1).unwrap();
            for at in body.match_indices('[').map(|(at, _)| at) {
                let before = body[..at].chars().last().unwrap();
                let bounded = body[at..].starts_with("[min(u32(");
                let counted = body[..at].ends_with("u") || before == ']' || body[..at].ends_with("fault");
                assert!(bounded || counted, "{name}: {}", &body[at.saturating_sub(20)..][..60]);
            }
        }
    }
}

#[test]
fn buffers_can_all_be_declared_for_writing() {
    let (_, graph) = examples().remove(0);
    let kernel = kernels(&graph, &words()).remove(0);
    let shader = wgsl(&kernel, WgslOptions { read_write: true, ..Default::default() }).unwrap();
    assert!(!shader.contains("storage, read>"), "{shader}");
}
