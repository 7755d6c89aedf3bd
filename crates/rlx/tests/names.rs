//! Steps carry the names that the model's nodes have: in errors, profiles, `inspect`, diagrams and artefacts.

mod common;

use std::collections::BTreeSet;

use common::{FLOAT, Folder, INT64, model, node, value, weight};
use rlx::Model;
use rlx_ir::lir::{LirModule, Step};
use rlx_ir::{ConstData, Op};
use rlx_onnx::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto};
use rlx_opt::CompilePipeline;
use rlx_runtime::{CompileOptions, Device, KernelDispatchPolicy, Session, backend_for};
use rlx_testdata::models::{Model as TestModel, wanted};
use serde_json::Value as Json;

/// A gather, whose index may be out of range; a matmul that takes in what follows; a softmax.
fn layer() -> Vec<u8> {
    let named = |name: &str, node: NodeProto| NodeProto { name: Some(name.to_owned()), ..node };
    let nodes = [
        named("/layer/embed/Gather", node("Gather", &["table", "ids"], &["x"])),
        named("/layer/query/MatMul", node("MatMul", &["x", "w"], &["q"])),
        named("/layer/query/Add", node("Add", &["q", "b"], &["qb"])),
        named("/layer/act/Sigmoid", node("Sigmoid", &["qb"], &["s"])),
        named("/layer/act/Mul", node("Mul", &["qb", "s"], &["a"])),
        named("/layer/probabilities/Softmax", node("Softmax", &["a"], &["y"])),
    ];
    let weights = [
        weight("table", &[3, 4], &[0.5; 12]),
        weight("w", &[4, 4], &[0.25; 16]),
        weight("b", &[4], &[1.0; 4]),
    ];
    model(&[value("ids", INT64, &["2"])], &nodes, &weights, &[value("y", FLOAT, &["2", "4"])])
}

/// The folder with the model in it.
fn folder(test: &str) -> Folder {
    let folder = Folder::new(&format!("names-{test}"));
    folder.write("layer.onnx", layer());
    folder
}

fn json(folder: &Folder, args: &[&str]) -> Json {
    let output = folder.rlx(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON value")
}

/// The texts of an array.
fn texts(list: &Json) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

const FUSED: &str = "/layer/query/MatMul (+ Add, Sigmoid, Mul)";
const FUSED_NAMES: [&str; 4] =
    ["/layer/query/MatMul", "/layer/query/Add", "/layer/act/Sigmoid", "/layer/act/Mul"];

#[test]
fn inspect_names_the_nodes_of_the_model() {
    let folder = folder("inspect");
    let facts = json(&folder, &["inspect", "layer.onnx", "--passes", "--json"]);
    let run = facts["program"]["run"].as_array().unwrap();
    let names: Vec<&str> = run.iter().map(|step| step["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["/layer/embed/Gather", FUSED, "/layer/probabilities/Softmax"]);
    assert_eq!(texts(&run[1]["origins"]), FUSED_NAMES);
    assert_eq!(run.len(), facts["steps"].as_u64().unwrap() as usize);
    let init = facts["program"]["init"].as_array().unwrap();
    assert!(init.iter().all(|step| !texts(&step["origins"]).is_empty()), "{init:?}");

    let last = facts["passes"].as_array().unwrap().last().unwrap();
    let comment = format!("  // {}", FUSED_NAMES.join(" + "));
    assert!(last["graph"].as_str().unwrap().contains(&comment), "{}", last["graph"]);
    let drawn = facts["diagram"]["boxes"].as_array().unwrap();
    assert!(drawn.iter().any(|b| b["origin"] == FUSED_NAMES.join(" + ")), "{drawn:?}");
    let changes = folder.rlx(&["inspect", "layer.onnx", "--passes=fuse-regions.."]);
    assert!(String::from_utf8_lossy(&changes.stdout).contains(&format!("// {FUSED}")));
}

#[test]
fn profiles_name_the_nodes_of_the_model() {
    let folder = folder("profile");
    // An index that is not random: the table has three rows.
    folder.write("ids.json", "[0, 2]");
    let args = ["bench", "layer.onnx", "--input", "ids=ids.json", "--runs", "2", "--profile"];
    let facts = json(&folder, &[&args[..], &["--json"]].concat());
    let steps = facts["profile"]["steps"].as_array().unwrap();
    let names: Vec<&str> = steps.iter().map(|step| step["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["/layer/embed/Gather", FUSED, "/layer/probabilities/Softmax"]);
    assert_eq!(texts(&steps[1]["origins"]), FUSED_NAMES);
    let table = folder.rlx(&args);
    assert!(String::from_utf8_lossy(&table.stdout).contains(FUSED));

    let printed =
        folder.command(&["run", "layer.onnx", "--input", "ids=ids.json"]).env("RLX_PROFILE", "1").output();
    let printed = String::from_utf8(printed.unwrap().stderr).unwrap();
    assert!(printed.contains(FUSED), "{printed}");
}

#[test]
fn faults_of_a_run_name_the_node_of_the_model_also_in_artefacts() {
    let folder = folder("faults");
    folder.write("ids.json", "[0, 7]");
    let compiled = folder.rlx(&["compile", "layer.onnx", "-o", "layer.rlx"]);
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    for file in ["layer.onnx", "layer.rlx"] {
        let output = folder.rlx(&["run", file, "--input", "ids=ids.json"]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains("\n  at: /layer/embed/Gather [%"), "{file}: {message}");
        let output = folder.rlx(&["run", file, "--input", "ids=ids.json", "--json"]);
        let error: Json = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(error["error"]["origin"], "/layer/embed/Gather", "{file}");
    }
    let facts = json(&folder, &["inspect", "layer.rlx", "--json"]);
    assert_eq!(facts["program"]["run"][1]["name"], FUSED);
}

#[test]
fn decomposed_nodes_keep_their_names() {
    let folder = folder("decomposed");
    let ids = ConstData::new(rlx_ir::DType::I64, &[2], [1i64, 2].map(i64::to_le_bytes).concat()).unwrap();
    let imported = Model::open(folder.path().join("layer.onnx")).unwrap().import(&[("ids", &ids)]).unwrap();
    let mut options = CompileOptions::try_new().unwrap();
    options.kernel_dispatch = KernelDispatchPolicy::ForceCommon;
    let session = Session::try_new(Device::Cpu).unwrap();
    let compiled = session.try_compile_with(imported.graph.clone(), &options).unwrap();
    let lir = compiled.lir();
    assert!(!lir.graph.nodes().iter().any(|n| matches!(n.op, Op::Softmax { .. })), "{}", lir.graph);
    let labels: Vec<String> = lir.steps.iter().map(|step| lir.graph.label(step.node)).collect();
    let softmax = labels.iter().filter(|label| label.contains("/layer/probabilities/Softmax"));
    assert!(softmax.count() >= 2, "{labels:?}");
}

/// The names of all nodes of a file, those of bodies and functions too.
fn file_names(model: &rlx_onnx::proto::ModelProto) -> BTreeSet<String> {
    fn of_nodes(nodes: &[NodeProto], found: &mut BTreeSet<String>) {
        for node in nodes {
            found.insert(match node.name() {
                "" => format!("node of \"{}\"", node.output.first().map_or("", String::as_str)),
                name => name.to_owned(),
            });
            node.attribute.iter().for_each(|attribute| of_attribute(attribute, found));
        }
    }
    fn of_attribute(attribute: &AttributeProto, found: &mut BTreeSet<String>) {
        let graphs = attribute.g.iter().map(AsRef::as_ref).chain(&attribute.graphs);
        graphs.for_each(|graph: &GraphProto| of_nodes(&graph.node, found));
    }
    let mut found = BTreeSet::new();
    model.graph.iter().for_each(|graph| of_nodes(&graph.node, &mut found));
    model.functions.iter().for_each(|function: &FunctionProto| of_nodes(&function.node, &mut found));
    found
}

/// The steps that no node of the file names.
fn unnamed(lir: &LirModule, names: &BTreeSet<String>) -> Vec<String> {
    // A node in a function is named by its calls, too.
    let known = |origin: &str| {
        names.contains(origin) || names.iter().any(|name| origin.ends_with(&format!("/{name}")))
    };
    let named = |step: &&Step| {
        let origin = lir.graph.node(step.node).origin;
        lir.graph.origins().names(origin).into_iter().any(known)
    };
    lir.init
        .iter()
        .chain(&lir.steps)
        .filter(|step| !named(step))
        .map(|step| lir.graph.node(step.node).describe())
        .collect()
}

fn check(kept: &TestModel) -> Result<Vec<String>, String> {
    let Some(path) = kept.graph_file() else { return Ok(Vec::new()) };
    let (inputs, _) = kept.goldens.first().ok_or("it has no golden")?.read();
    let inputs: Vec<(&str, &ConstData)> = inputs.iter().map(|(n, d)| (n.as_str(), d)).collect();
    let imported =
        Model::open(&path).and_then(|mut model| model.import(&inputs)).map_err(|e| e.to_string())?;
    let file = rlx_onnx::OnnxFile::open(&path).map_err(|e| e.to_string())?;
    let backend = backend_for(Device::Cpu).ok_or("there is no CPU")?;
    let options = CompileOptions::try_new().map_err(|e| e.to_string())?;
    let target = backend.target(&options).map_err(|e| e.to_string())?;
    let result = CompilePipeline::new(target, options).compile(&imported.graph).map_err(|e| e.to_string())?;
    Ok(unnamed(&result.lir, &file_names(file.model())))
}

#[test]
fn every_step_of_the_test_models_is_named_by_a_node_of_the_file() {
    let mut faults = Vec::new();
    for kept in wanted() {
        match check(&kept) {
            Ok(unnamed) if unnamed.is_empty() => {}
            Ok(unnamed) => faults.push(format!("{}: {}", kept.name, unnamed.join(", "))),
            Err(why) => faults.push(format!("{}: {why}", kept.name)),
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
