//! Panics in the caller's code (custom ops, progress callbacks): the call returns an error that names the node, and
//! the executable, the threads and their other users keep working.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once};

use common::{bits, compile, convolutional, weights_of};
use rlx_ir::op::Body;
use rlx_ir::{DType, Graph, NodeId, Op, Result, Shape, Value};
use rlx_runtime::custom::{
    Arity, CpuCall, CpuKernel, CustomAttrs, CustomOp, register_cpu_kernel, register_custom_op,
};
use rlx_runtime::{
    Artefact, Cancel, CompileOptions, CompiledGraph, Device, Error, ErrorKind, NewArtefact, Progress, Session,
};

/// The identity, which panics where the first element is negative. One of them has a kernel.
struct Fussy(&'static str);

const WITH_KERNEL: &str = "panics.Kernel";
const BY_REFERENCE: &str = "panics.Reference";
/// Panics when its shape is inferred.
const SHAPELESS: &str = "panics.Shape";

impl CustomOp for Fussy {
    fn name(&self) -> &str {
        self.0
    }

    fn arity(&self) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, _: &CustomAttrs, inputs: &[&Shape]) -> Result<Vec<Shape>> {
        assert!(self.0 != SHAPELESS, "no shape");
        Ok(vec![inputs[0].clone()])
    }

    fn reference(&self, _: &CustomAttrs, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        assert!(inputs[0].floats()?[0] >= 0.0, "a negative number");
        Ok(vec![inputs[0].clone()])
    }
}

struct FussyKernel;

impl CpuKernel for FussyKernel {
    fn run(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let (x, y) = (call.input_as::<f32>(0)?, call.output_as::<f32>(0)?);
        y.copy_from_slice(x);
        assert!(x[0] >= 0.0, "a negative number");
        Ok(())
    }
}

fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for name in [WITH_KERNEL, BY_REFERENCE, SHAPELESS] {
            register_custom_op(Fussy(name)).unwrap();
        }
        register_cpu_kernel(WITH_KERNEL, FussyKernel).unwrap();
    });
}

fn session() -> Session {
    Session::try_new(Device::Cpu).unwrap()
}

const N: usize = 192;

fn square() -> Shape {
    Shape::new(&[N, N], DType::F32)
}

fn custom(g: &mut Graph, name: &str, x: NodeId) -> NodeId {
    g.try_add(Op::custom(name, 1, [] as [(&str, _); 0]), &[x]).unwrap()
}

/// Products large enough for all threads on both sides of the op.
fn net(op: &str) -> Graph {
    register();
    let mut g = Graph::new("net");
    let x = g.input("x", square());
    let y = custom(&mut g, op, x);
    let y = g.matmul(y, x, square());
    let y = g.softmax(y, -1, square());
    let y = g.matmul(y, x, square());
    g.set_outputs(vec![y]);
    g
}

fn numbers(first: f32) -> Vec<f32> {
    let mut x: Vec<f32> = (0..N * N).map(|i| (i % 97) as f32 * 0.01).collect();
    x[0] = first;
    x
}

fn outputs(compiled: &mut CompiledGraph, x: &[f32]) -> Result<Vec<u32>> {
    outputs_watched(compiled, x, &Progress::none())
}

fn outputs_watched(compiled: &mut CompiledGraph, x: &[f32], progress: &Progress) -> Result<Vec<u32>> {
    let outputs = compiled.try_run_with_progress(&[("x", x)], progress)?;
    Ok(outputs[0].iter().map(|v| v.to_bits()).collect())
}

/// A callback that panics when it hears of the event of this number.
fn panicking_at(number: usize) -> Progress {
    let count = AtomicUsize::new(0);
    Progress::none().reporting(move |_| {
        assert!(count.fetch_add(1, Ordering::Relaxed) != number, "a callback of the caller's");
    })
}

#[track_caller]
fn assert_names_the_panic(e: &Error, node: &str, text: &str) {
    assert_eq!(e.kind(), ErrorKind::Panic, "{e}");
    assert!(e.node().is_some_and(|n| n.contains(node)), "{e}");
    assert!(e.message().contains(text), "{e}");
}

#[test]
fn a_custom_op_that_panics_is_an_error_of_that_run_alone() {
    for op in [WITH_KERNEL, BY_REFERENCE] {
        let mut compiled = session().compile(net(op));
        let want = outputs(&mut compiled, &numbers(0.5)).unwrap();
        for _ in 0..3 {
            let e = outputs(&mut compiled, &numbers(-1.0)).unwrap_err();
            assert_names_the_panic(&e, "Custom", "a negative number");
            assert_eq!(e.device().map(str::to_lowercase).as_deref(), Some("cpu"), "{e}");
            assert!(compiled.try_read_output(0).is_err(), "a run that failed has no outputs");
            assert_eq!(outputs(&mut compiled, &numbers(0.5)).unwrap(), want);
        }
    }
}

#[test]
fn a_body_that_panics_can_run_again() {
    register();
    let branch = |op: Option<&str>| {
        let mut g = Graph::new("branch");
        let x = g.input("x", square());
        let y = match op {
            Some(op) => custom(&mut g, op, x),
            None => g.activation(rlx_ir::op::Activation::Tanh, x, square()),
        };
        g.set_outputs(vec![y]);
        Arc::new(Body { graph: g })
    };
    let mut g = Graph::new("choice");
    let x = g.input("x", square());
    let flag = g.input("flag", Shape::scalar(DType::Bool));
    let op = Op::If { then: branch(Some(WITH_KERNEL)), otherwise: branch(None), count: None, chosen: false };
    let y = g.try_add(op, &[flag, x, x]).unwrap();
    g.set_outputs(vec![y]);
    let mut compiled = session().compile(g);
    let mut run = |x: &[f32]| {
        let bytes: Vec<u8> = x.iter().flat_map(|v| v.to_le_bytes()).collect();
        let dims = [N, N];
        let views = [
            rlx_runtime::TensorView { name: "x", dtype: DType::F32, dims: &dims, bytes: &bytes },
            rlx_runtime::TensorView { name: "flag", dtype: DType::Bool, dims: &[], bytes: &[1] },
        ];
        compiled.try_run_tensors(&views).map(|outputs| outputs[0].bytes().to_vec())
    };
    let want = run(&numbers(0.5)).unwrap();
    for _ in 0..3 {
        assert_names_the_panic(&run(&numbers(-1.0)).unwrap_err(), "Custom", "a negative number");
        assert_eq!(run(&numbers(0.5)).unwrap(), want);
    }
}

#[test]
fn an_op_that_panics_in_its_shape_rule_is_an_error_of_the_graph() {
    register();
    let mut g = Graph::new("shapeless");
    let x = g.input("x", square());
    let e = g.try_add(Op::custom(SHAPELESS, 1, [] as [(&str, _); 0]), &[x]).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Panic);
    assert!(e.to_string().contains("no shape") && e.to_string().contains(SHAPELESS), "{e}");
}

/// Calls with callbacks that panic at every event in turn, until one call is done before that.
fn panicking_everywhere(mut call: impl FnMut(&Progress) -> Result<()>) -> usize {
    for number in 0..10_000 {
        match call(&panicking_at(number)) {
            Ok(()) => return number,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Panic, "{e}");
                assert!(e.message().contains("a callback of the caller's"), "{e}");
            }
        }
    }
    panic!("the call never ends");
}

#[test]
fn a_callback_that_panics_anywhere_is_an_error_of_that_call_alone() {
    let (graph, bindings) = convolutional();
    let weights = weights_of(&graph, &bindings);
    let want = bits(&mut compile(&session(), &graph, &weights), &bindings);
    let options = CompileOptions::default();
    let compiling = panicking_everywhere(|p| {
        session().try_compile_with_progress(graph.clone(), &options, p).map(drop).map_err(Error::from)
    });
    assert!(compiling >= 11);
    let fresh = weights_of(&graph, &bindings);
    let mut compiled = compile(&session(), &graph, &fresh);
    let x: Vec<f32> = bindings.input("x").unwrap().floats().unwrap().iter().map(|&v| v as f32).collect();
    // The first round panics while weights are prepared, the second one in the run.
    for round in ["preparing", "running"] {
        let events = panicking_everywhere(|p| compiled.try_run_with_progress(&[("x", &x)], p).map(drop));
        assert!(events >= 5, "{events} events while {round}");
    }
    assert_eq!(bits(&mut compiled, &bindings), want);
    let folder = common::Folder::new("panics");
    let path = folder.path().join("model.rlx");
    let saving = panicking_everywhere(|p| {
        session().save_with_progress(&path, &mut compiled, NewArtefact::new("model", &weights), p)
    });
    assert!(saving >= 5);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing half written is left");
    let artefact = Artefact::open(&path).unwrap();
    assert!(panicking_everywhere(|p| session().load_with_progress(&artefact, p).map(drop)) >= 2);
    assert_eq!(bits(&mut session().load(&artefact).unwrap(), &bindings), want);
}

#[test]
fn a_callback_that_panics_in_a_run_names_the_step() {
    let mut compiled = session().compile(net(WITH_KERNEL));
    let want = outputs(&mut compiled, &numbers(0.5)).unwrap();
    let e = outputs_watched(&mut compiled, &numbers(0.5), &panicking_at(1)).unwrap_err();
    assert_names_the_panic(&e, "MatMul", "the progress callback panicked while running 1/");
    assert_eq!(outputs(&mut compiled, &numbers(0.5)).unwrap(), want);
}

/// Clones on several threads, which share a pool, where some runs panic, some are cancelled and some are done.
#[test]
fn runs_that_panic_disturb_no_other_run() {
    let mut first = session().compile(net(WITH_KERNEL));
    let (good, bad) = (numbers(0.5), numbers(-1.0));
    let want = outputs(&mut first, &good).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let mut own = first.clone();
            let (good, bad, want) = (&good, &bad, &want);
            scope.spawn(move || {
                for round in 0..60 {
                    match (thread + round) % 4 {
                        0 => assert_eq!(outputs(&mut own, bad).unwrap_err().kind(), ErrorKind::Panic),
                        1 => {
                            let e = outputs_watched(&mut own, good, &panicking_at(round % 3)).unwrap_err();
                            assert_eq!(e.kind(), ErrorKind::Panic);
                        }
                        2 => {
                            let cancel = Cancel::new();
                            cancel.cancel();
                            let e = outputs_watched(&mut own, good, &Progress::from(&cancel)).unwrap_err();
                            assert_eq!(e.kind(), ErrorKind::Cancelled);
                        }
                        _ => {}
                    }
                    assert!(outputs(&mut own, good).unwrap() == *want, "thread {thread}, round {round}");
                }
            });
        }
    });
}
