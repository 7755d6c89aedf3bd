//! Direct convolution from planes to planes (NCHW): vectors run along the lines of the result, so it does not matter how many channels and
//! filters a group has, and nothing is transposed.
//!
//! A task is some lines of the result of one group of an image, or a piece of long ones, and of few lines some of the filters. The lines that it reads are copied into scratch with their border; with a step of
//! two, even columns first and odd ones behind them, so what sixteen neighbouring positions read is sixteen neighbours whatever the step is. A tile is
//! some filters of some vectors of positions: for F·N multiply-adds, N vectors are loaded and F weights. Where a channel has one filter
//! (depthwise), a tile is some lines instead (`lines`).
//!
//! The sum of a window is taken in the order of the kernel that it stands in for ([`Order`]), and so has its bits.

mod lines;
mod places;
#[cfg(test)]
mod tests;

pub(crate) use lines::suits_lines;

use std::ops::Range;

use self::places::{Place, Places, runs_on};
use super::{Windows, deal_columns};
use crate::gemm::each_row;
use crate::isa::{Isa, Kernel};
use crate::math::{self, Light, Unary};
use crate::simd::{LANES, Simd};

/// Bytes of the lines that a task copies.
const BLOCK: usize = 256 << 10;

/// The same where a channel has one filter: its lines are not read again for the next one, and stay in the first-level cache.
const BLOCK_OF_CHANNEL: usize = 24 << 10;

/// Tasks of an image, where it has as many lines: work for threads.
const FEWEST: usize = 8;

/// Vectors of positions of a task, where it is not an image: whole tiles of every form.
const LEAST: usize = 24;

/// Filters that are computed together, at most.
const FILTERS: usize = 8;

/// In which order a window's products are summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Lines of the kernel, channels, positions of a line.
    ChannelsInLines,
    /// Positions of the kernel, channels.
    ChannelsLast,
}

/// Strides of the weights, in elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WeightSteps {
    /// Filters of a panel; `usize::MAX` where weights are not in panels.
    pub(crate) panel: usize,
    /// From one panel to the next, and from one filter of a panel to the next.
    pub(crate) of_panel: isize,
    pub(crate) filter: isize,
    /// To the next line of the kernel, the next position, and the next channel.
    pub(crate) down: isize,
    pub(crate) right: isize,
    pub(crate) channel: isize,
}

/// A convolution, bound to sizes.
#[derive(Debug, Clone)]
pub(crate) struct Direct {
    windows: Windows,
    /// Channels and filters of a group, and how many groups there are.
    group: usize,
    filters: usize,
    groups: usize,
    /// Elements from one image to the next, and from one plane to the next, of the image and of the result.
    x: [usize; 2],
    y: [usize; 2],
    weights: WeightSteps,
    /// Lines of the result in a task, and what they read.
    lines: usize,
    reads: usize,
    /// Positions of a line in a task.
    width: usize,
    /// Tasks that share the filters of the same lines.
    parts: usize,
    /// Columns of a line of scratch that are a multiple of the step apart: those lie beside each other.
    columns: usize,
    /// Whether vectors run on from one line to the next, over the columns between that are no positions.
    runs_on: bool,
    /// Offsets of the kernel's positions and channels in scratch and in the weights: three nested loops, the outermost first.
    loops: [Vec<[isize; 2]>; 3],
    /// Which of them goes over the positions of a line of the kernel.
    right: usize,
    /// What tiles of lines know of each line that they read.
    rows: lines::Rows,
}

/// The operands of a [`Direct`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operands {
    pub(crate) x: *const f32,
    pub(crate) y: *mut f32,
    pub(crate) weights: *const f32,
    pub(crate) bias: Option<*const f32>,
    /// Whether sums start from the bias, rather than that it is added to them.
    pub(crate) bias_first: bool,
    pub(crate) activation: Option<Unary>,
}

// SAFETY: plain addresses; `Direct::run`, which uses them, is unsafe and says what must hold across threads.
unsafe impl Send for Operands {}
// SAFETY: as above.
unsafe impl Sync for Operands {}

impl Direct {
    /// The convolution of `group` channels for each filter; `None` if there is nothing to do.
    pub(crate) fn new(
        windows: Windows,
        [inputs, group]: [usize; 2],
        [x, y]: [[usize; 2]; 2],
        weights: WeightSteps,
        order: Order,
    ) -> Option<Direct> {
        let w = &windows;
        let groups = inputs.checked_div(group)?;
        let filters = w.channels.checked_div(groups)?;
        let by_lines = [group, filters] == [1, 1];
        let [lines, reads, width] = share(w, group, groups, by_lines);
        let step = w.stride[1];
        let runs_on = !by_lines && width == w.out[1] && runs_on(w, lines);
        let columns = if runs_on { width + reach(w) } else { columns(w, width) };
        let line = columns * step;
        let pieces = w.out[0].div_ceil(lines) * w.out[1].div_ceil(width);
        let blocks = pieces.saturating_mul(w.images).saturating_mul(groups).max(1);
        let parts = FEWEST.div_ceil(blocks).min(filters.div_ceil(FILTERS)).max(1);
        let each = |count: usize, of: &dyn Fn(usize) -> usize, step: isize| -> Vec<[isize; 2]> {
            (0..count).map(|i| [of(i) as isize, i as isize * step]).collect()
        };
        let down = each(w.kernel[0], &|i| i * w.dilation[0] * line, weights.down);
        let right = each(
            w.kernel[1],
            &|i| i * w.dilation[1] % step * columns + i * w.dilation[1] / step,
            weights.right,
        );
        let channels = each(group, &|i| i * reads * line, weights.channel);
        let (loops, right) = match order {
            Order::ChannelsInLines => ([down, channels, right], 2),
            Order::ChannelsLast => ([down, right, channels], 1),
        };
        // Of so many lines, what a tile reads is within the image; a step may be of any size where there are fewer.
        let has_tiles = by_lines && lines >= lines::LINES;
        let rows = if has_tiles { lines::Rows::new(w, weights.down) } else { lines::Rows::NONE };
        let any = w.images * groups * filters * w.out[0] * w.out[1] > 0;
        any.then_some(Direct {
            windows,
            group,
            filters,
            groups,
            x,
            y,
            weights,
            lines,
            reads,
            width,
            parts,
            columns,
            runs_on,
            loops,
            right,
            rows,
        })
    }

    /// Bytes of a thread's scratch.
    pub(crate) fn scratch_bytes(&self) -> usize {
        let elements = self.group * self.reads * self.windows.stride[1] * self.columns;
        // A vector may begin with the last column.
        (elements + LANES) * size_of::<f32>()
    }

    /// How many tasks there are.
    pub(crate) fn tasks(&self) -> usize {
        let [down, right] = self.pieces();
        self.windows.images * self.groups * down * right * self.parts
    }

    /// Into how many pieces a plane of the result is divided.
    #[inline(always)]
    fn pieces(&self) -> [usize; 2] {
        let [height, width] = self.windows.out;
        [height.div_ceil(self.lines), width.div_ceil(self.width)]
    }

    /// Computes some of the tasks.
    ///
    /// # Safety
    /// Images, weights and bias must be readable and the result writable for their extents, the scratch have [`Direct::scratch_bytes`]; the result must
    /// overlap nothing else. No two threads may run the same task at once.
    pub(crate) unsafe fn run(&self, isa: Isa, of: &Operands, tasks: Range<usize>, scratch: *mut f32) {
        isa.run(Tasks { direct: self, of, tasks, scratch });
    }

    /// Offsets of the positions of a line of the kernel, in scratch and in the weights.
    #[inline(always)]
    fn positions(&self) -> &[[isize; 2]] {
        &self.loops[self.right]
    }

    /// The first weight of a filter.
    #[inline(always)]
    fn weight(&self, from: *const f32, filter: usize) -> *const f32 {
        let w = &self.weights;
        let (panel, lane) = (filter / w.panel, filter % w.panel);
        from.wrapping_offset(panel as isize * w.of_panel + lane as isize * w.filter)
    }
}

/// Columns that are a multiple of the step apart, of those that a position reads besides its first.
fn reach(w: &Windows) -> usize {
    w.kernel[1].saturating_sub(1) * w.dilation[1] / w.stride[1]
}

/// Columns of a line that so many neighbouring positions read, those a multiple of the step apart.
fn columns(w: &Windows, positions: usize) -> usize {
    positions.next_multiple_of(LANES) + reach(w)
}

/// Lines of a task, the lines that these read, and positions of a line.
fn share(w: &Windows, group: usize, groups: usize, by_lines: bool) -> [usize; 3] {
    let reach = w.kernel[0].saturating_sub(1) * w.dilation[0] + 1;
    let (block, least) = if by_lines { (BLOCK_OF_CHANNEL, reach.max(lines::LINES)) } else { (BLOCK, reach) };
    let of_line = |positions: usize| (group * columns(w, positions) * w.stride[1] * size_of::<f32>()).max(1);
    // As many lines as fit, or those of a few tasks where each reads little more than it writes.
    let fitting = (block / of_line(w.out[1])).saturating_sub(reach) / w.stride[0] + 1;
    let share = w.out[0].div_ceil(FEWEST.div_ceil((w.images * groups).max(1))).max(2 * reach);
    let whole = LEAST.div_ceil(w.out[1].div_ceil(LANES).max(1));
    let mut lines = fitting.max(least).min(share).max(whole).min(w.out[0]).max(1);
    if by_lines && lines > lines::LINES && lines < w.out[0] {
        lines -= lines % lines::LINES;
    }
    let reads = (lines - 1) * w.stride[0] + reach;
    // Of lines that are still too long, pieces, but not for tiles of lines.
    let bytes = reads * of_line(w.out[1]);
    let width = match by_lines && lines >= lines::LINES {
        false if bytes > 2 * block => {
            (block / (reads * of_line(LANES)) * LANES).next_multiple_of(LEAST * LANES).min(w.out[1])
        }
        _ => w.out[1],
    };
    [lines, reads, width.max(1)]
}

struct Tasks<'a> {
    direct: &'a Direct,
    of: &'a Operands,
    tasks: Range<usize>,
    scratch: *mut f32,
}

impl Kernel for Tasks<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Tasks { direct, of, tasks, scratch } = self;
        let w = &direct.windows;
        let [down, right] = direct.pieces();
        let sets = direct.filters.div_ceil(FILTERS);
        let mut copied = None;
        for task in tasks {
            let (block, number) = (task / direct.parts, task % direct.parts);
            let (plane, piece) = (block / (down * right), block % (down * right));
            let (image, group) = (plane / direct.groups, plane % direct.groups);
            let (line, column) = (piece / right * direct.lines, piece % right * direct.width);
            let lines = line..w.out[0].min(line + direct.lines);
            let columns = column..w.out[1].min(column + direct.width);
            let at = |part: usize| direct.filters.min(part * sets / direct.parts * FILTERS);
            let filters = at(number)..at(number + 1);
            let part = Part { direct, of, image, group, lines, columns, filters, scratch };
            // SAFETY: `Direct::run`'s promises.
            unsafe {
                if copied != Some(block) {
                    part.copy(s);
                }
                part.compute(s);
            }
            copied = Some(block);
        }
    }
}

/// The lines of one task.
struct Part<'a> {
    direct: &'a Direct,
    of: &'a Operands,
    image: usize,
    group: usize,
    lines: Range<usize>,
    /// Positions of each line.
    columns: Range<usize>,
    /// Those of the group that it computes.
    filters: Range<usize>,
    scratch: *mut f32,
}

impl Part<'_> {
    /// Copies what is read, with its border.
    ///
    /// # Safety
    /// As [`Direct::run`].
    #[inline(always)]
    unsafe fn copy<S: Simd>(&self, s: S) {
        let d = self.direct;
        let (w, columns) = (&d.windows, d.columns);
        let (step, [height, width], [top, left]) = (w.stride[1], w.size, w.pad);
        // The image's columns in front of the piece, and what of the border is in it.
        let skipped = (self.columns.start * step).saturating_sub(left).min(width);
        let left = left.saturating_sub(self.columns.start * step);
        for channel in 0..d.group {
            let plane = self.image * d.x[0] + (self.group * d.group + channel) * d.x[1];
            for line in 0..d.reads {
                // Lines above the image become huge.
                let y = (self.lines.start * w.stride[0] + line).wrapping_sub(top);
                for rest in 0..step {
                    // SAFETY: a line of scratch, and columns of the image within it.
                    unsafe {
                        let at = ((channel * d.reads + line) * step + rest) * columns;
                        let to = std::slice::from_raw_parts_mut(self.scratch.add(at), columns);
                        if y >= height {
                            to.fill(0.0);
                            continue;
                        }
                        let line = self.of.x.wrapping_add(plane + y * width + skipped);
                        deal_columns(s, line, width - skipped, (step, left), rest, to);
                    }
                }
            }
        }
    }

    /// Computes its filters, as many at a time as there are registers for.
    ///
    /// # Safety
    /// As [`Direct::run`]; what is read must be in scratch.
    #[inline(always)]
    unsafe fn compute<S: Simd>(&self, s: S) {
        if self.takes_lines() {
            // SAFETY: the caller's promise, and it takes them.
            return unsafe { self.compute_lines(s) };
        }
        let mut filter = self.filters.start;
        while filter < self.filters.end {
            let left = self.filters.end - filter;
            // SAFETY: the caller's promise.
            filter += unsafe {
                if const { S::GEMM_ROWS > 6 } {
                    // A filter by itself takes twice as long as one of several: none is left behind.
                    match left {
                        8 | 10.. => self.tiles::<S, 8, 3>(s, filter),
                        6 | 9 => self.tiles::<S, 6, 4>(s, filter),
                        4 | 7 => self.tiles::<S, 4, 6>(s, filter),
                        3 | 5 => self.tiles::<S, 3, 5>(s, filter),
                        2 => self.tiles::<S, 2, 8>(s, filter),
                        _ => self.tiles::<S, 1, 8>(s, filter),
                    }
                } else {
                    match left {
                        2.. => self.tiles::<S, 2, 3>(s, filter),
                        _ => self.tiles::<S, 1, 3>(s, filter),
                    }
                }
            };
        }
    }

    /// Computes F filters of all positions, N vectors of these at a time; the last may be computed twice. Gives F.
    ///
    /// # Safety
    /// As [`Part::compute`].
    #[inline(always)]
    unsafe fn tiles<S: Simd, const F: usize, const N: usize>(&self, s: S, filter: usize) -> usize {
        let d = self.direct;
        let first = self.group * d.filters + filter;
        let mut weights = [std::ptr::null(); F];
        for f in 0..F {
            weights[f] = d.weight(self.of.weights, first + f);
        }
        let mut places = Places::new(self);
        for _ in 0..places.vectors.div_ceil(N) {
            let mut tile = Vectors { x: [self.scratch.cast_const(); N], to: [Place::default(); N] };
            for i in 0..N {
                tile.x[i] = self.scratch.cast_const().wrapping_add(places.from());
                tile.to[i] = places.place();
                places.next();
            }
            s.enter(Tile { part: self, first, weights: &weights, vectors: &tile });
        }
        self.apply(s, first, F);
        F
    }

    /// Applies a function that is not done in registers.
    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, first: usize, filters: usize) {
        let Some(op) = self.of.activation.filter(|&op| Light::of(op).is_none()) else { return };
        let width = self.columns.len();
        // Whole lines follow each other.
        let (runs, len) = match width == self.direct.windows.out[1] {
            true => (1, self.lines.len() * width),
            false => (self.lines.len(), width),
        };
        for filter in first..first + filters {
            for line in self.lines.clone().take(runs) {
                let at = self.result(filter, line);
                // SAFETY: the task's positions of the filter's plane were written just now.
                unsafe { math::apply_within(s, op, at, at, len) };
            }
        }
    }

    /// Where its positions of a line of a filter's plane are.
    #[inline(always)]
    fn result(&self, filter: usize, line: usize) -> *mut f32 {
        let d = self.direct;
        self.of.y.wrapping_add(
            self.image * d.y[0] + filter * d.y[1] + line * d.windows.out[1] + self.columns.start,
        )
    }
}

/// Vectors of positions: what the first kernel position reads, and where results go.
struct Vectors<const N: usize> {
    x: [*const f32; N],
    to: [Place; N],
}

/// F filters from `first` on at N vectors of positions: a function of its own, so that it has the registers to itself.
struct Tile<'a, const F: usize, const N: usize> {
    part: &'a Part<'a>,
    first: usize,
    weights: &'a [*const f32; F],
    vectors: &'a Vectors<N>,
}

impl<const F: usize, const N: usize> Kernel for Tile<'_, F, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Tile { part, first, weights, vectors } = self;
        let (d, of, x) = (part.direct, part.of, &vectors.x);
        // SAFETY: `Direct::run`'s promises: scratch holds what all positions of a whole vector read.
        unsafe {
            // The sums are an array of their own, touched by constant indices only: that keeps them in registers.
            let mut acc = [[s.zero(); N]; F];
            if let (Some(bias), true) = (of.bias, of.bias_first) {
                each_row!(F, f => {
                    acc[f] = [s.splat(*bias.add(first + f)); N];
                });
            }
            let [outer, middle, inner] = &d.loops;
            for outer in outer {
                for middle in middle {
                    let (from, weight) = (outer[0] + middle[0], outer[1] + middle[1]);
                    for inner in inner {
                        let (from, weight) = (from + inner[0], weight + inner[1]);
                        let mut inputs = [s.zero(); N];
                        for i in 0..N {
                            inputs[i] = s.load(x[i].wrapping_offset(from));
                        }
                        for f in 0..F {
                            let weight = s.splat(*weights[f].wrapping_offset(weight));
                            for i in 0..N {
                                acc[f][i] = s.mul_add(inputs[i], weight, acc[f][i]);
                            }
                        }
                    }
                }
            }
            let added = of.bias.filter(|_| !of.bias_first);
            let light = of.activation.and_then(Light::of);
            each_row!(F, f => {
                let mut line = acc[f];
                if let Some(bias) = added {
                    let bias = s.splat(*bias.add(first + f));
                    for i in 0..N {
                        line[i] = s.add(line[i], bias);
                    }
                }
                if let Some(function) = light {
                    function.apply::<S, f32>(s, &mut line);
                }
                let to = part.result(first + f, part.lines.start);
                for i in 0..N {
                    let place = vectors.to[i];
                    if let Some(beyond) = place.beyond {
                        s.store(to.wrapping_add(beyond), line[i]);
                    }
                    s.store_upto(to.wrapping_add(place.at), place.lanes, line[i]);
                }
            });
        }
    }
}
