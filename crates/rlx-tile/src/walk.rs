//! What the statements of a program have in common, wherever they stand.

use std::collections::BTreeMap;

use rlx_kernel::ir::{Access, Buffer};

use crate::ir::{Begin, Counter, Program, Stmt};
use crate::scalar::Scalar;

impl Program {
    /// Whether a body reads what is in this buffer, which the program writes: an element is then stored over what its own body read.
    pub fn reads_over(&self, buffer: Buffer) -> bool {
        fn reads(p: &Program, body: &[Stmt], buffer: Buffer) -> bool {
            let of_body = |map: &Option<Scalar>| map.as_ref().is_some_and(|map| map.reads(buffer));
            body.iter().any(|stmt| match stmt {
                Stmt::Store { map, with, .. } => {
                    of_body(map) || with.iter().any(|b| p.view(b.view).buffer == buffer)
                }
                Stmt::Each { map, .. } => map.reads(buffer),
                Stmt::For { body, .. } | Stmt::Pipelined { body, .. } | Stmt::Tiles { body, .. } => {
                    reads(p, body, buffer)
                }
                Stmt::Staggered(s) => s.lists().iter().any(|list| reads(p, list, buffer)),
                Stmt::Roles { producer, multiplier, consumers } => {
                    [producer, multiplier, consumers].iter().any(|list| reads(p, list, buffer))
                }
                _ => false,
            })
        }
        let written = self.buffers.get(buffer.index()).is_some_and(|b| b.access != Access::Read);
        written && reads(self, &self.body, buffer)
    }

    /// The loops with windows.
    pub(crate) fn begins(&self) -> BTreeMap<Counter, Begin> {
        fn collect(body: &[Stmt], all: &mut BTreeMap<Counter, Begin>) {
            for stmt in body {
                let (Stmt::For { counter, extent, below, step, body, .. }
                | Stmt::Pipelined { counter, extent, below, step, body, .. }) = stmt
                else {
                    continue;
                };
                let begin = below.and_then(|below| {
                    let window = below.window?;
                    Some(Begin { window, below, extent: *extent, step: *step })
                });
                all.extend(begin.map(|begin| (*counter, begin)));
                collect(body, all);
            }
        }
        let mut all = BTreeMap::new();
        collect(&self.body, &mut all);
        all
    }
}
