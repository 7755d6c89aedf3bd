//! Tensor memory, of sm_100a: where `tcgen05` keeps sums, beside the registers of all lanes.
//!
//! Programs of this kind are those of the [group level](super) with a third role. The *multiplier* is one lane: it begins to multiply what the producer
//! has copied, and sums are in *accumulators* of tensor memory. Consumers are not asked until those are complete; then they load them into fragments and store.
//!
//! ```text
//! producer, for each step:     multiplier, for each step:          consumers:
//!   wait.empty                   wait.full   its bytes are there     wait.full    all steps are multiplied
//!   expect                       fence.tensor                        fence.tensor
//!   copy.tensor                  mma.tensor                          load.tensor
//!                                commit.tensor to empty              store
//!                              commit.tensor, once, to what
//!                              consumers wait for
//! ```
//!
//! Tensor memory has 128 lanes of 512 columns, of 32 bits each. An accumulator has all lanes, one for each row of 128, and a column for each of the sums'. A workgroup allocates
//! its columns before the roles part and frees them behind them. Each warp of a group may load a quarter of the lanes: warp `r` of a group those from `32·r` on. So warp groups are
//! beside each other ([`Program::warps`] are 4 × groups), each with some of the columns.
//!
//! A load deals out 16 lanes as `mma.sync` deals out sums of 16 rows, so fragments, stores and epilogues are those of all other programs.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display};

use crate::group::{Barrier, GroupTile};
use crate::ir::{Counter, Fragment, Index, Program, Size};

/// Lanes of tensor memory, and rows that one instruction multiplies.
pub const LANES: u32 = 128;
/// Lanes that a warp may load.
pub const WARP_LANES: u32 = 32;
/// Columns of tensor memory.
pub const MOST_COLUMNS: u32 = 512;
/// The least that are allocated.
const LEAST_COLUMNS: u32 = 32;
/// Bytes of workgroup memory that an allocation leaves its address in, and those behind that keep what follows aligned.
const ADDRESS_BYTES: u64 = 8;

/// Sums in tensor memory, by their number in [`crate::group::Decls::accumulators`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Accumulator(pub u32);

/// Sums of 128 rows, f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccumulatorDecl {
    /// Columns, a multiple of 16, at most 256.
    pub cols: u32,
}

/// A statement about sums in tensor memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tensor {
    /// Begins `sum += left · right` over the depth of a stage, for 128 rows of the left tile from `row` on. In the first iteration of its loop it sets the sums instead.
    Mma {
        /// The sums.
        sum: Accumulator,
        /// The left operand.
        left: GroupTile,
        /// The first of its rows.
        row: u32,
        /// The right operand, all of it.
        right: GroupTile,
        /// The right tile's rows run along the depth, and its blocks along the columns.
        depth_rows: bool,
        /// The iteration.
        counter: Counter,
    },
    /// The barrier's stage of this iteration counts an arrival when all multiplications begun so far are done.
    Commit(Barrier, Counter),
    /// What the waits before it were for is seen by the statements on tensor memory behind it.
    Fence,
    /// Loads 16 rows of the sums of a warp's own lanes, and waits until they are there; 0 where the multiplications had no step.
    Load {
        /// Where to.
        to: Fragment,
        /// Where from.
        from: Accumulator,
        /// The first lane, of the warp's own: 0 or 16.
        row: u32,
        /// The first column.
        col: Index,
        /// What the multiplications went along.
        depth: Size,
    },
}

impl Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tensor::Mma { sum, left, right, row, depth_rows, counter } => {
                let (c, order) = (counter.0, if *depth_rows { " depth.rows" } else { "" });
                write!(f, "mma.tensor d{} += s{}[c{c}][{row}] s{}[c{c}]{order}", sum.0, left.0, right.0)
            }
            Tensor::Commit(b, c) => write!(f, "commit.tensor m{}[c{}]", b.0, c.0),
            Tensor::Fence => f.write_str("fence.tensor"),
            Tensor::Load { to, from, row, col, depth } => {
                write!(f, "load.tensor f{} = d{}[{row}, {col}] in {depth}", to.0, from.0)
            }
        }
    }
}

impl Program {
    /// The first column of an accumulator, behind those before it.
    pub fn first_column(&self, of: Accumulator) -> u32 {
        self.group.accumulators.iter().take(of.0 as usize).map(|d| d.cols).sum()
    }

    /// Columns of tensor memory that a workgroup allocates: a power of two.
    pub fn tensor_columns(&self) -> u32 {
        match self.group.accumulators.iter().fold(0, |n: u32, d| n.saturating_add(d.cols)) {
            0 => 0,
            n => n.checked_next_power_of_two().unwrap_or(u32::MAX).max(LEAST_COLUMNS),
        }
    }

    /// Bytes of workgroup memory for the address of what was allocated.
    pub(crate) fn address_bytes(&self) -> u64 {
        if self.group.accumulators.is_empty() { 0 } else { ADDRESS_BYTES }
    }
}
