//! Files that once made the importer or the compiler panic, hang, or report an internal error.

mod common;

use common::attempt;

#[test]
fn files_that_broke_it_once_are_rejected_or_run() {
    common::watch();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/hostile");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("the folder is there").flatten().map(|e| e.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "onnx"));
    paths.sort();
    let mut faults = Vec::new();
    for path in &paths {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        match attempt(&name, &std::fs::read(path).expect("a readable file")) {
            Ok(reached) => println!("{name}: {reached:?}"),
            Err(why) => faults.push(format!("{name}: {why}")),
        }
    }
    assert!(!paths.is_empty(), "no file was found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
