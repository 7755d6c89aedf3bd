//! Every op's own random cases and random graphs, on the interpreter, against the oracle: with every type of the
//! device there, and with 32-bit types only. What a device does not compute, its dispatch report says; no list
//! here does.

mod common;

use std::collections::BTreeMap;

use common::{disagreement, native, report, shorts, try_compiled, try_module, words};
use rlx_backend::testing::TypedCases;
use rlx_ir::op::{Activation, MaskKind, Unseen};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{
    Case, random_donating_graph, random_graph, random_masked_attention, random_masked_rows,
    random_projection_graph, random_rounding_graph, random_symbolic_graph,
};
use rlx_ir::{DType, ErrorKind, Graph, Op, OpKind, Shape};
use rlx_kernel::KernelTarget;
use rlx_kernel::interp::Executable;
use rlx_opt::DispatchPath;

const CASES: u64 = 60;
const GRAPHS: u64 = 120;
/// How many pairs of op and element type run on a device with every type, on one with 32-bit types only, and on one that has 16-bit integers
/// besides. More kernels make these larger; nothing may make them smaller.
const COVERED: [usize; 3] = [463, 431, 431];

/// What became of a case.
#[derive(PartialEq)]
enum Outcome {
    Right,
    /// The report says that nothing computes it, and compiling says so too.
    Rejected(String),
}

fn check(case: &Case, target: &KernelTarget) -> Result<Outcome, String> {
    let (graph, bindings) = case.graph();
    let report = report(&graph, target);
    let module = try_module(&graph, target);
    match module.and_then(|module| Ok((Executable::new(module.clone(), target)?, module))) {
        Ok((executable, module)) => {
            // Decomposed means that no kernel computes the op itself; what the report says nothing computes can
            // only be gone (a cast to the same type).
            let result = graph.nodes().iter().find(|n| n.op == case.op).map(|n| &n.shape);
            let still = module.graph.nodes().iter().any(|n| n.op == case.op && Some(&n.shape) == result);
            let decomposed = report.common_lowered_kinds.contains(&case.op.kind());
            if still && (decomposed || !report.compile_ready) {
                return Err(format!("it is there, but was reported as\n{report}"));
            }
            disagreement(&graph, &bindings, &executable).map_or(Ok(Outcome::Right), Err)
        }
        Err(e) if e.kind() == ErrorKind::Unsupported && !report.compile_ready => {
            Ok(Outcome::Rejected(e.to_string()))
        }
        Err(e) => Err(format!("{e}\n{report}")),
    }
}

#[test]
fn every_op_agrees_with_the_oracle() {
    let (mut table, mut wrong) = (BTreeMap::<&str, [u64; 2]>::new(), Vec::new());
    for (t, target) in [native(), words()].iter().enumerate() {
        for &kind in OpKind::ALL {
            for seed in 0..CASES {
                let ran = &mut table.entry(kind.name()).or_default()[t];
                match check(&Case::random(kind, seed), target) {
                    Ok(outcome) => *ran += u64::from(outcome == Outcome::Right),
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
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_op_agrees_in_every_element_type() {
    let targets = [native(), words(), shorts()];
    let names = [0, 1, 2].map(|t: usize| targets[t].name.as_str());
    let cases = TypedCases::of(names, |case, t| match check(case, &targets[t])? {
        Outcome::Right => Ok(None),
        Outcome::Rejected(why) => Ok(Some(why)),
    });
    cases.none.iter().for_each(|none| println!("{none}"));
    println!("{}", cases.assert(COVERED));
}

#[test]
fn the_report_says_native_where_there_is_a_kernel_and_decomposed_where_there_is_none() {
    let mut graph = Graph::new("paths");
    let x = graph.input("x", Shape::new(&[2, 4, 8], DType::F32));
    // Fewer queries than keys, and few: no kernel takes such an attention.
    let q = graph.input("q", Shape::new(&[2, 2, 8], DType::F32));
    // Read by the attention, too, so that the softmax does not compute it for itself.
    let e = graph.try_add(Op::Activation(Activation::Exp), &[x]).unwrap();
    let y = graph.try_add(Op::Softmax { axis: -1 }, &[e]).unwrap();
    let attention = Op::Attention {
        num_heads: 2,
        head_dim: 4,
        mask: MaskKind::None,
        window: None,
        scale: None,
        unseen: Unseen::Zero,
    };
    let y = graph.try_add(attention, &[q, e, y]).unwrap();
    graph.set_outputs(vec![y]);
    let report = report(&graph, &words());
    let path = |kind| report.summaries.iter().find(|s| s.kind == kind).map(|s| s.path);
    assert_eq!(path(OpKind::Activation), Some(DispatchPath::Native));
    assert_eq!(path(OpKind::Softmax), Some(DispatchPath::Native));
    assert_eq!(path(OpKind::Attention), Some(DispatchPath::CommonIr), "{report}");
    let module = try_module(&graph, &words()).unwrap();
    let has = |kind| module.graph.nodes().iter().any(|n| n.op.kind() == kind);
    assert!(!has(OpKind::Attention) && has(OpKind::MatMul) && has(OpKind::Softmax), "{}", module.graph);
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

/// Random graphs of `make`, each on one of the devices.
fn agree(seeds: u64, size: usize, make: fn(u64, usize) -> (Graph, Bindings)) {
    for seed in 0..seeds {
        let (graph, bindings) = make(seed, size);
        let target = target_for(&graph, seed);
        let executable =
            try_compiled(&graph, &target).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{graph}"));
        if let Some(what) = disagreement(&graph, &bindings, &executable) {
            panic!("{} seed {seed}: {what}\n{graph}", target.name);
        }
    }
}

#[test]
fn random_graphs_agree_with_the_oracle() {
    agree(GRAPHS, 12, random_graph);
}

#[test]
fn projections_norms_and_gates_agree_with_the_oracle() {
    agree(1000, 5, random_projection_graph);
}

#[test]
fn graphs_that_donate_agree_with_the_oracle() {
    agree(1000, 8, random_donating_graph);
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

/// Where a last bit decides, and rows that a mask forbids; what is in bodies of control flow is not computed here.
#[test]
fn integers_made_of_floats_and_masked_rows_are_the_oracles() {
    let mut ran = 0;
    for seed in 0..GRAPHS {
        let made = [random_rounding_graph(seed, 8), random_masked_rows(seed), random_masked_attention(seed)];
        for (graph, bindings) in made {
            for target in [native(), words(), shorts()] {
                let executable = match try_compiled(&graph, &target) {
                    Ok(executable) => executable,
                    Err(e) if e.kind() == ErrorKind::Unsupported => continue,
                    Err(e) => panic!("seed {seed}: {e}\n{graph}"),
                };
                if let Some(what) = disagreement(&graph, &bindings, &executable) {
                    panic!("{} seed {seed}: {what}\n{graph}", target.name);
                }
                ran += 1;
            }
        }
    }
    assert!(ran >= 7 * GRAPHS, "only {ran} ran");
}
