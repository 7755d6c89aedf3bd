//! `rlx bench`: the time and memory that a model takes.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use rlx_ir::sort::sort;
use rlx_ir::{ConstData, Progress};
use rlx_runtime::cost::calibration_of;
use rlx_runtime::{CompiledGraph, RunRequest, Session, TensorView};
use serde_json::{Value as Json, json};

use super::args::BenchArgs;
use super::failure::Failure;
use super::job::{self, borrowed};
use super::output::Output;
use super::profile::{Profile, Runs, roofline, trace};
use super::watch::Watch;
use super::written::keep_apart;
use super::{print, values};

/// Times a model.
pub fn bench(args: &BenchArgs, json: bool) -> Result<ExitCode, Failure> {
    let watch = Watch::start(&args.limits, "reading", json)?;
    let mut job = job::open(&args.common, watch.progress())?.caching(args.cache)?;
    let written = [("--trace", &args.trace), ("--roofline", &args.roofline)];
    let written = written.into_iter().filter_map(|(option, path)| Some((option, path.as_deref()?)));
    keep_apart(&written.collect::<Vec<_>>(), &[args.common.reads(), job.files.clone()].concat())?;
    let inputs = values::tensors(&args.common, &mut job, json, true, watch.progress())?;
    let given = borrowed(&inputs);
    let (model, load) = (job.runner.name().to_owned(), job.load);
    let start = Instant::now();
    let compiled = job.runner.prepare_with_progress(&given, watch.progress())?.compiled;
    let compile = start.elapsed();
    let all = views(&inputs);
    let views = if args.bind_inputs { bound(compiled, &all)? } else { &all };
    let mut timed = |runs| timed(compiled, views, runs, watch.quiet());
    watch.say("running");
    let first = timed(1)?;
    timed(args.warmup)?;
    let mut times = timed(args.runs)?;
    sort(&mut times);
    let profile = match args.profiles() {
        true => {
            let plain = times[times.len() / 2];
            let given = (&inputs[..], views);
            Some(profile(args, &job.session, &model, compiled, given, plain, watch.quiet())?)
        }
        false => None,
    };
    drop(watch);
    // The smallest time that this part of all runs do not exceed.
    let quantile =
        |part: f64| print::ms(times[((times.len() as f64 * part).ceil() as usize).clamp(1, times.len()) - 1]);
    let (memory, precision) = (compiled.memory(), compiled.precision());
    let asked = compiled.dispatch_report().precision.clone();
    let flops = job.runner.flops(&given)?;
    let report = json!({
        "model": model,
        "device": args.common.device.feature(),
        "precision": precision.to_string(),
        "requested_precision": asked.as_ref().map(|p| p.requested.as_str()),
        "products": asked.as_ref().and_then(|p| p.products.as_deref()),
        "kept_f32": asked.as_ref().map(print::kept_f32),
        "threads": job.session.threads(),
        "runs": args.runs,
        "min_ms": quantile(0.0),
        "median_ms": quantile(0.5),
        "p95_ms": quantile(0.95),
        "load_ms": print::ms(load),
        "compile_ms": print::ms(compile),
        "first_run_ms": print::ms(first[0]),
        "peak_rss_bytes": peak_rss(),
        "weight_bytes": memory.weight_bytes,
        "arena_bytes": memory.arena_bytes,
        "flops": flops,
        "gflops": flops.map(|flops| flops / (quantile(0.0) * 1e6)),
        "profile": profile.as_ref().map(Profile::json),
    });
    if json {
        writeln!(Output, "{report}")?;
    } else {
        print_text(&report)?;
        if let Some(profile) = &profile {
            write!(Output, "{}", profile.text())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn views(inputs: &[(String, ConstData)]) -> Vec<TensorView<'_>> {
    inputs
        .iter()
        .map(|(name, data)| TensorView { name, dtype: data.dtype(), dims: data.dims(), bytes: data.bytes() })
        .collect()
}

/// Stores inputs as handles; gives what is left to give to a run.
fn bound<'v>(
    compiled: &mut CompiledGraph,
    views: &'v [TensorView<'v>],
) -> Result<&'v [TensorView<'v>], Failure> {
    for view in views {
        compiled.try_bind_handle(view.name, &view.to_f32()?)?;
    }
    Ok(&[])
}

/// What each of some runs takes.
fn timed(
    compiled: &mut CompiledGraph,
    views: &[TensorView<'_>],
    runs: u32,
    progress: &Progress,
) -> rlx_ir::Result<Vec<Duration>> {
    let request = RunRequest::from(views).progress(progress);
    let run = |_| {
        let start = Instant::now();
        compiled.execute(&request).map(|_| start.elapsed())
    };
    (0..runs).map(run).collect()
}

/// Runs again with timed steps, and writes the requested files. `plain` is the median without profiling.
fn profile(
    args: &BenchArgs,
    session: &Session,
    model: &str,
    compiled: &mut CompiledGraph,
    (inputs, given): (&[(String, ConstData)], &[TensorView<'_>]),
    plain: Duration,
    progress: &Progress,
) -> Result<Profile, Failure> {
    compiled.try_start_profiling()?;
    let mut times = timed(compiled, given, args.runs, progress)?;
    sort(&mut times);
    let steps = compiled.try_profile()?;
    compiled.try_stop_profiling()?;
    let prices = calibration_of(session)?;
    let runs =
        Runs { model: model.to_owned(), threads: session.threads(), profiled: times[times.len() / 2], plain };
    let profile = Profile::new(compiled, &steps, inputs, &prices, runs);
    if let Some(path) = &args.trace {
        print::write_file(path, &format!("{}\n", trace(&profile)))?;
    }
    if let Some(path) = &args.roofline {
        print::write_file(path, &roofline(&profile))?;
    }
    Ok(profile)
}

/// The report's fields, those that people look for first.
fn print_text(report: &Json) -> Result<(), Failure> {
    let text = |name: &str| report[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| report[name].as_f64();
    // Left out if unknown.
    let threads = report["threads"].as_u64();
    let threads = threads
        .map_or_else(String::new, |n| format!(", {}", print::counted(n as usize, "thread", "threads")));
    writeln!(Output, "{} on {}, {}{threads}", text("model"), text("device"), text("precision"))?;
    let asked = text("requested_precision");
    if asked != text("precision") {
        writeln!(Output, "  {:<16} {asked}, {} used", "asked for", text("precision"))?;
    }
    if let Some(products) = report["products"].as_str() {
        writeln!(Output, "  {:<16} {products}", "matmuls")?;
    }
    for kept in report["kept_f32"].as_array().into_iter().flatten() {
        let part = |name: &str| kept[name].as_str().unwrap_or_default();
        writeln!(Output, "  {:<16} {} {}: {}", "kept f32", kept["nodes"], part("op"), part("reason"))?;
    }
    for name in ["min_ms", "median_ms", "p95_ms", "first_run_ms", "load_ms", "compile_ms"] {
        writeln!(Output, "  {name:<16} {:.4}", number(name).unwrap_or(f64::NAN))?;
    }
    for name in ["weight_bytes", "arena_bytes", "peak_rss_bytes"] {
        let bytes = report[name].as_u64().map_or_else(|| "unknown".to_owned(), |n| print::bytes(n as usize));
        writeln!(Output, "  {name:<16} {bytes}")?;
    }
    if let (Some(flops), Some(rate)) = (number("flops"), number("gflops")) {
        writeln!(Output, "  {:<16} {}FLOP, {rate:.2} GFLOP/s at best", "arithmetic", print::scaled(flops))?;
    }
    Ok(())
}

/// The most memory the process had so far, where the system tells.
fn peak_rss() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}
