//! Cooperative matrices, on which f16 is multiplied: which adapters offer those that tile programs use ([`Arch::Coop16`]), and whether the driver multiplies
//! them right.
//!
//! An adapter offers them where it lists 16 × 16 × 16 of f16 with sums of f32, and all its subgroups have 32 lanes: a program's workgroup is so many of them, and
//! wgpu cannot ask a driver for one of several sizes. What naga writes of programs has not run on every driver, so a few products are compared first;
//! where they are wrong, f16 is multiplied as on devices without matrices.

use std::sync::Arc;

use rlx_gpu::trial::Trial;
use rlx_gpu::{Arrival, Back, Classes, GpuApi, HostMemory, Job, MatrixUnits, Source, Usage};
use rlx_ir::Result;
use rlx_tile::{Arch, Program};

use crate::gpu::Gpu;
use crate::memory::{Range, Readback};

/// What programs on cooperative matrices need besides.
pub(crate) const FEATURES: wgpu::Features = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX
    .union(wgpu::Features::SHADER_F16)
    .union(wgpu::Features::SUBGROUP);

/// Whether programs run on an adapter with these features and matrices.
pub(crate) fn offers(
    info: &wgpu::AdapterInfo,
    features: wgpu::Features,
    matrices: &[wgpu::CooperativeMatrixProperties],
) -> bool {
    let lanes = Arch::Coop16.lanes();
    let sized = info.subgroup_min_size == lanes && info.subgroup_max_size == lanes;
    let of = |m: &wgpu::CooperativeMatrixProperties| {
        (m.m_size, m.n_size, m.k_size) == (16, 16, 16)
            && m.ab_type == wgpu::CooperativeScalarType::F16
            && m.cr_type == wgpu::CooperativeScalarType::F32
            && !m.saturating_accumulation
    };
    let listed = match info.backend {
        wgpu::Backend::Vulkan => matrices.iter().any(of),
        // What does nothing lists nothing, and runs everything.
        wgpu::Backend::Noop => true,
        _ => false,
    };
    sized && listed && features.contains(FEATURES)
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
        if !self.offers_matrices {
            return None;
        }
        let units = MatrixUnits {
            arch: Arch::Coop16,
            dynamic_bytes: 0,
            compute_units: None,
            aside: Classes::default(),
        };
        let Some(why) = fault(&self.multiplies(), self.info.backend) else { return Some(units) };
        tracing::warn!(device = %self.name(), adapter = %self.info.name, %why, "cooperative matrices are put aside: f16 is multiplied without them");
        None
    }

    /// Whether every tiling that the device has room for gives what it should.
    fn multiplies(&self) -> Result<bool> {
        let mut right = true;
        for trial in Trial::all(Arch::Coop16) {
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
        assert!(offers(&adapter(Vulkan, (32, 32)), FEATURES, &right));
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
