//! `cargo xtask docs`: makes `docs/ops.md` from the op table, so that the page cannot say anything else than the code.
//!
//! Attributes and paragraphs are the table's own. How many inputs and results an op has, and whether it decomposes
//! into simpler ops, may depend on its attributes: that is read off random cases from the op's own generator.

use rlx_ir::testing::Case;
use rlx_ir::{OpKind, decompose};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;

const PAGE: &str = "docs/ops.md";

const INTRODUCTION: &str = "\
# Ops

Made by `cargo xtask docs` from the table in `crates/rlx-ir/src/ops/mod.rs`; do not edit.

A *composite* can be rewritten into simpler ops by its own decomposition; a *primitive* cannot. All dimensions may be
symbolic. Types that are a list of names (`Activation`, `ReduceOp`, …) are documented in `rlx_ir::op`.
";

/// Random cases looked at for each op.
const CASES: u64 = 100;

pub fn write() -> Result<(), String> {
    let path = crate::root().join(PAGE);
    fs::create_dir_all(path.parent().expect("it is in a folder")).map_err(|e| e.to_string())?;
    fs::write(&path, ops_page()?).map_err(|e| format!("{}: {e}", path.display()))
}

fn ops_page() -> Result<String, String> {
    let mut page = String::from(INTRODUCTION);
    page.push_str("\n| op | inputs | results | |\n|---|---|---|---|\n");
    let mut sections = String::new();
    for &kind in OpKind::ALL {
        let facts = Facts::of(kind)?;
        let name = kind.name();
        let link = name.to_lowercase();
        let row =
            format!("| [`{name}`](#{link}) | {} | {} | {} |\n", facts.inputs, facts.results, facts.level);
        page.push_str(&row);
        sections.push_str(&section(kind, &facts));
    }
    Ok(page + &sections)
}

fn section(kind: OpKind, facts: &Facts) -> String {
    let mut text = format!("\n## {}\n\n", kind.name());
    for line in kind.doc().lines() {
        text.push_str(line.trim());
        text.push('\n');
    }
    // Writing to a string does not fail.
    let _ =
        writeln!(text, "\nInputs: {}. Results: {}. {}.", facts.inputs, facts.results, capital(facts.level));
    for (i, attr) in kind.attributes().iter().enumerate() {
        if i == 0 {
            text.push('\n');
        }
        let _ = match attr.name {
            "" => writeln!(text, "- `.{}`, written behind the name", attr.ty),
            name => writeln!(text, "- `{name}: {}`: {}", attr.ty, attr.doc.trim()),
        };
    }
    text
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// What the cases of an op have in common.
struct Facts {
    inputs: String,
    results: String,
    level: &'static str,
}

impl Facts {
    fn of(kind: OpKind) -> Result<Facts, String> {
        let (mut inputs, mut results, mut composite) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for seed in 0..CASES {
            let case = Case::random(kind, seed);
            let (graph, _) = case.graph();
            inputs.insert(kind.def().arity(&case.op).to_string());
            results.insert(graph.outputs.len().to_string());
            let simpler =
                decompose::decompose_all(&graph, |k| k == kind).map_err(|e| format!("{kind}: {e}"))?;
            composite.insert(simpler.is_some());
        }
        let level = match (composite.contains(&true), composite.contains(&false)) {
            (true, false) => "composite",
            (true, true) => "composite for some attributes or types",
            _ => "primitive",
        };
        Ok(Facts { inputs: common(inputs), results: common(results), level })
    }
}

/// The one value there is, or that there are several.
fn common(values: BTreeSet<String>) -> String {
    let mut values = values.into_iter();
    match (values.next(), values.next()) {
        (Some(only), None) => only,
        _ => "by its attributes".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_page_says_what_the_table_says() {
        let committed = fs::read_to_string(crate::root().join(PAGE)).unwrap_or_default();
        // Line by line, so that a failure shows where.
        let page = ops_page().unwrap();
        for (line, (want, have)) in page.lines().zip(committed.lines()).enumerate() {
            assert_eq!(have, want, "line {} of {PAGE}; run `cargo xtask docs`", line + 1);
        }
        assert_eq!(committed.len(), page.len(), "{PAGE} is out of date; run `cargo xtask docs`");
    }

    #[test]
    fn facts_come_from_the_cases() {
        let facts = Facts::of(OpKind::Tile).unwrap();
        assert_eq!((facts.inputs.as_str(), facts.results.as_str(), facts.level), ("1", "1", "composite"));
        assert_eq!(Facts::of(OpKind::TopK).unwrap().results, "2");
        assert_eq!(Facts::of(OpKind::Pad).unwrap().inputs, "by its attributes");
        assert_eq!(Facts::of(OpKind::Concat).unwrap().inputs, "at least 1");
    }

    #[test]
    fn the_files_that_contributors_are_sent_to_exist() {
        let page = fs::read_to_string(crate::root().join("CONTRIBUTING.md")).unwrap();
        let quoted = page.split('`').skip(1).step_by(2);
        let paths: Vec<&str> =
            quoted.filter(|text| text.starts_with("crates/") || text.starts_with("docs/")).collect();
        assert!(paths.len() > 20, "{paths:?}");
        let missing: Vec<&&str> = paths.iter().filter(|path| !crate::root().join(path).exists()).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
