//! Memory that is used during a run alone, and how executables share it.
//!
//! An executable of its own keeps its scratch from run to run. Graphs compiled with
//! [`shared_arena`](rlx_opt::CompileOptions::shared_arena) take scratch before a run and give it back after, so
//! that any number of variants needs as much of it as the largest, times the runs at one time. What must outlive
//! a run (outputs) is not in it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rlx_ir::Result;

use crate::alloc::Buffer;
use crate::memory::{allocate, allocate_aligned};

/// The parts of scratch, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ScratchSizes {
    /// Values between steps.
    pub(crate) arena: usize,
    /// At a multiple of what they start.
    pub(crate) align: usize,
    /// What threads use for themselves: all of them together.
    pub(crate) threads: usize,
    /// What the threads of one step share.
    pub(crate) shared: usize,
}

/// Scratch memory.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) arena: Buffer,
    pub(crate) threads: Buffer,
    pub(crate) shared: Buffer,
}

impl Scratch {
    pub(crate) fn empty() -> Result<Scratch> {
        let none = || allocate(0, "scratch");
        Ok(Scratch { arena: none()?, threads: none()?, shared: none()? })
    }

    /// Makes each part at least this large. What is there is lost where a part grows; the old part is freed
    /// first, so that the two are never there at once.
    pub(crate) fn fit(&mut self, sizes: &ScratchSizes) -> Result<()> {
        let parts = [
            (&mut self.arena, sizes.arena, sizes.align.max(1), "the values between steps"),
            (&mut self.threads, sizes.threads, 1, "the threads' scratch"),
            (&mut self.shared, sizes.shared, 1, "the scratch of a step"),
        ];
        for (part, bytes, align, what) in parts {
            if part.len() < bytes || !part.as_ptr().addr().is_multiple_of(align) {
                *part = allocate(0, "scratch")?;
                *part = allocate_aligned(bytes, align, what)?;
            }
        }
        Ok(())
    }
}

/// Scratch that is free, for anyone who runs next.
#[derive(Debug, Default)]
pub(crate) struct SharedScratch {
    free: Mutex<Vec<Scratch>>,
}

/// The scratch that the process shares, while an executable takes part.
static SHARED: Mutex<Weak<SharedScratch>> = Mutex::new(Weak::new());

impl SharedScratch {
    /// The scratch that all executables of the process share; the memory goes with the last of them.
    pub(crate) fn join() -> Arc<SharedScratch> {
        let mut present = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        present.upgrade().unwrap_or_else(|| {
            let shared = Arc::new(SharedScratch::default());
            *present = Arc::downgrade(&shared);
            shared
        })
    }

    /// Free scratch, or new.
    pub(crate) fn take(&self) -> Result<Scratch> {
        let free = self.locked().pop();
        free.map_or_else(Scratch::empty, Ok)
    }

    /// Gives scratch to anyone who runs next.
    pub(crate) fn give(&self, scratch: Scratch) {
        self.locked().push(scratch);
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Scratch>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_share_one_scratch_unless_they_overlap() {
        let shared = SharedScratch::default();
        let mut first = shared.take().unwrap();
        first.fit(&ScratchSizes { arena: 100, shared: 10, ..ScratchSizes::default() }).unwrap();
        let at = first.arena.as_ptr();
        shared.give(first);
        let first = shared.take().unwrap();
        assert_eq!((first.arena.as_ptr(), first.arena.len()), (at, 100));
        let second = shared.take().unwrap();
        assert_ne!(second.arena.as_ptr(), at);
        shared.give(second);
        shared.give(first);
        assert_eq!(shared.locked().len(), 2);
    }

    #[test]
    fn memory_goes_with_the_last_who_takes_part() {
        let shared = Arc::new(SharedScratch::default());
        shared.give(Scratch::empty().unwrap());
        let weak = Arc::downgrade(&shared);
        drop(shared);
        assert!(weak.upgrade().is_none());
        let (a, b) = (SharedScratch::join(), SharedScratch::join());
        assert!(Arc::ptr_eq(&a, &b));
    }
}
