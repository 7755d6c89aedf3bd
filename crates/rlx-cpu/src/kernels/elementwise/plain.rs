//! Tiles of one instruction whose operands are read and written where they are: most single ops, such as what is added to each row of a matrix.
//!
//! A tile program fills a table of values in for each tile, which takes as long as some hundred elements do. Here nothing changes from tile to tile
//! but where operands begin.

use std::ops::Range;

use super::instr::{ARGS, Source};
use super::{Bases, Elementwise, Mode, Walk};
use crate::isa::Isa;

impl Elementwise {
    /// Whether the tiles are such.
    pub(super) fn is_plain(&self) -> bool {
        let (&[out], [instr]) = (&self.outputs[..], &self.program.instrs[..]) else { return false };
        let direct = |mode: Mode| mode == Mode::Direct;
        // One value for a tile must outlive a result that is written over it.
        let outlives = |walk: &Walk| direct(walk.mode) || walk.at.buffer != out.at.buffer;
        // A region may give an operand back as it is, and compute something that nothing reads.
        let made = self.program.outputs.iter().all(|made| made.value == instr.out);
        self.by_row
            && self.height == 0
            && made
            && direct(out.mode)
            && out.early
            && self.inputs.iter().any(|walk| direct(walk.mode))
            && self.inputs.iter().all(|walk| direct(walk.mode) || walk.mode == Mode::Uniform)
            && self.inputs.iter().all(outlives)
    }

    /// Computes a range of the tiles.
    ///
    /// # Safety
    /// As [`StepKernel::run`](crate::kernels::StepKernel::run); the tiles must be plain.
    pub(super) unsafe fn run_plain(&self, isa: Isa, bases: Bases<'_>, tiles: Range<usize>) {
        let (program, [instr, ..]) = (&*self.program, &self.program.instrs[..]) else { return };
        let args = instr.args.map(usize::from);
        let mut sources = [Source { ptr: std::ptr::null(), step: 0 }; ARGS];
        for (source, &arg) in sources.iter_mut().zip(&args) {
            match self.inputs.get(arg) {
                Some(walk) => source.step = usize::from(walk.mode == Mode::Direct),
                None => source.ptr = program.constants[arg - self.inputs.len()].as_ptr().cast(),
            }
        }
        for unit in tiles {
            let (row, start) = (unit / self.pieces, unit % self.pieces * self.tile);
            self.prefetch(isa, bases, row);
            for (source, &arg) in sources.iter_mut().zip(&args[..usize::from(instr.arity)]) {
                if let Some(walk) = self.inputs.get(arg) {
                    source.ptr = self.place(bases, walk, row, start);
                }
            }
            let out = self.place(bases, &self.outputs[0], row, start);
            // SAFETY: the caller's promise.
            unsafe { instr.code.run(isa, &sources, out, self.tile.min(self.inner - start)) }
        }
    }
}
