//! Changes to constants and to what inputs are declared as.

use super::Choices;
use super::mutate::{FLOATS, INTEGERS};
use crate::proto::tensor_shape_proto::{Dimension, dimension};
use crate::proto::{GraphProto, TensorProto, TensorShapeProto, type_proto};

/// ONNX's numbers of the types that there are.
const TYPES: [i32; 30] =
    [1, 1, 1, 1, 1, 7, 7, 7, 6, 6, 9, 9, 10, 10, 11, 11, 2, 2, 3, 3, 4, 5, 12, 13, 14, 16, 17, 18, 21, 22];

/// Some that are not supported, and some that do not exist.
const NOT_BUILT: [i32; 5] = [8, 15, 0, 99, -1];

fn any_type(choices: &mut Choices<'_>) -> i32 {
    if choices.one_in(20) { choices.pick(&NOT_BUILT) } else { choices.pick(&TYPES) }
}

/// A small tensor of any type whose data fits it.
pub(super) fn arbitrary(name: &str, choices: &mut Choices<'_>) -> TensorProto {
    let rank = choices.below(5);
    let dims: Vec<i64> = (0..rank).map(|_| choices.pick(&[1, 2, 3, 1, 0, 4])).collect();
    filled(name, any_type(choices), dims, choices)
}

/// A tensor of this type and these dimensions; its elements are numbers at the borders.
fn filled(name: &str, data_type: i32, dims: Vec<i64>, choices: &mut Choices<'_>) -> TensorProto {
    let mut tensor =
        TensorProto { name: Some(name.to_owned()), data_type: Some(data_type), dims, ..Default::default() };
    let count = tensor.dims.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?));
    let count = count.filter(|&n| n <= 4096).unwrap_or(0);
    let small = choices.one_in(2);
    let mut number = || if small { choices.below(4) as i64 } else { choices.pick(&INTEGERS) };
    match data_type {
        1 | 14 => {
            let parts = if data_type == 14 { 2 * count } else { count };
            tensor.float_data = (0..parts)
                .map(
                    |_| if choices.one_in(3) { choices.pick(&FLOATS) } else { choices.below(5) as f32 - 2.0 },
                )
                .collect();
        }
        7 => tensor.int64_data = (0..count).map(|_| number()).collect(),
        11 | 15 => {
            tensor.double_data = (0..count * data_type as usize / 11).map(|_| number() as f64).collect()
        }
        12 => tensor.uint64_data = (0..count).map(|_| u64::from(number() as u32)).collect(),
        13 => tensor.uint64_data = (0..count).map(|_| number() as u64).collect(),
        8 => tensor.string_data = (0..count).map(|_| b"word".to_vec().into()).collect(),
        6 => tensor.int32_data = (0..count).map(|_| number() as i32).collect(),
        9 => tensor.int32_data = (0..count).map(|_| i32::from(number() & 1 == 1)).collect(),
        2 | 17..=20 => tensor.int32_data = (0..count).map(|_| i32::from(number() as u8)).collect(),
        3 => tensor.int32_data = (0..count).map(|_| i32::from(number() as i8)).collect(),
        4 | 10 | 16 => tensor.int32_data = (0..count).map(|_| i32::from(number() as u16)).collect(),
        5 => tensor.int32_data = (0..count).map(|_| i32::from(number() as i16)).collect(),
        // Two elements of 4 bits in each.
        _ => tensor.int32_data = (0..count.div_ceil(2)).map(|_| i32::from(number() as u8)).collect(),
    }
    tensor
}

/// An initialiser, or an input that becomes one.
pub(super) fn other_tensor(graph: &mut GraphProto, choices: &mut Choices<'_>) {
    let input = choices.below(graph.input.len());
    if choices.one_in(3) && input < graph.input.len() {
        let declared = graph.input.remove(input);
        let mut tensor = arbitrary(declared.name(), choices);
        if let Some((data_type, dims)) = sizes(&declared) {
            tensor = filled(declared.name(), data_type, dims, choices);
        }
        return graph.initializer.push(tensor);
    }
    if let Some(tensor) = choices.pick_mut(&mut graph.initializer) {
        change(tensor, choices);
    }
}

/// The type and fixed sizes of a declared tensor; a symbolic one is 2.
fn sizes(declared: &crate::proto::ValueInfoProto) -> Option<(i32, Vec<i64>)> {
    let Some(type_proto::Value::TensorType(tensor)) = declared.r#type.as_ref()?.value.as_ref() else {
        return None;
    };
    let size = |d: &Dimension| match d.value {
        Some(dimension::Value::DimValue(n)) => n,
        _ => 2,
    };
    Some((tensor.elem_type(), tensor.shape.as_ref()?.dim.iter().map(size).collect()))
}

/// Another value, type or shape; mostly with data that fits.
pub(super) fn change(tensor: &mut TensorProto, choices: &mut Choices<'_>) {
    let name = tensor.name().to_owned();
    match choices.below(8) {
        0 => tensor.dims.push(choices.pick(&INTEGERS)),
        1 => {
            let size = choices.pick(&INTEGERS);
            choices.pick_mut(&mut tensor.dims).into_iter().for_each(|d| *d = size);
        }
        2 => *tensor = arbitrary(&name, choices),
        3 => *tensor = filled(&name, any_type(choices), tensor.dims.clone(), choices),
        4 => {
            let mut dims = tensor.dims.clone();
            match choices.below(3) {
                0 => dims.push(1),
                1 => dims.insert(0, choices.pick(&[1, 2, 0])),
                _ => _ = dims.pop(),
            }
            *tensor = filled(&name, tensor.data_type(), dims, choices);
        }
        _ => *tensor = filled(&name, tensor.data_type(), tensor.dims.clone(), choices),
    }
}

/// An input is declared otherwise.
pub(super) fn declare_other(graph: &mut GraphProto, choices: &mut Choices<'_>) {
    let Some(input) = choices.pick_mut(&mut graph.input) else { return };
    let value = input.r#type.as_mut().and_then(|t| t.value.as_mut());
    let Some(type_proto::Value::TensorType(tensor)) = value else { return };
    if choices.one_in(3) {
        tensor.elem_type = Some(any_type(choices));
        return;
    }
    let shape = tensor.shape.get_or_insert_with(TensorShapeProto::default);
    let size = choices.pick(&INTEGERS);
    let name = choices.pick(&["n", "batch", "seq", "x.0"]);
    let value = if choices.one_in(3) {
        dimension::Value::DimParam(name.to_owned())
    } else {
        dimension::Value::DimValue(if choices.one_in(2) { size } else { choices.below(4) as i64 })
    };
    let dim = Dimension { value: Some(value), ..Default::default() };
    match choices.below(4) {
        0 => shape.dim.push(dim),
        1 => _ = shape.dim.pop(),
        2 => shape.dim.insert(0, dim),
        _ => {
            if let Some(other) = choices.pick_mut(&mut shape.dim) {
                *other = dim;
            }
        }
    }
}
