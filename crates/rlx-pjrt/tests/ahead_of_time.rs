//! Models compiled by `libtpu` for TPUs that are not here: `RLX_TEST_LIBTPU` names its file.

use std::path::PathBuf;
use std::sync::Arc;

use rlx_ir::{DType, DimBinding, Graph, GraphExt, Shape, sym};
use rlx_onnx::{ImportOptions, OnnxFile, import};
use rlx_opt::{CompileOptions, CompilePipeline};
use rlx_pjrt::PjrtBackend;
use rlx_testdata::models::model;

/// One host of each generation.
const TOPOLOGIES: [&str; 4] = ["v4:2x2x1", "v5e:2x2", "v5p:2x2x1", "v6e:2x2"];

fn plugin() -> Option<PathBuf> {
    let named = std::env::var_os("RLX_TEST_LIBTPU").map(PathBuf::from);
    if named.is_none() {
        println!("@skip 1 RLX_TEST_LIBTPU names no libtpu.so: run suite pjrt");
    }
    named
}

/// Compiles a graph for each topology, and holds what the compiler says of memory against the graph.
fn compiles(graph: &Graph, fixed: DimBinding, plugin: PathBuf) {
    let options = CompileOptions::default().dim_binding(fixed);
    let compiled = CompilePipeline::new(Arc::new(rlx_pjrt::target()), options).compile(graph).unwrap();
    let graph = &compiled.lir.graph;
    let bytes = |shape: &Shape| shape.size_bytes().unwrap() as i64;
    let given: i64 = rlx_pjrt::stablehlo::arguments(graph).map(|node| bytes(&node.shape)).sum();
    for topology in TOPOLOGIES {
        let backend = PjrtBackend::new().with_plugin(&plugin);
        let ahead = backend.compile_ahead(graph, topology).unwrap_or_else(|e| panic!("{topology}: {e}"));
        // Layouts of TPUs are padded, so there is at least what the tensors are.
        assert!(ahead.argument_bytes >= given, "{topology}: {} of {given}", ahead.argument_bytes);
        assert!(!ahead.program.is_empty() && ahead.code_bytes > 0, "{topology}: {ahead:?}");
        let flops = ahead.costs.iter().find(|(name, _)| name == "flops").map(|&(_, n)| n);
        println!(
            "{topology} {}: {} bytes of code, {} of arguments, {} between, {flops:?} flops",
            graph.name, ahead.code_bytes, ahead.argument_bytes, ahead.temporary_bytes
        );
    }
}

#[test]
fn a_layer() {
    let Some(plugin) = plugin() else { return };
    let mut g = Graph::new("layer");
    let x = g.input("x", Shape::new(&[256, 512], DType::BF16));
    let w = g.param("w", Shape::new(&[512, 1024], DType::BF16));
    let b = g.param("b", Shape::new(&[1024], DType::BF16));
    let y = g.mm(x, w);
    let y = g.add(y, b);
    g.set_outputs(vec![y]);
    compiles(&g, DimBinding::new(), plugin);
}

#[test]
fn models() {
    let Some(plugin) = plugin() else { return };
    for name in ["digits", "mlp", "bert_dynamic", "gpt2_dynamic"] {
        let model = model(name);
        let Some(path) = model.graph_file() else { continue };
        let imported = import(&OnnxFile::open(&path).unwrap(), &ImportOptions::default()).unwrap();
        let sizes: Vec<(u32, usize)> =
            model.goldens[0].dims.iter().map(|(name, n)| (sym::named(name), *n)).collect();
        compiles(&imported.graph, DimBinding::from_pairs(&sizes), plugin.clone());
    }
}

#[test]
fn what_is_wrong_is_said_by_the_plugin() {
    let Some(plugin) = plugin() else { return };
    let mut g = Graph::new("g");
    let x = g.input("x", Shape::new(&[4], DType::F32));
    let y = g.add(x, x);
    g.set_outputs(vec![y]);
    let e = PjrtBackend::new().with_plugin(&plugin).compile_ahead(&g, "v1:9x9").unwrap_err();
    assert!(e.device() == Some("TPU") && e.message().contains("TopologyDescriptionCreate"), "{e}");
}
