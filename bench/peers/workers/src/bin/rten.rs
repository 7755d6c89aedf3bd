//! rten's worker. It takes its number of threads from `RTEN_NUM_THREADS`.

use std::hint::black_box;
use std::process::ExitCode;

use peers::{Job, Model, Result, end};
use rlx_ir::{ConstData, DType};
use rten::{ModelOptions, NodeId, Value};
use rten_tensor::Tensor;
use rten_tensor::prelude::*;

fn main() -> ExitCode {
    end(work())
}

fn work() -> Result<()> {
    let job = Job::from_args()?;
    job.only_f32()?;
    let model = ModelOptions::with_all_ops().prepack_weights(true).load_file(&job.model)?;
    let inputs = job.inputs.iter().map(|(name, data)| Ok((model.node_id(name)?, value(data)?)));
    let inputs: Vec<_> = inputs.collect::<Result<_>>()?;
    job.serve(Loaded { model, inputs })
}

struct Loaded {
    model: rten::Model,
    inputs: Vec<(NodeId, Value)>,
}

impl Loaded {
    fn values(&self) -> Result<Vec<Value>> {
        let views = self.inputs.iter().map(|(id, value)| (*id, value.as_view().into())).collect();
        Ok(self.model.run(views, self.model.output_ids(), None)?)
    }
}

impl Model for Loaded {
    fn run(&mut self) -> Result<()> {
        black_box(self.values()?);
        Ok(())
    }

    fn outputs(&mut self) -> Result<Vec<ConstData>> {
        self.values()?.into_iter().map(array).collect()
    }
}

/// rten has neither i64 nor bool: their values become i32.
fn value(data: &ConstData) -> Result<Value> {
    let (dims, bytes) = (data.dims(), data.bytes());
    let floats =
        || bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect::<Vec<_>>();
    Ok(match data.dtype() {
        DType::F32 => Tensor::from_data(dims, floats()).into(),
        DType::U8 => Tensor::from_data(dims, bytes.to_vec()).into(),
        DType::I8 => {
            Tensor::from_data(dims, bytes.iter().map(|b| b.cast_signed()).collect::<Vec<_>>()).into()
        }
        DType::I32 | DType::I64 | DType::Bool => {
            let wide = data.value();
            let narrow =
                wide.ints()?.iter().map(|&i| i32::try_from(i)).collect::<std::result::Result<Vec<_>, _>>()?;
            Tensor::from_data(dims, narrow).into()
        }
        other => return Err(format!("no inputs of {other}").into()),
    })
}

fn array(value: Value) -> Result<ConstData> {
    let (dtype, dims, bytes) = match value {
        Value::FloatTensor(t) => {
            (DType::F32, t.shape().to_vec(), t.iter().flat_map(|x| x.to_le_bytes()).collect())
        }
        Value::Int32Tensor(t) => {
            (DType::I32, t.shape().to_vec(), t.iter().flat_map(|x| x.to_le_bytes()).collect())
        }
        Value::Int8Tensor(t) => {
            (DType::I8, t.shape().to_vec(), t.iter().map(|x| x.cast_unsigned()).collect())
        }
        Value::UInt8Tensor(t) => (DType::U8, t.shape().to_vec(), t.iter().copied().collect::<Vec<u8>>()),
        _ => return Err("an output that is no tensor".into()),
    };
    Ok(ConstData::new(dtype, &dims, bytes)?)
}
