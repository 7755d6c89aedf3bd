//! What a copy reads beside its elements, and a store beside its sums.

use rlx_ir::DType;

use super::body::{Body, index};
use super::language::size;
use super::numbers::{number, words};
use crate::beside::{Beside, Span};
use crate::ir::{Index, View};

/// Bits that memory is read by at least.
const SECTOR_BITS: u32 = 256;

impl Body<'_> {
    /// The registers for what is read beside so many chunks, one name for each view.
    pub(super) fn declare_beside(&mut self, with: &[Beside], chunk: u32, chunks: u32, name: &str) {
        for (n, b) in with.iter().enumerate() {
            let words = words(b.span, chunk, self.p.view_dtype(b.view));
            self.line(&format!("u32 {name}{n}[{chunks}][{words}];"));
        }
    }

    /// Reads what is beside the chunk at `row`, `col` as it is, into words of which `{}` in `name` stands for the number of the view.
    pub(super) fn fetch_beside(&mut self, with: &[Beside], chunk: u32, name: &str) {
        for (n, b) in with.iter().enumerate() {
            let name = name.replace("{}", &n.to_string());
            self.open("{");
            match b.span {
                Span::One => self.read_chunk(b.view, chunk, &name),
                span => self.read_shared(b.view, span, &name),
            }
            self.close();
        }
    }

    /// Fetches rows of a view into the caches, 32 bytes by each access; not what all rows share.
    pub(super) fn prefetch(&mut self, from: View, at: (&Index, &Index), (rows, cols): (u32, u32)) {
        let (view, lanes) = (self.p.view(from), self.p.arch.lanes());
        let each = SECTOR_BITS / self.p.view_dtype(from).bits() as u32;
        let along = cols.div_ceil(each);
        self.open(&format!("if ({} != 0) {{", size(view.row_stride)));
        self.unrolled("i", (rows * along).div_ceil(lanes));
        self.line(&format!("const int n = lane + i * {lanes};"));
        self.line(&format!(
            "const int row = {} + n / {along}, col = {} + n % {along} * {each};",
            index(at.0),
            index(at.1)
        ));
        let (address, inside) = self.address(from, 0);
        let all =
            if (rows * along) % lanes == 0 { String::new() } else { format!("n < {} && ", rows * along) };
        self.line(&format!("if ({all}{inside}) prefetch({address});"));
        self.close();
        self.close();
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
    pub(super) fn given_beside(&mut self, with: &[Beside], name: &str, e: &str) {
        for (n, b) in with.iter().enumerate() {
            let (e, words) = (if b.span == Span::One { e } else { "0" }, name.replace("{}", &n.to_string()));
            let number = number(self.language, self.p.view_dtype(b.view), &words, e);
            self.line(&format!("float m{} = {number};", 4 + n));
        }
    }
}
