//! Panics of code that is not ours (kernels' bugs, custom ops, callbacks) as texts, so that they can be reported as errors.
//!
//! What a panic carries is foreign, too: its destructor may panic again. Anyone who catches one therefore gets its text, and
//! what it carried is dropped by [`discard`], which never unwinds.
//!
//! ```
//! use rlx_ir::panics::catch;
//! assert_eq!(catch(|| 1), Ok(1));
//! assert_eq!(catch::<()>(|| panic!("slot {}", 7)), Err("slot 7".to_owned()));
//! ```

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a panic carries.
pub type Payload = Box<dyn Any + Send>;

/// Calls `f`; a panic in it gives its text. The caller answers for what `f` may have left half done.
///
/// # Errors
/// The panic's text.
#[inline]
pub fn catch<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(into_text)
}

/// The text of a panic, whose payload is dropped.
#[cold]
pub fn into_text(payload: Payload) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("(no text)").to_owned();
    discard(payload);
    text
}

/// Drops what a panic carried. A destructor that panics goes no further, and what that panic carried is leaked.
#[cold]
pub fn discard(payload: Payload) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics when it is dropped, and carries another of its kind then.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::panic_any(Bomb);
        }
    }

    #[test]
    fn a_payload_that_panics_again_and_again_goes_no_further() {
        assert_eq!(catch(|| std::panic::panic_any(Bomb)), Err("(no text)".to_owned()));
    }
}
