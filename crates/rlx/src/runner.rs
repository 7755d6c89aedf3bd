//! A [`Runner`]: a model on a device.

use std::path::Path;
use std::sync::Arc;

use rlx_ir::{ConstData, Error, ErrorKind, Result};
use rlx_onnx::Imported;
use rlx_runtime::{CompileOptions, CompiledGraph, Device, Session, TensorView};

use crate::Model;

/// Runs a model: imports and compiles it at first use, and again for each new value of an input that decides a
/// shape.
#[derive(Debug)]
pub struct Runner {
    model: Model,
    session: Session,
    options: CompileOptions,
    compiled: Vec<(Arc<Imported>, CompiledGraph)>,
}

/// Compiled forms kept per model; the oldest goes first.
const MOST_COMPILED: usize = 8;

impl Runner {
    /// A model file on the CPU, with default options.
    ///
    /// # Errors
    /// A file that cannot be read or is no model.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self::new(Model::open(path)?, Session::try_new(Device::Cpu)?, CompileOptions::try_new()?))
    }

    /// A model on a session's device, compiled with `options`.
    pub fn new(model: Model, session: Session, options: CompileOptions) -> Self {
        Runner { model, session, options, compiled: Vec::new() }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The model's import for these inputs, not compiled.
    ///
    /// # Errors
    /// As [`Model::import`].
    pub fn import(&mut self, inputs: &[(&str, &ConstData)]) -> Result<Arc<Imported>> {
        self.model.import(inputs)
    }

    /// The model, imported and compiled for these inputs (their values matter only to models that decide
    /// shapes by them), with its weights set; and the import it was compiled from.
    ///
    /// # Errors
    /// What importing and compiling report, or a weight that the file does not have.
    pub fn prepare(&mut self, inputs: &[(&str, &ConstData)]) -> Result<(&mut CompiledGraph, Arc<Imported>)> {
        let imported = self.model.import(inputs)?;
        let at = match self.compiled.iter().position(|(of, _)| Arc::ptr_eq(of, &imported)) {
            Some(at) => at,
            None => {
                let compiled = compile(&self.session, &self.options, &imported)?;
                if self.compiled.len() == MOST_COMPILED {
                    self.compiled.remove(0);
                }
                self.compiled.push((Arc::clone(&imported), compiled));
                self.compiled.len() - 1
            }
        };
        Ok((&mut self.compiled[at].1, imported))
    }

    /// Runs on named inputs; gives the outputs with the model's names for them.
    ///
    /// # Errors
    /// As [`Runner::prepare`], or what the run reports.
    pub fn run(&mut self, inputs: &[(&str, &ConstData)]) -> Result<Vec<(String, ConstData)>> {
        let (compiled, imported) = self.prepare(inputs)?;
        let outputs = compiled.try_run_tensors(&views(inputs))?;
        Ok(imported.outputs.iter().cloned().zip(outputs).collect())
    }
}

/// Views of named tensors.
pub(crate) fn views<'a>(inputs: &[(&'a str, &'a ConstData)]) -> Vec<TensorView<'a>> {
    let view = |&(name, data): &(&'a str, &'a ConstData)| TensorView {
        name,
        dtype: data.dtype(),
        dims: data.dims(),
        bytes: data.bytes(),
    };
    inputs.iter().map(view).collect()
}

fn compile(session: &Session, options: &CompileOptions, imported: &Imported) -> Result<CompiledGraph> {
    let mut compiled = session.try_compile_with(imported.graph.clone(), options)?;
    let missing = compiled.try_set_weights(&imported.weights)?;
    match missing.first() {
        Some(name) => Err(Error::new(ErrorKind::Binding, format!("the model has no weight \"{name}\""))),
        None => Ok(compiled),
    }
}
