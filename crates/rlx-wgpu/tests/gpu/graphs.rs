//! Every op's own random cases and random graphs on the main device, against the oracle. Kernels that were compiled once
//! serve all later cases of their kind, so the first case of an op is the slow one. What the device does not compute,
//! its dispatch report says; no list here does.

use rlx_backend::Backend;
use rlx_backend::testing::{OpCases, TypedCases, random_graphs};
use rlx_ir::ErrorKind;

use crate::common::{all, compile, devices, main_device};

/// How many ops have cases that run. More kernels make it larger; nothing may make it smaller.
const COVERED: usize = 45;

/// How many pairs of op and element type have a case that runs, likewise.
const TYPED: usize = 450;

#[test]
fn every_op_agrees_with_the_oracle() {
    let Some(backend) = main_device() else { return };
    let cases = OpCases::on(&backend, if all() { 40 } else { 2 });
    println!("{}: {}", backend.name(), cases.assert(COVERED));
}

/// Each pair of op and element type has kernels of its own, which are compiled once: so this takes as long as compiling them.
#[test]
fn every_op_agrees_in_every_element_type() {
    for backend in devices() {
        println!("{}: {}", backend.name(), TypedCases::on(&backend).assert([TYPED]));
    }
}

#[test]
fn random_graphs_agree_with_the_oracle() {
    let Some(backend) = main_device() else { return };
    let count = if all() { 1000 } else { 30 };
    let rejected = random_graphs(&backend, count, 1);
    // Those that compute in f64, which WGSL has not.
    assert!(rejected < count, "{rejected} rejected for {count} that ran");
}

#[test]
fn what_cannot_be_computed_is_rejected_with_the_reason() {
    let Some(backend) = main_device() else { return };
    let graph = rlx_ir::text::parse(
        r#"graph "wide" {
          %0 = Input {name="x"} : [4] f64
          %1 = Binary.Add(%0, %0) : [4] f64
          return %1
        }"#,
    )
    .unwrap();
    let error = compile(&graph, &backend).err().expect("WGSL has no f64");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("f64"), "{error}");
}
