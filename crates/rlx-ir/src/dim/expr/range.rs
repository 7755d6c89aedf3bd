//! The range of an expression's values, from the ranges of its symbols.

use super::{Atom, Extent};

/// The least and the greatest value something can take, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SymRange {
    /// The least value.
    pub min: i64,
    /// The greatest value; `i64::MAX` when nothing is known.
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
        let mut total = SymRange::new(0, 0);
        for (atoms, &coefficient) in self.poly().iter() {
            let mut product = SymRange::new(coefficient, coefficient);
            for a in atoms {
                product = mul_range(product, a.range(of));
            }
            total =
                SymRange::new(total.min.saturating_add(product.min), total.max.saturating_add(product.max));
        }
        total
    }

    /// As [`Extent::min`], deciding also by what is known of the symbols.
    pub fn min_within(self, other: impl Into<Extent>, of: &dyn Fn(u32) -> SymRange) -> Extent {
        let other = other.into();
        let distance = (other - self).range(of);
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
        let distance = (other - self).range(of);
        if distance.min >= 0 {
            other
        } else if distance.max <= 0 {
            self
        } else {
            self.max(other)
        }
    }
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
}
