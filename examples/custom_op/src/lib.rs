//! A custom op defined outside of RLX: `example.Hysteresis`, a comparator with memory along the last dimension.
//!
//! The output switches to 1 where the input rises above `high`, back to 0 where it falls below `low`, and keeps its
//! last state in between: a scan that RLX has no op for. The op defines its shape rule and its reference
//! semantics, which is enough to verify, print, evaluate and run it. [`Kernel`] makes it fast on the CPU.
//!
//! ```
//! use rlx_runtime::{Device, Session};
//! custom_op::register()?;
//! let mut compiled = Session::new(Device::Cpu).compile(custom_op::graph(1, 6));
//! let out = compiled.run(&[("x", &[0.0, 0.9, 0.5, 0.1, 0.5, 1.0])]);
//! assert_eq!(out, [[0.0, 1.0, 1.0, 0.0, 0.0, 1.0]]);
//! # Ok::<(), rlx_runtime::Error>(())
//! ```
#![forbid(unsafe_code)]

use rlx_ir::Result;
use rlx_runtime::custom::{
    Arity, CpuCall, CpuKernel, CustomAttr, CustomAttrs, CustomOp, register_cpu_kernel, register_custom_op,
};
use rlx_runtime::{DType, Error, ErrorKind, Graph, Op, Shape, Value, trace};

/// The op's name; an ONNX node `Hysteresis` of domain `example` is imported as this op.
pub const NAME: &str = "example.Hysteresis";

/// The op: its rules.
pub struct Hysteresis;

/// One line of the input, starting in state 0. There are only comparisons, so any float type works.
fn line(x: impl Iterator<Item = f64>, low: f64, high: f64) -> impl Iterator<Item = f64> {
    x.scan(0.0, move |state, x| {
        if x > high {
            *state = 1.0;
        } else if x < low {
            *state = 0.0;
        }
        Some(*state)
    })
}

impl CustomOp for Hysteresis {
    fn name(&self) -> &str {
        NAME
    }

    fn arity(&self) -> Arity {
        Arity::Exact(1)
    }

    fn infer(&self, attrs: &CustomAttrs, inputs: &[&Shape]) -> Result<Vec<Shape>> {
        let (x, low, high) = (inputs[0], attrs.float("low")?, attrs.float("high")?);
        if !x.dtype().is_float() || x.rank() == 0 {
            let message = format!("Hysteresis takes floats of one dimension or more, not {x}");
            return Err(Error::new(ErrorKind::Shape, message));
        }
        if low > high {
            return Err(Error::new(ErrorKind::Value, format!("low = {low} is above high = {high}")));
        }
        Ok(vec![x.clone()])
    }

    fn reference(&self, attrs: &CustomAttrs, inputs: &[&Value], _: &[Shape]) -> Result<Vec<Value>> {
        let (x, low, high) = (inputs[0], attrs.float("low")?, attrs.float("high")?);
        let size = x.dims.last().copied().unwrap_or(1).max(1);
        let lines = x.floats()?.chunks(size).flat_map(|l| line(l.iter().copied(), low, high));
        Ok(vec![Value::float(x.dtype, &x.dims, lines.collect())])
    }
}

/// The op's kernel for f32 on the CPU; other types use the reference.
pub struct Kernel;

impl CpuKernel for Kernel {
    fn claims(&self, _: &CustomAttrs, inputs: &[&Shape], _: &[Shape]) -> bool {
        inputs[0].dtype() == DType::F32
    }

    fn run(&self, call: &mut CpuCall<'_>) -> Result<()> {
        let (low, high) = (call.attrs().float("low")? as f32, call.attrs().float("high")? as f32);
        let size = call.input_shape(0)?.1.last().copied().unwrap_or(1).max(1);
        let (x, y) = (call.input_as::<f32>(0)?, call.output_as::<f32>(0)?);
        for (x, y) in x.chunks(size).zip(y.chunks_mut(size)) {
            let mut state = 0.0;
            for (x, y) in x.iter().zip(y) {
                // Compiles to selects, without a branch.
                state = if *x > high {
                    1.0
                } else if *x < low {
                    0.0
                } else {
                    state
                };
                *y = state;
            }
        }
        Ok(())
    }
}

/// Registers the op and its kernel in this process, once.
///
/// # Errors
/// If another op or kernel has the name.
pub fn register() -> Result<()> {
    register_custom_op(Hysteresis)?;
    register_cpu_kernel(NAME, Kernel)
}

/// The op on `x`: switches on above 0.8, off below 0.2.
pub fn op() -> Op {
    Op::custom(NAME, 1, [("low", CustomAttr::Float(0.2)), ("high", CustomAttr::Float(0.8))])
}

/// A graph that uses it like any other op.
pub fn graph(rows: usize, size: usize) -> Graph {
    typed_graph(&[rows, size], DType::F32)
}

/// [`graph`] of any float type.
pub fn typed_graph(dims: &[usize], dtype: DType) -> Graph {
    trace("hysteresis", |t| {
        let x = t.input("x", Shape::new(dims, dtype));
        vec![t.op(op(), &[&x])]
    })
}
