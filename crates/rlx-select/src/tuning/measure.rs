//! Measures the variants of one step.

use std::sync::Arc;
use std::time::Duration;

use rlx_backend::tuning::Tuning;
use rlx_backend::{CompileCache, ExecutableGraph, convert};
use rlx_ir::clock::Instant;
use rlx_ir::lir::IoSlot;
use rlx_ir::{DType, LirModule, Result, Weight, memory};
use rlx_opt::CompileOptions;

use super::isolate::isolated;
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

/// The variants that were tried by name, with the time of each where it was measured.
pub(super) type Times = Vec<(String, Option<Duration>)>;

/// The fastest variant of step number `at` of a module without open dimensions, and the times of all. `None` where the
/// step cannot be run alone. Variants are named, because a step of open dimensions may have others, in another order.
///
/// # Errors
/// The first variant fails.
pub(super) fn fastest(
    on: &DeviceBackend,
    bound: &LirModule,
    at: usize,
    options: &CompileOptions,
) -> Result<Option<(String, Times)>> {
    let device = on.device();
    let Some(module) = isolated(bound, at, on.target(options)?.pool_spec())? else { return Ok(None) };
    let module = Arc::new(module);
    let key = panic_guard::call(device, "naming the variants of a step", || {
        on.backend().tuning_key(&module, &module.steps[0])
    })?;
    let Some(key) = key else { return Ok(None) };
    let weights = module.params.iter().map(made_up).collect::<Result<Vec<_>>>()?;
    let inputs = module.inputs.iter().map(bytes_for).collect::<Result<Vec<_>>>()?;
    let trial = |variant: usize| -> Result<Trial> {
        let mut tuning = Tuning::default();
        tuning.choose(&key, variant);
        let cache = CompileCache { tuning, ..CompileCache::default() };
        panic_guard::call(device, "compiling", || {
            let mut exec = on.backend().compile_cached(Arc::clone(&module), options, &cache)?;
            for (i, weight) in weights.iter().enumerate() {
                exec.set_param(i, Arc::clone(weight))?;
            }
            let mut trial = Trial { exec, min_time: Duration::MAX };
            trial.run(&inputs)?;
            Ok(trial)
        })
    };
    let first = trial(0)?;
    let expected = first.results(&module)?;
    let mut trials = vec![Some(first)];
    for variant in 1..key.variants.len() {
        let checked = trial(variant).and_then(|t| Ok((t.results(&module)? == expected).then_some(t)));
        trials.push(checked.unwrap_or_else(|e| {
            tracing::warn!(key = %key.what, variant = %key.variants[variant], error = %e, "a variant failed");
            None
        }));
        if trials[variant].is_none() {
            tracing::warn!(key = %key.what, variant = %key.variants[variant], "rejected: it failed, or its bits differ");
        }
    }
    panic_guard::call(device, "running", || race(&mut trials, &inputs))?;
    let times: Vec<_> = trials.iter().map(|t| t.as_ref().map(|t| t.min_time)).collect();
    let variant = key.variants[choice(&times)].clone();
    Ok(Some((variant, key.variants.into_iter().zip(times).collect())))
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
/// far behind no more.
fn race(trials: &mut [Option<Trial>], inputs: &[Vec<u8>]) -> Result<()> {
    let start = Instant::now();
    for round in 1..=*ROUNDS.end() {
        let best = trials.iter().flatten().map(|t| t.min_time).min().unwrap_or(Duration::MAX);
        let hopeful =
            |t: &&mut Trial| t.min_time == Duration::MAX || t.min_time <= best.saturating_mul(HOPELESS);
        for trial in trials.iter_mut().flatten().filter(hopeful) {
            trial.min_time = trial.run(inputs)?.min(trial.min_time);
        }
        if round >= *ROUNDS.start() && start.elapsed() > BUDGET {
            break;
        }
    }
    Ok(())
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
