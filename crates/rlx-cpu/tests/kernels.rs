//! What random cases are too small or too valid for: work that is split over threads, strided operands,
//! indices out of range, dimensions that change between runs.

mod common;

use common::{against_oracle, backends, compile, oracle, run, run_again, unfused};
use rlx_cpu::CpuBackend;
use rlx_ir::op::{ArgOp, DataFormat, PadMode, PoolKind, ReduceOp, ScatterOp};
use rlx_ir::oracle::{Bindings, evaluate_op};
use rlx_ir::testing::{Case, Gen, plain_lstm};
use rlx_ir::{DType, Dim, DimBinding, ErrorKind, Extent, Graph, Op, OpKind, Shape, Value, sym};
use rlx_opt::CompileOptions;

fn backend(threads: usize) -> CpuBackend {
    CpuBackend::new().with_threads(threads).expect("a pool")
}

/// On one to three threads: as the oracle has it, and the same bits every time.
fn check_split(case: &Case) {
    let (graph, bindings) = case.graph();
    let want = oracle(&graph, &bindings);
    let mut first = None;
    for threads in [1, 2, 3] {
        let mut exec = compile(&graph, &backend(threads), &CompileOptions::default()).unwrap();
        let got = run(&mut *exec, &bindings, &DimBinding::new()).unwrap();
        if let Some(difference) = against_oracle(&want, &got) {
            panic!("{} on {threads} threads: {difference}", case.op.kind());
        }
        let again = run_again(&mut *exec, &bindings, &DimBinding::new()).unwrap();
        assert_eq!(got, again, "{}: another run gives other bits", case.op.kind());
        let first = first.get_or_insert_with(|| got.clone());
        assert_eq!(*first, got, "{}: {threads} threads give other bits", case.op.kind());
    }
}

fn floats(g: &mut Gen, dims: &[usize]) -> Value {
    g.value(DType::F32, dims, -2.0..2.0)
}

#[test]
fn split_gathers_and_scatters() {
    let g = &mut Gen::new(1);
    let rows = g.indices(&[20_000], 1000);
    check_split(&Case::new(Op::Gather { axis: 0 }, vec![floats(g, &[1000, 64]), rows]));
    let places = g.indices(&[400, 500], 500);
    check_split(&Case::new(Op::GatherElements { axis: 1 }, vec![floats(g, &[400, 500]), places]));
    let places = g.indices(&[40_000, 2], 40);
    check_split(&Case::new(Op::GatherNd { batch_dims: 0 }, vec![floats(g, &[50, 40, 8]), places]));
    // Every element gets many updates: their order decides the bits.
    let (x, places) = (floats(g, &[30, 400]), g.indices(&[400, 400], 30));
    let updates = floats(g, &[400, 400]);
    let op = Op::ScatterElements { axis: 0, reduction: ScatterOp::Add };
    check_split(&Case::new(op, vec![x, places, updates]));
    let (x, places) = (floats(g, &[10, 3000]), g.indices(&[80, 1], 10));
    let updates = floats(g, &[80, 3000]);
    check_split(&Case::new(Op::ScatterNd { reduction: ScatterOp::Add }, vec![x, places, updates]));
}

#[test]
fn split_borders_counts_and_orders() {
    let g = &mut Gen::new(2);
    let to = vec![Dim::Static(1000), Dim::Static(400)];
    check_split(&Case::new(Op::Iota { to, axis: 0, dtype: DType::I64 }, vec![]));
    for mode in [PadMode::Constant, PadMode::Reflect] {
        let pads = vec![Extent::Const(3); 3];
        let op = Op::Pad { before: pads.clone(), after: pads, mode };
        check_split(&Case::new(op, vec![floats(g, &[120, 80, 60])]));
    }
    let distinct = g.distinct_value(DType::F32, &[300, 1000]);
    let op = Op::ArgReduce { op: ArgOp::Max, axis: 1, keep_dim: false, last: false };
    check_split(&Case::new(op, vec![distinct.clone()]));
    for axis in [0, 1] {
        let op = Op::TopK { k: Dim::Static(5), axis, largest: true, sorted: true };
        check_split(&Case::new(op, vec![distinct.clone()]));
        let op = Op::Cumulative { op: ReduceOp::Sum, axis, exclusive: false, reverse: axis == 1 };
        check_split(&Case::new(op, vec![floats(g, &[400, 450])]));
    }
}

/// Blocks of lines, and the lines and elements that are left over.
#[test]
fn running_results_of_many_neighbouring_lines() {
    let g = &mut Gen::new(5);
    for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min] {
        for (dtype, dims, axis) in [
            (DType::F32, &[7, 2500][..], 0),
            (DType::F32, &[3, 9, 40], 1),
            (DType::BF16, &[10, 17], 0),
            (DType::I32, &[6, 1030], 0),
            (DType::F64, &[5, 8], 0),
        ] {
            for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
                let x = if dtype.is_float() {
                    g.value(dtype, dims, 0.5..2.0)
                } else {
                    g.distinct_value(dtype, dims)
                };
                check_split(&Case::new(Op::Cumulative { op, axis, exclusive, reverse }, vec![x]));
            }
        }
    }
}

/// Few and many of short and long lines, with and without a bound that is found first; and elements that occur often.
#[test]
fn first_elements_of_lines_of_all_lengths() {
    let g = &mut Gen::new(6);
    for (rows, size, k) in [
        (30, 256, 1),
        (30, 300, 10),
        (30, 300, 11),
        (3, 5000, 50),
        (3, 1100, 96),
        (3, 1100, 97),
        (9, 100, 100),
    ] {
        for largest in [true, false] {
            let op = Op::TopK { k: Dim::Static(k), axis: 1, largest, sorted: true };
            check_split(&Case::new(op.clone(), vec![g.distinct_value(DType::F32, &[rows, size])]));
            check_split(&Case::new(op.clone(), vec![g.indices(&[rows, size], 7)]));
            let equal = Value::float(DType::F16, &[rows, size], vec![0.5; rows * size]);
            check_split(&Case::new(op, vec![equal]));
        }
    }
}

/// Indices that are looked at together, those that are left over, and negative ones.
#[test]
fn elements_are_gathered_in_lines_of_all_lengths() {
    let g = &mut Gen::new(7);
    for (dims, axis) in
        [(&[5, 64][..], 1), (&[5, 200], 1), (&[5, 200], 0), (&[4, 3, 65], 1), (&[200, 1], 0), (&[130], 0)]
    {
        let size = dims[axis];
        let places = g.indices(dims, size);
        let negative = places.ints().unwrap().iter().enumerate().map(|(i, &p)| {
            let place = p.rem_euclid(size as i128);
            if i % 3 == 0 { place - size as i128 } else { place }
        });
        let places = Value::int(DType::I64, dims, negative.collect());
        check_split(&Case::new(Op::GatherElements { axis }, vec![floats(g, dims), places]));
    }
    // The first index that is out of range, however many are looked at together.
    let mut places = vec![0; 300];
    (places[170], places[190]) = (5, -6);
    let inputs = vec![floats(g, &[5, 150]), Value::int(DType::I64, &[2, 150], places)];
    let (graph, bindings) = Case::new(Op::GatherElements { axis: 0 }, inputs).graph();
    let mut exec = compile(&graph, &backend(1), &CompileOptions::default()).unwrap();
    let error = run(&mut *exec, &bindings, &DimBinding::new()).unwrap_err();
    assert!(error.message().contains("index 5 (number 170 of the indices)"), "{error}");
}

/// Lines whose indices are neighbours, and others; of replaced slices the last one stays, wherever the result is divided.
#[test]
fn updates_of_one_place_are_joined_in_order() {
    let g = &mut Gen::new(15);
    for reduction in [ScatterOp::Set, ScatterOp::Add] {
        for (dims, axis) in
            [(&[40, 300][..], 1), (&[300, 40], 0), (&[9000], 0), (&[5, 300, 1], 1), (&[3, 40, 50], 1)]
        {
            let (x, updates) = (floats(g, dims), floats(g, dims));
            let places = g.indices(dims, dims[axis].min(7));
            check_split(&Case::new(Op::ScatterElements { axis, reduction }, vec![x, places, updates]));
        }
        for (dims, rows) in
            [(&[700, 33][..], 900), (&[3, 30_000], 7), (&[70_000], 5000), (&[1, 1], 1), (&[400, 1], 0)]
        {
            let places = g.indices(&[rows, 1], dims[0]);
            let updates: Vec<usize> = [rows].iter().chain(&dims[1..]).copied().collect();
            let inputs = vec![floats(g, dims), places, floats(g, &updates)];
            check_split(&Case::new(Op::ScatterNd { reduction }, inputs));
        }
    }
}

/// Blocks of elements that begin and end within lines, lines longer than what is looked at together, and strided ones.
#[test]
fn places_are_found_in_blocks() {
    let g = &mut Gen::new(16);
    for dims in [&[1][..], &[0, 5], &[], &[9001], &[3, 5000], &[5000, 3], &[30, 1, 20, 33]] {
        for some in [0.0, 0.5, 1.0] {
            let elements: usize = dims.iter().product();
            let truth: Vec<bool> = (0..elements).map(|_| g.chance(some)).collect();
            let count = truth.iter().filter(|&&t| t).count();
            let op = Op::NonZero { count: Dim::Static(count) };
            check_split(&Case::new(op.clone(), vec![Value::bools(dims, truth.iter().copied())]));
            let numbers = truth.iter().map(|&t| if t { f64::NAN } else { -0.0 }).collect();
            check_split(&Case::new(op, vec![Value::float(DType::F32, dims, numbers)]));
        }
    }
}

/// Rows of one element, which are sorted by their keys, and longer ones.
#[test]
fn distinct_rows_and_numbers() {
    let g = &mut Gen::new(17);
    for (rows, width) in [(0, 1), (1, 1), (5000, 1), (700, 2)] {
        for dtype in [DType::I64, DType::I32, DType::U8, DType::F32, DType::F64, DType::F16] {
            let few: Vec<i128> = (0..rows * width).map(|_| g.int(0..=90).into()).collect();
            let mut distinct: Vec<&[i128]> = few.chunks(width).collect();
            distinct.sort();
            distinct.dedup();
            let count = Dim::Static(distinct.len());
            let x = match dtype.is_float() {
                true => Value::float(dtype, &[rows, width], few.iter().map(|&x| x as f64 - 45.0).collect()),
                false => Value::int(dtype, &[rows, width], few.clone()),
            };
            for sorted in [true, false] {
                check_split(&Case::new(Op::Unique { count, sorted }, vec![x.clone()]));
            }
        }
    }
    // Both zeros are one number, and so are all that are none.
    let odd = vec![f64::NAN, 0.0, -1.0, -0.0, f64::NAN, f64::INFINITY, -1.0, f64::NEG_INFINITY];
    let op = Op::Unique { count: Dim::Static(5), sorted: true };
    check_split(&Case::new(op, vec![Value::float(DType::F32, &[8, 1], odd)]));
}

/// Diagonals within the matrix and outside of it; a triangle of what is computed in the same pass.
#[test]
fn triangles_of_large_matrices() {
    let g = &mut Gen::new(19);
    for k in [-400, -3, 0, 70, 400] {
        for upper in [false, true] {
            let op = Op::Trilu { upper, k: Extent::Const(k) };
            check_split(&Case::new(op.clone(), vec![floats(g, &[2, 150, 300])]));
            check_split(&Case::new(op.clone(), vec![g.value(DType::U8, &[301, 90], 0.0..9.0)]));
            check_split(&Case::new(op, vec![floats(g, &[3, 0, 4])]));
        }
    }
}

/// Channels of one element, of less and more than a vector; and rows that are side by side in vectors.
#[test]
fn norms_of_groups_and_softmax_of_short_rows() {
    let g = &mut Gen::new(18);
    for (dims, groups) in [
        (&[2, 64, 30, 41][..], 64),
        (&[1, 64, 30, 41], 8),
        (&[3, 6, 5], 2),
        (&[300, 36], 4),
        (&[2, 30, 70], 1),
        (&[0, 4, 3], 2),
        (&[1, 4, 0], 2),
    ] {
        let vectors = [floats(g, &[dims[1]]), floats(g, &[dims[1]])];
        let [gamma, beta] = vectors;
        let op = Op::GroupNorm { groups, eps: 1e-5 };
        check_split(&Case::new(op, vec![floats(g, dims), gamma, beta]));
    }
    for columns in [1, 2, 3, 10, 12, 13] {
        for rows in [1, 16, 1003] {
            let x = floats(g, &[rows, columns]);
            check_split(&Case::new(Op::Softmax { axis: -1 }, vec![x.clone()]));
            check_split(&Case::new(Op::LogSoftmax { axis: -1 }, vec![x]));
        }
    }
}

/// Rows that are read in the order of the source, and those that are written in the order of the result.
#[test]
fn rows_are_transposed_in_either_order() {
    let g = &mut Gen::new(8);
    for (dims, perm) in [
        (&[2, 50, 12, 64][..], [0, 2, 1, 3]),
        (&[2, 20, 40, 16], [0, 2, 1, 3]),
        (&[3, 4, 5, 33], [2, 1, 0, 3]),
        (&[3, 4, 5, 17], [1, 2, 0, 3]),
        (&[9, 30, 5, 3], [0, 2, 1, 3]),
    ] {
        check_split(&Case::new(Op::Transpose { perm: perm.to_vec() }, vec![floats(g, dims)]));
    }
}

/// Whole vectors of a phase and what is left over, taps over both ends of the rows, few channels and many, groups.
#[test]
fn transposed_convolutions_spread_whole_rows() {
    let g = &mut Gen::new(9);
    for (x, w, stride, dilation, pad, extra, groups) in [
        ([1, 3, 5, 70], [3, 5, 3, 3], 2, 1, 1, 1, 1),
        ([2, 4, 3, 40], [4, 2, 2, 4], 2, 1, 0, 0, 2),
        ([1, 6, 4, 33], [6, 1, 4, 4], 2, 1, 1, 0, 6),
        ([1, 2, 4, 20], [2, 8, 3, 5], 1, 2, 2, 0, 1),
        ([1, 2, 3, 50], [2, 4, 1, 2], 3, 1, 0, 1, 1),
        ([1, 2, 2, 9], [2, 4, 3, 3], 4, 3, 2, 0, 1),
        ([1, 1, 1, 5], [1, 1, 1, 40], 1, 1, 0, 0, 1),
    ] {
        let op = Op::ConvTranspose {
            strides: vec![stride; 2],
            pads: vec![pad; 4],
            dilations: vec![dilation; 2],
            output_padding: vec![extra; 2],
            groups,
        };
        let bias = floats(g, &[w[1] * groups]);
        check_split(&Case::new(op.clone(), vec![floats(g, &x), floats(g, &w), bias]));
        // What is outside of the input is not added, so an infinite weight spoils only what it reaches.
        let mut weights = vec![0.5; w.iter().product()];
        weights[w[3] - 1] = f64::INFINITY;
        let x = g.value(DType::F32, &x, 0.5..2.0);
        check_split(&Case::new(op, vec![x, Value::float(DType::F32, &w, weights)]));
    }
}

#[test]
fn recurrent_weights_that_are_read_in_both_directions() {
    let g = &mut Gen::new(14);
    // More than 2¹⁷ elements of recurrent weights, whose last panel is not whole.
    let (steps, rows, hidden) = (4, 3, 190);
    let weights = g.value(DType::F32, &[hidden, 4 * hidden], -0.1..0.1);
    let states = [floats(g, &[rows, hidden]), floats(g, &[rows, hidden])];
    let [h, c] = states;
    check_split(&Case::new(plain_lstm(), vec![floats(g, &[steps, rows, 4 * hidden]), weights, h, c]));
}

#[test]
fn split_windows_rotations_and_quantisation() {
    let g = &mut Gen::new(3);
    let mut doubles = |dims: &[usize]| g.value(DType::F64, dims, -2.0..2.0);
    let (strides, pads, dilations) = (vec![1, 1], vec![1; 4], vec![1, 1]);
    let format = DataFormat::ChannelsFirst;
    let (x, w) = (doubles(&[2, 6, 40, 40]), doubles(&[8, 3, 3, 3]));
    let conv = Op::Conv { strides, pads, dilations, groups: 2, format };
    check_split(&Case::new(conv, vec![x, w]));
    let pool = |kind| Op::Pool {
        kind,
        kernel: vec![3, 3],
        strides: vec![1, 1],
        pads: vec![1; 4],
        dilations: vec![1, 1],
        ceil_mode: false,
        count_include_pad: false,
        format,
    };
    let x = doubles(&[2, 8, 60, 60]);
    check_split(&Case::new(pool(PoolKind::Max), vec![x.clone()]));
    check_split(&Case::new(pool(PoolKind::Average), vec![x]));
    let (strides, pads, dilations) = (vec![2, 2], vec![1; 4], vec![1, 1]);
    let op = Op::ConvTranspose { strides, pads, dilations, output_padding: vec![1, 1], groups: 2 };
    check_split(&Case::new(op, vec![floats(g, &[2, 6, 30, 30]), floats(g, &[6, 4, 3, 3])]));
    let tables = [floats(g, &[400, 32]), floats(g, &[400, 32])];
    let op = Op::Rope { head_dim: 64, n_rot: 64, interleaved: false };
    check_split(&Case::new(op, [&[floats(g, &[2, 16, 400, 64])], &tables[..]].concat()));
    let (x, scale) =
        (g.value(DType::F32, &[300, 1001], -9.0..9.0), Value::float(DType::F32, &[], vec![0.125]));
    let op = Op::Quantize { axis: None, to: DType::I8 };
    let q = evaluate_op(&op, &[&x, &scale], &[]).unwrap().remove(0);
    check_split(&Case::new(op, vec![x, scale]));
    let scales = g.value(DType::F32, &[300], 0.5..2.0);
    check_split(&Case::new(Op::Dequantize { axis: Some(0), to: DType::F32 }, vec![q, scales]));
}

/// A random case whose first input comes through a transposition of its first two dimensions, so that the
/// step reads a view.
fn through_a_view(kind: OpKind, seed: u64) -> Option<(Graph, Bindings)> {
    let case = Case::random(kind, seed);
    let rank = case.inputs[0].dims.len();
    if rank < 2 {
        return None;
    }
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(0, 1);
    let turn = Op::Transpose { perm };
    let mut values = case.inputs.clone();
    values[0] = evaluate_op(&turn, &[&case.inputs[0]], &[]).unwrap().remove(0);
    let (mut graph, mut bindings) = (Graph::new("view"), Bindings::default());
    let mut ids = Vec::new();
    for (i, value) in values.into_iter().enumerate() {
        ids.push(graph.input(format!("x{i}"), value.shape()));
        bindings.set_input(format!("x{i}"), value);
    }
    ids[0] = graph.try_add(turn, &[ids[0]]).unwrap();
    let out = graph.try_add(case.op, &ids).unwrap();
    graph.set_outputs(vec![out]);
    Some((graph, bindings))
}

#[test]
fn views_are_read_where_they_lie() {
    use OpKind::*;
    let backend = backend(1);
    for kind in [ArgReduce, TopK, Cumulative, Rope, GatherElements, ConvTranspose, Conv, Pool, Pad, Quantize]
    {
        let mut ran = 0;
        for (graph, bindings) in (0..60).filter_map(|seed| through_a_view(kind, seed)) {
            let want = oracle(&graph, &bindings);
            let mut exec = match compile(&graph, &backend, &unfused()) {
                Ok(exec) => exec,
                Err(e) if e.kind() == ErrorKind::Unsupported => continue,
                Err(e) => panic!("{e}\n{graph}"),
            };
            let got = run(&mut *exec, &bindings, &DimBinding::new()).unwrap();
            if let Some(difference) = against_oracle(&want, &got) {
                panic!("{difference}\n{graph}\n{}", exec.lir());
            }
            ran += 1;
        }
        assert!(ran >= 20, "only {ran} views of {kind}");
    }
}

#[test]
fn indices_out_of_range_are_errors_that_say_which() {
    let g = &mut Gen::new(4);
    let x = floats(g, &[3, 4]);
    let index = |dims: &[usize], v: Vec<i128>| Value::int(DType::I64, dims, v);
    let updates = |dims: &[usize]| Value::float(DType::F32, dims, vec![1.0; dims.iter().product()]);
    let add = ScatterOp::Add;
    // Long slices are looked up some hundred at a time.
    let (long, mut last) = (floats(g, &[3, 20]), vec![1; 300]);
    last[299] = 5;
    let cases = [
        (Op::Gather { axis: 1 }, vec![x.clone(), index(&[2], vec![-4, 4])], "index 4", "axis 1 has 4"),
        (Op::Gather { axis: 0 }, vec![long, index(&[300], last)], "index 5 (number 299", "axis 0 has 3"),
        (
            Op::GatherElements { axis: 0 },
            vec![x.clone(), index(&[1, 2], vec![0, -4])],
            "index -4",
            "axis 0 has 3",
        ),
        (
            Op::GatherNd { batch_dims: 0 },
            vec![x.clone(), index(&[1, 2], vec![2, 9])],
            "index 9",
            "axis 1 has 4",
        ),
        (
            Op::ScatterElements { axis: 1, reduction: ScatterOp::Set },
            vec![x.clone(), index(&[1, 1], vec![i128::from(i64::MAX)]), updates(&[1, 1])],
            "index 9223372036854775807",
            "axis 1 has 4",
        ),
        (
            Op::ScatterNd { reduction: add },
            vec![x, index(&[2, 1], vec![0, i128::from(i64::MIN)]), updates(&[2, 4])],
            "index -9223372036854775808 (number 1",
            "axis 0 has 3",
        ),
    ];
    for (op, inputs, index, axis) in cases {
        let kind = op.kind();
        let (graph, bindings) = Case::new(op, inputs).graph();
        for (_, backend) in backends() {
            let mut exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
            let error = run(&mut *exec, &bindings, &DimBinding::new()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Value, "{error}");
            assert!(error.message().contains(index) && error.message().contains(axis), "{error}");
            assert!(error.node().is_some_and(|n| n.contains(&kind.to_string())), "{error:?}");
        }
    }
}

#[test]
fn dimensions_change_between_runs() {
    let n = Dim::Dynamic(sym::SEQ);
    let mut graph = Graph::new("top");
    let x = graph.input("x", Shape::from_dims(&[n, Dim::Static(2)], DType::I32));
    let sums = Op::Cumulative { op: ReduceOp::Sum, axis: 0, exclusive: false, reverse: false };
    let sums = graph.try_add(sums, &[x]).unwrap();
    let top = Op::TopK { k: Dim::Static(2), axis: 0, largest: true, sorted: true };
    let top = graph.try_add(top, &[sums]).unwrap();
    let pad = vec![Extent::Const(0), Extent::Const(1)];
    let padded =
        graph.try_add(Op::Pad { before: pad.clone(), after: pad, mode: PadMode::Edge }, &[sums]).unwrap();
    graph.set_outputs(vec![top, padded]);
    let mut exec = compile(&graph, &backend(2), &CompileOptions::default()).unwrap();
    let mut at = |size: usize| {
        let mut bindings = Bindings::default();
        bindings.set_input("x", Gen::new(size as u64).distinct_value(DType::I32, &[size, 2]));
        let mut dims = DimBinding::new();
        dims.set(sym::SEQ, size);
        (run(&mut *exec, &bindings, &dims), oracle_or_none(&graph, &bindings))
    };
    for size in [3, 70, 2, 9] {
        let (got, want) = at(size);
        let difference = against_oracle(&want.unwrap(), &got.unwrap());
        assert_eq!(difference, None, "size {size}");
    }
    let (got, want) = at(1);
    assert!(want.is_none(), "one element has no two greatest");
    assert_eq!(got.unwrap_err().kind(), ErrorKind::Dimension);
}

fn oracle_or_none(graph: &Graph, bindings: &Bindings) -> Option<Vec<Value>> {
    rlx_ir::oracle::evaluate(graph, bindings).ok()
}

#[test]
fn a_scalar_of_a_half_float_is_read_for_every_element() {
    // Widened, it is in a slot that the choice writes.
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::I8] {
        let choices = Value::bools(&[100], (0..100).map(|i| i % 3 == 2));
        let scalar = |v: f64| match dtype.is_float() {
            true => Value::float(dtype, &[], vec![v]),
            false => Value::int(dtype, &[], vec![v as i128]),
        };
        let (graph, bindings) = Case::new(Op::Where, vec![choices, scalar(5.0), scalar(7.0)]).graph();
        let mut exec = compile(&graph, &backend(1), &CompileOptions::default()).unwrap();
        let got = run(&mut *exec, &bindings, &DimBinding::new()).unwrap();
        assert_eq!(against_oracle(&oracle(&graph, &bindings), &got), None, "{dtype}");
    }
}
