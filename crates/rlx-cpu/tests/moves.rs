//! What is moved, at sizes at which kernels go through vectors and blocks: against the oracle, with the same bits on one, two and three threads.

mod common;

use common::{backends, compile, oracle, run};
use rlx_cpu::CpuBackend;
use rlx_ir::op::PadMode;
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Dim, DimBinding, Extent, Graph, Op, Shape, Value};
use rlx_opt::CompileOptions;

const DTYPES: [DType; 4] = [DType::U8, DType::F16, DType::F32, DType::I64];

/// `ops` applied to one input have the oracle's bits on every instruction set.
fn check(g: &mut Gen, dims: &[usize], dtype: DType, ops: &[Op]) {
    let (mut graph, mut bindings) = (Graph::new("moves"), Bindings::default());
    let mut at = graph.input("x", Shape::new(dims, dtype));
    bindings.set_input("x", g.value(dtype, dims, 0.0..250.0));
    for op in ops {
        at = graph.try_add(op.clone(), &[at]).unwrap();
    }
    graph.set_outputs(vec![at]);
    let bits: Vec<Vec<u8>> = oracle(&graph, &bindings).iter().map(Value::encode).collect();
    let mut all = backends();
    all.push(("3 threads".into(), CpuBackend::new().with_threads(3).expect("a pool")));
    for (name, backend) in all {
        let mut exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
        let got = run(&mut *exec, &bindings, &DimBinding::new()).unwrap();
        assert!(got == bits, "{name} {dtype} {dims:?}\n{graph}");
    }
}

#[test]
fn matrices_are_transposed_in_blocks() {
    let g = &mut Gen::new(91);
    for dtype in DTYPES {
        for dims in [[64, 64], [130, 70], [65, 300], [17, 129], [300, 33], [3, 200], [200, 2]] {
            check(g, &dims, dtype, &[Op::Transpose { perm: vec![1, 0] }]);
        }
        check(g, &[2, 70, 5, 40], dtype, &[Op::Transpose { perm: vec![0, 3, 1, 2] }]);
        check(g, &[2, 40, 9, 15], dtype, &[Op::Transpose { perm: vec![0, 2, 3, 1] }]);
    }
}

#[test]
fn pairs_are_dealt_out_and_collected() {
    let g = &mut Gen::new(92);
    for dtype in DTYPES {
        for width in [1, 5, 16, 33, 70] {
            check(g, &[3, 4, 2, width, 2], dtype, &[Op::Transpose { perm: vec![2, 4, 0, 1, 3] }]);
            check(g, &[2, 2, 3, 4, width], dtype, &[Op::Transpose { perm: vec![2, 3, 0, 4, 1] }]);
        }
    }
}

#[test]
fn rows_are_taken_by_steps_and_backwards() {
    let g = &mut Gen::new(93);
    for dtype in DTYPES {
        for width in [1usize, 7, 16, 17, 40, 65, 130, 200, 40_000] {
            for step in [-1i64, 2, 3, -2] {
                let count = width.div_ceil(step.unsigned_abs() as usize);
                let start = if step < 0 { width - 1 } else { 0 };
                let slice = Op::Slice {
                    starts: vec![Extent::Const(0), Extent::Const(start as i64)],
                    steps: vec![1, step],
                    to: vec![Dim::Static(3), Dim::Static(count)],
                };
                check(g, &[3, width], dtype, &[slice]);
            }
        }
    }
}

#[test]
fn borders_are_put_around_rows_of_any_length() {
    let g = &mut Gen::new(94);
    for dtype in DTYPES {
        for width in [2, 3, 9, 16, 31, 64, 257, 600] {
            for mode in [PadMode::Constant, PadMode::Edge, PadMode::Reflect, PadMode::Wrap] {
                let border = |n: [i64; 4]| n.map(Extent::Const).to_vec();
                let (before, after) = (border([0, 1, 1, 2]), border([1, 0, 2, 1]));
                check(g, &[2, 3, 4, width], dtype, &[Op::Pad { before, after, mode }]);
            }
        }
        let (before, after) = ([1, 1, 0].map(Extent::Const).to_vec(), [0, 1, 0].map(Extent::Const).to_vec());
        check(g, &[3, 5, 21], dtype, &[Op::Pad { before, after, mode: PadMode::Reflect }]);
    }
}

/// 35 MB each: more than most last-level caches hold, past which results are stored then.
#[test]
fn large_results_have_all_elements() {
    let g = &mut Gen::new(95);
    let transpose = Op::Transpose { perm: vec![1, 0] };
    check(g, &[2128, 4096], DType::F32, std::slice::from_ref(&transpose));
    check(g, &[5824, 6085], DType::U8, &[transpose]);
    let slice = Op::Slice {
        starts: vec![Extent::Const(3), Extent::Const(5)],
        steps: vec![1, 1],
        to: vec![Dim::Static(4200), Dim::Static(2100)],
    };
    check(g, &[4203, 2110], DType::F32, &[slice]);
}
