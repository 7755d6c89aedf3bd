//! The arguments of every command.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Args, Parser, Subcommand, ValueEnum, ValueHint};
use rlx::inputs::InputLimit;
use rlx_ir::files::parse_size;
use rlx_runtime::{DeviceId, Numerics, Precision, PrecisionPolicy, Tune};

use super::examples::{
    BENCH_EXAMPLES, CACHE_EXAMPLES, COMPARE_EXAMPLES, COMPILE_EXAMPLES, COMPLETIONS_EXAMPLES,
    DEVICES_EXAMPLES, ENVIRONMENT, EXAMPLES, INSPECT_EXAMPLES, MAN_EXAMPLES, RUN_EXAMPLES, TUNE_EXAMPLES,
    VERIFY_EXAMPLES,
};
use super::image::ImageArgs;

/// Runs, inspects, verifies and times models on the devices of this machine.
#[derive(Debug, Parser)]
#[command(name = "rlx", version, after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{ENVIRONMENT}"))]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
    /// Print one JSON value on standard output instead of text
    #[arg(long, global = true)]
    pub json: bool,
}

impl Cli {
    /// Whether the output is JSON, for programs.
    pub fn wants_json(&self) -> bool {
        self.json
            || matches!(&self.command, Command::Inspect(args) if args.format == Some(InspectFormat::Json))
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a model on inputs and print or store the outputs
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Compile a model to a file that run, bench, inspect and verify load without compiling again
    #[command(after_help = COMPILE_EXAMPLES)]
    Compile(CompileArgs),
    /// Show a model's inputs, outputs, ops and cost, and how the compiler transforms it; or what any ONNX, safetensors or GGUF
    /// file holds
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(InspectArgs),
    /// Compare a device with the slow, exact oracle or another device, value by value; or outputs with those of another program
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(VerifyArgs),
    /// Compare the outputs of two models for the same inputs
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(CompareArgs),
    /// Measure how long a model takes
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(BenchArgs),
    /// Measure the variants of a model's steps on a device, and store which ones are the fastest there for all later commands
    #[command(after_help = TUNE_EXAMPLES)]
    Tune(TuneArgs),
    /// List, check or remove the compiled models cached by --cache
    #[command(after_help = CACHE_EXAMPLES)]
    Cache(CacheArgs),
    /// List the devices and why some cannot be used; for a model, predict the time on each and show the choice
    #[command(after_help = DEVICES_EXAMPLES)]
    Devices(DevicesArgs),
    /// Print a script that completes this command in a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Print the manual page, or write the pages of all commands to a folder
    #[command(after_help = MAN_EXAMPLES)]
    Man(ManArgs),
    /// Check this machine and this build: what works, what is missing and how to get it, and whether the environment
    /// variables that are set can be honoured (if not, exit code 1)
    Doctor,
}

/// The model and how to run it.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// The model: an ONNX file, or a compiled one (.rlx)
    pub model: PathBuf,
    /// The device to run on
    #[arg(long, env = "RLX_DEVICE", default_value = "cpu", value_parser = DEVICE, hide_possible_values = true)]
    pub device: DeviceId,
    /// The arithmetic: f32, f16, bf16
    #[arg(long, default_value = "f32", value_parser = PRECISION, hide_possible_values = true)]
    pub precision: Precision,
    /// Choose by op which type is used, instead of --precision: always-f32, always-f16, auto-mixed-conservative, auto-mixed,
    /// auto-mixed-bf16
    #[arg(long, value_name = "POLICY", value_parser = POLICY, hide_possible_values = true, conflicts_with = "precision")]
    pub policy: Option<PrecisionPolicy>,
    /// Whether optimisations may change the last bits
    #[arg(long, default_value = "fast")]
    pub numerics: NumericsArg,
    /// Whether each step runs the variant measured as fastest on this machine: off, cached (use earlier
    /// measurements), measure (also measure what was not measured yet) [default: RLX_TUNE, or cached]
    #[arg(long, value_name = "WHEN", value_parser = TUNE, hide_possible_values = true, num_args = 0..=1, default_missing_value = "measure",
        require_equals = true)]
    pub tune: Option<Tune>,
    /// The maximum size of an input with dynamic dimensions, as in 500M or 8G; a larger one is not read
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = input_limit, value_hint = ValueHint::Other)]
    pub input_limit: InputLimit,
    /// How many threads the CPU uses [default: RLX_NUM_THREADS, or all]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4096), value_hint = ValueHint::Other)]
    pub threads: Option<u16>,
    /// Let the CPU run the ops that the device cannot
    #[arg(long)]
    pub cpu_fallback: bool,
    /// Fix a named dimension; may be given several times
    #[arg(long = "dim", value_name = "NAME=VALUE", value_parser = dim, value_hint = ValueHint::Other)]
    pub dims: Vec<(String, usize)>,
    /// Read inputs by name from a NumPy archive
    #[arg(long, value_name = "FILE.npz")]
    pub inputs: Option<PathBuf>,
    /// Read one input from an image (.png, .jpg, .webp), a .npy or a .json file, or use random values; may be given several
    /// times
    #[arg(long = "input", value_name = "NAME=FILE|random", value_parser = named)]
    pub input: Vec<(String, String)>,
    /// How images are prepared.
    #[command(flatten)]
    pub images: ImageArgs,
}

impl Common {
    /// Whether inputs are given.
    pub fn has_inputs(&self) -> bool {
        self.inputs.is_some() || !self.input.is_empty()
    }

    /// The files that are read besides the model's own.
    pub fn reads(&self) -> Vec<PathBuf> {
        let single = self.input.iter().filter(|(_, file)| file != "random").map(|(_, file)| file.into());
        self.inputs.iter().cloned().chain(single).collect()
    }
}

/// How long a command may take.
#[derive(Debug, Clone, Args)]
pub struct Limits {
    /// Stop after this time, as in 5s, 500ms or 2m; files are written whole or not at all
    #[arg(long, value_name = "TIME", value_parser = duration, value_hint = ValueHint::Other)]
    pub deadline: Option<Duration>,
}

/// `rlx run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The model and how to run it.
    #[command(flatten)]
    pub common: Common,
    /// How long it may take.
    #[command(flatten)]
    pub limits: Limits,
    /// Load the compiled model from the user's cache, or compile it and store it there
    #[arg(long)]
    pub cache: bool,
    /// Files for the first input that is not given otherwise; several run as one batch. Given a folder, the images in it run
    /// one after the other
    pub files: Vec<PathBuf>,
    /// Read inputs from the lines of a file (`-`: standard input), each a JSON object of inputs by name or the value
    /// of the one input; print a line of JSON for each. Text is not tokenised; lines hold numbers
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "labels", "outputs"])]
    pub lines: Option<PathBuf>,
    /// Run this many files or lines at a time [default: the model's batch size if it is fixed, or 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), value_hint = ValueHint::Other)]
    pub batch: Option<u32>,
    /// Stop at the first file or line that cannot be read or run, instead of reporting it and continuing
    #[arg(long)]
    pub fail_fast: bool,
    /// Write all outputs to a NumPy archive (.npz) or as lists by name (.json), or the only one to an array (.npy)
    #[arg(long, value_name = "FILE.npz")]
    pub outputs: Option<PathBuf>,
    /// Read class names from the lines of this file, and print the most likely class of each item of the batch
    #[arg(long, value_name = "FILE")]
    pub labels: Option<PathBuf>,
    /// How many classes to print for each item
    #[arg(long, value_name = "K", default_value_t = 1, value_hint = ValueHint::Other)]
    pub top: usize,
}

impl RunArgs {
    /// The files that are read besides the model's own.
    pub fn reads(&self) -> Vec<PathBuf> {
        let own = self.files.iter().chain(&self.lines).chain(&self.labels).cloned();
        self.common.reads().into_iter().chain(own).collect()
    }

    /// Whether items run one after the other instead of all at once.
    pub fn is_stream(&self) -> bool {
        self.lines.is_some()
            || !self.files.is_empty() && (self.batch.is_some() || self.files.iter().any(|f| f.is_dir()))
    }
}

/// `rlx compile`.
#[derive(Debug, Clone, Args)]
pub struct CompileArgs {
    /// The model and how to compile it; inputs matter only if their values decide shapes of the model.
    #[command(flatten)]
    pub common: Common,
    /// How long it may take.
    #[command(flatten)]
    pub limits: Limits,
    /// Where to write the compiled model; with --device ane, a name that ends in .mlpackage is a package for Core ML
    #[arg(short, long, value_name = "FILE.rlx")]
    pub output: PathBuf,
    /// Leave out what only `verify` needs: the original graph, and the original weights of packed ones
    #[arg(long)]
    pub slim: bool,
}

/// `rlx cache`.
#[derive(Debug, Clone, Args)]
pub struct CacheArgs {
    /// What to do with it.
    #[command(subcommand)]
    pub command: CacheCommand,
}

/// What can be done with the cache.
#[derive(Debug, Clone, Subcommand)]
pub enum CacheCommand {
    /// List the cached models, most recently used first
    Ls,
    /// Remove entries by name, or by the start of their key
    Rm {
        /// The entries
        #[arg(required_unless_present = "all")]
        names: Vec<String>,
        /// Remove everything
        #[arg(long, conflicts_with = "names")]
        all: bool,
    },
    /// Check every byte of all entries, or of these; exit code 1 if one is damaged
    Verify {
        /// The entries
        names: Vec<String>,
    },
}

/// `rlx inspect`.
#[derive(Debug, Clone, Args)]
pub struct InspectArgs {
    /// The model and how to run it.
    #[command(flatten)]
    pub common: Common,
    /// How long it may take.
    #[command(flatten)]
    pub limits: Limits,
    /// Print the graph after each pass, or after the one named, or the changes from FIRST to LAST (`..` for all)
    #[arg(long, value_name = "FIRST..LAST", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub passes: Option<String>,
    /// How to show it [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<InspectFormat>,
    /// Write it to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// How `rlx inspect` shows a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum InspectFormat {
    /// Lists and tables.
    Text,
    /// The graph for Graphviz.
    Dot,
    /// The graph as a diagram.
    Svg,
    /// Everything, for programs.
    Json,
}

/// `rlx verify`.
#[derive(Debug, Clone, Args)]
pub struct VerifyArgs {
    /// The model and how to run it.
    #[command(flatten)]
    pub common: Common,
    /// How long it may take.
    #[command(flatten)]
    pub limits: Limits,
    /// A device to trust instead of the oracle
    #[arg(long, value_name = "DEVICE", value_parser = DEVICE, hide_possible_values = true)]
    pub against: Option<DeviceId>,
    /// Compare the outputs with these arrays of another program, by name or else by order (.npz, or .npy for one output)
    #[arg(long, value_name = "FILE.npz", conflicts_with = "against")]
    pub expect: Option<PathBuf>,
    /// What may differ.
    #[command(flatten)]
    pub allowed: Allowed,
}

/// What may differ.
#[derive(Debug, Clone, Args)]
pub struct Allowed {
    /// The error allowed relative to each element [default, by the type that a tensor is rounded to: f32 1e-3, f16 1e-2, bf16 5e-2]
    #[arg(long, value_hint = ValueHint::Other)]
    pub rtol: Option<f64>,
    /// The error allowed relative to a tensor's largest magnitude [default, by that type: f32 1e-4, f16 1e-2, bf16 5e-2]
    #[arg(long, value_hint = ValueHint::Other)]
    pub atol: Option<f64>,
    /// The absolute error allowed whatever the magnitude [default: 0; 1e-5 for --expect and compare]
    #[arg(long, value_hint = ValueHint::Other)]
    pub floor: Option<f64>,
}

/// `rlx compare`.
#[derive(Debug, Clone, Args)]
pub struct CompareArgs {
    /// The first model, which is right, and how to run both.
    #[command(flatten)]
    pub common: Common,
    /// The second model
    pub other: PathBuf,
    /// How long it may take.
    #[command(flatten)]
    pub limits: Limits,
    /// What may differ.
    #[command(flatten)]
    pub allowed: Allowed,
}

/// `rlx devices`.
#[derive(Debug, Clone, Args)]
pub struct DevicesArgs {
    /// An ONNX file
    pub model: Option<PathBuf>,
    /// How long it may take.
    #[command(flatten)]
    pub limits: Limits,
    /// List the devices that are not in this build one by one, with how to get each
    #[arg(long, conflicts_with_all = ["model", "calibrate"])]
    pub all: bool,
    /// Calibrate the cost model of each device that can be used, and store the result
    #[arg(long)]
    pub calibrate: bool,
    /// Time the model on each device with this many runs on random inputs, and store the result
    #[arg(long, value_name = "RUNS", requires = "model", value_parser = clap::value_parser!(u32).range(1..), value_hint = ValueHint::Other)]
    pub measure: Option<u32>,
    /// Fix a named dimension; may be given several times
    #[arg(long = "dim", value_name = "NAME=VALUE", requires = "model", value_parser = dim, value_hint = ValueHint::Other)]
    pub dims: Vec<(String, usize)>,
}

/// `rlx bench`.
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    /// The model and how to run it.
    #[command(flatten)]
    pub common: Common,
    /// How long it may take.
    #[command(flatten)]
    pub limits: Limits,
    /// Load the compiled model from the user's cache, or compile it and store it there
    #[arg(long)]
    pub cache: bool,
    /// How many runs to time
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..), value_hint = ValueHint::Other)]
    pub runs: u32,
    /// How many untimed runs to make first
    #[arg(long, default_value_t = 5, value_hint = ValueHint::Other)]
    pub warmup: u32,
    /// Store the inputs on the device once, as handles, instead of copying them there in every run
    #[arg(long)]
    pub bind_inputs: bool,
    /// Time each step in the same number of extra runs, and compare it with the measured peak of this machine
    #[arg(long)]
    pub profile: bool,
    /// Write the steps of a run as a trace for chrome://tracing and ui.perfetto.dev (implies profiling)
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
    /// Draw a roofline plot of the steps (implies profiling)
    #[arg(long, value_name = "FILE.svg")]
    pub roofline: Option<PathBuf>,
}

impl BenchArgs {
    /// Whether steps are to be timed.
    pub fn profiles(&self) -> bool {
        self.profile || self.trace.is_some() || self.roofline.is_some()
    }
}

/// `rlx tune`.
#[derive(Debug, Clone, Args)]
pub struct TuneArgs {
    /// The model and how to run it.
    #[command(flatten)]
    pub common: Common,
    /// How long it may take.
    #[command(flatten)]
    pub limits: Limits,
    /// Measure nothing more after this time from the start, as in 60s or 5m; what was measured until then is stored (0: no limit)
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration, value_hint = ValueHint::Other)]
    pub limit: Duration,
}

/// `rlx completions`.
#[derive(Debug, Clone, Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// `rlx man`.
#[derive(Debug, Clone, Args)]
pub struct ManArgs {
    /// Write the pages of all commands to this folder
    #[arg(short, long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
}

/// Whether optimisations may change bits.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum NumericsArg {
    /// No optimisation changes a bit.
    Strict,
    /// Changes within rounding error, by fixed rules.
    Fast,
}

impl From<NumericsArg> for Numerics {
    fn from(n: NumericsArg) -> Numerics {
        match n {
            NumericsArg::Strict => Numerics::Strict,
            NumericsArg::Fast => Numerics::Fast,
        }
    }
}

fn input_limit(text: &str) -> Result<InputLimit, String> {
    let limit = parse_size(text).map(InputLimit);
    limit.ok_or_else(|| format!("\"{text}\" is not a size; write bytes, or 500M, 8G"))
}

const DEVICE: Spelled<DeviceId> = Spelled {
    names: || rlx_runtime::device_ids().iter().map(|d| d.feature()).collect(),
    parse: |text| text.parse().map_err(|e: rlx_runtime::ParseDeviceError| e.to_string()),
};
const PRECISION: Spelled<Precision> = Spelled {
    names: || vec!["f32", "f16", "bf16"],
    parse: |text| text.parse().map_err(|e: rlx_ir::Error| e.message().to_owned()),
};
const POLICY: Spelled<PrecisionPolicy> = Spelled {
    names: || vec!["always-f32", "always-f16", "auto-mixed-conservative", "auto-mixed", "auto-mixed-bf16"],
    parse: |text| text.parse().map_err(|e: rlx_ir::Error| e.message().to_owned()),
};
const TUNE: Spelled<Tune> = Spelled {
    names: || vec!["off", "cached", "measure"],
    parse: |text| text.parse().map_err(|e: rlx_ir::Error| e.message().to_owned()),
};

/// A value with names: shells complete them, and other spellings are accepted too.
#[derive(Clone, Copy)]
pub struct Spelled<T> {
    /// Its names.
    pub names: fn() -> Vec<&'static str>,
    /// Reads any spelling.
    pub parse: fn(&str) -> Result<T, String>,
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Spelled<T> {
    type Value = T;

    fn parse_ref(&self, command: &clap::Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        let parse = self.parse;
        TypedValueParser::parse_ref(&(move |text: &str| parse(text)), command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.names)().into_iter().map(PossibleValue::new)))
    }
}

/// A number of seconds, or with a unit.
fn duration(text: &str) -> Result<Duration, String> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let seconds = match unit {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("\"{unit}\" is not a unit of time: ms, s, m or h")),
    };
    let number: f64 = number.parse().map_err(|_| format!("\"{text}\" is not a time such as 5s or 500ms"))?;
    Duration::try_from_secs_f64(number * seconds).map_err(|e| e.to_string())
}

fn dim(text: &str) -> Result<(String, usize), String> {
    let (name, value) = named(text)?;
    match value.parse() {
        Ok(value) => Ok((name, value)),
        Err(_) => Err(format!("\"{value}\" is not a size")),
    }
}

fn named(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("it must be NAME=VALUE".to_owned()),
    }
}
