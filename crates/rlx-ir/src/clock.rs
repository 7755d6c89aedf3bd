//! The clock that all crates read: the standard library's, and in a page the page's, since WebAssembly itself has none
//! (`std::time::Instant::now` panics there).
//!
//! ```
//! use rlx_ir::clock::Instant;
//! let start = Instant::now();
//! assert!(Instant::now() >= start);
//! ```

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
pub use std::time::Instant;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub use web_time::Instant;
