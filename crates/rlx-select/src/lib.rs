//! Which device a graph runs on, and which variant of a step it uses: by policy, by cost and by measurement.
//!
//! - [`registry`]: the devices that have a backend in this process.
//! - [`device_ext`]: what each can do, by its own claims.
//! - [`device_policy`]: which may be used, which are preferred, and why one is not used.
//! - [`cost`]: the predicted time of a graph on each device, by prices that are measured once.
//! - [`tuning`]: variants of steps, chosen by measurement.
//! - [`DeviceBackend::with_cpu_fallback`]: a graph divided between a device and the CPU.
//! - [`verdicts`]: results of measuring a whole graph on several devices.
//!
//! What was measured is stored in the cache folder ([`store`]). Every call into a backend goes through [`panic_guard`].
//! Sessions and compiled graphs are the runtime's; what is measured here runs on the backend itself
//! ([`DeviceBackend`]).
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod cost;
mod device;
pub mod device_ext;
pub mod device_policy;
pub mod env;
mod machine;
pub mod panic_guard;
pub mod registry;
mod split;
pub mod store;
pub mod tuning;
pub mod verdicts;

pub use device::{Built, DeviceBackend};
pub use split::{Crossing, PricesOf, SplitPart, SplitPlan};

/// The value, or a panic with the error's text: what every panicking call is.
#[track_caller]
pub fn or_panic<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(e) => panic!("{e}"),
    }
}
