//! Every op's own random cases and random graphs, on the interpreter, against the oracle: with every type of the
//! device there, and with 32-bit types only.

mod common;

use std::collections::BTreeMap;

use common::{disagreement, native, try_compiled, words};
use rlx_ir::testing::{Case, random_graph, random_symbolic_graph};
use rlx_ir::{DType, ErrorKind, Graph, OpKind};
use rlx_kernel::KernelTarget;

const CASES: u64 = 60;
const GRAPHS: u64 = 120;

/// Ops that no device of this crate runs: packed formats are another device's, custom ops are unknown.
const NOT_RUN: &[OpKind] = &[OpKind::Pack, OpKind::Custom];

/// What went wrong with a case; `Ok(false)` when the device refuses it.
fn check(kind: OpKind, seed: u64, target: &KernelTarget) -> Result<bool, String> {
    let (graph, bindings) = Case::random(kind, seed).graph();
    match try_compiled(&graph, target) {
        Ok(executable) => disagreement(&graph, &bindings, &executable).map_or(Ok(true), Err),
        Err(e) if e.kind() == ErrorKind::Unsupported => {
            // Only what cannot be had may be refused.
            let wide = graph.nodes().iter().any(|n| n.shape.dtype() == DType::F64);
            if wide && !target.types.float64 { Ok(false) } else { Err(e.to_string()) }
        }
        Err(e) => Err(e.to_string()),
    }
}

#[test]
fn every_op_agrees_with_the_oracle() {
    let (mut table, mut wrong) = (BTreeMap::<&str, [u64; 2]>::new(), Vec::new());
    for (t, target) in [native(), words()].iter().enumerate() {
        for &kind in OpKind::ALL.iter().filter(|k| !NOT_RUN.contains(k)) {
            for seed in 0..CASES {
                match check(kind, seed, target) {
                    Ok(ran) => table.entry(kind.name()).or_default()[t] += u64::from(ran),
                    Err(e) => {
                        wrong.push(format!("{} {kind} seed {seed}: {e}", target.name));
                        break;
                    }
                }
            }
        }
    }
    for (op, ran) in &table {
        println!("{op:20} {:3} {:3} of {CASES}", ran[0], ran[1]);
        assert!(ran[0] == CASES || !wrong.is_empty(), "{op}");
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Each device takes every third graph; those with f64 need the one that has it.
fn target_for(graph: &Graph, seed: u64) -> KernelTarget {
    let wide = graph.nodes().iter().any(|n| n.shape.dtype() == DType::F64);
    match seed % 3 {
        _ if wide => native(),
        0 => native(),
        1 => words(),
        _ => KernelTarget::webgpu("webgpu"),
    }
}

#[test]
fn random_graphs_agree_with_the_oracle() {
    for seed in 0..GRAPHS {
        let (graph, bindings) = random_graph(seed, 12);
        let target = target_for(&graph, seed);
        let executable =
            try_compiled(&graph, &target).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{graph}"));
        if let Some(what) = disagreement(&graph, &bindings, &executable) {
            panic!("{} seed {seed}: {what}\n{graph}", target.name);
        }
    }
}

#[test]
fn random_symbolic_graphs_agree_with_the_oracle() {
    for seed in 0..GRAPHS {
        let (graph, sizes) = random_symbolic_graph(seed, 12);
        let target = target_for(&graph, seed);
        let executable =
            try_compiled(&graph, &target).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{graph}"));
        for bindings in &sizes {
            if let Some(what) = disagreement(&graph, bindings, &executable) {
                panic!("{} seed {seed}: {what}\n{graph}", target.name);
            }
        }
    }
}
