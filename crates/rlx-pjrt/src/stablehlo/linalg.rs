//! Products, convolutions and pooling. Products of f32 are asked for in full precision, which TPUs compute in several passes.

use rlx_ir::op::{DataFormat, PoolKind};
use rlx_ir::{DType, Node, Op, Result};

use super::dtypes::{computes, no};
use super::writer::{Type, Val, Writer, array, list};

const PRECISION: &str = "precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]";

/// Why there is no text for an op of this family, if there is none.
pub(super) fn rejects(op: &Op, of: &[DType]) -> Option<String> {
    match op {
        Op::Pool { kind: PoolKind::Average, .. } if !of[0].is_float() => no("means are of floats"),
        _ if of.iter().all(|&dtype| computes(dtype) && dtype != DType::Bool) => None,
        _ => no("it is not computed in"),
    }
}

/// Writes a node of this family.
pub(super) fn write(w: &mut Writer, node: &Node, x: &[Val]) -> Result<Option<Val>> {
    let ty = Type::of(&node.shape)?;
    Ok(Some(match &node.op {
        Op::MatMul => matmul(w, x[0], x[1], &ty),
        Op::DotGeneral { lhs_contract, rhs_contract, lhs_batch, rhs_batch } => {
            let y = dot(w, x[0], x[1], [lhs_batch, rhs_batch], [lhs_contract, rhs_contract], &ty.dims);
            w.convert(y, ty.dtype)
        }
        Op::Conv { strides, pads, dilations, groups, format } => {
            let n = strides.len();
            let padding: Vec<(i64, i64)> = (0..n).map(|i| (pads[i] as i64, pads[n + i] as i64)).collect();
            let window = Window { strides, padding: &padding, spread: &vec![1; n], dilations };
            let y = convolution(w, [x[0], x[1]], window, *groups, *format, "o, i", &ty);
            biased(w, y, x.get(2).copied(), *format)
        }
        Op::ConvTranspose { .. } => transposed(w, node, x, &ty),
        Op::Pool { .. } => pool(w, node, x[0], &ty)?,
        _ => return Ok(None),
    }))
}

/// What products of a type are computed in.
fn sums(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        DType::I8 | DType::I16 => DType::I32,
        DType::U8 | DType::U16 => DType::U32,
        dtype => dtype,
    }
}

fn dot(w: &mut Writer, a: Val, b: Val, batch: [&[usize]; 2], contract: [&[usize]; 2], dims: &[usize]) -> Val {
    let to = sums(w.dtype(a));
    // Short floats multiply as they are and are summed in f32; integers are widened before.
    let widen = to.is_int();
    let [a, b] = [a, b].map(|v| if widen { w.convert(v, to) } else { v });
    let attributes = format!(
        "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = {}, rhs_batching_dimensions = {}, \
         lhs_contracting_dimensions = {}, rhs_contracting_dimensions = {}>, {PRECISION}",
        list(batch[0]),
        list(batch[1]),
        list(contract[0]),
        list(contract[1])
    );
    w.op("dot_general", &[a, b], &attributes, Type::new(to, dims))
}

/// By NumPy's rules. A right operand without a batch is contracted as it is.
fn matmul(w: &mut Writer, a: Val, b: Val, ty: &Type) -> Val {
    let (mut of, mut by) = (w.dims(a), w.dims(b));
    if of.len() == 1 {
        of.insert(0, 1);
    }
    if by.len() == 1 {
        by.push(1);
    }
    let (m, k, n) = (of[of.len() - 2], of[of.len() - 1], by[by.len() - 1]);
    let rank = of.len().max(by.len()) - 2;
    let at = |dims: &[usize], i: usize| (i + dims.len()).checked_sub(rank + 2).map_or(1, |i| dims[i]);
    let batch: Vec<usize> =
        (0..rank).map(|i| if at(&of, i) == 1 { at(&by, i) } else { at(&of, i) }).collect();
    let plain = by[..by.len() - 2].iter().all(|&n| n == 1);
    let y = if plain {
        let left = [&batch[..], &[m, k]].concat();
        let (a, b) = (w.reshape(a, &left), w.reshape(b, &[k, n]));
        dot(w, a, b, [&[], &[]], [&[rank + 1], &[0]], &[&batch[..], &[m, n]].concat())
    } else {
        let (a, b) = (w.reshape(a, &of), w.reshape(b, &by));
        let a = w.broadcast(a, &[&batch[..], &[m, k]].concat());
        let b = w.broadcast(b, &[&batch[..], &[k, n]].concat());
        let all: Vec<usize> = (0..rank).collect();
        dot(w, a, b, [&all, &all], [&[rank + 1], &[rank]], &[&batch[..], &[m, n]].concat())
    };
    let y = w.convert(y, ty.dtype);
    w.reshape(y, &ty.dims)
}

/// How a convolution's window moves.
struct Window<'a> {
    strides: &'a [usize],
    padding: &'a [(i64, i64)],
    /// Between elements of the input, and of the weights.
    spread: &'a [usize],
    dilations: &'a [usize],
}

fn convolution(
    w: &mut Writer,
    [x, weights]: [Val; 2],
    window: Window<'_>,
    groups: usize,
    format: DataFormat,
    kernel: &str,
    ty: &Type,
) -> Val {
    let n = window.strides.len();
    let space: Vec<String> = (0..n).map(|i| i.to_string()).collect();
    let space = space.join(", ");
    let image = if format == DataFormat::ChannelsFirst {
        format!("[b, f, {space}]")
    } else {
        format!("[b, {space}, f]")
    };
    let padding: Vec<String> = window.padding.iter().map(|(a, b)| format!("[{a}, {b}]")).collect();
    let attributes = format!(
        "window_strides = {}, padding = dense<[{}]> : tensor<{n}x2xi64>, lhs_dilation = {}, rhs_dilation = {}, \
         dimension_numbers = #stablehlo.conv<{image}x[{kernel}, {space}]->{image}>, \
         feature_group_count = {groups} : i64, batch_group_count = 1 : i64, {PRECISION}",
        array(window.strides),
        padding.join(", "),
        array(window.spread),
        array(window.dilations)
    );
    let sum = ty.with(sums(ty.dtype));
    let [x, weights] = [x, weights].map(|v| if sum.dtype.is_int() { w.convert(v, sum.dtype) } else { v });
    let y = w.op("convolution", &[x, weights], &attributes, sum);
    w.convert(y, ty.dtype)
}

fn biased(w: &mut Writer, y: Val, bias: Option<Val>, format: DataFormat) -> Val {
    let Some(bias) = bias else { return y };
    let dims = w.dims(y);
    let axis = if format == DataFormat::ChannelsFirst { 1 } else { dims.len() - 1 };
    let bias = w.broadcast_along(bias, &[axis], &dims);
    w.map("add", &[y, bias])
}

/// The gradient of a convolution: the input's elements spread apart, the weights turned.
fn transposed(w: &mut Writer, node: &Node, x: &[Val], ty: &Type) -> Val {
    let Op::ConvTranspose { strides, pads, dilations, output_padding, groups } = &node.op else {
        return x[0];
    };
    let (n, of) = (strides.len(), w.dims(x[1]));
    let spatial: Vec<usize> = (2..2 + n).collect();
    let turned = super::movement::reverse(w, x[1], &spatial);
    let (each, outputs) = (of[0] / groups, of[1]);
    let apart = w.reshape(turned, &[&[*groups, each, outputs], &of[2..]].concat());
    let perm: Vec<usize> = [1, 0, 2].into_iter().chain(3..3 + n).collect();
    let moved = w.transpose(apart, &perm);
    let weights = w.reshape(moved, &[&[each, groups * outputs], &of[2..]].concat());
    let padding: Vec<(i64, i64)> = (0..n)
        .map(|i| {
            let reach = (dilations[i] * (of[2 + i] - 1)) as i64;
            (reach - pads[i] as i64, reach - pads[n + i] as i64 + output_padding[i] as i64)
        })
        .collect();
    let window = Window { strides: &vec![1; n], padding: &padding, spread: strides, dilations };
    let y = convolution(w, [x[0], weights], window, *groups, DataFormat::ChannelsFirst, "i, o", ty);
    biased(w, y, x.get(2).copied(), DataFormat::ChannelsFirst)
}

fn pool(w: &mut Writer, node: &Node, x: Val, ty: &Type) -> Result<Val> {
    let Op::Pool { kind, kernel, strides, pads, dilations, count_include_pad, format, .. } = &node.op else {
        return Ok(x);
    };
    let (from, n, first) =
        (w.dims(x), kernel.len(), if *format == DataFormat::ChannelsFirst { 2 } else { 1 });
    let whole = |spatial: &[usize]| {
        let mut all = vec![1; from.len()];
        all[first..first + n].copy_from_slice(spatial);
        all
    };
    let dtype = sums_of_pool(ty.dtype);
    let of = w.convert(x, dtype);
    let padding: Vec<String> = (0..from.len())
        .map(|axis| match axis.checked_sub(first).filter(|&i| i < n) {
            Some(i) => {
                // As much as the last window needs, which may be less than the pad or, rounded up, more.
                let reach =
                    (ty.dims[axis].saturating_sub(1)) * strides[i] + (kernel[i] - 1) * dilations[i] + 1;
                format!("[{}, {}]", pads[i], reach as i64 - (from[axis] + pads[i]) as i64)
            }
            None => "[0, 0]".into(),
        })
        .collect();
    let attributes = format!(
        "window_dimensions = {}, window_strides = {}, base_dilations = {}, window_dilations = {}, \
         padding = dense<[{}]> : tensor<{}x2xi64>",
        array(&whole(kernel)),
        array(&whole(strides)),
        array(&vec![1; from.len()]),
        array(&whole(dilations)),
        padding.join(", "),
        from.len()
    );
    let scalar = Type::scalar(dtype);
    let (op, start) = match dtype.int_range() {
        _ if *kind == PoolKind::Average => ("add", w.number(&scalar, 0.0)),
        Some((least, _)) => {
            ("maximum", w.splat(&scalar, &rlx_ir::Value::int(dtype, &[1], vec![least]).encode()))
        }
        None => ("maximum", w.number(&scalar, f64::NEG_INFINITY)),
    };
    let body = w.region(&[scalar.clone(), scalar], |w, v| Ok(vec![w.joined(op, v[0], v[1])]))?;
    let mut y = w.ops("reduce_window", &[of, start], &attributes, &[body], &[ty.with(dtype)])[0];
    if *kind == PoolKind::Average {
        let all = ty.with(dtype);
        for i in 0..n {
            // How many elements of each window count along this axis.
            let (axis, size) = (first + i, from[first + i] as i64);
            let (low, high) =
                if *count_include_pad { (-(pads[i] as i64), size + pads[n + i] as i64) } else { (0, size) };
            let count = |at: usize| {
                let begin = (at * strides[i]) as i64 - pads[i] as i64;
                let taps = (0..kernel[i]).map(|t| begin + (t * dilations[i]) as i64);
                taps.filter(|tap| (low..high).contains(tap)).count().max(1) as f64
            };
            let counts: Vec<f64> = (0..ty.dims[axis]).map(count).collect();
            let counts = rlx_ir::Value::float(dtype, &[counts.len()], counts).encode();
            let counts = rlx_ir::ConstData::new(dtype, &[ty.dims[axis]], counts)?;
            let counts = w.constant(&counts);
            let counts = w.broadcast_along(counts, &[axis], &all.dims);
            y = w.map("divide", &[y, counts]);
        }
    }
    Ok(w.convert(y, ty.dtype))
}

fn sums_of_pool(dtype: DType) -> DType {
    if dtype.is_int() { dtype } else { sums(dtype) }
}
