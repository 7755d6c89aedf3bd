//! The renderers: every kernel the schedules make is valid WGSL, and a few are compared with golden files in both
//! languages. `RLX_BLESS=1 cargo test -p rlx-kernel --test render` writes the files anew.

mod common;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use common::{native, try_compiled, words};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use rlx_ir::op::{Activation, BinaryOp, CmpOp, DataFormat, ReduceOp};
use rlx_ir::testing::{Case, random_graph};
use rlx_ir::{DType, ErrorKind, Graph, Op, OpKind, Shape};
use rlx_kernel::render::{WgslOptions, cuda, wgsl};
use rlx_kernel::{Kernel, KernelTarget};

/// Why the WGSL of a kernel is not valid.
fn invalid(kernel: &Kernel) -> Option<String> {
    let source = wgsl(kernel, WgslOptions::default()).unwrap_or_else(|e| panic!("{e}\n{kernel}"));
    let module = match naga::front::wgsl::parse_str(&source) {
        Ok(module) => module,
        Err(e) => return Some(format!("{}\n{source}", e.emit_to_string(&source))),
    };
    let checked = Validator::new(ValidationFlags::all(), Capabilities::empty()).validate(&module);
    checked.err().map(|e| format!("{}\n{source}", e.emit_to_string(&source)))
}

#[test]
fn every_kernel_is_valid_wgsl() {
    let target = words();
    let mut seen = HashSet::new();
    let mut check = |graph: &Graph| {
        let executable = match try_compiled(graph, &target) {
            Ok(executable) => executable,
            Err(e) if e.kind() == ErrorKind::Unsupported => return,
            Err(e) => panic!("{e}\n{graph}"),
        };
        for launch in executable.launches() {
            if seen.insert(launch.kernel.hash())
                && let Some(why) = invalid(&launch.kernel)
            {
                panic!("{why}\n{}", launch.kernel);
            }
        }
    };
    for &kind in OpKind::ALL {
        (0..20).for_each(|seed| check(&Case::random(kind, seed).graph().0));
    }
    (0..40).for_each(|seed| check(&random_graph(seed, 12).0));
    assert!(seen.len() > 300, "only {} kernels", seen.len());
}

/// A few steps, by name.
fn examples() -> Vec<(&'static str, Graph)> {
    let f32s = |dims: &[usize]| Shape::new(dims, DType::F32);
    let mut all = Vec::new();
    let mut add = |name, op: Op, shapes: &[Shape], relu: bool| {
        let mut g = Graph::new(name);
        let ids: Vec<_> = shapes.iter().enumerate().map(|(i, s)| g.input(format!("x{i}"), s.clone())).collect();
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
    all
}

fn kernels(graph: &Graph, target: &KernelTarget) -> Vec<Arc<Kernel>> {
    let executable = try_compiled(graph, target).unwrap_or_else(|e| panic!("{e}"));
    executable.launches().map(|l| l.kernel.clone()).collect()
}

fn compare(file: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    if std::env::var_os("RLX_BLESS").is_some() {
        std::fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        return;
    }
    let want = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(want == text, "{file} is out of date; RLX_BLESS=1 writes it anew:\n{text}");
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
        let printed: String = kernels(&graph, &native()).iter().map(|k| k.to_string()).collect();
        compare(&format!("{name}.kernel"), &printed);
    }
}

#[test]
fn a_renderer_refuses_what_its_language_lacks() {
    let (_, graph) = examples().remove(2);
    let kernel = kernels(&graph, &native()).remove(0);
    let e = wgsl(&kernel, WgslOptions::default()).unwrap_err();
    assert!(e.to_string().contains("emulate"), "{e}");
}

#[test]
fn buffers_can_all_be_declared_for_writing() {
    let (_, graph) = examples().remove(0);
    let kernel = kernels(&graph, &words()).remove(0);
    let shader = wgsl(&kernel, WgslOptions { read_write: true }).unwrap();
    assert!(!shader.contains("storage, read>"), "{shader}");
}
