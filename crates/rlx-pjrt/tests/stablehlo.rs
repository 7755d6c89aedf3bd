//! Text of every op's own random cases and of random graphs, written for `tools/stablehlo_check.py`, which has it verified and
//! executed: `RLX_STABLEHLO_OUT` names the folder. Without it, the text is made and looked at alone.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use rlx_ir::oracle::{self, Bindings};
use rlx_ir::testing::{Case, random_donating_graph, random_graph, tolerance};
use rlx_ir::{ErrorKind, Graph, Op, OpKind, Result, Value};
use rlx_opt::{CompileOptions, CompilePipeline};
use rlx_pjrt::stablehlo;

/// Seeds tried for an op until it has its cases.
const SEEDS: u64 = 80;
/// How many ops have text. More text makes it larger; nothing may make it smaller.
const COVERED: usize = 40;

fn everything() -> bool {
    std::env::var("RLX_TEST_ALL").is_ok_and(|v| v == "1")
}

/// The graph as the compiler schedules it for the device.
fn scheduled(graph: &Graph) -> Result<Graph> {
    let target = std::sync::Arc::new(rlx_pjrt::target());
    Ok(CompilePipeline::new(target, CompileOptions::default()).compile(graph)?.lir.graph)
}

fn hex(value: &Value) -> String {
    let mut text = format!("{} {:?} ", value.dtype, value.dims);
    value.encode().iter().for_each(|byte| _ = write!(text, "{byte:02x}"));
    text
}

/// The file of a case: tolerance, inputs, outputs, text.
fn file(graph: &Graph, bindings: &Bindings) -> Result<String> {
    let flat = scheduled(graph)?;
    let module = stablehlo::module(&flat)?;
    let mut file = String::new();
    for node in stablehlo::arguments(&flat) {
        let value = match &node.op {
            Op::Param { name } => bindings.param(name),
            Op::Input { name } => bindings.input(name),
            _ => None,
        };
        _ = writeln!(file, "input {}", hex(value.expect("a value for each input")));
    }
    for value in oracle::evaluate(graph, bindings)? {
        _ = writeln!(file, "output {:e} {}", tolerance(value.dtype).rtol, hex(&value));
    }
    _ = writeln!(file, "faults {}", u8::from(module.reports_faults()));
    _ = write!(file, "text\n{}", module.text);
    Ok(file)
}

fn folder() -> Option<PathBuf> {
    std::env::var_os("RLX_STABLEHLO_OUT").map(PathBuf::from)
}

fn keep(name: &str, text: &str) {
    assert!(text.contains("func.func public @main("), "{text}");
    if let Some(folder) = folder() {
        std::fs::write(folder.join(format!("{name}.case")), text).expect("a case is written");
    }
}

#[test]
fn every_op_has_text() {
    let cases = if everything() { 12 } else { 3 };
    let mut done = BTreeMap::<&str, u64>::new();
    let mut without = Vec::new();
    for &kind in OpKind::ALL {
        let mut count = 0;
        let mut why = String::new();
        for seed in 0..SEEDS {
            let (graph, bindings) = Case::random(kind, seed).graph();
            match file(&graph, &bindings) {
                Ok(text) => {
                    keep(&format!("{kind}-{seed}"), &text);
                    count += 1;
                }
                Err(e) if e.kind() == ErrorKind::Unsupported => why = e.message().to_owned(),
                Err(e) => panic!("{kind} seed {seed}: {e}\n{graph}"),
            }
            if count == cases {
                break;
            }
        }
        if count > 0 {
            done.insert(kind.name(), count);
        } else {
            without.push(format!("{kind}: {why}"));
        }
    }
    println!("{} of {} ops\nwithout text:\n{}", done.len(), OpKind::ALL.len(), without.join("\n"));
    assert!(done.len() >= COVERED, "{} ops where there were {COVERED}", done.len());
}

#[test]
fn random_graphs_have_text() {
    let count = if everything() { 200 } else { 40 };
    let mut ran = 0;
    for seed in 0..count {
        let (graph, bindings) =
            if seed % 2 == 0 { random_graph(seed, 10) } else { random_donating_graph(seed, 10) };
        match file(&graph, &bindings) {
            Ok(text) => keep(&format!("graph-{seed}"), &text),
            Err(e) if e.kind() == ErrorKind::Unsupported => continue,
            Err(e) => panic!("seed {seed}: {e}\n{graph}"),
        }
        ran += 1;
    }
    assert!(ran >= count / 2, "{ran} of {count}");
}
