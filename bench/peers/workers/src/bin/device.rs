//! RLX's worker for `bench/gpu.py`: a model on any device, with inputs that are there already.
//!
//! It is called as `device MODEL.onnx DEVICE PRECISION NUMERICS CAPACITY PAST [DIM=N]...`. Where `CAPACITY` is not 0, the model's caches, which grow by a
//! concatenation, become buffers of so many rows, of which `PAST` are used. Inputs are made here: floats from -1 to 1, and integers that are all 1. It writes
//! `{"load_ms", "device", "weight_bytes"}`, and then answers each line:
//!
//! - `go SECONDS` runs the model with its inputs on the device, as `go` of the other workers does.
//! - `host SECONDS` copies the inputs there in each run.
//! - `steps RUNS` times the steps of so many runs: `{"steps": [[NAME, KIND, shortest µs], …]}`, where what a step is comes from `op_family`.

use std::hint::black_box;
use std::io::BufRead;
use std::process::ExitCode;
use std::time::Instant;

use peers::{Result, answer, end, ms, timed};
use rlx::diagram::op_family;
use rlx::prelude::{CompiledGraph, ConstData, RunRequest, StepProfile, TensorInfo, TensorView, caches};
use rlx::{Model, OpenOptions, Runner};
use rlx_ir::DType;
use rlx_ir::lir::StepKind;
use serde_json::{Value as Json, json};

/// Runs before steps are timed.
const WARM_UP: usize = 2;

fn main() -> ExitCode {
    end(work())
}

fn work() -> Result<()> {
    let start = Instant::now();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, device, precision, numerics, capacity, past, dims @ ..] = args.as_slice() else {
        return Err("arguments: MODEL.onnx DEVICE PRECISION NUMERICS CAPACITY PAST [DIM=N]...".into());
    };
    let mut options = OpenOptions::new()?;
    for (name, value) in [("device", device), ("precision", precision), ("numerics", numerics)] {
        options.set(name, value)?;
    }
    for dim in dims {
        let (name, size) = dim.split_once('=').ok_or_else(|| format!("{dim}: not DIM=N"))?;
        options.set(&format!("dim:{name}"), size)?;
    }
    let (mut runner, length) = match capacity.parse()? {
        0 => (options.open(model)?, None),
        rows => bounded(model, rows, &options)?,
    };
    let used: i64 = past.parse()?;
    let sizes = &options.dims;
    let inputs = runner.inputs()?;
    let made = inputs.iter().map(|info| {
        let integer = if length.as_ref() == Some(&info.name) { used } else { 1 };
        Ok((info.name.clone(), input(info, sizes, integer)?))
    });
    let inputs: Vec<(String, ConstData)> = made.collect::<Result<_>>()?;
    let given: Vec<_> = inputs.iter().map(|(name, data)| (name.as_str(), data)).collect();
    let compiled = runner.prepare(&given)?.compiled;
    for (name, data) in &given {
        compiled.try_bind_handle(name, &view(name, data).to_f32()?)?;
    }
    compiled.try_run_views(&[])?;
    let bytes = compiled.memory().weight_bytes;
    answer(&json!({ "load_ms": ms(start.elapsed()), "device": device, "weight_bytes": bytes }))?;
    serve(compiled, &given)
}

fn serve(compiled: &mut CompiledGraph, given: &[(&str, &ConstData)]) -> Result<()> {
    let all: Vec<_> = given.iter().map(|(name, data)| view(name, data)).collect();
    for request in std::io::stdin().lock().lines() {
        let request = request?;
        match request.split_once(' ') {
            Some(("go", seconds)) => answer(&runs(compiled, &[], seconds.parse()?)?)?,
            Some(("host", seconds)) => answer(&runs(compiled, &all, seconds.parse()?)?)?,
            Some(("steps", runs)) => answer(&steps(compiled, runs.parse()?)?)?,
            _ => return Err(format!("{request:?} is no request").into()),
        }
    }
    Ok(())
}

/// The model with caches of so many rows, and the input that says how many are used.
fn bounded(model: &str, rows: usize, options: &OpenOptions) -> Result<(Runner, Option<String>)> {
    let imported = Model::open(model)?.import(&[])?;
    let caches = caches::with_capacity(&imported.graph, rows)?;
    let (session, compile) = (options.session()?, options.compile_options()?);
    let (weights, outputs) = (imported.weights.clone(), imported.outputs.clone());
    let runner = Runner::from_graph(caches.graph, weights, outputs, session, compile);
    Ok((runner, Some(caches.length)))
}

/// A value for an input: floats from -1 to 1, or integers that are all the same.
fn input(info: &TensorInfo, sizes: &[(String, usize)], integer: i64) -> Result<ConstData> {
    let dims = info.shape.dims().iter().map(|dim| {
        let name = dim.to_string();
        let given = sizes.iter().find(|(of, _)| *of == name).map(|(_, size)| *size);
        given.or_else(|| name.parse().ok()).ok_or_else(|| format!("{}: no size for {name}", info.name).into())
    });
    let dims: Vec<usize> = dims.collect::<Result<_>>()?;
    let count = dims.iter().product();
    if info.dtype == DType::I64 {
        return Ok(ConstData::new(DType::I64, &dims, integer.to_le_bytes().repeat(count))?);
    }
    let mut state = 1u32;
    let value = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let values: Vec<f32> = (0..count).map(value).collect();
    if info.dtype == DType::BF16 {
        let upper = values.iter().flat_map(|v| ((v.to_bits() >> 16) as u16).to_le_bytes());
        return Ok(ConstData::new(DType::BF16, &dims, upper.collect::<Vec<_>>())?);
    }
    Ok(ConstData::from_f32(&dims, &values)?)
}

fn view<'a>(name: &'a str, data: &'a ConstData) -> TensorView<'a> {
    TensorView { name, dtype: data.dtype(), dims: data.dims(), bytes: data.bytes() }
}

fn runs(compiled: &mut CompiledGraph, views: &[TensorView<'_>], seconds: f64) -> Result<Json> {
    let request = RunRequest::from(views);
    let mut run = || {
        black_box(compiled.execute(&request)?);
        Ok(())
    };
    timed(&mut run, seconds)
}

fn steps(compiled: &mut CompiledGraph, runs: usize) -> Result<Json> {
    for _ in 0..WARM_UP {
        compiled.try_run_views(&[])?;
    }
    compiled.try_start_profiling()?;
    for _ in 0..runs {
        compiled.try_run_views(&[])?;
    }
    let steps = compiled.try_profile()?;
    compiled.try_stop_profiling()?;
    let kinds = compiled.lir().steps.iter().map(|step| match &step.kind {
        StepKind::Copy => "Copy",
        StepKind::Op(op) => op_family(op),
    });
    let of = |(step, kind): (&StepProfile, _)| json!([step.name, kind, step.least.as_secs_f64() * 1e6]);
    let steps: Vec<Json> = steps.iter().zip(kinds).map(of).collect();
    Ok(json!({ "steps": steps }))
}
