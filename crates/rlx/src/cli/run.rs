//! `rlx run`: inputs in, outputs out; with labels, the likeliest classes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rlx::Prepared;
use rlx_ir::{ConstData, DType, Error, ErrorKind, Result, Value};
use rlx_runtime::{CompiledGraph, Precision, TensorView};
use serde_json::{Value as Json, json};

use super::args::RunArgs;
use super::failure::Failure;
use super::job::{self, Progress, borrowed};
use super::{inputs, print};

/// More elements than this are not printed as JSON; `--outputs` writes them all.
const MOST_PRINTED: usize = 4096;

/// What a run gave.
struct Outcome {
    outputs: Vec<(String, ConstData)>,
    /// Of the second run when the first was short, since the first also packs weights.
    time: Duration,
    precision: Precision,
}

/// Runs a model.
pub fn run(args: &RunArgs, json: bool) -> Result<ExitCode, Failure> {
    let mut job = job::open(&args.common)?.caching(args.cache)?;
    let mut inputs = inputs::gather(&args.common, &job.declared, false)?;
    if !args.files.is_empty() {
        inputs::batch(&args.files, &job.declared, &mut inputs)?;
    }
    let labels = args.labels.as_deref().map(read_labels).transpose()?;
    let progress = Progress::start("compiling", json);
    let given = borrowed(&inputs);
    let Prepared { compiled, outputs } = job.runner.prepare(&given)?;
    progress.say("running");
    let outcome = execute(compiled, outputs, &given)?;
    drop(progress);
    if let Some(path) = &args.outputs {
        write_outputs(path, &outcome.outputs)?;
    }
    let classes = match &labels {
        Some(labels) => Some(classify(&outcome.outputs, labels, args.top)?),
        None => None,
    };
    let report = Report { args, model: job.runner.name(), outcome: &outcome, classes };
    if json {
        report.print_json()
    } else {
        report.print_text()
    }
    Ok(ExitCode::SUCCESS)
}

fn execute(compiled: &mut CompiledGraph, names: &[String], inputs: &[(&str, &ConstData)]) -> Result<Outcome> {
    let views: Vec<TensorView<'_>> = inputs
        .iter()
        .map(|(name, data)| TensorView { name, dtype: data.dtype(), dims: data.dims(), bytes: data.bytes() })
        .collect();
    let start = Instant::now();
    compiled.try_run_views(&views)?;
    let mut time = start.elapsed();
    if time < Duration::from_secs(1) {
        let start = Instant::now();
        compiled.try_run_views(&views)?;
        time = start.elapsed();
    }
    let tensors = compiled.output_views().map(|v| v.to_const()).collect::<Result<Vec<_>>>()?;
    let outputs = names.iter().cloned().zip(tensors).collect();
    Ok(Outcome { outputs, time, precision: compiled.precision() })
}

fn read_labels(path: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Error::new(ErrorKind::Io, format!("{}: {e}", path.display())).with_source(e))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Writes all outputs; types that NumPy does not have are written as f32, which holds them.
fn write_outputs(path: &PathBuf, outputs: &[(String, ConstData)]) -> Result<()> {
    let widened = |data: &ConstData| match data.dtype() {
        d if d.is_float() && !matches!(d, DType::F32 | DType::F64 | DType::F16) => {
            Value { dtype: DType::F32, ..data.value() }.to_const()
        }
        d if d.bits() < 8 => Value { dtype: DType::I8, ..data.value() }.to_const(),
        _ => data.clone(),
    };
    let arrays: Vec<(&str, ConstData)> = outputs.iter().map(|(n, d)| (n.as_str(), widened(d))).collect();
    let borrowed: Vec<(&str, &ConstData)> = arrays.iter().map(|(n, d)| (*n, d)).collect();
    rlx_weights::npz::write(path, &borrowed)
}

/// A class and how likely it is.
struct Class {
    index: usize,
    label: String,
    probability: f64,
}

/// For each item of the batch, its likeliest classes.
struct Classes {
    items: Vec<Vec<Class>>,
    /// Whether the model gave scores, which softmax made into probabilities.
    softmax: bool,
}

fn classify(outputs: &[(String, ConstData)], labels: &[String], top: usize) -> Result<Classes> {
    let fits = |d: &ConstData| d.dtype().is_float() && d.dims().last() == Some(&labels.len());
    let found = outputs.iter().find(|(_, data)| fits(data));
    let (_, data) = found.filter(|_| !labels.is_empty()).ok_or_else(|| {
        let shapes: Vec<String> = outputs.iter().map(|(n, d)| format!("\"{n}\" {}", d.shape())).collect();
        let message =
            format!("{} labels, but no output ends in that many: {}", labels.len(), shapes.join(", "));
        Error::new(ErrorKind::Shape, message)
    })?;
    let values = data.value().to_f64();
    let rows = || values.chunks_exact(labels.len());
    let is_probability = |row: &[f64]| {
        row.iter().all(|&p| (0.0..=1.0).contains(&p)) && (row.iter().sum::<f64>() - 1.0).abs() < 1e-3
    };
    let softmax = !rows().all(is_probability);
    let item = |row: &[f64]| {
        let row = if softmax { softmaxed(row) } else { row.to_vec() };
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
        let class = |i: usize| Class { index: i, label: labels[i].clone(), probability: row[i] };
        order.into_iter().take(top).map(class).collect()
    };
    Ok(Classes { items: rows().map(item).collect(), softmax })
}

fn softmaxed(row: &[f64]) -> Vec<f64> {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = row.iter().map(|v| (v - max).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.iter().map(|e| e / sum).collect()
}

struct Report<'a> {
    args: &'a RunArgs,
    model: &'a str,
    outcome: &'a Outcome,
    classes: Option<Classes>,
}

impl Report<'_> {
    fn item_name(&self, i: usize) -> String {
        self.args.files.get(i).map_or_else(|| format!("#{i}"), |f| f.display().to_string())
    }

    fn print_text(&self) {
        match &self.classes {
            Some(classes) => self.print_classes(classes),
            None => self.outcome.outputs.iter().for_each(|(name, data)| print_tensor(name, data)),
        }
        if let Some(path) = &self.args.outputs {
            println!("outputs written to {}", path.display());
        }
        if self.classes.is_none() {
            println!("{:.3} ms", print::ms(self.outcome.time));
        }
    }

    fn print_classes(&self, classes: &Classes) {
        let count = classes.items.len();
        let each = print::ms(self.outcome.time) / count.max(1) as f64;
        let width = (0..count).map(|i| self.item_name(i).chars().count()).max().unwrap_or(0);
        for (i, item) in classes.items.iter().enumerate() {
            let answers: Vec<String> =
                item.iter().map(|c| format!("{} {:5.1} %", c.label, c.probability * 100.0)).collect();
            println!("{:<width$}  {}  {each:.3} ms", self.item_name(i), answers.join(", "));
        }
        if classes.softmax {
            println!("(probabilities are the softmax of the model's scores)");
        }
        println!("{count} in one batch: {:.3} ms", print::ms(self.outcome.time));
    }

    fn print_json(&self) {
        let outputs: Vec<Json> = self.outcome.outputs.iter().map(|(n, d)| tensor_json(n, d)).collect();
        let time = print::ms(self.outcome.time);
        let mut report = json!({
            "model": self.model,
            "device": self.args.common.device.feature(),
            "precision": self.outcome.precision.to_string(),
            "time_ms": time,
            "outputs": outputs,
        });
        if let Some(classes) = &self.classes {
            let each = time / classes.items.len().max(1) as f64;
            let class =
                |c: &Class| json!({ "label": c.label, "index": c.index, "probability": c.probability });
            let item = |(i, top): (usize, &Vec<Class>)| json!({ "item": self.item_name(i), "top": top.iter().map(class).collect::<Json>(), "time_ms": each });
            report["predictions"] = classes.items.iter().enumerate().map(item).collect();
            report["softmax"] = classes.softmax.into();
        }
        println!("{report}");
    }
}

fn print_tensor(name: &str, data: &ConstData) {
    const SHOWN: usize = 8;
    let values = data.value().to_f64();
    let shown: Vec<String> = values.iter().take(SHOWN).map(|v| format!("{v}")).collect();
    let more = if values.len() > SHOWN { ", …" } else { "" };
    println!("{name} {}: {}{more}", data.shape(), shown.join(", "));
}

fn tensor_json(name: &str, data: &ConstData) -> Json {
    let mut object = json!({ "name": name, "dtype": data.dtype().name(), "shape": data.dims() });
    let values = data.value();
    if values.len() <= MOST_PRINTED {
        // JSON has no NaN and no infinities: those are null.
        object["values"] = match &values.elements {
            rlx_ir::tensor::Elements::Float(v) => v.iter().map(|&x| json!(x)).collect(),
            rlx_ir::tensor::Elements::Int(v) => v.iter().map(|&i| json!(i as i64)).collect(),
        };
    }
    object
}
