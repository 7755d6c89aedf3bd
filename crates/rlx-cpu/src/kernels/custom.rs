//! Ops from outside: by the kernel registered for them, or by their reference semantics.
//!
//! The reference is the one place where the device computes as the oracle does: there is nothing else to compute
//! by, and the dispatch report says so.

use std::sync::Arc;

use rlx_ir::custom::custom_op;
use rlx_ir::op::CustomAttrs;
use rlx_ir::{Graph, Node, Op, Result, Shape, Value, oracle};
use rlx_opt::Claim;

use super::{BindCx, CompileCx, Needs, RunCx, StepKernel, no_kernel};
use crate::custom::{self, CpuCall, CpuKernel, Operand};
use crate::program::layout::Bound;

/// An op that has a kernel, or is known at least.
pub(crate) fn claim(node: &Node, graph: &Graph) -> Claim {
    let Op::Custom { name, attrs, .. } = &node.op else { return Claim::No("it is no custom op".into()) };
    let inputs: Vec<&Shape> = node.inputs.iter().map(|&id| graph.shape(id)).collect();
    if custom::kernel(name).is_some_and(|k| k.claims(attrs, &inputs, node.results())) {
        return Claim::Native;
    }
    match custom_op(name) {
        Some(_) => Claim::Reference,
        None => Claim::No(format!("custom op {name:?} is not registered")),
    }
}

/// The kernel of an op from outside.
pub(crate) fn compile(cx: &mut CompileCx<'_>) -> Result<Box<dyn StepKernel>> {
    let node = cx.node();
    let Op::Custom { name, attrs, .. } = &node.op else {
        return Err(no_kernel(&node.op, "it is no custom op"));
    };
    match claim(node, &cx.module.graph) {
        Claim::No(why) => Err(no_kernel(&node.op, &why)),
        Claim::Reference => {
            Ok(Box::new(Reference { op: node.op.clone(), inputs: Vec::new(), outputs: Vec::new() }))
        }
        Claim::Native => match custom::kernel(name) {
            Some(kernel) => Ok(Box::new(Registered {
                kernel,
                attrs: Arc::new(attrs.clone()),
                inputs: Vec::new(),
                outputs: Vec::new(),
            })),
            None => Err(no_kernel(&node.op, "its kernel is gone")),
        },
    }
}

/// The bytes of a dense operand.
///
/// # Safety
/// The operand must be covered by its base, and nothing may write it as long as the bytes are used.
unsafe fn bytes<'a>(cx: &RunCx<'_, '_>, operand: &Bound) -> &'a [u8] {
    let len = operand.layout.elements() * operand.dtype.size_bytes();
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(cx.ptr::<u8>(operand.at), len) }
}

/// As [`bytes`], to be written.
///
/// # Safety
/// As [`bytes`], and nothing else may read them either.
unsafe fn bytes_mut<'a>(cx: &RunCx<'_, '_>, operand: &Bound) -> &'a mut [u8] {
    let len = operand.layout.elements() * operand.dtype.size_bytes();
    if len == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(cx.ptr::<u8>(operand.at), len) }
}

#[derive(Clone)]
struct Registered {
    kernel: Arc<dyn CpuKernel>,
    attrs: Arc<CustomAttrs>,
    inputs: Vec<Bound>,
    outputs: Vec<Bound>,
}

/// What an op from outside takes is unknown; enough to wake the pool is no harm.
const NANOS_PER_ELEMENT: f64 = 1.0;

impl StepKernel for Registered {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        self.inputs = cx.inputs.to_vec();
        self.outputs = cx.outputs.to_vec();
        let elements: usize = self.outputs.iter().map(|o| o.layout.elements()).sum();
        Ok(Needs::time(elements as f64 * NANOS_PER_ELEMENT))
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let mut call = CpuCall { attrs: &self.attrs, inputs: Vec::new(), outputs: Vec::new() };
        for operand in &self.inputs {
            // SAFETY: the caller's promise; no step writes what it reads.
            let bytes = unsafe { bytes(cx, operand) };
            call.inputs.push(Operand { dtype: operand.dtype, dims: operand.dims().to_vec(), bytes });
        }
        for operand in &self.outputs {
            // SAFETY: the caller's promise; the results of a step do not overlap.
            let bytes = Some(unsafe { bytes_mut(cx, operand) });
            call.outputs.push(Operand { dtype: operand.dtype, dims: operand.dims().to_vec(), bytes });
        }
        self.kernel.run(&mut call)
    }
}

#[derive(Clone)]
struct Reference {
    op: Op,
    inputs: Vec<Bound>,
    outputs: Vec<Bound>,
}

impl StepKernel for Reference {
    fn bind(&mut self, cx: &BindCx<'_>) -> Result<Needs> {
        self.inputs = cx.inputs.to_vec();
        self.outputs = cx.outputs.to_vec();
        Ok(Needs::default())
    }

    unsafe fn run(&self, cx: &mut RunCx<'_, '_>) -> Result<()> {
        let value = |operand: &Bound| {
            // SAFETY: the caller's promise; the bytes are copied.
            Value::decode(operand.dtype, operand.dims(), unsafe { bytes(cx, operand) })
        };
        let inputs: Vec<Value> = self.inputs.iter().map(value).collect();
        let inputs: Vec<&Value> = inputs.iter().collect();
        let declared: Vec<Shape> = self.outputs.iter().map(|o| Shape::new(o.dims(), o.dtype)).collect();
        let results = oracle::evaluate_op(&self.op, &inputs, &declared)?;
        for ((result, shape), operand) in results.iter().zip(&declared).zip(&self.outputs) {
            if result.shape() != *shape {
                return Err(super::mismatch(format!("{} where {shape} was compiled", result.shape())));
            }
            // SAFETY: the caller's promise; a dense result has as many bytes as its shape.
            unsafe { bytes_mut(cx, operand) }.copy_from_slice(&result.encode());
        }
        Ok(())
    }
}
