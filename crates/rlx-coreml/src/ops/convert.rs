//! Casts.

use rlx_ir::DType;

use super::context::{Ctx, cast, holding};
use crate::mil::{Builder, Elements, Mil, Tensor, Type};
use crate::ranges::Range;

/// The largest float below 2³¹.
const LARGEST: f32 = 2_147_483_520.0;

/// `Cast`.
pub fn cast_to(ctx: &mut Ctx<'_>, to: DType) -> Mil<Tensor> {
    let (x, from) = (ctx.x(0), ctx.given[0].dtype);
    let ty = holding(to)?;
    match (x.ty, ty) {
        (Type::I32, Type::I32) => Ok(wrapped(ctx, &x, from, to)?),
        (from_ty, Type::I32) if from_ty.is_float() => truncated(ctx, &x, to),
        (Type::F32 | Type::F16 | Type::I32, Type::Bool) => Ok(ctx.compare_number("not_equal", &x, 0.0)),
        _ => Ok(cast(ctx.b, &x, ty)),
    }
}

/// Integers as other integers, which wrap around.
fn wrapped(ctx: &mut Ctx<'_>, x: &Tensor, from: DType, to: DType) -> Mil<Tensor> {
    let given = ctx.ranges[0];
    if given.fits(to) {
        return Ok(x.clone());
    }
    let bits = 8 * to.size_bytes();
    if bits >= 32 {
        return Err(format!("Core ML computes with 32-bit integers, and not all {from} are {to}"));
    }
    let low = ctx.with_number("mod", x, (1u32 << bits) as f32);
    if !to.is_signed_int() {
        return Ok(low);
    }
    let high = ctx.compare_number("greater_equal", &low, (1u32 << (bits - 1)) as f32);
    let negative = ctx.with_number("sub", &low, (1u32 << bits) as f32);
    Ok(ctx.select(&high, &negative, &low))
}

/// Floats as integers: towards 0, the nearest integer of the type where there is none, 0 for NaN.
fn truncated(ctx: &mut Ctx<'_>, x: &Tensor, to: DType) -> Mil<Tensor> {
    let Some((low, high)) = to.int_range() else { return Err(format!("{to} is no integer type")) };
    let range = Range::of(to);
    if 8 * to.size_bytes() > 32 || !range.fits(DType::I32) {
        return Err(format!("Core ML computes with 32-bit integers, and floats as {to} may not fit"));
    }
    let x = cast(ctx.b, x, Type::F32);
    let is_number = ctx.binary("equal", &x, &x, Type::Bool, &x.dims);
    let zero = ctx.b.number(Type::F32, 0.0);
    let number = ctx.select(&is_number, &x, &zero);
    let bounded = ctx.with_number("maximum", &number, low as f32);
    let bounded = ctx.with_number("minimum", &bounded, (high as f32).min(LARGEST));
    let integers = cast(ctx.b, &bounded, Type::I32);
    if high < i128::from(i32::MAX) {
        return Ok(integers);
    }
    let beyond = ctx.compare_number("greater_equal", &number, 2_147_483_648.0);
    let largest = largest(ctx.b);
    Ok(ctx.select(&beyond, &largest, &integers))
}

fn largest(b: &mut Builder) -> Tensor {
    b.constant(Elements::Ints(vec![i32::MAX]), &[])
}
