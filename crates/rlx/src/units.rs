//! Numbers with units, as people read them.
//!
//! ```
//! use rlx::units::{bytes, counted, scaled};
//! assert_eq!((bytes(4_200_000).as_str(), scaled(1234.0).as_str()), ("4.200 MB", "1.234 k"));
//! assert_eq!((scaled(12.0), scaled(0.1 + 0.2)), ("12".to_owned(), "0.3".to_owned()));
//! assert_eq!(counted(1, "entry", "entries"), "1 entry");
//! ```

/// A number with about four digits and a unit prefix: `1.234 M`.
pub fn scaled(x: f64) -> String {
    let (value, prefix) = match x {
        x if x >= 1e12 => (x / 1e12, " T"),
        x if x >= 1e9 => (x / 1e9, " G"),
        x if x >= 1e6 => (x / 1e6, " M"),
        x if x >= 1e3 => (x / 1e3, " k"),
        // Three decimals, where there are any.
        x => return ((x * 1e3).round() / 1e3).to_string(),
    };
    format!("{value:.3}{prefix}")
}

/// So many things: `1 entry`, `2 entries`.
pub fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Bytes with a unit: `4.200 MB`.
pub fn bytes(n: usize) -> String {
    let number = scaled(n as f64);
    if number.contains(' ') { format!("{number}B") } else { format!("{number} B") }
}
