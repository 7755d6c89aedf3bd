//! Statements.

use std::collections::BTreeSet;
use std::fmt::Write;

use rlx_ir::{DType, Result};
use rlx_kernel::ir::{Inst, Stmt as KernelStmt};

use super::language::{Language, internal, size};
use super::numbers::{self, PROLOGUE};
use super::occupancy;
use super::stores::Store;
use crate::beside::Span;
use crate::ir::{
    Begin, Below, Coord, Copy, Counter, Fragment, Heads, Index, Program, Role, Size, Stage, Stmt, Tile,
    TileDecl, View, ViewDecl,
};
use crate::layout::CHUNK;
use crate::scalar::Scalar;

/// Writes the statements of a program.
pub struct Body<'a> {
    pub(super) p: &'a Program,
    pub(super) language: Language,
    out: &'a mut String,
    depth: usize,
    /// Operands and sums of matrix instructions that were set since the last fence, or since the list began.
    pub(super) set: BTreeSet<Fragment>,
    /// The sums of groups of multiplications that may be under way, of those that the list began; the last group is open.
    pub(super) under_way: Vec<BTreeSet<Fragment>>,
    /// What counts turns, in a list for tiles.
    pub(super) turn: Option<Counter>,
    /// Statements are those of the producer.
    pub(super) is_producer: bool,
}

/// A position in the text.
pub(super) fn index(at: &Index) -> String {
    let coord = |c: &Coord| match c {
        Coord::GroupRow => "group_row".to_string(),
        Coord::GroupCol => "group_col".to_string(),
        Coord::WarpRow => "warp_row".to_string(),
        Coord::WarpCol => "warp_col".to_string(),
        Coord::Counter(c) => format!("c{}", c.0),
        Coord::First(c) => format!("begin{}", c.0),
    };
    let mut terms: Vec<String> =
        at.terms.iter().map(|(c, factor)| format!("{factor} * {}", coord(c))).collect();
    if at.constant > 0 || terms.is_empty() {
        terms.push(at.constant.to_string());
    }
    terms.join(" + ")
}

/// What the parts before this one have of something that is divided is taken off.
fn before(extent: Size) -> String {
    match extent {
        Size::Part { each, .. } => format!(" - n0 * d{each}"),
        Size::Const(_) | Size::Uniform(_) => String::new(),
    }
}

/// Where loops with windows begin.
pub(super) fn declare_firsts(p: &Program, out: &mut String) {
    for (counter, Begin { window, below, extent, step }) in p.begins() {
        let row = match below.heads {
            1 => format!("{} * group_row", below.rows),
            n => format!("{} * group_row / {n}", below.rows),
        };
        // The row's own place; what its window begins at may be far below 0.
        let last = format!("{row} + {}{}", size(below.offset), before(extent));
        let (c, behind) = (counter.0, window - 1);
        let first = format!("{last} > {behind} ? ({last} - {behind}) / {step} : 0");
        let _ = writeln!(out, "  const int begin{c} = {first};");
    }
}

/// Row `r` and chunk `q` of the chunk number `n` of a tile that is stored in matrices.
fn stored_in_order(t: &TileDecl) -> String {
    let (matrix, of_row) = (t.matrix_chunks(), CHUNK / t.chunk());
    let (rows, across) = (CHUNK * t.chunks(), t.cols / CHUNK);
    match of_row {
        1 => format!("r = n / {rows} * {CHUNK} + n % {CHUNK}, q = n / {CHUNK} % {across}"),
        _ => format!(
            "r = n / {rows} * {CHUNK} + n % {matrix} / {of_row}, q = n / {matrix} % {across} * {of_row} + n % {of_row}"
        ),
    }
}

/// The offset of a chunk in a stage, in elements, for rows `r` and chunks `q`.
pub(super) fn chunk_offset(t: &TileDecl) -> String {
    match t.swizzle.bits {
        0 => format!("(r * {} + q) * {CHUNK}", t.chunks()),
        bits => {
            let mask = (1 << bits) - 1;
            let of_row = match t.swizzle.shift {
                0 => format!("(r & {mask})"),
                shift => format!("(r >> {shift} & {mask})"),
            };
            format!("(r * {} + (q ^ {of_row})) * {CHUNK}", t.chunks())
        }
    }
}

impl<'a> Body<'a> {
    pub fn new(p: &'a Program, out: &'a mut String) -> Self {
        Body {
            p,
            language: Language(p.arch.vendor()),
            out,
            depth: 1,
            set: BTreeSet::new(),
            under_way: vec![BTreeSet::new()],
            turn: None,
            is_producer: false,
        }
    }

    pub fn write(mut self) -> Result<()> {
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

    /// The text of statements, apart from what is written.
    pub(super) fn apart(&mut self, stmts: &[Stmt]) -> Result<String> {
        let written = self.out.len();
        self.block(stmts)?;
        Ok(self.out.split_off(written))
    }

    /// Writes what was apart.
    pub(super) fn text(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// A loop of known size.
    pub(super) fn unrolled(&mut self, name: &str, n: u32) {
        self.line("#pragma unroll");
        self.open(&format!("for (int {name} = 0; {name} < {n}; {name}++) {{"));
    }

    /// Registers of fetches, for the whole kernel.
    fn staging(&mut self, stmts: &[Stmt]) {
        for s in stmts {
            match s {
                Stmt::Fetch(n, c) => {
                    let text = format!("u32 x{n}[{}][{}];", self.rounds(c.to), self.words(c));
                    self.line(&text);
                    let (chunk, rounds) = (self.p.tile(c.to).chunk(), self.rounds(c.to));
                    self.declare_beside(&c.with, chunk, rounds, &format!("x{n}_"));
                }
                Stmt::For { body, .. } => self.staging(body),
                _ => {}
            }
        }
    }

    /// How often all lanes copy a chunk until a tile is copied.
    pub(super) fn rounds(&self, tile: Tile) -> u32 {
        let t = self.p.tile(tile);
        (t.rows * t.chunks()).div_ceil(self.p.workgroup())
    }

    /// Words of a chunk's elements as a copy's view has them.
    fn words(&self, c: &Copy) -> u32 {
        numbers::words(Span::One, self.p.tile(c.to).chunk(), self.p.view_dtype(c.from))
    }

    pub(super) fn stage(&self, tile: Tile, stage: Stage) -> String {
        let stages = self.p.tile(tile).stages;
        match stage.counter {
            None => format!("{}", stage.ahead % stages),
            Some(_) if stages == 1 => "0".to_string(),
            Some(c) if stage.ahead == 0 => format!("c{} % {stages}", c.0),
            Some(c) => format!("(c{} + {}) % {stages}", c.0, stage.ahead),
        }
    }

    pub(super) fn block(&mut self, stmts: &[Stmt]) -> Result<()> {
        let outer = std::mem::take(&mut self.set);
        let outer_groups = std::mem::replace(&mut self.under_way, vec![BTreeSet::new()]);
        for s in stmts {
            self.stmt(s)?;
            let set = match s {
                Stmt::Zero(f) | Stmt::Each { of: f, .. } | Stmt::Exp2(f) | Stmt::Convert { to: f, .. } => f,
                _ => continue,
            };
            self.set.extend((self.p.fragment(*set).role != Role::Rows).then_some(*set));
        }
        (self.set, self.under_way) = (outer, outer_groups);
        Ok(())
    }

    fn stmt(&mut self, s: &Stmt) -> Result<()> {
        match s {
            Stmt::Zero(f) => self.zero(*f),
            Stmt::Fill(f, x) => self.fill(*f, *x),
            Stmt::Each { of, with, row, col, map } => self.each(*of, with, (row, col), map)?,
            Stmt::Exp2(f) => self.exp2(*f),
            Stmt::Reduce { to, from, op } => self.reduce(*to, *from, *op),
            Stmt::Convert { to, from, col } => self.convert(*to, *from, col),
            Stmt::Copy(c) => {
                self.open("{");
                self.line(&format!("u32 x[{}][{}];", self.rounds(c.to), self.words(c)));
                self.declare_beside(&c.with, self.p.tile(c.to).chunk(), self.rounds(c.to), "x_");
                self.fetch(c, "x");
                self.put(c, "x")?;
                self.close();
            }
            Stmt::Fetch(n, c) => self.fetch(c, &format!("x{n}")),
            Stmt::Put(n, c) => self.put(c, &format!("x{n}"))?,
            Stmt::CopyAsync(c) => self.copy_async(c),
            Stmt::Commit => self.line("copy_commit();"),
            Stmt::Wait(n) => self.line(&format!("copy_wait<{n}>();")),
            Stmt::Barrier => self.line(self.language.barrier()),
            Stmt::Load { to, from, stage, row, col, depth_rows, of_sums } => {
                self.load(*to, (*from, *stage), (row, col), (*depth_rows, *of_sums));
            }
            Stmt::Mma { sum, left, right } => self.mma(*sum, *left, *right),
            Stmt::Prefetch { from, row, col, rows, cols } => {
                self.prefetch(*from, (row, col), (*rows, *cols));
            }
            Stmt::Store { to, from, row, col, with, map } => {
                self.store(Store { to: *to, from: *from, with, map: map.as_ref() }, (row, col))?;
            }
            Stmt::For { counter, extent, below, step, body } => {
                let (c, n) = (counter.0, self.end_of_loop(*counter, *extent, *below));
                self.begin_ring(*counter, (*extent, *step));
                self.line(&match *extent {
                    Size::Const(n) => occupancy::unrolled(self.p, n.div_ceil(*step)),
                    Size::Uniform(_) | Size::Part { .. } => "#pragma unroll 1".to_owned(),
                });
                // Written so that sizes near the end of an int do not overflow.
                let window = below.and_then(|below| below.window);
                let first = window.map_or_else(String::new, |_| format!(" - begin{c}"));
                self.open(&format!(
                    "for (int c{c} = 0; c{c} < {n} / {step} + ({n} % {step} > 0){first}; c{c}++) {{"
                ));
                self.declare_ring(*counter);
                self.block(body)?;
                self.close();
            }
            Stmt::Tiles { turn, teams, body } => self.tiles(*turn, *teams, body)?,
            Stmt::Staggered(s) => self.staggered(s)?,
            Stmt::Roles { producer, multiplier, consumers } => {
                self.roles([producer, multiplier, consumers])?
            }
            Stmt::Group(g) => self.group(g),
            Stmt::Pipelined { .. } => {
                return Err(internal("a pipelined loop that was not expanded".to_string()));
            }
        }
        Ok(())
    }

    /// How far a loop goes.
    pub(super) fn end_of_loop(&mut self, counter: Counter, extent: Size, below: Option<Below>) -> String {
        let (c, n) = (counter.0, size(extent));
        let Some(b) = below else { return n };
        let rows = format!("{} * (group_row + 1)", b.rows);
        let (offset, before) = (size(b.offset), before(extent));
        let bound = match b.heads {
            1 => format!("{rows} + {offset}{before}"),
            n => format!("({rows} + {}) / {n} + {offset}{before}", n - 1),
        };
        self.line(&format!("const int e{c} = {n} < {bound} ? {n} : {bound};"));
        format!("e{c}")
    }

    /// Opens the loop in which each lane copies chunks: `r`, `q` are the tile's row and chunk, `row`, `col` (where asked for) the view's row and
    /// first column.
    fn each_chunk(&mut self, c: &Copy, in_view: bool) {
        let t = *self.p.tile(c.to);
        let (rounds, lanes, chunks) = (self.rounds(c.to), self.p.workgroup(), t.rows * t.chunks());
        self.unrolled("i", rounds);
        let all = chunks % lanes == 0;
        let (lane, q) = (self.language.lane(), t.chunks());
        self.line(&match t.matrices {
            true => format!("const int n = {lane} + i * {lanes}, {};", stored_in_order(&t)),
            false => format!("const int n = {lane} + i * {lanes}, r = n / {q}, q = n % {q};"),
        });
        if in_view {
            self.line(&format!(
                "const int row = {} + r, col = {} + q * {};",
                index(&c.row),
                index(&c.col),
                t.chunk()
            ));
            self.row_of_window(c.from);
            self.page_of_row(c.from);
        }
        self.open(&if all { "{".to_string() } else { format!("if (n < {chunks}) {{") });
    }

    fn zeros(&self, ty: &str, n: usize) -> String {
        self.language.vector(ty, &vec!["0".to_string(); n])
    }

    fn close_chunk(&mut self) {
        self.close();
        self.close();
    }

    /// The address of the element `at` columns on, and whether it is in the view.
    pub(super) fn address(&self, view: View, at: u32) -> (String, String) {
        let v: &ViewDecl = self.p.view(view);
        let col = if at == 0 { "col".to_string() } else { format!("(col + {at})") };
        let found = if v.lookup.is_some() { " && found" } else { "" };
        let inside = format!("row < {} && {col} < {}{found}", size(v.rows), size(v.cols));
        let along = match v.col_stride {
            Size::Const(1) => col,
            stride => format!("(i64){col} * {}", size(stride)),
        };
        let down = self.down(view);
        let address = match self.p.view_dtype(view).is_packed() {
            // That of a byte, in which two elements are.
            true => format!("g{} + ({down} + {along}) / 2", view.0),
            false => format!("g{} + {down} + {along}", view.0),
        };
        (address, inside)
    }

    /// Elements from a view's first row to `row`.
    pub(super) fn down(&self, view: View) -> String {
        let v: &ViewDecl = self.p.view(view);
        if let Some(lookup) = &v.lookup {
            return format!("page * {} + (i64)line * {}", size(lookup.stride), size(v.row_stride));
        }
        match v.heads {
            None => format!("(i64)row * {}", size(v.row_stride)),
            Some(Heads { count, stride }) => format!(
                "(i64)((u32)row / {count}u) * {} + (i64)((u32)row % {count}u) * {}",
                size(v.row_stride),
                size(stride)
            ),
        }
    }

    /// Reads a copy's elements, and what is beside them, as they are into `name`.
    fn fetch(&mut self, c: &Copy, name: &str) {
        self.each_chunk(c, true);
        self.read_chunk(c.from, self.p.tile(c.to).chunk(), &format!("{name}[i]"));
        self.fetch_beside(&c.with, self.p.tile(c.to).chunk(), &format!("{name}_{{}}[i]"));
        self.close_chunk();
    }

    /// Reads the elements of a view for a chunk at `row`, `col` as they are into words.
    pub(super) fn read_chunk(&mut self, view: View, chunk: u32, x: &str) {
        let (bits, vector) = (self.p.view_dtype(view).bits() as u32, self.p.view(view).vector.min(chunk));
        for part in 0..chunk / vector {
            let (address, inside) = self.place(view, part * vector);
            match vector * bits / 8 {
                16 => {
                    let w = part * 4;
                    let (read, zeros) = (self.language.read("uint4", &address), self.zeros("uint4", 4));
                    self.line(&format!("const uint4 w{part} = {inside} ? {read} : {zeros};"));
                    self.line(&format!(
                        "{x}[{w}] = w{part}.x; {x}[{}] = w{part}.y; {x}[{}] = w{part}.z; {x}[{}] = w{part}.w;",
                        w + 1,
                        w + 2,
                        w + 3
                    ));
                }
                8 => {
                    let w = part * 2;
                    let (read, zeros) = (self.language.read("uint2", &address), self.zeros("uint2", 2));
                    self.line(&format!("const uint2 w{part} = {inside} ? {read} : {zeros};"));
                    self.line(&format!("{x}[{w}] = w{part}.x; {x}[{}] = w{part}.y;", w + 1));
                }
                4 => {
                    let read = self.language.read_word(&address);
                    self.line(&format!("{x}[{part}] = {inside} ? {read} : 0u;"));
                }
                _ => {
                    let (word, high) = (part / 2, part % 2 == 1);
                    let bits = format!("({inside} ? (u32)*({address}) : 0u)");
                    self.line(&match high {
                        false => format!("{x}[{word}] = {bits};"),
                        true => format!("{x}[{word}] |= {bits} << 16;"),
                    });
                }
            }
        }
    }

    /// Writes what was read, mapped and rounded, into a stage of a tile.
    fn put(&mut self, c: &Copy, name: &str) -> Result<()> {
        let (t, from) = (*self.p.tile(c.to), self.p.view_dtype(c.from));
        let converted = c.map.is_some() || from != t.dtype;
        self.each_chunk(c, converted);
        let mut words = format!("{name}[i]");
        if converted {
            let zeros = vec!["0.0f"; t.chunk() as usize].join(", ");
            self.line(&format!("float y[{}] = {{{zeros}}};", t.chunk()));
            // What is read at once is in the view as a whole or not at all.
            let whole = self.p.view(c.from).vector >= t.chunk();
            let (_, inside) = self.address(c.from, 0);
            if whole {
                self.open(&format!("if ({inside}) {{"));
            }
            self.unrolled("e", t.chunk());
            let x = numbers::number(self.language, from, &format!("{name}[i]"), "e");
            if !whole {
                self.open(&format!("if ({}) {{", inside.replace("col", "col + e")));
            }
            self.given_beside(&c.with, &format!("{name}_{{}}[i]"), "e");
            if c.map.is_some() {
                self.line(&format!("// {}{}", PROLOGUE, c.to.0));
            }
            self.line(&format!("float m0 = {x};"));
            self.map(c.map.as_ref(), "row", "col + e")?;
            self.line("y[e] = m0;");
            self.close();
            self.close();
            let word = |w: u32| match t.dtype {
                DType::F32 => self.language.bits_of_float(&format!("y[{w}]")),
                dtype => format!("{}(y[{}], y[{}])", packed(dtype), 2 * w, 2 * w + 1),
            };
            let rounded: Vec<String> = (0..4).map(word).collect();
            self.line(&format!("const u32 z[4] = {{{}}};", rounded.join(", ")));
            words = "z".to_string();
        }
        let stage = self.stage(c.to, c.stage);
        let words: Vec<String> = (0..4).map(|w| format!("{words}[{w}]")).collect();
        let words = self.language.vector("uint4", &words);
        self.line(&match t.matrices {
            // Lanes copy chunks in the order in which they are stored.
            true => format!("t{}[{stage} * {} + n] = {words};", c.to.0, t.rows * t.chunks()),
            false => {
                let at = format!("t{} + {stage} * {} + {}", c.to.0, t.rows * t.cols, chunk_offset(&t));
                format!("*(uint4*)({at}) = {words};")
            }
        });
        self.close_chunk();
        Ok(())
    }

    fn copy_async(&mut self, c: &Copy) {
        let (t, vector) = (*self.p.tile(c.to), self.p.view(c.from).vector);
        let stage = self.stage(c.to, c.stage);
        self.each_chunk(c, true);
        let to =
            format!("u16* const to = t{} + {stage} * {} + {};", c.to.0, t.rows * t.cols, chunk_offset(&t));
        self.line(&to);
        for part in 0..CHUNK / vector {
            let (address, inside) = self.place(c.from, part * vector);
            let bytes = vector * 2;
            // What is not read has an address within the buffer, too.
            self.open("{");
            self.line(&format!("const bool inside = {inside};"));
            self.line(&format!(
                "copy_async_{bytes}(to + {}, inside ? {address} : g{}, inside);",
                part * vector,
                c.from.0
            ));
            self.close();
        }
        self.close_chunk();
    }

    /// A scalar body on `m0`.
    pub(super) fn map(&mut self, map: Option<&Scalar>, row: &str, col: &str) -> Result<()> {
        let Some(scalar) = map else { return Ok(()) };
        self.open("{");
        for (var, value) in [(1, "batch"), (2, row), (3, col)] {
            if uses(scalar, var) {
                self.line(&format!("int m{var} = {value};"));
            }
        }
        let body = self.language.body(scalar.kernel(), scalar.given())?;
        body.lines().for_each(|line| self.line(line));
        self.close();
        Ok(())
    }
}

/// Whether a body mentions a variable.
pub(super) fn uses(scalar: &Scalar, var: u32) -> bool {
    let mut found = false;
    scalar.kernel().for_each_stmt(&mut |s| {
        found |= match s {
            KernelStmt::Let(_, Inst::Get(v)) | KernelStmt::Set(v, _) => v.0 == var,
            _ => false,
        };
    });
    found
}

/// The function that rounds an `f32` to a type of 16 bits.
pub(super) fn narrowed(dtype: DType) -> &'static str {
    if dtype == DType::F16 { "to_half" } else { "to_brain" }
}

/// The function that rounds a pair of them.
pub(super) fn packed(dtype: DType) -> &'static str {
    if dtype == DType::F16 { "pack_half" } else { "pack_brain" }
}
