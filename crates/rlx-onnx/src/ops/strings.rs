//! Strings: what looks into them is computed for the table of a tensor's strings, and looked up by their codes.
//!
//! Ops that only move elements need nothing of their own; see [`crate::import::held`].

use super::{Entry, any};
use crate::import::held::Words;
use crate::import::{NodeCx, SlotId};
use rlx_ir::op::CmpOp;
use rlx_ir::{ConstData, DType, Error, ErrorKind, NodeId, Op, Value};
use std::rc::Rc;

type Cx<'a, 'b, 'f> = &'a mut NodeCx<'b, 'f>;
type Slots = Result<Vec<SlotId>, Error>;

pub(super) const OPS: &[Entry] = &[
    any("RegexFullMatch", regex_full_match),
    any("StringConcat", string_concat),
    any("StringNormalizer", string_normalizer),
    any("StringSplit", string_split),
    any("TfIdfVectorizer", super::tf_idf::tf_idf),
];

/// Two tables are joined pair by pair up to this many pairs.
const MOST_PAIRS: usize = 4096;

/// ONNX's code of the type.
const STRING: i32 = crate::proto::tensor_proto::DataType::String as i32;

/// Equality of numbers, or of strings among common words.
pub(super) fn equal(cx: Cx) -> Slots {
    let (mut a, mut b) = (cx.slot(0)?, cx.slot(1)?);
    if cx.is_strings(0) || cx.is_strings(1) {
        let (x, y) = (cx.strings(0)?, cx.strings(1)?);
        if matches!((&x.words, &y.words), (Words::Vocabulary, Words::Vocabulary)) {
            // Both may be strings that the model does not ask for.
            return Err(cx.strings_not_known(0));
        }
        let (codes, _) = cx.in_common_words()?;
        let both = codes.first().copied().flatten().zip(codes.get(1).copied().flatten());
        (a, b) = both.ok_or_else(|| cx.malformed("an operand is missing"))?;
    }
    let (a, b) = (cx.importer.materialize(a)?, cx.importer.materialize(b)?);
    let y = cx.compare(CmpOp::Eq, a, b)?;
    Ok(vec![cx.importer.node_slot(y)])
}

/// A cast between numbers, of strings to numbers, or of known numbers to strings.
pub(super) fn cast(cx: Cx) -> Slots {
    let to = super::logic::cast_to(cx)?;
    match (cx.is_strings(0), to == STRING) {
        (true, true) => Ok(vec![cx.slot(0)?]),
        (true, false) => from_strings(cx, crate::tensor::dtype(to)?),
        (false, true) => to_strings(cx),
        (false, false) => {
            let y = super::logic::cast(cx, to)?;
            Ok(y.into_iter().map(|node| cx.importer.node_slot(node)).collect())
        }
    }
}

/// Numbers read from the table's strings.
fn from_strings(cx: Cx, to: DType) -> Slots {
    let strings = cx.strings(0)?;
    let Words::Table(table) = &strings.words else { return Err(cx.strings_not_known(0)) };
    let number = |s: &Rc<str>| {
        let s = s.trim();
        let lower = s.to_ascii_lowercase();
        let parsed = match lower.trim_start_matches('+') {
            "inf" | "infinity" => Ok(f64::INFINITY),
            "-inf" | "-infinity" => Ok(f64::NEG_INFINITY),
            "nan" | "-nan" => Ok(f64::NAN),
            other => other.parse::<f64>(),
        };
        parsed.map_err(|_| Error::new(ErrorKind::Value, format!("the string {s:?} is no number")))
    };
    cx.importer.spend(table.len())?;
    let values = match to.is_float() {
        true => Value::float(to, &[table.len()], table.iter().map(number).collect::<Result<_, _>>()?),
        false => {
            let whole = |s: &Rc<str>| match s.trim().parse::<i128>() {
                Ok(n) => Ok(n),
                Err(_) => number(s).map(|x| x as i128),
            };
            Value::int(to, &[table.len()], table.iter().map(whole).collect::<Result<_, _>>()?)
        }
    };
    let codes = cx.codes_node(&strings)?;
    let y = if table.is_empty() {
        cx.cast(codes, to)?
    } else {
        let values = cx.constant(values);
        cx.add(Op::Gather { axis: 0 }, &[values, codes])?
    };
    Ok(vec![cx.importer.node_slot(y)])
}

/// Known numbers as text: integers in decimal digits, floats with the fewest digits that give them back.
fn to_strings(cx: Cx) -> Slots {
    let (dtype, slot) = (cx.dtype(0)?, cx.slot(0)?);
    let Some(value) = cx.importer.constant_value(slot)? else { return Err(cx.not_known(0)) };
    cx.importer.spend(value.len())?;
    let text = |x: f64| match dtype {
        _ if x.is_nan() => "NaN".to_owned(),
        _ if x == f64::INFINITY => "INF".to_owned(),
        _ if x == f64::NEG_INFINITY => "-INF".to_owned(),
        DType::F64 => format!("{x}"),
        _ => format!("{}", x as f32),
    };
    let words: Vec<Rc<str>> = match (dtype, value.ints()) {
        (DType::Bool, Ok(all)) => {
            all.iter().map(|&b| Rc::from(if b != 0 { "True" } else { "False" })).collect()
        }
        (_, Ok(all)) => all.iter().map(|n| Rc::from(n.to_string())).collect(),
        (_, Err(_)) => value.floats()?.iter().map(|&x| Rc::from(text(x))).collect(),
    };
    Ok(vec![cx.importer.words_slot(&value.dims, &words)?])
}

/// The strings joined: of two tables that are small enough, pair by pair, else of known strings.
fn string_concat(cx: Cx) -> Slots {
    let (x, y) = (cx.strings(0)?, cx.strings(1)?);
    let (Words::Table(a), Words::Table(b)) = (&x.words, &y.words) else {
        return Err(cx.strings_not_known(usize::from(matches!(x.words, Words::Table(_)))));
    };
    let pairs = a.len().saturating_mul(b.len());
    if pairs > MOST_PAIRS {
        return Err(cx.unsupported(format!("joining {} strings with {} others", a.len(), b.len())));
    }
    cx.importer.spend(
        a.iter().chain(b.iter()).map(|s| s.len()).sum::<usize>().saturating_mul(a.len().max(b.len())),
    )?;
    let joined: Vec<Rc<str>> =
        a.iter().flat_map(|s| b.iter().map(move |t| Rc::from(format!("{s}{t}")))).collect();
    let (left, right) = (cx.codes_node(&x)?, cx.codes_node(&y)?);
    let row = cx.with_scalar(rlx_ir::op::BinaryOp::Mul, left, b.len() as f64)?;
    let place = cx.binary(rlx_ir::op::BinaryOp::Add, row, right)?;
    Ok(vec![cx.labelled(place, &joined)?])
}

fn regex_full_match(cx: Cx) -> Slots {
    let strings = cx.strings(0)?;
    let Words::Table(table) = &strings.words else { return Err(cx.strings_not_known(0)) };
    let pattern = cx.attrs.text("pattern", "")?;
    let whole = regex_lite::RegexBuilder::new(&format!("^(?:{pattern})$")).size_limit(1 << 20).build();
    let whole = whole.map_err(|e| cx.unsupported(format!("pattern = {pattern:?}: {e}")))?;
    let length: usize = table.iter().map(|s| s.len()).sum();
    cx.importer.spend(length.saturating_mul(pattern.len()))?;
    let hits: Vec<i64> = table.iter().map(|s| i64::from(whole.is_match(s))).collect();
    let codes = cx.codes_node(&strings)?;
    let hits = cx.by_code(codes, hits)?;
    let y = cx.cast(hits, DType::Bool)?;
    Ok(vec![cx.importer.node_slot(y)])
}

/// Other case for each string of the table; where words are left out, of known strings.
fn string_normalizer(cx: Cx) -> Slots {
    let change: fn(&str) -> String = match cx.attrs.text("case_change_action", "NONE")? {
        "NONE" => str::to_owned,
        "LOWER" => str::to_lowercase,
        "UPPER" => str::to_uppercase,
        other => return Err(cx.bad_attr("case_change_action", other)),
    };
    let strings = cx.strings(0)?;
    let stop = cx.attrs.texts("stopwords")?.unwrap_or_default();
    let Words::Table(table) = &strings.words else { return Err(cx.strings_not_known(0)) };
    cx.importer.spend(table.iter().map(|s| s.len()).sum())?;
    if stop.is_empty() {
        let changed: Vec<Rc<str>> = table.iter().map(|s| Rc::from(change(s))).collect();
        let codes = cx.codes_node(&strings)?;
        return Ok(vec![cx.labelled(codes, &changed)?]);
    }
    let (dims, words) = cx.known_strings(0)?;
    if !matches!(dims[..], [_] | [1, _]) {
        return Err(cx.malformed(format!("strings of the extents {dims:?}")));
    }
    let sensitive = cx.attrs.flag("is_case_sensitive", false)?;
    let same = |a: &str, b: &str| if sensitive { a == b } else { a.to_lowercase() == b.to_lowercase() };
    let kept = words.iter().filter(|w| !stop.iter().any(|s| same(s, w)));
    let mut kept: Vec<Rc<str>> = kept.map(|w| Rc::from(change(w))).collect();
    if kept.is_empty() {
        kept.push(Rc::from(""));
    }
    let to = if dims.len() == 2 { vec![1, kept.len()] } else { vec![kept.len()] };
    Ok(vec![cx.importer.words_slot(&to, &kept)?])
}

/// The parts of known strings, as many as the longest has, and how many each has.
fn string_split(cx: Cx) -> Slots {
    let (dims, words) = cx.known_strings(0)?;
    let delimiter = cx.attrs.text("delimiter", "")?;
    let most = cx.attrs.int_opt("maxsplit")?.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    cx.importer.spend(words.iter().map(|w| w.len()).sum())?;
    let parts = |word: &Rc<str>| -> Vec<Rc<str>> {
        let most = most.saturating_add(1);
        if !delimiter.is_empty() {
            return word.splitn(most, delimiter).map(Rc::from).collect();
        }
        // Runs of white space separate; the last part keeps what follows.
        let (mut found, mut rest) = (Vec::new(), word.trim_start());
        while !rest.is_empty() {
            if found.len() + 1 == most {
                found.push(Rc::from(rest));
                break;
            }
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            found.push(Rc::from(&rest[..end]));
            rest = rest[end..].trim_start();
        }
        found
    };
    let split: Vec<Vec<Rc<str>>> = words.iter().map(parts).collect();
    let widest = split.iter().map(Vec::len).max().unwrap_or(0);
    cx.importer.spend(widest.saturating_mul(split.len()))?;
    let nothing: Rc<str> = Rc::from("");
    let mut padded: Vec<Rc<str>> = Vec::with_capacity(widest * split.len());
    for parts in &split {
        padded.extend((0..widest).map(|i| parts.get(i).unwrap_or(&nothing).clone()));
    }
    let mut to = dims.clone();
    to.push(widest);
    let counts: Vec<i64> = split.iter().map(|p| p.len() as i64).collect();
    let counts = cx.importer.constant_slot(ConstData::from_i64(&dims, &counts)?);
    Ok(vec![cx.importer.words_slot(&to, &padded)?, counts])
}

/// A list of strings of an attribute.
pub(super) fn words(cx: &NodeCx<'_, '_>, name: &str) -> Result<Option<Vec<Rc<str>>>, Error> {
    Ok(cx.attrs.texts(name)?.map(|list| list.into_iter().map(Rc::from).collect()))
}

/// A constant of integers.
pub(super) fn integers(cx: Cx, dims: &[usize], values: &[i64]) -> NodeId {
    cx.constant(Value::int(DType::I64, dims, values.iter().map(|&v| v.into()).collect()))
}
