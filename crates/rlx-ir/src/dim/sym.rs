//! Symbols of dimensions: well-known ones, named ones, and plain numbers.
//!
//! A symbol is a `u32`. The well-known ones have fixed numbers; [`named`] interns a name (an ONNX
//! `dim_param`, say) and gives it a number from 65,536 on, the same for the life of the process; a name that only a model
//! mentions lives as long as the model (see [`super::scoped`]). Numbers below that without a name are free for callers and
//! print as `s42`. No number is given to two names.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use crate::maps;

use super::owners::{MOST_UNUSED, Owners, Unused, own_symbol};

/// How many independent items a run works on.
pub const BATCH: u32 = 0;
/// The length of the sequence.
pub const SEQ: u32 = 1;
/// The length of what was seen before (a key-value cache).
pub const PAST_SEQ: u32 = 2;
/// The rows of a bucketed graph.
pub const ROWS: u32 = 3;

const WELL_KNOWN: [&str; 4] = ["batch", "seq", "past_seq", "rows"];
const FIRST_NAMED: u32 = 1 << 16;

#[derive(Default)]
struct Names {
    by_name: HashMap<Arc<str>, u32>,
    names: maps::HashMap<u32, Name>,
    /// How many names there have been.
    made: u32,
    unused: Unused<u32>,
}

struct Name {
    name: Arc<str>,
    owners: Owners,
}

static NAMES: LazyLock<RwLock<Names>> = LazyLock::new(RwLock::default);

/// The symbol called `name`: a well-known one, `s42` for number 42, or an interned one.
///
/// When the process has given out all numbers, after more than four thousand million names, further names share the
/// last one: sizes called differently must then be equal, and a run with unequal ones is an error.
pub fn named(name: &str) -> u32 {
    if let Some(i) = WELL_KNOWN.iter().position(|n| *n == name) {
        return i as u32;
    }
    if let Some(n) = plain_number(name) {
        return n;
    }
    let found = NAMES.read().unwrap_or_else(PoisonError::into_inner).find(name);
    found.unwrap_or_else(|| NAMES.write().unwrap_or_else(PoisonError::into_inner).add(name))
}

impl Names {
    /// The symbol of a name; it is the calling thread's from here on.
    fn find(&self, name: &str) -> Option<u32> {
        let &symbol = self.by_name.get(name)?;
        own_symbol(symbol, &self.names.get(&symbol)?.owners);
        Some(symbol)
    }

    fn add(&mut self, name: &str) -> u32 {
        // Another thread may have been here since.
        if let Some(symbol) = self.find(name) {
            return symbol;
        }
        let symbol = FIRST_NAMED.saturating_add(self.made);
        if symbol == u32::MAX {
            return symbol;
        }
        self.made += 1;
        let (name, owners) = (Arc::<str>::from(name), Owners::default());
        own_symbol(symbol, &owners);
        self.names.insert(symbol, Name { name: Arc::clone(&name), owners });
        self.by_name.insert(name, symbol);
        symbol
    }

    fn release_to(&mut self, count: usize) {
        while self.unused.len() > count
            && let Some(symbol) = self.unused.pop_front()
        {
            if self.names.get(&symbol).is_some_and(|name| !name.owners.any())
                && let Some(gone) = self.names.remove(&symbol)
            {
                self.by_name.remove(&gone.name);
            }
        }
    }
}

/// Whether a symbol is of those that names are interned for.
pub(super) fn is_named(symbol: u32) -> bool {
    symbol >= FIRST_NAMED
}

/// Makes a name that is there another owner's; `false` when it is not there.
pub(super) fn add_owner(symbol: u32) -> bool {
    let names = NAMES.read().unwrap_or_else(PoisonError::into_inner);
    names.names.get(&symbol).map(|name| name.owners.add()).is_some()
}

/// Takes an owner from each symbol's name. Of those without one the oldest go.
pub(super) fn release(symbols: impl IntoIterator<Item = u32>) {
    let mut names = NAMES.write().unwrap_or_else(PoisonError::into_inner);
    for symbol in symbols {
        if names.names.get(&symbol).is_some_and(|name| name.owners.remove()) {
            names.unused.push_back(symbol);
        }
    }
    names.release_to(MOST_UNUSED);
}

/// Removes names without an owner until so many are left.
pub(super) fn release_to(count: usize) {
    NAMES.write().unwrap_or_else(PoisonError::into_inner).release_to(count);
}

/// How many names have an owner.
pub(super) fn count() -> usize {
    let names = NAMES.read().unwrap_or_else(PoisonError::into_inner);
    names.names.values().filter(|name| name.owners.any()).count()
}

/// The name of `symbol`; `s42` for a number that has no name.
pub fn name(symbol: u32) -> String {
    if let Some(n) = WELL_KNOWN.get(symbol as usize) {
        return (*n).to_string();
    }
    let names = NAMES.read().unwrap_or_else(PoisonError::into_inner);
    names.names.get(&symbol).map_or_else(|| format!("s{symbol}"), |name| name.name.to_string())
}

/// The name as the text form writes it: quoted unless it is a plain identifier.
pub(crate) fn quoted_name(symbol: u32) -> String {
    let name = name(symbol);
    let mut chars = name.chars();
    let head = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    let plain = head && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
    let function = matches!(name.as_str(), "floordiv" | "mod" | "min" | "max");
    if plain && !function { name } else { format!("{name:?}") }
}

/// `s42` names number 42 when that number has no other name.
fn plain_number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix('s')?;
    let canonical = digits == "0" || !digits.starts_with('0');
    let n: u32 = digits.parse().ok()?;
    let free = n as usize >= WELL_KNOWN.len() && n < FIRST_NAMED;
    (canonical && free && !digits.starts_with('+')).then_some(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_last_number_share_it() {
        let mut names = Names { made: u32::MAX - FIRST_NAMED - 1, ..Names::default() };
        assert_eq!(names.add("last but one"), u32::MAX - 1);
        assert_eq!(names.add("last"), u32::MAX);
        assert_eq!(names.add("one more"), u32::MAX);
        assert_eq!(names.add("last but one"), u32::MAX - 1);
        assert_eq!(names.names.len(), 1);
    }

    #[test]
    fn names_are_interned_once_and_found_again() {
        let a = named("tokens per expert");
        assert_eq!(named("tokens per expert"), a);
        assert_eq!(name(a), "tokens per expert");
        assert_eq!(named("seq"), SEQ);
        assert_eq!(named("s42"), 42);
        assert_eq!(name(42), "s42");
        assert!(named("s042") >= FIRST_NAMED);
        assert_eq!(quoted_name(a), "\"tokens per expert\"");
    }
}
