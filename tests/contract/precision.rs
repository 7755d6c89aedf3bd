//! The contract's section "Session and options", its part about precision, by public names only.

use std::collections::HashMap;
use std::sync::Arc;

use rlx_contract::{DEVICE, OracleBackend, lacks_bf16, on_every_device};
use rlx_ir::lir::View;
use rlx_ir::op::{Activation, BinaryOp, PackFormat};
use rlx_ir::{
    DType, DimBinding, Graph, GraphModule, HirModule, LirModule, Node, Op, OpKind, Result, Shape, verify,
};
use rlx_opt::{Claim, Target};
use rlx_runtime::backend::{Backend, ExecutableGraph};
use rlx_runtime::{
    CompileOptions, CompiledGraph, Device, ModelCompilePipeline, Precision, PrecisionPolicy, Session,
};

/// softmax(gelu(x·w + b)·v): matmuls, elementwise ops, and a softmax.
fn graph() -> Graph {
    let f = |d: &[usize]| Shape::new(d, DType::F32);
    let mut g = Graph::new("two-layers");
    let x = g.input("x", f(&[3, 8]));
    let (w, b, v) = (g.param("w", f(&[8, 16])), g.param("b", f(&[16])), g.param("v", f(&[16, 5])));
    let y = g.matmul(x, w, f(&[3, 16]));
    let y = g.binary(BinaryOp::Add, y, b, f(&[3, 16]));
    let y = g.activation(Activation::Gelu, y, f(&[3, 16]));
    let y = g.matmul(y, v, f(&[3, 5]));
    let y = g.softmax(y, -1, f(&[3, 5]));
    g.set_outputs(vec![y]);
    assert!(verify(&g).is_empty());
    g
}

/// Numbers within ±1 that 16-bit floats cannot hold.
fn numbers(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 37 + seed * 11) % 101) as f32 / 50.3 - 1.0).collect()
}

fn run(mut c: CompiledGraph) -> Vec<f32> {
    for (name, n, seed) in [("w", 128, 1), ("b", 16, 2), ("v", 80, 3)] {
        c.set_param(name, &numbers(n, seed));
    }
    c.run(&[("x", &numbers(24, 4))]).remove(0)
}

/// The largest distance from the f32 result.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Whether the report tells of ops of this kind in this type.
fn computes(c: &CompiledGraph, kind: OpKind, dtype: DType) -> bool {
    let report = c.dispatch_report().precision.as_ref().expect("a compiled graph has one");
    report.kinds.iter().any(|k| (k.kind, k.dtype) == (kind, dtype) && k.node_count > 0)
}

fn custom(ops: &[(OpKind, Precision)]) -> PrecisionPolicy {
    PrecisionPolicy::Custom(HashMap::from_iter(ops.iter().copied()))
}

fn every_policy_does_what_it_says(device: Device) {
    rlx_contract::register();
    let full = run(Session::new(device).compile(graph()));
    let (f32s, f16, bf16) = (DType::F32, DType::F16, DType::BF16);
    use OpKind::{Activation as Act, MatMul, Softmax};
    use PrecisionPolicy as P;
    let cases = [
        (P::AlwaysF32, Precision::F32, [f32s, f32s, f32s], 0.0),
        (P::AlwaysF16, Precision::F16, [f16, f16, f16], 5e-3),
        (P::AutoMixedConservative, Precision::F16, [f16, f32s, f32s], 5e-3),
        (P::AutoMixed, Precision::F16, [f16, f16, f32s], 5e-3),
        (P::AutoMixedBf16, Precision::BF16, [bf16, bf16, f32s], 4e-2),
        (custom(&[(MatMul, Precision::BF16)]), Precision::BF16, [bf16, f32s, f32s], 4e-2),
        (custom(&[(Softmax, Precision::F16)]), Precision::F32, [f32s, f32s, f16], 5e-3),
        (
            custom(&[(MatMul, Precision::F16), (Act, Precision::BF16)]),
            Precision::F16,
            [f16, bf16, f32s],
            4e-2,
        ),
    ];
    for (policy, used, dtypes, tolerance) in cases {
        let c = Session::new(device).with_policy(policy.clone()).compile(graph());
        if dtypes.contains(&bf16) && lacks_bf16(device) {
            // By the report.
            assert_ne!(c.precision(), Precision::BF16, "{policy}");
            assert!([MatMul, Act, Softmax].iter().all(|&kind| !computes(&c, kind, bf16)), "{policy}");
            continue;
        }
        let report = c.dispatch_report().precision.clone().unwrap();
        if let Some(kept) = report.kept.first() {
            // The device gains nothing by it, and says so.
            assert!(device == Device::Cpu && policy.to_string().starts_with("auto-mixed"), "{policy}");
            assert_eq!((report.used, kept.kind, kept.node_count), (Precision::F32, MatMul, 2), "{policy}");
            assert!(!computes(&c, MatMul, dtypes[0]) && !computes(&c, Act, dtypes[0]), "{policy}");
            assert_eq!(run(c), full, "{policy}");
            continue;
        }
        assert_eq!(c.precision(), used, "{policy}");
        for (kind, dtype) in [MatMul, Act, Softmax].into_iter().zip(dtypes) {
            // A device may compute a softmax by its parts.
            let native = c.lir().graph.to_string().contains(kind.name());
            assert!(!native || computes(&c, kind, dtype), "{policy}: {kind}");
        }
        assert_eq!((report.requested, report.used), (policy.to_string(), used));
        let short = run(c);
        let off = distance(&short, &full);
        assert!(off <= tolerance, "{policy}: off by {off}");
        // Short types round: equal bits would mean that the wish was ignored.
        assert_eq!(short == full, policy == P::AlwaysF32, "{policy}");
    }
}

fn a_precision_is_used_where_the_device_has_it(device: Device) {
    rlx_contract::register();
    let full = run(Session::new(device).compile(graph()));
    for (precision, tolerance) in [(Precision::F32, 0.0), (Precision::F16, 5e-3), (Precision::BF16, 4e-2)] {
        let session = Session::new_with_precision(device, precision);
        assert_eq!((session.precision(), session.policy()), (precision, None));
        let c = session.compile(graph());
        if precision == Precision::BF16 && lacks_bf16(device) {
            assert_eq!((c.precision(), run(c)), (Precision::F32, full.clone()));
            continue;
        }
        assert_eq!(c.precision(), precision);
        let infos = c.inputs().iter().chain(c.params()).chain(c.outputs());
        assert!(infos.into_iter().all(|t| t.dtype == DType::F32), "declared types stay");
        let short = run(c);
        assert!(distance(&short, &full) <= tolerance, "{precision}: {}", distance(&short, &full));
        assert_eq!(short == full, precision == Precision::F32);
        // Clones and second compilations give the same bits.
        assert_eq!(run(session.compile(graph()).clone()), short);
    }
}

on_every_device!(every_policy_does_what_it_says, a_precision_is_used_where_the_device_has_it);

#[test]
fn mixed_policies_shorten_what_is_faster_so() {
    // gelu(x·w): many weights, for a few rows, which are bound by memory, or for many.
    let layer = |rows: usize| {
        let f = |d: &[usize]| Shape::new(d, DType::F32);
        let mut g = Graph::new("layer");
        let (x, w) = (g.input("x", f(&[rows, 512])), g.param("w", f(&[512, 1024])));
        let y = g.matmul(x, w, f(&[rows, 1024]));
        let y = g.activation(Activation::Gelu, y, f(&[rows, 1024]));
        g.set_outputs(vec![y]);
        let mut c = Session::new(Device::Cpu).with_policy(PrecisionPolicy::AutoMixed).compile(g);
        c.set_param("w", &numbers(512 * 1024, 1));
        c
    };
    let few = layer(2);
    let report = few.dispatch_report().precision.as_ref().unwrap();
    if std::env::var_os("RLX_CPU_ISA").is_none_or(|isa| isa != "portable") {
        assert_eq!((report.used, report.kept.len()), (Precision::F16, 0), "{report}");
        assert!(computes(&few, OpKind::MatMul, DType::F16), "{report}");
        assert!(computes(&few, OpKind::Activation, DType::F16), "what is behind it follows: {report}");
    }
    let many = layer(64);
    let report = many.dispatch_report().precision.as_ref().unwrap();
    assert_eq!((report.used, report.kept.len()), (Precision::F32, 1), "{report}");
    assert_eq!((report.kept[0].kind, report.kept[0].node_count), (OpKind::MatMul, 1));
    assert!(report.to_string().contains("kept f32: products of f16 are widened"), "{report}");
}

/// The outside backend without 16-bit floats.
struct LongOnly;

struct LongTarget(Arc<dyn Target>);

impl Target for LongTarget {
    fn name(&self) -> &str {
        "long"
    }

    fn claim(&self, node: &Node, graph: &Graph) -> Claim {
        let shapes = node.inputs.iter().map(|&id| graph.shape(id)).chain(node.results());
        match shapes.into_iter().find(|s| matches!(s.dtype(), DType::F16 | DType::BF16)) {
            // Conversions are there, arithmetic is not.
            Some(s) if !matches!(node.op, Op::Cast { .. }) => {
                Claim::No(format!("no arithmetic of {}", s.dtype()))
            }
            _ => self.0.claim(node, graph),
        }
    }

    fn fuses(&self, _: Option<&Node>, _: &Node, _: &Graph) -> bool {
        false
    }

    fn reads_view(&self, op: &Op, input: usize, view: &View) -> bool {
        self.0.reads_view(op, input, view)
    }

    fn writes_view(&self, op: &Op, view: &View) -> bool {
        self.0.writes_view(op, view)
    }

    fn pack_format(&self, _: &Node, _: usize, _: &Graph) -> Option<PackFormat> {
        None
    }
}

impl Backend for LongOnly {
    fn name(&self) -> &str {
        "long"
    }

    fn probe(&self) -> Result<()> {
        Ok(())
    }

    fn target(&self, options: &CompileOptions) -> Result<Arc<dyn Target>> {
        Ok(Arc::new(LongTarget(OracleBackend.target(options)?)))
    }

    fn compile(&self, lir: Arc<LirModule>, options: &CompileOptions) -> Result<Box<dyn ExecutableGraph>> {
        OracleBackend.compile(lir, options)
    }
}

#[test]
fn a_device_without_the_arithmetic_says_what_it_used() {
    let session = || Session::with_backend(DEVICE, Arc::new(LongOnly));
    let full = run(session().compile(graph()));
    for precision in [Precision::F16, Precision::BF16] {
        let short = session().with_precision(precision);
        assert_eq!(short.precision(), precision, "what was asked for");
        let c = short.compile(graph());
        assert_eq!(c.precision(), Precision::F32, "what was used");
        let report = c.dispatch_report().precision.clone().unwrap();
        assert_eq!((report.requested, report.used), (precision.to_string(), Precision::F32));
        assert!(report.kinds.iter().all(|k| k.dtype == DType::F32), "{:?}", report.kinds);
        assert!(c.dispatch_report().to_string().contains(&format!("{precision} asked for, f32 used")));
        assert_eq!(run(c), full);
    }
    let c = session().with_policy(PrecisionPolicy::AlwaysF16).compile(graph());
    assert_eq!(c.precision(), Precision::F32);
    assert_eq!(run(c), full);
}

#[test]
fn options_replace_the_sessions_precision_and_policy() {
    let cpu = || Session::new_with_precision(Device::Cpu, Precision::BF16);
    let used = |session: &Session, options: &CompileOptions| {
        session.try_compile_with(graph(), options).unwrap().precision()
    };
    assert_eq!(cpu().compile(graph()).precision(), Precision::BF16);
    // Default options ask for f32.
    assert_eq!(used(&cpu(), &CompileOptions::new()), Precision::F32);
    assert_eq!(used(&cpu(), &CompileOptions::new().precision(Precision::F16)), Precision::F16);
    let short = cpu().with_policy(custom(&[(OpKind::MatMul, Precision::BF16)]));
    assert_eq!(used(&short, &CompileOptions::new()), Precision::F32);
    assert_eq!(used(&short, &CompileOptions::new().policy(PrecisionPolicy::AlwaysF16)), Precision::F16);
    // A policy says more than a precision.
    let both = CompileOptions::new().precision(Precision::BF16).policy(PrecisionPolicy::AlwaysF32);
    assert_eq!(used(&cpu(), &both), Precision::F32);
    assert_eq!(cpu().with_policy(PrecisionPolicy::AlwaysF32).compile(graph()).precision(), Precision::F32);
}

/// linear + gelu, as blocks.
fn blocks() -> HirModule {
    let f = |d: &[usize]| Shape::new(d, DType::F32);
    let mut m = HirModule::new("linear");
    let (x, w) = (m.input("x", f(&[1, 3, 8])), m.param("w", f(&[8, 16])));
    let y = m.linear(x, w, None, Some(Activation::Gelu), f(&[1, 3, 16]));
    m.set_outputs(vec![y]);
    m
}

#[test]
fn every_front_door_applies_the_same_policy() {
    for policy in [custom(&[(OpKind::MatMul, Precision::BF16)]), PrecisionPolicy::AlwaysF16] {
        let options = CompileOptions::new().policy(policy.clone());
        let session = Session::new(Device::Cpu).with_policy(policy.clone());
        let plain = Session::new(Device::Cpu);
        let graph = || GraphModule::from_hir(blocks()).into_graph().unwrap();
        let mut pipeline = ModelCompilePipeline::new(Device::Cpu);
        let through_template = {
            pipeline.build_template(blocks, &options).unwrap();
            let result = pipeline.specialize_template(&DimBinding::new(), &options);
            pipeline.compile_lir(result, &options)
        };
        let lir = rlx_runtime::stages::pipeline_for(Device::Cpu, &options).compile(&graph()).unwrap().lir;
        let all = [
            session.compile(graph()),
            session.compile_graph(graph()),
            plain.compile_with(graph(), &options),
            session.compile_hir(blocks()).unwrap(),
            plain.compile_hir_with(blocks(), &options).unwrap(),
            session.compile_module(GraphModule::from_hir(blocks())).unwrap(),
            plain.compile_module_with(GraphModule::from_graph(graph()), &options).unwrap(),
            plain.compile_module_with(GraphModule::from_lir(lir), &options).unwrap(),
            through_template,
        ];
        let mut first = None;
        for (i, mut c) in all.into_iter().enumerate() {
            assert_ne!(c.precision(), Precision::F32, "front door {i}, {policy}");
            assert!(computes(&c, OpKind::MatMul, c.precision().dtype()), "front door {i}");
            assert!(!computes(&c, OpKind::MatMul, DType::F32), "front door {i}");
            c.set_param("w", &numbers(128, 1));
            let y = c.run(&[("x", &numbers(24, 4))]);
            assert_eq!(first.get_or_insert_with(|| y.clone()), &y, "front door {i}, {policy}");
        }
    }
}

#[test]
fn declared_short_types_need_no_precision() {
    let b = |d: &[usize]| Shape::new(d, DType::BF16);
    let mut g = Graph::new("short");
    let (x, w) = (g.input("x", b(&[2, 3])), g.param("w", b(&[3, 2])));
    let y = g.matmul(x, w, b(&[2, 2]));
    g.set_outputs(vec![y]);
    let mut c = Session::new(Device::Cpu).compile(g);
    assert_eq!(c.precision(), Precision::BF16);
    c.set_param("w", &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    // 1.01 is no bf16: the f32 boundary converts to and from the declared type.
    assert_eq!(c.run(&[("x", &[1.01, 2.0, 3.0, 4.0, 5.0, 6.0])]), [[4.0, 5.0, 10.0, 11.0]]);
}

#[test]
fn names_are_read_as_they_are_written() {
    use PrecisionPolicy as P;
    for policy in [P::AlwaysF32, P::AlwaysF16, P::AutoMixedConservative, P::AutoMixed, P::AutoMixedBf16] {
        assert_eq!(policy.to_string().parse::<P>().unwrap(), policy);
    }
    for precision in [Precision::F32, Precision::F16, Precision::BF16] {
        assert_eq!(precision.to_string().parse::<Precision>().unwrap(), precision);
    }
    let e = "half".parse::<P>().unwrap_err();
    assert!(e.to_string().contains("auto-mixed-bf16"), "{e}");
    assert_eq!(custom(&[(OpKind::MatMul, Precision::BF16)]).to_string(), "custom(MatMul=bf16)");
}
