//! Every op of `com.microsoft` and `ai.onnx.ml` compared with ONNX Runtime, the reference for these domains.
//!
//! `tests/domain_ops/` has a single-node model and ONNX Runtime's outputs for each (made by `models/domain_ops.py` and
//! `models/microsoft_ops.py`). The oracle and the CPU run it. Floats must be close; an integer that was rounded may be one step apart, as `quantized.rs` explains.

use rlx_ir::oracle::{Bindings, evaluate};
use rlx_ir::{ConstData, Value};
use rlx_onnx::{ImportOptions, Imported, OnnxFile, import};
use rlx_runtime::{CompileOptions, Device, Session, TensorView};
use rlx_weights::npz;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/domain_ops")
}

#[test]
fn ops_give_what_onnx_runtime_gives() {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .expect("the folder is readable")
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "onnx"))
        .map(|path| path.file_stem().expect("a file has a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    let mut seen = BTreeSet::new();
    let faults: Vec<String> = names
        .iter()
        .filter_map(|name| check(name, &mut seen).err().map(|why| format!("{name}: {why}")))
        .collect();
    println!("@counts passed={} failed={}", names.len() - faults.len(), faults.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // The node cases of the onnx package cover the first three, `classical.rs` the others.
    let elsewhere = [
        ["TreeEnsemble", "QuantizeLinear", "DequantizeLinear"],
        ["CastMap", "CategoryMapper", "DictVectorizer"],
        ["SVMClassifier", "ZipMap", "TfIdfVectorizer"],
    ]
    .concat();
    let compared = ["com.microsoft", "ai.onnx.ml"];
    let untested: Vec<&str> = rlx_onnx::built()
        .filter(|(domain, op)| compared.contains(domain) && !seen.contains(*op) && !elsewhere.contains(op))
        .map(|(_, op)| op)
        .collect();
    assert!(untested.is_empty(), "no case for {untested:?}");
}

/// The case on the oracle and on the CPU.
fn check(name: &str, seen: &mut BTreeSet<String>) -> Result<(), String> {
    let file = OnnxFile::open(folder().join(format!("{name}.onnx"))).map_err(|e| e.to_string())?;
    seen.extend(file.graph().node.iter().map(|n| n.op_type().to_owned()));
    let imported = import(&file, &ImportOptions::default()).map_err(|e| e.to_string())?;
    let arrays = npz::read(folder().join(format!("{name}.npz"))).map_err(|e| e.to_string())?;
    let inputs: Vec<(&str, &ConstData)> =
        arrays.iter().filter_map(|(name, value)| Some((name.strip_prefix("in_")?, value))).collect();
    let found = on_oracle(&imported, &inputs)?;
    for (name, want) in &arrays {
        let Some(output) = name.strip_prefix("out_") else { continue };
        let at = imported.outputs.iter().position(|o| o == output).ok_or(format!("no output {output}"))?;
        close(&found[at], want, OF_ORACLE).map_err(|why| format!("{output}: {why}"))?;
    }
    let on_cpu = on_cpu(&imported, &inputs).map_err(|e| format!("on the CPU: {e}"))?;
    for (name, want) in &arrays {
        let Some(output) = name.strip_prefix("out_") else { continue };
        let at = imported.outputs.iter().position(|o| o == output).ok_or(format!("no output {output}"))?;
        let own = on_cpu[at].value();
        close(&own, want, OF_CPU).map_err(|why| format!("{output} on the CPU: {why}"))?;
    }
    Ok(())
}

fn on_oracle(imported: &Imported, inputs: &[(&str, &ConstData)]) -> Result<Vec<Value>, String> {
    let mut bindings = Bindings::default();
    for (name, value) in inputs {
        bindings.set_input(*name, value.value());
    }
    for (name, weight) in imported.weights.iter() {
        bindings.set_param(name, weight.to_const().map_err(|e| e.to_string())?.value());
    }
    evaluate(&imported.graph, &bindings).map_err(|e| e.to_string())
}

fn on_cpu(imported: &Imported, inputs: &[(&str, &ConstData)]) -> rlx_ir::Result<Vec<ConstData>> {
    let session = Session::try_new(Device::Cpu)?.try_with_threads(1)?;
    let mut compiled = session.try_compile_with(imported.graph.clone(), &CompileOptions::default())?;
    compiled.try_set_weights(&imported.weights)?;
    let views: Vec<TensorView<'_>> = inputs
        .iter()
        .map(|(name, x)| TensorView { name, dtype: x.dtype(), dims: x.dims(), bytes: x.bytes() })
        .collect();
    compiled.try_run_tensors(&views)
}

/// How far a float may be from ONNX Runtime's: relative to it, and to the largest element. The CPU's own are f32 as well.
const OF_ORACLE: (f64, f64) = (1e-5, 2e-6);
const OF_CPU: (f64, f64) = (5e-5, 5e-6);

fn close(found: &Value, want: &ConstData, (relative, of_largest): (f64, f64)) -> Result<(), String> {
    if found.shape() != want.shape() {
        return Err(format!("{}, not {}", found.shape(), want.shape()));
    }
    let (found, wanted) = (found.to_f64(), want.value().to_f64());
    let largest = wanted.iter().filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(v.abs()));
    let bytes = want.dtype().is_int() && want.dtype().bits() == 8;
    let near = |(a, b): (&f64, &f64)| match bytes {
        true => (a - b).abs() <= 1.0,
        false if b.is_finite() => (a - b).abs() <= relative * b.abs() + of_largest * largest,
        false => a == b || (a.is_nan() && b.is_nan()),
    };
    match found.iter().zip(&wanted).position(|pair| !near(pair)) {
        Some(i) => Err(format!("{} at {i}, not {}", found[i], wanted[i])),
        None => Ok(()),
    }
}
