//! Convolutions with their channels last as matmuls: rows are places of the result, of all images, columns are filters, and the depth is taps and, innermost,
//! channels. Groups are a batch. The left operand is the image, seen through a [`Window`]; what is beside it is 0. A result is one chain of sums in
//! order of that depth, so all tilings of an architecture give the same bits.
//!
//! ```
//! use rlx_ir::DType;
//! use rlx_tile::schedule::{Matmul, Operand, matmul, tilings};
//! use rlx_tile::{Arch, window::Slide};
//! // A window of 3×3 with a border of 1, over channels that are multiples of 8.
//! let slide = Slide { taps: 3, stride: 1, dilation: 1, before: 1 };
//! let plain = Matmul::new(DType::F16);
//! // Weights are filters × depth.
//! let weights = Operand { transposed: true, ..plain.right };
//! let what = Matmul { window: vec![slide; 2], right: weights, ..plain };
//! let program = matmul(Arch::Sm80, &what, &tilings(Arch::Sm80)[0])?;
//! assert!(program.to_string().contains("window u12 channels u13 of u14 by u15 taps 3"));
//! # Ok::<(), rlx_ir::Error>(())
//! ```

use super::matmul::Matmul;
use crate::ir::Size;
use crate::window::{Axis, Window};

impl Matmul {
    /// The names of the uniforms of the window: its channels, then the places, the size and the step of each of its dimensions.
    pub(super) fn window_uniforms(&self) -> impl Iterator<Item = String> {
        let channels = (!self.window.is_empty()).then(|| "window.channels".to_owned());
        let of_axis = |i: usize| ["places", "size", "step"].map(|what| format!("window.{what}{i}"));
        channels.into_iter().chain((0..self.window.len()).flat_map(of_axis))
    }

    /// The window that slides over the left operand.
    pub(super) fn window_of_left(&self) -> Option<Window> {
        let first = self.first_of_window() as u32;
        let axis = |(slide, first): (_, u32)| {
            let [places, size, step] = [0, 1, 2].map(|i| Size::Uniform(first + i));
            Axis { slide, places, size, step }
        };
        let axes: Vec<Axis> = self.window.iter().copied().zip((first + 1..).step_by(3)).map(axis).collect();
        (!axes.is_empty()).then_some(Window { channels: Size::Uniform(first), axes })
    }
}
