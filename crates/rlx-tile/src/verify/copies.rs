//! Copies, and the loops that run them ahead.

use rlx_kernel::ir::Access;

use super::{Checked, Rule, Verifier, fault, must};
use crate::beside::{Beside, Span};
use crate::expand::can_be_async;
use crate::ir::{Copy, Counter, Size, Stage, Stmt, View};
use crate::layout::CHUNK;

impl Verifier<'_> {
    pub(super) fn copy(&self, verb: &str, c: &Copy) -> Checked {
        let here = format!("{verb} t{}", c.to.0);
        self.known_view(&here, c.from)?;
        self.stage(&here, c.to, c.stage)?;
        self.position(&here, &c.row, false, 1)?;
        self.position(&here, &c.col, false, CHUNK)?;
        let integers = self.p.view_dtype(c.from).is_int();
        must(!integers || self.p.tile(c.to).chunk() == CHUNK, &here, || {
            Rule::Operand("integers are unpacked into tiles of 16-bit elements".to_owned())
        })?;
        for beside in &c.with {
            self.beside(&here, c.from, beside)?;
        }
        self.copy_of_window(&here, c)?;
        self.copy_of_lookup(&here, c)?;
        self.body_beside(&here, c.map.as_ref(), c.with.len())?;
        self.body(&here, c.map.as_ref(), None)
    }

    /// Numbers beside sums are as they are stored, and nobody else writes them. Blocks of columns are not read so.
    pub(super) fn beside_sums(&self, at: &str, to: View, beside: &Beside) -> Checked {
        let (stored, numbers) = (self.p.view(to), self.p.view(beside.view));
        let read = self.p.buffers[numbers.buffer.index()].access == Access::Read;
        must(read || numbers.buffer == stored.buffer, at, || {
            Rule::Access(format!(
                "g{} is read beside sums, and b{} is written",
                beside.view.0, numbers.buffer.0
            ))
        })?;
        let plain = numbers.heads == stored.heads && numbers.window.is_none() && numbers.lookup.is_none();
        let known = self.p.atom().is_some_and(|atom| !atom.is_in_matrices());
        must(plain && known && !matches!(beside.span, Span::Columns(_)), at, || {
            Rule::Operand(format!("g{} cannot be read beside sums", beside.view.0))
        })
    }

    /// Numbers beside the elements of a view: floats, at the same rows and columns.
    pub(super) fn beside(&self, at: &str, from: View, beside: &Beside) -> Checked {
        self.known_view(at, beside.view)?;
        let (own, numbers) = (self.p.view(from), self.p.view(beside.view));
        must((own.rows, own.cols) == (numbers.rows, numbers.cols), at, || {
            Rule::Operand(format!("g{} has other rows or columns than g{}", beside.view.0, from.0))
        })?;
        must(!self.p.view_dtype(beside.view).is_int(), at, || {
            Rule::Operand(format!("g{} has integers, and is read beside another view", beside.view.0))
        })?;
        must(beside.span.is_whole() && (beside.span == Span::One || numbers.vector == 1), at, || {
            Rule::Operand(format!(
                "g{} is shared by columns that are no multiple of {CHUNK}, or is read several at once",
                beside.view.0
            ))
        })
    }

    pub(super) fn copy_async(&self, c: &Copy) -> Checked {
        self.copy("copy.async", c)?;
        must(can_be_async(self.p, c), &format!("copy.async t{}", c.to.0), || {
            Rule::Transfer(
                "asynchronous copies need sm_80, elements of the tile's type, no body, and 2 elements at once"
                    .to_string(),
            )
        })
    }

    pub(super) fn fetch(&mut self, n: u32, c: &Copy) -> Checked {
        self.copy("fetch", c)?;
        match self.fetched.insert(n, c.clone()) {
            None => Ok(()),
            Some(_) => fault(&format!("fetch {n}"), Rule::Transfer("fetched twice".to_string())),
        }
    }

    pub(super) fn put(&mut self, n: u32, c: &Copy) -> Checked {
        let fetched = self.fetched.remove(&n);
        must(fetched.as_ref() == Some(c), &format!("put {n}"), || {
            Rule::Transfer("a put of something that was not fetched".to_string())
        })
    }

    pub(super) fn pipelined(
        &mut self,
        (counter, extent, step): (Counter, Size, u32),
        stages: u32,
        copies: &[Copy],
        body: &[Stmt],
    ) -> Checked {
        self.enter(counter, extent, step)?;
        let here = format!("pipelined c{}", counter.0);
        let broken = |what: &str| Rule::Pipeline(what.to_owned());
        for (i, c) in copies.iter().enumerate() {
            self.copy("copy", c)?;
            must(self.p.tile(c.to).stages == stages, &here, || {
                broken("a tile with other stages than the loop")
            })?;
            must(copies[..i].iter().all(|other| other.to != c.to), &here, || {
                broken("a tile is copied twice")
            })?;
            must(c.stage == Stage { counter: Some(counter), ahead: 0 }, &here, || {
                broken("a copy is for another stage than its iteration's")
            })?;
        }
        must(computes(body), &here, || {
            broken("the body copies, waits or stores; it may load, multiply and compute")
        })?;
        self.block(body)?;
        self.counters.remove(&counter);
        Ok(())
    }
}

/// Whether statements only load, multiply and compute.
fn computes(body: &[Stmt]) -> bool {
    body.iter().all(|s| match s {
        Stmt::Zero(_) | Stmt::Load { .. } | Stmt::Mma { .. } => true,
        Stmt::Fill(..) | Stmt::Each { .. } | Stmt::Exp2(_) | Stmt::Reduce { .. } | Stmt::Convert { .. } => {
            true
        }
        Stmt::For { body, .. } => computes(body),
        _ => false,
    })
}
