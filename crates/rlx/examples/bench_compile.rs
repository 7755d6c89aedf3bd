//! How long the models in `models/` take from file to ready, and how much memory their runs take.
//!
//! `cargo run --release -p rlx --example bench_compile [-- MODEL…]` prints a line for each model (full size, too, whose
//! weights are made at first use) with the sizes of its first golden: nodes of the file's graph and steps of the program,
//! milliseconds to import, to compile with dynamic and with fixed dimensions, and to finish the first run (which packs the
//! weights), and the arena: its size, and relative to the maximum of bytes alive at once. Minimum of three, except for the
//! first run.

use std::time::Instant;

use rlx::prelude::*;
use rlx_ir::{ConstData, Result};
use rlx_testdata::models::{Model as Case, all};

fn main() -> Result<()> {
    let only: Vec<String> = std::env::args().skip(1).collect();
    println!(
        "| model | nodes | steps | import | compile, dynamic | compile, fixed | first run | arena KB | arena / alive |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for case in all().iter().filter(|c| only.is_empty() || only.contains(&c.name)) {
        line(case)?;
    }
    Ok(())
}

/// Milliseconds since then.
fn since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

fn line(case: &Case) -> Result<()> {
    let (Some(path), Some(golden)) = (case.graph_file(), case.goldens.first()) else { return Ok(()) };
    let (inputs, _) = golden.read();
    let inputs: Vec<(&str, &ConstData)> = inputs.iter().map(|(n, d)| (n.as_str(), d)).collect();
    let session = Session::try_new(Device::Cpu)?;
    let options = CompileOptions::try_new()?;
    // Import, compile.
    let timed = |dims: &[(String, usize)]| -> Result<[f64; 2]> {
        let mut min = [f64::MAX; 2];
        for _ in 0..3 {
            let start = Instant::now();
            let imported = Model::open(&path)?.with_dims(dims.iter().cloned()).import(&inputs)?;
            min[0] = min[0].min(since(start));
            let start = Instant::now();
            session.try_compile_with(imported.graph.clone(), &options)?;
            min[1] = min[1].min(since(start));
        }
        Ok(min)
    };
    let (open, fixed) = (timed(&[])?, timed(&golden.dims)?);
    let model = Model::open(&path)?.with_dims(golden.dims.iter().cloned());
    let mut runner = Runner::new(model, session.clone(), options.clone());
    let nodes = runner.import(&inputs)?.graph.len();
    let start = Instant::now();
    runner.run(&inputs)?;
    let first = since(start);
    let prepared = runner.prepare(&inputs)?;
    let (memory, steps) = (prepared.compiled.memory(), prepared.compiled.lir().steps.len());
    let waste = memory.arena_bytes as f64 / memory.largest_live_set.max(1) as f64;
    println!(
        "| {} | {nodes} | {steps} | {:.1} | {:.1} | {:.1} | {first:.0} | {:.1} | {waste:.3} |",
        case.name,
        open[0],
        open[1],
        fixed[1],
        memory.arena_bytes as f64 / 1e3
    );
    Ok(())
}
