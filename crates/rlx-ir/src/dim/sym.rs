//! Symbols of dimensions: well-known ones, named ones, and plain numbers.
//!
//! A symbol is a `u32`. The well-known ones have fixed numbers; [`named`] interns a name (an ONNX
//! `dim_param`, say) and gives it a number from 65,536 on, the same for the life of the process.
//! Numbers below that without a name are free for callers and print as `s42`.

use std::collections::HashMap;
use std::sync::{LazyLock, RwLock};

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
    by_name: HashMap<String, u32>,
    names: Vec<String>,
}

static NAMES: LazyLock<RwLock<Names>> = LazyLock::new(RwLock::default);

/// The symbol called `name`: a well-known one, `s42` for number 42, or an interned one.
pub fn named(name: &str) -> u32 {
    if let Some(i) = WELL_KNOWN.iter().position(|n| *n == name) {
        return i as u32;
    }
    if let Some(n) = plain_number(name) {
        return n;
    }
    let mut names = NAMES.write().unwrap_or_else(|e| e.into_inner());
    if let Some(&s) = names.by_name.get(name) {
        return s;
    }
    let s = FIRST_NAMED + names.names.len() as u32;
    names.names.push(name.to_string());
    names.by_name.insert(name.to_string(), s);
    s
}

/// The name of `symbol`; `s42` for a number nobody named.
pub fn name(symbol: u32) -> String {
    if let Some(n) = WELL_KNOWN.get(symbol as usize) {
        return (*n).to_string();
    }
    let names = NAMES.read().unwrap_or_else(|e| e.into_inner());
    symbol
        .checked_sub(FIRST_NAMED)
        .and_then(|i| names.names.get(i as usize).cloned())
        .unwrap_or_else(|| format!("s{symbol}"))
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
