//! The orientation that a camera stored: tag 0x0112 of the first directory of an EXIF block (EXIF 2.32, section 4.6.4), a TIFF
//! file of its own. Everything else in the block is skipped; what is damaged counts as upright, as in other programs.

use super::pixels::Image;

/// How the stored rows and columns become the image: one of the eight symmetries of a rectangle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Orientation {
    /// Rows become columns (the diagonal is the axis), before the flips.
    pub transpose: bool,
    /// Left and right are exchanged.
    flip_x: bool,
    /// Top and bottom are exchanged.
    flip_y: bool,
}

impl Orientation {
    /// By the number in the tag.
    fn numbered(n: u16) -> Orientation {
        let (transpose, flip_x, flip_y) = match n {
            2 => (false, true, false),
            3 => (false, true, true),
            4 => (false, false, true),
            5 => (true, false, false),
            6 => (true, true, false),
            7 => (true, true, true),
            8 => (true, false, true),
            _ => (false, false, false),
        };
        Orientation { transpose, flip_x, flip_y }
    }

    /// That of an EXIF block, with or without the `Exif\0\0` that JPEG files have before it.
    pub fn of(exif: &[u8]) -> Orientation {
        let exif = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
        tag(exif).map_or_else(Orientation::default, Orientation::numbered)
    }

    /// The image as it was seen.
    pub fn applied(self, image: Image) -> Image {
        if self == Orientation::default() {
            return image;
        }
        let (width, height) = match self.transpose {
            true => (image.height, image.width),
            false => (image.width, image.height),
        };
        let channels = image.channels;
        let mut pixels = Vec::with_capacity(image.pixels.len());
        for y in 0..height {
            let y = if self.flip_y { height - 1 - y } else { y };
            for x in 0..width {
                let x = if self.flip_x { width - 1 - x } else { x };
                let (column, row) = if self.transpose { (y, x) } else { (x, y) };
                pixels
                    .extend_from_slice(&image.pixels[(row * image.width + column) * channels..][..channels]);
            }
        }
        Image { width, height, channels, pixels }
    }
}

/// The tag's value.
fn tag(tiff: &[u8]) -> Option<u16> {
    let little = match tiff.get(..2)? {
        b"II" => true,
        b"MM" => false,
        _ => return None,
    };
    let short = |at: usize| {
        let bytes = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    };
    let long = |at: usize| {
        let bytes = tiff.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    };
    if short(2)? != 42 {
        return None;
    }
    let directory = long(4)? as usize;
    let entries = usize::from(short(directory)?);
    let entry = |i: usize| directory.checked_add(2)?.checked_add(i * 12);
    let found = (0..entries).map_while(entry).find(|&at| short(at) == Some(0x0112))?;
    // A single short is in the entry itself.
    if short(found + 2)? == 3 && long(found + 4)? == 1 { short(found + 8) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(order: &[u8; 2], orientation: u16) -> Vec<u8> {
        let little = order == b"II";
        let short = |n: u16| if little { n.to_le_bytes() } else { n.to_be_bytes() };
        let long = |n: u32| if little { n.to_le_bytes() } else { n.to_be_bytes() };
        let entry =
            |tag: u16, value: u16| [&short(tag)[..], &short(3), &long(1), &short(value), &[0, 0]].concat();
        [order, &short(42)[..], &long(8), &short(2), &entry(0x0100, 7), &entry(0x0112, orientation)].concat()
    }

    #[test]
    fn each_number_is_its_symmetry() {
        // The rows 0 1 and 2 3 and 4 5, as the tag's definition turns them.
        let stored = Image { width: 2, height: 3, channels: 1, pixels: (0..6).collect() };
        for (n, width, pixels) in [
            (1, 2, [0, 1, 2, 3, 4, 5]),
            (2, 2, [1, 0, 3, 2, 5, 4]),
            (3, 2, [5, 4, 3, 2, 1, 0]),
            (4, 2, [4, 5, 2, 3, 0, 1]),
            (5, 3, [0, 2, 4, 1, 3, 5]),
            (6, 3, [4, 2, 0, 5, 3, 1]),
            (7, 3, [5, 3, 1, 4, 2, 0]),
            (8, 3, [1, 3, 5, 0, 2, 4]),
            (9, 2, [0, 1, 2, 3, 4, 5]),
        ] {
            for order in [b"II", b"MM"] {
                let seen = Orientation::of(&block(order, n)).applied(stored.clone());
                assert_eq!((seen.width, seen.pixels.as_slice()), (width, &pixels[..]), "{n}");
            }
            let with_name = [b"Exif\0\0".as_slice(), &block(b"MM", n)].concat();
            assert_eq!(Orientation::of(&with_name), Orientation::numbered(n));
        }
    }

    #[test]
    fn damaged_blocks_are_upright() {
        let whole = block(b"II", 6);
        for end in 0..whole.len() {
            let _ = Orientation::of(&whole[..end]);
        }
        let mut far = whole.clone();
        far[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Orientation::of(&far), Orientation::default());
        assert_eq!(Orientation::of(b"II*\0\x08\0\0\0\xff\xff"), Orientation::default());
    }
}
