//! What must hold of every op in the table, checked on random cases from its own generator.

use rlx_ir::testing::Case;
use rlx_ir::{OpKind, oracle, text, verify};

const CASES: u64 = 40;

fn cases() -> impl Iterator<Item = (OpKind, u64, Case)> {
    OpKind::ALL.iter().flat_map(|&kind| (0..CASES).map(move |seed| (kind, seed, Case::random(kind, seed))))
}

#[test]
fn generated_cases_verify() {
    for (kind, seed, case) in cases() {
        let (graph, _) = case.graph();
        assert_eq!(verify(&graph), [], "{kind} seed {seed}\n{graph}");
    }
}

#[test]
fn the_text_form_reads_back_to_an_equal_graph() {
    for (kind, seed, case) in cases() {
        let (graph, _) = case.graph();
        let printed = graph.to_string();
        let blobs = text::blobs(&graph);
        let read = text::parse_with_blobs(&printed, &blobs)
            .unwrap_or_else(|e| panic!("{kind} {seed}: {e}\n{printed}"));
        assert_eq!(read, graph, "{kind} seed {seed}");
        assert_eq!(rlx_ir::graph_hash(&read), rlx_ir::graph_hash(&graph));
    }
}

#[test]
fn the_oracle_evaluates_every_case() {
    for (kind, seed, case) in cases().filter(|(kind, ..)| *kind != OpKind::Custom) {
        let (graph, bindings) = case.graph();
        let values =
            oracle::evaluate(&graph, &bindings).unwrap_or_else(|e| panic!("{kind} {seed}: {e}\n{graph}"));
        for (value, &id) in values.iter().zip(&graph.outputs) {
            assert_eq!(value.shape(), *graph.shape(id), "{kind} seed {seed}");
        }
    }
}

#[test]
fn decompositions_compute_the_same() {
    for (kind, seed, case) in cases().filter(|(kind, ..)| *kind != OpKind::Custom) {
        let (graph, bindings) = case.graph();
        let Some(decomposed) = rlx_ir::decompose::decompose_all(&graph, |k| k == kind).unwrap() else {
            continue;
        };
        assert_eq!(verify(&decomposed), [], "{kind} seed {seed}\n{decomposed}");
        let want = oracle::evaluate(&graph, &bindings).unwrap();
        let got = oracle::evaluate(&decomposed, &bindings)
            .unwrap_or_else(|e| panic!("{kind} {seed}: {e}\n{decomposed}"));
        for (want, got) in want.iter().zip(&got) {
            let tolerance = rlx_ir::testing::tolerance(want.dtype);
            rlx_ir::testing::assert_close(want, got, tolerance, &format!("{kind} seed {seed}\n{decomposed}"));
        }
    }
}
