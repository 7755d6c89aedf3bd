//! Functions of f32 over memory, in vectors; 16-bit floats are widened a block at a time.
//!
//! The elementary functions are those of [`rlx_math`], compiled for each instruction set: what they compute and how far they
//! may be off is said there. [`Portable`](crate::simd::Portable) rounds a multiply-add twice. [`Unary`] lists them, with
//! what takes an instruction or two, for callers that pick one at run time.
//!
//! ```
//! use rlx_cpu::{isa::Isa, math::{self, Function, Unary}};
//! let mut x = [0.0f32, 1.0];
//! math::apply_in_place(Isa::detect(), Unary::Function(Function::Exp), &mut x);
//! assert_eq!(x, [1.0, std::f32::consts::E]);
//! ```

mod fixed_point;
mod light;
mod pow;
mod quantise;
pub(crate) mod small_floats;
#[cfg(test)]
mod tests;

pub(crate) use fixed_point::{FixedLinear, FixedSum};
pub(crate) use light::{Light, bounds};
pub use pow::{pow, pow_slices};
pub use quantise::{Dequantiser, Quantiser};
pub use rlx_math::{Function, clip, exp, exp_normal, exp_short, log};

use std::marker::PhantomData;

use rlx_math::{Approximation, OnCpu, Visitor};

use crate::gemm::Packed;
use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// A function of one f32.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unary {
    /// An elementary function.
    Function(Function),
    /// The square root.
    Sqrt,
    /// 1 / √x.
    Rsqrt,
    /// 1 / x.
    Recip,
    /// max(x, 0).
    Relu,
    /// x where x ≥ 0, else α·x.
    LeakyRelu {
        /// The slope below zero.
        alpha: f32,
    },
    /// min(max(x, lo), hi).
    Clip {
        /// The smallest result.
        lo: f32,
        /// The largest result.
        hi: f32,
    },
    /// min(max(α·x + β, 0), 1).
    HardSigmoid {
        /// The slope.
        alpha: f32,
        /// The value at zero.
        beta: f32,
    },
    /// |x|.
    Abs,
    /// −x.
    Neg,
    /// The nearest integer, ties to even.
    Round,
    /// The next integer below.
    Floor,
    /// The next integer above.
    Ceil,
}

#[inline(always)]
fn hard_sigmoid<S: Simd>(s: S, x: S::F, alpha: f32, beta: f32) -> S::F {
    clip(s, s.mul_add(x, s.splat(alpha), s.splat(beta)), 0.0, 1.0)
}

/// A function as a type, so that each gets a loop compiled for it alone.
trait Lanewise: Copy {
    fn eval<S: Simd>(self, s: S, x: S::F) -> S::F;
}

/// An elementary function.
#[derive(Clone, Copy)]
struct Elementary<A>(PhantomData<A>);

impl<A: Approximation> Lanewise for Elementary<A> {
    #[inline(always)]
    fn eval<S: Simd>(self, s: S, x: S::F) -> S::F {
        A::lanes(s, x)
    }
}

/// Runs the loop of an elementary function.
struct Enter<S>(S, Apply);

impl<S: Simd> Visitor for Enter<S> {
    type Output = ();
    #[inline(always)]
    fn visit<A: Approximation>(self) {
        self.0.enter(Each { f: Elementary::<A>(PhantomData), of: self.1 })
    }
}

/// Says once what each other function of [`Unary`] computes; makes its type and its loop.
macro_rules! functions {
    ($($name:ident $({ $($field:ident),* })? |$s:ident, $x:ident| $body:expr;)*) => {
        $(
            #[derive(Clone, Copy)]
            struct $name { $($($field: f32),*)? }
            impl Lanewise for $name {
                #[inline(always)]
                fn eval<S: Simd>(self, $s: S, $x: S::F) -> S::F {
                    $(let Self { $($field),* } = self;)?
                    $body
                }
            }
        )*

        impl Kernel for Apply {
            type Output = ();
            #[inline(always)]
            fn run<S: Simd>(self, s: S) {
                match self.op {
                    Unary::Function(Function::Gelu) if self.rounded => s.enter(Each { f: GeluShort, of: self }),
                    Unary::Function(Function::GeluApprox) if self.rounded => {
                        s.enter(Each { f: GeluTanhShort, of: self })
                    }
                    Unary::Function(Function::Silu) if self.rounded => s.enter(Each { f: SiluShort, of: self }),
                    Unary::Function(f) if f.on_cpu() == OnCpu::Double => in_double(self, f.wide()),
                    Unary::Function(f) => f.visit(Enter(s, self)),
                    $(Unary::$name $({ $($field),* })? => {
                        s.enter(Each { f: $name { $($($field),*)? }, of: self })
                    })*
                }
            }
        }
    };
}

functions! {
    Sqrt |s, x| s.sqrt(x);
    Rsqrt |s, x| s.div(s.splat(1.0), s.sqrt(x));
    Recip |s, x| s.div(s.splat(1.0), x);
    Relu |s, x| s.max_raw(s.zero(), x);
    LeakyRelu { alpha } |s, x| light::leaky_relu(s, x, alpha);
    Clip { lo, hi } |s, x| clip(s, x, lo, hi);
    HardSigmoid { alpha, beta } |s, x| hard_sigmoid(s, x, alpha, beta);
    Abs |s, x| s.abs(x);
    Neg |s, x| s.neg(x);
    Round |s, x| s.round(x);
    Floor |s, x| s.floor(x);
    Ceil |s, x| s.ceil(x);
}

/// Functions for results that are rounded to 16 bits.
macro_rules! short {
    ($($name:ident = $function:ident;)*) => {$(
        #[derive(Clone, Copy)]
        struct $name;
        impl Lanewise for $name {
            #[inline(always)]
            fn eval<S: Simd>(self, s: S, x: S::F) -> S::F {
                rlx_math::$function(s, x)
            }
        }
    )*};
}

short! {
    GeluShort = gelu_short;
    GeluTanhShort = gelu_tanh_short;
    SiluShort = silu_short;
}

/// A function over memory, chosen at run time: over all lines in one call, since to choose and to load constants takes as long as some vectors.
struct Apply {
    op: Unary,
    src: *const f32,
    dst: *mut f32,
    /// Elements of a line, lines, and how far apart they are.
    len: usize,
    lines: usize,
    stride: usize,
    /// Whether results are rounded to 16 bits.
    rounded: bool,
    /// Whether they are stored past the caches.
    past: bool,
}

/// The function in f64, element by element.
#[inline(never)]
fn in_double(of: Apply, f: fn(f64) -> f64) {
    for line in 0..of.lines {
        for i in line * of.stride..line * of.stride + of.len {
            // SAFETY: `apply` was promised `len` readable and writable elements of each line.
            unsafe { *of.dst.add(i) = f(f64::from(*of.src.add(i))) as f32 };
        }
    }
}

/// The loop of one function.
struct Each<F> {
    f: F,
    of: Apply,
}

impl<F: Lanewise> Kernel for Each<F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Apply { src, dst, len, lines, stride, past, .. } = self.of;
        for line in 0..lines {
            let (src, dst) = (src.wrapping_add(line * stride), dst.wrapping_add(line * stride));
            let whole = len - len % LANES;
            // SAFETY: `apply` was promised `len` readable and writable elements of each line.
            unsafe {
                if past {
                    for i in (0..whole).step_by(LANES) {
                        s.store_non_temporal(dst.add(i), self.f.eval(s, s.load(src.add(i))));
                    }
                } else {
                    for i in (0..whole).step_by(LANES) {
                        s.store(dst.add(i), self.f.eval(s, s.load(src.add(i))));
                    }
                }
                if whole < len {
                    let x = s.load_upto(src.add(whole), len - whole);
                    s.store_upto(dst.add(whole), len - whole, self.f.eval(s, x));
                }
            }
        }
    }
}

/// Elements of 16-bit floats that are widened at a time.
const WIDENED: usize = 256;

/// [`Apply`] to 16-bit floats.
struct ApplyShort<T> {
    op: Unary,
    src: *const T,
    dst: *mut T,
    len: usize,
}

impl<T: Packed> Kernel for ApplyShort<T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut wide = [0.0f32; WIDENED];
        let p = wide.as_mut_ptr();
        for start in (0..self.len).step_by(WIDENED) {
            let len = WIDENED.min(self.len - start);
            // SAFETY: `apply` was promised `len` readable and writable elements; `wide` has room for a block of them.
            unsafe {
                for i in (0..len).step_by(LANES) {
                    let n = (len - i).min(LANES);
                    s.store_upto(p.add(i), n, T::load(s, self.src.add(start + i), n));
                }
                apply_to_widened(s, self.op, p, len);
                for i in (0..len).step_by(LANES) {
                    let n = (len - i).min(LANES);
                    T::store(s, self.dst.add(start + i), n, s.load_upto(p.add(i), n));
                }
            }
        }
    }
}

/// `dst[i] = op(src[i])` for `i < len`, of f32, or of 16-bit floats by way of f32.
///
/// # Safety
/// `src` must be readable and `dst` writable for `len` elements; they may be the same, but must not
/// overlap otherwise.
pub unsafe fn apply<T: Packed>(isa: Isa, op: Unary, src: *const T, dst: *mut T, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { apply_past(isa, op, src, dst, len, false) }
}

/// [`apply`]; results of f32 are stored past the caches if `past`.
///
/// # Safety
/// As [`apply`]. If results go past the caches, `dst` must begin at a line of memory, and nothing may read them before [`fence`](crate::stores::fence).
pub(crate) unsafe fn apply_past<T: Packed>(
    isa: Isa,
    op: Unary,
    src: *const T,
    dst: *mut T,
    len: usize,
    past: bool,
) {
    if const { T::GROUP == 1 } {
        let (src, dst) = (src.cast(), dst.cast());
        isa.run(Apply { op, src, dst, len, lines: 1, stride: 0, rounded: false, past });
    } else {
        T::run(isa, ApplyShort { op, src, dst, len });
    }
}

/// [`apply`] from within a kernel.
///
/// # Safety
/// As [`apply`].
#[inline(always)]
pub(crate) unsafe fn apply_within<S: Simd, T: Packed>(
    s: S,
    op: Unary,
    src: *const T,
    dst: *mut T,
    len: usize,
) {
    if const { T::GROUP == 1 } {
        let (src, dst) = (src.cast(), dst.cast());
        s.enter_plain(Apply { op, src, dst, len, lines: 1, stride: 0, rounded: false, past: false });
    } else {
        ApplyShort { op, src, dst, len }.run(s);
    }
}

/// `x[i] = op(x[i])` of lines of `len` elements that are `stride` apart, from within a kernel.
///
/// # Safety
/// Each line of `x` must be readable and writable.
#[inline(always)]
pub(crate) unsafe fn apply_to_lines<S: Simd>(
    s: S,
    op: Unary,
    x: *mut f32,
    (lines, stride): (usize, usize),
    len: usize,
) {
    s.enter_plain(Apply { op, src: x, dst: x, len, lines, stride, rounded: false, past: false });
}

/// `x[i] = op(x[i])` of 16-bit floats as f32, before they are rounded to 16 bits again, with the bits of [`apply`]: from within a kernel.
///
/// # Safety
/// `x` must be readable and writable for `len` elements.
#[inline(always)]
pub(crate) unsafe fn apply_to_widened<S: Simd>(s: S, op: Unary, x: *mut f32, len: usize) {
    s.enter_plain(Apply { op, src: x, dst: x, len, lines: 1, stride: 0, rounded: true, past: false });
}

/// `x[i] = op(x[i])`.
pub fn apply_in_place(isa: Isa, op: Unary, x: &mut [f32]) {
    let p = x.as_mut_ptr();
    // SAFETY: both ranges are the slice itself.
    unsafe { apply(isa, op, p, p, x.len()) }
}
