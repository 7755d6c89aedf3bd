//! `rlx tune`: measures the variants of a model's steps on a device, and stores which ones are the fastest.
//!
//! Compiling with [`Tune::Measure`] does all of that, here as by `--tune`; this command bounds its time and shows what came of it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use rlx_runtime::tuning::{self, Found};
use rlx_runtime::{Artefact, Tune, TunedStep};
use serde_json::{Value as Json, json};

use super::args::{Common, TuneArgs};
use super::failure::Failure;
use super::image::Images;
use super::job::{self, borrowed};
use super::output::Output;
use super::watch::Watch;
use super::{inputs, print};
use rlx::units::counted;

/// Measures a model's steps.
pub fn tune(args: &TuneArgs, json: bool) -> Result<ExitCode, Failure> {
    let start = Instant::now();
    let common = measuring(&args.common)?;
    let watch = Watch::start(&args.limits, "reading", json)?;
    let progress = match args.limit.is_zero() {
        true => watch.progress().clone(),
        false => watch.progress().clone().with_tuning_limit(args.limit),
    };
    let mut job = job::open(&common, &progress)?;
    let images = Images::of(&common, &job.metadata, json);
    let given = inputs::gather(&common, &images, &job.declared, false)?;
    let compiled = job.runner.prepare_with_progress(&borrowed(&given), &progress)?.compiled;
    let (steps, precision) = (compiled.tuned_steps().to_vec(), compiled.precision());
    drop(watch);
    let stored = tuning::file(&job.session);
    let report = Summary::of(&steps);
    let head = json!({
        "model": job.runner.name(),
        "device": common.device.feature(),
        "precision": precision.to_string(),
        "threads": job.session.threads(),
        "seconds": start.elapsed().as_secs_f64(),
        "limit_seconds": (!args.limit.is_zero()).then_some(args.limit.as_secs_f64()),
        "stored": stored.as_ref().ok().map(|path| path.display().to_string()),
    });
    if json {
        writeln!(Output, "{}", report.json(head, &steps))?;
    } else {
        let not_stored = stored.err().map(|e| e.to_string());
        print_text(&head, &report, &steps, args.limit, not_stored.as_deref())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The arguments with tuning, which they may not speak of, and of a model that is not compiled yet.
fn measuring(common: &Common) -> Result<Common, Failure> {
    if common.tune.is_some() {
        return Err(Failure::Usage("rlx tune always measures; --tune is for the other commands".to_owned()));
    }
    if Artefact::is_artefact(&common.model) {
        let message = "the model is compiled already; tune its ONNX file, and compile it again";
        return Err(Failure::Usage(message.to_owned()));
    }
    Ok(Common { tune: Some(Tune::Measure), ..common.clone() })
}

/// What came of all steps.
struct Summary {
    /// Kinds of steps by how their variants were found.
    now: usize,
    earlier: usize,
    out_of_time: usize,
    not_alone: usize,
    /// How many of those measured now are done by another variant than the default.
    changed: usize,
    /// How many of all are done by a variant that gives other bits than the default.
    other_bits: usize,
    /// The time of all steps measured now, by the defaults and as chosen.
    times: (Duration, Duration),
}

impl Summary {
    fn of(steps: &[TunedStep]) -> Summary {
        let count = |found: Found| steps.iter().filter(|step| step.found == found).count();
        let measured = steps.iter().filter(|step| step.found == Found::Now);
        let changed = measured.clone().filter(|step| step.variant != step.default).count();
        let times = measured.filter_map(|step| {
            let (before, after) = step.before_and_after()?;
            let steps = u32::try_from(step.steps).unwrap_or(u32::MAX);
            Some((before.saturating_mul(steps), after.saturating_mul(steps)))
        });
        let sum = |a: (Duration, Duration), b: (Duration, Duration)| {
            (a.0.saturating_add(b.0), a.1.saturating_add(b.1))
        };
        Summary {
            now: count(Found::Now),
            earlier: count(Found::Earlier),
            out_of_time: count(Found::OutOfTime),
            not_alone: count(Found::NotAlone),
            changed,
            other_bits: steps.iter().filter(|step| step.other_class().is_some()).count(),
            times: times.fold((Duration::ZERO, Duration::ZERO), sum),
        }
    }

    fn json(&self, mut head: Json, steps: &[TunedStep]) -> Json {
        let counts = json!({
            "measured": self.now, "changed": self.changed, "other_bits": self.other_bits, "measured_earlier": self.earlier,
            "out_of_time": self.out_of_time, "not_measurable": self.not_alone,
            "default_ms": print::ms(self.times.0), "chosen_ms": print::ms(self.times.1),
            "steps": steps.iter().map(step_json).collect::<Vec<_>>(),
        });
        if let (Some(head), Json::Object(counts)) = (head.as_object_mut(), counts) {
            head.extend(counts);
        }
        head
    }
}

fn step_json(step: &TunedStep) -> Json {
    let times =
        step.times.iter().map(|(variant, time)| json!({ "variant": variant, "ms": time.map(print::ms) }));
    let both = step.before_and_after();
    json!({
        "what": step.what, "steps": step.steps, "variants": step.offered, "tried": step.times.len(),
        "state": state(step.found), "default": step.default, "chosen": step.variant,
        "other_bits": step.other_class().map(|class| class.name().to_owned()),
        "default_ms": both.map(|(before, _)| print::ms(before)),
        "chosen_ms": both.map(|(_, after)| print::ms(after)),
        "times": times.collect::<Vec<_>>(),
    })
}

/// How a variant was found, in words.
fn state(found: Found) -> &'static str {
    match found {
        Found::Now => "measured",
        Found::Earlier => "measured earlier",
        Found::OutOfTime => "out of time",
        Found::NotAlone => "not measurable",
        _ => "not measured",
    }
}

fn print_text(
    head: &Json,
    report: &Summary,
    steps: &[TunedStep],
    limit: Duration,
    not_stored: Option<&str>,
) -> Result<(), Failure> {
    let text = |name: &str| head[name].as_str().unwrap_or_default();
    let threads = head["threads"]
        .as_u64()
        .map_or_else(String::new, |n| format!(", {}", counted(n as usize, "thread", "threads")));
    writeln!(Output, "{} on {}, {}{threads}", text("model"), text("device"), text("precision"))?;
    if steps.is_empty() {
        writeln!(Output, "no step has several variants on this device: there is nothing to measure")?;
        return Ok(());
    }
    table(steps)?;
    let (before, after) = report.times;
    let kinds = |n: usize| counted(n, "kind of step", "kinds of steps");
    if report.now > 0 {
        let gain = before.as_secs_f64() / after.as_secs_f64().max(1e-12);
        writeln!(
            Output,
            "measured {} in {:.1} s, {} faster by another variant: {:.3} ms in all before, {:.3} ms now ({gain:.2}x)",
            kinds(report.now),
            head["seconds"].as_f64().unwrap_or(f64::NAN),
            report.changed,
            print::ms(before),
            print::ms(after),
        )?;
    }
    if report.other_bits > 0 {
        let of = kinds(report.other_bits);
        writeln!(
            Output,
            "{of} with other bits than unmeasured (after the @: how it sums); --numerics strict allows none"
        )?;
    }
    if report.earlier > 0 {
        writeln!(Output, "{} measured earlier", kinds(report.earlier))?;
    }
    if report.not_alone > 0 {
        writeln!(Output, "{} cannot be measured alone, and keep the default", kinds(report.not_alone))?;
    }
    if report.out_of_time > 0 {
        let left = kinds(report.out_of_time);
        writeln!(
            Output,
            "the limit of {limit:?} passed before {left} could be measured: run it again, or give more --limit"
        )?;
    }
    match not_stored {
        Some(why) => writeln!(Output, "not stored: {why}")?,
        None if report.now + report.earlier == 0 => {
            writeln!(Output, "nothing was measured, so nothing is stored")?
        }
        None => writeln!(Output, "stored in {}, where all later commands find it", text("stored"))?,
    }
    Ok(())
}

/// A line for each kind of step.
fn table(steps: &[TunedStep]) -> Result<(), Failure> {
    let width = |of: fn(&TunedStep) -> &str, title: &str| {
        steps.iter().map(|step| of(step).chars().count()).max().unwrap_or(0).max(title.len())
    };
    let (default, chosen) = (width(|s| &s.default, "default"), width(|s| &s.variant, "chosen"));
    writeln!(
        Output,
        "  {:>5}  {:>5}  {:<default$}  {:<chosen$}  {:>10}  {:>10}  step",
        "steps", "tried", "default", "chosen", "before ms", "now ms"
    )?;
    for step in steps {
        let tried = format!("{}/{}", step.times.len(), step.offered);
        let times = match step.before_and_after() {
            Some((before, after)) => format!("{:>10.4}  {:>10.4}", print::ms(before), print::ms(after)),
            None => format!("{:>22}", state(step.found)),
        };
        writeln!(
            Output,
            "  {:>5}  {tried:>5}  {:<default$}  {:<chosen$}  {times}  {}",
            step.steps, step.default, step.variant, step.what
        )?;
    }
    Ok(())
}
