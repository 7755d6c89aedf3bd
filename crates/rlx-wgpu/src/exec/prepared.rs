//! What the init program made: shared with other executables of the device, read back for a file, taken from one.

use std::borrow::Cow;
use std::sync::{Arc, Weak};

use rlx_backend::PreparedWeights;
use rlx_backend::extents::Values;
use rlx_backend::prepared::bytes_of;
use rlx_ir::lir::BufferId;
use rlx_ir::progress::Stage;
use rlx_ir::{Progress, Result, Weight};

use super::{Param, WgpuExecutable, storage_bytes};
use crate::memory::{DeviceBuffer, whole_words};
use crate::program::Program;

impl WgpuExecutable {
    /// The weights that went into a prepared buffer, if all of them are known.
    fn weights_of(&self, params: &[usize]) -> Option<Vec<&Weak<Weight>>> {
        params.iter().map(|&p| self.weights[p].as_ref()).collect()
    }

    /// Takes over what other executables made of the same weights.
    pub(super) fn find_prepared(&mut self, program: &Program) {
        for (b, shareable) in program.init.shareable.iter().enumerate() {
            let Some((key, params)) = shareable.as_ref().filter(|_| self.prepared[b].is_none()) else {
                continue;
            };
            let weights = self.weights_of(params);
            if let Some(found) = weights.and_then(|weights| program.gpu.prepared.get(*key, &weights)) {
                self.prepared[b] = Some(found);
                self.unbind();
            }
        }
    }

    /// Lets others find what these init steps made.
    pub(super) fn share_prepared(&self, program: &Program, chosen: &[usize]) {
        for &(b, _) in chosen.iter().flat_map(|&at| &program.init.steps[at].step.outputs) {
            let Some((key, params)) = &program.init.shareable[b] else { continue };
            if let (Some(memory), Some(weights)) = (&self.prepared[b], self.weights_of(params)) {
                program.gpu.prepared.insert(*key, weights.into_iter().cloned().collect(), memory);
            }
        }
    }

    /// The buffers that a file keeps, with their sizes.
    fn lasting(&self) -> Result<Vec<(usize, usize)>> {
        let program = &*self.program;
        let mut found = Vec::new();
        for (b, step) in program.init.lasting() {
            for &(_, elements) in step.outputs.iter().filter(|&&(output, _)| output == b).take(1) {
                found.push((b, storage_bytes(program, b, Values(&[]).size(elements)?)? as usize));
            }
        }
        Ok(found)
    }
}

impl PreparedWeights for WgpuExecutable {
    fn spent_params(&self) -> Vec<bool> {
        self.program.init.forgettable.clone()
    }

    fn prepare(&mut self, progress: &Progress) -> Result<Vec<(BufferId, Cow<'_, [u8]>)>> {
        progress.check(Stage::Prepare)?;
        self.program.gpu.alive()?;
        self.refresh()?;
        let lasting = self.lasting()?;
        let mut found = Vec::with_capacity(lasting.len());
        for (i, &(b, size)) in lasting.iter().enumerate() {
            progress.step(Stage::Prepare, i, lasting.len(), || "")?;
            let mut bytes = vec![0; whole_words(size as u64) as usize];
            self.download(self.range(b)?, &mut bytes)?;
            bytes.truncate(size);
            found.push((BufferId(b as u32), Cow::Owned(bytes)));
        }
        Ok(found)
    }

    fn restore(&mut self, prepared: &[(BufferId, &[u8])]) -> Result<()> {
        let program = Arc::clone(&self.program);
        let device = |e: rlx_ir::Error| e.with_device(program.gpu.name.name());
        let given = bytes_of(&self.lasting()?, prepared).map_err(device)?;
        let spent = &program.init.forgettable;
        self.check_params(|i| !spent[i])?;
        let mut memories = Vec::with_capacity(given.len());
        for (b, bytes) in given {
            let memory = DeviceBuffer::storage(&program.gpu, bytes.len() as u64, "a prepared parameter")?;
            memory.write(&program.gpu, bytes)?;
            memories.push((b, Arc::new(memory)));
        }
        for (i, _) in spent.iter().enumerate().filter(|&(_, &spent)| spent) {
            (self.params[i], self.weights[i]) = (Some(Param::Forgotten), None);
        }
        memories.into_iter().for_each(|(b, memory)| self.prepared[b] = Some(memory));
        self.unbind();
        self.changed.fill(false);
        (self.initialised, self.dims) = (true, None);
        Ok(())
    }
}
