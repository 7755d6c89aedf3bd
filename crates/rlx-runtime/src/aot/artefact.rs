//! An [`Artefact`]: a compiled model in a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rlx_backend::tuning::Tuning;
use rlx_ir::files::{MappedFile, map_file};
use rlx_ir::lir::BufferId;
use rlx_ir::progress::Stage;
use rlx_ir::{ConstData, Error, ErrorKind, Graph, LirModule, Progress, Result, WeightStore, text};
use serde::{Deserialize, Serialize};

use super::layout::{ArtefactTarget, Layout, MAGIC};
use super::module::{self, Blobs};
use super::tensors::{Role, Tensor, read_table};

/// The module's section.
#[derive(Serialize, Deserialize)]
pub(super) struct Contents {
    pub(super) module: Vec<u8>,
    /// The model's names of the outputs.
    pub(super) outputs: Vec<String>,
    /// The graph that was compiled, in the text form.
    pub(super) source: Option<String>,
}

/// A compiled model in a file; see the [module](crate::aot).
#[derive(Debug, Clone)]
pub struct Artefact {
    path: PathBuf,
    file: Arc<MappedFile>,
    layout: Layout,
    tensors: Vec<Tensor>,
}

/// Bytes of an artefact's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArtefactSizes {
    /// The file.
    pub file: usize,
    /// The compiled module.
    pub module: usize,
    /// Parameters as they were given.
    pub params: usize,
    /// Weights as the init program left them.
    pub prepared: usize,
}

impl Artefact {
    /// Maps an artefact, and checks all of it but its tensors.
    ///
    /// The file must not be changed while it is open; replacing it is fine, as [`crate::Session::save`] does.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] for a file that cannot be read, [`ErrorKind::Malformed`] for one that is no artefact or is
    /// damaged, [`ErrorKind::Unsupported`] for one of another format.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = Arc::new(map_file(path)?);
        Self::read(path, file).map_err(|e| e.with_origin(path.display().to_string()))
    }

    fn read(path: &Path, file: Arc<MappedFile>) -> Result<Self> {
        let bytes = (*file).as_ref();
        let layout = Layout::read(bytes)?;
        let tensors = read_table(&bytes[layout.table.clone()], &layout.tensors)?;
        Ok(Artefact { path: path.to_owned(), layout, tensors, file })
    }

    /// Whether the file says of itself that it is an artefact.
    pub fn is_artefact(path: impl AsRef<Path>) -> bool {
        let mut first = [0; MAGIC.len()];
        let read = std::fs::File::open(path).and_then(|mut f| std::io::Read::read_exact(&mut f, &mut first));
        read.is_ok() && first == MAGIC
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        &self.layout.head.name
    }

    /// What it was compiled for.
    pub fn target(&self) -> &ArtefactTarget {
        &self.layout.head.target
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The key a cache keeps it under.
    pub(super) fn key(&self) -> &[u8; 32] {
        &self.layout.head.key
    }

    /// Bytes of its parts.
    pub fn sizes(&self) -> ArtefactSizes {
        let sum = |wanted: fn(&Role) -> bool| {
            self.tensors.iter().filter(|t| wanted(&t.role)).map(Tensor::len).sum::<usize>()
        };
        ArtefactSizes {
            file: (*self.file).as_ref().len(),
            module: self.layout.module.len(),
            params: sum(|role| matches!(role, Role::Param(_))),
            prepared: sum(|role| matches!(role, Role::Prepared(_))),
        }
    }

    /// The compiled module. [`rlx_opt::verify_lir()`] says whether a device may run it.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] or a parse error for a file that is damaged in spite of its hashes.
    pub fn lir(&self) -> Result<LirModule> {
        module::decode(&self.contents()?.module, &self.blobs()?).map_err(|e| self.named(e))
    }

    /// The model's names of its outputs, in order.
    ///
    /// # Errors
    /// As [`Artefact::lir`].
    pub fn outputs(&self) -> Result<Vec<String>> {
        Ok(self.contents()?.outputs)
    }

    /// The graph that was compiled; `None` in a slim artefact.
    ///
    /// # Errors
    /// As [`Artefact::lir`].
    pub fn source(&self) -> Result<Option<Graph>> {
        let Some(source) = self.contents()?.source else { return Ok(None) };
        text::parse_with_blobs(&source, &self.blobs()?).map(Some).map_err(|e| self.named(e))
    }

    /// Parameters as they were given: all, or in a slim artefact those that packed weights do not stand for. They lie
    /// in the file's map; bytes are checked when they are first asked for.
    ///
    /// # Errors
    /// As [`Artefact::lir`].
    pub fn weights(&self) -> Result<WeightStore> {
        let mut store = WeightStore::new();
        for tensor in &self.tensors {
            if let Role::Param(name) = &tensor.role {
                store.insert(name.clone(), tensor.weight(&self.file)?);
            }
        }
        Ok(store)
    }

    /// Inputs whose values decided a shape when the model was compiled: it holds for these values only.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] for damaged bytes.
    pub fn decided(&self) -> Result<Vec<(String, ConstData)>> {
        let mut found = Vec::new();
        for tensor in &self.tensors {
            if let Role::Decided(name) = &tensor.role {
                found.push((name.clone(), tensor.to_const(&self.file).map_err(|e| self.named(e))?));
            }
        }
        Ok(found)
    }

    /// Checks every byte that has a hash.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] naming the part that is damaged.
    pub fn verify(&self) -> Result<()> {
        self.verify_with_progress(&Progress::none())
    }

    /// As [`Artefact::verify`], watched: it can be stopped between two tensors.
    ///
    /// # Errors
    /// As [`Artefact::verify`]; [`ErrorKind::Cancelled`].
    pub fn verify_with_progress(&self, progress: &Progress) -> Result<()> {
        for (i, tensor) in self.tensors.iter().enumerate() {
            progress.step(Stage::Read, i, self.tensors.len(), || "")?;
            tensor.bytes(&self.file).map_err(|e| self.named(e))?;
        }
        self.tuning()?;
        self.lir().map(|_| ())
    }

    /// Which ways to do steps were measured to be fastest when it was compiled.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] for damaged bytes.
    pub fn tuning(&self) -> Result<Tuning> {
        let damaged = || self.named(Error::new(ErrorKind::Malformed, "the tuning section is damaged"));
        let bytes = self.layout.tuning((*self.file).as_ref()).ok_or_else(damaged)?;
        let text = std::str::from_utf8(bytes).map_err(|_| damaged())?;
        Tuning::parse(text).map_err(|e| self.named(e))
    }

    /// What the init program left, each checked.
    pub(super) fn prepared(&self, progress: &Progress) -> Result<Vec<(BufferId, &[u8])>> {
        let mut found = Vec::new();
        for (i, tensor) in self.tensors.iter().enumerate() {
            progress.step(Stage::Read, i, self.tensors.len(), || "")?;
            if let Role::Prepared(buffer) = tensor.role {
                found.push((BufferId(buffer), tensor.bytes(&self.file).map_err(|e| self.named(e))?));
            }
        }
        Ok(found)
    }

    /// Whether weights are kept as the init program left them.
    pub(super) fn has_prepared(&self) -> bool {
        self.tensors.iter().any(|t| matches!(t.role, Role::Prepared(_)))
    }

    fn contents(&self) -> Result<Contents> {
        let bytes = &(*self.file).as_ref()[self.layout.module.clone()];
        super::read_record(bytes, "the module's section").map_err(|e| self.named(e))
    }

    fn blobs(&self) -> Result<Blobs> {
        let mut blobs = Blobs::new();
        for tensor in &self.tensors {
            if let Role::Blob(hash) = &tensor.role {
                blobs.insert(hash.clone(), tensor.to_const(&self.file).map_err(|e| self.named(e))?);
            }
        }
        Ok(blobs)
    }

    /// The error, naming the file.
    pub(super) fn named(&self, e: Error) -> Error {
        e.with_origin(self.path.display().to_string())
    }
}
