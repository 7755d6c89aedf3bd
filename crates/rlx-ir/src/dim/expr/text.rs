//! Expressions as text: the same whatever was interned first.

use std::cmp::Ordering;
use std::fmt;

use super::{Atom, Extent, terms_of};
use crate::dim::sym;
use crate::sort::{sort, sort_by};

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, x, y) = match self {
            Atom::Sym(s) => return f.write_str(&sym::quoted_name(*s)),
            Atom::FloorDiv(x, y) => ("floordiv", x, y),
            Atom::Mod(x, y) => ("mod", x, y),
            Atom::Min(x, y) => ("min", x, y),
            Atom::Max(x, y) => ("max", x, y),
            Atom::TooLarge => return f.write_str("(too large)"),
        };
        let (mut x, mut y) = (x.to_string(), y.to_string());
        // Ids depend on the order of interning; the text must not.
        if matches!(self, Atom::Min(..) | Atom::Max(..)) && x > y {
            std::mem::swap(&mut x, &mut y);
        }
        write!(f, "{name}({x}, {y})")
    }
}

impl fmt::Display for Extent {
    /// A sum of products in an order that depends on names only: `1 + 2*batch - seq`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Extent::Expr(_) = self else {
            return write!(f, "{}", self.as_const().unwrap_or(0));
        };
        let mut terms: Vec<(Vec<String>, i64)> = Vec::new();
        for term in terms_of(*self).iter() {
            let mut factors: Vec<String> = term.atoms.iter().map(Atom::to_string).collect();
            sort(&mut factors);
            terms.push((factors, term.coefficient));
        }
        sort_by(&mut terms, |a, b| match a.0.len().cmp(&b.0.len()) {
            Ordering::Equal => a.0.cmp(&b.0),
            other => other,
        });
        for (i, (factors, c)) in terms.iter().enumerate() {
            match (i, *c < 0) {
                (0, true) => f.write_str("-")?,
                (0, false) => {}
                (_, true) => f.write_str(" - ")?,
                (_, false) => f.write_str(" + ")?,
            }
            let magnitude = c.unsigned_abs();
            if factors.is_empty() {
                write!(f, "{magnitude}")?;
            } else if magnitude == 1 {
                f.write_str(&factors.join("*"))?;
            } else {
                write!(f, "{magnitude}*{}", factors.join("*"))?;
            }
        }
        Ok(())
    }
}
