//! A guard around the backend: the one place where a panic in a device's code becomes an error.
//!
//! A backend is external code: a driver's wrapper, a vendor's library, a test. Whatever it does, the caller
//! must be able to continue with the next device, so every call into a backend goes through this module. The state after a panic
//! is not trusted: an executable that panicked returns that error from then on and does not run again. (The CPU's
//! executables catch panics of their steps themselves, know the node, and keep working.) Names and expressions of dimensions that
//! a call creates and nothing holds are freed with it.

use rlx_driver::DeviceId;
use rlx_ir::dim::scoped;
use rlx_ir::panics::catch;
use rlx_ir::{Error, ErrorKind, Result};
/// Calls into the backend of `device`; `doing` completes "panicked while". Errors name the device.
///
/// # Errors
/// The call's own, or [`ErrorKind::Device`] with the panic's text.
pub fn call<T>(device: impl Into<DeviceId>, doing: &str, f: impl FnOnce() -> Result<T>) -> Result<T> {
    caught(device.into(), doing, f).unwrap_or_else(Err)
}

/// Drops what belongs to the backend of `device`; a panic in its destructor is reported and goes no further.
pub fn drop_quietly<T>(device: impl Into<DeviceId>, value: T) {
    let device = device.into();
    let free = || {
        drop(value);
        Ok(())
    };
    if let Err(e) = call(device, "freeing an executable", free) {
        tracing::warn!(%device, error = %e, "an executable did not free its memory");
    }
}

/// The error, naming the device if it does not yet.
pub fn on_device(error: Error, device: impl Into<DeviceId>) -> Error {
    // A cancellation does not depend on the device.
    if error.device().is_some() || error.kind() == ErrorKind::Cancelled {
        error
    } else {
        error.with_device(device.into().name())
    }
}

/// As [`call`], with the panic apart: the outer error is a panic, the inner one the call's own.
fn caught<T>(device: DeviceId, doing: &str, f: impl FnOnce() -> Result<T>) -> Result<Result<T>> {
    // What the call may have left half done is the executable's, which its `PanicGuard` takes out of use.
    let result = catch(|| scoped(f)).map_err(|text| {
        let message = format!("its backend panicked while {doing}: {text}");
        Error::new(ErrorKind::Device, message).with_device(device.name())
    })?;
    Ok(result.map_err(|e| on_device(e, device)))
}

/// The guard of one executable: remembers a panic.
#[derive(Debug, Clone)]
pub struct PanicGuard {
    device: DeviceId,
    panicked: Option<Error>,
}

impl PanicGuard {
    /// Of an executable on `device` that has not panicked.
    pub fn new(device: impl Into<DeviceId>) -> Self {
        PanicGuard { device: device.into(), panicked: None }
    }

    /// Calls into the executable.
    ///
    /// # Errors
    /// The call's own; the panic's text, now and at every later call.
    pub fn call<T>(&mut self, doing: &str, f: impl FnOnce() -> Result<T>) -> Result<T> {
        if let Some(earlier) = &self.panicked {
            return Err(earlier.clone().with_hint("compile again: this executable can no longer run"));
        }
        caught(self.device, doing, f).unwrap_or_else(|panic| {
            self.panicked = Some(panic.clone());
            Err(panic)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlx_driver::Device;

    #[test]
    fn a_panic_is_an_error_that_names_the_device_and_what_it_did() {
        let e = call::<()>(Device::Vulkan, "running", || panic!("slot {}", 7)).unwrap_err();
        assert_eq!((e.kind(), e.device()), (ErrorKind::Device, Some("Vulkan")));
        assert!(e.to_string().contains("while running: slot 7"), "{e}");
        assert_eq!(call(Device::Cpu, "running", || Ok(1)).unwrap(), 1);
    }

    #[test]
    fn an_executable_that_panicked_does_not_run_again() {
        let mut guard = PanicGuard::new(Device::Cpu);
        let plain = || Err::<(), _>(Error::new(ErrorKind::Value, "index 9"));
        assert_eq!(guard.call("running", plain).unwrap_err().kind(), ErrorKind::Value);
        assert!(guard.call("running", || Ok(())).is_ok());
        assert!(guard.call::<()>("running", || panic!("gone")).is_err());
        let e = guard.call("running", || Ok(())).unwrap_err();
        assert!(e.to_string().contains("gone") && e.to_string().contains("no longer run"), "{e}");
    }
}
