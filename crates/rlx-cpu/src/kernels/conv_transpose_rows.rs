//! Transposed convolution of f32, rows of the result in vectors.
//!
//! A row of the result is as many interleaved *phases* as its stride: places `stride·q + phase`. Each tap of the kernel reaches
//! one phase, and there it adds the row of the input shifted by a constant. So neighbours of a phase are sums over neighbours of
//! the input, which some channels of the result share. The rows of the input that reach a row of the result are first copied to
//! scratch with room at both ends; where a vector reaches over an end, the lanes that do are not added.
//!
//! A result is one chain over channels, rows and taps, whatever the number of threads.

use super::conv_transpose::Plan;
use super::window::{SPATIAL, WindowAxis};
use super::{RunCx, Shared};
use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Channels of the result that are computed side by side.
const CHANNELS: usize = 4;

/// Vectors of neighbours in a phase that are.
const VECTORS: usize = 2;

/// The most taps along the last dimension, and along all the others together.
const MAX_TAPS: usize = 32;

/// The most bytes of copied rows.
const MAX_BYTES: usize = 8 << 20;

/// Where rows are copied to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    /// Elements of a copied row, and how many of them are before the first of the input.
    len: usize,
    left: usize,
    /// The most rows of a channel that reach one of the result.
    most: usize,
}

/// The phase that tap `tap` reaches, and by how many places it shifts.
fn phase_of(axis: &WindowAxis, tap: usize) -> (usize, isize) {
    let (at, stride) = ((tap * axis.dilation) as isize - axis.before as isize, axis.stride as isize);
    (at.rem_euclid(stride) as usize, at.div_euclid(stride))
}

impl Rows {
    /// How rows are copied for `inputs` channels, and the bytes for them; `None` if the kernel is too large for it.
    pub(super) fn new(slides: &[WindowAxis; SPATIAL], inputs: usize) -> Option<(Rows, usize)> {
        let [z, y, last] = slides;
        let reach = |axis: &WindowAxis| axis.taps.div_ceil(axis.stride / gcd(axis.stride, axis.dilation));
        if last.taps == 0 || last.taps > MAX_TAPS || z.taps * y.taps > MAX_TAPS {
            return None;
        }
        let shifts = [phase_of(last, 0).1, phase_of(last, last.taps - 1).1];
        let left = usize::try_from(shifts[1].max(0)).ok()?;
        let right = usize::try_from((-shifts[0]).max(0)).ok()?;
        let neighbours = last.size.div_ceil(last.stride).checked_next_multiple_of(VECTORS * LANES)?;
        let len = left.checked_add(last.windows.max(neighbours.checked_add(right)?))?;
        let most = reach(z) * reach(y);
        let bytes = len.checked_mul(most)?.checked_mul(inputs)?.checked_mul(size_of::<f32>())?;
        (bytes <= MAX_BYTES).then_some((Rows { len, left, most }, bytes))
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Computes all rows of the result.
///
/// # Safety
/// As [`StepKernel::run`](super::StepKernel::run), for operands of f32 and the scratch that [`Rows::new`] wants.
pub(super) unsafe fn run(cx: &mut RunCx<'_, '_>, plan: &Plan, rows: Rows) {
    let (x, w, out) = (cx.shared::<f32>(plan.x), cx.shared::<f32>(plan.w), cx.shared::<f32>(plan.out));
    let bias = plan.bias.map(|(at, step)| (cx.shared::<f32>(at), step));
    let [z, y, _] = plan.slides;
    let (groups, isa) = (plan.channels.checked_div(plan.outputs).unwrap_or(0), cx.isa);
    cx.parallel(plan.worth, plan.batches * groups * z.size * y.size, &|range, scratch| {
        for task in range {
            let (plane, place) = (task / (z.size * y.size), [task / y.size % z.size, task % y.size]);
            let (batch, group) = (plane / groups, plane % groups);
            isa.run(Row { plan, rows, x, w, out, bias, batch, group, place, scratch: scratch.cast() });
        }
    });
}

/// A row of the result, in all channels of a group.
struct Row<'a> {
    plan: &'a Plan,
    rows: Rows,
    x: Shared<f32>,
    w: Shared<f32>,
    out: Shared<f32>,
    bias: Option<(Shared<f32>, isize)>,
    batch: usize,
    group: usize,
    /// The row's place along the dimensions before the last.
    place: [usize; SPATIAL - 1],
    scratch: *mut f32,
}

/// A tap of a phase: by how many places it shifts, and where its weight is.
#[derive(Clone, Copy)]
struct Tap {
    shift: isize,
    weight: isize,
}

/// Taps that were found, of at most [`MAX_TAPS`].
struct Taps {
    all: [Tap; MAX_TAPS],
    len: usize,
}

impl Taps {
    const NONE: Taps = Taps { all: [Tap { shift: 0, weight: 0 }; MAX_TAPS], len: 0 };

    #[inline(always)]
    fn push(&mut self, shift: isize, weight: isize) {
        self.all[self.len] = Tap { shift, weight };
        self.len += 1;
    }

    #[inline(always)]
    fn get(&self) -> &[Tap] {
        &self.all[..self.len]
    }
}

/// What some channels of a phase have in common.
struct Tile<'a> {
    /// Where the rows of the first channel of the group begin, for place 0.
    x: *const f32,
    /// The weights of that channel for the first channel of the result, of which there are some.
    w: *const f32,
    /// For each copied row of a channel, where its weights are.
    rows: &'a [Tap],
    taps: &'a [Tap],
    /// The first place of the phase.
    first: usize,
    /// The number of the phase.
    phase: usize,
    /// The first channel of the result.
    channel: usize,
}

impl Kernel for Row<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let p = self.plan;
        let last = p.slides[2];
        let rows = self.reaching();
        // SAFETY: `run` was promised operands and scratch.
        unsafe { self.copy(rows.get()) };
        for phase in 0..last.stride.min(last.size) {
            let mut taps = Taps::NONE;
            for tap in 0..last.taps {
                let (own, shift) = phase_of(&last, tap);
                if own == phase {
                    taps.push(shift, tap as isize * p.tap_steps[2]);
                }
            }
            let places = (last.size - phase).div_ceil(last.stride);
            let mut own = 0;
            while own < p.outputs {
                let channels = if own + CHANNELS <= p.outputs { CHANNELS } else { 1 };
                let w = self.group as isize * p.inputs as isize * p.w_steps[0] + own as isize * p.w_steps[1];
                for first in (0..places).step_by(VECTORS * LANES) {
                    let tile = Tile {
                        x: self.scratch.wrapping_add(self.rows.left + first),
                        w: self.w.get().wrapping_offset(w),
                        rows: rows.get(),
                        taps: taps.get(),
                        first,
                        phase,
                        channel: self.group * p.outputs + own,
                    };
                    // SAFETY: as above; copied rows have room for whole vectors.
                    unsafe {
                        match (channels, places - first > LANES) {
                            (CHANNELS, true) if self.is_inside::<VECTORS>(&tile) => {
                                self.tile::<S, CHANNELS, VECTORS, false>(s, &tile, places);
                            }
                            (CHANNELS, true) => self.tile::<S, CHANNELS, VECTORS, true>(s, &tile, places),
                            (CHANNELS, false) if self.is_inside::<1>(&tile) => {
                                self.tile::<S, CHANNELS, 1, false>(s, &tile, places);
                            }
                            (CHANNELS, false) => self.tile::<S, CHANNELS, 1, true>(s, &tile, places),
                            _ => self.tile::<S, 1, VECTORS, true>(s, &tile, places),
                        }
                    }
                }
                own += channels;
            }
        }
    }
}

impl Row<'_> {
    /// The rows of a channel of the input that reach this one: where each is (as its shift), and its weights.
    #[inline(always)]
    fn reaching(&self) -> Taps {
        let (p, [z, y, _]) = (self.plan, &self.plan.slides);
        let mut found = Taps::NONE;
        for tz in 0..z.taps {
            let Some(from_z) = z.window_at(tz, self.place[0]) else { continue };
            for ty in 0..y.taps {
                let Some(from_y) = y.window_at(ty, self.place[1]) else { continue };
                found.push(
                    from_z as isize * z.window_step + from_y as isize * y.window_step,
                    tz as isize * p.tap_steps[0] + ty as isize * p.tap_steps[1],
                );
            }
        }
        found.len = found.len.min(self.rows.most);
        found
    }

    /// Copies the rows of all channels of the group, with zeros before and behind them.
    ///
    /// # Safety
    /// As [`run`].
    #[inline(always)]
    unsafe fn copy(&self, rows: &[Tap]) {
        let (p, Rows { len, left, .. }) = (self.plan, self.rows);
        let last = &p.slides[2];
        let x = self.x.get().wrapping_offset(self.batch as isize * p.x_steps[0]);
        for channel in 0..p.inputs {
            let x = x.wrapping_offset((self.group * p.inputs + channel) as isize * p.x_steps[1]);
            for (i, row) in rows.iter().enumerate() {
                let to = self.scratch.wrapping_add((channel * rows.len() + i) * len);
                let from = x.wrapping_offset(row.shift);
                // SAFETY: the caller's promise.
                unsafe {
                    to.write_bytes(0, left);
                    for i in 0..last.windows {
                        *to.add(left + i) = *from.wrapping_offset(i as isize * last.window_step);
                    }
                    to.add(left + last.windows).write_bytes(0, len - left - last.windows);
                }
            }
        }
    }

    /// Whether all taps of a tile of `V` vectors read the row alone.
    #[inline(always)]
    fn is_inside<const V: usize>(&self, t: &Tile<'_>) -> bool {
        let windows = self.plan.slides[2].windows as isize;
        let mut inside = true;
        for tap in t.taps {
            let first = t.first as isize - tap.shift;
            inside &= first >= 0 && first + (V * LANES) as isize <= windows;
        }
        inside
    }

    /// Which of the elements from `first` on the row has.
    #[inline(always)]
    fn lanes_inside<S: Simd>(&self, s: S, lanes: S::F, first: isize) -> S::M {
        let end = self.plan.slides[2].windows as isize - first;
        s.mask_and(s.le(s.splat((-first) as f32), lanes), s.lt(lanes, s.splat(end as f32)))
    }

    /// `C` channels of `V` vectors of a phase that has `places`; `EDGE` where some taps reach over an end of the row.
    ///
    /// # Safety
    /// As [`run`]; rows must have been copied.
    #[inline(always)]
    unsafe fn tile<S: Simd, const C: usize, const V: usize, const EDGE: bool>(
        &self,
        s: S,
        t: &Tile<'_>,
        places: usize,
    ) {
        let p = self.plan;
        let mut sums = [[s.zero(); V]; C];
        if let Some((bias, step)) = self.bias {
            for (i, sums) in sums.iter_mut().enumerate() {
                // SAFETY: there is a bias for each channel.
                *sums = [s.splat(unsafe { *bias.get().wrapping_offset((t.channel + i) as isize * step) }); V];
            }
        }
        let mut lanes = [0.0; LANES];
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane = i as f32;
        }
        let lanes = s.from_array(&lanes);
        for channel in 0..p.inputs {
            for (i, row) in t.rows.iter().enumerate() {
                let x = t.x.wrapping_add((channel * t.rows.len() + i) * self.rows.len);
                let w = t.w.wrapping_offset(channel as isize * p.w_steps[0] + row.weight);
                for tap in t.taps {
                    for v in 0..V {
                        let first = (v * LANES) as isize - tap.shift;
                        // SAFETY: copied rows have room at both ends.
                        let x = unsafe { s.load(x.wrapping_offset(first)) };
                        for (c, sums) in sums.iter_mut().enumerate() {
                            // SAFETY: there are weights for each channel.
                            let w = unsafe { *w.wrapping_offset(tap.weight + c as isize * p.w_steps[1]) };
                            let sum = s.mul_add(x, s.splat(w), sums[v]);
                            sums[v] = if EDGE {
                                // What is outside of the row must not be added even if its product is no zero.
                                let valid = self.lanes_inside(s, lanes, t.first as isize + first);
                                s.select(valid, sum, sums[v])
                            } else {
                                sum
                            };
                        }
                    }
                }
            }
        }
        for (c, sums) in sums.iter().enumerate() {
            // SAFETY: the places are those of the row.
            unsafe { self.store(s, sums, t, c, places) };
        }
    }

    /// # Safety
    /// As [`run`].
    #[inline(always)]
    unsafe fn store<S: Simd, const V: usize>(
        &self,
        s: S,
        sums: &[S::F; V],
        t: &Tile<'_>,
        c: usize,
        places: usize,
    ) {
        let (p, [z, y, last]) = (self.plan, &self.plan.slides);
        let at = self.batch as isize * p.out_steps[0]
            + (t.channel + c) as isize * p.out_steps[1]
            + self.place[0] as isize * z.step
            + self.place[1] as isize * y.step;
        let out = self.out.get().wrapping_offset(at);
        for (v, &sums) in sums.iter().enumerate() {
            let first = t.first + v * LANES;
            let n = LANES.min(places.saturating_sub(first));
            let to = out.wrapping_offset((first * last.stride + t.phase) as isize * last.step);
            let step = last.stride as isize * last.step;
            // SAFETY: the caller's promise.
            unsafe {
                if step == 1 {
                    s.store_upto(to, n, sums);
                } else {
                    for (i, &sum) in s.to_array(sums).iter().enumerate().take(n) {
                        *to.wrapping_offset(i as isize * step) = sum;
                    }
                }
            }
        }
    }
}
