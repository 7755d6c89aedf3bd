//! Elementary functions of f32, each approximated once.
//!
//! An approximation is a function over [`Lanes`]: additions, products, comparisons, shifts of the bits. The CPU's vectors
//! are lanes, so is one number ([`Scalar`]), and so are the values of a kernel that is being written, which is how devices
//! without a good mathematical library get it. What is written here is therefore what all of them compute.
//!
//! ```
//! use rlx_math::{Function, Lanes, Scalar, exp};
//!
//! /// 2·sinh x, of vectors, of numbers and in kernels.
//! fn twice_sinh<L: Lanes>(l: L, x: L::F) -> L::F {
//!     l.sub(exp(l, x), exp(l, l.neg(x)))
//! }
//! assert_eq!(twice_sinh(Scalar, 0.0), 0.0);
//!
//! // Functions are also values, with what is claimed of them.
//! assert!(Function::Exp.bounds().fused.ulps <= 1.0);
//! assert_eq!(Function::Exp.wide()(0.0), 1.0);
//! ```
//!
//! The [table](Function) has one line for each function, with its bound in units in the last place; tests of every backend
//! hold it to that, against the oracle's references. Those are in `rlx-ir`, which does not depend on this crate: the
//! oracle shares no arithmetic with a backend.
#![forbid(unsafe_code)]

mod erf;
mod exp;
mod gamma;
mod gates;
mod lanes;
mod log;
mod root;
mod scalar;
mod short;
mod table;
mod tanh_table;
mod trig;
mod wide;

pub use erf::{erf, erfinv};
pub use exp::{cosh, exp, exp_normal, exp_short, expm1, sinh, tanh};
pub use gamma::{digamma, gamma, lgamma};
pub use gates::{clip, gelu, gelu_tanh, hard_swish, mish, sigmoid, silu, softplus, softsign};
pub use lanes::{Lanes, polynomial};
pub use log::{acosh, asinh, atanh, log, log1p};
pub use root::cbrt;
pub use scalar::Scalar;
pub use short::{gelu_short, gelu_tanh_short, silu_short};
pub use table::{Approximation, Bound, Bounds, Form, Function, OnCpu, Visitor, of};
pub use trig::{acos, asin, atan, cos, sin, tan};
