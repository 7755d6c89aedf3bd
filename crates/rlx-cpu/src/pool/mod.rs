//! Fork and join over fixed ranges of tasks.
//!
//! A run enters the pool ([`Pool::enter`]) and gets a [`Run`]; each step then calls
//! [`Run::parallel_for`] with a number of tasks that depends on its shape only. Thread t of T takes the
//! contiguous range `[t·n/T, (t+1)·n/T)`; the caller is thread 0.
//!
//! * While a run is in progress its helpers spin, and for [`LINGER`] after it; then they park, and an
//!   idle process costs nothing.
//! * Waking parked helpers costs the caller microseconds, so a run says whether it is long enough
//!   ([`Wake`]); short ones wake them only where they follow each other closely (`pace`). The caller never waits for a helper that has not started: it takes that range itself.
//! * Runs at the same time divide the pool: with r of them each has T/r threads, its caller counted. A run that began when
//!   there were fewer gives helpers back, and one that ended leaves them to the others, whenever a run says that it
//!   is between two steps ([`Run::rebalance`]). Where no helper is free, as for a run within a task, the caller works
//!   alone; a step that runs a program of its own lends it its helpers ([`Run::lend`]). Since tasks do not depend on who runs them, the bits are the same.
//! * `parallel_for` allocates nothing. A panic in a task reaches the caller after all tasks have ended,
//!   and the pool stays usable; of several panics, the one with the lowest number of a part.
//! * A system that starts no more threads (a limit on processes or on memory) means fewer of them, not an error: which
//!   thread does a part changes no bit.
//!
//! That no order of steps loses a task or a wake-up, or lets two threads at one value, is checked by `loom` (suite `loom`).
//!
//! ```
//! use std::sync::atomic::{AtomicUsize, Ordering};
//! use rlx_cpu::pool::{Pool, Wake};
//! let pool = Pool::new(2).unwrap();
//! let sum = AtomicUsize::new(0);
//! let mut run = pool.enter(Wake::Yes);
//! run.parallel_for(10, &|range| { sum.fetch_add(range.sum::<usize>(), Ordering::Relaxed); });
//! assert_eq!(sum.into_inner(), 45);
//! ```

mod lent;
#[cfg(all(test, loom))]
mod model;
mod pace;
mod sync;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{OnceLock, PoisonError};
use std::time::Duration;

use pace::Pace;
use rlx_ir::clock::Instant;
use rlx_ir::panics::{self, Payload};
use sync::{Arc, AtomicBool, AtomicU64, JoinHandle, Mutex, Ordering, Thread};

/// The environment variable that sets the number of threads of the shared pool.
pub const THREADS_VAR: &str = "RLX_NUM_THREADS";

/// How long helpers spin after a run before they park.
pub const LINGER: Duration = Duration::from_micros(100);

/// More threads than this are taken for a mistake.
const MAX_THREADS: usize = 4096;

/// Why there is no pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PoolError {
    /// The number of threads is not between 1 and 4096.
    BadThreads(String),
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolError::BadThreads(s) => {
                write!(f, "{s:?} is no number of threads ({THREADS_VAR}); use 1 to {MAX_THREADS}")
            }
        }
    }
}

impl std::error::Error for PoolError {}

/// Whether a run is worth waking parked helpers for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Yes: it takes more than about 150 µs on one core.
    Yes,
    /// Only if short runs follow each other closely; otherwise use helpers that still spin.
    IfFrequent,
}

/// One thread's part of a job: a function over a range of tasks, with its environment.
#[derive(Clone, Copy)]
struct Job {
    call: unsafe fn(*const (), usize, Range<usize>),
    data: *const (),
    tasks: usize,
    /// Which part, of how many.
    part: usize,
    parts: usize,
}

/// What a helper and the caller share about the helper's part of the current job.
#[repr(align(128))]
struct Slot {
    /// The last job whose part someone took; anyone who changes it runs the part.
    claimed: AtomicU64,
    /// The last job whose part is finished.
    done: AtomicU64,
    /// Whether the helper sleeps, or is about to.
    parked: AtomicBool,
    /// Whether `panic` holds something; published by `done`.
    panicked: AtomicBool,
    /// What a task panicked with.
    panic: Mutex<Option<Payload>>,
}

/// What a run tells one helper.
#[repr(align(128))]
struct Mail {
    /// Number of the helper's current job.
    epoch: AtomicU64,
    /// Whether a run is in progress that wants the helper to spin.
    hot: AtomicBool,
    /// Whether a run owns the helper.
    owned: AtomicBool,
    /// Written by the owner only, while the helper's part of the previous job is finished.
    job: sync::Cell<Job>,
}

/// A helper, as it and the run that owns it see it.
struct Helper {
    mail: Mail,
    slot: Slot,
}

struct Shared {
    stop: AtomicBool,
    /// How many runs are in progress.
    runs: AtomicU64,
    /// Counts whatever may let a run have other helpers: runs that begin or end, helpers that are given back.
    changes: AtomicU64,
    pace: Pace,
    helpers: Box<[Helper]>,
}

// SAFETY: a `job` is written before its `epoch` is advanced (release) and read only by anyone who claimed that
// epoch (after an acquire of it); the owner waits for all claimed parts before it writes again, or gives the helper
// back (release), which the next owner acquires. What `data` points to is `Sync` and outlives the job for the same reason.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

/// A number of threads that run parts of a job together; dropping it ends and joins them.
pub struct Pool {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    threads: Vec<Thread>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

/// Starts the helper of this number.
type StartHelper<'a> = &'a dyn Fn(usize, &Arc<Shared>) -> io::Result<JoinHandle<()>>;

impl Pool {
    /// A pool of this many threads, the caller of a run counted; of fewer where the system starts no more.
    ///
    /// # Errors
    /// [`PoolError`] if the number is out of range.
    pub fn new(threads: usize) -> Result<Pool, PoolError> {
        if !(1..=MAX_THREADS).contains(&threads) {
            return Err(PoolError::BadThreads(threads.to_string()));
        }
        Ok(Self::started(threads, &start))
    }

    /// A pool of at most this many threads, each but the first from `start`.
    fn started(threads: usize, start: StartHelper<'_>) -> Pool {
        let mut wanted = threads;
        loop {
            match Self::try_started(wanted, start) {
                Ok(pool) => return pool,
                Err((helpers, error)) => {
                    // Half of what there is room for, so that others find some, too.
                    wanted = 1 + helpers / 2;
                    tracing::warn!(threads, using = wanted, %error, "the system starts no more threads");
                }
            }
        }
    }

    /// A pool of exactly this many threads, or how many helpers could be started (they have ended by then), and why
    /// not one more.
    fn try_started(threads: usize, start: StartHelper<'_>) -> Result<Pool, (usize, io::Error)> {
        let shared = Arc::new(Shared::new(threads));
        let mut pool = Pool { shared, helpers: Vec::new(), threads: Vec::new() };
        for index in 0..threads - 1 {
            let helper = start(index, &pool.shared).map_err(|e| (index, e))?;
            pool.threads.push(helper.thread().clone());
            pool.helpers.push(helper);
        }
        Ok(pool)
    }

    /// The process's pool, of [`threads_from_env`] threads; started on first use.
    ///
    /// # Errors
    /// [`PoolError`] if `RLX_NUM_THREADS` is no number of threads.
    pub fn global() -> Result<&'static Pool, PoolError> {
        static POOL: OnceLock<Result<Pool, PoolError>> = OnceLock::new();
        POOL.get_or_init(|| Pool::new(threads_from_env()?)).as_ref().map_err(PoolError::clone)
    }

    /// How many threads it has, the caller of a run counted.
    pub fn threads(&self) -> usize {
        self.shared.helpers.len() + 1
    }

    /// Begins a run, with its share of the helpers that are free.
    pub fn enter(&self, wake: Wake) -> Run<'_> {
        let s = &self.shared;
        if s.helpers.is_empty() {
            return Run::alone();
        }
        if let Some(held) = lent::take(self) {
            if wake == Wake::Yes {
                held.clone().for_each(|helper| self.wake(helper));
            }
            let seen = s.changes.load(Ordering::Relaxed);
            return Run { pool: Some(self), held, wake, seen, is_loan: true };
        }
        let wake = if wake == Wake::IfFrequent && s.pace.begin() { Wake::Yes } else { wake };
        s.runs.fetch_add(1, Ordering::AcqRel);
        let seen = s.changes.fetch_add(1, Ordering::AcqRel);
        let mut run = Run { pool: Some(self), held: 0..0, wake, seen, is_loan: false };
        run.take_share();
        run
    }
}

impl Pool {
    /// Has a helper that the caller owns spin.
    fn wake(&self, helper: usize) {
        let of = &self.shared.helpers[helper];
        // Sequentially consistent against the helper's store of `parked` and load of `hot`.
        of.mail.hot.store(true, Ordering::SeqCst);
        if of.slot.parked.load(Ordering::SeqCst) {
            self.threads[helper].unpark();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for helper in self.helpers.drain(..) {
            helper.thread().unpark();
            // A helper catches the panics of tasks, so it cannot have panicked itself.
            let _ = helper.join();
        }
    }
}

/// What `RLX_NUM_THREADS` says, or as many threads as the process may use.
///
/// # Errors
/// [`PoolError::BadThreads`] if the variable is set to anything but 1 to 4096.
pub fn threads_from_env() -> Result<usize, PoolError> {
    match std::env::var_os(THREADS_VAR) {
        Some(v) if !v.is_empty() => threads_from_setting(&v.to_string_lossy()),
        _ => Ok(std::thread::available_parallelism().map_or(1, |n| n.get().min(MAX_THREADS))),
    }
}

/// The number of threads this text asks for.
///
/// # Errors
/// [`PoolError::BadThreads`] if it is anything but 1 to 4096.
pub fn threads_from_setting(text: &str) -> Result<usize, PoolError> {
    let n = text.trim().parse().ok().filter(|n| (1..=MAX_THREADS).contains(n));
    n.ok_or_else(|| PoolError::BadThreads(text.to_owned()))
}

/// A run in progress; its helpers spin until it is dropped.
pub struct Run<'p> {
    /// None if the run is done alone.
    pool: Option<&'p Pool>,
    /// The helpers that it owns.
    held: Range<usize>,
    wake: Wake,
    /// The changes that it knows of.
    seen: u64,
    /// Whether its helpers are another run's, which lent them.
    is_loan: bool,
}

impl fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("threads", &self.threads()).finish()
    }
}

impl Run<'_> {
    /// A run of its caller alone.
    pub const fn alone() -> Run<'static> {
        Run { pool: None, held: 0..0, wake: Wake::IfFrequent, seen: 0, is_loan: false }
    }

    /// How many threads share a job. It changes in [`rebalance`](Self::rebalance) alone.
    #[inline]
    pub fn threads(&self) -> usize {
        self.held.len() + 1
    }

    /// Between two jobs: gives helpers to runs that began meanwhile, or takes those that others gave back.
    #[inline]
    pub fn rebalance(&mut self) {
        if let Some(pool) = self.pool
            && pool.shared.changes.load(Ordering::Relaxed) != self.seen
        {
            self.take_share();
        }
    }

    #[cold]
    fn take_share(&mut self) {
        let Some(pool) = self.pool else { return };
        let s = &*pool.shared;
        self.seen = s.changes.load(Ordering::Acquire);
        let runs = s.runs.load(Ordering::Acquire).max(1);
        let share = (pool.threads() / usize::try_from(runs).unwrap_or(usize::MAX)).saturating_sub(1);
        if self.held.len() > share {
            self.give_back(self.held.start + share);
            return;
        }
        if self.held.is_empty() && share > 0 {
            let start = s.free_stretch(share);
            self.held = start..start;
        }
        while self.held.len() < share && s.helpers.get(self.held.end).is_some_and(Helper::try_own) {
            if self.wake == Wake::Yes {
                pool.wake(self.held.end);
            }
            self.held.end += 1;
        }
        while self.held.len() < share
            && self.held.start.checked_sub(1).is_some_and(|below| s.helpers[below].try_own())
        {
            self.held.start -= 1;
            if self.wake == Wake::Yes {
                pool.wake(self.held.start);
            }
        }
    }

    /// Gives the helpers from number `from` on back.
    fn give_back(&mut self, from: usize) {
        let Some(pool) = self.pool.filter(|_| from < self.held.end) else { return };
        for helper in &pool.shared.helpers[from..self.held.end] {
            helper.mail.hot.store(false, Ordering::Relaxed);
            helper.mail.owned.store(false, Ordering::Release);
        }
        self.held.end = from;
        pool.shared.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Runs `f` over the tasks `0..tasks`, in contiguous ranges, and returns when all are done.
    ///
    /// # Panics
    /// With the panic of a task, if one panicked, after all others have ended.
    #[inline]
    pub fn parallel_for<F: Fn(Range<usize>) + Sync>(&mut self, tasks: usize, f: &F) {
        self.parallel_for_indexed(tasks, &|_, range| f(range));
    }

    /// [`parallel_for`](Self::parallel_for) with the number of the part, below [`threads`](Self::threads): no
    /// two calls with the same number run at once, so it can choose scratch memory.
    ///
    /// # Panics
    /// With the panic of a task, if one panicked, after all others have ended.
    #[inline]
    pub fn parallel_for_indexed<F: Fn(usize, Range<usize>) + Sync>(&mut self, tasks: usize, f: &F) {
        unsafe fn call<F: Fn(usize, Range<usize>)>(data: *const (), part: usize, range: Range<usize>) {
            // SAFETY: `data` is the `&F` below, which outlives the job.
            unsafe { (*data.cast::<F>())(part, range) }
        }
        match self.pool {
            Some(pool) if tasks > 1 && !self.held.is_empty() => {
                let (data, parts) = (std::ptr::from_ref(f).cast(), self.threads());
                let job = Job { call: call::<F>, data, tasks, part: 0, parts };
                fork_join(&pool.shared.helpers[self.held.clone()], job);
            }
            _ if tasks > 0 => f(0, 0..tasks),
            _ => {}
        }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if let Some(pool) = self.pool {
            if self.is_loan && lent::put_back(pool, self.held.clone()) {
                return;
            }
            self.give_back(self.held.start);
            if !self.is_loan {
                pool.shared.pace.end();
                pool.shared.runs.fetch_sub(1, Ordering::AcqRel);
                pool.shared.changes.fetch_add(1, Ordering::AcqRel);
            }
        }
    }
}

/// Starts helper `index`.
fn start(index: usize, shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    sync::Builder::new().name(format!("rlx-{}", index + 1)).spawn(move || shared.help(index))
}

impl Shared {
    fn new(threads: usize) -> Shared {
        Shared {
            stop: AtomicBool::new(false),
            runs: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            pace: Pace::new(),
            helpers: (1..threads).map(|_| Helper::new()).collect(),
        }
    }

    /// Where `wanted` free helpers begin that are next to each other, or as many as there are.
    fn free_stretch(&self, wanted: usize) -> usize {
        let (mut best, mut at) = (0..0, 0);
        while at < self.helpers.len() && best.len() < wanted {
            let free =
                self.helpers[at..].iter().take_while(|h| !h.mail.owned.load(Ordering::Relaxed)).count();
            if free > best.len() {
                best = at..at + free;
            }
            at += free + 1;
        }
        best.start
    }

    /// A helper's life.
    fn help(&self, index: usize) {
        let Helper { mail, slot } = &self.helpers[index];
        let mut seen = 0;
        let mut last_use = Instant::now();
        let mut spins = 0u32;
        while !self.stop.load(Ordering::Relaxed) {
            let epoch = mail.epoch.load(Ordering::Acquire);
            if epoch != seen {
                seen = epoch;
                if slot.try_claim(epoch) {
                    // SAFETY: the part is claimed, so the owner waits before it writes the job again.
                    let job = unsafe { mail.job.read() };
                    slot.finish(epoch, run_part(&job));
                }
                (spins, last_use) = (0, Instant::now());
                continue;
            }
            sync::look_again();
            spins = spins.wrapping_add(1);
            if spins.is_multiple_of(sync::LOOKS) {
                self.idle(&self.helpers[index], seen, &mut last_use);
            }
        }
    }

    /// Between jobs: gives way if others need the core, and parks when the run is over.
    fn idle(&self, Helper { mail, slot }: &Helper, seen: u64, last_use: &mut Instant) {
        let waited = last_use.elapsed();
        if waited < LINGER && !cfg!(loom) {
            return;
        }
        if mail.hot.load(Ordering::Relaxed) {
            // A long serial stretch: stay ready, but let other threads of this core pass.
            sync::yield_now();
            return;
        }
        slot.parked.store(true, Ordering::SeqCst);
        while !mail.hot.load(Ordering::SeqCst)
            && !self.stop.load(Ordering::SeqCst)
            && mail.epoch.load(Ordering::Relaxed) == seen
        {
            sync::park();
        }
        slot.parked.store(false, Ordering::Relaxed);
        *last_use = Instant::now();
    }
}

impl Helper {
    fn new() -> Helper {
        let none = Job { call: |_, _, _| {}, data: std::ptr::null(), tasks: 0, part: 0, parts: 1 };
        Helper {
            mail: Mail {
                epoch: AtomicU64::new(0),
                hot: AtomicBool::new(false),
                owned: AtomicBool::new(false),
                job: sync::Cell::new(none),
            },
            slot: Slot {
                claimed: AtomicU64::new(0),
                done: AtomicU64::new(0),
                parked: AtomicBool::new(false),
                panicked: AtomicBool::new(false),
                panic: Mutex::new(None),
            },
        }
    }

    /// Makes it the caller's, if it is no other run's.
    fn try_own(&self) -> bool {
        self.mail.owned.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// Called by the run that owns the helpers: gives each its part, does the caller's part and those no one took, waits.
fn fork_join(helpers: &[Helper], job: Job) {
    let part = |i: usize| Job { part: i + 1, ..job };
    // Only the owner advances an epoch.
    let epoch = |helper: &Helper| helper.mail.epoch.load(Ordering::Relaxed);
    for (i, helper) in helpers.iter().enumerate() {
        // SAFETY: this run owns the helper, and its part of the previous job is finished.
        unsafe { helper.mail.job.write(part(i)) };
        helper.mail.epoch.store(epoch(helper) + 1, Ordering::Release);
    }
    let mut panic = run_part(&job);
    for (i, helper) in helpers.iter().enumerate() {
        if helper.slot.try_claim(epoch(helper)) {
            helper.slot.finish(epoch(helper), run_part(&part(i)));
        }
    }
    // Nothing in this loop may unwind: parts that are not waited for still use the job's data.
    for helper in helpers {
        match helper.slot.wait(epoch(helper)) {
            Some(another) if panic.is_some() => panics::discard(another),
            Some(first) => panic = Some(first),
            None => {}
        }
    }
    if let Some(p) = panic {
        resume_unwind(p);
    }
}

impl Slot {
    /// Takes this part of job `epoch`, if no one has.
    fn try_claim(&self, epoch: u64) -> bool {
        self.claimed.compare_exchange(epoch - 1, epoch, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Waits until this part of job `epoch` is finished.
    fn wait(&self, epoch: u64) -> Option<Payload> {
        let mut spins = 0u32;
        while self.done.load(Ordering::Acquire) != epoch {
            sync::look_again();
            spins += 1;
            // The helper may need this very core.
            if spins > sync::PATIENCE {
                sync::yield_now();
            }
        }
        if self.panicked.load(Ordering::Relaxed) {
            self.panicked.store(false, Ordering::Relaxed);
            return self.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        None
    }

    fn finish(&self, epoch: u64, panic: Option<Payload>) {
        if panic.is_some() {
            *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = panic;
            self.panicked.store(true, Ordering::Relaxed);
        }
        self.done.store(epoch, Ordering::Release);
    }
}

fn run_part(job: &Job) -> Option<Payload> {
    // In 128 bits, because an absurd number of tasks must not wrap into a wrong range.
    let at = |t: usize| (job.tasks as u128 * t as u128 / job.parts as u128) as usize;
    let range = at(job.part)..at(job.part + 1);
    if range.is_empty() {
        return None;
    }
    // SAFETY: the job's data is alive until `fork_join` returns. A panic is handed to the caller, who sees
    // the same state as after a panic in a loop of its own.
    catch_unwind(AssertUnwindSafe(|| unsafe { (job.call)(job.data, job.part, range) })).err()
}
