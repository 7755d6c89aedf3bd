//! Transposed convolution of f32, rows of the result in vectors.
//!
//! A row of the result is as many interleaved *phases* as its stride: places `stride·q + phase`. Each tap of the kernel reaches
//! one phase, and there it adds the row of the input shifted by a constant. So neighbours of a phase are sums over neighbours of
//! the input, which some channels of the result share. The rows of the input that reach a row of the result are first copied to
//! scratch with room at both ends; where a vector reaches over an end, the lanes that do are not added. The phases of a row wait in scratch,
//! from where they are dealt out: those of a stride of two as whole vectors.
//!
//! A result is one chain over channels, rows and taps, whatever the number of threads.

use std::ops::Range;

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

/// Where rows are in scratch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows {
    /// Elements of a copied row, and how many of them are before the first of the input.
    len: usize,
    left: usize,
    /// The most rows of a channel that reach one of the result.
    most: usize,
    /// Elements of all copied rows.
    copied: usize,
    /// Elements of a phase, and the phases of a row of the result.
    neighbours: usize,
    phases: usize,
}

/// The phase that tap `tap` reaches, and by how many places it shifts.
fn phase_of(axis: &WindowAxis, tap: usize) -> (usize, isize) {
    let (at, stride) = ((tap * axis.dilation) as isize - axis.before as isize, axis.stride as isize);
    (at.rem_euclid(stride) as usize, at.div_euclid(stride))
}

impl Rows {
    /// How rows are laid out for groups of `inputs` channels that make `outputs`, and the bytes for them; `None` if the kernel is
    /// too large for it.
    pub(super) fn new(
        slides: &[WindowAxis; SPATIAL],
        inputs: usize,
        outputs: usize,
    ) -> Option<(Rows, usize)> {
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
        let copied = len.checked_mul(most)?.checked_mul(inputs)?;
        let phases = last.stride.min(last.size);
        let dealt = neighbours.checked_mul(phases)?.checked_mul(CHANNELS.min(outputs))?;
        let bytes = copied.checked_add(dealt)?.checked_mul(size_of::<f32>())?;
        (bytes <= MAX_BYTES).then_some((Rows { len, left, most, copied, neighbours, phases }, bytes))
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
        isa.run(Tasks { plan, rows, x, w, out, bias, groups, range, scratch: scratch.cast() });
    });
}

/// Rows of the result, each in all channels of a group.
struct Tasks<'a> {
    plan: &'a Plan,
    rows: Rows,
    x: Shared<f32>,
    w: Shared<f32>,
    out: Shared<f32>,
    bias: Option<(Shared<f32>, isize)>,
    groups: usize,
    range: Range<usize>,
    scratch: *mut f32,
}

impl Kernel for Tasks<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [z, y, last] = &self.plan.slides;
        let along = [Taps::of(z, self.plan.tap_steps[0]), Taps::of(y, self.plan.tap_steps[1])];
        let taps = Taps::by_phase(last, self.plan.tap_steps[2]);
        // SAFETY: `run` was promised operands and scratch, whose borders no row changes.
        unsafe {
            self.clear_borders();
            for task in self.range.clone() {
                let (plane, place) = (task / (z.size * y.size), [task / y.size % z.size, task % y.size]);
                let (batch, group) = (plane / self.groups, plane % self.groups);
                let row = Row { of: &self, batch, group, place };
                let reaching = row.reaching(&along);
                row.copy(s, reaching.get());
                row.compute(s, reaching.get(), taps.get());
            }
        }
    }
}

impl Tasks<'_> {
    /// Writes zeros before and behind all rows that are copied later.
    ///
    /// # Safety
    /// As [`run`].
    #[inline(always)]
    unsafe fn clear_borders(&self) {
        let Rows { len, left, copied, .. } = self.rows;
        let windows = self.plan.slides[2].windows;
        for row in (0..copied).step_by(len) {
            let row = self.scratch.wrapping_add(row);
            // SAFETY: the caller's promise.
            unsafe {
                row.write_bytes(0, left);
                row.wrapping_add(left + windows).write_bytes(0, len - left - windows);
            }
        }
    }
}

/// A row of the result, in all channels of a group.
struct Row<'a> {
    of: &'a Tasks<'a>,
    batch: usize,
    group: usize,
    /// The row's place along the dimensions before the last.
    place: [usize; SPATIAL - 1],
}

/// A tap: the phase that it reaches, by how many places it shifts, and where its weight is.
#[derive(Clone, Copy)]
struct Tap {
    phase: usize,
    shift: isize,
    weight: isize,
}

/// Taps that were found, of at most [`MAX_TAPS`].
struct Taps {
    all: [Tap; MAX_TAPS],
    len: usize,
}

impl Taps {
    const NONE: Taps = Taps { all: [Tap { phase: 0, shift: 0, weight: 0 }; MAX_TAPS], len: 0 };

    /// The taps of a dimension in their order, whose weights are `step` apart.
    #[inline(always)]
    fn of(axis: &WindowAxis, step: isize) -> Taps {
        let mut found = Taps::NONE;
        for tap in 0..axis.taps {
            let (phase, shift) = phase_of(axis, tap);
            found.push(Tap { phase, shift, weight: tap as isize * step });
        }
        found
    }

    /// The same with those of a phase behind each other, phase by phase.
    #[inline(always)]
    fn by_phase(axis: &WindowAxis, step: isize) -> Taps {
        let mut found = Taps::of(axis, step);
        let len = found.len;
        // Moved forwards past those of later phases alone, which keeps the order of a phase.
        for i in 1..len {
            for j in (1..=i).rev() {
                if found.all[j - 1].phase > found.all[j].phase {
                    found.all.swap(j - 1, j);
                }
            }
        }
        found
    }

    #[inline(always)]
    fn push(&mut self, tap: Tap) {
        self.all[self.len] = tap;
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
    /// The first channel of the result.
    channel: usize,
    /// Where the results of that channel go, those of the next one this far behind them, and how many there are.
    to: *mut f32,
    step: isize,
    places: usize,
}

impl Row<'_> {
    /// The rows of a channel of the input that reach this one: where each is (as its shift), and its weights.
    #[inline(always)]
    fn reaching(&self, [along_z, along_y]: &[Taps; SPATIAL - 1]) -> Taps {
        let [z, y, _] = &self.of.plan.slides;
        let mut found = Taps::NONE;
        let [(phase_z, own_z), (phase_y, own_y)] =
            [(z, self.place[0]), (y, self.place[1])].map(|(axis, at)| (at % axis.stride, at / axis.stride));
        for tz in along_z.get() {
            let from_z = own_z as isize - tz.shift;
            if tz.phase != phase_z || from_z < 0 || from_z >= z.windows as isize {
                continue;
            }
            for ty in along_y.get() {
                let from_y = own_y as isize - ty.shift;
                if ty.phase == phase_y && from_y >= 0 && from_y < y.windows as isize {
                    let shift = from_z * z.window_step + from_y * y.window_step;
                    found.push(Tap { phase: 0, shift, weight: tz.weight + ty.weight });
                }
            }
        }
        found.len = found.len.min(self.of.rows.most);
        found
    }

    /// Copies the rows of all channels of the group, between their borders.
    ///
    /// # Safety
    /// As [`run`].
    #[inline(always)]
    unsafe fn copy<S: Simd>(&self, s: S, rows: &[Tap]) {
        let (p, Rows { len, left, .. }) = (self.of.plan, self.of.rows);
        let last = &p.slides[2];
        let x = self.of.x.get().wrapping_offset(self.batch as isize * p.x_steps[0]);
        for channel in 0..p.inputs {
            let x = x.wrapping_offset((self.group * p.inputs + channel) as isize * p.x_steps[1]);
            for (i, row) in rows.iter().enumerate() {
                let to = self.of.scratch.wrapping_add((channel * rows.len() + i) * len + left);
                let from = x.wrapping_offset(row.shift).cast_const();
                // SAFETY: the caller's promise.
                unsafe {
                    if last.window_step == 1 {
                        for i in (0..last.windows).step_by(LANES) {
                            let n = LANES.min(last.windows - i);
                            s.store_upto(to.add(i), n, s.load_upto(from.add(i), n));
                        }
                    } else {
                        for i in 0..last.windows {
                            *to.add(i) = *from.wrapping_offset(i as isize * last.window_step);
                        }
                    }
                }
            }
        }
    }

    /// Computes the row, some channels at a time.
    ///
    /// # Safety
    /// As [`run`]; the rows must have been copied.
    #[inline(always)]
    unsafe fn compute<S: Simd>(&self, s: S, rows: &[Tap], taps: &[Tap]) {
        let (p, r) = (self.of.plan, self.of.rows);
        let (last, direct) = (&p.slides[2], p.slides[2].stride == 1 && p.slides[2].step == 1);
        let mut own = 0;
        while own < p.outputs {
            let channels = if own + CHANNELS <= p.outputs { CHANNELS } else { 1 };
            let w = self.group as isize * p.inputs as isize * p.w_steps[0] + own as isize * p.w_steps[1];
            let channel = self.group * p.outputs + own;
            let mut done = 0;
            for phase in 0..r.phases {
                let start = done;
                while done < taps.len() && taps[done].phase == phase {
                    done += 1;
                }
                let dealt = self.of.scratch.wrapping_add(r.copied + phase * r.neighbours);
                let (to, step) = match direct {
                    true => (self.result(channel), p.out_steps[1]),
                    false => (dealt, (r.phases * r.neighbours) as isize),
                };
                let places = (last.size - phase).div_ceil(last.stride);
                for first in (0..places).step_by(VECTORS * LANES) {
                    let tile = Tile {
                        x: self.of.scratch.wrapping_add(r.left + first),
                        w: self.of.w.get().wrapping_offset(w),
                        rows,
                        taps: &taps[start..done],
                        first,
                        channel,
                        to: to.wrapping_add(first),
                        step,
                        places: places - first,
                    };
                    // SAFETY: the caller's promise; copied rows and those that wait have room for whole vectors.
                    unsafe {
                        match channels {
                            CHANNELS => self.channels::<S, CHANNELS>(s, &tile),
                            _ => self.channels::<S, 1>(s, &tile),
                        }
                    }
                }
            }
            for channel in channel..if direct { channel } else { channel + channels } {
                // SAFETY: the caller's promise; all phases were computed.
                unsafe { self.deal(s, channel, channel - self.group * p.outputs - own) };
            }
            own += channels;
        }
    }

    /// Where a channel of the row begins.
    #[inline(always)]
    fn result(&self, channel: usize) -> *mut f32 {
        let (p, [z, y, _]) = (self.of.plan, &self.of.plan.slides);
        let at = self.batch as isize * p.out_steps[0]
            + channel as isize * p.out_steps[1]
            + self.place[0] as isize * z.step
            + self.place[1] as isize * y.step;
        self.of.out.get().wrapping_offset(at)
    }

    /// Deals out the phases of a channel, the `own`-th of those that wait.
    ///
    /// # Safety
    /// As [`run`].
    #[inline(always)]
    unsafe fn deal<S: Simd>(&self, s: S, channel: usize, own: usize) {
        let (r, last) = (self.of.rows, &self.of.plan.slides[2]);
        let from = self.of.scratch.wrapping_add(r.copied + own * r.phases * r.neighbours).cast_const();
        let to = self.result(channel);
        // SAFETY: the caller's promise; of lanes without a place, which hold anything, none is stored.
        unsafe {
            if [last.stride, r.phases] == [2, 2] && last.step == 1 {
                for at in (0..last.size).step_by(2 * LANES) {
                    let (even, odd) = (from.add(at / 2), from.add(r.neighbours + at / 2));
                    let (low, high) = s.zip(s.load(even), s.load(odd));
                    let left = last.size - at;
                    s.store_upto(to.add(at), LANES.min(left), low);
                    if left > LANES {
                        s.store_upto(to.add(at + LANES), LANES.min(left - LANES), high);
                    }
                }
                return;
            }
            for phase in 0..r.phases {
                let from = from.add(phase * r.neighbours);
                for (i, at) in (phase..last.size).step_by(last.stride).enumerate() {
                    *to.wrapping_offset(at as isize * last.step) = *from.add(i);
                }
            }
        }
    }

    /// A tile of `C` channels: of one vector if the places are no more than that.
    ///
    /// # Safety
    /// As [`Row::tile`].
    #[inline(always)]
    unsafe fn channels<S: Simd, const C: usize>(&self, s: S, tile: &Tile<'_>) {
        // SAFETY: the caller's promise.
        unsafe {
            match tile.places > LANES {
                true if self.is_inside::<VECTORS>(tile) => self.tile::<S, C, VECTORS, false>(s, tile),
                true => self.tile::<S, C, VECTORS, true>(s, tile),
                false if self.is_inside::<1>(tile) => self.tile::<S, C, 1, false>(s, tile),
                false => self.tile::<S, C, 1, true>(s, tile),
            }
        }
    }

    /// Whether all taps of a tile of `V` vectors read the row alone.
    #[inline(always)]
    fn is_inside<const V: usize>(&self, t: &Tile<'_>) -> bool {
        let windows = self.of.plan.slides[2].windows as isize;
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
        let end = self.of.plan.slides[2].windows as isize - first;
        s.mask_and(s.le(s.splat((-first) as f32), lanes), s.lt(lanes, s.splat(end as f32)))
    }

    /// `C` channels of `V` vectors of a phase; `EDGE` where some taps reach over an end of the row.
    ///
    /// # Safety
    /// As [`run`]; rows must have been copied, and the tile's results have room for its places.
    #[inline(always)]
    unsafe fn tile<S: Simd, const C: usize, const V: usize, const EDGE: bool>(&self, s: S, t: &Tile<'_>) {
        let (p, len) = (self.of.plan, self.of.rows.len);
        let mut sums = [[s.zero(); V]; C];
        if let Some((bias, step)) = self.of.bias {
            for (i, sums) in sums.iter_mut().enumerate() {
                // SAFETY: there is a bias for each channel.
                *sums = [s.splat(unsafe { *bias.get().wrapping_offset((t.channel + i) as isize * step) }); V];
            }
        }
        let lanes = s.from_int(s.iota());
        for channel in 0..p.inputs {
            for (i, row) in t.rows.iter().enumerate() {
                let x = t.x.wrapping_add((channel * t.rows.len() + i) * len);
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
            let to = t.to.wrapping_offset(c as isize * t.step);
            for (v, &sums) in sums.iter().enumerate() {
                let n = LANES.min(t.places.saturating_sub(v * LANES));
                // SAFETY: the caller's promise.
                unsafe { s.store_upto(to.wrapping_add(v * LANES), n, sums) };
            }
        }
    }
}
