//! Pooling of regions of interest: `RoiAlign`, `MaxRoiPool`.

use super::{Entry, nodes};
use crate::import::NodeCx;
use rlx_ir::{Error, NodeId, Op};

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Nodes = Result<Vec<NodeId>, Error>;

pub(super) const OPS: &[Entry] = &[nodes("MaxRoiPool", max_roi_pool), nodes("RoiAlign", roi_align)];

fn size(cx: &NodeCx<'_, '_>, n: i64) -> Result<usize, Error> {
    usize::try_from(n)
        .ok()
        .filter(|n| (1..=1 << 16).contains(n))
        .ok_or_else(|| cx.malformed(format!("{n} bins")))
}

/// Until opset 15 regions are not moved by half a pixel, and there is no attribute for it.
fn roi_align(cx: Cx) -> Nodes {
    let default = if cx.opset < 16 { "output_half_pixel" } else { "half_pixel" };
    let half_pixel = match cx.attrs.text("coordinate_transformation_mode", default)? {
        "half_pixel" => true,
        "output_half_pixel" => false,
        other => return Err(cx.malformed(format!("coordinate_transformation_mode = \"{other}\""))),
    };
    let max = match cx.attrs.text("mode", "avg")? {
        "avg" => false,
        "max" => true,
        other => return Err(cx.malformed(format!("mode = \"{other}\""))),
    };
    let op = Op::RoiAlign {
        height: size(cx, cx.attrs.int("output_height", 1)?)?,
        width: size(cx, cx.attrs.int("output_width", 1)?)?,
        samples: usize::try_from(cx.attrs.int("sampling_ratio", 0)?).unwrap_or(0),
        scale: cx.attrs.float("spatial_scale", 1.0)?,
        half_pixel,
        max,
    };
    let (x, regions, images) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    Ok(vec![cx.add(op, &[x, regions, images])?])
}

fn max_roi_pool(cx: Cx) -> Nodes {
    let pooled = cx.attrs.ints("pooled_shape")?;
    let &[height, width] = cx.attrs.required("pooled_shape", pooled)? else {
        return Err(cx.malformed("pooled_shape must be two numbers"));
    };
    let op = Op::RoiMaxPool {
        height: size(cx, height)?,
        width: size(cx, width)?,
        scale: cx.attrs.float("spatial_scale", 1.0)?,
    };
    let (x, regions) = (cx.x(0)?, cx.x(1)?);
    Ok(vec![cx.add(op, &[x, regions])?])
}
