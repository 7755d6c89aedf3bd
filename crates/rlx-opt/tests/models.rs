//! Whole models: what the passes find in them, and that the optimised graphs still give the goldens.

#[path = "passes/common.rs"]
mod common;

use std::sync::Arc;

use common::{Anything, count};
use rlx_ir::oracle::{Bindings, evaluate};
use rlx_ir::{Graph, Node, Op, OpKind};
use rlx_onnx::{ImportOptions, Imported, OnnxFile, import};
use rlx_opt::{CompileOptions, CompilePipeline};
use rlx_testdata::models::{Model, affordable, wanted};

/// What the oracle does in a few seconds; see `Golden::oracle_work`.
const MOST_WORK: f64 = 6e8;

/// How many of each composite a family of models has: attention, layer norm, RMS norm, GELU of either form,
/// rotary embedding.
const COMPOSITES: &[(&str, [usize; 5])] = &[
    ("bert", [2, 5, 0, 2, 0]),
    ("distilbert", [2, 5, 0, 2, 0]),
    ("gpt2", [2, 5, 0, 2, 0]),
    ("llama", [2, 0, 5, 0, 4]),
    ("minilm", [6, 13, 0, 6, 0]),
    ("resnet18", [0; 5]),
    ("convnext_reduced", [0, 7, 0, 3, 0]),
    ("vit_reduced", [2, 5, 0, 2, 0]),
    ("swin_reduced", [4, 11, 0, 4, 0]),
    ("t5_encoder", [2, 0, 5, 0, 0]),
    ("t5_decoder", [4, 0, 7, 0, 0]),
    ("t5_cached", [4, 0, 7, 0, 0]),
    ("wav2vec", [2, 6, 0, 6, 0]),
    ("whisper", [2, 5, 0, 4, 0]),
];

/// How many matmuls by fixed weights a model has, and how many are left when those of the same rows are merged.
const MATMULS: &[(&str, [usize; 2])] = &[
    // Of integers.
    ("bert_dynamic_int8", [0, 0]),
    ("bert", [12, 8]),
    ("distilbert", [12, 8]),
    ("minilm", [36, 24]),
    // Its exporter wrote query, key and value as one matmul, as that of ViT and Swin did.
    ("gpt2", [9, 9]),
    ("vit_reduced", [9, 9]),
    ("swin_reduced", [18, 18]),
    ("llama", [15, 11]),
    ("t5_encoder", [12, 8]),
    ("t5_decoder", [21, 15]),
    ("t5_cached", [17, 13]),
    ("wav2vec", [13, 9]),
    ("whisper", [12, 8]),
];

/// In how many regions a matmul computes the norm before it, in how many it quantises its rows, and how many regions have two
/// matmuls.
const PRODUCERS: &[(&str, [usize; 3])] = &[
    // All but query, key and value, which read the same bytes.
    ("bert_dynamic_int8", [0, 6, 0]),
    ("mlp_dynamic", [0, 2, 0]),
    // The first; the other reads bytes, which the first one writes.
    ("mlp_q", [0, 1, 0]),
    ("digits_q", [0, 0, 0]),
    // Their norms are added to something, too.
    ("bert", [0, 0, 0]),
    ("distilbert", [0, 0, 0]),
    ("minilm", [0, 0, 0]),
    ("gpt2", [5, 0, 0]),
    // Gate and up of both layers.
    ("llama", [5, 0, 2]),
    // Between the last one and its matmul the rows are cut.
    ("vit_reduced", [4, 0, 0]),
    ("t5_encoder", [4, 0, 0]),
    ("whisper", [4, 0, 0]),
];

/// Regions of matmuls: those with a norm, those that quantise their rows, and those with two matmuls.
fn producers(graph: &Graph) -> [usize; 3] {
    let mut found = [0; 3];
    for node in graph.nodes() {
        let Op::Region { body } = &node.op else { continue };
        let of = |is: &dyn Fn(&Op) -> bool| count_all(&body.graph, is);
        let matmuls = of(&|op| *op == Op::MatMul);
        let norms = of(&|op| matches!(op, Op::LayerNorm { .. } | Op::RmsNorm { .. }));
        found[0] += usize::from(matmuls > 0 && norms > 0);
        let bytes = |n: &Node| {
            n.op == Op::MatMulInteger && matches!(body.graph.node(n.inputs[0]).op, Op::Quantize { .. })
        };
        found[1] += usize::from(body.graph.nodes().iter().any(bytes));
        found[2] += usize::from(matmuls > 1);
    }
    found
}

/// The graph after the passes, and how many matmuls by fixed weights merging them left of how many.
fn optimised(imported: &Imported) -> Result<(Graph, [usize; 2]), String> {
    let mut pipeline = CompilePipeline::new(
        Arc::new(Anything { channels_last: true, ..Anything::default() }),
        CompileOptions::default(),
    );
    pipeline.keep_graphs = true;
    let result = pipeline.compile(&imported.graph).map_err(|e| e.to_string())?;
    if let Ok(folder) = std::env::var("RLX_DUMP_PASSES") {
        for (i, pass) in result.passes.iter().enumerate() {
            let Some(after) = &pass.after else { continue };
            let path = format!("{folder}/{}.{i:02}.{}.txt", imported.graph.name, pass.name);
            std::fs::write(path, after.to_string()).map_err(|e| e.to_string())?;
        }
    }
    let after = |name: &str| result.passes.iter().find(|p| p.name == name).and_then(|p| p.after.as_ref());
    let merged = ["simplify-legal", "merge-matmuls"].map(|name| after(name).map_or(0, by_weights));
    let last = result.passes.last().and_then(|p| p.after.clone());
    Ok((last.ok_or_else(|| "no graph was kept".to_string())?, merged))
}

/// The matmuls of a graph whose right operand is known before a run.
fn by_weights(graph: &Graph) -> usize {
    let fixed = rlx_opt::facts::fixed_nodes(graph);
    graph.nodes().iter().filter(|n| n.op == Op::MatMul && fixed[n.inputs[1].index()]).count()
}

/// Counts a kind of node, in regions too.
fn count_all(graph: &Graph, is: &dyn Fn(&Op) -> bool) -> usize {
    let one = |op: &Op| match op {
        Op::Region { body } => count_all(&body.graph, is),
        op => usize::from(is(op)),
    };
    graph.nodes().iter().map(|n| one(&n.op)).sum()
}

fn composites(graph: &Graph) -> [usize; 5] {
    let kind = |kind: OpKind| count_all(graph, &|op| op.kind() == kind);
    use rlx_ir::op::Activation as A;
    let gelu = count_all(graph, &|op| matches!(op, Op::Activation(A::Gelu | A::GeluApprox)));
    [kind(OpKind::Attention), kind(OpKind::LayerNorm), kind(OpKind::RmsNorm), gelu, kind(OpKind::Rope)]
}

fn check(model: &Model, path: &std::path::Path) -> Result<(), String> {
    let file = OnnxFile::open(path).map_err(|e| e.to_string())?;
    let mut imported = import(&file, &ImportOptions::default()).map_err(|e| e.to_string())?;
    imported.graph.name = model.name.clone();
    let (graph, merged) = optimised(&imported)?;
    println!(
        "{:<20} {} nodes to {}: {} regions, {:?}, matmuls by weights {merged:?}, producers {:?}",
        model.name,
        imported.graph.len(),
        graph.len(),
        count(&graph, OpKind::Region),
        composites(&graph),
        producers(&graph)
    );
    if let Some((_, want)) = PRODUCERS.iter().find(|(family, _)| model.name.starts_with(family))
        && !model.full
        && producers(&graph) != *want
    {
        return Err(format!(
            "matmuls with norms, of floats, and pairs: {:?}, not {want:?}",
            producers(&graph)
        ));
    }
    if let Some((_, want)) = COMPOSITES.iter().find(|(family, _)| model.name.starts_with(family))
        && !model.full
        && composites(&graph) != *want
    {
        return Err(format!("its composites are {:?}, not {want:?}", composites(&graph)));
    }
    if let Some((_, want)) = MATMULS.iter().find(|(family, _)| model.name.starts_with(family))
        && !model.full
        && merged != *want
    {
        return Err(format!("of its matmuls by weights are left {merged:?}, not {want:?}"));
    }
    if model.name.starts_with("resnet18") {
        let fixed = rlx_opt::facts::fixed_nodes(&graph);
        let moved = graph.nodes().iter().filter(|n| n.op.kind() == OpKind::Transpose && !fixed[n.id.index()]);
        let moved = moved.count();
        if moved != 1 || count_all(&graph, &|op| op.kind() == OpKind::BatchNorm) != 0 {
            return Err(format!("{moved} transposes are left, or a batch norm: {graph}"));
        }
    }
    let Some(golden) = affordable(&model.goldens, &imported.graph, MOST_WORK) else { return Ok(()) };
    let (inputs, expected) = golden.read();
    let mut bindings = Bindings::default();
    inputs.iter().for_each(|(name, value)| _ = bindings.set_input(name, value.value()));
    for (name, weight) in imported.weights.iter() {
        bindings.set_param(name, weight.to_const().map_err(|e| e.to_string())?.value());
    }
    let found = evaluate(&graph, &bindings).map_err(|e| e.to_string())?;
    for (name, want) in &expected {
        let i = imported.outputs.iter().position(|n| n == name).ok_or(format!("no output {name}"))?;
        close(&found[i].to_f64(), &want.value().to_f64()).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

/// Relative 1e-3, and 1e-4 of the golden's largest magnitude.
fn close(found: &[f64], want: &[f64]) -> Result<(), String> {
    let largest = want.iter().fold(0f64, |m, v| m.max(v.abs()));
    let off =
        |(f, w): (&f64, &f64)| (f - w).abs() > 1e-3 * w.abs() + 1e-4 * largest || f.is_nan() != w.is_nan();
    match found.iter().zip(want).position(off) {
        Some(i) => Err(format!("{} at {i}, not {}", found[i], want[i])),
        None => Ok(()),
    }
}

#[test]
fn optimised_models_equal_their_goldens_and_have_their_composites() {
    let (mut passed, mut faults) = (0, Vec::new());
    for model in wanted() {
        let Some(path) = model.graph_file() else { continue };
        match check(&model, &path) {
            Ok(()) => passed += 1,
            Err(why) => faults.push(format!("{}: {why}", model.name)),
        }
    }
    println!("@counts passed={passed} failed={}", faults.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
