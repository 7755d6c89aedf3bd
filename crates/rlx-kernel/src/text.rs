//! The text form of kernels, and the hash made from it.
//!
//! ```text
//! kernel double workgroup 64
//!   b0 x: f32 read
//!   b1 y: f32 write
//!   u0 n
//! {
//!   v0: i32 = uniform u0
//!   …
//!   if v5 {
//!     v6: f32 = load b0[v4]
//!     store b1[v4] = v7
//!   }
//! }
//! ```

use std::fmt::{self, Write};

use crate::ir::{Access, Const, Inst, Kernel, Stmt, Ty, UnOp, Value};

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl fmt::Display for Const {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ty {
            Ty::Bool => write!(f, "{}", self.bits != 0),
            Ty::F32 => write!(f, "{:?} /*{:#010x}*/", f32::from_bits(self.bits as u32), self.bits),
            Ty::F64 => write!(f, "{:?} /*{:#018x}*/", f64::from_bits(self.bits), self.bits),
            ty => write!(f, "{}", crate::eval::int(ty, self.bits)),
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "kernel {} workgroup {}", self.name, self.workgroup)?;
        for (i, b) in self.buffers.iter().enumerate() {
            writeln!(f, "  b{i} {}: {} {}", b.name, b.dtype, access_name(b.access))?;
        }
        for (i, name) in self.uniforms.iter().enumerate() {
            writeln!(f, "  u{i} {name}")?;
        }
        write_rest(f, self)
    }
}

fn access_name(access: Access) -> &'static str {
    match access {
        Access::Read => "read",
        Access::Write => "write",
        Access::Atomic => "atomic",
    }
}

fn write_rest(f: &mut dyn Write, k: &Kernel) -> fmt::Result {
    if let Some(lanes) = k.subgroup {
        writeln!(f, "  subgroup {lanes}")?;
    }
    for (i, s) in k.shared.iter().enumerate() {
        writeln!(f, "  s{i} {}[{}]", s.ty.name(), s.len)?;
    }
    for (i, ty) in k.vars.iter().enumerate() {
        writeln!(f, "  m{i} {}", ty.name())?;
    }
    f.write_str("{\n")?;
    write_block(f, k, &k.body, 1)?;
    f.write_str("}\n")
}

fn write_block(f: &mut dyn Write, k: &Kernel, stmts: &[Stmt], depth: usize) -> fmt::Result {
    for s in stmts {
        write!(f, "{:1$}", "", depth * 2)?;
        match s {
            Stmt::Let(v, inst) => {
                let ty = k.values.get(v.index()).map_or("?", |t| t.name());
                write!(f, "{v}: {ty} = ")?;
                write_inst(f, inst)?;
                f.write_char('\n')?;
            }
            Stmt::LoadWide { values, buffer, index } => {
                for (i, v) in values.iter().enumerate() {
                    let ty = k.values.get(v.index()).map_or("?", |t| t.name());
                    write!(f, "{}{v}: {ty}", if i > 0 { ", " } else { "" })?;
                }
                writeln!(f, " = load b{}[{index}..]", buffer.0)?;
            }
            Stmt::Set(var, v) => writeln!(f, "m{} = {v}", var.0)?,
            Stmt::Store { buffer, index, value } => writeln!(f, "store b{}[{index}] = {value}", buffer.0)?,
            Stmt::StoreWide { buffer, index, values } => {
                let values: Vec<String> = values.iter().map(Value::to_string).collect();
                writeln!(f, "store b{}[{index}..] = {}", buffer.0, values.join(", "))?
            }
            Stmt::StoreShared { shared, index, value } => {
                writeln!(f, "store s{}[{index}] = {value}", shared.0)?
            }
            Stmt::MergeBits { buffer, index, mask, bits } => {
                writeln!(f, "merge b{}[{index}] mask {mask} = {bits}", buffer.0)?
            }
            Stmt::If { cond, then, otherwise } => {
                writeln!(f, "if {cond} {{")?;
                write_block(f, k, then, depth + 1)?;
                if !otherwise.is_empty() {
                    writeln!(f, "{:1$}}} else {{", "", depth * 2)?;
                    write_block(f, k, otherwise, depth + 1)?;
                }
                writeln!(f, "{:1$}}}", "", depth * 2)?;
            }
            Stmt::For { counter, from, to, step, body } => {
                writeln!(f, "for {counter} in {from}..{to} step {step} {{")?;
                write_block(f, k, body, depth + 1)?;
                writeln!(f, "{:1$}}}", "", depth * 2)?;
            }
            Stmt::Barrier => f.write_str("barrier\n")?,
            Stmt::Fail { code, value } => writeln!(f, "fail {code} {value}")?,
        }
    }
    Ok(())
}

fn write_inst(f: &mut dyn Write, inst: &Inst) -> fmt::Result {
    match inst {
        Inst::Const(c) => write!(f, "{c}"),
        Inst::Uniform(i) => write!(f, "uniform u{i}"),
        Inst::LocalId => f.write_str("local"),
        Inst::GroupId => f.write_str("group"),
        Inst::Get(var) => write!(f, "m{}", var.0),
        Inst::Unary(UnOp::Math(m), v) => write!(f, "{} {v}", m.name().to_lowercase()),
        Inst::Unary(op, v) => write!(f, "{op:?} {v}"),
        Inst::Binary(op, a, b) => write!(f, "{op:?} {a} {b}"),
        Inst::Compare(op, a, b) => write!(f, "{op:?} {a} {b}"),
        Inst::Select(c, a, b) => write!(f, "select {c} {a} {b}"),
        Inst::Convert(ty, v) => write!(f, "convert {} {v}", ty.name()),
        Inst::Bitcast(ty, v) => write!(f, "bitcast {} {v}", ty.name()),
        Inst::Load(b, i) => write!(f, "load b{}[{i}]", b.0),
        Inst::LoadShared(s, i) => write!(f, "load s{}[{i}]", s.0),
        Inst::Fma(x, y, z) => write!(f, "fma {x} {y} {z}"),
        Inst::ShuffleXor(v, bits) => write!(f, "shuffle {v} xor {bits}"),
    }
}

/// 32 bytes that name a kernel: the same for equal kernels in every process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelHash(pub [u8; 32]);

impl fmt::Display for KernelHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl Kernel {
    /// The hash of everything that decides what the kernel computes; names do not count.
    pub fn hash(&self) -> KernelHash {
        let mut text = format!("{} {}\n", self.workgroup, self.uniforms.len());
        for b in &self.buffers {
            let _ = writeln!(text, "{} {}", b.dtype, access_name(b.access));
        }
        // Writing to a string cannot fail.
        let _ = write_rest(&mut text, self);
        KernelHash(*blake3::hash(text.as_bytes()).as_bytes())
    }
}
