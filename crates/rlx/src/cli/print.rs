//! Numbers and tables for people.

use std::time::Duration;

/// Milliseconds.
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A number with about four digits and a unit prefix: `1.234 M`.
pub fn scaled(x: f64) -> String {
    let (value, prefix) = match x {
        x if x >= 1e12 => (x / 1e12, " T"),
        x if x >= 1e9 => (x / 1e9, " G"),
        x if x >= 1e6 => (x / 1e6, " M"),
        x if x >= 1e3 => (x / 1e3, " k"),
        x => return format!("{x}"),
    };
    format!("{value:.3}{prefix}")
}

/// Bytes with a unit: `4.20 MB`.
pub fn bytes(n: usize) -> String {
    let number = scaled(n as f64);
    if number.contains(' ') { format!("{number}B") } else { format!("{number} B") }
}
