//! What steps do to some lines of an image: the parts of [bands](super).

use std::ops::Range;

use super::LineForm;
use crate::gemm::{ConvRows, Gemm, Packed, Rows, Strided};
use crate::isa::Isa;
use crate::kernels::Shared;
use crate::kernels::pool_lines::PoolPass;
use crate::window::WindowPass;

/// What a step does to lines, with its operands.
pub(crate) enum Part {
    F32(PartOf<f32>),
    F16(PartOf<half::f16>),
    BF16(PartOf<half::bf16>),
}

/// See [`Part`].
pub(crate) enum PartOf<T: Packed> {
    /// A 1 × 1 convolution of images of this many pixels a line: one row each.
    Product(Gemm<Strided<T>>, usize),
    /// Another convolution, of images that are not in a ring, with this many rows a line.
    Convolution(Gemm<ConvRows<T>>, usize),
    /// A convolution with few channels in a group.
    Windows(WindowPass<T>),
    /// A pooling, to lines of this many pixels.
    Pool(PoolPass<T>, usize),
}

/// Types that parts are of.
pub(crate) trait Typed: Packed {
    /// The part of a step.
    fn part(of: PartOf<Self>) -> Part;
}

impl Typed for f32 {
    fn part(of: PartOf<f32>) -> Part {
        Part::F32(of)
    }
}
impl Typed for half::f16 {
    fn part(of: PartOf<half::f16>) -> Part {
        Part::F16(of)
    }
}
impl Typed for half::bf16 {
    fn part(of: PartOf<half::bf16>) -> Part {
        Part::BF16(of)
    }
}

/// Where a part reads or writes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lines {
    /// The step's own operand.
    Own,
    /// A ring buffer of so many lines: line `y` is number `y % lines`.
    Ring(Shared<u8>, usize),
    /// A result without gaps, elsewhere than the step has it.
    Apart(Shared<u8>),
}

impl Lines {
    /// The lines up to `end` that are one behind the other from `line` on.
    pub(super) fn until(self, line: usize, end: usize) -> usize {
        match self {
            Lines::Ring(_, lines) => end.min(line + lines - line % lines),
            Lines::Own | Lines::Apart(_) => end,
        }
    }
}

impl Part {
    /// Whether its lines of the input must be one behind the other.
    pub(super) fn reads_rows(&self) -> bool {
        match self {
            Part::F32(part) => part.reads_rows(),
            Part::F16(part) => part.reads_rows(),
            Part::BF16(part) => part.reads_rows(),
        }
    }

    /// Computes lines of an image that are one behind the other in both buffers.
    ///
    /// # Safety
    /// As the step's own run, for these lines; rings must hold the lines.
    pub(super) unsafe fn run(
        &self,
        isa: Isa,
        form: &LineForm,
        image: usize,
        lines: Range<usize>,
        io: [Lines; 2],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Part::F32(part) => part.run(isa, form, image, lines, io),
                Part::F16(part) => part.run(isa, form, image, lines, io),
                Part::BF16(part) => part.run(isa, form, image, lines, io),
            }
        }
    }

    /// Copies a result without gaps to where its step has it.
    ///
    /// # Safety
    /// Both must be there, apart, and nothing else may use the step's result.
    pub(super) unsafe fn put(&self, form: &LineForm, from: *const u8) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Part::F32(part) => part.put(form, from.cast()),
                Part::F16(part) => part.put(form, from.cast()),
                Part::BF16(part) => part.put(form, from.cast()),
            }
        }
    }
}

impl<T: Packed> PartOf<T> {
    fn reads_rows(&self) -> bool {
        matches!(self, PartOf::Product(..))
    }

    /// # Safety
    /// As [`Part::run`].
    unsafe fn run(
        &self,
        isa: Isa,
        form: &LineForm,
        image: usize,
        lines: Range<usize>,
        [input, output]: [Lines; 2],
    ) {
        let size = size_of::<T>();
        // Where the first of the lines is written.
        let to = |own: *mut T| match output {
            Lines::Own => own.wrapping_add((image * form.lines[1] + lines.start) * form.bytes[1] / size),
            Lines::Ring(ring, n) => ring.get().wrapping_add(lines.start % n * form.bytes[1]).cast(),
            Lines::Apart(all) => {
                all.get().wrapping_add((image * form.lines[1] + lines.start) * form.bytes[1]).cast()
            }
        };
        // Lines among those of all images; where they are written if that is not where the step does.
        let first = image * form.lines[1] + lines.start;
        let last = first + lines.len();
        let apart = (!matches!(output, Lines::Own)).then(|| to(std::ptr::null_mut()));
        match self {
            PartOf::Product(gemm, width) => {
                let rows = match input {
                    Lines::Ring(ring, n) => {
                        let from = ring.get().wrapping_add(lines.start % n * form.bytes[0]);
                        Strided { ptr: from.cast_const().cast(), row_stride: gemm.k as isize }
                    }
                    _ => gemm.rows.skip(first * width),
                };
                let part = gemm.block(first * width..last * width, rows);
                // SAFETY: the caller's promise: these rows are there.
                unsafe { multiply(isa, part, apart) }
            }
            PartOf::Convolution(gemm, width) => {
                let part = gemm.block(first * width..last * width, gemm.rows.skip(first * width));
                // SAFETY: as above.
                unsafe { multiply(isa, part, apart) }
            }
            PartOf::Windows(pass) => {
                let mut part = *pass;
                part.windows.images = 1;
                match input {
                    Lines::Ring(ring, n) => (part.input, part.wrap) = (ring.get().cast_const().cast(), n),
                    _ => {
                        let image = image * form.lines[0] * form.bytes[0] / size;
                        part.input = pass.input.wrapping_add(image);
                    }
                }
                part.output = to(pass.output).wrapping_sub(lines.start * form.bytes[1] / size);
                // SAFETY: the caller's promise.
                unsafe { part.run(isa, lines) }
            }
            PartOf::Pool(pass, width) => {
                let mut part = *pass;
                match input {
                    Lines::Ring(ring, n) => (part.input, part.wrap) = (ring.get().cast_const().cast(), n),
                    _ => part.input = pass.input.wrapping_add(image * form.lines[0] * form.bytes[0] / size),
                }
                part.output = to(pass.output);
                // SAFETY: the caller's promise.
                unsafe { part.run(isa, lines, 0..*width) }
            }
        }
    }

    /// # Safety
    /// As [`Part::put`].
    unsafe fn put(&self, form: &LineForm, from: *const T) {
        let (to, columns, stride) = match self {
            PartOf::Product(gemm, _) => (gemm.c, gemm.n, gemm.c_stride),
            PartOf::Convolution(gemm, _) => (gemm.c, gemm.n, gemm.c_stride),
            PartOf::Windows(pass) => (pass.output, 1, 1),
            PartOf::Pool(pass, _) => (pass.output, 1, 1),
        };
        let all = form.images * form.lines[1] * form.bytes[1] / size_of::<T>();
        // SAFETY: the caller's promise.
        unsafe {
            if stride == columns {
                return to.copy_from_nonoverlapping(from, all);
            }
            for row in 0..all / columns.max(1) {
                to.add(row * stride).copy_from_nonoverlapping(from.add(row * columns), columns);
            }
        }
    }
}

/// Computes a part of a matmul; `apart`: its result is there, without gaps.
///
/// # Safety
/// As [`Gemm::run`].
unsafe fn multiply<R: Rows<Element: Packed>>(isa: Isa, mut part: Gemm<R>, apart: Option<*mut R::Element>) {
    if let Some(c) = apart {
        (part.c, part.c_stride) = (c, part.n);
    }
    // SAFETY: the caller's promise.
    unsafe { part.run(isa, 0..part.tasks(isa)) }
}
