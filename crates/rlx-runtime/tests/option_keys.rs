//! Every option is either part of the keys of the caches, or changes neither code nor bits.

mod common;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use common::Folder;
use rlx_ir::custom::{CustomOp, register_custom_op};
use rlx_ir::op::{Activation, Arity, BinaryOp, CustomAttr, CustomAttrs};
use rlx_ir::{
    ConstData, DType, Dim, DimBinding, ErrorKind, Graph, HirModule, KernelDispatchPolicy, NodeId, Op, OpKind,
    Shape, SymRange, Value, WeightStore, sym,
};
use rlx_opt::{FusionOptions, Tune};
use rlx_runtime::{
    AotCache, Artefact, BucketedCompileCache, CompileCache, CompileOptions, CompiledGraph, Device,
    DynamicDimCompileCache, ModelCompilePipeline, NewArtefact, Numerics, Precision, PrecisionPolicy, Session,
    stages,
};

/// What changing an option does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Another template, so another module.
    Template,
    /// The same template, another module.
    Module,
    /// The same module, and the same bits.
    Nothing,
}

struct Row {
    option: &'static str,
    change: fn(&mut CompileOptions),
    effect: Effect,
}

/// A row for each possible change of an option. A field without a row does not compile.
macro_rules! rows {
    ($($field:ident: $effect:ident { $($value:expr),+ $(,)? })+) => {
        fn rows() -> Vec<Row> {
            // Every field, and no `..`.
            let CompileOptions { $($field: _),+ } = CompileOptions::default();
            vec![$($(Row {
                option: concat!(stringify!($field), " = ", stringify!($value)),
                change: |options| options.$field = $value,
                effect: Effect::$effect,
            }),+),+]
        }
    };
}

rows! {
    precision: Template { Precision::F16, Precision::BF16 }
    policy: Template {
        Some(PrecisionPolicy::AlwaysF32),
        Some(PrecisionPolicy::AlwaysF16),
        Some(PrecisionPolicy::AutoMixedConservative),
        Some(PrecisionPolicy::AutoMixed),
        Some(PrecisionPolicy::AutoMixedBf16),
        Some(PrecisionPolicy::Custom([(OpKind::MatMul, Precision::F16)].into())),
        Some(PrecisionPolicy::Custom([(OpKind::MatMul, Precision::BF16)].into())),
    }
    dce: Template { false }
    constant_folding: Template { false }
    verbose: Nothing { true }
    fusion: Template {
        fusion(|FusionOptions { elementwise, epilogue: _, producers: _, composites: _ }| *elementwise = false),
        fusion(|FusionOptions { epilogue, .. }| *epilogue = false),
        fusion(|FusionOptions { producers, .. }| *producers = false),
        fusion(|FusionOptions { composites, .. }| *composites = false),
    }
    arena_alignment: Template { 128 }
    assert_fusion_clean: Template { true }
    supported_ops: Template {
        Some(HashSet::from(OPS)),
        Some(OPS.into_iter().chain([OpKind::Softmax]).collect()),
    }
    dim_binding: Module { DimBinding::from_pairs(&[(sym::BATCH, 2)]), DimBinding::from_pairs(&[(sym::BATCH, 3)]) }
    dim_ranges: Template { vec![(sym::BATCH, SymRange { min: 1, max: 8 })], vec![(sym::BATCH, SymRange { min: 1, max: 9 })] }
    param_bindings: Template { fix("b", 3.0), fix("b", 7.0), fix("w", 3.0) }
    kernel_dispatch: Template { KernelDispatchPolicy::ForceCommon, KernelDispatchPolicy::ForceNative }
    numerics: Template { Numerics::Strict }
    shared_arena: Module { true }
    tune: Nothing { Tune::Off, Tune::Measure }
}

/// The ops that the graph needs.
const OPS: [OpKind; 4] = [OpKind::MatMul, OpKind::Binary, OpKind::Activation, OpKind::Expand];

fn fusion(change: fn(&mut FusionOptions)) -> FusionOptions {
    let mut options = FusionOptions::default();
    change(&mut options);
    options
}

/// One value for all elements of a parameter of [`dense`].
fn fix(name: &str, value: f32) -> std::collections::HashMap<String, ConstData> {
    let dims: &[usize] = if name == "w" { &[4, 3] } else { &[3] };
    let data = ConstData::from_f32(dims, &vec![value; dims.iter().product()]).unwrap();
    [(name.to_owned(), data)].into()
}

fn rows_of(width: usize) -> Shape {
    Shape::from_dims(&[Dim::Dynamic(sym::BATCH), Dim::Static(width)], DType::F32)
}

/// `y = relu(x · w + b)` for an open batch.
fn dense() -> Graph {
    let mut g = Graph::new("dense");
    let x = g.input("x", rows_of(4));
    let (w, b) = (g.param("w", Shape::new(&[4, 3], DType::F32)), g.param("b", Shape::new(&[3], DType::F32)));
    let y = g.matmul(x, w, rows_of(3));
    let y = g.binary(BinaryOp::Add, y, b, rows_of(3));
    let y = g.activation(Activation::Relu, y, rows_of(3));
    g.set_outputs(vec![y]);
    g
}

fn changed(row: &Row) -> CompileOptions {
    let mut options = CompileOptions::default();
    (row.change)(&mut options);
    options
}

#[test]
fn every_option_is_part_of_the_key_or_changes_nothing() {
    let plain = CompileOptions::default();
    let mut keys = HashSet::from([plain.code_key()]);
    for row in rows() {
        let options = changed(&row);
        let is_new = keys.insert(options.code_key());
        assert_eq!(is_new, row.effect != Effect::Nothing, "{}: {}", row.option, options.code_key());
        assert_eq!(options.code_key(), changed(&row).code_key(), "{}", row.option);
        assert_eq!(plain.compiles_same_module(&options), row.effect == Effect::Nothing, "{}", row.option);
        assert_eq!(plain.shapes_same_code(&options), row.effect != Effect::Template, "{}", row.option);
    }
}

#[test]
fn every_cache_finds_code_by_every_option_that_counts() {
    let sizes = DimBinding::from_pairs(&[(sym::BATCH, 5)]);
    let folder = Folder::new("option-keys");
    for row in rows().iter().filter(|row| !row.option.contains("Measure")) {
        let (plain, options, what) = (CompileOptions::default(), changed(row), row.option);
        let counts = row.effect != Effect::Nothing;

        let mut cache = CompileCache::new(Device::Cpu);
        for options in [&plain, &options, &plain, &options] {
            cache.try_get_or_compile_with(1, dense, options).unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        assert_eq!(cache.len(), 1 + usize::from(counts), "CompileCache, {what}");

        let mut cache =
            BucketedCompileCache::power_of_two_ladder(Device::Cpu, 1, 8).with_options(plain.clone());
        cache.try_get_or_compile(3, |_| dense()).unwrap();
        assert_eq!(cache.with_options(options.clone()).is_empty(), counts, "BucketedCompileCache, {what}");

        // The sizes are the same, and scratch memory is always shared here.
        let template = row.effect == Effect::Template;
        let mut cache = DynamicDimCompileCache::new(Device::Cpu, dense());
        for options in [&plain, &options, &plain, &options] {
            cache.try_get_or_compile_with(&sizes, options).unwrap();
        }
        assert_eq!(cache.len(), 1 + usize::from(template), "DynamicDimCompileCache, {what}");

        let mut pipeline = ModelCompilePipeline::new(Device::Cpu);
        pipeline.get_or_compile(1, &sizes, blocks, &plain).unwrap();
        assert_eq!(
            pipeline.try_specialize_template(&sizes, &options).is_err(),
            template,
            "templates, {what}"
        );
        let made = pipeline.try_specialize_template(&sizes, &plain).unwrap();
        let foreign = pipeline.try_compile_lir(made, &options);
        assert_eq!(foreign.is_err(), template, "another template's module, {what}");

        let root = folder.path().join("aot");
        let cache = AotCache::new(&root);
        let mut made = Vec::new();
        for options in [&plain, &options, &plain, &options] {
            let compiled = cache.compile_graph_cached("dense", Device::Cpu, dense(), options).unwrap();
            made.push(!compiled.passes().is_empty());
        }
        assert_eq!(made, [true, counts, false, false], "AotCache, {what}");
        std::fs::remove_dir_all(root).unwrap();
    }
}

#[test]
fn options_outside_of_the_key_change_neither_code_nor_bits() {
    let x: Vec<f32> = (0..8).map(|i| i as f32 * 0.37 - 1.0).collect();
    let run = |options: &CompileOptions| {
        let mut compiled = Session::new(Device::Cpu).try_compile_with(dense(), options).unwrap();
        compiled.set_param("w", &[0.3; 12]);
        compiled.set_param("b", &[0.1, -0.2, 0.3]);
        let bits = compiled.run(&[("x", &x)])[0].iter().map(|y| y.to_bits()).collect::<Vec<_>>();
        (compiled.lir().clone(), bits)
    };
    let plain = run(&CompileOptions::default());
    let irrelevant =
        rows().into_iter().filter(|r| r.effect == Effect::Nothing && !r.option.contains("Measure"));
    for row in irrelevant {
        assert!(run(&changed(&row)) == plain, "{}", row.option);
    }
}

/// The blocks of `y = x · w`.
fn blocks() -> HirModule {
    let mut m = HirModule::new("blocks");
    let (x, w) = (m.input("x", rows_of(4)), m.param("w", Shape::new(&[4, 3], DType::F32)));
    let b = m.param("b", Shape::new(&[3], DType::F32));
    let y = m.linear(x, w, Some(b), None, rows_of(3));
    m.set_outputs(vec![y]);
    m
}

/// Graphs of `y = x · w + b` by every cache under the same name, one after the other.
fn from_every_cache(root: &std::path::Path) -> Vec<(&'static str, GetGraph)> {
    let graph = || blocks().lower_to_mir().unwrap().into_graph();
    let sizes = || DimBinding::from_pairs(&[(sym::BATCH, 1)]);
    let aot = || AotCache::new(root);
    let mut keyed = CompileCache::new(Device::Cpu);
    let mut dynamic = DynamicDimCompileCache::new(Device::Cpu, graph());
    let mut pipeline = ModelCompilePipeline::new(Device::Cpu);
    let mut on_disk = ModelCompilePipeline::new(Device::Cpu);
    let mut buckets = Some(BucketedCompileCache::power_of_two_ladder(Device::Cpu, 1, 1));
    let (cache, templates, again) = (aot(), aot(), aot());
    vec![
        ("AotCache", Box::new(move |o| cache.compile_graph_cached("m", Device::Cpu, graph(), o).unwrap())),
        (
            "AotCache, a template",
            Box::new(move |o| {
                let template = stages::pipeline_for(Device::Cpu, o).compile(&graph()).unwrap();
                templates.specialize_cached("m", &sizes(), Device::Cpu, &template, o).unwrap()
            }),
        ),
        (
            "ModelCompilePipeline",
            Box::new(move |o| pipeline.get_or_compile(1, &sizes(), blocks, o).unwrap().clone()),
        ),
        (
            "ModelCompilePipeline and AotCache",
            Box::new(move |o| {
                on_disk.get_or_specialize_aot(&again, "m", 1, &sizes(), blocks, o).unwrap().clone()
            }),
        ),
        ("CompileCache", Box::new(move |o| keyed.try_get_or_compile_with(1, graph, o).unwrap().clone())),
        (
            "DynamicDimCompileCache",
            Box::new(move |o| dynamic.try_get_or_compile_with(&sizes(), o).unwrap().clone()),
        ),
        (
            "BucketedCompileCache",
            Box::new(move |o| {
                let mut cache = buckets.take().unwrap().with_options(o.clone());
                let compiled = cache.try_get_or_compile(1, |_| graph()).unwrap().unwrap().1.clone();
                buckets = Some(cache);
                compiled
            }),
        ),
    ]
}

type GetGraph = Box<dyn FnMut(&CompileOptions) -> CompiledGraph>;

#[test]
fn a_parameter_that_is_fixed_is_fixed_for_that_compilation_alone() {
    let folder = Folder::new("fixed-parameters");
    let run = |compiled: &mut CompiledGraph| compiled.run(&[("x", &[1.0; 4])]);
    for (what, mut get) in from_every_cache(folder.path()) {
        // Twice, so that all of them come out of the cache, too.
        for value in [3.0, 7.0, 3.0, 7.0] {
            let options = CompileOptions { param_bindings: fix("w", value), ..CompileOptions::default() };
            let mut fixed = get(&options);
            assert!(fixed.is_param_set("w") && !fixed.is_param_set("b"), "{what}");
            let e = fixed.try_set_param("w", &[10.0; 12]).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Binding, "{what}");
            assert!(e.to_string().contains("fixed") && e.hint().is_some(), "{what}: {e}");
            fixed.set_param("b", &[0.5; 3]);
            assert_eq!(run(&mut fixed), [[4.0 * value + 0.5; 3]], "{what}, w = {value}");
        }
        let mut open = get(&CompileOptions::default());
        assert!(
            open.try_run(&[("x", &[1.0; 4])]).is_err() || what.contains("Bucket"),
            "{what}: w was never set"
        );
        open.set_param("w", &[10.0; 12]);
        open.set_param("b", &[0.5; 3]);
        assert_eq!(run(&mut open), [[40.5; 3]], "{what}, w set");
    }
}

#[test]
fn what_cannot_be_fixed_is_an_error() {
    let session = Session::new(Device::Cpu);
    let error = |graph: Graph, param_bindings| {
        let options = CompileOptions { param_bindings, ..CompileOptions::default() };
        let e = session.try_compile_with(graph, &options).unwrap_err();
        assert_eq!(e.error().kind(), ErrorKind::Binding);
        e.to_string()
    };
    let other = [("bb".to_owned(), ConstData::from_f32(&[3], &[0.0; 3]).unwrap())];
    assert!(error(dense(), other.into()).contains("\"bb\""), "no such parameter");
    let wrong = [("b".to_owned(), ConstData::from_f32(&[2], &[0.0; 2]).unwrap())];
    assert!(error(dense(), wrong.into()).contains("[2] f32"), "another shape");
    let options = CompileOptions { param_bindings: fix("b", 1.0), ..CompileOptions::default() };
    let lir = session.compile(dense()).lir().clone();
    let e = session.compile_module_with(rlx_ir::GraphModule::from_lir(lir), &options).unwrap_err();
    assert_eq!(e.error().kind(), ErrorKind::Config, "{e}");
}

#[test]
fn an_artefact_keeps_fixed_parameters() {
    let (folder, session) = (Folder::new("fixed-artefact"), Session::new(Device::Cpu));
    let options = CompileOptions { param_bindings: fix("w", 3.0), ..CompileOptions::default() };
    let mut compiled = session.try_compile_with(dense(), &options).unwrap();
    let mut weights = WeightStore::new();
    let data = ConstData::from_f32(&[3], &[0.5; 3]).unwrap();
    weights.insert("b", rlx_ir::Weight::owned(DType::F32, &[3], data.bytes().clone()).unwrap());
    compiled.try_set_weights(&weights).unwrap();
    let graph = dense();
    for source in [None, Some(&graph)] {
        let path = folder.path().join("m.rlx");
        let new = NewArtefact { options: options.clone(), source, ..NewArtefact::new("m", &weights) };
        session.save(&path, &mut compiled, new).unwrap();
        let artefact = Artefact::open(&path).unwrap();
        let mut loaded = session.load(&artefact).unwrap();
        assert_eq!(loaded.run(&[("x", &[1.0; 4])]), [[12.5; 3]]);
        assert!(loaded.try_set_param("w", &[1.0; 12]).is_err());
        // The graph that was given has it, and its value.
        let kept = artefact.weights().unwrap().get("w").map(|w| w.bytes().unwrap()[..4].to_vec());
        assert_eq!(kept, source.map(|_| 3f32.to_le_bytes().to_vec()));
    }
}

/// Gives its input, says its reference; one of the two decomposes, into `|x|`, or `−x` once [`NEGATES`] says so.
struct Test {
    name: &'static str,
    decomposes: bool,
}

const CHANGING: Test = Test { name: "test.Changing", decomposes: true };
const OPAQUE: Test = Test { name: "test.Opaque", decomposes: false };

static NEGATES: AtomicBool = AtomicBool::new(false);

impl CustomOp for Test {
    fn name(&self) -> &str {
        self.name
    }

    fn arity(&self) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, _: &CustomAttrs, inputs: &[&Shape]) -> rlx_ir::Result<Vec<Shape>> {
        Ok(vec![inputs[0].clone()])
    }

    fn reference(&self, _: &CustomAttrs, inputs: &[&Value], _: &[Shape]) -> rlx_ir::Result<Vec<Value>> {
        Ok(vec![inputs[0].clone()])
    }

    fn decompose(
        &self,
        _: &CustomAttrs,
        inputs: &[NodeId],
        graph: &mut Graph,
    ) -> Option<rlx_ir::Result<Vec<NodeId>>> {
        let shape = graph.shape(inputs[0]).clone();
        let op = if NEGATES.load(Ordering::Relaxed) { Activation::Neg } else { Activation::Abs };
        self.decomposes.then(|| Ok(vec![graph.activation(op, inputs[0], shape)]))
    }
}

#[test]
fn what_custom_ops_decompose_into_is_part_of_the_key() {
    register_custom_op(CHANGING).unwrap();
    register_custom_op(OPAQUE).unwrap();
    let (folder, options) = (Folder::new("custom-keys"), CompileOptions::default());
    let custom = |name| Op::custom(name, 1, [] as [(&str, CustomAttr); 0]);
    // That one op has no decomposition must not hide the other's.
    for name in ["test.Changing alone", "test.Changing and test.Opaque"] {
        let graph = rlx_ir::trace(name, |t| {
            let x = t.input("x", Shape::new(&[2], DType::F32));
            let y = t.op(custom("test.Changing"), &[&x]);
            vec![if name.contains("Opaque") { t.op(custom("test.Opaque"), &[&y]) } else { y }]
        });
        let cache = AotCache::new(folder.path());
        for (negates, made) in [(false, true), (false, false), (true, true), (true, false), (false, false)] {
            NEGATES.store(negates, Ordering::Relaxed);
            let mut compiled = cache.compile_graph_cached("m", Device::Cpu, graph.clone(), &options).unwrap();
            let sign = if negates { -1.0 } else { 1.0 };
            assert_eq!(compiled.run(&[("x", &[3.0, 4.0])]), [[3.0 * sign, 4.0 * sign]], "{name}");
            assert_eq!(!compiled.passes().is_empty(), made, "{name}, negates: {negates}");
        }
    }
}
