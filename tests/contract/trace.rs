//! The contract's `trace` and `#[rlx_model]`, by public names only.

use rlx_contract::{on_every_device, register};
use rlx_ir::{DType, ErrorKind, GraphExt, Shape, sym, verify};
use rlx_runtime::typed::{self, Dense, DenseView};
use rlx_runtime::{
    CompileOptions, CompiledGraph, Device, Dim, Graph, Precision, PrecisionPolicy, Session, TracedTensor,
    Tracer, Weight, WeightStore, rlx_model, trace, try_trace,
};

fn f32s(dims: &[usize]) -> Shape {
    Shape::new(dims, DType::F32)
}

/// A model as users write one: a struct of tensors, a function of them.
struct Linear {
    w: TracedTensor,
    b: TracedTensor,
}

impl Linear {
    fn new(t: &Tracer, name: &str, from: usize, to: usize) -> Self {
        Linear {
            w: t.param(format!("{name}.w"), f32s(&[from, to])),
            b: t.param(format!("{name}.b"), f32s(&[to])),
        }
    }

    fn forward(&self, x: &TracedTensor) -> TracedTensor {
        x.matmul(&self.w) + &self.b
    }
}

fn traced_mlp() -> Graph {
    trace("mlp", |t| {
        let x = t.input("x", f32s(&[2, 3]));
        let (first, second) = (Linear::new(t, "first", 3, 4), Linear::new(t, "second", 4, 2));
        vec![second.forward(&first.forward(&x).relu())]
    })
}

/// The same by the graph's own builders.
fn built_mlp() -> Graph {
    let mut g = Graph::new("mlp");
    let x = g.input("x", f32s(&[2, 3]));
    let (w1, b1) = (g.param("first.w", f32s(&[3, 4])), g.param("first.b", f32s(&[4])));
    let (w2, b2) = (g.param("second.w", f32s(&[4, 2])), g.param("second.b", f32s(&[2])));
    let h = g.mm(x, w1);
    let h = g.add(h, b1);
    let h = g.relu(h);
    let y = g.mm(h, w2);
    let y = g.add(y, b2);
    g.set_outputs(vec![y]);
    g
}

#[test]
fn tracing_makes_the_graph_that_builders_make() {
    assert_eq!(traced_mlp(), built_mlp());
    // A function item, and a closure that captures, are both traced.
    fn model(t: &Tracer) -> Vec<TracedTensor> {
        let x = t.input("x", f32s(&[2]));
        vec![&x + &x]
    }
    assert_eq!(trace("m", model).len(), 2);
    let scale = 3.0;
    let graph = trace("m", |t| vec![t.input("x", f32s(&[2])) * scale]);
    assert_eq!(verify(&graph), []);
}

fn ramp(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * 0.37).sin()).collect()
}

fn traced_graphs_run_as_built_ones(device: Device) {
    register();
    let run = |graph: Graph| {
        let mut compiled = Session::new(device).compile(graph);
        compiled.set_param("first.w", &ramp(12));
        compiled.set_param("first.b", &ramp(4));
        compiled.set_param("second.w", &ramp(8));
        compiled.set_param("second.b", &ramp(2));
        compiled.run(&[("x", &ramp(6))])
    };
    assert_eq!(run(traced_mlp()), run(built_mlp()));
}

fn operators_compute(device: Device) {
    register();
    let graph = trace("operators", |t| {
        let (x, y) = (t.input("x", f32s(&[3])), t.input("y", f32s(&[3])));
        let n = t.input("n", Shape::new(&[3], DType::I32));
        let sum = &x + &y - 1.0 + 2.0f32 * &x;
        let ratio = (6 / (x.clone() + 1)) * -&y;
        let chosen = x.less(&y).where_(&x * 10, 0.5);
        let whole = (n * 2 + 1).cast(DType::F32);
        vec![sum, ratio, chosen, whole, x.pow(2.0).sum([], false), x.maximum(2.0) / y]
    });
    let mut compiled = Session::new(device).compile(graph);
    let n: Vec<f32> = vec![1.0, -2.0, 7.0];
    let out = compiled.run(&[("x", &[1.0, 2.0, 5.0]), ("y", &[2.0, 1.0, 8.0]), ("n", &n)]);
    assert_eq!(out[0], [4.0, 6.0, 22.0]);
    assert_eq!(out[1], [-6.0, -2.0, -8.0]);
    assert_eq!(out[2], [10.0, 0.5, 50.0]);
    assert_eq!(out[3], [3.0, -3.0, 15.0]);
    assert_eq!(out[4], [30.0]);
    assert_eq!(out[5], [1.0, 2.0, 0.625]);
}

fn methods_compute(device: Device) {
    register();
    let graph = trace("methods", |t| {
        let x = t.input("x", f32s(&[2, 3]));
        let table = t.input("table", f32s(&[4, 2]));
        let ids = t.input("ids", Shape::new(&[3], DType::I64));
        let (best, place) = x.top_k(1, -1);
        vec![
            x.transpose([1, 0]).reshape([-1]),
            x.swap_dims(0, 1).narrow(0, 1, 2),
            table.gather(&ids, 0),
            x.concat([&x], 1).mean([1], true),
            x.unsqueeze(0).squeeze(0).max([0], false),
            best,
            place.cast(DType::F32),
            x.softmax(-1).sum([-1], false),
        ]
    });
    let mut compiled = Session::new(device).compile(graph);
    let out = compiled.run(&[
        ("x", &[1.0, 2.0, 3.0, 6.0, 5.0, 4.0]),
        ("table", &[0.0, 1.0, 10.0, 11.0, 20.0, 21.0, 30.0, 31.0]),
        ("ids", &[3.0, 0.0, -2.0]),
    ]);
    assert_eq!(out[0], [1.0, 6.0, 2.0, 5.0, 3.0, 4.0]);
    assert_eq!(out[1], [2.0, 5.0, 3.0, 4.0]);
    assert_eq!(out[2], [30.0, 31.0, 0.0, 1.0, 20.0, 21.0]);
    assert_eq!(out[3], [2.0, 5.0]);
    assert_eq!(out[4], [6.0, 5.0, 4.0]);
    assert_eq!(out[5], [3.0, 6.0]);
    assert_eq!(out[6], [2.0, 0.0]);
    out[7].iter().for_each(|s| assert!((s - 1.0).abs() < 1e-6));
}

#[test]
fn a_fault_names_the_line_where_it_was_written() {
    let line = line!() + 3;
    let wrong = |t: &Tracer| {
        let x = t.input("x", f32s(&[2, 4]));
        let y = x.matmul(&x);
        vec![(y + 1.0).relu()]
    };
    let error = try_trace("wrong", wrong).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape);
    assert!(error.to_string().contains("cannot multiply [2, 4] f32 by [2, 4] f32"), "{error}");
    let origin = error.origin().unwrap().replace('\\', "/");
    assert!(origin.contains(&format!("trace.rs:{line}:")), "{origin}");
    // `trace` keeps the fault; the verifier and compiling report it, once.
    let graph = trace("wrong", wrong);
    assert_eq!(verify(&graph).len(), 1);
    let error = Session::new(Device::Cpu).try_compile(graph).unwrap_err();
    assert!(error.to_string().contains(&format!("trace.rs:{line}:")), "{error}");
}

#[test]
fn what_runs_wrong_names_its_line_too() {
    let line = line!() + 4;
    let graph = trace("gather", |t| {
        let table = t.input("table", f32s(&[4, 2]));
        let ids = t.input("ids", Shape::new(&[1], DType::I64));
        vec![table.gather(&ids, 0)]
    });
    let node = graph.outputs[0];
    let origin = graph.origins().describe(graph.node(node).origin).unwrap();
    assert!(origin.contains(&format!("trace.rs:{line}:")), "{origin}");
}

#[test]
fn tensors_of_two_recordings_do_not_mix() {
    let mut kept = None;
    trace("first", |t| {
        let x = t.input("x", f32s(&[2]));
        kept = Some(x.clone());
        vec![x]
    });
    let error = try_trace("second", |t| vec![t.input("y", f32s(&[2])) + kept.as_ref().unwrap()]).unwrap_err();
    assert!(error.to_string().contains("another graph"), "{error}");
    let error = try_trace("third", |_| vec![kept.clone().unwrap()]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidGraph);
}

#[test]
fn numbers_take_the_element_type_or_are_rejected() {
    let half = try_trace("half", |t| vec![t.input("x", Shape::new(&[2], DType::F16)) * 0.5]).unwrap();
    assert_eq!(half.shape(half.outputs[0]).dtype(), DType::F16);
    let error = try_trace("int", |t| vec![t.input("x", Shape::new(&[2], DType::I64)) * 0.5]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DType);
}

/// Rates each row of a batch.
#[rlx_model]
fn mlp<Batch, const HIDDEN: usize = 4>(
    x: Tensor<f32, Batch, 3>,
    w1: Param<f32, 3, HIDDEN>,
    b1: Param<f32, HIDDEN>,
    w2: Param<f32, HIDDEN, 2>,
) -> Tensor<f32, Batch, 2> {
    let hidden: Tensor<f32, Batch, HIDDEN> = (x.matmul(w1) + b1).relu();
    hidden.matmul(w2) * 0.5
}

fn filled() -> WeightStore {
    let mut weights = WeightStore::default();
    for (name, dims) in [("w1", &[3, 4][..]), ("b1", &[4]), ("w2", &[4, 2])] {
        let bytes: Vec<u8> = ramp(dims.iter().product()).iter().flat_map(|x| x.to_le_bytes()).collect();
        weights.insert(name, Weight::owned(DType::F32, dims, bytes).unwrap());
    }
    weights
}

fn models_run_at_any_batch(device: Device) {
    register();
    let mut mlp = Mlp::new(device);
    assert_eq!(Mlp::HIDDEN, 4);
    mlp.set_w1(typed::nested(&ramp(12)).unwrap());
    mlp.set_b1(&[0.0, 1.0, 2.0, 3.0]);
    mlp.set_w2(&[[1.0, -1.0]; 4]);
    let mut other = mlp.clone();
    for batch in [1, 5, 2] {
        let x: Vec<[f32; 3]> = (0..batch).map(|i| [i as f32, 1.0, -1.0]).collect();
        let MlpOutputs { output } = mlp.run(MlpInputs { x: &x });
        assert_eq!(output.len(), batch);
        for (x, y) in x.iter().zip(&output) {
            let hidden = |j: usize| {
                let sum: f32 = (0..3).map(|i| x[i] * ramp(12)[i * 4 + j]).sum();
                (sum + j as f32).max(0.0)
            };
            let want = (0..4).map(hidden).sum::<f32>() * 0.5;
            assert!((y[0] - want).abs() < 1e-5 && (y[1] + want).abs() < 1e-5, "{y:?} {want}");
        }
        assert_eq!(other.run(MlpInputs { x: &x }).output, output);
    }
}

#[test]
fn a_model_is_the_graph_that_its_body_traces() {
    let graph = Mlp::graph();
    let traced = trace("mlp", |t| {
        let x = t.input("x", Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Static(3)], DType::F32));
        let (w1, b1) = (t.param("w1", f32s(&[3, 4])), t.param("b1", f32s(&[4])));
        let w2 = t.param("w2", f32s(&[4, 2]));
        vec![(x.matmul(w1) + b1).relu().matmul(w2) * 0.5]
    });
    assert_eq!(graph, traced);
    // Lines of the model's own source are the origins.
    let last = graph.origins().describe(graph.node(graph.outputs[0]).origin).unwrap();
    assert!(last.contains("trace.rs:"), "{last}");
}

#[test]
fn models_load_weights_and_name_what_is_missing() {
    let mut model = Mlp::try_new(Device::Cpu).unwrap();
    let error = model.try_run(MlpInputs { x: &[[0.0; 3]] }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Binding);
    let error = model.load(&WeightStore::default()).unwrap_err();
    assert!(error.to_string().contains("w1, b1, w2"), "{error}");
    model.load(&filled()).unwrap();
    model.try_run(MlpInputs { x: &[[0.0; 3]] }).unwrap();
    assert_eq!(model.compiled().params().len(), 3);
    model.compiled_mut().set_param("b1", &[1.0; 4]);
}

#[test]
fn models_go_through_the_policy_pass() {
    let session = Session::new(Device::Cpu);
    let options = CompileOptions { policy: Some(PrecisionPolicy::AlwaysF16), ..CompileOptions::new() };
    let halves = |compiled: &CompiledGraph| compiled.lir().graph.to_string().contains("f16");
    let model = Mlp::compile_with(&session, &options).unwrap();
    let graph = session.try_compile_with(traced_mlp(), &options).unwrap();
    assert!(halves(model.compiled()) && halves(&graph), "{}", graph.lir().graph);
    let plain = Mlp::compile(&session).unwrap();
    assert!(!halves(plain.compiled()));
    assert_eq!(plain.compiled().precision(), Precision::F32);
}

/// Several open dimensions, several results, fixed ones, other element types.
#[rlx_model]
fn attend<Batch, Seq, const HEADS: usize = 2, const SIZE: usize = 4>(
    ids: Tensor<i64, Batch, Seq>,
    bias: Tensor<f32, 2, SIZE>,
    table: Param<f32, 10, { HEADS * SIZE }>,
) -> (Tensor<f32, Batch, Seq, 8>, Tensor<f32, 2, SIZE>, Tensor<i64, Batch, Seq, 1>, Tensor<f32>) {
    let x: Tensor<f32, Batch, Seq, { HEADS * SIZE }> = table.gather(ids, 0);
    let split = x.reshape([Batch, Seq, HEADS, SIZE]).transpose([0, 2, 1, 3]);
    let mixed = split.attention(split, split, HEADS, SIZE).transpose([0, 2, 1, 3]);
    let states = mixed.reshape([Batch, Seq, HEADS * SIZE]);
    let (_, best) = states.top_k(1, -1);
    (states, -bias, best, bias.sum([], false))
}

fn models_have_several_open_dimensions(device: Device) {
    register();
    let mut model = Attend::new(device);
    let table = ramp(80);
    model.set_table(typed::nested(&table).unwrap());
    for (batch, seq) in [(1, 3), (2, 2)] {
        let ids: Vec<i64> = (0..batch * seq).map(|i| i as i64 % 10).collect();
        let bias = [[1.0, 2.0, 3.0, 4.0], [0.0; 4]];
        let out = model.run(AttendInputs { ids: DenseView::new(&ids, [batch, seq]).unwrap(), bias: &bias });
        let states: &Dense<[f32; 8], 2> = &out.states;
        assert_eq!((states.dims(), states.rows().len()), ([batch, seq], batch * seq));
        assert_eq!(*out.output1, [[-1.0, -2.0, -3.0, -4.0], [0.0; 4]]);
        assert_eq!(*out.output3, 10.0);
        for (row, best) in states.rows().iter().zip(out.best.rows()) {
            let most = row.iter().copied().fold(f32::MIN, f32::max);
            assert_eq!(row[best[0] as usize], most);
        }
    }
    let ids = [0i64; 4];
    assert!(DenseView::new(&ids, [3, 2]).is_err());
    let error = model
        .try_run(AttendInputs { ids: DenseView::new(&[10i64], [1, 1]).unwrap(), bias: &[[0.0; 4]; 2] })
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Value);
}

on_every_device!(
    traced_graphs_run_as_built_ones,
    operators_compute,
    methods_compute,
    models_run_at_any_batch,
    models_have_several_open_dimensions,
);

#[test]
fn nested_arrays_keep_their_counts() {
    assert_eq!(typed::nested::<[[f32; 2]; 2]>(&[1.0, 2.0, 3.0, 4.0]).unwrap(), &[[1.0, 2.0], [3.0, 4.0]]);
    assert!(typed::nested::<[f32; 3]>(&[1.0, 2.0]).is_err());
    assert_eq!(typed::nested_rows::<[u8; 2]>(&[1, 2, 3, 4]).unwrap(), &[[1, 2], [3, 4]]);
    assert!(typed::nested_rows::<[u8; 3]>(&[1, 2, 3, 4]).is_err());
}
