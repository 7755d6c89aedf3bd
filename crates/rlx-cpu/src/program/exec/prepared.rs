//! What the init program made: shared with other executables, kept in a file, taken from there.

use std::sync::{Arc, Weak};

use rlx_backend::PreparedWeights;
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

    /// The buffers that outlive the init program and do not depend on symbols, with their sizes.
    fn lasting(&self) -> Result<Vec<(usize, usize)>> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        for init in self.program.init.steps.iter().filter(|s| !s.symbolic) {
            for output in &init.step.outputs {
                let b = output.buffer as usize;
                if self.program.init.kept[b] && !found.iter().any(|&(known, _)| known == b) {
                    found.push((b, self.program.prepared_bytes(b, output, &Values(&[]))?));
                }
            }
        }
        Ok(found)
    }
}

impl PreparedWeights for CpuExecutable {
    fn spent_params(&self) -> Vec<bool> {
        self.program.init.forgettable.clone()
    }

    fn prepare(&mut self, progress: &Progress) -> Result<Vec<(BufferId, &[u8])>> {
        if self.stale {
            self.initialise_stale(progress)?;
        }
        let bytes = |(b, _): (usize, usize)| {
            let memory = self.prepared[b].as_ref();
            let memory =
                memory.ok_or_else(|| Error::new(ErrorKind::Internal, "an init step was left out"))?;
            Ok((BufferId(b as u32), memory.as_slice()))
        };
        self.lasting()?.into_iter().map(bytes).collect()
    }

    fn restore(&mut self, prepared: &[(BufferId, &[u8])]) -> Result<()> {
        let misfit = |what: String| Error::new(ErrorKind::Malformed, what).with_device("cpu");
        let lasting = self.lasting()?;
        if prepared.len() != lasting.len() {
            let message = format!("{} prepared buffers for {}", prepared.len(), lasting.len());
            return Err(misfit(message));
        }
        let mut memories = Vec::with_capacity(lasting.len());
        for (b, size) in lasting {
            let given = prepared.iter().find(|(id, _)| id.index() == b);
            let Some((_, bytes)) = given.filter(|(_, bytes)| bytes.len() == size) else {
                return Err(misfit(format!("prepared buffer {b} is missing or not of {size} bytes")));
            };
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
