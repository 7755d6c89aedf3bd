//! Where a last bit decides: values that are rounded to integers or compared, rows that a mask forbids as a whole, NaN.
//! The CPU against the oracle on every instruction set, fused and not, under both numerics; see `docs/precision.md`,
//! "Rounding to integers". `PROPTEST_CASES` changes how many graphs are made.

mod common;

use std::cell::Cell;

use common::{against_oracle, backends, compile, oracle, run, unfused};
use rlx_ir::op::ScatterOp;
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{
    Case, for_random_graphs, random_masked_attention, random_masked_rows, random_rounding_graph,
    random_scale_from_body,
};
use rlx_ir::{DType, DimBinding, Graph, Op, Value};
use rlx_opt::{CompileOptions, Numerics};

/// Compiles and runs with each set of options on each backend; every result must be the oracle's.
fn agrees(graph: &Graph, bindings: &Bindings) -> Result<(), String> {
    let want = oracle(graph, bindings);
    let strict = CompileOptions { numerics: Numerics::Strict, ..CompileOptions::default() };
    for (name, backend) in backends() {
        for options in [&CompileOptions::default(), &unfused(), &strict] {
            let failed = |e| format!("{name}: {e}\n{graph}");
            let mut exec = compile(graph, &backend, options).map_err(failed)?;
            let got = run(&mut *exec, bindings, &DimBinding::new()).map_err(failed)?;
            if let Some(difference) = against_oracle(&want, &got) {
                return Err(format!("{name}: {difference}\n{graph}\n{}", exec.lir()));
            }
        }
    }
    Ok(())
}

/// Checks so many random graphs.
fn search(stream: u64, cases: u32, make: impl Fn(u64, usize) -> (Graph, Bindings)) {
    let ran = Cell::new(0);
    for_random_graphs(stream, cases, 1..=10, |seed, size| {
        let (graph, bindings) = make(seed, size);
        ran.set(ran.get() + 1);
        agrees(&graph, &bindings)
    });
    assert!(ran.get() >= 20, "only {} graphs", ran.get());
}

#[test]
fn what_is_rounded_to_integers_is_the_oracles() {
    search(41, 250, random_rounding_graph);
}

#[test]
fn a_scale_from_a_body_is_the_oracles() {
    search(42, 40, |seed, _| random_scale_from_body(seed));
}

#[test]
fn masked_rows_and_nan_are_the_oracles() {
    search(43, 100, |seed, _| random_masked_rows(seed));
}

#[test]
fn attention_of_forbidden_rows_is_the_oracles() {
    search(44, 120, |seed, _| random_masked_attention(seed));
}

/// A sum of ones that was rounded after each of them would end at 256 in bf16, and at 2,048 in f16.
#[test]
fn scatters_of_short_floats_are_rounded_once() {
    const UPDATES: usize = 3000;
    let updates = |dtype, dims: &[usize]| Value::float(dtype, dims, vec![1.0; UPDATES]);
    for dtype in [DType::F16, DType::BF16] {
        let (x, ones) = (Value::float(dtype, &[1], vec![0.0]), updates(dtype, &[UPDATES]));
        let elements = Op::ScatterElements { axis: 0, reduction: ScatterOp::Add };
        let places = Value::int(DType::I64, &[UPDATES], vec![0; UPDATES]);
        let rows = Value::int(DType::I64, &[UPDATES, 1], vec![0; UPDATES]);
        for (op, places) in [(elements, places), (Op::ScatterNd { reduction: ScatterOp::Add }, rows)] {
            let (graph, bindings) = Case::new(op, vec![x.clone(), places, ones.clone()]).graph();
            agrees(&graph, &bindings).unwrap_or_else(|e| panic!("{e}"));
        }
    }
}
