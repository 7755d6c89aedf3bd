//! `--cache`: it never returns another model, does not use folders that others can write to, and if it is not
//! writable the run continues.

mod common;

use std::path::Path;
use std::time::Duration;

use common::{FLOAT, Folder, external, model, node, value};
use rlx::Runner;
use rlx_ir::ConstData;
use rlx_onnx::proto::attribute_proto::AttributeType;
use rlx_onnx::proto::{AttributeProto, NodeProto};
use rlx_onnx::testing::{attr, body, graph, weight, with};
use rlx_runtime::{AotCache, CompileOptions, Device, Session};

const BOOL: i32 = 9;

/// Elements of the data beside the models: so many that the file is mapped, not copied.
const MANY: usize = 300_000;

/// A constant whose data is in `w.bin`.
fn constant(name: &str, dims: &[i64]) -> NodeProto {
    let tensor = AttributeProto {
        t: Some(Box::new(external(name, dims, "w.bin"))),
        ..attr("value", AttributeType::Tensor)
    };
    with(node("Constant", &[], &[name]), tensor)
}

/// Models of `x: f32[4]` and what gives them the rest, all of which read `w.bin`: in constants, and in bodies.
fn models() -> Vec<(&'static str, Vec<u8>)> {
    let (x, y) = (value("x", FLOAT, &["4"]), value("y", FLOAT, &["4"]));
    let add = || node("Add", &["x", "w"], &["y"]);
    let choice = |name: &str, nodes: &[NodeProto], weights: &[_]| {
        body(name, graph(&[], nodes, weights, &[value("y", FLOAT, &["4"])]))
    };
    // What a loop carries is its sum; the condition stays true.
    let sum = graph(
        &[value("i", 7, &[]), value("go", BOOL, &[]), value("s", FLOAT, &["4"])],
        &[constant("w", &[4]), node("Add", &["s", "w"], &["t"]), node("Identity", &["go"], &["again"])],
        &[],
        &[value("again", BOOL, &[]), value("t", FLOAT, &["4"])],
    );
    let branches = |then: AttributeProto| {
        let otherwise = choice("else_branch", &[node("Identity", &["x"], &["y"])], &[]);
        with(with(node("If", &["go"], &["y"]), then), otherwise)
    };
    let (asked, trips) = (value("go", BOOL, &[]), value("n", 7, &[]));
    let inputs = [x.clone(), asked];
    let then_weight = choice("then_branch", &[add()], &[external("w", &[4], "w.bin")]);
    let then_constant = choice("then_branch", &[constant("w", &[4]), add()], &[]);
    let looped = with(node("Loop", &["n", "", "x"], &["y"]), body("body", sum));
    let outputs = [y.clone()];
    vec![
        ("initialiser", model(std::slice::from_ref(&x), &[add()], &[external("w", &[4], "w.bin")], &outputs)),
        ("constant", model(std::slice::from_ref(&x), &[constant("w", &[4]), add()], &[], &outputs)),
        ("branch", model(&inputs, &[branches(then_weight)], &[], &outputs)),
        ("constant of a branch", model(&inputs, &[branches(then_constant)], &[], &outputs)),
        ("constant of a loop", model(&[x, trips], &[looped], &[], &outputs)),
    ]
}

/// Data of as many elements.
fn data(element: f32, count: usize) -> Vec<u8> {
    element.to_le_bytes().repeat(count)
}

/// The output of a run with these arguments, and what was said on standard error.
fn run(folder: &Folder, more: &[&str]) -> (String, String) {
    let args = ["run", "m.onnx", "--json", "--input", "x=x.json"];
    let output = folder.rlx(&[&args[..], more].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{more:?}: {said}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    (report["outputs"][0]["values"].to_string(), said)
}

/// A folder with `m.onnx`, which adds a weight of its own, and its input.
fn adds(name: &str, weights: f32) -> Folder {
    let folder = Folder::new(name);
    folder.write("m.onnx", adding(weights));
    folder.write("x.json", "[0, 0, 0, 0]");
    folder
}

fn adding(weights: f32) -> Vec<u8> {
    let (x, y) = (value("x", FLOAT, &["4"]), value("y", FLOAT, &["4"]));
    model(&[x], &[node("Add", &["x", "w"], &["y"])], &[weight("w", &[4], &[weights; 4])], &[y])
}

const ONES: &str = "[1.0,1.0,1.0,1.0]";
const TWOS: &str = "[2.0,2.0,2.0,2.0]";

/// The names in the cache of compiled models.
fn kept(folder: &Folder) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path().join("cache/aot")).into_iter().flatten();
    entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn data_beside_the_model_counts_wherever_it_is_read() {
    for (i, (what, bytes)) in models().into_iter().enumerate() {
        for count in [4, MANY] {
            let folder = Folder::new(&format!("cache-data-{i}-{count}"));
            folder.write("m.onnx", &bytes);
            folder.write("x.json", "[0, 0, 0, 0]");
            folder.write("go.json", "true");
            folder.write("n.json", "1");
            let more: &[&str] = match what {
                "initialiser" | "constant" => &["--cache"],
                "constant of a loop" => &["--cache", "--input", "n=n.json"],
                _ => &["--cache", "--input", "go=go.json"],
            };
            for (element, right) in [(1.0, ONES), (2.0, TWOS)] {
                folder.write("w.bin", data(element, count));
                // So that the system's times tell what is written from now on.
                std::thread::sleep(Duration::from_millis(40));
                for _ in 0..2 {
                    assert_eq!(run(&folder, more).0, right, "{what}, {count}");
                }
            }
            assert_eq!(kept(&folder).len(), 2, "{what}: both were kept, and served the second runs");
        }
    }
}

/// What a runner of the model in this folder gives.
fn answer(runner: &mut Runner) -> Vec<f64> {
    let x = ConstData::from_f32(&[4], &[0.0; 4]).unwrap();
    runner.run(&[("x", &x)]).unwrap()[0].1.value().to_f64()
}

fn caching(folder: &Path) -> Runner {
    let model = rlx::Model::open(folder.join("m.onnx")).unwrap();
    let session = Session::try_new(Device::Cpu).unwrap();
    Runner::new(model, session, CompileOptions::default()).with_cache(AotCache::new(folder.join("aot")))
}

#[test]
fn a_model_that_was_compiled_is_not_loaded_from_the_cache_as_well() {
    let folder = adds("cache-once", 1.0);
    let mut runner = caching(folder.path());
    for (weights, right) in [(1.0, 1.0), (5.0, 5.0)] {
        // One graph is prepared all the time: what is set in it stays.
        runner.prepare(&[]).unwrap().compiled.set_param("w", &[weights; 4]);
        assert_eq!(answer(&mut runner), [right; 4]);
    }
    assert_eq!(AotCache::new(folder.path().join("aot")).entries().unwrap().len(), 1);
    // Another runner loads it, once also.
    let mut other = caching(folder.path());
    other.prepare(&[]).unwrap().compiled.set_param("w", &[7.0; 4]);
    assert_eq!(answer(&mut other), [7.0; 4]);
}

#[test]
fn a_model_that_changes_while_it_compiles_is_not_cached() {
    type Change = fn(&Folder);
    fn model_replaced(folder: &Folder) {
        folder.write("new", adding(2.0));
        std::fs::rename(folder.path().join("new"), folder.path().join("m.onnx")).unwrap();
    }
    fn model_overwritten(folder: &Folder) {
        folder.write("m.onnx", adding(2.0));
    }
    fn data_replaced(folder: &Folder) {
        folder.write("new", data(2.0, MANY));
        std::fs::rename(folder.path().join("new"), folder.path().join("w.bin")).unwrap();
    }
    fn data_overwritten(folder: &Folder) {
        folder.write("w.bin", data(2.0, MANY));
    }
    let beside = models().remove(1).1;
    let cases: [(&str, Change, &[u8]); 4] = [
        ("replaced", model_replaced, &adding(1.0)),
        ("overwritten", model_overwritten, &adding(1.0)),
        ("data-replaced", data_replaced, &beside),
        ("data-overwritten", data_overwritten, &beside),
    ];
    for (what, change, bytes) in cases {
        let folder = Folder::new(&format!("cache-{what}"));
        folder.write("m.onnx", bytes);
        folder.write("w.bin", data(1.0, MANY));
        std::thread::sleep(Duration::from_millis(40));
        let mut before = caching(folder.path());
        before.import(&[]).unwrap();
        change(&folder);
        // Compiled now, from what was read then; of data that was overwritten, either.
        let old = answer(&mut before);
        assert!(old == [1.0; 4] || what == "data-overwritten", "{what}: {old:?}");
        std::thread::sleep(Duration::from_millis(40));
        for _ in 0..2 {
            assert_eq!(answer(&mut caching(folder.path())), [2.0; 4], "{what}");
        }
    }
}

#[test]
fn an_unwritable_cache_is_a_warning() {
    let folder = adds("cache-nowhere", 1.0);
    let warned = |command: &mut std::process::Command, why: &str| {
        let output = command.output().expect("the command starts");
        let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && text.contains("y [4] f32: 1, 1, 1, 1"), "{text}{said}");
        assert!(said.contains("warning: the compiled model is not cached: ") && said.contains(why), "{said}");
    };
    let args = ["run", "m.onnx", "--input", "x=x.json", "--cache"];
    folder.write("file", "a file where the folder should be");
    for (place, why) in [("/proc/x", "/proc/x"), ("file", "file/aot"), ("/dev/null/x", "/dev/null/x")] {
        warned(folder.command(&args).env("RLX_CACHE_DIR", place), why);
    }
    // A user without a home: never the temporary folder unasked.
    let shared = folder.path().join("tmp");
    std::fs::create_dir(&shared).unwrap();
    let mut homeless = folder.command(&args);
    homeless
        .env_remove("RLX_CACHE_DIR")
        .env_remove("HOME")
        .env_remove("XDG_CACHE_HOME")
        .env("TMPDIR", &shared);
    warned(&mut homeless, "no folder for caches");
    assert_eq!(std::fs::read_dir(&shared).unwrap().count(), 0);
    homeless = folder.command(&["cache", "ls"]);
    homeless.env_remove("RLX_CACHE_DIR").env_remove("HOME").env_remove("XDG_CACHE_HOME");
    let output = homeless.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("help: set RLX_CACHE_DIR"));
    // For programs, the warning is JSON.
    let output =
        folder.command(&[&args[..], &["--json"]].concat()).env("RLX_CACHE_DIR", "/proc/x").output().unwrap();
    let warning: serde_json::Value = serde_json::from_slice(&output.stderr).expect("one JSON value");
    assert_eq!(warning["warning"]["message"], "the compiled model is not cached");
}

#[cfg(unix)]
#[test]
fn a_folder_of_others_or_that_others_may_write_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let folder = adds("cache-others", 1.0);
    assert_eq!(run(&folder, &["--cache"]), (ONES.to_owned(), String::new()));
    let aot = folder.path().join("cache/aot");
    let mode = |mode| std::fs::set_permissions(&aot, std::fs::Permissions::from_mode(mode)).unwrap();
    let owned = std::fs::metadata(&aot).unwrap().permissions().mode();
    assert_eq!(owned & 0o777, 0o700, "what the command makes is the user's alone");
    let entry = aot.join(&kept(&folder)[0]);
    let used = || std::fs::metadata(&entry).unwrap().modified().unwrap();
    let before = used();
    let rejected = |why: &str| {
        let (right, said) = run(&folder, &["--cache"]);
        assert_eq!(right, ONES);
        assert!(said.contains(why) && said.contains("not cached"), "{said}");
        assert_eq!((used(), kept(&folder).len()), (before, 1), "the entry was neither used nor replaced");
        for args in [&["cache", "ls"][..], &["cache", "rm", "--all"]] {
            let output = folder.rlx(args);
            assert_eq!(output.status.code(), Some(1));
            assert!(String::from_utf8_lossy(&output.stderr).contains(why));
        }
        let doctor = String::from_utf8_lossy(&folder.rlx(&["doctor"]).stdout).into_owned();
        assert!(doctor.contains("not used: ") && doctor.contains(why), "{doctor}");
    };
    for others in [0o777, 0o720, 0o702, 0o1777] {
        mode(others);
        rejected("may be written by other users");
    }
    mode(0o700);
    // Only root can give folders away; what is asked of owners is tested with `rlx_ir::files`.
    if std::os::unix::fs::chown(&aot, Some(54_321), None).is_ok() {
        rejected("belongs to another user");
        std::os::unix::fs::chown(&aot, Some(0), None).unwrap();
    }
    // A link leads where its owner likes; one of the user's own is fine.
    let elsewhere = folder.path().join("elsewhere");
    std::fs::rename(&aot, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &aot).unwrap();
    assert_eq!(run(&folder, &["--cache"]), (ONES.to_owned(), String::new()));
    assert!(used() > before);
    if std::os::unix::fs::lchown(&aot, Some(54_321), None).is_ok() {
        assert!(run(&folder, &["--cache"]).1.contains("belongs to another user"));
    }
}

#[test]
fn files_of_killed_writers_are_removed_by_the_next_one() {
    let folder = adds("cache-killed", 1.0);
    std::fs::create_dir_all(folder.path().join("cache/aot")).unwrap();
    // Of a writer of another model, too; of an older version, too.
    for left in ["cache/aot/.other.0123456789abcdef.part", "cache/aot/.m.12-3.part"] {
        folder.write(left, "half");
    }
    let [own, other] = [".out.npz.0123456789abcdef.part", ".else.npz.0123456789abcdef.part"];
    folder.write(own, "half");
    folder.write(other, "half");
    run(&folder, &["--cache", "--outputs", "out.npz"]);
    assert!(kept(&folder).iter().all(|name| name.ends_with(".rlx")), "{:?}", kept(&folder));
    // Besides outputs, the command may remove only temporary files of the same file.
    let names = folder.names();
    assert!(!names.contains(&own.to_owned()) && names.contains(&other.to_owned()), "{names:?}");
    assert!(names.contains(&"out.npz".to_owned()));
}
