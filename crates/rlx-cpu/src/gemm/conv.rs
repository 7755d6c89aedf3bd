//! Convolution as a matmul: the rows are the windows of NHWC images, or of NDHWC volumes.

use std::hint::select_unpredictable;
use std::ops::Range;

use super::kernel::{AnyRows, Rows};

/// The windows of a batch of volumes (frames of lines of pixels), one row per output position, one tap per kernel
/// position. An image is a volume of one frame.
///
/// Row `((volume · out_d + z) · out_h + y) · out_w + x`, less `first`, is the window of output (z, y, x). Its tap
/// `(kz · kernel_h + ky) · kernel_w + kx` is the `k` channels of one pixel, or zeros where that is in the padding. The
/// packed matrix has the kernel as `[kernel_d · kernel_h · kernel_w · channels, out_channels]`. A group of channels is
/// chosen by offsetting `input`.
#[derive(Debug, Clone, Copy)]
pub struct ConvRows<T = f32> {
    /// The first volume (and group of channels).
    pub input: *const T,
    /// As many zeros as there are channels per tap.
    pub zeros: *const T,
    /// Frames, lines, pixels.
    pub size: [usize; 3],
    /// Elements from one frame, line, pixel to the next.
    pub strides: [usize; 3],
    /// Elements from one volume to the next.
    pub volume_stride: usize,
    /// Frames, lines, pixels of the output.
    pub out: [usize; 3],
    /// Frames, lines, pixels of the kernel.
    pub kernel: [usize; 3],
    /// The step of the window.
    pub stride: [usize; 3],
    /// The distance of the taps.
    pub dilation: [usize; 3],
    /// Padding in front, above and at the left.
    pub pad: [usize; 3],
    /// The window of row 0, among those of all outputs.
    pub first: usize,
}

// SAFETY: plain addresses; anyone who reads through them (`Gemm::run`) was promised that it may.
unsafe impl<T> Send for ConvRows<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for ConvRows<T> {}

/// The corner of one window.
#[derive(Debug, Clone, Copy)]
pub struct Window<T> {
    /// Its first pixel, or where that would be if it is padding.
    at: *const T,
    /// Frame, line and column of that: negative in the padding.
    z: isize,
    y: isize,
    x: isize,
}

impl<T: Copy + Send + Sync + 'static> Rows for ConvRows<T> {
    type Element = T;
    type Tile<const N: usize> = [Window<T>; N];

    #[inline(always)]
    fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1] * self.kernel[2]
    }

    #[inline(always)]
    fn tile<const N: usize>(&self, row: usize) -> [Window<T>; N] {
        let mut windows = [Window { at: self.input, z: 0, y: 0, x: 0 }; N];
        self.windows(self.first + row, &mut windows);
        windows
    }

    fn skip(&self, row: usize) -> Self {
        ConvRows { first: self.first + row, ..*self }
    }

    fn any(&self) -> AnyRows<T> {
        AnyRows::Windows(*self)
    }

    /// Of an image: the lines of the kernel that meet lines of it.
    #[inline(always)]
    fn inside<const N: usize>(&self, tile: &[Window<T>; N]) -> Range<usize> {
        let [_, high, wide] = self.kernel;
        if self.kernel[0] != 1 {
            return 0..self.taps();
        }
        let (mut top, mut bottom) = (tile[0].y, tile[0].y);
        for w in tile {
            (top, bottom) = (top.min(w.y), bottom.max(w.y));
        }
        // Lines of the kernel above the image for all windows, and above its end for one.
        let step = self.dilation[1].max(1) as isize;
        let lines = |above: isize| if step == 1 { above } else { above.div_euclid(step) };
        let first = lines(step - 1 - bottom).clamp(0, high as isize);
        let end = lines(step - 1 + self.size[1] as isize - top).clamp(first, high as isize);
        first as usize * wide..end as usize * wide
    }

    /// Rows begin with a line of the result, and some windows reach beyond the first or the last line of the image.
    #[inline(always)]
    fn line(&self) -> Option<usize> {
        let [_, lines, pixels] = self.out;
        let steps = |n: usize, each: usize| n.saturating_sub(1).saturating_mul(each);
        let last = steps(lines, self.stride[1]).saturating_add(steps(self.kernel[1], self.dilation[1]));
        let beyond = self.pad[1] > 0 || last >= self.size[1];
        (self.kernel[0] == 1 && beyond && self.first.is_multiple_of(pixels.max(1))).then_some(pixels)
    }

    /// Where the taps are far apart, many are in the padding: of a kernel that spans the whole image only its middle is inside.
    #[inline(always)]
    fn are_zeros<const N: usize>(&self, pieces: &[*const T; N]) -> bool {
        self.dilation != [1; 3] && pieces.iter().all(|&p| std::ptr::eq(p, self.zeros))
    }

    #[inline(always)]
    fn pointers<const N: usize>(&self, tile: &[Window<T>; N], tap: usize) -> [*const T; N] {
        let (line, kx) = (tap / self.kernel[2], tap % self.kernel[2]);
        let dx = kx * self.dilation[2];
        let mut out = [self.zeros; N];
        // Which rows of a tile have this tap in the padding follows no pattern: choices, not branches. Negative positions become huge,
        // so one comparison checks both ends.
        if self.kernel[0] == 1 {
            // The window's only frame, as of every image.
            let dy = line * self.dilation[1];
            let step = dy.wrapping_mul(self.strides[1]).wrapping_add(dx.wrapping_mul(self.strides[2]));
            for (p, w) in out.iter_mut().zip(tile) {
                let (y, x) = ((w.y as usize).wrapping_add(dy), (w.x as usize).wrapping_add(dx));
                let inside = (y < self.size[1]) & (x < self.size[2]);
                *p = select_unpredictable(inside, w.at.wrapping_add(step), self.zeros);
            }
            return out;
        }
        let dz = line / self.kernel[1] * self.dilation[0];
        let dy = line % self.kernel[1] * self.dilation[1];
        let step = [dz, dy, dx]
            .iter()
            .zip(&self.strides)
            .fold(0usize, |sum, (&d, &stride)| sum.wrapping_add(d.wrapping_mul(stride)));
        for (p, w) in out.iter_mut().zip(tile) {
            let (y, x) = ((w.y as usize).wrapping_add(dy), (w.x as usize).wrapping_add(dx));
            let z = (w.z as usize).wrapping_add(dz);
            let inside = (z < self.size[0]) & (y < self.size[1]) & (x < self.size[2]);
            *p = select_unpredictable(inside, w.at.wrapping_add(step), self.zeros);
        }
        out
    }
}

impl<T: Copy> ConvRows<T> {
    /// The windows from `row` on. Addresses alone: a call, so that one copy serves every size of tile.
    #[inline(never)]
    fn windows(&self, row: usize, windows: &mut [Window<T>]) {
        let [frames, lines, pixels] = self.out;
        let (rows, mut x) = (row / pixels, row % pixels);
        let (frame, mut y) = (rows / lines, rows % lines);
        let (mut volume, mut z) = (frame / frames, frame % frames);
        let first = |o: usize, d: usize| (o * self.stride[d]) as isize - self.pad[d] as isize;
        // The first pixel of a line, where windows begin.
        let line_at = |volume: usize, z: isize, y: isize| {
            let frame = self.input.wrapping_add(volume.wrapping_mul(self.volume_stride));
            let frame = frame.wrapping_offset(z.wrapping_mul(self.strides[0] as isize));
            frame.wrapping_offset(y.wrapping_mul(self.strides[1] as isize))
        };
        let (mut z_at, mut y_at) = (first(z, 0), first(y, 1));
        let mut line = line_at(volume, z_at, y_at);
        for w in windows {
            let x_at = first(x, 2);
            let at = line.wrapping_offset(x_at.wrapping_mul(self.strides[2] as isize));
            // A kernel of one frame has its windows in the padding here and now.
            let padding = self.kernel[0] == 1 && z_at as usize >= self.size[0];
            let y_of_padding = isize::MIN / 2;
            *w = Window { at, z: z_at, y: if padding { y_of_padding } else { y_at }, x: x_at };
            x += 1;
            if x == pixels {
                (x, y) = (0, y + 1);
                if y == lines {
                    (y, z) = (0, z + 1);
                    if z == frames {
                        (z, volume) = (0, volume + 1);
                    }
                }
                (z_at, y_at) = (first(z, 0), first(y, 1));
                line = line_at(volume, z_at, y_at);
            }
        }
    }
}
