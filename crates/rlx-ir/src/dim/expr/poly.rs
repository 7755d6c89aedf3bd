//! Arithmetic on sums of products as lists of terms.
//!
//! A list is in its normal form when its terms ascend by their atoms, no two have the same atoms, and no coefficient is 0.
//! A number is the term without atoms, which comes first.

use std::cmp::Ordering;

use smallvec::{SmallVec, smallvec};

use super::Atom;
use super::limits::{MOST_WORK, charge};
use crate::sort::sort_by;

/// Most products are of one atom.
pub(super) type Atoms = SmallVec<[Atom; 1]>;

/// A product of atoms (sorted; none make 1) and a coefficient.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Term {
    pub atoms: Atoms,
    pub coefficient: i64,
}

impl Term {
    /// One atom.
    pub fn of(atom: Atom) -> Term {
        Term { atoms: smallvec![atom], coefficient: 1 }
    }

    /// A number.
    pub fn number(coefficient: i64) -> Term {
        Term { atoms: Atoms::new(), coefficient }
    }
}

/// What is added to the other terms.
pub(super) fn constant(terms: &[Term]) -> i64 {
    terms.first().filter(|t| t.atoms.is_empty()).map_or(0, |t| t.coefficient)
}

/// `a + factor·b`.
pub(super) fn sum(a: &[Term], b: &[Term], factor: i64) -> Vec<Term> {
    charge(a.len() + b.len());
    let mut sum = Vec::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let scaled = |t: &Term| t.coefficient.saturating_mul(factor);
    loop {
        let order = match (a.peek(), b.peek()) {
            (Some(x), Some(y)) => x.atoms.cmp(&y.atoms),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return sum,
        };
        let left = if order.is_le() { a.next() } else { None };
        let right = if order.is_ge() { b.next() } else { None };
        let coefficient = match (left, right) {
            (Some(x), Some(y)) => x.coefficient.saturating_add(scaled(y)),
            (x, y) => x.map_or(0, |x| x.coefficient) + y.map_or(0, scaled),
        };
        if let Some(term) = left.or(right).filter(|_| coefficient != 0) {
            sum.push(Term { atoms: term.atoms.clone(), coefficient });
        }
    }
}

/// `number·terms`.
pub(super) fn scaled(terms: &[Term], number: i64) -> Vec<Term> {
    charge(terms.len());
    let scaled =
        |t: &Term| Term { atoms: t.atoms.clone(), coefficient: t.coefficient.saturating_mul(number) };
    terms.iter().map(scaled).filter(|t| t.coefficient != 0).collect()
}

/// `a·b`, unless that is more work than any product of expressions within the limits needs.
pub(super) fn product(a: &[Term], b: &[Term]) -> Option<Vec<Term>> {
    let atoms = |terms: &[Term]| terms.iter().map(|t| t.atoms.len() + 1).sum::<usize>();
    let work = a.len() * atoms(b) + b.len() * atoms(a);
    if work > MOST_WORK {
        return None;
    }
    charge(work);
    let mut terms = Vec::with_capacity(a.len() * b.len());
    for x in a {
        for y in b {
            let coefficient = x.coefficient.saturating_mul(y.coefficient);
            terms.push(Term { atoms: merged(&x.atoms, &y.atoms), coefficient });
        }
    }
    Some(normal(terms))
}

/// The atoms of both lists, in order.
fn merged(a: &[Atom], b: &[Atom]) -> Atoms {
    let mut merged = Atoms::with_capacity(a.len() + b.len());
    let mut b = b.iter().peekable();
    for x in a {
        while let Some(y) = b.next_if(|&y| y < x) {
            merged.push(*y);
        }
        merged.push(*x);
    }
    merged.extend(b.copied());
    merged
}

/// The normal form of a sum.
pub(super) fn normal(mut terms: Vec<Term>) -> Vec<Term> {
    sort_by(&mut terms, |a, b| a.atoms.cmp(&b.atoms));
    terms.dedup_by(|next, kept| {
        let same = next.atoms == kept.atoms;
        if same {
            kept.coefficient = kept.coefficient.saturating_add(next.coefficient);
        }
        same
    });
    terms.retain(|t| t.coefficient != 0);
    terms
}

/// `a - b`, when that is a number.
pub(super) fn constant_difference(a: &[Term], b: &[Term]) -> Option<i64> {
    let symbolic = |terms: &[Term]| usize::from(terms.first().is_some_and(|t| t.atoms.is_empty()));
    let same = a[symbolic(a)..] == b[symbolic(b)..];
    same.then(|| constant(a).saturating_sub(constant(b)))
}

/// `atoms / by` as products, when every factor of `by` is there. Both are sorted.
pub(super) fn divide_atoms(atoms: &[Atom], by: &[Atom]) -> Option<Atoms> {
    let mut left = Atoms::with_capacity(atoms.len().checked_sub(by.len())?);
    let mut by = by.iter().peekable();
    for a in atoms {
        if by.next_if_eq(&a).is_none() {
            left.push(*a);
        }
    }
    by.peek().is_none().then_some(left)
}
