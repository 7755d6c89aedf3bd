//! [`DeviceId`]: a device by name, whether it is one of the list or a plug-in's own.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::{PoisonError, RwLock};

use crate::{Device, ParseDeviceError};

/// The names of devices outside of the list. They live as long as the process: there are as many as plug-ins register.
static OWN: RwLock<BTreeSet<&'static str>> = RwLock::new(BTreeSet::new());

/// The most letters that a device's own name has.
const LONGEST: usize = 32;

/// A device by name: one of [`Device`]'s list, or one that a plug-in brings under a name of its own.
///
/// Registries, chains, errors, artefacts and caches know devices by it, so that a plug-in need not pass for another device.
///
/// ```
/// use rlx_driver::{Device, DeviceId};
/// let npu = DeviceId::own("npu-x")?;
/// assert_eq!((npu.name(), npu.known()), ("npu-x", None));
/// assert_eq!("NPU-X".parse(), Ok(npu));
/// assert_eq!("nvidia".parse(), Ok(DeviceId::from(Device::Cuda)));
/// assert!(npu != Device::Cpu && DeviceId::own("cuda").is_err(), "names of the list stay the list's");
/// # Ok::<(), rlx_driver::OwnNameError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(Which);

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Which {
    Known(Device),
    Own(&'static str),
}

impl DeviceId {
    /// The device of this name, which is not one of the list. The same name gives the same device.
    ///
    /// # Errors
    /// A name that is no lower-case letter followed by at most 31 lower-case letters, digits and `-`, or that means a device of the
    /// list.
    pub fn own(name: &str) -> Result<Self, OwnNameError> {
        let rest_fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let fits = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.len() <= LONGEST
            && name.chars().all(rest_fits);
        if !fits || name.parse::<Device>().is_ok() {
            return Err(OwnNameError { given: name.to_owned(), fits });
        }
        let mut own = OWN.write().unwrap_or_else(PoisonError::into_inner);
        let known = own.get(name).copied().unwrap_or_else(|| Box::leak(name.into()));
        own.insert(known);
        Ok(DeviceId(Which::Own(known)))
    }

    /// The device of the list; `None` for one outside of it.
    pub const fn known(self) -> Option<Device> {
        match self.0 {
            Which::Known(device) => Some(device),
            Which::Own(_) => None,
        }
    }

    /// The name people read: `CPU`, `CUDA`, `npu-x`, …
    pub const fn name(self) -> &'static str {
        match self.0 {
            Which::Known(device) => device.name(),
            Which::Own(name) => name,
        }
    }

    /// The name that the command line, environment variables, artefacts and caches use: `cpu`, `cuda`, `npu-x`, …
    pub const fn feature(self) -> &'static str {
        match self.0 {
            Which::Known(device) => device.feature(),
            Which::Own(name) => name,
        }
    }
}

impl From<Device> for DeviceId {
    fn from(device: Device) -> Self {
        DeviceId(Which::Known(device))
    }
}

/// The other way round there is none: `Vec<Device> == []` would then be ambiguous.
impl PartialEq<Device> for DeviceId {
    fn eq(&self, other: &Device) -> bool {
        self.known() == Some(*other)
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DeviceId {
    type Err = ParseDeviceError;

    /// Accepts what [`Device`] accepts, and the names that [`DeviceId::own`] has made devices of.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = text.parse::<Device>().map(DeviceId::from);
        known.or_else(|e| {
            let wanted = text.trim().to_ascii_lowercase().replace('_', "-");
            let own = OWN.read().unwrap_or_else(PoisonError::into_inner);
            own.get(wanted.as_str()).map(|&name| DeviceId(Which::Own(name))).ok_or(e)
        })
    }
}

/// A name that a device outside of the list cannot have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnNameError {
    given: String,
    /// Whether the letters are right.
    fits: bool,
}

impl fmt::Display for OwnNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OwnNameError { given, fits } = self;
        match fits {
            true => write!(f, "{given:?} names a device of the list: register its backend for that device"),
            false => write!(
                f,
                "{given:?} is no name for a device: use up to {LONGEST} lower-case letters, digits and '-', a letter first"
            ),
        }
    }
}

impl std::error::Error for OwnNameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_device_and_no_other() {
        let (a, b) = (DeviceId::own("npu-a").unwrap(), DeviceId::own("npu-b").unwrap());
        assert_ne!(a, b);
        assert_eq!(DeviceId::own("npu-a"), Ok(a));
        assert_eq!("NPU_A".parse(), Ok(a));
        assert_eq!((a.to_string(), format!("{a:?}"), a.feature()), ("npu-a".into(), "npu-a".into(), "npu-a"));
        assert!("npu-c".parse::<DeviceId>().is_err(), "reading a name makes no device of it");
        assert!("npu-a".parse::<Device>().is_err());
    }

    #[test]
    fn devices_of_the_list_are_equal_to_themselves() {
        for &device in Device::all() {
            let id = DeviceId::from(device);
            assert!(id == device && id.known() == Some(device));
            assert_eq!((id.name(), id.feature()), (device.name(), device.feature()));
            assert_eq!(device.feature().parse(), Ok(id));
        }
    }

    #[test]
    fn names_that_would_confuse_are_rejected() {
        for name in ["cpu", "cuda", "nvidia", "hip"] {
            assert!(DeviceId::own(name).unwrap_err().to_string().contains("of the list"));
        }
        let long = "a".repeat(33);
        for name in ["", "NPU", "npu x", "npu/x", "../x", "1npu", "-", "npu_x", "ńpu", &long] {
            assert!(DeviceId::own(name).unwrap_err().to_string().contains("is no name"), "{name}");
        }
    }
}
