//! Fork and join over fixed ranges of tasks.
//!
//! A run enters the pool ([`Pool::enter`]) and gets a [`Run`]; each step then calls
//! [`Run::parallel_for`] with a number of tasks that depends on its shape only. Thread t of T takes the
//! contiguous range `[t·n/T, (t+1)·n/T)`; the caller is thread 0.
//!
//! * While a run is in progress its helpers spin, and for [`LINGER`] after it; then they park, and an
//!   idle process costs nothing.
//! * Waking parked helpers costs the caller microseconds, so a run says whether it is long enough
//!   ([`Wake`]). The caller never waits for a helper that has not started: it takes that range itself.
//! * A pool serves one run at a time. If it is busy (another thread's run, or a run within a task), the
//!   new run is done alone by its caller. Since tasks do not depend on who runs them, the bits are the same.
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

#[cfg(all(test, loom))]
mod model;
mod sync;

use std::fmt;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{OnceLock, PoisonError};
use std::time::{Duration, Instant};

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
    /// No: use helpers only if they still spin.
    No,
}

/// One job: a function over a range of tasks, with its environment.
#[derive(Clone, Copy)]
struct Job {
    call: unsafe fn(*const (), usize, Range<usize>),
    data: *const (),
    tasks: usize,
}

/// What a helper and the caller share about one thread's part of the current job.
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

/// A value on cache lines of its own.
#[repr(align(128))]
struct Padded<T>(T);

struct Shared {
    /// Number of the current job.
    epoch: Padded<AtomicU64>,
    /// Whether a run is in progress that wants helpers to spin.
    hot: Padded<AtomicBool>,
    stop: AtomicBool,
    /// Whether a run owns the pool.
    owned: AtomicBool,
    /// Written by the owner only, while no part of the previous job is unfinished.
    job: sync::Cell<Job>,
    slots: Box<[Slot]>,
}

// SAFETY: `job` is written before `epoch` is advanced (release) and read only by anyone who claimed a part of
// that epoch (after an acquire of it); the owner waits for all claimed parts before it writes again.
// What `data` points to is `Sync` and outlives the job for the same reason.
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
        self.shared.slots.len() + 1
    }

    /// Begins a run. If the pool is busy, the run's jobs are done by the caller alone.
    pub fn enter(&self, wake: Wake) -> Run<'_> {
        let s = &self.shared;
        let alone = s.slots.is_empty()
            || s.owned.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err();
        if alone {
            return Run { shared: None };
        }
        if wake == Wake::Yes {
            // Sequentially consistent against the helper's store of `parked` and load of `hot`.
            s.hot.0.store(true, Ordering::SeqCst);
            for (slot, thread) in s.slots.iter().zip(&self.threads) {
                if slot.parked.load(Ordering::SeqCst) {
                    thread.unpark();
                }
            }
        }
        Run { shared: Some(s) }
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
    shared: Option<&'p Shared>,
}

impl fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("threads", &self.threads()).finish()
    }
}

impl Run<'_> {
    /// A run of its caller alone.
    pub const fn alone() -> Run<'static> {
        Run { shared: None }
    }

    /// How many threads share a job.
    pub fn threads(&self) -> usize {
        self.shared.map_or(1, |s| s.slots.len() + 1)
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
        match self.shared {
            Some(shared) if tasks > 1 => {
                shared.fork_join(Job { call: call::<F>, data: std::ptr::from_ref(f).cast(), tasks });
            }
            _ if tasks > 0 => f(0, 0..tasks),
            _ => {}
        }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if let Some(s) = self.shared {
            s.hot.0.store(false, Ordering::Relaxed);
            s.owned.store(false, Ordering::Release);
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
        let slot = |_| Slot {
            claimed: AtomicU64::new(0),
            done: AtomicU64::new(0),
            parked: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
            panic: Mutex::new(None),
        };
        Shared {
            epoch: Padded(AtomicU64::new(0)),
            hot: Padded(AtomicBool::new(false)),
            stop: AtomicBool::new(false),
            owned: AtomicBool::new(false),
            job: sync::Cell::new(Job { call: |_, _, _| {}, data: std::ptr::null(), tasks: 0 }),
            slots: (1..threads).map(slot).collect(),
        }
    }

    /// The part of thread `t`.
    fn part(&self, tasks: usize, t: usize) -> Range<usize> {
        let n = self.slots.len() + 1;
        // In 128 bits, because an absurd number of tasks must not wrap into a wrong range.
        let at = |t: usize| (tasks as u128 * t as u128 / n as u128) as usize;
        at(t)..at(t + 1)
    }

    /// Called by the owner: publishes the job, does the caller's part and those no one took, waits.
    fn fork_join(&self, job: Job) {
        let epoch = self.epoch.0.load(Ordering::Relaxed) + 1;
        // SAFETY: this run owns the pool, and all parts of the previous job are finished.
        unsafe { self.job.write(job) };
        self.epoch.0.store(epoch, Ordering::Release);
        let mut panic = run_part(&job, 0, self.part(job.tasks, 0));
        for (i, slot) in self.slots.iter().enumerate() {
            if slot.try_claim(epoch) {
                slot.finish(epoch, run_part(&job, i + 1, self.part(job.tasks, i + 1)));
            }
        }
        // Nothing in this loop may unwind: parts that are not waited for still use the job's data.
        for slot in &self.slots {
            match slot.wait(epoch) {
                Some(another) if panic.is_some() => panics::discard(another),
                Some(first) => panic = Some(first),
                None => {}
            }
        }
        if let Some(p) = panic {
            resume_unwind(p);
        }
    }

    /// A helper's life.
    fn help(&self, index: usize) {
        let slot = &self.slots[index];
        let mut seen = 0;
        let mut last_use = Instant::now();
        let mut spins = 0u32;
        while !self.stop.load(Ordering::Relaxed) {
            let epoch = self.epoch.0.load(Ordering::Acquire);
            if epoch != seen {
                seen = epoch;
                if slot.try_claim(epoch) {
                    // SAFETY: the part is claimed, so the owner waits before it writes the job again.
                    let job = unsafe { self.job.read() };
                    slot.finish(epoch, run_part(&job, index + 1, self.part(job.tasks, index + 1)));
                }
                (spins, last_use) = (0, Instant::now());
                continue;
            }
            sync::look_again();
            spins = spins.wrapping_add(1);
            if spins.is_multiple_of(sync::LOOKS) {
                self.idle(slot, seen, &mut last_use);
            }
        }
    }

    /// Between jobs: gives way if others need the core, and parks when the run is over.
    fn idle(&self, slot: &Slot, seen: u64, last_use: &mut Instant) {
        let waited = last_use.elapsed();
        if waited < LINGER && !cfg!(loom) {
            return;
        }
        if self.hot.0.load(Ordering::Relaxed) {
            // A long serial stretch: stay ready, but let other threads of this core pass.
            sync::yield_now();
            return;
        }
        slot.parked.store(true, Ordering::SeqCst);
        while !self.hot.0.load(Ordering::SeqCst)
            && !self.stop.load(Ordering::SeqCst)
            && self.epoch.0.load(Ordering::Relaxed) == seen
        {
            sync::park();
        }
        slot.parked.store(false, Ordering::Relaxed);
        *last_use = Instant::now();
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

fn run_part(job: &Job, part: usize, range: Range<usize>) -> Option<Payload> {
    if range.is_empty() {
        return None;
    }
    // SAFETY: the job's data is alive until `fork_join` returns. A panic is handed to the caller, who sees
    // the same state as after a panic in a loop of its own.
    catch_unwind(AssertUnwindSafe(|| unsafe { (job.call)(job.data, part, range) })).err()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    fn counts(run: &mut Run<'_>, tasks: usize) {
        let seen: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
        run.parallel_for(tasks, &|range| {
            for i in range {
                seen[i].fetch_add(1, Ordering::Relaxed);
            }
        });
        assert!(seen.iter().all(|n| n.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn every_task_runs_once_for_any_number_of_threads_and_tasks() {
        for threads in [1, 2, 3, 5] {
            let pool = Pool::new(threads).unwrap();
            for wake in [Wake::Yes, Wake::No] {
                let mut run = pool.enter(wake);
                assert_eq!(run.threads(), threads);
                for tasks in (0..40).chain([1000]) {
                    counts(&mut run, tasks);
                }
            }
        }
    }

    #[test]
    fn parked_helpers_wake_and_a_long_series_of_runs_is_complete() {
        let pool = Pool::new(2).unwrap();
        for round in 0..200 {
            if round % 50 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
            let mut run = pool.enter(if round % 3 == 0 { Wake::No } else { Wake::Yes });
            for _ in 0..20 {
                counts(&mut run, 7);
            }
        }
    }

    #[test]
    fn helpers_do_take_part() {
        let pool = Pool::new(2).unwrap();
        let mut run = pool.enter(Wake::Yes);
        let caller = std::thread::current().id();
        let helped = AtomicBool::new(false);
        let deadline = Instant::now() + Duration::from_secs(20);
        while !helped.load(Ordering::Relaxed) {
            assert!(Instant::now() < deadline, "the helper never took its part");
            run.parallel_for(2, &|_| {
                if std::thread::current().id() == caller {
                    std::thread::sleep(Duration::from_millis(1));
                } else {
                    helped.store(true, Ordering::Relaxed);
                }
            });
        }
    }

    #[test]
    fn a_busy_pool_means_run_alone() {
        let pool = Pool::new(2).unwrap();
        let mut outer = pool.enter(Wake::Yes);
        outer.parallel_for(2, &|_| {
            let mut inner = pool.enter(Wake::Yes);
            assert_eq!(inner.threads(), 1);
            counts(&mut inner, 9);
        });
        drop(outer);
        assert_eq!(pool.enter(Wake::No).threads(), 2);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_survives() {
        let pool = Pool::new(2).unwrap();
        for bad in [0, 9] {
            let mut run = pool.enter(Wake::Yes);
            let caught = catch_unwind(AssertUnwindSafe(|| {
                run.parallel_for(10, &|range| assert!(!range.contains(&bad), "task {bad} failed"));
            }));
            let text = *caught.unwrap_err().downcast::<String>().unwrap();
            assert_eq!(text, format!("task {bad} failed"));
            counts(&mut run, 10);
        }
    }

    /// Panics when it is dropped.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a payload that panics when it is dropped");
        }
    }

    #[test]
    fn whatever_panics_carry_the_caller_waits_for_all_parts() {
        let pool = Pool::new(3).unwrap();
        for round in 0..100 {
            let ended = AtomicUsize::new(0);
            let mut run = pool.enter(Wake::Yes);
            let caught = catch_unwind(AssertUnwindSafe(|| {
                run.parallel_for_indexed(3, &|part, _| {
                    if part == 2 && round % 2 == 0 {
                        std::thread::sleep(Duration::from_micros(200));
                    }
                    ended.fetch_add(1, Ordering::SeqCst);
                    if part < 2 {
                        std::panic::panic_any(Bomb);
                    }
                });
            }));
            assert_eq!(ended.load(Ordering::SeqCst), 3, "round {round}");
            std::mem::forget(caught);
            counts(&mut run, 10);
        }
    }

    #[test]
    fn a_system_that_starts_no_more_threads_gives_fewer() {
        for (room, expected) in [(0, 1), (1, 1), (2, 2), (5, 3), (7, 8)] {
            // At most `room` helpers; those that end make room again.
            let few = |index, shared: &Arc<Shared>| {
                if index < room { start(index, shared) } else { Err(io::ErrorKind::WouldBlock.into()) }
            };
            let pool = Pool::started(8, &few);
            assert_eq!(pool.threads(), expected, "with room for {room} helpers");
            let mut run = pool.enter(Wake::Yes);
            for tasks in 0..20 {
                counts(&mut run, tasks);
            }
        }
    }

    #[test]
    fn bad_settings_are_errors() {
        for bad in ["0", "-1", "two", "4097", "1.5"] {
            assert_eq!(threads_from_setting(bad), Err(PoolError::BadThreads(bad.into())));
        }
        assert_eq!(threads_from_setting(" 3 "), Ok(3));
        assert!(Pool::new(0).is_err());
    }
}
