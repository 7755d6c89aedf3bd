//! What every command with a model does first: open it, choose the device, gather the inputs.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use rlx::{Model, Runner};
use rlx_ir::{ConstData, Dim, DimBinding, Result, sym};
use rlx_runtime::{AotCache, Artefact, CompileOptions, Precision, Session, TensorInfo, nearest};

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
    /// What the model declares as its inputs.
    pub declared: Vec<TensorInfo>,
    /// How long opening took.
    pub load: Duration,
}

impl Job {
    /// The same job with the user's cache of compiled models, where that is asked for.
    pub fn caching(self, asked: bool) -> Result<Job, Failure> {
        Ok(match asked {
            true => Job { runner: self.runner.with_cache(AotCache::from_env()?), ..self },
            false => self,
        })
    }
}

/// Opens the model.
pub fn open(common: &Common) -> Result<Job, Failure> {
    let start = Instant::now();
    if Artefact::is_artefact(&common.model) {
        return open_artefact(common, start);
    }
    let plain = Model::open(&common.model)?;
    check_dims(&plain.inputs()?, &common.dims)?;
    let model = plain.with_dims(common.dims.iter().cloned());
    let session = session(common)?;
    let options = CompileOptions {
        precision: common.precision,
        policy: common.policy.clone(),
        numerics: common.numerics.into(),
        ..CompileOptions::try_new()?
    };
    let declared = model.inputs()?;
    let runner = Runner::new(model, session.clone(), options.clone());
    Ok(Job { runner, session, options, declared, load: start.elapsed() })
}

/// The device that was asked for.
fn session(common: &Common) -> Result<Session> {
    let session = Session::try_new_with_precision(common.device, common.precision)?;
    match common.threads {
        Some(threads) => session.try_with_threads(usize::from(threads)),
        None => Ok(session),
    }
}

/// Loads an artefact. How it computes was decided when it was compiled; dimensions that are open can be given, so that
/// inputs can be made up.
fn open_artefact(common: &Common, start: Instant) -> Result<Job, Failure> {
    let artefact = Artefact::open(&common.model)?;
    let compiled_in = artefact.target().precision.clone();
    if common.precision != Precision::F32 && common.precision.to_string() != compiled_in {
        return Err(Failure::Usage(format!("the model was compiled in {compiled_in}; compile it anew")));
    }
    if matches!(common.numerics, NumericsArg::Strict) || common.policy.is_some() {
        return Err(Failure::Usage("numerics and policy are decided by rlx compile".to_owned()));
    }
    let session = session(common)?;
    let options = CompileOptions { precision: compiled_in.parse()?, ..CompileOptions::try_new()? };
    let runner = Runner::from_artefact(artefact, session.clone())?;
    let open = runner.inputs()?;
    check_dims(&open, &common.dims)?;
    let mut dims = DimBinding::new();
    for (name, value) in &common.dims {
        dims.set(sym::named(name), *value);
    }
    let bound = |info: TensorInfo| TensorInfo { shape: info.shape.bind(&dims), ..info };
    let declared = open.into_iter().map(bound).collect();
    Ok(Job { runner, session, options, declared, load: start.elapsed() })
}

/// A dimension that the model does not have is a slip of the pen.
pub fn check_dims(inputs: &[TensorInfo], dims: &[(String, usize)]) -> Result<(), Failure> {
    let mut known: Vec<String> = Vec::new();
    for info in inputs {
        for dim in info.shape.dims() {
            if let Dim::Dynamic(symbol) = *dim {
                known.push(sym::name(symbol));
            }
        }
    }
    known.sort();
    known.dedup();
    for (name, _) in dims {
        if !known.contains(name) {
            let all = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let close = nearest(name, known.iter().map(String::as_str));
            let close = close.map_or_else(String::new, |c| format!(" (did you mean \"{c}\"?)"));
            let message =
                format!("the model's inputs have no dimension \"{name}\"{close}; open dimensions: {all}");
            return Err(Failure::Usage(message));
        }
    }
    Ok(())
}

/// Inputs as the library takes them.
pub fn borrowed(inputs: &[(String, ConstData)]) -> Vec<(&str, &ConstData)> {
    inputs.iter().map(|(name, data)| (name.as_str(), data)).collect()
}

/// Something that moves on a terminal while work takes long; nothing elsewhere.
pub struct Progress(Option<ProgressBar>);

impl Progress {
    /// Starts to move, unless the output is for a program.
    pub fn start(message: &str, json: bool) -> Self {
        if json || !std::io::stderr().is_terminal() {
            return Progress(None);
        }
        let bar = ProgressBar::new_spinner();
        bar.set_message(message.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        Progress(Some(bar))
    }

    /// Says what is being done.
    pub fn say(&self, message: &str) {
        if let Some(bar) = &self.0 {
            bar.set_message(message.to_owned());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
