//! Feature preprocessing: scaling, imputing, encoding and selecting columns.

use super::{Cx, Nodes, no_strings, table};
use crate::import::NodeCx;
use crate::ops::{Entry, ml};
use rlx_ir::op::{ArgOp, BinaryOp as B, CmpOp, Predicate, ReduceOp};
use rlx_ir::{DType, Dim, Error, NodeId, Op, Value};

pub(in crate::ops) const OPS: &[Entry] = &[
    ml("ArrayFeatureExtractor", array_feature_extractor),
    ml("Binarizer", binarizer),
    ml("FeatureVectorizer", feature_vectorizer),
    ml("Imputer", imputer),
    ml("LabelEncoder", label_encoder),
    ml("Normalizer", normalizer),
    ml("OneHotEncoder", one_hot_encoder),
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

/// A list of keys, values or one default: as floats, integers or a tensor.
fn list(cx: &NodeCx<'_, '_>, name: &str) -> Result<Option<Value>, Error> {
    if let Some(tensor) = cx.attrs.tensor(&format!("{name}_tensor"))? {
        return Ok(Some(cx.importer.file.tensor(tensor)?.to_const()?.try_value()?));
    }
    if let Some(floats) = cx.attrs.floats(&format!("{name}_floats"))? {
        let values = floats.iter().map(|&x| f64::from(x)).collect();
        return Ok(Some(Value::float(DType::F32, &[floats.len()], values)));
    }
    let ints = cx.attrs.ints(&format!("{name}_int64s"))?;
    Ok(ints.map(|ints| Value::int(DType::I64, &[ints.len()], ints.iter().map(|&x| i128::from(x)).collect())))
}

/// Each element is compared with every key; the last key that fits chooses the value.
fn label_encoder(cx: Cx) -> Nodes {
    no_strings(cx, &["keys_strings", "values_strings", "classes_strings"])?;
    let (keys, values) = (list(cx, "keys")?, list(cx, "values")?);
    let keys = cx.attrs.required("keys_*", keys)?;
    let values = cx.attrs.required("values_*", values)?;
    if keys.len() != values.len() || keys.is_empty() || keys.dtype != cx.dtype(0)? {
        let message = format!("keys {} and values {} for {}", keys.shape(), values.shape(), cx.shape(0)?);
        return Err(cx.malformed(message));
    }
    let default = default_label(cx, values.dtype)?;
    let rank = cx.rank(0)?;
    let x = cx.x(0)?;
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
    let values = cx.constant(values.with_dims(&[count]));
    let y = cx.add(Op::Gather { axis: 0 }, &[values, place])?;
    Ok(vec![cx.select(found, y, default)?])
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

/// A row of zeros with a 1 at the category. What is no category gives zeros, whether `zeros` allows that or not: a
/// graph cannot fail on data.
fn one_hot_encoder(cx: Cx) -> Nodes {
    no_strings(cx, &["cats_strings"])?;
    let cats = cx.attrs.required("cats_int64s", cx.attrs.ints("cats_int64s")?)?;
    let rank = cx.rank(0)?;
    let x = cx.x(0)?;
    let x = cx.cast(x, DType::I64)?;
    let x = cx.unsqueeze(x, &[rank])?;
    let count = cats.len();
    let cats = cx.constant(Value::int(DType::I64, &[count], cats.iter().map(|&c| i128::from(c)).collect()));
    let hits = cx.compare(CmpOp::Eq, x, cats)?;
    Ok(vec![cx.cast(hits, DType::F32)?])
}
