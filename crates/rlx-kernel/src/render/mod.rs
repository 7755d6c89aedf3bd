//! Renderers: a kernel in a device's language.
//!
//! All languages share the walk over statements (`write_body`); a `Dialect` says how types, instructions and
//! stores are written. CUDA C, HIP C and the Metal Shading Language are one `Dialect` of several flavours (`c.rs`). Renderers reject what their language lacks: run [`crate::emulate`] first.
//!
//! **Bindings.** Binding 0 (CUDA: the first argument; Metal: `buffer(0)`) is the array of uniforms, `i32` each, in the order of
//! [`crate::Launch::uniforms`], behind them the *step number* that a fault reports; see [`uniform_bytes`]. CUDA C and HIP C have it as a
//! parameter by value, unless it is too large ([`Parameters::by_value`]). The kernel's buffers follow in order, then, for kernels that can fail ([`crate::Kernel::can_fail`]), the fault buffer.
//!
//! **Faults.** The fault buffer is four `u32` words, zero before the run: how many faults there were, and of the
//! first the step number, the axis, and the offending value (an `i32`).

mod c;
mod c_wide;
mod cuda;
mod msl;
mod wgsl;
mod wgsl_wide;

pub use cuda::{cuda, cuda_body, cuda_element, cuda_prelude, hip, hip_prelude};
pub use msl::{msl, msl_body, msl_element, msl_prelude};
pub use wgsl::{WgslOptions, wgsl, wgsl_body, wgsl_prelude};

use std::fmt::Write;

use rlx_ir::{Error, ErrorKind, Result};

use crate::ir::{Buffer, Const, Inst, Kernel, Shared, Stmt, Ty, Value, Var};

/// Words of the fault buffer.
pub const FAULT_WORDS: usize = 4;

/// The uniforms as bytes: little-endian `i32`, the step number last, filled up to a multiple of 16 bytes (so that
/// WGSL can see them as `array<vec4<i32>>`).
pub fn uniform_bytes(values: &[i32], step: u32) -> Vec<u8> {
    let mut bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    bytes.extend(step.to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(16), 0);
    bytes
}

/// The most bytes of parameters of kernels in CUDA C and HIP C. Every version of CUDA takes so many, 12.1 and later ones 32,764 for Volta and what is newer;
/// HIP does not document a limit and is given no more.
const MOST_PARAMETER_BYTES: u64 = 4096;

/// How many parameters of each kind a kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// Uniforms, without the step number.
    pub uniforms: usize,
    /// Buffers, and the fault record where it can fail.
    pub pointers: usize,
}

impl Parameters {
    /// Those of a kernel.
    pub fn of(kernel: &Kernel) -> Parameters {
        let pointers = kernel.buffers.len() + usize::from(kernel.can_fail());
        Parameters { uniforms: kernel.uniforms.len(), pointers }
    }

    /// The bytes that [`uniform_bytes`] gives.
    pub fn uniform_bytes(self) -> u64 {
        4 * (self.uniforms as u64 + 1).next_multiple_of(4)
    }

    /// Whether its uniforms are a parameter by value in CUDA C and HIP C, and not a pointer to them: there may be too many.
    pub fn by_value(self) -> bool {
        self.uniform_bytes() + 8 * self.pointers as u64 <= MOST_PARAMETER_BYTES
    }
}

/// How a language writes what kernels are made of.
trait Dialect {
    fn ty(&self, ty: Ty) -> &'static str;
    fn constant(&self, c: Const) -> String;
    /// The expression of an instruction other than a constant.
    fn inst(&self, inst: &Inst) -> Result<String>;
    fn declare(&self, ty: Ty, name: &str, value: &str) -> String;
    /// Lines that read neighbouring elements; an error where the language reads them one by one only.
    fn load_wide(&self, values: &[Value], buffer: Buffer, index: &str) -> Result<Vec<String>>;
    /// Statements that write `values` from the element `index` on.
    fn store_wide(&self, buffer: Buffer, index: &str, values: &[String]) -> Result<Vec<String>>;
    fn store(&self, buffer: Buffer, index: &str, value: &str) -> Result<String>;
    /// The element of workgroup memory.
    fn shared(&self, shared: Shared, index: &str) -> String {
        format!("s{}[{index}]", shared.0)
    }
    fn merge(&self, buffer: Buffer, index: &str, mask: &str, bits: &str) -> String;
    fn counter(&self, name: &str, from: &str, to: &str, step: i32) -> String;
    fn barrier(&self) -> &'static str;
    fn fail(&self, code: u32, value: &str) -> String;
}

/// What a value is called: constants stand for themselves.
struct Names {
    constants: Vec<Option<Const>>,
}

impl Names {
    fn new(kernel: &Kernel) -> Self {
        let mut constants = vec![None; kernel.values.len()];
        kernel.for_each_stmt(&mut |s| {
            if let Stmt::Let(v, Inst::Const(c)) = s {
                constants[v.index()] = Some(*c);
            }
        });
        Names { constants }
    }

    fn constant(&self, v: Value) -> Option<Const> {
        self.constants[v.index()]
    }
}

fn var_name(v: Var) -> String {
    format!("m{}", v.0)
}

fn reject<T>(kernel: &Kernel, language: &str, what: impl std::fmt::Display) -> Result<T> {
    let message = format!("kernel {:?}: {language} has no {what}", kernel.name);
    Err(Error::new(ErrorKind::Internal, message).with_hint("expand it by rlx_kernel::emulate"))
}

/// Writes the statements of a kernel.
fn write_body(d: &dyn Dialect, kernel: &Kernel, names: &Names, out: &mut String) -> Result<()> {
    write_block(d, kernel, names, &kernel.body, 1, out)
}

fn write_block(
    d: &dyn Dialect,
    kernel: &Kernel,
    names: &Names,
    stmts: &[Stmt],
    depth: usize,
    out: &mut String,
) -> Result<()> {
    let name = |v: Value| match names.constant(v) {
        Some(c) => d.constant(c),
        None => v.to_string(),
    };
    for s in stmts {
        let line = match s {
            Stmt::Let(_, Inst::Const(_)) => continue,
            Stmt::Let(v, inst) => d.declare(kernel.values[v.index()], &v.to_string(), &d.inst(inst)?),
            Stmt::LoadWide { values, buffer, index } => {
                for line in d.load_wide(values, *buffer, &name(*index))? {
                    indented(out, depth, &line);
                }
                continue;
            }
            Stmt::Set(var, v) => format!("{} = {};", var_name(*var), name(*v)),
            Stmt::Store { buffer, index, value } => d.store(*buffer, &name(*index), &name(*value))?,
            Stmt::StoreWide { buffer, index, values } => {
                let values: Vec<String> = values.iter().map(|&v| name(v)).collect();
                for line in d.store_wide(*buffer, &name(*index), &values)? {
                    indented(out, depth, &line);
                }
                continue;
            }
            Stmt::StoreShared { shared, index, value } => {
                format!("{} = {};", d.shared(*shared, &name(*index)), name(*value))
            }
            Stmt::MergeBits { buffer, index, mask, bits } => {
                d.merge(*buffer, &name(*index), &name(*mask), &name(*bits))
            }
            Stmt::Barrier => d.barrier().to_string(),
            Stmt::Fail { code, value } => d.fail(*code, &name(*value)),
            Stmt::If { cond, then, otherwise } => {
                indented(out, depth, &format!("if ({}) {{", name(*cond)));
                write_block(d, kernel, names, then, depth + 1, out)?;
                if !otherwise.is_empty() {
                    indented(out, depth, "} else {");
                    write_block(d, kernel, names, otherwise, depth + 1, out)?;
                }
                "}".to_string()
            }
            Stmt::For { counter, from, to, step, body } => {
                indented(out, depth, &d.counter(&counter.to_string(), &name(*from), &name(*to), *step));
                write_block(d, kernel, names, body, depth + 1, out)?;
                "}".to_string()
            }
        };
        indented(out, depth, &line);
    }
    Ok(())
}

fn indented(out: &mut String, depth: usize, line: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{:1$}{line}", "", depth * 2);
}

/// The operator between two values, where languages agree.
fn operator(op: crate::ir::BinOp) -> Option<&'static str> {
    use crate::ir::BinOp as B;
    Some(match op {
        B::Add => "+",
        B::Sub => "-",
        B::Mul => "*",
        B::Div => "/",
        B::Rem => "%",
        B::And => "&",
        B::Or => "|",
        B::Xor => "^",
        B::Shl => "<<",
        B::Shr => ">>",
        _ => return None,
    })
}

fn comparison(op: crate::ir::Cmp) -> &'static str {
    use crate::ir::Cmp as C;
    match op {
        C::Eq => "==",
        C::Ne => "!=",
        C::Lt => "<",
        C::Le => "<=",
        C::Gt => ">",
        C::Ge => ">=",
    }
}

/// A finite, normal float (or 0) as all languages read it back to the same bits.
fn float_literal(x: f32) -> Option<String> {
    if !x.is_normal() && x.to_bits() != 0 {
        return None;
    }
    let mut digits = format!("{x:?}");
    // The shortest digits of the largest floats are beyond them; a reader that does not round rejects those.
    if digits.parse::<f64>().is_ok_and(|read| read.abs() > f64::from(f32::MAX)) {
        digits = format!("{:?}", f64::from(x));
    }
    Some(if x < 0.0 { format!("({digits}f)") } else { format!("{digits}f") })
}

#[cfg(test)]
mod tests {
    use super::float_literal;

    #[test]
    fn literals_are_their_floats_and_none_is_beyond_the_largest() {
        for x in [0.0, 1.5, -3.25, f32::MIN_POSITIVE, 1e-30, f32::MAX, f32::MIN, f32::MAX.next_down()] {
            let literal = float_literal(x).unwrap();
            let read: f64 = literal.trim_matches(['(', ')', 'f']).parse().unwrap();
            assert!((read as f32).to_bits() == x.to_bits() && read.abs() <= f64::from(f32::MAX), "{literal}");
        }
        assert!(float_literal(f32::INFINITY).is_none() && float_literal(-0.0).is_none());
    }
}
