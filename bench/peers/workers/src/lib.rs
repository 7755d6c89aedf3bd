//! What every worker written in Rust does, and the protocol between workers and `bench/peers`.
//!
//! A worker is called as `WORKER MODEL.onnx INPUTS.npz THREADS PRECISION [DIM=N]...`. It loads the model, runs it once and writes a
//! line of JSON, `{"load_ms", "first_run_ms"}`. Then it answers each line of its standard input with one of its own:
//!
//! - `go SECONDS` runs the model again and again for so long, at least five times, and answers what single runs took:
//!   `{"runs", "min_ms", "median_ms", "p95_ms"}`.
//! - `save FILE.npz` runs it once and writes the outputs, named by their positions; the answer is `{}`.
//!
//! What cannot be done ends the process with a message. `serve.py` is the same for the workers written in Python. The worker `device`, which `bench/gpu.py` times,
//! has other arguments and requests.

use std::error::Error;
use std::fmt::Display;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rlx_ir::ConstData;
use serde_json::{Value as Json, json};

/// Anything that ends a worker.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Runs before each round that are not timed.
const WARM_UP: usize = 3;
/// The fewest runs of a round.
const LEAST: usize = 5;

/// A loaded model with its inputs.
pub trait Model {
    /// Runs it.
    ///
    /// # Errors
    /// Whatever the runtime says.
    fn run(&mut self) -> Result<()>;

    /// Runs it, and gives its outputs in the model's order.
    ///
    /// # Errors
    /// As [`Model::run`]; an output that is no tensor of numbers.
    fn outputs(&mut self) -> Result<Vec<ConstData>>;
}

/// What the command line asks for.
#[derive(Debug)]
pub struct Job {
    /// The ONNX file.
    pub model: String,
    /// The inputs by name.
    pub inputs: Vec<(String, ConstData)>,
    /// How many threads may compute.
    pub threads: usize,
    /// `f32` or `bf16`.
    pub precision: String,
    /// The sizes of the model's dynamic dimensions.
    pub dims: Vec<(String, usize)>,
    start: Instant,
}

impl Job {
    /// # Errors
    /// An argument that is missing or malformed; inputs that cannot be read.
    pub fn from_args() -> Result<Job> {
        let start = Instant::now();
        let args: Vec<String> = std::env::args().skip(1).collect();
        let [model, inputs, threads, precision, dims @ ..] = args.as_slice() else {
            return Err("arguments: MODEL.onnx INPUTS.npz THREADS PRECISION [DIM=N]...".into());
        };
        let dims = dims.iter().map(|dim| {
            let (name, size) = dim.split_once('=').ok_or_else(|| format!("{dim}: not DIM=N"))?;
            Ok((name.to_owned(), size.parse()?))
        });
        Ok(Job {
            model: model.clone(),
            inputs: rlx_weights::npz::read(inputs)?,
            threads: threads.parse()?,
            precision: precision.clone(),
            dims: dims.collect::<Result<_>>()?,
            start,
        })
    }

    /// # Errors
    /// Another precision than `f32` was asked for.
    pub fn only_f32(&self) -> Result<()> {
        match self.precision.as_str() {
            "f32" => Ok(()),
            other => Err(format!("{other} is not offered").into()),
        }
    }

    /// Answers requests until standard input ends.
    ///
    /// # Errors
    /// What the model gives; a request that is none; a file that cannot be written.
    pub fn serve(&self, mut model: impl Model) -> Result<()> {
        let loaded = self.start.elapsed();
        let first = Instant::now();
        model.run()?;
        answer(&json!({ "load_ms": ms(loaded), "first_run_ms": ms(first.elapsed()) }))?;
        for request in std::io::stdin().lock().lines() {
            let request = request?;
            match request.split_once(' ') {
                Some(("go", seconds)) => answer(&round(&mut model, seconds.parse()?)?)?,
                Some(("save", file)) => {
                    let arrays = model.outputs()?;
                    let names: Vec<String> = (0..arrays.len()).map(|i| i.to_string()).collect();
                    let named: Vec<_> = names.iter().map(String::as_str).zip(&arrays).collect();
                    rlx_weights::npz::write(file, &named)?;
                    answer(&json!({}))?;
                }
                _ => return Err(format!("{request:?} is no request").into()),
            }
        }
        Ok(())
    }
}

/// The body of a worker's `main`: an error is the process's last words.
pub fn end(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// Writes one line of JSON.
///
/// # Errors
/// Nobody reads.
pub fn answer(json: &impl Display) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{json}")?;
    Ok(out.flush()?)
}

/// Milliseconds.
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn round(model: &mut impl Model, seconds: f64) -> Result<Json> {
    timed(&mut || model.run(), seconds)
}

/// What single runs take, for so many seconds: the answer to `go SECONDS`.
///
/// # Errors
/// What a run gives.
pub fn timed(run: &mut impl FnMut() -> Result<()>, seconds: f64) -> Result<Json> {
    for _ in 0..WARM_UP {
        run()?;
    }
    let (mut taken, begin) = (Vec::new(), Instant::now());
    while taken.len() < LEAST || begin.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        run()?;
        taken.push(start.elapsed());
    }
    taken.sort_unstable();
    Ok(json!({
        "runs": taken.len(),
        "min_ms": ms(taken[0]),
        "median_ms": ms(taken[taken.len() / 2]),
        "p95_ms": ms(taken[(taken.len() - 1) * 19 / 20]),
    }))
}
