//! Graphs whose declared dimensions contradict their ops, for some values of the symbols or for all: the CPU gives what
//! the oracle gives, or an error where the oracle reports one, on every instruction set.

mod common;

use common::{against_oracle, backends, compile, run};
use rlx_cpu::CpuBackend;
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{Gen, hollow_case, mismatched_case};
use rlx_ir::{DimBinding, Error, ErrorKind, Graph, Op, OpKind, Value, text, verify};
use rlx_opt::CompileOptions;

/// What the CPU makes of a graph that verifies.
fn on_cpu(
    graph: &Graph,
    bindings: &Bindings,
    dims: &DimBinding,
    backend: &CpuBackend,
) -> Result<Vec<Vec<u8>>, Error> {
    let mut exec = compile(graph, backend, &CompileOptions::default())?;
    let missing = exec.lir().symbols.iter().copied().find(|&s| dims.get(s).is_none());
    match missing {
        Some(s) => Err(Error::new(ErrorKind::Dimension, format!("{} has no value", rlx_ir::sym::name(s)))),
        None => run(&mut *exec, bindings, dims),
    }
}

/// Compares the CPU with the oracle; what differs, described.
fn compare(graph: &Graph, bindings: &Bindings, backends: &[(String, CpuBackend)]) -> Result<bool, String> {
    let Ok(dims) = oracle::bind_dims(graph, bindings) else { return Ok(false) };
    if !verify(graph).is_empty() {
        return Ok(false);
    }
    let want = oracle::evaluate(graph, bindings);
    for (name, backend) in backends {
        let got = on_cpu(graph, bindings, &dims, backend);
        let wrong = match (&want, &got) {
            (_, Err(e)) if matches!(e.kind(), ErrorKind::Unsupported | ErrorKind::OutOfMemory) => None,
            (_, Err(e)) if e.kind() == ErrorKind::Internal => Some(e.to_string()),
            (Ok(want), Ok(got)) => against_oracle(want, got),
            (Err(oracle), Ok(_)) => Some(format!("gives a result where the oracle reports: {oracle}")),
            (Ok(_), Err(e)) => Some(format!("reports {e} where the oracle gives a result")),
            (Err(_), Err(_)) => None,
        };
        if let Some(wrong) = wrong {
            return Err(format!("{name}, {dims:?}: {wrong}\n{graph}"));
        }
    }
    Ok(want.is_err())
}

/// `PROPTEST_CASES` gives the number of cases of each op.
#[test]
fn contradicting_dimensions_are_errors_and_never_results() {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(40u64);
    let backends = backends();
    let mut rejected = 0;
    for &kind in OpKind::ALL {
        for seed in 0..cases {
            let (graph, bindings) = mismatched_case(kind, seed);
            match compare(&graph, &bindings, &backends) {
                Ok(rejects) => rejected += u32::from(rejects),
                Err(wrong) => panic!("{kind} {seed} on {wrong}"),
            }
        }
    }
    assert!(rejected > 200, "only {rejected} contradictions");
}

/// A loop over what an empty tensor has would not end here. `PROPTEST_CASES` gives the number of cases of each op.
#[test]
fn tensors_without_elements_are_no_work_whatever_their_other_dimensions() {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(40u64);
    let backends = backends();
    for &kind in OpKind::ALL {
        for seed in 0..cases {
            // Shown where it does not end.
            println!("{kind} {seed}");
            let (graph, bindings) = hollow_case(kind, seed);
            let backend = &backends[seed as usize % backends.len()..][..1];
            if let Err(wrong) = compare(&graph, &bindings, backend) {
                panic!("{kind} {seed} on {wrong}");
            }
        }
    }
}

/// Small graphs that showed a fault: each with the dimensions of its inputs and parameters, in order.
const FOUND: &str = include_str!("data/mismatched.txt");

#[test]
fn graphs_that_were_run_wrong_once_are_right_or_rejected() {
    let backends = backends();
    let mut seen = 0;
    for entry in FOUND.split("\n\n").filter(|e| e.contains("graph ")) {
        let (head, body) = entry.trim_start().split_once('\n').expect("dimensions, then a graph");
        let graph = text::parse(body).unwrap_or_else(|e| panic!("{e}\n{body}"));
        let mut g = Gen::new(seen);
        let mut bindings = Bindings::default();
        let sizes = |list: &str| -> Vec<usize> {
            list.split_whitespace().map(|n| n.parse().expect("a size")).collect()
        };
        for (node, dims) in graph.nodes().iter().filter(|n| is_border(&n.op)).zip(head.split('|').skip(1)) {
            let value = g.value(node.shape.dtype(), &sizes(dims), 0.0..2.0);
            give(&mut bindings, &node.op, value);
        }
        if let Err(wrong) = compare(&graph, &bindings, &backends) {
            panic!("{head}: {wrong}");
        }
        assert!(
            verify(&graph).iter().any(|_| true) || oracle::evaluate(&graph, &bindings).is_err(),
            "{head}"
        );
        seen += 1;
    }
    assert!(seen >= 15, "only {seen} graphs");
}

fn is_border(op: &Op) -> bool {
    matches!(op, Op::Input { .. } | Op::Param { .. })
}

fn give(bindings: &mut Bindings, op: &Op, value: Value) {
    match op {
        Op::Input { name } => _ = bindings.set_input(name.clone(), value),
        Op::Param { name } => _ = bindings.set_param(name.clone(), value),
        _ => {}
    }
}
