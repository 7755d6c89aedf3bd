//! What a copy reads beside its elements.

use rlx_ir::{DType, Result};

use super::body::Body;
use super::language::size;
use super::numbers::{number, words};
use crate::beside::Span;
use crate::ir::{Copy, View};

impl Body<'_> {
    /// The registers for what a fetch reads beside its elements.
    pub(super) fn declare_beside(&mut self, c: &Copy, name: &str) {
        let chunk = self.p.tile(c.to).chunk();
        for (n, b) in c.with.iter().enumerate() {
            let words = words(b.span, chunk, self.p.view_dtype(b.view));
            let rounds = self.rounds(c.to);
            self.line(&format!("u32 {name}_{n}[{rounds}][{words}];"));
        }
    }

    /// Reads what is beside the chunk at `row`, `col` as it is.
    pub(super) fn fetch_beside(&mut self, c: &Copy, name: &str) {
        let chunk = self.p.tile(c.to).chunk();
        for (n, b) in c.with.iter().enumerate() {
            let name = format!("{name}_{n}[i]");
            self.open("{");
            match b.span {
                Span::One => self.read_chunk(b.view, chunk, &name),
                span => self.read_shared(b.view, span, &name),
            }
            self.close();
        }
    }

    /// Reads the number that a chunk shares. It is there where the chunk's first element is.
    fn read_shared(&mut self, view: View, span: Span, name: &str) {
        let (_, inside) = self.address(view, 0);
        let col = match span {
            Span::Columns(n) => format!("((u32)col / {n}u)"),
            _ => "0".to_owned(),
        };
        let stride = size(self.p.view(view).col_stride);
        let element = format!("*(g{} + {} + (i64){col} * {stride})", view.0, self.down(view));
        let bits = match self.p.view_dtype(view) {
            DType::F32 => self.language.bits_of_float(&element),
            _ => format!("(u32){element}"),
        };
        self.line(&format!("{name}[0] = {inside} ? {bits} : 0u;"));
    }

    /// States the numbers beside element `e` of a chunk, as a body's variables.
    pub(super) fn given_beside(&mut self, c: &Copy, name: &str) -> Result<()> {
        for (n, b) in c.with.iter().enumerate() {
            let e = if b.span == Span::One { "e" } else { "0" };
            let number = number(self.language, self.p.view_dtype(b.view), &format!("{name}_{n}[i]"), e);
            self.line(&format!("float m{} = {number};", 4 + n));
        }
        Ok(())
    }
}
