//! The text form of programs, and the hash made from it.
//!
//! ```text
//! program matmul for sm_80 bf16 warps 2x2
//!   b0 a: bf16 read
//!   u0 m
//!   grid [u0, u1] by 128x128 batch [] bands 8
//!   g0 b0 base 0 [u0, u2] strides [u3, 1] batch [] vector 8
//!   t0 bf16[128, 32] stages 3 swizzle 2 >> 1
//!   f0 sum[64, 64]
//! {
//!   zero f0
//!   pipelined c0 in u2 step 32 stages 3 {
//!     copy t0[c0] = g0[128*group.row, 32*c0]
//!   } then {
//!     load f1 = t0[c0][64*warp.row, 0]
//!     …
//! ```

use std::collections::BTreeSet;
use std::fmt::{self, Display, Write};

use rlx_kernel::ir::Access;

use crate::beside::{Beside, Span};
use crate::group::{Decls, ROW};
use crate::ir::{Below, Coord, Copy, Index, Program, Reduction, Role, Size, Stage, Stmt};
use crate::lookup::Lookup;
use crate::scalar::Scalar;
use crate::window::{Axis, Slide, Window};

impl Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Const(n) => write!(f, "{n}"),
            Size::Uniform(i) => write!(f, "u{i}"),
            Size::Part { whole, each } => write!(f, "u{whole}/u{each}"),
        }
    }
}

impl Display for Coord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Coord::GroupRow => f.write_str("group.row"),
            Coord::GroupCol => f.write_str("group.col"),
            Coord::WarpRow => f.write_str("warp.row"),
            Coord::WarpCol => f.write_str("warp.col"),
            Coord::Counter(c) => write!(f, "c{}", c.0),
            Coord::First(c) => write!(f, "c{}.first", c.0),
        }
    }
}

impl Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (coord, factor)) in self.terms.iter().enumerate() {
            let plus = if i > 0 { " + " } else { "" };
            write!(f, "{plus}{factor}*{coord}")?;
        }
        match (self.terms.is_empty(), self.constant) {
            (true, n) => write!(f, "{n}"),
            (false, 0) => Ok(()),
            (false, n) => write!(f, " + {n}"),
        }
    }
}

impl Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.counter, self.ahead) {
            (None, n) => write!(f, "{n}"),
            (Some(c), 0) => write!(f, "c{}", c.0),
            (Some(c), n) => write!(f, "c{} + {n}", c.0),
        }
    }
}

/// Sizes in brackets.
struct List<'a>(&'a [Size]);

impl Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        for (i, size) in self.0.iter().enumerate() {
            write!(f, "{}{size}", if i > 0 { ", " } else { "" })?;
        }
        f.write_char(']')
    }
}

impl Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, cols) = self.warps;
        writeln!(f, "program {} for {} {} warps {rows}x{cols}", self.name, self.arch.name(), self.dtype)?;
        for (i, b) in self.buffers.iter().enumerate() {
            writeln!(f, "  b{i} {}: {} {}", b.name, b.dtype, access(b.access))?;
        }
        for (i, name) in self.uniforms.iter().enumerate() {
            writeln!(f, "  u{i} {name}")?;
        }
        write_rest(f, self)
    }
}

fn access(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
        Access::Atomic => "atomic",
    }
}

fn write_rest(f: &mut dyn Write, p: &Program) -> fmt::Result {
    write_declared(f, p)?;
    f.write_str("{\n")?;
    write_block(f, &p.body, 1)?;
    f.write_str("}\n")
}

/// What a program is made of, without names that it did not choose itself: comments before its text in another language. A reader sees there what
/// the text does not say: which matrices are divided how, and which 16-bit floats are in a buffer.
pub(crate) fn declared(p: &Program) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' };
    let (name, (rows, cols)) = (p.name.chars().map(plain).collect::<String>(), p.warps);
    let mut text = format!("program {name} for {} {} warps {rows}x{cols}\n", p.arch.name(), p.dtype);
    for (i, b) in p.buffers.iter().enumerate() {
        let _ = writeln!(text, "  b{i} {} {}", b.dtype, access(b.access));
    }
    let _ = writeln!(text, "  uniforms {}", p.uniforms.len());
    // Writing to a string cannot fail.
    let _ = write_declared(&mut text, p);
    let mut tiles = BTreeSet::new();
    tiles_with(&p.body, &mut tiles);
    text.extend(tiles);
    text.lines().map(|line| format!("// {line}\n")).collect()
}

fn write_declared(f: &mut dyn Write, p: &Program) -> fmt::Result {
    let g = &p.grid;
    let (rows, cols) = g.tile;
    write!(f, "  grid [{}, {}] by {rows}x{cols} batch {}", g.rows, g.cols, List(&g.batch))?;
    if let Some(view) = g.table {
        write!(f, " in g{}", view.0)?;
    }
    writeln!(f, " bands {}", g.bands)?;
    for (i, v) in p.views.iter().enumerate() {
        write!(f, "  g{i} b{} base {} [{}, {}]", v.buffer.0, v.base, v.rows, v.cols)?;
        write!(f, " strides [{}, {}]", v.row_stride, v.col_stride)?;
        if let Some(heads) = v.heads {
            write!(f, " heads {} by {}", heads.count, heads.stride)?;
        }
        if let Some(window) = &v.window {
            write_window(f, window)?;
        }
        if let Some(lookup) = &v.lookup {
            write_lookup(f, lookup)?;
        }
        write!(f, " batch {}", List(&v.batch))?;
        writeln!(f, " vector {}", v.vector)?;
    }
    for (i, t) in p.tiles.iter().enumerate() {
        write!(f, "  t{i} {}[{}, {}] stages {}", t.dtype, t.rows, t.cols, t.stages)?;
        match t.matrices {
            true => f.write_str(" matrices\n")?,
            false if t.pad > 0 => writeln!(f, " pad {}", t.pad)?,
            false => writeln!(f, " swizzle {} >> {}", t.swizzle.bits, t.swizzle.shift)?,
        }
    }
    write_group(f, &p.group)?;
    for (i, d) in p.fragments.iter().enumerate() {
        let role = match d.role {
            Role::Left => "left",
            Role::Right => "right",
            Role::Sum => "sum",
            Role::Rows => "rows",
        };
        writeln!(f, "  f{i} {role}[{}, {}]", d.rows, d.cols)?;
    }
    Ok(())
}

/// `window 16 channels 30 of 60 by 960 taps 3 stride 2 dilation 1 before 1`, the latter for each dimension.
fn write_window(f: &mut dyn Write, window: &Window) -> fmt::Result {
    write!(f, " window {} channels", window.channels)?;
    for axis in &window.axes {
        let (Slide { taps, stride, dilation, before }, Axis { places, size, step, .. }) = (axis.slide, axis);
        write!(f, " {places} of {size} by {step}")?;
        write!(f, " taps {taps} stride {stride} dilation {dilation} before {before}")?;
    }
    Ok(())
}

/// `rows from 0 in pages of 16 by b5 base u7 batch [u8, 0] of u9 by u10`.
fn write_lookup(f: &mut dyn Write, lookup: &Lookup) -> fmt::Result {
    let Lookup { list, base, batch, first, page, pages, stride } = lookup;
    write!(f, " rows from {first} in ")?;
    match page {
        Some(rows) => write!(f, "pages of {rows}")?,
        None => f.write_str("one page")?,
    }
    write!(f, " by b{} base {base} batch {} of {pages} by {stride}", list.0, List(batch))
}

fn write_group(f: &mut dyn Write, g: &Decls) -> fmt::Result {
    for (i, map) in g.maps.iter().enumerate() {
        writeln!(f, "  a{i} g{} box [{}, {}]", map.view.0, map.rows, map.cols)?;
    }
    for (i, t) in g.tiles.iter().enumerate() {
        writeln!(f, "  s{i} blocks {} of [{}, {ROW}] stages {}", t.blocks, t.rows, t.stages)?;
    }
    for (i, b) in g.barriers.iter().enumerate() {
        writeln!(f, "  m{i} barrier stages {} arrivals {}", b.stages, b.arrivals)?;
    }
    for (i, d) in g.accumulators.iter().enumerate() {
        writeln!(f, "  d{i} accumulator columns {}", d.cols)?;
    }
    if let Some(of) = g.registers {
        writeln!(f, "  registers producer {} consumers {}", of.producer, of.consumers)?;
    }
    Ok(())
}

fn write_block(f: &mut dyn Write, stmts: &[Stmt], depth: usize) -> fmt::Result {
    for s in stmts {
        write!(f, "{:1$}", "", depth * 2)?;
        write_stmt(f, s, depth)?;
    }
    Ok(())
}

fn write_stmt(f: &mut dyn Write, s: &Stmt, depth: usize) -> fmt::Result {
    match s {
        Stmt::Zero(x) => writeln!(f, "zero f{}", x.0),
        Stmt::Fill(x, value) => writeln!(f, "fill f{} {value:e}", x.0),
        Stmt::Each { of, with, row, col, map } => {
            write!(f, "each f{}", of.0)?;
            for (i, w) in with.iter().enumerate() {
                write!(f, "{}f{}", if i > 0 { ", " } else { " with " }, w.0)?;
            }
            write!(f, " at [{row}, {col}]")?;
            write_map(f, Some(map), depth)
        }
        Stmt::Exp2(x) => writeln!(f, "exp2 f{}", x.0),
        Stmt::Reduce { to, from, op } => {
            let op = if *op == Reduction::Max { "max" } else { "sum" };
            writeln!(f, "reduce f{} {op}= f{}", to.0, from.0)
        }
        Stmt::Convert { to, from, col } => writeln!(f, "convert f{} = f{}[{col}]", to.0, from.0),
        Stmt::Copy(c) => write_copy(f, "copy", c, depth),
        Stmt::CopyAsync(c) => write_copy(f, "copy.async", c, depth),
        Stmt::Fetch(n, c) => write_copy(f, &format!("fetch {n}:"), c, depth),
        Stmt::Put(n, c) => write_copy(f, &format!("put {n}:"), c, depth),
        Stmt::Commit => f.write_str("commit\n"),
        Stmt::Wait(n) => writeln!(f, "wait {n}"),
        Stmt::Barrier => f.write_str("barrier\n"),
        Stmt::Load { to, from, stage, row, col, depth_rows, of_sums } => {
            let order = if *depth_rows { " depth.rows" } else { "" };
            let sums = if *of_sums { " of.sums" } else { "" };
            writeln!(f, "load f{} = t{}[{stage}][{row}, {col}]{order}{sums}", to.0, from.0)
        }
        Stmt::Mma { sum, left, right } => writeln!(f, "mma f{} += f{} f{}", sum.0, left.0, right.0),
        Stmt::Store { to, from, row, col, with: beside, map } => {
            write!(f, "store g{}[{row}, {col}] = f{}{}", to.0, from.0, with(beside))?;
            write_map(f, map.as_ref(), depth)
        }
        Stmt::Prefetch { from, row, col, rows, cols } => {
            writeln!(f, "prefetch g{}[{row}, {col}] {rows}x{cols}", from.0)
        }
        Stmt::For { counter, extent, below, step, body } => {
            writeln!(f, "for c{} in {extent}{} step {step} {{", counter.0, bound(*below))?;
            write_block(f, body, depth + 1)?;
            writeln!(f, "{:1$}}}", "", depth * 2)
        }
        Stmt::Staggered(s) => {
            let (below, counters) = (bound(s.below), (s.counter.0, s.behind.0));
            writeln!(
                f,
                "staggered c{} c{} in {}{below} step {} {{",
                counters.0, counters.1, s.extent, s.step
            )?;
            for (i, list) in s.lists().into_iter().enumerate() {
                let end = ["} then {", "} last {", "}"][i];
                write_block(f, list, depth + 1)?;
                writeln!(f, "{:1$}{end}", "", depth * 2)?;
            }
            Ok(())
        }
        Stmt::Roles { producer, multiplier, consumers } => {
            f.write_str("producer {\n")?;
            write_block(f, producer, depth + 1)?;
            if !multiplier.is_empty() {
                writeln!(f, "{:1$}}} multiplier {{", "", depth * 2)?;
                write_block(f, multiplier, depth + 1)?;
            }
            writeln!(f, "{:1$}}} consumers {{", "", depth * 2)?;
            write_block(f, consumers, depth + 1)?;
            writeln!(f, "{:1$}}}", "", depth * 2)
        }
        Stmt::Tiles { turn, teams, body } => {
            writeln!(f, "tiles c{} teams {teams} {{", turn.0)?;
            write_block(f, body, depth + 1)?;
            writeln!(f, "{:1$}}}", "", depth * 2)
        }
        Stmt::Group(g) => writeln!(f, "{g}"),
        Stmt::Pipelined { counter, extent, below, step, stages, copies, body } => {
            let below = bound(*below);
            writeln!(f, "pipelined c{} in {extent}{below} step {step} stages {stages} {{", counter.0)?;
            for copy in copies {
                write!(f, "{:1$}", "", depth * 2 + 2)?;
                write_copy(f, "copy", copy, depth + 1)?;
            }
            writeln!(f, "{:1$}}} then {{", "", depth * 2)?;
            write_block(f, body, depth + 1)?;
            writeln!(f, "{:1$}}}", "", depth * 2)
        }
    }
}

/// What a loop is bounded by.
fn bound(below: Option<Below>) -> String {
    let of = |b: Below| {
        let heads = if b.heads > 1 { format!("/{}", b.heads) } else { String::new() };
        let window = b.window.map_or_else(String::new, |n| format!(" window {n}"));
        format!(" below {}*(group.row + 1){heads} + {}{window}", b.rows, b.offset)
    };
    below.map_or_else(String::new, of)
}

/// What is read beside elements.
fn with(beside: &[Beside]) -> String {
    let of = |(i, b): (usize, &Beside)| {
        let span = match b.span {
            Span::One => String::new(),
            Span::Columns(n) => format!(" by {n}"),
            Span::Row => " by row".to_owned(),
        };
        format!("{}g{}{span}", if i == 0 { " with " } else { ", " }, b.view.0)
    };
    beside.iter().enumerate().map(of).collect()
}

/// The tiles of a list that are copied with something beside them, the views that sums are stored to so, and that.
fn tiles_with(stmts: &[Stmt], found: &mut BTreeSet<String>) {
    for s in stmts {
        let copies = match s {
            Stmt::Store { to, with: beside, .. } if !beside.is_empty() => {
                found.insert(format!("  store g{}{}\n", to.0, with(beside)));
                continue;
            }
            Stmt::Staggered(s) => {
                s.lists().iter().for_each(|list| tiles_with(list, found));
                continue;
            }
            Stmt::Roles { producer, multiplier, consumers } => {
                [producer, multiplier, consumers].iter().for_each(|list| tiles_with(list, found));
                continue;
            }
            Stmt::Copy(c) | Stmt::CopyAsync(c) | Stmt::Fetch(_, c) | Stmt::Put(_, c) => {
                std::slice::from_ref(c)
            }
            Stmt::Pipelined { copies, .. } => &copies[..],
            Stmt::For { body, .. } | Stmt::Tiles { body, .. } => {
                tiles_with(body, found);
                continue;
            }
            _ => continue,
        };
        for c in copies.iter().filter(|c| !c.with.is_empty()) {
            found.insert(format!("  t{} from g{}{}\n", c.to.0, c.from.0, with(&c.with)));
        }
    }
}

fn write_copy(f: &mut dyn Write, verb: &str, c: &Copy, depth: usize) -> fmt::Result {
    write!(f, "{verb} t{}[{}] = g{}[{}, {}]{}", c.to.0, c.stage, c.from.0, c.row, c.col, with(&c.with))?;
    write_map(f, c.map.as_ref(), depth)
}

/// A scalar body is the statements of its kernel: its buffers and uniforms are the program's.
fn write_map(f: &mut dyn Write, map: Option<&Scalar>, depth: usize) -> fmt::Result {
    let Some(scalar) = map else { return f.write_char('\n') };
    f.write_str(" map {\n")?;
    let text = scalar.kernel().to_string();
    let declared = 1 + scalar.kernel().buffers.len() + scalar.kernel().uniforms.len();
    for line in text.lines().skip(declared).filter(|line| !matches!(*line, "{" | "}")) {
        writeln!(f, "{:1$}{line}", "", depth * 2)?;
    }
    writeln!(f, "{:1$}}}", "", depth * 2)
}

impl Program {
    /// The hash of everything that decides what the program computes; names do not count.
    pub fn hash(&self) -> rlx_kernel::KernelHash {
        let mut text =
            format!("tile {} {} {:?} {}\n", self.arch.name(), self.dtype, self.warps, self.uniforms.len());
        for b in &self.buffers {
            let _ = writeln!(text, "{} {}", b.dtype, access(b.access));
        }
        // Writing to a string cannot fail.
        let _ = write_rest(&mut text, self);
        rlx_kernel::KernelHash(*blake3::hash(text.as_bytes()).as_bytes())
    }
}
