//! Variants of one step: they give the same bits on any shape, are those that the device has room for, and differ.

mod common;

use std::collections::HashSet;
use std::sync::Arc;

use common::{native, processor, try_module, words};
use rlx_ir::op::{Activation, BinaryOp, DataFormat};
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{Gen, difference, tolerance};
use rlx_ir::{DType, Dim, Graph, LirModule, Op, Shape, Value, sym};
use rlx_kernel::interp::Executable;
use rlx_kernel::{KernelTarget, compile_step, step_variants};

/// The module's steps, each by number `variant` of its variants or the last there is.
fn by(module: &Arc<LirModule>, target: &KernelTarget, variant: usize) -> Executable {
    let choose = |variants: &[String]| variant.min(variants.len() - 1);
    Executable::choosing(Arc::clone(module), target, choose).unwrap_or_else(|e| panic!("{e}"))
}

/// The most variants that a step has, with their names.
fn most_variants(module: &LirModule, target: &KernelTarget) -> Vec<String> {
    let variants = module.steps.iter().map(|s| step_variants(s, module, target).unwrap());
    variants.max_by_key(Vec::len).unwrap_or_default()
}

/// Runs every variant on all of these values: the first must agree with the oracle, the others give its bits. Gives the names of those whose sizes are uniforms.
fn same_bits(graph: &Graph, cases: &[Bindings], target: &KernelTarget) -> Vec<String> {
    let module = try_module(graph, target).unwrap_or_else(|e| panic!("{e}\n{graph}"));
    let names = most_variants(&module, target);
    let first = by(&module, target, 0);
    let bits = |executable: &Executable, case: &Bindings| -> (Vec<Value>, Vec<Vec<u8>>) {
        let values = executable.run(case).unwrap_or_else(|e| panic!("{}: {e}\n{graph}", target.name));
        let bytes = values.iter().map(|v| v.encode()).collect();
        (values, bytes)
    };
    let wanted: Vec<_> = cases.iter().map(|case| bits(&first, case)).collect();
    for (case, (values, _)) in cases.iter().zip(&wanted) {
        let oracle = oracle::evaluate(graph, case).unwrap();
        let differs = oracle.iter().zip(values).find_map(|(o, v)| difference(o, v, tolerance(o.dtype)));
        assert_eq!(differs, None, "{}\n{graph}", target.name);
    }
    for (variant, name) in names.iter().enumerate().skip(1) {
        let executable = by(&module, target, variant);
        for (case, (_, wanted)) in cases.iter().zip(&wanted) {
            assert!(
                bits(&executable, case).1 == *wanted,
                "{}: {name} gives other bits\n{graph}",
                target.name
            );
        }
    }
    names.into_iter().filter(|name| !name.ends_with(".sizes")).collect()
}

fn open(name: &str) -> Dim {
    Dim::Dynamic(sym::named(name))
}

/// `y` and `Relu(y + y + z)`, where `z` has the last of its dimensions.
fn with_epilogue(g: &mut Graph, y: rlx_ir::NodeId) {
    let shape = g.shape(y).clone();
    let z = g.input("z", Shape::from_dims(&shape.dims()[shape.rank() - 1..], shape.dtype()));
    let v = g.binary(BinaryOp::Add, y, y, shape.clone());
    let v = g.binary(BinaryOp::Add, v, z, shape.clone());
    let v = g.activation(Activation::Relu, v, shape);
    g.set_outputs(vec![v, y]);
}

/// A product of open sizes, so that every variant is tried on every size.
fn open_product(batch: bool, dtype: DType) -> Graph {
    let mut g = Graph::new("product");
    let [b, m, k, n] = ["b", "m", "k", "n"].map(open);
    let left = if batch { vec![b, m, k] } else { vec![m, k] };
    let x = g.input("x", Shape::from_dims(&left, dtype));
    let w = g.input("w", Shape::from_dims(&[k, n], dtype));
    let y = g.try_add(Op::MatMul, &[x, w]).unwrap();
    with_epilogue(&mut g, y);
    g
}

fn product_values(dtype: DType, [b, m, k, n]: [usize; 4], gen_: &mut Gen) -> Bindings {
    let left = if b > 0 { vec![b, m, k] } else { vec![m, k] };
    let mut values = Bindings::default();
    for (name, dims) in [("x", left), ("w", vec![k, n]), ("z", vec![n])] {
        values.set_input(name, gen_.value(dtype, &dims, -1.0..1.0));
    }
    values
}

#[test]
fn every_form_of_a_product_gives_the_same_bits() {
    let mut gen_ = Gen::new(11);
    let (wide, narrow, device) = (open_product(false, DType::F32), open_product(true, DType::F32), words());
    let mut sizes = |b: usize| {
        let mut odd = |most: i64| gen_.int(1..=most) as usize;
        let mut cases = vec![[b, 1, odd(40), odd(300)], [b, odd(300), odd(40), 1], [b, odd(7), 1, odd(70)]];
        cases.extend((0..3).map(|_| [b, odd(70), odd(40), odd(70)]));
        cases.extend([[b, 64, 32, 64], [b, 129, 9, 130]]);
        cases.into_iter().map(|c| product_values(DType::F32, c, &mut gen_)).collect::<Vec<_>>()
    };
    let names = same_bits(&wide, &sizes(0), &device);
    assert_eq!(names.len(), 14, "{names:?}");
    same_bits(&narrow, &sizes(2), &device);
}

#[test]
fn every_form_of_a_product_serves_every_type() {
    let mut gen_ = Gen::new(12);
    for dtype in [DType::F16, DType::BF16, DType::I64, DType::I32, DType::I8] {
        let graph = open_product(true, dtype);
        let cases = [[2, 9, 19, 37], [1, 33, 5, 65]].map(|c| product_values(dtype, c, &mut gen_));
        same_bits(&graph, &cases, &words());
        same_bits(&graph, &cases, &native());
    }
}

#[test]
fn vectors_and_repeated_batches_have_forms() {
    let mut gen_ = Gen::new(13);
    for (a, b) in [
        (&[100][..], &[100, 70][..]),
        (&[70, 100], &[100]),
        (&[40], &[40]),
        (&[2, 1, 40, 33], &[3, 33, 34]),
        (&[3, 5, 4], &[4, 90]),
    ] {
        let (mut g, mut values) = (Graph::new("fixed"), Bindings::default());
        let ids = [("x", a), ("w", b)].map(|(name, dims)| {
            values.set_input(name, gen_.value(DType::F32, dims, -1.0..1.0));
            g.input(name, Shape::new(dims, DType::F32))
        });
        let y = g.try_add(Op::MatMul, &ids).unwrap();
        g.set_outputs(vec![y]);
        let names = same_bits(&g, &[values], &words());
        // Of two vectors there is one result, and one variant to it.
        assert_eq!(names.len() == 1, a.len() + b.len() == 2, "{a:?}×{b:?}: {names:?}");
    }
}

/// A convolution over an image of open size.
fn convolution(op: Op, weights: [usize; 4], channels: usize, last: bool) -> Graph {
    let mut g = Graph::new("convolution");
    let (h, w) = (open("height"), open("width"));
    let (c, n) = (Dim::Static(channels), Dim::Static(2));
    let x = g.input("x", Shape::from_dims(&if last { [n, h, w, c] } else { [n, c, h, w] }, DType::F32));
    let filter = g.input("w", Shape::new(&weights, DType::F32));
    let mut inputs = vec![x, filter];
    if matches!(op, Op::Conv { .. }) {
        inputs.push(g.input("b", Shape::new(&weights[..1], DType::F32)));
    }
    let y = g.try_add(op, &inputs).unwrap();
    let shape = g.shape(y).clone();
    let v = g.activation(Activation::Relu, y, shape);
    g.set_outputs(vec![v]);
    g
}

fn image_values(weights: [usize; 4], image: [usize; 4], gen_: &mut Gen) -> Bindings {
    let mut values = Bindings::default();
    values.set_input("x", gen_.value(DType::F32, &image, -1.0..1.0));
    values.set_input("w", gen_.value(DType::F32, &weights, -1.0..1.0));
    values.set_input("b", gen_.value(DType::F32, &weights[..1], -1.0..1.0));
    values
}

#[test]
fn every_form_of_a_convolution_gives_the_same_bits() {
    let mut gen_ = Gen::new(14);
    let mut tried = HashSet::new();
    for (groups, weights, channels, last) in [
        (1, [70, 3, 3, 3], 3, false),
        (2, [20, 5, 2, 3], 10, true),
        (6, [12, 1, 3, 3], 6, false),
        (1, [33, 7, 1, 1], 7, false),
    ] {
        let format = if last { DataFormat::ChannelsLast } else { DataFormat::ChannelsFirst };
        let (strides, pads, dilations) = (vec![2, 1], vec![1, 0, 1, 2], vec![1, 2]);
        let op = Op::Conv { strides, pads, dilations, groups, format };
        let graph = convolution(op, weights, channels, last);
        let cases = [[7, 9], [18, 11]].map(|[h, w]| {
            let image = if last { [2, h, w, channels] } else { [2, channels, h, w] };
            image_values(weights, image, &mut gen_)
        });
        tried.extend(same_bits(&graph, &cases, &words()));
    }
    assert!(tried.len() >= 12, "{tried:?}");
}

#[test]
fn every_form_of_a_transposed_convolution_gives_the_same_bits() {
    let mut gen_ = Gen::new(15);
    let (weights, groups) = ([6, 9, 3, 2], 2);
    let (strides, pads, dilations) = (vec![2, 1], vec![1, 0, 0, 1], vec![1, 1]);
    let op = Op::ConvTranspose { strides, pads, output_padding: vec![1, 0], dilations, groups };
    let graph = convolution(op, weights, 6, false);
    let cases = [[5, 8], [1, 13]].map(|[h, w]| image_values(weights, [2, 6, h, w], &mut gen_));
    assert!(same_bits(&graph, &cases, &words()).len() > 4);
}

#[test]
fn a_processor_takes_no_detour_through_workgroup_memory() {
    let graph = open_product(false, DType::F32);
    let names = |target: &KernelTarget| most_variants(&try_module(&graph, target).unwrap(), target);
    let (device, processor) = (words(), KernelTarget { is_processor: true, ..words() });
    let (mut usual, mut own) = (names(&device), names(&processor));
    assert_eq!((&usual[0][..], &own[0][..]), ("tile32x32x16.4x4", "direct16x64.4x4"));
    usual.sort();
    own.sort();
    assert_eq!(usual, own, "the same variants in another order");
}

#[test]
fn a_device_is_offered_what_it_has_room_for() {
    let graph = open_product(false, DType::F32);
    let mut small = KernelTarget::webgpu("small");
    let webgpu = most_variants(&try_module(&graph, &small).unwrap(), &small);
    assert_eq!(webgpu.len(), 14, "every variant of f32 is within what WebGPU promises: {webgpu:?}");
    (small.limits.max_workgroup, small.limits.max_shared_bytes) = (64, 5120);
    let module = try_module(&graph, &small).unwrap();
    let variants = most_variants(&module, &small);
    assert_eq!(variants[0], "tile32x32x16.4x4");
    assert!(
        variants.contains(&"direct16x64.4x4".into()) && variants.contains(&"tile16x16x16.2x2".into()),
        "{variants:?}"
    );
    assert!(
        variants.iter().all(|variant| !variant.contains("64x64") && !variant.contains("128")),
        "{variants:?}"
    );
    (0..variants.len()).for_each(|variant| _ = by(&module, &small, variant));
    // Elements twice as large take twice the room.
    let wide = open_product(false, DType::I64);
    let module = try_module(&wide, &small).unwrap();
    assert_eq!(most_variants(&module, &small)[0], "tile16x16x16.2x2");
}

#[test]
fn variants_are_different_kernels_and_no_others_are_there() {
    let (graph, device) = (open_product(false, DType::F32), words());
    let module = try_module(&graph, &device).unwrap();
    let step = &module.steps[0];
    let variants = step_variants(step, &module, &device).unwrap();
    let hash = |variant: usize| compile_step(step, &module, &device, variant).unwrap()[0].kernel.hash();
    assert_eq!((0..variants.len()).map(hash).collect::<HashSet<_>>().len(), variants.len());
    assert_eq!(variants.iter().collect::<HashSet<_>>().len(), variants.len(), "names are different too");
    let e = compile_step(step, &module, &device, variants.len()).unwrap_err();
    assert_eq!(e.kind(), rlx_ir::ErrorKind::Unsupported);
    assert!(e.to_string().contains("no variant 14"), "{e}");
}

#[test]
fn a_sum_of_nothing_is_zero_in_every_form() {
    let graph = open_product(true, DType::F32);
    let case = product_values(DType::F32, [2, 5, 0, 9], &mut Gen::new(16));
    same_bits(&graph, &[case], &words());
}

#[test]
fn every_spread_of_elements_gives_the_same_bits() {
    let mut gen_ = Gen::new(17);
    for dtype in [DType::F32, DType::F16, DType::I64, DType::I8] {
        // With movement, and a last workgroup that is not full.
        let (mut g, mut values) = (Graph::new("map"), Bindings::default());
        let (x, row) =
            (g.input("x", Shape::new(&[131, 127], dtype)), g.input("r", Shape::new(&[131], dtype)));
        values.set_input("x", gen_.value(dtype, &[131, 127], -1.0..1.0));
        values.set_input("r", gen_.value(dtype, &[131], -1.0..1.0));
        let y = g.try_add(Op::Transpose { perm: vec![1, 0] }, &[x]).unwrap();
        let shape = g.shape(y).clone();
        let z = g.binary(BinaryOp::Add, y, row, shape.clone());
        let z = g.binary(BinaryOp::Mul, z, y, shape);
        g.set_outputs(vec![z]);
        let single = ["map64x1", "map256x1", "map64x4", "map256x4"];
        for target in [words(), native()] {
            assert_eq!(same_bits(&g, std::slice::from_ref(&values), &target), single);
        }
        let [first, rest @ ..] = &same_bits(&g, std::slice::from_ref(&values), &processor())[..] else {
            panic!("no variants")
        };
        assert_eq!((&first[..], rest), ("map64s8", &single.map(str::to_owned)[..]));
    }
}

/// Convolutions of few pixels are such products: without these a processor would compute one result after the other.
#[test]
fn products_of_few_columns_load_for_several_results() {
    for ([m, n], taken) in
        [([200, 16], "direct64x16.4x4"), ([200, 4], "direct64x4.1x4"), ([130, 7], "direct64x4.1x4")]
    {
        let mut g = Graph::new("few columns");
        let x = g.input("x", Shape::new(&[m, 37], DType::F32));
        let w = g.input("w", Shape::new(&[n, 37], DType::F32));
        let w = g.try_add(Op::Transpose { perm: vec![1, 0] }, &[w]).unwrap();
        let y = g.try_add(Op::MatMul, &[x, w]).unwrap();
        g.set_outputs(vec![y]);
        let (mut values, mut gen_) = (Bindings::default(), Gen::new(18));
        values.set_input("x", gen_.value(DType::F32, &[m, 37], -1.0..1.0));
        values.set_input("w", gen_.value(DType::F32, &[n, 37], -1.0..1.0));
        let names = same_bits(&g, std::slice::from_ref(&values), &processor());
        assert_eq!(names[0], taken, "{names:?}");
    }
}

#[test]
fn few_elements_and_open_sizes_are_spread_in_one_way() {
    for dims in [vec![Dim::Static(100)], vec![open("n"), Dim::Static(1 << 20)]] {
        let mut g = Graph::new("map");
        let shape = Shape::from_dims(&dims, DType::F32);
        let x = g.input("x", shape.clone());
        let y = g.activation(Activation::Relu, x, shape);
        g.set_outputs(vec![y]);
        assert_eq!(most_variants(&try_module(&g, &words()).unwrap(), &words()), ["map64x1"]);
    }
}

#[test]
fn every_number_of_invocations_of_a_row_gives_the_same_bits() {
    let mut gen_ = Gen::new(23);
    for case in 0..60 {
        let (dtype, length) =
            (gen_.pick(&[DType::F32, DType::F16, DType::BF16]), gen_.pick(&[256usize, 300, 768, 1024, 2048]));
        let shape = Shape::new(&[gen_.size(1..=3), length], dtype);
        let (mut g, mut values) = (Graph::new("rows"), Bindings::default());
        values.set_input("x", gen_.value(dtype, &[shape.dim(0).as_static().unwrap(), length], -2.0..2.0));
        let x = g.input("x", shape.clone());
        let parameter = |g: &mut Graph, gen_: &mut Gen, values: &mut Bindings, name: &str| {
            values.set_input(name, gen_.value(dtype, &[length], -1.0..1.0));
            g.input(name, Shape::new(&[length], dtype))
        };
        let (gamma, beta) = (
            parameter(&mut g, &mut gen_, &mut values, "gamma"),
            parameter(&mut g, &mut gen_, &mut values, "beta"),
        );
        let y = match case % 4 {
            0 => g.try_add(Op::Softmax { axis: -1 }, &[x]),
            1 => g.try_add(Op::LogSoftmax { axis: -1 }, &[x]),
            2 => g.try_add(Op::LayerNorm { axis: -1, eps: 1e-5 }, &[x, gamma, beta]),
            _ => g.try_add(Op::RmsNorm { axis: -1, eps: 1e-5 }, &[x, gamma]),
        };
        let y = g.activation(Activation::Relu, y.unwrap(), shape);
        g.set_outputs(vec![y]);
        for target in [words(), native()] {
            let names = same_bits(&g, std::slice::from_ref(&values), &target);
            assert!(names.contains(&"rows256".to_owned()), "{names:?}");
        }
    }
}
