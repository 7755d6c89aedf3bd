//! Images read at positions between their elements.
//!
//! Where a position reads, and with which weights, is the same in all channels. So a task, which is a block of an image's points and some of its channels,
//! first finds the *windows* of its points: for each dimension, as many neighbouring elements as the interpolation takes, all of them within the
//! image, and their weights (`grid_sample/windows.rs`). Then it goes over the planes of the channels, one after the other, so that a plane stays in the
//! second-level cache while all points of the block read it, in no order. A window of a plane is read by pairs of neighbours along its lines, for
//! sixteen points at a time ([`Simd::pick_pairs`]): an interpolation's two neighbours take one load.
//!
//! Elements of weight 0 add nothing, as the op says, so a window may hold some that are no neighbours.

mod windows;

use rlx_ir::op::SampleMode;
use rlx_ir::{DType, Error, ErrorKind, Graph, Node, Op, Result};
use rlx_opt::Claim;

use self::windows::{Find, Form, MOST_AXES, Points, Windows};
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::isa::Kernel;
use crate::layout::At;
use crate::simd::{LANES, Simd};

/// Points of a block. Planes of images as large as this are in the second-level cache, and read once.
const BLOCK: usize = 1 << 16;

/// Of images with few channels, which would make few tasks.
const SHORT_BLOCK: usize = 1 << 12;
const FEW_CHANNELS: usize = 8;

/// f32, in up to three dimensions.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let inputs = node.inputs.iter().map(|&id| graph.shape(id).dtype()).collect::<Vec<_>>();
    if inputs.iter().all(|&d| d == DType::F32) && inputs.len() <= MOST_AXES + 1 {
        Claim::Native
    } else {
        Claim::No("kernels sample f32 in up to three dimensions".to_string())
    }
}

/// The kernel.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    match cx.node().op {
        Op::GridSample { mode, outside } => Ok(Box::new(GridSample { form: (mode, outside), plan: None })),
        ref op => Err(no_kernel(op, "it samples nothing")),
    }
}

#[derive(Debug, Clone, Copy)]
struct GridSample {
    form: Form,
    plan: Option<Plan>,
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    x: At,
    out: At,
    windows: Windows,
    batch: usize,
    channels: usize,
    /// Elements of a plane, points of an image, and points of a block.
    size: usize,
    points: usize,
    block: usize,
    worth: bool,
}

impl StepKernel for GridSample {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, positions, out) = (&cx.inputs[0], &cx.inputs[1..], &cx.outputs[0]);
        let none = || mismatch(format!("positions {:?} in {:?}", positions[0].dims(), x.dims()));
        let (x_dims, at_dims, out_dims) = (x.dims(), positions[0].dims(), out.dims());
        let axes = positions.len();
        let fits = axes <= MOST_AXES
            && x_dims.len() == axes + 2
            && out_dims.len() == at_dims.len() + 1
            && !at_dims.is_empty()
            && out_dims[..2] == x_dims[..2]
            && at_dims[0] == x_dims[0]
            && at_dims[1..] == out_dims[2..]
            && positions.iter().all(|p| p.dims() == at_dims && p.layout.is_dense())
            && x.layout.is_dense()
            && out.layout.is_dense();
        if !fits {
            return Err(none());
        }
        let empty = out.layout.elements() == 0;
        if !empty && x_dims.contains(&0) {
            return Err(Error::new(ErrorKind::Value, "an image without elements, which has none to read"));
        }
        let (batch, channels) = (x_dims[0], x_dims[1]);
        // Where there is nothing to compute, planes and points may be as many as they like.
        let sizes = if empty { &[0; MOST_AXES][..axes] } else { &x_dims[2..] };
        let points = if empty { 0 } else { at_dims[1..].iter().product() };
        let size = sizes.iter().product();
        // Places within a plane are numbers of 32 bits.
        i32::try_from(size).map_err(|_| none())?;
        let windows = Windows::new(self.form, sizes, positions.iter().map(|p| p.at));
        let most = if channels < FEW_CHANNELS { SHORT_BLOCK } else { BLOCK };
        let blocks = points.div_ceil(most).max(1);
        let block = points.div_ceil(blocks).next_multiple_of(LANES);
        let reads = (windows.rows * windows.width) as f64;
        let nanos = out.layout.elements() as f64 * (0.1 + 0.15 * reads) + (batch * points) as f64 * 2.0;
        let worth = nanos > WORTH_NANOS;
        self.plan = Some(Plan { x: x.at, out: out.at, windows, batch, channels, size, points, block, worth });
        Ok(Needs { thread_scratch: windows.bytes(block), shared_scratch: 0, nanos })
    }

    // SAFETY: the promise is that of [`StepKernel::run`].
    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(plan) = &self.plan else { return Err(unbound()) };
        let (x, out, isa) = (cx.shared::<f32>(plan.x), cx.shared::<f32>(plan.out), cx.isa);
        let positions = plan.windows.axes.map(|axis| cx.shared::<f32>(axis.positions));
        let blocks = plan.points.div_ceil(plan.block.max(1));
        let rows = plan.batch * blocks;
        let piece = cx.share(plan.worth, rows, plan.channels, plan.channels, 1);
        let pieces = plan.channels.div_ceil(piece);
        cx.parallel(plan.worth, rows * pieces, &|range, scratch| {
            let mut found = None;
            for task in range {
                let (row, channel) = (task / pieces, task % pieces * piece);
                let (image, start) = (row / blocks, row % blocks * plan.block);
                let count = plan.block.min(plan.points - start);
                let from = image * plan.points + start;
                let windows = Points { windows: &plan.windows, records: scratch.cast(), count };
                if found != Some(row) {
                    let positions = positions.map(|p| p.get().wrapping_add(from).cast_const());
                    isa.run(Find { points: windows, positions });
                    found = Some(row);
                }
                let plane = image * plan.channels + channel;
                isa.run(Planes {
                    points: windows,
                    planes: piece.min(plan.channels - channel),
                    size: plan.size,
                    stride: plan.points,
                    x: x.get().wrapping_add(plane * plan.size),
                    out: out.get().wrapping_add(plane * plan.points + start),
                });
            }
        });
        Ok(())
    }
}

/// Some planes read at the points of a block.
struct Planes<'a> {
    points: Points<'a>,
    planes: usize,
    /// Elements of a plane of the image, and of the result.
    size: usize,
    stride: usize,
    x: *const f32,
    out: *mut f32,
}

impl Kernel for Planes<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Windows { rows, width, form: (mode, _), .. } = *self.points.windows;
        // SAFETY: the run was promised the operands; windows are within planes.
        unsafe {
            match (mode, rows, width) {
                (SampleMode::Nearest, ..) => self.each(s, Nearest),
                (_, 2, 2) => self.each(s, Lines::<2, 2>),
                _ => self.each(s, Lines::<0, 0>),
            }
        }
    }
}

impl Planes<'_> {
    /// # Safety
    /// The planes must be readable, the points of the result's planes writable, and windows found for all points.
    #[inline(always)]
    unsafe fn each<S: Simd, R: Read>(&self, s: S, read: R) {
        let (points, record) = (self.points, self.points.windows.record());
        for plane in 0..self.planes {
            let from = self.x.wrapping_add(plane * self.size);
            let to = self.out.wrapping_add(plane * self.stride);
            for first in (0..points.count).step_by(LANES) {
                let at = points.records.wrapping_add(first / LANES * record);
                // SAFETY: the caller's promise.
                unsafe {
                    let y = read.window(s, points.windows, at, from);
                    s.store_upto(to.add(first), LANES.min(points.count - first), y);
                }
            }
        }
    }
}

/// What is made of windows.
trait Read: Copy {
    /// The values of sixteen windows in the plane at `from`.
    ///
    /// # Safety
    /// The record must be one that was found, and windows within the plane.
    unsafe fn window<S: Simd>(self, s: S, windows: &Windows, record: *const f32, from: *const f32) -> S::F;
}

/// Windows of one element.
#[derive(Clone, Copy)]
struct Nearest;

impl Read for Nearest {
    #[inline(always)]
    unsafe fn window<S: Simd>(self, s: S, _: &Windows, record: *const f32, from: *const f32) -> S::F {
        // SAFETY: the caller's promise.
        unsafe {
            let x = s.pick(from, record.cast());
            let (row, column) = (s.load(record.add(LANES)), s.load(record.add(2 * LANES)));
            s.select(s.eq(s.mul(row, column), s.zero()), s.zero(), x)
        }
    }
}

/// Windows of several lines, as many as their numbers say unless these are 0.
#[derive(Clone, Copy)]
struct Lines<const ROWS: usize, const WIDTH: usize>;

impl<const ROWS: usize, const WIDTH: usize> Read for Lines<ROWS, WIDTH> {
    #[inline(always)]
    unsafe fn window<S: Simd>(self, s: S, windows: &Windows, record: *const f32, from: *const f32) -> S::F {
        let rows = if ROWS == 0 { windows.rows } else { ROWS };
        let width = if WIDTH == 0 { windows.width } else { WIDTH };
        let weights = record.wrapping_add(LANES);
        let own = weights.wrapping_add(rows * LANES);
        let mut sum = s.zero();
        for row in 0..rows {
            // SAFETY: the caller's promise: pairs are of elements of the window.
            unsafe {
                let line = from.add(windows.lines[row]);
                let mut value = s.zero();
                for i in (0..width - 1).step_by(2) {
                    let (a, b) = s.pick_pairs(line.add(i), record.cast());
                    value = add_weighted(s, value, a, s.load(own.add(i * LANES)));
                    value = add_weighted(s, value, b, s.load(own.add((i + 1) * LANES)));
                }
                if width % 2 == 1 {
                    let a = s.pick(line.add(width - 1), record.cast());
                    value = add_weighted(s, value, a, s.load(own.add((width - 1) * LANES)));
                }
                sum = add_weighted(s, sum, value, s.load(weights.add(row * LANES)));
            }
        }
        sum
    }
}

/// `sum + x·weight`, and `sum` where the weight is 0.
#[inline(always)]
fn add_weighted<S: Simd>(s: S, sum: S::F, x: S::F, weight: S::F) -> S::F {
    s.select(s.eq(weight, s.zero()), sum, s.mul_add(x, weight, sum))
}
