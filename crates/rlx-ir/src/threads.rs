//! Work that several threads share, and that one alone can do.

use std::thread;

/// Calls `work` on up to `threads` threads at once, the calling one included, and returns when all calls have. Where the
/// system starts no more threads (a limit on processes or on memory), there are fewer calls: each takes what is left
/// from a common place, such as an atomic counter, until there is nothing.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// let (next, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
/// rlx_ir::threads::share(4, || {
///     while let Some(i) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&i| i < 100) {
///         sum.fetch_add(i, Ordering::Relaxed);
///     }
/// });
/// assert_eq!(sum.into_inner(), 4950);
/// ```
///
/// # Panics
/// When a call does, after all have ended.
pub fn share(threads: usize, work: impl Fn() + Sync) {
    thread::scope(|scope| {
        for _ in 1..threads {
            if thread::Builder::new().spawn_scoped(scope, &work).is_err() {
                break;
            }
        }
        work();
    });
}
