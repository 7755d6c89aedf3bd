//! What the tests share: targets, compiling, comparing with the oracle.
#![allow(dead_code)]

use std::cell::Cell;
use std::sync::Arc;

use rlx_ir::op::{ArgOp, ScatterOp};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{difference, tolerance};
use rlx_ir::{DType, Dim, Error, Graph, LirModule, Op, Shape, Value};
use rlx_kernel::interp::Executable;
use rlx_kernel::{DeviceLimits, KernelTarget, TypeSupport};
use rlx_opt::pipeline::PassContext;
use rlx_opt::{CompileOptions, CompilePipeline, KernelDispatchReport};

/// A device that has every type.
pub fn native() -> KernelTarget {
    KernelTarget::full("native")
}

/// A device with 32-bit types only.
pub fn words() -> KernelTarget {
    KernelTarget { types: TypeSupport::WGSL, ..KernelTarget::full("words") }
}

/// A device with 32-bit types, and 16-bit integers in buffers.
pub fn shorts() -> KernelTarget {
    KernelTarget { types: TypeSupport::WGSL_INT16, ..KernelTarget::full("shorts") }
}

/// A processor that runs kernels with 32-bit types only.
pub fn processor() -> KernelTarget {
    let words = words();
    let limits = DeviceLimits { subgroup: None, ..words.limits };
    KernelTarget { is_processor: true, name: "processor".into(), limits, ..words }
}

/// A device whose subgroups are of another size, or which has none that kernels use.
pub fn with_subgroups(subgroup: Option<u32>, target: KernelTarget) -> KernelTarget {
    KernelTarget { limits: DeviceLimits { subgroup, ..target.limits }, ..target }
}

/// A device with Metal's types and limits.
pub fn apple() -> KernelTarget {
    let limits = DeviceLimits {
        max_bindings: 30,
        max_workgroup: 1024,
        max_shared_bytes: 32 << 10,
        max_groups: 65_535,
        subgroup: Some(32),
    };
    KernelTarget::new("apple", TypeSupport::MSL, limits)
}

/// The graph compiled for the target.
pub fn try_module(graph: &Graph, target: &KernelTarget) -> Result<Arc<LirModule>, Error> {
    let pipeline = CompilePipeline::new(Arc::new(target.clone()), CompileOptions::default());
    Ok(Arc::new(pipeline.compile(graph)?.lir))
}

/// The module on the interpreter.
pub fn try_compiled(graph: &Graph, target: &KernelTarget) -> Result<Executable, Error> {
    Executable::new(try_module(graph, target)?, target)
}

/// How the target would compute each kind of node.
pub fn report(graph: &Graph, target: &KernelTarget) -> KernelDispatchReport {
    let options = CompileOptions::default();
    rlx_opt::report::analyze(graph, &PassContext { target, options: &options, is_body: false })
}

/// The module on the interpreter.
pub fn compiled(graph: &Graph, target: &KernelTarget) -> Executable {
    try_compiled(graph, target).unwrap_or_else(|e| panic!("{e}\n{graph}"))
}

/// How the interpreter's outputs differ from the oracle's.
pub fn disagreement(graph: &Graph, bindings: &Bindings, executable: &Executable) -> Option<String> {
    let want = oracle::evaluate(graph, bindings).unwrap_or_else(|e| panic!("{e}\n{graph}"));
    let got = match executable.run(bindings) {
        Ok(got) => got,
        Err(e) => return Some(e.to_string()),
    };
    want.iter().zip(&got).find_map(|(want, got)| difference(want, got, tolerance(want.dtype)))
}

/// Panics when the device and the oracle differ.
pub fn agree(graph: &Graph, bindings: &Bindings, target: &KernelTarget) {
    if let Some(what) = disagreement(graph, bindings, &compiled(graph, target)) {
        panic!("{}: {what}\n{graph}", target.name);
    }
}

/// The dimensions and the element type of an input.
type Input = (&'static [usize], DType);

/// The bits of each variant of the kernels there are, in all of which that number of variant is taken.
pub fn bits_of_variants(graph: &Graph, bindings: &Bindings, target: &KernelTarget) -> Vec<Vec<Vec<u8>>> {
    let module = try_module(graph, target).unwrap();
    let (mut results, mut variant, most) = (Vec::new(), 0, Cell::new(1));
    while variant < most.get() {
        let choose = |variants: &[String]| {
            most.set(most.get().max(variants.len()));
            variant.min(variants.len() - 1)
        };
        let executable = Executable::choosing(Arc::clone(&module), target, choose).unwrap();
        let result = executable.run(bindings).unwrap_or_else(|e| panic!("variant {variant}: {e}\n{graph}"));
        results.push(result.iter().map(Value::encode).collect());
        variant += 1;
    }
    results
}

/// Arg-reductions, top-k of rows that are sorted and of rows that are selected from, and scatters of many updates.
pub fn index_graphs() -> Vec<Graph> {
    let top = |k, largest| Op::TopK { k: Dim::Static(k), axis: 0, largest, sorted: true };
    let extreme = |op, axis, last| Op::ArgReduce { op, axis, keep_dim: false, last };
    let scatter = |reduction| Op::ScatterElements { axis: 0, reduction };
    let cases: [(Op, &[Input]); 9] = [
        (extreme(ArgOp::Max, 1, false), &[(&[3, 100], DType::F32)]),
        (extreme(ArgOp::Min, 0, true), &[(&[100, 20], DType::I64)]),
        (top(40, true), &[(&[200], DType::F32)]),
        (top(700, false), &[(&[700], DType::I64)]),
        (top(30, true), &[(&[1500], DType::F16)]),
        (top(1100, false), &[(&[2100], DType::F32)]),
        (scatter(ScatterOp::Set), &[(&[9, 2], DType::F32), (&[50, 2], DType::I32), (&[50, 2], DType::F32)]),
        (scatter(ScatterOp::Max), &[(&[9], DType::I64), (&[70], DType::I64), (&[70], DType::I64)]),
        (
            Op::ScatterNd { reduction: ScatterOp::Add },
            &[(&[9, 70], DType::F32), (&[40, 1], DType::I64), (&[40, 70], DType::F32)],
        ),
    ];
    let graph = |(op, inputs): (Op, &[Input])| {
        let mut graph = Graph::new("index");
        let shapes = inputs.iter().map(|(dims, dtype)| Shape::new(dims, *dtype));
        let ids: Vec<_> = shapes.zip(0..).map(|(shape, i)| graph.input(format!("x{i}"), shape)).collect();
        let y = graph.try_add(op, &ids).unwrap();
        let results = graph.node(y).results().len();
        let outputs = (0..results).map(|i| graph.result(y, i).unwrap()).collect();
        graph.set_outputs(outputs);
        graph
    };
    cases.into_iter().map(graph).collect()
}
