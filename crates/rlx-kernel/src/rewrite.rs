//! Writing a kernel again, with more known than when it was written: uniforms that are constants, loops that are written out.
//!
//! Everything goes through the [`Builder`], so that what follows from the constants is simplified: conditions that are known are gone with what they
//! excluded, and so are loops of one iteration or none. A variable whose value is known where it is read is that value. Neither the order nor the
//! operands of any arithmetic of floats change.

use std::collections::HashSet;

use crate::build::Builder;
use crate::ir::{Inst, Kernel, Stmt, Value, Var};
use crate::simplify::replace_operands;

/// What is known of a kernel besides its text.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The values of uniforms; those beyond the end are not known.
    pub uniforms: Vec<Option<i32>>,
    /// How many workgroups there are.
    pub groups: Option<i32>,
    /// The counters of the loops that are written out, where the number of iterations is known.
    pub written_out: HashSet<Value>,
}

/// Writes a kernel again. Uniforms that are known are no longer among its uniforms.
pub(crate) fn rewrite(kernel: &Kernel, known: &Known) -> Kernel {
    let mut b = Builder::new(kernel.name.clone(), kernel.workgroup);
    b.set_subgroup(kernel.subgroup);
    for decl in &kernel.buffers {
        b.buffer(decl.name.clone(), decl.dtype, decl.access);
    }
    let uniform = |(i, name): (usize, &String)| match known.uniforms.get(i).copied().flatten() {
        Some(value) => b.int(value),
        None => b.uniform(name.clone(), i32::MIN, i32::MAX),
    };
    let uniforms = kernel.uniforms.iter().enumerate().map(uniform).collect();
    for &ty in &kernel.vars {
        b.declare_var(ty);
    }
    for s in &kernel.shared {
        b.shared(s.ty, s.len);
    }
    let (values, vars) = (vec![None; kernel.values.len()], vec![None; kernel.vars.len()]);
    let mut rewriter = Rewriter { known, b, uniforms, values, vars };
    rewriter.stmts(&kernel.body);
    let mut kernel = rewriter.b.finish();
    drop_unread(&mut kernel);
    kernel
}

struct Rewriter<'k> {
    known: &'k Known,
    b: Builder,
    /// Of the old kernel's uniforms.
    uniforms: Vec<Value>,
    /// What the old kernel's values are.
    values: Vec<Option<Value>>,
    /// What variables have at this place, where one value is that.
    vars: Vec<Option<Value>>,
}

impl Rewriter<'_> {
    fn of(&self, v: Value) -> Value {
        // The verifier's rule: what is used was defined.
        self.values[v.index()].unwrap_or(Value(0))
    }

    fn stmts(&mut self, stmts: &[Stmt]) {
        stmts.iter().for_each(|s| self.stmt(s));
    }

    fn stmt(&mut self, s: &Stmt) {
        match s {
            Stmt::Let(v, inst) => self.values[v.index()] = Some(self.inst(*inst)),
            Stmt::LoadWide { values, buffer, index } => {
                let read = self.b.load_wide(*buffer, self.of(*index), values.len());
                for (v, read) in values.iter().zip(read) {
                    self.values[v.index()] = Some(read);
                }
            }
            Stmt::Set(var, v) => {
                let value = self.of(*v);
                self.b.set(*var, value);
                self.vars[var.index()] = Some(value);
            }
            Stmt::Store { buffer, index, value } => self.b.store(*buffer, self.of(*index), self.of(*value)),
            Stmt::StoreWide { buffer, index, values } => {
                let values = values.iter().map(|&v| self.of(v)).collect();
                self.b.store_wide(*buffer, self.of(*index), values);
            }
            Stmt::StoreShared { shared, index, value } => {
                self.b.store_shared(*shared, self.of(*index), self.of(*value));
            }
            Stmt::MergeBits { buffer, index, mask, bits } => {
                self.b.merge_bits(*buffer, self.of(*index), self.of(*mask), self.of(*bits));
            }
            Stmt::If { cond, then, otherwise } => self.choose(self.of(*cond), then, otherwise),
            Stmt::For { counter, from, to, step, body } => {
                self.repeat(*counter, (self.of(*from), self.of(*to), *step), body);
            }
            Stmt::Barrier => self.b.barrier(),
            Stmt::Fail { code, value } => self.b.fail(*code, self.of(*value)),
        }
    }

    fn choose(&mut self, cond: Value, then: &[Stmt], otherwise: &[Stmt]) {
        match self.b.as_const(cond) {
            Some(c) if c.bits != 0 => self.stmts(then),
            Some(_) => self.stmts(otherwise),
            None => {
                let (then_list, otherwise_list) = (self.block(then), self.block(otherwise));
                self.b.push_if(cond, then_list, otherwise_list);
                self.forget(then);
                self.forget(otherwise);
            }
        }
    }

    fn repeat(&mut self, counter: Value, (from, to, step): (Value, Value, i32), body: &[Stmt]) {
        if let Some(mut counts) = self.iterations(from, to, step)
            && (counts.len() <= 1 || self.known.written_out.contains(&counter))
        {
            counts.by_ref().for_each(|count| {
                self.values[counter.index()] = Some(self.b.int(count));
                self.stmts(body);
            });
            return;
        }
        self.forget(body);
        let own = self.b.counter(from, to);
        self.values[counter.index()] = Some(own);
        let list = self.block(body);
        self.b.push_for(own, from, to, step, list);
    }

    /// The values of a loop's counter, where they are known.
    fn iterations(
        &self,
        from: Value,
        to: Value,
        step: i32,
    ) -> Option<impl ExactSizeIterator<Item = i32> + use<>> {
        let [from, to] = [from, to].map(|v| self.b.as_const(v)?.as_i32());
        let (from, to) = (from?, to?);
        let count = iterations(from, to, step);
        Some((0..count).map(move |i| (i64::from(from) + i as i64 * i64::from(step)) as i32))
    }

    /// An inner list, whose values are not known behind it.
    fn block(&mut self, stmts: &[Stmt]) -> Vec<Stmt> {
        let before = self.vars.clone();
        self.b.open();
        self.stmts(stmts);
        self.vars = before;
        self.b.close()
    }

    /// The variables that statements set are not known.
    fn forget(&mut self, stmts: &[Stmt]) {
        for s in stmts {
            match s {
                Stmt::Set(var, _) => self.vars[var.index()] = None,
                Stmt::If { then, otherwise, .. } => {
                    self.forget(then);
                    self.forget(otherwise);
                }
                Stmt::For { body, .. } => self.forget(body),
                _ => {}
            }
        }
    }

    fn inst(&mut self, mut inst: Inst) -> Value {
        match inst {
            Inst::Uniform(i) => return self.uniforms[i as usize],
            Inst::Get(var) => return self.get(var),
            _ => replace_operands(&mut inst, &mut |v| self.of(v)),
        }
        let value = self.b.inst(inst);
        if let (Inst::GroupId, Some(groups)) = (inst, self.known.groups) {
            self.b.assume(value, 0, i64::from(groups.max(1)) - 1);
        }
        value
    }

    fn get(&mut self, var: Var) -> Value {
        let known = self.vars[var.index()];
        let value = known.unwrap_or_else(|| self.b.get(var));
        self.vars[var.index()] = Some(value);
        value
    }
}

/// How often a loop's body runs.
pub(crate) fn iterations(from: i32, to: i32, step: i32) -> usize {
    let (away, step) = (i64::from(to) - i64::from(from), i64::from(step.max(1)));
    ((away + step - 1) / step).max(0) as usize
}

/// Removes variables that are never read, with all that sets them.
fn drop_unread(kernel: &mut Kernel) {
    let mut read = vec![false; kernel.vars.len()];
    kernel.for_each_stmt(&mut |s| {
        if let Stmt::Let(_, Inst::Get(var)) = s {
            read[var.index()] = true;
        }
    });
    let mut next = 0;
    let numbers: Vec<Option<Var>> = { read.iter() }
        .map(|&read| {
            next += u32::from(read);
            read.then(|| Var(next - 1))
        })
        .collect();
    renumber(&mut kernel.body, &numbers);
    let mut of = read.iter();
    kernel.vars.retain(|_| *of.next().unwrap_or(&true));
    crate::simplify::drop_unused(kernel);
}

fn renumber(stmts: &mut Vec<Stmt>, numbers: &[Option<Var>]) {
    stmts.retain_mut(|s| {
        match s {
            Stmt::Set(var, _) => match numbers[var.index()] {
                Some(number) => *var = number,
                None => return false,
            },
            Stmt::Let(_, Inst::Get(var)) => *var = numbers[var.index()].unwrap_or(*var),
            Stmt::If { then, otherwise, .. } => {
                renumber(then, numbers);
                renumber(otherwise, numbers);
            }
            Stmt::For { body, .. } => renumber(body, numbers),
            _ => {}
        }
        true
    });
}

#[cfg(test)]
mod tests;
