//! Pooling of regions of interest, as detectors do.
//!
//! A region is cut into bins. [`Op::RoiAlign`] (He et al. 2017, "Mask R-CNN") reads each bin at a few points between the pixels,
//! and takes their mean, or the greatest product of a pixel and its weight, which is what ONNX means by `max`. A point that is
//! more than a pixel outside of the image is 0; others are moved to its border. [`Op::RoiMaxPool`] (Girshick 2015, "Fast R-CNN")
//! rounds regions and bins to whole pixels, and takes the largest; of a bin without pixels it is 0.

use smallvec::smallvec;

use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::def::{Arity, OpDef, Ranges, dtype_error};
use crate::ops::{Op, OpKind, attrs};
use crate::shape::{Shape, Shapes, agreed_dim};
use crate::tensor::Value;

#[cfg(feature = "testing")]
use crate::testing::{Case, Gen};

/// Regions have so many numbers each; the shape of the result.
fn pooled(kind: OpKind, x: &Shape, regions: &Shape, numbers: usize, bins: [usize; 2]) -> Result<Shape> {
    if !x.dtype().is_float() || regions.dtype() != x.dtype() {
        return Err(dtype_error(kind, regions, "an image and regions of one float type"));
    }
    let fits = x.rank() == 4 && regions.rank() == 2;
    if !fits || agreed_dim(regions.dim(1), Dim::Static(numbers)).is_none() || bins.contains(&0) {
        let message =
            format!("{kind} of regions {regions} in {x}: [count, {numbers}] in [N, C, H, W] is right");
        return Err(Error::new(ErrorKind::Shape, message));
    }
    Ok(x.with_dims(vec![regions.dim(0), x.dim(1), Dim::Static(bins[0]), Dim::Static(bins[1])]))
}

/// An image of `x` by its number.
fn image(number: i128, x: &Value) -> Result<usize> {
    let count = x.dims[0] as i128;
    let at = if number < 0 { number + count } else { number };
    if (0..count).contains(&at) {
        return Ok(at as usize);
    }
    Err(Error::new(ErrorKind::Value, format!("a region in image {number} of {count}")))
}

/// [`Op::RoiAlign`].
pub struct RoiAlignDef;

/// The most points of a bin that attributes may ask for, along one dimension: detectors use up to 14, and the work of a bin grows
/// with the square.
const MOST_SAMPLES: usize = 64;

/// A region with more points than this, which is far larger than any image, has none in it.
const MOST_POINTS: f64 = 1e9;

/// The points of one bin along one dimension.
struct Points {
    /// How many there are, in the image or not.
    count: f64,
    /// Pixels and weights of those that are in the image.
    inside: Vec<[(usize, f64); 2]>,
}

/// The points of bin `bin` of `bins` between `start` and `end`.
fn points(op: &Op, (start, end): (f64, f64), (bin, bins): (usize, usize), size: usize) -> Result<Points> {
    attrs!(op => RoiAlign { samples, scale, half_pixel });
    let (scale, shift) = (f64::from(*scale), if *half_pixel { 0.5 } else { 0.0 });
    let (start, end) = (start * scale - shift, end * scale - shift);
    let length = if *half_pixel { end - start } else { (end - start).max(1.0) };
    let width = length / bins as f64;
    let count = if *samples > 0 { *samples as f64 } else { width.ceil().max(0.0) };
    let step = width / count;
    let first = start + bin as f64 * width;
    let mut inside = Vec::new();
    // Only those that can be within a pixel of the image.
    let bound = |x: f64| x.clamp(0.0, count) as usize;
    let range = if step > 0.0 {
        bound(((-1.0 - first) / step).floor() - 1.0)..bound(((size as f64 - first) / step).ceil() + 1.0)
    } else {
        0..bound(count)
    };
    let known = step.is_finite() && count <= MOST_POINTS && size > 0;
    for i in if known { range } else { 0..0 } {
        let at = first + (i as f64 + 0.5) * step;
        if at >= -1.0 && at <= size as f64 {
            let at = at.max(0.0).min((size - 1) as f64);
            let (low, part) = (at.floor() as usize, at.fract());
            inside.push([(low, 1.0 - part), ((low + 1).min(size - 1), part)]);
        }
    }
    Ok(Points { count, inside })
}

impl OpDef for RoiAlignDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(3)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => RoiAlign { height, width, samples });
        if *samples > MOST_SAMPLES {
            let message = format!("RoiAlign of {samples} points for each bin; there may be {MOST_SAMPLES}");
            return Err(Error::new(ErrorKind::Shape, message));
        }
        let result = pooled(OpKind::RoiAlign, inputs[0], inputs[1], 4, [*height, *width])?;
        let images = inputs[2];
        if !matches!(images.dtype(), DType::I32 | DType::I64) {
            return Err(dtype_error(OpKind::RoiAlign, images, "numbers of images as i32 or i64"));
        }
        if images.rank() != 1 || agreed_dim(images.dim(0), inputs[1].dim(0)).is_none() {
            let message = format!("RoiAlign of regions {} with the images {images}", inputs[1]);
            return Err(Error::new(ErrorKind::Shape, message));
        }
        Ok(smallvec![result])
    }

    fn holds_for_all(&self, _: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        inputs[1].dim(1) == Dim::Static(4) && inputs[1].dim(0) == inputs[2].dim(0)
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => RoiAlign { height, width, max });
        let (x, regions, images) = (inputs[0], inputs[1].floats()?, inputs[2].ints()?);
        let (channels, rows, columns) = (x.dims[1], x.dims[2], x.dims[3]);
        let values = x.floats()?;
        let mut out = Vec::new();
        for (region, &number) in regions.chunks(4).zip(images) {
            let image = image(number, x)?;
            for (channel, bin) in (0..channels).flat_map(|c| (0..height * width).map(move |b| (c, b))) {
                let plane = &values[(image * channels + channel) * rows * columns..][..rows * columns];
                let ys = points(op, (region[1], region[3]), (bin / width, *height), rows)?;
                let xs = points(op, (region[0], region[2]), (bin % width, *width), columns)?;
                let terms = ys.inside.iter().flat_map(|y| xs.inside.iter().map(move |x| (y, x)));
                let parts = terms.map(|(y, x)| {
                    y.map(|(row, a)| x.map(|(column, b)| a * b * plane[row * columns + column])).concat()
                });
                let (all, seen) = (ys.count * xs.count, (ys.inside.len() * xs.inside.len()) as f64);
                out.push(if *max {
                    let outside = (seen < all).then_some(0.0);
                    let largest = parts.flatten().chain(outside).fold(f64::NEG_INFINITY, f64::max);
                    if largest == f64::NEG_INFINITY { 0.0 } else { largest }
                } else {
                    parts.flatten().sum::<f64>() / all.max(1.0)
                });
            }
        }
        let dims = results[0].static_dims().unwrap_or_default();
        Ok(vec![Value::float(x.dtype, &dims, out)])
    }

    fn flops(&self, _: &Op, _: &[&Shape], results: &[Shape]) -> f64 {
        32.0 * results[0].num_elements().unwrap_or(0) as f64
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = [g.size(1..=2), g.size(1..=3), g.size(1..=9), g.size(1..=9)];
        let dtype = g.dtype_where(|d| d.is_float());
        let count = g.size(0..=4);
        let op = Op::RoiAlign {
            height: g.size(1..=3),
            width: g.size(1..=3),
            samples: g.size(0..=3),
            scale: g.pick(&[1.0, 0.5]),
            half_pixel: g.chance(0.5),
            max: g.chance(0.3),
        };
        let (x, regions) = (g.value(dtype, &dims, -2.0..2.0), regions(g, dtype, count, None));
        let images = g.indices(&[count], dims[0]);
        Case::new(op, vec![x, regions, images])
    }
}

/// Regions, none of whose points is just at a border: `x₁, y₁, x₂, y₂` behind the number of an image, if there are images.
#[cfg(feature = "testing")]
fn regions(g: &mut Gen, dtype: DType, count: usize, images: Option<usize>) -> Value {
    let mut values = Vec::new();
    for _ in 0..count {
        if let Some(images) = images {
            values.push(g.size(0..=images - 1) as f64);
        }
        let corner = [g.int(-3..=5) as f64 + 0.1875, g.int(-3..=5) as f64 + 0.1875];
        values.extend(corner);
        values.extend(corner.map(|c| c + g.int(1..=5) as f64 + 0.375));
    }
    let numbers = if images.is_some() { 5 } else { 4 };
    Value::float(dtype, &[count, numbers], values).rounded()
}

/// [`Op::RoiMaxPool`].
pub struct RoiMaxPoolDef;

/// The pixels of one bin along one dimension.
fn pixels(
    scale: f32,
    (start, end): (f64, f64),
    (bin, bins): (usize, usize),
    size: usize,
) -> std::ops::Range<usize> {
    let (start, end) = ((start * f64::from(scale)).round(), (end * f64::from(scale)).round());
    let length = (end - start + 1.0).max(1.0);
    let at = |i: usize| i as f64 * length / bins as f64 + start;
    // As large as the image at most; NaN is 0.
    let inside = |x: f64| x.clamp(0.0, size as f64) as usize;
    inside(at(bin).floor())..inside(at(bin + 1).ceil())
}

impl OpDef for RoiMaxPoolDef {
    fn arity(&self, _: &Op) -> Arity {
        Arity::Exact(2)
    }

    fn infer(&self, op: &Op, inputs: &[&Shape], _: &[Shape]) -> Result<Shapes> {
        attrs!(op => RoiMaxPool { height, width });
        Ok(smallvec![pooled(OpKind::RoiMaxPool, inputs[0], inputs[1], 5, [*height, *width])?])
    }

    fn holds_for_all(&self, _: &Op, inputs: &[&Shape], _: Ranges<'_>) -> bool {
        inputs[1].dim(1) == Dim::Static(5)
    }

    fn reference(&self, op: &Op, inputs: &[&Value], results: &[Shape]) -> Result<Vec<Value>> {
        attrs!(op => RoiMaxPool { height, width, scale });
        let (x, regions) = (inputs[0], inputs[1].floats()?);
        let (channels, rows, columns) = (x.dims[1], x.dims[2], x.dims[3]);
        let values = x.floats()?;
        let mut out = Vec::new();
        for region in regions.chunks(5) {
            let image = image(region[0] as i128, x)?;
            for (channel, bin) in (0..channels).flat_map(|c| (0..height * width).map(move |b| (c, b))) {
                let plane = &values[(image * channels + channel) * rows * columns..][..rows * columns];
                let ys = pixels(*scale, (region[2], region[4]), (bin / width, *height), rows);
                let xs = pixels(*scale, (region[1], region[3]), (bin % width, *width), columns);
                let all = ys.flat_map(|y| xs.clone().map(move |x| plane[y * columns + x]));
                out.push(all.reduce(|a, b| if a.is_nan() || a > b { a } else { b }).unwrap_or(0.0));
            }
        }
        let dims = results[0].static_dims().unwrap_or_default();
        Ok(vec![Value::float(x.dtype, &dims, out)])
    }

    #[cfg(feature = "testing")]
    fn generate(&self, _: OpKind, g: &mut Gen) -> Case {
        let dims = [g.size(1..=2), g.size(1..=3), g.size(1..=9), g.size(1..=9)];
        let dtype = g.dtype_where(|d| d.is_float());
        let count = g.size(0..=4);
        let op = Op::RoiMaxPool { height: g.size(1..=3), width: g.size(1..=3), scale: g.pick(&[1.0, 0.5]) };
        let (x, regions) = (g.value(dtype, &dims, -2.0..2.0), regions(g, dtype, count, Some(dims[0])));
        Case::new(op, vec![x, regions])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::evaluate_op;

    #[test]
    fn regions_by_hand() {
        let x = Value::float(DType::F32, &[1, 1, 4, 4], (0..16).map(f64::from).collect());
        let region = Value::float(DType::F32, &[1, 4], vec![0.5, 0.5, 2.5, 2.5]);
        let images = Value::int(DType::I64, &[1], vec![0]);
        let op = |max| Op::RoiAlign { height: 1, width: 2, samples: 1, scale: 1.0, half_pixel: true, max };
        let run = |max| evaluate_op(&op(max), &[&x, &region, &images], &[]).unwrap()[0].to_f64();
        // Points at y = 1, x = 0.5 and 1.5.
        assert_eq!(run(false), [4.5, 5.5]);
        assert_eq!(run(true), [2.5, 3.0]);
        let region = Value::float(DType::F32, &[1, 5], vec![0.0, 1.0, 1.0, 2.0, 3.0]);
        let op = Op::RoiMaxPool { height: 2, width: 1, scale: 1.0 };
        assert_eq!(evaluate_op(&op, &[&x, &region], &[]).unwrap()[0].to_f64(), [10.0, 14.0]);
        let outside = Value::float(DType::F32, &[1, 5], vec![2.0, 1.0, 1.0, 2.0, 3.0]);
        assert_eq!(evaluate_op(&op, &[&x, &outside], &[]).unwrap_err().kind(), ErrorKind::Value);
    }
}
