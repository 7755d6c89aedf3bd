//! Recurrent layers of 16-bit floats: against the oracle on every instruction set, with the same bits on one thread and on two.

mod common;

use common::{against_oracle, backends, compile, oracle, run, with_weights};
use rlx_cpu::CpuBackend;
use rlx_cpu::isa::{Isa, IsaKind};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{Case, plain_lstm};
use rlx_ir::{DType, DimBinding, Graph, Op, OpKind, Value};
use rlx_opt::{CompileOptions, PrecisionPolicy};

const SHORT: [DType; 2] = [DType::BF16, DType::F16];

/// The case with its floats rounded to `dtype`.
fn rounded(mut case: Case, dtype: DType) -> Case {
    for value in case.inputs.iter_mut().filter(|v| v.dtype.is_float()) {
        *value = Value::float(dtype, &value.dims, value.floats().unwrap().to_vec());
    }
    case
}

fn check(graph: &Graph, bindings: &Bindings) {
    let want = oracle(graph, bindings);
    let mut before = None;
    for (name, backend) in backends() {
        let mut exec = compile(graph, &backend, &CompileOptions::default()).unwrap();
        // Not what the layer decomposes to, whose every op rounds.
        assert!(exec.lir().to_string().contains("Recurrent"), "{}", exec.lir());
        let got = run(&mut *exec, bindings, &DimBinding::new()).unwrap();
        if let Some(difference) = against_oracle(&want, &got) {
            panic!("{name}: {difference}\n{graph}\n{}", exec.lir());
        }
        if name.contains("2 threads") {
            let one = compile(graph, &backend.with_threads(1).unwrap(), &CompileOptions::default());
            before = Some(run(&mut *one.unwrap(), bindings, &DimBinding::new()).unwrap());
            assert_eq!(before.as_ref(), Some(&got), "threads change bits\n{graph}");
        }
    }
    assert!(before.is_some());
}

#[test]
fn random_layers_agree_with_the_oracle() {
    for dtype in SHORT {
        for seed in 0..120 {
            let case = rounded(Case::random(OpKind::Recurrent, seed), dtype);
            // Weights that are packed once, and in each run.
            let (graph, bindings) = if seed % 2 == 0 { with_weights(&case) } else { case.graph() };
            check(&graph, &bindings);
        }
    }
}

/// An LSTM, and the dimensions of its operands.
fn lstm(steps: usize, batch: usize, hidden: usize) -> (Op, [Vec<usize>; 4]) {
    let state = vec![batch, hidden];
    (plain_lstm(), [vec![steps, batch, 4 * hidden], vec![hidden, 4 * hidden], state.clone(), state])
}

/// Mixed policies shorten layers of few sequences, which are bound by reading their weights, and in bf16 all where its products are the faster ones.
#[test]
fn mixed_policies_shorten_what_is_bound_by_its_weights() {
    for (policy, dtype) in [(PrecisionPolicy::AutoMixed, "f16"), (PrecisionPolicy::AutoMixedBf16, "bf16")] {
        for (batch, hidden, few) in [(1, 256, true), (4, 256, true), (5, 256, false), (1, 128, false)] {
            let (op, dims) = lstm(3, batch, hidden);
            let (graph, _) = Case::new(op, dims.iter().map(|d| common::values(1, d)).collect()).graph();
            for isa in Isa::available() {
                let backend = CpuBackend::new().with_isa(isa);
                let options = CompileOptions { policy: Some(policy.clone()), ..CompileOptions::default() };
                let exec = compile(&graph, &backend, &options).unwrap();
                let layer = exec.lir().graph.nodes().iter().find(|n| n.op.kind() == OpKind::Recurrent);
                let short = layer.unwrap().shape.dtype().name() == dtype;
                let fast = dtype == "bf16" && isa.multiplies_bf16();
                let wanted = fast || (few && isa.kind() != IsaKind::Portable);
                assert_eq!(short, wanted, "{dtype}, {batch} sequences, {hidden} on {isa}\n{}", exec.lir());
            }
        }
    }
}

/// Weights that are read forwards and backwards in turns, by several sequences and by one.
#[test]
fn large_layers_agree_with_the_oracle() {
    for dtype in SHORT {
        for batch in [1, 6] {
            let (op, dims) = lstm(3, batch, 200);
            let values = dims.iter().zip(1..).map(|(dims, seed)| {
                let mut value = common::values(seed, dims);
                if seed == 2 {
                    let small = value.floats().unwrap().iter().map(|x| x * 0.1).collect();
                    value = Value::float(value.dtype, dims, small);
                }
                value
            });
            let (graph, bindings) = with_weights(&rounded(Case::new(op, values.collect()), dtype));
            check(&graph, &bindings);
        }
    }
}
