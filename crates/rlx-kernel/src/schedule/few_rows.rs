//! Matmuls of few rows by kernels that divide their sums: what a decoder does for each token.
//!
//! A kernel of [`gemm`](super::gemm) with a divided sum gives other bits than the variants of a step do, so it is none of these: a device takes it in their
//! place where that is allowed, for runs of as few rows as it is for.

use rlx_ir::{DType, Extent, Op};

use super::gemm::{GemmVariant, MOST_ROWS, Room};
use super::{Launch, Scheduled, StepDesc, anchor_of, matmul, reject};

/// A kernel that does all of a step where its rows are few.
#[derive(Debug, Clone)]
pub struct FewRows {
    /// What it is called in reports.
    pub name: String,
    /// The dispatch.
    pub launch: Launch,
    /// Rows of the result.
    pub rows: Extent,
    /// For how many rows it is, at most.
    pub most_rows: i64,
}

/// Whether there are such kernels for elements of a type.
pub fn divides_sums_of(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// The kernels of a step for few rows, first those for the fewest: one where the rows are known. The bits of a row are the same by all of them. How sums are
/// divided depends on the step's sizes, but for its rows, and on what a workgroup may have.
///
/// # Errors
/// Why there are none.
pub fn few_rows(step: &StepDesc, room: Room) -> Scheduled<Vec<FewRows>> {
    let Some(anchor) = anchor_of(step)?.filter(|anchor| anchor.op == Op::MatMul) else {
        return reject("no matmul");
    };
    let rows = matmul::rows(step, anchor)?;
    let counts = match rows {
        Extent::Const(rows @ 1..=MOST_ROWS) => vec![rows],
        Extent::Const(rows) => return reject(format!("{rows} rows")),
        _ => vec![1, MOST_ROWS],
    };
    let kernel = |most_rows: i64| {
        let gemv = matmul::gemv(step, anchor, most_rows, room)?;
        let mut launches = matmul::schedule(step, anchor, GemmVariant::Gemv(gemv))?;
        match (launches.pop(), launches.is_empty()) {
            (Some(launch), true) => Ok(FewRows { name: gemv.to_string(), launch, rows, most_rows }),
            _ => reject("several dispatches"),
        }
    };
    counts.into_iter().map(kernel).collect()
}
