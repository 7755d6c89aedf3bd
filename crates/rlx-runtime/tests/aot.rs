//! Artefacts: a saved model gives the same bits after loading; a damaged or foreign file is rejected.

mod common;

use std::path::PathBuf;
use std::sync::Arc;

use common::{Folder, bits, compile, convolutional, weights_of};
use rlx_cpu::CpuBackend;
use rlx_cpu::isa::{Isa, IsaKind};
use rlx_ir::op::Body;
use rlx_ir::oracle::Bindings;
use rlx_ir::testing::{Gen, random_graph, random_symbolic_graph};
use rlx_ir::{DType, ErrorKind, Graph, Op, Shape, Weight, WeightStore};
use rlx_runtime::{
    AotCache, Artefact, CompileOptions, CompiledGraph, Device, NewArtefact, RunRequest, Session, TensorView,
};

fn session(device: Device) -> Session {
    Session::try_new(device).unwrap()
}

/// The graph's artefact in `folder`, and what it was made of.
fn saved_on(
    device: Device,
    folder: &Folder,
    graph: &Graph,
    weights: &WeightStore,
    source: bool,
) -> (PathBuf, CompiledGraph) {
    let mut compiled = compile(&session(device), graph, weights);
    let path = folder.path().join("model.rlx");
    let new = NewArtefact { source: source.then_some(graph), ..NewArtefact::new("model", weights) };
    session(device).save(&path, &mut compiled, new).unwrap_or_else(|e| panic!("{e}\n{graph}"));
    (path, compiled)
}

/// [`saved_on`] the CPU.
fn saved(folder: &Folder, graph: &Graph, weights: &WeightStore, source: bool) -> (PathBuf, CompiledGraph) {
    saved_on(Device::Cpu, folder, graph, weights, source)
}

/// Runs each test, a function of a device, on the CPU and on the devices that wgpu drives.
macro_rules! on_each_device {
    ($($name:ident),* $(,)?) => {
        mod cpu { $( #[test] fn $name() { super::$name(rlx_runtime::Device::Cpu); } )* }
        #[cfg(feature = "vulkan")]
        mod vulkan { $( #[test] fn $name() { rlx_contract::on(rlx_runtime::Device::Vulkan, super::$name); } )* }
        #[cfg(feature = "opengl")]
        mod opengl { $( #[test] fn $name() { rlx_contract::on(rlx_runtime::Device::OpenGl, super::$name); } )* }
    };
}

on_each_device!(
    random_graphs_come_back_with_the_same_bits,
    the_same_input_makes_the_same_bytes,
    parameters_can_be_set_after_loading_also_those_that_were_packed,
    damaged_artefacts_are_errors_or_right,
);

#[test]
fn errors_of_a_loaded_artefact_name_the_nodes_of_bodies() {
    let (row, scalar) = (|| Shape::new(&[3], DType::F32), || Shape::scalar(DType::F32));
    let branch = |name: &str| {
        let mut g = Graph::new("branch");
        let (x, at) = (g.input("x", row()), g.input("at", Shape::scalar(DType::I64)));
        let y = g.gather(x, at, 0, scalar());
        let origin = g.origins_mut().source(name);
        g.set_origin(y, origin);
        g.set_outputs(vec![y]);
        Arc::new(Body { graph: g })
    };
    let mut g = Graph::new("choice");
    let (x, at) = (g.input("x", row()), g.input("at", Shape::scalar(DType::I64)));
    let flag = g.input("flag", Shape::scalar(DType::Bool));
    let (then, otherwise) = (branch("/then/Gather"), branch("/else/Gather"));
    let op = Op::If { then, otherwise, count: None, chosen: false };
    let y = g.try_add(op, &[flag, x, at, x, at]).unwrap();
    g.set_outputs(vec![y]);
    let folder = Folder::new("bodies");
    let (path, mut compiled) = saved(&folder, &g, &WeightStore::new(), true);
    let artefact = Artefact::open(&path).unwrap();
    let mut loaded = session(Device::Cpu).load(&artefact).unwrap();
    for (flag, name) in [(1u8, "/then/Gather"), (0, "/else/Gather")] {
        for graph in [&mut compiled, &mut loaded] {
            let flag = TensorView { name: "flag", dtype: DType::Bool, dims: &[], bytes: &[flag] };
            let request = RunRequest::new().input("x", &[1.0, 2.0, 3.0]).input("flag", flag);
            assert_eq!(
                graph.execute(request.clone().input("at", &[1i64])).unwrap().to_f32().unwrap(),
                [[2.0]]
            );
            let e = graph.execute(request.input("at", &[7i64])).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Value);
            assert!(e.to_string().contains(name), "{e}");
        }
    }
    let source = artefact.source().unwrap().expect("the graph as it was given");
    let node = source.nodes().iter().find(|n| matches!(n.op, Op::If { .. })).unwrap();
    let labels = node.op.bodies().into_iter().map(|body| body.graph.label(body.graph.outputs[0]));
    assert_eq!(labels.collect::<Vec<_>>(), ["/then/Gather", "/else/Gather"]);
}

/// `many` on the CPU; what a software driver compiles in the same time on others.
fn as_many(device: Device, many: usize) -> usize {
    if device == Device::Cpu { many } else { many.div_ceil(6) }
}

fn random_graphs_come_back_with_the_same_bits(device: Device) {
    let folder = Folder::new(&format!("random-{device}"));
    let (mut prepared, mut open, mut seen) = (0, 0, 0);
    let wanted = as_many(device, 120);
    for seed in 0.. {
        if seen == wanted {
            break;
        }
        let (graph, all) = if seed % 3 == 0 {
            random_symbolic_graph(seed, 14)
        } else {
            let (graph, bindings) = random_graph(seed, 14);
            (graph, vec![bindings])
        };
        if !rlx_runtime::supports_graph(device, &graph) {
            continue;
        }
        seen += 1;
        let weights = weights_of(&graph, &all[0]);
        let (path, mut compiled) = saved_on(device, &folder, &graph, &weights, seed % 2 == 0);
        let artefact = Artefact::open(&path).unwrap();
        artefact.verify().unwrap();
        assert_eq!(artefact.lir().unwrap(), *compiled.lir(), "seed {seed}");
        let mut loaded =
            session(device).load(&artefact).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{graph}"));
        for bindings in &all {
            assert_eq!(bits(&mut loaded, bindings), bits(&mut compiled, bindings), "seed {seed}\n{graph}");
        }
        prepared += usize::from(artefact.sizes().prepared > 0);
        assert_eq!(artefact.sizes().code > 0, device != Device::Cpu, "generated kernels are kept");
        open += usize::from(!compiled.lir().symbols.is_empty());
        if let Some(source) = artefact.source().unwrap() {
            assert_eq!(source, graph);
        }
    }
    println!("{prepared} of {seen} with prepared weights, {open} with open dimensions");
    // Devices of generated kernels pack nothing: there only what is computed of weights alone is prepared.
    let least = if device == Device::Cpu { 20 } else { 1 };
    assert!(
        prepared >= least && open >= least,
        "{prepared} with prepared weights, {open} with open dimensions"
    );
}

fn the_same_input_makes_the_same_bytes(device: Device) {
    let folder = Folder::new(&format!("same-{device}"));
    let (graph, bindings) = convolutional();
    let weights = weights_of(&graph, &bindings);
    let read = || std::fs::read(saved_on(device, &folder, &graph, &weights, true).0).unwrap();
    assert_eq!(read(), read());
}

fn parameters_can_be_set_after_loading_also_those_that_were_packed(device: Device) {
    let folder = Folder::new(&format!("params-{device}"));
    let (graph, bindings) = convolutional();
    let weights = weights_of(&graph, &bindings);
    for source in [false, true] {
        let (path, mut compiled) = saved_on(device, &folder, &graph, &weights, source);
        let artefact = Artefact::open(&path).unwrap();
        let kept = artefact.weights().unwrap().len();
        // Where nothing is packed, init steps here join several weights, and need the others when one changes.
        let all = source || device != Device::Cpu;
        assert!(if all { kept == weights.len() } else { kept < weights.len() }, "{kept} weights kept");
        assert!(artefact.sizes().prepared > 0);
        let mut loaded = session(device).load(&artefact).unwrap();
        let mut twin = loaded.clone();
        let before = bits(&mut twin, &bindings);
        for (name, weight) in weights.iter() {
            let shape = weight.shape();
            let dims = shape.static_dims().unwrap();
            let other = Gen::new(7).value(DType::F32, &dims, 0.5..1.0).to_const();
            loaded.try_set_param_typed(name, other.bytes(), DType::F32).unwrap();
            compiled.try_set_param_typed(name, other.bytes(), DType::F32).unwrap();
            assert_eq!(bits(&mut loaded, &bindings), bits(&mut compiled, &bindings), "{name}");
        }
        assert_eq!(bits(&mut twin, &bindings), before, "a clone changed");
        assert_ne!(bits(&mut loaded, &bindings), before);
    }
}

#[test]
fn another_machine_device_or_version_is_rejected() {
    let folder = Folder::new("foreign");
    let (graph, bindings) = convolutional();
    let (path, _) = saved(&folder, &graph, &weights_of(&graph, &bindings), false);
    let artefact = Artefact::open(&path).unwrap();
    let portable = CpuBackend::new().with_isa(Isa::try_new(IsaKind::Portable).unwrap());
    let other_isa = Session::with_backend(Device::Cpu, Arc::new(portable.clone()));
    let other_device = Session::with_backend(Device::Metal, Arc::new(CpuBackend::new()));
    for (session, what) in [(&other_isa, "machine"), (&other_device, "device")] {
        let e = session.load(&artefact).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unsupported);
        assert!(e.to_string().contains(&format!("another {what}")) && e.hint().is_some(), "{e}");
        assert!(e.to_string().contains("model.rlx"), "{e}");
    }
    // The same instruction set selected otherwise is the same machine.
    let same = Session::with_backend(Device::Cpu, Arc::new(CpuBackend::new().with_threads(1).unwrap()));
    assert!(same.load(&artefact).is_ok());
}

/// What loading and running the file gives: the right bits, or an error. Anything else panics.
fn survives(device: Device, path: &std::path::Path, want: &[Vec<u8>], bindings: &Bindings) -> bool {
    let loaded = Artefact::open(path).and_then(|a| session(device).load(&a));
    match loaded {
        Ok(mut loaded) => {
            assert_eq!(bits(&mut loaded, bindings), want, "a damaged artefact gave a wrong answer");
            true
        }
        Err(e) => {
            let typed = matches!(
                e.kind(),
                ErrorKind::Malformed | ErrorKind::Unsupported | ErrorKind::Parse | ErrorKind::InvalidGraph
            );
            assert!(typed, "{e}");
            false
        }
    }
}

fn damaged_artefacts_are_errors_or_right(device: Device) {
    let folder = Folder::new(&format!("damaged-{device}"));
    let (graph, bindings) = convolutional();
    let (path, mut compiled) = saved_on(device, &folder, &graph, &weights_of(&graph, &bindings), true);
    let want = bits(&mut compiled, &bindings);
    let whole = std::fs::read(&path).unwrap();
    let mut g = Gen::new(3);
    let (mut right, mut rejected) = (0, 0);
    let mut count = |ok: bool| if ok { right += 1 } else { rejected += 1 };
    for _ in 0..as_many(device, 150) {
        let len = g.size(0..=whole.len() - 1);
        std::fs::write(&path, &whole[..len]).unwrap();
        count(survives(device, &path, &want, &bindings));
    }
    for i in 0..as_many(device, 300) {
        let mut bytes = whole.clone();
        // Every other flip hits the start, where the structure is.
        let most = if i % 2 == 0 { whole.len() - 1 } else { 6000.min(whole.len() - 1) };
        bytes[g.size(0..=most)] ^= 1 << g.size(0..=7);
        std::fs::write(&path, &bytes).unwrap();
        count(survives(device, &path, &want, &bindings));
    }
    println!("{rejected} damaged artefacts rejected, {right} right all the same");
    // Elsewhere nearly all of the file is checked when it is opened.
    assert!(rejected > as_many(device, 200) && (right > 0 || device != Device::Cpu));
    std::fs::write(&path, &whole).unwrap();
    assert!(survives(device, &path, &want, &bindings));
}

#[test]
fn verify_finds_a_damaged_weight_that_is_also_packed() {
    let folder = Folder::new("verify");
    let shape = |dims: &[usize]| Shape::new(dims, DType::F32);
    let mut graph = Graph::new("product");
    let x = graph.input("x", shape(&[1, 64]));
    let w = graph.param("w", shape(&[64, 64]));
    let y = graph.matmul(x, w, shape(&[1, 64]));
    graph.set_outputs(vec![y]);
    let mut weights = WeightStore::new();
    let marker: Vec<u8> = (0..64 * 64).flat_map(|i| (i as f32 + 0.25).to_le_bytes()).collect();
    weights.insert("w", Weight::owned(DType::F32, &[64, 64], marker.clone()).unwrap());
    let (path, _) = saved(&folder, &graph, &weights, true);
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(256).position(|w| w == &marker[..256]).expect("the weight as it was given");
    bytes[at + 5] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let artefact = Artefact::open(&path).unwrap();
    let e = artefact.verify().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Malformed);
    assert!(e.to_string().contains("parameter \"w\" is damaged"), "{e}");
    // Undamaged parts give correct results, and uses of the damaged bytes are errors.
    assert!(session(Device::Cpu).load(&artefact).is_ok());
    assert!(artefact.weights().unwrap().get("w").unwrap().bytes().is_err());
}

#[test]
fn a_cache_keeps_within_its_limit_and_drops_what_was_used_longest_ago() {
    let folder = Folder::new("evict");
    let entry = |width: usize| {
        let mut g = Graph::new("g");
        let x = g.input("x", Shape::new(&[width], DType::F32));
        g.set_outputs(vec![x]);
        g
    };
    let options = CompileOptions::default();
    let cache = AotCache::new(folder.path());
    let put = |cache: &AotCache, name: &str, width| {
        cache.compile_graph_cached(name, Device::Cpu, entry(width), &options).unwrap();
        // Uses are told apart by the file system's clock.
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    for (i, name) in ["a", "b", "c"].iter().enumerate() {
        put(&cache, name, i + 1);
    }
    let bytes = cache.entries().unwrap()[0].bytes;
    put(&cache, "a", 1);
    let small = cache.clone().with_limit(3 * bytes + bytes / 2);
    put(&small, "d", 4);
    let names: Vec<String> = cache.entries().unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["d", "a", "c"], "b was used longest ago");
    put(&cache.clone().with_limit(0), "e", 5);
    assert_eq!(cache.entries().unwrap().len(), 1, "the entry just written stays");
}
