//! Dimensions of 0: a cache that is empty yet, a batch of nothing. Open and fixed, fused and not, as the oracle has it.

mod common;

use common::{against_oracle, backends, compile, oracle, run, run_again, unfused};
use rlx_ir::op::{Activation, BinaryOp, CmpOp, DataFormat, MaskKind, PadMode, ReduceOp, ScatterOp, Unseen};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Dim, DimBinding, Extent, Graph, NodeId, Op, Shape, sym};
use rlx_opt::CompileOptions;

/// Stands for the dimension that is 0 or not.
const N: usize = usize::MAX;

/// Builds a graph's result from its operands and `n`.
type Build = Box<dyn Fn(&mut Graph, &[NodeId], Dim) -> NodeId>;

/// A graph over operands, some of whose dimensions are `n`.
struct Case {
    name: &'static str,
    operands: Vec<(DType, Vec<usize>)>,
    /// Indices are below this.
    below: usize,
    build: Build,
}

fn case(
    name: &'static str,
    operands: &[&[usize]],
    build: impl Fn(&mut Graph, &[NodeId], Dim) -> NodeId + 'static,
) -> Case {
    let operands = operands.iter().map(|dims| (DType::F32, dims.to_vec())).collect();
    Case { name, operands, below: 1, build: Box::new(build) }
}

/// One op.
fn op(name: &'static str, operands: &[&[usize]], op: impl Fn(Dim) -> Op + 'static) -> Case {
    case(name, operands, move |g, x, n| g.try_add(op(n), x).unwrap())
}

/// As [`op`]; operand `at` is of indices below `below`.
fn indexed(name: &'static str, operands: &[&[usize]], at: usize, below: usize, what: Op) -> Case {
    let mut made = op(name, operands, move |_| what.clone());
    made.operands[at].0 = DType::I64;
    Case { below, ..made }
}

fn shape_of(dims: &[usize], dtype: DType, n: Dim) -> Shape {
    let dim = |&d: &usize| if d == N { n } else { Dim::Static(d) };
    Shape::from_dims(&dims.iter().map(dim).collect::<Vec<_>>(), dtype)
}

fn graph(case: &Case, n: Dim) -> Graph {
    let mut g = Graph::new(case.name);
    let shapes = case.operands.iter().map(|(dtype, dims)| shape_of(dims, *dtype, n));
    let operands: Vec<NodeId> =
        shapes.enumerate().map(|(i, shape)| g.input(format!("x{i}"), shape)).collect();
    let y = (case.build)(&mut g, &operands, n);
    // Something after it, which fuses, and the value itself.
    let z = g.try_add(Op::Activation(Activation::Abs), &[y]).unwrap();
    g.set_outputs(vec![z, y]);
    rlx_ir::verify_ok(&g).unwrap();
    g
}

fn bindings(case: &Case, n: usize) -> Bindings {
    let mut bindings = Bindings::default();
    for (i, (dtype, dims)) in case.operands.iter().enumerate() {
        let g = &mut Gen::new(i as u64);
        let dims: Vec<usize> = dims.iter().map(|&d| if d == N { n } else { d }).collect();
        let value = match dtype {
            DType::I64 => g.indices(&dims, case.below),
            dtype => g.value(*dtype, &dims, -1.0..1.0),
        };
        bindings.set_input(format!("x{i}"), value);
    }
    bindings
}

fn check(case: &Case) {
    let open = graph(case, Dim::Dynamic(sym::PAST_SEQ));
    for (name, backend) in backends() {
        for options in [CompileOptions::default(), unfused()] {
            let place = |n: usize| format!("{} on {name}, n = {n}", case.name);
            let mut exec = compile(&open, &backend, &options).unwrap_or_else(|e| panic!("{}: {e}", place(0)));
            for n in [3, 0, 2] {
                let (given, dims) = (bindings(case, n), DimBinding::from_pairs(&[(sym::PAST_SEQ, n)]));
                let want = oracle(&open, &given);
                let got =
                    run_again(&mut *exec, &given, &dims).unwrap_or_else(|e| panic!("{}: {e}", place(n)));
                if let Some(difference) = against_oracle(&want, &got) {
                    panic!("{}: {difference}\n{}", place(n), exec.lir());
                }
            }
            let (fixed, given) = (graph(case, Dim::Static(0)), bindings(case, 0));
            let mut exec =
                compile(&fixed, &backend, &options).unwrap_or_else(|e| panic!("{}: {e}", place(0)));
            let got =
                run(&mut *exec, &given, &DimBinding::new()).unwrap_or_else(|e| panic!("{}: {e}", place(0)));
            if let Some(difference) = against_oracle(&oracle(&fixed, &given), &got) {
                panic!("{}, fixed: {difference}\n{}", place(0), exec.lir());
            }
        }
    }
}

fn all(cases: impl IntoIterator<Item = Case>) {
    cases.into_iter().for_each(|case| check(&case));
}

#[test]
fn elementwise_and_movement() {
    let to = |n: Dim| vec![Dim::Static(2), n, Dim::Static(4)];
    all([
        op("add", &[&[2, N, 4], &[4]], |_| Op::Binary(BinaryOp::Add)),
        case("compare", &[&[2, N], &[2, N]], |g, x, _| {
            let less = g.try_add(Op::Compare(CmpOp::Lt), x).unwrap();
            g.try_add(Op::Where, &[less, x[0], x[1]]).unwrap()
        }),
        op("transpose", &[&[2, N, 4]], |_| Op::Transpose { perm: vec![2, 0, 1] }),
        op("reshape", &[&[N, 8]], move |n| Op::Reshape { to: vec![n, Dim::Static(2), Dim::Static(4)] }),
        case("expand", &[&[2, 1, 4], &[2, N, 4]], move |g, x, n| {
            let large = g.try_add(Op::Expand { to: to(n) }, &[x[0]]).unwrap();
            g.try_add(Op::Binary(BinaryOp::Add), &[large, x[1]]).unwrap()
        }),
        op("concat", &[&[2, N, 4], &[2, 3, 4]], |_| Op::Concat { axis: 1 }),
        op("concat of nothing", &[&[2, N, 4], &[2, N, 4]], |_| Op::Concat { axis: 1 }),
        op("tile", &[&[2, N]], |_| Op::Tile { repeats: vec![Dim::Static(3), Dim::Static(2)] }),
        op("slice", &[&[2, N, 4]], |n| Op::Slice {
            starts: vec![Extent::Const(0); 3],
            steps: vec![1, 1, 2],
            to: vec![Dim::Static(2), n, Dim::Static(2)],
        }),
        op("pad", &[&[2, N]], |_| Op::Pad {
            before: vec![Extent::Const(0), Extent::Const(1)],
            after: vec![Extent::Const(1), Extent::Const(2)],
            mode: PadMode::Constant,
        }),
    ]);
}

#[test]
fn reductions_and_norms() {
    let reduce = |op: ReduceOp| move |_: Dim| Op::Reduce { op, axes: vec![1], keep_dim: false };
    all([
        op("sum over nothing", &[&[4, N]], reduce(ReduceOp::Sum)),
        op("product over nothing", &[&[4, N]], reduce(ReduceOp::Prod)),
        op("sum of nothing", &[&[N, 4]], reduce(ReduceOp::Sum)),
        op("mean of nothing", &[&[N, 4]], reduce(ReduceOp::Mean)),
        op("softmax over nothing", &[&[4, N]], |_| Op::Softmax { axis: -1 }),
        op("softmax of nothing", &[&[N, 4]], |_| Op::Softmax { axis: -1 }),
        op("layer norm", &[&[2, N, 4], &[4], &[4]], |_| Op::LayerNorm { axis: -1, eps: 1e-5 }),
        op("RMS norm", &[&[2, N, 4], &[4]], |_| Op::RmsNorm { axis: -1, eps: 1e-5 }),
        op("cumulative", &[&[2, N]], |_| Op::Cumulative {
            op: ReduceOp::Sum,
            axis: 1,
            exclusive: false,
            reverse: false,
        }),
    ]);
}

#[test]
fn products_windows_and_attention() {
    let attention = |_: Dim| Op::Attention {
        num_heads: 2,
        head_dim: 4,
        mask: MaskKind::None,
        window: None,
        scale: None,
        unseen: Unseen::Zero,
    };
    let convolution = |_: Dim| Op::Conv {
        strides: vec![1],
        pads: vec![1, 1],
        dilations: vec![1],
        groups: 1,
        format: DataFormat::ChannelsFirst,
    };
    let masked = |_: Dim| Op::Attention {
        num_heads: 2,
        head_dim: 4,
        mask: MaskKind::Custom,
        window: None,
        scale: None,
        unseen: Unseen::Zero,
    };
    all([
        op("product of nothing", &[&[N, 5], &[5, 3]], |_| Op::MatMul),
        op("product over nothing", &[&[4, N], &[N, 3]], |_| Op::MatMul),
        op("product to nothing", &[&[4, 5], &[5, N]], |_| Op::MatMul),
        op("products of nothing", &[&[N, 4, 5], &[N, 5, 3]], |_| Op::MatMul),
        // Four rows of nothing become one, which counts as many elements.
        case("product over two dimensions", &[&[N, 4], &[4, N]], |g, x, n| {
            let rows = g.try_add(Op::Transpose { perm: vec![1, 0] }, &[x[0]]).unwrap();
            let all = Dim::from(n.extent() * Extent::Const(4));
            let rows = g.try_add(Op::Reshape { to: vec![Dim::Static(1), all] }, &[rows]).unwrap();
            let columns = g.try_add(Op::Reshape { to: vec![all, Dim::Static(1)] }, &[x[1]]).unwrap();
            g.try_add(Op::MatMul, &[rows, columns]).unwrap()
        }),
        op("keys of nothing", &[&[1, 2, 3, 4], &[1, 2, N, 4], &[1, 2, N, 4]], attention),
        op("many queries of no keys", &[&[1, 2, 9, 4], &[1, 2, N, 4], &[1, 2, N, 4]], attention),
        op("queries of nothing", &[&[1, 2, N, 4], &[1, 2, 3, 4], &[1, 2, 3, 4]], attention),
        op("masked", &[&[1, 3, 8], &[1, N, 8], &[1, N, 8], &[1, 1, 3, N]], masked),
        op("rope", &[&[1, 2, N, 4], &[N, 2], &[N, 2]], |_| Op::Rope {
            head_dim: 4,
            n_rot: 4,
            interleaved: false,
        }),
        op("convolution", &[&[N, 3, 8], &[4, 3, 3]], convolution),
        op("convolution of no channels", &[&[2, N, 8], &[4, N, 3]], convolution),
    ]);
}

#[test]
fn indices() {
    all([
        indexed("gather", &[&[5, 4], &[2, N]], 1, 5, Op::Gather { axis: 0 }),
        indexed("gather of empty rows", &[&[5, N], &[3]], 1, 5, Op::Gather { axis: 0 }),
        indexed("gather elements", &[&[5, 4], &[N, 4]], 1, 5, Op::GatherElements { axis: 0 }),
        indexed(
            "scatter elements",
            &[&[5, 4], &[N, 4], &[N, 4]],
            1,
            5,
            Op::ScatterElements { axis: 0, reduction: ScatterOp::Add },
        ),
        indexed(
            "scatter rows",
            &[&[5, 4], &[N, 1], &[N, 4]],
            1,
            5,
            Op::ScatterNd { reduction: ScatterOp::Set },
        ),
        case("iota", &[&[N]], |g, x, n| {
            let count = g.try_add(Op::Iota { to: vec![n], axis: 0, dtype: DType::F32 }, &[]).unwrap();
            g.try_add(Op::Binary(BinaryOp::Add), &[count, x[0]]).unwrap()
        }),
    ]);
}
