//! Feature preprocessing: scaling, imputing, encoding and selecting columns.

use super::{Cx, Nodes, Slots, table};
use crate::import::NodeCx;
use crate::ops::strings::words;
use crate::ops::{Entry, any_ml, ml};
use crate::structure::{is_strings, strings_of};
use rlx_ir::op::{ArgOp, BinaryOp as B, CmpOp, Predicate, ReduceOp};
use rlx_ir::{DType, Dim, Error, NodeId, Op, Value};
use std::rc::Rc;

pub(in crate::ops) const OPS: &[Entry] = &[
    Entry { moves: true, ..ml("ArrayFeatureExtractor", array_feature_extractor) },
    ml("Binarizer", binarizer),
    any_ml("CategoryMapper", category_mapper),
    ml("FeatureVectorizer", feature_vectorizer),
    ml("Imputer", imputer),
    any_ml("LabelEncoder", label_encoder),
    ml("Normalizer", normalizer),
    any_ml("OneHotEncoder", one_hot_encoder),
    ml("Scaler", scaler),
];

/// One number for each feature, or one for all.
fn per_feature(cx: Cx, name: &str, default: f64) -> Result<NodeId, Error> {
    let given = cx.attrs.floats(name)?.unwrap_or_default();
    let last = cx.shape(0)?.dims().last().and_then(|d| d.as_static());
    match given.len() {
        0 => Ok(cx.scalar(DType::F32, default)),
        n if n == 1 || last.is_none_or(|last| last == n) => {
            Ok(table(cx, DType::F32, &[n], given.iter().map(|&x| f64::from(x)).collect()))
        }
        n => Err(cx.malformed(format!("{name} has {n} numbers for {}", cx.shape(0)?))),
    }
}

/// `(x − offset) · scale`
fn scaler(cx: Cx) -> Nodes {
    let x = cx.x(0)?;
    let x = cx.cast(x, DType::F32)?;
    let (offset, scale) = (per_feature(cx, "offset", 0.0)?, per_feature(cx, "scale", 1.0)?);
    let centred = cx.binary(B::Sub, x, offset)?;
    Ok(vec![cx.binary(B::Mul, centred, scale)?])
}

/// Each row divided by its norm; a row whose norm is 0 stays.
fn normalizer(cx: Cx) -> Nodes {
    let x = cx.x(0)?;
    let x = cx.cast(x, DType::F32)?;
    let last = cx.rank(0)?.checked_sub(1).ok_or_else(|| cx.malformed("a scalar has no rows"))?;
    let norm = match cx.attrs.text("norm", "MAX")? {
        "MAX" => cx.reduce(x, ReduceOp::Max, &[last], true)?,
        "L1" => {
            let size = cx.activation(rlx_ir::op::Activation::Abs, x)?;
            cx.reduce(size, ReduceOp::Sum, &[last], true)?
        }
        "L2" => {
            let square = cx.binary(B::Mul, x, x)?;
            let total = cx.reduce(square, ReduceOp::Sum, &[last], true)?;
            cx.activation(rlx_ir::op::Activation::Sqrt, total)?
        }
        other => return Err(cx.bad_attr("norm", other)),
    };
    let (zero, one) = (cx.scalar(DType::F32, 0.0), cx.scalar(DType::F32, 1.0));
    let none = cx.compare(CmpOp::Eq, norm, zero)?;
    let norm = cx.select(none, one, norm)?;
    Ok(vec![cx.binary(B::Div, x, norm)?])
}

/// 1 above the threshold, else 0.
fn binarizer(cx: Cx) -> Nodes {
    let (x, dtype) = (cx.x(0)?, cx.dtype(0)?);
    let bound = cx.scalar(dtype, f64::from(cx.attrs.float("threshold", 0.0)?));
    let above = cx.compare(CmpOp::Gt, x, bound)?;
    Ok(vec![cx.cast(above, dtype)?])
}

/// Columns by number; a vector gives one row.
fn array_feature_extractor(cx: Cx) -> Nodes {
    let (x, indices) = (cx.x(0)?, cx.x(1)?);
    let count = cx.shape(1)?.elements();
    let indices = cx.reshape(indices, vec![Dim::from(count)])?;
    let axis = cx.rank(0)?.checked_sub(1).ok_or_else(|| cx.malformed("a scalar has no columns"))?;
    let y = cx.add(Op::Gather { axis }, &[x, indices])?;
    Ok(vec![if axis == 0 { cx.unsqueeze(y, &[0])? } else { y }])
}

/// All operands' columns side by side.
fn feature_vectorizer(cx: Cx) -> Nodes {
    let mut parts = Vec::with_capacity(cx.operands());
    for i in 0..cx.operands() {
        let x = cx.x(i)?;
        let x = cx.cast(x, DType::F32)?;
        parts.push(if cx.rank(i)? == 1 { cx.unsqueeze(x, &[0])? } else { x });
    }
    if let Some(sizes) = cx.attrs.ints("inputdimensions")? {
        let fits = |(&x, &size): (&NodeId, &i64)| {
            cx.shape_of(x).dims().get(1).and_then(|d| d.as_static()).is_none_or(|d| d as i64 == size)
        };
        if sizes.len() != parts.len() || !parts.iter().zip(sizes).all(fits) {
            return Err(cx.unsupported(format!("inputdimensions = {sizes:?}, unlike the operands' widths")));
        }
    }
    Ok(vec![if parts.len() == 1 { parts[0] } else { cx.add(Op::Concat { axis: 1 }, &parts)? }])
}

/// Replaces the marker of missing values by another value.
fn imputer(cx: Cx) -> Nodes {
    let (x, dtype) = (cx.x(0)?, cx.dtype(0)?);
    let (missing, values): (f64, Vec<f64>) = if dtype.is_float() {
        let values = cx.attrs.floats("imputed_value_floats")?;
        let values = cx.attrs.required("imputed_value_floats", values)?;
        (cx.attrs.float("replaced_value_float", 0.0)?.into(), values.iter().map(|&x| x.into()).collect())
    } else {
        let values = cx.attrs.ints("imputed_value_int64s")?;
        let values = cx.attrs.required("imputed_value_int64s", values)?;
        (cx.attrs.int("replaced_value_int64", 0)? as f64, values.iter().map(|&x| x as f64).collect())
    };
    let last = cx.shape(0)?.dims().last().and_then(|d| d.as_static());
    if values.is_empty() || (values.len() != 1 && last.is_some_and(|n| n != values.len())) {
        return Err(cx.malformed(format!("{} imputed values for {}", values.len(), cx.shape(0)?)));
    }
    let hit = if missing.is_nan() {
        cx.add(Op::Predicate(Predicate::IsNan), &[x])?
    } else {
        let missing = cx.scalar(dtype, missing);
        cx.compare(CmpOp::Eq, x, missing)?
    };
    let count = values.len();
    let value = if dtype.is_float() {
        Value::float(dtype, &[count], values)
    } else {
        Value::int(dtype, &[count], values.iter().map(|&v| v as i128).collect())
    };
    let values = cx.constant(value);
    Ok(vec![cx.select(hit, values, x)?])
}

/// A list of keys, values or categories.
enum List {
    Numbers(Value),
    Strings(Vec<Rc<str>>),
}

impl List {
    /// As strings, floats, integers or a tensor, whichever attribute is given.
    fn read(cx: &NodeCx<'_, '_>, name: &str) -> Result<Option<List>, Error> {
        if let Some(tensor) = cx.attrs.tensor(&format!("{name}_tensor"))? {
            if is_strings(tensor) {
                let elements = strings_of(tensor)?.elements;
                return Ok(Some(List::Strings(elements.iter().map(|s| Rc::from(s.as_str())).collect())));
            }
            return Ok(Some(List::Numbers(cx.importer.file.tensor(tensor)?.to_const()?.try_value()?)));
        }
        if let Some(strings) = words(cx, &format!("{name}_strings"))? {
            return Ok(Some(List::Strings(strings)));
        }
        if let Some(floats) = cx.attrs.floats(&format!("{name}_floats"))? {
            let values = floats.iter().map(|&x| f64::from(x)).collect();
            return Ok(Some(List::Numbers(Value::float(DType::F32, &[floats.len()], values))));
        }
        let ints = cx.attrs.ints(&format!("{name}_int64s"))?;
        Ok(ints.map(|ints| List::Numbers(ints_value(ints))))
    }

    fn required(cx: &NodeCx<'_, '_>, name: &str) -> Result<List, Error> {
        cx.attrs.required(&format!("{name}_*"), List::read(cx, name)?)
    }

    fn len(&self) -> usize {
        match self {
            List::Numbers(value) => value.len(),
            List::Strings(list) => list.len(),
        }
    }

    fn of_strings(&self) -> bool {
        matches!(self, List::Strings(_))
    }
}

fn ints_value(ints: &[i64]) -> Value {
    Value::int(DType::I64, &[ints.len()], ints.iter().map(|&x| i128::from(x)).collect())
}

/// Operand 0 and the keys to compare it with: numbers, or both as codes.
fn comparable(cx: Cx, keys: List) -> Result<(NodeId, Value), Error> {
    match keys {
        List::Strings(list) => {
            let strings = cx.strings(0)?;
            let codes = cx.codes(&strings.words, &list);
            Ok((cx.codes_node(&strings)?, ints_value(&codes)))
        }
        List::Numbers(keys) => {
            let x = cx.x(0)?;
            Ok((x, keys))
        }
    }
}

/// Each element is compared with every key; the last key that fits chooses the value.
fn label_encoder(cx: Cx) -> Slots {
    if let Some(classes) = words(cx, "classes_strings")? {
        return by_place(cx, classes);
    }
    let (keys, values) = (List::required(cx, "keys")?, List::required(cx, "values")?);
    mapped(cx, keys, values)
}

/// The first version: the classes to their places, or places to the classes.
fn by_place(cx: Cx, classes: Vec<Rc<str>>) -> Slots {
    let places = List::Numbers(ints_value(&(0..classes.len() as i64).collect::<Vec<_>>()));
    if cx.is_strings(0) {
        mapped(cx, List::Strings(classes), places)
    } else {
        mapped(cx, places, List::Strings(classes))
    }
}

fn mapped(cx: Cx, keys: List, values: List) -> Slots {
    if keys.len() != values.len() || keys.len() == 0 || keys.of_strings() != cx.is_strings(0) {
        return Err(cx.malformed(format!("{} keys and {} values", keys.len(), values.len())));
    }
    let rank = cx.rank(0)?;
    let (x, keys) = comparable(cx, keys)?;
    if keys.dtype != cx.shape_of(x).dtype() {
        return Err(cx.malformed(format!("keys {} for {}", keys.shape(), cx.shape_of(x))));
    }
    let x = cx.unsqueeze(x, &[rank])?;
    let nan_key = keys.to_f64().iter().rposition(|k| k.is_nan());
    let count = keys.len();
    let keys = cx.constant(keys.with_dims(&[count]));
    let mut hits = cx.compare(CmpOp::Eq, x, keys)?;
    if let Some(place) = nan_key {
        let nan = cx.add(Op::Predicate(Predicate::IsNan), &[x])?;
        let there = cx.constant(Value::bools(&[count], (0..count).map(|i| i == place)));
        let both = cx.binary(B::And, nan, there)?;
        hits = cx.binary(B::Or, hits, both)?;
    }
    let hits = cx.cast(hits, DType::I32)?;
    let place = cx.add(Op::ArgReduce { op: ArgOp::Max, axis: rank, keep_dim: false, last: true }, &[hits])?;
    let found = cx.reduce(hits, ReduceOp::Max, &[rank], false)?;
    let found = cx.cast(found, DType::Bool)?;
    match values {
        List::Numbers(values) => {
            let default = default_label(cx, values.dtype)?;
            let values = cx.constant(values.with_dims(&[count]));
            let y = cx.add(Op::Gather { axis: 0 }, &[values, place])?;
            let y = cx.select(found, y, default)?;
            Ok(vec![cx.importer.node_slot(y)])
        }
        List::Strings(mut list) => {
            // The default is behind all values.
            list.push(default_string(cx)?);
            let place = cx.cast(place, DType::I64)?;
            let default = cx.scalar(DType::I64, count as f64);
            let place = cx.select(found, place, default)?;
            Ok(vec![cx.labelled(place, &list)?])
        }
    }
}

fn default_string(cx: &NodeCx<'_, '_>) -> Result<Rc<str>, Error> {
    if let Some(tensor) = cx.attrs.tensor("default_tensor")? {
        let elements = if is_strings(tensor) { strings_of(tensor)?.elements } else { Vec::new() };
        return match &elements[..] {
            [one] => Ok(Rc::from(one.as_str())),
            _ => Err(cx.malformed("default_tensor is not one string")),
        };
    }
    Ok(Rc::from(cx.attrs.text("default_string", "_Unused")?))
}

fn default_label(cx: Cx, dtype: DType) -> Result<NodeId, Error> {
    if let Some(tensor) = cx.attrs.tensor("default_tensor")? {
        let value = cx.importer.file.tensor(tensor)?.to_const()?.try_value()?;
        if value.len() != 1 || value.dtype != dtype {
            return Err(cx.malformed(format!("default_tensor is {}", value.shape())));
        }
        return Ok(cx.constant(value.with_dims(&[])));
    }
    let default = match dtype.is_float() {
        true => f64::from(cx.attrs.float("default_float", -0.0)?),
        false => cx.attrs.int("default_int64", -1)? as f64,
    };
    Ok(cx.scalar(dtype, default))
}

/// Strings to integers or integers to strings, by two lists of equal length.
fn category_mapper(cx: Cx) -> Slots {
    let ints = cx.attrs.required("cats_int64s", cx.attrs.ints("cats_int64s")?)?;
    let strings = cx.attrs.required("cats_strings", words(cx, "cats_strings")?)?;
    let ints = List::Numbers(ints_value(ints));
    let strings = List::Strings(strings);
    if cx.is_strings(0) { mapped(cx, strings, ints) } else { mapped(cx, ints, strings) }
}

/// A row of zeros with a 1 at the category. What is no category gives zeros, whether `zeros` allows that or not: a
/// graph cannot fail on data.
fn one_hot_encoder(cx: Cx) -> Slots {
    let cats = List::required(cx, "cats")?;
    if cats.of_strings() != cx.is_strings(0) {
        return Err(cx.malformed("categories of another type than the operand's"));
    }
    let rank = cx.rank(0)?;
    let (x, cats) = comparable(cx, cats)?;
    let x = cx.cast(x, DType::I64)?;
    let x = cx.unsqueeze(x, &[rank])?;
    let cats = cx.constant(cats);
    let hits = cx.compare(CmpOp::Eq, x, cats)?;
    let y = cx.cast(hits, DType::F32)?;
    Ok(vec![cx.importer.node_slot(y)])
}
