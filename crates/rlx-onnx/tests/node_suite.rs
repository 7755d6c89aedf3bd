//! The ONNX backend's node cases, on the oracle and on the CPU: an independent reference for importer, graph language and
//! device.
//!
//! Every case of the pinned `onnx` package is imported and run; its outputs must have the expected type, shape and
//! values (the backend test's own tolerance for floats, equality for integers). A case that needs an unsupported feature is
//! counted by the error of the importer or compiler; any other failing case must be listed in
//! `tests/node_suite/expected.txt` (or in `cpu.txt` for the CPU alone) with its reason, and a listed case must
//! fail.
//!
//! On devices with generated kernels, nearly all cases of core types that the CPU passes pass as well (`core_types.rs`).
//!
//! `RLX_NODE_CASE=part_of_name` runs the cases whose name contains it and prints what happened to each. `RLX_NODE_FOLDER=folder` runs
//! those of another folder, such as the cases that a newer `onnx` generates, and prints what happened to those that do not pass; with
//! `RLX_NODE_LIST=file` exactly the cases of that list fail (`tests/node_suite/newest.txt`: `cargo xtask test --suite onnx-newest`).

#[path = "node_suite/core_types.rs"]
mod core_types;
#[path = "node_suite/packages.rs"]
mod packages;
#[path = "node_suite/pages.rs"]
mod pages;
mod reference;

use reference::Arrays as Inputs;
use rlx_ir::tensor::Elements;
use rlx_ir::{DType, ErrorKind, Graph, Node, Op, Value};
use rlx_onnx::proto::TypeProto;
use rlx_onnx::{
    FileValue, ImportOptions, Imported, OnnxFile, StringTable, StringTensor, import, needed_input,
    read_value_file,
};
use rlx_runtime::{
    CompileOptions, Device, KernelDispatchPolicy, Session, supports_graph_with_options, supports_node,
};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const RTOL: f64 = 1e-3;
const ATOL: f64 = 1e-7;

/// What became of one case.
#[derive(Debug, Clone, PartialEq)]
enum Outcome {
    Pass,
    /// The unsupported feature: usually the op's name.
    NotBuilt(String),
    Failed(String),
}

/// What runs the cases.
struct Runner {
    name: &'static str,
    run: Run,
    /// Expectations of the pinned cases, all of them data files.
    expected: &'static [&'static str],
    /// Whether its kernels are generated: it passes nearly all cases of core types that the CPU passes.
    is_generated: bool,
}

impl Runner {
    fn new(name: &'static str, run: Run, expected: &'static [&'static str]) -> Runner {
        Runner { name, run, expected, is_generated: false }
    }
}

/// Runs a case.
type Run = fn(&Imported, &Inputs) -> Result<Vec<Value>, rlx_ir::Error>;

/// What holds on the CPU.
const CPU: &[&str] = &[include_str!("node_suite/cpu.txt"), include_str!("node_suite/expected.txt")];

#[test]
fn node_cases_pass_on_the_oracle() {
    let expected = &[include_str!("node_suite/oracle.txt"), include_str!("node_suite/expected.txt")];
    check(&Runner::new("oracle", reference::on_oracle, expected));
}

#[test]
fn node_cases_pass_on_the_cpu() {
    check(&Runner::new("cpu", run_on_cpu, CPU));
}

/// With the feature `mlx` of rlx-runtime, and where its shim is: the suite `mlx` has both.
#[test]
fn node_cases_pass_on_mlx() {
    let expected = &[include_str!("node_suite/mlx.txt"), include_str!("node_suite/expected.txt")];
    let run = |imported: &_, inputs: &_| reference::on_device(Device::Mlx, imported, inputs);
    check_where_there_is(Device::Mlx, &Runner::new("mlx", run, expected));
}

/// With the feature `tpu` of rlx-runtime, and where its plugin is: the suite `pjrt` has one that runs programs by XLA on the CPU, or, as
/// `RLX_TEST_PJRT_ENGINE` says, by StableHLO's reference interpreter.
#[test]
fn node_cases_pass_on_tpu() {
    let run = |imported: &_, inputs: &_| reference::on_device(Device::Tpu, imported, inputs);
    let xla = &[include_str!("node_suite/tpu.txt"), include_str!("node_suite/expected.txt")];
    let interpreter =
        &[include_str!("node_suite/tpu-interpreter.txt"), include_str!("node_suite/expected.txt")];
    let runner = match std::env::var("RLX_TEST_PJRT_ENGINE").as_deref() {
        Ok("interpreter") => Runner::new("tpu-interpreter", run, interpreter),
        _ => Runner::new("tpu", run, xla),
    };
    check_where_there_is(Device::Tpu, &runner);
}

/// As Core ML packages, which an evaluator of ours runs; the suite `coreml` counts them.
#[test]
fn node_cases_pass_as_packages() {
    let expected = &[include_str!("node_suite/ane.txt"), include_str!("node_suite/expected.txt")];
    check(&Runner::new("ane", packages::run, expected));
}

/// Devices with generated kernels, each with its feature of rlx-runtime: the suite `windows` has DirectX's, `gpu-all` the others.
macro_rules! node_cases_pass_on_gpus {
    ($($test:ident: $device:ident $name:literal)*) => {$(
        #[test]
        fn $test() {
            let run = |imported: &_, inputs: &_| reference::on_device(Device::$device, imported, inputs);
            let runner = Runner { name: $name, run, expected: GPUS, is_generated: true };
            check_where_there_is(Device::$device, &runner);
        }
    )*};
}

node_cases_pass_on_gpus! {
    node_cases_pass_on_vulkan: Vulkan "vulkan"
    node_cases_pass_on_opengl: OpenGl "opengl"
    node_cases_pass_on_directx: DirectX "directx"
    node_cases_pass_on_cuda: Cuda "cuda"
    node_cases_pass_on_rocm: Rocm "rocm"
}

/// Writes the cases for a page into the folder `RLX_NODE_CASES_OUT`; the suite `web` runs them there.
#[test]
fn node_cases_are_written_for_pages() {
    let Some(out) = std::env::var_os("RLX_NODE_CASES_OUT").map(PathBuf::from) else { return };
    let Some(data) = rlx_testdata::ONNX_CASES.path_or_skip() else { return };
    let folder = data.join("onnx/backend/test/data/node");
    let web = include_str!("node_suite/web.txt");
    let devices = ["webgpu", "simd128"]
        .map(|device| (device, Expected::read(device, &[web, include_str!("node_suite/expected.txt")])));
    pages::write(&out, &folder, &cases_of(&folder, None), &devices);
}

/// What holds on devices with generated kernels.
const GPUS: &[&str] = &[include_str!("node_suite/gpus.txt"), include_str!("node_suite/expected.txt")];

/// Checks a device that not every machine has. One that `RLX_TEST_DEVICES` names must be there, in a build that has
/// its backend: continuous integration names devices for all suites, and some are built without them.
fn check_where_there_is(device: Device, runner: &Runner) {
    let Some(missing) = rlx_runtime::unavailable_reason(device) else { return check(runner) };
    let required = std::env::var("RLX_TEST_DEVICES").unwrap_or_default();
    let built = rlx_runtime::backend_for(device).is_some();
    let named = built && required.split(',').any(|name| name.parse() == Ok(device));
    assert!(!named, "RLX_TEST_DEVICES names {device}: {missing}");
    println!("@skip 1 the node cases on {device}: {missing}");
}

fn check(device: &Runner) {
    let other = std::env::var_os("RLX_NODE_FOLDER").map(PathBuf::from);
    let folder = match &other {
        Some(folder) => folder.clone(),
        None => match rlx_testdata::ONNX_CASES.path_or_skip() {
            Some(data) => data.join("onnx/backend/test/data/node"),
            None => return,
        },
    };
    let filter = std::env::var("RLX_NODE_CASE").ok();
    let cases = cases_of(&folder, filter.as_deref());
    let list = std::env::var_os("RLX_NODE_LIST");
    let list = list.map(|path| std::fs::read_to_string(path).expect("RLX_NODE_LIST is a text file"));
    let texts = match (&other, &list) {
        (None, _) => device.expected,
        (Some(_), Some(list)) => &[list.as_str()][..],
        (Some(_), None) => &[],
    };
    let expected = Expected::read(device.name, texts);
    let outcomes = run_all(device, &folder, &cases, expected.bf16);
    if filter.is_some() {
        outcomes.iter().for_each(|(name, outcome)| println!("{} {name}: {outcome:?}", device.name));
        return;
    }
    if other.is_some() {
        let passed = outcomes.values().filter(|outcome| **outcome == Outcome::Pass).count();
        println!("{}: {passed} of {} cases pass", device.name, outcomes.len());
        let others = outcomes.iter().filter(|(_, outcome)| **outcome != Outcome::Pass);
        others.for_each(|(name, outcome)| println!("{} {name}: {outcome:?}", device.name));
    } else {
        assert_eq!(cases.len(), 1653, "the pinned package has 1,653 node cases");
    }
    if other.is_none() || list.is_some() {
        report(device, &expected, &outcomes);
    }
    if other.is_none() && device.is_generated {
        core_types::check(device.name, &folder, &outcomes);
    }
}

/// The names of a folder's cases, sorted; those that contain `filter`, if there is one.
fn cases_of(folder: &Path, filter: Option<&str>) -> Vec<String> {
    let mut cases: Vec<String> = std::fs::read_dir(folder)
        .expect("the node cases' folder is readable")
        .map(|entry| entry.expect("a readable entry").file_name().to_string_lossy().into_owned())
        .filter(|name| filter.is_none_or(|f| name.contains(f)))
        .collect();
    cases.sort();
    cases
}

/// Compares with the expectations, prints the counts, and fails on any difference.
fn report(device: &Runner, expected: &Expected, outcomes: &BTreeMap<String, Outcome>) {
    let mut not_built: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut passed, mut listed, mut faults) = (0, BTreeMap::<&str, usize>::new(), Vec::new());
    for (name, outcome) in outcomes {
        match (outcome, expected.reasons.get(name.as_str())) {
            (Outcome::Pass, None) => passed += 1,
            (Outcome::NotBuilt(what), None) => *not_built.entry(what).or_default() += 1,
            (Outcome::Pass, Some(_)) => faults.push(format!("{name} passes, but is listed as failing")),
            (Outcome::Failed(why), None) => faults.push(format!("{name}: {why}")),
            (_, Some(reason)) => *listed.entry(reason).or_default() += 1,
        }
    }
    let gone = expected.reasons.keys().filter(|name| !outcomes.contains_key(**name));
    faults.extend(gone.map(|name| format!("{name} is listed, but there is no such case")));
    if passed < expected.min_passed {
        let min_passed = expected.min_passed;
        faults
            .push(format!("{passed} cases pass; there were {min_passed}: a feature is no longer supported"));
    }
    let names: Vec<String> = not_built.iter().map(|(what, n)| format!("{what} {n}")).collect();
    let (count, device) = (not_built.values().sum::<usize>(), device.name);
    let mut lines = vec![
        format!("@counts passed={passed} failed={}", faults.len()),
        format!("@nodes {device} {passed} of {}", outcomes.len()),
    ];
    if count > 0 {
        lines.push(format!(
            "@skip {count} node cases on {device} need what is not built: {}",
            names.join(", ")
        ));
    }
    lines.extend(
        listed.iter().map(|(reason, n)| format!("@skip {n} node cases on {device} listed as {reason}")),
    );
    lines.extend(faults.iter().map(|fault| format!("{device}: {fault}")));
    println!("{}", lines.join("\n"));
    assert!(faults.is_empty(), "{} node cases do not do as expected on {device}", faults.len());
}

/// The data file of expectations.
struct Expected<'a> {
    /// How many cases pass at least.
    min_passed: usize,
    /// How far a bf16 may be from what is expected, relative to it.
    bf16: f64,
    /// Case → reason of the three allowed.
    reasons: BTreeMap<&'a str, &'a str>,
}

impl<'a> Expected<'a> {
    /// The lines that hold on a device: `NAME@DEVICE` holds on that one alone.
    fn read(device: &str, texts: &[&'a str]) -> Expected<'a> {
        let mut expected = Expected { min_passed: 0, bf16: RTOL, reasons: BTreeMap::new() };
        let lines = texts.iter().flat_map(|text| text.lines());
        for line in lines.filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            let (name, reason) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let (name, on) = name.split_once('@').unwrap_or((name, device));
            match name {
                _ if on != device => {}
                "at-least" => expected.min_passed = reason.parse().expect("at-least has a number"),
                "bfloat16-relative" => expected.bf16 = reason.parse().expect("a tolerance is a number"),
                _ => {
                    let allowed = ["random", "wrong-expectation", "not-built"];
                    assert!(allowed.contains(&reason), "{name}: reason \"{reason}\" is none of {allowed:?}");
                    let evidence = words.next().is_some();
                    assert!(
                        evidence || reason != "wrong-expectation",
                        "{name}: a wrong expectation needs evidence"
                    );
                    assert!(expected.reasons.insert(name, reason).is_none(), "{name} is listed twice");
                }
            }
        }
        expected
    }
}

/// Runs the cases on as many threads as there are processors.
fn run_all(runner: &Runner, folder: &Path, cases: &[String], bf16: f64) -> BTreeMap<String, Outcome> {
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(name) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let run = catch_unwind(AssertUnwindSafe(|| run_case(runner, &folder.join(name), bf16)));
                    let outcome = run.unwrap_or_else(|_| Outcome::Failed("panicked".to_owned()));
                    outcomes.lock().expect("no holder panics").insert(name.clone(), outcome);
                }
            });
        }
    });
    outcomes.into_inner().expect("no holder panics")
}

fn run_case(runner: &Runner, folder: &Path, bf16: f64) -> Outcome {
    let file = match OnnxFile::open(folder.join("model.onnx")) {
        Ok(file) => file,
        Err(e) => return Outcome::Failed(e.to_string()),
    };
    let set = |i: usize| folder.join(format!("test_data_set_{i}"));
    let sets: Vec<PathBuf> = (0..).map(set).take_while(|p| p.is_dir()).collect();
    if sets.is_empty() {
        return Outcome::Failed("the case has no data".to_owned());
    }
    let outcomes = sets.iter().map(|set| run_set(runner, &file, set, bf16));
    outcomes.into_iter().find(|outcome| *outcome != Outcome::Pass).unwrap_or(Outcome::Pass)
}

fn run_set(runner: &Runner, file: &OnnxFile, set: &Path, bf16: f64) -> Outcome {
    let mut given = Given::default();
    for (i, input) in file.graph().input.iter().enumerate() {
        let path = set.join(format!("input_{i}.pb"));
        let declared = input.r#type.clone().unwrap_or_default();
        match read_value(&path, &declared) {
            Ok(value) => given.add(input.name(), value),
            Err(why) => return Outcome::Failed(why),
        }
    }
    let imported = match import_with_values(file, &given) {
        Ok(imported) => imported,
        Err(e) if e.kind() == ErrorKind::Unsupported => return not_built(&e),
        Err(e) => return Outcome::Failed(e.to_string()),
    };
    let inputs = match given.of_graph(&imported) {
        Ok(inputs) => inputs,
        Err(why) => return Outcome::Failed(why),
    };
    let outputs = match (runner.run)(&imported, &inputs) {
        Ok(outputs) => outputs,
        Err(e) if e.kind() == ErrorKind::Unsupported => return not_built(&e),
        Err(e) => return Outcome::Failed(e.to_string()),
    };
    match compare_outputs(file, set, &imported, &outputs, bf16) {
        Ok(()) => Outcome::Pass,
        Err(why) => Outcome::Failed(why),
    }
}

/// The missing feature: the op's name in the file, or in the graph if the device does not support it.
fn not_built(e: &rlx_ir::Error) -> Outcome {
    let node = e.node().unwrap_or("model");
    if node.starts_with('%') {
        return Outcome::NotBuilt(node.split_whitespace().nth(1).unwrap_or(node).to_owned());
    }
    let detail = e.message().split(';').next().unwrap_or_default();
    let whole = detail.starts_with("op ");
    Outcome::NotBuilt(if whole { node.to_owned() } else { format!("{node} ({detail})") })
}

/// What a case gives for the model's inputs.
#[derive(Default)]
struct Given {
    tensors: Inputs,
    strings: BTreeMap<String, StringTensor>,
    options: ImportOptions,
}

impl Given {
    fn add(&mut self, name: &str, value: FileValue) {
        match value {
            FileValue::Tensor(raw) => {
                self.tensors.insert(name.to_owned(), raw.to_const().expect("the case's tensor fits"));
            }
            FileValue::Strings(strings) => _ = self.strings.insert(name.to_owned(), strings),
            FileValue::Sequence(elements) => {
                self.options.sequence_lengths.insert(name.to_owned(), elements.len());
                elements.into_iter().enumerate().for_each(|(i, e)| self.add(&format!("{name}.{i}"), e));
            }
            FileValue::Nothing => _ = self.options.absent.insert(name.to_owned()),
        }
    }

    /// The inputs that the graph has: strings as codes.
    fn of_graph(&self, imported: &Imported) -> Result<Inputs, String> {
        let mut inputs = self.tensors.clone();
        for (name, strings) in &self.strings {
            let table = imported.structure.strings.get(name).ok_or(format!("{name} has no strings"))?;
            inputs.insert(name.clone(), table.encode(strings).map_err(|e| e.to_string())?);
        }
        Ok(inputs)
    }
}

/// Imports, specialising on the value of every input that turns out to decide a shape.
fn import_with_values(file: &OnnxFile, given: &Given) -> Result<Imported, rlx_ir::Error> {
    let image_decoder = Some(rlx::image::decode_for_onnx as rlx_onnx::ImageDecoder);
    let mut options = ImportOptions { image_decoder, ..given.options.clone() };
    loop {
        let error = match import(file, &options) {
            Ok(imported) => return Ok(imported),
            Err(error) => error,
        };
        let Some(name) = needed_input(&error).map(str::to_owned) else { return Err(error) };
        let tensor = given.tensors.get(&name).filter(|_| !options.input_values.contains_key(&name));
        let strings = given.strings.get(&name).filter(|_| !options.input_strings.contains_key(&name));
        match (tensor, strings) {
            (Some(value), _) => _ = options.input_values.insert(name, value.clone()),
            (_, Some(value)) => _ = options.input_strings.insert(name, value.clone()),
            (None, None) => return Err(error),
        }
    }
}

/// Every output of the model against the case's, a sequence element by element.
fn compare_outputs(
    file: &OnnxFile,
    set: &Path,
    imported: &Imported,
    found: &[Value],
    bf16: f64,
) -> Result<(), String> {
    let mut at = 0;
    for (i, output) in file.graph().output.iter().enumerate() {
        let want =
            read_value(&set.join(format!("output_{i}.pb")), &output.r#type.clone().unwrap_or_default())?;
        let mut all = Vec::new();
        flattened(output.name().to_owned(), want, &mut all);
        for (name, want) in all {
            let values = found.get(at).filter(|_| imported.outputs.get(at) == Some(&name));
            let value = values.ok_or(format!("there is no output {name}"))?;
            compare_value(value, &want, imported.structure.strings.get(&name), bf16)
                .map_err(|e| format!("{name}: {e}"))?;
            at += 1;
        }
    }
    if at == found.len() { Ok(()) } else { Err(format!("{} outputs, not {at}", found.len())) }
}

fn flattened(name: String, value: FileValue, all: &mut Vec<(String, FileValue)>) {
    match value {
        FileValue::Sequence(elements) => {
            elements.into_iter().enumerate().for_each(|(i, e)| flattened(format!("{name}.{i}"), e, all));
        }
        FileValue::Nothing => {}
        other => all.push((name, other)),
    }
}

fn compare_value(
    found: &Value,
    want: &FileValue,
    table: Option<&StringTable>,
    bf16: f64,
) -> Result<(), String> {
    match (want, table) {
        (FileValue::Tensor(want), None) => {
            compare(found, &want.to_const().map_err(|e| e.to_string())?.value(), bf16)
        }
        (FileValue::Strings(want), Some(table)) => {
            let found = table.decode(&found.to_const()).map_err(|e| e.to_string())?;
            if found == *want { Ok(()) } else { Err(format!("{found:?}, not {want:?}")) }
        }
        _ => Err("another kind of value".to_owned()),
    }
}

/// An error unless `supports_node` says of every node of the graph what compiling it alone does.
fn supports_what_compiles(graph: &Graph) -> Result<(), rlx_ir::Error> {
    let session = Session::new(Device::Cpu);
    let native = CompileOptions::new().kernel_dispatch(KernelDispatchPolicy::ForceNative);
    let border = |n: &Node| n.inputs.is_empty() || matches!(n.op, Op::Result { .. });
    for node in graph.nodes().iter().filter(|n| !border(n)) {
        let mut alone = Graph::new("alone");
        let inputs = node.inputs.iter().enumerate();
        let inputs = inputs.map(|(i, &id)| alone.input(format!("x{i}"), graph.shape(id).clone())).collect();
        let id = alone.push_node(Node::new(node.op.clone(), inputs, node.results().to_vec()));
        alone.set_outputs(vec![id]);
        let said = [
            supports_node(Device::Cpu, node, graph),
            supports_graph_with_options(Device::Cpu, &alone, &native),
        ];
        let compiles = |options: &CompileOptions| match session.try_compile_with(alone.clone(), options) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == ErrorKind::Unsupported => Ok(false),
            Err(e) => Err(rlx_ir::Error::from(e)),
        };
        let done = [compiles(&CompileOptions::new())?, compiles(&native)?];
        if said != done {
            let message = format!("supports says {said:?}, compiling {done:?} of {alone}");
            return Err(rlx_ir::Error::new(ErrorKind::Internal, message));
        }
    }
    Ok(())
}

fn run_on_cpu(imported: &Imported, inputs: &Inputs) -> Result<Vec<Value>, rlx_ir::Error> {
    supports_what_compiles(&imported.graph)?;
    reference::on_cpu(imported, inputs)
}

fn read_value(path: &Path, declared: &TypeProto) -> Result<FileValue, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    read_value_file(bytes, declared).map_err(|e| e.to_string())
}

/// Type, shape and values must agree; `bf16` is the tolerance of that type.
fn compare(found: &Value, want: &Value, bf16: f64) -> Result<(), String> {
    if found.shape() != want.shape() {
        return Err(format!("is {}, not {}", found.shape(), want.shape()));
    }
    let relative = if want.dtype == DType::BF16 { bf16 } else { RTOL };
    let differs = match (&found.elements, &want.elements) {
        (Elements::Float(a), Elements::Float(b)) => {
            let near = |a: f64, b: f64| (a - b).abs() <= ATOL + relative * b.abs();
            let close = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan() || near(a, b);
            a.iter()
                .zip(b)
                .position(|(&a, &b)| !close(a, b))
                .map(|i| format!("{} at {i}, not {}", a[i], b[i]))
        }
        (Elements::Int(a), Elements::Int(b)) => {
            a.iter().zip(b).position(|(a, b)| a != b).map(|i| format!("{} at {i}, not {}", a[i], b[i]))
        }
        _ => Some("another kind of elements".to_owned()),
    };
    differs.map_or(Ok(()), Err)
}
