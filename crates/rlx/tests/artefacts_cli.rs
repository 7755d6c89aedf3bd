//! `rlx compile` and `rlx cache` as people use them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rlx_testdata::models::{folder, model};
use serde_json::Value as Json;

/// A folder of the test's own, which is also the command's cache folder.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rlx-artefacts-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("temporary paths are text").to_owned()
    }

    fn rlx_with(&self, vars: &[(&str, &str)], args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rlx"));
        command.args(args).current_dir(folder()).env("RLX_CACHE_DIR", &self.0).env_remove("RLX_DEVICE");
        command.envs(vars.iter().copied()).output().expect("the command starts")
    }

    fn done(&self, args: &[&str]) -> String {
        let output = self.rlx_with(&[], args);
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn json(&self, args: &[&str]) -> Json {
        let all: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.done(&all)).expect("one JSON value")
    }

    fn failed(&self, code: i32, vars: &[(&str, &str)], args: &[&str]) -> String {
        let output = self.rlx_with(vars, args);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {message}");
        assert!(!message.contains("panicked"), "{message}");
        message
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left in the temporary folder harms no one.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const DIGITS: &str = "digits/digits.onnx";
const SAMPLE: &str = "digits/samples/7_a.png";

#[test]
fn a_compiled_model_runs_benches_inspects_and_verifies() {
    let scratch = Scratch::new("compile");
    let file = scratch.file("digits.rlx");
    let printed = scratch.done(&["compile", DIGITS, "-o", &file]);
    assert!(printed.contains("digits.rlx") && printed.contains("for cpu"), "{printed}");
    let run = |model: &str| scratch.json(&["run", model, SAMPLE, "--labels", "digits/labels.txt"]);
    let (plain, compiled) = (run(DIGITS), run(&file));
    assert_eq!(compiled["outputs"], plain["outputs"]);
    assert_eq!((compiled["model"].as_str(), compiled["precision"].as_str()), (Some("digits"), Some("f32")));
    assert_eq!(compiled["predictions"][0]["top"][0]["label"], "7");
    let bench = scratch.json(&["bench", &file, "--runs", "3"]);
    assert!(bench["min_ms"].as_f64().unwrap() > 0.0 && bench["flops"].as_f64().unwrap() > 0.0, "{bench}");
    let inspected = scratch.json(&["inspect", &file]);
    assert_eq!(inspected["inputs"], scratch.json(&["inspect", DIGITS])["inputs"]);
    let artefact = &inspected["artefact"];
    assert!(artefact["prepared_bytes"].as_u64().unwrap() > 0 && artefact["machine"].is_string());
    assert!(inspected["steps"].as_u64().unwrap() > 0 && inspected["compile_ready"] == true);
    assert!(scratch.done(&["inspect", &file]).contains("prepared_bytes"));
    let verified = scratch.json(&["verify", &file, "--dim", "batch=2"]);
    assert_eq!(verified["ok"], true, "{verified}");
}

#[test]
fn compiling_twice_gives_the_same_bytes_and_slim_ones_are_smaller() {
    let scratch = Scratch::new("same");
    let (a, b, slim) = (scratch.file("a.rlx"), scratch.file("b.rlx"), scratch.file("slim.rlx"));
    let mlp = model("mlp").graph_file().unwrap();
    let mlp = mlp.to_str().unwrap();
    scratch.done(&["compile", mlp, "-o", &a]);
    scratch.done(&["compile", mlp, "-o", &b]);
    assert_eq!(std::fs::read(&a).unwrap(), std::fs::read(&b).unwrap());
    let report = scratch.json(&["compile", mlp, "-o", &slim, "--slim"]);
    let size = |path: &str| std::fs::metadata(path).unwrap().len();
    assert!(size(&slim) < size(&a) * 3 / 4, "{} of {}", size(&slim), size(&a));
    assert_eq!(report["bytes"].as_u64(), Some(size(&slim)));
    assert_eq!(
        scratch.json(&["run", &slim, "--input", "x=random", "--dim", "batch=3"])["outputs"],
        scratch.json(&["run", mlp, "--input", "x=random", "--dim", "batch=3"])["outputs"]
    );
    let e = scratch.failed(1, &[], &["verify", &slim]);
    assert!(e.contains("slim") && e.contains("without --slim"), "{e}");
    assert!(scratch.json(&["bench", &slim, "--dim", "batch=1", "--runs", "2"])["flops"].is_null());
}

#[test]
fn tuning_results_are_in_the_artefact_and_used_by_later_commands() {
    let scratch = Scratch::new("tune");
    let [plain, tuned, later] = ["plain.rlx", "tuned.rlx", "later.rlx"].map(|name| scratch.file(name));
    let mlp = model("mlp").graph_file().unwrap();
    let mlp = mlp.to_str().unwrap();
    let compile = |file: &str, more: &[&str]| {
        let args = [&["compile", mlp, "--dim", "batch=64", "-o", file], more].concat();
        scratch.json(&args)["tuning"].as_array().expect("a list").clone()
    };
    assert!(compile(&plain, &[]).is_empty(), "nothing was measured yet");
    let measured = compile(&tuned, &["--tune"]);
    assert!(measured.iter().any(|t| t["key"].as_str().unwrap().contains("MatMul")), "{measured:?}");
    assert_eq!(compile(&later, &[]), measured);
    assert!(compile(&plain, &["--tune=off"]).is_empty());
    assert_eq!(scratch.json(&["inspect", &tuned])["artefact"]["tuning"].as_array(), Some(&measured));
    let printed = scratch.done(&["compile", mlp, "--dim", "batch=64", "-o", &later]);
    assert!(printed.contains("  tuned: "), "{printed}");
    let message = scratch.failed(2, &[], &["bench", &tuned, "--tune"]);
    assert!(message.contains("decided by rlx compile"), "{message}");
    scratch.failed(2, &[], &["bench", mlp, "--tune=perhaps"]);
}

#[test]
fn tune_measures_within_its_limit_and_stores_for_later_commands() {
    let scratch = Scratch::new("tune-command");
    let mlp = model("mlp").graph_file().unwrap();
    let mlp = mlp.to_str().unwrap();
    let tune = |more: &[&str]| scratch.json(&[&["tune", mlp, "--dim", "batch=64"], more].concat());
    let states = |report: &Json| -> Vec<String> {
        let steps = report["steps"].as_array().expect("a list");
        steps.iter().map(|step| step["state"].as_str().unwrap().to_owned()).collect()
    };
    // The limit is over before anything is measured.
    let late = tune(&["--limit", "0.000001ms"]);
    let kinds = late["out_of_time"].as_u64().unwrap();
    assert!(kinds > 0 && late["measured"] == 0, "{late}");
    assert!(states(&late).iter().all(|state| state == "out of time"), "{late}");
    let stored = std::path::PathBuf::from(late["stored"].as_str().unwrap());
    assert!(!stored.exists(), "nothing was measured");
    let text = scratch.done(&["tune", mlp, "--dim", "batch=64", "--limit", "0.000001ms"]);
    assert!(text.contains("could be measured: run it again, or give more --limit"), "{text}");
    let report = tune(&["--limit", "0"]);
    assert_eq!((report["measured"].as_u64(), report["limit_seconds"].is_null()), (Some(kinds), true));
    let (default, chosen) = (report["default_ms"].as_f64().unwrap(), report["chosen_ms"].as_f64().unwrap());
    assert!(chosen > 0.0 && chosen <= default, "{report}");
    for step in report["steps"].as_array().unwrap() {
        assert_eq!(step["times"][0]["variant"], step["default"], "{step}");
        let tried = step["tried"].as_u64().unwrap();
        assert!(1 < tried && tried <= 16 && tried <= step["variants"].as_u64().unwrap(), "{step}");
    }
    assert!(stored.is_file());
    // Again, nothing is left to measure, and other commands use it.
    let text = scratch.done(&["tune", mlp, "--dim", "batch=64"]);
    assert!(text.contains("measured earlier") && text.contains("stored in "), "{text}");
    let file = scratch.file("tuned.rlx");
    let compiled = scratch.json(&["compile", mlp, "--dim", "batch=64", "-o", &file]);
    assert_eq!(compiled["tuning"].as_array().map(Vec::len), usize::try_from(kinds).ok());
    for (args, why) in [
        (vec!["tune", mlp, "--tune"], "always measures"),
        (vec!["tune", &file], "compiled already"),
        (vec!["tune", mlp, "--limit", "soon"], "--limit"),
    ] {
        let e = scratch.failed(2, &[], &args);
        assert!(e.contains(why), "{e}");
    }
}

#[test]
fn foreign_damaged_and_misused_artefacts_are_rejected_with_a_reason() {
    let scratch = Scratch::new("rejected");
    let file = scratch.file("digits.rlx");
    scratch.done(&["compile", DIGITS, "-o", &file]);
    let portable = [("RLX_CPU_ISA", "portable")];
    let e = scratch.failed(1, &portable, &["run", &file, SAMPLE]);
    assert!(e.contains("another machine") && e.contains("compile the model again"), "{e}");
    for (args, why) in [
        (vec!["run", &file, SAMPLE, "--precision", "bf16"], "compiled in f32"),
        (vec!["run", &file, SAMPLE, "--numerics", "strict"], "rlx compile"),
        (vec!["inspect", &file, "--passes"], "has no passes left"),
        (vec!["bench", &file, "--dim", "btch=1"], "did you mean \"batch\""),
    ] {
        let e = scratch.failed(2, &[], &args);
        assert!(e.contains(why), "{e}");
    }
    let e = scratch.failed(1, &[], &["compile", &file, "-o", &scratch.file("again.rlx")]);
    assert!(e.contains("already compiled"), "{e}");
    let whole = std::fs::read(&file).unwrap();
    for (at, why) in [(30, "head"), (whole.len() / 2, "damaged")] {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        std::fs::write(&file, bytes).unwrap();
        let e = scratch.failed(1, &[], &["verify", &file]);
        assert!(e.contains(why) && e.contains("digits.rlx"), "{e}");
    }
    std::fs::write(&file, &whole[..100]).unwrap();
    assert!(scratch.failed(1, &[], &["run", &file, SAMPLE]).contains("truncated"));
}

fn entries(scratch: &Scratch) -> Vec<Json> {
    scratch.json(&["cache", "ls"])["entries"].as_array().unwrap().clone()
}

#[test]
fn the_cache_keeps_models_until_their_files_change() {
    let scratch = Scratch::new("cache");
    let copy = scratch.file("copy.onnx");
    std::fs::copy(folder().join(DIGITS), &copy).unwrap();
    let run = || scratch.json(&["run", &copy, SAMPLE, "--cache"])["outputs"].clone();
    assert!(entries(&scratch).is_empty());
    let want = scratch.json(&["run", DIGITS, SAMPLE])["outputs"].clone();
    assert_eq!((run(), run()), (want.clone(), want.clone()));
    assert_eq!(entries(&scratch).len(), 1, "the second run is served by the first one's entry");
    // Other options and a changed file are other entries.
    scratch.done(&["run", &copy, SAMPLE, "--cache", "--numerics", "strict"]);
    assert_eq!(entries(&scratch).len(), 2);
    // The same model in another file is the same; a field that no one knows makes it another.
    std::fs::copy(folder().join(DIGITS), &copy).unwrap();
    assert_eq!(run(), want);
    assert_eq!(entries(&scratch).len(), 2);
    std::fs::write(&copy, [&std::fs::read(&copy).unwrap()[..], &[0xa8, 0x46, 1]].concat()).unwrap();
    assert_eq!(run(), want);
    assert_eq!(entries(&scratch).len(), 3);
    let listed = scratch.done(&["cache", "ls"]);
    assert!(listed.contains("copy") && listed.contains("3 entries"), "{listed}");
    // A damaged entry is detected, and replaced by the next run.
    let path = entries(&scratch)[0]["path"].as_str().unwrap().to_owned();
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let output = scratch.rlx_with(&[], &["cache", "verify", "--json"]);
    let report: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), report["damaged"].as_u64()), (Some(1), Some(1)));
    assert_eq!(run(), want);
    assert_eq!(scratch.json(&["cache", "verify", "copy"])["ok"], true);
    let e = scratch.failed(1, &[], &["cache", "rm", "cpy"]);
    assert!(e.contains("no entry \"cpy\""), "{e}");
    let key = entries(&scratch)[0]["key"].as_str().unwrap()[..8].to_owned();
    assert_eq!(scratch.json(&["cache", "rm", &key])["removed"], 1);
    assert_eq!(scratch.json(&["cache", "rm", "copy"])["removed"], 2);
    run();
    // What a driver made of a kernel goes with all the rest.
    let adapter = scratch.0.join("pipelines/adapter");
    std::fs::create_dir_all(&adapter).unwrap();
    std::fs::write(adapter.join("kernel.bin"), [0; 10]).unwrap();
    assert_eq!(scratch.json(&["cache", "ls"])["pipelines"]["bytes"], 10);
    assert!(scratch.done(&["cache", "ls"]).contains("1 pipeline of a driver"));
    let removed = scratch.json(&["cache", "rm", "--all"]);
    assert_eq!((&removed["removed"], &removed["pipelines_removed"]), (&1.into(), &1.into()));
    assert!(entries(&scratch).is_empty());
}

#[test]
fn the_cache_has_a_limit() {
    let scratch = Scratch::new("limit");
    let limit = [("RLX_CACHE_LIMIT", "1K")];
    for numerics in ["fast", "strict"] {
        let args = ["run", DIGITS, SAMPLE, "--cache", "--numerics", numerics];
        assert!(scratch.rlx_with(&limit, &args).status.success());
    }
    assert_eq!(entries(&scratch).len(), 1, "the entry used longest ago went");
    let e = scratch.failed(1, &[("RLX_CACHE_LIMIT", "much")], &["cache", "ls"]);
    assert!(e.contains("RLX_CACHE_LIMIT"), "{e}");
    assert!(Path::new(&scratch.file("aot")).is_dir());
}
