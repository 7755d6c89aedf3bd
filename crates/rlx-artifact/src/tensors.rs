//! The table of an artefact's tensors, and the check of their bytes.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use rlx_ir::files::MappedFile;
use rlx_ir::progress::Stage;
use rlx_ir::threads;
use rlx_ir::{ConstData, DType, Progress, Result, Shape, Weight};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::layout::malformed;
use crate::layout::{CHUNK, place_tensors};

/// More bytes than this are hashed on several threads.
const WORTH_THREADS: usize = 4 * CHUNK;

/// A chunk's XXH3-128. Weights are hashed while a model starts, so the hash must keep up with memory: XXH3 reads
/// several times faster than BLAKE3, which keeps the head and the module. Both find damage; neither is there to find
/// malice, which could make the hashes right again.
type ChunkDigest = [u8; 16];

/// What a tensor of an artefact is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// A constant that the text form names by this hash.
    Blob(String),
    /// The value of the parameter of this name.
    Param(String),
    /// What the init program wrote to this buffer.
    Prepared(u32),
    /// The value of an input for which alone the module holds.
    Decided(String),
}

#[derive(Serialize, Deserialize)]
struct TensorRecord {
    role: Role,
    dtype: String,
    dims: Vec<u64>,
    /// From the start of the tensors' section.
    at: u64,
    chunks: Vec<ChunkDigest>,
}

/// A tensor to be written.
pub(crate) struct NewTensor<'a> {
    pub(crate) role: Role,
    pub(crate) dtype: DType,
    pub(crate) dims: Vec<usize>,
    pub(crate) bytes: &'a [u8],
}

impl<'a> NewTensor<'a> {
    pub(crate) fn constant(role: Role, data: &'a ConstData) -> Self {
        NewTensor { role, dtype: data.dtype(), dims: data.dims().to_vec(), bytes: data.bytes() }
    }
}

/// The table of these tensors, as they are one behind the other.
pub(crate) fn table(tensors: &[NewTensor<'_>], progress: &Progress) -> Result<Vec<u8>> {
    let (places, _) = place_tensors(tensors.iter().map(|t| t.bytes.len()))?;
    let record = |(t, at): (&NewTensor<'_>, usize)| {
        progress.check(Stage::Write)?;
        Ok(TensorRecord {
            role: t.role.clone(),
            dtype: t.dtype.name().to_owned(),
            dims: t.dims.iter().map(|&d| d as u64).collect(),
            at: at as u64,
            chunks: digests(t.bytes),
        })
    };
    crate::write_record(&tensors.iter().zip(places).map(record).collect::<Result<Vec<_>>>()?)
}

/// A tensor of an artefact.
#[derive(Debug, Clone)]
pub(crate) struct Tensor {
    pub(crate) role: Role,
    pub(crate) dtype: DType,
    pub(crate) dims: Vec<usize>,
    /// In the file.
    range: Range<usize>,
    chunks: Arc<[ChunkDigest]>,
}

/// Reads the table; every tensor must be within `section`.
pub(crate) fn read_table(bytes: &[u8], section: &Range<usize>) -> Result<Vec<Tensor>> {
    let records: Vec<TensorRecord> = crate::read_record(bytes, "the table of tensors")?;
    let tensor = |record: TensorRecord| {
        let outside = || malformed(format!("{:?} is outside of the artefact", record.role));
        let dtype: DType = record.dtype.parse()?;
        let dims: Option<Vec<usize>> = record.dims.iter().map(|&d| usize::try_from(d).ok()).collect();
        let dims = dims.ok_or_else(outside)?;
        let len = Shape::new(&dims, dtype).size_bytes().ok_or_else(outside)?;
        let start = usize::try_from(record.at).ok().and_then(|at| section.start.checked_add(at));
        let end = start.and_then(|start| start.checked_add(len)).filter(|&end| end <= section.end);
        let range = start.zip(end).map(|(start, end)| start..end).ok_or_else(outside)?;
        if record.chunks.len() != len.div_ceil(CHUNK) {
            return Err(malformed(format!("{} hashes for {len} bytes", record.chunks.len())));
        }
        Ok(Tensor { role: record.role, dtype, dims, range, chunks: record.chunks.into() })
    };
    records.into_iter().map(tensor).collect()
}

impl Tensor {
    /// What messages call it.
    pub(crate) fn describe(&self) -> String {
        match &self.role {
            Role::Blob(hash) => format!("constant {hash}"),
            Role::Param(name) => format!("parameter {name:?}"),
            Role::Prepared(buffer) => format!("prepared buffer {buffer}"),
            Role::Decided(name) => format!("input {name:?}"),
        }
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> usize {
        self.range.len()
    }

    /// Its bytes, once they are what was written.
    pub(crate) fn bytes<'f>(&self, file: &'f MappedFile) -> Result<&'f [u8]> {
        let bytes = self.unchecked(file)?;
        check(bytes, &self.chunks, &self.describe())?;
        Ok(bytes)
    }

    fn unchecked<'f>(&self, file: &'f MappedFile) -> Result<&'f [u8]> {
        file.check_whole()?;
        file.as_ref().get(self.range.clone()).ok_or_else(|| malformed("the artefact was truncated"))
    }

    /// The tensor as a constant.
    pub(crate) fn to_const(&self, file: &MappedFile) -> Result<ConstData> {
        ConstData::new(self.dtype, &self.dims, self.bytes(file)?)
    }

    /// The tensor in the mapped file; its bytes are checked at first use.
    pub(crate) fn weight(&self, file: &Arc<MappedFile>) -> Result<Weight> {
        let (chunks, what) = (Arc::clone(&self.chunks), self.describe());
        let (source, whole) = (Arc::clone(file), Arc::clone(file));
        Weight::mapped_checked(self.dtype, &self.dims, source, self.range.clone(), move |bytes| {
            whole.check_whole()?;
            check(bytes, &chunks, &what)
        })
    }
}

/// The bytes of each of these, once they are what was written.
pub(crate) fn bytes_of_all<'f>(tensors: &[&Tensor], file: &'f MappedFile) -> Result<Vec<&'f [u8]>> {
    let bytes = tensors.iter().map(|t| t.unchecked(file)).collect::<Result<Vec<_>>>()?;
    let chunks = bytes.iter().zip(tensors).map(|(&bytes, t)| (bytes, &*t.chunks));
    check_all(&chunks.collect::<Vec<_>>(), |i| tensors[i].describe())?;
    Ok(bytes)
}

/// The hash of every chunk.
fn digests(bytes: &[u8]) -> Vec<ChunkDigest> {
    let chunks: Vec<&[u8]> = bytes.chunks(CHUNK).collect();
    let digests: Vec<OnceLock<ChunkDigest>> = chunks.iter().map(|_| OnceLock::new()).collect();
    let digest = |i: usize| *digests[i].get_or_init(|| xxh3_128(chunks[i]).to_le_bytes());
    share_chunks(chunks.len(), bytes.len(), &|i| _ = digest(i));
    (0..chunks.len()).map(digest).collect()
}

/// Whether every chunk has its hash.
fn check(bytes: &[u8], chunks: &[ChunkDigest], what: &str) -> Result<()> {
    check_all(&[(bytes, chunks)], |_| what.to_owned())
}

/// Whether every chunk of all of these has its hash; `what` gives the name of one. Many small tensors are hashed on several threads as one large one is.
fn check_all(tensors: &[(&[u8], &[ChunkDigest])], what: impl Fn(usize) -> String) -> Result<()> {
    let chunks_of = |&(bytes, digests): &(_, _)| <[u8]>::chunks(bytes, CHUNK).zip::<&[ChunkDigest]>(digests);
    let all: Vec<_> = tensors
        .iter()
        .enumerate()
        .flat_map(|(tensor, of)| chunks_of(of).enumerate().map(move |(at, chunk)| (tensor, at, chunk)))
        .collect();
    let damaged = AtomicUsize::new(usize::MAX);
    let bytes = tensors.iter().map(|(bytes, _)| bytes.len()).sum();
    share_chunks(all.len(), bytes, &|i| {
        let (_, _, (bytes, digest)) = all[i];
        if xxh3_128(bytes).to_le_bytes() != *digest {
            damaged.fetch_min(i, Relaxed);
        }
    });
    match all.get(damaged.into_inner()) {
        None => Ok(()),
        Some(&(tensor, at, _)) => {
            Err(malformed(format!("{} is damaged, in its mebibyte {at}", what(tensor))))
        }
    }
}

/// Calls `f` with the number of each of `count` chunks, on all processors if they are many `bytes`.
fn share_chunks(count: usize, bytes: usize, f: &(dyn Fn(usize) + Sync)) {
    let processors = || std::thread::available_parallelism().map_or(1, |n| n.get().min(8));
    let next = AtomicUsize::new(0);
    threads::share(if bytes < WORTH_THREADS { 1 } else { processors() }, || {
        while let Some(i) = Some(next.fetch_add(1, Relaxed)).filter(|&i| i < count) {
            f(i);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of few bytes, and of enough for several threads.
    #[test]
    fn the_first_damaged_chunk_of_many_tensors_is_named() {
        for len in [100, 3 * CHUNK - 1] {
            let mut tensors: Vec<Vec<u8>> =
                (0..5).map(|t| (0..len).map(|i| (i * 7 + t) as u8).collect()).collect();
            let hashes: Vec<_> = tensors.iter().map(|t| digests(t)).collect();
            let alone: Vec<_> = tensors[0].chunks(CHUNK).map(|c| xxh3_128(c).to_le_bytes()).collect();
            assert_eq!(hashes[0], alone);
            let found = |tensors: &[Vec<u8>]| {
                let all: Vec<_> = tensors.iter().zip(&hashes).map(|(t, h)| (&t[..], &h[..])).collect();
                check_all(&all, |i| format!("tensor {i}")).map_err(|e| e.to_string())
            };
            assert_eq!(found(&tensors), Ok(()));
            tensors[4][0] ^= 1;
            tensors[2][len - 1] ^= 1;
            let error = found(&tensors).unwrap_err();
            let wanted = format!("tensor 2 is damaged, in its mebibyte {}", (len - 1) / CHUNK);
            assert!(error.contains(&wanted), "{error}");
        }
    }
}
