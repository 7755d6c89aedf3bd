//! `rlx inspect`: a model's inputs, outputs, ops and cost, and how the compiler transforms it; of a model that cannot be run what
//! its file holds, and of files of weights their tensors.

mod diff;
mod facts;
mod file;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rlx::Prepared;
use rlx::diagram::Diagram;
use rlx_ir::cost::graph_cost;
use rlx_ir::{ConstData, ErrorKind, Graph, Op, Progress};
use rlx_onnx::Imported;
use rlx_opt::PassRecord;
use rlx_opt::pipeline::PASSES;
use rlx_runtime::{TensorInfo, dispatch_report_on, named_report};
use rlx_weights::listing::Listing;
use serde_json::json;

use super::args::{InspectArgs, InspectFormat};
use super::failure::Failure;
use super::job::{self, Job, borrowed};
use super::output::{Messages, Output};
use super::watch::Watch;
use super::written::keep_apart;
use super::{compile, print, values};
use diff::Difference;
use facts::{Facts, Module, Pass};

/// Which passes are shown, and how.
#[derive(Debug, Clone)]
struct Shown {
    /// Positions in the pipeline.
    passes: RangeInclusive<usize>,
    /// As what they change, not as the graphs they give.
    changes: bool,
}

/// Shows a model. A graph that the device cannot compile is shown as well, with the reason; so is a model file that cannot be
/// imported, and a file of weights.
pub fn inspect(args: &InspectArgs, json: bool) -> Result<ExitCode, Failure> {
    let format = match (args.format, json) {
        (None | Some(InspectFormat::Json), true) => InspectFormat::Json,
        (Some(_), true) => {
            return Err(Failure::Usage("--json is --format json; give one of them".to_owned()));
        }
        (format, false) => format.unwrap_or(InspectFormat::Text),
    };
    let shown = args.passes.as_deref().map(shown).transpose()?;
    let is_list = shown.is_none() && matches!(format, InspectFormat::Text | InspectFormat::Json);
    let text = match Listing::open(&args.common.model)?.filter(|_| is_list) {
        Some(listing) => listed(args, format, &listing)?,
        None => match examined(args, format, shown.as_ref()) {
            Ok(text) => text,
            Err(failure) => unrunnable(args, format, failure, is_list)?,
        },
    };
    match &args.output {
        Some(path) => write(path, &text, format == InspectFormat::Json)?,
        None => write!(Output, "{text}")?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What is known of a model that can be imported.
fn examined(args: &InspectArgs, format: InspectFormat, shown: Option<&Shown>) -> Result<String, Failure> {
    let json = format == InspectFormat::Json;
    let watch = Watch::start(&args.limits, "reading", json)?;
    let mut job = job::open(&args.common, watch.progress())?;
    keep_output_apart(args, &job.files)?;
    let given = values::tensors(&args.common, &mut job, json, false, watch.progress())?;
    let facts = match job.runner.artefact() {
        Some(_) => artefact_facts(&mut job, &borrowed(&given), shown.is_some(), watch.progress())?,
        None => model_facts(args, &mut job, &borrowed(&given), shown, watch.progress())?,
    };
    drop(watch);
    Ok(match format {
        InspectFormat::Text => facts.text(args.output.is_none() && print::colours(&std::io::stdout())),
        InspectFormat::Json => format!("{}\n", facts.json()),
        InspectFormat::Dot => facts.diagram.dot(),
        InspectFormat::Svg => facts.diagram.svg()?,
    })
}

fn keep_output_apart(args: &InspectArgs, files: &[PathBuf]) -> Result<(), Failure> {
    let output = args.output.iter().map(|path| ("--output", path.as_path()));
    keep_apart(&output.collect::<Vec<_>>(), &[args.common.reads(), files.to_vec()].concat())
}

/// The name of the model's file.
fn file_name(args: &InspectArgs) -> String {
    let name = args.common.model.file_name().unwrap_or(args.common.model.as_os_str());
    name.to_string_lossy().into_owned()
}

/// A file of weights.
fn listed(args: &InspectArgs, format: InspectFormat, listing: &Listing) -> Result<String, Failure> {
    keep_output_apart(args, std::slice::from_ref(&args.common.model))?;
    let name = file_name(args);
    Ok(match format {
        InspectFormat::Json => format!("{}\n", file::listing_json(&name, listing)),
        _ => file::listing_text(&name, listing),
    })
}

/// What the file of a model holds that cannot be imported, and the reason; the failure itself where that is no reason of the
/// model's.
fn unrunnable(
    args: &InspectArgs,
    format: InspectFormat,
    failure: Failure,
    is_list: bool,
) -> Result<String, Failure> {
    let is_model_s = match &failure {
        Failure::Job(e) => {
            use ErrorKind::*;
            matches!(e.kind(), Unsupported | Malformed | Shape | DType | NeedsInputValue | Io)
        }
        _ => false,
    };
    let found = if is_model_s && is_list { file::survey(&args.common) } else { None };
    let Some(survey) =
        found.filter(|survey| !args.common.has_inputs() || survey.unsupported().next().is_some())
    else {
        return Err(failure);
    };
    let folder = args.common.model.parent().unwrap_or(Path::new(""));
    let external = survey.external.iter().map(|e| folder.join(&e.location));
    keep_output_apart(args, &std::iter::once(args.common.model.clone()).chain(external).collect::<Vec<_>>())?;
    let name = file_name(args);
    Ok(match format {
        InspectFormat::Json => {
            let fault = failure.to_json();
            let report = json!({
                "model": name, "compile_ready": false, "fault": fault["error"], "file": file::survey_json(&survey),
            });
            format!("{report}\n")
        }
        _ => file::survey_text(&name, &survey, &failure.text()),
    })
}

/// Writes a file whole or not at all, and says so.
fn write(path: &Path, text: &str, json: bool) -> Result<(), Failure> {
    print::write_file(path, text)?;
    if !json && std::io::stderr().is_terminal() {
        writeln!(Messages, "wrote {} ({})", path.display(), print::bytes(text.len()));
    }
    Ok(())
}

/// What is known of a model that is imported and compiled here.
fn model_facts(
    args: &InspectArgs,
    job: &mut Job,
    given: &[(&str, &ConstData)],
    shown: Option<&Shown>,
    progress: &Progress,
) -> Result<Facts, Failure> {
    let imported = job.runner.import_with_progress(given, progress)?;
    let graph = &imported.graph;
    let mut pipeline = job.session.try_pipeline(&job.options)?;
    pipeline.keep_graphs = shown.is_some();
    let report = dispatch_report_on(graph, args.common.device, &job.options)?;
    let (compiled, fault) = match pipeline.compile_with_progress(graph, progress) {
        Ok(result) => (Some(result), None),
        Err(e) if e.kind() == ErrorKind::Cancelled => return Err(e.into()),
        Err(e) => (None, Some(e.to_string())),
    };
    let split = match &compiled {
        Some(result) => job.session.split_plan(&result.lir.graph, &job.options)?,
        None => None,
    };
    // The graph after the last pass that is shown, else the compiled graph, else the original one.
    let last = shown.and_then(|shown| compiled.as_ref()?.passes.get(*shown.passes.end())?.after.as_ref());
    let drawn = last.or(compiled.as_ref().map(|result| &result.lir.graph)).unwrap_or(graph);
    let diagram = Diagram { name: job.runner.name().to_owned(), ..Diagram::of(drawn, &imported.outputs) };
    Ok(Facts {
        model: job.runner.name().to_owned(),
        device: args.common.device.feature(),
        inputs: graph.inputs().map(|n| (input_name(&n.op), n.shape.to_string())).collect(),
        outputs: outputs(&imported),
        ops: op_counts(graph),
        flops: graph.nodes().iter().all(|n| n.shape.is_static()).then(|| graph_cost(graph).flops),
        parameter_bytes: imported.weights.total_bytes(),
        parameters: graph.params().filter_map(|n| n.shape.num_elements()).sum(),
        module: compiled.as_ref().map(|result| Module::of(&result.lir, &**pipeline.target())),
        report: compiled
            .as_ref()
            .map_or(report, |result| named_report(result.report.clone(), args.common.device)),
        fault,
        split,
        diagram,
        passes: compiled.map_or_else(Vec::new, |result| chosen(graph, result.passes, shown)),
        artefact: None,
        file: job.runner.model().map(rlx::Model::survey),
    })
}

/// What is known of an artefact: nothing is compiled.
fn artefact_facts(
    job: &mut Job,
    given: &[(&str, &ConstData)],
    passes: bool,
    progress: &Progress,
) -> Result<Facts, Failure> {
    if passes {
        let message = "an artefact has no passes left to show; inspect the model it was compiled from";
        return Err(Failure::Usage(message.to_owned()));
    }
    let (about, device) = match job.runner.artefact() {
        Some(artefact) => (Some(compile::artefact_json(artefact)?), job.session.device_id().feature()),
        None => (None, job.session.device_id().feature()),
    };
    let model = job.runner.name().to_owned();
    let pipeline = job.session.try_pipeline(&job.options)?;
    let Prepared { compiled, outputs } = job.runner.prepare_with_progress(given, progress)?;
    let shape = |info: &TensorInfo| info.shape.to_string();
    let graph = &compiled.lir().graph;
    let bytes = compiled.params().iter().filter_map(|p| p.shape.size_bytes()).sum();
    Ok(Facts {
        diagram: Diagram { name: model.clone(), ..Diagram::of(graph, outputs) },
        model,
        device,
        inputs: compiled.inputs().iter().map(|i| (i.name.clone(), shape(i))).collect(),
        outputs: outputs.iter().cloned().zip(compiled.outputs().iter().map(shape)).collect(),
        ops: op_counts(graph),
        flops: graph.nodes().iter().all(|n| n.shape.is_static()).then(|| graph_cost(graph).flops),
        parameter_bytes: bytes,
        parameters: compiled.params().iter().filter_map(|p| p.shape.num_elements()).sum(),
        module: Some(Module::of(compiled.lir(), &**pipeline.target())),
        report: compiled.dispatch_report().clone(),
        fault: None,
        split: job.session.split_plan(graph, &job.options)?,
        passes: Vec::new(),
        artefact: about,
        file: None,
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

/// The positions in the pipeline that `text` names: `a..b`, `a..`, `..b` for what changed, `a` for the graph after it.
/// The flag alone (`""`) shows the graph after every pass.
fn shown(text: &str) -> Result<Shown, Failure> {
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
    let (first, last) = (position(first, 0)?, position(last, PASSES.len() - 1)?);
    if first > last {
        let names = [first, last].map(|at| PASSES[at].name);
        return Err(Failure::Usage(format!("pass \"{}\" comes after \"{}\"", names[0], names[1])));
    }
    Ok(Shown { passes: first..=last, changes: text.contains("..") })
}

/// The passes that are shown, with their changes if requested.
fn chosen(graph: &Graph, passes: Vec<PassRecord>, shown: Option<&Shown>) -> Vec<Pass> {
    let differences: Vec<Option<Difference>> = (0..passes.len())
        .map(|at| {
            shown.filter(|s| s.changes && s.passes.contains(&at))?;
            let before = at.checked_sub(1).map_or(Some(graph), |at| passes[at].after.as_ref());
            Some(Difference::of(before?, passes[at].after.as_ref()?))
        })
        .collect();
    let all = passes.into_iter().zip(differences).enumerate();
    let wanted = all.filter(|(at, _)| shown.is_none_or(|s| s.passes.contains(at)));
    wanted.map(|(_, (record, difference))| Pass { record, difference }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::{Cli, Command};
    use clap::Parser;
    use rlx_runtime::{Device, backend_for, register_device};

    #[test]
    fn a_device_outside_of_the_list_has_its_own_name_on_the_command_line_and_in_what_is_inspected() {
        let arguments = ["rlx", "inspect", "../../models/digits/digits.onnx", "--device", "npu-cli"];
        assert!(Cli::try_parse_from(arguments).is_err(), "no one registered it");
        register_device("npu-cli", || backend_for(Device::Cpu).expect("the CPU")).unwrap();
        let Command::Inspect(args) = Cli::try_parse_from(arguments).unwrap().command else {
            panic!("the arguments are those of inspect")
        };
        let mut job = job::open(&args.common, &Progress::none()).map_err(|_| "a job").unwrap();
        let facts = model_facts(&args, &mut job, &[], None, &Progress::none()).map_err(|_| "facts").unwrap();
        assert_eq!((facts.device, facts.report.backend_name.as_str()), ("npu-cli", "npu-cli"));
    }
}
