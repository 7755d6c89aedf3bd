//! Upper bounds of expressions as expressions.

use super::{Atom, Extent, Term, terms_of};

/// What a symbol is at most; `None` for symbols that stay as they are.
type Bound<'a> = &'a dyn Fn(u32) -> Option<Extent>;

impl Extent {
    /// An expression that is never less than this one, without the symbols that `bound` bounds; those are not negative,
    /// and neither are the factors they stand with (sizes are products of dimensions).
    ///
    /// ```
    /// use rlx_ir::{Extent, sym};
    /// let (n, batch) = (Extent::sym(sym::named("found")), Extent::sym(sym::BATCH));
    /// let most = (n * 4 + 1).upper(&|s| (s == sym::named("found")).then_some(batch * 10));
    /// assert_eq!(most, batch * 40 + 1);
    /// ```
    pub fn upper(self, bound: Bound<'_>) -> Extent {
        self.limit(bound, true)
    }

    /// The largest or the smallest value.
    fn limit(self, bound: Bound<'_>, upper: bool) -> Extent {
        let mut bounded = false;
        self.each_symbol(&mut |s| bounded |= bound(s).is_some());
        if !bounded {
            return self;
        }
        let mut sum = Extent::Const(0);
        for Term { atoms, coefficient } in terms_of(self).iter() {
            let up = upper == (*coefficient > 0);
            let product = atoms.iter().fold(Extent::Const(*coefficient), |p, &a| p * a.limit(bound, up));
            sum = sum + product;
        }
        sum
    }
}

impl Atom {
    fn limit(self, bound: Bound<'_>, upper: bool) -> Extent {
        match self {
            Atom::Sym(s) => match bound(s) {
                Some(most) if upper => most,
                Some(_) => Extent::Const(0),
                None => Extent::sym(s),
            },
            Atom::FloorDiv(x, y) => x.limit(bound, upper).floor_div(y.limit(bound, !upper).max(1)),
            Atom::Mod(x, y) if x.limit(bound, true) == x && y.limit(bound, true) == y => x.modulo(y),
            Atom::Mod(_, y) if upper => y.limit(bound, true) - 1,
            Atom::Mod(..) => Extent::Const(0),
            Atom::Min(x, y) => x.limit(bound, upper).min(y.limit(bound, upper)),
            Atom::Max(x, y) => x.limit(bound, upper).max(y.limit(bound, upper)),
            Atom::TooLarge => Extent::TOO_LARGE,
        }
    }
}
