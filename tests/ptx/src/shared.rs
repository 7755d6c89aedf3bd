//! Workgroup memory, and who used which byte of it since which barrier.

use crate::Result;

/// One byte's past.
#[derive(Debug, Clone, Copy, Default)]
struct Past {
    /// Barriers before the last write, and its thread; the count begins at 1, so 0 is "never".
    written: (u32, u32),
    /// The same of the last read, and whether other threads read between the same barriers.
    read: (u32, u32, bool),
    /// An asynchronous copy is under way.
    pending: bool,
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
}

impl Shared {
    pub fn new(bytes: usize, threads: u32) -> Self {
        let groups = (0..threads).map(|_| vec![Vec::new()]).collect();
        Shared { bytes: vec![0; bytes], past: vec![Past::default(); bytes], barriers: 1, groups }
    }

    pub fn barrier(&mut self) {
        self.barriers += 1;
    }

    fn range(&self, address: u64, bytes: usize) -> Result<std::ops::Range<usize>> {
        let at = usize::try_from(address).unwrap_or(usize::MAX);
        let end = at.saturating_add(bytes);
        if end > self.bytes.len() {
            return Err(format!("bytes {at}..{end} of workgroup memory, which has {}", self.bytes.len()));
        }
        if !at.is_multiple_of(bytes.max(1)) {
            return Err(format!("{bytes} bytes at {at} of workgroup memory are not aligned"));
        }
        Ok(at..end)
    }

    pub fn load(&mut self, address: u64, bytes: usize, thread: u32) -> Result<&[u8]> {
        let (range, now) = (self.range(address, bytes)?, self.barriers);
        for (i, past) in self.past[range.clone()].iter_mut().enumerate() {
            let at = range.start + i;
            let (when, who) = past.written;
            if past.pending {
                return Err(format!("byte {at} of workgroup memory is read, whose copy is under way"));
            }
            if when == 0 {
                return Err(format!("byte {at} of workgroup memory is read before it is written"));
            }
            if when == now && who != thread {
                return Err(format!("a race: byte {at} of workgroup memory was written by thread {who}"));
            }
            let others = past.read.0 == now && (past.read.2 || past.read.1 != thread);
            past.read = (now, thread, others);
        }
        Ok(&self.bytes[range])
    }

    /// Whether a thread may write.
    fn claim(&self, range: std::ops::Range<usize>, thread: u32) -> Result {
        for (i, past) in self.past[range.clone()].iter().enumerate() {
            let at = range.start + i;
            if past.pending {
                return Err(format!("byte {at} of workgroup memory is written, whose copy is under way"));
            }
            if past.written.0 == self.barriers && past.written.1 != thread {
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
        self.past[range.clone()].iter_mut().for_each(|past| past.written = (self.barriers, thread));
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
            });
            self.bytes[range].copy_from_slice(&copy.data);
        }
    }
}
