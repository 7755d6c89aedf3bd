//! Time and memory of importing and compiling are proportional to the size of the model, for every family of models.

mod common;

use common::{Reached, allocated, attempt};
use prost::Message;
use rlx_onnx::testing::FAMILIES;

/// How many nodes the models have, and by how much the larger ones have more.
const NODES: usize = 2_000;
const TIMES: usize = 4;

#[test]
fn work_is_in_proportion_to_the_model() {
    common::watch();
    let mut faults = Vec::new();
    for (name, make) in FAMILIES {
        let mut work = |count: usize| {
            let bytes = make(count).encode_to_vec();
            let (reached, asked) = allocated(|| attempt(name, &bytes));
            match reached {
                Ok(Reached::Compiled | Reached::Ran) => {}
                other => faults.push(format!("{name} of {count}: {other:?}")),
            }
            asked
        };
        // Larger tables are all that may come on top; memory of many values is planned in fewer tries.
        let (small, large) = (work(NODES), work(NODES * TIMES));
        println!(
            "{name}: {} bytes of work for each node, {} in the larger model",
            small / NODES,
            large / NODES / TIMES
        );
        if large > small * TIMES * 5 / 4 {
            faults.push(format!("{name}: {TIMES} times as large, {} times the work", large / small));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
