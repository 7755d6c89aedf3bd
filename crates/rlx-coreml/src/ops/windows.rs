//! Convolution and pooling, channels first.

use rlx_ir::op::{DataFormat, PoolKind};
use rlx_ir::ops::attr::NamedVariant;

use super::context::{Ctx, cast, reshaped};
use crate::mil::{Arg, Mil, Tensor, Type};

/// What slides: sizes for each spatial dimension.
pub struct Window<'a> {
    /// The window's size.
    pub kernel: &'a [usize],
    /// Its step.
    pub strides: &'a [usize],
    /// The padding before each dimension, then after each.
    pub pads: &'a [usize],
    /// The distance of its taps.
    pub dilations: &'a [usize],
}

/// Padding as MIL has it: before and after, dimension by dimension.
fn pairs(pads: &[usize]) -> Vec<usize> {
    let (before, after) = pads.split_at(pads.len() / 2);
    before.iter().zip(after).flat_map(|(&b, &a)| [b, a]).collect()
}

fn channels_first(format: DataFormat) -> Mil<()> {
    if format == DataFormat::ChannelsFirst { Ok(()) } else { Err("MIL has the channels first".to_string()) }
}

fn floats(ctx: &Ctx<'_>) -> Mil<()> {
    if ctx.ins[0].ty.is_float() { Ok(()) } else { Err("MIL has it of floats only".to_string()) }
}

/// `Conv`.
pub fn conv(
    ctx: &mut Ctx<'_>,
    strides: &[usize],
    pads: &[usize],
    dilations: &[usize],
    groups: usize,
    format: DataFormat,
) -> Mil<Tensor> {
    channels_first(format)?;
    let (held, out) = ctx.held_out()?;
    // Integers as floats, where every sum is one that 32-bit floats have.
    let ty = if held == Type::I32 { small_sums(ctx)? } else { held };
    if !ty.is_float() {
        return Err("MIL has it of numbers only".to_string());
    }
    if !ctx.ins[1].fixed && dilations.iter().any(|&d| d != 1) {
        return Err("MIL's convolutions by computed weights have no dilation".to_string());
    }
    let (x, w) = (ctx.x(0), ctx.x(1));
    let (x, w) = (cast(ctx.b, &x, ty), cast(ctx.b, &w, ty));
    let pads = ctx.b.ints(&pairs(pads));
    let (strides, dilations, groups) = (ctx.b.ints(strides), ctx.b.ints(dilations), ctx.b.int(groups));
    let kind = ctx.b.text("custom");
    let mut inputs: Vec<(&str, Arg<'_>)> = vec![
        ("x", (&x).into()),
        ("weight", (&w).into()),
        ("strides", (&strides).into()),
        ("pad_type", (&kind).into()),
        ("pad", (&pads).into()),
        ("dilations", (&dilations).into()),
        ("groups", (&groups).into()),
    ];
    let bias = ctx.ins.get(2).cloned();
    let bias = bias.map(|bias| cast(ctx.b, &bias, ty));
    if let Some(bias) = bias.as_ref().filter(|bias| bias.fixed) {
        inputs.push(("bias", bias.into()));
    }
    let result = ctx.b.op("conv", &inputs, ty, &out);
    let result = match bias {
        Some(bias) if !bias.fixed => with_bias(ctx, &result, &bias),
        _ => result,
    };
    Ok(cast(ctx.b, &result, held))
}

/// 32-bit floats, if they have every sum that a convolution of these integers can be: whole numbers below 2²⁴.
fn small_sums(ctx: &Ctx<'_>) -> Mil<Type> {
    let terms: usize = ctx.given[1].dims[1..].iter().product();
    let most = |index: usize| ctx.ranges.get(index).map_or(0, |range| range.high.max(-range.low)).max(0);
    let bias = if ctx.ins.len() > 2 { most(2) } else { 0 };
    let sum = most(0).saturating_mul(most(1)).saturating_mul(terms as i128).saturating_add(bias);
    if sum < 1 << 24 {
        Ok(Type::F32)
    } else {
        Err("MIL convolves floats, and sums may not fit them".to_string())
    }
}

/// The result and a number for each channel.
fn with_bias(ctx: &mut Ctx<'_>, x: &Tensor, bias: &Tensor) -> Tensor {
    let mut dims = vec![1; x.dims.len()];
    dims[1] = bias.len();
    let bias = reshaped(ctx.b, bias, &dims);
    ctx.binary("add", x, &bias, x.ty, &x.dims)
}

/// `ConvTranspose`: the whole result, of which the padding is cut off. What `output_padding` adds beyond it is nothing but the bias.
pub fn conv_transpose(
    ctx: &mut Ctx<'_>,
    strides: &[usize],
    pads: &[usize],
    dilations: &[usize],
    output_padding: &[usize],
    groups: usize,
) -> Mil<Tensor> {
    floats(ctx)?;
    let (ty, out) = ctx.held_out()?;
    let (x, w) = (ctx.x(0), ctx.x(1));
    if !w.fixed {
        return Err("MIL's transposed convolutions take fixed weights".to_string());
    }
    let spatial = strides.len();
    let (before, after) = pads.split_at(spatial);
    // Padding that is added back is not cut off at all.
    let cut: Vec<usize> = after.iter().zip(output_padding).map(|(&a, &o)| a.saturating_sub(o)).collect();
    let extra: Vec<usize> = after.iter().zip(output_padding).map(|(&a, &o)| o.saturating_sub(a)).collect();
    let mut dims = out.clone();
    for axis in 0..spatial {
        dims[2 + axis] =
            out[2 + axis].checked_sub(extra[axis]).filter(|&n| n > 0).ok_or("nothing but padding")?;
    }
    let pads = ctx.b.ints(&pairs(&[before, &cut].concat()));
    let (strides, dilations, groups) = (ctx.b.ints(strides), ctx.b.ints(dilations), ctx.b.int(groups));
    let kind = ctx.b.text("custom");
    let inputs = [
        ("x", (&x).into()),
        ("weight", (&w).into()),
        ("strides", (&strides).into()),
        ("pad_type", (&kind).into()),
        ("pad", (&pads).into()),
        ("dilations", (&dilations).into()),
        ("groups", (&groups).into()),
    ];
    let mut result = ctx.b.op("conv_transpose", &inputs, ty, &dims);
    if extra.iter().any(|&e| e > 0) {
        let border: Vec<usize> = [[0; 4].to_vec(), extra.iter().flat_map(|&e| [0, e]).collect()].concat();
        let (border, zero, mode) = (ctx.b.ints(&border), ctx.b.number(ty, 0.0), ctx.b.text("constant"));
        let inputs = [
            ("x", (&result).into()),
            ("pad", (&border).into()),
            ("mode", (&mode).into()),
            ("constant_val", (&zero).into()),
        ];
        result = ctx.b.op("pad", &inputs, ty, &out);
    }
    Ok(match ctx.ins.get(2).cloned() {
        Some(bias) => with_bias(ctx, &result, &bias),
        None => result,
    })
}

/// `Pool`.
pub fn pool(
    ctx: &mut Ctx<'_>,
    kind: PoolKind,
    window: &Window<'_>,
    count_include_pad: bool,
    format: DataFormat,
) -> Mil<Tensor> {
    channels_first(format)?;
    let (held, out): (Type, Vec<usize>) = ctx.held_out()?;
    // Floats have all short integers, so the largest of them is found exactly.
    let dtype = ctx.given[0].dtype;
    let short = kind == PoolKind::Max && dtype.is_int() && dtype.size_bytes() <= 2;
    let ty = if short { Type::F32 } else { held };
    if !ty.is_float() {
        return Err(format!("MIL has no {} pooling of {dtype}", kind.name()));
    }
    if window.dilations.iter().any(|&d| d != 1) {
        return Err("MIL's pooling has no dilation".to_string());
    }
    let x = ctx.x(0);
    let x = cast(ctx.b, &x, ty);
    // A last window beyond the padding is more padding, which a maximum does not see and a mean may not count.
    let spatial = window.kernel.len();
    let mut pads = window.pads.to_vec();
    for axis in 0..spatial {
        let needed = (out[2 + axis] - 1) * window.strides[axis] + window.kernel[axis];
        let there = x.dims[2 + axis] + pads[axis] + pads[spatial + axis];
        if needed > there {
            if kind == PoolKind::Average && count_include_pad {
                return Err("MIL's mean counts padding beyond the declared".to_string());
            }
            pads[spatial + axis] += needed - there;
        }
    }
    let (kernel, strides) = (ctx.b.ints(window.kernel), ctx.b.ints(window.strides));
    let (custom, pads) = (ctx.b.text("custom"), ctx.b.ints(&pairs(&pads)));
    let (exclude, no) = (ctx.b.flag(!count_include_pad), ctx.b.flag(false));
    let mut inputs: Vec<(&str, Arg<'_>)> = vec![
        ("x", (&x).into()),
        ("kernel_sizes", (&kernel).into()),
        ("strides", (&strides).into()),
        ("pad_type", (&custom).into()),
        ("pad", (&pads).into()),
        ("ceil_mode", (&no).into()),
    ];
    let name = match kind {
        PoolKind::Max => "max_pool",
        PoolKind::Average => {
            inputs.push(("exclude_padding_from_average", (&exclude).into()));
            "avg_pool"
        }
        _ => return Err(format!("MIL has no {} pooling", kind.name())),
    };
    let result = ctx.b.op(name, &inputs, ty, &out);
    Ok(cast(ctx.b, &result, held))
}
