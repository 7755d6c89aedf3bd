//! What an executable promises, on Vulkan and OpenGL.

use std::sync::Arc;

use rlx_backend::Backend;
use rlx_driver::Device;
use rlx_ir::oracle::Bindings;
use rlx_ir::{DType, ErrorKind, Graph, Shape, Value, Weight, text};
use rlx_wgpu::Lowered;

use crate::common::{check, compile, device, devices, disagreement, main_device, set_params};

/// x·w + b, then relu: a matmul with an epilogue and a parameter that the init program prepares.
fn linear() -> Graph {
    text::parse(
        r#"graph "linear" {
          %0 = Input {name="x"} : [s2, 4] f32
          %1 = Param {name="w"} : [3, 4] f32
          %2 = Param {name="b"} : [3] f32
          %3 = Activation.Neg(%1) : [3, 4] f32
          %4 = Transpose(%3) {perm=[1, 0]} : [4, 3] f32
          %5 = MatMul(%0, %4) : [s2, 3] f32
          %6 = Binary.Add(%5, %2) : [s2, 3] f32
          %7 = Activation.Relu(%6) : [s2, 3] f32
          return %7
        }"#,
    )
    .expect("the test's graph")
}

fn floats(dims: &[usize], scale: f64) -> Value {
    let n: usize = dims.iter().product();
    Value::float(DType::F32, dims, (0..n).map(|i| ((i * 7 % 13) as f64 - 6.0) * scale).collect())
}

fn bindings(rows: usize) -> Bindings {
    let mut bindings = Bindings::default();
    bindings.set_input("x", floats(&[rows, 4], 0.25));
    bindings.set_param("w", floats(&[3, 4], 0.5));
    bindings.set_param("b", floats(&[3], 1.0));
    bindings
}

#[test]
fn new_dimensions_need_no_new_pipeline_and_answers_stay_right() {
    for backend in devices() {
        let graph = linear();
        let mut exec = compile(&graph, &backend).unwrap();
        set_params(&mut *exec, &bindings(1)).unwrap();
        for rows in [3, 1, 70, 2, 300] {
            assert_eq!(disagreement(&graph, &bindings(rows), &mut *exec), None, "{rows} rows");
        }
        let before = backend.kernel_count().unwrap();
        compile(&graph, &backend).unwrap();
        assert_eq!(backend.kernel_count().unwrap(), before);
    }
}

#[test]
fn clones_share_parameters_until_one_sets_its_own() {
    let Some(backend) = main_device() else { return };
    let graph = linear();
    let mut first = compile(&graph, &backend).unwrap();
    set_params(&mut *first, &bindings(1)).unwrap();
    assert_eq!(disagreement(&graph, &bindings(2), &mut *first), None);
    let held = first.memory().weight_bytes;
    let mut second = first.try_clone().unwrap();
    assert_eq!(second.memory().weight_bytes, held);
    let mut other = bindings(2);
    other.set_param("w", floats(&[3, 4], -1.5));
    set_params(&mut *second, &other).unwrap();
    assert_eq!(disagreement(&graph, &other, &mut *second), None);
    assert_eq!(disagreement(&graph, &bindings(2), &mut *first), None);
    assert_eq!(disagreement(&graph, &other, &mut *second), None);
}

#[test]
fn a_weight_is_uploaded_once_for_all_executables() {
    let Some(backend) = main_device() else { return };
    let weight = Arc::new(Weight::owned(DType::F32, &[64, 64], vec![0u8; 64 * 64 * 4]).unwrap());
    let make = |rows: usize| {
        let mut graph = Graph::new("shared");
        let x = graph.input("x", Shape::new(&[rows, 64], DType::F32));
        let w = graph.param("w", Shape::new(&[64, 64], DType::F32));
        let y = graph.matmul(x, w, Shape::new(&[rows, 64], DType::F32));
        graph.set_outputs(vec![y]);
        let mut exec = compile(&graph, &backend).unwrap();
        exec.set_param(0, Arc::clone(&weight)).unwrap();
        exec
    };
    let before = backend.memory_in_use().unwrap();
    let _first = make(1);
    let one = backend.memory_in_use().unwrap() - before;
    let _second = make(2);
    let both = backend.memory_in_use().unwrap() - before;
    assert!(both < 2 * 64 * 64 * 4 && one >= 64 * 64 * 4, "{one} bytes, then {both}");
}

#[test]
fn what_was_never_set_or_run_is_an_error() {
    let Some(backend) = main_device() else { return };
    let mut exec = compile(&linear(), &backend).unwrap();
    assert_eq!(exec.output(0).unwrap_err().kind(), ErrorKind::Binding);
    let unset = exec.run(&&[vec![0u8; 16]][..], &[1]).unwrap_err();
    assert!(unset.to_string().contains("\"w\" was never set"), "{unset}");
}

#[test]
fn the_arena_holds_the_outputs_for_the_host() {
    let Some(backend) = main_device() else { return };
    let mut exec = compile(&linear(), &backend).unwrap();
    set_params(&mut *exec, &bindings(5)).unwrap();
    crate::common::run(&mut *exec, &bindings(5)).unwrap();
    let (arena, output) = (exec.arena().unwrap(), exec.output(0).unwrap());
    let at = output.as_ptr().addr() - arena.as_ptr().addr();
    assert_eq!(&arena[at..at + output.len()], output);
    assert_eq!(output.as_ptr().addr() % 8, 0);
}

#[test]
fn the_best_adapter_serves_gpu() {
    let Some(backend) = device(Device::Gpu) else { return };
    check(&linear(), &bindings(4), &backend).unwrap();
    println!("gpu is {}", backend.machine().unwrap());
}

#[test]
fn other_devices_are_rejected_by_name() {
    let error = rlx_wgpu::WgpuBackend::new(Device::Cuda).probe().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceUnavailable);
    assert!(error.to_string().contains("CUDA"), "{error}");
}

/// A device is tried for each class of kernels before it is used for it; here for all of them at once.
#[test]
fn no_class_of_kernels_is_put_aside() {
    for backend in devices() {
        let limits = Lowered { max_memory_bytes: Some((1 << 30) + 7), ..Lowered::default() };
        let backend = backend.with_limits(limits);
        assert_eq!(backend.try_all().unwrap(), [], "{}", backend.machine().unwrap());
        // A processor divides no sums of few rows, and does attention in parts. Cooperative matrices multiply f16, and attention and parts are not of theirs.
        let expected = if backend.is_software().unwrap() { 6..=6 } else { 8..=12 };
        let trials = backend.trials().unwrap();
        assert!(expected.contains(&trials), "{}: {trials}", backend.name());
        backend.try_all().unwrap();
        assert_eq!(backend.trials().unwrap(), trials, "once");
    }
}
