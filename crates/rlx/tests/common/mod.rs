//! What tests of the command share: a temporary folder, running the command in it, and builders of small ONNX models.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use prost::Message;
use rlx_onnx::proto::{NodeProto, TensorProto, ValueInfoProto};
#[allow(unused_imports, reason = "each test file uses its own part")]
pub use rlx_onnx::testing::{FLOAT, INT64, external, node, value, weight};

/// A folder of the test's own, gone when the test is done.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rlx-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The names of the files in it, in order.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("the folder is there");
        let mut names: Vec<String> =
            entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.0.join(name), bytes).expect("a temporary file");
    }

    /// The command with these arguments, in this folder and with no environment of the user's that it heeds.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rlx"));
        command.args(args).current_dir(&self.0);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RLX_")) {
            command.env_remove(name);
        }
        command.env("RLX_CACHE_DIR", self.0.join("cache"));
        command
    }

    pub fn rlx(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the command starts")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left in the temporary folder harms no one.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The bytes of a model file.
pub fn model(
    inputs: &[ValueInfoProto],
    nodes: &[NodeProto],
    weights: &[TensorProto],
    outputs: &[ValueInfoProto],
) -> Vec<u8> {
    rlx_onnx::testing::model(inputs, nodes, weights, outputs).encode_to_vec()
}
