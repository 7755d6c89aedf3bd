//! Every function, on one lane and in f64, against the oracle's reference, within the bound it claims.

use rlx_ir::op::Activation;
use rlx_ir::ops::attr::NamedVariant;
use rlx_ir::testing::{exact, function_arguments, worst_ulps};
use rlx_math::{Approximation, Function, Scalar, Visitor, exp, exp_normal, exp_short};

/// The approximation of some numbers, one by one.
struct Each<'a>(&'a [f32]);

impl Visitor for Each<'_> {
    type Output = Vec<f32>;
    fn visit<A: Approximation>(self) -> Vec<f32> {
        self.0.iter().map(|&x| A::lanes(Scalar, x)).collect()
    }
}

fn activation(f: Function) -> Activation {
    Activation::from_name(f.name()).unwrap()
}

#[test]
fn numbers_keep_within_their_bounds() {
    let x = function_arguments(400_000);
    let mut wrong = Vec::new();
    for &f in Function::ALL {
        let bound = f.bounds().separate;
        let (error, at) = worst_ulps(activation(f), &x, &f.visit(Each(&x)), bound.floor, bound.within);
        println!("{:10} {error:6.2} of {:6.2} at {at:e}", f.name(), bound.ulps);
        if error > f64::from(bound.ulps) {
            wrong.push(format!("{}: {error:.2} ULP at {at:e}, claimed are {}", f.name(), bound.ulps));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_functions_in_f64_are_the_references() {
    let x = function_arguments(20_000);
    for &f in Function::ALL {
        for &x in &x {
            let (got, want) = (f.wide()(f64::from(x)), exact(activation(f), f64::from(x)));
            let close = (got - want).abs() <= 2e-13 * want.abs().max(1.0);
            assert!(
                close || got == want || got.is_nan() && want.is_nan(),
                "{f:?}({x:e}) is {want:e}, not {got:e}"
            );
        }
    }
}

#[test]
fn the_short_exponential_has_sixteen_bits() {
    for i in -87_300..=80_000 {
        let x = i as f32 / 1000.0;
        let (got, want) = (f64::from(exp_short(Scalar, x)), f64::from(x).exp());
        assert!((got / want - 1.0).abs() <= 2f64.powi(-16), "e^{x} is {want:e}, not {got:e}");
    }
    assert!(exp_short(Scalar, f32::NAN).is_nan());
}

#[test]
fn exponentials_for_weights_are_never_denormal() {
    for i in -110_000..=80_000 {
        let x = i as f32 / 1000.0;
        let want = if x < -87.33 { 0.0 } else { exp(Scalar, x) };
        assert!(!want.is_subnormal());
        assert_eq!(exp_normal(Scalar, x), want, "{x}");
        assert!(!exp_short(Scalar, x).is_subnormal(), "{x}");
    }
    for x in [-87.35, -100.0, -1e4, f32::MIN, f32::NEG_INFINITY] {
        assert_eq!((exp_normal(Scalar, x), exp_short(Scalar, x)), (0.0, 0.0), "{x}");
    }
    assert!(exp_normal(Scalar, f32::NAN).is_nan());
}

#[test]
fn odd_functions_keep_the_sign_of_zero() {
    use Function as F;
    let odd =
        [F::Expm1, F::Log1p, F::Cbrt, F::Sin, F::Tan, F::Asin, F::Atan, F::Sinh, F::Tanh, F::Asinh, F::Atanh];
    for f in odd.into_iter().chain([F::Erf, F::Erfinv, F::Softsign]) {
        let y = f.visit(Each(&[0.0, -0.0]));
        assert_eq!(y.iter().map(|y| y.to_bits()).collect::<Vec<_>>(), [0, 1 << 31], "{f:?}");
    }
}

#[test]
fn special_values_are_those_of_other_libraries() {
    let inf = f32::INFINITY;
    let one = |f: Function, x: f32| f.visit(Each(&[x]))[0];
    use Function as F;
    for (f, x, y) in [
        (F::Erfinv, 1.0, inf),
        (F::Erfinv, -1.0, -inf),
        (F::Erfinv, 1.5, f32::NAN),
        (F::Expm1, -inf, -1.0),
        (F::Expm1, inf, inf),
        (F::Log1p, -1.0, -inf),
        (F::Log1p, -1.5, f32::NAN),
        (F::Log1p, inf, inf),
        (F::Cbrt, -27.0, -3.0),
        (F::Cbrt, -inf, -inf),
        (F::Gamma, 0.0, inf),
        (F::Gamma, -0.0, -inf),
        (F::Gamma, -3.0, f32::NAN),
        (F::Gamma, -inf, f32::NAN),
        (F::Gamma, 6.0, 120.0),
        (F::Lgamma, 1.0, 0.0),
        (F::Lgamma, 2.0, 0.0),
        (F::Lgamma, 0.0, inf),
        (F::Lgamma, -7.0, inf),
        (F::Lgamma, -inf, inf),
        (F::Digamma, 0.0, -inf),
        (F::Digamma, -0.0, inf),
        (F::Digamma, -4.0, f32::NAN),
        (F::Digamma, inf, inf),
    ] {
        let got = one(f, x);
        assert!(got == y || got.is_nan() && y.is_nan(), "{f:?}({x}) is {y}, not {got}");
        assert!(one(f, f32::NAN).is_nan(), "{f:?} of NaN");
    }
}
