//! Checks that `docs/onnx.md` matches the importer's table; `RLX_WRITE_DOCS=1 cargo test -p rlx-onnx --test docs` regenerates it.

use std::collections::BTreeMap;
use std::path::Path;

const INTRODUCTION: &str = "\
# ONNX

Made by `RLX_WRITE_DOCS=1 cargo test -p rlx-onnx --test docs` from the importer's table; do not edit.

What `rlx-onnx` reads: operator sets 1 to 28 of the default domain; every encoding of tensor data, in the file or beside
it; model-local functions (inlined); branches and loops, chosen or unrolled where that is known before a run; symbolic dimensions, which stay symbolic. Shape
arithmetic (`Shape`, `Gather`, `Concat`, `Slice`, …) is done while importing and leaves no nodes.

Where the value of an input decides a shape or an axis, the import asks for that value (`NeedsInputValue`), and the graph
then holds for that value. Where a tensor inside the model does and nothing bounds it (a length that a net predicts), its value is enough: `rlx::Runner`, the command and
Python run the part of the model that computes it first. Sequences, optionals, strings and maps are taken apart while importing (`rlx_onnx::Structure` says how). Not read:
sparse initialisers. What is not built is an error that names node, op, domain, opset and operands.

Of ONNX Runtime's own domain `com.microsoft` what its quantiser, its optimiser and its model builder write is read, and searches over the texts of a decoder (weights of 2, 4 and 8
bits in blocks stay packed in the model; attention's caches are ordinary inputs and outputs), and `ai.onnx.ml` whole: both as ordinary
tensor ops. Ops of other domains are the program's own: `com.example.Scale` is the custom op that it registered by that name.

`cargo xtask test --suite onnx-node` runs the format's own node cases on the oracle and on the CPU and prints how many pass.

## Ops
";

fn page() -> String {
    let mut domains: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (domain, op) in rlx_onnx::built() {
        domains.entry(domain).or_default().push(format!("`{op}`"));
    }
    let mut page = String::from(INTRODUCTION);
    for (domain, mut ops) in domains {
        ops.sort();
        ops.dedup();
        let domain = if domain.is_empty() { "ai.onnx" } else { domain };
        page.push_str(&format!("\n{} ops of the domain `{domain}`:\n\n{}\n", ops.len(), wrapped(&ops)));
    }
    page
}

/// Words joined by commas, in lines of at most 118 columns.
fn wrapped(words: &[String]) -> String {
    let mut lines = vec![String::new()];
    for (i, word) in words.iter().enumerate() {
        let word = if i + 1 < words.len() { format!("{word},") } else { word.clone() };
        let line = lines.last_mut().expect("there is a line");
        if !line.is_empty() && line.len() + 1 + word.len() > 118 {
            lines.push(word);
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(&word);
        }
    }
    lines.join("\n")
}

#[test]
fn the_page_lists_the_supported_ops() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/onnx.md");
    if std::env::var_os("RLX_WRITE_DOCS").is_some() {
        std::fs::write(&path, page()).expect("docs/ can be written");
    }
    let written = std::fs::read_to_string(&path).expect("docs/onnx.md is there");
    assert!(
        written == page(),
        "docs/onnx.md is out of date: RLX_WRITE_DOCS=1 cargo test -p rlx-onnx --test docs"
    );
}
