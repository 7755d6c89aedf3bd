//! Decoders with a cache: eight tokens, each from the keys and values of those before it, are the tokens that PyTorch's
//! decoder without a cache gives (`greedy.npz`).
//!
//! The cache is passed back in three ways: by the caller, through handles of a compiled graph fed by its outputs, and
//! through handles of a graph compiled by [`GraphDevices`]. The first step's cache is empty.

use rlx::{Model, Runner};
use rlx_ir::{ConstData, DType};
use rlx_runtime::{CompileOptions, CompiledGraph, Device, GraphDevices, Session, TensorView, caches};
use rlx_testdata::models::{Model as Case, Tensors, arrays, model};

const DECODERS: [(&str, &str); 4] = [
    ("gpt2_cached", "gpt2_cached"),
    ("gpt2_cached_dynamo", "gpt2_cached"),
    ("llama_cached", "llama_cached"),
    ("llama_cached_dynamo", "llama_cached"),
];

/// A decoder, what it is asked, and what it must answer.
struct Task {
    case: Case,
    prompt: Vec<i64>,
    tokens: Vec<i64>,
}

/// One step: token ids and how many came before them, to the logits of the last token.
type Step<'a> = dyn FnMut(&[i64], usize) -> Vec<f64> + 'a;

fn tasks() -> impl Iterator<Item = Task> {
    DECODERS.iter().map(|&(name, folder)| {
        let kept = arrays(&format!("{folder}/greedy.npz"));
        let get = |name: &str| kept.iter().find(|(n, _)| n == name).map(|(_, v)| integers(v)).unwrap();
        let (prompt, tokens) = (get("in_input_ids"), get("out_tokens"));
        assert_eq!(tokens.len(), 8);
        Task { case: model(name), prompt, tokens }
    })
}

fn integers(data: &ConstData) -> Vec<i64> {
    data.value().ints().unwrap().iter().map(|&v| v as i64).collect()
}

fn ids(values: &[i64]) -> ConstData {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    ConstData::new(DType::I64, &[1, values.len()], bytes).unwrap()
}

/// Decodes as many tokens as the task has and compares them.
fn decode(task: &Task, step: &mut Step<'_>) {
    let (mut given, mut past, mut found) = (task.prompt.clone(), 0, Vec::new());
    while found.len() < task.tokens.len() {
        let logits = step(&given, past);
        past += given.len();
        let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
        found.push(best as i64);
        given = vec![best as i64];
    }
    assert_eq!(found, task.tokens, "{}", task.case.name);
}

fn last_row(logits: &ConstData) -> Vec<f64> {
    let width = *logits.dims().last().unwrap();
    let all = logits.value().to_f64();
    all[all.len() - width..].to_vec()
}

/// The inputs of the cache with the outputs that hold it after a run: `past_key_values.0.key`, `present.0.key`.
fn cache_names(case: &Case) -> Vec<(String, usize)> {
    let past = case.inputs.iter().filter_map(|name| Some((name, name.strip_prefix("past_key_values.")?)));
    let output = |part: &str| case.outputs.iter().position(|o| *o == format!("present.{part}")).unwrap();
    past.map(|(name, part)| (name.clone(), output(part))).collect()
}

/// An empty cache's tensor, for one item.
fn empty(task: &Task, name: &str) -> ConstData {
    let (inputs, _) = task.case.goldens[0].read();
    let (_, like) = inputs.iter().find(|(n, _)| n == name).unwrap();
    let &[_, heads, _, width] = like.dims() else { panic!("{name} is {:?}", like.dims()) };
    ConstData::new(DType::F32, &[1, heads, 0, width], Vec::new()).unwrap()
}

#[test]
fn a_cache_that_the_caller_passes_on_gives_the_tokens() {
    for task in tasks() {
        let path = task.case.graph_file().unwrap();
        let mut runner = Runner::open(path).unwrap();
        let names = cache_names(&task.case);
        let mut cache: Tensors = names.iter().map(|(n, _)| (n.clone(), empty(&task, n))).collect();
        decode(&task, &mut |given, past| {
            let (tokens, mask) = (ids(given), ids(&vec![1; past + given.len()]));
            let mut inputs: Vec<(&str, &ConstData)> = vec![("input_ids", &tokens), ("attention_mask", &mask)];
            inputs.extend(cache.iter().map(|(name, value)| (name.as_str(), value)));
            let outputs = runner.run(&inputs).unwrap();
            for ((_, value), (_, output)) in cache.iter_mut().zip(&names) {
                *value = outputs[*output].1.clone();
                assert_eq!(value.dims()[2], past + given.len());
            }
            last_row(&outputs[0].1)
        });
    }
}

/// The cache in handles, refreshed by the outputs.
fn decode_with_handles(task: &Task, graph: &mut CompiledGraph) {
    for (name, output) in cache_names(&task.case) {
        assert!(graph.try_bind_handle(&name, &[]).unwrap());
        assert!(graph.try_set_gpu_handle_feed(&name, output).unwrap());
    }
    decode(task, &mut |given, past| {
        let (tokens, mask) = (ids(given), ids(&vec![1; past + given.len()]));
        let inputs = [("input_ids", &tokens), ("attention_mask", &mask)].map(|(name, data)| TensorView {
            name,
            dtype: data.dtype(),
            dims: data.dims(),
            bytes: data.bytes(),
        });
        last_row(&graph.try_run_tensors(&inputs).unwrap()[0])
    });
    for (name, _) in cache_names(&task.case) {
        let kept = graph.try_read_handle(&name).unwrap().unwrap();
        let width: usize = empty(task, &name).dims().iter().filter(|&&d| d > 0).product();
        assert_eq!(kept.len(), width * (task.prompt.len() + task.tokens.len() - 1), "{name}");
    }
}

#[test]
fn a_cache_in_handles_gives_the_tokens() {
    for task in tasks() {
        let model = Model::open(task.case.graph_file().unwrap()).unwrap();
        let session = Session::try_new(Device::Cpu).unwrap();
        let mut runner = Runner::new(model, session, CompileOptions::try_new().unwrap());
        decode_with_handles(&task, runner.prepare(&[]).unwrap().compiled);
    }
}

#[test]
fn a_cache_in_handles_of_graph_devices_gives_the_tokens() {
    for task in tasks() {
        let imported = Model::open(task.case.graph_file().unwrap()).unwrap().import(&[]).unwrap();
        let mut devices = GraphDevices::new(imported.graph.clone());
        assert!(devices.try_set_weights(&imported.weights).unwrap().is_empty());
        decode_with_handles(&task, devices.try_compile(Device::Cpu).unwrap());
    }
}

/// The rows of the caches of [`bounded`].
const CAPACITY: usize = 64;

/// The task's graph with caches of [`CAPACITY`] rows, which are in handles.
fn bounded(task: &Task) -> CompiledGraph {
    let imported = Model::open(task.case.graph_file().unwrap()).unwrap().import(&[]).unwrap();
    let bounded = caches::with_capacity(&imported.graph, CAPACITY).unwrap();
    assert_eq!(bounded.length, "past_length");
    let mut found: Vec<(String, usize)> =
        bounded.caches.iter().map(|c| (c.input.clone(), c.output)).collect();
    let mut names = cache_names(&task.case);
    found.sort();
    names.sort();
    assert_eq!(found, names);
    let mut graph = Session::try_new(Device::Cpu).unwrap().try_compile(bounded.graph).unwrap();
    assert!(graph.try_set_weights(&imported.weights).unwrap().is_empty());
    for (name, output) in names {
        assert!(graph.lir().donated(output).is_some(), "{name} is copied");
        let elements: usize = empty(task, &name).dims().iter().filter(|&&d| d > 0).product();
        assert!(graph.try_bind_handle(&name, &vec![0.0; elements * CAPACITY]).unwrap());
    }
    graph
}

/// The logits of the last of the new tokens, `past` of which came before.
fn bounded_step(graph: &mut CompiledGraph, given: &[i64], past: usize) -> Vec<f64> {
    // What the mask says of rows that are not used does not count.
    let (tokens, mask, length) = (ids(given), ids(&[1; CAPACITY]), (past as i64).to_le_bytes());
    let view = |name, data: &'_ ConstData| (name, data.dtype(), data.dims().to_vec(), data.bytes().to_vec());
    let given = [
        view("input_ids", &tokens),
        view("attention_mask", &mask),
        ("past_length", DType::I64, vec![], length.to_vec()),
    ];
    let views: Vec<TensorView<'_>> = given
        .iter()
        .map(|(name, dtype, dims, bytes)| TensorView { name, dtype: *dtype, dims, bytes })
        .collect();
    graph.try_run_views(&views).unwrap();
    let view = graph.output_views().next().unwrap();
    last_row(&view.to_const().unwrap())
}

#[test]
fn caches_of_a_fixed_capacity_give_the_tokens_and_bind_nothing_again() {
    for task in tasks() {
        let mut graph = bounded(&task);
        let mut bound = Vec::new();
        decode(&task, &mut |given, past| {
            let logits = bounded_step(&mut graph, given, past);
            let stats = graph.binding_stats();
            bound.push((stats.bound, stats.steps, stats.planned));
            logits
        });
        // The prompt, and one token at a time.
        assert!(bound[1..].iter().all(|b| *b == bound[1]), "{}: {bound:?}", task.case.name);
    }
}

#[test]
fn caches_of_a_fixed_capacity_compute_what_growing_ones_do_at_every_length() {
    for task in tasks() {
        let model = Model::open(task.case.graph_file().unwrap()).unwrap();
        let mut runner =
            Runner::new(model, Session::try_new(Device::Cpu).unwrap(), CompileOptions::try_new().unwrap());
        let growing = runner.prepare(&[]).unwrap().compiled;
        for (name, output) in cache_names(&task.case) {
            assert!(growing.try_bind_handle(&name, &[]).unwrap());
            assert!(growing.try_set_gpu_handle_feed(&name, output).unwrap());
        }
        let (mut graph, mut past) = (bounded(&task), 0);
        // Several new tokens at a time, and one at a time until the caches are full.
        for count in [3, 1, 6, 2].into_iter().chain(std::iter::repeat(1)) {
            if past + count > CAPACITY {
                break;
            }
            let given: Vec<i64> = (0..count as i64).map(|i| (past as i64 * 7 + i * 3) % 300).collect();
            let (tokens, mask) = (ids(&given), ids(&vec![1; past + count]));
            let inputs = [("input_ids", &tokens), ("attention_mask", &mask)].map(|(name, data)| TensorView {
                name,
                dtype: data.dtype(),
                dims: data.dims(),
                bytes: data.bytes(),
            });
            let want = last_row(&growing.try_run_tensors(&inputs).unwrap()[0]);
            let got = bounded_step(&mut graph, &given, past);
            let worst = want.iter().zip(&got).map(|(w, g)| (w - g).abs()).fold(0.0, f64::max);
            assert!(worst < 1e-3, "{} after {past}: {worst}", task.case.name);
            past += count;
        }
        assert_eq!(past, CAPACITY);
        // There is no room for another row, and the run says so.
        let (tokens, mask, length) = (ids(&[1]), ids(&[1; CAPACITY]), (CAPACITY as i64).to_le_bytes());
        let views = [
            TensorView { name: "input_ids", dtype: DType::I64, dims: tokens.dims(), bytes: tokens.bytes() },
            TensorView { name: "attention_mask", dtype: DType::I64, dims: mask.dims(), bytes: mask.bytes() },
            TensorView { name: "past_length", dtype: DType::I64, dims: &[], bytes: &length },
        ];
        assert_eq!(graph.try_run_views(&views).unwrap_err().kind(), rlx_ir::ErrorKind::Value);
    }
}

#[test]
fn a_mask_that_is_not_as_long_as_past_and_tokens_is_rejected() {
    let task = tasks().next().unwrap();
    let mut runner = Runner::open(task.case.graph_file().unwrap()).unwrap();
    let cache: Tensors = cache_names(&task.case).iter().map(|(n, _)| (n.clone(), empty(&task, n))).collect();
    let (tokens, mask) = (ids(&[1, 2]), ids(&[1, 1, 1]));
    let mut inputs: Vec<(&str, &ConstData)> = vec![("input_ids", &tokens), ("attention_mask", &mask)];
    inputs.extend(cache.iter().map(|(name, value)| (name.as_str(), value)));
    let error = runner.run(&inputs).expect_err("an error").to_string();
    assert!(error.contains("attention_mask") && error.contains("past + seq"), "{error}");
}
