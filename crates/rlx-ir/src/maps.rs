//! Hash maps and sets for what compiling looks up again and again: the expressions of dimensions, the nodes that are equal.
//!
//! They hash with foldhash, which is faster for such keys than the standard library's SipHash. Its seed differs from process to
//! process, but it is not made to withstand keys that are chosen to collide: what a file names by text stays in maps of the
//! standard library.
//!
//! ```
//! let mut known: rlx_ir::maps::HashMap<u32, &str> = Default::default();
//! known.insert(7, "seven");
//! assert_eq!(known.get(&7), Some(&"seven"));
//! ```

use foldhash::fast::{FixedState, RandomState};

/// A map, made by `HashMap::default()`.
pub type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// A set, made by `HashSet::default()`.
pub type HashSet<K> = std::collections::HashSet<K, RandomState>;

/// The hash of `value` in this version of the program, the same in each process.
pub fn hash_of(value: &impl std::hash::Hash) -> u64 {
    use std::hash::BuildHasher;
    FixedState::default().hash_one(value)
}
