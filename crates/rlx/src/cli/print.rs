//! Numbers and tables for people.

use std::time::Duration;

use rlx_ir::ConstData;
use rlx_ir::tensor::Elements;
use serde_json::{Value as Json, json};

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

/// A tensor as nested lists; JSON has no NaN and no infinities, those are null.
pub fn nested(data: &ConstData) -> Json {
    let value = data.value();
    let leaves: Vec<Json> = match &value.elements {
        Elements::Float(v) => v.iter().map(|&x| json!(x)).collect(),
        Elements::Int(v) => v.iter().map(|&i| json!(i as i64)).collect(),
    };
    fn nest(dims: &[usize], leaves: &mut impl Iterator<Item = Json>) -> Json {
        match dims {
            [] => leaves.next().unwrap_or(Json::Null),
            [n, rest @ ..] => (0..*n).map(|_| nest(rest, leaves)).collect(),
        }
    }
    nest(&value.dims, &mut leaves.into_iter())
}
