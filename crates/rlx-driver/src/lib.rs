//! The devices RLX knows by name, and how people spell them; and [`DeviceId`], which also names those that plug-ins bring.
//!
//! This crate depends on nothing, so that every other crate can name a device. Whether a device
//! is *available* is not decided here: that takes a backend and a live probe (`rlx-backend`).
//!
//! ```
//! use rlx_driver::Device;
//! assert_eq!("cuda".parse::<Device>(), Ok(Device::Cuda));
//! assert_eq!("d3d12".parse::<Device>(), Ok(Device::DirectX));
//! assert_eq!(Device::Cpu.to_string(), "CPU");
//! ```
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod id;

use std::fmt;
use std::str::FromStr;

pub use id::{DeviceId, OwnNameError};

/// Declares each device once: variant, printed name, Cargo feature, accepted spellings.
macro_rules! devices {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $feature:literal, [$($alias:literal),*];)*) => {
        /// A device a graph can be compiled for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Device {
            $($(#[$doc])* $variant,)*
        }

        const ALL: &[Device] = &[$(Device::$variant),*];

        impl Device {
            /// The name people read: `CPU`, `CUDA`, `Vulkan`, …
            pub const fn name(self) -> &'static str {
                match self { $(Device::$variant => $name,)* }
            }

            /// The Cargo feature of `rlx-runtime` that brings this device's backend into a build;
            /// it is also the name the command line and the environment variables use.
            pub const fn feature(self) -> &'static str {
                match self { $(Device::$variant => $feature,)* }
            }

            fn spellings(self) -> &'static [&'static str] {
                match self { $(Device::$variant => &[$feature, $($alias),*],)* }
            }
        }
    };
}

devices! {
    /// The host processor.
    Cpu = "CPU", "cpu", ["host"];
    /// Apple GPUs through Metal.
    Metal = "Metal", "metal", ["mtl"];
    /// Apple silicon through MLX.
    Mlx = "MLX", "mlx", [];
    /// Apple's neural engine through Core ML.
    Ane = "ANE", "ane", ["neural-engine", "neuralengine", "coreml", "core-ml"];
    /// NVIDIA GPUs through CUDA.
    Cuda = "CUDA", "cuda", ["nvidia"];
    /// AMD GPUs through HIP.
    Rocm = "ROCm", "rocm", ["hip", "amd"];
    /// Google TPUs through PJRT.
    Tpu = "TPU", "tpu", ["pjrt"];
    /// The best adapter wgpu finds.
    Gpu = "GPU", "gpu", ["wgpu"];
    /// GPUs through Vulkan.
    Vulkan = "Vulkan", "vulkan", ["vk"];
    /// GPUs through OpenGL.
    OpenGl = "OpenGL", "opengl", ["gl", "gles"];
    /// GPUs through Direct3D 12.
    DirectX = "DirectX", "directx", ["dx", "dx12", "d3d12"];
    /// GPUs through a browser's WebGPU.
    WebGpu = "WebGPU", "webgpu", ["web-gpu"];
}

impl Device {
    /// Every device, in declaration order.
    pub const fn all() -> &'static [Device] {
        ALL
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A device name that no one uses; its `Display` lists the names that are understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseDeviceError {
    /// What was given.
    pub given: String,
}

impl fmt::Display for ParseDeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown device \"{}\"; known devices: ", self.given)?;
        for (i, device) in ALL.iter().enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { ", " }, device.feature())?;
        }
        Ok(())
    }
}

impl std::error::Error for ParseDeviceError {}

impl FromStr for Device {
    type Err = ParseDeviceError;

    /// Accepts every device's feature name and its aliases, in any letter case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = text.trim().to_ascii_lowercase().replace('_', "-");
        ALL.iter()
            .copied()
            .find(|d| d.spellings().contains(&wanted.as_str()))
            .ok_or_else(|| ParseDeviceError { given: text.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_parses_from_its_name_and_feature() {
        for &device in Device::all() {
            assert_eq!(device.name().parse::<Device>(), Ok(device));
            assert_eq!(device.feature().parse::<Device>(), Ok(device));
        }
        assert_eq!(Device::all().len(), 12);
    }

    #[test]
    fn aliases_are_understood_and_no_spelling_is_shared() {
        for (text, device) in [
            ("mtl", Device::Metal),
            ("neural-engine", Device::Ane),
            ("coreml", Device::Ane),
            ("nvidia", Device::Cuda),
            ("hip", Device::Rocm),
            ("amd", Device::Rocm),
            ("wgpu", Device::Gpu),
            ("vk", Device::Vulkan),
            ("gl", Device::OpenGl),
            ("dx12", Device::DirectX),
            ("D3D12", Device::DirectX),
        ] {
            assert_eq!(text.parse::<Device>(), Ok(device));
        }
        let mut all: Vec<&str> = Device::all().iter().flat_map(|d| d.spellings()).copied().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let message = "quantum".parse::<Device>().unwrap_err().to_string();
        assert!(message.contains("quantum") && message.contains("vulkan"));
    }
}
