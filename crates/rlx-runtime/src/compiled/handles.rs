//! Handles: values stored with the executable that supply inputs.
//!
//! A handle supplies the input of its name whenever the caller does not pass one. With a *feed*, an output of each run
//! becomes the handle's next value: the state of a recurrence, or a growing cache. The API has two names for them
//! (`bind_handle`, `bind_gpu_handle`), which mean the same here.
//!
//! If the device supports handles ([`rlx_backend::DeviceHandles`]), the value is stored on the device, and so is a fed output.
//! Only with an active extent does the output pass through the host, which pads it to the upper extent. For other
//! devices the value is stored here.

use rlx_backend::ExecutableGraph;
use rlx_backend::convert;
use rlx_driver::DeviceId;
use rlx_ir::{DType, Error, ErrorKind, Result, Shape, memory};
use rlx_select::or_panic;
use rlx_select::panic_guard;

use super::CompiledGraph;
use super::bytes::AlignedBytes;
use super::request::{Data, RunRequest};

/// A handle of an input; its value is in the input's declared type.
#[derive(Debug, Clone)]
pub(super) struct Handle {
    /// The value; `None` if it is stored on the device.
    host: Option<AlignedBytes>,
    /// The size of the value in bytes.
    len: usize,
    elements: usize,
    /// Known once an output fed it, or when the declared shape is fixed.
    dims: Vec<usize>,
    dims_known: bool,
    /// The output that refreshes it after every run.
    feed: Option<usize>,
    /// The output that refreshes it after the next run only, instead of `feed`.
    once: Option<usize>,
    /// The output by which the device itself refreshes it.
    steered: Option<usize>,
}

impl Handle {
    /// The value, if it is stored here.
    pub(super) fn host_bytes(&self) -> &[u8] {
        self.host.as_ref().map_or(&[], AlignedBytes::as_slice)
    }

    pub(super) fn is_resident(&self) -> bool {
        self.host.is_none()
    }

    pub(super) fn data(&self, dtype: DType) -> Data<'_> {
        match &self.host {
            Some(bytes) => Data::Bytes(bytes.as_slice(), dtype),
            None => Data::Resident(self.len, dtype),
        }
    }

    pub(super) fn dims(&self) -> Option<&[usize]> {
        self.dims_known.then_some(&self.dims[..])
    }

    /// The output that refreshes it after the next run.
    pub(super) fn next_feed(&self) -> Option<usize> {
        self.once.or(self.feed)
    }
}

/// The value of a handle stored on the device.
pub(super) fn read_device_handle(
    device: DeviceId,
    exec: &dyn ExecutableGraph,
    input: usize,
) -> Result<Vec<u8>> {
    let none = || Error::new(ErrorKind::Internal, "the device keeps no handles");
    panic_guard::call(device, "giving a handle", || exec.handles().ok_or_else(none)?.read(input))
}

fn allocation_label(name: &str) -> String {
    format!("a copy of handle {name:?}")
}

impl CompiledGraph {
    /// Sets a value for input `name` that stays across runs; `false` if there is no such input.
    ///
    /// # Panics
    /// If [`CompiledGraph::try_bind_handle`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// assert!(compiled.bind_handle("x", &[1.0, 2.0]));
    /// assert!(!compiled.bind_handle("no such input", &[1.0]));
    /// assert_eq!(compiled.run(&[]), [[11.0, 22.0]]);
    /// ```
    #[track_caller]
    pub fn bind_handle(&mut self, name: &str, values: &[f32]) -> bool {
        or_panic(self.try_bind_handle(name, values))
    }

    /// As [`CompiledGraph::bind_handle`].
    ///
    /// # Errors
    /// A wrong length, a value that is not exact in the input's type, or memory that cannot be had.
    pub fn try_bind_handle(&mut self, name: &str, values: &[f32]) -> Result<bool> {
        let Some(i) = self.inputs.iter().position(|info| info.name == name) else { return Ok(false) };
        let info = &self.inputs[i];
        let per = convert::floats_per_element(info.dtype);
        let fixed = info.shape.static_dims();
        let fits = match info.shape.num_elements() {
            Some(n) => values.len() == n * per,
            None => values.len().is_multiple_of(per),
        };
        if !fits {
            let message =
                format!("handle {name:?} is {}, but {} elements were given", info.shape, values.len());
            return Err(Error::new(ErrorKind::Binding, message));
        }
        let elements = values.len() / per;
        let mut bytes = AlignedBytes::default();
        let size = info.dtype.storage_bytes(elements).unwrap_or(0);
        let room = bytes.resize(size, || allocation_label(name))?;
        convert::from_f32(info.dtype, values, room)
            .map_err(|e| Error::new(e.kind(), format!("handle {name:?}: {}", e.message())).with_source(e))?;
        let stored = self.guard.call("taking a handle", || match self.exec.handles_mut() {
            Some(device) => device.set(i, bytes.as_slice()).map(|()| true),
            None => Ok(false),
        })?;
        let host = (!stored).then_some(bytes);
        let donated = self.exec.lir().graph.donated_to(name);
        let (feed, steered) = self.handles[i].as_ref().map_or((donated, None), |h| (h.feed, h.steered));
        let dims_known = fixed.is_some();
        let dims = fixed.unwrap_or_default();
        let handle = Handle { host, len: size, elements, dims, dims_known, feed, once: None, steered };
        self.handles[i] = Some(handle);
        Ok(true)
    }

    /// The current value of a handle; `None` if that input has none.
    ///
    /// # Panics
    /// If an integer of it is not exact in f32; [`CompiledGraph::try_read_handle`] returns that error.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// compiled.bind_handle("x", &[1.0, 2.0]);
    /// assert_eq!(compiled.read_handle("x"), Some(vec![1.0, 2.0]));
    /// ```
    #[track_caller]
    pub fn read_handle(&self, name: &str) -> Option<Vec<f32>> {
        or_panic(self.try_read_handle(name))
    }

    /// As [`CompiledGraph::read_handle`].
    ///
    /// # Errors
    /// [`ErrorKind::Value`] for an integer that is not exact in f32, or a device error.
    pub fn try_read_handle(&self, name: &str) -> Result<Option<Vec<f32>>> {
        let Some(i) = self.inputs.iter().position(|info| info.name == name) else { return Ok(None) };
        let Some(handle) = &self.handles[i] else { return Ok(None) };
        let dtype = self.inputs[i].dtype;
        let count = handle.elements * convert::floats_per_element(dtype);
        let mut values = memory::zeroed(count, || allocation_label(name))?;
        if handle.is_resident() {
            let bytes = read_device_handle(self.device, &*self.exec, i)?;
            convert::to_f32(dtype, &bytes, handle.elements, &mut values)?;
        } else {
            convert::to_f32(dtype, handle.host_bytes(), handle.elements, &mut values)?;
        }
        Ok(Some(values))
    }

    /// The same as [`CompiledGraph::bind_handle`]: the value is stored on the device.
    ///
    /// # Panics
    /// As [`CompiledGraph::bind_handle`].
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// assert!(compiled.bind_gpu_handle("x", &[1.0, 2.0]) && compiled.has_gpu_handle("x"));
    /// ```
    #[track_caller]
    pub fn bind_gpu_handle(&mut self, name: &str, values: &[f32]) -> bool {
        self.bind_handle(name, values)
    }

    /// Whether input `name` has a handle.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// assert!(!compiled.has_gpu_handle("x"));
    /// ```
    pub fn has_gpu_handle(&self, name: &str) -> bool {
        self.inputs.iter().position(|info| info.name == name).is_some_and(|i| self.handles[i].is_some())
    }

    /// The same as [`CompiledGraph::read_handle`].
    ///
    /// # Panics
    /// As [`CompiledGraph::read_handle`].
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// compiled.bind_gpu_handle("x", &[1.0, 2.0]);
    /// assert_eq!(compiled.read_gpu_handle("x"), Some(vec![1.0, 2.0]));
    /// ```
    #[track_caller]
    pub fn read_gpu_handle(&self, name: &str) -> Option<Vec<f32>> {
        self.read_handle(name)
    }

    /// Refreshes handle `name` from output `output_index` after every run; `false` when that input has no
    /// handle.
    ///
    /// # Panics
    /// If [`CompiledGraph::try_set_gpu_handle_feed`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// compiled.bind_gpu_handle("x", &[1.0, 2.0]);
    /// assert!(compiled.set_gpu_handle_feed("x", 0));
    /// compiled.run(&[]);
    /// assert_eq!(compiled.run(&[]), [[21.0, 42.0]]);
    /// ```
    #[track_caller]
    pub fn set_gpu_handle_feed(&mut self, name: &str, output_index: usize) -> bool {
        or_panic(self.try_set_gpu_handle_feed(name, output_index))
    }

    /// As [`CompiledGraph::set_gpu_handle_feed`].
    ///
    /// # Errors
    /// An unknown output, or one whose shape or type does not match the input.
    pub fn try_set_gpu_handle_feed(&mut self, name: &str, output_index: usize) -> Result<bool> {
        let Some(i) = self.inputs.iter().position(|info| info.name == name) else { return Ok(false) };
        if self.handles[i].is_none() {
            return Ok(false);
        }
        self.check_feed(i, output_index)?;
        if let Some(handle) = &mut self.handles[i] {
            handle.feed = Some(output_index);
        }
        Ok(true)
    }

    /// Runs, feeds output `output_index` to handle `name` once, and returns that output; `None` if that input
    /// has no handle (then nothing runs).
    ///
    /// # Panics
    /// If [`CompiledGraph::try_run_feed_gpu_handle`] fails, with its error as the message.
    ///
    /// ```
    /// # use rlx_runtime::*;
    /// # let mut g = Graph::new("sum");
    /// # let (x, w) = (g.input("x", Shape::new(&[2], DType::F32)), g.param("w", Shape::new(&[2], DType::F32)));
    /// # let y = g.add(x, w);
    /// # g.set_outputs(vec![y]);
    /// # let mut compiled = Session::new(Device::Cpu).compile(g);
    /// # compiled.set_param("w", &[10.0, 20.0]);
    /// compiled.bind_gpu_handle("x", &[1.0, 2.0]);
    /// assert_eq!(compiled.run_feed_gpu_handle(&[], "x", 0), Some(vec![11.0, 22.0]));
    /// assert_eq!(compiled.read_gpu_handle("x"), Some(vec![11.0, 22.0]));
    /// ```
    #[track_caller]
    pub fn run_feed_gpu_handle(
        &mut self,
        inputs: &[(&str, &[f32])],
        name: &str,
        output_index: usize,
    ) -> Option<Vec<f32>> {
        or_panic(self.try_run_feed_gpu_handle(inputs, name, output_index))
    }

    /// As [`CompiledGraph::run_feed_gpu_handle`].
    ///
    /// # Errors
    /// What [`CompiledGraph::try_run`] reports, or an output whose shape or type does not match the input.
    pub fn try_run_feed_gpu_handle(
        &mut self,
        inputs: &[(&str, &[f32])],
        name: &str,
        output_index: usize,
    ) -> Result<Option<Vec<f32>>> {
        let Some(i) = self.inputs.iter().position(|info| info.name == name) else { return Ok(None) };
        if self.handles[i].is_none() {
            return Ok(None);
        }
        let read = [output_index];
        let request = RunRequest::from(inputs).feed(name, output_index).outputs(&read);
        Ok(self.execute(request)?.to_f32()?.pop())
    }

    /// Whether output `output` can become input `input`: same type, and dimensions that can be equal.
    pub(super) fn check_feed(&self, input: usize, output: usize) -> Result<()> {
        self.check_outputs(&[output])?;
        let lir = self.exec.lir();
        let taken = (0..lir.outputs.len()).find(|&o| lir.donated(o) == Some(input)).filter(|&o| o != output);
        if let Some(taken) = taken {
            let (name, taken) = (&self.inputs[input].name, &self.output_infos[taken].name);
            let message =
                format!("input {name:?} is donated to output {taken:?}: no other output can feed it");
            return Err(Error::new(ErrorKind::Binding, message));
        }
        let (to, from) = (&self.inputs[input], &self.output_infos[output]);
        let may_equal = |a: &Shape, b: &Shape| {
            let pairs = a.dims().iter().zip(b.dims());
            a.rank() == b.rank()
                && pairs.into_iter().all(|(x, y)| x == y || !(x.is_static() && y.is_static()))
        };
        if to.dtype == from.dtype && may_equal(&to.shape, &from.shape) {
            return Ok(());
        }
        let message = format!(
            "output {:?} is {}: it cannot feed input {:?}, {}",
            from.name, from.shape, to.name, to.shape
        );
        Err(Error::new(ErrorKind::Binding, message))
    }

    pub(super) fn feed_once(&mut self, input: usize, output: Option<usize>) {
        if let Some(handle) = &mut self.handles[input] {
            handle.once = output;
        }
    }

    /// Tells the device which outputs of the next run refresh which handles.
    pub(super) fn steer_feeds(&mut self) -> Result<()> {
        let Some(device) = self.exec.handles_mut() else { return Ok(()) };
        for (i, slot) in self.handles.iter_mut().enumerate() {
            let Some(handle) = slot else { continue };
            // Under an active extent the handle has the upper extent, the device's output the actual one.
            let whole = |output: &usize| !self.outputs.slots[*output].cropped();
            let wanted = handle.next_feed().filter(whole);
            if wanted != handle.steered {
                self.guard.call("feeding a handle", || device.feed(i, wanted))?;
                handle.steered = wanted;
            }
        }
        Ok(())
    }

    /// Refreshes every handle that is fed by an output of the last run.
    pub(super) fn feed_handles(&mut self) -> Result<()> {
        for (i, slot) in self.handles.iter_mut().enumerate() {
            let Some(handle) = slot else { continue };
            let Some(output) = handle.next_feed() else { continue };
            let from = &self.outputs.slots[output];
            if handle.steered != Some(output) {
                let bytes = self.outputs.bytes(&*self.exec, output)?;
                match &mut handle.host {
                    Some(host) => {
                        host.resize(bytes.len(), || allocation_label(from.name()))?.copy_from_slice(bytes)
                    }
                    None => {
                        let bytes = memory::copy(bytes, || allocation_label(from.name()))?;
                        if let Some(device) = self.exec.handles_mut() {
                            self.guard.call("taking a handle", || device.set(i, &bytes))?;
                        }
                    }
                }
            }
            handle.len = from.bytes().unwrap_or(0);
            handle.elements = from.elements().unwrap_or(0);
            handle.dims.clear();
            handle.dims.extend_from_slice(from.dims());
            handle.dims_known = true;
        }
        Ok(())
    }
}
