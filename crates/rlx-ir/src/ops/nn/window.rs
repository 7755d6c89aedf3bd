//! What convolution and pooling share: a window that slides over the spatial dimensions.

use crate::dim::Extent;
use crate::error::{Error, ErrorKind, Result};
use crate::ops::def::{OpDef, Ranges};
use crate::ops::{DataFormat, Op, OpKind};
use crate::shape::Shape;

#[cfg(feature = "testing")]
use crate::testing::Gen;

/// Attributes above this are rejected: sizes made from them stay far from overflow.
const LARGEST: usize = 1 << 31;

/// The most spatial dimensions there are kernels for.
const MAX_SPATIAL: usize = 3;

/// How a window moves along one spatial dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WindowAxis {
    pub stride: i64,
    pub dilation: i64,
    pub before: i64,
    pub after: i64,
}

impl WindowAxis {
    /// The distance from the window's first element to just behind its last.
    pub fn reach(self, kernel: Extent) -> Extent {
        (kernel - 1) * self.dilation + 1
    }

    /// How many whole windows fit into `n` padded elements: `⌊(n + pads − reach) / stride⌋ + 1`.
    pub fn windows(self, n: Extent, kernel: Extent) -> Extent {
        (n + self.before + self.after - self.reach(kernel)).floor_div(self.stride) + 1
    }

    /// As [`WindowAxis::windows`], but a last window may reach beyond the padding, as long as it starts within
    /// the input or the padding before it.
    pub fn windows_ceil(self, n: Extent, kernel: Extent) -> Extent {
        let all = (n + self.before + self.after - self.reach(kernel)).ceil_div(self.stride) + 1;
        all.min((n + self.before).ceil_div(self.stride))
    }

    /// The elements among `n` that are under window `out` of a kernel of `taps`, and how many taps are not behind the padding.
    /// What that takes hangs on `n`, not on the taps: a kernel may be much larger than what it slides over.
    pub fn taps(self, out: usize, taps: usize, n: usize) -> (Vec<usize>, usize) {
        let (start, taps) = (self.position(out, 0), i64::try_from(taps).unwrap_or(i64::MAX));
        // How many taps are before a place.
        let before = |place: i64| (place - start + self.dilation - 1).div_euclid(self.dilation);
        let n = i64::try_from(n).unwrap_or(i64::MAX / 4);
        let (low, high) = (before(0).clamp(0, taps), before(n).clamp(0, taps));
        let inside = (low..high).map(|tap| (start + tap * self.dilation) as usize).collect();
        (inside, before(n + self.after).clamp(0, taps) as usize)
    }

    /// Where element `tap` of window `out` lies, counted from the input's first element.
    pub fn position(self, out: usize, tap: usize) -> i64 {
        out as i64 * self.stride + tap as i64 * self.dilation - self.before
    }
}

/// `position` as an index, when it is inside `0..n`.
pub(super) fn inside(position: i64, n: usize) -> Option<usize> {
    usize::try_from(position).ok().filter(|&p| p < n)
}

/// The movement along each of `spatial` dimensions, from the op's attributes.
pub(super) fn slides(
    kind: OpKind,
    spatial: usize,
    strides: &[usize],
    pads: &[usize],
    dilations: &[usize],
) -> Result<Vec<WindowAxis>> {
    let reject = |message: String| Err(Error::new(ErrorKind::Shape, format!("{kind}: {message}")));
    if !(1..=MAX_SPATIAL).contains(&spatial) {
        return reject(format!("{spatial} spatial dimensions; there are 1 to {MAX_SPATIAL}"));
    }
    for (name, list, want) in
        [("strides", strides, spatial), ("dilations", dilations, spatial), ("pads", pads, 2 * spatial)]
    {
        if list.len() != want {
            return reject(format!(
                "{want} {name} are needed for {spatial} spatial dimensions, not {list:?}"
            ));
        }
        if list.iter().any(|&v| v > LARGEST || (name != "pads" && v == 0)) {
            return reject(format!("{name} {list:?} are not all between 1 (pads: 0) and {LARGEST}"));
        }
    }
    let slide = |i: usize| WindowAxis {
        stride: strides[i] as i64,
        dilation: dilations[i] as i64,
        before: pads[i] as i64,
        after: pads[spatial + i] as i64,
    };
    Ok((0..spatial).map(slide).collect())
}

/// An output dimension that must be at least 1 where it is known.
pub(super) fn at_least_one(kind: OpKind, n: Extent, why: impl FnOnce() -> String) -> Result<Extent> {
    match n {
        Extent::Const(c) if c < 1 => Err(Error::new(ErrorKind::Shape, format!("{kind}: {}", why()))
            .with_hint("pad more, or use a smaller kernel or dilation")),
        n => Ok(n),
    }
}

/// Whether the spatial dimensions that `def` infers are at least 1 for all values of the symbols.
pub(super) fn results_have_elements(def: &dyn OpDef, op: &Op, inputs: &[&Shape], range: Ranges<'_>) -> bool {
    let channels = match op {
        Op::Conv { format, .. } | Op::Pool { format, .. } => format.channel_axis(inputs[0].rank()),
        _ => DataFormat::ChannelsFirst.channel_axis(inputs[0].rank()),
    };
    let positive = |s: &Shape| {
        let spatial = (1..s.rank()).filter(|&i| i != channels);
        { spatial }.all(|i| s.dim(i).extent().range(range).min >= 1)
    };
    def.infer(op, inputs, &[]).is_ok_and(|results| results.iter().all(positive))
}

impl DataFormat {
    /// Which dimension of a rank-`rank` tensor holds the channels.
    pub fn channel_axis(self, rank: usize) -> usize {
        match self {
            DataFormat::ChannelsFirst => 1,
            DataFormat::ChannelsLast => rank - 1,
        }
    }

    /// The first spatial dimension; the others follow it.
    pub fn first_spatial_axis(self) -> usize {
        match self {
            DataFormat::ChannelsFirst => 2,
            DataFormat::ChannelsLast => 1,
        }
    }

    /// `[n, spatial.., c]` or `[n, c, spatial..]`.
    pub(crate) fn arrange<T: Copy>(self, n: T, c: T, spatial: &[T]) -> Vec<T> {
        let mut all = vec![n];
        match self {
            DataFormat::ChannelsFirst => all.push(c),
            DataFormat::ChannelsLast => {}
        }
        all.extend_from_slice(spatial);
        if self == DataFormat::ChannelsLast {
            all.push(c);
        }
        all
    }
}

/// The row-major place of an index.
pub(super) fn place(index: &[usize], dims: &[usize]) -> usize {
    index.iter().zip(dims).fold(0, |at, (&i, &d)| at * d + i)
}

/// Random strides, pads and dilations with an input large enough for `kernel`.
#[cfg(feature = "testing")]
pub(super) struct RandomWindow {
    pub strides: Vec<usize>,
    pub pads: Vec<usize>,
    pub dilations: Vec<usize>,
    pub kernel: Vec<usize>,
    pub input: Vec<usize>,
}

#[cfg(feature = "testing")]
impl RandomWindow {
    pub fn new(g: &mut Gen, spatial: usize) -> Self {
        let largest = if spatial == 3 { 2 } else { 3 };
        let kernel: Vec<usize> = (0..spatial).map(|_| g.size(1..=largest)).collect();
        let list = |g: &mut Gen, n: usize, low: usize, high: usize| {
            (0..n).map(|_| if g.chance(0.5) { low } else { g.size(low..=high) }).collect::<Vec<_>>()
        };
        let (strides, dilations) = (list(g, spatial, 1, 3), list(g, spatial, 1, 2));
        let pads = list(g, 2 * spatial, 0, 2);
        let input = (0..spatial).map(|i| {
            let reach = (kernel[i] - 1) * dilations[i] + 1;
            let least = reach.saturating_sub(pads[i] + pads[spatial + i]).max(1);
            least + g.size(0..=if spatial == 3 { 2 } else { 5 })
        });
        let input = input.collect();
        RandomWindow { strides, pads, dilations, kernel, input }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dim::sym;

    #[test]
    fn counts_follow_the_formula_also_for_symbols() {
        let s = WindowAxis { stride: 2, dilation: 1, before: 1, after: 1 };
        assert_eq!(s.windows(Extent::Const(7), Extent::Const(3)), Extent::Const(4));
        let n = s.windows(Extent::sym(sym::SEQ) * 2, Extent::Const(3));
        assert_eq!(n, Extent::sym(sym::SEQ), "⌊(2s − 1) / 2⌋ + 1 = s");
        // The last window would start in the padding behind the input: it does not count.
        let s = WindowAxis { stride: 2, dilation: 1, before: 1, after: 1 };
        assert_eq!(s.windows_ceil(Extent::Const(5), Extent::Const(1)), Extent::Const(3));
        assert_eq!(s.windows_ceil(Extent::Const(6), Extent::Const(3)), Extent::Const(4));
    }

    #[test]
    fn wrong_attributes_are_named() {
        let e = slides(OpKind::Conv, 2, &[1], &[0; 4], &[1, 1]).unwrap_err();
        assert!(e.to_string().contains("2 strides"), "{e}");
        assert!(slides(OpKind::Conv, 1, &[0], &[0; 2], &[1]).is_err());
        assert!(slides(OpKind::Conv, 1, &[usize::MAX], &[0; 2], &[1]).is_err());
        assert!(slides(OpKind::Conv, 4, &[1; 4], &[0; 8], &[1; 4]).is_err());
    }
}
