//! Time and memory of importing and compiling are proportional to the size of the model, for every family of models.

mod common;

use common::{Reached, allocated, attempt, measured, most_bytes};
use std::sync::{Mutex, PoisonError};

use prost::Message;
use rlx_onnx::testing::FAMILIES;
use rlx_onnx::{ImportOptions, OnnxFile, import};
use rlx_runtime::{Device, Session};

/// How many nodes the models have, and by how much the larger ones have more.
const NODES: usize = 2_000;
const TIMES: usize = 4;

/// The counter sees the whole process.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn work_is_in_proportion_to_the_model() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
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

/// A file of a megabyte may take 64 MB beyond ten times its size. What it takes is in proportion to it (see above), so a part of
/// a megabyte may take such a part of that.
#[test]
fn memory_of_large_models_is_bounded() {
    const FILE: usize = 200 << 10;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Memory that the process takes once.
    let import_and_compile = |bytes: Vec<u8>| {
        let imported = OnnxFile::from_bytes(bytes).and_then(|file| import(&file, &ImportOptions::default()));
        imported.ok().and_then(|imported| Session::new(Device::Cpu).try_compile(imported.graph).ok())
    };
    drop(import_and_compile(FAMILIES[0].1(8).encode_to_vec()));
    let mut faults = Vec::new();
    for (name, make) in FAMILIES {
        let count = NODES * FILE / make(NODES).encoded_len();
        let bytes = make(count).encode_to_vec();
        let (size, (_, used)) = (bytes.len(), measured(|| import_and_compile(bytes)));
        println!("{name}: {} kB for a file of {} kB", used >> 10, size >> 10);
        let most = (most_bytes(1 << 20) as f64 * size as f64 / (1 << 20) as f64) as usize;
        if used > most {
            faults.push(format!("{name}: {used} bytes for a file of {size}, at most {most}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
