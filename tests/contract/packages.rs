//! Core ML, whose packages the evaluator runs.

#[path = "../../crates/rlx-coreml/tests/coreml/common.rs"]
#[allow(dead_code, reason = "a part of what the packages' own tests share")]
mod common;

use std::sync::{Arc, Once};

use rlx_coreml::CoreMlBackend;
use rlx_runtime::{Device, register_backend};

/// Registers it in place of the system's.
pub fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        register_backend(Device::Ane, || {
            Box::new(CoreMlBackend::new().with_runtime(Arc::new(common::Evaluator)))
        });
    });
}
