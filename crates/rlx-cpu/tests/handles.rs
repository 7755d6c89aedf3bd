//! Handles on the CPU: an output that feeds one is written into the memory that becomes the handle's.

use std::sync::Arc;

use rlx_backend::{Backend, ExecutableGraph, InputSource};
use rlx_cpu::CpuBackend;
use rlx_ir::op::BinaryOp;
use rlx_ir::{DType, Graph, Shape};
use rlx_opt::{CompileOptions, CompilePipeline};

/// The handle supplies everything.
struct Kept;

impl InputSource for Kept {
    fn bytes(&self, _: usize) -> &[u8] {
        &[]
    }

    fn handle(&self, _: usize) -> Option<usize> {
        Some(8)
    }
}

fn doubler() -> Box<dyn ExecutableGraph> {
    let mut graph = Graph::new("double");
    let shape = Shape::new(&[2], DType::F32);
    let x = graph.input("x", shape.clone());
    let y = graph.binary(BinaryOp::Add, x, x, shape);
    graph.set_outputs(vec![y]);
    let (backend, options) = (CpuBackend::default(), CompileOptions::default());
    let pipeline = CompilePipeline::new(backend.target(&options).unwrap(), options.clone());
    backend.compile(Arc::new(pipeline.compile(&graph).unwrap().lir), &options).unwrap()
}

fn bytes(values: [f32; 2]) -> Vec<u8> {
    values.map(f32::to_le_bytes).concat()
}

#[test]
fn two_buffers_change_places_and_nothing_is_copied() {
    let mut exec = doubler();
    assert!(exec.run(&Kept, &[]).unwrap_err().to_string().contains("\"x\" has no handle"));
    assert!(exec.handles_mut().unwrap().feed(0, Some(0)).is_err());
    exec.handles_mut().unwrap().set(0, &bytes([1.0, -3.0])).unwrap();
    exec.handles_mut().unwrap().feed(0, Some(0)).unwrap();
    let mut addresses = Vec::new();
    for n in 1..=6 {
        exec.run(&Kept, &[]).unwrap();
        let factor = f32::from(1u8 << n);
        assert_eq!(exec.output(0).unwrap(), bytes([factor, -3.0 * factor]));
        addresses.push(exec.output(0).unwrap().as_ptr());
    }
    assert!(addresses[0] != addresses[1] && addresses.windows(3).all(|a| a[0] == a[2]), "{addresses:?}");
    let arena = exec.arena().unwrap().as_ptr_range();
    assert!(addresses.iter().all(|a| !arena.contains(a)));
    exec.handles_mut().unwrap().feed(0, None).unwrap();
    exec.run(&Kept, &[]).unwrap();
    assert!(exec.arena().unwrap().as_ptr_range().contains(&exec.output(0).unwrap().as_ptr()));
    assert_eq!(exec.handles().unwrap().read(0).unwrap(), bytes([64.0, -192.0]));
}

#[test]
fn a_handle_that_is_too_small_is_an_error() {
    let mut exec = doubler();
    exec.handles_mut().unwrap().set(0, &[0; 4]).unwrap();
    assert!(exec.run(&Kept, &[]).unwrap_err().to_string().contains("4 bytes, the run needs 8"));
    assert!(exec.handles_mut().unwrap().set(1, &[]).is_err());
    assert!(exec.handles_mut().unwrap().feed(0, Some(3)).is_err());
}
