//! Ops of the default domain compared with ONNX Runtime, on the oracle and on the CPU: combinations of attributes that the node cases
//! of the onnx package do not have, and shapes that data decides.
//!
//! `tests/default_ops/` has small models and ONNX Runtime's outputs (made by `models/default_ops.py`).

mod reference;

use reference::{Arrays, Tolerance, compare, folder, inputs, on_cpu, on_oracle, read};
use rlx_ir::{Graph, Result, Value};
use rlx_onnx::{ImportOptions, Imported, OnnxFile, import};
use rlx_runtime::{Device, Session};

const TOLERANCE: Tolerance = Tolerance { relative: 0.0, absolute: 0.0, of_largest: 2e-5, steps: 0.0 };

#[test]
fn ops_give_what_onnx_runtime_gives_on_the_oracle() {
    check_all(on_oracle);
}

#[test]
fn ops_give_what_onnx_runtime_gives_on_the_cpu() {
    check_all(on_cpu);
}

fn check_all(run: fn(&Imported, &Arrays) -> Result<Vec<Value>>) {
    let folder = folder("default_ops");
    reference::check_all(&folder, |name| {
        let text = |e: rlx_ir::Error| e.to_string();
        let (file, arrays) = read(&folder, name).map_err(text)?;
        let imported = import(&file, &ImportOptions::default()).map_err(text)?;
        compare(&imported, &run(&imported, &inputs(&arrays)).map_err(text)?, &arrays, &TOLERANCE)
    });
}

#[test]
fn a_loop_that_appends_rows_of_another_length_is_an_error() {
    use prost::Message;
    let folder = folder("default_ops");
    let bytes = std::fs::read(folder.join("loop_pastes_rows.onnx")).expect("the file is there");
    let mut model = rlx_onnx::proto::ModelProto::decode(&*bytes).expect("it decodes");
    let (_, arrays) = read(&folder, "loop_pastes_rows").expect("the arrays are there");
    // Rows of 15 instead of 16, and of 18.
    for last in [14, 17] {
        let graph = model.graph.as_mut().expect("a graph");
        let tensor = graph.initializer.iter_mut().find(|t| t.name() == "last").expect("the last place");
        (tensor.int64_data, tensor.raw_data) = (vec![last], None);
        let file = OnnxFile::from_bytes(model.encode_to_vec()).expect("it decodes");
        let imported = import(&file, &ImportOptions::default()).expect("it is imported");
        for run in [on_oracle, on_cpu] {
            let found = run(&imported, &inputs(&arrays));
            assert!(found.is_err(), "{last}: {found:?}");
        }
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
