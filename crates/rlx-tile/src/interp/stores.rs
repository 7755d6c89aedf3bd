//! Stores of sums, and what is read beside them.

use super::Group;
use super::global::Elements;
use super::shared::{self, Step};
use crate::atom::{Loading, QUAD};
use crate::beside::{Beside, Span};
use crate::ir::{Fragment, Index, View};
use crate::layout::CHUNK;
use crate::scalar::Scalar;

/// What is stored, and what becomes of it before.
#[derive(Clone, Copy)]
pub(super) struct Store<'s> {
    pub(super) to: View,
    pub(super) from: Fragment,
    pub(super) with: &'s [Beside],
    pub(super) map: Option<&'s Scalar>,
}

/// The bits of memory that lanes access by an instruction.
type Access = Vec<(u64, u64)>;

/// What the lanes of a warp access, by each instruction.
struct Accesses {
    stores: Vec<Access>,
    /// Of each view that is read.
    reads: Vec<Vec<Access>>,
}

impl Accesses {
    fn new(what: &Store<'_>) -> Self {
        let none = || vec![Vec::new(); CHUNK as usize];
        Accesses { stores: none(), reads: what.with.iter().map(|_| none()).collect() }
    }
}

impl Group<'_> {
    /// Stores sums: those that are neighbours in a lane together, or chunks that lanes have exchanged.
    pub(super) fn store(&mut self, what: Store<'_>, (row, col): (&Index, &Index)) -> Step {
        let atom = self.p.atom().ok_or("no matrix instruction")?;
        let decl = *self.p.fragment(what.from);
        let (across, chunks) = (decl.cols / atom.n, self.p.stores_chunks(what.to, what.from));
        for w in 0..self.warps.len() {
            let at = self.warps[w].place;
            let first = (self.position(row, at), self.position(col, at));
            for index in 0..decl.rows / atom.m * across {
                let corner = (
                    first.0 + i64::from(index / across * atom.m),
                    first.1 + i64::from(index % across * atom.n),
                );
                if atom.loading == Loading::Matrix {
                    shared::count_exchange(&mut self.count, atom.m * atom.n);
                }
                if !chunks {
                    for element in (0..atom.sum.elements()).step_by(atom.sum.neighbours() as usize) {
                        self.store_neighbours(w, &what, corner, (index, element))?;
                    }
                } else if index.is_multiple_of(QUAD) {
                    for row in 0..atom.sum.rows() {
                        self.store_chunks(w, &what, corner, (index, atom.sum.first_of_row(row)))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Stores the sums from number `element` on that are neighbours, of every lane of the instruction number `index`.
    fn store_neighbours(
        &mut self,
        w: usize,
        what: &Store<'_>,
        corner: (i64, i64),
        (index, element): (u32, u32),
    ) -> Step {
        let atom = self.p.atom().ok_or("no matrix instruction")?;
        let mut accesses = Accesses::new(what);
        for lane in 0..self.p.arch.lanes() {
            let (r, c) = atom.sum.at(lane, element);
            let number = |i: u32| (atom.sum.elements() * index + element + i) as usize;
            let sums = (0..atom.sum.neighbours())
                .map(|i| self.warps[w].sum(what.from, lane as usize, number(i)))
                .collect::<Step<Vec<f32>>>()?;
            let at = (corner.0 + i64::from(r), corner.1 + i64::from(c));
            self.store_run(what, at, &sums, &mut accesses)?;
        }
        self.count_accesses(accesses);
        Ok(())
    }

    /// Stores what every lane has of a row once it has its part of the four instructions from number `index` on: the row of its sum number `element`.
    fn store_chunks(
        &mut self,
        w: usize,
        what: &Store<'_>,
        corner: (i64, i64),
        (index, element): (u32, u32),
    ) -> Step {
        let atom = self.p.atom().ok_or("no matrix instruction")?;
        let mut accesses = Accesses::new(what);
        for lane in 0..self.p.arch.lanes() {
            let (r, _) = atom.sum.at(lane, element);
            let block = lane % QUAD;
            // Each lane of four has two of the chunk's sums.
            let of = |c: u32| {
                let (from, number) =
                    (lane - block + c / 2, atom.sum.elements() * (index + block) + element + c % 2);
                self.warps[w].sum(what.from, from as usize, number as usize)
            };
            let sums = (0..CHUNK).map(of).collect::<Step<Vec<f32>>>()?;
            let at = (corner.0 + i64::from(r), corner.1 + i64::from(block * CHUNK));
            self.store_run(what, at, &sums, &mut accesses)?;
        }
        self.count_accesses(accesses);
        Ok(())
    }

    /// Stores sums of a lane that are neighbours, as far as they are in the view.
    fn store_run(
        &mut self,
        what: &Store<'_>,
        (row, col): (i64, i64),
        sums: &[f32],
        accesses: &mut Accesses,
    ) -> Step {
        let view = self.p.view(what.to).clone();
        let (buffer, dtype) = (view.buffer.index(), self.p.view_dtype(what.to));
        let (rows, cols) = (self.value(view.rows), self.value(view.cols));
        let count = sums.len() as u32;
        let given = what.with.iter().zip(&mut accesses.reads);
        let given = given.map(|(b, reads)| self.read_chunk((b.view, b.span), (row, col), count, reads));
        let given = given.collect::<Step<Vec<Elements>>>()?;
        let together = view.vector.min(count);
        for (i, &x) in (0..).zip(sums) {
            let (at, bits) = ((row, col + i64::from(i)), dtype.bits() as u64);
            if at.0 >= rows || at.1 >= cols {
                continue;
            }
            // A row that is looked up may not be there.
            let Some(element) = self.read_element(what.to, at.0, at.1)? else { continue };
            self.read_where_stored(what, at, element)?;
            let stored = self.checked(buffer, element)?;
            let beside: Vec<f32> = given.iter().map(|of| of[i as usize].unwrap_or_default()).collect();
            let x = self.mapped(what.map, (x, &beside), at, Some((buffer, stored)))?;
            if !self.stored.insert((buffer as u32, stored)) {
                return Err(format!("element {stored} of b{buffer} is stored twice"));
            }
            self.pools.store(&self.bindings[buffer], stored, dtype, u64::from(x.to_bits()));
            if i % together == 0 {
                accesses.stores[(i / together) as usize]
                    .push((element as u64 * bits, u64::from(together) * bits));
            }
        }
        Ok(())
    }

    /// What is read beside an element from the buffer that it is stored in is where it is stored: others may be written already.
    fn read_where_stored(&self, what: &Store<'_>, at: (i64, i64), stored: i64) -> Step {
        let over = |b: &&Beside| self.p.view(b.view).buffer == self.p.view(what.to).buffer;
        for b in what.with.iter().filter(over) {
            if b.span != Span::One || self.element(b.view, at.0, at.1)? != stored {
                return Err(format!(
                    "g{} is read beside sums that are stored elsewhere in its buffer",
                    b.view.0
                ));
            }
        }
        Ok(())
    }

    fn count_accesses(&mut self, accesses: Accesses) {
        let all = accesses.stores.into_iter().chain(accesses.reads.into_iter().flatten());
        for access in all.filter(|a| !a.is_empty()) {
            self.count.buffer_access(access.into_iter());
        }
    }
}
