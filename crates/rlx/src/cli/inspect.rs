//! `rlx inspect`: what a model is, and what the compiler makes of it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::process::ExitCode;

use rlx::Prepared;
use rlx_ir::cost::graph_cost;
use rlx_ir::{ConstData, Error, ErrorKind, Graph, LirModule, Op};
use rlx_onnx::Imported;
use rlx_opt::pipeline::PASSES;
use rlx_opt::{PassRecord, PrecisionReport};
use rlx_runtime::{KernelDispatchReport, TensorInfo, dispatch_report_for_device_with_options, stages};
use serde_json::{Value as Json, json};

use super::args::InspectArgs;
use super::failure::Failure;
use super::job::{self, Job, Spinner, borrowed};
use super::{compile, inputs, print};

/// What is known of a model.
struct Facts {
    model: String,
    device: &'static str,
    inputs: Vec<(String, String)>,
    outputs: Vec<(String, String)>,
    ops: BTreeMap<&'static str, usize>,
    /// `None` while dimensions are open.
    flops: Option<f64>,
    parameter_bytes: usize,
    parameters: usize,
    /// `None` when it could not be compiled.
    module: Option<Module>,
    report: KernelDispatchReport,
    /// Why it could not be compiled.
    fault: Option<String>,
    passes: Vec<PassRecord>,
    /// What an artefact says of itself.
    artefact: Option<Json>,
}

/// What is known of a compiled module.
struct Module {
    /// `None` while dimensions are open and unbounded.
    arena_bytes: Option<usize>,
    largest_live_set: Option<usize>,
    steps: usize,
    init_steps: usize,
}

impl Module {
    fn of(lir: &LirModule) -> Self {
        Module {
            arena_bytes: lir.plan.as_ref().map(|p| p.arena_bytes),
            largest_live_set: lir.plan.as_ref().map(|p| p.largest_live_set),
            steps: lir.steps.len(),
            init_steps: lir.init.len(),
        }
    }
}

/// Shows a model. A graph that the device cannot compile is shown as well, with the reason.
pub fn inspect(args: &InspectArgs, json: bool) -> Result<ExitCode, Failure> {
    let range = args.passes.as_deref().map(range).transpose()?;
    let mut job = job::open(&args.common, &rlx_ir::Progress::none())?;
    let given = inputs::gather(&args.common, &job.declared, false)?;
    if job.runner.artefact().is_some() {
        let facts = artefact_facts(&mut job, &borrowed(&given), range.is_some())?;
        if json {
            facts.print_json()
        } else {
            facts.print_text()
        }
        return Ok(ExitCode::SUCCESS);
    }
    let progress = Spinner::start("compiling", json);
    let imported = job.runner.import(&borrowed(&given))?;
    let graph = &imported.graph;
    let mut pipeline = stages::try_pipeline_for(args.common.device, &job.options)?;
    pipeline.keep_graphs = range.is_some();
    let report = dispatch_report_for_device_with_options(graph, args.common.device, &job.options);
    let report = report.map_err(|e| Error::new(ErrorKind::DeviceUnavailable, e))?;
    let (compiled, fault) = match pipeline.compile(graph) {
        Ok(result) => (Some(result), None),
        Err(e) => (None, Some(e.to_string())),
    };
    drop(progress);
    let facts = Facts {
        model: job.runner.name().to_owned(),
        device: args.common.device.feature(),
        inputs: graph.inputs().map(|n| (input_name(&n.op), n.shape.to_string())).collect(),
        outputs: outputs(&imported),
        ops: op_counts(graph),
        flops: graph.nodes().iter().all(|n| n.shape.is_static()).then(|| graph_cost(graph).flops),
        parameter_bytes: imported.weights.total_bytes(),
        parameters: graph.params().filter_map(|n| n.shape.num_elements()).sum(),
        module: compiled.as_ref().map(|result| Module::of(&result.lir)),
        report: compiled.as_ref().map_or(report, |result| result.report.clone()),
        fault,
        passes: compiled.map_or_else(Vec::new, |result| chosen(result.passes, range)),
        artefact: None,
    };
    if json {
        facts.print_json()
    } else {
        facts.print_text()
    }
    Ok(ExitCode::SUCCESS)
}

/// What is known of an artefact: nothing is compiled.
fn artefact_facts(job: &mut Job, given: &[(&str, &ConstData)], passes: bool) -> Result<Facts, Failure> {
    if passes {
        let message = "an artefact went through all passes already; inspect the model it was compiled from";
        return Err(Failure::Usage(message.to_owned()));
    }
    let (about, device) = match job.runner.artefact() {
        Some(artefact) => (Some(compile::artefact_json(artefact)), job.session.device().feature()),
        None => (None, job.session.device().feature()),
    };
    let model = job.runner.name().to_owned();
    let Prepared { compiled, outputs } = job.runner.prepare(given)?;
    let shape = |info: &TensorInfo| info.shape.to_string();
    let graph = &compiled.lir().graph;
    let bytes = compiled.params().iter().filter_map(|p| p.shape.size_bytes()).sum();
    Ok(Facts {
        model,
        device,
        inputs: compiled.inputs().iter().map(|i| (i.name.clone(), shape(i))).collect(),
        outputs: outputs.iter().cloned().zip(compiled.outputs().iter().map(shape)).collect(),
        ops: op_counts(graph),
        flops: graph.nodes().iter().all(|n| n.shape.is_static()).then(|| graph_cost(graph).flops),
        parameter_bytes: bytes,
        parameters: compiled.params().iter().filter_map(|p| p.shape.num_elements()).sum(),
        module: Some(Module::of(compiled.lir())),
        report: compiled.dispatch_report().clone(),
        fault: None,
        passes: Vec::new(),
        artefact: about,
    })
}

fn outputs(imported: &Imported) -> Vec<(String, String)> {
    let graph = &imported.graph;
    let pairs = imported.outputs.iter().zip(&graph.outputs);
    pairs.map(|(name, &id)| (name.clone(), graph.shape(id).to_string())).collect()
}

fn input_name(op: &Op) -> String {
    match op {
        Op::Input { name } => name.clone(),
        other => other.kind().name().to_owned(),
    }
}

fn op_counts(graph: &Graph) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for node in graph.nodes() {
        if !matches!(node.op, Op::Input { .. } | Op::Param { .. } | Op::Constant { .. }) {
            *counts.entry(node.op.kind().name()).or_default() += 1;
        }
    }
    counts
}

/// The positions in the pipeline that `text` names: `a..b`, `a..`, `..b`, `a`.
fn range(text: &str) -> Result<RangeInclusive<usize>, Failure> {
    let position = |name: &str, otherwise: usize| {
        if name.is_empty() {
            return Ok(otherwise);
        }
        PASSES.iter().position(|p| p.name == name).ok_or_else(|| {
            let names: Vec<&str> = PASSES.iter().map(|p| p.name).collect();
            Failure::Usage(format!("there is no pass \"{name}\"; passes in order: {}", names.join(", ")))
        })
    };
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    Ok(position(first, 0)?..=position(last, PASSES.len() - 1)?)
}

/// The arithmetic asked for and used.
fn precision_json(report: &PrecisionReport) -> Json {
    let kinds: Json = report
        .kinds
        .iter()
        .map(|k| json!({ "op": k.kind.name(), "dtype": k.dtype.name(), "nodes": k.node_count }))
        .collect();
    json!({
        "requested": report.requested, "used": report.used.to_string(),
        "products": report.products, "ops": kinds,
    })
}

fn chosen(passes: Vec<PassRecord>, range: Option<RangeInclusive<usize>>) -> Vec<PassRecord> {
    let wanted = |&(i, _): &(usize, PassRecord)| range.as_ref().is_none_or(|r| r.contains(&i));
    passes.into_iter().enumerate().filter(wanted).map(|(_, pass)| pass).collect()
}

impl Facts {
    fn print_text(&self) {
        println!("{} on {}", self.model, self.device);
        if let Some(artefact) = &self.artefact {
            println!("\ncompiled");
            for name in ["machine", "version", "precision"] {
                println!("  {name:<24} {}", artefact[name].as_str().unwrap_or_default());
            }
            for name in ["bytes", "module_bytes", "parameter_bytes", "prepared_bytes"] {
                println!("  {name:<24} {}", print::bytes(artefact[name].as_u64().unwrap_or(0) as usize));
            }
        }
        for (title, list) in [("inputs", &self.inputs), ("outputs", &self.outputs)] {
            println!("\n{title}");
            list.iter().for_each(|(name, shape)| println!("  {name:<24} {shape}"));
        }
        println!("\nops");
        self.ops.iter().for_each(|(op, n)| println!("  {op:<24} {n}"));
        let open = "depends on open dimensions (give --dim NAME=VALUE)";
        println!("\ncost");
        let flops = self.flops.map_or_else(|| open.to_owned(), |f| format!("{}FLOP", print::scaled(f)));
        println!("  {:<24} {flops}", "arithmetic");
        let parameters =
            format!("{} ({})", print::bytes(self.parameter_bytes), print::scaled(self.parameters as f64));
        println!("  {:<24} {parameters}", "parameters");
        if let Some(module) = &self.module {
            let arena = match (module.arena_bytes, module.largest_live_set) {
                (Some(a), Some(l)) => format!("{} (largest live set {})", print::bytes(a), print::bytes(l)),
                _ => open.to_owned(),
            };
            println!("  {:<24} {arena}", "arena");
            println!("  {:<24} {} each run, {} once", "steps", module.steps, module.init_steps);
        }
        println!("\ndispatch: {}", self.report);
        if let Some(fault) = &self.fault {
            println!("{fault}");
        }
        if !self.passes.is_empty() {
            println!("\npasses");
        }
        for pass in &self.passes {
            let (before, after) = pass.nodes;
            println!("  {:<24} {before:>6} → {after:<6} nodes {:>8.2} ms", pass.name, print::ms(pass.time));
        }
        for pass in &self.passes {
            if let Some(graph) = &pass.after {
                println!("\nafter {}:\n{graph}", pass.name);
            }
        }
    }

    fn print_json(&self) {
        let tensors = |list: &[(String, String)]| -> Json {
            list.iter().map(|(name, shape)| json!({ "name": name, "shape": shape })).collect()
        };
        let dispatch: Json = self
            .report
            .summaries
            .iter()
            .map(|s| json!({ "op": s.logical_name, "nodes": s.node_count, "path": s.path.to_string() }))
            .collect();
        let passes: Json = self
            .passes
            .iter()
            .map(|p| {
                let after = p.after.as_ref().map(Graph::to_string);
                json!({ "name": p.name, "before": p.nodes.0, "after": p.nodes.1, "ms": print::ms(p.time), "graph": after })
            })
            .collect();
        let precision = self.report.precision.as_ref().map(precision_json);
        let module = self.module.as_ref();
        println!(
            "{}",
            json!({
                "model": self.model, "device": self.device,
                "inputs": tensors(&self.inputs), "outputs": tensors(&self.outputs), "ops": self.ops,
                "flops": self.flops, "parameter_bytes": self.parameter_bytes, "parameters": self.parameters,
                "arena_bytes": module.and_then(|m| m.arena_bytes),
                "largest_live_set_bytes": module.and_then(|m| m.largest_live_set),
                "steps": module.map(|m| m.steps), "init_steps": module.map(|m| m.init_steps),
                "dispatch": dispatch, "precision": precision, "compile_ready": self.fault.is_none(), "fault": self.fault, "passes": passes,
                "artefact": self.artefact,
            })
        );
    }
}
