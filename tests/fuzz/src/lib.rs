//! What each fuzz target does with a fuzzer's bytes.
//!
//! Every input that comes from outside has a target here: an ordinary function over bytes, which panics where a promise is
//! broken. The crate in `fuzz/` hands them to libFuzzer under AddressSanitizer (`cargo xtask test --suite fuzz-NAME`), and
//! the test beside this crate calls them for every file of the committed corpora, without a fuzzer.
//!
//! The promises: no panic, no error of kind [`ErrorKind::Internal`] or [`ErrorKind::Device`], no error without a message, a
//! result that differs from the oracle's by no more than the tests' tolerances, and where one of the two rejects its
//! input the other rejects it too. Time and memory are bounded by the fuzzer.
#![forbid(unsafe_code)]

pub mod artefact;
pub mod contradictions;
pub mod files;
pub mod inputs;
pub mod model;
mod records;
mod run;
pub mod text;

use rlx_ir::{Error, ErrorKind, Result};

/// A target: its name, as the fuzzer and the corpus' folder are called, and what it does.
pub struct Target {
    /// The name.
    pub name: &'static str,
    /// What is done with a fuzzer's bytes.
    ///
    /// # Panics
    /// Where a promise is broken.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "importer", run: model::importer },
    Target { name: "text", run: text::text },
    Target { name: "contradictions", run: contradictions::contradictions },
    Target { name: "artefact", run: artefact::artefact },
    Target { name: "npy", run: files::npy },
    Target { name: "npz", run: files::npz },
    Target { name: "safetensors", run: files::safetensors },
    Target { name: "tuning", run: files::tuning },
    Target { name: "calibration", run: files::calibration },
    Target { name: "image", run: inputs::image },
    Target { name: "json", run: inputs::json },
    Target { name: "lines", run: inputs::lines },
];

/// The value, or `None` for an error that says what is wrong with the input.
///
/// # Panics
/// For an error that blames RLX or its device, or says nothing.
pub(crate) fn accepted<T>(result: Result<T>) -> Option<T> {
    result.map_err(|e| assert_typed(&e)).ok()
}

/// Checks that an error is the input's fault and says so.
fn assert_typed(e: &Error) {
    assert!(!matches!(e.kind(), ErrorKind::Internal | ErrorKind::Device), "{e}");
    assert!(!e.message().is_empty(), "an error of kind {} without a message", e.kind().name());
}
