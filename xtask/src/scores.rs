//! What holds on each device, counted: ONNX's node cases, goldens of the test models, tests of the public contract.
//!
//! Tests say it in lines among what they print:
//!
//! ```text
//! @nodes vulkan 1466 of 1653
//! @core vulkan 1384 of 1413
//! @golden vulkan bert_dynamic golden_0.npz
//! @contract webgpu 70
//! ```
//! A golden counts once, however often it is run. Where the contract's tests of one device are a run of the test harness, the suite counts them
//! ([`Outcome::of_contract`](crate::outcome::Outcome::of_contract)).

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What holds on one device.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Score {
    /// ONNX's node cases that pass, and all that there are; 0 of 0 where none were run.
    #[serde(default)]
    pub nodes: (u64, u64),
    /// Of the node cases of core types that the CPU passes, those that pass, and all; 0 of 0 where they were not counted.
    #[serde(default, skip_serializing_if = "is_uncounted")]
    pub core: (u64, u64),
    /// Inputs of test models whose outputs are as expected.
    #[serde(default)]
    pub goldens: u64,
    /// Tests of the public contract that pass.
    #[serde(default)]
    pub contract: u64,
}

fn is_uncounted(core: &(u64, u64)) -> bool {
    *core == (0, 0)
}

/// By the device's name.
pub type Scores = BTreeMap<String, Score>;

/// The scores in what a test printed.
pub fn read(output: &str) -> Scores {
    let mut scores = Scores::new();
    let mut goldens = BTreeSet::new();
    for line in output.lines() {
        // Under a single test thread a line may follow the test's name.
        let Some(at) = line.find('@') else { continue };
        let words: Vec<&str> = line[at..].split_whitespace().collect();
        match words[..] {
            ["@nodes", device, passed, "of", all] => {
                let score: &mut Score = scores.entry(device.to_owned()).or_default();
                score.nodes.0 += passed.parse::<u64>().unwrap_or(0);
                score.nodes.1 += all.parse::<u64>().unwrap_or(0);
            }
            ["@core", device, passed, "of", all] => {
                let core = &mut scores.entry(device.to_owned()).or_default().core;
                core.0 += passed.parse::<u64>().unwrap_or(0);
                core.1 += all.parse::<u64>().unwrap_or(0);
            }
            ["@golden", device, model, golden] if goldens.insert((device, model, golden)) => {
                scores.entry(device.to_owned()).or_default().goldens += 1;
            }
            ["@contract", device, passed] => {
                scores.entry(device.to_owned()).or_default().contract += passed.parse::<u64>().unwrap_or(0);
            }
            _ => {}
        }
    }
    scores
}

/// Adds the scores of another part of a suite.
pub fn add(scores: &mut Scores, others: &Scores) {
    for (device, other) in others {
        let score = scores.entry(device.clone()).or_default();
        score.nodes = (score.nodes.0 + other.nodes.0, score.nodes.1 + other.nodes.1);
        score.core = (score.core.0 + other.core.0, score.core.1 + other.core.1);
        score.goldens += other.goldens;
        score.contract += other.contract;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goldens_count_once_and_parts_add_up() {
        let mut scores = read(
            "test a ... @golden vulkan mlp a.npz\n@golden vulkan mlp a.npz\nok\n@golden vulkan mlp b.npz\n\
             @golden opengl mlp a.npz\n@nodes tpu 1466 of 1653\n@core tpu 1384 of 1413\nmail@golden vulkan\n@contract webgpu 70\n",
        );
        assert_eq!(scores["webgpu"], Score { contract: 70, ..Score::default() });
        assert_eq!(scores["vulkan"], Score { goldens: 2, ..Score::default() });
        assert_eq!((scores["tpu"].nodes, scores["tpu"].core), ((1466, 1653), (1384, 1413)));
        let more =
            Scores::from([("vulkan".to_owned(), Score { goldens: 1, contract: 210, ..Score::default() })]);
        add(&mut scores, &more);
        assert_eq!(scores["vulkan"], Score { goldens: 3, contract: 210, ..Score::default() });
        assert_eq!(scores["opengl"].goldens, 1);
    }
}
