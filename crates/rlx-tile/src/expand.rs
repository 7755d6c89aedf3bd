//! Software pipelining: a [`Stmt::Pipelined`] loop as statements in order.
//!
//! With asynchronous copies and `n` stages, the copies of `n - 1` iterations are under way before the first one is computed:
//!
//! ```text
//! copy.async 0; commit; … copy.async n-2; commit
//! for c {
//!   wait n-2      the copies of iteration c are done, for the lane that began them
//!   barrier       … for all lanes, and all are done with iteration c-1, whose stage is free
//!   copy.async c+n-1; commit
//!   body c
//! }
//! wait 0
//! ```
//!
//! Without them, the tiles of the next iteration are read into registers before an iteration is computed and written into the other stage after it:
//!
//! ```text
//! copy 0; barrier
//! for c { fetch c+1; body c; put c+1; barrier }
//! ```
//!
//! Where some of a loop's copies can be asynchronous and others compute elements on the way, the former are begun where the others are fetched, and need no
//! registers:
//!
//! ```text
//! copy.async a 0; copy b 0; commit; wait 0; barrier
//! for c { copy.async a c+1; fetch b c+1; commit; body c; put b c+1; wait 0; barrier }
//! ```
//!
//! What is copied beyond the end of the loop is beyond its view, so no memory is read for it; where a loop is bounded by [`Below`], the first tiles beyond
//! that are read in vain. Where it begins later ([`Below::window`]), positions already say so: iterations are counted from there.

use rlx_ir::DType;

use crate::ir::{Below, Coord, Copy, Counter, Index, Program, Size, Stage, Stmt};

/// The program without [`Stmt::Pipelined`].
#[must_use]
pub fn expand(program: &Program) -> Program {
    let mut out = program.clone();
    out.body = block(program, &program.body);
    out
}

fn block(p: &Program, stmts: &[Stmt]) -> Vec<Stmt> {
    let mut out = Vec::new();
    for s in stmts {
        match s {
            Stmt::Pipelined { counter, extent, below, step, stages, copies, body } => {
                let (counter, extent, below) = (*counter, *extent, *below);
                let l = Loop { counter, extent, below, step: *step, stages: *stages, copies };
                let body = block(p, body);
                out.extend(if l.is_async(p) { l.ahead(body) } else { l.in_registers(p, body) });
            }
            Stmt::For { counter, extent, below, step, body } => {
                let (counter, extent, below, step) = (*counter, *extent, *below, *step);
                out.push(Stmt::For { counter, extent, below, step, body: block(p, body) });
            }
            // Roles are written out already.
            other => out.push(other.clone()),
        }
    }
    out
}

/// Whether a copy can be asynchronous: bytes move as they are, at least 4 at a time.
pub(crate) fn can_be_async(p: &Program, copy: &Copy) -> bool {
    let from: DType = p.view_dtype(copy.from);
    p.arch.copies_async()
        && copy.map.is_none()
        && from == p.tile(copy.to).dtype
        && p.view(copy.from).vector >= 2
}

struct Loop<'p> {
    counter: Counter,
    extent: Size,
    below: Option<Below>,
    step: u32,
    stages: u32,
    copies: &'p [Copy],
}

impl Loop<'_> {
    fn is_async(&self, p: &Program) -> bool {
        self.stages >= 2 && self.copies.iter().all(|c| can_be_async(p, c))
    }

    fn repeated(&self, body: Vec<Stmt>) -> Stmt {
        let (counter, extent, below, step) = (self.counter, self.extent, self.below, self.step);
        Stmt::For { counter, extent, below, step, body }
    }

    /// The copies of iteration `n`.
    fn copies_of(&self, n: u32) -> impl Iterator<Item = Copy> {
        self.copies.iter().map(move |c| {
            let fixed = |index: &Index| {
                let (own, terms): (Vec<_>, Vec<_>) =
                    index.terms.iter().copied().partition(|t| t.0 == Coord::Counter(self.counter));
                let constant = index.constant + own.iter().map(|t| t.1 * n).sum::<u32>();
                Index { constant, terms }
            };
            let stage = Stage { counter: None, ahead: n % self.stages };
            Copy { row: fixed(&c.row), col: fixed(&c.col), stage, ..c.clone() }
        })
    }

    /// The copies of the iteration `n` after the present one.
    fn copies_ahead(&self, n: u32) -> impl Iterator<Item = Copy> {
        self.copies.iter().map(move |c| {
            let later = |index: &Index| {
                let own = index.terms.iter().filter(|t| t.0 == Coord::Counter(self.counter));
                let mut index = index.clone();
                index.constant += own.map(|t| t.1 * n).sum::<u32>();
                index
            };
            let stage = Stage { counter: Some(self.counter), ahead: n };
            Copy { row: later(&c.row), col: later(&c.col), stage, ..c.clone() }
        })
    }

    fn ahead(&self, body: Vec<Stmt>) -> Vec<Stmt> {
        let ahead = self.stages - 1;
        let mut out = Vec::new();
        for n in 0..ahead {
            out.extend(self.copies_of(n).map(Stmt::CopyAsync));
            out.push(Stmt::Commit);
        }
        let mut inner = vec![Stmt::Wait(ahead - 1), Stmt::Barrier];
        inner.extend(self.copies_ahead(ahead).map(Stmt::CopyAsync));
        inner.push(Stmt::Commit);
        inner.extend(body);
        out.push(self.repeated(inner));
        out.push(Stmt::Wait(0));
        out
    }

    fn in_registers(&self, p: &Program, body: Vec<Stmt>) -> Vec<Stmt> {
        // What is read in an iteration is in another stage than what is copied meanwhile.
        let begun = |c: &Copy| self.stages >= 2 && can_be_async(p, c);
        let some = self.copies.iter().any(begun);
        let first = |c: Copy| if begun(&c) { Stmt::CopyAsync(c) } else { Stmt::Copy(c) };
        let mut out: Vec<Stmt> = self.copies_of(0).map(first).collect();
        let commit = || some.then_some(Stmt::Commit);
        let wait = || some.then_some(Stmt::Wait(0));
        out.extend(commit().into_iter().chain(wait()).chain([Stmt::Barrier]));
        let ahead = || (0..).zip(self.copies_ahead(1));
        let read = |(n, c): (u32, Copy)| if begun(&c) { Stmt::CopyAsync(c) } else { Stmt::Fetch(n, c) };
        let mut inner: Vec<Stmt> = ahead().map(read).chain(commit()).collect();
        inner.extend(body);
        // With one stage, all lanes must be done with it before it is written.
        if self.stages == 1 {
            inner.push(Stmt::Barrier);
        }
        inner.extend(ahead().filter(|(_, c)| !begun(c)).map(|(n, c)| Stmt::Put(n, c)));
        inner.extend(wait().into_iter().chain([Stmt::Barrier]));
        out.push(self.repeated(inner));
        out
    }
}
