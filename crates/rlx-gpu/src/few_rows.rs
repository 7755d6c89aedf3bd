//! What a device does under [`Numerics::Fast`] with sums that it divides: matmuls of few rows, by one kernel that divides them
//! among the invocations of a workgroup ([`rlx_kernel::few_rows`]), and other small results of long sums, in parts.
//!
//! Which it is follows from the sizes of a step: where its rows are known, and few, the kernel is its only launch. Where they are open, those of a run decide: a run of few rows takes the kernel before parts, before whole
//! tile programs and before the kernels that the step has besides.
//!
//! ```text
//! [seq, 768] bf16 · [768, 3072] bf16:   seq = 1 → gemv1x16.k128.columns8    seq = 3 → gemv4x16.k128.columns8    seq = 40 → a tile program
//! ```

use rlx_ir::Result;
use rlx_ir::lir::{BufferKind, LirModule, Step};
use rlx_kernel::{FewRows, KernelTarget, Launch};
use rlx_opt::{CompileOptions, Numerics};
use rlx_tile::schedule::Division;

use crate::classes::{Class, Classes};
use crate::tiles::MatrixUnits;

/// How sums may be divided; not at all, by default.
#[derive(Debug, Clone, Default)]
pub struct Fast {
    /// Long sums of small results, in parts, by tile programs.
    pub division: Option<Division>,
    /// Those of matmuls of few rows, within workgroups.
    pub few_rows: bool,
}

impl Fast {
    /// What these options allow on a device with these matrix units.
    pub fn of(units: Option<MatrixUnits>, options: &CompileOptions) -> Fast {
        let few_rows = options.numerics == Numerics::Fast;
        let units = units.filter(|_| few_rows);
        Fast { division: units.map(|units| Division::for_units(units.compute_units)), few_rows }
    }

    /// The same without what a device computes wrongly.
    #[must_use]
    pub(crate) fn without(&self, aside: Classes) -> Fast {
        Fast { few_rows: self.few_rows && !aside.has(Class::FewRows), ..self.clone() }
    }

    /// Whether the device divides any sums.
    pub fn divides(&self, kernels: &KernelTarget) -> bool {
        self.division.is_some() || self.takes_few_rows(kernels)
    }

    /// Whether it has kernels for few rows.
    pub fn takes_few_rows(&self, kernels: &KernelTarget) -> bool {
        self.few_rows && !kernels.is_processor
    }

    /// The kernels that do a step of the run where its rows are few; none where there are none, or the step is one of the init program.
    ///
    /// # Errors
    /// A kernel that breaks a rule.
    pub fn few_rows(
        &self,
        step: &Step,
        lir: &LirModule,
        target: &KernelTarget,
    ) -> rlx_ir::Result<Vec<FewRows>> {
        match self.may_divide(step, lir) {
            true => rlx_kernel::few_rows(step, lir, target),
            false => Ok(Vec::new()),
        }
    }

    /// Whether the sums of a step may be divided for its few rows: those of the init program never are.
    pub(crate) fn may_divide(&self, step: &Step, lir: &LirModule) -> bool {
        let of_init =
            { &step.outputs }.iter().any(|o| lir.buffers[o.buffer.index()].kind == BufferKind::Prepared);
        self.few_rows && !of_init
    }
}

/// The launch that does every run of a step, or else its kernels for few rows.
///
/// # Errors
/// They are for some runs.
pub fn sole(kernels: Vec<FewRows>) -> Result<Launch, Vec<FewRows>> {
    match kernels.iter().position(is_always_taken) {
        Some(at) => Ok(kernels[at].launch.clone()),
        None => Err(kernels),
    }
}

/// Whether a kernel does every run of its step.
pub fn is_always_taken(of: &FewRows) -> bool {
    of.rows.as_const().is_some_and(|rows| takes(rows, of.most_rows))
}

/// Whether a run of so many rows is done by a kernel that is for at most `most` of them.
pub fn takes(rows: i64, most: i64) -> bool {
    rows <= most
}
