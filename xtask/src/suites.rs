//! The suites of the test command: one table, and how each kind of entry runs.

use crate::exec::{Run, cargo_command, has_cargo_tool, test_target_names};
use crate::outcome::Outcome;
use rlx_testdata::{CUBLAS, CUDA, DataSet, MINILM, NVDISASM, NVRTC, ONNX_CASES};

/// One suite: what it is, how long it may take on two cores, and what it runs.
pub struct Suite {
    pub name: &'static str,
    pub about: &'static str,
    /// Wall-clock seconds. More than twice as many is a failure, and so is a run of several suites that takes more than their sum.
    pub budget_s: u64,
    /// Runs only with `--all` or when named; its last result is committed.
    pub heavy: bool,
    /// Of a heavy suite: the files and folders whose change makes its last result old.
    pub covers: &'static [&'static str],
    /// Fetched first; where that fails the suite is a named skip, or a failure where `CI=true`.
    pub needs: &'static [&'static DataSet],
    pub what: What,
}

/// What a suite runs.
pub enum What {
    /// A cargo command whose success is the result; extra environment as pairs.
    Cargo { args: &'static [&'static str], env: &'static [(&'static str, &'static str)] },
    /// A test command of cargo's, whose tests are counted; extra environment as pairs.
    Tests { args: &'static [&'static str], env: &'static [(&'static str, &'static str)] },
    /// All unit tests and the integration tests that no other suite claims.
    Unit,
    /// Documentation examples.
    DocTests,
    /// Generated CUDA C compiled by NVRTC.
    Nvrtc,
    /// Generated HIP C compiled by clang for AMD's devices.
    AmdGpu,
    /// Functions of CUDA and HIP against the vendors' headers.
    Headers,
    /// MLX on this machine: its shim built, and the device's tests on it.
    Mlx,
    /// StableHLO verified and executed by `jaxlib`, and compiled by `libtpu`.
    Pjrt,
    /// Every model's Core ML package, evaluated and read by coremltools.
    CoreMl,
    /// A toy op added to a copy of the workspace, as CONTRIBUTING.md says.
    ToyOp,
    /// `bench/peers` on small models.
    Peers,
    /// Integration test targets, found by name in the workspace; `contract*` is every name that starts so.
    Targets(&'static [&'static str]),
    /// The devices with generated kernels, and the contract on them; with `all`, every model and more graphs.
    Gpu { all: bool },
    /// The CPU backend's tests on AArch64 under QEMU.
    Neon,
    /// Windows programs, DirectX 12 among what they use, under Wine.
    Windows,
    /// The CPU backend's memory and programs under Miri.
    Miri,
    /// A target of `fuzz/` under AddressSanitizer, for so many seconds at least.
    Fuzz { target: &'static str, least_s: u64 },
    /// Licences, sources and advisories of what we depend on.
    Deny,
    /// The npm package in Node and in a browser.
    Web,
    /// No cycles of modules but those listed.
    Structure,
    /// The CPU's matmuls by OpenBLAS.
    Blas,
    /// The Python package's tests; or, with `wheel`, its wheel in a fresh environment.
    Python { wheel: bool },
    /// All cases of two releases of `onnx`, by two runners.
    OnnxCases,
    /// The external crates that the library packages pull in are within budget.
    CrateCount { packages: &'static [&'static str], most: usize },
}

const fn suite(name: &'static str, about: &'static str, budget_s: u64, what: What) -> Suite {
    Suite { name, about, budget_s, heavy: false, covers: &[], needs: &[], what }
}

/// The suite of a fuzz target; what is read or run there is in `covers`.
const fn fuzz(
    name: &'static str,
    about: &'static str,
    target: &'static str,
    budget_s: u64,
    covers: &'static [&'static str],
) -> Suite {
    Suite { heavy: true, covers, ..suite(name, about, budget_s, What::Fuzz { target, least_s: 0 }) }
}

/// What the devices with generated kernels run on.
const GPU_CODE: &[&str] = &[
    "crates/rlx-kernel",
    "crates/rlx-tile",
    "crates/rlx-gpu",
    "crates/rlx-wgpu",
    "crates/rlx-simt",
    "crates/rlx-backend",
    "tests/fake-driver",
];

/// The features of all devices: those without a backend must stay absent in every answer.
pub const DEVICE_FEATURES: &str =
    "rlx-contract/all-devices,rlx/ane,rlx/cuda,rlx/rocm,rlx/mlx,rlx/tpu,rlx/vulkan,rlx/opengl";

/// Every suite, in the order they run. A new test target is claimed by a suite with one line here;
/// a target that no one claims runs with `unit`.
pub const SUITES: &[Suite] = &[
    suite("fmt", "formatting", 10, What::Cargo { args: &["fmt", "--all", "--check"], env: &[] }),
    suite(
        "build",
        "libraries, the command and tests compile",
        1205,
        // Examples need not be linked: clippy compiles them.
        What::Cargo {
            args: &["test", "--workspace", "--lib", "--bins", "--tests", "--no-run", "--quiet"],
            env: &[],
        },
    ),
    suite(
        "clippy",
        "lints, warnings are errors",
        130,
        What::Cargo {
            // With the devices' features: what is built only without them is little.
            args: &[
                "clippy",
                "--workspace",
                "--all-targets",
                "--quiet",
                "--features",
                DEVICE_FEATURES,
                "--",
                "-D",
                "warnings",
            ],
            env: &[],
        },
    ),
    suite(
        "small-build",
        "the library compiles without what only the command needs, as in a browser",
        35,
        What::Cargo { args: &["check", "--package", "rlx", "--no-default-features", "--quiet"], env: &[] },
    ),
    suite(
        "doc",
        "documentation builds, warnings are errors",
        60,
        What::Cargo {
            args: &["doc", "--workspace", "--no-deps", "--quiet"],
            env: &[("RUSTDOCFLAGS", "-D warnings")],
        },
    ),
    suite(
        "crates",
        "external crates of the library",
        10,
        What::CrateCount { packages: &["rlx-runtime", "rlx-cpu", "rlx-onnx"], most: 45 },
    ),
    suite("structure", "no new cycles of modules, no device above its lines", 15, What::Structure),
    suite("unit", "unit and text-form tests", 400, What::Unit),
    suite("doctest", "documentation examples", 30, What::DocTests),
    Suite {
        needs: &[&ONNX_CASES],
        ..suite("onnx-node", "the ONNX backend's node cases", 10, What::Targets(&["node_suite*"]))
    },
    Suite {
        needs: &[&MINILM],
        ..suite(
            "goldens",
            "whole models against committed outputs",
            30,
            What::Targets(&["goldens*", "quantized", "domain_ops", "default_ops"]),
        )
    },
    suite(
        "random",
        "random graphs against the oracle",
        45,
        What::Targets(&["random_graphs*", "ops", "every_op"]),
    ),
    suite("contract", "the public contract", 15, What::Targets(&["contract*"])),
    suite("python", "the Python package", 40, What::Python { wheel: false }),
    Suite {
        heavy: true,
        covers: &["crates/rlx-python"],
        ..suite(
            "python-wheel",
            "a script for ONNX Runtime on the wheel, in a fresh environment",
            900,
            What::Python { wheel: true },
        )
    },
    Suite {
        heavy: true,
        covers: &["crates/rlx-onnx", "crates/rlx-python"],
        ..suite(
            "onnx-newest",
            "all cases of two releases of onnx, by our runner and by ONNX's own",
            600,
            What::OnnxCases,
        )
    },
    Suite {
        needs: &[&MINILM],
        ..suite(
            "gpu",
            "Vulkan and OpenGL, on software where there is no GPU; CUDA and ROCm, on a fake driver",
            400,
            What::Gpu { all: false },
        )
    },
    Suite {
        // It builds wgpu with the back end that does nothing, which takes minutes.
        heavy: true,
        covers: &["crates/rlx-tile", "crates/rlx-gpu", "crates/rlx-wgpu"],
        ..suite(
            "matrices",
            "programs on cooperative matrices, by wgpu's back end that does nothing",
            600,
            What::Tests {
                args: &[
                    "test",
                    "--quiet",
                    "--package",
                    "rlx-wgpu",
                    "--features",
                    "noop",
                    "--test",
                    "matrices",
                ],
                env: &[],
            },
        )
    },
    Suite {
        heavy: true,
        needs: &[&MINILM, &ONNX_CASES],
        covers: GPU_CODE,
        ..suite(
            "gpu-all",
            "every op and model on Vulkan, OpenGL, CUDA and ROCm",
            2300,
            What::Gpu { all: true },
        )
    },
    Suite {
        heavy: true,
        needs: &[&ONNX_CASES],
        covers: &["crates/rlx-mlx", "crates/rlx-backend/src/whole_graph"],
        ..suite("mlx", "MLX by its shim, on the CPU on Linux", 1200, What::Mlx)
    },
    suite("model-ui", "models that do not fit say why", 50, What::Targets(&["model_ui"])),
    suite("toy-op", "an op is one file and one line", 115, What::ToyOp),
    suite("bad-input", "damaged model files", 15, What::Targets(&["bad_input*"])),
    suite(
        "custom-op",
        "an op from outside the workspace, by kernel and by reference",
        75,
        What::Tests {
            args: &["test", "--quiet", "--manifest-path", "examples/custom_op/Cargo.toml"],
            env: &[("CARGO_TARGET_DIR", "target/examples")],
        },
    ),
    Suite {
        heavy: true,
        covers: &[
            "crates/rlx-kernel",
            "crates/rlx-tile",
            "tests/ptx",
            "tools/nvrtc_check.py",
            "tools/machine_code.py",
        ],
        needs: &[&NVRTC, &NVDISASM],
        ..suite(
            "nvrtc",
            "generated CUDA C compiles for sm_75 to sm_120; machine code of tile programs as committed",
            1200,
            What::Nvrtc,
        )
    },
    Suite {
        heavy: true,
        covers: &[
            "crates/rlx-kernel",
            "crates/rlx-tile",
            "tools/amdgpu_check.py",
            "tools/hiprtc.h",
            "tools/machine_code.py",
        ],
        ..suite(
            "amdgpu",
            "generated HIP C compiles for gfx90a to gfx1201; machine code of tile programs as committed",
            900,
            What::AmdGpu,
        )
    },
    Suite {
        heavy: true,
        covers: &["crates/rlx-simt/src"],
        needs: &[&CUDA, &CUBLAS, &NVRTC],
        ..suite(
            "headers",
            "the functions of CUDA and HIP that are called, as the vendors' headers declare them",
            300,
            What::Headers,
        )
    },
    Suite {
        heavy: true,
        covers: &["crates/rlx-kernel", "crates/rlx-tile"],
        ..suite(
            "random-shapes",
            "every family of kernels and tile programs over 500 random shapes and more, on the interpreter",
            1200,
            What::Tests {
                // Text that runs on the processor is in `kernel-text`.
                args: &[
                    "test",
                    "--quiet",
                    "--package",
                    "rlx-kernel",
                    "--package",
                    "rlx-tile",
                    "--tests",
                    "--",
                    "--skip",
                    "run_as_text",
                    "--skip",
                    "runs_as_text",
                    "--skip",
                    "runs_as_interpreted",
                ],
                env: &[("RLX_TEST_ALL", "1")],
            },
        )
    },
    Suite {
        heavy: true,
        covers: &["crates/rlx-kernel", "crates/rlx-tile"],
        ..suite(
            "kernel-text",
            "generated CUDA C, HIP C and Metal's language, compiled for the CPU, equal to the interpreter",
            1200,
            What::Tests {
                args: &[
                    "test",
                    "--workspace",
                    "--test",
                    "kernel_text",
                    "--test",
                    "program_text",
                    "--",
                    "--nocapture",
                ],
                env: &[("RLX_TEST_ALL", "1")],
            },
        )
    },
    Suite {
        heavy: true,
        covers: &[
            "crates/rlx-pjrt",
            "crates/rlx-backend/src/whole_graph",
            "tests/fake-pjrt",
            "tools/pjrt_worker.py",
            "tools/stablehlo_check.py",
        ],
        ..suite(
            "pjrt",
            "StableHLO verified, and executed by XLA on the CPU and by its reference interpreter; compiled by libtpu for TPUs",
            2400,
            What::Pjrt,
        )
    },
    Suite {
        heavy: true,
        covers: &["crates/rlx-coreml", "tests/contract", "tests/mil-eval", "tools/coreml/check.py"],
        needs: &[&MINILM, &ONNX_CASES],
        ..suite(
            "coreml",
            "every model as a Core ML package: evaluated against its golden, and read by coremltools; node cases, contract",
            2400,
            What::CoreMl,
        )
    },
    Suite {
        heavy: true,
        covers: &["crates/rlx-cpu/src/pool"],
        ..suite(
            "loom",
            "every order of the thread pool's steps",
            600,
            // A folder of its own, since the flag is part of every crate's build.
            What::Tests {
                args: &[
                    "test",
                    "--quiet",
                    "-p",
                    "rlx-cpu",
                    "--lib",
                    "--target-dir",
                    "target/loom",
                    "pool::model",
                ],
                env: &[("RUSTFLAGS", "--cfg loom")],
            },
        )
    },
    Suite {
        heavy: true,
        covers: &["crates/rlx-cpu"],
        ..suite("miri", "memory, pool and programs of the CPU under Miri", 1800, What::Miri)
    },
    Suite {
        heavy: true,
        covers: &["crates/rlx-cpu/src/blas", "crates/rlx-cpu/src/kernels/blas_matmul.rs"],
        ..suite("blas", "the CPU's matmuls through OpenBLAS", 400, What::Blas)
    },
    Suite {
        heavy: true,
        covers: &["crates/rlx-cpu"],
        ..suite("neon", "the CPU's kernels on AArch64, under QEMU", 900, What::Neon)
    },
    Suite {
        heavy: true,
        needs: &[&ONNX_CASES],
        covers: &[
            "crates/rlx-wgpu",
            "crates/rlx-gpu",
            "crates/rlx-kernel",
            "crates/rlx-runtime",
            "tests/contract",
            "tools/wine.sh",
        ],
        ..suite(
            "windows",
            "the contract, DirectX 12 with node cases, and the command, as Windows programs under Wine",
            2400,
            What::Windows,
        )
    },
    Suite {
        heavy: true,
        needs: &[&MINILM, &ONNX_CASES],
        covers: &[
            "crates/rlx-web",
            "crates/rlx-wgpu",
            "crates/rlx-gpu",
            "crates/rlx-kernel",
            "crates/rlx-backend",
            "crates/rlx-cpu/src",
            "tests/contract",
        ],
        ..suite(
            "web",
            "the npm package in Node and in Chromium, on the CPU and on WebGPU, with ONNX's node cases; the contract in a page",
            1800,
            What::Web,
        )
    },
    Suite {
        heavy: true,
        covers: &["bench", "models/weights.py"],
        ..suite("peers", "`bench/peers` on small models: it runs, and the outputs agree", 2400, What::Peers)
    },
    fuzz(
        "fuzz-importer",
        "fuzzing: ONNX files, imported, compiled and run",
        "importer",
        14400,
        &["crates/rlx-onnx/src", "tests/fuzz/src"],
    ),
    fuzz(
        "fuzz-text",
        "fuzzing: graphs in the text form, run beside the oracle",
        "text",
        10800,
        &["crates/rlx-ir/src/text", "tests/fuzz/src"],
    ),
    Suite {
        what: What::Fuzz { target: "contradictions", least_s: 1800 },
        ..fuzz(
            "fuzz-contradictions",
            "fuzzing: dimensions that contradict each other, on every instruction set",
            "contradictions",
            14400,
            &["crates/rlx-backend/src", "crates/rlx-cpu/src", "crates/rlx-ir/src/ops", "tests/fuzz/src"],
        )
    },
    fuzz(
        "fuzz-artefact",
        "fuzzing: artefacts, as they are and with hashes made right",
        "artefact",
        10800,
        &[
            "crates/rlx-artifact/src",
            "crates/rlx-runtime/src/aot",
            "crates/rlx-opt/src/verify_lir.rs",
            "tests/fuzz/src",
        ],
    ),
    fuzz("fuzz-npy", "fuzzing: npy files", "npy", 3600, &["crates/rlx-weights/src/npy.rs"]),
    fuzz("fuzz-npz", "fuzzing: npz files", "npz", 3600, &["crates/rlx-weights/src"]),
    fuzz(
        "fuzz-safetensors",
        "fuzzing: safetensors files",
        "safetensors",
        3600,
        &["crates/rlx-weights/src/safetensors.rs"],
    ),
    fuzz("fuzz-tuning", "fuzzing: cached tunings", "tuning", 3600, &["crates/rlx-backend/src/tuning.rs"]),
    fuzz(
        "fuzz-calibration",
        "fuzzing: cached calibrations",
        "calibration",
        3600,
        &["crates/rlx-select/src/cost/model.rs"],
    ),
    fuzz("fuzz-image", "fuzzing: images", "image", 3600, &["crates/rlx/src/image"]),
    fuzz("fuzz-json", "fuzzing: inputs as JSON", "json", 3600, &["crates/rlx/src/inputs/json.rs"]),
    fuzz(
        "fuzz-lines",
        "fuzzing: inputs as lines of JSON",
        "lines",
        3600,
        &["crates/rlx/src/inputs/lines.rs", "crates/rlx/src/inputs/json.rs"],
    ),
    Suite {
        heavy: true,
        covers: &["Cargo.lock", "deny.toml"],
        ..suite("deny", "licences, sources and advisories", 120, What::Deny)
    },
];

/// The suites to run: those named, else all, the heavy ones only with `all`.
pub fn choose(named: &[&str], all: bool) -> Result<Vec<&'static Suite>, String> {
    if named.is_empty() {
        return Ok(SUITES.iter().filter(|s| all || !s.heavy).collect());
    }
    let find = |name: &&str| {
        SUITES.iter().find(|s| s.name == *name).ok_or_else(|| format!("no suite `{name}`; --list shows them"))
    };
    named.iter().map(find).collect()
}

impl Suite {
    pub fn run(&self) -> Outcome {
        // Single tests and examples among these read test data and name a skip where it is absent.
        if matches!(self.what, What::Unit | What::DocTests) {
            rlx_testdata::ALL.iter().for_each(|set| drop(crate::data::fetch(set)));
        }
        for set in self.needs {
            if let Err(why) = crate::data::fetch(set) {
                let note = format!("test data {}: {why}", set.name);
                return if rlx_testdata::in_ci() { Outcome::fail(note) } else { Outcome::skip(note) };
            }
        }
        match Run::new(self.name, self.budget_s) {
            Ok(run) => self.what.run(&run),
            Err(e) => Outcome::fail(format!("its log: {e}")),
        }
    }
}

impl What {
    fn run(&self, run: &Run) -> Outcome {
        match self {
            What::Cargo { args, env } => run.check(cargo_command(args).envs(env.iter().copied())),
            What::Unit => unit(run),
            What::DocTests => run.tests(&mut cargo_command(&["test", "--workspace", "--doc"])),
            What::Targets(names) => targets(run, names),
            What::Nvrtc => crate::vendor_compilers::nvrtc(run),
            What::AmdGpu => crate::vendor_compilers::amdgpu(run),
            What::Headers => crate::vendor_compilers::headers(run),
            What::Mlx => crate::mlx::run(run),
            What::Pjrt => crate::pjrt::run(run),
            What::CoreMl => crate::coreml::run(run),
            What::ToyOp => crate::toy_op::run(run),
            What::Peers => crate::peers::run(run),
            What::Gpu { all } => crate::gpu::run(run, *all),
            What::Neon => crate::neon::run(run),
            What::Windows => crate::windows::run(run),
            What::Miri => crate::miri::run(run),
            What::Fuzz { target, least_s } => crate::fuzz::run(run, target, *least_s),
            What::Deny => crate::deny::run(run),
            What::Web => crate::web::run(run),
            What::Structure => crate::structure::run(),
            What::Blas => crate::blas::run(run),
            What::Python { wheel: false } => crate::python::tests(run),
            What::Python { wheel: true } => crate::python::wheel(run),
            What::OnnxCases => crate::python::onnx_cases(run),
            What::Tests { args, env } => run.tests(cargo_command(args).envs(env.iter().copied())),
            What::CrateCount { packages, most } => crate_count(packages, *most),
        }
    }
}

fn unit(run: &Run) -> Outcome {
    let targets = match test_target_names() {
        Ok(targets) => targets,
        Err(e) => return Outcome::fail(e),
    };
    let claimed = |name: &str| {
        ["gpu", "simt", "coop", "mlx", "pytest", "matrices"].contains(&name)
            || SUITES.iter().any(|s| matches!(s.what, What::Targets(p) if matches(p, name)))
    };
    let nextest = has_cargo_tool("nextest");
    let mut command = cargo_command(if nextest { &["nextest", "run"] } else { &["test"] });
    command.args(["--workspace", "--lib", "--bins"]);
    for name in targets.iter().filter(|name| !claimed(name)) {
        command.args(["--test", name]);
    }
    command.arg("--no-fail-fast");
    if nextest {
        command.args(["--status-level", "skip", "--final-status-level", "fail", "--no-tests", "pass"]);
    }
    run.tests(&mut command)
}

/// Whether a target is one of those named.
fn matches(patterns: &[&str], name: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *pattern,
    })
}

fn targets(run: &Run, patterns: &[&str]) -> Outcome {
    let found = match test_target_names() {
        Ok(found) => found,
        Err(e) => return Outcome::fail(e),
    };
    let chosen: Vec<&str> = found.iter().map(String::as_str).filter(|name| matches(patterns, name)).collect();
    // A suite that finds nothing to run would pass for ever.
    if chosen.is_empty() {
        return Outcome::fail(format!("the workspace has no test target named {}", patterns.join(" or ")));
    }
    run.test_targets(&chosen)
}

/// Counts the distinct external packages in the normal and build dependency tree of those packages that exist.
fn crate_count(packages: &[&str], most: usize) -> Outcome {
    let mut command =
        cargo_command(&["tree", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"]);
    for package in packages.iter().filter(|p| crate::root().join("crates").join(p).is_dir()) {
        command.args(["--package", package]);
    }
    let output = match command.output() {
        Ok(output) if output.status.success() => output,
        Ok(output) => return Outcome::fail(String::from_utf8_lossy(&output.stderr)),
        Err(e) => return Outcome::fail(format!("cargo tree: {e}")),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    // Our own packages are shown with their folder in parentheses, procedural macros of others with `(proc-macro)`.
    let external = text.lines().map(|line| line.trim_end_matches(" (*)").trim_end_matches(" (proc-macro)"));
    let external: std::collections::BTreeSet<&str> =
        external.filter(|l| !l.is_empty() && !l.contains('(')).collect();
    if external.len() <= most {
        Outcome::pass()
    } else {
        let names: Vec<&str> = external.iter().copied().collect();
        Outcome::fail(format!(
            "{} external crates, at most {most} allowed: {}",
            names.len(),
            names.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_the_default_run_fits_in_45_minutes() {
        let names: std::collections::BTreeSet<_> = SUITES.iter().map(|s| s.name).collect();
        assert_eq!(names.len(), SUITES.len());
        let total: u64 = choose(&[], false).unwrap().iter().map(|s| s.budget_s).sum();
        assert!(total <= 45 * 60, "{total} s");
    }

    #[test]
    fn targets_are_matched_by_name_or_by_start() {
        assert!(matches(&["contract*"], "contract_types") && matches(&["ops"], "ops"));
        assert!(!matches(&["ops"], "ops_more") && !matches(&["contract*"], "my_contract"));
    }

    #[test]
    fn a_heavy_suite_runs_when_named_or_with_all() {
        let heavy = SUITES.iter().find(|s| s.heavy).unwrap().name;
        assert!(!choose(&[], false).unwrap().iter().any(|s| s.name == heavy));
        assert!(choose(&[], true).unwrap().iter().any(|s| s.name == heavy));
        assert_eq!(choose(&[heavy], false).unwrap().len(), 1);
        assert!(choose(&["no-such-suite"], true).is_err());
    }
}
