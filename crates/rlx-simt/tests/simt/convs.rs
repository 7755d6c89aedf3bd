//! Convolutions of f16 and bf16 on matrix units, on the fake driver's GPUs of every architecture: their channels last, their weights packed, right with what
//! is fused into them, by tile programs where there are units, the same bits for all tilings and numerics.

use std::sync::Arc;

use rlx_backend::tuning::Tuning;
use rlx_backend::{Backend, CompileCache};
use rlx_driver::Device;
use rlx_ir::lir::{BufferKind, LirModule, StepKind};
use rlx_ir::op::DataFormat;
use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{Gen, random_bindings, random_conv};
use rlx_ir::{DType, DimBinding, Graph, Op, sym, text};
use rlx_kernel::schedule::StepDesc;
use rlx_opt::{CompileOptions, Numerics};
use rlx_tile::Arch;
use rlx_tile::schedule::step;

use crate::common::{everything, fake, second_gpu};
use crate::tiles::{MODELS, check, module, outputs, schedules, tiled, tiled_steps};

/// A small net: a convolution with a border, one with a stride and a residual of one tap, a mean over the image, a matmul.
fn net(dtype: DType) -> Graph {
    let body = format!(
        "%0 = Input {{name=\"x\"}} : [batch, 8, 9, 9] {dtype} %1 = Param {{name=\"w1\"}} : [24, 8, 3, 3] {dtype} \
         %2 = Param {{name=\"b1\"}} : [24] {dtype} %3 = Param {{name=\"w2\"}} : [16, 24, 3, 3] {dtype} \
         %4 = Param {{name=\"w3\"}} : [16, 24, 1, 1] {dtype} %5 = Param {{name=\"w4\"}} : [16, 8] {dtype} \
         %6 = Conv(%0, %1, %2) {{strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], groups=1, format=ChannelsFirst}} : [batch, 24, 9, 9] {dtype} \
         %7 = Activation.Relu(%6) : [batch, 24, 9, 9] {dtype} \
         %8 = Conv(%7, %4) {{strides=[2, 2], pads=[0, 0, 0, 0], dilations=[1, 1], groups=1, format=ChannelsFirst}} : [batch, 16, 5, 5] {dtype} \
         %9 = Conv(%7, %3) {{strides=[2, 2], pads=[1, 1, 1, 1], dilations=[1, 1], groups=1, format=ChannelsFirst}} : [batch, 16, 5, 5] {dtype} \
         %10 = Binary.Add(%9, %8) : [batch, 16, 5, 5] {dtype} %11 = Activation.Relu(%10) : [batch, 16, 5, 5] {dtype} \
         %12 = Reduce(%11) {{op=Mean, axes=[2, 3], keep_dim=false}} : [batch, 16] {dtype} \
         %13 = MatMul(%12, %5) : [batch, 8] {dtype} return %13"
    );
    text::parse(&format!("graph \"g\" {{ {body} }}")).unwrap_or_else(|e| panic!("{e}\n{body}"))
}

fn images(graph: &Graph, count: usize) -> Bindings {
    random_bindings(graph, &DimBinding::from_pairs(&[(sym::BATCH, count)]), 7)
}

/// How many steps of the run are what.
fn count(lir: &LirModule, such: impl Fn(&Op) -> bool) -> usize {
    let of = |kind: &StepKind| match kind {
        StepKind::Op(Op::Region { body }) => body.graph.nodes().iter().any(|node| such(&node.op)),
        StepKind::Op(op) => such(op),
        StepKind::Copy => false,
    };
    lir.steps.iter().filter(|step| of(&step.kind)).count()
}

#[test]
fn a_net_is_tile_programs_where_there_are_units_for_its_type() {
    let _alone = second_gpu();
    // What has no units has calls without the runtime, too, and is left to them.
    for (device, ordinal, _, brain) in MODELS.into_iter().filter(|model| model.2.is_some()) {
        let backend = fake(device, ordinal);
        for (dtype, on_units) in [(DType::F16, true), (DType::BF16, brain), (DType::F32, false)] {
            let (graph, options) = (net(dtype), CompileOptions::default());
            let lir = module(&graph, &backend, &options);
            let found = schedules(&lir, &backend, &options);
            assert_eq!(tiled(&found), if on_units { 4 } else { 0 }, "{device} {ordinal} {dtype}: {found:?}");
            // Weights of several taps are packed, once; nothing else is a step of the run than what there is without units, but for the image's transpose.
            let packs =
                lir.init.iter().filter(|step| matches!(step.kind, StepKind::Op(Op::Pack { .. }))).count();
            assert_eq!(packs, if on_units { 2 } else { 0 }, "{device} {ordinal} {dtype}");
            let packed = |b: &&rlx_ir::lir::Buffer| b.format.is_some() && b.kind == BufferKind::Prepared;
            assert_eq!(lir.buffers.iter().filter(packed).count(), packs);
            let in_format = |of| count(&lir, |op| matches!(op, Op::Conv { format, .. } if *format == of));
            let formats = [DataFormat::ChannelsFirst, DataFormat::ChannelsLast].map(in_format);
            assert_eq!(formats, if on_units { [0, 3] } else { [3, 0] }, "{device} {ordinal} {dtype}");
            assert_eq!(lir.steps.len(), 5, "{device} {ordinal} {dtype}: {found:?}");
            for n in [1, 3] {
                assert_eq!(check(&graph, &images(&graph, n), &backend), tiled(&found));
            }
        }
    }
}

#[test]
fn random_convolutions_with_what_is_behind_them_agree_with_the_oracle() {
    let _alone = second_gpu();
    for (device, ordinal, units, brain) in MODELS {
        let Some(arch) = units else { continue };
        let backend = fake(device, ordinal);
        let cases = if everything() { 100 } else { 12 };
        for seed in 0..cases {
            let mut g = Gen::new(9000 + seed + 1000 * ordinal as u64);
            let dtype = if brain { g.pick(&[DType::F16, DType::BF16]) } else { DType::F16 };
            let graph = random_conv(&mut g, dtype);
            let bindings = random_bindings(&graph, &DimBinding::new(), seed);
            oracle::bind_dims(&graph, &bindings).unwrap();
            assert_eq!(check(&graph, &bindings, &backend), 1, "{arch} seed {seed}\n{graph}");
        }
    }
}

#[test]
fn all_tilings_and_numerics_give_the_same_bits() {
    let _alone = second_gpu();
    let graph = net(DType::F16);
    let bindings = images(&graph, 2);
    for (device, ordinal, units, _) in MODELS {
        if units.is_none() {
            continue;
        }
        let (backend, strict) = (fake(device, ordinal), CompileOptions::default().numerics(Numerics::Strict));
        let fast = CompileOptions::default().numerics(Numerics::Fast);
        let lir = module(&graph, &backend, &strict);
        let first = outputs(&mut *backend.compile(Arc::clone(&lir), &strict).unwrap(), &bindings);
        let of_fast = backend.compile(module(&graph, &backend, &fast), &fast);
        assert!(outputs(&mut *of_fast.unwrap(), &bindings) == first, "{device} {ordinal}: numerics");
        let keys = lir.steps.iter().filter_map(|step| backend.tuning_key(&lir, step, &strict).unwrap());
        let key = keys.filter(|key| key.variants[0].starts_with("tiles.")).nth(1).expect("several tilings");
        for variant in 1..key.variants.len() {
            let mut tuning = Tuning::default();
            tuning.choose(&key, variant);
            let cache = CompileCache { tuning, ..CompileCache::default() };
            let mut exec = backend.compile_cached(Arc::clone(&lir), &strict, &cache).unwrap();
            assert!(outputs(&mut *exec, &bindings) == first, "{device} {ordinal}: {}", key.variants[variant]);
        }
    }
}

#[test]
fn nets_in_f16_run_on_matrix_units_and_are_near_their_goldens() {
    let _alone = second_gpu();
    for (name, steps) in [("digits", 4), ("resnet50_reduced", 18)] {
        for (device, ordinal) in [(Device::Cuda, 0), (Device::Rocm, 0)] {
            match tiled_steps(name, &fake(device, ordinal)) {
                Some(tiled) => assert_eq!(tiled, steps, "{name} on {device} {ordinal}"),
                None => println!("@skip 1 {name} is not here"),
            }
        }
    }
}

/// The first layer of a net, of images in f32: a convolution of three channels, and a mean over the image.
fn first_layer(dtype: DType, (size, kernel, stride, pad): (usize, usize, usize, usize)) -> Graph {
    let places = (size + 2 * pad - kernel) / stride + 1;
    let body = format!(
        "%0 = Input {{name=\"x\"}} : [batch, 3, {size}, {size}] f32 %1 = Cast(%0) {{to={dtype}}} : [batch, 3, {size}, {size}] {dtype} \
         %2 = Param {{name=\"w\"}} : [16, 3, {kernel}, {kernel}] {dtype} %3 = Param {{name=\"b\"}} : [16] {dtype} \
         %4 = Conv(%1, %2, %3) {{strides=[{stride}, {stride}], pads=[{pad}, {pad}, {pad}, {pad}], dilations=[1, 1], groups=1, format=ChannelsFirst}} \
         : [batch, 16, {places}, {places}] {dtype} %5 = Activation.Relu(%4) : [batch, 16, {places}, {places}] {dtype} \
         %6 = Reduce(%5) {{op=Mean, axes=[2, 3], keep_dim=false}} : [batch, 16] {dtype} return %6"
    );
    text::parse(&format!("graph \"g\" {{ {body} }}")).unwrap_or_else(|e| panic!("{e}\n{body}"))
}

#[test]
fn first_layers_copy_channels_of_several_columns_together() {
    let _alone = second_gpu();
    // ResNet, ViT, MobileNet, and VGG, whose three channels would be copied one by one.
    let layers = [((19, 7, 2, 3), 8), ((32, 16, 16, 0), 8), ((16, 3, 2, 1), 8), ((9, 3, 1, 1), 4)];
    for (device, ordinal, _, brain) in MODELS.into_iter().filter(|model| model.2.is_some()) {
        let (backend, options) = (fake(device, ordinal), CompileOptions::default());
        let dtype = if brain { DType::BF16 } else { DType::F16 };
        for (layer, together) in layers {
            let graph = first_layer(dtype, layer);
            let lir = module(&graph, &backend, &options);
            // Padding with the cast, the convolution with its activation, the mean.
            assert_eq!(lir.steps.len(), 3, "{device} {ordinal} {layer:?}: {lir}");
            let desc = StepDesc::of(&lir.steps[1], &lir).unwrap();
            let program = step(Arch::Sm80, &desc, None).unwrap().program;
            let vectors = [0, 1].map(|i| program.views[i].vector);
            assert_eq!(vectors, [together; 2], "{device} {ordinal} {layer:?}: {lir}");
            assert_eq!(check(&graph, &images(&graph, 2), &backend), 1, "{device} {ordinal} {layer:?}");
        }
    }
}
