//! Which loops are written out: those of a known number of iterations that become few statements.
//!
//! ```text
//! for i in 0..3 { for j in 0..3 { 20 statements } }                    both: 180 statements
//! for k in 0..512 { for i in 0..3 { for j in 0..3 { 20 } } }           the inner two; k stays a loop
//! ```

use std::collections::{HashMap, HashSet};

use crate::ir::{Inst, Kernel, Stmt, Value};
use crate::rewrite::{self, Known};

/// The most statements that a loop may become. A GPU's cache of instructions has some thousand.
const MOST_STATEMENTS: usize = 512;

/// The same of all loops of a kernel together.
const MOST_OF_KERNEL: usize = 2048;

/// Writes loops out.
pub(crate) fn unroll(kernel: Kernel) -> Kernel {
    let mut constants = HashMap::new();
    kernel.for_each_stmt(&mut |s| {
        if let Stmt::Let(v, Inst::Const(c)) = s
            && let Some(c) = c.as_i32()
        {
            constants.insert(*v, c);
        }
    });
    let mut choice = Choice { constants, chosen: HashSet::new(), room: MOST_OF_KERNEL };
    choice.statements(&kernel.body);
    if choice.chosen.is_empty() {
        return kernel;
    }
    rewrite::rewrite(&kernel, &Known { written_out: choice.chosen, ..Known::default() })
}

struct Choice {
    constants: HashMap<Value, i32>,
    /// The counters of the loops to be written out.
    chosen: HashSet<Value>,
    /// How many statements more there may be.
    room: usize,
}

/// A list of statements with its loops written out that are chosen.
#[derive(Clone, Copy, Default)]
struct Written {
    statements: usize,
    /// Whether there are loops in it.
    has_loops: bool,
}

impl Written {
    fn and(self, other: Written) -> Written {
        let statements = self.statements.saturating_add(other.statements);
        Written { statements, has_loops: self.has_loops || other.has_loops }
    }
}

impl Choice {
    /// Chooses among the loops of a list, inner ones first.
    fn statements(&mut self, stmts: &[Stmt]) -> Written {
        stmts.iter().fold(Written::default(), |all, s| all.and(self.statement(s)))
    }

    fn statement(&mut self, s: &Stmt) -> Written {
        let one = Written { statements: 1, has_loops: false };
        match s {
            Stmt::Let(_, Inst::Const(_)) => Written::default(),
            Stmt::If { then, otherwise, .. } => {
                one.and(self.statements(then)).and(self.statements(otherwise))
            }
            Stmt::For { counter, from, to, step, body } => {
                let own = self.statements(body);
                let kept = Written { statements: own.statements + 1, has_loops: true };
                let bounds = self.constants.get(from).zip(self.constants.get(to));
                // Around a loop there is little to be gained.
                let Some((&from, &to)) = bounds.filter(|_| !own.has_loops) else { return kept };
                let all = own.statements.saturating_mul(rewrite::iterations(from, to, *step));
                let more = all.saturating_sub(own.statements);
                if all > MOST_STATEMENTS || more > self.room {
                    return kept;
                }
                self.room -= more;
                self.chosen.insert(*counter);
                Written { statements: all, has_loops: false }
            }
            _ => one,
        }
    }
}
