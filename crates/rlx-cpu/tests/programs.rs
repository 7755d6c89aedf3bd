//! Whole programs: packed weights, regions behind anchors, parameters that change, clones, open dimensions.

mod common;

use std::sync::Arc;

use common::{against_oracle, backends, check, compile, f32s, oracle, run, run_again, unfused, values};
use rlx_cpu::CpuBackend;
use rlx_ir::op::{Activation, BinaryOp, Body, CmpOp, DataFormat, ReduceOp};
use rlx_ir::oracle::Bindings;
use rlx_ir::tensor::Elements;
use rlx_ir::{DType, Dim, DimBinding, ErrorKind, Graph, GraphExt, NodeId, Op, Shape, Value, Weight, sym};
use rlx_opt::CompileOptions;

/// `act(x·w + bias) + residual`, then something that no epilogue expresses.
fn dense_layer(
    x: Shape,
    k: usize,
    n: usize,
    tail: impl Fn(&mut Graph, NodeId) -> NodeId,
) -> (Graph, Bindings) {
    let mut g = Graph::new("layer");
    let xs = x.static_dims().unwrap();
    let a = g.input("x", x.clone());
    let w = g.param("w", f32s(&[k, n]));
    let bias = g.param("bias", f32s(&[n]));
    let y = g.try_add(Op::MatMul, &[a, w]).unwrap();
    let y = g.try_add(Op::Binary(BinaryOp::Add), &[y, bias]).unwrap();
    let y = tail(&mut g, y);
    g.set_outputs(vec![y]);
    let mut b = Bindings::default();
    b.set_input("x", values(1, &xs));
    b.set_param("w", values(2, &[k, n]));
    b.set_param("bias", values(3, &[n]));
    (g, b)
}

#[test]
fn epilogues_of_every_form_match_the_oracle() {
    for (m, k, n) in [(1, 3, 5), (7, 33, 50), (16, 64, 96), (65, 20, 130)] {
        let plain = |_: &mut Graph, y| y;
        let relu = |g: &mut Graph, y| g.try_add(Op::Activation(Activation::Relu), &[y]).unwrap();
        let gelu = |g: &mut Graph, y| g.try_add(Op::Activation(Activation::Gelu), &[y]).unwrap();
        let both = |g: &mut Graph, y| {
            // Used twice: a tile program follows the matmul.
            let t = g.try_add(Op::Activation(Activation::Sigmoid), &[y]).unwrap();
            g.try_add(Op::Binary(BinaryOp::Mul), &[t, y]).unwrap()
        };
        let cast = |g: &mut Graph, y| g.try_add(Op::Cast { to: DType::I32 }, &[y]).unwrap();
        let none = DimBinding::new();
        let leaky = |g: &mut Graph, y| {
            let (alpha, zero) = (g.scalar(0.1, DType::F32), g.scalar(0.0, DType::F32));
            let below = g.try_add(Op::Compare(CmpOp::Lt), &[y, zero]).unwrap();
            let scaled = g.try_add(Op::Binary(BinaryOp::Mul), &[y, alpha]).unwrap();
            g.try_add(Op::Where, &[below, scaled, y]).unwrap()
        };
        // What is chosen is not what a leaky rectifier chooses.
        let other = |g: &mut Graph, y| {
            let (alpha, zero) = (g.scalar(0.1, DType::F32), g.scalar(0.0, DType::F32));
            let below = g.try_add(Op::Compare(CmpOp::Lt), &[y, zero]).unwrap();
            let scaled = g.try_add(Op::Binary(BinaryOp::Mul), &[y, alpha]).unwrap();
            g.try_add(Op::Where, &[below, y, scaled]).unwrap()
        };
        for tail in [&plain as &dyn Fn(&mut Graph, NodeId) -> NodeId, &relu, &gelu, &both, &leaky, &other] {
            let (g, b) = dense_layer(f32s(&[2, m, k]), k, n, tail);
            check(&g, &b, &none);
        }
        // Values are multiples of 1/64 here, so that truncation does not hinge on the last bit.
        let (g, b) = dense_layer(f32s(&[m, k]), k, n, cast);
        check(&g, &b, &none);
    }
}

#[test]
fn a_residual_is_added_before_or_after_the_activation() {
    for after in [false, true] {
        let (mut g, mut b) = dense_layer(f32s(&[9, 40]), 40, 70, |_, y| y);
        let r = g.input("r", f32s(&[9, 70]));
        let mut y = g.outputs[0];
        let act = |g: &mut Graph, y| g.try_add(Op::Activation(Activation::Tanh), &[y]).unwrap();
        if after {
            y = act(&mut g, y);
        }
        y = g.try_add(Op::Binary(BinaryOp::Add), &[r, y]).unwrap();
        if !after {
            y = act(&mut g, y);
        }
        g.set_outputs(vec![y]);
        b.set_input("r", values(4, &[9, 70]));
        check(&g, &b, &DimBinding::new());
    }
}

/// A convolution with bias, residual and activation.
fn conv_layer(
    x: &[usize],
    w: &[usize],
    attrs: [Vec<usize>; 3],
    groups: usize,
    bias: bool,
) -> (Graph, Bindings) {
    let [strides, pads, dilations] = attrs;
    let mut g = Graph::new("conv");
    let mut b = Bindings::default();
    let xi = g.input("x", f32s(x));
    let wi = g.param("w", f32s(w));
    let mut inputs = vec![xi, wi];
    if bias {
        inputs.push(g.param("bias", f32s(&w[..1])));
        b.set_param("bias", values(7, &w[..1]));
    }
    let op = Op::Conv { strides, pads, dilations, groups, format: DataFormat::ChannelsLast };
    let y = g.try_add(op, &inputs).unwrap();
    let dims = g.shape(y).static_dims().unwrap();
    let r = g.input("r", f32s(&dims));
    let y = g.try_add(Op::Binary(BinaryOp::Add), &[y, r]).unwrap();
    let y = g.try_add(Op::Activation(Activation::Relu), &[y]).unwrap();
    g.set_outputs(vec![y]);
    b.set_input("x", values(5, x));
    b.set_param("w", values(6, w));
    b.set_input("r", values(8, &dims));
    (g, b)
}

#[test]
fn convolutions_take_every_route() {
    let v = |a: &[usize]| a.to_vec();
    type Case<'a> = (&'a [usize], &'a [usize], [Vec<usize>; 3], usize);
    let cases: [Case<'_>; 11] = [
        // One pixel: a matmul.
        (&[2, 5, 4, 20], &[30, 20, 1, 1], [v(&[1, 1]), v(&[0; 4]), v(&[1, 1])], 1),
        // One pixel with steps: windows.
        (&[1, 7, 7, 20], &[50, 20, 1, 1], [v(&[2, 2]), v(&[0; 4]), v(&[1, 1])], 1),
        (&[2, 9, 8, 16], &[24, 16, 3, 3], [v(&[1, 1]), v(&[1; 4]), v(&[1, 1])], 1),
        (&[1, 11, 10, 16], &[60, 16, 3, 2], [v(&[2, 1]), v(&[1, 0, 2, 1]), v(&[2, 3])], 1),
        // Few channels: copied with the border.
        (&[2, 12, 13, 3], &[10, 3, 5, 3], [v(&[2, 2]), v(&[2, 1, 2, 1]), v(&[1, 1])], 1),
        // Groups, one spatial dimension.
        (&[1, 6, 6, 12], &[8, 3, 3, 3], [v(&[1, 1]), v(&[1; 4]), v(&[1, 1])], 4),
        (&[2, 15, 9], &[7, 9, 4], [v(&[2]), v(&[1, 2]), v(&[2])], 1),
        // Taps far apart: most are in the padding.
        (&[1, 12, 16, 20], &[50, 20, 3, 3], [v(&[1, 1]), v(&[10; 4]), v(&[10, 10])], 1),
        // Groups that fill packed panels.
        (&[1, 6, 5, 10], &[96, 5, 3, 3], [v(&[1, 1]), v(&[1; 4]), v(&[1, 1])], 2),
        // One group for each channel.
        (&[2, 9, 8, 20], &[20, 1, 3, 3], [v(&[2, 1]), v(&[1; 4]), v(&[1, 1])], 20),
        (&[1, 14, 7], &[7, 1, 5], [v(&[1]), v(&[2, 2]), v(&[1])], 7),
    ];
    for (x, w, attrs, groups) in cases {
        for bias in [false, true] {
            let (g, b) = conv_layer(x, w, attrs.clone(), groups, bias);
            check(&g, &b, &DimBinding::new());
        }
    }
}

#[test]
fn a_changed_parameter_is_packed_again_and_clones_keep_theirs() {
    let (g, mut b) = dense_layer(f32s(&[4, 30]), 30, 60, |_, y| y);
    let backend = CpuBackend::new().with_threads(1).unwrap();
    let mut exec = compile(&g, &backend, &CompileOptions::default()).unwrap();
    let none = DimBinding::new();
    let before = run(&mut *exec, &b, &none).unwrap();
    assert!(against_oracle(&oracle(&g, &b), &before).is_none());
    let mut clone = exec.try_clone().unwrap();
    let w = values(99, &[30, 60]);
    let index = exec.lir().params.iter().position(|p| p.name == "w").unwrap();
    exec.set_param(index, Arc::new(Weight::owned(w.dtype, &w.dims, w.encode()).unwrap())).unwrap();
    assert_eq!(run_again(&mut *clone, &b, &none).unwrap(), before, "the clone keeps its weights");
    let changed = b.clone();
    b.set_param("w", w);
    let got = run_again(&mut *exec, &changed, &none).unwrap();
    assert!(against_oracle(&oracle(&g, &b), &got).is_none(), "the new weights are used");
    assert_eq!(run_again(&mut *clone, &changed, &none).unwrap(), before);
}

#[test]
fn any_of_many_parameters_behind_one_weight_may_change() {
    const MANY: usize = 150;
    let (mut g, mut b) = (Graph::new("many"), Bindings::default());
    let x = g.input("x", f32s(&[2, 3]));
    b.set_input("x", values(1, &[2, 3]));
    let names: Vec<String> = (0..=MANY).map(|i| format!("w{i}")).collect();
    let params: Vec<NodeId> = names.iter().map(|name| g.param(name.clone(), f32s(&[3, 3]))).collect();
    for (name, seed) in names.iter().zip(2..) {
        b.set_param(name.clone(), values(seed, &[3, 3]));
    }
    // A chain of weights, weights side by side, and one by itself.
    let chain = params[1..MANY].iter().fold(params[0], |sum, &w| {
        let root = g.act(Activation::Tanh, sum);
        g.add(root, w)
    });
    let joined = g.concat_(&params[..MANY], 1);
    let joined = g.sum(joined, &[1], true);
    let single = g.act(Activation::Tanh, params[MANY]);
    let w = g.add(chain, joined);
    let y = g.mm(x, w);
    let z = g.mm(x, single);
    g.set_outputs(vec![y, z]);
    let backend = CpuBackend::new().with_threads(1).unwrap();
    let none = DimBinding::new();
    for options in [CompileOptions::default(), unfused()] {
        let mut exec = compile(&g, &backend, &options).unwrap();
        let first = run(&mut *exec, &b, &none).unwrap();
        assert!(against_oracle(&oracle(&g, &b), &first).is_none());
        let mut changed = b.clone();
        for name in ["w0", "w77", "w149", "w150"] {
            let w = values(99, &[3, 3]);
            let index = exec.lir().params.iter().position(|p| p.name == name).unwrap();
            exec.set_param(index, Arc::new(Weight::owned(w.dtype, &w.dims, w.encode()).unwrap())).unwrap();
            changed.set_param(name, w);
            let got = run_again(&mut *exec, &changed, &none).unwrap();
            assert!(against_oracle(&oracle(&g, &changed), &got).is_none(), "{name}");
        }
    }
}

/// `softmax((x·w) · xᵀ)` with open batch and length.
fn open_graph() -> Graph {
    let mut g = Graph::new("open");
    let dims = [Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ), Dim::Static(12)];
    let x = g.input("x", Shape::from_dims(&dims, DType::F32));
    let w = g.param("w", f32s(&[12, 12]));
    let q = g.try_add(Op::MatMul, &[x, w]).unwrap();
    let t = g.try_add(Op::Transpose { perm: vec![0, 2, 1] }, &[x]).unwrap();
    let s = g.try_add(Op::MatMul, &[q, t]).unwrap();
    let s = g.try_add(Op::Softmax { axis: -1 }, &[s]).unwrap();
    let y = g.try_add(Op::MatMul, &[s, x]).unwrap();
    let flat = Dim::from(Dim::Dynamic(sym::BATCH).extent() * Dim::Dynamic(sym::SEQ).extent());
    let y = g.try_add(Op::Reshape { to: vec![flat, Dim::Static(12)] }, &[y]).unwrap();
    g.set_outputs(vec![y]);
    g
}

#[test]
fn open_dimensions_bind_again_and_give_the_bits_of_fixed_ones() {
    let g = open_graph();
    let backend = CpuBackend::new().with_threads(2).unwrap();
    let mut open = compile(&g, &backend, &CompileOptions::default()).unwrap();
    for (batch, seq) in [(1, 3), (2, 17), (1, 1), (5, 40), (2, 17), (3, 0)] {
        let mut b = Bindings::default();
        b.set_input("x", values(batch as u64 * 100 + seq as u64, &[batch, seq, 12]));
        b.set_param("w", values(1, &[12, 12]));
        let dims = DimBinding::batch_seq(batch, seq);
        let got = run(&mut *open, &b, &dims).unwrap();
        assert!(against_oracle(&oracle(&g, &b), &got).is_none(), "{batch}×{seq}");
        let fixed = CompileOptions::default().dim_binding(dims.clone());
        let mut fixed = compile(&g, &backend, &fixed).unwrap();
        assert_eq!(run(&mut *fixed, &b, &dims).unwrap(), got, "{batch}×{seq}");
    }
}

#[test]
fn dimensions_that_must_agree_are_checked() {
    let mut g = Graph::new("sum");
    let a = g.input("a", Shape::from_dims(&[Dim::Dynamic(sym::BATCH)], DType::F32));
    let b = g.input("b", Shape::from_dims(&[Dim::Dynamic(sym::SEQ)], DType::F32));
    let y = g.try_add(Op::Binary(BinaryOp::Add), &[a, b]).unwrap();
    g.set_outputs(vec![y]);
    let mut exec = compile(&g, &CpuBackend::new(), &CompileOptions::default()).unwrap();
    let mut bindings = Bindings::default();
    bindings.set_input("a", values(1, &[3])).set_input("b", values(2, &[4]));
    let e = run(&mut *exec, &bindings, &DimBinding::batch_seq(3, 4)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Dimension);
    assert!(e.node().is_some(), "{e}");
    bindings.set_input("b", values(2, &[1]));
    assert_eq!(run(&mut *exec, &bindings, &DimBinding::batch_seq(3, 1)).unwrap()[0].len(), 12);
}

#[test]
fn a_missing_parameter_is_named() {
    let (g, b) = dense_layer(f32s(&[1, 3]), 3, 2, |_, y| y);
    let mut exec = compile(&g, &CpuBackend::new(), &CompileOptions::default()).unwrap();
    let e = run_again(&mut *exec, &b, &DimBinding::new()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Binding);
    assert!(e.to_string().contains("\"w\""), "{e}");
}

#[test]
fn long_attention_rows_are_masked_in_vectors() {
    let mut g = Graph::new("attention");
    let (q, kv) = (f32s(&[2, 150, 24]), f32s(&[2, 37, 12]));
    let ids = [
        g.input("q", q),
        g.input("k", kv.clone()),
        g.input("v", kv),
        g.input("mask", f32s(&[2, 1, 150, 37])),
    ];
    let op = Op::Attention {
        num_heads: 6,
        head_dim: 4,
        mask: rlx_ir::op::MaskKind::Custom,
        window: None,
        scale: None,
        unseen: rlx_ir::op::Unseen::Zero,
    };
    let y = g.try_add(op, &ids).unwrap();
    g.set_outputs(vec![y]);
    let mut mask = values(4, &[2, 1, 150, 37]);
    if let rlx_ir::tensor::Elements::Float(m) = &mut mask.elements {
        // One query that may see nothing, and one that sees a single key.
        m[..37].fill(f64::NEG_INFINITY);
        m[37..73].fill(f64::NEG_INFINITY);
    }
    let mut b = Bindings::default();
    b.set_input("q", values(1, &[2, 150, 24])).set_input("k", values(2, &[2, 37, 12]));
    b.set_input("v", values(3, &[2, 37, 12])).set_input("mask", mask);
    check(&g, &b, &DimBinding::new());
}

/// Rows of `x` with an element above 0 are counted, gathered and multiplied; what is above 0 then is counted again. The
/// constants of `count_of_rows` mention a count but depend on nothing.
fn counting_graph() -> Graph {
    let add = |g: &mut Graph, op: Op, inputs: &[NodeId]| g.try_add(op, inputs).unwrap();
    let (rows, places) = (Dim::Dynamic(sym::named("rows found")), Dim::Dynamic(sym::named("places found")));
    let mut g = Graph::new("counting");
    let x = g.input("x", Shape::from_dims(&[Dim::Dynamic(sym::SEQ), Dim::Static(4)], DType::F32));
    let w = g.param("w", f32s(&[4, 3]));
    let zero = g.constant(Value::float(DType::F32, &[], vec![0.0]).to_const());
    let most = add(&mut g, Op::Reduce { op: ReduceOp::Max, axes: vec![1], keep_dim: false }, &[x]);
    let above = add(&mut g, Op::Compare(CmpOp::Gt), &[most, zero]);
    let found = add(&mut g, Op::NonZero { count: rows }, &[above]);
    let found = add(&mut g, Op::Reshape { to: vec![rows] }, &[found]);
    let kept = add(&mut g, Op::Gather { axis: 0 }, &[x, found]);
    let product = add(&mut g, Op::MatMul, &[kept, w]);
    let tanh = add(&mut g, Op::Activation(Activation::Tanh), &[product]);
    let soft = add(&mut g, Op::Softmax { axis: -1 }, &[tanh]);
    let both = add(&mut g, Op::Concat { axis: 0 }, &[kept, x, kept]);
    let above = add(&mut g, Op::Compare(CmpOp::Gt), &[tanh, zero]);
    let again = add(&mut g, Op::NonZero { count: places }, &[above]);
    let count_of_rows = add(&mut g, Op::Iota { to: vec![rows], axis: 0, dtype: DType::I64 }, &[]);
    g.set_outputs(vec![found, soft, both, again, count_of_rows]);
    g
}

#[test]
fn dimensions_that_a_run_finds_change_from_run_to_run() {
    let graph = counting_graph();
    rlx_ir::verify_ok(&graph).unwrap();
    let inputs = |seed: u64, rows: usize, shift: f64| {
        let mut x = values(seed, &[rows, 4]);
        if let Elements::Float(v) = &mut x.elements {
            v.iter_mut().for_each(|v| *v += shift);
        }
        let mut b = Bindings::default();
        b.set_input("x", x.rounded());
        b.set_param("w", values(7, &[4, 3]));
        (b, DimBinding::from_pairs(&[(sym::SEQ, rows)]))
    };
    for (name, backend) in backends() {
        for options in [CompileOptions::default(), unfused()] {
            let mut exec = compile(&graph, &backend, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
            let symbols = exec.lir().symbols.clone();
            assert_eq!(symbols, [sym::SEQ], "what a run finds is not asked of the caller");
            // None, some, all; the same dimensions with other counts; more rows than before.
            let cases = [
                (1, 9, -0.6),
                (2, 9, -3.0),
                (3, 9, 3.0),
                (4, 9, -0.9),
                (5, 40, -0.8),
                (6, 1, 3.0),
                (7, 0, 0.0),
            ];
            for (seed, rows, shift) in cases {
                let (bindings, dims) = inputs(seed, rows, shift);
                let want = oracle(&graph, &bindings);
                let got = run(&mut *exec, &bindings, &dims).unwrap_or_else(|e| panic!("{name} {seed}: {e}"));
                let sizes: Vec<usize> = got.iter().map(Vec::len).collect();
                let right: Vec<usize> = want.iter().map(|v| v.encode().len()).collect();
                assert_eq!(sizes, right, "{name} {seed}");
                if let Some(difference) = against_oracle(&want, &got) {
                    panic!("{name} {seed}: {difference}\n{graph}\n{}", exec.lir());
                }
                assert_eq!(exec.found(), [want[0].dims[0] as i64, want[3].dims[1] as i64]);
            }
        }
    }
}

#[test]
fn a_count_is_bound_once_and_before_it_is_mentioned() {
    let count = Dim::Dynamic(sym::named("rows found"));
    let mut g = Graph::new("twice");
    let x = g.input("x", f32s(&[4]));
    let early = g.try_add(Op::Iota { to: vec![count], axis: 0, dtype: DType::I64 }, &[]).unwrap();
    let a = g.try_add(Op::NonZero { count }, &[x]).unwrap();
    g.set_outputs(vec![early, a]);
    let error = rlx_ir::verify_ok(&g).unwrap_err();
    assert!(error.to_string().contains("mentions rows found before"), "{error}");
    let mut g = Graph::new("twice");
    let x = g.input("x", f32s(&[4]));
    let a = g.try_add(Op::NonZero { count }, &[x]).unwrap();
    let y = g.try_add(Op::Activation(Activation::Neg), &[x]).unwrap();
    let b = g.try_add(Op::NonZero { count }, &[y]).unwrap();
    g.set_outputs(vec![a, b]);
    assert!(rlx_ir::verify_ok(&g).unwrap_err().to_string().contains("bound by another"));
}

#[test]
fn a_region_may_give_an_operand_back_and_compute_what_nothing_reads() {
    let mut body = Graph::new("back");
    let i = body.input("i0", f32s(&[3, 70]));
    body.try_add(Op::Activation(Activation::Neg), &[i]).unwrap();
    body.set_outputs(vec![i]);
    let mut g = Graph::new("back");
    let x = g.input("x", f32s(&[3, 70]));
    let y = g.try_add(Op::Region { body: Arc::new(Body { graph: body }) }, &[x]).unwrap();
    let z = g.try_add(Op::Activation(Activation::Abs), &[y]).unwrap();
    g.set_outputs(vec![y, z]);
    let mut bindings = Bindings::default();
    bindings.set_input("x", values(3, &[3, 70]));
    check(&g, &bindings, &DimBinding::new());
}

/// Memory that is planned again, for larger dimensions than before, is as aligned as the options ask.
#[test]
fn memory_planned_at_run_time_keeps_its_alignment() {
    const ALIGNMENT: usize = 1 << 14;
    let mut g = Graph::new("aligned");
    let n = Dim::Dynamic(sym::named("alignment.n"));
    let x = g.input("x", Shape::from_dims(&[n], DType::F32));
    let exp = g.try_add(Op::Activation(Activation::Exp), &[x]).unwrap();
    let sum = g.try_add(Op::Binary(BinaryOp::Add), &[exp, x]).unwrap();
    g.set_outputs(vec![exp, sum]);
    let symbol = sym::named("alignment.n");
    for shared_arena in [false, true] {
        let options =
            CompileOptions { arena_alignment: ALIGNMENT, shared_arena, ..CompileOptions::default() };
        let mut exec = compile(&g, &CpuBackend::new(), &options).unwrap();
        for n in [3, 100, 70_000, 1_000_000] {
            let mut bindings = Bindings::default();
            bindings.set_input("x", values(n as u64, &[n]));
            run(&mut *exec, &bindings, &DimBinding::from_pairs(&[(symbol, n)])).unwrap();
            for output in 0..2 {
                let at = exec.output(output).unwrap().as_ptr().addr();
                assert_eq!(
                    at % ALIGNMENT,
                    0,
                    "output {output} of {n} elements, shared arena: {shared_arena}"
                );
            }
        }
    }
}
