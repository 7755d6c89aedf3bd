//! An artefact's hashes made right again, as somebody who forges one does: `rlx-runtime` writes what is described here,
//! and `docs/architecture/artifacts.md` says where.

use rlx_runtime::ArtefactTarget;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

const MAGIC: &[u8] = b"\x8eRLXAOT\n";
/// Magic, format, length of the head.
const FIXED: usize = 16;
const HASH: usize = 32;
const ALIGN: usize = 64;
const CHUNK: usize = 1 << 20;

#[derive(Serialize, Deserialize)]
struct Head {
    target: ArtefactTarget,
    name: String,
    key: [u8; HASH],
    module: Span,
    table: Span,
    tensors: u64,
}

#[derive(Serialize, Deserialize)]
struct Span {
    len: u64,
    hash: [u8; HASH],
}

#[derive(Serialize, Deserialize)]
enum Role {
    Blob(String),
    Param(String),
    Prepared(u32),
    Decided(String),
}

#[derive(Serialize, Deserialize)]
struct Tensor {
    role: Role,
    dtype: String,
    dims: Vec<u64>,
    at: u64,
    chunks: Vec<[u8; 16]>,
}

/// The artefact `bytes` with every hash as its contents want it, and made for `target`, so that anyone who loads it goes on to
/// what it says. `None` for bytes whose sections cannot be told apart.
pub fn sealed(bytes: &[u8], target: &ArtefactTarget) -> Option<Vec<u8>> {
    if !bytes.starts_with(MAGIC) {
        return None;
    }
    let length = u32::from_le_bytes(*bytes.get(12..)?.first_chunk()?) as usize;
    let head_end = FIXED.checked_add(length)?;
    let (mut head, _) = postcard::take_from_bytes::<Head>(bytes.get(FIXED..head_end)?).ok()?;
    let mut at = head_end.checked_add(HASH)?;
    let mut section = |len: u64| {
        let start = at.checked_next_multiple_of(ALIGN)?;
        at = start.checked_add(usize::try_from(len).ok()?)?;
        bytes.get(start..at)
    };
    let (module, table, tensors) =
        (section(head.module.len)?, section(head.table.len)?, section(head.tensors)?);
    let rest = bytes.get(at.checked_next_multiple_of(ALIGN)?..)?;
    let tuning = &rest[..rest.len().saturating_sub(HASH)];

    let table = table_for(table, tensors);
    head.target = target.clone();
    head.module.hash = *blake3::hash(module).as_bytes();
    head.table = Span { len: table.len() as u64, hash: *blake3::hash(&table).as_bytes() };
    let head = postcard::to_allocvec(&head).ok()?;
    let mut out = bytes[..12].to_vec();
    out.extend(u32::try_from(head.len()).ok()?.to_le_bytes());
    out.extend(head);
    out.extend(*blake3::hash(&out).as_bytes());
    for section in [module, &table, tensors, tuning] {
        out.resize(out.len().next_multiple_of(ALIGN), 0);
        out.extend(section);
    }
    out.extend(blake3::hash(tuning).as_bytes());
    Some(out)
}

/// The table with the hashes of these tensors; as it is, where it cannot be read.
fn table_for(table: &[u8], tensors: &[u8]) -> Vec<u8> {
    let Ok((mut records, [])) = postcard::take_from_bytes::<Vec<Tensor>>(table) else {
        return table.to_vec();
    };
    for record in &mut records {
        // Types of less than a byte are not among the seeds.
        let size = match record.dtype.as_str() {
            "f64" | "i64" | "u64" | "c64" => 8,
            "f32" | "i32" | "u32" => 4,
            "f16" | "bf16" | "i16" | "u16" => 2,
            _ => 1,
        };
        let len = record.dims.iter().try_fold(size, |n: u64, &d| n.checked_mul(d));
        let start = usize::try_from(record.at).ok();
        let end = start.zip(len).and_then(|(at, len)| at.checked_add(usize::try_from(len).ok()?));
        if let Some(bytes) = start.zip(end).and_then(|(start, end)| tensors.get(start..end)) {
            record.chunks = bytes.chunks(CHUNK).map(|chunk| xxh3_128(chunk).to_le_bytes()).collect();
        }
    }
    postcard::to_allocvec(&records).unwrap_or_else(|_| table.to_vec())
}
