//! Every elementary function, compiled for each instruction set, against the oracle's reference, within the bound it claims.

mod common;

use common::{against_oracle_within, backends, compile, oracle, run};
use rlx_ir::ops::attr::NamedVariant;
use rlx_ir::testing::{function_arguments, function_graph, worst_ulps};
use rlx_ir::{DType, DimBinding, op::Activation};
use rlx_math::{Bound, Function, OnCpu};
use rlx_opt::CompileOptions;

/// What is claimed of a function where multiply-adds are fused or not. There is scalar code for arguments beyond reach.
fn bound(f: Function, fused: bool) -> Bound {
    let bounds = f.bounds();
    let claimed = if fused { bounds.fused } else { bounds.separate };
    match f.on_cpu() {
        OnCpu::Vector => Bound { within: f32::INFINITY, ..claimed },
        OnCpu::Double => Bound { ulps: 0.51, floor: 0.0, within: f32::INFINITY },
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
}

#[test]
fn vectors_keep_within_their_bounds() {
    let x = function_arguments(100_000);
    let mut wrong = Vec::new();
    for &function in Function::ALL {
        let f = Activation::from_name(function.name()).unwrap();
        let (graph, bindings) = function_graph(f, DType::F32, &x);
        for (name, backend) in backends() {
            let mut exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
            let y = floats(&run(&mut *exec, &bindings, &DimBinding::new()).unwrap()[0]);
            let bound = bound(function, !name.contains("portable"));
            let (error, at) = worst_ulps(f, &x, &y, bound.floor, bound.within);
            println!("{f:10} {error:6.2} of {:6.2} at {at:e} on {name}", bound.ulps);
            if error > f64::from(bound.ulps) {
                wrong.push(format!("{f} on {name}: {error:.2} ULP at {at:e}, claimed are {}", bound.ulps));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn functions_of_f64_are_the_oracles() {
    let x: Vec<f32> = function_arguments(4_000).into_iter().filter(|x| x.abs() < 1e6).collect();
    for &function in Function::ALL {
        let f = Activation::from_name(function.name()).unwrap();
        let (graph, bindings) = function_graph(f, DType::F64, &x);
        let want = oracle(&graph, &bindings);
        let (_, backend) = backends().remove(0);
        let mut exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
        let got = run(&mut *exec, &bindings, &DimBinding::new()).unwrap();
        assert_eq!(against_oracle_within(&want, &got, |t| t), None, "{f}");
    }
}

/// Every activation of floats runs: by an elementary function of the same name, or by an instruction or two.
#[test]
fn every_function_of_the_language_runs() {
    let (_, backend) = backends().remove(0);
    for &f in Activation::ALL {
        let (graph, _) = function_graph(f, DType::F32, &[1.0]);
        let of_floats = rlx_ir::verify(&graph).is_empty();
        assert_eq!(compile(&graph, &backend, &CompileOptions::default()).is_ok(), of_floats, "{f}");
    }
}
