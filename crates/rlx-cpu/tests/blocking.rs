//! Sizes around those at which kernels divide their work: squares of a transposition, lines side by side, pieces of a line,
//! chunks of an order. Every instruction set, one to three threads, elements of one, two, four and eight bytes, views with gaps
//! and backward strides; as the oracle has it, and with the same bits on two and three threads.

mod common;

use common::{against_oracle, backends, compile, oracle, run};
use rlx_cpu::CpuBackend;
use rlx_cpu::isa::Isa;
use rlx_ir::op::{ArgOp, BinaryOp, DataFormat, PoolKind, ReduceOp};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{Case, Gen};
use rlx_ir::{DType, Dim, DimBinding, Extent, Graph, NodeId, Op, Value};
use rlx_opt::CompileOptions;

/// One element type of each size.
const SIZES: [DType; 4] = [DType::U8, DType::BF16, DType::F32, DType::I64];

/// Runs a graph everywhere.
fn check_graph(name: &str, graph: &Graph, bindings: &Bindings) {
    let want = oracle(graph, bindings);
    let mut last: Option<Vec<Vec<u8>>> = None;
    for (on, backend) in backends() {
        let mut exec = compile(graph, &backend, &CompileOptions::default()).unwrap();
        let got = run(&mut *exec, bindings, &DimBinding::new()).unwrap();
        if let Some(difference) = against_oracle(&want, &got) {
            panic!("{name} on {on}: {difference}\n{graph}");
        }
        // The best instruction set ran on one thread just before it runs on two.
        if on.contains("2 threads") {
            assert_eq!(last.as_ref(), Some(&got), "{name}: threads change bits\n{graph}");
        }
        last = Some(got);
    }
    // Shares that are no powers of two.
    let three = CpuBackend::new().with_isa(Isa::detect()).with_threads(3).expect("a pool of three threads");
    let mut exec = compile(graph, &three, &CompileOptions::default()).unwrap();
    let got = run(&mut *exec, bindings, &DimBinding::new()).unwrap();
    assert_eq!(last.as_ref(), Some(&got), "{name}: three threads change bits\n{graph}");
}

/// A graph of one input; `build` makes the results of it.
fn check(name: &str, value: Value, build: impl Fn(&mut Graph, NodeId) -> Vec<NodeId>) {
    let (mut graph, mut bindings) = (Graph::new("blocking"), Bindings::default());
    let x = graph.input("x", value.shape());
    bindings.set_input("x", value);
    let outputs = build(&mut graph, x);
    graph.set_outputs(outputs);
    check_graph(name, &graph, &bindings);
}

/// One op on these values.
fn one(name: &str, op: Op, values: &[Value]) {
    let (graph, bindings) = Case::new(op, values.to_vec()).graph();
    check_graph(name, &graph, &bindings);
}

fn value(g: &mut Gen, dtype: DType, dims: &[usize]) -> Value {
    g.value(dtype, dims, 0.0..100.0)
}

fn slice(starts: &[i64], steps: &[i64], to: &[usize]) -> Op {
    Op::Slice {
        starts: starts.iter().map(|&s| Extent::Const(s)).collect(),
        steps: steps.to_vec(),
        to: to.iter().map(|&d| Dim::Static(d)).collect(),
    }
}

#[test]
fn transposes_around_squares_and_bands() {
    let g = &mut Gen::new(1);
    for dtype in SIZES {
        for [rows, columns] in [[1, 40], [15, 17], [16, 16], [17, 3], [3, 200], [64, 65], [130, 31], [0, 5]] {
            let x = value(g, dtype, &[rows, columns]);
            one("transpose", Op::Transpose { perm: vec![1, 0] }, &[x]);
        }
        for perm in [vec![0, 2, 1, 3], vec![0, 2, 3, 1], vec![3, 0, 2, 1], vec![2, 1, 0, 3]] {
            let x = value(g, dtype, &[2, 19, 5, 18]);
            one("transpose", Op::Transpose { perm }, &[x]);
        }
    }
}

#[test]
fn transposes_of_few_rows_that_threads_share() {
    let g = &mut Gen::new(12);
    for dtype in SIZES {
        for (dims, perm) in [
            (vec![4001, 3], vec![1, 0]),
            (vec![3, 4001], vec![1, 0]),
            (vec![1500, 64], vec![1, 0]),
            (vec![999, 70], vec![1, 0]),
            (vec![70, 999], vec![1, 0]),
            (vec![3, 1100, 40], vec![0, 2, 1]),
            (vec![40, 2, 650, 2], vec![0, 3, 2, 1]),
        ] {
            one("a transpose of few rows", Op::Transpose { perm }, &[value(g, dtype, &dims)]);
        }
        // Every second column of a result has what a phase of a transposed convolution writes.
        let x = value(g, dtype, &[2, 3000, 20]);
        check("a transposed slice of few rows", x, |g, x| {
            let part = g.try_add(slice(&[0, 1, 2], &[1, 2, 1], &[2, 1499, 17]), &[x]).unwrap();
            vec![g.try_add(Op::Transpose { perm: vec![2, 0, 1] }, &[part]).unwrap()]
        });
    }
}

#[test]
fn columns_whose_lines_threads_share() {
    let g = &mut Gen::new(16);
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for dims in [vec![1, 7, 7, 1152], vec![1, 14, 14, 240], vec![3, 28, 28, 72], vec![1, 112, 112, 8]] {
            for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min] {
                let x = value(g, dtype, &dims);
                one("columns of an image", Op::Reduce { op, axes: vec![1, 2], keep_dim: true }, &[x]);
            }
        }
    }
}

#[test]
fn transposes_of_views_with_gaps_and_backwards() {
    let g = &mut Gen::new(2);
    for dtype in SIZES {
        for (starts, steps, to) in [
            ([1, 2], [1, 1], [40, 35]),
            ([49, 0], [-1, 1], [50, 37]),
            ([3, 39], [2, -1], [20, 40]),
            ([0, 1], [1, 2], [33, 18]),
        ] {
            let x = value(g, dtype, &[50, 40]);
            check("a transposed slice", x, |g, x| {
                let part = g.try_add(slice(&starts, &steps, &to), &[x]).unwrap();
                let turned = g.try_add(Op::Transpose { perm: vec![1, 0] }, &[part]).unwrap();
                vec![turned, part]
            });
        }
    }
}

#[test]
fn rows_of_every_length() {
    let g = &mut Gen::new(3);
    for dtype in SIZES {
        for inner in [1, 2, 3, 4, 8, 16, 64, 65] {
            let x = value(g, dtype, &[5, 7, 3, inner]);
            one("rows", Op::Transpose { perm: vec![0, 2, 1, 3] }, &[x]);
        }
        let x = value(g, dtype, &[7, 1, 5]);
        let to = vec![Dim::Static(7), Dim::Static(9), Dim::Static(5)];
        one("repeated rows", Op::Expand { to }, &[x]);
        let long = value(g, dtype, &[3, 40_000]);
        one("long rows", slice(&[0, 1], &[2, 1], &[2, 33_000]), &[long]);
    }
}

#[test]
fn running_results_side_by_side() {
    let g = &mut Gen::new(4);
    for dtype in [DType::F32, DType::F16, DType::I8, DType::I64, DType::F64] {
        for (op, exclusive, reverse) in [
            (ReduceOp::Sum, false, false),
            (ReduceOp::Max, true, true),
            (ReduceOp::Min, false, true),
            (ReduceOp::Prod, true, false),
        ] {
            for (dims, axis) in [
                (vec![5, 257], 0),
                (vec![9, 20], 1),
                (vec![3, 4, 300], 1),
                (vec![17, 5], 1),
                (vec![8, 64], 1),
                (vec![2, 37, 150], 2),
                (vec![200, 65], 1),
                (vec![4, 1100], 0),
                (vec![19, 300], 0),
                (vec![2, 8, 33], 1),
                (vec![30], 0),
                (vec![0, 4], 0),
                (vec![4, 0], 0),
            ] {
                let x = g.value(dtype, &dims, 0.5..1.5);
                one("running results", Op::Cumulative { op, axis, exclusive, reverse }, &[x]);
            }
        }
        let x = g.value(dtype, &[12, 40], -1.5..1.5);
        check("running results of a view", x, |g, x| {
            let turned = g.try_add(Op::Transpose { perm: vec![1, 0] }, &[x]).unwrap();
            let op = Op::Cumulative { op: ReduceOp::Sum, axis: 1, exclusive: false, reverse: false };
            vec![g.try_add(op, &[turned]).unwrap()]
        });
    }
}

#[test]
fn rows_are_reduced_in_every_type() {
    use DType::{BF16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    let g = &mut Gen::new(8);
    for dtype in [F32, F64, F16, BF16, I8, I16, I32, I64, U8, U16, U32, U64, Bool] {
        let ops: &[ReduceOp] = match dtype {
            Bool => &[ReduceOp::Max, ReduceOp::Min],
            _ => &[ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min],
        };
        for &op in ops {
            for (dims, axes) in [
                (vec![3, 1], vec![1]),
                (vec![2, 31], vec![1]),
                (vec![3, 100], vec![1]),
                (vec![2, 5, 13], vec![1, 2]),
            ] {
                let x = g.value(dtype, &dims, 0.5..1.5);
                one("rows", Op::Reduce { op, axes: axes.clone(), keep_dim: false }, &[x]);
            }
            let x = g.value(dtype, &[64, 70], 0.5..1.5);
            check("rows of a view", x, |g, x| {
                let part = slice(&[0, 3], &[2, 1], &[32, 67]);
                let part = g.try_add(part, &[x]).unwrap();
                vec![g.try_add(Op::Reduce { op, axes: vec![1], keep_dim: true }, &[part]).unwrap()]
            });
        }
    }
}

#[test]
fn long_rows_are_reduced_in_pieces() {
    let g = &mut Gen::new(9);
    for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min] {
        for dims in [vec![1, 131_073], vec![2, 200_001], vec![15, 98_305]] {
            let x = g.value(DType::F32, &dims, 0.5..1.5);
            one("long rows", Op::Reduce { op, axes: vec![1], keep_dim: true }, std::slice::from_ref(&x));
            if dims[0] == 1 {
                one("all there is", Op::Reduce { op, axes: vec![0, 1], keep_dim: false }, &[x]);
            }
        }
    }
}

#[test]
fn softmax_along_other_axes_than_the_innermost() {
    let g = &mut Gen::new(13);
    for dtype in [DType::F32, DType::F16] {
        for (dims, axis) in [
            (vec![5, 7], 0),
            (vec![5, 8], 0),
            (vec![300, 65], 0),
            (vec![9, 1100], 0),
            (vec![4200, 9], 0),
            (vec![3, 20, 9, 11], 1),
            (vec![2, 130, 150], 1),
            (vec![0, 40], 0),
            (vec![40, 0], 0),
        ] {
            let x = g.value(dtype, &dims, -9.0..9.0);
            one("a softmax", Op::Softmax { axis }, std::slice::from_ref(&x));
            one("the logarithm of a softmax", Op::LogSoftmax { axis }, &[x]);
        }
        // In place, on columns of which one has NaN and one nothing that is allowed.
        let mut all = vec![1.0; 6 * 40];
        (all[47], all[83]) = (f64::NAN, f64::NEG_INFINITY);
        (0..6).for_each(|line| all[40 * line + 5] = f64::NEG_INFINITY);
        check("a softmax of strange numbers", Value::float(dtype, &[6, 40], all), |g, x| {
            let sum = g.try_add(Op::Binary(BinaryOp::Add), &[x, x]).unwrap();
            vec![g.try_add(Op::Softmax { axis: 0 }, &[sum]).unwrap()]
        });
    }
}

#[test]
fn places_of_extremes_with_ties_and_nan() {
    let g = &mut Gen::new(5);
    for dtype in [DType::F32, DType::BF16, DType::U8, DType::I8, DType::I64, DType::F64, DType::U32] {
        for (dims, axis) in [
            (vec![20, 7], 0),
            (vec![20, 8], 0),
            (vec![9, 300], 0),
            (vec![3, 127], 1),
            (vec![3, 128], 1),
            (vec![2, 333], 1),
            (vec![2, 50, 20], 1),
        ] {
            // Few different values: most are equal to others.
            let mut x = g.value(dtype, &dims, 0.0..4.0);
            if dtype.is_float() {
                let mut all = x.to_f64();
                for (i, value) in all.iter_mut().enumerate() {
                    *value = if i % 61 == 40 { f64::NAN } else { value.round() };
                }
                x = Value::float(dtype, &dims, all);
            }
            for (op, last) in
                [(ArgOp::Max, false), (ArgOp::Max, true), (ArgOp::Min, false), (ArgOp::Min, true)]
            {
                one("an extreme", Op::ArgReduce { op, axis, keep_dim: false, last }, &[x.clone()]);
            }
            for largest in [true, false] {
                for k in [1, 5, dims[axis]] {
                    let op = Op::TopK { k: Dim::Static(k), axis, largest, sorted: true };
                    one("the first", op, &[x.clone()]);
                }
            }
        }
    }
}

#[test]
fn gathers_of_short_and_repeated_slices() {
    let g = &mut Gen::new(6);
    let indices = |v: Vec<i128>| Value::int(DType::I64, &[v.len()], v);
    for dtype in SIZES {
        for inner in [1, 2, 4, 8, 9] {
            let x = value(g, dtype, &[6, 40, inner]);
            let any = g.indices(&[33], 40);
            one("any slices", Op::Gather { axis: 1 }, &[x.clone(), any]);
            one("slices in a row", Op::Gather { axis: 1 }, &[x.clone(), indices((3..37).collect())]);
            for (first, times, n) in [(0, 2, 79), (5, 2, 40), (1, 3, 50), (0, 4, 160)] {
                let repeated = indices((0..n).map(|i| first + i / times).collect());
                one("repeated slices", Op::Gather { axis: 1 }, &[x.clone(), repeated]);
            }
        }
        for (axis, dims) in [(0, [30, 20]), (1, [30, 20])] {
            let (x, places) = (value(g, dtype, &[30, 20]), g.indices(&dims, if axis == 0 { 30 } else { 20 }));
            one("elements", Op::GatherElements { axis }, &[x, places]);
        }
    }
}

/// Slices that are fetched before they are copied: of several lines of the cache, more than are looked up at a time.
#[test]
fn gathers_of_long_slices() {
    let g = &mut Gen::new(9);
    for (dtype, inner) in [(DType::F32, 17), (DType::F32, 64), (DType::F16, 701), (DType::I64, 9)] {
        let x = value(g, dtype, &[40, inner]);
        for n in [1, 33, 600] {
            let indices = g.indices(&[n], 40);
            one("long slices", Op::Gather { axis: 0 }, &[x.clone(), indices]);
        }
        let x = value(g, dtype, &[5, 9, inner]);
        let indices = g.indices(&[300], 9);
        one("long slices of several blocks", Op::Gather { axis: 1 }, &[x.clone(), indices]);
        let indices = g.indices(&[300, 2], 5);
        one("long slices by two indices", Op::GatherNd { batch_dims: 0 }, &[x, indices]);
    }
}

#[test]
fn one_hot_codes_along_every_axis() {
    let g = &mut Gen::new(7);
    for dtype in [DType::F32, DType::Bool, DType::F16, DType::I64] {
        for (dims, axis) in [
            (vec![50], 1),
            (vec![50], 0),
            (vec![3, 1100], 1),
            (vec![9000], 0),
            (vec![2, 3, 5], 1),
            (vec![], 0),
            (vec![0], 1),
        ] {
            let index = g.indices(&dims, 9);
            let values = g.value(dtype, &[2], 0.0..4.0);
            one("one-hot", Op::OneHot { depth: Dim::Static(7), axis }, &[index, values]);
        }
    }
}

#[test]
fn elementwise_ops_on_transposed_views() {
    let g = &mut Gen::new(8);
    for dtype in [DType::F32, DType::F16, DType::I8, DType::I64] {
        for (rows, columns) in [(64, 1), (64, 15), (70, 16), (300, 33), (513, 40)] {
            let x = g.value(dtype, &[2, rows, columns], 0.0..9.0);
            check("a sum with a transposed view", x, |g, x| {
                let turned = g.try_add(Op::Transpose { perm: vec![0, 2, 1] }, &[x]).unwrap();
                let row = g.try_add(slice(&[0, 0, 0], &[1, 1, 1], &[1, 1, rows]), &[turned]).unwrap();
                let product = g.try_add(Op::Binary(BinaryOp::Mul), &[turned, row]).unwrap();
                vec![g.try_add(Op::Binary(BinaryOp::Add), &[product, turned]).unwrap()]
            });
        }
    }
}

#[test]
fn elementwise_ops_with_an_operand_that_rows_repeat() {
    let g = &mut Gen::new(10);
    for dtype in SIZES {
        for (images, rows, columns) in
            [(1, 2, 31), (1, 2, 32), (3, 40, 72), (2, 201, 120), (2, 7, 256), (2, 9, 257), (5, 300, 2)]
        {
            let x = g.value(dtype, &[images, rows, columns], 0.0..9.0);
            check("a gate for each column", x, |g, x| {
                let first = |g: &mut Graph, to: &[usize]| {
                    let part = slice(&[0, 0, 0], &[1, 1, 1], to);
                    g.try_add(part, &[x]).unwrap()
                };
                let (gate, factor) = (first(g, &[images, 1, columns]), first(g, &[images, 1, 1]));
                let gated = g.try_add(Op::Binary(BinaryOp::Mul), &[gate, x]).unwrap();
                vec![g.try_add(Op::Binary(BinaryOp::Add), &[gated, factor]).unwrap()]
            });
        }
    }
}

#[test]
fn matmuls_of_the_lines_of_windows() {
    let g = &mut Gen::new(11);
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        // Windows down and across, lines and pixels of a window: short lines are copied, long ones are matmuls of their own.
        for [down, across, lines, pixels] in [[2, 3, 2, 7], [1, 2, 3, 5], [2, 2, 2, 70], [3, 2, 1, 4]] {
            let (k, n) = (20, 50);
            let values = [
                ("x", g.value(dtype, &[down, lines, across, pixels, k], -1.0..1.0)),
                ("w", g.value(dtype, &[k, n], -1.0..1.0)),
                ("bias", g.value(dtype, &[n], -1.0..1.0)),
                ("residual", g.value(dtype, &[down, across, lines, pixels, n], -1.0..1.0)),
            ];
            let (mut graph, mut bindings) = (Graph::new("windows"), Bindings::default());
            let [x, w, bias, residual] = values.map(|(name, value)| {
                let node = match name {
                    "w" | "bias" => graph.param(name, value.shape()),
                    _ => graph.input(name, value.shape()),
                };
                match name {
                    "w" | "bias" => bindings.set_param(name, value),
                    _ => bindings.set_input(name, value),
                };
                node
            });
            let windows = graph.try_add(Op::Transpose { perm: vec![0, 2, 1, 3, 4] }, &[x]).unwrap();
            let y = graph.try_add(Op::MatMul, &[windows, w]).unwrap();
            let y = graph.try_add(Op::Binary(BinaryOp::Add), &[y, bias]).unwrap();
            let y = graph.try_add(Op::Binary(BinaryOp::Add), &[y, residual]).unwrap();
            graph.set_outputs(vec![y]);
            check_graph("windows", &graph, &bindings);
        }
    }
}

#[test]
fn the_largest_of_windows_over_planes() {
    let g = &mut Gen::new(9);
    for dtype in [DType::F32, DType::F16, DType::I8] {
        for (kernel, stride, pad, dilation) in [(2, 2, 0, 1), (3, 1, 1, 1), (3, 2, 1, 2), (5, 3, 2, 1)] {
            let x = g.value(dtype, &[2, 3, 19, 33], -9.0..9.0);
            let op = Op::Pool {
                kind: PoolKind::Max,
                kernel: vec![kernel; 2],
                strides: vec![stride; 2],
                pads: vec![pad; 4],
                dilations: vec![dilation; 2],
                ceil_mode: false,
                count_include_pad: false,
                format: DataFormat::ChannelsFirst,
            };
            one("the largest of windows", op, &[x]);
        }
    }
}
