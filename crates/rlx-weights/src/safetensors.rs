//! Hugging Face's safetensors: a table of names, types and offsets, then the tensors.

use crate::malformed;
use rlx_ir::files::map_file;
use rlx_ir::{DType, Error, ErrorKind, Weight, WeightStore};
use safetensors::tensor::{Dtype, SafeTensors};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Opens a safetensors file; its tensors stay in the file's map, which must not change meanwhile.
///
/// # Errors
/// A file that cannot be read, that is malformed, or that holds a type RLX does not have.
pub fn open(path: impl AsRef<Path>) -> Result<WeightStore, Error> {
    let path = path.as_ref();
    let file = Arc::new(map_file(path)?);
    let part = |dtype, shape: &[usize], range| {
        let whole = Arc::clone(&file);
        Weight::mapped_checked(dtype, shape, Arc::clone(&file), range, move |_| whole.check_whole())
    };
    tensors((*file).as_ref(), &part).map_err(|e| e.with_origin(path.display().to_string()))
}

/// The tensors of a safetensors file that is in memory.
///
/// # Errors
/// As [`open`].
pub fn from_source(source: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Result<WeightStore, Error> {
    tensors((*source).as_ref(), &|dtype, shape, range| {
        Weight::mapped(dtype, shape, Arc::clone(&source), range)
    })
}

/// Makes a weight of a part of the file.
type PartOf<'a> = dyn Fn(DType, &[usize], Range<usize>) -> Result<Weight, Error> + 'a;

fn tensors(bytes: &[u8], part: &PartOf<'_>) -> Result<WeightStore, Error> {
    let (header, metadata) = SafeTensors::read_metadata(bytes)
        .map_err(|e| malformed(format!("not a safetensors file: {e}")).with_source(e))?;
    // The table's length is in the first eight bytes.
    let first = header + 8;
    let mut store = WeightStore::new();
    for (name, info) in metadata.tensors() {
        let (start, end) = info.data_offsets;
        let range = first.checked_add(start).zip(first.checked_add(end));
        let (start, end) = range.ok_or_else(|| malformed(format!("tensor \"{name}\" lies nowhere")))?;
        let place = |e: Error| e.with_node(format!("tensor \"{name}\""));
        let dtype = dtype(info.dtype).map_err(place)?;
        let weight = part(dtype, &info.shape, start..end).map_err(place)?;
        store.insert(name, weight);
    }
    Ok(store)
}

fn dtype(of: Dtype) -> Result<DType, Error> {
    Ok(match of {
        Dtype::BOOL => DType::Bool,
        Dtype::U8 => DType::U8,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::U16 => DType::U16,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I32 => DType::I32,
        Dtype::U32 => DType::U32,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        Dtype::I64 => DType::I64,
        Dtype::U64 => DType::U64,
        Dtype::F8_E4M3 => DType::F8E4M3FN,
        Dtype::F8_E5M2 => DType::F8E5M2,
        other => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("safetensors elements of type {other:?}"),
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Arc<dyn AsRef<[u8]> + Send + Sync> {
        Arc::new([&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat())
    }

    #[test]
    fn tensors_are_parts_of_the_file() {
        let header = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"I8","shape":[],"data_offsets":[8,9]}}"#;
        let store = from_source(file(header, &[0, 0, 128, 63, 0, 0, 0, 64, 250])).unwrap();
        assert_eq!(store.get("a").unwrap().to_const().unwrap().value().to_f64(), [1.0, 2.0]);
        assert_eq!(store.get("b").unwrap().to_const().unwrap().value().to_f64(), [-6.0]);
    }

    #[test]
    fn a_file_truncated_before_a_tensor_is_used_is_an_error() {
        let (header, data) =
            (r#"{"a":{"dtype":"U8","shape":[2000000],"data_offsets":[0,2000000]}}"#, vec![7; 2_000_000]);
        let path = std::env::temp_dir().join(format!("rlx-cut-{}.safetensors", std::process::id()));
        std::fs::write(&path, (*file(header, &data)).as_ref()).unwrap();
        let (used, unused) = (open(&path).unwrap(), open(&path).unwrap());
        assert_eq!(used.get("a").unwrap().bytes().unwrap().as_ref(), data);
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(5000).unwrap();
        let e = unused.get("a").unwrap().bytes().map(drop).unwrap_err();
        assert!(e.kind() == ErrorKind::Io && e.to_string().contains("was truncated"), "{e}");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn places_outside_the_file_and_wrong_sizes_are_errors() {
        for (shape, offsets, data) in [("[2]", "[0,8]", 4), ("[3]", "[0,8]", 8), ("[2]", "[4,12]", 12)] {
            let header = format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":{offsets}}}}}"#);
            assert!(from_source(file(&header, &vec![0; data])).is_err(), "{header}");
        }
        assert!(from_source(Arc::new(vec![255u8; 20])).is_err());
        assert!(from_source(Arc::new(Vec::new())).is_err());
    }
}
