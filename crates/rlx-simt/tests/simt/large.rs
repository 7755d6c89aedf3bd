//! Values and pools beyond what 32 bits count in bytes. The memory of the fake driver's GPUs is the host's only where something is written, and runs have few
//! rows, so of what is planned for many almost nothing is touched.

use rlx_backend::Backend;
use rlx_ir::testing::random_bindings;
use rlx_ir::{DimBinding, ErrorKind, Graph, SymRange, sym, text};

use crate::common::{compile, disagreement, everything, fakes};

/// The first number of bytes that 32 bits with a sign do not count.
const TWO_GIB: usize = 1 << 31;

/// Products of up to so many rows, one of the other, all of which are results.
fn products(rows: i64, count: usize) -> Graph {
    let lines: String = (0..count)
        .map(|i| format!("%{} = MatMul(%{}, %1) : [seq, 4] f32\n", i + 2, if i == 0 { 0 } else { i + 1 }))
        .collect();
    let results: Vec<String> = (0..count).map(|i| format!("%{}", i + 2)).collect();
    let mut graph = text::parse(&format!(
        "graph \"g\" {{
          %0 = Input {{name=\"x\"}} : [seq, 4] f32
          %1 = Input {{name=\"w\"}} : [4, 4] f32
          {lines}
          return {}
        }}",
        results.join(", ")
    ))
    .unwrap_or_else(|e| panic!("{e}"));
    graph.set_symbol_range(sym::SEQ, SymRange::new(1, rows));
    graph
}

/// Compiles it, and with everything else runs it three times (the last one as a recorded graph) with few rows: the interpreter keeps who wrote each
/// element of what is behind a buffer, which are gigabytes.
fn runs(graph: &Graph, backend: &dyn Backend) {
    let mut exec = compile(graph, backend).unwrap_or_else(|e| panic!("{e}"));
    if !everything() {
        return;
    }
    let dims = DimBinding::from_pairs(&[(sym::SEQ, 5)]);
    let bindings = random_bindings(graph, &dims, 1);
    for _ in 0..3 {
        assert_eq!(disagreement(graph, &bindings, &mut *exec), None, "{}", backend.name());
    }
}

#[test]
fn a_pool_of_more_than_two_gib_is_planned_and_values_behind_them_are_right() {
    let graph = products(70_000_000, 3);
    for backend in fakes() {
        let lir = rlx_backend::testing::lir_of(&graph, &backend).unwrap();
        let plan = lir.plan().unwrap();
        assert!(plan.pools[0] > 3 * (TWO_GIB / 2), "{:?}", plan.pools);
        assert!(plan.offsets.iter().flatten().any(|&at| at > TWO_GIB), "{:?}", plan.offsets);
        runs(&graph, &backend);
    }
}

#[test]
fn a_value_has_more_than_two_gib_but_no_more_elements_than_kernels_count_to() {
    for backend in fakes() {
        runs(&products(150_000_000, 1), &backend);
        let error = compile(&products(600_000_000, 1), &backend).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.to_string().contains("2400000000 elements"), "{error}");
        if !everything() {
            continue;
        }
        // What a graph says nothing of is found out when it runs.
        let largest = text::parse(
            r#"graph "g" {
              %0 = Input {name="x"} : [seq] i8
              %1 = Reduce(%0) {op=Max, axes=[0], keep_dim=false} : [] i8
              return %1
            }"#,
        );
        let mut exec = compile(&largest.unwrap(), &backend).unwrap();
        let error = exec.run(&&[vec![0; TWO_GIB]][..], &[TWO_GIB as i64]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.to_string().contains("2147483648 elements"), "{error}");
    }
}
