//! What a run costs on the host, without the device: a chain of dispatches on wgpu's back end that does nothing.
//!
//! ```sh
//! WGPU_NOOP_BACKEND=1 cargo run --release -p rlx-wgpu --features noop --example bench_host
//! ```
//!
//! Prints the shortest time of a run for each length, and from the shortest and longest chain what a run and what a dispatch costs. Exits with 1
//! where that is more than 10 µs a run or 1 µs a dispatch.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rlx_backend::{Backend, ExecutableGraph};
use rlx_driver::Device;
use rlx_ir::{DType, Graph, Op, Shape};
use rlx_opt::{CompileOptions, CompilePipeline};
use rlx_wgpu::WgpuBackend;

/// Lengths of the chains.
const LENGTHS: [usize; 4] = [1, 16, 64, 256];
/// What may be needed for a run and for a dispatch, in microseconds.
const MOST: [f64; 2] = [10.0, 1.0];
/// Runs of each chain.
const RUNS: usize = 3000;

/// So many rows of numbers, each the softmax of the one before: ops that are not fused.
fn chain(length: usize) -> Graph {
    let mut graph = Graph::new("chain");
    let mut x = graph.input("x", Shape::new(&[4, 16], DType::F32));
    for _ in 0..length {
        x = graph.try_add(Op::Softmax { axis: -1 }, &[x]).expect("a softmax of rows");
    }
    graph.set_outputs(vec![x]);
    graph
}

fn compile(graph: &Graph, backend: &WgpuBackend) -> rlx_ir::Result<Box<dyn ExecutableGraph>> {
    let options = CompileOptions::default();
    let compiled = CompilePipeline::new(backend.target(&options)?, options.clone()).compile(graph)?;
    backend.compile(Arc::new(compiled.lir), &options)
}

fn measure() -> rlx_ir::Result<[f64; 2]> {
    let backend = WgpuBackend::new(Device::Gpu);
    println!("{}", backend.machine()?);
    let mut runs = Vec::new();
    for length in LENGTHS {
        runs.push((length, compile(&chain(length), &backend)?, Duration::MAX));
    }
    let input = [vec![0u8; 4 * 16 * 4]];
    // In turn, so that all see the same machine.
    for _ in 0..RUNS {
        for (_, exec, least) in &mut runs {
            let start = Instant::now();
            exec.run(&&input[..], &[])?;
            *least = start.elapsed().min(*least);
        }
    }
    let micros = |d: Duration| d.as_secs_f64() * 1e6;
    for (length, exec, least) in &runs {
        assert_eq!(exec.lir().steps.len(), *length, "a step for each op");
        println!("{length:4} dispatches: {:8.2} µs", micros(*least));
    }
    let ends = [&runs[0], &runs[LENGTHS.len() - 1]];
    let [(few, short), (many, long)] = ends.map(|(length, _, least)| (*length as f64, micros(*least)));
    let each = (long - short) / (many - few);
    Ok([short - few * each, each])
}

fn main() -> ExitCode {
    match measure() {
        Ok(cost) => {
            println!("{:.2} µs a run, {:.3} µs a dispatch", cost[0], cost[1]);
            ExitCode::from(u8::from(cost[0] > MOST[0] || cost[1] > MOST[1]))
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
