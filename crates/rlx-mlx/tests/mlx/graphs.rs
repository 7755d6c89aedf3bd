//! Every op's own random cases and random graphs, against the oracle.

use std::collections::BTreeMap;

use rlx_backend::Backend;
use rlx_backend::testing::{compile, disagreement, set_params};
use rlx_ir::testing::{Case, random_donating_graph, random_graph, random_symbolic_graph};
use rlx_ir::{ErrorKind, OpKind};
use rlx_mlx::MlxBackend;
use rlx_opt::CompileOptions;
use rlx_opt::pipeline::PassContext;

use crate::{everything, mlx};

/// Seeds tried for an op until it has its cases.
const SEEDS: u64 = 80;
/// How many ops have cases that run. More emission makes it larger; nothing may make it smaller.
const COVERED: usize = 53;

/// Whether the case runs; what is wrong with it, if anything is.
fn check(case: &Case, backend: &MlxBackend) -> Result<bool, String> {
    let (graph, bindings) = case.graph();
    let options = CompileOptions::default();
    let target = backend.target(&options).unwrap();
    let context = PassContext { target: &*target, options: &options, is_body: false };
    let report = rlx_opt::report::analyze(&graph, &context);
    let outcome = compile(&graph, backend).and_then(|mut exec| {
        set_params(&mut *exec, &bindings)?;
        Ok(disagreement(&graph, &bindings, &mut *exec))
    });
    match outcome {
        Ok(None) => Ok(true),
        Ok(Some(what)) => Err(format!("{what}\n{graph}")),
        Err(e) if e.kind() == ErrorKind::Unsupported && !report.compile_ready => Ok(false),
        Err(e) => Err(format!("{e}\n{report}\n{graph}")),
    }
}

#[test]
fn every_op_agrees_with_the_oracle() {
    let Some(backend) = mlx() else { return };
    let cases = if everything() { 60 } else { 12 };
    let (mut ran, mut wrong) = (BTreeMap::<&str, u64>::new(), Vec::new());
    for &kind in OpKind::ALL {
        let (mut seed, mut done) = (0, 0);
        while done < cases && seed < SEEDS {
            match check(&Case::random(kind, seed), &backend) {
                Ok(runs) => done += u64::from(runs),
                Err(what) => {
                    wrong.push(format!("{kind} seed {seed}: {what}"));
                    break;
                }
            }
            seed += 1;
        }
        if done > 0 {
            ran.insert(kind.name(), done);
        } else {
            println!("no case of {kind} runs");
        }
    }
    println!("{} of {} ops", ran.len(), OpKind::ALL.len());
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(ran.len() >= COVERED, "{} ops where there were {COVERED}", ran.len());
}

#[test]
fn random_graphs_agree_with_the_oracle() {
    let Some(backend) = mlx() else { return };
    for seed in 0..if everything() { 600 } else { 90 } {
        let (graph, many) = if seed % 3 == 0 {
            random_symbolic_graph(seed, 10)
        } else {
            let make = if seed % 3 == 1 { random_donating_graph } else { random_graph };
            let (graph, bindings) = make(seed, 10);
            (graph, vec![bindings])
        };
        let mut exec = compile(&graph, &backend).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{graph}"));
        for bindings in &many {
            set_params(&mut *exec, bindings).unwrap();
            // The second run is of the program as MLX compiled it.
            for _ in 0..2 {
                if let Some(what) = disagreement(&graph, bindings, &mut *exec) {
                    panic!("seed {seed}: {what}\n{graph}\n{}", exec.lir());
                }
            }
        }
    }
}
