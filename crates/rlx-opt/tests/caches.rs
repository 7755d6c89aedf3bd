//! Caches of a fixed capacity: the graph with them computes what the graph whose caches grow does.

use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{Tolerance, difference, for_random_graphs, lengthened, random_decoder};
use rlx_ir::{DType, ErrorKind, Graph, Op, Value, text};
use rlx_opt::caches::{self, Bounded};

/// Sums of more terms, all the others 0, are rounded alike; only their order may differ.
const CLOSE: Tolerance = Tolerance { rtol: 1e-6, atol: 1e-6 };

/// How many rows random decoders have at most.
const CAPACITY: usize = 12;

/// What differs between the two graphs for these values, of which `past` rows are from before.
fn fault(graph: &Graph, bounded: &Bounded, past: usize, bindings: &Bindings, seed: u64) -> Option<String> {
    let want = oracle::evaluate(graph, bindings).unwrap_or_else(|e| panic!("{e}\n{graph}"));
    let mut given = lengthened(&bounded.graph, bindings, seed);
    given.set_input(bounded.length.clone(), Value::int(DType::I64, &[], vec![past as i128]));
    let got = match oracle::evaluate(&bounded.graph, &given) {
        Ok(got) => got,
        Err(e) => return Some(e.to_string()),
    };
    (0..want.len()).find_map(|output| {
        let Some(cache) = bounded.caches.iter().find(|c| c.output == output) else {
            return difference(&want[output], &got[output], CLOSE);
        };
        // The rows that count, and behind them what was there before.
        let used = want[output].dims[cache.axis];
        let old = given.input(&cache.input).unwrap();
        let axis = cache.axis;
        let rows = |value: &Value, from: usize, to: usize| part(value, axis, from, to);
        difference(&want[output], &rows(&got[output], 0, used), CLOSE)
            .or_else(|| difference(&rows(old, used, CAPACITY), &rows(&got[output], used, CAPACITY), CLOSE))
    })
}

/// Rows `from..to` along an axis.
fn part(value: &Value, axis: usize, from: usize, to: usize) -> Value {
    let inner: usize = value.dims[axis + 1..].iter().product();
    let rows = value.dims[axis];
    let floats = value.floats().unwrap();
    let kept = |i: &usize| (from..to).contains(&(i / inner % rows));
    let mut dims = value.dims.clone();
    dims[axis] = to - from;
    Value::float(value.dtype, &dims, (0..floats.len()).filter(kept).map(|i| floats[i]).collect())
}

#[test]
fn random_decoders_compute_the_same_at_every_length() {
    for_random_graphs(21, 400, 1..=1, |seed, _| {
        let (graph, all) = random_decoder(seed);
        let bounded = caches::with_capacity(&graph, CAPACITY).map_err(|e| format!("{e}\n{graph}"))?;
        let (inputs, caches) = (bounded.graph.inputs().count(), bounded.caches.len());
        assert_eq!((inputs, bounded.graph.donations().len()), (graph.inputs().count() + 1, caches));
        for (past, bindings) in &all {
            if let Some(fault) = fault(&graph, &bounded, *past, bindings, seed) {
                return Err(format!("{past} past rows: {fault}\n{graph}\n{}", bounded.graph));
            }
        }
        Ok(())
    });
}

/// A cache of rows of 2, and what is computed of it.
fn cached(more: &str, outputs: &str) -> Graph {
    let graph = format!(
        r#"graph "step" {{
          %0 = Input {{name="past_rows"}} : [past, 2] f32
          %1 = Input {{name="new"}} : [1, 2] f32
          %2 = Concat(%0, %1) {{axis=0}} : [1 + past, 2] f32
          {more}
          return {outputs}
        }}"#
    );
    text::parse(&graph).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn inputs_stay_in_order_and_the_length_is_the_last() {
    let bounded = caches::with_capacity(&cached("", "%2"), 8).unwrap();
    let names: Vec<&str> = bounded
        .graph
        .inputs()
        .map(|n| match &n.op {
            Op::Input { name } => name.as_str(),
            _ => "",
        })
        .collect();
    assert_eq!(names, ["past_rows", "new", "past_length"]);
    assert_eq!(bounded.graph.shape(bounded.graph.outputs[0]).to_string(), "[8, 2] f32");
    assert_eq!(bounded.graph.donated_to("past_rows"), Some(0));
}

#[test]
fn an_update_behind_the_capacity_is_an_error() {
    let bounded = caches::with_capacity(&cached("", "%2"), 3).unwrap();
    let mut given = Bindings::default();
    given.set_input("past_rows", Value::float(DType::F32, &[3, 2], vec![0.0; 6]));
    given.set_input("new", Value::float(DType::F32, &[1, 2], vec![1.0; 2]));
    given.set_input("past_length", Value::int(DType::I64, &[], vec![3]));
    assert_eq!(oracle::evaluate(&bounded.graph, &given).unwrap_err().kind(), ErrorKind::Value);
    given.set_input("past_length", Value::int(DType::I64, &[], vec![2]));
    assert_eq!(oracle::evaluate(&bounded.graph, &given).unwrap()[0].to_f64(), [0.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
}

#[test]
fn an_index_means_the_rows_that_count() {
    let more = r#"%3 = Input {name="at"} : [1] i64
          %4 = Gather(%2, %3) {axis=0} : [1, 2] f32"#;
    let (graph, past) = (cached(more, "%2, %4"), 2);
    let bounded = caches::with_capacity(&graph, CAPACITY).unwrap();
    for at in -4i128..=3 {
        let mut given = Bindings::default();
        given.set_input("past_rows", Value::float(DType::F32, &[past, 2], vec![1.0, 2.0, 3.0, 4.0]));
        given.set_input("new", Value::float(DType::F32, &[1, 2], vec![5.0, 6.0]));
        given.set_input("at", Value::int(DType::I64, &[1], vec![at]));
        if oracle::evaluate(&graph, &given).is_ok() {
            assert_eq!(fault(&graph, &bounded, past, &given, 1), None, "index {at}");
        } else {
            let mut given = lengthened(&bounded.graph, &given, 1);
            given.set_input("past_length", Value::int(DType::I64, &[], vec![past as i128]));
            assert!(oracle::evaluate(&bounded.graph, &given).is_err(), "index {at}");
        }
    }
}

#[test]
fn what_has_no_equivalent_is_named() {
    let flat = r#"%3 = Reshape(%2) {to=[2 + 2*past]} : [2 + 2*past] f32"#;
    let turned = r#"%3 = Reshape(%2) {to=[2, 1 + past]} : [2, 1 + past] f32"#;
    let sorted = r#"%3 = ArgReduce(%2) {op=Max, axis=0, keep_dim=false, last=false} : [2] i64"#;
    let shown = r#"%3 = Activation.Neg(%2) : [1 + past, 2] f32"#;
    for (more, outputs, why) in [
        (flat, "%2, %3", "not what is past and something more"),
        (turned, "%2, %3", "rows are merged or divided"),
        (sorted, "%2, %3", "ArgReduce has no rule"),
        (shown, "%2, %3", "output 1 grows"),
        ("", "%1", "no cache that grows"),
    ] {
        let e = caches::with_capacity(&cached(more, outputs), 8).unwrap_err();
        assert!(e.kind() == ErrorKind::Unsupported && e.to_string().contains(why), "{e}");
    }
    assert_eq!(caches::with_capacity(&cached("", "%2"), 0).unwrap_err().kind(), ErrorKind::Dimension);
    // A table of positions that is shorter than the caches.
    let table = r#"%3 = Param {name="table"} : [4, 2] f32
          %4 = Slice(%3) {starts=[0, 0], steps=[1, 1], to=[1 + past, 2]} : [1 + past, 2] f32
          %5 = Binary.Add(%2, %4) : [1 + past, 2] f32
          %6 = Reduce(%5) {op=Sum, axes=[0], keep_dim=false} : [2] f32"#;
    let graph = cached(table, "%2, %6");
    assert_eq!(caches::with_capacity(&graph, 5).unwrap_err().kind(), ErrorKind::Dimension);
    assert!(caches::with_capacity(&graph, 4).is_ok());
}

#[test]
fn caches_that_grow_differently_are_rejected() {
    let graph = text::parse(
        r#"graph "two" {
          %0 = Input {name="a"} : [past, 2] f32
          %1 = Input {name="b"} : [other, 2] f32
          %2 = Input {name="new"} : [1, 2] f32
          %3 = Concat(%0, %2) {axis=0} : [1 + past, 2] f32
          %4 = Concat(%1, %2) {axis=0} : [1 + other, 2] f32
          return %3, %4
        }"#,
    )
    .unwrap();
    let e = caches::find(&graph).unwrap_err();
    assert!(e.to_string().contains("past") && e.to_string().contains("other"), "{e}");
}
