//! Choosing between variants of a step by measurement.
//!
//! A device may have several variants of a step that give the same bits, such as the tile sizes of a matmul; which one is
//! fastest depends on the machine ([`rlx_backend::tuning`]). With [`Tune::Measure`] compiling measures them: each such step
//! becomes a separate module with random parameters and inputs, which is compiled in every variant and timed. A variant
//! whose results differ in a single bit from the first one's is rejected with a warning, unless it is of another
//! [`BitClass`], which only fast numerics allow: then its error may be twice that of the first one, by the oracle. The results are stored in
//! the cache folder (`RLX_CACHE_DIR`) by device and machine, where later compilations read them
//! ([`Tune::Cached`], the default), and in artefacts.
//!
//! ```no_run
//! use rlx_ir::{DType, Graph, GraphExt, Shape};
//! use rlx_runtime::{CompileOptions, Device, Session, Tune};
//! let mut graph = Graph::new("ffn");
//! let x = graph.input("x", Shape::new(&[128, 384], DType::F32));
//! let w = graph.param("w", Shape::new(&[384, 1536], DType::F32));
//! let y = graph.mm(x, w);
//! graph.set_outputs(vec![y]);
//! let options = CompileOptions::new().tune(Tune::Measure);
//! let compiled = Session::new(Device::Cpu).try_compile_with(graph, &options)?;
//! for key in compiled.tuned_steps() {
//!     println!("{key}");
//! }
//! # Ok::<(), rlx_runtime::CompileError>(())
//! ```

mod isolate;
mod measure;
mod reference;
mod sample;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use rlx_backend::tuning::{BitClass, Tuning, TuningKey, other_class};
use rlx_ir::progress::Stage;
use rlx_ir::{Error, ErrorKind, LirModule, Progress, Result};
use rlx_opt::{CompileOptions, Numerics, Tune};

use crate::device::DeviceBackend;
use crate::machine::{processor, typical_dims};
use crate::{panic_guard, store};
/// Where tunings are in the cache folder.
const FOLDER: &str = "tuning";

/// How the variant of a step was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Found {
    /// This compilation measured it.
    Now,
    /// It was measured before: on this machine, or when the artefact was compiled.
    Earlier,
    /// It was not: it is the default.
    Unmeasured,
    /// It is the default, because the time for tuning was over before all candidates were measured.
    OutOfTime,
    /// It is the default, because the step cannot be run alone, or failed.
    NotAlone,
}

/// A step with several variants, and the one that was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TunedStep {
    /// What is computed.
    pub what: String,
    /// How many steps of the module compute it.
    pub steps: usize,
    /// The variant that is taken where nothing was measured.
    pub default: String,
    /// The chosen variant.
    pub variant: String,
    /// How many variants the device has.
    pub offered: usize,
    /// How the chosen one was found.
    pub found: Found,
    /// The smallest time of a step by each variant that was tried, first the default, where this compilation measured them; `None`
    /// for a variant that failed.
    pub times: Vec<(String, Option<Duration>)>,
}

impl TunedStep {
    /// The class of the chosen variant ([`BitClass`]), where it gives other bits than the default.
    pub fn other_class(&self) -> Option<BitClass> {
        other_class(&self.variant)
    }

    /// The times of one such step by the default and by the chosen variant, where this compilation measured them.
    pub fn before_and_after(&self) -> Option<(Duration, Duration)> {
        let of = |name: &String| {
            self.times.iter().find(|(variant, _)| variant == name).and_then(|(_, time)| *time)
        };
        // A step of open dimensions may have another default where it was measured.
        Some((self.times.first()?.1?, of(&self.variant)?))
    }
}

impl fmt::Display for TunedStep {
    /// `rows8 (default 21.3 µs, rows8 19.8 µs): MatMul …, 4 steps`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.variant)?;
        for (i, (variant, time)) in self.times.iter().enumerate() {
            f.write_str(if i == 0 { " (" } else { ", " })?;
            match time {
                Some(time) => write!(f, "{variant} {:.1} µs", time.as_secs_f64() * 1e6)?,
                None => write!(f, "{variant} failed")?,
            }
        }
        f.write_str(if self.times.is_empty() { ": " } else { "): " })?;
        write!(f, "{}, {} step{}", self.what, self.steps, if self.steps == 1 { "" } else { "s" })
    }
}

/// The tuning of a module's steps.
#[derive(Debug, Default)]
pub struct Tuned {
    /// For the backend.
    pub tuning: Tuning,
    /// As text.
    pub steps: Vec<TunedStep>,
}

/// The variants for the steps of `lir`: those measured earlier on this machine, or those of `given`; with
/// [`Tune::Measure`] all others are measured now.
///
/// # Errors
/// An error of the backend; [`ErrorKind::Cancelled`]. A measurement that fails is a warning.
pub fn tuned(
    device: &DeviceBackend,
    lir: &LirModule,
    options: &CompileOptions,
    given: &Tuning,
    progress: &Progress,
) -> Result<Tuned> {
    if options.tune == Tune::Off {
        return Ok(Tuned::default());
    }
    let mut known = read(device);
    known.extend(given);
    if known.is_empty() && options.tune == Tune::Cached {
        return Ok(Tuned::default());
    }
    let keys = keys(device, lir, options)?;
    let mut times = BTreeMap::new();
    if options.tune == Tune::Measure {
        let unknown: Vec<_> = keys.iter().filter(|(key, _)| !known.knows(key)).collect();
        let mut found = Vec::new();
        let ended = measure_all(device, lir, options, &unknown, progress, &mut found);
        let mut fresh = Tuning::default();
        for Measured { key, variant, variants, found } in found {
            if found == Found::Now {
                fresh.choose(key, variant);
            }
            times.insert(key.what.clone(), (variants, found));
        }
        // Also after a cancellation: finished measurements need not be repeated.
        keep(device, &fresh);
        ended?;
        known.extend(&fresh);
    }
    let told = |(key, steps): &(TuningKey, Vec<usize>)| {
        let unmeasured = || (Vec::new(), if known.knows(key) { Found::Earlier } else { Found::Unmeasured });
        let (times, found) = times.remove(&key.what).unwrap_or_else(unmeasured);
        TunedStep {
            what: key.what.clone(),
            steps: steps.len(),
            default: key.variants[0].clone(),
            variant: key.variants[known.variant(key)].clone(),
            offered: key.variants.len(),
            found,
            times,
        }
    };
    let tuning = known.of(keys.iter().map(|(key, _)| key));
    Ok(Tuned { steps: keys.iter().map(told).collect(), tuning })
}

/// The keys of a module, each with the steps that are of it.
fn keys(
    device: &DeviceBackend,
    lir: &LirModule,
    options: &CompileOptions,
) -> Result<Vec<(TuningKey, Vec<usize>)>> {
    let mut found: Vec<(TuningKey, Vec<usize>)> = Vec::new();
    for (at, step) in lir.steps.iter().enumerate() {
        let key = panic_guard::call(device.device(), "naming the variants of a step", || {
            device.backend().tuning_key(lir, step, options)
        })?;
        let Some(key) = key.filter(|key| key.variants.len() > 1) else { continue };
        match found.iter_mut().find(|(known, _)| *known == key) {
            Some((_, steps)) => steps.push(at),
            None => found.push((key, vec![at])),
        }
    }
    Ok(found)
}

/// The result for a key: the variant to use, the minimum time of each, and whether it was measured.
struct Measured<'s> {
    key: &'s TuningKey,
    variant: usize,
    variants: Vec<(String, Option<Duration>)>,
    found: Found,
}

/// Measures these keys, at typical sizes of dynamic dimensions, those of most steps first: where time is over before all are measured, those
/// matter most.
fn measure_all<'s>(
    device: &DeviceBackend,
    lir: &LirModule,
    options: &CompileOptions,
    keys: &[&'s (TuningKey, Vec<usize>)],
    progress: &Progress,
    found: &mut Vec<Measured<'s>>,
) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let bound = lir.bind(&typical_dims(&lir.graph));
    let mut keys = keys.to_vec();
    keys.sort_by_key(|(_, steps)| std::cmp::Reverse(steps.len()));
    for (i, (key, steps)) in keys.iter().enumerate() {
        let so_far = so_far(found);
        let say = |variant: &str, tried: usize, of: usize| {
            let text = format!("{so_far}{variant} ({} of {of}) of {}", tried + 1, key.what);
            progress.step(Stage::Tune, i, keys.len(), || &text)
        };
        progress.step(Stage::Tune, i, keys.len(), || &key.what)?;
        let unmeasured = |found| Measured { key, variant: 0, variants: Vec::new(), found };
        found.push(match measure::fastest(device, &bound, steps[0], options, progress, say) {
            Ok(measure::Measured::Fastest(name, variants)) => {
                tracing::debug!(key = %key.what, variant = %name, "tuned");
                // A variant that exists only for the measured sizes is not a variant of the step.
                let variant = key.variants.iter().position(|variant| *variant == name).unwrap_or(0);
                Measured { key, variant, variants, found: Found::Now }
            }
            Ok(measure::Measured::OutOfTime) => unmeasured(Found::OutOfTime),
            Ok(measure::Measured::NotAlone) => {
                tracing::debug!(key = %key.what, "cannot be measured alone");
                unmeasured(Found::NotAlone)
            }
            Ok(measure::Measured::Stopped(e)) => return Err(e),
            Err(e) => {
                tracing::warn!(key = %key.what, error = %e, "was not tuned");
                unmeasured(Found::NotAlone)
            }
        });
    }
    Ok(())
}

/// What was gained, for those who wait.
fn so_far(found: &[Measured<'_>]) -> String {
    let gain = |of: &Measured<'_>| {
        let default = of.variants.first()?.1?;
        let chosen = of.variants.iter().find(|(name, _)| *name == of.key.variants[of.variant])?.1?;
        (of.variant > 0).then(|| default.as_secs_f64() / chosen.as_secs_f64().max(1e-9))
    };
    let gains: Vec<f64> = found.iter().filter_map(gain).collect();
    match gains.iter().copied().max_by(f64::total_cmp) {
        Some(best) => format!("{} faster, {best:.2}x at best; ", gains.len()),
        None => String::new(),
    }
}

/// The file where measurements on a device are stored.
///
/// # Errors
/// There is no cache folder, or the device does not say what it is.
pub fn file(device: &DeviceBackend) -> Result<PathBuf> {
    path_of(device, &subject(device)?)
}

/// Which measurements on this machine change bits of what is compiled with these options, as text: a line for each, empty where there are
/// none. With the options it says which bits a compiled module has, so it is part of what a cache finds one by.
pub fn classes(device: &DeviceBackend, options: &CompileOptions) -> String {
    if options.tune == Tune::Off || options.numerics == Numerics::Strict {
        return String::new();
    }
    read(device).other_classes().map(|(key, class)| format!("{class} {key}\n")).collect()
}

/// What measurements depend on besides the key.
fn subject(device: &DeviceBackend) -> Result<String> {
    let (device, machine) = (device.device().feature(), device.machine()?);
    Ok(format!("{device}, {machine}, {}, rlx {}", processor(), store::VERSION))
}

fn path_of(device: &DeviceBackend, subject: &str) -> Result<PathBuf> {
    store::path(FOLDER, &format!("{}-{}", device.device().feature(), store::digest(subject)))
}

/// The results measured on this machine so far. An invalid file is a warning and counts as empty.
fn read(device: &DeviceBackend) -> Tuning {
    let read = || -> Result<Option<Tuning>> {
        let subject = subject(device)?;
        // Without a cache folder, nothing was stored.
        let Ok(path) = path_of(device, &subject) else { return Ok(None) };
        let Some(text) = store::read(&path)? else { return Ok(None) };
        let malformed = || Error::new(ErrorKind::Malformed, "a tuning without its subject");
        let (first, rest) = text.split_once('\n').ok_or_else(malformed)?;
        // Digests are short, so another subject may have the same.
        if first == subject { Tuning::parse(rest).map(Some) } else { Ok(None) }
    };
    read()
        .unwrap_or_else(|e| {
            tracing::warn!(device = %device.device(), error = %e, "the tuning is not used");
            None
        })
        .unwrap_or_default()
}

/// Adds to the stored results. (A folder that is not writable is a warning.)
fn keep(device: &DeviceBackend, fresh: &Tuning) {
    if fresh.is_empty() {
        return;
    }
    // Another process may have added something meanwhile.
    let mut all = read(device);
    all.extend(fresh);
    let written = subject(device)
        .and_then(|s| path_of(device, &s).and_then(|path| store::write(&path, &format!("{s}\n{all}"))));
    if let Err(e) = written {
        tracing::warn!(device = %device.device(), error = %e, "a tuning was not cached");
    }
}
