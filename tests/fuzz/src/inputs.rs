//! Inputs of models: images, JSON, lines of JSON.

use std::io::Cursor;

use rlx::image::{Crop, Filter, Preprocess, Resize, Source};
use rlx::inputs::{InputLimit, json as json_file, lines as json_lines};
use rlx_ir::{ConstData, DType, Dim, Shape, sym};
use rlx_runtime::TensorInfo;
use serde_json::Value as Json;

use crate::accepted;

/// No input is larger.
const LIMIT: InputLimit = InputLimit(1 << 12);

fn input(name: &str, dims: &[Dim], dtype: DType) -> TensorInfo {
    TensorInfo { name: name.to_owned(), dtype, shape: Shape::from_dims(dims, dtype) }
}

fn open(name: &str) -> Dim {
    Dim::Dynamic(sym::named(name))
}

/// Whether the tensor is one for the input, and within the limit.
fn check(info: &TensorInfo, data: &ConstData) {
    assert_eq!(data.dtype(), info.dtype);
    assert_eq!(Some(data.bytes().len()), data.shape().size_bytes(), "{}", data.shape());
    assert!(data.bytes().len() as u64 <= LIMIT.of(info), "{} of {}", data.shape(), info.shape);
}

/// An image file is decoded and prepared for inputs of several layouts, as it is and, if it is a PNG, with the checksums of its
/// chunks made right: a tensor of as many dimensions as the input has, or an error.
///
/// # Panics
/// Where a promise is broken.
pub fn image(data: &[u8]) {
    let [n, h, w] = ["n", "h", "w"].map(open);
    let inputs = [
        input("grey", &[n, Dim::Static(1), h, w], DType::F32),
        input("colours", &[h, w, Dim::Static(3)], DType::U8),
        input("fixed", &[1, 3, 8, 8].map(Dim::Static), DType::F16),
        input("flat", &[h, w], DType::U8),
    ];
    let resized = Preprocess {
        resize: Some(Resize::Input),
        filter: Filter::Bicubic,
        mean: vec![0.5],
        std: vec![0.25],
        ..Preprocess::default()
    };
    let cropped = Preprocess {
        resize: Some(Resize::Shortest { edge: 9, longest: Some(20) }),
        crop: Some(Crop::center(8, 8)),
        ..Preprocess::default()
    };
    let sealed = with_checksums(data);
    let files = if sealed == data { vec![data] } else { vec![data, &sealed] };
    for info in &inputs {
        for by in [&Preprocess::default(), &resized, &cropped] {
            for bytes in &files {
                let read = || by.read(Source::open(Cursor::new(bytes))?, info, LIMIT);
                let Some(found) = accepted(read()) else { continue };
                check(info, &found);
                let fits = |(have, want): (&usize, &Dim)| want.as_static().is_none_or(|n| n == *have);
                let dims = info.shape.dims();
                assert!(found.dims().len() == dims.len() && found.dims().iter().zip(dims).all(fits));
            }
        }
    }
}

/// The file with every chunk's CRC made right (PNG specification, section 5.3).
fn with_checksums(data: &[u8]) -> Vec<u8> {
    let (mut file, mut at) = (data.to_vec(), 8);
    while let Some(length) = file.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes) {
        let (from, length) = (at + 4, 4 + length as usize);
        let Some(end) = from.checked_add(length).filter(|end| end + 4 <= file.len()) else { break };
        let crc = crc32fast::hash(&file[from..end]);
        file[end..end + 4].copy_from_slice(&crc.to_be_bytes());
        at = end + 4;
    }
    file
}

/// A document is the tensor that its nested lists are by their definition, or an error, for inputs of several types.
///
/// # Panics
/// Where a promise is broken.
pub fn json(data: &[u8]) {
    let [a, b] = ["a", "b"].map(open);
    let infos = [DType::F32, DType::I64, DType::U8, DType::Bool].map(|dtype| input("x", &[a, b], dtype));
    for info in &infos {
        let found = accepted(json_file::tensor(data, info, LIMIT));
        if let Some(found) = &found {
            check(info, found);
        }
        if info.dtype != DType::F32 {
            continue;
        }
        let tree: Option<Json> = serde_json::from_slice(data).ok();
        let want = tree.as_ref().and_then(by_definition);
        let small = |(_, elements): &(Vec<usize>, Vec<f32>)| elements.len() as u64 * 4 <= LIMIT.0;
        let want = want.filter(small);
        let elements = |data: ConstData| data.value().to_f64().iter().map(|&x| x as f32).collect::<Vec<_>>();
        let found = found.map(|data| (data.dims().to_vec(), elements(data)));
        assert_eq!(found, want);
    }
    let infos: Vec<&TensorInfo> = infos.iter().take(1).collect();
    for (name, found) in accepted(json_file::object(data, &infos, LIMIT)).into_iter().flatten() {
        assert_eq!(name, "x");
        check(infos[0], &found);
    }
}

/// Dimensions and elements, where all lists of a depth are of one length.
fn by_definition(json: &Json) -> Option<(Vec<usize>, Vec<f32>)> {
    let Json::Array(items) = json else { return Some((Vec::new(), vec![json.as_f64()? as f32])) };
    let parts = items.iter().map(by_definition).collect::<Option<Vec<_>>>()?;
    let inner = parts.first().map_or_else(Vec::new, |(dims, _)| dims.clone());
    let same = parts.iter().all(|(dims, _)| *dims == inner);
    let elements = parts.iter().flat_map(|(_, elements)| elements.iter().copied()).collect();
    same.then(|| (std::iter::once(items.len()).chain(inner).collect(), elements))
}

/// Every line is the inputs of one item, or an error of its own, and none is lost.
///
/// # Panics
/// Where a promise is broken.
pub fn lines(data: &[u8]) {
    let (batch, a) = (open("batch"), open("a"));
    let infos = [input("x", &[batch, a], DType::F32), input("y", &[Dim::Static(1), a], DType::I32)];
    let all: Vec<&TensorInfo> = infos.iter().collect();
    let limit = InputLimit(256);
    let count = data.strip_suffix(b"\n").unwrap_or(data).split(|&b| b == b'\n').count();
    for free in [&all[..1], &all[..]] {
        let found: Vec<_> = json_lines::read(data, free, limit).collect();
        assert_eq!(found.len(), if data.is_empty() { 0 } else { count });
        for line in found {
            let Some(inputs) = line.expect("memory can be read") else { continue };
            for (name, tensor) in accepted(inputs).into_iter().flatten() {
                let info = free.iter().find(|info| info.name == name).expect("an input that is free");
                check(info, &tensor);
            }
        }
    }
}
