//! Single elements of sums and rows: maps, exponentials, reductions of rows, and sums as operands.

use super::Group;
use super::fragments::{Warp, pair, sums_of_lane};
use super::global::rounded;
use super::shared::Step;
use crate::atom::Held;
use crate::ir::{Fragment, Index, Program, Reduction, Role};
use crate::scalar::Scalar;

fn unset(f: Fragment) -> String {
    format!("f{} is used before it is set", f.0)
}

/// 2 to the power of `x`, rounded once; 0 where that is below the normal numbers.
fn exp2(x: f32) -> f32 {
    let y = f64::from(x).exp2() as f32;
    if y < f32::MIN_POSITIVE { 0.0 } else { y }
}

impl Warp {
    pub fn exp2(&mut self, f: Fragment) -> Step {
        let elements = &mut self.sums[f.0 as usize];
        if elements.is_empty() {
            return Err(unset(f));
        }
        elements.iter_mut().for_each(|x| *x = exp2(*x));
        Ok(())
    }

    /// Each lane reduces its own columns in order; then each is given what another lane has, bit by bit of the lane's number.
    pub fn reduce(&mut self, p: &Program, to: Fragment, from: Fragment, op: Reduction) -> Step {
        let atom = p.atom().ok_or("no matrix instruction")?;
        let decl = p.fragment(from);
        let (cols, rows) = ((decl.cols / atom.n) as usize, atom.sum.rows() as usize);
        let (sums, n) = (&self.sums[from.0 as usize], sums_of_lane(p, from));
        if sums.is_empty() {
            return Err(unset(from));
        }
        let of_lane = sums_of_lane(p, to);
        let mut reduced = Vec::with_capacity(of_lane * self.lanes);
        for lane in 0..self.lanes {
            for row in 0..of_lane {
                let elements =
                    (0..atom.sum.elements()).filter(|&e| atom.sum.row_of(e) as usize == row % rows);
                let elements: Vec<usize> = elements.map(|e| e as usize).collect();
                let block = |j: usize| (row / rows * cols + j) * atom.sum.elements() as usize;
                let all = (0..cols).flat_map(|j| elements.iter().map(move |e| block(j) + e));
                let all = all.map(|i| sums[lane * n + i]);
                reduced.push(all.reduce(|x, y| op.of(x, y)).unwrap_or_default());
            }
        }
        for mask in atom.sum.across() {
            let other = |i: usize| ((i / of_lane) ^ mask as usize) * of_lane + i % of_lane;
            reduced = (0..reduced.len()).map(|i| op.of(reduced[i], reduced[other(i)])).collect();
        }
        let before = &mut self.sums[to.0 as usize];
        if before.is_empty() {
            return Err(unset(to));
        }
        before.iter_mut().zip(reduced).for_each(|(x, y)| *x = op.of(*x, y));
        Ok(())
    }

    /// The left operand of columns `col..` of sums.
    fn convert(&mut self, p: &Program, to: Fragment, from: Fragment, col: u32) -> Step {
        let atom = p.atom().ok_or("no matrix instruction")?;
        let places = atom.left_of_sums().ok_or("other lanes have the elements")?;
        let (decl, cols) = (p.fragment(to), p.fragment(from).cols / atom.n);
        let (sums, n) = (&self.sums[from.0 as usize], sums_of_lane(p, from));
        if sums.is_empty() {
            return Err(unset(from));
        }
        let (blocks, along) = (decl.rows / atom.block * (decl.cols / atom.depth), decl.cols / atom.depth);
        let mut registers = Vec::new();
        for lane in 0..self.lanes {
            for block in 0..blocks {
                let (i, d) = (block / along, block % along);
                let first = i * cols + (col + d * atom.depth) / atom.n;
                let element = |held: &Held| {
                    let with = held.lane(lane as u32, self.lanes as u32) as usize;
                    let at = with * n + ((first + held.beside) * atom.sum.elements() + held.element) as usize;
                    rounded(p.dtype, sums[at])
                };
                registers.extend(places.chunks(2).map(|two| pair(element(&two[0]), element(&two[1]))));
            }
        }
        self.registers[to.0 as usize] = registers;
        Ok(())
    }
}

impl Group<'_> {
    pub(super) fn convert(&mut self, to: Fragment, from: Fragment, col: &Index) -> Step {
        for w in 0..self.warps.len() {
            let col = self.position(col, self.warps[w].place) as u32;
            self.warps[w].convert(self.p, to, from, col)?;
        }
        Ok(())
    }

    pub(super) fn each(
        &mut self,
        of: Fragment,
        with: &[Fragment],
        (row, col): (&Index, &Index),
        map: &Scalar,
    ) -> Step {
        let atom = self.p.atom().ok_or("no matrix instruction")?;
        let decl = *self.p.fragment(of);
        let rows = atom.sum.rows();
        // Numbers of an instruction's block, and blocks beside each other.
        let (n, cols) = match decl.role {
            Role::Rows => (rows, 1),
            _ => (atom.sum.elements(), decl.cols / atom.n),
        };
        for w in 0..self.warps.len() {
            let at = self.warps[w].place;
            let first = (self.position(row, at), self.position(col, at));
            let of_lane = sums_of_lane(self.p, of);
            for number in 0..self.warps[w].sums[of.0 as usize].len() {
                let (lane, index) = (number / of_lane, (number % of_lane) as u32);
                let (block, element) = (index / n, index % n);
                let (own, place) = match decl.role {
                    Role::Rows => (element, (atom.sum.at(lane as u32, atom.sum.first_of_row(element)).0, 0)),
                    _ => (atom.sum.row_of(element), atom.sum.at(lane as u32, element)),
                };
                let (i, j) = (block / cols, block % cols);
                let place =
                    (first.0 + i64::from(i * atom.m + place.0), first.1 + i64::from(j * atom.n + place.1));
                let given: Step<Vec<f32>> = (with.iter())
                    .map(|&f| {
                        let at = lane * sums_of_lane(self.p, f) + (i * rows + own) as usize;
                        self.warps[w].sums[f.0 as usize].get(at).copied().ok_or_else(|| unset(f))
                    })
                    .collect();
                let x = self.warps[w].sums[of.0 as usize][number];
                let y = self.mapped(Some(map), (x, &given?), place, None)?;
                self.warps[w].sums[of.0 as usize][number] = y;
            }
            if self.warps[w].sums[of.0 as usize].is_empty() {
                return Err(unset(of));
            }
        }
        Ok(())
    }
}
