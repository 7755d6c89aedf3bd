//! The node cases as files that a page can read: a browser's tests run them by the npm package (`crates/rlx-web/tests/nodes.js`).
//!
//! `index.json` lists the cases; `NAME.bin` is a case's model and the bytes of its tensors. What a page has no type for (strings,
//! sequences, elements of less than a byte) is listed with the reason.

use crate::{Expected, read_value};
use rlx_ir::DType;
use rlx_onnx::{FileValue, OnnxFile};
use serde_json::{Value, json};
use std::path::Path;

/// The element types that the package has arrays for.
const TYPES: [DType; 13] = [
    DType::F32,
    DType::F64,
    DType::F16,
    DType::BF16,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::Bool,
];

/// Writes the cases of `folder` into `out`; `expected` says of each device how many pass at least, and which fail.
pub fn write(out: &Path, folder: &Path, cases: &[String], expected: &[(&str, Expected<'_>)]) {
    let listed = |name: &String, expected: &Expected<'_>| expected.reasons.contains_key(name.as_str());
    let all: Vec<Value> = cases
        .iter()
        .map(|name| {
            let mut case = case(out, &folder.join(name), name).unwrap_or_else(|why| json!({ "why": why }));
            case["name"] = json!(name);
            let fails = expected.iter().filter(|(_, expected)| listed(name, expected));
            case["listed"] = fails.map(|(device, _)| *device).collect();
            case
        })
        .collect();
    let least = expected.iter().map(|(device, e)| ((*device).to_owned(), json!(e.min_passed)));
    let index = json!({ "atLeast": Value::Object(least.collect()), "cases": all });
    std::fs::write(out.join("index.json"), index.to_string()).expect("the folder for cases is writable");
}

/// One case; an error is why a page cannot be given it.
fn case(out: &Path, folder: &Path, name: &str) -> Result<Value, String> {
    let path = folder.join("model.onnx");
    let mut bytes = std::fs::read(&path).map_err(|e| e.to_string())?;
    let file = OnnxFile::open(&path).map_err(|e| e.to_string())?;
    let model = bytes.len();
    let sets = (0..).map(|i| folder.join(format!("test_data_set_{i}"))).take_while(|set| set.is_dir());
    let sets = sets.map(|set| {
        let mut side = |side: &str, declared: &[rlx_onnx::proto::ValueInfoProto]| {
            let mut list = Vec::new();
            for (i, info) in declared.iter().enumerate() {
                let of = info.r#type.clone().unwrap_or_default();
                let value = read_value(&set.join(format!("{side}_{i}.pb")), &of)?;
                list.push(tensor(info.name(), value, &mut bytes)?);
            }
            Ok::<_, String>(list)
        };
        let graph = file.graph();
        Ok(json!({ "inputs": side("input", &graph.input)?, "outputs": side("output", &graph.output)? }))
    });
    let sets = sets.collect::<Result<Vec<_>, String>>()?;
    std::fs::write(out.join(format!("{name}.bin")), &bytes).map_err(|e| e.to_string())?;
    Ok(json!({ "file": format!("{name}.bin"), "model": model, "sets": sets }))
}

fn tensor(name: &str, value: FileValue, bytes: &mut Vec<u8>) -> Result<Value, String> {
    let FileValue::Tensor(tensor) = value else {
        return Err("strings, a sequence or an optional".to_owned());
    };
    let tensor = tensor.to_const().map_err(|e| e.to_string())?;
    let (dtype, offset) = (tensor.dtype(), bytes.len());
    if !TYPES.contains(&dtype) {
        return Err(format!("elements of type {dtype}"));
    }
    bytes.extend_from_slice(tensor.bytes());
    let size = tensor.bytes().len();
    Ok(
        json!({ "name": name, "dtype": dtype.to_string(), "dims": tensor.dims(), "offset": offset, "bytes": size }),
    )
}
