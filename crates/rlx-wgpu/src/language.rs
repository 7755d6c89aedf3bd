//! The language that a device's kernels are written in. wgpu translates WGSL for all of them. On Apple's systems it can also hand on Metal's own
//! language, which has 64-bit integers and narrow elements, and whose text says how floats are computed; wgpu's translation cannot say that.

use rlx_ir::DType;
use rlx_kernel::build::Builder;
use rlx_kernel::ir::Access;
use rlx_kernel::{Kernel, TypeSupport};

/// What kernels are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    /// The language of WebGPU, which wgpu translates.
    Wgsl,
    /// The Metal Shading Language, which wgpu does not look into.
    Msl,
}

/// The features that a device is opened with for the sake of its language: Metal and Vulkan take theirs as it is. A processor reads every element of a lane by itself, so that numbers of 64
/// bits, which are two elements, spare half of that.
pub(crate) fn wanted(backend: wgpu::Backend, kind: wgpu::DeviceType) -> wgpu::Features {
    match (backend, kind) {
        (wgpu::Backend::Metal, _) => wgpu::Features::PASSTHROUGH_SHADERS,
        (wgpu::Backend::Vulkan, wgpu::DeviceType::Cpu) => {
            wgpu::Features::PASSTHROUGH_SHADERS.union(wgpu::Features::SHADER_INT64)
        }
        (wgpu::Backend::Vulkan, _) => wgpu::Features::PASSTHROUGH_SHADERS,
        (_, wgpu::DeviceType::Cpu) => wgpu::Features::SHADER_INT64,
        _ => wgpu::Features::empty(),
    }
}

impl Language {
    /// The language of a device that was opened with `features`.
    pub(crate) fn offered(backend: wgpu::Backend, features: wgpu::Features) -> Language {
        let own = backend == wgpu::Backend::Metal && features.contains(wgpu::Features::PASSTHROUGH_SHADERS);
        if own { Language::Msl } else { Language::Wgsl }
    }

    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Language::Wgsl => "WGSL",
            Language::Msl => "MSL",
        }
    }

    /// What it has, on a device of this back end with `features`.
    pub(crate) fn types(self, backend: wgpu::Backend, features: wgpu::Features) -> TypeSupport {
        let types = match self {
            Language::Msl => TypeSupport::MSL,
            Language::Wgsl if features.contains(wgpu::Features::SHADER_I16) => TypeSupport::WGSL_INT16,
            Language::Wgsl => TypeSupport::WGSL,
        };
        TypeSupport { nan_order: backend != wgpu::Backend::Dx12, ..types }
    }
}

/// A kernel that a device compiles before it is given others in its own language: older systems have compilers that cannot be told to compute as
/// written, and reject its text.
pub(crate) fn trial() -> Kernel {
    let mut b = Builder::new("trial", 64);
    let x = b.buffer("x", DType::F16, Access::Read);
    let y = b.buffer("y", DType::BF16, Access::Write);
    let n = b.uniform("n", 0, i32::MAX);
    let i = b.global_id();
    let inside = b.lt(i, n);
    b.if_then(inside, |b| {
        let value = b.load(x, i);
        b.store(y, i, value);
    });
    b.finish()
}

#[cfg(test)]
mod tests {
    use rlx_kernel::{render, verify};

    use super::*;

    #[test]
    fn the_trial_is_a_kernel() {
        let kernel = trial();
        verify::verify(&kernel).unwrap();
        assert!(render::msl(&kernel, "trial").unwrap().contains("to_brain(v"));
    }

    #[test]
    fn metal_alone_gets_its_own_language_and_only_where_wgpu_hands_it_on() {
        use wgpu::{Backend, DeviceType, Features};
        let all = Features::PASSTHROUGH_SHADERS | Features::SHADER_I16;
        assert_eq!(Language::offered(Backend::Metal, all), Language::Msl);
        assert_eq!(Language::offered(Backend::Metal, Features::SHADER_I16), Language::Wgsl);
        for other in [Backend::Vulkan, Backend::Dx12, Backend::Gl, Backend::BrowserWebGpu, Backend::Noop] {
            assert_eq!(Language::offered(other, all), Language::Wgsl);
            // Vulkan takes SPIR-V.
            let own = match other {
                Backend::Vulkan => Features::PASSTHROUGH_SHADERS,
                _ => Features::empty(),
            };
            assert_eq!(wanted(other, DeviceType::DiscreteGpu), own, "{other}");
            assert_eq!(wanted(other, DeviceType::Cpu), own | Features::SHADER_INT64, "{other}");
        }
        assert_eq!(wanted(Backend::Metal, DeviceType::IntegratedGpu), Features::PASSTHROUGH_SHADERS);
        assert!(Language::Msl.types(Backend::Metal, Features::empty()).int64);
        assert_eq!(Language::Wgsl.types(Backend::Vulkan, all), TypeSupport::WGSL_INT16);
        assert_eq!(Language::Wgsl.types(Backend::Vulkan, Features::empty()), TypeSupport::WGSL);
        assert!(!Language::Wgsl.types(Backend::Dx12, Features::empty()).nan_order);
    }
}
