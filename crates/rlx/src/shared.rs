//! A [`SharedRunner`]: one model that several threads run at once, without `&mut`.
//!
//! All runs share the weights. A run takes an executable of its own (the memory for intermediate values) from those that
//! are idle, or makes one; it goes back when the [`Finished`] run is dropped. The model is imported and compiled once, by
//! the first run, while others wait for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rlx_ir::{ConstData, Error, ErrorKind, Progress, Result, nearest};
use rlx_onnx::{needed_input, needed_tensor};
use rlx_runtime::{CompiledGraph, RunRequest, TensorInfo, TensorView};

use crate::{Metadata, Runner};

/// A model on a device, run by any number of threads. Clones are the same model.
///
/// ```
/// use rlx::prelude::*;
///
/// let digits = Runner::open("../../models/digits/digits.onnx")?.shared();
/// let image = ConstData::from_f32(&[1, 1, 8, 8], &[0.5; 64])?;
/// let runs: Vec<_> = std::thread::scope(|threads| {
///     let spawned: Vec<_> = (0..4).map(|_| threads.spawn(|| digits.run(&[("image", &image)]))).collect();
///     spawned.into_iter().map(|run| run.join().expect("no panic")).collect()
/// });
/// for outputs in runs {
///     assert_eq!(outputs?[0].1.to_vec::<f32>()?.len(), 10);
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SharedRunner {
    state: Arc<State>,
}

/// No thread that has the lock of `idle` waits for that of `runner`, which is held while the model is compiled: so giving an
/// executable back never takes long.
#[derive(Debug)]
struct State {
    runner: Mutex<Runner>,
    idle: Mutex<Vec<Executable>>,
}

/// An executable of a compiled variant of the model.
#[derive(Debug)]
struct Executable {
    graph: CompiledGraph,
    variant: u64,
    /// The model's names of its outputs.
    outputs: Arc<[String]>,
}

/// Maximum number of idle executables per model: as many runs at once cost no memory that was not there before.
const MOST_IDLE: usize = 8;

/// A run that is done. Its outputs are read in place, and are valid as long as it lives.
#[derive(Debug)]
pub struct Finished {
    /// `None` only while it is dropped.
    executable: Option<Executable>,
    home: Arc<State>,
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic below a call into the runner leaves it as usable as an error does.
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Runner {
    /// The same model for several threads.
    pub fn shared(self) -> SharedRunner {
        SharedRunner { state: Arc::new(State { runner: Mutex::new(self), idle: Mutex::default() }) }
    }
}

impl SharedRunner {
    /// Runs on named inputs; returns the outputs with the model's names for them.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn run(&self, inputs: &[(&str, &ConstData)]) -> Result<Vec<(String, ConstData)>> {
        let views: Vec<TensorView<'_>> = inputs.iter().map(|&input| input.into()).collect();
        let finished = self.run_views(&views)?;
        finished.outputs().map(|view| Ok((view.name.to_owned(), view.to_const()?))).collect()
    }

    /// Runs on tensors in borrowed memory, which are not copied. The outputs are read in place.
    ///
    /// ```
    /// # use rlx::prelude::*;
    /// let digits = Runner::open("../../models/digits/digits.onnx")?.shared();
    /// let finished = digits.run_views(&[TensorView::of("image", &[1, 1, 8, 8], &[0.5f32; 64])?])?;
    /// let probabilities: &[f32] = finished.get("probabilities").expect("the model's output").as_f32()?;
    /// assert_eq!(probabilities.len(), 10);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn run_views(&self, inputs: &[TensorView<'_>]) -> Result<Finished> {
        self.run_views_with_progress(inputs, &Progress::none())
    }

    /// As [`SharedRunner::run_views`], with progress and cancellation. Stopped, the model is as usable as before.
    ///
    /// # Errors
    /// As [`Runner::run`]; [`ErrorKind::Cancelled`].
    pub fn run_views_with_progress(
        &self,
        inputs: &[TensorView<'_>],
        progress: &Progress,
    ) -> Result<Finished> {
        self.run_for(inputs, None, progress)
    }

    /// As [`SharedRunner::run_views_with_progress`], for the outputs of these names: only they come to the host with the run.
    ///
    /// ```
    /// # use rlx::prelude::*;
    /// let digits = Runner::open("../../models/digits/digits.onnx")?.shared();
    /// let image = TensorView::of("image", &[1, 1, 8, 8], &[0.5f32; 64])?;
    /// let finished = digits.run_outputs(&[image], &["probabilities"], &Progress::none())?;
    /// assert_eq!(finished.get("probabilities").expect("an output").dims, [1, 10]);
    /// assert!(digits.run_outputs(&[image], &["probability"], &Progress::none()).is_err());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Runner::run`]; a name that no output has, before anything runs; [`ErrorKind::Cancelled`].
    pub fn run_outputs(
        &self,
        inputs: &[TensorView<'_>],
        outputs: &[&str],
        progress: &Progress,
    ) -> Result<Finished> {
        self.run_for(inputs, Some(outputs), progress)
    }

    fn run_for(
        &self,
        inputs: &[TensorView<'_>],
        outputs: Option<&[&str]>,
        progress: &Progress,
    ) -> Result<Finished> {
        let (mut executable, ran) = self.state.take(inputs, progress)?;
        let done = executable.positions(outputs).and_then(|positions| {
            let request = RunRequest::from(inputs).progress(progress);
            match positions {
                _ if ran => Ok(()),
                Some(positions) => executable.graph.execute(request.outputs(&positions)).map(drop),
                None => executable.graph.execute(request).map(drop),
            }
        });
        if let Err(e) = done {
            // What failed for another reason than its inputs is not used again.
            let broken = [ErrorKind::Device, ErrorKind::Panic, ErrorKind::Internal, ErrorKind::OutOfMemory];
            if !broken.contains(&e.kind()) {
                self.state.give_back(executable);
            }
            return Err(e);
        }
        Ok(Finished { executable: Some(executable), home: Arc::clone(&self.state) })
    }

    /// The model's name.
    pub fn name(&self) -> String {
        lock(&self.state.runner).name().to_owned()
    }

    /// The inputs that the model declares.
    ///
    /// # Errors
    /// As [`Runner::inputs`].
    pub fn inputs(&self) -> Result<Vec<TensorInfo>> {
        lock(&self.state.runner).inputs()
    }

    /// The outputs that the model declares.
    ///
    /// # Errors
    /// As [`Runner::outputs`].
    pub fn outputs(&self) -> Result<Vec<TensorInfo>> {
        lock(&self.state.runner).outputs()
    }

    /// What the file says about itself; `None` for an artefact.
    pub fn metadata(&self) -> Option<Metadata> {
        lock(&self.state.runner).metadata()
    }

    /// Calls `f` with the runner, while no other thread starts a run: for all that needs `&mut`.
    pub fn with<R>(&self, f: impl FnOnce(&mut Runner) -> R) -> R {
        f(&mut lock(&self.state.runner))
    }
}

impl Executable {
    fn outputs(&self) -> impl Iterator<Item = TensorView<'_>> {
        self.graph.output_views().zip(self.outputs.iter()).map(|(view, name)| TensorView { name, ..view })
    }

    /// Where the outputs of these names are.
    fn positions(&self, names: Option<&[&str]>) -> Result<Option<Vec<usize>>> {
        let position = |&name: &&str| {
            self.outputs.iter().position(|known| known == name).ok_or_else(|| {
                let message =
                    format!("the model has no output {name:?}; its outputs: {}", self.outputs.join(", "));
                let e = Error::new(ErrorKind::Binding, message);
                match nearest(name, self.outputs.iter().map(String::as_str)) {
                    Some(close) => e.with_hint(format!("did you mean {close:?}?")),
                    None => e,
                }
            })
        };
        names.map(|names| names.iter().map(position).collect()).transpose()
    }
}

impl State {
    /// An executable for these inputs, and whether it ran on them: the first one of a variant does while it prepares the
    /// weights, which all others then share.
    fn take(&self, inputs: &[TensorView<'_>], progress: &Progress) -> Result<(Executable, bool)> {
        let mut runner = lock(&self.runner);
        let at = find(&mut runner, inputs, progress)?;
        let variant = runner.variant(at);
        let outputs = || variant.outputs.as_slice().into();
        if !variant.warm {
            variant.graph.try_run_views_with_progress(inputs, progress)?;
            let (template, outputs) = (variant.graph.try_clone()?, outputs());
            variant.warm = true;
            let graph = std::mem::replace(&mut variant.graph, template);
            let executable = Executable { graph, variant: variant.id, outputs };
            self.forget_dropped(&runner);
            return Ok((executable, true));
        }
        let mut idle = lock(&self.idle);
        if let Some(at) = idle.iter().position(|e| e.variant == variant.id) {
            return Ok((idle.swap_remove(at), false));
        }
        drop(idle);
        let graph = variant.graph.try_clone()?;
        Ok((Executable { graph, variant: variant.id, outputs: outputs() }, false))
    }

    /// Drops the executables of variants that the runner does not keep any more.
    fn forget_dropped(&self, runner: &Runner) {
        let ids = runner.variant_ids();
        lock(&self.idle).retain(|e| ids.contains(&e.variant));
    }

    /// Keeps an executable for later runs, the newest ones.
    fn give_back(&self, executable: Executable) {
        let mut idle = lock(&self.idle);
        if idle.len() == MOST_IDLE {
            idle.remove(0);
        }
        idle.push(executable);
    }
}

/// The variant of the model for these inputs; only those that decide shapes are copied.
fn find(runner: &mut Runner, inputs: &[TensorView<'_>], progress: &Progress) -> Result<usize> {
    let mut deciding = runner.deciding();
    loop {
        let decides = |view: &&TensorView<'_>| deciding.iter().any(|name| name == view.name);
        let copy = |view: &TensorView<'_>| Ok((view.name.to_owned(), view.to_const()?));
        let values: Vec<_> = inputs.iter().filter(decides).map(copy).collect::<Result<_>>()?;
        let values: Vec<_> = values.iter().map(|(name, value)| (name.as_str(), value)).collect();
        let found = runner.find_or_compile(&values, progress);
        match found.as_ref().err().and_then(needed_input) {
            Some(name) if !deciding.iter().any(|n| n == name) && inputs.iter().any(|v| v.name == name) => {
                deciding.push(name.to_owned());
            }
            // A tensor inside the model is computed from all inputs.
            _ if deciding.len() < inputs.len()
                && found.as_ref().is_err_and(|e| needed_tensor(e).is_some()) =>
            {
                deciding = inputs.iter().map(|view| view.name.to_owned()).collect();
            }
            _ => return found,
        }
    }
}

impl Finished {
    /// The outputs, in the model's order and by its names.
    pub fn outputs(&self) -> impl Iterator<Item = TensorView<'_>> {
        self.executable.iter().flat_map(Executable::outputs)
    }

    /// The output of this name.
    pub fn get(&self, name: &str) -> Option<TensorView<'_>> {
        let outputs = &self.executable.as_ref()?.outputs;
        self.output(outputs.iter().position(|known| known == name)?).ok()
    }

    /// The output at this position of the model's order.
    ///
    /// # Errors
    /// There is no such output, or the device lost it.
    pub fn output(&self, index: usize) -> Result<TensorView<'_>> {
        let none = || Error::new(ErrorKind::Binding, format!("the run has no output {index}"));
        let executable = self.executable.as_ref().ok_or_else(none)?;
        let name = executable.outputs.get(index).ok_or_else(none)?;
        Ok(TensorView { name, ..executable.graph.try_output_view(index)? })
    }

    /// The model's names of the outputs.
    pub fn names(&self) -> &[String] {
        self.executable.as_ref().map_or(&[], |executable| &executable.outputs)
    }

    /// The graph that ran.
    pub fn compiled(&self) -> Option<&CompiledGraph> {
        self.executable.as_ref().map(|executable| &executable.graph)
    }
}

impl Drop for Finished {
    fn drop(&mut self) {
        if let Some(executable) = self.executable.take() {
            self.home.give_back(executable);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digits() -> SharedRunner {
        Runner::open("../../models/digits/digits.onnx").unwrap().shared()
    }

    fn image(value: f32) -> ConstData {
        ConstData::from_f32(&[1, 1, 8, 8], &[value; 64]).unwrap()
    }

    #[test]
    fn runs_at_once_give_what_one_after_the_other_gives() {
        let values: Vec<f32> = (0..12).map(|i| i as f32 / 12.0).collect();
        let mut alone = Runner::open("../../models/digits/digits.onnx").unwrap();
        let want: Vec<_> = values.iter().map(|&v| alone.run(&[("image", &image(v))]).unwrap()).collect();
        let shared = digits();
        let got: Vec<_> = std::thread::scope(|threads| {
            let run = |&v: &f32| {
                let shared = shared.clone();
                threads.spawn(move || shared.run(&[("image", &image(v))]).unwrap())
            };
            let runs: Vec<_> = values.iter().map(run).collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        });
        assert_eq!(got, want);
    }

    #[test]
    fn outputs_stay_while_the_run_lives_and_its_executable_is_used_again() {
        let shared = digits();
        let run = |v| {
            let image = image(v);
            shared.run_views(&[("image", &image).into()]).unwrap()
        };
        let first = run(0.25);
        let kept = first.outputs().next().unwrap().to_vec::<f32>().unwrap();
        let second = run(0.75);
        assert_eq!(first.get("probabilities").unwrap().as_f32().unwrap(), kept);
        assert_ne!(second.get("probabilities").unwrap().as_f32().unwrap(), kept);
        drop((first, second));
        assert_eq!(lock(&shared.state.idle).len(), 2);
        drop(run(0.5));
        assert_eq!(lock(&shared.state.idle).len(), 2);
    }

    #[test]
    fn a_wrong_input_is_an_error_and_the_model_stays_usable() {
        let shared = digits();
        let narrow = ConstData::from_f32(&[1, 1, 8, 7], &[0.5; 56]).unwrap();
        for _ in 0..2 {
            assert_eq!(shared.run(&[("image", &narrow)]).unwrap_err().kind(), ErrorKind::Binding);
            assert!(shared.run(&[("image", &image(0.5))]).is_ok());
        }
    }
}
