//! Stores of sums: matrix by matrix through the warp's part of workgroup memory, of which each invocation takes half a row.

use rlx_ir::Result;

use super::body::{Body, Of, component, index};
use super::matrix;
use crate::beside::Beside;
use crate::ir::{Fragment, Index, View};
use crate::layout::CHUNK;
use crate::scalar::Scalar;

impl Body<'_> {
    pub(super) fn store(
        &mut self,
        (to, from): (View, Fragment),
        with: &[Beside],
        map: Option<&Scalar>,
        at: (&Index, &Index),
    ) -> Result<()> {
        let d = *self.p.fragment(from);
        let (rows, cols) = self.matrices(d.rows, d.cols);
        let bits = self.p.arch.lanes().ilog2();
        self.open(&format!("for (var k = 0i; k < {}i; k += 1i) {{", rows * cols));
        // The last matrix has been read by all, and what was copied has been used.
        self.line("workgroupBarrier();");
        self.open("switch (k) {");
        for k in 0..rows * cols {
            let name = matrix(from, k / cols, k % cols);
            self.line(&format!("case {k}i: {{ coopStoreT({name}, &exchanged[subgroup * 64u], 4u); }}"));
        }
        self.line("default: {}");
        self.close();
        self.line("workgroupBarrier();");
        self.line("let down = (thread >> 1u) & 15i;");
        self.line("let right = (thread & 1i) * 8i;");
        self.line(&format!("let row = {} + k / {cols}i * 16i + down;", index(at.0, Of::Invocations)));
        self.line(&format!("let col = {} + k % {cols}i * 16i + right;", index(at.1, Of::Invocations)));
        self.line(&format!("let own = (thread >> {bits}u) * 64i + down * 4i + right / 4i;"));
        self.line("let xl = exchanged[own];");
        self.line("let xh = exchanged[own + 1i];");
        self.declare_beside(with, "x");
        self.read_beside(with, "x");
        let together = self.p.view(to).vector.min(CHUNK);
        for part in 0..CHUNK / together {
            let (address, inside) = self.place(to, part * together);
            self.open(&format!("if ({inside}) {{"));
            let mut values = Vec::new();
            for e in part * together..(part + 1) * together {
                let x = component("x", e);
                let value = match map {
                    Some(map) => self.call(map, (&x, e), (with, "x"))?,
                    None => x,
                };
                self.line(&format!("let y{e} = {value};"));
                values.push(format!("y{e}"));
            }
            self.write_run(to, &address, &values);
            self.close();
        }
        self.close();
        Ok(())
    }
}
