//! Tiles of one instruction whose operands are read and written where they are: most single ops, such as what is added to each row of a matrix.
//!
//! A tile program fills a table of values in for each tile, which takes as long as some hundred elements do. Here nothing changes from tile to tile
//! but where operands begin.

use std::ops::Range;

use super::instr::{ARGS, Results, Source};
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
            && self.program.tables.is_empty()
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
            unsafe {
                let n = self.tile.min(self.inner - start);
                instr.code.run(isa, &sources, Results { out, n, stores: self.stores });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rlx_ir::op::{Activation, BinaryOp};
    use rlx_ir::{DType, Graph, NodeId, Op, Shape};

    use super::*;
    use crate::kernels::elementwise::program::of_body;
    use crate::layout::{At, Bound, Layout};

    const DIMS: [usize; 2] = [64, 1000];

    /// Whether the tiles of a graph are plain that makes a matrix of a matrix and another operand, as they lie.
    fn is_plain(other: Layout, ops: fn(&mut Graph, [NodeId; 2]) -> NodeId) -> bool {
        let layouts = [Layout::dense(&DIMS), other];
        let mut g = Graph::new("ops");
        let inputs = layouts.map(|layout| g.input("x", Shape::new(layout.dims(), DType::F32)));
        let last = ops(&mut g, inputs);
        g.set_outputs(vec![last]);
        let program = of_body(&g, None).unwrap();
        let bound = |buffer, layout| Bound { at: At { buffer, offset: 0 }, dtype: DType::F32, layout };
        let mut step = Elementwise::new(Arc::new(program));
        let inputs = [bound(0, layouts[0]), bound(1, other)];
        step.bind_with(&inputs, &[bound(2, layouts[0])], None).unwrap();
        step.plain
    }

    fn sum(g: &mut Graph, inputs: [NodeId; 2]) -> NodeId {
        g.try_add(Op::Binary(BinaryOp::Add), &inputs).unwrap()
    }

    #[test]
    fn what_is_added_to_each_row_is_plain() {
        assert!(is_plain(Layout::dense(&[1000]), sum), "a row");
        assert!(is_plain(Layout::dense(&[64, 1]), sum), "a column");
    }

    #[test]
    fn what_is_first_moved_or_computed_is_not_plain() {
        assert!(!is_plain(Layout::new(&DIMS, &[1, 64]), sum), "a transposed operand");
        let two = |g: &mut Graph, inputs: [NodeId; 2]| {
            let [x, y] = inputs.map(|x| g.try_add(Op::Activation(Activation::Exp), &[x]).unwrap());
            sum(g, [x, y])
        };
        assert!(!is_plain(Layout::dense(&[1000]), two), "three instructions");
    }
}
