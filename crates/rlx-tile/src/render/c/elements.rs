//! Single elements of sums and rows: maps, exponentials, reductions of rows, and sums as operands.

use rlx_ir::Result;

use super::body::{Body, index, packed, uses};
use super::fragments::lane_place;
use crate::atom::Held;
use crate::ir::{Fragment, Index, Reduction, Role};
use crate::scalar::Scalar;

impl Body<'_> {
    /// Numbers of a fragment of rows that a lane has.
    fn rows_of_lane(&self, f: Fragment) -> u32 {
        let of = |atom: &crate::atom::Atom| self.p.fragment(f).rows / atom.m * atom.sum.rows();
        self.p.atom().map_or(0, of)
    }

    pub(super) fn fill(&mut self, f: Fragment, x: f32) {
        self.unrolled("i", self.rows_of_lane(f));
        let bits = self.language.float_of_bits(&format!("0x{:08x}u", x.to_bits()));
        self.line(&format!("f{}[i] = {bits};", f.0));
        self.close();
    }

    pub(super) fn exp2(&mut self, f: Fragment) {
        let Some(atom) = self.p.atom() else { return };
        let d = *self.p.fragment(f);
        if d.role == Role::Rows {
            self.unrolled("i", self.rows_of_lane(f));
            self.line(&format!("f{0}[i] = power_of_2(f{0}[i]);", f.0));
        } else {
            self.unrolled("i", d.rows * d.cols / (atom.m * atom.n));
            for e in 0..atom.sum.elements() {
                self.line(&format!("f{0}[i][{e}] = power_of_2(f{0}[i][{e}]);", f.0));
            }
        }
        self.close();
    }

    pub(super) fn each(
        &mut self,
        of: Fragment,
        with: &[Fragment],
        at: (&Index, &Index),
        map: &Scalar,
    ) -> Result<()> {
        let Some(atom) = self.p.atom() else { return Ok(()) };
        let d = *self.p.fragment(of);
        let rows = atom.sum.rows();
        self.open("{");
        if uses(map, 2) {
            self.line(&format!("const int row0 = {} + {};", index(at.0), lane_place(&atom.sum, false)));
        }
        let column = uses(map, 3);
        match d.role {
            Role::Rows => {
                if column {
                    self.line(&format!("const int col0 = {};", index(at.1)));
                }
                self.unrolled("i", d.rows / atom.m);
                for row in 0..rows {
                    let (down, _) = atom.sum.at(0, atom.sum.first_of_row(row));
                    let element = format!("f{}[i * {rows} + {row}]", of.0);
                    self.each_element(&element, (row, down), ("col0", with), map)?;
                }
            }
            _ => {
                let cols = d.cols / atom.n;
                if column {
                    let place = lane_place(&atom.sum, true);
                    self.line(&format!("const int col0 = {} + {place};", index(at.1)));
                }
                self.unrolled("i", d.rows / atom.m);
                self.unrolled("j", cols);
                for e in 0..atom.sum.elements() {
                    let (down, right) = atom.sum.at(0, e);
                    let element = format!("f{}[i * {cols} + j][{e}]", of.0);
                    let col = format!("col0 + j * {} + {right}", atom.n);
                    self.each_element(&element, (atom.sum.row_of(e), down), (&col, with), map)?;
                }
                self.close();
            }
        }
        self.close();
        self.close();
        Ok(())
    }

    /// Maps an element that is `down` rows below the first one of its lane and instruction, in the lane's row number `row` of those.
    fn each_element(
        &mut self,
        element: &str,
        (row, down): (u32, u32),
        (col, with): (&str, &[Fragment]),
        map: &Scalar,
    ) -> Result<()> {
        let Some(atom) = self.p.atom() else { return Ok(()) };
        self.open("{");
        self.line(&format!("float m0 = {element};"));
        for (i, f) in with.iter().enumerate() {
            self.line(&format!("float m{} = f{}[i * {} + {row}];", 4 + i, f.0, atom.sum.rows()));
        }
        self.map(Some(map), &format!("row0 + i * {} + {down}", atom.m), col)?;
        self.line(&format!("{element} = m0;"));
        self.close();
        Ok(())
    }

    pub(super) fn reduce(&mut self, to: Fragment, from: Fragment, op: Reduction) {
        let Some(atom) = self.p.atom() else { return };
        let d = *self.p.fragment(from);
        let (rows, cols) = (atom.sum.rows(), d.cols / atom.n);
        let of = |x: &str, y: &str| match op {
            Reduction::Max => format!("fmaxf({x}, {y})"),
            Reduction::Sum => format!("{x} + {y}"),
        };
        self.unrolled("i", d.rows / atom.m);
        for row in 0..rows {
            let elements: Vec<u32> =
                (0..atom.sum.elements()).filter(|&e| atom.sum.row_of(e) == row).collect();
            let element = |j: &str, e: u32| format!("f{}[i * {cols} + {j}][{e}]", from.0);
            self.open("{");
            self.line(&format!("float x = {};", element("0", elements[0])));
            for &e in &elements[1..] {
                self.line(&format!("x = {};", of("x", &element("0", e))));
            }
            self.line("#pragma unroll");
            self.open(&format!("for (int j = 1; j < {cols}; j++) {{"));
            for &e in &elements {
                self.line(&format!("x = {};", of("x", &element("j", e))));
            }
            self.close();
            for mask in atom.sum.across() {
                self.line(&format!("x = {};", of("x", &format!("of_lane(x, lane ^ {mask})"))));
            }
            let to = format!("f{}[i * {rows} + {row}]", to.0);
            self.line(&format!("{to} = {};", of(&to, "x")));
            self.close();
        }
        self.close();
    }

    pub(super) fn convert(&mut self, to: Fragment, from: Fragment, col: &Index) {
        let Some(atom) = self.p.atom() else { return };
        let Some(places) = atom.left_of_sums() else { return };
        let (d, cols) = (*self.p.fragment(to), self.p.fragment(from).cols / atom.n);
        let along = d.cols / atom.depth;
        self.unrolled("i", d.rows / atom.block);
        self.unrolled("j", along);
        self.line(&format!("const int s = i * {cols} + ({} + j * {}) / {};", index(col), atom.depth, atom.n));
        for (register, two) in places.chunks(2).enumerate() {
            let element = |held: &Held| format!("f{}[s + {}][{}]", from.0, held.beside, held.element);
            let (low, high) = (element(&two[0]), element(&two[1]));
            let own = format!("{}({low}, {high})", packed(self.p.dtype));
            let word = match two[0].half {
                None => own,
                Some(half) => format!("of_half({own}, lane, {half})"),
            };
            self.line(&format!("f{}[i * {along} + j][{register}] = {word};", to.0));
        }
        self.close();
        self.close();
    }
}
