//! The table of expressions: each is there once, as long as it has an owner (see [`crate::dim::owners`]).

use std::ops::Deref;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use super::limits::{MOST_DEPTH, MOST_PARTS, MOST_TERMS, may_make, take};
use super::poly::Term;
use super::{Atom, ExprId, Extent};
use crate::dim::owners::{MOST_UNUSED, Owners, Unused, own_expr, remember, remembered};
use crate::dim::sym;
use crate::maps::HashMap;

struct Entry {
    terms: Arc<[Term]>,
    /// Products, symbols and functions, those of inner expressions counted wherever they occur.
    parts: u32,
    /// How deep functions are in functions.
    depth: u32,
    owners: Owners,
}

/// A place for an expression, and how many have been there before.
struct Slot {
    generation: u32,
    entry: Option<Entry>,
}

#[derive(Default)]
struct Table {
    ids: HashMap<Arc<[Term]>, ExprId>,
    /// The expressions of one symbol, by the symbol: most that are asked for are such.
    symbols: HashMap<u32, ExprId>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    unused: Unused<ExprId>,
}

static TABLE: LazyLock<RwLock<Table>> = LazyLock::new(|| {
    // The first slot is that of `Extent::TOO_LARGE`: always empty, as if its expression were gone.
    let slots = vec![Slot { generation: 0, entry: None }];
    RwLock::new(Table { slots, ..Table::default() })
});

/// One term of one atom.
const PARTS_OF_SYMBOL: usize = 2;

/// The terms of [`Extent::TOO_LARGE`] and of what is gone with its owners; no arithmetic makes them.
static TOO_LARGE: LazyLock<Arc<[Term]>> = LazyLock::new(|| Arc::new([Term::of(Atom::TooLarge)]));

/// The terms of an [`Extent`]: those of a number are made without memory of their own.
pub(super) enum Terms {
    None,
    Number([Term; 1]),
    Shared(Arc<[Term]>),
}

impl Deref for Terms {
    type Target = [Term];

    fn deref(&self) -> &[Term] {
        match self {
            Terms::None => &[],
            Terms::Number(term) => term,
            Terms::Shared(terms) => terms,
        }
    }
}

/// The terms of an expression; those of [`Extent::TOO_LARGE`] when it is gone with its owners.
pub(super) fn terms_of(e: Extent) -> Terms {
    match e {
        Extent::Const(0) => Terms::None,
        Extent::Const(c) => Terms::Number([Term::number(c)]),
        Extent::Expr(id) => {
            let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
            Terms::Shared(Arc::clone(table.entry(id).map_or(&*TOO_LARGE, |entry| &entry.terms)))
        }
    }
}

/// The value of a symbol.
pub(super) fn of_symbol(symbol: u32) -> Extent {
    if !may_make() {
        return Extent::TOO_LARGE;
    }
    if let Some(id) = remembered(symbol) {
        return Extent::Expr(id);
    }
    let known = TABLE.read().unwrap_or_else(PoisonError::into_inner).find_symbol(symbol);
    let found = match known {
        Some(id) => {
            take(id, PARTS_OF_SYMBOL);
            Extent::Expr(id)
        }
        None => intern(vec![Term::of(Atom::Sym(symbol))]),
    };
    if let Extent::Expr(id) = found
        && id != ExprId::TOO_LARGE
    {
        remember(symbol, id);
    }
    found
}

/// The expression with these terms, which are in their normal form.
pub(super) fn intern(terms: Vec<Term>) -> Extent {
    match terms.as_slice() {
        [] => return Extent::Const(0),
        [one] if one.atoms.is_empty() => return Extent::Const(one.coefficient),
        _ if terms.len() > MOST_TERMS || !may_make() => return Extent::TOO_LARGE,
        // Made of what is gone.
        _ if terms.iter().any(|t| t.atoms.contains(&Atom::TooLarge)) => return Extent::TOO_LARGE,
        _ => {}
    }
    let own = terms.iter().map(|t| 1 + t.atoms.len()).sum();
    let found = TABLE.read().unwrap_or_else(PoisonError::into_inner).find(&terms);
    let added = || TABLE.write().unwrap_or_else(PoisonError::into_inner).add(terms);
    match found.or_else(added) {
        Some(id) => {
            take(id, own);
            Extent::Expr(id)
        }
        None => Extent::TOO_LARGE,
    }
}

/// Makes an expression that is there another owner's; `false` when it is not there.
pub(in crate::dim) fn add_owner(id: ExprId) -> bool {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    table.entry(id).map(|entry| entry.owners.add()).is_some()
}

/// Takes an owner from each expression. Of those without one the oldest go, and what they alone own.
pub(in crate::dim) fn release(ids: impl IntoIterator<Item = ExprId>) {
    let mut table = TABLE.write().unwrap_or_else(PoisonError::into_inner);
    ids.into_iter().for_each(|id| table.remove_owner(id));
    table.release_to(MOST_UNUSED);
}

/// Removes expressions without an owner until so many are left.
pub(in crate::dim) fn release_to(count: usize) {
    TABLE.write().unwrap_or_else(PoisonError::into_inner).release_to(count);
}

/// How many expressions have an owner.
pub(in crate::dim) fn count() -> usize {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    table.slots.iter().filter(|slot| slot.entry.as_ref().is_some_and(|entry| entry.owners.any())).count()
}

/// The expressions and symbols that occur in the functions and products of `terms`.
fn inner(terms: &[Term], mut expr: impl FnMut(ExprId), mut symbol: impl FnMut(u32)) {
    for &atom in terms.iter().flat_map(|t| &t.atoms) {
        match atom {
            Atom::Sym(s) => symbol(s),
            Atom::TooLarge => {}
            Atom::FloorDiv(x, y) | Atom::Mod(x, y) | Atom::Min(x, y) | Atom::Max(x, y) => {
                let ids =
                    [x, y].into_iter().filter_map(|e| if let Extent::Expr(id) = e { Some(id) } else { None });
                ids.for_each(&mut expr);
            }
        }
    }
}

/// The symbol, if these are the terms of just one.
fn only_symbol(terms: &[Term]) -> Option<u32> {
    match terms {
        [Term { atoms, coefficient: 1 }] => match **atoms {
            [Atom::Sym(symbol)] => Some(symbol),
            _ => None,
        },
        _ => None,
    }
}

impl Table {
    fn entry(&self, id: ExprId) -> Option<&Entry> {
        let slot = self.slots.get(id.slot as usize)?;
        slot.entry.as_ref().filter(|_| slot.generation == id.generation)
    }

    /// The expression with these terms; it is the calling thread's from here on.
    fn find(&self, terms: &[Term]) -> Option<ExprId> {
        let &id = self.ids.get(terms)?;
        own_expr(id, &self.entry(id)?.owners);
        Some(id)
    }

    /// The expression of this symbol; it is the calling thread's from here on.
    fn find_symbol(&self, symbol: u32) -> Option<ExprId> {
        let &id = self.symbols.get(&symbol)?;
        own_expr(id, &self.entry(id)?.owners);
        Some(id)
    }

    /// Puts an expression in, unless it is larger than the limits.
    fn add(&mut self, terms: Vec<Term>) -> Option<ExprId> {
        // Another thread may have been here since.
        if let Some(id) = self.find(&terms) {
            return Some(id);
        }
        let (parts, depth) = self.size(&terms);
        if parts > MOST_PARTS || depth > MOST_DEPTH {
            return None;
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = u32::try_from(self.slots.len()).ok()?;
                self.slots.push(Slot { generation: 0, entry: None });
                slot
            }
        };
        let place = &mut self.slots[slot as usize];
        let id = ExprId { slot, generation: place.generation };
        let terms: Arc<[Term]> = terms.into();
        let owners = Owners::default();
        own_expr(id, &owners);
        place.entry = Some(Entry { terms: Arc::clone(&terms), parts, depth, owners });
        inner(&terms, |e| _ = self.entry(e).map(|entry| entry.owners.add()), |s| _ = sym::add_owner(s));
        if let Some(symbol) = only_symbol(&terms) {
            self.symbols.insert(symbol, id);
        }
        self.ids.insert(terms, id);
        Some(id)
    }

    fn remove_owner(&mut self, id: ExprId) {
        if self.entry(id).is_some_and(|entry| entry.owners.remove()) {
            self.unused.push_back(id);
        }
    }

    fn release_to(&mut self, count: usize) {
        let mut names = Vec::new();
        while self.unused.len() > count
            && let Some(id) = self.unused.pop_front()
        {
            let Some(gone) = self.remove(id) else { continue };
            inner(&gone.terms, |e| self.remove_owner(e), |s| names.push(s));
        }
        sym::release(names);
    }

    /// Takes out an expression that has no owner.
    fn remove(&mut self, id: ExprId) -> Option<Entry> {
        self.entry(id).filter(|entry| !entry.owners.any())?;
        let slot = self.slots.get_mut(id.slot as usize)?;
        let entry = slot.entry.take()?;
        self.ids.remove(&entry.terms);
        if let Some(symbol) = only_symbol(&entry.terms) {
            self.symbols.remove(&symbol);
        }
        // A place whose generations are used up stays empty.
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            self.free.push(id.slot);
        }
        Some(entry)
    }

    /// Parts and depth of an expression with these terms.
    fn size(&self, terms: &[Term]) -> (u32, u32) {
        // What is gone is as good as too large.
        let gone = (MOST_PARTS, MOST_DEPTH);
        let of = |e: Extent| match e {
            Extent::Const(_) => (1, 0),
            Extent::Expr(id) => self.entry(id).map_or(gone, |entry| (entry.parts, entry.depth)),
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
