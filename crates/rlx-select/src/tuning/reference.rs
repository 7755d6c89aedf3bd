//! What the results of a measured step should be, by the oracle, and how far those of a variant are from them.
//!
//! A variant of another [`BitClass`](rlx_backend::tuning::BitClass) has other bits than the usual one, so bits cannot say whether it is right. It must be as near to the
//! exact results as the usual one is, but for a factor of [`MOST`]: both round sums of the same products.
//!
//! Of a step with more arithmetic than the oracle can do in reasonable time, a [`Sample`] is computed. What is not in it is held to the usual results instead: two
//! results that are as near to the exact ones as the sample shows are no further apart than both distances together.

use std::sync::Arc;

use rlx_ir::lir::{Buffer, BufferKind, LirModule, Operand, Step, StepKind, View};
use rlx_ir::{DType, Error, ErrorKind, Op, Result, Shape, Value, Weight, oracle};

use super::sample::Sample;

/// The error of a variant of another class may be so many times that of the usual one, which is at least what rounding alone may give.
const MOST: f64 = 2.0;

/// The most arithmetic that is given to the oracle for a step: ten times what folding constants may take (`oracle::Allowance`).
const MOST_FLOPS: f64 = 3e8;

/// The results of a step.
#[derive(Debug)]
pub(super) struct Reference {
    outputs: Vec<Output>,
}

/// A result of a step.
#[derive(Debug)]
struct Output {
    /// Which of the module's outputs has it.
    at: usize,
    /// Where its elements are there.
    view: View,
    /// The axis and the places along it that were computed, if not all were.
    sampled: Option<(usize, Vec<usize>)>,
    /// What they should be.
    exact: Value,
}

impl Reference {
    /// That of a module's first step.
    ///
    /// # Errors
    /// A step with more arithmetic than is worth it and no [`Sample`], values in a memory format, or what the oracle reports.
    pub(super) fn of(module: &LirModule, inputs: &[Vec<u8>], weights: &[Arc<Weight>]) -> Result<Reference> {
        Self::within(MOST_FLOPS, module, inputs, weights)
    }

    fn within(
        most_flops: f64,
        module: &LirModule,
        inputs: &[Vec<u8>],
        weights: &[Arc<Weight>],
    ) -> Result<Reference> {
        let Some(step) = module.steps.first() else { return Err(unknown("a module without steps")) };
        // Before anything is decoded: what is too much to compute is also much to hold.
        for init in &module.init {
            let flops = flops(init)?;
            if flops > most_flops {
                return Err(too_much(flops));
            }
        }
        let sample = sample(step, most_flops)?;
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
        let exact = match &sample {
            Some(sample) => evaluated_sample(sample, step, &values)?,
            None => evaluated(step, &values)?,
        };
        let mut outputs = Vec::new();
        for (operand, exact) in step.outputs.iter().zip(exact) {
            let at = module.outputs.iter().position(|slot| slot.operand.buffer == operand.buffer);
            let at = at.ok_or_else(|| unknown("a result that the module does not give"))?;
            let sampled = sample.as_ref().map(|sample| (sample.axis, sample.places.clone()));
            outputs.push(Output { at, view: View::clone(&operand.view), sampled, exact });
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
        for output in &self.outputs {
            let (usual, other) = (output.given(module, usual)?, output.given(module, other)?);
            if let Some(why) = output.objection(&usual, &other)? {
                return Ok(Some(why));
            }
        }
        Ok(None)
    }
}

impl Output {
    /// The whole buffer by which a run of the module gives the result.
    fn given(&self, module: &LirModule, results: &[Vec<u8>]) -> Result<Value> {
        let buffer = &module.buffers[module.outputs[self.at].operand.buffer.index()];
        let bytes = results.get(self.at).ok_or_else(|| unknown("a missing result"))?;
        Value::try_decode(buffer.dtype, &[count(buffer)?], bytes)
    }

    /// Why the result in one buffer is not as near to what it should be as that in the usual one.
    fn objection(&self, usual: &Value, other: &Value) -> Result<Option<String>> {
        let exact = &self.exact;
        let chosen = self.sampled.as_ref().map(|(axis, places)| (*axis, &places[..]));
        let computed = |buffer: &Value| read(buffer, &self.view, chosen);
        let nearest = distance(exact, &computed(usual)?).max(rounding(exact));
        let found = distance(exact, &computed(other)?);
        if !found.is_finite() || found > MOST * nearest {
            return Ok(Some(format!("its largest error is {found:e}, the usual one's {nearest:e}")));
        }
        if chosen.is_some() {
            let all = |buffer: &Value| read(buffer, &self.view, None);
            let apart = distance(&all(usual)?, &all(other)?);
            if !apart.is_finite() || apart > (1.0 + MOST) * nearest {
                let message = format!(
                    "it is {apart:e} from the usual one, whose largest error is {nearest:e} in a sample"
                );
                return Ok(Some(message));
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
    let inputs =
        step.inputs.iter().map(|operand| operand_of(operand, values, None)).collect::<Result<Vec<_>>>()?;
    let StepKind::Op(op) = &step.kind else { return Ok(inputs) };
    let declared = shapes(&step.outputs)?;
    oracle::evaluate_op(op, &inputs.iter().collect::<Vec<_>>(), &declared)
}

/// The sample of a step's result by the oracle.
fn evaluated_sample(sample: &Sample, step: &Step, values: &[Option<Value>]) -> Result<Vec<Value>> {
    let mut bindings = oracle::Bindings::default();
    for ((node, operand), axis) in sample.graph.inputs().zip(&step.inputs).zip(&sample.axes) {
        if let Op::Input { name } = &node.op {
            let chosen = axis.map(|axis| (axis, &sample.places[..]));
            bindings.set_input(name.clone(), operand_of(operand, values, chosen)?);
        }
    }
    oracle::evaluate(&sample.graph, &bindings)
}

/// An operand's value, or some places along an axis of it.
fn operand_of(
    operand: &Operand,
    values: &[Option<Value>],
    chosen: Option<(usize, &[usize])>,
) -> Result<Value> {
    let value = values.get(operand.buffer.index()).and_then(Option::as_ref);
    read(value.ok_or_else(|| unknown("a value from elsewhere"))?, &operand.view, chosen)
}

/// The sample to compute of a step, where it is too much for the oracle.
fn sample(step: &Step, most_flops: f64) -> Result<Option<Sample>> {
    let flops = flops(step)?;
    if flops <= most_flops {
        return Ok(None);
    }
    Sample::of(step, &shapes(&step.inputs)?, flops, most_flops).map(Some).ok_or_else(|| too_much(flops))
}

/// How much arithmetic a step is.
fn flops(step: &Step) -> Result<f64> {
    let StepKind::Op(op) = &step.kind else { return Ok(0.0) };
    let (inputs, results) = (shapes(&step.inputs)?, shapes(&step.outputs)?);
    Ok(rlx_ir::ops::def::cost(op, &inputs.iter().collect::<Vec<_>>(), &results).flops)
}

fn too_much(flops: f64) -> Error {
    unknown(&format!("{flops:e} operations"))
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

/// The elements of a view of a buffer in row-major order, or some places along an axis of it.
fn read(buffer: &Value, view: &View, chosen: Option<(usize, &[usize])>) -> Result<Value> {
    let mut dims = dims(view)?;
    let mut places = vec![known(&view.offset)?];
    for (axis, stride) in view.strides.iter().map(known).enumerate() {
        let stride = stride?;
        let indices: Vec<i64> = match chosen {
            Some((along, indices)) if along == axis => indices.iter().map(|&i| i as i64).collect(),
            _ => (0..dims[axis] as i64).collect(),
        };
        dims[axis] = indices.len();
        places = places.iter().flat_map(|place| indices.iter().map(move |i| place + i * stride)).collect();
    }
    let places = places.into_iter().map(index).collect::<Result<Vec<usize>>>()?;
    match places.iter().all(|&place| place < buffer.len()) {
        true => Ok(buffer.pick(&dims, &places)),
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

    /// A graph's one step alone, and how much arithmetic it is.
    fn step(body: &str) -> (LirModule, f64) {
        let graph = text::parse(&format!("graph \"layer\" {{ {body} }}")).unwrap();
        let device = DeviceBackend::try_new(Device::Cpu).unwrap();
        let options = CompileOptions::default();
        let target = device.target(&options).unwrap();
        let lir = CompilePipeline::new(target.clone(), options).compile(&graph).unwrap().lir;
        let at = lir.steps.iter().position(|step| flops(step).unwrap() > 0.0).expect("a step that computes");
        let module = isolated(&lir, at, target.pool_spec()).unwrap().expect("a module of one step");
        let flops = flops(&module.steps[0]).unwrap();
        (module, flops)
    }

    /// Numbers whose products and sums are exact in f32.
    fn inputs(module: &LirModule) -> Vec<Vec<u8>> {
        let made = |(n, slot): (usize, &rlx_ir::lir::IoSlot)| {
            bytes((0..slot.shape.num_elements().unwrap()).map(move |i| ((i * 5 + n) % 11) as f32 - 5.0))
        };
        module.inputs.iter().enumerate().map(made).collect()
    }

    #[test]
    fn a_step_of_much_arithmetic_without_a_sample_is_not_computed() {
        let (module, flops) = step(
            "%0 = Input {name=\"x\"} : [1, 64, 128, 128] f32 %1 = Input {name=\"w\"} : [64, 32, 3, 3] f32
             %2 = Conv(%0, %1) {strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], groups=2, format=ChannelsFirst} : [1, 64, 128, 128] f32
             return %2",
        );
        assert!(flops > MOST_FLOPS);
        let refused = Reference::of(&module, &[], &[]).unwrap_err();
        assert!(refused.message().contains("operations"), "{refused}");
    }

    /// Layers with the axis of their result along which places are computed.
    const SAMPLED: [(&str, usize); 3] = [
        (
            "%0 = Input {name=\"x\"} : [9, 5] f32 %1 = Input {name=\"w\"} : [5, 40] f32 %2 = Input {name=\"b\"} : [40] f32
             %3 = Input {name=\"r\"} : [9, 1] f32 %4 = MatMul(%0, %1) : [9, 40] f32
             %5 = Binary.Add(%4, %2) : [9, 40] f32 %6 = Binary.Add(%5, %3) : [9, 40] f32
             %7 = Activation.Relu(%6) : [9, 40] f32 return %7",
            1,
        ),
        // Too few columns.
        (
            "%0 = Input {name=\"x\"} : [90, 5] f32 %1 = Input {name=\"w\"} : [5, 3] f32 %2 = Input {name=\"b\"} : [90, 1] f32
             %3 = MatMul(%0, %1) : [90, 3] f32 %4 = Binary.Add(%3, %2) : [90, 3] f32 return %4",
            0,
        ),
        (
            "%0 = Input {name=\"x\"} : [2, 6, 7, 3] f32 %1 = Input {name=\"w\"} : [20, 3, 3, 3] f32
             %2 = Input {name=\"b\"} : [20] f32
             %3 = Conv(%0, %1) {strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1], groups=1, format=ChannelsLast} : [2, 6, 7, 20] f32
             %4 = Binary.Add(%3, %2) : [2, 6, 7, 20] f32 return %4",
            3,
        ),
    ];

    #[test]
    fn a_sample_has_the_places_of_the_whole_result() {
        for (body, axis) in SAMPLED {
            let (module, flops) = step(body);
            let inputs = inputs(&module);
            let whole = &Reference::of(&module, &inputs, &[]).unwrap().outputs[0];
            let part = &Reference::within(flops / 4.5, &module, &inputs, &[]).unwrap().outputs[0];
            let (along, places) = part.sampled.as_ref().expect("a sample");
            assert_eq!((*along, whole.sampled.is_none()), (axis, true), "{body}");
            let extent = whole.exact.dims[axis];
            assert_eq!((places[0], *places.last().unwrap()), (0, extent - 1), "{body}");
            assert_eq!(places.len(), (extent as f64 / 4.5) as usize, "{body}");
            let view = View::dense(rlx_ir::Shape::new(&whole.exact.dims, DType::F32).dims());
            assert_eq!(read(&whole.exact, &view, Some((axis, places))).unwrap(), part.exact, "{body}");
        }
    }

    #[test]
    fn what_is_not_in_the_sample_is_held_to_the_usual_result() {
        let (module, flops) = step(SAMPLED[0].0);
        let inputs = inputs(&module);
        let exact = Reference::of(&module, &inputs, &[]).unwrap().outputs[0].exact.to_f64();
        let reference = Reference::within(flops / 4.5, &module, &inputs, &[]).unwrap();
        let (_, places) = reference.outputs[0].sampled.clone().unwrap();
        let unseen = (0..40).find(|column| !places.contains(column)).unwrap();
        let usual = || -> Vec<f32> { exact.iter().map(|&x| x as f32 + 0.25).collect() };
        let objection = |place: usize, by: f32| {
            let mut other = usual();
            other[place] += by;
            let [usual, other] = [usual(), other].map(|values| vec![bytes(values.into_iter())]);
            reference.objection(&module, &usual, &other).unwrap()
        };
        assert_eq!([objection(unseen, 0.0), objection(unseen, 0.75), objection(0, 0.25)], [None, None, None]);
        assert!(objection(unseen, 1.0).is_some() && objection(unseen, f32::NAN).is_some());
        assert!(objection(0, 0.5).is_some());
    }

    #[test]
    fn a_result_is_held_to_twice_the_usual_error() {
        let (module, _) = step(
            "%0 = Input {name=\"x\"} : [3, 5] f32 %1 = Input {name=\"w\"} : [5, 4] f32
             %2 = MatMul(%0, %1) : [3, 4] f32 %3 = Activation.Relu(%2) : [3, 4] f32 return %3",
        );
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
