//! Between what numbers the elements of a tensor are, as far as the ops that compute it say: interval arithmetic over numbers and sizes.
//!
//! What is not known to be negative is taken not to be, as sizes are not: a bound found here may be too small for odd inputs, and then the run
//! reports the number that is beyond it.

use rlx_ir::op::{Activation as A, BinaryOp as B};
use rlx_ir::tensor::Elements;
use rlx_ir::{Extent, Value};

/// Floats beyond this are no counts.
const MOST_NUMBER: f64 = 1e15;

/// A number that elements do not exceed or fall below.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Bound {
    Number(f64),
    Size(Extent),
}

use Bound::{Number, Size};

impl Bound {
    fn number(self) -> Option<f64> {
        match self {
            Number(x) => Some(x),
            Size(e) => e.as_const().map(|n| n as f64),
        }
    }

    /// As a whole number: not below the bound.
    pub fn up(self) -> Option<Extent> {
        match self {
            Number(x) if x.abs() < MOST_NUMBER => Some(Extent::Const(x.ceil() as i64)),
            Number(_) => None,
            Size(e) => Some(e),
        }
    }

    fn plus(self, other: Bound) -> Option<Bound> {
        Some(match (self, other) {
            (Number(a), Number(b)) => Number(a + b),
            (a, b) => Size(a.up()? + b.up()?),
        })
    }

    /// `self − other`, where `other` is a number that something is at least: rounded down, the difference is no smaller.
    fn minus(self, other: Bound) -> Option<Bound> {
        match other {
            Number(x) => self.plus(Number(-x)),
            Size(e) => Some(Size(self.up()? - e)),
        }
    }

    fn times(self, other: Bound) -> Option<Bound> {
        Some(match (self, other) {
            (Number(a), Number(b)) => Number(a * b),
            (a, b) => Size(a.up()? * b.up()?),
        })
    }

    fn larger(self, other: Bound) -> Option<Bound> {
        Some(match (self, other) {
            (Number(a), Number(b)) => Number(a.max(b)),
            (a, b) => Size(a.up()?.max(b.up()?)),
        })
    }

    fn smaller(self, other: Bound) -> Option<Bound> {
        Some(match (self, other) {
            (Number(a), Number(b)) => Number(a.min(b)),
            (a, b) => Size(a.up()?.min(b.up()?)),
        })
    }
}

/// What elements are at least and at most; `None` where nothing says it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Range {
    pub least: Option<Bound>,
    pub most: Option<Bound>,
}

impl Range {
    /// From 0 to a size.
    pub fn up_to(size: Extent) -> Range {
        Range { least: Some(Number(0.0)), most: Some(Size(size)) }
    }

    pub fn of_numbers(least: f64, most: f64) -> Range {
        Range { least: Some(Number(least)), most: Some(Number(most)) }
    }

    pub fn of_elements(elements: &Elements) -> Range {
        let all = match elements {
            Elements::Int(v) => v.iter().min().zip(v.iter().max()).map(|(&a, &b)| (a as f64, b as f64)),
            Elements::Float(v) => {
                let least = v.iter().copied().reduce(f64::min);
                least.zip(v.iter().copied().reduce(f64::max))
            }
        };
        all.filter(|(a, b)| !a.is_nan() && !b.is_nan())
            .map_or(Range::default(), |(a, b)| Range::of_numbers(a, b))
    }

    pub fn of_value(value: &Value) -> Range {
        Range::of_elements(&value.elements)
    }

    /// What holds for the elements of both.
    pub fn or(self, other: Range) -> Range {
        Range {
            least: join(self.least, other.least, Bound::smaller),
            most: join(self.most, other.most, Bound::larger),
        }
    }

    /// Of sums of so many elements.
    pub fn summed(self, count: Extent) -> Range {
        let times = |b: Bound| match b {
            Number(x) => Size(Extent::Const(0)).larger(Number(x)).and_then(|b| b.times(Size(count))),
            Size(e) => Some(Size(e.max(0) * count)),
        };
        Range { least: self.not_negative().then_some(Number(0.0)), most: self.most.and_then(times) }
    }

    fn not_negative(self) -> bool {
        self.least.is_some_and(|b| matches!(b, Size(_)) || b.number().is_some_and(|x| x >= 0.0))
    }

    fn numbers(self) -> Option<(f64, f64)> {
        self.least?.number().zip(self.most?.number())
    }

    /// Of the results of a function that grows with its operand.
    fn rising(self, f: impl Fn(f64) -> f64) -> Range {
        let of = |b: Option<Bound>| b.and_then(Bound::number).map(|x| Number(f(x)));
        Range { least: of(self.least), most: of(self.most) }
    }

    pub fn activation(self, f: A) -> Range {
        match f {
            A::Sigmoid | A::Sin | A::Cos | A::Tanh | A::Erf | A::Softsign | A::Sign => {
                Range::of_numbers(if f == A::Sigmoid { 0.0 } else { -1.0 }, 1.0)
            }
            // A whole size is its own.
            A::Floor | A::Ceil | A::Round | A::Trunc => {
                let of = |b: Bound, round: fn(f64) -> f64| match b {
                    Number(x) => Number(round(x)),
                    size => size,
                };
                Range {
                    least: self.least.map(|b| of(b, f64::floor)),
                    most: self.most.map(|b| of(b, f64::ceil)),
                }
            }
            A::Relu => {
                Range { least: Some(Number(0.0)), most: self.most.and_then(|b| b.larger(Number(0.0))) }
            }
            A::Abs if self.not_negative() || self.least.is_none() => {
                Range { least: Some(Number(0.0)), ..self }
            }
            A::Abs => {
                let most = self.numbers().map(|(a, b)| Number(a.abs().max(b.abs())));
                Range { least: Some(Number(0.0)), most }
            }
            A::Neg => {
                let turned = |b: Option<Bound>| b.and_then(Bound::number).map(|x| Number(-x));
                Range { least: turned(self.most), most: turned(self.least) }
            }
            A::Exp => Range { least: Some(Number(0.0)), ..self.rising(f64::exp) },
            A::Sqrt => Range { least: Some(Number(0.0)), ..self.rising(|x| x.max(0.0).sqrt()) },
            A::Recip => match self.numbers() {
                Some((a, b)) if a > 0.0 => Range::of_numbers(1.0 / b, 1.0 / a),
                _ => Range::default(),
            },
            _ => Range::default(),
        }
    }

    pub fn binary(self, f: B, other: Range) -> Range {
        let (a, b) = (self, other);
        match f {
            B::Min => Range {
                least: join(a.least, b.least, Bound::smaller),
                most: join(a.most, b.most, Bound::smaller).or(a.most).or(b.most),
            },
            B::Max => Range {
                least: join(a.least, b.least, Bound::larger).or(a.least).or(b.least),
                most: join(a.most, b.most, Bound::larger),
            },
            B::Add => {
                Range { least: join(a.least, b.least, Bound::plus), most: join(a.most, b.most, Bound::plus) }
            }
            B::Sub => Range {
                least: join(a.least, b.most, Bound::minus),
                most: a.most.and_then(|most| b.least.map_or(Some(most), |least| most.minus(least))),
            },
            B::Mul => a.times(b),
            B::Div => a.over(b),
            B::Mod | B::Rem => {
                Range { least: Some(Number(0.0)), most: b.most.and_then(|m| m.minus(Number(1.0))) }
            }
            _ => Range::default(),
        }
    }

    fn times(self, other: Range) -> Range {
        if let (Some((a, b)), Some((c, d))) = (self.numbers(), other.numbers()) {
            let all = [a * c, a * d, b * c, b * d];
            return Range::of_numbers(
                all.into_iter().fold(f64::INFINITY, f64::min),
                all.into_iter().fold(f64::NEG_INFINITY, f64::max),
            );
        }
        let least = (self.not_negative() && other.not_negative()).then_some(Number(0.0));
        Range { least, most: join(self.most, other.most, Bound::times) }
    }

    /// Divided by what is never below a positive number.
    fn over(self, divisor: Range) -> Range {
        let Some(least) = divisor.least.and_then(Bound::number).filter(|&x| x > 0.0) else {
            return Range::default();
        };
        let divided = |b: Bound| match b {
            Number(x) => Some(Number(
                x / if x < 0.0 { divisor.most.and_then(Bound::number).unwrap_or(least) } else { least },
            )),
            Size(_) if least >= 1.0 => Some(b),
            Size(_) => b.times(Number(1.0 / least)),
        };
        Range { least: self.not_negative().then_some(Number(0.0)), most: self.most.and_then(divided) }
    }
}

fn join(a: Option<Bound>, b: Option<Bound>, f: fn(Bound, Bound) -> Option<Bound>) -> Option<Bound> {
    f(a?, b?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(least: f64, most: f64) -> Range {
        Range::of_numbers(least, most)
    }

    #[test]
    fn ranges_hold_for_the_results_of_their_ends() {
        let operands = [numbers(-3.0, 2.0), numbers(0.5, 4.0), numbers(-2.5, -0.5)];
        for f in [B::Add, B::Sub, B::Mul, B::Div, B::Min, B::Max] {
            for a in operands {
                for b in operands {
                    let range = a.binary(f, b);
                    let ends = |r: Range| r.numbers().map(|(a, b)| [a, (a + b) / 2.0, b]).unwrap();
                    for x in ends(a) {
                        for y in ends(b) {
                            let z = match f {
                                B::Add => x + y,
                                B::Sub => x - y,
                                B::Mul => x * y,
                                B::Div => x / y,
                                B::Min => x.min(y),
                                _ => x.max(y),
                            };
                            let within = |b: Option<Bound>, ok: fn(f64, f64) -> bool| {
                                b.and_then(Bound::number).is_none_or(|b| ok(z, b))
                            };
                            assert!(
                                within(range.most, |z, b| z <= b),
                                "{f:?} of {a:?} and {b:?}: {z}, {range:?}"
                            );
                            assert!(
                                within(range.least, |z, b| z >= b),
                                "{f:?} of {a:?} and {b:?}: {z}, {range:?}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_difference_of_what_lies_in_an_interval_is_bounded_by_its_length() {
        // The width of a box inside a picture, one pixel wider.
        let edge = Range::default().binary(B::Max, numbers(0.0, 0.0)).binary(B::Min, numbers(120.0, 120.0));
        let width = edge.binary(B::Sub, edge).binary(B::Add, numbers(1.0, 1.0));
        assert_eq!(width.most.and_then(Bound::up), Some(Extent::Const(121)));
        assert_eq!(
            width.binary(B::Mul, numbers(1.07, 1.07)).most.and_then(Bound::up),
            Some(Extent::Const(130))
        );
    }

    #[test]
    fn a_quotient_by_what_may_be_zero_has_no_bound() {
        assert_eq!(numbers(0.0, 1.0).binary(B::Div, numbers(0.0, 1.0)), Range::default());
    }
}
