//! The messages for ten common mistakes, from the command and from the library, compared word for word with
//! `tests/errors/`. Each must say what to do.
//!
//! `RLX_UPDATE_SNAPSHOTS=1 cargo test --workspace --test errors` updates them; review the changes before committing.

mod common;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use common::{FLOAT, Folder, INT64, external, model, node, value, weight};
use rlx::prelude::*;

/// A mistake: how it is made with the command, and with the library.
struct Mistake {
    name: &'static str,
    args: &'static [&'static str],
    library: fn(&Path) -> Error,
}

const MISTAKES: &[Mistake] = &[
    Mistake {
        name: "wrong-shape",
        args: &["run", "linear.onnx", "--input", "image=narrow.json"],
        library: |at| run(at, "linear.onnx", &[("image", floats(&[1, 3]))]),
    },
    Mistake {
        name: "wrong-dtype",
        args: &["run", "sum.onnx", "--input", "input_ids=halves.json", "--input", "attention_mask=ids.json"],
        library: |at| run(at, "sum.onnx", &[("input_ids", floats(&[1, 2])), ("attention_mask", ids())]),
    },
    Mistake {
        name: "missing-input",
        args: &["run", "sum.onnx", "--input", "input_ids=ids.json"],
        library: |at| run(at, "sum.onnx", &[("input_ids", ids())]),
    },
    Mistake {
        name: "misspelt-name",
        args: &["run", "sum.onnx", "--input", "input_idz=ids.json"],
        library: |at| run(at, "sum.onnx", &[("input_idz", ids()), ("attention_mask", ids())]),
    },
    Mistake {
        name: "external-data-missing",
        args: &["run", "split.onnx", "--input", "image=random"],
        library: |at| run(at, "split.onnx", &[("image", floats(&[1, 4]))]),
    },
    Mistake {
        name: "unsupported-op",
        args: &["run", "acme.onnx", "--input", "x=random"],
        library: |at| run(at, "acme.onnx", &[("x", floats(&[3]))]),
    },
    Mistake {
        name: "truncated-file",
        args: &["inspect", "cut.onnx"],
        library: |at| Model::open(at.join("cut.onnx")).unwrap_err(),
    },
    Mistake {
        name: "device-absent",
        args: &["run", "linear.onnx", "--input", "image=random", "--device", "cuda"],
        library: |_| Session::try_new(Device::Cuda).unwrap_err(),
    },
    Mistake {
        name: "out-of-memory",
        args: &[
            "run",
            "outer.onnx",
            "--dim",
            "n=10000000",
            "--dim",
            "m=10000000",
            "--input",
            "x=random",
            "--input",
            "y=random",
        ],
        library: |at| {
            let long = 10_000_000;
            run(at, "outer.onnx", &[("x", floats(&[long, 1])), ("y", floats(&[1, long]))])
        },
    },
    Mistake {
        name: "bad-dimension",
        args: &["run", "linear.onnx", "--input", "image=random", "--dim", "batc=8"],
        library: |at| {
            let model = Model::open(at.join("linear.onnx")).unwrap();
            model.try_with_dims([("batc".to_owned(), 8)]).unwrap_err()
        },
    },
];

fn floats(dims: &[usize]) -> ConstData {
    ConstData::from_f32(dims, &vec![0.5; dims.iter().product()]).unwrap()
}

fn ids() -> ConstData {
    ConstData::new(DType::I64, &[1, 2], [1i64, 2].iter().flat_map(|i| i.to_le_bytes()).collect::<Vec<_>>())
        .unwrap()
}

/// The error of a run that must fail.
fn run(folder: &Path, file: &str, inputs: &[(&str, ConstData)]) -> Error {
    let inputs: Vec<(&str, &ConstData)> = inputs.iter().map(|(name, data)| (*name, data)).collect();
    let runner = Runner::open(folder.join(file));
    runner.and_then(|mut r| r.run(&inputs)).expect_err("a mistake")
}

fn write_models(folder: &Folder) {
    let product = || node("MatMul", &["image", "weight"], &["scores"]);
    let image = || value("image", FLOAT, &["batch", "4"]);
    let scores = || value("scores", FLOAT, &["batch", "2"]);
    let weight = weight("weight", &[4, 2], &[0.5; 8]);
    let linear = model(&[image()], &[product()], &[weight], &[scores()]);
    folder.write("cut.onnx", &linear[..linear.len() * 2 / 3]);
    folder.write("linear.onnx", linear);
    let split = external("weight", &[4, 2], "split.onnx.data");
    folder.write("split.onnx", model(&[image()], &[product()], &[split], &[scores()]));
    let tokens = |name: &str| value(name, INT64, &["batch", "seq"]);
    let sum = node("Add", &["input_ids", "attention_mask"], &["sum"]);
    folder.write(
        "sum.onnx",
        model(&[tokens("input_ids"), tokens("attention_mask")], &[sum], &[], &[tokens("sum")]),
    );
    let mut acme = node("FancyAttention", &["x"], &["y"]);
    acme.domain = Some("com.acme".to_owned());
    let three = |name: &str| value(name, FLOAT, &["3"]);
    folder.write("acme.onnx", model(&[three("x")], &[acme], &[], &[three("y")]));
    let outer = node("MatMul", &["x", "y"], &["z"]);
    let (x, y) = (value("x", FLOAT, &["n", "1"]), value("y", FLOAT, &["1", "m"]));
    folder.write("outer.onnx", model(&[x, y], &[outer], &[], &[value("z", FLOAT, &["n", "m"])]));
    for (name, json) in [("narrow", "[[1, 2, 3]]"), ("halves", "[[1.5, 2]]"), ("ids", "[[1, 2]]")] {
        folder.write(&format!("{name}.json"), json);
    }
}

/// What the mistake's snapshot holds, with the folder's name out of it.
fn seen(mistake: &Mistake, folder: &Folder) -> String {
    let output = folder.rlx(mistake.args);
    let error = (mistake.library)(folder.path());
    assert!(error.hint().is_some(), "{}: {error} does not tell what to do", mistake.name);
    let mut text = format!("$ rlx {}\n", mistake.args.join(" "));
    text += &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("\n  help: "), "{text} does not tell what to do");
    assert!(output.stdout.is_empty(), "{text}");
    let code = output.status.code().expect("it ends by itself");
    write!(text, "exit code {code}\n\nThe library ({:?}):\n{error}\n", error.kind()).unwrap();
    text.replace(&*folder.path().to_string_lossy(), "FOLDER")
}

#[test]
fn ten_common_mistakes_are_answered_as_they_were() {
    let folder = Folder::new("errors");
    write_models(&folder);
    let snapshots = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/errors");
    let update = std::env::var_os("RLX_UPDATE_SNAPSHOTS").is_some();
    let mut differ = String::new();
    for mistake in MISTAKES {
        let (path, seen) = (snapshots.join(format!("{}.txt", mistake.name)), seen(mistake, &folder));
        if update {
            std::fs::write(&path, seen).unwrap();
            continue;
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default().replace("\r\n", "\n");
        if kept != seen {
            write!(differ, "--- {}, kept:\n{kept}\n--- now:\n{seen}\n", path.display()).unwrap();
        }
    }
    assert!(differ.is_empty(), "{differ}");
    assert_eq!(MISTAKES.len(), 10);
    let files = std::fs::read_dir(snapshots).unwrap().count();
    assert_eq!(files, MISTAKES.len(), "a snapshot that belongs to no mistake");
}
