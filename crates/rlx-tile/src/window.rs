//! Views whose rows are windows that slide over images: a convolution's image as the left operand of a matmul, of which no copy is made.
//!
//! A row of such a view is a place of the result, a column an element of the window. Both are numbers that are split into coordinates: a row into the image and
//! the place along each dimension, a column into the tap along each dimension and, innermost, the channel. Where the tap falls beside the image, the element
//! reads as 0. Channels are neighbours, so what is accessed at once is within one tap where their number is a multiple of it.
//!
//! ```text
//! images [2, 9, 9, 16], a window of 3×3 with stride 2     rows 2·4·4, columns 3·3·16
//! row 21 = image 1, place (1, 1)    column 70 = tap (1, 1), channel 6    →  images[1, 2·1 + 1, 2·1 + 1, 6]
//! ```
//!
//! Where columns are divided among workgroups, a part's are those of the window behind the parts before it: it may begin within a tap, and the images are the
//! same for all parts.
//!
//! How a window slides is part of a program, and sizes are uniforms: models have few kinds of windows. Dividing by a uniform is a multiplication by
//! its inverse, which is made once, and a correction.

use serde::{Deserialize, Serialize};

use crate::names::Size;

/// The most dimensions over which a window slides.
pub const MOST_AXES: usize = 3;

/// The largest numbers of a [`Slide`].
pub const MOST_OF_SLIDE: u32 = 1 << 16;

/// How a window slides along one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Slide {
    /// Elements of the window.
    pub taps: u32,
    /// From place to place.
    pub stride: u32,
    /// From tap to tap.
    pub dilation: u32,
    /// How far before the image the first window begins.
    pub before: u32,
}

/// One dimension over which a window slides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// How it slides.
    pub slide: Slide,
    /// How many places it has.
    pub places: Size,
    /// The size of the image.
    pub size: Size,
    /// Elements of the buffer from one to the next along the image.
    pub step: Size,
}

/// What a view's rows and columns are: see [the module](self). The view's row stride is that from image to image, its column stride from channel to channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Columns of one tap.
    pub channels: Size,
    /// The dimensions, outermost first: one to three.
    pub axes: Vec<Axis>,
}

impl Window {
    /// All its sizes.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = Size> {
        let of_axes = self.axes.iter().flat_map(|axis| [axis.places, axis.size, axis.step]);
        std::iter::once(self.channels).chain(of_axes)
    }

    /// What rows and columns are divided by.
    pub(crate) fn divisors(&self) -> impl Iterator<Item = Size> {
        std::iter::once(self.channels).chain(self.axes.iter().map(|axis| axis.places))
    }

    /// The tap along each dimension, of its number among all, as a text whose constants end in `suffix`.
    pub(crate) fn taps_along<'w>(&'w self, tap: &str, suffix: &'w str) -> impl Iterator<Item = String> + 'w {
        let (mut left, mut tap) = (self.taps(), tap.to_owned());
        self.axes.iter().map(move |axis| {
            left /= axis.slide.taps;
            let along = match (axis.slide.taps, left) {
                (1, _) => format!("0{suffix}"),
                (_, 1) => tap.clone(),
                _ => format!("({tap} / {left}{suffix})"),
            };
            if axis.slide.taps > 1 && left > 1 {
                tap = format!("({tap} % {left}{suffix})");
            }
            along
        })
    }

    /// Taps along all dimensions.
    pub fn taps(&self) -> u32 {
        self.axes.iter().fold(1, |n, axis| n.saturating_mul(axis.slide.taps))
    }
}
