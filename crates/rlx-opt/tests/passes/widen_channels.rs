//! Convolutions of few channels with more: the same results, to the bit where sums are exact, and only where it pays.

use std::sync::Arc;

use crate::common::{Anything, apply, apply_with, assert_same_results, count, strict};
use rlx_ir::lir::{LirModule, StepKind};
use rlx_ir::op::DataFormat;
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Dim, DimBinding, Graph, Node, NodeId, Op, OpKind, Shape, Value, sym, text};
use rlx_opt::passes::{choose_layout, widen_channels};
use rlx_opt::{CompileOptions, CompilePipeline};

/// A convolution: of every spatial dimension its size, kernel, stride, and zeros before and behind.
struct Case {
    channels: usize,
    filters: usize,
    axes: Vec<[usize; 5]>,
    dilations: Vec<usize>,
    bias: bool,
    /// The image is given as f32 with its channels first; as bf16 with its channels last.
    first: bool,
}

impl Case {
    fn of(channels: usize, axes: &[[usize; 5]]) -> Case {
        let dilations = vec![1; axes.len()];
        Case { channels, filters: 5, axes: axes.to_vec(), dilations, bias: true, first: true }
    }

    fn random(g: &mut Gen) -> Case {
        let rank = g.size(1..=3);
        let strides: &[usize] = if rank == 1 { &[1, 2, 3, 4, 16] } else { &[1, 2, 3, 4] };
        let mut axis = |most: usize| {
            let (kernel, stride) = (g.size(1..=most), g.pick(strides));
            let [before, behind] = [0, 1].map(|_| g.size(0..=(kernel - 1).min(4)));
            let size = (kernel + g.size(0..=11)).saturating_sub(before + behind).max(1);
            [size, kernel, stride, before, behind]
        };
        let mut axes: Vec<[usize; 5]> = (0..rank).map(|i| axis(if i + 1 == rank { 9 } else { 4 })).collect();
        if g.chance(0.2) {
            // Patches.
            axes.iter_mut().for_each(|axis| (axis[1], axis[3], axis[4]) = (axis[2], 0, 0));
            axes.iter_mut().for_each(|axis| axis[0] += axis[1]);
        }
        let dilations: Vec<usize> = axes.iter().map(|_| if g.chance(0.2) { 2 } else { 1 }).collect();
        // No window is larger than what it is in.
        axes.iter_mut().zip(&dilations).for_each(|(axis, d)| axis[0] += (axis[1] - 1) * (d - 1));
        let (channels, filters) = (g.size(1..=4), g.size(1..=3));
        Case { channels, filters, axes, dilations, bias: g.chance(0.5), first: g.chance(0.6) }
    }

    fn each(&self, of: usize) -> impl Iterator<Item = usize> {
        self.axes.iter().map(move |axis| axis[of])
    }

    fn op(&self) -> Op {
        Op::Conv {
            strides: self.each(2).collect(),
            pads: self.each(3).chain(self.each(4)).collect(),
            dilations: self.dilations.clone(),
            groups: 1,
            format: DataFormat::ChannelsLast,
        }
    }

    /// The graph as it is when the pass runs.
    fn graph(&self, batch: Dim) -> Graph {
        let columns: Vec<Dim> = self.each(0).map(Dim::Static).collect();
        self.graph_of(batch, &columns)
    }

    fn graph_of(&self, batch: Dim, sizes: &[Dim]) -> Graph {
        let mut graph = Graph::new("g");
        let (channels, n) = (Dim::Static(self.channels), sizes.len());
        let image = if self.first {
            let dims: Vec<Dim> = [batch, channels].into_iter().chain(sizes.iter().copied()).collect();
            let x = graph.input("x", Shape::from_dims(&dims, DType::F32));
            let x = graph.try_add(Op::Cast { to: DType::BF16 }, &[x]).unwrap();
            let perm = [0].into_iter().chain(2..n + 2).chain([1]).collect();
            graph.try_add(Op::Transpose { perm }, &[x]).unwrap()
        } else {
            let dims: Vec<Dim> = [batch].into_iter().chain(sizes.iter().copied()).chain([channels]).collect();
            graph.input("x", Shape::from_dims(&dims, DType::BF16))
        };
        let weights: Vec<usize> = [self.filters, self.channels].into_iter().chain(self.each(1)).collect();
        let mut inputs = vec![image, graph.param("w", Shape::new(&weights, DType::BF16))];
        if self.bias {
            inputs.push(graph.param("b", Shape::new(&[self.filters], DType::BF16)));
        }
        let conv = graph.try_add(self.op(), &inputs).unwrap_or_else(|e| panic!("{e}\n{graph}"));
        graph.set_outputs(vec![conv]);
        graph
    }
}

/// Small whole numbers for all inputs and parameters: sums of their products are exact in any order.
fn whole_numbers(graph: &Graph, sizes: &DimBinding, seed: u64) -> Bindings {
    let (mut g, mut bindings) = (Gen::new(seed), Bindings::default());
    for node in graph.nodes() {
        let (Op::Input { name } | Op::Param { name }) = &node.op else { continue };
        let dims = node.shape.bind(sizes).static_dims().unwrap();
        let numbers = (0..dims.iter().product()).map(|_| g.int(-3..=3) as f64).collect();
        let value = Value::float(node.shape.dtype(), &dims, numbers);
        match node.op {
            Op::Input { .. } => bindings.set_input(name.clone(), value),
            _ => bindings.set_param(name.clone(), value),
        };
    }
    bindings
}

fn assert_equal_results(before: &Graph, after: &Graph, sizes: &DimBinding) {
    // A size that is twice a symbol does not say what the symbol is.
    let [before, after] = [before, after].map(|graph| graph.try_bind(sizes).unwrap());
    for seed in 0..2 {
        let given = whole_numbers(&before, sizes, seed);
        let [want, got] = [&before, &after].map(|graph| oracle::evaluate(graph, &given).unwrap());
        assert_eq!(want, got, "before: {before}after: {after}");
    }
}

fn conv(graph: &Graph) -> &Node {
    graph.nodes().iter().find(|n| matches!(n.op, Op::Conv { .. })).unwrap()
}

/// Strides, pads and the channels of the convolution of a graph.
fn shape_of(graph: &Graph) -> (Vec<usize>, Vec<usize>, usize) {
    let node = conv(graph);
    let Op::Conv { strides, pads, .. } = &node.op else { unreachable!() };
    let channels = graph.shape(node.inputs[1]).dim(1).as_static().unwrap();
    (strides.clone(), pads.clone(), channels)
}

#[test]
fn random_convolutions_have_equal_results_with_more_channels() {
    let mut widened = [0; 4];
    for seed in 0..600 {
        let case = Case::random(&mut Gen::new(seed));
        let before = case.graph(Dim::Static(2));
        let after = apply(widen_channels::run, &before);
        if after != before {
            widened[case.axes.len()] += 1;
            let (strides, _, channels) = shape_of(&after);
            assert!(strides.last() == Some(&1) && channels.is_multiple_of(4), "{after}");
            assert_equal_results(&before, &after, &DimBinding::new());
        }
    }
    assert!(widened[1..].iter().all(|&n| n > 60), "{widened:?}");
}

#[test]
fn first_layers_of_nets_have_channels_that_are_copied_together() {
    let same = |kernel, stride, pad, size| [[size, kernel, stride, pad, pad]; 2];
    // ResNet: a column of zeros in front of the kernel, so that windows begin at whole places.
    let found = |axes: [[usize; 5]; 2], channels| {
        let mut case = Case::of(channels, &axes);
        (case.filters, case.bias) = (2, false);
        let before = case.graph(Dim::Static(1));
        let after = apply(widen_channels::run, &before);
        assert_equal_results(&before, &after, &DimBinding::new());
        let taps = after.shape(conv(&after).inputs[1]).dim(3).as_static().unwrap();
        (shape_of(&after), taps)
    };
    assert_eq!(found(same(7, 2, 3, 32), 3), ((vec![2, 1], vec![3, 2, 3, 1], 8), 4));
    // ViT: all of a patch are its channels.
    assert_eq!(found(same(16, 16, 0, 32), 3), ((vec![1; 2], vec![0; 4], 768), 1));
    assert_eq!(found(same(14, 14, 0, 28), 3), ((vec![1; 2], vec![0; 4], 16 * 14 * 3), 1));
    assert_eq!(found(same(4, 4, 0, 8), 3), ((vec![1; 2], vec![0; 4], 48), 1));
    // SegFormer: patches that overlap.
    assert_eq!(found(same(7, 4, 3, 32), 3), ((vec![4, 1], vec![3, 1, 3, 0], 16), 2));
    // VGG: nothing but a channel of zeros.
    assert_eq!(found(same(3, 1, 1, 8), 3), ((vec![1, 1], vec![1; 4], 4), 3));
    // MobileNet, with the padding of both kinds of frameworks.
    assert_eq!(found(same(3, 2, 1, 16), 3), ((vec![2, 1], vec![1, 1, 1, 0], 8), 2));
    assert_eq!(found([[16, 3, 2, 0, 1]; 2], 3), ((vec![2, 1], vec![0, 0, 1, 1], 8), 2));
    // A column in front of the kernel would make it longer; it is in front of the image.
    assert_eq!(found(same(4, 2, 1, 8), 3), ((vec![2, 1], vec![1, 0, 1, 0], 8), 2));
    // The last columns are not read.
    assert_eq!(found(same(4, 4, 0, 11), 3), ((vec![1; 2], vec![0; 4], 48), 1));
    assert_eq!(found([[9, 5, 4, 0, 0], [11, 4, 4, 0, 0]], 2), ((vec![4, 1], vec![0; 4], 8), 1));
}

#[test]
fn sizes_that_are_not_known_are_those_of_the_result() {
    let case = Case::of(3, &[[0, 7, 2, 3, 3], [16, 7, 2, 3, 3]]);
    let (batch, height) = (sym::BATCH, sym::named("height"));
    let sizes = DimBinding::from_pairs(&[(batch, 2), (height, 9), (sym::named("width"), 5)]);
    let dims = |columns| [Dim::from(rlx_ir::Extent::sym(height)), columns];
    let width = rlx_ir::Extent::sym(sym::named("width"));
    let batch = Dim::from(rlx_ir::Extent::sym(batch));
    for (columns, stride) in [(Dim::Static(15), 1), (Dim::from(width * 2), 1), (Dim::from(width), 2)] {
        let before = case.graph_of(batch, &dims(columns));
        let after = apply(widen_channels::run, &before);
        assert_eq!(shape_of(&after).0, [2, stride], "{after}");
        assert_equal_results(&before, &after, &sizes);
    }
    // Without a stride, no column is divided.
    let case = Case::of(3, &[[0, 3, 1, 1, 1], [0, 3, 1, 0, 2]]);
    let before = case.graph_of(batch, &dims(Dim::from(width)));
    let after = apply(widen_channels::run, &before);
    assert_eq!(shape_of(&after), (vec![1, 1], vec![1, 0, 1, 2], 4), "{after}");
    assert_equal_results(&before, &after, &sizes);
}

#[test]
fn what_would_not_pay_or_change_bits_stays() {
    let stays = |case: &Case| {
        let before = case.graph(Dim::Static(1));
        assert_eq!(apply(widen_channels::run, &before), before);
    };
    // As many copies as before, each of more zeros than elements.
    stays(&Case::of(1, &[[9, 3, 1, 1, 1]; 2]));
    // Many channels are copied together as they are.
    stays(&Case::of(5, &[[9, 7, 2, 3, 3]; 2]));
    stays(&Case { first: false, ..Case::of(4, &[[9, 3, 1, 1, 1]; 2]) });
    let resnet = Case::of(3, &[[16, 7, 2, 3, 3]; 2]).graph(Dim::Static(1));
    assert_eq!(apply_with(widen_channels::run, &resnet, &strict()), resnet);
    assert_ne!(apply(widen_channels::run, &resnet), resnet);
    // Weights that are computed in the run, and gaps in the kernel.
    let text = resnet.to_string();
    for other in [
        text.replace("Param {name=\"w\"}", "Input {name=\"w\"}"),
        text.replace("dilations=[1, 1]", "dilations=[1, 2]").replace("8, 8, 5]", "8, 5, 5]"),
    ] {
        let graph = text::parse(&other).unwrap();
        assert_ne!(graph, resnet);
        assert_eq!(apply(widen_channels::run, &graph), graph);
    }
}

/// The module of a net's first layer in bf16, of an image with its channels first.
fn module(size: usize, weights: [usize; 4], stride: usize, pad: usize, cast: bool) -> (LirModule, Graph) {
    let mut graph = Graph::new("g");
    let dtype = if cast { DType::F32 } else { DType::BF16 };
    let dims = [Dim::from(rlx_ir::Extent::sym(sym::BATCH)), Dim::Static(weights[1])];
    let dims = [dims[0], dims[1], Dim::Static(size), Dim::Static(size)];
    let mut x: NodeId = graph.input("x", Shape::from_dims(&dims, dtype));
    if cast {
        x = graph.try_add(Op::Cast { to: DType::BF16 }, &[x]).unwrap();
    }
    let w = graph.param("w", Shape::new(&weights, DType::BF16));
    let b = graph.param("b", Shape::new(&weights[..1], DType::BF16));
    let op = Op::Conv {
        strides: vec![stride; 2],
        pads: vec![pad; 4],
        dilations: vec![1; 2],
        groups: 1,
        format: DataFormat::ChannelsFirst,
    };
    let conv = graph.try_add(op, &[x, w, b]).unwrap();
    let result = graph.try_add(Op::Activation(rlx_ir::op::Activation::Relu), &[conv]).unwrap();
    graph.set_outputs(vec![result]);
    let target = Arc::new(Anything { channels_last: true, ..Anything::default() });
    let compiled = CompilePipeline::new(target, CompileOptions::default()).compile(&graph).unwrap();
    (compiled.lir, graph)
}

/// The ops of a step, which may be a region.
fn ops(kind: &StepKind) -> Vec<OpKind> {
    match kind {
        StepKind::Op(Op::Region { body }) => {
            let computed = body.graph.nodes().iter().filter(|n| !matches!(n.op, Op::Input { .. }));
            computed.map(|n| n.op.kind()).collect()
        }
        StepKind::Op(op) => vec![op.kind()],
        StepKind::Copy => Vec::new(),
    }
}

#[test]
fn a_first_layer_is_one_step_that_moves_and_one_that_convolves() {
    for (cast, moves) in [(true, vec![OpKind::Pad, OpKind::Cast]), (false, vec![OpKind::Pad])] {
        let (lir, _) = module(224, [64, 3, 7, 7], 2, 3, cast);
        let found: Vec<_> = lir.steps.iter().map(|step| ops(&step.kind)).collect();
        assert_eq!(found[..2], [moves, vec![OpKind::Conv, OpKind::Activation]], "{lir}");
        let image = &lir.steps[1].inputs[0].view;
        assert!(image.is_dense(), "{lir}");
        assert_eq!(image.dims[1..], [224, 112, 8].map(rlx_ir::Extent::Const), "{lir}");
    }
    // Patches have no zeros, and are cast or copied.
    for (cast, moves) in [(true, vec![OpKind::Cast]), (false, vec![])] {
        let (lir, _) = module(224, [768, 3, 16, 16], 16, 0, cast);
        let found: Vec<_> = lir.steps.iter().map(|step| ops(&step.kind)).collect();
        assert_eq!(found[..2], [moves, vec![OpKind::Conv, OpKind::Activation]], "{lir}");
        assert!(lir.steps[1].inputs[0].view.is_dense(), "{lir}");
    }
}

#[test]
fn the_layout_that_the_pass_before_chose_is_kept() {
    let (_, graph) = module(20, [4, 3, 5, 5], 2, 2, true);
    let before = apply(choose_layout::run, &graph);
    let after = apply(widen_channels::run, &before);
    assert_eq!(count(&after, OpKind::Pad), 2, "{after}");
    let fixed = rlx_opt::facts::fixed_nodes(&after);
    let moved = after.nodes().iter().filter(|n| n.op.kind() == OpKind::Transpose && !fixed[n.id.index()]);
    assert_eq!(moved.count(), 2, "one at each end: {after}");
    assert_same_results(&graph, &after, &DimBinding::from_pairs(&[(sym::BATCH, 2)]));
}

#[test]
fn an_image_that_is_computed_is_cast_where_it_is_computed() {
    let mut graph = Graph::new("g");
    let bytes = graph.input("x", Shape::new(&[2, 3, 32, 32], DType::U8));
    let floats = graph.try_add(Op::Cast { to: DType::F32 }, &[bytes]).unwrap();
    let mean = graph.constant(Value::float(DType::F32, &[], vec![128.0]).to_const());
    let around = graph.try_add(Op::Binary(rlx_ir::op::BinaryOp::Sub), &[floats, mean]).unwrap();
    let image = graph.try_add(Op::Cast { to: DType::BF16 }, &[around]).unwrap();
    let weights = graph.param("w", Shape::new(&[4, 3, 7, 7], DType::BF16));
    let (strides, pads, dilations) = (vec![2; 2], vec![3; 4], vec![1; 2]);
    let op = Op::Conv { strides, pads, dilations, groups: 1, format: DataFormat::ChannelsFirst };
    let conv = graph.try_add(op, &[image, weights]).unwrap();
    graph.set_outputs(vec![conv]);
    let after = apply(widen_channels::run, &apply(choose_layout::run, &graph));
    assert_same_results(&graph, &after, &DimBinding::new());
    // Two bytes are written and read between the steps.
    let types: Vec<DType> =
        after.nodes().iter().filter(|n| matches!(n.op, Op::Pad { .. })).map(|n| n.shape.dtype()).collect();
    assert_eq!(types, [DType::BF16; 2], "{after}");
    let target = Arc::new(Anything { channels_last: true, ..Anything::default() });
    let lir = CompilePipeline::new(target, CompileOptions::default()).compile(&graph).unwrap().lir;
    let found: Vec<_> = lir.steps.iter().map(|step| ops(&step.kind)).collect();
    assert_eq!(found[1..3], [vec![OpKind::Pad], vec![OpKind::Conv]], "{lir}");
}
