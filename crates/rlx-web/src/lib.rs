//! RLX in pages and in Node: the WebAssembly module behind the npm package `rlx-web`.
//!
//! The package (`npm/index.js`) is what users call; it fetches, caches and checks, and knows about `AbortSignal`. This crate is what
//! it calls: plain objects in and out, nothing that a person would want to write. On other targets it is empty.
//!
//! | module of `page` | what it is |
//! |---|---|
//! | `model` | a model on a device: loaded, moved to another device, run |
//! | `tensors` | tensors from and to JavaScript's objects |
//! | `devices` | what there is to run on |
//! | `errors` | errors as objects; panics |
//!
//! A page has one thread, which nothing may block: devices are opened and runs are awaited. What else a page lacks is dealt with
//! where it is declared: the clock (`rlx_ir::clock`), maps of memory (`rlx_cpu::alloc`), waiting for a GPU (`rlx_wgpu`), threads (the
//! CPU's pool has one), files (calls that need them report an error).
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
mod page;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub use page::*;
