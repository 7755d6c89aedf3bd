//! Every file of the committed corpora, without a fuzzer: what was found once stays found.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rlx_fuzz::{TARGETS, Target};

/// All corpora together, in bytes: they are part of the repository.
const MAX_BYTES: u64 = 1 << 20;

/// No file may take longer, however busy the machine is.
const MAX_TIME: Duration = Duration::from_secs(20);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn files(name: &str) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(folder().join("corpus").join(name)).expect("every target has a corpus");
    let mut files: Vec<PathBuf> = folder.map(|entry| entry.expect("a readable folder").path()).collect();
    files.sort();
    files
}

fn replay(name: &str) {
    let target: &Target = TARGETS.iter().find(|t| t.name == name).expect("a target of this name");
    let files = files(name);
    assert!(files.len() >= 3, "{name}: {} files", files.len());
    for file in files {
        let bytes = std::fs::read(&file).expect("a readable file");
        // Shown where the target panics.
        println!("{}", file.display());
        let start = Instant::now();
        (target.run)(&bytes);
        assert!(start.elapsed() < MAX_TIME, "{} took {:?}", file.display(), start.elapsed());
    }
}

macro_rules! replayed {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name));
        })*

        #[test]
        fn every_target_is_replayed_and_is_a_fuzzers() {
            let replayed = [$(stringify!($name)),*];
            let manifest = std::fs::read_to_string(folder().join("Cargo.toml")).expect("the fuzzers' manifest");
            for target in TARGETS {
                assert!(replayed.contains(&target.name), "{} is not replayed", target.name);
                let file = format!("path = \"fuzz_targets/{}.rs\"", target.name);
                assert!(manifest.contains(&file), "{} has no fuzzer", target.name);
            }
            let bytes: u64 = TARGETS.iter().flat_map(|t| files(t.name)).map(|f| f.metadata().map_or(0, |m| m.len())).sum();
            assert!(bytes <= MAX_BYTES, "{bytes} bytes");
        }
    };
}

replayed!(
    importer,
    text,
    contradictions,
    artefact,
    npy,
    npz,
    safetensors,
    tuning,
    calibration,
    image,
    json,
    lines
);
