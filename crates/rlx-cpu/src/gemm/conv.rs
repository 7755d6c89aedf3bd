//! Convolution as a matrix product: the rows are the windows of an NHWC image.

use super::element::Packed;
use super::kernel::{AnyRows, Rows};

/// The windows of a batch of NHWC images, one row per output position, one tap per kernel position.
///
/// Row `(image · out_h + y) · out_w + x` is the window of output (y, x). Its tap `ky · kernel_w + kx` is
/// the `k` channels of one pixel, or zeros where that lies in the padding. The packed matrix has the kernel
/// as `[kernel_h · kernel_w · channels, out_channels]`. A group of channels is chosen by offsetting `input`.
#[derive(Debug, Clone, Copy)]
pub struct ConvRows<T = f32> {
    /// The first image (and group of channels).
    pub input: *const T,
    /// As many zeros as there are channels per tap.
    pub zeros: *const T,
    /// Image height and width in pixels.
    pub size: [usize; 2],
    /// Elements from one pixel to the next, from one line to the next, from one image to the next.
    pub pixel_stride: usize,
    /// Elements from one line to the next.
    pub line_stride: usize,
    /// Elements from one image to the next.
    pub image_stride: usize,
    /// Output height and width.
    pub out: [usize; 2],
    /// Kernel height and width.
    pub kernel: [usize; 2],
    /// Vertical and horizontal step of the window.
    pub stride: [usize; 2],
    /// Vertical and horizontal distance of the taps.
    pub dilation: [usize; 2],
    /// Padding above and at the left.
    pub pad: [usize; 2],
}

// SAFETY: plain addresses; whoever reads through them (`Gemm::run`) was promised that it may.
unsafe impl<T> Send for ConvRows<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for ConvRows<T> {}

/// The corner of one window.
#[derive(Debug, Clone, Copy)]
pub struct Window<T> {
    image: *const T,
    y: isize,
    x: isize,
}

impl<T: Packed> Rows for ConvRows<T> {
    type Element = T;
    type Tile<const N: usize> = [Window<T>; N];

    #[inline(always)]
    fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    #[inline(always)]
    fn tile<const N: usize>(&self, row: usize) -> [Window<T>; N] {
        let [out_h, out_w] = self.out;
        let (line, mut x) = (row / out_w, row % out_w);
        let (mut image, mut y) = (line / out_h, line % out_h);
        let mut windows = [Window { image: self.input, y: 0, x: 0 }; N];
        for w in &mut windows {
            *w = Window {
                image: self.input.wrapping_add(image * self.image_stride),
                y: (y * self.stride[0]) as isize - self.pad[0] as isize,
                x: (x * self.stride[1]) as isize - self.pad[1] as isize,
            };
            x += 1;
            if x == out_w {
                (x, y) = (0, y + 1);
                if y == out_h {
                    (y, image) = (0, image + 1);
                }
            }
        }
        windows
    }

    fn any(&self) -> AnyRows<T> {
        AnyRows::Windows(*self)
    }

    #[inline(always)]
    fn pointers<const N: usize>(&self, tile: &[Window<T>; N], tap: usize) -> [*const T; N] {
        let dy = (tap / self.kernel[1] * self.dilation[0]) as isize;
        let dx = (tap % self.kernel[1] * self.dilation[1]) as isize;
        let mut out = [self.zeros; N];
        for (p, w) in out.iter_mut().zip(tile) {
            // Negative positions become huge, so one comparison checks both ends.
            let (y, x) = ((w.y + dy) as usize, (w.x + dx) as usize);
            if y < self.size[0] && x < self.size[1] {
                *p = w.image.wrapping_add(y * self.line_stride + x * self.pixel_stride);
            }
        }
        out
    }
}
