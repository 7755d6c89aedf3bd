//! Runs within a run: a step that runs a program of its own lends it the helpers of its run.
//!
//! The inner run enters the pool on the same thread, as every run does. Instead of a share of its own it takes what was lent there, and when
//! it ends, the helpers are back with the run that lent them: a body has the threads that a step has, and no more.

use std::cell::RefCell;
use std::ops::Range;

use super::{Pool, Run};

/// The helpers that a run on this thread lent to the next one that begins there.
#[derive(Debug)]
struct Lent {
    /// The address of their pool, which is there as long as they are lent.
    pool: usize,
    /// Nothing while a run has them.
    held: Option<Range<usize>>,
}

impl Lent {
    fn is_of(&self, pool: &Pool) -> bool {
        self.pool == std::ptr::from_ref(pool).addr()
    }
}

thread_local! {
    static LENT: RefCell<Option<Lent>> = const { RefCell::new(None) };
}

/// The helpers of this pool that were lent to this thread, which the caller has from now on.
pub(super) fn take(pool: &Pool) -> Option<Range<usize>> {
    LENT.with_borrow_mut(|lent| lent.as_mut().filter(|lent| lent.is_of(pool))?.held.take())
}

/// Gives back what [`take`] gave, or what became of it; `false` where the loan is over, since a run may outlive it.
pub(super) fn put_back(pool: &Pool, held: Range<usize>) -> bool {
    LENT.with_borrow_mut(|lent| match lent {
        Some(lent) if lent.is_of(pool) && lent.held.is_none() => {
            lent.held = Some(held);
            true
        }
        _ => false,
    })
}

/// Ends a loan, also where what it was for panics.
struct Loan<'r, 'p> {
    run: &'r mut Run<'p>,
    /// What was lent on this thread before.
    before: Option<Lent>,
}

impl Drop for Loan<'_, '_> {
    fn drop(&mut self) {
        let lent = LENT.replace(self.before.take());
        self.run.held = lent.and_then(|lent| lent.held).unwrap_or(0..0);
    }
}

impl Run<'_> {
    /// Calls `f`. The first run of the same pool that it begins on this thread, and the next one when that has ended, has the helpers of
    /// this one, whatever else is going on.
    ///
    /// ```
    /// use rlx_cpu::pool::{Pool, Wake};
    /// let pool = Pool::new(2).unwrap();
    /// let mut run = pool.enter(Wake::Yes);
    /// assert_eq!(pool.enter(Wake::Yes).threads(), 1);
    /// assert_eq!(run.lend(|| pool.enter(Wake::Yes).threads()), 2);
    /// ```
    pub fn lend<T>(&mut self, f: impl FnOnce() -> T) -> T {
        let Some(pool) = self.pool else { return f() };
        let held = std::mem::replace(&mut self.held, 0..0);
        let lent = Lent { pool: std::ptr::from_ref(pool).addr(), held: Some(held) };
        let _loan = Loan { before: LENT.replace(Some(lent)), run: self };
        f()
    }
}
