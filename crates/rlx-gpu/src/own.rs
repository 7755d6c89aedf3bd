//! What a device has for steps besides kernels, as options allow and as it was tried.

use std::sync::Arc;

use rlx_kernel::KernelTarget;

use crate::classes::{self, Class, Classes, SelfCheck};
use crate::few_rows::Fast;
use crate::tiles::MatrixUnits;

/// Who may do matmuls besides the device's kernels.
pub(crate) struct Own {
    pub matrix_units: Option<MatrixUnits>,
    /// How sums may be divided.
    pub fast: Fast,
    /// The vendor's library, where it may.
    pub library: Option<&'static str>,
    /// Who tries the device for classes of kernels, where it is tried at all.
    pub check: Option<Arc<dyn SelfCheck>>,
}

impl Own {
    pub(crate) fn tried(&self, classes: &[Class]) -> Classes {
        self.check.as_ref().map_or(Classes::default(), |check| check.tried(classes))
    }

    /// The means and the device without what the latter computes wrongly, once it was tried for what a module has.
    pub(crate) fn right(self, target: &KernelTarget) -> (Own, KernelTarget) {
        let aside = self.tried(&[]);
        let matrix_units = self.matrix_units.map(|units| MatrixUnits { aside, ..units });
        (Own { matrix_units, fast: self.fast.without(aside), ..self }, classes::without(target, aside))
    }
}
