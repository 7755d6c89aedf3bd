//! Diagrams, pass differences and profiles of `rlx`, shell completions and manual pages.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Output};

use rlx_testdata::models::{folder, model};
use serde_json::Value as Json;

const DIGITS: &str = "digits/digits.onnx";

fn rlx(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rlx"))
        .args(args)
        .current_dir(folder())
        .output()
        .expect("the command starts")
}

/// The standard output of a command that must succeed.
fn done(args: &[&str]) -> String {
    let output = rlx(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("output is text")
}

fn json(args: &[&str]) -> Json {
    serde_json::from_str(&done(args)).expect("one JSON value")
}

/// The message of a command that must fail with this exit code.
fn failed(code: i32, args: &[&str]) -> String {
    let output = rlx(args);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {message}");
    message
}

/// A separate folder for a test's files.
fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("rlx-inspect-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a temporary folder");
    path
}

/// The text between tags, with entities resolved.
fn unescaped(text: &str) -> String {
    assert!(!text.contains('>'), "a stray > in {text:?}");
    let mut out = text.to_owned();
    for (entity, plain) in [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'")] {
        out = out.replace(entity, plain);
    }
    let plain = out.replace("&amp;", "");
    assert!(!plain.contains('&'), "an unknown entity in {text:?}");
    out.replace("&amp;", "&")
}

/// Checks that `svg` is well-formed XML, and gives the text of all its `<title>`s.
fn titles(svg: &str) -> Vec<String> {
    let (mut open, mut titles) = (Vec::new(), Vec::new());
    let mut rest = svg.trim_end();
    assert!(rest.starts_with("<svg "), "{}", &rest[..rest.len().min(80)]);
    while let Some(tag) = rest.strip_prefix('<') {
        let (tag, after) = tag.split_once('>').expect("a tag ends");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "</{name}>");
        } else {
            let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
            let mut attributes = attributes.strip_suffix('/').unwrap_or(attributes).trim();
            while !attributes.is_empty() {
                let (key, value) = attributes.split_once("=\"").expect("an attribute has a value");
                let (value, more) = value.split_once('"').expect("a value ends");
                assert!(!key.contains(char::is_whitespace) && !value.contains('<'), "{tag}");
                unescaped(&value.replace('>', ""));
                attributes = more.trim();
            }
            if !tag.ends_with('/') {
                open.push(name.trim_end());
            }
        }
        let next = after.find('<').unwrap_or(after.len());
        let text = &after[..next];
        if open.last() != Some(&"style") {
            let text = unescaped(text);
            if open.last() == Some(&"title") && !text.is_empty() {
                titles.push(text);
            }
        }
        assert!(!open.is_empty() || next == after.len(), "text behind the end");
        rest = &after[next..];
    }
    assert!(open.is_empty() && rest.is_empty(), "not closed: {open:?} {rest:?}");
    titles
}

#[test]
fn diagrams_name_every_node_and_draw_layers_once() {
    for (name, layers) in [("bert_static", 2), ("gpt2_dynamic", 2), ("resnet18", 2), ("mlp", 1)] {
        let Some(file) = model(name).graph_file() else { continue };
        let file = file.to_str().unwrap();
        let svg = done(&["inspect", file, "--format", "svg"]);
        let told: BTreeSet<String> =
            titles(&svg).iter().flat_map(|t| t.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
        let facts = json(&["inspect", file, "--format", "json"]);
        let diagram = &facts["diagram"];
        let boxes = diagram["boxes"].as_array().unwrap();
        for node in boxes.iter().flat_map(|b| b["nodes"].as_array().unwrap()) {
            assert!(told.contains(node.as_str().unwrap()), "{name}: {node}");
        }
        // Every node of the graph that the device runs is in a box, as itself or as a part of a weight.
        let id = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
        let seen: BTreeSet<String> = told.iter().map(|l| id(l)).collect();
        let passes = json(&["inspect", file, "--passes=fuse-regions", "--format", "json"]);
        let graph = passes["passes"][0]["graph"].as_str().unwrap();
        let lines = graph.lines().filter(|l| l.starts_with("  %") || l.starts_with("  return"));
        let read = |l: &str| l.split(['(', ')', ',', ' ']).map(str::to_owned).skip(3).collect::<Vec<_>>();
        let read: BTreeSet<String> = lines.clone().flat_map(read).filter(|w| w.starts_with('%')).collect();
        let nodes = lines.filter(|l| read.contains(&id(l.trim())) && !l.contains(" = Result("));
        assert!(nodes.clone().count() > 3);
        for line in nodes {
            assert!(seen.contains(&id(line.trim())), "{name}: {line}");
        }
        let most = diagram["blocks"].as_array().unwrap().iter().filter_map(|b| b["times"].as_u64()).max();
        assert_eq!(most.unwrap_or(1), layers, "{name}: {}", diagram["blocks"]);
        assert!(svg.contains("prefers-color-scheme") && svg.len() < 100_000, "{name}: {} bytes", svg.len());
        if layers > 1 {
            assert!(svg.contains(&format!("× {layers}")), "{name}");
        }
    }
}

#[test]
fn a_diagram_of_digits_is_a_file_of_dot_svg_or_json() {
    let folder = scratch("formats");
    let path = folder.join("digits.svg");
    let file = path.to_str().unwrap();
    assert_eq!(done(&["inspect", DIGITS, "--format", "svg", "-o", file]), "");
    let svg = std::fs::read_to_string(&path).unwrap();
    assert!(svg.contains("image") && svg.contains("[batch, 1, 8, 8] f32") && svg.contains("probabilities"));
    titles(&svg);
    // The same model makes the same diagram.
    assert_eq!(done(&["inspect", DIGITS, "--format", "svg"]), svg);
    let dot = done(&["inspect", DIGITS, "--format", "dot"]);
    assert!(dot.starts_with("digraph \"digits\" {") && dot.contains("Conv + Relu") && dot.ends_with("}\n"));
    assert_eq!(
        json(&["inspect", DIGITS, "--json"])["diagram"],
        json(&["inspect", DIGITS, "--format", "json"])["diagram"]
    );
    assert!(failed(2, &["inspect", DIGITS, "--json", "--format", "svg"]).contains("one of them"));
    assert!(failed(1, &["inspect", DIGITS, "-o", "no/such/folder/x.txt"]).contains("no/such/folder"));
    // The graph as it was imported, before anything is fused.
    let early = done(&["inspect", DIGITS, "--passes=eliminate-dead-nodes", "--format", "dot"]);
    assert!(early.contains("\"Conv") && !early.contains("Conv + Relu"), "{early}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn passes_are_compared_line_by_line() {
    let told = done(&["inspect", DIGITS, "--passes=choose-layout..fuse-regions"]);
    assert!(told.contains("fuse-regions: ") && told.contains(" removed, "), "{told}");
    let marked = |sign: char| told.lines().any(|l| l.starts_with(&format!("{sign} %")));
    assert!(marked('-') && marked('+'), "{told}");
    assert!(told.lines().any(|l| l.starts_with('+') && l.contains("Region")), "{told}");
    // No colours where no terminal is.
    assert!(!told.contains('\u{1b}') && !told.contains("after fuse-regions:"));
    let facts = json(&["inspect", DIGITS, "--passes=..", "--json"]);
    let passes = facts["passes"].as_array().unwrap();
    assert!(passes.iter().all(|p| p["difference"]["removed"].is_u64() && p["graph"].is_string()));
    let dead = passes.iter().find(|p| p["name"] == "apply-precision").unwrap();
    assert_eq!(
        (dead["difference"]["added"].as_u64(), dead["difference"]["text"].as_str()),
        (Some(0), Some(""))
    );
    let plain = json(&["inspect", DIGITS, "--passes", "--json"]);
    assert!(plain["passes"][0]["difference"].is_null());
    assert!(failed(2, &["inspect", DIGITS, "--passes=fuse-regions..simplify"]).contains("comes after"));
}

#[test]
fn a_profile_holds_steps_against_the_machine() {
    let folder = scratch("profile");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (trace, roof) = (path("trace.json"), path("roof.svg"));
    let args = ["bench", DIGITS, "--dim", "batch=16", "--runs", "20", "--threads", "1"];
    let report = json(&[&args[..], &["--trace", &trace, "--roofline", &roof, "--json"]].concat());
    let profile = &report["profile"];
    let steps = profile["steps"].as_array().unwrap();
    assert!(steps.len() >= 4 && profile["runs"] == 20, "{profile}");
    let sum = |name: &str| steps.iter().map(|s| s[name].as_f64().unwrap()).sum::<f64>();
    assert!((sum("share") - 1.0).abs() < 1e-6 && sum("flops") > 1e5);
    assert!(profile["machine"]["peak_gflops"].as_f64() > Some(0.0));
    assert!(steps.iter().any(|s| s["origin"].as_str().is_some_and(|o| o.contains("Conv"))), "{profile}");
    let bounds = ["compute", "memory", "launch"];
    assert!(steps.iter().all(|s| bounds.contains(&s["bound_by"].as_str().unwrap())));
    // Steps fill the run but for what surrounds them: other work on the machine may stretch that, never shrink it below them.
    let (inside, whole) = (profile["steps_us"].as_f64().unwrap(), profile["profiled_us"].as_f64().unwrap());
    assert!(inside > 0.3 * whole, "{inside} of {whole}");

    let trace: Json = serde_json::from_str(&std::fs::read_to_string(&trace).unwrap()).unwrap();
    let events: Vec<&Json> =
        trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X").collect();
    assert_eq!(events.len(), steps.len());
    let number = |e: &Json, name: &str| e[name].as_f64().unwrap();
    let last = events[events.len() - 1];
    let end = number(last, "ts") + number(last, "dur");
    let took: f64 = events.iter().map(|e| number(e, "dur")).sum();
    assert!(took <= end * 1.000001 && took > 0.3 * end, "{took} of {end}");

    let told = titles(&std::fs::read_to_string(&roof).unwrap());
    assert!(told.iter().any(|t| t.contains("Conv") && t.contains("GFLOP/s")), "{told:?}");
    let text = done(&[&args[..], &["--profile"]].concat());
    assert!(
        ["measured on this machine", "of peak", "bound by", "kind"].iter().all(|p| text.contains(p)),
        "{text}"
    );
    assert!(json(&[&args[..], &["--json"]].concat())["profile"].is_null());
    std::fs::remove_dir_all(folder).unwrap();
}

/// The names of all commands, as help lists them.
fn commands() -> Vec<String> {
    let help = done(&["--help"]);
    let (_, list) = help.split_once("Commands:\n").expect("help lists commands");
    let names = list
        .lines()
        .take_while(|l| !l.trim().is_empty())
        .filter(|l| l.starts_with("  ") && !l.starts_with("   "));
    names.filter_map(|l| l.split_whitespace().next().map(str::to_owned)).filter(|n| n != "help").collect()
}

#[test]
fn completions_know_every_command_in_every_shell() {
    let commands = commands();
    assert!(commands.len() >= 9, "{commands:?}");
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = done(&["completions", shell]);
        for name in commands.iter().map(String::as_str).chain(["roofline"]) {
            assert!(script.contains(name), "{shell}: {name}");
        }
    }
    assert!(json(&["completions", "fish", "--json"])["script"].as_str().unwrap().contains("complete"));
    assert!(failed(2, &["completions", "cmd.exe"]).contains("powershell"));
    // What the scripts hold is what the shell understands, where it is there.
    let script = scratch("completions").join("rlx.bash");
    std::fs::write(&script, done(&["completions", "bash"])).unwrap();
    if let Ok(status) = Command::new("bash").arg("-n").arg(&script).status() {
        assert!(status.success());
    }
}

#[test]
fn manual_pages_describe_every_command() {
    let page = done(&["man"]);
    assert!(page.contains(".TH rlx 1") && page.contains("RLX_NUM_THREADS") && page.contains(".SH"), "{page}");
    let folder = scratch("man");
    let listed = done(&["man", "-o", folder.to_str().unwrap()]);
    for name in commands() {
        let file = folder.join(format!("rlx-{name}.1"));
        let page = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        assert!(
            page.contains(&format!("rlx\\-{name}")) && listed.contains(&format!("rlx-{name}.1")),
            "{page}"
        );
    }
    assert!(folder.join("rlx-cache-verify.1").is_file(), "{listed}");
    std::fs::remove_dir_all(folder).unwrap();
}
