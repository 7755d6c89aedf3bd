//! Convolution as a matmul: the rows are the windows of NHWC images, or of NDHWC volumes.

use std::hint::select_unpredictable;
use std::ops::Range;

use super::kernel::{AnyRows, Following, Rows, Strided};

/// Lines of so many windows are long beside the tiles at their ends.
const LONG_LINE: usize = 128;

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

/// The windows of a tile.
#[derive(Debug, Clone, Copy)]
pub enum Windows<T, const N: usize> {
    /// Their corners: some may reach into the padding.
    Any([Window<T>; N]),
    /// Where they begin, since all of them are inside the image.
    Inside([*const T; N]),
}

impl<T: Copy + Send + Sync + 'static> Rows for ConvRows<T> {
    type Element = T;
    type Tile<const N: usize> = Windows<T, N>;

    #[inline(always)]
    fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1] * self.kernel[2]
    }

    #[inline(always)]
    fn tile<const N: usize>(&self, row: usize) -> Windows<T, N> {
        self.next_tile(row, &mut Following::none())
    }

    #[inline(always)]
    fn next_tile<const N: usize>(&self, row: usize, following: &mut Following<T>) -> Windows<T, N> {
        let Following { at, left } = *following;
        if left >= N {
            let step = self.stride[2].wrapping_mul(self.strides[2]);
            let mut starts = [at; N];
            for (r, start) in starts.iter_mut().enumerate() {
                *start = at.wrapping_add(r.wrapping_mul(step));
            }
            *following = Following { at: at.wrapping_add(N.wrapping_mul(step)), left: left - N };
            return Windows::Inside(starts);
        }
        let mut windows = [Window { at: self.input, z: 0, y: 0, x: 0 }; N];
        *following = self.windows(self.first + row, &mut windows);
        Windows::Any(windows)
    }

    fn skip(&self, row: usize) -> Self {
        ConvRows { first: self.first + row, ..*self }
    }

    fn any(&self) -> AnyRows<T> {
        AnyRows::Windows(*self)
    }

    /// Windows of one tap on a long line, and inside it, are the rows of a matrix; rows that overlap if windows do.
    #[inline(always)]
    fn next_rows(&self, rows: &Range<usize>, height: usize) -> (usize, Option<Strided<T>>) {
        if self.taps() != 1 || self.out[2] < LONG_LINE {
            return (rows.end, None);
        }
        let Following { at, left } = self.windows(self.first + rows.start, &mut []);
        let count = left.min(rows.len()) / height * height;
        if count == 0 {
            return (rows.end.min(rows.start + height), None);
        }
        let row_stride = self.stride[2].wrapping_mul(self.strides[2]) as isize;
        (rows.start + count, Some(Strided { ptr: at, row_stride }))
    }

    /// Of an image: the lines of the kernel that meet lines of it, or of a kernel of one line its pixels.
    #[inline(always)]
    fn inside<const N: usize>(&self, tile: &Windows<T, N>) -> Range<usize> {
        let [_, high, wide] = self.kernel;
        let windows = match tile {
            Windows::Any(windows) if self.kernel[0] == 1 => windows,
            Windows::Any(_) | Windows::Inside(_) => return 0..self.taps(),
        };
        let is_line = high == 1;
        let (d, each) = if is_line { (2, 1) } else { (1, wide) };
        let at = |w: &Window<T>| if is_line { w.x } else { w.y };
        let (mut top, mut bottom) = (at(&windows[0]), at(&windows[0]));
        for w in windows {
            (top, bottom) = (top.min(at(w)), bottom.max(at(w)));
        }
        // Lines of the kernel above the image for all windows, and above its end for one.
        let (step, all) = (self.dilation[d].max(1) as isize, self.kernel[d] as isize);
        let lines = |above: isize| if step == 1 { above } else { above.div_euclid(step) };
        let first = lines(step - 1 - bottom).clamp(0, all);
        let end = lines(step - 1 + self.size[d] as isize - top).clamp(first, all);
        first as usize * each..end as usize * each
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
    fn pointers<const N: usize>(&self, tile: &Windows<T, N>, tap: usize) -> [*const T; N] {
        let [dz, dy, dx] = self.place(tap);
        let step = [dz, dy, dx]
            .iter()
            .zip(&self.strides)
            .fold(0usize, |sum, (&d, &stride)| sum.wrapping_add(d.wrapping_mul(stride)));
        let mut out = [self.zeros; N];
        let windows = match tile {
            Windows::Inside(starts) => {
                for (p, start) in out.iter_mut().zip(starts) {
                    *p = start.wrapping_add(step);
                }
                return out;
            }
            Windows::Any(windows) => windows,
        };
        // Which rows of a tile have this tap in the padding follows no pattern: choices, not branches. Negative positions become huge,
        // so one comparison checks both ends.
        let is_inside = |w: &Window<T>| {
            let (y, x) = ((w.y as usize).wrapping_add(dy), (w.x as usize).wrapping_add(dx));
            (y < self.size[1]) & (x < self.size[2])
        };
        if self.kernel[0] == 1 {
            // The window's only frame, as of every image.
            for (p, w) in out.iter_mut().zip(windows) {
                *p = select_unpredictable(is_inside(w), w.at.wrapping_add(step), self.zeros);
            }
        } else {
            for (p, w) in out.iter_mut().zip(windows) {
                let inside = is_inside(w) & ((w.z as usize).wrapping_add(dz) < self.size[0]);
                *p = select_unpredictable(inside, w.at.wrapping_add(step), self.zeros);
            }
        }
        out
    }
}

impl<T: Copy> ConvRows<T> {
    /// Frames, lines and pixels from the corner of a window to a tap.
    #[inline(always)]
    fn place(&self, tap: usize) -> [usize; 3] {
        let [frames, high, wide] = self.kernel;
        // (Lines of one tap are frequent, and a division is not short beside the products of a tap.)
        let (line, x) = if wide == 1 { (tap, 0) } else { (tap / wide, tap % wide) };
        let (z, y) = if frames == 1 { (0, line) } else { (line / high, line % high) };
        [z * self.dilation[0], y * self.dilation[1], x * self.dilation[2]]
    }

    /// The windows from `row` on, and what follows behind them. Addresses alone: a call, so that one copy serves every size of tile.
    #[inline(never)]
    fn windows(&self, row: usize, windows: &mut [Window<T>]) -> Following<T> {
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
        let x_at = first(x, 2);
        let at = line.wrapping_offset(x_at.wrapping_mul(self.strides[2] as isize));
        Following { at, left: self.inside_from([z_at, y_at, x_at]).min(pixels - x) }
    }

    /// How many windows are inside the image, from the one whose corner is there to the end of its line.
    fn inside_from(&self, corner: [isize; 3]) -> usize {
        // How much further a window could be moved; the corner may be in front of the image.
        let room = [0, 1, 2].map(|d| {
            let span = self.kernel[d].checked_sub(1)? * self.dilation[d];
            let last = self.size[d].checked_sub(span + 1)?;
            last.checked_sub(usize::try_from(corner[d]).ok()?)
        });
        match room {
            [Some(_), Some(_), Some(room)] => room / self.stride[2].max(1) + 1,
            _ => 0,
        }
    }
}
