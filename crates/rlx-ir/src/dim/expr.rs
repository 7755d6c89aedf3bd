//! Integer expressions over symbols, interned and kept as sums of products.
//!
//! The normal form is a polynomial whose variables are *atoms*: a symbol, or one of floordiv, mod, min,
//! max of two expressions. Building an expression normalises it, so two equal polynomials share one id
//! and comparing is comparing ids.
//!
//! Coefficients saturate at the ends of `i64`. Evaluating does not: an expression whose value, or any product or sum on
//! the way to it, leaves `i64` has no value, and neither has one that divides by zero or less. So a value is always
//! within [`Extent::range`], which memory is planned by.
//!
//! Expressions are as large as [`limits`] says at most: what grows beyond is [`Extent::TOO_LARGE`], of which nothing is known.

mod bounds;
mod broadcast;
mod limits;
mod poly;
mod range;
mod table;
mod text;

use std::collections::BTreeSet;
use std::ops::{Add, Mul, Neg, Sub};

use super::DimBinding;
pub use limits::{ExprBudget, check_extents};
use poly::{Term, constant_difference, divide_atoms, product, scaled, sum};
pub use range::SymRange;
pub(super) use table::{add_owner, count, release, release_to};
use table::{intern, terms_of};

/// The id of an interned, non-constant expression: its place in the table, and how many were there before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExprId {
    slot: u32,
    generation: u32,
}

/// A 64-bit integer that is constant or an expression over symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Extent {
    /// A number.
    Const(i64),
    /// An expression with at least one symbol.
    Expr(ExprId),
}

/// A variable of the polynomial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Atom {
    Sym(u32),
    FloorDiv(Extent, Extent),
    Mod(Extent, Extent),
    Min(Extent, Extent),
    Max(Extent, Extent),
    /// What [`Extent::TOO_LARGE`] consists of.
    TooLarge,
}

/// Which of two numbers.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Min,
    Max,
}

impl End {
    fn atom(self, a: Extent, b: Extent) -> Atom {
        match self {
            End::Min => Atom::Min(a, b),
            End::Max => Atom::Max(a, b),
        }
    }
}

fn atom(a: Atom) -> Extent {
    intern(vec![Term::of(a)])
}

impl Extent {
    /// The value of `symbol`.
    pub fn sym(symbol: u32) -> Extent {
        table::of_symbol(symbol)
    }

    /// The number, if this is one.
    pub fn as_const(self) -> Option<i64> {
        match self {
            Extent::Const(c) => Some(c),
            Extent::Expr(_) => None,
        }
    }

    /// The symbol, if this is just one.
    pub fn as_sym(self) -> Option<u32> {
        match self.as_atom()? {
            Atom::Sym(s) => Some(s),
            _ => None,
        }
    }

    /// The atom, if this is just one.
    fn as_atom(self) -> Option<Atom> {
        let Extent::Expr(_) = self else { return None };
        match *terms_of(self) {
            [Term { ref atoms, coefficient: 1 }] if atoms.len() == 1 => Some(atoms[0]),
            _ => None,
        }
    }

    /// `⌊self / divisor⌋`. The divisor is taken to be positive, as every dimension and step is.
    pub fn floor_div(self, divisor: impl Into<Extent>) -> Extent {
        let divisor = divisor.into();
        match (self, divisor) {
            _ if self.or_too_large(divisor) => return Extent::TOO_LARGE,
            (_, Extent::Const(1)) => return self,
            (Extent::Const(a), Extent::Const(b)) if b != 0 => {
                return Extent::Const(a.checked_div_euclid(b).unwrap_or(i64::MAX));
            }
            (Extent::Const(0), _) => return self,
            _ if self == divisor => return Extent::Const(1),
            _ => {}
        }
        let (quotient, rest) = self.split_exact(divisor);
        if rest == Extent::Const(0) {
            return quotient;
        }
        if let (Extent::Const(r), Extent::Const(d)) = (rest, divisor) {
            // floor((q·d + r) / d) = q + floor(r / d)
            return quotient + r.div_euclid(d.max(1));
        }
        match divisor {
            Extent::Const(d) if d > 0 => quotient + rest.floor_div_number(d),
            _ => quotient + atom(Atom::FloorDiv(rest, divisor)),
        }
    }

    /// `⌊self / d⌋` in its normal form: the number added to what is divided is in `0..d`, and a quotient's quotient
    /// is one quotient. Lengths after several windows are equal, then, however they are written.
    fn floor_div_number(self, d: i64) -> Extent {
        let added = poly::constant(&terms_of(self));
        // ⌊(e + c) / d⌋ = ⌊(e + c mod d) / d⌋ + ⌊c / d⌋
        let whole = added.div_euclid(d);
        let rest = self - whole * d;
        // ⌊(⌊e / m⌋ + c) / d⌋ = ⌊(e + c·m) / (m·d)⌋
        let merged = (rest - added.rem_euclid(d)).as_quotient().and_then(|(e, m)| {
            let shift = added.rem_euclid(d).checked_mul(m)?;
            Some((e + shift).floor_div(m.checked_mul(d)?))
        });
        merged.unwrap_or_else(|| atom(Atom::FloorDiv(rest, Extent::Const(d)))) + whole
    }

    /// What is divided and by which positive number, if this is just one quotient.
    fn as_quotient(self) -> Option<(Extent, i64)> {
        match self.as_atom()? {
            Atom::FloorDiv(e, Extent::Const(m)) if m > 0 => Some((e, m)),
            _ => None,
        }
    }

    /// `⌈self / divisor⌉`, for a positive divisor.
    pub fn ceil_div(self, divisor: impl Into<Extent>) -> Extent {
        let divisor = divisor.into();
        (self + divisor - 1).floor_div(divisor)
    }

    /// `self mod divisor` with a result in `0..divisor`, for a positive divisor.
    pub fn modulo(self, divisor: impl Into<Extent>) -> Extent {
        let divisor = divisor.into();
        match (self, divisor) {
            _ if self.or_too_large(divisor) => return Extent::TOO_LARGE,
            (Extent::Const(a), Extent::Const(b)) if b != 0 => {
                return Extent::Const(a.checked_rem_euclid(b).unwrap_or(0));
            }
            _ if divisor == Extent::Const(1) => return Extent::Const(0),
            _ => {}
        }
        let (_, rest) = self.split_exact(divisor);
        match (rest, divisor) {
            (Extent::Const(0), _) => rest,
            (Extent::Const(r), Extent::Const(d)) if d > 0 => Extent::Const(r.rem_euclid(d)),
            _ => atom(Atom::Mod(rest, divisor)),
        }
    }

    /// The lesser of the two.
    pub fn min(self, other: impl Into<Extent>) -> Extent {
        self.either(other.into(), End::Min)
    }

    /// The greater of the two.
    pub fn max(self, other: impl Into<Extent>) -> Extent {
        self.either(other.into(), End::Max)
    }

    fn either(self, other: Extent, end: End) -> Extent {
        if self.or_too_large(other) {
            return Extent::TOO_LARGE;
        }
        match constant_difference(&terms_of(self), &terms_of(other)) {
            Some(d) if (d < 0) == (end == End::Min) => self,
            Some(_) => other,
            None => self.flat(other, end).unwrap_or_else(|| {
                let (a, b) = if self <= other { (self, other) } else { (other, self) };
                atom(end.atom(a, b))
            }),
        }
    }

    /// `min(k, min(l, e) + d)` for numbers `k`, `l`, `d` is `min(min(k, l + d), e + d)`, and so it is with `max`: however
    /// often something is bounded by numbers, one bound is left.
    fn flat(self, other: Extent, end: End) -> Option<Extent> {
        let (k, e) = match (self, other) {
            (Extent::Const(k), e) | (e, Extent::Const(k)) => (k, e),
            _ => return None,
        };
        let d = poly::constant(&terms_of(e));
        match ((e - d).as_atom()?, end) {
            (Atom::Min(Extent::Const(l), inner), End::Min)
            | (Atom::Max(Extent::Const(l), inner), End::Max) => {
                let number = Extent::Const(k).either(Extent::Const(l.checked_add(d)?), end);
                Some((inner + d).either(number, end))
            }
            _ => None,
        }
    }

    /// Splits into `(q, r)` with `self = q·divisor + r`, moving whole terms that divide exactly into `q`.
    fn split_exact(self, divisor: Extent) -> (Extent, Extent) {
        let d = terms_of(divisor);
        // Only a divisor of one term can divide term by term; a sum divides only an equal sum times q,
        // which is tried by its leading term.
        let Some(leading) = d.last() else { return (Extent::Const(0), self) };
        let (mut quotient, mut rest) = (Vec::new(), Vec::new());
        for term in terms_of(self).iter() {
            match divide_atoms(&term.atoms, &leading.atoms) {
                Some(left) if term.coefficient.checked_rem(leading.coefficient) == Some(0) => {
                    quotient.push(Term { atoms: left, coefficient: term.coefficient / leading.coefficient })
                }
                _ => rest.push(term.clone()),
            }
        }
        if quotient.is_empty() {
            return (Extent::Const(0), self);
        }
        // Terms that are divided need not keep their order.
        let quotient = intern(poly::normal(quotient));
        if d.len() == 1 {
            return (quotient, intern(rest));
        }
        if quotient * divisor == self { (quotient, Extent::Const(0)) } else { (Extent::Const(0), self) }
    }

    /// `self + factor·other`.
    fn plus(self, other: Extent, factor: i64) -> Extent {
        match (self, other) {
            _ if self.or_too_large(other) => Extent::TOO_LARGE,
            (e, Extent::Const(0)) => e,
            _ => intern(sum(&terms_of(self), &terms_of(other), factor)),
        }
    }

    /// Whether one of the two is too large.
    fn or_too_large(self, other: Extent) -> bool {
        self.is_too_large() || other.is_too_large()
    }

    /// Replaces every symbol for which `value` gives something.
    pub fn substitute(self, value: &dyn Fn(u32) -> Option<Extent>) -> Extent {
        let Extent::Expr(_) = self else { return self };
        let mut sum = Extent::Const(0);
        for term in terms_of(self).iter() {
            let mut product = Extent::Const(term.coefficient);
            for &a in &term.atoms {
                let go = |e: Extent| e.substitute(value);
                product = product
                    * match a {
                        Atom::Sym(s) => value(s).unwrap_or_else(|| atom(a)),
                        Atom::FloorDiv(x, y) => go(x).floor_div(go(y)),
                        Atom::Mod(x, y) => go(x).modulo(go(y)),
                        Atom::Min(x, y) => go(x).min(go(y)),
                        Atom::Max(x, y) => go(x).max(go(y)),
                        Atom::TooLarge => Extent::TOO_LARGE,
                    };
            }
            sum = sum + product;
        }
        sum
    }

    /// Puts the bound symbols' values in.
    pub fn bind(self, binding: &DimBinding) -> Extent {
        self.substitute(&|s| binding.get(s).map(|v| Extent::Const(i64::try_from(v).unwrap_or(i64::MAX))))
    }

    /// The value when `value` knows every symbol; `None` when one is missing, where arithmetic leaves `i64`, and for a
    /// divisor that is not positive.
    ///
    /// Does not allocate, so that a run may call it.
    pub fn eval(self, value: &dyn Fn(u32) -> Option<i64>) -> Option<i64> {
        let Extent::Expr(_) = self else { return self.as_const() };
        let mut sum = 0i64;
        for term in terms_of(self).iter() {
            let mut product = term.coefficient;
            for &a in &term.atoms {
                product = product.checked_mul(a.eval(value)?)?;
            }
            sum = sum.checked_add(product)?;
        }
        Some(sum)
    }

    /// The symbols that occur, ascending.
    pub fn symbols(self) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        self.each_symbol(&mut |symbol| _ = found.insert(symbol));
        found
    }

    /// Calls `found` with each symbol that occurs, perhaps more than once.
    pub fn each_symbol(self, found: &mut dyn FnMut(u32)) {
        let Extent::Expr(_) = self else { return };
        for term in terms_of(self).iter() {
            for &a in &term.atoms {
                match a {
                    Atom::TooLarge => {}
                    Atom::Sym(s) => found(s),
                    Atom::FloorDiv(x, y) | Atom::Mod(x, y) | Atom::Min(x, y) | Atom::Max(x, y) => {
                        x.each_symbol(found);
                        y.each_symbol(found);
                    }
                }
            }
        }
    }
}

impl Atom {
    fn eval(self, value: &dyn Fn(u32) -> Option<i64>) -> Option<i64> {
        let divisor = |y: Extent| y.eval(value).filter(|&y| y > 0);
        Some(match self {
            Atom::Sym(s) => value(s)?,
            Atom::FloorDiv(x, y) => x.eval(value)?.div_euclid(divisor(y)?),
            Atom::Mod(x, y) => x.eval(value)?.rem_euclid(divisor(y)?),
            Atom::Min(x, y) => x.eval(value)?.min(y.eval(value)?),
            Atom::Max(x, y) => x.eval(value)?.max(y.eval(value)?),
            Atom::TooLarge => return None,
        })
    }
}

impl From<i64> for Extent {
    fn from(c: i64) -> Extent {
        Extent::Const(c)
    }
}

impl From<super::Dim> for Extent {
    fn from(d: super::Dim) -> Extent {
        d.extent()
    }
}

impl<T: Into<Extent>> Add<T> for Extent {
    type Output = Extent;

    fn add(self, other: T) -> Extent {
        let other = other.into();
        if let (Extent::Const(a), Extent::Const(b)) = (self, other) {
            return Extent::Const(a.saturating_add(b));
        }
        self.plus(other, 1)
    }
}

impl Neg for Extent {
    type Output = Extent;

    fn neg(self) -> Extent {
        self * -1
    }
}

impl<T: Into<Extent>> Sub<T> for Extent {
    type Output = Extent;

    fn sub(self, other: T) -> Extent {
        let other = other.into();
        match (self, other) {
            (_, Extent::Const(_)) => self + -other,
            _ => self.plus(other, -1),
        }
    }
}

impl<T: Into<Extent>> Mul<T> for Extent {
    type Output = Extent;

    fn mul(self, other: T) -> Extent {
        let other = other.into();
        if let (Extent::Const(a), Extent::Const(b)) = (self, other) {
            return Extent::Const(a.saturating_mul(b));
        }
        match (self, other) {
            _ if self.or_too_large(other) => return Extent::TOO_LARGE,
            (e, Extent::Const(1)) | (Extent::Const(1), e) => return e,
            (e, Extent::Const(c)) | (Extent::Const(c), e) => return intern(scaled(&terms_of(e), c)),
            _ => {}
        }
        product(&terms_of(self), &terms_of(other)).map_or(Extent::TOO_LARGE, intern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dim::sym;

    fn b() -> Extent {
        Extent::sym(sym::BATCH)
    }

    fn s() -> Extent {
        Extent::sym(sym::SEQ)
    }

    #[test]
    fn equal_polynomials_are_equal_values() {
        assert_eq!((b() + 1) * (b() - 1), b() * b() - 1);
        assert_eq!(b() - b(), Extent::Const(0));
        assert_eq!((b() * 6 + s() * 4).floor_div(2), b() * 3 + s() * 2);
        assert_eq!((b() * 4 + 3).floor_div(4), b());
        assert_eq!((b() * s()).floor_div(s()), b());
        assert_eq!(((b() + s()) * b()).floor_div(b() + s()), b());
        assert_eq!((b() * 8).modulo(4), Extent::Const(0));
        assert_eq!((b() + 2).max(b()), b() + 2);
    }

    #[test]
    fn lengths_after_windows_are_equal_however_they_are_written() {
        // Two windows of a waveform: 10 wide by 5, then 8 wide by 4; then a third, 3 wide by 2.
        let window = |e: Extent, width: i64, step: i64| (e - width).floor_div(step) + 1;
        let first = window(s(), 10, 5);
        assert_eq!(first, s().floor_div(5) - 1);
        let third = window(window(first, 8, 4), 3, 2);
        assert_eq!(third, (s().floor_div(5) - 9).floor_div(8));
        assert_eq!(third.to_string(), "-2 + floordiv(35 + seq, 40)");
        for n in 0..500 {
            let value = |_: u32| Some(n);
            let step = |x: i64, width: i64, step: i64| (x - width).div_euclid(step) + 1;
            assert_eq!(third.eval(&value), Some(step(step(step(n, 10, 5), 8, 4), 3, 2)), "{n}");
        }
        assert_eq!((s() - 9).floor_div(2), (s() + 1).floor_div(2) - 5);
        let large = s().floor_div(i64::MAX).floor_div(2);
        assert_eq!(large.eval(&|_| Some(i64::MAX)), Some(0));
    }

    #[test]
    fn bounds_by_numbers_join() {
        let twice = (b().max(0) - 3).max(0);
        assert_eq!(((s() - 1).max(0) - 3).max(0), (s() - 4).max(0));
        assert_eq!(((s() + 2).min(9) - 1).min(3), (s() + 1).min(3));
        assert_eq!((s().max(0) - i64::MAX).max(-2).eval(&|_| Some(1)), Some(-2));
        for n in -6..6i64 {
            assert_eq!(twice.eval(&|_| Some(n)), Some((n.max(0) - 3).max(0)), "{n}");
        }
    }

    #[test]
    fn evaluation_agrees_with_arithmetic() {
        let value = |q: u32| Some(if q == sym::BATCH { 7 } else { 5 });
        assert_eq!(((b() + s()) * 3 - 1).eval(&value), Some(35));
        assert_eq!((b() + s()).floor_div(s() + 1).eval(&value), Some(2));
        assert_eq!((b() - 9).floor_div(2).eval(&value), Some(-1));
        assert_eq!((b() + 1).modulo(s()).eval(&value), Some(3));
        assert_eq!(b().min(s()).eval(&value), Some(5));
        assert_eq!(b().eval(&|_| None), None);
    }

    #[test]
    fn the_ends_of_the_range_saturate_and_nothing_divides_by_zero() {
        let least = Extent::Const(i64::MIN);
        assert_eq!(least.floor_div(-1), Extent::Const(i64::MAX));
        assert_eq!(least.modulo(-1), Extent::Const(0));
        let large = b() * i64::MIN;
        assert_eq!(large.floor_div(-1).eval(&|_| Some(0)), None);
        for divisor in [Extent::Const(0), s() - s(), s() - 9] {
            assert_eq!(b().floor_div(divisor).eval(&|_| Some(1)), None);
            assert_eq!(b().modulo(divisor).eval(&|_| Some(1)), None);
        }
    }

    #[test]
    fn what_overflows_has_no_value() {
        let large = |_: u32| Some(1 << 40);
        assert_eq!((b() * s()).eval(&large), None);
        // The products leave `i64`, though their difference would not.
        assert_eq!((b() * s() - b() * b()).eval(&large), None);
        assert_eq!((b() * (1 << 22) + s() * (1 << 22)).eval(&large), None);
        assert_eq!((b() * (1 << 22) + s()).eval(&large), Some((1 << 62) + (1 << 40)));
        assert_eq!((b() + i64::MAX).eval(&large), None);
        assert_eq!((b() - i64::MAX).eval(&large), Some((1 << 40) - i64::MAX));
    }

    #[test]
    fn text_does_not_depend_on_the_order_of_interning() {
        assert_eq!((s() * b() * 2 - s() + 3).to_string(), "3 - seq + 2*batch*seq");
        assert_eq!(s().max(b()).to_string(), "max(batch, seq)");
    }
}
