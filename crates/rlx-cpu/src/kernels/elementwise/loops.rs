//! Loops over the elements of a tile for ops that have no code over [`Simd`](crate::simd::Simd): written once on one element, and compiled for
//! each instruction set, whose vectors the compiler uses.
//!
//! They go in blocks: a block of operands is read before its results are written. A result may have the place of an
//! operand, and where the compiler cannot see that one element's result is not another's operand, it makes no vectors.

use super::instr::Source;
use super::sized;
use crate::isa::{Isa, Kernel};
use crate::simd::Simd;

/// Elements of a block, whose operands and results are a cache line or less: arrays of more would go by way of the stack.
pub(super) const fn block_of<T, O>() -> usize {
    let (operand, result) = (size_of::<T>(), size_of::<O>());
    64 / if operand > result { operand } else { result }
}

/// A function of the elements at one place, or at two. Its callers promise what those of [`Code::run`](super::instr::Code::run) do.
pub(super) type F1 = unsafe fn(isa: Isa, x: Source, out: *mut u8, n: usize);
pub(super) type F2 = unsafe fn(isa: Isa, x: Source, y: Source, out: *mut u8, n: usize);

/// A loop over one operand, in vectors: `map1!(T => O, |x| expression)`. An operand of one value has one result.
macro_rules! map1 {
    ($t:ty => $o:ty, |$x:ident| $e:expr) => {{
        struct Loop(*const $t, *mut $o, usize);
        impl Kernel for Loop {
            type Output = ();
            #[inline(always)]
            fn run<S: Simd>(self, _: S) {
                const BLOCK: usize = block_of::<$t, $o>();
                let Loop(x, out, n) = self;
                let whole = n - n % BLOCK;
                // SAFETY: the callers of `Code::run` promise the memory; a block is within `n` elements.
                unsafe {
                    for i in (0..whole).step_by(BLOCK) {
                        let xs: [$t; BLOCK] = block_at(x.add(i));
                        let mut results = [<$o>::default(); BLOCK];
                        for k in 0..BLOCK {
                            let $x = xs[k];
                            results[k] = $e;
                        }
                        out.add(i).cast::<[$o; BLOCK]>().write(results);
                    }
                    for i in whole..n {
                        let $x = *x.add(i);
                        *out.add(i) = $e;
                    }
                }
            }
        }
        // SAFETY: the promise is that of `Code::run`.
        unsafe fn f(isa: Isa, x: Source, out: *mut u8, n: usize) {
            isa.run(Loop(x.ptr.cast(), out.cast(), n));
        }
        Code::Map1(f, Pace::Vector)
    }};
}
pub(super) use map1;

/// A loop over two operands, in vectors; the second one may be one value.
macro_rules! map2 {
    ($t:ty => $o:ty, |$x:ident, $y:ident| $e:expr) => {{
        struct Loop(Source, Source, *mut $o, usize);
        impl Kernel for Loop {
            type Output = ();
            #[inline(always)]
            fn run<S: Simd>(self, _: S) {
                const BLOCK: usize = block_of::<$t, $o>();
                let Loop(Source { ptr: x, step: x_step }, Source { ptr: y, step: y_step }, out, n) = self;
                let (x, y) = (x.cast::<$t>(), y.cast::<$t>());
                // That all are compared with one value is common; that one is with all is not.
                let whole = if x_step == 1 { n - n % BLOCK } else { 0 };
                // SAFETY: the callers of `Code::run` promise the memory; a block is within `n` elements.
                unsafe {
                    macro_rules! blocks {
                        ($i:ident, $xs:expr, $ys:expr) => {
                            for $i in (0..whole).step_by(BLOCK) {
                                let (xs, ys): ([$t; BLOCK], [$t; BLOCK]) = ($xs, $ys);
                                let mut results = [<$o>::default(); BLOCK];
                                for k in 0..BLOCK {
                                    let ($x, $y) = (xs[k], ys[k]);
                                    results[k] = $e;
                                }
                                out.add($i).cast::<[$o; BLOCK]>().write(results);
                            }
                        };
                    }
                    if y_step == 1 {
                        blocks!(i, block_at(x.add(i)), block_at(y.add(i)));
                    } else {
                        blocks!(i, block_at(x.add(i)), [*y; BLOCK]);
                    }
                    for i in whole..n {
                        let ($x, $y) = (*x.add(i * x_step), *y.add(i * y_step));
                        *out.add(i) = $e;
                    }
                }
            }
        }
        // SAFETY: the promise is that of `Code::run`.
        unsafe fn f(isa: Isa, x: Source, y: Source, out: *mut u8, n: usize) {
            isa.run(Loop(x, y, out.cast(), n));
        }
        Code::Map2(f, Pace::Vector)
    }};
}
pub(super) use map2;

/// # Safety
/// `p` must be readable for a block.
#[inline(always)]
pub(super) unsafe fn block_at<T: Copy, const BLOCK: usize>(p: *const T) -> [T; BLOCK] {
    // SAFETY: the caller's promise; an array is aligned as its elements are.
    unsafe { p.cast::<[T; BLOCK]>().read() }
}

/// `out[i]` is `x[i]` where `c[i]` is not 0, else `y[i]`, of elements of `size` bytes.
///
/// # Safety
/// As [`Code::run`](super::instr::Code::run).
pub(super) unsafe fn select(isa: Isa, size: usize, [c, x, y]: [Source; 3], out: *mut u8, n: usize) {
    sized!(size, T => isa.run(Select::<T, { block_of::<T, u8>() }> { c, x, y, out: out.cast(), n }));
}

struct Select<T, const BLOCK: usize> {
    c: Source,
    x: Source,
    y: Source,
    out: *mut T,
    n: usize,
}

impl<T: Copy + Default, const BLOCK: usize> Kernel for Select<T, BLOCK> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Select { c, x: Source { ptr: x, step: x_step }, y: Source { ptr: y, step: y_step }, out, n } =
            self;
        let (x, y) = (x.cast::<T>(), y.cast::<T>());
        // One condition for all is rare.
        let whole = if c.step == 1 { n - n % BLOCK } else { 0 };
        // SAFETY: the callers of `Code::run` promise the memory; a block is within `n` elements.
        unsafe {
            macro_rules! blocks {
                ($i:ident, $xs:expr, $ys:expr) => {
                    for $i in (0..whole).step_by(BLOCK) {
                        let (cs, xs, ys): ([u8; BLOCK], [T; BLOCK], [T; BLOCK]) =
                            (block_at(c.ptr.add($i)), $xs, $ys);
                        let mut results = [T::default(); BLOCK];
                        for k in 0..BLOCK {
                            results[k] = if cs[k] != 0 { xs[k] } else { ys[k] };
                        }
                        out.add($i).cast::<[T; BLOCK]>().write(results);
                    }
                };
            }
            match (x_step, y_step) {
                (0, 0) => blocks!(i, [*x; BLOCK], [*y; BLOCK]),
                (0, _) => blocks!(i, [*x; BLOCK], block_at(y.add(i))),
                (_, 0) => blocks!(i, block_at(x.add(i)), [*y; BLOCK]),
                _ => blocks!(i, block_at(x.add(i)), block_at(y.add(i))),
            }
            for i in whole..n {
                let (a, b) = (*x.add(i * x_step), *y.add(i * y_step));
                *out.add(i) = if *c.ptr.add(i * c.step) != 0 { a } else { b };
            }
        }
    }
}

/// f32 to i64, towards zero; 0 for NaN, and the nearest i64 for what is beyond them.
///
/// # Safety
/// As [`Code::run`](super::instr::Code::run).
pub(super) unsafe fn to_i64(isa: Isa, x: Source, out: *mut u8, n: usize) {
    isa.run(ToI64 { x: x.ptr.cast(), out: out.cast(), n });
}

struct ToI64 {
    x: *const f32,
    out: *mut i64,
    n: usize,
}

impl Kernel for ToI64 {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let whole = self.n - self.n % STRETCH;
        // SAFETY: the callers of `Code::run` promise the memory, which overlaps no operand of another size; stretches are within `n`.
        unsafe {
            for i in (0..whole).step_by(STRETCH) {
                to_i64_stretch(&*self.x.add(i).cast(), &mut *self.out.add(i).cast());
            }
            for i in whole..self.n {
                *self.out.add(i) = *self.x.add(i) as i64;
            }
        }
    }
}

/// Elements that are looked at together, and then converted together.
const STRETCH: usize = 64;

#[inline(always)]
fn to_i64_stretch(xs: &[f32; STRETCH], results: &mut [i64; STRETCH]) {
    const BEYOND_I32: f32 = (1u64 << 31) as f32;
    // Every instruction set converts to i32 in vectors, few to i64.
    if xs.iter().fold(true, |all, x| all & (x.abs() < BEYOND_I32)) {
        for (result, x) in results.iter_mut().zip(xs) {
            // SAFETY: the number is within the range of an i32, and so none of those that are not.
            *result = i64::from(unsafe { x.to_int_unchecked::<i32>() });
        }
    } else {
        saturated(xs, results);
    }
}

/// A call of its own: between vectors, the compiler would do this for all blocks and choose afterwards.
#[cold]
#[inline(never)]
fn saturated(xs: &[f32], results: &mut [i64]) {
    for (result, &x) in results.iter_mut().zip(xs) {
        *result = x as i64;
    }
}
