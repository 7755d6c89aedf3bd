//! `rlx::verify` finds the op that diverges, on a device that computes tanh as sine.

use std::sync::Arc;

use rlx::compare::{Tolerance, Tolerances};
use rlx::verify::{Case, Reference, Verification, verify};
use rlx_contract::{DEVICE, OracleBackend};
use rlx_ir::op::{Activation, BinaryOp, MaskKind};
use rlx_ir::tensor::Elements;
use rlx_ir::testing::Gen;
use rlx_ir::{
    ConstData, DType, Graph, GraphExt, LirModule, Node, Progress, Result, Shape, Weight, WeightStore,
};
use rlx_opt::{CompileOptions, Target};
use rlx_runtime::backend::{Backend, ExecutableGraph};
use rlx_runtime::{Device, Op, Precision, Session};

/// The oracle with a fault.
struct Faulty(Fault);

/// What a faulty device does wrong.
#[derive(Clone, Copy)]
enum Fault {
    /// Sine instead of tanh.
    Kernel,
    /// The first element of every matrix in the graph has the wrong sign.
    Weight,
}

/// The graph with the fault.
fn broken(graph: &Graph, fault: Fault) -> Graph {
    let mut out = Graph::new(graph.name.clone());
    let mut ids = Vec::new();
    for node in graph.nodes() {
        let op = match (&node.op, fault) {
            (Op::Activation(Activation::Tanh), Fault::Kernel) => Op::Activation(Activation::Sin),
            (Op::Constant { data }, Fault::Weight) if data.dims().len() == 2 => {
                let mut value = data.value();
                if let Elements::Float(v) = &mut value.elements {
                    v[0] = -v[0];
                }
                Op::Constant { data: Arc::new(value.to_const()) }
            }
            (Op::Region { body }, _) => {
                Op::Region { body: Arc::new(rlx_ir::op::Body { graph: broken(&body.graph, fault) }) }
            }
            (other, _) => other.clone(),
        };
        let inputs = node.inputs.iter().map(|id| ids[id.index()]).collect();
        ids.push(out.push_node(Node::new(op, inputs, node.results().to_vec())));
    }
    out.set_outputs(graph.outputs.iter().map(|id| ids[id.index()]).collect());
    out
}

impl Backend for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }

    fn probe(&self) -> Result<()> {
        Ok(())
    }

    fn target(&self, options: &CompileOptions) -> Result<Arc<dyn Target>> {
        OracleBackend.target(options)
    }

    fn compile(&self, lir: Arc<LirModule>, options: &CompileOptions) -> Result<Box<dyn ExecutableGraph>> {
        let graph = broken(&lir.graph, self.0);
        OracleBackend.compile(Arc::new(LirModule { graph, ..(*lir).clone() }), options)
    }
}

/// matmul → exp → tanh → add.
fn graph() -> Graph {
    let shape = Shape::new(&[2, 2], DType::F32);
    let mut g = Graph::new("chain");
    let x = g.input("x", shape.clone());
    let w = g.param("w", shape.clone());
    let y = g.matmul(x, w, shape.clone());
    let y = g.activation(Activation::Exp, y, shape.clone());
    let y = g.activation(Activation::Tanh, y, shape.clone());
    let y = g.binary(BinaryOp::Add, y, x, shape);
    for (i, name) in ["x", "w", "product", "exp", "tanh", "sum"].into_iter().enumerate() {
        let origin = g.origins_mut().source(name);
        g.set_origin(g.nodes()[i].id, origin);
    }
    g.set_outputs(vec![y]);
    g
}

fn run(session: &Session, reference: Reference<'_>) -> Verification {
    let graph = graph();
    let x = ConstData::from_f32(&[2, 2], &[0.1, 0.2, 0.3, 0.4]).unwrap();
    let mut weights = WeightStore::new();
    weights.insert("w", Weight::owned(DType::F32, &[2, 2], x.bytes().clone()).unwrap());
    let case = Case { graph: &graph, weights: &weights, inputs: &[("x", &x)] };
    verify(session, reference, &CompileOptions::default(), case, Tolerance::default(), &Progress::none())
        .unwrap()
}

fn is_tanh(found: Verification) {
    let first = found.first_divergence.expect("a divergence");
    assert!(!found.ok && !found.outputs[0].ok);
    assert_eq!((first.op, first.origin.as_deref(), first.alone), ("Activation", Some("tanh"), true));
    assert!(first.difference.max_abs > 0.05);
}

#[test]
fn a_right_device_is_found_right() {
    let cpu = Session::new(Device::Cpu);
    for reference in [Reference::Oracle, Reference::Device(&cpu)] {
        let found = run(&cpu, reference);
        assert!(found.ok && found.first_divergence.is_none() && found.overall.max_abs < 1e-5, "{found:?}");
    }
}

#[test]
fn the_wrong_op_is_named_whatever_is_trusted() {
    let faulty = Session::with_backend(DEVICE, Arc::new(Faulty(Fault::Kernel)));
    let cpu = Session::new(Device::Cpu);
    is_tanh(run(&faulty, Reference::Oracle));
    is_tanh(run(&faulty, Reference::Device(&cpu)));
    // Who is trusted decides who errs, and where is the same.
    is_tanh(run(&cpu, Reference::Device(&faulty)));
}

#[test]
#[cfg(feature = "vulkan")]
fn vulkan_is_found_right_against_the_cpu() {
    rlx_contract::on(Device::Vulkan, |device| {
        let cpu = Session::new(Device::Cpu);
        let found = run(&Session::new(device), Reference::Device(&cpu));
        assert!(found.ok && found.values > 0, "{found:?}");
    });
}

/// x·w (which f16 cannot hold) · w₂ (which makes it small again).
fn overflowing() -> (Graph, WeightStore, ConstData) {
    let shape = Shape::new(&[2, 2], DType::F32);
    let mut g = Graph::new("overflow");
    let x = g.input("x", shape.clone());
    let (w, small) = (g.param("w", shape.clone()), g.param("small", shape.clone()));
    let scaled = g.binary(BinaryOp::Mul, x, small, shape.clone());
    let large = g.matmul(x, w, shape.clone());
    let mixed = g.binary(BinaryOp::Add, large, scaled, shape.clone());
    let y = g.matmul(mixed, small, shape);
    for (i, name) in ["x", "w", "small", "scaled", "large", "mixed", "y"].into_iter().enumerate() {
        let origin = g.origins_mut().source(name);
        g.set_origin(g.nodes()[i].id, origin);
    }
    g.set_outputs(vec![y]);
    let mut weights = WeightStore::new();
    let fill = |v: f32| ConstData::from_f32(&[2, 2], &[v, -v, v, v]).unwrap();
    for (name, value) in [("w", 500.0), ("small", 0.001)] {
        weights.insert(name, Weight::owned(DType::F32, &[2, 2], fill(value).bytes().clone()).unwrap());
    }
    (g, weights, fill(300.0))
}

#[test]
fn the_op_that_overflows_is_named_in_f16_and_none_is_in_bf16() {
    let (graph, weights, x) = overflowing();
    let case = Case { graph: &graph, weights: &weights, inputs: &[("x", &x)] };
    let loose = Tolerance { rtol: 5e-2, atol: 5e-2, floor: 0.0 };
    let cpu = Session::new(Device::Cpu);
    let run = |precision| {
        let options = CompileOptions::default().precision(precision);
        verify(&cpu, Reference::Oracle, &options, case, loose, &Progress::none()).unwrap()
    };
    let found = run(Precision::F16);
    let first = found.first_overflow.expect("an overflow");
    assert!(!found.ok);
    // 300·500 + 300·500 is beyond 65,504; rows of which two terms cancel are not.
    assert_eq!((first.op, first.origin.as_deref(), first.alone), ("MatMul", Some("large"), true));
    assert!(first.difference.overflowed >= 1 && first.difference.count == 4, "{first:?}");
    for precision in [Precision::BF16, Precision::F32] {
        let found = run(precision);
        assert!(found.ok && found.first_overflow.is_none(), "{precision}: {found:?}");
    }
}

#[test]
fn a_value_that_is_infinite_in_f32_is_no_overflow() {
    let shape = Shape::new(&[3], DType::F32);
    let mut g = Graph::new("exp");
    let x = g.input("x", shape.clone());
    let y = g.activation(Activation::Exp, x, shape);
    g.set_outputs(vec![y]);
    let x = ConstData::from_f32(&[3], &[1.0, 20.0, 200.0]).unwrap();
    let weights = WeightStore::new();
    let case = Case { graph: &g, weights: &weights, inputs: &[("x", &x)] };
    let cpu = Session::new(Device::Cpu);
    for (precision, overflowed) in [(Precision::F32, 0), (Precision::BF16, 0), (Precision::F16, 1)] {
        let options = CompileOptions::default().precision(precision);
        let loose = Tolerance { rtol: 5e-2, atol: 5e-2, floor: 0.0 };
        let found = verify(&cpu, Reference::Oracle, &options, case, loose, &Progress::none()).unwrap();
        let count = found.first_overflow.map_or(0, |f| f.difference.overflowed);
        assert_eq!(count, overflowed, "{precision}");
    }
}

/// A model of type `dtype`: layers of attention, matmul, tanh and norm with their matrices in the graph.
fn short_net(dtype: DType, seed: u64) -> (Graph, ConstData) {
    let mut r = Gen::new(seed);
    let mut g = Graph::new("short");
    let x = g.input("x", Shape::new(&[2, 6, 16], dtype));
    let mut y = x;
    let matrix = |r: &mut Gen, g: &mut Graph, dims: &[usize], range: std::ops::Range<f64>| {
        g.try_constant(r.value(dtype, dims, range).to_const()).unwrap()
    };
    for _ in 0..4 {
        let [q, k, v, w] = std::array::from_fn(|_| matrix(&mut r, &mut g, &[16, 16], -0.5..0.5));
        let [q, k, v] = [q, k, v].map(|w| g.try_mm(y, w).unwrap());
        let a = g.try_attention(q, k, v, None, 2, 8, MaskKind::Causal).unwrap();
        let a = g.try_add_(a, y).unwrap();
        let b = g.try_mm(a, w).unwrap();
        let b = g.try_act(Activation::Tanh, b).unwrap();
        let b = g.try_add_(a, b).unwrap();
        let (gamma, beta) =
            (matrix(&mut r, &mut g, &[16], 0.5..1.5), matrix(&mut r, &mut g, &[16], -0.5..0.5));
        y = g.try_layer_norm(b, gamma, beta, -1, 1e-5).unwrap();
    }
    let y = g.try_cast(y, DType::F32).unwrap();
    g.set_outputs(vec![y]);
    (g, r.value(dtype, &[2, 6, 16], -1.0..1.0).to_const())
}

fn run_short(session: &Session, (graph, x): &(Graph, ConstData), by: impl Into<Tolerances>) -> Verification {
    let weights = WeightStore::new();
    let case = Case { graph, weights: &weights, inputs: &[("x", x)] };
    verify(session, Reference::Oracle, &CompileOptions::default(), case, by, &Progress::none()).unwrap()
}

#[test]
fn nets_whose_own_type_is_short_are_judged_by_that_type() {
    let cpu = Session::new(Device::Cpu);
    for dtype in [DType::F16, DType::BF16] {
        let mut beyond_f32 = 0;
        for seed in 0..20 {
            let net = short_net(dtype, seed);
            let found = run_short(&cpu, &net, Tolerances::default());
            assert!(found.ok && found.values > 0, "{dtype}, seed {seed}: {found:?}");
            assert_eq!(found.tolerance, Tolerance::of(dtype), "the output is f32, but made of {dtype}");
            beyond_f32 += usize::from(!run_short(&cpu, &net, Tolerance::default()).ok);
        }
        assert!(beyond_f32 > 0, "{dtype}: what f32 keeps, no right device keeps");
    }
}

#[test]
fn faults_in_nets_whose_own_type_is_short_are_found() {
    for fault in [Fault::Kernel, Fault::Weight] {
        let faulty = Session::with_backend(DEVICE, Arc::new(Faulty(fault)));
        for dtype in [DType::F16, DType::BF16] {
            for seed in 0..5 {
                let found = run_short(&faulty, &short_net(dtype, seed), Tolerances::default());
                let first = found.first_divergence.expect("a divergence");
                assert!(!found.ok, "{dtype}, seed {seed}");
                if let Fault::Kernel = fault {
                    assert_eq!(first.op, "Activation", "{dtype}, seed {seed}: {}", first.node);
                }
            }
        }
    }
}
