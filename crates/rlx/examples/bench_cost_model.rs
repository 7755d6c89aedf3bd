//! How well the cost model predicts: the predicted and measured time of every model in `models/`, at the sizes of its golden tests.
//!
//! `cargo run -p rlx --example bench_cost_model [-- DEVICE [MODEL…]]` calibrates the device (CPU) again, prints one line
//! for each model and size, and how many predictions are within a factor of two. The measured time is the minimum of at
//! least five runs. Calibration and measurement use the same build, so any build profile works.

use std::time::{Duration, Instant};

use rlx::prelude::*;
use rlx_ir::{ConstData, Result, sym};
use rlx_testdata::models::{Golden, Model as Case, wanted};

/// How long each model is measured.
const REPEAT: Duration = Duration::from_millis(300);

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let device = match args.first() {
        Some(name) => name.parse().map_err(|e| Error::new(ErrorKind::Config, format!("{e}")))?,
        None => Device::Cpu,
    };
    let only = args.get(1..).unwrap_or_default();
    let start = Instant::now();
    let prices = calibrate(device)?;
    println!("{}: calibrated in {:.2} s\n", prices.subject, start.elapsed().as_secs_f64());
    println!("| model | sizes | predicted, ms | measured, ms | ratio |");
    println!("|---|---|---|---|---|");
    let model = cost_model(device)?;
    let mut ratios = Vec::new();
    for case in wanted().into_iter().filter(|c| only.is_empty() || only.contains(&c.name)) {
        for golden in &case.goldens {
            let Some((predicted, measured)) = both(&case, golden, device, &*model)? else { continue };
            let ratio = predicted / measured;
            let dims: Vec<String> = golden.dims.iter().map(|(name, n)| format!("{name} {n}")).collect();
            let (p, m) = (predicted / 1e6, measured / 1e6);
            println!("| {} | {} | {p:.4} | {m:.4} | {ratio:.2} |", case.name, dims.join(", "));
            ratios.push((case.name.clone(), ratio));
        }
    }
    let good = |r: f64| (0.5..=2.0).contains(&r);
    let runs = ratios.iter().filter(|(_, r)| good(*r)).count();
    let mut names: Vec<&String> = ratios.iter().map(|(name, _)| name).collect();
    names.dedup();
    let whole = |name: &&&String| ratios.iter().filter(|(n, _)| n == **name).all(|(_, r)| good(*r));
    let models = names.iter().filter(whole).count();
    println!(
        "\nwithin 2×: {runs} of {} runs; {models} of {} models in all of their runs",
        ratios.len(),
        names.len()
    );
    Ok(())
}

/// Predicted and measured nanoseconds; `None` where the model's weights are not there.
fn both(
    case: &Case,
    golden: &Golden,
    device: Device,
    prices: &dyn BackendCostModel,
) -> Result<Option<(f64, f64)>> {
    let Some(file) = case.graph_file() else { return Ok(None) };
    let (inputs, _) = golden.read();
    let model = Model::open(&file)?.with_dims(golden.dims.iter().cloned());
    let mut runner = Runner::new(model, Session::try_new(device)?, CompileOptions::try_new()?);
    let given: Vec<(&str, &ConstData)> = inputs.iter().map(|(name, data)| (name.as_str(), data)).collect();
    let imported = runner.import(&given)?;
    let compiled = runner.prepare(&given)?.compiled;
    let pairs: Vec<(u32, usize)> = golden.dims.iter().map(|(name, n)| (sym::named(name), *n)).collect();
    let predicted = try_estimate_at(&imported.graph, &DimBinding::from_pairs(&pairs), prices)?;
    let views: Vec<TensorView<'_>> = inputs
        .iter()
        .map(|(name, data)| TensorView { name, dtype: data.dtype(), dims: data.dims(), bytes: data.bytes() })
        .collect();
    compiled.try_run_views(&views)?;
    let (start, mut best) = (Instant::now(), Duration::MAX);
    let mut runs = 0;
    while runs < 5 || start.elapsed() < REPEAT {
        let one = Instant::now();
        compiled.try_run_views(&views)?;
        best = best.min(one.elapsed());
        runs += 1;
    }
    Ok(Some((predicted, best.as_nanos() as f64)))
}
