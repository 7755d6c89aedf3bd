//! Bytes of device memory in use, and how many there may be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the bytes that allocations take, against a limit.
///
/// ```
/// use rlx_backend::budget::Budget;
/// let budget = Budget::new(Some(100));
/// let first = budget.reserve(60).expect("60 of 100");
/// assert!(budget.reserve(60).is_none() && budget.used() == 60);
/// drop(first);
/// assert!(budget.used() == 0 && budget.reserve(u64::MAX).is_none());
/// ```
#[derive(Debug, Default)]
pub struct Budget {
    used: Arc<AtomicU64>,
    most: Option<u64>,
}

/// Bytes that count as used while this exists.
#[derive(Debug)]
pub struct Reserved {
    bytes: u64,
    used: Arc<AtomicU64>,
}

impl Budget {
    /// At most `most` bytes at a time, or any number.
    pub fn new(most: Option<u64>) -> Self {
        Budget { used: Arc::default(), most }
    }

    /// Counts `bytes` as used until the guard is dropped; `None` where that is more than the limit.
    pub fn reserve(&self, bytes: u64) -> Option<Reserved> {
        let most = self.most.unwrap_or(u64::MAX);
        let sum = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= most);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).ok()?;
        Some(Reserved { bytes, used: Arc::clone(&self.used) })
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
