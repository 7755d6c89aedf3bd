//! What an approximation is written in.

use crate::table::Function;

/// Arithmetic on one or more f32 at once: a vector of a processor, one number ([`crate::Scalar`]), or the values of a
/// kernel that is being written.
///
/// Floating-point comparisons are false on NaN. Lanes are independent. `self` is a token: the proof that the instruction
/// set is there, or the place where instructions are written to.
// `self` is the token, in conversions too.
#[allow(clippy::wrong_self_convention)]
pub trait Lanes: Copy {
    /// The f32.
    type F: Copy;
    /// As many i32.
    type I: Copy;
    /// As many booleans.
    type M: Copy;

    /// Whether [`mul_add`](Lanes::mul_add) rounds once.
    const FUSED: bool;

    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::F;
    /// `a + b`.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a − b`.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a · b`.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a · b + c`, rounded once where [`FUSED`](Lanes::FUSED).
    fn mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `c − a · b`, rounded once where [`FUSED`](Lanes::FUSED).
    fn neg_mul_add(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The square root, correctly rounded.
    fn sqrt(self, a: Self::F) -> Self::F;
    /// The smaller one; `b` if either is NaN.
    fn min_raw(self, a: Self::F, b: Self::F) -> Self::F;
    /// The larger one; `b` if either is NaN.
    fn max_raw(self, a: Self::F, b: Self::F) -> Self::F;
    /// Rounds to the nearest integer, ties to even.
    fn round(self, a: Self::F) -> Self::F;
    /// Rounds towards −∞.
    fn floor(self, a: Self::F) -> Self::F;
    /// Rounds towards +∞.
    fn ceil(self, a: Self::F) -> Self::F;
    /// Rounds towards zero.
    fn trunc(self, a: Self::F) -> Self::F;

    /// `a < b`.
    fn lt(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a ≤ b`.
    fn le(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a = b`.
    fn eq(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a` where `m`, else `b`.
    fn select(self, m: Self::M, a: Self::F, b: Self::F) -> Self::F;
    /// Both.
    fn mask_and(self, a: Self::M, b: Self::M) -> Self::M;
    /// Either.
    fn mask_or(self, a: Self::M, b: Self::M) -> Self::M;
    /// The opposite.
    fn mask_not(self, a: Self::M) -> Self::M;

    /// All lanes `x`.
    fn splat_i(self, x: i32) -> Self::I;
    /// The integer value of integral floats within i32's range.
    fn to_int(self, a: Self::F) -> Self::I;
    /// The nearest float.
    fn from_int(self, a: Self::I) -> Self::F;
    /// The same bits as integers.
    fn bits(self, a: Self::F) -> Self::I;
    /// The same bits as floats.
    fn from_bits(self, a: Self::I) -> Self::F;
    /// `a + b`, wrapping.
    fn add_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// `a − b`, wrapping.
    fn sub_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise and.
    fn and_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise or.
    fn or_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise exclusive or.
    fn xor_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Shifts left.
    fn shl_i<const N: i32>(self, a: Self::I) -> Self::I;
    /// Shifts right, keeping the sign.
    fn shr_i<const N: i32>(self, a: Self::I) -> Self::I;
    /// `a = b`.
    fn eq_i(self, a: Self::I, b: Self::I) -> Self::M;

    /// `a · 2ⁿ` for integral `n` in −200 … 200, with overflow to ±∞ and gradual underflow; rounds once if
    /// 2⁻²⁰ ≤ |a| ≤ 2²⁰.
    fn scale2(self, a: Self::F, n: Self::F) -> Self::F;

    /// `f` of every lane by scalar code, unless all lanes are in `fast`: for arguments that no short sequence of f32
    /// operations gets right. `None` where all are, and where there is no scalar code.
    #[inline(always)]
    fn by_scalar_code(self, fast: Self::M, x: Self::F, f: fn(f32) -> f32) -> Option<Self::F> {
        let _ = (fast, x, f);
        None
    }

    /// For each lane the number of a table that the lowest five bits of `place` say; `None` where no instruction does that.
    #[inline(always)]
    fn look_up(self, table: &[f32; 32], place: Self::I) -> Option<Self::F> {
        let _ = (table, place);
        None
    }

    /// The device's own `f(x)`, where that is to be used instead of the approximation. Formulas of other functions ask for
    /// it ([`crate::Form::Formula`]).
    #[inline(always)]
    fn native(self, f: Function, x: Self::F) -> Option<Self::F> {
        let _ = (f, x);
        None
    }

    /// All lanes a constant that f32 does not have exactly, for formulas that are computed in f64 too.
    #[inline(always)]
    fn constant(self, x: f64) -> Self::F {
        self.splat(x as f32)
    }

    /// All lanes zero.
    #[inline(always)]
    fn zero(self) -> Self::F {
        self.splat(0.0)
    }
    /// `|a|`, also of NaN.
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        self.from_bits(self.and_i(self.bits(a), self.splat_i(i32::MAX)))
    }
    /// `−a`, also of zero and NaN.
    #[inline(always)]
    fn neg(self, a: Self::F) -> Self::F {
        self.from_bits(self.xor_i(self.bits(a), self.splat_i(i32::MIN)))
    }
    /// The magnitude of `a` with the sign of `b`.
    #[inline(always)]
    fn copysign(self, a: Self::F, b: Self::F) -> Self::F {
        let sign = self.splat_i(i32::MIN);
        let mag = self.and_i(self.bits(a), self.splat_i(i32::MAX));
        self.from_bits(self.or_i(mag, self.and_i(self.bits(b), sign)))
    }
    /// Where a lane is NaN.
    #[inline(always)]
    fn is_nan(self, a: Self::F) -> Self::M {
        self.mask_not(self.eq(a, a))
    }
    /// The larger one; NaN if either is NaN.
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        self.select(self.is_nan(a), a, self.max_raw(a, b))
    }
    /// The smaller one; NaN if either is NaN.
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        self.select(self.is_nan(a), a, self.min_raw(a, b))
    }
}

/// `((c₀·x + c₁)·x + …)`, by Horner's rule.
#[inline(always)]
pub fn polynomial<L: Lanes, const N: usize>(l: L, x: L::F, coefficients: [f32; N]) -> L::F {
    let mut sum = l.splat(coefficients[0]);
    let mut i = 1;
    while i < N {
        sum = l.mul_add(sum, x, l.splat(coefficients[i]));
        i += 1;
    }
    sum
}
