//! Images of few channels: a copy with its border, in which a line of a window is one contiguous tap.

use super::{Conv, Shape, Window};
use crate::kernels::{RunCx, Shared};

/// Where frames get a border.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Border {
    /// At their sides: what is above and below is zeros elsewhere, which need not be multiplied.
    Sides,
    /// All around.
    All,
}

impl Border {
    /// Lines above a frame.
    fn top(self, window: &Window) -> usize {
        if self == Border::All { window.before[1] } else { 0 }
    }
}

impl Conv {
    /// Lines and pixels of a frame with this border.
    pub(super) fn bordered(&self, s: &Shape, border: Border) -> [usize; 2] {
        let w = &self.window;
        let [h, width] = [1, 2].map(|d| s.size[d] + w.before[d] + w.after[d]);
        [if border == Border::All { h } else { s.size[1] }, width]
    }

    /// Copies the frames to `place` in scratch, in pixels of `c` elements, with a `border` of `outside`, and `rest` behind each
    /// pixel's channels.
    pub(super) unsafe fn copy_with_border<T: Copy + Send + Sync>(
        &self,
        cx: &mut RunCx<'_, '_>,
        s: &Shape,
        place: usize,
        c: usize,
        border: Border,
        [outside, rest]: [T; 2],
    ) {
        let [h, w] = self.bordered(s, border);
        let (top, left) = (border.top(&self.window), self.window.before[2]);
        if c == 0 {
            // Pixels without channels take no room, and there are rows of them all the same.
            return;
        }
        let to = Shared::new(cx.shared_scratch.wrapping_add(place).cast::<T>());
        let from = cx.shared::<T>(s.x);
        let (count, [volume, frame, line, pixel]) = (s.channels, s.strides);
        let [frames, lines, pixels] = s.size;
        let fill = |pixels: &mut [T]| {
            pixels.fill(outside);
            pixels.chunks_exact_mut(c).for_each(|pixel| pixel[count..].fill(rest));
        };
        cx.parallel(s.worth, s.batch * frames * h, &|range, _| {
            for row in range {
                let (n, z, y) = (row / h / frames, row / h % frames, row % h);
                // SAFETY: scratch holds the bordered frames; rows are disjoint, and only lines and pixels
                // of the volume are read.
                unsafe {
                    let out = std::slice::from_raw_parts_mut(to.get().wrapping_add(row * w * c), w * c);
                    if y < top || y >= top + lines {
                        fill(out);
                        continue;
                    }
                    let source = from.get().wrapping_add(n * volume + z * frame + (y - top) * line);
                    let (inside, width) = (&mut out[left * c..], pixels * c);
                    if pixel == c && count == c {
                        std::ptr::copy_nonoverlapping(source, inside.as_mut_ptr(), width);
                    } else {
                        copy_pixels(source, (pixel, count), &mut inside[..width], c, rest);
                    }
                    fill(&mut out[..left * c]);
                    fill(&mut out[left * c + width..]);
                }
            }
        });
    }
}

/// Copies pixels of `count` elements, `step` apart, to pixels of `c`, with `rest` behind them.
///
/// # Safety
/// The pixels must be readable.
unsafe fn copy_pixels<T: Copy>(
    from: *const T,
    (step, count): (usize, usize),
    to: &mut [T],
    c: usize,
    rest: T,
) {
    let mut x = 0;
    if (c, count, step) == (4, 3, 3) {
        // A pixel of colours at once with the next one's first element; the last has none behind it.
        while x + 1 < to.len() / 4 {
            let (from, to) = (from.wrapping_add(x * 3), to[x * 4..x * 4 + 4].as_mut_ptr());
            // SAFETY: the caller's promise: the next pixel is there, too, and one behind the other; `to` has four elements, and bytes may be read
            // as such.
            unsafe {
                if const { size_of::<T>() == 1 } {
                    let last = u32::from_ne_bytes([0, 0, 0, std::mem::transmute_copy(&rest)]);
                    let colours = u32::from_ne_bytes([0xff, 0xff, 0xff, 0]);
                    let pixel = from.cast::<u32>().read_unaligned() & colours | last;
                    to.cast::<u32>().write_unaligned(pixel);
                } else if const { size_of::<T>() == 2 } {
                    let as_u64 = |halves: [u16; 4]| std::mem::transmute::<[u16; 4], u64>(halves);
                    let last = as_u64([0, 0, 0, std::mem::transmute_copy(&rest)]);
                    let colours = as_u64([u16::MAX, u16::MAX, u16::MAX, 0]);
                    let pixel = from.cast::<u64>().read_unaligned() & colours | last;
                    to.cast::<u64>().write_unaligned(pixel);
                } else {
                    let [r, g, b, _] = from.cast::<[T; 4]>().read_unaligned();
                    to.cast::<[T; 4]>().write_unaligned([r, g, b, rest]);
                }
            }
            x += 1;
        }
    }
    // One by one: a pixel is a few elements, less than a call costs.
    for (x, to) in to.chunks_exact_mut(c).enumerate().skip(x) {
        for (i, to) in to.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *to = if i < count { unsafe { *from.add(x * step + i) } } else { rest };
        }
    }
}
