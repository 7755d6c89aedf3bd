//! Kernels with constant sizes: they give the bits of those whose sizes are uniforms, and do no more for it.

mod common;

use std::sync::Arc;

use common::{native, processor, try_module, words};
use rlx_ir::op::DataFormat;
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{Case, random_graph};
use rlx_ir::{DType, Dim, DimBinding, Graph, LirModule, Op, OpKind, Shape, sym};
use rlx_kernel::interp::{Executable, Sample};
use rlx_kernel::ir::{BinOp, Inst, Stmt};
use rlx_kernel::{Kernel, KernelTarget, UniformArg, compile_step, step_variants};

/// What the variants are called.
const SIZES: &str = ".sizes";

/// Cases of each op; all of them with `RLX_TEST_ALL`.
fn cases() -> u64 {
    if std::env::var("RLX_TEST_ALL").is_ok_and(|v| v == "1") { 60 } else { 6 }
}

/// Each step by the variant `at` of those with constant sizes, or the last there is.
fn with_sizes(names: &[String], at: usize) -> usize {
    let of_sizes: Vec<usize> = (0..names.len()).filter(|&i| names[i].ends_with(SIZES)).collect();
    of_sizes.get(at).or(of_sizes.last()).copied().unwrap_or(0)
}

/// The variant that it is made of.
fn without_sizes(names: &[String], at: usize) -> usize {
    let of = names[with_sizes(names, at)].strip_suffix(SIZES).map(str::to_owned);
    names.iter().position(|name| Some(name) == of.as_ref()).unwrap_or(0)
}

/// How many variants with constant sizes the steps of a module have at most.
fn most(module: &LirModule, target: &KernelTarget) -> usize {
    let of = |names: Vec<String>| names.iter().filter(|name| name.ends_with(SIZES)).count();
    module.steps.iter().map(|step| of(step_variants(step, module, target).unwrap())).max().unwrap_or(0)
}

/// Compares one of a module's variants with constant sizes to what it is made of: bits, and what they ask of a GPU.
fn compare(
    module: &Arc<LirModule>,
    bindings: &Bindings,
    target: &KernelTarget,
    at: usize,
) -> Result<(), String> {
    let of = |choose: fn(&[String], usize) -> usize| {
        Executable::choosing(Arc::clone(module), target, |names| choose(names, at)).map_err(|e| e.to_string())
    };
    let (generic, own) = (of(without_sizes)?, of(with_sizes)?);
    let bits = |executable: &Executable| match executable.run(bindings) {
        Ok(values) => Ok(values.iter().map(|v| v.encode()).collect::<Vec<_>>()),
        Err(e) => Err(e.to_string()),
    };
    if bits(&generic) != bits(&own) {
        return Err("other bits".into());
    }
    let counted = |executable: &Executable| executable.count(&DimBinding::new(), Sample(3)).unwrap();
    for (generic, own) in counted(&generic).iter().zip(&counted(&own)) {
        for ((name, most), (_, is)) in generic.counters.costs().iter().zip(own.counters.costs()) {
            if is > *most {
                return Err(format!("{name} of {:?} grew from {most} to {is}", own.kernel));
            }
        }
    }
    Ok(())
}

#[test]
fn every_op_has_the_same_bits_with_constant_sizes() {
    let (mut ran, mut wrong) = (0, Vec::new());
    for target in [native(), words(), processor()] {
        for &kind in OpKind::ALL {
            for seed in 0..cases() {
                let (graph, bindings) = Case::random(kind, seed).graph();
                let Ok(module) = try_module(&graph, &target) else { continue };
                let count = most(&module, &target);
                if count == 0 {
                    continue;
                }
                ran += 1;
                let at = seed as usize % count;
                if let Err(e) = compare(&module, &bindings, &target, at) {
                    wrong.push(format!("{} {kind} seed {seed}: {e}", target.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {ran} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(ran > 60 * cases(), "only {ran} ran");
}

#[test]
fn graphs_have_the_same_bits_with_constant_sizes() {
    let mut ran = 0;
    for seed in 0..4 * cases() {
        let (graph, bindings) = random_graph(seed, 12);
        for target in [native(), words()] {
            let Ok(module) = try_module(&graph, &target) else { continue };
            let count = most(&module, &target).max(1);
            if let Err(e) = compare(&module, &bindings, &target, seed as usize % count) {
                panic!("{} seed {seed}: {e}\n{graph}", target.name);
            }
            ran += 1;
        }
    }
    assert!(ran > 4 * cases(), "only {ran} ran");
}

fn convolution(width: Dim) -> Graph {
    let mut graph = Graph::new("conv");
    let x = graph.input(
        "x",
        Shape::from_dims(
            &[2, 8, 12].map(Dim::Static).into_iter().chain([width]).collect::<Vec<_>>(),
            DType::F32,
        ),
    );
    let w = graph.input("w", Shape::new(&[12, 8, 3, 3], DType::F32));
    let (strides, pads, dilations) = (vec![1; 2], vec![1; 4], vec![1; 2]);
    let op = Op::Conv { strides, pads, dilations, groups: 1, format: DataFormat::ChannelsFirst };
    let y = graph.try_add(op, &[x, w]).unwrap();
    graph.set_outputs(vec![y]);
    graph
}

/// Divisions and remainders by what is no constant, in a kernel's text.
fn divisions(kernel: &Kernel) -> usize {
    let (mut constants, mut count) = (std::collections::HashSet::new(), 0);
    kernel.for_each_stmt(&mut |s| match s {
        Stmt::Let(v, Inst::Const(_)) => _ = constants.insert(*v),
        Stmt::Let(_, Inst::Binary(BinOp::Div | BinOp::Rem, _, by)) => {
            count += usize::from(!constants.contains(by));
        }
        _ => {}
    });
    count
}

#[test]
fn sizes_are_constants_where_all_are_known() {
    let target = native();
    let module = try_module(&convolution(Dim::Static(14)), &target).unwrap();
    let step = &module.steps[0];
    let names = step_variants(step, &module, &target).unwrap();
    assert_eq!(names.iter().filter(|name| name.ends_with(SIZES)).count() * 2, names.len(), "{names:?}");
    for at in 0..names.len() / 2 {
        let generic = compile_step(step, &module, &target, at).unwrap();
        let own = compile_step(step, &module, &target, at + names.len() / 2).unwrap();
        let (generic, own) = (&generic[0], &own[0]);
        let divided = [generic, own].map(|launch| divisions(&launch.kernel));
        assert!(divided[0] > 0 && divided[1] == 0, "{}: {divided:?}", names[at]);
        // Where buffers start within their bindings remains a uniform, and it is the only one.
        assert!(own.uniforms.iter().all(|u| matches!(u, UniformArg::Base { .. })), "{:?}", own.uniforms);
        assert_eq!(own.uniforms.len(), own.kernel.uniforms.len());
        assert!(generic.uniforms.len() > own.uniforms.len());
        assert_eq!((&generic.bindings, generic.groups), (&own.bindings, own.groups));
    }
    // Of open sizes there are none.
    let module = try_module(&convolution(Dim::Dynamic(sym::named("width"))), &target).unwrap();
    assert_eq!(most(&module, &target), 0);
}

/// Tuning measures the first 16 variants of a step without predictions (`rlx_select::tuning`). No step has many more, and those behind are the least promising.
#[test]
fn what_is_beyond_sixteen_variants_has_no_workgroup_memory() {
    for dtype in [DType::F32, DType::F16] {
        let mut graph = Graph::new("matmul");
        let [x, w] = ["x", "w"].map(|name| graph.input(name, Shape::new(&[512, 512], dtype)));
        let y = graph.try_add(Op::MatMul, &[x, w]).unwrap();
        graph.set_outputs(vec![y]);
        let target = native();
        let module = try_module(&graph, &target).unwrap();
        let names = step_variants(&module.steps[0], &module, &target).unwrap();
        assert_eq!(names[16..], ["direct16x64.4x4.sizes", "serial.sizes"], "{dtype}: {names:?}");
    }
}
