//! Every op's own random cases and random graphs, compared with the oracle.

use std::collections::BTreeMap;

use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{
    Case, random_donating_graph, random_graph, random_projection_graph, random_symbolic_graph,
};
use rlx_ir::{ErrorKind, Graph, OpKind};
use rlx_opt::pipeline::PassContext;
use rlx_opt::{CompileOptions, KernelDispatchReport};

use super::{compile, disagreement, set_params};
use crate::Backend;

/// Seeds tried for an op until it has its cases.
const SEEDS: u64 = 80;

/// What the backend's device says about the ops of a graph.
///
/// # Panics
/// When the backend has no target for default options.
pub fn report(graph: &Graph, backend: &dyn Backend) -> KernelDispatchReport {
    let options = CompileOptions::default();
    let target = backend.target(&options).expect("a target");
    rlx_opt::report::analyze(graph, &PassContext { target: &*target, options: &options, is_body: false })
}

/// Which ops ran, and what was wrong.
#[derive(Debug, Default)]
pub struct OpCases {
    /// How many cases ran, by op; an op without one is not there.
    pub ran: BTreeMap<&'static str, u64>,
    /// The first failure of each op that has one.
    pub wrong: Vec<String>,
}

impl OpCases {
    /// Runs up to `each` random cases of every op. `check` says whether a case runs; what is wrong with it, if anything is.
    pub fn of(each: u64, mut check: impl FnMut(&Case, u64) -> Result<bool, String>) -> OpCases {
        let mut cases = OpCases::default();
        for &kind in OpKind::ALL {
            let mut done = 0;
            for seed in 0..SEEDS {
                match check(&Case::random(kind, seed), seed) {
                    Ok(runs) => done += u64::from(runs),
                    Err(what) => {
                        cases.wrong.push(format!("{kind} seed {seed}: {what}"));
                        break;
                    }
                }
                if done == each {
                    break;
                }
            }
            if done > 0 {
                cases.ran.insert(kind.name(), done);
            }
        }
        cases
    }

    /// Runs the cases on a backend: each either agrees with the oracle or is one that the device's dispatch report rejects.
    pub fn on(backend: &dyn Backend, each: u64) -> OpCases {
        OpCases::of(each, |case, _| {
            let (graph, bindings) = case.graph();
            agrees(&graph, &bindings, backend)
        })
    }

    /// A line that says how many ops have cases that ran, and which have none.
    ///
    /// # Panics
    /// When a case was wrong, or fewer than `least` ops have cases that ran.
    pub fn assert(&self, least: usize) -> String {
        let none: Vec<&str> =
            OpKind::ALL.iter().map(|kind| kind.name()).filter(|name| !self.ran.contains_key(name)).collect();
        assert!(self.wrong.is_empty(), "{} wrong:\n{}", self.wrong.len(), self.wrong.join("\n"));
        assert!(self.ran.len() >= least, "{} ops where there were {least}", self.ran.len());
        format!("{} of {} ops; none of {}", self.ran.len(), OpKind::ALL.len(), none.join(", "))
    }
}

/// Whether the graph runs: it agrees with the oracle, or the device's dispatch report rejects it.
///
/// # Errors
/// What is wrong, with the graph.
pub fn agrees(graph: &Graph, bindings: &Bindings, backend: &dyn Backend) -> Result<bool, String> {
    let outcome = compile(graph, backend).and_then(|mut exec| {
        set_params(&mut *exec, bindings)?;
        Ok(disagreement(graph, bindings, &mut *exec))
    });
    match outcome {
        Ok(None) => Ok(true),
        Ok(Some(what)) => Err(format!("{what}\n{graph}")),
        Err(e) => {
            let report = report(graph, backend);
            if e.kind() == ErrorKind::Unsupported && !report.compile_ready {
                return Ok(false);
            }
            Err(format!("{e}\n{report}\n{graph}"))
        }
    }
}

/// Compiles random graphs until `count` ran (with symbols, with donated inputs, plain ones, and with norms before matmuls in turn), and runs each `runs` times
/// with each of its inputs; gives how many the device's dispatch report rejects.
///
/// # Panics
/// When one differs from the oracle, or fails without having been reported as not ready.
pub fn random_graphs(backend: &dyn Backend, count: usize, runs: usize) -> usize {
    let (mut ran, mut rejected) = (0, 0);
    for seed in 0.. {
        if ran == count {
            break;
        }
        let one = |(graph, bindings)| (graph, vec![bindings]);
        let (graph, many) = match seed % 4 {
            0 => random_symbolic_graph(seed, 10),
            1 => one(random_donating_graph(seed, 10)),
            2 => one(random_graph(seed, 10)),
            _ => one(random_projection_graph(seed, 5)),
        };
        let mut exec = match compile(&graph, backend) {
            Ok(exec) => exec,
            Err(e) if e.kind() == ErrorKind::Unsupported && !report(&graph, backend).compile_ready => {
                rejected += 1;
                continue;
            }
            Err(e) => panic!("{} seed {seed}: {e}\n{graph}", backend.name()),
        };
        for bindings in &many {
            set_params(&mut *exec, bindings).expect("parameters that fit their graph");
            for _ in 0..runs {
                if let Some(what) = disagreement(&graph, bindings, &mut *exec) {
                    panic!("{} seed {seed}: {what}\n{graph}\n{}", backend.name(), exec.lir());
                }
            }
        }
        ran += 1;
    }
    rejected
}
