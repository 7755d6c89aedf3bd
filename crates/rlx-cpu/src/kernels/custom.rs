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
use crate::custom::{self, CpuCall, CpuKernel};
use crate::layout::Bound;
use crate::memory::Place;

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

/// The operands of a running step as bytes: inputs to read, each result given out once to be written.
#[derive(Debug)]
pub(crate) struct Operands<'a> {
    bases: &'a [Place],
    inputs: &'a [Bound],
    outputs: &'a [Bound],
    /// Which results were given out, by bit.
    taken: u64,
}

impl<'a> Operands<'a> {
    /// The operands of a step whose results are fewer than 65.
    ///
    /// # Safety
    /// The bases must cover all operands, which are dense, and nothing else may use them for `'a`; results overlap
    /// neither inputs nor each other.
    unsafe fn new(bases: &'a [Place], inputs: &'a [Bound], outputs: &'a [Bound]) -> Self {
        Operands { bases, inputs, outputs, taken: 0 }
    }

    pub(crate) fn inputs(&self) -> &'a [Bound] {
        self.inputs
    }

    pub(crate) fn outputs(&self) -> &'a [Bound] {
        self.outputs
    }

    /// Where an operand is, and how many bytes it has.
    fn place(&self, operand: &Bound) -> (*mut u8, usize) {
        let len = operand.layout.elements() * operand.dtype.size_bytes();
        (self.bases[operand.at.buffer as usize].address().wrapping_add(operand.at.offset), len)
    }

    pub(crate) fn input(&self, i: usize) -> Option<&'a [u8]> {
        match self.place(self.inputs.get(i)?) {
            (_, 0) => Some(&[]),
            // SAFETY: `new` was promised that the operand is covered and that nothing writes it.
            (ptr, len) => Some(unsafe { std::slice::from_raw_parts(ptr, len) }),
        }
    }

    /// Result `i`, the first time it is asked for.
    pub(crate) fn take_output(&mut self, i: usize) -> Option<&'a mut [u8]> {
        let operand = self.outputs.get(i)?;
        let bit = 1u64.checked_shl(u32::try_from(i).ok()?)?;
        if self.taken & bit != 0 {
            return None;
        }
        self.taken |= bit;
        match self.place(operand) {
            (_, 0) => Some(&mut []),
            // SAFETY: `new` was promised that the operand is covered and overlaps no other; it is given out once.
            (ptr, len) => Some(unsafe { std::slice::from_raw_parts_mut(ptr, len) }),
        }
    }
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
        // SAFETY: the caller's promise; operands are dense, since the target reads and writes no views of them.
        let operands = unsafe { Operands::new(cx.bases, &self.inputs, &self.outputs) };
        let mut call = CpuCall { attrs: &self.attrs, operands };
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
        // SAFETY: as for a registered kernel.
        let mut operands = unsafe { Operands::new(cx.bases, &self.inputs, &self.outputs) };
        let decode = |(i, o): (usize, &Bound)| {
            Value::try_decode(o.dtype, o.dims(), operands.input(i).unwrap_or_default())
        };
        let inputs = self.inputs.iter().enumerate().map(decode).collect::<Result<Vec<Value>>>()?;
        let inputs: Vec<&Value> = inputs.iter().collect();
        let declared: Vec<Shape> = self.outputs.iter().map(|o| Shape::new(o.dims(), o.dtype)).collect();
        let results = oracle::evaluate_op(&self.op, &inputs, &declared)?;
        for (i, (result, shape)) in results.iter().zip(&declared).enumerate() {
            match operands.take_output(i) {
                Some(bytes) if result.shape() == *shape => {
                    bytes.copy_from_slice(result.try_to_const()?.bytes())
                }
                _ => return Err(super::mismatch(format!("{} where {shape} was compiled", result.shape()))),
            }
        }
        Ok(())
    }
}
