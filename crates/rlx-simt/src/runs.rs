//! Runs: their commands, as a graph from the second run with the same memory on, and what comes back of them.

use rlx_gpu::{Arrival, Back, Bindings, GpuApi, HostMemory, Submission};
use rlx_ir::Result;

use crate::blas::Ready;
use crate::driver::{Command, Event, Graph, Part, Pinned};
use crate::gpu::Gpu;
use crate::table::DevicePtr;

/// What is kept of steps on one set of memory.
#[derive(Default)]
pub struct Link {
    /// Whether they ran on it before.
    ran: bool,
    graph: Option<Graph>,
    /// What the vendor's library does, by step; made once.
    matmuls: Option<Vec<Option<Ready>>>,
}

/// What comes back of a run: pinned memory that the device copies to, and an event behind the copies.
pub struct Pages {
    memory: Pinned,
    copied: Event,
}

impl HostMemory<Gpu> for Pages {
    fn size(&self) -> usize {
        self.memory.len()
    }

    fn wait(&self, gpu: &Gpu) -> Result<()> {
        gpu.alive()?;
        gpu.checked("waiting for a run", self.copied.wait())
    }

    fn copy(&self, _: &Gpu, at: usize, out: &mut [u8]) -> Result<()> {
        out.copy_from_slice(&self.memory.bytes()[at..][..out.len()]);
        Ok(())
    }

    fn in_reach(&self) -> Option<&[u8]> {
        Some(self.memory.bytes())
    }
}

impl Gpu {
    /// Memory for what comes back.
    ///
    /// # Errors
    /// What the driver reports.
    pub(crate) fn pages(&self, bytes: usize) -> Result<Pages> {
        let memory = self.checked(format_args!("{bytes} bytes for outputs"), self.context.pinned(bytes))?;
        Ok(Pages { memory, copied: self.checked("an event", self.context.event())? })
    }

    /// The matmuls that the vendor's library does of these steps.
    fn matmuls(&self, bindings: &Bindings<'_, Gpu>) -> Result<Vec<Option<Ready>>> {
        (0..bindings.bound.matmuls.len()).map(|step| self.matmul(bindings, step)).collect()
    }

    fn matmul(&self, bindings: &Bindings<'_, Gpu>, step: usize) -> Result<Option<Ready>> {
        let Some((matmul, memory)) = bindings.matmul(self, step)? else { return Ok(None) };
        let Some(library) = self.blas_library() else { return Ok(None) };
        let handles = self.blas_handles(library?)?;
        let ready = handles.ready(matmul, memory.map(|part| *part));
        self.checked("preparing a matmul", ready)
    }

    /// The commands of all steps; the fault record is cleared first.
    fn commands<'s>(
        &self,
        bindings: &Bindings<'s, Gpu>,
        matmuls: &'s [Option<Ready>],
    ) -> Result<Vec<Command<'s>>> {
        let mut commands = vec![Command::Clear(*bindings.faults)];
        let mut dispatches = bindings.bound.dispatches().zip(&bindings.bound.grids).enumerate();
        for (step, matmul) in bindings.bound.steps().zip(matmuls) {
            let own = dispatches.by_ref().take(step.len());
            if let Some(ready) = matmul {
                own.for_each(drop);
                commands.push(Command::Call(ready));
                continue;
            }
            for (at, (dispatch, grid)) in own {
                let Some(grid) = *grid else { continue };
                let arguments = bindings.ranges(self, at, dispatch, |range| range.at)?;
                commands.push(Command::Launch {
                    code: &dispatch.code,
                    grid,
                    workgroup: dispatch.workgroup,
                    dynamic: dispatch.dynamic_bytes,
                    arguments,
                });
            }
        }
        Ok(commands)
    }

    /// Gives the device all steps, and the copies of what comes back.
    ///
    /// # Errors
    /// A buffer without memory, or what the driver reports.
    pub(crate) fn give(&self, link: &mut Link, work: Submission<'_, Gpu>) -> Result<()> {
        self.alive()?;
        let what = format_args!("running {:?}", work.name);
        let Link { ran, graph, matmuls } = link;
        if let Some(graph) = graph {
            self.checked(what, self.context.replay(graph))?;
        } else {
            let matmuls = match matmuls {
                Some(ready) => ready,
                none => none.insert(self.matmuls(&work.bindings)?),
            };
            let commands = self.commands(&work.bindings, matmuls)?;
            if *ran {
                let recorded = self.checked(what, self.context.capture(&commands))?;
                self.checked(what, self.context.replay(graph.insert(recorded)))?;
            } else {
                self.checked(what, self.context.commands(&commands))?;
                *ran = true;
            }
        }
        work.back.map_or(Ok(()), |back| self.give_copies(&back, "copying the outputs"))
    }

    /// Gives the device the copies of what comes back, behind everything that was given.
    ///
    /// # Errors
    /// What the driver reports.
    pub(crate) fn give_copies(&self, back: &Back<'_, Gpu>, what: &str) -> Result<()> {
        let Pages { memory, copied } = &*back.to;
        for &Arrival { from, skip, bytes, at } in back.arrivals {
            let from = Part { at: from.at + skip as DevicePtr, bytes };
            self.checked(what, self.context.to_host(memory, at, from))?;
        }
        self.checked(what, self.context.record(copied))
    }
}
