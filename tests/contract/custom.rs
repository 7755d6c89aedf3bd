//! The contract's custom ops (`Op::Custom`, registered by name from outside), by public names only.

use std::path::PathBuf;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use rlx_contract::{DEVICE, empty_folder, on_every_device, register, with_env};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::{
    DType, Dim, ErrorKind, Graph, GraphExt, NodeId, Op, OpKind, Result, Shape, Value, sym, text, verify,
};
use rlx_runtime::custom::{
    Arity, CpuCall, CpuKernel, CustomAttr, CustomAttrs, CustomOp, register_cpu_kernel, register_custom_op,
};
use rlx_runtime::{
    AotCache, CompileOptions, Device, DispatchPath, KernelDispatchPolicy, Session,
    dispatch_report_for_device, supports_graph, trace, try_trace,
};

/// `x · factor`; with `decomposes` by the language's own ops, too.
struct Scale {
    name: &'static str,
    decomposes: bool,
}

impl CustomOp for Scale {
    fn name(&self) -> &str {
        self.name
    }

    fn arity(&self) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, attrs: &CustomAttrs, inputs: &[&Shape]) -> Result<Vec<Shape>> {
        attrs.float("factor")?;
        if !inputs[0].dtype().is_float() {
            return Err(rlx_ir::Error::new(
                ErrorKind::DType,
                format!("Scale takes floats, not {}", inputs[0]),
            ));
        }
        Ok(vec![inputs[0].clone()])
    }

    fn reference(&self, attrs: &CustomAttrs, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        let factor = attrs.float("factor")?;
        let scaled = inputs[0].floats()?.iter().map(|x| x * factor).collect();
        Ok(vec![Value::float(inputs[0].dtype, &inputs[0].dims, scaled)])
    }

    fn decompose(
        &self,
        attrs: &CustomAttrs,
        inputs: &[NodeId],
        g: &mut Graph,
    ) -> Option<Result<Vec<NodeId>>> {
        let build = |g: &mut Graph| {
            let factor = g.try_scalar(attrs.float("factor")?, g.try_shape(inputs[0])?.dtype())?;
            Ok(vec![g.try_mul(inputs[0], factor)?])
        };
        self.decomposes.then(|| build(g))
    }
}

/// `x` times what the process is told: an op whose code changed between two programs.
struct Changing;

const CHANGING: &str = "contract.Changing";
const FACTOR: &str = "RLX_CONTRACT_FACTOR";
const FOLDER: &str = "RLX_CONTRACT_FOLDER";

fn factor() -> f64 {
    std::env::var(FACTOR).unwrap().parse().unwrap()
}

impl CustomOp for Changing {
    fn name(&self) -> &str {
        CHANGING
    }

    fn arity(&self) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, _: &CustomAttrs, inputs: &[&Shape]) -> Result<Vec<Shape>> {
        Ok(vec![inputs[0].clone()])
    }

    fn reference(&self, _: &CustomAttrs, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        let scaled = inputs[0].floats()?.iter().map(|x| x * factor()).collect();
        Ok(vec![Value::float(inputs[0].dtype, &inputs[0].dims, scaled)])
    }

    fn decompose(&self, _: &CustomAttrs, inputs: &[NodeId], g: &mut Graph) -> Option<Result<Vec<NodeId>>> {
        let build = |g: &mut Graph| {
            let factor = g.try_scalar(factor(), DType::F32)?;
            Ok(vec![g.try_mul(inputs[0], factor)?])
        };
        Some(build(g))
    }
}

/// The smallest and the largest element: two results, and a kernel for f32.
struct MinMax;

impl CustomOp for MinMax {
    fn name(&self) -> &str {
        "contract.MinMax"
    }

    fn arity(&self) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, _: &CustomAttrs, inputs: &[&Shape]) -> Result<Vec<Shape>> {
        Ok(vec![Shape::scalar(inputs[0].dtype()); 2])
    }

    fn reference(&self, _: &CustomAttrs, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        let x = inputs[0].floats()?;
        let one = |v: f64| Value::float(inputs[0].dtype, &[], vec![v]);
        let (least, most) = (f64::min, f64::max);
        Ok(vec![
            one(x.iter().copied().fold(f64::INFINITY, least)),
            one(x.iter().copied().fold(f64::NEG_INFINITY, most)),
        ])
    }
}

static KERNEL_RUNS: AtomicUsize = AtomicUsize::new(0);

struct MinMaxKernel;

impl CpuKernel for MinMaxKernel {
    fn claims(&self, _: &CustomAttrs, inputs: &[&Shape], _: &[Shape]) -> bool {
        inputs[0].dtype() == DType::F32
    }

    fn run(&self, call: &mut CpuCall<'_>) -> Result<()> {
        KERNEL_RUNS.fetch_add(1, Ordering::Relaxed);
        let x = call.input_as::<f32>(0)?;
        if x.iter().any(|x| x.is_nan()) {
            return Err(rlx_ir::Error::new(ErrorKind::Value, "MinMax of NaN"));
        }
        call.output_as::<f32>(0)?[0] = x.iter().copied().fold(f32::INFINITY, f32::min);
        call.output_as::<f32>(1)?[0] = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        assert!(call.output(1).is_err() && call.output(2).is_err() && call.input_as::<f64>(0).is_err());
        Ok(())
    }
}

const PLAIN: &str = "contract.Scale";
const COMPOSITE: &str = "contract.ScaleComposite";

/// Registers all of them, once for the process.
fn known() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        register_custom_op(Scale { name: PLAIN, decomposes: false }).unwrap();
        register_custom_op(Scale { name: COMPOSITE, decomposes: true }).unwrap();
        register_custom_op(MinMax).unwrap();
        register_cpu_kernel("contract.MinMax", MinMaxKernel).unwrap();
    });
    register();
}

fn scale(name: &str, factor: f64) -> Op {
    Op::custom(name, 1, [("factor", CustomAttr::Float(factor))])
}

fn scaled(name: &str, dims: &[Dim], dtype: DType) -> Graph {
    trace("scaled", |t| {
        let x = t.input("x", Shape::from_dims(dims, dtype));
        vec![t.op(scale(name, 2.5), &[&x]) + 1.0]
    })
}

fn rows() -> Vec<Dim> {
    vec![Dim::Dynamic(sym::ROWS), Dim::Static(2)]
}

#[test]
fn the_verifier_knows_the_ops_rule() {
    known();
    let graph = scaled(PLAIN, &rows(), DType::F32);
    assert_eq!(verify(&graph), []);
    assert_eq!(graph.shape(graph.outputs[0]).to_string(), "[rows, 2] f32");
    // A declared shape that is not the rule's, a type it rejects, a missing attribute, too many inputs.
    let mut wrong = Graph::new("wrong");
    let x = wrong.input("x", Shape::new(&[3], DType::F32));
    wrong.add_node(scale(PLAIN, 1.0), vec![x], Shape::new(&[4], DType::F32));
    assert!(verify(&wrong)[0].to_string().contains("declared as [4] f32, but the op's rule gives [3] f32"));
    let rejected = |op: Op, dtype: DType, count: usize| {
        let traced = try_trace("rejected", |t| {
            let x = t.input("x", Shape::new(&[3], dtype));
            vec![t.op(op, &vec![&x; count])]
        });
        traced.unwrap_err().to_string()
    };
    assert!(rejected(scale(PLAIN, 1.0), DType::I32, 1).contains("takes floats, not [3] i32"));
    let bare = Op::custom(PLAIN, 1, [] as [(&str, CustomAttr); 0]);
    assert!(rejected(bare, DType::F32, 1).contains("\"factor\" is missing"));
    let two = Op::custom(PLAIN, 2, [("factor", CustomAttr::Float(1.0))]);
    assert!(rejected(two, DType::F32, 2).contains("takes 1 inputs, not 2"));
}

#[test]
fn the_text_form_parses_back() {
    known();
    let graph = scaled(PLAIN, &rows(), DType::F32);
    assert_eq!(text::parse(&graph.to_string()).unwrap(), graph);
}

fn ops_from_outside_compute(device: Device) {
    known();
    for name in [COMPOSITE, PLAIN] {
        let graph = scaled(name, &rows(), DType::F32);
        let mut bindings = Bindings::default();
        bindings.set_input("x", Value::float(DType::F32, &[2, 2], vec![1.0, -2.0, 0.5, 0.0]));
        let want = oracle::evaluate(&graph, &bindings).unwrap()[0].to_f64();
        assert_eq!(want, [3.5, -4.0, 2.25, 1.0]);
        match Session::new(device).try_compile(graph) {
            Ok(mut compiled) => {
                let out = compiled.run(&[("x", &[1.0, -2.0, 0.5, 0.0])]);
                assert_eq!(out, [[3.5, -4.0, 2.25, 1.0]]);
            }
            // Only the CPU computes by a reference; elsewhere that is a typed error.
            Err(e) => {
                assert!(name == PLAIN && device != Device::Cpu, "{e}");
                assert_eq!(e.kind(), ErrorKind::Unsupported);
            }
        }
    }
}

#[test]
fn the_report_says_by_what_an_op_runs() {
    known();
    let line = |graph: &Graph| {
        let report = dispatch_report_for_device(graph, Device::Cpu).unwrap();
        assert!(report.compile_ready);
        let line = report.summaries.iter().find(|s| s.kind == OpKind::Custom).unwrap();
        (line.path, line.logical_name)
    };
    let f32s = [Dim::Static(3)];
    assert_eq!(line(&scaled(COMPOSITE, &f32s, DType::F32)), (DispatchPath::CommonIr, "Custom"));
    assert_eq!(line(&scaled(PLAIN, &f32s, DType::F32)), (DispatchPath::CommonIr, "Custom (reference)"));
    assert_eq!(line(&min_max(DType::F32)), (DispatchPath::Native, "Custom"));
    assert_eq!(line(&min_max(DType::F64)), (DispatchPath::CommonIr, "Custom (reference)"));
    // A reference is no kernel.
    let options =
        CompileOptions { kernel_dispatch: KernelDispatchPolicy::ForceNative, ..CompileOptions::new() };
    let compile = |graph| Session::new(Device::Cpu).try_compile_with(graph, &options);
    assert_eq!(compile(scaled(PLAIN, &f32s, DType::F32)).unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(compile(min_max(DType::F32)).is_ok());
}

fn min_max(dtype: DType) -> Graph {
    let mut g = Graph::new("min_max");
    let x = g.input("x", Shape::new(&[4], dtype));
    let both = g.try_add(Op::custom("contract.MinMax", 1, [] as [(&str, CustomAttr); 0]), &[x]).unwrap();
    let most = g.result(both, 1).unwrap();
    g.set_outputs(vec![both, most]);
    g
}

#[test]
fn a_kernel_runs_where_it_claims_and_the_reference_elsewhere() {
    known();
    let x = [3.0, -7.5, 0.0, 4.0];
    let before = KERNEL_RUNS.load(Ordering::Relaxed);
    let mut by_kernel = Session::new(Device::Cpu).compile(min_max(DType::F32));
    assert_eq!(by_kernel.run(&[("x", &x)]), [[-7.5], [4.0]]);
    assert_eq!(by_kernel.clone().run(&[("x", &x)]), [[-7.5], [4.0]]);
    assert_eq!(KERNEL_RUNS.load(Ordering::Relaxed), before + 2);
    let mut by_reference = Session::new(Device::Cpu).compile(min_max(DType::F64));
    assert_eq!(by_reference.run(&[("x", &x)]), [[-7.5], [4.0]]);
    // A fault of the kernel names the node and the device.
    let e = by_kernel.try_run(&[("x", &[f32::NAN; 4])]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Value);
    assert!(e.to_string().contains("MinMax of NaN") && e.to_string().contains("Custom"), "{e}");
}

#[test]
fn an_entry_of_the_aot_cache_is_not_used_for_an_op_that_is_made_of_something_else_now() {
    let test = "an_entry_of_the_aot_cache_is_not_used_for_an_op_that_is_made_of_something_else_now";
    // The child is started by its parent's name for the folder.
    let folder = std::env::var_os(FOLDER).map_or_else(|| empty_folder("changing"), PathBuf::from);
    // Each in a process of its own, where the op is registered again.
    for (told, entries) in [("2", 1), ("3", 2), ("2.0", 2)] {
        with_env(test, &[(FACTOR, told), (FOLDER, &folder.to_string_lossy())], || {
            register_custom_op(Changing).unwrap();
            let graph = trace("changing", |t| {
                let x = t.input("x", Shape::new(&[2], DType::F32));
                vec![t.op(Op::custom::<&str>(CHANGING, 1, []), &[&x])]
            });
            let cache = AotCache::new(&folder);
            let options = CompileOptions::default().kernel_dispatch(KernelDispatchPolicy::ForceCommon);
            let mut compiled = cache.compile_graph_cached("changing", Device::Cpu, graph, &options).unwrap();
            let factor = factor() as f32;
            assert_eq!(compiled.run(&[("x", &[1.0, 10.0])]), [[factor, 10.0 * factor]]);
        });
        let in_child = std::env::var(FACTOR).is_ok();
        assert!(in_child || AotCache::new(&folder).entries().unwrap().len() == entries);
    }
    if std::env::var_os(FOLDER).is_none() {
        let _ = std::fs::remove_dir_all(folder);
    }
}

#[test]
fn names_are_taken_once_and_unknown_ops_do_not_run() {
    known();
    let again = register_custom_op(Scale { name: PLAIN, decomposes: false }).unwrap_err();
    assert!(again.to_string().contains("taken"), "{again}");
    assert!(register_cpu_kernel("contract.MinMax", MinMaxKernel).is_err());
    let mut g = Graph::new("unknown");
    let x = g.input("x", Shape::new(&[2], DType::F32));
    let y = g.add_node(scale("contract.Unknown", 1.0), vec![x], Shape::new(&[2], DType::F32));
    g.set_outputs(vec![y]);
    assert_eq!(verify(&g), []);
    assert!(!supports_graph(Device::Cpu, &g) && !supports_graph(DEVICE, &g));
    let e = Session::new(Device::Cpu).try_compile(g).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unsupported);
    assert!(e.to_string().contains("\"contract.Unknown\" is not registered"), "{e}");
}

on_every_device!(ops_from_outside_compute);
