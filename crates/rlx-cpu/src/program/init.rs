//! The init program on the CPU: see [`rlx_backend::init`] for what runs when.

use super::{Program, ProgramStep};

/// The init steps with their kernels.
pub(crate) type InitPlan = rlx_backend::init::InitPlan<ProgramStep>;

impl Program {
    /// Bytes of the buffer that an init step's output needs.
    pub(crate) fn prepared_bytes(
        &self,
        buffer: usize,
        operand: &super::layout::SymOperand,
        values: &super::extents::Values<'_>,
    ) -> rlx_ir::Result<usize> {
        let info = &self.lir.buffers[buffer];
        match info.format {
            Some(format) => {
                crate::kernels::pack::packed_bytes(format, info.dtype, operand.bind(values)?.dims())
            }
            None => {
                let elements = values.size(operand.elements())?;
                info.dtype.storage_bytes(elements).ok_or_else(|| {
                    rlx_ir::Error::new(
                        rlx_ir::ErrorKind::OutOfMemory,
                        format!("{elements} elements are too many"),
                    )
                })
            }
        }
    }
}
