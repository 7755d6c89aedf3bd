//! Models that take strings and give labels and maps, run, verified, timed and shown: scikit-learn's table of numbers and names, and encoders.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rlx_ir::ConstData;
use serde_json::{Value as Json, json};

fn model(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rlx-onnx/tests/classical");
    folder.join(format!("{name}.onnx")).display().to_string()
}

fn rlx(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rlx")).args(args).output().expect("the command starts")
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json_of(args: &[&str]) -> Json {
    let output = rlx(args);
    assert!(output.status.success(), "{args:?}: {}", err(&output));
    serde_json::from_slice(&output.stdout).expect("one JSON value")
}

/// A file in a folder of this test's own.
fn file(name: &str, contents: &[u8]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("rlx-values-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let path = folder.join(name);
    std::fs::write(&path, contents).expect("a file is written");
    path
}

#[test]
fn a_table_of_numbers_and_names_gives_labels_and_maps() {
    let numbers = ConstData::from_f32(&[2, 2], &[5.1, 3.5, 6.2, 2.9]).expect("a tensor");
    let numbers = file("n.npy", &rlx_weights::npy::to_bytes(&numbers).expect("an array"));
    let numbers = format!("n={}", numbers.display());
    let (table, listed) =
        (model("table_of_numbers_and_strings"), json!([["red"], ["no colour"]]).to_string());
    let (in_json, in_text) = (file("c.json", listed.as_bytes()), file("c.txt", b"red\nno colour\n"));
    let outputs = file("out.json", b"");
    let mut seen = Vec::new();
    for names in [in_json, in_text] {
        let names = format!("c={}", names.display());
        let args = ["run", &table, "--input", &numbers, "--input", &names];
        let found =
            json_of(&[&args[..], &["--json", "--outputs", outputs.to_str().expect("a text")]].concat());
        let [label, maps] = &found["outputs"].as_array().expect("a list")[..] else { panic!("{found}") };
        assert_eq!((label["dtype"].as_str(), &label["shape"]), (Some("string"), &json!([2])));
        assert_eq!(label["values"][0], "setosa");
        let probability = &maps["maps"][0]["setosa"];
        assert!(probability.as_f64().is_some_and(|p| p > 0.9), "{maps}");
        let written: Json =
            serde_json::from_slice(&std::fs::read(&outputs).expect("it is written")).expect("JSON");
        assert_eq!(written["output_label"], label["values"]);
        let text = rlx(&args);
        assert!(String::from_utf8_lossy(&text.stdout).starts_with("output_label [2] string: \"setosa\", "));
        seen.push(found["outputs"].clone());
    }
    assert_eq!(seen[0], seen[1], "lines of a text are rows of one column");
}

#[test]
fn tensors_beside_strings_may_be_random() {
    let names = format!("c={}", file("beside.json", b"[[\"red\"], [\"no colour\"]]").display());
    let table = model("table_of_numbers_and_strings");
    let random = ["run", &table, "--input", "n=random", "--dim", "n.0=2", "--input"];
    let found = json_of(&[&random[..], &[&names, "--json"]].concat());
    assert_eq!(found["outputs"][0]["shape"], json!([2]));
    for (input, message) in [
        ("c=random", "input \"c\" takes strings, which cannot be random"),
        ("n=random", "input \"n\" is given twice"),
    ] {
        let refused = rlx(&[&random[..], &[input]].concat());
        assert_eq!(refused.status.code(), Some(2), "{input}");
        assert!(err(&refused).contains(message), "{}", err(&refused));
    }
}

#[test]
fn strings_that_do_not_fit_say_how_they_are_given() {
    let numbers = ConstData::from_i64(&[1], &[8]).expect("a tensor");
    let numbers = rlx_weights::npy::to_bytes(&numbers).expect("an array");
    let (encoder, bad) = (model("label_encoder_strings"), file("bad.json", b"[[\"a\"], [\"b\", \"c\"]]"));
    let cases = [
        (bad, "a list of 2 beside one of 1"),
        (file("mixed.json", b"[\"a\", 3]"), "3 is no string at its place"),
        (file("x.csv", b""), "come from a .json, .txt or .npy file"),
        (file("x.npy", b""), "not an npy array"),
        (file("n8.npy", &numbers), "takes strings, and the array holds i64"),
    ];
    for (path, message) in cases {
        let output = rlx(&["run", &encoder, "--input", &format!("x={}", path.display())]);
        assert_eq!(output.status.code(), Some(1), "{}", err(&output));
        assert!(err(&output).contains(message), "{}", err(&output));
    }
    let missing = rlx(&["run", &encoder]);
    assert!(!missing.status.success() && err(&missing).contains("\"x\""), "{}", err(&missing));
    let unknown = rlx(&["run", &encoder, "--input", "y=a.txt"]);
    assert!(err(&unknown).contains("no input \"y\"; its inputs: x"), "{}", err(&unknown));
}

/// Strings in and out as NumPy stores them, in code points and in bytes; maps have no such form.
#[test]
fn strings_are_read_from_and_written_to_files_of_numpy() {
    use rlx_weights::npy::{Array, StringArray, any_from_bytes};
    let strings = |dims: &[usize], elements: &[&str]| StringArray {
        dims: dims.to_vec(),
        elements: elements.iter().map(|&s| s.to_owned()).collect(),
    };
    let colours = Array::Strings(strings(&[2, 1], &["red", "no colour"]));
    let numbers = ConstData::from_f32(&[2, 2], &[5.1, 3.5, 6.2, 2.9]).expect("a tensor");
    let all = [("c", &colours), ("n", &Array::Numbers(numbers))];
    let archive = file("strings.npz", &rlx_weights::npz::any_to_bytes(&all).expect("an archive"));
    let table = model("table_of_numbers_and_strings");
    let found = json_of(&["run", &table, "--inputs", archive.to_str().expect("a text"), "--json"]);
    assert_eq!(found["outputs"][0]["values"][0], "setosa");
    let maps = file("maps.npz", b"");
    let maps = maps.to_str().expect("a text");
    let output = rlx(&["run", &table, "--inputs", archive.to_str().expect("a text"), "--outputs", maps]);
    assert!(err(&output).contains("is maps, which are written as .json"), "{}", err(&output));

    let between = model("label_encoder_between_strings");
    let x =
        file("words.npy", &strings(&[2, 2], &["red", "green", "blue", "größe"]).to_npy().expect("an array"));
    let x = format!("x={}", x.display());
    let wanted = json_of(&["run", &between, "--input", &x, "--json"]);
    for name in ["y.npy", "y.npz"] {
        let out = file(name, b"");
        let text = out.to_str().expect("a text");
        let output = rlx(&["run", &between, "--input", &x, "--outputs", text]);
        assert!(output.status.success(), "{}", err(&output));
        let written = std::fs::read(&out).expect("it is written");
        let array = match name {
            "y.npy" => any_from_bytes(&written).expect("an array"),
            _ => rlx_weights::npz::any_from_bytes(&written).expect("an archive").remove(0).1,
        };
        let Array::Strings(array) = array else { panic!("{name}: numbers") };
        assert_eq!(json!(array.elements), wanted["outputs"][0]["values"]);
    }
    let few = ["run", &between, "--input", &x, "--input-limit", "8"];
    assert!(err(&rlx(&few)).contains("more than 8 bytes"), "{}", err(&rlx(&few)));
}

#[test]
fn what_takes_strings_is_verified_and_timed_and_shown() {
    use rlx_weights::npy::{Array, StringArray};
    let numbers = ConstData::from_f32(&[2, 2], &[5.1, 3.5, 6.2, 2.9]).expect("a tensor");
    let colours = ["red", "no colour"].map(str::to_owned).to_vec();
    let colours = Array::Strings(StringArray { dims: vec![2, 1], elements: colours });
    let all = [("c", &colours), ("n", &Array::Numbers(numbers))];
    let archive = file("verified.npz", &rlx_weights::npz::any_to_bytes(&all).expect("an archive"));
    let inputs = ["--inputs", archive.to_str().expect("a text"), "--json"];
    let table = model("table_of_numbers_and_strings");
    let with =
        |command: &'static str, more: &[&str]| json_of(&[&[command, &table], &inputs[..], more].concat());
    assert_eq!(with("verify", &[])["ok"], true);
    assert!(with("bench", &["--runs", "3"])["median_ms"].as_f64().is_some());
    assert_eq!(with("inspect", &[])["inputs"].as_array().map(Vec::len), Some(2));
    assert!(rlx(&["inspect", &table]).status.success());

    // Labels are compared as their positions among the classes, which are in order.
    let found = with("run", &[]);
    let maps = found["outputs"][1]["maps"].as_array().expect("maps").clone();
    let classes: Vec<&String> = maps[0].as_object().expect("a map").keys().collect();
    let labels = found["outputs"][0]["values"].as_array().expect("labels").clone();
    let codes = labels.iter().map(|l| classes.iter().position(|c| l == c.as_str()).expect("a class") as i64);
    let mut codes: Vec<i64> = codes.collect();
    let rows = maps.iter().flat_map(|map| classes.iter().map(|&c| map[c].as_f64().expect("a number") as f32));
    let rows = ConstData::from_f32(&[2, classes.len()], &rows.collect::<Vec<_>>()).expect("a tensor");
    let expected = |codes: &[i64]| {
        let codes = ConstData::from_i64(&[2], codes).expect("a tensor");
        let arrays = [("output_label", &codes), ("output_probability", &rows)];
        file("expected.npz", &rlx_weights::npz::to_bytes(&arrays).expect("an archive"))
    };
    let path = expected(&codes);
    let verify = ["verify", &table, inputs[0], inputs[1], "--expect", path.to_str().expect("a text")];
    assert!(rlx(&verify).status.success(), "{}", err(&rlx(&verify)));
    codes[1] += 1;
    expected(&codes);
    assert_eq!(rlx(&verify).status.code(), Some(1), "another label");

    // As text, for equality.
    let texts = |labels: Vec<String>| Array::Strings(StringArray { dims: vec![2], elements: labels });
    let own: Vec<String> = labels.iter().map(|l| l.as_str().expect("a label").to_owned()).collect();
    let rows = Array::Numbers(rows);
    let archived = |labels: Vec<String>| {
        let arrays = [("output_label", &texts(labels)), ("output_probability", &rows)];
        file("expected.npz", &rlx_weights::npz::any_to_bytes(&arrays).expect("an archive"))
    };
    archived(own.clone());
    let text = String::from_utf8_lossy(&rlx(&verify).stdout).into_owned();
    assert!(text.contains("2 equal strings") && text.trim_end().ends_with("ok"), "{text}");
    archived(vec![own[0].clone(), "no class".to_owned()]);
    let differs = rlx(&verify);
    let text = String::from_utf8_lossy(&differs.stdout);
    assert_eq!(differs.status.code(), Some(1), "{text}{}", err(&differs));
    assert!(text.contains("element 1: \"no class\" and "), "{text}");
    let alone = file("expected.npy", &rlx_weights::npy::any_to_bytes(&texts(own)).expect("an array"));
    let unnamed = rlx(&["verify", &table, inputs[0], inputs[1], "--expect", alone.to_str().expect("a text")]);
    assert!(err(&unnamed).contains("cannot be matched") && err(&unnamed).contains("output_label"));

    let missing = rlx(&["bench", &table, "--dim", "n.0=2"]);
    assert!(!missing.status.success() && err(&missing).contains("\"c\""), "{}", err(&missing));
}

#[test]
fn models_that_take_strings_are_compared() {
    let numbers = ConstData::from_f32(&[2, 2], &[5.1, 3.5, 6.2, 2.9]).expect("a tensor");
    let numbers = file("compared.npy", &rlx_weights::npy::to_bytes(&numbers).expect("an array"));
    let (numbers, names) = (
        format!("n={}", numbers.display()),
        format!("c={}", file("compared.json", b"[[\"red\"], [\"no colour\"]]").display()),
    );
    let table = model("table_of_numbers_and_strings");
    let given = ["--input", &numbers, "--input", &names];
    let compare = |other: &str| rlx(&[&["compare", &table, other], &given[..]].concat());
    let same = compare(&table);
    assert!(same.status.success(), "{}", err(&same));
    let text = String::from_utf8_lossy(&same.stdout);
    assert!(text.contains("2 equal strings") && text.trim_end().ends_with("ok"), "{text}");

    // Another name of a class, and another number beside it.
    let bytes = std::fs::read(&table).expect("the model is committed");
    let renamed: Vec<u8> = replaced(&bytes, b"setosa", b"sitosa");
    let renamed = file("renamed.onnx", &renamed);
    let differs = compare(renamed.to_str().expect("a text"));
    let text = String::from_utf8_lossy(&differs.stdout);
    assert_eq!(differs.status.code(), Some(1), "{text}{}", err(&differs));
    assert!(text.contains("element 0: \"setosa\" and \"sitosa\"  differs"), "{text}");
    let json = rlx(&[&["compare", &table, renamed.to_str().expect("a text"), "--json"], &given[..]].concat());
    let found: Json = serde_json::from_slice(&json.stdout).expect("one JSON value");
    let label = found["outputs"].as_array().expect("a list").iter().find(|o| o["name"] == "output_label");
    let label = label.expect("the label is compared");
    assert_eq!(
        (&label["ok"], &label["dtype"], &label["different"]),
        (&json!(false), &json!("string"), &json!(1))
    );
    let probability =
        found["outputs"].as_array().expect("a list").iter().find(|o| o["name"] == "output_probability");
    assert_eq!(probability.expect("numbers are compared")["ok"], true);

    let missing = rlx(&["compare", &table, &table, "--input", &numbers]);
    assert!(!missing.status.success() && err(&missing).contains("\"c\""), "{}", err(&missing));
    let other = compare(&model("label_encoder_strings"));
    assert!(err(&other).contains("2 inputs") && err(&other).contains("1 input"), "{}", err(&other));
}

/// All occurrences of some bytes replaced by as many others.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut all = bytes.to_vec();
    let places: Vec<usize> =
        (0..=bytes.len() - from.len()).filter(|&i| bytes[i..].starts_with(from)).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|i| all[i..i + to.len()].copy_from_slice(to));
    all
}

#[test]
fn what_takes_strings_is_not_compiled_and_says_why() {
    let out = file("table.rlx", b"");
    std::fs::remove_file(&out).expect("it is there");
    let table = model("table_of_numbers_and_strings");
    let refused = rlx(&["compile", &table, "-o", out.to_str().expect("a text")]);
    assert_eq!(refused.status.code(), Some(1), "{}", err(&refused));
    let why = err(&refused);
    assert!(why.contains("input \"c\" takes strings") && why.contains("rlx run"), "{why}");
    assert!(!out.exists(), "no file is left");
}
