//! Packages with something wrong in them, which the evaluator must reject: what passes it has been checked.

use rlx_coreml::Package;
use rlx_ir::oracle::Bindings;
use rlx_ir::{DType, Graph, GraphExt, Shape, Value};

use crate::common::package;

/// `gelu(x·w)` of `[3, 4]` by `[4, 4]`.
fn sound() -> Package {
    let mut graph = Graph::new("mutated");
    let x = graph.input("x", Shape::new(&[3, 4], DType::F32));
    let w = graph.param("w", Shape::new(&[4, 4], DType::F32));
    let product = graph.mm(x, w);
    let y = graph.gelu(product);
    graph.set_outputs(vec![y]);
    let mut bindings = Bindings::default();
    bindings.set_param("w", Value::float(DType::F32, &[4, 4], (0..16).map(f64::from).collect()));
    package(&graph, &bindings).expect("a package")
}

/// What the evaluator says of a package.
fn verdict(model: &[u8], weights: &[u8]) -> Result<(), String> {
    rlx_mil_eval::Package::of(model, weights.to_vec())?.check()
}

/// Where `bytes` has `pattern`.
fn places(bytes: &[u8], pattern: &[u8]) -> Vec<usize> {
    (0..bytes.len().saturating_sub(pattern.len())).filter(|&i| bytes[i..].starts_with(pattern)).collect()
}

/// Every occurrence of a pattern, changed one at a time: no result may pass. How many there were.
fn all_rejected(what: &str, from: &[u8], to: &[u8]) -> usize {
    all_rejected_of(&sound(), what, from, to)
}

fn all_rejected_of(package: &Package, what: &str, from: &[u8], to: &[u8]) -> usize {
    let (model, weights) = (package.model_bytes(), package.weight_bytes().unwrap_or_default());
    let found = places(&model, from);
    assert!(!found.is_empty(), "{what}: nothing to change");
    for &at in &found {
        let mut changed = model.clone();
        changed[at..at + to.len()].copy_from_slice(to);
        let said = verdict(&changed, &weights).expect_err(what);
        println!("{what} at {at}: {said}");
    }
    found.len()
}

/// A loop with a choice and a loop inside.
fn nested() -> Package {
    let (graph, bindings) = crate::control::nested();
    package(&graph, &bindings).expect("a package")
}

#[test]
fn what_is_sound_passes() {
    for package in [sound(), nested()] {
        let weights = package.weight_bytes().unwrap_or_default();
        verdict(&package.model_bytes(), &weights).expect("a sound package");
    }
}

#[test]
fn what_is_wrong_in_a_block_is_rejected_whether_it_is_taken_or_not() {
    let package = nested();
    let all = |what: &str, from: &[u8], to: &[u8]| all_rejected_of(&package, what, from, to);
    assert_eq!(all("a loop that is not there", b"while_loop", b"while_loup"), 2);
    assert_eq!(all("another name for a loop's state", b"loop_vars", b"loop_vers"), 2);
    all("another name for a condition", b"pred", b"prad");
    all("another operation in a condition", b"logical_and", b"logical_und");
    // A tensor type: data type 11 (f32), rank 1, dimensions [2].
    let declared = [8, 11, 16, 1, 26, 4, 10, 2, 8, 2];
    let changed = |at: usize, value: u8| {
        let mut bytes = declared;
        bytes[at] = value;
        bytes
    };
    let count = all("another size", &declared, &changed(9, 3));
    assert!(count >= 12, "{count} declarations: states, what is in blocks, results");
    all("another element type", &declared, &changed(1, 10));
}

#[test]
fn other_operations_modes_operands_and_formats_are_rejected() {
    all_rejected("an operation that is not there", b"matmul", b"matmux");
    all_rejected("a mode that is not there", b"EXACT", b"EXAKT");
    all_rejected("an operand that is not there", b"transpose_y", b"transpose_z");
    all_rejected("another set of operations", b"CoreML7", b"CoreML9");
    all_rejected("another file of weights", b"weight.bin", b"weight.bon");
}

#[test]
fn declared_types_and_shapes_must_be_those_that_come_out() {
    // A tensor type: data type 11 (f32), rank 2, dimensions [3, 4].
    let declared = [8, 11, 16, 2, 26, 4, 10, 2, 8, 3, 26, 4, 10, 2, 8, 4];
    let changed = |at: usize, value: u8| {
        let mut bytes = declared;
        bytes[at] = value;
        bytes
    };
    let count = all_rejected("another number of columns", &declared, &changed(15, 5));
    assert!(count >= 4, "{count} declarations: the input, the product, gelu, the output");
    all_rejected("another number of rows", &declared, &changed(9, 2));
    all_rejected("another element type", &declared, &changed(1, 10));
    all_rejected("another rank", &declared, &changed(3, 3));
    // The weights'.
    let weights = [8, 11, 16, 2, 26, 4, 10, 2, 8, 4, 26, 4, 10, 2, 8, 4];
    let mut other = weights;
    other[9] = 5;
    all_rejected("other weights", &weights, &other);
}

#[test]
fn the_file_of_weights_must_have_what_is_named() {
    let package = sound();
    let (model, weights) = (package.model_bytes(), package.weight_bytes().expect("weights"));
    // The version of the format; then of the one blob at 64: its mark, type, size and place.
    for at in [4, 64, 68, 72, 80] {
        let mut changed = weights.clone();
        changed[at] ^= 0x13;
        let said = verdict(&model, &changed).expect_err("damaged metadata");
        println!("byte {at}: {said}");
    }
    for length in [0, 64, 100, weights.len() - 1] {
        verdict(&model, &weights[..length]).expect_err("a file that ends early");
    }
}

#[test]
fn no_byte_that_is_changed_makes_it_panic() {
    for package in [sound(), nested()] {
        let (model, weights) = (package.model_bytes(), package.weight_bytes().unwrap_or_default());
        let rejected = (0..model.len())
            .filter(|&at| {
                let mut changed = model.clone();
                changed[at] ^= 0x15;
                verdict(&changed, &weights).is_err()
            })
            .count();
        // What is left are names that people read, the values of constants, and names that are as good as others.
        println!("{rejected} of {} changed bytes are rejected", model.len());
        assert!(rejected * 3 > model.len());
    }
}
