//! Convolutions with few channels in a group, through the whole pipeline: windows of every form against the oracle, with weights that are
//! packed before the run and that are not.

mod common;

use common::{against_oracle, backends, compile, oracle, run};
use rlx_ir::op::{Activation, DataFormat};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{Gen, random_bindings};
use rlx_ir::{DType, DimBinding, Graph, GraphExt, LirModule, Op, Shape, Value};
use rlx_opt::CompileOptions;

const FUNCTIONS: [Activation; 4] =
    [Activation::Relu, Activation::HardSwish, Activation::Silu, Activation::Neg];

/// What a convolution is like.
struct Case {
    dtype: DType,
    group: usize,
    channels: usize,
    filters: usize,
    size: Vec<usize>,
    kernel: Vec<usize>,
    stride: usize,
    dilation: usize,
    pads: Vec<usize>,
    function: Activation,
    /// Whether the weights are known before the run.
    fixed: bool,
}

impl Case {
    fn random(g: &mut Gen, at: usize) -> Case {
        let group = [1, 2, 4, 8, 16, 32, 48, 64][at % 8];
        let spatial = g.size(1..=2);
        // Most windows are three wide; those have tiles of their own.
        let three = g.chance(0.7);
        let kernel: Vec<usize> = (0..spatial).map(|_| if three { 3 } else { g.size(1..=5) }).collect();
        let dilation = if three { 1 } else { g.size(1..=2) };
        let pads: Vec<usize> = kernel.iter().map(|&k| g.size(0..=(k - 1) * dilation)).collect();
        let size = kernel.iter().map(|&k| (k - 1) * dilation + 1 + g.size(0..=16)).collect();
        let channels = group * g.size(2..=(72 / group).max(2));
        Case {
            dtype: [DType::F32, DType::F32, DType::BF16, DType::F16][at / 8 % 4],
            group,
            channels,
            filters: channels,
            size,
            kernel,
            stride: g.size(1..=3),
            dilation,
            pads: [&pads[..], &pads[..]].concat(),
            // Bounds, functions in registers, and those of a second pass.
            function: FUNCTIONS[g.size(0..=3)],
            fixed: g.chance(0.7),
        }
    }

    /// Groups of any size, with another number of filters: of one channel, of neighbours within a vector, of more.
    fn uneven(g: &mut Gen, at: usize) -> Case {
        let group = [1, 1, g.size(2..=16), g.size(2..=40)][at % 4];
        let (groups, filters) = (g.size(2..=9), [1, 2, g.size(1..=30), 16, 32][at % 5]);
        let channels = group * groups;
        Case { group, channels, filters: filters * groups, ..Case::random(g, at) }
    }

    /// The first convolution of a net for pictures: one group of few channels, any number of filters.
    fn image(g: &mut Gen) -> Case {
        let (channels, pad) = (g.size(2..=4), g.size(0..=1));
        Case {
            dtype: [DType::F32, DType::BF16, DType::F16][g.size(0..=2)],
            group: channels,
            channels,
            filters: [16, 32, 48, 64, 9, 24][g.size(0..=5)],
            size: vec![g.size(3..=12), g.size(3..=35)],
            kernel: vec![3; 2],
            stride: g.size(1..=2),
            dilation: 1,
            pads: vec![pad; 4],
            function: FUNCTIONS[g.size(0..=3)],
            fixed: g.chance(0.7),
        }
    }

    fn graph(&self) -> (Graph, Bindings) {
        let mut graph = Graph::new("grouped");
        let shapes = [
            ("x", [&[2, self.channels], &self.size[..]].concat()),
            ("w", [&[self.filters, self.group], &self.kernel[..]].concat()),
            ("b", vec![self.filters]),
        ];
        let mut nodes = Vec::new();
        for (name, dims) in shapes {
            let shape = Shape::new(&dims, self.dtype);
            let free = name == "x" || !self.fixed;
            nodes.push(if free { graph.input(name, shape) } else { graph.param(name, shape) });
        }
        let spatial = self.kernel.len();
        let op = Op::Conv {
            strides: vec![self.stride; spatial],
            pads: self.pads.clone(),
            dilations: vec![self.dilation; spatial],
            groups: self.channels / self.group,
            format: DataFormat::ChannelsFirst,
        };
        let y = graph.try_add(op, &nodes).unwrap();
        let y = graph.try_add(Op::Activation(self.function), &[y]).unwrap();
        graph.set_outputs(vec![y]);
        let bindings = random_bindings(&graph, &DimBinding::new(), 7);
        (graph, bindings)
    }
}

/// The formats of packed weights in a module.
fn formats(lir: &LirModule) -> Vec<String> {
    lir.buffers.iter().filter_map(|b| b.format).map(|f| f.name().to_owned()).collect()
}

#[test]
fn random_convolutions_agree_with_the_oracle_and_have_one_answer_for_all_threads() {
    let g = &mut Gen::new(53);
    let mut packed = 0;
    for at in 0..300 {
        let case = match at {
            ..192 => Case::random(g, at),
            192..234 => Case::image(g),
            _ => Case::uneven(g, at),
        };
        let (graph, bindings) = case.graph();
        let want = oracle(&graph, &bindings);
        let mut answers = Vec::new();
        for (name, backend) in backends() {
            let mut exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
            packed += usize::from(formats(exec.lir()) == ["GroupedWeights"]);
            let got = run(&mut *exec, &bindings, &DimBinding::new()).unwrap();
            if let Some(difference) = against_oracle(&want, &got) {
                panic!("{name}: {difference}\n{graph}");
            }
            answers.push(got);
        }
        let [.., one, two] = &answers[..] else { panic!("two backends at least") };
        assert!(one == two, "one thread and two\n{graph}");
    }
    assert!(packed >= 80 * backends().len(), "{packed} had their weights packed");
}

#[test]
fn images_that_are_part_of_others_are_read_as_if_they_were_whole() {
    // Channels, filters, groups: one group of few channels, several groups, depthwise.
    for (channels, filters, groups) in [(2, 16, 1), (3, 9, 1), (8, 8, 2), (8, 8, 8)] {
        for dtype in [DType::F32, DType::BF16] {
            let mut graph = Graph::new("part");
            let x = graph.input("x", Shape::new(&[2, 9, 6, channels], dtype));
            let w = graph.param("w", Shape::new(&[filters, channels / groups, 3, 3], dtype));
            let part = graph.narrow_(x, 1, 2, 5);
            let op = Op::Conv {
                strides: vec![1; 2],
                pads: vec![1; 4],
                dilations: vec![1; 2],
                groups,
                format: DataFormat::ChannelsLast,
            };
            let y = graph.try_add(op, &[part, w]).unwrap();
            graph.set_outputs(vec![y]);
            let bindings = random_bindings(&graph, &DimBinding::new(), 8);
            let want = oracle(&graph, &bindings);
            for (name, backend) in backends() {
                let mut exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
                let got = run(&mut *exec, &bindings, &DimBinding::new()).unwrap();
                if let Some(difference) = against_oracle(&want, &got) {
                    panic!("{name}: {difference}\n{graph}");
                }
            }
        }
    }
}

#[test]
fn an_infinite_number_reaches_the_windows_of_its_pixel_alone() {
    // The last of an odd number of channels is read beside another channel.
    for (channels, filters, groups) in [(3, 16, 1), (3, 32, 1), (6, 32, 2), (8, 16, 4), (16, 16, 2)] {
        let mut graph = Graph::new("infinite");
        let x = graph.input("x", Shape::new(&[1, 7, 9, channels], DType::BF16));
        let w = graph.param("w", Shape::new(&[filters, channels / groups, 3, 3], DType::BF16));
        let op = Op::Conv {
            strides: vec![1; 2],
            pads: vec![0; 4],
            dilations: vec![1; 2],
            groups,
            format: DataFormat::ChannelsLast,
        };
        let y = graph.try_add(op, &[x, w]).unwrap();
        graph.set_outputs(vec![y]);
        for channel in 0..channels {
            let mut bindings = random_bindings(&graph, &DimBinding::new(), 9);
            let mut image = vec![1.0; 7 * 9 * channels];
            image[(3 * 9 + 8) * channels + channel] = f64::INFINITY;
            bindings.set_input("x", Value::float(DType::BF16, &[1, 7, 9, channels], image));
            let want = oracle(&graph, &bindings);
            for (name, backend) in backends() {
                let mut exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
                let got = run(&mut *exec, &bindings, &DimBinding::new()).unwrap();
                if let Some(difference) = against_oracle(&want, &got) {
                    panic!("{name}: {difference}\n{graph}");
                }
            }
        }
    }
}
