//! What must hold of every op in the table, checked on random cases from its own generator.

use rlx_ir::testing::{Case, Gen};
use rlx_ir::{Dim, OpKind, oracle, text, verify};

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
            // What an op counts is a symbol in the graph, and a number here.
            let counted = graph.data_symbols();
            let shape = graph.shape(id).dims().iter().zip(&value.dims);
            let is_counted = |s: &u32| counted.iter().any(|c| c.symbol == *s);
            let found = |d: Dim| d.extent().symbols().iter().any(is_counted);
            assert_eq!(value.dtype, graph.shape(id).dtype(), "{kind} seed {seed}");
            assert_eq!(value.dims.len(), graph.shape(id).rank(), "{kind} seed {seed}");
            for (&declared, &n) in shape {
                assert!(
                    declared == Dim::Static(n) || found(declared),
                    "{kind} seed {seed}: {declared} is {n}"
                );
            }
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

/// Numbers that a hostile or careless graph might have in place of another.
const NUMBERS: &[&str] = &["0", "1", "2", "3", "7", "-1", "-2", "65536", "2147483648", "9223372036854775807"];

/// The text with one of its numbers (but for node ids) replaced.
fn mutated(text: &str, g: &mut Gen) -> String {
    let bytes = text.as_bytes();
    let starts: Vec<usize> = (1..bytes.len())
        .filter(|&i| bytes[i].is_ascii_digit() && matches!(bytes[i - 1], b'[' | b' ' | b'=' | b'-'))
        .collect();
    if starts.is_empty() {
        return text.to_string();
    }
    let start = g.pick(&starts);
    let end = start + bytes[start..].iter().take_while(|b| b.is_ascii_digit()).count();
    format!("{}{}{}", &text[..start], g.pick(NUMBERS), &text[end..])
}

#[test]
fn mutated_graphs_are_rejected_or_run_but_never_panic() {
    let (mut rejected, mut ran) = (0, 0);
    for (kind, seed, case) in cases().filter(|(kind, ..)| *kind != OpKind::Custom) {
        let (graph, _) = case.graph();
        let blobs = text::blobs(&graph);
        let mut g = Gen::new(seed ^ 0x5EED);
        for _ in 0..8 {
            let mut changed = graph.to_string();
            for _ in 0..g.size(1..=3) {
                changed = mutated(&changed, &mut g);
            }
            let graph = match text::parse_with_blobs(&changed, &blobs) {
                Ok(graph) if verify(&graph).is_empty() => graph,
                _ => {
                    rejected += 1;
                    continue;
                }
            };
            let small = |s: &rlx_ir::Shape| s.num_elements().is_some_and(|n| n <= 1 << 12);
            if !graph.nodes().iter().all(|n| n.results().iter().all(small)) {
                continue;
            }
            let mut bindings = oracle::Bindings::default();
            for node in graph.inputs().chain(graph.params()) {
                let (dtype, dims) = (node.shape.dtype(), node.shape.static_dims().unwrap_or_default());
                let value = g.value(dtype, &dims, -2.0..2.0);
                if let rlx_ir::Op::Input { name } | rlx_ir::Op::Param { name } = &node.op {
                    bindings.set_input(name, value.clone());
                    bindings.set_param(name, value);
                }
            }
            if let Some(decomposed) = rlx_ir::decompose::decompose_all(&graph, |k| k == kind).unwrap() {
                assert_eq!(verify(&decomposed), [], "{kind} seed {seed}\n{changed}\n{decomposed}");
            }
            // An error (an index out of range, say) is fine; a panic fails the test by itself.
            ran += 1;
            if let Err(e) = oracle::evaluate(&graph, &bindings) {
                assert_ne!(e.kind(), rlx_ir::ErrorKind::Internal, "{kind} seed {seed}: {e}\n{changed}");
            }
        }
    }
    // Both happen often, or the test looks at nothing.
    assert!(rejected > 1000 && ran > 1000, "{rejected} rejected, {ran} ran");
}

/// What looks for symbols without making expressions finds the same ones.
#[test]
fn the_symbols_of_a_node_are_those_of_its_expressions() {
    let mut with_symbols = 0;
    for seed in 0..200 {
        let (graph, _) = rlx_ir::testing::random_symbolic_graph(seed, 10);
        for node in graph.nodes() {
            let of_results = node.results().iter().flat_map(|shape| shape.dims()).map(|dim| dim.extent());
            let mut expected: std::collections::BTreeSet<u32> =
                of_results.flat_map(|e| e.symbols()).collect();
            node.op.each_extent(&mut |e| expected.extend(e.symbols()));
            assert_eq!(node.symbols(), expected, "seed {seed}: {}", node.describe());
            with_symbols += usize::from(node.op.is_symbolic());
        }
    }
    assert!(with_symbols > 50, "attributes of {with_symbols} nodes have symbols");
}
