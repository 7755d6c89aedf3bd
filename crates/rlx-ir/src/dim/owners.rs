//! How long names and expressions of dimensions live.
//!
//! A [`super::Dim`] is a number that refers to a table of the process, so that shapes are small and can be compared by
//! comparing numbers. An entry of the table lives as long as it has an owner:
//!
//! - a [`Held`], which a graph has for what its nodes mention, and anyone else who keeps dimensions;
//! - an expression that it occurs in;
//! - the stretch of work that made it: what is made inside [`scoped`] belongs to the outermost call until that returns;
//! - the process, for what is made elsewhere.
//!
//! So a program that imports, compiles and drops models for ever needs no more memory for the thousandth than for the
//! second. The last few thousand entries that lost their owners stay for a while, so that a shape may be taken from one graph
//! and put into the next. A dimension whose entry is gone has no value and no name: using it is an error, never another's
//! value. Who keeps dimensions for longer keeps a [`Held`], or the graph.
//!
//! ```
//! use rlx_ir::dim::{Held, entries, release_unused, scoped};
//! use rlx_ir::{Extent, sym};
//!
//! let before = entries();
//! let held = Held::default();
//! let size = scoped(|| {
//!     let size = Extent::sym(sym::named("rows of a table")) * 24;
//!     held.extent(size);
//!     size
//! });
//! assert_eq!(size.eval(&|_| Some(2)), Some(48));
//! drop(held);
//! release_unused();
//! assert_eq!(entries(), before);
//! assert_eq!(size.eval(&|_| Some(2)), None);
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::expr::{self, ExprId, Extent};
use super::{Dim, sym};
use crate::maps::{HashMap, HashSet};

/// The owners of an entry.
#[derive(Default)]
pub(super) struct Owners {
    count: AtomicU32,
    /// Whether the process is one.
    process: AtomicBool,
}

impl Owners {
    pub(super) fn add(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether none is left. The caller has the table for itself.
    pub(super) fn remove(&self) -> bool {
        self.count.fetch_sub(1, Ordering::Relaxed);
        !self.any()
    }

    fn add_process(&self) {
        self.process.store(true, Ordering::Relaxed);
    }

    /// Whether there is one.
    pub(super) fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0 || self.process.load(Ordering::Relaxed)
    }
}

/// What one owner owns.
#[derive(Default)]
struct Owned {
    exprs: HashSet<ExprId>,
    symbols: HashSet<u32>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        if !self.exprs.is_empty() {
            expr::release(self.exprs.drain());
        }
        if !self.symbols.is_empty() {
            sym::release(self.symbols.drain());
        }
    }
}

/// What was made since the outermost [`scoped`] of a thread began.
#[derive(Default)]
struct Made {
    owned: Owned,
    /// The expressions of symbols among them: nothing is asked for as often, and here nothing is locked.
    of_symbols: HashMap<u32, ExprId>,
}

thread_local! {
    /// Whether the thread is inside of a [`scoped`].
    static OPEN: Cell<bool> = const { Cell::new(false) };
    /// Filled by the first thing that is made there: a run of a compiled graph makes none, and is to cost nothing.
    static MADE: RefCell<Option<Made>> = const { RefCell::new(None) };
}

/// What the open scope of this thread made; `None` outside of all.
fn in_scope<R>(f: impl FnOnce(&mut Made) -> R) -> Option<R> {
    OPEN.get().then(|| MADE.with_borrow_mut(|made| f(made.get_or_insert_default())))
}

/// The expression of a symbol, if this thread remembers it.
pub(super) fn remembered(symbol: u32) -> Option<ExprId> {
    MADE.with_borrow(|made| made.as_ref()?.of_symbols.get(&symbol).copied())
}

/// Remembers the expression of a symbol, which this thread just made or found, as long as it owns it.
pub(super) fn remember(symbol: u32, id: ExprId) {
    in_scope(|made| made.of_symbols.insert(symbol, id));
}

/// Forgets the expressions of symbols.
pub(super) fn forget() {
    MADE.with_borrow_mut(|made| _ = made.as_mut().map(|made| made.of_symbols.clear()));
}

/// Says that this thread made the expression, or found it, when it wanted it.
pub(super) fn own_expr(id: ExprId, owners: &Owners) {
    own(owners, |made| made.exprs.insert(id));
}

/// As [`own_expr`], for a named symbol.
pub(super) fn own_symbol(symbol: u32, owners: &Owners) {
    own(owners, |made| made.symbols.insert(symbol));
}

fn own(owners: &Owners, insert: impl FnOnce(&mut Owned) -> bool) {
    let added = in_scope(|made| {
        if insert(&mut made.owned) {
            owners.add();
        }
    });
    if added.is_none() {
        owners.add_process();
    }
}

/// Calls `work`. The names and expressions made in it that nothing holds by then are gone when it returns, if it was called
/// in no other one.
pub fn scoped<R>(work: impl FnOnce() -> R) -> R {
    let _scope = Scope::enter();
    work()
}

struct Scope {
    outermost: bool,
    /// It belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl Scope {
    fn enter() -> Scope {
        Scope { outermost: !OPEN.replace(true), _thread: PhantomData }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if self.outermost {
            OPEN.set(false);
            if MADE.with_borrow(Option::is_some) {
                // What it owns is released when the cell is free again.
                drop(MADE.take());
            }
        }
    }
}

/// Keeps names and expressions alive. A clone is the same owner.
#[derive(Clone, Default)]
pub struct Held(Arc<Mutex<Owned>>);

impl Held {
    /// Keeps an expression, with what it consists of.
    pub fn extent(&self, extent: Extent) {
        if let Extent::Expr(id) = extent
            && id != ExprId::TOO_LARGE
        {
            let mut owned = self.owned();
            if !owned.exprs.contains(&id) && expr::add_owner(id) {
                owned.exprs.insert(id);
            }
        }
    }

    /// Keeps the name of a symbol.
    pub fn symbol(&self, symbol: u32) {
        if sym::is_named(symbol) {
            let mut owned = self.owned();
            if !owned.symbols.contains(&symbol) && sym::add_owner(symbol) {
                owned.symbols.insert(symbol);
            }
        }
    }

    /// Keeps a dimension.
    pub fn dim(&self, dim: Dim) {
        match dim {
            Dim::Static(_) => {}
            Dim::Dynamic(symbol) => self.symbol(symbol),
            Dim::Expr(id) => self.extent(Extent::Expr(id)),
        }
    }

    fn owned(&self) -> std::sync::MutexGuard<'_, Owned> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owned = self.owned();
        write!(f, "Held({} expressions, {} names)", owned.exprs.len(), owned.symbols.len())
    }
}

/// How many expressions and names have an owner; an expression that has none owns its names until it goes.
pub fn entries() -> (usize, usize) {
    (expr::count(), sym::count())
}

/// Removes the expressions and names that have no owner, which would stay for a while otherwise.
pub fn release_unused() {
    expr::release_to(0);
    sym::release_to(0);
}

/// Entries without an owner, the oldest first. One that has found an owner again may still be among them.
pub(super) type Unused<T> = VecDeque<T>;

/// So many entries without an owner stay.
pub(super) const MOST_UNUSED: usize = 1 << 12;
