//! A device is tried for each class of kernels before it is used for it: right ones keep all classes, and a wrong one does without what it computes wrongly, and is right.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use rlx_backend::Backend;
use rlx_backend::testing::disagreement;
use rlx_driver::Device;
use rlx_gpu::{Class, Family};
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{AttentionShape, Gen, random_attention, random_bindings, random_conv, random_matmul};
use rlx_ir::{DType, DimBinding, ErrorKind, Graph, LirModule, OpKind, text};
use rlx_opt::{CompileOptions, CompilePipeline, Numerics};
use rlx_simt::{Lowered, SimtBackend};
use tracing::field::{Field, Visit};

use crate::common::{Fake, fake, second_gpu, set_params};
use crate::grouped::{mixture, values};
use crate::tiles::{MODELS, module, schedules, tiled};

/// The warnings that are given while something is done, each as one line.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// What is done, and the warnings meanwhile.
fn warned<T>(f: impl FnOnce() -> T) -> (T, Vec<String>) {
    let warnings = Warnings::default();
    let done = tracing::subscriber::with_default(warnings.clone(), f);
    let all = warnings.0.lock().unwrap().clone();
    (done, all)
}

/// A fake GPU as it was opened for one test: nothing is noted of it, and it knows nothing of what others found.
fn own(device: Device, ordinal: usize, test: u64) -> SimtBackend {
    let limits = Lowered { max_memory_bytes: Some((1 << 30) + test), ..Lowered::default() };
    fake(device, ordinal).with_limits(limits)
}

#[test]
fn every_class_of_a_right_device_is_right_and_is_tried_once() {
    let _alone = second_gpu();
    for (device, ordinal, units, brain) in MODELS {
        let backend = own(device, ordinal, 1);
        assert_eq!(backend.trials().unwrap(), 0, "{device} {ordinal}");
        let (aside, warnings) = warned(|| backend.try_all().unwrap());
        assert!(aside.is_empty() && warnings.is_empty(), "{device} {ordinal}: {aside:?} {warnings:?}");
        // Those of kernels, and of each type that there is a matrix instruction of: eight families, some of them at the group level, too.
        let of_type = match units {
            None => 0,
            Some("sm_90a") => 8 + 3,
            Some("sm_100a") => 8 + 2,
            Some(_) => 8,
        };
        let trials = backend.trials().unwrap();
        assert_eq!(trials, 8 + of_type * if brain { 2 } else { 1 }, "{device} {ordinal}");
        backend.try_all().unwrap();
        assert_eq!(backend.trials().unwrap(), trials, "{device} {ordinal}: once");
    }
}

/// What does not fit lower limits is none of the device's faults.
#[test]
fn a_right_device_is_right_under_lower_limits() {
    let _alone = second_gpu();
    let own = |test: u64| Lowered { max_memory_bytes: Some((1 << 30) + test), ..Lowered::default() };
    let limits = [
        Lowered { max_shared_bytes: Some(256), ..own(40) },
        Lowered { max_workgroup: Some(4), ..own(41) },
        Lowered { max_storage_buffers: Some(3), ..own(42) },
        Lowered { max_binding_bytes: Some(512), ..own(43) },
        Lowered { only_words: true, ..own(44) },
    ];
    for limits in limits {
        let backend = fake(Device::Cuda, 1).with_limits(limits);
        let (aside, warnings) = warned(|| backend.try_all().unwrap());
        assert!(aside.is_empty() && warnings.is_empty(), "{limits:?}: {aside:?} {warnings:?}");
    }
}

#[test]
fn a_device_is_tried_for_what_a_module_has() {
    let _alone = second_gpu();
    let backend = own(Device::Cuda, 1, 3);
    let options = CompileOptions::default().numerics(Numerics::Strict);
    let compile = |text: &str| {
        let graph = text::parse(&format!("graph \"g\" {{ {text} }}")).unwrap();
        backend.compile(module(&graph, &backend, &options), &options).unwrap();
        backend.trials().unwrap()
    };
    // What goes by elements has no class.
    let sum = "%0 = Input {name=\"x\"} : [40] f32 %1 = Binary.Add(%0, %0) : [40] f32 return %1";
    assert_eq!(compile(sum), 0);
    let short = "%0 = Input {name=\"x\"} : [9, 20] f32 %1 = Reduce(%0) {op=Sum, axes=[1], keep_dim=false} : [9] f32 return %1";
    assert_eq!(compile(short), 0);
    assert_eq!(compile(&short.replace("20]", "200]")), 1);
    let product = "%0 = Input {name=\"x\"} : [50, 64] f16 %1 = Input {name=\"w\"} : [64, 72] f16 %2 = MatMul(%0, %1) : [50, 72] f16 return %2";
    let before = Fake::get().tile_runs();
    assert_eq!(compile(product), 2);
    assert_eq!(Fake::get().tile_runs() - before, 1, "one launch");
    for _ in 0..2 {
        assert_eq!(compile(product), 2);
    }
    assert_eq!(compile(&product.replace("50", "90")), 2);
    assert_eq!(compile(&product.replace("f16", "bf16")), 3);
    assert_eq!(compile(&product.replace("f16", "f32")), 4);
}

fn attention(dtype: DType) -> (Graph, Bindings) {
    let shape = AttentionShape {
        kv_heads: 2,
        groups: 1,
        head_dim: 16,
        value_dim: 16,
        batch: 1,
        queries: 20,
        keys: 20,
    };
    random_attention(&mut Gen::new(3), dtype, &shape).graph()
}

fn with_values(graph: Graph) -> (Graph, Bindings) {
    let bindings = random_bindings(&graph, &DimBinding::new(), 7);
    (graph, bindings)
}

/// Compiles and runs a graph on a device that computes some names wrongly, which has to be right all the same; gives the schedules of its steps, and how many of these
/// are done by tile programs of the group level.
fn right_without(
    graph: &(Graph, Bindings),
    backend: &SimtBackend,
    options: &CompileOptions,
) -> (Vec<String>, Arc<LirModule>) {
    let (graph, bindings) = graph;
    let lir = module(graph, backend, options);
    let steps = schedules(&lir, backend, options);
    let mut exec = backend.compile(Arc::clone(&lir), options).unwrap_or_else(|e| panic!("{e}\n{graph}"));
    set_params(&mut *exec, bindings).unwrap();
    if let Some(why) = disagreement(graph, bindings, &mut *exec) {
        panic!("{} computes wrongly what it was tried for: {why}\n{graph}\n{lir}", backend.name());
    }
    (steps, lir)
}

#[test]
fn what_a_device_computes_wrongly_is_put_aside_with_a_warning_and_models_are_right() {
    let _alone = second_gpu();
    let options = CompileOptions::default().numerics(Numerics::Strict);
    for (device, ordinal) in [(Device::Cuda, 1), (Device::Rocm, 1)] {
        let (f16, mut test) = (DType::F16, 10);
        let product = with_values(random_matmul(&mut Gen::new(1), f16));
        let conv = with_values(random_conv(&mut Gen::new(1), f16));
        let sizes = [4, 64, 40];
        let grouped = (mixture("20", f16, sizes), values(&mut Gen::new(2), f16, 20, sizes, 3));
        let families = [
            ("matmul.", Family::MatMul, &product),
            ("grouped.", Family::Grouped, &grouped),
            ("attention.", Family::Attention, &attention(f16)),
            ("conv.", Family::Conv, &conv),
        ];
        for (names, family, graph) in families {
            test += 1;
            let (right, wrong) = (own(device, ordinal, 2), own(device, ordinal, test));
            let with_all = schedules(&module(&graph.0, &right, &options), &right, &options);
            assert!(tiled(&with_all) > 0, "{names}: {with_all:?}");
            wrong.probe().unwrap();
            Fake::get().spoil(device, ordinal, Some(names));
            let ((steps, _), warnings) = warned(|| right_without(graph, &wrong, &options));
            let aside = wrong.try_all().unwrap();
            Fake::get().spoil(device, ordinal, None);
            assert!(
                aside.contains(&Class::Tiles { family, dtype: f16, groups: false }),
                "{names}: {aside:?}"
            );
            let of_family = steps.iter().filter(|s| s.starts_with("tiles."));
            // What they decompose into has programs of another family.
            let decomposes = matches!(family, Family::Attention | Family::Grouped);
            assert!(decomposes || of_family.count() == 0, "{names}: {steps:?}");
            let class = Class::Tiles { family, dtype: f16, groups: false }.to_string();
            let of_class = |line: &&String| line.contains("put aside") && line.contains(&class);
            let own: Vec<_> = warnings.iter().filter(of_class).collect();
            assert_eq!(own.len(), 1, "{names}: one warning: {warnings:?}");
            let machine = wrong.machine().unwrap();
            for part in [device.name(), &machine, "results are wrong"] {
                assert!(own[0].contains(part), "{names}: {part:?} in {:?}", own[0]);
            }
        }
    }
}

/// Matmuls have kernels without workgroup memory, and attention decomposes. Reductions of long rows have none: the device does not claim them, and says why.
#[test]
fn wrong_kernels_have_others_or_the_device_says_what_it_does_not_compute() {
    let _alone = second_gpu();
    let (device, ordinal) = (Device::Rocm, 3);
    let backend = own(device, ordinal, 20);
    backend.probe().unwrap();
    let options = CompileOptions::default().numerics(Numerics::Strict);
    let parsed = |text: &str| text::parse(&format!("graph \"g\" {{ {text} }}")).unwrap();
    let product = parsed(
        "%0 = Input {name=\"x\"} : [50, 64] f32 %1 = Input {name=\"w\"} : [64, 72] f32 %2 = MatMul(%0, %1) : [50, 72] f32 return %2",
    );
    let sum = parsed(
        "%0 = Input {name=\"x\"} : [9, 200] f32 %1 = Reduce(%0) {op=Sum, axes=[1], keep_dim=false} : [9] f32 return %1",
    );
    let with_all = schedules(
        &module(&product, &own(device, ordinal, 21), &options),
        &own(device, ordinal, 21),
        &options,
    );
    assert!(with_all.iter().any(|name| name.starts_with("tile")), "{with_all:?}");
    Fake::get().spoil(device, ordinal, Some("shared"));
    let ((steps, _), warnings) = warned(|| right_without(&with_values(product), &backend, &options));
    let ((_, parts), _) = warned(|| right_without(&attention(DType::F32), &backend, &options));
    let refused = CompilePipeline::new(backend.target(&options).unwrap(), options.clone()).compile(&sum);
    let aside = backend.try_all().unwrap();
    Fake::get().spoil(device, ordinal, None);
    assert!(!steps.iter().any(|name| name.starts_with("tile")), "{steps:?}");
    assert!(warnings.len() == 1 && warnings[0].contains(&Class::Tiled.to_string()), "{warnings:?}");
    let is_whole = parts.graph.nodes().iter().any(|n| n.op.kind() == OpKind::Attention);
    assert!(!is_whole, "{parts}");
    let Err(error) = refused else { panic!("there are no other kernels") };
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains(&format!("computes {} wrongly", Class::Reduce)), "{error}");
    assert_eq!(
        aside,
        [
            Class::Tiled,
            Class::FewRows,
            Class::Reduce,
            Class::ArgReduce,
            Class::TopK,
            Class::Scan,
            Class::Rows,
            Class::Attention
        ]
    );
}

/// Where exchanges within subgroups are wrong, rows have kernels that go through workgroup memory, and what was right with exchanges is tried again without.
#[test]
fn wrong_exchanges_leave_kernels_without_them() {
    let _alone = second_gpu();
    let options = CompileOptions::default().numerics(Numerics::Strict);
    let parsed = |text: &str| text::parse(&format!("graph \"g\" {{ {text} }}")).unwrap();
    let softmax =
        parsed("%0 = Input {name=\"x\"} : [9, 200] f32 %1 = Softmax(%0) {axis=-1} : [9, 200] f32 return %1");
    let sum = parsed(
        "%0 = Input {name=\"x\"} : [9, 200] f32 %1 = Reduce(%0) {op=Sum, axes=[1], keep_dim=false} : [9] f32 return %1",
    );
    // Warps of 32 threads, and waves of 64.
    for (device, ordinal, test) in [(Device::Cuda, 1, 30), (Device::Rocm, 1, 31), (Device::Rocm, 3, 32)] {
        let backend = own(device, ordinal, test);
        right_without(&with_values(sum.clone()), &backend, &options);
        assert_eq!(backend.trials().unwrap(), 1);
        Fake::get().spoil(device, ordinal, Some("exchanges"));
        let (_, warnings) = warned(|| {
            right_without(&with_values(softmax.clone()), &backend, &options);
            right_without(&with_values(sum.clone()), &backend, &options);
        });
        let aside = backend.try_all().unwrap();
        Fake::get().spoil(device, ordinal, None);
        let own: Vec<_> = warnings.iter().filter(|line| line.contains("put aside")).collect();
        assert_eq!(own.len(), 1, "{device} {ordinal}: {warnings:?}");
        assert!(own[0].contains(&Class::Exchanges.to_string()), "{device} {ordinal}: {own:?}");
        let classes = [Class::Rows, Class::Reduce, Class::ArgReduce];
        assert!(classes.iter().all(|class| !aside.contains(class)), "{aside:?}");
    }
}
