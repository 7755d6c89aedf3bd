//! What every command with a model does first: open it, choose the device, gather the inputs.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use rlx::{Model, Runner};
use rlx_ir::files::cache_dir;
use rlx_ir::{ConstData, DimBinding, Progress, Result, sym};
use rlx_runtime::{AotCache, Artefact, CompileOptions, Precision, Session, TensorInfo};

use super::args::{Common, NumericsArg};
use super::failure::Failure;

/// A model opened for a device.
pub struct Job {
    /// The model on its device.
    pub runner: Runner,
    /// The same device.
    pub session: Session,
    /// How to compile.
    pub options: CompileOptions,
    /// The inputs that the model declares.
    pub declared: Vec<TensorInfo>,
    /// The model's files: it, and those that hold its weights.
    pub files: Vec<PathBuf>,
    /// What the model's file says of itself; nothing for an artefact.
    pub metadata: Vec<(String, String)>,
    /// How long opening took.
    pub load: Duration,
}

impl Job {
    /// The same job with the user's cache of compiled models, if requested. If there is no cache folder, a warning is logged.
    pub fn caching(self, asked: bool) -> Result<Job, Failure> {
        if !asked {
            return Ok(self);
        }
        if let Err(e) = cache_dir() {
            tracing::warn!(error = %e, "the compiled model is not cached");
            return Ok(self);
        }
        Ok(Job { runner: self.runner.with_cache(AotCache::from_env()?), ..self })
    }
}

/// Opens the model, whose inputs may be anything: `declared` has those that are tensors. `progress` may stop it.
pub fn open(common: &Common, progress: &Progress) -> Result<Job, Failure> {
    let start = Instant::now();
    if Artefact::is_artefact(&common.model) {
        return open_artefact(common, start, progress);
    }
    let inputs = |model: &Model| if model.is_plain() { model.inputs() } else { Ok(model.input_tensors()) };
    let plain = Model::open_with_progress(&common.model, progress)?;
    check_dims(&inputs(&plain)?, &common.dims)?;
    let (files, metadata) = (plain.files(), plain.metadata().properties);
    let model = plain.with_dims(common.dims.iter().cloned());
    let session = session(common)?;
    let options = options(common)?;
    let declared = inputs(&model)?;
    let runner = Runner::new(model, session.clone(), options.clone());
    Ok(Job { runner, session, options, declared, files, metadata, load: start.elapsed() })
}

/// How to compile.
pub fn options(common: &Common) -> Result<CompileOptions> {
    let usual = CompileOptions::try_new()?;
    Ok(CompileOptions {
        precision: common.precision,
        policy: common.policy.clone(),
        numerics: common.numerics.into(),
        tune: common.tune.unwrap_or(usual.tune),
        ..usual
    })
}

/// The requested device.
fn session(common: &Common) -> Result<Session> {
    let mut session = Session::try_on(common.device)?.with_precision(common.precision);
    if let Some(threads) = common.threads {
        session = session.try_with_threads(usize::from(threads))?;
    }
    if common.cpu_fallback { session.try_with_cpu_fallback() } else { Ok(session) }
}

/// Loads an artefact. How it computes was decided when it was compiled; dimensions that are open can be given, so that
/// inputs can be made up.
fn open_artefact(common: &Common, start: Instant, progress: &Progress) -> Result<Job, Failure> {
    let artefact = Artefact::open(&common.model)?;
    let compiled_in = artefact.target().precision.clone();
    if common.precision != Precision::F32 && common.precision.to_string() != compiled_in {
        return Err(Failure::Usage(format!("the model was compiled in {compiled_in}; compile it again")));
    }
    if matches!(common.numerics, NumericsArg::Strict) || common.policy.is_some() || common.tune.is_some() {
        let message = "numerics, policy and tuning are decided by rlx compile";
        return Err(Failure::Usage(message.to_owned()));
    }
    let session = session(common)?;
    let options = CompileOptions { precision: compiled_in.parse()?, ..CompileOptions::try_new()? };
    let runner = Runner::from_artefact_with_progress(artefact, session.clone(), progress)?;
    let open = runner.inputs()?;
    check_dims(&open, &common.dims)?;
    let mut dims = DimBinding::new();
    for (name, value) in &common.dims {
        dims.set(sym::named(name), *value);
    }
    let bound = |info: TensorInfo| TensorInfo { shape: info.shape.bind(&dims), ..info };
    let declared = open.into_iter().map(bound).collect();
    let (files, metadata) = (vec![common.model.clone()], Vec::new());
    Ok(Job { runner, session, options, declared, files, metadata, load: start.elapsed() })
}

/// A dimension that the model does not have is wrong usage, and so is one that is given twice.
pub fn check_dims(inputs: &[TensorInfo], dims: &[(String, usize)]) -> Result<(), Failure> {
    for (i, (name, value)) in dims.iter().enumerate() {
        if let Some((_, before)) = dims[..i].iter().find(|(n, _)| n == name) {
            return Err(Failure::Usage(format!("--dim {name} is given twice: {before} and {value}")));
        }
    }
    rlx::check_dims(inputs, dims).map_err(Failure::Misuse)
}

/// Inputs as the library takes them.
pub fn borrowed(inputs: &[(String, ConstData)]) -> Vec<(&str, &ConstData)> {
    inputs.iter().map(|(name, data)| (name.as_str(), data)).collect()
}

/// Something that moves on a terminal while work takes long; nothing elsewhere. It vanishes with its last clone.
#[derive(Clone)]
pub struct Spinner(Option<Arc<Shown>>);

struct Shown(ProgressBar);

impl Spinner {
    /// Starts to move, unless the output is for a program.
    pub fn start(message: &str, json: bool) -> Self {
        if json || !std::io::stderr().is_terminal() {
            return Spinner(None);
        }
        let bar = ProgressBar::new_spinner();
        bar.set_message(message.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        Spinner(Some(Arc::new(Shown(bar))))
    }

    /// Whether anybody sees it.
    pub fn moves(&self) -> bool {
        self.0.is_some()
    }

    /// Stops to move.
    pub fn hide(&self) {
        if let Some(shown) = &self.0 {
            shown.0.finish_and_clear();
        }
    }

    /// Prints while nothing moves.
    pub fn aside<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.0 {
            Some(shown) => shown.0.suspend(print),
            None => print(),
        }
    }

    /// Says what is being done.
    pub fn say(&self, message: &str) {
        if let Some(shown) = &self.0 {
            shown.0.set_message(message.to_owned());
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
