//! RLX's worker.

use std::hint::black_box;
use std::process::ExitCode;

use memmap2::MmapMut;
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
    let large: Vec<_> = given.iter().map(|(_, data)| in_huge_pages(data.bytes())).collect::<Result<_>>()?;
    let views: Vec<TensorView<'_>> = given
        .iter()
        .zip(&large)
        .map(|((name, data), large)| {
            let bytes = large.as_ref().map_or(&**data.bytes(), |large| &large[OFFSET..]);
            TensorView { name, dtype: data.dtype(), dims: data.dims(), bytes }
        })
        .collect();
    job.serve(Compiled { compiled, request: RunRequest::from(views.as_slice()) })
}

/// The size from which NumPy, whose arrays the workers in Python take as inputs, asks for huge pages.
const LARGE: usize = 4 << 20;

/// Where the C library's `malloc`, which NumPy calls, begins in memory of its own.
const OFFSET: usize = 16;

/// A large input in memory like that of a large array of NumPy.
fn in_huge_pages(bytes: &[u8]) -> Result<Option<MmapMut>> {
    if bytes.len() < LARGE {
        return Ok(None);
    }
    let mut memory = MmapMut::map_anon(OFFSET + bytes.len())?;
    #[cfg(target_os = "linux")]
    memory.advise(memmap2::Advice::HugePage)?;
    memory[OFFSET..].copy_from_slice(bytes);
    Ok(Some(memory))
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
