//! Everything `rlx inspect` shows of a model, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use rlx::diagram::{Diagram, op_name};
use rlx_ir::LirModule;
use rlx_ir::lir::StepKind;
use rlx_ir::text::with_origins;
use rlx_onnx::Survey;
use rlx_opt::{PassRecord, PrecisionReport, Target};
use rlx_runtime::{KernelDispatchReport, SplitPlan};
use serde_json::{Value as Json, json};

use super::diff::{Difference, Mark};
use super::file;
use crate::cli::print;

/// What is known of a model.
pub struct Facts {
    pub model: String,
    pub device: &'static str,
    pub inputs: Vec<(String, String)>,
    pub outputs: Vec<(String, String)>,
    pub ops: BTreeMap<&'static str, usize>,
    /// `None` while dimensions are open.
    pub flops: Option<f64>,
    pub parameter_bytes: usize,
    pub parameters: usize,
    /// `None` when it could not be compiled.
    pub module: Option<Module>,
    pub report: KernelDispatchReport,
    /// Why it could not be compiled.
    pub fault: Option<String>,
    /// How it is divided between the device and the CPU, where it may be.
    pub split: Option<SplitPlan>,
    pub passes: Vec<Pass>,
    /// The graph as a reader sees it: what the device runs, or else what was imported.
    pub diagram: Diagram,
    /// What an artefact says of itself.
    pub artefact: Option<Json>,
    /// What an ONNX file holds.
    pub file: Option<Survey>,
}

/// What is known of a compiled module.
pub struct Module {
    /// `None` while dimensions are open and unbounded.
    arena_bytes: Option<usize>,
    largest_live_set: Option<usize>,
    /// Those of a run, and those that run once.
    steps: Vec<Step>,
    init_steps: Vec<Step>,
}

/// A step of a compiled module.
pub struct Step {
    /// What it computes.
    op: String,
    /// The node of the graph that the device runs.
    node: String,
    /// The nodes of the model that it comes from: in short, and all of them.
    name: String,
    origins: Vec<String>,
    /// By which schedule the device does it, where it tells.
    schedule: Option<String>,
}

impl Step {
    fn of(lir: &LirModule, step: &rlx_ir::lir::Step, target: &dyn Target) -> Self {
        let (graph, node) = (&lir.graph, lir.graph.node(step.node));
        let op = match &step.kind {
            StepKind::Copy => "Copy".to_owned(),
            StepKind::Op(op) => op_name(op),
        };
        let origins = graph.origins().names(node.origin).into_iter().map(str::to_owned).collect();
        let schedule = target.schedule(step, lir);
        Step { op, node: node.describe(), name: graph.label(step.node), origins, schedule }
    }

    fn json(&self) -> Json {
        json!({
            "op": self.op, "node": self.node, "name": self.name, "origins": self.origins,
            "schedule": self.schedule,
        })
    }
}

impl Module {
    /// Of this one, compiled for `target`.
    pub fn of(lir: &LirModule, target: &dyn Target) -> Self {
        let steps = |steps: &[rlx_ir::lir::Step]| {
            steps.iter().map(|step| Step::of(lir, step, target)).collect::<Vec<Step>>()
        };
        Module {
            arena_bytes: lir.plan.as_ref().map(|p| p.arena_bytes),
            largest_live_set: lir.plan.as_ref().map(|p| p.largest_live_set),
            steps: steps(&lir.steps),
            init_steps: steps(&lir.init),
        }
    }
}

/// A pass and what it did.
pub struct Pass {
    pub record: PassRecord,
    /// What it changed, if requested.
    pub difference: Option<Difference>,
}

impl Pass {
    /// `3 removed, 2 added, 1 changed`.
    fn counts(difference: &Difference) -> String {
        let count = |mark| difference.count(mark);
        let (removed, added, changed) = (count(Mark::Removed), count(Mark::Added), count(Mark::Changed));
        format!("{removed} removed, {added} added, {changed} changed")
    }
}

/// The requested and the used precision.
fn precision_json(report: &PrecisionReport) -> Json {
    let kinds: Json = report
        .kinds
        .iter()
        .map(|k| json!({ "op": k.kind.name(), "dtype": k.dtype.name(), "nodes": k.node_count }))
        .collect();
    json!({
        "requested": report.requested, "used": report.used.to_string(),
        "products": report.products, "ops": kinds, "kept_f32": print::kept_f32(report),
    })
}

/// The parts of a graph that two devices share, and what goes from one to the other.
fn split_json(split: &SplitPlan) -> Json {
    let part =
        |part: &rlx_runtime::SplitPart| json!({ "device": part.device.name(), "nodes": part.nodes.len() });
    let crossing = |c: &rlx_runtime::Crossing| {
        json!({
            "value": c.value.to_string(), "from": c.from, "to": c.to, "shape": c.shape.to_string(),
            "bytes": c.shape.size_bytes(),
        })
    };
    json!({
        "parts": split.parts.iter().map(part).collect::<Json>(),
        "crossings": split.crossings.iter().map(crossing).collect::<Json>(),
        "bytes": split.crossing_bytes(),
    })
}

/// A diagram's boxes, edges and blocks.
fn diagram_json(diagram: &Diagram) -> Json {
    let boxes: Json = diagram
        .boxes
        .iter()
        .map(|b| {
            let params: Json = b
                .params
                .iter()
                .map(|p| json!({ "name": p.name, "more": p.more, "shape": p.shape, "bytes": p.bytes, "parameter": p.param }))
                .collect();
            json!({
                "kind": b.kind.name(), "title": b.title, "detail": b.detail, "times": b.times,
                "parameters": params, "results": b.results, "nodes": b.nodes, "origin": b.origin,
            })
        })
        .collect();
    let edges: Json = diagram.edges.iter().map(|e| json!([e.from, e.to, e.result])).collect();
    let blocks: Json = diagram
        .blocks
        .iter()
        .map(|b| json!({ "times": b.times, "first": b.boxes.start, "last": b.boxes.end - 1 }))
        .collect();
    json!({ "boxes": boxes, "edges": edges, "blocks": blocks })
}

impl Facts {
    /// As text.
    pub fn text(&self, colours: bool) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write_text(&mut out, colours);
        out
    }

    fn write_text(&self, out: &mut String, colours: bool) -> std::fmt::Result {
        writeln!(out, "{} on {}", self.model, self.device)?;
        if let Some(artefact) = &self.artefact {
            writeln!(out, "\ncompiled")?;
            for name in ["machine", "version", "precision"] {
                writeln!(out, "  {name:<24} {}", artefact[name].as_str().unwrap_or_default())?;
            }
            for name in ["bytes", "module_bytes", "parameter_bytes", "prepared_bytes"] {
                let bytes = artefact[name].as_u64().unwrap_or(0) as usize;
                writeln!(out, "  {name:<24} {}", print::bytes(bytes))?;
            }
        }
        for (title, list) in [("inputs", &self.inputs), ("outputs", &self.outputs)] {
            writeln!(out, "\n{title}")?;
            list.iter().try_for_each(|(name, shape)| writeln!(out, "  {name:<24} {shape}"))?;
        }
        writeln!(out, "\nops")?;
        self.ops.iter().try_for_each(|(op, n)| writeln!(out, "  {op:<24} {n}"))?;
        self.write_cost(out)?;
        if let Some(survey) = &self.file {
            file::write_file(out, survey)?;
        }
        writeln!(out, "\ndispatch: {}", self.report)?;
        if let Some(split) = &self.split {
            writeln!(out, "parts\n{split}")?;
        }
        if let Some(fault) = &self.fault {
            writeln!(out, "{fault}")?;
        }
        self.write_passes(out, colours)
    }

    fn write_cost(&self, out: &mut String) -> std::fmt::Result {
        let open = "depends on dynamic dimensions (give --dim NAME=VALUE)";
        writeln!(out, "\ncost")?;
        let flops = self.flops.map_or_else(|| open.to_owned(), |f| format!("{}FLOP", print::scaled(f)));
        writeln!(out, "  {:<24} {flops}", "arithmetic")?;
        let parameters =
            format!("{} ({})", print::bytes(self.parameter_bytes), print::scaled(self.parameters as f64));
        writeln!(out, "  {:<24} {parameters}", "parameters")?;
        let Some(module) = &self.module else { return Ok(()) };
        let arena = match (module.arena_bytes, module.largest_live_set) {
            (Some(a), Some(l)) => format!("{} (largest live set {})", print::bytes(a), print::bytes(l)),
            _ => open.to_owned(),
        };
        writeln!(out, "  {:<24} {arena}", "arena")?;
        writeln!(out, "  {:<24} {} each run, {} once", "steps", module.steps.len(), module.init_steps.len())?;
        let mut schedules: BTreeMap<&str, usize> = BTreeMap::new();
        for schedule in module.steps.iter().filter_map(|step| step.schedule.as_deref()) {
            *schedules.entry(schedule).or_default() += 1;
        }
        if !schedules.is_empty() {
            writeln!(out, "\nschedules")?;
        }
        schedules.iter().try_for_each(|(schedule, n)| writeln!(out, "  {schedule:<40} {n}"))
    }

    fn write_passes(&self, out: &mut String, colours: bool) -> std::fmt::Result {
        if !self.passes.is_empty() {
            writeln!(out, "\npasses")?;
        }
        for Pass { record, .. } in &self.passes {
            let (before, after) = record.nodes;
            let time = print::ms(record.time);
            writeln!(out, "  {:<24} {before:>6} → {after:<6} nodes {time:>8.2} ms", record.name)?;
        }
        for Pass { record, difference } in &self.passes {
            match (difference, &record.after) {
                (Some(difference), _) if difference.hunks(false).is_empty() => {
                    writeln!(out, "\n{}: nothing changed", record.name)?;
                }
                (Some(difference), _) => {
                    writeln!(out, "\n{}: {}", record.name, Pass::counts(difference))?;
                    out.push_str(&difference.hunks(colours));
                }
                (None, Some(graph)) => {
                    writeln!(out, "\nafter {}:\n{}", record.name, with_origins(graph))?;
                }
                (None, None) => {}
            }
        }
        Ok(())
    }

    /// As JSON.
    pub fn json(&self) -> Json {
        let tensors = |list: &[(String, String)]| -> Json {
            list.iter().map(|(name, shape)| json!({ "name": name, "shape": shape })).collect()
        };
        let dispatch: Json = self
            .report
            .summaries
            .iter()
            .map(|s| json!({ "op": s.logical_name, "nodes": s.node_count, "path": s.path.to_string() }))
            .collect();
        let passes: Json = self.passes.iter().map(pass_json).collect();
        let steps = |steps: &[Step]| steps.iter().map(Step::json).collect::<Json>();
        let precision = self.report.precision.as_ref().map(precision_json);
        let module = self.module.as_ref();
        json!({
            "model": self.model, "device": self.device,
            "inputs": tensors(&self.inputs), "outputs": tensors(&self.outputs), "ops": self.ops,
            "flops": self.flops, "parameter_bytes": self.parameter_bytes, "parameters": self.parameters,
            "arena_bytes": module.and_then(|m| m.arena_bytes),
            "largest_live_set_bytes": module.and_then(|m| m.largest_live_set),
            "steps": module.map(|m| m.steps.len()), "init_steps": module.map(|m| m.init_steps.len()),
            "program": module.map(|m| json!({ "init": steps(&m.init_steps), "run": steps(&m.steps) })),
            "dispatch": dispatch, "precision": precision, "compile_ready": self.fault.is_none(), "fault": self.fault,
            "split": self.split.as_ref().map(split_json),
            "passes": passes, "artefact": self.artefact, "file": self.file.as_ref().map(file::survey_json),
            "diagram": diagram_json(&self.diagram),
        })
    }
}

fn pass_json(pass: &Pass) -> Json {
    let record = &pass.record;
    let difference = pass.difference.as_ref().map(|d| {
        let count = |mark| d.count(mark);
        json!({
            "removed": count(Mark::Removed), "added": count(Mark::Added), "changed": count(Mark::Changed),
            "text": d.hunks(false),
        })
    });
    json!({
        "name": record.name, "before": record.nodes.0, "after": record.nodes.1, "ms": print::ms(record.time),
        "graph": record.after.as_ref().map(with_origins), "difference": difference,
    })
}
