//! The listing of a module for people.

use std::fmt;

use super::{BufferId, BufferKind, LirModule, Operand, Step, StepKind, View};
use crate::dim::Extent;

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |items: &[Extent]| items.iter().map(Extent::to_string).collect::<Vec<_>>().join(", ");
        if self.is_dense() && self.offset == Extent::Const(0) {
            return write!(f, "[{}]", list(&self.dims));
        }
        write!(f, "[{}; strides {}; at {}]", list(&self.dims), list(&self.strides), self.offset)
    }
}

fn write_buffer(f: &mut fmt::Formatter<'_>, module: &LirModule, id: BufferId) -> fmt::Result {
    match &module.buffers[id.index()].kind {
        BufferKind::Input(i) => write!(f, "input.{i}"),
        BufferKind::Param(i) => write!(f, "param.{i}"),
        BufferKind::Constant(_) => write!(f, "const.{}", id.0),
        BufferKind::Prepared => write!(f, "prepared.{}", id.0),
        BufferKind::Arena => write!(f, "arena.{}", id.0),
    }
}

fn write_operand(f: &mut fmt::Formatter<'_>, module: &LirModule, operand: &Operand) -> fmt::Result {
    let buffer = &module.buffers[operand.buffer.index()];
    write_buffer(f, module, operand.buffer)?;
    if let Some(format) = buffer.format {
        write!(f, ":{format}")?;
    }
    write!(f, "{} {}", operand.view, operand.dtype)
}

fn write_step(f: &mut fmt::Formatter<'_>, module: &LirModule, step: &Step) -> fmt::Result {
    f.write_str("  ")?;
    for (i, operand) in step.outputs.iter().enumerate() {
        f.write_str(if i == 0 { "" } else { ", " })?;
        write_operand(f, module, operand)?;
    }
    match &step.kind {
        StepKind::Copy => f.write_str(" = Copy(")?,
        StepKind::Op(op) => write!(f, " = {}(", op.kind())?,
    }
    for (i, operand) in step.inputs.iter().enumerate() {
        f.write_str(if i == 0 { "" } else { ", " })?;
        write_operand(f, module, operand)?;
    }
    write!(f, ")  // {}", module.graph.label(step.node))?;
    if let Some(copied) = step.copied() {
        f.write_str("; copies ")?;
        write_buffer(f, module, copied.buffer)?;
    }
    writeln!(f)
}

impl fmt::Display for LirModule {
    /// A listing for people: steps with their operands, then the plan.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "lir {:?}", self.name)?;
        for (title, steps) in [("init", &self.init), ("run", &self.steps)] {
            writeln!(f, "{title}:")?;
            steps.iter().try_for_each(|step| write_step(f, self, step))?;
        }
        for slot in &self.outputs {
            write!(f, "output {:?} = ", slot.name)?;
            write_operand(f, self, &slot.operand)?;
            writeln!(f)?;
        }
        match &self.plan {
            Some(p) => {
                writeln!(f, "arena {} bytes, largest live set {} bytes", p.arena_bytes, p.largest_live_set)
            }
            None => writeln!(f, "arena not planned: symbols without bounds"),
        }
    }
}
