//! The `run` methods: one request each for [`CompiledGraph::execute`]. They differ in how inputs are passed and how outputs are returned.
//!
//! The variants that end in `_with_progress` report progress and can be cancelled: on the CPU before every step of the run and of
//! the weight preparation in the first run; on a device that is given the whole run at once, before the run (a run that has begun
//! there finishes and returns its outputs). A cancelled run leaves no outputs and changes no handle; the graph
//! can be run again.

use std::future::poll_fn;

use rlx_ir::{ConstData, DType, Error, ErrorKind, Progress, Result};
use rlx_select::or_panic;

use super::CompiledGraph;
use super::request::RunRequest;
use super::tensor::TensorView;

impl CompiledGraph {
    /// Runs on f32 inputs by name, converted to their declared types; returns all outputs as f32.
    ///
    /// # Panics
    /// If [`CompiledGraph::try_run`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// assert_eq!(compiled.run(&[("x", &[1.0, 2.0])]), [[11.0, 22.0]]);
    /// ```
    #[track_caller]
    pub fn run(&mut self, inputs: &[(&str, &[f32])]) -> Vec<Vec<f32>> {
        or_panic(self.try_run(inputs))
    }

    /// As [`CompiledGraph::run`].
    ///
    /// # Errors
    /// A missing or unknown input or one of the wrong shape, a parameter that was never set, a value that is not exact in the
    /// declared type, a value an op does not allow (which is named), a device error.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// let error = compiled.try_run(&[("z", &[1.0, 2.0])]).unwrap_err();
    /// assert!(error.to_string().contains("z"));
    /// ```
    pub fn try_run(&mut self, inputs: &[(&str, &[f32])]) -> Result<Vec<Vec<f32>>> {
        self.execute(RunRequest::from(inputs))?.to_f32()
    }

    /// As [`CompiledGraph::try_run`], with progress and cancellation.
    ///
    /// # Errors
    /// As [`CompiledGraph::try_run`]; [`ErrorKind::Cancelled`].
    pub fn try_run_with_progress(
        &mut self,
        inputs: &[(&str, &[f32])],
        progress: &Progress,
    ) -> Result<Vec<Vec<f32>>> {
        self.execute(RunRequest::from(inputs).progress(progress))?.to_f32()
    }

    /// Runs on the bytes of inputs in their declared types; returns the outputs' bytes and types.
    ///
    /// # Panics
    /// If [`CompiledGraph::try_run_typed`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// let x: Vec<u8> = [1.0f32, 2.0].iter().flat_map(|v| v.to_ne_bytes()).collect();
    /// let outputs = compiled.run_typed(&[("x", &x, DType::F32)]);
    /// assert_eq!((outputs[0].0.len(), outputs[0].1), (8, DType::F32));
    /// ```
    #[track_caller]
    pub fn run_typed(&mut self, inputs: &[(&str, &[u8], DType)]) -> Vec<(Vec<u8>, DType)> {
        or_panic(self.try_run_typed(inputs))
    }

    /// As [`CompiledGraph::run_typed`].
    ///
    /// # Errors
    /// As [`CompiledGraph::try_run`].
    pub fn try_run_typed(&mut self, inputs: &[(&str, &[u8], DType)]) -> Result<Vec<(Vec<u8>, DType)>> {
        self.execute(RunRequest::from(inputs))?.to_bytes()
    }

    /// Runs on tensors with dimensions, which determine all dynamic dimensions even if the lengths do not;
    /// returns the outputs with their dimensions.
    ///
    /// # Errors
    /// As [`CompiledGraph::try_run`].
    pub fn try_run_tensors(&mut self, inputs: &[TensorView<'_>]) -> Result<Vec<ConstData>> {
        self.execute(RunRequest::from(inputs))?.to_tensors()
    }

    /// As [`CompiledGraph::try_run_tensors`], with progress and cancellation.
    ///
    /// # Errors
    /// As [`CompiledGraph::try_run`]; [`ErrorKind::Cancelled`].
    pub fn try_run_tensors_with_progress(
        &mut self,
        inputs: &[TensorView<'_>],
        progress: &Progress,
    ) -> Result<Vec<ConstData>> {
        self.execute(RunRequest::from(inputs).progress(progress))?.to_tensors()
    }

    /// Runs on tensors with dimensions; the outputs are then read by [`CompiledGraph::output_views`].
    /// Allocates nothing (after the first run).
    ///
    /// # Errors
    /// As [`CompiledGraph::try_run`].
    pub fn try_run_views(&mut self, inputs: &[TensorView<'_>]) -> Result<()> {
        self.execute(RunRequest::from(inputs)).map(drop)
    }

    /// As [`CompiledGraph::try_run_views`], with progress and cancellation.
    ///
    /// # Errors
    /// As [`CompiledGraph::try_run`]; [`ErrorKind::Cancelled`].
    pub fn try_run_views_with_progress(
        &mut self,
        inputs: &[TensorView<'_>],
        progress: &Progress,
    ) -> Result<()> {
        self.execute(RunRequest::from(inputs).progress(progress)).map(drop)
    }

    /// Runs and returns the outputs of these indices in their order; `None`: all.
    ///
    /// # Panics
    /// If [`CompiledGraph::try_run_read_outputs`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// assert_eq!(compiled.run_read_outputs(&[("x", &[1.0, 2.0])], Some(&[0])), [[11.0, 22.0]]);
    /// assert!(compiled.run_read_outputs(&[("x", &[1.0, 2.0])], Some(&[])).is_empty());
    /// ```
    #[track_caller]
    pub fn run_read_outputs(
        &mut self,
        inputs: &[(&str, &[f32])],
        read_indices: Option<&[usize]>,
    ) -> Vec<Vec<f32>> {
        or_panic(self.try_run_read_outputs(inputs, read_indices))
    }

    /// As [`CompiledGraph::run_read_outputs`].
    ///
    /// # Errors
    /// An index without an output (then nothing runs), or as [`CompiledGraph::try_run`].
    pub fn try_run_read_outputs(
        &mut self,
        inputs: &[(&str, &[f32])],
        read_indices: Option<&[usize]>,
    ) -> Result<Vec<Vec<f32>>> {
        let request = RunRequest::from(inputs);
        self.execute(match read_indices {
            Some(indices) => request.outputs(indices),
            None => request,
        })?
        .to_f32()
    }

    /// Runs and writes the outputs into the caller's buffers, which must have their lengths.
    ///
    /// # Panics
    /// If [`CompiledGraph::try_run_into`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// let mut y = [0.0; 2];
    /// compiled.run_into(&[("x", &[1.0, 2.0])], &mut [&mut y]);
    /// assert_eq!(y, [11.0, 22.0]);
    /// ```
    #[track_caller]
    pub fn run_into(&mut self, inputs: &[(&str, &[f32])], outputs: &mut [&mut [f32]]) {
        or_panic(self.try_run_into(inputs, outputs));
    }

    /// As [`CompiledGraph::run_into`]. Allocates nothing.
    ///
    /// # Errors
    /// A wrong number or length of buffers, or as [`CompiledGraph::try_run`].
    pub fn try_run_into(&mut self, inputs: &[(&str, &[f32])], outputs: &mut [&mut [f32]]) -> Result<()> {
        if outputs.len() != self.output_infos.len() {
            let message = format!(
                "{} output buffers were given, the graph has {}",
                outputs.len(),
                self.output_infos.len()
            );
            return Err(Error::new(ErrorKind::Binding, message));
        }
        self.execute(RunRequest::from(inputs))?;
        outputs.iter_mut().enumerate().try_for_each(|(i, out)| self.read_output_into(i, out))
    }

    /// Runs and returns a pointer to each output and its number of f32 elements. Valid until the next run.
    ///
    /// # Panics
    /// If [`CompiledGraph::try_run_raw`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// let outputs = compiled.run_raw(&[("x", &[1.0, 2.0])]);
    /// assert_eq!(outputs[0].1, 2);
    /// ```
    #[track_caller]
    pub fn run_raw(&mut self, inputs: &[(&str, &[f32])]) -> Vec<(*const f32, usize)> {
        or_panic(self.try_run_raw(inputs))
    }

    /// As [`CompiledGraph::run_raw`]; [`CompiledGraph::output_views`] is the safe variant.
    ///
    /// # Errors
    /// As [`CompiledGraph::try_run`].
    pub fn try_run_raw(&mut self, inputs: &[(&str, &[f32])]) -> Result<Vec<(*const f32, usize)>> {
        self.execute(RunRequest::from(inputs))?;
        let places = self.locate_outputs()?.to_vec();
        let base = self.arena_ptr();
        Ok(places.into_iter().map(|(offset, count)| (base.wrapping_add(offset).cast(), count)).collect())
    }

    /// Runs on inputs in declaration order; returns each output's byte offset from
    /// [`CompiledGraph::arena_ptr`] and its number of f32 elements. Allocates nothing (after the first run).
    ///
    /// One pointer leads to all outputs. So where one of several is not in the arena (it takes the memory of a handle, or is no f32),
    /// all are copied behind each other; an only output is read where it is. [`CompiledGraph::execute`] copies nothing in any case:
    /// each of [`RunOutputs`](crate::RunOutputs) has a pointer of its own.
    ///
    /// # Panics
    /// If [`CompiledGraph::try_run_slots`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// let (offset, len) = compiled.run_slots(&[&[1.0, 2.0]])[0];
    /// // SAFETY: the slot is in the arena and is valid until the next run.
    /// let y = unsafe { std::slice::from_raw_parts(compiled.arena_ptr().add(offset).cast::<f32>(), len) };
    /// assert_eq!(y, [11.0, 22.0]);
    /// ```
    #[track_caller]
    pub fn run_slots(&mut self, inputs: &[&[f32]]) -> &[(usize, usize)] {
        or_panic(self.try_run_slots(inputs))
    }

    /// As [`CompiledGraph::run_slots`].
    ///
    /// # Errors
    /// As [`CompiledGraph::try_run`].
    pub fn try_run_slots(&mut self, inputs: &[&[f32]]) -> Result<&[(usize, usize)]> {
        self.execute(RunRequest::from(inputs))?;
        self.locate_outputs()
    }

    /// As [`CompiledGraph::try_run_slots`], with progress and cancellation. Allocates nothing (after the first run).
    ///
    /// # Errors
    /// As [`CompiledGraph::try_run`]; [`ErrorKind::Cancelled`].
    pub fn try_run_slots_with_progress(
        &mut self,
        inputs: &[&[f32]],
        progress: &Progress,
    ) -> Result<&[(usize, usize)]> {
        self.execute(RunRequest::from(inputs).progress(progress))?;
        self.locate_outputs()
    }

    /// Starts a run; its outputs overwrite earlier ones. Synchronous on the CPU. On a GPU up to three runs are under way at one
    /// time (for another one the oldest is waited for); reading an output waits for them, as [`CompiledGraph::sync_pending`] does.
    /// What only the device finds out (an index out of range) is an error of the call that waits.
    ///
    /// # Panics
    /// If [`CompiledGraph::try_commit_no_wait`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// compiled.commit_no_wait(&[("x", &[1.0, 2.0])]);
    /// compiled.sync_pending();
    /// assert_eq!(compiled.try_read_output(0)?, [11.0, 22.0]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn commit_no_wait(&mut self, inputs: &[(&str, &[f32])]) {
        or_panic(self.try_commit_no_wait(inputs));
    }

    /// As [`CompiledGraph::commit_no_wait`].
    ///
    /// # Errors
    /// As [`CompiledGraph::try_run`].
    pub fn try_commit_no_wait(&mut self, inputs: &[(&str, &[f32])]) -> Result<()> {
        self.execute(RunRequest::from(inputs).no_wait()).map(drop)
    }

    /// Waits for every run that [`CompiledGraph::commit_no_wait`] started.
    ///
    /// # Panics
    /// If [`CompiledGraph::try_sync_pending`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// compiled.commit_no_wait(&[("x", &[1.0, 2.0])]);
    /// compiled.sync_pending();
    /// assert_eq!(compiled.read_output_row(0, 1, 1), Some(vec![22.0]));
    /// ```
    #[track_caller]
    pub fn sync_pending(&mut self) {
        or_panic(self.try_sync_pending());
    }

    /// As [`CompiledGraph::sync_pending`].
    ///
    /// # Errors
    /// A device error.
    pub fn try_sync_pending(&mut self) -> Result<()> {
        self.drain()
    }

    /// As [`CompiledGraph::try_run_tensors`], awaited: where the device computes by itself, the task goes on with something else
    /// until the outputs are there. This is the only way in a page, whose thread cannot wait for a GPU. On the CPU the run is over
    /// when the future is first polled.
    ///
    /// A future that is dropped leaves the run to end by itself; its outputs are lost.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # fn main() -> Result<(), Error> {
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// async fn sum(compiled: &mut CompiledGraph, x: &[f32]) -> Result<Vec<ConstData>, Error> {
    ///     compiled.try_run_tensors_async(&[TensorView::of("x", &[2], x)?]).await
    /// }
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # let polled = std::pin::pin!(sum(&mut compiled, &[1.0, 2.0])).poll(&mut context);
    /// # let std::task::Poll::Ready(outputs) = polled else { panic!("the CPU is done at once") };
    /// # assert_eq!(outputs?[0].as_f32()?, [11.0, 22.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`CompiledGraph::try_run`].
    pub async fn try_run_tensors_async(&mut self, inputs: &[TensorView<'_>]) -> Result<Vec<ConstData>> {
        // What an earlier future left under way.
        self.pending_over().await?;
        self.execute(RunRequest::from(inputs).no_wait())?;
        self.pending_over().await?;
        self.output_views().map(|view| view.to_const()).collect()
    }

    /// As [`CompiledGraph::try_sync_pending`], awaited.
    ///
    /// # Errors
    /// A device error.
    pub async fn pending_over(&mut self) -> Result<()> {
        while self.exec.in_flight() > 0 {
            poll_fn(|context| self.exec.poll_collect(context)).await;
            self.guard.call("waiting", || self.exec.collect())?;
        }
        Ok(())
    }

    /// Runs one after the other; returns the outputs of each run. On a GPU the next runs are under way while the outputs of one
    /// are read, except where handles are fed or an active extent is set.
    ///
    /// # Panics
    /// If [`CompiledGraph::try_run_pipelined`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// let runs = [vec![("x", &[1.0, 2.0][..])], vec![("x", &[3.0, 4.0][..])]];
    /// let outputs = compiled.run_pipelined(&runs);
    /// assert_eq!((&outputs[0][0][..], &outputs[1][0][..]), (&[11.0, 22.0][..], &[13.0, 24.0][..]));
    /// ```
    #[track_caller]
    pub fn run_pipelined(&mut self, runs: &[Vec<(&str, &[f32])>]) -> Vec<Vec<Vec<f32>>> {
        or_panic(self.try_run_pipelined(runs))
    }

    /// As [`CompiledGraph::run_pipelined`].
    ///
    /// # Errors
    /// The first error of a run, as [`CompiledGraph::try_run`].
    pub fn try_run_pipelined(&mut self, runs: &[Vec<(&str, &[f32])>]) -> Result<Vec<Vec<Vec<f32>>>> {
        let most = self.exec.max_in_flight();
        let feeds = self.handles.iter().flatten().any(|handle| handle.next_feed().is_some());
        if most <= 1 || feeds || self.binder.has_active() {
            return runs.iter().map(|inputs| self.try_run(inputs)).collect();
        }
        let outputs = self.pipeline(runs, most);
        if outputs.is_err() {
            // What else is under way ends before the error is reported, which is the first.
            let _ = self.drain();
        }
        outputs
    }

    /// The runs, `most` of them under way at one time.
    fn pipeline(&mut self, runs: &[Vec<(&str, &[f32])>], most: usize) -> Result<Vec<Vec<Vec<f32>>>> {
        self.drain()?;
        let mut outputs = Vec::with_capacity(runs.len());
        let mut dims = Vec::new();
        for inputs in runs {
            let request = RunRequest::from(&inputs[..]).no_wait();
            self.bind(&request.inputs)?;
            // Outputs are read by the extents of the last run that was started.
            let room = if self.binder.run == dims { most - 1 } else { 0 };
            while self.exec.in_flight() > room {
                outputs.push(self.collect()?);
            }
            dims.clone_from(&self.binder.run);
            self.execute(request)?;
        }
        while self.exec.in_flight() > 0 {
            outputs.push(self.collect()?);
        }
        Ok(outputs)
    }
}
