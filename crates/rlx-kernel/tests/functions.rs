//! Every elementary function in kernels, written out for a device that has none, on the interpreter: within the bound it
//! claims against the oracle's reference, and to the bit what one lane of plain Rust computes.

mod common;

use common::{compiled, native, try_compiled, words};
use rlx_ir::ops::attr::NamedVariant;
use rlx_ir::testing::{function_arguments, function_graph, worst_ulps};
use rlx_ir::{DType, op::Activation};
use rlx_math::{Approximation, Form, Function, Scalar, Visitor};

/// The approximation of some numbers, one by one.
struct Each<'a>(&'a [f32]);

impl Visitor for Each<'_> {
    type Output = Vec<f32>;
    fn visit<A: Approximation>(self) -> Vec<f32> {
        self.0.iter().map(|&x| A::lanes(Scalar, x)).collect()
    }
}

#[test]
fn kernels_keep_within_their_bounds_and_are_the_approximation() {
    let x = function_arguments(8_000);
    let mut wrong = Vec::new();
    for &function in Function::ALL {
        let f = Activation::from_name(function.name()).unwrap();
        let (graph, bindings) = function_graph(f, DType::F32, &x);
        let y = compiled(&graph, &words()).run(&bindings).unwrap().remove(0);
        let y: Vec<f32> = y.to_f64().iter().map(|&y| y as f32).collect();
        let bound = function.bounds().separate;
        let (error, at) = worst_ulps(f, &x, &y, bound.floor, bound.within);
        if error > f64::from(bound.ulps) {
            wrong.push(format!("{f}: {error:.2} ULP at {at:e}, claimed are {}", bound.ulps));
        }
        for ((&x, &got), want) in x.iter().zip(&y).zip(function.visit(Each(&x))) {
            if got.to_bits() != want.to_bits() && !(got.is_nan() && want.is_nan()) {
                wrong.push(format!("{f}({x:e}): {got:e}, one lane gives {want:e}"));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_device_with_a_library_runs_every_function_in_every_type_it_can() {
    for &function in Function::ALL {
        let f = Activation::from_name(function.name()).unwrap();
        for dtype in [DType::F32, DType::F64, DType::F16] {
            let (graph, bindings) = function_graph(f, dtype, &[0.25, 0.5, 0.75]);
            let runs = dtype != DType::F64 || function.form() != Form::Own;
            let executable = try_compiled(&graph, &native());
            assert_eq!(executable.is_ok(), runs, "{f} of {dtype}");
            if let Ok(executable) = executable {
                assert_eq!(common::disagreement(&graph, &bindings, &executable), None, "{f} of {dtype}");
            }
        }
    }
}
