//! How long importing and compiling for the CPU take, and how much memory:
//! `cargo run --release -p rlx-onnx --example import_time [NODES [FAMILY [passes]] | FILE.onnx]`.
//!
//! Without a file each family of large models is measured, in a separate process.

use std::time::{Duration, Instant};

use prost::Message;
use rlx_onnx::testing::FAMILIES;
use rlx_onnx::{ImportOptions, OnnxFile, import};
use rlx_runtime::{Device, Session};

/// The most memory the process has had, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<usize>().ok()).unwrap_or(0) << 10
}

/// With `passes`, says how long each pass of the compiler took.
fn measure(name: &str, bytes: Vec<u8>, passes: bool) {
    let size = bytes.len();
    let before = peak();
    let start = Instant::now();
    let done = |what: &str, import: Duration, compile: Duration| {
        let used = peak().saturating_sub(before);
        let beyond = used as f64 / 1048576.0 - 10.0 * size as f64 / 1048576.0;
        println!(
            "{name:<26} {:>7} kB  import {:>7.3} s  compile {:>7.3} s  {:>5} MB ({beyond:>5.0} beyond 10x)  {what}",
            size >> 10,
            import.as_secs_f64(),
            compile.as_secs_f64(),
            used >> 20,
        );
    };
    let imported = OnnxFile::from_bytes(bytes).and_then(|file| import(&file, &ImportOptions::default()));
    let took = start.elapsed();
    let imported = match imported {
        Ok(imported) => imported,
        Err(e) => return done(&e.to_string().chars().take(150).collect::<String>(), took, Duration::ZERO),
    };
    let nodes = imported.graph.len();
    let start = Instant::now();
    let compiled = Session::new(Device::Cpu).try_compile(imported.graph);
    let what = match &compiled {
        Ok(_) => format!("{nodes} nodes"),
        Err(e) => e.to_string().chars().take(150).collect(),
    };
    done(&what, took, start.elapsed());
    if let (true, Ok(compiled)) = (passes, &compiled) {
        for pass in compiled.passes() {
            println!("{:>36} {:>7.1} ms  {} nodes", pass.name, pass.time.as_secs_f64() * 1e3, pass.nodes.1);
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let count = args.first().map_or(Ok(10_000), |n| n.parse::<usize>());
    match (count, args.get(1)) {
        (Err(_), _) => match std::fs::read(&args[0]) {
            Ok(bytes) => measure(&args[0], bytes, true),
            Err(e) => eprintln!("{}: {e}", args[0]),
        },
        (Ok(count), Some(family)) => {
            for (name, make) in FAMILIES.iter().filter(|(name, _)| name == family) {
                measure(name, make(count).encode_to_vec(), args.len() > 2);
            }
        }
        (Ok(count), None) => {
            for (name, _) in FAMILIES {
                let program = std::env::current_exe().expect("this program has a path");
                let status = std::process::Command::new(program).args([&count.to_string(), *name]).status();
                if !status.is_ok_and(|s| s.success()) {
                    eprintln!("{name} failed");
                }
            }
        }
    }
}
