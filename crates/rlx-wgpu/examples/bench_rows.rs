//! Rows of reductions, softmax and norms by kernels that exchange values within subgroups, and by kernels that do not.
//!
//! ```sh
//! cargo run --release -p rlx-wgpu --example bench_rows -- vulkan
//! ```
//!
//! Prints for each graph the shortest and the median time of a run with exchanges and without, in microseconds, and how many kernels exchange. The runs alternate.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use rlx_backend::{Backend, ExecutableGraph};
use rlx_driver::Device;
use rlx_ir::op::ReduceOp;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Error, ErrorKind, Graph, Op, Shape};
use rlx_opt::{CompileOptions, CompilePipeline};
use rlx_wgpu::{Lowered, WgpuBackend};

/// How often each graph runs by either kernels.
const RUNS: usize = 60;
/// Ops that are one behind the other, so that a run's own time counts for less.
const LENGTH: usize = 8;

/// `LENGTH` times an op over rows, and a sum of what it gives.
fn chain(op: &Op, dims: [usize; 2]) -> rlx_ir::Result<Graph> {
    let mut graph = Graph::new("rows");
    let mut x = graph.input("x", Shape::new(&dims, DType::F32));
    let parameters = match op {
        Op::LayerNorm { .. } => 2,
        Op::RmsNorm { .. } => 1,
        _ => 0,
    };
    let own: Vec<_> =
        (0..parameters).map(|i| graph.input(format!("p{i}"), Shape::new(&dims[1..], DType::F32))).collect();
    for _ in 0..LENGTH {
        let y = graph.try_add(op.clone(), &[&[x], &own[..]].concat())?;
        x = match op {
            Op::Reduce { .. } => graph.try_add(Op::Binary(rlx_ir::op::BinaryOp::Sub), &[x, y])?,
            _ => y,
        };
    }
    graph.set_outputs(vec![x]);
    Ok(graph)
}

fn compile(graph: &Graph, backend: &WgpuBackend) -> rlx_ir::Result<Box<dyn ExecutableGraph>> {
    let options = CompileOptions::default();
    let compiled = CompilePipeline::new(backend.target(&options)?, options.clone()).compile(graph)?;
    backend.compile(Arc::new(compiled.lir), &options)
}

/// The shortest and the median of some times.
fn summary(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    (times[0], times[times.len() / 2])
}

fn run() -> rlx_ir::Result<()> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "vulkan".to_owned());
    let device: Device =
        name.parse().map_err(|e| Error::new(ErrorKind::DeviceUnavailable, format!("{name:?}: {e}")))?;
    let with = WgpuBackend::new(device);
    let without = with.clone().with_limits(Lowered { no_subgroups: true, ..Lowered::default() });
    println!("{}", with.machine()?);
    println!("op\trows\tlength\texchanging min\tmedian\twithout min\tmedian");
    let sum = Op::Reduce { op: ReduceOp::Sum, axes: vec![1], keep_dim: true };
    let ops = [
        ("softmax", Op::Softmax { axis: -1 }),
        ("layer norm", Op::LayerNorm { axis: -1, eps: 1e-5 }),
        ("RMS norm", Op::RmsNorm { axis: -1, eps: 1e-5 }),
        ("sum", sum),
    ];
    for dims in [[16, 128], [128, 128], [128, 768], [1024, 256]] {
        for (name, op) in &ops {
            let graph = chain(op, dims)?;
            let values: Vec<Vec<u8>> = graph
                .inputs()
                .map(|node| {
                    let shape: Vec<usize> = node.shape.dims().iter().filter_map(|d| d.as_static()).collect();
                    Gen::new(1).value(DType::F32, &shape, -1.0..1.0).encode()
                })
                .collect();
            let mut both = [compile(&graph, &with)?, compile(&graph, &without)?];
            let mut times = [Vec::new(), Vec::new()];
            for i in 0..2 * RUNS + 6 {
                let started = Instant::now();
                both[i % 2].run(&&values[..], &[])?;
                both[i % 2].output(0)?;
                if i >= 6 {
                    times[i % 2].push(started.elapsed().as_secs_f64() * 1e6);
                }
            }
            if both[0].output(0)? != both[1].output(0)? {
                return Err(Error::new(
                    ErrorKind::Internal,
                    format!("{name} of {dims:?} has other bits with exchanges"),
                ));
            }
            let [own, other] = times.map(summary);
            println!(
                "{name}\t{}\t{}\t{:.0}\t{:.0}\t{:.0}\t{:.0}",
                dims[0], dims[1], own.0, own.1, other.0, other.1
            );
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
