//! The times of a graph's steps.
//!
//! ```
//! use rlx_runtime::{DType, Device, Graph, GraphExt, Session, Shape};
//! let mut graph = Graph::new("softmax");
//! let x = graph.input("x", Shape::new(&[4, 8], DType::F32));
//! let y = graph.sm(x, -1);
//! graph.set_outputs(vec![y]);
//! let mut compiled = Session::new(Device::Cpu).compile(graph);
//! compiled.try_start_profiling()?;
//! compiled.run(&[("x", &[0.5; 32])]);
//! let steps = compiled.try_profile()?;
//! assert_eq!((steps.len(), steps[0].runs), (compiled.lir().steps.len(), 1));
//! compiled.try_stop_profiling()?;
//! # Ok::<(), rlx_runtime::Error>(())
//! ```

use rlx_backend::{StepProfile, StepProfiler};
use rlx_ir::{Error, ErrorKind, Result};

use super::CompiledGraph;

impl CompiledGraph {
    /// Calls the device's profiler.
    fn profiler<T>(&mut self, ask: impl FnOnce(&mut dyn StepProfiler) -> T) -> Result<T> {
        self.guard.call("timing its steps", || match self.exec.profiler() {
            Some(profiler) => Ok(ask(profiler)),
            None => Err(Error::new(ErrorKind::Unsupported, "this device does not time its steps")
                .with_hint("profile on the CPU, or time whole runs")),
        })
    }

    /// Times each step of later runs, and clears earlier times. This makes runs slightly slower: two clock readings
    /// for each step.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] on a device that does not time its steps.
    pub fn try_start_profiling(&mut self) -> Result<()> {
        self.profiler(|p| p.start())
    }

    /// The steps' times since profiling began, in the order of [`rlx_ir::LirModule::steps`].
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] on a device that does not time its steps.
    pub fn try_profile(&mut self) -> Result<Vec<StepProfile>> {
        self.profiler(|p| p.steps().to_vec())
    }

    /// Stops timing steps, and clears the times.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] on a device that does not time its steps.
    pub fn try_stop_profiling(&mut self) -> Result<()> {
        self.profiler(|p| p.stop())
    }
}
