//! Stores of sums: what becomes of each, what is read beside it, and how much a lane writes at once.
//!
//! An instruction deals its sums out to lanes, on NVIDIA's GPUs two neighbours of a row to each of four lanes. Where what is stored is wide enough
//! ([`Program::stores_chunks`](crate::Program::stores_chunks)), these four exchange what they have of four instructions beside each other, so that each has eight
//! neighbours, which are written by one access of 16 bytes, and of which everything beside is read so:
//!
//! ```text
//! lane         0      1      2      3                  0        1        2        3
//! block 0    a0 a1  a2 a3  a4 a5  a6 a7              a0..a7   b0..b7   c0..c7   d0..d7
//! block 1    b0 b1  b2 b3  b4 b5  b6 b7     ──▶
//! ```

use rlx_ir::{DType, Result};
use rlx_kernel::ir::{Inst, Stmt as KernelStmt};

use super::body::{Body, index, narrowed, packed};
use super::fragments::lane_place;
use super::language::size;
use crate::atom::{Atom, Loading, QUAD};
use crate::beside::Beside;
use crate::ir::{Fragment, Index, Size, View};
use crate::layout::CHUNK;
use crate::scalar::Scalar;

/// Blocks whose results a lane computes before it stores them: what is read for so many is under way at the same time, and there are registers for it.
const BLOCKS: u32 = 4;

/// Sums of a lane that leave few registers for anything else.
const MANY_SUMS: u32 = 128;

/// What is stored, and what becomes of it before.
#[derive(Clone, Copy)]
pub(super) struct Store<'s> {
    pub(super) to: View,
    pub(super) from: Fragment,
    pub(super) with: &'s [Beside],
    pub(super) map: Option<&'s Scalar>,
}

impl Body<'_> {
    pub(super) fn store(&mut self, what: Store<'_>, at: (&Index, &Index)) -> Result<()> {
        let Some(atom) = self.p.atom() else { return Ok(()) };
        if atom.loading == Loading::Matrix {
            return self.store_matrices(atom, (what.to, what.from), at, what.map);
        }
        self.open("{");
        self.line(&format!("const int row0 = {} + {};", index(at.0), lane_place(&atom.sum, false)));
        let chunks = self.p.stores_chunks(what.to, what.from);
        if !chunks || what.map.is_some() {
            self.line(&format!("const int col0 = {} + {};", index(at.1), lane_place(&atom.sum, true)));
        }
        match chunks {
            false => self.store_dealt(atom, what)?,
            true => {
                self.line(&format!("const int chunk0 = {} + lane % {QUAD} * {CHUNK};", index(at.1)));
                if what.with.is_empty() {
                    self.store_exchanged(atom, what)?;
                } else {
                    self.store_beside(atom, what)?;
                }
            }
        }
        self.close();
        Ok(())
    }

    /// Stores sums as the instruction deals them out.
    fn store_dealt(&mut self, atom: &Atom, what: Store<'_>) -> Result<()> {
        let d = *self.p.fragment(what.from);
        let (rows, cols) = (d.rows / atom.m, d.cols / atom.n);
        self.unrolled("i", rows);
        let neighbours = atom.sum.neighbours();
        let together = self.p.view(what.to).vector.min(neighbours);
        // What is read is there before anything is stored, so that a lane waits for memory once, and not for each element.
        let before = !what.with.is_empty() || what.map.is_some_and(loads);
        // Of many lanes each has few registers, and most of them for sums: the compiler does better with all of them before it.
        let most = if self.p.workgroup() > 256 { 4 * BLOCKS } else { BLOCKS };
        let group = (1..=most.min(cols)).rev().find(|n| cols % n == 0).unwrap_or(1);
        if before {
            self.unrolled("part", cols / group);
            self.compute_blocks(atom, what, (cols, group))?;
            self.line("#pragma unroll");
            self.open(&format!("for (int j = part * {group}; j < part * {group} + {group}; j++) {{"));
        } else {
            self.unrolled("j", cols);
        }
        let map = if before { None } else { what.map };
        for first in (0..atom.sum.elements()).step_by(neighbours as usize) {
            self.open("{");
            self.place_of_block(atom, first, "j");
            self.page_of_row(what.to);
            for part in (0..neighbours).step_by(together as usize) {
                let sum = match before {
                    true => format!("made[j - part * {group}]"),
                    false => format!("f{}[i * {cols} + j]", what.from.0),
                };
                self.store_together(what.to, &sum, (first, part, together), map)?;
            }
            self.close();
        }
        self.close();
        if before {
            self.close();
        }
        self.close();
        Ok(())
    }

    /// States the row and column of a lane's sum number `first` in a block.
    fn place_of_block(&mut self, atom: &Atom, first: u32, block: &str) {
        let (down, right) = atom.sum.at(0, first);
        self.line(&format!(
            "const int row = row0 + i * {} + {down}, col = col0 + {block} * {} + {right};",
            atom.m, atom.n
        ));
    }

    /// What becomes of the sums of some blocks that are beside each other, as `made`.
    fn compute_blocks(&mut self, atom: &Atom, what: Store<'_>, (cols, group): (u32, u32)) -> Result<()> {
        let Some(map) = what.map else { return Ok(()) };
        let block = format!("(part * {group} + j)");
        self.line(&format!("float made[{group}][{}];", atom.sum.elements()));
        self.unrolled("j", group);
        let sum = format!("f{}[i * {cols} + part * {group} + j]", what.from.0);
        let neighbours = if what.with.is_empty() { 1 } else { atom.sum.neighbours() };
        for first in (0..atom.sum.elements()).step_by(neighbours as usize) {
            self.open("{");
            if what.with.is_empty() {
                self.place_within(atom, what.to, first, &block);
            } else {
                self.place_of_block(atom, first, &block);
                self.declare_beside(what.with, neighbours, 1, "x");
                self.fetch_beside(what.with, neighbours, "x{}[0]");
            }
            for e in 0..neighbours {
                self.open("{");
                self.given_beside(what.with, "x{}[0]", &e.to_string());
                self.line(&format!("float m0 = {sum}[{}];", first + e));
                self.map(Some(map), "row", &format!("col + {e}"))?;
                self.line(&format!("made[j][{}] = m0;", first + e));
                self.close();
            }
            self.close();
        }
        self.close();
        Ok(())
    }

    /// The place of a sum whose body reads by itself: beyond an edge it is what the last row, or column, reads, which nobody stores.
    fn place_within(&mut self, atom: &Atom, to: View, element: u32, block: &str) {
        let view = self.p.view(to);
        let within = |place: String, count: Size| {
            let count = size(count);
            format!("{place} < {count} ? {place} : {count} - 1")
        };
        let (down, right) = atom.sum.at(0, element);
        let row = within(format!("row0 + i * {} + {down}", atom.m), view.rows);
        let col = within(format!("col0 + {block} * {} + {right}", atom.n), view.cols);
        self.line(&format!("const int row = {row}, col = {col};"));
    }

    /// Stores chunks of sums that are computed where they are dealt out: rounded pairs are exchanged.
    fn store_exchanged(&mut self, atom: &Atom, what: Store<'_>) -> Result<()> {
        let (d, pack) = (*self.p.fragment(what.from), packed(self.p.view_dtype(what.to)));
        let cols = d.cols / atom.n;
        self.unrolled("i", d.rows / atom.m);
        self.unrolled("part", cols / QUAD);
        self.compute_blocks(atom, what, (cols, QUAD))?;
        let sum = |block: u32| match what.map {
            Some(_) => format!("made[{block}]"),
            None => format!("f{}[i * {cols} + part * {QUAD} + {block}]", what.from.0),
        };
        for row in 0..atom.sum.rows() {
            let first = atom.sum.first_of_row(row);
            self.open("{");
            let pair = |block: u32| format!("{pack}({0}[{first}], {0}[{1}])", sum(block), first + 1);
            self.line(&format!("u32 w[{QUAD}] = {{{}}};", list(pair)));
            self.line("exchange(w, lane);");
            self.place_of_chunk(atom, first, "part");
            self.page_of_row(what.to);
            self.write_chunk(what.to);
            self.close();
        }
        self.close();
        self.close();
        Ok(())
    }

    /// Stores chunks of sums with what is beside them: sums are exchanged, and computed where their chunk is written.
    fn store_beside(&mut self, atom: &Atom, what: Store<'_>) -> Result<()> {
        let (d, pack) = (*self.p.fragment(what.from), packed(self.p.view_dtype(what.to)));
        let (cols, rows) = (d.cols / atom.n, atom.sum.rows());
        let parts = cols / QUAD;
        // Where sums take half of a lane's registers, there is room for fewer.
        let most = if d.rows * d.cols / self.p.arch.lanes() >= MANY_SUMS { BLOCKS / 2 } else { BLOCKS };
        let group = (1..=most.min(parts)).rev().find(|&n| parts.is_multiple_of(n)).unwrap_or(1);
        self.unrolled("i", d.rows / atom.m);
        self.unrolled("part", parts / group);
        self.declare_beside(what.with, CHUNK, group * rows, "x");
        let chunk = format!("(part * {group} + j)");
        self.unrolled("j", group);
        for row in 0..rows {
            self.open("{");
            self.place_of_chunk(atom, atom.sum.first_of_row(row), &chunk);
            self.fetch_beside(what.with, CHUNK, &format!("x{{}}[j * {rows} + {row}]"));
            self.close();
        }
        self.close();
        self.unrolled("j", group);
        for row in 0..rows {
            let first = atom.sum.first_of_row(row);
            self.open("{");
            for (name, element) in [("low", first), ("high", first + 1)] {
                let sum = |block: u32| {
                    format!("f{}[i * {cols} + {chunk} * {QUAD} + {block}][{element}]", what.from.0)
                };
                let bits = |block: u32| self.language.bits_of_float(&sum(block));
                self.line(&format!("u32 {name}[{QUAD}] = {{{}}};", list(bits)));
                self.line(&format!("exchange({name}, lane);"));
            }
            self.place_of_chunk(atom, first, &chunk);
            self.line(&format!("float y[{CHUNK}];"));
            self.unrolled("e", CHUNK);
            let sum = self.language.float_of_bits("(e % 2 ? high[e / 2] : low[e / 2])");
            self.given_beside(what.with, &format!("x{{}}[j * {rows} + {row}]"), "e");
            self.line(&format!("float m0 = {sum};"));
            self.map(what.map, "row", "col + e")?;
            self.line("y[e] = m0;");
            self.close();
            let pair = |i: u32| format!("{pack}(y[{}], y[{}])", 2 * i, 2 * i + 1);
            self.line(&format!("const u32 w[{QUAD}] = {{{}}};", list(pair)));
            self.write_chunk(what.to);
            self.close();
        }
        self.close();
        self.close();
        self.close();
        Ok(())
    }

    /// States the row and the first column of a lane's chunk number `chunk`, of the row that its sum number `first` is in.
    fn place_of_chunk(&mut self, atom: &Atom, first: u32, chunk: &str) {
        let (down, _) = atom.sum.at(0, first);
        self.line(&format!(
            "const int row = row0 + i * {} + {down}, col = chunk0 + {chunk} * {};",
            atom.m,
            CHUNK * QUAD
        ));
    }

    /// Writes a chunk, the words `w`, as far as it is in the view.
    fn write_chunk(&mut self, to: View) {
        let vector = self.p.view(to).vector.min(CHUNK);
        for part in (0..CHUNK).step_by(vector as usize) {
            let (address, inside) = self.address(to, part);
            let ty = if vector == CHUNK { "uint4" } else { "uint2" };
            let all: Vec<String> = (part / 2..(part + vector) / 2).map(|i| format!("w[{i}]")).collect();
            let write = self.language.write(ty, &address, &self.language.vector(ty, &all));
            self.line(&format!("if ({inside}) {write}"));
        }
    }

    /// Stores the sums `first + part`, …, which are `part` columns on, by one access.
    pub(super) fn store_together(
        &mut self,
        to: View,
        sum: &str,
        (first, part, together): (u32, u32, u32),
        map: Option<&Scalar>,
    ) -> Result<()> {
        let dtype = self.p.view_dtype(to);
        let (whole, inside) = self.address(to, part);
        if together > 1 {
            self.open(&format!("if ({inside}) {{"));
            self.line(&format!("float y[{together}];"));
        }
        for i in part..part + together {
            let (address, inside) = self.address(to, i);
            self.open(&if together > 1 { "{".to_string() } else { format!("if ({inside}) {{") });
            self.line(&format!("float m0 = {sum}[{}];", first + i));
            self.map(map, "row", &format!("col + {i}"))?;
            self.line(&match (together > 1, dtype) {
                (true, _) => format!("y[{}] = m0;", i - part),
                (false, DType::F32) => format!("*({address}) = m0;"),
                (false, _) => format!("*({address}) = {}(m0);", narrowed(dtype)),
            });
            self.close();
        }
        if together > 1 {
            let words: Vec<String> = match dtype {
                DType::F32 => (0..together).map(|i| format!("y[{i}]")).collect(),
                _ => {
                    let pair = |i: u32| format!("{}(y[{}], y[{}])", packed(dtype), 2 * i, 2 * i + 1);
                    (0..together / 2).map(pair).collect()
                }
            };
            let (ty, n) = (if dtype == DType::F32 { "float" } else { "uint" }, words.len());
            let (language, ty) = (self.language, format!("{ty}{n}"));
            self.line(&match n {
                1 => language.write_word(&whole, &words[0]),
                _ => language.write(&ty, &whole, &language.vector(&ty, &words)),
            });
            self.close();
        }
        Ok(())
    }
}

/// The words of a chunk.
fn list(of: impl Fn(u32) -> String) -> String {
    (0..QUAD).map(of).collect::<Vec<_>>().join(", ")
}

/// Whether a body reads buffers.
fn loads(map: &Scalar) -> bool {
    let mut found = false;
    map.kernel().for_each_stmt(&mut |s| found |= matches!(s, KernelStmt::Let(_, Inst::Load(..))));
    found
}
