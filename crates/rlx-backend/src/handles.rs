//! Handles: values that stay where the device computes and stand in for inputs.
//!
//! A handle supplies an input of its executable in every run whose [`crate::InputSource::handle`] says so. A *feed*
//! makes an output of each run the handle's next value: the state of a recurrence, a cache that grows. What an output
//! feeds stays on the device: it is moved by exchanging buffers or by a copy within the run's own submission, and
//! reaches the host only when [`crate::ExecutableGraph::output`] or [`DeviceHandles::read`] asks for it.
//!
//! Clones have the same values and then their own.

use rlx_ir::{Error, ErrorKind, LirModule, Result};

/// What an executable offers that keeps handles.
pub trait DeviceHandles {
    /// Gives input `input` a value: row-major bytes of its element type. A feed it has stays.
    ///
    /// # Errors
    /// No such input, or memory that cannot be had.
    fn set(&mut self, input: usize, bytes: &[u8]) -> Result<()>;

    /// From the next run on, output `output` becomes the value of the handle of `input`, each time a run succeeds;
    /// `None`: it keeps its value. An input whose memory an output takes ([`rlx_ir::LirModule::donated`]) is always fed by it.
    ///
    /// # Errors
    /// An input without a handle, no such output, or one that takes the memory of another input.
    fn feed(&mut self, input: usize, output: Option<usize>) -> Result<()>;

    /// Copies the value of the handle of `input` to the host.
    ///
    /// # Errors
    /// An input without a handle, or a fault of the device.
    fn read(&self, input: usize) -> Result<Vec<u8>>;
}

/// The error for an input that has no handle.
pub fn no_handle(input: &str) -> Error {
    Error::new(ErrorKind::Binding, format!("input {input:?} has no handle"))
}

/// The error for a handle whose device was updating its value when the run failed.
pub fn lost_handle(input: &str) -> Error {
    let message =
        format!("the run that was updating the handle of input {input:?} failed, so its value is lost");
    Error::new(ErrorKind::Binding, message).with_hint("bind the handle again")
}

/// Whether output `output` of the module can feed the handle of `input`: it must exist, and may not take the memory of another
/// input.
///
/// # Errors
/// [`ErrorKind::Binding`].
pub fn check_feed(lir: &LirModule, input: usize, output: usize) -> Result<()> {
    if output >= lir.outputs.len() {
        return Err(Error::new(ErrorKind::Binding, format!("there is no output {output}")));
    }
    match lir.donated(output).filter(|&taken| taken != input) {
        None => Ok(()),
        Some(taken) => {
            let name = |i: usize| lir.inputs.get(i).map_or("?", |slot| &slot.name);
            let (taken, input) = (name(taken), name(input));
            let message = format!("an output that takes the memory of {taken:?} cannot feed {input:?}, too");
            Err(Error::new(ErrorKind::Binding, message))
        }
    }
}

/// Whether a handle of `have` bytes can supply the `want` bytes of an input.
///
/// # Errors
/// [`ErrorKind::Binding`] when it is too small.
pub fn check_size(input: &str, have: usize, want: usize) -> Result<()> {
    if want <= have {
        return Ok(());
    }
    let message = format!("the handle of input {input:?} has {have} bytes, the run needs {want}");
    Err(Error::new(ErrorKind::Binding, message))
}
