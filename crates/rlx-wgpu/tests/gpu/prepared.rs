//! What init programs made: kept, restored, shared.

use std::sync::Arc;

use rlx_backend::ExecutableGraph;
use rlx_driver::Device;
use rlx_ir::lir::BufferId;
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::random_bindings;
use rlx_ir::{DimBinding, ErrorKind, Graph, Progress, Weight, text};
use rlx_wgpu::{Lowered, WgpuBackend};

use crate::common::{MAIN, compile, device, run};

/// A convolution whose batch norm is folded into its weights by the init program, and a function of a weight alone: the
/// answer is linear in what is prepared.
fn folded() -> (Graph, Bindings) {
    let graph = text::parse(
        r#"graph "folded" {
  %0 = Input {name="x"} : [1, 8, 6, 6] f32
  %1 = Param {name="w"} : [64, 8, 3, 3] f32
  %2 = Param {name="pos_gamma"} : [64] f32
  %3 = Param {name="beta"} : [64] f32
  %4 = Param {name="mean"} : [64] f32
  %5 = Param {name="pos_var"} : [64] f32
  %6 = Conv(%0, %1) {strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], groups=1, format=ChannelsFirst} : [1, 64, 6, 6] f32
  %7 = BatchNorm(%6, %2, %3, %4, %5) {eps=0.00001} : [1, 64, 6, 6] f32
  %8 = Param {name="shift"} : [64, 1, 1] f32
  %9 = Activation.Exp(%8) : [64, 1, 1] f32
  %10 = Binary.Add(%7, %9) : [1, 64, 6, 6] f32
  return %10
}
"#,
    )
    .unwrap();
    let bindings = random_bindings(&graph, &DimBinding::new(), 5);
    (graph, bindings)
}

/// The parameters' values, in the module's order.
fn weights(exec: &dyn ExecutableGraph, bindings: &Bindings) -> Vec<Arc<Weight>> {
    let value = |name: &str| bindings.param(name).unwrap();
    let slots = exec.lir().params.iter().map(|slot| value(&slot.name));
    slots.map(|v| Arc::new(Weight::owned(v.dtype, &v.dims, v.encode()).unwrap())).collect()
}

fn set(exec: &mut dyn ExecutableGraph, weights: &[Arc<Weight>], wanted: impl Fn(usize) -> bool) {
    for (i, weight) in weights.iter().enumerate().filter(|&(i, _)| wanted(i)) {
        exec.set_param(i, Arc::clone(weight)).unwrap();
    }
}

type Prepared = Vec<(BufferId, Vec<u8>)>;

fn prepare(exec: &mut dyn ExecutableGraph) -> (Vec<bool>, Prepared) {
    let weights = exec.prepared_weights().unwrap();
    let spent = weights.spent_params();
    let prepared = weights.prepare(&Progress::none()).unwrap();
    (spent, prepared.into_iter().map(|(id, bytes)| (id, bytes.into_owned())).collect())
}

fn restore(exec: &mut dyn ExecutableGraph, prepared: &Prepared) -> rlx_ir::Result<()> {
    let given: Vec<(BufferId, &[u8])> = prepared.iter().map(|(id, bytes)| (*id, &bytes[..])).collect();
    exec.prepared_weights().unwrap().restore(&given)
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn doubled(bytes: &[u8]) -> Vec<u8> {
    floats(bytes).into_iter().flat_map(|v| (2.0 * v).to_le_bytes()).collect()
}

fn restored_weights_stand_in_for_the_init_program(backend: &WgpuBackend) {
    let (graph, bindings) = folded();
    let mut first = compile(&graph, backend).unwrap();
    let all = weights(&*first, &bindings);
    set(&mut *first, &all, |_| true);
    let want = run(&mut *first, &bindings).unwrap();
    let (spent, prepared) = prepare(&mut *first);
    assert!(!prepared.is_empty() && spent.contains(&true), "{spent:?}");
    assert_eq!(run(&mut *first, &bindings).unwrap(), want, "preparing changed the executable");

    let mut second = compile(&graph, backend).unwrap();
    set(&mut *second, &all, |i| !spent[i]);
    restore(&mut *second, &prepared).unwrap();
    assert_eq!(run(&mut *second, &bindings).unwrap(), want);
    // Twice what the init program makes: if it ran, the answer would not double.
    let mut third = compile(&graph, backend).unwrap();
    set(&mut *third, &all, |i| !spent[i]);
    let twice: Prepared = prepared.iter().map(|(id, bytes)| (*id, doubled(bytes))).collect();
    restore(&mut *third, &twice).unwrap();
    assert_eq!(run(&mut *third, &bindings).unwrap(), [doubled(&want[0])]);
    let (_, again) = prepare(&mut *third);
    assert_eq!(again, twice, "the init program ran");

    // A parameter that is set afterwards makes the buffers that depend on it again, with the others' values as
    // they were given. Those that are gone must be given again.
    for exec in [&mut second, &mut third] {
        let other = all.iter().enumerate().map(|(i, w)| match i {
            0 => Arc::new(Weight::owned(w.dtype(), w.dims(), doubled(&w.bytes().unwrap())).unwrap()),
            _ => Arc::clone(w),
        });
        let other: Vec<Arc<Weight>> = other.collect();
        set(&mut **exec, &other, |_| true);
        set(&mut *first, &other, |_| true);
        assert_eq!(run(&mut **exec, &bindings).unwrap(), run(&mut *first, &bindings).unwrap());
    }
}

#[test]
fn restored_weights_stand_in_for_the_init_program_on_the_main_device() {
    device(MAIN).iter().for_each(restored_weights_stand_in_for_the_init_program);
}

#[test]
fn restored_weights_stand_in_for_the_init_program_on_opengl() {
    device(Device::OpenGl).iter().for_each(restored_weights_stand_in_for_the_init_program);
}

#[test]
fn buffers_that_are_missing_or_of_another_size_are_rejected() {
    let Some(backend) = device(MAIN) else { return };
    let (graph, bindings) = folded();
    let mut first = compile(&graph, &backend).unwrap();
    let all = weights(&*first, &bindings);
    set(&mut *first, &all, |_| true);
    let (spent, prepared) = prepare(&mut *first);
    let mut exec = compile(&graph, &backend).unwrap();
    let mut rejected = |change: &dyn Fn(&mut Prepared)| {
        let mut changed = prepared.clone();
        change(&mut changed);
        let e = restore(&mut *exec, &changed).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Malformed, "{e}");
    };
    rejected(&|p| drop(p.pop()));
    rejected(&|p| p[0].1.truncate(3));
    rejected(&|p| p[0].1.extend([0; 4]));
    rejected(&|p| p[0].0 = BufferId(u32::MAX));
    rejected(&|p| p.push((BufferId(0), vec![0; 4])));
    // One that is read in place must be set.
    if let Some(kept) = spent.iter().position(|spent| !spent) {
        set(&mut *exec, &all, |i| !spent[i] && i != kept);
        assert_eq!(restore(&mut *exec, &prepared).unwrap_err().kind(), ErrorKind::Binding);
    }
    set(&mut *exec, &all, |_| true);
    assert_eq!(run(&mut *exec, &bindings).unwrap(), run(&mut *first, &bindings).unwrap());
}

#[test]
fn executables_share_what_was_prepared_of_the_same_weights() {
    if device(MAIN).is_none() {
        return;
    }
    // A device of its own, so that other tests do not count.
    let lowered = Lowered { max_memory_bytes: Some(1 << 29), ..Lowered::default() };
    let backend = WgpuBackend::new(MAIN).with_limits(lowered);
    let (graph, bindings) = folded();
    let mut first = compile(&graph, &backend).unwrap();
    let all = weights(&*first, &bindings);
    set(&mut *first, &all, |_| true);
    let want = run(&mut *first, &bindings).unwrap();
    let prepared: u64 = prepare(&mut *first).1.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    let grows = |weights: &[Arc<Weight>]| {
        let before = backend.memory_in_use().unwrap();
        let mut exec = compile(&graph, &backend).unwrap();
        set(&mut *exec, weights, |_| true);
        assert_eq!(run(&mut *exec, &bindings).unwrap(), want);
        backend.memory_in_use().unwrap() - before
    };
    let (same, copies) = (grows(&all), grows(&weights(&*first, &bindings)));
    assert!(same + prepared <= copies, "{same} bytes with the same weights, {copies} with copies");
}
