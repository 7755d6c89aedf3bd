//! Debug builds: every operand of every step is within the memory that its base points to.
//!
//! Views are checked against their buffers when they are bound, and buffers are placed by the plan. This checks the sum
//! of it all with addresses, just before a kernel gets them: that the base is set, and that the bytes between the first
//! and the last element of the view are inside one allocation.

use std::ops::Range;

use rlx_ir::lir::BufferKind;
use rlx_ir::{Error, ErrorKind, Result};

use super::CpuExecutable;
use crate::program::layout::Bound;

/// The bytes of a buffer that an operand touches; packed buffers have a layout that only kernels know.
#[derive(Debug, Clone)]
pub(super) struct Touched {
    buffer: usize,
    bytes: Range<isize>,
}

impl Touched {
    fn of(operand: &Bound) -> Touched {
        let (mut low, mut high) = (operand.at.offset as isize, operand.at.offset as isize);
        if operand.dtype.is_packed() {
            let bytes =
                operand.dtype.storage_bytes(operand.layout.elements()).map_or(isize::MAX, |n| n as isize);
            return Touched { buffer: operand.at.buffer as usize, bytes: 0..bytes };
        }
        let size = operand.dtype.size_bytes() as isize;
        for (&d, &stride) in operand.layout.dims().iter().zip(operand.layout.strides()) {
            let reach = (d as isize - 1) * stride * size;
            if reach < 0 { low += reach } else { high += reach }
        }
        let empty = operand.layout.dims().contains(&0);
        Touched { buffer: operand.at.buffer as usize, bytes: low..if empty { low } else { high + size } }
    }
}

/// What the steps of an executable touch, and where the inputs of the present run are. It allocates nothing once every
/// step was bound, as nothing in a run does.
#[derive(Debug, Clone, Default)]
pub(super) struct Ranges {
    steps: Vec<Vec<Touched>>,
    inputs: Vec<Range<isize>>,
}

impl Ranges {
    pub(super) fn new(steps: usize, inputs: usize) -> Ranges {
        Ranges { steps: vec![Vec::new(); steps], inputs: vec![0..0; inputs] }
    }

    /// Remembers the operands of the step that was just bound.
    pub(super) fn note_step(&mut self, step: usize, inputs: &[Bound], packed: &[bool], outputs: &[Bound]) {
        let plain = inputs.iter().zip(packed).filter(|(_, packed)| !**packed).map(|(operand, _)| operand);
        self.steps[step].clear();
        self.steps[step].extend(plain.chain(outputs).map(Touched::of));
    }

    /// Remembers where an input is.
    pub(super) fn note_input(&mut self, input: usize, start: *const u8, bytes: usize) {
        self.inputs[input] = start as isize..start as isize + bytes as isize;
    }
}

fn addresses(bytes: &[u8]) -> Range<isize> {
    let start = bytes.as_ptr() as isize;
    start..start + bytes.len() as isize
}

impl CpuExecutable {
    /// Whether everything that a step touches is where its base says.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] naming the buffer: a view, a plan or a base is wrong.
    pub(super) fn check_ranges(&self, step: usize) -> Result<()> {
        for Touched { buffer, bytes } in &self.ranges.steps[step] {
            let base = self.bases[*buffer] as isize;
            let touched = base + bytes.start..base + bytes.end;
            if !bytes.is_empty() && (base == 0 || !self.is_in_memory(*buffer, &touched)) {
                let message = format!("bytes {bytes:?} of buffer {buffer} are outside its memory");
                return Err(Error::new(ErrorKind::Internal, message));
            }
        }
        Ok(())
    }

    /// Whether these addresses are in an allocation in which the buffer may be.
    fn is_in_memory(&self, buffer: usize, touched: &Range<isize>) -> bool {
        let inside = |memory: Range<isize>| memory.start <= touched.start && touched.end <= memory.end;
        match &self.program.lir.buffers[buffer].kind {
            BufferKind::Constant(data) => match &self.program.constants[buffer] {
                Some(copy) => inside(addresses(copy.as_slice())),
                None => inside(addresses(data.bytes())),
            },
            BufferKind::Prepared => {
                self.prepared[buffer].as_ref().is_some_and(|b| inside(addresses(b.as_slice())))
            }
            BufferKind::Arena => {
                let own = [&self.arena, &self.scratch.arena];
                own.into_iter().chain(self.handles.memory()).any(|b| inside(addresses(b.as_slice())))
            }
            BufferKind::Input(i) => inside(self.ranges.inputs[*i].clone()),
            // Weights have the size of their declared shape, which was checked when they were set.
            BufferKind::Param(_) => true,
        }
    }
}
