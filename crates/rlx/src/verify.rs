//! Compares the results of a device with those of the oracle (or another device), and finds the first op that diverges.
//!
//! The outputs are compared first. Then every value that remains after fusion (that some step of the compiled module
//! writes) is made an output and compared, in order. For the first value that diverges, the nodes between
//! it and the last correct value are run one by one on the oracle's values: the first that diverges by itself is the
//! cause.
//!
//! In a 16-bit type, values may overflow. The first op whose result is infinite or NaN where the reference is
//! finite is found in the same way, and reported even if small errors made another node diverge earlier.

mod rounding;
mod stored;

use std::sync::Arc;

use rlx_ir::oracle::{self, Bindings};
use rlx_ir::progress::Stage;
use rlx_ir::sort::{sort, sort_by_key};
use rlx_ir::{
    ConstData, DType, Error, ErrorKind, Graph, Node, NodeId, Op, Progress, Result, Value, WeightStore,
};
use rlx_runtime::{CompileOptions, CompiledGraph, Numerics, Precision, Session};

use crate::compare::{Difference, Tolerance, Tolerances, compare};
use crate::runner::views;
use rounding::rounded_to;

pub use stored::verify_compiled;

/// The first value at which a device diverges from the reference.
#[derive(Debug, Clone, PartialEq)]
pub struct Divergence {
    /// The node, as named in messages.
    pub node: String,
    /// The op.
    pub op: &'static str,
    /// Where the node came from, if known.
    pub origin: Option<String>,
    /// Whether the node diverges by itself, or only together with those fused into it.
    pub alone: bool,
    /// The difference.
    pub difference: Difference,
}

/// The result of a verification.
#[derive(Debug, Clone, PartialEq)]
pub struct Verification {
    /// Whether every value compared is within the tolerance.
    pub ok: bool,
    /// Where the device first diverges from the reference.
    pub first_divergence: Option<Divergence>,
    /// Where a result is first infinite or NaN and the reference finite.
    pub first_overflow: Option<Divergence>,
    /// The difference of each output.
    pub outputs: Vec<Difference>,
    /// The number of inner values compared.
    pub values: usize,
    /// The difference over all outputs.
    pub overall: Difference,
    /// The tolerance: the widest among the outputs, since each type has its own.
    pub tolerance: Tolerance,
}

/// A graph with everything needed to run it.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// Its parameters.
    pub weights: &'a WeightStore,
    /// Its inputs.
    pub inputs: &'a [(&'a str, &'a ConstData)],
}

/// The reference to compare with.
#[derive(Debug, Clone, Copy, Default)]
pub enum Reference<'a> {
    /// The oracle: slow and exact.
    #[default]
    Oracle,
    /// A device that is trusted. It computes in f32 with strict numerics, and every value
    /// of the graph is an output there.
    Device(&'a Session),
}

/// Runs `case` on the session's device and on the reference, and compares. `Tolerances::default()` goes by each tensor's
/// type; a [`Tolerance`] applies to all. `progress` reports each phase, and may
/// cancel between two nodes of the oracle, passes, steps and comparisons.
///
/// # Errors
/// A case that fails on the reference or on the device; [`ErrorKind::Cancelled`].
pub fn verify(
    session: &Session,
    reference: Reference<'_>,
    options: &CompileOptions,
    case: Case<'_>,
    tolerance: impl Into<Tolerances>,
    progress: &Progress,
) -> Result<Verification> {
    let tolerances = by_node(case.graph, tolerance.into());
    let run = Run { session, options, case, tolerances: &tolerances, progress };
    let values = reference_values(reference, options, case, progress)?;
    say(progress, "running the device")?;
    let (compiled, got) = run.device(case.graph)?;
    let want = |id: NodeId| result(&values, id);
    let mut outputs = Vec::with_capacity(got.len());
    for (&id, got) in case.graph.outputs.iter().zip(&got) {
        outputs.push(compare(want(id)?, got, run.tolerance(id)));
    }
    say(progress, "comparing inner values")?;
    let survivors = survivors(case.graph, &compiled, &values);
    let inner = run.inner(&survivors, &values)?;
    let mut judged: Vec<(NodeId, Difference)> =
        survivors.iter().copied().zip(inner.iter().copied()).collect();
    judged.extend(case.graph.outputs.iter().copied().zip(outputs.iter().copied()));
    sort_by_key(&mut judged, |&(id, _)| id);
    say(progress, "looking for the first node that diverges")?;
    let first_divergence = run.first(&judged, &values, |d| !d.ok)?;
    let first_overflow = run.first(&judged, &values, |d| d.overflowed > 0)?;
    Ok(Verification {
        ok: first_divergence.is_none(),
        first_divergence,
        first_overflow,
        overall: outputs.iter().copied().fold(Difference::NONE, Difference::merge),
        outputs,
        values: survivors.len(),
        tolerance: widest(case.graph, &tolerances),
    })
}

/// The tolerance of each node of the graph.
fn by_node(graph: &Graph, tolerances: Tolerances) -> Vec<Tolerance> {
    rounded_to(graph).into_iter().map(|dtype| tolerances.of(dtype)).collect()
}

/// The shortest float type that each output of a graph was rounded to on its way: what its accuracy can be.
pub fn output_types(graph: &Graph) -> Vec<DType> {
    let types = rounded_to(graph);
    graph.outputs.iter().map(|id| types[id.index()]).collect()
}

/// The widest tolerance of an output.
fn widest(graph: &Graph, tolerances: &[Tolerance]) -> Tolerance {
    let of_outputs = graph.outputs.iter().map(|id| tolerances[id.index()]);
    let wider = |a: Tolerance, b: Tolerance| Tolerance {
        rtol: a.rtol.max(b.rtol),
        atol: a.atol.max(b.atol),
        floor: a.floor.max(b.floor),
    };
    of_outputs.reduce(wider).unwrap_or_default()
}

/// What the reference computes for every node.
fn reference_values(
    reference: Reference<'_>,
    options: &CompileOptions,
    case: Case<'_>,
    progress: &Progress,
) -> Result<Vec<Option<Vec<Value>>>> {
    match reference {
        Reference::Oracle => {
            say(progress, "running the oracle")?;
            oracle::evaluate_all_with_progress(case.graph, &bindings(case)?, &case.graph.outputs, progress)
        }
        Reference::Device(trusted) => {
            say(progress, "running the trusted device")?;
            let options = CompileOptions {
                precision: Precision::F32,
                policy: None,
                numerics: Numerics::Strict,
                ..options.clone()
            };
            Run { session: trusted, options: &options, case, tolerances: &[], progress }.every_value()
        }
    }
}

type Values = [Option<Vec<Value>>];

/// Reports the next phase, and checks for cancellation.
fn say(progress: &Progress, what: &str) -> Result<()> {
    progress.step(Stage::Verify, 0, 0, || what)
}

fn result(values: &Values, id: NodeId) -> Result<&Value> {
    let found = values.get(id.index()).and_then(|v| v.as_ref()).and_then(|v| v.first());
    found.ok_or_else(|| Error::new(ErrorKind::Internal, format!("the reference has no value of {id}")))
}

fn bindings(case: Case<'_>) -> Result<Bindings> {
    let mut bindings = Bindings::default();
    for (name, data) in case.inputs {
        bindings.set_input(*name, data.try_value()?);
    }
    for node in case.graph.params() {
        if let Op::Param { name } = &node.op
            && let Some(weight) = case.weights.get(name)
        {
            bindings.set_param(name.clone(), weight.to_const()?.try_value()?);
        }
    }
    Ok(bindings)
}

/// The nodes of `graph` whose values some step of the compiled module writes, in order.
///
/// A step knows the source nodes it was made from by their names; the last of those is the one whose value it
/// writes. Without origins, every node is included.
fn survivors(graph: &Graph, compiled: &CompiledGraph, values: &Values) -> Vec<NodeId> {
    let lir = compiled.lir();
    let mut found: Vec<NodeId> = Vec::new();
    for step in &lir.steps {
        let node = lir.graph.node(step.node);
        let made_from = lir.graph.origins().names(node.origin);
        let of_step = |n: &&Node| {
            let mut names = graph.origins().names(n.origin).into_iter();
            n.shape.rank() == node.shape.rank() && names.any(|name| made_from.contains(&name))
        };
        found.extend(graph.nodes().iter().rev().find(of_step).map(|n| n.id));
    }
    if found.is_empty() {
        found = graph.nodes().iter().map(|n| n.id).collect();
    }
    sort(&mut found);
    found.dedup();
    let plain = |op: &Op| !matches!(op, Op::Input { .. } | Op::Param { .. } | Op::Constant { .. });
    found.retain(|&id| plain(&graph.node(id).op) && result(values, id).is_ok());
    found
}

struct Run<'a> {
    session: &'a Session,
    options: &'a CompileOptions,
    case: Case<'a>,
    /// By node of the case's graph.
    tolerances: &'a [Tolerance],
    progress: &'a Progress,
}

impl Run<'_> {
    /// The tolerance of a node of the case's graph.
    fn tolerance(&self, id: NodeId) -> Tolerance {
        self.tolerances.get(id.index()).copied().unwrap_or_default()
    }

    /// The outputs of `graph` (the case's, perhaps with other outputs) on the device.
    fn device(&self, graph: &Graph) -> Result<(CompiledGraph, Vec<ConstData>)> {
        let progress = self.progress;
        let mut compiled = self.session.try_compile_with_progress(graph.clone(), self.options, progress)?;
        compiled.try_set_weights_with_progress(self.case.weights, progress)?;
        let outputs = compiled.try_run_tensors_with_progress(&views(self.case.inputs), progress)?;
        Ok((compiled, outputs))
    }

    /// The values of all nodes that the outputs depend on, as the oracle gives them.
    fn every_value(&self) -> Result<Vec<Option<Vec<Value>>>> {
        let graph = self.case.graph;
        let live = oracle::live_nodes(graph, &graph.outputs)?;
        let bindings = bindings(self.case)?;
        let mut values: Vec<Option<Vec<Value>>> = vec![None; graph.len()];
        let mut computed = Vec::new();
        for node in graph.nodes().iter().filter(|n| live[n.id.index()]) {
            let known = match &node.op {
                Op::Input { name } => bindings.input(name).cloned(),
                Op::Param { name } => bindings.param(name).cloned(),
                Op::Constant { data } => Some(data.try_value()?),
                _ => {
                    computed.push(node.id);
                    continue;
                }
            };
            values[node.id.index()] = known.map(|value| vec![value]);
        }
        let mut all = graph.clone();
        all.set_outputs(computed.clone());
        let (_, got) = self.device(&all)?;
        for (id, value) in computed.into_iter().zip(&got) {
            values[id.index()] = Some(vec![value.try_value()?]);
        }
        Ok(values)
    }

    fn inner(&self, survivors: &[NodeId], values: &Values) -> Result<Vec<Difference>> {
        if survivors.is_empty() {
            return Ok(Vec::new());
        }
        let mut graph = self.case.graph.clone();
        graph.set_outputs(survivors.to_vec());
        let (_, got) = self.device(&graph)?;
        let pairs = survivors.iter().zip(&got);
        pairs.map(|(&id, got)| Ok(compare(result(values, id)?, got, self.tolerance(id)))).collect()
    }

    /// The first node for which `off` is true; `judged` are the values compared, in order.
    fn first(
        &self,
        judged: &[(NodeId, Difference)],
        values: &Values,
        off: fn(&Difference) -> bool,
    ) -> Result<Option<Divergence>> {
        let Some(&(bad, difference)) = judged.iter().find(|(_, d)| off(d)) else { return Ok(None) };
        // A difference may shrink again behind it: what comes later says nothing of what is before.
        let before = judged.iter().filter(|(id, d)| !off(d) && id.index() < bad.index());
        let good: Vec<NodeId> = before.map(|&(id, _)| id).collect();
        self.locate(bad, difference, &good, values, off).map(Some)
    }

    /// The first node behind `bad` that diverges by itself; else the first whose value does, which a step may compute on the way
    /// without storing it; else `bad`.
    fn locate(
        &self,
        bad: NodeId,
        difference: Difference,
        good: &[NodeId],
        values: &Values,
        off: fn(&Difference) -> bool,
    ) -> Result<Divergence> {
        let graph = self.case.graph;
        let behind = oracle::live_nodes(graph, &[bad])?;
        let fine = oracle::live_nodes(graph, good)?;
        let suspect = |n: &&Node| {
            let at = n.id.index();
            behind[at] && !n.inputs.is_empty() && (!fine[at] || n.id == bad)
        };
        let suspects: Vec<&Node> = graph.nodes().iter().filter(suspect).collect();
        for &node in &suspects {
            self.progress.check(Stage::Verify)?;
            if let Some(difference) = self.alone(node, values)?.filter(off) {
                return Ok(divergence(graph, node, true, difference));
            }
        }
        // One at a time, so that what is around it is computed as before.
        for node in suspects {
            self.progress.check(Stage::Verify)?;
            let known = result(values, node.id).is_ok();
            let found = if known { self.inner(&[node.id], values)? } else { Vec::new() };
            if let Some(&difference) = found.first().filter(|difference| off(difference)) {
                return Ok(divergence(graph, node, false, difference));
            }
        }
        Ok(divergence(graph, graph.node(bad), false, difference))
    }

    /// The node alone on the oracle's values; `None` when it cannot be compiled alone.
    fn alone(&self, node: &Node, values: &Values) -> Result<Option<Difference>> {
        if matches!(node.op, Op::Result { .. }) {
            return Ok(None);
        }
        let mut graph = Graph::new("alone");
        let mut given: Vec<(String, ConstData)> = Vec::with_capacity(node.inputs.len());
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (i, &id) in node.inputs.iter().enumerate() {
            let value = result(values, id)?;
            inputs.push(graph.input(format!("x{i}"), value.shape()));
            given.push((format!("x{i}"), value.to_const()));
        }
        let want = result(values, node.id)?;
        // Symbols have their values here: the shapes are those of the oracle's values.
        let dims = oracle::bind_dims(self.case.graph, &bindings(self.case)?)?;
        let results: Vec<_> = node.results().iter().map(|s| s.bind(&dims)).collect();
        let id = graph.push_node(Node::new(node.op.bind(&dims), inputs, results));
        graph.set_outputs(vec![id]);
        let Ok(mut compiled) = self.session.try_compile_with(graph, self.options) else { return Ok(None) };
        let given: Vec<(&str, &ConstData)> = given.iter().map(|(n, d)| (n.as_str(), d)).collect();
        let got = compiled.try_run_tensors(&views(&given))?;
        Ok(got.first().map(|got| compare(want, got, self.tolerance(node.id))))
    }
}

fn divergence(graph: &Graph, node: &Node, alone: bool, difference: Difference) -> Divergence {
    Divergence {
        node: node.describe(),
        op: node.op.kind().name(),
        origin: graph.origins().describe(node.origin),
        alone,
        difference,
    }
}

/// Verifies an imported model.
///
/// # Errors
/// As [`verify`].
pub fn verify_imported(
    session: &Session,
    reference: Reference<'_>,
    options: &CompileOptions,
    imported: &Arc<rlx_onnx::Imported>,
    inputs: &[(&str, &ConstData)],
    tolerance: impl Into<Tolerances>,
    progress: &Progress,
) -> Result<Verification> {
    let case = Case { graph: &imported.graph, weights: &imported.weights, inputs };
    verify(session, reference, options, case, tolerance, progress)
}
