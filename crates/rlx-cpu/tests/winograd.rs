//! Convolutions by Winograd's algorithm, through the whole pipeline: when it is chosen, what it computes, and weights in a format
//! that a step cannot read.

mod common;

use std::collections::BTreeMap;

use common::{against_oracle, backends, compile, f32s, oracle, run, values};
use rlx_cpu::CpuBackend;
use rlx_ir::op::{Activation, BinaryOp, DataFormat, PackFormat};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::Gen;
use rlx_ir::{DType, Dim, DimBinding, ErrorKind, Graph, LirModule, Op, Shape, sym};
use rlx_opt::{CompileOptions, Numerics};

/// A convolution of 3 × 3, in volumes of several frames too, of 5 × 5, or along lines, where it may be dilated, and what is behind it.
struct Case {
    graph: Graph,
    bindings: Bindings,
    dims: DimBinding,
}

fn conv(stride: usize, dilations: &[usize], pads: Vec<usize>, format: DataFormat) -> Op {
    let strides = vec![stride; dilations.len()];
    Op::Conv { strides, pads, dilations: dilations.to_vec(), groups: 1, format }
}

fn random_case(g: &mut Gen, at: usize, dtype: DType) -> Case {
    // Along lines fewer multiplications are saved, which pays for more channels.
    let more = if at % 5 < 3 { 1 } else { 2 };
    let (batch, channels, filters) = (g.size(1..=3), more * g.size(28..=64), more * g.size(28..=80));
    let (kernel, dilations) = match at % 5 {
        0 => (vec![3, 3], vec![1; 2]),
        1 => (vec![g.size(1..=3), 3, 3], vec![1; 3]),
        2 => (vec![5, 5], vec![1; 2]),
        3 => (vec![[3, 9, 11][g.size(0..=2)]], vec![g.size(1..=3)]),
        _ => (vec![1, [3, 9][g.size(0..=1)]], vec![1, g.size(1..=2)]),
    };
    let span = |d: usize| (kernel[d] - 1) * dilations[d];
    let size: Vec<usize> = (0..kernel.len())
        .map(|d| match kernel.len() - d {
            3 => kernel[d] + g.size(0..=4),
            1 if kernel.len() == 1 => span(d) + g.size(20..=60),
            _ => span(d) + g.size(6..=19),
        })
        .collect();
    let half: Vec<usize> = kernel.iter().map(|&k| g.size(0..=k.min(2) - 1)).collect();
    let mut graph = Graph::new("convolution");
    // Where channels are first, the result has to be transposed, and fewer convolutions take the algorithm.
    let last = at % 4 != 3;
    let format = if last { DataFormat::ChannelsLast } else { DataFormat::ChannelsFirst };
    let image = if last { [&size[..], &[channels]].concat() } else { [&[channels], &size[..]].concat() };
    let open = [Dim::Dynamic(sym::BATCH)].into_iter();
    let dims: Vec<Dim> = open.chain(image.iter().map(|&n| Dim::Static(n))).collect();
    let x = graph.input("x", Shape::from_dims(&dims, dtype));
    let w = [&[filters, channels], &kernel[..]].concat();
    let shape = |dims: &[usize]| Shape::new(dims, dtype);
    let (weights, bias) = (graph.param("w", shape(&w)), graph.param("b", shape(&[filters])));
    let op = conv(1, &dilations, [&half[..], &half[..]].concat(), format);
    let mut y = graph.try_add(op, &[x, weights, bias]).unwrap();
    let out = graph.shape(y).clone();
    let draw = |seed: u64, dims: &[usize]| Gen::new(seed).value(dtype, dims, -1.0..1.0);
    let mut bindings = Bindings::default();
    if at.is_multiple_of(2) {
        let r = graph.input("r", out.clone());
        let dims: Vec<usize> = out.dims().iter().map(|d| d.as_static().unwrap_or(batch)).collect();
        bindings.set_input("r", draw(5, &dims));
        y = graph.try_add(Op::Binary(BinaryOp::Add), &[y, r]).unwrap();
    }
    let function = [Activation::Relu, Activation::Gelu, Activation::Sigmoid][at / 2 % 3];
    y = graph.try_add(Op::Activation(function), &[y]).unwrap();
    graph.set_outputs(vec![y]);
    bindings.set_input("x", draw(1, &[&[batch], &image[..]].concat()));
    bindings.set_param("w", draw(2, &w));
    bindings.set_param("b", draw(3, &[filters]));
    Case { graph, bindings, dims: DimBinding::from_pairs(&[(sym::BATCH, batch)]) }
}

/// The formats of packed weights in a module.
fn formats(lir: &LirModule) -> Vec<String> {
    lir.buffers.iter().filter_map(|b| b.format).map(|f| f.name().to_owned()).collect()
}

#[test]
fn random_convolutions_agree_with_the_oracle_and_have_one_answer_for_all_threads() {
    let (g, mut chosen) = (&mut Gen::new(31), BTreeMap::<(DType, String), usize>::new());
    for at in 0..40 {
        let dtype = [DType::F32, DType::BF16, DType::F32, DType::F16][at / 10];
        let Case { graph, bindings, dims } = random_case(g, at, dtype);
        let want = oracle(&graph, &bindings);
        let mut answers = Vec::new();
        for (name, backend) in backends() {
            let mut exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
            *chosen.entry((dtype, formats(exec.lir())[0].clone())).or_default() += 1;
            let got = run(&mut *exec, &bindings, &dims).unwrap();
            if let Some(difference) = against_oracle(&want, &got) {
                panic!("{name}: {difference}\n{graph}");
            }
            answers.push(got);
        }
        let [.., one, two] = &answers[..] else { panic!("two backends at least") };
        assert!(one == two, "one thread and two\n{graph}");
    }
    // Where products of bf16 are faster than those of f32, fewer convolutions take the algorithm.
    let least = [
        (DType::F32, "WinogradWeights2", 1),
        (DType::F32, "WinogradWeights4", 4),
        (DType::F32, "WinogradWeightsLine", 4),
        (DType::F16, "WinogradWeights4", 1),
        (DType::F16, "WinogradWeightsLine", 2),
        (DType::BF16, "WinogradWeights4", 1),
    ];
    for (dtype, format, least) in least {
        let times = chosen.get(&(dtype, format.to_owned())).copied().unwrap_or_default();
        assert!(times >= least * backends().len(), "{dtype} {format}: {chosen:?}");
    }
}

#[test]
fn strict_numerics_and_small_images_keep_the_direct_sum() {
    let case = random_case(&mut Gen::new(31), 0, DType::F32);
    let backend = CpuBackend::new();
    let strict = CompileOptions::default().numerics(Numerics::Strict);
    assert_eq!(formats(compile(&case.graph, &backend, &strict).unwrap().lir()), ["ConvWeights"]);
    // One pixel: a tile would be computed for it, and weights read that are nearly twice as many.
    let mut graph = Graph::new("pixel");
    let (x, w) = (graph.input("x", f32s(&[1, 64, 1, 1])), graph.param("w", f32s(&[64, 64, 3, 3])));
    let y = graph.try_add(conv(1, &[1; 2], vec![1; 4], DataFormat::ChannelsFirst), &[x, w]).unwrap();
    graph.set_outputs(vec![y]);
    let exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
    assert_eq!(formats(exec.lir()), ["ConvWeights"]);
}

#[test]
fn few_channels_keep_the_direct_sum_where_the_result_would_have_to_be_transposed() {
    let formats_of = |format: DataFormat, x: &[usize]| {
        let mut graph = Graph::new("filters");
        let (x, w) = (graph.input("x", f32s(x)), graph.param("w", f32s(&[160, 9, 3, 3])));
        let y = graph.try_add(conv(1, &[1; 2], vec![1; 4], format), &[x, w]).unwrap();
        let y = graph.try_add(Op::Activation(Activation::Relu), &[y]).unwrap();
        graph.set_outputs(vec![y]);
        formats(compile(&graph, &CpuBackend::new(), &CompileOptions::default()).unwrap().lir())
    };
    assert_eq!(formats_of(DataFormat::ChannelsFirst, &[1, 9, 60, 60]), ["ConvWeights"]);
    assert_eq!(formats_of(DataFormat::ChannelsLast, &[1, 60, 60, 9]), ["WinogradWeights4"]);
}

#[test]
fn weights_in_a_format_that_the_step_does_not_read_are_an_error() {
    let packed = |format: &str, stride: usize| {
        let mut graph = Graph::new("foreign");
        let (x, w) = (graph.input("x", f32s(&[1, 9, 9, 16])), graph.param("w", f32s(&[32, 16, 3, 3])));
        let w = graph.try_add(Op::Pack { format: PackFormat::new(format) }, &[w]).unwrap();
        let y = graph.try_add(conv(stride, &[1; 2], vec![1; 4], DataFormat::ChannelsLast), &[x, w]).unwrap();
        graph.set_outputs(vec![y]);
        let mut bindings = Bindings::default();
        bindings.set_input("x", values(1, &[1, 9, 9, 16]));
        bindings.set_param("w", values(2, &[32, 16, 3, 3]));
        let mut exec = compile(&graph, &CpuBackend::new(), &CompileOptions::default())?;
        run(&mut *exec, &bindings, &DimBinding::new())
    };
    for format in ["WinogradWeights2", "WinogradWeights4", "WinogradWeightsLine", "ConvWeights"] {
        packed(format, 1).unwrap();
    }
    packed("ConvWeights", 2).unwrap();
    let wrong =
        [("WinogradWeights2", 2), ("WinogradWeights4", 2), ("WinogradWeightsLine", 2), ("GroupedWeights", 1)];
    for (format, stride) in wrong {
        let error = packed(format, stride).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidGraph, "{format}: {error}");
        assert!(error.message().contains(format), "{error}");
    }
}
