//! What runs beside the threads: bulk copies, which barriers in memory count, and multiplications of warp groups.
//!
//! Bytes of a copy arrive only when no thread can go on without them. A chunk of 16 bytes of workgroup memory knows which phase of a barrier says that
//! it is filled, and which multiplications read it.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Result;
use crate::clocks::{Clock, join, number, set};
use crate::warp::WARP;

/// Bytes of a chunk: what bulk copies and matrix descriptors are multiples of.
pub const CHUNK: usize = 16;
const BARRIER_BYTES: usize = 8;

/// Says that bytes have arrived: the barrier's part of clocks, and how many of its phases have then ended.
pub type Filled = (usize, u32);

/// A barrier in memory (`mbarrier`).
#[derive(Debug)]
struct Barrier {
    /// Its part of clocks.
    part: usize,
    /// Arrivals of a phase, and those that the present one misses.
    arrivals: u32,
    missing: u32,
    /// Bytes that the present phase expects.
    bytes: i64,
    /// Phases that have ended.
    ended: u32,
    /// What the threads that arrived in this phase know, and what those of all phases before knew.
    gathered: Clock,
    released: Clock,
    /// Who made it, when, and whether a fence was behind that.
    made: (u32, u32),
    fenced: bool,
}

/// A bulk copy under way.
#[derive(Debug)]
pub struct Flight {
    /// The address of the barrier.
    barrier: usize,
    pub at: usize,
    pub data: Vec<u8>,
}

/// The multiplications that a warp began, in groups that are numbered from 1.
#[derive(Debug, Default)]
struct Multiplications {
    committed: u32,
    /// For each group that is done, where the lanes' own numbers were.
    done: Vec<Vec<u32>>,
    /// Whether the open group has any.
    open: bool,
}

/// All of it, of a workgroup.
#[derive(Debug)]
pub struct Asynchronous {
    threads: usize,
    clocks: Vec<Clock>,
    barriers: BTreeMap<usize, Barrier>,
    flights: Vec<Flight>,
    warps: Vec<Multiplications>,
    /// The last group of each warp that reads a chunk; all warps of a chunk are neighbours.
    reads: Vec<u32>,
    /// The last multiplication of `tcgen05` that reads a chunk; they are numbered from 1.
    tensor_reads: Vec<u32>,
    /// Arrivals that such multiplications will make.
    commits: Vec<Commit>,
    /// Of each thread, whether it waited since its last `tcgen05.fence::after_thread_sync`.
    waited: Vec<bool>,
}

/// An arrival of `tcgen05.commit`: at a barrier, when so many multiplications are done, with what the thread knew.
#[derive(Debug)]
struct Commit {
    barrier: usize,
    done: u32,
    known: Clock,
}

impl Asynchronous {
    pub fn new(bytes: usize, threads: u32) -> Self {
        let threads = threads as usize;
        let warps = threads.div_ceil(WARP);
        let mut clocks = vec![Clock::new(); threads];
        clocks.iter_mut().enumerate().for_each(|(t, clock)| set(clock, t, 1));
        Asynchronous {
            threads,
            clocks,
            barriers: BTreeMap::new(),
            flights: Vec::new(),
            warps: (0..warps).map(|_| Multiplications::default()).collect(),
            reads: vec![0; bytes.div_ceil(CHUNK) * warps],
            tensor_reads: vec![0; bytes.div_ceil(CHUNK)],
            commits: Vec::new(),
            waited: vec![false; threads],
        }
    }

    /// All threads know what all know.
    pub fn synchronize(&mut self) {
        let mut all = Clock::new();
        self.clocks.iter().for_each(|clock| join(&mut all, clock));
        for t in 0..self.threads {
            self.clocks[t].clone_from(&all);
            self.advance(t as u32);
        }
        self.waited.fill(true);
    }

    pub fn own(&self, thread: u32) -> u32 {
        number(&self.clocks[thread as usize], thread as usize)
    }

    fn advance(&mut self, thread: u32) {
        let next = self.own(thread) + 1;
        set(&mut self.clocks[thread as usize], thread as usize, next);
    }

    /// Whether a thread has waited for bytes, or knows of one that has.
    pub fn sees(&self, thread: u32, filled: Filled) -> bool {
        number(&self.clocks[thread as usize], filled.0) >= filled.1
    }

    /// Whether bytes are those of a barrier.
    pub fn overlaps(&self, range: &Range<usize>) -> bool {
        let first = range.start.saturating_sub(BARRIER_BYTES - 1);
        self.barriers.range(first..range.end).next().is_some()
    }

    /// `mbarrier.init`.
    pub fn init(&mut self, at: usize, arrivals: u32, thread: u32) -> Result {
        if arrivals == 0 || arrivals >= 1 << 20 {
            return Err(format!("a barrier of {arrivals} arrivals"));
        }
        if self.overlaps(&(at..at + BARRIER_BYTES)) {
            return Err(format!("a second barrier at {at}"));
        }
        // Behind the threads is what is known of multiplications of `tcgen05`.
        let part = self.threads + 1 + self.barriers.len();
        let made = (thread, self.own(thread));
        let (gathered, released) = (Clock::new(), Clock::new());
        let (missing, bytes, ended, fenced) = (arrivals, 0, 0, false);
        let new = Barrier { part, arrivals, missing, bytes, ended, gathered, released, made, fenced };
        self.barriers.insert(at, new);
        Ok(())
    }

    /// A fence behind `mbarrier.init`, for what uses a barrier beside the threads.
    pub fn fence_barriers(&mut self, thread: u32) {
        self.barriers.values_mut().filter(|b| b.made.0 == thread).for_each(|b| b.fenced = true);
    }

    /// The barrier at an address, which the thread knows to be made.
    fn barrier(&mut self, at: usize, thread: u32) -> Result<&mut Barrier> {
        let clock = &self.clocks[thread as usize];
        let barrier = self.barriers.get_mut(&at).ok_or_else(|| format!("no barrier is made at {at}"))?;
        let (who, when) = barrier.made;
        if who != thread && number(clock, who as usize) < when {
            return Err(format!("a race: thread {who} makes the barrier at {at}"));
        }
        Ok(barrier)
    }

    /// `mbarrier.arrive`, with the bytes of `expect_tx`.
    pub fn arrive(&mut self, at: usize, bytes: u32, thread: u32) -> Result {
        let known = self.clocks[thread as usize].clone();
        let barrier = self.barrier(at, thread)?;
        barrier.bytes += i64::from(bytes);
        barrier.count(at, &known)?;
        self.advance(thread);
        Ok(())
    }

    /// `mbarrier.try_wait.parity`: whether the phase of this parity has ended.
    pub fn try_wait(&mut self, at: usize, parity: u32, thread: u32) -> Result<bool> {
        let barrier = self.barrier(at, thread)?;
        let ended = barrier.ended & 1 != parity & 1;
        if ended {
            let released = barrier.released.clone();
            join(&mut self.clocks[thread as usize], &released);
            self.waited[thread as usize] = true;
        }
        Ok(ended)
    }

    /// What a barrier misses, for people.
    pub fn misses(&self, at: usize) -> String {
        self.barriers.get(&at).map_or_else(String::new, |b| {
            format!("the barrier at {at} misses {} arrivals and {} bytes", b.missing, b.bytes)
        })
    }

    /// Begins a bulk copy; what says that its bytes have arrived.
    pub fn begin(&mut self, barrier: usize, at: usize, data: Vec<u8>, thread: u32) -> Result<Filled> {
        let counts = self.barrier(barrier, thread)?;
        if !counts.fenced {
            return Err("a copy counted by a barrier without a fence behind mbarrier.init".to_owned());
        }
        let filled = (counts.part, counts.ended + 1);
        self.flights.push(Flight { barrier, at, data });
        Ok(filled)
    }

    /// The copies that a barrier counts have arrived.
    pub fn arrived(&mut self, barrier: usize) -> Vec<Flight> {
        let (arrived, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.flights).into_iter().partition(|f| f.barrier == barrier);
        self.flights = rest;
        if let Some(barrier) = self.barriers.get_mut(&barrier).filter(|_| !arrived.is_empty()) {
            barrier.bytes -= arrived.iter().map(|f| f.data.len() as i64).sum::<i64>();
            barrier.end_phase();
        }
        arrived
    }

    /// A multiplication of a warp reads a chunk.
    pub fn read(&mut self, chunk: usize, warp: usize) {
        let warps = self.warps.len();
        self.reads[chunk * warps + warp] = self.warps[warp].committed + 1;
    }

    /// Whether a thread may write chunks that multiplications have read.
    pub fn may_write(&self, bytes: &Range<usize>, thread: u32) -> Result {
        let (warps, clock) = (self.warps.len(), &self.clocks[thread as usize]);
        for chunk in bytes.start / CHUNK..bytes.end.div_ceil(CHUNK) {
            if self.tensor_reads[chunk] > number(clock, self.threads) {
                let at = chunk * CHUNK;
                return Err(format!(
                    "bytes {at}.. are written, which a multiplication of tcgen05 may still read"
                ));
            }
            for (w, warp) in self.warps.iter().enumerate() {
                let group = self.reads[chunk * warps + w] as usize;
                let Some(group) = group.checked_sub(1) else { continue };
                // Behind the wait of a lane that arrived somewhere since.
                let known = |own: &[u32]| {
                    own.iter().enumerate().any(|(lane, &own)| {
                        let who = w * WARP + lane;
                        number(clock, who) >= own || who == thread as usize
                    })
                };
                if !warp.done.get(group).is_some_and(|own| known(own)) {
                    let at = chunk * CHUNK;
                    return Err(format!(
                        "bytes {at}.. are written, which a multiplication of warp {w} may still read"
                    ));
                }
            }
        }
        Ok(())
    }

    /// A multiplication of `tcgen05` of this number reads a chunk.
    pub fn read_by_tensor(&mut self, chunk: usize, number: u32) {
        self.tensor_reads[chunk] = number;
    }

    /// Whether a thread knows that so many multiplications of `tcgen05` are done.
    pub fn knows_done(&self, thread: u32, multiplications: u32) -> bool {
        number(&self.clocks[thread as usize], self.threads) >= multiplications
    }

    /// Whether a thread knows what another did while that one's number was this.
    pub fn knows_of(&self, thread: u32, who: u32, own: u32) -> bool {
        who == thread || number(&self.clocks[thread as usize], who as usize) >= own
    }

    /// `tcgen05.fence::after_thread_sync`.
    pub fn fence_after_wait(&mut self, thread: u32) {
        self.waited[thread as usize] = false;
    }

    /// Whether a thread has such a fence behind its last wait.
    pub fn has_fenced(&self, thread: u32) -> Result {
        match self.waited[thread as usize] {
            true => Err("no tcgen05.fence::after_thread_sync is between a wait and this".to_owned()),
            false => Ok(()),
        }
    }

    /// `tcgen05.commit`: the barrier counts an arrival once so many multiplications are done.
    pub fn commit_tensor(&mut self, at: usize, done: u32, thread: u32) -> Result {
        if !self.barrier(at, thread)?.fenced {
            return Err("a commit to a barrier without a fence behind mbarrier.init".to_owned());
        }
        let known = self.clocks[thread as usize].clone();
        self.commits.push(Commit { barrier: at, done, known });
        self.advance(thread);
        Ok(())
    }

    /// The first commit to a barrier arrives; whether there is one.
    pub fn deliver_commit(&mut self, at: usize) -> Result<bool> {
        let Some(first) = self.commits.iter().position(|commit| commit.barrier == at) else {
            return Ok(false);
        };
        let Commit { done, mut known, .. } = self.commits.remove(first);
        set(&mut known, self.threads, done);
        if let Some(barrier) = self.barriers.get_mut(&at) {
            barrier.count(at, &known)?;
        }
        Ok(true)
    }

    /// The number of the open group of a warp, for a multiplication that begins.
    pub fn multiply(&mut self, warp: usize) -> u32 {
        self.warps[warp].open = true;
        self.warps[warp].committed + 1
    }

    /// `wgmma.commit_group`.
    pub fn commit(&mut self, warp: usize) {
        self.warps[warp].committed += 1;
        self.warps[warp].open = false;
    }

    /// `wgmma.wait_group`.
    pub fn wait(&mut self, but: usize, warp: usize) {
        let done = (self.warps[warp].committed as usize).saturating_sub(but);
        let lanes = warp * WARP..((warp + 1) * WARP).min(self.threads);
        let own: Vec<u32> = lanes.map(|t| self.own(t as u32)).collect();
        let groups = &mut self.warps[warp].done;
        groups.resize(groups.len().max(done), own);
    }

    /// Groups of a warp that are done.
    pub fn done(&self, warp: usize) -> u32 {
        self.warps[warp].done.len() as u32
    }

    /// Whether multiplications of a warp are under way.
    pub fn multiplies(&self, warp: usize) -> bool {
        let warp = &self.warps[warp];
        warp.open || warp.committed as usize > warp.done.len()
    }

    /// What is still under way.
    pub fn under_way(&self) -> Option<&'static str> {
        match (self.flights.is_empty(), (0..self.warps.len()).any(|w| self.multiplies(w))) {
            (false, _) => Some("a bulk copy"),
            (_, true) => Some("a multiplication"),
            _ => None,
        }
    }
}

impl Barrier {
    /// An arrival of who knows this.
    fn count(&mut self, at: usize, known: &Clock) -> Result {
        join(&mut self.gathered, known);
        let fewer = || format!("more arrivals than the barrier at {at} counts");
        self.missing = self.missing.checked_sub(1).ok_or_else(fewer)?;
        self.end_phase();
        Ok(())
    }

    fn end_phase(&mut self) {
        if self.missing > 0 || self.bytes != 0 {
            return;
        }
        (self.ended, self.missing) = (self.ended + 1, self.arrivals);
        let gathered = std::mem::take(&mut self.gathered);
        join(&mut self.released, &gathered);
        set(&mut self.released, self.part, self.ended);
    }
}
