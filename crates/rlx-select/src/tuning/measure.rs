//! Measures the variants of one step.

use std::sync::Arc;
use std::time::Duration;

use rlx_backend::tuning::{Tuning, TuningKey};
use rlx_backend::{CompileCache, ExecutableGraph, convert};
use rlx_ir::clock::Instant;
use rlx_ir::lir::IoSlot;
use rlx_ir::{DType, Error, LirModule, Progress, Result, Weight, memory};
use rlx_opt::CompileOptions;

use super::isolate::isolated;
use super::reference::Reference;
use crate::device::DeviceBackend;
use crate::panic_guard;
/// How long all variants of a step are timed together, roughly.
const BUDGET: Duration = Duration::from_millis(60);
/// The fewest and the most rounds of runs, one of each variant.
const ROUNDS: std::ops::RangeInclusive<usize> = 3..=200;
/// A variant must be this much faster than the first to be taken.
const GAIN: f64 = 0.97;

/// A variant slower than the fastest by this much is not timed again.
const HOPELESS: u32 = 2;

/// The most variants of a step that are measured: the default, and those that the device predicts to be the fastest.
const MOST: usize = 16;

/// The variants that were tried by name, the default first, with the time of a step by each where it was measured.
pub(super) type Times = Vec<(String, Option<Duration>)>;

/// What came of measuring a step.
pub(super) enum Measured {
    /// The fastest variant, and the times of all that were tried. They are named, because a step of open dimensions may have others,
    /// in another order.
    Fastest(String, Times),
    /// It cannot be run alone.
    NotAlone,
    /// The time for tuning was over before.
    OutOfTime,
    /// Whoever hears of progress stopped it.
    Stopped(Error),
}

/// Measures step number `at` of a module without open dimensions. `say` hears of each variant before it is compiled: its name, its number and of how many.
///
/// # Errors
/// The first variant fails.
pub(super) fn fastest(
    on: &DeviceBackend,
    bound: &LirModule,
    at: usize,
    options: &CompileOptions,
    progress: &Progress,
    say: impl Fn(&str, usize, usize) -> Result<()>,
) -> Result<Measured> {
    let device = on.device();
    let Some(module) = isolated(bound, at, on.target(options)?.pool_spec())? else {
        return Ok(Measured::NotAlone);
    };
    let module = Arc::new(module);
    let key = panic_guard::call(device, "naming the variants of a step", || {
        on.backend().tuning_key(&module, &module.steps[0], options)
    })?;
    let Some(key) = key else { return Ok(Measured::NotAlone) };
    let bench = Bench::new(on, &module, options)?;
    let candidates = key.candidates(MOST);
    let mut trials = Vec::new();
    let mut expected = Vec::new();
    for (i, &variant) in candidates.iter().enumerate() {
        if !progress.has_time_to_tune() {
            return Ok(Measured::OutOfTime);
        }
        if let Err(e) = say(&key.variants[variant], i, candidates.len()) {
            return Ok(Measured::Stopped(e));
        }
        if i == 0 {
            let first = bench.trial(&key, variant)?;
            expected = first.results(&module)?;
            trials.push(Some(first));
        } else {
            trials.push(bench.checked(&key, variant, &expected));
        }
    }
    if !panic_guard::call(device, "running", || race(&mut trials, &bench.inputs, progress))? {
        return Ok(Measured::OutOfTime);
    }
    let variant = bench.taken(&key, &candidates, &mut trials, &expected);
    let name = |&variant: &usize| key.variants[variant].clone();
    // The module has the step several times.
    let count = u32::try_from(module.steps.len().max(1)).unwrap_or(1);
    let each = trials.iter().map(|trial| trial.as_ref().map(|trial| trial.min_time / count));
    let times = candidates.iter().map(name).zip(each).collect();
    Ok(Measured::Fastest(name(&variant), times))
}

/// A step's module on its device, with made-up weights and inputs.
struct Bench<'m> {
    on: &'m DeviceBackend,
    module: &'m Arc<LirModule>,
    options: &'m CompileOptions,
    weights: Vec<Arc<Weight>>,
    inputs: Vec<Vec<u8>>,
}

impl<'m> Bench<'m> {
    fn new(
        on: &'m DeviceBackend,
        module: &'m Arc<LirModule>,
        options: &'m CompileOptions,
    ) -> Result<Bench<'m>> {
        let weights = module.params.iter().map(made_up).collect::<Result<Vec<_>>>()?;
        let inputs = module.inputs.iter().map(bytes_for).collect::<Result<Vec<_>>>()?;
        Ok(Bench { on, module, options, weights, inputs })
    }

    /// Compiles a variant, and runs it once.
    fn trial(&self, key: &TuningKey, variant: usize) -> Result<Trial> {
        let mut tuning = Tuning::default();
        tuning.choose(key, variant);
        let cache = CompileCache { tuning, ..CompileCache::default() };
        panic_guard::call(self.on.device(), "compiling", || {
            let mut exec = self.on.backend().compile_cached(Arc::clone(self.module), self.options, &cache)?;
            for (i, weight) in self.weights.iter().enumerate() {
                exec.set_param(i, Arc::clone(weight))?;
            }
            let mut trial = Trial { exec, min_time: Duration::MAX };
            trial.run(&self.inputs)?;
            Ok(trial)
        })
    }

    /// The same, if its results are these, or may be others; otherwise a warning, and nothing.
    fn checked(&self, key: &TuningKey, variant: usize, expected: &[Vec<u8>]) -> Option<Trial> {
        let is_right = |trial: &Trial| -> Result<bool> {
            Ok(!key.has_usual_bits(variant) || trial.results(self.module)? == expected)
        };
        let trial = self.trial(key, variant).and_then(|t| Ok(is_right(&t)?.then_some(t)));
        let trial = trial.unwrap_or_else(|e| {
            tracing::warn!(key = %key.what, variant = %key.variants[variant], error = %e, "a variant failed");
            None
        });
        if trial.is_none() {
            tracing::warn!(key = %key.what, variant = %key.variants[variant], "rejected: it failed, or its bits differ");
        }
        trial
    }

    /// The variant to take: the fastest. If it has other bits than the usual one, they are held to the oracle first, which is slow.
    fn taken(
        &self,
        key: &TuningKey,
        candidates: &[usize],
        trials: &mut [Option<Trial>],
        usual: &[Vec<u8>],
    ) -> usize {
        let mut reference = None;
        loop {
            let times: Vec<_> = trials.iter().map(|t| t.as_ref().map(|t| t.min_time)).collect();
            let at = choice(&times);
            let (variant, Some(trial)) = (candidates[at], &trials[at]) else { return candidates[0] };
            if key.has_usual_bits(variant) {
                return variant;
            }
            let exact =
                reference.get_or_insert_with(|| Reference::of(self.module, &self.inputs, &self.weights));
            let objection = match exact {
                Ok(exact) => {
                    trial.results(self.module).and_then(|other| exact.objection(self.module, usual, &other))
                }
                Err(e) => Ok(Some(e.message().to_owned())),
            };
            match objection.unwrap_or_else(|e| Some(e.message().to_owned())) {
                None => return variant,
                Some(why) => {
                    tracing::warn!(key = %key.what, variant = %key.variants[variant], why, "not taken: its bits differ");
                    trials[at] = None;
                }
            }
        }
    }
}

/// The fastest, where it is clearly faster than the first.
fn choice(times: &[Option<Duration>]) -> usize {
    let timed = times.iter().enumerate().filter_map(|(variant, time)| Some((variant, (*time)?)));
    match (timed.min_by_key(|&(_, time)| time), times.first().copied().flatten()) {
        (Some((variant, time)), Some(first)) if time.as_secs_f64() < first.as_secs_f64() * GAIN => variant,
        _ => 0,
    }
}

/// One variant, ready to run.
struct Trial {
    exec: Box<dyn ExecutableGraph>,
    min_time: Duration,
}

impl Trial {
    fn run(&mut self, inputs: &[Vec<u8>]) -> Result<Duration> {
        let start = Instant::now();
        self.exec.run(&inputs, &[])?;
        Ok(start.elapsed())
    }

    fn results(&self, module: &LirModule) -> Result<Vec<Vec<u8>>> {
        (0..module.outputs.len()).map(|i| self.exec.output(i).map(<[u8]>::to_vec)).collect()
    }
}

/// Runs all alternately, so that what disturbs one disturbs all, until the budget is spent; but what the first rounds show to be
/// far behind no more. Whether there was time for the fewest rounds.
fn race(trials: &mut [Option<Trial>], inputs: &[Vec<u8>], progress: &Progress) -> Result<bool> {
    let start = Instant::now();
    for round in 1..=*ROUNDS.end() {
        let best = trials.iter().flatten().map(|t| t.min_time).min().unwrap_or(Duration::MAX);
        let hopeful =
            |t: &&mut Trial| t.min_time == Duration::MAX || t.min_time <= best.saturating_mul(HOPELESS);
        for trial in trials.iter_mut().flatten().filter(hopeful) {
            if !progress.has_time_to_tune() {
                return Ok(round > *ROUNDS.start());
            }
            trial.min_time = trial.run(inputs)?.min(trial.min_time);
        }
        if round >= *ROUNDS.start() && start.elapsed() > BUDGET {
            break;
        }
    }
    Ok(true)
}

/// A value for a parameter.
fn made_up(slot: &IoSlot) -> Result<Arc<Weight>> {
    let dims: Vec<usize> = slot.shape.dims().iter().filter_map(|d| d.as_static()).collect();
    Ok(Arc::new(Weight::owned(slot.shape.dtype(), &dims, bytes_for(slot)?)?))
}

/// Numbers of usual size, without zeros or patterns that a processor might profit from.
fn bytes_for(slot: &IoSlot) -> Result<Vec<u8>> {
    let dtype = slot.shape.dtype();
    let made_up = || format!("made-up values of {}", slot.shape);
    let count = slot.shape.num_elements().unwrap_or(0) * convert::floats_per_element(dtype);
    memory::ensure_elements(count, 4, made_up)?;
    let mut bytes = memory::zeroed(slot.shape.size_bytes().unwrap_or(0), made_up)?;
    let mut state = 1u32;
    let values: Vec<f32> = (0..count).map(|_| number(&mut state, dtype)).collect();
    convert::from_f32(dtype, &values, &mut bytes)?;
    Ok(bytes)
}

fn number(state: &mut u32, dtype: DType) -> f32 {
    *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    let small = (*state >> 24) as f32;
    if dtype.is_float() { small / 128.0 - 0.996 } else { (small / 128.0).floor() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_must_be_clearly_faster() {
        let micros =
            |list: &[u64]| -> Vec<_> { list.iter().map(|&n| Some(Duration::from_micros(n))).collect() };
        assert_eq!(choice(&micros(&[100, 98, 99])), 0);
        assert_eq!(choice(&micros(&[100, 120, 90])), 2);
        assert_eq!(choice(&[Some(Duration::from_micros(9)), None, Some(Duration::from_micros(3))]), 2);
        assert_eq!(choice(&[None, Some(Duration::from_micros(3))]), 0);
    }
}
