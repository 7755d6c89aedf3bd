//! A device that computes some code wrongly, as a driver's compiler may.

use rlx_kernel::interp::Binding;
use rlx_kernel::ir::Access;

use super::Context;
use crate::loaded::{Code, Does};

/// What stands for the names of kernels whose invocations work together.
const SHARED: &str = "shared";
/// What stands for those that exchange values within subgroups.
const EXCHANGES: &str = "exchanges";

impl Context {
    /// From now on, what tile programs whose names begin so write is a lane out of place; of kernels, where this is [`SHARED`] or [`EXCHANGES`], those that it stands for.
    pub fn spoil(&mut self, names: Option<String>) {
        self.spoilt = names;
    }

    /// Moves a little of what was written, if this code is computed wrongly.
    pub(super) fn move_lanes(&mut self, code: &Code, bindings: &[Binding]) {
        let Some(names) = &self.spoilt else { return };
        let is_wrong = match &code.does {
            Does::Tiles(program) => program.name.starts_with(names),
            Does::Kernel(kernel) if names == EXCHANGES => kernel.subgroup.is_some(),
            Does::Kernel(kernel) => names == SHARED && kernel.works_together(),
        };
        let written = code.buffers().iter().zip(bindings).filter(|(decl, _)| decl.access != Access::Read);
        for (_, at) in written.filter(|_| is_wrong) {
            let bytes = &mut self.pools.0[at.pool][at.offset..at.offset + at.len.min(64)];
            bytes.rotate_right(4.min(bytes.len()));
        }
    }
}
