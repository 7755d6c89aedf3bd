//! Numbers and tables for people.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use rlx_ir::files::{io_error, write_whole};
use rlx_ir::tensor::{Elements, round_float};
use rlx_ir::{ConstData, DType, Result, Value};
use rlx_opt::{KeptLong, PrecisionReport};
use serde_json::{Value as Json, json};

pub use rlx::units::{bytes, counted, scaled};

/// Milliseconds.
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// What a mixed policy leaves f32, and why.
pub fn kept_f32(report: &PrecisionReport) -> Json {
    let kept = |k: &KeptLong| json!({ "op": k.kind.name(), "nodes": k.node_count, "reason": k.reason });
    report.kept.iter().map(kept).collect()
}

/// Whether what is written to `stream` may have colours: a terminal that supports them, and `NO_COLOR` is not set.
pub fn colours(stream: &impl IsTerminal) -> bool {
    let rejected = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
    stream.is_terminal() && !rejected && !dumb
}

/// Writes a text file, whole or not at all.
pub fn write_file(path: &Path, text: &str) -> Result<()> {
    write_whole(path, |file| file.write_all(text.as_bytes()).map_err(|e| io_error(path, e)))
}

/// The number of the fewest digits that a type rounds to `x`, which is one of its values.
pub fn shortest(dtype: DType, x: f64) -> f64 {
    let digits = |count: usize| format!("{x:.count$e}").parse().unwrap_or(x);
    match dtype {
        _ if !x.is_finite() => x,
        DType::F64 => x,
        DType::F32 | DType::C64 => (x as f32).to_string().parse().unwrap_or(x),
        _ => (0..17).map(digits).find(|&short| round_float(dtype, short) == x).unwrap_or(x),
    }
}

/// A number with as few digits as tell it from its neighbours, and an exponent where it is very large or small.
fn number(dtype: DType, x: f64) -> String {
    let text = format!("{:?}", shortest(dtype, x));
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Elements for people.
pub fn elements(value: &Value) -> Vec<String> {
    match &value.elements {
        Elements::Int(v) => v.iter().map(ToString::to_string).collect(),
        Elements::Float(v) if value.dtype == DType::C64 => v
            .chunks_exact(2)
            .map(|pair| {
                format!(
                    "{}{}{}i",
                    number(value.dtype, pair[0]),
                    if pair[1].is_sign_negative() { "" } else { "+" },
                    number(value.dtype, pair[1])
                )
            })
            .collect(),
        Elements::Float(v) => v.iter().map(|&x| number(value.dtype, x)).collect(),
    }
}

/// A measure in a table: as many decimals, or an exponent where it has many digits.
pub fn measure(x: f64, decimals: usize) -> String {
    if x.abs() < 1e7 { format!("{x:.decimals$}") } else { format!("{x:.3e}") }
}

/// Elements for programs. JSON has no NaN and no infinities, those are null.
pub fn leaves(value: &Value) -> Vec<Json> {
    match &value.elements {
        Elements::Float(v) => v.iter().map(|&x| json!(shortest(value.dtype, x))).collect(),
        Elements::Int(v) => {
            v.iter().map(|&i| i64::try_from(i).map_or_else(|_| json!(i as u64), Json::from)).collect()
        }
    }
}

/// A tensor as nested lists.
pub fn nested(data: &ConstData) -> Json {
    fn nest(dims: &[usize], leaves: &mut impl Iterator<Item = Json>) -> Json {
        match dims {
            [] => leaves.next().unwrap_or(Json::Null),
            [n, rest @ ..] => (0..*n).map(|_| nest(rest, leaves)).collect(),
        }
    }
    let value = data.value();
    nest(&value.dims, &mut leaves(&value).into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_as_many_digits_as_they_need() {
        for (dtype, x, text) in [
            (DType::F32, f64::from(0.1f32), "0.1"),
            (DType::F32, f64::from(1e-30f32), "1e-30"),
            (DType::F32, f64::from(f32::MAX), "3.4028235e38"),
            (DType::F32, f64::from(f32::MIN_POSITIVE), "1.1754944e-38"),
            (DType::F16, round_float(DType::F16, 1.0 / 3.0), "0.3333"),
            (DType::BF16, round_float(DType::BF16, 1.0 / 3.0), "0.334"),
            (DType::F64, 0.1 + 0.2, "0.30000000000000004"),
            (DType::F32, 3.0, "3"),
            (DType::F32, f64::NAN, "NaN"),
            (DType::F32, -0.0, "-0"),
        ] {
            assert_eq!(number(dtype, x), text, "{dtype}");
        }
    }

    /// Every value of the short types, and many of f32, read back as what they were.
    #[test]
    fn printed_numbers_read_back_as_the_same() {
        let short = [DType::F16, DType::BF16]
            .into_iter()
            .flat_map(|dtype| (0..=u16::MAX).map(move |bits| (dtype, bits.to_le_bytes().to_vec())));
        let long =
            (0..100_000u32).map(|i| (DType::F32, i.wrapping_mul(2_654_435_761).to_le_bytes().to_vec()));
        for (dtype, bytes) in short.chain(long) {
            let x = Value::decode(dtype, &[1], &bytes).to_f64()[0];
            let read: f64 = number(dtype, x).parse().unwrap();
            assert!(round_float(dtype, read) == x || x.is_nan(), "{dtype} {x:e} as {read:e}");
        }
    }

    #[test]
    fn measures_fit_their_column() {
        assert_eq!((measure(12.345, 1), measure(1.7e38, 1)), ("12.3".to_owned(), "1.700e38".to_owned()));
        assert_eq!(measure(f64::INFINITY, 1), "inf");
    }
}
