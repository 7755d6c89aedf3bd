//! Ways to do a step: kernels of different shape that give the same bits.
//!
//! [`ways`] lists those of a step, first the one that is taken where nothing was measured, which follows from the
//! step's shape alone. A device keeps those that fit it ([`crate::KernelTarget::ways`]), and whoever measures chooses
//! one by its number; names are for what is kept about the choice.

use std::fmt;

use rlx_ir::Op;

use super::map::{self, Spread};
use super::product::{self, Form};
use super::{Scheduled, StepDesc, anchor_of, matmul, window};
use crate::ir::Ty;
use crate::target::DeviceLimits;

/// One of the ways to do a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// Where there is one way only.
    Only,
    /// A product in this form, computed in this type.
    Product(Form, Ty),
    /// Element by element, spread so.
    Map(Spread),
}

impl Way {
    /// Whether workgroups of this kind are within a device's limits.
    pub fn fits(self, limits: &DeviceLimits) -> bool {
        match self {
            Way::Only => true,
            Way::Map(spread) => spread.workgroup <= limits.max_workgroup,
            Way::Product(form, ty) => {
                form.workgroup() <= limits.max_workgroup && form.shared_bytes(ty) <= limits.max_shared_bytes
            }
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Only => f.write_str("only"),
            Way::Product(form, _) => form.fmt(f),
            Way::Map(spread) => spread.fmt(f),
        }
    }
}

/// The ways to do a step, on a device of any size; at least one.
///
/// # Errors
/// Why no schedule takes it, where that is known without making a kernel.
pub fn ways(step: &StepDesc) -> Scheduled<Vec<Way>> {
    let Some(anchor) = anchor_of(step)? else {
        return Ok(map::spreads(step).into_iter().map(Way::Map).collect());
    };
    let product = match &anchor.op {
        Op::MatMul => matmul::product(step, anchor)?,
        Op::Conv { .. } | Op::ConvTranspose { .. } => window::product(step, anchor)?,
        _ => return Ok(vec![Way::Only]),
    };
    let ty = Ty::of(product.dtype);
    Ok(product::forms(&product).into_iter().map(|form| Way::Product(form, ty)).collect())
}
