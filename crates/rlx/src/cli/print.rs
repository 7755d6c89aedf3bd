//! Numbers and tables for people.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use rlx_ir::files::{io_error, write_whole};
use rlx_ir::tensor::Elements;
use rlx_ir::{ConstData, Result};
use serde_json::{Value as Json, json};

pub use rlx::units::{bytes, scaled};

/// Milliseconds.
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Whether what is written to `stream` may have colours: a terminal that knows them, and nobody objects (`NO_COLOR`).
pub fn colours(stream: &impl IsTerminal) -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
    stream.is_terminal() && !refused && !dumb
}

/// Writes a text file, whole or not at all.
pub fn write_file(path: &Path, text: &str) -> Result<()> {
    write_whole(path, |file| file.write_all(text.as_bytes()).map_err(|e| io_error(path, e)))
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
