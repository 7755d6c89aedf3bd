//! A diagram in Graphviz's DOT language: repeated blocks are clusters.

use std::fmt::Write;

use super::parts::{BoxKind, Diagram, DiagramBox, short_shape};

/// The whole file.
pub(super) fn dot(diagram: &Diagram) -> String {
    let mut out = format!("digraph {} {{\n", quoted(&diagram.name));
    out.push_str("  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\", fontsize=11];\n");
    out.push_str("  edge [fontname=\"monospace\", fontsize=9];\n");
    let mut open: Vec<usize> = Vec::new();
    for (at, drawn) in diagram.boxes.iter().enumerate() {
        for (b, block) in diagram.blocks.iter().enumerate().filter(|(_, block)| block.boxes.start == at) {
            // Writing to a string does not fail.
            let _ = writeln!(
                out,
                "  subgraph cluster_{b} {{\n    label={};\n    style=\"rounded,dashed\";",
                quoted(&format!("× {}", block.times))
            );
            open.push(block.boxes.end);
        }
        let _ = writeln!(
            out,
            "    n{at} [label={}, fillcolor={}, tooltip={}];",
            quoted(&label(drawn)),
            quoted(colour(drawn.kind)),
            quoted(&drawn.nodes.join("\n"))
        );
        while open.last() == Some(&(at + 1)) {
            open.pop();
            out.push_str("  }\n");
        }
    }
    for edge in &diagram.edges {
        let shape = diagram.boxes[edge.from].results.get(edge.result).map(|r| short_shape(r));
        let label = quoted(&shape.unwrap_or_default());
        let _ = writeln!(out, "  n{} -> n{} [label={label}];", edge.from, edge.to);
    }
    out.push_str("}\n");
    out
}

fn label(drawn: &DiagramBox) -> String {
    let mut lines = vec![drawn.title.clone()];
    if drawn.times > 1 && matches!(drawn.kind, BoxKind::Input | BoxKind::Output) {
        lines[0] = format!("{} (× {})", drawn.title, drawn.times);
    }
    lines.extend(drawn.detail.clone());
    lines.extend(drawn.params.iter().map(|p| p.label()));
    lines.join("\n")
}

fn colour(kind: BoxKind) -> &'static str {
    match kind {
        BoxKind::Input => "#dbeafe",
        BoxKind::Output => "#dcfce7",
        BoxKind::Parameter => "#fef3c7",
        BoxKind::View => "#ffffff",
        BoxKind::Op => "#f3f4f6",
    }
}

/// A string of the language: quotes and backslashes escaped, lines broken by `\n`.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}
