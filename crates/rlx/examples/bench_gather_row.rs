//! A run must not cost more because a parameter is large: one row gathered from tables of 1 MB and 400 MB.
//!
//! `cargo run --release -p rlx --example bench_gather_row` interleaves both and prints the times of one run.

use std::time::Instant;

use rlx::prelude::*;
use rlx_ir::Result;

const WIDTH: usize = 256;
const RUNS: usize = 20_000;

fn compiled(rows: usize) -> Result<CompiledGraph> {
    let mut graph = Graph::new("gather");
    let table = graph.param("table", Shape::new(&[rows, WIDTH], DType::F32));
    let index = graph.input("index", Shape::new(&[1], DType::I64));
    let row = graph.gather(table, index, 0, Shape::new(&[1, WIDTH], DType::F32));
    graph.set_outputs(vec![row]);
    let mut compiled = Session::try_new(Device::Cpu)?.try_compile(graph)?;
    compiled.try_set_param("table", &vec![1.0; rows * WIDTH])?;
    Ok(compiled)
}

fn main() -> Result<()> {
    // 1 kB a row.
    let mut tables = [compiled(1 << 10)?, compiled(400 << 10)?];
    let mut times = [Vec::new(), Vec::new()];
    for run in 0..RUNS {
        for (table, times) in tables.iter_mut().zip(&mut times) {
            let index = [(run % 1000) as f32];
            let start = Instant::now();
            table.try_run_slots(&[&index])?;
            times.push(start.elapsed().as_nanos());
        }
    }
    for (name, mut times) in ["  1 MB", "400 MB"].into_iter().zip(times) {
        times.sort_unstable();
        println!("{name}: min {} ns, median {} ns", times[0], times[RUNS / 2]);
    }
    Ok(())
}
