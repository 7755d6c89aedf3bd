//! Moving rows of elements in vectors: short ones, and those whose elements are no neighbours in the source.

use std::ops::RangeInclusive;
use std::sync::OnceLock;

use crate::isa::Kernel;
use crate::simd::{LANES, Simd};

/// Bytes of a vector.
const VECTOR: usize = LANES * size_of::<f32>();

/// Bytes of rows that may be copied by vectors instead of by a call for each of them.
const SHORT_ROW: RangeInclusive<usize> = VECTOR..=4 << 10;

/// How rows of a length are copied.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowCopy {
    bytes: usize,
    by_vectors: bool,
}

impl RowCopy {
    /// Rows of so many bytes.
    pub(super) fn of(bytes: usize) -> RowCopy {
        RowCopy { bytes, by_vectors: SHORT_ROW.contains(&bytes) && vectors_pay() }
    }

    /// Copies a row.
    ///
    /// # Safety
    /// The bytes must be readable and writable, and apart.
    #[inline(always)]
    pub(super) unsafe fn copy<S: Simd>(self, s: S, from: *const u8, to: *mut u8) {
        // SAFETY: the caller's promise; the last vector goes over a part of the one before.
        unsafe {
            if !self.by_vectors {
                return std::ptr::copy_nonoverlapping(from, to, self.bytes);
            }
            let last = self.bytes - VECTOR;
            for at in (0..last).step_by(VECTOR) {
                s.store(to.add(at).cast(), s.load(from.add(at).cast()));
            }
            s.store(to.add(last).cast(), s.load(from.add(last).cast()));
        }
    }
}

/// Whether vectors copy short rows in less time than calls: on AMD's processors. (Rows of 256 bytes take 0.85 of the time on a Zen 5, and 1.14 to 1.47 on an
/// Intel Xeon of model 207.)
fn vectors_pay() -> bool {
    static PAY: OnceLock<bool> = OnceLock::new();
    *PAY.get_or_init(|| {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        return raw_cpuid::CpuId::new()
            .get_vendor_info()
            .is_some_and(|vendor| vendor.as_str() == "AuthenticAMD");
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        return false;
    })
}

/// Elements whose neighbours in the result are `step` apart in the source, in rows: everything in elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stepped<T> {
    pub(super) from: *const T,
    pub(super) from_row: isize,
    pub(super) step: isize,
    pub(super) to: *mut T,
    pub(super) to_row: isize,
    pub(super) rows: usize,
    /// Elements of a row.
    pub(super) inner: usize,
}

impl<T: Step> Kernel for Stepped<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for i in 0..self.rows as isize {
            let from = self.from.wrapping_offset(i * self.from_row);
            let to = self.to.wrapping_offset(i * self.to_row);
            // SAFETY: who runs the kernel was promised the rows, which are apart.
            unsafe {
                match self.step {
                    -1 if self.inner >= T::OF_VECTOR => backwards(s, from, to, self.inner),
                    2 if self.inner > T::OF_VECTOR => every_other(s, from, to, self.inner),
                    step => one_by_one(from, step, to, 0..self.inner),
                }
            }
        }
    }
}

/// # Safety
/// The elements must be readable and writable, and apart.
#[inline(always)]
unsafe fn one_by_one<T: Copy>(from: *const T, step: isize, to: *mut T, range: std::ops::Range<usize>) {
    for i in range {
        // SAFETY: the caller's promise.
        unsafe { *to.add(i) = *from.wrapping_offset(i as isize * step) };
    }
}

/// Elements in the opposite order, of which `from` is the first; the last vector goes over a part of the one before.
///
/// # Safety
/// The elements must be readable and writable, and apart, and fill a vector.
#[inline(always)]
unsafe fn backwards<S: Simd, T: Step>(s: S, from: *const T, to: *mut T, n: usize) {
    let last = n - T::OF_VECTOR;
    let mut at = 0;
    loop {
        let lowest = from.wrapping_sub(at + T::OF_VECTOR - 1);
        // SAFETY: the caller's promise, and at ≤ last.
        unsafe { s.store(to.add(at).cast(), T::reverse(s, s.load(lowest.cast()))) };
        if at == last {
            return;
        }
        at = last.min(at + T::OF_VECTOR);
    }
}

/// Every other element. Nothing is read behind the last one, which is moved alone; the last vector before it goes over a part of the
/// one before.
///
/// # Safety
/// The elements must be readable and writable, and apart, and be more than fill a vector.
#[inline(always)]
unsafe fn every_other<S: Simd, T: Step>(s: S, from: *const T, to: *mut T, n: usize) {
    let last = n - 1 - T::OF_VECTOR;
    let mut at = 0;
    // SAFETY: the caller's promise: at ≤ last, so the vectors end before element n - 1.
    unsafe {
        loop {
            let from = from.add(2 * at);
            let (a, b) = (s.load(from.cast()), s.load(from.add(T::OF_VECTOR).cast()));
            s.store(to.add(at).cast(), T::every_other(s, a, b));
            if at == last {
                break;
            }
            at = last.min(at + T::OF_VECTOR);
        }
        one_by_one(from, 2, to, n - 1..n);
    }
}

/// Elements whose order in vectors of memory can be changed.
pub(super) trait Step: Copy {
    /// How many fill a vector.
    const OF_VECTOR: usize = VECTOR / size_of::<Self>();
    /// All of a vector, in the opposite order.
    fn reverse<S: Simd>(s: S, x: S::F) -> S::F;
    /// Every other one of two vectors, from the first one on.
    fn every_other<S: Simd>(s: S, a: S::F, b: S::F) -> S::F;
}

/// The lower halves of all lanes, those of every other lane above those before.
#[inline(always)]
fn lower_halves<S: Simd>(s: S, even: S::I, odd: S::I) -> S::F {
    s.from_bits(s.or_i(s.and_i(even, s.splat_i(0xffff)), s.shl_i::<16>(odd)))
}

/// Both halves of each lane exchanged.
#[inline(always)]
fn halves_exchanged<S: Simd>(s: S, x: S::I) -> S::I {
    s.or_i(s.shl_i::<16>(x), s.and_i(s.shr_i::<16>(x), s.splat_i(0xffff)))
}

impl Step for u8 {
    #[inline(always)]
    fn reverse<S: Simd>(s: S, x: S::F) -> S::F {
        let x = s.bits(s.reverse(x));
        let even = s.splat_i(0x00ff_00ff);
        let turned = s.or_i(s.shl_i::<8>(s.and_i(x, even)), s.and_i(s.shr_i::<8>(x), even));
        s.from_bits(halves_exchanged(s, turned))
    }
    #[inline(always)]
    fn every_other<S: Simd>(s: S, a: S::F, b: S::F) -> S::F {
        let (even, odd) = s.unzip(a, b);
        lower_halves(s, first_and_third(s, s.bits(even)), first_and_third(s, s.bits(odd)))
    }
}

/// The first and the third byte of each lane, in its lower half.
#[inline(always)]
fn first_and_third<S: Simd>(s: S, x: S::I) -> S::I {
    s.or_i(s.and_i(x, s.splat_i(0xff)), s.and_i(s.shr_i::<8>(x), s.splat_i(0xff00)))
}

impl Step for u16 {
    #[inline(always)]
    fn reverse<S: Simd>(s: S, x: S::F) -> S::F {
        s.from_bits(halves_exchanged(s, s.bits(s.reverse(x))))
    }
    #[inline(always)]
    fn every_other<S: Simd>(s: S, a: S::F, b: S::F) -> S::F {
        let (even, odd) = s.unzip(a, b);
        lower_halves(s, s.bits(even), s.bits(odd))
    }
}

impl Step for u32 {
    #[inline(always)]
    fn reverse<S: Simd>(s: S, x: S::F) -> S::F {
        s.reverse(x)
    }
    #[inline(always)]
    fn every_other<S: Simd>(s: S, a: S::F, b: S::F) -> S::F {
        s.unzip(a, b).0
    }
}

impl Step for u64 {
    #[inline(always)]
    fn reverse<S: Simd>(s: S, x: S::F) -> S::F {
        s.permute(s.reverse(x), s.xor_i(s.iota(), s.splat_i(1)))
    }
    #[inline(always)]
    fn every_other<S: Simd>(s: S, a: S::F, b: S::F) -> S::F {
        let (low, high) = s.unzip(a, b);
        s.zip(s.unzip(low, low).0, s.unzip(high, high).0).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    /// Rows whose source is exactly as long as their elements need: a checker of memory sees what is read beside them.
    fn check<T: Step + PartialEq + std::fmt::Debug>(element: impl Fn(usize) -> T) {
        for isa in Isa::available() {
            for step in [-1isize, 2, 3, -2] {
                for inner in (1..=40).chain([63, 64, 65, 66, 127, 128, 129, 130, 193, 200]) {
                    let rows = 3;
                    let (span, row) = ((inner - 1) * step.unsigned_abs() + 1, inner + 2);
                    let from: Box<[T]> = (0..span * rows).map(&element).collect();
                    let first = if step < 0 { span - 1 } else { 0 };
                    let mut to = vec![element(usize::MAX); rows * row];
                    let start = from[first..].as_ptr();
                    let (from_row, to_row) = (span as isize, row as isize);
                    isa.run(Stepped {
                        from: start,
                        from_row,
                        step,
                        to: to.as_mut_ptr(),
                        to_row,
                        rows,
                        inner,
                    });
                    for (i, &got) in to.iter().enumerate() {
                        let (y, x) = (i / row, i % row);
                        let place = (y * span + first) as isize + x as isize * step;
                        let want = if x < inner { from[place as usize] } else { element(usize::MAX) };
                        assert_eq!(got, want, "{isa}: {y} {x} of {inner} by {step}");
                    }
                }
            }
        }
    }

    #[test]
    fn elements_are_taken_backwards_and_by_any_step() {
        check(|i| (i as u8).wrapping_mul(167));
        check(|i| (i as u16).wrapping_mul(40_503));
        check(|i| (i as u32).wrapping_mul(2_654_435_761));
        check(|i| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}
