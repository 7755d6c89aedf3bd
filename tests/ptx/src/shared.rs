//! Workgroup memory, and who used which byte of it since which barrier.

use std::ops::Range;

use crate::Result;
use crate::asynchronous::{Asynchronous, CHUNK, Filled};

/// One byte's past.
#[derive(Debug, Clone, Copy, Default)]
struct Past {
    /// Barriers before the last write, and its thread; the count begins at 1, so 0 is "never".
    written: (u32, u32),
    /// The same of the last read, and whether other threads read between the same barriers.
    read: (u32, u32, bool),
    /// An asynchronous copy is under way.
    pending: bool,
    /// A bulk copy wrote it last.
    filled: Option<Filled>,
    /// A thread wrote it, and no `fence.proxy.async` is behind that.
    unfenced: bool,
}

/// An asynchronous copy.
#[derive(Debug)]
struct Copy {
    at: usize,
    data: Vec<u8>,
}

/// The workgroup memory of a workgroup.
#[derive(Debug)]
pub struct Shared {
    bytes: Vec<u8>,
    past: Vec<Past>,
    barriers: u32,
    /// Of each thread: groups of copies, oldest first; the last one is open.
    groups: Vec<Vec<Vec<Copy>>>,
    /// What runs beside the threads.
    pub beside: Asynchronous,
}

impl Shared {
    pub fn new(bytes: usize, threads: u32) -> Self {
        let groups = (0..threads).map(|_| vec![Vec::new()]).collect();
        let beside = Asynchronous::new(bytes, threads);
        Shared { bytes: vec![0; bytes], past: vec![Past::default(); bytes], barriers: 1, groups, beside }
    }

    pub fn barrier(&mut self) {
        self.barriers += 1;
        self.beside.synchronize();
    }

    /// So many bytes, aligned to their number.
    fn range(&self, address: u64, bytes: usize) -> Result<Range<usize>> {
        let range = self.aligned(address, bytes, bytes)?;
        match self.beside.overlaps(&range) {
            true => Err(format!("bytes {range:?} of workgroup memory are a barrier's")),
            false => Ok(range),
        }
    }

    fn aligned(&self, address: u64, bytes: usize, align: usize) -> Result<Range<usize>> {
        let at = usize::try_from(address).unwrap_or(usize::MAX);
        let end = at.saturating_add(bytes);
        if end > self.bytes.len() {
            return Err(format!("bytes {at}..{end} of workgroup memory, which has {}", self.bytes.len()));
        }
        if !at.is_multiple_of(align.max(1)) {
            return Err(format!("{bytes} bytes at {at} of workgroup memory are not aligned"));
        }
        Ok(at..end)
    }

    pub fn load(&mut self, address: u64, bytes: usize, thread: u32) -> Result<&[u8]> {
        let (range, now) = (self.range(address, bytes)?, self.barriers);
        for (i, past) in self.past[range.clone()].iter_mut().enumerate() {
            let at = range.start + i;
            if past.filled.is_some_and(|filled| !past.pending && !self.beside.sees(thread, filled)) {
                return Err(format!("byte {at} of workgroup memory is read without a wait for its copy"));
            }
            let (when, who) = past.written;
            if past.pending {
                return Err(format!("byte {at} of workgroup memory is read, whose copy is under way"));
            }
            if when == 0 {
                return Err(format!("byte {at} of workgroup memory is read before it is written"));
            }
            if when == now && who != thread && past.filled.is_none() {
                return Err(format!("a race: byte {at} of workgroup memory was written by thread {who}"));
            }
            let others = past.read.0 == now && (past.read.2 || past.read.1 != thread);
            past.read = (now, thread, others);
        }
        Ok(&self.bytes[range])
    }

    /// Whether a thread may write.
    fn claim(&self, range: Range<usize>, thread: u32) -> Result {
        self.beside.may_write(&range, thread)?;
        for (i, past) in self.past[range.clone()].iter().enumerate() {
            let at = range.start + i;
            if past.pending {
                return Err(format!("byte {at} of workgroup memory is written, whose copy is under way"));
            }
            if past.filled.is_some_and(|filled| !self.beside.sees(thread, filled)) {
                return Err(format!("byte {at} of workgroup memory is written without a wait for its copy"));
            }
            if past.filled.is_none() && past.written.0 == self.barriers && past.written.1 != thread {
                let who = past.written.1;
                return Err(format!("a race: byte {at} of workgroup memory was written by thread {who}"));
            }
            let (when, who, others) = past.read;
            if when == self.barriers && (others || who != thread) {
                return Err(format!("a race: byte {at} of workgroup memory was read by thread {who}"));
            }
        }
        Ok(())
    }

    pub fn store(&mut self, address: u64, data: &[u8], thread: u32) -> Result {
        let range = self.range(address, data.len())?;
        self.claim(range.clone(), thread)?;
        self.past[range.clone()].iter_mut().for_each(|past| {
            (past.written, past.filled, past.unfenced) = ((self.barriers, thread), None, true);
        });
        self.bytes[range].copy_from_slice(data);
        Ok(())
    }

    /// `cp.async`: the bytes arrive when the thread waits for them, at the latest moment that is allowed.
    pub fn begin_copy(&mut self, address: u64, data: Vec<u8>, thread: u32) -> Result {
        let range = self.range(address, data.len())?;
        self.claim(range.clone(), thread)?;
        self.past[range.clone()].iter_mut().for_each(|past| past.pending = true);
        if let Some(group) = self.groups[thread as usize].last_mut() {
            group.push(Copy { at: range.start, data });
        }
        Ok(())
    }

    /// `cp.async.commit_group`.
    pub fn commit(&mut self, thread: u32) {
        self.groups[thread as usize].push(Vec::new());
    }

    /// `cp.async.wait_group`: all groups but the last `but` that were committed are done.
    pub fn wait(&mut self, but: usize, thread: u32) {
        let groups = &mut self.groups[thread as usize];
        let done = (groups.len() - 1).saturating_sub(but);
        for copy in groups.drain(..done).flatten() {
            let range = copy.at..copy.at + copy.data.len();
            self.past[range.clone()].iter_mut().for_each(|past| {
                (past.written, past.pending) = ((self.barriers, thread), false);
                (past.filled, past.unfenced) = (None, true);
            });
            self.bytes[range].copy_from_slice(&copy.data);
        }
    }

    /// `fence.proxy.async`: what a thread wrote is there for what runs beside the threads.
    pub fn fence(&mut self, thread: u32) {
        let mine = |past: &&mut Past| past.written.1 == thread;
        self.past.iter_mut().filter(mine).for_each(|past| past.unfenced = false);
        self.beside.fence_barriers(thread);
    }

    /// The address of a barrier.
    pub fn barrier_at(&self, address: u64) -> Result<usize> {
        Ok(self.aligned(address, 8, 8)?.start)
    }

    /// `cp.async.bulk`.
    pub fn begin_bulk(&mut self, address: u64, data: Vec<u8>, barrier: u64, thread: u32) -> Result {
        let range = self.aligned(address, data.len(), CHUNK)?;
        if self.beside.overlaps(&range) {
            return Err("a bulk copy over a barrier".to_owned());
        }
        self.claim(range.clone(), thread)?;
        if let Some(i) = self.past[range.clone()].iter().position(|past| past.unfenced) {
            let at = range.start + i;
            return Err(format!(
                "no fence.proxy.async is between a write of byte {at} and a bulk copy to it"
            ));
        }
        let barrier = self.barrier_at(barrier)?;
        let filled = Some(self.beside.begin(barrier, range.start, data, thread)?);
        self.past[range].iter_mut().for_each(|past| (past.pending, past.filled) = (true, filled));
        Ok(())
    }

    /// The bytes of the copies that a barrier counts arrive; whether there are any.
    pub fn deliver(&mut self, barrier: usize) -> Result<bool> {
        if self.beside.deliver_commit(barrier)? {
            return Ok(true);
        }
        let arrived = self.beside.arrived(barrier);
        for flight in &arrived {
            let range = flight.at..flight.at + flight.data.len();
            self.past[range.clone()].iter_mut().for_each(|past| {
                (past.pending, past.written) = (false, (self.barriers, u32::MAX));
            });
            self.bytes[range].copy_from_slice(&flight.data);
        }
        Ok(!arrived.is_empty())
    }

    /// Reads a chunk for a multiplication of a warp, whose first thread is given.
    pub fn multiplied(&mut self, address: u64, first: u32, lanes: u32) -> Result<[u8; CHUNK]> {
        let (at, chunk) = self.operand(address, first, lanes)?;
        self.beside.read(at, first as usize / crate::warp::WARP);
        Ok(chunk)
    }

    /// The same for a multiplication of `tcgen05` of this number, which one thread begins.
    pub fn multiplied_by_tensor(&mut self, address: u64, thread: u32, number: u32) -> Result<[u8; CHUNK]> {
        let (at, chunk) = self.operand(address, thread, 1)?;
        self.beside.read_by_tensor(at, number);
        Ok(chunk)
    }

    /// The number of a chunk and what it has, for threads that multiply it.
    fn operand(&self, address: u64, first: u32, lanes: u32) -> Result<(usize, [u8; CHUNK])> {
        let range = self.aligned(address, CHUNK, CHUNK)?;
        for (i, past) in self.past[range.clone()].iter().enumerate() {
            let at = range.start + i;
            let unseen = |filled| (first..first + lanes).any(|t| !self.beside.sees(t, filled));
            let wrong = if past.pending {
                "whose copy is under way"
            } else if past.written.0 == 0 {
                "before it is written"
            } else if past.filled.is_some_and(unseen) {
                "without a wait for its copy"
            } else if past.unfenced {
                "and no fence.proxy.async is behind its write"
            } else if past.filled.is_none() && past.written.0 == self.barriers {
                "written since the last barrier: a race"
            } else {
                continue;
            };
            return Err(format!("byte {at} of workgroup memory is multiplied, {wrong}"));
        }
        let (at, mut chunk) = (range.start / CHUNK, [0; CHUNK]);
        chunk.copy_from_slice(&self.bytes[range]);
        Ok((at, chunk))
    }
}
