//! Steps bound to numbers and memory: uniforms on the device, and the commands of a run, as a graph from the second run with the same
//! memory on.

use std::sync::Arc;

use rlx_backend::executor::Step;
use rlx_ir::Result;
use rlx_kernel::dispatch::{Bound, BoundLimits};

use crate::driver::{Code, Command, Graph, Part};
use crate::gpu::Gpu;
use crate::memory::{Buffer, without_memory};
use crate::program::Kernel;

/// Where the buffers of a module are.
pub(crate) type Place = Option<Part>;

/// Graphs are kept for this many sets of memory: buffers of handles that outputs feed change places with every run.
const LINKS: usize = 2;

/// Uniforms are read as integers of 32 bits; lines of the cache are this long.
const ALIGN: u64 = 128;

/// Memory that the steps were run on, and the graph of that.
struct Link {
    places: Vec<Part>,
    faults: Part,
    graph: Option<Graph>,
}

/// Steps bound to the same dimensions.
pub(crate) struct Sequence {
    pub(crate) bound: Bound<Arc<Code>>,
    /// The uniforms of all dispatches.
    memory: Buffer,
    /// The last set of memory first.
    links: Vec<Link>,
}

impl Sequence {
    /// Room for these steps; with the numbers of `like`, where it is given.
    ///
    /// # Errors
    /// Memory that cannot be had.
    pub(crate) fn new<'s>(
        gpu: &Gpu,
        max_groups: u32,
        steps: impl Iterator<Item = &'s Step<Arc<Kernel>>>,
        like: Option<&Sequence>,
    ) -> Result<Sequence> {
        let limits = BoundLimits { align: ALIGN, most_bytes: u64::MAX, max_groups };
        let bound = Bound::new(steps, limits, like.map(|like| &like.bound))?;
        let memory = Buffer::new(gpu, bound.bytes.len(), "extents")?;
        Ok(Sequence { bound, memory, links: Vec::new() })
    }

    /// Copies the numbers to the device, before anything that is given later. Which workgroups there are is part of the graphs.
    ///
    /// # Errors
    /// What the driver reports.
    pub(crate) fn upload(&mut self, gpu: &Gpu) -> Result<()> {
        if self.bound.changed {
            self.links.clear();
            if !self.bound.places.is_empty() {
                self.memory.write(gpu, 0, &self.bound.bytes)?;
            }
            self.bound.changed = false;
        }
        Ok(())
    }

    /// Lets go of memory that it ran on.
    pub(crate) fn unlink(&mut self) {
        self.links.clear();
    }

    /// The commands of all steps; the fault record is cleared first.
    fn commands(&self, gpu: &Gpu, places: &[Place], faults: Part) -> Result<Vec<Command<'_>>> {
        let mut commands = vec![Command::Clear(faults)];
        let dispatches = self.bound.dispatches().zip(&self.bound.grids).zip(&self.bound.places);
        for ((dispatch, grid), &(at, bytes)) in dispatches {
            let Some(grid) = *grid else { continue };
            let mut arguments = vec![self.memory.part(at as usize, bytes as usize).at];
            for &buffer in &dispatch.buffers {
                arguments.push(places[buffer].ok_or_else(|| without_memory(gpu, buffer))?.at);
            }
            arguments.extend(dispatch.can_fail.then_some(faults.at));
            commands.push(Command::Launch {
                code: &dispatch.code,
                grid,
                workgroup: dispatch.workgroup,
                arguments,
            });
        }
        Ok(commands)
    }

    /// Gives the device all steps.
    ///
    /// # Errors
    /// A buffer without memory, or what the driver reports.
    pub(crate) fn submit(&mut self, gpu: &Gpu, name: &str, places: &[Place], faults: Part) -> Result<()> {
        gpu.alive()?;
        let now = || self.bound.used.iter().map(|&b| places[b]);
        let same = |link: &Link| link.faults == faults && link.places.iter().copied().map(Some).eq(now());
        let what = format_args!("running {name:?}");
        let Some(at) = self.links.iter().position(same) else {
            let commands = self.commands(gpu, places, faults)?;
            gpu.checked(what, gpu.context.commands(&commands))?;
            self.links.truncate(LINKS - 1);
            self.links.insert(0, Link { places: now().flatten().collect(), faults, graph: None });
            return Ok(());
        };
        self.links[..=at].rotate_right(1);
        if self.links[0].graph.is_none() {
            let graph = gpu.context.capture(&self.commands(gpu, places, faults)?);
            self.links[0].graph = Some(gpu.checked(what, graph)?);
        }
        match &self.links[0].graph {
            Some(graph) => gpu.checked(what, gpu.context.replay(graph)),
            None => Ok(()),
        }
    }
}
