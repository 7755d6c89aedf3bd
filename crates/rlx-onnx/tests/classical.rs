//! Scikit-learn's models as their converter writes them by default, and single ops on strings and maps, compared with ONNX
//! Runtime on the oracle and on the CPU.
//!
//! `tests/classical/` has the models with inputs and outputs (made by `models/classical_models.py`, which says how strings
//! and maps are stored).

mod reference;

use reference::{Arrays, Tolerance, check_all, close, folder, names, on_cpu, on_oracle, read};
use rlx_ir::{ConstData, Value};
use rlx_onnx::{ImportOptions, Imported, MapKeys, OnnxFile, StringTensor, import, needed_input};

const TOLERANCE: Tolerance = Tolerance { relative: 1e-5, absolute: 2e-6, of_largest: 0.0, steps: 0.0 };

#[test]
fn models_give_what_onnx_runtime_gives() {
    let folder = folder("classical");
    assert!(names(&folder).len() >= 32, "{} models", names(&folder).len());
    check_all(&folder, check);
}

/// Strings stored as text and dimensions.
fn strings(arrays: &Arrays, prefix: &str, name: &str) -> Option<StringTensor> {
    let (text, dims) = (arrays.get(&format!("{prefix}s_{name}"))?, arrays.get(&format!("{prefix}d_{name}"))?);
    let text = std::str::from_utf8(text.bytes()).expect("the text is UTF-8");
    let dims = dims.value().to_f64().into_iter().map(|d| d as usize).collect();
    Some(StringTensor { dims, elements: text.split('\n').map(str::to_owned).collect() })
}

fn check(name: &str) -> Result<(), String> {
    let text = |e: rlx_ir::Error| e.to_string();
    let (file, arrays) = read(&folder("classical"), name).map_err(text)?;
    let mut options = ImportOptions::default();
    let imported = loop {
        match import(&file, &options) {
            Ok(imported) => break imported,
            Err(e) => {
                let input = needed_input(&e).ok_or(e.to_string())?.to_owned();
                let value = strings(&arrays, "in", &input).ok_or(e.to_string())?;
                if options.input_strings.insert(input, value).is_some() {
                    return Err(e.to_string());
                }
            }
        }
    };
    let mut inputs = Arrays::new();
    for input in &file.graph().input {
        let value = match (arrays.get(&format!("in_{}", input.name())), strings(&arrays, "in", input.name()))
        {
            (Some(value), _) => value.clone(),
            (None, Some(value)) => imported.structure.strings[input.name()].encode(&value).map_err(text)?,
            (None, None) => return Err(format!("no value for {}", input.name())),
        };
        inputs.insert(input.name().to_owned(), value);
    }
    for (device, found) in [("oracle", on_oracle(&imported, &inputs)), ("cpu", on_cpu(&imported, &inputs))] {
        let found = found.map_err(|e| format!("{device}: {e}"))?;
        compare(&imported, &found, &arrays).map_err(|why| format!("{device}: {why}"))?;
    }
    Ok(())
}

fn compare(imported: &Imported, found: &[Value], arrays: &Arrays) -> Result<(), String> {
    for (name, value) in imported.outputs.iter().zip(found) {
        if let Some(want) = strings(arrays, "out", name) {
            let table = imported.structure.strings.get(name).ok_or(format!("{name} is no strings"))?;
            let found = table.decode(&value.to_const()).map_err(|e| e.to_string())?;
            if found != want {
                return Err(format!("{name}: {found:?}, not {want:?}"));
            }
            continue;
        }
        let want = arrays.get(&format!("out_{name}")).ok_or(format!("no value of {name}"))?;
        close(value, want, &TOLERANCE).map_err(|why| format!("{name}: {why}"))?;
        let keys = match imported.structure.maps.get(name) {
            Some(MapKeys::Ints(keys)) => Some(keys.iter().map(i64::to_string).collect::<Vec<_>>()),
            Some(MapKeys::Strings(keys)) => Some(keys.clone()),
            None => None,
        };
        let ints = arrays
            .get(&format!("keys_{name}"))
            .map(|k| k.value().to_f64().iter().map(f64::to_string).collect());
        let texts = arrays.get(&format!("keyss_{name}")).map(|k| {
            std::str::from_utf8(k.bytes())
                .expect("the keys are UTF-8")
                .split('\n')
                .map(str::to_owned)
                .collect()
        });
        if keys != ints.or(texts) {
            return Err(format!("{name} has the keys {keys:?}"));
        }
    }
    Ok(())
}

/// Inputs that are maps are rows of values for the op's keys.
#[test]
fn maps_as_inputs_are_rows() {
    use prost::Message;
    use rlx_onnx::proto::attribute_proto::AttributeType;
    use rlx_onnx::proto::type_proto::{Map, Tensor, Value as TypeValue};
    use rlx_onnx::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto};
    use rlx_onnx::proto::{TypeProto, ValueInfoProto};
    let named = |name: &str| Some(name.to_owned());
    let tensor = |elem: i32| TypeValue::TensorType(Tensor { elem_type: Some(elem), shape: None });
    let attribute = |name: &str| AttributeProto { name: named(name), ..Default::default() };
    let vocabulary = AttributeProto {
        r#type: Some(AttributeType::Strings as i32),
        strings: vec!["a".into(), "b".into()],
        ..attribute("string_vocabulary")
    };
    let sparse = AttributeProto {
        r#type: Some(AttributeType::String as i32),
        s: Some("SPARSE".into()),
        ..attribute("map_form")
    };
    let columns =
        AttributeProto { r#type: Some(AttributeType::Int as i32), i: Some(2), ..attribute("max_map") };
    let cases = [
        ("DictVectorizer", vec![vocabulary], MapKeys::Strings(vec!["a".into(), "b".into()])),
        ("CastMap", vec![sparse, columns], MapKeys::Ints(vec![0, 1])),
    ];
    for (op, attributes, keys) in cases {
        let key_type = if matches!(keys, MapKeys::Ints(_)) { 7 } else { 8 };
        let float = TypeProto { value: Some(tensor(1)), ..Default::default() };
        let map = Map { key_type: Some(key_type), value_type: Some(Box::new(float)) };
        let node = NodeProto {
            op_type: named(op),
            domain: named("ai.onnx.ml"),
            input: vec!["x".into()],
            output: vec!["y".into()],
            attribute: attributes,
            ..Default::default()
        };
        let x = ValueInfoProto {
            name: named("x"),
            r#type: Some(TypeProto { value: Some(TypeValue::MapType(Box::new(map))), ..Default::default() }),
            ..Default::default()
        };
        let y = ValueInfoProto { name: named("y"), ..Default::default() };
        let graph = GraphProto { node: vec![node], input: vec![x], output: vec![y], ..Default::default() };
        let opset = |domain: &str| OperatorSetIdProto { domain: named(domain), version: Some(17) };
        let model = ModelProto {
            graph: Some(graph),
            opset_import: vec![opset(""), opset("ai.onnx.ml")],
            ..Default::default()
        };
        let file = OnnxFile::from_bytes(model.encode_to_vec()).expect("it decodes");
        let imported = import(&file, &ImportOptions::default()).expect("it is imported");
        assert_eq!(imported.structure.maps["x"], keys, "{op}");
        let row = ConstData::from_f32(&[1, 2], &[2.5, 0.0]).expect("two numbers");
        let found = on_cpu(&imported, &Arrays::from([("x".to_owned(), row.clone())])).expect("it runs");
        assert_eq!(found, [row.value()], "{op}");
    }
}
