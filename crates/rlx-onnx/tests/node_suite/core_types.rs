//! The cases whose inputs and outputs are of core types: of those that the CPU passes, a device with generated kernels passes nearly all.

use std::collections::BTreeMap;
use std::path::Path;

use rlx_onnx::proto::TypeProto;
use rlx_onnx::proto::tensor_proto::DataType;
use rlx_onnx::proto::type_proto::Value as TypeValue;

use super::{CPU, Expected, OnnxFile, Outcome, Runner, reference, run_all};

/// What models compute in. Others are stored or converted: f64, floats of 8 and 4 bits, integers of 4 and 2, and complex numbers.
const CORE: [DataType; 13] = [
    DataType::Float,
    DataType::Float16,
    DataType::Bfloat16,
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::Uint8,
    DataType::Uint16,
    DataType::Uint32,
    DataType::Uint64,
    DataType::Bool,
    DataType::String,
];

/// The part of the CPU's cases that pass, in percent.
const LEAST: usize = 97;

/// Of the cases of core types that the CPU passes here, most pass on the device as well, whose outcomes are given.
pub fn check(device: &str, folder: &Path, outcomes: &BTreeMap<String, Outcome>) {
    let core: Vec<String> = outcomes.keys().filter(|name| is_core(&folder.join(name))).cloned().collect();
    let cpu = Runner { name: "cpu", run: reference::on_cpu, expected: CPU, is_generated: false };
    let on_cpu = run_all(&cpu, folder, &core, Expected::read(cpu.name, cpu.expected).bf16);
    let passes =
        |outcomes: &BTreeMap<String, Outcome>, name: &str| outcomes.get(name) == Some(&Outcome::Pass);
    let of_cpu: Vec<&String> = core.iter().filter(|name| passes(&on_cpu, name)).collect();
    let (passed, others): (Vec<&String>, Vec<_>) = of_cpu.iter().partition(|name| passes(outcomes, name));
    println!("@core {device} {} of {}", passed.len(), of_cpu.len());
    assert!(of_cpu.len() > 1000, "only {} cases of core types pass on the CPU", of_cpu.len());
    assert!(
        passed.len() * 100 >= of_cpu.len() * LEAST,
        "on {device}, {} of {} cases of core types pass, less than {LEAST} %; these do not: {others:#?}",
        passed.len(),
        of_cpu.len()
    );
}

/// Whether all inputs and outputs of the case's model are of core types.
fn is_core(folder: &Path) -> bool {
    let Ok(file) = OnnxFile::open(folder.join("model.onnx")) else { return false };
    let graph = file.graph();
    graph.input.iter().chain(&graph.output).all(|info| info.r#type.as_ref().is_some_and(of_core))
}

fn of_core(declared: &TypeProto) -> bool {
    let number = |dtype: Option<i32>| {
        dtype.and_then(|n| DataType::try_from(n).ok()).is_some_and(|dtype| CORE.contains(&dtype))
    };
    match &declared.value {
        Some(TypeValue::TensorType(tensor)) => number(tensor.elem_type),
        Some(TypeValue::SequenceType(of)) => of.elem_type.as_ref().is_some_and(|of| of_core(of)),
        Some(TypeValue::OptionalType(of)) => of.elem_type.as_ref().is_some_and(|of| of_core(of)),
        _ => false,
    }
}

#[test]
fn types_of_elements_and_of_what_holds_them_count() {
    let tensor = |dtype: DataType| {
        let tensor = rlx_onnx::proto::type_proto::Tensor { elem_type: Some(dtype as i32), shape: None };
        TypeProto { value: Some(TypeValue::TensorType(tensor)), ..TypeProto::default() }
    };
    let sequence = |of: TypeProto| {
        let sequence = rlx_onnx::proto::type_proto::Sequence { elem_type: Some(Box::new(of)) };
        TypeProto { value: Some(TypeValue::SequenceType(Box::new(sequence))), ..TypeProto::default() }
    };
    assert!(of_core(&tensor(DataType::Float)) && of_core(&sequence(tensor(DataType::Int64))));
    assert!(!of_core(&tensor(DataType::Double)) && !of_core(&sequence(tensor(DataType::Double))));
    assert!(!of_core(&tensor(DataType::Undefined)) && !of_core(&TypeProto::default()));
}
