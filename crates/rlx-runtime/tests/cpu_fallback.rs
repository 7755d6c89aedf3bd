//! A device and the CPU together: what the device cannot compute, the CPU does, where the caller lets it.

use std::sync::Arc;

use rlx_backend::testing::{compile, disagreement, set_params};
use rlx_backend::whole_graph::GraphTarget;
use rlx_contract::{DEVICE, OracleBackend};
use rlx_ir::op::ReduceOp;
use rlx_ir::testing::{random_donating_graph, random_graph};
use rlx_ir::{DType, ErrorKind, Graph, GraphExt, LirModule, Op, OpKind, Result, Shape};
use rlx_opt::{Claim, Target};
use rlx_runtime::backend::{Backend, ExecutableGraph};
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

/// `cumsum(exp(cumsum(x·w)))·v`.
fn graph() -> Graph {
    let f = |d: &[usize]| Shape::new(d, DType::F32);
    let mut g = Graph::new("sums");
    let (x, w, v) = (g.input("x", f(&[3, 8])), g.param("w", f(&[8, 16])), g.param("v", f(&[16, 5])));
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
    compiled.run(&[("x", &numbers(24, 3))]).remove(0)
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
    // Four times a matrix of 3 × 16 numbers.
    assert_eq!((plan.crossings.len(), plan.crossing_bytes()), (4, Some(4 * 3 * 16 * 4)), "{plan}");
    assert_eq!(plan.unsupported.get(&OpKind::Cumulative), Some(&2));
    assert!(plan.to_string().contains("[3, 16] f32, 192 bytes"), "{plan}");
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
