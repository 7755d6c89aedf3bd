//! The range of an expression's values, from the ranges of its symbols.

use super::{Atom, Extent, Term, sum, terms_of};

/// The smallest and the largest value something can take, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SymRange {
    /// The smallest value.
    pub min: i64,
    /// The largest value; `i64::MAX` when nothing is known.
    pub max: i64,
}

impl SymRange {
    /// What holds of every dimension: not negative.
    pub const DIM: SymRange = SymRange { min: 0, max: i64::MAX };

    /// `min..=max`.
    pub const fn new(min: i64, max: i64) -> Self {
        SymRange { min, max }
    }
}

impl Extent {
    /// Bounds of the value, from bounds of the symbols.
    pub fn range(self, of: &dyn Fn(u32) -> SymRange) -> SymRange {
        match self {
            Extent::Const(c) => SymRange::new(c, c),
            Extent::Expr(_) => range_of(&terms_of(self), of),
        }
    }

    /// Bounds of `self - other`, as [`Extent::range`] gives them, without making that expression.
    pub fn distance(self, other: impl Into<Extent>, of: &dyn Fn(u32) -> SymRange) -> SymRange {
        match (self, other.into()) {
            (a, b) if a.or_too_large(b) => Extent::TOO_LARGE.range(of),
            (a, Extent::Const(0)) => a.range(of),
            (a, b) => range_of(&sum(&terms_of(a), &terms_of(b), -1), of),
        }
    }

    /// As [`Extent::min`], deciding also by what is known of the symbols.
    pub fn min_within(self, other: impl Into<Extent>, of: &dyn Fn(u32) -> SymRange) -> Extent {
        let other = other.into();
        let distance = other.distance(self, of);
        if distance.min >= 0 {
            self
        } else if distance.max <= 0 {
            other
        } else {
            self.min(other)
        }
    }

    /// As [`Extent::max`], deciding also by what is known of the symbols.
    pub fn max_within(self, other: impl Into<Extent>, of: &dyn Fn(u32) -> SymRange) -> Extent {
        let other = other.into();
        let distance = other.distance(self, of);
        if distance.min >= 0 {
            other
        } else if distance.max <= 0 {
            self
        } else {
            self.max(other)
        }
    }
}

/// Bounds of a sum of products.
fn range_of(terms: &[Term], of: &dyn Fn(u32) -> SymRange) -> SymRange {
    const FAR: i128 = 1 << 96;
    // Wide sums: saturating one after the other, what exceeds i64 in between would be lost.
    let (mut min, mut max) = (0i128, 0i128);
    for Term { atoms, coefficient } in terms {
        let mut product = SymRange::new(*coefficient, *coefficient);
        for a in atoms {
            product = mul_range(product, a.range(of));
        }
        // A term that may be as small or as large as all of `i64` has no end there.
        min += if product.min == i64::MIN { -FAR } else { product.min.into() };
        max += if product.max == i64::MAX { FAR } else { product.max.into() };
    }
    let clamp = |n: i128| n.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
    SymRange::new(clamp(min), clamp(max))
}

impl Atom {
    fn range(self, of: &dyn Fn(u32) -> SymRange) -> SymRange {
        match self {
            Atom::Sym(s) => of(s),
            Atom::FloorDiv(x, y) => {
                let (x, y) = (x.range(of), y.range(of));
                let (low, high) = (y.min.max(1), y.max.max(1));
                SymRange::new(
                    x.min.div_euclid(if x.min < 0 { low } else { high }),
                    x.max.div_euclid(if x.max < 0 { high } else { low }),
                )
            }
            Atom::Mod(x, y) => {
                let (x, y) = (x.range(of), y.range(of));
                let most = y.max.saturating_sub(1).max(0);
                SymRange::new(0, if x.min >= 0 { most.min(x.max) } else { most })
            }
            Atom::Min(x, y) => {
                let (x, y) = (x.range(of), y.range(of));
                SymRange::new(x.min.min(y.min), x.max.min(y.max))
            }
            Atom::Max(x, y) => {
                let (x, y) = (x.range(of), y.range(of));
                SymRange::new(x.min.max(y.min), x.max.max(y.max))
            }
            Atom::TooLarge => SymRange::new(i64::MIN, i64::MAX),
        }
    }
}

fn mul_range(a: SymRange, b: SymRange) -> SymRange {
    let products = [
        a.min.saturating_mul(b.min),
        a.min.saturating_mul(b.max),
        a.max.saturating_mul(b.min),
        a.max.saturating_mul(b.max),
    ];
    let (mut min, mut max) = (i64::MAX, i64::MIN);
    for p in products {
        min = min.min(p);
        max = max.max(p);
    }
    SymRange { min, max }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dim::sym;

    #[test]
    fn ranges_bound_every_value() {
        let (b, s) = (Extent::sym(sym::BATCH), Extent::sym(sym::SEQ));
        let of = |q: u32| if q == sym::BATCH { SymRange::new(1, 8) } else { SymRange::new(0, 128) };
        assert_eq!((b * s - 1).range(&of), SymRange::new(-1, 1023));
        assert_eq!(s.floor_div(b).range(&of), SymRange::new(0, 128));
        assert_eq!(s.modulo(b + 1).range(&of), SymRange::new(0, 8));
    }

    /// Random expressions: whatever they evaluate to is within their range, at the ends of `i64` too.
    #[test]
    fn values_lie_within_ranges_also_where_arithmetic_overflows() {
        let mut state = 7u64;
        let mut next = move |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let mut values = 0;
        for _ in 0..3000 {
            let mut stack: Vec<Extent> = vec![Extent::sym(sym::BATCH), Extent::sym(sym::SEQ)];
            for _ in 0..6 {
                let (a, b) =
                    (stack[next(stack.len() as u64) as usize], stack[next(stack.len() as u64) as usize]);
                let number = [0, 1, -1, 3, 1 << 20, 1 << 40, i64::MAX, i64::MIN, -7][next(9) as usize];
                stack.push(match next(9) {
                    0 => a + b,
                    1 => a - b,
                    2 => a * b,
                    3 => a.floor_div(b),
                    4 => a.modulo(b),
                    5 => a.min(b),
                    6 => a.max(b),
                    7 => a * number,
                    _ => a + number,
                });
            }
            let most = [1i64 << next(62), 1 << next(62)];
            let given = most.map(|m| (next(1 << 20) as i64).min(m));
            let at = |q: u32| usize::from(q != sym::BATCH);
            for point in [given, most, [0, most[1]], [most[0], 0], [0, 0]] {
                for &e in &stack {
                    let range = e.range(&|q| SymRange::new(0, most[at(q)]));
                    let Some(value) = e.eval(&|q| Some(point[at(q)])) else { continue };
                    values += 1;
                    assert!(
                        range.min <= value && value <= range.max,
                        "{e} = {value} at {point:?}: {range:?}"
                    );
                }
            }
        }
        assert!(values > 10_000, "{values}");
    }
}
