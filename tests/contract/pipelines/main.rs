//! The contract's section "pipelines, caches, registry" but for what is cached on disk, by public names only.

pub mod caches;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rlx_ir::op::{Activation, MaskKind};
use rlx_runtime::stages::pipeline_for;
use rlx_runtime::*;

fn f32s(dims: &[usize]) -> Shape {
    Shape::new(dims, DType::F32)
}

/// `[batch, seq, n]`, both open.
fn open(n: usize) -> Shape {
    Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Dynamic(sym::SEQ), Dim::Static(n)], DType::F32)
}

fn sizes(batch: usize, seq: usize) -> DimBinding {
    DimBinding::batch_seq(batch, seq)
}

fn options() -> CompileOptions {
    rlx_contract::register();
    CompileOptions::new()
}

/// `y = x·w` with open sizes.
fn linear() -> HirModule {
    let mut m = HirModule::new("linear");
    let (x, w) = (m.input("x", open(2)), m.param("w", f32s(&[2, 1])));
    let y = m.linear(x, w, None, None, open(1));
    m.set_outputs(vec![y]);
    m
}

const WIDTH: usize = 8;

/// A block of a transformer with open sizes: attention over the sequence, a norm, a feed-forward part.
fn block() -> HirModule {
    let mut m = HirModule::new("block");
    let x = m.input("x", open(WIDTH));
    let square = |m: &mut HirModule, name: &str| m.param(name, f32s(&[WIDTH, WIDTH]));
    let [q, k, v] = ["wq", "wk", "wv"].map(|name| {
        let w = square(&mut m, name);
        m.linear(x, w, None, None, open(WIDTH))
    });
    let mixed = m.attention(q, k, v, None, 2, 4, MaskKind::Causal, open(WIDTH));
    let gamma = m.param("gamma", f32s(&[WIDTH]));
    let normed = m.residual_rms_norm(mixed, x, gamma, None, 1e-5, open(WIDTH));
    let (w, b) = (m.param("w1", f32s(&[WIDTH, 16])), m.param("b1", f32s(&[16])));
    let hidden = m.linear(normed, w, Some(b), Some(Activation::Gelu), open(16));
    let w = m.param("w2", f32s(&[16, WIDTH]));
    let y = m.linear(hidden, w, None, None, open(WIDTH));
    m.set_outputs(vec![y]);
    m
}

/// Numbers from -0.5 to 0.5 that depend on the name alone.
fn numbers(name: &str, count: usize) -> Vec<f32> {
    let mut state = name.bytes().fold(2_166_136_261u32, |h, b| (h ^ u32::from(b)).wrapping_mul(16_777_619));
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..count).map(|_| next()).collect()
}

fn set_params(graph: &mut CompiledGraph) {
    let params = graph.params().to_vec();
    for p in params {
        graph.set_param(&p.name, &numbers(&p.name, p.shape.num_elements().unwrap()));
    }
}

fn input(batch: usize, seq: usize) -> Vec<f32> {
    numbers(&format!("x {batch} {seq}"), batch * seq * WIDTH)
}

/// What the block gives when it is compiled for exactly these sizes, by itself.
fn exact(d: Device, batch: usize, seq: usize) -> Vec<f32> {
    let graph = block().lower_to_mir().unwrap().into_graph();
    let mut compiled = Session::new(d).compile_with(graph, &options().dim_binding(sizes(batch, seq)));
    set_params(&mut compiled);
    compiled.run(&[("x", &input(batch, seq))]).remove(0)
}

#[track_caller]
fn close(found: &[f32], want: &[f32]) {
    assert_eq!(found.len(), want.len());
    for (i, (f, w)) in found.iter().zip(want).enumerate() {
        assert!((f - w).abs() <= 1e-5 * w.abs().max(1e-2), "element {i}: {f} instead of {w}");
    }
}

fn panic_text(f: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).expect_err("a panic");
    panic.downcast_ref::<String>().cloned().or(panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap()
}

rlx_contract::on_every_device!(
    a_new_pipeline_is_empty_and_keeps_eight,
    a_template_is_built_once_for_each_set_of_options,
    without_a_template_calls_by_reference_fail,
    a_linear_layer_goes_from_template_to_a_run,
    variants_equal_exact_compiles,
    variants_are_found_by_key_sizes_and_options,
    the_oldest_variant_goes_first,
    the_binding_wins_over_the_options,
    parameters_carry_over_and_are_copied_on_write,
    manifests_tell_what_is_known,
    components_are_variants_under_their_key,
    errors_of_blocks_compiler_and_device_come_as_lower_errors,
    sizes_out_of_range_are_rejected,
    panicking_forms_panic_with_the_errors_text needs Unwinding,
    results_specialize_by_themselves,
    outputs_outlive_other_variants_runs,
    variants_run_at_the_same_time needs Threads,
);

fn a_new_pipeline_is_empty_and_keeps_eight(d: Device) {
    rlx_contract::register();
    let pipeline = ModelCompilePipeline::new(d);
    assert_eq!((pipeline.device(), pipeline.capacity(), pipeline.len()), (d, 8, 0));
    assert!(pipeline.is_empty() && !pipeline.has_template() && pipeline.template_result().is_none());
    assert!(!pipeline.contains(1));
    assert_eq!(ModelCompilePipeline::try_with_capacity(d, 0).unwrap_err().kind(), ErrorKind::Config);
}

fn a_template_is_built_once_for_each_set_of_options(d: Device) {
    let (mut pipeline, options, built) = (ModelCompilePipeline::new(d), options(), Cell::new(0));
    let build = || {
        built.set(built.get() + 1);
        linear()
    };
    assert_eq!(pipeline.build_template(build, &options).unwrap().lir.name, "linear");
    assert!(pipeline.has_template() && pipeline.is_empty());
    pipeline.build_template(build, &options).unwrap();
    pipeline.ensure_template(build, &options.clone().dim_binding(sizes(1, 1)).with_verbose(true)).unwrap();
    for seq in 1..4 {
        pipeline.get_or_compile(seq, &sizes(1, seq as usize), build, &options).unwrap();
    }
    assert_eq!((built.get(), pipeline.len()), (1, 3));
    let strict = options.clone().numerics(Numerics::Strict);
    pipeline.get_or_compile(1, &sizes(1, 1), build, &strict).unwrap();
    assert_eq!((built.get(), pipeline.len()), (2, 4));
    // Sizes that the options bind are no part of the template.
    let template = pipeline.template_result().unwrap();
    assert_eq!(template.lir.symbols, [sym::BATCH, sym::SEQ]);
}

fn without_a_template_calls_by_reference_fail(d: Device) {
    let (mut pipeline, options, binding) = (ModelCompilePipeline::new(d), options(), sizes(1, 2));
    let component = ModelComponent::new(ModelVariant::encoder(1, 2));
    let errors = [
        pipeline.try_specialize_template(&binding, &options).unwrap_err(),
        pipeline.try_template_binding_manifest().unwrap_err(),
        pipeline.try_binding_manifest_for_binding(&binding, &options).unwrap_err(),
        pipeline.try_binding_manifest_for_component(&component, &options).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("template"), "{error}");
    }
    pipeline.build_template(linear, &options).unwrap();
    pipeline.try_specialize_template(&binding, &options).unwrap();
    // A template is one of its options.
    let other = options.numerics(Numerics::Strict);
    let error = pipeline.try_specialize_template(&binding, &other).unwrap_err();
    assert!(error.to_string().contains("under these options"), "{error}");
}

fn a_linear_layer_goes_from_template_to_a_run(d: Device) {
    let module = || {
        let mut m = HirModule::new("linear");
        let (x, w) = (m.input("x", f32s(&[1, 8, 4])), m.param("w", f32s(&[4, 2])));
        let y = m.linear(x, w, None, None, f32s(&[1, 8, 2]));
        m.set_outputs(vec![y]);
        m
    };
    let (mut pipeline, options) = (ModelCompilePipeline::new(d), options());
    pipeline.build_template(module, &options).unwrap();
    let result: CompileResult = pipeline.specialize_template(&DimBinding::new(), &options);
    let manifest: BindingManifest = BindingManifest::from_lir(&result.lir);
    assert_eq!(manifest.params[0].name, "w");
    let mut compiled = pipeline.compile_lir(result, &options);
    compiled.set_param("w", &[1.0, 10.0, 2.0, 20.0, 3.0, 30.0, 4.0, 40.0]);
    let x: Vec<f32> = (0..32).map(|i| (i % 4 == 0) as u8 as f32 + (i / 4) as f32).collect();
    let rows = (0..8).flat_map(|r| [1.0 + 10.0 * r as f32, 10.0 + 100.0 * r as f32]);
    assert_eq!(compiled.run(&[("x", &x)]), [rows.collect::<Vec<f32>>()]);
    assert!(pipeline.is_empty());
}

fn variants_equal_exact_compiles(d: Device) {
    let (mut pipeline, options) = (ModelCompilePipeline::new(d), options());
    for (key, (batch, seq)) in [(1, 1), (1, 5), (2, 3), (3, 1), (1, 16), (2, 8)].into_iter().enumerate() {
        let variant = pipeline.get_or_compile(key as u64, &sizes(batch, seq), block, &options).unwrap();
        if key == 0 {
            set_params(variant);
        }
        assert_eq!(variant.inputs()[0].shape, f32s(&[batch, seq, WIDTH]));
        assert_eq!(variant.outputs()[0].shape, f32s(&[batch, seq, WIDTH]));
        let want = exact(d, batch, seq);
        for _ in 0..2 {
            close(&variant.run(&[("x", &input(batch, seq))])[0], &want);
        }
        assert!(variant.try_run(&[("x", &input(batch, seq + 1))]).is_err());
    }
    // The template itself runs at any sizes.
    let template = pipeline.specialize_template(&DimBinding::new(), &options);
    let mut any = pipeline.compile_lir(template, &options);
    any.set_dims(&sizes(2, 3));
    close(&any.run(&[("x", &input(2, 3))])[0], &exact(d, 2, 3));
}

fn variants_are_found_by_key_sizes_and_options(d: Device) {
    let (mut pipeline, options) = (ModelCompilePipeline::new(d), options());
    pipeline.get_or_compile(7, &sizes(1, 2), linear, &options).unwrap();
    pipeline.get_or_compile(7, &sizes(1, 2), || unreachable!("a hit"), &options).unwrap();
    assert_eq!(pipeline.len(), 1);
    let strict = options.clone().numerics(Numerics::Strict);
    pipeline.get_or_compile(7, &sizes(1, 2), linear, &strict).unwrap();
    assert_eq!(pipeline.len(), 2);
    // The same key at other sizes is another variant, never the old one.
    let other = pipeline.get_or_compile(7, &sizes(1, 3), linear, &options).unwrap();
    assert_eq!(other.inputs()[0].shape, f32s(&[1, 3, 2]));
    // Sizes bound by the options count as much as those of the argument.
    let bound = options.clone().dim_binding(sizes(1, 2));
    pipeline.get_or_compile(7, &DimBinding::new(), linear, &bound).unwrap();
    pipeline.get_or_compile(8, &sizes(1, 2), linear, &options).unwrap();
    assert_eq!(pipeline.len(), 4);
    assert!(pipeline.contains(7) && pipeline.contains(8) && !pipeline.contains(9));
    // Values that the options fix belong to the variant.
    let value = ConstData::new(DType::F32, &[2, 1], [2.0f32, 3.0].map(f32::to_le_bytes).concat()).unwrap();
    let fixed = options.clone().param_bindings([("w".to_string(), value)].into());
    let variant = pipeline.get_or_compile(7, &sizes(1, 2), linear, &fixed).unwrap();
    assert_eq!(variant.run(&[("x", &[1.0, 0.0, 0.0, 1.0])]), [[2.0, 3.0]]);
    let plain = pipeline.get_or_compile(7, &sizes(1, 2), linear, &options).unwrap();
    assert!(plain.try_run(&[("x", &[1.0; 4])]).unwrap_err().to_string().contains("never set"));
}

fn the_oldest_variant_goes_first(d: Device) {
    let (mut pipeline, options) = (ModelCompilePipeline::with_capacity(d, 2), options());
    let mut get = |key| {
        pipeline.get_or_compile(key, &sizes(1, key as usize), linear, &options).unwrap();
        [1, 2, 3, 4].map(|key| pipeline.contains(key))
    };
    get(1);
    assert_eq!(get(2), [true, true, false, false]);
    // A hit does not make a variant younger.
    assert_eq!(get(1), [true, true, false, false]);
    assert_eq!(get(3), [false, true, true, false]);
    assert_eq!(get(4), [false, false, true, true]);
    assert_eq!(get(1), [true, false, false, true]);
    assert_eq!(pipeline.len(), 2);
}

fn the_binding_wins_over_the_options(d: Device) {
    let (mut pipeline, options) = (ModelCompilePipeline::new(d), options().dim_binding(sizes(4, 9)));
    pipeline.build_template(linear, &options).unwrap();
    let seq = DimBinding::from_pairs(&[(sym::SEQ, 2)]);
    let shape = |result: CompileResult| result.lir.inputs[0].shape.clone();
    assert_eq!(shape(pipeline.specialize_template(&seq, &options)), f32s(&[4, 2, 2]));
    assert_eq!(shape(pipeline.specialize_template(&sizes(1, 3), &options)), f32s(&[1, 3, 2]));
    assert_eq!(shape(pipeline.specialize_template(&DimBinding::new(), &options)), f32s(&[4, 9, 2]));
    assert_eq!(pipeline.binding_manifest_for_binding(&seq, &options).inputs[0].elem_count, Some(16));
    let variant = pipeline.get_or_compile(1, &seq, linear, &options).unwrap();
    assert_eq!(variant.inputs()[0].shape, f32s(&[4, 2, 2]));
}

fn parameters_carry_over_and_are_copied_on_write(d: Device) {
    let (mut pipeline, options) = (ModelCompilePipeline::with_capacity(d, 2), options());
    let one = [("x", &[1.0f32, 1.0][..])];
    let first = pipeline.get_or_compile(1, &sizes(1, 1), linear, &options).unwrap();
    assert!(first.try_run(&one).unwrap_err().to_string().contains("\"w\""));
    first.set_param("w", &[1.0, 2.0]);
    // Whether or not the first one ran.
    let second = pipeline.get_or_compile(2, &sizes(1, 1), linear, &options).unwrap();
    assert_eq!(second.run(&one), [[3.0]]);
    second.set_param("w", &[5.0, 6.0]);
    assert_eq!(second.run(&one), [[11.0]]);
    let first = pipeline.get_or_compile(1, &sizes(1, 1), linear, &options).unwrap();
    assert_eq!(first.run(&one), [[3.0]]);
    // A clone is on its own.
    let mut clone = first.clone();
    clone.set_param("w", &[100.0, 0.0]);
    assert_eq!((clone.run(&one), first.run(&one)), (vec![vec![100.0]], vec![vec![3.0]]));
    // New variants have the value set last, also under other options, and when all that had it are gone.
    let strict = options.clone().numerics(Numerics::Strict);
    assert_eq!(pipeline.get_or_compile(3, &sizes(1, 1), linear, &strict).unwrap().run(&one), [[11.0]]);
    assert_eq!(pipeline.get_or_compile(4, &sizes(1, 1), linear, &options).unwrap().run(&one), [[11.0]]);
    assert!(!pipeline.contains(1) && !pipeline.contains(2));
    let result = pipeline.specialize_template(&sizes(1, 1), &options);
    assert_eq!(pipeline.compile_lir(result, &options).run(&one), [[11.0]]);
    // A store sets those that are there and those to come.
    let mut store = WeightStore::new();
    let bytes = [7.0f32, 1.0].map(f32::to_le_bytes).concat();
    store.insert("w", Weight::owned(DType::F32, &[2, 1], bytes).unwrap());
    pipeline.try_set_weights(&store).unwrap();
    for key in [4, 5] {
        assert_eq!(pipeline.get_or_compile(key, &sizes(1, 1), linear, &options).unwrap().run(&one), [[8.0]]);
    }
}

fn manifests_tell_what_is_known(d: Device) {
    let (mut pipeline, options) = (ModelCompilePipeline::new(d), options());
    pipeline.build_template(block, &options).unwrap();
    let template: BindingManifest = pipeline.template_binding_manifest();
    assert_eq!((template.graph_name.as_str(), template.arena_size), ("block", None));
    let names = |entries: &[IoBindingEntry]| entries.iter().map(|e| e.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&template.inputs), ["x"]);
    assert_eq!(names(&template.params), ["wq", "wk", "wv", "gamma", "w1", "b1", "w2"]);
    let entry = &template.inputs[0];
    assert_eq!((entry.elem_count, entry.byte_size, entry.arena_offset), (None, None, None));
    assert_eq!((entry.dtype, &entry.shape), (DType::F32, &open(WIDTH)));
    assert_eq!(template.params[4].byte_size, Some(WIDTH * 16 * 4));

    let bound = pipeline.binding_manifest_for_binding(&sizes(2, 3), &options);
    assert_eq!(names(&bound.params), names(&template.params));
    let output = &bound.outputs[0];
    assert_eq!((output.elem_count, output.byte_size), (Some(2 * 3 * WIDTH), Some(2 * 3 * WIDTH * 4)));
    let end = output.arena_offset.expect("outputs are in the arena") + output.byte_size.unwrap();
    assert!(bound.arena_size.unwrap() >= end);
    assert!(
        bound.alignment.is_power_of_two() && output.arena_offset.unwrap().is_multiple_of(bound.alignment)
    );
    let component = ModelComponent::new(ModelVariant::encoder(2, 3));
    assert_eq!(pipeline.binding_manifest_for_component(&component, &options), bound);
    // The CPU puts outputs where the manifest says.
    if d == Device::Cpu {
        let variant = pipeline.get_or_compile(1, &sizes(2, 3), block, &options).unwrap();
        set_params(variant);
        let slots = variant.run_slots(&[&input(2, 3)]);
        assert_eq!(slots, [(output.arena_offset.unwrap(), output.elem_count.unwrap())]);
    }
}

fn components_are_variants_under_their_key(d: Device) {
    let (mut pipeline, options) = (ModelCompilePipeline::new(d), options());
    let encoder = ModelComponent::new(ModelVariant::encoder(1, 4));
    let (graph, manifest) = pipeline.get_or_compile_component(&encoder, block, &options).unwrap();
    assert_eq!(manifest.inputs[0].shape, f32s(&[1, 4, WIDTH]));
    set_params(graph);
    close(&graph.run(&[("x", &input(1, 4))])[0], &exact(d, 1, 4));
    assert!(pipeline.contains(encoder.cache_key()));
    pipeline.get_or_compile_component(&encoder, || unreachable!("a hit"), &options).unwrap();
    // Every choice of a component makes a variant of its own.
    let others = [
        encoder.clone().with_name("other"),
        encoder.clone().with_quant("int8"),
        encoder.clone().with_compilation_mode(CompilationMode::Lazy),
        ModelComponent::new(ModelVariant::prefill(1, 4)),
        ModelComponent::new(ModelVariant::decode(1, 3, 4)),
        encoder.clone().with_kernel_dispatch(KernelDispatchPolicy::ForceCommon),
    ];
    for (i, component) in others.iter().enumerate() {
        let (graph, _) = pipeline.get_or_compile_component(component, block, &options).unwrap();
        close(&graph.run(&[("x", &input(1, 4))])[0], &exact(d, 1, 4));
        let forced = component.kernel_dispatch() == KernelDispatchPolicy::ForceCommon;
        let policy = graph.dispatch_report().policy;
        assert_eq!(policy == KernelDispatchPolicy::ForceCommon, forced);
        assert_eq!(pipeline.len(), i + 2);
    }
}

fn errors_of_blocks_compiler_and_device_come_as_lower_errors(d: Device) {
    let options = options();
    let wrong = || {
        let mut m = linear();
        let x = m.outputs[0];
        let y = m.linear(x, x, None, None, open(7));
        m.set_outputs(vec![y]);
        m
    };
    let custom = || {
        let mut m = HirModule::new("custom");
        let x = m.input("x", f32s(&[2]));
        let op = Op::Custom { name: "unheard-of".into(), num_inputs: 1, attrs: Default::default() };
        let y = m.mir(op, vec![x], f32s(&[2]));
        m.set_outputs(vec![y]);
        m
    };
    let mut pipeline = ModelCompilePipeline::new(d);
    let error = pipeline.get_or_compile(1, &sizes(1, 1), wrong, &options).unwrap_err();
    assert!(matches!(&error, LowerError::Lower(_)), "{error}");
    let error = pipeline.build_template(wrong, &options).unwrap_err();
    assert!(matches!(&error, LowerError::Lower(_)), "{error}");
    let error = pipeline.get_or_compile(1, &sizes(1, 1), custom, &options).unwrap_err();
    assert!(matches!(&error, LowerError::Compile(_)) && error.to_string().contains("Custom"), "{error}");
    assert!(pipeline.is_empty() && !pipeline.has_template());
    let absent = Device::all().iter().copied().find(|&device| !is_available(device));
    let absent = absent.expect("no machine has every device");
    let mut pipeline = ModelCompilePipeline::new(absent);
    let error = pipeline.get_or_compile(1, &sizes(1, 1), linear, &options).unwrap_err();
    let named = error.to_string().contains(absent.feature());
    assert!(matches!(&error, LowerError::Compile(_)) && named, "{error}");
    assert_eq!(error.error().kind(), ErrorKind::DeviceUnavailable);
}

fn sizes_out_of_range_are_rejected(d: Device) {
    let options = options().dim_ranges(vec![(sym::SEQ, SymRange::new(1, 8))]);
    let mut pipeline = ModelCompilePipeline::new(d);
    pipeline.get_or_compile(1, &sizes(1, 8), linear, &options).unwrap();
    for seq in [0, 9] {
        let error = pipeline.get_or_compile(2, &sizes(1, seq), linear, &options).unwrap_err();
        let text = format!("seq = {seq} is outside 1..=8");
        assert!(error.to_string().contains(&text), "{error}");
        let error = pipeline.try_specialize_template(&sizes(1, seq), &options).unwrap_err();
        assert!(error.to_string().contains(&text), "{error}");
    }
    assert_eq!(pipeline.len(), 1);
}

fn panicking_forms_panic_with_the_errors_text(d: Device) {
    let error = ModelCompilePipeline::try_with_capacity(d, 0).unwrap_err();
    assert_eq!(panic_text(|| drop(ModelCompilePipeline::with_capacity(d, 0))), error.to_string());
    let options = options().dim_ranges(vec![(sym::SEQ, SymRange::new(1, 8))]);
    let (mut pipeline, binding) = (ModelCompilePipeline::new(d), sizes(1, 2));
    let component = ModelComponent::new(ModelVariant::encoder(1, 2));
    let texts = [
        panic_text(|| drop(pipeline.specialize_template(&binding, &options))),
        panic_text(|| drop(pipeline.template_binding_manifest())),
        panic_text(|| drop(pipeline.binding_manifest_for_binding(&binding, &options))),
        panic_text(|| drop(pipeline.binding_manifest_for_component(&component, &options))),
    ];
    let errors = [
        pipeline.try_specialize_template(&binding, &options).unwrap_err(),
        pipeline.try_template_binding_manifest().unwrap_err(),
        pipeline.try_binding_manifest_for_binding(&binding, &options).unwrap_err(),
        pipeline.try_binding_manifest_for_component(&component, &options).unwrap_err(),
    ];
    assert_eq!(texts, errors.map(|error| error.to_string()));
    pipeline.build_template(linear, &options).unwrap();
    for seq in [0, 9] {
        let error = pipeline.try_specialize_template(&sizes(1, seq), &options).unwrap_err();
        let text = panic_text(|| drop(pipeline.specialize_template(&sizes(1, seq), &options)));
        assert_eq!(text, error.to_string());
    }
}

fn results_specialize_by_themselves(d: Device) {
    let (options, graph) = (options(), linear().lower_to_mir().unwrap().into_graph());
    let pipeline: CompilePipeline = pipeline_for(d, &options);
    let template: CompileResult = pipeline.compile(&graph).unwrap();
    assert!(template.lir.plan.is_none());
    let half = template.specialize(&pipeline, &DimBinding::from_pairs(&[(sym::BATCH, 2)]));
    assert_eq!(half.lir.symbols, [sym::SEQ]);
    // Symbols that the module does not have are ignored.
    let past = DimBinding::from_pairs(&[(sym::SEQ, 3), (sym::PAST_SEQ, 5)]);
    let whole = half.specialize(&pipeline, &past);
    assert!(whole.lir.symbols.is_empty() && whole.lir.plan.is_some());
    assert_eq!(
        (whole.lir.steps.len(), whole.lir.init.len()),
        (template.lir.steps.len(), template.lir.init.len())
    );
    let mut compiled = Session::new(d).compile_module(GraphModule::from_lir(whole.lir)).unwrap();
    compiled.set_param("w", &[1.0, -1.0]);
    let x: Vec<f32> = (0..12).map(|i| (i * i) as f32).collect();
    assert_eq!(compiled.run(&[("x", &x)]), [[-1.0, -5.0, -9.0, -13.0, -17.0, -21.0]]);
}

fn outputs_outlive_other_variants_runs(d: Device) {
    let (mut pipeline, options) = (ModelCompilePipeline::new(d), options());
    let small = pipeline.get_or_compile(1, &sizes(1, 4), block, &options).unwrap();
    set_params(small);
    let want = small.run(&[("x", &input(1, 4))]).remove(0);
    let address = small.output_views().next().unwrap().bytes.as_ptr();
    let large = pipeline.get_or_compile(2, &sizes(2, 64), block, &options).unwrap();
    large.run(&[("x", &input(2, 64))]);
    let small = pipeline.get_or_compile(1, &sizes(1, 4), block, &options).unwrap();
    assert_eq!(small.output_views().next().unwrap().bytes.as_ptr(), address);
    assert_eq!(small.read_output_row(0, 3, WIDTH).unwrap(), want[3 * WIDTH..]);
    assert_eq!(small.try_read_output(0).unwrap(), want);
}

fn variants_run_at_the_same_time(d: Device) {
    let (mut pipeline, options) = (ModelCompilePipeline::new(d), options());
    set_params(pipeline.get_or_compile(0, &sizes(1, 1), block, &options).unwrap());
    let all = [(1, 3), (2, 7), (1, 16), (1, 40)];
    let variants = all.map(|(batch, seq)| {
        let result = pipeline.specialize_template(&sizes(batch, seq), &options);
        let mut graph = pipeline.compile_lir(result, &options);
        let want = graph.run(&[("x", &input(batch, seq))]).remove(0);
        (graph, input(batch, seq), want)
    });
    std::thread::scope(|scope| {
        for (mut graph, x, want) in variants {
            scope.spawn(move || {
                let mut clone = graph.clone();
                for _ in 0..20 {
                    assert_eq!(graph.run(&[("x", &x)])[0], want);
                    assert_eq!(clone.run(&[("x", &x)])[0], want);
                }
            });
        }
    });
}

#[test]
fn weights_are_read_once_for_all_variants() {
    let reads = Arc::new(AtomicUsize::new(0));
    let mut store = WeightStore::new();
    let counted = Arc::clone(&reads);
    let make = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        [1.0f32, 2.0].map(f32::to_le_bytes).concat()
    };
    store.insert("w", Weight::generated(DType::F32, &[2, 1], make).unwrap());
    let (mut pipeline, options) = (ModelCompilePipeline::new(Device::Cpu), options());
    for seq in 1..5 {
        let variant = pipeline.get_or_compile(seq, &sizes(1, seq as usize), linear, &options).unwrap();
        variant.try_set_weights(&store).unwrap();
        let x = vec![1.0; 2 * seq as usize];
        assert_eq!(variant.run(&[("x", &x)]), [vec![3.0; seq as usize]]);
    }
    assert_eq!(reads.load(Ordering::Relaxed), 1);
}

#[test]
fn pipelines_and_graphs_can_be_sent_to_another_thread() {
    fn sent<T: Send>() {}
    sent::<ModelCompilePipeline>();
    sent::<CompiledGraph>();
    sent::<BucketedCompileCache>();
}
