//! `cargo xtask proto`: makes the checked-in Rust types of the ONNX format and of Core ML's packages from their schemas.
//!
//! ONNX needs `protoc` (Debian: `protobuf-compiler`; or point `PROTOC` at one). Its schema comes from the same pinned
//! package as the conformance cases, so both speak of one version of the format. Core ML's comes from the descriptors in the
//! pinned package that checks our packages (`tools/coreml/descriptors.py`), and needs Python.

use std::fs;
use std::path::Path;
use std::process::Command;

const HEADER: &str = "\
// Made by `cargo xtask proto` from onnx-ml.proto of the Python package onnx 1.20.0; do not edit.
";

const COREML_HEADER: &str = "\
// Made by `cargo xtask proto` from the descriptors of the Python package coremltools 9.0; do not edit.
";

/// The files that are made of Core ML's schema, and what we call them.
const COREML_FILES: [(&str, &str); 2] =
    [("core_ml.specification.rs", "model.rs"), ("core_ml.specification.mil_spec.rs", "mil_spec.rs")];

/// Sub-messages that few attributes have: boxed, or every attribute of every node would be over 1 kB.
const BOXED: &[&str] = &["t", "g", "sparse_tensor", "tp"];

/// Makes both.
pub fn generate() -> Result<(), String> {
    let out = crate::root().join("target/xtask/proto");
    fs::create_dir_all(&out).map_err(|e| e.to_string())?;
    onnx(&out)?;
    coreml(&out)
}

fn onnx(out: &Path) -> Result<(), String> {
    let include = crate::data::fetch(&rlx_testdata::ONNX_CASES)?.join("onnx");
    let mut config = prost_build::Config::new();
    // `Bytes` everywhere: decoding from a mapped file copies no tensor.
    config.bytes(["."]).disable_comments(["."]).out_dir(out);
    for field in BOXED {
        config.boxed(format!(".onnx.AttributeProto.{field}"));
    }
    config.compile_protos(&[include.join("onnx-ml.proto")], &[include]).map_err(|e| e.to_string())?;
    keep(&out.join("onnx.rs"), &crate::root().join("crates/rlx-onnx/src/proto/generated.rs"), HEADER)
}

fn coreml(out: &Path) -> Result<(), String> {
    let descriptors = out.join("coreml.fds");
    let script = crate::root().join("tools/coreml/descriptors.py");
    let python = crate::python::COREML.interpreter()?;
    crate::python::finish(
        Command::new(python).arg(script).arg(&descriptors),
        "reading the descriptors of coremltools",
    )?;
    let mut config = prost_build::Config::new();
    // Maps in one order, so that the same graph makes the same bytes.
    config.btree_map(["."]).out_dir(out).skip_protoc_run().file_descriptor_set_path(&descriptors);
    let none: [&str; 0] = [];
    config.compile_protos(&none, &none).map_err(|e| e.to_string())?;
    let folder = crate::root().join("crates/rlx-coreml/src/proto");
    COREML_FILES.iter().try_for_each(|(made, ours)| keep(&out.join(made), &folder.join(ours), COREML_HEADER))
}

/// Writes what was made to where it is checked in.
fn keep(made: &Path, target: &Path, header: &str) -> Result<(), String> {
    let made = fs::read_to_string(made).map_err(|e| format!("{}: {e}", made.display()))?;
    fs::create_dir_all(target.parent().expect("it is in a folder")).map_err(|e| e.to_string())?;
    fs::write(target, format!("{header}{made}")).map_err(|e| e.to_string())?;
    let formatted = Command::new("rustfmt").args(["--edition", "2024"]).arg(target).status();
    match formatted {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("rustfmt: {other:?}")),
    }
}
