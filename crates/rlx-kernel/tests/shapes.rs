//! Shapes that fill several tiles, strips and workgroups, and sizes known only at the run.

mod common;

use common::{agree, native, words};
use rlx_ir::op::{Activation, BinaryOp, DataFormat, ReduceOp, ScatterOp};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Dim, Extent, Graph, GraphExt, Op, Shape, sym};

/// One op on inputs of these dimensions, followed by `Relu(y · 2 + z)`, which fuses.
fn with_epilogue(op: Op, dims: &[&[usize]], dtype: DType, seed: u64) -> (Graph, Bindings) {
    let (mut g, mut gen_, mut bindings) = (Graph::new("g"), Gen::new(seed), Bindings::default());
    let mut ids = Vec::new();
    for (i, dims) in dims.iter().enumerate() {
        ids.push(g.input(format!("x{i}"), Shape::new(dims, dtype)));
        bindings.set_input(format!("x{i}"), gen_.value(dtype, dims, -1.0..1.0));
    }
    let y = g.try_add(op, &ids).unwrap();
    let shape = g.shape(y).clone();
    let z = g.input("z", Shape::new(&shape.static_dims().unwrap(), dtype));
    bindings.set_input("z", gen_.value(dtype, &shape.static_dims().unwrap(), -1.0..1.0));
    let v = g.binary(BinaryOp::Add, y, y, shape.clone());
    let v = g.binary(BinaryOp::Add, v, z, shape.clone());
    let v = g.activation(Activation::Relu, v, shape);
    g.set_outputs(vec![v, y]);
    (g, bindings)
}

#[test]
fn products_larger_than_a_tile() {
    for (a, b) in [
        (&[70, 45][..], &[45, 40][..]),
        (&[3, 33, 17], &[17, 65]),
        (&[2, 1, 40, 33], &[3, 33, 34]),
        (&[1, 100], &[100, 70]),
        (&[70, 100], &[100]),
        (&[64], &[64, 50]),
    ] {
        for dtype in [DType::F32, DType::F16, DType::I64, DType::I8] {
            let case = with_epilogue(Op::MatMul, &[a, b], dtype, 1);
            agree(&case.0, &case.1, &native());
            agree(&case.0, &case.1, &words());
        }
    }
}

#[test]
fn convolutions_larger_than_a_tile() {
    for (format, groups, x, w) in [
        (DataFormat::ChannelsFirst, 1, [2, 9, 13, 11], [40, 9, 3, 3]),
        (DataFormat::ChannelsLast, 2, [1, 12, 10, 32], [34, 16, 3, 2]),
        (DataFormat::ChannelsFirst, 16, [2, 16, 9, 9], [16, 1, 3, 3]),
    ] {
        let op =
            Op::Conv { strides: vec![2, 1], pads: vec![1, 0, 1, 2], dilations: vec![1, 2], groups, format };
        let bias = [w[0]];
        let case = with_epilogue(op, &[&x, &w, &bias], DType::F32, 2);
        agree(&case.0, &case.1, &native());
        agree(&case.0, &case.1, &words());
    }
}

#[test]
fn rows_longer_than_a_workgroup() {
    for (dims, axes) in
        [(&[3, 1000][..], vec![1]), (&[5, 7, 300], vec![0, 2]), (&[500, 6], vec![0]), (&[40, 50], vec![0, 1])]
    {
        for (op, dtype) in [
            (ReduceOp::Sum, DType::F32),
            (ReduceOp::Max, DType::F16),
            (ReduceOp::Mean, DType::I32),
            (ReduceOp::Prod, DType::I64),
        ] {
            let op = Op::Reduce { op, axes: axes.clone(), keep_dim: true };
            let case = with_epilogue(op, &[dims], dtype, 3);
            agree(&case.0, &case.1, &native());
            agree(&case.0, &case.1, &words());
        }
    }
}

#[test]
fn softmax_and_norms_of_rows_of_any_length() {
    for dims in [&[3, 200][..], &[2, 5, 64], &[4, 1], &[70, 9]] {
        let (row, eps) = (&dims[dims.len() - 1..], 1e-3);
        for dtype in [DType::F32, DType::F16] {
            for (op, shapes) in [
                (Op::Softmax { axis: -1 }, vec![dims]),
                (Op::Softmax { axis: 0 }, vec![dims]),
                (Op::LogSoftmax { axis: -1 }, vec![dims]),
                (Op::LayerNorm { axis: -1, eps }, vec![dims, row, row]),
                (Op::LayerNorm { axis: 0, eps }, vec![dims, row]),
                (Op::RmsNorm { axis: -1, eps }, vec![dims, row]),
            ] {
                let (g, bindings) = with_epilogue(op, &shapes, dtype, 8);
                assert_eq!(common::compiled(&g, &words()).launches().count(), 1, "{g}");
                agree(&g, &bindings, &native());
                agree(&g, &bindings, &words());
            }
        }
    }
}

#[test]
fn one_kernel_serves_every_size() {
    let (b, s) = (Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ));
    let mut g = Graph::new("dynamic");
    let x = g.input("x", Shape::from_dims(&[b, s, Dim::Static(24)], DType::F32));
    let w = g.param("w", Shape::new(&[24, 40], DType::F32));
    let y = g.mm(x, w);
    let y = g.try_add(Op::Softmax { axis: -1 }, &[y]).unwrap();
    let y = g.try_add(Op::Transpose { perm: vec![0, 2, 1] }, &[y]).unwrap();
    let y = g.try_add(Op::Reduce { op: ReduceOp::Max, axes: vec![2], keep_dim: false }, &[y]).unwrap();
    let to = vec![Dim::from(b.extent() * Extent::Const(40))];
    let y = g.try_add(Op::Reshape { to }, &[y]).unwrap();
    g.set_outputs(vec![y]);
    let mut gen_ = Gen::new(4);
    for (batch, seq) in [(1, 1), (2, 5), (3, 70)] {
        let mut bindings = Bindings::default();
        bindings.set_input("x", gen_.value(DType::F32, &[batch, seq, 24], -1.0..1.0));
        bindings.set_param("w", gen_.value(DType::F32, &[24, 40], -1.0..1.0));
        agree(&g, &bindings, &native());
        agree(&g, &bindings, &words());
    }
}

#[test]
fn kernels_do_not_depend_on_sizes() {
    let hashes = |n: usize, k: usize| {
        let (g, _) = with_epilogue(Op::MatMul, &[&[n, k], &[k, n + 8]], DType::F32, 5);
        common::compiled(&g, &words()).launches().map(|l| l.kernel.hash()).collect::<Vec<_>>()
    };
    assert_eq!(hashes(40, 33), hashes(100, 64));
    let map = |dims: &[usize]| {
        let mut g = Graph::new("map");
        let x = g.input("x", Shape::new(dims, DType::F32));
        let y = g.activation(Activation::Exp, x, Shape::new(dims, DType::F32));
        g.set_outputs(vec![y]);
        common::compiled(&g, &words()).launches().map(|l| l.kernel.hash()).collect::<Vec<_>>()
    };
    assert_eq!(map(&[7]), map(&[2, 3, 4, 5]), "dense tensors of any rank are one dimension");
}

#[test]
fn an_index_out_of_range_is_a_typed_error() {
    let mut g = Graph::new("gather");
    let x = g.input("x", Shape::new(&[3, 2], DType::F32));
    let i = g.input("i", Shape::new(&[2], DType::I64));
    let y = g.try_add(Op::Gather { axis: 0 }, &[x, i]).unwrap();
    g.set_outputs(vec![y]);
    let mut bindings = Bindings::default();
    bindings.set_input("x", Gen::new(1).value(DType::F32, &[3, 2], -1.0..1.0));
    for (index, ok) in [([0, 2], true), ([-3, 1], true), ([0, 3], false), ([-4, 0], false)] {
        bindings.set_input("i", rlx_ir::Value::int(DType::I64, &[2], index.to_vec()));
        for target in [native(), words()] {
            match common::compiled(&g, &target).run(&bindings) {
                Ok(_) => assert!(ok, "{index:?}"),
                Err(e) => {
                    assert!(!ok, "{index:?}: {e}");
                    assert_eq!(e.kind(), rlx_ir::ErrorKind::Value);
                    assert!(e.to_string().contains("axis 0"), "{e}");
                }
            }
        }
    }
}

fn decomposes(op: &Op, inputs: &[rlx_ir::NodeId], graph: &mut Graph) -> bool {
    op.def().decompose(op, inputs, graph).is_some()
}

/// A scatter of these dimensions (data, indices, updates), in two launches, and two more where it is in f32: nothing searches.
fn scatter_agrees(op: Op, dtype: DType, dims: [&[usize]; 3], range: i64, gen_: &mut Gen) {
    let count: usize = dims[1].iter().product();
    let places = (0..count).map(|_| i128::from(gen_.int(-range..=range - 1))).collect();
    let values = [
        gen_.value(dtype, dims[0], -1.0..1.0),
        rlx_ir::Value::int(DType::I64, dims[1], places),
        gen_.value(dtype, dims[2], -1.0..1.0),
    ];
    let (mut g, mut bindings, mut ids) = (Graph::new("scatter"), Bindings::default(), Vec::new());
    for (name, value) in ["x", "i", "u"].into_iter().zip(values) {
        ids.push(g.input(name, value.shape()));
        bindings.set_input(name, value);
    }
    let launches = if decomposes(&op, &ids, &mut g.clone()) { 4 } else { 2 };
    let y = g.try_add(op, &ids).unwrap();
    g.set_outputs(vec![y]);
    assert_eq!(common::compiled(&g, &words()).launches().count(), launches);
    agree(&g, &bindings, &native());
    agree(&g, &bindings, &words());
}

#[test]
fn scatters_apply_many_updates_in_their_order() {
    let mut gen_ = Gen::new(9);
    for dtype in [DType::F32, DType::F16, DType::I64, DType::I8] {
        for reduction in [ScatterOp::Set, ScatterOp::Add, ScatterOp::Max] {
            // Far more updates than places: most meet others.
            let rows = Op::ScatterElements { axis: 0, reduction };
            let slices = Op::ScatterNd { reduction };
            scatter_agrees(rows, dtype, [&[30, 5], &[200, 4], &[200, 4]], 30, &mut gen_);
            scatter_agrees(slices.clone(), dtype, [&[12, 40], &[90, 1], &[90, 40]], 12, &mut gen_);
            scatter_agrees(slices, dtype, [&[6, 4], &[70, 2], &[70]], 4, &mut gen_);
        }
    }
}

#[test]
fn sixty_four_bit_integers_are_exact() {
    let edge = [i64::MIN, i64::MIN + 1, -1 << 40, -7, -1, 0, 1, 3, 10, 1 << 33, i64::MAX - 1, i64::MAX];
    let n = edge.len();
    let (a, b): (Vec<i128>, Vec<i128>) =
        edge.iter().flat_map(|&x| edge.iter().map(move |&y| (i128::from(x), i128::from(y)))).unzip();
    for op in [
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Div,
        BinaryOp::Rem,
        BinaryOp::Mod,
        BinaryOp::Max,
    ] {
        for dtype in [DType::I64, DType::U64] {
            let shape = Shape::new(&[n * n], dtype);
            let mut g = Graph::new("int64");
            let (x, y) = (g.input("x", shape.clone()), g.input("y", shape.clone()));
            let v = g.binary(op, x, y, shape);
            let less = g.try_add(Op::Compare(rlx_ir::op::CmpOp::Lt), &[x, y]).unwrap();
            let float = g.try_add(Op::Cast { to: DType::F32 }, &[x]).unwrap();
            let back = g.try_add(Op::Cast { to: dtype }, &[float]).unwrap();
            g.set_outputs(vec![v, less, float, back]);
            let mut bindings = Bindings::default();
            bindings.set_input("x", rlx_ir::Value::int(dtype, &[n * n], a.clone()).rounded());
            bindings.set_input("y", rlx_ir::Value::int(dtype, &[n * n], b.clone()).rounded());
            agree(&g, &bindings, &words());
            agree(&g, &bindings, &native());
        }
    }
}

#[test]
fn low_limits_give_smaller_regions_or_a_typed_error() {
    // Ten operands added up: one region where bindings suffice, several where they do not.
    let shape = Shape::new(&[50], DType::F32);
    let (mut g, mut gen_, mut bindings) = (Graph::new("many"), Gen::new(6), Bindings::default());
    let mut sum = g.input("x0", shape.clone());
    bindings.set_input("x0", gen_.value(DType::F32, &[50], -1.0..1.0));
    for i in 1..10 {
        let x = g.input(format!("x{i}"), shape.clone());
        bindings.set_input(format!("x{i}"), gen_.value(DType::F32, &[50], -1.0..1.0));
        sum = g.binary(BinaryOp::Add, sum, x, shape.clone());
    }
    g.set_outputs(vec![sum]);
    let small = rlx_kernel::KernelTarget::webgpu("small");
    assert_eq!(common::compiled(&g, &native()).launches().count(), 1);
    assert_eq!(common::compiled(&g, &small).launches().count(), 2);
    agree(&g, &bindings, &small);

    // With little workgroup memory products take a variant without it; workgroups too small for any are an error.
    let mut tiny = small.clone();
    tiny.limits.max_shared_bytes = 1024;
    let (product, values) = with_epilogue(Op::MatMul, &[&[40, 40], &[40, 40]], DType::F32, 7);
    agree(&product, &values, &small);
    agree(&product, &values, &tiny);
    tiny.limits.max_workgroup = 32;
    let e = common::try_compiled(&product, &tiny).unwrap_err();
    assert_eq!(e.kind(), rlx_ir::ErrorKind::Unsupported);
    assert!(e.to_string().contains("a workgroup of 64"), "{e}");
}

#[test]
fn grids_stay_within_the_limit_of_each_dimension() {
    for groups in [0, 1, 65_535, 65_536, 1_000_000, 4_294_836_225] {
        let (columns, rows) = rlx_kernel::grid(groups, 65_535).unwrap();
        assert!(columns <= 65_535 && rows <= 65_535);
        let all = i64::from(columns) * i64::from(rows);
        assert!(all >= groups && all - groups < i64::from(rows).max(1), "{groups}: {columns}×{rows}");
    }
    assert_eq!(rlx_kernel::grid(i64::MAX, 65_535), None);
    assert_eq!(rlx_kernel::grid(-1, 65_535), None);
}
