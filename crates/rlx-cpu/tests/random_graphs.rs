//! Random graphs: the CPU against the oracle through the whole pipeline, with fixed and with open dimensions.

mod common;

use common::{against_oracle_within, compile, oracle, run, run_again, unfused};
use rlx_cpu::CpuBackend;
use rlx_ir::testing::{Tolerance, random_graph, random_symbolic_graph};
use rlx_ir::{DimBinding, ErrorKind, oracle};
use rlx_opt::CompileOptions;

/// Errors of 32-bit floats grow along a chain of ops, and with optimisations that change bits.
fn looser(t: Tolerance) -> Tolerance {
    let exact = t.rtol == 0.0;
    if exact { t } else { Tolerance { rtol: t.rtol.max(1e-3), atol: t.atol.max(1e-3) } }
}

#[test]
fn fixed_graphs_agree_with_the_oracle() {
    let backend = CpuBackend::new().with_threads(2).expect("a pool of two threads");
    let (mut ran, mut refused) = (0, Vec::new());
    for seed in 0..600 {
        let (graph, bindings) = random_graph(seed, 5 + seed as usize % 30);
        let want = oracle(&graph, &bindings);
        let mut same: Option<Vec<Vec<u8>>> = None;
        for options in [CompileOptions::default(), unfused()] {
            let mut exec = match compile(&graph, &backend, &options) {
                Ok(exec) => exec,
                Err(e) if e.kind() == ErrorKind::Unsupported => {
                    refused.push(format!("seed {seed}: {e}"));
                    continue;
                }
                Err(e) => panic!("seed {seed}: {e}\n{graph}"),
            };
            let got = run(&mut *exec, &bindings, &DimBinding::new())
                .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{graph}"));
            if let Some(difference) = against_oracle_within(&want, &got, looser) {
                panic!("seed {seed}: {difference}\n{graph}\n{}", exec.lir());
            }
            let again = run_again(&mut *exec, &bindings, &DimBinding::new()).expect("it ran before");
            assert_eq!(again, got, "seed {seed}: a second run differs");
            same = same.or(Some(got));
        }
        ran += usize::from(same.is_some());
    }
    assert!(ran >= 500, "only {ran} graphs ran; refused:\n{}", refused.join("\n"));
}

#[test]
fn open_graphs_agree_with_the_oracle_for_every_binding() {
    let backend = CpuBackend::new().with_threads(1).expect("a pool of one thread");
    let mut ran = 0;
    for seed in 0..150 {
        let (graph, all) = random_symbolic_graph(seed, 5 + seed as usize % 20);
        let mut exec = match compile(&graph, &backend, &CompileOptions::default()) {
            Ok(exec) => exec,
            Err(e) if e.kind() == ErrorKind::Unsupported => continue,
            Err(e) => panic!("seed {seed}: {e}\n{graph}"),
        };
        for bindings in &all {
            let dims = oracle::bind_dims(&graph, bindings).expect("the generator's bindings fit");
            let want = oracle(&graph, bindings);
            let got =
                run(&mut *exec, bindings, &dims).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{graph}"));
            if let Some(difference) = against_oracle_within(&want, &got, looser) {
                panic!("seed {seed} {dims:?}: {difference}\n{graph}\n{}", exec.lir());
            }
            let fixed = CompileOptions::default().dim_binding(dims.clone());
            let mut fixed = compile(&graph, &backend, &fixed).expect("it compiles open");
            let fixed = run(&mut *fixed, bindings, &dims).expect("it ran open");
            if let Some(difference) = against_oracle_within(&want, &fixed, looser) {
                panic!("seed {seed} fixed to {dims:?}: {difference}\n{graph}");
            }
            ran += 1;
        }
    }
    assert!(ran >= 150, "only {ran} bindings ran");
}
