//! The executor as the rest of the project sees it: [`ExecutableGraph`].

use std::sync::Arc;
use std::task::{Context, Poll};

use rlx_ir::{Error, ErrorKind, LirModule, Progress, Result, Weight};

use super::api::DeviceApi;
use super::params::Param;
use super::run::Executor;
use crate::moe::MixtureOfExperts;
use crate::profile::{profiling_asked, report};
use crate::{
    BindingStats, CodePart, DeviceHandles, ExecutableGraph, InputSource, MemoryInfo, PreparedWeights,
    RunOptions, StepProfile, StepProfiler,
};

impl<D: DeviceApi> ExecutableGraph for Executor<D> {
    #[allow(clippy::misnamed_getters, reason = "the module as callers see it")]
    fn lir(&self) -> &Arc<LirModule> {
        &self.program.shown
    }

    fn set_param(&mut self, index: usize, weight: Arc<Weight>) -> Result<()> {
        let program = &self.program;
        let depends_on_symbols = program.given[1].check_weight(index, &weight)?;
        let param = if D::LOADS_AT_ONCE {
            Param::Loaded(program.device.load(&weight, &program.lir.params[index].name)?)
        } else {
            Param::Set(Arc::clone(&weight))
        };
        if depends_on_symbols {
            // Its size is checked with the dimensions of the next run.
            self.others.extend(self.present.take());
        }
        self.params.set(index, &weight, param);
        Ok(())
    }

    fn run(&mut self, inputs: &dyn InputSource, dims: &[i64]) -> Result<()> {
        self.execute(inputs, dims, RunOptions::default())
    }

    fn run_with_progress(
        &mut self,
        inputs: &dyn InputSource,
        dims: &[i64],
        progress: &Progress,
    ) -> Result<()> {
        self.execute(inputs, dims, RunOptions { progress, ..RunOptions::default() })
    }

    fn submit(&mut self, inputs: &dyn InputSource, dims: &[i64]) -> Result<()> {
        self.execute(inputs, dims, RunOptions { wait: false, ..RunOptions::default() })
    }

    fn execute(&mut self, inputs: &dyn InputSource, dims: &[i64], options: RunOptions<'_>) -> Result<()> {
        if options.wait || D::IN_FLIGHT <= 1 {
            self.settle()?;
            self.start_run(inputs, dims, options)?;
            if let Err(e) = self.program.device.complete(&self.program, &self.queue) {
                self.fail();
                return Err(e);
            }
        } else {
            while self.in_flight.get() >= D::IN_FLIGHT {
                self.complete_oldest()?;
            }
            self.start_run(inputs, dims, options)?;
            self.in_flight.set(self.in_flight.get() + 1);
        }
        self.feed_handles()?;
        self.ran = true;
        Ok(())
    }

    fn max_in_flight(&self) -> usize {
        D::IN_FLIGHT
    }

    fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    fn poll_collect(&self, context: &mut Context<'_>) -> Poll<()> {
        match self.in_flight.get() {
            0 => Poll::Ready(()),
            _ => self.program.device.poll_complete(&self.queue, context),
        }
    }

    fn collect(&mut self) -> Result<()> {
        if self.in_flight.get() > 0 {
            self.complete_oldest()?;
            self.collected = true;
        }
        Ok(())
    }

    fn output(&self, index: usize) -> Result<&[u8]> {
        let Some(output) = self.outputs.get(index).filter(|_| self.ran && !self.lost.get()) else {
            return Err(Error::new(ErrorKind::Binding, format!("there is no output {index} before a run")));
        };
        if !self.collected {
            self.settle()?;
        }
        if let Some(memory) = self.output_memory(index) {
            return match D::host(memory) {
                Some(bytes) => Ok(&bytes[..output.bytes]),
                None => self.fetch(index, memory, output.bytes),
            };
        }
        if output.stays && D::LEAVES_OUTPUTS {
            return self.fetch_left(index);
        }
        let offset = self.plan.as_ref().and_then(|plan| plan.offsets[output.buffer]).unwrap_or(0);
        self.program.device.output(&self.queue, index, offset, output.bytes)
    }

    fn found(&self) -> &[i64] {
        self.present.as_ref().map_or(&[], |binding| &binding.found)
    }

    fn arena(&self) -> Option<&[u8]> {
        if !self.collected {
            self.settle().ok()?;
        }
        self.program.device.arena(&self.queue)
    }

    fn memory(&self) -> MemoryInfo {
        let of_bindings = self.present.iter().chain(&self.others).flat_map(|b| &b.prepared);
        let prepared = self.prepared.iter().flatten().chain(of_bindings.map(|(_, memory)| memory));
        let params = self.params.of.iter().flatten().map(|p| match p {
            Param::Set(weight) => weight.shape().size_bytes().unwrap_or(0),
            Param::Loaded(memory) => D::size(memory),
            Param::Forgotten => 0,
        });
        let device = self.program.device.weight_bytes(&self.queue);
        MemoryInfo {
            arena_bytes: self.plan.as_ref().map_or(0, |p| p.arena_bytes),
            weight_bytes: prepared.map(|m| D::size(m)).sum::<usize>() + params.sum::<usize>() + device,
            largest_live_set: self.plan.as_ref().map_or(0, |p| p.largest_live_set),
        }
    }

    fn binding_stats(&self) -> BindingStats {
        let kept = self.others.len() + usize::from(self.present.is_some());
        BindingStats { kept, ..self.stats }
    }

    fn handles(&self) -> Option<&dyn DeviceHandles> {
        Some(self)
    }

    fn handles_mut(&mut self) -> Option<&mut dyn DeviceHandles> {
        Some(self)
    }

    fn try_clone(&self) -> Result<Box<dyn ExecutableGraph>> {
        // What is under way changes handles; an error of it is reported to who waits for it.
        let settled = self.settle();
        let queue = self.program.device.queue(&self.program, Some(&self.queue))?;
        let mut clone = Executor::with_queue(Arc::clone(&self.program), queue);
        clone.params = self.params.clone();
        clone.prepared.clone_from(&self.prepared);
        clone.plan.clone_from(&self.plan);
        clone.handles = self.handles.values();
        settled?;
        clone.lost.set(self.lost.get());
        for (place, memory) in clone.places.iter_mut().zip(&clone.prepared) {
            if let Some(memory) = memory {
                *place = D::place(memory);
            }
        }
        // Parameters that changed since are loaded with the next initialisation.
        if !clone.params.stale {
            let program = Arc::clone(&clone.program);
            clone.load_params(&program, |_| false, &Progress::none())?;
        }
        Ok(Box::new(clone))
    }

    fn prepared_weights(&mut self) -> Option<&mut dyn PreparedWeights> {
        // A file keeps them by the buffers of the module that it has.
        if self.program.has_buffers_of_shown() { Some(self) } else { None }
    }

    fn code(&self) -> Result<Vec<CodePart>> {
        self.program.device.code()
    }

    fn profiler(&mut self) -> Option<&mut dyn StepProfiler> {
        if self.program.device.times_steps() { Some(self) } else { None }
    }

    fn moe(&mut self) -> Option<&mut dyn MixtureOfExperts> {
        D::moe(&mut self.queue)
    }

    fn drain(&mut self) -> Result<()> {
        self.settle()?;
        self.program.device.wait()
    }
}

impl<D: DeviceApi> StepProfiler for Executor<D> {
    fn start(&mut self) {
        let graph = &self.program.lir.graph;
        let steps = self.program.steps.iter().map(|s| StepProfile::new(graph.label(s.node)));
        self.profile = Some(steps.collect());
    }

    fn stop(&mut self) {
        self.profile = None;
    }

    fn steps(&self) -> &[StepProfile] {
        self.profile.as_deref().unwrap_or_default()
    }
}

impl<D: DeviceApi> Drop for Executor<D> {
    /// With `RLX_PROFILE` set, says where the time went.
    fn drop(&mut self) {
        if let Some(steps) = self.profile.as_ref().filter(|_| profiling_asked()) {
            report(&self.program.lir.name, steps);
        }
    }
}
