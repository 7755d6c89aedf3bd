//! Rows that are a tile each, of one instruction whose operands are read and written where they are: what is added to a matrix for each row, or
//! multiplied by each channel.
//!
//! Any tile program can be run this way, a table of values and all; but rows of some hundred elements take no longer than to fill that in.

use std::ops::Range;

use super::instr::{ARGS, Source};
use super::{Bases, Elementwise, Mode};
use crate::isa::Isa;

impl Elementwise {
    /// Whether the rows are such.
    pub(super) fn has_plain_rows(&self) -> bool {
        let (&[out], [_]) = (&self.outputs[..], &self.program.instrs[..]) else { return false };
        let direct = |mode: Mode| mode == Mode::Direct;
        // One value for a row must outlive a result that is written over it.
        let outlives = |at: &super::Walk| direct(at.mode) || at.at.buffer != out.at.buffer;
        self.by_row
            && self.pieces == 1
            && self.height == 0
            && direct(out.mode)
            && out.early
            && self.inputs.iter().any(|walk| direct(walk.mode))
            && self.inputs.iter().all(|walk| direct(walk.mode) || walk.mode == Mode::Uniform)
            && self.inputs.iter().all(outlives)
    }

    /// Computes a range of the rows.
    ///
    /// # Safety
    /// As [`StepKernel::run`](crate::kernels::StepKernel::run); the rows must be plain.
    pub(super) unsafe fn run_plain_rows(&self, isa: Isa, bases: Bases<'_>, rows: Range<usize>) {
        let (program, [instr, ..]) = (&*self.program, &self.program.instrs[..]) else { return };
        let args = instr.args.map(usize::from);
        let mut sources = [Source { ptr: std::ptr::null(), step: 0 }; ARGS];
        for (source, &arg) in sources.iter_mut().zip(&args) {
            match self.inputs.get(arg) {
                Some(walk) => source.step = usize::from(walk.mode == Mode::Direct),
                None => source.ptr = program.constants[arg - self.inputs.len()].as_ptr().cast(),
            }
        }
        for row in rows {
            self.prefetch(isa, bases, row);
            for (source, &arg) in sources.iter_mut().zip(&args[..usize::from(instr.arity)]) {
                if let Some(walk) = self.inputs.get(arg) {
                    source.ptr = self.place(bases, walk, row, 0);
                }
            }
            let out = self.place(bases, &self.outputs[0], row, 0);
            // SAFETY: the caller's promise.
            unsafe { instr.code.run(isa, &sources, out, self.inner) }
        }
    }
}
