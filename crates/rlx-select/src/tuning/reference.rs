//! What the results of a measured step should be, by the oracle, and how far those of a variant are from them.
//!
//! A variant of another [`BitClass`](rlx_backend::tuning::BitClass) has other bits than the usual one, so bits cannot say whether it is right. It must be as near to the
//! exact results as the usual one is, but for a factor of [`MOST`]: both round sums of the same products.

use std::sync::Arc;

use rlx_ir::lir::{Buffer, BufferKind, LirModule, Operand, Step, StepKind, View};
use rlx_ir::{DType, Error, ErrorKind, Result, Shape, Value, Weight, oracle};

/// The error of a variant of another class may be so many times that of the usual one, which is at least what rounding alone may give.
const MOST: f64 = 2.0;

/// The most arithmetic of a step that is given to the oracle: ten times what folding constants may take (`oracle::Allowance`).
const MOST_FLOPS: f64 = 3e8;

/// The results of a step.
#[derive(Debug)]
pub(super) struct Reference {
    /// By output of the step: where it is among the module's outputs, its elements there, and what they should be.
    outputs: Vec<(usize, Vec<usize>, Value)>,
}

impl Reference {
    /// That of a module's first step.
    ///
    /// # Errors
    /// A step with more arithmetic than is worth it, values in a memory format, or what the oracle reports.
    pub(super) fn of(module: &LirModule, inputs: &[Vec<u8>], weights: &[Arc<Weight>]) -> Result<Reference> {
        let Some(step) = module.steps.first() else { return Err(unknown("a module without steps")) };
        // Before anything is decoded: what is too much to compute is also much to hold.
        module.init.iter().chain([step]).try_for_each(affordable)?;
        let mut values = Vec::with_capacity(module.buffers.len());
        for buffer in &module.buffers {
            values.push(given(buffer, inputs, weights)?);
        }
        for init in &module.init {
            for (operand, value) in init.outputs.iter().zip(evaluated(init, &values)?) {
                if !operand.view.is_dense() {
                    return Err(unknown("a weight that is prepared piece by piece"));
                }
                values[operand.buffer.index()] = Some(value);
            }
        }
        let mut outputs = Vec::new();
        for (operand, value) in step.outputs.iter().zip(evaluated(step, &values)?) {
            let at = module.outputs.iter().position(|slot| slot.operand.buffer == operand.buffer);
            let at = at.ok_or_else(|| unknown("a result that the module does not give"))?;
            outputs.push((at, places(&operand.view)?.1, value));
        }
        Ok(Reference { outputs })
    }

    /// Why results are not as near to these as the `usual` ones are, if they are not.
    ///
    /// # Errors
    /// Fewer bytes than there are elements.
    pub(super) fn objection(
        &self,
        module: &LirModule,
        usual: &[Vec<u8>],
        other: &[Vec<u8>],
    ) -> Result<Option<String>> {
        for (at, places, exact) in &self.outputs {
            let elements = |results: &[Vec<u8>]| -> Result<Value> {
                let buffer = &module.buffers[module.outputs[*at].operand.buffer.index()];
                let bytes = results.get(*at).ok_or_else(|| unknown("a missing result"))?;
                picked(&Value::try_decode(buffer.dtype, &[count(buffer)?], bytes)?, &exact.dims, places)
            };
            let (usual, other) = (elements(usual)?, elements(other)?);
            let (usual, other) = (distance(exact, &usual).max(rounding(exact)), distance(exact, &other));
            if !other.is_finite() || other > MOST * usual {
                return Ok(Some(format!("its largest error is {other:e}, the usual one's {usual:e}")));
            }
        }
        Ok(None)
    }
}

fn unknown(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("the oracle does not compute it: {what}"))
}

fn count(buffer: &Buffer) -> Result<usize> {
    let count = buffer.elements.as_const().and_then(|n| usize::try_from(n).ok());
    count.filter(|_| buffer.format.is_none()).ok_or_else(|| unknown("a buffer of its own memory format"))
}

/// The elements of a buffer that are there before the first step.
fn given(buffer: &Buffer, inputs: &[Vec<u8>], weights: &[Arc<Weight>]) -> Result<Option<Value>> {
    let decoded = |bytes: &[u8]| Value::try_decode(buffer.dtype, &[count(buffer)?], bytes).map(Some);
    match &buffer.kind {
        BufferKind::Input(at) => inputs.get(*at).map_or(Ok(None), |bytes| decoded(bytes)),
        BufferKind::Param(at) => weights.get(*at).map_or(Ok(None), |weight| decoded(&weight.bytes()?)),
        BufferKind::Constant(data) => decoded(data.bytes()),
        BufferKind::Arena | BufferKind::Prepared => Ok(None),
    }
}

/// The results of a step by the oracle.
fn evaluated(step: &Step, values: &[Option<Value>]) -> Result<Vec<Value>> {
    let read = |operand: &Operand| {
        let value = values.get(operand.buffer.index()).and_then(Option::as_ref);
        let (dims, places) = places(&operand.view)?;
        picked(value.ok_or_else(|| unknown("a value from elsewhere"))?, &dims, &places)
    };
    let inputs = step.inputs.iter().map(read).collect::<Result<Vec<_>>>()?;
    let StepKind::Op(op) = &step.kind else { return Ok(inputs) };
    let declared = shapes(&step.outputs)?;
    oracle::evaluate_op(op, &inputs.iter().collect::<Vec<_>>(), &declared)
}

/// Whether a step is little enough for the oracle.
fn affordable(step: &Step) -> Result<()> {
    let StepKind::Op(op) = &step.kind else { return Ok(()) };
    let (inputs, results) = (shapes(&step.inputs)?, shapes(&step.outputs)?);
    let flops = rlx_ir::ops::def::cost(op, &inputs.iter().collect::<Vec<_>>(), &results).flops;
    if flops > MOST_FLOPS { Err(unknown(&format!("{flops:e} operations"))) } else { Ok(()) }
}

fn shapes(operands: &[Operand]) -> Result<Vec<Shape>> {
    operands.iter().map(|operand| Ok(Shape::new(&dims(&operand.view)?, operand.dtype))).collect()
}

fn known(extent: &rlx_ir::Extent) -> Result<i64> {
    extent.as_const().ok_or_else(|| unknown("an open dimension"))
}

fn index(n: i64) -> Result<usize> {
    usize::try_from(n).map_err(|_| unknown("a view that leaves its buffer"))
}

fn dims(view: &View) -> Result<Vec<usize>> {
    view.dims.iter().map(|dim| known(dim).and_then(index)).collect()
}

/// The dimensions of a view, and where each of its elements is in its buffer, in row-major order.
fn places(view: &View) -> Result<(Vec<usize>, Vec<usize>)> {
    let dims = dims(view)?;
    let strides = view.strides.iter().map(known).collect::<Result<Vec<i64>>>()?;
    let mut places = vec![known(&view.offset)?];
    for (&dim, &stride) in dims.iter().zip(&strides) {
        places = places.iter().flat_map(|&place| (0..dim as i64).map(move |i| place + i * stride)).collect();
    }
    Ok((dims, places.into_iter().map(index).collect::<Result<_>>()?))
}

fn picked(value: &Value, dims: &[usize], places: &[usize]) -> Result<Value> {
    match places.iter().all(|&place| place < value.len()) {
        true => Ok(value.pick(dims, places)),
        false => Err(unknown("a view that leaves its buffer")),
    }
}

/// Half the distance of neighbouring numbers of the type, at the largest element; 0 for integers.
fn rounding(exact: &Value) -> f64 {
    let largest = exact.to_f64().into_iter().map(f64::abs).filter(|x| x.is_finite()).fold(0.0, f64::max);
    let bits = match exact.dtype {
        DType::F64 => 53,
        DType::F32 => 24,
        DType::F16 => 11,
        DType::BF16 => 8,
        _ => return 0.0,
    };
    largest * (-f64::from(bits)).exp2()
}

/// The largest distance of two elements; infinite where one is not a number and the other is one.
fn distance(exact: &Value, found: &Value) -> f64 {
    let apart = |(a, b): (f64, f64)| match a == b || a.is_nan() && b.is_nan() {
        true => 0.0,
        false => Some((a - b).abs()).filter(|d| !d.is_nan()).unwrap_or(f64::INFINITY),
    };
    exact.to_f64().into_iter().zip(found.to_f64()).map(apart).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use rlx_driver::Device;
    use rlx_ir::text;
    use rlx_opt::{CompileOptions, CompilePipeline};

    use super::super::isolate::isolated;
    use super::*;
    use crate::device::DeviceBackend;

    fn bytes(values: impl Iterator<Item = f32>) -> Vec<u8> {
        values.flat_map(f32::to_le_bytes).collect()
    }

    #[test]
    fn a_step_of_much_arithmetic_is_not_computed() {
        let graph = text::parse(
            r#"graph "layer" {
              %0 = Input {name="x"} : [1024, 1024] f32
              %1 = Input {name="w"} : [1024, 1024] f32
              %2 = MatMul(%0, %1) : [1024, 1024] f32
              return %2
            }"#,
        );
        let device = DeviceBackend::try_new(Device::Cpu).unwrap();
        let options = CompileOptions::default();
        let target = device.target(&options).unwrap();
        let lir = CompilePipeline::new(target.clone(), options).compile(&graph.unwrap()).unwrap().lir;
        let module = isolated(&lir, 0, target.pool_spec()).unwrap().expect("a module of one step");
        let refused = Reference::of(&module, &[], &[]).unwrap_err();
        assert!(refused.message().contains("operations"), "{refused}");
    }

    #[test]
    fn a_result_is_held_to_twice_the_usual_error() {
        let graph = text::parse(
            r#"graph "layer" {
              %0 = Input {name="x"} : [3, 5] f32
              %1 = Input {name="w"} : [5, 4] f32
              %2 = MatMul(%0, %1) : [3, 4] f32
              %3 = Activation.Relu(%2) : [3, 4] f32
              return %3
            }"#,
        );
        let device = DeviceBackend::try_new(Device::Cpu).unwrap();
        let options = CompileOptions::default();
        let target = device.target(&options).unwrap();
        let lir = CompilePipeline::new(target.clone(), options).compile(&graph.unwrap()).unwrap().lir;
        let module = isolated(&lir, 0, target.pool_spec()).unwrap().expect("a module of one step");
        let x: Vec<f32> = (0..15).map(|i| i as f32 - 7.0).collect();
        let w: Vec<f32> = (0..20).map(|i| (i % 7) as f32 - 3.0).collect();
        let inputs = [&x, &w].map(|values| bytes(values.iter().copied()));
        let reference = Reference::of(&module, &inputs, &[]).unwrap();

        let dot = |m: usize, n: usize| (0..5).map(|k| x[5 * m + k] * w[4 * k + n]).sum::<f32>().max(0.0);
        let exact: Vec<f32> = (0..12).map(|i| dot(i / 4, i % 4)).collect();
        let off = |by: f32| vec![bytes(exact.iter().map(move |v| v + by))];
        let objection = |usual, other| reference.objection(&module, &off(usual), &off(other)).unwrap();
        assert_eq!([objection(0.0, 0.0), objection(0.25, 0.5)], [None, None]);
        assert!(objection(0.25, 0.75).is_some() && objection(0.0, 0.25).is_some());
        assert!(objection(0.25, f32::NAN).is_some());
        // Where the usual one is wrong, nothing is near to it.
        assert!(objection(f32::NAN, f32::NAN).is_some());
        assert_eq!(Reference::of(&module, &inputs[..1], &[]).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
