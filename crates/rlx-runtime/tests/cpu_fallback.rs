//! A device and the CPU together: what the device cannot compute, the CPU does, where the caller lets it.

use std::sync::{Arc, Mutex};

use rlx_backend::testing::{compile, disagreement, set_params};
use rlx_backend::whole_graph::GraphTarget;
use rlx_contract::{DEVICE, OracleBackend};
use rlx_ir::op::{Activation, CmpOp, ReduceOp};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{random_donating_graph, random_graph};
use rlx_ir::{
    DType, Dim, ErrorKind, Graph, GraphExt, LirModule, Op, OpKind, Result, Shape, Value, Weight, sym,
};
use rlx_opt::{Claim, Target};
use rlx_runtime::backend::{Backend, ExecutableGraph, InputSource, MemoryInfo};
use rlx_runtime::cost::{BackendCostModel, Work};
use rlx_runtime::{CompileOptions, Device, Session};
use rlx_select::DeviceBackend;

/// The oracle, without some ops. A run of it costs as much as it says.
#[derive(Clone)]
struct Npu {
    lacks: Vec<OpKind>,
    run_ns: f64,
}

struct Prices(f64);

impl BackendCostModel for Prices {
    fn name(&self) -> &str {
        "npu"
    }

    fn step_ns(&self, _: &Work) -> f64 {
        0.0
    }

    fn run_ns(&self, _: f64) -> f64 {
        self.0
    }
}

impl Backend for Npu {
    fn name(&self) -> &str {
        "npu"
    }

    fn probe(&self) -> Result<()> {
        Ok(())
    }

    fn target(&self, _: &CompileOptions) -> Result<Arc<dyn Target>> {
        let lacks = self.lacks.clone();
        Ok(Arc::new(GraphTarget::new("npu", move |node, _| match node.op.kind() {
            kind if lacks.contains(&kind) => Claim::No(format!("it has no {kind}")),
            _ => Claim::Native,
        })))
    }

    fn cost_model(&self) -> Option<Arc<dyn BackendCostModel>> {
        Some(Arc::new(Prices(self.run_ns)))
    }

    fn compile(&self, lir: Arc<LirModule>, options: &CompileOptions) -> Result<Box<dyn ExecutableGraph>> {
        OracleBackend.compile(lir, options)
    }
}

fn npu(lacks: &[OpKind], run_ns: f64) -> Session {
    Session::with_backend(DEVICE, Arc::new(Npu { lacks: lacks.to_vec(), run_ns }))
}

/// Rows of the graph: so many that each op takes longer than the step around it, on every machine.
const ROWS: usize = 3000;

/// `cumsum(exp(cumsum(x·w)))·v`.
fn graph() -> Graph {
    let f = |d: &[usize]| Shape::new(d, DType::F32);
    let mut g = Graph::new("sums");
    let (x, w, v) = (g.input("x", f(&[ROWS, 8])), g.param("w", f(&[8, 16])), g.param("v", f(&[16, 5])));
    let y = g.mm(x, w);
    let sums = || Op::Cumulative { op: ReduceOp::Sum, axis: 1, exclusive: false, reverse: false };
    let y = g.try_add(sums(), &[y]).unwrap();
    let y = g.exp(y);
    let y = g.try_add(sums(), &[y]).unwrap();
    let y = g.mm(y, v);
    g.set_outputs(vec![y]);
    g
}

fn numbers(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 37 + seed * 11) % 101) as f32 / 503.0 - 0.1).collect()
}

fn run(session: &Session) -> Vec<f32> {
    let mut compiled = session.compile(graph());
    compiled.set_param("w", &numbers(128, 1));
    compiled.set_param("v", &numbers(80, 2));
    compiled.run(&[("x", &numbers(ROWS * 8, 3))]).remove(0)
}

#[test]
fn without_leave_an_op_that_is_lacking_is_an_error_with_a_hint() {
    let error = npu(&[OpKind::Cumulative], 0.0).try_compile(graph()).unwrap_err();
    let error = rlx_ir::Error::from(error);
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("Cumulative"), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("--cpu-fallback")), "{error}");
}

#[test]
fn with_leave_the_cpu_does_what_is_lacking() {
    let session = npu(&[OpKind::Cumulative], 0.0).try_with_cpu_fallback().unwrap();
    assert!(session.has_cpu_fallback());
    let want = run(&Session::new(Device::Cpu));
    let found = run(&session);
    assert!(
        found.iter().zip(&want).all(|(a, b)| (a - b).abs() <= 1e-4 * b.abs().max(1.0)),
        "{found:?} {want:?}"
    );
    let options = CompileOptions::new();
    let compiled = session.compile(graph());
    let plan = session.split_plan(&compiled.lir().graph, &options).unwrap().unwrap();
    let devices: Vec<&str> = plan.parts.iter().map(|part| part.device.feature()).collect();
    assert_eq!(devices, ["webgpu", "cpu", "webgpu", "cpu", "webgpu"], "{plan}");
    // Four times a matrix of 16 columns.
    assert_eq!((plan.crossings.len(), plan.crossing_bytes()), (4, Some(4 * ROWS * 16 * 4)), "{plan}");
    assert_eq!(plan.unsupported.get(&OpKind::Cumulative), Some(&2));
    assert!(plan.to_string().contains("[3000, 16] f32, 192000 bytes"), "{plan}");
}

#[test]
fn a_part_that_does_not_pay_for_its_transfers_goes_to_the_cpu() {
    let session = npu(&[OpKind::Cumulative], 1e12).try_with_cpu_fallback().unwrap();
    let compiled = session.compile(graph());
    let plan = session.split_plan(&compiled.lir().graph, &CompileOptions::new()).unwrap().unwrap();
    let on_device = plan.parts.iter().filter(|part| part.device != Device::Cpu).count();
    assert_eq!(on_device, 1, "the caller asked for the device, so one part stays: {plan}");
    let (found, want) = (run(&session), run(&Session::new(Device::Cpu)));
    assert!(found.iter().zip(&want).all(|(a, b)| (a - b).abs() <= 1e-4 * b.abs().max(1.0)));
}

#[test]
fn random_graphs_agree_with_the_oracle_whatever_is_lacking() {
    let (mut checked, mut divided) = (0, 0);
    for seed in 0..120 {
        let (graph, bindings) =
            if seed % 3 == 0 { random_donating_graph(seed, 10) } else { random_graph(seed, 10) };
        let mut kinds: Vec<OpKind> = graph.nodes().iter().map(|node| node.op.kind()).collect();
        kinds.sort_unstable_by_key(|kind| kind.name());
        kinds.dedup();
        let lacks = kinds.into_iter().enumerate().filter(|(i, _)| (seed as usize + i).is_multiple_of(3));
        let lacks = lacks.map(|(_, kind)| kind).collect();
        let on = DeviceBackend::with_backend(DEVICE, Arc::new(Npu { lacks, run_ns: 0.0 }));
        let on = on.with_cpu_fallback(rlx_select::cost::cost_model).unwrap();
        let mut exec = match compile(&graph, on.backend()) {
            Ok(exec) => exec,
            Err(e) if e.kind() == ErrorKind::Unsupported => continue,
            Err(e) => panic!("seed {seed}: {e}\n{graph}"),
        };
        set_params(&mut *exec, &bindings).unwrap();
        for _ in 0..2 {
            if let Some(what) = disagreement(&graph, &bindings, &mut *exec) {
                panic!("seed {seed}: {what}\n{graph}");
            }
        }
        let plan = on.split_plan(&exec.lir().graph, &CompileOptions::new()).unwrap().unwrap();
        checked += 1;
        divided += usize::from(plan.parts.len() > 1);
    }
    assert!(checked >= 80 && divided >= 40, "{divided} of {checked} were divided");
}

/// Rows of `x` with an element above 0 are found (on the CPU), gathered and multiplied (on the device); of what is above 0 then as
/// many are found again. The last output mentions what was found and reads nothing of it.
fn counting() -> Graph {
    let [rows, places] = ["fallback.rows", "fallback.places"].map(|name| Dim::Dynamic(sym::named(name)));
    let add = |g: &mut Graph, op, inputs: &[_]| g.try_add(op, inputs).unwrap();
    let mut g = Graph::new("counting");
    let x = g.input("x", Shape::from_dims(&[Dim::Dynamic(sym::SEQ), Dim::Static(4)], DType::F32));
    let w = g.param("w", Shape::new(&[4, 3], DType::F32));
    let zero = g.constant(Value::float(DType::F32, &[], vec![0.0]).to_const());
    let most = add(&mut g, Op::Reduce { op: ReduceOp::Max, axes: vec![1], keep_dim: false }, &[x]);
    let above = add(&mut g, Op::Compare(CmpOp::Gt), &[most, zero]);
    let found = add(&mut g, Op::NonZero { count: rows }, &[above]);
    let found = add(&mut g, Op::Reshape { to: vec![rows] }, &[found]);
    let kept = add(&mut g, Op::Gather { axis: 0 }, &[x, found]);
    let product = add(&mut g, Op::MatMul, &[kept, w]);
    let tanh = add(&mut g, Op::Activation(Activation::Tanh), &[product]);
    let both = add(&mut g, Op::Concat { axis: 0 }, &[kept, x, kept]);
    let above = add(&mut g, Op::Compare(CmpOp::Gt), &[tanh, zero]);
    let again = add(&mut g, Op::NonZero { count: places }, &[above]);
    let numbers = add(&mut g, Op::Iota { to: vec![places], axis: 0, dtype: DType::F32 }, &[]);
    let numbers = add(&mut g, Op::Activation(Activation::Exp), &[numbers]);
    // Its part reads what has the size, and gives nothing that has it.
    let sum = add(&mut g, Op::Reduce { op: ReduceOp::Sum, axes: vec![0], keep_dim: false }, &[found]);
    g.set_outputs(vec![tanh, both, again, numbers, sum]);
    g
}

#[test]
fn what_a_run_finds_sizes_the_parts_behind_it() {
    let graph = counting();
    let on = |backend| {
        DeviceBackend::with_backend(DEVICE, backend).with_cpu_fallback(rlx_select::cost::cost_model)
    };
    for lacks in
        [&[OpKind::NonZero][..], &[OpKind::NonZero, OpKind::Iota], &[OpKind::NonZero, OpKind::MatMul]]
    {
        let on = on(Arc::new(Npu { lacks: lacks.to_vec(), run_ns: 0.0 })).unwrap();
        let mut exec = compile(&graph, on.backend()).unwrap_or_else(|e| panic!("{e}"));
        let plan = on.split_plan(&exec.lir().graph, &CompileOptions::new()).unwrap().unwrap();
        assert!(plan.parts.len() >= 4, "{plan}");
        for (seed, rows, shift) in
            [(1, 9, -0.2), (2, 9, -3.0), (3, 9, 3.0), (4, 9, -0.3), (5, 40, -0.4), (6, 0, 0.0)]
        {
            let x = numbers(rows * 4, seed).into_iter().map(|x| f64::from(x * 4.0 + shift)).collect();
            let w = numbers(12, 7).into_iter().map(f64::from).collect();
            let mut bindings = Bindings::default();
            bindings.set_input("x", Value::float(DType::F32, &[rows, 4], x).rounded());
            bindings.set_param("w", Value::float(DType::F32, &[4, 3], w).rounded());
            set_params(&mut *exec, &bindings).unwrap();
            if let Some(what) = disagreement(&graph, &bindings, &mut *exec) {
                panic!("without {lacks:?}, {rows} rows: {what}\n{plan}");
            }
            let want = oracle::evaluate(&graph, &bindings).unwrap();
            let symbols = exec.lir().data_symbols();
            let of = |name: &str| exec.found()[symbols.iter().position(|&s| s == sym::named(name)).unwrap()];
            assert_eq!(of("fallback.rows"), want[0].dims[0] as i64);
            assert_eq!(of("fallback.places"), want[2].dims[1] as i64);
            assert_eq!(exec.output(3).unwrap().len(), 4 * want[3].dims[0]);
        }
    }
}

/// A device that notes where the weights are that it is given.
struct Noting {
    npu: Npu,
    weights: Arc<Mutex<Vec<usize>>>,
}

impl Backend for Noting {
    fn name(&self) -> &str {
        self.npu.name()
    }

    fn probe(&self) -> Result<()> {
        Ok(())
    }

    fn target(&self, options: &CompileOptions) -> Result<Arc<dyn Target>> {
        self.npu.target(options)
    }

    fn cost_model(&self) -> Option<Arc<dyn BackendCostModel>> {
        self.npu.cost_model()
    }

    fn compile(&self, lir: Arc<LirModule>, options: &CompileOptions) -> Result<Box<dyn ExecutableGraph>> {
        Ok(Box::new(NotingGraph {
            inner: self.npu.compile(lir, options)?,
            weights: Arc::clone(&self.weights),
        }))
    }
}

struct NotingGraph {
    inner: Box<dyn ExecutableGraph>,
    weights: Arc<Mutex<Vec<usize>>>,
}

impl ExecutableGraph for NotingGraph {
    fn lir(&self) -> &Arc<LirModule> {
        self.inner.lir()
    }

    fn set_param(&mut self, index: usize, weight: Arc<Weight>) -> Result<()> {
        self.weights.lock().unwrap().push(Arc::as_ptr(&weight).addr());
        self.inner.set_param(index, weight)
    }

    fn run(&mut self, inputs: &dyn InputSource, dims: &[i64]) -> Result<()> {
        self.inner.run(inputs, dims)
    }

    fn output(&self, index: usize) -> Result<&[u8]> {
        self.inner.output(index)
    }

    fn memory(&self) -> MemoryInfo {
        self.inner.memory()
    }

    fn try_clone(&self) -> Result<Box<dyn ExecutableGraph>> {
        Ok(Box::new(NotingGraph { inner: self.inner.try_clone()?, weights: Arc::clone(&self.weights) }))
    }
}

#[test]
fn a_part_is_given_the_callers_weights_and_no_copies() {
    let npu = Npu { lacks: vec![OpKind::Cumulative], run_ns: 0.0 };
    let noting = Noting { npu, weights: Arc::default() };
    let weights = Arc::clone(&noting.weights);
    let on = DeviceBackend::with_backend(DEVICE, Arc::new(noting));
    let on = on.with_cpu_fallback(rlx_select::cost::cost_model).unwrap();
    let mut exec = compile(&graph(), on.backend()).unwrap();
    let weight = |dims: &[usize], seed| {
        let bytes: Vec<u8> =
            numbers(dims.iter().product(), seed).into_iter().flat_map(f32::to_le_bytes).collect();
        Arc::new(Weight::owned(DType::F32, dims, bytes).unwrap())
    };
    let (w, v) = (weight(&[8, 16], 1), weight(&[16, 5], 2));
    for (name, weight) in [("w", &w), ("v", &v)] {
        let at = exec.lir().params.iter().position(|slot| slot.name == name).unwrap();
        exec.set_param(at, Arc::clone(weight)).unwrap();
    }
    let x: Vec<u8> = numbers(ROWS * 8, 3).into_iter().flat_map(f32::to_le_bytes).collect();
    for _ in 0..2 {
        exec.run(&&[x.clone()][..], &[]).unwrap();
    }
    let mut given = weights.lock().unwrap().clone();
    given.sort_unstable();
    let mut own = [Arc::as_ptr(&w).addr(), Arc::as_ptr(&v).addr()];
    own.sort_unstable();
    assert_eq!(given, own, "each is set once, and is the one that the caller gave");
}
