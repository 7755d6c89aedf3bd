//! Writing an artefact: what goes into the file, and in which order.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use rlx_backend::CodePart;
use rlx_backend::tuning::Tuning;
use rlx_ir::lir::BufferId;
use rlx_ir::progress::Stage;
use rlx_ir::sort::sort_by_key;
use rlx_ir::{ConstData, DType, Graph, Progress, Result, Weight, text};

use crate::artefact::{Contents, found};
use crate::layout::{self, ArtefactTarget, Digest, Parts};
use crate::module::EncodedModule;
use crate::origins::OriginsRecord;
use crate::tensors::{NewTensor, Role, table};

/// What is in an artefact that is to be written. The same content makes the same bytes, but for the tuning results and
/// the code, which are last in the file.
#[derive(Debug)]
pub struct NewFile<'a> {
    /// What it was compiled for.
    pub target: ArtefactTarget,
    /// What people call it.
    pub name: String,
    /// Its key in a store; zeros outside of stores.
    pub key: Digest,
    /// The compiled module.
    pub module: EncodedModule,
    /// The model's names of its outputs, in order.
    pub outputs: Vec<String>,
    /// The graph it was compiled from.
    pub source: Option<&'a Graph>,
    /// Inputs whose values decided a shape.
    pub decided: &'a [(String, ConstData)],
    /// What the init program wrote to these buffers.
    pub prepared: &'a [(BufferId, Cow<'a, [u8]>)],
    /// Parameters as they were set.
    pub params: &'a [(String, Arc<Weight>)],
    /// Which variants of steps were measured to be the fastest.
    pub tuning: &'a Tuning,
    /// The code that the device generated.
    pub code: Vec<CodePart>,
}

impl<'a> NewFile<'a> {
    /// A file with a module alone, as a cache of modules has it.
    pub fn of_module(
        target: ArtefactTarget,
        name: &str,
        key: Digest,
        module: EncodedModule,
        tuning: &'a Tuning,
    ) -> Self {
        NewFile {
            target,
            name: name.to_owned(),
            key,
            module,
            outputs: Vec::new(),
            source: None,
            decided: &[],
            prepared: &[],
            params: &[],
            tuning,
            code: Vec::new(),
        }
    }

    /// Writes the file, whole or not at all: stopped, or not confirmed when all is written, it leaves nothing.
    ///
    /// # Errors
    /// A weight that cannot be read, a file that cannot be written; [`rlx_ir::ErrorKind::Cancelled`]; what `confirm`
    /// reports.
    pub fn write(self, path: &Path, progress: &Progress, confirm: &dyn Fn() -> Result<()>) -> Result<()> {
        let EncodedModule { bytes: module, mut blobs } = self.module;
        blobs.extend(self.source.map(text::blobs).unwrap_or_default());
        let contents = Contents {
            module,
            outputs: self.outputs,
            source: self.source.map(Graph::to_string),
            source_origins: self.source.map(OriginsRecord::of).unwrap_or_default(),
        };
        let mut params = Vec::with_capacity(self.params.len());
        for (i, (name, weight)) in self.params.iter().enumerate() {
            progress.step(Stage::Read, i, self.params.len(), || name)?;
            params.push(weight.bytes()?);
        }
        let mut blobs: Vec<(&String, &ConstData)> = blobs.iter().collect();
        sort_by_key(&mut blobs, |(hash, _)| *hash);
        let mut tensors: Vec<NewTensor<'_>> = Vec::new();
        for (hash, data) in blobs {
            tensors.push(NewTensor::constant(Role::Blob(hash.clone()), data));
        }
        for (name, data) in self.decided {
            tensors.push(NewTensor::constant(Role::Decided(name.clone()), data));
        }
        for (BufferId(buffer), bytes) in self.prepared {
            let dims = vec![bytes.len()];
            tensors.push(NewTensor { role: Role::Prepared(*buffer), dtype: DType::U8, dims, bytes });
        }
        for ((name, weight), bytes) in self.params.iter().zip(&params) {
            let role = Role::Param(name.clone());
            let dims = weight.dims().to_vec();
            tensors.push(NewTensor { role, dtype: weight.dtype(), dims, bytes });
        }
        let parts = Parts {
            target: self.target,
            name: self.name,
            key: self.key,
            module: crate::write_record(&contents)?,
            table: table(&tensors, progress)?,
            tensors: tensors.iter().map(|t| t.bytes).collect(),
            tuning: found(self.tuning, self.code)?,
        };
        layout::write(path, &parts, progress, confirm)
    }
}
