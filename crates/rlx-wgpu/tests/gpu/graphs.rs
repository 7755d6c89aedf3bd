//! Every op's own random cases and random graphs on Vulkan, against the oracle. Kernels that were compiled once
//! serve all later cases of their kind, so the first case of an op is the slow one.

use std::collections::BTreeMap;

use rlx_ir::testing::{Case, random_graph, random_symbolic_graph};
use rlx_ir::{DType, ErrorKind, Graph, OpKind};

use crate::common::{all, compile, disagreement, set_params, vulkan};

/// Ops that no device of this crate runs: packed formats are another device's, custom ops are unknown.
const NOT_RUN: &[OpKind] = &[OpKind::Pack, OpKind::Custom];

/// Whether the graph computes in a type that WGSL neither has nor can be given.
fn needs_f64(graph: &Graph) -> bool {
    graph.nodes().iter().any(|n| n.shape.dtype() == DType::F64)
}

#[test]
fn every_op_agrees_with_the_oracle() {
    let Some(backend) = vulkan() else { return };
    let cases: u64 = if all() { 40 } else { 2 };
    let (mut ran, mut wrong) = (BTreeMap::<&str, u64>::new(), Vec::new());
    for &kind in OpKind::ALL.iter().filter(|k| !NOT_RUN.contains(k)) {
        let (mut seed, start) = (0, std::time::Instant::now());
        while ran.get(kind.name()).is_none_or(|&n| n < cases) && seed < cases + 40 {
            let (graph, bindings) = Case::random(kind, seed).graph();
            seed += 1;
            if needs_f64(&graph) {
                continue;
            }
            let outcome = compile(&graph, &backend).and_then(|mut exec| {
                set_params(&mut *exec, &bindings)?;
                Ok(disagreement(&graph, &bindings, &mut *exec))
            });
            let what = match outcome {
                Ok(None) => {
                    *ran.entry(kind.name()).or_default() += 1;
                    continue;
                }
                Ok(Some(what)) => what,
                Err(e) => e.to_string(),
            };
            wrong.push(format!("{kind} seed {}: {what}\n{graph}", seed - 1));
            break;
        }
        println!("{:20} {:3} {:?}", kind.name(), ran.get(kind.name()).unwrap_or(&0), start.elapsed());
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(ran.len(), OpKind::ALL.len() - NOT_RUN.len());
}

#[test]
fn random_graphs_agree_with_the_oracle() {
    let Some(backend) = vulkan() else { return };
    let count = if all() { 200 } else { 30 };
    let (mut ran, mut seed) = (0, 0);
    while ran < count {
        let (graph, many) = if seed % 3 == 0 {
            random_symbolic_graph(seed, 10)
        } else {
            let (graph, bindings) = random_graph(seed, 10);
            (graph, vec![bindings])
        };
        seed += 1;
        if needs_f64(&graph) {
            continue;
        }
        let mut exec = match compile(&graph, &backend) {
            Ok(exec) => exec,
            Err(e) => panic!("seed {}: {e}\n{graph}", seed - 1),
        };
        for bindings in &many {
            set_params(&mut *exec, bindings).unwrap();
            if let Some(what) = disagreement(&graph, bindings, &mut *exec) {
                panic!("seed {}: {what}\n{graph}\n{}", seed - 1, exec.lir());
            }
        }
        ran += 1;
    }
    println!("{ran} random graphs");
}

#[test]
fn what_cannot_be_computed_is_refused_with_the_reason() {
    let Some(backend) = vulkan() else { return };
    let graph = rlx_ir::text::parse(
        r#"graph "wide" {
          %0 = Input {name="x"} : [4] f64
          %1 = Binary.Add(%0, %0) : [4] f64
          return %1
        }"#,
    )
    .unwrap();
    let error = compile(&graph, &backend).err().expect("WGSL has no f64");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("f64"), "{error}");
}
