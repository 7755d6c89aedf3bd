//! Fragments: loads of operands, and matrix instructions.

use super::body::{Body, chunk_offset, index};
use crate::atom::{Atom, Lanes, Loading};
use crate::ir::{Fragment, Index, Role, Stage, Tile, TileDecl};
use crate::layout::CHUNK;

/// The row (`false`) or column (`true`) of a lane's first element.
pub(super) fn lane_place(lanes: &Lanes, column: bool) -> String {
    let weight = |lane: u32| if column { lanes.at(lane, 0).1 } else { lanes.at(lane, 0).0 };
    place("lane", lanes.lane_bits(), weight)
}

/// A number that is linear in the bits of another one, which has a name: bits that follow each other and double are one term.
fn place(name: &str, bits: u32, weight: impl Fn(u32) -> u32) -> String {
    let mut terms = Vec::new();
    let mut bit = 0;
    while bit < bits {
        let first = weight(1 << bit);
        let mut n = 1;
        while first > 0 && bit + n < bits && weight(1 << (bit + n)) == first << n {
            n += 1;
        }
        if first > 0 {
            terms.push(format!("({name} >> {bit} & {}) * {first}", (1 << n) - 1));
        }
        bit += n;
    }
    if terms.is_empty() { "0".to_string() } else { terms.join(" + ") }
}

impl Body<'_> {
    pub(super) fn zero(&mut self, f: Fragment) {
        let Some(atom) = self.p.atom() else { return };
        if atom.loading == Loading::Matrix {
            return self.zero_matrices(atom, f);
        }
        let d = self.p.fragment(f);
        self.unrolled("i", d.rows * d.cols / (atom.m * atom.n));
        let sums: Vec<String> =
            (0..atom.sum.elements()).map(|e| format!("f{}[i][{e}] = 0.0f;", f.0)).collect();
        self.line(&sums.join(" "));
        self.close();
    }

    pub(super) fn load(
        &mut self,
        to: Fragment,
        (tile, stage): (Tile, Stage),
        at: (&Index, &Index),
        (depth_rows, of_sums): (bool, bool),
    ) {
        let Some(atom) = self.p.atom() else { return };
        let (d, t) = (*self.p.fragment(to), *self.p.tile(tile));
        if atom.loading == Loading::Matrix {
            return self.load_whole(to, (tile, stage), at, depth_rows);
        }
        self.open("{");
        self.line(&format!(
            "const u16* const from = t{} + {} * {};",
            tile.0,
            self.stage(tile, stage),
            t.rows * t.cols
        ));
        let (rows, cols) =
            if d.role == Role::Right { (atom.depth, atom.block) } else { (atom.block, atom.depth) };
        let along = d.cols / cols;
        let as_declared = (d.role == Role::Right) == depth_rows;
        // The tile's rows and columns of a block, and which of the fragment's blocks lie below each other there.
        let place = match as_declared {
            true => Place { below: ("i", rows), beside: ("j", cols) },
            false => Place { below: ("j", cols), beside: ("i", rows) },
        };
        let block = format!("f{}[i * {along} + j]", to.0);
        let blocks = (d.rows / rows, along);
        match &atom.loading {
            Loading::Dealt => {
                let by_rows = (d.role == Role::Left) != depth_rows;
                self.load_matrices(&block, &t, (at, by_rows), (blocks, place), depth_rows);
            }
            Loading::Own(own) if depth_rows => {
                let own = atom.chained.as_ref().filter(|_| of_sums).unwrap_or(own);
                self.load_elements(&block, &t, (at, own), (blocks, place));
            }
            Loading::Own(own) => self.load_chunks(&block, &t, (at, own), (blocks, place)),
            Loading::Matrix => {}
        }
        self.close();
    }

    /// Loops over the blocks of a fragment: `r` and `q` are row and chunk of a lane's part of a block, which begins at `row`, `col`.
    fn each_block(&mut self, (across, along): (u32, u32), place: &Place, q: &str) {
        self.unrolled("i", across);
        self.unrolled("j", along);
        let ((r, rows), (c, cols)) = (place.below, place.beside);
        self.line(&format!("const int r = row + {r} * {rows}, q = {q} + {c} * {};", cols / CHUNK));
    }

    fn close_blocks(&mut self) {
        self.close();
        self.close();
    }

    fn load_matrices(
        &mut self,
        block: &str,
        t: &TileDecl,
        (at, by_rows): ((&Index, &Index), bool),
        (blocks, place): ((u32, u32), Place),
        depth_rows: bool,
    ) {
        // Bits 3 and 4 of the lane choose the matrix: its rows or its columns are 8 on.
        let (down, right) = if by_rows { (3, 4) } else { (4, 3) };
        self.line(&format!("const int row = {} + (lane & 7) + (lane >> {down} & 1) * 8;", index(at.0)));
        self.line(&format!("const int col = {} + (lane >> {right} & 1) * 8;", index(at.1)));
        self.each_block(blocks, &place, &format!("col / {CHUNK}"));
        let function = if depth_rows { "load_matrices_trans" } else { "load_matrices" };
        self.line(&format!("{function}({block}, from + {});", chunk_offset(t)));
        self.close_blocks();
    }

    /// A lane's elements of a block are whole chunks of a row.
    fn load_chunks(
        &mut self,
        block: &str,
        t: &TileDecl,
        (at, own): ((&Index, &Index), &Lanes),
        (blocks, place): ((u32, u32), Place),
    ) {
        self.line(&format!("const int row = {} + {};", index(at.0), lane_place(own, false)));
        self.line(&format!("const int col = {} + {};", index(at.1), lane_place(own, true)));
        for chunk in 0..own.elements() / CHUNK {
            let first = if chunk == 0 { String::new() } else { format!(" + {chunk}") };
            self.each_block(blocks, &place, &format!("col / {CHUNK}{first}"));
            self.line(&format!("const uint4 w = *(const uint4*)(from + {});", chunk_offset(t)));
            let words = ["x", "y", "z", "w"].iter().enumerate();
            let words: Vec<String> =
                words.map(|(i, w)| format!("{block}[{}] = w.{w};", 4 * chunk as usize + i)).collect();
            self.line(&words.join(" "));
            self.close_blocks();
        }
    }

    /// A lane's elements of a block are below each other.
    fn load_elements(
        &mut self,
        block: &str,
        t: &TileDecl,
        (at, own): ((&Index, &Index), &Lanes),
        (blocks, place): ((u32, u32), Place),
    ) {
        self.line(&format!("const int first = {} + {};", index(at.0), lane_place(own, true)));
        self.line(&format!("const int col = {} + {};", index(at.1), lane_place(own, false)));
        self.unrolled("e", own.elements());
        let down = match own.neighbours() == own.elements() {
            true => "e".to_string(),
            false => place_of_element(own),
        };
        self.line(&format!("const int row = first + {down};"));
        self.each_block(blocks, &place, &format!("col / {CHUNK}"));
        self.line(&format!("const u32 x = from[{} + col % {CHUNK}];", chunk_offset(t)));
        self.line(&format!("{block}[e / 2] = e % 2 ? {block}[e / 2] | x << 16 : x;"));
        self.close_blocks();
        self.close();
    }

    pub(super) fn mma(&mut self, sum: Fragment, left: Fragment, right: Fragment) {
        let Some(atom) = self.p.atom() else { return };
        if atom.loading == Loading::Matrix {
            return self.mma_matrices(sum, left, right);
        }
        let (s, l) = (self.p.fragment(sum), self.p.fragment(left));
        let (rows, cols, depth) = (s.rows / atom.m, s.cols / atom.n, l.cols / atom.depth);
        self.unrolled("d", depth);
        for step in 0..atom.steps() {
            self.unrolled("i", rows);
            self.unrolled("j", cols);
            let (a, b) = (atom.left_registers(step).start, right_operand(atom, right, cols, step));
            self.line(&format!("mma(f{}[i * {cols} + j], f{}[i * {depth} + d] + {a}, {b});", sum.0, left.0));
            self.close();
            self.close();
        }
        self.close();
    }
}

/// How far along the depth the element `e` of a lane is.
fn place_of_element(own: &Lanes) -> String {
    place("e", own.elements().ilog2(), |e| own.at(0, e).1)
}

/// How a fragment's blocks lie in a tile: the counter of those below each other and the tile's rows of one, the counter of those
/// beside each other and the tile's columns of one.
struct Place {
    below: (&'static str, u32),
    beside: (&'static str, u32),
}

/// The registers of the right operand of an instruction on the sums' columns `j`.
fn right_operand(atom: &Atom, right: Fragment, cols: u32, step: u32) -> String {
    let b = atom.right_registers(0, step).start;
    match atom.halves() {
        1 => format!("f{}[d * {cols} + j] + {b}", right.0),
        halves => {
            let next = atom.right_registers(1, step).start - b;
            format!("f{}[d * {} + j / {halves}] + {b} + j % {halves} * {next}", right.0, cols / halves)
        }
    }
}
