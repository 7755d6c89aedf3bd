//! Every op's own random cases and random graphs, compared with the oracle.

use std::collections::BTreeMap;

use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{
    Case, random_donating_graph, random_graph, random_projection_graph, random_symbolic_graph,
};
use rlx_ir::{DType, ErrorKind, Graph, OpKind};
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

/// Seeds among which every element type turns up that an op's generator makes.
const TYPE_SEEDS: u64 = 600;
/// How many cases of an op and element type are tried until one runs.
const TRIES: usize = 8;

/// A case of every pair of op and element type, on one device or on several.
#[derive(Debug)]
pub struct TypedCases<const N: usize> {
    /// How many pairs there are.
    pub made: usize,
    /// How many of them have a case that ran, on each device.
    pub covered: [usize; N],
    /// Why the others have none.
    pub none: Vec<String>,
    /// What was wrong.
    pub wrong: Vec<String>,
}

impl<const N: usize> TypedCases<N> {
    /// Runs cases of each pair until one ran on each device, or some were rejected by it. `check` says why a case does not run on a device; nothing where
    /// it ran. Its error is what is wrong with it.
    pub fn of(
        names: [&str; N],
        mut check: impl FnMut(&Case, usize) -> Result<Option<String>, String>,
    ) -> TypedCases<N> {
        let mut cases = TypedCases { made: 0, covered: [0; N], none: Vec::new(), wrong: Vec::new() };
        for &kind in OpKind::ALL {
            // By element type: why it does not run on each device, and whether it was done there.
            let mut seen: BTreeMap<&str, [(Vec<String>, bool); N]> = BTreeMap::new();
            for seed in 0..TYPE_SEEDS {
                let case = Case::random(kind, seed);
                let dtype = type_of(&case).name();
                let found = seen.entry(dtype).or_insert_with(|| std::array::from_fn(|_| Default::default()));
                for (device, (rejected, done)) in found.iter_mut().enumerate() {
                    if *done || rejected.len() >= TRIES {
                        continue;
                    }
                    match check(&case, device) {
                        Ok(None) => {
                            cases.covered[device] += 1;
                            *done = true;
                        }
                        Ok(Some(why)) => rejected.push(why),
                        Err(e) => {
                            cases
                                .wrong
                                .push(format!("{} {kind} of {dtype}, seed {seed}: {e}", names[device]));
                            *done = true;
                        }
                    }
                }
            }
            cases.made += seen.len();
            for (dtype, found) in &seen {
                for (name, (rejected, _)) in names.iter().zip(found).filter(|(_, (_, done))| !done) {
                    cases.none.push(format!("{name}: {kind} of {dtype}: {}", rejected[0]));
                }
            }
        }
        cases
    }

    /// A line that says how many pairs have cases that ran.
    ///
    /// # Panics
    /// When a case was wrong, or fewer than `least` pairs have a case that ran.
    pub fn assert(&self, least: [usize; N]) -> String {
        assert!(self.wrong.is_empty(), "{} wrong:\n{}", self.wrong.len(), self.wrong.join("\n"));
        let fewer = self.covered.iter().zip(least).any(|(now, before)| *now < before);
        assert!(!fewer, "{:?} where there were {least:?}", self.covered);
        format!("{:?} of {} pairs of op and element type", self.covered, self.made)
    }
}

impl TypedCases<1> {
    /// The same on a backend: a case runs, or the device's dispatch report rejects it.
    pub fn on(backend: &dyn Backend) -> TypedCases<1> {
        TypedCases::of([backend.name()], |case, _| {
            let (graph, bindings) = case.graph();
            Ok((!agrees(&graph, &bindings, backend)?).then(|| "it is rejected".to_owned()))
        })
    }
}

/// The element type a case is about: that of its first input, or of what it gives.
fn type_of(case: &Case) -> DType {
    case.inputs.first().map(|x| x.dtype).unwrap_or_else(|| {
        let (graph, _) = case.graph();
        graph.shape(graph.outputs[0]).dtype()
    })
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
