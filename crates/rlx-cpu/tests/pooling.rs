//! Pooling between all pairs of layouts: from planes to planes, of one into the other, and of pixels with their channels, against the oracle, with the
//! same bits in every layout and on one, two and three threads.

mod common;

use common::{against_oracle, backends, compile, oracle, run};
use rlx_cpu::CpuBackend;
use rlx_ir::lir::StepKind;
use rlx_ir::op::{DataFormat, PoolKind};
use rlx_ir::oracle::{Bindings, evaluate_op};
use rlx_ir::testing::{Gen, random_bindings};
use rlx_ir::{DType, DimBinding, Graph, NodeId, Op, Shape, Value};
use rlx_opt::CompileOptions;

/// Sizes and attributes, of an image `[n, c, spatial…]`.
struct Pooling {
    dtype: DType,
    dims: Vec<usize>,
    op: Op,
}

fn random(g: &mut Gen) -> Pooling {
    let dtype =
        [DType::F32, DType::F32, DType::F32, DType::BF16, DType::F16, DType::U8, DType::I8][g.size(0..=6)];
    let spatial = g.size(1..=3);
    let kind = if dtype.is_int() || g.chance(0.5) { PoolKind::Max } else { PoolKind::Average };
    let mut several = |range: std::ops::RangeInclusive<usize>, n: usize| -> Vec<usize> {
        (0..n).map(|_| g.size(range.clone())).collect()
    };
    let (kernel, strides) = (several(1..=4, spatial), several(1..=3, spatial));
    let dilations = if several(0..=1, 1) == [0] { vec![1; spatial] } else { several(1..=3, spatial) };
    let mut size = several(1..=[200, 40, 7][spatial - 1], spatial);
    let mut pads = vec![0; 2 * spatial];
    for i in 0..spatial {
        let reach = (kernel[i] - 1) * dilations[i] + 1;
        (pads[i], pads[spatial + i]) = (several(0..=kernel[i] - 1, 1)[0], several(0..=kernel[i] - 1, 1)[0]);
        size[i] += reach;
    }
    let dims = [&several(1..=2, 1)[..], &[[1, 3, 16, 37][several(0..=3, 1)[0]]], &size].concat();
    let count_include_pad = several(0..=1, 1) == [1];
    let format = DataFormat::ChannelsFirst;
    let op = Op::Pool { kind, kernel, strides, pads, dilations, ceil_mode: false, count_include_pad, format };
    Pooling { dtype, dims, op }
}

/// The channels of `id` moved to the end, or from there to the front.
fn moved(graph: &mut Graph, id: NodeId, to_last: bool) -> NodeId {
    let rank = graph.shape(id).rank();
    let perm = match to_last {
        true => [0].into_iter().chain(2..rank).chain([1]).collect(),
        false => [0, rank - 1].into_iter().chain(1..rank - 1).collect(),
    };
    graph.try_add(Op::Transpose { perm }, &[id]).unwrap()
}

impl Pooling {
    fn image(&self, g: &mut Gen) -> Value {
        if self.dtype.is_float() {
            return g.value(self.dtype, &self.dims, -2.0..2.0);
        }
        let least = if self.dtype == DType::I8 { -128 } else { 0 };
        let all = (0..self.dims.iter().product()).map(|_| least + g.size(0..=255) as i128).collect();
        Value::int(self.dtype, &self.dims, all)
    }

    /// A graph of it whose image, and whose result, has its channels last or first.
    fn graph(&self, [x_last, y_last]: [bool; 2]) -> Graph {
        let mut graph = Graph::new("pooling");
        let (mut dims, channels) = (self.dims.clone(), self.dims[1]);
        if x_last {
            dims.remove(1);
            dims.push(channels);
        }
        let mut at = graph.input("x", Shape::new(&dims, self.dtype));
        if x_last {
            at = moved(&mut graph, at, false);
        }
        at = graph.try_add(self.op.clone(), &[at]).unwrap();
        if y_last {
            at = moved(&mut graph, at, true);
        }
        graph.set_outputs(vec![at]);
        graph
    }
}

/// The bytes of the result on every instruction set and number of threads, which are right and all the same.
fn answer(graph: &Graph, bindings: &Bindings) -> Vec<u8> {
    let want = oracle(graph, bindings);
    let mut all = backends();
    all.push(("3 threads".into(), CpuBackend::new().with_threads(3).expect("a pool")));
    let mut answers = Vec::new();
    for (name, backend) in all {
        let mut exec = compile(graph, &backend, &CompileOptions::default()).unwrap();
        let got = run(&mut *exec, bindings, &DimBinding::new()).unwrap();
        if let Some(difference) = against_oracle(&want, &got) {
            panic!("{name}: {difference}\n{graph}\n{}", exec.lir());
        }
        answers.push(got);
    }
    let [.., one, two, three] = &answers[..] else { panic!("three backends at least") };
    assert!(one == two && two == three, "other bits on other threads\n{graph}");
    answers.remove(0).remove(0)
}

/// Words of the result of `[n, pixels…, c]` in the order of `[n, c, pixels…]`.
fn as_planes(bytes: &[u8], size: usize, planes: &Graph) -> Vec<u8> {
    let dims = planes.shape(planes.outputs[0]).static_dims().unwrap();
    let (channels, pixels) = (dims[1], dims[2..].iter().product::<usize>());
    let place = |i: usize| {
        let (image, channel, pixel) = (i / pixels / channels, i / pixels % channels, i % pixels);
        ((image * pixels + pixel) * channels + channel) * size
    };
    (0..bytes.len() / size).flat_map(|i| bytes[place(i)..place(i) + size].iter().copied()).collect()
}

#[test]
fn every_layout_has_the_same_bits_on_all_threads() {
    let g = &mut Gen::new(71);
    for _ in 0..120 {
        let pooling = random(g);
        let planes = pooling.graph([false, false]);
        let size = pooling.dtype.size_bytes();
        let x = pooling.image(g);
        let mut bindings = Bindings::default();
        bindings.set_input("x", x.clone());
        let want = answer(&planes, &bindings);
        for (from, to) in [(false, true), (true, false), (true, true)] {
            let graph = pooling.graph([from, to]);
            let mut own = Bindings::default();
            let turned = if from {
                let rank = pooling.dims.len();
                let perm: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
                evaluate_op(&Op::Transpose { perm }, &[&x], &[]).unwrap().remove(0)
            } else {
                x.clone()
            };
            own.set_input("x", turned);
            let got = answer(&graph, &own);
            let got = if to { as_planes(&got, size, &planes) } else { got };
            assert!(got == want, "from {from} to {to}\n{graph}");
        }
    }
}

#[test]
fn planes_are_neither_copied_before_nor_behind() {
    let (_, backend) = backends().pop().unwrap();
    for ends in [[false, false], [false, true], [true, false], [true, true]] {
        let op = Op::Pool {
            kind: PoolKind::Max,
            kernel: vec![3; 2],
            strides: vec![2; 2],
            pads: vec![1; 4],
            dilations: vec![1; 2],
            ceil_mode: false,
            count_include_pad: false,
            format: DataFormat::ChannelsFirst,
        };
        let graph = Pooling { dtype: DType::F32, dims: vec![2, 24, 19, 17], op }.graph(ends);
        let exec = compile(&graph, &backend, &CompileOptions::default()).unwrap();
        let copies = exec.lir().steps.iter().filter(|step| matches!(step.kind, StepKind::Copy)).count();
        assert_eq!(copies, 0, "{}", exec.lir());
    }
}

#[test]
fn very_large_windows_are_computed_too() {
    let op = |kernel: usize, stride: usize, kind| Op::Pool {
        kind,
        kernel: vec![1, kernel],
        strides: vec![1, stride],
        pads: vec![0, kernel / 2, 0, kernel / 2],
        dilations: vec![1; 2],
        ceil_mode: false,
        count_include_pad: true,
        format: DataFormat::ChannelsFirst,
    };
    for (kernel, stride) in [(1 << 20, 3), (5, 1 << 30)] {
        for kind in [PoolKind::Max, PoolKind::Average] {
            let pooling =
                Pooling { dtype: DType::F32, dims: vec![1, 3, 4, 40], op: op(kernel, stride, kind) };
            let graph = pooling.graph([false, false]);
            answer(&graph, &random_bindings(&graph, &DimBinding::new(), 5));
        }
    }
}
