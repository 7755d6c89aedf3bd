//! [`CompiledGraph::execute`]: the one way that a run takes. It binds, runs, and feeds handles; what the run gave is [`RunOutputs`].

use std::borrow::Borrow;

use rlx_backend::RunOptions;
use rlx_ir::{ConstData, DType, Error, ErrorKind, Progress, Result, memory};

use super::CompiledGraph;
use super::bind::{BoundInputs, unknown_name};
use super::handles::read_device_handle;
use super::request::{Inputs, OutputRef, RunRequest, Wanted};
use super::tensor::TensorView;

impl CompiledGraph {
    /// One run, as the request says; [`RunRequest`] has examples.
    ///
    /// Allocates nothing if the request was made of a slice and has no deadline, after the first run.
    ///
    /// # Errors
    /// A missing or unknown input or one of the wrong shape, an unknown output, a parameter that was never set, a value that is
    /// not exact in the declared type, a value an op does not allow (which is named), a device error;
    /// [`ErrorKind::Cancelled`] when the progress or the deadline stopped it. A run that was stopped leaves no outputs and changes
    /// no handle.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// let outputs = compiled.execute(RunRequest::new().input("x", &[1.0, 2.0]))?;
    /// assert_eq!(outputs.to_f32()?, [[11.0, 22.0]]);
    /// let error = compiled.execute(RunRequest::new().input("x", &[1.0, 2.0]).output("z")).unwrap_err();
    /// assert!(error.to_string().contains("there is no output \"z\""));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn execute<'a>(&mut self, request: impl Borrow<RunRequest<'a>>) -> Result<RunOutputs<'_>> {
        let request: &RunRequest<'a> = request.borrow();
        match request.deadline {
            Some(after) => {
                let progress = request.progress.cloned().unwrap_or_default().with_deadline(after);
                self.run_request(request, &progress)?;
            }
            None => self.run_request(request, request.progress.unwrap_or(&Progress::none()))?,
        }
        Ok(RunOutputs { graph: self })
    }

    fn run_request(&mut self, request: &RunRequest<'_>, progress: &Progress) -> Result<()> {
        self.want(&request.wanted)?;
        if request.feeds.is_empty() {
            return self.start(request, progress);
        }
        let feeds = request.feeds.iter().map(|&(name, output)| self.feed_of(name, output));
        let feeds = feeds.collect::<Result<Vec<_>>>()?;
        feeds.iter().for_each(|&(input, output)| self.feed_once(input, Some(output)));
        let ran = self.start(request, progress);
        feeds.iter().for_each(|&(input, _)| self.feed_once(input, None));
        ran
    }

    /// Binds the inputs of a run.
    pub(super) fn bind(&mut self, inputs: &Inputs<'_>) -> Result<()> {
        self.check_params()?;
        let device_handle = |input| read_device_handle(self.device, &*self.exec, input);
        self.binder.bind(inputs, &self.handles, &device_handle)
    }

    fn start(&mut self, request: &RunRequest<'_>, progress: &Progress) -> Result<()> {
        self.outputs.invalidate();
        self.bind(&request.inputs)?;
        self.outputs.place(&self.binder)?;
        self.steer_feeds()?;
        let source = BoundInputs { given: &request.inputs, handles: &self.handles, binder: &self.binder };
        let (exec, dims) = (&mut self.exec, &self.binder.run);
        let options = RunOptions { progress, wanted: self.outputs.wanted(), wait: request.wait };
        self.guard.call("running", || exec.execute(&source, dims, options))?;
        self.outputs.finish(&*self.exec, &self.binder)?;
        self.feed_handles()
    }

    /// Notes which outputs the next run is for.
    fn want(&mut self, wanted: &Wanted<'_>) -> Result<()> {
        match wanted {
            Wanted::All => self.outputs.want_all(),
            Wanted::Indices(indices) => {
                self.check_outputs(indices)?;
                self.outputs.want(indices.iter().copied());
            }
            Wanted::Own(list) => {
                list.iter().try_for_each(|&output| self.output_index(output).map(drop))?;
                self.outputs.want(std::iter::empty());
                for &output in list {
                    let index = self.output_index(output)?;
                    self.outputs.want_too(index);
                }
            }
        }
        Ok(())
    }

    fn output_index(&self, output: OutputRef<'_>) -> Result<usize> {
        match output {
            OutputRef::Index(index) => self.check_outputs(&[index]).map(|()| index),
            OutputRef::Name(name) => {
                self.output_infos.iter().position(|info| info.name == name).ok_or_else(|| {
                    unknown_name("output", name, self.output_infos.iter().map(|info| info.name.as_str()))
                })
            }
        }
    }

    fn feed_of(&self, name: &str, output: OutputRef<'_>) -> Result<(usize, usize)> {
        let (input, output) = (self.binder.position(name)?, self.output_index(output)?);
        if self.handles[input].is_none() {
            let message = format!("input {name:?} has no handle for an output to feed");
            return Err(Error::new(ErrorKind::Binding, message).with_hint("give it one with bind_handle"));
        }
        self.check_feed(input, output)?;
        Ok((input, output))
    }

    /// Waits for the oldest run, and reads its outputs.
    pub(super) fn collect(&mut self) -> Result<Vec<Vec<f32>>> {
        self.guard.call("waiting", || self.exec.collect())?;
        RunOutputs { graph: self }.to_f32()
    }
}

/// The outputs that a run was asked for, in the order of the request. They are read in place, and copied where the call says so.
/// Waiting for a run that was started without ([`RunRequest::no_wait`]) is done by the first call that reads.
#[derive(Debug, Clone, Copy)]
pub struct RunOutputs<'g> {
    graph: &'g CompiledGraph,
}

impl<'g> RunOutputs<'g> {
    /// How many outputs were asked for.
    pub fn len(&self) -> usize {
        self.graph.outputs.count_wanted()
    }

    /// Whether none was asked for.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn indices(self) -> impl Iterator<Item = usize> {
        (0..self.len()).map(move |at| self.graph.outputs.wanted_at(at))
    }

    /// An output, by name or by its position in the request (in the graph, where all are wanted).
    ///
    /// # Errors
    /// An output that the request did not ask for, or what a run that is waited for reports.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("exp");
    /// # let x = g.input("x", Shape::new(&[1], DType::F32));
    /// # let y = g.exp(x);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// let name = compiled.outputs()[0].name.clone();
    /// let outputs = compiled.execute(RunRequest::new().input("x", &[0.0]))?;
    /// assert_eq!(outputs.get(&name)?.as_f32()?, outputs.get(0)?.as_f32()?);
    /// assert!(outputs.get(1).is_err());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn get<'o>(&self, output: impl Into<OutputRef<'o>>) -> Result<TensorView<'g>> {
        let infos = &self.graph.output_infos;
        let index = match output.into() {
            OutputRef::Index(at) if at < self.len() => self.graph.outputs.wanted_at(at),
            OutputRef::Index(at) => {
                let message = format!("there is no output {at}: the run was for {}", self.len());
                return Err(Error::new(ErrorKind::Binding, message));
            }
            OutputRef::Name(name) => self.indices().find(|&i| infos[i].name == name).ok_or_else(|| {
                let wanted: Vec<&str> = self.indices().map(|i| infos[i].name.as_str()).collect();
                unknown_name("output", name, wanted.into_iter())
            })?,
        };
        self.graph.try_output_view(index)
    }

    /// The outputs, in place.
    ///
    /// # Errors
    /// As [`RunOutputs::get`], for each.
    pub fn iter(self) -> impl Iterator<Item = Result<TensorView<'g>>> {
        self.indices().map(move |index| self.graph.try_output_view(index))
    }

    /// The outputs as f32.
    ///
    /// # Errors
    /// An integer that is not exact in f32, or what a run that is waited for reports.
    pub fn to_f32(self) -> Result<Vec<Vec<f32>>> {
        self.indices().map(|index| self.graph.try_read_output(index)).collect()
    }

    /// The outputs with copies of their bytes.
    ///
    /// # Errors
    /// As [`RunOutputs::get`].
    pub fn to_tensors(self) -> Result<Vec<ConstData>> {
        self.iter().map(|view| view?.to_const()).collect()
    }

    /// Copies of the outputs' bytes, with their types.
    ///
    /// # Errors
    /// As [`RunOutputs::get`].
    pub fn to_bytes(self) -> Result<Vec<(Vec<u8>, DType)>> {
        let copied = |view: TensorView<'_>| {
            let bytes = memory::copy(view.bytes, || format!("output {:?}", view.name))?;
            Ok((bytes, view.dtype))
        };
        self.iter().map(|view| copied(view?)).collect()
    }
}
