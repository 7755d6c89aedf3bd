//! Statements.

use std::fmt::Write;

use rlx_ir::Result;

use super::super::c::size;
use super::{lacks, matrix, places, together};
use crate::beside::{Beside, Span};
use crate::ir::{Coord, Copy, Fragment, Index, Program, Role, Size, Stage, Stmt, Tile};
use crate::layout::CHUNK;
use crate::scalar::Scalar;

/// Writes the statements of a program.
pub(super) struct Body<'a> {
    pub(super) p: &'a Program,
    bodies: &'a [&'a Scalar],
    /// Of each buffer, how many elements are one of its array.
    pub(super) together: Vec<u32>,
    out: &'a mut String,
    depth: usize,
}

/// Whose position it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// Of the subgroup that loads and multiplies matrices.
    Subgroup,
    /// Of the invocations that store what a warp has left in workgroup memory.
    Invocations,
}

/// A position in the text.
pub(super) fn index(at: &Index, of: Of) -> String {
    let coord = |c: &Coord| match (c, of) {
        (Coord::GroupRow, _) => "group_row".to_owned(),
        (Coord::GroupCol, _) => "group_col".to_owned(),
        (Coord::WarpRow, Of::Subgroup) => "warp_row".to_owned(),
        (Coord::WarpCol, Of::Subgroup) => "warp_col".to_owned(),
        (Coord::WarpRow, Of::Invocations) => "own_row".to_owned(),
        (Coord::WarpCol, Of::Invocations) => "own_col".to_owned(),
        (Coord::Counter(c), _) => format!("c{}", c.0),
        (Coord::First(c), _) => format!("begin{}", c.0),
    };
    let terms = at.terms.iter().map(|(c, factor)| format!("{factor}i * {}", coord(c)));
    let mut terms: Vec<String> = terms.collect();
    if at.constant > 0 || terms.is_empty() {
        terms.push(format!("{}i", at.constant));
    }
    format!("({})", terms.join(" + "))
}

impl<'a> Body<'a> {
    pub(super) fn new(p: &'a Program, bodies: &'a [&'a Scalar], out: &'a mut String) -> Self {
        let together = (0..p.buffers.len()).map(|buffer| together(p, bodies, buffer)).collect();
        Body { p, bodies, together, out, depth: 1 }
    }

    pub(super) fn write(mut self) -> Result<()> {
        let p = self.p;
        self.staging(&p.body);
        self.block(&p.body)
    }

    pub(super) fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{:1$}{text}", "", self.depth * 2);
    }

    pub(super) fn open(&mut self, text: &str) {
        self.line(text);
        self.depth += 1;
    }

    pub(super) fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    /// Registers of fetches, for the whole program.
    fn staging(&mut self, stmts: &[Stmt]) {
        for s in stmts {
            match s {
                Stmt::Fetch(n, c) => self.declare_registers(c, &format!("x{n}")),
                Stmt::For { body, .. } => self.staging(body),
                _ => {}
            }
        }
    }

    fn declare_registers(&mut self, c: &Copy, name: &str) {
        for i in 0..self.rounds(c.to) {
            self.declare_chunk(c.from, &format!("{name}_{i}"));
            self.declare_beside(&c.with, &format!("{name}_{i}"));
        }
    }

    /// Declares the registers for what is read beside a chunk.
    pub(super) fn declare_beside(&mut self, with: &[Beside], name: &str) {
        for (n, b) in with.iter().enumerate() {
            match b.span {
                Span::One => self.declare_chunk(b.view, &format!("{name}_{n}")),
                _ => self.line(&format!("var {name}_{n} = 0.0f;")),
            }
        }
    }

    /// How often all lanes copy a chunk until a tile is copied.
    fn rounds(&self, tile: Tile) -> u32 {
        let t = self.p.tile(tile);
        (t.rows * t.chunks()).div_ceil(self.p.workgroup())
    }

    fn stage(&self, tile: Tile, stage: Stage) -> String {
        let stages = self.p.tile(tile).stages;
        match stage.counter {
            None => format!("{}i", stage.ahead % stages),
            Some(_) if stages == 1 => "0i".to_owned(),
            Some(c) => format!("i32((u32(c{}) + {}u) % {stages}u)", c.0, stage.ahead),
        }
    }

    fn block(&mut self, stmts: &[Stmt]) -> Result<()> {
        stmts.iter().try_for_each(|s| self.stmt(s))
    }

    fn stmt(&mut self, s: &Stmt) -> Result<()> {
        match s {
            Stmt::Zero(f) => self.zero(*f),
            Stmt::Copy(c) => {
                self.open("{");
                self.declare_registers(c, "x");
                self.fetch(c, "x");
                self.put(c, "x")?;
                self.close();
            }
            Stmt::Fetch(n, c) => self.fetch(c, &format!("x{n}")),
            Stmt::Put(n, c) => self.put(c, &format!("x{n}"))?,
            Stmt::Barrier => self.line("workgroupBarrier();"),
            Stmt::Load { to, from, stage, row, col, depth_rows, of_sums: false } => {
                self.load(*to, (*from, *stage), (row, col), *depth_rows);
            }
            Stmt::Mma { sum, left, right } => self.mma(*sum, *left, *right),
            Stmt::Store { to, from, row, col, with, map } => {
                self.store((*to, *from), with, map.as_ref(), (row, col))?;
            }
            Stmt::For { counter, extent: Size::Const(n), below: None, step, body } => {
                // The names of matrices are those of its block.
                for i in 0..n.div_ceil(*step) {
                    self.open("{");
                    self.line(&format!("let c{} = {i}i;", counter.0));
                    self.block(body)?;
                    self.close();
                }
            }
            Stmt::For { counter, extent, below: None, step, body } => {
                let (c, n) = (counter.0, size(*extent));
                // Written so that sizes near the end of an i32 do not overflow.
                self.line(&format!("let e{c} = {n} / {step}i + i32({n} % {step}i > 0i);"));
                self.open(&format!("for (var c{c} = 0i; c{c} < e{c}; c{c} += 1i) {{"));
                self.block(body)?;
                self.close();
            }
            other => return Err(lacks(self.p, format!("statement such as {other:?}"))),
        }
        Ok(())
    }

    /// Opens the block in which each lane copies its chunk number `i`: `r`, `q` are the tile's row and chunk, `row`, `col` the view's row and first column.
    fn open_chunk(&mut self, c: &Copy, i: u32) {
        let t = *self.p.tile(c.to);
        let (lanes, chunks) = (self.p.workgroup(), t.rows * t.chunks());
        let (bits, mask) = (t.chunks().ilog2(), t.chunks() - 1);
        self.open("{");
        self.line(&format!("let n = thread + {}i;", i * lanes));
        match t.rows_apart() {
            1 => self.line(&format!("let r = n >> {bits}u;")),
            apart => {
                // Bits of the row change places: those within 8 rows.
                let (low, high) = (apart.ilog2(), CHUNK.ilog2() - apart.ilog2());
                self.line(&format!("let l = n >> {bits}u;"));
                self.line(&format!("let r = (l & ~7i) | ((l << {low}u) & 7i) | ((l & 7i) >> {high}u);"));
            }
        }
        self.line(&format!("let q = n & {mask}i;"));
        self.line(&format!("let row = {} + r;", index(&c.row, Of::Subgroup)));
        self.line(&format!("let col = {} + q * {CHUNK}i;", index(&c.col, Of::Subgroup)));
        self.open(&if (i + 1) * lanes <= chunks { "{".to_owned() } else { format!("if (n < {chunks}i) {{") });
    }

    fn close_chunk(&mut self) {
        self.close();
        self.close();
    }

    /// Reads a copy's elements, and what is beside them, as they are.
    fn fetch(&mut self, c: &Copy, name: &str) {
        for i in 0..self.rounds(c.to) {
            self.open_chunk(c, i);
            self.row_of_window(c.from);
            self.read_chunk(c.from, &format!("{name}_{i}"));
            self.read_beside(&c.with, &format!("{name}_{i}"));
            self.close_chunk();
        }
    }

    /// Writes what was read, mapped and rounded, into a stage of a tile.
    fn put(&mut self, c: &Copy, name: &str) -> Result<()> {
        let t = *self.p.tile(c.to);
        for i in 0..self.rounds(c.to) {
            let x = format!("{name}_{i}");
            self.open_chunk(c, i);
            let at =
                format!("(({} * {}i + r) * {}i + q) * 2i", self.stage(c.to, c.stage), t.rows, t.stride());
            self.line(&format!("let to = {at};"));
            let (mut low, mut high) = (format!("{x}l"), format!("{x}h"));
            if let Some(map) = &c.map {
                (low, high) = ("yl".to_owned(), "yh".to_owned());
                self.mapped(c, map, &x)?;
            } else if self.p.view_dtype(c.from) != t.dtype {
                [&mut low, &mut high].into_iter().for_each(|half| *half = rounded(half));
            }
            self.line(&format!("t{}[to] = {low};", c.to.0));
            self.line(&format!("t{}[to + 1i] = {high};", c.to.0));
            self.close_chunk();
        }
        Ok(())
    }

    /// Computes `yl` and `yh` of a chunk by its body; what is beyond the view is 0.
    fn mapped(&mut self, c: &Copy, map: &Scalar, x: &str) -> Result<()> {
        self.line("var yl = vec4<f16>();");
        self.line("var yh = vec4<f16>();");
        self.row_of_window(c.from);
        let together = self.p.view(c.from).vector.min(CHUNK);
        for part in 0..CHUNK / together {
            let (_, inside) = self.place(c.from, part * together);
            self.open(&format!("if ({inside}) {{"));
            for e in part * together..(part + 1) * together {
                let value = self.call(map, (&format!("f32({})", component(x, e)), e), (&c.with, x))?;
                self.line(&format!("{} = f16(round_f16({value}));", component("y", e)));
            }
            self.close();
        }
        Ok(())
    }

    /// A body's result for element `e` of what is at `row`, `col`.
    pub(super) fn call(
        &self,
        map: &Scalar,
        (x, e): (&str, u32),
        (with, name): (&[Beside], &str),
    ) -> Result<String> {
        let number = self.bodies.iter().position(|of| *of == map);
        let number = number.ok_or_else(|| lacks(self.p, "body that is not the program's"))?;
        let mut text = format!("body{number}({x}, batch, row, col + {e}i");
        for (n, b) in with.iter().enumerate() {
            let _ = match b.span {
                Span::One => write!(text, ", f32({})", component(&format!("{name}_{n}"), e)),
                _ => write!(text, ", {name}_{n}"),
            };
        }
        text.push(')');
        Ok(text)
    }

    fn zero(&mut self, f: Fragment) {
        let d = *self.p.fragment(f);
        for (row, col) in places(self.matrices(d.rows, d.cols)) {
            self.line(&format!("{} = coop_mat16x16<f32, C>();", matrix(f, row, col)));
        }
    }

    /// Rows and columns of matrices.
    pub(super) fn matrices(&self, rows: u32, cols: u32) -> (u32, u32) {
        self.p.atom().map_or((0, 0), |atom| (rows / atom.m, cols / atom.n))
    }

    /// Loads an operand matrix by matrix, in columns where the tile's rows are not the operand's.
    fn load(&mut self, to: Fragment, (tile, stage): (Tile, Stage), at: (&Index, &Index), depth_rows: bool) {
        let (d, t) = (*self.p.fragment(to), *self.p.tile(tile));
        let by_rows = (d.role == Role::Right) == depth_rows;
        let (function, role) =
            (if by_rows { "coopLoadT" } else { "coopLoad" }, if d.role == Role::Left { "A" } else { "B" });
        let (row, col) = (index(at.0, Of::Subgroup), index(at.1, Of::Subgroup));
        let (stage, halves) = (self.stage(tile, stage), 2 * t.stride());
        for (i, j) in places(self.matrices(d.rows, d.cols)) {
            let (down, right) = if by_rows { (16 * i, 16 * j) } else { (16 * j, 16 * i) };
            self.line(&format!(
                "let {} = {function}<coop_mat16x16<f16, {role}>>(&t{}[({stage} * {}i + {row} + {down}i) * {halves}i + ({col} + {right}i) / 4i], {halves}u);",
                matrix(to, i, j),
                tile.0,
                t.rows,
            ));
        }
    }

    fn mma(&mut self, sum: Fragment, left: Fragment, right: Fragment) {
        let (s, l) = (*self.p.fragment(sum), *self.p.fragment(left));
        let (_, depth) = self.matrices(l.rows, l.cols);
        for d in 0..depth {
            for (i, j) in places(self.matrices(s.rows, s.cols)) {
                let c = matrix(sum, i, j);
                let (a, b) = (matrix(left, i, d), matrix(right, d, j));
                self.line(&format!("{c} = coopMultiplyAdd({a}, {b}, {c});"));
            }
        }
    }
}

/// What the elements of a vector are called.
pub(super) const COMPONENTS: [&str; 4] = ["x", "y", "z", "w"];

/// What the name of the half of a chunk with element `e` ends in.
pub(super) fn half(e: u32) -> &'static str {
    if e < 4 { "l" } else { "h" }
}

/// Element `e` of the two halves of a chunk.
pub(super) fn component(x: &str, e: u32) -> String {
    format!("{x}{}.{}", half(e), COMPONENTS[(e % 4) as usize])
}

/// Half a chunk of f32, rounded.
fn rounded(half: &str) -> String {
    let of = COMPONENTS.map(|e| format!("f16(round_f16({half}.{e}))"));
    format!("vec4<f16>({})", of.join(", "))
}
