//! Memory that is used during a run alone, and the turns by which executables share it.
//!
//! An executable of its own keeps its scratch from run to run. Graphs compiled with
//! [`shared_arena`](rlx_opt::CompileOptions::shared_arena) take scratch before a run and give it back after, so
//! that any number of variants needs as much of it as the largest, times the runs at one time. What must outlive
//! a run (outputs) is not in it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rlx_ir::Result;

use super::memory::{allocate, allocate_aligned};
use crate::alloc::Buffer;

/// The parts of scratch, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Room {
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
    pub(crate) fn fit(&mut self, room: &Room) -> Result<()> {
        let parts = [
            (&mut self.arena, room.arena, room.align.max(1), "the values between steps"),
            (&mut self.threads, room.threads, 1, "the threads' scratch"),
            (&mut self.shared, room.shared, 1, "the scratch of a step"),
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
pub(crate) struct Turns {
    free: Mutex<Vec<Scratch>>,
}

/// The turns of the process, while an executable takes part.
static TURNS: Mutex<Weak<Turns>> = Mutex::new(Weak::new());

impl Turns {
    /// The turns that all executables of the process take part in; the memory goes with the last of them.
    pub(crate) fn join() -> Arc<Turns> {
        let mut present = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        present.upgrade().unwrap_or_else(|| {
            let turns = Arc::new(Turns::default());
            *present = Arc::downgrade(&turns);
            turns
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
        let turns = Turns::default();
        let mut first = turns.take().unwrap();
        first.fit(&Room { arena: 100, shared: 10, ..Room::default() }).unwrap();
        let at = first.arena.as_ptr();
        turns.give(first);
        let first = turns.take().unwrap();
        assert_eq!((first.arena.as_ptr(), first.arena.len()), (at, 100));
        let second = turns.take().unwrap();
        assert_ne!(second.arena.as_ptr(), at);
        turns.give(second);
        turns.give(first);
        assert_eq!(turns.locked().len(), 2);
    }

    #[test]
    fn memory_goes_with_the_last_who_takes_part() {
        let turns = Arc::new(Turns::default());
        turns.give(Scratch::empty().unwrap());
        let weak = Arc::downgrade(&turns);
        drop(turns);
        assert!(weak.upgrade().is_none());
        let (a, b) = (Turns::join(), Turns::join());
        assert!(Arc::ptr_eq(&a, &b));
    }
}
