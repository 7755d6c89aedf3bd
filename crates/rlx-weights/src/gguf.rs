//! The header of a GGUF file, llama.cpp's format (`docs/gguf.md` in ggml; versions 1 to 3, of both byte orders).

use rlx_ir::Error;

use crate::listing::{ListedTensor, Listing};
use crate::malformed;

/// Lists in lists, deeper than any writer makes.
const DEEPEST: usize = 4;
/// Longer texts are cut.
const LONGEST: usize = 4096;

/// Tensor types by number: name, elements of a block, bytes of a block.
const TYPES: &[(u32, &str, u64, u64)] = &[
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
];

/// What is left of the file.
struct Reader<'a> {
    rest: &'a [u8],
    big_endian: bool,
    /// Version 1 counts in 32 bits.
    narrow: bool,
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: u64) -> Result<&'a [u8], Error> {
        let split = usize::try_from(n).ok().and_then(|n| self.rest.split_at_checked(n));
        let (taken, rest) = split.ok_or_else(|| malformed("a GGUF file that is truncated or damaged"))?;
        self.rest = rest;
        Ok(taken)
    }

    /// An unsigned number of so many bytes, at most 8.
    fn uint(&mut self, bytes: u64) -> Result<u64, Error> {
        let push = |n: u64, &byte: &u8| n << 8 | u64::from(byte);
        let taken = self.take(bytes)?;
        Ok(match self.big_endian {
            true => taken.iter().fold(0, push),
            false => taken.iter().rev().fold(0, push),
        })
    }

    fn count(&mut self) -> Result<u64, Error> {
        self.uint(if self.narrow { 4 } else { 8 })
    }

    fn text(&mut self) -> Result<String, Error> {
        let length = self.count()?;
        let bytes = self.take(length)?;
        let shown = &bytes[..bytes.len().min(LONGEST)];
        let cut = if shown.len() < bytes.len() { "…" } else { "" };
        Ok(String::from_utf8_lossy(shown).into_owned() + cut)
    }

    /// A value of metadata, as text.
    fn value(&mut self, kind: u64, depth: usize) -> Result<String, Error> {
        if let Some(size) = scalar_size(kind) {
            let bits = self.uint(size)?;
            return Ok(scalar(kind, size, bits));
        }
        match kind {
            8 => self.text(),
            9 if depth < DEEPEST => {
                let kind = self.uint(4)?;
                let count = self.count()?;
                match scalar_size(kind) {
                    Some(size) => {
                        let bytes = count.saturating_mul(size);
                        self.take(bytes)?;
                    }
                    // Every element has a length of its own, so there are no more than bytes.
                    None => (0..count).try_for_each(|_| self.value(kind, depth + 1).map(drop))?,
                }
                Ok(format!("{count} × {}", kind_name(kind)))
            }
            _ => Err(malformed(format!("a GGUF file with a value of kind {kind}"))),
        }
    }
}

/// The bytes of a value of fixed size.
fn scalar_size(kind: u64) -> Option<u64> {
    Some(match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        10..=12 => 8,
        _ => return None,
    })
}

fn scalar(kind: u64, size: u64, bits: u64) -> String {
    // The sign is that of so many bits.
    let shift = 64 - 8 * size as u32;
    match kind {
        1 | 3 | 5 | 11 => ((bits << shift) as i64 >> shift).to_string(),
        6 => f32::from_bits(bits as u32).to_string(),
        7 => (bits != 0).to_string(),
        12 => f64::from_bits(bits).to_string(),
        _ => bits.to_string(),
    }
}

fn kind_name(kind: u64) -> &'static str {
    const NAMES: [&str; 13] =
        ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "text", "list", "u64", "i64", "f64"];
    usize::try_from(kind).ok().and_then(|kind| NAMES.get(kind)).copied().unwrap_or("unknown")
}

/// What the header of a whole file says.
pub(crate) fn listing(bytes: &[u8]) -> Result<Listing, Error> {
    let mut reader = Reader { rest: bytes.get(4..).unwrap_or_default(), big_endian: false, narrow: false };
    let mut version = reader.uint(4)? as u32;
    if version.swap_bytes() <= 0xffff && version > 0xffff {
        (reader.big_endian, version) = (true, version.swap_bytes());
    }
    if !(1..=3).contains(&version) {
        return Err(malformed(format!("a GGUF file of version {version}; 1 to 3 are known")));
    }
    reader.narrow = version == 1;
    let (tensor_count, pair_count) = (reader.count()?, reader.count()?);
    let mut metadata = Vec::new();
    for _ in 0..pair_count {
        let key = reader.text()?;
        let kind = reader.uint(4)?;
        metadata.push((key, reader.value(kind, 0)?));
    }
    let mut tensors = Vec::new();
    for _ in 0..tensor_count {
        tensors.push(tensor(&mut reader)?);
    }
    let order = if reader.big_endian { ", big-endian" } else { "" };
    Ok(Listing { format: format!("GGUF {version}{order}"), metadata, tensors, file_bytes: bytes.len() })
}

fn tensor(reader: &mut Reader<'_>) -> Result<ListedTensor, Error> {
    const HIGHEST: u64 = 16;
    let name = reader.text()?;
    let rank = reader.uint(4)?;
    if rank > HIGHEST {
        return Err(malformed(format!("a GGUF file with a tensor of {rank} dimensions")));
    }
    // Innermost first in the file.
    let mut dims = (0..rank).map(|_| reader.count()).collect::<Result<Vec<u64>, Error>>()?;
    dims.reverse();
    let kind = reader.uint(4)? as u32;
    reader.uint(8)?;
    let known = TYPES.iter().find(|(number, ..)| *number == kind);
    let elements = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
    let bytes = known.zip(elements).and_then(|(&(_, _, block, size), n)| (n / block).checked_mul(size));
    let dtype = known.map_or_else(|| format!("type {kind}"), |(_, name, ..)| (*name).to_owned());
    Ok(ListedTensor { name, dtype, dims, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(s: &str) -> Vec<u8> {
        [&(s.len() as u64).to_le_bytes()[..], s.as_bytes()].concat()
    }

    fn file() -> Vec<u8> {
        let pair = |key: &str, kind: u32, value: &[u8]| [&text(key)[..], &kind.to_le_bytes(), value].concat();
        let list = [&8u32.to_le_bytes()[..], &2u64.to_le_bytes(), &text("a"), &text("bc")].concat();
        let tensor = |name: &str, dims: &[u64], kind: u32| {
            let dims: Vec<u8> = [&(dims.len() as u32).to_le_bytes()[..]]
                .into_iter()
                .map(<[u8]>::to_vec)
                .chain(dims.iter().map(|d| d.to_le_bytes().to_vec()))
                .flatten()
                .collect();
            [&text(name)[..], &dims, &kind.to_le_bytes(), &0u64.to_le_bytes()].concat()
        };
        [
            b"GGUF".to_vec(),
            3u32.to_le_bytes().to_vec(),
            2u64.to_le_bytes().to_vec(),
            4u64.to_le_bytes().to_vec(),
            pair("general.architecture", 8, &text("llama")),
            pair("llama.block_count", 5, &(-3i32).to_le_bytes()),
            pair("eps", 6, &0.5f32.to_le_bytes()),
            pair("tokens", 9, &list),
            tensor("w", &[64, 2], 2),
            tensor("odd", &[3], 77),
        ]
        .concat()
    }

    #[test]
    fn the_header_is_listed() {
        let listing = Listing::of(&file()).unwrap().unwrap();
        let pairs: Vec<(&str, &str)> =
            listing.metadata.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let want = [
            ("general.architecture", "llama"),
            ("llama.block_count", "-3"),
            ("eps", "0.5"),
            ("tokens", "2 × text"),
        ];
        assert_eq!(pairs, want);
        let w = &listing.tensors[0];
        assert_eq!((w.dtype.as_str(), w.dims.as_slice(), w.bytes), ("Q4_0", &[2, 64][..], Some(72)));
        assert_eq!((listing.tensors[1].dtype.as_str(), listing.tensors[1].bytes), ("type 77", None));
    }

    #[test]
    fn truncated_and_hostile_headers_are_errors() {
        let whole = file();
        for end in 4..whole.len() {
            assert!(Listing::of(&whole[..end]).is_err(), "{end}");
        }
        for at in 8..24 {
            let mut many = whole.clone();
            many[at] = 0xff;
            // Counts that the file does not hold take no memory.
            assert!(Listing::of(&many).is_err(), "{at}");
        }
        let nested = |depth: usize| {
            let list = [&9u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat();
            [
                b"GGUF",
                &3u32.to_le_bytes()[..],
                &[0; 8],
                &1u64.to_le_bytes(),
                &text("k"),
                &9u32.to_le_bytes(),
                &list.repeat(depth),
            ]
            .concat()
        };
        assert!(Listing::of(&nested(1000)).unwrap_err().message().contains("kind 9"));
    }
}
