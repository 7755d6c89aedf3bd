//! Operands that are transposed on the way: a *panel* has the elements of a tile in each of sixteen rows, which are neighbours in memory, so that squares of
//! them are turned in registers.

use super::strided::sized;
use super::{Bases, Elementwise, Mode, Source};
use crate::isa::Isa;
use crate::kernels::transpose::{Band, ONE_GROUP, transpose};

/// Rows of a panel.
pub(super) const PANEL: usize = 16;

/// Elements of a tile where there are panels.
pub(super) const PANEL_TILE: usize = 256;

/// A tile among those whose operands have panels.
pub(super) struct InPanel {
    pub(super) row: usize,
    pub(super) start: usize,
    /// Which row of the panel it is, and how many there are from it on.
    pub(super) of_panel: usize,
    pub(super) left: usize,
}

impl Elementwise {
    /// The tile of a unit, where a unit's successor is the tile below it, as far as a panel reaches.
    pub(super) fn in_panels(&self, unit: usize) -> InPanel {
        let all = self.height * self.pieces;
        let (outer, within) = (unit / all, unit % all);
        let (block, rest) = (within / (PANEL * self.pieces), within % (PANEL * self.pieces));
        let rows = PANEL.min(self.height - block * PANEL);
        let (piece, of_panel) = (rest / rows, rest % rows);
        let row = outer * self.height + block * PANEL + of_panel;
        InPanel { row, start: piece * self.tile, of_panel, left: rows - of_panel }
    }

    /// Fills the panels from row `of_panel` on with `rows` rows of `n` elements.
    ///
    /// # Safety
    /// As [`StepKernel::run`](crate::kernels::StepKernel::run); `panels` has room for the panels of all inputs.
    pub(super) unsafe fn load_panels(
        &self,
        isa: Isa,
        bases: Bases<'_>,
        panels: *mut u8,
        place: &InPanel,
        (height, width): (usize, usize),
    ) {
        for (i, walk) in self.inputs.iter().enumerate().filter(|(_, walk)| walk.mode == Mode::Transposed) {
            let from = self.place(bases, walk, place.row, place.start);
            let to = panels.wrapping_add(i * self.panel_bytes() + place.of_panel * self.tile * walk.size);
            let from_column = walk.layout.strides()[walk.layout.rank() - 1];
            let to_row = self.tile as isize;
            // SAFETY: the caller's promise; the rows are within the view, and below each other.
            unsafe {
                sized!(walk.size, T => {
                    let (from, to) = (from.cast::<T>().cast_const(), to.cast::<T>());
                    transpose(isa, Band { from, from_column, group: ONE_GROUP, to, to_row, height, width });
                })
            }
        }
    }

    /// Makes row `of_panel` of the panels the sources of their inputs.
    ///
    /// # Safety
    /// The table has an entry for each input.
    pub(super) unsafe fn point_to_panels(&self, table: *mut Source, panels: *mut u8, of_panel: usize) {
        for (i, walk) in self.inputs.iter().enumerate().filter(|(_, walk)| walk.mode == Mode::Transposed) {
            let at = i * self.panel_bytes() + of_panel * self.tile * walk.size;
            // SAFETY: the caller's promise.
            unsafe { *table.add(i) = Source { ptr: panels.wrapping_add(at).cast_const(), step: 1 } };
        }
    }
}
