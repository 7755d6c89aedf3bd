//! Results of device benchmarks, and their storage.
//!
//! A verdict holds for one graph (by its hash), one class of input sizes and one set of devices, each with its machine,
//! threads and the version of RLX. It is stored in the cache folder; a file that is damaged or has another subject
//! is ignored.

use std::fmt::Write;
use std::path::PathBuf;

use rlx_driver::Device;
use rlx_ir::sort::sort;
use rlx_ir::{Error, ErrorKind, Graph, Result, graph_hash};

use crate::{cost, store};
const FOLDER: &str = "verdicts";

/// What a measurement decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The fastest device.
    pub device: Device,
    /// How many runs were timed on each device.
    pub runs: usize,
    /// Each device's median in nanoseconds, fastest first.
    pub times: Vec<(Device, u64)>,
    /// The class of input sizes it holds for: by name, each length rounded up to a power of two.
    pub sizes: Vec<(String, usize)>,
}

/// The class of these inputs.
pub fn size_class(inputs: &[(&str, &[f32])]) -> Vec<(String, usize)> {
    let class = |&(name, values): &(&str, &[f32])| (name.to_string(), values.len().next_power_of_two());
    let mut classes: Vec<_> = inputs.iter().map(class).collect();
    sort(&mut classes);
    classes
}

/// The verdicts about one graph.
#[derive(Debug, Default)]
pub struct Verdicts {
    /// The latest last.
    found: Vec<Verdict>,
    /// The graph's hash, once it was needed.
    graph: Option<String>,
}

impl Verdicts {
    /// The verdict for these sizes from at least `runs` runs, if there is one in memory or on disk.
    pub fn find(
        &mut self,
        graph: &Graph,
        devices: &[Device],
        sizes: &[(String, usize)],
        runs: usize,
    ) -> Option<Verdict> {
        let holds = |v: &&Verdict| v.sizes == sizes && v.runs >= runs && devices.contains(&v.device);
        if let Some(known) = self.found.iter().find(holds) {
            return Some(known.clone());
        }
        let (path, subject) = self.place(graph, devices, sizes).ok()?;
        let stored = store::read(&path).and_then(|t| t.map(|t| from_text(&t, &subject, sizes)).transpose());
        let stored = stored.unwrap_or_else(|e| {
            tracing::warn!(error = %e, graph = %graph.name, "a verdict is measured again");
            None
        });
        let verdict = stored.filter(|v| holds(&v))?;
        self.keep(verdict.clone());
        Some(verdict)
    }

    /// Keeps a verdict here and on disk. (A folder that cannot be written is a warning.)
    pub fn remember(&mut self, graph: &Graph, devices: &[Device], verdict: Verdict) {
        let written = self
            .place(graph, devices, &verdict.sizes)
            .and_then(|(path, subject)| store::write(&path, &to_text(&verdict, &subject)));
        if let Err(e) = written {
            tracing::warn!(error = %e, graph = %graph.name, "a verdict was not cached");
        }
        self.keep(verdict);
    }

    fn keep(&mut self, verdict: Verdict) {
        self.found.retain(|v| v.sizes != verdict.sizes);
        self.found.push(verdict);
    }

    /// All there are, the latest last.
    pub fn all(&self) -> &[Verdict] {
        &self.found
    }

    /// Drops every verdict about the graph, on disk too.
    pub fn forget(&mut self, graph: &Graph) {
        self.found.clear();
        let prefix = self.hash(graph);
        let file = store::path(FOLDER, "any").ok();
        let folder = file.as_deref().and_then(|file| file.parent());
        let Some(entries) = folder.and_then(|f| std::fs::read_dir(f).ok()) else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                // Another process may have been faster.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    fn hash(&mut self, graph: &Graph) -> String {
        let hash = || graph_hash(graph).to_string()[..16].to_string();
        self.graph.get_or_insert_with(hash).clone()
    }

    /// The file of a verdict, and what it is about.
    fn place(
        &mut self,
        graph: &Graph,
        devices: &[Device],
        sizes: &[(String, usize)],
    ) -> Result<(PathBuf, String)> {
        let mut devices = devices.to_vec();
        sort(&mut devices);
        let hash = self.hash(graph);
        let mut subject = format!("graph {hash}; sizes {sizes:?}");
        for device in devices {
            subject += "; ";
            subject += &cost::subject(device.into())?;
        }
        Ok((store::path(FOLDER, &format!("{hash}-{}", store::digest(&subject)))?, subject))
    }
}

fn to_text(verdict: &Verdict, subject: &str) -> String {
    let mut text = format!("rlx-verdict\nsubject {subject}\nruns {}\n", verdict.runs);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "winner {}", verdict.device.feature());
    for (device, ns) in &verdict.times {
        let _ = writeln!(text, "time {} {ns}", device.feature());
    }
    text
}

fn from_text(text: &str, subject: &str, sizes: &[(String, usize)]) -> Result<Verdict> {
    let wrong = |line: &str| Error::new(ErrorKind::Malformed, format!("verdict: \"{line}\""));
    let mut lines = text.lines();
    let mut value = |name: &str| {
        let line = lines.next().unwrap_or_default();
        let value = line.strip_prefix(name).map(|v| v.trim_start().to_string());
        value.ok_or_else(|| wrong(line))
    };
    value("rlx-verdict")?;
    if value("subject ")? != subject {
        return Err(wrong("it is for another graph or machine"));
    }
    let runs = value("runs ")?.parse().map_err(|_| wrong("runs"))?;
    let device = value("winner ")?.parse().map_err(|_| wrong("winner"))?;
    let time = |line: &str| {
        let (device, ns) = line.strip_prefix("time ")?.split_once(' ')?;
        Some((device.parse().ok()?, ns.parse().ok()?))
    };
    let times = lines.map(|line| time(line).ok_or_else(|| wrong(line))).collect::<Result<_>>()?;
    Ok(Verdict { device, runs, times, sizes: sizes.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_gives_the_verdict_back() {
        let sizes = size_class(&[("x", &[0.0; 5]), ("a", &[])]);
        assert_eq!(sizes, [("a".to_string(), 1), ("x".to_string(), 8)]);
        let times = vec![(Device::Cpu, 1200), (Device::Vulkan, 34_000)];
        let verdict = Verdict { device: Device::Cpu, runs: 3, times, sizes: sizes.clone() };
        let text = to_text(&verdict, "a test");
        assert_eq!(from_text(&text, "a test", &sizes).unwrap(), verdict);
        assert!(from_text(&text, "another test", &sizes).is_err());
        // A truncated file is caught by a check of its own; these are the lines that make no sense.
        for wrong in ["", "rlx-verdict\n", "rlx-verdict\nsubject a test\nruns many\nwinner cpu\n"] {
            assert!(from_text(wrong, "a test", &sizes).is_err(), "{wrong}");
        }
        assert!(from_text(&text.replace("winner cpu", "winner quantum"), "a test", &sizes).is_err());
        assert!(from_text(&format!("{text}time cpu soon\n"), "a test", &sizes).is_err());
    }
}
