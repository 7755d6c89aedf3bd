//! What it is worth that matmuls compute the norm before them, and that gate and up are one step.
//!
//! `cargo run --release -p rlx --example bench_producers [-- MODEL…]` prints a line for each model in `models/`, with the sizes of
//! its last golden: steps, planned arena and microseconds of a run, with `FusionOptions::producers` and without. Both run by
//! turns; times are minima, so they hold on a machine that does other work, too. `RLX_NUM_THREADS` sets the threads, `RLX_ROUNDS`
//! the number of rounds.

use std::time::Instant;

use rlx::prelude::*;
use rlx_ir::{ConstData, Result};
use rlx_testdata::models::{Model as Case, all};

fn main() -> Result<()> {
    let only: Vec<String> = std::env::args().skip(1).collect();
    println!("| model | steps | arena KB | µs | steps | arena KB | µs | arena | time |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for case in all().iter().filter(|c| only.is_empty() || only.contains(&c.name)) {
        line(case)?;
    }
    Ok(())
}

fn line(case: &Case) -> Result<()> {
    let (Some(path), Some(golden)) = (case.graph_file(), case.goldens.last()) else { return Ok(()) };
    let (inputs, _) = golden.read();
    let inputs: Vec<(&str, &ConstData)> = inputs.iter().map(|(n, d)| (n.as_str(), d)).collect();
    let session = Session::try_new(Device::Cpu)?;
    let runner = |producers: bool| -> Result<Runner> {
        let options =
            CompileOptions::try_new()?.fusion_opts(FusionOptions { producers, ..Default::default() });
        let model = Model::open(&path)?.with_dims(golden.dims.iter().cloned());
        let mut runner = Runner::new(model, session.clone(), options);
        runner.run(&inputs)?;
        Ok(runner)
    };
    let mut both = [runner(false)?, runner(true)?];
    let rounds = std::env::var("RLX_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(200);
    let mut least = [f64::MAX; 2];
    for round in 0..rounds {
        for which in [round % 2, 1 - round % 2] {
            let start = Instant::now();
            both[which].run(&inputs)?;
            least[which] = least[which].min(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    let mut seen = Vec::new();
    for runner in &mut both {
        let prepared = runner.prepare(&inputs)?;
        seen.push((prepared.compiled.lir().steps.len(), prepared.compiled.memory().arena_bytes as f64 / 1e3));
    }
    let [(steps, arena), (fused, smaller)] = seen[..] else { return Ok(()) };
    let [apart, together] = least;
    println!(
        "| {} | {steps} | {arena:.1} | {apart:.1} | {fused} | {smaller:.1} | {together:.1} | {:.2} | {:.3} |",
        case.name,
        smaller / arena,
        together / apart
    );
    Ok(())
}
