//! The machine's C++ compiler, and programs that it makes of kernels' texts.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use rlx_kernel::interp::Recorded;
use rlx_kernel::ir::Stmt;

/// The compiler's command; `None` after saying that the test is skipped.
pub fn found() -> Option<String> {
    let command = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let there = Command::new(&command).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if there.is_ok_and(|status| status.success()) {
        return Some(command);
    }
    let reason = format!("there is no C++ compiler ({command}); CXX names one");
    assert!(!rlx_testdata::in_ci(), "{reason}");
    println!("@skip 1 {reason}");
    None
}

/// What a kernel's text made of a record's memory.
pub struct Made {
    /// Whether every barrier was reached by the whole workgroup.
    pub together: bool,
    pub fault: [u32; 4],
    pub memory: Vec<Vec<u8>>,
}

/// What texts include, by the names that they use.
const HEADERS: [(&str, &str); 4] = [
    ("run.h", include_str!("run.h")),
    ("simt.h", include_str!("simt.h")),
    ("metal_stdlib", include_str!("metal_stdlib.h")),
    ("metal_simdgroup_matrix", include_str!("metal_simdgroup_matrix.h")),
];

/// Kernels, compiled.
pub struct Program {
    folder: PathBuf,
}

impl Program {
    /// Compiles texts whose kernels are `k0`, `k1`, …; `define` says in which language.
    pub fn new(compiler: &str, texts: &[String], define: &str) -> Program {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("rlx-kernel-text-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let program = Program { folder };
        let mut source = String::from(
            "#ifdef RLX_METAL\n#include <metal_simdgroup_matrix>\n#else\n#include \"simt.h\"\n#endif\n",
        );
        for (i, text) in texts.iter().enumerate() {
            // Each text declares what it needs.
            source.push_str(&format!("namespace n{i} {{\n{text}}}\n"));
        }
        source.push_str("static const simt::Entry ENTRIES[] = {\n");
        for i in 0..texts.len() {
            source.push_str(&format!("  {{ [](void** a) {{ simt::call(n{i}::k{i}, a); }} }},\n"));
        }
        source.push_str("};\nint main() { return simt::serve(ENTRIES); }\n");
        std::fs::write(program.file("kernels.cpp"), source).unwrap();
        for (name, header) in HEADERS {
            std::fs::write(program.file(name), header).unwrap();
        }
        // No contraction: a kernel's products and sums are rounded one by one.
        let flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-w", define, "-o"];
        let mut command = Command::new(compiler);
        command
            .arg("-I")
            .arg(&program.folder)
            .args(flags)
            .arg(program.file("kernels"))
            .arg(program.file("kernels.cpp"));
        let out = command.output().unwrap_or_else(|e| panic!("{compiler}: {e}"));
        assert!(out.status.success(), "{compiler}: {}", String::from_utf8_lossy(&out.stderr));
        program
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Runs each kernel on what the record of the same place was given.
    pub fn run(&self, records: &[Recorded]) -> Vec<Made> {
        let mut input = Vec::new();
        word(&mut input, records.len());
        records.iter().enumerate().for_each(|(i, record)| encode(&mut input, i, record));
        let mut child = Command::new(self.file("kernels"));
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let feed = std::thread::spawn(move || stdin.write_all(&input));
        let out = child.wait_with_output().unwrap();
        // A program that stopped early says so by its status.
        let _ = feed.join().unwrap();
        assert!(out.status.success(), "the kernels' program ended with {}", out.status);
        let mut bytes = &out.stdout[..];
        let made = records.iter().map(|record| decode(&mut bytes, record)).collect();
        assert!(bytes.is_empty(), "{} bytes more than expected", bytes.len());
        made
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // What cannot be removed is in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn word(to: &mut Vec<u8>, n: usize) {
    to.extend((n as i64).to_le_bytes());
}

fn encode(to: &mut Vec<u8>, i: usize, record: &Recorded) {
    let mut barriers = record.kernel.subgroup.is_some();
    record.kernel.for_each_stmt(&mut |s| barriers |= matches!(s, Stmt::Barrier));
    [i, record.kernel.workgroup as usize, usize::from(barriers)].iter().for_each(|&n| word(to, n));
    word(to, record.groups.len());
    record.groups.iter().for_each(|&g| word(to, g as usize));
    // The step's number is behind the uniforms.
    word(to, record.uniforms.len() + 1);
    record.uniforms.iter().chain(&[0]).for_each(|&u| to.extend(i64::from(u).to_le_bytes()));
    word(to, record.before.len());
    for memory in &record.before {
        word(to, memory.len());
        to.extend(memory);
    }
    word(to, record.bindings.len());
    record.bindings.iter().for_each(|&b| word(to, b));
}

fn take<'b>(from: &mut &'b [u8], n: usize) -> &'b [u8] {
    let (taken, rest) = from.split_at(n);
    *from = rest;
    taken
}

fn decode(from: &mut &[u8], record: &Recorded) -> Made {
    let together = take(from, 8)[0] != 0;
    let mut fault = [0; 4];
    fault.iter_mut().for_each(|w| *w = u32::from_le_bytes(take(from, 4).try_into().unwrap()));
    Made { together, fault, memory: record.before.iter().map(|m| take(from, m.len()).to_vec()).collect() }
}
