//! The `rlx` command as people use it: what it prints, writes and says when something is wrong.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rlx_ir::ConstData;
use rlx_testdata::models::{folder, model};
use serde_json::Value as Json;

fn rlx(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rlx"))
        .args(args)
        .current_dir(folder())
        .output()
        .expect("the command starts")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The standard output of a command that must succeed.
fn done(args: &[&str]) -> String {
    let output = rlx(args);
    assert!(output.status.success(), "{args:?}: {}", err(&output));
    out(&output)
}

fn json(args: &[&str]) -> Json {
    serde_json::from_str(&done(args)).expect("one JSON value")
}

/// The message of a command that must fail with this exit code.
fn failed(code: i32, args: &[&str]) -> String {
    let output = rlx(args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {}", err(&output));
    assert!(!err(&output).contains("panicked"), "{args:?}: {}", err(&output));
    err(&output)
}

/// A separate folder for a test's files.
fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("rlx-cli-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a temporary folder");
    path
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}

const DIGITS: &str = "digits/digits.onnx";

fn samples() -> Vec<String> {
    (0..10).map(|i| format!("digits/samples/{i}_a.png")).collect()
}

/// `run` on all samples with labels, and more arguments.
fn run_samples<'a>(samples: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["run", DIGITS];
    args.extend(samples.iter().map(String::as_str));
    args.extend(["--labels", "digits/labels.txt"]);
    args.extend(more);
    args
}

#[test]
fn digits_are_named_in_one_batch() {
    let (samples, expected) =
        (samples(), std::fs::read(folder().join("digits/samples/expected.json")).unwrap());
    let expected: Json = serde_json::from_slice(&expected).unwrap();
    let printed = done(&run_samples(&samples, &[]));
    for sample in &samples {
        let file = Path::new(sample).file_name().unwrap().to_str().unwrap();
        let line = printed.lines().find(|l| l.starts_with(sample.as_str())).expect(sample);
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[1], expected[file].as_str().unwrap(), "{line}");
        assert!(line.contains('%') && line.ends_with("ms"), "{line}");
    }
    assert!(printed.contains("10 in one batch"));
    let report = json(&run_samples(&samples, &["--json", "--top", "3"]));
    let predictions = report["predictions"].as_array().unwrap();
    assert_eq!((predictions.len(), predictions[0]["top"].as_array().unwrap().len()), (10, 3));
    let first = &predictions[7]["top"][0];
    assert_eq!((first["label"].as_str(), first["index"].as_u64()), (Some("7"), Some(7)));
    assert!(
        first["probability"].as_f64().unwrap() > 0.5 && predictions[0]["time_ms"].as_f64().unwrap() > 0.0
    );
    assert_eq!(report["outputs"][0]["shape"], serde_json::json!([10, 10]));
    assert_eq!((report["device"].as_str(), report["precision"].as_str()), (Some("cpu"), Some("f32")));
}

#[test]
fn one_image_is_a_batch_of_one_and_gives_what_the_batch_gave() {
    let all = json(&run_samples(&samples(), &["--json"]));
    let one = json(&run_samples(&samples()[3..4], &["--json"]));
    assert_eq!(all["predictions"][3]["top"][0]["label"], one["predictions"][0]["top"][0]["label"]);
    assert_eq!(one["outputs"][0]["shape"], serde_json::json!([1, 10]));
}

#[test]
fn inputs_come_from_archives_arrays_and_lists_and_outputs_go_to_archives() {
    let folder = scratch("inputs");
    let x: Vec<f32> = (0..64).map(|i| i as f32 / 64.0).collect();
    let image = ConstData::from_f32(&[1, 1, 8, 8], &x).unwrap();
    let (npz, npy) = (folder.join("in.npz"), folder.join("in.npy"));
    rlx_weights::npz::write(&npz, &[("image", &image)]).unwrap();
    std::fs::write(&npy, rlx_weights::npy::to_bytes(&image).unwrap()).unwrap();
    let list = folder.join("in.json");
    let rows: Vec<Vec<f32>> = x.chunks(8).map(<[f32]>::to_vec).collect();
    std::fs::write(&list, serde_json::to_string(&vec![vec![rows]]).unwrap()).unwrap();
    let result = folder.join("out.npz");
    let given: [Vec<String>; 4] = [
        vec!["--inputs".into(), text(&npz).into()],
        vec!["--input".into(), format!("image={}", text(&npy))],
        vec!["--input".into(), format!("image={}", text(&list))],
        vec![text(&npy).into()],
    ];
    let mut results = Vec::new();
    for flags in &given {
        let mut args = vec!["run", DIGITS, "--outputs", text(&result)];
        args.extend(flags.iter().map(String::as_str));
        assert!(done(&args).contains("probabilities [1, 10] f32"));
        results.push(rlx_weights::npz::read(&result).unwrap());
    }
    assert_eq!(results[0][0].0, "probabilities");
    assert!(results.iter().all(|r| *r == results[0]));
    let sum: f64 = results[0][0].1.value().to_f64().iter().sum();
    assert!((sum - 1.0).abs() < 1e-4);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn integer_inputs_are_read_and_checked() {
    let Some(path) = model("bert_static").graph_file() else { return };
    let folder = scratch("ids");
    let (ids, bad) = (folder.join("ids.json"), folder.join("bad.json"));
    let row = vec![3; 9];
    std::fs::write(&ids, serde_json::to_string(&[&row, &row]).unwrap()).unwrap();
    std::fs::write(&bad, "[[1.5]]").unwrap();
    let input = |name: &str, file: &Path| format!("{name}={}", text(file));
    let flags = [input("input_ids", &ids), input("attention_mask", &ids), "token_type_ids=random".to_owned()];
    let mut args = vec!["run", text(&path), "--json"];
    flags.iter().for_each(|f| args.extend(["--input", f]));
    assert_eq!(json(&args)["outputs"][0]["shape"], serde_json::json!([2, 9, 128]));
    let wrong = input("input_ids", &bad);
    assert!(failed(1, &["run", text(&path), "--input", &wrong]).contains("takes i64, but was given 1.5"));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn faults_of_the_job_exit_with_1_and_say_what_where_and_what_helps() {
    let folder = scratch("faults");
    let whole = std::fs::read(self::folder().join(DIGITS)).unwrap();
    let cut = folder.join("cut.onnx");
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let narrow = folder.join("narrow.npz");
    let image = ConstData::from_f32(&[1, 1, 8, 7], &[0.0; 56]).unwrap();
    rlx_weights::npz::write(&narrow, &[("image", &image)]).unwrap();
    let other = folder.join("other.npz");
    rlx_weights::npz::write(&other, &[("imag", &image)]).unwrap();
    let cases: [(&[&str], &str); 9] = [
        (&["run", "no/such.onnx"], "no/such.onnx"),
        (&["run", text(&cut)], "not an ONNX model"),
        (&["run", "digits/labels.txt"], "not an ONNX model"),
        (&["run", DIGITS], "input \"image\" was not given"),
        (&["run", DIGITS, "--inputs", text(&narrow)], "[1, 1, 8, 7] f32"),
        (&["run", DIGITS, "--inputs", text(&other)], "did you mean \"image\""),
        (&["run", DIGITS, "digits/labels.txt"], ".npy or .json"),
        (&["run", DIGITS, "digits/samples/0_a.png", "--labels", "digits/README.md"], "labels"),
        (&["run", DIGITS, "--device", "tpu"], "no backend"),
    ];
    for (args, part) in cases {
        let message = failed(1, args);
        assert!(message.contains(part), "{args:?}: {message}");
        let mut lines = message.lines();
        assert!(lines.next().is_some_and(|l| l.starts_with("error: ")), "{args:?}: {message}");
        assert!(
            lines.all(|l| ["  at: ", "  on: ", "  help: "].iter().any(|p| l.starts_with(p))),
            "{args:?}: {message}"
        );
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn wrong_usage_exits_with_2() {
    let cases: [(&[&str], &str); 9] = [
        (&["run"], "MODEL"),
        (&["frobnicate"], "frobnicate"),
        (&["run", DIGITS, "--frob"], "--frob"),
        (&["run", DIGITS, "--device", "quantum"], "known devices"),
        (&["run", DIGITS, "--precision", "f8"], "f32, f16, bf16"),
        (&["run", DIGITS, "--dim", "batch"], "NAME=VALUE"),
        (&["run", DIGITS, "--dim", "bach=1"], "did you mean \"batch\""),
        (&["run", DIGITS, "--threads", "0"], "--threads"),
        (&["inspect", DIGITS, "--passes=nonsense"], "no pass \"nonsense\""),
    ];
    for (args, part) in cases {
        let message = failed(2, args);
        assert!(message.contains(part), "{args:?}: {message}");
    }
}

/// Writes a PNG of one colour.
fn png(path: &Path, (width, height): (u32, u32), color: png::ColorType) {
    let mut encoder = png::Encoder::new(std::fs::File::create(path).unwrap(), width, height);
    encoder.set_color(color);
    let pixels = vec![128; (width * height) as usize * color.samples()];
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
}

#[test]
fn images_that_do_not_fit_are_rejected() {
    let folder = scratch("images");
    let path = |name: &str| folder.join(name);
    png(&path("grey.png"), (8, 8), png::ColorType::Grayscale);
    png(&path("wide.png"), (9, 8), png::ColorType::Grayscale);
    png(&path("red.png"), (8, 8), png::ColorType::Rgb);
    png(&path("clear.png"), (8, 8), png::ColorType::GrayscaleAlpha);
    let whole = std::fs::read(path("grey.png")).unwrap();
    std::fs::write(path("cut.png"), &whole[..whole.len() / 2]).unwrap();
    let grey = done(&["run", DIGITS, text(&path("grey.png")), "--json"]);
    let probabilities = |report: &str| serde_json::from_str::<Json>(report).unwrap()["outputs"].clone();
    // The same grey, in colours and with alpha.
    for name in ["red.png", "clear.png"] {
        let found = done(&["run", DIGITS, text(&path(name)), "--json"]);
        assert_eq!(probabilities(&found), probabilities(&grey), "{name}");
    }
    // In the system's own words.
    let missing = std::fs::read(path("none.png")).unwrap_err().to_string();
    for (name, part) in [("wide.png", "9×8"), ("cut.png", "not a PNG"), ("none.png", &missing)] {
        let message = failed(1, &["run", DIGITS, text(&path(name))]);
        assert!(message.contains(part) && message.contains(name), "{message}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn environment_values_that_make_no_sense_are_errors() {
    for (name, value, code) in [
        ("RLX_NUM_THREADS", "many", 1),
        ("RLX_DEVICE", "quantum", 2),
        ("RLX_CPU_ISA", "abacus", 1),
        ("RLX_KERNEL_DISPATCH", "perhaps", 1),
        ("RLX_TUNE", "perhaps", 1),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_rlx"))
            .args(["bench", DIGITS, "--runs", "1"])
            .env(name, value)
            .current_dir(folder())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code), "{name}={value}: {}", err(&output));
        assert!(err(&output).contains(value), "{}", err(&output));
    }
}

#[test]
fn with_json_errors_are_objects() {
    for (code, args) in
        [(1, vec!["run", "no/such.onnx", "--json"]), (2, vec!["run", DIGITS, "--frob", "--json"])]
    {
        let output = rlx(&args);
        assert_eq!(output.status.code(), Some(code));
        for stream in [out(&output), err(&output)] {
            let object: Json = serde_json::from_str(&stream).expect("one JSON object");
            let error = &object["error"];
            assert!(error["kind"].is_string() && error["message"].is_string() && error.get("node").is_some());
        }
    }
}

#[test]
fn devices_are_listed_with_reasons() {
    let list = json(&["devices", "--json"]);
    let list = list.as_array().unwrap();
    assert_eq!(list.len(), 12);
    let cpu = list.iter().find(|d| d["device"] == "cpu").unwrap();
    assert_eq!((cpu["available"].as_bool(), cpu["reason"].is_null()), (Some(true), true));
    let tpu = list.iter().find(|d| d["device"] == "tpu").unwrap();
    assert!(tpu["available"] == false && tpu["reason"].as_str().unwrap().contains("no backend"));
    assert!(cpu["name"].as_str().unwrap().starts_with("CPU"));
    let (folded, all) = (done(&["devices"]), done(&["devices", "--all"]));
    assert!(folded.contains("available") && folded.contains("not in this build: "), "{folded}");
    assert!(folded.lines().all(|line| !line.starts_with("tpu ")) && !all.contains("not in this build"));
    let tpu = all.lines().find(|line| line.starts_with("tpu ")).unwrap();
    assert!(tpu.contains("no backend in this build") && tpu.contains("; enable the feature"), "{tpu}");
}

#[test]
fn devices_explain_what_a_model_takes_and_which_is_chosen() {
    let cache = scratch("devices");
    let ask = |args: &[&str]| -> Json {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rlx"));
        command.args(["devices", "--json"]).args(args).current_dir(folder()).env("RLX_CACHE_DIR", &cache);
        let output = command.output().expect("the command starts");
        assert!(output.status.success(), "{args:?}: {}", err(&output));
        serde_json::from_str(&out(&output)).expect("one JSON value")
    };
    let measured = ask(&["--calibrate"]);
    let cpu = measured.as_array().unwrap().iter().find(|d| d["device"] == "cpu").unwrap();
    assert!(cpu["products"].as_array().unwrap().len() >= 10 && cpu["run_us"].as_f64().unwrap() > 0.0);
    assert!(cache.join("calibration").is_dir());

    let of_cpu = |told: &Json| -> Json {
        told["devices"].as_array().unwrap().iter().find(|d| d["device"] == "cpu").unwrap().clone()
    };
    let told = ask(&[DIGITS, "--dim", "batch=2"]);
    assert_eq!(told["inputs"][0]["elements"], 128);
    assert!(of_cpu(&told)["predicted_ms"].as_f64().unwrap() > 0.0);
    assert!(of_cpu(&told)["measured_ms"].is_null() && told["verdict"].is_null());
    assert_eq!(told["devices"].as_array().unwrap().len(), 12);
    let blocked = told["devices"].as_array().unwrap().iter().filter(|d| !d["blocker"].is_null());
    assert!(blocked.clone().count() >= 8 && blocked.clone().all(|d| d["predicted_ms"].is_null()));
    assert!(told["chosen"]["device"].is_string() && told["chosen"]["reason"].is_string());

    let told = ask(&[DIGITS, "--dim", "batch=2", "--measure", "3"]);
    assert!(of_cpu(&told)["measured_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(told["verdict"]["runs"], 3);
    // The verdict is stored for this model and these sizes only.
    assert_eq!(ask(&[DIGITS, "--dim", "batch=2"])["verdict"]["runs"], 3);
    assert!(ask(&[DIGITS, "--dim", "batch=9"])["verdict"].is_null());
    std::fs::remove_dir_all(cache).unwrap();
    assert!(done(&["devices", DIGITS]).contains("chosen: "));
    assert!(failed(2, &["devices", DIGITS, "--dim", "bach=2"]).contains("batch"));
    failed(2, &["devices", "--measure", "3"]);
}

#[test]
fn bench_reports_every_field() {
    let report = json(&["bench", DIGITS, "--dim", "batch=2", "--runs", "3", "--threads", "1", "--json"]);
    for field in [
        "min_ms",
        "median_ms",
        "p95_ms",
        "load_ms",
        "compile_ms",
        "first_run_ms",
        "weight_bytes",
        "arena_bytes",
        "flops",
        "gflops",
    ] {
        assert!(report[field].as_f64().is_some_and(|v| v > 0.0), "{field}: {report}");
    }
    assert_eq!((report["runs"].as_u64(), report["threads"].as_u64()), (Some(3), Some(1)));
    assert_eq!((report["model"].as_str(), report["device"].as_str()), (Some("digits"), Some("cpu")));
    assert!(report["min_ms"].as_f64() <= report["median_ms"].as_f64());
    assert!(!cfg!(target_os = "linux") || report["peak_rss_bytes"].as_u64() > Some(1 << 20));
    assert!(done(&["bench", DIGITS, "--runs", "2"]).contains("median_ms"));
}

#[test]
fn bench_binds_inputs_once() {
    for more in [&["--dim", "batch=2"][..], &["--profile"]] {
        let args = [&["bench", DIGITS, "--runs", "2", "--bind-inputs", "--json"][..], more].concat();
        let report = json(&args);
        assert!(report["min_ms"].as_f64().is_some_and(|v| v > 0.0), "{report}");
        assert_eq!(report["profile"].is_object(), more.contains(&"--profile"));
    }
}

#[test]
fn inspect_shows_what_a_model_is() {
    let facts = json(&["inspect", DIGITS, "--dim", "batch=1", "--json"]);
    assert_eq!(facts["inputs"][0], serde_json::json!({ "name": "image", "shape": "[1, 1, 8, 8] f32" }));
    assert_eq!(facts["outputs"][0]["shape"], "[1, 10] f32");
    assert_eq!(facts["ops"]["Conv"], 3);
    for field in ["flops", "parameter_bytes", "arena_bytes", "steps"] {
        assert!(facts[field].as_f64().is_some_and(|v| v > 0.0), "{field}");
    }
    assert_eq!(facts["compile_ready"], true);
    let open = json(&["inspect", DIGITS, "--json"]);
    assert!(open["flops"].is_null() && open["inputs"][0]["shape"] == "[batch, 1, 8, 8] f32");
    let printed = done(&["inspect", DIGITS]);
    assert!(
        ["inputs", "parameters", "dispatch", "Conv", "legalize"].iter().all(|p| printed.contains(p)),
        "{printed}"
    );
}

#[test]
fn inspect_shows_the_graph_after_passes() {
    let all = json(&["inspect", DIGITS, "--passes", "--json"]);
    let names: Vec<&str> =
        all["passes"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert!(names.len() > 3 && all["passes"][0]["graph"].as_str().unwrap().contains("Conv"));
    let range = format!("--passes={}..{}", names[1], names[2]);
    let some = json(&["inspect", DIGITS, &range, "--json"]);
    assert_eq!(some["passes"].as_array().unwrap().len(), 2);
    let one = format!("--passes={}", names[0]);
    assert!(done(&["inspect", DIGITS, &one]).contains(&format!("after {}:", names[0])));
}

#[test]
fn precision_and_policy_are_used_and_said() {
    let args = |command: &'static str, more: &[&'static str]| {
        let mut all = vec![command, DIGITS, "--dim", "batch=2", "--json"];
        all.extend(more);
        json(&all)
    };
    let plain = args("inspect", &[]);
    assert_eq!(
        (plain["precision"]["used"].as_str(), plain["precision"]["requested"].as_str()),
        (Some("f32"), Some("f32"))
    );
    for (more, requested, used) in [
        (["--precision", "bf16"], "bf16", "bf16"),
        (["--policy", "always-f16"], "always-f16", "f16"),
        (["--policy", "always-f32"], "always-f32", "f32"),
        // Products of f16 are not faster on any CPU: see below.
        (["--policy", "auto-mixed"], "auto-mixed", "f32"),
    ] {
        let found = args("inspect", &more);
        let precision = &found["precision"];
        assert_eq!(
            (precision["requested"].as_str(), precision["used"].as_str()),
            (Some(requested), Some(used))
        );
        // Which instructions: those of this processor, in words.
        assert!(precision["products"].as_str().is_some_and(|p| !p.is_empty()), "{precision}");
        let kinds = precision["ops"].as_array().unwrap();
        let products = kinds.iter().filter(|k| k["op"] == "Conv" || k["op"] == "MatMul");
        assert!(products.clone().count() > 0 && products.clone().all(|k| k["dtype"] == used), "{precision}");
        // A mixed policy says what it leaves in f32, and why; the others leave nothing.
        let kept = precision["kept_f32"].as_array().unwrap();
        let says = |op| kept.iter().any(|k| k["op"] == op && k["reason"].as_str().unwrap().contains("f16"));
        assert_eq!(says("Conv") && says("MatMul"), requested == "auto-mixed", "{precision}");
        let bench = args("bench", &[more[0], more[1], "--runs", "1", "--warmup", "0"]);
        assert_eq!(bench["kept_f32"], precision["kept_f32"]);
        assert_eq!(
            (bench["precision"].as_str(), bench["requested_precision"].as_str()),
            (Some(used), Some(requested))
        );
        let verified = args("verify", &more);
        assert_eq!(
            (&verified["ok"], &verified["first_overflow"]),
            (&Json::Bool(true), &Json::Null),
            "{more:?}"
        );
    }
    let e = failed(2, &["inspect", DIGITS, "--policy", "half"]);
    assert!(e.contains("auto-mixed-conservative"), "{e}");
    assert!(failed(2, &["inspect", DIGITS, "--policy", "auto-mixed", "--precision", "bf16"]).contains("--p"));
}

#[test]
fn verify_compares_with_the_oracle() {
    let found = json(&["verify", DIGITS, "--dim", "batch=2", "--json"]);
    assert_eq!((found["ok"].as_bool(), found["first_divergence"].is_null()), (Some(true), true));
    for field in ["max_abs", "max_rel", "max_ulp", "mean_ulp"] {
        assert!(found[field].is_number(), "{field}");
    }
    assert!(found["values"].as_u64() > Some(0) && found["tolerance"]["rtol"].as_f64() == Some(1e-3));
    assert!(done(&["verify", DIGITS]).trim_end().ends_with("ok"));
    assert!(done(&["verify", DIGITS, "--against", "cpu"]).trim_end().ends_with("ok"));
    assert!(failed(1, &["verify", DIGITS, "--against", "tpu"]).contains("no backend"));
    // Nothing computes in f32 without any error: a tolerance of nothing must find where it starts.
    let output = rlx(&["verify", DIGITS, "--rtol", "0", "--atol", "0", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let found: Json = serde_json::from_str(&out(&output)).unwrap();
    let first = &found["first_divergence"];
    assert!(found["ok"] == false && first["node"].is_string() && first["op"].is_string(), "{found}");
}

#[test]
#[cfg(feature = "vulkan")]
fn verify_compares_vulkan_with_the_cpu() {
    if !has_vulkan() {
        return;
    }
    let args = ["verify", DIGITS, "--device", "vulkan", "--against", "cpu"];
    assert!(done(&args).trim_end().ends_with("ok"));
    let strict = [&args[..], &["--rtol", "0", "--atol", "0", "--json"]].concat();
    let found: Json = serde_json::from_str(&out(&rlx(&strict))).unwrap();
    let first = &found["first_divergence"];
    assert!(found["ok"] == false && first["node"].is_string() && first["op"].is_string(), "{found}");
}

/// Vulkan has no f64: `Sin` of it is the CPU's, if it may.
#[test]
#[cfg(feature = "vulkan")]
fn the_cpu_runs_what_vulkan_cannot_if_it_may() {
    use rlx_onnx::testing::{FLOAT, int, model, node, value, with};
    if !has_vulkan() {
        return;
    }
    const DOUBLE: i32 = 11;
    let nodes = [
        node("Relu", &["x"], &["positive"]),
        with(node("Cast", &["positive"], &["wide"]), int("to", DOUBLE.into())),
        node("Sin", &["wide"], &["sine"]),
        with(node("Cast", &["sine"], &["narrow"]), int("to", FLOAT.into())),
        node("Neg", &["narrow"], &["y"]),
    ];
    let proto = model(&[value("x", FLOAT, &["4"])], &nodes, &[], &[value("y", FLOAT, &["4"])]);
    let folder = scratch("fallback");
    let (file, x, y) = (folder.join("sine.onnx"), folder.join("x.npy"), folder.join("y.npy"));
    std::fs::write(&file, prost::Message::encode_to_vec(&proto)).expect("a file is written");
    let given = ConstData::from_f32(&[4], &[-1.0, 0.5, 1.0, 2.0]).expect("a tensor");
    std::fs::write(&x, rlx_weights::npy::to_bytes(&given).expect("an array")).expect("a file is written");

    let device = ["--device", "vulkan"];
    let run = [&["run", text(&file), text(&x), "--outputs", text(&y)], &device[..]].concat();
    let refused = failed(1, &run);
    assert!(refused.contains("no kernel for Cast : [4] f64"), "{refused}");
    assert!(
        refused.contains("; nor for 1 Activation, 1 Cast") && refused.contains("--cpu-fallback"),
        "{refused}"
    );
    done(&[&run[..], &["--cpu-fallback"]].concat());
    let found = rlx_weights::npy::read(&y).expect("outputs are written");
    let want = [0.0, 0.5f64, 1.0, 2.0].map(|x| -x.sin() as f32);
    assert!(
        found.as_f32().expect("floats").iter().zip(want).all(|(a, b)| (a - b).abs() <= 1e-6),
        "{found:?}"
    );

    let inspect = [&["inspect", text(&file), "--cpu-fallback", "--json"], &device[..]].concat();
    let parts = json(&inspect)["split"]["parts"].clone();
    let devices: Vec<&str> =
        parts.as_array().expect("parts").iter().filter_map(|part| part["device"].as_str()).collect();
    assert!(["CPU", "Vulkan"].iter().all(|device| devices.contains(device)), "{devices:?}");
}

/// Whether there is Vulkan here; a machine that names it must have it.
#[cfg(feature = "vulkan")]
fn has_vulkan() -> bool {
    let Some(missing) = rlx_runtime::unavailable_reason(rlx_runtime::Device::Vulkan) else { return true };
    let required = std::env::var("RLX_TEST_DEVICES").unwrap_or_default();
    assert!(!required.contains("vulkan"), "RLX_TEST_DEVICES names vulkan: {missing}");
    println!("@skip 1 vulkan: {missing}");
    false
}

#[test]
#[cfg(feature = "vulkan")]
fn the_steps_of_a_model_are_tuned_on_vulkan() {
    if !has_vulkan() {
        return;
    }
    let cache = scratch("tune-vulkan");
    let tune = |more: &[&str]| -> Json {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rlx"));
        command.args(["tune", DIGITS, "--dim", "batch=4", "--device", "vulkan", "--json"]).args(more);
        let output = command.current_dir(folder()).env("RLX_CACHE_DIR", &cache).output().expect("it starts");
        assert!(output.status.success(), "{}", err(&output));
        serde_json::from_str(&out(&output)).expect("one JSON value")
    };
    let late = tune(&["--limit", "0.000001ms"]);
    let left = late["out_of_time"].as_u64();
    assert!(left > Some(0) && late["measured"] == 0, "{late}");
    let report = tune(&["--limit", "0"]);
    assert_eq!(report["measured"].as_u64(), left, "{report}");
    let steps = report["steps"].as_array().expect("steps");
    assert!(steps.iter().all(|step| step["tried"].as_u64() > Some(1)), "{report}");
    assert!(steps.iter().all(|step| step["times"][0]["variant"] == step["default"]), "{report}");
    assert!(report["stored"].as_str().is_some_and(|path| path.contains("vulkan-")), "{report}");
    let again = tune(&[]);
    assert_eq!((again["measured_earlier"].as_u64(), again["measured"].as_u64()), (left, Some(0)), "{again}");
}

#[test]
fn help_teaches_with_examples() {
    for args in [
        &["--help"][..],
        &["run", "--help"],
        &["inspect", "--help"],
        &["verify", "--help"],
        &["bench", "--help"],
        &["tune", "--help"],
    ] {
        assert!(done(args).contains("Example"), "{args:?}");
    }
    let long = done(&["--help"]);
    assert!(
        ["RLX_NUM_THREADS", "RLX_CPU_ISA", "RLX_DEVICE", "Exit codes"].iter().all(|p| long.contains(p)),
        "{long}"
    );
}
