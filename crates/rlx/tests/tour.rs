//! `docs/api-tour.md`: its program runs, and every piece of code it shows is a piece of that program.

#[path = "../examples/api_tour.rs"]
mod api_tour;

use std::fs;
use std::path::Path;

#[test]
fn the_program_runs() {
    api_tour::main().unwrap();
}

/// The lines without the indentation they share.
fn dedent(text: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let shared = text.lines().filter(|l| !l.trim().is_empty()).map(indent).min().unwrap_or(0);
    let lines = text.lines().map(|l| l.get(shared..).unwrap_or("").trim_end());
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_page_shows_the_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = fs::read_to_string(root.join("examples/api_tour.rs")).unwrap();
    let page = fs::read_to_string(root.join("../../docs/api-tour.md")).unwrap();
    let blocks: Vec<&str> =
        page.split("```rust\n").skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect();
    assert!(blocks.len() >= 5, "the page shows {} pieces", blocks.len());
    let lines: Vec<&str> = program.lines().collect();
    for block in blocks {
        let length = block.lines().count();
        let found = lines.windows(length).any(|w| dedent(&w.join("\n")) == dedent(block));
        assert!(found, "the program lacks this piece of docs/api-tour.md:\n{block}");
    }
}
