//! The guides in `docs/guide/`: runs their shell blocks and compares the output with the page.
//!
//! The ```` ```sh ```` blocks of a page run one after the other in one folder with a link to `models/`, where `rlx`
//! is the command that was just built. Each line of the following ```` ```text ```` block must appear in the
//! output, in order; `…` matches anything. A block must succeed, so one that shows a failure handles it
//! (`|| echo "exit code $?"`). The Rust blocks are documentation tests of `crates/rlx`.
#![cfg(unix)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::Folder;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// The fenced blocks of a page: language and text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find("```") {
        let (language, body) = rest[at + 3..].split_once('\n').expect("a block has lines");
        let end = body.find("```").expect("a block has an end");
        found.push((language.trim(), &body[..end]));
        rest = &body[end + 3..];
    }
    found
}

/// Whether the parts between `…` appear in `line`, in order.
fn appears(pattern: &str, line: &str) -> bool {
    let mut rest = line;
    pattern.split('…').map(str::trim).filter(|part| !part.is_empty()).all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

/// Runs a block of shell; gives what it printed.
fn run(script: &str, folder: &Folder) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_rlx")).parent().expect("it is in a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("sh");
    command.args(["-e", "-c", script]).current_dir(folder.path());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RLX_")) {
        command.env_remove(name);
    }
    command
        .env("PATH", format!("{}:{path}", binary.display()))
        .env("RLX_CACHE_DIR", folder.path().join("cache"));
    let output = command.output().expect("a shell");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "this block fails:\n{script}\n{printed}\n{told}");
    printed
}

/// Runs a page, and gives how many blocks it has.
fn check(name: &str) -> usize {
    let page = std::fs::read_to_string(root().join("docs/guide").join(name)).expect("the page");
    let folder = Folder::new(&format!("guide-{}", name.trim_end_matches(".md")));
    std::os::unix::fs::symlink(root().join("models"), folder.path().join("models")).expect("a link");
    let (mut count, mut printed) = (0, None);
    for (language, text) in blocks(&page) {
        match (language, &printed) {
            ("sh", _) => {
                printed = Some(run(text, &folder));
                count += 1;
            }
            ("text", Some(said)) => {
                let mut lines = said.lines();
                for want in text.lines().filter(|l| !l.is_empty()) {
                    let found = lines.any(|line| appears(want, line));
                    assert!(found, "{name}: {want:?} does not appear, in this order, in\n{said}");
                }
                printed = None;
            }
            ("rust" | "toml" | "text", _) => {}
            (other, _) => panic!("{name}: a block of {other:?} is neither run nor compared"),
        }
    }
    count
}

#[test]
fn the_guide_to_the_command_line_says_what_happens() {
    assert!(check("command-line.md") >= 10);
}

#[test]
fn the_guide_to_speed_says_what_happens() {
    assert!(check("why-slow.md") >= 5);
}

#[test]
fn the_guide_to_numbers_says_what_happens() {
    assert!(check("why-numbers-differ.md") >= 4);
}

#[test]
fn every_guide_is_in_the_index_and_the_index_in_the_readme() {
    let index = std::fs::read_to_string(root().join("docs/guide/README.md")).unwrap();
    for entry in std::fs::read_dir(root().join("docs/guide")).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        assert!(name == "README.md" || index.contains(&format!("]({name})")), "{name} is not in the index");
    }
    assert!(std::fs::read_to_string(root().join("README.md")).unwrap().contains("(docs/guide/README.md)"));
}

#[test]
fn patterns_match_in_order() {
    assert!(appears("a … c", "xx a b c") && appears("…", "") && !appears("c … a", "a b c"));
    let page = "x\n```sh\nls\n```\ny\n```text\na\nb\n```\n";
    assert_eq!(blocks(page), [("sh", "ls\n"), ("text", "a\nb\n")]);
}
