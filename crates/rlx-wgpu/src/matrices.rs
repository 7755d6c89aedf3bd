//! Matrix units: which adapters offer those that tile programs use, Vulkan's cooperative matrices ([`Arch::Coop16`]) or Metal's ([`Arch::Apple7`]), and whether the
//! driver multiplies right.
//!
//! On Vulkan an adapter offers them where it lists 16 × 16 × 16 of f16 with sums of f32, and all its subgroups have 32 lanes: a program's workgroup is so many of them, and
//! wgpu cannot ask a driver for one of several sizes. On Metal, 8 × 8 × 8 are listed from GPU family 7 on, and programs are in Metal's own language. Programs have not run
//! on every driver, so a few products are compared first; where they are wrong, matrices are multiplied as on devices without units.

use std::sync::Arc;

use rlx_gpu::trial::Trial;
use rlx_gpu::{Arrival, Back, Classes, GpuApi, HostMemory, Job, MatrixUnits, Source, Usage};
use rlx_ir::Result;
use rlx_tile::{Arch, Program};

use crate::gpu::Gpu;
use crate::language::Language;
use crate::memory::{Range, Readback};

/// What programs on cooperative matrices need besides.
pub(crate) const FEATURES: wgpu::Features = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX
    .union(wgpu::Features::SHADER_F16)
    .union(wgpu::Features::SUBGROUP);

/// The units whose programs run on an adapter with these features and matrices.
pub(crate) fn offered(
    info: &wgpu::AdapterInfo,
    features: wgpu::Features,
    matrices: &[wgpu::CooperativeMatrixProperties],
) -> Option<Arch> {
    let lanes = Arch::Coop16.lanes();
    let sized = info.subgroup_min_size == lanes && info.subgroup_max_size == lanes;
    let of = |m: &wgpu::CooperativeMatrixProperties, size: u32| {
        (m.m_size, m.n_size, m.k_size) == (size, size, size)
            && m.ab_type == wgpu::CooperativeScalarType::F16
            && m.cr_type == wgpu::CooperativeScalarType::F32
            && !m.saturating_accumulation
    };
    let lists = |size| matrices.iter().any(|m| of(m, size));
    let (arch, has) = match info.backend {
        wgpu::Backend::Vulkan => (Arch::Coop16, sized && lists(16) && features.contains(FEATURES)),
        // What does nothing lists nothing, and runs everything.
        wgpu::Backend::Noop => (Arch::Coop16, sized && features.contains(FEATURES)),
        wgpu::Backend::Metal => {
            (Arch::Apple7, lists(8) && features.contains(wgpu::Features::PASSTHROUGH_SHADERS))
        }
        _ => return None,
    };
    has.then_some(arch)
}

/// What is wrong with a back end whose trials were found right or not.
fn fault(right: &Result<bool>, backend: wgpu::Backend) -> Option<String> {
    match right {
        Ok(true) => None,
        // What does nothing gives nothing: there it counts that wgpu takes the programs.
        Ok(false) if backend == wgpu::Backend::Noop => None,
        Ok(false) => Some("the driver multiplies them wrongly".to_owned()),
        Err(e) => Some(format!("the driver does not run programs on them: {e}")),
    }
}

impl Gpu {
    /// Matrix units that multiply right, where the adapter offers some.
    pub(crate) fn tried_units(&self) -> Option<MatrixUnits> {
        let wgsl = self.language == Language::Wgsl;
        let arch = self.matrices.filter(|&arch| (arch == Arch::Coop16) == wgsl)?;
        let units = MatrixUnits { arch, dynamic_bytes: 0, compute_units: None, aside: Classes::default() };
        let Some(why) = fault(&self.multiplies(arch), self.info.backend) else { return Some(units) };
        tracing::warn!(device = %self.name(), adapter = %self.info.name, %why, "matrix units are put aside: kernels multiply without them");
        None
    }

    /// Whether every tiling that the device has room for gives what it should.
    fn multiplies(&self, arch: Arch) -> Result<bool> {
        let mut right = true;
        for trial in Trial::all(arch) {
            let program = trial.program()?;
            let room = u64::from(self.limits.max_compute_workgroup_storage_size);
            let most = self.limits.max_compute_invocations_per_workgroup;
            if program.shared_bytes() <= room && program.workgroup() <= most {
                right &= self.product(&trial, program)? == trial.result();
            }
        }
        Ok(right)
    }

    /// Memory with these bytes.
    fn filled(&self, bytes: &[u8], usage: Usage) -> Result<Range> {
        let memory = self.allocate(bytes.len(), usage, "a trial of matrices")?;
        self.write(&memory, 0, bytes)?;
        Ok(Gpu::range(&memory, 0, bytes.len()))
    }

    /// What the device makes of a trial.
    fn product(&self, trial: &Trial, program: Arc<Program>) -> Result<Vec<u8>> {
        let ([left, right], mut got) = (trial.operands(), vec![0; trial.result().len()]);
        let (hash, groups) = (program.hash(), trial.workgroups(&program) as u32);
        let source = Source::Tiles(program);
        let pipeline = self.pipeline(&Job { hash, source: &source, guarded: false })?;
        let ranges = [
            self.filled(&trial.uniforms(), Usage::Uniforms)?,
            self.filled(&left, Usage::Storage)?,
            self.filled(&right, Usage::Storage)?,
            self.filled(&got, Usage::Storage)?,
        ];
        let entries: Vec<_> = ranges.iter().enumerate().map(|(i, range)| range.entry(i as u32)).collect();
        let layout = &pipeline.layout;
        let description = wgpu::BindGroupDescriptor { label: None, layout, entries: &entries };
        let what = || "a trial of matrices".to_owned();
        let group = self.checked(&what, || self.device.create_bind_group(&description))?;
        let mut host = Readback::new(self, got.len())?;
        let arrivals = [Arrival { from: ranges[3].clone(), skip: 0, bytes: got.len(), at: 0 }];
        self.submit_with(&what, Some(Back { to: &mut host, arrivals: &arrivals }), |encoder| {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&pipeline.raw);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(groups, 1, 1);
        })?;
        host.wait(self)?;
        host.copy(self, 0, &mut got)?;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapter(backend: wgpu::Backend, lanes: (u32, u32)) -> wgpu::AdapterInfo {
        wgpu::AdapterInfo {
            subgroup_min_size: lanes.0,
            subgroup_max_size: lanes.1,
            ..wgpu::AdapterInfo::new(wgpu::DeviceType::DiscreteGpu, backend)
        }
    }

    #[test]
    fn adapters_offer_what_programs_use() {
        use wgpu::Backend::{Metal, Vulkan};
        use wgpu::CooperativeScalarType::{F16, F32};
        let of = |(m_size, n_size, k_size), ab_type, cr_type| wgpu::CooperativeMatrixProperties {
            m_size,
            n_size,
            k_size,
            ab_type,
            cr_type,
            saturating_accumulation: false,
        };
        let right = [of((16, 8, 16), F16, F32), of((16, 16, 16), F16, F32)];
        let offers =
            |info: &wgpu::AdapterInfo, features, matrices: &[_]| offered(info, features, matrices).is_some();
        assert_eq!(offered(&adapter(Vulkan, (32, 32)), FEATURES, &right), Some(Arch::Coop16));
        // Other matrices, subgroups of other or several sizes, a feature less, another back end.
        for other in [of((8, 8, 8), F16, F32), of((16, 16, 16), F16, F16), of((16, 16, 16), F32, F32)] {
            assert!(!offers(&adapter(Vulkan, (32, 32)), FEATURES, &[other]));
        }
        for lanes in [(32, 64), (64, 64), (8, 32)] {
            assert!(!offers(&adapter(Vulkan, lanes), FEATURES, &right), "{lanes:?}");
        }
        use wgpu::Features as F;
        for feature in [F::EXPERIMENTAL_COOPERATIVE_MATRIX, F::SHADER_F16, F::SUBGROUP] {
            assert!(!offers(&adapter(Vulkan, (32, 32)), FEATURES - feature, &right), "{feature:?}");
        }
        assert!(!offers(&adapter(Metal, (32, 32)), FEATURES, &right));
        assert!(!offers(&adapter(Vulkan, (32, 32)), FEATURES, &[]));
        // Metal has its own, in its own language; wgpu is asked for no feature of theirs.
        let apple = [of((8, 8, 8), F32, F32), of((8, 8, 8), F16, F32)];
        let metal = adapter(Metal, (4, 64));
        assert_eq!(offered(&metal, F::PASSTHROUGH_SHADERS, &apple), Some(Arch::Apple7));
        assert!(!offers(&metal, FEATURES, &apple) && !offers(&metal, F::PASSTHROUGH_SHADERS, &apple[..1]));
        assert!(!offers(&metal, F::PASSTHROUGH_SHADERS, &[]));
    }

    #[test]
    fn a_driver_that_multiplies_wrongly_is_put_aside() {
        use wgpu::Backend::{Noop, Vulkan};
        assert_eq!(fault(&Ok(true), Vulkan), None);
        assert!(fault(&Ok(false), Vulkan).is_some_and(|why| why.contains("wrongly")));
        assert_eq!(fault(&Ok(false), Noop), None);
        for backend in [Vulkan, Noop] {
            let rejected = Err(rlx_ir::Error::new(rlx_ir::ErrorKind::Device, "a pipeline"));
            assert!(fault(&rejected, backend).is_some_and(|why| why.contains("a pipeline")));
        }
    }
}
