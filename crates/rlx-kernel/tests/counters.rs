//! What the kernels of the test models ask of a GPU's memory may not get worse.
//!
//! `counters.tsv` has a line for each kernel of each model (and of each variant of a matmul): how often it is dispatched in a run, and the
//! interpreter's counters, summed over these dispatches ([`rlx_kernel::interp::count`] says what they are).
//! `RLX_WRITE_DOCS=1 cargo test -p rlx-kernel --test counters` writes it again, unless a counter grew; `RLX_WRITE_DOCS=anyway` does so even
//! then, for a change that takes more of one thing to save much of another.
//! Conflicts of banks it must not have at all.

mod common;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use common::{native, processor, shorts, try_module, words};
use rlx_ir::op::{ArgOp, MaskKind, ReduceOp, ScatterOp, Unseen};
use rlx_ir::{DType, Dim, DimBinding, ErrorKind, Graph, Op, Shape};
use rlx_kernel::KernelTarget;
use rlx_kernel::interp::{Counted, Counters, Executable, Sample};
use rlx_onnx::{ImportOptions, OnnxFile, import};
use rlx_opt::pipeline::CompilePipeline;
use rlx_opt::{CompileOptions, Precision};
use rlx_testdata::models::{self, Golden};

/// Workgroups of a dispatch that are run.
const SAMPLE: Sample = Sample(3);

/// The most loop iterations that one invocation goes through in any kernel, but for those of [`CHAINS`]: what is longer is divided among workgroups.
const MOST_SERIAL: u64 = 1024;

/// How the names of kernels begin whose results are chains of sums in order of the depth, each as long as the matrix is deep, or as there are keys: all variants
/// give these bits. Who may divide such sums of a matrix does so under `Numerics::Fast`.
const CHAINS: [&str; 3] = ["matmul.", "conv.", "attention."];

/// A line's key: model, device, kernel.
type Key = [String; 3];

/// The lines: dispatches and counters.
#[derive(Default)]
struct Table(BTreeMap<Key, (u64, Counters)>);

impl Table {
    fn add(&mut self, model: &str, target: &KernelTarget, counted: &[Counted]) {
        for one in counted {
            let key = [model.to_owned(), target.name.clone(), one.kernel.name.clone()];
            let (dispatches, counters) = self.0.entry(key).or_default();
            *dispatches += 1;
            *counters += one.counters;
        }
    }

    fn print(&self) -> String {
        let mut text = String::from("model\tdevice\tkernel\tdispatches");
        Counters::default().costs().iter().for_each(|(name, _)| _ = write!(text, "\t{name}"));
        text.push('\n');
        for (key, (dispatches, counters)) in &self.0 {
            let _ = write!(text, "{}\t{dispatches}", key.join("\t"));
            counters.costs().iter().for_each(|(_, n)| _ = write!(text, "\t{n}"));
            text.push('\n');
        }
        text
    }

    /// The kernels in which one invocation goes on for too long.
    fn serial(&self) -> Vec<String> {
        let is_chain = |kernel: &str| CHAINS.iter().any(|chain| kernel.starts_with(chain));
        let long = |(key, (_, counters)): (&Key, &(u64, Counters))| {
            let is_long = counters.serial > MOST_SERIAL && !is_chain(&key[2]);
            is_long.then(|| format!("{}: {} steps", key.join(", "), counters.serial))
        };
        self.0.iter().filter_map(long).collect()
    }

    /// What grew since `before` was written, and by how much.
    fn worse(&self, before: &str) -> Vec<String> {
        let mut lines = before.lines().map(|line| line.split('\t').collect::<Vec<_>>());
        let names = lines.next().unwrap_or_default();
        let (mut worse, mut dispatches) = (Vec::new(), BTreeMap::<[&str; 2], [u64; 2]>::new());
        for line in lines {
            let &[model, device, kernel, ..] = &line[..] else { panic!("a line without a kernel: {line:?}") };
            let was: Vec<u64> = line[3..].iter().map(|n| n.parse().unwrap()).collect();
            let sums = dispatches.entry([model, device]).or_default();
            sums[0] += was[0];
            // A kernel that is gone became another one, whose line is new.
            let Some((count, counters)) = self.0.get(&[model, device, kernel].map(str::to_owned)) else {
                continue;
            };
            sums[1] += count;
            let now = counters.costs().map(|(_, n)| n);
            for (i, (was, now)) in was[1..].iter().zip(now).enumerate().filter(|(_, (was, now))| now > was) {
                worse.push(format!("{model} on {device}, {kernel}: {} {was} → {now}", names[i + 4]));
            }
        }
        for ([model, device], [was, _]) in dispatches {
            let now: u64 = self
                .0
                .iter()
                .filter(|(key, _)| key[0] == model && key[1] == device)
                .map(|(_, (n, _))| n)
                .sum();
            if now > was {
                worse.push(format!("{model} on {device}: {was} dispatches → {now}"));
            }
        }
        worse
    }
}

/// Counts a graph on these devices; `false` where they have no kernels for it.
fn add(
    table: &mut Table,
    (name, graph): (&str, &Graph),
    targets: &[KernelTarget],
    dims: &DimBinding,
    precision: Precision,
) -> bool {
    targets.iter().all(|target| {
        let options = CompileOptions::default().dim_binding(dims.clone()).precision(precision);
        let compiled = CompilePipeline::new(std::sync::Arc::new(target.clone()), options).compile(graph);
        let module = compiled.and_then(|c| Executable::new(std::sync::Arc::new(c.lir), target));
        match module.and_then(|module| module.count(dims, SAMPLE)) {
            Ok(counted) => table.add(name, target, &counted),
            Err(e) if e.kind() == ErrorKind::Unsupported => return false,
            Err(e) => panic!("{name} on {}: {e}", target.name),
        }
        true
    })
}

/// The models of one exporter, but for those of full size or with weights from a package.
fn kept() -> Vec<models::Model> {
    let again = ["_dynamo", "_static", "_fused", "_eager", "_sdpa", "opset23", "_channel", "_shared"];
    let mut kept = models::all();
    kept.retain(|m| !m.full && !m.needs_package() && !again.iter().any(|part| m.name.contains(part)));
    kept
}

/// Models with convolutions of many channels, which take the interpreter up to 2 s on each device. In f32 they are counted where elements are in words, and in
/// short floats not at all: ResNet-18 would take 15 s, in two types on three devices, and digits has convolutions of the same family.
const LONG_TO_COUNT: [&str; 3] = ["resnet18", "resnet50_reduced", "resnext_reduced"];

fn largest(model: &models::Model) -> &Golden {
    let size = |g: &&Golden| g.dims.iter().map(|(_, n)| n.max(&1)).product::<usize>();
    // Of equals the first.
    model.goldens.iter().rev().max_by_key(size).expect("a model has goldens")
}

fn add_models(table: &mut Table) {
    for model in kept() {
        let Some(path) = model.graph_file() else { continue };
        let graph = import(&OnnxFile::open(&path).unwrap(), &ImportOptions::default()).unwrap().graph;
        // The first of ResNet's images is small.
        let golden = if model.name == "resnet18" { &model.goldens[0] } else { largest(&model) };
        let dims = golden.binding();
        let on_native = (!LONG_TO_COUNT.contains(&model.name.as_str())).then(native);
        for target in [words()].into_iter().chain(on_native) {
            if !add(table, (&model.name, &graph), std::slice::from_ref(&target), &dims, Precision::F32) {
                println!("{}: not computed on {}", model.name, target.name);
            }
        }
        if model.name == "gpt2_cached" {
            assert!(add(table, (&model.name, &graph), &[processor()], &dims, Precision::F32));
        }
        for (precision, suffix) in [(Precision::F16, "f16"), (Precision::BF16, "bf16")] {
            if ["bert_dynamic", "digits"].contains(&model.name.as_str()) {
                let name = format!("{}.{suffix}", model.name);
                assert!(add(table, (&name, &graph), &[native(), words(), shorts()], &dims, precision));
            }
        }
    }
}

/// Long rows, of ops that no model here has or has with short rows only.
fn add_rows(table: &mut Table) {
    let mut add = |name: &str, op: Op, dims: &[usize]| {
        let mut graph = Graph::new("rows");
        let x = graph.input("x", Shape::new(dims, DType::F32));
        let y = graph.try_add(op, &[x]).unwrap();
        graph.set_outputs(vec![y]);
        assert!(self::add(table, (name, &graph), &[words()], &DimBinding::new(), Precision::F32));
    };
    add("rows softmax 1000", Op::Softmax { axis: -1 }, &[64, 1000]);
    add("rows softmax 20000", Op::Softmax { axis: -1 }, &[8, 20_000]);
    add("rows sum 1000000", Op::Reduce { op: ReduceOp::Sum, axes: vec![0], keep_dim: false }, &[1_000_000]);
    let sum = |axis| Op::Reduce { op: ReduceOp::Sum, axes: vec![axis], keep_dim: false };
    add("rows sum of 2000 columns", sum(1), &[2, 2000, 48]);
    add("rows sum of 100000 columns", sum(0), &[100_000, 20]);
    let running = Op::Cumulative { op: ReduceOp::Sum, axis: 1, exclusive: false, reverse: false };
    add("rows cumulative 5000", running.clone(), &[8, 5000]);
    add("rows cumulative 200000", running, &[1, 200_000]);
    let top = Op::TopK { k: Dim::Static(10), axis: 1, largest: true, sorted: true };
    add("rows top 10 of 5000", top.clone(), &[8, 5000]);
    add("rows top 10 of 50257", top, &[1, 50_257]);
    let top = |count| Op::TopK { k: Dim::Static(count), axis: 1, largest: true, sorted: true };
    add("rows top 200 of 5000", top(200), &[8, 5000]);
    add("rows top 2048 of 4096", top(2048), &[2, 4096]);
    add("rows top 50 of 50257", top(50), &[1, 50_257]);
    add("rows sorted 1000", top(1000), &[8, 1000]);
    add(
        "rows greatest of 50257",
        Op::ArgReduce { op: ArgOp::Max, axis: 1, keep_dim: false, last: false },
        &[1, 50_257],
    );
    let least = |axis| Op::ArgReduce { op: ArgOp::Min, axis, keep_dim: false, last: true };
    add("rows least of 4000", least(1), &[8, 4000]);
    add("rows least of 2000 columns", least(1), &[2, 2000, 48]);
    add("rows softmax 100000", Op::Softmax { axis: -1 }, &[1, 100_000]);
}

/// Many updates, of single elements and of slices.
fn add_scatters(table: &mut Table) {
    let elements = Op::ScatterElements { axis: 1, reduction: ScatterOp::Set };
    let slices = Op::ScatterNd { reduction: ScatterOp::Set };
    for (name, op, x, indices, updates) in [
        ("rows scatter of 2000 elements", elements, &[4, 3000], &[4, 2000], &[4, 2000]),
        ("rows scatter of 5000 slices", slices, &[9000, 100], &[5000, 1], &[5000, 100]),
    ] {
        let mut graph = Graph::new("scatter");
        let inputs = [(x, DType::F32), (indices, DType::I32), (updates, DType::F32)];
        let ids = [0, 1, 2].map(|i| graph.input(format!("x{i}"), Shape::new(inputs[i].0, inputs[i].1)));
        let y = graph.try_add(op, &ids).unwrap();
        graph.set_outputs(vec![y]);
        assert!(add(table, (name, &graph), &[words()], &DimBinding::new(), Precision::F32));
    }
}

/// Every variant of a matmul that fills them.
fn add_matmuls(table: &mut Table) {
    for dtype in [DType::F32, DType::F16] {
        let mut graph = Graph::new("matmul");
        let x = graph.input("x", Shape::new(&[256, 64], dtype));
        let w = graph.input("w", Shape::new(&[64, 256], dtype));
        let y = graph.try_add(Op::MatMul, &[x, w]).unwrap();
        graph.set_outputs(vec![y]);
        for target in [native(), words(), shorts()] {
            let module = try_module(&graph, &target).unwrap();
            let names = rlx_kernel::step_variants(&module.steps[0], &module, &target).unwrap();
            // Those with constant sizes do no more (`sizes.rs`).
            for (i, name) in names.iter().enumerate().filter(|(_, name)| !name.ends_with(".sizes")) {
                let executable = Executable::choosing(module.clone(), &target, |_| i).unwrap();
                let counted = executable.count(&DimBinding::new(), SAMPLE).unwrap();
                table.add(&format!("matmul {dtype} {name}"), &target, &counted);
            }
        }
    }
}

/// Attention of a usual size of heads, of the largest, and where some keys are seen.
fn add_attentions(table: &mut Table) {
    for (size, mask, dtype) in [
        (64, MaskKind::None, DType::F32),
        (64, MaskKind::Causal, DType::F32),
        (128, MaskKind::None, DType::F32),
        (256, MaskKind::None, DType::F32),
        (80, MaskKind::Causal, DType::BF16),
    ] {
        let mut graph = Graph::new("attention");
        let ids: Vec<_> = ["q", "k", "v"]
            .map(|name| graph.input(name, Shape::new(&[1, 128, 4 * size], dtype)))
            .into_iter()
            .collect();
        let (window, scale, unseen) = (None, None, Unseen::Zero);
        let op = Op::Attention { num_heads: 4, head_dim: size, mask, window, scale, unseen };
        let y = graph.try_add(op, &ids).unwrap();
        graph.set_outputs(vec![y]);
        for target in [native(), words()] {
            let module = try_module(&graph, &target).unwrap();
            let names = rlx_kernel::step_variants(&module.steps[0], &module, &target).unwrap();
            for (i, name) in names.iter().enumerate() {
                let executable = Executable::choosing(module.clone(), &target, |_| i).unwrap();
                let counted = executable.count(&DimBinding::new(), SAMPLE).unwrap();
                table.add(&format!("attention {dtype} {size} {mask:?} {name}"), &target, &counted);
            }
        }
    }
}

/// A decoder's row by weights of few columns and by many that are stored transposed, and some rows, by kernels that divide the sums.
fn add_few_rows(table: &mut Table) {
    let layers = [(1, [3072, 768], false), (4, [768, 2304], false), (1, [768, 8001], true)];
    for ((rows, [k, n], transposed), dtype) in
        layers.into_iter().flat_map(|layer| [DType::F32, DType::BF16].map(|dtype| (layer, dtype)))
    {
        let mut graph = Graph::new("matmul");
        let x = graph.input("x", Shape::new(&[rows, k], dtype));
        let mut w = graph.input("w", Shape::new(&if transposed { [n, k] } else { [k, n] }, dtype));
        if transposed {
            w = graph.try_add(Op::Transpose { perm: vec![1, 0] }, &[w]).unwrap();
        }
        let y = graph.try_add(Op::MatMul, &[x, w]).unwrap();
        graph.set_outputs(vec![y]);
        for target in [native(), words()] {
            let module = try_module(&graph, &target).unwrap();
            let few = rlx_kernel::few_rows(&module.steps[0], &module, &target).unwrap().remove(0);
            let executable = Executable::by(module, |_| Ok(vec![few.launch.clone()])).unwrap();
            let counted = executable.count(&DimBinding::new(), SAMPLE).unwrap();
            table.add(&format!("matmul {dtype} {rows}x{k}x{n} {}", few.name), &target, &counted);
        }
    }
}

#[test]
fn counters_do_not_grow() {
    let mut table = Table::default();
    add_matmuls(&mut table);
    add_few_rows(&mut table);
    add_attentions(&mut table);
    add_rows(&mut table);
    add_scatters(&mut table);
    add_models(&mut table);
    assert!(table.0.len() > 200, "only {} kernels", table.0.len());
    let conflicts: Vec<_> = table.0.iter().filter(|(_, (_, counters))| counters.conflicts > 0).collect();
    assert!(conflicts.is_empty(), "workgroup memory of no kernel here has conflicts: {conflicts:?}");
    let serial = table.serial();
    assert!(serial.is_empty(), "more than {MOST_SERIAL} serial steps:\n{}", serial.join("\n"));
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/counters.tsv");
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let worse = table.worse(&written);
    let asked = std::env::var("RLX_WRITE_DOCS").unwrap_or_default();
    let anyway = asked == "anyway";
    assert!(worse.is_empty() || anyway, "{} counters grew:\n{}", worse.len(), worse.join("\n"));
    let now = table.print();
    if !asked.is_empty() {
        std::fs::write(&path, now).unwrap();
        return;
    }
    let changed: Vec<&str> =
        now.lines().filter(|line| !written.lines().any(|w| w == *line)).take(20).collect();
    assert!(
        now == written,
        "counters.tsv is out of date (RLX_WRITE_DOCS=1 cargo test -p rlx-kernel --test counters):\n{}",
        changed.join("\n")
    );
}

#[test]
fn a_counter_that_grew_is_found() {
    let mut table = Table::default();
    let counters = Counters { groups: 1, conflicts: 5, ways: 2, ..Counters::default() };
    table.0.insert(["m", "words", "k"].map(str::to_owned), (1, counters));
    let text = table.print();
    assert!(table.worse(&text).is_empty());
    let better = text.replace("\t5\t2\t", "\t6\t3\t");
    assert!(table.worse(&better).is_empty(), "what became better is only out of date");
    let before = text.replace("\t5\t2\t", "\t0\t1\t");
    assert_eq!(table.worse(&before).len(), 2, "{:?}", table.worse(&before));
    table.0.insert(["m", "words", "another"].map(str::to_owned), (1, counters));
    assert_eq!(table.worse(&text), ["m on words: 1 dispatches → 2"]);
}

#[test]
fn a_long_serial_row_is_found() {
    let mut table = Table::default();
    for (kernel, serial) in
        [("reduce.a", MOST_SERIAL), ("reduce.b", MOST_SERIAL + 1), ("matmul.c", MOST_SERIAL + 1)]
    {
        let counters = Counters { groups: 1, serial, ..Counters::default() };
        table.0.insert(["m", "words", kernel].map(str::to_owned), (1, counters));
    }
    assert_eq!(table.serial(), ["m, words, reduce.b: 1025 steps"]);
}
