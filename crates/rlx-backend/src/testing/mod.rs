//! What tests of backends share: graphs and models run and compared ([`compile`], [`run`], [`disagreement`], [`compile_model`],
//! [`golden`]), every op and random graphs against the oracle ([`OpCases`], [`random_graphs`]), times of steps ([`timing`]), and, as checks, [`faults`] that every
//! backend must report and what it must reject.
//!
//! Anybody can make a module and hand any bytes to an executable, in safe code. A backend gives an error or a result for
//! each of them; what it must not do is crash, read memory that is not the module's, or take bytes for more than they are.

mod agreement;
pub mod faults;
pub mod timing;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use agreement::{OpCases, TypedCases, agrees, random_graphs, report};

use rlx_ir::lir::LirModule;
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{Gen, damaged_module, difference, random_graph, random_symbolic_graph, tolerance};
use rlx_ir::{
    ConstData, DType, Dim, DimBinding, ErrorKind, Graph, GraphExt, Node, Op, Result, Shape, Value, Weight,
    sym,
};
use rlx_opt::lower::{live_ranges, used_symbols};
use rlx_opt::{CompileOptions, CompilePipeline};

use crate::{Backend, ExecutableGraph, InputSource};

/// The module that a graph compiles to for the backend's device, with default options.
///
/// # Errors
/// What the compiler reports.
pub fn lir_of(graph: &Graph, backend: &dyn Backend) -> Result<LirModule> {
    let options = CompileOptions::default();
    Ok(CompilePipeline::new(backend.target(&options)?, options).compile(graph)?.lir)
}

/// The module with what follows from its parts (symbols, live ranges) derived again; `None` where it names buffers that are
/// not there.
pub fn consistent(mut lir: LirModule) -> Option<LirModule> {
    let steps = lir.init.iter().chain(&lir.steps);
    let operands = steps.flat_map(|s| s.inputs.iter().chain(&s.outputs));
    let slots = lir.inputs.iter().chain(&lir.params).chain(&lir.outputs).map(|s| &s.operand);
    if !operands.chain(slots).all(|o| o.buffer.index() < lir.buffers.len()) {
        return None;
    }
    lir.symbols = used_symbols(&lir.inputs, &lir.buffers, &lir.steps, &lir.rules);
    lir.live_ranges = live_ranges(&lir.buffers, &lir.steps, &lir.outputs);
    Some(lir)
}

/// A random graph of some ops with values for it; every second seed makes one with symbols.
pub fn some_graph(seed: u64) -> (Graph, Bindings) {
    if seed.is_multiple_of(2) {
        return random_graph(seed, 8);
    }
    let (graph, all) = random_symbolic_graph(seed, 8);
    (graph, all[1].clone())
}

/// What became of modules with random damage.
#[derive(Debug, Default)]
pub struct Damage {
    /// How many ran, damage or not.
    pub ran: usize,
    /// How many were rejected, by kind of error.
    pub rejected: BTreeMap<&'static str, usize>,
    /// What the device reported of those that it failed on.
    pub faults: Vec<String>,
}

/// Compiles and runs modules of random graphs, made of `seeds`, each with `each` different damages.
///
/// # Panics
/// When a module that nothing was done to fails.
pub fn damaged_modules(backend: &dyn Backend, seeds: std::ops::Range<u64>, each: usize) -> Damage {
    damaged_modules_of(backend, seeds, each, some_graph)
}

/// As [`damaged_modules`], of graphs that `make` makes of seeds, with values for them.
///
/// # Panics
/// When a module that nothing was done to fails.
pub fn damaged_modules_of(
    backend: &dyn Backend,
    seeds: std::ops::Range<u64>,
    each: usize,
    make: impl Fn(u64) -> (Graph, Bindings),
) -> Damage {
    let (mut g, mut found) = (Gen::new(11), Damage::default());
    for seed in seeds {
        let (graph, bindings) = make(seed);
        let dims = dims_of(&graph, &bindings);
        let whole = lir_of(&graph, backend).and_then(|lir| {
            attempt(backend, lir.clone(), &bindings, &dims)?;
            Ok(lir)
        });
        let lir = match whole {
            Ok(lir) => lir,
            Err(e) if e.kind() == ErrorKind::Unsupported => continue,
            Err(e) => panic!("seed {seed}: {e}\n{graph}"),
        };
        for _ in 0..each {
            let damaged = damaged_module(&lir, &mut g);
            let mended = if g.chance(0.9) { consistent(damaged.clone()) } else { None };
            let damaged = mended.unwrap_or(damaged);
            match attempt(backend, damaged, &bindings, &dims) {
                Ok(()) => found.ran += 1,
                Err(e) => {
                    *found.rejected.entry(e.kind().name()).or_default() += 1;
                    found.faults.extend((e.kind() == ErrorKind::Device).then(|| e.to_string()));
                }
            }
        }
    }
    found
}

/// Compiles a module, sets its parameters and runs it with what the graph it came from takes.
fn attempt(backend: &dyn Backend, lir: LirModule, bindings: &Bindings, dims: &DimBinding) -> Result<()> {
    let mut exec = backend.compile(Arc::new(lir), &CompileOptions::default())?;
    let lir = Arc::clone(exec.lir());
    for (i, slot) in lir.params.iter().enumerate() {
        let Some(value) = bindings.param(&slot.name) else { continue };
        exec.set_param(i, Arc::new(Weight::owned(value.dtype, &value.dims, value.encode())?))?;
    }
    let inputs = lir.inputs.iter().map(|slot| bindings.input(&slot.name).map(|v| v.encode()));
    let inputs: Vec<Vec<u8>> = inputs.map(Option::unwrap_or_default).collect();
    let dims: Vec<i64> = lir.symbols.iter().map(|&s| dims.get(s).unwrap_or(3) as i64).collect();
    exec.run(&&inputs[..], &dims)?;
    (0..lir.outputs.len()).try_for_each(|i| exec.output(i).map(drop))
}

/// The values of the symbols, which the inputs' dimensions say.
fn dims_of(graph: &Graph, bindings: &Bindings) -> DimBinding {
    let nodes: Vec<&Node> = graph.inputs().collect();
    let given = nodes.iter().filter_map(|&n| match &n.op {
        Op::Input { name } => bindings.input(name).map(|v| (n, v.dims.as_slice())),
        _ => None,
    });
    oracle::bind_shapes(given).expect("inputs that fit their graph")
}

/// Says of itself what it likes.
struct Liar {
    bytes: Vec<u8>,
    handle: Option<usize>,
}

impl Liar {
    fn of(bytes: usize) -> Liar {
        Liar { bytes: vec![0; bytes], handle: None }
    }
}

impl InputSource for Liar {
    fn bytes(&self, _: usize) -> &[u8] {
        &self.bytes
    }

    fn handle(&self, _: usize) -> Option<usize> {
        self.handle
    }
}

/// `x + w` over `[seq, 8]`, or of four rows.
fn sum(backend: &dyn Backend, open: bool) -> Box<dyn ExecutableGraph> {
    let mut graph = Graph::new("sum");
    let rows = if open { Dim::Dynamic(sym::SEQ) } else { Dim::Static(4) };
    let shape = Shape::from_dims(&[rows, Dim::Static(8)], DType::F32);
    let (x, w) = (graph.input("x", shape.clone()), graph.param("w", shape.clone()));
    let y = graph.add(x, w);
    graph.set_outputs(vec![y]);
    let compiled =
        lir_of(&graph, backend).and_then(|lir| backend.compile(Arc::new(lir), &Default::default()));
    compiled.expect("a sum compiles")
}

fn weight(dtype: DType, elements: usize) -> Arc<Weight> {
    let bytes = vec![0; elements * dtype.size_bytes()];
    Arc::new(Weight::owned(dtype, &[elements], bytes).expect("as many bytes as elements"))
}

fn kind(result: Result<()>) -> Option<ErrorKind> {
    result.err().map(|e| e.kind())
}

/// Inputs and handles of another size than the run's are binding errors that name the input and the bytes it needs,
/// whatever the caller says of them.
///
/// # Panics
/// When the backend takes one.
pub fn rejects_inputs_of_another_size(backend: &dyn Backend) {
    for open in [false, true] {
        let mut exec = sum(backend, open);
        let dims: &[i64] = if open { &[4] } else { &[] };
        exec.set_param(0, weight(DType::F32, 32)).expect("a weight that fits");
        for bytes in [0, 1, 127, 129, 4096] {
            let rejected = exec.run(&Liar::of(bytes), dims);
            let e = rejected.expect_err("the input needs 128 bytes");
            assert_eq!(e.kind(), ErrorKind::Binding, "{bytes}: {e}");
            assert!(e.to_string().contains("\"x\"") && e.to_string().contains("128"), "{e}");
        }
        exec.run(&Liar::of(128), dims).expect("an input that fits");
        if exec.handles_mut().is_some() {
            rejects_handles_of_another_size(&mut *exec, dims);
        }
        if open {
            // The same bytes no longer do for more rows.
            assert_eq!(kind(exec.run(&Liar::of(128), &[5])), Some(ErrorKind::Binding));
        }
    }
}

fn rejects_handles_of_another_size(exec: &mut dyn ExecutableGraph, dims: &[i64]) {
    let set = |exec: &mut dyn ExecutableGraph, bytes: usize| {
        let handles = exec.handles_mut().expect("handles");
        handles.set(0, &vec![0; bytes]).expect("a handle's value");
    };
    set(exec, 16);
    for handle in [0, 16, 128, 1 << 40] {
        let rejected = exec.run(&Liar { bytes: Vec::new(), handle: Some(handle) }, dims);
        assert_eq!(kind(rejected), Some(ErrorKind::Binding), "a handle said to have {handle} bytes");
    }
    set(exec, 128);
    exec.run(&Liar { bytes: Vec::new(), handle: Some(128) }, dims).expect("a handle that fits");
}

/// Parameters of another size or type are binding errors: when they are set, or, where the size depends on a symbol, by the
/// next run.
///
/// # Panics
/// When the backend takes one.
pub fn rejects_parameters_of_another_size(backend: &dyn Backend) {
    let mut exec = sum(backend, false);
    for (dtype, elements) in
        [(DType::F32, 31), (DType::F32, 0), (DType::F32, 33), (DType::I32, 32), (DType::F64, 16)]
    {
        let e = exec.set_param(0, weight(dtype, elements)).expect_err("a weight that does not fit");
        assert_eq!(e.kind(), ErrorKind::Binding, "{e}");
        assert!(e.to_string().contains("\"w\""), "{e}");
    }
    assert_eq!(kind(exec.set_param(1, weight(DType::F32, 32))), Some(ErrorKind::Binding));
    let mut exec = sum(backend, true);
    let run =
        |exec: &mut dyn ExecutableGraph, rows: i64| kind(exec.run(&Liar::of(rows as usize * 32), &[rows]));
    exec.set_param(0, weight(DType::F32, 32)).expect("a size that some value of the symbol needs");
    let runs = [4, 5, 4].map(|rows| run(&mut *exec, rows));
    assert_eq!(runs, [None, Some(ErrorKind::Binding), None]);
    exec.set_param(0, weight(DType::F32, 16)).expect("a size that some value of the symbol needs");
    assert_eq!([4, 2].map(|rows| run(&mut *exec, rows)), [Some(ErrorKind::Binding), None]);
}

/// Compiles with default options.
///
/// # Errors
/// What the compiler or the backend reports.
pub fn compile(graph: &Graph, backend: &dyn Backend) -> Result<Box<dyn ExecutableGraph>> {
    backend.compile(Arc::new(lir_of(graph, backend)?), &CompileOptions::default())
}

/// Compiles an imported model for symbols of which some may be fixed, and gives it its weights.
///
/// # Panics
/// When the device does not compute it, or a weight is missing.
pub fn compile_model(
    graph: &Graph,
    weight: impl Fn(&str) -> Option<Arc<Weight>>,
    backend: &dyn Backend,
    fixed: DimBinding,
) -> Box<dyn ExecutableGraph> {
    let options = CompileOptions::default().dim_binding(fixed);
    let pipeline = CompilePipeline::new(backend.target(&options).expect("a target"), options.clone());
    let compiled = pipeline.compile(graph).unwrap_or_else(|e| panic!("{e}"));
    assert!(compiled.report.compile_ready, "{}", compiled.report);
    let lir = Arc::new(compiled.lir);
    let mut exec = backend.compile(Arc::clone(&lir), &options).unwrap_or_else(|e| panic!("{e}"));
    for (i, slot) in lir.params.iter().enumerate() {
        let weight = weight(&slot.name).unwrap_or_else(|| panic!("no weight {:?}", slot.name));
        exec.set_param(i, weight).unwrap_or_else(|e| panic!("{e}"));
    }
    exec
}

/// Sets the parameters.
///
/// # Errors
/// What the executable reports.
///
/// # Panics
/// When a parameter has no value.
pub fn set_params(exec: &mut dyn ExecutableGraph, bindings: &Bindings) -> Result<()> {
    let lir = exec.lir().clone();
    for (i, slot) in lir.params.iter().enumerate() {
        let value = bindings.param(&slot.name).expect("the test gives every parameter");
        exec.set_param(i, Arc::new(Weight::owned(value.dtype, &value.dims, value.encode())?))?;
    }
    Ok(())
}

/// Runs with the parameters it has; the symbols' values are taken from the inputs' dimensions.
///
/// # Errors
/// What the executable reports.
///
/// # Panics
/// When an input has no value.
pub fn run(exec: &mut dyn ExecutableGraph, bindings: &Bindings) -> Result<Vec<Vec<u8>>> {
    let lir = exec.lir().clone();
    let value = |name: &str| bindings.input(name).expect("the test gives every input");
    let bytes: Vec<Vec<u8>> = lir.inputs.iter().map(|slot| value(&slot.name).encode()).collect();
    let nodes: Vec<&Node> = lir.graph.inputs().collect();
    let given = nodes.iter().filter_map(|n| match &n.op {
        Op::Input { name } => bindings.input(name).map(|v| (*n, v.dims.as_slice())),
        _ => None,
    });
    let bound: DimBinding = oracle::bind_shapes(given)?;
    let dims: Vec<i64> = lir.symbols.iter().map(|&s| bound.get(s).expect("every symbol") as i64).collect();
    exec.run(&&bytes[..], &dims)?;
    (0..lir.outputs.len()).map(|i| exec.output(i).map(<[u8]>::to_vec)).collect()
}

/// How one run differs from the oracle, or why there is none.
///
/// # Panics
/// When the oracle cannot evaluate the graph.
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

/// Says that a golden of a model holds on a device, in the line that the test command counts.
#[allow(clippy::print_stdout)] // It is what a test prints.
pub fn golden_holds(device: &str, model: &str, golden: &str) {
    println!("@golden {device} {model} {golden}");
}

/// Runs on the inputs of a golden and compares with its outputs, those of the names `outputs`; `sizes` are the symbols' values. Gives
/// the largest error relative to the output's largest magnitude.
///
/// # Errors
/// What is wrong, in words.
pub fn golden(
    exec: &mut dyn ExecutableGraph,
    inputs: &[(String, ConstData)],
    expected: &[(String, ConstData)],
    outputs: &[String],
    sizes: &DimBinding,
) -> std::result::Result<f64, String> {
    let lir = Arc::clone(exec.lir());
    let find = |list: &[(String, ConstData)], name: &str| {
        let found = list.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
        found.ok_or_else(|| format!("{name} is not in the golden"))
    };
    let mut bytes = Vec::new();
    for slot in &lir.inputs {
        bytes.push(find(inputs, &slot.name)?.bytes().to_vec());
    }
    let size = |s: u32| sizes.get(s).map(|n| n as i64).ok_or_else(|| format!("no size for {}", sym::name(s)));
    let dims = lir.symbols.iter().map(|&s| size(s)).collect::<std::result::Result<Vec<i64>, _>>()?;
    exec.run(&&bytes[..], &dims).map_err(|e| e.to_string())?;
    let mut worst = 0f64;
    for (i, name) in outputs.iter().enumerate() {
        let Ok(want) = find(expected, name) else { continue };
        let want = want.value();
        let got = Value::decode(want.dtype, &want.dims, exec.output(i).map_err(|e| e.to_string())?);
        worst = worst.max(near(name, &want.to_f64(), &got.to_f64())?);
    }
    Ok(worst)
}

/// Whether each value is near what it should be, and all of them point the same way.
fn near(name: &str, want: &[f64], got: &[f64]) -> std::result::Result<f64, String> {
    let largest = want.iter().fold(1e-30f64, |m, v| m.max(v.abs()));
    let mut worst = 0f64;
    for (at, (w, g)) in want.iter().zip(got).enumerate() {
        let error = (w - g).abs();
        if error > 1e-3 * w.abs() + 1e-4 * largest || g.is_nan() != w.is_nan() {
            return Err(format!("{name}[{at}] is {g}, not {w}"));
        }
        worst = worst.max(error / largest);
    }
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let cosine = dot(want, got) / (dot(want, want) * dot(got, got)).sqrt();
    if cosine < 0.9999 { Err(format!("{name} has cosine {cosine}")) } else { Ok(worst) }
}
