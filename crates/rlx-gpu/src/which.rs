//! What a device is opened by: its name, the limits it is used under, and what else its driver is to know.

use rlx_driver::Device;
use rlx_kernel::{DeviceLimits, KernelTarget, TypeSupport};
use rlx_opt::PoolSpec;

use crate::tiles::MatrixUnits;

/// What a device is opened by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Which<O> {
    /// Its name.
    pub device: Device,
    /// Limits below its own.
    pub limits: Lowered,
    /// What else there is to say.
    pub options: O,
}

/// Limits below a device's own: for sharing a device, and for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Lowered {
    /// The most bytes a kernel is bound to at once.
    pub max_binding_bytes: Option<u64>,
    /// The most storage buffers of a kernel.
    pub max_storage_buffers: Option<u32>,
    /// The most invocations of a workgroup.
    pub max_workgroup: Option<u32>,
    /// The most bytes of workgroup memory of a kernel.
    pub max_shared_bytes: Option<u32>,
    /// Whether kernels do without exchanges within subgroups.
    pub no_subgroups: bool,
    /// Whether elements of 8 and 16 bits are parts of words of 32 bits in buffers, which every device has; no units multiply them then.
    pub only_words: bool,
    /// The most bytes of device memory that this process's executables take together.
    pub max_memory_bytes: Option<u64>,
}

impl Lowered {
    /// The device under these limits, as the compiler sees it.
    pub(crate) fn lower(&self, target: KernelTarget) -> KernelTarget {
        let (limits, pool) = (target.limits, target.pool);
        let max_bindings = lower(limits.max_bindings, self.max_storage_buffers);
        let max_workgroup = lower(limits.max_workgroup, self.max_workgroup);
        let max_shared_bytes = lower(limits.max_shared_bytes, self.max_shared_bytes);
        let pool = PoolSpec {
            max_buffer_bytes: lower(pool.max_buffer_bytes, self.max_binding_bytes),
            // One binding is kept for the fault record.
            max_bindings: pool.max_bindings.min(max_bindings.saturating_sub(1)),
            ..pool
        };
        let subgroup = limits.subgroup.filter(|_| !self.no_subgroups);
        let limits = DeviceLimits { max_bindings, max_workgroup, max_shared_bytes, subgroup, ..limits };
        let types = match self.only_words {
            true => TypeSupport { narrow: false, int16: false, ..target.types },
            false => target.types,
        };
        KernelTarget { limits, pool, types, ..target }
    }

    /// The matrix units under these limits.
    pub(crate) fn lower_units(&self, units: MatrixUnits) -> Option<MatrixUnits> {
        let dynamic_bytes = lower(units.dynamic_bytes, self.max_shared_bytes);
        (!self.only_words).then_some(MatrixUnits { dynamic_bytes, ..units })
    }
}

/// The lower one of a device's limit and the one that it is used under, if there is one.
pub fn lower<T: Ord + TryFrom<U>, U>(limit: T, most: Option<U>) -> T {
    match most.map(T::try_from) {
        Some(Ok(most)) => most.min(limit),
        _ => limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_lowered_and_never_raised() {
        assert_eq!([Some(3u64), Some(9), None].map(|most| lower(7usize, most)), [3, 7, 7]);
        let full = KernelTarget::full("test");
        let limits = Lowered {
            max_binding_bytes: Some(1 << 20),
            max_storage_buffers: Some(4),
            max_workgroup: Some(1 << 20),
            max_shared_bytes: Some(16 << 10),
            ..Lowered::default()
        };
        let lowered = limits.lower(full.clone());
        assert_eq!((lowered.limits.max_bindings, lowered.pool.max_bindings), (4, 3));
        assert_eq!(lowered.pool.max_buffer_bytes, 1 << 20);
        assert_eq!(lowered.limits.max_workgroup, full.limits.max_workgroup);
        assert_eq!(lowered.limits.max_shared_bytes, 16 << 10);
        assert_eq!(lowered.limits.subgroup, Some(32));
        let without = Lowered { no_subgroups: true, ..Lowered::default() };
        assert_eq!(without.lower(full.clone()).limits.subgroup, None);
        let words = Lowered { only_words: true, ..Lowered::default() }.lower(full.clone()).types;
        assert!(!words.narrow && !words.int16 && words.int64);
        assert_eq!(Lowered::default().lower(full.clone()).pool, full.pool);
    }
}
