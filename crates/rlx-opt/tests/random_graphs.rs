//! Random graphs: optimised against as written, on the oracle.

#[path = "passes/common.rs"]
mod common;

use std::sync::Arc;

use common::Anything;
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{Case, Tolerance, difference, for_random_graphs, random_graph};
use rlx_ir::testing::{random_projection_graph, random_symbolic_graph};
use rlx_ir::{Graph, Node, OpKind, verify_ok};
use rlx_opt::{CompileOptions, CompilePipeline, KernelDispatchPolicy, Numerics};

/// How far results may be apart when optimisations may change bits.
const FAST: Tolerance = Tolerance { rtol: 1e-3, atol: 1e-3 };

/// Not at all.
const STRICT: Tolerance = Tolerance { rtol: 0.0, atol: 0.0 };

/// What is wrong with the optimised graph, if anything is.
fn fault(graph: &Graph, all: &[Bindings], numerics: Numerics, channels_last: bool) -> Option<String> {
    fault_with(graph, all, channels_last, CompileOptions { numerics, ..CompileOptions::default() })
}

fn fault_with(
    graph: &Graph,
    all: &[Bindings],
    channels_last: bool,
    options: CompileOptions,
) -> Option<String> {
    let numerics = options.numerics;
    let options = CompileOptions { assert_fusion_clean: true, ..options };
    let mut pipeline =
        CompilePipeline::new(Arc::new(Anything { channels_last, ..Anything::default() }), options);
    pipeline.keep_graphs = true;
    let result = match pipeline.compile(graph) {
        Ok(result) => result,
        Err(e) => return Some(format!("does not compile: {e}")),
    };
    let tolerance = if numerics == Numerics::Strict { STRICT } else { FAST };
    for bindings in all {
        let want = oracle::evaluate(graph, bindings).unwrap_or_else(|e| panic!("{e}\n{graph}"));
        let wrong = |after: &Graph| match oracle::evaluate(after, bindings) {
            Ok(got) => want.iter().zip(&got).find_map(|(w, g)| difference(w, g, tolerance)),
            Err(e) => Some(e.to_string()),
        };
        let passes: Vec<(&str, &Graph)> =
            result.passes.iter().filter_map(|p| Some((p.name, p.after.as_ref()?))).collect();
        if passes.last().is_some_and(|(_, last)| wrong(last).is_some()) {
            // The first pass after which the results differ is to blame.
            return passes.iter().find_map(|(name, g)| Some(format!("after {name}: {}\n{g}", wrong(g)?)));
        }
    }
    None
}

/// Whether the optimised graph computes what it should, from a generator's seed and size.
fn check(
    make: impl Fn(u64, usize) -> (Graph, Vec<Bindings>),
    options: &CompileOptions,
) -> impl Fn(u64, usize) -> Result<(), String> {
    move |seed, size| {
        let (graph, all) = make(seed, size);
        verify_ok(&graph).map_err(|e| format!("the generator made an invalid graph: {e}\n{graph}"))?;
        match fault_with(&graph, &all, seed.is_multiple_of(2), options.clone()) {
            Some(fault) => {
                let graph = rlx_opt::rewrite::without_dead_nodes(graph);
                Err(format!("{:?}: {fault}\nas written: {graph}", options.numerics))
            }
            None => Ok(()),
        }
    }
}

fn fixed(seed: u64, size: usize) -> (Graph, Vec<Bindings>) {
    let (graph, bindings) = random_graph(seed, size);
    (graph, vec![bindings])
}

#[test]
fn optimised_graphs_give_the_same_results() {
    for_random_graphs(1, 400, 1..=32, check(fixed, &CompileOptions::default()));
}

#[test]
fn strict_numerics_change_no_bit() {
    let strict = CompileOptions { numerics: Numerics::Strict, ..CompileOptions::default() };
    for_random_graphs(2, 200, 1..=32, check(fixed, &strict));
}

#[test]
fn projections_norms_and_gates_give_the_same_results() {
    let projections = |seed, size| {
        let (graph, bindings) = random_projection_graph(seed, size);
        (graph, vec![bindings])
    };
    for_random_graphs(8, 200, 1..=12, check(projections, &CompileOptions::default()));
    let strict = CompileOptions { numerics: Numerics::Strict, ..CompileOptions::default() };
    for_random_graphs(9, 100, 1..=12, check(projections, &strict));
}

#[test]
fn graphs_with_symbols_give_the_same_results_at_every_size() {
    for_random_graphs(3, 150, 1..=32, check(random_symbolic_graph, &CompileOptions::default()));
}

#[test]
fn decomposed_graphs_give_the_same_results() {
    let common =
        CompileOptions { kernel_dispatch: KernelDispatchPolicy::ForceCommon, ..CompileOptions::default() };
    for_random_graphs(4, 80, 1..=24, check(fixed, &common));
}

/// The case as a graph, every other input a constant.
fn with_constants(case: &Case, which: usize) -> (Graph, Bindings) {
    let (mut graph, mut bindings) = (Graph::new("constants"), Bindings::default());
    let mut ids = Vec::new();
    for (i, value) in case.inputs.iter().enumerate() {
        if (i + which).is_multiple_of(2) {
            ids.push(graph.constant(value.to_const()));
        } else {
            ids.push(graph.input(format!("x{i}"), value.shape()));
            bindings.set_input(format!("x{i}"), value.clone());
        }
    }
    let results = graph.infer(&case.op, &ids, &case.declared).unwrap();
    let node = graph.push_node(Node::new(case.op.clone(), ids, results));
    graph.set_outputs(vec![node]);
    (graph, bindings)
}

#[test]
fn every_op_alone_survives_the_passes() {
    for &kind in OpKind::ALL.iter().filter(|k| !matches!(k, OpKind::Custom)) {
        for seed in 0..16 {
            let case = Case::random(kind, seed);
            // Only what is known before the run is packed.
            let pack = kind == OpKind::Pack;
            let constants = pack || (seed % 4 < 2 && case.source.is_none());
            let which = if pack { 0 } else { seed as usize % 2 };
            let (graph, bindings) = if constants { with_constants(&case, which) } else { case.graph() };
            let numerics = if seed.is_multiple_of(3) { Numerics::Strict } else { Numerics::Fast };
            if let Some(fault) = fault(&graph, &[bindings], numerics, seed.is_multiple_of(2)) {
                panic!("{kind}, seed {seed}, {numerics:?}: {fault}\nas written: {graph}");
            }
        }
    }
}
