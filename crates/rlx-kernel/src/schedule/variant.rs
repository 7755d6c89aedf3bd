//! Variants of a step: kernels of different shape that give the same bits.
//!
//! [`variants`] lists those of a step, first the one that is taken where nothing was measured, which follows from the
//! step's shape alone. A device keeps those that fit it ([`crate::KernelTarget::variants`]), and anyone who measures chooses
//! one by its number; names are for what is kept about the choice.

use std::fmt;

use rlx_ir::Op;

use super::gemm::{self, GemmVariant};
use super::map::{self, Each, Spread};
use super::{
    Scheduled, StepDesc, anchor_of, attention, conv_pool, matmul, matmul_blocks, pool, reject, rows,
};
use crate::ir::Ty;
use crate::target::DeviceLimits;

/// One of the variants of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Variant {
    /// Where there is one variant only.
    Only,
    /// A matmul in this form, computed in this type.
    Gemm(GemmVariant, Ty),
    /// Element by element, spread so.
    Map(Spread),
    /// Rows, each by so many invocations.
    Rows(u32),
    /// Attention, a workgroup with so much of it.
    Attention(attention::Tile),
}

impl Variant {
    /// Whether it is a matmul through workgroup memory.
    pub fn uses_workgroup_memory(self) -> bool {
        matches!(self, Variant::Gemm(GemmVariant::Tiled(..), _))
    }

    /// Whether it is a matmul that reads several elements by one access.
    pub fn reads_neighbours(self) -> bool {
        matches!(self, Variant::Gemm(gemm, _) if gemm.reads_neighbours())
    }

    /// Whether it is a matmul in tiles of several rows and columns, whose invocations use what they load for several results.
    pub fn loads_for_several(self) -> bool {
        matches!(self, Variant::Gemm(gemm, _) if gemm.loads_for_several())
    }

    /// Whether an invocation computes several neighbours of a result, element by element.
    pub fn computes_neighbours(self) -> bool {
        matches!(self, Variant::Map(spread) if !matches!(spread.each, Each::Apart(_)))
    }

    /// Whether it computes several neighbours of a result, and accesses them together.
    pub fn accesses_neighbours(self) -> bool {
        matches!(self, Variant::Map(Spread { each: Each::Together(_), .. }))
    }

    /// Whether it has many invocations for each row.
    pub fn has_many_lanes(self) -> bool {
        self == Variant::Rows(rows::MANY)
    }

    /// Whether workgroups of this kind are within a device's limits.
    pub fn fits(self, limits: &DeviceLimits) -> bool {
        match self {
            Variant::Only => true,
            Variant::Map(spread) => spread.workgroup <= limits.max_workgroup,
            Variant::Rows(lanes) => lanes <= limits.max_workgroup,
            Variant::Attention(tile) => {
                tile.workgroup() <= limits.max_workgroup && tile.shared_bytes() <= limits.max_shared_bytes
            }
            Variant::Gemm(gemm, ty) => {
                gemm.workgroup() <= limits.max_workgroup && gemm.shared_bytes(ty) <= limits.max_shared_bytes
            }
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Variant::Only => f.write_str("only"),
            Variant::Gemm(gemm, _) => gemm.fmt(f),
            Variant::Map(spread) => spread.fmt(f),
            Variant::Rows(lanes) => write!(f, "rows{lanes}"),
            Variant::Attention(tile) => write!(f, "attention{}", tile.rows),
        }
    }
}

/// The variants of a step, on a device of any size, which is a processor that runs kernels or is none; at least one.
///
/// # Errors
/// Why no schedule takes it, where that is known without making a kernel.
pub fn variants(step: &StepDesc, is_processor: bool) -> Scheduled<Vec<Variant>> {
    let Some(anchor) = anchor_of(step)? else {
        return Ok(map::spreads(step, is_processor).into_iter().map(Variant::Map).collect());
    };
    let problem = match &anchor.op {
        Op::MatMul => matmul::gemm(step, anchor)?,
        Op::MatMulBlocks => matmul_blocks::gemm(step, anchor)?,
        Op::Conv { .. } | Op::ConvTranspose { .. } => conv_pool::gemm(step, anchor)?,
        Op::Softmax { .. } | Op::LogSoftmax { .. } | Op::LayerNorm { .. } | Op::RmsNorm { .. } => {
            let lanes = rows::lanes(step, anchor)?;
            let several = lanes.len() > 1;
            return Ok(if several {
                lanes.into_iter().map(Variant::Rows).collect()
            } else {
                vec![Variant::Only]
            });
        }
        Op::Attention { .. } => {
            if is_processor {
                return reject("a processor does attention in parts");
            }
            return Ok(attention::tiles(step, anchor)?.into_iter().map(Variant::Attention).collect());
        }
        Op::Pool { .. } => {
            let spreads = pool::spreads(step, anchor, is_processor);
            return Ok(spreads.into_iter().map(Variant::Map).collect());
        }
        _ => return Ok(vec![Variant::Only]),
    };
    let ty = Ty::of(problem.dtype);
    Ok(gemm::variants(&problem).into_iter().map(|gemm| Variant::Gemm(gemm, ty)).collect())
}
