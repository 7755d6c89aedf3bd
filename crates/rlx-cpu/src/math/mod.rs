//! Vector functions of f32, written once over [`Simd`].
//!
//! Each function states its largest error in units in the last place (ULP) where the processor fuses
//! multiply and add; [`Portable`](crate::simd::Portable) may be one or two ULP worse. NaN gives NaN,
//! infinities and denormals are handled. [`Unary`] lists them for callers that pick one at run time.
//!
//! ```
//! use rlx_cpu::{isa::Isa, math::{self, Unary}};
//! let mut x = [0.0f32, 1.0];
//! math::apply_in_place(Isa::detect(), Unary::Exp, &mut x);
//! assert_eq!(x, [1.0, std::f32::consts::E]);
//! ```

mod erf;
mod exp;
mod pow;
mod quantise;
#[cfg(test)]
mod tests;
mod trig;

pub use erf::{erf, gelu, gelu_tanh};
pub use exp::{exp, log, sigmoid, silu, softplus, tanh};
pub use pow::{pow, pow_slices};
pub use quantise::Quantiser;
pub use trig::{cos, sin};

use crate::isa::{Isa, Kernel};
use crate::simd::{LANES, Simd};

/// A function of one f32.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unary {
    /// eˣ.
    Exp,
    /// The natural logarithm; NaN below zero.
    Log,
    /// The error function.
    Erf,
    /// The hyperbolic tangent.
    Tanh,
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
    /// x · Φ(x), by the error function.
    Gelu,
    /// x · Φ(x), approximated by a hyperbolic tangent.
    GeluTanh,
    /// x · sigmoid(x).
    Silu,
    /// log(1 + eˣ).
    Softplus,
    /// The sine.
    Sin,
    /// The cosine.
    Cos,
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
    /// x · min(max(x/6 + 1/2, 0), 1).
    HardSwish,
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

/// `min(max(x, lo), hi)`; NaN stays NaN.
#[inline(always)]
pub fn clip<S: Simd>(s: S, x: S::F, lo: f32, hi: f32) -> S::F {
    // The raw operations return their second operand on NaN, which is always `x` here.
    s.min_raw(s.splat(hi), s.max_raw(s.splat(lo), x))
}

#[inline(always)]
fn hard_sigmoid<S: Simd>(s: S, x: S::F, alpha: f32, beta: f32) -> S::F {
    clip(s, s.mul_add(x, s.splat(alpha), s.splat(beta)), 0.0, 1.0)
}

/// A function as a type, so that each gets a loop compiled for it alone.
trait Function: Copy {
    fn eval<S: Simd>(self, s: S, x: S::F) -> S::F;
}

/// Says once what each function of [`Unary`] computes; makes its type, its loop and [`apply_vector`].
macro_rules! functions {
    ($($name:ident $({ $($field:ident),* })? |$s:ident, $x:ident| $body:expr;)*) => {
        $(
            #[derive(Clone, Copy)]
            struct $name { $($($field: f32),*)? }
            impl Function for $name {
                #[inline(always)]
                fn eval<S: Simd>(self, $s: S, $x: S::F) -> S::F {
                    $(let Self { $($field),* } = self;)?
                    $body
                }
            }
        )*

        /// Applies `op` to one vector.
        ///
        /// All functions are compiled into the place where this is called; for many elements see [`apply`].
        #[inline(always)]
        pub fn apply_vector<S: Simd>(s: S, op: Unary, x: S::F) -> S::F {
            match op {
                $(Unary::$name $({ $($field),* })? => $name { $($($field),*)? }.eval(s, x),)*
            }
        }

        impl Kernel for Apply {
            type Output = ();
            #[inline(always)]
            fn run<S: Simd>(self, s: S) {
                match self.op {
                    $(Unary::$name $({ $($field),* })? => {
                        s.enter(Each { f: $name { $($($field),*)? }, of: self })
                    })*
                }
            }
        }
    };
}

functions! {
    Exp |s, x| exp(s, x);
    Log |s, x| log(s, x);
    Erf |s, x| erf(s, x);
    Tanh |s, x| tanh(s, x);
    Sigmoid |s, x| sigmoid(s, x);
    Gelu |s, x| gelu(s, x);
    GeluTanh |s, x| gelu_tanh(s, x);
    Silu |s, x| silu(s, x);
    Softplus |s, x| softplus(s, x);
    Sin |s, x| sin(s, x);
    Cos |s, x| cos(s, x);
    Sqrt |s, x| s.sqrt(x);
    Rsqrt |s, x| s.div(s.splat(1.0), s.sqrt(x));
    Recip |s, x| s.div(s.splat(1.0), x);
    Relu |s, x| s.max_raw(s.zero(), x);
    LeakyRelu { alpha } |s, x| s.select(s.lt(x, s.zero()), s.mul(x, s.splat(alpha)), x);
    Clip { lo, hi } |s, x| clip(s, x, lo, hi);
    HardSigmoid { alpha, beta } |s, x| hard_sigmoid(s, x, alpha, beta);
    HardSwish |s, x| s.mul(x, hard_sigmoid(s, x, 1.0 / 6.0, 0.5));
    Abs |s, x| s.abs(x);
    Neg |s, x| s.neg(x);
    Round |s, x| s.round(x);
    Floor |s, x| s.floor(x);
    Ceil |s, x| s.ceil(x);
}

/// A function over memory, chosen at run time.
struct Apply {
    op: Unary,
    src: *const f32,
    dst: *mut f32,
    len: usize,
}

/// The loop of one function.
struct Each<F> {
    f: F,
    of: Apply,
}

impl<F: Function> Kernel for Each<F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Apply { src, dst, len, .. } = self.of;
        let mut i = 0;
        while i < len {
            let n = (len - i).min(LANES);
            // SAFETY: `apply` was promised `len` readable and writable elements, and i + n ≤ len.
            unsafe {
                let x = s.load_upto(src.add(i), n);
                s.store_upto(dst.add(i), n, self.f.eval(s, x));
            }
            i += n;
        }
    }
}

/// `dst[i] = op(src[i])` for `i < len`.
///
/// # Safety
/// `src` must be readable and `dst` writable for `len` elements; they may be the same, but must not
/// overlap otherwise.
pub unsafe fn apply(isa: Isa, op: Unary, src: *const f32, dst: *mut f32, len: usize) {
    isa.run(Apply { op, src, dst, len });
}

/// [`apply`] from within a kernel.
///
/// # Safety
/// As [`apply`].
#[inline(always)]
pub(crate) unsafe fn apply_within<S: Simd>(s: S, op: Unary, src: *const f32, dst: *mut f32, len: usize) {
    s.enter_plain(Apply { op, src, dst, len });
}

/// `x[i] = op(x[i])`.
pub fn apply_in_place(isa: Isa, op: Unary, x: &mut [f32]) {
    let p = x.as_mut_ptr();
    // SAFETY: both ranges are the slice itself.
    unsafe { apply(isa, op, p, p, x.len()) }
}
