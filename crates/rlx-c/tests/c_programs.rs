//! Programs in C and C++ against the library: the examples, and one that misuses every call. Without a compiler they are skipped by
//! name; where `CI=true` that is a failure.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");
const MODEL: &str = "../../models/digits/digits.onnx";

/// The compiler, unless there is none.
fn compiler(variable: &str, usual: &str) -> Option<String> {
    let name = env::var(variable).unwrap_or_else(|_| usual.to_owned());
    if Command::new(&name).arg("--version").output().is_ok_and(|o| o.status.success()) {
        return Some(name);
    }
    let reason = format!("C programs: there is no `{name}` (${variable} names another compiler)");
    assert!(!rlx_testdata::in_ci(), "{reason}");
    println!("@skip 1 {reason}");
    None
}

/// Where cargo put the libraries that this test was built with.
fn libraries() -> PathBuf {
    let test = env::current_exe().expect("this test has a path");
    test.parent().expect("it is in a folder").to_path_buf()
}

/// Compiles a program, and runs it on the model; returns what it prints.
fn run(compiler: &str, flags: &[&str], source: &str, link: &[&str]) -> String {
    let source = Path::new(CRATE).join(source);
    let stem = source.file_stem().expect("a name").to_string_lossy().into_owned();
    let program = env::temp_dir().join(format!("rlx-c-{}-{stem}-{}", std::process::id(), link.len()));
    let libraries = libraries();
    let built = Command::new(compiler)
        .args(flags)
        .args(["-Wall", "-Wextra", "-Werror", "-I"])
        .arg(Path::new(CRATE).join("include"))
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(&libraries)
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .args(link)
        .output()
        .expect("the compiler starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let ran = Command::new(&program).arg(MODEL).current_dir(CRATE).output().expect("the program starts");
    let _ = fs::remove_file(&program);
    let (out, errors) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{out}{errors}");
    out.into_owned()
}

#[test]
fn the_c_example_classifies_a_digit() {
    let Some(cc) = compiler("CC", "cc") else { return };
    let out = run(&cc, &["-std=c11"], "examples/classify.c", &["-lrlx_c"]);
    assert!(out.contains("takes image: batch 1 8 8") && out.contains("probabilities: "), "{out}");
}

#[test]
fn the_c_example_links_the_static_library() {
    let Some(cc) = compiler("CC", "cc") else { return };
    let library = libraries().join("librlx_c.a");
    let out = run(
        &cc,
        &["-std=c11"],
        "examples/classify.c",
        &[&library.to_string_lossy(), "-lpthread", "-ldl", "-lm"],
    );
    assert!(out.contains("probabilities: "), "{out}");
}

#[test]
fn the_cpp_example_runs_on_several_threads() {
    let Some(cxx) = compiler("CXX", "c++") else { return };
    let out = run(&cxx, &["-std=c++17", "-pthread"], "examples/threads.cpp", &["-lrlx_c"]);
    assert!(out.contains("8 threads agree"), "{out}");
}

#[test]
fn misuse_gives_errors() {
    let Some(cc) = compiler("CC", "cc") else { return };
    let out = run(&cc, &["-std=c11"], "tests/hostile.c", &["-lrlx_c"]);
    assert!(out.contains("0 faults"), "{out}");
}
