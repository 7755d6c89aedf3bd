//! Which bytes operands touch. Debug builds check that every operand of every step is within the memory that its base points to.
//!
//! Views are checked against their buffers when they are bound, and buffers are placed by the plan. This checks the sum
//! of it all with addresses, just before a kernel gets them: that the base is set, and that the bytes between the first
//! and the last element of the view are inside one allocation.

use std::ops::Range;

use rlx_ir::{Error, ErrorKind, Result};

use crate::layout::Bound;
use crate::memory::Place;

/// The bytes of a buffer that an operand touches; packed buffers have a layout that only kernels know.
#[derive(Debug, Clone)]
pub(super) struct Touched {
    pub(super) buffer: usize,
    bytes: Range<isize>,
}

impl Touched {
    pub(super) fn of(operand: &Bound) -> Touched {
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

impl Touched {
    /// Where that is.
    pub(super) fn addresses(&self, places: &[Place]) -> Range<usize> {
        let at = |offset: isize| places[self.buffer].address().wrapping_offset(offset).addr();
        at(self.bytes.start)..at(self.bytes.end)
    }
}

/// Whether everything that a step touches is where its base says.
///
/// # Errors
/// [`ErrorKind::Internal`] naming the buffer: a view, a plan or a base is wrong.
pub(super) fn check_ranges(places: &[Place], touched: &[Touched]) -> Result<()> {
    for Touched { buffer, bytes } in touched {
        if !bytes.is_empty() && !places[*buffer].covers(bytes) {
            let message = format!("bytes {bytes:?} of buffer {buffer} are outside its memory");
            return Err(Error::new(ErrorKind::Internal, message));
        }
    }
    Ok(())
}
