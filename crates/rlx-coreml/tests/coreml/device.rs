//! The device itself, its packages run by the evaluator: whole runs, weights that change, and faults, each a typed error that leaves a device which works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rlx_backend::Backend;
use rlx_backend::testing::faults::{gather, gather_inputs, gathered};
use rlx_backend::testing::{self, compile};
use rlx_coreml::{CoreMlBackend, Feature, LoadedPackage, Package, PackageRuntime};
use rlx_ir::{DType, Error, ErrorKind, Graph, GraphExt, Result, Shape, Weight, text};

use crate::common::{Evaluator, on_evaluator};

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// `x · w` of one row.
fn product() -> Graph {
    let mut graph = Graph::new("product");
    let x = graph.input("x", Shape::new(&[1, 2], DType::F32));
    let w = graph.param("w", Shape::new(&[2, 2], DType::F32));
    let y = graph.mm(x, w);
    graph.set_outputs(vec![y]);
    graph
}

fn weight(values: &[f32]) -> Result<Arc<Weight>> {
    Weight::owned(DType::F32, &[2, 2], bytes(values)).map(Arc::new)
}

#[test]
fn it_is_there_where_something_runs_its_packages() {
    on_evaluator().probe().unwrap();
    assert!(on_evaluator().machine().unwrap().contains("evaluator"));
    #[cfg(not(any(target_os = "macos", target_os = "ios")))]
    {
        let error = CoreMlBackend::new().probe().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceUnavailable);
        assert!(error.hint().is_some_and(|hint| hint.contains(".mlpackage")), "{error}");
    }
}

#[test]
fn a_weight_that_is_set_again_is_the_one_of_the_next_run() {
    let mut exec = compile(&product(), &on_evaluator()).unwrap();
    for (values, want) in [([1.0, 0.0, 0.0, 1.0], [3.0, 5.0]), ([0.0, 2.0, 1.0, 0.0], [5.0, 6.0])] {
        exec.set_param(0, weight(&values).unwrap()).unwrap();
        for _ in 0..2 {
            exec.run(&&[bytes(&[3.0, 5.0])][..], &[]).unwrap();
            assert_eq!(exec.output(0).unwrap(), bytes(&want));
        }
    }
}

#[test]
fn random_graphs_agree_with_the_oracle() {
    let rejected = testing::random_graphs(&on_evaluator(), 60, 2);
    assert!(rejected <= 9, "{rejected} are not taken");
}

/// Core ML says of a run only that it failed; what failed is found by the exact semantics.
#[test]
fn an_index_out_of_range_names_the_node_and_the_next_run_is_right() {
    let mut exec = compile(&gather(), &on_evaluator()).unwrap();
    for wrong in [4, -5, 9] {
        let error = exec.run(&&gather_inputs(wrong)[..], &[]).unwrap_err();
        let names = error.to_string().contains(&format!("index {wrong} is outside"));
        assert!(error.kind() == ErrorKind::Value && names && error.node().is_some(), "{error}");
        assert!(exec.output(0).is_err(), "outputs of a failed run");
        exec.run(&&gather_inputs(-4)[..], &[]).unwrap();
        assert_eq!(exec.output(0).unwrap(), gathered(0));
    }
    // It has no integers of 64 bits.
    let error = exec.run(&&gather_inputs(1 << 40)[..], &[]).unwrap_err();
    assert!(error.kind() == ErrorKind::Value && error.to_string().contains("\"i\""), "{error}");
}

#[test]
fn what_is_made_of_nothing_is_right() {
    let graph = text::parse(
        r#"graph "cache" {
          %0 = Input {name="past"} : [1, past, 2] f32
          %1 = Input {name="new"} : [1, 2, 2] f32
          %2 = Concat(%0, %1) {axis=1} : [1, past+2, 2] f32
          %3 = Reduce(%0) {op=Sum, axes=[1], keep_dim=false} : [1, 2] f32
          %4 = Reduce(%2) {op=Sum, axes=[1], keep_dim=false} : [1, 2] f32
          return %0, %2, %3, %4
        }"#,
    )
    .unwrap();
    let mut exec = compile(&graph, &on_evaluator()).unwrap();
    let new = bytes(&[1.0, 2.0, 3.0, 4.0]);
    for past in [vec![], vec![5.0, 6.0], vec![]] {
        let sum = |i: usize| past.iter().skip(i).step_by(2).fold(0.0, |sum: f32, v| sum + v);
        exec.run(&&[bytes(&past), new.clone()][..], &[past.len() as i64 / 2]).unwrap();
        let all = [bytes(&past), new.clone()].concat();
        let sums = [[sum(0), sum(1)], [sum(0) + 4.0, sum(1) + 6.0]].map(|sums| bytes(&sums));
        let outputs: Vec<_> = (0..4).map(|i| exec.output(i).unwrap()).collect();
        assert_eq!(outputs, [&bytes(&past), &all, &sums[0], &sums[1]].map(Clone::clone));
    }
}

#[test]
fn wrong_sizes_and_damaged_modules_are_rejected() {
    testing::rejects_inputs_of_another_size(&on_evaluator());
    testing::rejects_parameters_of_another_size(&on_evaluator());
    let found = testing::damaged_modules(&on_evaluator(), 0..8, 6);
    assert!(found.ran > 0 && !found.rejected.is_empty(), "{} ran", found.ran);
}

/// Fails once, when a package is loaded or run.
#[derive(Debug)]
struct Faulty {
    load: AtomicBool,
    run: Arc<AtomicBool>,
}

struct FaultyPackage(Box<dyn LoadedPackage>, Arc<AtomicBool>);

fn on_purpose(once: &AtomicBool) -> Result<()> {
    let fails = once.swap(false, Ordering::SeqCst);
    if fails { Err(Error::new(ErrorKind::Device, "a fault on purpose")) } else { Ok(()) }
}

impl PackageRuntime for Faulty {
    fn machine(&self) -> String {
        Evaluator.machine()
    }

    fn load(&self, package: &Package) -> Result<Box<dyn LoadedPackage>> {
        on_purpose(&self.load)?;
        Ok(Box::new(FaultyPackage(Evaluator.load(package)?, Arc::clone(&self.run))))
    }
}

impl LoadedPackage for FaultyPackage {
    fn predict(&self, inputs: &[Feature], given: &[Vec<u8>], outputs: &[Feature]) -> Result<Vec<Vec<u8>>> {
        on_purpose(&self.1)?;
        self.0.predict(inputs, given, outputs)
    }
}

#[test]
fn a_run_that_fails_leaves_a_device_that_works() {
    for (load, run) in [(true, false), (false, true)] {
        let faulty = Faulty { load: AtomicBool::new(load), run: Arc::new(AtomicBool::new(run)) };
        let backend = CoreMlBackend::new().with_runtime(Arc::new(faulty));
        let mut exec = compile(&product(), &backend).unwrap();
        exec.set_param(0, weight(&[1.0, 0.0, 0.0, 1.0]).unwrap()).unwrap();
        let error = exec.run(&&[bytes(&[3.0, 5.0])][..], &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device, "{error}");
        assert!(error.to_string().contains("on purpose") && exec.output(0).is_err(), "{error}");
        exec.run(&&[bytes(&[3.0, 5.0])][..], &[]).unwrap();
        assert_eq!(exec.output(0).unwrap(), bytes(&[3.0, 5.0]));
    }
}
