//! Where points read: the windows of neighbours around positions, and the neighbours' weights.
//!
//! A window has a fixed number of neighbouring elements along each dimension, and lies within the image. What a position outside reads is moved into
//! it: a neighbour's weight is added to that of the element which stands for it, so at a border one element may have the weights of several.

use rlx_ir::op::{Outside, SampleMode};

use crate::isa::Kernel;
use crate::layout::At;
use crate::simd::{LANES, Simd};

/// The most spatial dimensions.
pub(super) const MOST_AXES: usize = 3;

/// The most lines of a window: of cubic interpolation in three dimensions.
const MOST_ROWS: usize = 16;

/// What an interpolation is, and what is outside.
pub(super) type Form = (SampleMode, Outside);

/// Positions are cut off here: no image is as large.
const FAR: f32 = (1u64 << 40) as f32;

/// The coefficient of Keys' cubic convolution.
const CUBIC: f32 = -0.75;

/// The most neighbours along a dimension.
const MOST_NEIGHBOURS: usize = 4;

/// A dimension of an image.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    /// The positions along it.
    pub(super) positions: At,
    /// Its elements, how many of them are in a window, and how far apart they are in a plane.
    size: usize,
    window: usize,
    stride: usize,
}

/// The windows of an image's points.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    pub(super) form: Form,
    /// The last ones count.
    pub(super) axes: [Axis; MOST_AXES],
    first_axis: usize,
    /// The lines of a window, and where each begins behind the window's first element; the elements of a line.
    pub(super) rows: usize,
    pub(super) lines: [usize; MOST_ROWS],
    pub(super) width: usize,
}

impl Windows {
    pub(super) fn new(form: Form, sizes: &[usize], positions: impl Iterator<Item = At>) -> Windows {
        let neighbours = neighbours(form.0);
        let first_axis = MOST_AXES - sizes.len();
        let none = Axis { positions: At::NOWHERE, size: 1, window: 1, stride: 1 };
        let mut axes = [none; MOST_AXES];
        let mut stride = 1;
        for (axis, &size) in axes[first_axis..].iter_mut().zip(sizes).rev() {
            *axis = Axis { size, window: neighbours.min(size), stride, ..none };
            stride *= size;
        }
        axes[first_axis..].iter_mut().zip(positions).for_each(|(axis, at)| axis.positions = at);
        let (mut rows, mut lines) = (1, [0; MOST_ROWS]);
        for axis in &axes[first_axis..MOST_AXES - 1] {
            let before = lines;
            for row in 0..rows * axis.window {
                lines[row] = before[row / axis.window] + row % axis.window * axis.stride;
            }
            rows *= axis.window;
        }
        Windows { form, axes, first_axis, rows, lines, width: axes[MOST_AXES - 1].window }
    }

    /// How many numbers there are for sixteen points.
    pub(super) fn record(&self) -> usize {
        (1 + self.rows + self.width) * LANES
    }

    /// What the windows of so many points take.
    pub(super) fn bytes(&self, points: usize) -> usize {
        points.div_ceil(LANES) * self.record() * size_of::<f32>()
    }
}

fn neighbours(mode: SampleMode) -> usize {
    match mode {
        SampleMode::Nearest => 1,
        SampleMode::Linear => 2,
        _ => MOST_NEIGHBOURS,
    }
}

/// Some points of an image, and their windows: for sixteen points each, [`Windows::record`] numbers, which are the place of the window's first element
/// in each plane, then the weights of its lines, then those of the elements of a line, for all sixteen.
#[derive(Clone, Copy)]
pub(super) struct Points<'a> {
    pub(super) windows: &'a Windows,
    pub(super) records: *mut f32,
    pub(super) count: usize,
}

/// Finds the windows of points.
pub(super) struct Find<'a> {
    pub(super) points: Points<'a>,
    /// For each dimension.
    pub(super) positions: [*const f32; MOST_AXES],
}

impl Kernel for Find<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Points { windows, records, count } = self.points;
        for first in (0..count).step_by(LANES) {
            let record = records.wrapping_add(first / LANES * windows.record());
            let positions = self.positions.map(|p| p.wrapping_add(first));
            // SAFETY: the run was promised the positions, and scratch has a record for sixteen points each.
            unsafe { find(s, windows, positions, LANES.min(count - first), record) };
        }
    }
}

/// The windows of up to sixteen points.
///
/// # Safety
/// There must be `n` positions for each dimension, and room for a record.
#[inline(always)]
unsafe fn find<S: Simd>(
    s: S,
    windows: &Windows,
    positions: [*const f32; MOST_AXES],
    n: usize,
    record: *mut f32,
) {
    let mut place = s.splat_i(0);
    let weights = record.wrapping_add(LANES);
    let mut rows = [s.splat(1.0); MOST_ROWS];
    let mut count = 1;
    for i in windows.first_axis..MOST_AXES {
        let axis = &windows.axes[i];
        // SAFETY: the caller's promise.
        let position = unsafe { s.load_upto(positions[i], n) };
        let (start, own) = along(s, windows.form, axis, position);
        place = s.add_i(place, s.mul_i(s.to_int(start), s.splat_i(axis.stride as i32)));
        if i + 1 < MOST_AXES {
            // Each line becomes several, the last one first, so that none is replaced before it is read.
            for row in (0..count).rev() {
                let before = rows[row];
                for (j, &weight) in own.iter().enumerate().take(axis.window) {
                    rows[row * axis.window + j] = s.mul(before, weight);
                }
            }
            count *= axis.window;
            continue;
        }
        for (i, &weight) in own.iter().enumerate().take(axis.window) {
            // SAFETY: the caller's promise.
            unsafe { s.store(weights.add((count + i) * LANES), weight) };
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        for (row, &weight) in rows.iter().enumerate().take(count) {
            s.store(weights.add(row * LANES), weight);
        }
        s.store(record, s.from_bits(place));
    }
}

/// The first elements of windows along one dimension, and the weights of their elements.
#[inline(always)]
fn along<S: Simd>(
    s: S,
    (mode, outside): Form,
    axis: &Axis,
    position: S::F,
) -> (S::F, [S::F; MOST_NEIGHBOURS]) {
    // The lower bound is the second operand, because that is what NaN becomes.
    let position = s.min_raw(s.max_raw(position, s.splat(-FAR)), s.splat(FAR));
    let position = if mode == SampleMode::Nearest { s.round(position) } else { position };
    let position = match (outside, mode) {
        (Outside::Zeros, _) | (Outside::Border, SampleMode::Cubic) => position,
        _ => moved_inside(s, outside, axis.size, position),
    };
    let below = s.floor(position);
    let (own, before) = weights(s, mode, s.sub(position, below));
    let first = s.sub(below, s.splat(before));
    let start = clamp(s, first, 0.0, at_most(axis.size - axis.window));
    let mut out = [s.zero(); MOST_NEIGHBOURS];
    for (i, &weight) in own.iter().enumerate().take(neighbours(mode)) {
        let at = moved_inside(s, outside, axis.size, s.add(first, s.splat(i as f32)));
        for (j, out) in out.iter_mut().enumerate().take(axis.window) {
            let is_here = s.eq(at, s.add(start, s.splat(j as f32)));
            *out = s.select(is_here, s.add(*out, weight), *out);
        }
    }
    (start, out)
}

/// The weights of the neighbours of positions by so much behind an element, and how many of them are before that.
#[inline(always)]
fn weights<S: Simd>(s: S, mode: SampleMode, t: S::F) -> ([S::F; MOST_NEIGHBOURS], f32) {
    let (zero, one) = (s.zero(), s.splat(1.0));
    let u = s.sub(one, t);
    match mode {
        SampleMode::Nearest => ([one, zero, zero, zero], 0.0),
        SampleMode::Linear => ([u, t, zero, zero], 0.0),
        _ => ([outer(s, t, u), inner(s, t), inner(s, u), outer(s, u, t)], 1.0),
    }
}

/// Keys' weight of an element at a distance `t` up to 1: `1 + t²·((a + 2)·t − (a + 3))`.
#[inline(always)]
fn inner<S: Simd>(s: S, t: S::F) -> S::F {
    let y = s.mul_add(t, s.splat(CUBIC + 2.0), s.splat(-(CUBIC + 3.0)));
    s.mul_add(s.mul(t, t), y, s.splat(1.0))
}

/// Keys' weight of an element at a distance `1 + t`, `u = 1 − t`: `a·t·u²`.
#[inline(always)]
fn outer<S: Simd>(s: S, t: S::F, u: S::F) -> S::F {
    s.mul(s.mul(s.splat(CUBIC), t), s.mul(u, u))
}

/// Where positions outside read; where that is nowhere, the positions themselves.
#[inline(always)]
fn moved_inside<S: Simd>(s: S, outside: Outside, size: usize, at: S::F) -> S::F {
    let last = at_most(size.saturating_sub(1));
    let (low, span) = match outside {
        Outside::Zeros => return at,
        Outside::ReflectCentres => (0.0, last),
        Outside::ReflectEdges => (-0.5, at_most(size)),
        _ => return clamp(s, at, 0.0, last),
    };
    if size <= 1 {
        return s.zero();
    }
    let distance = s.abs(s.sub(at, s.splat(low)));
    let times = s.floor(s.div(distance, s.splat(span)));
    let within = s.neg_mul_add(times, s.splat(span), distance);
    let half = s.mul(times, s.splat(0.5));
    let is_even = s.eq(half, s.floor(half));
    let y = s.select(is_even, within, s.sub(s.splat(span), within));
    s.add(y, s.splat(low))
}

#[inline(always)]
fn clamp<S: Simd>(s: S, x: S::F, low: f32, high: f32) -> S::F {
    s.max_raw(s.min_raw(x, s.splat(high)), s.splat(low))
}

/// `n` as a float that is no larger.
fn at_most(n: usize) -> f32 {
    let nearest = n as f32;
    if nearest as usize > n { nearest.next_down() } else { nearest }
}
