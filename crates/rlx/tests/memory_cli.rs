//! The command under a limit of its address space (`ulimit -v`): with too little memory for a model it reports that, and is never
//! killed by a signal. The limits go from barely enough to start the command to more than enough.
#![cfg(target_os = "linux")]

mod common;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use common::{FLOAT, Folder, external, model, node, value, weight};

/// Runs the command in `kib` KiB of addresses, on two threads.
fn limited(folder: &Folder, kib: u64, args: &[&str]) -> Output {
    let plain = folder.command(args);
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -v \"$0\"; exec \"$@\"", &kib.to_string()]);
    shell.arg(plain.get_program()).args(plain.get_args()).env("RLX_NUM_THREADS", "2");
    for (name, to) in plain.get_envs() {
        match to {
            Some(to) => shell.env(name, to),
            None => shell.env_remove(name),
        };
    }
    shell.current_dir(folder.path()).output().expect("a shell")
}

/// What the command needs to say its version, in steps of a mebibyte, and one more for small allocations, which are not
/// asked for one by one.
fn min_limit(folder: &Folder) -> u64 {
    let starts = |mib: &u64| limited(folder, mib << 10, &["--version"]).status.success();
    1 + (8..512).find(starts).expect("half a gibibyte is enough")
}

/// A weight in the model, one in a file beside it, and results as large as the batch.
fn write_models(folder: &Folder) {
    let w = weight("w", &[1024, 1024], &vec![0.5; 1 << 20]);
    let product = node("MatMul", &["x", "w"], &["y"]);
    let ends = |rows: &str| (value("x", FLOAT, &[rows, "1024"]), value("y", FLOAT, &[rows, "1024"]));
    let (x, y) = ends("4");
    folder.write("inline.onnx", model(&[x], std::slice::from_ref(&product), &[w], &[y]));
    let (x, y) = ends("4");
    let beside = external("w", &[1024, 1024], "w.bin");
    folder.write("w.bin", vec![0u8; 4 << 20]);
    folder.write("external.onnx", model(&[x], &[product], &[beside], &[y]));
    let (x, y) = ends("n");
    folder.write("open.onnx", model(&[x], &[node("Relu", &["x"], &["y"])], &[], &[y]));
}

#[test]
fn too_little_memory_is_an_error_that_says_so() {
    let folder = Folder::new("memory");
    write_models(&folder);
    let min_limit = min_limit(&folder);
    let commands: [&[&str]; 5] = [
        &["run", "inline.onnx", "--input", "x=random", "--outputs", "out.npz"],
        &["run", "external.onnx", "--input", "x=random", "--outputs", "out.npz"],
        &["compile", "inline.onnx", "-o", "out.rlx"],
        &["run", "open.onnx", "--dim", "n=4096", "--input", "x=random", "--outputs", "out.npz"],
        &["verify", "external.onnx"],
    ];
    for args in commands {
        let (mut enough, mut too_little) = (0, 0);
        for more in [0, 2, 4, 6, 9, 12, 16, 20, 26, 34, 44, 60, 80, 110, 160, 400] {
            let output = limited(&folder, (min_limit + more) << 10, args);
            let err = String::from_utf8_lossy(&output.stderr);
            let at = format!("{args:?} in {} MiB: {err}", min_limit + more);
            assert_eq!(output.status.signal(), None, "{at}");
            let made = folder.names().iter().filter(|name| name.contains("out.")).count();
            match output.status.code() {
                Some(0) => {
                    assert_eq!(
                        made,
                        usize::from(args.contains(&"out.npz") || args.contains(&"out.rlx")),
                        "{at}"
                    );
                    enough += 1;
                }
                Some(1) => {
                    // Warnings may come first, as of threads that could not be started.
                    let errors = err.lines().filter(|line| line.starts_with("error: ")).count();
                    assert!(errors == 1 && err.to_lowercase().contains("allocate"), "{at}");
                    assert_eq!(made, 0, "{at}");
                    too_little += 1;
                }
                _ => panic!("{at}"),
            }
            for name in folder.names().iter().filter(|name| name.contains("out.")) {
                std::fs::remove_file(folder.path().join(name)).unwrap();
            }
        }
        println!("{args:?}: {too_little} times too little, {enough} times enough");
        assert!(
            enough > 0 && too_little > 0,
            "{args:?}: {too_little} times too little, {enough} times enough"
        );
    }
}
