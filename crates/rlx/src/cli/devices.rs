//! `rlx devices`: which devices can be used and why the others cannot; the calibration of each; which one is chosen for a model, and
//! why.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use rlx::Model;
use rlx::inputs::InputLimit;
use rlx_ir::Progress;
use rlx_runtime::{
    Calibration, Choice, ConstData, Device, DeviceCandidate, DeviceId, Error, ErrorKind, Graph, GraphDevices,
    Op, Verdict, calibrate_with_progress, cost_model_with_progress, device_ids, full_name,
    registered_devices, sym, try_benchmark_devices_with_progress, try_estimate_graph_cost, typical_dims,
    unavailable_reason,
};
use serde_json::{Value as Json, json};

use super::args::{Common, DevicesArgs, NumericsArg};
use super::failure::Failure;
use super::image::{ImageArgs, Images};
use super::output::{Messages, Output};
use super::watch::Watch;
use super::{inputs, job};

/// Lists every device, or what the arguments ask of them.
pub fn devices(args: &DevicesArgs, json: bool) -> Result<ExitCode, Failure> {
    let watch = Watch::start(&args.limits, "looking for devices", json)?;
    let measured = if args.calibrate { calibrate_all(json, &watch)? } else { Vec::new() };
    match &args.model {
        Some(path) => explain(path, args, json, watch)?,
        None if !args.calibrate => {
            watch.hide();
            list(args.all, json)?;
        }
        None if json => writeln!(Output, "{}", Json::Array(measured.clone()))?,
        None => {}
    }
    let failed = measured.iter().any(|entry| !entry["error"].is_null());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// One line for each device: what is missing, and how to get it. Devices that are not in this build are one line together, unless `all` are asked for.
fn list(all: bool, json: bool) -> Result<(), Failure> {
    let devices: Vec<(DeviceId, Option<Error>)> =
        device_ids().into_iter().map(|d| (d, unavailable_reason(d))).collect();
    if json {
        let entry = |(d, missing): &(DeviceId, Option<Error>)| {
            json!({
                "device": d.feature(), "name": name(*d), "available": missing.is_none(),
                "reason": missing.as_ref().map(Error::message), "hint": missing.as_ref().and_then(Error::hint),
            })
        };
        writeln!(Output, "{}", devices.iter().map(entry).collect::<Json>())?;
        return Ok(());
    }
    let built = registered_devices();
    let (shown, folded): (Vec<_>, Vec<_>) =
        devices.iter().partition(|(d, _)| all || d.known().is_none_or(|known| built.contains(&known)));
    for (device, missing) in shown {
        let state = missing.as_ref().map_or_else(|| "available".to_owned(), one_line);
        writeln!(Output, "{:<10} {:<8} {state}", device.feature(), name(*device))?;
    }
    if !folded.is_empty() {
        let names: Vec<&str> = folded.iter().map(|(d, _)| d.feature()).collect();
        let names = names.join(", ");
        writeln!(Output, "not in this build: {names} (`rlx devices --all` says how to get them)")?;
    }
    Ok(())
}

/// What is missing and what to do about it. The device's name is at the start of the line already.
fn one_line(missing: &Error) -> String {
    let message = missing.message();
    let own = missing.device().and_then(|name| message.strip_prefix(name)?.strip_prefix(": "));
    let hint = missing.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
    // Drivers say more on the lines that follow.
    format!("{}{hint}", own.unwrap_or(message).lines().next().unwrap_or_default())
}

/// The name people read, for the CPU with the BLAS it uses.
pub fn name(device: DeviceId) -> &'static str {
    device.known().map_or(device.name(), full_name)
}

/// Measures every device that can be used; returns the figures for `--json` and prints them otherwise. A device that fails is
/// told in its place.
fn calibrate_all(json: bool, watch: &Watch) -> Result<Vec<Json>, Failure> {
    let mut found = Vec::new();
    for device in device_ids().into_iter().filter(|&d| unavailable_reason(d).is_none()) {
        watch.say(&format!("measuring {device}"));
        let start = Instant::now();
        let prices = match calibrate_with_progress(device, watch.quiet()) {
            Err(e) if e.kind() == ErrorKind::Cancelled => return Err(e.into()),
            prices => prices,
        };
        let seconds = start.elapsed().as_secs_f64();
        let entry = match &prices {
            Ok(prices) => figures(device, prices, seconds),
            Err(e) => json!({ "device": device.feature(), "error": e.to_string() }),
        };
        match &prices {
            _ if json => {}
            Ok(_) => watch.aside(|| print_figures(device, &entry))?,
            Err(e) => watch.aside(|| writeln!(Messages, "error: {device}: {e}")),
        }
        found.push(entry);
    }
    Ok(found)
}

/// The main figures: matmul rates by size, bandwidths, the cost of a run and of a step.
fn figures(device: DeviceId, prices: &Calibration, seconds: f64) -> Json {
    let product = |p: &rlx_runtime::GemmPoint| {
        let [m, n, k] = p.dims;
        json!({ "m": m, "n": n, "k": k, "gflops": 1.0 / p.ns_per_flop })
    };
    let stream = |&(bytes, ns): &(f64, f64)| json!({ "bytes": bytes, "gb_per_s": 1.0 / ns });
    json!({
        "device": device.feature(),
        "subject": prices.subject,
        "seconds": seconds,
        "run_us": prices.run_ns / 1e3,
        "step_us": prices.step_ns / 1e3,
        "transfer_gb_per_s": (prices.transfer_ns > 0.0).then(|| 1.0 / prices.transfer_ns),
        "products": prices.products.iter().map(product).collect::<Json>(),
        "convolutions": prices.windows.iter().map(product).collect::<Json>(),
        "parameters": prices.streams.points().iter().map(stream).collect::<Json>(),
        "passes": prices.passes.points().iter().map(stream).collect::<Json>(),
    })
}

fn print_figures(device: DeviceId, entry: &Json) -> Result<(), Failure> {
    let number = |v: &Json| v.as_f64().unwrap_or(0.0);
    writeln!(
        Output,
        "{device}: measured in {:.2} s ({})",
        number(&entry["seconds"]),
        entry["subject"].as_str().unwrap_or("")
    )?;
    writeln!(
        Output,
        "  a run {:.2} us, a step {:.2} us",
        number(&entry["run_us"]),
        number(&entry["step_us"])
    )?;
    if let Some(rate) = entry["transfer_gb_per_s"].as_f64() {
        writeln!(Output, "  to the device and back {rate:.2} GB/s")?;
    }
    for (title, key) in [("matmuls", "products"), ("convolutions", "convolutions")] {
        writeln!(Output, "  {title}, GFLOP/s by m x n x k:")?;
        for p in entry[key].as_array().into_iter().flatten() {
            writeln!(
                Output,
                "    {:>5} x {} x {}: {:.1}",
                number(&p["m"]),
                number(&p["n"]),
                number(&p["k"]),
                number(&p["gflops"])
            )?;
        }
    }
    for (title, key) in [("parameters read", "parameters"), ("one pass over memory", "passes")] {
        writeln!(Output, "  {title}, GB/s by bytes:")?;
        for p in entry[key].as_array().into_iter().flatten() {
            writeln!(Output, "    {:>12}: {:.1}", number(&p["bytes"]), number(&p["gb_per_s"]))?;
        }
    }
    Ok(())
}

/// Says what a model takes on each device, and which one is chosen.
fn explain(path: &Path, args: &DevicesArgs, json: bool, watch: Watch) -> Result<(), Failure> {
    let (mut devices, given) = open(path, args, watch.progress())?;
    let given: Vec<(&str, &[f32])> =
        given.iter().map(|(name, values)| (name.as_str(), values.as_slice())).collect();
    if let Some(runs) = args.measure {
        watch.say("measuring");
        try_benchmark_devices_with_progress(&mut devices, &given, runs as usize, watch.quiet())?;
    }
    watch.say("estimating");
    let verdict = devices.verdict_for(&given);
    let report = devices.report();
    let predictions: Vec<Prediction> =
        report.iter().map(|c| predict(c, devices.graph(), watch.quiet())).collect::<Result<_, _>>()?;
    let choice = devices.try_choose_with_inputs(None, &given)?;
    drop(watch);
    let failed = devices.last_attempts().to_vec();
    let entry = |(c, (predicted, unpredicted)): (&DeviceCandidate, &Prediction)| {
        json!({
            "device": c.device.feature(), "name": c.label, "available": c.available, "blocker": c.blocker,
            "predicted_ms": predicted, "unpredicted": unpredicted,
            "measured_ms": measured_ms(verdict.as_ref(), c.device),
        })
    };
    let entries: Vec<Json> = report.iter().zip(&predictions).map(entry).collect();
    let inputs = given.iter().map(|(name, values)| json!({ "name": name, "elements": values.len() }));
    let result = json!({
        "model": path.file_stem().map(|s| s.to_string_lossy()),
        "inputs": inputs.collect::<Json>(),
        "devices": entries,
        "verdict": verdict.as_ref().map(|v| json!({ "device": v.device.feature(), "runs": v.runs })),
        "failed": failed.iter().map(|(d, why)| json!({ "device": d.feature(), "reason": why })).collect::<Json>(),
        "chosen": { "device": choice.device.feature(), "reason": choice.reason.to_string() },
    });
    if json {
        writeln!(Output, "{result}")?;
    } else {
        print_choice(&result, choice)?;
    }
    Ok(())
}

/// Milliseconds, or why there is no prediction; neither for a device that cannot be used.
type Prediction = (Option<f64>, Option<String>);

fn predict(candidate: &DeviceCandidate, graph: &Graph, progress: &Progress) -> Result<Prediction, Error> {
    if candidate.blocker.is_some() {
        return Ok((None, None));
    }
    let model = cost_model_with_progress(candidate.device, progress);
    match model.and_then(|model| try_estimate_graph_cost(graph, &*model)) {
        Ok(ns) => Ok((Some(ns / 1e6), None)),
        Err(e) if e.kind() == ErrorKind::Cancelled => Err(e),
        Err(e) => Ok((None, Some(e.to_string()))),
    }
}

fn measured_ms(verdict: Option<&Verdict>, device: Device) -> Option<f64> {
    let (_, ns) = verdict?.times.iter().find(|(d, _)| *d == device)?;
    Some(*ns as f64 / 1e6)
}

fn print_choice(result: &Json, choice: Choice) -> Result<(), Failure> {
    let ms = |v: &Json| v.as_f64().map_or_else(|| "-".to_owned(), |ms| format!("{ms:.4} ms"));
    writeln!(Output, "{:<10} {:>14} {:>14}", "device", "predicted", "measured")?;
    for entry in result["devices"].as_array().into_iter().flatten() {
        let name = entry["device"].as_str().unwrap_or_default();
        match entry["blocker"].as_str() {
            Some(why) => writeln!(Output, "{name:<10} {why}")?,
            None => writeln!(
                Output,
                "{name:<10} {:>14} {:>14}",
                ms(&entry["predicted_ms"]),
                ms(&entry["measured_ms"])
            )?,
        }
    }
    for entry in result["devices"].as_array().into_iter().flatten() {
        if let Some(why) = entry["unpredicted"].as_str() {
            writeln!(Output, "{} has no prediction: {why}", entry["device"].as_str().unwrap_or(""))?;
        }
    }
    for failed in result["failed"].as_array().into_iter().flatten() {
        writeln!(
            Output,
            "{} failed: {}",
            failed["device"].as_str().unwrap_or(""),
            failed["reason"].as_str().unwrap_or("")
        )?;
    }
    writeln!(Output, "chosen: {}, {}", choice.device.feature(), choice.reason)
}

/// f32 values by name.
type Inputs = Vec<(String, Vec<f32>)>;

/// The model on its devices with all dimensions fixed, and made-up inputs of these sizes.
fn open(path: &Path, args: &DevicesArgs, progress: &Progress) -> Result<(GraphDevices, Inputs), Failure> {
    let model = Model::open_with_progress(path, progress)?;
    job::check_dims(&model.inputs()?, &args.dims)?;
    let model = model.with_dims(args.dims.iter().cloned());
    let open = typical_sizes(&model)?;
    let mut model = model.with_dims(open);
    let common = Common {
        model: path.to_path_buf(),
        device: Device::Cpu.into(),
        precision: rlx_runtime::Precision::F32,
        policy: None,
        numerics: NumericsArg::Fast,
        tune: None,
        threads: None,
        cpu_fallback: false,
        input_limit: InputLimit::default(),
        images: ImageArgs::default(),
        dims: args.dims.clone(),
        inputs: None,
        input: Vec::new(),
    };
    let values = inputs::gather(&common, &Images::none(&common), &model.inputs()?, true)?;
    let imported = model.import_with_progress(&job::borrowed(&values), progress)?;
    let mut devices = GraphDevices::try_from_env(imported.graph.clone())?;
    if let Some(name) = devices.try_set_weights(&imported.weights)?.first() {
        return Err(Error::new(ErrorKind::Binding, format!("the model has no weight \"{name}\"")).into());
    }
    // Inputs that decided a shape are no inputs of the graph any more.
    let taken =
        |name: &str| imported.graph.inputs().any(|n| matches!(&n.op, Op::Input { name: i } if i == name));
    let f32s = |(name, data): (String, ConstData)| {
        (name, data.value().to_f64().into_iter().map(|v| v as f32).collect())
    };
    Ok((devices, values.into_iter().filter(|(name, _)| taken(name)).map(f32s).collect()))
}

/// Sizes for the dimensions that the arguments leave open.
fn typical_sizes(model: &Model) -> Result<Vec<(String, usize)>, Failure> {
    let mut declared = Graph::new("inputs");
    for info in model.inputs()? {
        declared.input(info.name, info.shape);
    }
    Ok(typical_dims(&declared).iter().map(|(symbol, n)| (sym::name(symbol), n)).collect())
}
