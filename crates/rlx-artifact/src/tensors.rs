//! The table of an artefact's tensors, and the check of their bytes.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use rlx_ir::files::MappedFile;
use rlx_ir::progress::Stage;
use rlx_ir::threads;
use rlx_ir::{ConstData, DType, Progress, Result, Shape, Weight};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::layout::malformed;
use crate::layout::{CHUNK, place_tensors};

/// Tensors larger than this are hashed on several threads.
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
    let mut digests = vec![ChunkDigest::default(); bytes.len().div_ceil(CHUNK)];
    in_parallel(bytes, &mut digests, &|chunk, digest| *digest = xxh3_128(chunk).to_le_bytes());
    digests
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
    let (next, damaged) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let look = || {
        loop {
            let i = next.fetch_add(1, Relaxed);
            let Some((_, _, (bytes, digest))) = all.get(i) else { break };
            if xxh3_128(bytes).to_le_bytes() != **digest {
                damaged.fetch_min(i, Relaxed);
            }
        }
    };
    let bytes: usize = tensors.iter().map(|(bytes, _)| bytes.len()).sum();
    threads::share(if bytes < WORTH_THREADS { 1 } else { processors() }, look);
    match all.get(damaged.into_inner()) {
        None => Ok(()),
        Some(&(tensor, at, _)) => {
            Err(malformed(format!("{} is damaged, in its mebibyte {at}", what(tensor))))
        }
    }
}

/// How many threads hash at once.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get().min(8))
}

/// Calls `f` on every chunk and its index, on all processors if there is much to do.
fn in_parallel(bytes: &[u8], digests: &mut [ChunkDigest], f: &(dyn Fn(&[u8], &mut ChunkDigest) + Sync)) {
    let all = |bytes: &[u8], digests: &mut [ChunkDigest]| {
        bytes.chunks(CHUNK).zip(digests).for_each(|(chunk, digest)| f(chunk, digest));
    };
    let count = processors();
    if bytes.len() < WORTH_THREADS || count == 1 {
        return all(bytes, digests);
    }
    let share = digests.len().div_ceil(count);
    let parts = Mutex::new(bytes.chunks(share * CHUNK).zip(digests.chunks_mut(share)));
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
    threads::share(count, || {
        while let Some((bytes, digests)) = next() {
            all(bytes, digests);
        }
    });
}
