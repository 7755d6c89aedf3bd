//! Faults that every device meets: an index out of range and more memory than the limit. Each is a typed error, and what it leaves
//! works.

use std::sync::Arc;

use rlx_ir::op::BinaryOp;
use rlx_ir::{DType, ErrorKind, Graph, Shape, Weight, text};

use super::compile;
use crate::Backend;

/// Three rows of a table `x` of four, by indices `i`.
///
/// # Panics
/// Never: the text is a graph.
pub fn gather() -> Graph {
    text::parse(
        r#"graph "lookup" {
          %0 = Input {name="x"} : [4, 2] f32
          %1 = Input {name="i"} : [3] i64
          %2 = Gather(%0, %1) {axis=0} : [3, 2] f32
          return %2
        }"#,
    )
    .expect("the test's graph")
}

/// Inputs of [`gather`]: a table that counts from 0, and the indices 1, 3 and `last`.
pub fn gather_inputs(last: i64) -> Vec<Vec<u8>> {
    let table: Vec<u8> = (0..8).flat_map(|v| (v as f32).to_le_bytes()).collect();
    vec![table, [1i64, 3, last].iter().flat_map(|v| v.to_le_bytes()).collect()]
}

/// The output of [`gather`] where the last index means the row `last`.
pub fn gathered(last: usize) -> Vec<u8> {
    let rows = [1, 3, last].into_iter().flat_map(|r| [2.0 * r as f32, 2.0 * r as f32 + 1.0]);
    rows.flat_map(f32::to_le_bytes).collect()
}

/// An index out of range is an error of kind `Value` that names the node and the index (or, beyond 32 bits, on which side it lies);
/// the next runs are right.
///
/// # Panics
/// When one is not.
pub fn reports_an_index_out_of_range(backend: &dyn Backend) {
    let mut exec = compile(&gather(), backend).expect("a gather compiles");
    for wrong in [4, -5, 9, i64::MAX, i64::MIN + 1] {
        let error = exec.run(&&gather_inputs(wrong)[..], &[]).expect_err("there is no such row");
        assert_eq!(error.kind(), ErrorKind::Value);
        let names = |index: &str| error.to_string().contains(&format!("index {index} is out of range"));
        let beyond = (wrong > i32::MAX.into() && names("2147483647 or more"))
            || (wrong < i32::MIN.into() && names("-2147483648 or less"));
        assert!((names(&wrong.to_string()) || beyond) && error.node().is_some(), "{error}");
        assert!(exec.output(0).is_err(), "outputs of a failed run");
        // Devices that record a run do so at the second one with the same dimensions.
        for _ in 0..2 {
            exec.run(&&gather_inputs(-4)[..], &[]).expect("four rows before the end is the first");
            assert_eq!(exec.output(0).expect("an output"), gathered(0));
        }
    }
}

/// On a device that may take 1 MiB, a weight of 2 MiB is out of memory, and smaller work goes on.
///
/// # Panics
/// When it is not.
pub fn keeps_to_a_mebibyte(backend: &dyn Backend) {
    let graph = |rows: usize| {
        let mut graph = Graph::new("sum");
        let shape = Shape::new(&[rows, 1024], DType::F32);
        let w = graph.param("w", shape.clone());
        let x = graph.input("x", Shape::new(&[1024], DType::F32));
        let y = graph.binary(BinaryOp::Add, w, x, shape);
        graph.set_outputs(vec![y]);
        graph
    };
    let weight = |rows: usize| {
        let zeros = Weight::owned(DType::F32, &[rows, 1024], vec![0u8; rows * 4096]);
        Arc::new(zeros.expect("as many bytes as elements"))
    };
    let mut large = compile(&graph(512), backend).expect("a sum compiles");
    let error = large.set_param(0, weight(512)).expect_err("more than the limit");
    assert_eq!((error.kind(), error.device().is_some()), (ErrorKind::OutOfMemory, true), "{error}");
    let mut small = compile(&graph(2), backend).expect("a sum compiles");
    small.set_param(0, weight(2)).expect("a weight below the limit");
    small.run(&&[vec![0u8; 4096]][..], &[]).expect("a run below the limit");
    assert_eq!(small.output(0).expect("an output"), vec![0u8; 8192]);
}
