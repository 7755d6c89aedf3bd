//! Every op of `com.microsoft` and `ai.onnx.ml` compared with ONNX Runtime, the reference for these domains.
//!
//! `tests/domain_ops/` has a single-node model and ONNX Runtime's outputs for each (made by `models/domain_ops.py` and
//! `models/microsoft_ops.py`). The oracle and the CPU run it. Floats must be close; an integer that was rounded may be one step apart, as `quantized.rs` explains.

mod reference;

use reference::{Tolerance, check_all, compare, folder, inputs, on_cpu, on_oracle, read};
use rlx_onnx::{ImportOptions, import};
use std::collections::BTreeSet;

#[test]
fn ops_give_what_onnx_runtime_gives() {
    let mut seen = BTreeSet::new();
    check_all(&folder("domain_ops"), |name| check(name, &mut seen));
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
    let text = |e: rlx_ir::Error| e.to_string();
    let (file, arrays) = read(&folder("domain_ops"), name).map_err(text)?;
    seen.extend(file.graph().node.iter().map(|n| n.op_type().to_owned()));
    let imported = import(&file, &ImportOptions::default()).map_err(text)?;
    let inputs = inputs(&arrays);
    compare(&imported, &on_oracle(&imported, &inputs).map_err(text)?, &arrays, &OF_ORACLE)?;
    let found = on_cpu(&imported, &inputs).map_err(|e| format!("on the CPU: {e}"))?;
    compare(&imported, &found, &arrays, &OF_CPU).map_err(|why| format!("on the CPU: {why}"))
}

/// How far a float may be from ONNX Runtime's. The CPU's own are f32 as well.
const OF_ORACLE: Tolerance = Tolerance { relative: 1e-5, absolute: 0.0, of_largest: 2e-6, steps: 1.0 };
const OF_CPU: Tolerance = Tolerance { relative: 5e-5, absolute: 0.0, of_largest: 5e-6, steps: 1.0 };
