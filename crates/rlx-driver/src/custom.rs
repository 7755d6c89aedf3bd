//! Devices from outside, known by names of their own.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{PoisonError, RwLock};

use crate::Device;

/// Names may be in file names, so they are short.
const MAX_LENGTH: usize = 32;

/// The names that were declared. They live as long as the process: a program declares its devices, and no input does.
static DECLARED: RwLock<BTreeSet<&'static str>> = RwLock::new(BTreeSet::new());

/// A device that RLX does not know itself: a vendor's, a test's. It has a name of lower-case letters, digits and `-`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CustomDevice(&'static str);

impl CustomDevice {
    /// The device with this name, which `"name".parse::<Device>()` understands from now on. Declaring it again gives the
    /// same device.
    ///
    /// # Errors
    /// [`DeviceNameError`] for a name that is not made of lower-case letters, digits and inner `-`, is longer than 32
    /// characters, or is a spelling of a device that RLX knows.
    pub fn declare(name: &str) -> Result<Self, DeviceNameError> {
        let error = |reason| Err(DeviceNameError { given: name.to_string(), reason });
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !name.chars().all(allowed) || name.starts_with('-') || name.ends_with('-') {
            return error("use lower-case letters, digits, and - between them");
        }
        if name.is_empty() || name.len() > MAX_LENGTH {
            return error("use 1 to 32 characters");
        }
        if Device::with_spelling(name).is_some() {
            return error("it is a device of RLX's own");
        }
        let mut declared = DECLARED.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = declared.get(name) {
            return Ok(CustomDevice(known));
        }
        let name: &'static str = Box::leak(name.into());
        declared.insert(name);
        Ok(CustomDevice(name))
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

impl fmt::Debug for CustomDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The device that was declared as `name`.
pub(crate) fn find(name: &str) -> Option<CustomDevice> {
    let declared = DECLARED.read().unwrap_or_else(PoisonError::into_inner);
    declared.get(name).map(|known| CustomDevice(known))
}

/// Every device that was declared, by name.
pub(crate) fn declared() -> Vec<CustomDevice> {
    let declared = DECLARED.read().unwrap_or_else(PoisonError::into_inner);
    declared.iter().map(|name| CustomDevice(name)).collect()
}

/// A name that no device from outside can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceNameError {
    /// What was given.
    pub given: String,
    reason: &'static str,
}

impl fmt::Display for DeviceNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" cannot be a device's name: {}", self.given, self.reason)
    }
}

impl std::error::Error for DeviceNameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declared_device_is_known_by_its_name() {
        let device = Device::declare("quantum-9").unwrap();
        assert_eq!(Device::declare("quantum-9"), Ok(device));
        assert_eq!(" Quantum_9".parse(), Ok(device));
        assert_eq!((device.name(), device.feature()), ("quantum-9", "quantum-9"));
        assert_eq!(device.to_string(), "quantum-9");
        assert!(Device::known().contains(&device) && !Device::all().contains(&device));
        let message = "quantum-10".parse::<Device>().unwrap_err().to_string();
        assert!(message.contains("quantum-9"), "{message}");
    }

    #[test]
    fn names_that_are_not_allowed_are_errors() {
        let long = "a".repeat(33);
        for name in [
            "",
            "Acme",
            "acme chip",
            "acme_chip",
            "-acme",
            "acme-",
            "café",
            "../acme",
            "cuda",
            "vk",
            "dx12",
            &long,
        ] {
            let error = Device::declare(name).unwrap_err();
            assert_eq!(error.given, name);
            assert!(error.to_string().contains("cannot be a device's name"), "{error}");
        }
    }
}
