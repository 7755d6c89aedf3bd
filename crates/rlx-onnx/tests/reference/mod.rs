//! Small models beside the outputs that another program gives: reading the cases, running them on the oracle and on the
//! CPU, and comparing.
//!
//! A case is `NAME.onnx` and `NAME.npz` in one folder; the arrays `in_X` are inputs, `out_Y` outputs.
#![allow(dead_code, reason = "each test file uses its own part")]

use rlx_ir::oracle::{Bindings, evaluate};
use rlx_ir::{ConstData, Result, Value};
use rlx_onnx::{Imported, OnnxFile};
use rlx_runtime::{Device, Session, TensorView};
use rlx_weights::npz;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Tensors by name.
pub type Arrays = BTreeMap<String, ConstData>;

/// The folder of this name beside the test files.
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// The cases of a folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .expect("the folder is readable")
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "onnx"))
        .map(|path| path.file_stem().expect("a file has a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Checks every case of a folder, prints how many pass, and fails with the reasons of those that do not.
pub fn check_all(folder: &Path, mut check: impl FnMut(&str) -> std::result::Result<(), String>) {
    let names = names(folder);
    assert!(!names.is_empty(), "there are no cases in {}", folder.display());
    let faults: Vec<String> =
        names.iter().filter_map(|name| check(name).err().map(|why| format!("{name}: {why}"))).collect();
    println!("@counts passed={} failed={}", names.len() - faults.len(), faults.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A case's model and arrays.
pub fn read(folder: &Path, name: &str) -> Result<(OnnxFile, Arrays)> {
    let file = OnnxFile::open(folder.join(format!("{name}.onnx")))?;
    Ok((file, npz::read(folder.join(format!("{name}.npz")))?.into_iter().collect()))
}

/// The arrays whose names begin with `in_`, without that.
pub fn inputs(arrays: &Arrays) -> Arrays {
    arrays
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix("in_")?.to_owned(), value.clone())))
        .collect()
}

/// The outputs on the oracle; the graph is verified first.
pub fn on_oracle(imported: &Imported, inputs: &Arrays) -> Result<Vec<Value>> {
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
}

/// The outputs on the CPU, of a second run: the first must leave nothing behind that it sees.
pub fn on_cpu(imported: &Imported, inputs: &Arrays) -> Result<Vec<Value>> {
    on_device(Device::Cpu, imported, inputs)
}

/// Runs twice on a device.
pub fn on_device(device: Device, imported: &Imported, inputs: &Arrays) -> Result<Vec<Value>> {
    let mut compiled = Session::try_new(device)?.try_compile(imported.graph.clone())?;
    compiled.try_set_weights(&imported.weights)?;
    let views: Vec<TensorView<'_>> = inputs
        .iter()
        .map(|(name, x)| TensorView { name, dtype: x.dtype(), dims: x.dims(), bytes: x.bytes() })
        .collect();
    compiled.try_run_tensors(&views)?;
    Ok(compiled.try_run_tensors(&views)?.iter().map(ConstData::value).collect())
}

/// How far an output may be from what is expected. Integers are equal, but for `steps`.
#[derive(Default)]
pub struct Tolerance {
    /// Of floats: relative to the element.
    pub relative: f64,
    /// Of floats: in all.
    pub absolute: f64,
    /// Of floats: relative to the largest finite element.
    pub of_largest: f64,
    /// Of integers of 8 bits, which are quantised values.
    pub steps: f64,
}

/// Compares the outputs that the case has: there must be one at least.
pub fn compare(
    imported: &Imported,
    found: &[Value],
    arrays: &Arrays,
    tolerance: &Tolerance,
) -> std::result::Result<(), String> {
    let mut compared = 0;
    for (name, want) in arrays {
        let Some(output) = name.strip_prefix("out_") else { continue };
        let at = imported.outputs.iter().position(|o| o == output).ok_or(format!("no output {output}"))?;
        close(&found[at], want, tolerance).map_err(|why| format!("{output}: {why}"))?;
        compared += 1;
    }
    if compared == 0 { Err("nothing to compare with".to_owned()) } else { Ok(()) }
}

/// Whether shape and values agree; infinities and NaN must be where they are expected.
pub fn close(found: &Value, want: &ConstData, tolerance: &Tolerance) -> std::result::Result<(), String> {
    if found.shape() != want.shape() {
        return Err(format!("{}, not {}", found.shape(), want.shape()));
    }
    let (found, wanted, dtype) = (found.to_f64(), want.value().to_f64(), want.dtype());
    let largest = wanted.iter().filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(v.abs()));
    let allowed = |b: f64| match dtype.is_float() {
        true => tolerance.relative * b.abs() + tolerance.absolute + tolerance.of_largest * largest,
        false if dtype.is_int() && dtype.bits() == 8 => tolerance.steps,
        false => 0.0,
    };
    let near = |a: f64, b: f64| match b.is_finite() {
        true => (a - b).abs() <= allowed(b),
        false => a == b || (a.is_nan() && b.is_nan()),
    };
    match found.iter().zip(&wanted).position(|(&a, &b)| !near(a, b)) {
        Some(i) => Err(format!("{} at {i}, not {}", found[i], wanted[i])),
        None => Ok(()),
    }
}
