//! What the CPU gains by 16-bit types, which the mixed policies ask ([`Target::gain`](rlx_opt::Target::gain)).
//!
//! Kernels compute in f32, but for products of bf16 where VDPBF16PS makes two in the time of one ([`Isa::multiplies_bf16`]). Elsewhere the
//! numbers are widened in front of each product, which a matmul of many rows takes a seventh longer by, or more. Weights that are read for a few rows only are
//! bound by memory, of which they take half. (`cargo run --release -p rlx-cpu --example gemm_short_bench` measures all three.)

use rlx_ir::{DType, Dim, Graph, Node, Op, Shape};
use rlx_opt::Gain;

use crate::isa::{Isa, IsaKind};

/// Rows of a product by which its weights are bound by memory, at most.
const FEW_ROWS: usize = 4;

/// Weights of such a product, at least: as many as the caches next to a core do not hold in f32.
const MANY_WEIGHTS: usize = 256 << 10;

/// What computing `node`, which is f32, in this 16-bit type gains.
pub(crate) fn gain(isa: Isa, node: &Node, graph: &Graph, short: DType) -> Gain {
    let fast = short == DType::BF16 && isa.multiplies_bf16();
    let operand = |i: usize| node.inputs.get(i).map(|&id| graph.shape(id));
    match &node.op {
        // A channel of its own is multiplied as f32, whatever it is stored in.
        Op::Conv { groups: 2.., .. } if operand(1).is_some_and(has_one_channel) => as_f32(fast, short),
        Op::MatMul | Op::DotGeneral { .. } | Op::GroupedMatMul | Op::Conv { .. } if fast => Gain::Time,
        Op::ConvTranspose { .. } => as_f32(fast, short),
        Op::Recurrent { .. } if fast => Gain::Time,
        Op::Recurrent { .. } if has_few_sequences(node, operand(1)) && isa.kind() != IsaKind::Portable => {
            Gain::Time
        }
        Op::Attention { .. } if operand(0).is_some_and(has_few_queries) => Gain::Bytes,
        Op::Attention { .. } if fast => Gain::Time,
        Op::MatMul | Op::Conv { .. } if has_few_rows(node, operand(1)) && isa.kind() != IsaKind::Portable => {
            Gain::Time
        }
        Op::MatMul | Op::DotGeneral { .. } | Op::GroupedMatMul => as_f32(false, short),
        Op::Conv { .. } | Op::Attention { .. } | Op::Recurrent { .. } => as_f32(false, short),
        _ => Gain::Bytes,
    }
}

/// What products gain that are computed as those of f32: their neighbours' short images, if those are faster.
fn as_f32(neighbours_are_fast: bool, short: DType) -> Gain {
    match neighbours_are_fast {
        true => Gain::Bytes,
        false => Gain::Nothing(format!(
            "products of {short} are widened to f32 first here, which takes longer unless many weights are read for at most {FEW_ROWS} rows"
        )),
    }
}

/// The product of these dimensions, if all are known.
fn product(dims: &[Dim]) -> Option<usize> {
    dims.iter().try_fold(1usize, |n, dim| n.checked_mul(dim.as_static()?))
}

/// Whether the weights of a convolution are for one channel each.
fn has_one_channel(weights: &Shape) -> bool {
    weights.dims().get(1).and_then(|d| d.as_static()) == Some(1)
}

/// Whether attention `[…, heads, queries, size]` has as few queries as it multiplies one by one.
fn has_few_queries(queries: &Shape) -> bool {
    let &[.., queries, _] = queries.dims() else { return false };
    queries.as_static().is_some_and(|n| n <= FEW_ROWS)
}

/// Whether many weights meet few sequences `[steps, sequences, hidden]` at each step.
fn has_few_sequences(node: &Node, weights: Option<&Shape>) -> bool {
    let sequences = node.shape.dims().get(1).and_then(|d| d.as_static());
    let weights = weights.and_then(|w| product(w.dims()));
    sequences.is_some_and(|n| n <= FEW_ROWS) && weights.is_some_and(|n| n >= MANY_WEIGHTS)
}

/// Whether many weights meet few rows each.
fn has_few_rows(node: &Node, weights: Option<&Shape>) -> bool {
    let rows = || {
        let columns = match node.op {
            Op::Conv { .. } => weights?.dims().first(),
            _ => weights?.dims().last(),
        };
        // Matrices of a batch have rows of their own.
        let rank = weights?.dims().len();
        let own = match node.op {
            Op::MatMul if rank > 2 => product(&weights?.dims()[..rank - 2])?,
            _ => 1,
        };
        Some((
            product(node.shape.dims())? / columns?.as_static()?.max(1) / own.max(1),
            product(weights?.dims())?,
        ))
    };
    rows().is_some_and(|(rows, weights)| rows <= FEW_ROWS && weights >= MANY_WEIGHTS)
}
