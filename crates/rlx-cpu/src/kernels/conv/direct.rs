//! Windows of several pixels from planes to planes (NCHW), by [`Direct`] convolution: vectors run along the lines, and nothing is transposed.

use super::{Conv, Route, Shape, Window};
use crate::gemm::{Bias, PANEL, panels};
use crate::kernels::RunCx;
use crate::simd::LANES;
use crate::window::Windows;
use crate::window::direct::{Direct, Operands, Order, WeightSteps};

/// Multiply-adds of vectors, for each pixel: those that transposing an element takes as long as, and copying one.
const TRANSPOSING: f64 = 1.0;
const COPYING: f64 = 0.2;

/// The same for a line that is copied, whatever its length.
const LINE: f64 = 40.0;

/// What finding the place of a tap for a tile takes, for each of its pixels.
const PLACING: f64 = 9.0;

/// How much longer multiply-adds of this module take than those of a matmul: lines end within vectors, and vectors begin within cache lines.
const SLOWER: f64 = 1.15;

impl Shape {
    /// Takes the way of this module, where both ends are planes, and it has less to do than a matmul of windows.
    pub(super) fn take_direct(&mut self, window: &Window) {
        // One frame, of which the only one of the result is made.
        let image = self.kernel[0] == 1 && self.size[0] == 1 && self.out[0] == 1 && window.before[0] == 0;
        if image
            && self.ends.x.is_some()
            && self.ends.y.is_some()
            && self.direct_cost(window) < self.matmul_cost(window)
        {
            self.route = Route::Direct;
        }
    }

    pub(super) fn depth(&self) -> f64 {
        (self.kernel.iter().product::<usize>() * self.channels) as f64
    }

    /// Multiply-adds of vectors of filters for a pixel of the result of a group.
    pub(super) fn matmul_cost(&self, window: &Window) -> f64 {
        let moved = TRANSPOSING * (self.channels + self.filters) as f64;
        let [frames, lines, columns] = self.kernel;
        let taps = frames * lines * if self.route == Route::Bordered { 1 } else { columns };
        let places = PLACING * (taps * panels(self.filters)) as f64;
        let inside = self.lines_inside(window);
        inside * (self.depth() * self.filters.div_ceil(LANES) as f64 + places) + moved
    }

    /// Of the kernel's lines, over all windows of an image, how many meet a line of it: a share.
    fn lines_inside(&self, window: &Window) -> f64 {
        let (lines, size, kernel) = (self.out[1], self.size[1], self.kernel[1]);
        let (step, above) = (window.stride[1].max(1), window.before[1]);
        // The first window whose line of the kernel is below this line of the image.
        let first = |line: usize, at: usize| (line + above).saturating_sub(at).div_ceil(step).min(lines);
        let inside = (0..kernel).map(|k| k * window.dilation[1]).map(|at| first(size, at) - first(0, at));
        if self.kernel[0] == 1 { inside.sum::<usize>() as f64 / (lines * kernel).max(1) as f64 } else { 1.0 }
    }

    /// Multiply-adds of vectors of pixels for a pixel of the result of a group.
    pub(super) fn direct_cost(&self, window: &Window) -> f64 {
        let filled = self.out[2] as f64 / self.out[2].next_multiple_of(LANES).max(1) as f64;
        let [_, down, right] = window.stride.map(|step| step as f64);
        let copied = self.channels as f64 * down * right * (COPYING + LINE / self.out[2].max(1) as f64);
        SLOWER * self.depth() * self.filters as f64 / LANES as f64 / filled + copied
    }
}

impl Conv {
    /// What runs, if the route is this module's.
    pub(super) fn bind_direct(&self, s: &Shape) -> Option<Direct> {
        let (x, y) = (s.ends.x.filter(|_| s.route == Route::Direct)?, s.ends.y?);
        let w = &self.window;
        let windows = Windows {
            images: s.batch,
            size: [s.size[1], s.size[2]],
            channels: s.filters * self.groups,
            out: [s.out[1], s.out[2]],
            kernel: [s.kernel[1], s.kernel[2]],
            stride: [w.stride[1], w.stride[2]],
            dilation: [w.dilation[1], w.dilation[2]],
            pad: [w.before[1], w.before[2]],
        };
        let inputs = [s.channels * self.groups, s.channels];
        Direct::new(windows, inputs, [x.steps(), y.steps()], self.steps(s), Order::ChannelsLast)
    }

    /// Where the weights are: in panels, or as they were given.
    fn steps(&self, s: &Shape) -> WeightSteps {
        if s.packed {
            let (channel, of_tap) = (PANEL as isize, (s.channels * PANEL) as isize);
            let down = s.kernel[2] as isize * of_tap;
            let of_panel = s.kernel[1] as isize * down;
            return WeightSteps { panel: PANEL, of_panel, filter: 1, down, right: of_tap, channel };
        }
        // Filters, channels, and the window; of a volume of one frame the last two.
        let strides = s.weights.strides();
        let (filter, channel) = (strides[0], strides[1]);
        let (down, right) = match strides[2..] {
            [.., down, right] => (down, right),
            [right] => (0, right),
            [] => (0, 0),
        };
        WeightSteps { panel: usize::MAX, of_panel: 0, filter, down, right, channel }
    }

    /// Computes the convolution.
    ///
    /// # Safety
    /// As [`StepKernel::run`](crate::kernels::StepKernel::run); the operands must be of f32.
    pub(super) unsafe fn run_direct(&self, cx: &mut RunCx<'_, '_>, s: &Shape) {
        let Some(direct) = &self.direct else { return };
        let epilogue = self.epilogue::<f32>(cx, s, 0);
        let bias = match epilogue.bias {
            Bias::None => None,
            Bias::PerColumn(p) | Bias::OfSum(p) | Bias::PerRow(p) => Some(p),
        };
        let of = Operands {
            x: cx.ptr(s.x),
            y: cx.ptr(s.y),
            weights: cx.ptr(s.w),
            bias,
            bias_first: false,
            activation: epilogue.activation,
        };
        let isa = cx.isa;
        cx.parallel(s.worth, direct.tasks(), &|range, scratch| {
            // SAFETY: the caller's promise; threads have the scratch that was asked for.
            unsafe { direct.run(isa, &of, range, scratch.cast()) }
        });
    }
}
