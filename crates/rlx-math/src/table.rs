//! The table of functions.
//!
//! One line for each: the approximation over [`Lanes`], the function in f64, what a device may have instead, how the CPU
//! computes it in f32, and the claimed bound. Names are those of `rlx_ir::op::Activation`, which is how backends find them.

use crate::lanes::Lanes;
use crate::{erf, exp, gamma, gates, log, root, trig, wide};

/// A function as a type, so that code is compiled for it alone.
pub trait Approximation: Copy + 'static {
    /// Its name.
    const NAME: &'static str;
    /// How far it may be off.
    const BOUNDS: Bounds;

    /// The function of every lane.
    fn lanes<L: Lanes>(l: L, x: L::F) -> L::F;

    /// The function in f64.
    fn wide(x: f64) -> f64;
}

/// What is done with a function that is known only at run time; see [`Function::visit`].
pub trait Visitor {
    /// What it gives.
    type Output;
    /// Is called with the function's type.
    fn visit<A: Approximation>(self) -> Self::Output;
}

/// What a device may have instead of the approximation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A function of its mathematical library, with this name in C.
    Library(&'static str),
    /// Nothing, but the approximation is a formula of other functions, right in f64 too.
    Formula,
    /// Nothing: the approximation, which is one for f32 alone.
    Own,
}

/// How the CPU computes a function of f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnCpu {
    /// By the approximation, in vectors.
    Vector,
    /// In f64, one by one, rounded: what it always did, so that results keep their bits.
    Double,
}

/// How far a result may be from the exact value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// In units in the last place of the exact value …
    pub ulps: f32,
    /// … or, for negative arguments whose result is smaller, of this number.
    pub floor: f32,
    /// The largest argument for which it holds.
    pub within: f32,
}

/// How far results may be off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// Where a multiply-add rounds once.
    pub fused: Bound,
    /// Where it rounds twice.
    pub separate: Bound,
}

impl Bounds {
    /// In units in the last place, with fused and with separate multiply-add.
    pub const fn ulps(fused: f32, separate: f32) -> Bounds {
        Bounds {
            fused: Bound { ulps: fused, floor: 0.0, within: f32::INFINITY },
            separate: Bound { ulps: separate, floor: 0.0, within: f32::INFINITY },
        }
    }

    /// Of negative arguments, results below `floor` may be off as much as `floor` may: where they are what cancellation
    /// leaves, or products with a number that underflows.
    pub const fn below_zero(self, floor: f32) -> Bounds {
        Bounds { fused: Bound { floor, ..self.fused }, separate: Bound { floor, ..self.separate } }
    }

    /// With separate multiply-add only for arguments up to `within`.
    pub const fn separate_within(self, within: f32) -> Bounds {
        Bounds { separate: Bound { within, ..self.separate }, ..self }
    }
}

macro_rules! functions {
    ($(
        $(#[doc = $doc:literal])*
        $name:ident = $lanes:path, $wide:expr, $form:expr, $cpu:ident, $bounds:expr;
    )*) => {
        /// A function of one number.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Function {
            $($(#[doc = $doc])* $name,)*
        }

        /// The functions as types.
        pub mod of {
            $($(#[doc = $doc])*
            #[derive(Debug, Clone, Copy)]
            pub struct $name;)*
        }

        $(impl Approximation for of::$name {
            const NAME: &'static str = stringify!($name);
            const BOUNDS: Bounds = $bounds;

            #[inline(always)]
            fn lanes<L: Lanes>(l: L, x: L::F) -> L::F {
                $lanes(l, x)
            }

            fn wide(x: f64) -> f64 {
                $wide(x)
            }
        })*

        impl Function {
            /// Every function.
            pub const ALL: &'static [Function] = &[$(Function::$name),*];

            /// Its name: that of the activation.
            pub const fn name(self) -> &'static str {
                match self { $(Function::$name => stringify!($name),)* }
            }

            /// What a device may have instead.
            pub const fn form(self) -> Form {
                match self { $(Function::$name => $form,)* }
            }

            /// How the CPU computes it in f32.
            pub const fn on_cpu(self) -> OnCpu {
                match self { $(Function::$name => OnCpu::$cpu,)* }
            }

            /// How far results may be off.
            pub const fn bounds(self) -> Bounds {
                match self { $(Function::$name => $bounds,)* }
            }

            /// The function in f64.
            pub const fn wide(self) -> fn(f64) -> f64 {
                match self { $(Function::$name => <of::$name as Approximation>::wide,)* }
            }

            /// Calls the visitor with the function's type.
            #[inline(always)]
            pub fn visit<V: Visitor>(self, visitor: V) -> V::Output {
                match self { $(Function::$name => visitor.visit::<of::$name>(),)* }
            }
        }
    };
}

use Form::{Formula, Library, Own};

functions! {
    /// `eˣ`.
    Exp = exp::exp, f64::exp, Library("exp"), Vector, Bounds::ulps(1.0, 1.6);
    /// `eˣ − 1`.
    Expm1 = exp::expm1, f64::exp_m1, Library("expm1"), Vector, Bounds::ulps(1.5, 2.0);
    /// The natural logarithm.
    Log = log::log, f64::ln, Library("log"), Vector, Bounds::ulps(1.1, 1.5);
    /// `log(1 + x)`.
    Log1p = log::log1p, f64::ln_1p, Library("log1p"), Vector, Bounds::ulps(1.5, 1.5);
    /// The cube root.
    Cbrt = root::cbrt, f64::cbrt, Library("cbrt"), Vector, Bounds::ulps(1.0, 1.0);
    /// The sine.
    Sin = trig::sin, f64::sin, Library("sin"), Vector, Bounds::ulps(1.6, 2.0).separate_within(8e3);
    /// The cosine.
    Cos = trig::cos, f64::cos, Library("cos"), Vector, Bounds::ulps(1.6, 2.0).separate_within(8e3);
    /// The tangent.
    Tan = trig::tan, f64::tan, Library("tan"), Double, Bounds::ulps(4.0, 4.0).separate_within(8e3);
    /// The arc sine.
    Asin = trig::asin, f64::asin, Library("asin"), Double, Bounds::ulps(2.5, 2.5);
    /// The arc cosine.
    Acos = trig::acos, f64::acos, Library("acos"), Double, Bounds::ulps(2.0, 2.0);
    /// The arc tangent.
    Atan = trig::atan, f64::atan, Library("atan"), Double, Bounds::ulps(3.0, 3.0);
    /// The hyperbolic sine.
    Sinh = exp::sinh, f64::sinh, Library("sinh"), Double, Bounds::ulps(3.5, 3.5);
    /// The hyperbolic cosine.
    Cosh = exp::cosh, f64::cosh, Library("cosh"), Double, Bounds::ulps(3.5, 3.5);
    /// The hyperbolic tangent.
    Tanh = exp::tanh, f64::tanh, Library("tanh"), Vector, Bounds::ulps(1.5, 2.0);
    /// The inverse hyperbolic sine.
    Asinh = log::asinh, f64::asinh, Library("asinh"), Double, Bounds::ulps(2.5, 2.5);
    /// The inverse hyperbolic cosine; NaN below 1.
    Acosh = log::acosh, f64::acosh, Library("acosh"), Double, Bounds::ulps(2.5, 2.5);
    /// The inverse hyperbolic tangent; NaN beyond ±1.
    Atanh = log::atanh, f64::atanh, Library("atanh"), Double, Bounds::ulps(2.5, 2.5);
    /// The error function.
    Erf = erf::erf, wide::erf, Library("erf"), Vector, Bounds::ulps(1.2, 1.5);
    /// The inverse of the error function; NaN beyond ±1.
    Erfinv = erf::erfinv, wide::erfinv, Library("erfinv"), Vector, Bounds::ulps(4.0, 4.0);
    /// The gamma function.
    Gamma = gamma::gamma, wide::gamma, Library("tgamma"), Vector, Bounds::ulps(10.0, 10.0);
    /// The logarithm of the gamma function's magnitude.
    Lgamma = gamma::lgamma, wide::lgamma, Library("lgamma"), Vector, Bounds::ulps(8.0, 8.0).below_zero(4.0);
    /// The digamma function, the derivative of `Lgamma`.
    Digamma = gamma::digamma, wide::digamma, Own, Vector, Bounds::ulps(8.0, 8.0).below_zero(4.0);
    /// `1 / (1 + e⁻ˣ)`.
    Sigmoid = gates::sigmoid, wide::sigmoid, Formula, Vector, Bounds::ulps(2.5, 3.0);
    /// `x·sigmoid(x)`.
    Silu = gates::silu, |x: f64| x * wide::sigmoid(x), Formula, Vector, Bounds::ulps(3.0, 3.5).below_zero(1e-36);
    /// `log(1 + eˣ)`.
    Softplus = gates::softplus, wide::softplus, Formula, Vector, Bounds::ulps(2.5, 2.5);
    /// `x / (1 + |x|)`.
    Softsign = gates::softsign, |x: f64| x / (1.0 + x.abs()), Formula, Double, Bounds::ulps(1.5, 1.5);
    /// `x·tanh(log(1 + eˣ))`.
    Mish = gates::mish, |x: f64| x * wide::softplus(x).tanh(), Formula, Double, Bounds::ulps(6.0, 6.0).below_zero(1e-36);
    /// `x·Φ(x)`.
    Gelu = gates::gelu, wide::gelu, Formula, Vector, Bounds::ulps(2.0, 2.0).below_zero(1.0);
    /// `x·Φ(x)` by the tanh approximation.
    GeluApprox = gates::gelu_tanh, wide::gelu_tanh, Formula, Vector, Bounds::ulps(4.0, 4.0).below_zero(1.0);
    /// `x·min(max(x/6 + 1/2, 0), 1)`.
    HardSwish = gates::hard_swish, |x: f64| x * (x / 6.0 + 0.5).clamp(0.0, 1.0), Formula, Vector,
        Bounds::ulps(2.0, 2.0).below_zero(1.0);
}

impl Function {
    /// The function of this name.
    ///
    /// ```
    /// use rlx_math::Function;
    /// assert_eq!(Function::named("Expm1"), Some(Function::Expm1));
    /// assert_eq!(Function::named("Relu"), None);
    /// ```
    pub fn named(name: &str) -> Option<Function> {
        Function::ALL.iter().copied().find(|f| f.name() == name)
    }
}
