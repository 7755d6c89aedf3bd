//! Matmuls by a BLAS (features `blas-…`): right, the same on any number of threads, and an error where it is absent.
#![cfg(feature = "blas")]

mod common;

use common::{against_oracle, compile, oracle, run};
use rlx_backend::Backend;
use rlx_cpu::CpuBackend;
use rlx_cpu::blas::{Blas, Provider};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, DimBinding, Graph, GraphExt, Shape};
use rlx_opt::CompileOptions;

/// `relu(x · w + b)` and `x · yᵀ` over batches: a parameter, a run-time operand, a transposed one.
fn products(m: usize, k: usize, n: usize) -> (Graph, Bindings) {
    let (mut g, mut gen_, mut bindings) = (Graph::new("products"), Gen::new(7), Bindings::default());
    let shape = |dims: &[usize]| Shape::new(dims, DType::F32);
    let x = g.input("x", shape(&[2, m, k]));
    let y = g.input("y", shape(&[2, n, k]));
    let w = g.param("w", shape(&[k, n]));
    let b = g.param("b", shape(&[n]));
    let dense = g.mm(x, w);
    let dense = g.add(dense, b);
    let dense = g.relu(dense);
    let turned = g.transpose_(y, &[0, 2, 1]);
    let scores = g.mm(x, turned);
    g.set_outputs(vec![dense, scores]);
    for (name, dims) in [("x", vec![2, m, k]), ("y", vec![2, n, k])] {
        bindings.set_input(name, gen_.value(DType::F32, &dims, -1.0..1.0));
    }
    for (name, dims) in [("w", vec![k, n]), ("b", vec![n])] {
        bindings.set_param(name, gen_.value(DType::F32, &dims, -1.0..1.0));
    }
    (g, bindings)
}

#[test]
fn products_are_right_and_do_not_depend_on_the_number_of_threads() {
    Blas::chosen().expect("the library of this build's feature is installed");
    for (m, k, n) in [(1, 1, 1), (3, 5, 7), (130, 64, 48), (129, 40, 1030)] {
        let (graph, bindings) = products(m, k, n);
        let want = oracle(&graph, &bindings);
        let on = |threads| {
            let backend = CpuBackend::new().with_threads(threads).expect("a pool");
            let mut exec = compile(&graph, &backend, &CompileOptions::default()).expect("it compiles");
            run(&mut *exec, &bindings, &DimBinding::new()).expect("it runs")
        };
        let (one, two) = (on(1), on(2));
        assert_eq!(against_oracle(&want, &one), None, "{m}x{k}x{n}");
        assert_eq!(one, two, "{m}x{k}x{n}");
    }
}

#[test]
fn a_library_that_is_absent_is_an_error_that_names_it() {
    let absent = Provider::Accelerate;
    if cfg!(target_os = "macos") {
        return;
    }
    let error = Blas::load(absent).expect_err("Accelerate is Apple's").to_string();
    assert!(error.contains("Accelerate") && error.contains("macOS"), "{error}");
    assert!(CpuBackend::new().probe().is_ok());
}
