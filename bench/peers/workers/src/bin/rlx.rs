//! RLX's worker.

use std::hint::black_box;
use std::process::ExitCode;

use peers::{Job, Model, Result, end};
use rlx::OpenOptions;
use rlx::prelude::{CompiledGraph, ConstData, RunRequest, TensorView};

fn main() -> ExitCode {
    end(work())
}

fn work() -> Result<()> {
    let job = Job::from_args()?;
    let mut options = OpenOptions::new()?;
    options.set("precision", &job.precision)?;
    (options.threads, options.dims) = (Some(job.threads), job.dims.clone());
    let mut runner = options.open(&job.model)?;
    let given: Vec<(&str, &ConstData)> =
        job.inputs.iter().map(|(name, data)| (name.as_str(), data)).collect();
    let compiled = runner.prepare(&given)?.compiled;
    let views: Vec<TensorView<'_>> = given
        .iter()
        .map(|(name, data)| TensorView { name, dtype: data.dtype(), dims: data.dims(), bytes: data.bytes() })
        .collect();
    job.serve(Compiled { compiled, request: RunRequest::from(views.as_slice()) })
}

struct Compiled<'a> {
    compiled: &'a mut CompiledGraph,
    request: RunRequest<'a>,
}

impl Model for Compiled<'_> {
    fn run(&mut self) -> Result<()> {
        black_box(self.compiled.execute(&self.request)?);
        Ok(())
    }

    fn outputs(&mut self) -> Result<Vec<ConstData>> {
        let outputs = self.compiled.execute(&self.request)?;
        let array = |output: rlx_ir::Result<TensorView<'_>>| {
            let output = output?;
            Ok(ConstData::new(output.dtype, output.dims, output.bytes.to_vec())?)
        };
        outputs.iter().map(array).collect()
    }
}
