//! tract's worker.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;

use peers::{Job, Model, Result, end};
use rlx_ir::{ConstData, DType};
use tract_linalg::multithread::{Executor, set_default_executor};
use tract_onnx::prelude::*;

fn main() -> ExitCode {
    end(work())
}

fn work() -> Result<()> {
    let job = Job::from_args()?;
    job.only_f32()?;
    if job.threads > 1 {
        set_default_executor(Executor::multithread(job.threads));
    }
    let mut model = tract_onnx::onnx().model_for_path(&job.model)?;
    let mut inputs = TVec::new();
    for place in 0..model.inputs.len() {
        let name = model.node(model.inputs[place].node).name.clone();
        let given = job.inputs.iter().find(|(given, _)| *given == name);
        let (_, data) = given.ok_or_else(|| format!("input {name:?} is not given"))?;
        let tensor = tensor(data)?;
        model.set_input_fact(place, InferenceFact::dt_shape(tensor.datum_type(), tensor.shape()))?;
        inputs.push(tensor.into_tvalue());
    }
    let model = model.into_optimized()?.into_runnable()?;
    job.serve(Loaded { model, inputs })
}

struct Loaded {
    model: Arc<TypedRunnableModel>,
    inputs: TVec<TValue>,
}

impl Model for Loaded {
    fn run(&mut self) -> Result<()> {
        black_box(self.model.run(self.inputs.clone())?);
        Ok(())
    }

    fn outputs(&mut self) -> Result<Vec<ConstData>> {
        self.model.run(self.inputs.clone())?.iter().map(|output| array(output)).collect()
    }
}

/// The types that both sides have.
const TYPES: [(DType, DatumType); 12] = [
    (DType::Bool, DatumType::Bool),
    (DType::U8, DatumType::U8),
    (DType::U16, DatumType::U16),
    (DType::U32, DatumType::U32),
    (DType::U64, DatumType::U64),
    (DType::I8, DatumType::I8),
    (DType::I16, DatumType::I16),
    (DType::I32, DatumType::I32),
    (DType::I64, DatumType::I64),
    (DType::F16, DatumType::F16),
    (DType::F32, DatumType::F32),
    (DType::F64, DatumType::F64),
];

fn tensor(data: &ConstData) -> Result<Tensor> {
    let known = TYPES.iter().find(|(ours, _)| *ours == data.dtype());
    let (_, theirs) = known.ok_or_else(|| format!("no inputs of {}", data.dtype()))?;
    let mut tensor = Tensor::zero_dt(*theirs, data.dims())?;
    tensor.as_bytes_mut().copy_from_slice(data.bytes());
    Ok(tensor)
}

fn array(tensor: &Tensor) -> Result<ConstData> {
    let unquantised = tensor.datum_type().unquantized();
    let known = TYPES.iter().find(|(_, theirs)| *theirs == unquantised);
    let (ours, _) = known.ok_or_else(|| format!("an output of {:?}", tensor.datum_type()))?;
    Ok(ConstData::new(*ours, tensor.shape(), tensor.as_bytes().to_vec())?)
}
