//! Running a graph on the CPU backend through the whole pipeline, and comparing with the oracle.
#![allow(dead_code)] // Each test uses a part of it.

use std::sync::Arc;

use rlx_backend::{Backend, ExecutableGraph};
use rlx_cpu::CpuBackend;
use rlx_cpu::isa::Isa;
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{Case, Gen, Tolerance, difference, tolerance};
use rlx_ir::{DType, DimBinding, Graph, Result, Shape, Value, Weight};
use rlx_opt::{CompileOptions, CompilePipeline, FusionOptions};

/// Options without any fusion.
pub fn unfused() -> CompileOptions {
    let off = FusionOptions { elementwise: false, epilogue: false, producers: false, composites: false };
    CompileOptions::default().fusion_opts(off)
}

/// Backends for every instruction set of this processor, one thread each, the best one with bf16 products where those
/// are not its way already, and the best one on two threads.
pub fn backends() -> Vec<(String, CpuBackend)> {
    let one = |isa: Isa| {
        let backend = CpuBackend::new().with_isa(isa).with_threads(1).expect("a pool of one thread");
        (format!("{} on 1 thread", isa.kind()), backend)
    };
    let mut all: Vec<_> = Isa::available().into_iter().map(one).collect();
    let products = Isa::detect().with_bf16_products();
    all.extend((products != Isa::detect()).then(|| one(products)));
    let best = CpuBackend::new().with_isa(Isa::detect()).with_threads(2).expect("a pool of two threads");
    all.push((format!("{} on 2 threads", Isa::detect().kind()), best));
    all
}

/// A shape of f32.
pub fn f32s(dims: &[usize]) -> Shape {
    Shape::new(dims, DType::F32)
}

/// Random values in -1..1.
pub fn values(seed: u64, dims: &[usize]) -> Value {
    Gen::new(seed).value(DType::F32, dims, -1.0..1.0)
}

/// A case as a graph of which input number 1, the weights, is a parameter.
pub fn with_weights(case: &Case) -> (Graph, Bindings) {
    let (mut graph, mut bindings) = (Graph::new("with weights"), Bindings::default());
    let mut ids = Vec::new();
    for (i, value) in case.inputs.iter().enumerate() {
        ids.push(if i == 1 {
            bindings.set_param("w", value.clone());
            graph.param("w", value.shape())
        } else {
            bindings.set_input(format!("x{i}"), value.clone());
            graph.input(format!("x{i}"), value.shape())
        });
    }
    let first = graph.try_add(case.op.clone(), &ids).unwrap();
    let results = (0..graph.node(first).results().len()).map(|i| graph.result(first, i).unwrap()).collect();
    graph.set_outputs(results);
    (graph, bindings)
}

/// Runs `graph` on every backend, fused and not, against the oracle.
pub fn check(graph: &Graph, bindings: &Bindings, dims: &DimBinding) {
    rlx_ir::verify_ok(graph).unwrap();
    let want = oracle(graph, bindings);
    for (name, backend) in backends() {
        for options in [CompileOptions::default(), unfused()] {
            let mut exec = compile(graph, &backend, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
            let got = run(&mut *exec, bindings, dims).unwrap_or_else(|e| panic!("{name}: {e}"));
            if let Some(difference) = against_oracle(&want, &got) {
                panic!("{name}: {difference}\n{graph}\n{}", exec.lir());
            }
        }
    }
}

/// Compiles for the CPU.
pub fn compile(
    graph: &Graph,
    backend: &CpuBackend,
    options: &CompileOptions,
) -> Result<Box<dyn ExecutableGraph>> {
    let pipeline = CompilePipeline::new(backend.target(options)?, options.clone());
    let lir = pipeline.compile(graph)?.lir;
    backend.compile(Arc::new(lir), options)
}

/// Sets parameters and runs once; `dims` are the symbols' values.
pub fn run(exec: &mut dyn ExecutableGraph, bindings: &Bindings, dims: &DimBinding) -> Result<Vec<Vec<u8>>> {
    let lir = exec.lir().clone();
    for (i, slot) in lir.params.iter().enumerate() {
        let value = bindings.param(&slot.name).expect("the test gives every parameter");
        exec.set_param(i, Arc::new(Weight::owned(value.dtype, &value.dims, value.encode())?))?;
    }
    run_again(exec, bindings, dims)
}

/// Runs with the parameters it has.
pub fn run_again(
    exec: &mut dyn ExecutableGraph,
    bindings: &Bindings,
    dims: &DimBinding,
) -> Result<Vec<Vec<u8>>> {
    let lir = exec.lir().clone();
    let inputs: Vec<Vec<u8>> = lir
        .inputs
        .iter()
        .map(|slot| bindings.input(&slot.name).expect("the test gives every input").encode())
        .collect();
    let dims: Vec<i64> = lir.symbols.iter().map(|&s| dims.get(s).expect("every symbol") as i64).collect();
    exec.run(&&inputs[..], &dims)?;
    (0..lir.outputs.len()).map(|i| exec.output(i).map(<[u8]>::to_vec)).collect()
}

/// Compares one run with the oracle; what differs, described.
pub fn against_oracle(want: &[Value], got: &[Vec<u8>]) -> Option<String> {
    against_oracle_within(want, got, |t| t)
}

/// As [`against_oracle`], with another tolerance made of the usual one.
pub fn against_oracle_within(
    want: &[Value],
    got: &[Vec<u8>],
    change: impl Fn(Tolerance) -> Tolerance,
) -> Option<String> {
    want.iter().zip(got).enumerate().find_map(|(i, (want, got))| {
        let got = Value::decode(want.dtype, &want.dims, got);
        difference(want, &got, change(tolerance(want.dtype))).map(|d| format!("output {i}: {d}"))
    })
}

/// The oracle's outputs.
pub fn oracle(graph: &Graph, bindings: &Bindings) -> Vec<Value> {
    oracle::evaluate(graph, bindings).unwrap_or_else(|e| panic!("the oracle rejects the case: {e}\n{graph}"))
}
