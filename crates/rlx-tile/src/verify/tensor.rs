//! Tensor memory: accumulators, and what is multiplied into them and loaded from them.

use super::groups::{Counted, has_columns};
use super::{Checked, Rule, Verifier, must};
use crate::group::tensor::{Accumulator, AccumulatorDecl, LANES, MOST_COLUMNS, Tensor, WARP_LANES};
use crate::group::{GROUP_WARPS, WARP_ROWS};
use crate::ir::Role;

/// Warp groups of consumers at most.
const MOST_GROUPS: u32 = 7;

impl Verifier<'_> {
    pub(super) fn tensor_declarations(&self) -> Checked {
        let (p, (rows, cols)) = (self.p, self.p.warps);
        must(rows == GROUP_WARPS && (1..=MOST_GROUPS).contains(&cols), "roles", || {
            Rule::Declaration("consumers are 1 to 7 warp groups beside each other".to_owned())
        })?;
        must(p.group.registers.is_none(), "registers", || {
            Rule::Declaration("registers are divided where consumers multiply".to_owned())
        })?;
        p.group.accumulators.iter().enumerate().try_for_each(|(i, d)| {
            must(d.cols.is_multiple_of(16) && (16..=256).contains(&d.cols), &format!("d{i}"), || {
                Rule::Declaration("an accumulator has multiples of 16 columns, at most 256".to_owned())
            })
        })?;
        let columns = p.tensor_columns();
        must((1..=MOST_COLUMNS).contains(&columns), "accumulators", || {
            Rule::Declaration(format!("{columns} columns of tensor memory, which has {MOST_COLUMNS}"))
        })
    }

    fn accumulator(&self, at: &str, d: Accumulator) -> Result<AccumulatorDecl, (String, Rule)> {
        let decl = self.p.group.accumulators.get(d.0 as usize);
        decl.copied().ok_or_else(|| (at.to_owned(), Rule::Unknown(format!("d{}", d.0))))
    }

    pub(super) fn tensor(&self, at: &str, tensor: &Tensor, counted: &mut Counted) -> Checked {
        match tensor {
            Tensor::Mma { sum, left, row, right, depth_rows, counter } => {
                let sums = self.accumulator(at, *sum)?;
                self.known_counter(at, *counter)?;
                let stages = self.p.group.tiles.get(right.0 as usize).map_or(0, |t| t.stages);
                let (l, r) = (self.group_tile(at, *left, stages)?, self.group_tile(at, *right, stages)?);
                let fits = l.blocks == 1 && has_columns(&r, *depth_rows, sums.cols) && row % 8 == 0;
                must(fits, at, || {
                    Rule::Operand("tiles whose product is not the sums of 128 rows".to_owned())
                })?;
                let end = u64::from(*row) + u64::from(LANES);
                must(end <= u64::from(l.rows), at, || Rule::Outside(end, l.rows))
            }
            Tensor::Commit(b, c) => {
                self.barrier(at, *b, *c)?;
                counted.entry(*b).or_default().0 += 1;
                Ok(())
            }
            Tensor::Fence => Ok(()),
            Tensor::Load { to, from, row, col, depth } => {
                self.role(at, *to, Role::Sum)?;
                self.size(at, *depth)?;
                let (sums, f) = (self.accumulator(at, *from)?, self.p.fragment(*to));
                must(f.rows == WARP_ROWS && row.is_multiple_of(WARP_ROWS), at, || {
                    Rule::Operand("16 rows of sums are loaded, from a multiple of 16 on".to_owned())
                })?;
                let end = u64::from(*row) + u64::from(WARP_ROWS);
                must(end <= u64::from(WARP_LANES), at, || Rule::Outside(end, WARP_LANES))?;
                self.position(at, col, true, 16)?;
                let end = self.end(at, col, f.cols)?;
                must(end <= u64::from(sums.cols), at, || Rule::Outside(end, sums.cols))
            }
        }
    }
}
