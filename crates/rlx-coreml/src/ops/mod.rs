//! Nodes as MIL operations, a file for each family.
//!
//! A translation writes operations or says why it cannot; the device's claims are the same functions, called on a builder that nobody
//! reads, so that what is claimed is what is written. There is no table of what is supported.
//!
//! What holds for all of them:
//! - Every value is held with 1 to 5 dimensions, which is what Core ML has: a scalar as `[1]`, more than five dimensions as one
//!   ([`held`]).
//! - Integers are held as `int32`. MIL's arithmetic on them is exact as long as no result leaves the type's range, and the range of the
//!   element type in the graph: where that is not sure ([`crate::ranges`]), an op is not claimed.

mod context;
mod contraction;
mod control;
mod convert;
mod elementwise;
mod index;
mod movement;
mod norm;
mod reduce;
mod windows;

use rlx_ir::Op;

pub use self::context::{Ctx, Declared, MAX_RANK, cast, held, holding};
use crate::mil::{Builder, Mil, Tensor};
use crate::ranges::Range;
use crate::scope::Operand;

/// Checks what holds for every op: types that MIL has, and no dimension of 0.
fn check<'a>(values: impl Iterator<Item = &'a Declared>) -> Mil<()> {
    for value in values {
        holding(value.dtype)?;
        if value.dims.contains(&0) {
            return Err("Core ML has no tensors without elements".to_string());
        }
        if value.dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).is_none_or(|n| n > i32::MAX as usize)
        {
            return Err("Core ML counts elements with 32 bits".to_string());
        }
    }
    Ok(())
}

/// Writes a node; its results, as they are held. `ranges` are the values that results of integers may have.
///
/// # Errors
/// The reason why Core ML does not have it.
pub fn write(
    b: &mut Builder,
    op: &Op,
    operands: Vec<Operand>,
    results: Vec<Declared>,
    ranges: Vec<Range>,
) -> Mil<Vec<Tensor>> {
    check(operands.iter().map(|operand| &operand.declared).chain(&results))?;
    match op {
        Op::If { then, otherwise, .. } => control::choice(b, &operands, &results, then, otherwise),
        Op::Loop { body, carried, scanned, .. } => {
            control::repeat(b, &control::Parts::of(&operands, *carried, *scanned)?, &results, &body.graph)
        }
        _ => {
            let ins = operands.iter().map(|operand| operand.tensor(b)).collect::<Mil<Vec<_>>>()?;
            let ranges = operands.iter().map(|operand| operand.range).chain(ranges).collect();
            let given = operands.into_iter().map(|operand| operand.declared).collect();
            translate(op, &mut Ctx { b, ins, given, results, ranges })
        }
    }
}

/// Writes a node without bodies.
fn translate(op: &Op, ctx: &mut Ctx<'_>) -> Mil<Vec<Tensor>> {
    let one = |t: Mil<Tensor>| t.map(|t| vec![t]);
    match op {
        Op::Activation(f) => one(elementwise::activation(ctx, *f)),
        Op::Binary(f) => one(elementwise::binary(ctx, *f)),
        Op::Compare(f) => one(elementwise::compare(ctx, *f)),
        Op::Where => one(elementwise::choose(ctx)),
        Op::Predicate(p) => one(elementwise::predicate(ctx, *p)),
        Op::Cast { to } => one(convert::cast_to(ctx, *to)),
        Op::MatMul => one(contraction::matmul(ctx)),
        Op::Reshape { .. } => one(movement::reshape(ctx)),
        Op::Transpose { perm } => one(movement::transpose(ctx, perm)),
        Op::Expand { .. } => one(movement::expand(ctx)),
        Op::Slice { starts, steps, .. } => one(movement::slice(ctx, starts, steps)),
        Op::Concat { axis } => one(movement::concat(ctx, *axis)),
        Op::Tile { .. } => one(movement::tile(ctx)),
        Op::Pad { before, after, mode } => one(movement::pad(ctx, before, after, *mode)),
        Op::Iota { axis, .. } => one(movement::iota(ctx, *axis)),
        Op::Gather { axis } => one(index::gather(ctx, *axis)),
        Op::GatherElements { axis } => one(index::gather_elements(ctx, *axis)),
        Op::GatherNd { batch_dims } => one(index::gather_nd(ctx, *batch_dims)),
        Op::ScatterElements { axis, reduction } => one(index::scatter_elements(ctx, *axis, *reduction)),
        Op::ScatterNd { reduction } => one(index::scatter_nd(ctx, *reduction)),
        Op::UpdateSlice { axis } => one(index::update_slice(ctx, *axis)),
        Op::Reduce { op, axes, .. } => one(reduce::reduce(ctx, *op, axes)),
        Op::Cumulative { op, axis, exclusive, reverse } => {
            one(reduce::cumulative(ctx, *op, *axis, *exclusive, *reverse))
        }
        Op::ArgReduce { op, axis, last, .. } => one(reduce::arg_reduce(ctx, *op, *axis, *last)),
        Op::TopK { axis, largest, sorted, .. } => reduce::top_k(ctx, *axis, *largest, *sorted),
        Op::Conv { strides, pads, dilations, groups, format } => {
            one(windows::conv(ctx, strides, pads, dilations, *groups, *format))
        }
        Op::ConvTranspose { strides, pads, dilations, output_padding, groups } => {
            one(windows::conv_transpose(ctx, strides, pads, dilations, output_padding, *groups))
        }
        Op::Pool { kind, kernel, strides, pads, dilations, count_include_pad, format, .. } => {
            let window = windows::Window { kernel, strides, pads, dilations };
            one(windows::pool(ctx, *kind, &window, *count_include_pad, *format))
        }
        Op::Softmax { axis } => one(norm::softmax(ctx, *axis)),
        Op::LayerNorm { axis, eps } => one(norm::layer_norm(ctx, *axis, *eps)),
        op => Err(format!("MIL has no operation for {}", op.kind())),
    }
}
