//! Maps, as tensors with a column for each key.

use super::{Cx, Labels, Slots};
use crate::import::SlotId;
use crate::import::held::Held;
use crate::ops::{Entry, any_ml};
use crate::structure::MapKeys;
use rlx_ir::{DType, Error, Shape};

pub(in crate::ops) const OPS: &[Entry] =
    &[any_ml("CastMap", cast_map), any_ml("DictVectorizer", dict_vectorizer), any_ml("ZipMap", zip_map)];

/// One map for each row: the rows themselves, whose keys the caller is told.
fn zip_map(cx: Cx) -> Slots {
    let keys = match Labels::read(cx, "classlabels_int64s", "classlabels_strings")? {
        Labels::Ints(keys) => MapKeys::Ints(keys),
        Labels::Strings(keys) => MapKeys::Strings(keys.iter().map(|k| k.to_string()).collect()),
    };
    // A vector is one row.
    let mut x = cx.x(0)?;
    x = if cx.shape_of(x).rank() == 1 { cx.unsqueeze(x, &[0])? } else { x };
    let values = cx.importer.node_slot(x);
    Ok(vec![cx.importer.held_slot(Held::Map { values, keys: keys.into() })])
}

/// An input that is a map, as a row of values for these keys; 0 for what the map has not got.
fn row(cx: Cx, keys: MapKeys) -> Result<(SlotId, DType), Error> {
    let count = match &keys {
        MapKeys::Ints(keys) => keys.len(),
        MapKeys::Strings(keys) => keys.len(),
    };
    let (name, values) = match cx.held(0)? {
        Held::MapInput { name, values } => (name, values),
        other => return Err(cx.unsupported(format!("{} where the model's input is a map", other.name()))),
    };
    if !cx.importer.bodies.is_empty() || cx.importer.structure.maps.insert(name.to_string(), keys).is_some() {
        return Err(cx.unsupported(format!("input {name}, a map, in several ops or in a body")));
    }
    cx.importer.spend(count)?;
    let node = cx.importer.graph.input(name.to_string(), Shape::new(&[1, count], values));
    Ok((cx.importer.node_slot(node), values))
}

/// The values for a vocabulary's keys.
fn dict_vectorizer(cx: Cx) -> Slots {
    let keys = match Labels::read(cx, "int64_vocabulary", "string_vocabulary")? {
        Labels::Ints(keys) => MapKeys::Ints(keys),
        Labels::Strings(keys) => MapKeys::Strings(keys.iter().map(|k| k.to_string()).collect()),
    };
    Ok(vec![row(cx, keys)?.0])
}

/// The values in the order of the keys; in the sparse form the keys are the columns up to `max_map`.
fn cast_map(cx: Cx) -> Slots {
    match cx.attrs.text("map_form", "DENSE")? {
        "SPARSE" => {}
        other => return Err(cx.unsupported(format!("map_form = {other}, whose keys are the data's"))),
    }
    let columns = cx.attrs.int("max_map", 1)?;
    let to = match cx.attrs.text("cast_to", "TO_FLOAT")? {
        "TO_FLOAT" => DType::F32,
        "TO_INT64" => DType::I64,
        other => return Err(cx.bad_attr("cast_to", other)),
    };
    cx.importer.spend(usize::try_from(columns).unwrap_or(0))?;
    let (values, _) = row(cx, MapKeys::Ints((0..columns).collect()))?;
    let y = cx.importer.materialize(values)?;
    let y = cx.cast(y, to)?;
    Ok(vec![cx.importer.node_slot(y)])
}
