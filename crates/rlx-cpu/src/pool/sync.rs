//! What the pool is made of: the standard library's threads and atomics, or `loom`'s models of them.
//!
//! With `--cfg loom` the pool's own code runs on [loom](https://docs.rs/loom), which tries every order in which
//! threads may pass each other and every value that a relaxed load may see (suite `loom`; `pool/model.rs`).
//! Time has no meaning there: helpers give way at each look, and go to sleep as soon as they may.

#[cfg(loom)]
pub use loom::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
#[cfg(loom)]
pub use loom::thread::{Builder, JoinHandle, Thread, park, yield_now};
#[cfg(not(loom))]
pub use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};
#[cfg(not(loom))]
pub use std::thread::{Builder, JoinHandle, Thread, park, yield_now};

/// How often a helper looks for a job before it looks at the clock.
pub const LOOKS: u32 = if cfg!(loom) { 1 } else { 64 };

/// How often one looks for a helper's end before one gives way.
pub const PATIENCE: u32 = if cfg!(loom) { 0 } else { 4096 };

/// Between two looks at an atomic that another thread is to change.
#[inline]
pub fn look_again() {
    #[cfg(not(loom))]
    std::hint::spin_loop();
    #[cfg(loom)]
    yield_now();
}

/// A cell whose users keep apart by other means; `loom` checks that they do.
#[derive(Debug)]
pub struct Cell<T> {
    #[cfg(not(loom))]
    value: std::cell::UnsafeCell<T>,
    #[cfg(loom)]
    value: loom::cell::UnsafeCell<T>,
}

impl<T: Copy> Cell<T> {
    pub fn new(value: T) -> Self {
        #[cfg(not(loom))]
        return Cell { value: std::cell::UnsafeCell::new(value) };
        #[cfg(loom)]
        return Cell { value: loom::cell::UnsafeCell::new(value) };
    }

    /// # Safety
    /// No one writes meanwhile.
    pub unsafe fn read(&self) -> T {
        #[cfg(not(loom))]
        // SAFETY: the caller keeps writers away.
        return unsafe { *self.value.get() };
        #[cfg(loom)]
        // SAFETY: the caller keeps writers away, which the model checks.
        return self.value.with(|p| unsafe { *p });
    }

    /// # Safety
    /// No one reads or writes meanwhile.
    pub unsafe fn write(&self, value: T) {
        #[cfg(not(loom))]
        // SAFETY: the caller keeps all others away.
        return unsafe { *self.value.get() = value };
        #[cfg(loom)]
        // SAFETY: the caller keeps all others away, which the model checks.
        return self.value.with_mut(|p| unsafe { *p = value });
    }
}
