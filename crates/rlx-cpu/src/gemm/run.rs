//! Which way a matmul is computed: with its operands as they are, or widened for many rows at a time.

use std::ops::Range;

use super::element::Packed;
use super::kernel::Rows;
use super::widened::{self, Widened};
use super::{Gemm, RunTasks};
use crate::isa::Isa;

impl<R: Rows<Element: Packed>> Gemm<R> {
    /// Computes a range of the tasks.
    ///
    /// # Safety
    /// Every row of A must be readable for `k` elements per tap, `b` must hold `packed_words(k, n)` packed
    /// words per tap, the m×n elements of C (or of the wide sums) must be writable and, like those of the epilogue's
    /// operands, in bounds. C may be the same memory as an [`Epilogue::combine`](super::Epilogue::combine) with equal strides that
    /// comes before the activation, and must not overlap anything else. No two threads may run the same task at once.
    pub unsafe fn run(&self, isa: Isa, tasks: Range<usize>) {
        // Compiled once for all sources of rows: where they are is asked once for a tile and a tap.
        let any = self.with_rows(self.rows.any());
        if const { R::Element::GROUP != 1 } && widened::pays(&any, isa) {
            isa.run(Widened { gemm: &any, tasks });
        } else if R::Element::multiplies(isa) {
            R::Element::run(isa, RunTasks { gemm: &any, tasks });
        } else {
            isa.run(RunTasks { gemm: &any, tasks });
        }
    }
}
