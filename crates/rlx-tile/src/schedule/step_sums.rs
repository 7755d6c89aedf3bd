//! A step of LIR as sums of products and what is before and behind them: around a matmul, or around a convolution, which is a matmul of windows. What a
//! program is made of is the same for both, and for a program of parts ([`super::step_parts`]).
//!
//! Operands are read through the step's own views: whether one is transposed, repeated along the batch, and how many of its elements may be
//! accessed at once follows from its strides. The epilogue is made from the body by the code that makes whole kernels of it
//! ([`MatMulParts`]), so both round at the same places; only the sums are other chains.

use std::sync::Arc;

use rlx_ir::{DType, Extent};
use rlx_kernel::UniformArg;
use rlx_kernel::ir::BufferDecl;
use rlx_kernel::schedule::{
    Arg, Epilogue, Joined, MatMulOperand, MatMulParts, MatMulRead, Scheduled, StepDesc, Unscheduled,
};

use super::launch::{Bound, StepLaunch};
use super::matmul::{Matmul, matmul};
use super::matmul_groups::refused;
use super::parts::MULTIPLE;
use super::step_conv::{self, StepConv};
use super::step_operands::{Matrix, Operands, add_prologues};
use super::suited::{
    computed_tilings_for, filling_first, group_tilings_for, in_smaller_rounds, multiplies,
    smallest_of_groups, tilings_for, with_turns,
};
use super::tilings::Tiling;
use crate::atom::{Arch, Vendor};
use crate::scalar::Scalar;

/// A step as sums of products.
pub(super) struct StepSums<'s> {
    around: Around<'s>,
    /// Rows of the result.
    pub(super) m: Extent,
    /// Columns.
    pub(super) n: Extent,
    /// What is summed over.
    pub(super) k: Extent,
    /// Dimensions along which that repeats.
    pub(super) batch: Vec<Extent>,
    dtype: DType,
}

enum Around<'s> {
    MatMul(MatMulParts<'s>),
    Conv(StepConv<'s>),
}

/// What all programs of a step have in common that do all of it, and what they are bound to.
pub(super) struct Whole {
    what: Matmul,
    bindings: Vec<Arg>,
    uniforms: Vec<UniformArg>,
}

/// How the depth of a program is divided.
#[derive(Clone, Copy)]
pub(super) struct Divided {
    /// How many parts.
    pub(super) count: Extent,
    /// How much of the depth each is.
    pub(super) each: Extent,
}

/// Tiles of the group level that keep half of a GPU's multiprocessors busy.
const ENOUGH: i64 = 64;

impl<'s> StepSums<'s> {
    /// The sums of a step around a matmul or a convolution of f16 or bf16.
    ///
    /// # Errors
    /// A step around something else, or of which no program is made.
    pub(super) fn of(arch: Arch, step: &'s StepDesc) -> Scheduled<Self> {
        if let Some(conv) = step_conv::parts(arch, step) {
            let conv = conv?;
            let (m, n, k, batch) = (conv.parts.rows(), conv.parts.filters, conv.depth(), conv.batch());
            return Ok(StepSums { m, n, k, batch, dtype: conv.parts.dtype, around: Around::Conv(conv) });
        }
        let parts = MatMulParts::of(step)?;
        let (m, n, k, dtype) = (parts.m, parts.n, parts.k, parts.dtype);
        match multiplies(arch, dtype) {
            true => {
                Ok(StepSums { m, n, k, batch: parts.batch.clone(), dtype, around: Around::MatMul(parts) })
            }
            false => Err(Unscheduled(format!("{} has no matrix instruction of {dtype}", arch.name()))),
        }
    }

    /// The tilings for a result of this size, the one that suits it first. All give the same bits.
    pub(super) fn tilings(&self, arch: Arch, size: (Extent, Extent)) -> Vec<Tiling> {
        if arch.has_groups() && self.is_of_groups() {
            return group_tilings_for(arch, size, self.k);
        }
        let arch = arch.of_warps();
        match &self.around {
            Around::MatMul(parts) if parts.operands().iter().any(MatMulOperand::is_computed) => {
                computed_tilings_for(arch, size)
            }
            _ => filling_first(tilings_for(arch, size), size, self.matrices()),
        }
    }

    /// The tilings for its own size on a device of so many compute units.
    pub(super) fn tilings_on(&self, arch: Arch, units: Option<u32>) -> Vec<Tiling> {
        let (size, all) = ((self.m, self.n), self.tilings(arch, (self.m, self.n)));
        match units.filter(|_| arch == Arch::Sm90a && all.iter().any(|tiling| tiling.groups)) {
            Some(units) => {
                with_turns(in_smaller_rounds(all, size, self.matrices(), units), size, self.matrices(), units)
            }
            None => all,
        }
    }

    /// Whether the group level multiplies it.
    fn is_of_groups(&self) -> bool {
        let as_is = match &self.around {
            Around::MatMul(parts) => !parts.operands().iter().any(MatMulOperand::is_computed),
            Around::Conv(conv) => conv.window.is_empty() || conv.is_mapped(),
        };
        as_is
            && self.operands().is_ok_and(|operands| {
                operands.have_rows_apart() && refused(&self.matmul(&operands, None).0).is_none()
            })
    }

    /// Whether the smallest tiles of the group level are so many that they need no parts: undivided, they are faster than the parts of warps.
    pub(super) fn is_filled_by_groups(&self, arch: Arch) -> bool {
        let (tile_rows, tile_cols) = smallest_of_groups(arch);
        let (tile, cols) = (i64::from(tile_rows), i64::from(tile_cols));
        let rows = self.m.as_const().filter(|&rows| rows >= tile);
        let tiles = rows.and_then(|rows| {
            (self.n.ceil_div(cols) * self.matrices() * ((rows + tile - 1) / tile)).as_const()
        });
        tiles.is_some_and(|tiles| tiles >= ENOUGH) && self.is_of_groups()
    }

    /// How many matrices are multiplied.
    pub(super) fn matrices(&self) -> Extent {
        self.batch.iter().fold(Extent::Const(1), |n, &d| n * d)
    }

    /// How many results there are.
    pub(super) fn results(&self) -> Extent {
        self.m * self.n * self.matrices()
    }

    /// What parts of the depth are multiples of: no block of weights begins within one, unless there is one block.
    pub(super) fn multiple_of_parts(&self) -> i64 {
        let Around::MatMul(parts) = &self.around else { return MULTIPLE };
        let blocks = parts.operands().iter().flat_map(|operand| &operand.reads).filter_map(|read| read.block);
        blocks.filter(|&n| self.k.as_const().is_none_or(|k| k > n)).fold(MULTIPLE, least_common_multiple)
    }

    /// What is multiplied, with the result of the step.
    fn operands(&self) -> Scheduled<Operands> {
        match &self.around {
            Around::MatMul(parts) => Operands::of(parts, Matrix::of(&parts.result()?, (self.m, self.n))?),
            Around::Conv(conv) => Ok(conv.operands()),
        }
    }

    /// What is multiplied, with the sums of one part after the other as the result.
    pub(super) fn operands_of_parts(&self) -> Scheduled<Operands> {
        match &self.around {
            Around::MatMul(parts) => {
                let (mut batch, mut inside) = (Vec::new(), self.m * self.n);
                for &size in self.batch.iter().rev() {
                    batch.insert(0, inside);
                    inside = inside * size;
                }
                Operands::of(parts, Matrix::of_scratch(self.n, self.n, batch))
            }
            Around::Conv(conv) => {
                // Filters of all groups are neighbours, as in the result.
                let scratch =
                    Matrix::of_scratch(self.n, self.n * self.matrices(), vec![self.n; self.batch.len()]);
                Ok(conv.operands().with_result(scratch))
            }
        }
    }

    /// The matmul of operands without bodies, and the values of its uniforms.
    pub(super) fn matmul(&self, operands: &Operands, divided: Option<Divided>) -> (Matmul, Vec<UniformArg>) {
        let mut what = operands.matmul(self.dtype, self.batch.len() + usize::from(divided.is_some()));
        what.parts = divided.is_some();
        let count = divided.map(|of| of.count);
        let sizes = [self.m, self.n, self.k].into_iter().chain(count).chain(self.batch.iter().copied());
        let mut uniforms: Vec<UniformArg> = sizes.map(UniformArg::Extent).collect();
        uniforms.extend(operands.uniforms(divided.map(|of| (of.each, self.results()))));
        uniforms.extend(divided.map(|of| UniformArg::Extent(of.each)));
        if let Around::Conv(conv) = &self.around {
            what.window = conv.window.clone();
            uniforms.extend(conv.window_uniforms());
        }
        (what, uniforms)
    }

    /// Puts the bodies of operands into a matmul, whose buffers are bound to these and whose uniforms have these values.
    ///
    /// # Errors
    /// A body that cannot be written.
    pub(super) fn add_prologues(
        &self,
        what: &mut Matmul,
        bindings: &[Arg],
        uniforms: &[UniformArg],
    ) -> Scheduled<()> {
        match &self.around {
            Around::MatMul(parts) => add_prologues(parts, what, bindings, uniforms),
            Around::Conv(_) => Ok(()),
        }
    }

    /// What the epilogue is given beside sums, and whether the last of it is what the result is stored over. Apple's lanes do not know which sums they have.
    fn beside(&self, arch: Arch) -> (Vec<MatMulRead>, bool) {
        let mut reads = match &self.around {
            _ if arch.vendor() == Vendor::Apple => Vec::new(),
            Around::MatMul(parts) => parts.beside(),
            Around::Conv(conv) => conv.parts.beside(),
        };
        let buffer = |arg: Arg| match &self.around {
            Around::MatMul(parts) => parts.operand(arg).buffer,
            Around::Conv(conv) => conv.parts.operand(arg).buffer,
        };
        let is_over = |read: &MatMulRead| buffer(read.arg) == buffer(Arg::Output(0));
        reads.sort_by_key(is_over);
        match reads.iter().filter(|read| is_over(read)).count() {
            // Inputs that are one in memory: their body reads them by itself.
            2.. => (Vec::new(), false),
            over => (reads, over > 0),
        }
    }

    fn epilogue(
        &self,
        buffers: &[(BufferDecl, Arg)],
        uniforms: &[(String, UniformArg)],
        beside: &[MatMulRead],
    ) -> Scheduled<Option<Epilogue>> {
        match &self.around {
            Around::MatMul(parts) => parts.epilogue(buffers, uniforms, beside),
            Around::Conv(conv) => conv.parts.epilogue(buffers, uniforms, beside),
        }
    }

    /// The step behind sums of so many parts.
    ///
    /// # Errors
    /// A body that is not in order.
    pub(super) fn joined(&self, count: Extent) -> Scheduled<Joined> {
        match &self.around {
            Around::MatMul(parts) => parts.joined(count),
            Around::Conv(conv) => conv.parts.joined(count),
        }
    }

    /// How many workgroups do all matrices by a tiling.
    pub(super) fn groups(&self, tiling: &Tiling) -> Extent {
        let (tm, tn, _) = tiling.tile;
        self.m.ceil_div(i64::from(tm)) * self.n.ceil_div(i64::from(tn)) * self.matrices()
    }

    /// What does all of the step.
    ///
    /// # Errors
    /// What no program can do.
    pub(super) fn whole(&self, arch: Arch) -> Scheduled<Whole> {
        let (beside, over) = self.beside(arch);
        let operands = self.operands()?.beside(&beside, (self.m, self.n), over)?;
        let (mut what, mut uniforms) = self.matmul(&operands, None);
        let mut bindings: Vec<Arg> = operands.bindings().into_iter().flatten().collect();
        let buffers: Vec<_> = what.all_buffers().into_iter().zip(bindings.iter().copied()).collect();
        let named: Vec<_> = what.all_uniforms().into_iter().zip(uniforms.iter().copied()).collect();
        if let Some(epilogue) = self.epilogue(&buffers, &named, &beside)? {
            what.buffers = epilogue.kernel.buffers[buffers.len()..].to_vec();
            what.uniforms = epilogue.kernel.uniforms[named.len()..].to_vec();
            what.epilogue = Some(Scalar::of_kernel(epilogue.kernel, beside.len())?);
            (bindings, uniforms) = (epilogue.bindings, epilogue.uniforms);
        }
        self.add_prologues(&mut what, &bindings, &uniforms)?;
        Ok(Whole { what, bindings, uniforms })
    }

    /// The dispatch that does all of the step, divided as `tiling` says.
    ///
    /// # Errors
    /// What no program can do.
    pub(super) fn launch(&self, arch: Arch, whole: &Whole, tiling: &Tiling) -> Scheduled<StepLaunch> {
        let arch = if tiling.groups { arch } else { arch.of_warps() };
        let program = matmul(arch, &whole.what, tiling).map_err(|e| Unscheduled(e.to_string()))?;
        Ok(StepLaunch {
            program: Arc::new(program),
            bindings: whole.bindings.iter().copied().map(Bound::Operand).collect(),
            uniforms: whole.uniforms.clone(),
            groups: self.groups(tiling),
            tiling: *tiling,
            size: (self.m, self.n),
            checks: Vec::new(),
            lists: None,
        })
    }
}

fn least_common_multiple(a: i64, b: i64) -> i64 {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a / x.max(1) * b
}
