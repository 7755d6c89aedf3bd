//! An [`Image`]: pixels in memory.

use rlx_ir::{Error, ErrorKind, Result, memory};

/// Pixels of 8 bits in memory: rows from the top, channels beside each other.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    pub(super) width: usize,
    pub(super) height: usize,
    /// 1: grey, 2: grey and alpha, 3: red, green, blue, 4: those and alpha.
    pub(super) channels: usize,
    pub(super) pixels: Vec<u8>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({}×{}, {} channels)", self.width, self.height, self.channels)
    }
}

impl Image {
    /// An image of these pixels: `height` rows of `width` pixels of 1 (grey), 2 (grey, alpha), 3 (red, green, blue) or 4
    /// (those and alpha) bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] for another number of bytes or channels.
    pub fn new(width: usize, height: usize, channels: usize, pixels: Vec<u8>) -> Result<Image> {
        let size = width.checked_mul(height).and_then(|n| n.checked_mul(channels));
        if !(1..=4).contains(&channels) || size != Some(pixels.len()) {
            let message =
                format!("{} bytes are not {width}×{height} pixels of {channels} channels", pixels.len());
            return Err(Error::new(ErrorKind::Shape, message));
        }
        Ok(Image { width, height, channels, pixels })
    }

    /// Width in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Height in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Bytes of a pixel: 1 (grey), 2 (grey, alpha), 3 (red, green, blue) or 4 (those and alpha).
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// The bytes, row by row.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// A part of the image, `width`×`height` pixels from (`left`, `top`) on; what is outside of the image is `fill`.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`].
    pub fn cropped(&self, left: isize, top: isize, width: usize, height: usize, fill: u8) -> Result<Image> {
        let channels = self.channels;
        let size = width.checked_mul(height).and_then(|n| n.checked_mul(channels)).unwrap_or(usize::MAX);
        memory::ensure(size, || format!("an image of {width}×{height}"))?;
        let mut pixels = vec![fill; size];
        // What both have, along one axis: from where to where, and how much.
        let overlap = |from: isize, to: usize, have: usize| {
            let (skip, start) = (from.min(0).unsigned_abs(), from.max(0).unsigned_abs());
            let length = have.saturating_sub(start).min(to.saturating_sub(skip));
            (start, skip, length)
        };
        let (x, to_x, columns) = overlap(left, width, self.width);
        let (y, to_y, rows) = overlap(top, height, self.height);
        for row in 0..if columns == 0 { 0 } else { rows } {
            let old = &self.pixels[((y + row) * self.width + x) * channels..][..columns * channels];
            pixels[((to_y + row) * width + to_x) * channels..][..columns * channels].copy_from_slice(old);
        }
        Ok(Image { width, height, channels, pixels })
    }

    /// The image in 1 (grey), 3 (colours) or 4 channels, as Pillow's `Image.convert` does it: alpha is dropped, grey is all
    /// three colours, and colours become the luma of ITU-R 601-2.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`] for another number of channels; [`ErrorKind::OutOfMemory`].
    pub fn with_channels(self, channels: usize) -> Result<Image> {
        if channels == self.channels {
            return Ok(self);
        }
        let Image { width, height, .. } = self;
        let size = (width * height).saturating_mul(channels);
        memory::ensure(size, || format!("an image of {width}×{height}"))?;
        let mut pixels = Vec::with_capacity(size);
        for pixel in self.pixels.chunks_exact(self.channels) {
            let (r, g, b, alpha) = match *pixel {
                [grey] => (grey, grey, grey, 255),
                [grey, alpha] => (grey, grey, grey, alpha),
                [r, g, b] => (r, g, b, 255),
                [r, g, b, alpha] => (r, g, b, alpha),
                _ => return Err(Error::new(ErrorKind::Internal, "an image of more than 4 channels")),
            };
            match channels {
                1 if self.channels <= 2 => pixels.push(r),
                1 => pixels.push(luma(r, g, b)),
                3 => pixels.extend([r, g, b]),
                4 => pixels.extend([r, g, b, alpha]),
                _ => {
                    let message = format!("images have 1, 3 or 4 channels, not {channels}");
                    return Err(Error::new(ErrorKind::Shape, message));
                }
            }
        }
        Ok(Image { width, height, channels, pixels })
    }
}

/// Pillow's fixed-point weights of ITU-R 601-2 (`Convert.c`).
fn luma(r: u8, g: u8, b: u8) -> u8 {
    ((u32::from(r) * 19595 + u32::from(g) * 38470 + u32::from(b) * 7471 + 0x8000) >> 16) as u8
}
