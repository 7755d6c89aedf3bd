//! Convolution and pooling: windows that slide over the spatial dimensions of `[N, C, …]`.

use super::unpool::indices_of_maxima;
use super::{Entry, nodes};
use crate::import::NodeCx;
use rlx_ir::op::{Activation as A, BinaryOp as B, DataFormat, PoolKind, ReduceOp};
use rlx_ir::{Dim, Error, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(super) const OPS: &[Entry] = &[
    nodes("AveragePool", average_pool),
    nodes("Conv", conv),
    nodes("ConvTranspose", conv_transpose),
    nodes("GlobalAveragePool", global_average_pool),
    nodes("GlobalLpPool", global_lp_pool),
    nodes("GlobalMaxPool", global_max_pool),
    nodes("LpPool", lp_pool),
    nodes("MaxPool", max_pool),
];

/// How the window moves, read from the attributes that all these ops share.
pub(super) struct Window {
    pub kernel: Vec<usize>,
    pub strides: Vec<usize>,
    /// All begins, then all ends.
    pub pads: Vec<usize>,
    pub dilations: Vec<usize>,
}

/// An attribute with one number per spatial dimension.
pub(super) fn sizes(
    cx: &NodeCx<'_, '_>,
    name: &str,
    count: usize,
    default: usize,
) -> Result<Vec<usize>, Error> {
    let Some(given) = cx.attrs.ints(name)? else { return Ok(vec![default; count]) };
    one_for_each(cx, name, given, count)
}

fn one_for_each(cx: &NodeCx<'_, '_>, name: &str, given: &[i64], count: usize) -> Result<Vec<usize>, Error> {
    let sizes = given.iter().map(|&v| usize::try_from(v).ok().filter(|&v| v <= i32::MAX as usize));
    match sizes.collect::<Option<Vec<_>>>() {
        Some(sizes) if sizes.len() == count => Ok(sizes),
        _ => Err(cx.malformed(format!("{name} = {given:?} for {count} spatial dimensions"))),
    }
}

impl Window {
    /// The window of an op whose operand 0 is the input; the kernel's size comes from the attribute or the weights.
    pub fn read(cx: &NodeCx<'_, '_>, weights: Option<&[Dim]>) -> Result<Window, Error> {
        let shape = cx.shape(0)?;
        Window::over(cx, weights, shape.dims().get(2..).unwrap_or_default())
    }

    /// The same over spatial dimensions that are elsewhere in operand 0.
    pub fn over(cx: &NodeCx<'_, '_>, weights: Option<&[Dim]>, spatial: &[Dim]) -> Result<Window, Error> {
        let shape = cx.shape(0)?;
        if spatial.is_empty() {
            return Err(cx.malformed(format!("{shape} has no spatial dimensions")));
        }
        let kernel = match weights {
            Some(dims) => dims.iter().map(|d| d.as_static()).collect::<Option<Vec<_>>>(),
            None => {
                let kernel = cx.attrs.ints("kernel_shape")?;
                cx.attrs.required("kernel_shape", kernel)?;
                Some(sizes(cx, "kernel_shape", spatial.len(), 1)?)
            }
        };
        let kernel = kernel.ok_or_else(|| cx.open_dimension("a kernel whose size is symbolic"))?;
        if kernel.len() != spatial.len() {
            return Err(cx.malformed(format!("a kernel of {kernel:?} for {shape}")));
        }
        let strides = sizes(cx, "strides", spatial.len(), 1)?;
        let dilations = sizes(cx, "dilations", spatial.len(), 1)?;
        let mut window = Window { kernel, strides, pads: vec![0; 2 * spatial.len()], dilations };
        match cx.attrs.text("auto_pad", "NOTSET")? {
            "NOTSET" | "" => window.pads = sizes(cx, "pads", 2 * spatial.len(), 0)?,
            "VALID" => {}
            "SAME_UPPER" => window.pad_to_same(cx, spatial, true)?,
            "SAME_LOWER" => window.pad_to_same(cx, spatial, false)?,
            other => return Err(cx.malformed(format!("auto_pad = \"{other}\""))),
        }
        Ok(window)
    }

    /// From the first element of the window to just behind its last.
    pub fn reach(&self, i: usize) -> usize {
        (self.kernel[i].max(1) - 1).saturating_mul(self.dilations[i]).saturating_add(1)
    }

    /// Pads such that the result has `⌈size / stride⌉` elements; of an odd number the end gets more with `upper`.
    fn pad_to_same(&mut self, cx: &NodeCx<'_, '_>, spatial: &[Dim], upper: bool) -> Result<(), Error> {
        for (i, dim) in spatial.iter().enumerate() {
            let (stride, reach) = (self.strides[i].max(1), self.reach(i));
            let total = match dim.as_static() {
                Some(size) => ((size.div_ceil(stride).max(1) - 1) * stride + reach).saturating_sub(size),
                None if stride == 1 => reach - 1,
                None => {
                    return Err(
                        cx.open_dimension(format!("auto_pad of a dimension of {dim} with stride {stride}"))
                    );
                }
            };
            let (less, more) = (total / 2, total - total / 2);
            (self.pads[i], self.pads[spatial.len() + i]) = if upper { (less, more) } else { (more, less) };
        }
        Ok(())
    }
}

pub(super) fn groups(cx: &NodeCx<'_, '_>) -> Result<usize, Error> {
    let groups = cx.attrs.int("group", 1)?;
    usize::try_from(groups).map_err(|_| cx.malformed(format!("group = {groups}")))
}

fn conv(cx: Cx) -> Nodes {
    let weights = cx.shape(1)?;
    let w = Window::read(cx, Some(weights.dims().get(2..).unwrap_or_default()))?;
    let operands = cx.all()?;
    Ok(vec![cx.conv(&w, groups(cx)?, &operands)?])
}

impl NodeCx<'_, '_> {
    /// A convolution of `[x, weights]` or `[x, weights, bias]`.
    pub(super) fn conv(&mut self, w: &Window, groups: usize, operands: &[NodeId]) -> Result<NodeId, Error> {
        let op = Op::Conv {
            strides: w.strides.clone(),
            pads: w.pads.clone(),
            dilations: w.dilations.clone(),
            groups,
            format: DataFormat::ChannelsFirst,
        };
        self.add(op, operands)
    }
}

/// `output_shape` and `auto_pad` choose the pads; else they are given.
fn conv_transpose(cx: Cx) -> Nodes {
    conv_transpose_padded(cx, None)
}

/// With pads from elsewhere than the attribute.
pub(super) fn conv_transpose_padded(cx: Cx, given: Option<&[i64]>) -> Nodes {
    let (x, weights) = (cx.shape(0)?, cx.shape(1)?);
    let spatial = x.rank().saturating_sub(2);
    let mut output_padding = sizes(cx, "output_padding", spatial, 0)?;
    let kernel = weights.dims().get(2..).unwrap_or_default().iter().map(|d| d.as_static());
    let kernel = kernel.collect::<Option<Vec<_>>>().filter(|k| k.len() == spatial);
    let kernel = kernel.ok_or_else(|| cx.malformed(format!("weights {weights} for {x}")))?;
    let mut w = Window {
        kernel,
        strides: sizes(cx, "strides", spatial, 1)?,
        pads: sizes(cx, "pads", 2 * spatial, 0)?,
        dilations: sizes(cx, "dilations", spatial, 1)?,
    };
    if let Some(given) = given {
        w.pads = one_for_each(cx, "pads", given, 2 * spatial)?;
    }
    pad_to_output(cx, &mut w, x.dims().get(2..).unwrap_or_default(), &mut output_padding)?;
    let op = Op::ConvTranspose {
        strides: w.strides,
        pads: w.pads,
        dilations: w.dilations,
        output_padding,
        groups: groups(cx)?,
    };
    let operands = cx.all()?;
    Ok(vec![cx.add(op, &operands)?])
}

/// Chooses a transposed convolution's pads such that its result has the requested size.
fn pad_to_output(
    cx: &NodeCx<'_, '_>,
    w: &mut Window,
    spatial: &[Dim],
    output_padding: &mut [usize],
) -> Result<(), Error> {
    let (automatic, wanted) = (cx.attrs.text("auto_pad", "NOTSET")?, cx.attrs.ints("output_shape")?);
    if wanted.is_none() && !automatic.starts_with("SAME") {
        return Ok(());
    }
    for (i, (dim, extra)) in spatial.iter().zip(output_padding).enumerate() {
        let size = dim.as_static();
        let size = size.ok_or_else(|| {
            cx.open_dimension(format!("output_shape or auto_pad with a dimension of {dim}"))
        })?;
        let full =
            (size.max(1) - 1).saturating_mul(w.strides[i]).saturating_add(w.reach(i)).saturating_add(*extra);
        let target = match wanted {
            // Batch and channels may be in front.
            Some(wanted) => {
                let given = wanted.get((wanted.len() + i).saturating_sub(spatial.len())).copied();
                given.and_then(|t| usize::try_from(t).ok()).unwrap_or(0)
            }
            None => size.saturating_mul(w.strides[i]),
        };
        // An output larger than the windows reach has nothing but bias at its end.
        *extra += target.saturating_sub(full);
        let total = full.saturating_sub(target);
        let (less, more) = (total / 2, total - total / 2);
        (w.pads[i], w.pads[spatial.len() + i]) =
            if automatic == "SAME_UPPER" { (less, more) } else { (more, less) };
    }
    Ok(())
}

fn pool(cx: Cx, kind: PoolKind) -> Nodes {
    let w = Window::read(cx, None)?;
    Ok(vec![pool_by(cx, kind, &w)?])
}

fn pool_by(cx: Cx, kind: PoolKind, w: &Window) -> Result<NodeId, Error> {
    let op = Op::Pool {
        kind,
        kernel: w.kernel.clone(),
        strides: w.strides.clone(),
        pads: w.pads.clone(),
        dilations: w.dilations.clone(),
        ceil_mode: cx.attrs.flag("ceil_mode", false)?,
        count_include_pad: cx.attrs.flag("count_include_pad", false)?,
        format: DataFormat::ChannelsFirst,
    };
    let x = cx.x(0)?;
    cx.add(op, &[x])
}

fn average_pool(cx: Cx) -> Nodes {
    pool(cx, PoolKind::Average)
}

/// The maxima and, where they are wanted, their indices.
fn max_pool(cx: Cx) -> Nodes {
    let w = Window::read(cx, None)?;
    let y = pool_by(cx, PoolKind::Max, &w)?;
    if !cx.wants(1) {
        return Ok(vec![y]);
    }
    let (x, pooled) = (cx.x(0)?, cx.shape_of(y));
    Ok(vec![y, indices_of_maxima(cx, x, &w, &pooled)?])
}

/// `(Σ |x|^p)^(1/p)` over each window: a convolution of each channel with ones.
fn lp_pool(cx: Cx) -> Nodes {
    let mut w = Window::read(cx, None)?;
    let (shape, p) = (cx.shape(0)?, cx.attrs.int("p", 2)? as f64);
    let Some(channels) = shape.dim(1).as_static() else {
        return Err(cx.open_dimension(format!("{} channels", shape.dim(1))));
    };
    if cx.attrs.flag("ceil_mode", false)? {
        widen_for_ceiling(cx, &mut w, &shape.dims()[2..])?;
    }
    let x = cx.x(0)?;
    let x = cx.activation(A::Abs, x)?;
    let powers = cx.with_scalar(B::Pow, x, p)?;
    let mut dims = vec![channels, 1];
    dims.extend(&w.kernel);
    let one = cx.scalar(shape.dtype(), 1.0);
    let ones = cx.expand(one, dims.into_iter().map(Dim::Static).collect())?;
    let total = cx.conv(&w, channels, &[powers, ones])?;
    Ok(vec![cx.with_scalar(B::Pow, total, 1.0 / p)?])
}

/// Pads the ends so that the last window, which `ceil_mode` lets reach beyond, is whole.
fn widen_for_ceiling(cx: &NodeCx<'_, '_>, w: &mut Window, spatial: &[Dim]) -> Result<(), Error> {
    for (i, dim) in spatial.iter().enumerate() {
        let Some(size) = dim.as_static() else {
            return Err(cx.open_dimension(format!("ceil_mode over a dimension of {dim}")));
        };
        let (stride, reach) = (w.strides[i].max(1), w.reach(i));
        let padded = size + w.pads[i] + w.pads[spatial.len() + i];
        let windows = (padded.saturating_sub(reach)).div_ceil(stride) + 1;
        // A window must start inside the input or the padding before it.
        let windows = windows.min((size + w.pads[i]).div_ceil(stride).max(1));
        let needed = (windows - 1) * stride + reach;
        w.pads[spatial.len() + i] += needed.saturating_sub(padded);
    }
    Ok(())
}

/// The spatial dimensions of operand 0.
fn spatial_axes(cx: &NodeCx<'_, '_>) -> Result<Vec<usize>, Error> {
    Ok((2..cx.rank(0)?).collect())
}

fn global_average_pool(cx: Cx) -> Nodes {
    let (x, axes) = (cx.x(0)?, spatial_axes(cx)?);
    Ok(vec![cx.reduce(x, ReduceOp::Mean, &axes, true)?])
}

fn global_max_pool(cx: Cx) -> Nodes {
    let (x, axes) = (cx.x(0)?, spatial_axes(cx)?);
    Ok(vec![cx.reduce(x, ReduceOp::Max, &axes, true)?])
}

fn global_lp_pool(cx: Cx) -> Nodes {
    let (x, axes, p) = (cx.x(0)?, spatial_axes(cx)?, cx.attrs.int("p", 2)? as f64);
    let x = cx.activation(A::Abs, x)?;
    let powers = cx.with_scalar(B::Pow, x, p)?;
    let total = cx.reduce(powers, ReduceOp::Sum, &axes, true)?;
    Ok(vec![cx.with_scalar(B::Pow, total, 1.0 / p)?])
}
