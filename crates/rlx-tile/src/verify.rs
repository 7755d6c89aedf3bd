//! The verifier: what must hold of every program.
//!
//! What it accepts, the interpreter and the renderer run without looking again: numbers refer to what is declared, sizes are within what a workgroup
//! may have, operands of matrix instructions fit, everything loaded from a tile is within it. What depends on the order of
//! statements (races, missing waits) is the interpreter's to find.

mod copies;
mod declared;
mod elements;
mod groups;
mod lookups;
mod tensor;
mod tiles;
mod windows;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rlx_ir::{Error, ErrorKind};
use rlx_kernel::ir::{Access, Buffer, Inst, Stmt as KernelStmt};

pub(crate) use declared::is_unpacked;

use crate::beside::Beside;
use crate::ir::{Coord, Copy, Counter, Fragment, Index, Program, Role, Size, Stage, Stmt, Tile, View};
use crate::layout::CHUNK;
use crate::scalar::Scalar;

/// A rule that a program breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// No matrix instruction of the architecture multiplies the type.
    NoInstruction,
    /// A buffer, uniform, view, tile, fragment or counter that is not declared, or not here.
    Unknown(String),
    /// A workgroup has 1 to 1024 lanes.
    Warps(u32),
    /// More workgroup memory than the architecture allows: bytes, limit.
    SharedMemory(u64, u32),
    /// More registers than a lane has: registers of fragments, limit.
    Registers(u64, u32),
    /// A declaration that is malformed.
    Declaration(String),
    /// A scalar body that is malformed, or made for other buffers.
    Body(String),
    /// A position that depends on what it must not, or is no multiple of what it must be.
    Position(String),
    /// A load that leaves its tile: the last row or column + 1, and how many there are.
    Outside(u64, u32),
    /// A fragment of another role or size than the statement needs.
    Operand(String),
    /// A buffer that is written but declared to be read, or the other way round.
    Access(String),
    /// A copy that cannot be asynchronous, or a `put` without its `fetch`.
    Transfer(String),
    /// A pipelined loop whose tiles or body do not fit.
    Pipeline(String),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::NoInstruction => f.write_str("the architecture has no matrix instruction for the type"),
            Rule::Unknown(what) => write!(f, "{what} is not declared"),
            Rule::Warps(n) => write!(f, "a workgroup of {n} warps; it has 1 to 1024 lanes"),
            Rule::SharedMemory(bytes, limit) => {
                write!(f, "{bytes} bytes of workgroup memory; the limit is {limit}")
            }
            Rule::Registers(n, limit) => {
                write!(f, "{n} registers a lane for fragments; the limit is {limit}")
            }
            Rule::Outside(end, size) => write!(f, "a load that ends at {end} of {size}"),
            Rule::Declaration(what)
            | Rule::Body(what)
            | Rule::Position(what)
            | Rule::Operand(what)
            | Rule::Access(what)
            | Rule::Transfer(what)
            | Rule::Pipeline(what) => f.write_str(what),
        }
    }
}

/// A program that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The program's name.
    pub program: String,
    /// The declaration or statement, such as `t0` or `load f1`.
    pub at: String,
    /// What it breaks.
    pub rule: Rule,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tile program {:?}, {}: {}", self.program, self.at, self.rule)
    }
}

impl std::error::Error for Violation {}

impl From<Violation> for Error {
    fn from(v: Violation) -> Error {
        Error::new(ErrorKind::Internal, v.to_string())
    }
}

/// Checks a program.
///
/// # Errors
/// The first rule that is broken, and where.
pub fn verify(program: &Program) -> Result<(), Violation> {
    let mut v = Verifier {
        p: program,
        counters: BTreeMap::new(),
        begins: program.begins().into_keys().collect(),
        used: BTreeSet::new(),
        fetched: BTreeMap::new(),
    };
    v.declarations().and_then(|()| v.block(&program.body)).map_err(|(at, rule)| Violation {
        program: program.name.clone(),
        at,
        rule,
    })
}

/// Where, and which rule.
type Checked = Result<(), (String, Rule)>;

struct Verifier<'p> {
    p: &'p Program,
    /// Counters of the loops around, and the number of their last iteration where it is known.
    counters: BTreeMap<Counter, Option<u64>>,
    /// Those of all loops that begin where a window does.
    begins: BTreeSet<Counter>,
    /// All counters so far.
    used: BTreeSet<Counter>,
    /// What was fetched and not yet put.
    fetched: BTreeMap<u32, Copy>,
}

fn fault(at: &str, rule: Rule) -> Checked {
    Err((at.to_owned(), rule))
}

fn must(holds: bool, at: &str, rule: impl FnOnce() -> Rule) -> Checked {
    if holds { Ok(()) } else { fault(at, rule()) }
}

impl Verifier<'_> {
    /// A size that is the same for all workgroups.
    fn size(&self, at: &str, size: Size) -> Checked {
        must(!matches!(size, Size::Part { .. }), at, || {
            Rule::Declaration("only rows and columns of views and loops are divided".to_string())
        })?;
        self.extent(at, size)
    }

    /// A size that may be a workgroup's part of one.
    fn extent(&self, at: &str, size: Size) -> Checked {
        for i in size.uniforms() {
            must((i as usize) < self.p.uniforms.len(), at, || Rule::Unknown(format!("u{i}")))?;
        }
        let divided = matches!(size, Size::Part { .. });
        must(!divided || !self.p.grid.batch.is_empty(), at, || {
            Rule::Declaration("a size is divided where the grid has no parts".to_string())
        })
    }

    fn known_view(&self, at: &str, View(i): View) -> Checked {
        must((i as usize) < self.p.views.len(), at, || Rule::Unknown(format!("g{i}")))
    }

    fn known_tile(&self, at: &str, Tile(i): Tile) -> Checked {
        must((i as usize) < self.p.tiles.len(), at, || Rule::Unknown(format!("t{i}")))
    }

    fn role(&self, at: &str, f: Fragment, role: Role) -> Checked {
        let Some(decl) = self.p.fragments.get(f.0 as usize) else {
            return fault(at, Rule::Unknown(format!("f{}", f.0)));
        };
        must(decl.role == role, at, || Rule::Operand(format!("f{} is {:?}, not {role:?}", f.0, decl.role)))
    }

    fn block(&mut self, stmts: &[Stmt]) -> Checked {
        let before = self.fetched.len();
        stmts.iter().try_for_each(|s| self.stmt(s))?;
        must(self.fetched.len() == before, "end of a block", || {
            Rule::Transfer("a fetch without its put".to_string())
        })
    }

    fn stmt(&mut self, s: &Stmt) -> Checked {
        match s {
            Stmt::Zero(f) => self.role(&format!("zero f{}", f.0), *f, Role::Sum),
            Stmt::Fill(f, _) => self.fill(*f),
            Stmt::Each { of, with, row, col, map } => self.each(*of, with, (row, col), map),
            Stmt::Exp2(f) => self.exp2(*f),
            Stmt::Reduce { to, from, .. } => self.reduce(*to, *from),
            Stmt::Convert { to, from, col } => self.convert(*to, *from, col),
            Stmt::Copy(c) => self.copy("copy", c),
            Stmt::CopyAsync(c) => self.copy_async(c),
            Stmt::Fetch(n, c) => self.fetch(*n, c),
            Stmt::Put(n, c) => self.put(*n, c),
            Stmt::Commit | Stmt::Wait(_) | Stmt::Barrier => Ok(()),
            Stmt::Load { to, from, stage, row, col, depth_rows, of_sums } => {
                self.in_order_of_sums(*to, *depth_rows, *of_sums)?;
                self.load(*to, *from, *stage, (row, col), *depth_rows)
            }
            Stmt::Mma { sum, left, right } => self.mma(*sum, *left, *right),
            Stmt::Prefetch { from, row, col, rows, cols } => self.prefetch(*from, (row, col), *rows, *cols),
            Stmt::Store { to, from, row, col, with, map } => {
                self.store(*to, *from, (row, col), (with, map.as_ref()))
            }
            Stmt::For { counter, extent, below, step, body } => {
                self.below(&format!("loop c{}", counter.0), *extent, *below)?;
                self.repeat(*counter, *extent, *step, body)
            }
            Stmt::Roles { producer, multiplier, consumers } => self.roles([producer, multiplier, consumers]),
            Stmt::Tiles { .. } => {
                fault("tiles", Rule::Transfer("tiles of a role outside of one".to_string()))
            }
            Stmt::Staggered(s) => {
                let at = format!("staggered c{}", s.counter.0);
                fault(&at, Rule::Transfer("a loop of a role outside of one".to_string()))
            }
            Stmt::Group(g) => {
                fault(&g.to_string(), Rule::Transfer("a statement of a role outside of one".to_string()))
            }
            Stmt::Pipelined { counter, extent, below, step, stages, copies, body } => {
                self.below(&format!("pipelined c{}", counter.0), *extent, *below)?;
                self.pipelined((*counter, *extent, *step), *stages, copies, body)
            }
        }
    }

    fn enter(&mut self, counter: Counter, extent: Size, step: u32) -> Checked {
        let at = format!("loop c{}", counter.0);
        self.extent(&at, extent)?;
        must(self.used.insert(counter), &at, || Rule::Unknown(format!("a second loop with c{}", counter.0)))?;
        must(step > 0 && self.counters.len() < 8, &at, || {
            Rule::Position("loops have a step of at least 1 and are at most 8 deep".to_string())
        })?;
        let last = match extent {
            Size::Const(n) => Some(u64::from(n.div_ceil(step)).saturating_sub(1)),
            Size::Uniform(_) | Size::Part { .. } => None,
        };
        // Such loops are unrolled.
        must(last.is_none_or(|last| last < 256), &at, || {
            Rule::Position("a loop of known size has more than 256 iterations".to_string())
        })?;
        self.counters.insert(counter, last);
        Ok(())
    }

    fn repeat(&mut self, counter: Counter, extent: Size, step: u32, body: &[Stmt]) -> Checked {
        self.enter(counter, extent, step)?;
        self.block(body)?;
        self.counters.remove(&counter);
        Ok(())
    }

    /// A position of all lanes of a workgroup or of a warp, in multiples of `of`.
    fn position(&self, at: &str, index: &Index, warps: bool, of: u32) -> Checked {
        for (coord, factor) in &index.terms {
            let known = match coord {
                Coord::GroupRow | Coord::GroupCol => true,
                Coord::WarpRow | Coord::WarpCol => warps,
                Coord::Counter(c) => self.counters.contains_key(c),
                Coord::First(c) => self.begins.contains(c),
            };
            must(known, at, || Rule::Position(format!("the position depends on {coord}")))?;
            must(*factor <= 1 << 16, at, || Rule::Position(format!("{factor}*{coord} is too far")))?;
        }
        let multiple =
            index.constant.is_multiple_of(of) && index.terms.iter().all(|t| t.1.is_multiple_of(of));
        must(multiple && index.constant <= 1 << 20, at, || {
            Rule::Position(format!("the position {index} is no multiple of {of}, or too far"))
        })
    }

    /// One more than the largest value of a position in a tile, with `size` behind it.
    fn end(&self, at: &str, index: &Index, size: u32) -> Result<u64, (String, Rule)> {
        let mut end = u64::from(index.constant) + u64::from(size);
        for (coord, factor) in &index.terms {
            let last = match coord {
                Coord::WarpRow => Some(u64::from(self.p.warps.0 - 1)),
                Coord::WarpCol => Some(u64::from(self.p.warps.1 - 1)),
                Coord::Counter(c) => self.counters.get(c).copied().flatten(),
                Coord::GroupRow | Coord::GroupCol | Coord::First(_) => None,
            };
            let Some(last) = last else {
                return Err((at.to_owned(), Rule::Position(format!("a tile's position depends on {coord}"))));
            };
            end = end.saturating_add(last.saturating_mul(u64::from(*factor)));
        }
        Ok(end)
    }

    fn stage(&self, at: &str, tile: Tile, stage: Stage) -> Checked {
        self.known_tile(at, tile)?;
        match stage.counter {
            Some(c) if !self.counters.contains_key(&c) => fault(at, Rule::Unknown(format!("c{}", c.0))),
            _ if stage.ahead > 16 => fault(at, Rule::Position(format!("{} stages ahead", stage.ahead))),
            None if stage.ahead >= self.p.tile(tile).stages => {
                fault(at, Rule::Unknown(format!("stage {} of t{}", stage.ahead, tile.0)))
            }
            _ => Ok(()),
        }
    }

    fn load(
        &self,
        to: Fragment,
        from: Tile,
        stage: Stage,
        at: (&Index, &Index),
        depth_rows: bool,
    ) -> Checked {
        let here = format!("load f{}", to.0);
        let Some(f) = self.p.fragments.get(to.0 as usize) else {
            return fault(&here, Rule::Unknown(format!("f{}", to.0)));
        };
        must(matches!(f.role, Role::Left | Role::Right), &here, || {
            Rule::Operand("sums and rows are not loaded".to_string())
        })?;
        self.stage(&here, from, stage)?;
        let tile = self.p.tile(from);
        // A right fragment is depth × columns; in a tile whose rows do not run along the depth it is columns × depth.
        let as_stored = (f.role == Role::Left) != depth_rows;
        let (rows, cols) = if as_stored { (f.rows, f.cols) } else { (f.cols, f.rows) };
        for (index, size, limit) in [(at.0, rows, tile.rows), (at.1, cols, tile.cols)] {
            let multiple = index.constant % CHUNK == 0 && index.terms.iter().all(|t| t.1 % CHUNK == 0);
            must(multiple, &here, || {
                Rule::Position(format!("the position {index} is no multiple of {CHUNK}"))
            })?;
            let end = self.end(&here, index, size)?;
            must(end <= u64::from(limit), &here, || Rule::Outside(end, limit))?;
        }
        Ok(())
    }

    fn mma(&self, sum: Fragment, left: Fragment, right: Fragment) -> Checked {
        let here = format!("mma f{}", sum.0);
        self.role(&here, sum, Role::Sum)?;
        self.role(&here, left, Role::Left)?;
        self.role(&here, right, Role::Right)?;
        let (s, l, r) = (self.p.fragment(sum), self.p.fragment(left), self.p.fragment(right));
        must(s.rows == l.rows && s.cols == r.cols && l.cols == r.rows, &here, || {
            let of = |f: &crate::ir::FragmentDecl| format!("[{}, {}]", f.rows, f.cols);
            Rule::Operand(format!("{} · {} does not give {}", of(l), of(r), of(s)))
        })
    }

    fn store(
        &self,
        to: View,
        from: Fragment,
        at: (&Index, &Index),
        (with, map): (&[Beside], Option<&Scalar>),
    ) -> Checked {
        let here = format!("store g{}", to.0);
        self.known_view(&here, to)?;
        self.role(&here, from, Role::Sum)?;
        let view = self.p.view(to);
        must(view.window.is_none(), &here, || Rule::Access("windows are read, not written".to_string()))?;
        self.store_of_lookup(&here, view, with.is_empty() && map.is_none())?;
        must(self.p.buffers[view.buffer.index()].access == Access::Write, &here, || {
            Rule::Access(format!("b{} is not declared to be written", view.buffer.0))
        })?;
        self.position(&here, at.0, true, 1)?;
        self.position(&here, at.1, true, view.vector)?;
        for beside in with {
            self.beside(&here, to, beside)?;
            self.beside_sums(&here, to, beside)?;
        }
        self.body_beside(&here, map, with.len())?;
        self.body(&here, map, Some(view.buffer))
    }

    fn prefetch(&self, from: View, at: (&Index, &Index), rows: u32, cols: u32) -> Checked {
        let here = format!("prefetch g{}", from.0);
        self.known_view(&here, from)?;
        let view = self.p.view(from);
        must(view.window.is_none() && view.lookup.is_none() && view.heads.is_none(), &here, || {
            Rule::Access("rows that are not plain are not fetched ahead".to_owned())
        })?;
        let sized = (1..=256).contains(&rows) && (1..=256).contains(&cols);
        must(sized, &here, || Rule::Operand("1 to 256 rows and columns are fetched ahead".to_owned()))?;
        self.position(&here, at.0, true, 1)?;
        self.position(&here, at.1, true, 1)
    }

    /// The body of a copy or a store, which is given so many numbers beside the element.
    fn body_beside(&self, at: &str, map: Option<&Scalar>, given: usize) -> Checked {
        let takes = map.map_or(0, Scalar::rows);
        must(takes == given, at, || {
            Rule::Body(format!("the body is given {given} numbers beside an element, not {takes}"))
        })
    }

    /// A body reads what nobody writes. That of a store may also read what it is stored over: which element that is, the interpreter checks.
    fn body(&self, at: &str, map: Option<&Scalar>, over: Option<Buffer>) -> Checked {
        let Some(scalar) = map else { return Ok(()) };
        scalar.verify().map_err(|e| (at.to_owned(), Rule::Body(e.message().to_owned())))?;
        let kernel = scalar.kernel();
        must(kernel.buffers == self.p.buffers && kernel.uniforms == self.p.uniforms, at, || {
            Rule::Body(format!("the body {:?} was made for other buffers or uniforms", kernel.name))
        })?;
        let mut written = false;
        kernel.for_each_stmt(&mut |s| {
            if let KernelStmt::Let(_, Inst::Load(b, _)) = s {
                written |= kernel.buffers[b.index()].access != Access::Read && Some(*b) != over;
            }
        });
        must(!written, at, || Rule::Access("a body reads what the program writes".to_string()))
    }
}
