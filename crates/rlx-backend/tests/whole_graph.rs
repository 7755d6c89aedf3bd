//! Devices of whole graphs, shown on one that evaluates them by the oracle: nothing is said here of numbers, all of what is
//! between a module and its programs.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rlx_backend::testing::{compile, disagreement, lir_of, run, set_params, some_graph};
use rlx_backend::whole_graph::{Argument, GraphDevice, GraphTarget, Shared, inputs};
use rlx_backend::{Backend, Claim, ExecutableGraph, Target};
use rlx_ir::op::Activation;
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::{
    DType, Dim, Error, ErrorKind, Graph, GraphExt, LirModule, Op, Result, Shape, Value, Weight, sym,
};
use rlx_opt::CompileOptions;

/// Evaluates graphs; notes what it was asked to do.
#[derive(Default)]
struct Evaluator {
    shared: Shared<Evaluator>,
    compiled: AtomicUsize,
    uploaded: AtomicUsize,
    /// How many inputs runs were given to keep.
    donated: AtomicUsize,
    /// Whether runs fail.
    broken: Mutex<Option<&'static str>>,
}

impl Evaluator {
    fn count(of: &AtomicUsize) -> usize {
        of.load(Ordering::Relaxed)
    }
}

impl GraphDevice for Evaluator {
    type Tensor = Value;
    type Program = Graph;
    type Pending = Result<()>;

    const IN_FLIGHT: usize = 2;

    fn name(&self) -> &str {
        "evaluator"
    }

    fn machine(&self) -> &str {
        "the oracle"
    }

    fn shared(&self) -> &Shared<Self> {
        &self.shared
    }

    fn compile(&self, graph: &Graph) -> Result<Graph> {
        rlx_ir::verify_ok(graph)?;
        assert!(
            graph
                .nodes()
                .iter()
                .all(|node| node.symbols().is_empty() && !matches!(node.op, Op::Param { .. }))
        );
        self.compiled.fetch_add(1, Ordering::Relaxed);
        Ok(graph.clone())
    }

    fn upload(&self, bytes: &[u8], shape: &Shape) -> Result<Value> {
        self.uploaded.fetch_add(1, Ordering::Relaxed);
        let dims = shape.static_dims().expect("numbers");
        Ok(Value::decode(shape.dtype(), &dims, bytes))
    }

    fn download(&self, tensor: &Value) -> Result<Vec<u8>> {
        Ok(tensor.encode())
    }

    fn start(&self, graph: &Graph, arguments: Vec<Argument<Value>>) -> Result<(Vec<Value>, Result<()>)> {
        let mut bindings = Bindings::default();
        for ((name, shape), argument) in inputs(graph).zip(&arguments) {
            assert_eq!(shape.static_dims().as_deref(), Some(&argument.tensor().dims[..]), "{name}");
            assert!(matches!(argument, Argument::Shared(_)) || graph.donated_to(name).is_some());
            bindings.set_input(name, argument.tensor().clone());
        }
        let donated = arguments.iter().filter(|a| matches!(a, Argument::Donated(_))).count();
        self.donated.fetch_add(donated, Ordering::Relaxed);
        let fault = match *self.broken.lock().unwrap() {
            Some("start") => return Err(Error::new(ErrorKind::Device, "it does not start")),
            Some(_) => Err(Error::new(ErrorKind::Device, "it broke down")),
            None => Ok(()),
        };
        Ok((oracle::evaluate(graph, &bindings)?, fault))
    }

    fn finish(&self, _: &Graph, pending: Result<()>) -> Result<()> {
        pending
    }
}

struct Evaluates(Arc<Evaluator>);

fn target() -> GraphTarget {
    // Norms are for the compiler to decompose.
    GraphTarget::new("evaluator", |node, _| match &node.op {
        Op::LayerNorm { .. } | Op::Softmax { .. } => Claim::No("it is not in the table".into()),
        _ => Claim::Native,
    })
}

impl Backend for Evaluates {
    fn name(&self) -> &str {
        "evaluator"
    }

    fn probe(&self) -> Result<()> {
        Ok(())
    }

    fn target(&self, _: &CompileOptions) -> Result<Arc<dyn Target>> {
        Ok(Arc::new(target()))
    }

    fn compile(&self, lir: Arc<LirModule>, _: &CompileOptions) -> Result<Box<dyn ExecutableGraph>> {
        rlx_backend::whole_graph::compile(Arc::clone(&self.0), &target(), lir)
    }
}

fn device() -> (Evaluates, Arc<Evaluator>) {
    let evaluator = Arc::new(Evaluator::default());
    (Evaluates(Arc::clone(&evaluator)), evaluator)
}

#[test]
fn random_graphs_give_what_the_oracle_gives() {
    let (backend, _) = device();
    let mut ran = 0;
    for seed in 0..60 {
        let (graph, bindings) = some_graph(seed);
        let mut exec = match compile(&graph, &backend) {
            Ok(exec) => exec,
            // Ops that count.
            Err(e) if e.kind() == ErrorKind::Unsupported => continue,
            Err(e) => panic!("seed {seed}: {e}\n{graph}"),
        };
        set_params(&mut *exec, &bindings).unwrap();
        if let Some(difference) = disagreement(&graph, &bindings, &mut *exec) {
            panic!("seed {seed}: {difference}\n{graph}");
        }
        ran += 1;
    }
    assert!(ran >= 50, "{ran}");
}

#[test]
fn inputs_and_parameters_of_another_size_are_rejected() {
    let (backend, _) = device();
    rlx_backend::testing::rejects_inputs_of_another_size(&backend);
    rlx_backend::testing::rejects_parameters_of_another_size(&backend);
}

/// `softmax(x · (w + w))` over `[seq, 4]`.
fn layer() -> Graph {
    let mut g = Graph::new("layer");
    let rows = Shape::from_dims(&[Dim::Dynamic(sym::SEQ), Dim::Static(4)], DType::F32);
    let (x, w) = (g.input("x", rows), g.param("w", Shape::new(&[4, 4], DType::F32)));
    let twice = g.add(w, w);
    let y = g.mm(x, twice);
    let y = g.try_add(Op::Softmax { axis: -1 }, &[y]).unwrap();
    g.set_outputs(vec![y]);
    g
}

fn values(rows: usize, scale: f32) -> Bindings {
    let value = |dims: &[usize]| {
        let numbers = (0..dims.iter().product::<usize>()).flat_map(|i| (i as f32 * scale).to_le_bytes());
        Value::decode(DType::F32, dims, &numbers.collect::<Vec<u8>>())
    };
    let mut bindings = Bindings::default();
    bindings.set_input("x", value(&[rows, 4]));
    bindings.set_param("w", value(&[4, 4]));
    bindings
}

#[test]
fn a_program_is_compiled_once_for_each_size_and_parameters_are_brought_once() {
    let (backend, evaluator) = device();
    let graph = layer();
    let mut exec = compile(&graph, &backend).unwrap();
    assert_eq!(Evaluator::count(&evaluator.compiled), 1, "what depends on parameters alone");
    set_params(&mut *exec, &values(2, 0.1)).unwrap();
    for rows in [2, 3, 2, 3, 2] {
        assert_eq!(disagreement(&graph, &values(rows, 0.1), &mut *exec), None);
    }
    assert_eq!(Evaluator::count(&evaluator.compiled), 3);
    assert_eq!(Evaluator::count(&evaluator.uploaded), 1 + 5, "the parameter, and an input for each run");
    let mut clone = exec.try_clone().unwrap();
    assert_eq!(disagreement(&graph, &values(3, 0.1), &mut *clone), None);
    assert_eq!(Evaluator::count(&evaluator.compiled), 3, "clones share programs");
    // Another value of the parameter is the executable's alone.
    set_params(&mut *exec, &values(2, 0.2)).unwrap();
    assert_eq!(disagreement(&graph, &values(2, 0.2), &mut *exec), None);
    assert_eq!(disagreement(&graph, &values(2, 0.1), &mut *clone), None);
}

#[test]
fn what_depends_on_parameters_alone_is_computed_before_the_run() {
    let (backend, _) = device();
    let mut g = Graph::new("early");
    let (x, w) = (g.input("x", Shape::new(&[2, 4], DType::F32)), g.param("w", Shape::new(&[4], DType::F32)));
    let b = g.try_add(Op::Activation(Activation::Exp), &[w]).unwrap();
    let y = g.add(x, b);
    g.set_outputs(vec![y, b, w, x, y]);
    let mut bindings = Bindings::default();
    bindings.set_input("x", Value::decode(DType::F32, &[2, 4], &[1; 32]));
    bindings.set_param("w", Value::decode(DType::F32, &[4], &[2; 16]));
    let mut exec = compile(&g, &backend).unwrap();
    set_params(&mut *exec, &bindings).unwrap();
    assert_eq!(disagreement(&g, &bindings, &mut *exec), None);
    // The module that callers see is the one that was compiled.
    assert_eq!(**exec.lir(), lir_of(&g, &backend).unwrap());
    let e = compile(&g, &backend).unwrap().run(&&[vec![0u8; 32]][..], &[]).unwrap_err();
    assert!(e.kind() == ErrorKind::Binding && e.to_string().contains("\"w\""), "{e}");
}

/// A cache that each run writes a row of, where it is.
fn cache() -> Graph {
    let mut g = Graph::new("cache");
    let cache = g.input("cache", Shape::new(&[4, 2], DType::F32));
    let row = g.input("row", Shape::new(&[1, 2], DType::F32));
    let at = g.input("at", Shape::new(&[], DType::I64));
    let next = g.try_add(Op::UpdateSlice { axis: 0 }, &[cache, row, at]).unwrap();
    g.set_outputs(vec![next]);
    g.donate("cache", 0).unwrap();
    g
}

struct Append([u8; 8], [u8; 8]);

impl rlx_backend::InputSource for Append {
    fn bytes(&self, index: usize) -> &[u8] {
        if index == 1 { &self.0 } else { &self.1 }
    }

    fn handle(&self, index: usize) -> Option<usize> {
        (index == 0).then_some(32)
    }
}

#[test]
fn handles_stay_on_the_device_and_are_donated() {
    let (backend, evaluator) = device();
    let graph = cache();
    let mut exec = compile(&graph, &backend).unwrap();
    let handles = exec.handles_mut().unwrap();
    handles.set(0, &[0; 32]).unwrap();
    handles.feed(0, Some(0)).unwrap();
    for at in 0..4u8 {
        exec.run(&Append([at + 1; 8], i64::from(at).to_le_bytes()), &[]).unwrap();
    }
    let rows: Vec<u8> = (0..32).map(|i| i / 8 + 1).collect();
    assert_eq!(exec.handles().unwrap().read(0).unwrap(), rows);
    assert_eq!(exec.output(0).unwrap(), rows);
    assert_eq!(Evaluator::count(&evaluator.donated), 4);
    // A clone has the same value and then its own.
    let mut clone = exec.try_clone().unwrap();
    clone.run(&Append([9; 8], 0i64.to_le_bytes()), &[]).unwrap();
    assert_eq!(exec.handles().unwrap().read(0).unwrap(), rows);
    assert_eq!(clone.handles().unwrap().read(0).unwrap()[..8], [9; 8]);
}

#[test]
fn faults_name_the_device_and_lose_only_what_was_donated() {
    let (backend, evaluator) = device();
    let graph = cache();
    let mut exec = compile(&graph, &backend).unwrap();
    let handles = exec.handles_mut().unwrap();
    handles.set(0, &[0; 32]).unwrap();
    handles.feed(0, Some(0)).unwrap();
    let append = || Append([1; 8], 0i64.to_le_bytes());
    for fault in ["start", "finish"] {
        exec.handles_mut().unwrap().set(0, &[7; 32]).unwrap();
        *evaluator.broken.lock().unwrap() = Some(fault);
        let e = exec.run(&append(), &[]).unwrap_err();
        assert!(e.kind() == ErrorKind::Device && e.device() == Some("evaluator"), "{e:?}");
        *evaluator.broken.lock().unwrap() = None;
        let e = exec.run(&append(), &[]).unwrap_err();
        assert!(e.to_string().contains("lost"), "{e}");
    }
    // Nothing was given away before the run began.
    exec.handles_mut().unwrap().set(0, &[7; 32]).unwrap();
    let short = Append([1; 8], 0i64.to_le_bytes());
    struct Short(Append);
    impl rlx_backend::InputSource for Short {
        fn bytes(&self, index: usize) -> &[u8] {
            &self.0.bytes(index)[..7]
        }
        fn handle(&self, index: usize) -> Option<usize> {
            self.0.handle(index)
        }
    }
    assert_eq!(exec.run(&Short(short), &[]).unwrap_err().kind(), ErrorKind::Binding);
    exec.run(&append(), &[]).unwrap();
    assert_eq!(exec.output(0).unwrap()[8..], [7; 24]);
}

#[test]
fn runs_under_way_keep_their_outputs() {
    let (backend, evaluator) = device();
    let graph = layer();
    let mut exec = compile(&graph, &backend).unwrap();
    set_params(&mut *exec, &values(2, 0.1)).unwrap();
    let inputs: Vec<Vec<u8>> = (1..4).map(|i| values(2, i as f32).input("x").unwrap().encode()).collect();
    let want: Vec<Vec<u8>> = (1..4)
        .map(|i| {
            let mut bindings = values(2, 0.1);
            bindings.set_input("x", values(2, i as f32).input("x").unwrap().clone());
            run(&mut *exec.try_clone().unwrap(), &bindings).unwrap().remove(0)
        })
        .collect();
    assert_eq!(exec.max_in_flight(), 2);
    for (i, input) in inputs.iter().enumerate() {
        exec.submit(&&[&input[..]][..], &[2]).unwrap();
        assert_eq!(exec.in_flight(), (i + 1).min(2));
    }
    exec.collect().unwrap();
    assert_eq!(exec.output(0).unwrap(), want[1]);
    exec.collect().unwrap();
    assert_eq!(exec.output(0).unwrap(), want[2]);
    *evaluator.broken.lock().unwrap() = Some("finish");
    exec.submit(&&[&inputs[0][..]][..], &[2]).unwrap();
    assert_eq!(exec.collect().unwrap_err().kind(), ErrorKind::Device);
}

#[test]
fn two_executables_share_a_weight_and_what_was_made_of_it() {
    let (backend, evaluator) = device();
    let bindings = values(2, 0.3);
    let of = bindings.param("w").unwrap();
    let weight = Arc::new(Weight::owned(of.dtype, &of.dims, of.encode()).unwrap());
    let (mut outputs, mut kept) = (HashSet::new(), Vec::new());
    for _ in 0..2 {
        let mut exec = compile(&layer(), &backend).unwrap();
        exec.set_param(0, Arc::clone(&weight)).unwrap();
        outputs.insert(run(&mut *exec, &bindings).unwrap());
        kept.push(exec);
    }
    assert_eq!(outputs.len(), 1);
    assert_eq!(Evaluator::count(&evaluator.uploaded), 1 + 2);
}
