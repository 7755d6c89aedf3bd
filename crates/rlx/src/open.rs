//! [`OpenOptions`]: how a model is opened and compiled, from text by name. Bindings to other languages use it.

use std::env;
use std::path::Path;

use rlx_ir::{Error, ErrorKind, Progress, Result, nearest};
use rlx_onnx::OnnxFile;
use rlx_runtime::{
    AotCache, Artefact, CompileOptions, Device, DeviceId, Numerics, Precision, PrecisionPolicy, Session, Tune,
};

use crate::model::{Model, check_dims};
use crate::runner::Runner;

/// How a model is opened: the device, the arithmetic, fixed dimensions.
///
/// ```
/// use rlx::OpenOptions;
/// let mut options = OpenOptions::new()?;
/// options.set("precision", "bf16")?;
/// options.set("dim:batch", "1")?;
/// let digits = options.open("../../models/digits/digits.onnx")?;
/// assert_eq!(digits.inputs()?[0].shape.to_string(), "[1, 1, 8, 8] f32");
/// assert!(options.set("presision", "f16").unwrap_err().to_string().contains("did you mean \"precision\"?"));
/// # Ok::<(), rlx_ir::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpenOptions {
    /// The device; `RLX_DEVICE` or the CPU by default.
    pub device: DeviceId,
    /// The arithmetic.
    pub precision: Precision,
    /// Chooses the type by op, instead.
    pub policy: Option<PrecisionPolicy>,
    /// Whether optimisations may change the last bits.
    pub numerics: Numerics,
    /// Whether each step runs the variant measured as fastest.
    pub tune: Option<Tune>,
    /// How many threads the CPU uses.
    pub threads: Option<usize>,
    /// Whether the CPU runs the ops that the device cannot.
    pub cpu_fallback: bool,
    /// Sizes of named dynamic dimensions.
    pub dims: Vec<(String, usize)>,
    /// Whether compiled models are cached in the user's cache.
    pub cache: bool,
}

/// The names that [`OpenOptions::set`] takes, besides `dim:NAME`.
const NAMES: [&str; 8] =
    ["device", "precision", "policy", "numerics", "tune", "threads", "cpu_fallback", "cache"];

impl OpenOptions {
    /// The usual options.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when `RLX_DEVICE` names no device.
    pub fn new() -> Result<Self> {
        let mut options = OpenOptions {
            device: Device::Cpu.into(),
            precision: Precision::F32,
            policy: None,
            numerics: Numerics::Fast,
            tune: None,
            threads: None,
            dims: Vec::new(),
            cpu_fallback: false,
            cache: false,
        };
        if let Ok(device) = env::var("RLX_DEVICE") {
            options.set("device", &device)?;
        }
        Ok(options)
    }

    /// Sets one option by name: `device`, `precision` (`f32`, `f16`, `bf16`), `policy`, `numerics` (`fast`, `strict`), `tune` (`off`,
    /// `cached`, `measure`), `threads`, `cpu_fallback` and `cache` (`true`, `false`), or `dim:NAME` for the size of a dynamic dimension.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for another name, or a value that the option does not take.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let wrong = |takes: &str| {
            let message = format!("option {name:?} takes {takes}, not {value:?}");
            Error::new(ErrorKind::Config, message)
        };
        let number = || value.parse::<usize>().map_err(|_| wrong("a number"));
        match name {
            "device" => {
                self.device = value
                    .parse()
                    .map_err(|e: rlx_runtime::ParseDeviceError| wrong(&format!("a device: {e}")))?;
            }
            "precision" => self.precision = value.parse()?,
            "policy" => self.policy = Some(value.parse()?),
            "numerics" => {
                self.numerics = match value {
                    "fast" => Numerics::Fast,
                    "strict" => Numerics::Strict,
                    _ => return Err(wrong("\"fast\" or \"strict\"")),
                }
            }
            "tune" => self.tune = Some(value.parse()?),
            "threads" => self.threads = Some(number()?),
            "cpu_fallback" => {
                self.cpu_fallback = value.parse().map_err(|_| wrong("\"true\" or \"false\""))?;
            }
            "cache" => self.cache = value.parse().map_err(|_| wrong("\"true\" or \"false\""))?,
            _ => match name.strip_prefix("dim:") {
                Some(dim) => self.dims.push((dim.to_owned(), number()?)),
                None => return Err(unknown(name)),
            },
        }
        Ok(())
    }

    /// A session on the device.
    ///
    /// # Errors
    /// As [`Session::try_new`]; a number of threads that the device does not take.
    pub fn session(&self) -> Result<Session> {
        let mut session = Session::try_on(self.device)?.with_precision(self.precision);
        if let Some(threads) = self.threads {
            session = session.try_with_threads(threads)?;
        }
        if self.cpu_fallback { session.try_with_cpu_fallback() } else { Ok(session) }
    }

    /// How models are compiled.
    ///
    /// # Errors
    /// An environment variable whose value makes no sense.
    pub fn compile_options(&self) -> Result<CompileOptions> {
        let usual = CompileOptions::try_new()?;
        Ok(CompileOptions {
            precision: self.precision,
            policy: self.policy.clone(),
            numerics: self.numerics,
            tune: self.tune.unwrap_or(usual.tune),
            ..usual
        })
    }

    /// Opens an ONNX file or an artefact of `rlx compile`. Importing and compiling are left to the first run.
    ///
    /// # Errors
    /// A file that cannot be read or is not a model; a device that is not there; a dimension that no input has.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Runner> {
        self.open_with_progress(path, &Progress::none())
    }

    /// As [`OpenOptions::open`], with progress and cancellation.
    ///
    /// # Errors
    /// As [`OpenOptions::open`]; [`ErrorKind::Cancelled`].
    pub fn open_with_progress(&self, path: impl AsRef<Path>, progress: &Progress) -> Result<Runner> {
        let path = path.as_ref();
        if Artefact::is_artefact(path) {
            let artefact = self.check_artefact(Artefact::open(path)?)?;
            return Runner::from_artefact_with_progress(artefact, self.session()?, progress);
        }
        self.runner(Model::open_with_progress(path, progress)?)
    }

    /// Opens an ONNX model from memory. Tensor data in other files cannot be reached.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open_bytes(&self, bytes: Vec<u8>) -> Result<Runner> {
        self.runner(Model::new("model", OnnxFile::from_bytes(bytes)?))
    }

    fn runner(&self, model: Model) -> Result<Runner> {
        if !self.dims.is_empty() {
            check_dims(&model.inputs()?, &self.dims)?;
        }
        let model = model.with_dims(self.dims.iter().cloned());
        let runner = Runner::new(model, self.session()?, self.compile_options()?);
        Ok(if self.cache { runner.with_cache(AotCache::from_env()?) } else { runner })
    }

    /// An artefact, if no option asks for what was decided when it was compiled.
    fn check_artefact(&self, artefact: Artefact) -> Result<Artefact> {
        let compiled_in = &artefact.target().precision;
        let decided = self.policy.is_some() || self.tune.is_some() || !self.dims.is_empty();
        let other = self.precision != Precision::F32 && self.precision.to_string() != *compiled_in;
        if decided || other || matches!(self.numerics, Numerics::Strict) {
            let message =
                format!("the model was compiled in {compiled_in}; its arithmetic and dimensions are decided");
            return Err(
                Error::new(ErrorKind::Config, message).with_hint("compile it again with these options")
            );
        }
        Ok(artefact)
    }
}

fn unknown(name: &str) -> Error {
    let message = format!("there is no option {name:?}; options: {}, dim:NAME", NAMES.join(", "));
    let e = Error::new(ErrorKind::Config, message);
    match nearest(name, NAMES) {
        Some(close) => e.with_hint(format!("did you mean {close:?}?")),
        None => e,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_an_option_does_not_take_are_errors() {
        let mut options = OpenOptions::new().unwrap();
        for (name, value) in [
            ("device", "toaster"),
            ("precision", "f12"),
            ("policy", "never"),
            ("numerics", "sloppy"),
            ("tune", "maybe"),
            ("threads", "-1"),
            ("cache", "perhaps"),
            ("dim:batch", "many"),
            ("", ""),
        ] {
            assert_eq!(options.set(name, value).unwrap_err().kind(), ErrorKind::Config, "{name}={value}");
        }
    }

    #[test]
    fn a_dimension_that_no_input_has_is_an_error() {
        let mut options = OpenOptions::new().unwrap();
        options.set("dim:bach", "1").unwrap();
        let e = options.open("../../models/digits/digits.onnx").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Dimension);
    }
}
