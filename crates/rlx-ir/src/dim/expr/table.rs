//! The table of expressions: each is there once, for the life of the process.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use super::limits::{MOST_DEPTH, MOST_PARTS, MOST_TERMS, may_make, take};
use super::poly::Term;
use super::{Atom, ExprId, Extent};

struct Entry {
    terms: Arc<[Term]>,
    /// Products, symbols and functions, those of inner expressions counted wherever they occur.
    parts: u32,
    /// How deep functions lie in functions.
    depth: u32,
}

struct Table {
    ids: HashMap<Arc<[Term]>, u32>,
    entries: Vec<Entry>,
}

static TABLE: LazyLock<RwLock<Table>> = LazyLock::new(|| {
    // The first one is `Extent::TOO_LARGE`; no arithmetic makes its terms.
    let terms = Arc::from([Term::of(Atom::TooLarge)]);
    RwLock::new(Table { ids: HashMap::new(), entries: vec![Entry { terms, parts: 1, depth: 0 }] })
});

/// The terms of an expression.
pub(super) fn terms_of(e: Extent) -> Arc<[Term]> {
    match e {
        Extent::Const(0) => Arc::new([]),
        Extent::Const(c) => Arc::new([Term::number(c)]),
        Extent::Expr(ExprId(id)) => {
            let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(&table.entries[id as usize].terms)
        }
    }
}

/// The expression with these terms, which are in their normal form.
pub(super) fn intern(terms: Vec<Term>) -> Extent {
    match terms.as_slice() {
        [] => return Extent::Const(0),
        [one] if one.atoms.is_empty() => return Extent::Const(one.coefficient),
        _ if terms.len() > MOST_TERMS || !may_make() => return Extent::TOO_LARGE,
        _ => {}
    }
    let own = terms.iter().map(|t| 1 + t.atoms.len()).sum();
    let found = TABLE.read().unwrap_or_else(PoisonError::into_inner).ids.get(terms.as_slice()).copied();
    let id = match found {
        Some(id) => id,
        None => match TABLE.write().unwrap_or_else(PoisonError::into_inner).add(terms) {
            Some(id) => id,
            None => return Extent::TOO_LARGE,
        },
    };
    take(id, own);
    Extent::Expr(ExprId(id))
}

impl Table {
    /// Puts an expression in, unless it is larger than the limits.
    fn add(&mut self, terms: Vec<Term>) -> Option<u32> {
        let (parts, depth) = self.size(&terms);
        // Another thread may have been here since.
        if let Some(&id) = self.ids.get(terms.as_slice()) {
            return Some(id);
        }
        if parts > MOST_PARTS || depth > MOST_DEPTH {
            return None;
        }
        let id = u32::try_from(self.entries.len()).ok()?;
        let terms: Arc<[Term]> = terms.into();
        self.entries.push(Entry { terms: Arc::clone(&terms), parts, depth });
        self.ids.insert(terms, id);
        Some(id)
    }

    fn size(&self, terms: &[Term]) -> (u32, u32) {
        let of = |e: Extent| match e {
            Extent::Const(_) => (1, 0),
            Extent::Expr(ExprId(id)) => {
                let entry = &self.entries[id as usize];
                (entry.parts, entry.depth)
            }
        };
        let (mut parts, mut depth) = (0u32, 0);
        for term in terms {
            parts = parts.saturating_add(1);
            for &atom in &term.atoms {
                let (more, deep) = match atom {
                    Atom::Sym(_) | Atom::TooLarge => (1, 0),
                    Atom::FloorDiv(x, y) | Atom::Mod(x, y) | Atom::Min(x, y) | Atom::Max(x, y) => {
                        let (x, y) = (of(x), of(y));
                        (x.0.saturating_add(y.0).saturating_add(1), x.1.max(y.1) + 1)
                    }
                };
                parts = parts.saturating_add(more);
                depth = depth.max(deep);
            }
        }
        (parts, depth)
    }
}
