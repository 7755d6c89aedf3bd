//! Which devices the tests run on, and running a graph on one of them.
//!
//! `RLX_TEST_DEVICES=vulkan,opengl` says which devices must be there: their absence is then a failure. Without
//! it, a device that is absent is a named skip.

use std::sync::Arc;

use rlx_backend::{Backend, ExecutableGraph};
use rlx_driver::Device;
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{difference, tolerance};
use rlx_ir::{DimBinding, Graph, Result, Value, Weight};
use rlx_opt::{CompileOptions, CompilePipeline};
use rlx_wgpu::{Lowered, WgpuBackend};

/// The backend of `device`, or a named skip.
///
/// # Panics
/// When the device is absent and `RLX_TEST_DEVICES` names it.
pub fn device(device: Device) -> Option<WgpuBackend> {
    let backend = WgpuBackend::new(device);
    match backend.probe() {
        Ok(()) => Some(backend),
        Err(missing) => {
            let required = std::env::var("RLX_TEST_DEVICES").unwrap_or_default();
            let named = required.split(',').any(|name| name.parse() == Ok(device));
            assert!(!named, "RLX_TEST_DEVICES names {device}: {missing}");
            println!("@skip 1 {device}: {missing}");
            None
        }
    }
}

pub fn vulkan() -> Option<WgpuBackend> {
    device(Device::Vulkan)
}

/// The same device under lower limits.
pub fn lowered(limits: Lowered) -> Option<WgpuBackend> {
    vulkan().map(|backend| backend.with_limits(limits))
}

/// Whether everything runs (`RLX_TEST_ALL=1`, set by `cargo xtask test --all`), or what fits the test command.
pub fn all() -> bool {
    std::env::var("RLX_TEST_ALL").is_ok_and(|v| v == "1")
}

pub fn compile(graph: &Graph, backend: &WgpuBackend) -> Result<Box<dyn ExecutableGraph>> {
    let options = CompileOptions::default();
    let pipeline = CompilePipeline::new(backend.target(&options)?, options.clone());
    backend.compile(Arc::new(pipeline.compile(graph)?.lir), &options)
}

/// Sets the parameters.
pub fn set_params(exec: &mut dyn ExecutableGraph, bindings: &Bindings) -> Result<()> {
    let lir = exec.lir().clone();
    for (i, slot) in lir.params.iter().enumerate() {
        let value = bindings.param(&slot.name).expect("the test gives every parameter");
        exec.set_param(i, Arc::new(Weight::owned(value.dtype, &value.dims, value.encode())?))?;
    }
    Ok(())
}

/// Runs with the parameters it has; the symbols' values are taken from the inputs' dimensions.
pub fn run(exec: &mut dyn ExecutableGraph, bindings: &Bindings) -> Result<Vec<Vec<u8>>> {
    let lir = exec.lir().clone();
    let values: Vec<&Value> = lir
        .inputs
        .iter()
        .map(|slot| bindings.input(&slot.name).expect("the test gives every input"))
        .collect();
    let bytes: Vec<Vec<u8>> = values.iter().map(|v| v.encode()).collect();
    let nodes: Vec<&rlx_ir::Node> = lir.graph.inputs().collect();
    let given = nodes.iter().filter_map(|n| match &n.op {
        rlx_ir::Op::Input { name } => bindings.input(name).map(|v| (*n, v.dims.as_slice())),
        _ => None,
    });
    let bound: DimBinding = oracle::bind_shapes(given)?;
    let dims: Vec<i64> = lir.symbols.iter().map(|&s| bound.get(s).expect("every symbol") as i64).collect();
    exec.run(&&bytes[..], &dims)?;
    (0..lir.outputs.len()).map(|i| exec.output(i).map(<[u8]>::to_vec)).collect()
}

/// How one run differs from the oracle.
pub fn disagreement(graph: &Graph, bindings: &Bindings, exec: &mut dyn ExecutableGraph) -> Option<String> {
    let want = oracle::evaluate(graph, bindings).unwrap_or_else(|e| panic!("{e}\n{graph}"));
    let got = match run(exec, bindings) {
        Ok(got) => got,
        Err(e) => return Some(e.to_string()),
    };
    want.iter().zip(&got).find_map(|(want, got)| {
        difference(want, &Value::decode(want.dtype, &want.dims, got), tolerance(want.dtype))
    })
}

/// Compiles, sets the parameters, runs, compares.
pub fn check(
    graph: &Graph,
    bindings: &Bindings,
    backend: &WgpuBackend,
) -> std::result::Result<(), rlx_ir::Error> {
    let mut exec = compile(graph, backend)?;
    set_params(&mut *exec, bindings)?;
    if let Some(what) = disagreement(graph, bindings, &mut *exec) {
        panic!("{what}\n{graph}\n{}", exec.lir());
    }
    Ok(())
}
