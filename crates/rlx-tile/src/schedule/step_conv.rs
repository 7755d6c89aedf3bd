//! A step of LIR around a convolution with its channels last as a tile program: a matmul of windows ([`super::conv`]), with what stands behind it in its
//! region.
//!
//! A window of one tap that moves by one is no window: all places of all images are rows of one matrix, and the program is that of a matmul.

use rlx_ir::Extent;
use rlx_kernel::UniformArg;
use rlx_kernel::schedule::{Arg, ConvParts, Scheduled, StepDesc, Unscheduled, convolution, stride_of_rows};

use super::matmul::Operand;
use super::step_operands::{Matrix, Operands, vector};
use super::suited::multiplies;
use crate::atom::Arch;
use crate::group::ROW;
use crate::tensor_map::BoundAxis;
use crate::window::{MOST_OF_SLIDE, Slide};

/// The fewest channels of a group, and filters: with fewer, most of what a matrix instruction multiplies is 0.
const LEAST_OF_GROUP: i64 = 8;

/// A convolution that the architecture multiplies, and where its operands are.
pub(super) struct StepConv<'s> {
    pub(super) parts: ConvParts<'s>,
    /// What slides; nothing where the image is a matrix of rows as it is.
    pub(super) window: Vec<Slide>,
    /// Elements from row to row: of the image, where it is a matrix, or from image to image; of the weights, from filter to filter; of the result.
    rows: [Extent; 3],
}

/// The convolution of a step; `None` where the step is around something else.
pub(super) fn parts(arch: Arch, step: &StepDesc) -> Option<Scheduled<StepConv<'_>>> {
    convolution(step).map(|_| StepConv::of(arch, step))
}

/// Whether the node is a convolution of which the architecture makes a tile program, as far as that does not depend on where its operands are.
pub fn convolves(arch: Arch, step: &StepDesc) -> bool {
    parts_of(arch, step).is_ok()
}

fn parts_of(arch: Arch, step: &StepDesc) -> Scheduled<ConvParts<'_>> {
    let parts = ConvParts::of(step)?;
    let refused = |why: String| Err(Unscheduled(why));
    if !multiplies(arch, parts.dtype) {
        return refused(format!("{} has no matrix instruction of {}", arch.name(), parts.dtype));
    }
    let few = |size: Extent| size.as_const().is_none_or(|n| n < LEAST_OF_GROUP);
    if parts.groups > 1 && (few(parts.channels) || few(parts.filters)) {
        return refused(format!("groups of fewer than {LEAST_OF_GROUP} channels or filters"));
    }
    let known = |n: usize| u32::try_from(n).is_ok_and(|n| n <= MOST_OF_SLIDE);
    let slides =
        |taps: Extent| taps.as_const().is_some_and(|taps| (1..=i64::from(MOST_OF_SLIDE)).contains(&taps));
    let taps = parts.axes.iter().fold(Extent::Const(1), |n, axis| n * axis.taps);
    let all =
        parts.axes.iter().all(|a| known(a.stride) && known(a.dilation) && known(a.before) && slides(a.taps));
    if !(all && slides(taps)) {
        return refused(format!("a window that is not known, or larger than {MOST_OF_SLIDE}"));
    }
    Ok(parts)
}

impl<'s> StepConv<'s> {
    fn of(arch: Arch, step: &'s StepDesc) -> Scheduled<Self> {
        let parts = parts_of(arch, step)?;
        let refused = |why: &str| Unscheduled(why.to_owned());
        let [image, weights, result] =
            [parts.operands[0], parts.operands[1], Arg::Output(0)].map(|arg| &*parts.operand(arg).view);
        // The depth has one stride: its taps follow each other, each with all its channels.
        let (of_channels, mut inside) = (weights.strides[1], parts.channels);
        let mut packed = of_channels == Extent::Const(1) || parts.channels == Extent::Const(1);
        for (axis, &stride) in parts.axes.iter().zip(&weights.strides[2..]).rev() {
            packed &= axis.taps == Extent::Const(1) || stride == inside;
            inside = inside * axis.taps;
        }
        if !packed {
            return Err(refused("weights that are not packed with their channels last"));
        }
        let of_result =
            stride_of_rows(result).ok_or_else(|| refused("a result whose rows have no one stride"))?;
        let slide = |axis: &rlx_kernel::schedule::ConvAxis| Slide {
            taps: axis.taps.as_const().unwrap_or(0) as u32,
            stride: axis.stride as u32,
            dilation: axis.dilation as u32,
            before: axis.before as u32,
        };
        let still = |a: &rlx_kernel::schedule::ConvAxis| {
            a.taps == Extent::Const(1) && a.stride == 1 && a.before == 0 && a.places == a.size
        };
        let as_rows = stride_of_rows(image).filter(|_| parts.axes.iter().all(still));
        let window = if as_rows.is_some() { Vec::new() } else { parts.axes.iter().map(slide).collect() };
        let rows = [as_rows.unwrap_or(image.strides[0]), weights.strides[0], of_result];
        Ok(StepConv { parts, window, rows })
    }

    /// Taps, and of each its channels.
    pub(super) fn depth(&self) -> Extent {
        self.parts.axes.iter().fold(self.parts.channels, |n, axis| n * axis.taps)
    }

    /// Whether tensor copies find its windows: whole channels of one tap at a time, and an image whose sizes are known, with few elements beside it.
    pub(super) fn is_mapped(&self) -> bool {
        let known = |e: Extent| e.as_const();
        let axis = |(axis, slide): (&rlx_kernel::schedule::ConvAxis, &Slide)| {
            let (Some(size), Some(places)) = (known(axis.size), known(axis.places)) else { return false };
            BoundAxis::new(slide, size, places).is_mapped(slide, self.window.len())
        };
        self.parts.groups == 1
            && known(self.parts.channels).is_some_and(|channels| channels % i64::from(ROW) == 0)
            && self.parts.axes.iter().zip(&self.window).all(axis)
    }

    /// Groups, where there are several.
    pub(super) fn batch(&self) -> Vec<Extent> {
        (self.parts.groups > 1).then_some(Extent::Const(self.parts.groups as i64)).into_iter().collect()
    }

    /// The image, the weights and the result.
    pub(super) fn operands(&self) -> Operands {
        Operands::as_they_are([0, 1, 2].map(|i| self.matrix(i)), !self.window.is_empty())
    }

    /// The operand number `i`, or the result.
    fn matrix(&self, i: usize) -> Matrix {
        let parts = &self.parts;
        let arg = [parts.operands[0], parts.operands[1], Arg::Output(0)][i];
        let (of, filters) = (parts.operand(arg), parts.filters);
        let last = of.view.strides[of.view.strides.len() - 1];
        // Along a row, how long what is accessed together is, and from group to group.
        let (col, length, group) = match i {
            0 => (last, parts.channels, parts.channels * last),
            1 => (Extent::Const(1), self.depth(), filters * self.rows[1]),
            _ => (last, filters, filters * last),
        };
        let group = (parts.groups > 1).then_some(group);
        let steps = if i == 0 { &of.view.strides[1..1 + self.window.len()] } else { &[] };
        let multiples = [of.view.offset, self.rows[i], length].into_iter().chain(group);
        let multiples = multiples.chain(steps.iter().copied());
        let vector = if col == Extent::Const(1) { vector(of.dtype, multiples) } else { 1 };
        let operand = Operand { dtype: of.dtype, transposed: i == 1, vector };
        Matrix::at(arg, operand, of.view.offset, (self.rows[i], col), group.into_iter().collect())
    }

    /// The uniforms of the window.
    pub(super) fn window_uniforms(&self) -> Vec<UniformArg> {
        if self.window.is_empty() {
            return Vec::new();
        }
        let steps = &self.parts.operand(self.parts.operands[0]).view.strides[1..];
        let of_axes =
            self.parts.axes.iter().zip(steps).flat_map(|(axis, &step)| [axis.places, axis.size, step]);
        std::iter::once(self.parts.channels).chain(of_axes).map(UniformArg::Extent).collect()
    }
}
