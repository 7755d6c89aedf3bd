//! What a file of weights holds, without its tensors: names, types, shapes and metadata of safetensors and GGUF files.
//!
//! Also types are listed that no tensor of RLX can have, such as llama.cpp's blocks. Files are not trusted: nothing is allocated
//! for what is not in the file, and every offset is checked.
//!
//! ```
//! use rlx_weights::listing::Listing;
//! let header = br#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"format":"pt"}}"#;
//! let file = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 8]].concat();
//! let listing = Listing::of(&file)?.expect("safetensors");
//! assert_eq!((listing.tensors[0].name.as_str(), listing.tensors[0].dims.as_slice()), ("a", &[2][..]));
//! # Ok::<(), rlx_ir::Error>(())
//! ```

use std::path::Path;

use rlx_ir::Error;
use rlx_ir::files::map_file;
use rlx_ir::sort::sort_by_key;
use safetensors::tensor::SafeTensors;

use crate::{gguf, malformed};

/// A file's contents.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing {
    /// What the file is, with its version.
    pub format: String,
    /// What it says of itself, in the file's order where it has one; long lists are summed up.
    pub metadata: Vec<(String, String)>,
    /// Its tensors, in the order of their data.
    pub tensors: Vec<ListedTensor>,
    /// Bytes of the whole file.
    pub file_bytes: usize,
}

/// A tensor in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedTensor {
    /// Its name.
    pub name: String,
    /// Its type, as the format calls it.
    pub dtype: String,
    /// Outermost first, as NumPy writes shapes.
    pub dims: Vec<u64>,
    /// What it takes in the file; `None` for types of unknown size.
    pub bytes: Option<u64>,
}

impl Listing {
    /// That of a file; `None` for other formats than safetensors and GGUF.
    ///
    /// # Errors
    /// A file that cannot be read, or is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Option<Listing>, Error> {
        let path = path.as_ref();
        if path.is_dir() {
            return Ok(None);
        }
        let file = map_file(path)?;
        Listing::of(file.as_ref()).map_err(|e| e.with_origin(path.display().to_string()))
    }

    /// As [`Listing::open`], of a whole file's bytes.
    ///
    /// # Errors
    /// A damaged file.
    pub fn of(bytes: &[u8]) -> Result<Option<Listing>, Error> {
        if bytes.starts_with(b"GGUF") {
            return gguf::listing(bytes).map(Some);
        }
        // The length of the header comes first, then the header, which is JSON.
        let is_safetensors = bytes.split_first_chunk::<8>().is_some_and(|(length, rest)| {
            let length = u64::from_le_bytes(*length);
            (2..=100 << 20).contains(&length) && matches!(rest, [b'{', b'"' | b'}' | b' ' | b'\n', ..])
        });
        if is_safetensors { safetensors(bytes).map(Some) } else { Ok(None) }
    }

    /// For each type, how many tensors and bytes there are, the largest first.
    pub fn by_type(&self) -> Vec<(String, usize, u64)> {
        let mut sums: Vec<(String, usize, u64)> = Vec::new();
        for tensor in &self.tensors {
            let bytes = tensor.bytes.unwrap_or(0);
            match sums.iter_mut().find(|(dtype, ..)| *dtype == tensor.dtype) {
                Some((_, count, sum)) => (*count, *sum) = (*count + 1, sum.saturating_add(bytes)),
                None => sums.push((tensor.dtype.clone(), 1, bytes)),
            }
        }
        sort_by_key(&mut sums, |(_, _, bytes)| std::cmp::Reverse(*bytes));
        sums
    }
}

fn safetensors(bytes: &[u8]) -> Result<Listing, Error> {
    let (header, metadata) = SafeTensors::read_metadata(bytes)
        .map_err(|e| malformed(format!("not a whole safetensors file: {e}")).with_source(e))?;
    let mut tensors: Vec<(usize, ListedTensor)> = metadata
        .tensors()
        .into_iter()
        .map(|(name, info)| {
            let (start, end) = info.data_offsets;
            let dims = info.shape.iter().map(|&d| d as u64).collect();
            let bytes = Some(end.saturating_sub(start) as u64);
            (start, ListedTensor { name, dtype: format!("{:?}", info.dtype), dims, bytes })
        })
        .collect();
    sort_by_key(&mut tensors, |(start, tensor)| (*start, tensor.name.clone()));
    let end = tensors.iter().map(|(start, t)| *start as u64 + t.bytes.unwrap_or(0)).max().unwrap_or(0);
    if header as u64 + 8 + end > bytes.len() as u64 {
        return Err(malformed("not a whole safetensors file: it is truncated"));
    }
    let mut pairs: Vec<(String, String)> =
        metadata.metadata().clone().unwrap_or_default().into_iter().collect();
    sort_by_key(&mut pairs, |(key, _)| key.clone());
    let tensors = tensors.into_iter().map(|(_, tensor)| tensor).collect();
    Ok(Listing { format: "safetensors".to_owned(), metadata: pairs, tensors, file_bytes: bytes.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safetensors_are_listed_with_their_metadata() {
        let header = br#"{"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}"#;
        let file = [&(header.len() as u64).to_le_bytes()[..], header, &[0; 16]].concat();
        let listing = Listing::of(&file).unwrap().unwrap();
        assert_eq!(listing.metadata, [("format".to_owned(), "pt".to_owned())]);
        let names: Vec<&str> = listing.tensors.iter().map(|t| t.name.as_str()).collect();
        assert_eq!((names, listing.by_type()[0].clone()), (vec!["a", "b"], ("BF16".to_owned(), 1, 12)));
        assert!(Listing::of(&file[..file.len() - 1]).is_err());
        assert_eq!(Listing::of(b"something else"), Ok(None));
    }
}
