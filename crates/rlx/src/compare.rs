//! The difference between two tensors: absolute, relative, and in units in the last place (ULP).
//!
//! ```
//! use rlx::compare::{Tolerance, compare};
//! use rlx_ir::{ConstData, DType, Value};
//! let want = Value::float(DType::F32, &[2], vec![1.0, 2.0]);
//! let got = ConstData::from_f32(&[2], &[1.0, 2.0000002]).unwrap();
//! let d = compare(&want, &got, Tolerance::default());
//! assert!(d.ok && d.max_ulp == 1.0);
//! ```

mod outputs;

use rlx_ir::tensor::Elements;
use rlx_ir::{ConstData, DType, Value};

pub use outputs::{OutputDifference, Worst, compare_outputs};

/// The tolerance: `|got - want| ≤ rtol·|want| + atol·max|want| + floor`, and next to 0 a few of the type's smallest steps
/// (unless `atol` is 0). Integers must be equal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Relative to the element.
    pub rtol: f64,
    /// Relative to the largest magnitude of the tensor.
    pub atol: f64,
    /// Absolute, whatever the tensor's magnitude.
    pub floor: f64,
}

impl Default for Tolerance {
    /// The tolerance for f32 arithmetic in another order.
    fn default() -> Self {
        Tolerance { rtol: 1e-3, atol: 1e-4, floor: 0.0 }
    }
}

impl Tolerance {
    /// The accuracy of arithmetic that rounds to `dtype`: some units in the last place, of the element and of the largest one.
    pub fn of(dtype: DType) -> Tolerance {
        let both = |unit| Tolerance { rtol: unit, atol: unit, floor: 0.0 };
        match fraction_bits(dtype) {
            23.. => Tolerance::default(),
            10.. => both(1e-2),
            7.. => both(5e-2),
            _ => both(0.25),
        }
    }
}

/// The tolerance per tensor: by the type that the tensor was rounded to, unless a number is given.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tolerances {
    /// [`Tolerance::rtol`] of every tensor, whatever its type.
    pub rtol: Option<f64>,
    /// [`Tolerance::atol`] of every tensor, whatever its type.
    pub atol: Option<f64>,
    /// [`Tolerance::floor`] of every tensor.
    pub floor: f64,
    /// The type in which the device computes, if it is narrower than the tensors' own.
    pub asked: Option<DType>,
}

impl From<Tolerance> for Tolerances {
    fn from(t: Tolerance) -> Self {
        Tolerances { rtol: Some(t.rtol), atol: Some(t.atol), floor: t.floor, asked: None }
    }
}

impl Tolerances {
    /// That of a tensor that was rounded to `dtype`.
    pub fn of(&self, dtype: DType) -> Tolerance {
        let usual = Tolerance::of(self.asked.map_or(dtype, |asked| shorter(asked, dtype)));
        let (rtol, atol) = (self.rtol.unwrap_or(usual.rtol), self.atol.unwrap_or(usual.atol));
        Tolerance { rtol, atol, floor: self.floor }
    }
}

/// The difference between a tensor and its expected value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// Whether every element is within the tolerance.
    pub ok: bool,
    /// The largest absolute error.
    pub max_abs: f64,
    /// The largest error relative to its element (except elements of 0).
    pub max_rel: f64,
    /// The largest error in units in the last place of the tensor's type.
    pub max_ulp: f64,
    /// The mean error in units in the last place.
    pub mean_ulp: f64,
    /// The element with the largest absolute error.
    pub worst: usize,
    /// How many elements were compared.
    pub count: usize,
    /// How many elements are infinite or NaN where they should be finite.
    pub overflowed: usize,
    /// The cosine of the angle between both tensors, over the elements that are finite in both; 1 for zeros.
    pub cosine: f64,
}

impl Difference {
    /// No difference over no elements.
    pub const NONE: Difference = Difference {
        ok: true,
        max_abs: 0.0,
        max_rel: 0.0,
        max_ulp: 0.0,
        mean_ulp: 0.0,
        worst: 0,
        count: 0,
        overflowed: 0,
        cosine: 1.0,
    };

    /// The combination of both.
    pub fn merge(self, other: Difference) -> Difference {
        let count = self.count + other.count;
        let sum = self.mean_ulp * self.count as f64 + other.mean_ulp * other.count as f64;
        Difference {
            ok: self.ok && other.ok,
            max_abs: self.max_abs.max(other.max_abs),
            max_rel: self.max_rel.max(other.max_rel),
            max_ulp: self.max_ulp.max(other.max_ulp),
            mean_ulp: if count == 0 { 0.0 } else { sum / count as f64 },
            worst: if other.max_abs > self.max_abs { other.worst } else { self.worst },
            count,
            overflowed: self.overflowed + other.overflowed,
            cosine: self.cosine.min(other.cosine),
        }
    }
}

/// Compares a tensor with its expected value.
pub fn compare(want: &Value, got: &ConstData, tolerance: Tolerance) -> Difference {
    let failed = Difference { ok: false, max_abs: f64::INFINITY, ..Difference::NONE };
    if want.dtype != got.dtype() || want.dims != got.dims() {
        return failed;
    }
    match (&want.elements, &got.value().elements) {
        (Elements::Float(want_all), Elements::Float(got_all)) => {
            floats(want.dtype, want_all, got_all, tolerance)
        }
        (Elements::Int(want_all), Elements::Int(got_all)) => integers(want_all, got_all),
        _ => failed,
    }
}

/// Integers must be equal.
fn integers(want: &[i128], got: &[i128]) -> Difference {
    let pairs = || want.iter().zip(got).map(|(&w, &g)| (w as f64, g as f64));
    let (worst, max_abs) = largest(pairs().map(|(w, g)| (w - g).abs()));
    let relative = |(w, g): (f64, f64)| if w == 0.0 { 0.0 } else { (w - g).abs() / w.abs() };
    let max_rel = pairs().map(relative).fold(0.0, f64::max);
    let cosine = cosine(pairs());
    Difference { ok: want == got, max_abs, max_rel, worst, count: want.len(), cosine, ..Difference::NONE }
}

fn cosine(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    let finite = pairs.filter(|(w, g)| w.is_finite() && g.is_finite());
    let (ww, gg, wg) =
        finite.fold((0.0, 0.0, 0.0), |(ww, gg, wg), (w, g)| (ww + w * w, gg + g * g, wg + w * g));
    match (ww > 0.0, gg > 0.0) {
        (true, true) => (wg / (ww.sqrt() * gg.sqrt())).clamp(-1.0, 1.0),
        (false, false) => 1.0,
        _ => 0.0,
    }
}

fn largest(errors: impl Iterator<Item = f64>) -> (usize, f64) {
    errors.enumerate().fold((0, 0.0), |best, (i, e)| if e > best.1 { (i, e) } else { best })
}

fn floats(dtype: DType, want: &[f64], got: &[f64], tolerance: Tolerance) -> Difference {
    let scale = want.iter().filter(|w| w.is_finite()).fold(0.0f64, |m, w| m.max(w.abs()));
    let mut d = Difference { count: want.len(), ..Difference::NONE };
    let mut ulps = 0.0;
    // Near 0 the type's numbers are apart by the same distance, however small they are.
    let floor = if tolerance.atol > 0.0 { 4.0 * ulp_size(dtype, 0.0) } else { 0.0 };
    for (i, (&w, &g)) in want.iter().zip(got).enumerate() {
        if w == g || (w.is_nan() && g.is_nan()) {
            continue;
        }
        let finite = w.is_finite() && g.is_finite();
        d.overflowed += usize::from(w.is_finite() && !g.is_finite());
        let abs = if finite { (g - w).abs() } else { f64::INFINITY };
        d.ok &= finite && abs <= tolerance.rtol * w.abs() + tolerance.atol * scale + floor + tolerance.floor;
        if abs > d.max_abs {
            (d.max_abs, d.worst) = (abs, i);
        }
        if w != 0.0 {
            d.max_rel = d.max_rel.max(abs / w.abs());
        }
        let ulp = if finite { abs / ulp_size(dtype, w) } else { f64::INFINITY };
        d.max_ulp = d.max_ulp.max(ulp);
        ulps += ulp;
    }
    d.cosine = cosine(want.iter().copied().zip(got.iter().copied()));
    if !want.is_empty() {
        d.mean_ulp = ulps / want.len() as f64;
    }
    d
}

/// Bits of the fraction, and the exponent of the smallest normal number.
fn format_of(dtype: DType) -> (i32, i32) {
    match dtype {
        DType::F64 => (52, -1022),
        DType::F16 => (10, -14),
        DType::BF16 => (7, -126),
        DType::F8E4M3FN | DType::F8E4M3FNUZ => (3, -6),
        DType::F8E5M2 | DType::F8E5M2FNUZ => (2, -14),
        DType::F4E2M1 => (1, 0),
        DType::F8E8M0 => (0, -127),
        _ => (23, -126),
    }
}

fn fraction_bits(dtype: DType) -> i32 {
    format_of(dtype).0
}

/// The coarser of two float types.
pub fn shorter(a: DType, b: DType) -> DType {
    if fraction_bits(a) < fraction_bits(b) { a } else { b }
}

/// The distance between neighbouring numbers of `dtype` around `x`.
fn ulp_size(dtype: DType, x: f64) -> f64 {
    let (fraction, min_exponent) = format_of(dtype);
    let exponent = if x == 0.0 { min_exponent } else { (x.abs().log2().floor() as i32).max(min_exponent) };
    2f64.powi(exponent - fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(values: &[f32]) -> ConstData {
        ConstData::from_f32(&[values.len()], values).unwrap()
    }

    fn want(values: &[f64]) -> Value {
        Value::float(DType::F32, &[values.len()], values.to_vec())
    }

    #[test]
    fn infinities_and_nans_must_agree() {
        let inf = f64::INFINITY;
        let same = compare(
            &want(&[f64::NAN, inf, -inf]),
            &f32s(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]),
            Tolerance::default(),
        );
        assert_eq!((same.ok, same.max_abs), (true, 0.0));
        for got in [f32s(&[0.0, f32::INFINITY]), f32s(&[f32::NAN, 1.0])] {
            assert!(!compare(&want(&[f64::NAN, inf]), &got, Tolerance::default()).ok);
        }
    }

    #[test]
    fn small_elements_are_measured_by_the_largest() {
        let d = compare(&want(&[1000.0, 0.0]), &f32s(&[1000.0, 0.05]), Tolerance::default());
        assert!(d.ok && d.worst == 1);
        assert!(!compare(&want(&[1.0, 0.0]), &f32s(&[1.0, 0.05]), Tolerance::default()).ok);
    }

    #[test]
    fn shapes_and_types_must_agree_and_integers_be_equal() {
        let ids = Value::int(DType::I64, &[2], vec![1, 2]);
        assert!(compare(&ids, &ConstData::from_i64(&[2], &[1, 2]).unwrap(), Tolerance::default()).ok);
        assert!(!compare(&ids, &ConstData::from_i64(&[2], &[1, 3]).unwrap(), Tolerance::default()).ok);
        assert!(!compare(&ids, &ConstData::from_i64(&[1, 2], &[1, 2]).unwrap(), Tolerance::default()).ok);
        assert!(!compare(&ids, &f32s(&[1.0, 2.0]), Tolerance::default()).ok);
    }

    #[test]
    fn each_type_has_its_own_tolerance_and_a_given_number_counts_for_all() {
        let by_type = Tolerances::default();
        assert_eq!(by_type.of(DType::F32), Tolerance::default());
        assert!(by_type.of(DType::BF16).rtol > by_type.of(DType::F16).rtol);
        let asked = Tolerances { asked: Some(DType::F16), ..by_type };
        assert_eq!(asked.of(DType::F32), Tolerance::of(DType::F16));
        assert_eq!(asked.of(DType::BF16), Tolerance::of(DType::BF16));
        let given = Tolerances { rtol: Some(0.5), ..asked };
        assert_eq!(given.of(DType::F32), Tolerance { rtol: 0.5, ..Tolerance::of(DType::F16) });
        let exact = Tolerance { rtol: 0.0, atol: 0.0, floor: 0.0 };
        assert_eq!(Tolerances::from(exact).of(DType::BF16), exact);
    }

    #[test]
    fn subnormal_numbers_are_measured_by_their_distance() {
        let tiny = 2f64.powi(-24);
        let want = Value::float(DType::F16, &[1], vec![2.0 * tiny]);
        let got = |x: f64| Value::float(DType::F16, &[1], vec![x]).to_const();
        assert!(compare(&want, &got(3.0 * tiny), Tolerance::of(DType::F16)).ok);
        assert!(!compare(&want, &got(9.0 * tiny), Tolerance::of(DType::F16)).ok);
        assert!(!compare(&want, &got(3.0 * tiny), Tolerance { rtol: 0.0, atol: 0.0, floor: 0.0 }).ok);
    }

    #[test]
    fn units_in_the_last_place_follow_the_type() {
        assert_eq!(ulp_size(DType::F32, 1.0), f64::from(f32::EPSILON));
        assert_eq!(ulp_size(DType::F32, 0.0), 2f64.powi(-149));
        assert_eq!(ulp_size(DType::F16, 1.5), 2f64.powi(-10));
    }
}
