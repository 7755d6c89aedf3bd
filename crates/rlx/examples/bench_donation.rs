//! What it costs to replace a row of a cache, by the cache's capacity: donated, so that only the row moves, and fed by an
//! output of its own, which copies the cache.
//!
//! `cargo run --release -p rlx --example bench_donation [-- DEVICE]` prints microseconds per run: the minimum over 20 rounds of the mean of
//! 200 runs. The output is not fetched.

use std::time::Instant;

use rlx::prelude::*;

/// Numbers of a row.
const ROW: usize = 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device: Device = std::env::args().nth(1).map_or(Ok(Device::Cpu), |name| name.parse())?;
    println!("| rows of {ROW} | donated, µs | copied, µs |");
    println!("|---|---|---|");
    for capacity in [256, 1024, 4096, 16384] {
        let [donated, copied] = [true, false].map(|donate| micros(device, capacity, donate));
        println!("| {capacity} | {:.2} | {:.2} |", donated?, copied?);
    }
    Ok(())
}

/// The time of one run.
fn micros(device: Device, capacity: usize, donate: bool) -> Result<f64, Box<dyn std::error::Error>> {
    let mut g = Graph::new("append");
    let cache = g.input("cache", Shape::new(&[capacity, ROW], DType::F32));
    let row = g.input("row", Shape::new(&[1, ROW], DType::F32));
    let at = g.input("at", Shape::new(&[], DType::I32));
    let next = g.try_add(Op::UpdateSlice { axis: 0 }, &[cache, row, at])?;
    g.set_outputs(vec![next]);
    if donate {
        g.donate("cache", 0)?;
    }
    let mut compiled = Session::try_new(device)?.try_compile(g)?;
    compiled.bind_gpu_handle("cache", &vec![0.0; capacity * ROW]);
    compiled.set_gpu_handle_feed("cache", 0);
    let row = vec![1.0; ROW];
    let mut best = f64::MAX;
    for round in 0..20 {
        let start = Instant::now();
        for i in 0..200 {
            let at = [((round * 200 + i) % capacity) as f32];
            compiled.try_commit_no_wait(&[("row", &row), ("at", &at)])?;
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e6 / 200.0);
    }
    Ok(best)
}
