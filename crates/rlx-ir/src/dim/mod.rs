//! Dimensions: numbers, symbols, and integer expressions over symbols.
//!
//! A [`Dim`] is what a shape holds: a fixed size, a symbol such as [`sym::BATCH`], or an interned
//! expression such as `batch*12` or `seq + past_seq`. An [`Extent`] is the same thing as an operand of
//! arithmetic: a 64-bit integer, possibly negative (an offset, a stride), that is constant or symbolic.
//! Expressions are kept in a normal form (a sum of products), so equal polynomials are equal values:
//!
//! ```
//! use rlx_ir::{Dim, Extent, sym};
//! let (b, s) = (Extent::sym(sym::BATCH), Extent::sym(sym::SEQ));
//! assert_eq!((b + s) * 12, s * 12 + b * 12);
//! assert_eq!((b * s * 64).floor_div(s * 64), b);
//! assert_eq!(Dim::from(b * 2 + 1).to_string(), "1 + 2*batch");
//! ```
//!
//! Names and expressions live as long as what mentions them: see [`scoped`] and [`Held`].

mod expr;
mod owners;
pub mod sym;

pub use expr::{ExprBudget, ExprId, Extent, SymRange, check_extents};
pub use owners::{Held, entries, release_unused, scoped};

use std::collections::BTreeMap;
use std::fmt;

/// One dimension of a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Dim {
    /// A size known when the graph is built.
    Static(usize),
    /// A symbol (see [`sym`]) whose value the run gives.
    Dynamic(u32),
    /// An integer expression over symbols.
    Expr(ExprId),
}

impl Dim {
    /// The size, if it is fixed.
    pub fn as_static(self) -> Option<usize> {
        match self {
            Dim::Static(n) => Some(n),
            _ => None,
        }
    }

    /// Whether the size is fixed.
    pub fn is_static(self) -> bool {
        matches!(self, Dim::Static(_))
    }

    /// The dimension as an integer expression.
    pub fn extent(self) -> Extent {
        match self {
            Dim::Static(n) => Extent::Const(i64::try_from(n).unwrap_or(i64::MAX)),
            Dim::Dynamic(s) => Extent::sym(s),
            Dim::Expr(e) => Extent::Expr(e),
        }
    }

    /// Calls `found` with each symbol that occurs, perhaps more than once.
    pub fn each_symbol(self, found: &mut dyn FnMut(u32)) {
        match self {
            Dim::Static(_) => {}
            Dim::Dynamic(symbol) => found(symbol),
            Dim::Expr(id) => Extent::Expr(id).each_symbol(found),
        }
    }

    /// Whether `symbol` occurs.
    pub fn mentions(self, symbol: u32) -> bool {
        let mut mentions = false;
        self.each_symbol(&mut |s| mentions |= s == symbol);
        mentions
    }

    /// The value when `value` knows every symbol; see [`Extent::eval`].
    pub fn eval(self, value: &dyn Fn(u32) -> Option<i64>) -> Option<i64> {
        match self {
            Dim::Static(n) => i64::try_from(n).ok(),
            Dim::Dynamic(symbol) => value(symbol),
            Dim::Expr(id) => Extent::Expr(id).eval(value),
        }
    }

    /// Puts the bound symbols' values in.
    pub fn bind(self, binding: &DimBinding) -> Dim {
        match self {
            Dim::Static(_) => self,
            _ => Dim::from(self.extent().bind(binding)),
        }
    }
}

impl From<usize> for Dim {
    fn from(n: usize) -> Dim {
        Dim::Static(n)
    }
}

impl From<Extent> for Dim {
    /// A negative constant (which no valid shape has) becomes 0.
    fn from(e: Extent) -> Dim {
        match e {
            Extent::Const(c) => Dim::Static(usize::try_from(c).unwrap_or(0)),
            Extent::Expr(id) => match e.as_sym() {
                Some(s) => Dim::Dynamic(s),
                None => Dim::Expr(id),
            },
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Static(n) => write!(f, "{n}"),
            Dim::Dynamic(symbol) => f.write_str(&sym::quoted_name(*symbol)),
            Dim::Expr(id) => Extent::Expr(*id).fmt(f),
        }
    }
}

/// Values for symbols.
///
/// ```
/// use rlx_ir::{DimBinding, sym};
/// let b = DimBinding::batch_seq(1, 128);
/// assert_eq!(b.get(sym::SEQ), Some(128));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct DimBinding {
    values: BTreeMap<u32, usize>,
}

impl DimBinding {
    /// No values.
    pub fn new() -> Self {
        Self::default()
    }

    /// The values of `pairs`; a later pair wins over an earlier one of the same symbol.
    pub fn from_pairs(pairs: &[(u32, usize)]) -> Self {
        DimBinding { values: pairs.iter().copied().collect() }
    }

    /// [`sym::BATCH`] and [`sym::SEQ`].
    pub fn batch_seq(batch: usize, seq: usize) -> Self {
        Self::from_pairs(&[(sym::BATCH, batch), (sym::SEQ, seq)])
    }

    /// [`sym::BATCH`] and [`sym::PAST_SEQ`].
    pub fn batch_past_seq(batch: usize, past_seq: usize) -> Self {
        Self::from_pairs(&[(sym::BATCH, batch), (sym::PAST_SEQ, past_seq)])
    }

    /// Gives `symbol` a value, replacing an earlier one.
    pub fn set(&mut self, symbol: u32, value: usize) -> &mut Self {
        self.values.insert(symbol, value);
        self
    }

    /// The value of `symbol`, if it has one.
    pub fn get(&self, symbol: u32) -> Option<usize> {
        self.values.get(&symbol).copied()
    }

    /// How many symbols have a value.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether no symbol has a value.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Symbols and values, by ascending symbol.
    pub fn iter(&self) -> impl Iterator<Item = (u32, usize)> + '_ {
        self.values.iter().map(|(&s, &v)| (s, v))
    }
}
