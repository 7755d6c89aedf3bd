//! Handles: what an output feeds stays on the device. Bytes that go between host and device are counted.

use rlx_backend::{Backend, InputSource, RunOptions};
use rlx_ir::op::{BinaryOp, ReduceOp};
use rlx_ir::{DType, Graph, Shape, Weight};
use rlx_wgpu::Lowered;
use std::sync::Arc;

use crate::common::{DEVICES, MAIN, compile, device, devices};

/// Elements of the state.
pub const N: usize = 1 << 16;
/// What every run reads back: the small output, and whether it failed, each at a multiple of 64 bytes.
const SMALL: u64 = 128;

/// `out = [x + one, max(x)]`.
pub fn counter() -> Graph {
    let mut graph = Graph::new("counter");
    let shape = Shape::new(&[N], DType::F32);
    let x = graph.input("x", shape.clone());
    let one = graph.param("one", Shape::new(&[1], DType::F32));
    let next = graph.binary(BinaryOp::Add, x, one, shape);
    let greatest = graph.reduce(x, ReduceOp::Max, vec![0], false, Shape::new(&[], DType::F32));
    graph.set_outputs(vec![next, greatest]);
    graph
}

/// The handle supplies everything.
pub struct Kept;

impl InputSource for Kept {
    fn bytes(&self, _: usize) -> &[u8] {
        panic!("the handle supplies it")
    }

    fn handle(&self, _: usize) -> Option<usize> {
        Some(4 * N)
    }
}

fn first(bytes: &[u8]) -> f32 {
    f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[test]
fn outputs_that_nobody_wants_stay_on_the_device_until_they_are_read() {
    for of in DEVICES {
        let limits = Lowered { max_memory_bytes: Some(1 << 28), ..Lowered::default() };
        let Some(backend) = device(of).map(|backend| backend.with_limits(limits)) else { continue };
        let mut exec = compile(&counter(), &backend).unwrap();
        let one = Weight::owned(DType::F32, &[1], 1f32.to_le_bytes().to_vec()).unwrap();
        exec.set_param(0, Arc::new(one)).unwrap();
        let x = [2.5f32.to_le_bytes().repeat(N)];
        let second = RunOptions { wanted: Some(&[1]), ..RunOptions::default() };
        exec.execute(&&x[..], &[], second).unwrap();
        let before = backend.transfers().unwrap().to_host;
        exec.execute(&&x[..], &[], second).unwrap();
        assert_eq!(first(exec.output(1).unwrap()), 2.5);
        let small = backend.transfers().unwrap().to_host;
        assert!(small - before <= SMALL);
        // It is fetched once, when somebody asks.
        for _ in 0..2 {
            assert!(exec.output(0).unwrap() == 3.5f32.to_le_bytes().repeat(N));
        }
        assert_eq!(backend.transfers().unwrap().to_host - small, 4 * N as u64);
        // Of runs under way, only the newest one's are still there.
        let unwatched = RunOptions { wait: false, ..second };
        for _ in 0..2 {
            exec.execute(&&x[..], &[], unwatched).unwrap();
        }
        exec.collect().unwrap();
        assert!(exec.output(0).unwrap_err().to_string().contains("was not asked for"));
        exec.collect().unwrap();
        assert!(exec.output(0).unwrap() == 3.5f32.to_le_bytes().repeat(N));
    }
}

#[test]
fn a_fed_output_never_passes_through_the_host() {
    for of in DEVICES {
        // Limits of its own, so that no one else's bytes are counted.
        let limits = Lowered { max_memory_bytes: Some(1 << 29), ..Lowered::default() };
        let Some(backend) = device(of).map(|backend| backend.with_limits(limits)) else { continue };
        let mut exec = compile(&counter(), &backend).unwrap();
        let one = Weight::owned(DType::F32, &[1], 1f32.to_le_bytes().to_vec()).unwrap();
        exec.set_param(0, Arc::new(one)).unwrap();
        let handles = exec.handles_mut().expect("handles");
        assert!(handles.feed(0, Some(0)).is_err(), "there is no handle yet");
        handles.set(0, &vec![0; 4 * N]).unwrap();
        handles.feed(0, Some(0)).unwrap();
        exec.run(&Kept, &[]).unwrap();
        let before = backend.transfers().unwrap();
        for n in 1..=10u8 {
            exec.run(&Kept, &[]).unwrap();
            assert_eq!(first(exec.output(1).unwrap()), f32::from(n));
        }
        let after = backend.transfers().unwrap();
        assert_eq!(after.to_device, before.to_device, "{of}: nothing is uploaded");
        let read = after.to_host - before.to_host;
        assert!(read > 0 && read <= 10 * SMALL, "{of}: {read} bytes came back");
        // Asked for, it comes: once as the output, once as the handle's value.
        assert_eq!(exec.output(0).unwrap(), 11f32.to_le_bytes().repeat(N));
        exec.output(0).unwrap();
        assert_eq!(exec.handles().unwrap().read(0).unwrap(), 11f32.to_le_bytes().repeat(N));
        assert_eq!(backend.transfers().unwrap().to_host - after.to_host, 2 * 4 * N as u64);
        // Without a feed the output comes with the run.
        exec.handles_mut().unwrap().feed(0, None).unwrap();
        exec.run(&Kept, &[]).unwrap();
        assert_eq!(exec.output(0).unwrap(), 12f32.to_le_bytes().repeat(N));
        exec.run(&Kept, &[]).unwrap();
        assert_eq!(first(exec.output(1).unwrap()), 11.0);
    }
}

#[test]
fn a_handle_that_is_too_small_is_an_error() {
    let Some(backend) = device(MAIN) else { return };
    let mut exec = compile(&counter(), &backend).unwrap();
    let one = Weight::owned(DType::F32, &[1], vec![0; 4]).unwrap();
    exec.set_param(0, Arc::new(one)).unwrap();
    let missing = exec.run(&Kept, &[]).unwrap_err();
    assert!(missing.to_string().contains("input \"x\" has no handle"), "{missing}");
    exec.handles_mut().unwrap().set(0, &[0; 8]).unwrap();
    let small = exec.run(&Kept, &[]).unwrap_err();
    assert!(small.to_string().contains("8 bytes, the run needs 262144"), "{small}");
}

#[test]
fn a_large_handle_is_read_in_pieces() {
    for backend in devices() {
        let mut exec = compile(&counter(), &backend).unwrap();
        let value: Vec<u8> = (0..(64usize << 20) + 20).map(|i| ((i * 167) >> 8) as u8).collect();
        let handles = exec.handles_mut().expect("handles");
        handles.set(0, &value).unwrap();
        assert!(handles.read(0).unwrap() == value, "{}", backend.name());
    }
}
