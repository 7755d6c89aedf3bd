//! Valid and invalid invocations of the command, from a table: arguments, exit code, and the first line of the output. None
//! may panic or hang.
//!
//! The table is `tests/uses.txt`. `RLX_UPDATE_SNAPSHOTS=1 cargo test -p rlx --test uses` updates the lines that no
//! longer match; review the changes before committing.

#![cfg(target_os = "linux")]

mod common;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use common::{FLOAT, Folder, INT64, model, node, value, weight};
use rlx_ir::ConstData;

/// No use takes as long, even where many run at one time on a busy machine.
const LONGEST: Duration = Duration::from_secs(60);

fn table() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/uses.txt")
}

/// A line of the table.
#[derive(Debug, Clone)]
struct Use {
    code: i32,
    /// Variables before the arguments, then the arguments.
    words: String,
    /// `*` matches anything.
    says: String,
}

impl Use {
    fn parse(line: &str) -> Use {
        let mut columns = line.splitn(3, " | ");
        let mut column = || columns.next().unwrap_or_else(|| panic!("three columns: {line}")).trim();
        let code = column().parse().expect("an exit code");
        Use { code, words: column().to_owned(), says: column().to_owned() }
    }
}

/// Whether `text` is what `pattern` says, in which `*` matches anything.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// What the uses work on.
fn folder() -> Folder {
    let folder = Folder::new("uses");
    let from = rlx_testdata::models::folder().join("digits");
    for (file, name) in [
        ("digits.onnx", "digits.onnx"),
        ("labels.txt", "labels.txt"),
        ("golden.npz", "golden.npz"),
        ("samples/0_a.png", "0.png"),
        ("samples/1_a.png", "1.png"),
    ] {
        std::fs::copy(from.join(file), folder.path().join(name)).expect("a model's file");
    }
    models(&folder);
    let digits = std::fs::read(from.join("digits.onnx")).expect("the model is committed");
    folder.write("cut.onnx", &digits[..digits.len() / 2]);
    folder.write("empty.onnx", "");
    folder.write("noise.onnx", [0xff; 64]);
    for (name, bytes) in [
        ("m.tflite", b"\x1c\0\0\0TFL3........".as_slice()),
        ("m.gguf", b"GGUF\x03\0\0\0"),
        ("m.pt", b"PK\x03\x04....archive/data.pkl"),
        ("m.pth", b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46"),
        ("script.pt", b"PK\x03\x04....archive/constants.pkl archive/data.pkl"),
        ("m.safetensors", b"\x02\0\0\0\0\0\0\0{}"),
        ("m.h5", b"\x89HDF\r\n\x1a\n"),
        ("m.keras", b"PK\x03\x04....model.weights.h5"),
        ("m.pdmodel", b"\x0a\x01"),
        ("m.mlmodel", b"\x08\x01"),
        ("m.pb", b"\x0a\x01"),
        ("renamed.onnx", b"GGUF\x03\0\0\0"),
        ("page.onnx", b"<!DOCTYPE html><html></html>"),
        ("lfs.onnx", b"version https://git-lfs.github.com/spec/v1\n"),
        ("m.rlx", b"damaged"),
        ("m.engine", b"ftrt\0\0\0\0"),
        ("m.xml", b"<?xml version=\"1.0\"?><net name=\"m\">"),
    ] {
        folder.write(name, bytes);
    }
    folder.write("w.gguf", gguf());
    inputs(&folder);
    for name in ["nothing", "saved", "models", "images", "config"] {
        std::fs::create_dir(folder.path().join(name)).expect("a folder");
    }
    folder.write("saved/saved_model.pb", "");
    folder.write("config/config.json", "{}");
    folder.write("images/a.png", "no image");
    std::fs::copy(folder.path().join("relu.onnx"), folder.path().join("models/relu.onnx")).expect("a copy");
    std::os::unix::fs::symlink("relu.onnx", folder.path().join("link.npz")).expect("a link");
    std::os::unix::fs::symlink("loop.onnx", folder.path().join("loop.onnx")).expect("a link");
    std::os::unix::fs::symlink("missing.onnx", folder.path().join("dangling.onnx")).expect("a link");
    std::fs::hard_link(folder.path().join("relu.onnx"), folder.path().join("hard.npz")).expect("a link");
    folder
}

fn models(folder: &Folder) {
    let x = || value("x", FLOAT, &["n", "m"]);
    let relu = |op: &str| model(&[x()], &[node(op, &["x"], &["y"])], &[], &[value("y", FLOAT, &["n", "m"])]);
    folder.write("relu.onnx", relu("Relu"));
    folder.write("unknown.onnx", relu("Frobnicate"));
    let two = [node("Relu", &["x"], &["y"]), node("Neg", &["x"], &["z"])];
    let outputs = [value("y", FLOAT, &["n", "m"]), value("z", FLOAT, &["n", "m"])];
    folder.write("two.onnx", model(&[x()], &two, &[], &outputs));
    let sum = [value("a", INT64, &["n"]), value("b", INT64, &["n"])];
    let add = [node("Add", &["a", "b"], &["c"])];
    folder.write("sum.onnx", model(&sum, &add, &[], &[value("c", INT64, &["n"])]));
    let product = [node("MatMul", &["x", "w"], &["y"])];
    let w = weight("w", &[3, 2], &[1.0; 6]);
    folder.write("product.onnx", model(&[x()], &product, &[w], &[value("y", FLOAT, &["n", "k"])]));
    let image = [value("image", FLOAT, &["n", "1", "h", "w"])];
    let same = [node("Relu", &["image"], &["y"])];
    folder.write("image.onnx", model(&image, &same, &[], &[value("y", FLOAT, &["n", "1", "h", "w"])]));
    photos(folder);
    let negative = [node("Neg", &["x"], &["y"])];
    folder.write("negative.onnx", model(&[x()], &negative, &[], &[value("y", FLOAT, &["n", "m"])]));
    let mut newest = rlx_onnx::testing::model(&[x()], &two[..1], &[], &outputs[..1]);
    newest.opset_import[0].version = Some(99);
    folder.write("newest.onnx", prost::Message::encode_to_vec(&newest));
}

/// Models that take photographs, with what they declare of them.
fn photos(folder: &Folder) {
    let dims = ["1", "3", "8", "8"];
    let same = |dtype: i32| {
        let nodes = [node("Identity", &["x"], &["y"])];
        rlx_onnx::testing::model(&[value("x", dtype, &dims)], &nodes, &[], &[value("y", dtype, &dims)])
    };
    let plain = prost::Message::encode_to_vec(&same(FLOAT));
    folder.write("photo.onnx", &plain);
    folder.write("bytes.onnx", prost::Message::encode_to_vec(&same(2)));
    let mut yolo = same(FLOAT);
    for (key, value) in [("imgsz", "[8, 8]"), ("stride", "32"), ("task", "detect")] {
        let (key, value) = (Some(key.to_owned()), Some(value.to_owned()));
        yolo.metadata_props.push(rlx_onnx::proto::StringStringEntryProto { key, value });
    }
    folder.write("yolo.onnx", prost::Message::encode_to_vec(&yolo));
    for (name, config) in [
        (
            "hf",
            r#"{"image_processor_type": "ViTImageProcessor", "do_resize": true, "size": {"height": 8, "width": 8}, "resample": 3,
                "do_rescale": true, "rescale_factor": 0.00392156862745098, "do_normalize": true,
                "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}"#,
        ),
        (
            "tiles",
            r#"{"image_processor_type": "Idefics3ImageProcessor", "do_resize": true, "do_image_splitting": true}"#,
        ),
    ] {
        std::fs::create_dir_all(folder.path().join(name)).expect("a folder");
        folder.write(&format!("{name}/photo.onnx"), &plain);
        folder.write(&format!("{name}/preprocessor_config.json"), config);
    }
    let pictures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/image/pictures");
    let read = |name: &str| std::fs::read(pictures.join(name)).expect("a committed picture");
    folder.write("photo.webp", read("rgba.webp"));
    folder.write("turned.jpg", read("turned6.jpg"));
    let photo = read("420.jpg");
    folder.write("cut.jpg", &photo[..photo.len() / 2]);
    folder.write("photo.jpg", photo);
    let mut huge = read("grey.jpg");
    let frame = huge.windows(2).position(|w| w == [0xff, 0xc0]).expect("a frame header");
    huge[frame + 5..frame + 9].copy_from_slice(&[0xff; 4]);
    folder.write("huge.jpg", huge);
    let bytes = ConstData::new(rlx_ir::DType::U8, &[1, 3, 8, 8], vec![7; 192]).expect("bytes");
    folder.write("bytes.npy", rlx_weights::npy::to_bytes(&bytes).expect("an array"));
}

/// A GGUF file of a tensor.
fn gguf() -> Vec<u8> {
    let counts = [3u32.to_le_bytes().to_vec(), 1u64.to_le_bytes().to_vec(), 0u64.to_le_bytes().to_vec()];
    let name = [&1u64.to_le_bytes()[..], b"w"].concat();
    let dims = [&2u32.to_le_bytes()[..], &32u64.to_le_bytes(), &2u64.to_le_bytes()].concat();
    let data = [&2u32.to_le_bytes()[..], &0u64.to_le_bytes()].concat();
    [b"GGUF".to_vec(), counts.concat(), name, dims, data, vec![0; 64]].concat()
}

fn inputs(folder: &Folder) {
    let x = ConstData::from_f32(&[2, 3], &[1.0, -2.5, 3.0, 1e-30, 0.1, -0.0]).expect("six numbers");
    folder.write("x.npy", rlx_weights::npy::to_bytes(&x).expect("an array"));
    folder.write("x.npz", rlx_weights::npz::to_bytes(&[("x", &x)]).expect("an archive"));
    folder.write("twice.npz", rlx_weights::npz::to_bytes(&[("x", &x), ("x", &x)]).expect("an archive"));
    folder.write("other.npz", rlx_weights::npz::to_bytes(&[("z", &x)]).expect("an archive"));
    let y = |last: f32| {
        let y = ConstData::from_f32(&[2, 3], &[1.0, 0.0, 3.0, 0.0, last, 0.0]).expect("six numbers");
        rlx_weights::npz::to_bytes(&[("y", &y)]).expect("an archive")
    };
    folder.write("y-right.npz", y(0.1));
    folder.write("y-wrong.npz", y(0.2));
    for (name, text) in [
        ("x.json", "[[1, 2], [3, 4]]"),
        ("ragged.json", "[[1, 2], [3]]"),
        ("words.json", "[\"one\"]"),
        ("half.json", "[0.5]"),
        ("cut.json", "[[1, 2], [3"),
        ("lines.jsonl", "[[1, 2]]\n\n{\"x\": [[3]]}\n"),
        ("bad.jsonl", "[[1, 2]]\nnonsense\n{\"x\": [[1]], \"x\": [[2]]}\n{\"y\": 1}\n"),
        ("text.txt", "hello"),
        ("cut.npy", "\u{93}NUMPY"),
        ("cut.npz", "PK\u{3}\u{4}"),
        ("cut.png", "\u{89}PNG"),
    ] {
        folder.write(name, text);
    }
    folder.write("deep.json", "[".repeat(100_000));
    folder.write("deep.jsonl", "[".repeat(100_000));
    folder.write("long.json", format!("[[0{}]]", ",0".repeat(2000)));
    folder.write("huge.npy", huge_array());
    folder.write("huge.png", huge_image());
}

/// An array of a header alone, which claims 3.6 GB.
fn huge_array() -> Vec<u8> {
    let header = format!("{:<117}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (30000, 30000), }");
    [b"\x93NUMPY\x01\x00".as_slice(), &118u16.to_le_bytes(), header.as_bytes()].concat()
}

/// The start of a grey image of 30,000 × 30,000 points; what is claimed there is checked before what follows is read.
fn huge_image() -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let side = 30_000u32.to_be_bytes();
    for (kind, data) in [(b"IHDR", [&side[..], &side, &[8, 0, 0, 0, 0]].concat()), (b"IDAT", vec![0; 64])] {
        file.extend((data.len() as u32).to_be_bytes());
        let body = [kind.as_slice(), &data].concat();
        file.extend(&body);
        file.extend(crc(&body).to_be_bytes());
    }
    file
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |c, _| if c & 1 == 1 { (c >> 1) ^ 0xEDB8_8320 } else { c >> 1 })
    })
}

/// `\xff` in the table is that byte.
fn word(text: &str) -> OsString {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\\x") {
        bytes.extend(before.as_bytes());
        bytes.push(u8::from_str_radix(&after[..2], 16).expect("two digits"));
        rest = &after[2..];
    }
    bytes.extend(rest.as_bytes());
    OsString::from_vec(bytes)
}

/// The command of a line of the table: `NAME=VALUE` before the first argument are variables, `< FILE` is its input, and
/// `> FILE` its output.
fn command(folder: &Folder, words: &str) -> Command {
    let mut command = folder.command(&[]);
    let mut words = words.split_whitespace().peekable();
    while let Some(variable) = words.next_if(|w| w.starts_with("RLX_") && w.contains('=')) {
        let (name, value) = variable.split_once('=').expect("a value");
        command.env(name, word(value));
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    while let Some(text) = words.next() {
        let mut file = || folder.path().join(words.next().expect("a file"));
        match text {
            "<" => command.stdin(std::fs::File::open(file()).expect("the file is there")),
            ">" => {
                command.stdout(std::fs::File::options().write(true).open(file()).expect("it can be written"))
            }
            _ => command.arg(word(text)),
        };
    }
    command
}

/// Runs a use: its exit code, and the first line that it says, on standard error or else on standard output.
fn run(folder: &Folder, line: &Use) -> (i32, String) {
    let mut child = command(folder, &line.words).spawn().expect("the command starts");
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let text = |stream: Option<&mut dyn std::io::Read>| {
        let mut bytes = Vec::new();
        if let Some(stream) = stream {
            stream.read_to_end(&mut bytes).expect("its output");
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (status, out, err) = std::thread::scope(|scope| {
        let out = scope.spawn(|| text(out.as_mut().map(|o| o as &mut dyn std::io::Read)));
        let err = scope.spawn(|| text(err.as_mut().map(|e| e as &mut dyn std::io::Read)));
        let status = wait(&mut child, &line.words);
        (status, out.join().expect("text"), err.join().expect("text"))
    });
    assert!(!err.contains("panicked"), "{}: {err}", line.words);
    let code = status.code().unwrap_or_else(|| panic!("{}: {status}", line.words));
    let first = |text: &str| text.lines().find(|l| !l.trim().is_empty()).map(str::to_owned);
    (code, first(&err).or_else(|| first(&out)).unwrap_or_default().trim().to_owned())
}

fn wait(child: &mut std::process::Child, words: &str) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        if start.elapsed() > LONGEST {
            child.kill().expect("it can be ended");
            panic!("{words}: it does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn uses_end_as_the_table_says() {
    let folder = folder();
    let text = std::fs::read_to_string(table()).expect("the table is committed");
    let uses: Vec<Use> =
        text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).map(Use::parse).collect();
    assert!(uses.len() >= 100, "{} uses", uses.len());
    let (todo, found) = (Mutex::new(0..uses.len()), Mutex::new(vec![None; uses.len()]));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some(at) = todo.lock().expect("no panic").next() else { break };
                    let did = run(&folder, &uses[at]);
                    found.lock().expect("no panic")[at] = Some(did);
                }
            });
        }
    });
    let found = found.into_inner().expect("no panic");
    let mut wrong = String::new();
    let mut again = text.clone();
    for (line, did) in uses.iter().zip(found) {
        let (code, says) = did.expect("every use ran");
        let holds = code == line.code && matches(&line.says, &says);
        if !holds {
            wrong += &format!(
                "rlx {}\n  table: {} | {}\n  is:    {code} | {says}\n",
                line.words, line.code, line.says
            );
            let (old, new) = (
                format!("{} | {} | {}", line.code, line.words, line.says),
                format!("{code} | {} | {says}", line.words),
            );
            again = again.replace(&old, &new);
        }
    }
    if std::env::var_os("RLX_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(table(), again).expect("the table can be written");
        return;
    }
    assert!(wrong.is_empty(), "{wrong}");
}
