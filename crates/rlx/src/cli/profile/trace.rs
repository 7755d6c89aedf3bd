//! The last run as a trace that Chrome (`chrome://tracing`) and Perfetto (<https://ui.perfetto.dev>) show.
//!
//! Steps run one after the other, each on all threads of the pool. The work of single threads is not recorded, so there is one
//! track.

use serde_json::{Value as Json, json};

use super::Profile;

/// The trace.
pub fn trace(profile: &Profile) -> Json {
    let micros = |d: std::time::Duration| d.as_secs_f64() * 1e6;
    let name = |what: &str, name: &str| json!({ "name": what, "ph": "M", "pid": 1, "tid": 1, "args": { "name": name } });
    let threads =
        profile.threads.map_or_else(|| "steps".to_owned(), |n| format!("steps, each on up to {n} threads"));
    let mut events = vec![name("process_name", &profile.model), name("thread_name", &threads)];
    events.extend(profile.rows.iter().map(|row| {
        let (began, took) = row.last;
        json!({
            "name": row.title, "cat": row.family, "ph": "X", "pid": 1, "tid": 1,
            "ts": micros(began), "dur": micros(took),
            "args": {
                "node": row.node, "from": row.origin(), "flops": row.flops, "bytes": row.bytes,
                "bound by": row.bound.name(), "mean of all runs (µs)": micros(row.mean),
            },
        })
    }));
    json!({ "traceEvents": events, "displayTimeUnit": "ns", "otherData": { "machine": profile.machine.subject } })
}
