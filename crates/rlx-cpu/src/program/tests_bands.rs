//! Steps in bands and one after the other have the same bits, whatever the windows, types and threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rlx_backend::ExecutableGraph;
use rlx_backend::tuning::Tuning;
use rlx_ir::lir::IoSlot;
use rlx_ir::op::{Activation, BinaryOp, DataFormat, PoolKind};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{Gen, random_bindings};
use rlx_ir::{DType, DimBinding, Graph, NodeId, Op, Result, Shape, Weight};
use rlx_opt::{CompileOptions, CompilePipeline, PoolSpec};

use super::kernel::Joined;
use super::{CpuExecutable, Program, Threads, program as compile};
use crate::isa::Isa;
use crate::kernels::bands::{LineForm, Part};
use crate::kernels::{BindCx, Needs, RunCx, StepKernel};
use crate::pool::Pool;
use crate::target::CpuTarget;

/// A kernel that counts how often it was asked for its part of a band.
#[derive(Clone)]
struct Counted {
    kernel: Arc<Box<dyn StepKernel>>,
    parts: Arc<AtomicUsize>,
}

impl StepKernel for Counted {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let mut kernel = self.kernel.boxed();
        let needs = kernel.bind(cx)?;
        self.kernel = Arc::new(kernel);
        Ok(needs)
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.kernel.run(cx) }
    }

    fn lines(&self) -> Option<LineForm> {
        self.kernel.lines()
    }

    unsafe fn prepare(&self, cx: &mut RunCx<'_, '_>) {
        // SAFETY: the caller's promise.
        unsafe { self.kernel.prepare(cx) }
    }

    fn part(&self, cx: &RunCx<'_, '_>) -> Option<Part> {
        self.parts.fetch_add(1, Ordering::SeqCst);
        self.kernel.part(cx)
    }
}

/// A model with its parameters and inputs.
struct Case {
    graph: Graph,
    bindings: Bindings,
}

/// What a convolution of a [`Case`] is like.
struct Conv {
    filters: usize,
    kernel: Vec<usize>,
    stride: usize,
    dilation: usize,
    pads: Vec<usize>,
    /// Channels of a group; none for one group of all.
    group: Option<usize>,
}

impl Conv {
    fn pointwise(filters: usize) -> Conv {
        Conv { filters, kernel: vec![1; 2], stride: 1, dilation: 1, pads: vec![0; 4], group: None }
    }

    /// A convolution with groups of one channel, or two or four.
    fn grouped(g: &mut Gen, filters: usize) -> Conv {
        let kernel = vec![g.size(1..=5), g.size(1..=5)];
        let dilation = g.size(1..=2);
        let pads = pads(g, &kernel, dilation);
        let group =
            [1, 1, 2, 4].into_iter().filter(|&n| filters.is_multiple_of(n)).nth(g.size(0..=3)).unwrap_or(1);
        Conv { filters, kernel, stride: g.size(1..=2), dilation, pads, group: Some(group) }
    }
}

/// Padding in front of and behind each dimension, of less than a window.
fn pads(g: &mut Gen, kernel: &[usize], dilation: usize) -> Vec<usize> {
    kernel.iter().chain(kernel).map(|k| g.size(0..=(k - 1) * dilation)).collect()
}

/// Adds a convolution with weights of its own.
fn add(graph: &mut Graph, x: NodeId, conv: &Conv) -> NodeId {
    let (channels, dtype) = (graph.shape(x).dims()[1].as_static().expect("a number"), graph.shape(x).dtype());
    let inputs = conv.group.unwrap_or(channels);
    let groups = channels / inputs;
    let dims = [&[conv.filters, inputs], &conv.kernel[..]].concat();
    let number = graph.params().count();
    let w = graph.param(format!("w{number}"), Shape::new(&dims, dtype));
    let b = graph.param(format!("b{number}"), Shape::new(&[conv.filters], dtype));
    let op = Op::Conv {
        strides: vec![conv.stride; conv.kernel.len()],
        pads: conv.pads.clone(),
        dilations: vec![conv.dilation; conv.kernel.len()],
        groups,
        format: DataFormat::ChannelsFirst,
    };
    graph.try_add(op, &[x, w, b]).expect("a convolution")
}

impl Case {
    /// A bottleneck that widens, or a part of one; the values between are larger than the cache.
    fn new(g: &mut Gen, dtype: DType) -> Case {
        let size = [g.size(50..=60), g.size(50..=60)];
        let wide = g.size(55..=60) * 4 / dtype.size_bytes();
        let (batch, few) = (g.size(1..=2), g.size(3..=24));
        let [expands, projects, residual] = [0.7, 0.7, 0.5].map(|p| g.chance(p));
        let first = if expands { few } else { wide };
        let mut graph = Graph::new("bottleneck");
        // Channels are beside each other in what is given, and below in the result: bands have no planes.
        let input = graph.input("x", Shape::new(&[batch, size[0], size[1], first], dtype));
        let input = graph.try_add(Op::Transpose { perm: vec![0, 3, 1, 2] }, &[input]).expect("a transpose");
        // So that what the bands read is a value of the run.
        let x = graph.try_add(Op::Activation(Activation::Neg), &[input]).expect("elementwise");
        let relu = |graph: &mut Graph, y| {
            graph.try_add(Op::Activation(Activation::Relu), &[y]).expect("elementwise")
        };
        let mut y = x;
        if expands {
            y = add(&mut graph, y, &Conv::pointwise(wide));
            y = relu(&mut graph, y);
        }
        let windows = Conv::grouped(g, wide);
        let windows = if residual {
            Conv { kernel: vec![3; 2], stride: 1, dilation: 1, pads: vec![1; 4], ..windows }
        } else {
            windows
        };
        y = add(&mut graph, y, &windows);
        y = relu(&mut graph, y);
        if projects || !expands {
            y = add(&mut graph, y, &Conv::pointwise(few));
        }
        if graph.shape(y) == graph.shape(x) {
            y = graph.try_add(Op::Binary(BinaryOp::Add), &[y, x]).expect("elementwise");
        }
        y = graph.try_add(Op::Transpose { perm: vec![0, 2, 3, 1] }, &[y]).expect("a transpose");
        graph.set_outputs(vec![y]);
        let bindings = random_bindings(&graph, &DimBinding::new(), g.bits());
        Case { graph, bindings }
    }

    /// A convolution of a few channels or some more over an image or a line, and a pooling of what it makes, which is larger than the cache;
    /// or the same with a 1 × 1 convolution between them.
    fn pooled(g: &mut Gen, dtype: DType) -> Case {
        let size =
            if g.chance(0.3) { vec![g.size(2900..=3100)] } else { vec![g.size(50..=60), g.size(50..=60)] };
        let wide = g.size(55..=60) * 4 / dtype.size_bytes();
        let (batch, channels) = (g.size(1..=2), [1, 3, 4, 9, 12][g.size(0..=4)]);
        let between = size.len() == 2 && g.chance(0.3);
        let n = size.len();
        let mut graph = Graph::new("pooled");
        let input = graph.input("x", Shape::new(&[&[batch], &size[..], &[channels]].concat(), dtype));
        let to_planes = [&[0, n + 1], &(1..=n).collect::<Vec<_>>()[..]].concat();
        let input = graph.try_add(Op::Transpose { perm: to_planes }, &[input]).expect("a transpose");
        let mut y = graph.try_add(Op::Activation(Activation::Neg), &[input]).expect("elementwise");
        // Winograd's algorithm, which has no bands, is for windows three wide.
        let most = if channels > 4 { 2 } else { 5 };
        let kernel: Vec<usize> = (0..n).map(|_| g.size(2..=most)).collect();
        let pads_of_conv = kernel.iter().chain(&kernel).map(|k| g.size(k / 2..=k - 1)).collect();
        let conv = Conv { filters: wide, kernel, stride: 1, dilation: 1, pads: pads_of_conv, group: None };
        y = add(&mut graph, y, &conv);
        y = graph.try_add(Op::Activation(Activation::Relu), &[y]).expect("elementwise");
        if between {
            y = add(&mut graph, y, &Conv::pointwise(wide));
        }
        let kernel: Vec<usize> = (0..n).map(|_| g.size(2..=4)).collect();
        let dilation = g.size(1..=2);
        let pool = Op::Pool {
            kind: [PoolKind::Max, PoolKind::Average][g.size(0..=1)],
            // What is made of much is less, or the steps run one by one.
            strides: (0..n).map(|i| g.size(if i == 0 { 2..=3 } else { 1..=3 })).collect(),
            pads: pads(g, &kernel, 1),
            dilations: vec![dilation; n],
            kernel,
            ceil_mode: false,
            count_include_pad: g.chance(0.5),
            format: DataFormat::ChannelsFirst,
        };
        y = graph.try_add(pool, &[y]).expect("a pooling");
        let to_pixels = [&[0], &(2..n + 2).collect::<Vec<_>>()[..], &[1]].concat();
        y = graph.try_add(Op::Transpose { perm: to_pixels }, &[y]).expect("a transpose");
        graph.set_outputs(vec![y]);
        let bindings = random_bindings(&graph, &DimBinding::new(), g.bits());
        Case { graph, bindings }
    }

    fn program(&self, isa: Isa, threads: usize) -> Program {
        let target = Arc::new(CpuTarget::new(isa));
        let lir = CompilePipeline::new(target, CompileOptions::default())
            .compile(&self.graph)
            .expect("it compiles")
            .lir;
        let threads = Threads::Own(Arc::new(Pool::new(threads).expect("a pool")));
        compile(Arc::new(lir), isa, threads, PoolSpec::default(), &Tuning::default()).expect("kernels")
    }

    /// The result of two runs, which are equal.
    fn run(&self, program: Program) -> Vec<u8> {
        let mut exec = CpuExecutable::new(Arc::new(program)).expect("memory");
        let lir = Arc::clone(exec.lir());
        for (i, slot) in lir.params.iter().enumerate() {
            let value = self.bindings.param(&slot.name).expect("all are given");
            let weight = Weight::owned(value.dtype, &value.dims, value.encode()).expect("as declared");
            exec.set_param(i, Arc::new(weight)).expect("a parameter");
        }
        let input = |slot: &IoSlot| self.bindings.input(&slot.name).expect("all are given").encode();
        let inputs: Vec<Vec<u8>> = lir.inputs.iter().map(input).collect();
        let mut run = || {
            exec.run(&&inputs[..], &[]).expect("a run");
            exec.output(0).expect("an output").to_vec()
        };
        let first = run();
        assert!(first == run(), "a second run");
        first
    }
}

#[test]
fn bands_have_the_bits_of_whole_steps() {
    let g = &mut Gen::new(71);
    for round in 0..24 {
        let dtype = [DType::F32, DType::F32, DType::BF16, DType::F16][round % 4];
        same_bits(round, &Case::new(g, dtype));
    }
}

#[test]
fn pooling_in_bands_has_the_bits_of_whole_steps() {
    let g = &mut Gen::new(72);
    for round in 0..32 {
        let dtype = [DType::F32, DType::F32, DType::BF16, DType::F16][round % 4];
        same_bits(round, &Case::pooled(g, dtype));
    }
}

/// Runs a case in bands, and step by step.
fn same_bits(round: usize, case: &Case) {
    for isa in Isa::available().into_iter().filter(|&isa| isa == Isa::detect() || round < 4) {
        let mut steps = case.program(isa, 1);
        steps.steps.iter_mut().for_each(|step| step.kernel.joined = Joined::default());
        let want = case.run(steps);
        for threads in 1..=3 {
            let (mut program, parts) = (case.program(isa, threads), Arc::new(AtomicUsize::new(0)));
            for step in &mut program.steps {
                let kernel = Arc::new(step.kernel.prototype.boxed());
                step.kernel.prototype = Box::new(Counted { kernel, parts: Arc::clone(&parts) });
            }
            let got = case.run(program);
            assert!(got == want, "round {round}, {isa}, {threads} threads\n{}", case.graph);
            let parts = parts.load(Ordering::SeqCst);
            assert!(parts >= 4 || threads > 1, "two runs of two steps at least, not {parts}\n{}", case.graph);
        }
    }
}
