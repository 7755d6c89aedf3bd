//! What a run of a model costs, whoever runs it: `{"flops", "weight_bytes"}`, as RLX counts them.

use std::process::ExitCode;

use peers::{Job, Result, answer, end};
use rlx::OpenOptions;
use rlx::prelude::ConstData;
use serde_json::json;

fn main() -> ExitCode {
    end(work())
}

fn work() -> Result<()> {
    let job = Job::from_args()?;
    let mut options = OpenOptions::new()?;
    options.dims = job.dims;
    let mut runner = options.open(&job.model)?;
    let given: Vec<(&str, &ConstData)> =
        job.inputs.iter().map(|(name, data)| (name.as_str(), data)).collect();
    let weight_bytes = runner.prepare(&given)?.compiled.memory().weight_bytes;
    answer(&json!({ "flops": runner.flops(&given)?, "weight_bytes": weight_bytes }))
}
