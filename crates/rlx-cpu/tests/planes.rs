//! Convolutions of what is given as planes (NCHW) into planes: every way to compute one against the oracle, and without copies before and behind.

mod common;

use common::{against_oracle, backends, compile, oracle, run};
use rlx_ir::lir::StepKind;
use rlx_ir::op::{Activation, BinaryOp, DataFormat};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{Gen, random_bindings};
use rlx_ir::{DType, DimBinding, Graph, GraphExt, LirModule, Op, Shape};
use rlx_opt::{CompileOptions, Numerics};

/// A convolution of planes, with what is behind it.
fn convolution(g: &mut Gen, dtype: DType) -> Graph {
    let mut graph = Graph::new("planes");
    let (batch, spatial) = (g.size(1..=2), g.size(1..=3));
    // One pixel, which is most of what has its own way; windows, of few channels and many.
    let kernel: Vec<usize> = match g.size(0..=3) {
        0 | 1 => vec![1; spatial],
        2 => vec![3; spatial],
        _ => (0..spatial).map(|_| g.size(1..=4)).collect(),
    };
    let dilation = if g.chance(0.7) { 1 } else { 2 };
    let size: Vec<usize> =
        kernel.iter().map(|&k| k * dilation + g.size(0..=[300, 20, 6][spatial - 1])).collect();
    // One group, channels of their own, and groups of a few.
    let (groups, channels, filters) = match g.size(0..=4) {
        0 => (g.size(2..=40), 1, [1, g.size(1..=3)][g.size(0..=1)]),
        1 => (g.size(2..=4), g.size(1..=18), g.size(1..=20)),
        _ => (1, [1, 3, 8, g.size(1..=70)][g.size(0..=3)], g.size(1..=100)),
    };
    let (stride, pad) = (if g.chance(0.7) { 1 } else { 2 }, usize::from(kernel[0] > 1 && g.chance(0.5)));
    let x = graph.input("x", Shape::new(&[&[batch, groups * channels], &size[..]].concat(), dtype));
    let w = graph.param("w", Shape::new(&[&[groups * filters, channels], &kernel[..]].concat(), dtype));
    let b = graph.param("b", Shape::new(&[groups * filters], dtype));
    let op = Op::Conv {
        strides: vec![stride; spatial],
        pads: vec![pad; 2 * spatial],
        dilations: vec![dilation; spatial],
        groups,
        format: DataFormat::ChannelsFirst,
    };
    let inputs = if g.chance(0.7) { vec![x, w, b] } else { vec![x, w] };
    let mut y = graph.try_add(op, &inputs).unwrap();
    match g.size(0..=3) {
        0 => y = graph.try_add(Op::Activation(Activation::Relu), &[y]).unwrap(),
        1 => y = graph.try_add(Op::Activation(Activation::Gelu), &[y]).unwrap(),
        2 => {
            let residual = graph.input("residual", graph.shape(y).clone());
            y = graph.try_add(Op::Binary(BinaryOp::Add), &[y, residual]).unwrap();
        }
        _ => {}
    }
    // What wants the result dense may stand behind a reshape.
    if g.chance(0.3) {
        let pixels: usize = graph.shape(y).static_dims().unwrap()[2..].iter().product();
        y = graph.reshape_(y, &[batch, groups * filters, pixels].map(|n| n as i64));
    }
    graph.set_outputs(vec![y]);
    graph
}

/// How many steps copy.
fn copies(lir: &LirModule) -> usize {
    lir.steps.iter().filter(|step| matches!(step.kind, StepKind::Copy)).count()
}

fn check(graph: &Graph, bindings: &Bindings) {
    let want = oracle(graph, bindings);
    let mut answers = Vec::new();
    for (name, backend) in backends() {
        let mut exec = compile(graph, &backend, &CompileOptions::default()).unwrap();
        let got = run(&mut *exec, bindings, &DimBinding::new()).unwrap();
        if let Some(difference) = against_oracle(&want, &got) {
            panic!("{name}: {difference}\n{graph}\n{}", exec.lir());
        }
        answers.push(got);
    }
    let [.., one, two] = &answers[..] else { panic!("two backends at least") };
    assert!(one == two, "one thread and two\n{graph}");
}

#[test]
fn random_convolutions_agree_with_the_oracle_and_have_one_answer_for_all_threads() {
    let g = &mut Gen::new(61);
    for at in 0..240 {
        let dtype = [DType::F32, DType::F32, DType::BF16, DType::F16][at % 4];
        let graph = convolution(g, dtype);
        check(&graph, &random_bindings(&graph, &DimBinding::new(), at as u64));
    }
}

#[test]
fn long_lines_are_computed_in_pieces() {
    // Image and groups, channels and filters of each, kernel, stride, padding: more of a line than a task copies.
    type Case = (&'static [usize], [usize; 3], &'static [usize], usize, usize);
    let cases: [Case; 6] = [
        (&[9000], [1, 20, 3], &[3], 1, 1),
        (&[9001], [1, 20, 9], &[4], 2, 2),
        (&[14_000], [1, 13, 2], &[5], 3, 7),
        (&[20_000], [3, 1, 1], &[7], 1, 3),
        (&[3, 4500], [2, 17, 2], &[3, 3], 1, 1),
        (&[2, 7001], [2, 1, 1], &[2, 5], 2, 2),
    ];
    for (size, [groups, channels, filters], kernel, stride, pad) in cases {
        let mut graph = Graph::new("lines");
        let shape = |front: [usize; 2], rest: &[usize]| Shape::new(&[&front, rest].concat(), DType::F32);
        let x = graph.input("x", shape([1, groups * channels], size));
        let w = graph.param("w", shape([groups * filters, channels], kernel));
        let op = Op::Conv {
            strides: vec![stride; size.len()],
            pads: vec![pad; 2 * size.len()],
            dilations: vec![1; size.len()],
            groups,
            format: DataFormat::ChannelsFirst,
        };
        let y = graph.try_add(op, &[x, w]).unwrap();
        let y = graph.try_add(Op::Activation(Activation::Gelu), &[y]).unwrap();
        graph.set_outputs(vec![y]);
        check(&graph, &random_bindings(&graph, &DimBinding::new(), 5));
    }
}

/// A convolution of planes by an odd kernel, whose result is as large as the image.
fn same_size(kernel: usize, groups: usize) -> Op {
    Op::Conv {
        strides: vec![1; 2],
        pads: vec![kernel / 2; 4],
        dilations: vec![1; 2],
        groups,
        format: DataFormat::ChannelsFirst,
    }
}

#[test]
fn planes_are_neither_copied_before_nor_behind() {
    let (_, backend) = backends().pop().unwrap();
    // The kernel's size, and groups.
    for (kernel, groups) in [(1, 1), (3, 1), (3, 4), (1, 2)] {
        let mut graph = Graph::new("planes");
        let x = graph.input("x", Shape::new(&[2, 24, 9, 7], DType::F32));
        let w = graph.param("w", Shape::new(&[20, 24 / groups, kernel, kernel], DType::F32));
        let y = graph.try_add(same_size(kernel, groups), &[x, w]).unwrap();
        let y = graph.try_add(Op::Activation(Activation::Relu), &[y]).unwrap();
        graph.set_outputs(vec![y]);
        let exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
        assert_eq!(copies(exec.lir()), 0, "{}", exec.lir());
    }
}

#[test]
fn rows_of_channels_stay_where_they_are_read() {
    // Of two convolutions, neither what is between them nor what both are given is in another order than they read.
    let (_, backend) = backends().pop().unwrap();
    let mut graph = Graph::new("two");
    let x = graph.input("x", Shape::new(&[1, 30, 12, 5], DType::F32));
    let mut y = x;
    for name in ["first", "second"] {
        let w = graph.param(name, Shape::new(&[30, 30, 1, 1], DType::F32));
        let op = Op::Conv {
            strides: vec![1; 2],
            pads: vec![0; 4],
            dilations: vec![1; 2],
            groups: 1,
            format: DataFormat::ChannelsFirst,
        };
        y = graph.try_add(op, &[y, w]).unwrap();
    }
    graph.set_outputs(vec![y]);
    let exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
    assert_eq!((exec.lir().steps.len(), copies(exec.lir())), (2, 0), "{}", exec.lir());
    let between = &exec.lir().steps[0].outputs[0];
    assert!(between.view.is_dense(), "{}", exec.lir());
    check(&graph, &random_bindings(&graph, &DimBinding::new(), 3));
}

/// Asserts that the result has the same bits with its channels last, which are written as they are computed.
#[track_caller]
fn has_the_bits_of_rows(planes: Graph, seed: u64) {
    let (_, backend) = backends().pop().unwrap();
    let dims = planes.shape(planes.outputs[0]).static_dims().unwrap();
    let (batch, channels, pixels) = (dims[0], dims[1], dims[2..].iter().product::<usize>());
    let mut rows = planes.clone();
    let y = rows.reshape_(rows.outputs[0], &[batch, channels, pixels].map(|n| n as i64));
    let y = rows.try_add(Op::Transpose { perm: vec![0, 2, 1] }, &[y]).unwrap();
    rows.set_outputs(vec![y]);
    let bindings = random_bindings(&planes, &DimBinding::new(), seed);
    // Otherwise only one of them may be computed by Winograd's algorithm.
    let options = CompileOptions::default().numerics(Numerics::Strict);
    let [planes, rows] = [planes, rows].map(|graph| {
        let mut exec = compile(&graph, &backend, &options).unwrap();
        let results = run(&mut *exec, &bindings, &DimBinding::new()).unwrap();
        let words = results[0].chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap()));
        (words.collect::<Vec<_>>(), graph)
    });
    for (i, &bits) in planes.0.iter().enumerate() {
        let (image, channel, pixel) = (i / pixels / channels, i / pixels % channels, i % pixels);
        assert_eq!(bits, rows.0[(image * pixels + pixel) * channels + channel], "{}", planes.1);
    }
}

#[test]
fn planes_have_the_bits_of_rows_of_channels() {
    let g = &mut Gen::new(62);
    for at in 0..60 {
        has_the_bits_of_rows(convolution(g, DType::F32), at);
    }
}

#[test]
fn columns_of_windows_have_the_bits_of_rows_of_channels() {
    let g = &mut Gen::new(64);
    for at in 0..60 {
        let mut graph = Graph::new("columns");
        let (spatial, channels, filters) = (g.size(2..=3), g.size(1..=9), g.size(60..=130));
        let mut several = |range: std::ops::RangeInclusive<usize>, n: usize| -> Vec<usize> {
            (0..n).map(|_| g.size(range.clone())).collect()
        };
        let (kernel, strides, dilations) =
            (several(1..=4, spatial), several(1..=3, spatial), several(1..=2, spatial));
        let pads = several(0..=2, 2 * spatial);
        // Lines that end a little behind a vector, where vectors along them are least full.
        let mut size: Vec<usize> = several(1..=5, spatial);
        size[spatial - 1] = 17 + at as usize % 4;
        size[spatial - 2] = 6;
        for (i, size) in size.iter_mut().enumerate() {
            let reach = (*size - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1;
            *size = reach.saturating_sub(pads[i] + pads[spatial + i]).max(1);
        }
        let x = graph.input("x", Shape::new(&[&[2, channels], &size[..]].concat(), DType::F32));
        let w = graph.param("w", Shape::new(&[&[filters, channels], &kernel[..]].concat(), DType::F32));
        let b = graph.param("b", Shape::new(&[filters], DType::F32));
        let op = Op::Conv { strides, pads, dilations, groups: 1, format: DataFormat::ChannelsFirst };
        let y = graph.try_add(op, &[x, w, b]).unwrap();
        graph.set_outputs(vec![y]);
        check(&graph, &random_bindings(&graph, &DimBinding::new(), at));
        has_the_bits_of_rows(graph, at);
    }
}

#[test]
fn depthwise_planes_have_the_bits_of_rows_of_channels() {
    let g = &mut Gen::new(63);
    for at in 0..60 {
        let mut graph = Graph::new("depthwise");
        let channels = g.size(2..=6);
        let (kernel, strides, dilations) = (
            [(); 2].map(|()| g.size(1..=5)),
            [g.size(1..=3), if g.chance(0.7) { 1 } else { g.size(2..=3) }],
            [(); 2].map(|()| g.size(1..=3)),
        );
        let reach = [0, 1].map(|d| (kernel[d] - 1) * dilations[d] + 1);
        // From fewer lines than a tile has to more than a task has, and lines of a part of a vector to many vectors.
        let size = [reach[0] + g.size(0..=90), reach[1] + g.size(0..=220)];
        let x = graph.input("x", Shape::new(&[g.size(1..=2), channels, size[0], size[1]], DType::F32));
        let w = graph.param("w", Shape::new(&[channels, 1, kernel[0], kernel[1]], DType::F32));
        let b = graph.param("b", Shape::new(&[channels], DType::F32));
        let op = Op::Conv {
            strides: strides.to_vec(),
            pads: (0..4).map(|_| g.size(0..=2)).collect(),
            dilations: dilations.to_vec(),
            groups: channels,
            format: DataFormat::ChannelsFirst,
        };
        let inputs = if g.chance(0.7) { vec![x, w, b] } else { vec![x, w] };
        let mut y = graph.try_add(op, &inputs).unwrap();
        match g.size(0..=2) {
            0 => y = graph.try_add(Op::Activation(Activation::Relu), &[y]).unwrap(),
            1 => y = graph.try_add(Op::Activation(Activation::Gelu), &[y]).unwrap(),
            _ => {}
        }
        graph.set_outputs(vec![y]);
        has_the_bits_of_rows(graph, at);
    }
}

#[test]
fn a_step_may_be_longer_than_any_image() {
    let mut graph = Graph::new("step");
    let x = graph.input("x", Shape::new(&[1, 8, 5, 40], DType::F32));
    let w = graph.param("w", Shape::new(&[8, 4, 3, 3], DType::F32));
    let op = Op::Conv {
        strides: vec![1 << 30, 1],
        pads: vec![0; 4],
        dilations: vec![1; 2],
        groups: 2,
        format: DataFormat::ChannelsFirst,
    };
    let y = graph.try_add(op, &[x, w]).unwrap();
    graph.set_outputs(vec![y]);
    check(&graph, &random_bindings(&graph, &DimBinding::new(), 1));
}

#[test]
fn volumes_of_one_frame_are_images() {
    let g = &mut Gen::new(63);
    // Whether the frame of the result is one of the padding; groups whose weights are packed, and are not.
    for (at, (padding, groups)) in [(0, 1), (0, 2), (1, 1), (1, 2)].into_iter().enumerate() {
        let mut graph = Graph::new("volume");
        let filters = groups * 7;
        let x = graph.input("x", Shape::new(&[1, groups * 60, 1, 20, 33], DType::F32));
        let w = graph.param("w", Shape::new(&[filters, 60, 1, g.size(2..=3), 3], DType::F32));
        let op = Op::Conv {
            strides: vec![3, 1, 1],
            pads: vec![padding, 0, 1, 0, 0, 1],
            dilations: vec![1; 3],
            groups,
            format: DataFormat::ChannelsFirst,
        };
        let y = graph.try_add(op, &[x, w]).unwrap();
        graph.set_outputs(vec![y]);
        check(&graph, &random_bindings(&graph, &DimBinding::new(), at as u64));
    }
}

/// A convolution that widens planes, one of each of their channels, and one that narrows them: without planes, these are steps in bands.
fn inverted_bottleneck(dtype: DType, [channels, wide, size]: [usize; 3]) -> Graph {
    let mut graph = Graph::new("inverted bottleneck");
    let x = graph.input("x", Shape::new(&[1, channels, size, size], dtype));
    let mut conv = |x, name: &str, [filters, of_group, kernel]: [usize; 3], groups| {
        let w = graph.param(name, Shape::new(&[filters, of_group, kernel, kernel], dtype));
        graph.try_add(same_size(kernel, groups), &[x, w]).unwrap()
    };
    let y = conv(x, "expand", [wide, channels, 1], 1);
    let y = conv(y, "depthwise", [wide, 1, 3], wide);
    let y = conv(y, "project", [channels, wide, 1], 1);
    graph.set_outputs(vec![y]);
    graph
}

/// A band wrote the narrow result to where it would have been transposed from, and nobody did.
#[test]
fn images_that_are_planes_before_and_behind_are_not_computed_in_bands() {
    for (dtype, extents) in [
        (DType::F32, [32, 128, 40]),
        (DType::F32, [16, 96, 56]),
        (DType::BF16, [32, 128, 48]),
        (DType::F16, [16, 128, 60]),
    ] {
        let graph = inverted_bottleneck(dtype, extents);
        check(&graph, &random_bindings(&graph, &DimBinding::new(), 5));
    }
}
