//! Ops of the default domain compared with ONNX Runtime, on the oracle and on the CPU: combinations of attributes that the node cases
//! of the onnx package do not have, and shapes that data decides.
//!
//! `tests/default_ops/` has small models and ONNX Runtime's outputs (made by `models/default_ops.py`).

use rlx_ir::oracle::{Bindings, evaluate};
use rlx_ir::{ConstData, Graph, Value};
use rlx_onnx::{ImportOptions, Imported, OnnxFile, import};
use rlx_runtime::{Device, Session, TensorView};
use rlx_weights::npz;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

type Arrays = BTreeMap<String, ConstData>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/default_ops")
}

fn names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .expect("the folder is readable")
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "onnx"))
        .map(|path| path.file_stem().expect("a file has a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn ops_give_what_onnx_runtime_gives_on_the_oracle() {
    check_all(|imported, inputs| {
        if let Some(fault) = rlx_ir::verify(&imported.graph).into_iter().next() {
            return Err(fault.error);
        }
        let mut bindings = Bindings::default();
        for (name, value) in inputs {
            bindings.set_input(name, value.value());
        }
        for (name, weight) in imported.weights.iter() {
            bindings.set_param(name, weight.to_const()?.value());
        }
        evaluate(&imported.graph, &bindings)
    });
}

#[test]
fn ops_give_what_onnx_runtime_gives_on_the_cpu() {
    check_all(|imported, inputs| {
        let mut compiled = Session::new(Device::Cpu).try_compile(imported.graph.clone())?;
        compiled.try_set_weights(&imported.weights)?;
        let views: Vec<TensorView<'_>> = inputs
            .iter()
            .map(|(name, x)| TensorView { name, dtype: x.dtype(), dims: x.dims(), bytes: x.bytes() })
            .collect();
        // Twice: a run must leave nothing behind that the next one sees.
        compiled.try_run_tensors(&views)?;
        Ok(compiled.try_run_tensors(&views)?.iter().map(ConstData::value).collect())
    });
}

fn check_all(run: impl Fn(&Imported, &Arrays) -> Result<Vec<Value>, rlx_ir::Error>) {
    let names = names();
    assert!(!names.is_empty(), "there are no cases");
    let check = |name: &String| check(name, &run).err().map(|why| format!("{name}: {why}"));
    let faults: Vec<String> = names.iter().filter_map(check).collect();
    println!("@counts passed={} failed={}", names.len() - faults.len(), faults.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn read(name: &str) -> (OnnxFile, Arrays) {
    let file = OnnxFile::open(folder().join(format!("{name}.onnx"))).expect("the case is a model");
    (
        file,
        npz::read(folder().join(format!("{name}.npz"))).expect("the case has arrays").into_iter().collect(),
    )
}

fn check(
    name: &str,
    run: &impl Fn(&Imported, &Arrays) -> Result<Vec<Value>, rlx_ir::Error>,
) -> Result<(), String> {
    let (file, arrays) = read(name);
    let imported = import(&file, &ImportOptions::default()).map_err(|e| e.to_string())?;
    let inputs = arrays.iter().filter_map(|(n, v)| Some((n.strip_prefix("in_")?.to_owned(), v.clone())));
    let found = run(&imported, &inputs.collect()).map_err(|e| e.to_string())?;
    for (name, want) in &arrays {
        let Some(output) = name.strip_prefix("out_") else { continue };
        let at = imported.outputs.iter().position(|o| o == output).ok_or(format!("no output {output}"))?;
        close(&found[at], want).map_err(|why| format!("{output}: {why}"))?;
    }
    Ok(())
}

fn close(found: &Value, want: &ConstData) -> Result<(), String> {
    if found.shape() != want.shape() {
        return Err(format!("{}, not {}", found.shape(), want.shape()));
    }
    let (found, wanted) = (found.to_f64(), want.value().to_f64());
    let largest = wanted.iter().fold(0f64, |m, v| m.max(v.abs()));
    let tolerance = if want.dtype().is_float() { 2e-5 } else { 0.0 };
    let off = |(a, b): (&f64, &f64)| (a - b).abs() > tolerance * largest || a.is_nan() != b.is_nan();
    match found.iter().zip(&wanted).position(off) {
        Some(i) => Err(format!("{} at {i}, not {}", found[i], wanted[i])),
        None => Ok(()),
    }
}

/// A graph of one node without operands or with zeros, in ONNX's binary form.
mod random {
    use super::*;
    use prost::Message;
    use rlx_onnx::proto::attribute_proto::AttributeType;
    use rlx_onnx::proto::{
        AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, ValueInfoProto,
    };

    pub fn drawn(op: &str, seed: Option<f32>, shape: &[i64]) -> Vec<f64> {
        let ints = AttributeProto {
            name: Some("shape".into()),
            r#type: Some(AttributeType::Ints as i32),
            ints: shape.to_vec(),
            ..Default::default()
        };
        let seed = seed.map(|seed| AttributeProto {
            name: Some("seed".into()),
            r#type: Some(AttributeType::Float as i32),
            f: Some(seed),
            ..Default::default()
        });
        let node = NodeProto {
            op_type: Some(op.into()),
            output: vec!["y".into()],
            attribute: [Some(ints), seed].into_iter().flatten().collect(),
            ..Default::default()
        };
        let output = ValueInfoProto { name: Some("y".into()), ..Default::default() };
        let graph = GraphProto { node: vec![node], output: vec![output], ..Default::default() };
        let opset = OperatorSetIdProto { version: Some(17), ..Default::default() };
        let model = ModelProto { graph: Some(graph), opset_import: vec![opset], ..Default::default() };
        let file = OnnxFile::from_bytes(model.encode_to_vec()).expect("it decodes");
        let graph: Graph = import(&file, &ImportOptions::default()).expect("it is imported").graph;
        let mut compiled = Session::new(Device::Cpu).try_compile(graph).expect("it compiles");
        compiled.try_run_tensors(&[]).expect("it runs")[0].value().to_f64()
    }
}

/// Mean and standard deviation.
fn moments(x: &[f64]) -> (f64, f64) {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    (mean, (x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64).sqrt())
}

#[test]
fn random_numbers_have_their_distribution_and_depend_on_the_seed_alone() {
    let shape = [64, 128];
    let uniform = random::drawn("RandomUniform", Some(1.0), &shape);
    let (mean, deviation) = moments(&uniform);
    assert!(
        (mean - 0.5).abs() < 0.01 && (deviation - 1.0 / 12f64.sqrt()).abs() < 0.01,
        "{mean} ± {deviation}"
    );
    assert!(uniform.iter().all(|x| (0.0..1.0).contains(x)));
    let normal = random::drawn("RandomNormal", Some(1.0), &shape);
    let (mean, deviation) = moments(&normal);
    assert!(mean.abs() < 0.03 && (deviation - 1.0).abs() < 0.03, "{mean} ± {deviation}");
    let beyond = normal.iter().filter(|x| x.abs() > 2.0).count() as f64 / normal.len() as f64;
    assert!((beyond - 0.0455).abs() < 0.01, "{beyond} are more than two deviations away");
    assert_eq!(uniform, random::drawn("RandomUniform", Some(1.0), &shape));
    assert_ne!(uniform, random::drawn("RandomUniform", Some(2.0), &shape));
    assert_eq!(random::drawn("RandomUniform", None, &shape), random::drawn("RandomUniform", None, &shape));
}
