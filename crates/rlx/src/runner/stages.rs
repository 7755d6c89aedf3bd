//! Models in which a tensor that they compute themselves decides a shape, and nothing says how large it can be: the length of the sound that a
//! speech model makes of a text, a choice between branches of different rank.
//!
//! Memory is planned ahead, so such a model runs in two stages: the part that computes the tensor is a model of its own, which runs first; the whole is
//! then imported and compiled for the value that it gave. Both are kept, so that a value that was seen before costs its first stage alone.

use std::sync::Arc;

use rlx_ir::dim::scoped;
use rlx_ir::{ConstData, Error, ErrorKind, Progress, Result};
use rlx_onnx::{Imported, needed_tensor};
use rlx_runtime::{CompileOptions, CompiledGraph, Device, Session};

use super::{MOST_COMPILED, compile, views};
use crate::Model;

/// More tensors of one model do not decide shapes.
const MOST_STAGES: usize = 32;

/// The first stages that were compiled, the newest last.
pub(super) type Stages = Vec<(Arc<Imported>, CompiledGraph)>;

/// The model's import for these inputs; tensors that decide shapes are computed first.
///
/// # Errors
/// As [`Model::import`]; an error of compiling or running a stage.
pub(super) fn import(
    model: &mut Model,
    stages: &mut Stages,
    session: &Session,
    options: &CompileOptions,
    inputs: &[(&str, &ConstData)],
    progress: &Progress,
) -> Result<Arc<Imported>> {
    // Names alone are needed: the shapes that come with them leave no names of dimensions behind.
    let complete = scoped(|| {
        if !model.is_plain() {
            // Of sequences and optionals there are the elements that were given.
            return Ok(model.is_structured() || !inputs.is_empty());
        }
        Ok::<_, Error>(model.inputs()?.iter().all(|info| inputs.iter().any(|(name, _)| *name == info.name)))
    })?;
    if !complete {
        // Nothing can run; the inputs that are given may be enough.
        return model.import_with_progress(inputs, progress);
    }
    // A page cannot wait for its GPU, and what a stage computes is little.
    let host = if session.device() == Device::WebGpu { Some(Session::try_new(Device::Cpu)?) } else { None };
    let session = host.as_ref().unwrap_or(session);
    let mut known: Vec<(String, ConstData)> = Vec::new();
    while known.len() <= MOST_STAGES {
        if let Some(tensor) = model.stages().get(known.len()).cloned() {
            let imported = model.import_stage(inputs, &known, Some(&tensor), progress)?;
            let value = run(imported, stages, session, options, inputs, progress)?;
            known.push((tensor, value));
            continue;
        }
        let error = match model.import_stage(inputs, &known, None, progress) {
            Err(error) => error,
            imported => return imported,
        };
        match needed_tensor(&error) {
            Some(tensor) if !known.iter().any(|(name, _)| name == tensor) => model.add_stage(tensor),
            _ => return Err(error),
        }
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        format!("more than {MOST_STAGES} tensors of the model decide shapes"),
    ))
}

/// The only output of a stage.
fn run(
    imported: Arc<Imported>,
    stages: &mut Stages,
    session: &Session,
    options: &CompileOptions,
    inputs: &[(&str, &ConstData)],
    progress: &Progress,
) -> Result<ConstData> {
    let at = match stages.iter().position(|(of, _)| Arc::ptr_eq(of, &imported)) {
        Some(at) => at,
        None => {
            let graph = compile(session, options, &imported, progress)?;
            if stages.len() == MOST_COMPILED {
                stages.remove(0);
            }
            stages.push((imported, graph));
            stages.len() - 1
        }
    };
    let outputs = stages[at].1.try_run_tensors_with_progress(&views(inputs), progress)?;
    let first = outputs.into_iter().next();
    first.ok_or_else(|| Error::new(ErrorKind::Internal, "a stage without an output"))
}
