//! Cooperative matrices, on which f16 is multiplied: which adapters offer those that tile programs use ([`Arch::Coop16`]), and whether the driver multiplies
//! them right.
//!
//! An adapter offers them where it lists 16 × 16 × 16 of f16 with sums of f32, and all its subgroups have 32 lanes: a program's workgroup is so many of them, and
//! wgpu cannot ask a driver for one of several sizes. What naga writes of programs has not run on every driver, so a few products are compared first;
//! where they are wrong, f16 is multiplied as on devices without matrices.

use std::sync::Arc;

use rlx_gpu::{Arrival, Back, GpuApi, HostMemory, Job, MatrixUnits, Source, Usage};
use rlx_ir::{DType, Error, Result};
use rlx_kernel::render::uniform_bytes;
use rlx_tile::Arch;
use rlx_tile::schedule::{Matmul, Operand, Sizes, Strides, Tiling, matmul, tilings};

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

/// A product whose result every order of sums gives exactly.
struct Trial {
    tiling: Tiling,
    /// Both operands are stored the other way.
    transposed: bool,
}

/// Rows, columns and depth of a trial: several workgroups, and edges.
const SIZE: (i32, i32, i32) = (72, 136, 88);

impl Trial {
    fn all() -> Vec<Trial> {
        let tilings = tilings(Arch::Coop16);
        let of = |(i, tiling): (usize, Tiling)| Trial { tiling, transposed: i % 2 == 1 };
        tilings.into_iter().enumerate().map(of).collect()
    }

    fn matmul(&self) -> Matmul {
        let mut what = Matmul::new(DType::F16);
        what.result = Operand { dtype: DType::F32, transposed: false, vector: 4 };
        (what.left.transposed, what.right.transposed) = (self.transposed, self.transposed);
        what
    }

    fn uniforms(&self, what: &Matmul) -> Vec<i32> {
        let (m, n, k) = SIZE;
        let rows = |row: i32| Strides { base: 0, row, col: 1, batch: Vec::new() };
        let (left, right) = if self.transposed { (m, k) } else { (k, n) };
        let (left, right, result) = (rows(left), rows(right), rows(n));
        what.uniform_values(&Sizes { m, n, k, left, right, result, ..Sizes::default() })
    }

    /// Elements of the operands: small integers.
    fn left(row: i32, k: i32) -> i32 {
        (row * 7 + k * 3) % 9 - 4
    }

    fn right(k: i32, col: i32) -> i32 {
        (k * 5 + col * 11) % 7 - 3
    }

    /// The bytes of a matrix as it is stored.
    fn operand((rows, cols): (i32, i32), transposed: bool, of: fn(i32, i32) -> i32) -> Vec<u8> {
        let (down, right) = if transposed { (cols, rows) } else { (rows, cols) };
        let at = |r: i32, c: i32| if transposed { of(c, r) } else { of(r, c) };
        let all = (0..down).flat_map(|r| (0..right).map(move |c| (r, c)));
        all.flat_map(|(r, c)| half_of_small(at(r, c)).to_le_bytes()).collect()
    }

    /// The bytes of the result.
    fn result() -> Vec<u8> {
        let (m, n, k) = SIZE;
        let sum =
            |row: i32, col: i32| -> i32 { (0..k).map(|i| Trial::left(row, i) * Trial::right(i, col)).sum() };
        let all = (0..m).flat_map(|row| (0..n).map(move |col| (row, col)));
        all.flat_map(|(row, col)| (sum(row, col) as f32).to_le_bytes()).collect()
    }
}

/// The bits of half precision of an integer of a few bits.
fn half_of_small(x: i32) -> u16 {
    let sign = if x < 0 { 0x8000 } else { 0 };
    match x.unsigned_abs() {
        0 => 0,
        size => {
            let exponent = size.ilog2();
            sign | (exponent as u16 + 15) << 10 | ((size << (10 - exponent)) as u16 & 0x3ff)
        }
    }
}

impl Gpu {
    /// Matrix units that multiply right, where the adapter offers some.
    pub(crate) fn tried_units(&self) -> Option<MatrixUnits> {
        if !self.offers_matrices {
            return None;
        }
        let units = MatrixUnits { arch: Arch::Coop16, dynamic_bytes: 0, compute_units: None };
        if self.info.backend == wgpu::Backend::Noop {
            return Some(units);
        }
        match self.multiplies() {
            Ok(true) => Some(units),
            Ok(false) => {
                tracing::warn!(device = %self.name(), adapter = %self.info.name, "the driver multiplies cooperative matrices wrongly: f16 is multiplied without them");
                None
            }
            Err(why) => {
                tracing::warn!(device = %self.name(), adapter = %self.info.name, %why, "the driver does not run programs on cooperative matrices: f16 is multiplied without them");
                None
            }
        }
    }

    /// Whether every tiling that the device has room for gives what it should.
    fn multiplies(&self) -> Result<bool> {
        let want = Trial::result();
        for trial in Trial::all() {
            let program = matmul(Arch::Coop16, &trial.matmul(), &trial.tiling)?;
            let room = u64::from(self.limits.max_compute_workgroup_storage_size);
            let most = self.limits.max_compute_invocations_per_workgroup;
            if program.shared_bytes() <= room && program.workgroup() <= most && self.product(&trial)? != want
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What the device makes of a trial.
    fn product(&self, trial: &Trial) -> Result<Vec<u8>> {
        let (m, n, k) = SIZE;
        let what = trial.matmul();
        let program = Arc::new(matmul(Arch::Coop16, &what, &trial.tiling)?);
        let (hash, source) = (program.hash(), Source::Tiles(Arc::clone(&program)));
        let pipeline = self.pipeline(&Job { hash, source: &source, guarded: false })?;
        let uniforms = trial.uniforms(&what);
        let made = |bytes: &[u8], usage| -> Result<Range> {
            let memory = self.allocate(bytes.len(), usage, "a trial of matrices")?;
            self.write(&memory, 0, bytes)?;
            Ok(Gpu::range(&memory, 0, bytes.len()))
        };
        let result = vec![0; (m * n) as usize * size_of::<f32>()];
        let ranges = [
            made(&uniform_bytes(&uniforms, 0), Usage::Uniforms)?,
            made(&Trial::operand((m, k), trial.transposed, Trial::left), Usage::Storage)?,
            made(&Trial::operand((k, n), trial.transposed, Trial::right), Usage::Storage)?,
            made(&result, Usage::Storage)?,
        ];
        let entries: Vec<_> = ranges.iter().enumerate().map(|(i, range)| range.entry(i as u32)).collect();
        let layout = &pipeline.layout;
        let description = wgpu::BindGroupDescriptor { label: None, layout, entries: &entries };
        let group =
            self.checked(&|| "binding a trial".to_owned(), || self.device.create_bind_group(&description))?;
        let groups = rlx_tile::interp::workgroups(&program, &uniforms) as u32;
        let bytes = result.len();
        let mut host = Readback::new(self, bytes)?;
        let arrivals = [Arrival { from: ranges[3].clone(), skip: 0, bytes, at: 0 }];
        let back = Back { to: &mut host, arrivals: &arrivals };
        self.submit_with(&|| "a trial of matrices".to_owned(), Some(back), |encoder| {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&pipeline.raw);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(groups, 1, 1);
        })?;
        host.wait(self)?;
        let mut got = result;
        host.copy(self, 0, &mut got)?;
        Ok(got)
    }
}

/// The error for programs where there are none.
pub(crate) fn none(gpu: &Gpu) -> Error {
    gpu.error(rlx_ir::ErrorKind::Internal, "a tile program for a device without matrix units, or from a file")
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
    fn trials_are_exact_and_the_interpreter_computes_them() {
        use rlx_kernel::interp::{Binding, Pools};
        for (x, bits) in [(0, 0), (1, 0x3c00), (-1, 0xbc00), (3, 0x4200), (-4, 0xc400)] {
            assert_eq!(half_of_small(x), bits, "{x}");
        }
        let (m, n, k) = SIZE;
        let want = Trial::result();
        for trial in Trial::all() {
            let what = trial.matmul();
            let program = matmul(Arch::Coop16, &what, &trial.tiling).unwrap();
            let mut pools = Pools(vec![
                Trial::operand((m, k), trial.transposed, Trial::left),
                Trial::operand((k, n), trial.transposed, Trial::right),
                vec![0xff; want.len()],
            ]);
            let bindings: Vec<Binding> = (pools.0.iter().enumerate())
                .map(|(pool, bytes)| Binding { pool, offset: 0, len: bytes.len() })
                .collect();
            rlx_tile::interp::run(&program, &trial.uniforms(&what), &mut pools, &bindings).unwrap();
            assert!(pools.0[2] == want, "{}", trial.tiling.name());
        }
    }
}
