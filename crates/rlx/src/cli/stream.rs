//! `rlx run` over many items: they run in batches, each result is printed as soon as it is available, and an item that fails is
//! reported while the others still run.
//!
//! Consecutive items run together if their dimensions are the same. A batch that fails runs again item by
//! item, so that only the failing one is reported. If the model has a fixed batch size, a shorter last batch is padded with
//! copies of its last item, whose results are dropped.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use rlx::inputs::{Inputs, find};
use rlx::{Prepared, Runner};
use rlx_ir::progress::Stage;
use rlx_ir::{ConstData, Error, ErrorKind, Result};
use rlx_runtime::{TensorInfo, TensorView};
use serde_json::{Value as Json, json};

use super::args::RunArgs;
use super::classes::{Class, classify, read_labels};
use super::failure::Failure;
use super::image::Images;
use super::inputs;
use super::items::{self, Item, Items};
use super::job::{Job, borrowed};
use super::output::{Messages, Output};
use super::print;
use super::run::{print_tensor, tensor_json, write_outputs};
use super::watch::Watch;
use super::written::OutputFormat;

/// The outputs of one item by name.
type Outputs = Vec<(String, ConstData)>;

/// An item that could be read.
struct Good {
    name: String,
    inputs: Inputs,
}

/// Where the results go, and what is known of them so far.
struct Stream<'a> {
    args: &'a RunArgs,
    json: bool,
    images: &'a Images<'a>,
    runner: Runner,
    declared: &'a [TensorInfo],
    /// Inputs that all items have in common.
    shared: &'a Inputs,
    labels: Option<Vec<String>>,
    watch: &'a Watch,
    bar: Option<ProgressBar>,
    /// Items of a batch; with `fills`, always so many.
    size: usize,
    fills: bool,
    /// For `--json`.
    report: Vec<Json>,
    /// For `--outputs`.
    kept: Vec<Outputs>,
    done: usize,
    failed: usize,
    /// What compiling took.
    preparing: Duration,
    /// A bad item came, and was to be the last.
    stopped: bool,
}

/// Runs the items that the arguments name; `shared` are the inputs they have in common.
pub fn run(
    args: &RunArgs,
    json: bool,
    job: Job,
    images: &Images<'_>,
    shared: &Inputs,
    watch: &Watch,
) -> Result<ExitCode, Failure> {
    let Job { runner, declared, .. } = job;
    let free: Vec<&TensorInfo> =
        declared.iter().filter(|info| !shared.iter().any(|(n, _)| *n == info.name)).collect();
    let Some(&first) = free.first() else {
        return Err(Failure::Usage("every input already has a value".to_owned()));
    };
    let limit = args.common.input_limit;
    let items = match &args.lines {
        Some(path) => items::of_lines(path, &free, limit)?,
        None => {
            let others: Vec<TensorInfo> = declared.iter().filter(|i| i.name != first.name).cloned().collect();
            inputs::check_complete(&others, shared)?;
            items::files(&args.files, images, first, limit)?
        }
    };
    let fixed = first.shape.dims().first().and_then(|d| d.as_static());
    let size = batch_size(args, first, fixed)?;
    watch.hide();
    let mut stream = Stream {
        args,
        json,
        images,
        runner,
        declared: &declared,
        shared,
        labels: args.labels.as_deref().map(read_labels).transpose()?,
        watch,
        bar: bar(items.count, json),
        size,
        fills: fixed.is_some() && size > 1,
        report: Vec::new(),
        kept: Vec::new(),
        done: 0,
        failed: 0,
        preparing: Duration::ZERO,
        stopped: false,
    };
    let start = Instant::now();
    let went = stream.go(items);
    stream.finish(start.elapsed(), went)
}

/// How many items run together.
fn batch_size(args: &RunArgs, info: &TensorInfo, fixed: Option<usize>) -> Result<usize, Failure> {
    let asked = args.batch.map(|n| n as usize);
    match (fixed, asked) {
        (Some(n), Some(asked)) if n != asked => {
            let (name, shape) = (&info.name, &info.shape);
            Err(Failure::Usage(format!(
                "input \"{name}\" is {shape}: the model takes batches of {n}, not {asked}"
            )))
        }
        (fixed, asked) => Ok(asked.or(fixed).unwrap_or(1).max(1)),
    }
}

/// A bar with the rate, on a terminal.
fn bar(count: Option<usize>, json: bool) -> Option<ProgressBar> {
    if json || !std::io::stderr().is_terminal() {
        return None;
    }
    let (bar, style) = match count {
        Some(n) => (ProgressBar::new(n as u64), "{bar:30} {pos}/{len}  {per_sec}  {eta} left"),
        None => (ProgressBar::new_spinner(), "{spinner} {pos}  {per_sec}"),
    };
    Some(match ProgressStyle::with_template(style) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    })
}

impl Stream<'_> {
    fn go(&mut self, items: Items<'_>) -> Result<(), Failure> {
        let mut pending: Vec<Good> = Vec::new();
        for Item { name, inputs } in items.each {
            self.watch.quiet().check(Stage::Run)?;
            match inputs {
                Ok(inputs) => {
                    if pending.first().is_some_and(|first| !same_dims(&first.inputs, &inputs)) {
                        self.flush(&mut pending)?;
                    }
                    pending.push(Good { name, inputs });
                }
                Err(e) => {
                    // Results come in the items' order.
                    self.flush(&mut pending)?;
                    self.fail(&name, e)?;
                }
            }
            if pending.len() == self.size {
                self.flush(&mut pending)?;
            }
            if self.stopped {
                return Ok(());
            }
        }
        self.flush(&mut pending)
    }

    /// Runs what is waiting.
    fn flush(&mut self, pending: &mut Vec<Good>) -> Result<(), Failure> {
        let batch = std::mem::take(pending);
        if batch.is_empty() || self.stopped {
            return Ok(());
        }
        match self.run_batch(&batch) {
            Ok(results) => {
                for (item, outputs) in batch.iter().zip(results) {
                    self.deliver(&item.name, outputs)?;
                }
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::Cancelled => Err(e.into()),
            Err(e) if batch.len() == 1 => self.fail(&batch[0].name, e),
            Err(_) => batch.into_iter().try_for_each(|item| self.flush(&mut vec![item])),
        }
    }

    /// The outputs of each item of a batch.
    fn run_batch(&mut self, batch: &[Good]) -> Result<Vec<Outputs>> {
        let count = if self.fills { self.size } else { batch.len() };
        let mut given = self.shared.clone();
        for (i, (name, _)) in batch[0].inputs.iter().enumerate() {
            let items = || batch.iter().map(|item| &item.inputs[i].1);
            let mut dims = items().next().map_or_else(Vec::new, |first| first.dims().to_vec());
            if let Some(rows) = dims.first_mut() {
                *rows = count;
            }
            let info = find(self.declared, name)?;
            self.args.common.input_limit.allows(info, &dims, "the batch")?;
            given.push((name.clone(), stacked(items(), count)?));
        }
        let given = borrowed(&given);
        let start = Instant::now();
        let prepared = self.runner.prepare_with_progress(&given, self.watch.quiet());
        self.preparing += start.elapsed();
        let Prepared { compiled, outputs: names } = prepared?;
        let views: Vec<TensorView<'_>> = given
            .iter()
            .map(|&(name, d)| TensorView { name, dtype: d.dtype(), dims: d.dims(), bytes: d.bytes() })
            .collect();
        let results = compiled.try_run_tensors_with_progress(&views, self.watch.quiet())?;
        let mut items: Vec<Outputs> = vec![Outputs::new(); batch.len()];
        for (name, data) in names.iter().zip(results) {
            for (i, item) in items.iter_mut().enumerate() {
                item.push((name.clone(), part(name, &data, i, count)?));
            }
        }
        Ok(items)
    }

    /// Prints or collects an item's outputs.
    fn deliver(&mut self, name: &str, outputs: Outputs) -> Result<(), Failure> {
        let top = match &self.labels {
            Some(labels) => classify(&outputs, labels, self.args.top)?.items.into_iter().next(),
            None => None,
        };
        if self.args.lines.is_some() {
            let object: serde_json::Map<String, Json> =
                outputs.iter().map(|(n, data)| (n.clone(), print::nested(data))).collect();
            self.say(|| writeln!(Output, "{}", Json::Object(object)))?;
        } else if self.json {
            let mut entry = json!({ "item": name });
            match &top {
                Some(top) => entry["top"] = top.iter().map(Class::json).collect(),
                None => entry["outputs"] = outputs.iter().map(|(n, d)| tensor_json(n, d)).collect(),
            }
            self.report.push(entry);
        } else if let Some(top) = &top {
            let answers: Vec<String> = top.iter().map(Class::text).collect();
            self.say(|| writeln!(Output, "{name}  {}", answers.join(", ")))?;
        } else {
            self.say(|| {
                outputs.iter().try_for_each(|(output, data)| {
                    write!(Output, "{name}  ")?;
                    print_tensor(output, data)
                })
            })?;
        }
        if let Some(path) = &self.args.outputs {
            OutputFormat::of(path)?.check_count(path, outputs.len())?;
            self.kept.push(outputs);
        }
        self.done += 1;
        self.step();
        Ok(())
    }

    /// Reports a bad item.
    fn fail(&mut self, name: &str, e: Error) -> Result<(), Failure> {
        let object = json!({ "kind": e.kind().name(), "message": e.to_string() });
        // The item is named once.
        let text = Failure::Job(e).text().replace(&format!("\n  at: {name}"), "");
        let what = text.strip_prefix("error: ").unwrap_or(&text);
        let what = what.strip_prefix(&format!("{name}: ")).unwrap_or(what);
        self.say(|| writeln!(Messages, "error: {name}: {what}"));
        if self.args.lines.is_some() {
            self.say(|| writeln!(Output, "{}", json!({ "error": object })))?;
        } else if self.json {
            self.report.push(json!({ "item": name, "error": object }));
        }
        self.failed += 1;
        self.stopped = self.args.fail_fast;
        self.step();
        Ok(())
    }

    /// Prints without spoiling the bar.
    fn say<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    fn step(&self) {
        if let Some(bar) = &self.bar {
            bar.set_position((self.done + self.failed) as u64);
        }
    }

    /// The summary, and all outputs in one file.
    fn finish(self, took: Duration, went: Result<(), Failure>) -> Result<ExitCode, Failure> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if matches!(went, Err(Failure::OutputClosed)) {
            return went.map(|()| ExitCode::SUCCESS);
        }
        let busy = took.saturating_sub(self.preparing).as_secs_f64();
        let rate = if busy > 0.0 { self.done as f64 / busy } else { 0.0 };
        let left = if self.stopped { ", stopped there" } else { "" };
        writeln!(
            Messages,
            "{} done, {} failed{left}; {busy:.3} s, {rate:.1} items/s (compiling {:.3} s)",
            self.done,
            self.failed,
            self.preparing.as_secs_f64()
        );
        went?;
        if let Some(path) = &self.args.outputs {
            write_outputs(path, &joined(&self.kept)?, self.watch.quiet())?;
            if !self.json {
                writeln!(Output, "outputs written to {}", path.display())?;
            }
        }
        if self.json && self.args.lines.is_none() {
            writeln!(
                Output,
                "{}",
                json!({
                    "model": self.runner.name(), "device": self.args.common.device.feature(),
                    "images": self.images.to_json(), "items": self.report, "done": self.done, "failed": self.failed,
                    "seconds": busy, "items_per_s": rate, "compile_ms": print::ms(self.preparing),
                })
            )?;
        }
        Ok(if self.failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// Whether items can be behind each other in a batch.
fn same_dims(a: &Inputs, b: &Inputs) -> bool {
    let alike = |((an, a), (bn, b)): (&(String, ConstData), &(String, ConstData))| {
        an == bn && a.dims() == b.dims() && a.dims().first() == Some(&1)
    };
    a.len() == b.len() && a.iter().zip(b).all(alike)
}

/// Items along the first dimension, the last one repeated until there are `count`.
fn stacked<'a>(items: impl Iterator<Item = &'a ConstData>, count: usize) -> Result<ConstData> {
    let mut items: Vec<&ConstData> = items.collect();
    let first = items[0];
    if count == 1 {
        return Ok(first.clone());
    }
    if first.dims().first() != Some(&1) || first.dtype().bits() < 8 {
        let message = format!("{} is not an item of a batch", first.shape());
        return Err(Error::new(ErrorKind::Shape, message)
            .with_hint("items of a batch have 1 as their first dimension"));
    }
    items.resize(count, items[items.len() - 1]);
    let bytes: Vec<u8> = items.iter().flat_map(|item| item.bytes().iter().copied()).collect();
    let mut dims = first.dims().to_vec();
    dims[0] = count;
    ConstData::new(first.dtype(), &dims, bytes)
}

/// Item `i` of an output of a batch.
fn part(name: &str, data: &ConstData, i: usize, count: usize) -> Result<ConstData> {
    if count == 1 {
        return Ok(data.clone());
    }
    if data.dims().first() != Some(&count) || data.dtype().bits() < 8 {
        let message = format!("output \"{name}\" is {}: it cannot be split into items", data.shape());
        return Err(Error::new(ErrorKind::Shape, message).with_hint("run one at a time, by --batch 1"));
    }
    let each = data.bytes().len() / count;
    let mut dims = data.dims().to_vec();
    dims[0] = 1;
    ConstData::new(data.dtype(), &dims, data.bytes()[i * each..][..each].to_vec())
}

/// All items' outputs as one tensor for each output.
fn joined(kept: &[Outputs]) -> Result<Outputs> {
    let Some(first) = kept.first() else { return Ok(Outputs::new()) };
    let join = |(i, (name, like)): (usize, &(String, ConstData))| {
        let parts = || kept.iter().map(|outputs| &outputs[i].1);
        let fits = |d: &ConstData| d.dims().get(1..) == like.dims().get(1..) && d.dtype().bits() >= 8;
        if let Some(other) = parts().find(|d| !fits(d)) {
            let message = format!(
                "output \"{name}\" is {} for one item and {} for another",
                like.shape(),
                other.shape()
            );
            return Err(Error::new(ErrorKind::Shape, message)
                .with_hint("leave out --outputs, or give items of equal shapes"));
        }
        let mut dims = like.dims().to_vec();
        match dims.first_mut() {
            Some(rows) => *rows = parts().map(|d| d.dims()[0]).sum(),
            None => dims.push(kept.len()),
        }
        let bytes: Vec<u8> = parts().flat_map(|d| d.bytes().iter().copied()).collect();
        Ok((name.clone(), ConstData::new(like.dtype(), &dims, bytes)?))
    };
    first.iter().enumerate().map(join).collect()
}
