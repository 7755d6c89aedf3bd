//! The file layout of an artefact.
//!
//! ```text
//! magic, format, length of the head │ head │ hash of all before │ module │ table of tensors │ tensors │ tuning
//! ```
//!
//! The head says what the artefact was compiled for and where the other sections are. All sections except the tensors have
//! hashes that are checked when the file is opened. A tensor has a hash for each mebibyte, checked when it is first used. The
//! tuning section (measured results and the code generated from them) is last and has its own hash only, so that the
//! same input gives the same bytes elsewhere. Every length is checked against the file size before anything is read.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

use rlx_ir::files::{io_error, write_whole};
use rlx_ir::progress::Stage;
use rlx_ir::{Error, ErrorKind, Progress, Result};
use serde::{Deserialize, Serialize};

/// The first bytes of an artefact; the first is no text, so that no other tool takes it for one.
pub(crate) const MAGIC: [u8; 8] = *b"\x8eRLXAOT\n";

/// Raised whenever the file, a packed format, or what a module means changes.
pub(crate) const FORMAT: u32 = 8;

/// Bytes of a tensor that one hash covers.
pub(crate) const CHUNK: usize = 1 << 20;

/// Sections and tensors start at multiples of this, in the file and so in its map.
const ALIGN: usize = 64;

/// Magic, format, length of the head.
const FIXED: usize = 16;

const HASH: usize = 32;

/// A BLAKE3 hash: what an entry of a store is found by.
pub type Digest = [u8; HASH];

/// What an artefact was compiled for: all that its code and packed weights depend on besides the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtefactTarget {
    /// The device, by its feature's name.
    pub device: String,
    /// Instruction set, adapter, driver: [`rlx_backend::Backend::machine`].
    pub machine: String,
    /// The version of RLX.
    pub version: String,
    /// The requested precision.
    pub precision: String,
    /// All options that shape code: [`rlx_opt::CompileOptions::code_key`].
    pub options: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) target: ArtefactTarget,
    /// What people call it.
    pub(crate) name: String,
    /// Under which key a cache keeps it; zero outside of caches.
    pub(crate) key: Digest,
    module: Span,
    table: Span,
    /// Bytes of all tensors.
    tensors: u64,
}

/// A section: how long it is and what hash it has. Sections follow each other, each at the next multiple of 64.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Span {
    len: u64,
    hash: Digest,
}

impl Span {
    fn of(bytes: &[u8]) -> Span {
        Span { len: bytes.len() as u64, hash: *blake3::hash(bytes).as_bytes() }
    }
}

/// Where everything is in an artefact's bytes.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) head: Head,
    pub(crate) module: Range<usize>,
    pub(crate) table: Range<usize>,
    pub(crate) tensors: Range<usize>,
    pub(crate) tuning: Range<usize>,
}

pub(crate) fn malformed(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Malformed, what)
}

fn truncated() -> Error {
    malformed("the artefact is truncated")
}

/// The next multiple of the alignment.
fn aligned(at: usize) -> Result<usize> {
    at.checked_next_multiple_of(ALIGN).ok_or_else(truncated)
}

impl Layout {
    /// Reads the head and checks it, the module and the table against their hashes.
    pub(crate) fn read(bytes: &[u8]) -> Result<Layout> {
        if !bytes.starts_with(&MAGIC) {
            return Err(malformed("not an artefact of rlx compile"));
        }
        let word = |at: usize| -> Result<u32> {
            let found = bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).ok_or_else(truncated)?;
            Ok(u32::from_le_bytes(found))
        };
        let format = word(8)?;
        if format != FORMAT {
            let message = format!("an artefact of format {format}; this RLX reads format {FORMAT}");
            return Err(Error::new(ErrorKind::Unsupported, message).with_hint("compile the model again"));
        }
        let head_end = FIXED.checked_add(word(12)? as usize).ok_or_else(truncated)?;
        let head = bytes.get(FIXED..head_end).ok_or_else(truncated)?;
        let sealed = bytes.get(head_end..head_end + HASH).ok_or_else(truncated)?;
        if blake3::hash(&bytes[..head_end]).as_bytes() != sealed {
            return Err(malformed("the artefact's head is damaged"));
        }
        let head: Head = crate::read_record(head, "the head")?;
        let mut at = head_end + HASH;
        // What is between sections is in no hash: it is zero, so that every byte of a file counts.
        let padding = |from: usize| -> Result<usize> {
            let to = aligned(from)?;
            match bytes.get(from..to) {
                Some(gap) if gap.iter().any(|&b| b != 0) => {
                    Err(malformed("the artefact is damaged between sections"))
                }
                _ => Ok(to),
            }
        };
        let mut section = |len: u64| -> Result<Range<usize>> {
            let start = padding(at)?;
            let end = usize::try_from(len).ok().and_then(|len| start.checked_add(len));
            let end = end.filter(|&end| end <= bytes.len()).ok_or_else(truncated)?;
            at = end;
            Ok(start..end)
        };
        let (module, table) = (section(head.module.len)?, section(head.table.len)?);
        let tensors = section(head.tensors)?;
        let tuning = padding(tensors.end)?..bytes.len();
        if tuning.end < tuning.start.saturating_add(HASH) {
            return Err(truncated());
        }
        for (what, range, span) in [("module", &module, head.module), ("table", &table, head.table)] {
            if *blake3::hash(&bytes[range.clone()]).as_bytes() != span.hash {
                return Err(malformed(format!("the artefact's {what} is damaged")));
            }
        }
        let layout = Layout { head, module, table, tensors, tuning };
        match layout.tuning(bytes) {
            Some(_) => Ok(layout),
            None => Err(malformed("the artefact's tuning section is damaged")),
        }
    }

    /// The tuning section's contents, or `None` when it is damaged.
    pub(crate) fn tuning<'b>(&self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let (contents, hash) = bytes.get(self.tuning.clone())?.split_last_chunk::<HASH>()?;
        (blake3::hash(contents).as_bytes() == hash).then_some(contents)
    }
}

/// What goes into an artefact's file.
pub(crate) struct Parts<'a> {
    pub(crate) target: ArtefactTarget,
    pub(crate) name: String,
    pub(crate) key: Digest,
    pub(crate) module: Vec<u8>,
    pub(crate) table: Vec<u8>,
    /// Each at its offset in the tensors' section: see [`place_tensors`].
    pub(crate) tensors: Vec<&'a [u8]>,
    pub(crate) tuning: Vec<u8>,
}

/// Where tensors of these lengths are in their section, and how long it is.
pub(crate) fn place_tensors(lengths: impl Iterator<Item = usize>) -> Result<(Vec<usize>, usize)> {
    let (mut places, mut end) = (Vec::new(), 0usize);
    for len in lengths {
        let at = aligned(end)?;
        places.push(at);
        end = at.checked_add(len).ok_or_else(|| malformed("tensors larger than memory"))?;
    }
    Ok((places, end))
}

/// Writes an artefact, whole or not at all: stopped at the last byte, or not confirmed then, it leaves nothing.
pub(crate) fn write(
    path: &Path,
    parts: &Parts<'_>,
    progress: &Progress,
    confirm: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let (_, tensors) = place_tensors(parts.tensors.iter().map(|t| t.len()))?;
    let head = Head {
        target: parts.target.clone(),
        name: parts.name.clone(),
        key: parts.key,
        module: Span::of(&parts.module),
        table: Span::of(&parts.table),
        tensors: tensors as u64,
    };
    let head = crate::write_record(&head)?;
    let length = u32::try_from(head.len()).map_err(|_| malformed("a head of more than 4 GiB"))?;
    let mut start = MAGIC.to_vec();
    start.extend(FORMAT.to_le_bytes());
    start.extend(length.to_le_bytes());
    start.extend(&head);
    let seal = blake3::hash(&start);
    start.extend(seal.as_bytes());
    let total = start.len() + parts.module.len() + parts.table.len() + tensors;
    write_whole(path, |file| {
        let mut out = Aligned { file, path, at: 0 };
        out.put(&start)?;
        out.section(&parts.module)?;
        out.section(&parts.table)?;
        // The tensors' section starts aligned even when it is empty, as a reader expects.
        out.section(&[])?;
        for tensor in &parts.tensors {
            out.section(&[])?;
            for chunk in tensor.chunks(CHUNK) {
                progress.step(Stage::Write, out.at, total, || "")?;
                out.put(chunk)?;
            }
        }
        out.section(&parts.tuning)?;
        out.put(blake3::hash(&parts.tuning).as_bytes())?;
        progress.step(Stage::Write, out.at, out.at, || "")?;
        confirm()
    })
}

/// A file that is written from front to back.
struct Aligned<'f> {
    file: &'f mut File,
    path: &'f Path,
    at: usize,
}

impl Aligned<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.at += bytes.len();
        self.file.write_all(bytes).map_err(|e| io_error(self.path, e))
    }

    /// Writes `bytes` at the next multiple of the alignment.
    fn section(&mut self, bytes: &[u8]) -> Result<()> {
        let gap = aligned(self.at)? - self.at;
        self.put(&[0; ALIGN][..gap])?;
        self.put(bytes)
    }
}
