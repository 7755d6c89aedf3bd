//! Kernels as records: statements in a flat list, buffers without names.

use std::sync::Arc;

use rlx_ir::Result;
use serde::{Deserialize, Serialize};

use super::malformed;
use crate::ir::{Access, Buffer, BufferDecl, Inst, Kernel, Shared, SharedDecl, Stmt, Ty, Value, Var};
use crate::target::KernelTarget;
use crate::text::KernelHash;
use crate::verify;

/// How deep statements may nest.
const MOST_DEPTH: usize = 64;
/// The most statements of a kernel, and the most of its variables: the verifier's time is bounded by both.
const MOST_STATEMENTS: usize = 1 << 18;
const MOST_VARS: usize = 1 << 12;
/// The longest name of a kernel.
const MOST_NAME: usize = 256;

/// A kernel without the names that only people read, but for its own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KernelRecord {
    pub(super) hash: [u8; 32],
    pub(super) name: String,
    pub(super) buffers: Vec<(String, Access)>,
    pub(super) uniforms: u32,
    pub(super) shared: Vec<SharedDecl>,
    pub(super) vars: Vec<Ty>,
    pub(super) values: Vec<Ty>,
    pub(super) workgroup: u32,
    pub(super) subgroup: Option<u32>,
    pub(super) body: Vec<Line>,
}

/// A statement, or where a list of statements begins or ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Line {
    Let(Value, Inst),
    LoadWide(Vec<Value>, Buffer, Value),
    Set(Var, Value),
    Store(Buffer, Value, Value),
    StoreShared(Shared, Value, Value),
    MergeBits(Buffer, Value, Value, Value),
    If(Value),
    Else,
    For { counter: Value, from: Value, to: Value, step: i32 },
    End,
    Barrier,
    Fail(u32, Value),
    StoreWide(Buffer, Value, Vec<Value>),
}

impl KernelRecord {
    /// Of a kernel.
    pub fn of(kernel: &Kernel) -> Self {
        // Every field is named, so that a new one cannot be forgotten.
        let Kernel { name, buffers, uniforms, shared, vars, values, workgroup, subgroup, body } = kernel;
        let mut lines = Vec::new();
        write(body, &mut lines);
        KernelRecord {
            hash: kernel.hash().0,
            name: name.chars().filter(|c| is_plain(*c)).take(MOST_NAME).collect(),
            buffers: buffers.iter().map(|b| (b.dtype.name().to_owned(), b.access)).collect(),
            uniforms: uniforms.len() as u32,
            shared: shared.clone(),
            vars: vars.clone(),
            values: values.clone(),
            workgroup: *workgroup,
            subgroup: *subgroup,
            body: lines,
        }
    }

    /// The kernel, verified, within a device's limits, and what its hash says.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`](rlx_ir::ErrorKind::Malformed) for one that is none of that.
    pub fn verified(&self, target: &KernelTarget) -> Result<(KernelHash, Arc<Kernel>)> {
        let kernel = self.kernel()?;
        verify::verify(&kernel).map_err(|e| malformed(e.message()))?;
        target.fits(&kernel).map_err(malformed)?;
        if kernel.hash().0 != self.hash {
            return Err(malformed(format!("kernel {:?} is not what its hash says", kernel.name)));
        }
        Ok((KernelHash(self.hash), Arc::new(kernel)))
    }

    /// The kernel, not yet verified.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`](rlx_ir::ErrorKind::Malformed) for what is too large, or does not nest.
    pub fn kernel(&self) -> Result<Kernel> {
        let fault = |what: &str| malformed(format!("kernel {:?}: {what}", self.name));
        // A name is in a comment of the rendered text: it must not end the line.
        if self.name.chars().count() > MOST_NAME || !self.name.chars().all(is_plain) {
            return Err(malformed("a kernel's name is none"));
        }
        let counts = [self.body.len(), self.values.len(), self.uniforms as usize, self.shared.len()];
        if counts.iter().any(|&n| n > MOST_STATEMENTS) || self.vars.len() > MOST_VARS {
            return Err(fault("it is too large"));
        }
        let buffer = |(i, (dtype, access)): (usize, &(String, Access))| {
            let dtype = dtype.parse().map_err(|_| fault("a buffer of an unknown type"))?;
            Ok(BufferDecl { name: format!("b{i}"), dtype, access: *access })
        };
        Ok(Kernel {
            name: self.name.clone(),
            buffers: self.buffers.iter().enumerate().map(buffer).collect::<Result<_>>()?,
            uniforms: (0..self.uniforms).map(|i| format!("u{i}")).collect(),
            shared: self.shared.clone(),
            vars: self.vars.clone(),
            values: self.values.clone(),
            workgroup: self.workgroup,
            subgroup: self.subgroup,
            body: read(&self.body).ok_or_else(|| fault("statements that do not nest"))?,
        })
    }
}

/// Whether a character may be in a name.
fn is_plain(c: char) -> bool {
    c.is_ascii_graphic() || c == ' '
}

/// Writes statements as lines.
fn write(stmts: &[Stmt], lines: &mut Vec<Line>) {
    for stmt in stmts {
        let line = match stmt {
            Stmt::Let(v, inst) => Line::Let(*v, *inst),
            Stmt::LoadWide { values, buffer, index } => Line::LoadWide(values.clone(), *buffer, *index),
            Stmt::Set(var, v) => Line::Set(*var, *v),
            Stmt::Store { buffer, index, value } => Line::Store(*buffer, *index, *value),
            Stmt::StoreWide { buffer, index, values } => Line::StoreWide(*buffer, *index, values.clone()),
            Stmt::StoreShared { shared, index, value } => Line::StoreShared(*shared, *index, *value),
            Stmt::MergeBits { buffer, index, mask, bits } => Line::MergeBits(*buffer, *index, *mask, *bits),
            Stmt::Barrier => Line::Barrier,
            Stmt::Fail { code, value } => Line::Fail(*code, *value),
            Stmt::If { cond, then, otherwise } => {
                lines.push(Line::If(*cond));
                write(then, lines);
                if !otherwise.is_empty() {
                    lines.push(Line::Else);
                    write(otherwise, lines);
                }
                Line::End
            }
            Stmt::For { counter, from, to, step, body } => {
                lines.push(Line::For { counter: *counter, from: *from, to: *to, step: *step });
                write(body, lines);
                Line::End
            }
        };
        lines.push(line);
    }
}

/// A list that is not yet at its end.
enum Open {
    Then(Value),
    Otherwise(Value, Vec<Stmt>),
    For { counter: Value, from: Value, to: Value, step: i32 },
}

/// The statements that lines stand for; `None` where they do not nest, or too deep.
fn read(lines: &[Line]) -> Option<Vec<Stmt>> {
    // Each open list, with the statements before it.
    let mut outer: Vec<(Open, Vec<Stmt>)> = Vec::new();
    let mut stmts = Vec::new();
    for line in lines {
        let stmt = match *line {
            Line::Let(v, inst) => Stmt::Let(v, inst),
            Line::LoadWide(ref values, buffer, index) => {
                Stmt::LoadWide { values: values.clone(), buffer, index }
            }
            Line::Set(var, v) => Stmt::Set(var, v),
            Line::Store(buffer, index, value) => Stmt::Store { buffer, index, value },
            Line::StoreWide(buffer, index, ref values) => {
                Stmt::StoreWide { buffer, index, values: values.clone() }
            }
            Line::StoreShared(shared, index, value) => Stmt::StoreShared { shared, index, value },
            Line::MergeBits(buffer, index, mask, bits) => Stmt::MergeBits { buffer, index, mask, bits },
            Line::Barrier => Stmt::Barrier,
            Line::Fail(code, value) => Stmt::Fail { code, value },
            Line::If(cond) => {
                outer.push((Open::Then(cond), std::mem::take(&mut stmts)));
                continue;
            }
            Line::For { counter, from, to, step } => {
                outer.push((Open::For { counter, from, to, step }, std::mem::take(&mut stmts)));
                continue;
            }
            Line::Else => {
                let (Open::Then(cond), before) = outer.pop()? else { return None };
                outer.push((Open::Otherwise(cond, std::mem::take(&mut stmts)), before));
                continue;
            }
            Line::End => {
                let (open, before) = outer.pop()?;
                let body = std::mem::replace(&mut stmts, before);
                match open {
                    Open::Then(cond) => Stmt::If { cond, then: body, otherwise: Vec::new() },
                    Open::Otherwise(cond, then) => Stmt::If { cond, then, otherwise: body },
                    Open::For { counter, from, to, step } => Stmt::For { counter, from, to, step, body },
                }
            }
        };
        if outer.len() > MOST_DEPTH {
            return None;
        }
        stmts.push(stmt);
    }
    outer.is_empty().then_some(stmts)
}
