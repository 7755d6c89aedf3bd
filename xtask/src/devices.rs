//! `docs/devices.md`: what is known of each device, and by which suite.
//!
//! No cell is written by hand. A cell names the suites whose success shows it: one that runs with every test command says so, a heavy one says when it last ran and what it
//! counted. What no suite shows, the page calls not tested.

use crate::record::{self, Records};
use crate::suites::SUITES;
use rlx_driver::Device;

const PAGE: &str = "docs/devices.md";

/// How far a device's code was taken, in the order of the page's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Evidence {
    /// The vendor's compiler or type checker accepted what we generate.
    Compiled,
    /// Numbers were computed by an interpreter or emulator and compared.
    Emulated,
    /// It ran on a software device or on the vendor's build for the CPU.
    Software,
    /// It ran on the hardware it is for.
    Hardware,
}

const COLUMNS: [(Evidence, &str); 4] = [
    (Evidence::Compiled, "compiled by the vendor's compiler"),
    (Evidence::Emulated, "numbers on an interpreter or emulator"),
    (Evidence::Software, "executed on a software device or CPU build"),
    (Evidence::Hardware, "executed on hardware"),
];

/// What a suite shows of a device, in the words of the page.
struct Shown {
    device: Device,
    evidence: Evidence,
    suite: &'static str,
    what: &'static str,
}

const fn shown(device: Device, evidence: Evidence, suite: &'static str, what: &'static str) -> Shown {
    Shown { device, evidence, suite, what }
}

/// One line for each thing that a suite shows.
const SHOWN: &[Shown] = {
    use Device::*;
    use Evidence::*;
    const FAKE: &str =
        "fake driver that interprets kernels: cases of every op, random graphs, goldens, contract, faults";
    &[
        shown(Cpu, Emulated, "neon", "AArch64 under QEMU"),
        shown(Cpu, Hardware, "unit", "x86-64 of the machine that runs the tests"),
        shown(Metal, Emulated, "kernel-text", "the text of its kernels on the CPU"),
        shown(Mlx, Software, "mlx", "MLX for Linux: node cases, goldens, contract, random graphs, faults"),
        shown(Ane, Compiled, "coreml", "coremltools loads and type-checks every model's package"),
        shown(
            Ane,
            Emulated,
            "coreml",
            "an evaluator that reads the packages back: goldens, node cases, contract, faults",
        ),
        shown(Cuda, Compiled, "nvrtc", "NVRTC"),
        shown(Cuda, Emulated, "gpu", FAKE),
        shown(Cuda, Emulated, "kernel-text", "its C text on the CPU"),
        shown(Rocm, Compiled, "amdgpu", "clang's AMDGPU back end"),
        shown(Rocm, Emulated, "gpu", FAKE),
        shown(Rocm, Emulated, "kernel-text", "its C text on the CPU"),
        shown(Tpu, Compiled, "pjrt", "jaxlib's verifier of StableHLO; libtpu ahead of time"),
        shown(
            Tpu,
            Software,
            "pjrt",
            "a plugin over XLA's client of the CPU: node cases, goldens, contract, random graphs, faults; over StableHLO's reference interpreter: node cases, small goldens, faults",
        ),
        shown(
            Vulkan,
            Software,
            "gpu",
            "llvmpipe: cases of every op, random graphs, goldens, contract, faults",
        ),
        shown(
            OpenGl,
            Software,
            "gpu",
            "Mesa's OpenGL ES: a case of every op and type, goldens, contract, faults",
        ),
        shown(DirectX, Compiled, "windows", "Microsoft's HLSL compiler"),
        shown(
            DirectX,
            Software,
            "windows",
            "Wine's DirectX 12 on llvmpipe: contract, cases of every op, goldens",
        ),
        shown(WebGpu, Compiled, "web", "Chromium's WGSL compiler"),
        shown(
            WebGpu,
            Software,
            "web",
            "headless Chromium on SwiftShader: node cases, goldens, contract, pages",
        ),
    ]
};

/// What was run by hand, on machines that the suites do not have: when, and where it is written down.
const BY_HAND: &[(Device, Evidence, &str)] = &[(
    Device::Cuda,
    Evidence::Hardware,
    "one H100, by hand on 2026-11-26: node cases, part of the contract, models; one H200 on 2026-11-27: random cases of every family of kernels, models ([performance/gpu.md](performance/gpu.md#on-an-h200))",
)];

const INTRODUCTION: &str = "\
# Devices

Made by `cargo xtask docs` from the suites of the test command and their recorded results; do not edit. What the suites do is in [testing.md](testing.md).

Each cell names what was done and the suite that does it: with every run of the test command, or on the date of its last recorded run; what was run by hand says so. “Not tested” means what it says: the code
may be complete and still be wrong there.
";

/// What stands before the second table.
const COUNTED: &str = "
## What holds, counted

ONNX's node cases (of onnx 1.20.0; those that need what a device does not have are not counted as failed, and no case fails otherwise), goldens of the test models, and tests of
the public contract that pass, in the last recorded run of the heavy suite that counts them. The CPU's run with every test command; its node cases are in [conformance.md](conformance.md).

| device | node cases | of core types, of those that the CPU passes | goldens | contract | suite |
|---|---|---|---|---|---|
";

/// Makes the page.
///
/// # Errors
/// Records that cannot be read, or a page that cannot be written.
pub fn write() -> Result<(), String> {
    let path = crate::root().join(PAGE);
    std::fs::write(&path, page(&record::read()?)).map_err(|e| format!("{}: {e}", path.display()))
}

fn page(records: &Records) -> String {
    let mut page = format!("{INTRODUCTION}\n| device |");
    COLUMNS.iter().for_each(|(_, title)| page.push_str(&format!(" {title} |")));
    page.push_str("\n|---|");
    COLUMNS.iter().for_each(|_| page.push_str("---|"));
    for &device in Device::all() {
        page.push_str(&format!("\n| {} (`{}`) |", device.name(), device.feature()));
        for (evidence, _) in COLUMNS {
            page.push_str(&format!(" {} |", cell(device, evidence, records)));
        }
    }
    page + "\n" + COUNTED + &counted(records)
}

/// What was counted on each device, a row for each suite that counts it.
fn counted(records: &Records) -> String {
    let mut rows = String::new();
    for &device in Device::all().iter().filter(|&&device| device != Device::Cpu) {
        let heavy = SUITES.iter().filter(|s| s.heavy);
        let found = heavy.filter_map(|s| Some((s.name, records.get(s.name)?)));
        let found =
            found.filter_map(|(name, record)| Some((name, record, record.scores.get(device.feature())?)));
        let mut any = false;
        for (name, record, score) in found {
            any = true;
            let number = |n: u64, text: String| if n == 0 { "not run".to_owned() } else { text };
            let (passed, all) = score.nodes;
            let nodes = number(all, format!("{passed} of {all}"));
            let core = match score.core {
                (_, 0) => "not counted".to_owned(),
                (passed, all) => format!("{passed} of {all} ({:.1} %)", 100.0 * passed as f64 / all as f64),
            };
            let [goldens, contract] = [score.goldens, score.contract].map(|n| number(n, n.to_string()));
            let date = &record.date;
            rows.push_str(&format!(
                "| {} | {nodes} | {core} | {goldens} | {contract} | `{name}`, {date} |\n",
                device.name()
            ));
        }
        if !any {
            rows.push_str(&format!(
                "| {} | not counted | not counted | not counted | not counted | |\n",
                device.name()
            ));
        }
    }
    rows
}

fn cell(device: Device, evidence: Evidence, records: &Records) -> String {
    let here = SHOWN.iter().filter(|s| s.device == device && s.evidence == evidence);
    let by_suites = here.filter_map(|s| Some(format!("{} ({})", s.what, when(s.suite, records)?)));
    let by_hand = BY_HAND.iter().filter(|(of, kind, _)| (*of, *kind) == (device, evidence));
    let parts: Vec<String> = by_suites.chain(by_hand.map(|(.., what)| (*what).to_owned())).collect();
    if parts.is_empty() { "not tested".to_owned() } else { parts.join("; ") }
}

/// When the suite ran, and what it counted; `None` for a heavy suite that never ran, or failed.
fn when(name: &str, records: &Records) -> Option<String> {
    let suite = SUITES.iter().find(|s| s.name == name)?;
    if !suite.heavy {
        return Some(format!("`{name}`, every run"));
    }
    let record = records.get(name).filter(|r| r.failed == 0)?;
    Some(format!("`{name}`, {}: {}", record.date, record.result()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_names_a_suite() {
        for s in SHOWN {
            assert!(
                SUITES.iter().any(|suite| suite.name == s.suite),
                "{} has no suite {}",
                s.device,
                s.suite
            );
        }
    }

    #[test]
    fn the_committed_page_says_what_the_records_say() {
        let committed = std::fs::read_to_string(crate::root().join(PAGE)).unwrap();
        assert_eq!(committed, page(&record::read().unwrap()), "run `cargo xtask docs`");
    }

    #[test]
    fn what_never_ran_is_no_evidence() {
        let page = page(&Records::new());
        assert!(!page.contains("NVRTC ("), "{page}");
        assert!(
            page.lines().any(|line| line.starts_with("| Metal") && line.matches("not tested").count() == 4)
        );
    }
}
