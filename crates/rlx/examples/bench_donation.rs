//! What it costs to replace a row of a cache, by the cache's capacity: donated, so that only the row moves, and fed by an
//! output of its own, which copies the cache.
//!
//! `cargo run --release -p rlx --example bench_donation [-- DEVICE [ROUNDS]]` prints microseconds per run: the minimum over 40 rounds of the mean
//! of 200 runs, or 10 where the cache is copied, the capacities taking turns. The output is not fetched; a round ends when the
//! device has done its last run. Donated caches are written at the same 256 rows, whatever their capacity, and at one row after
//! the other, which the processor's caches do not have.

use std::time::Instant;

use rlx::prelude::*;

/// Numbers of a row.
const ROW: usize = 1024;
const CAPACITIES: [usize; 4] = [256, 1024, 4096, 16384];
const ROUNDS: usize = 40;
/// Runs of a round, and those of a round in which each run copies the cache.
const RUNS: usize = 200;
const COPIES: usize = 10;

/// A cache, and how it is written.
struct Cache {
    compiled: CompiledGraph,
    /// Rows that are written in turn.
    rows: usize,
    /// Runs of a round.
    runs: usize,
    /// The smallest mean so far, in microseconds.
    best: f64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device: Device = std::env::args().nth(1).map_or(Ok(Device::Cpu), |name| name.parse())?;
    let rounds = std::env::args().nth(2).map_or(Ok(ROUNDS), |count| count.parse())?;
    let ways = |capacity| [(true, CAPACITIES[0]), (true, capacity), (false, capacity)];
    let cases = CAPACITIES.iter().flat_map(|&c| ways(c).map(|(donate, rows)| (c, donate, rows)));
    let caches = cases.map(|(capacity, donate, rows)| Cache::new(device, capacity, donate, rows));
    let mut caches = caches.collect::<Result<Vec<_>, _>>()?;
    for round in 0..rounds {
        for cache in &mut caches {
            cache.round(round)?;
        }
    }
    println!("| rows of {ROW} | donated, the same rows | donated, row after row | copied |");
    println!("|---|---|---|---|");
    for (capacity, ways) in CAPACITIES.iter().zip(caches.chunks(3)) {
        let [same, next, copied] = [&ways[0], &ways[1], &ways[2]].map(|cache| cache.best);
        println!("| {capacity} | {same:.2} | {next:.2} | {copied:.2} |");
    }
    Ok(())
}

impl Cache {
    fn new(
        device: Device,
        capacity: usize,
        donate: bool,
        rows: usize,
    ) -> Result<Self, Box<dyn std::error::Error>> {
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
        let runs = if donate { RUNS } else { COPIES };
        Ok(Cache { compiled, rows, runs, best: f64::MAX })
    }

    fn round(&mut self, round: usize) -> Result<(), Box<dyn std::error::Error>> {
        let row = vec![1.0; ROW];
        let start = Instant::now();
        for i in 0..self.runs {
            let at = [((round * self.runs + i) % self.rows) as f32];
            self.compiled.try_commit_no_wait(&[("row", &row), ("at", &at)])?;
        }
        self.compiled.try_sync_pending()?;
        self.best = self.best.min(start.elapsed().as_secs_f64() * 1e6 / self.runs as f64);
        Ok(())
    }
}
