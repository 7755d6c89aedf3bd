//! Every op's own random cases and random graphs on Vulkan, against the oracle. Kernels that were compiled once
//! serve all later cases of their kind, so the first case of an op is the slow one. What the device does not compute,
//! its dispatch report says; no list here does.

use std::collections::BTreeMap;

use rlx_backend::Backend;
use rlx_ir::testing::{Case, random_donating_graph, random_graph, random_symbolic_graph};
use rlx_ir::{DType, ErrorKind, Graph, OpKind};
use rlx_opt::pipeline::PassContext;
use rlx_opt::{CompileOptions, KernelDispatchReport};
use rlx_wgpu::WgpuBackend;

use crate::common::{all, compile, disagreement, main_device, set_params};

/// Seeds tried for an op until it has its cases.
const SEEDS: u64 = 80;
/// How many ops have cases that run. More kernels make it larger; nothing may make it smaller.
const COVERED: usize = 45;

/// Whether the graph computes in a type that WGSL neither has nor can be given.
fn needs_f64(graph: &Graph) -> bool {
    graph.nodes().iter().any(|n| n.shape.dtype() == DType::F64)
}

fn report(graph: &Graph, backend: &WgpuBackend) -> KernelDispatchReport {
    let options = CompileOptions::default();
    let target = backend.target(&options).unwrap();
    rlx_opt::report::analyze(graph, &PassContext { target: &*target, options: &options, is_body: false })
}

/// Whether the case runs; what is wrong with it, if anything is.
fn check(case: &Case, backend: &WgpuBackend) -> Result<bool, String> {
    let (graph, bindings) = case.graph();
    let report = report(&graph, backend);
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
    let Some(backend) = main_device() else { return };
    let cases: u64 = if all() { 40 } else { 2 };
    let (mut ran, mut wrong) = (BTreeMap::<&str, u64>::new(), Vec::new());
    for &kind in OpKind::ALL {
        let (mut seed, mut done, start) = (0, 0, std::time::Instant::now());
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
        if done == 0 {
            let (graph, _) = Case::random(kind, 0).graph();
            println!("{kind}: no case runs\n{}", report(&graph, &backend));
        } else {
            ran.insert(kind.name(), done);
        }
        println!("{:20} {done:3} {:?}", kind.name(), start.elapsed());
    }
    println!("{} of {} ops", ran.len(), OpKind::ALL.len());
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(ran.len() >= COVERED, "{} ops where there were {COVERED}", ran.len());
}

#[test]
fn random_graphs_agree_with_the_oracle() {
    let Some(backend) = main_device() else { return };
    let count = if all() { 200 } else { 30 };
    let (mut ran, mut seed) = (0, 0);
    while ran < count {
        let (graph, many) = if seed % 3 == 0 {
            random_symbolic_graph(seed, 10)
        } else {
            let make = if seed % 3 == 1 { random_donating_graph } else { random_graph };
            let (graph, bindings) = make(seed, 10);
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
fn what_cannot_be_computed_is_rejected_with_the_reason() {
    let Some(backend) = main_device() else { return };
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
