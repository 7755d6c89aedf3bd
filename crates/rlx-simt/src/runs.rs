//! Runs: their commands, as a graph from the second run with the same memory on, and what comes back of them.

use rlx_gpu::{Arrival, Back, Bindings, GpuApi, HostMemory, PlacedMap, Submission, Times};
use rlx_ir::{ErrorKind, Result};
use rlx_tile::tensor_map::BoundMap;

use crate::blas::Ready;
use crate::driver::{Command, Event, Graph, Outcome, Part, Pinned, arguments};
use crate::gpu::Gpu;
use crate::table::DevicePtr;
use crate::tensor_map::{self, TensorMap};

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
        let Some(matmul) = bindings.matmul(self, step)? else { return Ok(None) };
        let Some(library) = self.blas_library() else { return Ok(None) };
        let handles = self.blas_handles(library?)?;
        let ready = self.checked("preparing a matmul", handles.ready(&matmul))?;
        if ready.is_none() && matmul.of.has_epilogue() {
            handles.tell_rejected(matmul.of);
        }
        Ok(ready)
    }

    /// The commands of all steps; the fault record is cleared first. Where there are marks, they are recorded in front of the first step and behind each.
    fn commands<'s>(
        &self,
        bindings: &Bindings<'s, Gpu>,
        matmuls: &'s [Option<Ready>],
        marks: &'s [Event],
    ) -> Result<Vec<Command<'s>>> {
        let mut commands = vec![Command::Clear(*bindings.faults)];
        let mut marks = marks.iter().map(Command::Record);
        let mut dispatches = bindings.bound.dispatches().zip(&bindings.bound.grids).enumerate();
        for (step, matmul) in bindings.bound.steps().zip(matmuls) {
            commands.extend(marks.next());
            let own = dispatches.by_ref().take(step.len());
            if let Some(ready) = matmul {
                own.for_each(drop);
                commands.push(Command::Call(ready));
                continue;
            }
            for (at, (dispatch, grid)) in own {
                let Some(grid) = *grid else { continue };
                let addresses = bindings.ranges(self, at, dispatch, |range| range.at)?;
                let arguments = arguments(bindings.values(at), addresses);
                let maps = self.tensor_maps(bindings.maps(self, at, dispatch)?)?;
                commands.push(Command::Launch {
                    code: &dispatch.code,
                    grid,
                    workgroup: dispatch.workgroup,
                    dynamic: dispatch.dynamic_bytes,
                    arguments,
                    maps,
                });
            }
        }
        commands.extend(marks);
        Ok(commands)
    }

    fn tensor_maps(&self, maps: Vec<PlacedMap<'_, Gpu>>) -> Result<Vec<TensorMap>> {
        let missing = || self.error(ErrorKind::Internal, "tensor maps, which the driver does not have");
        let make = |(map, memory): (BoundMap, &Part)| {
            let tensors = self.context.libraries.tensors.as_ref().ok_or_else(missing)?;
            self.checked("making a tensor map", tensor_map::encode(tensors, &map, *memory))
        };
        maps.into_iter().map(make).collect()
    }

    /// Runs all steps one by one, waits for them, and notes when each began and ended, in nanoseconds from the start of the first one: the time of a step has that of its launch in it.
    fn give_timed(&self, commands: &[Command<'_>], marks: &[Event], times: &Times<'_, Gpu>) -> Result<()> {
        let context = &self.context;
        self.checked("running steps one by one", context.commands(commands))?;
        let [first, .., last] = marks else { return Ok(()) };
        self.checked("waiting for a run", last.wait())?;
        let since = |mark: &Event| Ok((f64::from(mark.since(first)?) * 1e6) as u64);
        let ends = marks[1..].iter().map(since).collect::<Outcome<Vec<u64>>>();
        let ends = self.checked("reading the times of steps", ends)?;
        let starts = std::iter::once(&0).chain(&ends);
        let notes: Vec<u8> =
            starts.zip(&ends).flat_map(|(from, to)| [*from, *to]).flat_map(u64::to_ne_bytes).collect();
        self.send(times.notes.part(0, notes.len()), &notes)
    }

    /// Events around the steps, where their times are asked for.
    fn marks(&self, work: &Submission<'_, Gpu>) -> Result<Vec<Event>> {
        let count = work.times.as_ref().map_or(0, |times| times.busy.len() + 1);
        let marks: Outcome<Vec<Event>> = (0..count).map(|_| self.context.timed_event()).collect();
        self.checked("events", marks)
    }

    /// Gives the device all steps, and the copies of what comes back.
    ///
    /// # Errors
    /// A buffer without memory, or what the driver reports.
    pub(crate) fn give(&self, link: &mut Link, work: Submission<'_, Gpu>) -> Result<()> {
        self.alive()?;
        let what = format_args!("running {:?}", work.name);
        let Link { ran, graph, matmuls } = link;
        if let Some(graph) = graph
            && work.times.is_none()
        {
            self.checked(what, self.context.replay(graph))?;
        } else {
            let matmuls = match matmuls {
                Some(ready) => ready,
                none => none.insert(self.matmuls(&work.bindings)?),
            };
            let marks = self.marks(&work)?;
            let commands = self.commands(&work.bindings, matmuls, &marks)?;
            if let Some(times) = &work.times {
                self.give_timed(&commands, &marks, times)?;
            } else if *ran {
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
