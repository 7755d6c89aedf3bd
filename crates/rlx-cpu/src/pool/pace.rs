//! Whether short runs follow each other so closely that helpers are worth waking for them.
//!
//! Waking a helper costs its caller some microseconds, more than one short run gains by it. But a helper that was woken spins for [`LINGER`] after
//! a run: where runs follow each other closely, as in a loop over small inputs, one waking serves all of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rlx_ir::clock::Instant;

use super::LINGER;

/// A run that begins this soon after the last one follows it closely: long before helpers park.
const SOON: Duration = Duration::from_micros(LINGER.as_micros() as u64 / 2);

/// So many runs that followed closely promise another one.
const PROMISE: u64 = 4;

/// When runs began and ended. Runs at the same time may lose each other's counts, which only changes when helpers are woken.
#[derive(Debug)]
pub(super) struct Pace {
    start: Instant,
    /// When the last run ended, in nanoseconds from `start`.
    ended: AtomicU64,
    /// How many runs in a row followed closely.
    close: AtomicU64,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace { start: Instant::now(), ended: AtomicU64::new(0), close: AtomicU64::new(0) }
    }

    /// A run begins: whether those before it followed each other closely, and it does, too. (Never in a model of threads, where time has no meaning.)
    pub(super) fn begin(&self) -> bool {
        !cfg!(loom) && self.begin_at(self.now())
    }

    /// A run ends.
    pub(super) fn end(&self) {
        if !cfg!(loom) {
            self.end_at(self.now());
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn begin_at(&self, now: u64) -> bool {
        let gap = now.saturating_sub(self.ended.load(Ordering::Relaxed));
        let close =
            if u128::from(gap) < SOON.as_nanos() { self.close.load(Ordering::Relaxed) + 1 } else { 0 };
        self.close.store(close, Ordering::Relaxed);
        close >= PROMISE
    }

    fn end_at(&self, now: u64) {
        self.ended.store(now, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_follow_closely_promise_more_until_one_is_late() {
        let pace = Pace::new();
        let mut now = 1_000_000_000;
        let mut run = |gap: Duration| {
            now += gap.as_nanos() as u64;
            let close = pace.begin_at(now);
            now += 30_000;
            pace.end_at(now);
            close
        };
        let (soon, late) = (Duration::from_micros(1), LINGER);
        for _ in 0..3 {
            assert!(!run(late));
            for _ in 1..PROMISE {
                assert!(!run(soon));
            }
            for _ in 0..9 {
                assert!(run(soon));
            }
        }
        assert!((0..20).all(|_| !run(SOON)));
    }
}
