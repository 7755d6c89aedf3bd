//! `rlx run`: runs a model and prints or writes its outputs; with labels, prints the most likely classes.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rlx::Prepared;
use rlx_ir::files::{io_error, write_whole};
use rlx_ir::progress::Stage;
use rlx_ir::{ConstData, DType, Progress, Result, Value};
use rlx_runtime::{CompiledGraph, Precision, RunRequest, TensorView};
use serde_json::{Value as Json, json};

use super::args::RunArgs;
use super::classes::{Class, Classes, classify, read_labels};
use super::failure::Failure;
use super::image::Images;
use super::job::{self, borrowed};
use super::output::Output;
use super::watch::Watch;
use super::written::{OutputFormat, keep_apart};
use super::{inputs, print, stream, values};

/// More elements than this are not printed as JSON; `--outputs` writes them all.
const MOST_PRINTED: usize = 4096;

/// A first run that takes as long is not repeated to be timed without the packing of weights.
const LONG: Duration = Duration::from_secs(1);

/// What a run gave.
struct Outcome {
    outputs: Vec<(String, ConstData)>,
    /// Of the second run where the first was short.
    time: Duration,
    /// Whether that is the first run, which also packs weights.
    packs: bool,
    precision: Precision,
}

impl Outcome {
    /// The time, and what it includes.
    fn took(&self) -> String {
        let includes = if self.packs { " (the first run, which also packs weights)" } else { "" };
        format!("{:.3} ms{includes}", print::ms(self.time))
    }
}

/// Runs a model.
pub fn run(args: &RunArgs, json: bool) -> Result<ExitCode, Failure> {
    let watch = Watch::start(&args.limits, "reading", json)?;
    if let Some(path) = &args.outputs {
        OutputFormat::of(path)?;
    }
    let mut job = job::open(&args.common, watch.progress())?.caching(args.cache)?;
    let outputs = args.outputs.iter().map(|path| ("--outputs", path.as_path()));
    keep_apart(&outputs.collect::<Vec<_>>(), &[args.reads(), job.files.clone()].concat())?;
    let metadata = std::mem::take(&mut job.metadata);
    let images = Images::of(&args.common, &metadata, json);
    if job.runner.model().is_some_and(|model| !model.is_plain()) {
        return values::run(args, json, job, &images, watch);
    }
    let mut inputs = inputs::gather(&args.common, &images, &job.declared, false)?;
    if args.is_stream() {
        return stream::run(args, json, job, &images, &inputs, &watch);
    }
    if !args.files.is_empty() {
        inputs::batch(&args.files, &images, &job.declared, &mut inputs, args.common.input_limit)?;
    }
    inputs::check_complete(&job.declared, &inputs)?;
    let labels = args.labels.as_deref().map(read_labels).transpose()?;
    let given = borrowed(&inputs);
    let Prepared { compiled, outputs } = job.runner.prepare_with_progress(&given, watch.progress())?;
    if let Some(path) = &args.outputs {
        OutputFormat::of(path)?.check_count(path, outputs.len())?;
    }
    let outcome = execute(compiled, outputs, &given, &watch)?;
    if let Some(path) = &args.outputs {
        write_outputs(path, &outcome.outputs, watch.progress())?;
    }
    drop(watch);
    let classes = match &labels {
        Some(labels) => Some(classify(&outcome.outputs, labels, args.top)?),
        None => None,
    };
    let report = Report { args, model: job.runner.name(), images: &images, outcome: &outcome, classes };
    match json {
        true => report.print_json()?,
        false => report.print_text()?,
    }
    Ok(ExitCode::SUCCESS)
}

fn execute(
    compiled: &mut CompiledGraph,
    names: &[String],
    inputs: &[(&str, &ConstData)],
    watch: &Watch,
) -> Result<Outcome> {
    let views: Vec<TensorView<'_>> = inputs
        .iter()
        .map(|(name, data)| TensorView { name, dtype: data.dtype(), dims: data.dims(), bytes: data.bytes() })
        .collect();
    let start = Instant::now();
    compiled.execute(RunRequest::from(&views[..]).progress(watch.progress()))?;
    let mut time = start.elapsed();
    let packs = time >= LONG;
    if !packs {
        let start = Instant::now();
        compiled.execute(RunRequest::from(&views[..]).progress(watch.quiet()))?;
        time = start.elapsed();
    }
    let tensors = compiled.output_views().map(|v| v.to_const()).collect::<Result<Vec<_>>>()?;
    let outputs = names.iter().cloned().zip(tensors).collect();
    Ok(Outcome { outputs, time, packs, precision: compiled.precision() })
}

/// Writes all outputs in the format that the file's name says, or nothing where it is stopped.
pub fn write_outputs(
    path: &Path,
    outputs: &[(String, ConstData)],
    progress: &Progress,
) -> Result<(), Failure> {
    let bytes = match OutputFormat::of(path)? {
        OutputFormat::Json => {
            let fields = outputs.iter().map(|(name, data)| (name.clone(), print::nested(data)));
            format!("{}\n", Json::Object(fields.collect())).into_bytes()
        }
        OutputFormat::Npy => {
            OutputFormat::Npy.check_count(path, outputs.len())?;
            rlx_weights::npy::to_bytes(&widened(&outputs[0].1))?
        }
        OutputFormat::Npz => {
            let arrays: Vec<(&str, ConstData)> =
                outputs.iter().map(|(n, d)| (n.as_str(), widened(d))).collect();
            let borrowed: Vec<(&str, &ConstData)> = arrays.iter().map(|(n, d)| (*n, d)).collect();
            rlx_weights::npz::to_bytes(&borrowed)?
        }
    };
    let written = write_whole(path, |file| {
        for chunk in bytes.chunks(1 << 20) {
            progress.check(Stage::Write)?;
            file.write_all(chunk).map_err(|e| io_error(path, e))?;
        }
        progress.check(Stage::Write)
    });
    Ok(written?)
}

/// Types that NumPy does not have as f32 or i8, which hold them.
pub(super) fn widened(data: &ConstData) -> ConstData {
    match data.dtype() {
        d if d.is_float() && !matches!(d, DType::F32 | DType::F64 | DType::F16) => {
            Value { dtype: DType::F32, ..data.value() }.to_const()
        }
        d if d.bits() < 8 => Value { dtype: DType::I8, ..data.value() }.to_const(),
        _ => data.clone(),
    }
}

struct Report<'a> {
    args: &'a RunArgs,
    model: &'a str,
    images: &'a Images<'a>,
    outcome: &'a Outcome,
    classes: Option<Classes>,
}

impl Report<'_> {
    fn item_name(&self, i: usize) -> String {
        self.args.files.get(i).map_or_else(|| format!("#{i}"), |f| f.display().to_string())
    }

    fn print_text(&self) -> Result<(), Failure> {
        match &self.classes {
            Some(classes) => self.print_classes(classes)?,
            None => self.outcome.outputs.iter().try_for_each(|(name, data)| print_tensor(name, data))?,
        }
        if let Some(path) = &self.args.outputs {
            writeln!(Output, "outputs written to {}", path.display())?;
        }
        if self.classes.is_none() {
            writeln!(Output, "{}", self.outcome.took())?;
        }
        Ok(())
    }

    fn print_classes(&self, classes: &Classes) -> Result<(), Failure> {
        let count = classes.items.len();
        let each = print::ms(self.outcome.time) / count.max(1) as f64;
        let width = (0..count).map(|i| self.item_name(i).chars().count()).max().unwrap_or(0);
        for (i, item) in classes.items.iter().enumerate() {
            let answers: Vec<String> = item.iter().map(Class::text).collect();
            writeln!(Output, "{:<width$}  {}  {each:.3} ms", self.item_name(i), answers.join(", "))?;
        }
        if classes.softmax {
            writeln!(Output, "(probabilities are the softmax of the model's scores)")?;
        }
        writeln!(Output, "{count} in one batch: {}", self.outcome.took())
    }

    fn print_json(&self) -> Result<(), Failure> {
        let outputs: Vec<Json> = self.outcome.outputs.iter().map(|(n, d)| tensor_json(n, d)).collect();
        let time = print::ms(self.outcome.time);
        let mut report = json!({
            "model": self.model,
            "device": self.args.common.device.feature(),
            "precision": self.outcome.precision.to_string(),
            "time_ms": time,
            "includes_packing": self.outcome.packs,
            "images": self.images.to_json(),
            "outputs": outputs,
        });
        if let Some(classes) = &self.classes {
            let each = time / classes.items.len().max(1) as f64;
            let item = |(i, top): (usize, &Vec<Class>)| {
                let top: Json = top.iter().map(Class::json).collect();
                json!({ "item": self.item_name(i), "top": top, "time_ms": each })
            };
            report["predictions"] = classes.items.iter().enumerate().map(item).collect();
            report["softmax"] = classes.softmax.into();
        }
        writeln!(Output, "{report}")
    }
}

/// Prints a tensor's first elements.
pub fn print_tensor(name: &str, data: &ConstData) -> Result<(), Failure> {
    const SHOWN: usize = 8;
    let count = data.num_elements();
    let first = Value::decode(data.dtype(), &[count.min(SHOWN)], data.bytes());
    let more = if count > SHOWN { ", …" } else { "" };
    writeln!(Output, "{name} {}: {}{more}", data.shape(), print::elements(&first).join(", "))
}

pub fn tensor_json(name: &str, data: &ConstData) -> Json {
    let mut object = json!({ "name": name, "dtype": data.dtype().name(), "shape": data.dims() });
    if data.num_elements() <= MOST_PRINTED {
        object["values"] = print::leaves(&data.value()).into();
    }
    object
}
