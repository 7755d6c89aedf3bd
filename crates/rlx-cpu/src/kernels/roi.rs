//! Regions of interest.
//!
//! The points of `RoiAlign` lie on a grid, and their interpolation and mean can be taken along one dimension after the other:
//! a bin is `Σ_y a[y]·Σ_x b[x]·image[y, x]`. So a task, which is one region, works out the weights of rows and columns for each bin
//! once, whatever the number of points, and then reads the rows of the image that have one once for each channel. The largest weighted pixel
//! has no such form, and is looked for point by point. Places are computed in f64.

use rlx_ir::{Graph, Node, Op, Result};
use rlx_opt::Claim;

use super::indices::{Indices, Misses};
use super::scalar::{Real, float, is_float};
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::isa::{Isa, Kernel};
use crate::layout::{At, Bound};
use crate::simd::Simd;
use rlx_ir::{DType, Error, ErrorKind};

/// Floats.
pub(crate) fn claim(node: &Node, _: &Graph) -> Claim {
    let dtype = node.shape.dtype();
    if is_float(dtype) {
        Claim::Native
    } else {
        Claim::No(format!("there is no kernel for regions of {dtype}"))
    }
}

/// The kernel.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let (kind, scale) = match cx.node().op {
        Op::RoiAlign { samples, scale, half_pixel, max, .. } => {
            (Kind::Align { samples, half_pixel, max }, scale)
        }
        Op::RoiMaxPool { scale, .. } => (Kind::MaxPool, scale),
        ref op => return Err(no_kernel(op, "it has no regions")),
    };
    Ok(Box::new(Regions { kind, scale: f64::from(scale), dtype: cx.step.inputs[0].dtype, plan: None }))
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Align { samples: usize, half_pixel: bool, max: bool },
    MaxPool,
}

#[derive(Debug, Clone, Copy)]
struct Regions {
    kind: Kind,
    scale: f64,
    dtype: DType,
    plan: Option<Plan>,
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    x: At,
    regions: At,
    images: Option<Bound>,
    out: At,
    count: usize,
    /// Numbers of a region.
    numbers: usize,
    batch: usize,
    channels: usize,
    size: [usize; 2],
    bins: [usize; 2],
    worth: bool,
}

/// The elements that a bin covers along one dimension: from, and how many; as weights where they have any.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Span {
    from: u32,
    count: u32,
    /// Weights that are not zero (see [`compact`]).
    weights: u32,
    /// How many points it has, in the image or not.
    points: f64,
    /// The bin's first point, and the distance to the next.
    first: f64,
    step: f64,
}

impl StepKernel for Regions {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, regions, out) = (&cx.inputs[0], &cx.inputs[1], &cx.outputs[0]);
        let images = cx.inputs.get(2).copied();
        let shape_mismatch =
            || mismatch(format!("regions {:?} of {:?} as {:?}", regions.dims(), x.dims(), out.dims()));
        let (&[batch, channels, height, width], &[count, numbers]) = (x.dims(), regions.dims()) else {
            return Err(shape_mismatch());
        };
        let &[rows, out_channels, bins_y, bins_x] = out.dims() else { return Err(shape_mismatch()) };
        let wanted = if images.is_some() { 4 } else { 5 };
        let fits = rows == count && out_channels == channels && numbers == wanted;
        let dense = [x, regions, out].iter().all(|o| o.layout.is_dense());
        if !fits || !dense || images.is_some_and(|i| i.dims() != [count]) {
            return Err(shape_mismatch());
        }
        u32::try_from(height.max(width)).map_err(|_| shape_mismatch())?;
        let (size, bins) = ([height, width], [bins_y, bins_x]);
        let nanos = out.layout.elements() as f64 * 20.0;
        self.plan = Some(Plan {
            x: x.at,
            regions: regions.at,
            images,
            out: out.at,
            count,
            numbers,
            batch,
            channels,
            size,
            bins,
            worth: nanos > WORTH_NANOS,
        });
        let scratch = scratch_bytes(size, bins).ok_or_else(shape_mismatch)?;
        Ok(Needs { thread_scratch: scratch, shared_scratch: 0, nanos })
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Err(unbound()) };
        let (misses, isa) = (Misses::none(), cx.isa);
        let indices = plan.images.map(|i| Indices::new(cx.ptr(i.at), i.dtype));
        // SAFETY: the caller's promise; the type is that of the image.
        float!(self.dtype, T => {
            let (x, regions, out) = (cx.shared::<T>(plan.x), cx.shared::<T>(plan.regions), cx.shared::<T>(plan.out));
            cx.parallel(plan.worth, plan.count, &|range, scratch| {
                for r in range {
                    // SAFETY: the caller's promise: regions and images are readable, results of regions apart, and the scratch
                    // has room for the spans and weights of one region.
                    unsafe {
                        let numbers = std::slice::from_raw_parts(regions.get().add(r * plan.numbers), plan.numbers);
                        let image = match &indices {
                            Some(indices) => indices.place(r, plan.batch),
                            None => place_of(numbers[0].to_f64(), plan.batch),
                        };
                        let Some(image) = image else { return misses.note(r) };
                        let corner = |i: usize| numbers[plan.numbers - 4 + i].to_f64() * self.scale;
                        let corners = [[corner(1), corner(3)], [corner(0), corner(2)]];
                        let elements = plan.channels * plan.size[0] * plan.size[1];
                        let image = std::slice::from_raw_parts(x.get().add(image * elements), elements);
                        let bins = plan.channels * plan.bins[0] * plan.bins[1];
                        let out = std::slice::from_raw_parts_mut(out.get().add(r * bins), bins);
                        self.region(isa, plan, corners, image, out, &mut Scratch::new(scratch, plan));
                    }
                }
            });
        });
        match indices {
            // SAFETY: as above.
            Some(indices) => unsafe { misses.check(&indices, |_| (0, plan.batch)) },
            None => misses.first().map_or(Ok(()), |r| {
                let message = format!("region {r} is in an image that is none of the {}", plan.batch);
                Err(Error::new(ErrorKind::Value, message))
            }),
        }
    }
}

/// An image by its number as a float.
fn place_of(number: f64, images: usize) -> Option<usize> {
    let number = number as i64;
    let place = if number < 0 { number + images as i64 } else { number };
    usize::try_from(place).ok().filter(|&i| i < images)
}

/// A float as it is in memory, and what it is added up in.
trait Element: Copy {
    type Sum: Copy + Default + PartialOrd + std::ops::AddAssign + std::ops::Mul<Output = Self::Sum>;
    fn wide(self) -> Self::Sum;
    fn narrow(x: Self::Sum) -> Self;
    fn sum(x: f64) -> Self::Sum;
}

macro_rules! elements {
    ($($t:ty: $sum:ty, $wide:expr, $narrow:expr;)*) => {$(
        impl Element for $t {
            type Sum = $sum;
            fn wide(self) -> $sum {
                $wide(self)
            }
            fn narrow(x: $sum) -> $t {
                $narrow(x)
            }
            fn sum(x: f64) -> $sum {
                x as $sum
            }
        }
    )*};
}
elements! {
    f64: f64, std::convert::identity, std::convert::identity;
    f32: f32, std::convert::identity, std::convert::identity;
    half::f16: f32, half::f16::to_f32, half::f16::from_f32;
    half::bf16: f32, half::bf16::to_f32, half::bf16::from_f32;
}

/// Bytes of a thread's scratch: a span for each bin, weights for each bin and element, one row of the image, and places of the weights along the width.
fn scratch_bytes(size: [usize; 2], bins: [usize; 2]) -> Option<usize> {
    let weights =
        bins[0].checked_mul(size[0])?.checked_add(bins[1].checked_mul(size[1])?)?.checked_add(size[1])?;
    let spans = bins[0].checked_add(bins[1])?.checked_mul(size_of::<Span>())?;
    let places = bins[1].checked_mul(size[1])?.checked_mul(size_of::<u32>())?;
    weights.checked_mul(8)?.checked_add(spans)?.checked_add(places)
}

/// What a thread keeps of the region that it works on.
struct Scratch<'a, S> {
    /// Of the bins along the height, then along the width.
    spans: [&'a mut [Span]; 2],
    /// For each bin the weights of all elements, of which those in its span count; along the width, those that are not zero, beside each other.
    weights: [&'a mut [S]; 2],
    /// Where these are in a row.
    places: &'a mut [u32],
    row: &'a mut [S],
}

impl<S: Copy + Default> Scratch<'_, S> {
    /// # Safety
    /// There must be [`scratch_bytes`] at `at`, aligned as scratch is, and nothing else may use them.
    unsafe fn new(at: *mut u8, plan: &Plan) -> Self {
        let ([height, width], [bins_y, bins_x]) = (plan.size, plan.bins);
        let spans = at.cast::<Span>();
        // SAFETY: the caller's promise; the parts follow each other. Spans are plain numbers, and written before they are read.
        unsafe {
            let weights = spans.add(bins_y + bins_x).cast::<S>();
            let rest = bins_y * height + bins_x * width;
            let places = weights.add(rest + width).cast::<u32>();
            Scratch {
                spans: [
                    std::slice::from_raw_parts_mut(spans, bins_y),
                    std::slice::from_raw_parts_mut(spans.add(bins_y), bins_x),
                ],
                weights: [
                    std::slice::from_raw_parts_mut(weights, bins_y * height),
                    std::slice::from_raw_parts_mut(weights.add(bins_y * height), bins_x * width),
                ],
                places: std::slice::from_raw_parts_mut(places, bins_x * width),
                row: std::slice::from_raw_parts_mut(weights.add(rest), width),
            }
        }
    }
}

/// Regions with more points than this have none.
const MOST_POINTS: f64 = 1e9;

impl Span {
    const EMPTY: Span = Span { from: 0, count: 0, weights: 0, points: 0.0, first: 0.0, step: 0.0 };

    fn range(&self) -> std::ops::Range<usize> {
        self.from as usize..(self.from + self.count) as usize
    }

    /// The points within a pixel of the image, moved to its border.
    fn places(self, size: usize) -> impl Iterator<Item = f64> {
        let (first, step, size) = (self.first, self.step, size as f64);
        let bound = |x: f64| x.clamp(0.0, self.points) as usize;
        let range = if step > 0.0 {
            bound(((-1.0 - first) / step).floor() - 1.0)..bound(((size - first) / step).ceil() + 1.0)
        } else {
            0..bound(self.points)
        };
        let known = step.is_finite() && self.points <= MOST_POINTS && size > 0.0;
        let range = if known { range } else { 0..0 };
        let at = range.map(move |i| first + (i as f64 + 0.5) * step);
        at.filter(move |&at| at >= -1.0 && at <= size).map(move |at| at.max(0.0).min(size - 1.0))
    }
}

/// The two elements next to a point, and the second one's weight.
fn neighbours(at: f64, size: usize) -> (usize, usize, f64) {
    let low = at.floor();
    (low as usize, (low as usize + 1).min(size - 1), at - low)
}

impl Regions {
    /// All bins of all channels of one region.
    fn region<T: Element>(
        &self,
        isa: Isa,
        plan: &Plan,
        corners: [[f64; 2]; 2],
        image: &[T],
        out: &mut [T],
        scratch: &mut Scratch<'_, T::Sum>,
    ) {
        for axis in 0..2 {
            for bin in 0..plan.bins[axis] {
                scratch.spans[axis][bin] = self.span(corners[axis], (bin, plan.bins[axis]), plan.size[axis]);
                if let Kind::Align { max: false, .. } = self.kind {
                    let size = plan.size[axis];
                    weigh::<T>(
                        &mut scratch.spans[axis][bin],
                        &mut scratch.weights[axis][bin * size..][..size],
                    );
                }
            }
        }
        if let Kind::Align { max: false, .. } = self.kind {
            for (bin, span) in scratch.spans[1].iter_mut().enumerate() {
                let all = bin * plan.size[1]..(bin + 1) * plan.size[1];
                compact(span, &mut scratch.weights[1][all.clone()], &mut scratch.places[all]);
            }
            return isa.run(Means { plan, image, out, scratch });
        }
        let (elements, bins) = (plan.size[0] * plan.size[1], plan.bins[0] * plan.bins[1]);
        for c in 0..plan.channels {
            let (plane, out) = (&image[c * elements..][..elements], &mut out[c * bins..][..bins]);
            match self.kind {
                Kind::Align { .. } => largest_parts(plan, plane, out, scratch),
                Kind::MaxPool => largest(plan, plane, out, scratch),
            }
        }
    }

    /// One bin along one dimension.
    fn span(&self, [start, end]: [f64; 2], (bin, bins): (usize, usize), size: usize) -> Span {
        let Kind::Align { samples, half_pixel, .. } = self.kind else {
            let (start, end) = (start.round(), end.round());
            let length = (end - start + 1.0).max(1.0);
            let at = |i: usize| i as f64 * length / bins as f64 + start;
            let inside = |x: f64| x.clamp(0.0, size as f64) as u32;
            let (from, to) = (inside(at(bin).floor()), inside(at(bin + 1).ceil()));
            return Span { from, count: to.saturating_sub(from), ..Span::EMPTY };
        };
        let shift = if half_pixel { 0.5 } else { 0.0 };
        let (start, end) = (start - shift, end - shift);
        let length = if half_pixel { end - start } else { (end - start).max(1.0) };
        let width = length / bins as f64;
        let points = if samples > 0 { samples as f64 } else { width.ceil().max(0.0) };
        Span { points, first: start + bin as f64 * width, step: width / points, ..Span::EMPTY }
    }
}

/// Adds up the weights of the elements next to a bin's points; the span becomes what these cover.
fn weigh<T: Element>(span: &mut Span, weights: &mut [T::Sum]) {
    weights.fill(T::Sum::default());
    let (mut from, mut to) = (weights.len(), 0);
    for at in span.places(weights.len()) {
        let (low, high, part) = neighbours(at, weights.len());
        weights[low] += T::sum(1.0 - part);
        weights[high] += T::sum(part);
        (from, to) = (from.min(low), to.max(high + 1));
    }
    (span.from, span.count) = (from.min(to) as u32, to.saturating_sub(from) as u32);
}

/// Puts the weights of a span that are not zero in front, with their places: a few points far apart have few.
fn compact<S: Copy + Default + PartialOrd>(span: &mut Span, weights: &mut [S], places: &mut [u32]) {
    let mut count = 0;
    for i in span.range() {
        if weights[i] != S::default() {
            (weights[count], places[count]) = (weights[i], i as u32);
            count += 1;
        }
    }
    span.weights = count as u32;
}

/// The means over the bins' points in all channels, first down the columns under the region, then along them.
struct Means<'a, 's, T: Element> {
    plan: &'a Plan,
    image: &'a [T],
    out: &'a mut [T],
    scratch: &'a mut Scratch<'s, T::Sum>,
}

impl<T: Element> Kernel for Means<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Means { plan, image, out, scratch } = self;
        let ([height, width], [bins_y, bins_x]) = (plan.size, plan.bins);
        let [spans_y, spans_x] = &scratch.spans;
        let covered = spans_x.iter().filter(|s| s.count > 0);
        let from = covered.clone().map(|s| s.range().start).min().unwrap_or(0);
        let to = covered.map(|s| s.range().end).max().unwrap_or(0);
        for at in 0..plan.channels * bins_y {
            let (channel, bin) = (at / bins_y, at % bins_y);
            let (plane, y) = (&image[channel * height * width..][..height * width], &spans_y[bin]);
            let row = &mut scratch.row[from..to];
            row.fill(T::Sum::default());
            for line in y.range() {
                let weight = scratch.weights[0][bin * height + line];
                if weight != T::Sum::default() {
                    let pixels = &plane[line * width..][from..to];
                    row.iter_mut().zip(pixels).for_each(|(sum, &x)| *sum += weight * x.wide());
                }
            }
            for (column, x) in spans_x.iter().enumerate() {
                let all = column * width..column * width + x.weights as usize;
                let weights = scratch.weights[1][all.clone()].iter().zip(&scratch.places[all]);
                let mut sum = T::Sum::default();
                weights.for_each(|(&weight, &place)| sum += weight * scratch.row[place as usize]);
                out[at * bins_x + column] = T::narrow(sum * T::sum(1.0 / (y.points * x.points).max(1.0)));
            }
        }
    }
}

/// The largest product of a pixel and its weight among a bin's points; a point outside of the image is 0.
fn largest_parts<T: Element>(plan: &Plan, plane: &[T], out: &mut [T], scratch: &mut Scratch<'_, T::Sum>) {
    let ([height, width], [_, bins_x]) = (plan.size, plan.bins);
    let [spans_y, spans_x] = &scratch.spans;
    for (bin, place) in out.iter_mut().enumerate() {
        let (y, x) = (spans_y[bin / bins_x], spans_x[bin % bins_x]);
        let mut best: Option<T::Sum> = None;
        let mut seen = 0.0;
        for (low_y, high_y, part_y) in y.places(height).map(|at| neighbours(at, height)) {
            for (low_x, high_x, part_x) in x.places(width).map(|at| neighbours(at, width)) {
                seen += 1.0;
                for (row, a) in [(low_y, 1.0 - part_y), (high_y, part_y)] {
                    for (column, b) in [(low_x, 1.0 - part_x), (high_x, part_x)] {
                        let value = T::sum(a * b) * plane[row * width + column].wide();
                        best = Some(best.filter(|&best| best >= value).unwrap_or(value));
                    }
                }
            }
        }
        let zero = T::Sum::default();
        let outside = seen < y.points * x.points;
        *place = T::narrow(best.filter(|&best| !outside || best > zero).unwrap_or(zero));
    }
}

/// The largest pixel of each bin; 0 of a bin without pixels.
fn largest<T: Element>(plan: &Plan, plane: &[T], out: &mut [T], scratch: &mut Scratch<'_, T::Sum>) {
    let (width, bins_x) = (plan.size[1], plan.bins[1]);
    let [spans_y, spans_x] = &scratch.spans;
    for (bin, place) in out.iter_mut().enumerate() {
        let columns = spans_x[bin % bins_x].range();
        let rows = spans_y[bin / bins_x].range();
        let pixels = rows.flat_map(|row| &plane[row * width..][columns.clone()]).map(|x| x.wide());
        let least = pixels.reduce(|a, b| if a >= b || a.partial_cmp(&a).is_none() { a } else { b });
        *place = T::narrow(least.unwrap_or_default());
    }
}
