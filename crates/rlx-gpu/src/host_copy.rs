//! What came back of a run in memory of the host's own, for devices whose memory the host cannot keep in reach.

use std::cell::{Cell, OnceCell};

use rlx_ir::Result;

/// A copy that is made when somebody asks for it. Its memory is used again.
#[derive(Default)]
pub(crate) struct HostCopy {
    /// Words, so that elements of every type are aligned.
    words: OnceCell<Vec<u64>>,
    spare: Cell<Vec<u64>>,
}

impl HostCopy {
    /// The first `bytes` bytes, which `fill` copies at first.
    ///
    /// # Errors
    /// What `fill` reports.
    pub(crate) fn get(&self, bytes: usize, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<&[u8]> {
        let words = match self.words.get() {
            Some(known) => known,
            None => {
                let mut words = self.spare.take();
                words.resize(bytes.div_ceil(size_of::<u64>()), 0);
                if bytes > 0 {
                    fill(&mut bytemuck::cast_slice_mut(&mut words)[..bytes])?;
                }
                self.words.get_or_init(|| words)
            }
        };
        Ok(&bytemuck::cast_slice(words)[..bytes])
    }

    /// What it holds is old.
    pub(crate) fn forget(&mut self) {
        if let Some(words) = self.words.take() {
            self.spare.set(words);
        }
    }
}
