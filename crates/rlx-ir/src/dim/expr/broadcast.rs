//! Sizes that broadcast to each other by NumPy's rule.

use std::collections::BTreeSet;

use super::table::terms_of;
use super::{Atom, Extent};

impl Extent {
    /// The size that two sizes broadcast to, where values decide which of them are 1: their maximum, or 0 where one of them
    /// is 0. However often the same sizes broadcast to each other, the expression is the same:
    ///
    /// ```
    /// use rlx_ir::{Extent, sym};
    /// let (a, b) = (Extent::sym(sym::BATCH), Extent::sym(sym::SEQ));
    /// let both = a.broadcast(b);
    /// assert_eq!(both.broadcast(a).broadcast(b), both);
    /// let at = |x: i64, y: i64| both.eval(&|s| Some(if s == sym::BATCH { x } else { y }));
    /// assert_eq!([at(5, 1), at(1, 7), at(1, 0)], [Some(5), Some(7), Some(0)]);
    /// ```
    pub fn broadcast(self, other: Extent) -> Extent {
        let (mut all, others) = (self.broadcast_parts(), other.broadcast_parts());
        if others.is_subset(&all) {
            return self;
        }
        if all.is_subset(&others) {
            return other;
        }
        all.extend(others);
        broadcast_of(&all)
    }

    /// The sizes that this one was made of by [`Extent::broadcast`]; itself, if it was not.
    fn broadcast_parts(self) -> BTreeSet<Extent> {
        let mut parts = BTreeSet::new();
        if let [term] = &*terms_of(self) {
            for &atom in term.atoms.iter().filter(|atom| matches!(atom, Atom::Max(..))) {
                greatest_of(atom, &mut parts);
            }
        }
        if parts.is_empty() || broadcast_of(&parts) != self { BTreeSet::from([self]) } else { parts }
    }

    /// By what a stride or an index is multiplied where a dimension of this size broadcasts to one of size `to`: 0 where
    /// it is 1 and is repeated, 1 where it is equal. Where the expressions differ, the values decide.
    ///
    /// ```
    /// use rlx_ir::{Extent, sym};
    /// let (a, b) = (Extent::sym(sym::BATCH), Extent::sym(sym::SEQ));
    /// assert_eq!(a.broadcast_factor(a), Extent::Const(1));
    /// assert_eq!(Extent::Const(1).broadcast_factor(b), Extent::Const(0));
    /// let at = |n: i64| a.broadcast_factor(b).eval(&|_| Some(n));
    /// assert_eq!([at(1), at(5)], [Some(0), Some(1)]);
    /// ```
    pub fn broadcast_factor(self, to: impl Into<Extent>) -> Extent {
        match self {
            Extent::Const(1) => Extent::Const(0),
            _ if self == to.into() => Extent::Const(1),
            Extent::Const(_) => Extent::Const(1),
            Extent::Expr(_) => (self - 1).max(0).min(1),
        }
    }
}

/// What these broadcast to.
fn broadcast_of(parts: &BTreeSet<Extent>) -> Extent {
    let mut parts = parts.iter().copied();
    let first = parts.next().unwrap_or(Extent::Const(1));
    let (max, min) = parts.fold((first, first), |(max, min), part| (max.max(part), min.min(part)));
    max * min.min(1)
}

/// Adds what `atom` is the maximum of.
fn greatest_of(atom: Atom, parts: &mut BTreeSet<Extent>) {
    let Atom::Max(x, y) = atom else { return };
    for e in [x, y] {
        match e.as_atom() {
            Some(inner @ Atom::Max(..)) => greatest_of(inner, parts),
            _ => _ = parts.insert(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_sizes_broadcast_to_an_expression_of_their_number() {
        let sizes: Vec<Extent> = (600..616).map(Extent::sym).collect();
        let mut all = sizes[0];
        for _ in 0..3 {
            all = sizes.iter().fold(all, |all, &size| size.broadcast(all));
        }
        assert!(!all.is_too_large() && all.to_string().len() < 400, "{all}");
        let at = |zero: u32, large: u32| {
            all.eval(&|s| {
                Some(if s == zero {
                    0
                } else if s == large {
                    9
                } else {
                    1
                })
            })
        };
        assert_eq!([at(0, 0), at(0, 607), at(603, 607)], [Some(1), Some(9), Some(0)]);
    }

    #[test]
    fn sizes_that_are_maxima_themselves_are_parts() {
        let (a, b) = (Extent::sym(620).max(4), Extent::sym(621));
        let both = a.broadcast(b);
        for (x, y) in [(1, 1), (1, 4), (9, 9), (2, 0)] {
            let value = |s: u32| Some(if s == 620 { x } else { y });
            let want = if y == 0 { 0 } else { x.max(4).max(y) };
            assert_eq!(both.eval(&value), Some(want));
            assert_eq!(both.broadcast(b).eval(&value), Some(want));
        }
    }
}
