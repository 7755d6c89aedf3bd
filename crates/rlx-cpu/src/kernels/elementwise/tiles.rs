//! How the iteration space of a tile program is cut into tiles, how each operand is read on the way, and how results are stored.

use super::panels::PANEL_TILE;
use super::program::{Instr, TILE};
use super::{AHEAD, Elementwise, Mode};
use crate::layout::{Layout, collapse, order_by_first};
use crate::stores::Stores;

/// Bytes of an operand of a tile of one instruction between operands in memory, and of all slots where tiles are longer than [`TILE`].
const LONG_TILE: usize = 16 << 10;
const SLOTS_BYTES: usize = 8 << 10;

/// There are at least so many tiles that are longer.
const TILES: usize = 64;

/// Rows shorter than this are not walked row by row.
const LONG_ROW: usize = 64;

/// About how many nanoseconds a row takes besides its elements if it is a tile of its own: for itself, for each operand and for each
/// instruction. Guesses, by which rows of 64 elements are copied and rows of a tile are not.
const ROW: [f64; 3] = [8.0, 4.0, 10.0];

/// The same of a row of an operand that is copied to a tile: for itself and for each element.
const COPY: [f64; 2] = [5.0, 0.08];

impl Elementwise {
    /// How `elements` of each result are stored: what is written over an operand is in the caches, and so is what later instructions read.
    pub(super) fn stores_of(&self, elements: usize) -> Stores {
        let rewrites = self.outputs.iter().any(|out| self.inputs.iter().any(|walk| walk.at == out.at));
        if rewrites || self.program.instrs.iter().any(|instr| self.reads_a_result(instr)) {
            return Stores::Cached;
        }
        Stores::of_rows(self.outputs.iter().map(|out| elements * out.size).sum())
    }

    /// Whether an instruction reads a result of the program.
    fn reads_a_result(&self, instr: &Instr) -> bool {
        let args = &instr.args[..usize::from(instr.arity)];
        self.program.outputs.iter().any(|out| args.contains(&out.value))
    }

    /// Cuts the iteration space of `elements` into tiles.
    pub(super) fn shape(&mut self, elements: usize) {
        // Results are written one behind the other, whatever the order of the dimensions: it is operands that are transposed on the way.
        order_by_first(&mut self.layouts);
        collapse(&mut self.layouts);
        let space = self.layouts.first().copied().unwrap_or(Layout::SCALAR);
        let rank = space.rank();
        self.inner = space.dims().last().copied().unwrap_or(1);
        self.rows = if elements == 0 { 0 } else { elements / self.inner };
        if let Some(joined) = self.rows_of_a_tile(elements) {
            return self.join_rows(joined);
        }
        let outer_stride = |l: &Layout| if rank < 2 { 0 } else { l.strides()[rank - 2] };
        let transposed = |l: &Layout| outer_stride(l) == 1 && l.strides()[rank - 1].abs() > 1;
        let inputs = self.outputs.len();
        let turned = self.layouts[inputs..].iter().any(transposed);
        self.by_row = self.rows <= 1 || self.inner >= LONG_ROW && (turned || self.rows_are_worth_it());
        let (length, outer) =
            if self.by_row { (self.inner, rank.saturating_sub(1)) } else { (elements, rank) };
        let panels = self.by_row && turned;
        self.height = if panels { space.dims()[rank - 2] } else { 0 };
        let most = if panels { PANEL_TILE } else { self.longest_tile(length, elements) };
        self.pieces = length.div_ceil(most);
        self.tile = length.div_ceil(self.pieces.max(1)).next_multiple_of(16).min(most);
        self.pieces = length.div_ceil(self.tile.max(1));
        let walks = self.outputs.iter_mut().chain(&mut self.inputs).zip(&self.layouts);
        for (i, (walk, layout)) in walks.enumerate() {
            let inner = layout.strides().last().copied().unwrap_or(1);
            walk.mode = if self.by_row {
                match inner {
                    1 => Mode::Direct,
                    0 => Mode::Uniform,
                    _ if i >= inputs && transposed(layout) => Mode::Transposed,
                    _ => Mode::Strided,
                }
            } else if layout.is_dense() {
                Mode::Direct
            } else if layout.strides().iter().all(|&s| s == 0) {
                Mode::Uniform
            } else {
                Mode::Strided
            };
            walk.layout = if self.by_row { layout.range(0, outer) } else { *layout };
            if self.by_row {
                // The innermost stride is kept behind the outer dimensions.
                walk.layout.push(self.inner, inner);
            }
            let bytes = elements * walk.size;
            let goes_on = [0, self.inner as isize].contains(&outer_stride(layout));
            walk.apart = i >= inputs
                && self.by_row
                && self.pieces == 1
                && walk.mode == Mode::Direct
                && !goes_on
                && bytes >= AHEAD[1];
        }
    }

    /// Whether what a tile takes besides its elements is not worth copying operands for, so that a tile may be of several rows.
    fn rows_are_worth_it(&self) -> bool {
        let same = |l: &Layout| l.strides().iter().all(|&s| s == 0);
        let copied = self.layouts.iter().filter(|l| !l.is_dense() && !same(l)).count() as f64;
        let [row, operand, instruction] = ROW;
        let besides =
            row + operand * self.layouts.len() as f64 + instruction * self.program.instrs.len() as f64;
        // A tile across rows takes as much, but there are fewer of them.
        let saved = besides * (1.0 - self.inner as f64 / TILE as f64);
        saved <= copied * (COPY[0] + COPY[1] * self.inner as f64)
    }

    /// Elements of a tile at most, where a row, or all `elements`, have `length`: what a tile costs besides its elements counts less for longer ones. One instruction
    /// from memory to memory needs no slot; others need some that stay in the first-level cache.
    fn longest_tile(&self, length: usize, elements: usize) -> usize {
        let dense = |l: &Layout| if self.by_row { l.strides().last() == Some(&1) } else { l.is_dense() };
        let one = |l: &Layout| {
            if self.by_row { l.strides().last() == Some(&0) } else { l.strides().iter().all(|&s| s == 0) }
        };
        let (outputs, inputs) = self.layouts.split_at(self.outputs.len());
        let slotless = self.program.instrs.len() == 1
            && self.outputs.iter().all(|walk| walk.early)
            && outputs.iter().all(dense);
        let own = if slotless { 0 } else { self.program.slots };
        let slots = own + inputs.iter().filter(|l| !dense(l) && !one(l)).count();
        (self.most_elements(slots, elements).min(length) / 16 * 16).max(TILE)
    }

    /// Elements of a tile at most, of `elements` in all, if it has so many slots.
    fn most_elements(&self, slots: usize, elements: usize) -> usize {
        let bytes = SLOTS_BYTES.checked_div(slots).unwrap_or(LONG_TILE);
        // Enough tiles are left to share.
        (bytes / self.program.widest).min(elements / TILES).max(TILE)
    }

    /// How many of the innermost rows are a tile, where they are short, an operand is the same in each of them, and all others go on from
    /// one to the next.
    fn rows_of_a_tile(&self, elements: usize) -> Option<usize> {
        let [.., rows, inner] = *self.layouts.first()?.dims() else { return None };
        let repeated = |l: &Layout| l.strides().ends_with(&[0, 1]);
        let goes_on = |l: &Layout| l.strides().ends_with(&[inner as isize, 1]);
        let (outputs, inputs) = self.layouts.split_at(self.outputs.len());
        let own = if self.program.instrs.len() == 1 { 0 } else { self.program.slots };
        let slots = own + inputs.iter().filter(|l| repeated(l)).count();
        let most = self.most_elements(slots, elements);
        let joins = self.rows > 0
            && rows * inner >= LONG_ROW
            && inner <= most / 2
            && outputs.iter().all(goes_on)
            && inputs.iter().any(repeated)
            && inputs.iter().all(|l| repeated(l) || goes_on(l) || l.strides().ends_with(&[0, 0]));
        // Tiles of about the same size.
        joins.then(|| rows.div_ceil(rows.div_ceil(most / inner)))
    }

    /// Makes the innermost rows one, `joined` of which are a tile.
    fn join_rows(&mut self, joined: usize) {
        let walks = self.outputs.iter_mut().chain(&mut self.inputs);
        for (walk, layout) in walks.zip(&self.layouts) {
            let outer = layout.rank() - 2;
            let (rows, inner) = (layout.dims()[outer], layout.dims()[outer + 1]);
            let (mode, step) = match layout.strides()[outer..] {
                [0, 0] => (Mode::Uniform, 0),
                [0, _] => (Mode::Repeated(inner), 0),
                _ => (Mode::Direct, 1),
            };
            (walk.mode, walk.layout) = (mode, layout.range(0, outer));
            walk.layout.push(rows * inner, step);
            (self.tile, self.pieces) = (joined * inner, rows.div_ceil(joined));
            (self.rows, self.inner) = (layout.range(0, outer).elements(), rows * inner);
        }
        (self.by_row, self.height) = (true, 0);
    }
}
