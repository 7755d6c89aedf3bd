//! `cargo xtask proto`: makes the checked-in Rust types of the ONNX format from its schema.
//!
//! Needs `protoc` (Debian: `protobuf-compiler`; or point `PROTOC` at one). The schema comes from the same pinned
//! package as the conformance cases, so both speak of one version of the format.

use std::fs;

const HEADER: &str = "\
// Made by `cargo xtask proto` from onnx-ml.proto of the Python package onnx 1.20.0; do not edit.
";

/// Sub-messages that few attributes have: boxed, or every attribute of every node would be over 1 kB.
const BOXED: &[&str] = &["t", "g", "sparse_tensor", "tp"];

pub fn generate() -> Result<(), String> {
    let include = crate::data::fetch(&rlx_testdata::ONNX_CASES)?.join("onnx");
    let out = crate::root().join("target/xtask/proto");
    fs::create_dir_all(&out).map_err(|e| e.to_string())?;
    let mut config = prost_build::Config::new();
    // `Bytes` everywhere: decoding from a mapped file copies no tensor.
    config.bytes(["."]).disable_comments(["."]).out_dir(&out);
    for field in BOXED {
        config.boxed(format!(".onnx.AttributeProto.{field}"));
    }
    config.compile_protos(&[include.join("onnx-ml.proto")], &[include]).map_err(|e| e.to_string())?;
    let made = fs::read_to_string(out.join("onnx.rs")).map_err(|e| e.to_string())?;
    let target = crate::root().join("crates/rlx-onnx/src/proto/generated.rs");
    fs::create_dir_all(target.parent().expect("it is in a folder")).map_err(|e| e.to_string())?;
    fs::write(&target, format!("{HEADER}{made}")).map_err(|e| e.to_string())?;
    let formatted = std::process::Command::new("rustfmt").args(["--edition", "2024"]).arg(&target).status();
    match formatted {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("rustfmt: {other:?}")),
    }
}
