//! Functions of a few instructions, which kernels apply to results that are still in registers.

use rlx_math::{clip, hard_swish};

use super::{Function, Unary};
use crate::gemm::Packed;
use crate::simd::Simd;

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Light {
    /// min(max(x, lo), hi).
    Bounds { lo: f32, hi: f32 },
    /// x·min(max(x/6 + 1/2, 0), 1).
    HardSwish,
    /// x where x ≥ 0, else α·x.
    LeakyRelu { alpha: f32 },
}

impl Light {
    /// The function as one of these.
    #[inline(always)]
    pub(crate) fn of(function: Unary) -> Option<Light> {
        match function {
            Unary::Function(Function::HardSwish) => Some(Light::HardSwish),
            Unary::LeakyRelu { alpha } => Some(Light::LeakyRelu { alpha }),
            _ => bounds(function).map(|(lo, hi)| Light::Bounds { lo, hi }),
        }
    }

    /// Applies the function to vectors of sums, which are rounded to `T` first, and by the caller once more when they are written.
    #[inline(always)]
    pub(crate) fn apply<S: Simd, T: Packed>(self, s: S, vectors: &mut [S::F]) {
        // Which one is asked once, not for each vector. (Loops: a closure would be a function without the instruction set.)
        match self {
            // A sum is within a bound if what it is rounded to is, or both are rounded to the same number: once is enough.
            Light::Bounds { lo, hi } => {
                for x in vectors {
                    *x = clip(s, *x, lo, hi);
                }
            }
            Light::HardSwish => {
                for x in vectors {
                    *x = hard_swish(s, T::round_sum(s, *x));
                }
            }
            Light::LeakyRelu { alpha } => {
                for x in vectors {
                    *x = leaky_relu(s, T::round_sum(s, *x), alpha);
                }
            }
        }
    }
}

/// x where x ≥ 0, else α·x.
#[inline(always)]
pub(super) fn leaky_relu<S: Simd>(s: S, x: S::F, alpha: f32) -> S::F {
    s.select(s.lt(x, s.zero()), s.mul(x, s.splat(alpha)), x)
}

/// The smallest and the largest result of a function that does nothing else.
#[inline(always)]
pub(crate) fn bounds(function: Unary) -> Option<(f32, f32)> {
    match function {
        Unary::Relu => Some((0.0, f32::INFINITY)),
        Unary::Clip { lo, hi } => Some((lo, hi)),
        _ => None,
    }
}
