//! `cargo xtask images`: makes `docs/images/` again, from the command itself.
//!
//! Two of them hold measurements of the machine that makes them, so this is no part of `cargo xtask docs`, and no test compares
//! them with what is made again.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rlx_testdata::models::model;

use crate::exec::cargo_command;

const FOLDER: &str = "docs/images";
const DIGITS: &str = "models/digits/digits.onnx";

/// Builds the command for release and makes all images.
pub fn write() -> Result<(), String> {
    let built = cargo_command(&["build", "--release", "--package", "rlx", "--quiet"]).status();
    if !built.map_err(|e| format!("cargo: {e}"))?.success() {
        return Err("the command does not build".to_owned());
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::root().join("target"), PathBuf::from);
    let rlx = Rlx { program: target.join("release/rlx") };
    let folder = crate::root().join(FOLDER);
    fs::create_dir_all(&folder).map_err(|e| format!("{FOLDER}: {e}"))?;
    rlx.run(&["inspect", DIGITS, "--format", "svg", "-o", &format!("{FOLDER}/digits.svg")])?;
    let resnet = model("resnet18").graph_file().ok_or("the weights of resnet18 are not there")?;
    let resnet = resnet.to_string_lossy();
    let sizes = ["--dim", "batch=1", "--dim", "height=224", "--dim", "width=224"];
    let roofline = format!("{FOLDER}/resnet18-roofline.svg");
    rlx.run(&[&["bench", &resnet, "--runs", "40", "--roofline", &roofline], &sizes[..]].concat())?;
    let screen = [
        rlx.shown(&[
            "run",
            DIGITS,
            "models/digits/samples/3_a.png",
            "models/digits/samples/7_a.png",
            "--labels",
            "models/digits/labels.txt",
        ])?,
        rlx.shown(&["bench", DIGITS, "--dim", "batch=64", "--profile"])?,
    ];
    let path = folder.join("terminal.svg");
    fs::write(&path, terminal(&screen.concat())).map_err(|e| format!("{}: {e}", path.display()))
}

/// The command that was built.
struct Rlx {
    program: PathBuf,
}

impl Rlx {
    fn run(&self, args: &[&str]) -> Result<String, String> {
        let output = Command::new(&self.program).args(args).current_dir(crate::root()).output();
        let output = output.map_err(|e| format!("{}: {e}", Path::display(&self.program)))?;
        if !output.status.success() {
            return Err(format!("rlx {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr)));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What a terminal shows: the command and what it prints.
    fn shown(&self, args: &[&str]) -> Result<String, String> {
        Ok(format!("$ rlx {}\n{}\n", args.join(" "), self.run(args)?.trim_end()))
    }
}

/// Longer lines are cut, as a terminal of this width cuts them.
const COLUMNS: usize = 150;
const CHAR: f64 = 7.25;
const LINE: usize = 17;

/// Lines of text as a terminal's window.
fn terminal(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|l| l.chars().take(COLUMNS).collect()).collect();
    let longest = lines.iter().map(|l| l.chars().count()).max().unwrap_or(0);
    let (width, height) = ((longest as f64 * CHAR) as usize + 36, lines.len() * LINE + 58);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" xml:space=\"preserve\">\n<style>\
         text{{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:12px;fill:#c9d1d9;\
         white-space:pre}}.p{{fill:#7ee787;font-weight:600}}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"9\" fill=\"#161b22\"/>\n"
    );
    for (i, colour) in ["#ff5f57", "#febc2e", "#28c840"].iter().enumerate() {
        // Writing to a string does not fail.
        let _ = writeln!(out, "<circle cx=\"{}\" cy=\"18\" r=\"6\" fill=\"{colour}\"/>", 20 + 20 * i);
    }
    for (i, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
        let class = if line.starts_with('$') { " class=\"p\"" } else { "" };
        // Not all readers of SVG keep spaces that are only spaces.
        let line =
            line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace(' ', "\u{a0}");
        let _ = writeln!(out, "<text{class} x=\"18\" y=\"{}\">{line}</text>", 52 + i * LINE);
    }
    out + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_shows_every_line_and_escapes_it() {
        let svg = terminal("$ rlx run a<b\n\n  3  99.9 % & more\n");
        assert!(svg.contains(">$\u{a0}rlx\u{a0}run\u{a0}a&lt;b</text>") && svg.contains("&amp;"), "{svg}");
        assert_eq!(svg.matches("<text").count(), 2);
    }

    #[test]
    fn committed_images_are_small_and_the_readme_shows_them() {
        let readme = fs::read_to_string(crate::root().join("README.md")).expect("the README is there");
        let shown = readme.split("docs/images/").skip(1).filter_map(|l| l.split([')', '"']).next());
        let shown: Vec<&str> = shown.collect();
        assert!(shown.len() >= 2, "{shown:?}");
        for name in shown {
            let path = crate::root().join(FOLDER).join(name);
            let svg = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{name}");
            assert!(svg.len() < 100_000, "{name}: {} bytes", svg.len());
        }
    }
}
