//! The trivial kernel that a backend's probe runs on its device.

use std::sync::Arc;

use rlx_ir::op::BinaryOp;
use rlx_ir::{DType, Graph, Result, Shape};
use rlx_opt::{CompileOptions, CompilePipeline};

use crate::Backend;

/// Compiles and runs the sum of two numbers with themselves; whether the device gives it right.
///
/// # Errors
/// What compiling or running reports.
pub fn doubles(backend: &dyn Backend) -> Result<bool> {
    let shape = Shape::new(&[2], DType::F32);
    let mut graph = Graph::new("probe");
    let x = graph.input("x", shape.clone());
    let sum = graph.binary(BinaryOp::Add, x, x, shape);
    graph.set_outputs(vec![sum]);
    let options = CompileOptions::default();
    let compiled = CompilePipeline::new(backend.target(&options)?, options.clone()).compile(&graph)?;
    let mut executable = backend.compile(Arc::new(compiled.lir), &options)?;
    let bytes = |values: [f32; 2]| values.map(f32::to_le_bytes).concat();
    executable.run(&&[bytes([1.5, -3.0])][..], &[])?;
    Ok(executable.output(0)? == bytes([3.0, -6.0]))
}
