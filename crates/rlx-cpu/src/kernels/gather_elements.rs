//! `GatherElements`: single elements read at positions that are data, a line of the result at a time.

use rlx_ir::{Op, Result};

use super::elementwise::sized;
pub(crate) use super::indices::claim;
use super::indices::{Indices, Misses, place};
use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, WORTH_NANOS, mismatch, no_kernel, unbound};
use crate::isa::Kernel;
use crate::layout::{At, Bound, Layout, Walk};
use crate::simd::Simd;

/// The kernel of a gather of elements.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    match cx.node().op {
        Op::GatherElements { axis } => Ok(Box::new(Elements { axis, ..Elements::EMPTY })),
        ref op => Err(no_kernel(op, "it is no gather of elements")),
    }
}

/// `GatherElements`.
#[derive(Debug, Clone, Copy)]
struct Elements {
    axis: usize,
    x: At,
    indices: Option<Bound>,
    out: At,
    size: usize,
    word: usize,
    /// The result's dimensions with the strides of `x`, but 0 along the axis.
    walk: Layout,
    along: isize,
    worth: bool,
}

impl Elements {
    const EMPTY: Elements = Elements {
        axis: 0,
        x: At::NOWHERE,
        indices: None,
        out: At::NOWHERE,
        size: 0,
        word: 1,
        walk: Layout::SCALAR,
        along: 0,
        worth: false,
    };
}

/// The dimensions of indices with the strides of `x`, 0 along `axis`; rejects indices that leave `x`.
pub(crate) fn walk_elements(x: &Bound, indices: &Bound, axis: usize) -> Result<Layout> {
    let fits = |i: usize| i == axis || indices.dims()[i] <= x.dims()[i];
    if indices.layout.rank() != x.layout.rank() || !(0..x.layout.rank()).all(fits) {
        return Err(mismatch(format!("elements of {:?} by indices {:?}", x.dims(), indices.dims())));
    }
    let mut walk = Layout::SCALAR;
    for (i, (&dim, &stride)) in indices.dims().iter().zip(x.layout.strides()).enumerate() {
        walk.push(dim, if i == axis { 0 } else { stride });
    }
    Ok(walk)
}

impl StepKernel for Elements {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        let (x, indices, out) = (cx.inputs[0], cx.inputs[1], cx.outputs[0]);
        self.walk = walk_elements(&x, &indices, self.axis)?;
        if out.dims() != indices.dims() {
            return Err(mismatch(format!("a result {:?} of indices {:?}", out.dims(), indices.dims())));
        }
        (self.size, self.along) = (x.dims()[self.axis], x.layout.strides()[self.axis]);
        (self.x, self.indices, self.out, self.word) = (x.at, Some(indices), out.at, x.dtype.size_bytes());
        let nanos = out.layout.elements() as f64;
        self.worth = nanos > WORTH_NANOS;
        Ok(Needs::time(nanos))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let Some(indices) = self.indices else { return Err(unbound()) };
        let k = *self;
        let rank = k.walk.rank();
        let (inner, step) = (k.walk.dims()[rank - 1], k.walk.strides()[rank - 1]);
        let outer = k.walk.range(0, rank - 1);
        let line = Picked { size: k.size, along: k.along, step, n: inner };
        let indices = Indices::new(cx.ptr(indices.at), indices.dtype);
        let (from, to, misses) = (cx.shared::<u8>(k.x), cx.shared::<u8>(k.out), Misses::none());
        let isa = cx.isa;
        cx.parallel(k.worth, k.walk.elements().checked_div(inner).unwrap_or(0), &|range, _| {
            // Indices and operands are the caller's promise; a place is within `x`, since its other coordinates were checked when
            // bound.
            let miss = sized!(k.word, T => {
                let (from, to) = (from.get().cast::<T>().cast_const(), to.get().cast::<T>());
                match indices {
                    Indices::Wide(indices) => isa.run(PickedLines { line, outer, range, indices, from, to }),
                    Indices::Narrow(indices) => isa.run(PickedLines { line, outer, range, indices, from, to }),
                }
            });
            if let Some(i) = miss {
                misses.note(i);
            }
        });
        // SAFETY: the caller's promise: the indices can be read for as long as the step runs.
        unsafe { misses.check(&indices, |_| (k.axis, k.size)) }
    }
}

/// Indices that are looked at together.
const LOOKED_AT: usize = 64;

/// A line of `GatherElements`: each element is `step` further than the one before, and as far along the axis as its index says.
#[derive(Clone, Copy)]
struct Picked {
    size: usize,
    along: isize,
    step: isize,
    n: usize,
}

/// The lines `range` of `GatherElements`; the number of the first index that is out of range, if there is one.
struct PickedLines<T, I> {
    line: Picked,
    /// Where the lines begin in `from`.
    outer: Layout,
    range: std::ops::Range<usize>,
    indices: *const I,
    from: *const T,
    to: *mut T,
}

impl<T: Copy, I: Copy + Into<i64>> Kernel for PickedLines<T, I> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Option<usize> {
        let n = self.line.n;
        let mut walk = Walk::new([self.outer], self.range.start);
        let ahead = self.line.read_ahead::<T>();
        for row in self.range {
            let from = self.from.wrapping_offset(walk.at()[0]);
            let first = row * n;
            // SAFETY: who runs the kernel was promised the indices, what they mean, and room for the elements.
            let miss = unsafe { self.line.of(s, self.indices.add(first), from, self.to.add(first), ahead) };
            if let Some(i) = miss {
                return Some(first + i);
            }
            walk.step();
        }
        None
    }
}

/// The most bytes of a line that are fetched before they are read.
const AHEAD: usize = 64 << 10;

impl Picked {
    /// Bytes of the line that is read, where about all of it is, by neighbours: the next one is fetched meanwhile.
    #[inline(always)]
    fn read_ahead<T>(&self) -> usize {
        let bytes = self.size.saturating_mul(size_of::<T>());
        let most = self.along == 1 && self.step == 0 && self.n >= self.size / 2;
        if most && bytes <= AHEAD { bytes } else { 0 }
    }

    /// Gathers the line; the number of the first index that is out of range otherwise. What some indices mean, and whether all of
    /// them are in range, is found in vectors before the elements are read.
    ///
    /// # Safety
    /// There must be `n` indices and room for as many elements, and all that indices in range mean must be readable.
    #[inline(always)]
    unsafe fn of<S: Simd, T: Copy, I: Copy + Into<i64>>(
        self,
        s: S,
        indices: *const I,
        from: *const T,
        to: *mut T,
        ahead: usize,
    ) -> Option<usize> {
        let mut places = [0u64; LOOKED_AT];
        let size = self.size as u64;
        // Nothing else fetches what is read in any order. All at once would wait for each other.
        let mut next = from.cast::<u8>().wrapping_add(ahead);
        let lines = ahead.div_ceil(64).div_ceil(self.n.div_ceil(LOOKED_AT).max(1));
        for start in (0..self.n).step_by(LOOKED_AT) {
            let n = LOOKED_AT.min(self.n - start);
            for _ in 0..lines {
                s.prefetch_l2(next.cast());
                next = next.wrapping_add(64);
            }
            // SAFETY: the caller's promise.
            let given = unsafe { std::slice::from_raw_parts(indices.wrapping_add(start), n) };
            let mut outside = 0;
            for (to, &index) in places.iter_mut().zip(given) {
                let index: i64 = index.into();
                let place = (index as u64).wrapping_add(if index < 0 { size } else { 0 });
                outside |= u64::from(place >= size);
                *to = place;
            }
            if outside != 0 {
                return given.iter().position(|&i| place(i.into(), self.size).is_none()).map(|i| start + i);
            }
            let from = from.wrapping_offset(start as isize * self.step);
            // SAFETY: the caller's promise; the places are in range.
            unsafe {
                if self.along == 1 && self.step == 0 {
                    for (i, &place) in places[..n].iter().enumerate() {
                        *to.add(start + i) = *from.add(place as usize);
                    }
                } else {
                    for (i, &place) in places[..n].iter().enumerate() {
                        let at = place as isize * self.along + i as isize * self.step;
                        *to.add(start + i) = *from.wrapping_offset(at);
                    }
                }
            }
        }
        None
    }
}
