//! What the init program made: shared with other executables, kept in a file, taken from there.

use std::borrow::Cow;
use std::sync::{Arc, Weak};

use rlx_backend::PreparedWeights;
use rlx_backend::prepared::bytes_of;
use rlx_ir::lir::BufferId;
use rlx_ir::{Error, ErrorKind, Progress, Result, Weight};

use super::{CpuExecutable, Param};
use crate::alloc::Buffer;
use crate::program::extents::Values;
use crate::program::params::PREPARED;
use crate::program::{Program, copy_of};

impl CpuExecutable {
    /// Takes over what other executables made of the same weights.
    pub(super) fn find_prepared(&mut self, program: &Program) {
        for (b, shareable) in program.init.shareable.iter().enumerate() {
            let Some((key, params)) = shareable.as_ref().filter(|_| self.prepared[b].is_none()) else {
                continue;
            };
            let weights: Option<Vec<&Weak<Weight>>> =
                params.iter().map(|&p| self.weights[p].as_ref()).collect();
            if let Some(found) = weights.and_then(|weights| PREPARED.get(*key, &weights)) {
                self.bases[b] = found.as_ptr().cast_mut();
                self.prepared[b] = Some(found);
            }
        }
    }

    /// Keeps what an init step made, for others too.
    pub(super) fn keep_prepared(&mut self, program: &Program, b: usize, memory: Buffer) {
        let memory = Arc::new(memory);
        if let Some((key, params)) = &program.init.shareable[b] {
            let weights: Option<Vec<Weak<Weight>>> =
                params.iter().map(|&p| self.weights[p].clone()).collect();
            weights.into_iter().for_each(|weights| PREPARED.insert(*key, weights, &memory));
        }
        self.prepared[b] = Some(memory);
    }

    /// The buffers that a file keeps, with their sizes.
    fn lasting(&self) -> Result<Vec<(usize, usize)>> {
        let program = &self.program;
        let mut found = Vec::new();
        for (b, step) in program.init.lasting() {
            if let Some(output) = step.outputs.iter().find(|output| output.buffer as usize == b) {
                found.push((b, program.prepared_bytes(b, output, &Values(&[]))?));
            }
        }
        Ok(found)
    }
}

impl PreparedWeights for CpuExecutable {
    fn spent_params(&self) -> Vec<bool> {
        self.program.init.forgettable.clone()
    }

    fn prepare(&mut self, progress: &Progress) -> Result<Vec<(BufferId, Cow<'_, [u8]>)>> {
        if self.stale {
            self.initialise_stale(progress)?;
        }
        let bytes = |(b, _): (usize, usize)| {
            let memory = self.prepared[b].as_ref();
            let memory =
                memory.ok_or_else(|| Error::new(ErrorKind::Internal, "an init step was left out"))?;
            Ok((BufferId(b as u32), Cow::Borrowed(memory.as_slice())))
        };
        self.lasting()?.into_iter().map(bytes).collect()
    }

    fn restore(&mut self, prepared: &[(BufferId, &[u8])]) -> Result<()> {
        let mut memories = Vec::with_capacity(prepared.len());
        for (b, bytes) in bytes_of(&self.lasting()?, prepared)? {
            // Huge pages are read half again as fast as a file's map.
            memories.push((b, Arc::new(copy_of(bytes)?)));
        }
        let spent = self.program.init.forgettable.clone();
        for (i, param) in self.params.iter_mut().enumerate().filter(|(i, _)| spent[*i]) {
            *param = Some(Param::Forgotten);
            self.changed[i] = false;
        }
        self.check_params()?;
        let program = Arc::clone(&self.program);
        self.load_params(|b| program.init.kept[b], &Progress::none())?;
        for (b, memory) in memories {
            self.bases[b] = memory.as_ptr().cast_mut();
            self.prepared[b] = Some(memory);
        }
        self.changed.fill(false);
        (self.stale, self.initialised, self.dims) = (false, true, None);
        Ok(())
    }
}
