//! The trivial kernel that a backend's probe runs on its device.

use std::future::poll_fn;
use std::sync::Arc;

use rlx_ir::op::BinaryOp;
use rlx_ir::{DType, Graph, Result, Shape};
use rlx_opt::{CompileOptions, CompilePipeline};

use crate::{Backend, ExecutableGraph};

/// The sum of two numbers with themselves, compiled and started.
struct Doubling(Box<dyn ExecutableGraph>);

impl Doubling {
    fn start(backend: &dyn Backend) -> Result<Self> {
        let shape = Shape::new(&[2], DType::F32);
        let mut graph = Graph::new("probe");
        let x = graph.input("x", shape.clone());
        let sum = graph.binary(BinaryOp::Add, x, x, shape);
        graph.set_outputs(vec![sum]);
        let options = CompileOptions::default();
        let compiled = CompilePipeline::new(backend.target(&options)?, options.clone()).compile(&graph)?;
        let mut executable = backend.compile(Arc::new(compiled.lir), &options)?;
        executable.submit(&&[bytes([1.5, -3.0])][..], &[])?;
        Ok(Doubling(executable))
    }

    fn verdict(mut self) -> Result<bool> {
        self.0.collect()?;
        Ok(self.0.output(0)? == bytes([3.0, -6.0]))
    }
}

fn bytes(values: [f32; 2]) -> Vec<u8> {
    values.map(f32::to_le_bytes).concat()
}

/// Compiles and runs the sum of two numbers with themselves; whether the device gives it right.
///
/// # Errors
/// What compiling or running reports.
pub fn doubles(backend: &dyn Backend) -> Result<bool> {
    Doubling::start(backend)?.verdict()
}

/// As [`doubles`], awaited.
///
/// # Errors
/// As [`doubles`].
pub async fn doubles_awaited(backend: &dyn Backend) -> Result<bool> {
    let run = Doubling::start(backend)?;
    poll_fn(|context| run.0.poll_collect(context)).await;
    run.verdict()
}
